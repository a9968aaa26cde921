"""What a function computes, as a short text: equal in every process, other for other numbers.

A function is traced, and everything in its trace is written down in one fixed form: equations,
types, numbers by their bits, and traces inside traces with their constants. What names, addresses
and places in a file say of it does not count.

Functions with derivative rules of their own (`jax.custom_jvp`, `jax.custom_vjp`) are traced to the
value alone, so where rules matter the traces of derivatives are written down as well, which have
the rules written out. Code that is called back in Python has no trace: it is refused.
"""

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dalembert.precision import read_outside
from dalembert.primitives import CALLBACKS, LEFT_OUT, PRINTING, RULES
from dalembert.traces import closed, contains, is_trace, literal, walk

ORDERS = 4
"""Derivatives of H that a method can take: three in nested brackets of fields, and Newton's."""

TEXTS = frozenset(
    ["AbstractMesh", "Mesh", "PRNGImpl", "PRNGSpec", "PyTreeDef", "ShapedArray", "UnspecifiedValue"]
)
"""Types of JAX whose text says all that there is to say."""

FLAT_TREE = frozenset(["elts", "keys", "_vals", "xs", "_tree", "val"])
"""What makes a tree with its leaves, as traces of jax 0.11 contain them."""


class NotComparableError(ValueError):
    """There is something in a function that cannot be told from something else."""


def digest(fun: Callable[..., Any], *like: Any, orders: int = 0) -> str:
    """What a function of arguments like these computes.

    Args:
        fun: a function that JAX can trace.
        like: its arguments, or their types.
        orders: how many derivatives with respect to the first two arguments count.
    """
    forms = []
    for order in range(orders + 1):
        try:
            # A function made anew: JAX would remember the trace of the same one.
            trace, out = jax.make_jaxpr(lambda *args, fun=fun: fun(*args), return_shape=True)(*like)
        except Exception as error:
            if order == 0:
                raise
            raise NotComparableError(f"its derivative of order {order} fails: {error}") from error
        forms.append(_form(trace))
        if order == orders or not contains(trace, RULES):
            break
        fun, like = derivative(fun, like, is_number=order == 0 and out.shape == ())
    return _short(forms)


def digest_or_reason(fun: Callable[..., Any], *like: Any, orders: int = 0) -> tuple[str, str]:
    """The digest of a function, or nothing and the reason why it has none."""
    try:
        return digest(fun, *like, orders=orders), ""
    except NotComparableError as error:
        return "", str(error)


def traced_key(fun: Callable[..., Any], *like: Any, orders: int = 0) -> Hashable:
    """The digest of a function as a key; one that has none is never the same again."""
    return digest_or_reason(fun, *like, orders=orders)[0] or object()


def trace_key(trace: Any) -> str:
    """The digest of a trace; empty if it has none."""
    try:
        return _short([_form(trace)])
    except NotComparableError:
        return ""


def _short(forms: Any) -> str:
    return hashlib.sha256(repr(forms).encode()).hexdigest()[:32]


def derivative(
    fun: Callable[..., Any], like: tuple[Any, ...], is_number: bool
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The gradient of a number, as systems take it, else the derivative along a direction."""
    if is_number:
        return jax.grad(lambda *args: jnp.asarray(fun(*args)), argnums=(0, 1)), like

    def along(q: Any, p: Any, direction: Any, *rest: Any) -> Any:
        return jax.jvp(lambda q, p: fun(q, p, *rest), (q, p), direction)

    return along, (*like[:2], like[:2], *like[2:])


def _form(x: Any) -> Any:
    """A thing in a trace as tuples of texts and whole numbers."""
    kind = type(x)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if x is None or (isinstance(x, bool | int | str | bytes) and not isinstance(x, Enum)):
        return kind.__name__, x
    if isinstance(x, float | complex) and not isinstance(x, np.generic):
        return kind.__name__, repr(x)
    if is_trace(x):
        return _trace(closed(x))
    if isinstance(x, Tracer):
        raise read_outside(x)
    if kind.__name__ in TEXTS and kind.__module__.partition(".")[0] in ("jax", "jaxlib"):
        return name, str(x)
    if isinstance(x, np.ndarray | np.generic | jax.Array):
        return _array(x)
    if isinstance(x, Enum):
        return name, x.name
    if isinstance(x, np.dtype):
        return "dtype", str(x)
    if isinstance(x, type):
        return "type", f"{x.__module__}.{x.__qualname__}"
    if isinstance(x, list | tuple):
        return name, *map(_form, x)
    if isinstance(x, set | frozenset):
        return name, *sorted(map(_form, x), key=repr)
    if isinstance(x, Mapping):
        return name, *sorted(((_form(key), _form(value)) for key, value in x.items()), key=repr)
    if kind.__module__ == "jax._src.flattree":
        return name, *((n, _form(part)) for n, part in vars(x).items() if n in FLAT_TREE)
    if is_dataclass(x):
        return name, *((field.name, _form(getattr(x, field.name))) for field in fields(x))
    raise NotComparableError(f"it contains a {name}")


def _array(x: Any) -> Any:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return "keys", str(x.dtype), _array(jax.random.key_data(x))
    array = np.asarray(x)
    if array.dtype.hasobject:
        raise NotComparableError("it contains an array of objects")
    return "array", str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()


def _trace(trace: Any) -> Any:
    """A trace: variables are known by the order in which they come."""
    numbers, equations = count(), []

    def made(var: Any) -> tuple[int, str]:
        return next(numbers), str(var.aval)

    def equation(eqn: Any, inputs: list[Any]) -> list[int]:
        primitive, params = eqn.primitive.name, eqn.params
        if primitive in PRINTING:
            params = {}
        if primitive in CALLBACKS:
            raise NotComparableError(f"it calls Python back ({primitive})")
        left_out = LEFT_OUT.get(primitive, ())
        given = tuple((n, _form(x)) for n, x in sorted(params.items()) if n not in left_out)
        outputs = list(map(made, eqn.outvars))
        equations.append((primitive, given, *inputs, "=", *outputs))
        return [number for number, _ in outputs]

    begin = [made(var) for var in (*trace.jaxpr.constvars, *trace.jaxpr.invars)]
    results = walk(
        trace, [n for n, _ in begin], equation, lambda v: (str(v.aval), _array(literal(v)))
    )
    return "trace", begin, list(map(_form, trace.consts)), equations, results
