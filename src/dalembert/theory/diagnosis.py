"""What kind of system is it, and which methods suit it?"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from dalembert.methods import METHODS, Method
from dalembert.methods.coefficients import Array
from dalembert.precision import refuse_traced
from dalembert.system import System
from dalembert.theory.advice import (
    Advice,
    Verdict,
    advise,
    advise_levels,
    advise_special,
    judge,
    weighed,
)
from dalembert.theory.diagnosis_text import KIND_IN_WORDS, page
from dalembert.theory.evidence import TRACED, Evidence, Fact, Gap, Invariant, Spot, every
from dalembert.theory.facts import Probe
from dalembert.theory.flows import Tried, try_flow
from dalembert.theory.linearity import nonlinear_terms
from dalembert.theory.manifold import ConstraintFacts, constraint_facts
from dalembert.theory.sampled import DIRECTIONS


def for_every_system() -> tuple[str, ...]:
    """Methods that every diagnosis compares, by name: they ask little of a system."""
    return tuple(name for name, make in METHODS.items() if make().is_compared)


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What was found out about a system; ``str()`` is a page to read.

    Attributes:
        system: the system.
        states, skipped: how many states were tried, and left out because nothing is finite there.
        directions: how many random directions, and random sums of noises, were tried instead of
            every one, for systems of more than 64 degrees of freedom or noises; else None.
        separable: whether H and every h_i are sums of a function of q and one of p.
        forcing_linear_in_p: whether F and every f_i are affine in p.
        constant_friction: whether Γ = −∂F/∂p and every −∂f_i/∂p are constant.
        friction: these matrices if they are; of large systems None.
        damped: whether one of them is not zero.
        conformal: whether F = −ν₀ p and every f_i = −ν_i p.
        rates: ν₀ and the ν_i if so; else None.
        linear: whether all fields are affine in (q, p); `nonlinear_terms` says which are not.
        additive: whether the functions show that the noise fields are constant, which is what
            methods for additive noise ask for; noise that only looks constant is not additive.
        commutative: whether Γ_ij = Γ_ji and Λ_ij = Λ_ji for all noises.
        gamma_gap, lam_gap: the largest |Γ_ij − Γ_ji|, |Λ_ij − Λ_ji|, for which pair and where; None
            where the noise is additive or there is one at most. Pairs of many noises are pairs of
            random sums of them.
        noise_kind: "none", "one", "additive", "commuting" or "general".
        straight_drift: for additive noise, whether the drift is affine along each noise, which
            gives methods a weak order that they do not have in general.
        straight_together: whether it is affine along all sums of noises too, which gives methods
            for additive noise the mean-square order 2.
        invariants: each declared invariant by name, and the energy.
        evidence: for each fact, "traced" (exact, from the functions), "counterexample" (refuted at
            a state), "sampled" (at every state that was tried it seemed to hold) or "undecided".
        where: for each fact that was refuted, the state where it fails most.
        constraints: rank of Dg, dimension of the manifold and more; None without constraints.
        methods: what to expect of each method; of a system with a flow no orders, which are those
            of the composition of both.
        recommendation: which to take, for what, and why.
        flow: what the flow of the system does to all that it should keep, and to H; everything
            else is about the system without it, but that an invariant holds only if both keep it.
    """

    system: System
    states: int
    directions: int | None
    skipped: int
    separable: bool
    forcing_linear_in_p: bool
    constant_friction: bool
    friction: tuple[Array, ...] | None
    damped: bool
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
    straight_together: bool
    invariants: dict[str, Invariant]
    evidence: dict[str, Evidence]
    where: dict[str, Spot]
    constraints: ConstraintFacts | None = None
    methods: tuple[Verdict, ...] = ()
    recommendation: tuple[Advice, ...] = ()
    flow: tuple[Tried, ...] = ()

    def __repr__(self) -> str:
        kind = KIND_IN_WORDS[self.noise_kind]
        return f"<Diagnosis of {self.system.name!r}: {kind}; print it to read>"

    def __str__(self) -> str:
        return "\n".join(page(self))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def diagnose(
    system: System, points: Any = None, seed: int = 0, methods: Iterable[Method] | None = None
) -> Diagnosis:
    """Find out what kind of system this is, and what each method can be expected to do on it.

    Beyond 64 degrees of freedom or noises, what the functions leave open is tried in a few random
    directions and for random sums of noises, at fewer states. Nothing larger than a few states is
    made then, and the page says so.

    What is said of a driven system is said of the extended one, in which time is the last position,
    and holds at all times: its noise is additive if it is the same at all of them.

    Args:
        system: the system.
        points: states `(q, p)`, each of shape (count, dim), at which to try what the functions
            leave open; by default the origin and 96 random ones at the scales 0.1, 1 and 3, of
            large systems 6. Of a driven system they are tried at random times.
        seed: of the random states.
        methods: those to judge; by default those of `da.METHODS` that ask nothing of a system, and
            those among the others that offer something to such a one.
    """
    if not isinstance(system, System):
        hint = " Call the function to get the system." if callable(system) else ""
        raise TypeError(f"system must be a da.System, not {system!r}.{hint}")
    refuse_traced("da.diagnose", params=system.params, points=points)
    if system.flow is not None:
        return _composed(diagnose(system.fields, points, seed, methods), system, seed)
    probe = Probe(system, points, seed)
    states = probe.q[:, : system.dim], probe.p[:, : system.dim]
    found = replace(_facts(system, probe), constraints=constraint_facts(system, *states))
    chosen = [METHODS[name]() for name in _usual(system)] if methods is None else methods
    found = replace(found, methods=tuple(judge(found, method) for method in chosen))
    found = replace(found, recommendation=advise(found))
    special = advise_special(found) if methods is None else []
    new = (verdict for _, verdict in special if verdict not in found.methods)
    judged = (*found.methods, *new)
    found = replace(found, methods=judged)
    advised = [*found.recommendation, *(advice for advice, _ in special)]
    advised += advise_levels(found, judged)
    return replace(found, recommendation=weighed(found, advised))


