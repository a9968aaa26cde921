"""Partitioned Runge–Kutta methods driven by ΔW: midpoint, Störmer–Verlet, DIRK.

Throughout, with m noises, v = (H_p, −H_q + F) is the drift and b_r = (h_r,p, −h_r,q + f_r) the
field of noise r; y = (q, p); h = Δt.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dalembert.methods.coefficients import Matrix, Number, Tableau, Vector, parameter
from dalembert.methods.conditions import Residuals, conjugacy_residual, failing, residual, row_sums
from dalembert.methods.method import LAGRANGE_DALEMBERT, Convergence, Promises, orders
from dalembert.methods.stages import DT, DW, FieldTerm, StageSystem, along, along_noises, assemble
from dalembert.spelling import says_its_words

_HALF = Fraction(1, 2)


@says_its_words
@dataclass(frozen=True, eq=False, repr=False)
class MeanSquareTableau(Tableau):
    """Partitioned Runge–Kutta methods driven by ΔW, for mean-square convergence.

    Stages, i = 1, …, s:

        Q_i = q + h Σ_j a_ij H_p(Q_j, P_j) + Σ_r ΔW_r Σ_j b_ij h_r,p(Q_j, P_j)
        P_i = p − h Σ_j ā_ij H_q(Q_j, P_j) − Σ_r ΔW_r Σ_j b̄_ij h_r,q(Q_j, P_j)
                + h Σ_j â_ij F(Q_j, P_j)   + Σ_r ΔW_r Σ_j b̂_ij f_r(Q_j, P_j)

    Update: the same sums with the weights α (H), α̂ (F), β (h_r), β̂ (f_r).

    ``alpha``, ``alpha_hat``, ``beta`` and ``beta_hat`` must each sum to one. Whether the method
    keeps the Lagrange–d'Alembert structure and whether it converges is what ``certify`` says.

    Reference: KrausTyranowski2021, mean-square Lagrange–d'Alembert partitioned Runge–Kutta methods.
    """

    a: Matrix
    a_bar: Matrix
    a_hat: Matrix
    b: Matrix
    b_bar: Matrix
    b_hat: Matrix
    alpha: Vector
    alpha_hat: Vector
    beta: Vector
    beta_hat: Vector
    name: str = "my mean-square method"

    family = "mean-square partitioned Runge–Kutta"
    shares_stages = True
    convergence: ClassVar[Convergence] = "mean-square"
    _matrices = ("a", "a_bar", "a_hat", "b", "b_bar", "b_hat")
    _vectors = ("alpha", "alpha_hat", "beta", "beta_hat")
    _sums: ClassVar = {"alpha": 1.0, "alpha_hat": 1.0, "beta": 1.0, "beta_hat": 1.0}
    _layout = (
        (("a", "alpha"), ("a_bar", "alpha"), ("a_hat", "alpha_hat")),
        (("b", "beta"), ("b_bar", "beta"), ("b_hat", "beta_hat")),
    )

    def rows(self, noises: int) -> StageSystem:
        """Stages shared by all noises; H, F, h and f have coefficients of their own."""

        def fields(*weights: Any) -> list[FieldTerm]:
            of_drift, of_noise = (list(zip(*w, strict=True)) for w in (weights[:3], weights[3:]))
            return along(None, DT, of_drift) + along_noises(noises, DW, of_noise)

        matrices = (self.a, self.a_bar, self.a_hat, self.b, self.b_bar, self.b_hat)
        weights = (self.alpha, self.alpha, self.alpha_hat, self.beta, self.beta, self.beta_hat)
        return assemble([*map(fields, *matrices), fields(*weights)])

    def promises(self) -> Promises:
        """The eight conditions of the structure, and the convergence theorem."""
        return promises_by_sums(self.structure_residuals(), self.convergence_residuals())

    def structure_residuals(self) -> Residuals:
        """Largest residual of each Lagrange–d'Alembert condition."""
        alpha, alpha_hat, beta, beta_hat = self.alpha, self.alpha_hat, self.beta, self.beta_hat
        conditions = {
            "1: α_i ā_ij + α_j a_ji = α_i α_j": (alpha, self.a_bar, alpha, self.a),
            "2: β_i b̄_ij + β_j b_ji = β_i β_j": (beta, self.b_bar, beta, self.b),
            "3: β_i ā_ij + α_j b_ji = β_i α_j": (beta, self.a_bar, alpha, self.b),
            "4: α_i b̄_ij + β_j a_ji = α_i β_j": (alpha, self.b_bar, beta, self.a),
            "5: α_i â_ij + α̂_j a_ji = α_i α̂_j": (alpha, self.a_hat, alpha_hat, self.a),
            "6: α_i b̂_ij + β̂_j a_ji = α_i β̂_j": (alpha, self.b_hat, beta_hat, self.a),
            "7: β_i â_ij + α̂_j b_ji = β_i α̂_j": (beta, self.a_hat, alpha_hat, self.b),
            "8: β_i b̂_ij + β̂_j b_ji = β_i β̂_j": (beta, self.b_hat, beta_hat, self.b),
        }
        return {label: conjugacy_residual(*arrays) for label, arrays in conditions.items()}

    def convergence_residuals(self) -> Residuals:
        """Residuals of the ten sums that the mean-square convergence theorem asks for."""
        weights = {"α": self.alpha, "α̂": self.alpha_hat, "β": self.beta, "β̂": self.beta_hat}
        residuals = {f"Σ {name} = 1": residual(np.sum, 1, w) for name, w in weights.items()}
        for name in ("β", "β̂"):
            for symbol, b in {"b": self.b, "b̄": self.b_bar, "b̂": self.b_hat}.items():
                residuals[f"{name}ᵀ {symbol} e = 1/2"] = residual(row_sums, 0.5, weights[name], b)
        return residuals


