"""Errors at several step sizes against the right limit: what an order is measured from."""

from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite, lcm
from typing import Any, NamedTuple

import jax
import numpy as np

from dalembert.ensemble.progress import tell
from dalembert.methods import Method
from dalembert.system import System
from dalembert.theory.enumeration import (
    Outcomes,
    affordable,
    enumerate_expectations,
    extrapolate,
    gaussian_nodes,
    observe_all,
)
from dalembert.theory.generator import expectation_series
from dalembert.theory.paths import Ends, run_coupled
from dalembert.theory.references import extrapolated_reference
from dalembert.theory.slopes import BENT, FAILED, MIN_POINTS, SIGN, Measured, rounded_up

Observables = Mapping[str, Callable[..., Any]]

REFERENCE, ROUNDING = "the error of the reference", "rounding"
STANDARD_ERROR = "its standard error"
"""Reasons why an error is not seen."""
ABOVE_REFERENCE = 3.0
"""An error counts where it is this many times the error of the reference. At that limit, an error
of the reference that is independent of the method's adds 5 % to it."""
FAR_ABOVE_REFERENCE = 30.0
"""The same for errors without sampling: the powers that are fitted to them magnify what the
reference adds."""
ABOVE_SAMPLING = 4.0
"""And this many standard errors away from zero."""
EXTRAPOLATED_STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
LEAST_STEPS, MOST_STEPS = 4, 7
"""How many numbers of steps are extrapolated from, the largest; more would magnify rounding."""


class OrderTask(NamedTuple):
    """What is run: a method on a system from one state to `t_end`, in several numbers of steps."""

    system: System
    method: Method
    initial: tuple[Any, Any]
    t_end: float
    counts: tuple[int, ...]

    @property
    def dts(self) -> np.ndarray:
        return self.t_end / np.array(self.counts)

    def floors(self, doubt: Any, size: Any, above: float) -> dict[str, np.ndarray]:
        """What an error must exceed: some times the reference's, and one rounding a step."""
        steps = np.array(self.counts)
        return {
            REFERENCE: above * np.broadcast_to(doubt, steps.shape),
            ROUNDING: above * np.finfo(np.float64).eps * steps * size,
        }

    def remedies_on_paths(self, sampling: "Sampling") -> dict[str, str]:
        """What to change where points were dropped on common paths."""
        finer = f"smaller steps, steps={tuple(4 * n for n in self.counts)}"
        return {
            REFERENCE: f"a finer reference, refine={4 * sampling.refine}",
            ROUNDING: "larger steps, or an observable with an error that can be seen",
            FAILED: finer,
            SIGN: finer,
            BENT: finer,
        }


class Sampling(NamedTuple):
    """The Brownian paths, and the reference on them: None if there is an exact solution."""

    paths: int
    seed: int
    reference: Any
    refine: int


def strong_errors(
    task: OrderTask, sampling: Sampling, exact: Callable[..., tuple[Any, Any]] | None
) -> Measured:
    """Root-mean-square errors of (q, p) at `t_end` over Brownian paths that all runs share."""
    ends, checks, W, words = _run(task, sampling)
    if exact is not None:
        checks = [_exact_ends(exact, task, W)]
    rough, best = checks[0], checks[-1]
    # Paths that blew up are reported, not warned of.
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.stack([np.sum((end.z - best.z) ** 2, axis=1) for end in ends])
        doubt = np.sqrt(np.mean(np.sum((rough.z - best.z) ** 2, axis=1)))
        return Measured(
            dts=task.dts,
            errors=np.sqrt(np.mean(squares, axis=1)),
            influence=_relative(squares) / 2,
            floors=task.floors(doubt, np.max(np.abs(best.z)), ABOVE_REFERENCE),
            failed=[_failures(end, best) for end in ends],
            reference=words or "the exact solution",
            remedies=task.remedies_on_paths(sampling),
        )


