"""Noise terms of many Wiener processes, given by one function linear in their increments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.caches import bounded


@dataclass(frozen=True)
class Joint(Sequence):
    """The terms Σ_i t_i(q, p) w_i as one function of (q, p, w); entry i is t_i.

    Attributes:
        fun: the function, or None if all terms are zero.
        shape: the shape of w.
        time: whether it is a function of (q, p, t, w).
    """

    fun: Callable[..., Any] | None
    shape: tuple[int, ...]
    time: bool = False

    def __len__(self) -> int:
        return prod(self.shape)

    def __getitem__(self, i: Any) -> Any:
        if not isinstance(i, int | np.integer):
            return tuple(self[k] for k in range(*i.indices(len(self))))
        if not 0 <= i < len(self):
            raise IndexError(i)
        return None if self.fun is None else _entry(self, int(i))


@bounded(1024)
def _entry(terms: Joint, i: int) -> Callable[..., Any]:
    """The same function whenever it is asked for, so that compiled code is found again."""

    def one(q: Any, p: Any, *rest: Any) -> Any:
        w = np.zeros(len(terms))
        w[i] = 1
        unit = jnp.asarray(w.reshape(terms.shape), q.dtype)
        return terms.fun(q, p, *rest[: terms.time], unit, *rest[terms.time :])  # type: ignore

    return one


def joint_terms(h: Any, f: Any, shape: tuple[int, ...], time: bool = False) -> tuple[Joint, Joint]:
    """h and f of a system whose noises are given by single functions."""
    is_copy = isinstance(h, Joint) or isinstance(f, Joint)
    h, f = (x.fun if isinstance(x, Joint) else x for x in (h, f))
    for name, given in (("h", h), ("f", f)):
        if given is not None and not callable(given):
            raise TypeError(
                f"with noises={shape} there is one function {name}(q, p, w) for all of them, "
                f"linear in w, not {type(given).__name__}: leave noises out where {name} is a list."
            )
    if h is None and f is None and not is_copy:
        raise ValueError(f"noises={shape} were given, but neither h(q, p, w) nor f(q, p, w).")
    return Joint(h, shape, time), Joint(f, shape, time)
