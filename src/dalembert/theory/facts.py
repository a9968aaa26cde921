"""Structural facts about a system, each with the kind of evidence it rests on.

What the traced functions show is exact. What they leave open is tried at sampled states: there a
counterexample settles the matter, and agreement at every state is evidence, not proof.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.precision import cast
from dalembert.stepping.dependence import Degree, degree
from dalembert.stepping.plan import Dependence
from dalembert.system import System, Term
from dalembert.theory.linear import separate_degrees

__all__ = ["ROUNDING", "Evidence", "Fact", "Gap", "Invariant", "Probe", "Spot", "every"]

Evidence = Literal["traced", "counterexample", "sampled"]
"""Exact from the functions; refuted at a state; or holding at every sampled state."""

ROUNDING = 1e-10
"""Relative to the size of what was added up; derivatives here cost a few hundred operations."""

SCALES = (0.1, 1.0, 3.0)
STATES_PER_SCALE = 32


@dataclass(frozen=True)
class Spot:
    """A state at which something was found."""

    q: tuple[float, ...]
    p: tuple[float, ...]

    def __str__(self) -> str:
        return f"q = {_numbers(self.q)}, p = {_numbers(self.p)}"


@dataclass(frozen=True)
class Fact:
    """Whether something holds, on what evidence, and where it fails if it was seen to fail."""

    holds: bool
    evidence: Evidence
    where: Spot | None = None

    def __bool__(self) -> bool:
        return self.holds


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
    """A system, its traced dependences, and states at which to try what those leave open."""

    def __init__(self, system: System, points: Any, seed: int) -> None:
        self.system = system
        self.params = cast(system.params, np.dtype(np.float64))
        self.degrees: dict[Term, Dependence] = separate_degrees(system)
        q, p = _states(system, points, seed)
        fields = self._evaluate(lambda q, p: (self._drift(q, p), self._noise(q, p)), q, p)
        fine = np.all([np.isfinite(x).reshape(len(q), -1).all(axis=1) for x in fields], axis=0)
        if not fine.any():
            raise ValueError(
                f"the equations of {system.name!r} are not finite at any of the {len(q)} states: "
                "pass points=(q, p) where they are."
            )
        self.q, self.p, self.skipped = q[fine], p[fine], int(np.sum(~fine))

    def separable(self, function: str, i: int = 0) -> Fact:
        """Is H (or h_i) a sum of a function of q and one of p?"""
        if self.degrees[(f"{function}_p", i)].on_q <= Degree.CONSTANT:
            return Fact(True, "traced")
        if self.degrees[(f"{function}_q", i)].on_p <= Degree.CONSTANT:
            return Fact(True, "traced")
        gradients = self.system.term((f"{function}_p", i)), self.system.term((f"{function}_q", i))

        def derivatives(q: Any, p: Any) -> Any:
            of_p, of_q = (lambda q, p, g=g: g(q, p, self.params) for g in gradients if g)
            return jax.jacfwd(of_p)(q, p), jax.jacfwd(of_p, 1)(q, p), jax.jacfwd(of_q)(q, p)

        mixed, *others = self.at_all(derivatives)
        return self._vanishes(mixed, mixed, *others)

    def affine_in_p(self, term: Term) -> Fact:
        """Is a force affine in p with q fixed?"""
        if self.degrees[term].on_p <= Degree.AFFINE:
            return Fact(True, "traced")
        force = self._term(term)
        slope = jax.jacfwd(force, 1)
        second, first = self.at_all(lambda q, p: (jax.jacfwd(slope, 1)(q, p), slope(q, p)))
        return self._vanishes(second, second, first)

    def friction(self, term: Term) -> tuple[np.ndarray | None, Fact]:
        """Γ = −∂force/∂p if it is the same matrix everywhere, else None."""
        if self.degrees[term].vanishes:
            return np.zeros((self.system.dim, self.system.dim)), Fact(True, "traced")
        force = self._term(term)
        slope = jax.jacfwd(force, 1)
        with jax.enable_x64(True):
            z = jax.ShapeDtypeStruct((self.system.dim,), np.float64)
            constant = degree(slope, (z, z), (0, 1)) <= Degree.CONSTANT
        (slopes,) = self.at_all(lambda q, p: (slope(q, p),))
        fact = Fact(True, "traced") if constant else self._vanishes(slopes - slopes[0], slopes)
        # Not −0.0, which reads like a finding.
        return (0.0 - slopes[0] if fact else None), fact

    def proportional_to_p(self, term: Term, rate: float) -> Fact:
        """Is a force −rate·p?"""
        if self.degrees[term].vanishes:
            return Fact(rate == 0, "traced")
        (values,) = self.at_all(lambda q, p: (self._term(term)(q, p),))
        fact = self._vanishes(values + rate * self.p, values, rate * self.p)
        on_q, on_p = self.degrees[term]
        # No q and affine in p: then so many states decide.
        decided = on_q <= Degree.CONSTANT and on_p <= Degree.AFFINE and len(self.p) > len(self.p[0])
        return Fact(True, "traced") if fact.holds and decided else fact

    def constant_noise(self) -> Fact:
        """Are all noise fields the same everywhere?"""
        terms = [d for (kind, _), d in self.degrees.items() if kind in ("h_p", "h_q", "f")]
        if all(max(d) <= Degree.CONSTANT for d in terms):
            return Fact(True, "traced")
        slopes, fields = self.at_all(
            lambda q, p: (
                jnp.concatenate(jax.jacfwd(self._noise, (0, 1))(q, p), axis=-1),
                self._noise(q, p),
            )
        )
        return self._vanishes(slopes, slopes, fields)

    def noise_vanishes(self) -> bool:
        """Are all noise fields zero at every state?"""
        (fields,) = self.at_all(lambda q, p: (self._noise(q, p),))
        return not np.any(fields)

    def drift_straight_along_noise(self) -> Fact:
        """Is the drift affine along the position and momentum parts of constant noise fields?"""
        drift = [d for (kind, _), d in self.degrees.items() if kind in ("H_p", "H_q", "F")]
        momenta_only = all(d.vanishes for (kind, _), d in self.degrees.items() if kind == "h_p")
        if momenta_only and all(d.on_p <= Degree.AFFINE for d in drift):
            return Fact(True, "traced")

        def along(q: Any, p: Any, noise: Any) -> Any:
            zero, (b_q, b_p) = jnp.zeros_like(q), jnp.split(noise, 2)

            def slope(direction: tuple[Any, Any]) -> Callable[..., Any]:
                return lambda q, p: jax.jvp(self._drift, (q, p), direction)[1]

            pairs = [((b_q, zero),) * 2, ((b_q, zero), (zero, b_p)), ((zero, b_p),) * 2]
            return jnp.stack([jax.jvp(slope(a), (q, p), b)[1] for a, b in pairs])

        def second(q: Any, p: Any) -> Any:
            jacobian = jnp.concatenate(jax.jacfwd(self._drift, (0, 1))(q, p), axis=-1)
            noises = self._noise(q, p)
            return jnp.stack([along(q, p, b) for b in noises]), jacobian

        curvature, jacobian = self.at_all(second)
        return self._vanishes(curvature, curvature, jacobian)

    def commutators(self) -> tuple[Fact, Gap, Gap]:
        """Do the noise fields commute, and the largest gaps in Γ and Λ."""
        gamma, lam = self.at_all(lambda q, p: self.system._second(q, p, self.params))
        gaps = [x - np.swapaxes(x, 1, 2) for x in (gamma, lam)]
        fact = self._vanishes(np.concatenate(gaps, axis=-1), gamma, lam)
        return fact, self._largest_gap(gaps[0]), self._largest_gap(gaps[1])

    def invariant(self, fun: Callable[..., Any], declared: bool) -> Invariant:
        """The derivatives of a function along the fields."""

        def value(q: Any, p: Any) -> Any:
            return jnp.asarray(self.system.evaluate(fun, q, p, self.params), q.dtype)

        def derivatives(q: Any, p: Any) -> Any:
            gradient = jnp.concatenate(jax.grad(value, (0, 1))(q, p))
            fields = jnp.concatenate([self._drift(q, p)[None], self._noise(q, p)])
            return fields @ gradient, jnp.abs(fields) @ jnp.abs(gradient)

        with jax.enable_x64(True):
            z = jax.ShapeDtypeStruct((self.system.dim,), np.float64)
            quadratic = degree(jax.grad(value, (0, 1)), (z, z), (0, 1)) <= Degree.AFFINE
        rates, sizes = map(np.nan_to_num, self.at_all(derivatives))
        state, field = np.unravel_index(np.argmax(np.abs(rates)), rates.shape)
        along = f"noise {field}" if field else "the drift"
        holds = bool(np.all(np.abs(rates) <= ROUNDING * sizes))
        largest = float(np.abs(rates[state, field]))
        return Invariant(holds, declared, quadratic, largest, along, self.spot(int(state)))

    def at_all(self, fun: Callable[..., Any]) -> tuple[np.ndarray, ...]:
        """The values of a function of (q, p) at every state, with the states as leading axis."""
        return self._evaluate(fun, self.q, self.p)

    def spot(self, state: int) -> Spot:
        """One of the states."""
        return Spot(tuple(self.q[state].tolist()), tuple(self.p[state].tolist()))

    def _evaluate(self, fun: Callable[..., Any], q: Any, p: Any) -> tuple[np.ndarray, ...]:
        with jax.enable_x64(True):
            return tuple(np.asarray(x) for x in jax.jit(jax.vmap(fun))(q, p))

    def _drift(self, q: Any, p: Any) -> Any:
        return jnp.concatenate(self.system._drift(q, p, self.params))

    def _noise(self, q: Any, p: Any) -> Any:
        return jnp.concatenate(self.system._diffusion(q, p, self.params), axis=1)

    def _term(self, term: Term) -> Callable[..., Any]:
        fun = self.system.term(term)
        return lambda q, p: jnp.zeros_like(p) if fun is None else fun(q, p, self.params)

    def _vanishes(self, values: np.ndarray, *sizes: np.ndarray) -> Fact:
        """Zero, relative to the sizes found at the same state, wherever it is a number."""
        largest = np.nan_to_num(_per_state([values]))
        if np.all(largest <= ROUNDING * np.nan_to_num(_per_state(sizes))):
            return Fact(True, "sampled")
        return Fact(False, "counterexample", self.spot(int(np.argmax(largest))))

    def _largest_gap(self, gap: np.ndarray) -> Gap:
        pairs = list(combinations(range(self.system.noises), 2))
        sizes = np.stack([np.abs(gap[:, i, j]).max(axis=-1) for i, j in pairs], axis=1)
        state, number = np.unravel_index(np.argmax(sizes), sizes.shape)
        i, j = pairs[number]
        return Gap(float(sizes[state, number]), (i + 1, j + 1), self.spot(int(state)))


def _per_state(arrays: Iterable[np.ndarray]) -> np.ndarray:
    return np.max([np.abs(x).reshape(len(x), -1).max(axis=1, initial=0) for x in arrays], axis=0)


def _states(system: System, points: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The user's states, or the origin and normal ones at several scales."""
    if points is None:
        rng = np.random.default_rng(seed)
        shape = (2, STATES_PER_SCALE, system.dim)
        q, p = np.concatenate([scale * rng.standard_normal(shape) for scale in SCALES], axis=1)
        origin = np.zeros((1, system.dim))
        return np.concatenate([origin, q]), np.concatenate([origin, p])
    if not (isinstance(points, tuple | list) and len(points) == 2):
        raise TypeError("points must be a pair (q, p) of arrays of shape (count, dim).")
    q, p = (np.atleast_2d(np.asarray(x, np.float64)) for x in points)
    if q.shape != p.shape or q.ndim != 2 or q.shape[1] != system.dim:
        raise ValueError(
            f"points must be a pair (q, p), both of shape (count, {system.dim}), not "
            f"{np.shape(points[0])} and {np.shape(points[1])}."
        )
    return q, p


def _numbers(values: tuple[float, ...]) -> str:
    shown = ", ".join(f"{x:.3g}" for x in values[:4])
    return f"[{shown}{', …' if len(values) > 4 else ''}]"
