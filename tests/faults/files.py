"""Faults in files: torn, with a bit changed in each kind of byte, of other versions, hostile."""

import io
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import archive, checkpoint
from dalembert.ensemble import run as runs
from faults.rule import Ground, kind, simulate, undisturbed

LOCAL = {
    "signature": 4, "version": 2, "flags": 2, "method": 2, "time": 2, "date": 2, "checksum": 4,
    "compressed size": 4, "size": 4, "length of the name": 2, "length of the extra field": 2,
}  # fmt: skip
CENTRAL = {
    "signature": 4, "version made by": 2, "version": 2, "flags": 2, "method": 2, "time": 2,
    "date": 2, "checksum": 4, "compressed size": 4, "size": 4, "length of the name": 2,
    "length of the extra field": 2, "length of the comment": 2, "disk": 2, "inner attributes": 2,
    "outer attributes": 4, "offset": 4,
}  # fmt: skip
END = {
    "signature": 4, "disk": 2, "disk of the directory": 2, "entries on the disk": 2, "entries": 2,
    "size of the directory": 4, "offset of the directory": 4, "length of the comment": 2,
}  # fmt: skip
ARRAY = {"magic": 6, "version": 2, "length of the description": 2}
KEYS = ("format", "schema", "arrays", "sha256")
PARTS = ("name", "extra field")
STREAM = ("begin", "middle", "end")

CLASSES = [
    *[f"member header: {name}" for name in (*LOCAL, *PARTS)],
    *[f"array: {name}" for name in (*ARRAY, "description")],
    *[f"JSON: {name}" for name in KEYS],
    *[f"packed numbers: {name}" for name in STREAM],
    *[f"directory: {name}" for name in (*CENTRAL, "name")],
    *[f"end: {name}" for name in (*END, "comment")],
]
"""Every kind of byte that a file consists of."""


def _cut(first: int, sizes: dict[str, int], prefix: str) -> dict[str, list[range]]:
    found = {}
    for name, size in sizes.items():
        found[f"{prefix}: {name}"] = [range(first, first + size)]
        first += size
    return found


def _together(parts: list[dict[str, list[range]]]) -> dict[str, list[range]]:
    found: dict[str, list[range]] = {}
    for part in parts:
        for name, places in part.items():
            found.setdefault(name, []).extend(places)
    return found


def _local(data: bytes, info: zipfile.ZipInfo) -> tuple[dict[str, list[range]], int]:
    """The bytes before a member by their kind, and where its data begin."""
    first = info.header_offset
    name, extra = struct.unpack_from("<HH", data, first + 26)
    return _cut(first, LOCAL | dict(zip(PARTS, (name, extra), strict=True)), "member header"), (
        first + 30 + name + extra
    )


