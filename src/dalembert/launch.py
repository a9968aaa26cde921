"""Running a Python file in one process or in several that share their simulations."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dalembert.ensemble.pool import LOCAL_PROCESSES
from dalembert.ensemble.processes import BIND_ADDRESS, connect, in_launcher
from dalembert.ensemble.sigterm import Terminated, ending_on_sigterm

COORDINATOR, PROCESSES, PROCESS, PIPE = (
    "DALEMBERT_COORDINATOR",
    "DALEMBERT_PROCESSES",
    "DALEMBERT_PROCESS",
    "DALEMBERT_PIPE",
)

MOMENT = 1.0
"""Seconds for processes that may be about to end by themselves."""

GRACE = 6.5
"""Seconds for a process to save itself after it was told to end; then it ends as it is."""

AFTERWARDS = 1.0
"""Seconds after which one that has not even done that is killed: all have ended within ten."""

Child = subprocess.Popen[bytes]


def launch(arguments: list[str], processes: int) -> int:
    """Start `python -m dalembert ARGUMENTS` in several processes; returns the exit status.

    If one of them ends badly, or this one is told to end, all of them save themselves and end. They
    do the same if this one is killed.
    """
    children: list[Child] = []
    # The children see the other end closed when this process ends, in whatever way.
    reading, writing = os.pipe()
    with ending_on_sigterm(), _coordinator(processes, reading) as common:
        try:
            for process in range(processes):
                own = os.environ | common | {PROCESS: str(process)}
                command = [sys.executable, "-m", "dalembert", *arguments]
                children.append(subprocess.Popen(command, env=own, pass_fds=_handed_on(reading)))
            return _supervise(children)
        except KeyboardInterrupt:
            _end(children)
            _say("interrupted: all processes have ended.")
            return 128 + signal.SIGINT
        except Terminated:
            _end(children)
            raise Terminated("ended by SIGTERM, and all processes with it.") from None
        finally:
            for child in children:
                child.kill()
            os.close(reading)
            os.close(writing)


@contextmanager
def _coordinator(processes: int, pipe: int) -> Iterator[dict[str, str]]:
    """What all processes are told, while another one coordinates them if JAX can have it so."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    common = {
        COORDINATOR: f"localhost:{port}",
        PROCESSES: str(processes),
        LOCAL_PROCESSES: str(processes),
    }
    if not _handed_on(pipe):
        yield common
        return
    common[PIPE] = str(pipe)
    program = str(Path(__file__).with_name("coordinator.py"))
    with subprocess.Popen(
        [sys.executable, "-P", program, str(port), str(processes), str(pipe)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=_handed_on(pipe),
    ) as coordinator:
        try:
            if coordinator.stdout and coordinator.stdout.readline() == b"ready\n":
                # JAX has the first process coordinate as well, where nobody asks it.
                common[BIND_ADDRESS] = "localhost:0"
            yield common
        finally:
            coordinator.kill()


def _handed_on(pipe: int) -> tuple[int, ...]:
    """What children inherit: the pipe, but nothing on Windows, which cannot do that."""
    return (pipe,) if os.name == "posix" else ()


def _supervise(children: list[Child]) -> int:
    """Wait for all to end, or end all when one of them ends badly; the exit status."""
    number = _wait_for_end_or_failure(children)
    if number is None:
        return 0
    failed = children[number]
    was_told = failed.returncode < 0 or failed.returncode > 128
    if _end(children) or was_told:
        _say(
            f"process {number} of {len(children)} {_how(failed)}, so the others have been ended. "
            "With a checkpoint the same command goes on from there."
        )
    return _status(failed)


def _wait_for_end_or_failure(children: list[Child]) -> int | None:
    """Wait for all to end; the number of the first that ends badly, or None."""
    while True:
        states = [child.poll() for child in children]
        for number, state in enumerate(states):
            if state:
                return number
        if None not in states:
            return None
        time.sleep(0.1)


def _end(children: list[Child]) -> bool:
    """End all processes: let them, tell them, kill them; whether they had to be told."""
    _wait(children, MOMENT)
    told = [child for child in children if child.poll() is None]
    for child in told:
        child.terminate()
    _wait(children, GRACE + AFTERWARDS)
    for number, child in enumerate(children):
        if child.poll() is None:
            child.kill()
            _say_unsaved(f"process {number} of {len(children)}", GRACE + AFTERWARDS, "killed")
        child.wait()
    return bool(told)


def _wait(children: list[Child], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(child.poll() is None for child in children):
        time.sleep(0.05)


def _status(child: Child) -> int:
    """The exit status as a shell gives it: 128 + the number of the signal that ended it."""
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _how(child: Child) -> str:
    if child.returncode >= 0:
        return f"has failed with status {child.returncode}"
    return f"was ended by {signal.Signals(-child.returncode).name}"


def _say(sentence: str) -> None:
    # Whoever reads it may have gone.
    with suppress(OSError, ValueError):
        print(sentence, file=sys.stderr, flush=True)


def _say_unsaved(who: str, seconds: float, how: str) -> None:
    _say(
        f"{who} had not saved itself and ended {seconds:g} s after it was told to, and was {how}. "
        "With a checkpoint the same command goes on from the last one that was written."
    )


def join() -> int:
    """Connect this process to the others of its run, if there are any; returns its number.

    They are found by what `launch` set, or by SLURM or MPI.
    """
    if COORDINATOR in os.environ:
        if PIPE in os.environ:
            _end_in_time(int(os.environ[PIPE]))
        process = int(os.environ[PROCESS])
        connect(os.environ[COORDINATOR], int(os.environ[PROCESSES]), process)
        return process
    if in_launcher() is None:
        return 0
    connect()
    import jax

    return jax.process_index()


def _end_in_time(pipe: int) -> None:
    """Have this process end with the one that has started it, and soon after any SIGTERM.

    Both are waited for in a thread: the first one may be where no handler of signals is called,
    and the launcher does not know of a signal that somebody else has sent.
    """
    arrived, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait() -> None:
        number = 0
        while number != signal.SIGTERM:
            if pipe in select.select([pipe, arrived], [], [])[0]:
                os.kill(os.getpid(), signal.SIGTERM)
                break
            number = os.read(arrived, 1)[0]
        time.sleep(GRACE)
        _say_unsaved(f"process {os.environ[PROCESS]} of {os.environ[PROCESSES]}", GRACE, "ended")
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, name="dalembert end", daemon=True).start()
