"""What a run was asked to do: one checked record."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from dalembert.driven import check_digits
from dalembert.ensemble.initial import ask_start
from dalembert.ensemble.schedule import SAVES_PER_LEG, Schedule
from dalembert.methods import Method
from dalembert.noise import Gaussian, Noise, harmless_truncation, usual_noise
from dalembert.precision import as_dtype, check_dt, is_traced, warn_if_rounded
from dalembert.statistics import Histogram, Mean, Statistic
from dalembert.statistics.checked import check_statistic
from dalembert.stepping.step import check_method
from dalembert.system import System


class Grain(NamedTuple):
    """How many paths and steps a kind of device takes at a time.

    Attributes:
        block_paths: paths that run together.
        stretch: steps after which they are checked, at most.
        safe_paths: paths that take steps again, safely, at a time.
    """

    block_paths: int
    stretch: int
    safe_paths: int


CPU_GRAIN = Grain(4096, 1024, 64)
"""What stays in the cache."""

DEVICE_GRAIN = Grain(2**18, 2048, 1024)
"""What fills the device."""

USUAL_DIM = 8
"""Degrees of freedom beyond which blocks have fewer paths."""

LEAST_BLOCK_PATHS = 64
SHARES = 8
"""On a CPU few paths are cut into about so many blocks, none smaller than this."""

MAX_STEPS = 2**30

WHAT = {"observe": "an observable", "histograms": "a histogram", "statistics": "a statistic"}
"""What comes through the arguments that take statistics."""


@dataclass(frozen=True)
class Settings:
    """A run as it was asked for; the result is a pure function of this record and the backend."""

    system: System
    method: Method
    initial: Any
    dt: float
    steps: int
    paths: int
    only: tuple[int, ...] | None
    seed: int
    statistics: tuple[tuple[str, Statistic], ...]
    save_every: int
    noise: Noise
    keep: str
    dtype: np.dtype
    block_paths: int
    backend: str
    at_end: bool = False
    """Whether statistics are of the end alone."""

    @property
    def schedule(self) -> Schedule:
        numbers = self.block_paths * self.system.dim
        usual = self.grain.block_paths * USUAL_DIM
        # Where only the first state and the last are saved, each is looked at as it is.
        saves = SAVES_PER_LEG if self.steps > self.save_every else 1
        room = max(saves * usual // max(numbers, usual), 1)
        stretch = max(self.grain.stretch * usual // max(numbers, usual), 1)
        return Schedule(self.steps, self.save_every, stretch, room, self.at_end)

    @property
    def is_one_stretch(self) -> bool:
        """Whether all paths go from their start to their end in one stretch."""
        return self.only is None and self.schedule.stretch(0) == (0, self.steps)

    @property
    def title(self) -> str:
        return f"{self.method.name} on {self.system.name}"

    @property
    def functions(self) -> tuple[tuple[str, str, Callable[..., Any]], ...]:
        """All functions that statistics observe, after the key of the statistic and their name."""
        return tuple(
            (key, name, fun) for key, s in self.statistics for name, fun in s.functions().items()
        )

    @property
    def truncation(self) -> int | None:
        """The k that ΔW can be truncated with without a loss, if no other noise was asked for."""
        is_free = self.system.noises > 0 and self.noise == Gaussian()
        can_do = is_free and self.method.needs_for(self.system) == {"dW"}
        return harmless_truncation(self.dt) if can_do else None

    @property
    def grain(self) -> Grain:
        return _grain(self.backend)

    @property
    def times(self) -> np.ndarray:
        """When statistics are kept."""
        return self.schedule.save_steps * self.dt

    @property
    def t_end(self) -> float:
        return self.steps * self.dt

    @property
    def run_paths(self) -> int:
        """How many paths are run: all, or those that were chosen."""
        return self.paths if self.only is None else len(self.only)

    @property
    def blocks(self) -> int:
        return -(-self.run_paths // self.block_paths)

    def numbers(self, block: int) -> np.ndarray:
        """The numbers of the paths in a block; the last one may have fewer."""
        first = block * self.block_paths
        end = first + self.size(block)
        if self.only is None:
            return np.arange(first, end, dtype=np.uint64)
        return np.asarray(self.only[first:end], np.uint64)

    def size(self, block: int) -> int:
        """How many paths a block has."""
        return min(self.block_paths, self.run_paths - block * self.block_paths)


def make_settings(
    system: System,
    method: Method,
    initial: Any,
    *,
    dt: float,
    t_end: float,
    paths: int,
    only: Any,
    seed: int,
    observe: Any,
    histograms: Any,
    statistics: Any = None,
    save_every: int,
    noise: Noise | None,
    keep: str,
    dtype: Any,
) -> Settings:
    """The record of a run, or a clear error about what cannot be run."""
    check_method(system, method)
    ask_start(system, initial)
    dt, t_end = _number("dt", dt), _number("t_end", t_end)
    check_dt(dt, as_dtype(dtype))
    steps = _check_schedule(dt, t_end)
    check_digits(system, t_end, dt, as_dtype(dtype))
    save_every = whole("save_every", save_every, 1)
    paths, seed = whole("paths", paths, 1), _check_seed(seed)
    check_choice("keep", keep, ("nothing", "final", "all"))
    noise = _check_noise(noise, system, method, dt=dt, steps=steps, paths=paths)
    chosen: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    backend = jax.default_backend() if chosen is None else getattr(chosen, "platform", chosen)
    if as_dtype(dtype) == np.float64:
        warn_if_rounded("params", system.params)
        warn_if_rounded("the initial state", None if callable(initial) else initial)
    found = Settings(
        system,
        method,
        initial,
        dt,
        steps,
        paths,
        _check_only(only, paths),
        seed,
        _check_statistics(
            {"energy": system.H} if observe is None else observe, histograms, statistics
        ),
        save_every,
        noise,
        keep,
        as_dtype(dtype),
        _block_paths(backend, paths, system.dim),
        backend,
    )
    # An observable that is made for one initial state has a check of it, named `begins`.
    for _, _, fun in found.functions:
        if hasattr(fun, "begins"):
            fun.begins(initial)
    return found


def settings_again(
    known: Settings, *, dt: float, t_end: float, save_every: int, noise: Any
) -> Settings:
    """The record of a run that differs in its steps alone, of which only these are checked."""
    check_dt(dt, known.dtype)
    steps = _check_schedule(dt, t_end)
    check_digits(known.system, t_end, dt, known.dtype)
    noise = _check_noise(noise, known.system, known.method, dt=dt, steps=steps, paths=known.paths)
    return replace(known, dt=dt, steps=steps, save_every=save_every, noise=noise)


def _grain(backend: str) -> Grain:
    return CPU_GRAIN if backend == "cpu" else DEVICE_GRAIN


def _block_paths(backend: str, paths: int, dim: int) -> int:
    """The usual size; for few paths a power of two that leaves several blocks to share."""

    def holding(number: int) -> int:
        return 1 << (number - 1).bit_length()

    room = max(_grain(backend).block_paths * USUAL_DIM // holding(dim), 1)
    usual = min(_grain(backend).block_paths, holding(paths), room)
    if backend != "cpu":
        return usual
    least = max(LEAST_BLOCK_PATHS * USUAL_DIM // holding(dim), 1)
    return min(usual, max(least, holding(-(-paths // SHARES))))


def _number(name: str, value: Any) -> float:
    """A positive number; arrays without axes count as numbers."""
    if is_traced(value):
        raise TypeError(f"{name} cannot be traced: the number of steps must be known.")
    array = np.asarray(value)
    is_number = array.shape == () and array.dtype.kind in "fiu"
    if not is_number or not np.isfinite(array) or array <= 0:
        raise ValueError(f"{name} must be a positive number, not {value!r}.")
    # The digits that it is written with, whatever its type: 0.1 also of np.float32(0.1).
    return float(str(array[()]))


def _check_schedule(dt: float, t_end: float) -> int:
    steps = round(t_end / dt)
    if steps > MAX_STEPS:
        raise ValueError(f"{steps:,} steps are too many: a run takes at most {MAX_STEPS:,}.")
    if steps < 1 or abs(steps * dt - t_end) > 1e-9 * t_end:
        raise ValueError(
            f"t_end = {t_end} is not a whole number of steps of dt = {dt}: "
            f"take t_end = {max(steps, 1) * dt:.12g}, or dt = {t_end / max(steps, 1):.12g}."
        )
    return steps


def whole(name: str, value: Any, least: int) -> int:
    """A whole number that is large enough, or an error; 1e4 is one too."""
    if is_traced(value):
        raise TypeError(f"{name} cannot be traced: it decides how much is computed.")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(f"{name} must be a whole number ≥ {least}, not {value!r}.")
    return int(value)


def _check_seed(seed: Any) -> int:
    """A whole number; keys and generators of other libraries are none."""
    if is_traced(seed):
        raise TypeError(
            "seed cannot be traced: for more realizations of the noise take more paths."
        )
    if not isinstance(seed, int | float | np.integer):
        raise TypeError(
            f"seed must be a whole number, such as 0, from which keys are made; not {seed!r}."
        )
    return whole("seed", seed, 0)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")


def _check_only(only: Any, paths: int) -> tuple[int, ...] | None:
    if only is None:
        return None
    try:
        numbers = list(only)
    except TypeError:
        numbers = [only]
    chosen = tuple(whole("a path number in only", number, 0) for number in numbers)
    if not chosen or max(chosen) >= paths or len(set(chosen)) < len(chosen):
        raise ValueError(f"only must name different paths below paths = {paths:,}, not {only!r}.")
    return chosen


def _check_statistics(
    observe: Any, histograms: Any, statistics: Any
) -> tuple[tuple[str, Statistic], ...]:
    means = _check_observe(observe)
    binned = _check_kind("histograms", Histogram, histograms)
    others = _check_kind("statistics", Statistic, statistics)
    for name in others.keys() & (means.keys() | binned.keys()):
        raise ValueError(f"statistics has a name that observe or histograms have too: {name!r}.")
    doors = (("observe", means), ("histograms", binned), ("statistics", others))
    return tuple(found for door, given in doors for found in _by_key(door, given))


def _by_key(door: str, statistics: Mapping[str, Statistic]) -> Iterator[tuple[str, Statistic]]:
    """Statistics by the argument that they came through and their name there."""
    for name, statistic in statistics.items():
        if not isinstance(name, str) or not name or "/" in name or not name.isprintable():
            raise ValueError(
                f"{WHAT[door]} needs a name without '/' and control characters, not {name!r}."
            )
        try:
            hash(statistic)
        except TypeError as error:
            raise TypeError(
                f"{door}[{name!r}] cannot be told from others ({error}): make it a frozen "
                "dataclass of numbers, texts, functions and tuples."
            ) from error
        check_statistic(f"{door}[{name!r}]", statistic)
        yield f"{door}/{name}", statistic


def _check_observe(observe: Any) -> dict[str, Mean]:
    if not isinstance(observe, Mapping) or not observe:
        raise TypeError('observe must map names to functions, e.g. {"energy": H}.')
    return {name: Mean(fun) for name, fun in observe.items()}


def _check_kind(door: str, kind: type[Statistic], given: Any) -> Mapping[str, Statistic]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{door} must map names to da.{kind.__name__}(…).")
    for name, statistic in given.items():
        if not isinstance(statistic, kind):
            raise TypeError(f"{door}[{name!r}] must be a da.{kind.__name__}, not {statistic!r}.")
    return given


def _check_noise(
    noise: Noise | None, system: System, method: Method, dt: float, steps: int, paths: int
) -> Noise:
    chosen = (
        usual_noise(method.convergence, method.needs_for(system), dt) if noise is None else noise
    )
    if isinstance(chosen, type) or not hasattr(chosen, "draw_together"):
        raise TypeError(
            "noise must be a kind of noise such as da.Gaussian() or da.ThreePoint(), "
            f"not {noise!r}."
        )
    missing = method.needs_for(system) - chosen.offers
    if missing:
        hint = " Write noise=da.Gaussian(areas=8), or leave noise out." if "area" in missing else ""
        raise ValueError(
            f"{method.name} needs the increments {sorted(missing)}, which "
            f"{type(chosen).__name__} noise does not offer.{hint}"
        )
    chosen.check(dt=dt, steps=steps, paths=paths, noises=system.noises)
    return chosen
