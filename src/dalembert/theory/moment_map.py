"""One step of a method on a linear system as a map of moments.

With w = (1, q, p) a step is w' = M(ξ) w; it takes E[w] to E[M] E[w] and S = E[w wᵀ] to
E[M S Mᵀ]. The matrices M(ξ) come from the step that `da.step` takes, and the expectations over the
increments ξ from `quadrature.py`. Symmetric matrices are stored as upper triangles, row by row:
first 1, then the means, then the second moments proper, so that both maps are block triangular.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import isqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept, kept_by
from dalembert.dependence import Degree
from dalembert.driven import refusal
from dalembert.methods import Method
from dalembert.methods.coefficients import Array
from dalembert.noise import Gaussian, Increments, Noise, harmless_truncation, usual_noise
from dalembert.precision import check_dt
from dalembert.stepping.step import check_method
from dalembert.stepping.stepper import Stepper
from dalembert.system import NOISE_TERMS, System
from dalembert.theory.linearity import (
    LinearFields,
    linear_fields,
    linear_fields_at,
    refuse_nonlinear,
    term_degrees,
    value_key,
)
from dalembert.theory.ordered import ordered_exponential
from dalembert.theory.paths import call, one_step
from dalembert.theory.quadrature import QuadratureRule, increment_rules

MAX_DIM = 24
"""The second-moment map has (dim + 1)²(2·dim + 1)² entries: 1.5 million here, growing like dim⁴."""
NODES_AT_A_TIME = 256
"""One shape for all rules, so that a method is compiled once for a system."""
CONVERGED = 2.0**-46
"""Relative change of E[M ⊗ M] from one rule to the next that is put down to rounding."""
MARGINAL = 1e-10
"""A spectral radius this close to one is decided by the powers of the map."""


@dataclass(frozen=True, eq=False)
class MomentMap:
    """How one step acts on the moments of w = (1, q, p).

    Attributes:
        second: S ↦ E[M S Mᵀ] on the upper triangles of symmetric S, row by row.
        first: E[M], of shape (n, n) with n = 2·dim + 1: the first row of S is E[w].
    """

    second: Array

    @property
    def first(self) -> Array:
        n = isqrt(2 * len(self.second))
        return self.second[:n, :n]

    @cached_property
    def growth(self) -> float:
        """The factor per step of the homogeneous second moments: their map's spectral radius."""
        n = len(self.first)
        return float(np.abs(np.linalg.eigvals(self.second[n:, n:])).max())

    @cached_property
    def stable(self) -> bool:
        """Whether second moments stay bounded in the number of steps."""
        if abs(self.growth - 1) > MARGINAL:
            return self.growth < 1
        # On the unit circle Jordan blocks grow, by 2¹⁰ or more between these two powers.
        powers = _squares(self.second, 20)
        early, late = (float(np.abs(m).max()) * 2.0**e for m, e in (powers[10], powers[20]))
        return late < 16 * max(early, 1.0)

    def evolve(self, start: Array, steps: np.ndarray) -> tuple[Array, Array]:
        """E[z] and E[z zᵀ] after each number of steps, in their order."""
        n = len(self.first)
        means = _powers(self.first, start[:n], steps)
        seconds = _powers(self.second, start, steps)
        return means[:, 1:], symmetric(seconds, n)[:, 1:, 1:]


@dataclass(frozen=True, eq=False)
class DrivenMap:
    """How steps of a driven system act on the moments of w: each in its own way.

    Attributes:
        at: the map of the step that begins at a time.
        dt: step size.
    """

    at: Callable[[float], MomentMap]
    dt: float

    @property
    def growth(self) -> Any:
        raise ValueError(
            "moments of a system that is driven in time grow by another factor at every step: "
            "look at the moments themselves."
        )

    stable = growth

    def evolve(self, start: Array, steps: np.ndarray) -> tuple[Array, Array]:
        """E[z] and E[z zᵀ] after each number of steps, in their order."""
        triangles = [start]
        for k in range(int(steps.max(initial=0))):
            triangles.append(self.at(k * self.dt).second @ triangles[-1])
        w = symmetric(np.array(triangles)[steps], isqrt(2 * len(start)))
        return w[:, 0, 1:], w[:, 1:, 1:]


def step_map(
    system: System, method: Method, dt: float, noise: Noise | None
) -> MomentMap | DrivenMap:
    """How steps of a method act on moments, of a driven system each in its own way."""
    if not system.time:
        return method_map(system, method, dt, noise)
    return DrivenMap(partial(method_map, system, method, dt, noise), float(dt))


