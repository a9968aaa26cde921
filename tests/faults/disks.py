"""Faults while a file is written: the process is killed, the power goes, the disk fails or is slow.

A write is a sequence of calls of the operating system. What a killed process leaves is what the
disk holds between two of them, so the folder is copied there, and the copy is gone on with.
"""

import errno
import os
import pathlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import dalembert as da
from dalembert.ensemble import checkpoint
from faults.rule import BLOCKS, Ground, kind, simulate, undisturbed

MOMENTS = (
    "before the file is opened",
    "when the file is empty",
    "in the middle of writing",
    "before all of it is on the disk",
    "before the old one is renamed",
    "between both renamings",
    "after the renaming",
)
SYNCED = MOMENTS.index("before the old one is renamed")
CALLS = ("opening", "writing", "syncing", "renaming")


class _Stream:
    """A file that says when it is written."""

    def __init__(self, stream: Any, on_write: Callable[[], None]) -> None:
        self._stream, self._on_write = stream, on_write

    def write(self, data: Any) -> int:
        self._on_write()
        return self._stream.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: Any) -> None:
        self._stream.close()


@contextmanager
def watched(on_moment: Callable[[str, int], None], endings: tuple[str, ...]) -> Iterator[None]:
    """Call a function at every moment of writing files of such names, with how many there were."""
    open_, fsync, replace = pathlib.Path.open, os.fsync, os.replace
    count, writes = 0, 0

    def opened(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        nonlocal count, writes
        if mode != "wb" or not str(path).endswith(endings):
            return open_(path, mode, *args, **options)
        count, writes = count + 1, 0
        on_moment(MOMENTS[0], count)
        stream = open_(path, mode, *args, **options)

        def on_write() -> None:
            nonlocal writes
            writes += 1
            if writes == 1:
                on_moment(MOMENTS[1], count)
            if writes == 40:
                stream.flush()
                on_moment(MOMENTS[2], count)

        return _Stream(stream, on_write)

    def synced(number: int) -> None:
        on_moment(MOMENTS[3], count)
        fsync(number)

    def replaced(old: Any, new: Any) -> None:
        if not str(old).endswith(endings):
            on_moment(MOMENTS[4], count)
            replace(old, new)
            return
        on_moment(MOMENTS[5], count)
        replace(old, new)
        on_moment(MOMENTS[6], count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pathlib.Path, "open", opened)
        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "replace", replaced)
        yield


def _snapshot(ground: Ground, at: str, write: int) -> pathlib.Path:
    """The folder of a run as it was at a moment of its n-th write."""
    copy = ground.folder / "copy"
    here = ground.folder / "here"
    here.mkdir()

    def on_moment(moment: str, count: int) -> None:
        if (moment, count) == (at, write):
            shutil.copytree(here, copy)

    with watched(on_moment, (".new",)):
        ground.is_right(simulate(here / "run.ckpt"))
    assert copy.exists(), "the moment has come"
    return copy / "run.ckpt"


def _ways(moments: tuple[str, ...], writes: tuple[int, ...]) -> list[str]:
    found = [f"{moment}, write {n}" for n in writes for moment in moments]
    return [way for way in found if way != f"{MOMENTS[4]}, write 1"]


def _parsed(way: str) -> tuple[str, int]:
    moment, _, number = way.rpartition(", write ")
    return moment, int(number)


@kind(
    "The process is killed while it writes a checkpoint",
    "The same call goes on from the newest checkpoint that was complete on the disk.",
    _ways(MOMENTS, (1, 2, 4)),
    fast=[f"{MOMENTS[2]}, write 2", f"{MOMENTS[5]}, write 2"],
)
def killed(way: str, ground: Ground) -> None:
    moment, write = _parsed(way)
    left = _snapshot(ground, moment, write)
    ground.goes_on(write - (MOMENTS.index(moment) < SYNCED), left)


