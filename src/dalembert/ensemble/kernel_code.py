"""What the code of a GPU kernel is made of: operations that Triton knows, and nothing else.

Triton knows some of the primitives of JAX and none of our own, whose formulas are put in their
places here. Which operations there are is looked up before a kernel is chosen, so that a function
without a form in Triton is left to XLA instead of stopping a run.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core as jcore

from dalembert.operations import OPERATIONS
from dalembert.stepping.dependence import name_of, sub_jaxpr

__all__ = ["IN_TRITON", "NOT_OF", "expanded", "operations"]

# fmt: off
IN_TRITON = frozenset([
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "bitcast_convert_type", "broadcast_in_dim", "cbrt", "ceil", "clamp", "cond",
    "convert_element_type", "cos", "cosh", "div", "eq", "exp", "exp2", "expm1", "floor", "ge",
    "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul",
    "ne", "neg", "not", "or", "pow", "reduce_max", "rem", "reshape", "rsqrt", "select_n",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt",
    "square", "squeeze", "stop_gradient", "sub", "tan", "tanh", "while", "xor",
])
"""Primitives that Triton computes to rounding on a GPU (jax 0.11.2)."""
# fmt: on

NOT_OF = {"abs": (np.float64,), "rem": (np.float32, np.float64)}
"""Types of which Triton computes something else: absolute values in single precision, and rests of
divisions by a rounded quotient."""


def expanded(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The same function without calls, and with formulas in the places of our own operations."""

    def run(*args: Any) -> Any:
        closed, shape = jax.make_jaxpr(fun, return_shape=True)(*args)
        results = _evaluate(closed, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return run


def _evaluate(closed: Any, args: Any) -> list[Any]:
    jaxpr = closed.jaxpr
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *args], strict=True))
    for eqn in jaxpr.eqns:
        inputs = [v.val if isinstance(v, jcore.Literal) else known[v] for v in eqn.invars]
        known.update(zip(eqn.outvars, _outputs(eqn, inputs), strict=True))
    return [v.val if isinstance(v, jcore.Literal) else known[v] for v in jaxpr.outvars]


def _outputs(eqn: Any, inputs: list[Any]) -> list[Any]:
    if eqn.primitive in OPERATIONS:
        return [expanded(OPERATIONS[eqn.primitive].formula)(*inputs)]
    inner = sub_jaxpr(eqn)
    if inner is not None:
        return _evaluate(inner, inputs)
    params = jax.tree.map(_expanded_code, eqn.params, is_leaf=_is_code)
    out = eqn.primitive.bind(*inputs, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _is_code(value: Any) -> bool:
    return isinstance(value, jcore.ClosedJaxpr)


def _expanded_code(value: Any) -> Any:
    """The code of a branch or of a loop, expanded; anything else as it is."""
    if not _is_code(value):
        return value
    types = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in value.in_avals]
    return jax.make_jaxpr(lambda *args: _evaluate(value, args))(*types)


def _name_with_type(eqn: Any) -> str:
    """The name of a primitive, with the type if Triton does not compute it as JAX does."""
    name = name_of(eqn)
    kind = getattr(eqn.invars[0].aval, "dtype", None) if eqn.invars else None
    return f"{name} of {kind}" if kind in NOT_OF.get(name, ()) else name


def operations(closed: Any) -> frozenset[str]:
    """The names of the primitives that a function uses, apart from our own operations.

    The code of calls, branches and loops is looked into.
    """
    names = set()
    for eqn in closed.jaxpr.eqns:
        inner = sub_jaxpr(eqn)
        if inner is None and eqn.primitive not in OPERATIONS:
            names.add(_name_with_type(eqn))
        codes = jax.tree.leaves(eqn.params, is_leaf=_is_code) if inner is None else [inner]
        names.update(*(operations(code) for code in codes if _is_code(code)))
    return frozenset(names)
