"""Scalars as expressions: built once, simplified on the way, and evaluated wherever needed.

An entry of an array of scalars is either a NumPy number, known while the program is written, or an
`Expression`. Equal expressions are one object, so what a function computes twice is computed once,
and what no result needs is not computed at all. The rules below leave out what a compiler may not
(XLA keeps 0·x because x could be infinite) and change no result by more than one rounding.
"""

from collections.abc import Callable, Iterable
from math import frexp
from typing import Any

import jax
import numpy as np
from jax import lax

__all__ = [
    "Expression",
    "Program",
    "add",
    "apply",
    "components",
    "div",
    "is_known",
    "magnitude",
    "maximum",
    "mul",
    "neg",
    "power",
    "sub",
    "vector",
]


class Expression:
    """An operation on numbers and other expressions; compared by identity."""

    __slots__ = ("args", "dtype", "graph", "name", "number", "operation")

    def __init__(
        self,
        graph: "Graph",
        name: Any,
        operation: Callable[..., Any] | None,
        args: tuple[Any, ...],
        dtype: np.dtype,
    ) -> None:
        self.graph, self.name, self.operation, self.args = graph, name, operation, args
        self.dtype, self.number = dtype, len(graph.nodes)
        graph.nodes.append(self)


class Graph:
    """All expressions of a program, and a table by which equal ones are found."""

    def __init__(self) -> None:
        self.nodes: list[Expression] = []
        self.table: dict[Any, Expression] = {}

    def input(self, dtype: Any) -> Expression:
        """An expression whose value is given."""
        return Expression(self, "input", None, (), np.dtype(dtype))

    def forget(self) -> None:
        """Drop all that no program needs, once nothing is to be added any more."""
        self.nodes, self.table = [], {}

    def node(
        self, name: Any, operation: Callable[..., Any], args: tuple[Any, ...], dtype: Any
    ) -> Expression:
        key = (name, *(_key(x) for x in args), np.dtype(dtype))
        if key not in self.table:
            self.table[key] = Expression(self, name, operation, args, np.dtype(dtype))
        return self.table[key]


def _key(x: Any) -> Any:
    return (x.dtype, x.tobytes()) if is_known(x) else x.number


class Program:
    """A function of arrays of scalars as the expressions that it amounts to.

    Attributes:
        size: how many operations there are.
    """

    def __init__(self, fun: Callable[..., Any], *like: Any) -> None:
        """Write `fun` out for arguments of the shapes and types of `like`."""
        graph = Graph()
        leaves, tree = jax.tree.flatten(like)
        arrays = [vector(graph.input(_dtype(x)) for _ in range(_size(x))) for x in leaves]
        self._inputs = [node for array in arrays for node in array]
        shaped = [array.reshape(np.shape(x)) for array, x in zip(arrays, leaves, strict=True)]
        self._results = fun(*jax.tree.unflatten(tree, shaped))
        self._order = _needed(
            x for array in jax.tree.leaves(self._results) for x in np.ravel(array)
        )
        self.size = len(self._order)
        graph.forget()

    def __call__(self, *args: Any) -> Any:
        """Results for arrays of traced scalars, in which known numbers stay known."""
        given = [x for array in jax.tree.leaves(args) for x in components(array).ravel()]
        values = dict(zip(self._inputs, given, strict=True))

        def value(x: Any) -> Any:
            return values[x] if isinstance(x, Expression) else x

        for node in self._order:
            assert node.operation is not None
            values[node] = node.operation(*map(value, node.args))

        def evaluated(array: np.ndarray) -> np.ndarray:
            return vector(map(value, array.ravel())).reshape(array.shape)

        return jax.tree.map(evaluated, self._results)


def components(x: Any) -> np.ndarray:
    """An array as a NumPy array of scalars: numbers if it is known, traced values if not."""
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x
    known = not isinstance(x, jax.Array)
    values = np.asarray(x) if known else x
    out = np.empty(values.shape, object)
    for index in np.ndindex(values.shape):
        out[index] = values.dtype.type(values[index]) if known else values[index]
    return out


def _size(x: Any) -> int:
    return int(np.prod(np.shape(x)))


def _dtype(x: Any) -> Any:
    return x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype


def _needed(outputs: Iterable[Any]) -> list[Expression]:
    """The operations behind some expressions, in an order in which they can be evaluated."""
    found: set[Expression] = set()
    todo = [x for x in outputs if isinstance(x, Expression)]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += [x for x in node.args if isinstance(x, Expression)]
    return sorted((x for x in found if x.operation is not None), key=lambda x: x.number)


