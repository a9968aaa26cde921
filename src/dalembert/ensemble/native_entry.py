"""How a function of vector code begins: arrays by their addresses, and numbers all lanes share."""

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from dalembert.ensemble.lanes import Lanes, element_type

WORD, LONG, POINTER = ir.IntType(32), ir.IntType(64), ir.PointerType()


class MarchEntry:
    """The beginning of a function `march`.

    Attributes:
        lanes: what writes into it.
        arrays: pointers to the arrays.
        shared: the shared numbers, in all lanes.
        rest: the other arguments.
    """

    def __init__(
        self, width: int, arrays: int, shared: Sequence[np.dtype], rest: Sequence[ir.Type]
    ) -> None:
        self._module = ir.Module("dalembert")
        kind = ir.FunctionType(LONG, [POINTER, POINTER, *rest])
        function = ir.Function(self._module, kind, "march")
        b = ir.IRBuilder(function.append_basic_block("entry"))
        first, numbers, *self.rest = function.args
        self.lanes = Lanes(b, width)
        spots = [b.gep(first, [WORD(i)], source_etype=POINTER) for i in range(arrays)]
        self.arrays = [b.load(spot, typ=POINTER) for spot in spots]
        spots = [element(b, numbers, WORD(i), np.uint64) for i in range(len(shared))]
        self.shared = [
            self.lanes.spread(b.load(spot, typ=element_type(dtype)))
            for spot, dtype in zip(spots, shared, strict=True)
        ]

    def __str__(self) -> str:
        return str(self._module)


def element(b: ir.IRBuilder, pointer: Any, index: Any, dtype: Any) -> Any:
    """Where an element of an array is."""
    return b.gep(pointer, [index], source_etype=element_type(dtype))


def shared_numbers(numbers: Iterable[Any], types: Sequence[np.dtype]) -> np.ndarray:
    """Numbers that all lanes share, as `MarchEntry` reads them."""
    words = np.zeros(max(len(types), 1), np.uint64)
    for i, (x, dtype) in enumerate(zip(numbers, types, strict=True)):
        words[i : i + 1].view(dtype)[0] = x
    return words


def addresses(arrays: Sequence[np.ndarray]) -> Any:
    """Pointers to arrays, as `MarchEntry` reads them."""
    return (ctypes.c_void_p * len(arrays))(*(x.__array_interface__["data"][0] for x in arrays))
