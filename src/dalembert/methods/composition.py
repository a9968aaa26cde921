"""Flows of drift and noises, composed in an order that a coin decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dalembert.methods.coefficients import Matrix, Tableau, Vector, gauss_coefficients
from dalembert.methods.conditions import one_conjugacy_residual
from dalembert.methods.method import SYMPLECTIC, Convergence, Offer, Promises
from dalembert.methods.stages import DT, DW, FieldTerm, StageSystem, along, assemble
from dalembert.noise import Increments
from dalembert.spelling import says_its_words


@dataclass(frozen=True)
class Heads(DW):
    """ΔW if the coin shows 1, else 0."""

    name = "heads"
    reads = frozenset({"dW", "coin"})
    side: ClassVar[int] = 1

    def value(self, dt: Any, noise: Increments) -> Any:
        assert noise.coin is not None, "the method has asked for it"
        coin = noise.coin if self.side > 0 else -noise.coin
        return noise.dW[self.noise] * ((1 + coin) / 2)


@dataclass(frozen=True)
class Tails(Heads):
    """ΔW if the coin shows −1, else 0."""

    name = "tails"
    side: ClassVar[int] = -1


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
    is_special: ClassVar[bool] = True

    def rows(self, noises: int) -> StageSystem:
        """The stages of flow after flow; what earlier flows have done is in all later stages."""
        half_step = (None, DT, [[0.25]], [0.5])
        first = [(r, Heads(r), self.a, self.alpha) for r in range(noises - 1)]
        last = [(r, Tails(r), self.a, self.alpha) for r in reversed(range(noises - 1))]
        middle = [(r, DW(r), self.a, self.alpha) for r in range(noises)[-1:]]
        stages: list[list[FieldTerm]] = []
        done: list[FieldTerm] = []
        for which, increment, a, alpha in [half_step, *first, *middle, *last, half_step]:
            begin = len(stages)
            stages += [[*done, *along(which, increment, row, begin)] for row in a]
            done += along(which, increment, alpha, begin)
        return assemble([*stages, done])

    def offers(self, found: Any) -> Offer | None:
        if found.noise_kind != "general":
            return None
        why = "weak order {weak} although the noises do not commute"
        return Offer("accurate expectations", (why, "{solves}"))

    def promises(self) -> Promises:
        """The condition of a symplectic flow; the orders follow from the series."""
        notes = ("each flow is a Lagrange–d'Alembert step for its own part of the equations",)
        return Promises(SYMPLECTIC, one_conjugacy_residual(self.alpha, self.a), notes=notes)


@says_its_words
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
