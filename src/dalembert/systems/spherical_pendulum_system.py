"""The spherical pendulum: a point on a sphere under gravity."""

from typing import Any

import jax.numpy as jnp

from dalembert.constraints import missed_length
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, one_mass, positive
from dalembert.systems._thermal import with_thermostat

__all__ = ["on_sphere", "spherical_pendulum"]


def on_sphere(q: Any, params: Params) -> Any:
    """(|q|² − l²)/2l, shape (1,)."""
    return missed_length(q[None], params["length"])


def _H(q: Any, p: Any, params: Params) -> Any:
    return jnp.sum(p**2) / (2 * params["mass"]) + params["mass"] * params["gravity"] * q[2]


@says_its_words
def spherical_pendulum(
    gravity: Any = 1.0, length: Any = 1.0, mass: Any = 1.0, gamma: Any = 0.0, temperature: Any = 1.0
) -> System:
    """Spherical pendulum in Cartesian coordinates: a point on a sphere around the origin.

        dq = (p/m) dt
        dp = (−m g e_z − γ p) dt + √(2γmT) dW − q/l dλ,     |q| = l

        H = |p|²/(2m) + m g z,   F = −γ p,   h(q, p, w) = −√(2γmT) q·w

    Args:
        gravity: g, an acceleration.
        length: l > 0.
        mass: m > 0.
        gamma: friction γ ≥ 0, a rate; 0 leaves the Hamiltonian system without noise, and γ and T
            are none of its parameters.
        temperature: T ≥ 0, an energy.

    Invariants: the energy H, for γ = 0; so is the angular momentum x p_y − y p_x.
    Exact results: at (l sin θ, 0, −l cos θ) it stays at the height −l cos θ with the momentum
    p_y = m l sin θ √(g/(l cos θ)).
    Source: `HairerLubichWanner2006`, section VII.1.
    """
    numbers = {"gravity": gravity, "length": length, "mass": mass}
    rules = {"length": positive("it is a length"), "mass": one_mass()}
    name = "spherical_pendulum"
    return with_thermostat(_H, 3, name, gamma, temperature, on_sphere, rules, **numbers)
