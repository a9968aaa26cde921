"""Legs of a run on a CPU whose steps are vector code: the loop over units is here, in Python."""

from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from dalembert.ensemble.kernel import Compiled, Kernel, Leg, LegResult
from dalembert.ensemble.march import Block, Moving, PathState, Status, accepted
from dalembert.ensemble.native import NativeMarch
from dalembert.ensemble.schedule import SAVES_PER_LEG, Schedule

__all__ = ["compile_native"]


@lru_cache(maxsize=128)
def compile_native(kernel: Kernel, march: NativeMarch) -> Compiled:
    """The kernel with its steps replaced by vector code, for the same legs."""
    observe_rows = jax.jit(kernel.observe_rows)
    accept = jax.jit(partial(accepted, kernel.stepper))

    def run(state: PathState, block: Block, leg: Leg) -> LegResult:
        schedule = Schedule(int(leg.steps), int(leg.save_every), int(leg.chunk))
        told = kernel.fast(block)[1]
        path = [np.asarray(word) for word in told.path]
        shared = [x for leaf in jax.tree.leaves((told.dt, told.params)) for x in np.ravel(leaf)]
        now = jax.tree.map(np.array, state)
        before = jax.tree.map(np.empty_like, now)
        march_on = march.on(path, jax.tree.leaves(_moving(now)), np.asarray(told.seed), shared)
        rows = _Rows(now)
        all_fine = not np.any(now.status != Status.FINE)
        is_hard = np.zeros(len(block.is_real), bool)
        unit, end, offset = int(leg.first_unit), int(leg.end_unit), int(leg.offset)
        while unit < end and not is_hard.any():
            first, count = schedule.stretch(unit)
            if schedule.is_save(unit):
                rows.add(now, first)
            if count:
                _copy(now, before)
                if not march_on(offset + first, count) or not all_fine:
                    after, hard = accept(before, _changes(before, now))
                    _copy(after, now)
                    is_hard = np.asarray(hard)
            unit += 1
        saves = None
        if rows.count or unit == int(leg.first_unit):  # a leg of no units is there to compile
            last, saves = observe_rows(rows.states, block, rows.steps, np.int32(rows.count))
            saves = jax.tree.map(np.asarray, saves)
        if rows.count:
            _take_over(last, now)
            is_hard = is_hard & (now.status == Status.FINE)
        return LegResult(now, saves, unit, is_hard)

    return Compiled("vector code (LLVM)", run, jax.jit(kernel.step_safely))


class _Rows:
    """States at the saves of a leg, to be observed together at its end: calls of XLA take time."""

    def __init__(self, like: PathState) -> None:
        self.states = jax.tree.map(lambda x: np.zeros((SAVES_PER_LEG, *x.shape), x.dtype), like)
        self.steps, self.count = np.zeros(SAVES_PER_LEG, np.int32), 0

    def add(self, state: PathState, step: int) -> None:
        for room, x in zip(jax.tree.leaves(self.states), jax.tree.leaves(state), strict=True):
            room[self.count] = x
        self.steps[self.count] = step
        self.count += 1


def _take_over(observed: PathState, now: PathState) -> None:
    """Paths that cannot be observed have stayed where that was found out."""
    lost = np.asarray(observed.status) == Status.UNOBSERVABLE
    for new, old in zip(jax.tree.leaves(observed), jax.tree.leaves(now), strict=True):
        np.copyto(old, new, where=lost)


def _moving(state: PathState) -> Moving:
    """What vector code changes in place."""
    return Moving(state.q, state.p, state.residual, state.truncated, state.iterations)


def _changes(before: PathState, now: PathState) -> Moving:
    """What a stretch has done, with its own count of truncated increments."""
    return _moving(now)._replace(truncated=now.truncated - before.truncated)


def _copy(source: Any, target: Any) -> None:
    for new, old in zip(jax.tree.leaves(source), jax.tree.leaves(target), strict=True):
        np.copyto(old, new)
