"""Stage equations of systems with many degrees of freedom, solved without a matrix.

Three ways, from the cheapest on. Equations of which each has one unknown, such as those of friction
that does not mix momenta, are solved entry by entry by Newton's method, linear ones at once; those
of each particle alone in the same way, with small matrices.
Others are swept, u ← u − r(u): a stage matrix is a small step away from the identity, so that each
sweep gains digits, at the cost of one evaluation of the forces. Where sweeps stop gaining, Newton's
method goes on, with linear solves by products with vectors (BiCGStab). Everything works on each
path of an ensemble alone, and every result has its residual measured.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dalembert.stepping.newton import LONG_STEPS
from dalembert.stepping.rescue import dense_solve
from dalembert.stepping.residuals import Report, goal, tolerance, worst_if_nan

__all__ = ["solve"]

MAX_SWEEPS = 60
LEAST_GAIN = 0.5
"""What a correction must make of the residual, at most, to be followed by another."""

BLIND_SWEEPS = 8
"""Sweeps before the first look at the residual: fewer are seldom enough, and a look costs more."""

ASTRAY = 1e-2
"""Relative residual above which sweeps have been for nothing."""

MAX_PRODUCTS = 200


class _Now(NamedTuple):
    """Where a path is: unknowns, their residual and its relative size, sweeps or steps, more?"""

    u: Any
    residual: Any
    error: Any
    count: Any
    is_open: Any


Residual = Callable[[Any], Any]
Correction = Callable[[Any, Any], Any]
"""(u, r(u)) → what is to be taken off u."""


def solve(
    residual: Residual,
    worst: Callable[[Any], Any],
    closely: Callable[[Any, Any], Any],
    guess: Any,
    old: Any,
    width: int,
    affine: bool,
    look: bool = True,
    products: bool = True,
) -> tuple[Any, Report]:
    """The solution of r(u) = 0, and its relative residual.

    Args:
        residual: the equations r, (n,) → (n,).
        worst: the largest entry of each kind (positions, momenta) in an array of the form of u.
        closely: (r, u) → the relative residual.
        guess: where to begin.
        old: the old state, in the form of u.
        width: how many consecutive unknowns have equations of their own; 0 if only all have.
        affine: whether the equations are linear.
        look: whether a residual of which only a large bound is known is looked at closely.
        products: whether Newton's method may follow the sweeps; derivatives of r can be costly.
    """

    def relative(r: Any, size: Any) -> Any:
        return jnp.max(worst(jnp.abs(r)) / size)

    def sizes(u: Any) -> Any:
        return worst(jnp.abs(u) + jnp.abs(old)) + jnp.finfo(u.dtype).tiny

    size = sizes(guess)

    def measure(r: Any, u: Any) -> Any:
        return relative(r, size)

    if width:
        most = 1 if affine else LONG_STEPS
        correction = _by_entries if width == 1 else partial(_by_particles, width)
        found = _iterate(partial(correction, residual), residual, measure, guess, most)
    else:
        swept = lax.fori_loop(0, BLIND_SWEEPS, lambda _, u: u - residual(u), guess)
        found = _iterate(partial(_twice, residual), residual, measure, swept, MAX_SWEEPS // 2)
        found = found._replace(count=2 * found.count + BLIND_SWEEPS)
    bound = relative(found.residual, sizes(found.u))
    if products and not width:
        found, bound = _by_newton(residual, closely, guess, found, bound)
    return found.u, Report(found.count, _checked(found, bound, closely) if look else bound)


def _iterate(
    correction: Correction,
    residual: Residual,
    measure: Callable[[Any, Any], Any],
    start: Any,
    most: int,
) -> _Now:
    """Corrections from a start, at least one, as long as they gain."""
    begin = _Now(start, residual(start), jnp.asarray(jnp.inf, start.dtype), jnp.int32(0), True)
    improve = partial(_improved, correction, residual, measure, most)
    first = improve(begin)
    return first if most == 1 else lax.while_loop(lambda now: now.is_open, improve, first)


def _improved(
    correction: Correction,
    residual: Residual,
    measure: Callable[[Any, Any], Any],
    most: int,
    now: _Now,
) -> _Now:
    u = now.u - correction(now.u, now.residual)
    r = residual(u)
    error, count = measure(r, u), now.count + 1
    goes_on = (error > goal(error.dtype)) & (error <= LEAST_GAIN * now.error) & (count < most)
    return _Now(u, r, error, count, goes_on)


def _by_newton(
    residual: Residual,
    closely: Callable[[Any, Any], Any],
    guess: Any,
    found: _Now,
    bound: Any,
) -> tuple[_Now, Any]:
    """Newton's method for a path that sweeps have not brought to rest; else nothing.

    Where they have led astray it begins where they did.
    """
    is_open, is_astray = ~(bound <= tolerance(bound.dtype)), ~(bound <= ASTRAY)
    start = found._replace(error=jnp.full_like(bound, jnp.inf), is_open=is_open)
    correct = partial(_by_products, residual)
    improve = partial(_improved, correct, residual, closely, MAX_SWEEPS + LONG_STEPS)

    def from_start(now: _Now) -> _Now:
        u = jnp.where(is_astray & jnp.isinf(now.error), guess, now.u)
        return improve(now._replace(u=u, residual=residual(u)))

    end = lax.while_loop(lambda now: now.is_open, from_start, start)
    return end, jnp.where(is_open, end.error, bound)


def _checked(found: _Now, bound: Any, closely: Callable[[Any, Any], Any]) -> Any:
    """The relative residual: a bound of it, or what a close look says where that is large."""

    def look(state: tuple[Any, Any]) -> tuple[Any, Any]:
        return worst_if_nan(closely(found.residual, found.u)), jnp.array(False)

    doubt = ~(bound <= tolerance(bound.dtype))
    return lax.while_loop(lambda state: state[1], look, (bound, doubt))[0]


def _twice(residual: Residual, u: Any, r: Any) -> Any:
    """Two sweeps, with no look between them."""
    return r + residual(u - r)


def _by_entries(residual: Residual, u: Any, r: Any) -> Any:
    """Newton's correction where the Jacobian is diagonal: a product with ones is all of it."""
    _, slope = jax.jvp(residual, (u,), (jnp.ones_like(u),))
    return r / slope


