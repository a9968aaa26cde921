"""What some methods ask of a system: additive noise, or the form of a Langevin equation."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept, kept_by
from dalembert.dependence import Degree, degrees
from dalembert.driven import degree_in_time
from dalembert.methods import Method
from dalembert.precision import is_traced
from dalembert.stepping.locality import is_entrywise
from dalembert.stepping.plan import Dependence
from dalembert.system import ALL, DRIFT_TERMS, NOISE_TERMS, System, Term

REQUIREMENTS = {
    "additive noise": "systems with additive noise",
    "Langevin equation": "Langevin equations",
    "constraints": "systems with constraints",
}


class TermsTracedOnce(dict[Term, Any]):
    """Terms of the equations as functions that JAX traces once, as they are then; None for zero."""

    def __init__(self, system: System, z: Any) -> None:
        self.system, self.z = system, z
        self._dependence: dict[Term, Dependence] = {}

    def __missing__(self, term: Term) -> Any:
        fun = self.system.term(term)
        self[term] = None if fun is None else jax.jit(fun)
        return self[term]

    def like(self, term: Term) -> tuple[Any, ...]:
        """The types of what a term is called with."""
        return self.system.term_like(term, self.z)

    def dependence(self, term: Term) -> Dependence:
        """How a term depends on q and p."""
        if term not in self._dependence:
            fun, found = self[term], (Degree.ZERO, Degree.ZERO)
            if fun is not None:
                found = degrees(fun, self.like(term), (0,), (1,))
            self._dependence[term] = Dependence(*found)
        return self._dependence[term]


def terms_of_steps(system: System, z: Any) -> TermsTracedOnce:
    """The terms that all steps of a system have in common, which stands for functions as they are.

    What they are traced to depends on whether JAX has float64, too.
    """
    return _terms_of_steps(system, z, bool(jax.config.read("jax_enable_x64")))


@kept
def _terms_of_steps(system: System, z: Any, has_x64: bool) -> TermsTracedOnce:
    return TermsTracedOnce(system.fields, z)


def find_dependence(terms: TermsTracedOnce, more: Iterable[Term] = ()) -> dict[Term, Dependence]:
    """How every term of the equations, and some more, depend on q and p."""
    numbers = terms.system.noise_numbers
    all_terms: list[Term] = [(kind, 0) for kind in DRIFT_TERMS]
    all_terms += [(kind, r) for r in numbers for kind in NOISE_TERMS]
    all_terms += sorted(set(more) - set(all_terms))
    return {term: terms.dependence(term) for term in all_terms}


def check_requirements(system: System, method: Method) -> None:
    """Refuse, with the reason, a system that is not what a method is made for."""
    for requirement in sorted(method.requires, reverse=True):
        if wrong := _find_out(system, requirement):
            raise ValueError(
                f"{method.name} is made for {REQUIREMENTS[requirement]}, and {system.name!r} is "
                f"none: {wrong}. da.diagnose(system) recommends methods for it."
            )


def refuse_without_constraints(system: System, method: Method) -> None:
    """Refuse a method that would leave the constraints of a system."""
    if system.constraint_count and "constraints" not in method.requires:
        raise ValueError(
            f"{method.name} knows nothing of constraints, and {system.name!r} has "
            f"{system.constraint_count}: its steps would leave g(q) = 0. Use da.rattle(), "
            "da.weak_rattle(), da.projected_midpoint() or da.g_baoab()."
        )


def why_not_additive(system: System) -> str:
    """Which noise fields may depend on (q, p), as the functions are written; "" if none does."""
    return _find_out(system, "additive noise")


def _find_out(system: System, requirement: str) -> str:
    if requirement == "constraints" and not system.constraint_count:
        return "it has no constraints"
    return _why_not(system.fields, requirement)


@kept_by(attrgetter("key"))
def _why_not(system: System, requirement: str) -> str:
    dependence = _dependence(system)
    if requirement == "constraints":
        return _why_not_constrained(dependence, system.noise_numbers)
    if requirement == "additive noise":
        return _why_not_additive(dependence, system.noise_numbers)
    return _why_not_langevin(dependence, system.noise_numbers) or _why_not_thermal(system)


@kept_by(attrgetter("key"))
def _dependence(system: System) -> Mapping[Term, Dependence]:
    """How terms depend on q and p, and on time, which counts as a position among the others."""
    z = jax.ShapeDtypeStruct((system.dim,), np.float64)
    with jax.enable_x64(True):
        found = find_dependence(TermsTracedOnce(system, z))
        if system.time:
            for term, (on_q, on_p) in found.items():
                found[term] = Dependence(max(on_q, degree_in_time(system, term, z)), on_p)
    return found


def _why_not_additive(dependence: Mapping[Term, Dependence], noises: Sequence[int]) -> str:
    moving = [
        f"{kind} of {_noise_name(r)}"
        for r in noises
        for kind in NOISE_TERMS
        if max(dependence[kind, r]) > Degree.CONSTANT
    ]
    verb = "depends" if len(moving) == 1 else "depend"
    return f"{' and '.join(moving)} {verb} on (q, p) or time" if moving else ""


def _why_not_constrained(dependence: Mapping[Term, Dependence], noises: Sequence[int]) -> str:
    moves = [r for r in noises if not dependence["h_p", r].vanishes]
    wrong = "moves positions off g(q) = 0, for its h depends on p"
    return f"{_noise_name(moves[0])} {wrong}" if moves else ""


def _noise_name(number: int) -> str:
    return "the noise" if number == ALL else f"noise {number + 1}"


def _why_not_langevin(dependence: Mapping[Term, Dependence], noises: Sequence[int]) -> str:
    velocity, gradient, force = (dependence[kind, 0] for kind in DRIFT_TERMS)
    moves = [r for r in noises if not dependence["h_p", r].vanishes]
    if velocity.on_q > Degree.CONSTANT or gradient.on_p > Degree.CONSTANT:
        return "H is not of the form T(p) + U(q)"
    if force.on_q > Degree.CONSTANT or force.on_p > Degree.AFFINE:
        return "the force is not a linear friction, F = −γ p"
    if moves:
        return f"{_noise_name(moves[0])} moves positions"
    return _why_not_additive(dependence, noises)


def _why_not_thermal(system: System) -> str:
    """Momenta under one noise must have one friction, and friction must not mix momenta."""
    known = known_params(system.params)
    # A new system would be checked again.
    if any(x is not y for x, y in zip(*map(jax.tree.leaves, (known, system.params)), strict=True)):
        system = system.typed(known)
    # It has been found not to depend on time.
    t = 0.0 if system.time else None
    told = system.told(t, system.params)
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        # Made on the host: every operation of JAX alone is compiled.
        zero = jnp.asarray(np.zeros(system.dim))
        force = system.term(("F", 0))
        # Seen at a glance where it can be, without the fields of all noises.
        reason = _why_not_thermal_entry_by_entry(system, force, zero, told)
        if not reason or system.dim > MAX_DIM_OF_MATRICES:
            return reason
        matrix = np.zeros((system.dim, system.dim))
        if force is not None:
            matrix = -np.asarray(jax.jacfwd(force, argnums=1)(zero, zero, told))
        noise = np.asarray(system.diffusion(system.shaped(zero), system.shaped(zero), t)[1])
    friction = np.diag(matrix)
    if np.any(matrix != np.diag(friction)):
        return "the friction of one momentum depends on another one"
    if np.any(friction < 0):
        return f"a friction is negative, {friction.min():g}"
    together = (noise.T @ noise != 0) & (friction[:, None] != friction[None, :])
    if together.any():
        i, j = np.argwhere(together)[0]
        return f"momenta {i} and {j} have a noise in common, and different frictions"
    return ""


MAX_DIM_OF_MATRICES = 64
"""Degrees of freedom beyond which nothing is found out with a matrix of friction."""


def _why_not_thermal_entry_by_entry(system: System, force: Any, zero: Any, told: Any) -> str:
    """Why many momenta have no thermal friction, by the traced functions; empty if they have."""
    friction = np.zeros(system.dim)
    if force is not None:

        def of_momenta(p: Any) -> Any:
            return force(zero, p, told)

        if not is_entrywise(of_momenta, zero):
            return "the friction of one momentum may depend on another one"
        one = jnp.asarray(np.ones(system.dim))
        friction = np.asarray(of_momenta(zero)) - np.asarray(of_momenta(one))
    if np.any(friction < 0):
        return f"a friction is negative, {friction.min():g}"
    if np.all(friction == friction[0]):
        return ""
    kicks = [system.term((kind, ALL)) for kind in NOISE_TERMS[1:]] if system.is_joint else []
    for kick in filter(None, kicks):
        w = jnp.zeros(system.noises)
        if not is_entrywise(lambda w, kick=kick: kick(zero, zero, told, w), w):
            kicks = []
    if kicks or not system.noises:
        return ""
    return "momenta may have a noise in common, and have different frictions"


def known_params(params: Any) -> Any:
    """Parameters with random positive numbers for those that are types, or belong to a trace."""
    rng = np.random.default_rng(0)

    def known(x: Any) -> Any:
        is_open = is_traced(x) or isinstance(x, jax.ShapeDtypeStruct)
        return rng.uniform(0.5, 1.5, x.shape).astype(x.dtype) if is_open else x

    return jax.tree.map(known, params)
