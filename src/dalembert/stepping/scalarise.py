"""Turn a function of small arrays into straight-line code on scalars.

The function is traced once and its jaxpr is interpreted over NumPy arrays of scalars: one
expression per component. Slices, stacks, reductions and small products disappear into bookkeeping,
known zeros and ones fold away, and what is left is elementwise, so that a compiler can keep a whole
step in registers.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend import core as jcore

from dalembert import elementary
from dalembert.operations import OPERATIONS, Operation
from dalembert.stepping import expressions as ex
from dalembert.stepping.dependence import name_of, sub_jaxpr
from dalembert.stepping.expressions import Program, components, is_known

__all__ = ["NotScalarError", "scalarise", "stack", "written_out"]

MAX_SCALARS = 20_000
"""Scalars per function beyond which straight-line code compiles too slowly to be of use."""


class NotScalarError(Exception):
    """The function uses an operation that has no straight-line form."""


def _constant(x: Any) -> np.ndarray:
    """A constant of a traced function: known, unless it belongs to a trace around it."""
    if isinstance(x, Tracer):
        return components(x)
    if not isinstance(jax.numpy.result_type(x), np.dtype):
        raise NotScalarError(f"constants of type {x.dtype}")
    return components(np.asarray(x))


def stack(x: np.ndarray, dtype: Any = None) -> jax.Array:
    """The inverse of `components`; entries keep their own type unless one is given."""
    flat = [jax.numpy.asarray(v, dtype) for v in x.ravel()]
    return jax.numpy.stack(flat).reshape(x.shape) if flat else jax.numpy.zeros(x.shape, dtype)


def scalarise(fun: Callable[..., Any], *like: Any) -> Program:
    """`fun` for arguments of the shapes and types of `like`, as code on arrays of scalars.

    Raises:
        NotScalarError: if an operation in `fun` has no straight-line form.
    """
    return Program(written_out(fun, *like), *like)


def written_out(fun: Callable[..., Any], *like: Any) -> Callable[..., Any]:
    """`fun` as a function of arrays of expressions, from which programs can be put together."""
    closed, shape = jax.make_jaxpr(fun, return_shape=True)(*like)
    out_tree = jax.tree.structure(shape)
    consts = [_constant(c) for c in closed.consts]

    def straight(*args: Any) -> Any:
        leaves = [components(leaf) for leaf in jax.tree.leaves(args)]
        return jax.tree.unflatten(out_tree, _interpret(closed.jaxpr, consts, leaves, _Budget()))

    return straight


class _Budget:
    def __init__(self) -> None:
        self.left = MAX_SCALARS

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise NotScalarError(f"more than {MAX_SCALARS} scalar operations")


def _interpret(jaxpr: Any, consts: list[Any], args: list[Any], budget: _Budget) -> list[Any]:
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(var: Any) -> np.ndarray:
        if not isinstance(var, jcore.Literal):
            return values[var]
        kind: Any = var.aval
        return components(np.asarray(var.val, kind.dtype))

    for eqn in jaxpr.eqns:
        outs = _apply(eqn, [read(v) for v in eqn.invars], budget)
        values.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _apply(eqn: Any, args: list[np.ndarray], budget: _Budget) -> list[np.ndarray]:
    name = name_of(eqn)
    budget.spend(sum(int(np.prod(v.aval.shape)) for v in eqn.outvars))
    inner = _known_branch(eqn, args) if name == "cond" else sub_jaxpr(eqn)
    if inner is not None:
        args = args[1:] if name == "cond" else args
        return _interpret(inner.jaxpr, [_constant(c) for c in inner.consts], args, budget)
    if all(is_known(x) for arg in args for x in arg.ravel()):
        return _evaluate(eqn, args)
    _check_types(eqn)
    if eqn.primitive in OPERATIONS:
        return [_elementwise(_OWN.get(eqn.primitive, _function(OPERATIONS[eqn.primitive])), args)]
    if name in _FOLDED:
        return [_elementwise(_FOLDED[name], args)]
    if name in _MOVES:
        return _move(eqn, args)
    if name in _REDUCTIONS:
        return [_reduce(_REDUCTIONS[name], args[0], eqn.params["axes"])]
    if name in _SPECIAL:
        return [_SPECIAL[name](eqn, args)]
    if name in _ELEMENTWISE:
        return [_elementwise(_of_primitive(eqn), args)]
    raise NotScalarError(name)


def _check_types(eqn: Any) -> None:
    """Refuse numbers whose arithmetic is not that of the rules: complex, half precision, keys."""
    for v in (*eqn.invars, *eqn.outvars):
        if v.aval.dtype not in _TYPES:
            raise NotScalarError(f"{eqn.primitive.name} of {v.aval.dtype}")


def _of_primitive(eqn: Any) -> Callable[..., Any]:
    """The operation of an equation on scalars."""
    primitive, params, dtype = eqn.primitive, eqn.params, eqn.outvars[0].aval.dtype
    name = (primitive.name, str(params)) if params else primitive.name

    def operation(*args: Any) -> Any:
        if all(is_known(x) for x in args):
            return _evaluate(eqn, [_wrap(x) for x in args])[0][()]
        return ex.apply(name, partial(primitive.bind, **params), args, dtype)

    return operation


def _known_branch(eqn: Any, args: list[np.ndarray]) -> Any | None:
    """The branch that is taken, if that is known; otherwise there is no straight line."""
    which = args[0][()]
    branches = eqn.params["branches"]
    return branches[int(np.clip(which, 0, len(branches) - 1))] if is_known(which) else None


def _elementwise(op: Callable[..., Any], args: list[np.ndarray]) -> np.ndarray:
    args = list(np.broadcast_arrays(*args))
    out = np.empty(args[0].shape, object)
    for index in np.ndindex(out.shape):
        out[index] = op(*(arg[index] for arg in args))
    return out


def _evaluate(eqn: Any, args: list[np.ndarray]) -> list[np.ndarray]:
    """Compute now what does not depend on any traced value."""
    known = [a.astype(v.aval.dtype) for a, v in zip(args, eqn.invars, strict=True)]
    with jax.ensure_compile_time_eval():
        out = eqn.primitive.bind(*known, **eqn.params)
    return [components(np.asarray(x)) for x in (out if eqn.primitive.multiple_results else [out])]


def _move(eqn: Any, args: list[np.ndarray]) -> list[np.ndarray]:
    """Apply an operation that only moves entries by letting it move their numbers instead."""
    moved = _MOVES[eqn.primitive.name]
    data = args if moved is None else args[:moved]
    rest = [] if moved is None else args[moved:]
    if not all(is_known(x) for arg in rest for x in arg.ravel()):
        raise NotScalarError(f"{eqn.primitive.name} at traced positions")
    pool = np.concatenate([arg.ravel() for arg in data])
    starts = np.cumsum([0, *(arg.size for arg in data)])
    numbers = [
        np.arange(start, start + arg.size, dtype=np.int32).reshape(arg.shape)
        for start, arg in zip(starts[:-1], data, strict=True)
    ]
    positions = [a.astype(v.aval.dtype) for a, v in zip(rest, eqn.invars[len(data) :], strict=True)]
    params = eqn.params | ({"fill_value": -1} if "fill_value" in eqn.params else {})
    with jax.ensure_compile_time_eval():
        out = eqn.primitive.bind(*numbers, *positions, **params)
    chosen = [np.asarray(x) for x in (out if eqn.primitive.multiple_results else [out])]
    if any(np.any((c < 0) | (c >= pool.size)) for c in chosen):
        raise NotScalarError(f"{eqn.primitive.name} out of bounds")
    return [pool[c] if c.shape else _wrap(pool[int(c)]) for c in chosen]


def _wrap(x: Any) -> np.ndarray:
    out = np.empty((), object)
    out[()] = x
    return out


def _reduce(op: Callable[..., Any], x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    rows = np.transpose(x, [*kept, *axes]).reshape([*(x.shape[axis] for axis in kept), -1])
    out = np.empty(rows.shape[:-1], object)
    for index in np.ndindex(out.shape):
        out[index] = reduce(op, rows[index])
    return out


def _dot_general(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    (contract_x, contract_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    dtype = eqn.outvars[0].aval.dtype
    if dtype == np.bool_ or any(np.promote_types(v.aval.dtype, dtype) != dtype for v in eqn.invars):
        raise NotScalarError(f"dot_general to {dtype}")
    # Products are taken in the type of the result, which may be wider than that of the operands.
    args = [_elementwise(partial(_as_type, dtype), [arg]) for arg in args]

    def arrange(x: np.ndarray, contract: Any, batch: Any) -> tuple[np.ndarray, list[int]]:
        free = [axis for axis in range(x.ndim) if axis not in (*contract, *batch)]
        shape = [int(np.prod([x.shape[a] for a in axes])) for axes in (batch, free, contract)]
        return np.transpose(x, [*batch, *free, *contract]).reshape(shape), free

    x, free_x = arrange(args[0], contract_x, batch_x)
    y, free_y = arrange(args[1], contract_y, batch_y)
    out = np.empty((x.shape[0], x.shape[1], y.shape[1]), object)
    for b, i, j in np.ndindex(out.shape):
        products = [ex.mul(u, v) for u, v in zip(x[b, i], y[b, j], strict=True)]
        out[b, i, j] = reduce(ex.add, products)
    shape = [args[0].shape[a] for a in (*batch_x, *free_x)] + [args[1].shape[a] for a in free_y]
    return out.reshape(shape)


def _cumsum(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    axis = eqn.params["axis"]
    x = np.moveaxis(args[0], axis, 0)[:, None]
    x = x[::-1] if eqn.params["reverse"] else x
    out = [x[0]]
    for row in x[1:]:
        out.append(_elementwise(ex.add, [out[-1], row]))
    total = np.concatenate(out[::-1] if eqn.params["reverse"] else out)
    return np.moveaxis(total, 0, axis)


def _scatter_add(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    """operand + Σ updates, found by scattering the unit vectors one by one."""
    operand, indices, updates = args
    if not all(is_known(x) for x in indices.ravel()):
        raise NotScalarError("scatter at traced positions")
    dtype, positions = eqn.invars[0].aval.dtype, indices.astype(eqn.invars[1].aval.dtype)
    out = operand.copy()
    for k, update in enumerate(updates.ravel()):
        unit = np.zeros(updates.size, dtype)
        unit[k] = 1
        with jax.ensure_compile_time_eval():
            place = eqn.primitive.bind(
                np.zeros(operand.shape, dtype),
                positions,
                unit.reshape(updates.shape),
                **eqn.params,
            )
        for index in np.argwhere(np.asarray(place)):
            out[tuple(index)] = ex.add(out[tuple(index)], update)
    return out


def _select(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    dtype = eqn.outvars[0].aval.dtype

    def choose(which: Any, *cases: Any) -> Any:
        if is_known(which):
            return cases[int(which)]
        return ex.apply("select_n", _select_n, (which, *cases), dtype)

    return _elementwise(choose, args)


def _select_n(which: Any, *cases: Any) -> Any:
    # A known case has no shape when the function is mapped over paths, unlike the others.
    return lax.select_n(which, *(lax.convert_element_type(x, cases[0].dtype) for x in cases))


def _integer_pow(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    return _elementwise(lambda x: ex.power(x, eqn.params["y"]), args)


def _polynomial(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    """a_0 + x (a_1 + x (a_2 + …)); the operands are x, a_0, a_1, …"""

    def horner(x: Any, *coefficients: Any) -> Any:
        return reduce(lambda total, a: ex.add(ex.mul(total, x), a), coefficients[::-1])

    return _elementwise(horner, args)


def _bitcast(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    if eqn.outvars[0].aval.shape != args[0].shape:
        raise NotScalarError("bitcast_convert_type to another width")
    return _elementwise(_of_primitive(eqn), args)


def _as_type(dtype: np.dtype, x: Any) -> Any:
    """A number in a type that holds it."""
    if x.dtype == dtype:
        return x
    convert = partial(lax.convert_element_type, new_dtype=dtype)
    return dtype.type(x) if is_known(x) else ex.apply(f"to {dtype}", convert, (x,), dtype)


def _convert(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    if eqn.invars[0].aval.dtype == eqn.params["new_dtype"]:
        return args[0]
    return _elementwise(_of_primitive(eqn), args)


def _function(operation: Operation) -> Callable[..., Any]:
    """A function of one number, by an operation of our own."""

    return lambda x: ex.apply(operation.primitive.name, operation, (x,), x.dtype)


def _pairwise(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: ex.apply(name, operation, (x, y), x.dtype)


_FOLDED: dict[str, Callable[..., Any]] = {
    "abs": ex.magnitude,
    "add": ex.add,
    "add_any": ex.add,
    "sub": ex.sub,
    "mul": ex.mul,
    "div": ex.div,
    "neg": ex.neg,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "max": ex.maximum,
    "sin": _function(elementary.sin),
    "cos": _function(elementary.cos),
    "log": _function(elementary.log),
}

# Operations of our own that have rules.
_OWN: dict[Any, Callable[..., Any]] = {
    elementary.absolute.primitive: ex.magnitude,
    elementary.rough_inverse.primitive: ex.rough_inverse,
}

_TYPES = frozenset(np.dtype(code) for code in "?bhilqBHILQfd")
"""Truth values, whole numbers, and floats of 32 and 64 bits."""

# How many leading operands carry data; the rest are positions. None: all of them.
_MOVES: dict[str, int | None] = {
    "broadcast_in_dim": 1,
    "reshape": 1,
    "squeeze": 1,
    "transpose": 1,
    "slice": 1,
    "rev": 1,
    "expand_dims": 1,
    "split": 1,
    "dynamic_slice": 1,
    "gather": 1,
    "tile": 1,
    "unstack": 1,
    "concatenate": None,
    "stack": None,
    "pad": None,
    "dynamic_update_slice": 2,
}

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_sum": ex.add,
    "reduce_prod": ex.mul,
    "reduce_max": ex.maximum,
    "reduce_min": _pairwise("min", lax.min),
    "reduce_and": _pairwise("and", lax.bitwise_and),
    "reduce_or": _pairwise("or", lax.bitwise_or),
}

_SPECIAL: dict[str, Callable[[Any, list[np.ndarray]], np.ndarray]] = {
    "dot_general": _dot_general,
    "cumsum": _cumsum,
    "scatter-add": _scatter_add,
    "scatter_add": _scatter_add,
    "select_n": _select,
    "integer_pow": _integer_pow,
    "polynomial": _polynomial,
    "bitcast_convert_type": _bitcast,
    "convert_element_type": _convert,
}

_ELEMENTWISE = frozenset(
    [
        "acos",
        "acosh",
        "and",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cbrt",
        "ceil",
        "clamp",
        "cosh",
        "digamma",
        "eq",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "ge",
        "gt",
        "igamma",
        "igammac",
        "is_finite",
        "le",
        "lgamma",
        "log1p",
        "log2",
        "logistic",
        "lt",
        "min",
        "ne",
        "nextafter",
        "not",
        "one_minus_square",
        "or",
        "pow",
        "reduce_precision",
        "rem",
        "round",
        "rsqrt",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sinh",
        "sqrt",
        "square",
        "stop_gradient",
        "tan",
        "tanh",
        "xor",
        "bessel_i0e",
        "bessel_i1e",
    ]
)
