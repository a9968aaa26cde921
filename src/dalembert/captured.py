"""What a function reads from outside itself, as a key under which compiled code is kept.

A function is known by its identity and by what it reads. Promised: a change is noticed of whatever
can be reached from the function by references, however deep: globals, also those of modules of the
user's own, closures, defaults, attributes of functions, objects, their classes and metaclasses,
what is in containers and arrays. The search runs no code of the user's. Where it finds something
that it cannot look into, such as a `ContextVar`, a buffer of `ctypes` or anything else of a type
that is written in C, or more than `BUDGET` things, the function is traced again instead, and its
trace is compared (`digest.py`); runs of `da.simulate` compare traces in any case, and so notice
every change of what functions compute. So is a function whose code names what reads the
environment, files, the clock or random numbers, see `from_outside.py`. Not promised by `da.step`,
`da.expect` and the theory: to notice a change of what a function gets by calling something else
that is not written in Python, by a name that it puts together, or of Python's, NumPy's and JAX's
own modules. Not promised by anything: to notice what a function
inside `jax.jit` reads after its first call, because JAX keeps its trace.
"""

import array
import hashlib
import os
import re
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    EllipsisType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    NotImplementedType,
    SimpleNamespace,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any, Generic

import jax
import numpy as np
from jax.core import Tracer

from dalembert.caches import Kept, bounded
from dalembert.from_outside import looks_outside
from dalembert.precision import read_outside

BUDGET = 2000
"""Things that are looked at before it is quicker to trace the function again."""

LIBRARIES = sys.stdlib_module_names | {"dalembert", "jax", "jaxlib", "ml_dtypes", "numpy", "scipy"}
"""Packages whose globals and classes are taken to be constant."""

CONSTANT = (type(None), bool, int, str, bytes)

NUMBERS = (float, complex, np.float64, np.complex128)

OPEN = (property, staticmethod, classmethod, range, slice, partial, defaultdict, SimpleNamespace)
"""Types written in C whose members and attributes are all that they have."""

CLOSED = (CodeType, EllipsisType, GenericAlias, NotImplementedType, UnionType, re.Pattern, object)
"""Types without attributes that never change."""

BASES = (int, str, bytes, tuple, Generic)
"""Other types written in C with nothing inside that changes; classes are made from them."""

BY_PYTHON = frozenset({"_abc_impl"}).union(
    f"__{name}__"
    for name in (
        *("abstractmethods", "annotate_func", "annotations", "annotations_cache", "dict", "doc"),
        *("dataclass_fields", "dataclass_params", "firstlineno", "match_args", "module"),
        *("orig_bases", "parameters", "qualname", "slots", "static_attributes", "type_params"),
        "weakref",
    )
)
"""Attributes that Python itself gives to classes."""

