"""Estimators as weighted sums of samples: multilevel, plain, and Richardson's extrapolation.

A scheme says, for a number of halvings of the coarsest step and a weak order α, which rows are
sampled, with which weights their means make the value, and with which weights they make estimates
of its bias, of which the largest counts.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dalembert.answers.sampling import TableRow

__all__ = ["LEAST_HALVINGS", "SCHEMES", "Scheme"]

LEAST_HALVINGS = 2
"""Two differences at least, of which one can be compared with the other."""

LOOKED_BACK = 3
"""Differences that the bias is estimated from: one alone may be small by chance."""


class Scheme(NamedTuple):
    """Rows to sample, weights of the value, and of estimates of its bias (one each row)."""

    rows: tuple[TableRow, ...]
    value: np.ndarray
    biases: np.ndarray


def multilevel(coarsest: int, halvings: int, alpha: float, coupled: bool) -> Scheme:
    """φ at the coarsest step, and the changes by halving it: their sum is φ at the finest one."""
    pairs = tuple(TableRow(coarsest * 2**k, True) for k in range(halvings))
    value = np.ones(1 + halvings)
    back = _backwards(halvings, alpha)
    return Scheme((TableRow(coarsest, False), *pairs), value, np.pad(back, ((0, 0), (1, 0))))


def plain(coarsest: int, halvings: int, alpha: float, coupled: bool) -> Scheme:
    """φ at the finest step; its bias from changes by halving steps, of pairs or of other runs."""
    if coupled:
        pairs = tuple(TableRow(coarsest * 2**k, True) for k in range(halvings))
        value = np.eye(1, 1 + halvings)[0]
        back = _backwards(halvings, alpha)
        return Scheme(
            (TableRow(coarsest * 2**halvings, False), *pairs), value, np.pad(back, ((0, 0), (1, 0)))
        )
    rows = tuple(TableRow(coarsest * 2**k, False) for k in range(halvings - 2, halvings + 1))
    finer, coarser = np.array([0, -1, 1]), np.array([-1, 1, 0])
    biases = np.stack([finer, coarser * 2.0**-alpha]) / (2**alpha - 1)
    return Scheme(rows, np.array([0.0, 0, 1]), biases)


def richardson(coarsest: int, halvings: int, alpha: float, coupled: bool) -> Scheme:
    """φ at the two finest steps, extrapolated to none, beside what the two before them give."""
    rows = tuple(TableRow(coarsest * 2**k, False) for k in range(halvings - 2, halvings + 1))
    finest, before = np.array([0, -1, 2**alpha]), np.array([-1, 2**alpha, 0])
    value = finest / (2**alpha - 1)
    # As if it fell with the first power of dt: it says nothing about a higher one.
    return Scheme(rows, value, (value - before / (2**alpha - 1))[None])


def _backwards(halvings: int, alpha: float) -> np.ndarray:
    """What the last differences say about the rest, if they fall as dt^α, shape (few, halvings)."""
    count = min(LOOKED_BACK, halvings)
    found = np.zeros((count, halvings))
    for k in range(count):
        found[k, halvings - 1 - k] = 2.0 ** (-alpha * k) / (2**alpha - 1)
    return found


SCHEMES: dict[str, Callable[[int, int, float, bool], Scheme]] = {
    "multilevel": multilevel,
    "plain": plain,
    "richardson": richardson,
}
