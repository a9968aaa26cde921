"""Faults in files: torn, with a bit changed in each kind of byte, of other versions, hostile."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import archive, checkpoint
from dalembert.ensemble import run as runs
from faults.rule import BLOCKS, Ground, kind, simulate, undisturbed

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


def _resealed(data: bytes, of: tuple[str, int], **changes: Any) -> bytes:
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
        path.write_bytes(_resealed(path.read_bytes(), (runs.KIND, runs.SCHEMA), schema=schema))
        with pytest.raises(ValueError, match=f"has schema {schema}, and this version reads"):
            da.load(path)
        return
    data = ground.saved(3)
    of = checkpoint.KIND, checkpoint.SCHEMA
    other = ground.folder / NAMES[name]
    before = other.read_bytes() if other.exists() else None
    schema = checkpoint.SCHEMA + (1 if age == "newer" else -1)
    other.write_bytes(_resealed(data, of, schema=schema))
    files = {p: p.read_bytes() for p in ground.folder.iterdir()}
    with pytest.raises(ValueError, match=rf"{other.name} .*has schema {schema}, and this version"):
        simulate(ground.path)
    assert files == {p: p.read_bytes() for p in ground.folder.iterdir()}
    other.unlink()
    if before is not None:
        other.write_bytes(before)
    ground.goes_on(3)


class _Evil:
    """What runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    return stream.getvalue()


def _rebuilt(data: bytes, change: Callable[[str, bytes], Any], **options: Any) -> bytes:
    """A zip whose members are changed: to other bytes, to (name, bytes), or left out as None."""
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(stream, "w", **({"compression": zipfile.ZIP_DEFLATED} | options)) as new,
    ):
        new.comment = old.comment
        for name in old.namelist():
            made = change(name, old.read(name))
            if made is not None:
                to, content = made if isinstance(made, tuple) else (name, made)
                new.writestr(to, content)
    return stream.getvalue()


def _header(text: bytes) -> bytes:
    return _npy(np.frombuffer(text, np.uint8))


def _in_header(make: Callable[[bytes], bytes]) -> Callable[[bytes, Path], bytes]:
    """A file whose header is another."""

    def change(name: str, content: bytes) -> bytes:
        text = content[10 + struct.unpack_from("<H", content, 8)[0] :]
        return _header(make(text)) if name == "header.npy" else content

    return lambda data, _: _rebuilt(data, change)


def _in_arrays(
    make: Callable[[bytes, Path], Any], **options: Any
) -> Callable[[bytes, Path], bytes]:
    """A file whose arrays are others."""
    return lambda data, mark: _rebuilt(
        data, lambda name, x: x if name == "header.npy" else make(x, mark), **options
    )


def _described(text: str, body: bytes = b"") -> bytes:
    line = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line + body


ZEROS = _npy(np.zeros(2**21, np.uint8))
SHAPE = "{{'descr': '<f8', 'fortran_order': False, 'shape': {}, }}"
HOSTILE: dict[str, Callable[[bytes, Path], bytes]] = {
    "a pickle": lambda data, mark: pickle.dumps(_Evil(mark)),
    "pickled arrays": _in_arrays(lambda x, mark: _npy(np.array([_Evil(mark)], object))),
    "a pickled header": lambda data, mark: _rebuilt(
        data, lambda name, x: _npy(np.array(_Evil(mark), object)) if name == "header.npy" else x
    ),
    "a header of a hundred million characters": _in_header(lambda text: b" " * 10**8),
    "a header of a hundred thousand brackets": _in_header(lambda text: b"[" * 10**5),
    "a header that is no JSON": _in_header(lambda text: b"os.system('true')"),
    "a header that is a list": _in_header(lambda text: b"[1, 2]"),
    "a header that is changed": _in_header(lambda text: text.replace(b"energy", b"Energy")),
    "a number of a million digits": _in_header(
        lambda text: b'{"format": ' + b"9" * 10**6 + text[10:]
    ),
    "arrays that unpack to a thousand times their size": _in_arrays(lambda x, _: ZEROS),
    "an array that announces a trillion numbers": _in_arrays(
        lambda x, _: _described(SHAPE.format("(1000000000000,)"))
    ),
    "an array of negative length": _in_arrays(lambda x, _: _described(SHAPE.format("(-1,)"))),
    "an array of a shape that overflows": _in_arrays(
        lambda x, _: _described(SHAPE.format("(4294967296, 4294967296, 4294967296)"))
    ),
    "an array whose description is a program": _in_arrays(
        lambda x, mark: _described(f"__import__('os').system('touch {mark}')")
    ),
    "an array of the format after the next": _in_arrays(lambda x, _: x[:6] + b"\3" + x[7:]),
    "an array of texts": _in_arrays(lambda x, _: _npy(np.array(["a", "b"]))),
    "an array of dates": _in_arrays(lambda x, _: _npy(np.array(["2020"], "datetime64[s]"))),
    "names that lead out of the folder": lambda data, _: _rebuilt(
        data, lambda name, x: (f"../../{name}", x)
    ),
    "names that are absolute": lambda data, _: _rebuilt(data, lambda name, x: (f"/tmp/{name}", x)),
    "a member too many": lambda data, _: data_with_more(data),
    "no members": lambda data, _: _rebuilt(data, lambda name, x: None),
    "arrays packed in another way": _in_arrays(lambda x, _: x, compression=zipfile.ZIP_LZMA),
    "another zip": lambda data, _: _rebuilt(data, lambda name, x: b"hello"),
}


