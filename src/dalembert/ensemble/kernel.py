"""The block kernel: what is done with a fixed number of paths, whichever code takes their steps.

Everything that a path does depends on its number alone, so it has the same values in whatever block
it runs and wherever the run was cut.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.ensemble.march import Block, PathState, Status, Stretch, choose, march_safe
from dalembert.ensemble.settings import Settings
from dalembert.noise import seed_words
from dalembert.precision import cast
from dalembert.statistics.observing import Observing
from dalembert.statistics.statistic import Data
from dalembert.stepping.propagator import Maps
from dalembert.stepping.residuals import Report
from dalembert.stepping.stepper import Stepper


class Saves(NamedTuple):
    """What statistics note at some save times, and kept states; first axis: saves."""

    rows: dict[str, Data]
    kept: tuple[Any, Any] | None


def told_to_all(settings: Settings, maps: Maps | None = None) -> Block:
    """What the paths of all blocks of a run share; it has no paths yet."""
    dtype = settings.dtype
    params, noise = cast((settings.system.params, settings.noise), dtype)
    shared = seed_words(settings.seed), np.asarray(settings.dt, dtype), params, noise, maps
    return Block((None, None), None, *shared)


@dataclass(frozen=True)
class Kernel:
    """A step and statistics, ready to be compiled."""

    stepper: Stepper
    observing: Observing
    needs: frozenset[str]
    keep_all: bool
    reads: Hashable = None
    """What statistics compute, and what they read from outside themselves."""

    @property
    def _kept(self) -> Any:
        return self.stepper._kept

    def step_safely(self, state: PathState, places: Any, block: Block, number: Any) -> PathState:
        """All paths, after those at some places have taken one step with the safeguarded solver."""
        some = block._replace(path=tuple(word[places] for word in block.path), is_real=None)
        before = jax.tree.map(lambda x: x[places], state)
        after = march_safe(self.stepper, before, some, Stretch(number, 1, self.needs))
        return jax.tree.map(lambda all_, new: all_.at[places].set(new), state, after)

    def observe_rows(
        self, rows: PathState, memory: Any, block: Block, steps: Any, count: Any
    ) -> tuple[PathState, Any, Saves]:
        """Observe the paths at several times, the first `count` of the rows that there are.

        Also the paths at the last of these times, and what is remembered of them. One that has
        failed stays where it was.
        """

        def observe(i: Any, now: tuple[PathState, Any, Saves]) -> tuple[PathState, Any, Saves]:
            before, memory, saves = now
            has_failed = before.status == Status.UNOBSERVABLE
            here = jax.tree.map(lambda x: x[i], rows)
            here = jax.tree.map(partial(choose, has_failed), before, here)
            here, memory, one = self.observe(here, memory, block, steps[i])

            def put(rows: Any, new: Any) -> Any:
                return lax.dynamic_update_index_in_dim(rows, new, i, 0)

            return here, memory, jax.tree.map(put, saves, one)

        first = jax.tree.map(lambda x: x[0], rows)
        room = self.empty_saves(first, memory, block, len(steps))
        return lax.fori_loop(0, count, observe, (first, memory, room))

    def empty_saves(self, state: PathState, memory: Any, block: Block, rows: int) -> Saves:
        """Room for what is noted at so many saves."""
        _, _, one = jax.eval_shape(self.observe, state, memory, block, jnp.int32(0))
        return jax.tree.map(lambda x: jnp.zeros((rows, *x.shape), x.dtype), one)

    def finish(self, state: PathState, memory: Any, block: Block) -> dict[str, Data]:
        """What statistics note of the paths at the end."""
        return self.observing.finish(memory, block.is_real & (state.status == Status.FINE))

    def remember(self, paths: int) -> Any:
        """What statistics remember of paths that have not been observed yet."""
        return jax.tree.map(np.asarray, self.observing.start(paths))

    def start(self, q: np.ndarray, p: np.ndarray, report: Report) -> PathState:
        """Paths at their initial states, shape (paths, dim), as a leg takes them.

        What their steps have to report begins with what is known before.
        """
        q, p = self.stepper.system.begin(q, p)
        paths = len(q)
        zeros, none = np.zeros(paths, np.int32), np.full(paths, -1, np.int32)
        residual = np.full(paths, report.residual, self.stepper.dtype)
        iterations = np.full(paths, report.iterations, np.int32)
        return PathState(self._enter(q), self._enter(p), zeros, none, zeros, residual, iterations)

    def _enter(self, x: np.ndarray) -> Any:
        if not self.stepper.is_scalar:
            return self.stepper.entered(x)
        return tuple(map(np.ascontiguousarray if isinstance(x, np.ndarray) else jnp.asarray, x.T))

    def leave(self, state: PathState) -> tuple[Any, Any]:
        """The states of all paths as arrays of shape (paths, dim)."""
        q, p = (self.stepper.split(x)[0] for x in (state.q, state.p))
        if not self.stepper.is_scalar:
            return q, p
        return jnp.stack(q, axis=-1), jnp.stack(p, axis=-1)

    def observe(
        self, state: PathState, memory: Any, block: Block, step: Any
    ) -> tuple[PathState, Any, Saves]:
        """Observe all paths; one whose observables are not finite has failed by now."""
        q, p = self.stepper.seen(*self.leave(state), block.dt, block.params)
        is_fine, t = state.status == Status.FINE, step.astype(self.stepper.dtype) * block.dt
        system, takes_part = self.stepper.system, block.is_real & is_fine
        memory, rows, finite = self.observing.observe(
            system, memory, q, p, block.params, takes_part, t
        )
        fails = is_fine & ~finite
        state = state._replace(
            status=jnp.where(fails, jnp.int32(Status.UNOBSERVABLE), state.status),
            failed_step=jnp.where(fails, step.astype(jnp.int32), state.failed_step),
        )
        return state, memory, Saves(rows, (q, p) if self.keep_all else None)
