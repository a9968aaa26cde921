"""Expectations to a tolerance: what is asked for, checked, and answered."""

import os
import warnings
from collections.abc import Callable, Hashable, Mapping
from math import prod
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from dalembert.answers.coarsest import coarsest
from dalembert.answers.known import types_of
from dalembert.answers.orders import (
    Exponents,
    doubts_about_limit,
    expected_exponents,
    measured_exponents,
)
from dalembert.answers.result import Expectation, ToleranceError
from dalembert.answers.sampling import Sampler
from dalembert.answers.schemes import LEAST_HALVINGS, SCHEMES
from dalembert.answers.search import PATIENCE, Goal, Search
from dalembert.answers.tails import HEAVY, StoppedError
from dalembert.caches import kept
from dalembert.captured import Keyed, captured
from dalembert.ensemble.settings import _number, check_choice, whole
from dalembert.functions import check_function
from dalembert.methods import Method
from dalembert.precision import check_confidence, refuse_traced
from dalembert.spelling import says_its_words
from dalembert.statistics import Mean, TimeAverage
from dalembert.stepping.step import check_method
from dalembert.system import System

__all__ = ["expect"]

COUPLED = frozenset({"dW", "dZ"})
"""Increments whose sums over two steps are those of the step that both make."""

BUDGET = 1e12
"""Path-steps that may be taken if nothing is said."""

NO_DECAY, SLOW = 0.25, 1.0
"""Exponents of variances up to which they are said not to decay, or to decay slowly."""

Observable = Callable[..., Any] | Mean


