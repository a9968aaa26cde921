"""The block kernel: a fixed number of paths, scanned over time, observed on the way.

Everything that a path does depends on its number alone, so a path has the same values in whatever
block it runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.ensemble.statistics import Moments, masked_moments
from dalembert.noise import Noise
from dalembert.stepping.stepper import Stepper

__all__ = ["BlockResult", "Kernel", "Status"]


class Status(IntEnum):
    """What became of a path."""

    FINE = 0
    UNCONVERGED = 1
    NON_FINITE = 2


class BlockInput(NamedTuple):
    """What a block is told: shapes (paths,) and (paths, dim) for the states."""

    seed: Any
    path: tuple[Any, Any]
    is_real: Any
    q: Any
    p: Any
    dt: Any
    params: Any
    noise: Noise


class BlockResult(NamedTuple):
    """What leaves a block; the first axis of moments and kept states is time."""

    moments: dict[str, Moments]
    status: Any
    failed_step: Any
    truncated: Any
    residual: Any
    iterations: Any
    kept: tuple[Any, Any] | None


class _Path(NamedTuple):
    """The state of one path while it runs."""

    q: Any
    p: Any
    status: Any
    failed_step: Any
    truncated: Any
    residual: Any
    iterations: Any


@dataclass(frozen=True)
class Kernel:
    """A step, observables and a schedule of saves, ready to be compiled."""

    stepper: Stepper
    observe: tuple[tuple[str, Callable[..., Any]], ...]
    steps: int
    save_every: int
    keep: str

    def __call__(self, block: BlockInput) -> BlockResult:
        """Run one block from the initial states to the end."""
        state = jax.vmap(self._start)(block.q, block.p)
        full, rest = divmod(self.steps, self.save_every)
        state, first = self._save(state, block, jnp.int32(0))

        def segment(state: _Path, number: Any) -> tuple[_Path, Any]:
            state = self._run(state, block, number * self.save_every, self.save_every)
            return self._save(state, block, ((number + 1) * self.save_every).astype(jnp.int32))

        state, saves = lax.scan(segment, state, jnp.arange(full, dtype=jnp.uint32))
        saves = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, saves)
        if rest:
            state = self._run(state, block, jnp.uint32(full * self.save_every), rest)
            state, last = self._save(state, block, jnp.int32(self.steps))
            saves = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), saves, last)
        moments, kept = saves
        if self.keep == "final":
            kept = self._arrays(state)
        real = block.is_real
        return BlockResult(
            moments,
            jnp.where(real, state.status, jnp.int32(Status.FINE)),
            state.failed_step,
            jnp.sum(jnp.where(real, state.truncated, jnp.int32(0))),
            jnp.max(jnp.where(real, state.residual, jnp.zeros_like(state.residual))),
            jnp.max(jnp.where(real, state.iterations, jnp.int32(0))),
            kept,
        )

    def _start(self, q: Any, p: Any) -> _Path:
        zero, none = jnp.int32(0), jnp.int32(-1)
        residual = jnp.zeros((), self.stepper.dtype)
        return _Path(self.stepper.enter(q), self.stepper.enter(p), zero, none, zero, residual, zero)

    def _run(self, state: _Path, block: BlockInput, first: Any, steps: int) -> _Path:
        def one(state: _Path, number: Any) -> tuple[_Path, None]:
            step = jax.vmap(lambda s, path: self._step(s, path, block, number))
            return step(state, block.path), None

        return lax.scan(one, state, first + jnp.arange(steps, dtype=jnp.uint32))[0]

    def _step(self, state: _Path, path: Any, block: BlockInput, number: Any) -> _Path:
        stepper = self.stepper
        increments = block.noise.draw(
            block.seed, path, number, block.dt, stepper.system.noises, stepper.dtype
        )
        q, p, info = stepper.advance(state.q, state.p, block.dt, increments, block.params)
        parts = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((q, p))]
        finite = jnp.all(jnp.stack(parts))
        converged = jnp.where(info.converged, jnp.int32(Status.FINE), Status.UNCONVERGED)
        outcome = jnp.where(finite, converged, Status.NON_FINITE)
        fine = state.status == Status.FINE
        fails = fine & (outcome != Status.FINE)
        truncated = 0 if increments.truncated is None else increments.truncated
        return _Path(
            q,
            p,
            jnp.where(fine, outcome, state.status),
            jnp.where(fails, number.astype(jnp.int32) + 1, state.failed_step),
            state.truncated + truncated,
            jnp.where(fine & finite, jnp.maximum(state.residual, info.residual), state.residual),
            jnp.where(fine, jnp.maximum(state.iterations, info.iterations), state.iterations),
        )

    def _save(self, state: _Path, block: BlockInput, number: Any) -> tuple[_Path, Any]:
        """Observe all paths; one whose observables are not finite has failed by now."""
        q, p = self._arrays(state)
        evaluate = self.stepper.system.evaluate

        def values(fun: Callable[..., Any]) -> Any:
            out = jax.vmap(lambda q, p: jnp.asarray(evaluate(fun, q, p, block.params)))(q, p)
            return out.astype(self.stepper.dtype)

        observed = {name: values(fun) for name, fun in self.observe}
        rows = [jnp.isfinite(x).reshape(len(x), -1) for x in observed.values()]
        finite = jnp.all(jnp.concatenate(rows, axis=1), axis=1)
        fails = (state.status == Status.FINE) & ~finite
        state = state._replace(
            status=jnp.where(fails, jnp.int32(Status.NON_FINITE), state.status),
            failed_step=jnp.where(fails, number, state.failed_step),
        )
        mask = block.is_real & (state.status == Status.FINE)
        moments = {name: masked_moments(x, mask) for name, x in observed.items()}
        return state, (moments, (q, p) if self.keep == "all" else None)

    def _arrays(self, state: _Path) -> tuple[Any, Any]:
        leave = jax.vmap(self.stepper.leave)
        return leave(state.q), leave(state.p)

    def times(self, dt: float) -> np.ndarray:
        """The times of the saves: the start, every `save_every` steps, and the end."""
        numbers = list(range(0, self.steps + 1, self.save_every))
        if numbers[-1] != self.steps:
            numbers.append(self.steps)
        return np.asarray(numbers) * dt


def check_observables(stepper: Stepper, observe: Mapping[str, Callable[..., Any]]) -> None:
    """Refuse an observable that cannot be evaluated, before anything is compiled."""
    system = stepper.system
    z = jax.ShapeDtypeStruct((system.dim,), stepper.dtype)
    for name, fun in observe.items():
        if not callable(fun):
            raise TypeError(f"observe[{name!r}] must be a function of (q, p), not {fun!r}.")
        try:
            jax.eval_shape(
                lambda q, p, params, fun=fun: jnp.asarray(system.evaluate(fun, q, p, params)),
                z,
                z,
                system.params,
            )
        except Exception as error:
            raise TypeError(f"observe[{name!r}] cannot be evaluated: {error}") from error
