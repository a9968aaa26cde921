"""How much memory a run needs, and whether this machine has it."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

from dalembert.ensemble.blocks import IN_FLIGHT
from dalembert.ensemble.schedule import SAVES_PER_LEG
from dalembert.ensemble.settings import Settings

__all__ = ["check_memory", "needed_memory"]

SHARE = 0.8
"""Of the memory that is free, how much a run may take."""

MOMENTS = 5
"""Numbers per save and component of an observable: count, mean, deviations, minimum, maximum."""


def check_memory(settings: Settings, components: Mapping[str, int], workers: int) -> None:
    """Refuse a run that does not fit, and say what takes how much.

    Args:
        settings: the run.
        components: how many numbers each observable has.
        workers: blocks that run at a time.
    """
    needed = needed_memory(settings, components, workers)
    total, available = sum(needed.values()), available_memory()
    if total > SHARE * available:
        largest = sorted(needed, key=lambda name: -needed[name])
        parts = [f"{name} {_gib(needed[name])}" for name in largest if needed[name] >= total / 100]
        raise ValueError(
            f"this run would need {_gib(total)} of memory ({', '.join(parts)}), and this machine "
            f"has {_gib(available)} to spare: keep less, save less often, use fewer bins or run "
            "fewer paths."
        )


def needed_memory(
    settings: Settings, components: Mapping[str, int], workers: int
) -> dict[str, int]:
    """Bytes that a run needs at its peak, by what needs them; what is always small is left out."""
    saves, word = settings.schedule.saves, settings.dtype.itemsize
    running = min(workers, settings.blocks)
    # Blocks that run or wait for their turn, and two sums: the one so far and the next.
    copies = min(IN_FLIGHT * workers, settings.blocks) + min(settings.blocks, 2)
    needed = {f"{saves:,} save times:": 2 * 8 * saves}
    if settings.keep != "nothing":
        times = 1 if settings.keep == "final" else saves
        in_flight = min(settings.run_paths, IN_FLIGHT * workers * settings.block_paths)
        states = 2 * times * settings.system.dim * word
        needed[f"keep={settings.keep!r}:"] = states * (settings.run_paths + in_flight)
    for name, size in components.items():
        of_paths = running * settings.block_paths * size * word
        statistics = MOMENTS * size * (8 * copies * saves + word * running * SAVES_PER_LEG)
        needed[f"observe[{name!r}]:"] = of_paths + statistics
    for name, histogram in settings.histograms:
        bins = math.prod(axis.bins for axis in histogram.axes) + 1
        rows, rows_of_leg = (saves, SAVES_PER_LEG) if histogram.every_save else (1, 1)
        counts = bins * (8 * copies * rows + 4 * running * rows_of_leg)
        edges = sum(8 * (axis.bins + 1) for axis in histogram.axes)
        needed[f"histograms[{name!r}]:"] = counts + edges
    return needed


def available_memory() -> int:
    """Bytes that are not in use, where the system says so, else all that there are."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(1024 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
