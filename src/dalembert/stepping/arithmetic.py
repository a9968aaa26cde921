"""Sums, products and quotients of scalars, simplified while they are written.

The rules leave out what a compiler may not (XLA keeps 0·x because x could be infinite). They change
no float by more than a few roundings or the sign of a zero, and whole numbers, which go around
where they end, not at all.
"""

import operator
from collections.abc import Callable
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
from jax import lax

from dalembert import elementary
from dalembert.stepping.expressions import Expression, apply, is_known, is_shared


def _computed(operation: Callable[..., Any], *args: Any) -> Any:
    """Arithmetic on known numbers, without NumPy's words about overflow and division by zero."""
    with np.errstate(all="ignore"):
        return operation(*args)


def _operation(name: str, operation: Callable[..., Any], *args: Any) -> Any:
    return apply(name, operation, args, args[0].dtype)


def _commutative(name: str, operation: Callable[..., Any], x: Any, y: Any) -> Any:
    # Known numbers first, then shared ones, and the older expression before the younger one.
    def order(z: Any) -> tuple[bool, int]:
        return not is_shared(z), -1 if is_known(z) else z.number

    first, second = sorted((x, y), key=order)
    return _operation(name, operation, first, second)


def _is(x: Any, value: float) -> bool:
    return is_known(x) and x == value


def _is_op(x: Any, name: str) -> bool:
    return isinstance(x, Expression) and x.name == name


def _factors(x: Any) -> tuple[Any, Any]:
    """(c, y) if x is c·y with a shared number c, or (None, x)."""
    if _is_float(x) and isinstance(x, Expression) and not x.is_shared:
        if x.name == "mul" and is_shared(x.args[0]):
            return x.args
        if x.name == "neg":
            return np.asarray(-1, x.dtype)[()], x.args[0]
    return None, x


def _is_float(x: Any) -> bool:
    return np.issubdtype(x.dtype, np.floating)


def _is_normal(x: Any) -> bool:
    """False for a known number that has lost digits, or is no number any more."""
    limits = np.finfo(x.dtype)
    return bool(limits.tiny <= abs(x) <= limits.max)


def neg(x: Any) -> Any:
    if is_known(x):
        return _computed(operator.neg, x)
    factor, rest = _factors(x)
    if factor is not None:
        return mul(neg(factor), rest)
    if _is_op(x, "sub"):
        return sub(x.args[1], x.args[0])
    if _is_op(x, "neg"):
        return x.args[0]
    return _operation("neg", lax.neg, x)


def add(x: Any, y: Any) -> Any:
    if is_known(x) and is_known(y):
        return _computed(operator.add, x, y)
    if _is(x, 0):
        return y
    if _is(y, 0):
        return x
    for one, other in ((x, y), (y, x)):
        if _is_op(one, "neg"):
            return sub(other, one.args[0])
    return _commutative("add", lax.add, x, y)


def sub(x: Any, y: Any) -> Any:
    if is_known(x) and is_known(y):
        return _computed(operator.sub, x, y)
    if _is(y, 0):
        return x
    if _is(x, 0):
        return neg(y)
    if _is_op(y, "neg"):
        return add(x, y.args[0])
    if is_known(y) and _is_float(y):
        return add(x, -y)
    return _operation("sub", lax.sub, x, y)


def mul(x: Any, y: Any) -> Any:
    if is_known(x) and is_known(y):
        return _computed(operator.mul, x, y)
    for one, other in ((x, y), (y, x)):
        if _is(one, 0):
            return one
        if _is(one, 1):
            return other
        if _is(one, -1) and _factors(other)[0] is None:
            return neg(other)
    if is_shared(x) and is_shared(y):
        return _commutative("mul", lax.mul, x, y)
    # Shared factors are brought together, so that there is one product with all of them.
    a, s = (x, None) if is_shared(x) else _factors(x)
    b, t = (y, None) if is_shared(y) else _factors(y)
    rest = (s if t is None else t) if s is None or t is None else _product(s, t)
    if a is None and b is None:
        return rest
    factor = reduce(mul, (c for c in (a, b) if c is not None))
    if is_known(factor) and _is_float(factor) and not _is_normal(factor):
        return _commutative("mul", lax.mul, x, y)
    if _is(factor, 1) or _is(factor, -1):
        return rest if factor == 1 else neg(rest)
    return _commutative("mul", lax.mul, factor, rest)


