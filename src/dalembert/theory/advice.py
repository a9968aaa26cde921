"""What to expect of each method on one system, and which to take for what."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np

from dalembert.methods import METHODS, Method, Offer
from dalembert.methods.coefficients import number_text
from dalembert.stepping.constrained import ConstrainedStepper
from dalembert.stepping.step import check_method
from dalembert.stepping.stepper import make_stepper
from dalembert.theory.certificate import certify
from dalembert.theory.elementary_weights import treats_all_alike
from dalembert.theory.expected import expected_orders

WRITTEN_OUT = 8
"""Degrees of freedom up to which a step is written out in scalars."""

if TYPE_CHECKING:
    from dalembert.theory.diagnosis import Diagnosis


@dataclass(frozen=True)
class Verdict:
    """What a method does on a system.

    Attributes:
        method: the method.
        refused: why it cannot take the system's noise; None if it can.
        strong: expected mean-square order; None for weak methods and where nothing is promised.
        weak: expected weak order, up to two.
        keeps: what it keeps, as in a certificate; without forces, unless it is "structure" or
            "quasi-symplectic".
        keeps_quadratic: whether it keeps every quadratic invariant, for which a structured method
            must treat q and p, gradients and forces alike.
        equations: the systems solved in each step: number of equations, and whether linear.
        coupled: how many of these equations depend on each other across degrees of freedom or
            particles; the others are solved one by one, which costs next to nothing. Where a step
            is written out that makes no difference, and all count.
    """

    method: Method
    refused: str | None
    strong: float | None
    weak: float | None
    keeps: str
    keeps_quadratic: bool
    equations: tuple[tuple[int, bool], ...]
    coupled: int = 0

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def lagrange_dalembert(self) -> bool:
        """Whether it is a Lagrange–d'Alembert integrator."""
        return self.keeps == "structure"

    @property
    def unknowns(self) -> int:
        """The number of equations solved in a step, all together."""
        return sum(count for count, _ in self.equations)

    @property
    def price(self) -> tuple[int, bool, int]:
        """Fewer coupled equations come first, then linear ones, then fewer that are not coupled."""
        return self.coupled, not all(linear for _, linear in self.equations), self.unknowns

    @property
    def cost(self) -> str:
        """The equations of a step in words: "2 + 2 linear", "6 nonlinear", "explicit"."""
        counts = " + ".join(str(count) for count, _ in self.equations)
        kind = "nonlinear" if self.price[1] else "linear"
        one_by_one = "" if self.coupled or self.unknowns < 2 else ", one by one"
        return f"{counts} {kind}{one_by_one}" if self.equations else "explicit"

    @property
    def solves(self) -> str:
        """The cost as a reason to take the method: "2 linear equations a step"."""
        noun = "equation" if self.unknowns == 1 else "equations"
        counts, _, one_by_one = self.cost.partition(", ")
        apart = ", solved one by one" if one_by_one else ""
        return f"{counts} {noun} a step{apart}" if self.equations else self.cost


@dataclass(frozen=True)
class Advice:
    """A method for a purpose, and why."""

    purpose: str
    method: str
    reasons: tuple[str, ...]


def judge(d: "Diagnosis", method: Method) -> Verdict:
    """Whether it takes the system, the orders to expect there, and the cost."""
    certificate = certify(method)
    kept = certificate.keeps
    quadratic = certificate.lagrange_dalembert and treats_all_alike(method)
    try:
        check_method(d.system, method)
    except ValueError as error:
        return Verdict(method, str(error), None, None, kept, quadratic, ())
    strong, weak = expected_orders(d, method, certificate)
    with jax.enable_x64(True):
        stepper = make_stepper(d.system, method, np.float64, most=0)
    equations = tuple(
        (len(s.block.unknowns) * d.system.dim, s.affine)
        for s in stepper.solvers
        if s.block.unknowns
    )
    multipliers = 0
    if isinstance(stepper, ConstrainedStepper):
        moves = sum(part.repeats for part in stepper.parts if part.moves)
        multipliers = d.system.constraint_count * moves
        equations += ((d.system.constraint_count, False),) * moves
    few = d.system.dim <= WRITTEN_OUT
    unknowns = (len(s.block.unknowns) for s in stepper.solvers if few or not s.width)
    coupled = d.system.dim * sum(unknowns) + multipliers
    return Verdict(method, None, strong, weak, kept, quadratic, equations, coupled)


def advise(d: "Diagnosis") -> tuple[Advice, ...]:
    """Methods for the purposes that the system raises, with reasons, the most common first."""
    taken: dict[str, Verdict] = {}
    for v in d.methods:
        if not v.refused:
            taken.setdefault(v.name.partition("(")[0], v)
    advice = []
    if {"midpoint", "stormer_verlet"} <= set(taken):
        method, reasons = _for_paths(d, taken["midpoint"], taken["stormer_verlet"])
        advice.append(Advice("paths, long runs", method, tuple(reasons)))
    if "rattle" in taken:
        advice.append(Advice("paths, long runs", "rattle", (taken["rattle"].solves,)))
    if "g_baoab" in taken:
        why = "weak order 2, and a small error in averages of positions"
        advice.append(Advice("sampling", "g_baoab", (why, taken["g_baoab"].solves)))
    if _is_multiplicative(d) and "dirk" in taken:
        why = "a quarter of midpoint's error constant in the drift, the same structure"
        advice.append(Advice("large steps", "dirk", (why, taken["dirk"].solves)))
    structured = [v for v in taken.values() if v.lagrange_dalembert and v.weak]
    if d.noise_kind != "none" and structured:
        others = [v for v in taken.values() if not v.lagrange_dalembert]
        method, reasons = _for_expectations(d, structured, others)
        advice.append(Advice("expectations", method, tuple(reasons)))
    return tuple(advice)


