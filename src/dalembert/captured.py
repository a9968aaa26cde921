"""What a function reads from outside itself: globals, closures, defaults and attributes.

Compiled code is kept for the same functions. A function remains the same object when a number that
it reads changes, so what it reads is compared as well.
"""

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

__all__ = ["captured"]

SIMPLE = (type(None), bool, int, float, complex, str, bytes)
DEPTH = 4
"""Functions, containers and objects inside each other that are looked into."""


class _Same:
    """Something that is equal to itself alone."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def captured(fun: Any) -> Hashable:
    """The function and what it reads, as a key: numbers and arrays by value, the rest by identity.

    Attributes of objects count as far as they are simple. Functions of libraries are not looked
    into.
    """
    return _key(fun, DEPTH)


def _key(x: Any, depth: int) -> Hashable:
    if isinstance(x, SIMPLE):
        return type(x), x
    if isinstance(x, np.ndarray | np.generic) and not x.dtype.hasobject:
        return x.dtype.str, np.shape(x), hashlib.sha1(x.tobytes()).digest()
    # Containers and bound methods are made anew: only what is inside them counts.
    is_wrapper = isinstance(x, list | tuple | dict | partial | MethodType)
    if depth == 0 or (not is_wrapper and _is_of_a_library(x)):
        return _Same(x)
    inside = tuple((name, _key(value, depth - 1)) for name, value in _inside(x))
    return type(x) if is_wrapper else _Same(x), inside


def _inside(x: Any) -> Iterator[tuple[str, Any]]:
    match x:
        case FunctionType():
            yield from _outside_names(x)
        case MethodType():
            yield from (("self", x.__self__), ("function", x.__func__))
        case partial():
            yield from (("function", x.func), ("args", x.args), ("keywords", x.keywords))
        case list() | tuple():
            yield from ((str(i), value) for i, value in enumerate(x))
        case Mapping():
            yield from ((repr(name), value) for name, value in x.items())
        case _:
            wrapped = getattr(x, "__wrapped__", None)
            if wrapped is not None:
                yield "wrapped", wrapped
            yield from getattr(x, "__dict__", {}).items()


def _outside_names(fun: FunctionType) -> Iterator[tuple[str, Any]]:
    for i, default in enumerate(fun.__defaults__ or ()):
        yield f"default {i}", default
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # a name that is bound later
            continue
    for name in sorted(_names(fun.__code__)):
        if name in fun.__globals__:
            yield name, fun.__globals__[name]


def _names(code: CodeType) -> set[str]:
    """Names that the code, and functions inside it, look up outside."""
    inner = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inner)


def _is_of_a_library(x: Any) -> bool:
    module = str(getattr(x, "__module__", None) or type(x).__module__)
    return isinstance(x, type) or module.partition(".")[0] in ("jax", "jaxlib", "numpy", "builtins")
