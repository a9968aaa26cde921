"""What decides the numbers of a run, as plain data: in its provenance, and in its checkpoint.

Functions are described by what they compute (`digest.py`), numbers exactly. A checkpoint is good
for a run whose description is the same.
"""

import hashlib
import platform
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.digest import ORDERS, digest_or_reason
from dalembert.ensemble.initial import example_key
from dalembert.ensemble.settings import Settings
from dalembert.noise import Gaussian, Recorded, ThreePoint, Zero, seed_words
from dalembert.precision import cast
from dalembert.system import System

__all__ = ["Description", "arguments_like", "describe", "describe_functions"]

UNKNOWN = "unknown"

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

    @property
    def functions(self) -> Hashable:
        """The functions of the system, as a key."""
        return tuple(self.record["system"]["functions"].items())

    @property
    def observed(self) -> Hashable:
        """The functions of observables and of the axes of histograms, as a key."""
        axes = (axis["of"] for h in self.record["histograms"].values() for axis in h["axes"])
        return (*self.record["observe"].values(), *axes)

    def check_complete(self) -> None:
        """Refuse to compare what cannot be compared."""
        for name, reason in self.unknown.items():
            raise ValueError(
                f"checkpoint= needs functions that can be compared with those of the run that the "
                f"file belongs to, and {name} cannot: {reason}. Write it with jax.numpy alone, or "
                "leave checkpoint out."
            )


def describe(settings: Settings, exactly: bool) -> Description:
    """The description of a run, for a checkpoint with derivatives that functions define."""
    system, unknown = settings.system, {}

    def of(name: str, fun: Callable[..., Any]) -> str:
        return _traced(unknown, name, fun, *arguments_like(system, settings.dtype))

    with jax.enable_x64(settings.dtype == np.float64):
        functions, why_not = describe_functions(system, settings.dtype, exactly)
        unknown |= why_not
        record = {
            "system": {
                "name": system.name,
                "dim": system.dim,
                "noises": system.noises,
                "params": _plain(system.params),
                "functions": functions,
            },
            "method": settings.method.to_dict(),
            "initial": _initial(settings, unknown),
            "dt": float(settings.dt),
            "t_end": float(settings.t_end),
            "paths": settings.paths,
            "only": None if settings.only is None else list(settings.only),
            "seed": settings.seed,
            "observe": {name: of(f"observe[{name!r}]", fun) for name, fun in settings.observe},
            "histograms": {
                name: {
                    "every_save": h.every_save,
                    "axes": [
                        {
                            "of": of(f"histograms[{name!r}]", axis.of),
                            "low": float(axis.low),
                            "high": float(axis.high),
                            "bins": axis.bins,
                            "periodic": axis.periodic,
                        }
                        for axis in h.axes
                    ],
                }
                for name, h in settings.histograms
            },
            "save_every": settings.save_every,
            "noise": _noise(settings, unknown),
            "keep": settings.keep,
            "dtype": str(settings.dtype),
            "block_paths": settings.block_paths,
            "backend": settings.backend,
            "device_kind": jax.local_devices(backend=settings.backend)[0].device_kind,
            "jax": {name: getattr(jax.config, name, None) for name in OPTIONS},
            "versions": _versions(),
        }
    return Description(record, unknown)


def describe_functions(
    system: System, dtype: np.dtype, exactly: bool = False
) -> tuple[dict[str, str | None], dict[str, str]]:
    """The functions of a system by what they compute, and why for those that have no such name."""
    unknown: dict[str, str] = {}
    named = {"H": system.H, "F": system.F}
    named |= {f"h[{i}]": fun for i, fun in enumerate(system.h or ())}
    named |= {f"f[{i}]": fun for i, fun in enumerate(system.f or ())}
    orders, arguments = ORDERS if exactly else 0, arguments_like(system, dtype)
    found = {
        name: None if fun is None else _traced(unknown, name, fun, *arguments, orders=orders)
        for name, fun in named.items()
    }
    return found, unknown


def arguments_like(system: System, dtype: np.dtype) -> tuple[Any, ...]:
    """What the functions of a system are called with in a run."""
    z = jax.ShapeDtypeStruct((system.dim,), dtype)
    return (z, z) if system.params is None else (z, z, cast(system.params, dtype))


def _traced(
    unknown: dict[str, str], name: str, fun: Callable[..., Any], *like: Any, orders: int = 0
) -> str:
    """The digest of a function; if it has none, the reason is noted."""
    found, reason = digest_or_reason(
        lambda *args: jax.tree.map(jnp.asarray, fun(*args)), *like, orders=orders
    )
    if reason:
        unknown[name] = reason
    return found or UNKNOWN


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
    if type(noise) in (Gaussian, ThreePoint, Zero):
        return text

    def draw(seed: Any, path: Any, step: Any, dt: Any) -> Any:
        return noise.draw(seed, path, step, dt, settings.system.noises, dtype)

    word = np.uint32(0)
    like = (seed_words(settings.seed), (word, word), word, np.asarray(settings.dt, dtype))
    return f"{text} {_traced(unknown, 'the noise', draw, *like)}"


def _arrays(arrays: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for x in map(np.asarray, arrays):
        digest.update(f"{x.dtype}{x.shape}".encode() + x.tobytes())
    return digest.hexdigest()[:32]


def _versions() -> dict[str, str]:
    from dalembert import __version__

    return {
        "dalembert": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
