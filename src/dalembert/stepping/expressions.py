"""Scalars as expressions: built once, simplified on the way, and evaluated wherever needed.

An entry of an array of scalars is either a NumPy number, known while the program is written, or an
`Expression`. Equal expressions are one object, so what a function computes twice is computed once,
and what no result needs is not computed at all.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from dalembert import elementary


class Shared(jax.ShapeDtypeStruct):
    """The shape and type of numbers that are the same for all paths and steps of a run."""


class Expression:
    """An operation on numbers and other expressions; compared by identity.

    It is shared if all that it depends on is: a compiler computes it once, outside of all loops.
    """

    __slots__ = ("args", "dtype", "graph", "is_shared", "name", "number", "operation")

    def __init__(
        self,
        graph: "Graph",
        name: Any,
        operation: Callable[..., Any] | None,
        args: tuple[Any, ...],
        dtype: np.dtype,
        is_shared: bool,
    ) -> None:
        self.is_shared = is_shared
        self.graph, self.name, self.operation, self.args = graph, name, operation, args
        self.dtype, self.number = dtype, len(graph.nodes)
        graph.nodes.append(self)


class Graph:
    """All expressions of a program, and a table by which equal ones are found."""

    def __init__(self) -> None:
        self.nodes: list[Expression] = []
        self.table: dict[Any, Expression] = {}

    def input(self, like: Any) -> Expression:
        """An expression whose value is given."""
        return Expression(self, "input", None, (), _dtype(like), isinstance(like, Shared))

    def forget(self) -> None:
        """Drop all that no program needs, once nothing is to be added any more."""
        self.nodes, self.table = [], {}

    def node(
        self, name: Any, operation: Callable[..., Any], args: tuple[Any, ...], dtype: Any
    ) -> Expression:
        key = (name, *(_key(x) for x in args), np.dtype(dtype))
        if key not in self.table:
            shared = all(map(is_shared, args))
            self.table[key] = Expression(self, name, operation, args, np.dtype(dtype), shared)
        return self.table[key]


def _key(x: Any) -> Any:
    return (x.dtype, x.tobytes()) if is_known(x) else x.number


class Program:
    """A function of arrays of scalars as the expressions that it amounts to.

    Attributes:
        order: the operations, in an order in which they can be evaluated.
        size: how many operations there are.
        operations: the names of those that paths do not share.
    """

    def __init__(self, fun: Callable[..., Any], *like: Any, is_rough: bool = False) -> None:
        """Write `fun` out for arguments of the shapes and types of `like`.

        A rough program computes sines and cosines to seven digits only.
        """
        graph = Graph()
        leaves, tree = jax.tree.flatten(like)
        arrays = [vector(graph.input(x) for _ in range(_size(x))) for x in leaves]
        self._inputs = [node for array in arrays for node in array]
        shaped = [array.reshape(np.shape(x)) for array, x in zip(arrays, leaves, strict=True)]
        self._results = fun(*jax.tree.unflatten(tree, shaped))
        self.order = _needed(x for array in jax.tree.leaves(self._results) for x in np.ravel(array))
        if is_rough:
            _make_rough(self.order)
        else:
            _pair_sines_and_cosines(self.order)
        self.size = len(self.order)
        self.operations = {node.name for node in self.order if not node.is_shared}
        graph.forget()

    def __call__(self, *args: Any) -> Any:
        """Results for arrays of traced scalars, in which known numbers stay known."""
        return self.in_stages([(self.order, [])], tuple, *args)

    def in_stages(
        self,
        stages: list[tuple[list[Expression], list[Expression]]],
        keep: Callable[[list[Any]], Sequence[Any]],
        *args: Any,
    ) -> Any:
        """The same, where some values go through `keep` after each stage of the operations."""
        given = [x for array in jax.tree.leaves(args) for x in components(array).ravel()]
        values = dict(zip(self._inputs, given, strict=True))

        def value(x: Any) -> Any:
            return values[x] if isinstance(x, Expression) else x

        for nodes, kept in stages:
            for node in nodes:
                assert node.operation is not None
                values[node] = node.operation(*map(value, node.args))
            values.update(zip(kept, keep([values[node] for node in kept]), strict=True))

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


def _dtype(x: Any) -> np.dtype:
    return np.dtype(x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype)


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


def _pair_sines_and_cosines(nodes: list[Expression]) -> None:
    """Let a sine and a cosine of the same angle share their operations."""
    paired: dict[Any, Callable[..., Any]] = {
        elementary.sin: elementary.sin_beside_cos,
        elementary.cos: elementary.cos_beside_sin,
    }
    angles = {fun: {node.args for node in nodes if node.operation is fun} for fun in paired}
    both = set.intersection(*angles.values())
    for node in nodes:
        if node.operation in paired and node.args in both:
            node.operation = paired[node.operation]


def _make_rough(nodes: list[Expression]) -> None:
    rough: dict[Any, Callable[..., Any]] = {
        elementary.sin: elementary.rough_sin,
        elementary.cos: elementary.rough_cos,
    }
    for node in nodes:
        node.operation = rough.get(node.operation, node.operation)


def is_known(x: Any) -> bool:
    """True for a number that is known while the program is written."""
    return isinstance(x, np.generic)


def is_shared(x: Any) -> bool:
    """True for what is known, or the same for all paths and steps."""
    return is_known(x) or x.is_shared


def vector(values: Iterable[Any]) -> np.ndarray:
    """Scalars as a NumPy array, one entry each."""
    entries = list(values)
    out = np.empty(len(entries), object)
    for i, entry in enumerate(entries):
        out[i] = entry
    return out


def apply(name: Any, operation: Callable[..., Any], args: tuple[Any, ...], dtype: Any) -> Any:
    """An operation without a rule of its own; of known numbers it is computed at once."""
    if all(map(is_known, args)):
        # Compiled, because a function with a derivative of its own would join a trace around it.
        with jax.ensure_compile_time_eval():
            return np.asarray(jax.jit(operation)(*args))[()]
    graph = next(x.graph for x in args if isinstance(x, Expression))
    return graph.node(name, operation, args, dtype)
