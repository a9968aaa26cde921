"""A run made ready: its functions are traced, its engine is chosen, its steps are compiled."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from dalembert.captured import captured
from dalembert.digest import traced_key
from dalembert.ensemble.blocks import Work
from dalembert.ensemble.engine import Steps
from dalembert.ensemble.engines import Choice, choose_engine, find_engines
from dalembert.ensemble.identity import Description, describe_settings, run_arguments
from dalembert.ensemble.initial import InitialStates, initial_states
from dalembert.ensemble.kernel import Kernel
from dalembert.ensemble.legs import Compiled, compile_run
from dalembert.ensemble.memory import bytes_of_ends, check_memory
from dalembert.ensemble.places import Place, find_places
from dalembert.ensemble.pool import worker_count
from dalembert.ensemble.settings import Settings
from dalembert.statistics.observing import Observing
from dalembert.stepping.derived import make_any_stepper
from dalembert.stepping.propagator import Maps, make_maps
from dalembert.stepping.residuals import Report

SMALL_ENDS = 2**26
"""Bytes up to which the ends of all blocks are kept in a checkpoint without being asked for."""


@dataclass(frozen=True)
class Ready:
    """A run that is ready to begin on this machine.

    Attributes:
        work: what its threads share.
        description: what decides its numbers.
        identity: the same and the code that takes its steps, as plain data.
        refused: faster engines of its device that could not take its steps, and why.
        workers: blocks to run at a time.
        exactly: whether the identity has derivatives that functions define.
    """

    work: Work
    description: Description
    identity: dict[str, Any]
    refused: Any
    workers: int
    exactly: bool


def make_ready(
    settings: Settings,
    exactly: bool = False,
    workers: int | None = None,
    engine: Any = None,
    shard: bool = False,
    ends: bool | None = False,
) -> Ready:
    """Prepare a run on this machine; `exactly` if it has to be compared with others.

    With `ends` its blocks can go on to a later time; None: if that does not take much.
    """
    observing = Observing.checked(settings.system, settings.dtype, settings.statistics)
    with jax.enable_x64(settings.dtype == np.float64):
        starts = starts_of(settings)
        description = describe_settings(settings, exactly)
        kernel = _make_kernel(settings, description, observing)
        places = find_places(settings.system, settings.backend, shard)
        workers = worker_count(places, workers)
        ends = _check_room(settings, observing, workers, ends)
        if shard and kernel.stepper.is_scalar:
            raise ValueError(
                f"shard=True: a state of {settings.system.dim} numbers is not worth spreading. "
                "Leave it out: paths are shared among devices instead."
            )
        maps, report = maps_of(settings, kernel)
        steps = _steps(settings, kernel, maps, places)
        choice = choose_engine(steps, find_engines(engine))
        compiled = _compile(settings, kernel, choice, steps)
    layout = {"shards": len(places[0].devices)} if shard else {}
    code = {"code": choice.name, "by_maps": maps is not None} | layout
    work = Work(settings, kernel, compiled, starts, maps, report, exactly, places, ends=ends)
    return Ready(work, description, description.record | code, choice.refused, workers, exactly)


def ready_again(before: Ready, settings: Settings, engine: Any = None) -> Ready:
    """A run that differs in numbers alone, of paths, steps and the seed: nothing is traced again.

    Its functions are what they were, and its blocks are as large.
    """
    old, description = before.work, before.description.of(settings)
    kernel, known = old.kernel, old.settings
    with jax.enable_x64(settings.dtype == np.float64):
        maps, report = maps_of(settings, kernel)
        starts = starts_of(settings)
        is_same_form = jax.tree.structure(maps) == jax.tree.structure(old.maps)
        is_alike = settings.noise == known.noise and is_same_form
        compiled, warm, refused, code = old.compiled, old.warm, before.refused, {}
        if not is_alike:
            steps = _steps(settings, kernel, maps, old.places)
            choice = choose_engine(steps, find_engines(engine))
            compiled = _compile(settings, kernel, choice, steps)
            warm, refused = set(), choice.refused
            code = {"code": choice.name, "by_maps": maps is not None}
    work = Work(
        settings, kernel, compiled, starts, maps, report, old.remember, old.places,
        ends=old.ends, warm=warm,
    )  # fmt: skip
    identity = before.identity | description.record | code
    return replace(before, work=work, identity=identity, refused=refused)


def _check_room(settings: Settings, observing: Observing, workers: int, ends: bool | None) -> bool:
    """Refuse a run that does not fit into memory; whether the ends of its blocks are kept."""
    check_memory(settings, {}, workers)
    observing.check(settings.times)
    shapes = observing.shapes(settings.block_paths)
    size = bytes_of_ends(settings, shapes)
    ends = size <= SMALL_ENDS if ends is None else ends
    check_memory(settings, shapes, workers, size if ends else 0)
    return ends


def starts_of(settings: Settings) -> InitialStates:
    """Where the paths of a run start; what a sampler is known by is traced in the run's type."""
    of = settings
    with jax.enable_x64(of.dtype == np.float64):
        return initial_states(of.system, of.initial, of.paths, of.seed, of.dtype)


def maps_of(settings: Settings, kernel: Kernel) -> tuple[Maps | None, Report]:
    """The maps that steps are if they are that, and a report on them."""
    found = make_maps(kernel.stepper, settings.noise, settings.dt, settings.system.params)
    return found or (None, Report(0, 0.0))


def _compile(settings: Settings, kernel: Kernel, choice: Choice, steps: Steps) -> Compiled:
    """All code of a run; of one that is looked at once, what its engine has for that, too."""
    at_end = choice.means_at_end(kernel, steps) if settings.at_end else None
    return compile_run(kernel, choice.on_block, at_end, (choice.name, steps.maps is not None))


def _make_kernel(settings: Settings, description: Description, observing: Observing) -> Kernel:
    stepper: Any = make_any_stepper(
        settings.system, settings.method, settings.dtype, known_by=description.functions
    )
    like = run_arguments(settings.system, settings.dtype)
    reads = [captured(fun, partial(traced_key, fun, *like)) for *_, fun in settings.functions]
    return Kernel(
        stepper,
        observing,
        frozenset(settings.method.needs_for(settings.system)),
        settings.keep == "all",
        (description.observed, *reads),
    )


def _steps(
    settings: Settings, kernel: Kernel, maps: Maps | None, places: tuple[Place, ...]
) -> Steps:
    return Steps(
        kernel.stepper,
        settings.noise,
        settings.system.params,
        maps,
        kernel.needs,
        settings.block_paths,
        settings.backend,
        places[0].is_spread,
    )
