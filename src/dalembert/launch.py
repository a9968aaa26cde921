"""Running a Python file in one process or in several that share their simulations."""

import os
import socket
import subprocess
import sys
import time

from dalembert.ensemble.blocks import LOCAL_PROCESSES
from dalembert.ensemble.processes import connect, in_launcher

__all__ = ["join", "launch"]

COORDINATOR, PROCESSES, PROCESS = (
    "DALEMBERT_COORDINATOR",
    "DALEMBERT_PROCESSES",
    "DALEMBERT_PROCESS",
)


def launch(arguments: list[str], processes: int) -> int:
    """Start `python -m dalembert ARGUMENTS` in several processes; returns the exit status.

    If one of them fails the others are stopped: they could only wait for it.
    """
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    common = {
        COORDINATOR: f"localhost:{port}",
        PROCESSES: str(processes),
        LOCAL_PROCESSES: str(processes),
    }
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "dalembert", *arguments],
            env=os.environ | common | {PROCESS: str(process)},
        )
        for process in range(processes)
    ]
    status = 0
    try:
        while status == 0 and any(child.poll() is None for child in children):
            time.sleep(0.1)
            status = next((child.returncode for child in children if child.poll()), 0)
    except KeyboardInterrupt:
        # Ctrl-C has reached the children as well: they save themselves and end.
        for child in children:
            child.wait()
    finally:
        for child in children:
            if child.poll() is None:
                child.terminate()
            child.wait()
    failed = next((child.returncode for child in children if child.returncode), 0)
    return abs(status or failed)


def join() -> int:
    """Connect this process to the others of its run, if there are any; returns its number.

    They are found by what `launch` set, or by SLURM or MPI.
    """
    if COORDINATOR in os.environ:
        process = int(os.environ[PROCESS])
        connect(os.environ[COORDINATOR], int(os.environ[PROCESSES]), process)
        return process
    if in_launcher() is None:
        return 0
    connect()
    import jax

    return jax.process_index()