@says_its_words
def expect(
    system: System,
    method: Method,
    initial: Any,
    observable: Observable | Mapping[str, Observable],
    *,
    t_end: float,
    tolerance: float,
    relative: bool = False,
    confidence: float = 0.95,
    estimator: str | None = None,
    dt: float | None = None,
    halvings: int = LEAST_HALVINGS,
    every: float | None = None,
    budget: float | None = None,
    seed: int = 0,
    on_failure: str = "raise",
    checkpoint: Any = None,
    progress: bool = True,
    workers: int | None = None,
    engine: Any = None,
    executor: Any = None,
) -> Expectation:
    """The expectation of an observable at `t_end`, to a tolerance, with as few steps as it takes.

    Multilevel Monte Carlo: many paths with large steps, and few pairs of paths, on one Brownian
    path each, whose differences correct the step size. Step sizes are halved until what the last
    differences leave is small, and paths are added where they reduce the error most for their
    steps. Numbers of paths follow from variances and counted steps, not from a clock, so that the
    result is a pure function of the arguments and the kind of device, to the last bit.

    Args:
        system: what to simulate.
        method: e.g. `da.midpoint()`.
        initial: `(q0, p0)`, each of the shape of the system, or a function `sampler(key)`.
        observable: a function of (q, p), or (q, p, params) if the system has params, at `t_end`,
            with t after q and p if it is driven in time;
            `da.TimeAverage` of one, for averages along paths; or several by name.
        t_end: final time.
        tolerance: largest half width of the interval: bias, and as many standard errors as the
            confidence stands for. It holds for every observable and every entry of it.
        relative: whether it is a share of the value.
        confidence: probability with which the interval is to hold the expectation.
        estimator: "multilevel", the default for methods driven by ΔW; "plain", paths at one step
            size, the default for weak methods; or "richardson", which extrapolates from two step
            sizes. Weak methods are driven by Gaussian variables in multilevel ones.
        dt: the largest step; by default the largest of t_end/4, t_end/8, … from which on levels
            pay.
        halvings: how often the largest step is halved at least.
        every: time between the saves over which `da.TimeAverage` is taken; by default `dt`.
        budget: path-steps that may be taken, 1e12 if it is not given. For an event that does not
            come up they are all taken, but no more than 2.7e8 if it is not given.
        seed: the result is a pure function of it (and of everything else here).
        on_failure: "raise" or "warn" if the tolerance cannot be met.
        checkpoint: a folder in which every run saves itself, and from which the same call goes on.
        progress: show progress of longer runs in a terminal or a notebook, and once a minute in
            files and pipes.
        workers, engine, executor: as in `da.simulate`.

    Returns:
        An `Expectation`: `.value`, `.stderr`, `.bias`, `.error`, `.interval`, `.levels`, ….

    Raises:
        ToleranceError: if the tolerance cannot be met, with the reason, and `.result` so far.
    """
    check_method(system, method)
    numbers = {"t_end": t_end, "tolerance": tolerance, "dt": dt, "every": every, "seed": seed}
    refuse_traced("da.expect", params=system.params, initial=initial, **numbers)
    check_choice("on_failure", on_failure, ("raise", "warn"))
    t_end, tolerance = _number("t_end", t_end), _number("tolerance", tolerance)
    most = BUDGET if budget is None else _number("budget", budget)
    dt = None if dt is None else _number("dt", dt)
    every = None if every is None else _number("every", every)
    if not isinstance(relative, bool | np.bool_):
        hint = ""
        if isinstance(relative, int | float):
            hint = f" For a share of the value write tolerance={relative!r}, relative=True."
        raise TypeError(f"relative must be True or False, not {relative!r}.{hint}")
    check_confidence(confidence)
    named, shapes = _observables(system, observable)
    if dt is None and every is None and any(isinstance(x, TimeAverage) for x in named.values()):
        raise ValueError(
            "a time average needs every=, the time between the saves it is taken over."
        )
    _check_initial(system, initial)
    estimator, is_coupled = _estimator(system, method, estimator)
    saves = 1 if every is None else _whole_number("every", every, t_end)
    steps = None if dt is None else _whole_number("dt", dt, t_end)
    if steps is not None and steps % saves:
        raise ValueError(f"every = {every:g} is not a whole number of steps of dt = {dt:g}.")
    sampler = Sampler(
        system,
        method,
        initial,
        named,
        t_end,
        t_end / (saves if steps is None or every is not None else steps),
        whole("seed", seed, 0),
        None if checkpoint is None else Path(os.fspath(checkpoint)),
        sum(prod(shape) for _, shape in shapes),
        {"progress": progress, "workers": workers, "engine": engine, "executor": executor},
    )
    halvings = whole("halvings", halvings, LEAST_HALVINGS)
    alpha, beta = expected_exponents(system, method)
    doubts = doubts_about_limit(system, method)
    if estimator == "richardson" and alpha is None:
        raise ValueError(
            f"the weak order of {method.name} on {system.name!r} is not known, and Richardson's "
            'extrapolation needs it: take estimator="plain".'
        )
    quantile = NormalDist().inv_cdf((1 + confidence) / 2)
    patience = PATIENCE if budget is None else most
    goal = Goal(tolerance, relative, quantile, most, patience)
    search = Search(sampler, goal, SCHEMES[estimator], is_coupled, alpha or 1.0)
    reason = None
    try:
        search.run(steps or coarsest(search, saves), halvings)
    except StoppedError as error:
        reason = f"{error}."
    if search.last is None:
        raise ToleranceError(f"the tolerance cannot be met: {reason}")
    exponents = measured_exponents(search.levels.values())
    found = search.estimate(search.last)
    result = Expectation(
        title=f"E[φ({t_end:g})] of {system.name} with {method.name}, seed {seed}",
        shapes=shapes,
        found=found,
        exponents=exponents,
        tolerance=goal.tolerance,
        relative=relative,
        confidence=confidence,
        quantile=quantile,
        is_met=reason is None,
        levels=tuple(search.levels[row] for row in sorted(search.last.rows)),
        expected_alpha=alpha,
        expected_beta=beta,
        steps=search.steps,
        seconds=sum(level.seconds for level in search.levels.values()),
        plain_steps=search.plain_steps(search.last),
        estimator=estimator,
        notes=(
            *([f"stopped: {reason}"] if reason else ()),
            *doubts,
            *_rough(search),
            *_notes(search, exponents, beta),
        ),
    )
    if reason is not None:
        message = (
            f"the tolerance {tolerance:g} was not met: {reason} So far {found.value} with errors "
            f"of {result.errors}."
        )
        if on_failure == "raise":
            raise ToleranceError(f"{message} It is the `result` of this error.", result)
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return result


