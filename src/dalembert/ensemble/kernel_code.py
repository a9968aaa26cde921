"""What the code of a GPU kernel is made of: operations that Triton knows, and nothing else.

Triton knows some of the primitives of JAX and none of our own, whose formulas are put in their
places here. Which operations there are is looked up before a kernel is chosen, so that a function
without a form in Triton is left to XLA instead of stopping a run.
"""

from collections.abc import Callable
from typing import Any

import jax

from dalembert.operations import OPERATIONS
from dalembert.primitives import PRIMITIVES
from dalembert.traces import (
    Trace,
    apply_equation,
    called,
    equations,
    evaluate,
    facts,
    is_trace,
    name_of,
)

IN_TRITON = frozenset(name for name, known in PRIMITIVES.items() if known.triton)
"""Primitives that Triton computes to rounding."""


def expanded(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The same function without calls, and with formulas in the places of our own operations."""

    def run(*args: Any) -> Any:
        closed, shape = jax.make_jaxpr(fun, return_shape=True)(*args)
        results = evaluate_expanded(closed, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return run


def evaluate_expanded(trace: Any, args: Any) -> list[Any]:
    """The results of a traced function, computed in that way."""
    return evaluate(trace, args, _outputs, lambda value, _: value)


def _outputs(eqn: Any, inputs: list[Any]) -> list[Any]:
    if eqn.primitive in OPERATIONS:
        return [expanded(OPERATIONS[eqn.primitive].formula)(*inputs)]
    inner = called(eqn)
    if inner is not None:
        return evaluate_expanded(inner, inputs)
    return apply_equation(eqn, inputs, **jax.tree.map(_expanded_code, eqn.params, is_leaf=is_trace))


def _expanded_code(value: Any) -> Any:
    """The code of a branch or of a loop, expanded; anything else as it is."""
    if not isinstance(value, Trace):
        return value
    types = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in value.in_avals]
    return jax.make_jaxpr(lambda *args: evaluate_expanded(value, args))(*types)


def operations(trace: Any) -> frozenset[str]:
    """The names of the primitives that a function uses, apart from calls and our own operations.

    The code of calls, branches and loops is looked into.
    """
    return frozenset(
        _name_with_type(eqn)
        for eqn in equations(trace)
        if called(eqn) is None and eqn.primitive not in OPERATIONS
    )


def _name_with_type(eqn: Any) -> str:
    """The name of a primitive, with the type if Triton does not compute it as JAX does."""
    kind = getattr(eqn.invars[0].aval, "dtype", None) if eqn.invars else None
    return f"{name_of(eqn)} of {kind}" if kind in facts(eqn).except_of else name_of(eqn)
