"""Newton's method on arrays in as little code as there can be, for a step that is taken alone.

What is compiled for a single step costs more than the step. Here the equations are in the code
once, in the body of one loop, with their matrix, and so is the elimination.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.stepping.newton import LONG_STEPS
from dalembert.stepping.residuals import Report, worst_if_nan


def brief_newton(
    residual: Callable[[Any], Any],
    worst: Callable[[Any], Any],
    guess: Any,
    old: Any,
    affine: bool,
) -> tuple[Any, Report]:
    """The solution of r(u) = 0, and a bound of its relative residual; steps as long as they gain.

    Args:
        residual: the equations r, (n,) → (n,).
        worst: the largest entry of each kind (positions, momenta) in an array of the form of u.
        guess: where to begin.
        old: the old state, in the form of u.
        affine: whether the equations are linear, so that one step is all there is to gain.
    """
    most = 1 if affine else LONG_STEPS

    def improve(now: tuple[Any, ...]) -> tuple[Any, ...]:
        u, error, count, _ = now
        directions = np.eye(u.size, dtype=u.dtype)
        along = jax.vmap(lambda e: jax.jvp(residual, (u,), (e,)), out_axes=(None, 1))
        value, matrix = along(directions)
        size = worst(jnp.abs(u) + jnp.abs(old)) + jnp.finfo(u.dtype).tiny
        new = worst_if_nan(jnp.max(worst(jnp.abs(value)) / size))
        goes_on = (new > 0) & (new < error / 2) & (count < most)
        better = jnp.where(goes_on, u - _solution(matrix, value), u)
        return better, new, count + goes_on.astype(count.dtype), goes_on

    # Known numbers are NumPy's: JAX would compile code for each of them.
    start = guess, np.asarray(np.inf, guess.dtype), np.int32(0), np.array(True)
    u, error, count, _ = lax.while_loop(lambda now: now[3], improve, start)
    return u, Report(count, error)


def _solution(matrix: Any, rhs: Any) -> Any:
    """Gauss–Jordan elimination with pivoting, as a loop over the columns.

    `rescue.dense_solve` writes the columns out, which batches of paths take faster than slices at
    places that are not known; a step that is taken alone is compiled sooner with them.
    """
    rows = np.arange(len(rhs))
    # Slices, because a scatter is compiled to a loop of its own.
    row, put = partial(lax.dynamic_index_in_dim, keepdims=False), lax.dynamic_update_index_in_dim

    def eliminate(k: Any, both: Any) -> Any:
        column = row(both, k, 1)
        pivot = jnp.argmax(jnp.where(rows >= k, jnp.abs(column), -1))
        chosen = row(both, pivot, 0) / row(column, pivot, 0)
        both = put(both, row(both, k, 0), pivot, 0)
        factors = jnp.where(rows == k, 0, row(both, k, 1))
        return put(both - jnp.outer(factors, chosen), chosen, k, 0)

    return lax.fori_loop(0, len(rhs), eliminate, jnp.column_stack([matrix, rhs]))[:, -1]
