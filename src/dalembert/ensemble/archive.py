"""Plain files: arrays in `.npz`, the rest in a JSON header, no pickle, replaced only when complete.

A file is a zip of `.npy` members. The header comes first. It lists all arrays with their checksums
and has one of its own, so that what is read is what was written, or an error. Nothing in a file is
executed, no member is unpacked beyond the size that its own header accounts for, and nothing that
does not fit into the memory is unpacked at all.
"""

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from dalembert.ensemble.spare import SHARE, available_memory, gib

HEADER = "header.npy"
MAX_HEADER_BYTES = 2**26
MARK_BYTES = 512
"""How far from one of its ends a file says, in plain bytes, what it is."""

MOST_PACKED = 1032
"""How many times smaller zlib makes something at most: 258 bytes are two bits."""

SAMPLE_BYTES = 2**15
"""Of an array at its start, middle and end, by which it is judged whether to pack it."""

WORTH_PACKING = 0.8
"""Numbers with all their digits are packed at some 35 MB/s and hardly become smaller: a run that is
told to end would have no time for many of them."""

MAX_NAME_BYTES = 255
"""Of a file or a folder: so many does every common file system take."""

SHOWN = 40
"""Letters of a name that cannot be, in an error."""

KINDS_OF_NUMBERS = "fiub"

NO_DATE = (1980, 1, 1, 0, 0, 0)
"""Of members: a clock that stands before 1980 or after 2107 has none that a zip can hold."""


class OtherVersionError(ValueError):
    """A good file, which another version of the library has written."""


