"""Explicit Runge–Kutta methods driven by ΔW and ΔZ, to be compared with: Heun, R2, E1.

The letters are those of `mean_square.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import numpy as np

from dalembert.methods.coefficients import Matrix, Tableau, Vector
from dalembert.methods.conditions import Array, Residuals, conjugacy_residual, residual, row_sums
from dalembert.methods.mean_square import MeanSquareTableau, promises_by_sums
from dalembert.methods.method import Convergence, Promises
from dalembert.methods.stages import (
    DT,
    DW,
    DZ,
    FieldTerm,
    StageSystem,
    along,
    along_noises,
    assemble,
)
from dalembert.spelling import says_its_words

_HALF = Fraction(1, 2)


@says_its_words
@dataclass(frozen=True, eq=False, repr=False)
class ExplicitTableau(Tableau):
    """Explicit Runge–Kutta methods driven by ΔW and ΔZ, stages shared by all noises.

    Stages and update, with ΔZ_r = ∫ (W_r − W_r(t_k)) dt over the step:

        Y_i = y + h Σ_j A_ij v(Y_j) + Σ_r Σ_j (B1_ij ΔW_r + B2_ij ΔZ_r/h) b_r(Y_j)
        y'  = y + h Σ_i α_i v(Y_i)  + Σ_r Σ_i (g1_i ΔW_r + g2_i ΔZ_r/h) b_r(Y_i)

    All matrices are strictly lower triangular; ``alpha`` and ``g1`` sum to one, ``g2`` to zero.
    Explicit methods keep no variational structure: they are here to be compared with.

    Reference: BurrageBurrage1996.
    """

    A: Matrix
    alpha: Vector
    B1: Matrix
    g1: Vector
    B2: Matrix
    g2: Vector
    name: str = "my explicit method"

    family = "explicit mean-square Runge–Kutta"
    shares_stages = True
    convergence: ClassVar[Convergence] = "mean-square"
    _matrices = ("A", "B1", "B2")
    _vectors = ("alpha", "g1", "g2")
    _sums: ClassVar = {"alpha": 1.0, "g1": 1.0, "g2": 0.0}
    _layout = ((("A", "alpha"), ("B1", "g1"), ("B2", "g2")),)
    _explicit = True

    def rows(self, noises: int) -> StageSystem:
        """Stages shared by all noises."""

        def fields(a: Any, b: Any, b_z: Any) -> list[FieldTerm]:
            noise = along_noises(noises, DW, b) + along_noises(noises, DZ, b_z)
            return along(None, DT, a) + noise

        stages = map(fields, self.A, self.B1, self.B2)
        return assemble([*stages, fields(self.alpha, self.g1, self.g2)])

    def promises(self) -> Promises:
        """The conditions of the partitioned class, or those with ΔZ in their place."""
        m = self._embedded()
        structure = m.structure_residuals() if m else self._structure_with_dZ()
        sums = m.convergence_residuals() if m else self._sums_with_dZ()
        return promises_by_sums(structure, sums, NO_EXPLICIT_METHOD)

    def _embedded(self) -> MeanSquareTableau | None:
        """The same method as a partitioned one; None if it reads ΔZ, which that family does not."""
        if "dZ" in self.needs():
            return None
        matrices, weights = [self.A] * 3 + [self.B1] * 3, [self.alpha] * 2 + [self.g1] * 2
        return MeanSquareTableau(*matrices, *weights, name=self.name)

    def _structure_with_dZ(self) -> Residuals:
        """The conditions for a method with three channels: h, ΔW and ΔZ/h."""
        channels = [
            ("α", "A", self.alpha, self.A),
            ("g1", "B1", self.g1, self.B1),
            ("g2", "B2", self.g2, self.B2),
        ]
        pairs = combinations_with_replacement(channels, 2)
        return {
            f"{n}: {w}_i {N}_ij + {v}_j {M}_ji = {w}_i {v}_j": conjugacy_residual(w_, N_, v_, M_)
            for n, ((w, M, w_, M_), (v, N, v_, N_)) in enumerate(pairs, start=1)
        }

    def _sums_with_dZ(self) -> Residuals:
        """Those by which (g1 ΔW + g2 ΔZ/h)ᵀ(B1 ΔW + B2 ΔZ/h)e is ½ ΔW² for every ΔW and ΔZ."""

        def crossed(g1: Array, B2: Array, g2: Array, B1: Array) -> Any:
            return row_sums(g1, B2) + row_sums(g2, B1)

        return {
            "Σ α = 1": residual(np.sum, 1, self.alpha),
            "Σ g1 = 1": residual(np.sum, 1, self.g1),
            "Σ g2 = 0": residual(np.sum, 0, self.g2),
            "g1ᵀ B1 e = 1/2": residual(row_sums, 0.5, self.g1, self.B1),
            "g1ᵀ B2 e + g2ᵀ B1 e = 0": residual(crossed, 0, self.g1, self.B2, self.g2, self.B1),
            "g2ᵀ B2 e = 0": residual(row_sums, 0, self.g2, self.B2),
        }


#: What a certificate notes about explicit methods.
NO_EXPLICIT_METHOD = "no explicit method meets condition 1: 0 = α_i² for every i, but Σ α_i = 1"


@says_its_words
def heun() -> ExplicitTableau:
    """Stochastic Heun method: the explicit trapezoidal rule.

    Equations:

        Y = y + h v(y) + Σ_r ΔW_r b_r(y)
        y' = y + ½h [v(y) + v(Y)] + ½ Σ_r ΔW_r [b_r(y) + b_r(Y)]

    Stages: 2, explicit; A = B1 = [0 0; 1 0].
    Update: α = g1 = (½, ½).

    Keeps: no structure; energy and momentum drift.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1, weak 2 for
    additive noise.
    Cost: two evaluations of the drift and of every noise field a step.

    When to use: as the yardstick for the structured methods; for short runs.

    Reference: BurrageBurrage1996.
    """
    matrix = [[0, 0], [1, 0]]
    weights = [_HALF, _HALF]
    zero = [[0, 0], [0, 0]]
    return ExplicitTableau(
        A=matrix, alpha=weights, B1=matrix, g1=weights, B2=zero, g2=[0, 0], name="heun"
    )


@says_its_words
def r2() -> ExplicitTableau:
    """R2: two-stage explicit method whose second stage lies two thirds into the step.

    Equations:

        Y = y + ⅔ [h v(y) + Σ_r ΔW_r b_r(y)]
        y' = y + h [¼ v(y) + ¾ v(Y)] + Σ_r ΔW_r [¼ b_r(y) + ¾ b_r(Y)]

    Stages: 2, explicit; A = B1 = [0 0; ⅔ 0].
    Update: α = g1 = (¼, ¾).

    Keeps: no structure; energy and momentum drift.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1.
    Cost: two evaluations of the drift and of every noise field a step.

    When to use: as a yardstick, in the place of Heun's method.

    Reference: BurrageBurrage1996.
    """
    matrix = [[0, 0], [Fraction(2, 3), 0]]
    weights = [Fraction(1, 4), Fraction(3, 4)]
    zero = [[0, 0], [0, 0]]
    return ExplicitTableau(
        A=matrix, alpha=weights, B1=matrix, g1=weights, B2=zero, g2=[0, 0], name="r2"
    )


@says_its_words
def e1() -> ExplicitTableau:
    """E1: four-stage explicit method that reads ΔZ = ∫ (W − W(t_k)) dt as well as ΔW.

    Equations:

        Y_i = y + h Σ_j A_ij v(Y_j) + Σ_r Σ_j (B1_ij ΔW_r + B2_ij ΔZ_r/h) b_r(Y_j)
        y'  = y + h Σ_i α_i v(Y_i)  + Σ_r Σ_i (g1_i ΔW_r + g2_i ΔZ_r/h) b_r(Y_i)

    Stages: 4, explicit.
    Update: α = (¼, ¾, −¾, ¾), g1 = (−½, 3/2, −¾, ¾), g2 = (3/2, −3/2, 0, 0).

    Keeps: no structure; energy and momentum drift.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1. It is not of
    mean-square order 1.5: it meets the pathwise conditions for that, not those on the mean. Its
    gain is an error constant two to eight times smaller than Heun's.
    Cost: four evaluations of the drift and of every noise field a step, and a second normal
    variable a noise.

    When to use: as the yardstick of an explicit method that uses more of the path.

    Reference: BurrageBurrage1996.
    """
    return ExplicitTableau(
        A=[
            [0, 0, 0, 0],
            [Fraction(2, 3), 0, 0, 0],
            [Fraction(3, 2), Fraction(-1, 3), 0, 0],
            [Fraction(7, 6), 0, 0, 0],
        ],
        alpha=[Fraction(1, 4), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 4)],
        B1=[
            [0, 0, 0, 0],
            [Fraction(2, 3), 0, 0, 0],
            [Fraction(1, 2), Fraction(1, 6), 0, 0],
            [Fraction(-1, 2), 0, Fraction(1, 2), 0],
        ],
        g1=[Fraction(-1, 2), Fraction(3, 2), Fraction(-3, 4), Fraction(3, 4)],
        B2=[
            [0, 0, 0, 0],
            [0, 0, 0, 0],
            [Fraction(-2, 3), 0, 0, 0],
            [Fraction(1, 6), Fraction(1, 2), 0, 0],
        ],
        g2=[Fraction(3, 2), Fraction(-3, 2), 0, 0],
        name="e1",
    )