def _observables(
    system: System, given: Any
) -> tuple[dict[str, Mean], tuple[tuple[str | None, tuple[int, ...]], ...]]:
    """Observables by name, and their names, if they were given by name, and shapes."""
    by_name = given if isinstance(given, Mapping) else {"φ": given}
    if not by_name:
        raise ValueError("there is no observable: give a function, or several by name.")
    named, shapes = {}, []
    for name, one in by_name.items():
        if not callable(one) and type(one) not in (Mean, TimeAverage):
            raise TypeError(
                f"the observable {name!r} must be a function of (q, p), or of (q, p, params), or "
                f"da.TimeAverage of one, not {one!r}."
            )
        named[name] = one if isinstance(one, Mean) else Mean(one)
        fun = named[name].of
        shape = _shape(system, name, Keyed(fun, captured(fun)), types_of(system.params))
        if 0 in shape:
            raise ValueError(f"the observable {name!r} of shape {shape} has no entries.")
        shapes.append((name if isinstance(given, Mapping) else None, shape))
    return named, tuple(shapes)


@kept
def _shape(system: System, name: str, fun: Keyed, types: Hashable) -> tuple[int, ...]:
    """The shape of what a function observes, by the types of parameters; none is refused."""
    like = system.shape, system.params, None
    return check_function(f"observable {name!r}", fun.value, *like, time=system.time).shape


def _estimator(system: System, method: Method, given: str | None) -> tuple[str, bool]:
    """The estimator, and whether paths of two step sizes can be coupled."""
    extra = method.needs_for(system) - COUPLED
    is_weak = method.convergence == "weak"
    alone = extra or system.constraint_count or system.flow is not None
    usual = "plain" if is_weak or alone else "multilevel"
    chosen = usual if given is None else given
    check_choice("estimator", chosen, tuple(SCHEMES))
    if chosen == "multilevel" and extra:
        raise ValueError(
            f"{method.name} reads the increments {sorted(extra)}, of which those of two steps do "
            f'not make those of one: take estimator="{usual}", or another method.'
        )
    return chosen, not alone and (chosen == "multilevel" or not is_weak)


def _check_initial(system: System, initial: Any) -> None:
    if callable(initial):
        return
    if not isinstance(initial, tuple | list) or len(initial) != 2:
        raise TypeError(f"initial must be (q0, p0) or a sampler(key), not {initial!r}.")
    for name, x in zip(("q0", "p0"), initial, strict=True):
        if np.shape(x) != system.shape:
            raise ValueError(
                f"{name} must have the shape {system.shape} of the system, not {np.shape(x)}: how "
                "many paths there will be is not known. Give a sampler(key) for several states."
            )


def _whole_number(name: str, part: float, t_end: float) -> int:
    number = round(t_end / part)
    if number < 1 or abs(number * part - t_end) > 1e-9 * t_end:
        raise ValueError(f"t_end = {t_end:g} is not a whole number of {name} = {part:g}.")
    return number


def _rough(search: Search) -> tuple[str, ...]:
    """That the error is not well known, where one path makes much of it."""
    assert search.last is not None
    most = np.max(search.singles(search.last, search.last.value))
    if most <= HEAVY:
        return ()
    return (
        f"one path makes {most:.0%} of the squared statistical error, which is then not known "
        "well: rare or large values are few in this sample",
    )


def _notes(search: Search, exponents: Exponents, expected_beta: float | None) -> tuple[str, ...]:
    """What the exponents say about the choice of the estimator."""
    known = exponents.beta[np.isfinite(exponents.beta)]
    is_multilevel = search.scheme is SCHEMES["multilevel"]
    if not is_multilevel or not len(known) or np.min(known) > SLOW:
        return ()
    if not any(search.share(level) for level in search.levels.values() if level.row.is_pair):
        return ()  # they are nothing beside the tolerance
    least = float(np.min(known))
    speed = "do not decay" if least < NO_DECAY else "decay slowly"
    expected = "" if expected_beta is None else f" (for smooth observables {expected_beta:g})"
    return (
        f"variances of level differences {speed}, as dt^{least:.2f}{expected}: fine levels take "
        "most of the steps, and plain Monte Carlo may be as good",
    )
