"""Faults while paths are computed: clocks, memory, functions of the user, terminals, kills."""

import math
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import blame, blocks, checkpoint, lock, memory, progress
from dalembert.ensemble.blame import BlockError
from faults.rule import BLOCKS, Ground, kind, simulate

YEAR = 365.25 * 86400
CLOCKS: dict[str, Callable[[float, int], float]] = {
    "a year forward": lambda now, i: now + (YEAR if i > 1 else 0),
    "a year back": lambda now, i: now - (YEAR if i > 1 else 0),
    "to and fro at every look": lambda now, i: now + (-1) ** i * YEAR,
    "it stands at 1970": lambda now, i: 0.0,
    "it is before 1970": lambda now, i: -YEAR,
    "it stands at 2150": lambda now, i: 180 * YEAR,
    "it stands still": lambda now, i: 1.7e9,
}


@kind(
    "The clock jumps or stands wrong",
    "The right numbers; files can be written and read at any date.",
    list(CLOCKS),
    fast=["it stands at 1970", "to and fro at every look"],
)
def clock(way: str, ground: Ground) -> None:
    looks, now = [0], time.time

    def wrong() -> float:
        looks[0] += 1
        return CLOCKS[way](now(), looks[0])

    ground.patch.setattr(time, "time", wrong)
    run = simulate(ground.path)
    run.save(ground.folder / "run.npz")
    ground.is_right(da.load(ground.folder / "run.npz"))
    ground.goes_on(BLOCKS)
    assert abs((wrong(), wrong())[1] - now()) > 1, "the fault was there"


@kind(
    "Even the steady clock stands still or leaps",
    "The right numbers; checkpoints come too seldom or too often.",
    ["it stands still", "it leaps by days"],
    fast=["it stands still"],
)
def steady_clock(way: str, ground: Ground) -> None:
    count = iter(range(10**9))
    step = 0.0 if way == "it stands still" else 86400.0
    for name in ("monotonic", "perf_counter"):
        ground.patch.setattr(blocks.time, name, lambda: 1e6 + step * next(count))
    run = simulate(ground.path)
    ground.patch.undo()
    ground.is_right(run)
    assert math.isfinite(run.provenance["path_steps_per_second"])
    ground.goes_on(BLOCKS)


