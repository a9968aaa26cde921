"""Arithmetic on scalars in which known zeros and ones cost nothing.

A scalar is either a NumPy number, known while the program is written, or a traced value. These
five operations leave out what a compiler may not: XLA keeps 0·x because x could be infinite.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
from jax import lax

__all__ = [
    "add",
    "div",
    "is_known",
    "mul",
    "neg",
    "product_of_magnitudes",
    "solve_linear",
    "sub",
    "vector",
]


def is_known(x: Any) -> bool:
    """True for a number that is known while tracing."""
    return isinstance(x, np.generic)


def vector(values: Iterable[Any]) -> np.ndarray:
    """Scalars as a NumPy array, one entry each."""
    entries = list(values)
    out = np.empty(len(entries), object)
    for i, entry in enumerate(entries):
        out[i] = entry
    return out


def _is(x: Any, value: float) -> bool:
    return is_known(x) and x == value


def neg(x: Any) -> Any:
    return -x if is_known(x) else lax.neg(x)


def add(x: Any, y: Any) -> Any:
    if _is(x, 0):
        return y
    if _is(y, 0):
        return x
    return x + y if is_known(x) and is_known(y) else lax.add(x, y)


def sub(x: Any, y: Any) -> Any:
    if _is(y, 0):
        return x
    if _is(x, 0):
        return neg(y)
    return x - y if is_known(x) and is_known(y) else lax.sub(x, y)


def mul(x: Any, y: Any) -> Any:
    for one, other in ((x, y), (y, x)):
        if _is(one, 0):
            return one
        if _is(one, 1):
            return other
        if _is(one, -1):
            return neg(other)
    return x * y if is_known(x) and is_known(y) else lax.mul(x, y)


def div(x: Any, y: Any) -> Any:
    if _is(x, 0) or _is(y, 1):
        return x
    return x / y if is_known(x) and is_known(y) else lax.div(x, y)


def solve_linear(matrix: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Solve a small system of scalars by elimination, written out, with known zeros skipped.

    There is no pivoting: stage matrices are a small step away from the identity, and the residual
    of the nonlinear equations is checked afterwards.
    """
    n = len(rhs)
    a, x = matrix.copy(), rhs.copy()
    one = np.ones((), rhs[0].dtype)[()]
    for k in range(n):
        # One division per pivot: they are the slowest operations here.
        a[k, k] = div(one, a[k, k])
        for i in range(k + 1, n):
            factor = mul(a[i, k], a[k, k])
            for j in range(k + 1, n):
                a[i, j] = sub(a[i, j], mul(factor, a[k, j]))
            x[i] = sub(x[i], mul(factor, x[k]))
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            x[i] = sub(x[i], mul(a[i, j], x[j]))
        x[i] = mul(x[i], a[i, i])
    return x


def magnitude(x: Any) -> Any:
    """|x| by its bits, because the absolute value of a float64 is a float32 in some kernels.

    That is so in Triton under jax 0.11.2.
    """
    if is_known(x) or x.dtype != np.float64:
        return abs(x)
    bits = lax.bitcast_convert_type(x, np.int64)
    return lax.bitcast_convert_type(lax.bitwise_and(bits, np.int64(2**63 - 1)), x.dtype)


def product_of_magnitudes(matrix: np.ndarray, u: np.ndarray) -> np.ndarray:
    """|A| · |u| of a matrix and a vector of scalars."""
    sums = []
    for row in matrix:
        parts = [mul(magnitude(a), magnitude(x)) for a, x in zip(row, u, strict=True)]
        sums.append(reduce(add, parts))
    return vector(sums)
