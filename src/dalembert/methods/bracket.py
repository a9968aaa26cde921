"""Methods that take a step along an effective field, made of brackets of the fields."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal

from dalembert.methods.coefficients import Matrix, Tableau, Vector, gauss_coefficients
from dalembert.methods.conditions import classical_conditions, failing, one_conjugacy_residual
from dalembert.methods.method import NOISE_KINDS, SYMPLECTIC, Convergence, Offer, Promises
from dalembert.methods.stages import (
    DT,
    DW,
    FieldTerm,
    Increment,
    StageSystem,
    along,
    along_noises,
    assemble,
)
from dalembert.noise import Increments
from dalembert.spelling import says_its_words


@dataclass(frozen=True)
class DriftBracket(DW):
    """Δt ΔW/2 − ΔZ."""

    name = "drift bracket"
    reads = frozenset({"dW", "dZ"})

    def value(self, dt: Any, noise: Increments) -> Any:
        assert noise.dZ is not None, "the method has asked for it"
        return dt * noise.dW[self.noise] / 2 - noise.dZ[self.noise]


@dataclass(frozen=True)
class DoubleBracket(Increment):
    """Δt²/12."""

    name = "double bracket"

    def value(self, dt: Any, noise: Increments) -> Any:
        return dt * dt / 12


@dataclass(frozen=True)
class Area(Increment):
    """The Lévy area A_ij."""

    i: int
    j: int
    name = "area"
    reads = frozenset({"area"})

    def value(self, dt: Any, noise: Increments) -> Any:
        assert noise.area is not None, "the method has asked for it"
        return noise.area[self.i, self.j]


@says_its_words
@dataclass(frozen=True, eq=False, repr=False)
class BracketTableau(Tableau):
    """A Runge–Kutta step over s ∈ [0, 1] along a field that is constant during the step.

    With [A, B] = DB·A − DA·B, the drift V₀ and the noise fields V_r, the field is

        h V₀ + ΔW V₁ + (h ΔW/2 − ΔZ) [V₀, V₁] + h²/12 [V₁, [V₁, V₀]]    ``brackets="drift"``
        h V₀ + Σ_r ΔW_r V_r + Σ_{i<j} A_ij [V_i, V_j]                    ``brackets="noise"``

    with the areas A_ij = ½ (∫∫ dW_i dW_j − ∫∫ dW_j dW_i). Brackets of Hamiltonian fields are
    Hamiltonian: if the forces vanish and α_i a_ij + α_j a_ji = α_i α_j, the step is symplectic.
    """

    a: Matrix
    alpha: Vector
    brackets: Literal["drift", "noise"]
    name: str = "my bracket method"

    family = "Runge–Kutta along brackets"
    convergence: ClassVar[Convergence] = "mean-square"
    is_special: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.brackets not in ("drift", "noise"):
            raise ValueError(
                f'{self._who()}: brackets must be "drift" or "noise", not {self.brackets!r}'
            )

    def check_noises(self, noises: int) -> None:
        """Raise ``ValueError`` if the method cannot take this number of noises."""
        super().check_noises(noises)
        if self.brackets == "drift" and noises > 1:
            raise ValueError(
                f"{self.name} takes one noise, the system has {noises}: with more, its order needs "
                "integrals of three Wiener processes. Use bracket_midpoint() instead"
            )

    def rows(self, noises: int) -> StageSystem:
        """Stages shared by all fields and their brackets."""

        def fields(a: Any) -> list[FieldTerm]:
            found = along(None, DT, a) + along_noises(noises, DW, a)
            if self.brackets == "drift" and noises:
                found += along((0, 1), DriftBracket(0), a) + along((1, (1, 0)), DoubleBracket(), a)
            if self.brackets == "noise":
                for i, j in combinations(range(noises), 2):
                    found += along((i + 1, j + 1), Area(i, j), a)
            return found

        return assemble([*map(fields, self.a), fields(self.alpha)])

    def offers(self, found: Any) -> Offer | None:
        orders = {
            ("one", "bracket_gauss"): "mean-square order {strong}, {kept}",
            ("general", "bracket_midpoint"): "mean-square order {strong} where others have 1/2, "
            "with Lévy areas",
        }
        order = orders.get((found.noise_kind, self.name))
        return None if order is None else Offer("accurate paths", (order, "{solves}"))

    def promises(self) -> Promises:
        """The condition of a symplectic Runge–Kutta method, and those of its classical order."""
        along_drift = self.brackets == "drift"
        conditions = [classical_conditions(self.alpha, self.a, order) for order in (1, 2, 3, 4)]
        classical = sum(not failing(residuals) for residuals in conditions)
        is_complete = along_drift and classical == 4
        strong = None if classical < 2 else 1.5 if is_complete else 1.0
        notes = ["brackets of Hamiltonian fields are Hamiltonian, those of forces are not forces"]
        if along_drift:
            notes.append(
                "takes one noise; mean-square order 3/2 asks for classical order 4, 1 for 2"
            )
        if is_complete:
            # Its field is the logarithm of the flow with the term of weight 2, [V₁, [V₁, V₀]],
            # replaced by its mean; what is missing has weight 5/2, and is odd in the noise like
            # all of it.
            notes.append("weak order 2: what its field leaves out has the mean zero up to h³")
        else:
            notes.append("weak orders: at least, because expectations converge as fast as paths do")
        return Promises(
            SYMPLECTIC,
            one_conjugacy_residual(self.alpha, self.a),
            sums=conditions[3 if along_drift else 1],
            order=dict.fromkeys(NOISE_KINDS, strong),
            weak_order=dict.fromkeys(NOISE_KINDS, 2.0 if is_complete else strong),
            without_noise=float(classical),
            notes=tuple(notes),
        )


@says_its_words
def bracket_gauss() -> BracketTableau:
    """Gauss' method along a field with brackets of drift and noise, for one noise of any kind.

    Equations: those of ``BracketTableau`` with ``brackets="drift"``.

    Stages: 2, solved together.
    Update: α = (½, ½).

    Keeps: a symplectic map when the forces vanish.
    Order: mean-square 3/2 and weak 2 for one noise.
    Cost: 4N equations a step, with second and third derivatives of the Hamiltonians in them; a
    second normal variable.

    When to use: pathwise accuracy with multiplicative noise.

    Reference: our own; the field is the logarithm of the flow up to order 3/2.
    """
    return BracketTableau(gauss_coefficients(), [0.5, 0.5], "drift", name="bracket_gauss")


@says_its_words
def bracket_midpoint() -> BracketTableau:
    """Midpoint method along a field with brackets of the noises, for noises that do not commute.

    Equations: those of ``BracketTableau`` with ``brackets="noise"``.

    Stages: 1, implicit.
    Update: α = (1).

    Keeps: a symplectic map when the forces vanish.
    Order: mean-square 1 and weak 1 for any noises; where they commute it is midpoint itself.
    Cost: 2N equations a step, with second derivatives of the noise Hamiltonians in them; areas of
    pairs of noises (``Gaussian(areas=K)``, or exact ones from a finer path with ``coarsen``).

    When to use: pathwise accuracy with several noises that do not commute.

    Reference: our own; areas as in Wiktorsson2001.
    """
    return BracketTableau([[0.5]], [1], "noise", name="bracket_midpoint")
