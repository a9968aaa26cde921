"""What kind of system is it, and which methods suit it?"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from dalembert.methods import METHODS
from dalembert.methods.coefficients import Array
from dalembert.system import System, Term
from dalembert.theory.advice import Advice, Verdict, advise, judge
from dalembert.theory.diagnosis_text import KIND_IN_WORDS, page
from dalembert.theory.facts import ROUNDING, Evidence, Fact, Gap, Invariant, Probe, Spot, every
from dalembert.theory.linear import nonlinear_terms

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What was found out about a system; ``str()`` is a page to read.

    Attributes:
        system: the system.
        states, skipped: how many states were tried, and left out because nothing is finite there.
        separable: whether H and every h_i are sums of a function of q and one of p.
        forcing_linear_in_p: whether F and every f_i are affine in p.
        friction: the matrices Γ = −∂F/∂p, then −∂f_i/∂p, if all are constant; else None.
        conformal: whether F = −ν₀ p and every f_i = −ν_i p.
        rates: ν₀ and the ν_i if so; else None.
        linear: whether all fields are affine in (q, p); `nonlinear_terms` says which are not.
        additive: whether the noise fields are constant.
        commutative: whether Γ_ij = Γ_ji and Λ_ij = Λ_ji for all noises.
        gamma_gap, lam_gap: the largest |Γ_ij − Γ_ji|, |Λ_ij − Λ_ji|, for which pair and where; None
            where the noise is additive or there is one at most.
        noise_kind: "none", "one", "additive", "commuting" or "general".
        straight_drift: for additive noise, whether the drift is affine along it, which gives
            methods a weak order that they do not have in general.
        invariants: each declared invariant by name, and the energy.
        evidence: for each fact, "traced" (exact, from the functions), "counterexample" (refuted at
            a state) or "sampled" (it held at every state that was tried).
        where: for each fact that was refuted, the state where it fails most.
        methods: what to expect of each method.
        recommendation: which to take, for what, and why.
    """

    system: System
    states: int
    skipped: int
    separable: bool
    forcing_linear_in_p: bool
    friction: tuple[Array, ...] | None
    conformal: bool
    rates: tuple[float, ...] | None
    linear: bool
    nonlinear_terms: tuple[str, ...]
    additive: bool
    commutative: bool
    gamma_gap: Gap | None
    lam_gap: Gap | None
    noise_kind: str
    straight_drift: bool
    invariants: dict[str, Invariant]
    evidence: dict[str, Evidence]
    where: dict[str, Spot]
    methods: tuple[Verdict, ...] = ()
    recommendation: tuple[Advice, ...] = ()

    def __repr__(self) -> str:
        kind = KIND_IN_WORDS[self.noise_kind]
        return f"<Diagnosis of {self.system.name!r}: {kind}; print it to read>"

    def __str__(self) -> str:
        return "\n".join(page(self))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def diagnose(
    system: System, points: Any = None, seed: int = 0, methods: Iterable[Any] | None = None
) -> Diagnosis:
    """Find out what kind of system this is, and what each method can be expected to do on it.

    Args:
        system: the system.
        points: states `(q, p)`, each of shape (count, dim), at which to try what the functions
            leave open; by default the origin and 96 random ones at the scales 0.1, 1 and 3.
        seed: of the random states.
        methods: tableaus to judge; by default all named methods.
    """
    if not isinstance(system, System):
        hint = " Call the function to get the system." if callable(system) else ""
        raise TypeError(f"system must be a da.System, not {system!r}.{hint}")
    found = _facts(system, Probe(system, points, seed))
    chosen = [build() for build in METHODS.values()] if methods is None else methods
    verdicts = tuple(
        judge(
            system,
            method,
            _kinds(found),
            straight_drift=found.straight_drift,
            noisy=found.noise_kind != "none",
        )
        for method in chosen
    )
    found = replace(found, methods=verdicts)
    return replace(found, recommendation=advise(found))


def _facts(system: System, probe: Probe) -> Diagnosis:
    noises = range(system.noises)
    forces = [("F", 0), *(("f", i) for i in noises)]
    frictions = [probe.friction(term) for term in forces]
    friction = [matrix for matrix, _ in frictions if matrix is not None]
    facts = {
        "separable": every([probe.separable("H"), *(probe.separable("h", i) for i in noises)]),
        "forcing_linear_in_p": every([probe.affine_in_p(term) for term in forces]),
        "friction": every([fact for _, fact in frictions]),
        "additive": probe.constant_noise(),
        "commutative": Fact(True, "traced"),
    }
    rates = [float(matrix[0, 0]) for matrix in friction]
    facts["conformal"] = facts["friction"]
    if facts["friction"]:
        parts = zip(forces, friction, strict=True)
        facts["conformal"] = every([_is_conformal(probe, term, matrix) for term, matrix in parts])
    gaps: tuple[Gap | None, Gap | None] = (None, None)
    if system.noises > 1 and not facts["additive"]:
        facts["commutative"], *found = probe.commutators()
        gaps = found[0], found[1]
    holds = {name: fact.holds for name, fact in facts.items()}
    kind = _noise_kind(system, probe, holds["additive"], holds["commutative"])
    straight = kind == "additive" and probe.drift_straight_along_noise().holds
    nonlinear = nonlinear_terms(system)
    return Diagnosis(
        system=system,
        states=len(probe.q),
        skipped=probe.skipped,
        separable=holds["separable"],
        forcing_linear_in_p=holds["forcing_linear_in_p"],
        additive=holds["additive"],
        commutative=holds["commutative"],
        conformal=holds["conformal"],
        friction=tuple(friction) if holds["friction"] else None,
        rates=tuple(rates) if holds["conformal"] else None,
        linear=not nonlinear,
        nonlinear_terms=nonlinear,
        gamma_gap=gaps[0],
        lam_gap=gaps[1],
        noise_kind=kind,
        straight_drift=straight,
        invariants=_invariants(system, probe),
        evidence={name: fact.evidence for name, fact in facts.items()},
        where={name: fact.where for name, fact in facts.items() if fact.where is not None},
    )


def _is_conformal(probe: Probe, term: Term, friction: Array) -> Fact:
    """Is a force with this constant friction −ν p?"""
    rate = float(friction[0, 0])
    multiple = rate * np.eye(len(friction))
    if not np.allclose(friction, multiple, rtol=ROUNDING, atol=ROUNDING * abs(rate)):
        return Fact(False, "counterexample")
    return probe.proportional_to_p(term, rate)


def _invariants(system: System, probe: Probe) -> dict[str, Invariant]:
    found = {name: probe.invariant(fun, True) for name, fun in system.invariants.items()}
    if system.H not in system.invariants.values():
        found["H"] = probe.invariant(system.H, False)
    return found


def _noise_kind(system: System, probe: Probe, additive: bool, commutative: bool) -> str:
    if system.noises == 0 or probe.noise_vanishes():
        return "none"
    if additive:
        return "additive"
    if system.noises == 1:
        return "one"
    return "commuting" if commutative else "general"


def _kinds(d: Diagnosis) -> list[str]:
    """All kinds of noise that this one is a case of: an order promised for any of them holds."""
    kinds = {"one": d.system.noises == 1, "additive": d.additive, "commuting": d.commutative}
    return [*(kind for kind, holds in kinds.items() if holds), "general"]
