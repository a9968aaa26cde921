"""A damped pendulum with one nonlinear multiplicative noise."""

from typing import Any

import jax.numpy as jnp

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rules, parameters

__all__ = ["pendulum"]


def _H(q: Any, p: Any, params: Params) -> Any:
    return p[0] ** 2 / 2 - jnp.cos(q[0])


def _F(q: Any, p: Any, params: Params) -> Any:
    return -params["nu"] * p


def _h(q: Any, p: Any, params: Params) -> Any:
    return params["sigma"] * jnp.cos(q[0])


def _f(q: Any, p: Any, params: Params) -> Any:
    return -params["kappa"] * jnp.sin(q) * p


@says_its_words
def pendulum(nu: Any = 0.1, sigma: Any = 0.3, kappa: Any = 0.2) -> System:
    """Damped pendulum whose pivot and friction are shaken by one noise.

        dq = p dt
        dp = (−sin q − ν p) dt + (σ − κ p) sin q ∘ dW

        H = p²/2 − cos q,   F = −ν p,   h = σ cos q,   f = −κ p sin q

    Everything is smooth, and grows at most linearly in p; the angle q is not wrapped. Both h
    and f contribute to the noise, and the Itô correction of dp, −(κ/2)(σ − κ p) sin² q dt, does
    not vanish, so an order that is lost on a nonlinear problem, or an Itô scheme in the wrong
    place, shows.

    Args:
        nu: damping ν; the unit of time is that of small undamped swings, 2π a period.
        sigma: noise σ in the gravity.
        kappa: noise κ in the friction.

    Invariants: none; for ν = σ = κ = 0 the energy H is one.
    Exact results: none.
    Source: made for order measurements, in the setting of `KrausTyranowski2021`, section 2.
    """
    params = parameters(nu=nu, sigma=sigma, kappa=kappa)
    return System(
        H=_H, F=_F, h=[_h], f=[_f], dim=1, params=params, name="pendulum", check=Rules({})
    )
