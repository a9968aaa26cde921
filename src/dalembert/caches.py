"""What is worth keeping: compiled code, and what has been found out about a system.

It hangs on the object that it belongs to, and ends with it: a system, a stepper, or the one system
that stands for all with the same functions as they are now (`System.shared`). Of the latter the
last `RECENT` ones are remembered, so that a system that is made anew finds its code. What cannot
hang on an object is kept in tables of a bounded size. `clear_caches` empties everything.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

RECENT = 32
"""Systems with different functions whose code is remembered when they are gone."""

EACH = 64
"""Results of one function that hang on one object."""

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_lock = Lock()
_recent: OrderedDict[Hashable, Any] = OrderedDict()
_bounded: list[Any] = []


class Kept:
    """Results that an object keeps, as its `_kept`, for each function that makes such results.

    Copies on disk, in other processes and by `deepcopy` begin empty.
    """

    __slots__ = ("__weakref__", "shared", "tables")
    all: ClassVar[WeakSet["Kept"]] = WeakSet()

    def __init__(self) -> None:
        self.tables: dict[Callable[..., Any], Any] = {}
        self.shared: tuple[Hashable, Any] | None = None
        Kept.all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, ()


def kept(fun: AnyFunction) -> AnyFunction:
    """Let the results of a function hang on its first argument, as many as `EACH`."""

    @wraps(fun)
    def remembered(owner: Any, *args: Hashable) -> Any:
        tables = owner._kept.tables
        table = tables.get(fun) or tables.setdefault(fun, lru_cache(maxsize=EACH)(fun))
        return table(owner, *args)

    return remembered  # pyright: ignore[reportReturnType]


def kept_by(key: Callable[[Any], Hashable]) -> Callable[[AnyFunction], AnyFunction]:
    """`kept`, but made anew where a key of the first argument is another one now."""

    def decorate(fun: Any) -> Any:
        known = kept(lambda owner, key, *args: fun(owner, *args))
        return wraps(fun)(lambda owner, *args: known(owner, key(owner), *args))

    return decorate


def shared(owner: Any, key: Hashable, make: Callable[[], Any]) -> Any:
    """What stands for all objects with this key; it lives at least as long as its owners."""
    known = owner._kept.shared
    if known is None or known[0] != key:
        with _lock:
            found = _recent.pop(key, None) or make()
            _recent[key] = found
            if len(_recent) > RECENT:
                _recent.popitem(last=False)
        known = owner._kept.shared = key, found
    return known[1]


def bounded(maxsize: int) -> Callable[[AnyFunction], AnyFunction]:
    """`lru_cache` for what cannot hang on an object."""

    def decorate(fun: Any) -> Any:
        _bounded.append(lru_cache(maxsize=maxsize)(fun))
        return _bounded[-1]

    return decorate


def clear_caches() -> None:
    """Forget all compiled code and all that was found out about systems and functions.

    What is needed again is made again, with the same bits. A system that nothing else holds is
    freed at the next collection of garbage (`gc.collect()`). JAX has caches of its own, for
    functions that live: `jax.clear_caches()` empties those.
    """
    with _lock:
        _recent.clear()
    for one in list(Kept.all):
        one.tables.clear()
        one.shared = None
    for table in _bounded:
        table.cache_clear()
