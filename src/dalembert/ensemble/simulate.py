"""Ensembles: what is asked for, checked and compiled."""

import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from dalembert.ensemble.checkpoint import Checkpoint, CheckpointFile
from dalembert.ensemble.executors import Remote, find_team
from dalembert.ensemble.job import Job
from dalembert.ensemble.progress import telling
from dalembert.ensemble.ready import Ready, make_ready, ready_again
from dalembert.ensemble.remote import make_payload
from dalembert.ensemble.run import Run
from dalembert.ensemble.settings import Settings, check_choice, make_settings, whole
from dalembert.ensemble.traced import simulate_traced
from dalembert.ensemble.until import Until
from dalembert.methods import Method
from dalembert.noise import Noise
from dalembert.precision import is_traced, traced_dtype
from dalembert.spelling import says_its_words
from dalembert.statistics import Histogram, Statistic
from dalembert.stepping.event import Event
from dalembert.system import System


@says_its_words
def simulate(
    system: System,
    method: Method,
    initial: Any,
    *,
    dt: float,
    t_end: float,
    paths: int = 1,
    seed: int = 0,
    observe: Mapping[str, Callable[..., Any]] | None = None,
    histograms: Mapping[str, Histogram] | None = None,
    statistics: Mapping[str, Statistic] | None = None,
    save_every: int = 1,
    noise: Noise | None = None,
    keep: str = "nothing",
    only: Any = None,
    checkpoint: Any = None,
    on_failure: str = "warn",
    progress: bool = True,
    workers: int | None = None,
    engine: Any = None,
    shard: bool = False,
    executor: Any = None,
    dtype: Any = np.float64,
    stop: Callable[..., Any] | Event | None = None,
) -> Run:
    """Simulate an ensemble of independent paths and collect statistics of observables.

    The paths run in blocks on all cores or all devices of this machine, after `da.connect` of
    all machines, or on the workers of an executor. On one kind of device the result is the same to
    the last bit however the work was shared or interrupted.

    Args:
        system: what to simulate.
        method: e.g. `da.midpoint()`.
        initial: `(q0, p0)`, each of the shape of the system, such as (dim,), for all paths alike,
            or with an axis of paths in front; or a
            function `sampler(key) -> (q, p)` of a `jax.random` key, called once per path, such as
            `da.rejection_sampler(…)`.
        dt: step size, > 0, in the units of time of the system.
        t_end: final time, a whole number of steps.
        paths: number of paths.
        seed: the run is a pure function of it (and of everything else here).
        observe: functions of (q, p), or (q, p, params) if the system has params, by name. They may
            return arrays. By default the energy `H`.
        histograms: `da.Histogram` by name.
        statistics: any other `da.Statistic` by name, e.g. `{"cov": da.Covariance(…)}`; what comes
            of them is in `run.statistics`.
        save_every: statistics are kept at the start, every so many steps, and at the end.
        noise: kind of noise; by default what the method wants, `da.Gaussian()` for mean-square
            methods and `da.ThreePoint()` for weak ones.
        keep: "nothing", "final" or "all": which states to return as `run.q`, `run.p`.
        only: numbers of the paths to run, a number or several; by default all. A path that is run
            alone takes the same steps, to the last bit, as among the others.
        checkpoint: a file in which the run saves itself every 30 seconds, and from which the same
            call goes on after an interruption, or with a later `t_end` from where it ended; or a
            `da.Checkpoint` with other intervals.
        on_failure: "warn" or "raise" if a path fails (overflows, or has a stage equation without
            a solution). Failed paths leave the statistics from then on and are counted.
        progress: show progress of longer runs in a terminal or a notebook, and once a minute in
            files and pipes.
        workers: blocks to run at a time; by default one per core, or two per device.
        engine: the name of the code that takes the steps, or an object (see the page on engines);
            by default the fastest that can, see `run.provenance["code"]` and `["refused_engines"]`.
        shard: spread every path over all devices of all processes, for states larger than one of
            them; by default blocks of paths are shared out instead. Results agree with those of
            one device to rounding, and to the last bit on the same number of devices.
        executor: where the blocks are run instead of here, anything like a
            `concurrent.futures.Executor`: a client of Dask, a pool of loky or MPI. Lost blocks are
            run again, and the result has the same bits. `workers` are then those of each task.
        dtype: float64 (default) or float32.
        stop: a function of (q, p), or (q, p, params), that changes its sign where a path ends. The
            path stays there: what is observed from then on, and kept, is its state at the event,
            found between two steps by interpolation. `run.stopped` has times, survival and
            observables at the event, and how many paths began on which side. It is finite wherever
            paths come, and zero on no region; a path that starts where it is zero, or on either
            side, stops when its sign changes after the first step. `da.Event(f, "up")` counts only
            changes to above zero, and refuses paths that begin there.

    Returns:
        A `Run`: `run.t`, `run.mean["energy"]`, `run.stderr["energy"]`, `run.failed`, … Inside
        `jax.jit`, `jax.vmap` or `jax.grad`, with traced parameters or initial states, a
        `TracedRun` with the same numbers as JAX arrays, in the type of what is traced.
    """
    began = time.perf_counter()
    until = None if stop is None else Until.checked(system, method, initial, stop, dt, t_end, dtype)
    what = {
        "system": system,
        "method": method,
        "initial": initial,
        "observe": observe,
        "histograms": histograms,
        "statistics": statistics,
    }
    if until is not None:
        what = until.arguments(method, initial, observe, histograms, statistics)
    settings = make_settings(
        **what,
        dt=dt,
        t_end=t_end,
        paths=paths,
        only=only,
        seed=seed,
        save_every=save_every,
        noise=noise,
        keep=keep,
        dtype=dtype,
    )
    _warn_of_wrong_limit(system, method)
    given = (system.params, settings.noise, None if callable(initial) else initial)
    if is_traced(given):
        usual = None if on_failure == "warn" else on_failure
        unusual = {"checkpoint": checkpoint, "on_failure": usual, "shard": shard or None}
        unusual |= {"executor": executor, "workers": workers, "engine": engine}
        for name, value in unusual.items():
            if value is not None:
                raise ValueError(f"{name} cannot be had inside jit, vmap or grad: leave it out.")
        traced: Any = simulate_traced(settings, traced_dtype(given, settings.dtype))
        return traced
    how = (checkpoint, on_failure, progress, workers, engine, shard, executor)
    run = prepare(settings, *how, began=began).run()
    return run if until is None else until.told(run)


