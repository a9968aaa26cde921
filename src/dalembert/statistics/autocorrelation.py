"""Autocorrelation along paths, its integrated time, and how many values are independent.

With the mean and variance C₀ over all paths and saves, C₀(1 − ρ_k) = ½ E[(x_{s+k} − x_s)²]: the
differences of a path need no mean, so that neither a large one nor a short path does harm.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.statistics.groups import in_groups, jackknife, pooled, rounding_of
from dalembert.statistics.mean import SampleMean, masked_mean, merged_means
from dalembert.statistics.statistic import Data, Statistic, numeric
from dalembert.statistics.time_average import check_burn_in, has_begun

WINDOW = 5
"""The sum of correlations ends at so many times 1 + 2 Σ |ρ| (Sokal's rule, but also for those that
oscillate): what comes after it is noise."""


@dataclass(frozen=True)
class Autocorrelation(Statistic):
    """How an observable of a stationary law depends on its own past, with standard errors.

        da.Autocorrelation(H, lags=100, burn_in=50.0)

    Every lag is a save kept in memory per path. Paths that fail before the end do not count.

    Attributes:
        of: function of (q, p), or (q, p, params) if the system has params; it may return an array.
        lags: distances in saves: a number for all from 0 to it, or several. The integrated time
            needs all of them.
        burn_in: saves before this time are left out.
    """

    of: Callable[..., Any]
    lags: Any
    burn_in: float = 0.0

    def __post_init__(self) -> None:
        given = tuple(self.lags) if isinstance(self.lags, Iterable) else (self.lags,)
        lags = tuple(sorted({int(lag) for lag in given}))
        if not isinstance(self.lags, Iterable):
            lags = tuple(range(lags[0] + 1))
        if not lags or lags[0] < 0 or lags[-1] < 1 or any(int(x) != x for x in given):
            raise ValueError(f"lags are whole numbers of saves, at least 1, not {self.lags!r}.")
        object.__setattr__(self, "lags", lags)

    @property
    def _later(self) -> np.ndarray:
        """The lags without 0, at which the correlation is 1."""
        return np.asarray([lag for lag in self.lags if lag], np.int32)

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        return {"of": self.of}

    def check(self, shapes: Mapping[str, tuple[int, ...]], t: np.ndarray) -> None:
        check_burn_in(self.burn_in, t)
        if not np.allclose(np.diff(t), t[1] - t[0], rtol=1e-6, atol=0):
            raise ValueError(
                "the last save comes sooner than the others, and lags are counted in saves: take "
                "steps that are a multiple of save_every."
            )
        saves = int(np.sum(has_begun(self.burn_in, t)))
        if self.lags[-1] >= saves:
            raise ValueError(
                f"a lag of {self.lags[-1]} needs more than the {saves} saves that there are."
            )

    def start(self, values: Mapping[str, Any]) -> Any:
        of = values["of"]
        paths, *shape = of.shape
        return {
            "saves": jnp.zeros(paths, jnp.int32),
            "mean": jnp.zeros(of.shape, of.dtype),
            "deviations": jnp.zeros(of.shape, of.dtype),
            "past": jnp.zeros((paths, self.lags[-1], *shape), of.dtype),
            "differences": jnp.zeros((paths, len(self._later), *shape), of.dtype),
        }

    def observe(
        self, memory: Any, values: Mapping[str, Any], mask: Any, t: Any
    ) -> tuple[Any, Data]:
        x, before, past = values["of"], memory["saves"][0], memory["past"]
        room, later = jnp.int32(self.lags[-1]), jnp.asarray(self._later)
        then = jnp.take(past, (before - later) % room, axis=1, mode="clip")
        has_past = (before >= later).reshape((1, -1) + (1,) * (x.ndim - 1))
        change = jnp.where(has_past, (x[:, None] - then) ** 2 / 2, 0)
        delta = x - memory["mean"]
        mean = memory["mean"] + delta / (before + 1).astype(x.dtype)
        now = {
            "saves": memory["saves"] + 1,
            "mean": mean,
            "deviations": memory["deviations"] + delta * (x - mean),
            "past": lax.dynamic_update_index_in_dim(past, x, before % room, 1),
            "differences": memory["differences"] + change,
        }
        begun = has_begun(self.burn_in, t)
        return jax.tree.map(lambda new, old: jnp.where(begun, new, old), now, memory), {}

    def finish(self, memory: Any, mask: Any) -> Data:
        """Samples, in groups of paths, of mean, variance and half squared differences."""
        saves, mean = memory["saves"][0], memory["mean"]
        pairs = jnp.maximum(saves - jnp.asarray(self._later), 1).astype(mean.dtype)
        pairs = pairs.reshape((1, -1) + (1,) * (mean.ndim - 1))
        variance = memory["deviations"] / jnp.maximum(saves, 1).astype(mean.dtype)
        parts = (mean[:, None], variance[:, None], memory["differences"] / pairs)
        columns = jnp.concatenate(parts, axis=1)
        found = jax.vmap(masked_mean, in_axes=1)(in_groups(columns), in_groups(mask))
        return found._asdict() | {"saves": saves}

    def merge(self, a: Data, b: Data) -> Data:
        found = merged_means(*(SampleMean(*(x[f] for f in SampleMean._fields)) for x in (a, b)))
        return found._asdict() | {"saves": np.maximum(a["saves"], b["saves"])}

    def result(self, data: Data, t: Any) -> "SampleAutocorrelation":
        count, mean, deviations = data["count"], data["mean"], data["deviations"]
        xp = numeric(mean)
        of_all, without = pooled(count, mean, deviations, lambda x: x * x)
        share = count / xp.maximum(of_all[0], 1)[None]

        def correlations(n: Any, mean: Any, deviations: Any, lead: tuple[Any, ...]) -> Any:
            n = xp.maximum(n, 1).reshape(n.shape + (1,) * (mean.ndim - n.ndim - 1))
            whole = mean[(*lead, 1)] + deviations[(*lead, 0)] / n
            floor = rounding_of(mean[(*lead, 0)])
            whole = xp.where(whole > floor, whole, xp.nan)[(*lead, None)]
            return 1 - mean[(*lead, slice(2, None))] / whole

        rho, others = correlations(*of_all, ()), correlations(*without, (slice(None),))
        rho = xp.where(of_all[0] > 0, rho, xp.nan)
        share = share.reshape(share.shape + (1,) * rho.ndim)
        stderr = jackknife(rho, others, share)
        window = self._window(rho, stderr)
        sums, sums_without = (self._sum(x, window, axis) for x, axis in ((rho, 0), (others, 1)))
        saves, spacing = xp.asarray(data["saves"], rho.dtype), float(t[1] - t[0])
        error = jackknife(sums, sums_without, share[:, 0])
        effective = of_all[0] * saves / xp.where(sums > 0, sums, xp.nan)
        if 0 in self.lags:
            is_known = ~xp.isnan(rho[:1])
            rho = xp.concatenate([xp.where(is_known, 1.0, xp.nan), rho], dtype=rho.dtype)
            stderr = xp.concatenate([xp.where(is_known, 0.0, xp.nan), stderr], dtype=rho.dtype)
        return SampleAutocorrelation(
            np.asarray(self.lags) * spacing,
            rho,
            stderr,
            spacing * sums,
            spacing * error,
            effective,
            effective * error / sums,
            of_all[0],
        )

    def _window(self, rho: Any, stderr: Any) -> Any:
        """Where the sum ends, per entry; beyond the lags if they are too few, or not all there."""
        xp, lags = numeric(rho), self._later
        if len(lags) != lags[-1]:
            return xp.full(rho.shape[1:], len(lags))
        # What is within two standard errors may be noise, which would add up.
        sizes = xp.maximum(xp.abs(rho) - 2 * xp.nan_to_num(stderr), 0)
        sums = 1 + 2 * xp.cumsum(sizes, axis=0)
        far = lags.astype(rho.dtype).reshape((-1,) + (1,) * (rho.ndim - 1))
        reached = far >= WINDOW * sums
        return xp.where(xp.any(reached, axis=0), xp.argmax(reached, axis=0), len(lags))

    def _sum(self, rho: Any, window: Any, axis: int) -> Any:
        """1 + 2 Σ ρ up to the window, in saves; NaN if it is out of reach."""
        xp = numeric(rho)
        places = np.arange(rho.shape[axis]).reshape((-1,) + (1,) * (rho.ndim - axis - 1))
        counts = (places <= window[None]).reshape((1,) * axis + places.shape[:1] + window.shape)
        total = 1 + 2 * xp.sum(xp.where(counts, rho, 0), axis=axis)
        return xp.where(window < rho.shape[axis], total, xp.nan)

    def variables(self, result: "SampleAutocorrelation", t: Any) -> dict[str, Any]:
        entries = tuple(f"component_{k}" for k in range(result.correlation.ndim - 1))
        found: dict[str, Any] = {"lag": (("lag",), result.lag), "paths": ((), result.count)}
        for name in ("correlation", "stderr"):
            found[name] = (("lag", *entries), getattr(result, name))
        for name in ("time", "time_stderr", "effective", "effective_stderr"):
            found[name] = (entries, getattr(result, name))
        return found

    def summary(self, result: "SampleAutocorrelation") -> str:
        if result.count == 0:
            return "no path left"
        if not np.all(np.isfinite(result.time)):
            return "no integrated time: take all lags, and so many that the correlation decays"
        if np.ndim(result.time):
            return f"integrated times {result.time.min():.3g} to {result.time.max():.3g}"
        return (
            f"integrated time {result.time:.3g} ± {result.time_stderr:.1g}, "
            f"{result.effective:,.0f} independent values"
        )


class SampleAutocorrelation(NamedTuple):
    """The autocorrelation of a sample; NaN where it is too small for it.

    Attributes:
        lag: the lags as times.
        correlation: ρ at the lags, shape (lags, …).
        stderr: standard errors, from leaving out a group of paths at a time.
        time: integrated autocorrelation time, spacing of saves × (1 + 2 Σ ρ); the sum ends at
            five times 1 + 2 Σ |ρ|. NaN if the lags do not reach so far.
        time_stderr: its standard error.
        effective: effective sample size, the number of values × spacing / time; NaN if the time
            is not positive.
        effective_stderr: its standard error.
        count: paths.
    """

    lag: Any
    correlation: Any
    stderr: Any
    time: Any
    time_stderr: Any
    effective: Any
    effective_stderr: Any
    count: Any
