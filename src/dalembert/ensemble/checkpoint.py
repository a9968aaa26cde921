"""Checkpoints: what a run has done so far, in a file that is good at every moment.

The file holds the merged statistics of the first blocks and the states of the blocks that were
running. It is replaced as a whole; the one before is kept beside it as `NAME.previous`. In a run of
several processes the first one writes the file, and the others write the blocks they were running
to `NAME.process1`, `NAME.process2`, …
"""

import glob
import json
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dalembert.ensemble import archive
from dalembert.ensemble.blocks import Pending, Work, pending_from_record, pending_to_record
from dalembert.ensemble.tally import Tally

__all__ = ["Checkpoint", "CheckpointFile", "Progress"]

KIND, SCHEMA = "dalembert checkpoint", 1

MAX_VALUES = 100
"""Characters of two values that differ, up to which they are printed."""


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run saves itself.

    Attributes:
        path: the file.
        seconds: save when the last save is this old.
        blocks: save when so many blocks of paths were finished since.
    """

    path: Any
    seconds: float = 30.0
    blocks: int = 100_000

    def __post_init__(self) -> None:
        if not self.seconds >= 0 or self.blocks < 1:
            raise ValueError(
                f"a checkpoint needs seconds ≥ 0 and blocks ≥ 1, not {self.seconds}, {self.blocks}."
            )
        folder = Path(self.path).absolute().parent
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} for the checkpoint {self.path}.")


@dataclass
class Progress:
    """How far a run is: its first `blocks` blocks are merged, others may be under way."""

    blocks: int = 0
    tally: Tally | None = None
    kept: tuple[np.ndarray, np.ndarray] | None = None
    pending: dict[int, Pending] = field(default_factory=dict)
    seconds: float = 0.0


class CheckpointFile:
    """The file of one process of a run."""

    def __init__(self, options: Checkpoint, identity: Mapping[str, Any], process: int = 0) -> None:
        # As the file will give it back: tuples are lists there.
        self.options, self.identity = options, json.loads(json.dumps(identity))
        base = Path(options.path)
        self.path = base if process == 0 else base.with_name(f"{base.name}.process{process}")
        self.written_at, self.written_blocks = time.monotonic(), 0

    @property
    def previous(self) -> Path:
        return self.path.with_name(self.path.name + ".previous")

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
            "tally": None,
            "pending": {},
        }
        arrays: dict[str, np.ndarray] = {}
        if progress.tally is not None:
            header["tally"], found = progress.tally.to_record()
            arrays |= {f"tally/{name}": x for name, x in found.items()}
        for number, pending in progress.pending.items():
            header["pending"][number], found = pending_to_record(pending)
            arrays |= {f"pending/{number}/{name}": x for name, x in found.items()}
        if progress.kept is not None:
            arrays |= dict(zip(("kept/q", "kept/p"), progress.kept, strict=True))
        new = self.path.with_name(self.path.name + ".new")
        archive.write(new, header, arrays)
        if self.path.exists():
            os.replace(self.path, self.previous)
        os.replace(new, self.path)
        self.written_at, self.written_blocks = time.monotonic(), progress.blocks

    def clean_up(self) -> None:
        """Delete what the processes wrote beside the file of a run that is complete."""
        for path in [*self._beside(), *self._beside(".partial")]:
            path.unlink(missing_ok=True)

    def _beside(self, ending: str = "") -> list[Path]:
        """Files of single processes, or what a killed one left unfinished."""
        base = Path(self.options.path)
        name = glob.escape(base.name)
        pattern = f".{name}*{ending}" if ending else f"{name}.process*"
        return sorted(base.parent.glob(pattern))

    def read(self, work: Work) -> Progress:
        """The newest readable state of this run; nothing done if there is none at all."""
        progress = self._read_newest(Path(self.options.path), work)
        for path in self._beside():
            try:
                for number, pending in self._read_one(path, work).pending.items():
                    known = progress.pending.get(number)
                    if known is None or known.unit < pending.unit:
                        progress.pending[number] = pending
            except ValueError as error:
                warnings.warn(f"{error} Its blocks are run again.", RuntimeWarning, stacklevel=2)
        merged = range(progress.blocks)
        progress.pending = {n: p for n, p in progress.pending.items() if n not in merged}
        return progress

    def _read_newest(self, base: Path, work: Work) -> Progress:
        found: list[Progress] = []
        damaged: list[str] = []
        for ending in (".new", "", ".previous"):
            path = base.with_name(base.name + ending)
            if path.is_file():
                try:
                    found.append(self._read_one(path, work))
                except DifferentRunError:
                    raise
                except ValueError as error:
                    damaged.append(str(error))
        if damaged and found:
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
        return max(found, key=_extent, default=Progress())

    def _read_one(self, path: Path, work: Work) -> Progress:
        header, arrays = archive.read(path, KIND, SCHEMA)
        self._check_identity(path, header.get("identity"))
        try:
            tally = None
            if header["tally"] is not None:
                tally = Tally.from_record(header["tally"], archive.under("tally/", arrays))
            pending = {
                int(number): pending_from_record(
                    work, record, archive.under(f"pending/{number}/", arrays)
                )
                for number, record in header["pending"].items()
            }
            kept = (arrays["kept/q"], arrays["kept/p"]) if "kept/q" in arrays else None
            return Progress(int(header["blocks"]), tally, kept, pending, float(header["seconds"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a readable {KIND} file: {error!r}") from error

    def _check_identity(self, path: Path, saved: Any) -> None:
        """Refuse to go on with a run that was asked for with other settings."""
        differences = sorted(_differences("", saved, self.identity))
        if differences:
            raise DifferentRunError(
                f"{path} belongs to another run. What differs: {'; '.join(differences)}. "
                "Give the settings it was begun with, or another file."
            )


class DifferentRunError(ValueError):
    """A checkpoint was found whose settings are not those of the run."""


def _extent(progress: Progress) -> tuple[int, int]:
    return progress.blocks, sum(p.unit for p in progress.pending.values())


def _differences(name: str, saved: Any, now: Any) -> list[str]:
    if isinstance(saved, dict) and isinstance(now, dict):
        if saved.get("name") != now.get("name"):
            return [f"{name} ({saved.get('name')!r} in the file, {now.get('name')!r} now)"]
        return [
            text
            for key in {*saved, *now}
            for text in _differences(f"{name}.{key}".lstrip("."), saved.get(key), now.get(key))
        ]
    # As texts, in which 0.0 is not −0.0, 2 is not 2.0, and NaN is itself.
    if json.dumps(saved, sort_keys=True) == json.dumps(now, sort_keys=True):
        return []
    values = f" ({saved!r} in the file, {now!r} now)"
    return [name + values if len(values) <= MAX_VALUES else name]
