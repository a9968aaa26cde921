"""Operations of JAX on known numbers, computed by NumPy.

While code is written out, thousands of small operations are done on numbers and places that are
known. JAX compiles each of them for each shape, and takes a while to start one; NumPy gives the
same bits at once. What is not here, or could have other bits, is left to JAX.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def by_numpy(name: str, args: Sequence[Any], params: Any) -> list[np.ndarray] | None:
    """The results of a primitive for known arrays; None if that is left to JAX."""
    arrays = [np.asarray(x) for x in args]
    if name in MOVES:
        found = MOVES[name](params, *arrays)
        return None if found is None else [np.asarray(found)]
    if name not in ARITHMETIC or any(x.dtype != arrays[0].dtype for x in arrays):
        return None
    if not all(map(_is_plain, arrays)):
        return None
    with np.errstate(all="ignore"):
        found = ARITHMETIC[name](*arrays)
    return None if found is None or not _is_plain(np.asarray(found)) else [np.asarray(found)]


def _is_plain(x: np.ndarray) -> bool:
    """Whether all numbers are whole or zero or have all their digits: XLA drops others."""
    if x.dtype.kind in "biu":
        return True
    if x.dtype not in (np.float32, np.float64):
        return False
    limits, size = np.finfo(x.dtype), np.abs(x)
    return bool(np.all((x == 0) | ((limits.tiny <= size) & (size <= limits.max))))


def _broadcast_in_dim(params: Any, x: np.ndarray, *rest: Any) -> np.ndarray | None:
    if rest:
        return None
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), params["shape"])


def _dynamic_slice(params: Any, x: np.ndarray, *starts: Any) -> np.ndarray | None:
    sizes = params["slice_sizes"]
    if len(starts) != x.ndim:
        return None
    ends = zip(starts, sizes, x.shape, strict=True)
    firsts = [min(max(int(start), 0), n - size) for start, size, n in ends]
    places = zip(firsts, sizes, strict=True)
    return x[tuple(slice(first, first + size) for first, size in places)]


def _convert_element_type(params: Any, x: np.ndarray) -> np.ndarray | None:
    new = params["new_dtype"]
    if not isinstance(new, np.dtype) or new not in TYPES or x.dtype not in TYPES:
        return None
    if x.dtype.kind == "f" and (new.kind != "f" or not _is_plain(x)):
        return None
    with np.errstate(over="ignore"):
        found = x.astype(new)
    return found if _is_plain(found) else None


def _iota(params: Any, *rest: Any) -> np.ndarray | None:
    shape, axis = params["shape"], params["dimension"]
    if rest or params["dtype"] not in TYPES:
        return None
    count = np.arange(shape[axis], dtype=params["dtype"])
    sizes = [size if i == axis else 1 for i, size in enumerate(shape)]
    return np.broadcast_to(count.reshape(sizes), shape)


def _pad(params: Any, x: np.ndarray, value: np.ndarray) -> np.ndarray | None:
    config = params["padding_config"]
    if any(min(amounts) < 0 for amounts in config) or not x.size:
        return None
    pairs = list(zip(config, x.shape, strict=True))
    ends = [low + (n - 1) * (inner + 1) + 1 for (low, _, inner), n in pairs]
    sizes = [end + high for end, ((_, high, _), _) in zip(ends, pairs, strict=True)]
    out = np.full(sizes, value, x.dtype)
    steps = zip(ends, pairs, strict=True)
    out[tuple(slice(low, end, inner + 1) for end, ((low, _, inner), _) in steps)] = x
    return out


def _reduce_sum(params: Any, x: np.ndarray) -> np.ndarray | None:
    """Sums that are exact in any order: of whole numbers."""
    if x.dtype not in TYPES or x.dtype.kind == "b" or params.get("out_sharding") is not None:
        return None
    if x.dtype.kind == "f":
        size = np.abs(x).sum()
        if not size * np.finfo(x.dtype).eps < 1 or np.any(x != np.rint(x)):
            return None
    found = x.sum(tuple(params["axes"]), x.dtype)
    # XLA adds to zero, so that negative zeros are lost, but not where it takes entries as they are.
    return x.reshape(found.shape) if found.size == x.size else found + x.dtype.type(0)


def _reshape(params: Any, x: np.ndarray, *rest: Any) -> np.ndarray | None:
    return None if rest or params["dimensions"] else x.reshape(params["new_sizes"])


def _slice(params: Any, x: np.ndarray) -> np.ndarray:
    starts, limits = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, starts, limits, strides))]


def _of_bits(fun: Any) -> Callable[..., Any]:
    return lambda *xs: fun(*xs) if all(x.dtype.kind in "biu" for x in xs) else None


TYPES = frozenset(np.dtype(code) for code in "?bhilqBHILQfd")
"""Truth values, whole numbers, and floats of 32 and 64 bits."""

MOVES: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": lambda params, *xs: np.concatenate(xs, params["dimension"]),
    "convert_element_type": _convert_element_type,
    "dynamic_slice": _dynamic_slice,
    "iota": _iota,
    "pad": _pad,
    "reduce_sum": _reduce_sum,
    "reshape": _reshape,
    "slice": _slice,
    "squeeze": lambda params, x: x.squeeze(params["dimensions"]),
    "stack": lambda params, *xs: np.stack(xs, params["axis"]),
    "transpose": lambda params, x: x.transpose(params["permutation"]),
}
"""(parameters, operands) → the entries in their new places; None where that is left to JAX."""

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "add_any": np.add,
    "and": _of_bits(np.bitwise_and),
    "div": lambda x, y: np.divide(x, y) if x.dtype.kind == "f" else None,
    "eq": np.equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "or": _of_bits(np.bitwise_or),
    "sub": np.subtract,
    "xor": _of_bits(np.bitwise_xor),
}
"""Operations that can be rounded in one way only; whole numbers go around in NumPy too."""
