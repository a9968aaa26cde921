"""Runge–Kutta methods driven by three-point variables: SRKw1 and SRKw2.

The letters are those of `mean_square.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from dalembert.methods.coefficients import Matrix, Number, Tableau, Vector, parameter
from dalembert.methods.conditions import Array, Residuals, conjugacy_residual
from dalembert.methods.method import LAGRANGE_DALEMBERT, Convergence, Promises
from dalembert.methods.stages import DT, DW, FieldTerm, StageSystem, along, assemble
from dalembert.spelling import says_its_words

_HALF, _QUARTER, _EIGHTH = Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)
_THIRD, _SIXTH = Fraction(1, 3), Fraction(1, 6)
_ROOT_3 = sqrt(3)


@says_its_words
@dataclass(frozen=True, eq=False, repr=False)
class WeakTableau(Tableau):
    """Runge–Kutta methods driven by three-point variables Î, for weak convergence.

    Stages, i = 1, …, s and r = 1, …, m:

        Y⁰_i = y + h Σ_j a⁰_ij v(Y⁰_j) + Σ_l Î_l Σ_j b⁰_ij b_l(Yˡ_j)
        Yʳ_i = y + h Σ_j a¹_ij v(Y⁰_j) + Î_r Σ_j b¹_ij b_r(Yʳ_j) + Σ_{l≠r} Î_l Σ_j b³_ij b_l(Yˡ_j)

    Update:

        y' = y + h Σ_i α_i v(Y⁰_i) + Σ_r Î_r Σ_i β_i b_r(Yʳ_i)

    ``alpha`` and ``beta`` must each sum to one. ``max_noises`` is the largest number of noises
    that the coefficients are meant for; ``None`` means any.

    Reference: KrausTyranowski2021, weak Lagrange–d'Alembert Runge–Kutta methods; Roessler2007.
    """

    a0: Matrix
    a1: Matrix
    b0: Matrix
    b1: Matrix
    b3: Matrix
    alpha: Vector
    beta: Vector
    name: str = "my weak method"
    max_noises: int | None = None

    family = "weak Runge–Kutta"
    convergence: ClassVar[Convergence] = "weak"
    _matrices = ("a0", "a1", "b0", "b1", "b3")
    _vectors = ("alpha", "beta")
    _sums: ClassVar = {"alpha": 1.0, "beta": 1.0}
    _layout = (
        (("a0", None), ("b0", None)),
        (("a1", None), ("b1", None), ("b3", None)),
        ((None, "alpha"), (None, "beta")),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = self.max_noises
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise ValueError(
                f"{self._who()}: max_noises must be None or a positive int, got {limit!r}"
            )

    def check_noises(self, noises: int) -> None:
        """Raise ``ValueError`` if the method cannot take this number of noises."""
        super().check_noises(noises)
        if self.max_noises is None or noises <= self.max_noises:
            return
        given = f"{self.name} takes at most {self.max_noises} noise(s), the system has {noises}"
        if self.b3.any():
            raise ValueError(f"{given}: the tableau was declared with max_noises={self.max_noises}")
        raise ValueError(
            f"{given}: its b3 = 0 violates condition 4 of the weak class, "
            "β_i b³_ij + β_j b³_ji = β_i β_j, which couples different noises. "
            "Use srkw1() or one of the mean-square methods instead"
        )

    def __str__(self) -> str:
        limit = "" if self.max_noises is None else f"\n\n  noises: at most {self.max_noises}"
        return super().__str__() + limit

    @property
    def stages_in_words(self) -> str:
        """Stages of the drift + stages of each noise that enter the step, as in "2 + 3"."""
        of_noise = np.any([self.beta, *self.b0, *self.b1, *self.b3], axis=0)
        return f"{self.stages} + {np.count_nonzero(of_noise)}"

    def rows(self, noises: int) -> StageSystem:
        """Stages of the drift, then those of every noise."""
        s = self.stages

        def fields(a: Any, own: int | None, b: Any, b_other: Any) -> list[FieldTerm]:
            noise = (
                along(r, DW(r), b if r == own else b_other, first=s * (1 + r))
                for r in range(noises)
            )
            return sum(noise, along(None, DT, a))

        stages = [fields(self.a0[i], None, self.b0[i], self.b0[i]) for i in range(s)]
        for r in range(noises):
            stages += [fields(self.a1[i], r, self.b1[i], self.b3[i]) for i in range(s)]
        return assemble([*stages, fields(self.alpha, None, self.beta, self.beta)])

    def promises(self) -> Promises:
        """The four conditions of the structure; the orders follow from the series."""
        arrays = (self.a0, self.a1, self.b0, self.b1, self.b3, self.alpha, self.beta)
        residuals = weak_structure(*arrays)
        if self.takes(2):
            return Promises(LAGRANGE_DALEMBERT, residuals)
        note = f"condition 4 couples different noises; {self.name} takes one noise only"
        return Promises(LAGRANGE_DALEMBERT, residuals, frozenset({CONDITION_4}), notes=(note,))


#: The label of the condition that couples different noises.
CONDITION_4 = "4: β_i b³_ij + β_j b³_ji = β_i β_j"


def weak_structure(
    a0: Array, a1: Array, b0: Array, b1: Array, b3: Array, alpha: Array, beta: Array
) -> Residuals:
    """Largest residual of each of the four conditions of the weak class."""
    return {
        "1: α_i a⁰_ij + α_j a⁰_ji = α_i α_j": conjugacy_residual(alpha, a0, alpha, a0),
        "2: α_i b⁰_ij + β_j a¹_ji = α_i β_j": conjugacy_residual(alpha, b0, beta, a1),
        "3: β_i b¹_ij + β_j b¹_ji = β_i β_j": conjugacy_residual(beta, b1, beta, b1),
        CONDITION_4: conjugacy_residual(beta, b3, beta, b3),
    }


@says_its_words
def srkw1(lam: Number = 0.5) -> WeakTableau:
    """SRKw1: one-stage weak method with a free parameter λ.

    Equations, with three-point Î_r:

        Y⁰ = y + ½h v(Y⁰) + λ Σ_r Î_r b_r(Y¹)
        Y¹ = y + (1−λ) h v(Y⁰) + ½ Σ_r Î_r b_r(Y¹)
        y' = y + h v(Y⁰) + Σ_r Î_r b_r(Y¹)

    Stages: 1 for the drift, 1 for all noises together, because b¹ = b³ = ½.
    Update: the weights are α = β = (1).

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish, and
    momentum maps, for any number of noises. λ = ½ is the midpoint method with Î in the place of
    ΔW.
    Order: weak 1 for every kind of noise. On Langevin dynamics λ = ½ has no bias of the kinetic
    temperature, λ = 0 has one of size O(h).
    Cost: 4N nonlinear equations a step; two systems of 2N for λ = 0 or 1; 2N for λ = ½. The
    increments are bounded, so the equations have a solution for every small enough h.

    When to use: expectations and long-time statistics with several noises; λ = ½ unless the
    decoupled equations of λ = 0 or 1 matter.

    Reference: KrausTyranowski2021, SRKw1; WangHongXu2017.
    """
    lam = parameter("lam", lam)
    return WeakTableau(
        a0=[[_HALF]], b0=[[lam]],
        a1=[[1 - lam]], b1=[[_HALF]], b3=[[_HALF]],
        alpha=[1], beta=[1],
        name=f"srkw1({lam!r})",
    )  # fmt: skip


@says_its_words
def srkw2() -> WeakTableau:
    """SRKw2: four-stage weak method of order two for one noise.

    Equations, with one three-point Î:

        Y⁰_i = y + h Σ_j a⁰_ij v(Y⁰_j) + Î Σ_j b⁰_ij b₁(Y¹_j)
        Y¹_i = y + h Σ_j a¹_ij v(Y⁰_j) + Î Σ_j b¹_ij b₁(Y¹_j)
        y'   = y + ¼h Σ_i v(Y⁰_i) + ½ Î [b₁(Y¹₁) + b₁(Y¹₂)]

    Stages: 4 for the drift, 2 for the noise. The stages Y¹₃ and Y¹₄ enter nowhere; their free
    coefficients λ₁, λ₂, λ₃ are set to zero.
    Update: α = (¼, ¼, ¼, ¼), β = (½, ½, 0, 0).

    Keeps: the Lagrange–d'Alembert structure for one noise, hence a symplectic map when the forces
    vanish, and momentum maps. b³ = 0 breaks condition 4 of the class, so more than one noise is
    refused.
    Order: weak 2 for one noise.
    Cost: 12N nonlinear equations a step, 6N when the Hamiltonians are separable. The increments are
    bounded, so the equations have a solution for every small enough h.

    When to use: accurate expectations of systems driven by one noise, with large steps.

    Reference: KrausTyranowski2021, SRKw2; WangHongXu2017.
    """
    return WeakTableau(
        a0=[
            [_EIGHTH, 0, 0, 0],
            [_QUARTER, _EIGHTH, 0, 0],
            [_QUARTER, _QUARTER, _EIGHTH, 0],
            [_QUARTER, _QUARTER, _QUARTER, _EIGHTH],
        ],
        b0=[
            [Fraction(5, 6) - _ROOT_3 / 3, -_HALF, 0, 0],
            [-_SIXTH + _ROOT_3 / 3, _HALF, 0, 0],
            [_HALF, _HALF, 0, 0],
            [-_SIXTH, _HALF, 0, 0],
        ],
        a1=[
            [-_SIXTH + _ROOT_3 / 6, _THIRD - _ROOT_3 / 6, 0, _THIRD],
            [_HALF, 0, 0, 0],
            [0, 0, 0, 0],
            [0, 0, 0, 0],
        ],
        b1=[
            [_QUARTER, _QUARTER - _ROOT_3 / 6, 0, 0],
            [_QUARTER + _ROOT_3 / 6, _QUARTER, 0, 0],
            [0, 0, 0, 0],
            [0, -_HALF, 0, 0],
        ],
        b3=[[0] * 4] * 4,
        alpha=[_QUARTER] * 4,
        beta=[_HALF, _HALF, 0, 0],
        name="srkw2",
        max_noises=1,
    )
