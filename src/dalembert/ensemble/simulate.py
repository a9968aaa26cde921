"""Ensembles: all paths of a simulation, block by block, and what they amount to."""

import os
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from dalembert.ensemble.blocks import BlockResult, Stopped, Work, run_blocks, worker_count
from dalembert.ensemble.checkpoint import Checkpoint, CheckpointFile, Progress
from dalembert.ensemble.initial import initial_states
from dalembert.ensemble.kernel import Compiled, Kernel, compile_kernel
from dalembert.ensemble.processes import exchange, largest
from dalembert.ensemble.progress import ProgressBar
from dalembert.ensemble.registers import can_use_registers
from dalembert.ensemble.run import Failures, Run
from dalembert.ensemble.settings import Settings, check_choice, make_settings, whole
from dalembert.ensemble.statistics import Histogram
from dalembert.ensemble.tally import Tally
from dalembert.ensemble.traced import simulate_traced
from dalembert.functions import check_function
from dalembert.noise import Noise
from dalembert.precision import cast, is_traced, traced_dtype
from dalembert.stepping.newton import Report
from dalembert.stepping.propagator import Maps, Propagator, make_maps
from dalembert.stepping.stepper import make_stepper
from dalembert.system import System

__all__ = ["Interrupted", "Job", "prepare", "simulate"]

DENSE_SAVES = 2**18
"""Operations between saves of a block below which a loop in Python would take the time."""

ROUND_SECONDS = 5.0
"""About how long processes work before they exchange results."""


class Interrupted(KeyboardInterrupt):
    """A run was stopped by Ctrl-C; its message says what was done and how to go on."""


def simulate(
    system: System,
    method: Any,
    initial: Any,
    *,
    dt: float,
    t_end: float,
    paths: int = 1,
    seed: int = 0,
    observe: Mapping[str, Callable[..., Any]] | None = None,
    histograms: Mapping[str, Histogram] | None = None,
    save_every: int = 1,
    noise: Noise | None = None,
    keep: str = "nothing",
    only: Any = None,
    checkpoint: Any = None,
    on_failure: str = "warn",
    progress: bool = True,
    workers: int | None = None,
    dtype: Any = np.float64,
) -> Run:
    """Simulate an ensemble of independent paths and collect statistics of observables.

    The paths run in blocks on all cores or all devices of this machine, and, after `da.connect`,
    of all machines. On one kind of device the result is the same to the last bit however the work
    was shared or interrupted.

    Args:
        system: what to simulate.
        method: a tableau, e.g. `da.midpoint()`.
        initial: `(q0, p0)`, each of shape (dim,) for all paths alike or (paths, dim); or a
            function `sampler(key) -> (q, p)` of a `jax.random` key, called once per path, such as
            `da.rejection_sampler(…)`.
        dt: step size, > 0, in the units of time of the system.
        t_end: final time, a whole number of steps.
        paths: number of paths.
        seed: the run is a pure function of it (and of everything else here).
        observe: functions of (q, p), or (q, p, params) if the system has params, by name. They may
            return arrays. By default the energy `H`.
        histograms: `da.Histogram` by name.
        save_every: statistics are kept at the start, every so many steps, and at the end.
        noise: kind of noise; by default what the method wants, `da.Gaussian()` for mean-square
            methods and `da.ThreePoint()` for weak ones.
        keep: "nothing", "final" or "all": which states to return as `run.q`, `run.p`.
        only: numbers of the paths to run, a number or several; by default all. A path that is run
            alone takes the same steps, to the last bit, as among the others.
        checkpoint: a file in which the run saves itself every 30 seconds, and from which the same
            call goes on after an interruption; or a `da.Checkpoint` with other intervals.
        on_failure: "warn" or "raise" if a path fails (overflows, or has a stage equation without
            a solution). Failed paths leave the statistics from then on and are counted.
        progress: show progress of longer runs in a terminal or a notebook.
        workers: blocks to run at a time; by default one per core, or two per device.
        dtype: float64 (default) or float32.

    Returns:
        A `Run`: `run.t`, `run.mean["energy"]`, `run.stderr["energy"]`, `run.failed`, … Inside
        `jax.jit`, `jax.vmap` or `jax.grad`, with traced parameters or initial states, a
        `TracedRun` with the same numbers as JAX arrays, in the type of what is traced.
    """
    settings = make_settings(
        system,
        method,
        initial,
        dt=dt,
        t_end=t_end,
        paths=paths,
        only=only,
        seed=seed,
        observe=observe,
        histograms=histograms,
        save_every=save_every,
        noise=noise,
        keep=keep,
        dtype=dtype,
    )
    given = (system.params, settings.noise, None if callable(initial) else initial)
    if is_traced(given):
        unusual = {"histograms": histograms, "checkpoint": checkpoint}
        unusual["on_failure"] = None if on_failure == "warn" else on_failure
        for name, value in unusual.items():
            if value is not None:
                raise ValueError(f"{name} cannot be had inside jit, vmap or grad: leave it out.")
        traced: Any = simulate_traced(settings, traced_dtype(given, settings.dtype))
        return traced
    return prepare(settings, checkpoint, on_failure, progress, workers).run()


