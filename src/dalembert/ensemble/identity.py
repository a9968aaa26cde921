"""What decides the numbers of a run, as plain data: in its provenance, and in its checkpoint.

Functions are described by what they compute (`digest.py`), numbers exactly. A checkpoint is good
for a run whose description is the same.
"""

import hashlib
import platform
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.digest import ORDERS, digest_or_reason
from dalembert.ensemble.initial import example_key
from dalembert.ensemble.settings import Settings
from dalembert.functions import arguments_like
from dalembert.noise import Gaussian, Halves, Increments, Recorded, ThreePoint, Zero, seed_words
from dalembert.precision import cast
from dalembert.statistics.observing import Observing, at_door, in_words
from dalembert.statistics.statistic import Statistic, memory_and_row, recorded
from dalembert.stepping.derived import DerivedMethod, DerivedSystem
from dalembert.system import System

UNKNOWN = "unknown"

PIECE = 2**26
"""Bytes of an array that are known by a digest of their own, if there are more."""

DOORS = ("observe", "histograms", "statistics")
"""Arguments of `simulate` through which statistics come."""

OPTIONS = ("jax_default_matmul_precision", "jax_threefry_partitionable")
"""Options of JAX that change numbers without a trace."""


@dataclass(frozen=True)
class Description:
    """What decides the numbers of a run.

    Attributes:
        record: plain data, as JSON knows it.
        unknown: what has no description, by name, and why.
    """

    record: dict[str, Any]
    unknown: dict[str, str]

    def of(self, settings: Settings) -> "Description":
        """The description of a run that differs in numbers alone, of paths, steps and the seed."""
        return replace(self, record=self.record | _numbers(settings, {}))

    @property
    def functions(self) -> Hashable:
        """The functions of the system, as a key."""
        return tuple(self.record["system"]["functions"].items())

    @property
    def observed(self) -> Hashable:
        """What statistics compute, as a key."""
        entries = (s for door in DOORS for s in self.record[door].values())
        return tuple((s["computes"], *s["functions"].values()) for s in entries)

    def check_complete(self) -> None:
        """Refuse to compare what cannot be compared."""
        for name, reason in self.unknown.items():
            raise ValueError(
                f"checkpoint= needs functions that can be compared with those of the run that the "
                f"file belongs to, and {name} cannot: {reason}. Write it with jax.numpy alone, or "
                "leave checkpoint out."
            )


def describe_settings(settings: Settings, exactly: bool) -> Description:
    """The description of a run, for a checkpoint with derivatives that functions define."""
    system, unknown = settings.system, {}

    with jax.enable_x64(settings.dtype == np.float64):
        functions, why_not = describe_functions(system, settings.dtype, exactly)
        unknown |= why_not
        statistics = _statistics(settings, unknown)
        record = {
            "system": {
                "name": system.name,
                "dim": system.dim if len(system.shape) == 1 else list(system.shape),
                "noises": system.noises,
                "params": _plain(system.params),
                "functions": functions,
                **({"time": True} if system.time else {}),
                **({} if (box := system.box()) is None else {"box": _in_runs(box)}),
            },
            "method": _method(settings.method, system, settings, unknown),
            "initial": _initial(settings, unknown),
            **_numbers(settings, unknown),
            **{door: at_door(door, statistics) for door in DOORS},
            "keep": settings.keep,
            "dtype": str(settings.dtype),
            "backend": settings.backend,
            "device_kind": jax.local_devices(backend=settings.backend)[0].device_kind,
            "jax": {name: getattr(jax.config, name, None) for name in OPTIONS},
            "versions": versions(),
        }
    return Description(record, unknown)


def _numbers(settings: Settings, unknown: dict[str, str]) -> dict[str, Any]:
    """The numbers of a run besides its functions; the usual noise may depend on the step size."""
    return {
        "dt": float(settings.dt),
        "t_end": float(settings.t_end),
        "paths": settings.paths,
        "only": None if settings.only is None else list(settings.only),
        "seed": settings.seed,
        "save_every": settings.save_every,
        **({"at_end": True} if settings.at_end else {}),
        "noise": _noise(settings, unknown),
        "block_paths": settings.block_paths,
    }


