"""Rößler's explicit methods for weak convergence, to be compared with: RS1 and RS2.

The letters are those of `mean_square.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import jax.numpy as jnp

from dalembert.methods.coefficients import Matrix, Number, Tableau, Vector
from dalembert.methods.explicit import NO_EXPLICIT_METHOD
from dalembert.methods.method import LAGRANGE_DALEMBERT, Convergence, Promises
from dalembert.methods.stages import DT, DW, FieldTerm, Increment, StageSystem, along, assemble
from dalembert.methods.weak import weak_structure
from dalembert.noise import Increments
from dalembert.spelling import says_its_words


@dataclass(frozen=True)
class RootOfTimeStep(Increment):
    """√Δt."""

    name = "sqrt_dt"

    def value(self, dt: Any, noise: Increments) -> Any:
        return jnp.sqrt(dt)


ROOT_DT = RootOfTimeStep()


@dataclass(frozen=True)
class Mixed(Increment):
    """I_kl/√Δt."""

    k: int
    l: int
    name = "mixed"
    reads = frozenset({"mixed"})

    def value(self, dt: Any, noise: Increments) -> Any:
        assert noise.mixed is not None, "the method has asked for it"
        return noise.mixed[self.k, self.l] / jnp.sqrt(dt)


@says_its_words
@dataclass(frozen=True, eq=False, repr=False)
class ExplicitWeakTableau(Tableau):
    """Rößler's explicit Runge–Kutta methods for weak convergence with several noises.

    Stages, i = 1, …, s and k = 1, …, m:

        H⁰_i = y + h Σ_j A0_ij v(H⁰_j) + Σ_l I_l Σ_j B0_ij b_l(Hˡ_j)
        Hᵏ_i = y + h Σ_j A1_ij v(H⁰_j) + I_k Σ_j B1_ij b_k(Hᵏ_j) + Σ_{l≠k} I_l Σ_j B3_ij b_l(Hˡ_j)
        Ĥᵏ_i = y + h Σ_j A2_ij v(H⁰_j) + Σ_{l≠k} Σ_j B2_ij b_l(Hˡ_j) I_kl/√h

    Update:

        y' = y + h Σ_i α_i v(H⁰_i) + Σ_k I_k Σ_i β1_i b_k(Hᵏ_i) + √h Σ_k Σ_i β2_i b_k(Ĥᵏ_i)

    with three-point I_k, two-point Ĩ_k = ±√h and the mixed variables I_kl = I_k Ĩ_l for l < k,
    −I_l Ĩ_k for l > k. All matrices are strictly lower triangular; ``alpha`` and ``beta1`` sum to
    one, ``beta2`` to zero.

    Reference: Roessler2007.
    """

    A0: Matrix
    A1: Matrix
    A2: Matrix
    B0: Matrix
    B1: Matrix
    B2: Matrix
    B3: Matrix
    alpha: Vector
    beta1: Vector
    beta2: Vector
    name: str = "my explicit weak method"

    family = "explicit weak Runge–Kutta (Rößler)"
    convergence: ClassVar[Convergence] = "weak"
    _matrices = ("A0", "A1", "A2", "B0", "B1", "B2", "B3")
    _vectors = ("alpha", "beta1", "beta2")
    _sums: ClassVar = {"alpha": 1.0, "beta1": 1.0, "beta2": 0.0}
    _layout = (
        (("A0", None), ("B0", None)),
        (("A1", None), ("B1", None), ("B3", None)),
        (("A2", None), ("B2", None)),
        ((None, "alpha"), (None, "beta1"), (None, "beta2")),
    )
    _explicit = True

    def rows(self, noises: int) -> StageSystem:
        """The stages H⁰ of the drift, then Hᵏ of every noise, then Ĥᵏ of every noise."""
        s, every = self.stages, range(noises)
        # The stages Ĥ enter by β2 alone.
        uses_mixed = self.beta2.any()

        def fields(a: Any, weights_of: Callable[[int], Any]) -> list[FieldTerm]:
            noise = (along(r, DW(r), weights_of(r), s * (1 + r)) for r in every)
            return sum(noise, along(None, DT, a))

        def mixed(k: int, b: Any) -> list[FieldTerm]:
            others = [r for r in every if r != k] if uses_mixed else []
            return [field for r in others for field in along(r, Mixed(k, r), b, s * (1 + r))]

        stages = [fields(self.A0[i], lambda _, i=i: self.B0[i]) for i in range(s)]
        for k in every:
            stages += [
                fields(self.A1[i], lambda r, i=i, k=k: self.B1[i] if r == k else self.B3[i])
                for i in range(s)
            ]
        for k in every:
            stages += [along(None, DT, self.A2[i]) + mixed(k, self.B2[i]) for i in range(s)]
        update = fields(self.alpha, lambda _: self.beta1)
        for r in every:
            update += along(r, ROOT_DT, self.beta2, first=s * (1 + noises + r))
        return assemble([*stages, update])

    def promises(self) -> Promises:
        """The conditions of the weak class; the orders follow from the series."""
        arrays = (self.A0, self.A1, self.B0, self.B1, self.B3, self.alpha, self.beta1)
        residuals = weak_structure(*arrays)
        return Promises(LAGRANGE_DALEMBERT, residuals, notes=(NO_EXPLICIT_METHOD,))


Rows = list[list[Number]]

_ZERO: Rows = [[0, 0, 0, 0]] * 4
_A1: Rows = [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
_B0: Rows = [[0, 0, 0, 0], [0, 0, 0, 0], [Fraction(1, 4), Fraction(3, 4), 0, 0], [0, 0, 0, 0]]
_B1: Rows = [
    [0, 0, 0, 0],
    [Fraction(2, 3), 0, 0, 0],
    [Fraction(1, 12), Fraction(1, 4), 0, 0],
    [Fraction(-5, 4), Fraction(1, 4), 2, 0],
]
_B2: Rows = [[0, 0, 0, 0], [1, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 0]]
_B3: Rows = [
    [0, 0, 0, 0],
    [0, 0, 0, 0],
    [Fraction(1, 4), Fraction(3, 4), 0, 0],
    [Fraction(1, 4), Fraction(3, 4), 0, 0],
]
_BETA1: list[Number] = [Fraction(1, 8), Fraction(3, 8), Fraction(3, 8), Fraction(1, 8)]
_BETA2: list[Number] = [0, Fraction(-1, 4), Fraction(1, 4), 0]


def rossler(A0: Rows, alpha: list[Number], name: str) -> ExplicitWeakTableau:
    """Complete the drift coefficients ``A0`` and ``alpha`` to one of Rößler's methods."""
    return ExplicitWeakTableau(
        A0=A0, A1=_A1, A2=_ZERO, B0=_B0, B1=_B1, B2=_B2, B3=_B3,
        alpha=alpha, beta1=_BETA1, beta2=_BETA2,
        name=name,
    )  # fmt: skip


