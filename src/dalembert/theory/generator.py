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
from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb, factorial, inf, prod, sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.system import System

__all__ = ["Series", "expectation_series"]

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
    variables = 2 * system.dim
    if terms is None:
        fits = (
            k
            for k in range(MAX_TERMS, MIN_TERMS - 1, -1)
            if _products(k, variables) <= MAX_PRODUCTS
        )
        terms = next(fits, 0)
    if terms < MIN_TERMS or _products(terms, variables) > MAX_PRODUCTS:
        raise ValueError(
            f"terms = {terms} of the generator series are too few or, with dim = {system.dim}, too "
            "many: give the exact value, or a reference method such as da.rs1()."
        )
    algebra = _algebra(variables, 2 * terms)
    drift, noises, phi = _expansions(system, observables, initial, algebra)

    def generator(g: np.ndarray) -> np.ndarray:
        second = sum((_along(algebra, v, _along(algebra, v, g)) for v in noises), np.zeros(g.shape))
        return _along(algebra, drift, g) + second / 2

    found = {}
    for name, g in zip(observables, phi, strict=True):
        powers = [g[0]]
        for _ in range(terms):
            g = generator(g)
            powers.append(g[0])
        found[name] = Series(np.array(powers))
    return found


def _products(terms: int, variables: int) -> int:
    return comb(2 * terms + 2 * variables, 2 * variables)


class _Algebra(NamedTuple):
    """Polynomials in n variables up to a total degree, as vectors of coefficients.

    exponents    (monomials, n), by ascending degree
    products     (3, pairs): monomial i times monomial j is monomial k
    derivatives  for each variable a pair (monomial, its derivative), and the factor
    """

    exponents: np.ndarray
    products: np.ndarray
    derivatives: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]

    @property
    def degrees(self) -> np.ndarray:
        return self.exponents.sum(axis=1)


@lru_cache(maxsize=8)
def _algebra(variables: int, degree: int) -> _Algebra:
    chosen = [
        chosen
        for d in range(degree + 1)
        for chosen in combinations_with_replacement(range(variables), d)
    ]
    exponents = np.array([np.bincount(c, minlength=variables) for c in map(_integers, chosen)])
    # Exponents as digits of one number: products of monomials are sums of numbers.
    code = exponents @ (degree + 1) ** np.arange(variables)
    ranking = np.argsort(code)
    ranked = code[ranking]
    degrees = exponents.sum(axis=1)
    ends = np.searchsorted(degrees, degree - degrees, side="right")
    left = np.repeat(np.arange(len(code)), ends)
    right = np.concatenate([np.arange(end) for end in ends])
    products = np.stack([left, right, ranking[np.searchsorted(ranked, code[left] + code[right])]])
    derivatives = []
    for v in range(variables):
        of = np.flatnonzero(exponents[:, v])
        to = ranking[np.searchsorted(ranked, code[of] - (degree + 1) ** v)]
        derivatives.append((of, to, exponents[of, v].astype(np.float64)))
    return _Algebra(exponents, products, tuple(derivatives))


def _integers(chosen: tuple[int, ...]) -> np.ndarray:
    return np.array(chosen, dtype=np.int64)


def _along(algebra: _Algebra, field: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The derivative of a polynomial along a field, Σ_v field_v ∂_v g."""
    left, right, product = algebra.products
    total = np.zeros_like(g)
    for component, (of, to, factor) in zip(field, algebra.derivatives, strict=True):
        slope = np.zeros_like(g)
        slope[to] = factor * g[of]
        total += np.bincount(product, component[left] * slope[right], minlength=len(g))
    return total


def _expansions(
    system: System,
    observables: Mapping[str, Callable[..., Any]],
    initial: tuple[Any, Any],
    algebra: _Algebra,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Taylor polynomials of the drift (2·dim), the noise fields (m, 2·dim) and the observables."""
    z = np.concatenate([np.asarray(x, np.float64) for x in initial])
    degrees = algebra.degrees
    # Twice as many lines as needed, so that no equation below is badly conditioned.
    lines = 2 * int(np.sum(degrees == degrees[-1]))
    directions = np.random.default_rng(0).standard_normal((lines, len(z)))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # The rules of `jet` mix types and ranks.
    with (
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        derivatives = _line_derivatives(system, tuple(observables.values()), int(degrees[-1]))
        try:
            found = np.asarray(derivatives(directions, z))
        except (KeyError, NotImplementedError) as error:  # `jet` looks its rules up in a dict
            raise NotImplementedError(
                f"the generator series needs Taylor expansions, and for one function there is no "
                f"rule ({error}): give the exact value, or a reference method such as da.rs1()."
            ) from error
    coefficients = _polynomials(algebra, directions, found)
    fields, phi = np.split(coefficients, [2 * system.dim * (1 + system.noises)])
    fields = fields.reshape(1 + system.noises, 2 * system.dim, -1)
    return fields[0], fields[1:], phi


@lru_cache(maxsize=32)
def _line_derivatives(
    system: System, observables: tuple[Callable[..., Any], ...], degree: int
) -> Callable[..., Any]:
    """Derivatives of all fields and observables along lines through z: (lines, degree + 1, r)."""
    from jax.experimental.jet import jet

    def everything(z: Any) -> Any:
        q, p = z[: system.dim], z[system.dim :]
        noise_q, noise_p = system.diffusion(q, p)
        parts = [*system.drift(q, p)]
        for i in range(system.noises):
            parts += [noise_q[i], noise_p[i]]
        for phi in observables:
            parts.append(jnp.reshape(system.evaluate(phi, q, p, system.params), (1,)))
        return jnp.concatenate(parts)

    def along(direction: Any, z: Any) -> Any:
        series = [direction, *[jnp.zeros_like(direction)] * (degree - 1)]
        value, derivatives = jet(everything, (z,), (series,))
        return jnp.stack([value, *derivatives])

    return jax.jit(jax.vmap(along, in_axes=(0, None)))


def _polynomials(algebra: _Algebra, directions: np.ndarray, derivatives: np.ndarray) -> np.ndarray:
    """Coefficients (r, monomials) from derivatives (lines, degree + 1, r) along lines."""
    degrees = algebra.degrees
    coefficients = np.zeros((derivatives.shape[2], len(degrees)))
    for d in range(derivatives.shape[1]):
        here = degrees == d
        exponents = algebra.exponents[here]
        # Scaled by the roots of the multinomial coefficients, monomials are nearly orthogonal.
        scale = np.sqrt([factorial(d) / prod(map(factorial, row)) for row in exponents.tolist()])
        matrix = np.prod(directions[:, None, :] ** exponents, axis=2) * scale
        found = np.linalg.lstsq(matrix, derivatives[:, d] / factorial(d), rcond=None)[0]
        coefficients[:, here] = (found * scale[:, None]).T
    return coefficients
