"""Noise and fast steps of one path as functions of scalars, for kernels that have no arrays."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dalembert.ensemble.march import Block, Fast, Moving, advanced, needed
from dalembert.noise import Group, Increments, Noise
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.expressions import vector
from dalembert.stepping.scalarise import scalarise

MAX_UNROLLED = 150
"""Operations of a step that may be written out for every step of a group."""


def is_unrolled(stepper: Fast) -> bool:
    """Whether kernels write out the steps of a group.

    What one step computes at its end and the next at its start is computed once then. There is
    nothing to gain where nonlinear equations are solved.
    """
    return not stepper.is_nonlinear and stepper.size <= MAX_UNROLLED


def draw_scalars(stepper: Fast, noise: Noise, needs: frozenset[str]) -> Callable[..., Group]:
    """The increments of a group of steps of one path, with nested lists of scalars for arrays."""
    noises, dtype = stepper.system.noises, stepper.dtype

    def draw(seed: Any, path: Any, number: Any, dt: Any) -> Group:
        return needed(noise.draw_together(seed, path, number, dt, noises, dtype), needs)

    word, seed = jax.ShapeDtypeStruct((), np.uint32), jax.ShapeDtypeStruct((2,), np.uint32)
    written_out = scalarise(draw, seed, (word, word), word, jax.ShapeDtypeStruct((), dtype))
    return lambda *args: jax.tree.map(lambda x: x.tolist(), written_out(*args))


def step_scalars(stepper: Fast, block: Block, now: Moving, chosen: Increments) -> Moving:
    """One step, with as many Newton steps as it needs."""
    arrays = {name: _as_array(x) for name, x in chosen._asdict().items()}
    return advanced(stepper, block, now, Increments(**arrays), Solver.LOOP)[0]


def _as_array(field: Any) -> Any:
    """Nested lists of scalars as a NumPy array of them; a scalar as it is."""
    shape, inner = [], field
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
    return vector(jax.tree.leaves(field)).reshape(shape) if shape else field
