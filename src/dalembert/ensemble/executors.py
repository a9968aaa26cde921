"""A run on an executor: tasks of about a second, a bounded number of them, results in order."""

import hashlib
import os
import reprlib
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

import jax
import numpy as np

from dalembert.ensemble.blocks import BlockResult, Work
from dalembert.ensemble.march import Status
from dalembert.ensemble.pool import BlocksStopped
from dalembert.ensemble.processes import LostError
from dalembert.ensemble.remote import Outcome, RefusedWorkerError, decoded, encoded

__all__ = ["Remote", "find_team", "on_executor"]

TASK_SECONDS = 1.0
"""About how long a task should take: longer than sending it, and short enough to be lost."""

IN_FLIGHT = 2
"""Tasks per place of the executor: one runs while the next is on its way."""

GROWTH = 4
"""How many times as many blocks a task has as the one before, at most."""

TASK_BYTES = 2**26
"""About how much the results of one task may take."""

ATTEMPTS = 3
"""How often a task is given to an executor that loses it."""

LARGE_BYTES = 2**20
"""What is larger is not sent to a worker that may know it."""

COUNT_SECONDS = 2.0
"""How often the workers of a cluster are counted."""

PROGRAM = """
try:
    import cloudpickle
    from dalembert.ensemble.remote import run_blocks_of
except (MemoryError, OSError):
    raise
except Exception as error:
    import os
    import socket
    worker = f"{socket.gethostname()}:{os.getpid()}"
    answer = "cannot import", worker, f"{type(error).__name__}: {error}"
else:
    answer = run_blocks_of(digest, payload, blocks)
"""
TASK = f"(exec({PROGRAM!r}), answer)[1]"
"""What a worker does, in words that it also understands if it does not know the library: a function
of a module that is not there ends a worker of Dask, without a word to the caller. One without the
library says its name and why."""

_everywhere: ContextVar[Any] = ContextVar("executor", default=None)


@contextmanager
def on_executor(executor: Any) -> Iterator[None]:
    """Give an executor to all runs of this thread that have none of their own."""
    token = _everywhere.set(executor)
    try:
        yield
    finally:
        _everywhere.reset(token)


@dataclass
class Team:
    """An executor and what is known of its workers.

    Attributes:
        executor: where tasks are submitted.
        client: the client of Dask behind it, if it is one.
        workers: how many there are, if that is known.
        places: tasks that run at a time, as far as it is known.
    """

    executor: Any
    client: Any = None
    workers: int | None = None
    places: int = 1
    counted: float = -np.inf

    def share(self, data: bytes) -> Any:
        """What to submit in the place of bytes that all tasks are to be given."""
        if self.client is None:
            return data
        # The result of a task: if the worker that holds it is lost, it is made again.
        with _submitting():
            return self.client.submit(bytes, data, pure=False)

    def submit(self, **given: Any) -> Future[bytes]:
        # Dask would take the same blocks, submitted again, for the same task.
        options = {} if self.client is None else {"key": f"dalembert-{uuid4()}"}
        with _submitting():
            future = self.executor.submit(eval, TASK, given, **options)
        if not isinstance(future, Future):
            raise TypeError(
                f"what {type(self.executor).__name__}.submit gives must be like a "
                f"concurrent.futures.Future, not {future!r}."
            )
        return future

    def count(self) -> None:
        """See how many workers there are now."""
        if self.client is None:
            known = (getattr(self.executor, name, None) for name in ("_max_workers", "num_workers"))
            self.workers = next((number for number in known if isinstance(number, int)), None)
            self.places = self.workers or os.cpu_count() or 1
        elif time.monotonic() - self.counted > COUNT_SECONDS:
            self.counted = time.monotonic()
            try:
                threads = self.client.nthreads(callback_timeout=1.0)
            except Exception:
                # A scheduler that is gone is seen by its tasks.
                return
            self.workers, self.places = len(threads), max(sum(threads.values()), 1)


@contextmanager
def _submitting() -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            # Dask warns of tasks beyond 10 MB, which states of many paths may well be.
            warnings.filterwarnings("ignore", message="Sending large graph")
            yield
    except Exception as error:
        raise LostError(f"the executor takes no more tasks: {_clause(error)}.") from error


