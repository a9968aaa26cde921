"""Legs of a run on a CPU whose steps are vector code: the loop over units is here, in Python."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.ensemble.kernel import Compiled, Kernel, Leg, LegResult, Saves
from dalembert.ensemble.march import Block, Moving, PathState, Status, accepted, after
from dalembert.ensemble.native import NativeMarch
from dalembert.ensemble.schedule import Schedule
from dalembert.stepping.newton import tolerance

__all__ = ["compile_native"]


@lru_cache(maxsize=128)
def compile_native(kernel: Kernel, march: NativeMarch) -> Compiled:
    """The kernel with its steps replaced by vector code, for the same legs."""
    observe = jax.jit(kernel.observe_paths)
    accept = jax.jit(partial(accepted, kernel.stepper))
    limit = tolerance(kernel.stepper.dtype)

    def run(state: PathState, block: Block, leg: Leg) -> LegResult:
        schedule = Schedule(int(leg.steps), int(leg.save_every), int(leg.chunk))
        path = [np.asarray(word) for word in block.path]
        shared = [x for leaf in jax.tree.leaves((block.dt, block.params)) for x in np.ravel(leaf)]
        seed = np.asarray(block.seed)
        is_hard = np.zeros(len(block.is_real), bool)
        rows: list[Saves] = []
        unit = int(leg.first_unit)
        while unit < int(leg.end_unit) and not is_hard.any():
            first = schedule.steps_before(unit)
            count = schedule.steps_before(unit + 1) - first
            if schedule.saves_before(unit + 1) > schedule.saves_before(unit):
                state, row = observe(state, block, jnp.int32(first))
                rows.append(row)
            if count:
                moved = _start(state)
                march(path, jax.tree.leaves(moved), seed, shared, first, count)
                if _all_are_fine(state, moved, limit):
                    state = after(state, moved, np)
                else:
                    state, hard = accept(state, moved)
                    is_hard = np.asarray(hard)
            unit += 1
        return LegResult(state, _stacked(kernel, state, block, rows), unit, is_hard)

    return Compiled("vector code (LLVM)", run, jax.jit(kernel.redo))


def _start(state: PathState) -> Moving:
    """What vector code changes in place."""
    q, p = (tuple(np.array(x) for x in row) for row in (state.q, state.p))
    counts = (state.residual, state.truncated, state.iterations)
    residual, truncated, iterations = (np.zeros(x.shape, x.dtype) for x in counts)
    return Moving(q, p, residual, truncated, iterations)


def _all_are_fine(state: PathState, moved: Moving, limit: float) -> bool:
    """Whether every path is fine, has solved its equations and is finite: as a rule."""
    with np.errstate(all="ignore"):
        size = sum(np.abs(x) for x in (*moved.q, *moved.p))
        solved = np.all(moved.residual <= limit) and np.all(np.isfinite(size))
    return bool(solved and not np.any(np.asarray(state.status) != Status.FINE))


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
