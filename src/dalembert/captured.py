"""What a function reads from outside itself: globals, closures, defaults and attributes.

Compiled code is kept for the same functions. A function remains the same object when a number that
it reads changes, so what it reads is compared as well.
"""

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

__all__ = ["Keyed", "captured"]

SIMPLE = (type(None), bool, int, float, complex, str, bytes)
WRAPPERS = (list, tuple, dict, partial, MethodType)
DEPTH = 4
"""Functions, containers and objects inside each other that are looked into."""


@dataclass(frozen=True)
class Keyed:
    """An argument of a cached function, and what it is known by there."""

    value: Any = field(compare=False)
    key: Hashable


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
    found: list[Hashable] = []
    seen: dict[int, Any] = {}
    level = [("", fun)]
    for _ in range(DEPTH + 1):
        inside: list[tuple[str, Any]] = []
        for name, x in level:
            found.append((name, _key(x)))
            if id(x) not in seen and _is_open(x):
                seen[id(x)] = x
                inside += _inside(x)
        level = inside
    return tuple(found)


def _key(x: Any) -> Hashable:
    if isinstance(x, SIMPLE):
        return type(x), x
    if _is_array(x):
        return x.dtype.str, np.shape(x), hashlib.sha1(x.tobytes()).digest()
    # Containers and bound methods are made anew: only what is inside them counts.
    return type(x) if isinstance(x, WRAPPERS) else _Same(x)


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic) and not x.dtype.hasobject


def _is_open(x: Any) -> bool:
    """Whether to look inside: not into numbers, arrays, classes and what belongs to a library."""
    if isinstance(x, WRAPPERS):
        return True
    module = str(getattr(x, "__module__", None) or type(x).__module__)
    is_of_a_library = module.partition(".")[0] in ("jax", "jaxlib", "numpy", "builtins")
    return not (isinstance(x, (*SIMPLE, type)) or _is_array(x) or is_of_a_library)


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
