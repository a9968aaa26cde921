"""Runs that are killed, interrupted, damaged or short of disk go on from where they were."""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xarray

import dalembert as da
import interrupted_run
from dalembert.ensemble import blocks, lock, pool, progress, ready
from dalembert.ensemble import checkpoint as checkpoint_files
from interrupted_run import differences, simulate, simulate_large, wait_for

SCRIPT = Path(interrupted_run.__file__)


@pytest.fixture(scope="module")
def undisturbed():
    return simulate()


UNBUFFERED = os.environ | {"PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Children start quickly with code that one compiled; a killed one must not write it."""
    cache = tmp_path_factory.mktemp("compiled")
    common = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache), "PYTHONUNBUFFERED": "1"}
    writing = common | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    files = [cache / name for name in ("run.ckpt", "run.npz")]
    child = start(writing, *files)
    child.communicate(timeout=600)
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


def time_of(file):
    """When it was written; None while it is not there, as between two checkpoints."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return None


@pytest.mark.parametrize(
    ("times", "large"), [(3, 0), (20, 0), (3, 1)], ids=["3", "20", "a large system"]
)
@pytest.mark.slow
def test_killed_and_still_the_same_bits(times, large, tmp_path, environment, request):
    checkpoint, result = tmp_path / "run.ckpt", tmp_path / "run.npz"
    again = partial(simulate_large, shape=(32, 32)) if large else simulate
    whole = again() if large else request.getfixturevalue("undisturbed")
    moments = random.Random(7)
    kills = 0
    while not result.exists():
        child = start(environment, checkpoint, result, large=large)
        if kills >= times:
            child.communicate(timeout=600)
            continue
        before = time_of(checkpoint)
        for _ in range(600):
            time.sleep(0.05)
            if child.poll() is not None or time_of(checkpoint) not in (None, before):
                break
        time.sleep(moments.uniform(0, 0.05))
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            kills += 1
        _, errors = child.communicate()
        assert child.returncode in (-signal.SIGKILL, 0), errors
    assert kills >= times
    assert not differences(da.load(result), whole)
    # A run that is complete is not run again.
    assert not differences(again(checkpoint), whole)


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path, undisturbed):
    checkpoint, result = tmp_path / "run.ckpt", tmp_path / "run.npz"
    child = start(UNBUFFERED, checkpoint, result, held=1)
    wait_for(checkpoint)
    child.send_signal(signal.SIGINT)
    (tmp_path / "run.ckpt.go").touch()
    output, errors = child.communicate(timeout=600)
    assert child.returncode == 130, errors
    assert "stopped after" in output and f"saved in {checkpoint}" in output
    assert not result.exists()
    assert not differences(simulate(checkpoint), undisturbed)


def partial_checkpoint(tmp_path, monkeypatch, simulate=simulate, **options):
    """A checkpoint of a run that stopped on its way, with a previous one beside it."""
    monkeypatch.setattr(blocks, "LEG_SECONDS", 0.0)
    monkeypatch.setattr(blocks, "FIRST_LEG", 1)
    path = tmp_path / "run.ckpt"
    previous = path.with_name("run.ckpt.previous")
    once, legs = iter([True]), []
    add = progress.ProgressBar.add

    def stop_later(bar, count):
        add(bar, count)
        legs.append(count)
        # Checkpoints are written every 0.1 s at most: legs must not be over before.
        if len(legs) > 3:
            wait_for(previous)
        if previous.exists() and next(once, False):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress.ProgressBar, "add", stop_later)
    with pytest.raises(da.Interrupted, match=r"The same call goes on from there"):
        simulate(da.Checkpoint(path, seconds=0.0), **options)
    monkeypatch.undo()
    assert path.exists() and previous.exists()
    return path


AVERAGES = {"along": da.TimeAverage(interrupted_run.SYSTEM.H, burn_in=80.0)}


def test_a_run_goes_on_to_a_later_end_with_the_bits_of_the_long_one(tmp_path, undisturbed):
    """From an end on the grid of saves, from one between them, and once again to no later one."""
    path = tmp_path / "run.ckpt"
    whole = simulate(statistics=AVERAGES)
    for t_end in (140.0, 215.0, 300.0, 300.0):
        run = simulate(path, statistics=AVERAGES, t_end=t_end)
        assert run.t[-1] == t_end
    assert not differences(run, undisturbed)
    for a, b in zip(run.statistics["along"], whole.statistics["along"], strict=True):
        assert np.array_equal(a, b)
    with pytest.raises(ValueError, match=r"t_end \(300.0 in the file, 215.0 now\).* may grow"):
        simulate(path, statistics=AVERAGES, t_end=215.0)
    with pytest.raises(ValueError, match=r"save_every \(700 in the file, 350 now\); t_end"):
        simulate(path, statistics=AVERAGES, t_end=700.0, save_every=350)


def test_a_stopped_run_goes_on_to_a_later_end(tmp_path, monkeypatch, undisturbed):
    path = partial_checkpoint(tmp_path, monkeypatch, t_end=200.0)
    assert not differences(simulate(path), undisturbed)


@pytest.mark.slow
def test_kept_states_of_a_run_that_goes_on_to_a_later_end(tmp_path):
    path = tmp_path / "run.ckpt"
    simulate_large(path, t_end=50.0)
    assert not differences(simulate_large(path), simulate_large())


def test_ends_are_kept_where_they_are_small_or_asked_for(tmp_path, monkeypatch, undisturbed):
    monkeypatch.setattr(ready, "SMALL_ENDS", 1000)
    simulate(tmp_path / "small", t_end=70.0)
    with pytest.raises(ValueError, match=r"t = 70, without the states .* to t = 300.*ends=True"):
        simulate(tmp_path / "small")
    asked = da.Checkpoint(tmp_path / "asked", ends=True)
    simulate(asked, t_end=70.0)
    assert not differences(simulate(asked), undisturbed)
    not_asked = da.Checkpoint(tmp_path / "not asked", ends=False)
    simulate(not_asked, t_end=70.0)
    with pytest.raises(ValueError, match="without the states from which it could go on"):
        simulate(not_asked)


@pytest.mark.slow
def test_large_systems_go_on_with_the_same_bits(tmp_path, monkeypatch):
    path = partial_checkpoint(tmp_path, monkeypatch, simulate_large)
    whole = simulate_large()
    assert not differences(simulate_large(path), whole)
    assert whole.q.shape == (31, 37, 4, 6)
    for number in (0, 36):
        alone = simulate_large(only=number)
        assert np.array_equal(alone.q[:, 0], whole.q[:, number])
    assert not differences(simulate_large(workers=1), whole)
    whole.save(tmp_path / "run.npz")
    assert not differences(da.load(tmp_path / "run.npz"), whole)
    whole.to_xarray().to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as data:
        assert not differences(da.Run.from_xarray(data), whole)
    with pytest.raises(ValueError, match=r"What differs: .*seed"):
        simulate_large(path, seed=6)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, monkeypatch, undisturbed):
    path = partial_checkpoint(tmp_path, monkeypatch)
    whole = path.read_bytes()
    middle = len(whole) // 2
    # More bytes than a header has: times and other things in it may be anything.
    scratched = whole[:middle] + 512 * b"?" + whole[middle + 512 :]
    for damaged in (whole[:middle], scratched, b""):
        path.write_bytes(damaged)
        with pytest.warns(RuntimeWarning, match="goes on from the checkpoint before it"):
            result = simulate(da.Checkpoint(path, seconds=1e9))
        assert not differences(result, undisturbed)
        path.with_name("run.ckpt.previous").write_bytes(whole)
    path.write_bytes(whole[:middle])
    path.with_name("run.ckpt.previous").unlink()
    with pytest.raises(ValueError, match=r"no good one before it. Give another name, or delete it"):
        simulate(path)
    assert path.read_bytes() == whole[:middle]


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


SMALL = {"t_end": 0.5, "paths": 20}


def test_a_complete_run_is_returned_though_its_checkpoint_cannot_be_written(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "could not write run.ckpt: No space left on device")

    monkeypatch.setattr(checkpoint_files.CheckpointFile, "write", full)
    with pytest.warns(
        RuntimeWarning, match=r"the run is complete, but its checkpoint is not.*No s"
    ):
        result = simulate(da.Checkpoint(tmp_path / "run.ckpt", seconds=1e9), **SMALL)
    assert not differences(result, simulate(**SMALL)) and not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_refused_before_the_work(monkeypatch):
    def work(*_):
        raise AssertionError("it has begun")

    monkeypatch.setattr(pool, "run_block", work)
    with pytest.raises(OSError, match="nothing can be written beside the checkpoint /proc/self/r"):
        simulate("/proc/self/run.ckpt", **SMALL)


def test_what_is_no_checkpoint_is_never_renamed_or_replaced(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    for make, message in (
        (path.mkdir, "run.ckpt is a folder: give the name of a file"),
        (lambda: os.mkfifo(path), "run.ckpt is not a plain file"),
    ):
        make()
        with pytest.raises(ValueError, match=message):
            simulate(path, **SMALL)
        assert [p.name for p in tmp_path.iterdir()] == ["run.ckpt"] and not path.is_file()
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(ValueError, match="/dev/null is not a plain file"):
        simulate("/dev/null", **SMALL)
    assert Path("/dev/null").is_char_device()
    result = simulate(path, **SMALL)
    good = path.read_bytes()
    for name in ("run.ckpt", "run.ckpt.new", "run.ckpt.previous", ".run.ckpt.lock"):
        other = tmp_path / name
        for content in (b"my notes", (result.save(other), other.read_bytes())[1]):
            path.write_bytes(good)
            other.write_bytes(content)
            with pytest.raises(ValueError, match=r"is not a dalembert checkpoint|it is not ours"):
                simulate(path, **SMALL)
            assert other.read_bytes() == content
        other.unlink()


def test_a_run_deletes_only_its_own_files(tmp_path):
    path = tmp_path / "run"
    own = [tmp_path / f"run.process{ending}" for ending in ("1", "12", "1.previous", "2.new")]
    simulate(path, **SMALL)
    for file in own:
        file.write_bytes(path.read_bytes())
    own[3].write_bytes(path.read_bytes()[:1000])
    others = [".run.new.77.partial", ".run2.new.77.partial", "run.processing-notes.txt"]
    others += ["run.process0", "run.process1.txt", "run.processes", "run.process3", "run2.process1"]
    for name in others:
        (tmp_path / name).write_bytes(b"mine")
    with pytest.warns(RuntimeWarning, match=r"run.process3 is not a readable.*run again"):
        simulate(path, **SMALL)
    assert not any(file.exists() for file in own)
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == sorted([*others, "run", "run.previous"])
    assert all((tmp_path / name).read_bytes() == b"mine" for name in others)


def test_blocks_of_another_run_are_refused_and_stay(tmp_path):
    simulate(tmp_path / "other", seed=1, **SMALL)
    file = tmp_path / "run.process1"
    (tmp_path / "other").rename(file)
    with pytest.raises(
        ValueError, match=r"run.process1 belongs to another run. What differs: seed"
    ):
        simulate(tmp_path / "run", **SMALL)
    assert file.exists() and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_two_runs_do_not_share_a_checkpoint(tmp_path, undisturbed):
    """The second is refused as long as the first lives, also if it is killed."""
    path = tmp_path / "run.ckpt"
    child = start(UNBUFFERED, path, tmp_path / "run.npz", held=1)
    wait_for(path)
    with pytest.raises(BlockingIOError, match=rf"in use by another run \(process {child.pid} on"):
        simulate(path)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert (tmp_path / ".run.ckpt.lock").exists()
    assert not differences(simulate(path), undisturbed)
    assert not (tmp_path / ".run.ckpt.lock").exists()


def test_where_there_are_no_locks_runs_go_without(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    path = tmp_path / "file"
    monkeypatch.setattr(lock.fcntl, "flock", unsupported)
    with lock.held(path), lock.held(path):
        pass
    monkeypatch.setattr(lock, "fcntl", None)
    with lock.held(path), lock.held(path):
        pass
    monkeypatch.undo()
    with lock.held(path), pytest.raises(BlockingIOError, match="in use"), lock.held(path):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_sigterm_saves_says_so_and_ends(tmp_path, undisturbed):
    path = tmp_path / "run.ckpt"
    child = start(UNBUFFERED, path, tmp_path / "run.npz", held=1)
    wait_for(path)
    child.send_signal(signal.SIGTERM)
    (tmp_path / "run.ckpt.go").touch()
    output, errors = child.communicate(timeout=600)
    assert child.returncode == -signal.SIGTERM, errors
    assert "stopped after" in errors and f"saved in {path}" in errors and "Trace" not in errors
    assert output == ""
    assert {p.name for p in tmp_path.iterdir()} <= {"run.ckpt", "run.ckpt.previous", "run.ckpt.go"}
    assert not differences(simulate(path), undisturbed)


def test_a_program_that_handles_sigterm_itself_is_left_alone(tmp_path, monkeypatch):
    seen, once = [], iter([True])
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("own"))
    add = progress.ProgressBar.add

    def terminated(bar, count):
        add(bar, count)
        if next(once, False):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(progress.ProgressBar, "add", terminated)
    try:
        result = simulate(**SMALL)
        assert seen == ["own"] and np.isfinite(result.q).all()
    finally:
        signal.signal(signal.SIGTERM, before)


class Ended(BaseException):
    """In place of the end of the process."""


def test_a_second_signal_does_not_disturb_the_saving(tmp_path, monkeypatch, capsys, undisturbed):
    path, write, once = tmp_path / "run.ckpt", checkpoint_files.CheckpointFile.write, iter([True])

    def write_disturbed(file, done):
        signal.raise_signal(signal.SIGTERM)
        write(file, done)

    def interrupt(*_):
        if next(once, False):
            signal.raise_signal(signal.SIGINT)

    def end(process, number):
        raise Ended(process, number)

    monkeypatch.setattr(checkpoint_files.CheckpointFile, "write", write_disturbed)
    monkeypatch.setattr(progress.ProgressBar, "add", interrupt)
    monkeypatch.setattr(os, "kill", end)
    with pytest.raises(Ended) as ended:
        simulate(da.Checkpoint(path, seconds=1e9))
    monkeypatch.undo()
    assert ended.value.args == (os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert f"saved in {path}. The same call goes on from there." in capsys.readouterr().err
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


def test_no_bit_of_the_name_of_kept_states_is_changed_unnoticed(tmp_path):
    path = tmp_path / "run.ckpt"
    result = simulate(path, **SMALL)
    whole, name = path.read_bytes(), b"kept/q"
    places = [i for i in range(len(whole)) if whole.startswith(name, i)]
    assert len(places) == 3, "in the list of the header, before the array and in the directory"
    for bit in [8 * place + bit for place in places for bit in range(3, 8 * len(name), 9)]:
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="is not a readable dalembert checkpoint file"):
            simulate(path, **SMALL)
    path.write_bytes(whole)
    assert not differences(simulate(path, **SMALL), result)


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
