"""Where theorems are tried out: sample points of phase space, increments, and one path.

increments = draw_increments(system, method, dt=0.1, steps=1000, seed=0)
path = walk(system, method, (q0, p0), dt=0.1, increments=increments)
path.q, path.p          # shapes (steps + 1, dim), the start included
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.noise import Gaussian, Increments, ThreePoint
from dalembert.precision import with_precision
from dalembert.stepping.step import as_increments, check_method, vector
from dalembert.stepping.stepper import StepInfo, Stepper, make_stepper
from dalembert.system import System

__all__ = ["Walk", "draw_increments", "path_increments", "sample_points", "walk"]


class Walk(NamedTuple):
    """One path of a method.

    Attributes:
        q, p: the states, shape (steps + 1, dim), beginning with the start.
        info: the `StepInfo` of every step, shapes (steps,).
    """

    q: Any
    p: Any
    info: StepInfo


def sample_points(
    system: System, points: int | tuple[Any, Any], seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Points (q, p) of phase space, each of shape (points, dim).

    Args:
        system: whose phase space.
        points: how many, independent and standard normal; or the points (q, p) themselves.
        seed: of the drawn points.
    """
    if isinstance(points, int | np.integer):
        q, p = np.random.default_rng(seed).standard_normal((2, points, system.dim))
        return q, p
    q, p = (np.asarray(x, np.float64) for x in points)
    if q.shape != p.shape or q.ndim != 2 or q.shape[1] != system.dim or not len(q):
        raise ValueError(
            f"points must be (q, p), both of shape (points, {system.dim}), not {q.shape} and "
            f"{p.shape}; or their number."
        )
    return q, p


def draw_increments(
    system: System, method: Any, dt: float, steps: int, seed: int = 0, path: int = 0
) -> Increments:
    """The increments that a run of the method draws on one path, with a leading axis of steps.

    Gaussian for methods that converge in mean square, three-point for weak ones.
    """
    check_method(system, method)
    noise = ThreePoint() if method.convergence == "weak" else Gaussian()
    noise.check(dt=dt, steps=steps, noises=system.noises)

    def draw(number: Any) -> Increments:
        return jax.vmap(lambda k: noise.draw(seed, path, k, dt, system.noises, np.float64))(number)

    return with_precision(draw, np.arange(steps, dtype=np.uint32))


def path_increments(system: System, method: Any, increments: Any) -> Increments:
    """Increments of a whole path as a record, checked; an array is taken for dW."""
    record = increments if isinstance(increments, Increments) else Increments(increments)
    shape = np.shape(record.dW)
    if len(shape) != 2 or shape[1] != system.noises:
        raise ValueError(
            f"the increments of a path must have shape (steps, {system.noises}), one row per step "
            f"and one column per Wiener process of {system.name!r}, not {shape}."
        )
    record = record._replace(truncated=None)
    if shape[0]:
        as_increments(system, method, jax.tree.map(lambda x: np.asarray(x)[0], record))
    return record


def walk(system: System, method: Any, start: tuple[Any, Any], dt: float, increments: Any) -> Walk:
    """Take one step per row of the increments and keep every state.

    Args:
        system: what to simulate.
        method: a tableau, e.g. `da.midpoint()`.
        start: (q0, p0), each of shape (dim,).
        dt: step size, > 0.
        increments: dW of shape (steps, noises), or an `Increments` record with such fields.
    """
    check_method(system, method)
    if not (np.ndim(dt) == 0 and np.isfinite(dt) and dt > 0):
        raise ValueError(f"dt must be a positive number, not {dt!r}.")
    q, p = (vector(name, x, system.dim) for name, x in zip(("q0", "p0"), start, strict=True))
    record = path_increments(system, method, increments)

    def run(q: Any, p: Any, dt: Any, record: Increments, params: Any) -> Walk:
        return _compiled(make_stepper(system, method, np.float64))(q, p, dt, record, params)

    return with_precision(run, q, p, np.asarray(dt, np.float64), record, system.params)


@lru_cache(maxsize=64)
def _compiled(stepper: Stepper) -> Any:
    def run(q: Any, p: Any, dt: Any, increments: Increments, params: Any) -> Walk:
        def advance(state: tuple[Any, Any], increments: Increments) -> tuple[Any, Any]:
            q, p = map(stepper.enter, state)
            q, p, info = stepper.advance(q, p, dt, increments, params)
            state = stepper.leave(q), stepper.leave(p)
            return state, (*state, info)

        _, (qs, ps, info) = lax.scan(advance, (q, p), increments)
        return Walk(jnp.concatenate([q[None], qs]), jnp.concatenate([p[None], ps]), info)

    return jax.jit(run)
