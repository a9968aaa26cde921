"""Traces of functions, which JAX calls jaxprs: how they are read and evaluated.

What depends on how traces look inside, in all versions of JAX that are supported, is here; what is
known of single operations is in `primitives.py`. A trace is a list of equations. An equation may
have traces inside it: a call executes one as it stands, loops and branches in ways of their own.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core as jcore
from jax.interpreters.partial_eval import dce_jaxpr

from dalembert.known import by_numpy
from dalembert.primitives import LOOPS, PRIMITIVES, Facts

Trace = jcore.ClosedJaxpr
"""A trace with its constants."""

_TRACES = (jcore.ClosedJaxpr, jcore.Jaxpr)

Rule = Callable[[Any, list[Any]], Sequence[Any]]

_OF_JAX = {p.name: p for p in vars(jcore.primitives).values() if isinstance(p, jcore.Primitive)}


def evaluate(
    trace: Any, args: Sequence[Any], rule: Rule, constant: Callable[[Any, Any], Any]
) -> list[Any]:
    """The results of a trace for values of any kind.

    Args:
        trace: what is evaluated.
        args: values of its arguments.
        rule: (equation, values of its operands) → values of its results.
        constant: (number or array, its type) → the value that stands for it.
    """
    consts = map(constant, trace.consts, (v.aval for v in trace.jaxpr.constvars))
    return walk(trace, [*consts, *args], rule, lambda v: constant(v.val, v.aval))


def walk(trace: Any, given: Sequence[Any], rule: Rule, number: Callable[[Any], Any]) -> list[Any]:
    """`evaluate`, given the values of constants and arguments, and what a literal stands for."""
    jaxpr = trace.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], given, strict=True))

    def read(var: Any) -> Any:
        return number(var) if isinstance(var, jcore.Literal) else values[var]

    for eqn in jaxpr.eqns:
        values.update(zip(eqn.outvars, rule(eqn, list(map(read, eqn.invars))), strict=True))
    return list(map(read, jaxpr.outvars))


def live(fun: Callable[..., Any], *args: Any) -> Callable[..., list[Any]]:
    """A function, traced for arguments of these types, without equations that no result needs."""
    trace = jax.make_jaxpr(fun)(*args)
    jaxpr, _ = dce_jaxpr(trace.jaxpr, [True] * len(trace.jaxpr.outvars), instantiate=True)
    return jcore.jaxpr_as_fun(jcore.ClosedJaxpr(jaxpr, trace.consts))


def traced(trace: Any) -> Callable[..., Any]:
    """The function of one result that has been traced, of arguments in their trees."""
    call = jcore.jaxpr_as_fun(trace)
    return lambda *args: call(*jax.tree.leaves(args))[0]


def literal(var: Any) -> np.ndarray:
    """The number that a literal is, in its type."""
    return np.asarray(var.val, var.aval.dtype)


def numbers(trace: Any) -> Iterator[Any]:
    """All numbers and arrays that a trace, and traces inside it, have in them."""
    yield from trace.consts
    for eqn in trace.jaxpr.eqns:
        yield from (literal(v) for v in eqn.invars if isinstance(v, jcore.Literal))
        for inner in inside(eqn):
            yield from numbers(inner)


def equations(trace: Any) -> Iterator[Any]:
    """All equations of a trace and of traces inside it."""
    for eqn in trace.jaxpr.eqns:
        yield eqn
        for inner in inside(eqn):
            yield from equations(inner)


def scalars(trace: Any) -> int:
    """How many numbers the equations of a trace, and of traces inside it, compute."""
    leaves = (eqn for eqn in equations(trace) if called(eqn) is None)
    return sum(int(np.prod(v.aval.shape)) for eqn in leaves for v in eqn.outvars)


def contains(trace: Any, primitives: Sequence[str]) -> bool:
    """Whether a trace, or one inside it, has one of these operations."""
    return any(eqn.primitive.name in primitives for eqn in equations(trace))


def reads_argument(trace: Any, number: int) -> bool:
    """Whether an operation of a trace takes the argument of some number."""
    argument = trace.jaxpr.invars[number]
    return any(v is argument for eqn in trace.jaxpr.eqns for v in eqn.invars)


def is_trace(x: Any) -> bool:
    """Whether something is a trace."""
    return isinstance(x, _TRACES)


def closed(x: Any) -> Any:
    """A trace with its constants; where they are not there, they are arguments."""
    # Since JAX 0.11 the two are one class, and closing a trace again would lose its constants.
    if isinstance(x, jcore.ClosedJaxpr):
        return x
    opened = x.replace(constvars=[], invars=[*x.constvars, *x.invars]) if x.constvars else x
    return jcore.ClosedJaxpr(opened, ())


def inside(eqn: Any) -> Iterator[Any]:
    """The traces inside an equation: bodies of calls, loops and branches."""
    for found in jax.tree.leaves(list(eqn.params.values()), is_leaf=is_trace):
        if is_trace(found):
            yield closed(found)


def called(eqn: Any) -> Any | None:
    """The trace that an equation executes as it stands (jit, custom_jvp, remat, …), if it does.

    A loop executes its trace more than once, and one of other shapes than the equation is not
    called at all: it works on blocks or on single entries.
    """
    if name_of(eqn) in LOOPS:
        return None
    for name in ("call_jaxpr", "fun_jaxpr", "jaxpr", "call"):
        if name in eqn.params and is_trace(inner := eqn.params[name]):
            inner = closed(inner)
            return inner if _shapes(inner.jaxpr) == _shapes(eqn) else None
    return None


def _shapes(code: Any) -> list[list[Any]]:
    """The shapes of what a trace or an equation takes and gives; None for what has no shape."""
    both = (code.invars, code.outvars)
    return [[getattr(v.aval, "shape", None) for v in variables] for variables in both]


def name_of(eqn: Any) -> str:
    """The name of an equation's primitive, or one that no table has if JAX uses it for another."""
    name = eqn.primitive.name
    is_other = _OF_JAX.get(name, eqn.primitive) is not eqn.primitive
    return f"{name} of somebody else" if is_other else name


def facts(eqn: Any) -> Facts:
    """What is known of an equation's primitive."""
    return PRIMITIVES.get(name_of(eqn), Facts())


def apply_equation(eqn: Any, args: Sequence[Any], **changes: Any) -> list[Any]:
    """The results of an equation for other arrays, or traced values, and with other parameters."""
    out = eqn.primitive.bind(*args, **(eqn.params | changes))
    return list(out) if eqn.primitive.multiple_results else [out]


def alone(trace: Any, eqn: Any, args: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """What one equation of a trace computes, with derivatives that it was told, as a function; and
    the values, among those of its operands, that it is a function of."""
    pairs = zip(eqn.invars, args, strict=True)
    given = {v: x for v, x in pairs if not isinstance(v, jcore.Literal)}
    one = trace.jaxpr.replace(constvars=[], invars=[*given], outvars=eqn.outvars, eqns=[eqn])
    return jcore.jaxpr_as_fun(closed(one)), list(given.values())


def compute(eqn: Any, args: Sequence[Any], **changes: Any) -> list[np.ndarray]:
    """The same for known arrays, computed at once, also inside a trace."""
    if (found := by_numpy(name_of(eqn), args, eqn.params | changes)) is not None:
        return found
    with jax.ensure_compile_time_eval():
        return list(map(np.asarray, apply_equation(eqn, args, **changes)))
