"""Samples of observables at one step size, or of their differences between two, from runs."""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.answers.known import known_by, observing
from dalembert.answers.slopes import slope
from dalembert.caches import kept
from dalembert.captured import Keyed
from dalembert.ensemble.checkpoint import Checkpoint
from dalembert.ensemble.ends import ShortRun, means_at_ends
from dalembert.ensemble.executors import find_team
from dalembert.ensemble.initial import InitialStates
from dalembert.ensemble.job import FailedPathsError, Job
from dalembert.ensemble.ready import Ready, starts_of
from dalembert.ensemble.settings import USUAL_DIM, Settings, make_settings, settings_again
from dalembert.ensemble.simulate import prepare
from dalembert.ensemble.together import are_small, run_together
from dalembert.methods import Method
from dalembert.noise import Gaussian, Halves
from dalembert.statistics import Mean, SampleMean, TimeAverage
from dalembert.statistics.mean import merged_means
from dalembert.stepping.pair import PairMethod, pair_of
from dalembert.system import System

__all__ = ["Level", "Sampler", "TableRow", "largest", "reach"]

SIZES, AROUND, AT_A_TIME = (512, 2048, 8192, 32768, 131072, 262144), 2**15, 2
"""Sizes of blocks, path-steps that take as long as what is done around a block, and cores at least,
of any machine, so that all of them have the same blocks."""

ROOM = 2**24
"""Observed numbers of a block; more go into smaller ones."""


class TableRow(NamedTuple):
    """What is sampled: an observable after so many steps, or its change when they are halved.

    Attributes:
        steps: steps to the end; of a pair those of its coarse path.
        is_pair: whether differences between paths of twice as many steps and of these are sampled.
    """

    steps: int
    is_pair: bool

    @property
    def cost(self) -> int:
        """Steps that one sample takes."""
        return 3 * self.steps if self.is_pair else self.steps

    @property
    def finest(self) -> int:
        """Steps of the finer path."""
        return 2 * self.steps if self.is_pair else self.steps


@dataclass(frozen=True)
class Level:
    """A sample at one step size.

    Attributes:
        row: what was sampled.
        dt: step size of the finer path.
        difference: φ at dt minus φ at 2 dt, on the same Brownian paths; where there is no coarse
            path, φ itself. All observables in one row of numbers.
        itself: φ at dt.
        seconds: how long it took; of levels that were drawn at once each has its share of steps.
    """

    row: TableRow
    dt: float
    difference: SampleMean
    itself: SampleMean
    seconds: float

    @property
    def paths(self) -> int:
        """Paths, or pairs of them."""
        return int(self.difference.count)

    @property
    def steps(self) -> int:
        """Steps of all paths together."""
        return self.paths * self.row.cost

    @property
    def mean(self) -> np.ndarray:
        return self.difference.mean

    @cached_property
    def variance(self) -> np.ndarray:
        """Of differences that are all equal, what three unequal ones would make of it.

        Of n equal samples no more is known than that unequal ones have a probability below 3/n.
        They differ by the range of the values, and by no more than two values vary.
        """
        found, whole = self.difference.variance, self.itself
        if found.all():
            return found
        with np.errstate(over="ignore", under="ignore"):
            unseen = 3 * np.square(whole.maximum - whole.minimum) / self.paths
            most = np.minimum(unseen, 4 * whole.variance)
        return np.where((found == 0) & (whole.variance > 0), most, found)

    @cached_property
    def stderr(self) -> np.ndarray:
        return np.sqrt(self.variance / self.paths)

    @cached_property
    def largest(self) -> np.ndarray:
        """The share of the squared error that one path makes."""
        return largest(self.difference)

    def merged(self, other: "Level") -> "Level":
        """Both samples as one."""
        return replace(
            self,
            difference=merged_means(self.difference, other.difference),
            itself=merged_means(self.itself, other.itself),
            seconds=self.seconds + other.seconds,
        )


def reach(sample: SampleMean) -> np.ndarray:
    """The largest deviation from the mean."""
    return np.maximum(sample.maximum - sample.mean, sample.mean - sample.minimum)


def largest(sample: SampleMean) -> np.ndarray:
    """The share of the sum of squared deviations that the largest one makes.

    It falls with the number of samples if the variance is finite, and stays if it is not.
    """
    squares = sample.deviations
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        return np.where(squares > 0, np.square(reach(sample)) / squares, 0.0)


