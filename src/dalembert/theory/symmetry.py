"""Whether a vector field on positions is a symmetry of a system, with evidence.

    print(check_symmetry(da.systems.planar(), rotation(2)))

Four conditions at random points, with the cotangent lift ξ = (ξ_Q, ξ^p):

    invariant    dH·ξ = 0,  dh_i·ξ = 0
    orthogonal   F·ξ_Q = 0,  f_i·ξ_Q = 0
    equivariant  DF·ξ + (Dξ_Q)ᵀF = 0,  Df_i·ξ + (Dξ_Q)ᵀf_i = 0
    affine       D²ξ_Q = 0

The first two are those of Noether's theorem: J is conserved along every path. The first, the
third and the fourth make p·q − H_d⁺ of a Lagrange–d'Alembert Runge–Kutta method invariant, so that
the discrete balance of J is exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.precision import with_precision
from dalembert.system import System
from dalembert.theory.in_time import extended_generator
from dalembert.theory.noether import Generator, cotangent_lift, flat_generator
from dalembert.theory.paths import sample_points
from dalembert.theory.sampled import DIRECTIONS, MOST_TERMS

TOLERANCE = 1e-12
"""Defects up to this, relative to the terms that cancel in them, are rounding."""


@dataclass(frozen=True, eq=False)
class SymmetryDefect:
    """The largest violation that was found of one condition, and where.

    Attributes:
        condition: "invariant", "orthogonal", "equivariant" or "affine".
        formula: what should vanish.
        size: its largest value.
        relative: the largest value relative to the terms that should cancel.
        q, p: the point at which it is largest.
    """

    condition: str
    formula: str
    size: float
    relative: float
    q: np.ndarray
    p: np.ndarray

    @property
    def holds(self) -> bool:
        """Whether it is rounding."""
        return self.relative <= TOLERANCE

    def __str__(self) -> str:
        text = f"{self.condition:<12} {self.formula:<22} {self.size:8.1e}  "
        if self.holds:
            return text + "holds"
        q, p = (np.array2string(x, precision=3, threshold=16) for x in (self.q, self.p))
        return f"{text}FAILS at q = {q}, p = {p}"


@dataclass(frozen=True, eq=False)
class SymmetryCheck:
    """What a generator is to a system; `str()` is a table with a verdict.

    Attributes:
        system, generator: their names.
        defects: one for each condition and each function that the system has.
    """

    system: str
    generator: str
    defects: tuple[SymmetryDefect, ...]

    @property
    def invariant(self) -> bool:
        """Whether H and all h_i are."""
        return self._all("invariant")

    @property
    def orthogonal(self) -> bool:
        """Whether F and all f_i are orthogonal to ξ_Q."""
        return self._all("orthogonal")

    @property
    def equivariant(self) -> bool:
        """Whether F and all f_i turn with the system."""
        return self._all("equivariant")

    @property
    def affine(self) -> bool:
        """Whether ξ_Q(q) = A q + a."""
        return self._all("affine")

    @property
    def conserved(self) -> bool:
        """Noether's theorem with forcing: J is constant along every path."""
        return self.invariant and self.orthogonal

    @property
    def discrete(self) -> bool:
        """The discrete balance of J is exact for every Lagrange–d'Alembert method."""
        return self.invariant and self.equivariant and self.affine

    def _all(self, condition: str) -> bool:
        return all(d.holds for d in self.defects if d.condition == condition)

    def __str__(self) -> str:
        if self.conserved:
            verdict = "J = p·ξ_Q(q) is conserved"
        elif self.invariant:
            verdict = "the Hamiltonians are invariant; the forces change J"
        else:
            verdict = "NOT a symmetry"
        balance = "exact" if self.discrete else "not exact in general"
        lines = [f"{self.generator} on {self.system}: {verdict}", *(f"  {d}" for d in self.defects)]
        return "\n".join([*lines, f"discrete balance of Lagrange–d'Alembert methods: {balance}"])


