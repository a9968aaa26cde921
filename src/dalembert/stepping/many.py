"""Stage equations of systems with many degrees of freedom, solved without a matrix.

Three ways, from the cheapest on. Equations of which each has one unknown, such as those of friction
that does not mix momenta, are solved entry by entry by Newton's method, linear ones at once.
Others are swept, u ← u − r(u): a stage matrix is a small step away from the identity, so that each
sweep gains digits, at the cost of one evaluation of the forces. Where sweeps stop gaining, Newton's
method goes on, with linear solves by products with vectors (BiCGStab). Everything works on each
path of an ensemble alone, calls no library, and every result has its residual measured.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.sparse.linalg import bicgstab

from dalembert.stepping.newton import LONG_STEPS, Report, goal, tolerance

__all__ = ["solve"]

MAX_SWEEPS = 60
LEAST_GAIN = 0.5
"""What a sweep must make of the residual, at most, to be followed by another."""

MAX_PRODUCTS = 200


class _Now(NamedTuple):
    """Where a path is: unknowns, their residual and its relative size, sweeps or steps, more?"""

    u: Any
    residual: Any
    error: Any
    count: Any
    is_open: Any


def solve(
    residual: Callable[[Any], Any],
    bound: Callable[[Any, Any], Any],
    closely: Callable[[Any, Any], Any],
    guess: Any,
    entrywise: bool,
    affine: bool,
) -> tuple[Any, Report]:
    """The solution of r(u) = 0, and its relative residual.

    Args:
        residual: the equations r, (n,) → (n,).
        bound: (r, u) → an upper bound of the relative residual that costs little.
        closely: (r, u) → the relative residual.
        guess: where to begin.
        entrywise: whether each unknown has an equation of its own.
        affine: whether the equations are linear.
    """
    if entrywise:
        correct = partial(_by_entries, residual)
        found = _iterate(correct, residual, bound, guess, 1 if affine else LONG_STEPS)
    else:
        found = _iterate(lambda u, r: r, residual, bound, guess, MAX_SWEEPS)
        found = _go_on(partial(_by_products, residual), residual, closely, found)
    error = _checked(found, closely)
    return found.u, Report(found.count, error)


def _iterate(
    correction: Callable[[Any, Any], Any],
    residual: Callable[[Any], Any],
    measure: Callable[[Any, Any], Any],
    start: Any,
    most: int,
) -> _Now:
    """Corrections from a start, at least one, as long as they gain."""
    r = residual(start)
    first = _improved(
        correction, residual, measure, _Now(start, r, jnp.inf, jnp.int32(0), jnp.array(True)), most
    )
    if most == 1:
        return first
    improve = partial(_improved, correction, residual, measure, most=most)
    return lax.while_loop(lambda now: now.is_open, improve, first)


def _improved(
    correction: Callable[[Any, Any], Any],
    residual: Callable[[Any], Any],
    measure: Callable[[Any, Any], Any],
    now: _Now,
    most: int,
) -> _Now:
    u = now.u - correction(now.u, now.residual)
    r = residual(u)
    error = measure(r, u)
    gains = error <= LEAST_GAIN * now.error
    count = now.count + 1
    better = (error <= now.error) | (now.count == 0)
    new = _Now(u, r, error, count, (error > goal(error.dtype)) & gains & (count < most))
    # A correction that has made it worse is not taken.
    kept = now._replace(error=jnp.asarray(now.error, error.dtype), count=count, is_open=False)
    return jax.tree.map(partial(jnp.where, better), new, kept)


def _go_on(
    correction: Callable[[Any, Any], Any],
    residual: Callable[[Any], Any],
    closely: Callable[[Any, Any], Any],
    found: _Now,
) -> _Now:
    """More corrections of another kind for a path that has not come to rest; else none."""
    is_done = found.error <= tolerance(found.error.dtype)
    start = found._replace(is_open=~is_done)
    most = MAX_SWEEPS + LONG_STEPS
    improve = partial(_improved, correction, residual, closely, most=most)
    return lax.while_loop(lambda now: now.is_open, improve, start)


def _checked(found: _Now, closely: Callable[[Any, Any], Any]) -> Any:
    """The relative residual: what is known of it, or what a close look says where it is large."""

    def look(state: tuple[Any, Any]) -> tuple[Any, Any]:
        error = closely(found.residual, found.u)
        return jnp.where(error == error, error, jnp.inf).astype(error.dtype), jnp.array(False)

    doubt = ~(found.error <= tolerance(found.error.dtype))
    return lax.while_loop(lambda state: state[1], look, (found.error, doubt))[0]


def _by_entries(residual: Callable[[Any], Any], u: Any, r: Any) -> Any:
    """Newton's correction where the Jacobian is diagonal: a product with ones is all of it."""
    _, slope = jax.jvp(residual, (u,), (jnp.ones_like(u),))
    return r / slope


def _by_products(residual: Callable[[Any], Any], u: Any, r: Any) -> Any:
    """Newton's correction by products of the Jacobian with vectors."""
    _, product = jax.linearize(residual, u)
    target = float(jnp.finfo(u.dtype).eps) ** 0.75
    return bicgstab(product, r, tol=target, atol=0.0, maxiter=MAX_PRODUCTS)[0]
