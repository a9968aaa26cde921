"""Derivatives that JAX has been told, kept in every nesting of forward and reverse mode.

What `jax.custom_jvp` tells JAX is forgotten when a scan, or one of several branches, is linearised,
as by every gradient (jax 0.10 and 0.11):
derivatives of derivatives are then those of what the function executes. Here such a function
becomes a primitive, which is taken apart by nothing, and whose derivative is made of others.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from dalembert.primitives import RULES
from dalembert.traces import (
    alone,
    apply_equation,
    called,
    contains,
    equations,
    evaluate,
    inside,
    name_of,
)

FORGOTTEN, FORGETFUL = "custom_jvp_call", ("scan", "cond")
"""What is forgotten, and in which operations."""


def forgets_rules(trace: Any) -> bool:
    """Whether derivatives of a gradient of what has this trace would not be as told."""
    found = (inside(eqn) for eqn in equations(trace) if name_of(eqn) in FORGETFUL)
    return any(contains(inner, (FORGOTTEN,)) for all_inside in found for inner in all_inside)


def with_kept_rules(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose parts that have derivatives of their own are primitives."""

    def run(*args: Any) -> Any:
        trace, shape = jax.make_jaxpr(fun, return_shape=True)(*args)
        found = _evaluated(trace, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return run


def _evaluated(trace: Any, args: Sequence[Any]) -> list[Any]:
    if not contains(trace, (FORGOTTEN,)):
        return jaxpr_as_fun(trace)(*args)

    def equation(eqn: Any, args: list[Any]) -> Sequence[Any]:
        one, values = alone(trace, eqn, args)
        if name_of(eqn) == FORGOTTEN:
            return _bind(one, values)
        if name_of(eqn) == "scan" and contains(body := eqn.params["jaxpr"], (FORGOTTEN,)):
            return apply_equation(eqn, args, jaxpr=_kept_inside(body))
        if name_of(eqn) == "cond" and any(contains(x, (FORGOTTEN,)) for x in inside(eqn)):
            branches = tuple(map(_kept_inside, eqn.params["branches"]))
            return apply_equation(eqn, args, branches=branches)
        # What has a rule for reverse mode would lose it if it were taken apart.
        inner = None if name_of(eqn) in RULES else called(eqn)
        if inner is not None and contains(inner, (FORGOTTEN,)):
            return _evaluated(inner, args)
        return one(*values)

    return evaluate(trace, args, equation, lambda x, _: x)


def _kept_inside(body: Any) -> Any:
    """The trace of a loop or a branch, with rules that are kept."""
    return jax.make_jaxpr(with_kept_rules(jaxpr_as_fun(body)))(*body.in_avals)


def _bind(fun: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    return _kept.bind(*args, fun=fun, call_jaxpr=jax.make_jaxpr(fun)(*args))


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, fun: Callable[..., Any], call_jaxpr: Any
) -> tuple[list[Any], list[Any]]:
    """What JAX was told, with the rules in it kept as well."""
    moved = [i for i, x in enumerate(primals) if jnp.issubdtype(x.dtype, jnp.inexact)]

    def both(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        def of_moved(*some: Any) -> Any:
            values = dict(enumerate(primals)) | dict(zip(moved, some, strict=True))
            return fun(*values.values())

        return jax.jvp(of_moved, [primals[i] for i in moved], tangents)

    given = [ad.instantiate_zeros(tangents[i]) for i in moved]
    found, slopes = with_kept_rules(both)(list(primals), given)
    return found, slopes


def _batch(
    args: Sequence[Any], axes: Sequence[Any], *, fun: Callable[..., Any], call_jaxpr: Any
) -> tuple[list[Any], list[int]]:
    found = _bind(jax.vmap(fun, axes), args)
    return found, [0] * len(found)


def _transpose(
    slopes: Sequence[Any], *args: Any, fun: Callable[..., Any], call_jaxpr: Any
) -> list[Any]:
    """Of a function that a rule applies to tangents."""
    is_open = [ad.is_undefined_primal(x) for x in args]
    known = [None if here else x for here, x in zip(is_open, args, strict=True)]

    def of_tangents(*some: Any) -> Any:
        rest = iter(some)
        return fun(*(next(rest) if here else x for here, x in zip(is_open, known, strict=True)))

    like = [x.aval for here, x in zip(is_open, args, strict=True) if here]
    found = iter(jax.linear_transpose(of_tangents, *like)(list(map(ad.instantiate_zeros, slopes))))
    return [next(found) if here else None for here in is_open]


def _computed(*args: Any, fun: Callable[..., Any], call_jaxpr: Any) -> list[Any]:
    return fun(*args)


_kept = Primitive("dalembert_custom_jvp")
_kept.multiple_results = True
_kept.def_impl(_computed)
_kept.def_abstract_eval(lambda *_, call_jaxpr, fun: call_jaxpr.out_avals)
ad.primitive_jvps[_kept] = _jvp
ad.primitive_transposes[_kept] = _transpose
batching.primitive_batchers[_kept] = _batch
mlir.register_lowering(_kept, mlir.lower_fun(_computed, multiple_results=True))
