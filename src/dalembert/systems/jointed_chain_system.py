"""A freely jointed chain: beads in space on rods of fixed length."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.constraints import missed_length
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, one_mass, positive, require
from dalembert.systems._thermal import told_by, with_thermostat
from dalembert.systems.polymer_system import end_to_end_squared

__all__ = ["end_to_end_squared", "free_beads", "jointed_chain", "jointed_chain_start"]


def _rods(q: Any, params: Params) -> Any:
    return missed_length(jnp.diff(q, axis=0), params["length"])


def free_beads(q: Any, p: Any, params: Params) -> Any:
    """Σ |p_i|²/(2m), the Hamiltonian of free beads."""
    return jnp.sum(p**2) / (2 * params["mass"])


@says_its_words
def jointed_chain(
    N: int = 8, length: Any = 1.0, mass: Any = 1.0, gamma: Any = 1.0, temperature: Any = 1.0
) -> System:
    """Freely jointed chain of N beads in space on N − 1 rods, with a thermostat; q is (N, 3).

        dq_i = (p_i/m) dt
        dp_i = −γ p_i dt + √(2γmT) dW_i − Σ_j ∂g_j/∂q_i dλ_j

        H = Σ |p_i|²/(2m),   |q_{i+1} − q_i| = l
        F = −γ p,   h(q, p, w) = −√(2γmT) Σ q_i·w_i

    Args:
        N: number of beads, at least 2.
        length: l > 0 of a rod.
        mass: m > 0 of a bead.
        gamma: friction γ ≥ 0, a rate; 0 leaves the Hamiltonian chain without noise, and γ and T
            are none of its parameters.
        temperature: T ≥ 0, an energy.

    Invariants: the energy H, for γ = 0.
    Exact results: the mean square of the distance of the ends is (N − 1) l², for the determinant of
    the metric does not change if all rods behind a joint are turned round. Of three beads the
    cosine c of the angle of the rods has the density √(4 − c²).
    Source: `FrenkelSmit2002`, chapter 15.
    """
    require("N", N, "2 or more", lambda v: v >= 2, "a chain has a rod")
    numbers = {"length": length, "mass": mass}
    rules = {"length": positive("it is a length", shape=(N - 1,)), "mass": one_mass()}
    shape, name = (N, 3), "jointed_chain"
    return with_thermostat(free_beads, shape, name, gamma, temperature, _rods, rules, **numbers)


def jointed_chain_start(N: int | System = 8, length: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """A zigzag at rest.

    Args:
        N: the system, `jointed_chain_start(system)`, which says the length; or the number of beads.
        length: of a rod, or of each of them, shape (N − 1,); 1 by default.
    """
    N, (length,) = told_by(N, "beads", "jointed_chain_start", {"length": 1.0}, length=length)
    if np.ndim(length):
        up = np.where(np.arange(N - 1) % 2, -0.6, 0.6)
        rods = np.stack([np.full(N - 1, 0.8), up, np.zeros(N - 1)], axis=1)
        rods *= np.broadcast_to(length, (N - 1,))[:, None]
        q = np.concatenate([np.zeros((1, 3)), np.cumsum(rods, axis=0)])
        return q, np.zeros_like(q)
    ends = np.arange(N)
    q = np.stack([0.8 * ends, 0.6 * (ends % 2), np.zeros(N)], axis=1) * length
    return q, np.zeros_like(q)
