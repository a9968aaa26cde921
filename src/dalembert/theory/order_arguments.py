"""What a measurement of an order is asked for, checked at the public boundary."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from numbers import Integral
from typing import Any

import jax
import numpy as np

from dalembert.driven import of_extended
from dalembert.functions import check_function
from dalembert.methods import Method
from dalembert.precision import check_confidence
from dalembert.stepping.step import check_method
from dalembert.system import System
from dalembert.theory.order_errors import Observables
from dalembert.theory.slopes import MIN_POINTS

Observe = Callable[..., Any] | Mapping[str, Callable[..., Any]] | None


def check_task(
    system: System, method: Method, t_end: Any, confidence: Any, exact: Any, reference: Any
) -> None:
    """Refuse what no order can be measured of."""
    check_method(system, method)
    if not (np.ndim(t_end) == 0 and isfinite(t_end) and t_end > 0):
        raise ValueError(f"t_end must be a positive number, not {t_end!r}.")
    check_confidence(confidence)
    if exact is not None and reference is not None:
        raise ValueError("give either exact or reference, not both: one limit is compared with.")
    if reference is not None:
        check_method(system, reference)


def step_counts(
    t_end: float, dts: Sequence[float] | None, steps: Sequence[int] | None, default: Sequence[int]
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


def _by_name(system: System, observe: Observe) -> Observables:
    if observe is None:
        return {"H": system.H}
    return observe if isinstance(observe, Mapping) else {"φ": observe}


def observables_by_name(system: System, observe: Observe) -> Observables:
    """The observables by name, each checked to give one number."""
    chosen = _by_name(system, observe)
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


def with_time(system: System, initial: Any, observe: Observe) -> tuple[System, Any, Any]:
    """A driven system, its start and its observables in the extended phase space."""
    chosen = _by_name(system, observe)
    like = system.shape, system.params, ()
    for name, phi in chosen.items():
        check_function(f"the observable {name!r}", phi, *like, time=True)
    q, p = (np.append(np.asarray(x), 0.0) for x in initial)
    return (
        system.extended(),
        (q, p),
        {name: of_extended(system, phi) for name, phi in chosen.items()},
    )


def limits_by_name(
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
