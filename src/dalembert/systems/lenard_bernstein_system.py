"""A particle of a plasma with Lenard–Bernstein collisions in a periodic electric field."""

import math
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import i0e, i1e

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import (
    Params,
    Rules,
    above_zero,
    at_least_zero,
    exact,
    minimum,
    parameters,
    require,
)

__all__ = [
    "bump_on_tail_density",
    "bump_on_tail_v",
    "bump_on_tail_x",
    "ergodic_energy",
    "gibbs_density",
    "gibbs_density_v",
    "gibbs_density_x",
    "initial_energy",
    "lenard_bernstein",
]

ROOT_TWO = math.sqrt(2)


def _H(q: Any, p: Any, params: Params) -> Any:
    return p[0] ** 2 / 2 + params["E0"] / (4 * jnp.pi) * jnp.sin(4 * jnp.pi * q[0])


def _F(q: Any, p: Any, params: Params) -> Any:
    return -params["nu"] * params["mu"] * p


def _h(q: Any, p: Any, params: Params) -> Any:
    return -jnp.sqrt(params["nu"]) * params["D"] * q[0]


@says_its_words
def lenard_bernstein(nu: Any = 0.01, mu: Any = 1.0, D: Any = ROOT_TWO, E0: Any = 3.0) -> System:
    """Vlasov equation with the Lenard–Bernstein collision operator; q = X, p = V.

        dX = V dt
        dV = (−E(X) − νμ V) dt + √ν D dW,     E(x) = −φ'(x) = E₀ cos 4πx

        H = V²/2 − φ(X),   φ(x) = −(E₀/4π) sin 4πx,   F = −νμ V,   h = −√ν D X,   f = 0

    Its density solves ρ_t + v ρ_x − E ρ_v = ν (μ (vρ)_v + (D²/2) ρ_vv). The potential has
    period ½; X is not wrapped, and densities in x are those of X modulo 1.

    Args:
        nu: collision rate ν ≥ 0.
        mu: friction μ, in units of ν.
        D: diffusion D; the temperature is D²/(2μ).
        E0: largest electric field E₀.

    Invariants: none.
    Exact results: the stationary `gibbs_density` and its mean energy `ergodic_energy`; the
    paper's initial density `bump_on_tail_density` and its mean energy `initial_energy`.
    Source: `KrausTyranowski2021`, section 4.3.1; `LenardBernstein1958`.
    """
    params = parameters(nu=nu, mu=mu, D=D, E0=E0)
    return System(
        H=_H,
        F=_F,
        h=[_h],
        dim=1,
        params=params,
        name="lenard_bernstein",
        check=Rules({"nu": minimum("it is a collision rate")}),
    )


def gibbs_density(x: Any, v: Any, mu: Any = 1.0, D: Any = ROOT_TWO, E0: Any = 3.0) -> Any:
    """The stationary density exp(−2μ H(x, v)/D²)/Z, normalised on [0, 1] × ℝ.

    It is the product of its marginals, so Z = I₀(2μE₀/(4πD²)) √(πD²/μ).
    """
    _require_temperature(mu, D)
    return exact(
        lambda x, v, mu, D, E0: _gibbs_x(x, mu, D, E0) * _gibbs_v(v, mu, D), x, v, mu, D, E0
    )


def gibbs_density_x(x: Any, mu: Any = 1.0, D: Any = ROOT_TWO, E0: Any = 3.0) -> Any:
    """Stationary density of the position: exp(−κ sin 4πx)/I₀(κ) with κ = μE₀/(2πD²)."""
    _require_temperature(mu, D)
    return exact(_gibbs_x, x, mu, D, E0)


def gibbs_density_v(v: Any, mu: Any = 1.0, D: Any = ROOT_TWO) -> Any:
    """Stationary density of the velocity: normal, with mean 0 and variance D²/(2μ)."""
    _require_temperature(mu, D)
    return exact(_gibbs_v, v, mu, D)


