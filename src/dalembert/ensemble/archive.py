"""Plain files: arrays in `.npz`, the rest in a JSON header, no pickle, replaced only when complete.

A file is a zip of `.npy` members, whose checksums are verified on reading. Nothing in it is
executed, and no member is unpacked beyond the size that its own header accounts for.
"""

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

__all__ = ["decode", "encode", "read", "under", "write"]

UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    RecursionError,
    MemoryError,
    OverflowError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading damaged bytes can raise in `zipfile`, `zlib`, `numpy` and `json`."""

MAX_HEADER_BYTES = 2**26


def encode(stream: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a header and arrays to a stream."""
    text = np.frombuffer(json.dumps(dict(header)).encode(), np.uint8)
    members = {"header": text} | {f"array/{name}": x for name, x in arrays.items()}
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, array in members.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def decode(stream: IO[bytes], kind: str, schema: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what `encode` wrote; ValueError if it is damaged, of another kind or schema."""
    try:
        with zipfile.ZipFile(stream) as file:
            header = json.loads(_member(file, "header.npy", MAX_HEADER_BYTES).tobytes())
            if not isinstance(header, dict) or header.get("format") != kind:
                raise ValueError(f"it is not a {kind}")
            if header.get("schema") != schema:
                raise ValueError(
                    f"it has schema {header.get('schema')!r}, and this version reads {schema}"
                )
            names = [name for name in file.namelist() if name.startswith("array/")]
            arrays = {name[len("array/") : -len(".npy")]: _member(file, name) for name in names}
    except UNREADABLE as error:
        reason = str(error) or type(error).__name__
        raise ValueError(reason) from error
    return header, arrays


def _member(file: zipfile.ZipFile, name: str, limit: int = 2**62) -> np.ndarray:
    """One array, after its shape has been compared with the size of the member."""
    info = file.getinfo(name)
    with file.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"{name} has an unknown array format {version}")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        count = int(np.prod([int(n) for n in shape], dtype=object)) if shape else 1
        wanted = count * dtype.itemsize
        known = dtype.kind in "fiub" and not fortran and min(shape, default=0) >= 0
        if not known or wanted > min(limit, info.file_size):
            raise ValueError(f"{name} does not hold what it announces")
        data = stream.read(wanted)
        if len(data) != wanted or stream.read(1):
            raise ValueError(f"{name} does not hold what it announces")
        return np.frombuffer(data, dtype).reshape(shape).copy()


def write(path: Any, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file; an existing one is replaced only when the new one is safely on the disk."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            encode(stream, header, arrays)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(
            error.errno, f"could not write {target}: {error.strerror or error}"
        ) from error


def read(path: Any, kind: str, schema: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a file of this kind.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, or is of another kind or schema.
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"no such file: {source}")
    try:
        with source.open("rb") as stream:
            return decode(stream, kind, schema)
    except ValueError as error:
        raise ValueError(f"{source} is not a readable {kind} file: {error}") from error


def under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, without it."""
    return {name[len(prefix) :]: x for name, x in arrays.items() if name.startswith(prefix)}
