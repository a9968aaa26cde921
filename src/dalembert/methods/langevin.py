"""Splittings of Langevin equations into parts with exact flows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from dalembert.methods.coefficients import Convergence, Named


@dataclass(frozen=True)
class LangevinSplitting(Named):
    """Exact flows of the parts of a Langevin equation, in the order of a word.

    For H = T(p) + U(q), a linear friction F = −γ p and noise that does not depend on (q, p):

        A  positions move with T'(p)
        B  momenta are kicked by −U'(q)
        O  friction and noise together, an Ornstein–Uhlenbeck process, exact in law
        D  friction alone: p e^{−γτ}
        C  a kick with all of the noise: −U'(q) and ΔW

    A letter that occurs n times takes the n-th part of the step each time. γ may differ between
    momenta that have no noise in common.
    """

    word: str
    name: str = "my splitting"
    convergence: Convergence = "mean-square"

    family = "Langevin splitting"
    requires: ClassVar[frozenset[str]] = frozenset({"Langevin equation"})

    def __post_init__(self) -> None:
        counts = Counter(self.word)
        if not (set(counts) == set("ABO") and counts["O"] <= 2) and not (
            set(counts) == set("ACD") and counts["C"] == 1
        ):
            raise ValueError(
                f"LangevinSplitting {self.name!r}: the word {self.word!r} must be made of A, B and "
                "one or two O, or of A, D and one C, for example 'BAOAB' or 'DACAD'"
            )
        if self.convergence not in get_args(Convergence):
            raise ValueError(
                f"LangevinSplitting {self.name!r}: convergence must be one of "
                f"{get_args(Convergence)}, not {self.convergence!r}"
            )

    @property
    def is_symmetric(self) -> bool:
        """Whether the word reads the same in both directions."""
        return self.word == self.word[::-1]

    @property
    def stages(self) -> int:
        """Number of flows."""
        return len(self.word)

    def needs(self, noises: int = 1) -> frozenset[str]:
        """Increments that one step reads: "dW", and "dZ" if friction and noise come in halves."""
        is_halved = noises and self.word.count("O") == 2
        return frozenset({"dW", "dZ"} if is_halved else {"dW"})

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to write the method down again, in types that JSON knows."""
        return super().to_dict() | {"word": self.word}

    def __str__(self) -> str:
        return f"{self.name}: {self.family} {self.word}"


def baoab() -> LangevinSplitting:
    """BAOAB: kick, drift, friction and noise, drift, kick.

    Equations: those of ``LangevinSplitting`` with the word BAOAB.

    Stages: 5, explicit.
    Update: the last kick's.

    Keeps: the exact variance of positions of a harmonic oscillator, for every step size; volumes
    contract at the exact rate.
    Order: weak 2; mean-square 1.
    Cost: two forces a step, no equations; runs of small systems use the second in the next step.

    When to use: sampling positions of Langevin dynamics with large steps.

    Reference: LeimkuhlerMatthews2013.
    """
    return LangevinSplitting("BAOAB", "baoab")


def aboba() -> LangevinSplitting:
    """ABOBA: drift, kick, friction and noise, kick, drift.

    Equations: those of ``LangevinSplitting`` with the word ABOBA.

    Stages: 5, explicit.
    Update: the last drift's.

    Keeps: the exact variance of positions of a harmonic oscillator, for every step size; volumes
    contract at the exact rate.
    Order: weak 2; mean-square 1.
    Cost: one force a step, and no equations.

    When to use: to be compared with BAOAB.

    Reference: LeimkuhlerMatthews2013.
    """
    return LangevinSplitting("ABOBA", "aboba")


def obabo() -> LangevinSplitting:
    """OBABO: half of friction and noise, a Störmer–Verlet step, the other half.

    Equations: those of ``LangevinSplitting`` with the word OBABO.

    Stages: 5, explicit.
    Update: the second half of friction and noise.

    Keeps: the exact variance of momenta of a harmonic oscillator, for every step size; volumes
    contract at the exact rate.
    Order: weak 2; mean-square 1.
    Cost: two forces a step, no equations, two normal variables a noise; runs of small
    systems use the second force in the next step.

    When to use: where momenta count, and to be compared with BAOAB.

    Reference: BussiParrinello2007; LeimkuhlerMatthews2013.
    """
    return LangevinSplitting("OBABO", "obabo")


def quasi_symplectic() -> LangevinSplitting:
    """The second weak quasi-symplectic method of Milstein and Tretyakov.

    Equations:

        P₁ = p e^{−γh/2},  Q₁ = q + h/2 T'(P₁),  P₂ = P₁ − h U'(Q₁) + Σ_r σ_r Î_r,
        p' = P₂ e^{−γh/2},  q' = Q₁ + h/2 T'(P₂)

    Stages: 5, explicit.
    Update: the second half of the friction.

    Keeps: volumes contract at the exact rate, and a symplectic map without friction.
    Order: weak 2.
    Cost: one force a step, no equations, three-point variables.

    When to use: expectations of Langevin dynamics with simple random variables.

    Reference: MilsteinTretyakov2003.
    """
    return LangevinSplitting("DACAD", "quasi_symplectic", "weak")