MAX_FACTORS = 6
"""Products of more factors are left as they are, and so are squares."""


def _product(x: Expression, y: Expression) -> Expression:
    """x·y of what paths do not share, by products that there are already."""
    factors = _unfolded(x) + _unfolded(y)
    if x is y or len(factors) > MAX_FACTORS:
        factors = [x, y]
    else:
        while len(factors) > 2 and (known := _oldest_product(factors)):
            for factor in known.args:
                factors.remove(factor)
            factors.append(known)
    # What is left belongs to this product: the youngest factors first.
    factors.sort(key=lambda factor: factor.number)
    while len(factors) > 2:
        factors.append(_commutative("mul", lax.mul, factors.pop(), factors.pop()))
    return _commutative("mul", lax.mul, *factors)


def _unfolded(x: Expression) -> list[Expression]:
    """The factors of a product."""
    if x.name != "mul" or any(map(is_shared, x.args)):
        return [x]
    return [factor for arg in x.args for factor in _unfolded(arg)]


def _oldest_product(factors: list[Expression]) -> Expression | None:
    """The first product of two of these factors that was made."""
    table, dtype = factors[0].graph.table, factors[0].dtype
    pairs = combinations(sorted(x.number for x in factors), 2)
    found = [table[key] for pair in pairs if (key := ("mul", *pair, dtype)) in table]
    return min(found, key=lambda x: x.number, default=None)


def div(x: Any, y: Any) -> Any:
    if is_known(x) and is_known(y) and _is_float(x):
        return _computed(operator.truediv, x, y)
    if _is(y, 1):
        return x
    if _is_float(y):
        if _is(x, 0):
            return x
        if is_known(y):
            inverse = _computed(operator.truediv, np.ones((), y.dtype)[()], y)
            return mul(inverse, x) if _is_normal(inverse) else _operation("div", lax.div, x, y)
        if is_shared(y) and not is_shared(x):
            return mul(div(np.ones((), y.dtype)[()], y), x)
        factor, rest = _factors(x)
        if factor is not None:
            return mul(factor, div(rest, y))
    return _operation("div", lax.div, x, y)


def rough_inverse(x: Any) -> Any:
    """1/x, where a few digits less than all are enough."""
    if is_known(x):
        return _computed(operator.truediv, np.ones((), x.dtype)[()], x)
    return _operation("rough_inverse", elementary.rough_inverse, x)


def power(x: Any, exponent: int) -> Any:
    """x to an integer power, by products."""
    if exponent == 0:
        return np.ones((), x.dtype)[()]
    if exponent < 0:
        return div(np.ones((), x.dtype)[()], power(x, -exponent))
    half = power(x, exponent // 2)
    square = mul(half, half) if exponent > 1 else half
    return mul(square, x) if exponent % 2 else square


def maximum(x: Any, y: Any) -> Any:
    if is_known(x) and is_known(y):
        return np.maximum(x, y)
    return x if x is y else _commutative("max", lax.max, x, y)


def magnitude(x: Any) -> Any:
    """|x|; signs and known factors are taken out first."""
    if is_known(x):
        return _computed(abs, x)
    factor, rest = _factors(x)
    if factor is not None:
        return mul(magnitude(factor), magnitude(rest))
    is_square = _is_float(x) and _is_op(x, "mul") and x.args[0] is x.args[1]
    if is_square or _is_op(x, "magnitude"):
        return x
    return _operation("magnitude", elementary.absolute, x)