def data_with_more(data: bytes) -> bytes:
    stream = io.BytesIO(data)
    with zipfile.ZipFile(stream, "a") as file:
        file.writestr("array/more.npy", _npy(np.zeros(3)))
    return stream.getvalue()


def _is_refused_or_right(ground: Ground, make: Callable[[bytes], bytes]) -> None:
    """A made-up run and a made-up checkpoint, alone and beside a good one."""
    path = ground.folder / "run.npz"
    undisturbed().save(path)
    path.write_bytes(make(path.read_bytes()))
    ground.is_right_or_said(lambda: da.load(path), ValueError, naming="is not a readable")
    data = ground.saved(3)
    before, made = ground.previous.read_bytes(), make(data)
    for beside in (True, False):
        ground.path.write_bytes(made)
        ground.previous.write_bytes(before)
        if not beside:
            ground.previous.unlink()
        said = ground.is_right_or_said(
            lambda: simulate(ground.path), ValueError, naming="checkpoint file"
        )
        assert said is None or ground.path.read_bytes() == made


@kind(
    "A file was made to do harm",
    "Nothing of it is executed or unpacked beyond the memory that there is; it is refused, and "
    "stays as it is.",
    list(HOSTILE),
    fast=["pickled arrays", "arrays that unpack to a thousand times their size"],
)
def hostile(way: str, ground: Ground) -> None:
    ground.patch.setattr(archive, "available_memory", lambda: 10 * 2**20)
    mark = ground.folder / "mark"
    _is_refused_or_right(ground, lambda data: HOSTILE[way](data, mark))
    assert not mark.exists(), "it was executed"


SEALED: dict[str, dict[str, Any]] = {
    "infinitely many blocks": {"blocks": float("inf")},
    "fewer than no blocks": {"blocks": -1},
    "more blocks than there are": {"blocks": BLOCKS + 1},
    "blocks in words": {"blocks": "three"},
    "no statistics": {"tally": None},
    "statistics that are a list": {"tally": [], "statistics": []},
    "statistics of other names": {"tally": {"data": {}}, "statistics": {"observe/other": ["mean"]}},
    "unfinished blocks that are a number": {"pending": 7},
    "unfinished blocks without states": {"pending": {"3": {"unit": 1}}},
    "an unfinished block far away": {"pending": {"1000000": {"unit": 1}}},
    "seconds in words": {"seconds": "many", "kept": 3},
    "settings that are a number": {"identity": 7, "provenance": 7},
    "no settings": {"identity": None, "provenance": None},
    "failures that are a list": {"failures": [1]},
}


@kind(
    "A sound file says what cannot be",
    "It is refused, and stays as it is.",
    list(SEALED),
    fast=["infinitely many blocks", "statistics that are a list"],
)
def sealed(way: str, ground: Ground) -> None:
    changes = SEALED[way]

    def make(data: bytes) -> bytes:
        is_run = json.dumps(runs.KIND).encode() in data[:500]
        of = (runs.KIND, runs.SCHEMA) if is_run else (checkpoint.KIND, checkpoint.SCHEMA)
        known, _ = archive.decode(io.BytesIO(data), *of)
        return _resealed(data, of, **{key: x for key, x in changes.items() if key in known})

    _is_refused_or_right(ground, make)


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
