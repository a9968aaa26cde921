"""The result of a simulation: statistics with standard errors, failures and provenance."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dalembert.ensemble.statistics import Moments

__all__ = ["Failures", "Run"]


@dataclass(frozen=True)
class Failures:
    """Paths that left the statistics, and where the first of them did.

    Attributes:
        unconverged: paths with a stage equation that could not be solved.
        non_finite: paths that overflowed.
        first_path: number of the path that failed first, or None.
        first_time: when it failed, or None.
    """

    unconverged: int = 0
    non_finite: int = 0
    first_path: int | None = None
    first_time: float | None = None

    @property
    def total(self) -> int:
        return self.unconverged + self.non_finite

    def __str__(self) -> str:
        if not self.total:
            return "none"
        return (
            f"{self.total} ({self.unconverged} unconverged, {self.non_finite} not finite), "
            f"the first is path {self.first_path} at t = {self.first_time:g}"
        )


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


def _variance(m: Moments) -> np.ndarray:
    return m.deviations / (_column(m) - 1)


def _column(m: Moments) -> np.ndarray:
    """Counts shaped so that they divide means of observables with several components."""
    return m.count.reshape(m.count.shape + (1,) * (m.mean.ndim - m.count.ndim))


@dataclass(frozen=True, eq=False)
class Run:
    """What came out of `simulate`.

    Attributes:
        t: save times, shape (times,).
        moments: count, mean, sum of squared deviations, minimum and maximum per observable.
        failures: paths that left the statistics.
        truncated: number of truncated increments.
        residual: the largest relative residual of a stage equation that was met.
        iterations: the largest number of Newton iterations that was met.
        q: kept positions, (paths, dim) for keep="final", (times, paths, dim) for keep="all".
        p: kept momenta, likewise.
        provenance: everything needed to repeat the run.

    The arrays are NumPy float64; time units are those of the system.
    """

    t: np.ndarray
    moments: Mapping[str, Moments]
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
        return _Statistic(self.moments, "the variance", 2, _variance)

    @property
    def stderr(self) -> Mapping[str, np.ndarray]:
        """Standard errors of the means."""
        return _Statistic(
            self.moments, "the standard error", 2, lambda m: np.sqrt(_variance(m) / _column(m))
        )

    @property
    def minimum(self) -> Mapping[str, np.ndarray]:
        """Smallest values."""
        return _Statistic(self.moments, "the minimum", 1, lambda m: m.minimum)

    @property
    def maximum(self) -> Mapping[str, np.ndarray]:
        """Largest values."""
        return _Statistic(self.moments, "the maximum", 1, lambda m: m.maximum)

    def save(self, path: Any) -> None:
        """Write the run to one `.npz` file."""
        from dalembert.ensemble.archive import save

        save(self, path)

    def to_xarray(self) -> Any:
        """The statistics as an `xarray.Dataset` over time (needs the extra `plot`)."""
        from dalembert.ensemble.export import to_xarray

        return to_xarray(self)

    def plot(self, observable: str | None = None, ax: Any = None) -> Any:
        """Draw a mean with its band of two standard errors; returns the axes (extra `plot`)."""
        from dalembert.ensemble.export import plot

        return plot(self, observable, ax)

    def __repr__(self) -> str:
        of = self.provenance
        lines = [
            f"Run of {of['system']['name']} with {of['method']['name']}: "
            f"{of['paths']:,} paths to t = {of['t_end']:g} in steps of {of['dt']:g}, "
            f"seed {of['seed']}",
            f"  failed paths: {self.failures}",
            f"  stage equations: largest residual {self.residual:.1e}, "
            f"at most {self.iterations} Newton iterations",
        ]
        if self.truncated:
            lines.append(f"  truncated increments: {self.truncated:,}")
        for name, m in self.moments.items():
            if m.mean.ndim == 1 and m.count[-1] > 1:
                value, error = m.mean[-1], self.stderr[name][-1]
                lines.append(f"  {name} at the end: {value:.6g} ± {error:.2g}")
        rate = of["path_steps_per_second"]
        lines.append(f"  took {of['seconds']:.3g} s, {rate:.3g} path-steps/s on {of['device']}")
        return "\n".join(lines)
