"""Which path raised an exception, and when: what is said of a function that calls Python back.

XLA takes many steps of many paths at a time, and an exception in one of them ends them all without
a word on which it was. The steps are taken again, fewer at a time and for fewer paths.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.ensemble.engine import known
from dalembert.ensemble.legs import Compiled, observe
from dalembert.ensemble.march import Block, PathState
from dalembert.ensemble.retake import retaken
from dalembert.ensemble.schedule import Schedule

DOUBLE = (
    " JAX gives float64 to Python, and takes it back, only after "
    'jax.config.update("jax_enable_x64", True): write that at the start.'
)


class BlockError(RuntimeError):
    """A function of a run has raised an exception; the message says for which path and when."""


class SearchStopped(Exception):
    """A run was told to end while it was looking for the path that raises."""


@dataclass(frozen=True)
class Leg:
    """What a leg began with; see `legs.py`.

    Attributes:
        group: paths that take a step safely at a time.
        numbers: of the real paths of the block.
    """

    compiled: Compiled
    schedule: Schedule
    block: Block
    state: PathState
    memory: Any
    units: range
    group: int
    numbers: np.ndarray


def failed_at(
    error: Exception,
    numbers: np.ndarray,
    attempt: Callable[[np.ndarray], Any],
    when: str,
    stop: threading.Event,
) -> Exception:
    """The error to raise for one in what is done with all paths once.

    Args:
        error: what was raised.
        numbers: of the paths.
        attempt: does it again with the paths at some places in the places of all.
        when: it is done, in words.
        stop: ends the search.
    """
    guilty = None
    if not _is_memory(error):
        with _searching(stop) as search:
            guilty = search.guilty(len(numbers), attempt)
    return _error(error, _paths(numbers, guilty if _is_alive() else None), when)


def failed_leg(
    error: Exception, leg: Leg, dt: float, is_spread: bool, stop: threading.Event
) -> Exception:
    """The error to raise for one in a leg of a block."""
    found = None
    if not is_spread and not _is_memory(error):
        with _searching(stop) as search:
            found = _find(leg, dt, search)
    if found is None or not _is_alive():
        first, last = (leg.schedule.steps_before(u) for u in (leg.units.start, leg.units.stop))
        when = f"between t = {first * dt:g} and t = {last * dt:g}"
        return _error(error, _paths(leg.numbers, None), when)
    guilty, when = found
    return _error(error, _paths(leg.numbers, guilty), when)


def _error(error: Exception, who: str, when: str) -> Exception:
    lines = [line for line in str(error).splitlines() if line.strip()]
    reason = lines[-1].strip().rstrip(".") if lines else type(error).__name__
    if not _is_memory(error):
        advice = DOUBLE if "Incorrect output dtype" in reason else ""
        return BlockError(f"an exception for {who} {when}: {reason}.{advice}")
    return MemoryError(
        f"there was no memory for {who} {when}: {reason}. Run fewer blocks at a time (workers=1), "
        "or observe and keep less."
    )


def _is_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _paths(numbers: np.ndarray, guilty: int | None) -> str:
    if guilty is not None:
        return f"path {numbers[min(guilty, len(numbers) - 1)]}"
    return f"one of the paths {numbers[0]} to {numbers[-1]}"


def _find(leg: Leg, dt: float, search: "_Search") -> tuple[int | None, str] | None:
    """The place of a path that raises, and when; None if nothing is raised a second time."""
    state, memory, schedule, paths = leg.state, leg.memory, leg.schedule, len(leg.block.is_real)

    def look(places: Any) -> Any:
        state_, memory_, block = picked(leg.block, state, memory, places)
        room = schedule.saves_per_leg
        return observe(leg.compiled, [state_], memory_, block, [first], room)[:2]

    def take(places: Any, first: int, count: int) -> PathState:
        state_, _, block = picked(leg.block, state, memory, places)
        moved, outcome = leg.compiled.on_block(block)(state_, first, count)
        hard, steps = known(outcome), range(first, first + count)
        if hard is None:
            return moved
        return retaken(leg.compiled, moved, hard, block, steps, leg.group)

    everyone = np.arange(paths)
    for unit in leg.units:
        first, count = schedule.stretch(unit)
        if schedule.is_save(unit):
            seen = search.tried(look, everyone)
            if seen is None:
                return search.guilty(paths, look), f"at t = {first * dt:g}"
            state, memory = seen
        moved = search.tried(take, everyone, first, count) if count else state
        for step in range(first, first + count) if moved is None else ():
            one = search.tried(take, everyone, step, 1)
            if one is None:
                guilty = search.guilty(paths, lambda places, step=step: take(places, step, 1))
                return guilty, f"in the step from t = {step * dt:g}"
            state = moved = one
        state = moved
    return None


_one_at_a_time = threading.Lock()


@contextmanager
def _searching(stop: threading.Event) -> Iterator["_Search"]:
    """Look for a path while JAX is quiet, which logs every exception of a callback.

    It has logged the one that is looked for. What it is told holds for all threads.
    """
    logger = logging.getLogger("jax._src.callback")
    with _one_at_a_time:
        before, logger.disabled = logger.disabled, True
        try:
            yield _Search(stop)
        finally:
            logger.disabled = before


@dataclass(frozen=True)
class _Search:
    """Attempts that may raise, until a search is stopped."""

    stop: threading.Event

    def tried(self, fun: Callable[..., Any], *args: Any) -> Any:
        """What a function returns, when it is there, or None if it raises."""
        if self.stop.is_set():
            raise SearchStopped
        try:
            return jax.block_until_ready(fun(*args))
        except Exception:
            return None

    def guilty(self, count: int, attempt: Callable[[np.ndarray], Any]) -> int | None:
        """The first of so many places at which an attempt raises, by halves; None if none does."""

        def raises(low: int, high: int) -> bool:
            places = np.resize(np.arange(low, high), count)
            return self.tried(lambda: (attempt(places), ())) is None

        low, high = 0, count
        while high - low > 1:
            middle = (low + high) // 2
            if raises(low, middle):
                high = middle
            elif raises(middle, high):
                low = middle
            else:
                return None
        return low


def _is_alive() -> bool:
    """Whether the device computes anything at all: on one that is lost every path raises."""
    try:
        jax.block_until_ready(jnp.zeros(()) + jnp.ones(()))
    except Exception:
        return False
    return True


def picked(block: Block, state: Any, memory: Any, places: Any) -> tuple[Any, Any, Block]:
    """The paths at some places in the places of all."""
    state, memory, path, is_real = jax.tree.map(
        lambda x: np.asarray(x)[places], (state, memory, block.path, block.is_real)
    )
    return state, memory, block._replace(path=path, is_real=is_real)
