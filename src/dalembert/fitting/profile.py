"""Intervals from the misfit of moments itself, which is not a parabola of the parameters.

Moments bend, and their covariance changes, within a few standard errors: normal intervals, with the
slopes and the covariance at the estimate, then hold the truth too seldom. Around the estimate means
and logarithms of covariances are interpolated between simulations at points on a few spheres, and
an interval of a parameter has all values at which the misfit, with the covariance there and the
best values of the other parameters, is within a quantile of χ² of its least.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from statistics import NormalDist

import numpy as np

__all__ = ["Profile", "profiled"]

APART, SPHERES, MOST = 1.25, 2, 5
"""Standard errors between spheres of simulated points, how many there are at least, and at most."""

LOOKED = 10.0
"""Standard errors after which an interval is taken to have no end."""

PASSES, HALVINGS = 40, 25


@dataclass(frozen=True, eq=False)
class Profile:
    """The misfit around an estimate, as a function of logarithms of what is positive.

    Attributes:
        centre: the estimate.
        root: a square root of its covariance, (parameters, parameters).
        is_positive: which parameters are looked for among positive numbers.
        target: observed moments.
        points: where paths were simulated, in standard errors, (points, parameters).
        means: coefficients of the moments, (terms, moments).
        logs: coefficients of the logarithm of the covariance of the gap, (terms, moments, moments).
    """

    centre: np.ndarray
    root: np.ndarray
    is_positive: np.ndarray
    target: np.ndarray
    points: np.ndarray
    means: np.ndarray
    logs: np.ndarray

    def residuals(self, x: np.ndarray) -> np.ndarray:
        """The gap of the moments in their standard errors; the sum of squares is the misfit."""
        terms = _terms(np.linalg.solve(self.root, x - self.centre), self.points)
        values, axes = np.linalg.eigh(np.tensordot(terms, self.logs, 1))
        gap = axes.T @ (self.target - terms @ self.means)
        return axes @ (np.exp(-values / 2) * gap)

    def interval(self, confidence: float) -> np.ndarray:
        """(low, high) of every parameter, shape (parameters, 2)."""
        ends, _ = self.ends(confidence)
        return np.where(self.is_positive[:, None], np.exp(ends), ends)

    def ends(self, confidence: float) -> tuple[np.ndarray, float]:
        """Ends of the intervals, and the standard errors to which they go from the estimate."""
        best = self._least(self.centre, None)
        limit = self._misfit(best) + NormalDist().inv_cdf((1 + confidence) / 2) ** 2
        scale = np.linalg.norm(self.root, axis=1)
        ends, farthest = np.empty((len(best), 2)), 0.0
        for i in range(len(best)):
            for column, sign in enumerate((-1.0, 1.0)):
                ends[i, column], there = self._end(best, i, sign * scale[i], limit)
                if there is not None:
                    away = np.linalg.norm(np.linalg.solve(self.root, there - self.centre))
                    farthest = max(farthest, float(away))
        return ends, farthest

    def _end(
        self, best: np.ndarray, i: int, unit: float, limit: float
    ) -> tuple[float, np.ndarray | None]:
        """Where the misfit of a parameter passes the limit, on one side, and the others there."""
        inside, near = 0.0, best
        while inside < LOOKED:
            outside = inside + 0.5
            far = self._least(self._at(near, i, best[i] + outside * unit), i)
            if self._misfit(far) > limit:
                break
            inside, near = outside, far
        else:
            return np.sign(unit) * np.inf, None
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            x = self._least(self._at(near, i, best[i] + middle * unit), i)
            if self._misfit(x) > limit:
                outside = middle
            else:
                inside, near = middle, x
        return float(near[i]), near

    @staticmethod
    def _at(x: np.ndarray, i: int, value: float) -> np.ndarray:
        x = x.copy()
        x[i] = value
        return x

    def _misfit(self, x: np.ndarray) -> float:
        return float(np.sum(self.residuals(x) ** 2))

    def _least(self, x: np.ndarray, fixed: int | None) -> np.ndarray:
        """Parameters with the least misfit, one of them as it is, by Levenberg and Marquardt."""
        free = [i for i in range(len(x)) if i != fixed]
        if not free:
            return x
        scale, damping = np.linalg.norm(self.root, axis=1)[free], 1e-3
        here, found = self.residuals(x), x
        for _ in range(PASSES):
            moves = [
                self._at(found, i, found[i] + 1e-4 * s) for i, s in zip(free, scale, strict=True)
            ]
            slopes = np.stack([(self.residuals(y) - here) / 1e-4 for y in moves], 1)
            curved = slopes.T @ slopes
            step = np.linalg.solve(
                curved + damping * (np.eye(len(free)) + np.diag(np.diag(curved))), -slopes.T @ here
            )
            tried = found.copy()
            tried[free] += scale * step
            there = self.residuals(tried)
            if there @ there < here @ here:
                is_done = here @ here - there @ there < 1e-8
                found, here, damping = tried, there, damping / 5
                if is_done:
                    break
            else:
                damping *= 8
                if damping > 1e8:
                    break
        return found


def profiled(
    flat: np.ndarray,
    covariance: np.ndarray,
    is_positive: np.ndarray,
    target: np.ndarray,
    share: float,
    summaries: Callable[[np.ndarray], np.ndarray],
) -> Profile | None:
    """The misfit around an estimate; None if it cannot be had.

    Args:
        flat: the estimate.
        covariance: of the estimate, at least roughly.
        is_positive: which parameters are looked for among positive numbers.
        target: observed moments.
        share: of the covariance of a summary, that of the difference of two means of them.
        summaries: of simulated paths, (paths, moments), for some parameters.
    """
    scale = np.where(is_positive, flat, 1.0)
    centre = np.where(is_positive, np.log(np.where(is_positive, flat, 1.0)), flat)
    root = np.linalg.cholesky(covariance / np.outer(scale, scale))
    points, means, logs, found = [], [], [], None
    for sphere in range(MOST + 1):
        for u in _directions(len(flat)) if sphere else [np.zeros(len(flat))]:
            x = centre + root @ u * (sphere * APART)
            paths = summaries(np.where(is_positive, np.exp(np.minimum(x, 700.0)), x))
            values, axes = np.zeros(1), np.eye(1)
            if np.all(np.isfinite(paths)):
                values, axes = np.linalg.eigh(np.atleast_2d(np.cov(paths.T)) * share)
            if values[0] <= 0:
                return found  # paths fail there, or are all alike
            points.append(u * (sphere * APART))
            means.append(paths.mean(0))
            logs.append((axes * np.log(values)) @ axes.T)
        if sphere >= SPHERES:
            nodes = np.stack(points)
            known = [_interpolated(nodes, np.stack(y)) for y in (means, logs)]
            found = Profile(centre, root, is_positive, target, nodes, *known)
            if found.ends(0.95)[1] <= sphere * APART:
                return found
    return found


def _directions(count: int) -> Iterator[np.ndarray]:
    """Both ends of every axis, and the corners between two of them."""
    axes = np.eye(count)
    for one in axes:
        yield one
        yield -one
    for one, other in combinations(axes, 2):
        for first, second in product((1.0, -1.0), repeat=2):
            yield (first * one + second * other) / np.sqrt(2)


def _terms(u: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Cubes of distances from points, and one, the entries, and their products."""
    i, j = np.triu_indices(len(u))
    cubes = np.linalg.norm(u - points, axis=1) ** 3
    return np.concatenate([cubes, [1.0], u, u[i] * u[j]])


def _interpolated(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Coefficients of these terms, (terms, …), with the values, (points, …), at the points."""
    rows = np.stack([_terms(u, points) for u in points])
    count = rows.shape[1] - len(points)
    tail = rows[:, len(points) :]
    matrix = np.block([[rows], [tail.T, np.zeros((count, count))]])
    flat = np.concatenate([values.reshape(len(points), -1), np.zeros((count, values[0].size))])
    return np.linalg.lstsq(matrix, flat, rcond=None)[0].reshape(-1, *values.shape[1:])
