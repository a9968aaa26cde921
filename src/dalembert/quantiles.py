"""Numbers with any density on an interval, or pairs of them: inverses of distribution functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SETTLED, NARROW, MOST_POINTS = 1e-4, 1e-2, 2**17
"""Relative change of the variance by the table at which no finer one is made, beyond which the
density is too narrow for it, and the finest that is made."""

CELLS, MOST_CELLS, ALIKE = (128, 512), 2**20, 2e-4
"""Of the first table of two numbers, of the finest, and the share of all mass in other places by
the table at which no finer one is made; NARROW is that beyond which the density is too narrow."""


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
    return _inverse(cdf, fine[::2], values[::2])


def _inverse(cdf: Any, nodes: Any, heights: Any) -> Callable[[Any], Any]:
    """u → x by a table: shares to the left of nodes, and heights of the density there."""
    # Squares of the heights must neither overflow nor vanish in float32.
    heights = heights / np.max(heights)

    def quantile(u: Any) -> Any:
        table, x, f = (jnp.asarray(a, u.dtype) for a in (cdf, nodes, heights))
        i = jnp.clip(jnp.searchsorted(table, u, side="right") - 1, 0, len(nodes) - 2)
        s = _part(u, table[i], table[i + 1], f[i], f[i + 1])
        return x[i] + s * (x[i + 1] - x[i])

    return quantile


def _part(u: Any, before: Any, after: Any, a: Any, b: Any) -> Any:
    """How far into a trapezium of heights a and b, between two shares, the share u is."""
    share = (u - before) / jnp.maximum(after - before, jnp.finfo(u.dtype).tiny)
    # Mass share of a trapezium of heights a, b up to s: (2 a s + (b − a) s²)/(a + b).
    root = jnp.sqrt(jnp.maximum(a * a + (b * b - a * a) * share, 0))
    s = jnp.where(a + root > 0, share * (a + b) / jnp.maximum(a + root, 1e-300), share)
    return jnp.clip(s, 0, 1)


def joint_quantiles(
    density: Callable[[Any, Any], Any], low: tuple[float, float], high: tuple[float, float]
) -> tuple[Callable[[Any, Any], tuple[Any, Any]], np.ndarray, np.ndarray]:
    """(u, w) → (x, v): x has a share u to its left, and of all v at this x a share w is below v.

    The density is tabulated, and linear along both axes between the points of the table: of
    uniform u and w, that is the density of (x, v), without error. There are more points where they
    change where its mass is.

    Args:
        density: function of two numbers with a scalar result ≥ 0, not normalised.
        low: lower ends of both intervals.
        high: upper ends.

    Returns:
        The function, and a table of v and of the density of v.
    """
    require_callable(density, "(x, v)")
    cells, low, high = CELLS, (float(low[0]), float(low[1])), (float(high[0]), float(high[1]))
    while True:
        x, v, f = _sheet(density, low, high, cells)
        errors = _misplaced(f), _misplaced(f.T)
        if max(errors) <= ALIKE or 2 * np.prod(cells) > MOST_CELLS:
            break
        coarse = int(np.argmax(errors))
        cells = tuple(n * (1 + (axis == coarse)) for axis, n in enumerate(cells))
    if max(errors) > NARROW:
        raise ValueError(
            f"the density is too narrow for x from {low[0]:g} to {high[0]:g} and v from {low[1]:g} "
            f"to {high[1]:g}: a table of {cells[0]} by {cells[1]} has {max(errors):.1%} of it in "
            "other places. Give shorter intervals, or a smoother density."
        )
    f = f / np.max(f)
    masses = np.apply_along_axis(_simpson, 1, f)
    along = np.sum(masses, axis=1)
    below = np.pad(np.cumsum(masses[::2], axis=1), ((0, 0), (1, 0))) / np.max(along)
    cdf = np.concatenate([[0.0], np.cumsum(_simpson(along)) / np.sum(_simpson(along))])
    first, heights, width = _inverse(cdf, x[::2], along[::2]), f[::2, ::2], float(v[2] - v[0])

    def quantiles(u: Any, w: Any) -> tuple[Any, Any]:
        here = first(u)
        at = (here - low[0]) * (cells[0] / (high[0] - low[0]))
        left = jnp.clip(jnp.floor(at), 0, cells[0] - 1)
        i, right = left.astype(jnp.int32), jnp.clip(at - left, 0, 1)

        def mixed(table: np.ndarray, j: Any) -> Any:
            values, place = jnp.asarray(table.ravel(), u.dtype), i * table.shape[1] + j
            return (1 - right) * values[place] + right * values[place + table.shape[1]]

        share = w * mixed(below, cells[1])

        def halve(k: Any, j: Any) -> Any:
            further = j + (cells[1] >> (k + 1))
            return jnp.where(mixed(below, further) <= share, further, j)

        # Both numbers of cells are powers of 2.
        j = jax.lax.fori_loop(0, cells[1].bit_length() - 1, halve, jnp.zeros_like(i))
        ends = [mixed(table, j + k) for table in (below, heights) for k in (0, 1)]
        return here, low[1] + width * (j.astype(u.dtype) + _part(share, *ends))

    return quantiles, v[::2], _simpson(f[:, ::2]).sum(axis=0)


def _sheet(
    density: Callable[[Any, Any], Any],
    low: tuple[float, float],
    high: tuple[float, float],
    cells: tuple[int, ...],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The density at the points of a table, (x, v), and in the middle between them."""
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        x, v = (np.linspace(a, b, 2 * n + 1) for a, b, n in zip(low, high, cells, strict=True))
        each = jax.vmap(jax.vmap(density, (None, 0)), (0, None))
        values = np.asarray(each(jnp.asarray(x), jnp.asarray(v)), np.float64)
    _check_heights(values, (len(x), len(v)))
    return x, v, values


def _misplaced(f: np.ndarray) -> float:
    """The share of all mass that is elsewhere if every other row is the mean of its neighbours."""
    gaps = np.abs(f[1::2, ::2] - (f[:-2:2, ::2] + f[2::2, ::2]) / 2)
    total = np.sum(f[1::2, ::2] + f[2::2, ::2])
    # Where these rows are all zero, what there is lies between them: nothing is known of it.
    return float(np.sum(gaps) / total) if total > 0 else 1.0


def _heights(
    density: Callable[[Any], Any], low: float, high: float, points: int
) -> tuple[np.ndarray, np.ndarray]:
    """The density at the points of a table and in the middle between them."""
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        fine = np.linspace(low, high, 2 * points + 1)
        values = np.asarray(jax.vmap(density)(jnp.asarray(fine)), np.float64)
    _check_heights(values, fine.shape)
    return fine, values


def _check_heights(values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape or not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError("the density must be a finite scalar ≥ 0 everywhere in the interval.")
    if not np.sum(values) > 0:
        raise ValueError("the density is zero everywhere in the interval.")


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
