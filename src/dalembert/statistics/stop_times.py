"""When paths stop, where, and how many are still on their way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from dalembert.statistics.mean import SampleMean, masked_mean, merged_means
from dalembert.statistics.statistic import Data, Statistic, numeric


class Stopped(NamedTuple):
    """What became of paths that were to stop at an event.

    Attributes:
        count: paths that have stopped.
        censored: paths that have not, up to the end.
        mean: mean time of those that have stopped; without censored ones that of the event.
        stderr: its standard error.
        restricted_mean: mean of the time or the end, whichever comes first; never censored.
        restricted_stderr: its standard error.
        survival: share of paths that have not stopped at the save times, shape (times,).
        survival_stderr: its standard error.
        at_event: mean and variance of the observables where paths have stopped, by name.
        t: times of all paths, NaN if never, for keep="final" or "all"; else None.
    """

    count: Any
    censored: Any
    mean: Any
    stderr: Any
    restricted_mean: Any
    restricted_stderr: Any
    survival: Any
    survival_stderr: Any
    at_event: Mapping[str, SampleMean]
    t: Any = None


@dataclass(frozen=True)
class StopTimes(Statistic):
    """Times at which paths stop, and observables where they do.

    Attributes:
        steps: steps after which a path has stopped, −1 if it has not; a function of the state.
        of: observables by name.
        dt: step size.
    """

    steps: Callable[..., Any]
    of: tuple[tuple[str, Callable[..., Any]], ...]
    dt: float

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        return {"steps": self.steps, **{f"of{i}": fun for i, (_, fun) in enumerate(self.of)}}

    def start(self, values: Mapping[str, Any]) -> Any:
        seen = {name: jnp.zeros(x.shape, x.dtype) for name, x in values.items()}
        return {**seen, "now": jnp.zeros_like(seen["steps"])}

    def observe(
        self, memory: Any, values: Mapping[str, Any], mask: Any, t: Any
    ) -> tuple[Any, Data]:
        on_the_way = mask & (values["steps"] < 0)
        now = jnp.full_like(values["steps"], t)
        noted = {"on_the_way": jnp.sum(on_the_way), "paths": jnp.sum(mask)}
        return {**values, "now": now}, noted

    def finish(self, memory: Any, mask: Any) -> Data:
        steps = memory["steps"]
        has_stopped, t = steps >= 0, steps * self.dt
        samples = {
            "time": masked_mean(t, mask & has_stopped),
            "restricted": masked_mean(jnp.where(has_stopped, t, memory["now"]), mask),
        }
        for name in self._names:
            samples[name] = masked_mean(memory[name], mask & has_stopped)
        return {
            f"{name}_{part}": x for name, s in samples.items() for part, x in s._asdict().items()
        }

    @property
    def _names(self) -> list[str]:
        return [f"of{i}" for i in range(len(self.of))]

    def _sample(self, data: Data, name: str) -> SampleMean:
        return SampleMean(*(data[f"{name}_{part}"] for part in SampleMean._fields))

    def merge(self, a: Data, b: Data) -> Data:
        found = {name: a[name] + b[name] for name in ("on_the_way", "paths")}
        for name in ("time", "restricted", *self._names):
            merged = merged_means(self._sample(a, name), self._sample(b, name))
            found |= {f"{name}_{part}": x for part, x in merged._asdict().items()}
        return found

    def result(self, data: Data, t: Any) -> Stopped:
        xp = numeric(data["time_mean"])
        paths = xp.maximum(data["paths"], 1) * 1.0
        share = data["on_the_way"] / paths
        time, restricted = (self._known(data, name) for name in ("time", "restricted"))
        return Stopped(
            time.count.astype(int),
            data["on_the_way"][-1],
            time.mean,
            time.stderr,
            restricted.mean,
            restricted.stderr,
            share,
            xp.sqrt(share * (1 - share) / paths),
            {name: self._known(data, f"of{i}") for i, (name, _) in enumerate(self.of)},
        )

    def _known(self, data: Data, name: str) -> SampleMean:
        """A sample; NaN where too few paths have stopped for it."""
        found = self._sample(data, name)
        xp = numeric(found.mean)
        mean = xp.where(found.count > 0, found.mean, xp.nan)
        return found._replace(
            mean=mean, deviations=xp.where(found.count > 1, found.deviations, xp.nan)
        )

    def summary(self, result: Stopped) -> str:
        text = f"{int(result.count):,} stopped, {int(result.censored):,} did not"
        return (
            f"{text}; mean time {result.mean:.6g} ± {result.stderr:.2g}"
            if result.count > 1
            else text
        )
