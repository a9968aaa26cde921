"""Runs whose paths stop at an event: what `simulate` is asked for in terms of such paths, and what
comes of it in terms of those that were asked for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from dalembert.captured import Keyed
from dalembert.ensemble.initial import ask_start
from dalembert.ensemble.run import Run
from dalembert.ensemble.settings import _number
from dalembert.functions import check_function
from dalembert.methods import Method
from dalembert.precision import as_dtype, float_hint, is_traced
from dalembert.statistics.histogram import Histogram
from dalembert.statistics.stop_times import StopTimes
from dalembert.stepping.event import Event, why_no_start
from dalembert.stepping.step import check_method
from dalembert.stepping.stopping import (
    StoppingMethod,
    at_place,
    located,
    side,
    started,
    stopped_after,
    stopping_system,
)
from dalembert.system import System

NAME = "stopped"
"""Of the statistic of the event among the others."""

MOST_FLOAT32 = 2**14
"""Steps of float32 runs, which then know times to a thousandth of a step."""


@dataclass(frozen=True)
class Until:
    """A run until an event."""

    system: System
    event: Keyed
    dt: float
    direction: str
    eps: float

    @classmethod
    def checked(
        cls,
        system: System,
        method: Method,
        initial: Any,
        stop: Any,
        dt: Any,
        t_end: Any,
        dtype: Any,
    ) -> "Until":
        """The event of a run, or an error about what is none."""
        check_method(system, method)
        ask_start(system, initial)
        if is_traced((system.params, None if callable(initial) else initial)):
            raise ValueError("stop cannot be had inside jit, vmap or grad: leave it out.")
        direction = "both"
        if isinstance(stop, Event):
            stop, direction = stop.of, stop.direction
        if not callable(stop):
            raise TypeError(
                "stop must be a function of (q, p) that changes sign, or da.Event of one, not "
                f"{stop!r}."
            )
        try:
            like = system.shape, system.params, None
            shape = check_function("stop", stop, *like, time=system.time).shape
        except TypeError as error:
            hint = "It must change its sign at the event: q[0] - 1, not q[0] > 1."
            raise TypeError(str(error).replace(float_hint(np.dtype(bool)), hint)) from error
        if shape:
            raise ValueError(f"stop must give one number, not an array of shape {shape}.")
        dt, t_end = _number("dt", dt), _number("t_end", t_end)
        dtype = as_dtype(dtype)
        if dtype == np.float32 and t_end / dt > MOST_FLOAT32:
            raise ValueError(
                f"float32 does not tell the times of {t_end / dt:.3g} steps apart: with stop= take "
                "dtype=float64, or fewer steps."
            )
        return cls(system, system.known(stop), dt, direction, float(np.finfo(dtype).eps))

    def arguments(
        self, method: Method, initial: Any, observe: Any, histograms: Any, statistics: Any
    ) -> dict[str, Any]:
        """What to simulate instead: paths that stop, observed where they are or have stopped."""
        if NAME in (statistics or {}):
            raise ValueError(f"with stop= the name {NAME!r} is taken: give statistics another one.")
        seen = self._all_changed({"energy": self.system.H} if observe is None else observe)
        at_event = tuple(seen.items()) if isinstance(seen, Mapping) else ()
        counted = self._all_changed(histograms or {})
        times = StopTimes(stopped_after, side, at_event, self.dt, _counted_once(counted))
        others = self._all_changed(statistics or {})
        return {
            "system": stopping_system(self.system),
            "method": StoppingMethod(method, self.event, self.direction),
            "initial": self._initial(initial),
            "observe": seen,
            "histograms": counted,
            "statistics": {**others, NAME: times} if isinstance(others, Mapping) else others,
        }

    def _all_changed(self, given: Any) -> Any:
        """What is observed by name; what is not by name is refused later."""
        if not isinstance(given, Mapping):
            return given
        return {name: self._changed(one) for name, one in given.items()}

    def _changed(self, value: Any) -> Any:
        """A statistic, or a part of one, with functions of paths that stop."""
        if isinstance(value, tuple):
            return tuple(map(self._changed, value))
        if is_dataclass(value) and not isinstance(value, type):
            parts = {f.name: self._changed(getattr(value, f.name)) for f in fields(value)}
            return replace(value, **parts)
        if not callable(value):
            return value
        return at_place(self.system, value, self.dt if self.system.time else None)

    def _initial(self, initial: Any) -> Any:
        about = self.event.value, self.direction, self.dt, self.eps
        start = partial(started, self.system, *about)
        if callable(initial):
            return _Starts(start, initial, self.direction)
        q, p = (np.asarray(x) for x in initial)
        if not np.all([np.issubdtype(x.dtype, np.number) for x in (q, p)]):
            raise TypeError(f"the initial state must be numbers, not {initial!r}.")
        shape, axes = self.system.shape, q.ndim - len(self.system.shape)
        if axes not in (0, 1) or q.shape[axes:] != shape or p.shape != q.shape:
            raise ValueError(
                f"q0 and p0 must have the shape {shape}, or (paths, …), with stop= both the same; "
                f"they have {q.shape} and {p.shape}."
            )
        with jax.enable_x64(True):
            begin = jax.vmap(start) if axes else start
            begun_at = tuple(np.asarray(x) for x in begin(q.astype(float), p.astype(float)))
        values, is_state = begun_at[1][..., -1], np.isfinite(begun_at[1][..., :-1]).all(-1)
        wrong = np.atleast_1d(is_state & ~np.isfinite(values))
        if wrong.any():
            k = int(np.argmax(wrong))
            raise ValueError(why_no_start(np.atleast_1d(values)[k], k, self.direction))
        return begun_at

    def told(self, run: Run) -> Run:
        """The run with states of the paths that were asked for, and the times of all of them."""
        # What was observed is of states that nobody sees.
        run = replace(run, system=None)
        if not run.kept:
            return run
        q, p, dim = run.q, run.p, int(self.system.dim)
        if q.ndim == 2:  # the last states as they are, not as statistics have seen them
            with jax.enable_x64(q.dtype == np.float64):
                place = partial(located, self.system, self.event.value, self.dt)
                of_paths = jax.jit(jax.vmap(place, in_axes=(0, 0, None)))
                q, p = map(np.asarray, of_paths(q, p, self.system.params))
        steps = q[..., -1] if q.ndim == 2 else q[-1, :, -1]
        times = np.where(steps < 0, -steps, np.nan) * self.dt
        q, p = (self.system.shaped(x[..., dim : 2 * dim]) for x in (q, p))
        return replace(run, kept={"q": q, "p": p, "stop_times": times})


@dataclass(frozen=True)
class _Starts:
    """A sampler of the states of paths that begin, from one of those of the system."""

    start: Callable[..., tuple[Any, Any]]
    sampler: Callable[..., Any]
    direction: str

    def __call__(self, key: Any) -> tuple[Any, Any]:
        return self.start(*self.sampler(key))

    def why(self, p: np.ndarray, path: int) -> str:
        """What is wrong with the event at the start of a path; empty if nothing is."""
        return why_no_start(p[-1], path, self.direction) if np.isfinite(p[:-1]).all() else ""


def _counted_once(histograms: Any) -> tuple[tuple[str, Histogram], ...]:
    """Histograms by name, as of one time each; what is none is refused later."""
    if not isinstance(histograms, Mapping):
        return ()
    found = {name: one for name, one in histograms.items() if isinstance(one, Histogram)}
    return tuple((name, replace(one, every_save=False)) for name, one in found.items())
