"""Simulations inside `jax.jit`, `jax.vmap` and `jax.grad`: one function of parameters and states.

The paths, their noise and their steps are those of any other run, and results agree to rounding.
The whole run is one computation in memory on one device: nothing is cut into blocks, saved or
resumed, and steps are taken by XLA with the safeguarded solver, whose derivatives are those of the
solution.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.ensemble.identity import describe_functions
from dalembert.ensemble.initial import check_state_shape, path_words, sampled_state
from dalembert.ensemble.settings import Settings
from dalembert.ensemble.statistics import Moments, masked_moments
from dalembert.noise import initial_key, seed_words
from dalembert.precision import cast
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.stepper import make_stepper

__all__ = ["TracedRun", "simulate_traced"]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["t", "moments", "failed", "residual", "iterations", "q", "p"],
    meta_fields=[],
)
@dataclass(frozen=True)
class TracedRun:
    """What comes out of `simulate` inside jit, vmap or grad: the numbers of a `Run`, as JAX arrays.

    It can be returned from a transformed function. Statistics of fewer than two paths are NaN
    instead of an error.

    Attributes:
        t: save times, shape (times,).
        moments: count, mean, sum of squared deviations, minimum and maximum per observable.
        failed: number of paths that left the statistics before the end.
        residual: the largest relative residual of a stage equation that was met.
        iterations: the largest number of Newton iterations that was met.
        q: kept positions, (paths, dim) for keep="final", (times, paths, dim) for keep="all".
        p: kept momenta, likewise. From its failure on, a path is NaN in both.
    """

    t: Any
    moments: Mapping[str, Moments]
    failed: Any
    residual: Any
    iterations: Any
    q: Any
    p: Any

    @property
    def mean(self) -> dict[str, Any]:
        """Sample means, shape (times, …) for each observable."""
        return {name: m.mean for name, m in self.moments.items()}

    @property
    def variance(self) -> dict[str, Any]:
        """Unbiased sample variances."""
        return {name: m.variance for name, m in self.moments.items()}

    @property
    def stderr(self) -> dict[str, Any]:
        """Standard errors of the means."""
        return {name: jnp.sqrt(m.variance / m.column) for name, m in self.moments.items()}


class _Path(NamedTuple):
    """Where one path is, and what has happened to it."""

    q: Any
    p: Any
    is_fine: Any
    residual: Any
    iterations: Any


def simulate_traced(settings: Settings, dtype: np.dtype) -> TracedRun:
    """The run of some settings in which parameters or initial states are traced."""
    functions, _ = describe_functions(settings.system, dtype)
    known_by = tuple(functions.items())
    stepper = make_stepper(settings.system, settings.method, dtype, known_by=known_by)
    system, params = settings.system, cast(settings.system.params, dtype)
    noise, seed = cast(settings.noise, dtype), seed_words(settings.seed)
    dt, saves = jnp.asarray(settings.dt, dtype), settings.schedule.save_steps

    def step(words: Any, now: _Path, number: Any) -> _Path:
        increments = noise.draw(seed, words, number, dt, system.noises, dtype)
        q, p, info = stepper.advance(now.q, now.p, dt, increments, params, Solver.BOTH)
        fine = now.is_fine & info.converged
        # A path that has failed stays where it was.
        q, p = jax.tree.map(partial(jnp.where, fine), (q, p), (now.q, now.p))
        residual = jnp.where(fine, jnp.maximum(now.residual, info.residual), now.residual)
        return _Path(q, p, fine, residual, jnp.maximum(now.iterations, info.iterations))

    def observe(now: _Path) -> tuple[_Path, tuple[dict[str, Any], Any, Any, Any]]:
        """A path whose observables are not finite has failed by now; states become NaN then."""
        q, p = stepper.leave(now.q), stepper.leave(now.p)
        values = {name: system.evaluate(fun, q, p, params) for name, fun in settings.observe}
        values = jax.tree.map(lambda x: jnp.asarray(x, dtype), values)
        finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(values)]
        now = now._replace(is_fine=reduce(jnp.logical_and, finite, now.is_fine))
        q, p = (jnp.where(now.is_fine, x, jnp.nan) for x in (q, p))
        return now, (values, q, p, now.is_fine)

    def path(words: Any, q: Any, p: Any) -> tuple[Any, _Path]:
        start = _Path(
            stepper.enter(q),
            stepper.enter(p),
            jnp.array(True),
            jnp.zeros((), dtype),
            jnp.int32(0),
        )

        def until(now: _Path, first: Any, count: int) -> _Path:
            numbers = first + jnp.arange(count, dtype=jnp.uint32)
            return lax.scan(lambda now, n: (step(words, now, n), None), now, numbers)[0]

        def to_next_save(now: _Path, first: Any) -> tuple[_Path, Any]:
            now, row = observe(now)
            return until(now, first, settings.save_every), row

        full = settings.steps // settings.save_every
        firsts = (settings.save_every * np.arange(full)).astype(np.uint32)
        now, rows = lax.scan(to_next_save, start, firsts)
        now, row = observe(now)
        ends = [row]
        if full * settings.save_every < settings.steps:
            now = until(now, np.uint32(saves[-2]), int(saves[-1] - saves[-2]))
            now, row = observe(now)
            ends.append(row)
        rows = jax.tree.map(lambda many, *one: jnp.concatenate([many, jnp.stack(one)]), rows, *ends)
        return rows, now

    words, starts = path_words(_numbers(settings)), _initial_states(settings, dtype)
    (values, q, p, fine), end = jax.vmap(path)(words, *starts)
    by_time = jax.vmap(masked_moments, in_axes=(1, 1))
    return TracedRun(
        saves * settings.dt,
        {name: _of_somebody(by_time(x, fine)) for name, x in values.items()},
        jnp.sum(~end.is_fine),
        jnp.max(end.residual),
        jnp.max(end.iterations),
        *_kept(settings.keep, q, p),
    )


def _of_somebody(moments: Moments) -> Moments:
    """Moments that are NaN where no path is left."""
    nobody = moments.column == 0
    nan = jnp.asarray(jnp.nan, moments.mean.dtype)
    return Moments(moments.count, *(jnp.where(nobody, nan, x) for x in moments[1:]))


def _numbers(settings: Settings) -> np.ndarray:
    return np.asarray(range(settings.paths) if settings.only is None else settings.only, np.uint64)


def _initial_states(settings: Settings, dtype: np.dtype) -> tuple[Any, Any]:
    """Initial states of all paths, shape (paths, dim), from arrays or from a sampler."""
    numbers, dim = _numbers(settings), settings.system.dim
    if callable(settings.initial):
        sampler: Callable[..., Any] = settings.initial
        seed = seed_words(settings.seed)

        def sampled(words: Any) -> tuple[Any, Any]:
            return sampled_state(sampler, dim, initial_key(seed, words))

        return cast(jax.vmap(sampled)(path_words(numbers)), dtype)

    def of_paths(name: str, value: Any) -> Any:
        x = jnp.asarray(value, dtype)
        check_state_shape(name, x.shape, dim, settings.paths)
        return jnp.broadcast_to(x, (settings.paths, dim))[numbers.astype(np.int32)]

    q, p = settings.initial
    return of_paths("q0", q), of_paths("p0", p)


def _kept(keep: str, q: Any, p: Any) -> tuple[Any, Any]:
    """Kept states; given with axes (paths, times, dim)."""
    if keep == "nothing":
        return None, None
    if keep == "final":
        return q[:, -1], p[:, -1]
    return jnp.swapaxes(q, 0, 1), jnp.swapaxes(p, 0, 1)
