"""Covariances and correlations of observables, merged as means are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.statistics.groups import in_groups, jackknife, pooled, rounding_of
from dalembert.statistics.mean import masked_mean
from dalembert.statistics.statistic import Data, Statistic, numeric


@dataclass(frozen=True)
class Covariance(Statistic):
    """Covariances between observables at every save, with standard errors.

        da.Covariance({"q": lambda q, p: q[0], "energy": H})

    Attributes:
        of: functions of (q, p), or (q, p, params) if the system has params, by name. The entries
            of one that returns an array are observables each.
    """

    of: Any

    def __post_init__(self) -> None:
        if isinstance(self.of, Mapping):
            object.__setattr__(self, "of", tuple(self.of.items()))
        pairs = self.of if isinstance(self.of, tuple) else ()
        if not pairs or not all(isinstance(name, str) and callable(fun) for name, fun in pairs):
            raise TypeError(
                f'a covariance needs functions by name, e.g. {{"q": f, "p": g}}, not {self.of!r}.'
            )

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        return dict(self.of)

    def observe(
        self, memory: Any, values: Mapping[str, Any], mask: Any, t: Any
    ) -> tuple[Any, Data]:
        columns = jnp.concatenate([x.reshape(len(x), -1) for x in values.values()], axis=1)
        found = jax.vmap(_moments, in_axes=1)(in_groups(columns), in_groups(mask))
        return memory, dict(zip(("count", "mean", "products"), found, strict=True))

    def merge(self, a: Data, b: Data) -> Data:
        n_a, n_b = a["count"], b["count"]
        share = n_b / np.maximum(n_a + n_b, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            delta = b["mean"] - a["mean"]
            between = _outer(delta) * (n_a * share)[..., None, None]
            return {
                "count": n_a + n_b,
                "mean": a["mean"] + delta * share[..., None],
                "products": a["products"] + b["products"] + between,
            }

    def result(self, data: Data, t: Any) -> "SampleCovariance":
        xp = numeric(data["mean"])
        first = (xp.moveaxis(data[name], 1, 0) for name in ("count", "mean", "products"))
        count, mean, products = first
        (total, centre, whole), (rest, _, others) = pooled(count, mean, products, _outer)
        share = (count / xp.maximum(total, 1)[None])[..., None, None]

        def estimate(products: Any, n: Any) -> tuple[Any, Any]:
            enough = (n > 1)[..., None, None]
            covariance = products / xp.maximum(n - 1, 1)[..., None, None]
            variance = xp.diagonal(covariance, axis1=-2, axis2=-1)
            floor = xp.broadcast_to(rounding_of(centre), variance.shape)
            sizes = xp.sqrt(xp.where(variance > floor, variance, xp.nan))
            correlation = covariance / (sizes[..., :, None] * sizes[..., None, :])
            return tuple(xp.where(enough, x, xp.nan) for x in (covariance, correlation))

        of_all, without = estimate(whole, total), estimate(others, rest)
        errors = [jackknife(x, y, share) for x, y in zip(of_all, without, strict=True)]
        names = tuple(name for name, _ in self.of)
        centre = xp.where(total[..., None] > 0, centre, xp.nan)
        return SampleCovariance(total, centre, of_all[0], errors[0], of_all[1], errors[1], names)

    def variables(self, result: "SampleCovariance", t: Any) -> dict[str, Any]:
        found = {"paths": (("time",), result.count), "means": (("time", "row"), result.mean)}
        for name in ("covariance", "stderr", "correlation", "correlation_stderr"):
            found[name] = (("time", "row", "column"), getattr(result, name))
        return found

    def summary(self, result: "SampleCovariance") -> str:
        if result.count[-1] == 0:
            return "no path left"
        with np.printoptions(precision=3, threshold=9):
            last = " ".join(str(np.asarray(result.covariance[-1])).split())
        return f"covariance of {', '.join(result.names)} at the end {last}"


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["count", "mean", "covariance", "stderr", "correlation", "correlation_stderr"],
    meta_fields=["names"],
)
@dataclass(frozen=True)
class SampleCovariance:
    """Covariances of a sample; NaN where it is too small for them.

    Attributes:
        count: paths, shape (times,).
        mean: means of the entries of all observables in their order, (times, entries).
        covariance: unbiased covariances, (times, entries, entries).
        stderr: their standard errors, from leaving out a group of paths at a time.
        correlation: covariances over the standard deviations.
        correlation_stderr: their standard errors.
        names: the observables.
    """

    count: Any
    mean: Any
    covariance: Any
    stderr: Any
    correlation: Any
    correlation_stderr: Any
    names: tuple[str, ...]


def _moments(x: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Count, mean and sums of products of deviations, without a matrix product: its order of
    summation, and on a GPU its precision, are not ours."""
    sample = masked_mean(x, mask)
    centred = jnp.where(mask[:, None], x - sample.mean[None], 0)
    return sample.count, sample.mean, jnp.sum(_outer(centred), axis=0)


def _outer(x: Any) -> Any:
    return x[..., :, None] * x[..., None, :]
