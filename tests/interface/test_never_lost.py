"""Runs that are killed, interrupted, damaged or short of disk go on from where they were."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dalembert as da
import interrupted_run
from dalembert.ensemble import blocks, progress
from dalembert.ensemble import checkpoint as checkpoint_files
from interrupted_run import differences, simulate

SCRIPT = Path(interrupted_run.__file__)


@pytest.fixture(scope="module")
def undisturbed():
    return simulate()


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Children start quickly with code that one compiled; a killed one must not write it."""
    cache = tmp_path_factory.mktemp("compiled")
    common = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache), "PYTHONUNBUFFERED": "1"}
    writing = common | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    files = [cache / name for name in ("run.ckpt", "run.npz")]
    child = start(writing, *files)
    child.communicate(timeout=300)
    assert child.returncode == 0
    return common | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1e9"}


def start(environment, *arguments, **options):
    given = [f"{name}={value}" for name, value in options.items()]
    command = [sys.executable, str(SCRIPT), *map(str, arguments), *given]
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize("times", [3, 20])
def test_killed_and_still_the_same_bits(times, tmp_path, environment, undisturbed):
    checkpoint, result = tmp_path / "run.ckpt", tmp_path / "run.npz"
    moments = random.Random(7)
    kills = 0
    while not result.exists():
        child = start(environment, checkpoint, result)
        if kills >= times:
            child.communicate(timeout=300)
            continue
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        for _ in range(600):
            time.sleep(0.05)
            if child.poll() is not None or (
                checkpoint.exists() and checkpoint.stat().st_mtime_ns != before
            ):
                break
        time.sleep(moments.uniform(0, 0.05))
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            kills += 1
        _, errors = child.communicate()
        assert child.returncode in (-signal.SIGKILL, 0), errors
    assert kills >= times
    assert not differences(da.load(result), undisturbed)
    # A run that is complete is not run again.
    assert not differences(simulate(checkpoint), undisturbed)


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path, environment, undisturbed):
    checkpoint, result = tmp_path / "run.ckpt", tmp_path / "run.npz"
    child = start(environment, checkpoint, result)
    for _ in range(1200):
        time.sleep(0.05)
        if checkpoint.exists():
            break
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert "stopped after" in output and f"saved in {checkpoint}" in output
    assert not result.exists()
    assert not differences(simulate(checkpoint), undisturbed)


def partial_checkpoint(tmp_path, monkeypatch, **options):
    """A checkpoint of a run that stopped on its way, with a previous one beside it."""
    monkeypatch.setattr(blocks, "LEG_SECONDS", 0.0)
    monkeypatch.setattr(blocks, "FIRST_LEG", 1)
    path = tmp_path / "run.ckpt"
    previous = path.with_name("run.ckpt.previous")
    stopped = []
    add = progress.ProgressBar.add

    def stop_later(bar, count):
        add(bar, count)
        # Checkpoints are written every 0.1 s at most: legs must not be over before.
        time.sleep(0.03)
        if previous.exists() and not stopped:
            stopped.append(count)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress.ProgressBar, "add", stop_later)
    with pytest.raises(da.Interrupted, match=r"The same call goes on from there"):
        simulate(da.Checkpoint(path, seconds=0.0), **options)
    monkeypatch.undo()
    assert path.exists() and previous.exists()
    return path


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, monkeypatch, undisturbed):
    path = partial_checkpoint(tmp_path, monkeypatch)
    whole = path.read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:middle], whole[:middle] + b"????" + whole[middle + 4 :], b""):
        path.write_bytes(damaged)
        with pytest.warns(RuntimeWarning, match="goes on from the checkpoint before it"):
            result = simulate(da.Checkpoint(path, seconds=1e9))
        assert not differences(result, undisturbed)
        path.with_name("run.ckpt.previous").write_bytes(whole)
    path.write_bytes(b"damaged")
    path.with_name("run.ckpt.previous").unlink()
    with pytest.raises(ValueError, match=r"no good one before it. Give another name, or delete it"):
        simulate(path)
    assert path.read_bytes() == b"damaged"


def test_other_settings_are_refused_by_name(tmp_path, monkeypatch):
    path = partial_checkpoint(tmp_path, monkeypatch)
    before = path.read_bytes()
    for options, difference in (
        ({"dt": 0.2}, r"dt \(0.1 in the file, 0.2 now\)"),
        ({"seed": 6}, r"seed \(5 in the file, 6 now\)"),
        ({"paths": 100}, "paths"),
    ):
        with pytest.raises(
            ValueError, match=rf"belongs to another run. What differs: .*{difference}"
        ):
            simulate(path, **options)
    assert path.read_bytes() == before
    system = da.systems.damped_kubo()
    common = {"dt": 0.1, "t_end": 1.0, "paths": 3}
    own = tmp_path / "own.ckpt"
    da.simulate(system, da.midpoint(), ([2.0], [0.0]), checkpoint=own, **common)
    for options, difference in (
        ({"observe": {"energy": lambda q, p, params: q[0]}}, "observe.energy"),
        ({"initial": ([1.0], [0.0])}, "initial"),
        ({"method": da.heun()}, r"method \('midpoint' in the file, 'heun' now\)"),
        ({"system": system.with_params(nu=0.5)}, "system.params.nu"),
        ({"noise": da.Gaussian(truncation=2)}, "noise"),
    ):
        given = {"system": system, "method": da.midpoint(), "initial": ([2.0], [0.0])}
        with pytest.raises(ValueError, match=f"What differs: .*{difference}"):
            da.simulate(checkpoint=own, **(given | common | options))


def test_a_full_disk_is_said_and_loses_nothing(tmp_path, monkeypatch, undisturbed):
    path = partial_checkpoint(tmp_path, monkeypatch)
    good = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=r"could not write .*run.ckpt"):
            simulate(da.Checkpoint(path, seconds=0.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_bytes() == good
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.ckpt", "run.ckpt.previous"]
    assert not differences(simulate(path), undisturbed)


def test_a_checkpoint_needs_a_folder_and_sound_intervals(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        simulate(tmp_path / "missing" / "run.ckpt")
    with pytest.raises(ValueError, match="seconds ≥ 0"):
        da.Checkpoint(tmp_path / "run.ckpt", seconds=-1.0)


def test_written_by_count_as_well_as_by_age(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    written = []
    write = checkpoint_files.CheckpointFile.write
    monkeypatch.setattr(
        checkpoint_files.CheckpointFile,
        "write",
        lambda self, progress: (written.append(progress.blocks), write(self, progress))[1],
    )
    simulate(da.Checkpoint(path, seconds=1e9, blocks=2), t_end=1.0)
    assert written == [2, 4, 6, 6]


@pytest.mark.parametrize("seed", range(30))
def test_hostile_bytes_are_refused(tmp_path, seed):
    """Random damage to a run and to a checkpoint: a clear error or the right content."""
    rng = np.random.default_rng(seed)
    path, options = tmp_path / "file", {"t_end": 0.5, "paths": 20}
    result = simulate(path, **options)
    for write, read in (
        (lambda: None, lambda: simulate(path, **options)),
        (lambda: result.save(path), lambda: da.load(path)),
    ):
        write()
        data = bytearray(path.read_bytes())
        for _ in range(rng.integers(1, 6)):
            data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(bytes(data[: rng.integers(1, len(data) + 1)] if seed % 2 else data))
        try:
            assert not differences(read(), result)
        except ValueError as error:
            assert "file" in str(error)
