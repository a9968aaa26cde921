"""The loop: halve the step until the bias is small, add paths until the statistical error is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dalembert.answers.drives import sees_drive
from dalembert.answers.orders import measured_exponents
from dalembert.answers.sampling import Level, Sampler, TableRow, largest, reach
from dalembert.answers.schemes import Scheme
from dalembert.answers.tails import HEAVY, LONG, StoppedError, check_range, check_tails
from dalembert.ensemble.settings import USUAL_DIM

__all__ = ["Estimate", "Goal", "Search"]

PILOT, PILOT_STEPS, PILOT_SHARE = 256, 2**16, 64
"""Paths of the first batch of a level, which say how large its variance is; more where all of them
take no more path-steps than that, which take as long as what is done around them, nor more than
such a part of the budget. What is known well after one batch needs no third one."""

MOST_STEPS = 2**22
"""Steps of a path beyond which no level goes."""

SHARE_OF_BIAS = 0.25
"""Of the tolerance, for the bias. At one step size, with costs 1/dt and a bias dt^α, the best is
1/(1 + 2α); levels, whose finer ones are cheap, gain by less rather than more."""

MORE = 1.1
"""For the powers of dt beyond the first, which estimates of the bias leave out."""

SEEN = 0.25
"""Of the tolerance: how well the bias must be known."""

AGAIN = 3
"""How often numbers of paths follow from a bias that follows from them; each time much closer."""

MARGIN = 1.03
"""More paths than variances ask for, which are themselves estimates: one batch then does."""

LESS, LEAST_ORDER = 0.25, 0.5
"""By how much a measured order must be below the expected one to count, and the least that does."""

FACTOR = 4
"""So many times as many paths at once, where one makes too much of an error."""

PATIENCE = 2**28
"""Path-steps that may be taken while all samples are equal, if no budget was given."""


@dataclass(frozen=True)
class Goal:
    """What is asked for.

    Attributes:
        tolerance: half the width of the interval, of each observable or of its size.
        relative: whether it is a share of the value.
        quantile: standard errors that the confidence stands for.
        budget: path-steps that may be taken.
        patience: path-steps that may be taken while all samples are equal.
    """

    tolerance: float
    relative: bool
    quantile: float
    budget: float
    patience: float

    def allowed(self, value: np.ndarray) -> np.ndarray:
        """The tolerance of each entry of a value."""
        return self.tolerance * (np.abs(value) if self.relative else np.ones_like(value))


@dataclass(frozen=True)
class Estimate:
    """A value, its standard error and its bias, an entry for each number observed."""

    value: np.ndarray
    stderr: np.ndarray
    bias: np.ndarray


@dataclass
class Search:
    """Samples so far, and how to go on."""

    sampler: Sampler
    goal: Goal
    scheme: Callable[[int, int, float, bool], Scheme]
    coupled: bool
    order: float
    levels: dict[TableRow, Level] = field(default_factory=dict)
    batches: dict[TableRow, int] = field(default_factory=dict)
    last: Scheme | None = None
    rounds: int = 0
    heavy: dict[TableRow, tuple[int, np.ndarray]] = field(default_factory=dict)
    is_moved: np.ndarray | None = None

    @property
    def steps(self) -> int:
        """Path-steps so far."""
        return sum(level.steps for level in self.levels.values())

    def add(self, paths: Mapping[TableRow, int]) -> None:
        """Add a batch of so many paths to the sample of each row."""
        asked = [(row, self.batches.get(row, 0), count) for row, count in paths.items()]
        for (row, batch, _), level in zip(asked, self.sampler.draw_all(asked), strict=True):
            known = self.levels.get(row)
            self.levels[row] = level if known is None else known.merged(level)
            self.batches[row] = batch + 1

    def sample(self, paths: Mapping[TableRow, int]) -> None:
        """Have samples of rows with at least so many paths."""
        known = {row: self.levels[row].paths if row in self.levels else 0 for row in paths}
        missing = {row: n - known[row] for row, n in paths.items() if n > known[row]}
        if missing:
            self._afford(sum(n * row.cost for row, n in missing.items()))
            self.add(missing)
        for row in paths:
            check_range(self.levels[row].itself)

    def pilot(self, row: TableRow) -> int:
        """Paths of the first batch of a row."""
        steps = PILOT_STEPS * USUAL_DIM // max(self.sampler.system.dim, USUAL_DIM)
        paths = min(steps, int(self.goal.budget) // PILOT_SHARE) // row.cost
        return max(PILOT, 1 << max(paths, 1).bit_length() - 1)

    def _afford(self, steps: int) -> None:
        if self.steps + steps > self.goal.budget:
            raise StoppedError(
                f"it would take {self.steps + steps:.2g} path-steps or more, and the budget is "
                f"{self.goal.budget:.2g}"
            )

    def alpha(self) -> float:
        """The weak order as expected, or as measured where that is clearly less."""
        measured = measured_exponents(self.levels.values())
        less = measured.alpha[measured.alpha + 2 * measured.alpha_stderr < self.order - LESS]
        return max(min([self.order, *less]), LEAST_ORDER)

    def resolve(self, row: TableRow, least: int = 1) -> None:
        """Add paths to the first sample of a row as long as one value makes much of its variance.

        Of rare events, levels are compared by the few paths on which they come up. At least so many
        paths are looked at.
        """
        first = self.levels[row].itself
        affordable = min(self.goal.budget, self.goal.patience) / PILOT_SHARE
        while True:
            now = self.levels[row].itself
            paths, is_heavy = int(now.count), largest(now) > HEAVY
            if not np.any(is_heavy) and paths >= least:
                return
            check_tails(self.levels[row].dt, now, is_heavy, int(first.count), reach(first))
            more = (FACTOR - 1) * paths * row.cost
            if paths >= LONG * first.count or self.steps + more > affordable:
                return
            self.sample({row: FACTOR * paths})

    def share(self, level: Level) -> float:
        """The largest share of its variance that an observable has in differences.

        One that hardly varies, such as an energy that is conserved, needs no levels: it is no
        matter what makes up a spread that is small beside the tolerance.
        """
        whole, allowed = level.itself.variance, self.goal.allowed(level.itself.mean)
        spread = self.goal.quantile * np.sqrt(np.maximum(level.variance, whole))
        shares = level.difference.variance / np.maximum(whole, np.finfo(float).tiny)
        return float(np.max(np.where(spread <= SEEN * allowed, 0, shares)))

    def run(self, coarsest: int, halvings: int) -> None:
        """Halve steps and add paths until the tolerance holds; StoppedError if it cannot."""
        if coarsest * 2**halvings > MOST_STEPS:
            raise ValueError(
                f"{halvings} halvings of dt = {self.sampler.t_end / coarsest:g} make more than "
                f"{MOST_STEPS:,} steps to t_end, the most that there can be: take fewer."
            )
        of = self.sampler
        while not sees_drive(of.system, of.initial, of.t_end, coarsest * 2**halvings):
            halvings += 1
        while True:
            scheme, found = self._at(coarsest, halvings)
            allowed = self.goal.allowed(found.value)
            if np.all(found.bias + self.goal.quantile * found.stderr <= allowed):
                return
            halvings += 1
            if coarsest * 2**halvings > MOST_STEPS:
                raise StoppedError(
                    f"the bias is still about {np.max(found.bias / allowed):.2g} of the tolerance "
                    f"at dt = {self.sampler.t_end / scheme.rows[-1].finest:.3g}, where differences "
                    f"fall as dt^{self.alpha():.2g}"
                )

    def _at(self, coarsest: int, halvings: int) -> tuple[Scheme, Estimate]:
        """The value at so many halvings, as exact as it must be, or with too large a bias."""
        scheme = self.scheme(coarsest, halvings, self.alpha(), self.coupled)
        self.sample({row: self.pilot(row) for row in scheme.rows})
        self.last = scheme
        self.vary(scheme.rows)
        self.resolve(scheme.rows[0])
        while True:
            scheme = self.scheme(coarsest, halvings, self.alpha(), self.coupled)
            self.last, found = scheme, self.estimate(scheme)
            allowed = self._allowed(found)
            doubt = self.goal.quantile * self._bias_stderr(scheme)
            if np.any(found.bias - doubt > SHARE_OF_BIAS * allowed):
                return scheme, found
            # First the bias: as long as it is not known, it takes up more than its share.
            biases = [SEEN * allowed] * len(scheme.biases)
            missing = self._missing(scheme, scheme.biases, biases)
            if not missing:
                weights, bias = np.vstack([scheme.value, scheme.biases]), found.bias
                for _ in range(AGAIN):
                    rest = allowed - np.minimum(bias, (SHARE_OF_BIAS + SEEN) * allowed)
                    before, missing = missing, self._missing(scheme, weights, [rest, *biases])
                    if missing == before:
                        break
                    bias = self._bias(scheme, missing)
            missing = self._steadied(scheme, missing)
            if not missing:
                return scheme, found
            self.sample(missing)
            self.rounds += 1

    def _allowed(self, found: Estimate) -> np.ndarray:
        """The tolerance of each entry, at first that of the largest value that may be right.

        One that may still be zero after that is much smaller than what was first known of it.
        """
        reach = self.goal.quantile * found.stderr
        if not self.goal.relative or np.all(np.abs(found.value) > reach):
            return self.goal.allowed(found.value)
        if self.rounds:
            raise StoppedError(
                f"a value that cannot be told from zero, {found.value} ± {reach}, has no relative "
                "error: give an absolute tolerance, without relative=True"
            )
        return self.goal.allowed(np.abs(found.value) + reach)

    def vary(self, rows: Sequence[TableRow]) -> None:
        """Add paths to samples that are all equal: an event may not have come up yet.

        What is the same on all paths wherever they are is known without an error.
        """
        if not self.sampler.system.noises and not callable(self.sampler.initial):
            return
        for row in rows:
            while np.any(
                alike := self.levels[row].itself.minimum == self.levels[row].itself.maximum
            ):
                if self.is_moved is None:
                    self.is_moved = self.sampler.least_slopes(row.finest, PILOT) > 0
                if not np.any(alike & ~self.is_moved):
                    break
                paths = self.levels[row].paths
                more = (FACTOR - 1) * paths * row.cost
                if self.steps + more > min(self.goal.budget, self.goal.patience):
                    dt = self.sampler.t_end / row.finest
                    raise StoppedError(
                        f"all {paths:,} samples at dt = {dt:.3g} are equal, so that nothing is "
                        f"known of their error. An event that they have missed has a probability "
                        f"below {3 / paths:.2g} (95 %, rule of three): give a larger budget= than "
                        f"{self.steps + more:.2g}, or another observable"
                    )
                self.sample({row: FACTOR * paths})

    def singles(self, scheme: Scheme, weights: np.ndarray) -> np.ndarray:
        """The share of its squared error that one path makes, of weighted sums, for each row."""
        levels = [self.levels[row] for row in scheme.rows]
        with np.errstate(over="ignore", under="ignore"):
            squares = np.square(weights[..., None] * np.array([x.stderr for x in levels]))
            parts = squares * np.array([x.largest for x in levels])
            whole = np.sum(squares, axis=-2, keepdims=True)
            return parts / np.maximum(whole, np.finfo(float).tiny)

    def _steadied(self, scheme: Scheme, missing: dict[TableRow, int]) -> dict[TableRow, int]:
        """Missing paths, with more where one path makes much of the error, but not all at once.

        An error of which it makes much is not known; and a variance that is not finite grows with
        the paths, and would ask for more and more of them.
        """
        of_value = self.singles(scheme, scheme.value)
        of_bias = np.max(self.singles(scheme, scheme.biases), axis=0)
        wanted = {}
        for row, first, second in zip(scheme.rows, of_value, of_bias, strict=True):
            level = self.levels[row]
            is_heavy = np.maximum(first, second if row in missing else 0) > HEAVY
            if not np.any(is_heavy):
                continue
            now = level.difference
            paths, before = self.heavy.setdefault(row, (level.paths, reach(now)))
            check_tails(level.dt, now, is_heavy, paths, before)
            if row not in missing:
                wanted[row] = FACTOR * level.paths
        # All numbers of paths follow from the variance that is not known.
        least = {row: FACTOR * self.levels[row].paths for row in missing}
        found = {row: min(n, least[row]) if self.heavy else n for row, n in missing.items()}
        more = sum((n - self.levels[row].paths) * row.cost for row, n in wanted.items())
        # What nobody has asked for is left out if it is too much, and then said.
        return found | wanted if self.steps + more <= self.goal.budget else found

    def estimate(self, scheme: Scheme) -> Estimate:
        """What the samples so far give; the bias may be larger than it looks by its own error."""
        means = np.array([self.levels[row].mean for row in scheme.rows])
        return Estimate(
            scheme.value @ means, self._spread(scheme, scheme.value), self._bias(scheme, {})
        )

    def _bias(self, scheme: Scheme, more: Mapping[TableRow, int]) -> np.ndarray:
        """The bias, and its own error, as they are to be expected when some rows have more paths.

        What a mean differs from zero by may itself be an error, and then falls with it.
        """
        levels, squared = [self.levels[row] for row in scheme.rows], np.square(scheme.biases)
        paths = [max(more.get(level.row, 0), level.paths) for level in levels]
        size = np.square(scheme.biases @ np.array([level.mean for level in levels]))
        errors = squared @ np.array([level.variance / level.paths for level in levels])
        rows = [level.variance / n for level, n in zip(levels, paths, strict=True)]
        ahead = squared @ np.array(rows)
        size = np.maximum(size - errors, 0) + np.minimum(size, ahead)
        return MORE * np.max(np.sqrt(size) + np.sqrt(ahead), axis=0)

    def plain_steps(self, scheme: Scheme) -> float:
        """Path-steps of plain Monte Carlo at the finest step, for the errors of a scheme."""
        finest = max(scheme.rows, key=lambda row: row.finest)
        variance, error = self.levels[finest].itself.variance, self.estimate(scheme).stderr
        squares = np.maximum(np.square(error), np.finfo(float).tiny)
        return float(max(np.max(variance / squares), 1) * finest.finest)

    def _spread(self, scheme: Scheme, weights: np.ndarray) -> np.ndarray:
        """The standard errors of weighted sums of means."""
        errors = np.array([self.levels[row].stderr for row in scheme.rows])
        return np.sqrt(np.square(weights) @ np.square(errors))

    def _bias_stderr(self, scheme: Scheme) -> np.ndarray:
        return np.max(self._spread(scheme, scheme.biases), axis=0)

    def _missing(
        self, scheme: Scheme, weights: np.ndarray, aims: Sequence[np.ndarray]
    ) -> dict[TableRow, int]:
        """Paths that rows should have and do not, by Lagrange: fewest steps for errors as aimed at.

        For each weighting of rows, an aim is how large the error of what it makes may be.
        """
        variances = np.array([self.levels[row].variance for row in scheme.rows])
        roots = np.sqrt(np.array([row.cost for row in scheme.rows], float))[:, None]
        spreads = np.abs(weights)[..., None] * np.sqrt(variances)
        total = np.sum(spreads * roots, axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.square(self.goal.quantile / np.array(aims))[:, None]
            share = np.where(spreads > 0, scale * total * spreads / roots, 0)
        counts = np.max(share, axis=(0, 2))
        return {
            row: int(np.ceil(MARGIN * count))
            for row, count in zip(scheme.rows, counts, strict=True)
            if count > self.levels[row].paths
        }
