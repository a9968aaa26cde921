"""Legs of a run on a CPU whose steps are vector code: the loop over units is here, in Python."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.ensemble.kernel import Compiled, Kernel, Leg, LegResult, Saves
from dalembert.ensemble.march import Block, Moving, PathState, Status, accepted
from dalembert.ensemble.native import NativeMarch
from dalembert.ensemble.schedule import Schedule

__all__ = ["compile_native"]


@lru_cache(maxsize=128)
def compile_native(kernel: Kernel, march: NativeMarch) -> Compiled:
    """The kernel with its steps replaced by vector code, for the same legs."""
    observe = jax.jit(kernel.observe_paths)
    accept = jax.jit(partial(accepted, kernel.stepper))

    def run(state: PathState, block: Block, leg: Leg) -> LegResult:
        schedule = Schedule(int(leg.steps), int(leg.save_every), int(leg.chunk))
        told = kernel.fast(block)[1]
        path = [np.asarray(word) for word in told.path]
        shared = [x for leaf in jax.tree.leaves((told.dt, told.params)) for x in np.ravel(leaf)]
        now = jax.tree.map(np.array, state)
        before = jax.tree.map(np.empty_like, now)
        march_on = march.on(path, jax.tree.leaves(_moving(now)), np.asarray(told.seed), shared)
        is_hard = np.zeros(len(block.is_real), bool)
        rows: list[Saves] = []
        unit = int(leg.first_unit)
        while unit < int(leg.end_unit) and not is_hard.any():
            first = schedule.steps_before(unit)
            count = schedule.steps_before(unit + 1) - first
            if schedule.saves_before(unit + 1) > schedule.saves_before(unit):
                observed, row = observe(now, block, jnp.int32(first))
                _copy(observed, now)
                rows.append(row)
            if count:
                _copy(now, before)
                if not march_on(first, count) or np.any(now.status != Status.FINE):
                    after, hard = accept(before, _changes(before, now))
                    _copy(after, now)
                    is_hard = np.asarray(hard)
            unit += 1
        return LegResult(now, _stacked(kernel, now, block, rows), unit, is_hard)

    return Compiled("vector code (LLVM)", run, jax.jit(kernel.redo))


def _moving(state: PathState) -> Moving:
    """What vector code changes in place."""
    return Moving(state.q, state.p, state.residual, state.truncated, state.iterations)


def _changes(before: PathState, now: PathState) -> Moving:
    """What a stretch has done, with its own count of truncated increments."""
    return _moving(now)._replace(truncated=now.truncated - before.truncated)


def _copy(source: PathState, target: PathState) -> None:
    for new, old in zip(jax.tree.leaves(source), jax.tree.leaves(target), strict=True):
        np.copyto(old, new)


def _stacked(kernel: Kernel, state: PathState, block: Block, rows: list[Saves]) -> Saves:
    """Saves of a leg as arrays; the last counts are those of the last save."""
    if not rows:
        like = jax.eval_shape(kernel.observe_paths, state, block, jnp.int32(0))[1]
        empty = jax.tree.map(lambda x: np.zeros((0, *x.shape), x.dtype), like)
        last = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), like.last_counts)
        return empty._replace(last_counts=last)
    moments = [row._replace(last_counts={}) for row in rows]
    stacked: Saves = jax.tree.map(lambda *xs: np.stack(xs), *moments)
    return stacked._replace(last_counts=jax.tree.map(np.asarray, rows[-1].last_counts))
