"""All statistics of a run as one: their functions evaluated, their rows, memories and ends.

Every engine, inside `jit` and outside, observes paths by this code. A statistic is known here by
its key: the argument of `simulate` that it came through and its name there, as `observe/energy`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.functions import check_function
from dalembert.statistics.statistic import Data, Statistic
from dalembert.system import System


@dataclass(frozen=True)
class Observing:
    """The statistics of a run, by key, and the shapes of what they observe."""

    dtype: np.dtype
    statistics: tuple[tuple[str, Statistic], ...]
    observed: tuple[tuple[tuple[str, tuple[int, ...]], ...], ...]

    @classmethod
    def checked(
        cls, system: System, dtype: np.dtype, statistics: tuple[tuple[str, Statistic], ...]
    ) -> "Observing":
        """Statistics of a system; functions that are none are refused."""

        def shape(key: str, fun: Any) -> tuple[int, ...]:
            like = system.shape, system.params, None
            return check_function(in_words(key), fun, *like, time=system.time).shape

        observed = tuple(
            tuple((name, shape(key, fun)) for name, fun in s.functions().items())
            for key, s in statistics
        )
        return cls(dtype, statistics, observed)

    def check(self, t: np.ndarray) -> None:
        """Refuse statistics that cannot use what their functions give, or these save times."""
        for (key, statistic), shapes in zip(self.statistics, self.observed, strict=True):
            try:
                statistic.check(dict(shapes), t)
            except ValueError as error:
                raise ValueError(f"{in_words(key)}: {error}") from error

    def _values(self, system: System, q: Any, p: Any, params: Any) -> dict[str, dict[str, Any]]:
        """The values of all functions, shape (paths, …), by the key of the statistic and name."""

        def of_paths(fun: Any) -> Any:
            def of_one(q: Any, p: Any) -> Any:
                return jnp.asarray(system.evaluate(fun, q, p, params))

            return jax.vmap(of_one)(q, p).astype(self.dtype)

        return {
            key: {name: of_paths(fun) for name, fun in statistic.functions().items()}
            for key, statistic in self.statistics
        }

    def like(self, paths: int) -> dict[str, dict[str, Any]]:
        """The shapes and types of the values of so many paths."""
        return {
            key: {name: jax.ShapeDtypeStruct((paths, *shape), self.dtype) for name, shape in shapes}
            for (key, _), shapes in zip(self.statistics, self.observed, strict=True)
        }

    def start(self, paths: int) -> dict[str, Any]:
        """What is remembered of the paths before their first save."""
        like = self.like(paths)
        return {key: s.start(like[key]) for key, s in self.statistics}

    def observe(
        self,
        system: System,
        memory: Mapping[str, Any],
        q: Any,
        p: Any,
        params: Any,
        takes_part: Any,
        t: Any,
    ) -> tuple[dict[str, Any], dict[str, Data], Any]:
        """Memories after a save, its rows, and which paths could be observed.

        Args:
            system: what the paths are paths of.
            memory: what is remembered, by key.
            q: positions, shape (paths, dim).
            p: momenta.
            params: parameters of the system.
            takes_part: which paths count if their values are finite.
            t: the time of the save.
        """
        values = self._values(system, q, p, system.told(t, params) if system.time else params)
        rows = [jnp.isfinite(x).reshape(len(x), -1) for x in jax.tree.leaves(values)]
        finite = jnp.all(jnp.concatenate(rows, axis=1), axis=1)
        mask, found = takes_part & finite, {}
        for key, statistic in self.statistics:
            found[key] = statistic.observe(memory[key], values[key], mask, t)
        memories, noted = ({key: x[i] for key, x in found.items()} for i in range(2))
        return memories, noted, finite

    def finish(self, memory: Mapping[str, Any], mask: Any) -> dict[str, Data]:
        """What the memories leave at the end, by key."""
        return {key: s.finish(memory[key], mask) for key, s in self.statistics}

    def shapes(self, paths: int) -> dict[str, tuple[Any, Any, Data, Data]]:
        """Shapes and types of values, memories, rows and ends of so many paths, by key.

        Raises:
            TypeError: if a statistic leaves something else than it should.
        """
        found, like = {}, self.like(paths)
        for key, statistic in self.statistics:
            memory, row, end = statistic.shapes(like[key])
            _check(key, paths, memory, row, end)
            found[key] = (like[key], memory, row, end)
        return found


def _check(key: str, paths: int, memory: Any, row: Any, end: Any) -> None:
    for data in (row, end):
        named = isinstance(data, dict) and all(hasattr(x, "dtype") for x in data.values())
        if not named or not all(str(name).isidentifier() for name in data):
            raise TypeError(
                f"{in_words(key)}: observe must return (memory, row), and a row, as what finish "
                f'returns, is a dictionary of arrays, such as {{"mean": mean}}, not {data!r}.'
            )
    if row.keys() & end.keys():
        raise TypeError(
            f"{in_words(key)} notes {sorted(row.keys() & end.keys())} both at the saves and at the "
            "end: give them different names."
        )
    for x in jax.tree.leaves(memory):
        if x.shape[:1] != (paths,):
            raise TypeError(
                f"{in_words(key)} remembers an array of shape {x.shape}: what start returns has "
                f"one entry per path, here shape ({paths}, …)."
            )


def in_words(key: str) -> str:
    """A key as the user has written it."""
    door, _, name = key.partition("/")
    return f"{door}[{name!r}]"


def at_door(door: str, by_key: Mapping[str, Any]) -> dict[str, Any]:
    """What came through one argument, by name."""
    found = ((key.partition("/"), x) for key, x in by_key.items())
    return {name: x for (first, _, name), x in found if first == door}


def on_host(data: Mapping[str, Any]) -> Data:
    """Arrays as NumPy has them when blocks are merged: in float64 and int64."""

    def wide(x: Any) -> np.ndarray:
        x = np.asarray(x)
        return x.astype(np.float64 if x.dtype.kind == "f" else np.int64, copy=False)

    return {name: wide(x) for name, x in data.items()}


def data_to_record(
    by_key: Mapping[str, Data],
) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Names and arrays, from which `data_from_record` makes the data again."""
    arrays = {f"{key}/{name}": x for key, data in by_key.items() for name, x in data.items()}
    return {key: list(data) for key, data in by_key.items()}, arrays


def data_from_record(
    names: Mapping[str, list[str]], arrays: Mapping[str, np.ndarray]
) -> dict[str, Data]:
    """The data of a record; KeyError if an array is missing."""
    return {key: {name: arrays[f"{key}/{name}"] for name in of} for key, of in names.items()}
