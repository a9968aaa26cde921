"""Philox 4x32-10: random bits as a pure function of (seed, path, step, noise index).

A counter-based generator has no state to carry: it is a fixed permutation of a 128-bit counter
under a 64-bit key. Every number the library draws comes from one block of four words at

    key      k0, k1   seed: low word, high word
    counter  c0, c1   path number: low word, high word
             c2       step number / 4, or / 8: a block serves so many consecutive steps
             c3       noise index (low 24 bits), stream tag (3 bits), noise index (its next 5 bits)

so two blocks are the same only if seed, path, group of steps, noise index and stream all agree. The
words are the same on every device and with x64 on or off.

Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from enum import IntEnum
from math import sqrt
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.elementary import cos_of_quarter, rough_log, sin_of_quarter

Array: TypeAlias = jax.Array | np.ndarray
Integer: TypeAlias = int | np.integer | Array | tuple[Array, Array]
Words: TypeAlias = tuple[Array, Array, Array, Array]

MAX_SEED = 2**64
MAX_PATHS = 2**63
MAX_STEPS = 2**32
MAX_NOISES = 2**29
INDEX_BITS, TAG_BITS = 24, 3

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)


class Stream(IntEnum):
    """What a block of four words is used for: its tag keeps the uses independent."""

    GAUSSIAN = 0
    THREE_POINT = 1
    INITIAL = 2
    GAUSSIAN_AREA = 3
    LEVY_AREA = 4
    COIN = 5


def x64_is_on() -> bool:
    """True where JAX keeps 64-bit types: globally, or in an `enable_x64` context."""
    return jnp.result_type(float) == np.float64


def _multiply_halves(a: int, b: Array) -> tuple[Array, Array]:
    """High and low word of the 64-bit product a·b, by 16-bit halves in uint32 alone."""
    half, mask = np.uint32(16), np.uint32(0xFFFF)
    a_low, a_high = np.uint32(a & 0xFFFF), np.uint32(a >> 16)
    b_low, b_high = b & mask, b >> half
    cross = a_low * b_high
    # At most 0xffff + 0xffff + 0xffff² = 2³² − 1: the middle sum cannot overflow.
    middle = ((a_low * b_low) >> half) + (cross & mask) + a_high * b_low
    high = a_high * b_high + (cross >> half) + (middle >> half)
    return high, b * np.uint32(a)


def _rounds_of_halves(key: tuple[Any, Any], counter: Words) -> Words:
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(ROUNDS):
        high0, low0 = _multiply_halves(MULTIPLIERS[0], c0)
        high1, low1 = _multiply_halves(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + np.uint32(WEYL[0]), k1 + np.uint32(WEYL[1])
    return c0, c1, c2, c3


def _rounds_of_products(key: tuple[Any, Any], counter: Words) -> Words:
    """Philox rounds by uint64 products; upper halves of words are cleared where they matter."""
    k0, k1, c0, c1, c2, c3 = (word.astype(jnp.uint64) for word in (*key, *counter))
    word, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    for _ in range(ROUNDS):
        product0 = (c0 & low) * np.uint64(MULTIPLIERS[0])
        product1 = (c2 & low) * np.uint64(MULTIPLIERS[1])
        c0, c1 = (product1 >> word) ^ c1 ^ k0, product1
        c2, c3 = (product0 >> word) ^ c3 ^ k1, product0
        k0, k1 = k0 + np.uint64(WEYL[0]), k1 + np.uint64(WEYL[1])
    first, second, third, fourth = (c.astype(jnp.uint32) for c in (c0, c1, c2, c3))
    return first, second, third, fourth


def philox4x32(key: tuple[Any, Any], counter: tuple[Any, Any, Any, Any]) -> Words:
    """Four uint32 words from a key of two words and a counter of four, elementwise.

    Scalars and arrays of one shape may be mixed; integers must lie in [0, 2³²).
    """
    k0, k1 = (jnp.asarray(word, jnp.uint32) for word in key)
    c0, c1, c2, c3 = (jnp.asarray(word, jnp.uint32) for word in counter)
    rounds = _rounds_of_products if x64_is_on() else _rounds_of_halves
    return rounds((k0, k1), (c0, c1, c2, c3))


def normal_numbers(words: Words, dtype: Any, scale: Any = 1) -> tuple[Array, ...]:
    """Four independent N(0, scale²) numbers from four words (Box–Muller)."""
    w0, w1, w2, w3 = words
    kind = np.dtype(dtype)
    return *_normal_pair(w0, w1, kind, scale), *_normal_pair(w2, w3, kind, scale)


def _normal_pair(first: Array, second: Array, dtype: np.dtype, scale: Any) -> tuple[Array, Array]:
    """Two independent normal numbers from two words: the radius from the first, then the angle.

    Two bits choose one of four quarters of the circle, around its axes; the others are a place in
    it. In the tail a radius needs more than 32 bits, and near an axis an angle does, so each of the
    words goes on with the last bits of the other: they matter to one of them only where they do not
    matter to the other. The radius is √(−2 ln u) with u = k/2⁵², 0 < k ≤ 2⁵², so that no number is
    larger than √(104 ln 2) = 8.49; of 10¹⁶ exact normal numbers 0.2 would be. Functions to nine
    digits are enough, because the smaller number of a pair has its error relative to itself.
    """
    if dtype == np.float64:
        first, second = first.astype(jnp.uint64), second.astype(jnp.uint64)
        energy, t = _energy_and_place(first, second)
    else:
        energy, t = _energy_and_place_in_single_precision(first, second)
    radius = scale * sqrt(2) * jnp.sqrt(energy)
    along, across = radius * cos_of_quarter(t), radius * sin_of_quarter(t)
    along, is_turned = _signed(along, second, 31), (second & (1 << 30)) != 0
    return jnp.where(is_turned, across, along), jnp.where(is_turned, along, across)


def _energy_and_place(first: Array, second: Array) -> tuple[Array, Array]:
    """−ln u and a number in (−½, ½), from 52 bits each."""
    u = _between_1_and_2((first << 20) | (second & 0xFFFFF)) - (1 - 2.0**-52)
    # The bits of the quarter are pushed out.
    t = _between_1_and_2(((second << 34) >> 12) | (first & 0x3FFFFF)) - 1.5
    return -rough_log(u), t


def _energy_and_place_in_single_precision(first: Array, second: Array) -> tuple[Array, Array]:
    """The same in float32, from the same bits, with its relative precision at either end."""
    low = ((first & 1) << 20) | (second & 0xFFFFF)
    u = _float(first >> 1) * 2.0**-31 + (_float(low) + 1) * 2.0**-52
    # 1 − u is not to be had from u: near 1 there are few numbers.
    v = _float(~first >> 1) * 2.0**-31 + _float(low ^ 0x1FFFFF) * 2.0**-52
    energy = jnp.where(v < 2.0**-8, v * (1 + v * (0.5 + v * (1 / 3))), -jnp.log(u))
    # As a number with a sign, in the middle of what its bits leave open.
    t = ((second << 2) ^ np.uint32(0x80000002)).astype(jnp.int32).astype(jnp.float32) * 2.0**-32
    return energy, t


def _between_1_and_2(mantissa: Array) -> Array:
    """1 + m/2⁵², by putting the bits of m after the exponent of one: cheaper than a conversion."""
    return lax.bitcast_convert_type(mantissa | np.uint64(0x3FF << 52), np.float64)


def _signed(x: Array, word: Array, place: int) -> Array:
    """x with its sign changed where the bit at a place of a word is set."""
    sign = (word >> place) << (8 * word.dtype.itemsize - 1)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, word.dtype) ^ sign, x.dtype)


def _float(word: Array) -> Array:
    """A word below 2³¹ as a float32, by way of int32: one instruction on every device."""
    return word.astype(jnp.int32).astype(jnp.float32)


def seed_words(seed: Any) -> Any:
    """A seed in [0, 2⁶⁴) as an array of two uint32 words, low first; such an array as it is.

    Draws take these words wherever they take a seed; unlike a Python integer they can be an
    argument of a compiled function, so that a new seed compiles nothing.
    """
    is_array = isinstance(seed, np.ndarray | jax.Array)
    if is_array and seed.shape == (2,) and seed.dtype == np.uint32:
        return seed
    return np.array(_split(plain_integer(seed, "seed", MAX_SEED)), np.uint32)


def path_words(path: Any) -> tuple[Any, Any]:
    """A path number in [0, 2⁶³) as two uint32 words, low first; such a tuple as it is."""
    if isinstance(path, tuple):
        return path
    if not isinstance(path, jax.Array):
        return _split(plain_integer(path, "path", MAX_PATHS))
    _require_integer_scalar(path, "path")
    low = path.astype(jnp.uint32)
    if path.dtype.itemsize < 8:
        return low, np.uint32(0)
    return low, (path.astype(jnp.uint64) >> np.uint64(32)).astype(jnp.uint32)


def stream_words(stream: Stream, seed: Integer, path: Integer, step: Integer, noises: int) -> Words:
    """The four words of each of `noises` noise indices, at one path and one step.

    `path` and `step` are scalars, Python integers (checked) or traced ones (used modulo 2⁶⁴ and
    2³²); `seed` and `path` may be given as their words. Each result has the shape (noises,).
    """
    if not 0 <= noises < MAX_NOISES:
        raise ValueError(f"noises={noises}: the number of noises must lie in [0, 2**29)")
    key, index = seed_words(seed), jnp.arange(noises, dtype=jnp.uint32)
    if noises > 2**INDEX_BITS:
        index = _around_tag(index)
    index = index | np.uint32(stream << INDEX_BITS)
    low, high = path_words(path)
    return philox4x32((key[0], key[1]), (low, high, step_word(step), index))


def _around_tag(index: Any) -> Any:
    """Noise indices with room for a stream tag: what does not fit below it goes above."""
    below, bits = np.uint32(2**INDEX_BITS - 1), np.uint32(INDEX_BITS)
    return (index & below) | (index >> bits) << (bits + np.uint32(TAG_BITS))


def plain_integer(value: Any, name: str, limit: int) -> int:
    """The Python integer of a concrete value in [0, limit)."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}={value!r}: give an integer, for example {name}=0")
    if not 0 <= value < limit:
        bits = limit.bit_length() - 1
        raise ValueError(f"{name}={value}: give an integer in [0, 2**{bits})")
    return int(value)


def _split(value: int) -> tuple[np.uint32, np.uint32]:
    return np.uint32(value & 0xFFFFFFFF), np.uint32(value >> 32)


def step_word(step: Any) -> Any:
    """A step number as a uint32 word: checked if it is concrete, modulo 2³² if traced."""
    if not isinstance(step, jax.Array):
        return plain_integer(step, "step", MAX_STEPS)
    _require_integer_scalar(step, "step")
    return step.astype(jnp.uint32)


def _require_integer_scalar(value: jax.Array, name: str) -> None:
    if value.ndim != 0 or not jnp.issubdtype(value.dtype, jnp.integer):
        raise TypeError(
            f"{name} has shape {value.shape} and dtype {value.dtype}: a draw is for one {name}; "
            "give an integer scalar and use jax.vmap for many"
        )
