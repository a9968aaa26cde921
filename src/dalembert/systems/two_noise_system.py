"""A nonlinear oscillator with two noises that do not commute."""

from typing import Any

import jax.numpy as jnp

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rules, parameters

__all__ = ["two_noise"]


def _H(q: Any, p: Any, params: Params) -> Any:
    return (p[0] ** 2 + q[0] ** 2) / 2 - jnp.cos(q[0])


def _F(q: Any, p: Any, params: Params) -> Any:
    return -params["nu"] * p


def _h1(q: Any, p: Any, params: Params) -> Any:
    return params["beta1"] * jnp.sin(p[0])


def _h2(q: Any, p: Any, params: Params) -> Any:
    return params["beta2"] * jnp.cos(q[0])


def _f2(q: Any, p: Any, params: Params) -> Any:
    return -params["kappa"] * jnp.sin(p)


@says_its_words
def two_noise(nu: Any = 0.1, beta1: Any = 0.5, beta2: Any = 0.5, kappa: Any = 0.1) -> System:
    """Pendulum on a spring with two non-commuting noises.

        dq = p dt + β₁ cos p ∘ dW₁
        dp = (−q − sin q − ν p) dt + (β₂ sin q − κ sin p) ∘ dW₂

        H = (p² + q²)/2 − cos q,   F = −ν p
        h₁ = β₁ sin p,   f₁ = 0,   h₂ = β₂ cos q,   f₂ = −κ sin p

    The bracket of the two noise fields is

        Γ₁₂ − Γ₂₁ = β₁ sin p (β₂ sin q − κ sin p),   Λ₁₂ − Λ₂₁ = β₁β₂ cos p cos q,

    which is (0, β₁β₂) at the origin: without Lévy areas, methods are of strong order ½ here.
    The drift is globally Lipschitz and the noise bounded, and the spring holds the solution.

    Args:
        nu: damping ν, a rate.
        beta1: noise β₁ in the velocity.
        beta2: noise β₂ in the gravity.
        kappa: noise κ in the friction.

    Invariants: none.
    Exact results: none.
    Source: made for order measurements with the commutation conditions of
    `KrausTyranowski2021`, section 3.3.2.
    """
    params = parameters(nu=nu, beta1=beta1, beta2=beta2, kappa=kappa)
    return System(
        H=_H,
        F=_F,
        h=[_h1, _h2],
        f=[None, _f2],
        dim=1,
        params=params,
        name="two_noise",
        check=Rules({}),
    )
