"""What comes of a question: value, errors, levels, exponents, cost."""

from dataclasses import dataclass
from html import escape
from math import prod
from typing import Any

import numpy as np

from dalembert.answers.orders import Exponents
from dalembert.answers.sampling import Level
from dalembert.answers.search import Estimate

__all__ = ["Expectation", "ToleranceError"]


@dataclass(frozen=True, eq=False, repr=False)
class Expectation:
    """An expectation with its errors; `print` it to read, `plot` it to see its levels.

    Value, errors and exponents are numbers, arrays if the observable is one, or dictionaries of
    these by name if several observables were asked for.

    Attributes:
        title: what was asked, in words.
        shapes: the observables and their shapes; None in place of the name if there is but one.
        found: value, standard error and bias, all numbers in a row.
        exponents: measured α and β, likewise.
        tolerance: what was asked for, an absolute error or a share of the value.
        relative: whether it is a share.
        confidence: with which probability the interval is to hold the expectation.
        quantile: standard errors that it stands for.
        is_met: whether the error is within the tolerance.
        levels: the samples that count, from coarse to fine, with `dt`, `paths`, `mean`, `variance`,
            `stderr` and `steps`.
        expected_alpha: the exponent to expect of means of level differences, the weak order of the
            method on this system; None where it is not known.
        expected_beta: that of variances for smooth observables, twice the mean-square order.
        steps: path-steps that were taken, also to find out which levels pay.
        seconds: how long the runs took.
        plain_steps: path-steps of plain Monte Carlo at the finest step, with the same errors.
        estimator: "multilevel", "plain" or "richardson".
        notes: what to know about the numbers.
    """

    title: str
    shapes: tuple[tuple[str | None, tuple[int, ...]], ...]
    found: Estimate
    exponents: Exponents
    tolerance: float
    relative: bool
    confidence: float
    quantile: float
    is_met: bool
    levels: tuple[Level, ...]
    expected_alpha: float | None
    expected_beta: float | None
    steps: int
    seconds: float
    plain_steps: float
    estimator: str
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> Any:
        """The estimate of E[φ]."""
        return self._shaped(self.found.value)

    @property
    def stderr(self) -> Any:
        """Its standard error."""
        return self._shaped(self.found.stderr)

    @property
    def bias(self) -> Any:
        """How far the step size may have moved it, as far as the levels tell."""
        return self._shaped(self.found.bias)

    @property
    def error(self) -> Any:
        """Half the width of the interval: the quantile times the standard error, plus the bias."""
        return self._shaped(self.errors)

    @property
    def errors(self) -> np.ndarray:
        """The same, all numbers in a row."""
        return self.quantile * self.found.stderr + self.found.bias

    @property
    def interval(self) -> Any:
        """Low and high ends, between which the expectation lies with the confidence asked for."""
        value, error = self.found.value, self.errors
        return self._shaped(value - error), self._shaped(value + error)

    @property
    def alpha(self) -> Any:
        """Measured exponent of the means of level differences; NaN where it cannot be told."""
        return self._shaped(self.exponents.alpha)

    @property
    def beta(self) -> Any:
        """Measured exponent of the variances of level differences."""
        return self._shaped(self.exponents.beta)

    @property
    def gain(self) -> float:
        """How many times more steps plain Monte Carlo takes."""
        return self.plain_steps / self.steps

    @property
    def labels(self) -> list[str]:
        """A name for every number in a row."""
        return [
            f"{name or 'φ'}{list(place) if place else ''}"
            for name, shape in self.shapes
            for place in np.ndindex(shape)
        ]

    def _shaped(self, row: np.ndarray) -> Any:
        """A row of all numbers as the user asked for them."""
        parts = np.split(row, np.cumsum([prod(shape) for _, shape in self.shapes])[:-1])
        found = {
            name: part.reshape(shape) if shape else float(part[0])
            for (name, shape), part in zip(self.shapes, parts, strict=True)
        }
        return found.get(None, found)

    def plot(self, ax: Any = None) -> Any:
        """Draw levels against the step size; returns the axes (extra `plot`)."""
        from dalembert.answers.page import plot_answer

        return plot_answer(self, ax)

    def __repr__(self) -> str:
        from dalembert.answers.page import answer_page

        return "\n".join(answer_page(self))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


class ToleranceError(ValueError):
    """A tolerance could not be met: the message says why.

    Attributes:
        result: the `Expectation` so far, or None if there is none.
    """

    def __init__(self, message: str, result: Expectation | None = None) -> None:
        super().__init__(message)
        self.result = result
