"""Structural facts about a system, each with the kind of evidence it rests on.

What the traced functions show is exact. What they leave open is tried at sampled states: there a
counterexample settles the matter, and agreement at every state is evidence, not proof.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.dependence import Degree
from dalembert.stepping.locality import is_entrywise
from dalembert.stepping.requirements import why_not_additive
from dalembert.system import DRIFT_TERMS
from dalembert.theory.evidence import TRACED, Fact, Gap, Invariant
from dalembert.theory.sampled import ROUNDING, SampledSystem

SUMS_OF_NOISES = 3
"""Random sums of noise fields along which a drift is tried at each state."""


class Probe(SampledSystem):
    """Facts about a system, by its traced functions or at its sampled states."""

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