def ergodic_energy(mu: Any = 1.0, D: Any = ROOT_TWO, E0: Any = 3.0) -> Any:
    """The mean of H over the Gibbs density; 0.4717045212 for the defaults.

    With the temperature θ = D²/(2μ) and c = E₀/4π the kinetic part is θ/2, and the mean of
    sin 4πx over exp(−(c/θ) sin 4πx) is −I₁/I₀, so

        H_erg = θ/2 − c I₁(c/θ)/I₀(c/θ).
    """
    _require_temperature(mu, D)
    return exact(_ergodic_energy, mu, D, E0)


def bump_on_tail_density(
    x: Any, v: Any, epsilon: Any = 0.25, a: Any = 0.5, v0: Any = 4.0, sigma: Any = 0.5
) -> Any:
    """The paper's initial density, normalised on [0, 1] × ℝ: ρ_X(x) ρ_V(v).

    Args:
        x, v: position and velocity, broadcast against each other.
        epsilon: size of the perturbation in space, |ε| ≤ 1.
        a: weight of the bump relative to the bulk, a ≥ 0.
        v0: velocity of the bump.
        sigma: width of the bump.
    """
    _require_bump(epsilon, a, sigma)
    return exact(
        lambda x, v, epsilon, *bump: _bump_x(x, epsilon) * _bump_v(v, *bump),
        *(x, v, epsilon, a, v0, sigma),
    )


def bump_on_tail_x(x: Any, epsilon: Any = 0.25) -> Any:
    """Initial density of the position: 1 + ε cos 2πx."""
    _require_bump(epsilon=epsilon)
    return exact(_bump_x, x, epsilon)


def bump_on_tail_v(v: Any, a: Any = 0.5, v0: Any = 4.0, sigma: Any = 0.5) -> Any:
    """Initial density of the velocity: (N(0, 1) + a N(v₀, σ²))/(1 + a)."""
    _require_bump(a=a, sigma=sigma)
    return exact(_bump_v, v, a, v0, sigma)


def initial_energy(a: Any = 0.5, v0: Any = 4.0, sigma: Any = 0.5) -> Any:
    """The mean of H over `bump_on_tail_density`; 3.0416667 for the defaults.

    It is kinetic only, (1 + a (v₀² + σ²))/(2(1 + a)): sin 4πx is orthogonal to 1 + ε cos 2πx.
    """
    return (1 + a * (v0**2 + sigma**2)) / (2 * (1 + a))


def _gibbs_x(x: Any, mu: Any, D: Any, E0: Any) -> Any:
    # i0e(κ) = e^{−|κ|} I₀(κ): numerator and denominator stay finite for every field.
    kappa = mu * E0 / (2 * jnp.pi * D**2)
    return jnp.exp(-kappa * jnp.sin(4 * jnp.pi * x) - jnp.abs(kappa)) / i0e(kappa)


def _gibbs_v(v: Any, mu: Any, D: Any) -> Any:
    return _normal(v, D / jnp.sqrt(2 * mu))


def _ergodic_energy(mu: Any, D: Any, E0: Any) -> Any:
    theta, c = D**2 / (2 * mu), E0 / (4 * jnp.pi)
    return theta / 2 - c * i1e(c / theta) / i0e(c / theta)


def _bump_x(x: Any, epsilon: Any) -> Any:
    return 1 + epsilon * jnp.cos(2 * jnp.pi * x)


def _bump_v(v: Any, a: Any, v0: Any, sigma: Any) -> Any:
    return (_normal(v, 1.0) + a * _normal(v - v0, sigma)) / (1 + a)


def _normal(v: Any, deviation: Any) -> Any:
    return jnp.exp(-((v / deviation) ** 2) / 2) / (jnp.sqrt(2 * jnp.pi) * deviation)


def _require_temperature(mu: Any, D: Any) -> None:
    above_zero("the temperature is D²/(2 mu)", mu=mu, D=D)


def _require_bump(epsilon: Any = 0.0, a: Any = 0.0, sigma: Any = 1.0) -> None:
    require("epsilon", epsilon, "in -1 <= epsilon <= 1", lambda v: abs(v) <= 1, "ρ is positive")
    at_least_zero("it is the weight of the bump", a=a)
    above_zero("it is the width of the bump", sigma=sigma)
