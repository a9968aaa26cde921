"""The block kernel: a fixed number of paths, stepped through a part of the run.

Everything that a path does depends on its number alone, so it has the same values in whatever block
it runs and wherever the run was cut. A run is a sequence of *units*: each saves first if a save is
due, and then takes up to `chunk` steps; the last one only saves. A *leg* is any number of units of
one block, and the numbers of units, steps and paths are data, so one compiled kernel serves runs of
every length.

A chunk is stepped fast first. If a stage equation was not solved, the leg ends there, and the paths
concerned take the chunk again with the safeguarded solver, in a kernel of its own that most runs
never need.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.ensemble.statistics import Histogram, Moments, count_in_bins, masked_moments
from dalembert.noise import Increments, Noise, Stretch
from dalembert.stepping.stepper import Solver, Stepper

__all__ = [
    "Block",
    "Compiled",
    "Kernel",
    "Leg",
    "LegResult",
    "PathState",
    "Saves",
    "Schedule",
    "Status",
    "compile_kernel",
]

SAVES_PER_LEG = 32
"""Room for saves in a compiled leg: few legs in a long run, little memory in a large block."""

CHUNK = 16
"""Steps whose noise is drawn at once: enough to hide the cost of a loop, and still in the cache."""


class Status(IntEnum):
    """What became of a path."""

    FINE = 0
    UNCONVERGED = 1
    NON_FINITE = 2


class Block(NamedTuple):
    """What the paths of a block are told: shape (paths,) for numbers, and what they share."""

    path: tuple[Any, Any]
    is_real: Any
    seed: Any
    dt: Any
    params: Any
    noise: Noise


class PathState(NamedTuple):
    """Where the paths of a block are, and what has happened to them; first axis: paths."""

    q: Any
    p: Any
    status: Any
    failed_step: Any
    truncated: Any
    residual: Any
    iterations: Any


class Leg(NamedTuple):
    """A part of a run: its units, and the schedule that they belong to."""

    first_unit: Any
    end_unit: Any
    steps: Any
    save_every: Any


class LegResult(NamedTuple):
    """What a leg leaves.

    Attributes:
        state: the paths at the end.
        saves: what was noted on the way.
        unit: the next unit.
        before: the paths before the last chunk.
        is_hard: paths whose last chunk must be taken again, with the safeguarded solver.
    """

    state: PathState
    saves: "Saves"
    unit: Any
    before: PathState
    is_hard: Any


class Saves(NamedTuple):
    """What is noted at the save times; first axis, but for the last counts: saves of the leg."""

    moments: dict[str, Moments]
    counts: dict[str, Any]
    kept: tuple[Any, Any] | None
    last_counts: dict[str, Any]


@dataclass(frozen=True)
class Schedule:
    """How a run of `steps` steps, saved every `save_every`, is cut into chunks and units."""

    steps: int
    save_every: int

    @property
    def chunk(self) -> int:
        """Steps per chunk, at most CHUNK: as many as leave the last chunk before a save full."""
        chunks = -(-self.save_every // CHUNK)
        return -(-self.save_every // chunks)

    @property
    def units_per_save(self) -> int:
        return -(-self.save_every // self.chunk)

    @property
    def units(self) -> int:
        full, rest = divmod(self.steps, self.save_every)
        return full * self.units_per_save + -(-rest // self.chunk) + 1

    @property
    def save_steps(self) -> np.ndarray:
        """Step numbers of the saves: the start, every `save_every` steps, and the end."""
        numbers = list(range(0, self.steps + 1, self.save_every))
        return np.asarray(numbers if numbers[-1] == self.steps else [*numbers, self.steps])

    def saves_before(self, unit: int) -> int:
        """How many saves the units before this one make."""
        last = unit == self.units
        return len(self.save_steps) if last else -(-unit // self.units_per_save)

    def steps_before(self, unit: int) -> int:
        """How many steps the units before this one take."""
        segment, place = divmod(unit, self.units_per_save)
        return min(segment * self.save_every + place * self.chunk, self.steps)

    def end_of_leg(self, unit: int, wanted: int) -> int:
        """Where a leg of about so many units that starts here must end for lack of room."""
        room = (self.saves_before(unit) + SAVES_PER_LEG - 1) * self.units_per_save
        return min(unit + max(wanted, 1), room, self.units)


@dataclass(frozen=True)
class Kernel:
    """A step, observables and histograms, ready to be compiled for the legs of a run."""

    stepper: Stepper
    observe: tuple[tuple[str, Callable[..., Any]], ...]
    histograms: tuple[tuple[str, Histogram], ...]
    needs: frozenset[str]
    keep_all: bool
    chunk: int

    def __call__(self, state: PathState, block: Block, leg: Leg) -> LegResult:
        """Run the units of a leg; row i of the saves belongs to the i-th save of the leg."""
        per_save = self._units_per_save(leg)
        full, rest = leg.steps // leg.save_every, leg.steps % leg.save_every
        last_unit = full * per_save + (rest + self.chunk - 1) // self.chunk
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
            after = lax.cond(
                count > 0,
                lambda state: self._chunk(state, block, first, count, Solver.FAST),
                lambda state: state,
                before,
            )
            is_hard = now.is_hard
            if self.stepper.has_fast_path:
                is_hard = (before.status == Status.FINE) & (after.status != Status.FINE)
            return LegResult(after, saves, now.unit + 1, before, is_hard)

        one = jax.eval_shape(lambda s: self._observe(s, block, jnp.int32(0))[1], state)
        empty = jax.tree.map(lambda x: jnp.zeros((SAVES_PER_LEG, *x.shape), x.dtype), one)
        last = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one.last_counts)
        empty = empty._replace(last_counts=last)
        start = LegResult(state, empty, leg.first_unit, state, jnp.zeros_like(block.is_real))
        return lax.while_loop(unfinished, unit, start)

    def redo(self, done: LegResult, block: Block, leg: Leg) -> PathState:
        """The paths at the end of a leg, after those that were hard have taken its last chunk."""
        first, count = self._steps_of_unit(done.unit - 1, leg)
        safe = self._chunk(done.before, block, first, count, Solver.SAFE)
        return jax.tree.map(partial(_choose, done.is_hard), safe, done.state)

    def _units_per_save(self, leg: Leg) -> Any:
        return (leg.save_every + self.chunk - 1) // self.chunk

    def _steps_of_unit(self, unit: Any, leg: Leg) -> tuple[Any, Any]:
        """The first step of a unit, and how many it takes."""
        segment, place = jnp.divmod(unit, self._units_per_save(leg))
        first = jnp.minimum(segment * leg.save_every + place * self.chunk, leg.steps)
        end = jnp.minimum((segment + 1) * leg.save_every, leg.steps)
        return first, jnp.clip(end - first, 0, self.chunk)

    def start(self, q: np.ndarray, p: np.ndarray) -> PathState:
        """Paths at their initial states, shape (paths, dim), as a leg takes them."""
        paths = len(q)
        zeros, none = np.zeros(paths, np.int32), np.full(paths, -1, np.int32)
        residual = np.zeros(paths, self.stepper.dtype)
        return PathState(self._enter(q), self._enter(p), zeros, none, zeros, residual, zeros)

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
        self, state: PathState, block: Block, first: Any, count: Any, solver: Solver
    ) -> PathState:
        """Take `count` steps, at most `chunk`."""
        step = jax.vmap(partial(self._step, solver=solver), in_axes=(0, -1, None, None, None))

        def one(state: PathState, now: tuple[Any, Increments]) -> tuple[PathState, None]:
            place, increments = now
            return step(state, increments, block, first + place + 1, place < count), None

        places = jnp.arange(self.chunk, dtype=jnp.int32)
        return lax.scan(one, state, (places, self._draw(block, first)))[0]

    def _draw(self, block: Block, first: Any) -> Increments:
        """Increments of the next `chunk` steps; the last axis is that of the paths."""
        stepper = self.stepper

        def draw(path: Any) -> Increments:
            at = Stretch(block.seed, path, first, self.chunk)
            noises = stepper.system.noises
            drawn = block.noise.draw_steps(at, block.dt, noises, stepper.dtype)
            # What is not needed must not leave here: a loop computes all that it is given.
            unused = {"dZ", "mixed"} - self.needs
            return drawn._replace(**dict.fromkeys(unused))

        return jax.vmap(draw, out_axes=-1)(block.path)

    def _step(
        self,
        state: PathState,
        increments: Increments,
        block: Block,
        number: Any,
        is_wanted: Any,
        solver: Solver,
    ) -> PathState:
        """One step of one path, the last of which has this number."""
        q, p, info = self.stepper.advance(
            state.q, state.p, block.dt, increments, block.params, solver
        )
        finite = self.stepper.is_finite(q, p)
        converged = jnp.where(info.converged, jnp.int32(Status.FINE), Status.UNCONVERGED)
        outcome = jnp.where(finite, converged, Status.NON_FINITE)
        fine = state.status == Status.FINE
        fails = fine & (outcome != Status.FINE)
        truncated = 0 if increments.truncated is None else increments.truncated
        new = PathState(
            q,
            p,
            jnp.where(fine, outcome, state.status),
            jnp.where(fails, number, state.failed_step),
            state.truncated + truncated,
            jnp.where(fine & finite, jnp.maximum(state.residual, info.residual), state.residual),
            jnp.where(fine, jnp.maximum(state.iterations, info.iterations), state.iterations),
        )
        return jax.tree.map(partial(_choose, is_wanted), new, state)

    def _save(
        self, state: PathState, saves: Saves, block: Block, step: Any, row: Any
    ) -> tuple[PathState, Saves]:
        state, now = self._observe(state, block, step)

        def put(rows: Any, one: Any) -> Any:
            return lax.dynamic_update_index_in_dim(rows, one, row, 0)

        rows = jax.tree.map(put, saves._replace(last_counts={}), now._replace(last_counts={}))
        return state, rows._replace(last_counts=now.last_counts)

    def _observe(self, state: PathState, block: Block, step: Any) -> tuple[PathState, Saves]:
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
            status=jnp.where(fails, jnp.int32(Status.NON_FINITE), state.status),
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


def _choose(condition: Any, yes: Any, no: Any) -> Any:
    """Entries of `yes` where the condition holds; it has no more axes than they have."""
    yes, no = jnp.asarray(yes), jnp.asarray(no)
    shape = condition.shape + (1,) * (yes.ndim - condition.ndim)
    return jnp.where(condition.reshape(shape), yes, no)


class Compiled(NamedTuple):
    """A kernel, compiled when it is first called."""

    run: Callable[[PathState, Block, Leg], LegResult]
    redo: Callable[[LegResult, Block, Leg], PathState]


@lru_cache(maxsize=128)
def compile_kernel(kernel: Kernel) -> Compiled:
    """The compiled kernel; equal kernels share the compiled code."""
    return Compiled(jax.jit(kernel), jax.jit(kernel.redo))
