"""Several processes on one machine give the bits of one, and go on in any number."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dalembert as da
import interrupted_run
from dalembert import launch as launching
from dalembert.launch import _supervise
from interrupted_run import differences, simulate

SCRIPT = Path(interrupted_run.__file__)


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def start(tmp_path, processes, *others):
    """Processes of which each has one worker more than the one before."""
    port = free_port()
    children = []
    for process in range(processes):
        options = [f"process={process}", f"processes={processes}", f"port={port}"]
        options += [f"workers={process + 1}", *others]
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


@pytest.mark.parametrize("plain", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_two_processes_give_the_bits_of_one(tmp_path, plain):
    children = start(tmp_path, 2, f"plain={plain}")
    errors = [child.communicate(timeout=600)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0], errors
    result = da.load(tmp_path / "r.npz")
    assert not differences(result, simulate(plain=plain))
    assert result.provenance["processes"] == 2


@pytest.mark.slow
def test_one_of_two_is_killed_and_one_goes_on(tmp_path, undisturbed):
    children = start(tmp_path, 2)
    mine = tmp_path / "run.ckpt.process1"
    assert wait_until(mine.exists)
    children[1].send_signal(signal.SIGKILL)
    time.sleep(0.5)
    children[0].send_signal(signal.SIGKILL)
    for child in children:
        child.communicate(timeout=600)
    assert not (tmp_path / "r.npz").exists()
    assert (tmp_path / "run.ckpt").exists() and mine.exists()
    assert not differences(simulate(tmp_path / "run.ckpt"), undisturbed)


@pytest.mark.slow
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode != 0


@pytest.mark.slow
def test_a_study_in_two_processes(tmp_path):
    options = ["--method", "heun", "--paths", "2", "--t-end", "50", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "dalembert", "reproduce", "lorentz", *options]
    done = subprocess.run(
        [*command, "--processes", "2"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "lorentz.npz").exists() and (tmp_path / "claims.json").exists()


LONG = """
import os, sys
import dalembert as da
from dalembert.ensemble import blocks

folder = os.path.dirname(__file__)
process = int(os.environ["DALEMBERT_PROCESS"])
with open(f"{folder}/pid{process}", "w") as file:
    file.write(str(os.getpid()))
if os.path.exists(f"{folder}/fails{process}"):
    sys.exit(3)
blocks.LEG_SECONDS = 0.05
run = da.simulate(da.systems.damped_kubo(), da.midpoint(), ([2.0], [0.0]), dt=0.1, t_end=1e7,
                  paths=2000, save_every=100_000, progress=False,
                  checkpoint=da.Checkpoint(f"{folder}/run.ckpt", seconds=0.2))
