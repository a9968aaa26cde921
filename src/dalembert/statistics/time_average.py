"""Averages along paths: each path gives one number, and paths are independent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.statistics.mean import Mean, masked_mean
from dalembert.statistics.statistic import Data

ROUNDING = 1e-6
"""Times are products of step number and step size, in float32 too."""


@dataclass(frozen=True)
class TimeAverage(Mean):
    """The average of an observable over the saves of each path; mean and error over paths.

    For a stationary law it uses every save, and its standard error is right however the saves of a
    path depend on each other. Paths that fail before the end do not count.

    Attributes:
        of: function of (q, p), or (q, p, params) if the system has params; it may return an array.
        burn_in: saves before this time are left out.
    """

    burn_in: float = 0.0

    def check(self, shapes: Mapping[str, tuple[int, ...]], t: np.ndarray) -> None:
        check_burn_in(self.burn_in, t)

    def start(self, values: Mapping[str, Any]) -> Any:
        of = values["of"]
        return {"saves": jnp.zeros(of.shape[:1], jnp.int32), "mean": jnp.zeros(of.shape, of.dtype)}

    def observe(
        self, memory: Any, values: Mapping[str, Any], mask: Any, t: Any
    ) -> tuple[Any, Data]:
        begun, mean = has_begun(self.burn_in, t), memory["mean"]
        saves = memory["saves"] + begun.astype(jnp.int32)
        share = 1 / jnp.maximum(saves, 1).astype(mean.dtype)
        change = (values["of"] - mean) * share.reshape(share.shape + (1,) * (mean.ndim - 1))
        return {"saves": saves, "mean": jnp.where(begun, mean + change, mean)}, {}

    def finish(self, memory: Any, mask: Any) -> Data:
        return masked_mean(memory["mean"], mask)._asdict()


def check_burn_in(burn_in: Any, t: np.ndarray) -> None:
    """Refuse a time from which on there is no save."""
    if not 0 <= burn_in <= t[-1] * (1 + ROUNDING):
        raise ValueError(f"burn_in must be a time of the run, 0 to {t[-1]:g}, not {burn_in!r}.")


def has_begun(burn_in: float, t: Any) -> Any:
    """Whether a save counts, also if rounding puts it just before."""
    return t >= burn_in * (1 - ROUNDING)