def method_map(
    system: System, method: Method, dt: float, noise: Noise | None, t: float | None = None
) -> MomentMap:
    """The map of a method, its expectations computed to rounding; if driven at some time."""
    check_method(system, method)
    check_dt(dt)
    if system.time and t is None:
        raise refusal(system)
    additive = _is_additive(system)
    needs = method.needs_for(system)
    law = usual_noise(method.convergence, needs, dt) if noise is None else noise
    if needs - law.offers:
        raise ValueError(
            f"{method.name} needs the increments {sorted(needs - law.offers)}, which "
            f"{type(law).__name__} noise does not offer."
        )
    rules = increment_rules(law, system.noises, dt, needs=needs, affine=additive)
    before, change, nodes = None, np.inf, 0
    for rule in rules:
        nodes = len(rule.weights)
        products = _expected_products(system, method, float(dt), rule, law, t)
        if before is not None:
            change = float(np.abs(products - before).max() / np.abs(products).max())
        if rule.exact or change <= CONVERGED:
            return MomentMap(_on_triangles(products))
        before = products
    raise ValueError(
        f"E[M ⊗ M] of {method.name} on {system.name!r} with dt={dt} does not settle: it still "
        f"changes by {change:.1e} with {nodes} nodes. The step is rational in the increments and "
        "may have a pole near a real one, where Gaussian second moments are infinite. "
        + _remedies(system, method, dt, law, t)
    )


def _remedies(system: System, method: Method, dt: float, law: Noise, t: float | None) -> str:
    """What to do about a pole: truncation too where it is harmless and ends before the pole."""
    k = harmless_truncation(dt) if law == Gaussian() else None
    usual = "a smaller dt, a weak or an explicit method"
    if k and method.needs_for(system) == {"dW"}:
        try:
            method_map(system, method, dt, Gaussian(truncation=k), t)
        except ValueError:
            return f"Use {usual}."
        return f"Use noise=da.Gaussian(truncation={k}), {usual}."
    return f"Use {usual}."


def _is_additive(system: System) -> bool:
    """Whether the noise of a linear system does not depend on the state."""
    if not system.time:
        return not np.any(_fields(system).noises[:, :, 1:])
    _check_dim(system)
    return _has_additive_noise(system)


@kept_by(value_key)
def _has_additive_noise(system: System) -> bool:
    """Whether the noise of a driven linear system is additive at all times, by its traces."""
    refuse_nonlinear(system)
    found = term_degrees(system, (0, 1)).items()
    return all(on <= Degree.CONSTANT for (kind, *_), (on,) in found if kind in NOISE_TERMS)


def solution_map(system: System, dt: float) -> MomentMap | DrivenMap:
    """The map of the exact solution over a time dt, of a driven system each in its own way."""
    check_dt(dt)
    if system.time:
        _check_dim(system)
        return DrivenMap(partial(_driven_solution, system, float(dt)), float(dt))
    with jax.enable_x64(True):
        return MomentMap(np.asarray(jax.scipy.linalg.expm(jnp.asarray(dt * generator(system)))))


def generator(system: System) -> Array:
    """d/dt of E[w wᵀ] on triangles: A ⊗ 1 + 1 ⊗ A + Σ B_i ⊗ B_i, with Itô's A."""
    return _rate(_fields(system))


def _driven_solution(system: System, dt: float, t: float) -> MomentMap:
    def rates(times: np.ndarray) -> Array:
        return np.stack([_rate(fields) for fields in linear_fields_at(system, times)])

    return MomentMap(ordered_exponential(rates, t, dt))


def _rate(fields: LinearFields) -> Array:
    A, one = fields.ito_drift, np.eye(len(fields.drift))
    products = np.einsum("ia,jb->ijab", A, one) + np.einsum("ia,jb->ijab", one, A)
    products += np.einsum("kia,kjb->ijab", fields.noises, fields.noises)
    return _on_triangles(products)


def _fields(system: System) -> LinearFields:
    if not isinstance(system, System):
        raise TypeError(f"system must be a da.System, not {type(system).__name__}.")
    if system.time:
        raise refusal(system)
    fields = linear_fields(system)
    _check_dim(system)
    return fields


