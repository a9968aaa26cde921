"""Files that were made to do harm, or to say what cannot be."""

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

import dalembert as da
from dalembert.ensemble import archive, checkpoint
from dalembert.ensemble import run as runs
from faults.files import resealed
from faults.rule import BLOCKS, Ground, kind, simulate, undisturbed


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


REFUSED = (ValueError, MemoryError)
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
    ground.is_right_or_said(lambda: da.load(path), *REFUSED, naming="run file")
    data = ground.saved(3)
    before, made = ground.previous.read_bytes(), make(data)
    for beside in (True, False):
        ground.path.write_bytes(made)
        ground.previous.write_bytes(before)
        if not beside:
            ground.previous.unlink()
        said = ground.is_right_or_said(
            lambda: simulate(ground.path), *REFUSED, naming="checkpoint file"
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
        return resealed(data, of, **{key: x for key, x in changes.items() if key in known})

    _is_refused_or_right(ground, make)
