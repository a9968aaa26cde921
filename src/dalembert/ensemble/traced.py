"""Simulations inside `jax.jit`, `jax.vmap` and `jax.grad`: one function of parameters and states.

The paths, their noise and their steps are those of any other run, and results agree to rounding.
The whole run is one computation in memory on one device: nothing is cut into blocks, saved or
resumed, and steps are taken by XLA with the safeguarded solver, whose derivatives are those of the
solution.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.ensemble.failures import Failures
from dalembert.ensemble.identity import describe_functions
from dalembert.ensemble.initial import check_state_shape, number_words, sampled_state, start_pair
from dalembert.ensemble.kernel import Kernel, Saves, told_to_all
from dalembert.ensemble.march import PathState, Status, Stretch, lost, march_safe
from dalembert.ensemble.observed import RunStatistics
from dalembert.ensemble.settings import Settings
from dalembert.kept_rules import with_kept_rules
from dalembert.methods.coefficients import counted
from dalembert.noise import initial_key, seed_words
from dalembert.precision import cast, check_real, is_traced
from dalembert.statistics.observing import Observing, at_door
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.project import only_on_constraints
from dalembert.stepping.residuals import Report
from dalembert.stepping.stepper import make_stepper


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["t", "results", "failures", "truncated", "residual", "iterations", "kept"],
    meta_fields=[],
)
@dataclass(frozen=True, repr=False)
class TracedRun(RunStatistics):
    """What comes out of `simulate` inside jit, vmap or grad: the numbers of a `Run`, as JAX arrays.

    It can be returned from a transformed function. Statistics of too few paths are NaN instead of
    an error.

    Attributes:
        t: save times, shape (times,).
        results: what came of all statistics, by where they were asked for, as `observe/energy`;
            see `mean`, `histograms` and `statistics`.
        failures: paths that left the statistics before the end, see `failed`.
        truncated: number of truncated increments.
        residual: the largest relative residual of a stage equation that was met.
        iterations: the largest number of Newton steps or sweeps that was met.
        kept: states of paths, as `q` and `p`; empty without `keep=`.
    """

    t: Any
    results: Mapping[str, Any]
    failures: Failures
    truncated: Any
    residual: Any
    iterations: Any
    kept: Mapping[str, Any]

    def _results(self, door: str) -> dict[str, Any]:
        return at_door(door, self.results)

    def _of_observables(self, name: str, least: int, formula: Any) -> dict[str, Any]:
        return {name: formula(m) for name, m in self.moments.items()}

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        numbers = [
            isinstance(x, np.ndarray | np.generic | jax.Array) for x in jax.tree.leaves(self)
        ]
        if not numbers or not all(numbers) or is_traced(self) or np.ndim(self.failed):
            rows = [(f"mean of {name}", str(np.shape(x))) for name, x in self.mean.items()]
            return "Runs inside JAX, of which here are shapes", rows
        here: TracedRun = jax.tree.map(np.asarray, self)
        title = f"Run inside JAX, seen at {counted(len(here.t), 'time')} up to t = {here.t[-1]:g}"
        rows = [(name, type(x).__name__) for name, x in self.statistics.items()]
        return title, here._rows() + rows


def simulate_traced(settings: Settings, dtype: np.dtype) -> TracedRun:
    """The run of some settings in which parameters or initial states are traced."""
    settings = replace(settings, dtype=dtype, block_paths=settings.run_paths)
    system, paths, numbers = settings.system, settings.run_paths, settings.numbers(0)
    functions, _ = describe_functions(system, dtype)
    stepper = make_stepper(system, settings.method, dtype, known_by=tuple(functions.items()))
    observing = Observing.checked(system, dtype, settings.statistics)
    observing.check(settings.times)
    observing.shapes(paths)
    needs = frozenset(settings.method.needs_for(system))
    kernel = Kernel(stepper, observing, needs, settings.keep == "all")
    block = told_to_all(settings)
    block = block._replace(path=number_words(numbers), is_real=np.ones(paths, bool))

    def unit(now: tuple[PathState, Any], first: Any, count: int) -> tuple[Any, Saves]:
        """A save, and the steps to the next one, by a loop through which derivatives go back."""
        state, memory, saves = kernel.observe(*now, block, first)
        stretch = Stretch(first, count, needs)
        return (march_safe(stepper, state, block, stretch, Solver.BOTH), memory), saves

    q, p = only_on_constraints(system, *_initial_states(settings), block.params)
    now = kernel.start(q, p, Report(0, 0.0)), observing.start(paths)
    every = min(settings.save_every, settings.steps)
    full, rest = divmod(settings.steps, every)
    steps = settings.schedule.save_steps.astype(np.int32)
    now, saves = lax.scan(with_kept_rules(partial(unit, count=every)), now, steps[:full])
    ends = []
    if rest:
        now, one = unit(now, jnp.asarray(steps[full]), rest)
        ends.append(one)
    state, memory, one = kernel.observe(now[0], now[1], block, jnp.asarray(steps[-1]))
    rows, kept = jax.tree.map(
        lambda many, *one: jnp.concatenate([many, jnp.stack(one)]), saves, *ends, one
    )
    if settings.keep == "final":
        steps, kept = steps[-1], kernel.leave(state)
    left, t = kernel.finish(state, memory, block), settings.times
    is_lost = lost(state, steps)[..., None]
    states = (system.shaped(jnp.where(is_lost, jnp.nan, x)) for x in kept or ())
    return TracedRun(
        t,
        {key: s.result({**rows[key], **left[key]}, t) for key, s in settings.statistics},
        _failures(state, numbers, settings.dt),
        jnp.sum(state.truncated),
        jnp.max(state.residual),
        jnp.max(state.iterations),
        dict(zip("qp", states, strict=False)),
    )


def _failures(state: PathState, numbers: np.ndarray, dt: float) -> Failures:
    """What has become of the paths; the first that failed is −1, at NaN, where none has.

    Its number is left out where JAX has no integers for it here.
    """
    counts: dict[Any, Any] = {kind: jnp.sum(state.status == kind) for kind in Status}
    steps = jnp.where(state.status == Status.FINE, jnp.iinfo(np.int32).max, state.failed_step)
    first, kind = jnp.argmin(steps), jnp.result_type(int)
    has_failed, when = state.status[first] != Status.FINE, steps[first].astype(state.residual.dtype)
    path: Any = None
    if numbers.max() <= jnp.iinfo(kind).max:
        path = jnp.where(has_failed, jnp.asarray(numbers.astype(kind))[first], -1)
    time: Any = jnp.where(has_failed, when * dt, jnp.nan)
    stages = counts[Status.UNCONVERGED], counts[Status.NON_FINITE]
    return Failures(*stages, path, time, counts[Status.UNOBSERVABLE])


def _initial_states(settings: Settings) -> tuple[Any, Any]:
    """Initial states of all paths, shape (paths, dim), from arrays or from a sampler."""
    numbers, system, dtype = settings.numbers(0), settings.system, settings.dtype
    if callable(settings.initial):

        def sampled(words: Any) -> tuple[Any, Any]:
            key = initial_key(seed_words(settings.seed), words)
            return sampled_state(settings.initial, system.shape, key)

        return cast(jax.vmap(sampled)(number_words(numbers)), dtype)

    def of_paths(name: str, value: Any) -> Any:
        x = jnp.asarray(value)
        check_real(name, x)
        check_state_shape(name, x.shape, system.shape, settings.paths)
        states = jnp.broadcast_to(x.reshape(-1, system.dim), (settings.paths, system.dim))
        return states[numbers.astype(np.int32)]

    q, p = start_pair(settings.initial)
    return cast((of_paths("q0", q), of_paths("p0", p)), dtype)