def check_symmetry(
    system: System, generator: Generator, points: int | tuple[Any, Any] = 64, seed: int = 0
) -> SymmetryCheck:
    """Check the conditions of both Noether theorems at sample points.

    Args:
        system: any system.
        generator: ξ_Q(q), e.g. `rotation(2)`, or a function of your own from positions to an array
            of the same shape.
        points: how many standard normal points, or (q, p) of shape (points, dim) each.
        seed: of the points.

    A driven system is looked at as the extended one, whose last position is the time: at normal
    ones, or at those of `points`, which have shape (points, dim + 1) then.
    """
    field = flat_generator(system, generator)
    if system.time:
        system, field = system.extended(), extended_generator(system, field)
    q, p = sample_points(system, points, seed)
    defects = []
    for condition, formula, fun in _conditions(system, field, seed):
        everywhere = jax.jit(jax.vmap(fun, in_axes=(0, 0, None)))
        found = with_precision(everywhere, q, p, system.params)
        size, scale = map(np.asarray, found)
        relative = float(np.max(size / np.maximum(scale, np.finfo(np.float64).tiny)))
        i = int(np.argmax(size))
        at = system.shaped(q[i]), system.shaped(p[i])
        defects.append(SymmetryDefect(condition, formula, float(size[i]), relative, *at))
    name = str(getattr(generator, "name", getattr(generator, "__name__", "<>")))
    name = "your generator" if name.startswith("<") else name
    return SymmetryCheck(system.name, name, tuple(defects))


def _of_noises(system: System, name: str, seed: int) -> dict[str, Any]:
    """Every h_i or f_i by name; of many noises random sums of them, which miss nothing."""
    terms = getattr(system, name)
    if system.noises <= MOST_TERMS:
        return {f"{name}[{i}]": term for i, term in enumerate(terms or ())}
    weights = np.random.default_rng(seed).standard_normal((DIRECTIONS, system.noises))

    def weighted(w: Any, q: Any, p: Any, *params: Any) -> Any:
        if system.is_joint:
            return terms.fun(q, p, w.reshape(system.noise_shape).astype(q.dtype), *params)
        return sum(float(x) * term(q, p, *params) for x, term in zip(w, terms, strict=True) if term)

    is_there = terms.fun is not None if system.is_joint else any(terms)
    return {f"{name}·w{k + 1}": partial(weighted, w) for k, w in enumerate(weights) if is_there}


def _conditions(system: System, generator: Generator, seed: int) -> Iterator[tuple[str, str, Any]]:
    """Each condition, its formula, and (q, p, params) → what should vanish, and its scale."""
    hamiltonians = {"H": system.H} | _of_noises(system, "h", seed)
    forces = {"F": system.F} | _of_noises(system, "f", seed)
    lift = cotangent_lift(generator)

    def sum_of(terms: Any) -> tuple[Any, Any]:
        return jnp.abs(jnp.sum(terms)), jnp.sum(jnp.abs(terms))

    def invariance(fun: Any, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        gradient = jax.grad(lambda q, p: system.evaluate(fun, q, p, params), (0, 1))(q, p)
        return sum_of(jnp.concatenate(gradient) * jnp.concatenate(lift(q, p)))

    def orthogonality(fun: Any, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        return sum_of(jnp.ravel(system.evaluate(fun, q, p, params)) * generator(q))

    def equivariance(fun: Any, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        def force(q: Any, p: Any) -> Any:
            return jnp.ravel(system.evaluate(fun, q, p, params))

        value, turned = jax.jvp(force, (q, p), lift(q, p))
        (expected,) = jax.vjp(generator, q)[1](value)
        scale = sum(jnp.max(jnp.abs(x)) for x in (turned, expected, value))
        return jnp.max(jnp.abs(turned + expected)), scale

    def second_derivative(q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        if system.dim > MOST_TERMS:
            shape = (2, system.dim)
            u, v = (jnp.asarray(x) for x in np.random.default_rng(seed).standard_normal(shape))
            second = jax.jvp(lambda q: jax.jvp(generator, (q,), (u,))[1], (q,), (v,))[1]
        else:
            second = jax.jacfwd(jax.jacfwd(generator))(q)
        return jnp.max(jnp.abs(second)), jnp.ones((), q.dtype)

    def along_constraints(q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        slopes = jax.jacrev(lambda q: system.constraint(q, params))(q)
        turned = jnp.abs(slopes @ generator(q))
        return jnp.max(turned), jnp.max(jnp.abs(slopes) @ jnp.abs(generator(q)))

    if system.constraint_count:
        yield "invariant", "Dg·ξ_Q", along_constraints
    for name, fun in hamiltonians.items():
        if fun is not None:
            yield "invariant", f"d{name}·ξ", partial(invariance, fun)
    for name, fun in forces.items():
        if fun is not None:
            yield "orthogonal", f"{name}·ξ_Q", partial(orthogonality, fun)
            yield "equivariant", f"D{name}·ξ + (Dξ_Q)ᵀ{name}", partial(equivariance, fun)
    yield "affine", "D²ξ_Q", second_derivative