@kind(
    "It is killed, goes on, and is killed again in its first write",
    "Nothing that was complete on the disk is written over before there is something better.",
    _ways(MOMENTS, (3,)),
    fast=[f"{MOMENTS[5]}, write 3"],
)
def killed_twice(way: str, ground: Ground) -> None:
    moment, write = _parsed(way)
    left = _snapshot(ground, moment, write)
    copy = ground.folder / "again"

    def on_moment(at: str, count: int) -> None:
        if (at, count) == (MOMENTS[1], 1):
            shutil.copytree(left.parent, copy)

    with watched(on_moment, (".new",)):
        ground.is_right(simulate(left))
    ground.goes_on(write - (MOMENTS.index(moment) < SYNCED), copy / "run.ckpt")


POWER = {
    "nothing of it is there": lambda data: b"",
    "half of it is there": lambda data: data[: len(data) // 2],
}
POWER["zeros in its place"] = lambda data: bytes(len(data))


@kind(
    "The power fails before a checkpoint is on the disk",
    "The same call goes on from the checkpoint before.",
    [f"{part}, write {n}" for n in (1, 3) for part in POWER],
    fast=["zeros in its place, write 3"],
)
def power_cut(way: str, ground: Ground) -> None:
    part, write = _parsed(way)
    left = _snapshot(ground, MOMENTS[3], write)
    new = left.with_name("run.ckpt.new")
    new.write_bytes(POWER[part](new.read_bytes()))
    ground.goes_on(write - 1, left)


ERRORS = ("ENOSPC", "EDQUOT", "EIO", "EROFS")


def _failing(call: str, name: str, write: int) -> Callable[[str, int], None]:
    code = getattr(errno, name)
    moments = {
        "opening": MOMENTS[0], "writing": MOMENTS[2], "syncing": MOMENTS[3], "renaming": MOMENTS[5]
    }  # fmt: skip

    def on_moment(moment: str, count: int) -> None:
        if moment == moments[call] and count >= write:
            raise OSError(code, os.strerror(code))

    return on_moment


@kind(
    "The disk is full or broken when a checkpoint is written",
    "An error that names the file and the reason; the checkpoint before stays, and no part of "
    "a file. When there is room again the same call goes on.",
    [f"{call} fails with {name}" for call in CALLS for name in ERRORS],
    fast=["writing fails with ENOSPC", "renaming fails with EIO"],
)
def broken_disk(way: str, ground: Ground) -> None:
    call, _, name = way.partition(" fails with ")
    with (
        watched(_failing(call, name, 3), (".new",)),
        pytest.raises(OSError, match=r"could not write .*run.ckpt: ") as caught,
    ):
        simulate(ground.path)
    assert caught.value.errno == getattr(errno, name)
    assert "goes on from what was saved before" in "".join(caught.value.__notes__)
    assert not list(ground.folder.glob(".*"))
    ground.goes_on(2)


@kind(
    "The disk is full when the last checkpoint is written",
    "The result is returned, with a warning that names the file.",
    [f"{call} fails with ENOSPC" for call in CALLS],
    fast=["syncing fails with ENOSPC"],
)
def broken_at_last(way: str, ground: Ground) -> None:
    fails = _failing(way.partition(" fails")[0], "ENOSPC", BLOCKS + 1)
    with (
        watched(fails, (".new",)),
        pytest.warns(RuntimeWarning, match=r"complete, but its checkpoint is not: .*run.ckpt: No"),
    ):
        ground.is_right(simulate(ground.path))
    ground.goes_on(BLOCKS)


@kind(
    "The disk is full or broken when a result is saved",
    "An error that names the file and the reason; a file of that name stays as it was.",
    [f"{call} fails with {name}" for call in CALLS for name in ("ENOSPC", "EIO")],
    fast=["writing fails with EIO"],
)
def broken_save(way: str, ground: Ground) -> None:
    call, _, name = way.partition(" fails with ")
    path, run = ground.folder / "run.npz", undisturbed()
    run.save(path)
    before = path.read_bytes()
    with (
        watched(_failing(call, name, 1), (".partial",)),
        pytest.raises(OSError, match=r"could not write .*run.npz: "),
    ):
        run.save(path)
    assert path.read_bytes() == before and list(ground.folder.iterdir()) == [path]
    ground.is_right(da.load(path))


@kind(
    "The disk is slow",
    "The right numbers, later.",
    [f"{what} takes a while" for what in ("opening", "syncing", "renaming")],
    fast=["syncing takes a while"],
)
def slow_disk(way: str, ground: Ground) -> None:
    moment = {"opening": MOMENTS[0], "syncing": MOMENTS[3], "renaming": MOMENTS[5]}[way.split()[0]]
    with watched(lambda at, _: time.sleep(0.05) if at == moment else None, (".new",)):
        ground.is_right(simulate(ground.path))
    ground.goes_on(BLOCKS)


class Ended(BaseException):
    """In place of the end of the process."""


SIGNALS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}


