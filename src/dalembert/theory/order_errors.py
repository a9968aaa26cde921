"""Errors at several step sizes against the right limit: what an order is measured from."""

from collections.abc import Callable, Mapping, Sequence
from math import lcm
from typing import Any

import jax
import numpy as np

from dalembert.methods import MeanSquareTableau, e1, midpoint
from dalembert.system import System
from dalembert.theory.coupled_paths import Ends, Run, run_coupled
from dalembert.theory.enumeration import (
    MAX_OUTCOMES,
    Outcomes,
    count_outcomes,
    enumerate_expectations,
    extrapolate,
    observe_all,
)
from dalembert.theory.generator import expectation_series
from dalembert.theory.slopes import Measured

__all__ = ["Observables", "coupled_errors", "enumerated_errors", "independent", "strong_errors"]

Observables = Mapping[str, Callable[..., Any]]

ABOVE_REFERENCE = 3.0
"""An error counts where it is this many times the error of the reference. At that limit, an error
of the reference that is independent of the method's adds 5 % to it."""
FAR_ABOVE_REFERENCE = 30.0
"""The same for errors without sampling: the powers that are fitted to them magnify what the
reference adds."""
ABOVE_SAMPLING = 4.0
"""And this many standard errors away from zero."""
EXTRAPOLATED_STEPS = (1, 2, 3, 4, 5, 6, 8)


def independent(method: Any) -> Any:
    """A method of another family that converges to the Stratonovich solution."""
    return e1() if isinstance(method, MeanSquareTableau) else midpoint()


def strong_errors(
    system: System,
    method: Any,
    initial: tuple[Any, Any],
    t_end: float,
    counts: Sequence[int],
    paths: int,
    seed: int,
    exact: Callable[..., tuple[Any, Any]] | None,
    reference: Any,
    refine: int,
) -> Measured:
    """Root-mean-square errors of (q, p) at `t_end` over Brownian paths that all runs share."""
    runs, fine = _runs(method, counts, None if exact else reference, refine)
    (ends, *checks), W = run_coupled(system, runs, initial, t_end, fine, paths, seed)
    if exact is None:
        rough, best = checks[0]
    else:
        rough = best = _exact_ends(exact, t_end, W, initial)
    # Paths that blew up are reported, not warned of.
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.stack([np.sum((end.z - best.z) ** 2, axis=1) for end in ends])
        doubt = np.sqrt(np.mean(np.sum((rough.z - best.z) ** 2, axis=1)))
        return Measured(
            dts=t_end / np.array(counts),
            errors=np.sqrt(np.mean(squares, axis=1)),
            influence=_relative(squares) / 2,
            floors=_floors(counts, doubt, np.max(np.abs(best.z))),
            failed=[_failures(end, best) for end in ends],
            reference="the exact solution" if exact else _name(method, reference, t_end / fine),
        )


def coupled_errors(
    system: System,
    method: Any,
    initial: tuple[Any, Any],
    observables: Observables,
    t_end: float,
    counts: Sequence[int],
    paths: int,
    seed: int,
    exact: Mapping[str, float] | None,
    reference: Any,
    refine: int,
) -> dict[str, Measured]:
    """Errors of expectations over Brownian paths that all runs share."""
    runs, fine = _runs(method, counts, None if exact else reference, refine)
    (ends, *checks), _ = run_coupled(system, runs, initial, t_end, fine, paths, seed)
    rough, best = checks[0] if checks else (None, None)
    found = {}
    for name, phi in observables.items():
        limit, doubt = np.float64(exact[name] if exact else np.nan), 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            if best is not None and rough is not None:
                limit = observe_all(system, phi, best.z)
                doubt = abs(np.mean(observe_all(system, phi, rough.z) - limit))
            differences = np.stack([observe_all(system, phi, end.z) - limit for end in ends])
            stderrs = np.std(differences, axis=1, ddof=1) / np.sqrt(paths)
            found[name] = Measured(
                dts=t_end / np.array(counts),
                errors=np.mean(differences, axis=1),
                influence=_relative(differences),
                floors=_floors(counts, doubt, np.max(np.abs(limit)))
                | {"its standard error": ABOVE_SAMPLING * stderrs},
                failed=[_failures(end, best or end) for end in ends],
                reference=_value(limit) if exact else _name(method, reference, t_end / fine),
            )
    return found


