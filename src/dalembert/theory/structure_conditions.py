"""Conditions on coefficients alone: the Lagrange–d'Alembert structure and mean-square convergence.

Every function gives residuals by label, relative as in `residuals.py`; a label spells out its
condition. Explicit methods are
put to the conditions of the family that they belong to.
"""

from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from dalembert.methods.coefficients import Array
from dalembert.methods.tableau import (
    ClassicMethod,
    ExplicitTableau,
    ExplicitWeakTableau,
    MeanSquareTableau,
    WeakTableau,
)
from dalembert.theory.residuals import Residuals, conjugacy_residual, residual

#: The label of the condition that couples different noises.
WEAK_CONDITION_4 = "4: β_i b³_ij + β_j b³_ji = β_i β_j"


def structure_residuals(method: ClassicMethod) -> Residuals:
    """Largest residual of each Lagrange–d'Alembert condition: eight mean-square or four weak."""
    match method:
        case MeanSquareTableau():
            return _mean_square_structure(method)
        case WeakTableau() as m:
            return _weak_structure(m.a0, m.a1, m.b0, m.b1, m.b3, m.alpha, m.beta)
        case ExplicitTableau():
            embedded = _embed(method)
            return _channel_structure(method) if embedded is None else structure_residuals(embedded)
        case ExplicitWeakTableau() as m:
            return _weak_structure(m.A0, m.A1, m.B0, m.B1, m.B3, m.alpha, m.beta1)


def mean_square_residuals(method: MeanSquareTableau | ExplicitTableau) -> Residuals:
    """Residuals of the sums that the mean-square convergence theorem asks for.

    Ten for the partitioned family. With ΔZ, those by which (g1 ΔW + g2 ΔZ/h)ᵀ(B1 ΔW + B2 ΔZ/h)e
    equals ½ ΔW² for every ΔW and ΔZ.
    """
    if isinstance(method, ExplicitTableau):
        embedded = _embed(method)
        if embedded is None:
            return _explicit_sums(method)
        method = embedded
    weights = {"α": method.alpha, "α̂": method.alpha_hat, "β": method.beta, "β̂": method.beta_hat}
    residuals = {f"Σ {name} = 1": residual(np.sum, 1, w) for name, w in weights.items()}
    for name in ("β", "β̂"):
        for symbol, b in {"b": method.b, "b̄": method.b_bar, "b̂": method.b_hat}.items():
            residuals[f"{name}ᵀ {symbol} e = 1/2"] = residual(_row_sums, 0.5, weights[name], b)
    return residuals


def _row_sums(weights: Array, matrix: Array) -> Any:
    """wᵀ M e."""
    return weights @ matrix.sum(axis=1)


def _mean_square_structure(m: MeanSquareTableau) -> Residuals:
    return {
        "1: α_i ā_ij + α_j a_ji = α_i α_j": conjugacy_residual(m.alpha, m.a_bar, m.alpha, m.a),
        "2: β_i b̄_ij + β_j b_ji = β_i β_j": conjugacy_residual(m.beta, m.b_bar, m.beta, m.b),
        "3: β_i ā_ij + α_j b_ji = β_i α_j": conjugacy_residual(m.beta, m.a_bar, m.alpha, m.b),
        "4: α_i b̄_ij + β_j a_ji = α_i β_j": conjugacy_residual(m.alpha, m.b_bar, m.beta, m.a),
        "5: α_i â_ij + α̂_j a_ji = α_i α̂_j": conjugacy_residual(m.alpha, m.a_hat, m.alpha_hat, m.a),
        "6: α_i b̂_ij + β̂_j a_ji = α_i β̂_j": conjugacy_residual(m.alpha, m.b_hat, m.beta_hat, m.a),
        "7: β_i â_ij + α̂_j b_ji = β_i α̂_j": conjugacy_residual(m.beta, m.a_hat, m.alpha_hat, m.b),
        "8: β_i b̂_ij + β̂_j b_ji = β_i β̂_j": conjugacy_residual(m.beta, m.b_hat, m.beta_hat, m.b),
    }


def _weak_structure(
    a0: Array, a1: Array, b0: Array, b1: Array, b3: Array, alpha: Array, beta: Array
) -> Residuals:
    return {
        "1: α_i a⁰_ij + α_j a⁰_ji = α_i α_j": conjugacy_residual(alpha, a0, alpha, a0),
        "2: α_i b⁰_ij + β_j a¹_ji = α_i β_j": conjugacy_residual(alpha, b0, beta, a1),
        "3: β_i b¹_ij + β_j b¹_ji = β_i β_j": conjugacy_residual(beta, b1, beta, b1),
        WEAK_CONDITION_4: conjugacy_residual(beta, b3, beta, b3),
    }


def _embed(m: ExplicitTableau) -> MeanSquareTableau | None:
    """The same method as a partitioned one; None if it reads ΔZ, which that family does not."""
    if "dZ" in m.needs():
        return None
    return MeanSquareTableau(
        m.A, m.A, m.A, m.B1, m.B1, m.B1, m.alpha, m.alpha, m.g1, m.g1, name=m.name
    )


def _channel_structure(m: ExplicitTableau) -> Residuals:
    """The conditions for a method with three channels: h, ΔW and ΔZ/h."""
    channels = [("α", "A", m.alpha, m.A), ("g1", "B1", m.g1, m.B1), ("g2", "B2", m.g2, m.B2)]
    pairs = combinations_with_replacement(channels, 2)
    return {
        f"{n}: {w}_i {N}_ij + {v}_j {M}_ji = {w}_i {v}_j": conjugacy_residual(w_, N_, v_, M_)
        for n, ((w, M, w_, M_), (v, N, v_, N_)) in enumerate(pairs, start=1)
    }


def _explicit_sums(m: ExplicitTableau) -> Residuals:
    def crossed(g1: Array, B2: Array, g2: Array, B1: Array) -> Any:
        return _row_sums(g1, B2) + _row_sums(g2, B1)

    return {
        "Σ α = 1": residual(np.sum, 1, m.alpha),
        "Σ g1 = 1": residual(np.sum, 1, m.g1),
        "Σ g2 = 0": residual(np.sum, 0, m.g2),
        "g1ᵀ B1 e = 1/2": residual(_row_sums, 0.5, m.g1, m.B1),
        "g1ᵀ B2 e + g2ᵀ B1 e = 0": residual(crossed, 0, m.g1, m.B2, m.g2, m.B1),
        "g2ᵀ B2 e = 0": residual(_row_sums, 0, m.g2, m.B2),
    }
