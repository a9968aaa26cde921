"""Newton's method on arrays in as little code as there can be, for a step that is taken alone.

What is compiled for a single step costs more than the step. Here the equations are in the code
once, in the body of one loop, with their matrix, and so is the elimination.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dalembert.stepping.newton import LONG_STEPS, Report, goal, worst_if_nan

__all__ = ["brief_newton"]


def brief_newton(
    residual: Callable[[Any], Any], closely: Callable[[Any, Any], Any], guess: Any
) -> tuple[Any, Report]:
    """The solution of r(u) = 0, and its relative residual; Newton steps as long as they gain.

    Args:
        residual: the equations r, (n,) → (n,).
        closely: (r, u) → the relative residual.
        guess: where to begin.
    """

    def improve(now: tuple[Any, ...]) -> tuple[Any, ...]:
        u, error, count, _ = now
        value, product = jax.linearize(residual, u)
        matrix = jax.vmap(product, out_axes=1)(jnp.eye(u.size, dtype=u.dtype))
        new = worst_if_nan(closely(value, u))
        goes_on = (new > goal(u.dtype)) & (new < error / 2) & (count < LONG_STEPS)
        better = jnp.where(goes_on, u - _solution(matrix, value), u)
        return better, new, count + goes_on.astype(count.dtype), goes_on

    start = guess, jnp.asarray(jnp.inf, guess.dtype), jnp.int32(0), jnp.array(True)
    u, error, count, _ = lax.while_loop(lambda now: now[3], improve, start)
    return u, Report(count, error)


def _solution(matrix: Any, rhs: Any) -> Any:
    """Gauss–Jordan elimination with pivoting, as a loop over the columns."""
    rows = jnp.arange(len(rhs))

    def eliminate(k: Any, both: Any) -> Any:
        pivot = jnp.argmax(jnp.where(rows >= k, jnp.abs(both[:, k]), -1))
        chosen = both[pivot] / both[pivot, k]
        both = both.at[pivot].set(both[k])
        factors = jnp.where(rows == k, 0, both[:, k])
        return (both - jnp.outer(factors, chosen)).at[k].set(chosen)

    return lax.fori_loop(0, len(rhs), eliminate, jnp.column_stack([matrix, rhs]))[:, -1]
