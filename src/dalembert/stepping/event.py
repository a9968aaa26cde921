"""Events that end paths: which change of sign counts, and where a path may begin."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.driven import Timed
from dalembert.system import System

__all__ = ["Event", "start_value", "why_no_start"]

ROUNDING = 16
"""Roundings of a state by which an event that is zero at the start may differ from zero."""

NEARBY = 1e-3
"""How far from the start an event that is zero there is tried, as a part of the state's size."""

ON_A_REGION, BEYOND = np.inf, -np.inf
"""What stands in the place of the value at the start of a path that cannot begin there."""

DIRECTIONS = ("both", "up", "down")


@dataclass(frozen=True)
class Event:
    """An event of which only one change of sign counts, for `da.simulate(..., stop=event)`.

    A path of an event in one direction must begin before it, or where the function is zero: one
    that begins beyond is refused.

    Args:
        of: a function of (q, p), or (q, p, params), with t after q and p if the system is driven.
        direction: "up" if a path ends where the function becomes positive, "down" where it becomes
            negative, or "both", as for a function that is given without direction.
    """

    of: Callable[..., Any]
    direction: str = "both"

    def __post_init__(self) -> None:
        if not callable(self.of):
            raise TypeError(
                f"an event must be a function of (q, p) that changes sign, not {self.of!r}."
            )
        if self.direction not in DIRECTIONS:
            raise ValueError(
                f'the direction of an event is "up", "down" or "both", not {self.direction!r}.'
            )


def stops(direction: str, before: Any, now: Any) -> Any:
    """Whether an event with these values before and after a step has come."""
    falls, rises = (before > 0) & (now <= 0), (before < 0) & (now >= 0)
    if direction == "both":
        return falls | rises
    return rises if direction == "up" else falls


def start_value(
    system: System, event: Callable[..., Any], direction: str, dt: float, eps: float, q: Any, p: Any
) -> Any:
    """The value of an event where a path begins, from flat states.

    It is zero if roundings of the state change it by as much. Where a path cannot begin it is not
    finite: `ON_A_REGION` if the event is zero nearby, too, and `BEYOND` if it has come already.
    """

    def at(part: float) -> Any:
        z = (x + part * _size(x) * _askew(x, i) for i, x in enumerate((q, p)))
        t = jnp.asarray(part * dt, q.dtype)
        told = Timed(t, system.params) if system.time else system.params
        return jnp.asarray(system.evaluate(event, *z, told)).astype(p.dtype)

    value = at(0.0)
    moved = [jnp.abs(at(share * ROUNDING * eps) - value) for share in (1, -1)]
    value = jnp.where(jnp.abs(value) <= jnp.maximum(*moved), jnp.zeros_like(value), value)
    is_flat = (value == 0) & ((at(NEARBY) == 0) | (at(-NEARBY) == 0))
    is_beyond = {"both": jnp.zeros_like(is_flat), "up": value > 0, "down": value < 0}[direction]
    value = jnp.where(jnp.isfinite(value), value, jnp.full_like(value, jnp.nan))
    value = jnp.where(is_flat, jnp.full_like(value, ON_A_REGION), value)
    return jnp.where(is_beyond, jnp.full_like(value, BEYOND), value)


def _size(x: Any) -> Any:
    """The largest entry of a state, 1 if all are zero."""
    most = jnp.max(jnp.abs(x))
    return jnp.where(most > 0, most, jnp.ones_like(most))


def _askew(x: Any, phase: int) -> Any:
    """A vector of entries near 1 that is tangent to no surface a person writes down."""
    return jnp.asarray(1 + 0.4 * np.sin(1 + phase + 2.4 * np.arange(x.size)), x.dtype)


def why_no_start(value: float, path: int, direction: str) -> str:
    """What is wrong with a start, from what `start_value` gave there; empty if nothing is."""
    if np.isfinite(value):
        return ""
    if value == ON_A_REGION:
        return (
            f"stop is 0 on a whole region, where path {path} starts: it must change its sign at "
            "the event. Write q[0] - 1, not jnp.where(q[0] > 1, 1.0, 0.0) or "
            "jnp.maximum(q[0] - 1, 0)."
        )
    if value == BEYOND:
        side, before = ("> 0", "< 0") if direction == "up" else ("< 0", "> 0")
        return (
            f"the event is true at the start of path {path}: stop {side} there, and "
            f'direction="{direction}" wants paths to begin where stop {before}, or is 0. Begin '
            'there, or give direction="both", with which a path ends where the sign changes next.'
        )
    return (
        f"stop gives {value} at the start of path {path}: the event must be a finite number "
        "wherever paths are, such as q[0] - 1."
    )
