"""What a statistic is: the one door through which a run learns what to collect.

A statistic is a frozen dataclass. On the device, in JAX, it sees the values of its functions for
all paths of a block, save by save, and reduces them; on the host, in NumPy, what blocks have left
is merged in their order. Everything else (evaluating the functions, failures, checkpoints, files,
memory, exports, transformations by JAX) is done for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, TypeAlias

import jax
import numpy as np

Data: TypeAlias = dict[str, Any]
"""Arrays by name: what a statistic leaves. What comes from saves has their axis first."""


def class_name(cls: type) -> str:
    """The name by which a file knows a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


class Recordable:
    """A frozen dataclass that a file can name: of numbers, texts, functions, tuples and its like.

    Functions are not saved. What comes from a file has `not_saved` in their place.
    """

    known: ClassVar[dict[str, type]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Recordable.known[class_name(cls)] = cls


class Statistic(Recordable):
    """What a run collects of its paths. A new one defines `functions`, `merge`, `result`, and

    - `observe`, if something of every save is wanted, or
    - `start`, `observe` and `finish`, if something of whole paths is.

    The methods from `start` to `finish` are traced by JAX. A mask says which paths take part: real
    ones that have not failed. `Data` is arrays by name; names are those of Python variables.
    """

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Functions of (q, p), or (q, p, params) if the system has params, by name."""
        raise NotImplementedError

    def check(self, shapes: Mapping[str, tuple[int, ...]], t: np.ndarray) -> None:
        """Refuse, with a ValueError, functions of the wrong shapes, or save times that don't do."""

    def start(self, values: Mapping[str, Any]) -> Any:
        """What is remembered of every path: a tree of arrays, first axis paths."""
        return ()

    def observe(
        self, memory: Any, values: Mapping[str, Any], mask: Any, t: Any
    ) -> tuple[Any, Data]:
        """The memory after a save at time t, and what is noted of all paths together.

        Values are arrays of shape (paths, …) by the names of the functions.
        """
        return memory, {}

    def finish(self, memory: Any, mask: Any) -> Data:
        """What is noted of the memories of all paths at the end, under other names than those."""
        return {}

    def merge(self, a: Data, b: Data) -> Data:
        """Both samples as one, in NumPy float64 and int64; blocks are merged in their order."""
        raise NotImplementedError

    def result(self, data: Data, t: Any) -> Any:
        """What the user sees, from all data and the save times.

        In NumPy for a run; inside jit, data are of JAX, and the result must be a tree of arrays,
        such as a NamedTuple.
        """
        raise NotImplementedError

    def variables(self, result: Any, t: np.ndarray) -> dict[str, tuple[tuple[str, ...], Any]]:
        """The result as (dimensions, array) by name, for xarray; by default all its arrays.

        The dimension "time" is that of the save times. An array whose name is that of its only
        dimension is a coordinate.
        """
        found = {}
        for name, x in _arrays_of(result):
            times = ("time",) if x.ndim and len(x) == len(t) else ()
            rest = (f"{name}_{k}" for k in range(x.ndim - len(times)))
            found[name] = ((*times, *rest), x)
        return found

    def summary(self, result: Any) -> str:
        """The result in a few words, for the summary of a run."""
        return type(result).__name__

    @property
    def tables(self) -> int:
        """Numbers in tables that it brings along, for the estimate of the memory."""
        return 0

    def shapes(self, values: Mapping[str, Any]) -> tuple[Any, Data, Data]:
        """Shapes and types of memory, a row of a save, and what is left at the end."""
        first = next(iter(values.values()))
        mask = jax.ShapeDtypeStruct(first.shape[:1], np.bool_)
        t = jax.ShapeDtypeStruct((), first.dtype)

        def all_of_it(values: Any, mask: Any, t: Any) -> tuple[Any, Data, Data]:
            found = self.observe(self.start(values), values, mask, t)
            memory, row = memory_and_row(self, found)
            return memory, row, self.finish(memory, mask)

        return jax.eval_shape(all_of_it, values, mask, t)


def recorded(value: Any) -> Any:
    """A statistic, or one of its fields, as plain data; functions by a mark."""
    if isinstance(value, Unknown):
        return value.record
    if isinstance(value, Recordable) and is_dataclass(value):
        content = {f.name: recorded(getattr(value, f.name)) for f in fields(value)}
        return {"class": class_name(type(value)), "fields": content}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return [recorded(x) for x in value]
    if callable(value):
        return {"function": True}
    raise TypeError(
        f"a statistic is a frozen dataclass of numbers, texts, functions and tuples, not {value!r}."
    )


def restored(record: Any) -> Any:
    """What `recorded` has made plain data of; a class that is not known here as `Unknown`."""
    if isinstance(record, list):
        return tuple(map(restored, record))
    if not isinstance(record, dict):
        return record
    if "function" in record:
        return not_saved
    try:
        content = {name: restored(x) for name, x in record["fields"].items()}
        return Recordable.known[record["class"]](**content)
    except Exception:  # whatever a class of somebody else does with fields that it had before
        return Unknown(record)


def not_saved(*_: Any) -> Any:
    """In the place of a function in a statistic that comes from a file."""
    raise TypeError("functions are not saved with a run: this one is known only where it was made.")


class Unknown(Statistic):
    """A statistic from a file, of a class that is not there: its data without its meaning."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def result(self, data: Data, t: Any) -> Any:
        return RawData(data, str(self.record["class"]))

    def variables(self, result: Any, t: np.ndarray) -> dict[str, tuple[tuple[str, ...], Any]]:
        return {}

    def summary(self, result: Any) -> str:
        return result.reason


class RawData(dict[str, np.ndarray]):
    """The arrays of a statistic whose class is not known here."""

    def __init__(self, data: Data, missing: str) -> None:
        super().__init__(data)
        self.reason = (
            f"raw arrays {', '.join(sorted(data))}: their class {missing} is not known here, or "
            "has other fields now. Import its module before da.load to have its result"
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no {name!r}, but {self.reason}.")

    def __repr__(self) -> str:
        return f"<{self.reason}>"


def memory_and_row(statistic: Statistic, found: Any) -> tuple[Any, Any]:
    """What `observe` has returned, or an error about the form that it should have."""
    if not isinstance(found, tuple) or len(found) != 2:
        raise TypeError(
            f"{type(statistic).__name__}.observe must return two things, (memory, row): what is "
            "remembered of every path, () if nothing is, and a dictionary of arrays, {} if nothing "
            f"is noted. It returns {_in_words(found)}."
        )
    return found[0], found[1]


def _in_words(found: Any) -> str:
    if isinstance(found, Mapping):
        return f"the row alone, {{{', '.join(map(repr, found))}}}"
    return f"{len(found)} of them" if isinstance(found, tuple) else f"a {type(found).__name__}"


def numeric(*arrays: Any) -> Any:
    """The module that computes with these arrays: `numpy`, or `jax.numpy`."""
    return jax.numpy if any(isinstance(x, jax.Array) for x in arrays) else np


def _arrays_of(result: Any) -> list[tuple[str, np.ndarray]]:
    """The arrays among the fields of a result, by name."""
    if hasattr(result, "_asdict"):
        named = result._asdict()
    elif isinstance(result, Mapping):
        named = dict(result)
    elif is_dataclass(result):
        named = {f.name: getattr(result, f.name) for f in fields(result)}
    else:
        named = {"value": result}
    numbers = {name: np.asarray(x) for name, x in named.items() if not isinstance(x, str)}
    return [(name, x) for name, x in numbers.items() if x.dtype.kind in "fiub"]
