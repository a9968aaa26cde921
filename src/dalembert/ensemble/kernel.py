"""The block kernel: a fixed number of paths, stepped through a part of the run.

Everything that a path does depends on its number alone, so it has the same values in whatever block
it runs and wherever the run was cut. A *leg* is any number of units of one block (`schedule.py`),
and the numbers of units, steps and paths are data, so one compiled kernel serves runs of every
length.

A chunk is stepped fast first. If a stage equation was not solved, or a state is not finite, the leg
ends there, and the paths concerned take the chunk again (`retake.py`): by the same code up to the
step that has failed, and that one with the safeguarded solver, in a kernel of its own that most
runs never need.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.ensemble.march import (
    Block,
    Fast,
    PathState,
    Status,
    Stretch,
    accepted,
    choose,
    march_fast,
    march_safe,
)
from dalembert.ensemble.registers import march_in_registers
from dalembert.ensemble.schedule import SAVES_PER_LEG
from dalembert.ensemble.statistics import Histogram, Moments, count_in_bins, masked_moments
from dalembert.stepping.newton import Report
from dalembert.stepping.propagator import Propagator
from dalembert.stepping.stepper import Stepper

__all__ = ["Compiled", "Kernel", "Leg", "LegResult", "Saves", "compile_kernel"]


class Leg(NamedTuple):
    """A part of a run: its units, and the schedule that they belong to.

    The schedule begins `offset` steps after the run.
    """

    first_unit: Any
    end_unit: Any
    steps: Any
    save_every: Any
    chunk: Any
    offset: Any


class LegResult(NamedTuple):
    """What a leg leaves.

    Attributes:
        state: the paths at the end.
        saves: what was noted on the way; None if there was nothing to be.
        unit: the next unit.
        is_hard: paths that are still before the last chunk, and must take it safely.
    """

    state: PathState
    saves: "Saves | None"
    unit: Any
    is_hard: Any


class Saves(NamedTuple):
    """What is noted at the save times; first axis, but for the last counts: saves of the leg."""

    moments: dict[str, Moments]
    counts: dict[str, Any]
    kept: tuple[Any, Any] | None
    last_counts: dict[str, Any]


@dataclass(frozen=True)
class Kernel:
    """A step, observables and histograms, ready to be compiled for the legs of a run."""

    stepper: Stepper
    observe: tuple[tuple[str, Callable[..., Any]], ...]
    histograms: tuple[tuple[str, Histogram], ...]
    needs: frozenset[str]
    keep_all: bool
    in_registers: bool
    propagator: Propagator | None = None
    reads: Hashable = None
    """What observables and histograms compute, and what they read from outside themselves."""

    def __call__(self, state: PathState, block: Block, leg: Leg) -> LegResult:
        """Run the units of a leg; row i of the saves belongs to the i-th save of the leg."""
        per_save = self._units_per_save(leg)
        full, rest = leg.steps // leg.save_every, leg.steps % leg.save_every
        last_unit = full * per_save + (rest + leg.chunk - 1) // leg.chunk
        saved = (leg.first_unit + per_save - 1) // per_save

        def unfinished(now: LegResult) -> Any:
            return (now.unit < leg.end_unit) & ~jnp.any(now.is_hard)

        def unit(now: LegResult) -> LegResult:
            first, count = self._steps_of_unit(now.unit, leg)
            is_save = (now.unit % per_save == 0) | (now.unit == last_unit)
            row = (now.unit + per_save - 1) // per_save - saved
            before, saves = lax.cond(
                is_save,
                lambda state, saves: self._save(state, saves, block, first, row),
                lambda state, saves: (state, saves),
                now.state,
                now.saves,
            )
            after, is_hard = lax.cond(
                count > 0,
                lambda state: self._chunk(state, block, first, count),
                lambda state: (state, jnp.zeros_like(block.is_real)),
                before,
            )
            return LegResult(after, saves, now.unit + 1, is_hard)

        empty, nobody = self.empty_saves(state, block), jnp.zeros_like(block.is_real)
        start = LegResult(state, empty, leg.first_unit, nobody)
        return lax.while_loop(unfinished, unit, start)

    def step_safely(self, state: PathState, places: Any, block: Block, number: Any) -> PathState:
        """All paths, after those at some places have taken one step with the safeguarded solver."""
        some = block._replace(path=tuple(word[places] for word in block.path), is_real=None)
        before = jax.tree.map(lambda x: x[places], state)
        after = march_safe(self.stepper, before, some, Stretch(number, 1, self.needs))
        return jax.tree.map(lambda all_, new: all_.at[places].set(new), state, after)

    def observe_rows(
        self, rows: PathState, block: Block, steps: Any, count: Any
    ) -> tuple[PathState, Saves]:
        """Observe the paths at several times, the first `count` of the rows that there are.

        Also the paths at the last of these times. One that has failed stays where it was.
        """

        def observe(i: Any, now: tuple[PathState, Saves]) -> tuple[PathState, Saves]:
            before, saves = now
            has_failed = before.status == Status.UNOBSERVABLE
            here = jax.tree.map(lambda x: x[i], rows)
            here = jax.tree.map(partial(choose, has_failed), before, here)
            return self._save(here, saves, block, steps[i], i)

        first = jax.tree.map(lambda x: x[0], rows)
        return lax.fori_loop(0, count, observe, (first, self.empty_saves(first, block)))

    def empty_saves(self, state: PathState, block: Block) -> Saves:
        """Room for what is noted at the saves of a leg."""
        one = jax.eval_shape(lambda s: self.observe_paths(s, block, jnp.int32(0))[1], state)
        empty = jax.tree.map(lambda x: jnp.zeros((SAVES_PER_LEG, *x.shape), x.dtype), one)
        last = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one.last_counts)
        return empty._replace(last_counts=last)

    def fast(self, block: Block) -> tuple[Fast, Block]:
        """What takes fast steps, and what it is told."""
        if self.propagator is None:
            return self.stepper, block
        return self.propagator, block._replace(params=block.maps, noise=self.propagator.noise)

    def _units_per_save(self, leg: Leg) -> Any:
        return (leg.save_every + leg.chunk - 1) // leg.chunk

    def _steps_of_unit(self, unit: Any, leg: Leg) -> tuple[Any, Any]:
        """The first step of a unit, and how many it takes."""
        segment, place = jnp.divmod(unit, self._units_per_save(leg))
        first = jnp.minimum(segment * leg.save_every + place * leg.chunk, leg.steps)
        end = jnp.minimum((segment + 1) * leg.save_every, leg.steps)
        return first + leg.offset, jnp.clip(end - first, 0, leg.chunk)

    def start(self, q: np.ndarray, p: np.ndarray, report: Report) -> PathState:
        """Paths at their initial states, shape (paths, dim), as a leg takes them.

        What their steps have to report begins with what is known before.
        """
        paths = len(q)
        zeros, none = np.zeros(paths, np.int32), np.full(paths, -1, np.int32)
        residual = np.full(paths, report.residual, self.stepper.dtype)
        iterations = np.full(paths, report.iterations, np.int32)
        return PathState(self._enter(q), self._enter(p), zeros, none, zeros, residual, iterations)

    def _enter(self, x: np.ndarray) -> Any:
        if not self.stepper.is_scalar:
            return x
        return tuple(np.ascontiguousarray(component) for component in x.T)

    def leave(self, state: PathState) -> tuple[Any, Any]:
        """The states of all paths as arrays of shape (paths, dim)."""
        if not self.stepper.is_scalar:
            return state.q, state.p
        return jnp.stack(state.q, axis=-1), jnp.stack(state.p, axis=-1)

    def _chunk(
        self, state: PathState, block: Block, first: Any, count: Any
    ) -> tuple[PathState, Any]:
        """Take `count` steps; also which paths have not taken them and must do so safely."""
        stretch = Stretch(first, count, self.needs)
        if not self.stepper.is_scalar:
            return march_safe(self.stepper, state, block, stretch), jnp.zeros_like(block.is_real)
        march = march_in_registers if self.in_registers else march_fast
        stepper, told = self.fast(block)
        return accepted(self.stepper, state, march(stepper, state, told, stretch))

    def _save(
        self, state: PathState, saves: Saves, block: Block, step: Any, row: Any
    ) -> tuple[PathState, Saves]:
        state, now = self.observe_paths(state, block, step)

        def put(rows: Any, one: Any) -> Any:
            return lax.dynamic_update_index_in_dim(rows, one, row, 0)

        rows = jax.tree.map(put, saves._replace(last_counts={}), now._replace(last_counts={}))
        return state, rows._replace(last_counts=now.last_counts)

    def observe_paths(self, state: PathState, block: Block, step: Any) -> tuple[PathState, Saves]:
        """Observe all paths; one whose observables are not finite has failed by now."""
        q, p = self.leave(state)
        evaluate = self.stepper.system.evaluate

        def values(fun: Callable[..., Any]) -> Any:
            out = jax.vmap(lambda q, p: jnp.asarray(evaluate(fun, q, p, block.params)))(q, p)
            return out.astype(self.stepper.dtype)

        observed = {name: values(fun) for name, fun in self.observe}
        binned = {name: [values(axis.of) for axis in h.axes] for name, h in self.histograms}
        rows = [jnp.isfinite(x).reshape(len(x), -1) for x in jax.tree.leaves((observed, binned))]
        finite = jnp.all(jnp.concatenate(rows, axis=1), axis=1)
        fails = (state.status == Status.FINE) & ~finite
        state = state._replace(
            status=jnp.where(fails, jnp.int32(Status.UNOBSERVABLE), state.status),
            failed_step=jnp.where(fails, step.astype(jnp.int32), state.failed_step),
        )
        mask = block.is_real & (state.status == Status.FINE)
        moments = {name: masked_moments(x, mask) for name, x in observed.items()}
        every, last = (
            {
                name: count_in_bins(h, binned[name], mask)
                for name, h in self.histograms
                if h.every_save == every_save
            }
            for every_save in (True, False)
        )
        return state, Saves(moments, every, (q, p) if self.keep_all else None, last)


class Compiled(NamedTuple):
    """A kernel, compiled when it is first called, and how its steps are made."""

    code: str
    run: Callable[[PathState, Block, Leg], LegResult]
    step_safely: Callable[..., PathState]


@lru_cache(maxsize=128)
def compile_kernel(kernel: Kernel) -> Compiled:
    """The compiled kernel; equal kernels share the compiled code."""
    code = "one GPU kernel (Pallas)" if kernel.in_registers else "XLA"
    return Compiled(code, jax.jit(kernel), jax.jit(kernel.step_safely))
