"""Expectations for short times without sampling, by the generator of the diffusion.

With the fields V_0 (drift) and V_1, …, V_m (noises) as first-order differential operators, the
Stratonovich generator is L = V_0 + ½ Σ V_i V_i, and

    E φ(z_t) = Σ_k t^k/k! (L^k φ)(z_0).

The fields and φ are expanded around z_0 into Taylor polynomials of degree 2K, on which L acts
exactly; so L^k φ(z_0) is exact up to k = K. Nested derivatives would take about 5^K evaluations;
the polynomials come from derivatives along straight lines (`jax.experimental.jet`), as many as a
homogeneous polynomial has coefficients, and some more.

The series depends on the system alone and on no integrator. It is of use as long as its terms
fall fast, so for short times; the last terms say how good it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb, factorial, inf, prod, sqrt
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept_by
from dalembert.captured import Keyed
from dalembert.system import System
from dalembert.theory.manifold import refuse_constraints

MIN_TERMS, MAX_TERMS = 3, 8
MAX_PRODUCTS = 200_000
"""Pairs of monomials in one product of polynomials: eight powers of L for dim 1, six for dim 2,
four for dim 3, three for dim 4."""


class Series(NamedTuple):
    """E φ(z_t) as a power series: powers[k] = (L^k φ)(z_0)."""

    powers: np.ndarray

    def at(self, t: float) -> tuple[float, float]:
        """The sum at time t, and the size of its last term as a bound of what is missing.

        A last term that is small by accident does not count: it is taken to be no smaller than the
        one before it times the rate at which pairs of terms fall.
        """
        terms = np.array([power * t**k / factorial(k) for k, power in enumerate(self.powers)])
        sizes = np.abs(terms)
        before, last = float(np.max(sizes[-4:-2])), float(np.max(sizes[-2:]))
        if last >= before:
            return float(np.sum(terms)), 0.0 if last == 0 else inf
        return float(np.sum(terms)), max(float(sizes[-1]), last * sqrt(last / before))


def expectation_series(
    system: System,
    observables: Mapping[str, Callable[..., Any]],
    initial: tuple[Any, Any],
    terms: int | None = None,
) -> dict[str, Series]:
    """The power series of the expectation of each observable, from a fixed initial state.

    `terms` is the highest power K of the generator, by default as many as are quick.
    """
    refuse_constraints(system, "the series of the generator")
    variables = 2 * system.dim
    possible = [
        k
        for k in range(MIN_TERMS, MAX_TERMS + 1)
        if comb(2 * k + 2 * variables, 2 * variables) <= MAX_PRODUCTS
    ]
    terms = max(possible, default=0) if terms is None else terms
    if terms not in possible:
        raise ValueError(
            f"terms = {terms} of the generator series are too few or, with dim = {system.dim}, too "
            "many: give the exact value, or a reference method such as da.rs1()."
        )
    algebra = _algebra(variables, 2 * terms)
    expanded = _expand(system, observables, initial, algebra)
    fields, polynomials = np.split(expanded, [variables * (1 + system.noises)])
    drift, *noises = fields.reshape(1 + system.noises, variables, -1)
    found = {}
    for name, g in zip(observables, polynomials, strict=True):
        powers = [g[0]]
        for _ in range(terms):
            second = sum((algebra.along(v, algebra.along(v, g)) for v in noises), np.zeros_like(g))
            g = algebra.along(drift, g) + second / 2
            powers.append(g[0])
        found[name] = Series(np.array(powers))
    return found


@dataclass(frozen=True, eq=False)
class _Algebra:
    """Polynomials in n variables up to a total degree, as vectors of coefficients.

    exponents    (monomials, n), by ascending degree
    products     (3, pairs): monomial i times monomial j is monomial k
    derivatives  for each variable the monomials that have one, their derivatives, and the factors
    """

    exponents: np.ndarray
    products: np.ndarray
    derivatives: list[tuple[np.ndarray, np.ndarray, np.ndarray]]

    @property
    def degrees(self) -> np.ndarray:
        return self.exponents.sum(axis=1)

    def along(self, field: np.ndarray, g: np.ndarray) -> np.ndarray:
        """The derivative of a polynomial along a field, Σ_v field_v ∂_v g."""
        left, right, product = self.products
        total = np.zeros_like(g)
        for component, (of, to, factor) in zip(field, self.derivatives, strict=True):
            slope = np.zeros_like(g)
            slope[to] = factor * g[of]
            total += np.bincount(product, component[left] * slope[right], minlength=len(g))
        return total


@lru_cache(maxsize=8)
def _algebra(variables: int, degree: int) -> _Algebra:
    exponents = np.array(
        [
            np.bincount(np.array(chosen, int), minlength=variables)
            for d in range(degree + 1)
            for chosen in combinations_with_replacement(range(variables), d)
        ]
    )
    # Exponents as digits of one number: products of monomials are sums of numbers.
    digits = (degree + 1) ** np.arange(variables)
    code = exponents @ digits
    ranking = np.argsort(code)

    def number(codes: np.ndarray) -> np.ndarray:
        return ranking[np.searchsorted(code[ranking], codes)]

    degrees = exponents.sum(axis=1)
    ends = np.searchsorted(degrees, degree - degrees, side="right")
    left = np.repeat(np.arange(len(code)), ends)
    right = np.concatenate([np.arange(end) for end in ends])
    products = np.stack([left, right, number(code[left] + code[right])])
    derivatives = []
    for v, digit in enumerate(digits):
        of = np.flatnonzero(exponents[:, v])
        derivatives.append((of, number(code[of] - digit), exponents[of, v].astype(np.float64)))
    return _Algebra(exponents, products, derivatives)


def _expand(
    system: System,
    observables: Mapping[str, Callable[..., Any]],
    initial: tuple[Any, Any],
    algebra: _Algebra,
) -> np.ndarray:
    """Taylor polynomials of the drift, the noise fields and the observables, one a row."""
    z = np.concatenate([np.asarray(x, np.float64) for x in initial])
    degrees = algebra.degrees
    # Twice as many lines as needed, so that no equation below is badly conditioned.
    lines = 2 * int(np.sum(degrees == degrees[-1]))
    directions = np.random.default_rng(0).standard_normal((lines, len(z)))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    known = tuple(map(system.known, observables.values()))
    # The rules of `jet` mix types and ranks.
    with (
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        derivatives = _line_derivatives(system, known, int(degrees[-1]))
        try:
            along_lines = np.asarray(derivatives(directions, z))
        except (KeyError, NotImplementedError) as error:  # `jet` looks its rules up in a dict
            raise NotImplementedError(
                f"the generator series needs Taylor expansions, and for one function there is no "
                f"rule ({error}): give the exact value, or a reference method such as da.rs1()."
            ) from error
    coefficients = np.zeros((along_lines.shape[2], len(degrees)))
    for d in range(degrees[-1] + 1):
        exponents = algebra.exponents[degrees == d]
        # Scaled by the roots of the multinomial coefficients, monomials are nearly orthogonal.
        scale = np.sqrt([factorial(d) / prod(map(factorial, row)) for row in exponents.tolist()])
        matrix = np.prod(directions[:, None, :] ** exponents, axis=2) * scale
        found = np.linalg.lstsq(matrix, along_lines[:, d] / factorial(d), rcond=None)[0]
        coefficients[:, degrees == d] = (found * scale[:, None]).T
    return coefficients


@kept_by(attrgetter("key"))
def _line_derivatives(
    system: System, observables: tuple[Keyed, ...], degree: int
) -> Callable[..., Any]:
    """Derivatives of all fields and observables along lines through z: (lines, degree + 1, r)."""
    from jax.experimental.jet import jet

    def everything(z: Any) -> Any:
        q, p = jnp.split(z, 2)
        noises = jnp.concatenate(system.diffusion(q, p), axis=1)
        values = [system.evaluate(phi.value, q, p, system.params) for phi in observables]
        return jnp.concatenate([*system.drift(q, p), noises.ravel(), *map(jnp.atleast_1d, values)])

    def along(direction: Any, z: Any) -> Any:
        series = [direction, *[jnp.zeros_like(direction)] * (degree - 1)]
        value, derivatives = jet(everything, (z,), (series,))
        return jnp.stack([value, *derivatives])

    return jax.jit(jax.vmap(along, in_axes=(0, None)))
