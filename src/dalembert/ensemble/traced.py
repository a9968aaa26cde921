"""Simulations inside `jax.jit`, `jax.vmap` and `jax.grad`: one function of parameters and states.

The paths, their noise and their steps are those of any other run, and results agree to rounding.
The whole run is one computation in memory on one device: nothing is cut into blocks, saved or
resumed, and steps are taken by XLA with the safeguarded solver, whose derivatives are those of the
solution.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.ensemble.identity import describe_functions
from dalembert.ensemble.initial import check_state_shape, number_words, sampled_state
from dalembert.ensemble.observed import RunStatistics
from dalembert.ensemble.run import kept_states
from dalembert.ensemble.settings import Settings
from dalembert.noise import initial_key, seed_words
from dalembert.precision import cast
from dalembert.statistics.observing import Observing, at_door
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.kept_rules import with_kept_rules
from dalembert.stepping.project import only_on_constraints
from dalembert.stepping.residuals import worse
from dalembert.stepping.stepper import make_stepper


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["t", "results", "failed", "truncated", "residual", "iterations", "kept"],
    meta_fields=[],
)
@dataclass(frozen=True)
class TracedRun(RunStatistics):
    """What comes out of `simulate` inside jit, vmap or grad: the numbers of a `Run`, as JAX arrays.

    It can be returned from a transformed function. Statistics of too few paths are NaN instead of
    an error.

    Attributes:
        t: save times, shape (times,).
        results: what came of all statistics, by where they were asked for, as `observe/energy`;
            see `mean`, `histograms` and `statistics`.
        failed: number of paths that left the statistics before the end.
        truncated: number of truncated increments.
        residual: the largest relative residual of a stage equation that was met.
        iterations: the largest number of Newton steps or sweeps that was met.
        kept: states of paths, as `q` and `p`; empty without `keep=`.
    """

    t: Any
    results: Mapping[str, Any]
    failed: Any
    truncated: Any
    residual: Any
    iterations: Any
    kept: Mapping[str, Any]

    @property
    def q(self) -> Any:
        """Kept positions, as those of a `Run`."""
        return kept_states(self.kept, "q")

    @property
    def p(self) -> Any:
        """Kept momenta."""
        return kept_states(self.kept, "p")

    def _results(self, door: str) -> dict[str, Any]:
        return at_door(door, self.results)

    def _of_observables(self, name: str, least: int, formula: Any) -> dict[str, Any]:
        return {name: formula(m) for name, m in self.moments.items()}


class _Paths(NamedTuple):
    """Where paths are, and what has happened to them; first axis: paths."""

    q: Any
    p: Any
    is_fine: Any
    truncated: Any
    residual: Any
    iterations: Any
    memory: Any


def simulate_traced(settings: Settings, dtype: np.dtype) -> TracedRun:
    """The run of some settings in which parameters or initial states are traced."""
    functions, _ = describe_functions(settings.system, dtype)
    known_by = tuple(functions.items())
    stepper = make_stepper(settings.system, settings.method, dtype, known_by=known_by)
    system, params = settings.system, cast(settings.system.params, dtype)
    noise, seed = cast(settings.noise, dtype), seed_words(settings.seed)
    dt, saves = jnp.asarray(settings.dt, dtype), settings.schedule.save_steps
    words = number_words(_numbers(settings))
    observing = Observing.checked(system, dtype, settings.statistics)
    observing.check(settings.times)
    observing.shapes(settings.run_paths)

    def step(words: Any, now: _Paths, number: Any) -> _Paths:
        """One step of one path."""
        increments = noise.draw(seed, words, number, dt, system.noises, dtype)
        q, p, info = stepper.advance(now.q, now.p, dt, increments, params, Solver.BOTH)
        fine = now.is_fine & info.converged
        cut = 0 if increments.truncated is None else increments.truncated
        after = _Paths(
            q,
            p,
            fine,
            now.truncated + cut,
            worse(now.residual, info.residual),
            jnp.maximum(now.iterations, info.iterations),
            (),
        )
        # A path that has failed stays where it was, with the report of the step that failed.
        q, p = jax.tree.map(partial(jnp.where, fine), (q, p), (now.q, now.p))
        return jax.tree.map(partial(jnp.where, now.is_fine), after._replace(q=q, p=p), now)

    def until(now: _Paths, first: Any, count: int) -> _Paths:
        def together(now: _Paths, number: Any) -> tuple[_Paths, None]:
            return jax.vmap(step, in_axes=(0, 0, None))(words, now, number), None

        numbers = first + jnp.arange(count, dtype=jnp.uint32)
        moved, _ = lax.scan(with_kept_rules(together), now._replace(memory=()), numbers)
        return moved._replace(memory=now.memory)

    def observe(now: _Paths, number: Any) -> tuple[_Paths, tuple[Any, Any, Any]]:
        """Paths whose observables are not finite have failed by now; states become NaN then."""
        q, p = jax.vmap(stepper.leave)(now.q), jax.vmap(stepper.leave)(now.p)
        t = number.astype(dtype) * dt
        memory, rows, finite = observing.observe(system, now.memory, q, p, params, now.is_fine, t)
        fine = now.is_fine & finite
        q, p = (jnp.where(fine[:, None], x, jnp.nan) for x in (q, p))
        return now._replace(is_fine=fine, memory=memory), (rows, q, p)

    every = min(settings.save_every, settings.steps)

    def to_next_save(now: _Paths, first: Any) -> tuple[_Paths, Any]:
        now, row = observe(now, first)
        return until(now, first, every), row

    initial = only_on_constraints(system, *_initial_states(settings, dtype), params)
    q, p = system.begin(*initial)
    now = _Paths(
        jax.vmap(stepper.enter)(q),
        jax.vmap(stepper.enter)(p),
        jnp.ones(len(q), bool),
        jnp.zeros(len(q), jnp.int32),
        jnp.zeros(len(q), dtype),
        jnp.zeros(len(q), jnp.int32),
        observing.start(len(q)),
    )
    full = settings.steps // every
    now, rows = lax.scan(with_kept_rules(to_next_save), now, saves[:full].astype(np.uint32))
    now, row = observe(now, jnp.uint32(saves[full]))
    ends = [row]
    if full * every < settings.steps:
        now = until(now, np.uint32(saves[-2]), int(saves[-1] - saves[-2]))
        now, row = observe(now, jnp.uint32(saves[-1]))
        ends.append(row)
    rows, q, p = jax.tree.map(
        lambda many, *one: jnp.concatenate([many, jnp.stack(one)]), rows, *ends
    )
    left, t = observing.finish(now.memory, now.is_fine), settings.times
    return TracedRun(
        t,
        {key: s.result({**rows[key], **left[key]}, t) for key, s in settings.statistics},
        jnp.sum(~now.is_fine),
        jnp.sum(now.truncated),
        jnp.max(now.residual),
        jnp.max(now.iterations),
        _kept(settings.keep, system.shaped(q), system.shaped(p)),
    )


def _numbers(settings: Settings) -> np.ndarray:
    return np.asarray(range(settings.paths) if settings.only is None else settings.only, np.uint64)


def _initial_states(settings: Settings, dtype: np.dtype) -> tuple[Any, Any]:
    """Initial states of all paths, shape (paths, dim), from arrays or from a sampler."""
    numbers, system = _numbers(settings), settings.system
    if callable(settings.initial):
        sampler: Callable[..., Any] = settings.initial
        seed = seed_words(settings.seed)

        def sampled(words: Any) -> tuple[Any, Any]:
            return sampled_state(sampler, system.shape, initial_key(seed, words))

        return cast(jax.vmap(sampled)(number_words(numbers)), dtype)

    def of_paths(name: str, value: Any) -> Any:
        x = jnp.asarray(value, dtype)
        check_state_shape(name, x.shape, system.shape, settings.paths)
        states = jnp.broadcast_to(x.reshape(-1, system.dim), (settings.paths, system.dim))
        return states[numbers.astype(np.int32)]

    q, p = settings.initial
    return of_paths("q0", q), of_paths("p0", p)


def _kept(keep: str, q: Any, p: Any) -> dict[str, Any]:
    """Kept states; given with axes (times, paths, …)."""
    if keep == "nothing":
        return {}
    return {"q": q[-1], "p": p[-1]} if keep == "final" else {"q": q, "p": p}
