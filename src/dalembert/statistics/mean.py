"""Mean and variance, merged by the pairwise rule of Chan, Golub and LeVeque.

It loses no digits however many blocks there are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.statistics.statistic import Data, Statistic, numeric


class SampleMean(NamedTuple):
    """Count, mean, sum of squared deviations, minimum and maximum of a sample."""

    count: Any
    mean: Any
    deviations: Any
    minimum: Any
    maximum: Any

    @property
    def column(self) -> Any:
        """Counts shaped so that they divide means of observables with several components."""
        return self.count.reshape(self.count.shape + (1,) * (self.mean.ndim - self.count.ndim))

    @property
    def variance(self) -> Any:
        """Unbiased sample variance."""
        return self.deviations / (self.column - 1)

    @property
    def stderr(self) -> Any:
        """Standard error of the mean."""
        return numeric(self.mean).sqrt(self.variance / self.column)

    def __str__(self) -> str:
        """The last of several means, with its standard error."""
        last = SampleMean(*(x[-1] if np.ndim(self.count) else x for x in self))
        if last.count == 0:
            return "no path left"
        with np.printoptions(precision=6, threshold=8):
            is_array = last.mean.ndim > 0
            mean = " ".join(str(last.mean).split()) if is_array else f"{last.mean:.6g}"
        if last.count == 1:
            return f"{mean} (one path)"
        return mean if is_array else f"{mean} ± {last.stderr:.2g}"


@dataclass(frozen=True)
class Mean(Statistic):
    """Mean, variance, minimum and maximum of an observable at every save.

    Attributes:
        of: function of (q, p), or (q, p, params) if the system has params; it may return an array.
    """

    of: Callable[..., Any]

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        return {"of": self.of}

    def observe(
        self, memory: Any, values: Mapping[str, Any], mask: Any, t: Any
    ) -> tuple[Any, Data]:
        return memory, masked_mean(values["of"], mask)._asdict()

    def merge(self, a: Data, b: Data) -> Data:
        return merged_means(SampleMean(**a), SampleMean(**b))._asdict()

    def result(self, data: Data, t: Any) -> SampleMean:
        """The sample; NaN where it has no path."""
        found, xp = SampleMean(**data), numeric(data["mean"])
        rest = (xp.where(found.column == 0, xp.nan, x) for x in found[1:])
        return SampleMean(found.count, *rest)

    def variables(self, result: SampleMean, t: Any) -> dict[str, tuple[tuple[str, ...], Any]]:
        first = ("time",) if np.ndim(result.count) else ()
        dims = (*first, *(f"component_{k}" for k in range(result.mean.ndim - len(first))))
        found = result._asdict() | ({"stderr": result.stderr} if np.min(result.count) > 1 else {})
        return {name: (first if name == "count" else dims, x) for name, x in found.items()}

    def summary(self, result: SampleMean) -> str:
        return str(result)


def masked_mean(values: Any, mask: Any) -> SampleMean:
    """The sample over the first axis, of the entries where the mask is set."""
    mask = mask.reshape(mask.shape + (1,) * (values.ndim - 1))
    count = jnp.sum(mask).astype(values.dtype)
    share = 1 / jnp.maximum(count, 1)
    zeros = jnp.zeros_like(values)
    rough = jnp.sum(jnp.where(mask, values, zeros), axis=0) * share
    # What rounding has left in the mean is the mean of the deviations from it.
    mean = rough + jnp.sum(jnp.where(mask, values - rough[None], zeros), axis=0) * share
    centred = jnp.where(mask, values - mean[None], zeros)
    infinity = jnp.asarray(jnp.inf, values.dtype)
    return SampleMean(
        count,
        mean,
        jnp.sum(centred * centred, axis=0),
        jnp.min(jnp.where(mask, values, infinity), axis=0),
        jnp.max(jnp.where(mask, values, -infinity), axis=0),
    )


def mean_of(values: np.ndarray) -> SampleMean:
    """The same in NumPy, of values (numbers, paths)."""
    count = values.shape[1]
    share = 1 / max(count, 1)
    # Sums of squares may overflow where numbers do not: infinite is right then.
    with np.errstate(over="ignore", invalid="ignore"):
        rough = values.sum(axis=1) * share
        mean = rough + (values - rough[:, None]).sum(axis=1) * share
        squares = np.square(values - mean[:, None]).sum(axis=1)
    least, most = values.min(1, initial=np.inf), values.max(1, initial=-np.inf)
    return SampleMean(np.asarray(float(count)), mean, squares, least, most)


def merged_means(a: SampleMean, b: SampleMean) -> SampleMean:
    """Two samples taken together, in NumPy; counts have the first axes of the means."""
    n_a, n_b = a.column, b.column
    share = n_b / np.maximum(n_a + n_b, 1)
    # Where paths run away, sums of squares overflow before the paths do: infinite is right then.
    with np.errstate(over="ignore", invalid="ignore"):
        delta = b.mean - a.mean
        return SampleMean(
            a.count + b.count,
            a.mean + delta * share,
            a.deviations + b.deviations + delta * delta * n_a * share,
            np.minimum(a.minimum, b.minimum),
            np.maximum(a.maximum, b.maximum),
        )