@dataclass(frozen=True)
class Sampler:
    """Draws samples; a pure function of the seed, the row and the number of the batch.

    Attributes:
        observables: functions of the final state, or `TimeAverage` of functions, by name.
        every: time between the saves that time averages are taken over.
        checkpoint: folder in which every batch has a file, or None.
        numbers: how many numbers are observed.
        options: further arguments of `prepare`.
        before: runs of paths and of pairs, by the size of blocks, like which others are made ready.
        known: what runs of paths, and of pairs, were asked to do, from which others differ in
            numbers alone, and the first run of each row, from which those of other batches differ
            in paths and the seed.
        keys: what their functions, and all that these read, are known by.
        starts: where they start, if all paths start alike.
    """

    system: System
    method: Method
    initial: Any
    observables: Mapping[str, Mean]
    t_end: float
    every: float
    seed: int
    checkpoint: Path | None
    numbers: int
    options: Mapping[str, Any]
    before: dict[tuple[bool, int], Ready] = field(default_factory=dict)
    known: dict[bool | TableRow, Settings] = field(default_factory=dict)
    keys: dict[bool, Hashable] = field(default_factory=dict)
    starts: dict[bool, InitialStates] = field(default_factory=dict)

    def draw(self, row: TableRow, batch: int, paths: int) -> Level:
        """A batch of independent samples; RuntimeError if a path fails."""
        return self.draw_all([(row, batch, paths)])[0]

    def draw_all(self, asked: Sequence[tuple[TableRow, int, int]]) -> list[Level]:
        """Several batches, (row, number of the batch, paths), at once if they are small."""
        began = time.perf_counter()
        steps = np.array([row.cost * paths for row, _, paths in asked])
        found = self._ends(asked, steps)
        missing = [place for place in range(len(asked)) if place not in found]
        runs = run_together(steps[missing].tolist(), lambda i: self._job(*asked[missing[i]]))
        found |= {i: run.statistics.values() for i, run in zip(missing, runs, strict=True)}
        seconds = (time.perf_counter() - began) * steps / steps.sum()
        if self.checkpoint is not None:  # with what earlier calls have taken
            seconds = [run.provenance["seconds"] for run in runs]
        return [
            self._level(row, found[place], float(seconds[place]))
            for place, (row, _, _) in enumerate(asked)
        ]

    def _ends(
        self, asked: Sequence[tuple[TableRow, int, int]], steps: np.ndarray
    ) -> dict[int, Iterable[SampleMean]]:
        """What is observed in those batches that need no run of their own, by their places."""
        is_alone = self.checkpoint is None and find_team(self.options["executor"]) is None
        if self._has_averages or not (is_alone and are_small(self.system, steps.sum())):
            return {}
        order = np.argsort(-steps, kind="stable").tolist()
        found = means_at_ends(self._end(*asked[place]) for place in order)
        return {
            place: [SampleMean(**data) for data in x.values()]
            for place, x in zip(order, found, strict=True)
            if x is not None
        }

    def _end(self, row: TableRow, batch: int, paths: int) -> ShortRun:
        """A batch of samples of the ends of paths."""
        settings = self._settings(row, batch, paths)
        starts = self.starts.get(row.is_pair)
        if starts is None or starts.common is None:
            starts = self.starts[row.is_pair] = starts_of(settings)
        return ShortRun(settings, self._like(row, settings), starts)

    def _job(self, row: TableRow, batch: int, paths: int) -> Job:
        """A batch of samples, ready to begin."""
        settings = self._settings(row, batch, paths)
        file = self._file(row, batch)
        like = None if file is not None else self._like(row, settings)
        return prepare(settings, file, "raise", like=like, **self.options)

    def _settings(self, row: TableRow, batch: int, paths: int) -> Settings:
        """The run that a batch of samples is."""
        words = np.random.SeedSequence([self.seed, row.steps, row.is_pair, batch])
        seed = int(words.generate_state(1, np.uint64)[0] >> np.uint64(1))
        known = self.known.get(row)
        if known is None:
            known = self.known[row] = self._of_row(row, paths)
        size = _block_paths(known, paths, row.cost, self.numbers)
        return replace(known, paths=paths, seed=seed, block_paths=size)

    def _of_row(self, row: TableRow, paths: int) -> Settings:
        """The first run of a row, with so many paths, checked."""
        dt = self.t_end / row.steps
        saves = max(round(self.every / dt), 1) if self._has_averages else row.steps
        noise = Halves(Gaussian()) if row.is_pair else None
        numbers = {"dt": dt, "t_end": self.t_end, "save_every": saves, "noise": noise}
        known = self.known.get(row.is_pair)
        if known is None:
            known = self.known[row.is_pair] = self._first_settings(row, paths, numbers)
        return settings_again(known, **numbers)

    def _first_settings(self, row: TableRow, paths: int, numbers: Mapping[str, Any]) -> Settings:
        """Of all runs of paths, or of pairs, the one that is checked."""
        system, method, initial = self.system, self.method, self.initial
        if row.is_pair:
            system, method, initial = pair_of(system), PairMethod(method), _doubled(initial)
        observed = {name: observing(one, row.is_pair) for name, one in self.observables.items()}
        settings = make_settings(
            system,
            method,
            initial,
            **numbers,
            paths=paths,
            seed=0,
            only=None,
            keep="nothing",
            dtype=np.float64,
            observe=None,
            histograms=None,
            statistics={f"E {name}": one for name, one in observed.items()},
        )
        return replace(
            settings,
            statistics=settings.statistics[1:],  # the energy, which nobody has asked for
            at_end=not self._has_averages,
        )

    def _level(self, row: TableRow, found: Iterable[SampleMean], seconds: float) -> Level:
        """The samples that a run has drawn."""
        samples = [_of_end(x) for x in found]
        itself = _together(samples, 1 if row.is_pair else None)
        difference = _together(samples, 0) if row.is_pair else itself
        return Level(row, self.t_end / row.finest, difference, itself, seconds)

    def least_slopes(self, steps: int, paths: int) -> np.ndarray:
        """Of every number observed, the least derivative by the state where paths have ended.

        It is zero where the observable is constant around a state, or where that is not known.
        """
        slopes = {name: Mean(slope(one.of)) for name, one in self.observables.items()}
        try:
            fresh = {name: {} for name in ("before", "known", "keys", "starts")}
            ends = replace(self, observables=slopes, checkpoint=None, **fresh)
            return ends.draw(TableRow(steps, False), 0, paths).itself.minimum
        except (FailedPathsError, TypeError):  # a derivative is infinite, or there is none
            return np.zeros(1)

    def _like(self, row: TableRow, settings: Settings) -> Ready:
        """A run with blocks of the same size, made ready in this call or an earlier one."""
        which = row.is_pair, settings.block_paths
        if which not in self.before:
            options = self.options
            if options["executor"] is None and isinstance(options["engine"], str | None):
                if row.is_pair not in self.keys:
                    self.keys[row.is_pair] = known_by(settings)
                parts = options["workers"], options["engine"], settings.noise, settings.block_paths
                key = self.keys[row.is_pair], *parts
                self.before[which] = _made_ready(settings.system, Keyed((settings, options), key))
            else:
                self.before[which] = prepare(settings, None, "raise", **options).ready
        return self.before[which]

    @property
    def _has_averages(self) -> bool:
        return any(isinstance(one, TimeAverage) for one in self.observables.values())

    def _file(self, row: TableRow, batch: int) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        kind = "pairs" if row.is_pair else "paths"
        return Checkpoint(self.checkpoint / f"{kind}-{row.steps}-{batch}.ckpt")


