"""Conditions on coefficients: how far sums are from what is asked, next to what is added up.

Products of coefficients of size 10 are of size 100 and more, and so is their rounding: a residual
is taken relative to the terms of its sum, from one to a million. Beyond that rounding may hide what
a condition is about, and counts as a fault.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Residuals = dict[str, float]
"""How far each condition is from being met, by its formula."""

LARGEST_SIZE = 1e6
TOLERANCE = 1e-12
"""Residuals of conditions of convergence up to this are put down to rounding."""


def residual(total: Callable[..., Any], target: float, *arrays: Array) -> float:
    """|total(arrays) − target|, relative to the same sum of absolute values.

    `total` must be made of sums and products alone: that of absolute values is then the size of
    what it adds up.
    """
    size = relevant_size(float(total(*map(np.abs, arrays))))
    return abs(float(total(*arrays)) - target) / size


def relevant_size(size: Any) -> Any:
    """What a difference is divided by, given the size of what is added up."""
    return np.clip(size, 1.0, LARGEST_SIZE)


def conjugacy_residual(w: Array, M: Array, v: Array, N: Array) -> float:
    """max |w_i M_ij + v_j N_ji − w_i v_j|, each relative to the largest of its terms."""
    terms = np.stack([w[:, None] * M, v[None, :] * N.T, -np.outer(w, v)])
    sizes = relevant_size(np.abs(terms).max(axis=0))
    return float((np.abs(terms.sum(axis=0)) / sizes).max())


def one_conjugacy_residual(alpha: Array, a: Array) -> Residuals:
    """The condition that one tableau for all fields has to meet."""
    return {"α_i a_ij + α_j a_ji = α_i α_j": conjugacy_residual(alpha, a, alpha, a)}


def row_sums(weights: Array, matrix: Array) -> Any:
    """wᵀ M e."""
    return weights @ matrix.sum(axis=1)


def failing(residuals: Residuals) -> list[str]:
    """The conditions of convergence that are not met."""
    return [label for label, value in residuals.items() if value > TOLERANCE]


def classical_conditions(alpha: Array, a: Array, order: int) -> Residuals:
    """Residuals of the order conditions of a Runge–Kutta method without noise, up to order four."""
    conditions: dict[str, tuple[int, float, Callable[..., Any]]] = {
        "Σ α = 1": (1, 1, lambda w, a, c: w.sum()),
        "αᵀ a e = 1/2": (2, 1 / 2, lambda w, a, c: w @ c),
        "αᵀ (a e)² = 1/3": (3, 1 / 3, lambda w, a, c: w @ c**2),
        "αᵀ a a e = 1/6": (3, 1 / 6, lambda w, a, c: w @ a @ c),
        "αᵀ (a e)³ = 1/4": (4, 1 / 4, lambda w, a, c: w @ c**3),
        "αᵀ (a e · a a e) = 1/8": (4, 1 / 8, lambda w, a, c: w @ (c * (a @ c))),
        "αᵀ a (a e)² = 1/12": (4, 1 / 12, lambda w, a, c: w @ a @ c**2),
        "αᵀ a a a e = 1/24": (4, 1 / 24, lambda w, a, c: w @ a @ a @ c),
    }

    def found(total: Callable[..., Any], target: float) -> float:
        return residual(lambda w, a: total(w, a, a.sum(axis=1)), target, alpha, a)

    return {
        label: found(total, target)
        for label, (weight, target, total) in conditions.items()
        if weight <= order
    }
