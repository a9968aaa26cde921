"""Blocks on other machines: what is sent to a worker of an executor, and what it does with it.

A worker is told the run once, as a payload: a record of what has to be the same there, and the
settings by cloudpickle. Everything that travels is bytes, so that no executor looks into it. What
goes wrong in a block comes back as a value: an exception of a task is one of the executor.
"""

import hashlib
import os
import pickle
import platform
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlib

from dalembert.caches import bounded
from dalembert.ensemble.blocks import BlockResult, Pending
from dalembert.ensemble.checkpoint import differences
from dalembert.ensemble.engines import VectorCode
from dalembert.ensemble.identity import versions
from dalembert.ensemble.pool import BlocksStopped, run_blocks
from dalembert.ensemble.processes import LostError
from dalembert.ensemble.ready import Ready, make_ready
from dalembert.ensemble.settings import Settings
from dalembert.precision import as_told, told_here
from dalembert.statistics.observing import in_words

__all__ = ["Outcome", "RefusedWorkerError", "decoded", "encoded", "make_payload", "run_blocks_of"]

SLICE_SECONDS = 10.0
"""How long a task may take: what is lost with a worker, and how soon workers stop by themselves."""

REMEMBERED = 4
"""Runs that a worker keeps ready."""

WIDE = {"fma", "avx", "avx2", "avx512f"}
"""Instructions of CPUs that are compiled for, and can change the last bits."""

COMPILING = ("jax_optimization_level", "jax_exec_time_optimization_effort")
"""Options of JAX that compiled code depends on, beside `XLA_FLAGS`."""

_preparing = threading.Lock()


class RefusedWorkerError(LostError):
    """A worker of an executor is not fit for a run; the message says which and why."""


class Options(NamedTuple):
    """How a run is prepared, here and on every worker."""

    exactly: bool
    workers: int | None
    engine: Any
    shard: bool
    ends: bool


@dataclass(frozen=True)
class Outcome:
    """What a task has done.

    Attributes:
        worker: the name of its process and thread.
        at_once: blocks that it ran at a time.
        devices: how many of them it has.
        seconds: how long they ran.
        results: blocks that are finished.
        unfinished: the others, as far as they are, or None if they were not begun.
        error: an exception by pickle, and in words, if there was one.
        knows: whether it knew the run, or has to be told again.
    """

    worker: str
    at_once: int = 1
    devices: int = 0
    seconds: float = 0.0
    results: Mapping[int, BlockResult] = field(default_factory=dict)
    unfinished: Mapping[int, Pending | None] = field(default_factory=dict)
    error: tuple[bytes, str] | None = None
    knows: bool = True


@dataclass(frozen=True)
class Payload:
    """What a worker is told of a run, and what it is known by there, also without being told."""

    digest: str
    data: bytes | None = field(compare=False)


class UnknownRunError(Exception):
    """A worker was not told, or has forgotten, what it is to run."""


def encoded(thing: Any) -> bytes:
    """Bytes of anything that can be sent, functions and classes of scripts included."""
    try:
        import cloudpickle
    except ImportError as error:
        raise ImportError(
            "executor= needs cloudpickle: install it with  pip install '.[cluster]'  in a copy of "
            "the source.",
            name="cloudpickle",
        ) from error
    return cloudpickle.dumps(thing)


def decoded(data: bytes) -> Any:
    """What was encoded; float64 stays float64."""
    with jax.enable_x64(True):
        return pickle.loads(data)


def make_payload(ready: Ready, workers: int | None, engine: Any, shard: bool) -> bytes:
    """What a worker has to know of a run; TypeError about what cannot be sent."""
    settings = ready.work.settings
    try:
        options = Options(ready.exactly, workers, engine, shard, ready.work.ends)
        body = encoded((settings, options, told_here()))
    except ImportError:
        raise
    except Exception as error:
        for name, part in _parts(settings, engine):
            try:
                encoded(part)
            except Exception as reason:
                raise TypeError(
                    f"{name} cannot be sent to the workers of an executor: {reason}. Make what it "
                    "needs inside of it, or give it numbers and arrays only."
                ) from error
        raise
    return pickle.dumps((_machine(settings.backend), _computing(ready), body))


def _parts(settings: Settings, engine: Any) -> Iterator[tuple[str, Any]]:
    yield from (*settings.system.functions.items(), ("params", settings.system.params))
    yield from ((in_words(key), statistic) for key, statistic in settings.statistics)
    what = "the sampler" if callable(settings.initial) else "the initial state"
    yield from ((what, settings.initial), ("the method", settings.method))
    yield from (("the noise", settings.noise), ("the engine", engine))


