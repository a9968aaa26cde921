"""Observed paths and named parameters, checked."""

from collections.abc import Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np

from dalembert.precision import check_real
from dalembert.system import System

__all__ = [
    "Free",
    "check_names",
    "checked_times",
    "free_parameters",
    "labels",
    "observed_array",
    "unravelled",
]

Free: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""The names and shapes of the parameters that are looked for, in the order of one flat array."""


def observed_array(name: str, value: Any, times: int, shape: tuple[int, ...]) -> np.ndarray:
    """What was observed as an array (times, paths, *shape); one path needs no axis of its own."""
    array = np.asarray(value)
    check_real(name, array)
    if array.shape == (times, *shape):
        array = array[:, None]
    if array.ndim < 2 or array.shape != (times, array.shape[1], *shape) or not array.size:
        listed = ", ".join(map(str, shape)) + ("," if shape else "")
        raise ValueError(
            f"{name} must have shape (times, {listed}) or (times, paths, {listed}) for the {times} "
            f"times of t, not {array.shape}."
        )
    if not np.all(np.isfinite(array)):
        where = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(
            f"{name}{where.tolist()} is {array[tuple(where)]}: every value has to be a finite "
            "number. Cut the data before or after a gap, and take the pieces as paths."
        )
    return array.astype(np.float64)


def checked_times(t: Any, least: int = 2) -> np.ndarray:
    """Times of observation: finite numbers that increase."""
    times = np.asarray(t)
    if times.ndim != 1 or len(times) < least or times.dtype.kind not in "fiu":
        raise ValueError(
            f"t must be at least {least} times, shape (times,), not of shape {times.shape}."
        )
    if not np.all(np.isfinite(times)) or np.any(np.diff(times) <= 0):
        raise ValueError("t must increase from each observation to the next.")
    return times.astype(np.float64)


def check_names(system: System, given: Any) -> None:
    """Refuse what does not give parameters of the system by name."""
    if not isinstance(system.params, Mapping):
        raise TypeError(
            f"{system.name!r} has no parameters by name: write its functions of (q, p, params) and "
            'give da.System(..., params={"gamma": 1.0}).'
        )
    if not isinstance(given, Mapping) or not given:
        raise TypeError(f'give parameters by name, e.g. {{"gamma": 1.0}}, not {given!r}.')
    unknown = sorted(set(given) - set(system.params))
    if unknown:
        raise ValueError(f"{system.name!r} has no parameter {unknown}; it has {[*system.params]}.")


def free_parameters(system: System, guess: Any) -> tuple[Free, np.ndarray]:
    """Names and shapes of the parameters that are looked for, and where to begin, flat."""
    check_names(system, guess)
    arrays = {name: np.asarray(value, np.float64) for name, value in guess.items()}
    for name, array in arrays.items():
        if array.shape != np.shape(system.params[name]) or not np.all(np.isfinite(array)):
            shape = np.shape(system.params[name])
            raise ValueError(f"{name} must be finite, of shape {shape}, not {guess[name]!r}.")
    flat = np.concatenate([array.ravel() for array in arrays.values()])
    return tuple((name, array.shape) for name, array in arrays.items()), flat


def unravelled(free: Free, flat: Any) -> dict[str, Any]:
    """The parameters by name from one flat array."""
    found, start = {}, 0
    for name, shape in free:
        end = start + prod(shape)
        found[name] = flat[start:end].reshape(shape)
        start = end
    return found


def labels(free: Free) -> tuple[str, ...]:
    """What each entry of the flat array is called: `gamma`, or `k[0, 1]` of an array."""
    return tuple(
        f"{name}{list(place)}" if place else name
        for name, shape in free
        for place in np.ndindex(shape)
    )
