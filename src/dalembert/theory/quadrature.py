"""Expectations over the increments of one step, as weighted sums.

For the three-point variables the sum over all outcomes is exact. For Gaussian increments

- if the noise is additive and the dynamics linear, one step is affine in the increments, and any
  rule with the right covariance is exact: ±√k e_j for k variables;
- otherwise tensor products of one-dimensional rules, finer and finer until the caller sees no
  change. A step is polynomial in the increments for explicit methods, where a few Gauss–Hermite
  nodes are exact, and rational for implicit ones. There Gauss–Hermite rules with n nodes err by
  about exp(−2d√(2n)) if the nearest pole is d standard deviations off the real axis, and beyond
  128 nodes the trapezoidal rule with spacing δ does better: exp(−2πd/δ).

A pole *on* the real axis makes the second moments infinite, strictly speaking. Where it lies more
than about ten standard deviations out, no rule sees it, nor does any simulation: the sums then are
the moments under increments that are truncated before the pole.
"""

from collections.abc import Iterator
from math import erfc, pi, sqrt
from typing import NamedTuple

import numpy as np

from dalembert.methods.coefficients import Array
from dalembert.noise import Gaussian, Increments, ThreePoint, Zero, enumerate_three_point
from dalembert.noise.truncation import bound as truncation_bound
from dalembert.noise.truncation import truncated_variance

FEWEST_NODES = 4
MOST_HERMITE_NODES = 128
"""NumPy computes the nodes and weights by an eigenvalue problem; here they are still accurate."""
MOST_LEGENDRE_NODES = 512
"""For a bounded law: enough for a pole one part in a thousand beyond the bound."""
MOST_NODES = 2**17
REACH = 12.0
"""The trapezoidal rule ends at ±12 standard deviations, where the density is e⁻⁷² = 5e−32."""
NEGLIGIBLE = 1e-32
"""Weights below this are dropped: even x⁸ at their nodes adds nothing in double precision."""


class QuadratureRule(NamedTuple):
    """Increments of one step, their weights, and whether the sum is known to be exact."""

    increments: Increments
    weights: Array
    exact: bool


def increment_rules(
    noise: object, noises: int, dt: float, *, needs: frozenset[str], affine: bool
) -> Iterator[QuadratureRule]:
    """Rules for the increments of one step, each finer than the one before, or a single exact one.

    `needs` are the increments that are read; `affine` says that the step is affine in them.
    """
    needs_dZ, needs_coin = "dZ" in needs, "coin" in needs
    if "area" in needs or (needs_coin and not isinstance(noise, ThreePoint)):
        raise ValueError(
            "there is no rule for expectations over areas, or over Gaussian increments with a "
            "coin: use da.ThreePoint(), or da.simulate."
        )
    if not isinstance(noise, Gaussian | ThreePoint | Zero):
        raise ValueError(
            f"{type(noise).__name__} noise has no law to take expectations over: use da.Gaussian() "
            "or da.ThreePoint()."
        )
    noise.check(dt=dt, steps=1, paths=1, noises=noises)
    variables = 2 * noises if needs_dZ else noises
    if isinstance(noise, Zero) or noises == 0:
        yield QuadratureRule(
            _increments(np.zeros((1, noises)), dt, needs_dZ=False), np.ones(1), True
        )
    elif affine and not needs_coin:
        nodes = sqrt(variables * _variance(noise, dt)) * np.eye(variables)
        x = np.concatenate([nodes, -nodes])
        yield QuadratureRule(_increments(x, dt, needs_dZ), np.full(len(x), 1 / len(x)), True)
    elif isinstance(noise, ThreePoint):
        yield QuadratureRule(*enumerate_three_point(noises, dt, needs_coin), True)
    else:
        bound = _bound(noise, dt)
        n = FEWEST_NODES
        finest = MOST_NODES if bound is None else MOST_LEGENDRE_NODES
        while n <= finest and n**variables <= MOST_NODES:
            x, weights = _tensor(*_one_dimensional(n, bound), variables)
            keep = weights > NEGLIGIBLE
            yield QuadratureRule(_increments(x[keep], dt, needs_dZ), weights[keep], False)
            n *= 2


def _increments(x: Array, dt: float, needs_dZ: bool) -> Increments:
    """ΔW = √h χ and ΔZ = h^{3/2}/2 (χ + η/√3) from standard variables x = χ or (χ, η)."""
    noises = x.shape[1] // 2 if needs_dZ else x.shape[1]
    chi, eta = x[:, :noises], x[:, noises:] if needs_dZ else np.zeros_like(x)
    dZ = dt * sqrt(dt) / 2 * (chi + eta / sqrt(3))
    return Increments(sqrt(dt) * chi, dZ, np.zeros((len(x), noises, noises)))


def _tensor(nodes: Array, weights: Array, variables: int) -> tuple[Array, Array]:
    grids = np.meshgrid(*[nodes] * variables, indexing="ij")
    products = np.ones(())
    for _ in range(variables):
        products = np.multiply.outer(products, weights)
    return np.stack([grid.ravel() for grid in grids], axis=1), products.ravel()


def _one_dimensional(n: int, bound: float | None) -> tuple[Array, Array]:
    """Nodes and weights for the normal law, or for the one that is clipped to [−bound, bound]."""
    if bound is not None:
        # A density in between and an atom at either end.
        nodes, weights = np.polynomial.legendre.leggauss(n)
        nodes, weights = bound * nodes, bound * weights * np.exp(-((bound * nodes) ** 2) / 2)
        ends, atoms = [-bound, bound], [erfc(bound / sqrt(2)) / 2] * 2
        return np.append(nodes, ends), np.append(weights / sqrt(2 * pi), atoms)
    if n <= MOST_HERMITE_NODES:
        nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    else:
        nodes = np.linspace(-REACH, REACH, n)
        weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


def _bound(noise: Gaussian, dt: float) -> float | None:
    """The bound of a truncated ΔW in units of √h."""
    return None if noise.truncation is None else truncation_bound(noise.truncation, dt)


def _variance(noise: Gaussian | ThreePoint, dt: float) -> float:
    """The variance of ΔW/√h."""
    k = noise.truncation if isinstance(noise, Gaussian) else None
    return 1.0 if k is None else truncated_variance(k, dt)