@kind(
    "A signal comes while a checkpoint is written",
    "The run is saved with all blocks that are done, and says that the same call goes on.",
    [f"{name} {m}, write 2" for name in SIGNALS for m in MOMENTS],
    fast=[f"Ctrl-C {MOMENTS[5]}, write 2", f"SIGTERM {MOMENTS[2]}, write 2"],
)
def signalled(way: str, ground: Ground) -> None:
    name, _, rest = way.partition(" ")
    at, write = _parsed(rest)
    told = []

    def on_moment(moment: str, count: int) -> None:
        if (moment, count) == (at, write) and not told:
            told.append(count)
            signal.raise_signal(SIGNALS[name])

    def end(process: int, number: int) -> None:
        raise Ended(process, number)

    ground.patch.setattr(os, "kill", end)
    with watched(on_moment, (".new",)), pytest.raises((da.Interrupted, Ended)):
        simulate(ground.path)
    assert told and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert sorted(p.name for p in ground.folder.iterdir()) == ["run.ckpt", "run.ckpt.previous"]
    ground.goes_on(2)


@kind(
    "A signal comes while a result is saved",
    "Ctrl-C leaves the file of that name as it was, or the new one, and no part of one.",
    [f"Ctrl-C {m}" for m in MOMENTS if m != MOMENTS[4]],
    fast=[f"Ctrl-C {MOMENTS[3]}"],
)
def signalled_save(way: str, ground: Ground) -> None:
    path, run, at = ground.folder / "run.npz", undisturbed(), way.partition(" ")[2]
    run.save(path)

    def on_moment(moment: str, count: int) -> None:
        if moment == at:
            signal.raise_signal(signal.SIGINT)

    with watched(on_moment, (".partial",)), pytest.raises(KeyboardInterrupt):
        run.save(path)
    assert list(ground.folder.iterdir()) == [path]
    ground.is_right(da.load(path))


@kind(
    "Somebody deletes files of a run that is running",
    "They are written again, or an error names what is missing.",
    ["the checkpoint", "the one before", "both", "the lock", "the folder"],
    fast=["both", "the folder"],
)
def deleted(way: str, ground: Ground) -> None:
    here = ground.folder / "here"
    here.mkdir()
    names = {"the checkpoint": ["run.ckpt"], "the one before": ["run.ckpt.previous"]}
    names |= {"both": ["run.ckpt", "run.ckpt.previous"], "the lock": [".run.ckpt.lock"]}

    def on_moment(moment: str, count: int) -> None:
        if (moment, count) == (MOMENTS[6], 2):
            if way == "the folder":
                shutil.rmtree(here)
            for name in names.get(way, ()):
                (here / name).unlink()

    with watched(on_moment, (".new",)):
        if way == "the folder":
            with pytest.raises(FileNotFoundError, match=r"could not write .*run.ckpt: No such"):
                simulate(here / "run.ckpt")
            here.mkdir()
        else:
            ground.is_right(simulate(here / "run.ckpt"))
    ground.goes_on(0 if way == "the folder" else BLOCKS, here / "run.ckpt")


@kind(
    "There is no memory to write a checkpoint",
    "A MemoryError; the checkpoint before stays.",
    ["in write 1", "in write 3"],
    fast=["in write 3"],
)
def no_memory_to_write(way: str, ground: Ground) -> None:
    encode, calls, last = checkpoint.archive.encode, [], int(way[-1])

    def full(*args: Any) -> None:
        calls.append(args)
        if len(calls) >= last:
            raise MemoryError("no room")
        encode(*args)

    ground.patch.setattr(checkpoint.archive, "encode", full)
    with pytest.raises(MemoryError, match="goes on from what was saved before"):
        simulate(ground.path)
    ground.patch.undo()
    ground.goes_on(last - 1)