def _check_dim(system: System) -> None:
    if system.dim > MAX_DIM:
        raise ValueError(
            f"{system.name!r} has dim={system.dim}: second moments without sampling are computed "
            f"up to dim={MAX_DIM}, where their map has a million entries; use da.simulate."
        )


def _expected_products(
    system: System, method: Method, dt: float, rule: QuadratureRule, law: Noise, t: float | None
) -> Array:
    """E[M_ia M_jb] as an array with axes (i, j, a, b)."""
    n = 2 * system.dim + 1
    products = np.zeros((n * n, n * n))
    for begin in range(0, len(rule.weights), NODES_AT_A_TIME):
        weights = rule.weights[begin : begin + NODES_AT_A_TIME]
        nodes = np.minimum(begin + np.arange(NODES_AT_A_TIME), len(rule.weights) - 1)
        increments = jax.tree.map(lambda x, nodes=nodes: x[nodes], rule.increments)
        found = call(_batched, system, method, dt, increments, 0.0 if t is None else t)
        matrices, converged = (np.asarray(x)[: len(weights)] for x in found)
        if not (np.all(converged) and np.all(np.isfinite(matrices))):
            raise ValueError(
                f"{method.name} on {system.name!r} with dt={dt} has no solution for some "
                "increments: its stage equations are singular there. "
                + _remedies(system, method, dt, law, t)
            )
        flat = matrices.reshape(len(weights), n * n)
        products += (weights[:, None] * flat).T @ flat
    return products.reshape(n, n, n, n).transpose(0, 2, 1, 3)


@kept
def _batched(stepper: Stepper) -> Any:
    """The matrices M(ξ) for many ξ: steps from the origin and from the unit vectors."""
    dim = stepper.system.dim

    def matrix(dt: Any, increments: Increments, t: Any, params: Any) -> tuple[Any, Any]:
        def image(z: Any) -> tuple[Any, Any]:
            q, p, info = one_step(stepper)(*jnp.split(z, 2), dt, increments, params, t)
            return jnp.concatenate([q, p]), info.converged

        images, converged = jax.vmap(image)(jnp.eye(2 * dim + 1, 2 * dim, -1))
        columns = jnp.concatenate([images[:1], images[1:] - images[:1]]).T
        top = jnp.eye(1, 2 * dim + 1)
        return jnp.concatenate([top, columns]), jnp.all(converged)

    return jax.jit(jax.vmap(matrix, in_axes=(None, 0, None, None)))


def _on_triangles(products: Array) -> Array:
    """S ↦ Σ products[i, j, a, b] S_ab as a matrix on the upper triangles of symmetric S."""
    i, j = np.triu_indices(len(products))
    direct, crossed = products[i[:, None], j[:, None], i, j], products[i[:, None], j[:, None], j, i]
    return np.where(i == j, direct, direct + crossed)


def symmetric(triangle: np.ndarray, n: int) -> Array:
    """Symmetric matrices of size n from their upper triangles."""
    matrix = np.zeros((*triangle.shape[:-1], n, n))
    i, j = np.triu_indices(n)
    matrix[..., i, j] = matrix[..., j, i] = triangle
    return matrix


def _powers(matrix: Array, start: Array, steps: np.ndarray) -> Array:
    """matrixᵏ · start for every k in steps; too large numbers become infinite, with their sign."""
    order = np.argsort(steps, kind="stable")
    gaps = np.diff(steps[order], prepend=0)
    squares = _squares(matrix, int(gaps.max(initial=0)).bit_length())
    out = np.empty((len(steps), len(start)))
    vector, exponent = start, 0
    for place, gap in zip(order, gaps, strict=True):
        for bit, (square, shift) in enumerate(squares):
            if int(gap) >> bit & 1:
                vector, more = _normalised(square @ vector)
                exponent += shift + more
        with np.errstate(over="ignore", under="ignore"):
            out[place] = np.ldexp(vector, np.clip(exponent, -(2**30), 2**30))
    return out


def _squares(matrix: Array, count: int) -> list[tuple[Array, int]]:
    """matrix^(2^k) for k = 0, …, count, each as a matrix of size about one times a power of 2."""
    squares = [_normalised(matrix)]
    for _ in range(count):
        last, exponent = squares[-1]
        square, more = _normalised(last @ last)
        squares.append((square, 2 * exponent + more))
    return squares


def _normalised(x: Array) -> tuple[Array, int]:
    exponent = int(np.frexp(np.abs(x).max())[1])
    return np.ldexp(x, -exponent), exponent
