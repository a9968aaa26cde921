"""Orders of convergence, measured on the user's own system and method."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from numbers import Integral
from typing import Any

import jax
import numpy as np

from dalembert.methods import MeanSquareTableau, e1, midpoint
from dalembert.noise import enumerate_three_point
from dalembert.stepping.step import check_method
from dalembert.system import System
from dalembert.theory.enumeration import Outcomes, affordable
from dalembert.theory.order_errors import (
    Observables,
    Sampling,
    Task,
    coupled_errors,
    enumerated_errors,
    strong_errors,
)
from dalembert.theory.paths import state
from dalembert.theory.slopes import MIN_POINTS, StrongOrder, WeakOrder, estimate

Observe = Callable[..., Any] | Mapping[str, Callable[..., Any]] | None

STRONG_STEPS = (16, 32, 64, 128, 256, 512)
COUPLED_STEPS = (8, 16, 32, 64, 128)
ENUMERATED_STEPS = (1, 2, 3, 4, 6, 8, 10)
LOCAL_STEPS = (1, 2, 4, 8, 16)


def strong_order(
    system: System,
    method: Any,
    initial: tuple[Any, Any],
    *,
    t_end: float,
    dts: Sequence[float] | None = None,
    steps: Sequence[int] | None = None,
    paths: int = 1000,
    seed: int = 0,
    exact: Callable[..., tuple[Any, Any]] | None = None,
    reference: Any = None,
    refine: int | None = None,
    confidence: float = 0.95,
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
        steps: numbers of steps, instead of `dts`; by default 16, 32, …, 512.
        paths: number of paths.
        seed: with the path number, decides the path.
        exact: `exact(t, W, q0, p0) -> (q, p)` for one path with W = W(t) of shape (noises,).
        reference: the method for the reference, by default one of another family than `method`:
            E1, or midpoint for explicit methods. With `reference=method` the result only says how
            fast the method converges to itself, even if that is the wrong limit.
        refine: how many times smaller the step of the reference is than the smallest one; even. By
            default 16, and 64 for methods that read ΔZ, which are more accurate than the reference.
        confidence: level of the interval.

    Returns:
        A `StrongOrder`. Its interval adds sampling (delta method over paths) and the curvature that
        cannot be seen for it in quadrature; its `notes` say which points were dropped and why.
    """
    _check(system, method, t_end, confidence, exact, reference)
    initial = state(system, initial)
    if method.convergence != "mean-square":
        raise ValueError(
            f"{method.name} is driven by three-point variables, which follow no Brownian path, so "
            "it has no strong order: use da.weak_order, or a method driven by dW."
        )
    sampling = _sampling(system, method, paths, seed, reference, refine, exact)
    task = Task(system, method, initial, t_end, _counts(t_end, dts, steps, STRONG_STEPS))
    measured = strong_errors(task, sampling, exact)
    subject = f"{method.name} on {system.name}, t = {t_end:g}, {paths} paths, seed {seed}"
    return estimate(StrongOrder, measured, subject, confidence)


def weak_order(
    system: System,
    method: Any,
    initial: tuple[Any, Any],
    *,
    observe: Observe = None,
    t_end: float,
    dts: Sequence[float] | None = None,
    steps: Sequence[int] | None = None,
    paths: int = 10_000,
    seed: int = 0,
    exact: float | Mapping[str, float] | None = None,
    reference: Any = None,
    refine: int | None = None,
    outcomes: Outcomes | None = None,
    local: bool = False,
    confidence: float = 0.95,
) -> Any:
    """Measure the weak order of a method: error of the expectation of an observable at `t_end`.

    Methods driven by three-point variables are not sampled: all outcomes are enumerated, K^n for n
    steps with K = 3^m 2^(m−1), at most 2·10⁶, so the errors are exact and n is small. The limit
    they are compared with is the power series of E φ(z_t) by the generator of the diffusion, which
    needs no integrator and is good for short times; what its last terms leave is the floor.

    Methods driven by ΔW are run on common paths: all step sizes and the reference share every
    Brownian path, so that their differences have small standard errors.

    Args:
        system, initial, t_end, dts, seed, refine, confidence: as in `strong_order`.
        method: any method.
        observe: φ(q, p) or φ(q, p, params) -> scalar, by default the energy H; or several by name.
        steps: numbers of steps, instead of `dts`; by default 1, 2, 3, 4, 6, 8, 10 as far as they
            can be enumerated, and 8, 16, …, 128 on common paths.
        paths: number of common paths.
        exact: the exact expectation; by name if `observe` is.
        reference: a method for the reference instead of the series: extrapolated to dt = 0 where
            outcomes are enumerated (then `t_end` may be larger), at a small step on common paths.
            The default there is a method of another family.
        outcomes: all increments of a step and their probabilities for (noises, dt), instead of
            `da.enumerate_three_point`; for example Gauss–Hermite nodes for a method driven by ΔW.
        local: measure errors of single steps of the sizes t_end/steps; their slope minus one is the
            order. It needs few outcomes, so it serves systems with many noises; but one observable
            from one point can miss an error that whole runs show, so try several.

    Returns:
        A `WeakOrder`, or a dict of them if `observe` is one. Where nothing was sampled, the order
        is extrapolated to dt = 0 and the interval says how much the last correction changed it.
    """
    _check(system, method, t_end, confidence, exact, reference)
    initial = state(system, initial)
    observables = _observables(system, observe)
    limits = _limits(exact, observables)
    if outcomes is not None or method.convergence == "weak":
        has_coin = "coin" in method.needs(system.noises)
        outcomes = outcomes or partial(enumerate_three_point, coin=has_coin)
        if local and (limits is not None or reference is not None):
            raise ValueError(
                "local=True compares single steps with the generator series: leave out exact and "
                "reference."
            )
        quick = LOCAL_STEPS if local else affordable(ENUMERATED_STEPS, outcomes, system.noises)
        task = Task(system, method, initial, t_end, _counts(t_end, dts, steps, quick))
        found = enumerated_errors(task, observables, limits, reference, outcomes, local)
        how = "single steps, all outcomes" if local else "all outcomes"
    else:
        if local:
            raise ValueError(
                f"local=True needs outcomes that can be enumerated, and {method.name} is driven by "
                "Gaussian increments: give outcomes, for example Gauss–Hermite nodes."
            )
        sampling = _sampling(system, method, paths, seed, reference, refine, limits)
        task = Task(system, method, initial, t_end, _counts(t_end, dts, steps, COUPLED_STEPS))
        found = coupled_errors(task, sampling, observables, limits)
        how = f"{paths} paths, seed {seed}"
    orders = {}
    for name, measured in found.items():
        subject = f"E[{name}] of {method.name} on {system.name}, t = {t_end:g}, {how}"
        orders[name] = estimate(WeakOrder, measured, subject, confidence, lift=int(local))
    return orders if isinstance(observe, Mapping) else next(iter(orders.values()))


