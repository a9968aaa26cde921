"""The damped Kubo oscillator: an oscillator whose clock is a Brownian motion with drift."""

from typing import Any

import jax.numpy as jnp

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rules, exact, parameters, require

__all__ = ["damped_kubo", "kubo_energy", "kubo_path"]


def _H(q: Any, p: Any, params: Params) -> Any:
    return (p[0] ** 2 + q[0] ** 2) / 2


def _F(q: Any, p: Any, params: Params) -> Any:
    return -params["nu"] * p


def _h(q: Any, p: Any, params: Params) -> Any:
    return params["beta"] * (p[0] ** 2 + q[0] ** 2) / 2


def _f(q: Any, p: Any, params: Params) -> Any:
    return -params["beta"] * params["nu"] * p


@says_its_words
def damped_kubo(beta: Any = 0.5, nu: Any = 0.001) -> System:
    """Damped Kubo oscillator: fluctuating frequency, one multiplicative noise.

        dq = p dt + β p ∘ dW
        dp = (−q − ν p) dt + β (−q − ν p) ∘ dW

        H = (p² + q²)/2,   F = −ν p,   h = β H,   f = β F

    Args:
        beta: noise intensity β, in units of (time)^½.
        nu: damping coefficient ν, a rate; any sign, 0 ≤ ν < 2 is the underdamped oscillator.

    Invariants: none; for ν = 0 the energy H is one.
    Exact results: for 0 ≤ ν < 2 every path, `kubo_path`, and the mean energy, `kubo_energy`.
    The paper starts from q = 2, p = 0.
    Source: `KrausTyranowski2021`, section 4.1.
    """
    params = parameters(beta=beta, nu=nu)
    return System(
        H=_H, F=_F, h=[_h], f=[_f], dim=1, params=params, name="damped_kubo", check=Rules({})
    )


def kubo_path(
    t: Any, W: Any, q0: Any = 2.0, p0: Any = 0.0, beta: Any = 0.5, nu: Any = 0.001
) -> tuple[Any, Any]:
    """The exact (q, p) at time t on the path whose Wiener process has the value W at t.

    It is the deterministic damped oscillator at the shifted time τ = t + β W(t):

        q = e^{−ντ/2} [q₀ cos ωτ + (p₀ + ν q₀/2) sin(ωτ)/ω]
        p = e^{−ντ/2} [p₀ cos ωτ − (q₀ + ν p₀/2) sin(ωτ)/ω],     ω = √(1 − ν²/4)

    All arguments broadcast. Source: `KrausTyranowski2021`, section 4.1.
    """
    _require_underdamped(nu)
    return exact(_path, t, W, q0, p0, beta, nu)


def kubo_energy(t: Any, q0: Any = 2.0, p0: Any = 0.0, beta: Any = 0.5, nu: Any = 0.001) -> Any:
    """The exact mean energy E(H) at time t from the fixed initial point (q₀, p₀).

        E(H) = a e^{−ν(2 − β²ν)t/2}
             + e^{−((2 − ν²)β² + ν)t} [b cos(2(1 − β²ν)ωt) + c sin(2(1 − β²ν)ωt)]

        a = 2(p₀² + q₀² + ν p₀q₀)/(4 − ν²)
        b = −(ν²(p₀² + q₀²) + 4ν p₀q₀)/(2(4 − ν²))
        c = ν(q₀² − p₀²)/(2√(4 − ν²)),     ω = √(4 − ν²)/2

    All arguments broadcast. Source: `KrausTyranowski2021`, section 4.1.
    """
    _require_underdamped(nu)
    return exact(_energy, t, q0, p0, beta, nu)


def _path(t: Any, W: Any, q0: Any, p0: Any, beta: Any, nu: Any) -> tuple[Any, Any]:
    omega = jnp.sqrt(4 - nu**2) / 2
    tau = t + beta * W
    decay, cos, sin = jnp.exp(-nu * tau / 2), jnp.cos(omega * tau), jnp.sin(omega * tau)
    q = decay * (q0 * cos + (p0 + nu * q0 / 2) / omega * sin)
    p = decay * (p0 * cos - (q0 + nu * p0 / 2) / omega * sin)
    return q, p


def _energy(t: Any, q0: Any, p0: Any, beta: Any, nu: Any) -> Any:
    square, product, gap = p0**2 + q0**2, p0 * q0, 4 - nu**2
    a = 2 * (square + nu * product) / gap
    b = -(nu**2 * square + 4 * nu * product) / (2 * gap)
    c = nu * (q0**2 - p0**2) / (2 * jnp.sqrt(gap))
    phase = (1 - beta**2 * nu) * jnp.sqrt(gap) * t
    slow = jnp.exp(-nu * (2 - beta**2 * nu) / 2 * t)
    fast = jnp.exp(-((2 - nu**2) * beta**2 + nu) * t)
    return a * slow + fast * (b * jnp.cos(phase) + c * jnp.sin(phase))


def _require_underdamped(nu: Any) -> None:
    require(
        "nu",
        nu,
        "in 0 <= nu < 2",
        lambda v: (v >= 0) & (v < 2),
        "the exact solution is that of the underdamped oscillator; "
        "take a smaller nu, or simulate damped_kubo, which accepts any nu",
    )
