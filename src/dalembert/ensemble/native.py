"""Fast steps of many paths on a CPU: a kernel of vector instructions, made with LLVM.

It does what `march_fast` does, with states and noise in registers through a whole stretch of steps,
and with as many Newton steps as some path beside it needs.
XLA writes every intermediate result of a step to memory, and computes many of them several times.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import llvmlite
import numpy as np
from llvmlite import binding

from dalembert.caches import kept
from dalembert.ensemble.engine import March, OnBlock, RefusedError, Steps
from dalembert.ensemble.kept_code import kept_code
from dalembert.ensemble.lanes import Lanes, NoVectorFormError, branch, loop
from dalembert.ensemble.march import Block, Fast, Moving, PathState, Status, accepted
from dalembert.ensemble.native_entry import (
    LONG,
    WORD,
    MarchEntry,
    addresses,
    element,
    shared_numbers,
)
from dalembert.ensemble.one_path import draw_scalars, is_unrolled, step_scalars
from dalembert.noise import Noise
from dalembert.stepping.expressions import vector
from dalembert.stepping.residuals import tolerance
from dalembert.stepping.scalarise import NotScalarError
from dalembert.stepping.stepper import Stepper
from dalembert.stepping.wider import wider

REGISTERS = {1: 4, 2: 2}
"""Vector registers for one number of many paths, by degrees of freedom: independent ones hide how
long an operation takes, but a step in more dimensions has none to spare."""

WIDEST = 64
"""More paths than vector code takes at a time: of blocks that are larger, all have the same."""


class PathCode(NamedTuple):
    """Jaxprs of one path: the increments of a group of steps, and a step, both of scalars alone.

    Attributes:
        draw: (seed low, seed high, path low, path high, number of the group, dt) → increments.
        together: steps of a group.
        step: (state, increments of one step, dt, params) → state.
        state: types of the state.
        shared: types of dt and params.
        is_unrolled: whether the steps of a group are written out.
    """

    draw: Any
    together: int
    step: Any
    state: list[np.dtype]
    shared: list[np.dtype]
    is_unrolled: bool


def trace_path(stepper: Fast, needs: frozenset[str], noise: Noise, params: Any) -> PathCode:
    """The code of one path, for parameters of the types of `params`."""
    entries, dtype = stepper.system.entries, stepper.dtype
    word, real = jax.ShapeDtypeStruct((), np.uint32), jax.ShapeDtypeStruct((), dtype)
    whole = jax.ShapeDtypeStruct((), np.int32)
    draw = draw_scalars(stepper, noise, needs)
    drawn = jax.make_jaxpr(
        lambda low, high, *args: draw(vector([low, high]), *args), return_shape=True
    )
    draw_code, group = drawn(word, word, (word, word), word, real)
    leaves, tree = jax.tree.flatten(number_types(params, stepper))
    numbers = [[jax.ShapeDtypeStruct((), x.dtype)] * int(np.prod(x.shape)) for x in leaves]

    def step(now: Moving, chosen: Any, dt: Any, numbers: list[list[Any]]) -> Moving:
        arrays = [vector(row).reshape(x.shape) for row, x in zip(numbers, leaves, strict=True)]
        block = Block((0, 0), None, None, dt, jax.tree.unflatten(tree, arrays), noise)
        return step_scalars(stepper, block, now, chosen)

    state = Moving((real,) * entries, (real,) * entries, real, whole, whole)
    step_code = jax.make_jaxpr(step)(state, group[0], real, numbers)
    types = [np.dtype(x.dtype) for x in jax.tree.leaves(state)]
    shared = [np.dtype(x.dtype) for x in jax.tree.leaves((real, numbers))]
    return PathCode(draw_code, noise.together, step_code, types, shared, is_unrolled(stepper))


def write_march(code: PathCode, width: int) -> str:
    """LLVM code of a function march(arrays, shared numbers, tiles, first step, end).

    It returns the number of tiles in which a path is not finite or has not solved its equations.
    """
    types = [np.dtype(np.uint32)] * 2 + code.shared
    entry = MarchEntry(width, 2 + len(code.state), types, [LONG, WORD, WORD])
    (tiles, first, end), lanes, b = entry.rest, entry.lanes, entry.lanes.builder
    walk = walk_of_lanes(lanes, code, entry.shared, first, end)

    def tile(number: Any, bad: list[Any]) -> list[Any]:
        place = b.mul(number, LONG(width))
        spots = [
            element(b, pointer, place, dtype)
            for pointer, dtype in zip(entry.arrays, [*types[:2], *code.state], strict=True)
        ]
        low, high = (b.load(spot, typ=lanes.type(np.uint32), align=4) for spot in spots[:2])
        start = [
            b.load(spot, typ=lanes.type(dtype), align=np.dtype(dtype).itemsize)
            for spot, dtype in zip(spots[2:], code.state, strict=True)
        ]

        done = walk(low, high, start)
        for spot, x, dtype in zip(spots[2:], done, code.state, strict=True):
            b.store(x, spot, align=np.dtype(dtype).itemsize)
        return [b.add(bad[0], b.zext(lanes.any(b.not_(is_fine(lanes, done))), LONG))]

    b.ret(loop(b, LONG(0), tiles, [LONG(0)], tile)[0])
    return str(entry)


def flat(trees: Any) -> list[Any]:
    """All numbers in a tree of arrays."""
    return [x for leaf in jax.tree.leaves(trees) for x in np.ravel(leaf)]


def walk_of_lanes(
    lanes: Lanes, code: PathCode, known: list[Any], first: Any, end: Any
) -> Callable[[Any, Any, list[Any]], list[Any]]:
    """Writes the steps from `first` to `end`: (path low, path high, state) → state.

    It is made where the function begins, whose memory it takes; `known` are what paths share.
    """
    b, together = lanes.builder, code.together
    seed, dt, params = known[:2], known[2], known[3:]
    kinds = [v.aval.dtype for v in code.draw.jaxpr.outvars]
    per_step = len(kinds) // together
    room = [b.alloca(lanes.type(kinds[i]), WORD(together)) for i in range(per_step)]

    def walk(low: Any, high: Any, start: list[Any]) -> list[Any]:
        def group(number: Any, now: list[Any]) -> list[Any]:
            # Drawn in both branches, so that one of them need not store what is drawn.
            def draw() -> list[Any]:
                return lanes.run(code.draw, [*seed, low, high, lanes.spread(number), dt])

            def some(now: list[Any]) -> list[Any]:
                for i, x in enumerate(draw()):
                    slot = b.gep(room[i % per_step], [WORD(i // per_step)], source_etype=x.type)
                    b.store(x, slot)

                def one(place: Any, now: list[Any]) -> list[Any]:
                    chosen = [
                        b.load(b.gep(r, [place], source_etype=lanes.type(t)), typ=lanes.type(t))
                        for r, t in zip(room, kinds, strict=False)
                    ]
                    return lanes.run(code.step, [*now, *chosen, dt, *params])

                return loop(b, from_here, to, now, one)

            def whole(now: list[Any]) -> list[Any]:
                drawn = draw()
                for place in range(together):
                    chosen = drawn[place * per_step : (place + 1) * per_step]
                    now = lanes.run(code.step, [*now, *chosen, dt, *params])
                return now

            before = b.mul(number, WORD(together))
            from_here = b.select(b.icmp_unsigned(">", first, before), b.sub(first, before), WORD(0))
            rest = b.sub(end, before)
            to = b.select(b.icmp_unsigned("<", rest, WORD(together)), rest, WORD(together))
            if not code.is_unrolled:
                return some(now)
            is_whole = b.icmp_unsigned("==", b.sub(to, from_here), WORD(together))
            return branch(b, is_whole, whole, some, now)

        last = b.udiv(b.add(end, WORD(together - 1)), WORD(together))
        return loop(b, b.udiv(first, WORD(together)), last, start, group)

    return walk


def is_fine(lanes: Lanes, done: list[Any]) -> Any:
    """Whether paths are finite and have solved their equations, from what a march changes."""
    b, (*state, residual, _, _) = lanes.builder, done
    size = reduce(b.fadd, (lanes.intrinsic("fabs", x) for x in state))
    dtype = np.dtype(np.float64 if residual.type == lanes.type(np.float64) else np.float32)
    is_finite = b.fcmp_ordered("<", size, lanes.constant(np.inf, dtype))
    limit = lanes.constant(tolerance(dtype), dtype)
    return b.and_(is_finite, b.fcmp_ordered("<=", residual, limit))


class NativeMarch:
    """Compiled steps of many paths."""

    def __init__(self, code: PathCode, width: int) -> None:
        self.width, self._shared = width, code.shared
        self._code, address = machine_code(write_march(code, width))
        pointer, long, word = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32
        self._call = ctypes.CFUNCTYPE(long, pointer, pointer, long, word, word)(address)

    def on(
        self, path: Any, seed: Any, shared: Any, real: int
    ) -> Callable[[Sequence[np.ndarray], int, int], bool]:
        """A function of (what moves, first step, number of steps) that takes these steps in place.

        The number of paths is a multiple of `width`; those beyond the `real` ones and their
        neighbours stay where they are. The function says whether all paths are finite and have
        solved their equations.
        """
        path = [np.ascontiguousarray(words) for words in path]
        types = [np.dtype(np.uint32)] * 2 + self._shared
        numbers = shared_numbers([*seed, *shared], types)
        tiles = -(-real // self.width)

        def march(moving: Sequence[np.ndarray], first: int, count: int) -> bool:
            pointers = addresses([*path, *moving])
            return self._call(pointers, numbers.ctypes.data, tiles, first, first + count) == 0

        return march


def machine_code(text: str) -> tuple[Any, int]:
    """The function `march` in memory: what keeps it there, and where it is."""
    from dalembert import __version__

    machine, versions = _machine(), (__version__, llvmlite.__version__, binding.llvm_version_info)
    follows_from = (text, *map(str, (*versions, PROCESSOR, PIPELINE, machine.triple, *_host())))
    code = kept_code(follows_from, partial(_compiled, text, machine))
    # JITLink puts code and constants side by side, and reaches functions of the C library, which
    # may be far away, through jumps of its own.
    linker = binding.create_lljit_compiler(machine, use_jit_link=True)
    library = binding.JITLibraryBuilder().add_object_img(code)
    library.export_symbol("march").add_current_process()
    try:
        linked = library.link(linker, "march")
    except RuntimeError as error:
        raise NoVectorFormError(f"code that cannot be linked: {error}") from error
    return linked, linked["march"]


PROCESSOR = {"opt": 3, "reloc": "pic", "codemodel": "small"}
"""How code for a processor is made. Constants are read where they are used."""

PIPELINE = {"loop_unrolling": False, "loop_vectorization": False, "slp_vectorization": False}
"""What LLVM leaves out of its optimisations of the third level."""


def _compiled(text: str, machine: Any) -> bytes:
    """Object code of an optimised text."""
    try:
        module = binding.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise NoVectorFormError(f"code that LLVM refuses: {error}") from error
    options = binding.create_pipeline_tuning_options(speed_level=3)
    for name, value in PIPELINE.items():
        setattr(options, name, value)
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


def _machine() -> Any:
    """This computer's processor."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target, (name, features) = binding.Target.from_default_triple(), _host()
    return target.create_target_machine(cpu=name, features=features, **PROCESSOR)


