"""Random rotations of velocities: what scattering does to a direction in a time."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.elementary import cos, sin

__all__ = ["memory_after", "turned"]

MOST = 9.0
"""Of the variance of an angle: e^{−9} of the direction is left, and rounding begins to show."""

MOST_ON_CIRCLE = 100.0
"""e^{−50} of the direction is left; cosines of angles without end would be no cosines."""

SMALL = 0.5
"""Variance up to which the angle is a function of the noise alone."""

MOST_DROP = 20.0
"""Of the argument of Bessel's function, beyond which normal numbers do not go."""

TERMS = 26
"""Of Bessel's series up to there, to rounding."""

LEAST_MEMORY = 0.05
"""Mean of a direction below which the first guess for its law is right to 2e−4."""


def turned(u: Any, variance: Any, normal: Any) -> Any:
    """Vectors (n, 2) or (n, 3) in new directions, their lengths kept to rounding.

    The new direction is that of a Brownian motion on the circle or the sphere. On the circle it is
    exact. On the sphere a vector turns about n, the normal numbers, and the opposite ones lead
    back: the angle χ between old and new has cos χ = J₀(√(2s) r), r the part of n across u, up to
    variances s of ½, and beyond them the density of von Mises and Fisher, e^{A cos χ} with
    coth A − 1/A = e^{−s}. By both the mean direction is exact, and E[P_l(cos χ)] =
    e^{−l(l+1)s/2} + O(s³); by the first it is also right to second order on one path.

    Args:
        u: the vectors.
        variance: s, of the angle about each axis, shape (n,).
        normal: standard normal numbers, shape (n, 1) or (n, 3).
    """
    if u.shape[1] == 2:
        angle = jnp.sqrt(jnp.minimum(variance, MOST_ON_CIRCLE)) * normal[:, 0]
        c, s = cos(angle), sin(angle)
        return jnp.stack([c * u[:, 0] - s * u[:, 1], s * u[:, 0] + c * u[:, 1]], axis=1)
    length = jnp.sqrt(jnp.sum(u**2, axis=1))
    across = jnp.cross(normal, u)
    reach = jnp.sqrt(jnp.sum(across**2, axis=1))
    moves = (reach > 0) & (length > 0)
    unit = jnp.where(moves, reach, 1.0)
    # The part of the normal numbers across u has the square r², and e^{−r²/2} is uniform in [0, 1].
    energy = jnp.where(moves, (reach / jnp.where(moves, length, 1.0)) ** 2, 0.0) / 2
    drop = jnp.where(variance <= SMALL, _drop(variance * energy), _large_drop(variance, energy))
    # Along the circle about n as far as that drop, if it goes so far, else straight across.
    square = jnp.where(moves, jnp.sum(normal**2, axis=1), 1.0)
    half = drop * square / (4 * jnp.where(energy > 0, energy, 1.0))
    is_about = half <= 1
    turn = 2 * jnp.sqrt(half * jnp.where(is_about, 1 - half, 1.0)) / jnp.sqrt(square)
    about = turn[:, None] * across + (2 * half / square)[:, None] * jnp.cross(normal, across)
    sine = jnp.sqrt(drop * (2 - drop)) * (length / unit)
    return u + jnp.where(is_about[:, None], about, sine[:, None] * across - drop[:, None] * u)


def _drop(x: Any) -> Any:
    """1 − J₀(2√x)."""
    x = jnp.minimum(x, MOST_DROP)
    value = jnp.zeros_like(x)
    for k in range(TERMS, 0, -1):
        value = x / k**2 * (1 - value)
    return value


def _large_drop(variance: Any, energy: Any) -> Any:
    """1 − cos χ by the law of von Mises and Fisher; e^{−energy} is uniform in [0, 1]."""
    a = _inverse_concentration(jnp.clip(variance, SMALL, MOST))
    tail = jnp.where(a > 0, jnp.exp(-2 / jnp.where(a > 0, a, 1.0)), 0.0)
    return jnp.clip(a * (energy - jnp.log1p(jnp.expm1(energy) * tail)), 0.0, 2.0)


def _inverse_concentration(s: Any) -> Any:
    """1/A with coth A − 1/A = e^{−s}, by Newton's method from a rational guess."""
    memory = jnp.exp(-s)
    guess = -jnp.expm1(-2 * s) / (memory * (3 - memory**2))
    a = guess
    for _ in range(4):
        A = 1 / jnp.where(a > 0, a, 1.0)
        # Beyond 300 the exponentials are zero to rounding, and near overflow.
        A = jnp.minimum(A, 300.0)
        slope = 1 - (A / jnp.sinh(A)) ** 2
        a = a - (a - 2 / jnp.expm1(2 * A) + jnp.expm1(-s)) / slope
    return jnp.where(s <= 0, 0.0, jnp.where(memory < LEAST_MEMORY, guess, a)).astype(s.dtype)


def memory_after(degree: int, variance: Any) -> np.ndarray:
    """E[P_l(cos χ)] of the directions that `turned` draws on the sphere, for tests and studies."""
    s = np.asarray(variance, np.float64)
    A = 1 / np.asarray(_inverse_concentration(jnp.asarray(np.maximum(s, SMALL))), np.float64)
    values = [np.ones_like(A), 1 / np.tanh(A) - 1 / A]
    for l in range(1, degree):
        values.append(values[l - 1] - (2 * l + 1) / A * values[l])
    energies, weights = np.polynomial.laguerre.laggauss(64)
    cosine = 1 - np.asarray(_drop(jnp.asarray(np.minimum(s, SMALL)[..., None] * energies)))
    one = np.polynomial.legendre.Legendre.basis(degree)(cosine) @ weights
    return np.where(s <= SMALL, one, values[degree])
