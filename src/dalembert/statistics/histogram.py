"""Histograms: paths, or the entries of what they show, counted in bins of one or two quantities."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.precision import is_traced
from dalembert.spelling import says_its_words
from dalembert.statistics.groups import GROUPS, in_groups, jackknife
from dalembert.statistics.statistic import Data, Recordable, Statistic, numeric

MAX_BINS = 2**31 - 2
"""So that bins, and what lies outside, can be numbered in 32 bits."""


@says_its_words
@dataclass(frozen=True)
class Axis(Recordable):
    """One axis of a histogram: `bins` equal bins of a quantity between `low` and `high`.

    A value on the edge of two bins belongs to the upper one, and `high` itself to the last one.

    Attributes:
        of: function of (q, p), or (q, p, params) if the system has params. If it returns
            an array, every entry is counted: particles, distances of pairs.
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
        for name in ("low", "high"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def edges(self) -> np.ndarray:
        """The ends of the bins, shape (bins + 1,)."""
        return np.linspace(self.low, self.high, self.bins + 1)


@says_its_words
@dataclass(frozen=True)
class Histogram(Statistic):
    """A request to count paths in bins of one or two quantities.

        da.Histogram(da.Axis(lambda q, p: p[0], -5, 5, bins=80))

    What lies outside the bins is counted too, so that nothing is lost.

    Attributes:
        x: the first quantity and its bins.
        y: the second, if there is one; where both are arrays, their entries are paired.
        every_save: count at every save time instead of at the end only.
    """

    x: Axis
    y: Axis | None = None
    every_save: bool = False

    def __post_init__(self) -> None:
        for axis in self.axes:
            if not isinstance(axis, Axis):
                raise TypeError(f"a histogram is made of one or two da.Axis, not {axis!r}.")
        bins = math.prod(self.bins)
        if bins > MAX_BINS:
            raise ValueError(f"{bins:,} bins are too many: a histogram has at most {MAX_BINS:,}.")

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (self.x,) if self.y is None else (self.x, self.y)

    @property
    def bins(self) -> tuple[int, ...]:
        return tuple(axis.bins for axis in self.axes)

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        return {letter: axis.of for letter, axis in zip("xy", self.axes, strict=False)}

    def check(self, shapes: Mapping[str, tuple[int, ...]], t: np.ndarray) -> None:
        if len(set(shapes.values())) > 1:
            raise ValueError(
                f"the axes of a histogram must return alike shapes, not {list(shapes.values())}."
            )

    def start(self, values: Mapping[str, Any]) -> Any:
        """The values of the last save, which are counted at the end."""
        if self.every_save:
            return ()
        return {name: jnp.zeros(x.shape, x.dtype) for name, x in values.items()}

    def observe(
        self, memory: Any, values: Mapping[str, Any], mask: Any, t: Any
    ) -> tuple[Any, Data]:
        return (memory, self.counted(values, mask)) if self.every_save else (dict(values), {})

    def finish(self, memory: Any, mask: Any) -> Data:
        return {} if self.every_save else self.counted(memory, mask)

    def counted(self, values: Mapping[str, Any], mask: Any) -> Data:
        """Counts of paths; of arrays also those of groups of paths, for the standard errors."""
        found = list(values.values())
        if found[0].ndim == 1:
            return self._shaped(count_in_bins(self, found, mask), "counts", "outside")
        dealt, shown = [in_groups(x) for x in found], in_groups(mask)
        count = jax.vmap(lambda xs, mask: count_in_bins(self, xs, mask), in_axes=1)
        of_groups = count(dealt, shown)
        return {
            **self._shaped(jnp.sum(of_groups, axis=0, dtype=jnp.int32), "counts", "outside"),
            **self._shaped(of_groups, "counts_of_groups", "outside_of_groups"),
        }

    def _shaped(self, flat: Any, *names: str) -> Data:
        inside = flat[..., :-1].reshape(*flat.shape[:-1], *self.bins)
        return dict(zip(names, (inside, flat[..., -1]), strict=True))

    def merge(self, a: Data, b: Data) -> Data:
        return {name: a[name] + b[name] for name in a}

    def result(self, data: Data, t: Any) -> "Binned":
        edges = tuple(axis.edges for axis in self.axes)
        return Binned(**data, edges=edges, t=np.asarray(t) if self.every_save else None)

    def variables(self, result: "Binned", t: Any) -> dict[str, tuple[tuple[str, ...], Any]]:
        letters = tuple("xy"[: len(self.axes)])
        times = ("time",) if self.every_save else ()
        middles = {
            letter: ((letter,), (edges[1:] + edges[:-1]) / 2)
            for letter, edges in zip(letters, result.edges, strict=True)
        }
        return {
            "counts": ((*times, *letters), result.counts),
            "outside": (times, result.outside),
            **middles,
        }

    def summary(self, result: "Binned") -> str:
        last = np.asarray(result.total)[-1] if self.every_save else result.total
        return f"{int(np.max(last)):,} counted in {' × '.join(map(str, self.bins))} bins"

    @property
    def tables(self) -> int:
        return sum(bins + 1 for bins in self.bins)

    def shapes(self, values: Mapping[str, Any]) -> tuple[Any, Data, Data]:
        """Without a trace, which has the edges in it: bins may be too many for the memory."""
        first, *_ = values.values()
        if math.prod(first.shape) >= 2**31:
            raise ValueError(
                f"{math.prod(first.shape):,} entries of the paths of a block are too many to be "
                "counted in 32 bits: take fewer entries."
            )

        def counts(*shape: int) -> Any:
            return jax.ShapeDtypeStruct(shape, np.int32)

        found = {"counts": counts(*self.bins), "outside": counts()}
        if first.ndim > 1:
            found |= {"counts_of_groups": counts(GROUPS, *self.bins)}
            found |= {"outside_of_groups": counts(GROUPS)}
        return ((), found, {}) if self.every_save else (dict(values), {}, found)


@dataclass(frozen=True)
class Binned:
    """A histogram that was counted.

    Attributes:
        counts: paths, or entries of arrays, per bin, shape (bins,) or (bins_x, bins_y); with
            `every_save` there is a first axis of times.
        outside: those outside all bins, per time or one number.
        edges: the ends of the bins of each axis.
        counts_of_groups: for arrays, counts of groups of paths, the axis before the bins.
        outside_of_groups: likewise outside all bins.
        t: the times of a histogram that was counted at every save.
    """

    counts: Any
    outside: Any
    edges: tuple[np.ndarray, ...]
    counts_of_groups: Any = None
    outside_of_groups: Any = None
    t: Any = None

    @property
    def total(self) -> Any:
        """Paths or entries, inside and outside, shaped to divide the counts."""
        return self._totals(self.counts, self.outside)

    def _totals(self, counts: Any, outside: Any) -> Any:
        bins = tuple(range(-len(self.edges), 0))
        total = counts.sum(axis=bins, dtype=outside.dtype) + outside
        return total.reshape(np.shape(total) + (1,) * len(self.edges))

    @property
    def density(self) -> Any:
        """Estimated probability density in each bin; what lies outside counts in the norm."""
        total = self.total
        if not is_traced(total) and np.any(total == 0):
            raise ValueError("a density needs at least one path, and at one time there is none.")
        return self.counts.astype(float) / total.astype(float) / self._areas

    @property
    def stderr(self) -> Any:
        """Standard error of the density.

        Of paths from the binomial distribution of the counts; of entries, which depend on each
        other in a path, from the differences of groups of paths.
        """
        xp, share, total = numeric(self.counts), self.density * self._areas, self.total
        if self.counts_of_groups is None:
            return xp.sqrt(share * (1 - share) / total.astype(float)) / self._areas
        counts = xp.moveaxis(self.counts_of_groups, -len(self.edges) - 1, 0)
        sizes = self._totals(counts, xp.moveaxis(self.outside_of_groups, -1, 0))
        rest = xp.maximum(total[None] - sizes, 1).astype(float)
        left_out = (self.counts[None] - counts).astype(float) / rest
        part = sizes.astype(float) / total[None].astype(float)
        return jackknife(share, left_out, part) / self._areas

    def plot(
        self,
        ax: Any = None,
        at: int | None = None,
        errors: float = 2.0,
        labels: Sequence[str] = ("x", "y"),
    ) -> Any:
        """Draw the density; returns the axes (needs matplotlib).

        One quantity is a curve with its band, or with times an image over time; two are an image,
        with times that of the last one.

        Args:
            ax: axes to draw into.
            at: number of the save to draw, if there are several.
            errors: half the width of the band of a curve, in standard errors.
            labels: what the quantities are called.
        """
        from dalembert.pictures import draw_density, make_axes

        density, t = np.asarray(self.density), self.t
        if t is not None and (at is not None or len(self.edges) == 2):
            number = -1 if at is None else at
            if not -len(t) <= number < len(t):
                raise ValueError(f"at must be the number of one of {len(t)} saves, not {at!r}.")
            half, density, t = errors * np.asarray(self.stderr)[number], density[number], None
        else:
            half = errors * np.asarray(self.stderr)
        return draw_density(make_axes(ax), self.edges, density, half, t, labels)

    def animate(self, file: Any = None, fps: float = 20, labels: Sequence[str] = ("x", "y")) -> Any:
        """The density at one save after the other, as a `matplotlib.animation.FuncAnimation`.

        Args:
            file: write it there, as `.gif`, or as `.mp4` where ffmpeg is installed.
            fps: saves a second.
            labels: what the quantities are called.
        """
        from dalembert.pictures import film_of_density

        if self.t is None:
            raise ValueError(
                "a film needs a histogram at all save times: da.Histogram(…, every_save=True)."
            )
        return film_of_density(self.edges, np.asarray(self.density), self.t, file, fps, labels)

    @property
    def _areas(self) -> Any:
        widths = [np.diff(edges) for edges in self.edges]
        areas = widths[0] if len(widths) == 1 else np.outer(*widths)
        areas = areas.reshape((1,) * (self.counts.ndim - areas.ndim) + areas.shape)
        return numeric(self.counts).asarray(areas).astype(float)


def _flatten(binned: Binned) -> tuple[tuple[Any, ...], Any]:
    counted = (binned.counts, binned.outside, binned.counts_of_groups, binned.outside_of_groups)
    edges = tuple(tuple(edges.tolist()) for edges in binned.edges)
    return counted, (edges, None if binned.t is None else tuple(np.asarray(binned.t).tolist()))


def _unflatten(known: Any, counted: Any) -> Binned:
    (edges, t), (counts, outside, *of_groups) = known, counted
    t = None if t is None else np.asarray(t)
    return Binned(counts, outside, tuple(map(np.asarray, edges)), *of_groups, t=t)


jax.tree_util.register_pytree_node(Binned, _flatten, _unflatten)


def count_in_bins(histogram: Histogram, values: list[Any], mask: Any) -> Any:
    """Counts in the bins, row by row, and last of what lies outside all of them.

    Values have the shape (paths, …); every entry of a path in the mask is counted.
    """
    shape = values[0].shape
    mask = jnp.broadcast_to(mask.reshape(mask.shape + (1,) * (len(shape) - 1)), shape).ravel()
    index, inside = jnp.zeros(mask.shape, jnp.int32), mask
    for axis, x in zip(histogram.axes, values, strict=True):
        number = _bin_number(axis, x.ravel())
        inside &= (number >= 0) & (number < axis.bins)
        index = index * axis.bins + number
    size = math.prod(histogram.bins)
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
