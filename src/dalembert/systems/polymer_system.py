"""A polymer: beads in space on a chain of harmonic bonds, whose modes are those of Rouse."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, above_zero, one_mass, positive, require
from dalembert.systems._thermal import told_by, with_thermostat

__all__ = [
    "end_to_end_squared",
    "gyration_squared",
    "polymer",
    "polymer_sampler",
    "rouse_modes",
    "rouse_variances",
]


def _H(q: Any, p: Any, params: Params) -> Any:
    bonds = jnp.diff(q, axis=0)
    return jnp.sum(p**2) / (2 * params["mass"]) + params["k"] / 2 * jnp.sum(bonds**2)


@says_its_words
def polymer(
    N: int = 16, k: Any = 1.0, gamma: Any = 1.0, temperature: Any = 1.0, mass: Any = 1.0
) -> System:
    """Linear chain of beads with harmonic bonds in three dimensions, free ends, a thermostat.

        dq_i = (p_i/m) dt
        dp_i = (k (q_{i+1} − q_i) − k (q_i − q_{i−1}) − γ p_i) dt + √(2γmT) dW_i

        H = Σ |p_i|²/(2m) + k/2 Σ |q_{i+1} − q_i|²
        F = −γ p,   h(q, p, w) = −√(2γmT) Σ q_i·w_i

    without the missing bonds at the ends. q, p and w have shape (N, 3).

    Args:
        N: number of beads, at least 2.
        k: stiffness of the bonds, an energy over length².
        gamma: friction γ ≥ 0, a rate; 0 leaves the Hamiltonian chain without noise, and γ and T
            are none of its parameters.
        temperature: T ≥ 0, an energy.
        mass: m > 0 of a bead.

    Invariants: the energy H, for γ = 0.
    Exact results: the modes (`rouse_modes`) are independent oscillators with the stationary
    variances `rouse_variances`, so that the mean squared distance of the ends is 3(N − 1)T/k and
    the mean squared radius of gyration (N² − 1)T/(2Nk), see `end_to_end_squared` and
    `gyration_squared`. The centre of mass diffuses, with 6T/(Nmγ) t. `polymer_sampler` draws
    stationary states.
    Source: `Rouse1953`.
    """
    _check(N)
    rules = {"k": positive("it is the stiffness of the bonds"), "mass": one_mass()}
    numbers = {"k": k, "mass": mass}
    return with_thermostat(_H, (N, 3), "polymer", gamma, temperature, rules=rules, **numbers)


def rouse_modes(q: Any) -> Any:
    """Amplitudes of the modes a = 0 … N − 1, shape (N, 3), for positions or momenta (N, 3).

    They are √(2/N) Σ_i q_i cos(πa(i − ½)/N), i = 1 … N, and √N times the centre of mass for a = 0.
    """
    return jax.scipy.fft.dct(jnp.asarray(q), axis=0, norm="ortho")


def rouse_variances(N: int, k: float = 1.0, temperature: float = 1.0) -> np.ndarray:
    """Stationary variances of each component of the modes a = 1 … N − 1: T/(4k sin²(πa/2N))."""
    return temperature / (4 * k * np.sin(np.pi * np.arange(1, N) / (2 * N)) ** 2)


def end_to_end_squared(q: Any, p: Any = None, params: Any = None) -> Any:
    """|q_N − q_1|², an observable; its stationary mean is 3(N − 1)T/k."""
    return jnp.sum((q[-1] - q[0]) ** 2)


def gyration_squared(q: Any, p: Any = None, params: Any = None) -> Any:
    """Mean squared distance of the beads from their centre, an observable."""
    return jnp.sum((q - jnp.mean(q, axis=0, keepdims=True)) ** 2) / len(q)


def polymer_sampler(
    N: int | System = 16, k: Any = None, temperature: Any = None, mass: Any = None
) -> Callable[[Any], tuple[Any, Any]]:
    """A sampler of stationary states of `polymer`, the centre of mass at the origin.

    Args:
        N: the system, `polymer_sampler(system)`, which then says all the rest; or the number of
            beads.
        k: stiffness of the bonds, 1 by default.
        temperature: T, 1 by default; of a system without friction it has to be given.
        mass: of a bead, 1 by default.
    """
    known = {"k": 1.0, "temperature": 1.0, "mass": 1.0}
    given = {"k": k, "temperature": temperature, "mass": mass}
    N, (k, temperature, mass) = told_by(N, "beads", "polymer_sampler", known, **given)
    _check(N)
    above_zero("it is the stiffness of the bonds", k=k)
    above_zero("the velocity is p/mass", mass=mass)

    def sample(key: Any) -> tuple[Any, Any]:
        bonds, p = jax.random.normal(key, (2, N, 3))
        walk = jnp.cumsum(bonds.at[0].set(0.0), axis=0) * jnp.sqrt(temperature / k)
        q = walk - jnp.mean(walk, axis=0, keepdims=True)
        return q, p * jnp.sqrt(mass * temperature)

    return sample


def _check(N: Any) -> None:
    require("N", N, "2 or more", lambda v: v >= 2, "a chain has a bond")