IN_C = (
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
"""What classes that are written in C have where others have functions and properties."""

Inside = Iterable[tuple[str, Any]]


@dataclass(frozen=True)
class Keyed:
    """An argument of a cached function, and what it is known by there."""

    value: Any = field(compare=False)
    key: Hashable


class _Same:
    """Something that is equal to itself alone."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class _HiddenError(Exception):
    """There is something that cannot be looked into, or too much to look at."""


def captured(fun: Any, retrace: Callable[[], Hashable] | None = None) -> Hashable:
    """The function and what it reads, as a key: numbers and arrays by value, the rest by identity.

    Args:
        fun: the function.
        retrace: gives what its trace is known by, for a function that reads what is hidden; without
            it such a function is never the same again.
    """
    try:
        return tuple(_everything(fun))
    except _HiddenError:
        # What another function with the same trace has inside may be changed later.
        return (_itself(fun), object() if retrace is None else retrace())


def _itself(fun: Any) -> Hashable:
    """The identity of a function; methods are made anew wherever they are read."""
    if isinstance(fun, MethodType):
        return _Same(fun.__self__), _itself(fun.__func__)
    return _Same(fun)


def _everything(fun: Any) -> Iterator[tuple[str, Hashable]]:
    """All that can be reached from a function, each thing once; then it is known by its number."""
    seen: dict[int, tuple[int, Any]] = {}
    names: set[str] = set()
    modules: dict[int, ModuleType] = {}
    read: dict[int, set[str]] = defaultdict(set)
    ahead, count = [("", fun)], 0
    while ahead:
        name, x = ahead.pop()
        count += 1
        if count > BUDGET:
            raise _HiddenError
        place, _ = seen.get(id(x), (None, None))
        if place is not None:
            yield name, place
        else:
            key, inside = _look(name, x)
            yield name, key
            if inside is not None:
                seen[id(x)] = count, x
                ahead += inside
            if isinstance(x, FunctionType):
                names.update(_names(x.__code__))
            elif isinstance(x, ModuleType) and not _is_of_a_library(x.__name__):
                modules[id(x)] = x
        if not ahead:
            # What functions can mean by the names in their code, of the modules that they read.
            for module in modules.values():
                # A module may answer to names that it has not.
                meant = names | {"__getattr__"}
                new = sorted(meant.intersection(vars(module)) - read[id(module)])
                read[id(module)].update(new)
                ahead += [(n, vars(module)[n]) for n in new]


def _look(name: str, x: Any) -> tuple[Hashable, Inside | None]:
    """What a thing is known by, and what is to be looked at inside it."""
    kind = type(x)
    if kind in CONSTANT:
        return (kind, x), None
    if kind in NUMBERS:
        return (kind, repr(x)), None
    match x:
        case FunctionType():
            return (_Same(x), _Same(x.__code__)), _of_function(x)
        case type():
            return _Same(x), _of_class(x)
        case MethodType():
            return kind, (("self", x.__self__), ("function", x.__func__))
        case BuiltinFunctionType():
            owner = getattr(x, "__self__", None)
            if owner is None or isinstance(owner, ModuleType | type):
                return _Same(x), None
            return (kind, x.__name__), (("self", owner),)
        case Tracer():
            raise read_outside(repr(name))
        case ModuleType():
            return _Same(x), None if _is_of_a_library(kind.__module__) else (("class", kind),)
        case jax.Array():
            return _Same(x), None
        case Kept():
            return kind, None
        case np.ndarray() | np.generic():
            content = ("entries", x.tolist()) if x.dtype.hasobject else None
            digest = () if content else hashlib.sha1(x.tobytes()).digest()
            inside = _of_object(x) if content is None else (content, *_of_object(x))
            return (kind, x.dtype, np.shape(x), digest), inside
        case bytearray() | memoryview() | array.array():
            return (kind, getattr(x, "typecode", ""), bytes(x)), _of_object(x)
        case list() | tuple() | set() | frozenset() | deque():
            items = ((str(i), value) for i, value in enumerate(x))
            return (kind, len(x)), (*items, *_of_object(x))
        case dict() | MappingProxyType():
            return (kind, len(x)), (*_of_mapping(x), *_of_object(x))
        case partial():
            return kind, _of_object(x)
        case float() | complex():
            plain = float if isinstance(x, float) else complex
            return (kind, plain.__repr__(x)), _of_object(x)  # pyright: ignore[reportArgumentType]
    if _is_hidden(kind):
        raise _HiddenError
    return _Same(x), _of_object(x)


def _of_function(fun: FunctionType) -> Iterator[tuple[str, Any]]:
    for i, default in enumerate(fun.__defaults__ or ()):
        yield f"default {i}", default
    yield from (fun.__kwdefaults__ or {}).items()
    yield from fun.__dict__.items()
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # a name that is bound later
            continue
    if _is_of_a_library(fun.__globals__.get("__name__")):
        return
    if looks_outside(fun):
        raise _HiddenError
    for name in _names(fun.__code__):
        if name in fun.__globals__:
            yield name, fun.__globals__[name]
        else:  # perhaps a module that the function imports itself
            inside = f"{fun.__globals__.get('__package__')}.{name}"
            yield from ((n, sys.modules[n]) for n in (name, inside) if n in sys.modules)


def _of_class(kind: type) -> Inside | None:
    """Attributes and methods, also inherited ones and those of the metaclass."""
    classes = [x for x in kind.__mro__ if not _is_of_a_library(x.__module__)]
    found: list[tuple[str, Any]] = [
        (f"{x.__name__}.{name}", value)
        for x in classes
        for name, value in vars(x).items()
        if name not in BY_PYTHON
    ]
    if not _is_of_a_library(type(kind).__module__):
        found.append(("metaclass", type(kind)))
    return found or None


def _of_mapping(x: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in x.items():
        if type(key) is str:
            yield key, value
        else:
            yield from (("key", key), ("value", value))


def _of_object(x: Any) -> Iterator[tuple[str, Any]]:
    """Attributes, those in slots and those of the class."""
    kind, attributes = type(x), getattr(x, "__dict__", None) or {}
    if _is_of_a_library(attributes.get("__module__")) and not _is_around(attributes):
        return  # a function of the library, compiled
    yield from attributes.items()
    for name, member in _members(kind):
        try:
            yield name, member.__get__(x)
        except AttributeError:  # a slot that is empty
            continue
    if not _is_of_a_library(kind.__module__):
        yield "class", kind


def _is_around(attributes: Mapping[str, Any]) -> bool:
    """Whether something that was made by a library is around a function of the user's."""
    inner = attributes.get("__wrapped__")
    return isinstance(inner, FunctionType) and not _is_of_a_library(
        inner.__globals__.get("__name__")
    )


@bounded(1024)
def _members(kind: type) -> tuple[tuple[str, Any], ...]:
    """The slots of a class and of those it inherits from."""
    return tuple(
        (name, member)
        for x in kind.__mro__
        for name, member in vars(x).items()
        if isinstance(member, MemberDescriptorType) and ("__slots__" in vars(x) or x in OPEN)
    )


@bounded(1024)
def _is_hidden(kind: type) -> bool:
    """Whether things of a type may have something inside that changes and is no attribute."""
    return any(_is_closed_box(x) for x in kind.__mro__)


def _is_closed_box(kind: type) -> bool:
    """Whether a class is written in C and keeps what is inside to itself.

    Not so those of JAX and NumPy, except for generators of random numbers, and the descriptors in
    classes.
    """
    if kind in (*OPEN, *CLOSED, *BASES) or hasattr(kind, "__get__"):
        return False
    package, _, rest = kind.__module__.partition(".")
    if package in ("jax", "jaxlib", "numpy") and not rest.startswith("random"):
        return False
    # Python gives these to classes that are written in it; all others come from C.
    given = {"__dict__", "__weakref__", *(name for name, _ in _members(kind))}
    return any(
        (isinstance(value, IN_C) and value.__objclass__ is kind and name not in given)
        or (isinstance(value, BuiltinFunctionType) and value.__self__ is kind)
        for name, value in vars(kind).items()
    )


@bounded(4096)
def _names(code: CodeType) -> frozenset[str]:
    """Names that the code, and functions inside it, look up outside."""
    inner = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    # Texts too, for `getattr(module, "name")` and `globals()["name"]`.
    texts = (text for text in code.co_consts if isinstance(text, str))
    return frozenset((*code.co_names, *texts)).union(*inner)


def _is_of_a_library(module: Any) -> bool:
    return isinstance(module, str) and _is_library(module.partition(".")[0])


@bounded(1024)
def _is_library(package: str) -> bool:
    """Whether a package is one of those, and no file of the user's with such a name."""
    if package not in sys.stdlib_module_names:
        return package in LIBRARIES
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is None or file.startswith(os.path.dirname(os.__file__))
