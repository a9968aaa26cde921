"""Four families of coefficients: two that can keep the variational structure, two explicit.

Throughout, with m noises, v = (H_p, −H_q + F) is the drift and b_r = (h_r,p, −h_r,q + f_r) the
field of noise r; y = (q, p); h = Δt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dalembert.methods.additive import AdditiveTableau
from dalembert.methods.bracket import BracketTableau
from dalembert.methods.coefficients import Convergence, Matrix, Tableau, Vector
from dalembert.methods.langevin import LangevinSplitting
from dalembert.methods.ninomiya_victoir import NinomiyaVictoirTableau


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
    convergence: ClassVar[Convergence] = "mean-square"
    _matrices = ("a", "a_bar", "a_hat", "b", "b_bar", "b_hat")
    _vectors = ("alpha", "alpha_hat", "beta", "beta_hat")
    _sums: ClassVar = {"alpha": 1.0, "alpha_hat": 1.0, "beta": 1.0, "beta_hat": 1.0}
    _symbols: ClassVar = {
        **{"a": "a", "a_bar": "ā", "a_hat": "â", "b": "b", "b_bar": "b̄", "b_hat": "b̂"},
        **{"alpha": "α", "alpha_hat": "α̂", "beta": "β", "beta_hat": "β̂"},
    }
    _layout = (
        (("a", "alpha"), ("a_bar", "alpha"), ("a_hat", "alpha_hat")),
        (("b", "beta"), ("b_bar", "beta"), ("b_hat", "beta_hat")),
    )


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
    _symbols: ClassVar = {
        **{"a0": "a⁰", "a1": "a¹", "b0": "b⁰", "b1": "b¹", "b3": "b³"},
        **{"alpha": "α", "beta": "β"},
    }
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

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to write the tableau down again, in types that JSON knows."""
        return {**super().to_dict(), "max_noises": self.max_noises}

    def __str__(self) -> str:
        limit = "" if self.max_noises is None else f"\n\n  noises: at most {self.max_noises}"
        return super().__str__() + limit

    def _key(self) -> tuple[Any, ...]:
        return (*super()._key(), self.max_noises)


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
    convergence: ClassVar[Convergence] = "mean-square"
    _matrices = ("A", "B1", "B2")
    _vectors = ("alpha", "g1", "g2")
    _sums: ClassVar = {"alpha": 1.0, "g1": 1.0, "g2": 0.0}
    _symbols: ClassVar = {"A": "A", "B1": "B1", "B2": "B2", "alpha": "α", "g1": "g1", "g2": "g2"}
    _layout = ((("A", "alpha"), ("B1", "g1"), ("B2", "g2")),)
    _explicit = True

    def needs(self, noises: int = 1) -> frozenset[str]:
        """Increments that one step reads: "dW", and "dZ" unless B2 and g2 vanish."""
        uses_dZ = self.B2.any() or self.g2.any()
        return super().needs(noises) | ({"dZ"} if uses_dZ else set())


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
    _symbols: ClassVar = {
        **{"A0": "A0", "A1": "A1", "A2": "A2", "B0": "B0", "B1": "B1", "B2": "B2", "B3": "B3"},
        **{"alpha": "α", "beta1": "β1", "beta2": "β2"},
    }
    _layout = (
        (("A0", None), ("B0", None)),
        (("A1", None), ("B1", None), ("B3", None)),
        (("A2", None), ("B2", None)),
        ((None, "alpha"), (None, "beta1"), (None, "beta2")),
    )
    _explicit = True

    def needs(self, noises: int = 1) -> frozenset[str]:
        """Increments that one step reads: "dW", and "mixed" (I_kl) for more than one noise."""
        uses_mixed = noises > 1 and np.any(self.B2) and np.any(self.beta2)
        return super().needs(noises) | ({"mixed"} if uses_mixed else set())


#: A method of one of the paper's families, or of those that they are compared with.
ClassicMethod = MeanSquareTableau | WeakTableau | ExplicitTableau | ExplicitWeakTableau
#: Any method that the library can step.
Method = (
    ClassicMethod | AdditiveTableau | BracketTableau | NinomiyaVictoirTableau | LangevinSplitting
)
