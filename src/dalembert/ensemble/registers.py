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
from dalembert.ensemble.kernel_code import IN_TRITON, evaluate_expanded, operations
from dalembert.ensemble.march import Block, Fast, Moving, PathState, Stretch, moving
from dalembert.ensemble.one_path import draw_scalars, is_unrolled, step_scalars
from dalembert.ensemble.words import bits_of, gather, row, rows_of, unpack
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


def why_not_in_registers(
    stepper: Fast, noise: Noise, needs: frozenset[str], params: Any, paths: int
) -> str:
    """Why there is no kernel for these steps with parameters of these types; empty if there is."""
    if not stepper.is_scalar:
        return "steps on arrays have no form in Triton"
    try:
        trace, _ = _traced(stepper, noise, needs, params, paths)
    except NotScalarError as error:
        return f"no straight-line form for: {error}"
    unknown = operations(trace) - IN_TRITON
    return f"Triton has no {', '.join(sorted(unknown))}" if unknown else ""


def march_in_registers(stepper: Fast, state: PathState, block: Block, stretch: Stretch) -> Moving:
    """The steps of a stretch, with as many Newton steps as some path of a tile needs."""
    start = moving(state)
    lanes = jax.tree.leaves((block.path, start.q, start.p))
    paths, types = len(lanes[0]), [x.dtype for x in lanes]
    word = bits_of(stepper.dtype)
    trace, tile = _traced(stepper, block.noise, stretch.needs, block.params, paths)
    shared = [*jax.tree.leaves(block.params), block.seed, block.dt]
    shared.append(jnp.stack([stretch.first, stretch.count]))

    def kernel(*refs: Any) -> None:
        # Shared numbers are read one by one: a scalar is the only small array there is.
        scalars = [x for ref, of in zip(refs, shared, strict=False) for x in _read(ref, of)]
        *_, rows, out = refs
        read = rows[...]
        own = [row(read, i, dtype) for i, dtype in enumerate(types)]
        out[...] = gather(evaluate_expanded(trace, [*own, *scalars]), word)

    flat, rows = [_padded(x) for x in shared], rows_of(lanes, word)
    ends, tree = jax.tree.flatten(start)
    out = jax.eval_shape(lambda: rows_of(ends, word))
    run = pl.pallas_call(
        kernel,
        grid=(paths // tile,),
        in_specs=[*(pl.BlockSpec(x.shape, lambda i: (0,)) for x in flat), _columns(rows, tile)],
        out_specs=_columns(out, tile),
        out_shape=out,
        interpret=INTERPRETED,
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
    )
    return jax.tree.unflatten(tree, unpack(run(*flat, rows), [x.dtype for x in ends]))


def _traced(
    stepper: Fast, noise: Noise, needs: frozenset[str], params: Any, paths: int
) -> tuple[Any, int]:
    """What a program of the kernel computes, and of how many paths."""
    tile = min(TILE if stepper.size <= MAX_FOR_TWO else SMALL_TILE, paths)
    assert paths % tile == 0, "blocks are powers of two"
    leaves, tree = jax.tree.flatten(params)
    types = tuple(jax.ShapeDtypeStruct(np.shape(x), x.dtype) for x in leaves)
    return _trace(stepper, noise, needs, types, tree, tile), tile


@kept
def _trace(
    stepper: Fast,
    noise: Noise,
    needs: frozenset[str],
    params: tuple[Any, ...],
    tree: Any,
    tile: int,
) -> Any:
    """The trace of a program: of numbers and states of its paths, and of numbers that they share.

    The latter are scalars: parameters of these types, which form a tree, the seed, Δt, and which
    step is the first and how many there are. An error is not kept, and so the arrays of a noise
    that was recorded are not either.
    """
    draw = draw_scalars(stepper, noise, needs)

    def run(path: Any, q: Any, p: Any, numbers: Any, seed: Any, dt: Any, steps: Any) -> Moving:
        arrays = [vector(row).reshape(x.shape) for row, x in zip(numbers, params, strict=True)]
        block = Block(path, None, vector(seed), dt, jax.tree.unflatten(tree, arrays), noise)
        zeros = jnp.zeros(tile, stepper.dtype), *[jnp.zeros(tile, np.int32)] * 2
        return _march_tile(stepper, Moving(q, p, *zeros), block, draw, steps)

    def one(dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((), dtype)

    def lane(dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((tile,), dtype)

    state = (lane(stepper.dtype),) * stepper.system.entries
    numbers = [[one(x.dtype)] * int(np.prod(x.shape)) for x in params]
    words, steps = (one(np.uint32),) * 2, (one(np.int32),) * 2
    return jax.make_jaxpr(run)(
        (lane(np.uint32),) * 2, state, state, numbers, words, one(stepper.dtype), steps
    )


def _columns(rows: Any, tile: int) -> pl.BlockSpec:
    """The words of the paths of a program."""
    return pl.BlockSpec((rows.shape[0], tile), lambda i: (0, i))


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


def _read(ref: Any, of: Any) -> list[Any]:
    """Numbers that all paths share, one by one."""
    return [ref[i] for i in range(int(np.prod(np.shape(of))))]


def _padded(x: Any) -> Any:
    """An array as a row of a power of two of numbers, which is what a kernel can take."""
    flat = jnp.ravel(x)
    room = 1 << max(flat.size - 1, 0).bit_length()
    return jnp.pad(flat, (0, room - flat.size))