def is_known(x: Any) -> bool:
    """True for a number that is known while the program is written."""
    return isinstance(x, np.generic)


def vector(values: Iterable[Any]) -> np.ndarray:
    """Scalars as a NumPy array, one entry each."""
    entries = list(values)
    out = np.empty(len(entries), object)
    for i, entry in enumerate(entries):
        out[i] = entry
    return out


def apply(name: Any, operation: Callable[..., Any], args: tuple[Any, ...], dtype: Any) -> Any:
    """An operation without a rule of its own, at least one argument of which is not known."""
    graph = next(x.graph for x in args if isinstance(x, Expression))
    return graph.node(name, operation, args, dtype)


def _operation(name: str, operation: Callable[..., Any], *args: Any) -> Any:
    dtype = next(x.dtype for x in args if isinstance(x, Expression))
    return apply(name, operation, args, dtype)


def _commutative(name: str, operation: Callable[..., Any], x: Any, y: Any) -> Any:
    # Known numbers first, and the older expression before the younger one.
    first, second = sorted((x, y), key=lambda z: -1 if is_known(z) else z.number)
    return _operation(name, operation, first, second)


def _is(x: Any, value: float) -> bool:
    return is_known(x) and x == value


def _is_op(x: Any, name: str) -> bool:
    return isinstance(x, Expression) and x.name == name


def _scaled(x: Any) -> tuple[Any, Any] | None:
    """(c, y) if x is c·y with a known number c."""
    if _is_op(x, "mul") and is_known(x.args[0]):
        return x.args
    if _is_op(x, "neg"):
        return np.asarray(-1, x.dtype)[()], x.args[0]
    return None


def _is_power_of_two(x: Any) -> bool:
    return bool(np.isfinite(x)) and abs(frexp(float(x))[0]) == 0.5


def _is_float(x: Any) -> bool:
    return np.issubdtype(x.dtype, np.floating)


def neg(x: Any) -> Any:
    if is_known(x):
        return -x
    scaled = _scaled(x)
    if scaled is not None and _is_float(x):
        return mul(-scaled[0], scaled[1])
    if _is_op(x, "sub"):
        return sub(x.args[1], x.args[0])
    return _operation("neg", lax.neg, x)


def add(x: Any, y: Any) -> Any:
    if is_known(x) and is_known(y):
        return x + y
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
        return x - y
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
        return x * y
    for one, other in ((x, y), (y, x)):
        if _is(one, 0):
            return one
        if _is(one, 1):
            return other
        if _is(one, -1) and _scaled(other) is None:
            return neg(other)
        # A power of two, or a sign, can move through a product without any rounding.
        scaled = _scaled(other) if _is_float(other) else None
        if scaled is None:
            continue
        if is_known(one) and (_is_power_of_two(one) or _is_power_of_two(scaled[0])):
            return mul(one * scaled[0], scaled[1])
        if not is_known(one) and _is_power_of_two(scaled[0]):
            return mul(scaled[0], mul(one, scaled[1]))
    return _commutative("mul", lax.mul, x, y)


def div(x: Any, y: Any) -> Any:
    if is_known(x) and is_known(y):
        return x / y if _is_float(x) else np.sign(x) * np.sign(y) * (abs(x) // abs(y))
    if _is(x, 0) or _is(y, 1):
        return x
    if is_known(y) and _is_float(y):
        return mul(1 / y, x)
    scaled = _scaled(x) if _is_float(x) else None
    if scaled is not None and _is_power_of_two(scaled[0]):
        return mul(scaled[0], div(scaled[1], y))
    return _operation("div", lax.div, x, y)


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
        return abs(x)
    scaled = _scaled(x)
    if scaled is not None and _is_float(x):
        return mul(abs(scaled[0]), magnitude(scaled[1]))
    is_square = _is_op(x, "mul") and x.args[0] is x.args[1]
    if is_square or _is_op(x, "magnitude"):
        return x
    return _operation("magnitude", absolute, x)


@jax.custom_jvp
def absolute(x: Any) -> Any:
    """|x| of a traced value.

    Of a float64 by its bits, because Triton makes a float32 of its absolute value (jax 0.11.2).
    """
    if x.dtype != np.float64:
        return lax.abs(x)
    bits = lax.bitcast_convert_type(x, np.int64)
    return lax.bitcast_convert_type(lax.bitwise_and(bits, np.int64(2**63 - 1)), x.dtype)


# Bits have no derivative.
absolute.defjvps(lambda tangent, _, x: tangent * lax.sign(x))