def advise_special(d: "Diagnosis") -> list[tuple[Advice, Verdict]]:
    """Methods that are made for such systems, as far as they take this one, with what they do."""
    known = {v.name: v for v in d.methods}
    found = []
    for name, make in METHODS.items():
        method = make()
        offer = method.offers(d)
        if offer is None:
            continue
        verdict = known.get(method.name) or judge(d, method)
        if not verdict.refused:
            found.append((Advice(offer.purpose, name, _reasons(offer, verdict)), verdict))
    return found


def _reasons(offer: Offer, v: Verdict) -> tuple[str, ...]:
    """Why a method is offered, with its orders and the equations of its step."""
    kept = "structure kept" if v.lagrange_dalembert else "symplectic without forces"
    strong, weak = (number_text(order or 0) for order in (v.strong, v.weak))
    words = {"strong": strong, "weak": weak, "kept": kept, "solves": v.solves}
    return tuple(reason.format(**words) for reason in offer.reasons)


def weighed(d: "Diagnosis", advised: Sequence[Advice]) -> tuple[Advice, ...]:
    """The advice with what equations cost, where an explicit splitting would solve none.

    Expectations are better left to the splitting then. Up to eight degrees of freedom equations
    are written out, and cost about as much as forces.
    """
    known = {v.name.partition("(")[0]: v for v in d.methods}
    splitting = known.get("baoab")
    if splitting is None or splitting.refused or d.system.dim <= WRITTEN_OUT:
        return tuple(advised)

    def weigh(advice: Advice) -> Advice:
        best = known.get(advice.method)
        if best is None or not best.equations:
            return advice
        # Measured at 12 to 300 degrees of freedom: 1.2 to 2.1 times where nothing is coupled.
        dear = "several times as dear" if best.coupled else "up to about twice as dear"
        if advice.purpose == "expectations" and (splitting.weak or 0) >= (best.weak or 0):
            why = f"weak order {number_text(splitting.weak or 0)} without equations to solve"
            other = f"with the structure kept: {best.name}, {dear}, {best.solves}"
            return Advice(advice.purpose, "baoab", (why, other))
        cost = f"{dear} as baoab, which solves no equations"
        return Advice(advice.purpose, advice.method, (*advice.reasons, cost))

    return tuple(map(weigh, advised))


def advise_levels(d: "Diagnosis", judged: Sequence[Verdict]) -> list[Advice]:
    """The method whose levels are the cheapest for `da.expect`: variances fall as dt^(2 order)."""
    coupled = [
        v
        for v in judged
        if v.strong and not v.refused and v.method.needs_for(d.system) <= {"dW", "dZ"}
    ]
    if d.noise_kind == "none" or not coupled:
        return []
    # From order one on the largest steps cost the most, and structure allows larger ones.
    best = min(
        coupled,
        key=lambda v: ((v.strong or 0) < 1, not v.lagrange_dalembert, -(v.strong or 0), v.price),
    )
    exponent = 2 * (best.strong or 0)
    reasons = [f"variances of level differences fall as dt^{number_text(exponent)}, {best.solves}"]
    if exponent <= 1:
        reasons.append('no faster than steps grow in number: estimator="plain" may do as well')
    return [Advice("da.expect", best.name.partition("(")[0], tuple(reasons))]


def _is_multiplicative(d: "Diagnosis") -> bool:
    return d.noise_kind not in ("none", "additive")


def _for_paths(d: "Diagnosis", midpoint: Verdict, verlet: Verdict) -> tuple[str, list[str]]:
    if d.linear and d.noise_kind == "additive":
        why = "keeps the Gaussian stationary law of a linear system exactly, for every dt"
        return "midpoint", [why, midpoint.solves]
    if _is_multiplicative(d) and midpoint.price <= verlet.price:
        why = "no dearer than Störmer–Verlet here, and as a rule stable at larger steps"
        return "midpoint", [midpoint.solves, why]
    if not d.separable or verlet.price > midpoint.price:
        return "midpoint", ["the Hamiltonians are not separable", midpoint.solves]
    reasons = [f"separable Hamiltonians, so only its forces are solved for: {verlet.solves}"]
    if not verlet.equations:
        reasons = ["separable Hamiltonians and no force that depends on p: explicit"]
    if d.constant_friction and d.damped:
        reasons.append("quasi-symplectic: volume shrinks at a rate that no state changes")
    if _is_multiplicative(d):
        reasons.append("for small steps: its second moments can blow up before midpoint's")
    return "stormer_verlet", reasons


def _for_expectations(
    d: "Diagnosis", structured: list[Verdict], others: list[Verdict]
) -> tuple[str, list[str]]:
    best = min(structured, key=lambda v: (-(v.weak or 0), v.price, v.method.convergence != "weak"))
    order = best.weak or 0
    reasons = [f"weak order {number_text(order)} with the structure kept, {best.solves}"]
    if d.straight_drift and order == 2:
        reasons.append("second order because the drift is affine along the additive noise")
    explicit = [v.name for v in others if (v.weak or 0) > order]
    if explicit:
        names = " or ".join(explicit)
        reasons.append(f"over short times also {names}: weak order 2, explicit, no structure")
    return best.name.partition("(")[0], reasons
