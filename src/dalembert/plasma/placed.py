"""Initial states of plasmas that know which plasma they are made for, and what samplers need."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.precision import is_traced
from dalembert.system import System

__all__ = ["Placed", "begins_in", "check_key", "placed"]

CLOSE = 1e-6
"""Of lengths, masses and weights that are the same: they may have been rounded to float32."""


class Placed(np.ndarray):
    """Positions that are asked before a run whether the plasma is the one they are made for.

    An array like any other: what is made of it, views and copies have no mark, and are not asked.
    """

    begins_in: Callable[[System], None] | None = None

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()


def placed(q: Any, p: Any, begins_in: Callable[[System], None]) -> tuple[np.ndarray, np.ndarray]:
    """A state of arrays of its own, with the function that refuses other plasmas on q."""
    marked = np.array(q).view(Placed)
    marked.begins_in = begins_in
    return marked, np.array(p)


def begins_in(system: System, sides: tuple[float, ...], particles: Mapping[str, Any]) -> None:
    """Refuse a plasma with another box, or with particles of other masses or weights, than a start.

    Args:
        system: what begins; anything but a plasma passes.
        sides: the lengths of the box of the start.
        particles: its masses and weights by name, numbers or one for each particle.
    """
    params: Any = system.params
    if not isinstance(params, Mapping) or not {"length", "charge", *particles} <= params.keys():
        return
    for name, mine in {"length": sides, **particles}.items():
        given = params[name]
        if is_traced(given, mine):
            continue
        one, other = (np.asarray(value, np.float64) for value in (mine, given))
        if name != "length" and one.ndim and other.ndim and one.shape != other.shape:
            continue  # Another number of particles, which shapes of states tell.
        if (one.shape != other.shape and name == "length") or np.any(abs(other / one - 1) > CLOSE):
            raise ValueError(
                f"the start is made for {_words(name, one)}, and {system.name!r} has "
                f"{_words(name, other)}: give the start and the plasma the same {name}=. (A state "
                "q, p that is meant to be there in spite of it is np.array(q), p.)"
            )


def _words(name: str, value: np.ndarray) -> str:
    if name != "length":
        value = np.unique(value)
        if value.size > 3:
            return f"{name} from {np.min(value):.7g} to {np.max(value):.7g}"
    return f"{name} {', '.join(f'{x:.7g}' for x in value)}"


def check_key(key: Any) -> None:
    """Refuse what is no key of JAX for random numbers."""
    dtype = getattr(key, "dtype", None)
    if dtype is not None and (jnp.issubdtype(dtype, jax.dtypes.prng_key) or np.shape(key)):
        return
    given = "no key" if key is None else repr(key)
    raise TypeError(
        f"random needs a key, not {given}: write start.random(jax.random.key(0)) for one state, "
        "and give start.random itself to da.simulate, which draws one for every path."
    )