def find_team(executor: Any) -> Team | None:
    """The executor of a run, if it has one; an error if it cannot be used."""
    executor = _everywhere.get() if executor is None else executor
    if executor is None:
        return None
    if jax.process_count() > 1:
        raise ValueError("executor= is for one process: leave out da.connect, or the executor.")
    if isinstance(executor, type):
        raise TypeError(
            f"executor must be an object, not the class {executor.__name__}: write "
            f"{executor.__name__}(…) with what it needs."
        )
    if hasattr(executor, "get_executor"):
        executor = executor.get_executor()
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            "executor must be like a concurrent.futures.Executor, e.g. "
            f"distributed.Client(address), not {executor!r}."
        )
    is_dask = type(executor).__module__.startswith("distributed.")
    client = executor._client if is_dask else None
    if client is not None and client.asynchronous:
        raise ValueError("executor= needs a client of Dask without asynchronous=True.")
    if isinstance(executor, ProcessPoolExecutor):
        context: Any = executor._mp_context  # pyright: ignore[reportAttributeAccessIssue]
        if context.get_start_method() == "fork":
            raise ValueError(
                "the processes of this executor are forks of this one, in which JAX hangs: write "
                'ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")).'
            )
    return Team(executor, client)


class Task(NamedTuple):
    """Blocks that are run together, how often they have been submitted, and to whom."""

    blocks: tuple[int, ...]
    attempt: int = 1
    knows: bool = True
    """Whether the worker may know the run."""


