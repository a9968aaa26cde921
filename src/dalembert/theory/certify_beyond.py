"""What methods beyond the paper's families keep, and how fast they converge."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dalembert.methods import (
    AdditiveTableau,
    BracketTableau,
    LangevinSplitting,
    NinomiyaVictoirTableau,
)
from dalembert.methods.coefficients import Array
from dalembert.theory.order_conditions import TOLERANCE, weak_order
from dalembert.theory.residuals import Residuals, conjugacy_residual, residual

BeyondMethod = AdditiveTableau | BracketTableau | NinomiyaVictoirTableau | LangevinSplitting
Orders = dict[str, float | None]

LAGRANGE_DALEMBERT = "Lagrange–d'Alembert structure"
SYMPLECTIC = "symplectic map when the forces vanish"
CONFORMAL = "symplectic map but for the friction, which contracts volumes at its exact rate"


class Findings(NamedTuple):
    """What a certificate says: see `Certificate`."""

    structure: str
    residuals: Residuals
    sums: Residuals
    order: Orders
    weak_order: Orders
    notes: tuple[str, ...]


def findings(method: BeyondMethod) -> Findings:
    """Decide what a method keeps and its orders of convergence."""
    match method:
        case AdditiveTableau():
            return _additive(method)
        case BracketTableau():
            return _bracket(method)
        case NinomiyaVictoirTableau():
            return _ninomiya_victoir(method)
        case LangevinSplitting():
            return _langevin(method)


def _orders(
    one: float | None = None,
    additive: float | None = None,
    commuting: float | None = None,
    general: float | None = None,
) -> Orders:
    return {"one": one, "additive": additive, "commuting": commuting, "general": general}


def _fails(residuals: Residuals) -> list[str]:
    return [label for label, value in residuals.items() if value > TOLERANCE]


SPREAD = "E Σ α_i η_i² = h/2"
"""The condition of order 3/2 that a drift makes superfluous which is linear along the noises."""


def _additive_sums(m: AdditiveTableau) -> Residuals:
    def spread(alpha: Array, omega: Array, zeta: Array) -> Any:
        # E[ΔW²] = h, E[ΔW ΔZ/h] = h/2 and E[(ΔZ/h)²] = h/3.
        return alpha @ (omega**2 + omega * zeta + zeta**2 / 3)

    means = (residual(np.dot, 0, m.alpha, m.omega), residual(np.dot, 1, m.alpha, m.zeta))
    return _classical_conditions(m.alpha, m.a, 2) | {
        "Σ α_i η_i = ΔZ/h": max(means),
        SPREAD: residual(spread, 0.5, m.alpha, m.omega, m.zeta),
    }


def is_of_order_two_on_straight_drift(m: AdditiveTableau) -> bool:
    """Whether its mean-square order is 2 where the drift is linear along all noises together."""
    return not set(_fails(_additive_sums(m))) - {SPREAD}


def _additive(m: AdditiveTableau) -> Findings:
    sums = _additive_sums(m)
    failing = _fails(sums)
    notes = ["its noise must be additive: the fields of the noises must not depend on (q, p)"]
    if failing:
        notes.append(f"mean-square order 3/2 is stopped by {'; '.join(failing)}")
    if is_of_order_two_on_straight_drift(m):
        notes.append("mean-square order 2 where the drift is linear along all sums of the noises")
    strong = 1.0 if failing else 1.5
    weak = float(weak_order(m, "additive").order) or None
    residuals = {f"1 and 5: {label}": value for label, value in _conjugate(m).items()}
    return Findings(
        LAGRANGE_DALEMBERT,
        residuals,
        sums,
        _orders(additive=strong),
        _orders(additive=weak),
        tuple(notes),
    )


def _bracket(m: BracketTableau) -> Findings:
    along_drift = m.brackets == "drift"
    classical = _classical_order(m)
    is_complete = along_drift and classical == 4
    strong = None if classical < 2 else 1.5 if is_complete else 1.0
    weak = 2.0 if is_complete else strong
    notes = ["brackets of Hamiltonian fields are Hamiltonian, those of forces are not forces"]
    if along_drift:
        notes.append("takes one noise; mean-square order 3/2 asks for classical order 4, 1 for 2")
    if is_complete:
        # Its field is the logarithm of the flow with the term of weight 2, [V₁, [V₁, V₀]], replaced
        # by its mean; what is missing has weight 5/2, and is odd in the noise like all of it.
        notes.append("weak order 2: what its field leaves out has the mean zero up to h³")
    else:
        notes.append("weak orders: at least, because expectations converge as fast as paths do")
    return Findings(
        SYMPLECTIC,
        _conjugate(m),
        _classical_conditions(m.alpha, m.a, 4 if along_drift else 2),
        dict.fromkeys(_orders(), strong),
        dict.fromkeys(_orders(), weak),
        tuple(notes),
    )


def _conjugate(m: AdditiveTableau | BracketTableau | NinomiyaVictoirTableau) -> Residuals:
    """The condition that one tableau for all fields has to meet."""
    label = "α_i a_ij + α_j a_ji = α_i α_j"
    return {label: conjugacy_residual(m.alpha, m.a, m.alpha, m.a)}


def _classical_order(m: BracketTableau) -> int:
    """Of the tableau as a Runge–Kutta method, up to four."""
    conditions = (_classical_conditions(m.alpha, m.a, order) for order in (1, 2, 3, 4))
    return sum(not _fails(residuals) for residuals in conditions)


def order_without_noise(method: BracketTableau | LangevinSplitting) -> float:
    """The order of what a method becomes without noise."""
    if isinstance(method, BracketTableau):
        return float(_classical_order(method))
    return 2.0 if method.is_symmetric else 1.0


def _classical_conditions(alpha: Array, a: Array, order: int) -> Residuals:
    """Those of a Runge–Kutta method up to an order of four."""
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


def _ninomiya_victoir(m: NinomiyaVictoirTableau) -> Findings:
    found = {kind: weak_order(m, kind) for kind in ("one", "additive", "general")}
    orders = {kind: float(result.order) or None for kind, result in found.items()}
    orders["commuting"] = orders["general"]
    notes = ("each flow is a Lagrange–d'Alembert step for its own part of the equations",)
    return Findings(SYMPLECTIC, _conjugate(m), {}, _orders(**orders), _orders(**orders), notes)


def _langevin(m: LangevinSplitting) -> Findings:
    weak = order_without_noise(m)
    strong = 1.0 if m.convergence == "mean-square" else weak
    notes = [
        "takes Langevin equations: H = T(p) + U(q), F = −γ p, and noise that is constant",
        "its flows are exact, so that nothing but their order decides what it keeps",
    ]
    if weak == 2:
        notes.append("weak order 2, because the word reads the same in both directions")
    return Findings(
        CONFORMAL,
        {},
        {},
        _orders(additive=strong),
        _orders(additive=weak),
        tuple(notes),
    )