"""


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process whose parent has been killed stays as a zombie until somebody asks for it.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(condition, seconds=600.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def launch(folder, text=LONG):
    """The program with two processes."""
    script = folder / "long.py"
    script.write_text(text)
    # Whoever starts the tests in the background has Ctrl-C ignored, here and in all children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "dalembert", "run", str(script), "--processes", "2"]
    try:
        program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    return program


def at_work(folder):
    files = [folder / "run.ckpt", folder / "run.ckpt.process1"]
    assert wait_until(lambda: all(file.exists() for file in files))
    return [int((folder / f"pid{process}").read_text()) for process in range(2)]


WAIT = "import time; time.sleep(60)"
KILLED = "process {} of 2 was ended by {}, so the others have been ended."
ENDS = [
    ("1", signal.SIGKILL, 137, KILLED.format(1, "SIGKILL")),
    ("launcher", signal.SIGTERM, -15, "ended by SIGTERM, and all processes with it."),
    ("0", signal.SIGKILL, 137, KILLED.format(0, "SIGKILL")),
    ("1", signal.SIGTERM, 143, KILLED.format(1, "SIGTERM")),
    ("0", signal.SIGTERM, 143, KILLED.format(0, "SIGTERM")),
    ("1", signal.SIGINT, 130, "process 1 of 2 has failed with status 130, so the others"),
    ("launcher", signal.SIGINT, 130, "interrupted: all processes have ended."),
    ("launcher", signal.SIGKILL, -9, ""),
    ("all", signal.SIGINT, 130, "interrupted: all processes have ended."),
    ("all", signal.SIGTERM, -15, "ended by SIGTERM, and all processes with it."),
]


@pytest.mark.parametrize(
    ("how", "status", "sentence"),
    [
        (signal.SIGKILL, 137, KILLED.format(1, "SIGKILL")),
        (signal.SIGTERM, 143, KILLED.format(1, "SIGTERM")),
        (None, 3, "process 1 of 2 has failed with status 3, so the others have been ended."),
    ],
)
def test_of_two_programs_one_ends_badly_and_the_other_is_ended(how, status, sentence, capsys):
    children = [
        subprocess.Popen([sys.executable, "-S", "-c", program])
        for program in (WAIT, WAIT if how else "raise SystemExit(3)")
    ]
    if how:
        children[1].send_signal(how)
    assert _supervise(children) == status
    assert sentence in capsys.readouterr().err
    assert children[0].returncode == -signal.SIGTERM


def test_a_program_that_does_not_end_is_killed_and_named(capsys, monkeypatch):
    """Within ten seconds from the first failure to the end of the last, what the machine takes
    for itself included."""
    assert launching.MOMENT + launching.GRACE + launching.AFTERWARDS < 9.0
    for name in ("MOMENT", "GRACE", "AFTERWARDS"):
        monkeypatch.setattr(launching, name, 0.1)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); "
    programs = (deaf + "time.sleep(60)", "input(); raise SystemExit(3)")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    children = [
        subprocess.Popen([sys.executable, "-S", "-c", program], **pipes) for program in programs
    ]
    children[0].stdout.readline()
    children[1].stdin.close()
    assert _supervise(children) == 1
    for child in children:
        child.stdout.close()
    children[0].stdin.close()
    said = capsys.readouterr().err
    assert "process 0 of 2 had not saved itself and ended 0.2 s after it was told to" in said
    assert "goes on from the last one that was written" in said
    assert children[0].returncode == -signal.SIGKILL


def test_two_programs_that_end_well_are_let_alone(capsys):
    children = [subprocess.Popen([sys.executable, "-S", "-c", ""]) for _ in range(2)]
    assert _supervise(children) == 0 and capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whom", "how", "status", "sentence"),
    ENDS,
    ids=[f"{whom}-{how.name}" for whom, how, *_ in ENDS],
)
def test_all_processes_end_soon_with_a_sentence_and_a_checkpoint(
    tmp_path, whom, how, status, sentence
):
    launched = time.monotonic()
    program = launch(tmp_path)
    pids = at_work(tmp_path)
    # On a machine that has other things to do they also take long to begin.
    soon = max(10.0, time.monotonic() - launched)
    named = {"launcher": [program.pid], "all": [program.pid, *pids]}
    ended = time.monotonic()
    before = max(file.stat().st_mtime_ns for file in tmp_path.glob("run.ckpt*"))
    for pid in named.get(whom) or [pids[int(whom)]]:
        os.kill(pid, how)
    _, errors = program.communicate(timeout=600)
    assert wait_until(lambda: not any(map(is_alive, pids)), soon)
    assert time.monotonic() - ended < soon
    assert program.returncode == status and sentence in errors
    assert "Traceback" not in errors and "Check failure stack trace" not in errors
    if (whom, how) != ("0", signal.SIGKILL):
        assert f"saved in {tmp_path / 'run.ckpt'}. The same call goes on from there." in errors
    assert max(file.stat().st_mtime_ns for file in tmp_path.glob("run.ckpt*")) > before


DEAF = """
import os, time
process = os.environ["DALEMBERT_PROCESS"]
with open(f"{os.path.dirname(__file__)}/pid{process}", "w") as file:
    file.write(str(os.getpid()))
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whom", "how"),
    [("launcher", signal.SIGTERM), ("launcher", signal.SIGKILL), ("1", signal.SIGTERM)],
    ids=["launcher-SIGTERM", "launcher-SIGKILL", "1-SIGTERM"],
)
def test_processes_that_do_not_listen_end_within_ten_seconds(tmp_path, whom, how):
    launched = time.monotonic()
    program = launch(tmp_path, DEAF)
    files = [tmp_path / f"pid{process}" for process in range(2)]
    assert wait_until(lambda: all(file.exists() and file.read_text() for file in files))
    pids = [int(file.read_text()) for file in files]
    began = time.monotonic()
    # As above; if the launcher was not told, it hears of it when the first process ends.
    soon = max(10.0, began - launched) + (launching.GRACE if whom == "1" else 0.0)
    os.kill(program.pid if whom == "launcher" else pids[1], how)
    assert wait_until(lambda: not any(map(is_alive, [*pids, program.pid])), 60.0)
    took = time.monotonic() - began
    _, errors = program.communicate(timeout=60)
    assert took < soon, errors
    told = f"had not saved itself and ended {launching.GRACE:g} s after it was told to, and was"
    assert f"process 1 of 2 {told} ended." in errors
    assert whom == "1" or f"process 0 of 2 {told} ended." in errors


@pytest.mark.slow
def test_a_process_that_fails_alone_ends_the_others(tmp_path):
    (tmp_path / "fails1").touch()
    program = launch(tmp_path)
    _, errors = program.communicate(timeout=600)
    assert program.returncode == 3
    assert "process 1 of 2 has failed with status 3, so the others have been ended." in errors
    assert not is_alive(int((tmp_path / "pid0").read_text()))


@pytest.mark.slow
def test_two_programs_of_two_processes_do_not_share_a_checkpoint(tmp_path):
    first = launch(tmp_path)
    pids = at_work(tmp_path)
    second = launch(tmp_path)
    _, errors = second.communicate(timeout=600)
    assert second.returncode == 2
    assert f"the checkpoint {tmp_path / 'run.ckpt'} is in use by another run" in errors
    assert first.poll() is None
    first.terminate()
    first.communicate(timeout=600)
    assert not any(map(is_alive, pids))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_a_study_of_single_paths_saves_them_all(tmp_path, how):
    """They run in other threads than the one that is told to stop."""
    script, out = tmp_path / "study.py", tmp_path / "out"
    script.write_text(
        "import signal\n"
        "import dalembert as da\n"
        "from dalembert.studies import Case, Part, Study\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "cases = (Case('heun', 0.1), Case('midpoint', 0.1))\n"
        "part = Part('all', cases, ([2.0], [0.0]), 1e7, 1, 1e4)\n"
        "study = Study('long', 'Long', 'Text.', da.systems.damped_kubo(), (part,))\n"
    )
    command = [sys.executable, "-m", "dalembert", "run", str(script), "--out", str(out)]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    folder = out / "unfinished" / "long"
    assert wait_until(lambda: len(list(folder.glob(".*.lock"))) == 2)
    time.sleep(2.0)
    program.send_signal(how)
    _, errors = program.communicate(timeout=600)
    assert program.returncode == (-how if how == signal.SIGTERM else 130)
    assert f"the study was stopped; saved in {folder}. The same call goes on" in errors
    assert "Traceback" not in errors
    assert len(list(folder.glob("*.ckpt"))) == 2 and not list(folder.glob(".*.lock"))