def _host() -> tuple[str, str]:
    return binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


def vector_march(steps: Steps) -> OnBlock:
    """Vector code for the blocks of a run; RefusedError if something has no such form."""
    stepper = steps.stepper if steps.is_spread else wider(steps.stepper)
    if not stepper.is_scalar:
        raise RefusedError(stepper.notice)
    fast = replace(steps, stepper=stepper).fast
    march = _march_or_reason(
        fast, steps.needs, steps.fast_noise, types_told(steps), min(steps.paths, WIDEST)
    )
    if isinstance(march, str):
        raise RefusedError(march)
    accept = _accepting(steps.stepper)

    def on_block(block: Block) -> March:
        told = steps.told(block)
        real = int(np.count_nonzero(told.is_real))
        run = march.on(told.path, np.asarray(told.seed), flat((told.dt, told.params)), real)

        def take(state: PathState, first: int, count: int) -> tuple[PathState, Any]:
            now, rows = _moving(state)
            all_fine = run(rows, first, count)
            if all_fine and not np.any(np.asarray(state.status) != Status.FINE):
                return state._replace(**now._asdict()), None
            truncated = now.truncated - np.asarray(state.truncated)
            after, hard = accept(state, now._replace(truncated=truncated))
            hard = np.asarray(hard)
            return after, hard if hard.any() else None

        return take

    return on_block


