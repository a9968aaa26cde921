"""Paths of a run that could not go on."""

from dataclasses import dataclass

import jax


@jax.tree_util.register_dataclass
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