def _method(
    method: Any, system: System, settings: Settings, unknown: dict[str, str]
) -> dict[str, Any]:
    """The coefficients; a method from outside the package also by what its steps compute."""
    dtype = settings.dtype
    if isinstance(method, DerivedMethod) and isinstance(system, DerivedSystem) and system.one:
        like = run_arguments(system.one, dtype)
        read = {k: _traced(unknown, k, fun, *like) for k, fun in method.functions().items()}
        of = _method(method.of, system.one, settings, unknown)
        about = {"family": method.family, "of": of["family"], "functions": read}
        return of | about | method.options
    if type(method).__module__.startswith("dalembert."):
        return method.to_dict()
    rows = method.rows(system.noises)
    increments = sorted({entry.increment for entry in rows.entries})

    def everything(dt: Any, noise: Increments, params: Any) -> Any:
        factors = [increment.factor for increment in increments]
        return (
            [increment.value(dt, noise) for increment in increments],
            [factor(system, dt, params) for factor in factors if factor],
        )

    dt = jax.ShapeDtypeStruct((), dtype)
    noise = jax.eval_shape(lambda: Zero().draw(0, 0, 0, settings.dt, system.noises, dtype))
    traced = _traced(unknown, "the method", everything, dt, noise, cast(system.params, dtype))
    of_rows = hashlib.sha256(repr(rows).encode()).hexdigest()[:32]
    return method.to_dict() | {"rows": of_rows, "computes": traced}


def _statistics(settings: Settings, unknown: dict[str, str]) -> dict[str, Any]:
    """Statistics by key: their fields, their functions, and what else they compute.

    The package's own are known by their class and its version, others by a trace as well.
    """
    like, found = run_arguments(settings.system, settings.dtype), {}
    for key, statistic in settings.statistics:
        label = in_words(key)
        functions = statistic.functions().items()
        entry = recorded(statistic)
        entry["functions"] = {name: _traced(unknown, label, fun, *like) for name, fun in functions}
        is_own = type(statistic).__module__.startswith("dalembert.")
        entry["computes"] = None if is_own else _computed(settings, unknown, key, statistic)
        found[key] = entry
    return found


def _computed(settings: Settings, unknown: dict[str, str], key: str, statistic: Statistic) -> str:
    statistics = ((key, statistic),)
    observing = Observing.checked(settings.system, settings.dtype, statistics)
    values = observing.like(settings.block_paths)[key]
    mask = np.zeros(settings.block_paths, bool)

    def everything(values: Any, mask: Any, t: Any) -> Any:
        found = statistic.observe(statistic.start(values), values, mask, t)
        memory, row = memory_and_row(statistic, found)
        return memory, row, statistic.finish(memory, mask)

    t = np.zeros((), settings.dtype)
    return _traced(unknown, in_words(key), everything, values, mask, t)


def describe_functions(
    system: System, dtype: np.dtype, exactly: bool = False
) -> tuple[dict[str, str | None], dict[str, str]]:
    """The functions of a system by what they compute, and why for those that have no such name."""
    unknown: dict[str, str] = {}
    orders, arguments = ORDERS if exactly else 0, run_arguments(system, dtype)
    params = arguments[2 + system.time :]

    def described(name: str, fun: Any, like: tuple[Any, ...]) -> str | None:
        return None if fun is None else _traced(unknown, name, fun, *like, orders=orders)

    w = jax.ShapeDtypeStruct(system.noise_shape or (), dtype)
    with_noises = (*arguments[: 2 + system.time], w, *params)
    found = {
        name: described(name, fun, with_noises if name in ("h", "f") else arguments)
        for name, fun in system.functions.items()
    }
    if system.constraints is not None:
        of_positions = (*arguments[:1], *params)
        found["constraints"] = described("constraints", system.constraints, of_positions)
    if system.flow is not None:
        like = system.flow.arguments(arguments[0], *params or (None,))
        for name, act in zip(("flow", "flow after"), system.flow.maps, strict=False):
            found[name] = _traced(unknown, name, act, *like)
    return found, unknown