def places(data: bytes) -> dict[str, list[range]]:
    """Where in a file each kind of byte is."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        infos, directory = file.infolist(), file.start_dir
    found = []
    for info in infos:
        header, first = _local(data, info)
        found.append(header)
        if info.compress_type == zipfile.ZIP_STORED:
            (length,) = struct.unpack_from("<H", data, first + 8)
            found.append(_cut(first, ARRAY | {"description": length}, "array"))
            text = first + 10 + length
            for key in KEYS:
                begin = data.index(f'"{key}": '.encode(), text)
                found.append({f"JSON: {key}": [range(begin + 1, begin + len(key) + 9)]})
        else:
            size, part = info.compress_size, max(info.compress_size // 3, 1)
            thirds = dict(zip(STREAM, (part, part, size - 2 * part), strict=True))
            found.append(_cut(first, thirds, "packed numbers"))
    first = directory
    for info in infos:
        # The comment and the extra field are empty for small members.
        found.append(_cut(first, CENTRAL | {"name": len(info.filename)}, "directory"))
        first += 46 + len(info.filename) + struct.unpack_from("<H", data, first + 30)[0]
    found.append(_cut(first, END | {"comment": len(data) - first - 22}, "end"))
    return _together(found)


def flipped(data: bytes, name: str, seed: int) -> bytes:
    """A bit of one byte of this kind changed."""
    chance = np.random.default_rng([seed, *name.encode()])
    bytes_ = [i for place in places(data)[name] for i in place]
    changed = bytearray(data)
    changed[chance.choice(bytes_)] ^= 1 << chance.integers(8)
    return bytes(changed)


@kind(
    "A bit of a saved run has changed, in every kind of byte of the format",
    "`da.load` returns what was saved, or says that the file is not readable.",
    CLASSES,
    fast=["member header: checksum", "JSON: arrays", "packed numbers: middle", "directory: offset"],
)
def flipped_run(way: str, ground: Ground) -> None:
    path = ground.folder / "run.npz"
    undisturbed().save(path)
    data = path.read_bytes()
    assert set(places(data)) == set(CLASSES)
    for seed in range(6):
        path.write_bytes(flipped(data, way, seed))
        ground.is_right_or_said(lambda: da.load(path), ValueError, naming="is not a readable")


@kind(
    "A bit of a checkpoint has changed, in every kind of byte of the format",
    "The run goes on from the checkpoint before it, with a warning; without one it says that the "
    "file is not readable, and leaves it.",
    CLASSES,
    fast=["member header: name", "array: description", "end: entries"],
)
def flipped_checkpoint(way: str, ground: Ground) -> None:
    data = ground.saved(3)
    before = ground.previous.read_bytes()
    for seed in range(2):
        damaged = flipped(data, way, seed)
        ground.path.write_bytes(damaged)
        ground.previous.unlink(missing_ok=True)
        alone = ground.is_right_or_said(
            lambda: simulate(ground.path), ValueError, naming="checkpoint"
        )
        assert alone is None or ground.path.read_bytes() == damaged
        ground.path.write_bytes(damaged)
        ground.previous.write_bytes(before)
        said = ground.is_right_or_said(
            lambda: simulate(ground.path), ValueError, naming="stays as it is"
        )
        assert said is None or ground.path.read_bytes() == damaged
        ground.path.unlink()
        ground.previous.write_bytes(before)
        ground.goes_on(2)


CUTS = ("no byte", "one byte", "half of the first header", "the header", "half", "no directory")
CUTS += ("half of the directory", "all but the last byte", "a byte too many", "twice")


def _torn(data: bytes, way: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        second, directory = file.infolist()[1].header_offset, file.start_dir
    lengths = {
        "no byte": 0, "one byte": 1, "half of the first header": 20, "the header": second,
        "half": len(data) // 2, "no directory": directory,
        "half of the directory": (directory + len(data)) // 2, "all but the last byte": -1,
    }  # fmt: skip
    if way in lengths:
        return data[: lengths[way]]
    return data + b"x" if way == "a byte too many" else data + data


@kind(
    "A file is torn or too long",
    "A saved run is read or refused; a run goes on from the checkpoint before.",
    CUTS,
    fast=["half", "all but the last byte"],
)
def torn(way: str, ground: Ground) -> None:
    path = ground.folder / "run.npz"
    undisturbed().save(path)
    path.write_bytes(_torn(path.read_bytes(), way))
    ground.is_right_or_said(lambda: da.load(path), ValueError, naming="is not a readable")
    data = ground.saved(3)
    ground.path.write_bytes(_torn(data, way))
    ground.is_right_or_said(lambda: simulate(ground.path), ValueError, naming="stays as it is")
    ground.path.write_bytes(data)
    ground.goes_on(3)


def resealed(data: bytes, of: tuple[str, int], **changes: Any) -> bytes:
    """The same file with another header, as one who knows the format would write it."""
    header, arrays = archive.decode(io.BytesIO(data), *of)
    stream = io.BytesIO()
    archive.encode(stream, header | changes, arrays)
    return stream.getvalue()


NAMES = {"the checkpoint": "run.ckpt", "the one before": "run.ckpt.previous"}
NAMES |= {"the next": "run.ckpt.new", "that of another process": "run.ckpt.process1"}


@kind(
    "A file was written by another version of the library",
    "It is refused with both versions of the format, and stays as it is, also beside a checkpoint "
    "of this version.",
    [f"{name}, {age}" for name in (*NAMES, "a saved run") for age in ("newer", "older")],
    fast=["the checkpoint, newer", "that of another process, newer", "a saved run, newer"],
)
def other_version(way: str, ground: Ground) -> None:
    name, _, age = way.partition(", ")
    if name == "a saved run":
        path = ground.folder / "run.npz"
        undisturbed().save(path)
        schema = runs.SCHEMA + (1 if age == "newer" else -1)
        path.write_bytes(resealed(path.read_bytes(), (runs.KIND, runs.SCHEMA), schema=schema))
        with pytest.raises(ValueError, match=f"has schema {schema}, and this version reads"):
            da.load(path)
        return
    data = ground.saved(3)
    of = checkpoint.KIND, checkpoint.SCHEMA
    other = ground.folder / NAMES[name]
    before = other.read_bytes() if other.exists() else None
    schema = checkpoint.SCHEMA + (1 if age == "newer" else -1)
    other.write_bytes(resealed(data, of, schema=schema))
    files = {p: p.read_bytes() for p in ground.folder.iterdir()}
    with pytest.raises(ValueError, match=rf"{other.name} .*has schema {schema}, and this version"):
        simulate(ground.path)
    assert files == {p: p.read_bytes() for p in ground.folder.iterdir()}
    other.unlink()
    if before is not None:
        other.write_bytes(before)
    ground.goes_on(3)


@kind(
    "A file does not fit into the memory that is free",
    "An error that names it and says so; it stays as it is, and nothing older is taken for it.",
    [*NAMES, "a saved run", "memory that ends while it is read"],
    fast=["the checkpoint", "that of another process", "memory that ends while it is read"],
)
def no_memory_to_read(way: str, ground: Ground) -> None:
    if way == "a saved run":
        path = ground.folder / "run.npz"
        undisturbed().save(path)
        ground.patch.setattr(archive, "available_memory", lambda: 1000)
        with pytest.raises(MemoryError, match=r"run\.npz does not fit into the memory \(it would"):
            da.load(path)
        return
    data, name, check = ground.saved(3), NAMES.get(way, "run.ckpt"), archive._check_memory
    if name == "run.ckpt.previous":
        ground.path.unlink()
    else:
        (ground.folder / name).write_bytes(data)

    def checked(file: zipfile.ZipFile) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if Path(str(file.filename)).name == name:
                patch.setattr(archive, "available_memory", lambda: 1000)
                if way not in NAMES:
                    raise MemoryError("Unable to allocate 3.00 GiB for an array")
            check(file)

    ground.patch.setattr(archive, "_check_memory", checked)
    files = {p: p.read_bytes() for p in ground.folder.iterdir()}
    with pytest.raises(MemoryError, match=rf"checkpoint file .*{name} does not fit .*stays as it"):
        simulate(ground.path)
    assert files == {p: p.read_bytes() for p in ground.folder.iterdir()}
    ground.patch.undo()
    ground.goes_on(2 if name == "run.ckpt.previous" else 3)


@kind(
    "Something else stands where a checkpoint should be",
    "It is refused by name, and stays as it is.",
    ["a folder", "a pipe", "a device", "a circle of links", "notes", "a saved run", "an image"],
    fast=["a pipe", "notes"],
)
def something_else(way: str, ground: Ground) -> None:
    path = Path("/dev/null") if way == "a device" else ground.path
    contents = {"notes": b"my notes", "an image": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9}
    if way == "a folder":
        path.mkdir()
    elif way == "a pipe":
        os.mkfifo(path)
    elif way == "a circle of links":
        path.symlink_to(path)
    elif way == "a saved run":
        undisturbed().save(path)
    elif way in contents:
        path.write_bytes(contents[way])
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(
        (ValueError, OSError), match="link to itself" if "circle" in way else path.name
    ):
        simulate(path)
    assert before is None or path.read_bytes() == before
    assert path.is_symlink() or path.exists()
