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

from dalembert.primitives import RULES
from dalembert.traces import called, contains, evaluate, facts


class Degree(IntEnum):
    """Dependence on the chosen arguments, from none to arbitrary."""

    ZERO = 0
    CONSTANT = 1
    AFFINE = 2
    NONLINEAR = 3


def degree(fun: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int]) -> Degree:
    """The degree of `fun(*args)` in the arguments numbered `wrt`, the others held fixed."""
    return degrees(fun, args, wrt)[0]


def degrees(
    fun: Callable[..., Any], args: Sequence[Any], *choices: Sequence[int]
) -> tuple[Degree, ...]:
    """The degree of `fun(*args)` for several choices of arguments, all from one trace."""
    trace = jax.make_jaxpr(fun)(*args)
    return tuple(degree_of(trace, args, wrt) for wrt in choices)


def degree_of(trace: Any, args: Sequence[Any], wrt: Sequence[int]) -> Degree:
    """`degree` of a function that has been traced for these arguments."""
    return _degree(trace, args, wrt, Degree.AFFINE)


def is_linear(fun: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int]) -> bool:
    """Whether a function is seen to be linear in some arguments, affine and zero where they are."""
    trace = jax.make_jaxpr(fun)(*args)
    at_zero = _degree(trace, args, wrt, Degree.ZERO)
    return at_zero == Degree.ZERO and _degree(trace, args, wrt, Degree.AFFINE) <= Degree.AFFINE


def _degree(trace: Any, args: Sequence[Any], wrt: Sequence[int], chosen: Degree) -> Degree:
    """The degree of the results, for that of the chosen arguments."""
    inputs = [
        chosen if i in wrt else Degree.CONSTANT
        for i, arg in enumerate(args)
        for _ in jax.tree.leaves(arg)
    ]
    return max(evaluate(trace, inputs, _outputs, _constant), default=Degree.ZERO)


def has_rules(fun: Callable[..., Any], *args: Any) -> bool:
    """Whether JAX has been told derivatives of a part of `fun` (`jax.custom_jvp` and others).

    They are known to that function, but not to the operations that it executes.
    """
    return contains(jax.make_jaxpr(fun)(*args), RULES)


def _constant(value: Any, _: Any) -> Degree:
    is_zero = not isinstance(value, Tracer) and not np.any(np.asarray(value))
    return Degree.ZERO if is_zero else Degree.CONSTANT


def _outputs(eqn: Any, inputs: list[Degree]) -> list[Degree]:
    inner = called(eqn)
    if inner is None:
        return [_one_output(eqn, inputs)] * len(eqn.outvars)
    outputs = evaluate(inner, inputs, _outputs, _constant)
    # A rule of its own may say something else than the function: it is not to be relied on.
    has_rule = eqn.primitive.name.startswith("custom_")
    return [Degree.NONLINEAR if has_rule and d == Degree.AFFINE else d for d in outputs]


def _one_output(eqn: Any, inputs: list[Degree]) -> Degree:
    is_constant = [x <= Degree.CONSTANT for x in inputs]
    match facts(eqn).degree:
        case "sum":
            return max(inputs)
        case "product":
            return _product(*inputs)
        case "polynomial":
            return _polynomial(*inputs)
        case "linear" | "quotient" if all(is_constant[1:]):
            return inputs[0]
        case "choice" if is_constant[0]:
            return max(inputs[1:])
        case "conversion" if is_constant[0] or _keeps_digits(eqn):
            return inputs[0]
        case "power" if eqn.params["y"] == 1:
            return inputs[0]
    return Degree.CONSTANT if all(is_constant) else Degree.NONLINEAR


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
