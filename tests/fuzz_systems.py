"""Random functions and systems from a grammar, for tests that compare engines with `jax.numpy`.

A formula is a nested tuple (operation, operands…) of one of four kinds: F, a number; V, a vector of
length 3; I, a whole number; B, a truth value. `value` computes it from a vector z and parameters in
plain `jax.numpy`. The operations stay tame, so that rounding is not magnified beyond recognition.
"""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

LENGTH = 3
MATRIX = np.array([[0.3, 0.0, 1.0], [-0.7, 1.0, 0.0], [0.0, 0.25, -1.0]])
WAVES = np.arange(3.0)
WEIGHTS = np.array([0.5, 0.0, -1.25])
WHOLES = np.array([3, 0, -5], np.int32)


@jax.custom_jvp
def own_sine(x):
    return jnp.sin(x)


own_sine.defjvps(lambda tangent, _, x: tangent * jnp.cos(x))


@jax.custom_vjp
def own_tanh(x):
    return jnp.tanh(x)


own_tanh.defvjp(lambda x: (jnp.tanh(x), x), lambda x, g: (g / jnp.cosh(x) ** 2,))


def _closed(x):
    scale = WEIGHTS[0] + 1
    return (lambda y: scale * y * y - y)(x)


def _to(kind, scale):
    return lambda x: (scale * x).astype(kind).astype(jnp.int32)


def _power(x, y):
    return (1 + x * x) ** jnp.tanh(y)


def _whole_power(n, x):
    # JAX's own derivative of such a power multiplies whole numbers and floats.
    return lax.pow(lax.stop_gradient(1 + x * x), -jnp.bitwise_and(n, 3))


def _by_case(n, x, y):
    return lax.select_n(jnp.bitwise_and(n, 1).astype(jnp.int32), x, y)


class Operation(NamedTuple):
    result: str
    operands: str
    function: Any


def _group(result, operands, **functions):
    return {name: Operation(result, operands, fun) for name, fun in functions.items()}


