"""What has come out of some of the paths so far: the sum of everything that blocks report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dalembert.ensemble.march import PathState, Status
from dalembert.statistics.observing import data_from_record, data_to_record
from dalembert.statistics.statistic import Data, Statistic


@dataclass(frozen=True)
class Tally:
    """Statistics and failures of some paths, in float64 and Python integers.

    Attributes:
        data: what each statistic has, by key.
        unconverged: paths with a stage equation that could not be solved.
        non_finite: paths that overflowed.
        first_failure: (step, path) of the first of them, or (-1, -1).
        truncated: number of truncated increments.
        residual: largest residual.
        iterations: largest number of Newton steps or sweeps.
        unobservable: paths with an observable that was not finite, though their states were.
    """

    data: Mapping[str, Data]
    unconverged: int = 0
    non_finite: int = 0
    first_failure: tuple[int, int] = (-1, -1)
    truncated: int = 0
    residual: float = 0.0
    iterations: int = 0
    unobservable: int = 0

    @property
    def failed(self) -> int:
        return self.unconverged + self.non_finite + self.unobservable

    def merged(self, other: "Tally", statistics: Iterable[tuple[str, Statistic]]) -> "Tally":
        """Both taken together; merging blocks in the same order gives the same bits."""
        known = [t.first_failure for t in (self, other) if t.failed]
        return Tally(
            {key: s.merge(self.data[key], other.data[key]) for key, s in statistics},
            self.unconverged + other.unconverged,
            self.non_finite + other.non_finite,
            min(known, default=(-1, -1)),
            self.truncated + other.truncated,
            max(self.residual, other.residual),
            max(self.iterations, other.iterations),
            self.unobservable + other.unobservable,
        )

    def to_record(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Plain data and arrays, from which `from_record` makes the tally again."""
        names, arrays = data_to_record(self.data)
        return {"data": names} | {f.name: getattr(self, f.name) for f in fields(self)[1:]}, arrays

    @classmethod
    def from_record(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Tally":
        """The tally of a record; KeyError or TypeError if it is not one."""
        plain: dict[str, Any] = {f.name: header[f.name] for f in fields(cls)[1:]}
        step, path = plain.pop("first_failure")
        data = data_from_record(header["data"], arrays)
        return cls(data, first_failure=(int(step), int(path)), **plain)


def tally_of_block(data: Mapping[str, Data], state: PathState, numbers: np.ndarray) -> Tally:
    """The tally of a finished block whose reports are here; of its paths the first are real."""
    real = len(numbers)
    status = state.status[:real]
    failed = np.flatnonzero(status != Status.FINE)
    steps = state.failed_step[failed]
    first = int(np.argmin(steps)) if failed.size else -1
    return Tally(
        data,
        int(np.sum(status == Status.UNCONVERGED)),
        int(np.sum(status == Status.NON_FINITE)),
        (int(steps[first]), int(numbers[failed[first]])) if failed.size else (-1, -1),
        int(np.sum(state.truncated[:real], dtype=np.int64)),
        float(np.max(state.residual[:real])),
        int(np.max(state.iterations[:real])),
        int(np.sum(status == Status.UNOBSERVABLE)),
    )
