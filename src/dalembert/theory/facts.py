"""Structural facts about a system, each with the kind of evidence it rests on.

What the traced functions show is exact. What they leave open is tried at sampled states: there a
counterexample settles the matter, and agreement at every state is evidence, not proof.
"""

from collections.abc import Callable
from functools import cached_property
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.dependence import Degree, degree
from dalembert.options import compiled_sooner
from dalembert.precision import cast
from dalembert.stepping.locality import is_entrywise
from dalembert.stepping.plan import Dependence
from dalembert.stepping.requirements import why_not_additive
from dalembert.system import ALL, DRIFT_TERMS, NOISE_TERMS, System
from dalembert.theory.evidence import TRACED, Fact, Gap, Invariant, Spot
from dalembert.theory.linear import term_degrees
from dalembert.theory.paths import check_pair

ROUNDING = 1e-10
"""Relative to the size of what was added up; derivatives here cost a few hundred operations."""

SUMS_OF_NOISES = 3
"""Random sums of noise fields along which a drift is tried at each state."""

SCALES = (0.1, 1.0, 3.0)
STATES_PER_SCALE = 32

MOST_TERMS = 64
"""Degrees of freedom, and noises, up to which every one of them is tried."""

DIRECTIONS = 3
"""Random directions, and sums of noises, that are tried where there are more."""

FEW_STATES = 2
"""States per scale then."""


