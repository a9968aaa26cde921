"""A ring of beads on rods of fixed length."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.constraints import missed_length
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, one_mass, positive, require
from dalembert.systems._thermal import told_by, with_thermostat
from dalembert.systems.jointed_chain_system import free_beads

__all__ = ["ring", "ring_start"]


def _rods(q: Any, params: Params) -> Any:
    return missed_length(jnp.roll(q, -1, axis=0) - q, params["length"])


@says_its_words
def ring(
    N: int = 6, length: Any = 1.0, mass: Any = 1.0, gamma: Any = 1.0, temperature: Any = 1.0
) -> System:
    """Ring of N beads in space on N rods, with a thermostat; q has shape (N, 3).

        dq_i = (p_i/m) dt
        dp_i = −γ p_i dt + √(2γmT) dW_i − Σ_j ∂g_j/∂q_i dλ_j

        H = Σ |p_i|²/(2m),   |q_{i+1} − q_i| = l,   q_{N+1} = q_1
        F = −γ p,   h(q, p, w) = −√(2γmT) Σ q_i·w_i

    Args:
        N: number of beads, at least 4.
        length: l > 0 of a rod.
        mass: m > 0 of a bead.
        gamma: friction γ ≥ 0, a rate; 0 leaves the Hamiltonian ring without noise, and γ and T are
            none of its parameters.
        temperature: T ≥ 0, an energy.

    Invariants: the energy H, for γ = 0; so are the momentum and the angular momentum.
    Exact results: ⟨Σ|p_i|²⟩ = (2N) mT for γ, T > 0, since 2N degrees of freedom are left.
    Source: `FrenkelSmit2002`, chapter 15.
    """
    require("N", N, "4 or more", lambda v: v >= 4, "three rods make a rigid body")
    numbers = {"length": length, "mass": mass}
    rules = {"length": positive("it is a length", shape=(N,)), "mass": one_mass()}
    return with_thermostat(free_beads, (N, 3), "ring", gamma, temperature, _rods, rules, **numbers)


def ring_start(N: int | System = 6, length: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """A regular polygon at rest; in its plane alone no rod is a sum of others for N > 3.

    Args:
        N: the system, `ring_start(system)`, which says the length; or the number of beads.
        length: of a rod, 1 by default.
    """
    N, (length,) = told_by(N, "beads", "ring_start", {"length": 1.0}, length=length)
    if np.ndim(length):
        lengths = np.broadcast_to(length, (N,))
        if np.any(lengths != lengths[0]):
            raise ValueError(
                "a regular polygon has rods of one length: da.project(system, q, p) moves "
                "positions near yours to where the rods have theirs."
            )
        length = lengths[0]
    angles = 2 * np.pi * np.arange(N) / N
    radius = length / (2 * np.sin(np.pi / N))
    q = radius * np.stack([np.cos(angles), np.sin(angles), np.zeros(N)], axis=1)
    return q, np.zeros_like(q)
