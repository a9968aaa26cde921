"""The order of convergence as the slope of a straight line, with a confidence interval.

One place for every measurement of an order: which points count (the plateau rule), the slope of
log(error) against log(dt) by least squares, how sure it is, and how it is shown.

The plateau rule drops, in this order,

    points at which a path failed
    points that are not clearly above a floor: the error of the reference, sampling, rounding
    coarse points whose error has another sign than the finest one
    the coarsest point, as long as it bends the line

and an order is given only if three points are left.

Sampled errors. The line is straight; it is bent if the slope between the two coarsest points is
not the slope of the others. The interval adds two doubts in quadrature: sampling, and the tilt by
a bend that the plateau rule lets pass. All step sizes share their paths, so their errors go up and
down together, and scatter about the line says little about how they may tilt it; the variance of
the slope is that of the mean of one number a path, its influence on the slope (the delta method, to
which a bootstrap over paths converges).

Errors without sampling. The next two powers are fitted as well, as far as there are points:
log|error| = c + p log dt + a dt + b dt². The interval is what the last of them changed, as for
every extrapolation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, hypot, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dalembert.pictures import make_axes, tidy_log_axes
from dalembert.theory.text import table

MIN_POINTS = 3
STRAIGHT = 0.05
"""Slopes that differ by less than this are one slope: halving h, errors c h^p (1 + a h) have slopes
that differ by so little where a h < 0.1 or so."""
CLEAR = 2.0
"""Standard errors by which two slopes must differ to count as different."""
FAILED, SIGN, BENT = "a failure", "a change of sign", "a bend"
"""Reasons to drop points besides the floors."""
WIDE = 0.25
"""Half the width of an interval that does not tell order one from three halves."""
LEAST = 0.03
"""Half the width of the narrowest interval: no order is known better from a few step sizes."""


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
        dropped: the reasons for which points were dropped.
        remedy: what to change if no order was found, or if its interval is wide.
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
    dropped: tuple[str, ...] = ()
    remedy: str = ""

    kind = "Order"

    @property
    def slopes(self) -> np.ndarray:
        """Slopes between neighbouring step sizes."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.diff(np.log(self.errors)) / np.diff(np.log(self.dts))

    def __str__(self) -> str:
        value = "not found"
        if not np.isnan(self.order):
            # More powers of dt are fitted then: the order need not lie among the slopes.
            exact = "no sampling, slopes extrapolated to dt = 0"
            sure = f"{self.confidence:.0%} confidence" if self.stderrs.any() else exact
            value = "{:.3f} [{:.3f}, {:.3f}] ({})".format(self.order, *self.interval, sure)
        slopes = ["", *(f"{slope:.3f}" for slope in self.slopes)]
        columns = (self.dts, self.errors, self.stderrs, slopes, self.used)
        rows = [("dt", "error", "± s.e.", "slope", "used")]
        for dt, error, stderr, slope, used in zip(*columns, strict=True):
            mark = "yes" if used else "no"
            rows.append((f"{dt:.5g}", f"{error:.4g}", f"{stderr:.1e}", slope, mark))
        title = [f"{self.kind} {value}: {self.subject}", f"against {self.reference}", ""]
        notes = [f"- {note}" for note in (*self.notes, self.remedy) if note]
        return "\n".join([*title, *table(rows, right=True), "", *notes]).rstrip()

    def plot(self, ax: Any = None) -> Any:
        """Draw errors against step sizes, both logarithmic, with the fitted line; give the axes."""
        axes = make_axes(ax)
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
        # One that is far below all errors would only make the picture flat.
        if (
            np.all(np.isfinite(self.floor))
            and self.floor.max() > self.errors[seen].min(initial=np.inf) / 30
        ):
            is_named = "floor" in axes.get_legend_handles_labels()[1]
            label = "_floor" if is_named else "floor"
            axes.loglog(self.dts, self.floor, ":", color="grey", label=label)
        axes.set(xlabel="dt", ylabel="error")
        if axes.get_legend_handles_labels()[1]:
            axes.legend()
        tidy_log_axes(axes)
        return axes