def _composed(found: Diagnosis, system: System, seed: int) -> Diagnosis:
    """What was found about the fields of a system, together with what its flow does."""
    flow = try_flow(system, seed)
    changed = {tried.name: tried for tried in flow if not tried.holds}

    def invariant(name: str, of_fields: Invariant) -> Invariant:
        if not of_fields.holds or name not in changed:
            return of_fields
        tried = changed[name]
        return replace(
            of_fields, holds=False, largest=tried.change, along="the flow", where=tried.where
        )

    invariants = {name: invariant(name, x) for name, x in found.invariants.items()}
    methods = tuple(replace(verdict, strong=None, weak=None) for verdict in found.methods)
    return replace(found, system=system, flow=flow, invariants=invariants, methods=methods)


def _usual(system: System) -> Iterable[str]:
    """Methods to judge: those for constraints where there are any."""
    if not system.constraint_count:
        return for_every_system()
    return [name for name, make in METHODS.items() if "constraints" in make().requires]


def _energy(system: System, probe: Probe) -> Callable[..., Any]:
    """H as a function of the states that are tried, which have time in them if it is driven."""
    if not system.time:
        return system.H
    return lambda q, p, *params: probe.system.H(q, p, *params) - p[-1]


def _facts(system: System, probe: Probe) -> Diagnosis:
    kinds = ("F", "f")
    frictions, are_constant = zip(*map(probe.friction, kinds), strict=True)
    facts = {
        "separable": every([probe.separable(function) for function in "Hh"]),
        "forcing_linear_in_p": every([probe.affine_in_p(kind) for kind in kinds]),
        "friction": every(list(are_constant)),
        "additive": probe.constant_noise(),
        "commutative": TRACED,
    }
    facts["conformal"] = facts["friction"]
    if facts["friction"]:
        facts["conformal"] = every(list(map(probe.conformal, kinds, frictions)))
    gaps: list[Gap] | list[None] = [None, None]
    if system.noises > 1 and not facts["additive"]:
        facts["commutative"], *gaps = probe.commutators()
    if system.noises == 0 or probe.noise_vanishes():
        kind = "none"
    elif facts["additive"]:
        kind = "additive"
    elif system.noises == 1:
        kind = "one"
    else:
        kind = "commuting" if facts["commutative"] else "general"
    straight = together = Fact(False, "traced")
    if kind == "additive":
        straight, together = probe.drift_straight_along_noise()
        facts |= {"straight_drift": straight, "straight_together": together}
    invariants = {name: probe.invariant(fun, True) for name, fun in probe.system.invariants.items()}
    if system.H not in system.invariants.values():
        invariants["H"] = probe.invariant(_energy(system, probe), False)
    nonlinear = nonlinear_terms(system) + ("constraints",) * bool(system.constraint_count)
    matrices = None
    if facts["friction"] and not probe.is_large:
        dim = int(system.dim)
        matrices = tuple(gamma.T[:dim, :dim] for friction in frictions for gamma in friction)
    return Diagnosis(
        system=system,
        states=len(probe.q),
        directions=DIRECTIONS if probe.is_large else None,
        skipped=probe.skipped,
        separable=facts["separable"].holds,
        forcing_linear_in_p=facts["forcing_linear_in_p"].holds,
        constant_friction=facts["friction"].holds,
        friction=matrices,
        damped=any(map(np.any, frictions)),
        conformal=facts["conformal"].holds,
        rates=probe.rates(*frictions) if facts["conformal"] else None,
        linear=not nonlinear,
        nonlinear_terms=nonlinear,
        additive=facts["additive"].holds,
        commutative=facts["commutative"].holds,
        gamma_gap=gaps[0],
        lam_gap=gaps[1],
        noise_kind=kind,
        straight_drift=straight.holds,
        straight_together=together.holds,
        invariants=invariants,
        evidence={name: fact.evidence for name, fact in facts.items()},
        where={name: fact.where for name, fact in facts.items() if fact.where is not None},
    )
