"""A leg: some consecutive units of one block, with the saves that fall into them.

A unit (`schedule.py`) saves if a save is due, and takes a stretch of steps. The states at the saves
of a leg are observed together at its end, because every call of XLA takes time. If a path could not
take a stretch fast, the leg ends there: what was taken ahead of knowing that is forgotten.
"""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.ensemble.engine import OnBlock, known
from dalembert.ensemble.kernel import Kernel, Saves
from dalembert.ensemble.march import Block, PathState, Status, choose
from dalembert.ensemble.places import to_host
from dalembert.ensemble.schedule import Schedule
from dalembert.statistics.statistic import Data

AHEAD = 8
"""Stretches that a device is given before it is known whether all paths could take the first."""


class Compiled(NamedTuple):
    """All compiled code of a run.

    Attributes:
        on_block: fast steps, given what the paths of a block are told.
        observe_rows: see `Kernel.observe_rows`.
        step_safely: see `Kernel.step_safely`.
        finish: see `Kernel.finish`.
        known: types of what it has been called with, so that it need not be compiled for them.
        at_end: what takes means at the end, perhaps of whole blocks at once (`native_means.py`).
    """

    on_block: OnBlock
    observe_rows: Callable[..., tuple[PathState, Any, Saves]]
    step_safely: Callable[..., PathState]
    finish: Callable[..., dict[str, Data]]
    known: set[Any]
    at_end: Any = None


class LegResult(NamedTuple):
    """What a leg leaves.

    Attributes:
        state: the paths at the end.
        memory: what statistics remember of them.
        saves: what was noted on the way; None if there was nothing to be.
        unit: the next unit.
        hard: paths that are still before the last stretch and must take it again; None if none are.
    """

    state: PathState
    memory: Any
    saves: Saves | None
    unit: int
    hard: np.ndarray | None


class _Taken(NamedTuple):
    """A stretch that has been taken: the next unit, its state, and the saves made so far.

    Whether a path was hard need not be known yet (`engine.py`).
    """

    unit: int
    state: PathState
    saves: int
    outcome: Any


def compile_run(
    kernel: Kernel, on_block: OnBlock, at_end: Any = None, code: Hashable = None
) -> Compiled:
    """The code of a run whose fast steps are known, and perhaps how its end is observed."""
    by_xla, step_safely, finish = _of_kernel(kernel)
    observe_rows = at_end.observe if at_end else by_xla
    known = _known(kernel, code, at_end is None)
    return Compiled(on_block, observe_rows, step_safely, finish, known, at_end)


@kept
def _known(kernel: Kernel, *code: Hashable) -> set[Any]:
    return set()


@kept
def _of_kernel(kernel: Kernel) -> tuple[Callable[..., Any], ...]:
    return tuple(map(jax.jit, (kernel.observe_rows, kernel.step_safely, kernel.finish)))


def run_leg(
    compiled: Compiled,
    state: PathState,
    memory: Any,
    block: Block,
    schedule: Schedule,
    unit: int,
    end: int,
) -> LegResult:
    """Take the units of a leg, as far as all paths can take their steps fast."""
    march, hard = compiled.on_block(block), None
    rows: list[PathState] = []
    steps: list[int] = []
    ahead: deque[_Taken] = deque()
    while hard is None and (unit < end or ahead):
        if unit < end:
            first, count = schedule.stretch(unit)
            if schedule.is_save(unit):
                rows.append(state)
                steps.append(first)
            unit += 1
            if count:
                state, outcome = march(state, first, count)
                ahead.append(_Taken(unit, state, len(rows), outcome))
        if ahead and (unit == end or len(ahead) > AHEAD or not callable(ahead[0].outcome)):
            taken = ahead.popleft()
            hard = known(taken.outcome)
            if hard is not None:
                unit, state = taken.unit, taken.state
                del rows[taken.saves :], steps[taken.saves :]
    if not rows:
        return LegResult(state, memory, None, unit, hard)
    observed, memory, saves = observe(compiled, rows, memory, block, steps, schedule.saves_per_leg)
    # Paths that cannot be observed stay where that was found out.
    lost = to_host(observed.status) == Status.UNOBSERVABLE
    if lost.any():
        state = jax.tree.map(partial(choose, lost), observed, state)
        state = jax.tree.map(to_host, state)
        hard = None if hard is None or not np.any(hard & ~lost) else hard & ~lost
    return LegResult(state, memory, jax.tree.map(to_host, saves), unit, hard)


def observe(
    compiled: Compiled,
    rows: list[PathState],
    memory: Any,
    block: Block,
    steps: list[int],
    room: int,
) -> tuple[PathState, Any, Saves]:
    """Observe the paths at several times by code for one number of them, whatever it is."""
    spare = room - len(rows)
    # Where anything is in NumPy, all is on a CPU, and JAX would be slow.
    on_host = any(isinstance(x, np.ndarray) for x in jax.tree.leaves(rows))
    stack = np.stack if on_host else jnp.stack
    stacked = jax.tree.map(
        lambda *xs: xs[0][None] if room == 1 else stack(xs), *rows, *[rows[-1]] * spare
    )
    numbers = np.asarray(steps + [0] * spare, np.int32)
    return compiled.observe_rows(stacked, memory, block, numbers, np.int32(len(rows)))
