"""A small run for every fault, and the rule: it must come out right or say why not.

A kind of fault is a function of a way in which it happens and of the ground that it happens on. It
asserts what `happens` says, which the documentation prints.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import blocks, checkpoint
from dalembert.ensemble import settings as grains
from interrupted_run import differences

KINDS: list["Kind"] = []
BLOCKS = 4
SYSTEM = da.systems.damped_kubo()
AXIS = da.Axis(lambda q, p, params: q[0], -3.0, 3.0, bins=8)
OPTIONS: dict[str, Any] = {"dt": 0.1, "t_end": 2.0, "paths": 64 * BLOCKS - 9, "save_every": 7}


def simulate(path: Any = None, **options: Any) -> da.Run:
    """Four blocks, a checkpoint after each, and as few legs as can be, however slow they are."""
    given = {"observe": {"energy": SYSTEM.H}, "histograms": {"q": da.Histogram(AXIS)}}
    given |= {"keep": "final", "workers": 1, "progress": False} | OPTIONS | options
    file = None if path is None else da.Checkpoint(path, seconds=1e9, blocks=1)
    system, start = given.pop("system", SYSTEM), given.pop("initial", ([2.0], [0.0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grains, "CPU_GRAIN", grains.Grain(64, 5, 64))
        patch.setattr(blocks, "LEG_SECONDS", 1e9)
        return da.simulate(system, da.heun(), start, checkpoint=file, **given)


@cache
def undisturbed() -> da.Run:
    return simulate()


@dataclass
class Ground:
    """Where a fault happens: a folder that is empty at first, and tools for the fault."""

    folder: Path
    patch: pytest.MonkeyPatch
    found: list[int] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.folder / "run.ckpt"

    @property
    def previous(self) -> Path:
        return self.folder / "run.ckpt.previous"

    def saved(self, blocks: int = BLOCKS) -> bytes:
        """Leave the checkpoint of a run that was stopped after so many blocks."""
        add, stopped = checkpoint.CheckpointFile.write, []

        def stop(file: Any, done: Any) -> None:
            add(file, done)
            if done.blocks == blocks < BLOCKS and not stopped:
                stopped.append(True)
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoint.CheckpointFile, "write", stop)
            if blocks < BLOCKS:
                with pytest.raises(da.Interrupted):
                    simulate(self.path)
            else:
                simulate(self.path)
        return self.path.read_bytes()

    def is_right(self, run: da.Run) -> None:
        different = differences(run, undisturbed())
        assert not different, different

    def goes_on(self, least: int = 0, path: Path | None = None) -> None:
        """The same call, undisturbed, goes on from at least so many blocks, to the right bits."""
        read, found = checkpoint.CheckpointFile.read, []

        def watched(file: Any, work: Any) -> Any:
            progress = read(file, work)
            found.append(progress.blocks)
            return progress

        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            patch.setattr(checkpoint.CheckpointFile, "read", watched)
            warnings.simplefilter("ignore", RuntimeWarning)
            self.is_right(simulate(path or self.path))
        assert found[0] >= least, f"{found[0]} blocks of {least} are left"

    def is_right_or_said(
        self, call: Callable[[], da.Run], *errors: type[Exception], naming: str = ""
    ) -> Exception | None:
        """The rule: the right numbers, or an error that names the file."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                run = call()
            except errors as error:
                assert (naming or self.folder.name) in str(error), error
                return error
        self.is_right(run)
        return None


@dataclass(frozen=True)
class Kind:
    """Faults of one kind.

    Attributes:
        title: what it is.
        happens: what the library does, as the documentation says it.
        ways: in which ways it happens.
        inject: makes it happen in one of them, and asserts what it does.
        fast: ways that are tried in `make test`.
    """

    title: str
    happens: str
    ways: tuple[str, ...]
    inject: Callable[[str, Ground], None]
    fast: tuple[str, ...]


def kind(
    title: str, happens: str, ways: Sequence[str], fast: Sequence[str] = ()
) -> Callable[[Callable[[str, Ground], None]], Callable[[str, Ground], None]]:
    """Add a kind of fault to the list."""

    def add(inject: Callable[[str, Ground], None]) -> Callable[[str, Ground], None]:
        unknown = set(fast) - set(ways)
        assert not unknown and len(set(ways)) == len(ways), (title, unknown)
        KINDS.append(Kind(title, happens, tuple(ways), inject, tuple(fast)))
        return inject

    return add


def table() -> str:
    """All kinds as a table in Markdown."""
    rows = ["| fault | ways | what happens |", "|---|---|---|"]
    rows += [f"| {k.title} | {len(k.ways)} | {k.happens} |" for k in KINDS]
    return "\n".join(rows)


if __name__ == "__main__":
    # A run in a process of its own: FOLDER [t_end], after which it is said what came of it.
    folder, *rest = sys.argv[1:]
    print("ready", flush=True)
    try:
        found = simulate(Path(folder) / "run.ckpt", **({"t_end": float(rest[0])} if rest else {}))
        print("right" if np.isfinite(found.q).all() else "wrong", flush=True)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), flush=True)
