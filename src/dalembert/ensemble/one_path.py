"""Noise and fast steps of one path as functions of scalars, for kernels that have no arrays."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.ensemble.march import Block, Moving, needed
from dalembert.noise import Four, Increments, Noise
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.expressions import vector
from dalembert.stepping.newton import worse
from dalembert.stepping.scalarise import scalarise
from dalembert.stepping.stepper import Stepper

__all__ = ["draw_scalars", "is_unrolled", "step_scalars"]

MAX_UNROLLED = 150
"""Operations of a step that may be written out four times."""


def is_unrolled(stepper: Stepper) -> bool:
    """Whether kernels write out four steps.

    What one step computes at its end and the next at its start is computed once then. There is
    nothing to gain where nonlinear equations are solved.
    """
    return not stepper.is_nonlinear and stepper.size <= MAX_UNROLLED


def draw_scalars(stepper: Stepper, noise: Noise, needs: frozenset[str]) -> Callable[..., Four]:
    """The increments of four steps of one path, with nested lists of scalars for arrays."""
    noises, dtype = stepper.system.noises, stepper.dtype

    def draw(seed: Any, path: Any, number: Any, dt: Any) -> Four:
        return needed(noise.draw_four(seed, path, number, dt, noises, dtype), needs)

    word, seed = jax.ShapeDtypeStruct((), np.uint32), jax.ShapeDtypeStruct((2,), np.uint32)
    written_out = scalarise(draw, seed, (word, word), word, jax.ShapeDtypeStruct((), dtype))
    return lambda *args: jax.tree.map(lambda x: x.tolist(), written_out(*args))


def step_scalars(stepper: Stepper, block: Block, now: Moving, chosen: Increments) -> Moving:
    """One step, with as many Newton steps as it needs."""
    dW, dZ, mixed = (_as_array(f, stepper.system.noises) for f in chosen[:3])
    increments = Increments(dW, dZ, mixed)
    q, p, info = stepper.advance(now.q, now.p, block.dt, increments, block.params, Solver.LOOP)
    truncated = now.truncated
    if chosen.truncated is not None:
        truncated += chosen.truncated
    iterations = jnp.maximum(now.iterations, info.iterations)
    return Moving(q, p, worse(now.residual, info.residual), truncated, iterations)


def _as_array(field: Any, noises: int) -> Any:
    """Nested lists of scalars as a NumPy array of them; every axis is one of noises."""
    if field is None:
        return None
    leaves = jax.tree.leaves(field)
    return vector(leaves).reshape((noises,) * (1 if len(leaves) == noises else 2))
