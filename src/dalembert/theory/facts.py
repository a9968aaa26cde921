"""Structural facts about a system, each with the kind of evidence it rests on.

What the traced functions show is exact. What they leave open is tried at sampled states: there a
counterexample settles the matter, and agreement at every state is evidence, not proof.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.dependence import Degree, degree
from dalembert.options import compiled_sooner
from dalembert.precision import cast
from dalembert.stepping.plan import Dependence
from dalembert.stepping.requirements import why_not_additive
from dalembert.system import System, Term
from dalembert.theory.linear import term_degrees
from dalembert.theory.paths import check_pair

Evidence = Literal["traced", "counterexample", "sampled"]
"""Exact from the functions; refuted at a state; or holding at every sampled state."""

ROUNDING = 1e-10
"""Relative to the size of what was added up; derivatives here cost a few hundred operations."""

SUMS_OF_NOISES = 3
"""Random sums of noise fields along which a drift is tried at each state."""

SCALES = (0.1, 1.0, 3.0)
STATES_PER_SCALE = 32


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
    """Whether something holds, on what evidence, and where it fails if it was seen to fail."""

    holds: bool
    evidence: Evidence
    where: Spot | None = None

    def __bool__(self) -> bool:
        return self.holds


TRACED = Fact(True, "traced")


@dataclass(frozen=True)
class Gap:
    """The largest component of a difference of Γ_ij and Γ_ji, or of Λ_ij and Λ_ji, that was found.

    `pair` numbers the noises from 1, as the paper does.
    """

    value: float
    pair: tuple[int, int]
    where: Spot


@dataclass(frozen=True)
class Invariant:
    """Whether a function is constant along the drift and along every noise field.

    Attributes:
        holds: whether its derivative along every field is rounding at every state.
        declared: False for the energy, which is tried without being declared.
        quadratic: whether it is at most quadratic in (q, p), as traced.
        largest: largest |derivative| along a field, and `along` which, and `where`.
    """

    holds: bool
    declared: bool
    quadratic: bool
    largest: float
    along: str
    where: Spot


def every(facts: list[Fact]) -> Fact:
    """All of them: refuted if one is, and otherwise as certain as the least certain."""
    rank = ("counterexample", "sampled", "traced")
    failing = [fact for fact in facts if not fact.holds]
    return min(failing or facts, key=lambda fact: rank.index(fact.evidence))


class Probe:
    """A system, its traced dependences, and states at which to try what those leave open.

    The states are given, or the origin and normal ones at several scales; those at which the
    equations are not finite are skipped.
    """

    def __init__(self, system: System, points: Any = None, seed: int = 0) -> None:
        self.system = system
        self.params = cast(system.params, np.dtype(np.float64))
        if points is None:
            normal = np.random.default_rng(seed).standard_normal
            shape = (2, STATES_PER_SCALE, system.dim)
            drawn = [np.zeros((2, 1, system.dim)), *(scale * normal(shape) for scale in SCALES)]
            self.q, self.p = np.concatenate(drawn, axis=1)
        else:
            self.q, self.p = check_pair(system, points)
        fields = self.at_all(lambda q, p: (self._drift(q, p), self._noise(q, p)))
        fine = np.isfinite(_per_state(*fields))
        if not fine.any():
            raise ValueError(
                f"the equations of {system.name!r} are not finite at any of the {len(fine)} "
                "states: pass points=(q, p) where they are."
            )
        self.q, self.p, self.skipped = self.q[fine], self.p[fine], int(np.sum(~fine))

    @cached_property
    def degrees(self) -> dict[Term, Dependence]:
        """How every term depends on q with p fixed, and on p with q fixed."""
        found = term_degrees(self.system, (0,), (1,))
        return {term: Dependence(*separate) for term, separate in found.items()}

    def separable(self, function: str, i: int = 0) -> Fact:
        """Is H (or h_i) a sum of a function of q and one of p?"""
        by_p, by_q = (f"{function}_p", i), (f"{function}_q", i)
        of_p, of_q = self.term(by_p), self.term(by_q)
        return self._decide(
            min(self.degrees[by_p].on_q, self.degrees[by_q].on_p) <= Degree.CONSTANT,
            lambda q, p: (*jax.jacfwd(of_p, (0, 1))(q, p), jax.jacfwd(of_q)(q, p)),
        )

    def affine_in_p(self, term: Term) -> Fact:
        """Is a force affine in p with q fixed?"""
        slope = jax.jacfwd(self.term(term), 1)
        return self._decide(
            self.degrees[term].on_p <= Degree.AFFINE,
            lambda q, p: (jax.jacfwd(slope, 1)(q, p), slope(q, p)),
        )

    def friction(self, term: Term) -> tuple[np.ndarray | None, Fact]:
        """Γ = −∂force/∂p if it is the same matrix everywhere, else None."""
        if self.degrees[term].vanishes:
            return np.zeros((self.system.dim, self.system.dim)), TRACED
        slope = jax.jacfwd(self.term(term), 1)
        (slopes,) = self.at_all(lambda q, p: (slope(q, p),))
        constant = self._joint_degree(slope) <= Degree.CONSTANT
        fact = TRACED if constant else self.vanishes(slopes - slopes[0], slopes)
        # Not −0.0, which reads like a finding.
        return (0.0 - slopes[0] if fact else None), fact

    def conformal(self, term: Term, friction: np.ndarray) -> Fact:
        """Is a force with this constant friction −ν p?"""
        rate = float(friction[0, 0])
        multiple = rate * np.eye(len(friction))
        if not np.allclose(friction, multiple, rtol=ROUNDING, atol=ROUNDING * abs(rate)):
            return Fact(False, "counterexample")
        on_q, on_p = self.degrees[term]
        (values,) = self.at_all(lambda q, p: (self.term(term)(q, p),))
        fact = self.vanishes(values + rate * self.p, values, rate * self.p)
        # No q and affine in p: then so many states decide.
        decided = on_q <= Degree.CONSTANT and on_p <= Degree.AFFINE and len(self.p) > len(friction)
        return TRACED if fact and (decided or self.degrees[term].vanishes) else fact

    def constant_noise(self) -> Fact:
        """Do the functions show that all noise fields are the same everywhere?

        Methods for additive noise rely on it, so that here samples can refute, not confirm.
        """
        fact = self._decide(
            not why_not_additive(self.system),
            lambda q, p: (jnp.dstack(jax.jacfwd(self._noise, (0, 1))(q, p)), self._noise(q, p)),
        )
        return Fact(fact.evidence == "traced", fact.evidence, fact.where)

    def noise_vanishes(self) -> bool:
        """Are all noise fields zero at every state?"""
        (fields,) = self.at_all(lambda q, p: (self._noise(q, p),))
        return not np.any(fields)

    def drift_straight_along_noise(self) -> tuple[Fact, Fact]:
        """Is the drift affine along constant noise fields: along each one, and along their sums?

        Along each one means along its position and momentum parts, and both: methods may treat
        them differently. Sums are tried at random.
        """
        weights = np.random.default_rng(0).standard_normal((SUMS_OF_NOISES, self.system.noises))

        def bend(q: Any, p: Any, a: Any, b: Any) -> Any:
            return jax.jvp(lambda *z: jax.jvp(self._drift, z, a)[1], (q, p), b)[1]

        def jacobian(q: Any, p: Any) -> Any:
            return jnp.hstack(jax.jacfwd(self._drift, (0, 1))(q, p))

        def along_each(q: Any, p: Any) -> Any:
            bends = []
            for noise in self._noise(q, p):
                b_q, b_p = jnp.split(noise, 2)
                x, y = (b_q, jnp.zeros_like(b_p)), (jnp.zeros_like(b_q), b_p)
                bends += [bend(q, p, x, x), bend(q, p, x, y), bend(q, p, y, y)]
            return jnp.stack(bends), jacobian(q, p)

        def along_sums(q: Any, p: Any) -> Any:
            sums = [tuple(jnp.split(noise, 2)) for noise in weights @ self._noise(q, p)]
            return jnp.stack([bend(q, p, along, along) for along in sums]), jacobian(q, p)

        momenta_only = all(d.vanishes for d in self._of("h_p"))
        affine = all(d.on_p <= Degree.AFFINE for d in self._of("H_p", "H_q", "F"))
        is_traced = momenta_only and affine
        return self._decide(is_traced, along_each), self._decide(is_traced, along_sums)

    def commutators(self) -> tuple[Fact, Gap, Gap]:
        """Do the noise fields commute, and the largest gaps in Γ and Λ."""
        gamma, lam = self.at_all(lambda q, p: self.system._second(q, p, self.params))
        gaps = [x - np.swapaxes(x, 1, 2) for x in (gamma, lam)]
        fact = self.vanishes(np.concatenate(gaps, axis=-1), gamma, lam)
        return fact, self._largest_gap(gaps[0]), self._largest_gap(gaps[1])

    def invariant(self, fun: Callable[..., Any], declared: bool) -> Invariant:
        """The derivatives of a function along the fields."""

        def gradient(q: Any, p: Any) -> Any:
            def value(q: Any, p: Any) -> Any:
                return jnp.asarray(self.system.evaluate(fun, q, p, self.params), q.dtype)

            return jnp.concatenate(jax.grad(value, (0, 1))(q, p))

        def derivatives(q: Any, p: Any) -> Any:
            fields = jnp.concatenate([self._drift(q, p)[None], self._noise(q, p)])
            return fields @ gradient(q, p), jnp.abs(fields) @ jnp.abs(gradient(q, p))

        rates, sizes = map(np.nan_to_num, self.at_all(derivatives))
        state, field = np.unravel_index(np.argmax(np.abs(rates)), rates.shape)
        return Invariant(
            holds=bool(np.all(np.abs(rates) <= ROUNDING * sizes)),
            declared=declared,
            quadratic=self._joint_degree(gradient) <= Degree.AFFINE,
            largest=float(np.abs(rates[state, field])),
            along=f"noise {field}" if field else "the drift",
            where=self._spot(state),
        )

    def at_all(self, fun: Callable[..., Any]) -> tuple[np.ndarray, ...]:
        """The values of a function of (q, p) at every state, with the states as leading axis."""
        with jax.enable_x64(True):
            compiled = jax.jit(jax.vmap(fun), compiler_options=compiled_sooner())
            return tuple(np.asarray(x) for x in compiled(self.q, self.p))

    def vanishes(self, values: np.ndarray, *sizes: np.ndarray) -> Fact:
        """Zero, relative to the sizes found at the same state, wherever it is a number."""
        largest = np.nan_to_num(_per_state(values))
        if np.all(largest <= ROUNDING * np.nan_to_num(_per_state(*sizes))):
            return Fact(True, "sampled")
        return Fact(False, "counterexample", self._spot(np.argmax(largest)))

    def _decide(self, is_traced: bool, derivatives: Callable[..., Any]) -> Fact:
        """By the functions, or by whether the first of these derivatives vanishes."""
        if is_traced:
            return TRACED
        values, *others = self.at_all(derivatives)
        return self.vanishes(values, values, *others)

    def term(self, term: Term) -> Callable[..., Any]:
        """One term of the equations as a function of (q, p)."""
        fun = self.system.term(term)
        return lambda q, p: jnp.zeros_like(p) if fun is None else fun(q, p, self.params)

    def _spot(self, state: Any) -> Spot:
        return Spot(tuple(self.q[state].tolist()), tuple(self.p[state].tolist()))

    def _of(self, *kinds: str) -> list[Dependence]:
        return [d for (kind, _), d in self.degrees.items() if kind in kinds]

    def _joint_degree(self, fun: Callable[..., Any]) -> Degree:
        with jax.enable_x64(True):
            z = jax.ShapeDtypeStruct((self.system.dim,), np.float64)
            return degree(fun, (z, z), (0, 1))

    def _drift(self, q: Any, p: Any) -> Any:
        return jnp.concatenate(self.system._drift(q, p, self.params))

    def _noise(self, q: Any, p: Any) -> Any:
        return jnp.concatenate(self.system._diffusion(q, p, self.params), axis=1)

    def _largest_gap(self, gap: np.ndarray) -> Gap:
        pairs = list(combinations(range(self.system.noises), 2))
        sizes = np.stack([np.abs(gap[:, i, j]).max(axis=-1) for i, j in pairs], axis=1)
        state, number = np.unravel_index(np.argmax(sizes), sizes.shape)
        i, j = pairs[number]
        return Gap(float(sizes[state, number]), (i + 1, j + 1), self._spot(state))


def _per_state(*arrays: np.ndarray) -> np.ndarray:
    return np.max([np.abs(x).reshape(len(x), -1).max(axis=1, initial=0) for x in arrays], axis=0)
