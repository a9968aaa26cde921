"""Stage equations of systems with many degrees of freedom, solved without a matrix.

Equations of which each has one unknown, such as those of friction that does not mix momenta, are
solved entry by entry by Newton's method, linear ones at once; those of each particle alone in the
same way, with small matrices. All others are swept (`sweeps.py`). Everything works on each path of
an ensemble alone, and every result has its residual measured.
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
from dalembert.stepping.sweeps import LEAST_GAIN, swept

__all__ = ["solve"]

Residual = Callable[[Any], Any]
Correction = Callable[[Residual, Any, Any], Any]
"""(r, u, r(u)) → what is to be taken off u."""


class _Now(NamedTuple):
    """Where a path is: unknowns, their residual and its relative size, steps, more?"""

    u: Any
    residual: Any
    error: Any
    count: Any
    is_open: Any


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
    goes_on: bool = True,
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
        goes_on: whether more sweeps follow a fixed number of them, if that was not enough.
    """

    def measure(r: Any, u: Any) -> Any:
        size = worst(jnp.abs(u) + jnp.abs(old)) + jnp.finfo(u.dtype).tiny
        return jnp.max(worst(jnp.abs(r)) / size)

    if width:
        correction = _by_entries if width == 1 else partial(_by_particles, width)
        u, report = _iterate(correction, residual, measure, guess, 1 if affine else LONG_STEPS)
    else:
        u, report = swept(residual, measure, closely if products else None, guess, goes_on)
    report = _checked(residual, closely, u, report) if look else report
    return u, report._replace(residual=worst_if_nan(report.residual))


def _iterate(
    correction: Correction,
    residual: Residual,
    measure: Callable[[Any, Any], Any],
    start: Any,
    most: int,
) -> tuple[Any, Report]:
    """Corrections from a start, at least one, as long as they gain."""

    def improve(now: _Now) -> _Now:
        u = now.u - correction(residual, now.u, now.residual)
        r = residual(u)
        error, count = measure(r, u), now.count + 1
        goes_on = (error > goal(error.dtype)) & (error <= LEAST_GAIN * now.error) & (count < most)
        return _Now(u, r, error, count, goes_on)

    begin = _Now(start, residual(start), jnp.asarray(jnp.inf, start.dtype), jnp.int32(0), True)
    first = improve(begin)
    end = first if most == 1 else lax.while_loop(lambda now: now.is_open, improve, first)
    return end.u, Report(end.count, end.error)


def _checked(
    residual: Residual, closely: Callable[[Any, Any], Any], u: Any, report: Report
) -> Report:
    """A report with what a close look says where its bound of the residual is large."""

    def look(state: tuple[Any, Any]) -> tuple[Any, Any]:
        return worst_if_nan(closely(residual(u), u)), jnp.array(False)

    bound = report.residual
    doubt = ~(bound <= tolerance(bound.dtype))
    seen, _ = lax.while_loop(lambda state: state[1], look, (bound, doubt))
    return report._replace(residual=seen)


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
