"""Expectations of a scheme without sampling: every outcome of its increments, weighted.

A step with K outcomes turns one state into K, so n steps have K^n ends. They are grown level by
level, which takes about K^n steps in all instead of n K^n, in chunks of one compiled shape.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.captured import Keyed
from dalembert.ensemble.progress import tell
from dalembert.methods import Method
from dalembert.noise import Increments
from dalembert.precision import with_precision
from dalembert.stepping.stepper import Stepper
from dalembert.system import System
from dalembert.theory.elementary_weights import COIN, outcomes_of
from dalembert.theory.paths import call, one_step

Outcomes = Callable[[int, float], tuple[Increments, np.ndarray]]
"""All increments of one step for (noises, dt), with a leading axis, and their probabilities."""

MAX_OUTCOMES = 2_000_000
CHUNK = 2**14
"""Steps in one compiled call."""


def gaussian_nodes(
    noises: int, dt: float, with_dZ: bool = False, nodes: int = 4
) -> tuple[Increments, np.ndarray]:
    """Gauss–Hermite nodes for the increments of one step, in the place of normal numbers.

    With four nodes errors of weak order up to two have the same leading term as with normal
    numbers: it takes moments of ΔW up to the sixth, and there are those up to the seventh; of what
    ΔZ has beside ΔW it takes the second. Three nodes are the three-point variables.
    """
    places, weights = np.polynomial.hermite_e.hermegauss(nodes)
    laws = [tuple(zip(places, weights / weights.sum(), strict=True))] * noises
    found, probabilities = outcomes_of([*laws, *[COIN] * (noises if with_dZ else 0)])
    chi, eta = np.split(found, [noises], axis=1)
    dZ = dt * sqrt(dt) / 2 * (chi + eta / sqrt(3)) if with_dZ else None
    return Increments(sqrt(dt) * chi, dZ), probabilities


def affordable(counts: Sequence[int], outcomes: Outcomes, noises: int) -> list[int]:
    """Those numbers of steps whose outcomes are few enough to be enumerated."""
    each = len(outcomes(noises, 1.0)[1])
    return [n for n in counts if each**n <= MAX_OUTCOMES]


def enumerate_expectations(
    system: System,
    method: Method,
    observables: Mapping[str, Callable[..., Any]],
    initial: tuple[Any, Any],
    dt: float,
    steps: int,
    outcomes: Outcomes,
) -> tuple[dict[str, float], bool]:
    """The scheme's own expectation of each observable, and whether every step was solved."""
    with jax.enable_x64(True):
        increments, probabilities = outcomes(system.noises, dt)
    each = len(probabilities)
    if each**steps > MAX_OUTCOMES:
        raise ValueError(
            f"{steps} steps with {each} outcomes each have {each**steps:.2g} ends, and at most "
            f"{MAX_OUTCOMES} are enumerated: take fewer steps, or local=True, which takes one."
        )
    missing = [x for x in method.needs_for(system) if getattr(increments, x) is None]
    if missing:
        raise ValueError(
            f"{method.name} needs the increments {missing[0]}, which these outcomes do not have: "
            "use another method, or outcomes that have them."
        )
    q, p = (np.asarray(x, np.float64)[None, :] for x in initial)
    weights, solved = np.ones(1), True
    tell(f"{method.name} with {steps} steps, {each**steps:,} outcomes")
    for _ in range(steps):
        chunks = _chunks(q, p, size=max(1, CHUNK // each))
        parts = [call(_branch, system, method, *chunk, float(dt), increments) for chunk in chunks]
        new = [np.concatenate([np.asarray(part[i]) for part in parts]) for i in range(3)]
        q, p, ok = (x[: len(q)].reshape(len(q) * each, -1) for x in new)
        weights = np.outer(weights, probabilities).ravel()
        solved = solved and bool(ok.all())
    z = np.concatenate([q, p], axis=1)
    found = {n: float(weights @ observe_all(system, phi, z)) for n, phi in observables.items()}
    return found, solved and all(np.isfinite(list(found.values())))


def observe_all(system: System, phi: Callable[..., Any], z: np.ndarray) -> np.ndarray:
    """The observable at many states z = (q, p) of shape (states, 2·dim)."""
    q, p = np.split(z, 2, axis=1)
    run = _values(system.shared, system.known(phi))
    values = [with_precision(run, *chunk, system.params) for chunk in _chunks(q, p, CHUNK)]
    return np.concatenate([np.asarray(x) for x in values])[: len(q)]


def _chunks(q: np.ndarray, p: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The states in pieces of one size, the last filled up with copies of the first state."""
    for first in range(0, len(q), size):
        rows = np.arange(first, first + size)
        rows[rows >= len(q)] = 0
        yield q[rows], p[rows]


@kept
def _branch(stepper: Stepper) -> Any:
    """One step of many states with all increments: (states, outcomes, dim)."""

    def one(*arguments: Any) -> Any:
        q, p, info = one_step(stepper)(*arguments)
        return q, p, info.converged

    over_outcomes = jax.vmap(one, in_axes=(None, None, None, 0, None))
    return jax.jit(jax.vmap(over_outcomes, in_axes=(0, 0, None, None, None)))


@kept
def _values(system: System, phi: Keyed) -> Any:
    def one(q: Any, p: Any, params: Any) -> Any:
        return jnp.asarray(system.evaluate(phi.value, q, p, params), q.dtype)

    return jax.jit(jax.vmap(one, in_axes=(0, 0, None)))


def extrapolate(dts: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The limit for dt → 0 of values that are a power series in dt, and how sure it is.

    The polynomial through all points at dt = 0 (Richardson); the doubt is its distance from the
    polynomial without the coarsest point. It assumes no order.
    """

    def limit(h: np.ndarray, y: np.ndarray) -> float:
        weights = [np.prod(np.delete(h, i) / (np.delete(h, i) - h[i])) for i in range(len(h))]
        return float(np.dot(weights, y))

    order = np.argsort(dts)[::-1]
    h, y = np.asarray(dts)[order], np.asarray(values)[order]
    return limit(h, y), abs(limit(h, y) - limit(h[1:], y[1:]))
