"""The φ⁴ lattice: a scalar field with a quartic potential on a ring or a torus."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rule, above_zero, minimum, require
from dalembert.systems._thermal import grid, with_thermostat

__all__ = ["RingMoments", "free_field_spectrum", "phi4", "phi4_ring_moments"]


def _site(q: Any, mass_squared: Any, coupling: Any) -> Any:
    return mass_squared * q**2 / 2 + coupling * q**4 / 4


def _H(q: Any, p: Any, params: Params) -> Any:
    gradient = sum(jnp.sum((jnp.roll(q, -1, axis) - q) ** 2) for axis in range(q.ndim))
    site = _site(q, params["mass_squared"], params["coupling"])
    return jnp.sum(p**2) / 2 + gradient / 2 + jnp.sum(site)


@says_its_words
def phi4(
    shape: Any = (8, 8),
    mass_squared: Any = 1.0,
    coupling: Any = 1.0,
    gamma: Any = 1.0,
    temperature: Any = 1.0,
) -> System:
    """φ⁴ field on a periodic lattice in one or two dimensions, with a thermostat on every site.

        dq_x = p_x dt
        dp_x = (Σ_y (q_y − q_x) − m² q_x − λ q_x³ − γ p_x) dt + √(2γT) dW_x,   y next to x

        H = Σ_x [p_x²/2 + Σ_e (q_{x+e} − q_x)²/2 + m² q_x²/2 + λ q_x⁴/4],   e a unit along each axis
        F = −γ p,   h(q, p, w) = −√(2γT) Σ q_x w_x

    q, the field, p and w have the shape of the lattice. The unit of length is the spacing of the
    lattice, that of velocity the one of long waves.

    Args:
        shape: sites on a ring, or those along each axis of a torus, at least 3 each.
        mass_squared: m² of the field; negative for two wells.
        coupling: λ ≥ 0.
        gamma: friction γ ≥ 0, a rate; 0 leaves the Hamiltonian lattice without noise, and γ and T
            are none of its parameters.
        temperature: T ≥ 0, an energy.

    Invariants: the energy H, for γ = 0.
    Exact results: ⟨q_x ∂H/∂q_y⟩ = ⟨p_x p_y⟩ = T δ_xy; on a ring ⟨q²⟩, ⟨q⁴⟩ and ⟨q_x q_{x+1}⟩ by the
    transfer operator, `phi4_ring_moments`; for λ = 0 the spectrum, `free_field_spectrum`.
    Source: `ScalapinoSearsFerrell1972`.
    """
    sizes = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    if len(sizes) not in (1, 2):
        raise ValueError(f"shape must be a number of sites or a pair of them, not {shape!r}.")
    require("shape", sizes, "3 or more", lambda v: v >= 3, "neighbours on both sides differ")
    coupled = minimum("the energy has a minimum", shape=sizes)
    rules = {"mass_squared": Rule(shape=sizes), "coupling": coupled}
    values = {"mass_squared": mass_squared, "coupling": coupling}
    return with_thermostat(_H, sizes, "phi4", gamma, temperature, rules=rules, **values)


class RingMoments(NamedTuple):
    """Moments of a field q on a ring in thermal equilibrium: ⟨q²⟩, ⟨q⁴⟩ and ⟨q_x q_{x+1}⟩."""

    second: float
    fourth: float
    neighbours: float


def phi4_ring_moments(
    N: int, temperature: float = 1.0, mass_squared: float = 1.0, coupling: float = 1.0
) -> RingMoments:
    """Moments of `phi4(N, …)` over exp(−H/T), to rounding.

    The density of the field is a product of one kernel K(q_x, q_{x+1}) per bond, so that means are
    traces of powers of K, whose eigenvalues are found on a grid.
    """
    above_zero("the density is exp(-H/T)", temperature=temperature)
    T = float(temperature)
    q = grid(lambda q: _site(q, mass_squared, coupling), T)
    V = _site(q, mass_squared, coupling)
    V = V - V.min()
    bond = (q[:, None] - q[None, :]) ** 2 / 2 + (V[:, None] + V[None, :]) / 2
    eigenvalues, vectors = np.linalg.eigh(np.exp(-bond / T))
    powers = (eigenvalues / eigenvalues[-1]) ** N
    second, fourth = (powers @ (vectors**2).T @ q**n / powers.sum() for n in (2, 4))
    between = (vectors.T * q) @ vectors
    ratio = eigenvalues / eigenvalues[-1]
    neighbours = ratio ** (N - 1) @ between**2 @ ratio / powers.sum()
    return RingMoments(float(second), float(fourth), float(neighbours))


def free_field_spectrum(
    shape: Any, temperature: float = 1.0, mass_squared: float = 1.0
) -> np.ndarray:
    """⟨|q̂_k|²⟩ of the field without coupling, of the given shape, q̂ the unitary Fourier transform.

    It is T/(m² + Σ 4 sin²(k_e/2)), k_e = 2πn_e/N_e; its mean over all k is ⟨q_x²⟩.
    """
    above_zero("the mean field diffuses", mass_squared=mass_squared)
    sizes = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    axes = (4 * np.sin(np.pi * np.arange(n) / n) ** 2 for n in sizes)
    return temperature / (mass_squared + np.sum(np.meshgrid(*axes, indexing="ij"), axis=0))
