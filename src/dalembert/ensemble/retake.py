"""Steps that some paths could not take fast, taken again: fast as far as they go, then safely.

A path takes every step by the same code wherever its stretches begin and end, and only the step
that fails by the safeguarded solver: what becomes of it does not depend on how often it is saved.
"""

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.ensemble.kernel import Compiled, Leg
from dalembert.ensemble.march import Block, PathState, Status, choose

__all__ = ["retaken"]

ENDLESS = 2**30
WAITING = -1
"""Status of paths that do not take part."""


def retaken(
    compiled: Compiled,
    state: PathState,
    is_hard: np.ndarray,
    block: Block,
    steps: range,
    group: int,
) -> PathState:
    """All paths, after the hard ones, still before these steps, have taken them.

    Args:
        compiled: fast and safe steps.
        state: the other paths are behind these steps already.
        is_hard: which paths are hard.
        block: what the paths are told.
        steps: numbers of the steps.
        group: paths that take a step safely at a time.
    """
    status = jnp.where(is_hard, state.status, WAITING)
    now = state._replace(status=status.astype(np.asarray(state.status).dtype))
    first, wanted = steps.start, len(steps)
    while first < steps.stop:
        count = min(wanted, steps.stop - first)
        moved = compiled.run(now, block, _quiet_leg(first, count))
        hard = np.flatnonzero(moved.is_hard)
        if len(hard) and count > 1:
            wanted = count // 2
            continue
        now = moved.state
        for places in _groups(hard, group):
            now = compiled.step_safely(now, places, block, jnp.int32(first))
        first, wanted = first + count, 1 if len(hard) else 2 * count
        if not np.any(np.asarray(now.status) == Status.FINE):
            break
    return jax.tree.map(partial(choose, jnp.asarray(is_hard)), now, state)


def _quiet_leg(first: int, count: int) -> Leg:
    """Some steps without a save: the second unit of a schedule that is long and saves at its ends.

    That way they are taken by the code that takes all others.
    """
    return Leg(*map(jnp.int32, (1, 2, ENDLESS, ENDLESS, count, first - count)))


def _groups(places: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Places in groups of one size; the last group repeats its last place."""
    for first in range(0, len(places), size):
        group = places[first : first + size]
        yield np.pad(group, (0, size - len(group)), mode="edge")
