"""Parameters that fit best, with standard errors: Fisher's scoring, and what comes of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from jax.scipy.special import gammaincc

from dalembert.fitting.observed import free_parameters, labels, unravelled
from dalembert.fitting.profile import Profile
from dalembert.pictures import import_extra
from dalembert.precision import check_confidence, with_precision
from dalembert.theory.text import table

__all__ = ["Fit", "fit"]

SINGULAR = 1e-10
"""Least eigenvalue of the information, scaled to ones on its diagonal."""

SHORTEST = 2.0**-30

FEW = 10
"""Transitions for each parameter below which standard errors of a likelihood are rough."""


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """Estimated parameters and how well they are known.

    Attributes:
        estimate: parameters by name.
        stderr: their standard errors, likewise.
        labels: names of the entries of `covariance`, one per number.
        covariance: of the estimates, shape (numbers, numbers).
        value: log-likelihood there; of moments −½ of the squared misfit.
        observations: how much was observed, in words.
        kind: what was fitted, in words.
        iterations: how many steps the search took.
        misfit: of moments, the squared misfit, which has a χ² law with as many degrees of freedom
            as the second number says if the model is right; else None.
        notes: what has to be known besides.
        profile: of moments, the misfit around the estimate, which intervals are taken from.
        positive: names of parameters that were looked for among positive numbers.
    """

    estimate: dict[str, Any]
    stderr: dict[str, Any]
    labels: tuple[str, ...]
    covariance: np.ndarray
    value: float
    observations: str
    kind: str
    iterations: int
    misfit: tuple[float, int] | None
    notes: tuple[str, ...]
    profile: Profile | None = None
    positive: tuple[str, ...] = ()

    @cached_property
    def correlation(self) -> np.ndarray:
        """Correlations of the estimates."""
        scale = np.sqrt(np.diag(self.covariance))
        return self.covariance / np.outer(scale, scale)

    @property
    def chance(self) -> float:
        """Probability that the misfit of a right model is larger; NaN if there is none."""
        square, free = self.misfit or (0.0, 0)
        if not free:
            return math.nan
        return float(with_precision(gammaincc, np.asarray(free / 2), np.asarray(square / 2)))

    def interval(self, confidence: float = 0.95) -> dict[str, tuple[Any, Any]]:
        """Confidence intervals, (low, high) by name: normal, but of moments by their misfit.

        What is positive has none below zero.
        """
        check_confidence(confidence)
        if self.profile is not None:
            low, high = (self._by_name(x) for x in self.profile.interval(confidence).T)
            return {name: (low[name], high[name]) for name in self.estimate}
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        wide = {name: z * self.stderr[name] for name in self.estimate}
        least = {name: 0.0 if name in self.positive else -np.inf for name in self.estimate}
        return {
            name: (np.maximum(x - wide[name], least[name]), x + wide[name])
            for name, x in self.estimate.items()
        }

    def _by_name(self, flat: np.ndarray) -> dict[str, Any]:
        """Numbers, one for each that was estimated, in the shapes of the parameters."""
        sizes = [np.size(x) for x in self.estimate.values()]
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        named = zip(self.estimate.items(), parts, strict=True)
        return {name: part.reshape(np.shape(x))[()] for (name, x), part in named}

    def __repr__(self) -> str:
        rows = [("", "estimate", "± s.e.", "95 % interval")]
        flat = np.concatenate([np.ravel(x) for x in self.estimate.values()])
        errors = np.sqrt(np.diag(self.covariance))
        ends = [np.concatenate([np.ravel(x[i]) for x in self.interval().values()]) for i in (0, 1)]
        for label, x, error, low, high in zip(self.labels, flat, errors, *ends, strict=True):
            rows.append((label, f"{x:.5g}", f"{error:.2g}", f"[{low:.5g}, {high:.5g}]"))
        lines = [f"{self.kind}, {self.observations}", *table(rows)]
        if self.misfit is None:
            lines.append(f"  log-likelihood {self.value:.6g}, {self.iterations} iterations")
        else:
            square, free = self.misfit
            lines.append(f"  misfit χ² = {square:.3g}, {free} degrees of freedom")
            if free:
                lines[-1] += f": a right model exceeds it with probability {self.chance:.2g}"
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)])

    def plot(self, axes: Any = None) -> Any:
        """Draw densities of the estimates, and ellipses of one and two standard errors of pairs.

        `axes`: an array (numbers, numbers) of axes; without it a new figure is made. Given back.
        """
        pyplot = import_extra("matplotlib.pyplot")
        count = len(self.labels)
        if axes is None:
            size = 1.5 + 1.8 * count
            _, axes = pyplot.subplots(
                count, count, figsize=(size, size), squeeze=False, layout="constrained"
            )
        flat = np.concatenate([np.ravel(x) for x in self.estimate.values()])
        errors, angle = np.sqrt(np.diag(self.covariance)), np.linspace(0, 2 * np.pi, 100)
        circle, grid = np.stack([np.cos(angle), np.sin(angle)]), np.linspace(-3.5, 3.5, 100)
        for row, column in np.ndindex(count, count):
            ax = axes[row, column]
            if column > row:
                ax.set_axis_off()
                continue
            if row == column:
                ax.plot(flat[row] + grid * errors[row], np.exp(-(grid**2) / 2))
                ax.set_yticks([])
            else:
                pair = np.asarray([column, row])
                root = np.linalg.cholesky(self.covariance[np.ix_(pair, pair)])
                for k in (1, 2):
                    ax.plot(*(flat[pair, None] + k * root @ circle), color="C0")
                ax.plot(*flat[pair], "C0.")
                ax.set_ylabel(self.labels[row])
            ax.set_xlabel(self.labels[column])
        return axes


def fit(
    objective: Any,
    guess: Mapping[str, Any],
    *,
    positive: Sequence[str] = (),
    max_iterations: int = 100,
) -> Fit:
    """The parameters that fit observations best, with standard errors.

    The search is Fisher's scoring (Gauss and Newton's method for moments) with halved steps, until
    the next step would be shorter than 1e−4 standard errors, of moments 0.05. Standard errors of a
    likelihood are those of White's sandwich, I⁻¹ (Σ s sᵀ) I⁻¹ with the scores s of transitions:
    they hold for laws that are not Gaussian, as long as mean and covariance of a step are right.
    With fewer than ten transitions for each parameter they are no smaller than those of a Gaussian
    law, and the result says that they are rough; as many parameters as transitions are refused.

    Args:
        objective: of `path_likelihood` or `match_moments`.
        guess: where to begin, by name; parameters of the system that are not named stay as they
            are.
        positive: names of parameters that are looked for among positive numbers.
        max_iterations: steps of the search, at most.

    Raises:
        ValueError: if the data do not determine the parameters; the message says which.
        RuntimeError: if the search does not end.
    """
    free, flat = free_parameters(objective.system, guess)
    names = labels(free)
    signs = unravelled(free, np.arange(len(flat)))
    unknown = sorted(set(positive) - set(signs))
    if isinstance(positive, str) or unknown:
        raise ValueError(f"positive must name parameters of the guess, not {positive!r}.")
    is_positive = np.isin(np.arange(len(flat)), [i for n in positive for i in signs[n].ravel()])
    if np.any(flat[is_positive] <= 0):
        wrong = [names[i] for i in np.flatnonzero(is_positive & (flat <= 0))]
        raise ValueError(f"the guess of {wrong} must be above 0, because they are positive.")
    objective.check_enough(len(flat))
    iterations = 0
    for _ in range(objective.rounds):
        objective = objective.at(unravelled(free, flat))
        flat, found, more, near = _climb(objective, free, flat, is_positive, max_iterations)
        iterations += more
    notes = objective.notes
    if near > 5 * objective.near:
        notes += (
            f"the search ended {near:.2g} standard errors from where slopes say it is best: "
            "with more simulated paths it comes nearer",
        )
    is_of_moments, profile = hasattr(objective, "misfit"), None
    if not is_of_moments:
        _check_varied(names, flat, found, objective)
    inverse = np.linalg.inv(found.information)
    covariance = inverse @ found.spread @ inverse
    count = objective.count
    if count is not None and count < FEW * len(flat):
        # At the best parameters the scores add up to zero: few of them look smaller than they are.
        shrunk = np.maximum(np.diag(inverse) / np.diag(covariance), 1.0) ** 0.5
        covariance = covariance * np.outer(shrunk, shrunk)
        notes += (
            f"{count} transitions are few for {len(flat)} parameters: standard errors are rough, "
            "and intervals too short",
        )
    errors = np.sqrt(np.diag(covariance))
    if is_of_moments:
        profile = objective.profile(free, flat, covariance, is_positive)
        if profile is None:
            notes += ("intervals are normal: paths fail within a few standard errors of the fit",)
    return Fit(
        {name: x[()] for name, x in unravelled(free, flat).items()},
        {name: x[()] for name, x in unravelled(free, errors).items()},
        names,
        covariance,
        float(found.value),
        objective.observations,
        objective.kind,
        iterations,
        objective.misfit(found.value, len(flat)) if is_of_moments else None,
        notes,
        profile,
        tuple(positive),
    )


def _climb(objective: Any, free: Any, flat: Any, is_positive: Any, most: int) -> Any:
    """The best parameters near some, what was found there, the number of steps, and the length that
    the next one would have in standard errors."""
    names = labels(free)

    def scored(flat: np.ndarray) -> Any:
        found = objective.scored(free, flat)
        return type(found)(*(np.asarray(x) for x in found))

    found = scored(flat)
    if not np.isfinite(found.value):
        raise ValueError(
            f"at {_text(names, flat)} the fit is {found.value}: steps cannot be taken, or their "
            "covariance is singular. Begin with other parameters, or take shorter steps."
        )
    for iteration in range(most):
        # In logarithms of what is positive.
        scale = np.where(is_positive, flat, 1.0)
        information, score = found.information * np.outer(scale, scale), found.score * scale
        _check_determined(names, flat, information)
        step = np.linalg.solve(information, score)
        square = score @ step
        if square < objective.near**2:
            return flat, found, iteration, square**0.5
        longest = np.abs(step[is_positive]).max(initial=0.0)
        share = min(1.0, objective.longest / max(longest, 1e-300))
        while share > SHORTEST:
            moved = flat + share * step
            factors = np.exp(np.minimum(share * step, objective.longest))
            moved[is_positive] = (flat * factors)[is_positive]
            tried = scored(moved)
            gain = tried.value - found.value
            if gain >= 1e-4 * share * square - 1e-13 * abs(found.value):
                break
            share /= 2
        else:
            gain, moved, tried = 0.0, flat, found
        if gain < objective.near**2 / 2:
            # Small steps gain little, and larger ones nothing: only a rough function is so.
            if square > 1:
                raise RuntimeError(
                    f"nothing is gained any more at {_text(names, flat)}, although the next step "
                    f"would be {square**0.5:.2g} standard errors. Begin elsewhere, name positive "
                    "parameters in `positive`, or simulate more paths."
                )
            return moved, tried, iteration + 1, square**0.5
        flat, found = moved, tried
    raise RuntimeError(
        f"the search did not end in {most} steps; it is at {_text(names, flat)}. Begin there, or "
        "with max_iterations above."
    )


def _text(names: Sequence[str], flat: np.ndarray) -> str:
    return ", ".join(f"{name} = {x:.4g}" for name, x in zip(names, flat, strict=True))


def _check_varied(names: Sequence[str], flat: np.ndarray, found: Any, objective: Any) -> None:
    """Refuse scores of transitions that are all the same, or are in some direction.

    Where all are equal each is zero at the best parameters, up to what the search leaves of them:
    errors that are taken from how they vary would be zero, too.
    """
    root = np.linalg.cholesky(found.information)
    spread = np.linalg.solve(root, np.linalg.solve(root, found.spread).T)
    if np.linalg.eigvalsh(spread)[0] < objective.near**2:
        raise ValueError(
            f"the scores of {objective.observations} do not vary at {_text(names, flat)}, and "
            "standard errors come from how they do. Are observations constant or repeated? Give "
            "each once; if they are right, the noise of the model is far too large for them."
        )


def _check_determined(names: Sequence[str], flat: np.ndarray, information: np.ndarray) -> None:
    """Refuse parameters that the data say nothing about, by name."""
    scale = np.sqrt(np.diag(information))
    # Without an effect, up to rounding, relative to a parameter of the size of one.
    idle = [n for n, s, x in zip(names, scale, flat, strict=True) if not s * (1 + abs(x)) > 1e-9]
    if idle:
        raise ValueError(
            f"the data say nothing about {', '.join(idle)} at {_text(names, flat)}: leave it out "
            "of the guess, so that it stays as it is in the system."
        )
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    if values[0] < SINGULAR:
        parts = [name for name, x in zip(names, vectors[:, 0], strict=True) if abs(x) > 0.1]
        raise ValueError(
            f"the data determine only a combination of {', '.join(parts)} at {_text(names, flat)}: "
            "leave one of them out of the guess, so that it stays as it is in the system."
        )
