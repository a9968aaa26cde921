"""Whether a function of an array works on each of its entries alone.

The Jacobian of such a function is diagonal, and one product with a vector of ones gives all of it:
friction that does not mix momenta makes stage equations of this kind, which need no matrix and no
iteration, however many there are. The analysis walks the trace once and is conservative.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core as jcore

from dalembert.stepping.dependence import name_of, sub_jaxpr

__all__ = ["is_entrywise"]

# fmt: off
_ENTRYWISE = frozenset([
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos", "cosh", "digamma",
    "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max", "min",
    "mul", "ne", "neg", "nextafter", "not", "or", "pow", "rem", "round", "rsqrt", "select_n",
    "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
])
"""Primitives whose results have in every place what their operands have there."""
# fmt: on


def is_entrywise(fun: Callable[..., Any], like: Any, *others: Any) -> bool:
    """Whether entry i of `fun(x, *others)`, as large as x, depends on entry i of x alone."""
    closed = jax.make_jaxpr(fun)(like, *others)
    (out,) = closed.jaxpr.outvars
    inputs = [True] + [False] * len(others)
    known = _follow(closed.jaxpr, dict.fromkeys(closed.jaxpr.constvars, False), inputs)
    return known is not None and out.aval.size == like.size


def _follow(jaxpr: Any, known: dict[Any, bool], inputs: list[bool]) -> list[bool] | None:
    """Which results depend on the argument, each entry on its own; None if one does otherwise.

    Reshaping keeps the order of entries, and so what belongs together.
    """
    known = known | dict(zip(jaxpr.invars, inputs, strict=True))

    def read(var: Any) -> bool:
        return not isinstance(var, jcore.Literal) and known[var]

    for eqn in jaxpr.eqns:
        given = [read(v) for v in eqn.invars]
        inner = sub_jaxpr(eqn)
        if not any(given):
            found = [False] * len(eqn.outvars)
        elif inner is not None:
            constants = dict.fromkeys(inner.jaxpr.constvars, False)
            found = _follow(inner.jaxpr, constants, given)
            if found is None:
                return None
        elif _keeps_places(eqn, given):
            found = [True] * len(eqn.outvars)
        else:
            return None
        known.update(zip(eqn.outvars, found, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _keeps_places(eqn: Any, given: list[bool]) -> bool:
    name, sizes = name_of(eqn), [v.aval.size for v in (*eqn.invars, *eqn.outvars)]
    if name in ("reshape", "squeeze", "expand_dims"):
        return True
    if name == "broadcast_in_dim":
        return sizes[0] == sizes[-1]
    # What depends on the argument has an entry for every result; other operands may be scalars.
    return name in _ENTRYWISE and all(
        size == sizes[-1] for size, counts in zip(sizes, given, strict=False) if counts
    )
