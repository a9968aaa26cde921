"""What a measurement of an order gives: numbers, a table and a picture."""

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["OrderEstimate", "StrongOrder", "WeakOrder"]


@dataclass(frozen=True, kw_only=True, eq=False)
class OrderEstimate:
    """A measured order of convergence; `str()` is a table.

    Attributes:
        order: slope of log(error) against log(dt), nan where fewer than three points count.
        interval: confidence interval of the order.
        confidence: its level; where nothing was sampled, the interval says how well the errors
            follow a power.
        dts: step sizes, from coarse to fine.
        errors: the error at each of them, all positive.
        stderrs: standard errors of the errors; zeros where nothing was sampled.
        used: which points count.
        floor: error below which nothing can be seen, at each step size.
        subject: what was measured.
        reference: what the error was measured against.
        notes: which points were dropped and why, and other doubts.
    """

    order: float
    interval: tuple[float, float]
    confidence: float
    dts: np.ndarray
    errors: np.ndarray
    stderrs: np.ndarray
    used: np.ndarray
    floor: np.ndarray
    subject: str
    reference: str
    notes: tuple[str, ...]

    kind = "Order"

    @property
    def slopes(self) -> np.ndarray:
        """Slopes between neighbouring step sizes."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.diff(np.log(self.errors)) / np.diff(np.log(self.dts))

    def __str__(self) -> str:
        lines = [f"{self.kind} {self._value()}: {self.subject}", f"against {self.reference}", ""]
        lines.append(f"  {'dt':>11}  {'error':>10}  {'± s.e.':>8}  {'slope':>6}  used")
        slopes = ["", *(f"{slope:.3f}" for slope in self.slopes)]
        for dt, error, stderr, slope, used in zip(
            self.dts, self.errors, self.stderrs, slopes, self.used, strict=True
        ):
            mark = "yes" if used else "no"
            lines.append(f"  {dt:11.5g}  {error:10.4g}  {stderr:8.1e}  {slope:>6}  {mark}")
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]).rstrip()

    def _value(self) -> str:
        if np.isnan(self.order):
            return "not found"
        low, high = self.interval
        sure = f"{self.confidence:.0%} confidence" if self.stderrs.any() else "no sampling"
        return f"{self.order:.3f} [{low:.3f}, {high:.3f}] ({sure})"

    def plot(self, ax: Any = None) -> Any:
        """Draw errors against step sizes, both logarithmic, with the fitted line; give the axes."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError(
                "plotting needs matplotlib: install the extra dalembert[plot]"
            ) from error
        axes = pyplot.subplots()[1] if ax is None else ax
        seen, used = self.errors > 0, self.used
        (points,) = axes.loglog(self.dts[seen], self.errors[seen], "o", mfc="none")
        colour = points.get_color()
        axes.errorbar(
            self.dts[seen], self.errors[seen], self.stderrs[seen], fmt="none", ecolor=colour
        )
        if used.any():
            label = f"{self.subject.partition(' on ')[0]}: {self.kind.lower()} {self.order:.2f}"
            axes.loglog(self.dts[used], self.errors[used], "o", color=colour, label=label)
        if not np.isnan(self.order):
            line = np.polyfit(np.log(self.dts[used]), np.log(self.errors[used]), 1)
            axes.loglog(self.dts, np.exp(np.polyval(line, np.log(self.dts))), "-", color=colour)
        if np.all(np.isfinite(self.floor)) and self.floor.any():
            axes.loglog(self.dts, self.floor, ":", color="grey", label="floor")
        axes.set(xlabel="dt", ylabel="error")
        if axes.get_legend_handles_labels()[1]:
            axes.legend()
        return axes


@dataclass(frozen=True, kw_only=True, eq=False)
class StrongOrder(OrderEstimate):
    """Order of the root-mean-square error of single paths at the end of a run; see the base."""

    kind = "Strong order"


@dataclass(frozen=True, kw_only=True, eq=False)
class WeakOrder(OrderEstimate):
    """Order of the error of an expectation at the end of a run; see the base."""

    kind = "Weak order"