def coupled_errors(
    task: OrderTask, sampling: Sampling, observables: Observables, exact: Mapping[str, float] | None
) -> dict[str, Measured]:
    """Errors of expectations over Brownian paths that all runs share."""
    ends, checks, _, words = _run(task, sampling)
    found = {}
    for name, phi in observables.items():
        # Paths that blew up are reported, not warned of.
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.stack([observe_all(task.system, phi, end.z) for end in ends])
            checked = [observe_all(task.system, phi, end.z) for end in checks]
            rough, limit = checked if exact is None else [np.float64(exact[name])] * 2
            differences = values - limit
            stderrs = np.std(differences, axis=1, ddof=1) / np.sqrt(sampling.paths)
            doubt = abs(np.mean(rough - limit))
            found[name] = Measured(
                dts=task.dts,
                errors=np.mean(differences, axis=1),
                influence=_relative(differences),
                # First: what noise hides, a finer reference does not show.
                floors={STANDARD_ERROR: ABOVE_SAMPLING * stderrs}
                | task.floors(doubt, np.max(np.abs(limit)), ABOVE_REFERENCE),
                failed=[_failures(end, checks[-1] if checks else end) for end in ends],
                reference=words if exact is None else _value(exact[name]),
                remedies=task.remedies_on_paths(sampling)
                | {STANDARD_ERROR: _more_paths(sampling, np.mean(differences, axis=1), stderrs)},
            )
    return found


def enumerated_errors(
    task: OrderTask,
    observables: Observables,
    exact: Mapping[str, float] | None,
    reference: Any,
    outcomes: Outcomes,
    local: bool,
) -> dict[str, Measured]:
    """Errors of expectations over all outcomes of a method's increments; nothing is sampled."""
    # The finest first: more outcomes than can be enumerated are refused before anything is run.
    results = [
        enumerate_expectations(
            task.system, task.method, observables, task.initial, dt, 1 if local else n, outcomes
        )
        for n, dt in zip(task.counts[::-1], task.dts[::-1], strict=True)
    ][::-1]
    values = {name: np.array([found[name] for found, _ in results]) for name in observables}
    if exact is not None:
        limits = {name: Limit(value, 0.0, _value(value)) for name, value in exact.items()}
    elif reference is not None:
        limits = _extrapolated(task, observables, reference, outcomes)
    elif local:
        limits = _series(task, observables, local)
    else:
        limits = _surest(task, observables, values)
    return {
        name: Measured(
            dts=task.dts,
            errors=values[name] - limit.values,
            influence=np.zeros((len(results), 0)),
            floors=task.floors(limit.doubts, np.max(np.abs(limit.values)), FAR_ABOVE_REFERENCE),
            failed=["" if solved else "a step did not converge" for _, solved in results],
            reference=limit.words,
            remedies=dict.fromkeys((REFERENCE, FAILED, SIGN, BENT), "a smaller t_end")
            | {ROUNDING: "a larger t_end, or an observable with an error that can be seen"},
        )
        for name, limit in limits.items()
    }


class Limit(NamedTuple):
    """What expectations converge to, at each step size or at all of them, and how sure it is."""

    values: Any
    doubts: Any
    words: str


def _surest(
    task: OrderTask, observables: Observables, values: Mapping[str, np.ndarray]
) -> dict[str, Limit]:
    """The generator series at short times; where it is too rough, another method extrapolated."""
    try:
        series = _series(task, observables, local=False)
    except (ValueError, NotImplementedError) as error:
        series, unknown = {}, error
    else:
        unknown = None
    far = FAR_ABOVE_REFERENCE
    if series and all(
        np.all(np.abs(values[name] - limit.values) > far * limit.doubts)
        for name, limit in series.items()
    ):
        return series
    nodes = partial(gaussian_nodes, nodes=3)
    if unknown and len(affordable(EXTRAPOLATED_STEPS, nodes, task.system.noises)) < LEAST_STEPS:
        raise unknown
    other = _extrapolated(task, observables, extrapolated_reference(task.method), nodes)
    return {
        name: min(other[name], series.get(name, other[name]), key=lambda x: np.max(x.doubts))
        for name in observables
    }