@kept
def _accepting(stepper: Stepper) -> Callable[..., tuple[PathState, Any]]:
    return jax.jit(partial(accepted, stepper))


def _moving(state: PathState) -> tuple[Moving, list[np.ndarray]]:
    """A copy of what a march changes, and the rows of numbers in it that vector code changes.

    Arrays of states, shape (paths, dim), are views of their rows.
    """
    moving = Moving(state.q, state.p, state.residual, state.truncated, state.iterations)
    leaves, tree = jax.tree.flatten(moving)
    columns = [np.array(np.transpose(x), order="C") for x in leaves]
    rows = [row for x in columns for row in np.atleast_2d(x)]
    return jax.tree.unflatten(tree, [x.T for x in columns]), rows


def number_types(params: Any, stepper: Fast) -> Any:
    """The shapes of parameters, and the types in which a run takes them."""

    def of(x: Any) -> jax.ShapeDtypeStruct:
        dtype = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
        is_float = np.issubdtype(dtype, np.floating)
        return jax.ShapeDtypeStruct(np.shape(x), stepper.dtype if is_float else dtype)

    return jax.tree.map(of, params)


@kept
def _march_or_reason(
    stepper: Fast, needs: frozenset[str], noise: Noise, params: Any, paths: int
) -> NativeMarch | str:
    """Compiled steps, or why there are none."""
    try:
        return compile_march(stepper, needs, noise, params, paths)
    except (NotScalarError, NoVectorFormError) as error:
        return f"no vector form for {error}"


