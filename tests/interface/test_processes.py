"""Several processes on one machine give the bits of one, and go on in any number."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dalembert as da
import interrupted_run
from interrupted_run import differences, simulate

SCRIPT = Path(interrupted_run.__file__)


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def start(tmp_path, processes):
    """Processes of which each has one worker more than the one before."""
    port = free_port()
    children = []
    for process in range(processes):
        options = [f"process={process}", f"processes={processes}", f"port={port}"]
        options += [f"workers={process + 1}"]
        command = [sys.executable, str(SCRIPT), str(tmp_path / "run.ckpt"), str(tmp_path / "r.npz")]
        children.append(
            subprocess.Popen(
                [*command, *options],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return children


@pytest.fixture(scope="module")
def undisturbed():
    return simulate()


def test_two_processes_give_the_bits_of_one(tmp_path, undisturbed):
    children = start(tmp_path, 2)
    errors = [child.communicate(timeout=300)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0], errors
    result = da.load(tmp_path / "r.npz")
    assert not differences(result, undisturbed)
    assert result.provenance["processes"] == 2


def test_one_of_two_is_killed_and_one_goes_on(tmp_path, undisturbed):
    children = start(tmp_path, 2)
    mine = tmp_path / "run.ckpt.process1"
    for _ in range(2000):
        time.sleep(0.05)
        if mine.exists():
            break
    children[1].send_signal(signal.SIGKILL)
    time.sleep(0.5)
    children[0].send_signal(signal.SIGKILL)
    for child in children:
        child.communicate(timeout=60)
    assert not (tmp_path / "r.npz").exists()
    assert (tmp_path / "run.ckpt").exists() and mine.exists()
    assert not differences(simulate(tmp_path / "run.ckpt"), undisturbed)


def test_the_program_starts_several_processes(tmp_path):
    script = tmp_path / "study.py"
    script.write_text(
        "import jax, dalembert as da\n"
        "run = da.simulate(da.systems.damped_kubo(), da.midpoint(), ([2.0], [0.0]), dt=0.25,\n"
        "                  t_end=2.5, paths=5000, save_every=10)\n"
        f"run.save({str(tmp_path / 'run.npz')!r})\n"
        "print('processes:', run.provenance['processes'], 'count:', run.count[-1])\n"
    )
    command = [sys.executable, "-m", "dalembert", "run", str(script), "--processes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("processes: 2 count: 5000") == 1
    alone = da.simulate(
        da.systems.damped_kubo(),
        da.midpoint(),
        ([2.0], [0.0]),
        dt=0.25,
        t_end=2.5,
        paths=5000,
        save_every=10,
    )
    shared = da.load(tmp_path / "run.npz")
    assert shared.moments["energy"].mean.tobytes() == alone.moments["energy"].mean.tobytes()
    script.write_text("import sys\nsys.exit(3)\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0


@pytest.mark.slow
def test_a_study_in_two_processes(tmp_path):
    options = ["--method", "heun", "--paths", "2", "--t-end", "50", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "dalembert", "reproduce", "lorentz", *options]
    done = subprocess.run(
        [*command, "--processes", "2"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "lorentz.npz").exists() and (tmp_path / "claims.json").exists()
