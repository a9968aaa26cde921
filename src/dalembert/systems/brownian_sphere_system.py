"""Brownian motion on a sphere in a field: Langevin's model of a dipole."""

from typing import Any

import jax.numpy as jnp

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, above_zero, exact, one_mass, positive
from dalembert.systems._thermal import with_thermostat
from dalembert.systems.spherical_pendulum_system import on_sphere

__all__ = ["brownian_sphere", "mean_height"]


def _H(q: Any, p: Any, params: Params) -> Any:
    return jnp.sum(p**2) / (2 * params["mass"]) + params["field"] * q[2]


@says_its_words
def brownian_sphere(
    field: Any = 2.0, gamma: Any = 1.0, temperature: Any = 1.0, length: Any = 1.0, mass: Any = 1.0
) -> System:
    """Brownian motion with inertia on a sphere, in a uniform field.

        dq = (p/m) dt
        dp = (−a e_z − γ p) dt + √(2γmT) dW − q/l dλ,     |q| = l

        H = |p|²/(2m) + a z,   F = −γ p,   h(q, p, w) = −√(2γmT) q·w

    Args:
        field: a, a force.
        gamma: friction γ ≥ 0, a rate; 0 leaves the Hamiltonian system without noise, and γ and T
            are none of its parameters.
        temperature: T ≥ 0, an energy.
        length: radius l > 0 of the sphere.
        mass: m > 0.

    Invariants: the energy H, for γ = 0.
    Exact results: the density exp(−H/T) on the cotangent bundle of the sphere is stationary, so
    that ⟨z⟩ = −l (coth(al/T) − T/(al)), see `mean_height`, and ⟨|p|²⟩ = 2mT.
    Source: `LeimkuhlerMatthews2016`.
    """
    numbers = {"field": field, "length": length, "mass": mass}
    rules = {"length": positive("it is a length"), "mass": one_mass()}
    return with_thermostat(
        _H, 3, "brownian_sphere", gamma, temperature, on_sphere, rules, **numbers
    )


def mean_height(field: Any = 2.0, temperature: Any = 1.0, length: Any = 1.0) -> Any:
    """The stationary mean of z, −l (coth x − 1/x) with x = al/T."""
    above_zero("the density is exp(-H/T)", temperature=temperature)

    def value(a: Any, T: Any, l: Any) -> Any:
        x = a * l / T
        return -l * (1 / jnp.tanh(x) - 1 / x)

    return exact(value, field, temperature, length)
