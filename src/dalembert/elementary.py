"""Sine, cosine and logarithm in plain arithmetic, for kernels that every compiler can vectorise.

XLA calls a scalar routine for a float64 sin, cos or log on the CPU, and on a GPU these routines
carry branches for rare arguments. Here the argument is reduced, a polynomial is evaluated and the
parts are put together, all elementwise and without a branch. The polynomials are minimax on their
intervals (Remez exchange, in 60 digits). Errors against the exact values:

    log         below 1 unit in the last place; subnormal numbers count as zero, as in XLA:CPU
    sin, cos    below 4e−16 for |x| ≤ 10⁶; beyond it, as far as 10¹⁵, no more than rounding x itself
                would cause; larger numbers leave no digits for an angle, and mean nothing here

Other precisions are left to JAX.
"""

from functools import reduce
from math import pi, sqrt
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.operations import operation

# sin t = t + t³ S(t²) on |t| ≤ π/2.
SINE = (
    -0.16666666666666666,
    0.008333333333333115,
    -0.00019841269841185962,
    2.755731920778693e-06,
    -2.5052106606636936e-08,
    1.605892783643712e-10,
    -7.642712927256417e-13,
    2.7184963661503298e-15,
)
# 2 sin t/2 = t + t³ S(t²) and cos t/2 = C(t²) on |t| ≤ π/2.
HALF_SINE = (
    -0.04166666666666658,
    0.0005208333333326516,
    -3.100198410908901e-06,
    1.0764575662199932e-08,
    -2.446363149810366e-11,
    3.8810615166135764e-14,
)
HALF_COSINE = (
    1.0,
    -0.125,
    0.0026041666666666626,
    -2.170138888886584e-05,
    9.688120034957753e-08,
    -2.6911439800046915e-10,
    5.096612227872251e-13,
    -6.933392284735868e-16,
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
# 2 sin t/2 = t S(t²) and cos t/2 = C(t²) on |t| ≤ π/2, to seven digits.
ROUGH_SINE = (
    0.9999999969263467,
    -0.041666626747992665,
    0.0005207523046783329,
    -3.0475034320418086e-06,
)
ROUGH_COSINE = (
    0.9999999724233594,
    -0.12499964173951648,
    0.0026034391801314473,
    -2.1227982009986493e-05,
)
# sin πt/2 = t S(t²) and cos πt/2 = C(t²) on |t| ≤ ½, to nine digits, of small sines too.
QUARTER_SINE = (1.5707963217083407, -0.6459634602331947, 0.07968003276853669, -0.004601657887347114)
QUARTER_COSINE = (
    0.9999999999526005,
    -1.233700540647375,
    0.2536692039393022,
    -0.02086007131879485,
    0.0009036317030559741,
)
# log((1 + s)/(1 − s)) = s L(s²), to nine digits.
ROUGH_LOGARITHM = (1.9999999986144428, 0.666668163720094, 0.399747567771541, 0.2992651457702716)
# Sums of these are π and ln 2; products of the first ones with small integers are exact.
PI = (3.1415926534682512, 1.2154201012607932e-10, 4.044532497591901e-21)
LN2 = (0.6931471805592082, 7.371002565167799e-13)

MANTISSA_BITS = 52
# The bits of 1/x are about this number minus those of x; it makes the largest error least.
INVERSE_BITS = 0x7FDE624000000000
# The last bits of a sum with this number are those of an integer.
TO_INTEGER = 1.5 * 2.0**MANTISSA_BITS


@operation(lax.sin)
def sin(x: Any) -> Any:
    """Sine, elementwise."""
    k, sign = _half_turns(x * (1 / pi))
    return _after_half_turns(sign, _minus_half_turns(x, k))


@operation(lax.cos)
def cos(x: Any) -> Any:
    """Cosine, elementwise."""
    k, sign = _half_turns((x - pi / 2) * (1 / pi))
    return _after_half_turns(sign, -_minus_half_turns(x, 0.5 * (2 * k + 1)))


sin.defjvp(lambda tangent, x: tangent * cos(x))
cos.defjvp(lambda tangent, x: -tangent * sin(x))


def _half_turns(x: Any) -> tuple[Any, Any]:
    """The whole number nearest to x, and the first bit of an integer if it is odd.

    Compilers may draw a constant that is added to x, or to the whole number, into its rounding.
    """
    bits, last_bit_first = as_bits(x + TO_INTEGER), _filled(x, 63)
    # This bit is always set; that it is set again keeps compilers from undoing the sum.
    same_bits = lax.bitwise_or(bits, _filled(x, _bits(2.0)))
    k = lax.bitcast_convert_type(same_bits, np.float64) - TO_INTEGER
    return k, lax.shift_left(bits, last_bit_first)


def _minus_half_turns(x: Any, k: Any) -> Any:
    """x − k π"""
    return ((x - k * PI[0]) - k * PI[1]) - k * PI[2]


def _after_half_turns(sign: Any, t: Any) -> Any:
    """sin(k π + t) for |t| ≤ π/2, given the sign bit of (−1)ᵏ."""
    z = t * t
    return with_sign(t + t * (z * _horner(SINE, z)), sign)


def _filled(x: Any, number: int) -> Any:
    """A whole number in every entry of x; NumPy's for a scalar: JAX would compile code for it."""
    return jnp.full_like(x, number, np.int64) if x.ndim else np.int64(number)


def as_bits(x: Any) -> Any:
    return lax.bitcast_convert_type(x, np.int64)


def with_sign(x: Any, sign: Any) -> Any:
    """x with its first bit changed where that of `sign`, which has no others, is set."""
    return lax.bitcast_convert_type(lax.bitwise_xor(as_bits(x), sign), np.float64)


@operation(lax.sin)
def sin_beside_cos(x: Any) -> Any:
    """Sine, elementwise, where the cosine is wanted too: the two share most of their operations."""
    sine, cosine, sign = _halves(x)
    return with_sign(sine * cosine, sign)


@operation(lax.cos)
def cos_beside_sin(x: Any) -> Any:
    """Cosine, elementwise, where the sine is wanted too."""
    sine, _, sign = _halves(x)
    return with_sign(1 - 0.5 * sine * sine, sign)


sin_beside_cos.defjvp(lambda tangent, x: tangent * cos_beside_sin(x))
cos_beside_sin.defjvp(lambda tangent, x: -tangent * sin_beside_cos(x))


def _halves(x: Any) -> tuple[Any, Any, Any]:
    """2 sin t/2, cos t/2 and the sign bit of (−1)ᵏ, x = k π + t, |t| ≤ π/2."""
    k, sign = _half_turns(x * (1 / pi))
    t = _minus_half_turns(x, k)
    z = t * t
    return t + t * (z * _horner(HALF_SINE, z)), _horner(HALF_COSINE, z), sign


@operation(lax.sin)
def rough_sin(x: Any) -> Any:
    """Sine, elementwise, to within 1e−7."""
    sine, cosine, sign = _rough_halves(x)
    return with_sign(sine * cosine, sign)


@operation(lax.cos)
def rough_cos(x: Any) -> Any:
    """Cosine, elementwise, to within 1e−7."""
    sine, _, sign = _rough_halves(x)
    return with_sign(1 - 0.5 * sine * sine, sign)


rough_sin.defjvp(lambda tangent, x: tangent * rough_cos(x))
rough_cos.defjvp(lambda tangent, x: -tangent * rough_sin(x))


def _rough_halves(x: Any) -> tuple[Any, Any, Any]:
    k, sign = _half_turns(x * (1 / pi))
    t = x - k * pi
    z = t * t
    return t * _horner(ROUGH_SINE, z), _horner(ROUGH_COSINE, z), sign


def sin_of_quarter(t: Any) -> Any:
    """sin πt/2 for |t| ≤ ½, elementwise, to nine digits in float64, however small it is."""
    return t * _horner(QUARTER_SINE, t * t)


def cos_of_quarter(t: Any) -> Any:
    """cos πt/2 for |t| ≤ ½, elementwise, to nine digits in float64."""
    return _horner(QUARTER_COSINE, t * t)


@operation(lax.log)
def log(x: Any) -> Any:
    """Natural logarithm, elementwise."""
    value = jnp.where(x == jnp.inf, x, log_of_normal(x))
    value = jnp.where(x < np.finfo(np.float64).tiny, -jnp.inf, value)
    return jnp.where(x >= 0, value, jnp.nan)


log.defjvp(lambda tangent, x: tangent / x)


def log_of_normal(x: Any) -> Any:
    """Natural logarithm of positive normal float64 numbers, elementwise."""
    k, f = _exponent_and_fraction(x)
    s = f / (2 + f)
    z = s * s
    # f − s f = 2 s without its rounding error.
    return k * LN2[0] + (f - (s * (f - z * _horner(LOGARITHM, z)) - k * LN2[1]))


def rough_log(x: Any) -> Any:
    """Natural logarithm of positive normal float64 numbers, elementwise, to nine digits."""
    k, f = _exponent_and_fraction(x)
    s = f * rough_inverse(2 + f)
    return k * (LN2[0] + LN2[1]) + s * _horner(ROUGH_LOGARITHM, s * s)


def _exponent_and_fraction(x: Any) -> tuple[Any, Any]:
    """k and f of x = 2ᵏ (1 + f), √½ ≤ 1 + f < √2."""
    bits, places = as_bits(x), _filled(x, MANTISSA_BITS)
    # The mantissa is taken in [√½, √2): bits below those of √½ belong to the exponent above.
    exponent = lax.shift_right_arithmetic(bits - np.int64(_bits(sqrt(0.5))), places)
    k = lax.bitcast_convert_type(exponent + np.int64(_bits(TO_INTEGER)), np.float64) - TO_INTEGER
    m = lax.bitcast_convert_type(bits - lax.shift_left(exponent, places), np.float64)
    return k, m - 1


@operation(lambda x: 1 / x)
def rough_inverse(x: Any) -> Any:
    """1/x, elementwise, of float64 numbers between 1e−300 and 1e300 to within 3e−12.

    Cheaper than a division on a GPU: a difference of bits is right to 5 %, and each of two steps of
    third order cubes that error.
    """
    y = rougher_inverse(x)
    for _ in range(2):
        error = 1 - x * y
        y = y + y * (error + error * error)
    return y


rough_inverse.defjvp(lambda tangent, x: -tangent * lax.square(rough_inverse(x)))


def rougher_inverse(x: Any) -> Any:
    """1/x of positive normal numbers, elementwise, to within 6 %, at no cost.

    Of zero and of numbers so small that this overflows it is nothing in particular.
    """
    if x.dtype != np.float64:
        return 1.0 / x
    return lax.bitcast_convert_type(np.int64(INVERSE_BITS) - as_bits(x), np.float64)


@operation(lax.abs)
def absolute(x: Any) -> Any:
    """|x|, elementwise, by its bits: Triton makes a float32 of it otherwise (jax 0.11.2)."""
    return lax.bitcast_convert_type(lax.bitwise_and(as_bits(x), np.int64(2**63 - 1)), np.float64)


absolute.defjvp(lambda tangent, x: tangent * lax.sign(x))


def _bits(x: float) -> int:
    return int(np.float64(x).view(np.int64))


def _horner(coefficients: tuple[float, ...], z: Any) -> Any:
    return reduce(lambda total, c: total * z + c, coefficients[::-1][1:], coefficients[-1])
