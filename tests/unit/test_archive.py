"""Files hold what was written, or say that they do not: every bit of a file is flipped once."""

import io
import json
import os
import zipfile

import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import archive, pool
from dalembert.ensemble.checkpoint import LONGEST
from tiers import tiered

KIND, SCHEMA = "dalembert test", 7
HEADER = {"format": KIND, "schema": SCHEMA, "note": "Δt", "value": float("nan"), "rows": [1, 2]}
ARRAYS = {
    "a": np.arange(6.0).reshape(2, 3),
    "b/one": np.array([True, False]),
    "b/two": np.array([3, 1, 2]),
    "nothing": np.zeros((0, 4), np.float32),
    "number": np.array(2.5),
}


def content(header=HEADER, arrays=ARRAYS):
    stream = io.BytesIO()
    archive.encode(stream, header, arrays)
    return stream.getvalue()


def decode(data):
    return archive.decode(io.BytesIO(data), KIND, SCHEMA)


def same(found):
    header, arrays = found
    return json.dumps(header) == json.dumps(HEADER) and {
        name: (x.dtype, x.shape, x.tobytes()) for name, x in arrays.items()
    } == {name: (x.dtype, x.shape, x.tobytes()) for name, x in ARRAYS.items()}


def test_what_is_written_is_read():
    assert same(decode(content()))
    with np.load(io.BytesIO(content())) as file:
        np.testing.assert_array_equal(file["array/a"], ARRAYS["a"])


def test_arrays_of_any_layout_are_read():
    rows = np.arange(24.0).reshape(2, 3, 4)
    for array in (rows.T, rows[:, ::2], rows[..., :0], np.asfortranarray(rows)):
        _, found = decode(content(arrays={"x": array}))
        np.testing.assert_array_equal(found["x"], array)