def run_blocks_of(digest: str, payload: bytes | None, blocks: bytes) -> bytes:
    """Run blocks, by number, from where they are, as far as they come in `SLICE_SECONDS`.

    Without blocks it only makes the run ready. Without a payload the worker has to know the run.
    """
    try:
        with _preparing:
            ready, told = _ready(Payload(digest, payload))
        with as_told(told):
            outcome = _run(ready, decoded(blocks))
    except UnknownRunError:
        outcome = Outcome(_name(), knows=False)
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        outcome = Outcome(_name(), error=(_sendable(error), text))
    return encoded(outcome)


def _sendable(error: Exception) -> bytes:
    try:
        data = encoded(error)
        decoded(data)
    except Exception:
        return encoded(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


@bounded(REMEMBERED)
def _ready(payload: Payload) -> tuple[Ready, dict[str, Any]]:
    """The run of a payload on this worker, if it is fit for it, and the contexts it belongs to."""
    if payload.data is None:
        raise UnknownRunError
    machine, identity, body = pickle.loads(payload.data)
    _compare(machine, _machine(machine["backend"]))
    try:
        settings, options, told = decoded(body)
    except ImportError as error:
        raise RefusedWorkerError(
            f"worker {_name()} cannot import {error.name}: put it there, or send it along with "
            "cloudpickle.register_pickle_by_value."
        ) from error
    with as_told(told):
        ready = make_ready(settings, *options)
    _compare(identity, _computing(ready))
    if options.workers is None:
        # Every thread of a worker runs a task.
        ready = replace(ready, workers=max(ready.workers // _tasks_at_once(), 1))
    return ready, told


def _compare(wanted: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    different = differences("", wanted, here, ("at the caller", "there"))
    if different:
        raise RefusedWorkerError(
            f"worker {_name()} would compute other bits than the caller. What differs: "
            f"{'; '.join(sorted(different))}. Make them alike, or leave this worker out."
        )


def _machine(backend: str) -> dict[str, Any]:
    """What has to be alike on all machines of a run."""
    try:
        kind = jax.local_devices(backend=backend)[0].device_kind
    except RuntimeError:
        kind = "none"
    flags = os.environ.get("XLA_FLAGS", "").split()
    processor = {"processor": _processor()} if backend == "cpu" else {}
    return {
        "backend": backend,
        "device_kind": kind,
        **processor,
        "XLA_FLAGS": [flag for flag in flags if "device_count" not in flag],
        **{name: str(getattr(jax.config, name, None)) for name in COMPILING},
        "versions": versions() | {"jaxlib": jaxlib.__version__},
        "sources": _sources(Path(__file__).parents[1]),
    }


def _computing(ready: Ready) -> dict[str, Any]:
    """What decides the numbers of a run, with the version of what makes its code beside XLA."""
    if ready.identity["code"] != VectorCode.name:
        return ready.identity
    return ready.identity | {"llvmlite": version("llvmlite")}


@cache
def _sources(package: Path) -> str:
    """What the files of a package are known by: copies of one version may differ."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return " ".join([platform.machine(), *sorted(WIDE.intersection(flags))])


def _tasks_at_once() -> int:
    """Tasks that this process runs at a time, where that is known: one per thread of Dask's."""
    distributed = sys.modules.get("distributed")
    try:
        return 1 if distributed is None else distributed.get_worker().state.nthreads
    except ValueError:
        return 1


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"


def _run(ready: Ready, blocks: Mapping[int, Pending | None]) -> Outcome:
    """Run blocks until all are finished or time is up, but every time at least one leg."""
    began, stop = time.monotonic(), threading.Event()

    def on_leg(path_steps: int) -> None:
        if time.monotonic() - began > SLICE_SECONDS:
            stop.set()

    work = replace(
        ready.work,
        remember=True,
        goes_far=ready.work.ends,
        on_leg=on_leg,
        stop=stop,
        pending={number: pending for number, pending in blocks.items() if pending is not None},
        failed={},
    )
    results = {}
    try:
        for number, result in run_blocks(work, blocks, ready.workers, lambda: None):
            results[number] = result
            work.forget(number)
    except BlocksStopped:
        pass
    finally:
        ready.work.rate = work.rate
    unfinished = {n: work.pending.get(n) for n in blocks if n not in results}
    devices = sum(len(place.devices) for place in work.places)
    seconds = time.monotonic() - began
    return Outcome(_name(), ready.workers, devices, seconds, results, unfinished)
