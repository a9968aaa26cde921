"""A function of numbers as vector code, for tests that compare it with XLA; needs llvmlite."""

import ctypes

import jax
import numpy as np
from llvmlite import ir

from dalembert.ensemble.lanes import Lanes
from dalembert.ensemble.native import machine_code


def on_lanes(fun, *arrays, width=8):
    """A function of numbers, compiled for eight entries of arrays at a time; a list of results."""
    closed = jax.make_jaxpr(fun)(*(jax.ShapeDtypeStruct((), x.dtype) for x in arrays))
    kinds = [np.dtype(v.aval.dtype) for v in closed.jaxpr.outvars]
    assert np.bool_ not in kinds, "vectors of them are stored bit by bit"
    module = ir.Module("test")
    pointers = [ir.PointerType()] * (len(arrays) + len(kinds))
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), pointers), "march")
    builder = ir.IRBuilder(function.append_basic_block())
    lanes = Lanes(builder, width)
    given = [
        builder.load(place, typ=lanes.type(x.dtype), align=1)
        for place, x in zip(function.args, arrays, strict=False)
    ]
    for place, y in zip(function.args[len(arrays) :], lanes.run(closed, given), strict=True):
        builder.store(y, place, align=1)
    builder.ret_void()
    code, address = machine_code(str(module))
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))
    call = signature(address)
    count = len(arrays[0])
    padded = [np.pad(x, (0, -count % width), mode="edge") for x in arrays]
    results = [np.empty(len(padded[0]), kind) for kind in kinds]
    for first in range(0, count, width):
        call(*(x[first:].ctypes.data for x in (*padded, *results)))
    del code  # which has kept the function in memory
    return [result[:count] for result in results]