@dataclass(frozen=True, kw_only=True, eq=False)
class StrongOrder(OrderEstimate):
    """Order of the root-mean-square error of single paths at the end of a run; see the base."""

    kind = "Strong order"


@dataclass(frozen=True, kw_only=True, eq=False)
class WeakOrder(OrderEstimate):
    """Order of the error of an expectation at the end of a run; see the base."""

    kind = "Weak order"


AnyEstimate = TypeVar("AnyEstimate", bound=OrderEstimate)


class Measured(NamedTuple):
    """Errors at several step sizes, and what is known about them.

    dts        step sizes, from coarse to fine, shape (points,)
    errors     errors, signed or not, shape (points,)
    influence  derivative of log|error| with respect to the weight of each path, shape
               (points, paths) and of mean zero; no paths where nothing was sampled
    floors     for each reason, the error that a point must exceed, shape (points,)
    failed     what went wrong at each point, "" if nothing
    reference  what the errors were measured against
    remedies   for each reason to drop points (those of the floors, FAILED, SIGN and BENT) what to
               change in the call
    """

    dts: np.ndarray
    errors: np.ndarray
    influence: np.ndarray
    floors: Mapping[str, np.ndarray]
    failed: Sequence[str]
    reference: str
    remedies: Mapping[str, str] = {}

    @property
    def sampled(self) -> bool:
        return self.influence.shape[1] > 0

    def fit(self, points: np.ndarray, confidence: float) -> tuple[float, float]:
        """The slope through some of the points and half the width of its interval."""
        terms = 2 if self.sampled else min(len(points), 4)
        weights = self._weights(points, terms)
        slope = float(weights[points] @ np.log(np.abs(self.errors[points])))
        bend, tolerated, difference = self.bend(points)
        if not self.sampled:
            return slope, max(bend, LEAST)
        # A bend by a term a·dt tilts the line in this proportion.
        tilt = tolerated * abs((weights @ self.dts) / (difference @ self.dts))
        sampling = NormalDist().inv_cdf((1 + confidence) / 2) * self._stderr(weights, points)
        return slope, max(hypot(sampling, tilt), LEAST)

    def bend(self, points: np.ndarray) -> tuple[float, float, np.ndarray]:
        """What the coarsest point changes in the slope, what is tolerated, and the weights of it.

        Without sampling it is the last term that changes the slope.
        """
        if self.sampled:
            difference = self._weights(points[:2], 2) - self._weights(points[1:], 2)
        else:
            terms = min(len(points), 4)
            difference = self._weights(points, terms) - self._weights(points, terms - 1)
        bend = abs(float(difference[points] @ np.log(np.abs(self.errors[points]))))
        return bend, max(STRAIGHT, CLEAR * self._stderr(difference, points)), difference

    def _weights(self, points: np.ndarray, terms: int) -> np.ndarray:
        """Weights w of the least-squares slope w·log|error| through some of the points."""
        h = self.dts[points] / self.dts[points].max()
        design = np.stack([np.log(h), np.ones_like(h), h, h**2][:terms], axis=1)
        weights = np.zeros(len(self.dts))
        weights[points] = np.linalg.pinv(design)[0]
        return weights

    def _stderr(self, weights: np.ndarray, points: np.ndarray) -> float:
        return _stderr(weights[points] @ self.influence[points])