def run_arguments(system: System, dtype: np.dtype) -> tuple[Any, ...]:
    """What the functions of a system are called with in a run."""
    params = cast(system.params, dtype)
    return arguments_like(system.shape, params, time=system.time, dtype=dtype)


def _traced(
    unknown: dict[str, str], name: str, fun: Callable[..., Any], *like: Any, orders: int = 0
) -> str:
    """The digest of a function, without its derivatives if they have none; why is noted."""

    def arrays(*args: Any) -> Any:
        return jax.tree.map(jnp.asarray, fun(*args))

    found, reason = digest_or_reason(arrays, *like, orders=orders)
    if reason:
        unknown[name] = reason
        found, _ = digest_or_reason(arrays, *like)
    return found or UNKNOWN


def _in_runs(x: np.ndarray) -> dict[str, Any]:
    """An array of few different neighbours as JSON: values, and how often each is repeated."""
    flat = x.ravel()
    starts = np.flatnonzero(np.diff(flat, prepend=np.nan) != 0)
    counts = np.diff(starts, append=flat.size)
    return {"shape": x.shape, "values": flat[starts].tolist(), "counts": counts.tolist()}


def _plain(params: Any) -> Any:
    """Parameters as JSON knows them, with all their digits."""
    if params is None:
        return None
    if isinstance(params, dict):
        return {str(name): _plain(value) for name, value in params.items()}
    if isinstance(params, list | tuple):
        return [_plain(value) for value in params]
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if [path for path, _ in leaves] != [()]:
        return {jax.tree_util.keystr(path): _plain(leaf) for path, leaf in leaves}
    if jnp.issubdtype(getattr(params, "dtype", float), jax.dtypes.prng_key):
        params = jax.random.key_data(params)
    array: Any = np.asarray(params)
    if np.iscomplexobj(array):
        return {"real": array.real.tolist(), "imag": array.imag.tolist()}
    return array.tolist()


def _initial(settings: Settings, unknown: dict[str, str]) -> str:
    initial = settings.initial
    if callable(initial):
        return "sampler " + _traced(unknown, "the sampler", initial, example_key())
    return "arrays " + _arrays(initial)


def _noise(settings: Settings, unknown: dict[str, str]) -> str:
    """One line about the noise; other kinds than the library's by what they draw."""
    noise, dtype = settings.noise, settings.dtype
    text = noise.describe()
    if isinstance(noise, Recorded):
        given = noise.increments._asdict().items()
        recorded = [(name, x) for name, x in given if x is not None]
        return f"{text} {', '.join(name for name, _ in recorded)} {_arrays(x for _, x in recorded)}"
    if type(noise.of if isinstance(noise, Halves) else noise) in (Gaussian, ThreePoint, Zero):
        return text

    def draw(seed: Any, path: Any, step: Any, dt: Any) -> Any:
        return noise.draw(seed, path, step, dt, settings.system.noises, dtype)

    word = np.uint32(0)
    like = (seed_words(settings.seed), (word, word), word, np.asarray(settings.dt, dtype))
    return f"{text} {_traced(unknown, 'the noise', draw, *like)}"


def _arrays(arrays: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for x in map(np.asarray, arrays):
        digest.update(f"{x.dtype}{x.shape}".encode())
        # Not as a string of bytes: large states are not copied to be known.
        data = np.ascontiguousarray(x).reshape(-1).view(np.uint8).data
        if len(data) <= PIECE:
            digest.update(data)
            continue
        pieces = (data[i : i + PIECE] for i in range(0, len(data), PIECE))
        # On all cores: of 10⁸ particles one alone would take as long as a hundred steps of a GPU.
        with ThreadPoolExecutor() as pool:
            for piece in pool.map(lambda piece: hashlib.sha256(piece).digest(), pieces):
                digest.update(piece)
    return digest.hexdigest()[:32]


def versions() -> dict[str, str]:
    """What computes here."""
    from dalembert import __version__

    return {
        "dalembert": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
