"""How a traced function depends on its arguments: not at all, affinely, or otherwise.

The analysis walks the jaxpr once and is conservative: what it does not know counts as nonlinear.
It is what lets a step drop terms that vanish, order its stages and solve linear equations in one
Newton step.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend import core as jcore

__all__ = ["Degree", "degree", "has_rules", "name_of", "sub_jaxpr"]


class Degree(IntEnum):
    """Dependence on the chosen arguments, from none to arbitrary."""

    ZERO = 0
    CONSTANT = 1
    AFFINE = 2
    NONLINEAR = 3


# Linear in the first operand; the others (indices, sizes) must not depend on the arguments.
_LINEAR_IN_FIRST = frozenset(
    [
        "neg",
        "reduce_sum",
        "broadcast_in_dim",
        "reshape",
        "squeeze",
        "transpose",
        "slice",
        "rev",
        "copy",
        "copy_p",
        "cumsum",
        "expand_dims",
        "dynamic_slice",
        "gather",
        "split",
        "tile",
        "unstack",
        "real",
        "imag",
    ]
)
_SUMS = frozenset(["add", "sub", "add_any", "concatenate", "stack", "pad"])
_PRODUCTS = frozenset(["mul", "dot_general"])
_LOOPS = frozenset(["scan", "while", "reduce", "reduce_window"])
_WITH_RULES = ("custom_jvp_call", "custom_vjp_call")


def degree(fun: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int]) -> Degree:
    """The degree of `fun(*args)` in the arguments numbered `wrt`, the others held fixed."""
    closed = jax.make_jaxpr(fun)(*args)
    inputs = [
        Degree.AFFINE if i in wrt else Degree.CONSTANT
        for i, arg in enumerate(args)
        for _ in jax.tree.leaves(arg)
    ]
    outputs = _propagate(closed.jaxpr, [_constant(c) for c in closed.consts], inputs)
    return max(outputs, default=Degree.ZERO)


_OF_JAX = {p.name: p for p in vars(jcore.primitives).values() if isinstance(p, jcore.Primitive)}


def name_of(eqn: Any) -> str:
    """The name of an equation's primitive, or one that no table has if JAX uses it for another."""
    name = eqn.primitive.name
    is_other = _OF_JAX.get(name, eqn.primitive) is not eqn.primitive
    return f"{name} of somebody else" if is_other else name


def sub_jaxpr(eqn: Any) -> Any | None:
    """The closed jaxpr that a call-like equation (jit, custom_jvp, remat, …) would execute.

    A loop executes its jaxpr more than once, and one of other shapes than the equation is not
    called at all: it works on blocks or on single entries.
    """
    if name_of(eqn) in _LOOPS:
        return None
    for name in ("call_jaxpr", "fun_jaxpr", "jaxpr", "call"):
        inner = eqn.params.get(name)
        # Since JAX 0.11 the two are one class, and closing a jaxpr again would lose its constants.
        if isinstance(inner, jcore.Jaxpr) and not isinstance(inner, jcore.ClosedJaxpr):
            inner = jcore.ClosedJaxpr(inner, ())
        if isinstance(inner, jcore.ClosedJaxpr):
            return inner if _shapes(inner.jaxpr) == _shapes(eqn) else None
    return None


def has_rules(fun: Callable[..., Any], *args: Any) -> bool:
    """Whether JAX has been told derivatives of a part of `fun` (`jax.custom_jvp` and others).

    They are known to that function, but not to the operations that it executes.
    """
    return _has_rules(jax.make_jaxpr(fun)(*args).jaxpr)


def _has_rules(jaxpr: Any) -> bool:
    return any(
        name_of(eqn).startswith(_WITH_RULES)
        or any(map(_has_rules, jcore.jaxprs_in_params(eqn.params)))
        for eqn in jaxpr.eqns
    )


def _shapes(code: Any) -> list[list[Any]]:
    """The shapes of what a jaxpr or an equation takes and gives; None for what has no shape."""
    both = (code.invars, code.outvars)
    return [[getattr(v.aval, "shape", None) for v in variables] for variables in both]


def _constant(value: Any) -> Degree:
    if isinstance(value, Tracer):
        return Degree.CONSTANT
    return Degree.CONSTANT if np.any(np.asarray(value)) else Degree.ZERO


def _propagate(jaxpr: Any, consts: list[Degree], inputs: list[Degree]) -> list[Degree]:
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *inputs], strict=True))

    def read(var: Any) -> Degree:
        return _constant(var.val) if isinstance(var, jcore.Literal) else known[var]

    for eqn in jaxpr.eqns:
        known.update(zip(eqn.outvars, _outputs(eqn, [read(v) for v in eqn.invars]), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _outputs(eqn: Any, inputs: list[Degree]) -> list[Degree]:
    inner = sub_jaxpr(eqn)
    if inner is not None:
        outputs = _propagate(inner.jaxpr, [_constant(c) for c in inner.consts], inputs)
        # A rule of its own may say something else than the function: it is not to be relied on.
        has_rule = eqn.primitive.name.startswith("custom_")
        return [Degree.NONLINEAR if has_rule and d == Degree.AFFINE else d for d in outputs]
    return [_one_output(eqn, inputs)] * len(eqn.outvars)


def _one_output(eqn: Any, inputs: list[Degree]) -> Degree:
    name = name_of(eqn)
    if name in _LINEAR_IN_FIRST and max(inputs[1:], default=Degree.ZERO) <= Degree.CONSTANT:
        return inputs[0]
    if name in _SUMS:
        return max(inputs)
    if name in _PRODUCTS:
        return _product(*inputs)
    if name == "div" and inputs[1] <= Degree.CONSTANT:
        return inputs[0]
    if name == "select_n" and inputs[0] <= Degree.CONSTANT:
        return max(inputs[1:])
    if name == "convert_element_type" and (inputs[0] <= Degree.CONSTANT or _keeps_digits(eqn)):
        return inputs[0]
    if name == "integer_pow" and eqn.params["y"] == 1:
        return inputs[0]
    if name == "polynomial":
        return _polynomial(*inputs)
    return (
        Degree.CONSTANT if max(inputs, default=Degree.ZERO) <= Degree.CONSTANT else Degree.NONLINEAR
    )


def _keeps_digits(eqn: Any) -> bool:
    """Whether a conversion is linear: one to fewer digits is a staircase."""
    old, new = eqn.invars[0].aval.dtype, eqn.params["new_dtype"]
    is_float = [jnp.issubdtype(kind, np.inexact) for kind in (old, new)]
    return all(is_float) and jnp.finfo(old).nmant <= jnp.finfo(new).nmant


def _product(x: Degree, y: Degree) -> Degree:
    if Degree.ZERO in (x, y):
        return Degree.ZERO
    return max(x, y) if min(x, y) <= Degree.CONSTANT else Degree.NONLINEAR


def _polynomial(x: Degree, *coefficients: Degree) -> Degree:
    """a_0 + x (a_1 + x (a_2 + …)), whose coefficients may depend on the arguments too."""
    return reduce(lambda total, a: max(_product(total, x), a), reversed(coefficients))
