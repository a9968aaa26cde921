"""The result of a simulation: statistics with standard errors, failures and provenance."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import jax
import numpy as np

from dalembert.ensemble import archive
from dalembert.ensemble.statistics import Moments

__all__ = ["Binned", "Failures", "Run", "load"]

KIND, SCHEMA = "dalembert run", 3


@dataclass(frozen=True)
class Failures:
    """Paths that left the statistics, and where the first of them did.

    Attributes:
        unconverged: paths with a stage equation that could not be solved.
        non_finite: paths that overflowed.
        first_path: number of the path that failed first, or None.
        first_time: when it failed, or None.
        unobservable: paths with an observable that was not finite, though their states were.
    """

    unconverged: int = 0
    non_finite: int = 0
    first_path: int | None = None
    first_time: float | None = None
    unobservable: int = 0

    @property
    def total(self) -> int:
        return self.unconverged + self.non_finite + self.unobservable

    @property
    def details(self) -> str:
        """Why they failed, and which was the first."""
        observables = ""
        if self.unobservable:
            observables = f", {self.unobservable:,} with an observable that is not finite"
        return (
            f"({self.unconverged:,} unconverged, {self.non_finite:,} not finite{observables}), "
            f"the first is path {self.first_path} at t = {self.first_time:g}"
        )

    def __str__(self) -> str:
        return f"{self.total:,} {self.details}" if self.total else "none"


@dataclass(frozen=True)
class Binned:
    """A histogram that was counted.

    Attributes:
        counts: number of paths per bin, shape (bins,) or (bins_x, bins_y); with `every_save` there
            is a first axis of times.
        outside: number of paths outside all bins, per time or one number.
        edges: the ends of the bins of each axis.
    """

    counts: np.ndarray
    outside: np.ndarray
    edges: tuple[np.ndarray, ...]

    @property
    def _bins(self) -> tuple[int, ...]:
        return tuple(range(self.counts.ndim - len(self.edges), self.counts.ndim))

    @property
    def total(self) -> np.ndarray:
        """Number of paths, inside and outside, shaped to divide the counts."""
        total = self.counts.sum(axis=self._bins) + self.outside
        return np.asarray(total).reshape(np.shape(total) + (1,) * len(self.edges))

    @property
    def density(self) -> np.ndarray:
        """Estimated probability density in each bin; paths outside count in the norm."""
        if np.any(self.total == 0):
            raise ValueError("a density needs at least one path, and at one time there is none.")
        return self.counts / self.total / self._areas

    @property
    def stderr(self) -> np.ndarray:
        """Standard error of the density, from the binomial distribution of the counts."""
        share = self.density * self._areas
        return np.sqrt(share * (1 - share) / self.total) / self._areas

    @property
    def _areas(self) -> np.ndarray:
        widths = [np.diff(edges) for edges in self.edges]
        return widths[0] if len(widths) == 1 else np.outer(*widths)


class _Statistic(Mapping[str, np.ndarray]):
    """One statistic of every observable; refuses what the sample does not support."""

    def __init__(self, moments: Mapping[str, Moments], name: str, least: int, formula: Any) -> None:
        self._moments, self._name, self._least, self._formula = moments, name, least, formula

    def __getitem__(self, observable: str) -> np.ndarray:
        if observable not in self._moments:
            raise KeyError(f"no observable {observable!r}; there are {sorted(self._moments)}")
        moments = self._moments[observable]
        fewest = int(np.min(moments.count))
        if fewest < self._least:
            raise ValueError(
                f"{self._name} of {observable!r} needs at least {self._least} path(s) at every "
                f"time, and at one time there are {fewest}."
            )
        return self._formula(moments)

    def __iter__(self) -> Iterator[str]:
        return iter(self._moments)

    def __len__(self) -> int:
        return len(self._moments)

    def __repr__(self) -> str:
        return f"<{self._name} of {', '.join(self._moments)}>"


@dataclass(frozen=True, eq=False)
class Run:
    """What came out of `simulate`.

    Attributes:
        t: save times, shape (times,).
        moments: count, mean, sum of squared deviations, minimum and maximum per observable.
        counts: per histogram, flat bins and what lies outside; see `histograms`.
        failures: paths that left the statistics.
        truncated: number of truncated increments.
        residual: the largest relative residual of a stage equation, measured in every step.
        iterations: the largest number of Newton iterations that was met.
        q: kept positions, (paths, dim) for keep="final", (times, paths, dim) for keep="all".
        p: kept momenta, likewise. From its failure on, a path is NaN in both.
        provenance: everything needed to repeat the run.

    Statistics are NumPy float64, kept states have the type of the run; time units are those of the
    system.
    """

    t: np.ndarray
    moments: Mapping[str, Moments]
    counts: Mapping[str, np.ndarray]
    failures: Failures
    truncated: int
    residual: float
    iterations: int
    q: np.ndarray | None
    p: np.ndarray | None
    provenance: Mapping[str, Any]

    @property
    def count(self) -> np.ndarray:
        """Paths in the statistics at each time, shape (times,)."""
        return next(iter(self.moments.values())).count.astype(int)

    @property
    def failed(self) -> int:
        """Number of paths that left the statistics before the end."""
        return self.failures.total

    @property
    def mean(self) -> Mapping[str, np.ndarray]:
        """Sample means, shape (times, …) for each observable."""
        return _Statistic(self.moments, "the mean", 1, lambda m: m.mean)

    @property
    def variance(self) -> Mapping[str, np.ndarray]:
        """Unbiased sample variances."""
        return _Statistic(self.moments, "the variance", 2, lambda m: m.variance)

    @property
    def stderr(self) -> Mapping[str, np.ndarray]:
        """Standard errors of the means."""
        return _Statistic(self.moments, "the standard error", 2, lambda m: m.stderr)

    @property
    def minimum(self) -> Mapping[str, np.ndarray]:
        """Smallest values."""
        return _Statistic(self.moments, "the minimum", 1, lambda m: m.minimum)

    @property
    def maximum(self) -> Mapping[str, np.ndarray]:
        """Largest values."""
        return _Statistic(self.moments, "the maximum", 1, lambda m: m.maximum)

    @property
    def histograms(self) -> dict[str, Binned]:
        """The histograms by name, with counts, edges and densities."""
        found = {}
        for name, flat in self.counts.items():
            axes = self.provenance["histograms"][name]["axes"]
            shape = (*flat.shape[:-1], *(axis["bins"] for axis in axes))
            edges = [np.linspace(axis["low"], axis["high"], axis["bins"] + 1) for axis in axes]
            found[name] = Binned(flat[..., :-1].reshape(shape), flat[..., -1], tuple(edges))
        return found

    def save(self, path: Any) -> None:
        """Write the run to one `.npz` file, replacing an existing one when it is complete.

        In a run of several processes only the first one writes.
        """
        if jax.process_index() != 0:
            return
        header, arrays = self.to_record()
        archive.write(path, {"format": KIND, "schema": SCHEMA} | header, arrays)

    def to_record(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Plain data and arrays, from which `from_record` makes the run again."""
        header = {
            "observables": list(self.moments),
            "histograms": list(self.counts),
            "kept": [name for name in ("q", "p") if getattr(self, name) is not None],
            "failures": vars(self.failures),
            "truncated": self.truncated,
            "residual": self.residual,
            "iterations": self.iterations,
            "provenance": dict(self.provenance),
        }
        arrays = {"t": self.t} | {f"counts/{name}": n for name, n in self.counts.items()}
        for name, moments in self.moments.items():
            arrays |= {f"moments/{name}/{f}": value for f, value in moments._asdict().items()}
        arrays |= {name: getattr(self, name) for name in header["kept"]}
        return header, arrays

    @classmethod
    def from_record(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Run":
        """The run of a record; KeyError or TypeError if it is not one."""
        kept = {name: arrays[name] for name in header["kept"]}
        return cls(
            arrays["t"],
            {
                name: Moments(*(arrays[f"moments/{name}/{f}"] for f in Moments._fields))
                for name in header["observables"]
            },
            {name: arrays[f"counts/{name}"] for name in header["histograms"]},
            Failures(**header["failures"]),
            header["truncated"],
            header["residual"],
            header["iterations"],
            kept.get("q"),
            kept.get("p"),
            header["provenance"],
        )

    def to_xarray(self) -> Any:
        """The run as an `xarray.Dataset` with named dimensions (needs the extra `plot`).

        Its `.to_netcdf(FILE)` writes NetCDF; `Run.from_xarray` makes a run of it again.
        """
        from dalembert.ensemble.export import to_xarray

        return to_xarray(self)

    @classmethod
    def from_xarray(cls, dataset: Any) -> "Run":
        """The run of a dataset that `to_xarray` made, also after it was a NetCDF file.

        Raises:
            ValueError: if the dataset does not come from a run.
        """
        from dalembert.ensemble.export import from_xarray

        return from_xarray(dataset)

    def to_arviz(self) -> Any:
        """Kept states as samples for ArviZ: every path is a chain, every save a draw.

        Needs keep="all" and the package `arviz`. For sampling from a stationary law, leave out the
        draws before it is reached, e.g. `.sel(draw=slice(100, None))`.
        """
        from dalembert.ensemble.export import to_arviz

        return to_arviz(self)

    def plot(self, observable: str | None = None, ax: Any = None) -> Any:
        """Draw a mean with its band of two standard errors; returns the axes (extra `plot`)."""
        from dalembert.ensemble.export import plot

        return plot(self, observable, ax)

    def __repr__(self) -> str:
        title, rows = self._summary()
        return "\n".join([title, *(f"  {label}: {text}" for label, text in rows)])

    def _repr_html_(self) -> str:
        title, rows = self._summary()
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<b>{escape(title)}</b><table>{body}</table>"

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        """What a person asks first: a title, and labelled lines."""
        of = self.provenance
        title = (
            f"Run of {of['system']['name']} with {of['method']['name']}: "
            f"{_plural(of['paths'] if of['only'] is None else len(of['only']), 'path')} to "
            f"t = {of['t_end']:g} in steps of {of['dt']:g}, "
            f"{_plural(of['system']['noises'], 'noise')}, seed {of['seed']}"
        )
        solved = (
            f"largest residual {self.residual:.1e}, at most {self.iterations} Newton iterations"
        )
        rows = [("failed paths", str(self.failures)), ("stage equations", solved)]
        if self.truncated:
            rows.append(("truncated increments", f"{self.truncated:,}"))
        rows += [(f"{name} at the end", self._at_the_end(m)) for name, m in self.moments.items()]
        rate = of["path_steps_per_second"]
        took = f"{of['seconds']:.3g} s, {rate:.3g} path-steps/s on {of['device']}, {of['code']}"
        return title, [*rows, ("time", took)]

    @staticmethod
    def _at_the_end(m: Moments) -> str:
        if m.count[-1] == 0:
            return "no path left"
        with np.printoptions(precision=6, threshold=8):
            is_array = m.mean.ndim > 1
            mean = " ".join(str(m.mean[-1]).split()) if is_array else f"{m.mean[-1]:.6g}"
        if m.count[-1] == 1:
            return f"{mean} (one path)"
        if is_array:
            return mean
        return f"{mean} ± {Moments(*(x[-1] for x in m)).stderr:.2g}"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def load(path: Any) -> Run:
    """Read a run that `Run.save` wrote.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, or is not a run of this version of the format.
    """
    header, arrays = archive.read(path, KIND, SCHEMA)
    try:
        return Run.from_record(header, arrays)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a readable {KIND} file: {error!r}") from error
