"""A run as one file: arrays in `.npz`, the rest in a JSON header, no pickle."""

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from dalembert.ensemble.run import Failures, Run
from dalembert.ensemble.statistics import Moments

__all__ = ["load", "save"]

SCHEMA = 1
FORMAT = "dalembert run"
UNREADABLE = (ValueError, KeyError, TypeError, EOFError, OSError, NotImplementedError)


def save(run: Run, path: Any) -> None:
    """Write a run; an existing file is replaced only when the new one is complete."""
    target = Path(path)
    header = {
        "format": FORMAT,
        "schema": SCHEMA,
        "observables": list(run.moments),
        "failures": vars(run.failures),
        "truncated": run.truncated,
        "residual": run.residual,
        "iterations": run.iterations,
        "provenance": run.provenance,
    }
    arrays = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8), "t": run.t}
    for i, moments in enumerate(run.moments.values()):
        arrays |= {f"{field}_{i}": value for field, value in moments._asdict().items()}
    arrays |= {name: x for name, x in (("q", run.q), ("p", run.p)) if x is not None}
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            np.savez_compressed(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(f"could not write {target}: {error}") from error


def load(path: Any) -> Run:
    """Read a run that `Run.save` wrote.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, or is not a run of this version of the format.
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"no such file: {source}")
    try:
        with source.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            header = json.loads(bytes(file["header"]))
            if header.get("format") != FORMAT or header.get("schema") != SCHEMA:
                raise ValueError("its header is not one of a run of this version")
            return _assemble(header, {name: file[name] for name in file.files})
    except (*UNREADABLE, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{source} is not a readable run file: {error}") from error


def _assemble(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Run:
    moments = {
        name: Moments(*(arrays[f"{field}_{i}"] for field in Moments._fields))
        for i, name in enumerate(header["observables"])
    }
    return Run(
        arrays["t"],
        moments,
        Failures(**header["failures"]),
        header["truncated"],
        header["residual"],
        header["iterations"],
        arrays.get("q"),
        arrays.get("p"),
        header["provenance"],
    )
