"""A block of paths, leg by leg, from where it is to its end."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from dalembert.ensemble.blame import Leg, SearchStopped, failed_at, failed_leg, picked
from dalembert.ensemble.initial import InitialStates, number_words
from dalembert.ensemble.kernel import Kernel, Saves, told_to_all
from dalembert.ensemble.legs import Compiled, observe, run_leg
from dalembert.ensemble.march import Block, PathState, Status, lost
from dalembert.ensemble.places import Place, to_host
from dalembert.ensemble.retake import retaken
from dalembert.ensemble.settings import Settings
from dalembert.ensemble.tally import Tally, tally_of_block
from dalembert.precision import is_traced
from dalembert.statistics.observing import on_host
from dalembert.stepping.project import BadStartError
from dalembert.stepping.propagator import Maps
from dalembert.stepping.residuals import Report

LEG_SECONDS = 1.0
"""About how long a leg should take: how soon a run can stop, and how often it can be saved."""

FIRST_LEG = 2**21
"""Path-steps of the first leg times degrees of freedom, before the speed is known."""


class BlockResult(NamedTuple):
    """What a finished block leaves: its statistics, and the states that were asked for.

    Attributes:
        end: the block as it was where a run to a later time can go on, if that was asked for.
    """

    tally: Tally
    kept: tuple[np.ndarray, np.ndarray] | None
    end: "Pending | None" = None


class Pending(NamedTuple):
    """A block that is not finished: its next unit, its paths, what is remembered of them, and its
    saves so far."""

    unit: int
    state: PathState
    memory: Any
    saves: Saves | None


@dataclass
class Work:
    """All that the threads of a run share."""

    settings: Settings
    kernel: Kernel
    compiled: Compiled
    starts: InitialStates
    maps: Maps | None
    report: Report
    remember: bool
    places: tuple[Place, ...]
    on_leg: Callable[[int], None] = lambda path_steps: None
    stop: threading.Event = field(default_factory=threading.Event)
    pending: dict[int, Pending] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    failed: dict[int, int] = field(default_factory=dict)
    warm: set[Any] = field(default_factory=set)
    rate: float | None = None
    ends: bool = False
    compiling: threading.Lock = field(default_factory=threading.Lock)
    compile_seconds: float = 0.0
    agree: Callable[[int, bool], tuple[int, bool]] = lambda units, stop: (units, stop)
    """What all that compute a block make of how many units the next leg is to have, and whether
    to stop."""
    goes_far: bool = False
    """Whether a block beyond what a longer run shares is not stopped: what it does there is not
    remembered, and it would do it again and again."""

    @cached_property
    def shared(self) -> Block:
        """What the paths of all blocks share."""
        return told_to_all(self.settings, self.maps)

    def snapshot(self) -> dict[int, Pending]:
        """The unfinished blocks as they were after their last legs."""
        with self.lock:
            return dict(self.pending)

    def forget(self, block: int) -> None:
        """Drop what is kept of a block, because it has been merged."""
        with self.lock:
            self.pending.pop(block, None)
            self.failed.pop(block, None)

    def failed_since(self, block: int) -> int:
        """Paths that have failed so far in the blocks from this one on."""
        with self.lock:
            return sum(count for number, count in self.failed.items() if number >= block)


def is_short(work: Work, workers: int) -> bool:
    """Whether blocks run in the thread that asks for them: one at a time, short and compiled.

    Inside someone's jit only another thread computes with numbers.
    """
    settings = work.settings
    size = settings.block_paths * settings.system.dim
    is_one = settings.blocks == 1 or (workers == 1 and len(work.places) == 1)
    is_small = is_one and size * settings.steps <= FIRST_LEG
    at_once = work.compiled.at_end is not None
    is_warm = at_once or (work.places[0], settings.block_paths) in work.warm
    return is_small and is_warm and not is_traced(lax.neg(np.float32(0)))


def run_block(work: Work, number: int, place: Place) -> BlockResult | None:
    """One block from where it is to its end, or None if it was stopped on the way."""
    try:
        return _to_its_end(work, number, place)
    except SearchStopped:
        return None  # It goes on before what has raised.


def _to_its_end(work: Work, number: int, place: Place) -> BlockResult | None:
    settings, kernel = work.settings, work.kernel
    schedule, compiled = settings.schedule, work.compiled
    with jax.enable_x64(settings.dtype == np.float64), jax.default_device(place.first):
        if (result := _at_once(work, number)) is not None:
            return result
        block = place.put(_block(work, number))
        pending = work.pending.get(number)
        if pending is None:
            with jax.default_device(place.nursery):
                state = kernel.start(*_starts(work, number), work.report)
                pending = Pending(0, state, kernel.remember(settings.block_paths), None)
        state, memory = place.put((pending.state, pending.memory))
        unit = pending.unit
        saves = [] if pending.saves is None else [pending.saves]
        shared = schedule.shared_units if work.ends else 0
        last = pending if work.ends and unit == shared else None
        _warm_up(work, compiled, state, memory, block, place)
        while unit < schedule.units:
            wanted, is_stopped = work.agree(_wanted_units(work), work.stop.is_set())
            if is_stopped and not (work.goes_far and unit > shared):
                return None
            started = time.perf_counter()
            end = schedule.end_of_leg(unit, wanted)
            end = min(end, shared) if unit < shared else end
            group = min(settings.grain.safe_paths, settings.block_paths)
            try:
                done = run_leg(compiled, state, memory, block, schedule, unit, end)
                after, stop = done.state, done.unit
                if done.hard is not None:
                    steps = range(schedule.steps_before(stop - 1), schedule.steps_before(stop))
                    after = retaken(compiled, after, done.hard, block, steps, group)
            except Exception as error:
                units, numbers = range(unit, end), settings.numbers(number)
                leg = Leg(compiled, schedule, block, state, memory, units, group, numbers)
                raise failed_leg(error, leg, settings.dt, place.is_spread, work.stop) from error
            state, memory, end = after, done.memory, stop
            made = schedule.saves_before(end) - schedule.saves_before(unit)
            if done.saves is not None:
                saves.append(_first_rows(done.saves, made))
            _note(work, number, unit, end, time.perf_counter() - started, state)
            unit = end
            if work.remember:
                saves = [_joined(saves)] if saves else []
                now = jax.tree.map(to_host, Pending(unit, state, memory, None))
                now = now._replace(unit=unit, saves=saves[0] if saves else None)
                last = now if unit == shared else last
                # Not beyond the end that a longer run shares: a block that waits is to keep it.
                if not work.ends or unit <= shared:
                    with work.lock:
                        work.pending[number] = now
        try:
            ends = jax.block_until_ready(compiled.finish(state, memory, block))
        except Exception as error:

            def again(places: np.ndarray) -> Any:
                return compiled.finish(*picked(block, state, memory, places))

            when, numbers = f"at t = {settings.t_end:g}", padded_numbers(settings, number)
            raise failed_at(error, numbers, again, when, work.stop) from error
        return _result(work, number, state, _joined(saves), ends)._replace(end=last)


def _at_once(work: Work, number: int) -> BlockResult | None:
    """A short block from its start to its end, where nothing is asked for on the way.

    None if that cannot be, or if a path needs more.
    """
    settings, at_end, steps = work.settings, work.compiled.at_end, work.settings.steps
    is_new = number not in work.pending and not (work.remember or work.ends)
    if at_end is None or not is_new or not settings.is_one_stretch or work.stop.is_set():
        return None
    starts = work.starts.common or _starts(work, number)
    ends = ends_of_block(at_end, settings, starts, work.shared, number)
    if ends is None:
        return None
    work.on_leg(settings.size(number) * steps)
    data = {key: on_host(rows) for key, rows in ends.data.items()}
    known = work.report
    tally = Tally(
        data,
        truncated=ends.truncated,
        residual=max(ends.residual, float(known.residual)),
        iterations=max(ends.iterations, int(known.iterations)),
    )
    return BlockResult(tally, None)


def ends_of_block(
    at_end: Any, settings: Settings, starts: tuple[Any, Any], shared: Block, number: int
) -> Any:
    """What vector code finds at the end of a block that it takes there at once (`BlockEnds`)."""
    first, real = number * settings.block_paths, settings.size(number)
    return at_end.run(shared, *starts, first, real, settings.steps)


def _starts(work: Work, number: int) -> tuple[Any, Any]:
    numbers = padded_numbers(work.settings, number)
    try:
        return work.starts(numbers)
    except BadStartError:
        raise
    except Exception as error:

        def again(places: np.ndarray) -> Any:
            return work.starts(numbers[places])

        raise failed_at(error, numbers, again, "at its start", work.stop) from error


def _warm_up(
    work: Work, compiled: Compiled, state: Any, memory: Any, block: Any, place: Place
) -> None:
    """Compile once per place, by no steps and one look, while the other blocks wait."""
    what = place, work.settings.block_paths
    with work.compiling:
        if what not in work.warm:
            began = time.perf_counter()
            room = work.settings.schedule.saves_per_leg
            leaves, tree = jax.tree.flatten((state, memory, block))
            types = place, room, tuple(map(jax.typeof, leaves)), tree
            # Of large states to take no step, and to look once, is as long as some steps are.
            if types not in compiled.known:
                # What a function raises here it raises in a leg, if that is to see these states.
                with suppress(jax.errors.JaxRuntimeError):
                    compiled.on_block(block)(state, 0, 0)
                    jax.block_until_ready(observe(compiled, [state], memory, block, [0], room))
                    jax.block_until_ready(compiled.finish(state, memory, block))
                compiled.known.add(types)
            work.warm.add(what)
            work.compile_seconds += time.perf_counter() - began


def _wanted_units(work: Work) -> int:
    if work.rate is not None:
        return int(LEG_SECONDS * work.rate)
    settings = work.settings
    return FIRST_LEG // (settings.block_paths * settings.system.dim * settings.schedule.per_stretch)


def _note(work: Work, number: int, unit: int, end: int, seconds: float, state: PathState) -> None:
    """What a leg from one unit to another took, and what has become of its paths."""
    schedule, paths = work.settings.schedule, work.settings.size(number)
    work.rate = (end - unit) / max(seconds, 1e-6)
    with work.lock:
        work.failed[number] = int(np.sum(to_host(state.status)[:paths] != Status.FINE))
    work.on_leg(paths * (schedule.steps_before(end) - schedule.steps_before(unit)))


def padded_numbers(settings: Settings, number: int) -> np.ndarray:
    """Path numbers; places beyond the last path repeat it, so that they cannot fail alone."""
    numbers = settings.numbers(number)
    if len(numbers) == settings.block_paths:
        return numbers
    return np.pad(numbers, (0, settings.block_paths - len(numbers)), mode="edge")


def _block(work: Work, number: int) -> Block:
    settings = work.settings
    return work.shared._replace(
        path=number_words(padded_numbers(settings, number)),
        is_real=np.arange(settings.block_paths) < settings.size(number),
    )


def _result(
    work: Work, number: int, state: PathState, saves: Saves, ends: Mapping[str, Any]
) -> BlockResult:
    numbers = work.settings.numbers(number)
    ends, reports = jax.tree.map(to_host, (ends, state[2:]))
    state = PathState(state.q, state.p, *reports)
    data = {key: on_host({**rows, **ends[key]}) for key, rows in saves.rows.items()}
    tally = tally_of_block(data, state, numbers)
    kept = saves.kept
    if work.settings.keep == "final":
        kept = jax.tree.map(to_host, work.kernel.leave(state))
    if kept is None:
        return BlockResult(tally, None)
    # What a path did after it had failed is not to be taken for a result.
    steps = work.settings.schedule.save_steps
    is_lost = lost(state, steps[-1] if work.settings.keep == "final" else steps)
    if np.any(is_lost):
        kept = tuple(np.where(is_lost[..., None], np.nan, x) for x in kept)
    q, p = (x[..., : len(numbers), :] for x in kept)
    return BlockResult(tally, (q, p))


def _first_rows(saves: Saves, made: int) -> Saves:
    # Copies: a view would hold the memory of all rows.
    return jax.tree.map(lambda x: x[:made].copy(), saves)


def _joined(parts: list[Saves]) -> Saves:
    """Saves of consecutive legs as one."""
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *xs: np.concatenate(xs), *parts)


def pending_to_record(pending: Pending) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Plain data and arrays of an unfinished block."""
    leaves = jax.tree.leaves(pending[1:])
    header = {"unit": pending.unit, "saved": pending.saves is not None}
    return header, {f"leaf/{i}": np.asarray(x) for i, x in enumerate(leaves)}


def pending_from_record(
    work: Work, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Pending:
    """The unfinished block of a record; its structure is that of the kernel's results.

    KeyError or TypeError if it is none of this run.
    """
    settings, unit = work.settings, int(header["unit"])
    with jax.enable_x64(settings.dtype == np.float64):
        zeros = np.zeros((settings.block_paths, settings.system.dim), settings.dtype)
        state = work.kernel.start(zeros, zeros, work.report)
        made = settings.schedule.saves_before(unit)
        memory = work.kernel.remember(settings.block_paths)
        room = jax.eval_shape(lambda: work.kernel.empty_saves(state, memory, _block(work, 0), made))
        like = (state, memory, room if header.get("saved", True) else None)
    expected = jax.tree.leaves(like)
    leaves = [arrays[f"leaf/{i}"] for i in range(len(expected))]
    if [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in expected]:
        raise TypeError("an unfinished block has other arrays than this run")
    return Pending(unit, *jax.tree.unflatten(jax.tree.structure(like), leaves))
