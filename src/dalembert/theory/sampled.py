"""A system with states at which to try what its traced functions leave open."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.dependence import Degree, degree
from dalembert.options import compiled_sooner
from dalembert.precision import cast
from dalembert.stepping.plan import Dependence
from dalembert.system import ALL, DRIFT_TERMS, NOISE_TERMS, System
from dalembert.theory.evidence import TRACED, Fact, Spot
from dalembert.theory.linearity import term_degrees
from dalembert.theory.paths import check_pair

ROUNDING = 1e-10
"""Relative to the size of what was added up; derivatives here cost a few hundred operations."""

SCALES = (0.1, 1.0, 3.0)
STATES_PER_SCALE = 32

MOST_TERMS = 64
"""Degrees of freedom, and noises, up to which every one of them is tried."""

DIRECTIONS = 3
"""Random directions, and sums of noises, that are tried where there are more."""

FEW_STATES = 2
"""States per scale then."""


class SampledSystem:
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

    def slopes(self, kind: str, argument: int) -> np.ndarray:
        """Derivatives of a term by q (0) or p (1) at every state, along all directions."""
        slope = self._slopes(self.term(kind), argument)
        (slopes,) = self.at_all(lambda q, p: (slope(q, p),))
        return slopes

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

    def _spot(self, state: Any) -> Spot:
        return Spot(tuple(self.q[state].tolist()), tuple(self.p[state].tolist()))


def _maxima(*arrays: np.ndarray) -> np.ndarray:
    """The largest entries by the first two axes."""
    return np.max([np.abs(x).max(tuple(range(2, x.ndim)), initial=0) for x in arrays], axis=0)


def _per_state(*arrays: np.ndarray) -> np.ndarray:
    return np.max([np.abs(x).reshape(len(x), -1).max(axis=1, initial=0) for x in arrays], axis=0)
