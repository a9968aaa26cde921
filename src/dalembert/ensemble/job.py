"""A run of all blocks: its checkpoints, its line of progress, and what has come out of it."""

import time
import warnings
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace

import jax
import numpy as np

from dalembert.ensemble.blame import BlockError
from dalembert.ensemble.blocks import BlockResult
from dalembert.ensemble.checkpoint import CheckpointFile, Progress
from dalembert.ensemble.executors import Remote
from dalembert.ensemble.failures import Failures
from dalembert.ensemble.observed import Observed
from dalembert.ensemble.pool import Begun, BlocksStopped, begin_blocks, run_blocks
from dalembert.ensemble.processes import LostError, agreed, are_alike, exchange, largest_given
from dalembert.ensemble.progress import ProgressBar
from dalembert.ensemble.ready import Ready
from dalembert.ensemble.run import Run
from dalembert.ensemble.sigterm import Terminated, ending_on_sigterm, undisturbed
from dalembert.ensemble.tally import Tally
from dalembert.noise import Zero

ROUND_SECONDS = 5.0
"""About how long processes work before they exchange results."""

SHORTEST = 1e-9
"""Seconds that steps take by a clock that stands still."""


class Interrupted(KeyboardInterrupt):
    """A run was stopped by Ctrl-C; its message says what was done and how to go on."""


class FailedPathsError(RuntimeError):
    """Paths have failed in a run with `on_failure="raise"`."""


