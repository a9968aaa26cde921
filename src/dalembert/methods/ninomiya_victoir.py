"""Flows of drift and noises, composed in an order that a coin decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dalembert.methods.additive import gauss_coefficients
from dalembert.methods.coefficients import Convergence, Matrix, Tableau, Vector


@dataclass(frozen=True, eq=False, repr=False)
class NinomiyaVictoirTableau(Tableau):
    """Flows of the fields one after the other, in an order that a coin decides.

    Half a step of the drift V₀, the flows of Î_1 V_1, …, Î_m V_m in this order or in the reverse
    one, half a step of the drift. Every flow is a Runge–Kutta step, with the coefficients ``a``
    and ``alpha`` for noises, and the midpoint method for the drift. Both orders are written in one:
    noises 1 to m − 1 come before and after noise m, and the coin makes one of the two flows the
    identity.
    """

    a: Matrix
    alpha: Vector
    name: str = "my composition"

    family = "Ninomiya–Victoir composition"
    convergence: ClassVar[Convergence] = "weak"
    _matrices = ("a",)
    _vectors = ("alpha",)
    _sums: ClassVar = {"alpha": 1.0}
    _symbols: ClassVar = {"a": "a", "alpha": "α"}
    _layout = ((("a", "alpha"),),)

    def needs(self, noises: int = 1) -> frozenset[str]:
        """Increments that one step reads: "dW", and a "coin" for more than one noise."""
        return super().needs(noises) | ({"coin"} if noises > 1 else set())


def ninomiya_victoir() -> NinomiyaVictoirTableau:
    """Ninomiya and Victoir's composition with symplectic flows, for any number of noises.

    Equations: those of ``NinomiyaVictoirTableau``.

    Stages: Gauss' two for every flow of a noise, midpoint for the drift before and after.
    Update: the last flow's.

    Keeps: a symplectic map when the forces vanish, as all its flows do.
    Order: weak 2 for any noises.
    Cost: 2 + 2(2m − 1) stages a step, solved flow by flow; a coin besides the three-point
    variables. It may be driven by Gaussian ones too (``noise=da.Gaussian()``).

    When to use: expectations with several noises that do not commute, where SRKw2 has no order 2.

    Reference: NinomiyaVictoir2008.
    """
    return NinomiyaVictoirTableau(gauss_coefficients(), [0.5, 0.5], name="ninomiya_victoir")