@dataclass
class Remote:
    """The blocks of a run on the workers of an executor.

    Attributes:
        team: the executor.
        payload: what its workers are told of the run.
        flying: tasks that it has.
        found: results out of turn.
        size: blocks of a task; none are submitted before it is known.
        known: devices of every worker that has sent something.
        digest: what the payload is known by.
        is_sent_once: whether the payload is left out where a worker may know it.
    """

    team: Team
    payload: Any
    flying: dict[Future[bytes], Task] = field(default_factory=dict)
    found: dict[int, BlockResult] = field(default_factory=dict)
    size: int = 0
    known: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    is_sent_once: bool = False

    @property
    def workers(self) -> int | None:
        return self.team.workers

    @property
    def processes(self) -> int:
        return len(self.known)

    @property
    def devices(self) -> int:
        return sum(self.known.values())

    def results(
        self, work: Work, numbers: range, on_wait: Callable[[], None]
    ) -> Iterator[tuple[int, BlockResult]]:
        """Results in the order of the numbers, as `run_blocks` gives them.

        At most as many blocks as are under way wait for those before them. Leaving the iteration
        cancels all tasks; those that run end by themselves, within seconds.
        """
        if not numbers:
            return
        first, merged = numbers.start, numbers.start
        try:
            self.digest = hashlib.sha256(self.payload).hexdigest()
            self.is_sent_once = self.team.client is None and len(self.payload) > LARGE_BYTES
            self.payload = self.team.share(self.payload)
            # No blocks: one worker says whether it is fit, and how many it would run at a time.
            self._submit(work, Task((), knows=False))
            while merged < numbers.stop:
                if work.stop.is_set():
                    raise BlocksStopped
                self.team.count()
                for future in self._done():
                    self._take(work, future)
                most = IN_FLIGHT * self.team.places
                while first < numbers.stop and len(self.flying) < most:
                    if self.size == 0 or first - merged >= most * self.size:
                        break
                    fair = -(-(numbers.stop - first) // self.team.places)
                    end = min(first + min(self.size, fair), numbers.stop)
                    self._submit(work, Task(tuple(range(first, end))))
                    first = end
                on_wait()
                while merged in self.found:
                    yield merged, self.found.pop(merged)
                    merged += 1
        finally:
            for future in self.flying:
                future.cancel()
            self.flying.clear()

    def _done(self) -> set[Future[bytes]]:
        """Tasks of which something has come, within a moment.

        `wait` leaves out those that are cancelled and that no worker will ever look at.
        """
        done = wait(self.flying, 0.1, FIRST_COMPLETED).done
        return done | {future for future in self.flying if future.cancelled()}

    def _submit(self, work: Work, task: Task) -> None:
        blocks = encoded({number: work.pending.get(number) for number in task.blocks})
        payload = None if self.is_sent_once and task.knows else self.payload
        future = self.team.submit(digest=self.digest, payload=payload, blocks=blocks)
        self.flying[future] = task

    def _take(self, work: Work, future: Future[bytes]) -> None:
        """Take what has come of a task; what is left of it is submitted again."""
        task = self.flying.pop(future)
        if future.cancelled():
            raise LostError("the executor has given up: its scheduler has ended, or it was closed.")
        problem = future.exception()
        if problem is not None:
            _check_library(problem)
            if task.attempt == ATTEMPTS:
                raise LostError(
                    f"the executor has lost the same blocks {ATTEMPTS} times, at last by "
                    f"{type(problem).__name__}: {_clause(problem)}."
                ) from problem
            self._submit(work, task._replace(attempt=task.attempt + 1))
            return
        data = future.result()
        outcome = _outcome(data)
        if outcome.error is not None:
            raise _error_of(outcome)
        if not outcome.knows:
            self._submit(work, task._replace(knows=False))
            return
        self.known[outcome.worker.rpartition(":")[0]] = outcome.devices
        done = self._note(work, outcome)
        self.found |= outcome.results
        if task.blocks:
            wanted = TASK_SECONDS * done / max(outcome.seconds, 1e-6)
            room = TASK_BYTES * len(task.blocks) // len(data)
            self.size = int(min(wanted, room, GROWTH * self.size))
        self.size = max(self.size, outcome.at_once)
        rest = tuple(number for number in task.blocks if number not in outcome.results)
        if rest:
            self._submit(work, Task(rest))

    def _note(self, work: Work, outcome: Outcome) -> float:
        """Keep how far blocks are; how many of them, with fractions, a task has done."""
        settings, schedule = work.settings, work.settings.schedule
        done, path_steps = 0, 0
        ends = {number: schedule.units for number in outcome.results}
        failed = {number: result.tally.failed for number, result in outcome.results.items()}
        for number, pending in outcome.unfinished.items():
            if pending is not None:
                ends[number] = pending.unit
                status = np.asarray(pending.state.status)[: settings.size(number)]
                failed[number] = int(np.sum(status != Status.FINE))
        for number, end in ends.items():
            before = work.pending[number].unit if number in work.pending else 0
            steps = schedule.steps_before(end) - schedule.steps_before(before)
            done, path_steps = done + end - before, path_steps + settings.size(number) * steps
        with work.lock:
            work.failed |= failed
            work.pending |= {n: p for n, p in outcome.unfinished.items() if p is not None}
        work.on_leg(path_steps)
        return done / schedule.units


def _outcome(data: Any) -> Outcome:
    """What a task has sent; an error if that is something else."""
    match data:
        case ("cannot import", worker, reason):
            raise RefusedWorkerError(
                f"worker {worker} cannot import {_library()}: {_clause(reason)}."
            )
    try:
        outcome = decoded(data)
        if not isinstance(outcome, Outcome):
            raise TypeError("it is something else")
    except MemoryError:
        raise
    except Exception as error:
        raise LostError(
            f"the executor gave {reprlib.repr(data)} for what a task has done ({error}). It must "
            f"give what its functions return, and its workers need {_library()}."
        ) from error
    return outcome


def _check_library(problem: BaseException) -> None:
    """Say what is wrong if a worker does not know the library."""
    left: list[BaseException | None] = [problem]
    while left:
        error = left.pop()
        if isinstance(error, ImportError):
            raise RefusedWorkerError(
                f"a worker of the executor cannot import {_library()}: {_clause(error)}."
            ) from problem
        if error is not None:
            is_hidden = error.__suppress_context__ and error.__cause__ is None  # from None
            left += [None if is_hidden else error.__context__, error.__cause__]


def _clause(said: Any) -> str:
    """What others say, to be put before a full stop."""
    return str(said).rstrip(". ")


def _library() -> str:
    from dalembert import __version__

    return f"dalembert {__version__} with its extra `cluster`"


def _error_of(outcome: Outcome) -> Exception:
    """The exception of a task, with its traceback there in a note."""
    assert outcome.error is not None
    data, text = outcome.error
    try:
        error = decoded(data)
    except Exception:
        error = RuntimeError(text.strip().splitlines()[-1])
    error.add_note(f"On worker {outcome.worker}:\n{text}")
    return error