class Job:
    """A run of all blocks, with its checkpoints and its line of progress."""

    def __init__(
        self,
        ready: Ready,
        began: float,
        file: CheckpointFile | None,
        on_failure: str,
        shown: bool,
        remote: Remote | None = None,
    ) -> None:
        self.ready, self.work, self.settings = ready, ready.work, ready.work.settings
        self.identity = ready.identity | {"refused_engines": ready.refused}
        self.file, self.on_failure = file, on_failure
        self.began, self.preparing = began, time.perf_counter() - began
        self.workers, self.remote = ready.workers, remote
        self.done = Progress()
        self.shown = shown and jax.process_index() == 0
        self.begun: Begun | None = None
        """Its blocks, if threads that other runs have as well were given all of them."""

    def _make_bar(self) -> ProgressBar:
        settings = self.settings
        total = settings.run_paths * settings.steps
        done = self._merged() + self._under_way()
        return ProgressBar(total, done, settings.title, self.shown)

    def _merged(self) -> int:
        """Path-steps of the blocks that are done, whoever has run them."""
        settings = self.settings
        paths = min(self.done.blocks * settings.block_paths, settings.run_paths)
        return paths * settings.steps

    def _under_way(self) -> int:
        """Path-steps that unfinished blocks have taken before."""
        settings, pending = self.settings, self.done.pending.items()
        steps = settings.schedule.steps_before
        return sum(settings.size(number) * steps(block.unit) for number, block in pending)

    def run(self) -> Run:
        """All blocks that are not done yet, and what has come out of the run."""
        with ending_on_sigterm(), ExitStack() as stack:
            if self.file is not None:
                self._take_up(self.file, stack)
            if self.settings.keep != "nothing":
                self._make_room()
            self.bar = self._make_bar()
            self.work.on_leg = self.bar.add
            try:
                # Leaving the generator stops all blocks and leaves what they have done.
                with closing(self._results()) as results:
                    for number, result in results:
                        self._add(number, result)
                        self._tick()
                self._complete()
            except (KeyboardInterrupt, BlocksStopped):
                raise Interrupted(self._farewell()) from None
            except Terminated:
                raise Terminated(self._farewell()) from None
            except (LostError, BlockError, MemoryError) as error:
                # Those of NumPy about memory are not made of a text.
                kind = MemoryError if isinstance(error, MemoryError) else type(error)
                told = kind(f"{error} The run was {self._farewell()}")
                for note in getattr(error, "__notes__", ()):
                    told.add_note(note)
                raise told from error
            except Exception as error:
                error.add_note(f"The run was {self._farewell()}")
                raise
            finally:
                self.bar.close()
        return self._finish()

    def _take_up(self, file: CheckpointFile, stack: ExitStack) -> None:
        """Hold the checkpoint and go on from it; of several processes all of them or none."""
        problem: Exception | None = None
        try:
            stack.enter_context(file.held())
            self.done = file.read(self.work)
        except (OSError, ValueError, MemoryError) as error:
            problem = error
        if jax.process_count() > 1 and largest_given(int(problem is not None)) and problem is None:
            raise ValueError("another process of this run was refused the checkpoint.")
        if problem is not None:
            raise problem
        self.work.pending.update(self.done.pending)

    def begin(self, threads: ThreadPoolExecutor) -> None:
        """Let threads run all blocks, before anyone waits for what comes of them."""
        self.begun = begin_blocks(self.work, range(self.settings.blocks), threads)

    def stop(self) -> None:
        """End the run soon, as Ctrl-C does; for other threads than that of `run`."""
        self.work.stop.set()

    def _complete(self) -> None:
        """Leave one file, of the complete run, once no process writes beside it any more."""
        if self.file is None:
            return
        if jax.process_count() > 1:
            largest_given(self.done.blocks)
        if jax.process_index() == 0:
            try:
                self._write()
                self.file.clean_up()
            except (OSError, MemoryError) as error:
                text = f"the run is complete, but its checkpoint is not: {error}."
                warnings.warn(text, RuntimeWarning, stacklevel=5)

    def _results(self) -> Generator[tuple[int, BlockResult], None, None]:
        """The results of all blocks in their order, whichever process runs them."""
        first, end = self.done.blocks, self.settings.blocks
        processes, me = jax.process_count(), jax.process_index()
        if self.remote is not None:
            yield from self.remote.results(self.work, range(first, end), self._tick)
            return
        if self.work.places[0].is_shared:
            self.work.agree = agreed
            units = {number: block.unit for number, block in self.done.pending.items()}
            if not are_alike((first, sorted(units.items()))):
                raise RuntimeError("all processes must see the same checkpoint file.")
        if processes == 1 or self.work.places[0].is_shared:
            numbers = range(first, end)
            yield from run_blocks(self.work, numbers, self.workers, self._tick, self.begun)
            return
        share = largest_given(self.workers)
        while first < end:
            share = min(share, -(-(end - first) // processes))
            began = time.perf_counter()
            mine = range(first + me * share, min(first + (me + 1) * share, end))
            results = dict(run_blocks(self.work, mine, self.workers, self._tick))
            everyone, seconds = exchange(self.work, results, time.perf_counter() - began)
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
        tally = result.tally
        if done.tally is not None:
            tally = self._merged_tally(number, done.tally, tally)
        if result.kept is not None and done.kept is not None:
            first = number * settings.block_paths
            for rows, new in zip(done.kept, result.kept, strict=True):
                rows[..., first : first + new.shape[-2], :] = new
        if result.end is not None:
            done.ends[number] = result.end
        # In one assignment, because Ctrl-C can come between any two.
        self.done = replace(done, tally=tally, blocks=number + 1)
        self.work.forget(number)
        self.bar.reach(self._merged())
        if tally.failed and self.on_failure == "raise":
            raise FailedPathsError(self._failure_message(_failures(tally, settings.dt)))

    def _merged_tally(self, number: int, before: Tally, new: Tally) -> Tally:
        try:
            return before.merged(new, self.settings.statistics)
        except Exception as error:
            paths = self.settings.numbers(number)
            error.add_note(f"It was raised when the paths {paths[0]} to {paths[-1]} were merged.")
            raise

    def _tick(self) -> None:
        merged = 0 if self.done.tally is None else self.done.tally.failed
        self.bar.failed = merged + self.work.failed_since(self.done.blocks)
        is_compiling = self.remote is None and self.work.compiling.locked()
        self.bar.busy = f"compiling ({self.identity['code']})" if is_compiling else ""
        self.bar.workers = None if self.remote is None else self.remote.workers
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
        seconds, compiling = self._times()
        done = replace(self.done, seconds=seconds, compile_seconds=compiling)
        self.file.write(replace(done, pending=pending, kept=kept))

    def _make_room(self) -> None:
        """Arrays for all states to be kept, with those of the blocks that are done."""
        settings = self.settings
        times = () if settings.keep == "final" else (settings.schedule.saves,)
        shape = (*times, settings.run_paths, settings.system.dim)
        # What no block has filled is NaN, not what was in the memory.
        room = [np.full(shape, np.nan, settings.dtype) for _ in range(2)]
        before = self.done.kept
        if before is not None:
            for rows, old in zip(room, before, strict=True):
                rows[..., : old.shape[-2], :] = old
        self.done.kept = (room[0], room[1])

    def _finish(self) -> Run:
        """What has come out of the run, with a warning or an error about paths that failed."""
        settings, done, tally = self.settings, self.done, self.done.tally
        assert tally is not None, "a run has at least one block"
        seconds, compiling = self._times()
        device = jax.local_devices(backend=settings.backend)[0]
        name, kind = device.platform, device.device_kind
        path_steps = settings.run_paths * settings.steps
        provenance = self.identity | {
            "device": name if kind == name else f"{name} ({kind})",
            **self._team(),
            **({"alike": True} if self._is_alike() else {}),
            "seconds": seconds,
            "compile_seconds": compiling,
            "earlier_seconds": done.seconds,
            "earlier_compile_seconds": done.compile_seconds,
            "path_steps_per_second": path_steps / max(seconds - compiling, SHORTEST),
        }
        states = map(settings.system.shaped, done.kept or ())
        run = Run(
            settings.times,
            {key: Observed(s, tally.data[key]) for key, s in settings.statistics},
            _failures(tally, settings.dt),
            tally.truncated,
            tally.residual,
            tally.iterations,
            dict(zip("qp", states, strict=False)),
            provenance,
            settings.system,
        )
        if run.failed:
            message = self._failure_message(run.failures)
            if self.on_failure == "raise":
                raise FailedPathsError(message)
            warnings.warn(message, RuntimeWarning, stacklevel=5)
        return run

    def _is_alike(self) -> bool:
        """Whether several paths cannot but be the same: without noise, from one state."""
        of = self.settings
        is_still = not of.system.noises or isinstance(of.noise, Zero)
        starts_alike = not callable(of.initial) and all(
            np.shape(x) == of.system.shape for x in of.initial
        )
        return of.run_paths > 1 and is_still and starts_alike

    def _times(self) -> tuple[float, float]:
        """How long this call and those before it took, and how much of it was compilation."""
        seconds = self.done.seconds + time.perf_counter() - self.began
        return seconds, self.done.compile_seconds + self.preparing + self.work.compile_seconds

    def _team(self) -> dict[str, int]:
        """How many devices and processes have run blocks."""
        if self.remote is not None:
            return {"devices": self.remote.devices, "processes": self.remote.processes}
        return {
            "devices": jax.device_count(self.settings.backend),
            "processes": jax.process_count(),
        }

    def _failure_message(self, failures: Failures) -> str:
        return (
            f"{failures.total:,} of {self.settings.run_paths:,} paths failed {failures.details}. "
            f"They are left out of the statistics from then on. {self._advice(failures)}"
        )

    def _advice(self, failures: Failures) -> str:
        settings = self.settings
        if failures.unobservable == failures.total:
            return (
                "Either the observable is not defined at every state, or the paths grow without "
                f"bound. {self._advice_on_steps()}"
            )
        if failures.non_finite and "stop" in settings.method.functions():
            return (
                "Either the states are not finite, or the event is not: stop must be a finite "
                f"number wherever paths come, unlike jnp.log or jnp.sqrt. {self._advice_on_steps()}"
            )
        if failures.first_time == settings.dt and not self._has_finite_fields(failures.first_path):
            return (
                "The drift or the noise is not finite at its initial state: perhaps a parameter is "
                "not, or a derivative, as that of jnp.linalg.norm or jnp.sqrt at 0 (write p @ p)."
            )
        if failures.unconverged and settings.system.constraint_count:
            return f"{self._advice_on_steps()} Or they are where the rank of Dg drops."
        if failures.non_finite and settings.system.flow is not None:
            flow = settings.system.flow.name
            return f"Perhaps the flow {flow!r} is not finite. {self._advice_on_steps()}"
        return self._advice_on_steps()

    def _advice_on_steps(self) -> str:
        if not self.work.kernel.stepper.is_implicit:
            return "A smaller dt or an implicit method may help."
        k = self.settings.truncation
        truncated = f", or noise=da.Gaussian(truncation={k})," if k else ""
        return f"A smaller dt{truncated} may help."

    def _has_finite_fields(self, path: int | None) -> bool:
        """Whether drift and noise are finite where a path starts; a flow is not looked at."""
        system = self.settings.system.fields
        q, p = (system.shaped(x[0]) for x in self.work.starts(np.array([path], np.uint64)))
        t = (0.0,) if system.time else ()
        fields = (*system.drift(q, p, *t), *system.diffusion(q, p, *t))
        return all(bool(np.all(np.isfinite(x))) for x in fields)

    def _farewell(self) -> str:
        text = f"stopped after {self.bar.share:.0%} of the path-steps"
        if self.settings.blocks == 1:
            # All paths of a block are at the same time.
            t_end = self.settings.t_end
            text = f"stopped at t = {self.bar.share * t_end:.6g} of {t_end:g}"
        if self.file is None:
            return f'{text}; nothing was saved. With checkpoint="FILE" a run can be resumed.'
        try:
            with undisturbed():
                self._write()
        except (OSError, MemoryError) as error:
            return f"{text}; {error}. The same call goes on from what was saved before."
        return f"{text}; saved in {self.file.path}. The same call goes on from there."


def _failures(tally: Tally, dt: float) -> Failures:
    step, path = tally.first_failure
    if not tally.failed:
        return Failures()
    return Failures(tally.unconverged, tally.non_finite, path, step * dt, tally.unobservable)
