"""Driven systems in theorems about systems without time: their extended systems, at some time.

The last position of an extended system is the time, and its last momentum p_t minus the energy.
Nothing depends on p_t but itself: where no variation of the time is taken it may be zero, with
which H_d⁺ and S are those of the driven system, and what belongs to it is left out of the answers.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.driven import time_of
from dalembert.precision import is_traced
from dalembert.system import System


def timeless(system: System, t: Any, q: Any, p: Any, dt: Any = None) -> tuple[System, Any, Any]:
    """A system without time, and states of it: those that were given, or extended ones.

    The latter are one at a time t, or from there on one every dt.
    """
    t = time_of(system, t)
    if t is None:
        return system, q, p

    def flat(name: str, x: Any) -> Any:
        if dt is None:
            return system.flat(name, x)
        x = x if is_traced(x) else np.asarray(x)
        if x.ndim < 2 or x.shape[1:] != system.shape:
            wanted = ", ".join(map(str, ("K + 1", *system.shape)))
            raise ValueError(f"{name} must have shape ({wanted}), not {x.shape}.")
        return x.reshape(len(x), -1)

    q, p = flat("q", q), flat("p", p)
    times = t if dt is None else t + dt * np.arange(len(q))
    on: Any = jnp if is_traced(q, p, t, dt) else np

    def with_last(x: Any, last: Any) -> Any:
        return on.concatenate([x, on.broadcast_to(last, x.shape[:-1])[..., None]], axis=-1)

    return system.extended(), with_last(q, times), with_last(p, 0.0)


def extended_generator(system: System, generator: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A generator of flat positions as one of extended ones, which leaves the time as it is."""

    def extended(q: Any) -> Any:
        return jnp.append(generator(q[: system.dim]), jnp.zeros((), q.dtype))

    name = getattr(generator, "name", getattr(generator, "__name__", "<>"))
    extended.__name__ = str(name)
    return extended
