"""Splittings of Langevin equations into parts with exact flows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from dalembert.methods.method import QUASI_SYMPLECTIC, Convergence, Method, Offer, Promises, orders
from dalembert.methods.stages import (
    DT,
    DW,
    Entry,
    Increment,
    Row,
    StageSystem,
    noise_numbers,
    of_noise,
)
from dalembert.noise import Increments
from dalembert.spelling import says_its_words
from dalembert.system import DRIFT_TERMS, NOISE_TERMS, System, Term


@dataclass(frozen=True, order=True)
class Damping:
    """What a friction γ does in an n-th of a step τ, for each momentum.

    Forces act for the time (1 − e^{−γτ})/γ. Noise of variance τ is multiplied so that its variance
    becomes (1 − e^{−2γτ})/2γ.
    """

    parts: int
    of_noise: bool

    def __call__(self, system: System, dt: Any, params: Any) -> Any:
        force = system.term(("F", 0))
        zero = jnp.zeros(system.dim, jnp.result_type(dt))
        friction = zero
        if force is not None:
            friction = force(zero, zero, params) - force(zero, jnp.ones_like(zero), params)
        x = friction * (dt / self.parts)
        if self.of_noise:
            return jnp.sqrt(_mean_decay(2 * x))
        return dt / self.parts * _mean_decay(x)


def _mean_decay(x: Any) -> Any:
    """(1 − e^{−x})/x, which is 1 at x = 0; by a hyperbolic tangent, without cancellation."""
    divisor = jnp.where(x == 0, jnp.ones_like(x), x)
    tangent = jnp.tanh(x / 2)
    return jnp.where(x == 0, jnp.ones_like(x), 2 * tangent / ((1 + tangent) * divisor))


@dataclass(frozen=True)
class Friction(Increment):
    """What friction makes of a force in the n-th part of a step."""

    parts: int
    name = "friction"

    @property
    def factor(self) -> Damping:
        return Damping(self.parts, of_noise=False)

    def value(self, dt: Any, noise: Increments) -> None:
        return None


@dataclass(frozen=True)
class Thermostat(DW):
    """One noise while there is friction, in all of a step."""

    name = "thermostat"

    @property
    def factor(self) -> Damping:
        return Damping(1, of_noise=True)


@dataclass(frozen=True)
class FirstHalf(DW):
    """One noise while there is friction, in the first half of a step.

    Both halves are independent, and as near to those of the path as ΔZ tells.
    """

    name = "thermostat 1"
    reads = frozenset({"dW", "dZ"})
    sign: ClassVar[int] = 1

    @property
    def factor(self) -> Damping:
        return Damping(2, of_noise=True)

    def value(self, dt: Any, noise: Increments) -> Any:
        assert noise.dZ is not None, "the method has asked for it"
        dW, dZ = of_noise(noise.dW, self.noise), of_noise(noise.dZ, self.noise)
        difference = sqrt(3) * (dZ / dt - dW / 2)
        return dW / 2 + (difference if self.sign > 0 else -difference)


@dataclass(frozen=True)
class SecondHalf(FirstHalf):
    """One noise while there is friction, in the second half of a step."""

    name = "thermostat 2"
    sign: ClassVar[int] = -1


class FlowOfLetter(NamedTuple):
    """One letter of a word, the `number`-th of `count`: it takes the n-th part of a step."""

    letter: str
    number: int
    count: int


def rows_of_flows(flows: Iterable[FlowOfLetter], noises: int) -> StageSystem:
    """A row of positions for every A, one of momenta for every other letter."""
    velocity, gradient, force = ((kind, 0) for kind in DRIFT_TERMS)
    q_rows: list[Row] = [()]
    p_rows: list[Row] = [()]

    def entry(term: Term, increment: Increment, weight: float = 1.0) -> Entry:
        return Entry(term, len(q_rows) - 1, len(p_rows) - 1, increment, weight)

    def noise(kind: Callable[[int], Increment]) -> Row:
        return tuple(entry((k, r), kind(r)) for k in NOISE_TERMS[1:] for r in noise_numbers(noises))

    def of_letter(letter: str, number: int, count: int) -> Row:
        match letter:
            case "A":
                return (entry(velocity, DT, 1 / count),)
            case "B":
                return (entry(gradient, DT, 1 / count),)
            case "C":
                return (entry(gradient, DT), *noise(DW))
            case "D":
                return (entry(force, Friction(count)),)
        kind = Thermostat if count == 1 else (FirstHalf, SecondHalf)[number - 1]
        return (entry(force, Friction(count)), *noise(kind))

    for flow in flows:
        rows = q_rows if flow.letter == "A" else p_rows
        rows.append((*rows[-1], *of_letter(*flow)))
    return StageSystem(tuple(q_rows), tuple(p_rows))


@dataclass(frozen=True)
class LangevinSplitting(Method):
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
    shares_stages = True
    requires: ClassVar[frozenset[str]] = frozenset({"Langevin equation"})

    def __post_init__(self) -> None:
        counts = Counter(self.word)
        if not (set(counts) == set("ABO") and counts["O"] <= 2) and not (
            set(counts) == set("ACD") and counts["C"] == 1
        ):
            raise ValueError(
                f"{self._who()}: the word {self.word!r} must be made of A, B and "
                "one or two O, or of A, D and one C, for example 'BAOAB' or 'DACAD'"
            )
        self._check_convergence()

    @property
    def is_symmetric(self) -> bool:
        """Whether the word reads the same in both directions."""
        return self.word == self.word[::-1]

    @property
    def stages(self) -> int:
        """Number of flows."""
        return len(self.word)

    @property
    def flows(self) -> tuple[FlowOfLetter, ...]:
        """The letters, each with its number among equal ones and how many there are."""
        return tuple(
            FlowOfLetter(letter, self.word[: place + 1].count(letter), self.word.count(letter))
            for place, letter in enumerate(self.word)
        )

    def rows(self, noises: int) -> StageSystem:
        """A row of positions for every A, one of momenta for every other letter."""
        return rows_of_flows(self.flows, noises)

    def offers(self, found: Any) -> Offer | None:
        if found.noise_kind != "additive" or self.name != "baoab":
            return None
        why = "no equations, and exact variances of positions of harmonic oscillators"
        return Offer("sampling", (why,))

    def promises(self) -> Promises:
        """Its flows are exact: nothing but their order decides."""
        weak = 2.0 if self.is_symmetric else 1.0
        notes = [
            "takes Langevin equations: H = T(p) + U(q), F = −γ p, and noise that is constant",
            "its flows are exact, so that nothing but their order decides what it keeps",
        ]
        if self.is_symmetric:
            notes.append("weak order 2, because the word reads the same in both directions")
        return Promises(
            QUASI_SYMPLECTIC,
            residuals={},
            sums={},
            order=orders(additive=1.0) if self.convergence == "mean-square" else None,
            weak_order=orders(additive=weak),
            without_noise=weak,
            notes=tuple(notes),
        )

    def __str__(self) -> str:
        return f"{self.name}: {self.family} {self.word}"


@says_its_words
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


@says_its_words
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


@says_its_words
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


@says_its_words
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
