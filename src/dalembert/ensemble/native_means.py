"""Means of what paths have become, on a CPU: observables by vector code, and sums by NumPy.

It does what `Kernel.observe_rows` does for runs that are looked at once, at their end. XLA calls
the C library for every sine, and sums one number after another.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from llvmlite import ir

from dalembert.caches import kept
from dalembert.ensemble.kernel import Kernel, Saves
from dalembert.ensemble.lanes import Lanes, NoVectorFormError, element_type
from dalembert.ensemble.march import Block, PathState, Status
from dalembert.ensemble.native import (
    LONG,
    POINTER,
    WORD,
    loop,
    machine_code,
    types_of,
    vector_width,
)
from dalembert.statistics import Mean
from dalembert.statistics.mean import mean_of
from dalembert.stepping.expressions import vector
from dalembert.stepping.scalarise import NotScalarError, scalarise

MOST_NUMBERS = 256
"""Observed numbers of a path beyond which vector code takes long to compile."""

Observe = Callable[..., tuple[PathState, Any, Saves]]


def means_at_end(kernel: Kernel, params: Any, paths: int) -> Observe | None:
    """In place of `Kernel.observe_rows`; None if XLA has to do it."""
    observing, stepper = kernel.observing, kernel.stepper
    plain = all(type(statistic) is Mean for _, statistic in observing.statistics)
    if not plain or stepper.system.time or kernel.keep_all or not stepper.is_scalar:
        return None
    leaves, tree = jax.tree.flatten(types_of(params, stepper))
    if any(not isinstance(x.dtype, np.dtype) for x in leaves):
        return None
    try:
        values = _values(kernel, (tuple(leaves), tree), vector_width(stepper.system.dim, paths))
    except (NotScalarError, NoVectorFormError):
        return None

    def observe(
        rows: PathState, memory: Any, block: Block, steps: Any, count: Any
    ) -> tuple[PathState, Any, Saves]:
        state = jax.tree.map(lambda x: np.asarray(x)[0], rows)
        real = int(np.count_nonzero(block.is_real))
        found = values(state, block, real)
        status = state.status[:real]
        is_fine = status == Status.FINE
        is_finite = np.isfinite(found).all(axis=0)
        if not is_finite.all():
            lost = np.zeros(len(state.status), bool)
            lost[:real] = is_fine & ~is_finite
            state = state._replace(
                status=np.where(lost, np.int32(Status.UNOBSERVABLE), state.status),
                failed_step=np.where(lost, np.int32(steps[0]), state.failed_step),
            )
        mask, data, first = is_fine & is_finite, {}, 0
        for (key, _), ((_, shape),) in zip(observing.statistics, observing.observed, strict=True):
            last = first + int(np.prod(shape))
            sample = mean_of(found[first:last], mask, shape)
            data[key] = {name: x[None] for name, x in sample._asdict().items()}
            first = last
        return state, memory, Saves(data, None)

    return observe


@kept
def _values(kernel: Kernel, params: Any, width: int) -> Callable[..., np.ndarray]:
    """A function of paths: all that is observed of them, shape (numbers, paths)."""
    stepper, observing = kernel.stepper, kernel.observing
    system, dtype = stepper.system, stepper.dtype
    leaves, tree = params[0], params[1]
    real = jax.ShapeDtypeStruct((), dtype)
    state = [jax.ShapeDtypeStruct((system.dim,), dtype)] * 2
    functions = [fun for _, s in observing.statistics for fun in s.functions().values()]

    def observed(q: Any, p: Any, *numbers: Any) -> list[Any]:
        params = jax.tree.unflatten(tree, numbers)
        return [
            jax.numpy.asarray(system.evaluate(fun, q, p, params)).astype(dtype) for fun in functions
        ]

    written = scalarise(observed, *state, *leaves)
    sizes = [int(np.prod(x.shape)) for x in leaves]

    def of_scalars(q: Any, p: Any, numbers: list[list[Any]]) -> list[Any]:
        arrays = [vector(row).reshape(x.shape) for row, x in zip(numbers, leaves, strict=True)]
        return [x for array in written(vector(q), vector(p), *arrays) for x in array.ravel()]

    scalars = [[jax.ShapeDtypeStruct((), x.dtype)] * n for x, n in zip(leaves, sizes, strict=True)]
    code = jax.make_jaxpr(of_scalars)([real] * system.dim, [real] * system.dim, scalars)
    count, given = len(code.jaxpr.outvars), 2 * system.dim
    if count > MOST_NUMBERS:
        raise NoVectorFormError(f"{count} numbers")
    shared = [np.dtype(x.dtype) for row in scalars for x in row]
    hold, address = machine_code(_write(code, given, shared, dtype, width))
    pointer, long = ctypes.c_void_p, ctypes.c_int64
    call = ctypes.CFUNCTYPE(long, pointer, pointer, long)(address)

    def values(state: PathState, block: Block, paths: int) -> np.ndarray:
        assert hold is not None
        found = np.empty((count, len(state.status)), dtype)
        numbers = np.zeros(max(len(shared), 1), np.uint64)
        told = [x for leaf in jax.tree.leaves(block.params) for x in np.ravel(leaf)]
        for i, (x, kind) in enumerate(zip(told, shared, strict=True)):
            numbers[i : i + 1].view(kind)[0] = x
        rows = [np.ascontiguousarray(x, dtype) for x in (*state.q, *state.p)] + list(found)
        pointers = (pointer * len(rows))(*(x.ctypes.data for x in rows))
        call(pointers, numbers.ctypes.data, -(-paths // width))
        return found[:, :paths]

    return values


def _write(code: Any, given: int, shared: list[np.dtype], dtype: np.dtype, width: int) -> str:
    """LLVM code of a function march(arrays, shared numbers, tiles)."""
    module = ir.Module("dalembert")
    function = ir.Function(module, ir.FunctionType(LONG, [POINTER, POINTER, LONG]), "march")
    arrays, told, tiles = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    lanes = Lanes(b, width)

    def element(pointer: Any, index: Any, kind: Any) -> Any:
        return b.gep(pointer, [index], source_etype=element_type(kind))

    pointers = [
        b.load(b.gep(arrays, [WORD(i)], source_etype=POINTER), typ=POINTER)
        for i in range(given + len(code.jaxpr.outvars))
    ]
    params = [
        lanes.spread(b.load(element(told, WORD(i), np.uint64), typ=element_type(kind)))
        for i, kind in enumerate(shared)
    ]

    def tile(number: Any, nothing: list[Any]) -> list[Any]:
        place, align = b.mul(number, LONG(width)), dtype.itemsize
        spots = [element(pointer, place, dtype) for pointer in pointers]
        state = [b.load(spot, typ=lanes.type(dtype), align=align) for spot in spots[:given]]
        for spot, x in zip(spots[given:], lanes.run(code, [*state, *params]), strict=True):
            b.store(x, spot, align=align)
        return nothing

    loop(b, LONG(0), tiles, [], tile)
    b.ret(LONG(0))
    return str(module)
