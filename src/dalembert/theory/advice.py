"""What to expect of each method on one system, and which to take for what."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dalembert.methods.coefficients import number_text
from dalembert.methods.tableau import MeanSquareTableau, WeakTableau
from dalembert.stepping.stepper import make_stepper
from dalembert.system import System
from dalembert.theory.certify import certify
from dalembert.theory.order_conditions import weak_order

if TYPE_CHECKING:
    from dalembert.theory.diagnose import Diagnosis

__all__ = ["Advice", "Verdict", "advise", "judge"]

# 0[r r] with or without the kinds of field: the drift differentiated twice along one noise.
_CURVATURE_ALONG_NOISE = re.compile(r"0(\([^)]*\))?\[(\d+)(\([^)]*\))? \2(\([^)]*\))?\]")


@dataclass(frozen=True)
class Verdict:
    """What a method does on a system.

    Attributes:
        method: the tableau.
        refused: why it cannot take the system's noise; None if it can.
        strong: expected mean-square order; None for weak methods and where nothing is promised.
        weak: expected weak order, up to two.
        keeps_structure: whether it is a Lagrange–d'Alembert integrator.
        keeps_quadratic: whether it keeps every quadratic invariant, for which a structured method
            must treat q and p, gradients and forces alike.
        equations: the systems solved in each step: number of equations, and whether linear.
    """

    method: Any
    refused: str | None
    strong: float | None
    weak: float | None
    keeps_structure: bool
    keeps_quadratic: bool
    equations: tuple[tuple[int, bool], ...]

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def unknowns(self) -> int:
        """The number of equations solved in a step, all together."""
        return sum(count for count, _ in self.equations)

    @property
    def cost(self) -> str:
        """The equations of a step in words: "2 + 2 linear", "6 nonlinear", "explicit"."""
        if not self.equations:
            return "explicit"
        counts = " + ".join(str(count) for count, _ in self.equations)
        return (
            f"{counts} {'linear' if all(linear for _, linear in self.equations) else 'nonlinear'}"
        )


@dataclass(frozen=True)
class Advice:
    """A method for a purpose, and why."""

    purpose: str
    method: str
    reasons: tuple[str, ...]


def judge(
    system: System, method: Any, kinds: Sequence[str], *, straight_drift: bool, noisy: bool
) -> Verdict:
    """Orders from the certificate, by the kinds of noise that the system's belongs to, and cost."""
    certificate = certify(method)
    kept = certificate.lagrange_dalembert
    quadratic = kept and _treats_all_alike(method)
    try:
        method.check_noises(system.noises)
    except ValueError as error:
        return Verdict(method, str(error), None, None, kept, quadratic, ())
    if noisy:
        strong, weak = (
            _best(table, kinds) for table in (certificate.order, certificate.weak_order)
        )
        if weak == 1 and straight_drift and _only_curvature_stops(method):
            weak = 2.0
    else:
        strong = weak = float(weak_order(method, "none").order)
    with jax.enable_x64(True):
        solvers = make_stepper(system, method, np.float64).solvers
    equations = tuple(
        (len(s.block.unknowns) * system.dim, s.affine) for s in solvers if s.block.unknowns
    )
    strong = strong if method.convergence == "mean-square" or not noisy else None
    return Verdict(method, None, strong, weak, kept, quadratic, equations)


def _treats_all_alike(method: Any) -> bool:
    if not isinstance(method, MeanSquareTableau):
        return isinstance(method, WeakTableau)
    m = method
    groups = (m.a, m.a_bar, m.a_hat), (m.b, m.b_bar, m.b_hat)
    weights = (m.alpha, m.alpha_hat), (m.beta, m.beta_hat)
    return all(
        np.array_equal(group[0], other) for group in (*groups, *weights) for other in group[1:]
    )


def _best(table: dict[str, float | None], kinds: Sequence[str]) -> float | None:
    orders = [order for kind in kinds if (order := table[kind]) is not None]
    return max(orders, default=None)


