"""When paths stop, where, and how many are still on their way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.statistics.histogram import Binned, Histogram
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
        times: histogram of the times between saves; those that have not stopped are outside.
        at_event: mean and variance of the observables where paths have stopped, by name.
        histograms: those of the run, of the paths that have stopped and where they did, by name.
        below: paths that began where the event is negative, of those that have not failed.
        above: paths that began where it is positive, likewise.
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
    times: Binned
    at_event: Mapping[str, SampleMean]
    histograms: Mapping[str, Binned]
    below: Any = None
    above: Any = None
    t: Any = None

    def __str__(self) -> str:
        text = f"{int(self.count):,} stopped, {int(self.censored):,} did not"
        if self.count + self.censored < 2:
            return f"{text}; {_begun(self)}"
        if self.censored:  # the mean of those that have stopped would be too short
            end = f"{self.times.edges[0][-1]:.6g}"
            restricted = f"{self.restricted_mean:.6g} ± {self.restricted_stderr:.2g}"
            alive = f"{self.survival[-1]:.3g} on their way at {end}"
            text = f"{text}; {alive}, restricted mean time E[min(τ, {end})] = {restricted}"
        else:
            text = f"{text}; mean time {self.mean:.6g} ± {self.stderr:.2g}"
        return f"{text}; {_begun(self)}"


@dataclass(frozen=True)
class StopTimes(Statistic):
    """Times at which paths stop, and observables where they do.

    Attributes:
        steps: steps after which a path has stopped, −1 if it has not; a function of the state.
        side: the sign of the event; a function of the state.
        of: observables by name.
        dt: step size.
        histograms: what is counted where paths have stopped, by name.
    """

    steps: Callable[..., Any]
    side: Callable[..., Any]
    of: tuple[tuple[str, Callable[..., Any]], ...]
    dt: float
    histograms: tuple[tuple[str, Histogram], ...] = ()

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        counted = {
            f"{key}_{letter}": fun
            for key, one in self._counted.items()
            for letter, fun in one.functions().items()
        }
        seen = dict(zip(self._names, self._seen, strict=True))
        return {"steps": self.steps, "side": self.side, **seen, **counted}

    def start(self, values: Mapping[str, Any]) -> Any:
        seen = {name: jnp.zeros(x.shape, x.dtype) for name, x in values.items()}
        return {**seen, "now": jnp.zeros_like(seen["steps"])}

    def observe(
        self, memory: Any, values: Mapping[str, Any], mask: Any, t: Any
    ) -> tuple[Any, Data]:
        on_the_way = mask & (values["steps"] < 0)
        now = jnp.full_like(values["steps"], t)
        noted = {"on_the_way": jnp.sum(on_the_way), "paths": jnp.sum(mask)}
        begun = jnp.where(t == 0, values["side"], memory["side"])
        return {**values, "side": begun, "now": now}, noted

    def finish(self, memory: Any, mask: Any) -> Data:
        steps = memory["steps"]
        has_stopped, t = steps >= 0, steps * self.dt
        samples = {
            "time": masked_mean(t, mask & has_stopped),
            "restricted": masked_mean(jnp.where(has_stopped, t, memory["now"]), mask),
        }
        for name in self._names:
            samples[name] = masked_mean(memory[name], mask & has_stopped)
        found = {name: sample._asdict() for name, sample in samples.items()}
        for key, one in self._counted.items():
            values = {letter: memory[f"{key}_{letter}"] for letter in one.functions()}
            found[key] = one.counted(values, mask & has_stopped)
        side = memory["side"]
        sides = {"below": jnp.sum(mask & (side < 0)), "above": jnp.sum(mask & (side > 0))}
        return sides | {
            f"{name}_{part}": x for name, parts in found.items() for part, x in parts.items()
        }

    @property
    def _names(self) -> list[str]:
        return [f"of{i}" for i in range(len(self.of))]

    @property
    def _seen(self) -> list[Callable[..., Any]]:
        return [fun for _, fun in self.of]

    @property
    def _counted(self) -> dict[str, Histogram]:
        return {f"counts{i}": one for i, (_, one) in enumerate(self.histograms)}

    def _counts(self, data: Data, key: str) -> Data:
        start = f"{key}_"
        return {name.removeprefix(start): x for name, x in data.items() if name.startswith(start)}

    def _sample(self, data: Data, name: str) -> SampleMean:
        return SampleMean(*(data[f"{name}_{part}"] for part in SampleMean._fields))

    def merge(self, a: Data, b: Data) -> Data:
        found = {name: a[name] + b[name] for name in ("on_the_way", "paths", "below", "above")}
        for name in ("time", "restricted", *self._names):
            merged = merged_means(self._sample(a, name), self._sample(b, name))
            found |= {f"{name}_{part}": x for part, x in merged._asdict().items()}
        for key, one in self._counted.items():
            counts = one.merge(self._counts(a, key), self._counts(b, key))
            found |= {f"{key}_{part}": x for part, x in counts.items()}
        return found

    def result(self, data: Data, t: Any) -> Stopped:
        xp = numeric(data["time_mean"])
        paths = xp.where(data["paths"] > 0, data["paths"], xp.nan)
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
            _times(data, t),
            {name: self._known(data, f"of{i}") for i, (name, _) in enumerate(self.of)},
            {
                name: one.result(self._counts(data, key), t)
                for (key, one), (name, _) in zip(
                    self._counted.items(), self.histograms, strict=True
                )
            },
            data["below"],
            data["above"],
        )

    def _known(self, data: Data, name: str) -> SampleMean:
        """A sample; NaN where too few paths have stopped for it."""
        found = self._sample(data, name)
        xp = numeric(found.mean)
        least = {"mean": 1, "deviations": 2, "minimum": 1, "maximum": 1}
        known = {
            part: xp.where(found.count >= n, getattr(found, part), xp.nan)
            for part, n in least.items()
        }
        return found._replace(**known)

    @property
    def tables(self) -> int:
        return sum(one.tables for _, one in self.histograms)

    def shapes(self, values: Mapping[str, Any]) -> tuple[Any, Data, Data]:
        """Those of histograms without a trace, as they give them."""
        plain = replace(self, histograms=())
        seen = {name: values[name] for name in plain.functions()}
        memory, row, left = Statistic.shapes(plain, seen)
        for key, one in self._counted.items():
            _, _, counts = one.shapes(self._counts(dict(values), key))
            left |= {f"{key}_{part}": x for part, x in counts.items()}
        return {**values, **memory}, row, left

    def summary(self, result: Stopped) -> str:
        return str(result)


def _begun(result: Stopped) -> str:
    """On which side of the event paths began, in words."""
    below, above = int(result.below), int(result.above)
    on_it = int(result.count) + int(result.censored) - below - above
    counts = {"stop < 0": below, "stop = 0": on_it, "stop > 0": above}
    sides = {where: n for where, n in counts.items() if n}
    if len(sides) < 2:
        return "".join(f"began where {where}" for where in sides)
    first, *others = (f"{n:,} began where {where}" for where, n in sides.items())
    text = ", ".join([first, *(other.replace(" began", "") for other in others)])
    return f"{text}, on both sides" if below and above else text


def _times(data: Data, t: Any) -> Binned:
    """How many paths have stopped between one save and the next, and how many never."""
    stopped = data["paths"] - data["on_the_way"]
    # A path that cannot be observed where it stopped is not among the paths any more.
    return Binned(np.maximum(np.diff(stopped), 0), data["on_the_way"][-1], (np.asarray(t),))
