"""Methods for additive noise that read ΔZ in their stages."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from dalembert.methods.coefficients import Matrix, Number, Tableau, Vector, gauss_coefficients
from dalembert.methods.conditions import (
    Array,
    Residuals,
    classical_conditions,
    failing,
    one_conjugacy_residual,
    residual,
)
from dalembert.methods.method import LAGRANGE_DALEMBERT, Convergence, Offer, Promises, orders
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
class AdditiveTableau(Tableau):
    """Runge–Kutta methods for additive noise, with any noise in the stages.

    Stages and update, for noise fields g_r that are constant:

        Y_i = y + h Σ_j a_ij v(Y_j) + Σ_r g_r (ω_i ΔW_r + ζ_i ΔZ_r/h)
        y'  = y + h Σ_i α_i v(Y_i)  + Σ_r g_r ΔW_r

    What stands in the stages beside y is constant under d, so the conditions 1 and 5 of the
    Lagrange–d'Alembert class are enough for every choice of ω and ζ. ``alpha`` must sum to one.
    """

    a: Matrix
    alpha: Vector
    omega: Vector
    zeta: Vector
    name: str = "my method for additive noise"

    family = "Runge–Kutta for additive noise"
    shares_stages = True
    convergence: ClassVar[Convergence] = "mean-square"
    requires: ClassVar[frozenset[str]] = frozenset({"additive noise"})
    _vectors = ("alpha", "omega", "zeta")
    _layout = ((("a", "alpha"),), ((None, "omega"), (None, "zeta")))

    def rows(self, noises: int) -> StageSystem:
        """Stages shared by all noises, whose constant fields are taken at any one of them."""

        def fields(a: Any, stage: int, omega: float, zeta: float) -> list[FieldTerm]:
            noise = along_noises(noises, DW, [omega], stage) + along_noises(
                noises, DZ, [zeta], stage
            )
            return along(None, DT, a) + noise

        stages = map(fields, self.a, range(self.stages), self.omega, self.zeta)
        return assemble([*stages, fields(self.alpha, 0, 1.0, 0.0)])

    def offers(self, found: Any) -> Offer | None:
        best = "additive_midpoint" if found.straight_together else "additive_dirk"
        if found.noise_kind != "additive" or self.name != best:
            return None
        straight = ": the drift is affine along the additive noise"
        why = straight if found.straight_together else ", {kept}"
        return Offer("accurate paths", ("mean-square order {strong}" + why, "{solves}"))

    def promises(self) -> Promises:
        """Conditions 1 and 5 of the structure, and those of order 3/2."""
        sums = self._sums_of_order()
        found = failing(sums)
        notes = ["its noise must be additive: the fields of the noises must not depend on (q, p)"]
        if found:
            notes.append(f"mean-square order 3/2 is stopped by {'; '.join(found)}")
        # Mixed second derivatives are of mean zero: they cost half an order, curvature a whole one.
        straight = None if set(found) - {SPREAD} else (1.5, 2.0)
        if straight:
            where = "the drift is linear along all sums of the noises"
            notes.append(f"mean-square order 2 where {where}")
        structure = one_conjugacy_residual(self.alpha, self.a)
        return Promises(
            LAGRANGE_DALEMBERT,
            {f"1 and 5: {label}": value for label, value in structure.items()},
            sums=sums,
            order=orders(additive=1.0 if found else 1.5),
            straight=straight,
            notes=tuple(notes),
        )

    def _sums_of_order(self) -> Residuals:
        def spread(alpha: Array, omega: Array, zeta: Array) -> Any:
            # E[ΔW²] = h, E[ΔW ΔZ/h] = h/2 and E[(ΔZ/h)²] = h/3.
            return alpha @ (omega**2 + omega * zeta + zeta**2 / 3)

        alpha, omega, zeta = self.alpha, self.omega, self.zeta
        means = (residual(np.dot, 0, alpha, omega), residual(np.dot, 1, alpha, zeta))
        return classical_conditions(alpha, self.a, 2) | {
            "Σ α_i η_i = ΔZ/h": max(means),
            SPREAD: residual(spread, 0.5, alpha, omega, zeta),
        }


SPREAD = "E Σ α_i η_i² = h/2"
"""The condition of order 3/2 that is not needed where the drift is linear along the noises."""


@says_its_words
def additive_midpoint() -> AdditiveTableau:
    """Midpoint method for additive noise, with the mean of the noise over the step in its stage.

    Equations:

        Y = y + h/2 v(Y) + Σ_r g_r ΔZ_r/h,   y' = y + h v(Y) + Σ_r g_r ΔW_r

    Stages: 1, implicit.
    Update: α = (1).

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish.
    Order: mean-square 2 where the drift is linear along all sums of the noises, as for Langevin
    equations, van der Pol's oscillator and Lenard–Bernstein, 1 otherwise; weak 1, and 2 where the
    drift is linear along each noise.
    Cost: that of midpoint, and a second normal variable a noise.

    When to use: for single paths, or few, of Langevin equations: with strong noise its
    errors are tens to hundreds of times smaller than those of midpoint, more for smaller steps.

    Reference: KrausTyranowski2021, the conditions; the choice of the stage noise is our own.
    """
    return AdditiveTableau([[_HALF]], [1], [0], [1], name="additive_midpoint")


def _two_stages(a: list[list[Number]], name: str) -> AdditiveTableau:
    """η = ΔZ/h ∓ ΔW/√6: the mean is ΔZ/h and the mean square is h/2."""
    shift = 1 / sqrt(6)
    return AdditiveTableau(a, [_HALF, _HALF], [-shift, shift], [1, 1], name=name)


@says_its_words
def additive_dirk() -> AdditiveTableau:
    """Diagonally implicit method of two stages for additive noise.

    Equations: those of ``AdditiveTableau`` with the coefficients of ``dirk(1/2)``.

    Stages: 2, one after the other; their noise is ΔZ/h ∓ ΔW/√6.
    Update: α = (½, ½).

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish.
    Order: mean-square 3/2 for additive noise, 2 where the drift is linear along all sums of the
    noises; weak 2.
    Cost: twice that of midpoint, and a second normal variable a noise.

    When to use: pathwise accuracy with additive noise and any drift.

    Reference: KrausTyranowski2021, the conditions; the choice of the stage noise is our own.
    """
    quarter = Fraction(1, 4)
    return _two_stages([[quarter, 0], [_HALF, quarter]], "additive_dirk")


@says_its_words
def additive_gauss() -> AdditiveTableau:
    """Gauss' method of two stages for additive noise.

    Equations: those of ``AdditiveTableau`` with the coefficients of Gauss' method of order four.

    Stages: 2, solved together; their noise is ΔZ/h ∓ ΔW/√6.
    Update: α = (½, ½).

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish.
    Order: mean-square 3/2 for additive noise, 2 where the drift is linear along all sums of the
    noises; weak 2; 4 without noise.
    Cost: 4N equations a step, 2N when the Hamiltonian is separable.

    When to use: weak noise, where the error of the drift is what counts.

    Reference: KrausTyranowski2021, the conditions; the choice of the stage noise is our own.
    """
    return _two_stages(gauss_coefficients(), "additive_gauss")
