"""Turn a function of small arrays into straight-line code on scalars.

The function is traced once, and its trace is evaluated on NumPy arrays of scalars: one expression
per component. Slices, stacks, reductions and small products disappear into bookkeeping,
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

from dalembert import elementary
from dalembert.known import TYPES
from dalembert.operations import OPERATIONS, Operation
from dalembert.stepping import arithmetic as ar
from dalembert.stepping.expressions import Program, apply, components, is_known
from dalembert.traces import called, compute, evaluate, facts, name_of

MAX_SCALARS = 20_000
"""Scalars per function beyond which straight-line code compiles too slowly to be of use."""


LEAF = jax.tree.structure(0)
"""What a function returns that returns one array."""


class NotScalarError(Exception):
    """The function uses an operation that has no straight-line form."""


def _constant(x: Any, kind: Any) -> np.ndarray:
    """A constant of a traced function: known, unless it belongs to a trace around it."""
    if isinstance(x, Tracer):
        return components(x)
    if not isinstance(kind.dtype, np.dtype):
        raise NotScalarError(f"constants of type {kind.dtype}")
    return components(np.asarray(x, kind.dtype))


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
    trace, shape = jax.make_jaxpr(fun, return_shape=True)(*like)
    return trace_written_out(trace, jax.tree.structure(shape))


def trace_written_out(trace: Any, out_tree: Any) -> Callable[..., Any]:
    """`written_out` of a function that has been traced, whose results are such a tree."""

    def straight(*args: Any) -> Any:
        leaves = [components(leaf) for leaf in jax.tree.leaves(args)]
        return jax.tree.unflatten(out_tree, _Writer().run(trace, leaves))

    return straight


class _Writer:
    """Writes equations out, as long as they are not too many."""

    def __init__(self) -> None:
        self.left = MAX_SCALARS

    def run(self, trace: Any, args: list[np.ndarray]) -> list[np.ndarray]:
        return evaluate(trace, args, self.equation, _constant)

    def equation(self, eqn: Any, args: list[np.ndarray]) -> list[np.ndarray]:
        self.left -= sum(int(np.prod(v.aval.shape)) for v in eqn.outvars)
        if self.left < 0:
            raise NotScalarError(f"more than {MAX_SCALARS} scalar operations")
        if (inner := called(eqn)) is not None:
            return self.run(inner, args)
        name = name_of(eqn)
        if name == "cond" and _all_known(args[0]):
            branches = eqn.params["branches"]
            return self.run(branches[int(np.clip(args[0][()], 0, len(branches) - 1))], args[1:])
        if all(map(_all_known, args)):
            return _evaluate(eqn, args)
        _check_types(eqn)
        if eqn.primitive in OPERATIONS:
            own = OPERATIONS[eqn.primitive]
            return [_elementwise(_OWN.get(own, _function(own)), args)]
        form, *words = facts(eqn).scalar.split() or [""]
        if form not in FORMS:
            raise NotScalarError(name)
        found = FORMS[form](eqn, args, *words)
        return found if isinstance(found, list) else [found]


def _all_known(array: np.ndarray) -> bool:
    return all(map(is_known, array.ravel()))


def _check_types(eqn: Any) -> None:
    """Refuse numbers whose arithmetic is not that of the rules: complex, half precision, keys."""
    for v in (*eqn.invars, *eqn.outvars):
        if v.aval.dtype not in TYPES:
            raise NotScalarError(f"{eqn.primitive.name} of {v.aval.dtype}")


def _of_primitive(eqn: Any) -> Callable[..., Any]:
    """The operation of an equation on scalars."""
    primitive, params, dtype = eqn.primitive, eqn.params, eqn.outvars[0].aval.dtype
    name = (primitive.name, str(params)) if params else primitive.name

    def operation(*args: Any) -> Any:
        if all(is_known(x) for x in args):
            return _evaluate(eqn, [_wrap(x) for x in args])[0][()]
        return apply(name, partial(primitive.bind, **params), args, dtype)

    return operation


def _one_minus_square(x: Any) -> Any:
    """1 − x², as JAX computes it: precisely where |x| is near 1."""
    one = np.ones((), x.dtype)[()]
    return ar.mul(ar.add(one, x), ar.sub(one, x))


def _elementwise(op: Callable[..., Any], args: list[np.ndarray]) -> np.ndarray:
    args = list(np.broadcast_arrays(*args))
    out = np.empty(args[0].shape, object)
    for index in np.ndindex(out.shape):
        out[index] = op(*(arg[index] for arg in args))
    return out


def _evaluate(eqn: Any, args: list[np.ndarray]) -> list[np.ndarray]:
    """Compute now what does not depend on any traced value."""
    return list(map(components, compute(eqn, _typed(args, eqn.invars))))


def _typed(args: list[np.ndarray], variables: Any) -> list[np.ndarray]:
    """Known numbers as arrays of the types that variables have."""
    return [x.astype(v.aval.dtype) for x, v in zip(args, variables, strict=True)]


def _each(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    return _elementwise(_of_primitive(eqn), args)


def _move(eqn: Any, args: list[np.ndarray], operands: str) -> list[np.ndarray]:
    """Apply an operation that only moves entries by letting it move their numbers instead."""
    count = len(args) if operands == "all" else int(operands)
    data, rest = args[:count], args[count:]
    if not all(map(_all_known, rest)):
        raise NotScalarError(f"{eqn.primitive.name} at traced positions")
    pool = np.concatenate([arg.ravel() for arg in data])
    starts = np.cumsum([0, *(arg.size for arg in data)])
    numbers = [
        np.arange(start, start + arg.size, dtype=np.int32).reshape(arg.shape)
        for start, arg in zip(starts[:-1], data, strict=True)
    ]
    changes = {"fill_value": -1} if "fill_value" in eqn.params else {}
    chosen = compute(eqn, [*numbers, *_typed(rest, eqn.invars[count:])], **changes)
    if any(np.any((c < 0) | (c >= pool.size)) for c in chosen):
        raise NotScalarError(f"{eqn.primitive.name} out of bounds")
    return [pool[c] if c.shape else _wrap(pool[int(c)]) for c in chosen]


def _wrap(x: Any) -> np.ndarray:
    out = np.empty((), object)
    out[()] = x
    return out


def _reduce(eqn: Any, args: list[np.ndarray], rule: str) -> np.ndarray:
    (x,), axes = args, eqn.params["axes"]
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    rows = np.transpose(x, [*kept, *axes]).reshape([*(x.shape[axis] for axis in kept), -1])
    out = np.empty(rows.shape[:-1], object)
    for index in np.ndindex(out.shape):
        out[index] = reduce(_RULES[rule], rows[index])
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
        products = [ar.mul(u, v) for u, v in zip(x[b, i], y[b, j], strict=True)]
        out[b, i, j] = reduce(ar.add, products)
    shape = [args[0].shape[a] for a in (*batch_x, *free_x)] + [args[1].shape[a] for a in free_y]
    return out.reshape(shape)


def _cumsum(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    axis = eqn.params["axis"]
    x = np.moveaxis(args[0], axis, 0)[:, None]
    x = x[::-1] if eqn.params["reverse"] else x
    out = [x[0]]
    for row in x[1:]:
        out.append(_elementwise(ar.add, [out[-1], row]))
    total = np.concatenate(out[::-1] if eqn.params["reverse"] else out)
    return np.moveaxis(total, 0, axis)


def _scatter_add(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    """operand + Σ updates, found by scattering the unit vectors one by one."""
    operand, indices, updates = args
    if not _all_known(indices):
        raise NotScalarError("scatter at traced positions")
    dtype, positions = eqn.invars[0].aval.dtype, indices.astype(eqn.invars[1].aval.dtype)
    out = operand.copy()
    for k, update in enumerate(updates.ravel()):
        unit = np.zeros(updates.size, dtype)
        unit[k] = 1
        nowhere = np.zeros(operand.shape, dtype)
        (place,) = compute(eqn, [nowhere, positions, unit.reshape(updates.shape)])
        for index in np.argwhere(place):
            out[tuple(index)] = ar.add(out[tuple(index)], update)
    return out


def _select(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    dtype = eqn.outvars[0].aval.dtype

    def choose(which: Any, *cases: Any) -> Any:
        if is_known(which):
            return cases[int(which)]
        return apply("select_n", _select_n, (which, *cases), dtype)

    return _elementwise(choose, args)


def _select_n(which: Any, *cases: Any) -> Any:
    # A known case has no shape when the function is mapped over paths, unlike the others.
    return lax.select_n(which, *(lax.convert_element_type(x, cases[0].dtype) for x in cases))


def _polynomial(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    """a_0 + x (a_1 + x (a_2 + …)); the operands are x, a_0, a_1, …"""

    def horner(x: Any, *coefficients: Any) -> Any:
        return reduce(lambda total, a: ar.add(ar.mul(total, x), a), coefficients[::-1])

    return _elementwise(horner, args)


def _bitcast(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    if eqn.outvars[0].aval.shape != args[0].shape:
        raise NotScalarError("bitcast_convert_type to another width")
    return _each(eqn, args)


def _as_type(dtype: np.dtype, x: Any) -> Any:
    """A number in a type that holds it."""
    if x.dtype == dtype:
        return x
    convert = partial(lax.convert_element_type, new_dtype=dtype)
    return dtype.type(x) if is_known(x) else apply(f"to {dtype}", convert, (x,), dtype)


def _convert(eqn: Any, args: list[np.ndarray]) -> np.ndarray:
    if eqn.invars[0].aval.dtype == eqn.params["new_dtype"]:
        return args[0]
    return _each(eqn, args)


def _function(operation: Operation) -> Callable[..., Any]:
    """A function of one number, by an operation of our own."""

    return lambda x: apply(operation.primitive.name, operation, (x,), x.dtype)


def _pairwise(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: apply(name, operation, (x, y), x.dtype)


_RULES: dict[str, Callable[..., Any]] = {
    "add": ar.add,
    "sub": ar.sub,
    "mul": ar.mul,
    "div": ar.div,
    "neg": ar.neg,
    "magnitude": ar.magnitude,
    "maximum": ar.maximum,
    "min": _pairwise("min", lax.min),
    "and": _pairwise("and", lax.bitwise_and),
    "or": _pairwise("or", lax.bitwise_or),
    "one_minus_square": _one_minus_square,
    "same": lambda x: x,
    "sin": _function(elementary.sin),
    "cos": _function(elementary.cos),
    "log": _function(elementary.log),
}
"""Operations on scalars that know how to simplify, or serve several primitives."""

_OWN = {elementary.absolute: ar.magnitude, elementary.rough_inverse: ar.rough_inverse}
"""Operations of our own that have rules."""

FORMS: dict[str, Callable[..., np.ndarray | list[np.ndarray]]] = {
    "bitcast": _bitcast,
    "choice": _select,
    "conversion": _convert,
    "cumsum": _cumsum,
    "dot": _dot_general,
    "each": _each,
    "fold": lambda eqn, args, rule: _elementwise(_RULES[rule], args),
    "move": _move,
    "polynomial": _polynomial,
    "power": lambda eqn, args: _elementwise(lambda x: ar.power(x, eqn.params["y"]), args),
    "reduce": _reduce,
    "scatter_add": _scatter_add,
}
"""Forms of operations (`primitives.py`): (equation, operands, the words of the form) → what
comes out, a list of arrays if there may be several."""