def _only_curvature_stops(method: Any) -> bool:
    """Is weak order two with additive noise stopped only by the drift's curvature along it?"""
    stops = weak_order(method, "additive").violations
    return all(_CURVATURE_ALONG_NOISE.fullmatch(condition.forest) for condition in stops)


def advise(d: "Diagnosis") -> tuple[Advice, ...]:
    """Methods for the purposes that the system raises, with reasons, the most common first."""
    taken: dict[str, Verdict] = {}
    for v in d.methods:
        if not v.refused:
            taken.setdefault(v.name.partition("(")[0], v)
    advice = []
    if {"midpoint", "stormer_verlet"} <= set(taken):
        advice.append(_for_paths(d, taken))
    if d.noise_kind not in ("none", "additive") and "dirk" in taken:
        advice.append(_for_large_steps(taken["dirk"]))
    if d.noise_kind != "none" and any(v.keeps_structure and v.weak for v in taken.values()):
        advice.append(_for_expectations(d, taken))
    return tuple(advice)


def _for_paths(d: "Diagnosis", taken: dict[str, Verdict]) -> Advice:
    midpoint, verlet = taken["midpoint"], taken["stormer_verlet"]
    if d.linear and d.noise_kind == "additive":
        reasons = ["keeps the Gaussian stationary law of a linear system exactly, for every dt"]
        return Advice("paths, long runs", "midpoint", (*reasons, _solves(midpoint)))
    multiplicative = d.noise_kind not in ("none", "additive")
    if multiplicative and _price(midpoint) <= _price(verlet):
        reasons = [
            _solves(midpoint),
            "no dearer than Störmer–Verlet here, and as a rule stable at larger steps",
        ]
        return Advice("paths, long runs", "midpoint", tuple(reasons))
    if d.separable and _price(verlet) <= _price(midpoint):
        reasons = [f"separable Hamiltonians, so only its forces are solved for: {_solves(verlet)}"]
        if not verlet.equations:
            reasons = ["separable Hamiltonians and no force that depends on p: explicit"]
        if d.friction is not None and any(map(np.any, d.friction)):
            reasons.append("quasi-symplectic: volume shrinks at a rate that no state changes")
        if multiplicative:
            reasons.append("for small steps: its second moments can blow up before midpoint's")
        return Advice("paths, long runs", "stormer_verlet", tuple(reasons))
    reasons = ("the Hamiltonians are not separable", _solves(midpoint))
    return Advice("paths, long runs", "midpoint", reasons)


def _for_large_steps(dirk: Verdict) -> Advice:
    reasons = (
        "a quarter of midpoint's error constant in the drift, the same structure",
        _solves(dirk),
    )
    return Advice("large steps", "dirk", reasons)


def _for_expectations(d: "Diagnosis", taken: dict[str, Verdict]) -> Advice:
    structured = [v for v in taken.values() if v.keeps_structure and v.weak]
    best = min(
        structured, key=lambda v: (-(v.weak or 0), _price(v), v.method.convergence != "weak")
    )
    reasons = [f"weak order {number_text(best.weak or 0)} with the structure kept, {_solves(best)}"]
    if d.straight_drift and best.weak == 2:
        reasons.append("second order because the drift is affine along the additive noise")
    others = [v for v in taken.values() if not v.keeps_structure]
    explicit = [v for v in others if (v.weak or 0) > (best.weak or 0)]
    if explicit:
        names = " or ".join(v.name for v in explicit)
        reasons.append(f"over short times also {names}: weak order 2, explicit, no structure")
    return Advice("expectations", best.name.partition("(")[0], tuple(reasons))


def _price(v: Verdict) -> tuple[int, bool]:
    """Fewer equations first, then linear ones."""
    return v.unknowns, not all(linear for _, linear in v.equations)


def _solves(v: Verdict) -> str:
    if not v.equations:
        return "explicit"
    equations = "equation" if v.unknowns == 1 else "equations"
    return f"{v.cost} {equations} a step"
