"""Streaming statistics: what leaves a block, and how blocks are merged.

Means and sums of squared deviations are merged by the pairwise rule of Chan, Golub and LeVeque,
which loses no digits however many blocks there are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

__all__ = ["Axis", "Histogram", "Moments", "count_in_bins", "in_float64", "masked_moments", "merge"]


MAX_BINS = 2**31 - 2
"""So that bins, and what lies outside, can be numbered in 32 bits."""


class Moments(NamedTuple):
    """Count, mean, sum of squared deviations, minimum and maximum of one observable."""

    count: Any
    mean: Any
    deviations: Any
    minimum: Any
    maximum: Any

    @property
    def column(self) -> Any:
        """Counts shaped so that they divide means of observables with several components."""
        return self.count.reshape(self.count.shape + (1,) * (self.mean.ndim - self.count.ndim))

    @property
    def variance(self) -> Any:
        """Unbiased sample variance."""
        return self.deviations / (self.column - 1)

    @property
    def stderr(self) -> Any:
        """Standard error of the mean."""
        return np.sqrt(self.variance / self.column)


def masked_moments(values: Any, mask: Any) -> Moments:
    """Moments over the first axis, of the entries where the mask is set."""
    mask = mask.reshape(mask.shape + (1,) * (values.ndim - 1))
    count = jnp.sum(mask).astype(values.dtype)
    share = 1 / jnp.maximum(count, 1)
    zeros = jnp.zeros_like(values)
    rough = jnp.sum(jnp.where(mask, values, zeros), axis=0) * share
    # What rounding has left in the mean is the mean of the deviations from it.
    mean = rough + jnp.sum(jnp.where(mask, values - rough[None], zeros), axis=0) * share
    centred = jnp.where(mask, values - mean[None], zeros)
    infinity = jnp.asarray(jnp.inf, values.dtype)
    return Moments(
        count,
        mean,
        jnp.sum(centred * centred, axis=0),
        jnp.min(jnp.where(mask, values, infinity), axis=0),
        jnp.max(jnp.where(mask, values, -infinity), axis=0),
    )


def in_float64(moments: Moments) -> Moments:
    """The same moments as NumPy float64 arrays, in which blocks are merged."""
    return Moments(*(np.asarray(x, np.float64) for x in moments))


def merge(a: Moments, b: Moments) -> Moments:
    """Moments of two samples taken together; counts have the shape of the times."""
    n_a, n_b = a.column, b.column
    share = n_b / np.maximum(n_a + n_b, 1)
    # Where paths run away, sums of squares overflow before the paths do: infinite is right then.
    with np.errstate(over="ignore", invalid="ignore"):
        delta = b.mean - a.mean
        return Moments(
            a.count + b.count,
            a.mean + delta * share,
            a.deviations + b.deviations + delta * delta * n_a * share,
            np.minimum(a.minimum, b.minimum),
            np.maximum(a.maximum, b.maximum),
        )


@dataclass(frozen=True)
class Axis:
    """One axis of a histogram: `bins` equal bins of a quantity between `low` and `high`.

    A value on the edge of two bins belongs to the upper one, and `high` itself to the last one.

    Attributes:
        of: function of (q, p), or (q, p, params) if the system has params, with a scalar result.
        low: lower end.
        high: upper end.
        bins: number of bins.
        periodic: wrap values into [low, high), as for an angle; `high` is then `low`.
    """

    of: Callable[..., Any]
    low: float
    high: float
    bins: int = 100
    periodic: bool = False

    def __post_init__(self) -> None:
        if not callable(self.of):
            raise TypeError(f"an axis needs a function of (q, p), not {self.of!r}.")
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"an axis needs low < high, not {self.low} and {self.high}.")
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or self.bins < 1:
            raise ValueError(f"bins must be a whole number ≥ 1, not {self.bins!r}.")

    @property
    def edges(self) -> np.ndarray:
        """The ends of the bins, shape (bins + 1,)."""
        return np.linspace(self.low, self.high, self.bins + 1)


@dataclass(frozen=True)
class Histogram:
    """A request to count paths in bins of one or two quantities.

        da.Histogram(da.Axis(lambda q, p: p[0], -5, 5, bins=80))

    Paths outside the bins are counted too, so that nothing is lost.

    Attributes:
        x: the first quantity and its bins.
        y: the second, if there is one.
        every_save: count at every save time instead of at the end only.
    """

    x: Axis
    y: Axis | None = None
    every_save: bool = False

    def __post_init__(self) -> None:
        for axis in self.axes:
            if not isinstance(axis, Axis):
                raise TypeError(f"a histogram is made of one or two da.Axis, not {axis!r}.")
        bins = math.prod(axis.bins for axis in self.axes)
        if bins > MAX_BINS:
            raise ValueError(f"{bins:,} bins are too many: a histogram has at most {MAX_BINS:,}.")

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (self.x,) if self.y is None else (self.x, self.y)


def count_in_bins(histogram: Histogram, values: list[Any], mask: Any) -> Any:
    """Counts in the bins, row by row, and last of what lies outside all of them."""
    index, inside = jnp.zeros(mask.shape, jnp.int32), mask
    for axis, x in zip(histogram.axes, values, strict=True):
        number = _bin_number(axis, x)
        inside &= (number >= 0) & (number < axis.bins)
        index = index * axis.bins + number
    size = math.prod(axis.bins for axis in histogram.axes)
    index = jnp.where(inside, index, size)
    return jnp.zeros(size + 1, jnp.int32).at[index].add(mask.astype(jnp.int32))


def _bin_number(axis: Axis, x: Any) -> Any:
    """The bins of some values; −1 below the axis and `axis.bins` above it."""
    low, width = float(axis.low), float(axis.high) - float(axis.low)
    if axis.periodic:
        x = x - width * jnp.floor((x - low) / width)
    edges = jnp.asarray(axis.edges, x.dtype)
    guess = jnp.floor((x - low) / width * axis.bins)
    guess = jnp.clip(guess, 0, axis.bins - 1).astype(jnp.int32)
    # Rounding can miss by one; the edges decide.
    number = guess + jnp.where(x >= edges[guess + 1], 1, 0) - jnp.where(x < edges[guess], 1, 0)
    if axis.periodic:
        return number % axis.bins
    return jnp.where(x == edges[-1], axis.bins - 1, number)
