"""Standard errors of what is no mean, by leaving out a group of paths at a time (jackknife).

A block deals its paths out to groups, one after the other, whatever the number of blocks. Groups
may be of unequal size: Busing, Meijer and van der Leeden, Statistics and Computing 9 (1999).
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.statistics.statistic import numeric

GROUPS = 32
"""A standard error from so many groups is itself uncertain by 1/√62 = 13 %."""


def in_groups(x: Any) -> Any:
    """Paths as (rows, groups, …): path i is in group i modulo their number; padded with zeros."""
    rows = -(-len(x) // GROUPS)
    padding = [(0, rows * GROUPS - len(x))] + [(0, 0)] * (x.ndim - 1)
    return jnp.pad(x, padding).reshape(rows, GROUPS, *x.shape[1:])


def pooled(
    count: Any, mean: Any, spread: Any, product: Callable[[Any], Any]
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Count, mean and spread of all groups together, and without each of them.

    Args:
        count: paths of each group, first axis: groups.
        mean: their means.
        spread: their sums of squares or products of deviations.
        product: from deviations to these squares or products.
    """
    xp = numeric(mean)

    def times(x: Any, y: Any) -> Any:
        return x.reshape(x.shape + (1,) * (y.ndim - x.ndim)) * y

    total = xp.sum(count, axis=0)
    centre = xp.sum(times(count / xp.maximum(total, 1)[None], mean), axis=0)
    deviation = mean - centre[None]
    squares = product(deviation)
    whole = xp.sum(spread + times(count, squares), axis=0)
    rest = total[None] - count
    weight = count / xp.maximum(rest, 1)
    centres = centre[None] - times(weight, deviation)
    others = whole[None] - spread - times(weight * total[None], squares)
    return (total, centre, whole), (rest, centres, others)


def rounding_of(centre: Any) -> Any:
    """Variances below this are what rounding makes of numbers that are all the same."""
    return (64 * numeric(centre).finfo(centre.dtype).eps * centre) ** 2


def jackknife(value: Any, left_out: Any, share: Any) -> Any:
    """The standard error of an estimate; NaN if all paths are in one group.

    Args:
        value: the estimate from all groups.
        left_out: the estimates without each group, first axis: groups.
        share: the part of the paths that each group has, shaped to multiply `left_out`.
    """
    xp = numeric(value, left_out, share)
    is_used = (share > 0) & (share < 1)
    share = xp.where(is_used, share, 0.5)
    terms = xp.where(is_used, value[None] - (1 - share) * left_out, 0.0)
    centre = xp.sum(terms, axis=0)
    squares = xp.where(is_used, (terms / share - centre[None]) ** 2 * share / (1 - share), 0.0)
    groups = xp.sum(is_used, axis=0).astype(value.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        return xp.where(groups > 1, xp.sqrt(xp.sum(squares, axis=0) / groups), xp.nan)