def prepare(
    settings: Settings,
    checkpoint: Any = None,
    on_failure: str = "warn",
    progress: bool = True,
    workers: int | None = None,
    engine: Any = None,
    shard: bool = False,
    executor: Any = None,
    began: float | None = None,
    like: Ready | None = None,
) -> Job:
    """A run that is ready to begin; for the arguments see `simulate`, which `began` then.

    One `like` another differs from it in numbers alone (`ready_again`).
    """
    began = time.perf_counter() if began is None else began
    check_choice("on_failure", on_failure, ("warn", "raise"))
    if workers is not None:
        whole("workers", workers, 1)
    options = _check_checkpoint(checkpoint)
    ends = False if options is None else options.ends
    team = find_team(executor)
    is_compared = options is not None or team is not None
    if like is None or options is not None:
        with telling(settings.title, progress and jax.process_index() == 0):
            ready = make_ready(settings, is_compared, workers, engine, shard, ends)
    else:
        ready = ready_again(like, settings, engine)
    file = None
    if options is not None:
        ready.description.check_complete()
        file = CheckpointFile(options, ready.identity, jax.process_index())
    remote = None if team is None else Remote(team, make_payload(ready, workers, engine, shard))
    return Job(ready, began, file, on_failure, progress, remote)


def _warn_of_wrong_limit(system: System, method: Method) -> None:
    """Say that smaller steps would not help."""
    from dalembert.theory.limits import WRONG, limit, why_wrong

    if limit(system, method) == "wrong":
        text = f"{method.name} {WRONG} of {system.name!r}: {why_wrong(system, method)}."
        warnings.warn(f"{text} See da.certify(method).", RuntimeWarning, stacklevel=4)


def _check_checkpoint(checkpoint: Any) -> Checkpoint | None:
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if not isinstance(checkpoint, str | os.PathLike):
        raise TypeError(
            f"checkpoint must be the name of a file or a da.Checkpoint, not {checkpoint!r}."
        )
    return Checkpoint(checkpoint)
