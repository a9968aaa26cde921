"""Real launchers on one machine: Open MPI's `mpirun`, and SLURM with daemons of its own.

Under both, processes find each other, save themselves when the job is ended or queued again, and
another number of processes goes on. Under Open MPI also the executors of `mpi4py.futures`.
"""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dalembert as da
from dalembert.ensemble import pool
from interrupted_run import differences

STUDY = """
import os
import time
import jax
import dalembert as da
from dalembert.ensemble import blocks
from dalembert.ensemble.checkpoint import CheckpointFile

write = CheckpointFile.write

def slowly(file, progress):
    # The first process, without which JAX ends the others, is the first to be ready to end.
    time.sleep(float(os.environ.get("DELAY", "0")) * jax.process_index())
    write(file, progress)

CheckpointFile.write = slowly
blocks.LEG_SECONDS, blocks.FIRST_LEG = 0.05, 2**18
folder = os.path.dirname(os.path.abspath(__file__))
run = da.simulate(
    da.systems.damped_kubo(), da.midpoint(), ([2.0], [0.0]), dt=0.1, t_end=T_END, paths=3000,
    save_every=10000, keep="final", progress=False,
    checkpoint=da.Checkpoint(f"{folder}/run.ckpt", seconds=0.5),
)
run.save(f"{folder}/run.npz")
print("processes:", run.provenance["processes"])
"""
SHORT, LONG = 1000.0, 150_000.0


def alone(t_end):
    options = {"dt": 0.1, "t_end": t_end, "paths": 3000, "save_every": 10000, "keep": "final"}
    system = da.systems.damped_kubo()
    return da.simulate(system, da.midpoint(), ([2.0], [0.0]), progress=False, **options)


def program(folder, t_end):
    """A command that runs the study, to be started by a launcher."""
    script = folder / "study.py"
    script.write_text(STUDY.replace("T_END", str(t_end)))
    return [sys.executable, "-m", "dalembert", "run", str(script)]


