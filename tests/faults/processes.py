"""Faults of processes: real disks that are full, real kills, and no more memory from the system."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import dalembert as da
import faults.rule
from faults.rule import Ground, kind, simulate
from interrupted_run import differences

SCRIPT = Path(faults.rule.__file__)
LONG = "500.0"


@cache
def _long() -> da.Run:
    return simulate(t_end=float(LONG))


def _environment() -> dict[str, str]:
    here = str(SCRIPT.parents[1])
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path, "JAX_ENABLE_X64": "1"}


def _child(ground: Ground, *arguments: str, before: tuple[str, ...] = ()) -> Any:
    command = [*before, sys.executable, str(SCRIPT), str(ground.folder), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=_environment(), **pipes)


def _shell(line: str) -> tuple[str, ...]:
    """A command line before a program, as whom alone file systems can be mounted."""
    return (
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'{line}; exec "$@"',
        "-",
    )


MOUNTS = {
    "a disk of no room": "mount -t tmpfs -o size=4k tmpfs {folder}",
    "a disk of little room": "mount -t tmpfs -o size=16k tmpfs {folder}",
    "a disk without room for names": "mount -t tmpfs -o nr_inodes=3 tmpfs {folder}",
    "a disk to be read only": "mount -t tmpfs -o ro tmpfs {folder}",
    "files of a limited size": "ulimit -f 8; trap '' XFSZ",
    "a folder that is not ours": "chmod 555 {folder}; set -- setpriv --reuid=65534 "
    '--clear-groups "$@"',
}


@kind(
    "The disk of a process is full or cannot be written, for real",
    "An error that names the file and the reason.",
    list(MOUNTS),
)
def real_disk(way: str, ground: Ground) -> None:
    line = MOUNTS[way].format(folder=ground.folder)
    before = _shell(line) if "ulimit" not in line else ("bash", "-c", f'{line}; exec "$@"', "-")
    if way == "a folder that is not ours":
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            pytest.skip("only root can be somebody else")
        before = ("sh", "-c", f'{line}; exec "$@"', "-")
        # As many as pytest has made for itself alone.
        for folder in ground.folder.parents:
            if folder.stat().st_mode & 0o005 != 0o005:
                folder.chmod(0o755)
    elif "mount" in line and subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    output, errors = _child(ground, before=before).communicate(timeout=600)
    ground.folder.chmod(0o755)
    said = r"\w+Error: .*(could not write|nothing can be written beside).*run\.ckpt: \w+"
    assert re.match(said, output.removeprefix("ready\n")), output + errors


@kind(
    "A process is killed at a random time",
    "The same call goes on from what was saved.",
    [f"number {i}" for i in range(10)],
)
def killed_at_random(way: str, ground: Ground) -> None:
    child = _child(ground, LONG)
    assert child.stdout.readline() == "ready\n"
    time.sleep(random.Random(way).uniform(0.5, 4.0))
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not differences(simulate(ground.path, t_end=float(LONG)), _long())


@kind(
    "A process gets no more memory from the system",
    "It ends, in whatever way, and the same call goes on.",
    ["with little left", "with nothing left"],
)
def real_memory(way: str, ground: Ground) -> None:
    room = 2_600_000 if way == "with little left" else 1_500_000
    before = ("bash", "-c", f'ulimit -v {room}; exec "$@"', "-")
    output, _ = _child(ground, LONG, before=before).communicate(timeout=600)
    assert "wrong" not in output
    assert not differences(simulate(ground.path, t_end=float(LONG)), _long())
