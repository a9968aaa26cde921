"""Sine, cosine and logarithm in plain arithmetic, for kernels that every compiler can vectorise.

XLA calls a scalar routine for a float64 sin, cos or log on the CPU, and on a GPU these routines
carry branches for rare arguments. Here the argument is reduced, a polynomial is evaluated and the
parts are put together, all elementwise and without a branch. The polynomials are minimax on their
intervals (Remez exchange, in 60 digits). Errors against the exact values:

    log         below 1 unit in the last place; subnormal numbers count as zero, as in XLA:CPU
    sin, cos    below 2e−16 for |x| ≤ 10⁶; beyond it, as far as 10¹⁵, no more than rounding x itself
                would cause; larger numbers leave no digits for an angle, and mean nothing here

Other precisions are left to JAX.
"""

from functools import reduce
from math import pi, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["cos", "cos_near_zero", "log", "log_of_normal", "sin", "sin_near_zero"]

# sin t = t + t³ S(t²) and cos t = 1 − t²/2 + t⁴ C(t²) on |t| ≤ π/4.
SINE = (
    -0.16666666666666632,
    0.008333333333322425,
    -0.00019841269829816966,
    2.7557313695231825e-06,
    -2.505075865405815e-08,
    1.589682797204921e-10,
)
COSINE = (
    0.0416666666666666,
    -0.0013888888888874138,
    2.4801587289491847e-05,
    -2.755731435524804e-07,
    2.087572368536474e-09,
    -1.1359669919311246e-11,
)
# log((1 + s)/(1 − s)) = 2 s + s³ L(s²) on |s| ≤ (√2 − 1)/(√2 + 1).
LOGARITHM = (
    0.6666666666666734,
    0.39999999999414676,
    0.2857142874238801,
    0.22222198573157717,
    0.18183564327007026,
    0.15314050539471816,
    0.14795949746504403,
)
# Sums of these are π/2 and ln 2; products of the first ones with small integers are exact.
HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
LN2 = (0.6931471805592082, 7.371002565167799e-13)

MANTISSA_BITS = 52


def sin(x: Any) -> Any:
    """Sine, elementwise."""
    if x.dtype != np.float64:
        return lax.sin(x)
    t, quarter, is_odd = _reduced(x)
    value = lax.select(is_odd, cos_near_zero(t), sin_near_zero(t))
    return lax.select(quarter >= 2, -value, value)


def cos(x: Any) -> Any:
    """Cosine, elementwise."""
    if x.dtype != np.float64:
        return lax.cos(x)
    t, quarter, is_odd = _reduced(x)
    value = lax.select(is_odd, sin_near_zero(t), cos_near_zero(t))
    return lax.select((quarter == 1) | (quarter == 2), -value, value)


def _reduced(x: Any) -> tuple[Any, Any, Any]:
    """x as k π/2 + t with |t| ≤ π/4, and k modulo 4, and whether k is odd."""
    k = jnp.floor(x * (2 / pi) + 0.5)
    t = ((x - k * HALF_PI[0]) - k * HALF_PI[1]) - k * HALF_PI[2]
    quarter = k - 4 * jnp.floor(k * 0.25)
    return t, quarter, (quarter == 1) | (quarter == 3)


def sin_near_zero(t: Any) -> Any:
    """Sine of |t| ≤ π/4, elementwise, in float64."""
    z = t * t
    return t + t * (z * _horner(SINE, z))


def cos_near_zero(t: Any) -> Any:
    """Cosine of |t| ≤ π/4, elementwise, in float64."""
    z = t * t
    return 1 + (z * (z * _horner(COSINE, z)) - 0.5 * z)


@jax.custom_jvp
def log(x: Any) -> Any:
    """Natural logarithm, elementwise."""
    if x.dtype != np.float64:
        return lax.log(x)
    value = jnp.where(x == jnp.inf, x, log_of_normal(x))
    value = jnp.where(x < np.finfo(np.float64).tiny, -jnp.inf, value)
    return jnp.where(x >= 0, value, jnp.nan)


# Bits, of which the exponent and the mantissa are taken, have no derivative.
log.defjvps(lambda tangent, _, x: tangent / x)


def log_of_normal(x: Any) -> Any:
    """Natural logarithm of positive normal float64 numbers, elementwise."""
    bits = lax.bitcast_convert_type(x, jnp.int64)
    # The mantissa is taken in [√½, √2): bits below those of √½ belong to the exponent above.
    shifted = bits - np.int64(_bits(sqrt(0.5)))
    exponent = lax.shift_right_arithmetic(shifted, jnp.full_like(bits, MANTISSA_BITS))
    k = exponent.astype(jnp.int32).astype(jnp.float64)
    m = lax.bitcast_convert_type(
        bits - lax.shift_left(exponent, jnp.full_like(bits, MANTISSA_BITS)), jnp.float64
    )
    f = m - 1
    s = f / (2 + f)
    z = s * s
    # f − s f = 2 s without its rounding error.
    return k * LN2[0] + (f - (s * (f - z * _horner(LOGARITHM, z)) - k * LN2[1]))


def _bits(x: float) -> int:
    return int(np.float64(x).view(np.int64))


def _horner(coefficients: tuple[float, ...], z: Any) -> Any:
    return reduce(lambda total, c: total * z + c, coefficients[::-1][1:], coefficients[-1])