def enumerated_errors(
    system: System,
    method: Any,
    initial: tuple[Any, Any],
    observables: Observables,
    t_end: float,
    counts: Sequence[int],
    exact: Mapping[str, float] | None,
    reference: Any,
    outcomes: Outcomes,
    local: bool,
) -> dict[str, Measured]:
    """Errors of expectations over all outcomes of a method's increments; nothing is sampled."""

    def scheme(method: Any, count: int) -> tuple[dict[str, float], bool]:
        dt, steps = t_end / count, 1 if local else count
        return enumerate_expectations(system, method, observables, initial, dt, steps, outcomes)

    results = [scheme(method, count) for count in counts]
    limits = {}
    if exact is not None:
        limits = {n: ([(value, 0.0)] * len(counts), _value(value)) for n, value in exact.items()}
    elif reference is not None:
        each = count_outcomes(outcomes, system.noises)
        steps = [n for n in EXTRAPOLATED_STEPS if each**n <= MAX_OUTCOMES]
        values = [scheme(reference, n)[0] for n in steps]
        for name in observables:
            limit = extrapolate([t_end / n for n in steps], [value[name] for value in values])
            text = f"{reference.name} extrapolated from up to {steps[-1]} steps to dt = 0"
            limits[name] = ([limit] * len(counts), text)
    else:
        for name, series in expectation_series(system, observables, initial).items():
            times = [t_end / count if local else t_end for count in counts]
            text = f"{len(series.powers) - 1} terms of the generator series"
            limits[name] = ([series.at(t) for t in times], text)
    return {
        name: Measured(
            dts=t_end / np.array(counts),
            errors=np.array(
                [r[name] - value for (r, _), (value, _) in zip(results, limit, strict=True)]
            ),
            influence=np.zeros((len(counts), 0)),
            floors=_floors(
                counts,
                np.array([doubt for _, doubt in limit]),
                abs(limit[0][0]),
                FAR_ABOVE_REFERENCE,
            ),
            failed=["" if solved else "a step did not converge" for _, solved in results],
            reference=text,
        )
        for name, (limit, text) in limits.items()
    }


def _runs(method: Any, counts: Sequence[int], reference: Any, refine: int) -> tuple[list[Run], int]:
    """The method at all step sizes, the reference at two, and the steps of the finest path."""
    fine = lcm(*counts)
    if reference is None:
        return [Run(method, tuple(counts))], fine
    fine *= refine
    return [Run(method, tuple(counts)), Run(reference, (fine // 2, fine))], fine


def _exact_ends(
    exact: Callable[..., tuple[Any, Any]], t_end: float, W: np.ndarray, initial: tuple[Any, Any]
) -> Ends:
    with jax.enable_x64(True):
        q, p = jax.vmap(lambda w: exact(t_end, w, *initial))(W)
        z = np.concatenate([np.asarray(x).reshape(len(W), -1) for x in (q, p)], axis=1)
    if z.shape[1] != 2 * len(initial[0]):
        raise ValueError(
            f"exact gives {z.shape[1]} numbers, and (q, p) has {2 * len(initial[0])}: "
            "write exact(t, W, q0, p0) -> (q, p) for one path, with W of shape (noises,)"
        )
    return Ends(z, np.asarray(np.isfinite(z).all(axis=1)))


def _relative(samples: np.ndarray) -> np.ndarray:
    """Each sample's share of the mean of its row, minus one."""
    mean = np.mean(samples, axis=1, keepdims=True)
    return samples / np.where(mean == 0, 1.0, mean) - np.where(mean == 0, 0.0, 1.0)


def _floors(
    counts: Sequence[int], doubt: Any, size: Any, above: float = ABOVE_REFERENCE
) -> dict[str, np.ndarray]:
    """What an error must exceed: the reference's own error, and one rounding a step."""
    steps = np.array(counts)
    rounding = np.finfo(np.float64).eps * steps * size
    return {
        "the error of the reference": above * np.broadcast_to(doubt, steps.shape),
        "rounding": rounding,
    }


def _failures(end: Ends, best: Ends) -> str:
    for whose, ok in (("the reference", best.ok), ("it", end.ok)):
        if not ok.all():
            return f"{whose} did not converge on {np.sum(~ok)} of {len(ok)} paths"
    return ""


def _name(method: Any, reference: Any, dt: float) -> str:
    if reference == method:
        return f"itself at dt = {dt:.3g}: it may converge to a wrong limit"
    return f"{reference.name} at dt = {dt:.3g} on the same paths"


def _value(value: Any) -> str:
    return f"the exact value {float(value):.10g}"