def _extrapolated(
    task: OrderTask, observables: Observables, reference: Any, outcomes: Outcomes
) -> dict[str, Limit]:
    """The limits of another method, from few steps to infinitely many."""
    steps = affordable(EXTRAPOLATED_STEPS, outcomes, task.system.noises)[-MOST_STEPS:]
    dts = [task.t_end / n for n in steps]
    found = [
        enumerate_expectations(task.system, reference, observables, task.initial, dt, n, outcomes)
        for n, dt in zip(steps, dts, strict=True)
    ]
    solved = all(ok for _, ok in found)
    who = "itself" if reference == task.method else reference.name
    words = f"{who} extrapolated from up to {steps[-1]} steps to dt = 0"
    limits = {}
    for name in observables:
        value, doubt = extrapolate(dts, [values[name] for values, _ in found])
        limits[name] = Limit(value, doubt if solved else np.inf, words)
    return limits


def _series(task: OrderTask, observables: Observables, local: bool) -> dict[str, Limit]:
    """The expectations of the system itself after the time of one step, or at `t_end`."""
    limits = {}
    tell("the series of the generator")
    for name, series in expectation_series(task.system, observables, task.initial).items():
        times = task.dts if local else [task.t_end] * len(task.counts)
        values, doubts = np.array([series.at(t) for t in times]).T
        words = f"{len(series.powers) - 1} terms of the generator series"
        limits[name] = Limit(values, doubts, words)
    return limits


def _run(task: OrderTask, sampling: Sampling) -> tuple[list[Ends], list[Ends], np.ndarray, str]:
    """The method at all step sizes, the reference at two, W at the end, the reference in words."""
    reference, fine = sampling.reference, lcm(*task.counts)
    runs, words = [(task.method, n) for n in task.counts], ""
    if reference is not None:
        fine *= sampling.refine
        runs += [(reference, fine // 2), (reference, fine)]
        dt = task.t_end / fine
        words = f"{reference.name} at dt = {dt:.3g} on the same paths"
        if reference == task.method:
            words = f"itself at dt = {dt:.3g}: it may converge to a wrong limit"
    ends, W = run_coupled(
        task.system, runs, task.initial, task.t_end, fine, sampling.paths, sampling.seed
    )
    return ends[: len(task.counts)], ends[len(task.counts) :], W, words


def _exact_ends(exact: Callable[..., tuple[Any, Any]], task: OrderTask, W: np.ndarray) -> Ends:
    with jax.enable_x64(True):
        q, p = jax.vmap(lambda w: exact(task.t_end, w, *task.initial))(W)
        z = np.concatenate([np.asarray(x).reshape(len(W), -1) for x in (q, p)], axis=1)
    if z.shape[1] != 2 * task.system.dim:
        raise ValueError(
            f"exact gives {z.shape[1]} numbers, and (q, p) has {2 * task.system.dim}: "
            "write exact(t, W, q0, p0) -> (q, p) for one path, with W of shape (noises,)."
        )
    return Ends(z, np.asarray(np.isfinite(z).all(axis=1)))


def _more_paths(sampling: Sampling, errors: np.ndarray, stderrs: np.ndarray) -> str:
    """The number of paths with which three step sizes would be seen, if their errors are such."""
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.sort((ABOVE_SAMPLING * stderrs / np.abs(errors)) ** 2)
    factor = float(factors[min(MIN_POINTS, len(factors)) - 1])
    if not isfinite(factor):
        return "an observable with an error that can be seen"
    return f"more paths, paths={rounded_up(2 * max(1.0, factor) * sampling.paths):_} or so"


def _relative(samples: np.ndarray) -> np.ndarray:
    """Each sample's share of the mean of its row, minus one; zero where the mean is."""
    mean = np.mean(samples, axis=1, keepdims=True)
    return np.where(mean == 0, samples, samples / np.where(mean == 0, 1.0, mean) - 1)


def _failures(end: Ends, best: Ends) -> str:
    for whose, ok in (("the reference", best.ok), ("it", end.ok)):
        if not ok.all():
            return f"{whose} did not converge on {np.sum(~ok)} of {len(ok)} paths"
    return ""


def _value(value: float) -> str:
    return f"the exact value {value:.10g}"
