"""What has come out of some of the paths so far: the sum of everything that blocks report."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dalembert.ensemble.kernel import Saves
from dalembert.ensemble.march import PathState, Status
from dalembert.ensemble.statistics import Moments, in_float64, merge

__all__ = ["Tally", "tally_of_block"]


@dataclass(frozen=True)
class Tally:
    """Statistics and failures of some paths, in float64 and Python integers.

    Attributes:
        moments: per observable, first axis: save times.
        counts: per histogram, flat bins last, after them what lies outside.
        unconverged: paths with a stage equation that could not be solved.
        non_finite: paths that overflowed.
        first_failure: (step, path) of the first of them, or (-1, -1).
        truncated: number of truncated increments.
        residual: largest residual.
        iterations: largest number of Newton iterations.
        unobservable: paths with an observable that was not finite, though their states were.
    """

    moments: Mapping[str, Moments]
    counts: Mapping[str, np.ndarray]
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

    def merged(self, other: "Tally") -> "Tally":
        """Both taken together; merging blocks in the same order gives the same bits."""
        known = [t.first_failure for t in (self, other) if t.failed]
        return Tally(
            {name: merge(m, other.moments[name]) for name, m in self.moments.items()},
            {name: n + other.counts[name] for name, n in self.counts.items()},
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
        arrays = {
            f"moments/{name}/{field}": value
            for name, moments in self.moments.items()
            for field, value in moments._asdict().items()
        }
        arrays |= {f"counts/{name}": n for name, n in self.counts.items()}
        plain = {f.name: getattr(self, f.name) for f in fields(self)[2:]}
        return {"observables": list(self.moments), "histograms": list(self.counts), **plain}, arrays

    @classmethod
    def from_record(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Tally":
        """The tally of a record; KeyError or TypeError if it is not one."""
        plain: dict[str, Any] = {f.name: header[f.name] for f in fields(cls)[2:]}
        step, path = plain.pop("first_failure")
        return cls(
            {
                name: Moments(*(arrays[f"moments/{name}/{field}"] for field in Moments._fields))
                for name in header["observables"]
            },
            {name: arrays[f"counts/{name}"] for name in header["histograms"]},
            first_failure=(int(step), int(path)),
            **plain,
        )


def tally_of_block(saves: Saves, state: PathState, numbers: np.ndarray) -> Tally:
    """The tally of a finished block; only its first `len(numbers)` paths are real."""
    real = len(numbers)
    status = np.asarray(state.status)[:real]
    failed = np.flatnonzero(status != Status.FINE)
    steps = np.asarray(state.failed_step)[failed]
    first = int(np.argmin(steps)) if failed.size else -1
    counts = {**saves.counts, **saves.last_counts}
    return Tally(
        {name: in_float64(moments) for name, moments in saves.moments.items()},
        {name: np.asarray(n, np.int64) for name, n in counts.items()},
        int(np.sum(status == Status.UNCONVERGED)),
        int(np.sum(status == Status.NON_FINITE)),
        (int(steps[first]), int(numbers[failed[first]])) if failed.size else (-1, -1),
        int(np.sum(np.asarray(state.truncated)[:real], dtype=np.int64)),
        float(np.max(np.asarray(state.residual)[:real])),
        int(np.max(np.asarray(state.iterations)[:real])),
        int(np.sum(status == Status.UNOBSERVABLE)),
    )
