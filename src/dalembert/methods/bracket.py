"""Methods that take a step along an effective field, made of brackets of the fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dalembert.methods.additive import gauss_coefficients
from dalembert.methods.coefficients import Convergence, Matrix, Tableau, Vector


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
    _matrices = ("a",)
    _vectors = ("alpha",)
    _sums: ClassVar = {"alpha": 1.0}
    _symbols: ClassVar = {"a": "a", "alpha": "α"}
    _layout = ((("a", "alpha"),),)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.brackets not in ("drift", "noise"):
            raise ValueError(
                f'{self._who()}: brackets must be "drift" or "noise", not {self.brackets!r}'
            )

    def needs(self, noises: int = 1) -> frozenset[str]:
        """Increments that one step reads: "dW", and "dZ" or, of several noises, "area"."""
        more = {"dZ"} if self.brackets == "drift" else {"area"} if noises > 1 else set[str]()
        return super().needs(noises) | (more if noises else set())

    def check_noises(self, noises: int) -> None:
        """Raise ``ValueError`` if the method cannot take this number of noises."""
        super().check_noises(noises)
        if self.brackets == "drift" and noises > 1:
            raise ValueError(
                f"{self.name} takes one noise, the system has {noises}: with more, its order needs "
                "integrals of three Wiener processes. Use bracket_midpoint() instead"
            )

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to write the tableau down again, in types that JSON knows."""
        return {**super().to_dict(), "brackets": self.brackets}

    def _key(self) -> tuple[Any, ...]:
        return (*super()._key(), self.brackets)


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