def prepare(
    settings: Settings,
    checkpoint: Any = None,
    on_failure: str = "warn",
    progress: bool = True,
    workers: int | None = None,
) -> "Job":
    """A run that is ready to begin; for the arguments see `simulate`."""
    started = time.perf_counter()
    check_choice("on_failure", on_failure, ("warn", "raise"))
    if workers is not None:
        whole("workers", workers, 1)
    _check_memory(settings)
    with jax.enable_x64(settings.dtype == np.float64):
        kernel, maps, report = _make_kernel(settings)
        compiled = _compile(kernel, settings, maps)
        starts = initial_states(
            settings.system, settings.initial, settings.paths, settings.seed, settings.dtype
        )
    identity = settings.describe() | {"code": compiled.code, "by_maps": maps is not None}
    file = None
    if checkpoint is not None:
        options = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        file = CheckpointFile(options, identity, jax.process_index())
    work = Work(settings, kernel, compiled, starts, maps, report, remember=file is not None)
    return Job(work, identity, started, file, on_failure, progress, workers)


class Job:
    """A run of all blocks, with its checkpoints and its line of progress."""

    def __init__(
        self,
        work: Work,
        identity: dict[str, Any],
        prepared: float,
        file: CheckpointFile | None,
        on_failure: str,
        shown: bool,
        workers: int | None,
    ) -> None:
        self.work, self.settings, self.identity = work, work.settings, identity
        self.file, self.on_failure, self.prepared = file, on_failure, prepared
        settings = self.settings
        devices = jax.local_devices(backend=settings.backend)
        self.workers = worker_count(work.kernel, devices, workers)
        self.done = Progress() if file is None else file.read(self.work)
        self.work.pending.update(self.done.pending)
        self.started = time.perf_counter() - self.done.seconds
        if settings.keep != "nothing":
            self._make_room()
        total = settings.run_paths * settings.steps
        title = f"{settings.method.name} on {settings.system.name}"
        shown = shown and jax.process_index() == 0
        self.bar = ProgressBar(total, self._merged(), title, shown)
        self.work.on_leg = self.bar.add

    def _merged(self) -> int:
        """Path-steps of the blocks that are done, whoever has run them."""
        settings = self.settings
        paths = min(self.done.blocks * settings.block_paths, settings.run_paths)
        return paths * settings.steps

    def run(self) -> Run:
        """All blocks that are not done yet, and what has come out of the run."""
        try:
            # Leaving the generator stops all blocks and leaves what they have done.
            with closing(self._results()) as results:
                for number, result in results:
                    self._add(number, result)
                    self._tick()
            self._complete()
        except (KeyboardInterrupt, Stopped):
            raise Interrupted(self._farewell()) from None
        finally:
            self.bar.close()
        return self._finish()

    def stop(self) -> None:
        """End the run soon, as Ctrl-C does; for other threads than that of `run`."""
        self.work.stop.set()

    def _complete(self) -> None:
        """Leave one file, of the complete run, once no process writes beside it any more."""
        if self.file is None:
            return
        if jax.process_count() > 1:
            largest(self.done.blocks)
        if jax.process_index() == 0:
            self._write()
            self.file.clean_up()

    def _results(self) -> Generator[tuple[int, BlockResult], None, None]:
        """The results of all blocks in their order, whichever process runs them."""
        first, end = self.done.blocks, self.settings.blocks
        processes, me = jax.process_count(), jax.process_index()
        if processes == 1:
            yield from run_blocks(self.work, range(first, end), self.workers, self._tick)
            return
        share = largest(self.workers)
        while first < end:
            share = min(share, -(-(end - first) // processes))
            began = time.perf_counter()
            mine = range(first + me * share, min(first + (me + 1) * share, end))
            results = dict(run_blocks(self.work, mine, self.workers, self._tick))
            everyone, seconds = exchange(results, time.perf_counter() - began)
            if list(everyone) != list(range(first, first + len(everyone))):
                raise RuntimeError(
                    f"the processes have run the blocks {list(everyone)} instead of those from "
                    f"{first} on: all of them must see the same checkpoint file."
                )
            yield from everyone.items()
            first += len(everyone)
            share = max(1, int(share * min(4.0, ROUND_SECONDS / max(seconds, 1e-3))))

    def _add(self, number: int, result: BlockResult) -> None:
        done, settings = self.done, self.settings
        tally = result.tally if done.tally is None else done.tally.merged(result.tally)
        if result.kept is not None and done.kept is not None:
            first = number * settings.block_paths
            for rows, new in zip(done.kept, result.kept, strict=True):
                rows[..., first : first + new.shape[-2], :] = new
        # In one assignment, because Ctrl-C can come between any two.
        self.done = replace(done, tally=tally, blocks=number + 1)
        self.work.forget(number)
        self.bar.reach(self._merged())
        if tally.failed and self.on_failure == "raise":
            failures = _failures(tally, settings.dt)
            raise RuntimeError(_failure_message(failures, settings, self._is_implicit))

    def _tick(self) -> None:
        merged = 0 if self.done.tally is None else self.done.tally.failed
        self.bar.failed = merged + self.work.failed_since(self.done.blocks)
        self.bar.draw()
        if self.file is not None and self.file.is_due(self.done.blocks):
            self._write()

    def _write(self) -> None:
        assert self.file is not None
        pending = {n: p for n, p in self.work.snapshot().items() if n >= self.done.blocks}
        kept = self.done.kept
        if kept is not None:
            end = self.done.blocks * self.settings.block_paths
            kept = kept[0][..., :end, :], kept[1][..., :end, :]
        seconds = time.perf_counter() - self.started
        self.file.write(replace(self.done, pending=pending, kept=kept, seconds=seconds))

    def _make_room(self) -> None:
        """Arrays for all states to be kept, with those of the blocks that are done."""
        settings = self.settings
        times = () if settings.keep == "final" else (len(settings.schedule.save_steps),)
        shape = (*times, settings.run_paths, settings.system.dim)
        before, room = self.done.kept, [np.empty(shape, settings.dtype) for _ in range(2)]
        if before is not None:
            for rows, old in zip(room, before, strict=True):
                rows[..., : old.shape[-2], :] = old
        self.done.kept = (room[0], room[1])

    def _finish(self) -> Run:
        """What has come out of the run, with a warning or an error about paths that failed."""
        settings, done, tally = self.settings, self.done, self.done.tally
        assert tally is not None, "a run has at least one block"
        seconds = done.seconds + time.perf_counter() - self.prepared
        device = jax.local_devices(backend=settings.backend)[0]
        provenance = self.identity | {
            "device": f"{device.platform} ({device.device_kind})",
            "devices": jax.device_count(settings.backend),
            "processes": jax.process_count(),
            "seconds": seconds,
            "path_steps_per_second": settings.run_paths * settings.steps / seconds,
        }
        kept = (None, None) if done.kept is None else done.kept
        run = Run(
            settings.schedule.save_steps * settings.dt,
            {name: tally.moments[name] for name, _ in settings.observe},
            {name: tally.counts[name] for name, _ in settings.histograms},
            _failures(tally, settings.dt),
            tally.truncated,
            tally.residual,
            tally.iterations,
            *kept,
            provenance,
        )
        if run.failed:
            message = _failure_message(run.failures, settings, self._is_implicit)
            if self.on_failure == "raise":
                raise RuntimeError(message)
            warnings.warn(message, RuntimeWarning, stacklevel=4)
        return run

    @property
    def _is_implicit(self) -> bool:
        return self.work.kernel.stepper.is_implicit

    def _farewell(self) -> str:
        share = self.done.blocks / self.settings.blocks
        text = f"stopped after {share:.0%} of the paths"
        if self.file is None:
            return f'{text}; nothing was saved. With checkpoint="FILE" a run can be resumed.'
        self._write()
        return f"{text}; saved in {self.file.path}. The same call goes on from there."


def _make_kernel(settings: Settings) -> tuple[Kernel, Maps | None, Report]:
    """The kernel, the maps that its steps are if they are that, and a report on them."""
    stepper = make_stepper(settings.system, settings.method, settings.dtype)
    dt, params = cast((np.asarray(settings.dt), settings.system.params), settings.dtype)
    maps, report = make_maps(stepper, settings.noise, dt, params) or (None, Report(0, 0.0))
    kernel = Kernel(
        stepper,
        settings.observe,
        settings.histograms,
        frozenset(settings.method.needs(settings.system.noises)),
        settings.keep == "all",
        settings.backend in ("cuda", "gpu") and can_use_registers(stepper, settings.noise),
        None if maps is None else Propagator(stepper),
        settings.reads,
    )
    system = settings.system
    for name, fun in settings.observe:
        check_function(f"observe[{name!r}]", fun, system.dim, system.params, None)
    for name, histogram in settings.histograms:
        for axis in histogram.axes:
            check_function(f"histograms[{name!r}]", axis.of, system.dim, system.params, ())
    return kernel, maps, report


def _compile(kernel: Kernel, settings: Settings, maps: Maps | None) -> Compiled:
    """The kernel with the fastest steps that this computer can make."""
    stepper = kernel.propagator or kernel.stepper
    operations = settings.block_paths * settings.save_every * stepper.size
    if settings.backend == "cpu" and operations >= DENSE_SAVES:
        march = _vector_march(kernel, settings, maps)
        if march is not None:
            from dalembert.ensemble.native_legs import compile_native

            return compile_native(kernel, march)
    return compile_kernel(kernel)


def _vector_march(kernel: Kernel, settings: Settings, maps: Maps | None) -> Any | None:
    try:
        from dalembert.ensemble.native import vector_march
    except ImportError:
        return None
    paths, needs = settings.block_paths, kernel.needs
    by_maps = kernel.propagator
    if by_maps is not None:
        return vector_march(by_maps, needs, by_maps.noise, maps, paths)
    return vector_march(kernel.stepper, needs, settings.noise, settings.system.params, paths)


def _check_memory(settings: Settings) -> None:
    times = {"nothing": 0, "final": 1, "all": len(settings.schedule.save_steps)}[settings.keep]
    wanted = 2 * times * settings.run_paths * settings.system.dim * settings.dtype.itemsize
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if wanted > 0.8 * available:
        raise ValueError(
            f"keep={settings.keep!r} would return {wanted:,} bytes, and this machine has "
            f"{available:,}: keep less, save less often or run fewer paths."
        )


def _failures(tally: Tally, dt: float) -> Failures:
    step, path = tally.first_failure
    if not tally.failed:
        return Failures()
    return Failures(tally.unconverged, tally.non_finite, path, step * dt)


def _failure_message(failures: Failures, settings: Settings, is_implicit: bool) -> str:
    if failures.first_time == 0:
        advice = "An observable is not finite at an initial state."
    elif not is_implicit:
        advice = "A smaller dt or an implicit method may help."
    elif settings.can_truncate:
        advice = "A smaller dt, or noise=da.Gaussian(truncation=1), may help."
    else:
        advice = "A smaller dt may help."
    return (
        f"{failures.total:,} of {settings.run_paths:,} paths failed {failures.details}. "
        f"They are left out of the statistics from then on. {advice}"
    )
