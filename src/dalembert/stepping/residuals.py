"""How far a solution is from solving its equations: every solver measures it, and reports it."""

from functools import reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.elementary import rougher_inverse


class Report(NamedTuple):
    """What a solver has to say about its result."""

    iterations: Any
    residual: Any


def tolerance(dtype: Any) -> float:
    """The relative residual below which a stage solve counts as converged.

    Newton ends at a few roundings; 256 of them leave room for sums of a few dozen terms.
    """
    return 256 * float(np.finfo(dtype).eps)


def goal(dtype: Any) -> float:
    """The relative residual that solvers try to reach: a few roundings."""
    return tolerance(dtype) / 32


def rough_relative(worst: Any, scale: Any) -> Any:
    """The same as `relative`, give or take 6 %."""
    return reduce(worse, (x * rougher_inverse(y) for x, y in zip(worst, scale, strict=True)))


def relative(worst: Any, scale: Any) -> Any:
    """The largest of some residuals relative to their floors; infinite if one is not a number."""
    ratios = [x / y for x, y in zip(worst, scale, strict=True)]
    return reduce(worse, map(worst_if_nan, ratios))


def worst_if_nan(residual: Any) -> Any:
    """A residual that is not a number is as bad as any."""
    return jnp.where(residual == residual, residual, jnp.inf).astype(residual.dtype)


def worse(residual: Any, other: Any) -> Any:
    """The larger residual; the first is never NaN (`worst_if_nan`), the second may be the worst."""
    return jnp.where(other <= residual, residual, other)