def promises_by_sums(structure: Residuals, sums: Residuals, *notes: str) -> Promises:
    """The convergence theorem; 1.0 is the most that it promises, also to methods that read ΔZ."""
    found = failing(sums)
    order = orders(additive=1.0) if found else orders(1.0, 1.0, 1.0, 0.5)
    if found:
        note = "does not converge to the Stratonovich solution unless the noise is additive: "
        notes = (*notes, note + "; ".join(found) + (" fails" if len(found) == 1 else " fail"))
    return Promises(LAGRANGE_DALEMBERT, structure, sums=sums, order=order, notes=notes)


@says_its_words
def midpoint() -> MeanSquareTableau:
    """Stochastic midpoint method.

    Equations: one implicit stage, the middle of the step.

        Y = (y + y')/2
        y' = y + h v(Y) + Σ_r ΔW_r b_r(Y)

    Stages: 1, Y = (Q, P); all six matrices are (½).
    Update: all four weights are (1), so y' = 2Y − y.

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish,
    momentum maps, every quadratic invariant, and every Gaussian invariant measure of linear
    systems with additive noise.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1, with h²
    accuracy when the noise vanishes.
    Cost: 2N nonlinear equations a step, N when the Hamiltonians are separable. ΔW may need to be
    truncated, since large increments can leave the equations without a solution.

    When to use: the default for structure-preserving runs.

    Reference: KrausTyranowski2021, stochastic midpoint method; MilsteinRepinTretyakov2002;
    MaDing2015.
    """
    half = [[_HALF]]
    return MeanSquareTableau(
        a=half, a_bar=half, a_hat=half, b=half, b_bar=half, b_hat=half,
        alpha=[1], alpha_hat=[1], beta=[1], beta_hat=[1],
        name="midpoint",
    )  # fmt: skip


@says_its_words
def stormer_verlet() -> MeanSquareTableau:
    """Stochastic Störmer–Verlet method.

    Equations: half a kick, a drift, half a kick, noise treated like the drift.

        P  = p + ½h [−H_q + F](q, P) + ½ Σ_r ΔW_r [−h_r,q + f_r](q, P)
        q' = q + ½h [H_p(q, P) + H_p(q', P)] + ½ Σ_r ΔW_r [h_r,p(q, P) + h_r,p(q', P)]
        p' = P + ½h [−H_q + F](q', P) + ½ Σ_r ΔW_r [−h_r,q + f_r](q', P)

    Stages: 2, Q₁ = q, Q₂ = q', P₁ = P₂ = P; a = b = [0 0; ½ ½], the other matrices [½ 0; ½ 0].
    Update: all four weights are (½, ½).

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish, and
    momentum maps. With separable Hamiltonians and friction linear in p the phase-space volume
    shrinks at a rate that does not depend on the state (quasi-symplectic).
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1, with h²
    accuracy when the noise vanishes.
    Cost: N equations for P, then N for q'; the second are explicit for separable Hamiltonians,
    the first are linear when the forces are linear in p and explicit when they do not depend on
    p.

    When to use: separable Hamiltonians, Langevin dynamics, large systems. Not with large
    multiplicative noise: its second moments blow up at smaller steps than those of the midpoint
    method.

    Reference: KrausTyranowski2021, stochastic Störmer–Verlet method; MaDing2015.
    """
    kick = [[_HALF, 0], [_HALF, 0]]
    drift = [[0, 0], [_HALF, _HALF]]
    weights = [_HALF, _HALF]
    return MeanSquareTableau(
        a=drift, a_bar=kick, a_hat=kick, b=drift, b_bar=kick, b_hat=kick,
        alpha=weights, alpha_hat=weights, beta=weights, beta_hat=weights,
        name="stormer_verlet",
    )  # fmt: skip


@says_its_words
def dirk(lam: Number = 0.5) -> MeanSquareTableau:
    """Two-stage diagonally implicit method: midpoint steps of length λh and (1−λ)h with one ΔW.

    Equations, with ΔW split in the same proportion as h:

        Y₁ = y + ½λ [h v(Y₁) + Σ_r ΔW_r b_r(Y₁)]
        Y₂ = y + λ [h v(Y₁) + Σ_r ΔW_r b_r(Y₁)] + ½(1−λ) [h v(Y₂) + Σ_r ΔW_r b_r(Y₂)]

    Stages: 2, one after the other; all six matrices are [λ/2 0; λ (1−λ)/2].
    Update: y' = y + λ [h v(Y₁) + …] + (1−λ) [h v(Y₂) + …].

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish,
    momentum maps and every quadratic invariant. λ = 0 and λ = 1 are the midpoint method.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1, with h²
    accuracy when the noise vanishes.
    Cost: two systems of 2N nonlinear equations a step, N each when the Hamiltonians are
    separable. ΔW may need to be truncated, as for the midpoint method.

    When to use: as the midpoint method where its error constant is too large; without noise λ = ½
    has the smallest, a quarter of the midpoint's.

    Reference: KrausTyranowski2021, 2-stage stochastic DIRK method. (The family is not the most
    general one with these properties: the weights of H, F, h and f may differ.)
    """
    lam = parameter("lam", lam)
    matrix = [[lam / 2, 0.0], [lam, (1 - lam) / 2]]
    weights = [lam, 1 - lam]
    return MeanSquareTableau(
        a=matrix, a_bar=matrix, a_hat=matrix, b=matrix, b_bar=matrix, b_hat=matrix,
        alpha=weights, alpha_hat=weights, beta=weights, beta_hat=weights,
        name=f"dirk({lam!r})",
    )  # fmt: skip