STRAIGHT = {
    **_group("F", "F", sin=jnp.sin, cos=jnp.cos, tanh=jnp.tanh, atan=jnp.arctan, erf=jax.lax.erf),
    **_group("F", "F", bessel=lax.bessel_i0e),
    **_group("F", "F", asinh=jnp.arcsinh, absolute=jnp.abs, negative=lambda x: -x),
    **_group("F", "F", root=lambda x: jnp.sqrt(1 + x * x), log=lambda x: jnp.log(1.5 + x * x)),
    **_group("F", "F", gauss=lambda x: jnp.exp(-x * x), bell=lambda x: 1 / (1 + x * x)),
    **_group("F", "F", log1p=lambda x: jnp.log1p(x * x), softplus=jax.nn.softplus),
    **_group(
        "F", "F", square=jnp.square, cube=lambda x: x**3 / 4, inverse=lambda x: (2 + x**2) ** -2
    ),
    **_group("F", "F", relu=jax.nn.relu, sign=jnp.sign, floor=lambda x: jnp.floor(3 * x) / 4),
    **_group("F", "F", nearest=lambda x: jnp.round(2 * x) / 3, remainder=lambda x: x % 0.7),
    **_group("F", "F", single=lambda x: x.astype(jnp.float32).astype(jnp.float64)),
    **_group("F", "F", stopped=lax.stop_gradient, own_sine=own_sine, own_tanh=own_tanh),
    **_group("F", "F", jitted=jax.jit(lambda x: x * x - 0.3), remat=jax.checkpoint(jnp.sin)),
    **_group("F", "F", closed=_closed, fourier=lambda x: jnp.cos(WAVES * x) @ WEIGHTS),
    **_group("F", "F", third=lambda x: x / 3, nothing=lambda x: 0 * x, slope=jax.grad(jnp.sin)),
    **_group("F", "F", cut=lambda x: jnp.where(jnp.isfinite(1 / x), x, 0.0), bits=jnp.abs),
    **_group("F", "FF", plus=jnp.add, minus=jnp.subtract, times=jnp.multiply, largest=jnp.maximum),
    **_group(
        "F", "FF", smallest=jnp.minimum, angle=jnp.arctan2, length=lambda x, y: jnp.hypot(x + 2, y)
    ),
    **_group("F", "FF", power=_power, clip=lambda x, y: jnp.clip(x, -0.8, jnp.abs(y))),
    **_group("F", "FF", ratio=lambda x, y: x / (1.5 + jnp.cos(y))),
    **_group("F", "BFF", where=jnp.where),
    **_group("F", "IFF", case=_by_case),
    **_group("F", "B", truth=lambda b: b.astype(jnp.float64)),
    **_group("F", "I", low_bits=lambda n: 0.1 * jnp.bitwise_and(n, 15).astype(jnp.float64)),
    **_group("F", "I", tiny=lambda n: 1e-9 * n.astype(jnp.float64)),
    **_group("F", "IF", whole_power=_whole_power),
    **_group("F", "V", total=jnp.sum, product=jnp.prod, highest=jnp.max, lowest=jnp.min),
    **_group("F", "V", first=lambda v: v[0], last=lambda v: v[-1], mean=jnp.mean),
    **_group("F", "V", norm=lambda v: jnp.sqrt(1 + v @ v), softmax=lambda v: jax.nn.softmax(v)[1]),
    **_group("F", "V", quadratic=lambda v: v @ MATRIX @ v, lse=jax.nn.logsumexp),
    **_group("F", "VV", dot=jnp.dot, trace=lambda v, w: jnp.trace(jnp.outer(v, w))),
    **_group("V", "V", reversed=lambda v: v[::-1], rolled=lambda v: jnp.roll(v, 1), sine=jnp.sin),
    **_group(
        "V", "V", turned=lambda v: MATRIX @ v, sums=jnp.cumsum, weighted=lambda v: WEIGHTS * v
    ),
    **_group("V", "V", taken=lambda v: v[np.array([2, 0, 2])], mapped=jax.vmap(jnp.tanh)),
    **_group("V", "V", spread=lambda v: jnp.zeros(3).at[np.array([0, 2, 0])].add(v)),
    **_group("V", "F", filled=lambda x: jnp.full(3, x), waves=lambda x: jnp.sin(WAVES * x)),
    **_group("V", "FF", padded=lambda x, y: jnp.concatenate([x[None], jnp.zeros(1), y[None]])),
    **_group("V", "VV", sum_of=jnp.add, product_of=jnp.multiply, cross=jnp.cross),
    **_group("V", "VV", chosen=lambda v, w: jnp.where(v > w, v, 2 * w)),
    **_group("I", "F", to_int=_to(jnp.int32, 4), to_byte=_to(jnp.int8, 100)),
    **_group("I", "F", to_natural=_to(jnp.uint8, 300), to_word=_to(jnp.uint32, 1e10)),
    **_group("I", "F", floored=lambda x: jnp.floor(2 * x).astype(jnp.int32)),
    **_group("I", "I", iabs=jnp.abs, isign=jnp.sign, inegative=lambda n: -n, inverted=lambda n: ~n),
    **_group(
        "I", "I", isquare=lambda n: n**2, inarrow=lambda n: n.astype(jnp.int8).astype(jnp.int32)
    ),
    **_group("I", "II", iplus=jnp.add, iminus=jnp.subtract, itimes=jnp.multiply, iover=lax.div),
    **_group("I", "II", irest=lax.rem, imax=jnp.maximum, both=lax.bitwise_and, xor=lax.bitwise_xor),
    **_group("I", "II", left=lax.shift_left, right=lax.shift_right_arithmetic),
    **_group("I", "II", logical=lax.shift_right_logical),
    **_group("I", "B", as_int=lambda b: b.astype(jnp.int32)),
    **_group("I", "V", idot=lambda v: jnp.dot((5 * v).astype(jnp.int32), WHOLES)),
    **_group("B", "FF", less=jnp.less, at_least=jnp.greater_equal, differ=jnp.not_equal),
    **_group("B", "II", iless=jnp.less, iequal=jnp.equal),
    **_group("B", "BB", all_of=jnp.logical_and, one_of=jnp.logical_xor),
    **_group("B", "B", no=jnp.logical_not),
    **_group("B", "V", some=lambda v: jnp.any(v > 0.5), every=lambda v: jnp.all(v > -2)),
    **_group("B", "F", finite=jnp.isfinite),
}
"""Operations with a straight-line form, many of them also with one of vector code."""

