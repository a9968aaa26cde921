"""Which path raised an exception, and when: what is said of a function that calls Python back.

XLA takes many steps of many paths at a time, and an exception in one of them ends them all without
a word on which it was. The steps are taken again, fewer at a time and for fewer paths.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dalembert.ensemble.engines import known
from dalembert.ensemble.legs import Compiled, observe
from dalembert.ensemble.march import Block, PathState
from dalembert.ensemble.retake import retaken
from dalembert.ensemble.schedule import Schedule

__all__ = ["BlockError", "Leg", "failed_leg", "failed_start"]


DOUBLE = (
    " JAX gives float64 to Python, and takes it back, only after "
    'jax.config.update("jax_enable_x64", True): write that at the start.'
)


class BlockError(RuntimeError):
    """A function of a run has raised an exception; the message says for which path and when."""


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


def failed_start(error: Exception, starts: Callable[..., Any], numbers: np.ndarray) -> Exception:
    """The error to raise for one in the sampler of the initial states."""
    with _jax_is_quiet():
        guilty = _guilty(len(numbers), lambda places: starts(numbers[places]))
    return _error(error, _paths(numbers, guilty), "at its start")


def failed_leg(error: Exception, leg: Leg, dt: float, is_spread: bool) -> Exception:
    """The error to raise for one in a leg of a block."""
    found = None
    if not is_spread and not _is_memory(error):
        with _jax_is_quiet():
            found = _find(leg, dt)
    if found is None:
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


def _find(leg: Leg, dt: float) -> tuple[int | None, str] | None:
    """The place of a path that raises, and when; None if nothing is raised a second time."""
    state, memory, schedule, paths = leg.state, leg.memory, leg.schedule, len(leg.block.is_real)

    def look(places: Any) -> Any:
        state_, memory_, block = _picked(leg.block, state, memory, places)
        room = schedule.saves_per_leg
        return observe(leg.compiled, [state_], memory_, block, [first], room)[:2]

    def take(places: Any, first: int, count: int) -> PathState:
        state_, _, block = _picked(leg.block, state, memory, places)
        moved, outcome = leg.compiled.on_block(block)(state_, first, count)
        hard, steps = known(outcome), range(first, first + count)
        if hard is None:
            return moved
        return retaken(leg.compiled, moved, hard, block, steps, leg.group)

    everyone = np.arange(paths)
    for unit in leg.units:
        first, count = schedule.stretch(unit)
        if schedule.is_save(unit):
            seen = _tried(look, everyone)
            if seen is None:
                return _guilty(paths, look), f"at t = {first * dt:g}"
            state, memory = seen
        moved = _tried(take, everyone, first, count) if count else state
        for step in range(first, first + count) if moved is None else ():
            one = _tried(take, everyone, step, 1)
            if one is None:
                guilty = _guilty(paths, lambda places, step=step: take(places, step, 1))
                return guilty, f"in the step from t = {step * dt:g}"
            state = moved = one
        state = moved
    return None


@contextmanager
def _jax_is_quiet() -> Iterator[None]:
    """It logs every exception of a callback, and has logged this one."""
    logger = logging.getLogger("jax._src.callback")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _tried(fun: Callable[..., Any], *args: Any) -> Any:
    """What a function returns, when it is there, or None if it raises."""
    try:
        return jax.block_until_ready(fun(*args))
    except Exception:
        return None


def _guilty(count: int, attempt: Callable[[np.ndarray], Any]) -> int | None:
    """The first of so many places at which an attempt raises, by halves; None if none does."""

    def raises(low: int, high: int) -> bool:
        places = np.resize(np.arange(low, high), count)
        return _tried(lambda: (attempt(places), ())) is None

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


def _picked(block: Block, state: Any, memory: Any, places: Any) -> tuple[Any, Any, Block]:
    """The paths at some places in the places of all."""
    state, memory, path, is_real = jax.tree.map(
        lambda x: np.asarray(x)[places], (state, memory, block.path, block.is_real)
    )
    return state, memory, block._replace(path=path, is_real=is_real)