def run(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_until(condition, seconds=600.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    assert condition()


def files(folder):
    """What two processes save, by the time of their last writing."""
    found = (folder / "run.ckpt", folder / "run.ckpt.process1")
    return {path.name: path.stat().st_mtime for path in found if path.exists()}


def is_at_work(folder):
    return len(files(folder)) == 2


def check_goes_on(folder, command, environment):
    """Both had saved themselves when they were told to end, and three go on."""
    assert not (folder / "run.npz").exists()
    assert "processes: 3" in run(command, environment)
    assert not differences(da.load(folder / "run.npz"), alone(LONG))
    assert sorted(p.name for p in folder.glob("run.ckpt*")) == ["run.ckpt", "run.ckpt.previous"]


@pytest.fixture(scope="module")
def mpi():
    """What `mpirun` needs, which gives processes two seconds to end."""
    if shutil.which("mpirun") is None:
        pytest.skip("needs Open MPI: apt-get install openmpi-bin")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    grace = ("--mca", "odls_base_sigkill_timeout", "2")
    return os.environ | allowed, ["mpirun", *grace, "--oversubscribe", "-n"]


@pytest.mark.slow
def test_open_mpi(tmp_path, mpi):
    environment, mpirun = mpi
    assert "processes: 2" in run([*mpirun, "2", *program(tmp_path, SHORT)], environment)
    assert not differences(da.load(tmp_path / "run.npz"), alone(SHORT))


@pytest.mark.slow
def test_open_mpi_is_told_to_end_and_three_go_on(tmp_path, mpi):
    environment, mpirun = mpi
    study = program(tmp_path, LONG)
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    launcher = subprocess.Popen([*mpirun, "2", *study], env=environment, **pipes)
    wait_until(lambda: is_at_work(tmp_path))
    launcher.send_signal(signal.SIGTERM)
    launcher.wait(600)
    before, after = files(tmp_path), time.time()
    assert is_at_work(tmp_path) and max(abs(after - x) for x in before.values()) < 10
    check_goes_on(tmp_path, [*mpirun, "3", *study], environment)


ON_EXECUTOR = """
import os
import dalembert as da
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor, MPIPoolExecutor

folder = os.path.dirname(os.path.abspath(__file__))

def cube(q, p, params):
    return q[0] ** power

power = 3

def simulate(executor=None):
    return da.simulate(
        da.systems.damped_kubo(), da.midpoint(), ([2.0], [0.0]), dt=0.1, t_end=T_END, paths=81_920,
        save_every=1000, keep="final", observe={"cube": cube}, workers=1, progress=False,
        checkpoint=da.Checkpoint(f"{folder}/run.ckpt", seconds=0.1), executor=executor,
    )

if __name__ == "__main__":
    with WAY as pool:
        if pool is not None:
            with open(f"{folder}/worker", "w") as file:
                file.write(str(pool.submit(os.getpid).result()))
            run = simulate(pool)
            run.save(f"{folder}/run.npz")
            print("workers:", pool.num_workers, "processes:", run.provenance["processes"])
"""
WAYS = {
    "pool": (("-m", "mpi4py.futures"), "MPIPoolExecutor()"),
    "communicator": ((), "MPICommExecutor(MPI.COMM_WORLD, root=0)"),
}


def on_executor(folder, way, t_end):
    """A command whose first process runs blocks on the others, and what it runs, for here."""
    pytest.importorskip("mpi4py")
    started_by, executor = WAYS[way]
    script = folder / "study.py"
    script.write_text(ON_EXECUTOR.replace("T_END", str(t_end)).replace("WAY", executor))
    here = {"__file__": str(folder / "here" / "study.py"), "__name__": "here"}
    (folder / "here").mkdir()
    exec(script.read_text(), here)
    return [sys.executable, *started_by, str(script)], here["simulate"]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_executors_of_mpi4py_give_the_same_bits(way, tmp_path, mpi):
    environment, mpirun = mpi
    command, simulate = on_executor(tmp_path, way, 300.0)
    assert "workers: 2 processes: 2" in run([*mpirun, "3", *command], environment)
    assert not differences(da.load(tmp_path / "run.npz"), simulate())


@pytest.mark.slow
def test_a_killed_worker_of_mpi4py_ends_the_job_and_the_checkpoint_goes_on(
    tmp_path, mpi, monkeypatch
):
    """Open MPI ends all processes with one of them."""
    environment, mpirun = mpi
    command, simulate = on_executor(tmp_path, "pool", 3000.0)
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    launcher = subprocess.Popen([*mpirun, "3", *command], env=environment, **pipes)
    wait_until((tmp_path / "run.ckpt").exists)
    os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)
    assert launcher.wait(600) != 0
    assert not (tmp_path / "run.npz").exists()
    undisturbed, begun, run_block = simulate(), [], pool.run_block
    shutil.copy(tmp_path / "run.ckpt", tmp_path / "here")
    monkeypatch.setattr(pool, "run_block", lambda *args: begun.append(args) or run_block(*args))
    assert not differences(simulate(), undisturbed)
    assert 0 < len(begun) < 20


CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
KillWait=60
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The environment of a queue on this machine."""
    needed = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol")
    where = os.environ["PATH"] + os.pathsep + "/usr/sbin"
    missing = [name for name in needed if shutil.which(name, path=where) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {missing or 'nothing'}: apt-get install slurm-wlm munge")
    # A socket must be within reach of everybody, and its name short.
    folder = Path(f"/tmp/dalembert-slurm-{os.getpid()}")
    for path in (folder, folder / "state", folder / "spool"):
        path.mkdir(mode=0o755)
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o400)
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    text = CONFIGURATION.format(host=host, user=user, folder=folder, ports=free_ports(2))
    (folder / "slurm.conf").write_text(text)
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": where}
    named = [f"--{n}-file={folder}/munge.{n}" for n in ("pid", "log", "seed")]
    munge = ["munged", "--foreground", "--force", f"--key-file={folder}/key", *named]
    daemons = []
    try:
        for command in (
            [*munge, f"--socket={folder}/munge.socket", "--num-threads=1"],
            ["slurmctld", "-D"],
            ["slurmd", "-D"],
        ):
            with open(folder / f"{command[0]}.out", "wb") as out:
                daemons.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            time.sleep(1.0)

        def is_ready():
            asked = subprocess.run(
                ["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True
            )
            return asked.stdout.strip() == "idle"

        wait_until(is_ready)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)
        shutil.rmtree(folder)


@pytest.mark.slow
def test_slurm(tmp_path, slurm):
    command = ["srun", "--overcommit", "-n", "2", *program(tmp_path, SHORT)]
    assert "processes: 2" in run(command, slurm)
    assert not differences(da.load(tmp_path / "run.npz"), alone(SHORT))


@pytest.mark.slow
def test_slurm_queues_a_job_again_and_three_go_on(tmp_path, slurm):
    """A job that is pre-empted is told to end by SIGTERM, in every process at a time."""
    study = program(tmp_path, LONG)
    job, out = tmp_path / "job.sh", tmp_path / "out"
    lines = ["#!/bin/bash", "#SBATCH --requeue --ntasks=2 --overcommit", f"#SBATCH --output={out}"]
    job.write_text("\n".join([*lines, " ".join(["srun", "--overcommit", *study]), ""]))
    number = run(["sbatch", "--parsable", str(job)], slurm | {"DELAY": "3"}).strip()
    wait_until(lambda: is_at_work(tmp_path))
    told = time.time()
    run(["scontrol", "requeue", number], slurm)
    wait_until(lambda: run(["squeue", "-h", "-o", "%t", "-j", number], slurm).strip() == "PD")
    assert all(written > told - 0.1 for written in files(tmp_path).values())
    assert f"saved in {tmp_path / 'run.ckpt'}. The same call goes on from there." in out.read_text()
    assert "Traceback" not in out.read_text() and "fatal" not in out.read_text()
    run(["scancel", number], slurm)
    check_goes_on(tmp_path, ["srun", "--overcommit", "-n", "3", *study], slurm)