@kept
def compile_march(
    stepper: Fast, needs: frozenset[str], noise: Noise, params: Any, paths: int
) -> NativeMarch:
    """Compiled steps for parameters of some types, as (leaves, structure)."""
    code = path_code(stepper, needs, noise, params)
    return NativeMarch(code, vector_width(stepper.system.dim, paths))


@kept
def path_code(stepper: Fast, needs: frozenset[str], noise: Noise, params: Any) -> PathCode:
    """The code of one path for parameters of some types, as (leaves, structure)."""
    leaves, tree = params
    return trace_path(stepper, needs, noise, jax.tree.unflatten(tree, leaves))


def types_told(steps: Steps) -> Any:
    """Types of what paths are told besides their numbers, as (leaves, structure)."""
    params = steps.params if steps.maps is None else steps.maps
    leaves, tree = jax.tree.flatten(number_types(params, steps.fast))
    return tuple(leaves), tree


def vector_width(dim: int, paths: int) -> int:
    """Paths that vector code takes at a time."""
    return min(REGISTERS[min(dim, max(REGISTERS))] * _numbers_per_register(), paths)


def _numbers_per_register() -> int:
    """How many float64 numbers a vector register of this processor holds."""
    features = binding.get_host_cpu_features()
    return 8 if features.get("avx512f") else 4 if features.get("avx2") else 2