@says_its_words
def rs1() -> ExplicitWeakTableau:
    """RS1: explicit weak method of order two for any number of noises.

    Equations: those of ``ExplicitWeakTableau``, with three-point I_k and mixed I_kl.

    Stages: 4 for the drift, 4 for each noise, 2 more for each noise when there are several. The
    drift stages 1, 2 and 4 are all y; H⁰₃ = y + h v(y) + Σ_l I_l [¼ b_l(Hˡ₁) + ¾ b_l(Hˡ₂)].
    Update: α = (0, 0, ½, ½), β1 = (⅛, ⅜, ⅜, ⅛), β2 = (0, −¼, ¼, 0).

    Keeps: no structure; energy and momentum drift.
    Order: weak 2 for every kind of noise. Without noise it is Heun's method.
    Cost: two evaluations of the drift, four of a single noise field, six of each of several.

    When to use: as the yardstick for weak methods; expectations over short times with several
    noises.

    Reference: Roessler2007.
    """
    half = Fraction(1, 2)
    return rossler(
        A0=[[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]],
        alpha=[0, 0, half, half],
        name="rs1",
    )


@says_its_words
def rs2() -> ExplicitWeakTableau:
    """RS2: explicit weak method of order two for any number of noises, three without noise.

    Equations: those of ``ExplicitWeakTableau``, with three-point I_k and mixed I_kl.

    Stages: 4 for the drift, of which 3 enter, 4 for each noise, 2 more for each noise when there
    are several.
    Update: α = (¼, ¼, ½, 0), β1 = (⅛, ⅜, ⅜, ⅛), β2 = (0, −¼, ¼, 0).

    Keeps: no structure; energy and momentum drift.
    Order: weak 2 for every kind of noise; 3 when the noise vanishes.
    Cost: three evaluations of the drift, four of a single noise field, six of each of several.

    When to use: as RS1, where the drift dominates and the noise is small.

    Reference: Roessler2007.
    """
    return rossler(
        A0=[
            [0, 0, 0, 0],
            [Fraction(2, 3), 0, 0, 0],
            [Fraction(1, 6), Fraction(1, 2), 0, 0],
            [0, 0, 0, 0],
        ],
        alpha=[Fraction(1, 4), Fraction(1, 4), Fraction(1, 2), 0],
        name="rs2",
    )