def _by_particles(width: int, residual: Residual, u: Any, r: Any) -> Any:
    """Newton's correction where the Jacobian has a block for every particle."""

    def column(k: int) -> Any:
        along = jnp.zeros((u.size // width, width), u.dtype).at[:, k].set(1)
        return jax.jvp(residual, (u,), (along.reshape(-1),))[1].reshape(-1, width)

    def correction(matrix: Any, r: Any) -> Any:
        return dense_solve(lambda v: matrix @ v, r)

    matrices = jnp.stack([column(k) for k in range(width)], axis=-1)
    return jax.vmap(correction)(matrices, r.reshape(-1, width)).reshape(-1)


def _by_products(residual: Residual, u: Any, r: Any) -> Any:
    """Newton's correction by products of the Jacobian with vectors."""

    def product(v: Any) -> Any:
        return jax.jvp(residual, (u,), (v,))[1]

    return _bicgstab(product, r)


class _Search(NamedTuple):
    """Where BiCGStab is: approximation, residual, direction, ⟨first residual, residual⟩, steps."""

    x: Any
    r: Any
    p: Any
    rho: Any
    steps: Any


def _bicgstab(product: Callable[[Any], Any], b: Any) -> Any:
    """x with product(x) = b, nearly (van der Vorst 1992).

    JAX's own wants to transpose the product, which functions with loops do not allow.
    """
    target = jnp.vdot(b, b) * float(jnp.finfo(b.dtype).eps) ** 1.5

    def quotient(x: Any, y: Any) -> Any:
        return jnp.where(y == 0, jnp.zeros_like(x), x / jnp.where(y == 0, jnp.ones_like(y), y))

    def is_open(now: _Search) -> Any:
        size = jnp.vdot(now.r, now.r)
        return (size > target) & (now.rho != 0) & (now.steps < MAX_PRODUCTS)

    def improve(now: _Search) -> _Search:
        v = product(now.p)
        alpha = quotient(now.rho, jnp.vdot(b, v))
        s = now.r - alpha * v
        t = product(s)
        omega = quotient(jnp.vdot(t, s), jnp.vdot(t, t))
        r = s - omega * t
        rho = jnp.vdot(b, r)
        beta = quotient(rho, now.rho) * quotient(alpha, omega)
        p = r + beta * (now.p - omega * v)
        return _Search(now.x + alpha * now.p + omega * s, r, p, rho, now.steps + 2)

    start = _Search(jnp.zeros_like(b), b, b, jnp.vdot(b, b), jnp.int32(0))
    return lax.while_loop(is_open, improve, start).x
