"""Numbers with any density on an interval: the inverse of its distribution function."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SETTLED, NARROW, MOST_POINTS = 1e-4, 1e-2, 2**17
"""Relative change of the variance by the table at which no finer one is made, beyond which the
density is too narrow for it, and the finest that is made."""


def require_callable(density: Any, arguments: str) -> None:
    """Refuse a density that is no function."""
    if not callable(density):
        raise TypeError(f"the density must be a function of {arguments}, not {density!r}.")


def quantile_function(
    density: Callable[[Any], Any], low: float, high: float, points: int = 4096
) -> Callable[[Any], Any]:
    """u → x with a share u of an unnormalised density to the left of x, elementwise.

    The distribution function is tabulated by Simpson's rule; between the points the density is
    taken to be linear, so that it is wrong by second order in their distance. There are more points
    where they change the variance.

    Args:
        density: function of one number with a scalar result ≥ 0.
        low: lower end of the interval.
        high: upper end.
        points: number of intervals of the table at least.
    """
    require_callable(density, "one number")
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"the interval needs low < high, not {low} and {high}.")
    if not isinstance(points, int) or points < 2:
        raise ValueError(f"points must be a whole number ≥ 2, not {points!r}.")
    fine, values = _heights(density, low, high, points)
    while (error := _variance_error(fine, values)) > SETTLED and 2 * points <= MOST_POINTS:
        points *= 2
        fine, values = _heights(density, low, high, points)
    if error > NARROW:
        raise ValueError(
            f"the density is too narrow for the interval from {low:g} to {high:g}: {points} points "
            f"change its variance by {error:.1%}. Give a shorter interval."
        )
    mass = _simpson(values)
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


def _heights(
    density: Callable[[Any], Any], low: float, high: float, points: int
) -> tuple[np.ndarray, np.ndarray]:
    """The density at the points of a table and in the middle between them."""
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        fine = np.linspace(low, high, 2 * points + 1)
        values = np.asarray(jax.vmap(density)(jnp.asarray(fine)), np.float64)
    if values.shape != fine.shape or not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError("the density must be a finite scalar ≥ 0 everywhere in the interval.")
    if not np.sum(values) > 0:
        raise ValueError("the density is zero everywhere in the interval.")
    return fine, values


def _simpson(values: np.ndarray) -> np.ndarray:
    return values[:-2:2] + 4 * values[1:-1:2] + values[2::2]


def _variance_error(fine: np.ndarray, values: np.ndarray) -> float:
    """Relative difference of the variance of the tabulated density from that by Simpson's rule."""
    values = values / np.max(values)
    mass = _simpson(values)
    total = np.sum(mass)
    centre = np.sum(_simpson(fine * values)) / total
    exact = np.sum(_simpson((fine - centre) ** 2 * values)) / total
    # Moments of a trapezium with sides a and b: (a + 2b)/(3(a + b)) and (a + 3b)/(6(a + b)).
    a, b = values[:-2:2], values[2::2]
    sides = np.where(a + b > 0, a + b, 1.0)
    first = np.where(a + b > 0, (a + 2 * b) / (3 * sides), 0.5)
    second = np.where(a + b > 0, (a + 3 * b) / (6 * sides), 1 / 3)
    x, width = fine[:-2:2] - centre, fine[2] - fine[0]
    table = np.sum(mass * (x**2 + 2 * x * width * first + width**2 * second)) / total
    return float(abs(table - exact) / max(exact, np.finfo(float).tiny))
