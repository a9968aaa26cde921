"""How much memory this machine, or the part of it that a job was given, has to spare."""

import os
from pathlib import Path

SHARE = 0.8
"""Of the memory that is free, how much a run or a file may take."""

GROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Where Linux says what a container or a job of a queue may use, and to which this one belongs."""


def available_memory() -> int:
    """Bytes that are not in use, where the system says so, else all that there are."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        machine = next(1024 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_left_to_groups()])


def _left_to_groups() -> list[int]:
    """What is left to the control groups of this process that have a limit; they are nested."""
    try:
        lines = MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for number, kinds, name in (line.split(":", 2) for line in lines):
        if number == "0" or "memory" in kinds.split(","):
            top = GROUPS if number == "0" else GROUPS / "memory"
            group = top / name.lstrip("/")
            found += [left for folder in (group, *group.parents) for left in _left(folder)]
    return found


def _left(group: Path) -> list[int]:
    """What a limited group has not used, under the names of its two versions."""
    for names in (("max", "current"), ("limit_in_bytes", "usage_in_bytes")):
        try:
            limit, used = (int((group / f"memory.{name}").read_text()) for name in names)
            stat = dict(x.split() for x in (group / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue  # not here, or "max"
        # Files that were read and can be read again give way.
        again = stat.get("total_inactive_file", stat.get("inactive_file", 0))
        return [max(limit - used + int(again), 0)]
    return []


def gib(size: int) -> str:
    """A size in words."""
    return f"{size / 2**30:,.1f} GiB"
