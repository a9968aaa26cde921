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

Errors without sampling. The next two powers
are fitted as well, as far as there are points: log|error| = c + p log dt + a dt + b dt². The
interval is what the last of them changed, as for every extrapolation.
"""

from collections.abc import Mapping, Sequence
from math import hypot, sqrt
from statistics import NormalDist
from typing import NamedTuple, TypeVar

import numpy as np

from dalembert.theory.order_estimate import OrderEstimate

__all__ = ["Measured", "estimate"]

MIN_POINTS = 3
STRAIGHT = 0.05
"""Slopes that differ by less than this are one slope: halving h, errors c h^p (1 + a h) have slopes
that differ by so little where a h < 0.1 or so."""
CLEAR = 2.0
"""Standard errors by which two slopes must differ to count as different."""
LEAST = 0.03
"""Half the width of the narrowest interval: no order is known better from a few step sizes."""

Estimate = TypeVar("Estimate", bound=OrderEstimate)


class Measured(NamedTuple):
    """Errors at several step sizes, and what is known about them.

    dts        step sizes, from coarse to fine, shape (points,)
    errors     errors, signed or not, shape (points,)
    influence  derivative of log|error| with respect to the weight of each path, shape
               (points, paths) and of mean zero; no paths where nothing was sampled
    floors     for each reason, the error that a point must exceed, shape (points,)
    failed     what went wrong at each point, "" if nothing
    reference  what the errors were measured against
    """

    dts: np.ndarray
    errors: np.ndarray
    influence: np.ndarray
    floors: Mapping[str, np.ndarray]
    failed: Sequence[str]
    reference: str


def estimate(
    record: type[Estimate], measured: Measured, subject: str, confidence: float, lift: int = 0
) -> Estimate:
    """Apply the plateau rule and fit the slope; `lift`, which is subtracted, is 1 for one step."""
    dts, errors, influence = measured.dts, measured.errors, measured.influence
    used = np.ones(len(dts), bool)
    notes = _drop_unseen(measured, used)
    influence = np.where(used[:, None], influence, 0.0)
    notes += [
        *_drop_other_signs(dts, errors, used),
        *_drop_coarse(dts, errors, influence, used),
    ]
    if lift:
        notes.append("slopes of errors of single steps are one more than the order")
    order, half = np.nan, np.nan
    if used.sum() < MIN_POINTS:
        notes.append(
            f"{used.sum()} of at least {MIN_POINTS} points are left: take smaller steps where they "
            "are not asymptotic, larger ones or a better reference where they are below a floor"
        )
    else:
        order, half = _fit(dts, errors, influence, used, confidence)
    with np.errstate(invalid="ignore"):
        stderrs = np.abs(errors) * _stderr(measured.influence)
    return record(
        order=order - lift,
        interval=(order - lift - half, order - lift + half),
        confidence=confidence,
        dts=dts,
        errors=np.abs(errors),
        stderrs=stderrs,
        used=used,
        floor=np.max(np.stack(list(measured.floors.values())), axis=0),
        subject=subject,
        reference=measured.reference,
        notes=tuple(notes),
    )


def _drop_unseen(measured: Measured, used: np.ndarray) -> list[str]:
    """Points at which a path failed or the error is not above every floor."""
    notes = []
    for k, (dt, error, reason) in enumerate(
        zip(measured.dts, measured.errors, measured.failed, strict=True)
    ):
        below = [
            f"not clearly above {why}"
            for why, floor in measured.floors.items()
            if not abs(error) > floor[k]
        ]
        overflow = [] if np.isfinite(error) else ["its error is not finite"]
        reasons = [*filter(None, [reason]), *overflow, *below]
        if reasons:
            used[k] = False
            notes.append(f"dt = {dt:.5g} dropped: {reasons[0]}")
    return notes


def _drop_other_signs(dts: np.ndarray, errors: np.ndarray, used: np.ndarray) -> list[str]:
    """An error that changes its sign is not a power of dt on both sides: keep the fine side."""
    kept = np.flatnonzero(used)
    other = [k for k in kept if np.sign(errors[k]) != np.sign(errors[kept[-1]])]
    for k in range(max(other, default=-1) + 1):
        used[k] = False
    return [f"dt >= {dts[max(other)]:.5g} dropped: the error changes its sign"] if other else []


def _drop_coarse(
    dts: np.ndarray, errors: np.ndarray, influence: np.ndarray, used: np.ndarray
) -> list[str]:
    """Drop the coarsest point while it bends the line."""
    notes = []
    while used.sum() >= MIN_POINTS:
        kept = np.flatnonzero(used)
        bend, tolerated = _bend(dts, errors, influence, kept)
        if bend <= tolerated:
            break
        used[kept[0]] = False
        notes.append(f"dt = {dts[kept[0]]:.5g} dropped: not asymptotic (slope off by {bend:.2f})")
    return notes


def _bend(
    dts: np.ndarray, errors: np.ndarray, influence: np.ndarray, points: np.ndarray
) -> tuple[float, float]:
    """What the coarsest point, or the last term, changes in the slope; and what is tolerated."""
    difference = _difference(dts, influence, points)
    used = difference != 0
    bend = abs(float(difference[used] @ np.log(np.abs(errors[used]))))
    stderr = _stderr((difference @ influence)[None, :])[0]
    return bend, max(STRAIGHT, CLEAR * stderr)


def _difference(dts: np.ndarray, influence: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Weights of a difference of slopes: the two coarsest points against the others, if sampled."""
    if influence.shape[1]:
        return _weights(dts, points[:2], 2) - _weights(dts, points[1:], 2)
    terms = _terms(influence, points)
    return _weights(dts, points, terms) - _weights(dts, points, terms - 1)


def _terms(influence: np.ndarray, points: np.ndarray) -> int:
    """How many terms of log|error| = c + p log dt + a dt + b dt² are fitted."""
    return 2 if influence.shape[1] else min(len(points), 4)


def _design(dts: np.ndarray, terms: int) -> np.ndarray:
    h = dts / dts.max()
    return np.stack([np.log(h), np.ones_like(h), h, h**2][:terms], axis=1)


def _weights(dts: np.ndarray, points: np.ndarray, terms: int) -> np.ndarray:
    """Weights w of the least-squares slope w·log|error| through some of the points."""
    weights = np.zeros(len(dts))
    weights[points] = np.linalg.pinv(_design(dts[points], terms))[0]
    return weights


def _fit(
    dts: np.ndarray,
    errors: np.ndarray,
    influence: np.ndarray,
    used: np.ndarray,
    confidence: float,
) -> tuple[float, float]:
    """The slope and half the width of its interval."""
    points = np.flatnonzero(used)
    weights = _weights(dts, points, _terms(influence, points))
    y = np.log(np.abs(errors[used]))
    slope = float(weights[used] @ y)
    bend, tolerated = _bend(dts, errors, influence, points)
    if not influence.shape[1]:
        return slope, max(bend, LEAST)
    # A bend by a term a·dt tilts the line in this proportion.
    tilt = tolerated * abs((weights @ dts) / (_difference(dts, influence, points) @ dts))
    sampling = _stderr((weights @ influence)[None, :])[0]
    half = hypot(NormalDist().inv_cdf((1 + confidence) / 2) * sampling, tilt)
    return slope, max(half, LEAST)


def _stderr(influence: np.ndarray) -> np.ndarray:
    """Standard error of the mean of each row; zero where nothing was sampled."""
    paths = influence.shape[1]
    if paths < 2:
        return np.zeros(len(influence))
    return np.std(influence, axis=1, ddof=1) / sqrt(paths)
