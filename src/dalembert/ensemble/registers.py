"""Fast steps of many paths in one GPU kernel, with states and noise in registers.

A program of the kernel takes a tile of paths through all steps of a stretch; nothing but the states
at its ends goes through memory. Everything inside is straight-line code on scalars, that of the
step as well as that of the noise, because Triton has no small arrays. A tile takes as many Newton
steps as its paths need.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from dalembert.caches import kept
from dalembert.ensemble.kernel_code import IN_TRITON, expanded, operations
from dalembert.ensemble.march import OPTIONAL, Block, Fast, Moving, PathState, Stretch, moving
from dalembert.ensemble.one_path import draw_scalars, is_unrolled, step_scalars
from dalembert.noise import Group, Noise, pick
from dalembert.stepping.expressions import vector
from dalembert.stepping.scalarise import NotScalarError

TILE, WARPS = 64, 1
"""Paths of a program and the warps that share them: with one, a look at all paths is cheap, and two
paths per thread hide how long an operation takes."""

SMALL_TILE, MAX_FOR_TWO = 32, 400
"""One path per thread, for steps of more operations: two would not fit into its registers."""

INTERPRETED = False
"""Run the kernel without a GPU, slowly, for tests."""


def why_not_in_registers(stepper: Fast, noise: Noise, params: Any) -> str:
    """Why there is no kernel for these steps with parameters of these types; empty if there is."""
    if not stepper.is_scalar:
        return "steps on arrays have no form in Triton"
    leaves, tree = jax.tree.flatten(params)
    types = tuple(jax.ShapeDtypeStruct(np.shape(x), x.dtype) for x in leaves)
    try:
        unknown = kernel_operations(stepper, noise, types, tree) - IN_TRITON
    except NotScalarError as error:
        return f"no straight-line form for: {error}"
    return f"Triton has no {', '.join(sorted(unknown))}" if unknown else ""


@kept
def kernel_operations(
    stepper: Fast, noise: Noise, params: tuple[Any, ...], tree: Any
) -> frozenset[str]:
    """The operations of a kernel, given the types of its parameters and the tree that they form.

    An error is not kept, and so the arrays of a noise that was recorded are not either.
    """
    draw = draw_scalars(stepper, noise, OPTIONAL & noise.offers)

    def run(start: Moving, path: Any, seed: Any, dt: Any, numbers: Any, steps: Any) -> Moving:
        arrays = [vector(row).reshape(x.shape) for row, x in zip(numbers, params, strict=True)]
        told = jax.tree.unflatten(tree, arrays)
        block = Block(path, None, vector(seed), dt, told, noise)
        return _march_tile(stepper, start, block, draw, steps)

    def one(dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((), dtype)

    def lane(dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((TILE,), dtype)

    state = (lane(stepper.dtype),) * stepper.system.entries
    start = Moving(state, state, lane(stepper.dtype), lane(np.int32), lane(np.int32))
    path, seed, steps = (lane(np.uint32),) * 2, (one(np.uint32),) * 2, (one(np.int32),) * 2
    numbers = [[one(x.dtype)] * int(np.prod(x.shape)) for x in params]
    return operations(jax.make_jaxpr(run)(start, path, seed, one(stepper.dtype), numbers, steps))


def march_in_registers(stepper: Fast, state: PathState, block: Block, stretch: Stretch) -> Moving:
    """The steps of a stretch, with as many Newton steps as some path of a tile needs."""
    start = moving(state)
    lanes, tree = jax.tree.flatten((block.path, start))
    paths = len(lanes[0])
    tile = min(TILE if stepper.size <= MAX_FOR_TWO else SMALL_TILE, paths)
    assert paths % tile == 0, "blocks are powers of two"
    numbers = {"steps": jnp.stack([stretch.first, stretch.count]), "seed": block.seed}
    shared, shared_tree = jax.tree.flatten((numbers, block.dt, block.params))
    shapes = [np.shape(x) for x in shared]
    draw = draw_scalars(stepper, block.noise, stretch.needs)

    def kernel(*refs: Any) -> None:
        # Shared numbers are read one by one: a scalar is the only small array there is.
        scalars = [_read(ref, shape) for ref, shape in zip(refs, shapes, strict=False)]
        inputs, outputs = refs[len(shared) :][: len(lanes)], refs[len(shared) + len(lanes) :]
        path, now = jax.tree.unflatten(tree, [ref[...] for ref in inputs])
        numbers, dt, params = jax.tree.unflatten(shared_tree, scalars)
        told = Block(path, None, numbers["seed"], dt[()], params, block.noise)
        march = expanded(lambda now: _march_tile(stepper, now, told, draw, numbers["steps"]))
        end = march(now)
        for ref, x in zip(outputs, jax.tree.leaves(end), strict=True):
            ref[...] = x

    lane = pl.BlockSpec((tile,), lambda i: (i,))
    flat = [_padded(x) for x in shared]
    whole = [pl.BlockSpec(x.shape, lambda i: (0,)) for x in flat]
    out = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), jax.tree.leaves(start))
    run = pl.pallas_call(
        kernel,
        grid=(paths // tile,),
        in_specs=[*whole, *[lane] * len(lanes)],
        out_specs=[lane] * len(out),
        out_shape=out,
        interpret=INTERPRETED,
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
    )
    return jax.tree.unflatten(jax.tree.structure(start), run(*flat, *lanes))


def _march_tile(
    stepper: Fast, start: Moving, block: Block, draw: Callable[..., Any], steps: Any
) -> Moving:
    first, count = steps
    end, together = first + count, block.noise.together

    def group(number: Any, now: Moving) -> Moving:
        def of_path(path: Any) -> Group:
            return draw(block.seed, path, number.astype(jnp.uint32), block.dt)

        increments = jax.vmap(of_path)(block.path)

        step = jax.vmap(partial(step_scalars, stepper, block))
        begin = jnp.maximum(first - together * number, 0)
        stop = jnp.minimum(end - together * number, together)

        def some(now: Moving) -> Moving:
            return lax.fori_loop(
                begin, stop, lambda place, now: step(now, pick(place, increments)), now
            )

        def whole(now: Moving) -> Moving:
            return reduce(step, increments, now)

        if not is_unrolled(stepper):
            return some(now)
        return lax.cond(stop - begin == together, whole, some, now)

    return lax.fori_loop(first // together, (end + together - 1) // together, group, start)


def _read(ref: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that all paths share, as a NumPy array of scalars."""
    return vector(ref[i] for i in range(int(np.prod(shape)))).reshape(shape)


def _padded(x: Any) -> Any:
    """An array as a row of a power of two of numbers, which is what a kernel can take."""
    flat = jnp.ravel(x)
    room = 1 << max(flat.size - 1, 0).bit_length()
    return jnp.pad(flat, (0, room - flat.size))
