"""Whether something holds of a system, and on what evidence."""

from dataclasses import dataclass
from typing import Literal

Evidence = Literal["traced", "counterexample", "sampled", "undecided"]
"""Exact from the functions; refuted at a state; holding at every sampled state; or not known."""


@dataclass(frozen=True)
class Spot:
    """A state at which something was found."""

    q: tuple[float, ...]
    p: tuple[float, ...]

    def __str__(self) -> str:
        def numbers(values: tuple[float, ...]) -> str:
            shown = ", ".join(f"{x:.3g}" for x in values[:4])
            return f"[{shown}{', …' if len(values) > 4 else ''}]"

        return f"q = {numbers(self.q)}, p = {numbers(self.p)}"


@dataclass(frozen=True)
class Fact:
    """Whether something holds, on what evidence, and where it fails if it was seen to fail.

    `row` is the number of the force or noise that fails there.
    """

    holds: bool
    evidence: Evidence
    where: Spot | None = None
    row: int = 0

    def __bool__(self) -> bool:
        return self.holds


TRACED = Fact(True, "traced")


@dataclass(frozen=True)
class Gap:
    """The largest component of a difference of Γ_ij and Γ_ji, or of Λ_ij and Λ_ji, that was found.

    `pair` numbers the noises from 1, as the paper does, or the random sums of many noises.
    """

    value: float
    pair: tuple[int, int]
    where: Spot


@dataclass(frozen=True)
class Invariant:
    """Whether a function is constant along the drift and every noise field, and kept by a flow.

    Attributes:
        holds: whether its derivative along every field is rounding at every state, and so is what
            the flow of the system changes of it.
        declared: False for the energy, which is tried without being declared.
        quadratic: whether it is at most quadratic in (q, p), as traced.
        largest: largest |derivative| along a field, and `along` which, and `where`; along "the
            flow" the change relative to its size.
    """

    holds: bool
    declared: bool
    quadratic: bool
    largest: float
    along: str
    where: Spot


def every(facts: list[Fact]) -> Fact:
    """All of them: refuted if one is, and otherwise as certain as the least certain."""
    rank = ("counterexample", "undecided", "sampled", "traced")
    failing = [fact for fact in facts if not fact.holds]
    return min(failing or facts, key=lambda fact: rank.index(fact.evidence))
