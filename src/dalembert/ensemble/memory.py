"""How much memory a run needs, and whether this machine has it."""

import math
from collections.abc import Mapping
from typing import Any

import jax

from dalembert.ensemble.pool import IN_FLIGHT
from dalembert.ensemble.settings import Settings
from dalembert.ensemble.spare import SHARE, available_memory, gib
from dalembert.statistics.observing import in_words

Shapes = Mapping[str, tuple[Any, Any, Any, Any]]
"""Shapes and types of values, memories, rows and ends of a block, by the key of the statistic."""


def check_memory(settings: Settings, shapes: Shapes, workers: int, ends: int = 0) -> None:
    """Refuse a run that does not fit, and say what takes how much.

    Args:
        settings: the run.
        shapes: what its statistics hold.
        workers: blocks that run at a time.
        ends: bytes of the blocks from which a later run can go on.
    """
    needed = needed_memory(settings, shapes, workers) | {"to go on later:": ends}
    total, available = sum(needed.values()), available_memory()
    if total > SHARE * available:
        largest = sorted(needed, key=lambda name: -needed[name])
        parts = [f"{name} {gib(needed[name])}" for name in largest if needed[name] >= total / 100]
        raise ValueError(
            f"this run would need {gib(total)} of memory ({', '.join(parts)}), and this machine "
            f"has {gib(available)} to spare: keep less, save less often, use fewer bins or run "
            "fewer paths."
        )


def needed_memory(settings: Settings, shapes: Shapes, workers: int) -> dict[str, int]:
    """Bytes that a run needs at its peak, by what needs them; what is always small is left out."""
    saves, word = settings.schedule.saves, settings.dtype.itemsize
    running = min(workers, settings.blocks)
    # Blocks that run or wait for their turn, and two sums: the one so far and the next.
    copies = min(IN_FLIGHT * workers, settings.blocks) + min(settings.blocks, 2)
    needed = {f"{saves:,} save times:": 2 * 8 * saves}
    tables = {key: statistic.tables for key, statistic in settings.statistics}
    if settings.keep != "nothing":
        times = 1 if settings.keep == "final" else saves
        in_flight = min(settings.run_paths, IN_FLIGHT * workers * settings.block_paths)
        states = 2 * times * settings.system.dim * word
        needed[f"keep={settings.keep!r}:"] = states * (settings.run_paths + in_flight)
    for key, (values, memory, row, end) in shapes.items():
        # On the device values, memories (before and after) and rows; on the host 8 bytes a number.
        of_paths = _bytes(values) + 2 * _bytes(memory)
        rows = settings.schedule.saves_per_leg * _bytes(row)
        on_device = running * (of_paths + rows + _bytes(end))
        on_host = 8 * copies * (saves * _numbers(row) + _numbers(end))
        needed[f"{in_words(key)}:"] = on_device + on_host + 8 * tables[key]
    return needed


def bytes_of_ends(settings: Settings, shapes: Shapes) -> int:
    """Bytes of all blocks at their ends: paths, what is remembered of them, and their saves."""
    word, saves = settings.dtype.itemsize, settings.schedule.saves
    rows = saves if settings.keep == "all" else 0
    # Positions and momenta, also those that were kept; a residual and four counters.
    of_path = 2 * (rows + 1) * settings.system.dim * word + word + 4 * 4
    noted = sum(_bytes(memory) + saves * _bytes(row) for _, memory, row, _ in shapes.values())
    return settings.blocks * (settings.block_paths * of_path + noted)


def _numbers(tree: Any) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(tree))


def _bytes(tree: Any) -> int:
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))
