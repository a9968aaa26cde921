"""Checkpoints: what a run has done so far, in a file that is good at every moment.

The file holds the merged statistics of the first blocks and the states of the blocks that were
running; also, if that is not much or is asked for, the finished blocks as they were when a longer
run would not have ended, so that one goes on from there. It is written as `NAME.new` and then takes
the place of the one before, which is kept as `NAME.previous`. In a run of several processes the
first one writes the file, and the others write the blocks they were running to `NAME.process1`,
`NAME.process2`, …

Files that a run has not written itself are neither replaced nor deleted.
"""

import json
import os
import re
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dalembert.ensemble import archive
from dalembert.ensemble.blocks import Pending, Work, pending_from_record, pending_to_record
from dalembert.ensemble.lock import held
from dalembert.ensemble.settings import Settings
from dalembert.ensemble.tally import Tally

KIND, SCHEMA = "dalembert checkpoint", 3

LONGEST = ".process9999.previous"
"""The longest ending of a name beside that of the file."""

MAX_VALUES = 100
"""Characters of two values that differ, up to which they are printed."""


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run saves itself.

    Attributes:
        path: the file.
        seconds: save when the last save is this old.
        blocks: save when so many blocks of paths were finished since.
        ends: keep what a run to a later `t_end` needs to go on from the end of this one: the states
            and saves of all paths. By default if they take at most 64 MiB.
    """

    path: Any
    seconds: float = 30.0
    blocks: int = 100_000
    ends: bool | None = None

    def __post_init__(self) -> None:
        if not self.seconds >= 0 or self.blocks < 1:
            raise ValueError(
                f"a checkpoint needs seconds ≥ 0 and blocks ≥ 1, not {self.seconds}, {self.blocks}."
            )
        archive.check_name(self.path, LONGEST)
        folder = Path(self.path).absolute().parent
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} for the checkpoint {self.path}.")
        archive.real_path(self.path)


@dataclass
class Progress:
    """How far a run is: its first `blocks` blocks are merged, others may be under way.

    Attributes:
        ends: merged blocks, by number, where a run to a later time goes on.
    """

    blocks: int = 0
    tally: Tally | None = None
    kept: tuple[np.ndarray, np.ndarray] | None = None
    pending: dict[int, Pending] = field(default_factory=dict)
    seconds: float = 0.0
    compile_seconds: float = 0.0
    ends: dict[int, Pending] = field(default_factory=dict)


class CheckpointFile:
    """The file of one process of a run."""

    def __init__(self, options: Checkpoint, identity: Mapping[str, Any], process: int = 0) -> None:
        # As the file will give it back: tuples are lists there.
        self.options, self.identity = options, json.loads(json.dumps(identity))
        self.base = archive.real_path(options.path)
        self.path = self.base if process == 0 else self._beside(f".process{process}")
        self.written_at, self.written_blocks = time.monotonic(), 0
        self.has_left_new = False

    def _beside(self, ending: str) -> Path:
        return self.base.with_name(self.base.name + ending)

    def held(self) -> AbstractContextManager[None]:
        """See that the file can be written, and keep other runs from it."""
        return held(self.path)

    def is_due(self, blocks: int) -> bool:
        """Whether it is time to write again."""
        age = time.monotonic() - self.written_at
        return age >= self.options.seconds or blocks - self.written_blocks >= self.options.blocks

    def write(self, progress: Progress) -> None:
        """Replace the file, keeping the one before."""
        header: dict[str, Any] = {
            "format": KIND,
            "schema": SCHEMA,
            "identity": self.identity,
            "blocks": progress.blocks,
            "seconds": progress.seconds,
            "compile_seconds": progress.compile_seconds,
            "tally": None,
            "pending": {},
            "ends": {},
        }
        arrays: dict[str, np.ndarray] = {}
        if progress.tally is not None:
            header["tally"], found = progress.tally.to_record()
            arrays |= {f"tally/{name}": x for name, x in found.items()}
        for kind, blocks in (("pending", progress.pending), ("ends", progress.ends)):
            for number, pending in blocks.items():
                header[kind][number], found = pending_to_record(pending)
                arrays |= {f"{kind}/{number}/{name}": x for name, x in found.items()}
        if progress.kept is not None:
            arrays |= dict(zip(("kept/q", "kept/p"), progress.kept, strict=True))
        new = Path(f"{self.path}.new")
        if self.has_left_new:
            # The run before was killed when it was about to do so, and the name is needed.
            self._put_in_place(new)
            self.has_left_new = False
        archive.write_directly(new, lambda f: archive.encode(f, header, arrays), self.path)
        self._put_in_place(new)
        self.written_at, self.written_blocks = time.monotonic(), progress.blocks

    def _put_in_place(self, new: Path) -> None:
        with archive.naming(self.path):
            try:
                if self.path.exists():
                    os.replace(self.path, f"{self.path}.previous")
            finally:
                # Also if Ctrl-C comes between the two, or the one before cannot be kept.
                os.replace(new, self.path)

    def clean_up(self) -> None:
        """Delete what the processes wrote beside the file of a run that is complete."""
        for path in self._of_processes():
            header = archive.read_header(path, KIND, SCHEMA)
            is_ours = archive.is_marked(path, KIND) if header is None else self._is_same(header)
            if is_ours:
                path.unlink(missing_ok=True)

    def _is_same(self, header: Mapping[str, Any]) -> bool:
        return header.get("identity") == self.identity

    def _of_processes(self) -> list[Path]:
        """Files of single processes, also what a killed one left unfinished."""
        name = re.compile(re.escape(self.base.name) + r"\.process[1-9][0-9]*(\.new|\.previous)?")
        found = (p for p in self.base.parent.iterdir() if name.fullmatch(p.name))
        return sorted(p for p in found if p.is_file())

    def read(self, work: Work) -> Progress:
        """The newest readable state of this run; nothing done if there is none at all."""
        for ending in ("", ".new", ".previous"):
            self._check_owner(Path(f"{self.path}{ending}"))
        progress = self._read_newest(work)
        for path in self._of_processes():
            try:
                for number, pending in self._read_one(path, work).pending.items():
                    known = progress.pending.get(number)
                    if known is None or known.unit < pending.unit:
                        progress.pending[number] = pending
            except (DifferentRunError, archive.OtherVersionError):
                raise
            except ValueError as error:
                # One that was being written when its process was killed is no loss.
                if path.suffix != ".new":
                    text = f"{error}. Its blocks are run again."
                    warnings.warn(text, RuntimeWarning, stacklevel=2)
        merged = range(progress.blocks)
        progress.pending = {n: p for n, p in progress.pending.items() if n not in merged}
        return progress

    def _check_owner(self, path: Path) -> None:
        """Refuse to put a checkpoint in the place of what is none."""
        archive.real_path(path)
        if path.exists() and not archive.is_marked(path, KIND) and not archive.is_blank(path):
            raise ValueError(
                f"{path} is not a {KIND} file, and stays as it is: give another name for the "
                "checkpoint, or delete it."
            )

    def _read_newest(self, work: Work) -> Progress:
        newest, found = "", None
        damaged: list[str] = []
        for ending in (".new", "", ".previous"):
            path = self._beside(ending)
            if not path.is_file():
                continue
            try:
                progress = self._read_one(path, work)
            except (DifferentRunError, archive.OtherVersionError):
                raise
            except MemoryError:
                # An older one need not fit beside the newest.
                if found is None:
                    raise
            except ValueError as error:
                damaged += [] if ending == ".new" else [str(error)]
            else:
                if found is None or _extent(progress) > _extent(found):
                    newest, found = ending, progress
        if damaged and found is not None:
            warnings.warn(
                f"{damaged[0]}. The run goes on from the checkpoint before it.",
                RuntimeWarning,
                stacklevel=2,
            )
        elif damaged:
            raise ValueError(
                f"{damaged[0]}, and there is no good one before it. Give another "
                "name, or delete it to start again."
            )
        self.has_left_new = newest == ".new" and self.path == self.base
        return found or Progress()

    def _read_one(self, path: Path, work: Work) -> Progress:
        header, arrays = archive.read(path, KIND, SCHEMA)
        ended = self._check_identity(path, header.get("identity"))
        if ended is not None:
            return self._read_earlier(path, header, arrays, work, ended)
        with archive.reading(path, KIND):
            tally = None
            if header["tally"] is not None:
                tally = Tally.from_record(header["tally"], archive.under("tally/", arrays))
            kept = (arrays["kept/q"], arrays["kept/p"]) if "kept/q" in arrays else None
            pending, ends = (_blocks(x, header, arrays, work) for x in ("pending", "ends"))
            done = Progress(int(header["blocks"]), tally, kept, pending, *_times(header), ends)
            missing = _missing(done, work.settings)
            if missing:
                raise ValueError(missing)
        return done

    def _read_earlier(
        self, path: Path, header: Any, arrays: Mapping[str, np.ndarray], work: Work, ended: float
    ) -> Progress:
        """A run that was to end earlier, as the beginning of this one: all blocks go on."""
        settings = work.settings
        before = replace(settings.schedule, steps=round(ended / settings.dt))
        with archive.reading(path, KIND):
            found = _blocks("pending", header, arrays, work, before.shared_units)
            found |= _blocks("ends", header, arrays, work, before.shared_units)
            merged, times = int(header["blocks"]), _times(header)
        if not found.keys() >= set(range(merged)):
            raise DifferentRunError(
                f"{path} is of a run to t = {ended:g}, without the states from which it could go "
                f"on to t = {settings.t_end:g}: they take more than is kept unasked. Begin with "
                "checkpoint=da.Checkpoint(FILE, ends=True), or give another file."
            )
        return Progress(0, None, None, found, *times)

    def _check_identity(self, path: Path, saved: Any) -> float | None:
        """Refuse to go on with a run that was asked for with other settings.

        The end of one that differs in nothing else than an earlier one.
        """
        if not isinstance(saved, dict):
            raise ValueError(f"{path} is not a readable {KIND} file: it has no settings")
        different = differences("", saved, self.identity, ("in the file", "now"))
        if not different:
            return None
        ended = saved.get("t_end")
        is_earlier = isinstance(ended, float) and ended < self.identity["t_end"]
        if is_earlier and [text.partition(" ")[0] for text in different] == ["t_end"]:
            return ended
        raise DifferentRunError(
            f"{path} belongs to another run. What differs: {'; '.join(different)}. "
            "Give the settings it was begun with, of which t_end alone may grow, or another file."
        )


def _blocks(
    kind: str,
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    work: Work,
    units: int | None = None,
) -> dict[int, Pending]:
    """The unfinished blocks of a file, or those at their ends; with `units` not beyond them."""
    return {
        int(number): pending_from_record(work, record, archive.under(f"{kind}/{number}/", arrays))
        for number, record in header.get(kind, {}).items()
        if units is None or int(record["unit"]) <= units
    }


def _times(header: Mapping[str, Any]) -> tuple[float, float]:
    """How long a run has taken so far, and how much of it was compilation."""
    return float(header["seconds"]), float(header.get("compile_seconds", 0.0))


def remove_checkpoint(path: Path) -> None:
    """Delete a checkpoint that is of no more use, and what is kept with it."""
    for ending in ("", ".previous", ".new"):
        file = Path(f"{path}{ending}")
        if file.is_file() and archive.is_marked(file, KIND):
            file.unlink()


class DifferentRunError(ValueError):
    """A checkpoint was found whose settings are not those of the run."""


def _missing(done: Progress, settings: Settings) -> str:
    """What a checkpoint of these settings lacks."""
    numbers = range(settings.blocks)
    if not 0 <= done.blocks <= settings.blocks or any(n not in numbers for n in done.pending):
        return "it has other blocks"
    if done.blocks and done.tally is None:
        return "it has no statistics"
    if settings.keep == "nothing":
        return ""
    times = () if settings.keep == "final" else (settings.schedule.saves,)
    paths = min(done.blocks * settings.block_paths, settings.run_paths)
    shape = (*times, paths, settings.system.dim)
    is_there = done.kept is not None and all(x.shape == shape for x in done.kept)
    return "" if is_there else "it does not have the states to be kept"


def _extent(progress: Progress) -> tuple[int, int]:
    return progress.blocks, sum(p.unit for p in progress.pending.values())


def differences(name: str, a: Any, b: Any, where: tuple[str, str]) -> list[str]:
    """The names of what differs between two records, with the values that are short."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.get("name") != b.get("name"):
            return [f"{name} ({a.get('name')!r} {where[0]}, {b.get('name')!r} {where[1]})"]
        return [
            text
            for key in sorted({*a, *b})
            for text in differences(f"{name}.{key}".lstrip("."), a.get(key), b.get(key), where)
        ]
    # As texts, in which 0.0 is not −0.0, 2 is not 2.0, and NaN is itself.
    if json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True):
        return []
    values = f" ({a!r} {where[0]}, {b!r} {where[1]})"
    return [name + values if len(values) <= MAX_VALUES else name]
