"""Van der Pol's oscillator with additive noise: a noisy limit cycle."""

import math
from typing import Any

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rules, above_zero, parameters

__all__ = ["STATIONARY_ENERGY", "averaged_energy", "van_der_pol"]

STATIONARY_ENERGY = 2.315959
"""Stationary E(H) for ν = 0.001, σ = 0.05, from the two-dimensional stationary Fokker–Planck
equation solved numerically. Averaging over the phase, `averaged_energy`, gives 2.315957. The
2.3165 of `MilsteinTretyakov2007`, quoted by `KrausTyranowski2021`, is a Monte-Carlo estimate
with a standard error of about 7e−4. From q = p = 1 the run is not stationary at t = 5000:
E(H) = 1.99853, 2.23282, 2.30985, 2.31430, 2.31595 at t = 1000, 2000, 4000, 5000, 10000."""


def _H(q: Any, p: Any, params: Params) -> Any:
    return (p[0] ** 2 + q[0] ** 2) / 2


def _F(q: Any, p: Any, params: Params) -> Any:
    return params["nu"] * (1 - q**2) * p


def _h(q: Any, p: Any, params: Params) -> Any:
    return -params["sigma"] * q[0]


@says_its_words
def van_der_pol(nu: Any = 0.001, sigma: Any = 0.05) -> System:
    """Van der Pol's oscillator with one additive noise.

        dq = p dt
        dp = (−q + ν (1 − q²) p) dt + σ dW

        H = (p² + q²)/2,   F = ν (1 − q²) p,   h = −σ q,   f = 0

    Args:
        nu: strength ν of the nonlinear damping, a rate.
        sigma: noise intensity σ.

    Invariants: none. F is not globally Lipschitz.
    Exact results: none in closed form; `STATIONARY_ENERGY` for the defaults, and
    `averaged_energy` for other small ν and σ. The paper starts from q = p = 1.
    Source: `KrausTyranowski2021`, section 4.2; `MilsteinTretyakov2007`.
    """
    params = parameters(nu=nu, sigma=sigma)
    return System(H=_H, F=_F, h=[_h], dim=1, params=params, name="van_der_pol", check=Rules({}))


def averaged_energy(nu: float = 0.001, sigma: float = 0.05) -> float:
    """Stationary E(H) in the limit of small ν and σ² at a fixed ratio.

    Averaged over a period, the energy E obeys the Itô equation
    dE = (ν(E − E²/2) + σ²/2) dt + σ√E dW, whose stationary density is the half of a normal one,
    ρ(E) ∝ exp(−(E − 2)²/(2s²)) on E > 0 with s² = σ²/ν. Its mean is

        E(H) = 2 + s φ(2/s)/Φ(2/s),     φ, Φ: standard normal density and distribution.
    """
    above_zero("without it nothing is stationary", nu=nu, sigma=sigma)
    s = sigma / math.sqrt(nu)
    z = 2 / s
    density = math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    distribution = (1 + math.erf(z / math.sqrt(2))) / 2
    return 2 + s * density / distribution