def _check(
    system: System, method: Any, t_end: Any, confidence: Any, exact: Any, reference: Any
) -> None:
    """Refuse what no order can be measured of."""
    check_method(system, method)
    if not (np.ndim(t_end) == 0 and isfinite(t_end) and t_end > 0):
        raise ValueError(f"t_end must be a positive number, not {t_end!r}.")
    if not 0 < confidence < 1:
        raise ValueError(
            f"confidence must lie between 0 and 1, for example 0.95, not {confidence!r}."
        )
    if exact is not None and reference is not None:
        raise ValueError("give either exact or reference, not both: one limit is compared with.")
    if reference is not None:
        check_method(system, reference)


def _sampling(
    system: System, method: Any, paths: Any, seed: int, reference: Any, refine: Any, exact: Any
) -> Sampling:
    """The paths and the reference on them, after refusing what cannot be sampled."""
    if isinstance(paths, bool) or not isinstance(paths, Integral) or paths < 2:
        raise ValueError(f"paths must be an integer of at least 2, not {paths!r}.")
    if refine is None:
        refine = 64 if "dZ" in method.needs(system.noises) else 16
    if not isinstance(refine, Integral) or refine < 2 or refine % 2:
        raise ValueError(
            f"refine must be an even integer, not {refine!r}: the error of the reference is judged "
            "by running it at twice its step as well."
        )
    if exact is None and reference is None:
        # One of another family, which converges to the Stratonovich solution.
        reference = e1() if isinstance(method, MeanSquareTableau) else midpoint()
    if reference is not None and reference.convergence != "mean-square":
        raise ValueError(
            f"the reference {reference.name} is driven by three-point variables: on common "
            "Brownian paths it must be driven by dW, for example da.midpoint()."
        )
    return Sampling(int(paths), seed, reference, int(refine))


def _counts(
    t_end: float,
    dts: Sequence[float] | None,
    steps: Sequence[int] | None,
    default: Sequence[int],
) -> tuple[int, ...]:
    """Numbers of steps in ascending order, from step sizes or given as they are."""
    if dts is not None and steps is not None:
        raise ValueError("give either dts or steps, not both.")
    if dts is not None:
        counts = [_whole_number(t_end, dt) for dt in dts]
    else:
        counts = list(default if steps is None else steps)
    wrong = [n for n in counts if isinstance(n, bool) or not isinstance(n, Integral) or n < 1]
    if wrong:
        raise ValueError(f"steps must be positive integers, not {wrong[0]!r}.")
    found = sorted({int(n) for n in counts})
    if len(found) < MIN_POINTS:
        raise ValueError(
            f"an order needs at least {MIN_POINTS} step sizes, there are {len(found)}: give more; "
            "where outcomes are enumerated and too many for that, use local=True."
        )
    return tuple(found)


def _whole_number(t_end: float, dt: float) -> int:
    number = round(t_end / dt) if isfinite(dt) and dt > 0 else 0
    if number == 0 or abs(t_end / dt / number - 1) > 1e-9:
        raise ValueError(
            f"dt = {dt!r} does not divide t_end = {t_end}: the error is taken at t_end, so a whole "
            "number of steps must lead there; or give steps=(8, 16, 32)."
        )
    return number


def _observables(system: System, observe: Observe) -> Observables:
    """The observables by name, each checked to give one number."""
    if observe is None:
        return {"H": system.H}
    chosen = observe if isinstance(observe, Mapping) else {"φ": observe}
    z = jax.ShapeDtypeStruct((system.dim,), np.float64)
    for name, phi in chosen.items():
        with jax.enable_x64(True):
            found = jax.eval_shape(lambda q, p: system.evaluate(phi, q, p, system.params), z, z)  # noqa: B023
        if getattr(found, "shape", None) != ():
            raise ValueError(
                f"the observable {name!r} gives {found}: it must give one number, for example "
                "p[0] ** 2, from (q, p), or from (q, p, params) if the system has params."
            )
    return chosen


def _limits(
    exact: float | Mapping[str, float] | None, observables: Observables
) -> dict[str, float] | None:
    """The exact expectations by the names of the observables."""
    if exact is None:
        return None
    given = dict(exact) if isinstance(exact, Mapping) else {next(iter(observables)): exact}
    if set(given) != set(observables):
        raise ValueError(
            f"exact must have one value for each of the observables {sorted(observables)}, "
            f"not {exact!r}."
        )
    return {name: float(value) for name, value in given.items()}
