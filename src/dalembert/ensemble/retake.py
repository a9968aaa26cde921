"""Steps that some paths could not take fast, taken again: fast as far as they go, then safely.

A path takes every step by the same code wherever its stretches begin and end, and only the step
that fails by the safeguarded solver: what becomes of it does not depend on how often it is saved.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from dalembert.ensemble.engine import known
from dalembert.ensemble.legs import Compiled
from dalembert.ensemble.march import Block, PathState, Status, choose
from dalembert.ensemble.places import to_host

WAITING = np.int32(-1)
"""Status of paths that do not take part."""


def retaken(
    compiled: Compiled, state: PathState, hard: np.ndarray, block: Block, steps: range, group: int
) -> PathState:
    """All paths, after the hard ones, still before these steps, have taken them.

    Args:
        compiled: fast and safe steps.
        state: the other paths are behind these steps already.
        hard: which paths are hard.
        block: what the paths are told.
        steps: numbers of the steps.
        group: paths that take a step safely at a time.
    """
    march = compiled.on_block(block)
    now = state._replace(status=np.where(hard, to_host(state.status), WAITING))
    first, wanted = steps.start, len(steps)
    while first < steps.stop and np.any(to_host(now.status) == Status.FINE):
        count = min(wanted, steps.stop - first)
        moved, outcome = march(now, first, count)
        still_hard = known(outcome)
        if still_hard is not None and count > 1:
            wanted = count // 2
            continue
        now, wanted = moved, 2 * count
        for places in _groups(still_hard, group):
            now, wanted = compiled.step_safely(now, places, block, np.int32(first)), 1
        first += count
    return _where(hard, now, state)


def _where(condition: np.ndarray, yes: Any, no: Any) -> Any:
    return jax.tree.map(partial(choose, condition), yes, no)


def _groups(hard: np.ndarray | None, size: int) -> Iterator[np.ndarray]:
    """Places of hard paths in groups of one size; the last group repeats its last place."""
    places = np.empty(0, int) if hard is None else np.flatnonzero(hard)
    for first in range(0, len(places), size):
        group = places[first : first + size]
        yield np.pad(group, (0, size - len(group)), mode="edge")
