"""A particle in the plane: rotational symmetry, and forces that respect it."""

from typing import Any

import jax.numpy as jnp

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rules, parameters

__all__ = ["planar"]


def _H(q: Any, p: Any, params: Params) -> Any:
    r2 = jnp.dot(q, q)
    return jnp.dot(p, p) / 2 + r2 / 2 + params["delta"] * r2**2 / 4


def _h(q: Any, p: Any, params: Params) -> Any:
    return params["beta"] * jnp.dot(q, p) / (1 + jnp.dot(q, q) + jnp.dot(p, p))


def _F(q: Any, p: Any, params: Params) -> Any:
    return -params["nu"] * _radial(q, p) * q


def _f(q: Any, p: Any, params: Params) -> Any:
    return -params["kappa"] * _radial(q, p) * q


def _radial(q: Any, p: Any) -> Any:
    return jnp.dot(q, p) / (1 + jnp.dot(q, q))


def _angular_momentum(q: Any, p: Any, params: Params) -> Any:
    return q[0] * p[1] - q[1] * p[0]


@says_its_words
def planar(nu: Any = 0.1, delta: Any = 1.0, beta: Any = 0.3, kappa: Any = 0.1) -> System:
    """Quartic oscillator in the plane with radial friction and one rotationally symmetric noise.

        dq = p dt + β (q/n − 2 s p/n²) ∘ dW
        dp = (−(1 + δ|q|²) q − ν s q/(1 + |q|²)) dt
             + (−β (p/n − 2 s q/n²) − κ s q/(1 + |q|²)) ∘ dW

        s = q·p,   n = 1 + |q|² + |p|²
        H = |p|²/2 + |q|²/2 + δ|q|⁴/4,   F = −ν s q/(1 + |q|²)
        h = β s/n,   f = −κ s q/(1 + |q|²)

    H and h depend on |q|², q·p and |p|² alone, and F and f point along q, so that their work
    against a rotation, F·(−q₂, q₁), is zero: Noether's theorem with forcing applies. h is
    nonlinear, non-separable and bounded; the noise grows at most linearly in p.

    Args:
        nu: radial friction ν, a rate.
        delta: strength δ of the quartic potential.
        beta: noise β in the Hamiltonian.
        kappa: noise κ in the friction.

    Invariants: the angular momentum q₁p₂ − q₂p₁, along every path.
    Exact results: none beyond the invariant.
    Source: made for momentum maps, in the setting of `KrausTyranowski2021`, section 2.3.
    """
    params = parameters(nu=nu, delta=delta, beta=beta, kappa=kappa)
    return System(
        H=_H,
        F=_F,
        h=[_h],
        f=[_f],
        dim=2,
        params=params,
        name="planar",
        check=Rules({}),
        invariants={"angular_momentum": _angular_momentum},
    )
