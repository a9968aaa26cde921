"""What was asked for in a run and what was collected for it, also as files have it."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from html import escape
from typing import Any, NamedTuple

import numpy as np

from dalembert.ensemble.failures import Failures
from dalembert.methods.coefficients import counted
from dalembert.statistics import Axis, Binned, Histogram, Mean, SampleMean, Statistic
from dalembert.statistics.statistic import Data, not_saved, restored

AXIS_FIELDS = ("low", "high", "bins", "periodic")


class Observed(NamedTuple):
    """A statistic that was asked for, and what was collected for it."""

    statistic: Statistic
    data: Data


class RunStatistics:
    """What a `Run` and a `TracedRun` share: statistics by the names of observables, a summary."""

    failures: Failures
    truncated: Any
    residual: Any
    iterations: Any
    kept: Mapping[str, Any]

    @property
    def q(self) -> Any:
        """Kept positions, (paths, dim) for keep="final", (times, paths, dim) for keep="all".

        Where a system has a shape, it stands in the place of dim. From its failure on, a path is
        NaN in q and p.
        """
        return self._kept_states("q")

    @property
    def p(self) -> Any:
        """Kept momenta, of the same shape."""
        return self._kept_states("p")

    def _kept_states(self, name: str) -> Any:
        if name not in self.kept:
            raise ValueError(
                f'this run has kept no {name}: give simulate(…, keep="final") for the states of '
                'all paths at the end, or keep="all" for those at every save.'
            )
        return self.kept[name]

    def _results(self, door: str) -> dict[str, Any]:
        """The results of the statistics that came through one argument of `simulate`."""
        raise NotImplementedError

    def _of_observables(
        self, name: str, least: int, formula: Callable[[SampleMean], Any]
    ) -> Mapping[str, Any]:
        """One number of every observable, which takes at least so many paths."""
        raise NotImplementedError

    @abstractmethod
    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        """What a person asks first: a title, and labelled lines."""

    def _rows(self) -> list[tuple[str, str]]:
        """The lines of a summary about failures, solvers and means."""
        solved = (
            f"largest residual {self.residual:.1e}, at most {counted(self.iterations, 'iteration')}"
        )
        rows = [("failed paths", str(self.failures))]
        # Explicit methods have none.
        rows += [("stage equations", solved)] if self.iterations or self.residual else []
        if self.truncated:
            rows.append(("truncated increments", f"{self.truncated:,}"))
        return rows + [(f"{name} at the end", str(m)) for name, m in self.moments.items()]

    def __repr__(self) -> str:
        title, rows = self._summary()
        return "\n".join([title, *(f"  {label}: {text}" for label, text in rows)])

    def _repr_html_(self) -> str:
        title, rows = self._summary()
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<b>{escape(title)}</b><table>{body}</table>"

    @property
    def failed(self) -> Any:
        """Number of paths that left the statistics before the end."""
        return self.failures.total

    @property
    def moments(self) -> dict[str, SampleMean]:
        """Count, mean, sum of squared deviations, minimum and maximum per observable."""
        return self._results("observe")

    @property
    def histograms(self) -> dict[str, Binned]:
        """The histograms by name, with counts, edges and densities."""
        return self._results("histograms")

    @property
    def statistics(self) -> dict[str, Any]:
        """What came of the statistics that were asked for by `statistics=`."""
        return self._results("statistics")

    @property
    def count(self) -> Any:
        """Paths in the statistics at each time, shape (times,)."""
        return next(iter(self.moments.values())).count.astype(int)

    @property
    def mean(self) -> Mapping[str, Any]:
        """Sample means, shape (times, …) for each observable."""
        return self._of_observables("the mean", 1, lambda m: m.mean)

    @property
    def variance(self) -> Mapping[str, Any]:
        """Unbiased sample variances."""
        return self._of_observables("the variance", 2, lambda m: m.variance)

    @property
    def stderr(self) -> Mapping[str, Any]:
        """Standard errors of the means."""
        return self._of_observables("the standard error", 2, lambda m: m.stderr)

    @property
    def minimum(self) -> Mapping[str, Any]:
        """Smallest values."""
        return self._of_observables("the minimum", 1, lambda m: m.minimum)

    @property
    def maximum(self) -> Mapping[str, Any]:
        """Largest values."""
        return self._of_observables("the maximum", 1, lambda m: m.maximum)


def observed_from(provenance: Mapping[str, Any], by_key: Mapping[str, Data]) -> dict[str, Observed]:
    """Data from a file, with the statistics that its provenance describes."""
    found = {}
    for key, data in by_key.items():
        door, _, name = key.partition("/")
        found[key] = Observed(restored(provenance[door][name]), data)
    return found


def observed_before(
    header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, Observed]:
    """What a record has that was written when means and histograms were all that there was."""
    found = {}
    for name in header["observables"]:
        data = {field: arrays[f"moments/{name}/{field}"] for field in SampleMean._fields}
        found[f"observe/{name}"] = Observed(Mean(not_saved), data)
    for name in header["histograms"]:
        of, flat = header["provenance"]["histograms"][name], arrays[f"counts/{name}"]
        axes = [Axis(not_saved, *(a[x] for x in AXIS_FIELDS)) for a in of["axes"]]
        statistic = Histogram(*axes, every_save=of["every_save"])
        inside = flat[..., :-1].reshape(*flat.shape[:-1], *statistic.bins)
        data = {"counts": inside, "outside": flat[..., -1]}
        found[f"histograms/{name}"] = Observed(statistic, data)
    return found
