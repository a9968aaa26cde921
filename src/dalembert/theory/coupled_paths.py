"""Several methods and step sizes on the same Brownian paths.

The paths are those of `brownian_path` at one fine step; every run takes them coarsened, ΔW and ΔZ
both exact. Each method is compiled once, whatever the number of its step sizes: the increments are
padded to the length of the finest run, and the loop over steps has a length that is not compiled.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.noise import Increments, brownian_path, coarsen
from dalembert.precision import cast
from dalembert.stepping.stepper import Stepper, make_stepper
from dalembert.system import System

__all__ = ["Ends", "Run", "run_coupled"]

BLOCK = 2**22
"""Fine increments held at a time: 32 MiB of ΔW and as much of ΔZ."""


class Run(NamedTuple):
    """A method and the numbers of steps that it takes to the end."""

    method: Any
    steps: tuple[int, ...]


class Ends(NamedTuple):
    """The ends of the paths for one method and one step size.

    z   states (q, p), shape (paths, 2·dim)
    ok  whether every step of the path was solved and is finite, shape (paths,)
    """

    z: np.ndarray
    ok: np.ndarray


def run_coupled(
    system: System,
    runs: Sequence[Run],
    initial: tuple[Any, Any],
    t_end: float,
    fine: int,
    paths: int,
    seed: int,
) -> tuple[list[list[Ends]], np.ndarray]:
    """The ends of each run at each of its step sizes, and W(t_end) of shape (paths, noises).

    `fine` is the number of steps of the finest path, a multiple of all others.
    """
    blocks = -(-paths * fine * max(system.noises, 1) // BLOCK)
    size = -(-paths // blocks)
    parts, ends_of_W = [], []
    with jax.enable_x64(True):
        for first in range(0, paths, size):
            increments = _draw(seed, first, size, t_end / fine, fine, system.noises)
            parts.append([_ends(system, run, initial, t_end, fine, increments) for run in runs])
            ends_of_W.append(np.sum(np.asarray(increments.dW), axis=1))
    joined = [
        [_join(blocks_of_one, paths) for blocks_of_one in zip(*run, strict=True)]
        for run in zip(*parts, strict=True)
    ]
    return joined, np.concatenate(ends_of_W)[:paths]


def _join(blocks: Sequence[Ends], paths: int) -> Ends:
    z, ok = (np.concatenate(field)[:paths] for field in zip(*blocks, strict=True))
    return Ends(z, ok)


def _draw(seed: int, first: int, size: int, dt: float, steps: int, noises: int) -> Increments:
    numbers = first + jnp.arange(size, dtype=jnp.uint32)
    return jax.vmap(lambda path: brownian_path(seed, path, dt, steps, noises))(numbers)


def _ends(
    system: System,
    run: Run,
    initial: tuple[Any, Any],
    t_end: float,
    fine: int,
    increments: Increments,
) -> list[Ends]:
    stepper = make_stepper(system, run.method, np.float64)
    if "dZ" not in run.method.needs(system.noises):
        increments = increments._replace(dZ=None)
    paths, longest = np.shape(increments.dW)[0], max(run.steps)
    q, p = (jnp.asarray(np.tile(np.asarray(x, np.float64), (paths, 1))) for x in initial)
    params = cast(system.params, np.dtype(np.float64))
    found = []
    for steps in run.steps:
        coarse = coarsen(increments, t_end / fine, fine // steps)
        padded = jax.tree.map(lambda field: _time_first(field, longest), coarse)
        new_q, new_p, ok = _walk(stepper)(q, p, padded, steps, t_end / steps, params)
        z = np.concatenate([np.asarray(new_q), np.asarray(new_p)], axis=1)
        found.append(Ends(z, np.asarray(ok) & np.isfinite(z).all(axis=1)))
    return found


def _time_first(field: Any, length: int) -> np.ndarray:
    """(paths, steps, m) to (length, paths, m), filled with zeros."""
    field = np.moveaxis(np.asarray(field), 1, 0)
    padded = np.zeros((length, *field.shape[1:]), field.dtype)
    padded[: len(field)] = field
    return padded


@lru_cache(maxsize=64)
def _walk(stepper: Stepper) -> Any:
    """The compiled loop over time for all paths at once."""

    def one(q: Any, p: Any, increments: Increments, dt: Any, params: Any) -> Any:
        q, p, info = stepper.advance(stepper.enter(q), stepper.enter(p), dt, increments, params)
        return stepper.leave(q), stepper.leave(p), info.converged

    advance = jax.vmap(one, in_axes=(0, 0, 0, None, None))

    def walk(q: Any, p: Any, increments: Increments, steps: Any, dt: Any, params: Any) -> Any:
        def body(k: Any, carry: Any) -> Any:
            q, p, ok = carry
            now = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, k, keepdims=False), increments)
            q, p, converged = advance(q, p, now, dt, params)
            return q, p, ok & converged

        return lax.fori_loop(0, steps, body, (q, p, jnp.ones(len(q), bool)))

    return jax.jit(walk)
