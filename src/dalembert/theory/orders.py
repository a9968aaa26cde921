"""Orders of convergence, measured on the user's own system and method."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dalembert.noise import enumerate_three_point
from dalembert.system import System
from dalembert.theory.enumeration import MAX_OUTCOMES, Outcomes, check_outcomes, count_outcomes
from dalembert.theory.order_arguments import (
    Observe,
    check_measurement,
    check_sampling,
    exact_values,
    initial_state,
    named_observables,
    reference_method,
    step_counts,
)
from dalembert.theory.order_errors import (
    Sampling,
    Task,
    coupled_errors,
    enumerated_errors,
    strong_errors,
)
from dalembert.theory.order_estimate import OrderEstimate, StrongOrder, WeakOrder
from dalembert.theory.slopes import estimate

__all__ = ["OrderEstimate", "StrongOrder", "WeakOrder", "strong_order", "weak_order"]

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
    check_measurement(system, method, t_end, confidence, exact, reference)
    start = initial_state(system, initial)
    if method.convergence != "mean-square":
        raise ValueError(
            f"{method.name} is driven by three-point variables, which follow no Brownian path, so "
            "it has no strong order: use da.weak_order, or a method driven by dW."
        )
    refine = check_sampling(system, method, paths, refine)
    reference = None if exact else reference_method(method, reference)
    counts = step_counts(t_end, dts, steps, STRONG_STEPS)
    task = Task(system, method, start, t_end, counts)
    measured = strong_errors(task, Sampling(paths, seed, reference, refine), exact)
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
        system: what to simulate.
        method: any method.
        initial: (q0, p0), each of shape (dim,).
        observe: φ(q, p) or φ(q, p, params) -> scalar, by default the energy H; or several by name.
        t_end: where the error is taken.
        dts: step sizes; each must divide `t_end`.
        steps: numbers of steps, instead of `dts`; by default 1, 2, 3, 4, 6, 8, 10 as far as they
            can be enumerated, and 8, 16, …, 128 on common paths.
        paths: number of common paths.
        seed: with the path number, decides the path.
        exact: the exact expectation; by name if `observe` is.
        reference: a method for the reference instead of the series: extrapolated to dt = 0 where
            outcomes are enumerated (then `t_end` may be larger), at a small step on common paths.
            The default there is a method of another family.
        refine: how many times smaller that step is than the smallest one, as in `strong_order`.
        outcomes: all increments of a step and their probabilities for (noises, dt), instead of
            `da.enumerate_three_point`; for example Gauss–Hermite nodes for a method driven by ΔW.
        local: measure errors of single steps of the sizes t_end/steps; their slope minus one is the
            order. It needs few outcomes, so it serves systems with many noises; but one observable
            from one point can miss an error that whole runs show, so try several.
        confidence: level of the interval.

    Returns:
        A `WeakOrder`, or a dict of them if `observe` is one. Where nothing was sampled, the order
        is extrapolated to dt = 0 and the interval says how much the last correction changed it.
    """
    check_measurement(system, method, t_end, confidence, exact, reference)
    start = initial_state(system, initial)
    observables = named_observables(system, observe)
    limits = exact_values(exact, observables)
    if outcomes is not None or method.convergence == "weak":
        outcomes = outcomes or enumerate_three_point
        if local and (limits is not None or reference is not None):
            raise ValueError(
                "local=True compares single steps with the generator series: leave out exact and "
                "reference."
            )
        each = count_outcomes(outcomes, system.noises)
        quick = [n for n in ENUMERATED_STEPS if each**n <= MAX_OUTCOMES]
        counts = step_counts(t_end, dts, steps, LOCAL_STEPS if local else quick)
        check_outcomes(each, 1 if local else counts[-1])
        task = Task(system, method, start, t_end, counts)
        found = enumerated_errors(task, observables, limits, reference, outcomes, local)
        how = "single steps, all outcomes" if local else "all outcomes"
    else:
        if local:
            raise ValueError(
                f"local=True needs outcomes that can be enumerated, and {method.name} is driven by "
                "Gaussian increments: give outcomes, for example Gauss–Hermite nodes."
            )
        refine = check_sampling(system, method, paths, refine)
        reference = reference_method(method, reference) if limits is None else None
        counts = step_counts(t_end, dts, steps, COUPLED_STEPS)
        task = Task(system, method, start, t_end, counts)
        sampling = Sampling(paths, seed, reference, refine)
        found = coupled_errors(task, sampling, observables, limits)
        how = f"{paths} paths, seed {seed}"
    orders = {}
    for name, measured in found.items():
        subject = f"E[{name}] of {method.name} on {system.name}, t = {t_end:g}, {how}"
        orders[name] = estimate(WeakOrder, measured, subject, confidence, lift=int(local))
    return orders if isinstance(observe, Mapping) else next(iter(orders.values()))
