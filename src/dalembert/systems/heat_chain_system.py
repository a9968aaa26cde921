"""A harmonic chain between two heat baths: a current that does not decrease with the length."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import (
    Params,
    Rules,
    above_zero,
    minimum,
    one_mass,
    parameters,
    positive,
    require,
)
from dalembert.systems._thermal import stretches

__all__ = ["HeatChainStationary", "heat_chain", "heat_chain_stationary", "heat_current"]


def _H(q: Any, p: Any, params: Params) -> Any:
    stretch = stretches(q)
    return jnp.sum(p**2) / (2 * params["mass"]) + params["k"] / 2 * jnp.sum(stretch**2)


def _F(q: Any, p: Any, params: Params) -> Any:
    # Compared numbers instead of a stored mask: a trace is as small for a million sites.
    site = jnp.arange(p.size)
    return jnp.where((site == 0) | (site == p.size - 1), -params["gamma"] * p, 0.0)


def _h(q: Any, p: Any, w: Any, params: Params) -> Any:
    left, right = (
        jnp.sqrt(2 * params["gamma"] * params["mass"] * params[T]) for T in ("T_left", "T_right")
    )
    return -left * q[0] * w[0] - right * q[-1] * w[1]


RULES = Rules(
    {
        "T_left": minimum("the noise is √(2γmT)"),
        "T_right": minimum("the noise is √(2γmT)"),
        "gamma": minimum("it is a friction rate"),
        "k": positive("it is the stiffness of the springs"),
        "mass": one_mass(),
    }
)


@says_its_words
def heat_chain(
    N: int = 16,
    T_left: Any = 2.0,
    T_right: Any = 1.0,
    gamma: Any = 1.0,
    k: Any = 1.0,
    mass: Any = 1.0,
) -> System:
    """Harmonic chain, both ends pinned, friction and noise on its first and last site.

        dq_i = (p_i/m) dt
        dp_1 = (k (q_2 − 2q_1) − γ p_1) dt + √(2γm T_left) dW_1
        dp_i = k (q_{i+1} − 2q_i + q_{i−1}) dt
        dp_N = (k (q_{N−1} − 2q_N) − γ p_N) dt + √(2γm T_right) dW_2

        H = Σ p_i²/(2m) + k/2 Σ (q_{i+1} − q_i)²,   q_0 = q_{N+1} = 0
        F = −γ p on the ends,   h(q, p, w) = −√(2γm) (√T_left q_1 w_1 + √T_right q_N w_2)

    q and p have shape (N,), w has shape (2,).

    Args:
        N: number of sites, at least 2.
        T_left: temperature of the bath on the left, an energy.
        T_right: temperature of the bath on the right.
        gamma: friction γ ≥ 0 of the end sites, a rate.
        k: stiffness of the springs, also of those to the walls.
        mass: m > 0.

    Invariants: none.
    Exact results: covariances, temperatures and heat flux of the stationary state by its Lyapunov
    equation, `heat_chain_stationary`. For γ = k = m = 1 and large N the flux is
    (T_left − T_right)(3 − √5)/4, to 2e−7 already for N = 8, and the bulk has the mean of both
    temperatures. `heat_current` is the flux through every spring.
    Source: `RiederLebowitzLieb1967`.
    """
    _check_sites(N)
    params = parameters(T_left=T_left, T_right=T_right, gamma=gamma, k=k, mass=mass)
    options = {"dim": N, "noises": 2, "params": params, "name": "heat_chain", "check": RULES}
    return System(H=_H, F=_F, h=_h, **options)


def heat_current(q: Any, p: Any, params: Params) -> Any:
    """Energy per time from site i to site i + 1, shape (N − 1,).

    It is −k (q_{i+1} − q_i)(v_i + v_{i+1})/2 with the velocities v = p/m. In the stationary
    state the mean of every entry is the heat flux.
    """
    return -params["k"] * jnp.diff(q) * (p[1:] + p[:-1]) / (2 * params["mass"])


class HeatChainStationary(NamedTuple):
    """The stationary state of a harmonic chain between two heat baths; it is Gaussian, of mean 0.

    Attributes:
        flux: energy per time from left to right.
        temperatures: ⟨p_i²⟩/m, shape (N,).
        covariance: of z = (q, p), shape (2N, 2N).
    """

    flux: float
    temperatures: np.ndarray
    covariance: np.ndarray


def heat_chain_stationary(
    N: int = 16,
    T_left: float = 2.0,
    T_right: float = 1.0,
    gamma: float = 1.0,
    k: float = 1.0,
    mass: float = 1.0,
) -> HeatChainStationary:
    """The stationary state of `heat_chain`, from A C + C Aᵀ + B Bᵀ = 0 with dz = A z dt + B dW."""
    _check_sites(N)
    RULES({"T_left": T_left, "T_right": T_right, "gamma": gamma, "k": k, "mass": mass})
    above_zero("nothing is stationary without friction", gamma=gamma)
    ends = np.zeros((N, 2))
    ends[0, 0] = ends[-1, 1] = 1
    springs = k * (2 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1))
    A = np.block(
        [[np.zeros((N, N)), np.eye(N) / mass], [-springs, -gamma * np.diag(ends.sum(axis=1))]]
    )
    strength = 2 * gamma * mass * np.array([T_left, T_right])
    noise = np.zeros((2 * N, 2 * N))
    noise[N:, N:] = ends * strength @ ends.T
    covariance = _lyapunov(A, noise, shift=np.sqrt(k / mass))
    temperatures = np.diag(covariance)[N:] / mass
    return HeatChainStationary(float(gamma * (T_left - temperatures[0])), temperatures, covariance)


def _lyapunov(A: np.ndarray, noise: np.ndarray, shift: float) -> np.ndarray:
    """C with A C + C Aᵀ + noise = 0 for a stable A, by the Cayley transform and doubling.

    With M = (s − A)⁻¹(s + A) and D = (s − A)⁻¹ it is C = Σ Mⁿ (2s D noise Dᵀ) Mᵀⁿ, of which every
    turn doubles the number of terms. Unlike an eigen-decomposition it does not ask whether A has
    as many eigenvectors as rows.
    """
    one = np.eye(len(A))
    D = np.linalg.inv(shift * one - A)
    M, C = D @ (shift * one + A), 2 * shift * D @ noise @ D.T
    for _ in range(60):
        more = M @ C @ M.T
        C = C + more
        if np.max(np.abs(more)) <= 1e-17 * np.max(np.abs(C)):
            return (C + C.T) / 2
        M = M @ M
    raise ArithmeticError("the Lyapunov equation was not solved: friction is too weak.")


def _check_sites(N: Any) -> None:
    require("N", N, "2 or more", lambda v: v >= 2, "each bath has an end site of its own")