def estimate(
    record: type[AnyEstimate], measured: Measured, subject: str, confidence: float, lift: int = 0
) -> AnyEstimate:
    """Apply the plateau rule and fit the slope; `lift`, which is subtracted, is 1 for one step."""
    points, dropped = np.arange(len(measured.dts)), []
    for rule in (_drop_unseen, _drop_other_signs, _drop_coarse):
        points, more = rule(measured, points)
        dropped += more
    notes = [note for _, note in dropped]
    if lift:
        notes.append("slopes of errors of single steps are one more than the order")
    order, half, remedy = np.nan, np.nan, ""
    reasons = dict.fromkeys(reason for reason, _ in dropped)
    if len(points) < MIN_POINTS:
        known = dict.fromkeys(measured.remedies[r] for r in reasons if r in measured.remedies)
        what = "; or ".join(known) or (
            "smaller steps where they are not asymptotic, larger ones or a better reference where "
            "they are below a floor"
        )
        notes.append(f"{len(points)} of at least {MIN_POINTS} points are left")
        remedy = f"take {what}"
    else:
        order, half = measured.fit(points, confidence)
        if measured.sampled and half > WIDE:
            paths = measured.influence.shape[1] * (half / WIDE) ** 2
            remedy = f"for an interval of ± {WIDE:g} take more paths, paths={rounded_up(paths):_}"
    errors = np.abs(measured.errors)
    with np.errstate(invalid="ignore"):
        stderrs = errors * np.array([_stderr(row) for row in measured.influence])
    return record(
        order=order - lift,
        interval=(order - lift - half, order - lift + half),
        confidence=confidence,
        dts=measured.dts,
        errors=errors,
        stderrs=stderrs,
        used=np.isin(np.arange(len(errors)), points),
        floor=np.max(np.stack(list(measured.floors.values())), axis=0),
        subject=subject,
        reference=measured.reference,
        notes=tuple(notes),
        dropped=tuple(reasons),
        remedy=remedy,
    )


def without_order(found: AnyEstimate, note: str, remedy: str) -> AnyEstimate:
    """The same measurement, of which no order is claimed."""
    notes = (*found.notes, note) if note else found.notes
    return replace(found, order=np.nan, interval=(np.nan, np.nan), notes=notes, remedy=remedy)


Dropped = list[tuple[str, str]]
"""Why points were dropped: a reason, and a note about which."""


def _drop_unseen(measured: Measured, points: np.ndarray) -> tuple[np.ndarray, Dropped]:
    """Points at which a path failed or the error is not above every floor."""
    kept, dropped = [], []
    for k in points:
        error, reasons = measured.errors[k], []
        if measured.failed[k]:
            reasons.append((FAILED, measured.failed[k]))
        if not np.isfinite(error):
            reasons.append((FAILED, "its error is not finite"))
        floors = measured.floors.items()
        reasons += [
            (why, f"not clearly above {why}") for why, at in floors if not abs(error) > at[k]
        ]
        if reasons:
            reason, words = reasons[0]
            dropped.append((reason, f"dt = {measured.dts[k]:.5g} dropped: {words}"))
        else:
            kept.append(k)
    return np.array(kept, int), dropped


def _drop_other_signs(measured: Measured, points: np.ndarray) -> tuple[np.ndarray, Dropped]:
    """An error that changes its sign is not a power of dt on both sides: keep the fine side."""
    signs = np.sign(measured.errors[points])
    other = points[signs != signs[-1:]]
    if not len(other):
        return points, []
    note = f"dt >= {measured.dts[other[-1]]:.5g} dropped: the error changes its sign"
    return points[points > other[-1]], [(SIGN, note)]


def _drop_coarse(measured: Measured, points: np.ndarray) -> tuple[np.ndarray, Dropped]:
    """Drop the coarsest point while it bends the line."""
    dropped = []
    while len(points) >= MIN_POINTS:
        bend, tolerated, _ = measured.bend(points)
        if bend <= tolerated:
            break
        dt = measured.dts[points[0]]
        dropped.append((BENT, f"dt = {dt:.5g} dropped: not asymptotic (slope off by {bend:.2f})"))
        points = points[1:]
    return points, dropped


def _stderr(samples: np.ndarray) -> float:
    """Standard error of the mean; zero where nothing was sampled."""
    return float(np.std(samples, ddof=1)) / sqrt(len(samples)) if len(samples) > 1 else 0.0


def rounded_up(number: float) -> int:
    """The next whole number with one digit that is not zero."""
    digits = 10 ** (len(str(ceil(number))) - 1)
    return ceil(number / digits) * digits


def slope(dts: np.ndarray, errors: np.ndarray) -> float:
    """The slope of the straight line through log(error) over log(dt)."""
    return float(np.polyfit(np.log(dts), np.log(errors), 1)[0])
