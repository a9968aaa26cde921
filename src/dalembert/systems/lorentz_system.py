"""A particle of a plasma with Lorentz collisions: pitch-angle scattering at constant energy."""

from typing import Any

import jax.numpy as jnp

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rules, exact, minimum, parameters, require

__all__ = ["INITIAL_ENERGY", "initial_density", "lorentz"]

INITIAL_ENERGY = 1.0
"""The mean of H over `initial_density`, and so E(H) at every later time. It is kinetic only:
sin 4πx is orthogonal to 1 + ε cos 2πx."""


def _H(q: Any, p: Any, params: Params) -> Any:
    x, y = 4 * jnp.pi * q[0], 4 * jnp.pi * q[1]
    kinetic = (p[0] ** 2 + p[1] ** 2) / 2
    return kinetic + params["E0"] / (4 * jnp.pi) * jnp.sin(x) * jnp.sin(y)


def _f(q: Any, p: Any, params: Params) -> Any:
    return jnp.sqrt(2 * params["nu"]) * jnp.stack([p[1], -p[0]])


@says_its_words
def lorentz(nu: Any = 0.005, E0: Any = 3.0) -> System:
    """Vlasov equation with the Lorentz collision operator; q = (X, Y), p = (Vx, Vy).

        dX = Vx dt,   dVx = −Ex(X, Y) dt + √(2ν) Vy ∘ dW
        dY = Vy dt,   dVy = −Ey(X, Y) dt − √(2ν) Vx ∘ dW,     (Ex, Ey) = −∇φ

        H = (Vx² + Vy²)/2 − φ(X, Y),   φ(x, y) = −(E₀/4π) sin 4πx sin 4πy
        F = 0,   h = 0,   f = √(2ν) (Vy, −Vx)

    The noise turns the velocity and leaves its length alone. Its density solves
    ρ_t + v·∇ρ − E·∇_v ρ = ν (vx ∂/∂vy − vy ∂/∂vx)² ρ. The paper prints f = √(2ν) (Vx, −Vy),
    which does not belong to its own equations and does not keep the energy. X and Y are not
    wrapped; densities in x and y are those of X and Y modulo 1.

    Args:
        nu: collision rate ν ≥ 0.
        E0: largest electric field E₀.

    Invariants: the energy H, along every path.
    Exact results: E(H) = `INITIAL_ENERGY` = 1 from the paper's `initial_density`.
    Source: `KrausTyranowski2021`, section 4.3.2, with the forcing corrected.
    """
    params = parameters(nu=nu, E0=E0)
    return System(
        H=_H,
        f=[_f],
        dim=2,
        params=params,
        name="lorentz",
        invariants={"energy": _H},
        check=Rules({"nu": minimum("it is a collision rate")}),
    )


def initial_density(
    x: Any, y: Any, vx: Any, vy: Any, epsilon1: Any = 0.25, epsilon2: Any = 0.25
) -> Any:
    """The paper's initial density, normalised on [0, 1]² × ℝ²: Maxwellian in the velocity.

    ρ = (1 + ε₁ cos 2πx) (1 + ε₂ cos 2πy) e^{−(vx² + vy²)/2}/(2π),     |ε₁|, |ε₂| ≤ 1
    """
    for name, value in (("epsilon1", epsilon1), ("epsilon2", epsilon2)):
        require(name, value, f"in -1 <= {name} <= 1", lambda v: abs(v) <= 1, "ρ is positive")
    return exact(_density, x, y, vx, vy, epsilon1, epsilon2)


def _density(x: Any, y: Any, vx: Any, vy: Any, epsilon1: Any, epsilon2: Any) -> Any:
    space = (1 + epsilon1 * jnp.cos(2 * jnp.pi * x)) * (1 + epsilon2 * jnp.cos(2 * jnp.pi * y))
    return space * jnp.exp(-(vx**2 + vy**2) / 2) / (2 * jnp.pi)
