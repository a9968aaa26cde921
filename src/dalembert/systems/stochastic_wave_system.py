"""A nonlinear wave equation on a ring whose phase is turned by noise: the charge is conserved."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import (
    Params,
    Rule,
    Rules,
    above_zero,
    minimum,
    parameters,
    positive,
    require,
)

__all__ = ["mean_wave", "stochastic_wave"]


def _H(q: Any, p: Any, params: Params) -> Any:
    slope = (jnp.roll(q, -1, axis=0) - q) / params["dx"]
    square = jnp.sum(q**2, axis=1)
    site = params["mass_squared"] * square / 2 + params["coupling"] * square**2 / 4
    return jnp.sum(p**2) / 2 + jnp.sum(slope**2) / 2 + jnp.sum(site)


def _h(q: Any, p: Any, w: Any, params: Params) -> Any:
    return params["beta"] * jnp.sum(w * _turn(q, p))


def _turn(q: Any, p: Any) -> Any:
    return q[:, 0] * p[:, 1] - q[:, 1] * p[:, 0]


def _charge(q: Any, p: Any, params: Params) -> Any:
    return jnp.sum(_turn(q, p))


@says_its_words
def stochastic_wave(
    N: int = 32, beta: Any = 0.3, dx: Any = 0.5, mass_squared: Any = 1.0, coupling: Any = 1.0
) -> System:
    """Complex nonlinear Klein–Gordon equation on a ring in a fluctuating potential.

        dq_i = p_i dt + β J q_i ∘ dW_i
        dp_i = ((q_{i+1} − 2q_i + q_{i−1})/dx² − m² q_i − λ |q_i|² q_i) dt + β J p_i ∘ dW_i

        H = Σ [|p_i|²/2 + |q_{i+1} − q_i|²/(2dx²) + m² |q_i|²/2 + λ |q_i|⁴/4]
        h(q, p, w) = β Σ w_i (q_i × p_i),   q × p = q_1 p_2 − q_2 p_1,   J (a, b) = (−b, a)

    The field has two components, the real and the imaginary part, so that q and p have shape
    (N, 2); w has shape (N,). Each noise turns the field and its velocity at one site by the same
    angle. The noise is multiplicative, h is not separable, and the noises commute. The energy is
    dx H. Noise that is white in space too, of strength b, has β = b/√dx.

    Args:
        N: number of grid points, at least 3.
        beta: noise β, in units of (time)^−½.
        dx: distance of grid points, in units of the wave speed times time.
        mass_squared: m² of the field.
        coupling: strength λ ≥ 0 of the nonlinear term.

    Invariants: the charge Σ q_i × p_i, along every path; H changes.
    Exact results: for λ = 0 the mean of the field, `mean_wave`.
    Source: made for quadratic invariants and orders with many noises, in the setting of
    `KrausTyranowski2021`, section 2.
    """
    require("N", N, "3 or more", lambda v: v >= 3, "neighbours on both sides differ")
    rules = {
        "dx": positive("it is the distance of grid points"),
        "mass_squared": Rule(shape=(N,)),
        "coupling": minimum("the energy has a minimum", shape=(N,)),
    }
    params = parameters(beta=beta, dx=dx, mass_squared=mass_squared, coupling=coupling)
    return System(
        H=_H,
        h=_h,
        dim=(N, 2),
        noises=N,
        params=params,
        name="stochastic_wave",
        invariants={"charge": _charge},
        check=Rules(rules),
    )


def mean_wave(
    q0: Any, p0: Any, t: float, beta: float = 0.3, dx: float = 0.5, mass_squared: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """The means of q and p at time t, each of shape (N, 2), for λ = 0 from fixed q₀ and p₀.

    They are the solution without noise times e^{−β²t/2}: the Itô correction of a random turn is
    −β²/2 on q and on p alike.
    """
    above_zero("frequencies are above 0", mass_squared=mass_squared)
    q, p = (np.fft.fft(np.asarray(x, np.float64), axis=0) for x in (q0, p0))
    k = np.fft.fftfreq(len(q))[:, None]
    omega = np.sqrt(mass_squared + (2 * np.sin(np.pi * k) / dx) ** 2)
    cos, sin = np.cos(omega * t), np.sin(omega * t)
    decay = np.exp(-(beta**2) * t / 2)
    q, p = q * cos + p * sin / omega, p * cos - q * omega * sin
    back = (np.fft.ifft(x, axis=0).real * decay for x in (q, p))
    return next(back), next(back)
