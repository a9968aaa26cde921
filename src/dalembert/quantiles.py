"""Numbers with any density on an interval: the inverse of its distribution function."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def require_callable(density: Any, arguments: str) -> None:
    """Refuse a density that is no function."""
    if not callable(density):
        raise TypeError(f"the density must be a function of {arguments}, not {density!r}.")


def quantile_function(
    density: Callable[[Any], Any], low: float, high: float, points: int = 4096
) -> Callable[[Any], Any]:
    """u → x with a share u of an unnormalised density to the left of x, elementwise.

    The distribution function is tabulated by Simpson's rule; between the points the density is
    taken to be linear, so that it is wrong by second order in their distance.

    Args:
        density: function of one number with a scalar result ≥ 0.
        low: lower end of the interval.
        high: upper end.
        points: number of intervals of the table.
    """
    require_callable(density, "one number")
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"the interval needs low < high, not {low} and {high}.")
    if not isinstance(points, int) or points < 2:
        raise ValueError(f"points must be a whole number ≥ 2, not {points!r}.")
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        fine = np.linspace(low, high, 2 * points + 1)
        values = np.asarray(jax.vmap(density)(jnp.asarray(fine)), np.float64)
    if values.shape != fine.shape or not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError("the density must be a finite scalar ≥ 0 everywhere in the interval.")
    mass = values[:-2:2] + 4 * values[1:-1:2] + values[2::2]
    if not np.sum(mass) > 0:
        raise ValueError("the density is zero everywhere in the interval.")
    cdf = np.concatenate([[0.0], np.cumsum(mass) / np.sum(mass)])
    # Squares of the heights must neither overflow nor vanish in float32.
    nodes, heights = fine[::2], values[::2] / np.max(values)

    def quantile(u: Any) -> Any:
        table, x, f = (jnp.asarray(a, u.dtype) for a in (cdf, nodes, heights))
        i = jnp.clip(jnp.searchsorted(table, u, side="right") - 1, 0, points - 1)
        share = (u - table[i]) / jnp.maximum(table[i + 1] - table[i], jnp.finfo(u.dtype).tiny)
        # Mass share of a trapezium of heights a, b up to s: (2 a s + (b − a) s²)/(a + b).
        a, b = f[i], f[i + 1]
        root = jnp.sqrt(jnp.maximum(a * a + (b * b - a * a) * share, 0))
        s = jnp.where(a + root > 0, share * (a + b) / jnp.maximum(a + root, 1e-300), share)
        return x[i] + jnp.clip(s, 0, 1) * (x[i + 1] - x[i])

    return quantile
