"""Where theorems are tried out: points of phase space, increments, and paths of a method.

increments = draw_increments(system, method, dt=0.1, steps=1000, seed=0)
path = walk_path(system, method, (q0, p0), dt=0.1, increments=increments)
path.q, path.p          # shapes (steps + 1, dim), the start included
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.caches import kept
from dalembert.ensemble.progress import tell
from dalembert.methods import Method
from dalembert.noise import Increments, brownian_path, coarsen, real_increments, usual_noise
from dalembert.precision import check_dt, is_traced, with_precision
from dalembert.stepping.project import check_start, only_on_constraints
from dalembert.stepping.step import as_increments, check_method
from dalembert.stepping.stepper import StepInfo, Stepper, make_stepper
from dalembert.system import System

BLOCK = 2**22
"""Fine increments held at a time: 32 MiB of ΔW and as much of ΔZ."""


class WalkedPath(NamedTuple):
    """One path of a method.

    Attributes:
        q, p: the states, shape (steps + 1, dim), beginning with the start.
        info: the `StepInfo` of every step, shapes (steps,).
    """

    q: Any
    p: Any
    info: StepInfo


def check_pair(system: System, points: Any) -> tuple[np.ndarray, np.ndarray]:
    """Points (q, p) of phase space that somebody gave, as arrays of shape (count, dim)."""
    if not (isinstance(points, tuple | list) and len(points) == 2):
        raise TypeError("points must be a pair (q, p) of arrays of shape (count, dim).")
    q, p = (np.asarray(x, np.float64) for x in points)
    if q.shape != p.shape or system.shape not in (q.shape, q.shape[1:]) or not q.size:
        wanted = f"({', '.join(map(str, ('count', *system.shape)))})"
        raise ValueError(
            f"points must be a pair (q, p), both of shape {wanted}, not "
            f"{np.shape(points[0])} and {np.shape(points[1])}."
        )
    return q.reshape(-1, system.dim), p.reshape(-1, system.dim)


def sample_points(system: System, points: Any, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """So many independent standard normal points, or the given ones, each of shape (count, dim)."""
    if not isinstance(points, int | np.integer):
        return check_pair(system, points)
    q, p = np.random.default_rng(seed).standard_normal((2, points, system.dim))
    return q, p


def state(system: System, start: Any) -> tuple[Any, Any]:
    """(q0, p0) as vectors of shape (dim,)."""
    if not isinstance(start, tuple | list) or len(start) != 2:
        raise TypeError(f"give the initial state as a pair (q0, p0), not {start!r}.")
    q, p = system.flat("q0", start[0]), system.flat("p0", start[1])
    if is_traced(q, p, system.params):
        q, p = only_on_constraints(system, q[None], p[None], system.params)
        return q[0], p[0]
    check_start(system, np.asarray(q)[None], np.asarray(p)[None])
    return q, p


def draw_increments(
    system: System, method: Method, dt: float, steps: int, seed: int = 0, path: int = 0
) -> Increments:
    """The increments that a run of the method draws on one path, with a leading axis of steps."""
    check_method(system, method)
    noise = usual_noise(method.convergence, method.needs_for(system), dt)
    noise.check(dt=dt, steps=steps, noises=system.noises)

    def draw(number: Any) -> Increments:
        return jax.vmap(lambda k: noise.draw(seed, path, k, dt, system.noises, np.float64))(number)

    return with_precision(draw, np.arange(steps, dtype=np.uint32))


def path_increments(
    system: System, method: Method, dt: Any, steps: Any, seed: int, increments: Any
) -> Increments:
    """Increments of a path as a record: the given ones, checked (an array is dW), or drawn."""
    if increments is None:
        if steps is None:
            raise ValueError("give steps, the number of steps to draw, or the increments.")
        return draw_increments(system, method, dt, steps, seed)
    given = increments if isinstance(increments, Increments) else Increments(increments)
    record = real_increments(given)
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


def one_step(stepper: Stepper) -> Callable[..., tuple[Any, Any, StepInfo]]:
    """(q, p, dt, increments, params) → new q, new p, `StepInfo`, on arrays of shape (dim,).

    Those of a driven system have its clock; or the time of the step is the last argument.
    """
    dim = stepper.system.dim

    def advance(q: Any, p: Any, dt: Any, increments: Increments, params: Any, t: Any = None) -> Any:
        if t is not None:
            q, p = stepper.system.begin(q, p, t)
        q, p, info = stepper.advance(stepper.enter(q), stepper.enter(p), dt, increments, params)
        q, p = stepper.leave(q), stepper.leave(p)
        return (q, p, info) if t is None else (q[:dim], p[:dim], info)

    return advance


def take_steps(
    stepper: Stepper, q: Any, p: Any, dt: Any, increments: Increments, params: Any
) -> WalkedPath:
    """One step per row of the increments; may be compiled and differentiated."""

    def advance(state: tuple[Any, Any], increments: Increments) -> tuple[Any, Any]:
        q, p, info = one_step(stepper)(*state, dt, increments, params)
        return (q, p), (q, p, info)

    _, (qs, ps, info) = lax.scan(advance, (q, p), increments)
    return WalkedPath(jnp.concatenate([q[None], qs]), jnp.concatenate([p[None], ps]), info)


def walk_path(system: System, method: Method, start: Any, dt: float, increments: Any) -> WalkedPath:
    """Take one step per row of the increments, as in `path_increments`, and keep every state."""
    check_method(system, method)
    check_dt(dt)
    record = path_increments(system, method, dt, None, 0, increments)
    return call(_compiled, system, method, *state(system, start), float(dt), record)


def call(
    compiled: Callable[[Stepper], Any], system: System, method: Method, *arguments: Any
) -> Any:
    """`compiled(stepper)(*arguments, params)` for the step of a method on a system, in float64."""

    def run(*arguments: Any) -> Any:
        return compiled(make_stepper(system, method, np.float64))(*arguments)

    return with_precision(run, *arguments, system.params)


@kept
def _compiled(stepper: Stepper) -> Any:
    return jax.jit(lambda *arguments: take_steps(stepper, *arguments))


def brownian_paths(
    seed: int, first: int, count: int, dt: float, steps: int, noises: int
) -> Increments:
    """ΔW and ΔZ of paths first, first + 1, …: those of `brownian_path`, (count, steps, noises)."""

    def draw(numbers: Any) -> Increments:
        return jax.vmap(lambda path: brownian_path(seed, path, dt, steps, noises))(numbers)

    return with_precision(draw, first + np.arange(count, dtype=np.uint32))


def coarse_paths(
    fine: Increments, dt: float, factor: int, length: int, areas: bool = False
) -> Increments:
    """The same paths at the step factor·dt with time first, (length, count, noises).

    Rows that are not there are zeros: one length means one compilation for all step sizes, with a
    loop over time whose number of steps is an argument.
    """

    def time_first(field: Any) -> np.ndarray:
        field = np.moveaxis(np.asarray(field), 1, 0)
        return np.pad(field, ((0, length - len(field)), *[(0, 0)] * (field.ndim - 1)))

    return jax.tree.map(time_first, coarsen(fine, dt, factor, areas))


def over_time(advance: Callable[..., Any], first: Any, increments: Increments, steps: Any) -> Any:
    """`advance(carry, increments)` for the first `steps` rows of the increments."""

    def body(k: Any, carry: Any) -> Any:
        now = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, k, keepdims=False), increments)
        return advance(carry, now)

    return lax.fori_loop(0, steps, body, first)


class Ends(NamedTuple):
    """The ends of the paths for one method and one step size.

    z   states (q, p), shape (paths, 2·dim)
    ok  whether every step of the path was solved and is finite, shape (paths,)
    """

    z: np.ndarray
    ok: np.ndarray


def run_coupled(
    system: System,
    runs: Sequence[tuple[Any, int]],
    initial: tuple[Any, Any],
    t_end: float,
    fine: int,
    paths: int,
    seed: int,
) -> tuple[list[Ends], np.ndarray]:
    """The ends of each run, and W(t_end) of shape (paths, noises).

    A run is a method and a number of steps; `fine` is that of the finest path, a multiple of all.
    """
    blocks = -(-paths * fine * max(system.noises, 1) // BLOCK)
    size = -(-paths // blocks)
    longest = {method: max(n for m, n in runs if m == method) for method, _ in runs}
    parts: list[list[Ends]] = [[] for _ in runs]
    ends_of_W = []
    for first in range(0, paths, size):
        of_blocks = (
            f", paths {first:,}-{min(first + size, paths) - 1:,} of {paths:,}" if blocks > 1 else ""
        )
        tell(f"drawing Brownian paths{of_blocks}")
        drawn = brownian_paths(seed, first, size, t_end / fine, fine, system.noises)
        ends_of_W.append(np.sum(np.asarray(drawn.dW), axis=1))
        for part, (method, steps) in zip(parts, runs, strict=True):
            tell(f"{method.name} with {steps} steps{of_blocks}")
            needs = method.needs_for(system)
            record = drawn if "dZ" in needs else drawn._replace(dZ=None)
            sizes = fine // steps, longest[method]
            coarse = coarse_paths(record, t_end / fine, *sizes, areas="area" in needs)
            part.append(_ends(system, method, initial, t_end / steps, steps, coarse))
    joined = [Ends(*(np.concatenate(x)[:paths] for x in zip(*p, strict=True))) for p in parts]
    return joined, np.concatenate(ends_of_W)[:paths]


def _ends(
    system: System, method: Method, initial: Any, dt: float, steps: int, increments: Increments
) -> Ends:
    paths = increments.dW.shape[1]
    q, p = (np.tile(np.asarray(x, np.float64), (paths, 1)) for x in initial)
    q, p = system.begin(q, p)
    found = call(_walk, system, method, q, p, dt, increments, np.int32(steps))
    q, p, ok = map(np.asarray, found)
    z = np.concatenate([q[:, : system.dim], p[:, : system.dim]], axis=1)
    return Ends(z, ok & np.isfinite(z).all(axis=1))


@kept
def _walk(stepper: Stepper) -> Any:
    """The compiled loop over time for all paths at once."""
    steps_of_all = jax.vmap(one_step(stepper), in_axes=(0, 0, None, 0, None))

    def walk(q: Any, p: Any, dt: Any, increments: Increments, steps: Any, params: Any) -> Any:
        def advance(carry: Any, increments: Increments) -> Any:
            q, p, ok = carry
            q, p, info = steps_of_all(q, p, dt, increments, params)
            return q, p, ok & info.converged

        return over_time(advance, (q, p, jnp.ones(len(q), bool)), increments, steps)

    return jax.jit(walk)