def _block_paths(settings: Settings, paths: int, cost: int, numbers: int) -> int:
    """One of few sizes on a CPU, each of which is compiled for once, however many paths.

    The one by which they are done soonest.
    """
    room = 1 << max(ROOM // numbers, 1).bit_length() - 1
    if settings.backend != "cpu" or settings.system.dim > USUAL_DIM:
        return min(settings.block_paths, room)

    def seconds(size: int) -> int:
        turns = -(-paths // (AT_A_TIME * size))
        return turns * (min(size, paths) * cost + AROUND)

    return min(min(SIZES, key=seconds), room)


@kept
def _made_ready(system: System, known: Keyed) -> Ready:
    """A run, made ready; it hangs on its system for later calls that ask for its like."""
    settings, options = known.value
    return prepare(settings, None, "raise", **options).ready


def _doubled(initial: Any) -> Any:
    """The same initial state for both paths of a pair."""

    def both(x: Any) -> Any:
        return jnp.stack([x, x])

    if not callable(initial):
        return tuple(np.stack([np.asarray(x)] * 2) for x in initial)

    draw: Callable[..., Any] = initial

    def sampler(key: Any) -> tuple[Any, ...]:
        q, p = draw(key)
        return both(q), both(p)

    return sampler


def _of_end(sample: SampleMean) -> SampleMean:
    """What was observed last, or of whole paths."""
    return SampleMean(*(x[-1] for x in sample)) if np.ndim(sample.count) else sample


def _together(samples: Sequence[SampleMean], place: int | None) -> SampleMean:
    """All observables, or one of the two of a pair, as one sample of rows of numbers."""
    rows = [[np.ravel(x if place is None else x[place]) for x in sample[1:]] for sample in samples]
    rest = rows[0] if len(rows) == 1 else map(np.concatenate, zip(*rows, strict=True))
    return SampleMean(np.asarray(samples[0].count), *rest)
