"""Orders of convergence, measured on the user's own system and method."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from numbers import Integral
from typing import Any

import numpy as np

from dalembert.ensemble.progress import telling
from dalembert.methods import Method
from dalembert.noise import enumerate_three_point
from dalembert.precision import refuse_traced
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.theory.enumeration import Outcomes, affordable, gaussian_nodes
from dalembert.theory.order_arguments import (
    Observe,
    check_task,
    limits_by_name,
    observables_by_name,
    step_counts,
    with_time,
)
from dalembert.theory.order_errors import (
    OrderTask,
    Sampling,
    coupled_errors,
    enumerated_errors,
    strong_errors,
)
from dalembert.theory.paths import state
from dalembert.theory.references import Comparison, usual_comparison
from dalembert.theory.slopes import (
    BENT,
    MIN_POINTS,
    SIGN,
    STRAIGHT,
    Measured,
    OrderEstimate,
    StrongOrder,
    WeakOrder,
    estimate,
    without_order,
)

SHORTER_TIMES = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64)
"""Shares of t_end at which an order is looked for to say where there is one."""
CLOSER = 1 / 8
"""The share of a time at which its order is confirmed."""
PATHS = 10_000
COUPLED_STEPS = (8, 16, 32, 64, 128)
ENUMERATED_STEPS = (1, 2, 3, 4, 6, 8, 10)
LOCAL_STEPS = (1, 2, 4, 8, 16)
BEGINNING = "beginning"
"""What is done before the first step."""


@says_its_words
def strong_order(
    system: System,
    method: Method,
    initial: tuple[Any, Any],
    *,
    t_end: float,
    dts: Sequence[float] | None = None,
    steps: Sequence[int] | None = None,
    paths: int = 1000,
    seed: int = 0,
    exact: Callable[..., tuple[Any, Any]] | None = None,
    reference: Method | None = None,
    refine: int | None = None,
    confidence: float = 0.95,
    progress: bool = True,
) -> StrongOrder:
    """Measure the strong order of a method: root-mean-square error of (q, p) at `t_end`.

    Every path is one Brownian path, coarsened to all step sizes. The error is measured against the
    right limit: an exact solution, or another method at a much smaller step on the same path.

    Args:
        system: what to simulate.
        method: a method driven by ΔW.
        initial: (q0, p0), each of shape (dim,).
        t_end: where the error is taken.
        dts: step sizes; each must divide `t_end`.
        steps: numbers of steps, instead of `dts`; by default 16, 32, …, 512, and 8, 16, …, 128 for
            methods that read more than ΔW.
        paths: number of paths; without noise all are one, and two are taken.
        seed: with the path number, decides the path.
        exact: `exact(t, W, q0, p0) -> (q, p)` for one path with W = W(t) of shape (noises,).
        reference: the method for the reference, by default one of another family than `method`:
            E1, or midpoint for explicit methods; for methods that read more than ΔW the most
            accurate one that takes the system. With `reference=method` the result only says how
            fast the method converges to itself, even if that is the wrong limit.
        refine: how many times smaller the step of the reference is than the smallest one; even. By
            default 16, and 64 where the method is more accurate than the reference.
        confidence: level of the interval.
        progress: say in a line what is done, if it takes more than a second (in files and pipes
            once a minute).

    Returns:
        A `StrongOrder`. Its interval adds sampling (delta method over paths) and the curvature that
        cannot be seen for it in quadrature; its `notes` say which points were dropped and why, and
        if none is found, what to change; then there is a warning as well.
    """
    refuse_traced(
        "da.strong_order", params=getattr(system, "params", None), initial=initial, t_end=t_end
    )
    check_task(system, method, t_end, confidence, exact, reference)
    initial = state(system, initial)
    if method.convergence != "mean-square":
        raise ValueError(
            f"{method.name} is driven by three-point variables, which follow no Brownian path, so "
            "it has no strong order: use da.weak_order, or a method driven by dW."
        )
    usual = usual_comparison(system, method)
    sampling = _sampling(usual, paths, seed, reference, refine, exact)
    if not system.noises:
        sampling = sampling._replace(paths=2)
    task = OrderTask(system, method, initial, t_end, step_counts(t_end, dts, steps, usual.steps))
    with telling(f"strong order of {method.name} on {system.name}", progress, BEGINNING):
        measured = strong_errors(task, sampling, exact)
    subject = f"{method.name} on {system.name}, t = {t_end:g}, {sampling.paths} paths, seed {seed}"
    found = estimate(StrongOrder, measured, subject, confidence)
    _warn_if_empty([found])
    return found


@says_its_words
def weak_order(
    system: System,
    method: Method,
    initial: tuple[Any, Any],
    *,
    observe: Observe = None,
    t_end: float,
    dts: Sequence[float] | None = None,
    steps: Sequence[int] | None = None,
    paths: int | None = None,
    seed: int = 0,
    exact: float | Mapping[str, float] | None = None,
    reference: Method | None = None,
    refine: int | None = None,
    outcomes: Outcomes | None = None,
    local: bool = False,
    confidence: float = 0.95,
    progress: bool = True,
) -> Any:
    """Measure the weak order of a method: error of the expectation of an observable at `t_end`.

    Unless `paths` are given nothing is sampled: all outcomes of the increments are enumerated, K^n
    for n steps, at most 2·10⁶, so the errors are exact and n is small. Three-point variables have
    K = 3^m 2^(m−1) outcomes; Gaussian increments are replaced by K = 4^m Gauss–Hermite nodes, 8^m
    for methods that read ΔZ, which changes no error of order one or two in its leading term. The
    limit is the power series of E φ(z_t) by the generator of the diffusion, which needs no
    integrator and is good for short times; where it is not, a method of another family that is
    extrapolated to dt = 0. What is not known of the limit is the floor.

    With `paths`, and where there are too many outcomes or areas are read, methods driven by ΔW are
    run on common paths: all step sizes and the reference share every Brownian path, so that their
    differences have small standard errors.

    Args:
        system, initial, t_end, dts, seed, refine, confidence, progress: as in
            `strong_order`.
        method: any method.
        observe: φ(q, p) or φ(q, p, params) -> scalar, by default the energy H; or several by name.
        steps: numbers of steps, instead of `dts`; by default 1, 2, 3, 4, 6, 8, 10 as far as they
            can be enumerated, and 8, 16, …, 128 on common paths.
        paths: number of common paths; none by default where outcomes can be enumerated, else
            10,000.
        exact: the exact expectation; by name if `observe` is.
        reference: a method for the reference instead: extrapolated to dt = 0 where outcomes are
            enumerated, at a small step on common paths.
        outcomes: all increments of a step and their probabilities for (noises, dt), instead of
            `da.enumerate_three_point` or Gauss–Hermite nodes.
        local: measure errors of single steps of the sizes t_end/steps; their slope minus one is the
            order. It needs few outcomes, so it serves systems with many noises; but one observable
            from one point can miss an error that whole runs show, so try several.

    Returns:
        A `WeakOrder`, or a dict of them if `observe` is one. Where nothing was sampled, the order
        is extrapolated to dt = 0 and the interval says how much the last correction changed it.
        Where no order is found, a warning and the `notes` say what to change.
    """
    refuse_traced(
        "da.weak_order", params=getattr(system, "params", None), initial=initial, t_end=t_end
    )
    check_task(system, method, t_end, confidence, exact, reference)
    is_one, initial = not isinstance(observe, Mapping), state(system, initial)
    if system.time:
        system, initial, observe = with_time(system, initial, observe)
    observables = observables_by_name(system, observe)
    limits = limits_by_name(exact, observables)
    counts = step_counts(t_end, dts, steps, ()) if dts is not None or steps is not None else ()
    if outcomes is None and (paths is None or method.convergence == "weak"):
        outcomes = _usual_outcomes(system, method, reference, counts, local)
    if outcomes is not None:
        if local and (limits is not None or reference is not None):
            raise ValueError(
                "local=True compares single steps with the generator series: leave out exact and "
                "reference."
            )
        quick = LOCAL_STEPS if local else affordable(ENUMERATED_STEPS, outcomes, system.noises)
        task = OrderTask(
            system, method, initial, t_end, counts or step_counts(t_end, None, None, quick)
        )

        def measure(task: OrderTask, local: bool) -> dict[str, Measured]:
            return enumerated_errors(task, observables, limits, reference, outcomes, local)

        how = "all outcomes"
    else:
        if local:
            raise ValueError(
                "local=True enumerates outcomes: leave out paths, or give the outcomes of the "
                f"increments that {method.name} reads."
            )
        paths = PATHS if paths is None else paths
        usual = usual_comparison(system, method)
        sampling = _sampling(usual, paths, seed, reference, refine, limits)
        task = OrderTask(system, method, initial, t_end, counts or COUPLED_STEPS)

        def measure(task: OrderTask, local: bool) -> dict[str, Measured]:
            return coupled_errors(task, sampling, observables, limits)

        how = f"{paths} paths, seed {seed}"

    def find(task: OrderTask, local: bool) -> dict[str, WeakOrder]:
        words = f"single steps, {how}" if local else how
        subject = f"{method.name} on {system.name}, t = {task.t_end:g}, {words}"
        return {
            name: estimate(WeakOrder, found, f"E[{name}] of {subject}", confidence, int(local))
            for name, found in measure(task, local).items()
        }

    with telling(f"weak order of {method.name} on {system.name}", progress, BEGINNING):
        if outcomes is None or limits is not None:
            orders = find(task, local)
        else:
            can_be_local = reference is None and not local
            orders = _confirmed(task, find, (local, True) if can_be_local else (local,))
    _warn_if_empty(orders.values())
    return next(iter(orders.values())) if is_one else orders


def _usual_outcomes(
    system: System, method: Method, reference: Any, counts: Sequence[int], local: bool
) -> Outcomes | None:
    """All outcomes of the increments of a method, or None where there are too many or none."""
    needs = method.needs_for(system)
    if method.convergence == "weak":
        return partial(enumerate_three_point, coin="coin" in needs)
    for other in (method, reference):
        if other is not None and not other.needs_for(system) <= {"dW", "dZ"}:
            return None
    both = needs | (reference.needs_for(system) if reference is not None else set())
    outcomes = partial(gaussian_nodes, with_dZ="dZ" in both)
    if local:
        return outcomes
    possible = affordable(counts or ENUMERATED_STEPS, outcomes, system.noises)
    return outcomes if len(possible) >= max(len(counts), MIN_POINTS) else None


def _confirmed(
    task: OrderTask, find: Callable[[OrderTask, bool], dict[str, WeakOrder]], ways: Sequence[bool]
) -> dict[str, WeakOrder]:
    """The orders at t_end, of those that the same numbers of steps over a shorter time confirm.

    A few large steps can follow a power of dt that is not the one of small steps. Where no order
    is confirmed, the result names the largest of some shorter times at which one is. Whole runs
    or single steps: the first of the `ways` was asked for, the others may be named.
    """

    @cache
    def found(share: float, local: bool) -> dict[str, WeakOrder]:
        counts = task.counts if local == ways[0] else LOCAL_STEPS
        return find(task._replace(t_end=share * task.t_end, counts=counts), local)

    def is_sure(name: str, share: float, local: bool) -> bool:
        here, closer = found(share, local)[name], found(share * CLOSER, local)[name]
        if np.isnan(here.order) or np.isnan(closer.order):
            return not np.isnan(here.order) and not {SIGN, BENT} & set(closer.dropped)
        widths = sum(order.interval[1] - order.interval[0] for order in (here, closer))
        return abs(here.order - closer.order) <= STRAIGHT + widths / 2

    orders = dict(found(1.0, ways[0]))
    for name, order in orders.items():
        if is_sure(name, 1.0, ways[0]):
            continue
        note = "" if np.isnan(order.order) else f"smaller steps do not confirm {order.order:.2f}"
        others = ((share, local) for local in ways for share in SHORTER_TIMES)
        place = next((place for place in others if is_sure(name, *place)), None)
        shortest = f"{SHORTER_TIMES[-1] * task.t_end:.6g}"
        remedy = f"take another observable, observe=…: down to t_end={shortest} this one shows none"
        if place is not None:
            share, local = place
            alone = " and local=True" if local and not ways[0] else ""
            there = f"{found(*place)[name].order:.2f}"
            remedy = f"take t_end={share * task.t_end:.6g}{alone}, where the order is {there}"
        orders[name] = without_order(order, note, remedy)
    return orders


def _warn_if_empty(orders: Iterable[OrderEstimate]) -> None:
    """Say loudly that there is no order, and what to change."""
    for order in orders:
        if np.isnan(order.order):
            why = order.notes[-1] if order.notes else "no error is seen"
            warnings.warn(f"no order: {order.subject}: {why}; {order.remedy}.", stacklevel=4)


def _sampling(
    usual: Comparison, paths: Any, seed: int, reference: Any, refine: Any, exact: Any
) -> Sampling:
    """The paths and the reference on them, after refusing what cannot be sampled."""
    if isinstance(paths, bool) or not isinstance(paths, Integral) or paths < 2:
        raise ValueError(f"paths must be an integer of at least 2, not {paths!r}.")
    refine = usual.refine if refine is None else refine
    if not isinstance(refine, Integral) or refine < 2 or refine % 2:
        raise ValueError(
            f"refine must be an even integer, not {refine!r}: the error of the reference is judged "
            "by running it at twice its step as well."
        )
    if exact is None and reference is None:
        reference = usual.reference
    if reference is not None and reference.convergence != "mean-square":
        raise ValueError(
            f"the reference {reference.name} is driven by three-point variables: on common "
            "Brownian paths it must be driven by dW, for example da.midpoint()."
        )
    return Sampling(int(paths), seed, reference, int(refine))
