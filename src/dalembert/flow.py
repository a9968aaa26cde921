"""A part of the motion that is known as a map, such as collisions: `Flow`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax
import numpy as np

from dalembert.sizes import size_of


@dataclass(frozen=True)
class Flow:
    """What happens in a time h besides what fields do, as a map of the state.

    A method takes its steps for the Hamiltonian part, and the map acts for half of the time before
    and after: a symmetric (Strang) composition. So whatever both keep is kept.

    Args:
        map: `map(q, p, w, h) -> (q, p)`, with params last if the system has them. w are increments
            of Wiener processes over the time h: independent normal numbers of variance h.
        noises: the number of these, or the shape of w.
        name: what it is called.
        keeps: functions of a state, like observables, that the map leaves as they are to rounding,
            by name. `da.diagnose` tries them.
        after: the map after the step if it is another one than before, such as its parts in the
            opposite order, by which the composition is symmetric.
    """

    map: Callable[..., Any]
    noises: Any
    name: str = "flow"
    keeps: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    after: Callable[..., Any] | None = None

    @property
    def maps(self) -> tuple[Callable[..., Any], ...]:
        """The map, and that after a step if it is another one."""
        return (self.map,) if self.after is None else (self.map, self.after)

    def __post_init__(self) -> None:
        name = f"noises of the flow {self.name!r}"
        object.__setattr__(self, "noises", size_of(name, "Wiener processes", self.noises).shape)
        object.__setattr__(self, "keeps", dict(self.keeps))

    def arguments(self, state: Any, params: Any) -> tuple[Any, ...]:
        """The types of what the map is called with, for states of a type."""
        w, h = (jax.ShapeDtypeStruct(shape, state.dtype) for shape in (self.noises, ()))
        return state, state, w, h, *(() if params is None else (params,))

    def check(self, shape: tuple[int, ...], params: Any) -> None:
        """Refuse maps that do not give a state for a state."""
        for act in self.maps:
            self._check(act, shape, params)

    def _check(self, act: Callable[..., Any], shape: tuple[int, ...], params: Any) -> None:
        with jax.enable_x64(True):
            like = jax.ShapeDtypeStruct(shape, np.float64)
            given = self.arguments(like, None)
            # Parameters as they are: a map may refuse values that it is not made for.
            rest = () if params is None else (params,)
            try:
                out = jax.eval_shape(lambda *args: act(*args, *rest), *given)
                found = [(x.shape, x.dtype) for x in out]
            except Exception as error:
                text = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise TypeError(
                    f"the flow {self.name!r} must be a map (q, p, w, h) -> (q, p), with params "
                    f"last if the system has them. With q of shape {shape} it failed: {text}"
                ) from error
        if found != 2 * [(shape, np.dtype(np.float64))]:
            raise ValueError(
                f"the flow {self.name!r} must return (q, p), both real and of shape {shape}, not "
                f"{[of for of, _ in found]} of types {[str(kind) for _, kind in found]}."
            )

    def act(
        self, q: Any, p: Any, w: Any, h: Any, params: Any, shape: tuple[int, ...], after: bool
    ) -> Any:
        """The map on flat states, before or after a step."""
        act = self.maps[-1 if after else 0]
        given = (q.reshape(shape), p.reshape(shape), w.reshape(self.noises), h)
        q, p = act(*given) if params is None else act(*given, params)
        return q.reshape(prod(shape)), p.reshape(prod(shape))