def _failing_leg(ground: Ground, error: BaseException, at: int) -> None:
    run_leg, calls = blocks.run_leg, []

    def fails(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == at:
            raise error
        return run_leg(*args)

    ground.patch.setattr(blocks, "run_leg", fails)


NO_ROOM = {
    "of NumPy": MemoryError("Unable to allocate 3.00 GiB for an array"),
    "of a device": jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying"),
}


@kind(
    "There is no memory for a block",
    "A MemoryError that names paths and times; all that was done is saved.",
    [f"{whose}, in leg {at}" for whose in NO_ROOM for at in (1, 3, BLOCKS)],
    fast=["of a device, in leg 3"],
)
def no_memory(way: str, ground: Ground) -> None:
    whose, _, at = way.partition(", in leg ")
    _failing_leg(ground, NO_ROOM[whose], int(at))
    times = r"between t = [\d.]+ and t = [\d.]+"
    text = rf"no memory for one of the paths \d+ to \d+ {times}: .*workers=1.*goes on"
    with pytest.raises(MemoryError, match=text):
        simulate(ground.path)
    ground.patch.undo()
    ground.goes_on((int(at) - 1) // 2)  # every block has a leg that longer runs share


@kind(
    "A run would not fit into the memory",
    "It is refused before it begins, with what takes how much.",
    ["states to keep", "bins of a histogram"],
    fast=["states to keep"],
)
def too_large(way: str, ground: Ground) -> None:
    ground.patch.setattr(memory, "available_memory", lambda: 2**20)
    options: dict[str, Any] = {"keep": "all", "paths": 10**6}
    if way == "bins of a histogram":
        axis = da.Axis(lambda q, p, params: q[0], -3.0, 3.0, bins=10**6)
        options = {"histograms": {"q": da.Histogram(axis)}}
    with pytest.raises(ValueError, match=r"this run would need .*, and this machine has 0\.0 GiB"):
        simulate(ground.path, **options)
    assert not list(ground.folder.iterdir())


# Python that a function calls back. It raises for one path, from a time on.
GUILTY, FIRST = 137, 37


def _asked(x: Any, fails: Callable[[np.ndarray], bool]) -> Any:
    def ask(x: Any) -> np.ndarray:
        if fails(np.asarray(x)):
            raise ZeroDivisionError("as it had to come")
        return np.asarray(x)

    return jax.pure_callback(
        ask, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential"
    )


FREE = da.System(H=lambda q, p: p @ p / 2, dim=1)
"""Free flight at speed 1 from a place that is a hundred times the number of the path."""
START = (100.0 * np.arange(256.0)[:, None], np.ones((256, 1)))


def _is_late(x: np.ndarray) -> bool:
    """True for the guilty path from t = 0.95 on."""
    return bool(0.95 < x[0] - 100.0 * GUILTY < 50.0)


def _is_first(x: np.ndarray) -> bool:
    """True for a path of the first block from its start on."""
    return bool(abs(x[0] - 100.0 * FIRST) < 50.0)


@cache
def _at_once() -> dict[str, Any]:
    return {"observe": {"place": lambda q, p: _asked(q, _is_first)}, "system": FREE}


@dataclass(frozen=True)
class Last(da.Statistic):
    """A statistic that calls Python back when a run is over."""

    def functions(self) -> dict[str, Any]:
        return {"q": lambda q, p: q[0]}

    def start(self, values: Any) -> Any:
        return jnp.zeros_like(values["q"])

    def observe(self, memory: Any, values: Any, mask: Any, t: Any) -> tuple[Any, Any]:
        return jnp.where(mask, values["q"], memory), {}

    def finish(self, memory: Any, mask: Any) -> Any:
        return {"sum": jnp.sum(jax.vmap(lambda x: _asked(x[None], _is_late))(memory))}

    def merge(self, a: Any, b: Any) -> Any:
        return {"sum": a["sum"] + b["sum"]}

    def result(self, data: Any, t: Any) -> Any:
        return data["sum"]


def _statistic() -> dict[str, Any]:
    return {
        "observe": {"place": lambda q, p: q},
        "statistics": {"last": Last()},
        "system": FREE,
    }


def _observable() -> dict[str, Any]:
    return {"observe": {"place": lambda q, p: _asked(q, _is_late)}, "system": FREE}


def _force() -> dict[str, Any]:
    system = da.System(H=FREE.H, F=lambda q, p: 1e-9 * _asked(q, _is_late), dim=1)
    return {"observe": {"place": lambda q, p: q}, "system": system}


def _axis() -> dict[str, Any]:
    axis = da.Axis(lambda q, p: _asked(q, _is_late)[0], 0.0, 3e4, bins=4)
    return {
        "observe": {"place": lambda q, p: q},
        "histograms": {"q": da.Histogram(axis)},
        "system": FREE,
    }


USERS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "an observable": (_observable, f"path {GUILTY} at t = 1.4"),
    "a force": (_force, f"path {GUILTY} in the step from t = 0.9"),
    "an axis of a histogram": (_axis, f"path {GUILTY} at t = 1.4"),
    "an observable of the start": (_at_once, f"path {FIRST} at t = 0"),
    "a statistic at the end": (_statistic, f"path {GUILTY} at t = 2"),
}
WHERE = ("here", "on a worker")


@kind(
    "A function of the user raises an exception in the middle of a run",
    "An error with its message that names the path and the time.",
    [f"{what}, {where}" for what in USERS for where in WHERE],
    fast=["an observable, here", "an observable of the start, here"],
)
def users_function(way: str, ground: Ground) -> None:
    what, _, where = way.partition(", ")
    make, text = USERS[what]
    options = {"histograms": {}, "initial": START, "paths": 256, **make()}
    with ThreadPoolExecutor(1) as pool:
        options |= {"executor": pool} if where == "on a worker" else {}
        with pytest.raises(BlockError, match=rf"{text}: ZeroDivisionError: as it had to come\."):
            simulate(**options)


@kind(
    "A run is told to stop while it looks for the path of an exception",
    "It stops at once.",
    ["in its first attempt", "in its fifth attempt"],
    fast=["in its fifth attempt"],
)
def stopped_search(way: str, ground: Ground) -> None:
    tried, calls = blame._Search.tried, []

    def told(search: Any, *args: Any) -> Any:
        calls.append(args)
        if len(calls) == (1 if "first" in way else 5):
            search.stop.set()
        return tried(search, *args)

    ground.patch.setattr(blame._Search, "tried", told)
    options = {"histograms": {}, "initial": START, "paths": 256, **_at_once()}
    with pytest.raises(da.Interrupted, match="nothing was saved"):
        simulate(**options)
    assert len(calls) in (1, 5)


@kind(
    "A device is lost",
    "The error names the paths and times of the leg, and no path that has nothing to do with it.",
    ["in leg 3"],
    fast=["in leg 3"],
)
def lost_device(way: str, ground: Ground) -> None:
    lost = jax.errors.JaxRuntimeError("INTERNAL: the device is lost")
    run_leg, calls = blocks.run_leg, []

    def gone(*args: Any) -> Any:
        raise lost

    def leg(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            ground.patch.setattr(jax, "block_until_ready", gone)
            raise lost
        return run_leg(*args)

    ground.patch.setattr(blocks, "run_leg", leg)
    text = r"one of the paths 64 to 127 between t = 0 and t = 1\.8: .*is lost\. .*goes on"
    with pytest.raises(BlockError, match=text):
        simulate(ground.path)
    ground.patch.undo()
    ground.goes_on(1)


@kind(
    "The exception does not come again",
    "The error names the paths and times of the leg.",
    ["a connection that was lost once"],
    fast=["a connection that was lost once"],
)
def once(way: str, ground: Ground) -> None:
    _failing_leg(ground, ConnectionError("it was lost"), 3)
    text = r"paths 64 to 127 between t = 0 and t = 1\.8: it was lost\. .*goes on from there"
    with pytest.raises(BlockError, match=text):
        simulate(ground.path)
    ground.patch.undo()
    ground.goes_on(1)


@kind(
    "The sampler of the initial states raises an exception, or gives NaN",
    "An error that names the path.",
    ["an exception", "NaN"],
)
def users_sampler(way: str, ground: Ground) -> None:
    def sampler(key: Any) -> tuple[Any, Any]:
        q, p = jax.random.normal(key, (2, 1))
        if way == "NaN":
            return jnp.where(q > 2.0, jnp.nan, q), p
        return _asked(q, lambda x: bool(x[0] > 2.0)), p

    guilty, message = (BlockError, r"path (\d+) at its start: ZeroDivision"), r"path (\d+)"
    error, text = (ValueError, message) if way == "NaN" else guilty
    with pytest.raises(error, match=text) as caught:
        simulate(initial=sampler, system=FREE, observe={"q": lambda q, p: q}, histograms={})
    number = int(str(caught.value).partition("path ")[2].split()[0].rstrip(":"))
    starts = simulate(
        initial=lambda key: tuple(jax.random.normal(key, (2, 1))), system=FREE,
        observe={"q": lambda q, p: q}, histograms={}, dt=2.0, keep="all",
    )  # fmt: skip
    assert starts.q[0, number, 0] > 2.0


@dataclass(frozen=True)
class Brittle(da.Statistic):
    """A statistic whose host code fails from some count on."""

    most: float

    def functions(self) -> dict[str, Any]:
        return {"q": lambda q, p, params: q[0]}

    def observe(self, memory: Any, values: Any, mask: Any, t: Any) -> tuple[Any, Any]:
        return memory, {"count": jnp.sum(mask)}

    def merge(self, a: Any, b: Any) -> Any:
        if a["count"][0] >= self.most:
            raise ArithmeticError("the sum is too large")
        return {"count": a["count"] + b["count"]}

    def result(self, data: Any, t: Any) -> Any:
        return data["count"]


@kind(
    "A statistic of the user raises an exception when blocks are merged",
    "The exception, with the paths that were merged; what was done is saved.",
    ["in block 2", "in block 4"],
)
def users_statistic(way: str, ground: Ground) -> None:
    block = int(way[-1])
    with pytest.raises(ArithmeticError, match="the sum is too large") as caught:
        simulate(ground.path, statistics={"sum": Brittle(64.0 * (block - 1))})
    notes = " ".join(caught.value.__notes__)
    assert f"the paths {64 * (block - 1)} to" in notes and "goes on from there" in notes
    header = checkpoint.archive.read_header(ground.path, checkpoint.KIND, checkpoint.SCHEMA)
    assert header is not None and header["blocks"] == block - 1


@kind(
    "A path cannot be computed",
    'It is left out from then on, with a warning, or, with on_failure="raise", an error; both name '
    "path and time, and what was done is saved.",
    ["warned of", "raised"],
)
def lost_path(way: str, ground: Ground) -> None:
    q0 = np.full((256, 1), 1.0)
    q0[GUILTY] = 1e200
    wild = da.System(H=lambda q, p: p @ p / 2 + (q @ q) ** 2, dim=1)
    options = {"system": wild, "initial": (q0, np.zeros((256, 1))), "paths": 256}
    options |= {"observe": {"q": lambda q, p: q}, "histograms": {}}
    text = rf"1 of 256 paths failed .*path {GUILTY} at t = 0\.1"
    if way == "warned of":
        with pytest.warns(RuntimeWarning, match=text):
            run = simulate(ground.path, **options)
        assert run.failed == 1 and list(run.count) == [256, 255, 255, 255]
        return
    with pytest.raises(RuntimeError, match=text) as caught:
        simulate(ground.path, on_failure="raise", **options)
    assert "goes on from there" in " ".join(caught.value.__notes__)


@kind(
    "The terminal is gone",
    "The right numbers, without a line of progress.",
    ["a broken pipe", "a closed stream", "no stream"],
    fast=["a broken pipe"],
)
def terminal(way: str, ground: Ground) -> None:
    errors = {"a broken pipe": BrokenPipeError(32, "Broken pipe"), "a closed stream": ValueError()}

    class Gone:
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            raise errors[way]

    ground.patch.setattr(progress, "DELAY", -1.0)
    ground.patch.setattr(sys, "stderr", None if way == "no stream" else Gone())
    run = simulate(ground.path, progress=True)
    ground.patch.undo()
    ground.is_right(run)


@kind(
    "The lock is left by a run that was killed, or cannot be had",
    "A left lock is taken over; one that is held, or not ours, is refused by name; where there "
    "are no locks, runs go without.",
    ["left by a killed run", "held by another run", "the file of somebody", "a folder", "no locks"],
    fast=["left by a killed run", "held by another run"],
)
def locks(way: str, ground: Ground) -> None:
    file = ground.folder / ".run.ckpt.lock"
    if way == "left by a killed run":
        file.write_bytes(b"dalembert process 1 on elsewhere")
        ground.is_right(simulate(ground.path))
        assert not file.exists()
        return
    if way == "held by another run":
        with lock.held(ground.path), pytest.raises(BlockingIOError, match="in use by another run"):
            simulate(ground.path)
    elif way == "the file of somebody":
        file.write_bytes(b"mine")
    elif way == "a folder":
        file.mkdir()
    else:
        ground.patch.setattr(lock, "fcntl", None)
    if file.exists():
        with pytest.raises(ValueError, match=r"run.ckpt.lock is in the way of the checkpoint"):
            simulate(ground.path)
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    ground.goes_on()
