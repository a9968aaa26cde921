"""The double pendulum: two points on two rods in a plane."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.constraints import missed_length
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, one_mass, positive
from dalembert.systems._thermal import with_thermostat

__all__ = ["angle_density", "double_pendulum", "double_pendulum_start", "fold"]


def _rods(q: Any, params: Params) -> Any:
    """What both rods miss of their length; the first hangs at the origin."""
    return missed_length(jnp.stack([q[0], q[1] - q[0]]), params["length"])


def _H(q: Any, p: Any, params: Params) -> Any:
    mass = params["mass"]
    return jnp.sum(p**2) / (2 * mass) + mass * params["gravity"] * jnp.sum(q[:, 1])


@says_its_words
def double_pendulum(
    gravity: Any = 1.0, length: Any = 1.0, mass: Any = 1.0, gamma: Any = 0.0, temperature: Any = 1.0
) -> System:
    """Double pendulum with equal rods and masses, in Cartesian coordinates, q of shape (2, 2).

        dq_i = (p_i/m) dt
        dp_i = (−m g e_y − γ p_i) dt + √(2γmT) dW_i − Σ_j ∂g_j/∂q_i dλ_j

        H = Σ |p_i|²/(2m) + m g (y_1 + y_2),   |q_1| = |q_2 − q_1| = l
        F = −γ p,   h(q, p, w) = −√(2γmT) Σ q_i·w_i

    Args:
        gravity: g, an acceleration.
        length: l > 0 of each rod.
        mass: m > 0 of each point.
        gamma: friction γ ≥ 0, a rate; 0 leaves the Hamiltonian system without noise, and γ and T
            are none of its parameters.
        temperature: T ≥ 0, an energy.

    Invariants: the energy H, for γ = 0.
    Exact results: for γ, T > 0 the stationary density of the angles of the rods is
    √(2 − cos²(θ_1 − θ_2)) e^{−U/T}, see `angle_density`: the root is that of the determinant of the
    metric, and stiff springs in the place of rods would have no such factor.
    Source: `HairerLubichWanner2006`, section VII.1; `FrenkelSmit2002`, chapter 15.
    """
    numbers = {"gravity": gravity, "length": length, "mass": mass}
    rules = {"length": positive("it is a length", shape=(2,)), "mass": one_mass()}
    name = "double_pendulum"
    return with_thermostat(_H, (2, 2), name, gamma, temperature, _rods, rules, **numbers)


def double_pendulum_start(angles: Any = (0.5, 1.0), length: Any = 1.0) -> tuple[Any, Any]:
    """Rest at some angles from hanging down, on rods of one length or of two."""
    sizes = np.broadcast_to(length, (2,))
    first, second = (
        size * np.array([np.sin(a), -np.cos(a)]) for size, a in zip(sizes, angles, strict=True)
    )
    q = np.stack([first, first + second])
    return q, np.zeros_like(q)


def fold(q: Any, p: Any = None, params: Any = None) -> Any:
    """cos(θ_1 − θ_2), an observable: 1 if both rods point the same way."""
    first, second = q[0], q[1] - q[0]
    size = jnp.sqrt(jnp.sum(first**2) * jnp.sum(second**2))
    return jnp.sum(first * second) / size


def angle_density(
    first: Any,
    second: Any,
    gravity: float = 1.0,
    length: float = 1.0,
    mass: float = 1.0,
    temperature: float = 1.0,
) -> Any:
    """The stationary density of the angles from hanging down, up to its normalisation."""
    height = -length * (2 * np.cos(first) + np.cos(second))
    metric = np.sqrt(2 - np.cos(np.asarray(first) - second) ** 2)
    return metric * np.exp(-mass * gravity * height / temperature)