def test_numbers_with_all_their_digits_are_not_packed():
    """Packing them would take most of the time in which a run that is told to end must be saved."""
    digits = np.random.default_rng(1).normal(size=50_000)
    arrays = {"digits": digits, "counts": np.arange(50_000) // 7, "few": digits[:100]}
    arrays["mixed"] = np.concatenate([np.zeros(50_000), digits[:20_000]])
    data = content(arrays=arrays)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        kinds = {info.filename[6:-4]: info.compress_type for info in file.infolist()[1:]}
    packed = {name for name, kind in kinds.items() if kind == zipfile.ZIP_DEFLATED}
    assert packed == {"counts", "few", "mixed"} and len(kinds) == 4
    for name, array in decode(data)[1].items():
        np.testing.assert_array_equal(array, arrays[name])
    place = data.index(digits[30_000:30_002].tobytes())
    with pytest.raises(ValueError, match="CRC"):
        decode(flipped(data, 8 * place + 3))


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def names_and_directory(data):
    """The bits of all local headers and of everything after the last member."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        places = [range(x.header_offset, x.header_offset + 80) for x in file.infolist()]
        places.append(range(file.start_dir, len(data)))
    return [8 * byte + bit for place in places for byte in place for bit in range(8)]


def wrong(data, bits, read=decode, is_same=same):
    """Bits whose change goes unnoticed and changes what is read."""
    unnoticed = []
    for bit in bits:
        try:
            found = read(flipped(data, bit))
        except ValueError:
            continue
        if not is_same(found):
            unnoticed.append(bit)
    return unnoticed


@pytest.mark.parametrize("every", tiered([1, 5], fast=["5"]))
def test_no_bit_of_a_name_or_of_the_directory_is_changed_unnoticed(every):
    data = content()
    bits = names_and_directory(data)
    assert len(bits) > 6000
    assert wrong(data, bits[::every]) == []


def test_no_bit_of_the_contents_is_changed_unnoticed():
    data = content()
    assert wrong(data, range(0, 8 * len(data), 3)) == []


def test_without_its_list_a_lost_array_would_go_unnoticed(monkeypatch):
    """The control: the names alone do not say that something is missing."""
    member = archive._member

    def lenient(file, name, *limit):
        return member(file, name, *limit) if name in file.namelist() else np.zeros(0)

    monkeypatch.setattr(archive, "_member", lenient)
    monkeypatch.setattr(archive, "_digest", lambda array: "")
    monkeypatch.setattr(archive, "sorted", lambda names: None, raising=False)
    data = content()
    assert wrong(data, names_and_directory(data)[::7])


def test_exchanged_lost_and_added_members_are_refused():
    def rebuilt(change):
        stream = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content())) as old, zipfile.ZipFile(stream, "w") as new:
            for name in old.namelist():
                for to in change(name):
                    new.writestr(to, old.read(name))
        return stream.getvalue()

    assert same(decode(rebuilt(lambda name: [name])))
    one, two = "array/b/one.npy", "array/b/two.npy"
    swap = {one: two, two: one}
    for change, message in (
        (lambda name: [swap.get(name, name)], "b/one is not what its header says"),
        (lambda name: [] if name == one else [name], "not those that its header lists"),
        (lambda name: [name, "array/c.npy"] if name == one else [name], "not those that its"),
        (lambda name: [] if name == "header.npy" else [name], "header.npy"),
    ):
        with pytest.raises(ValueError, match=message):
            decode(rebuilt(change))


def test_other_kinds_and_versions_are_named(tmp_path):
    path = tmp_path / "file.npz"
    archive.write(path, HEADER, ARRAYS)
    with pytest.raises(ValueError, match="is not a readable dalembert run file: it is not a dal"):
        archive.read(path, "dalembert run", SCHEMA)
    with pytest.raises(ValueError, match="it has schema 7, and this version reads 8"):
        archive.read(path, KIND, 8)
    with pytest.raises(ValueError, match="has the type complex128: numbers are needed"):
        content(arrays={"z": np.ones(2, complex)})


def test_a_file_says_at_both_ends_what_it_is(tmp_path):
    data, path = content(), tmp_path / "file"
    for damaged in (data, data[: len(data) // 2], b"?" * 200 + data[200:]):
        path.write_bytes(damaged)
        assert archive.is_marked(path, KIND)
    for other in (b"", b"notes on a dalembert test that went well", b"PK\3\4" + bytes(1000)):
        path.write_bytes(other)
        assert not archive.is_marked(path, KIND)


NO_NAMES = {
    "empty": ("", "the name of the file is empty: give one"),
    "null byte": ("run\0.npz", r"'run\\x00\.npz' cannot be the name of a file: it has a null byte"),
    "half a letter": ("\ud800", r"'\\ud800' cannot be the name of a file: surrogates not allowed"),
    "300 letters": ("x" * 300, r"'x{40}…' is too long: .* this file of 2\d\d, .* a shorter one"),
    "without room": ("x" * 250, r"'x{40}…' is too long"),
    "in bytes": ("é" * 130, r"'é{40}…' is too long"),
    "folder": ("x" * 300 + "/run.npz", r"is too long: folders have names of at most 255 bytes"),
}


@pytest.mark.parametrize("case", NO_NAMES)
def test_what_no_file_can_be_called_is_refused_before_the_work(case, tmp_path, monkeypatch):
    name, message = NO_NAMES[case]
    monkeypatch.chdir(tmp_path)
    start = {"dt": 0.1, "t_end": 0.2, "paths": 2, "progress": False}
    with pytest.raises(ValueError, match=message):
        archive.write(name, HEADER, ARRAYS)
    with monkeypatch.context() as patch:
        patch.setattr(pool, "run_block", None)
        with pytest.raises(ValueError, match=message):
            da.simulate(
                da.systems.pendulum(), da.midpoint(), ([1.0], [0.0]), checkpoint=name, **start
            )
    assert not list(tmp_path.iterdir())


def test_the_longest_names_serve(tmp_path):
    path = tmp_path / ("x" * (archive.MAX_NAME_BYTES - len(LONGEST)))
    start = {"dt": 0.1, "t_end": 0.2, "paths": 2, "progress": False}
    da.simulate(
        da.systems.pendulum(), da.midpoint(), ([1.0], [0.0]),
        checkpoint=da.Checkpoint(path, seconds=0.0), **start,
    ).save(path)  # fmt: skip
    assert da.load(path).failed == 0
    path.with_name(path.name + LONGEST).touch()


def test_folders_and_devices_are_not_replaced_and_links_are_followed(tmp_path):
    with pytest.raises(ValueError, match="is a folder: give the name of a file"):
        archive.write(tmp_path, HEADER, ARRAYS)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="is not a plain file: give the name of a file"):
        archive.write(pipe, HEADER, ARRAYS)
    assert pipe.is_fifo()
    link, target = tmp_path / "link.npz", tmp_path / "target.npz"
    link.symlink_to(target)
    archive.write(link, HEADER, ARRAYS)
    assert link.is_symlink() and same(archive.read(target, KIND, SCHEMA))


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "file.npz"
    archive.write(path, HEADER, ARRAYS)
    before = path.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(archive, "_put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        archive.write(path, HEADER, ARRAYS)
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == before


def test_no_bit_of_a_saved_run_is_changed_unnoticed(tmp_path):
    system, path = da.systems.damped_kubo(), tmp_path / "run.npz"
    options = {"dt": 0.1, "t_end": 0.2, "paths": 3, "keep": "all", "progress": False}
    run = da.simulate(system, da.midpoint(), ([2.0], [0.0]), **options)
    run.save(path)
    data = path.read_bytes()

    def read(changed):
        path.write_bytes(changed)
        return da.load(path)

    def is_same(found):
        states = all(
            x is not None and x.tobytes() == y.tobytes()
            for x, y in ((found.q, run.q), (found.p, run.p), (found.t, run.t))
        )
        return states and repr(found) == repr(run) and found.provenance == run.provenance

    assert is_same(read(data))
    assert wrong(data, names_and_directory(data)[::53], read, is_same) == []
    assert wrong(data, range(0, 8 * len(data), 499), read, is_same) == []
