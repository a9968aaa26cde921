"""What the rows of a method must be, said before they are used: stages that are there, noises."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dalembert.methods.stages import StageSystem, noise_numbers
from dalembert.system import NOISE_TERMS

if TYPE_CHECKING:
    from dalembert.methods.method import Method


def checked_rows(method: "Method", noises: int) -> StageSystem:
    """The rows of a method for a number of noises, or an error about what they have wrong."""
    rows = method.rows(noises)
    if not isinstance(rows, StageSystem):
        raise TypeError(
            f"rows({noises}) of {method.name} must return a StageSystem, such as assemble([…]) "
            f"makes, not {rows!r}."
        )
    for wrong in _faults(method, rows, noises):
        raise ValueError(f"rows({noises}) of {method.name}: {wrong}.")
    return rows


def _faults(method: "Method", rows: StageSystem, noises: int) -> Iterator[str]:
    counts = {"q": len(rows.q_rows), "p": len(rows.p_rows)}
    entries = rows.entries
    for kind, count in counts.items():
        largest = max((getattr(e, f"{kind}_row") for e in entries), default=0)
        least = min((getattr(e, f"{kind}_row") for e in entries), default=0)
        if not 0 <= least <= largest < count:
            wrong = largest if largest >= count else least
            yield (
                f"a field is taken at stage {wrong - 1}, counted from 0, and there are "
                f"{max(count - 2, 0)} stages before the new state: give `along` a weight for each "
                "stage, and `assemble` the fields of every stage and of the new state"
            )
    last = tuple(count - 1 for count in counts.values())
    if any((e.q_row, e.p_row) == last for e in entries):
        yield (
            f"a field is taken at stage {last[0] - 1}, which is the new state itself: give "
            "`assemble` the fields of the stages first, [] for one that is the old state"
        )
    stages, is_shared = method.stages, all(e.q_row == e.p_row for e in entries)
    if not isinstance(stages, int | np.integer) or isinstance(stages, bool) or stages < 1:
        yield f"stages must be a whole number ≥ 1, not {stages!r}"
    most = max(counts.values()) - 1 if is_shared else sum(counts.values()) - 2
    if noises and stages > most:
        yield (
            f"stages = {stages}, and there are {max(most - 1, 0)} before the new state: give "
            "`assemble` the fields of every stage, [] for one that is the old state"
        )
    read = {e.term[1] for e in entries if e.term[0] in NOISE_TERMS}
    there = set(noise_numbers(noises))
    if read and read != there:
        wrong = [f"noise {_numbers(there - read)} has no field"] if there - read else []
        wrong += [f"there is no noise {_numbers(read - there)}"] if read - there else []
        yield (
            f"{', and '.join(wrong)}: write fields for every noise, for r in range(noises), or "
            "refuse other numbers of noises in check_noises"
        )


def _numbers(noises: set[Any]) -> str:
    return ", ".join(map(str, sorted(noises)))
