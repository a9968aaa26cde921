"""The block kernel: what is done with a fixed number of paths, whichever code takes their steps.

Everything that a path does depends on its number alone, so it has the same values in whatever block
it runs and wherever the run was cut.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.ensemble.march import Block, PathState, Status, Stretch, choose, march_safe
from dalembert.ensemble.statistics import Histogram, Moments, count_in_bins, masked_moments
from dalembert.stepping.newton import Report
from dalembert.stepping.stepper import Stepper

__all__ = ["Kernel", "Saves"]


class Saves(NamedTuple):
    """What is noted at the save times; first axis, but for the last counts: saves of the leg."""

    moments: dict[str, Moments]
    counts: dict[str, Any]
    kept: tuple[Any, Any] | None
    last_counts: dict[str, Any]


@dataclass(frozen=True)
class Kernel:
    """A step, observables and histograms, ready to be compiled."""

    stepper: Stepper
    observe: tuple[tuple[str, Callable[..., Any]], ...]
    histograms: tuple[tuple[str, Histogram], ...]
    needs: frozenset[str]
    keep_all: bool
    reads: Hashable = None
    """What observables and histograms compute, and what they read from outside themselves."""

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
        return lax.fori_loop(0, count, observe, (first, self.empty_saves(first, block, len(steps))))

    def empty_saves(self, state: PathState, block: Block, rows: int) -> Saves:
        """Room for what is noted at so many saves."""
        one = jax.eval_shape(lambda s: self.observe_paths(s, block, jnp.int32(0))[1], state)
        empty = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape), x.dtype), one)
        last = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one.last_counts)
        return empty._replace(last_counts=last)

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