def encode(stream: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a header, which first says its `format` and then the `schema`, and arrays."""
    # A transposed array would be stored by columns, which is not read.
    members = {name: np.asarray(x, order="C") for name, x in arrays.items()}
    for name, array in members.items():
        if array.dtype.kind not in KINDS_OF_NUMBERS:
            raise ValueError(f"{name} has the type {array.dtype}: numbers are needed.")
    content = dict(header) | {"arrays": {name: _digest(x) for name, x in members.items()}}
    text = json.dumps(content | {"sha256": _seal(content)}).encode()
    if len(text) > MAX_HEADER_BYTES:
        raise ValueError(f"a header of {len(text):,} bytes is too long for a file.")
    with zipfile.ZipFile(stream, "w", compresslevel=1) as file:
        # Both ends of the file say in plain bytes what it is, should one of them be damaged.
        file.comment = str(header["format"]).encode()
        _put(file, HEADER, np.frombuffer(text, np.uint8))
        for name, array in members.items():
            file.compression = zipfile.ZIP_DEFLATED if _packs(array) else zipfile.ZIP_STORED
            _put(file, _member_name(name), array)


def _packs(array: np.ndarray) -> bool:
    """Whether an array becomes much smaller, as counts and repeated numbers do."""
    data = array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
    starts = (0, (data.size - SAMPLE_BYTES) // 2, data.size - SAMPLE_BYTES)
    if starts[1] < SAMPLE_BYTES:
        return True
    sample = b"".join(data[start : start + SAMPLE_BYTES].tobytes() for start in starts)
    return len(zlib.compress(sample, 1)) < WORTH_PACKING * len(sample)


def _put(file: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    info = zipfile.ZipInfo(name, NO_DATE)
    info.compress_type = file.compression
    with file.open(info, "w", force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)


def decode(stream: IO[bytes], kind: str, schema: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what `encode` wrote; ValueError if it is damaged, of another kind or schema.

    MemoryError if its arrays do not fit: then nothing is known of it.
    """
    try:
        with zipfile.ZipFile(stream) as file:
            header = _header(file, kind, schema)
            listed = header.pop("arrays")
            expected = [HEADER, *map(_member_name, listed)]
            if sorted(file.namelist()) != sorted(expected):
                raise ValueError("its arrays are not those that its header lists")
            _check_memory(file)
            arrays = {name: _member(file, _member_name(name)) for name in listed}
            for name, digest in listed.items():
                if _digest(arrays[name]) != digest:
                    raise ValueError(f"{name} is not what its header says")
    except (OtherVersionError, MemoryError):
        raise
    except Exception as error:
        # Damaged bytes raise many kinds of errors in zipfile, zlib, struct, tokenize, json, numpy.
        raise ValueError(str(error) or type(error).__name__) from error
    return header, arrays


def _header(file: zipfile.ZipFile, kind: str, schema: int) -> dict[str, Any]:
    header = json.loads(_member(file, HEADER, MAX_HEADER_BYTES).tobytes())
    if not isinstance(header, dict) or header.get("format") != kind:
        raise ValueError(f"it is not a {kind}")
    if header.get("schema") != schema:
        raise OtherVersionError(
            f"it has schema {header.get('schema')!r}, and this version reads {schema}. Read it "
            "with the version that wrote it"
        )
    if header.pop("sha256", None) != _seal(header):
        raise ValueError("its header has been changed")
    return header


def _check_memory(file: zipfile.ZipFile) -> None:
    """Refuse arrays that do not fit: a small file may hold a thousand times its size in zeros."""
    members = file.infolist()
    total, available = sum(info.file_size for info in members), available_memory()
    if total > SHARE * available:
        for info in members:
            if info.file_size > MOST_PACKED * info.compress_size:
                raise ValueError(f"{info.filename} does not hold what it announces")
        raise MemoryError(
            f"it would take {gib(total)}, and this machine has {gib(available)} to spare"
        )


def _member_name(array: str) -> str:
    return f"array/{array}.npy"


def _seal(header: Mapping[str, Any]) -> str:
    """The checksum of a header; JSON that is read and written again is the same text."""
    return hashlib.sha256(json.dumps(header).encode()).hexdigest()


def _digest(array: np.ndarray) -> str:
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


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
        known = dtype.kind in KINDS_OF_NUMBERS and not fortran and min(shape, default=0) >= 0
        if not known or wanted > min(limit, info.file_size):
            raise ValueError(f"{name} does not hold what it announces")
        data = stream.read(wanted)
        if len(data) != wanted or stream.read(1):
            raise ValueError(f"{name} does not hold what it announces")
        return np.frombuffer(data, dtype).reshape(shape).copy()


def check_name(path: Any, added: str = "") -> None:
    """Refuse what cannot be the name of a file.

    Args:
        path: the name.
        added: what is added to it in the names of files beside it.

    Raises:
        ValueError: if there is no such name.
    """
    text = os.fspath(path)
    short = repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
    if not text:
        raise ValueError('the name of the file is empty: give one, such as "run.npz".')
    try:
        parts = [os.fsencode(part) for part in (*Path(text).parent.parts, Path(text).name + added)]
    except UnicodeEncodeError as error:
        raise ValueError(f"{short} cannot be the name of a file: {error.reason}.") from error
    if any(b"\0" in part for part in parts):
        raise ValueError(f"{short} cannot be the name of a file: it has a null byte in it.")
    if max(map(len, parts)) > MAX_NAME_BYTES:
        raise ValueError(
            f"{short} is too long: folders have names of at most {MAX_NAME_BYTES} bytes, and this "
            f"file of {MAX_NAME_BYTES - len(added)}, since others will stand beside it. Give a "
            "shorter one."
        )


def real_path(path: Any, added: str = "") -> Path:
    """Where a file is written: a link is followed, so that it stays what it is.

    Raises:
        ValueError: if there is something that is not a file, such as a folder or a device, or no
            file can have the name, see `check_name`.
    """
    check_name(path, added)
    target = Path(os.path.realpath(path) if os.path.islink(path) else path)
    if target.is_symlink():
        raise ValueError(f"{path} is a link to itself: give the name of a file.")
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "not a plain file"
        raise ValueError(f"{path} is {what}: give the name of a file.")
    return target


def write(path: Any, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file; an existing one is replaced only when the new one is safely on the disk."""
    replace(path, lambda stream: encode(stream, header, arrays))


def replace(path: Any, fill: Callable[[IO[bytes]], Any]) -> None:
    """Write a file of any kind by a function, likewise."""
    ending = f".{os.getpid()}.partial"
    target = real_path(path, f".{ending}")
    partial = target.with_name(f".{target.name}{ending}")
    write_directly(partial, fill, named=target)
    with naming(target):
        try:
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def write_directly(path: Path, fill: Callable[[IO[bytes]], Any], named: Path) -> None:
    """Write a file in its place and onto the disk; on an error nothing of it is left.

    Args:
        path: the file.
        fill: writes its contents.
        named: what an error calls the file.
    """
    with naming(named):
        try:
            with path.open("wb") as stream:
                fill(stream)
                stream.flush()
                os.fsync(stream.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the system say which file could not be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OSError(error.errno, f"could not write {path}: {reason}") from error


def read(path: Any, kind: str, schema: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a file of this kind.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, or is of another kind or schema.
        MemoryError: if it does not fit into the memory.
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"no such file: {source}")
    with source.open("rb") as stream, reading(source, kind):
        return decode(stream, kind, schema)


@contextmanager
def reading(path: Any, kind: str) -> Iterator[None]:
    """Let errors say which file is damaged, or does not fit into the memory and may be good."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(
            f"the {kind} file {path} does not fit into the memory ({error or 'none is left'}). It "
            "stays as it is: free memory, or read it where there is more."
        ) from error
    except OtherVersionError as error:
        raise OtherVersionError(f"{path} is not a readable {kind} file: {error}") from error
    except Exception as error:
        # A sealed header may still say anything.
        reason = error if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path} is not a readable {kind} file: {reason}") from error


def read_header(path: Any, kind: str, schema: int) -> dict[str, Any] | None:
    """The header of a file of this kind, or None if it has none that can be trusted."""
    try:
        with zipfile.ZipFile(path) as file:
            return _header(file, kind, schema)
    except Exception:
        return None


def is_marked(path: Path, kind: str) -> bool:
    """Whether a file that may be damaged or incomplete was begun as one of this kind."""
    with path.open("rb") as stream:
        start = stream.read(MARK_BYTES)
        stream.seek(max(stream.seek(0, os.SEEK_END) - MARK_BYTES, 0))
        end = stream.read(MARK_BYTES)
    return json.dumps({"format": kind})[:-1].encode() in start or end.endswith(kind.encode())


def is_blank(path: Path) -> bool:
    """Whether nothing is in a file, or zeros alone, which a failure of the power leaves."""
    with path.open("rb") as stream:
        return not any(any(part) for part in iter(lambda: stream.read(2**16), b""))


def under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, without it."""
    return {name[len(prefix) :]: x for name, x in arrays.items() if name.startswith(prefix)}