class Probe:
    """A system, its traced dependences, and states at which to try what those leave open.

    The states are given, or the origin and normal ones at several scales; those at which the
    equations are not finite are skipped. Derivatives are taken along every degree of freedom, and
    fields of every noise; beyond `MOST_TERMS` of them along a few random directions, and of a few
    random sums of noises, which miss what is there with probability zero. Nothing is larger than
    a few states then. Of a driven system the extended one is probed, with time as last position.
    """

    def __init__(self, system: System, points: Any = None, seed: int = 0) -> None:
        if points is not None:
            points = check_pair(system, points)
        is_driven, system = system.time, system.extended() if system.time else system
        self.system = system
        self.params = cast(system.params, np.dtype(np.float64))
        self.is_large = max(system.dim, system.noises) > MOST_TERMS
        normal = np.random.default_rng(seed).standard_normal
        if points is None:
            shape = (2, FEW_STATES if self.is_large else STATES_PER_SCALE, system.dim)
            drawn = [np.zeros((2, 1, system.dim)), *(scale * normal(shape) for scale in SCALES)]
            self.q, self.p = np.concatenate(drawn, axis=1)
        else:
            self.q, self.p = points
            if is_driven:
                times = normal((len(self.q), 1))
                self.q, self.p = np.append(self.q, times, 1), np.append(self.p, 0 * times, 1)
        self._along, self._sums = (
            normal((DIRECTIONS, n)) if n > MOST_TERMS else np.eye(n)
            for n in (system.dim, system.noises)
        )
        self._forced = self._along
        if is_driven:  # nothing depends on the momentum of time, and no force acts on it
            self.p[:, -1] = 0
            self._forced = self._along * (np.arange(system.dim) < system.dim - 1)
        fields = self.at_all(lambda q, p: (self._drift(q, p), self._noise(q, p)))
        fine = np.isfinite(_per_state(*fields))
        if not fine.any():
            raise ValueError(
                f"the equations of {system.name!r} are not finite at any of the {len(fine)} "
                "states: pass points=(q, p) where they are."
            )
        self.q, self.p, self.skipped = self.q[fine], self.p[fine], int(np.sum(~fine))

    @cached_property
    def degrees(self) -> dict[str, Dependence]:
        """How every kind of term depends on q with p fixed, and on p with q fixed."""
        kinds: dict[str, Dependence] = {}
        for (kind, *_), found in term_degrees(self.system, (0,), (1,)).items():
            before = kinds.get(kind, (Degree.ZERO, Degree.ZERO))
            kinds[kind] = Dependence(*map(max, found, before))
        return kinds

    def separable(self, function: str) -> Fact:
        """Is H (or every h_i) a sum of a function of q and one of p?"""
        by_p, by_q = f"{function}_p", f"{function}_q"
        mixed, *others = (
            self._slopes(self.term(kind), k) for kind, k in ((by_p, 0), (by_p, 1), (by_q, 0))
        )
        return self._decide(
            min(self._degree(by_p).on_q, self._degree(by_q).on_p) <= Degree.CONSTANT,
            lambda q, p: (mixed(q, p), *(other(q, p) for other in others)),
        )

    def affine_in_p(self, kind: str) -> Fact:
        """Is a force affine in p with q fixed?"""
        slope = self._slopes(self.term(kind), 1)
        bend = self._slopes(slope, 1)
        return self._decide(
            self._degree(kind).on_p <= Degree.AFFINE, lambda q, p: (bend(q, p), slope(q, p))
        )

    def friction(self, kind: str) -> tuple[np.ndarray, Fact]:
        """Γ = −∂force/∂p at the first state, and whether it is the same everywhere.

        Of every force a matrix; of a large system Γu for directions u, in rows.
        """
        if self._degree(kind).vanishes:
            return np.zeros((len(self._sums) if kind == "f" else 1, *self._along.shape)), TRACED
        slopes = self.slopes(kind, 1)
        constant = self._joint_degree(self._slopes(self.term(kind), 1)) <= Degree.CONSTANT
        fact = TRACED if constant else self.vanishes(slopes - slopes[0], slopes)
        # Not −0.0, which reads like a finding.
        return 0.0 - slopes[0], fact

    def name(self, kind: str, row: int) -> str:
        """A force as one would write it: F, f[0], or f for sums of noises."""
        each = kind == "f" and len(self._sums) == self.system.noises
        return f"{kind}[{row}]" if each else kind

    def slopes(self, kind: str, argument: int) -> np.ndarray:
        """Derivatives of a term by q (0) or p (1) at every state, along all directions."""
        slope = self._slopes(self.term(kind), argument)
        (slopes,) = self.at_all(lambda q, p: (slope(q, p),))
        return slopes

    def conformal(self, kind: str, friction: np.ndarray) -> Fact:
        """Are forces with this constant friction −ν p?"""
        if self._degree(kind).vanishes:
            return TRACED
        rates = self._rates(friction)
        multiple = rates[:, None, None] * self._forced
        slack = ROUNDING * np.abs(rates) * np.max(np.abs(self._forced))
        if np.any(np.abs(friction - multiple) > slack[:, None, None]):
            return Fact(False, "counterexample")
        on_q, on_p = self._degree(kind)
        (values,) = self.at_all(lambda q, p: (self.term(kind)(q, p),))
        expected = rates[:, None] * self.p[:, None, :]
        fact = self.vanishes(values + expected, values, expected)
        # No q and affine in p: then so many states decide.
        enough = len(self.p) > self.system.dim
        decided = on_q <= Degree.CONSTANT and on_p <= Degree.AFFINE and enough
        return TRACED if fact and decided else fact

    def rates(self, drift: np.ndarray, noises: np.ndarray) -> tuple[float, ...]:
        """ν₀ and the ν_i of conformal forces with these constant frictions."""
        if len(self._sums) == self.system.noises:
            return tuple(np.concatenate([self._rates(drift), self._rates(noises)]).tolist())
        q, p, along = self.q[0], self.p[0], self._forced[0]
        k = np.argmax(np.abs(along))

        def of_sum(weights: Any) -> Any:
            return jax.jvp(lambda p: self._weighted("f", q, p, weights), (p,), (along,))[1][k]

        with jax.enable_x64(True):
            each = 0.0 - np.asarray(jax.grad(of_sum)(jnp.zeros(self.system.noises))) / along[k]
        return tuple(np.concatenate([self._rates(drift), each]).tolist())

    def traces(self) -> np.ndarray:
        """tr Γ of the drift and of every noise, of constant frictions."""
        q, p = self.q[0], self.p[0]
        drift = self.term("F")

        def of_sum(weights: Any) -> Any:
            return _trace(lambda p: self._weighted("f", q, p, weights), p)

        with jax.enable_x64(True):
            first = _trace(lambda p: drift(q, p)[0], p)
            noises = jax.grad(of_sum)(jnp.zeros(self.system.noises))
        return 0.0 - np.concatenate([np.asarray(first)[None], np.asarray(noises)])

    def _rates(self, friction: np.ndarray) -> np.ndarray:
        """What one entry of Γu = νu says of ν, for every force."""
        k = np.argmax(np.abs(self._forced[0]))
        return 0.0 + friction[:, 0, k] / self._forced[0, k]

    def constant_noise(self) -> Fact:
        """Do the functions show that all noise fields are the same everywhere?

        Methods for additive noise rely on it, so that here samples can refute, not confirm.
        """
        slopes = [self._slopes(self._noise, k) for k in (0, 1)]
        fact = self._decide(
            not why_not_additive(self.system),
            lambda q, p: (jnp.hstack([slope(q, p) for slope in slopes]), self._noise(q, p)),
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
        noises = len(self._sums)
        weights = np.random.default_rng(0).standard_normal((SUMS_OF_NOISES, noises))

        def bend(q: Any, p: Any, a: Any, b: Any) -> Any:
            return jax.jvp(lambda *z: jax.jvp(self._drift, z, a)[1], (q, p), b)[1]

        def slopes(q: Any, p: Any) -> Any:
            return tuple(self._slopes(lambda *z: self._drift(*z)[None], k)(q, p) for k in (0, 1))

        def along_each(q: Any, p: Any) -> Any:
            bends = []
            for noise in self._noise(q, p):
                b_q, b_p = jnp.split(noise, 2)
                x, y = (b_q, jnp.zeros_like(b_p)), (jnp.zeros_like(b_q), b_p)
                bends += [bend(q, p, x, x), bend(q, p, x, y), bend(q, p, y, y)]
            return jnp.stack(bends)[None], *slopes(q, p)

        def along_sums(q: Any, p: Any) -> Any:
            sums = [tuple(jnp.split(noise, 2)) for noise in weights @ self._noise(q, p)]
            return jnp.stack([bend(q, p, along, along) for along in sums])[None], *slopes(q, p)

        momenta_only = self._degree("h_p").vanishes
        affine = all(self._degree(kind).on_p <= Degree.AFFINE for kind in DRIFT_TERMS)
        is_traced = momenta_only and affine
        each = self._decide(is_traced, along_each)
        if not each and noises < self.system.noises:
            # Where it bends along sums of noises, it may be straight along each.
            each = Fact(False, "undecided")
        return each, self._decide(is_traced, along_sums)

    def commutators(self) -> tuple[Fact, Gap, Gap]:
        """Do the noise fields commute, and the largest gaps in Γ and Λ."""

        def second(q: Any, p: Any) -> tuple[Any, ...]:
            def along(field: Any) -> Any:
                return jax.jvp(self._noise, (q, p), tuple(jnp.split(field, 2)))[1]

            return tuple(jnp.split(jax.vmap(along)(self._noise(q, p)), 2, axis=-1))

        gamma, lam = self.at_all(second)
        gaps = [x - np.swapaxes(x, 1, 2) for x in (gamma, lam)]
        fact = self.vanishes(np.concatenate(gaps, axis=-1)[:, None], gamma[:, None], lam[:, None])
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
            along=self._field_name(field),
            where=self._spot(state),
        )

    def _field_name(self, number: Any) -> str:
        if number == 0:
            return "the drift"
        return f"noise {number}" if len(self._sums) == self.system.noises else "a sum of noises"

    def at_all(self, fun: Callable[..., Any]) -> tuple[np.ndarray, ...]:
        """The values of a function of (q, p) at every state, with the states as leading axis."""
        with jax.enable_x64(True):
            states = jnp.asarray(self.q), jnp.asarray(self.p)
            # One state after the other: what is in between may be much larger than the values.
            run = jax.jit(
                lambda *z: lax.map(lambda at: fun(*at), z), compiler_options=compiled_sooner()
            )
            return tuple(np.asarray(x) for x in run(*states))

    def vanishes(self, values: np.ndarray, *sizes: np.ndarray) -> Fact:
        """Zero, relative to the sizes found at the same state, wherever it is a number.

        The second axis is that of several forces or noises, each with a size of its own.
        """
        largest, size = (np.nan_to_num(_maxima(*x)) for x in ((values,), sizes))
        fails = largest > ROUNDING * size
        if not np.any(fails):
            return Fact(True, "sampled")
        worst = np.argmax(np.where(fails, largest, -1))
        state, row = np.unravel_index(worst, largest.shape)
        return Fact(False, "counterexample", self._spot(state), int(row))

    def _decide(self, is_traced: bool, derivatives: Callable[..., Any]) -> Fact:
        """By the functions, or by whether the first of these derivatives vanishes."""
        if is_traced:
            return TRACED

        def maxima(q: Any, p: Any) -> tuple[Any, ...]:
            found = derivatives(q, p)
            return tuple(jnp.max(jnp.abs(x), tuple(range(1, x.ndim)), initial=0.0) for x in found)

        values, *others = self.at_all(maxima)
        return self.vanishes(values, values, *others)

    def term(self, kind: str) -> Callable[..., Any]:
        """One kind of term as a function of (q, p): of the drift, or of all noises, in rows."""
        if kind in DRIFT_TERMS:
            fun = self.system.term((kind, 0))
            return lambda q, p: (jnp.zeros_like(p) if fun is None else fun(q, p, self.params))[None]
        return lambda q, p: self._of_noises(kind, q, p)

    def _of_noises(self, kind: str, q: Any, p: Any) -> Any:
        """A term of every noise, or of random sums of noises, in rows."""
        if self.system.is_joint or len(self._sums) < self.system.noises:
            return jax.vmap(lambda w: self._weighted(kind, q, p, w))(self._sums)
        rows = [self.system.term((kind, i)) for i in range(self.system.noises)]
        found = [jnp.zeros_like(p) if row is None else row(q, p, self.params) for row in rows]
        return jnp.stack(found) if found else jnp.zeros((0, *p.shape), p.dtype)

    def _weighted(self, kind: str, q: Any, p: Any, weights: Any) -> Any:
        """Σ_i w_i term_i."""
        total = jnp.zeros_like(p)
        for number in self.system.noise_numbers:
            fun = self.system.term((kind, number))
            if fun is not None and number == ALL:
                total = fun(q, p, self.params, weights)
            elif fun is not None:
                total = total + weights[number] * fun(q, p, self.params)
        return total

    def _slopes(self, fun: Callable[..., Any], argument: int) -> Callable[..., Any]:
        """Derivatives of rows by q (0) or p (1) along all directions, (rows, directions, …)."""

        def slopes(*z: Any) -> Any:
            def along(direction: Any) -> Any:
                still = jnp.zeros_like(direction)
                tangent = (direction, still) if argument == 0 else (still, direction)
                return jax.jvp(fun, z, tangent)[1]

            return jax.vmap(along, out_axes=1)(self._along)

        return slopes

    def _degree(self, kind: str) -> Dependence:
        return self.degrees.get(kind, Dependence(Degree.ZERO, Degree.ZERO))

    def _spot(self, state: Any) -> Spot:
        return Spot(tuple(self.q[state].tolist()), tuple(self.p[state].tolist()))

    def _joint_degree(self, fun: Callable[..., Any]) -> Degree:
        with jax.enable_x64(True):
            z = jax.ShapeDtypeStruct((self.system.dim,), np.float64)
            return degree(fun, (z, z), (0, 1))

    def _drift(self, q: Any, p: Any) -> Any:
        return jnp.concatenate(self.system._drift(q, p, self.params))

    def _noise(self, q: Any, p: Any) -> Any:
        """The fields of every noise, or of random sums of noises, in rows."""
        velocity, *forces = (self._of_noises(kind, q, p) for kind in NOISE_TERMS)
        return jnp.concatenate([velocity, sum(forces)], axis=1)

    def _largest_gap(self, gap: np.ndarray) -> Gap:
        pairs = list(combinations(range(gap.shape[1]), 2))
        sizes = np.stack([np.abs(gap[:, i, j]).max(axis=-1) for i, j in pairs], axis=1)
        state, number = np.unravel_index(np.argmax(sizes), sizes.shape)
        i, j = pairs[number]
        return Gap(float(sizes[state, number]), (i + 1, j + 1), self._spot(state))


def _trace(fun: Callable[[Any], Any], x: Any) -> Any:
    """The trace of a derivative: by one product where it is seen to be diagonal."""
    x = jnp.asarray(x)
    if is_entrywise(fun, x):
        return jnp.sum(jax.jvp(fun, (x,), (jnp.ones_like(x),))[1])

    def entry(i: Any) -> Any:
        return jax.jvp(fun, (x,), (jnp.zeros_like(x).at[i].set(1.0),))[1][i]

    return jnp.sum(lax.map(entry, jnp.arange(x.size)))


def _maxima(*arrays: np.ndarray) -> np.ndarray:
    """The largest entries by the first two axes."""
    return np.max([np.abs(x).max(tuple(range(2, x.ndim)), initial=0) for x in arrays], axis=0)


def _per_state(*arrays: np.ndarray) -> np.ndarray:
    return np.max([np.abs(x).reshape(len(x), -1).max(axis=1, initial=0) for x in arrays], axis=0)
