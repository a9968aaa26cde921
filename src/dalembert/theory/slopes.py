"""The order of convergence as the slope of a straight line, with a confidence interval.

One place for every measurement of an order: which points count (the plateau rule), the slope of
log(error) against log(dt) by least squares, how sure it is, and how it is shown.

The plateau rule drops, in this order,

    points at which a path failed
    points that are not clearly above a floor: the error of the reference, sampling, rounding
    coarse points whose error has another sign than the finest one
    the coarsest point, as long as the slope with it is not the slope without it

and an order is given only if three points are left. Where nothing was sampled and four points are
left, the next power of dt is fitted as well: log|error| = c + p log dt + a dt. Sampled errors are
too noisy for that.

The interval adds three doubts in quadrature. Sampling: all step sizes share their paths, so their
errors go up and down together and scatter about a straight line by less than they may tilt it; the
variance of the slope is therefore that of the mean of one number a path, its influence on the slope
(the delta method, to which a bootstrap over paths converges). Scatter about the fit, by Student's
t: it shows curvature. And the curvature that the plateau rule lets pass.
"""

from collections.abc import Mapping, Sequence
from math import hypot, sqrt
from statistics import NormalDist
from typing import NamedTuple, TypeVar

import jax
import numpy as np

from dalembert.theory.order_estimate import OrderEstimate

__all__ = ["Measured", "estimate", "student_quantile"]

MIN_POINTS = 3
STRAIGHT = 0.05
"""Slopes that differ by less than this are one slope: halving h, errors c h^p (1 + a h) have slopes
that differ by so little where a h < 0.1 or so."""
CLEAR = 2.0
"""Standard errors by which two slopes must differ to count as different."""
TILT = 0.6
"""By how much a curvature that passes may tilt the line, as a part of the difference of slopes that
the rule looks at: the excess of a slope halves with h, which gives 0.6 over five points."""


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
    """Apply the plateau rule and fit the slope; `lift` is subtracted from it."""
    dts, errors, influence = measured.dts, measured.errors, measured.influence
    used = np.ones(len(dts), bool)
    notes = _drop_unseen(measured, used)
    influence = np.where(used[:, None], influence, 0.0)
    notes += [
        *_drop_other_signs(dts, errors, used),
        *_drop_coarse(dts, errors, influence, used),
    ]
    order, half = np.nan, np.nan
    if used.sum() < MIN_POINTS:
        notes.append(
            f"{used.sum()} of at least {MIN_POINTS} points are left: take smaller steps where they are "
            "not asymptotic, larger ones or a better reference where they are below a floor"
        )
    else:
        order, half = _fit(dts, errors, influence, used, confidence)
    return record(
        order=order - lift,
        interval=(order - lift - half, order - lift + half),
        confidence=confidence,
        dts=dts,
        errors=np.abs(errors),
        stderrs=np.abs(errors) * _stderr(measured.influence),
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
    """Drop the coarsest point while the slope with it is not the slope without it."""
    notes = []
    while used.sum() >= MIN_POINTS:
        kept = np.flatnonzero(used)
        gap, tolerated = _bend(dts, errors, influence, kept)
        if gap <= tolerated:
            break
        used[kept[0]] = False
        notes.append(f"dt = {dts[kept[0]]:.5g} dropped: not asymptotic (slope off by {gap:.2f})")
    return notes


def _bend(
    dts: np.ndarray, errors: np.ndarray, influence: np.ndarray, points: np.ndarray
) -> tuple[float, float]:
    """By how much the coarsest point changes the slope, and how much of that is tolerated."""
    logs = np.zeros(len(dts))
    logs[points] = np.log(np.abs(errors[points]))
    terms = _terms(influence, points)
    with_it = points[:2] if terms == 2 else points
    difference = _weights(dts, with_it, terms) - _weights(dts, points[1:], terms)
    gap = abs(float(difference @ logs))
    if terms == 3:
        # log(1 + x) = x − x²/2 + …: the fit has x = a dt, and the next term tilts it.
        x = float(np.linalg.lstsq(_design(dts[points], 3), logs[points], rcond=None)[0][2])
        gap = max(gap, x**2 / 2)
    return gap, max(STRAIGHT, CLEAR * _stderr((difference @ influence)[None, :])[0])


def _terms(influence: np.ndarray, points: np.ndarray) -> int:
    """How many terms of log|error| = c + p log dt + a dt are fitted: the last one if it can be."""
    return 2 if influence.shape[1] or len(points) < 4 else 3


def _design(dts: np.ndarray, terms: int) -> np.ndarray:
    return np.stack([np.log(dts), np.ones_like(dts), dts / dts.max()][:terms], axis=1)


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
    terms = _terms(influence, points)
    weights = _weights(dts, points, terms)
    design, y = _design(dts[used], terms), np.log(np.abs(errors[used]))
    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    freedom = len(y) - terms
    scatter = sqrt(float(residual @ residual) / freedom * float(weights @ weights))
    sampling = _stderr((weights @ influence)[None, :])[0]
    half = hypot(
        NormalDist().inv_cdf((1 + confidence) / 2) * sampling,
        student_quantile(confidence, freedom) * scatter,
        TILT * _bend(dts, errors, influence, points)[1],
    )
    return float(weights[used] @ y), half


def _stderr(influence: np.ndarray) -> np.ndarray:
    """Standard error of the mean of each row; zero where nothing was sampled."""
    paths = influence.shape[1]
    if paths < 2:
        return np.zeros(len(influence))
    return np.std(influence, axis=1, ddof=1) / sqrt(paths)


def student_quantile(confidence: float, freedom: int) -> float:
    """The t with P(|T| ≤ t) = confidence for Student's distribution, by bisection."""
    with jax.enable_x64(True):

        def inside(t: float) -> float:
            return 1 - float(
                jax.scipy.special.betainc(freedom / 2, 0.5, freedom / (freedom + t**2))
            )

        low, high = 0.0, 1.0
        while inside(high) < confidence:
            low, high = high, 2 * high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if inside(middle) < confidence else (low, middle)
    return high
