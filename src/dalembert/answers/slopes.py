"""Whether an observable may change where a state does: the size of a derivative of it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dalembert.caches import bounded
from dalembert.dependence import Degree, degree
from dalembert.traces import equations, name_of

__all__ = ["slope"]

PIECEWISE = frozenset({
    "select_n", "max", "min", "clamp", "sign", "floor", "ceil", "round", "rem",
    "eq", "ne", "lt", "le", "gt", "ge", "while", "cond", "sort",
})  # fmt: skip
"""Operations by which a function has pieces."""


@bounded(64)
def slope(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The size of the derivative along a direction in which no state is special.

    What reads no state, as the time, has none to be special: there it is one. Where functions are
    put together of pieces, most paths may have missed one, and nothing is known.
    """

    def of_state(q: Any, p: Any, *rest: Any) -> Any:
        like = jax.tree.map(jax.typeof, (q, p, *rest))
        if degree(fun, like, (0, 1)) <= Degree.CONSTANT:
            return jnp.ones_like(fun(q, p, *rest), dtype=q.dtype)
        if PIECEWISE & {name_of(eqn) for eqn in equations(jax.make_jaxpr(fun)(*like))}:
            return jnp.zeros_like(fun(q, p, *rest), dtype=q.dtype)
        along = jnp.cos(1.0 + jnp.arange(2 * q.size, dtype=q.dtype)).reshape(2, *q.shape)
        _, found = jax.jvp(lambda q, p: jnp.asarray(fun(q, p, *rest)), (q, p), tuple(along))
        return jnp.abs(found)

    return of_state
