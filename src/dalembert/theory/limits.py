"""Whether the steps of a method converge to the Stratonovich solution of a system at all.

A method has a limit, the right one, if its series agrees with the exact one in all terms of order
h. A term in which it does not is harmless where the system has no such term: Euler–Maruyama has
the right limit for noise that depends on positions and moves momenta, and a wrong one in general.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dalembert.methods import Method
from dalembert.stepping.derived import DerivedMethod
from dalembert.stepping.requirements import known_params
from dalembert.system import DRIFT_TERMS, NOISE_TERMS, System
from dalembert.theory.elementary_weights import is_series
from dalembert.theory.order_conditions import Condition, NoiseKind, first_order
from dalembert.theory.sampled import SampledSystem

Limit = Literal["right", "wrong", "unknown"]

WRONG = "does not converge to the Stratonovich solution"

_NODE = r"\d+(?:\([^)]*\))?"
_NOISE_ALONG_NOISE = re.compile(rf"({_NODE})\[({_NODE})\]")


def limit(system: System, method: Method) -> Limit:
    """Whether the limit of a method on a system is the right one, as its rows decide.

    It is "unknown" where the rows are no series in trees, where noises are too many to look at, or
    where there are constraints and the method without them is wrong; and for methods that are made
    of another one, which has been asked.
    """
    if isinstance(method, DerivedMethod):
        return "unknown"
    system = system.fields
    with jax.ensure_compile_time_eval():
        missed = _missed(method, _kind(system, method))
        if missed is None:
            return "unknown"
        if not missed:
            return "right"
        if method.parts:
            return "unknown"
        if system.params is not None:
            system = system.with_params(known_params(system.params))
        try:
            probe = SampledSystem(system)
        except ValueError:  # its equations are not finite where they are tried
            return "unknown"
        return _seen_on(probe, missed)


def why_wrong(system: System, method: Method) -> str:
    """The simplest term in which a method of the wrong limit differs from the solution."""
    missed = _missed(method, _kind(system, method)) or ()
    return str(min(missed, key=lambda c: len(c.forest), default=""))


def _kind(system: System, method: Method) -> NoiseKind:
    if not system.noises:
        return "none"
    if method.requires & {"additive noise", "Langevin equation"}:
        return "additive"
    return "one" if system.noises == 1 else "general"


@lru_cache(maxsize=256)
def _missed(method: Method, kind: NoiseKind) -> tuple[Condition, ...] | None:
    """The terms of order h in which a method differs from the solution; None without a series."""
    noises = {"none": 0, "one": 1, "additive": 2 if method.takes(2) else 1}.get(kind, 2)
    if not is_series(method, noises, additive=kind == "additive"):
        return None
    # Beyond h they only make the order smaller: h^(3/2) a step is order one half.
    return tuple(c for c in first_order(method, kind) if c.weight <= 1)


def _seen_on(probe: SampledSystem, missed: Sequence[Condition]) -> Limit:
    """Whether what a method misses is there at some state."""
    along: list[tuple[str, str, float]] = []
    for condition in missed:
        nodes = re.findall(_NODE, condition.forest)
        if any(_vanishes(probe, node) for node in nodes):
            continue
        nested = _NOISE_ALONG_NOISE.fullmatch(condition.forest)
        if nested is None:
            return "wrong"
        outer, inner = nested.groups()
        if _colour(outer) != _colour(inner):
            return "unknown"
        if _colour(outer) == 1:
            along.append((outer, inner, condition.method - condition.exact))
    if not along:
        return "right"

    def sums(q: Any, p: Any) -> tuple[Any, Any]:
        """What is missed by the noises together, and the sizes of what that adds up."""

        def of_kinds(node: str, q: Any, p: Any) -> Any:
            kinds = _kinds(node)
            velocity, *forces = (
                probe.term(kind)(q, p) if kind in kinds else jnp.zeros_like(probe.term(kind)(q, p))
                for kind in NOISE_TERMS
            )
            return jnp.concatenate([velocity, sum(forces)], axis=1)

        def moved(outer: str, inner: str) -> Any:
            def of_one(direction: Any) -> Any:
                tangent = tuple(jnp.split(direction, 2))
                return jax.jvp(lambda *z: of_kinds(outer, *z), (q, p), tangent)[1]

            each = jax.vmap(of_one)(of_kinds(inner, q, p))
            return jnp.einsum("rrx->rx", each)

        found = [weight * moved(outer, inner) for outer, inner, weight in along]
        rows = jnp.concatenate(found)
        return jnp.sum(rows, axis=0)[None], jnp.sum(jnp.abs(rows), axis=0)[None]

    total, size = probe.at_all(sums)
    if probe.vanishes(total, size):
        return "right"
    # Of many noises random sums are tried, whose parts may cancel.
    return "unknown" if len(probe._sums) < probe.system.noises else "wrong"


def _colour(node: str) -> int:
    return int(node.partition("(")[0])


def _kinds(node: str) -> Sequence[str]:
    """The kinds of field that a node stands for: "1(h_q+f)" for two of a noise, "1" for all."""
    _, _, named = node.rstrip(")").partition("(")
    return named.split("+") if named else NOISE_TERMS if _colour(node) else DRIFT_TERMS


def _vanishes(probe: SampledSystem, node: str) -> bool:
    """Whether a system has no such field."""
    return all(probe._degree(kind).vanishes for kind in _kinds(node))
