"""The Fermi–Pasta–Ulam–Tsingou chain: nonlinear springs between fixed ends."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rule, above_zero, minimum
from dalembert.systems._thermal import grid, stretches, with_thermostat

__all__ = ["fput", "fput_energy", "fput_frequencies", "fput_mode_energies", "fput_modes"]


def _spring(r: Any, alpha: Any, beta: Any) -> Any:
    return r**2 / 2 + alpha * r**3 / 3 + beta * r**4 / 4


def _H(q: Any, p: Any, params: Params) -> Any:
    stretch = stretches(q)
    return jnp.sum(p**2) / 2 + jnp.sum(_spring(stretch, params["alpha"], params["beta"]))


@says_its_words
def fput(
    N: int = 32, alpha: Any = 0.0, beta: Any = 1.0, gamma: Any = 0.0, temperature: Any = 1.0
) -> System:
    """Fermi–Pasta–Ulam–Tsingou chain of unit masses, with a thermostat on every site if γ > 0.

        dq_i = p_i dt
        dp_i = (φ'(q_{i+1} − q_i) − φ'(q_i − q_{i−1}) − γ p_i) dt + √(2γT) dW_i

        H = Σ p_i²/2 + Σ φ(q_{i+1} − q_i),   φ(r) = r²/2 + α r³/3 + β r⁴/4,   q_0 = q_{N+1} = 0
        F = −γ p,   h(q, p, w) = −√(2γT) Σ q_i w_i

    q, p and w have shape (N,). The units are those of the linear springs and of the masses.

    Args:
        N: number of sites that move.
        alpha: cubic part α of the springs. With β = 0 they break at stretch −1/α.
        beta: quartic part β ≥ 0.
        gamma: friction γ ≥ 0, a rate; 0 leaves the Hamiltonian chain without noise, and γ and T
            are none of its parameters.
        temperature: T ≥ 0, an energy.

    Invariants: the energy H, for γ = 0.
    Exact results: modes and frequencies of the linear chain (`fput_modes`, `fput_frequencies`), in
    which the energies `fput_mode_energies` are constant for α = β = 0; the mean energy in thermal
    equilibrium, `fput_energy`; ⟨q_i ∂H/∂q_j⟩ = ⟨p_i p_j⟩ = T δ_ij.
    Source: `FermiPastaUlam1955`.
    """
    springs = (N + 1,)
    rules = {"alpha": Rule(shape=springs), "beta": minimum("the springs must hold", shape=springs)}
    numbers = {"alpha": alpha, "beta": beta}
    return with_thermostat(_H, N, "fput", gamma, temperature, rules=rules, **numbers)


def fput_modes(x: Any) -> Any:
    """Amplitudes of the normal modes of the linear chain, k = 1 … N, for x = q or p of shape (N,).

    They are √(2/(N + 1)) Σ_i x_i sin(πik/(N + 1)); the transform is its own inverse.
    """
    x = jnp.asarray(x)
    wall = jnp.zeros(1, x.dtype)
    wave = jnp.fft.rfft(jnp.concatenate([wall, x, wall, -x[::-1]]))
    return -wave.imag[1 : x.size + 1] / np.sqrt(2 * (x.size + 1))


def fput_frequencies(N: int) -> np.ndarray:
    """Angular frequencies of the normal modes, 2 sin(πk/(2(N + 1))), k = 1 … N."""
    return 2 * np.sin(np.pi * np.arange(1, N + 1) / (2 * (N + 1)))


def fput_mode_energies(q: Any, p: Any, params: Any = None) -> Any:
    """Energies of the modes of the linear chain, shape (N,): an observable."""
    Q, P = fput_modes(q), fput_modes(p)
    return (P**2 + fput_frequencies(len(q)) ** 2 * Q**2) / 2


def fput_energy(N: int, temperature: float = 1.0, alpha: float = 0.0, beta: float = 1.0) -> float:
    """The mean of H over exp(−H/T), to rounding.

    The stretches of the N + 1 springs are independent but for their sum, which is zero. So the
    mean of φ is that of a sum over one spring times the Fourier transform of the others.
    """
    above_zero("the density is exp(-H/T)", temperature=temperature)
    T, springs = float(temperature), N + 1
    r = grid(lambda r: _spring(r, alpha, beta), T)
    energy = _spring(r, alpha, beta)
    # A force on the ends changes nothing where the sum is fixed, and the one that makes the
    # mean stretch zero keeps the wanted value away from the tails.
    force = 0.0
    for _ in range(100):
        weight = np.exp(-(energy - force * r - np.min(energy - force * r)) / T)
        weight /= weight.sum()
        mean = weight @ r
        force -= T * mean / (weight @ (r - mean) ** 2)
    # Sums of many stretches must not come round to zero again.
    length = int(2 ** np.ceil(np.log2(r.size * (1 + np.sqrt(springs)))))
    one, of_energy = (
        np.fft.fft(np.roll(np.pad(x, (0, length - x.size)), -(r.size // 2)))
        for x in (weight, energy * weight)
    )
    others = one ** (springs - 1)
    potential = springs * np.sum(of_energy * others).real / np.sum(one * others).real
    return float(N * T / 2 + potential)