SCALAR_ONLY = frozenset(
    {
        *("angle", "asinh", "atan", "bessel", "case", "clip", "erf", "irest", "length", "log1p"),
        *("lse", "nearest", "own_tanh", "remainder", "softmax", "softplus"),
    }
)
VECTORISED = frozenset(STRAIGHT) - SCALAR_ONLY

LOOPS = {
    **_group("F", "BFF", branch=lambda b, x, y: lax.cond(b, jnp.sin, lambda y: 2 * y, (x + y) / 2)),
    **_group("F", "F", loop=lambda x: lax.fori_loop(0, 3, lambda i, s: jnp.cos(s) * x, x)),
    **_group("F", "F", gamma=lambda x: lax.lgamma(2 + x * x), psi=lambda x: lax.digamma(2 + x * x)),
    **_group("F", "IF", table=lambda n, x: x * jnp.asarray(WEIGHTS)[jnp.clip(n, 0, 2)]),
    **_group(
        "V", "V", sorted=jnp.sort, halves=lambda v: v.astype(jnp.bfloat16).astype(jnp.float64)
    ),
    **_group("F", "V", scanned=lambda v: lax.scan(lambda s, x: (s * x + 1, None), 0.5, v)[0]),
    **_group("F", "V", complexes=lambda v: jnp.abs(jnp.fft.fft(v + 2))[1]),
}
"""Operations that have none: a step goes to arrays."""

CONSTANTS = (0.0, 1.0, -1.0, 0.5, 2.0, 0.3, -1.7)
OPERATIONS = STRAIGHT | LOOPS


@cache
def formulas(kind="F", depth=3, names=frozenset(STRAIGHT)):
    """A strategy for formulas of a kind, of operations with some names."""
    leaf = {
        "F": st.one_of(
            st.tuples(st.just("z"), st.integers(0, LENGTH - 1)),
            st.tuples(st.just("constant"), st.sampled_from(CONSTANTS)),
            st.just(("a",)),
        ),
        "V": st.just(("z",)),
        "I": st.one_of(
            st.just(("n",)), st.tuples(st.just("whole"), st.sampled_from([0, -1, 7, 33]))
        ),
        "B": st.just(("true",)),
    }[kind]
    if depth == 0:
        return leaf
    fitting = [(n, o) for n, o in OPERATIONS.items() if o.result == kind and n in names]
    made = [
        st.tuples(st.just(name), *(formulas(k, depth - 1, names) for k in operation.operands))
        for name, operation in fitting
    ]
    return st.one_of(*made, leaf) if kind != "V" else st.one_of(leaf, *made)


def value(formula, z, params):
    """A formula at a vector z, with params {"a": number, "n": whole number}."""
    name, *operands = formula
    match name:
        case "z":
            return z[operands[0]] if operands else z
        case "constant":
            return jnp.asarray(operands[0])
        case "whole":
            return jnp.asarray(operands[0], jnp.int32)
        case "a" | "n":
            return params[name]
        case "true":
            return jnp.asarray(True)
    return OPERATIONS[name].function(*(value(operand, z, params) for operand in operands))


def names_in(formula):
    """The operations of a formula."""
    name, *operands = formula
    inner = (names_in(x) for x in operands if isinstance(x, tuple))
    return ({name} & set(OPERATIONS)).union(*inner)
