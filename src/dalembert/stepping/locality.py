"""Whether a function of an array works on each of its entries alone.

The Jacobian of such a function is diagonal, and one product with a vector of ones gives all of it:
friction that does not mix momenta makes stage equations of this kind, which need no matrix and no
iteration, however many there are. The analysis walks the trace once and is conservative.
"""

from collections.abc import Callable
from typing import Any

import jax

from dalembert.traces import called, facts, name_of, walk

__all__ = ["is_entrywise"]

ENTRYWISE = ("fold", "each", "power", "choice", "conversion")
"""Forms of operations whose results have in every place what their operands have there."""

RESHAPING = ("reshape", "squeeze", "expand_dims")
"""Operations that keep the order of entries, and so what belongs together."""


class _MixedError(Exception):
    """A result depends on several entries."""


def is_entrywise(fun: Callable[..., Any], like: Any, *others: Any) -> bool:
    """Whether entry i of `fun(x, *others)`, as large as x, depends on entry i of x alone."""
    trace = jax.make_jaxpr(fun)(like, *others)
    try:
        _follow(trace, [True] + [False] * len(others))
    except _MixedError:
        return False
    return trace.out_avals[0].size == like.size


def _follow(trace: Any, args: list[bool]) -> list[bool]:
    """Which results of a trace depend on x, given which of its arguments do."""
    constants = [False] * len(trace.jaxpr.constvars)
    return walk(trace, [*constants, *args], _dependent, lambda literal: False)


def _dependent(eqn: Any, given: list[bool]) -> list[bool]:
    if not any(given):
        return [False] * len(eqn.outvars)
    if (inner := called(eqn)) is not None:
        return _follow(inner, given)
    if not _keeps_places(eqn, given):
        raise _MixedError(name_of(eqn))
    return [True] * len(eqn.outvars)


def _keeps_places(eqn: Any, given: list[bool]) -> bool:
    name, size = name_of(eqn), eqn.outvars[0].aval.size
    if name in RESHAPING:
        return eqn.params.get("dimensions") is None or name == "squeeze"
    if name == "broadcast_in_dim":
        return eqn.invars[0].aval.size == size
    # What depends on x has an entry for every result; other operands may be single numbers.
    form = facts(eqn).scalar.split()[:1]
    return form in [[known] for known in ENTRYWISE] and all(
        var.aval.size == size for var, counts in zip(eqn.invars, given, strict=True) if counts
    )
