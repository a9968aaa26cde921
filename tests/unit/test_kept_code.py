"""Vector code for the next process: what is found is what was made, or it is made again."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from dalembert.ensemble.kept_code import kept_code

CODE = bytes(range(256)) * 3
SETTINGS = {
    "jax_enable_compilation_cache": True,
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_compilation_cache_max_size": -1,
}


@pytest.fixture
def folder(tmp_path):
    """A folder in which JAX is to keep code, and no other settings than those above."""
    settings = SETTINGS | {"jax_compilation_cache_dir": str(tmp_path / "programs")}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield tmp_path / "programs"
    for name, value in before.items():
        jax.config.update(name, value)


class Maker:
    """Makes code, and counts how often."""

    def __init__(self, code=CODE):
        self.code, self.made = code, 0

    def __call__(self):
        self.made += 1
        return self.code


def made(*follows_from, code=CODE):
    """Whether code had to be made; it is the right code in any case."""
    make = Maker(code)
    assert kept_code(follows_from, make) == code
    return bool(make.made)


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def test_code_is_made_once_and_found_again(folder):
    assert made("text", "processor")
    assert not made("text", "processor")
    assert [path.name[:10] for path in folder.iterdir()] == ["dalembert-"]


@pytest.mark.parametrize(
    "other", [("text 2", "processor"), ("text", "processor 2"), ("text", "process", "or")]
)
def test_code_that_follows_from_something_else_is_not_used(folder, other):
    assert made("text", "processor")
    assert made(*other, code=b"other")
    assert not made("text", "processor")


@pytest.mark.parametrize("place", [0, 17, 31, 32, 200, -1])
def test_one_bit_that_is_wrong_is_seen(folder, place):
    made("text")
    path = only_file(folder)
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
    assert made("text")
    assert not made("text"), "what was damaged is replaced"


@pytest.mark.parametrize("length", [0, 5, 32, 33, 700, -1])
def test_files_that_are_cut_off_or_too_long_are_seen(folder, length):
    made("text")
    path = only_file(folder)
    content = path.read_bytes()
    path.write_bytes(content[:length])
    assert made("text")
    path.write_bytes(content + b"\0")
    assert made("text")


def test_a_file_under_the_name_of_another_is_not_used(folder):
    made("text")
    first = only_file(folder)
    made("another", code=b"another")
    (second,) = set(folder.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert made("another", code=b"another")


def test_where_nothing_can_be_written_or_read_code_is_made(folder):
    folder.write_text("no folder")
    assert made("text") and made("text")


def test_a_folder_in_the_place_of_a_file_is_no_harm(folder):
    made("text")
    path = only_file(folder)
    path.unlink()
    path.mkdir()
    assert made("text") and made("text")
    assert list(folder.iterdir()) == [path], "nothing is left over"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_compilation_cache_dir", None),
        ("jax_compilation_cache_dir", "gs://bucket/programs"),
        ("jax_enable_compilation_cache", False),
        ("jax_compilation_cache_max_size", 10**9),
        ("jax_persistent_cache_min_compile_time_secs", 100.0),
        ("jax_persistent_cache_min_entry_size_bytes", 10**6),
    ],
)
def test_code_is_kept_where_jax_keeps_code(folder, name, value):
    jax.config.update(name, value)
    assert made("text") and made("text")
    assert not folder.exists()


def test_code_of_another_version_or_processor_is_not_used(folder, monkeypatch):
    pytest.importorskip("llvmlite")
    from dalembert.ensemble import native

    text = "define i64 @march(ptr %a, ptr %b) {\n  ret i64 7\n}\n"
    native.machine_code(text)
    compiled = []

    def compile(text, machine, compiled=compiled, inner=native._compiled):
        compiled.append(text)
        return inner(text, machine)

    monkeypatch.setattr(native, "_compiled", compile)
    native.machine_code(text)
    assert not compiled, "the same in everything"
    changes = [
        ("dalembert.__version__", "0.0"),
        ("llvmlite.__version__", "0.0"),
        ("dalembert.ensemble.native.binding.llvm_version_info", (1, 0, 0)),
        ("dalembert.ensemble.native.PROCESSOR", native.PROCESSOR | {"opt": 2}),
        ("dalembert.ensemble.native.PIPELINE", native.PIPELINE | {"loop_unrolling": True}),
        ("dalembert.ensemble.native._host", lambda: ("x86-64", "")),
    ]
    if native._host()[0] == "x86-64" or not native._machine().triple.startswith("x86_64"):
        changes.pop()
    for number, (name, value) in enumerate(changes, start=1):
        with monkeypatch.context() as patch:
            patch.setattr(name, value)
            native.machine_code(text)
        assert len(compiled) == number, name


RUN = """
import json, sys
import numpy as np
import dalembert as da

if sys.argv[1] == "loads":
    from llvmlite import binding

    def never(*args):
        raise AssertionError("it is compiled again")

    binding.parse_assembly = never
run = da.simulate(
    da.systems.van_der_pol(), da.midpoint(), ([1.0], [0.0]), dt=0.1, t_end=1.0, paths=20,
    engine="vector code (LLVM)", progress=False,
)
print(json.dumps(np.asarray(run.mean["energy"]).tobytes().hex()))
"""


@pytest.mark.slow
def test_a_second_process_finds_the_code_and_has_the_same_bits(tmp_path):
    pytest.importorskip("llvmlite")
    told = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }

    def result(what):
        command = [sys.executable, "-c", RUN, what]
        done = subprocess.run(
            command, env=os.environ | told, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    first = result("compiles")
    found = {path: path.read_bytes() for path in tmp_path.glob("dalembert-*")}
    assert found
    assert result("loads") == first
    for path, content in found.items():  # a control: damaged files are not what is loaded
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert result("compiles") == first
    assert {path: path.read_bytes() for path in found} == found
    assert np.frombuffer(bytes.fromhex(first)).size
