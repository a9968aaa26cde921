"""Ensembles: all paths of a simulation, block by block, and what they amount to."""

import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.ensemble.kernel import BlockInput, BlockResult, Kernel, Status, check_observables
from dalembert.ensemble.progress import Progress
from dalembert.ensemble.run import Failures, Run
from dalembert.ensemble.statistics import in_float64, merge
from dalembert.noise import Gaussian, Noise, ThreePoint, initial_key, seed_words
from dalembert.precision import as_dtype, cast, check_real
from dalembert.stepping.step import check_method
from dalembert.stepping.stepper import make_stepper
from dalembert.system import System

__all__ = ["simulate"]

BLOCK_PATHS = {"cpu": 2048}
DEFAULT_BLOCK_PATHS = 2**17
"""Paths per block: on a CPU what stays in its cache, elsewhere what fills the device."""


def simulate(
    system: System,
    method: Any,
    initial: Any,
    *,
    dt: float,
    t_end: float,
    paths: int = 1,
    seed: int = 0,
    observe: Mapping[str, Callable[..., Any]] | None = None,
    save_every: int = 1,
    noise: Noise | None = None,
    keep: str = "nothing",
    on_failure: str = "warn",
    progress: bool = False,
    dtype: Any = np.float64,
) -> Run:
    """Simulate an ensemble of independent paths and collect statistics of observables.

    Args:
        system: what to simulate.
        method: a tableau, e.g. `da.midpoint()`.
        initial: `(q0, p0)`, each of shape (dim,) for all paths alike or (paths, dim); or a
            function `sampler(key) -> (q, p)` of a `jax.random` key, called once per path.
        dt: step size, > 0, in the units of time of the system.
        t_end: final time, a whole number of steps.
        paths: number of paths.
        seed: the run is a pure function of it (and of everything else here).
        observe: functions of (q, p), or (q, p, params) if the system has params, by name. They may
            return arrays. By default the energy `H`.
        save_every: statistics are kept at the start, every so many steps, and at the end.
        noise: kind of noise; by default what the method wants, `da.Gaussian()` for mean-square
            methods and `da.ThreePoint()` for weak ones.
        keep: "nothing", "final" or "all": which states to return as `run.q`, `run.p`.
        on_failure: "warn" or "raise" if a path fails (overflows, or has a stage equation without
            a solution). Failed paths leave the statistics from then on and are counted.
        progress: show progress in a terminal.
        dtype: float64 (default) or float32.

    Returns:
        A `Run`: `run.t`, `run.mean["energy"]`, `run.stderr["energy"]`, `run.failed`, …
    """
    started = time.perf_counter()
    check_method(system, method)
    steps = _check_schedule(dt, t_end, save_every)
    paths, seed = _whole("paths", paths, 1), _whole("seed", seed, 0)
    _check_choice("keep", keep, ("nothing", "final", "all"))
    _check_choice("on_failure", on_failure, ("warn", "raise"))
    noise = _check_noise(noise, system, method, dt=dt, steps=steps, paths=paths)
    dtype = as_dtype(dtype)
    observe = {"energy": system.H} if observe is None else _check_observe(observe)
    with jax.enable_x64(dtype == np.float64):
        stepper = make_stepper(system, method, dtype)
        check_observables(stepper, observe)
        kernel = Kernel(stepper, tuple(observe.items()), steps, save_every, keep)
        _check_memory(kernel, paths, system.dim, dtype)
        starts = _initial_states(system, initial, paths, seed, dtype)
        size = _block_size(paths)
        common = (seed_words(seed), dt, cast(system.params, dtype), noise)
        results = list(
            Progress(
                _run_blocks(_compile(kernel), starts, common, paths, size, dtype),
                total=-(-paths // size),
                work_per_item=min(size, paths) * steps,
                title=f"{method.name} on {system.name}",
                shown=progress,
            )
        )
    run = _collect(results, kernel, dt, paths, size, _provenance(locals(), started))
    _report_failures(run, on_failure)
    return run


@lru_cache(maxsize=128)
def _compile(kernel: Kernel) -> Callable[[BlockInput], BlockResult]:
    return jax.jit(kernel)


def _run_blocks(
    compiled: Callable[[BlockInput], BlockResult],
    starts: Callable[[np.ndarray], tuple[Any, Any]],
    common: tuple[Any, Any, Any, Noise],
    paths: int,
    size: int,
    dtype: np.dtype,
) -> Iterator[BlockResult]:
    """Results in block order."""
    seed, dt, params, noise = common
    for number in range(-(-paths // size)):
        path = np.arange(number * size, (number + 1) * size, dtype=np.uint64)
        real = path < paths
        # Places beyond the last path repeat it, so that they cannot fail on their own.
        path = np.minimum(path, np.uint64(paths - 1))
        q, p = starts(path)
        block = BlockInput(seed, _words(path), real, q, p, jnp.asarray(dt, dtype), params, noise)
        yield jax.tree.map(np.asarray, compiled(block))


def _words(path: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Path numbers as pairs of 32-bit words, which every device can hold."""
    return (path & np.uint64(0xFFFFFFFF)).astype(np.uint32), (path >> np.uint64(32)).astype(
        np.uint32
    )


def _initial_states(
    system: System, initial: Any, paths: int, seed: int, dtype: np.dtype
) -> Callable[[np.ndarray], tuple[Any, Any]]:
    """The initial states of the paths with given numbers."""
    shape = (system.dim,)
    if callable(initial):
        out = jax.eval_shape(initial, jax.random.key(0))
        shapes = [x.shape for x in jax.tree.leaves(out)]
        if not (isinstance(out, tuple) and shapes == [shape, shape]):
            raise ValueError(
                f"the sampler must return (q, p), each of shape {shape}; it returns {out}."
            )
        words = seed_words(seed)
        sample = jax.jit(jax.vmap(lambda low, high: initial(initial_key(words, (low, high)))))
        return lambda path: cast(sample(*_words(path)), dtype)
    if not (isinstance(initial, tuple | list) and len(initial) == 2):
        raise TypeError("the initial state must be a pair (q0, p0) or a function sampler(key).")
    arrays = []
    for name, value in zip(("q0", "p0"), initial, strict=True):
        x = np.asarray(value)
        check_real(name, x)
        if x.shape not in (shape, (paths, *shape)):
            raise ValueError(
                f"{name} must have shape {shape} (all paths alike) or {(paths, *shape)}, "
                f"not {x.shape}."
            )
        if not np.all(np.isfinite(x)):
            raise ValueError(f"{name} contains NaN or infinity.")
        arrays.append(np.broadcast_to(x.astype(dtype), (paths, *shape)))
    return lambda path: (arrays[0][path], arrays[1][path])


def _collect(
    results: list[BlockResult],
    kernel: Kernel,
    dt: float,
    paths: int,
    size: int,
    provenance: dict[str, Any],
) -> Run:
    moments = {
        name: reduce(merge, (in_float64(r.moments[name]) for r in results))
        for name, _ in kernel.observe
    }
    status = np.concatenate([r.status for r in results])[:paths]
    when = np.concatenate([r.failed_step for r in results])[:paths]
    failed = np.flatnonzero(status != Status.FINE)
    first = int(failed[np.argmin(when[failed])]) if failed.size else None
    failures = Failures(
        int(np.sum(status == Status.UNCONVERGED)),
        int(np.sum(status == Status.NON_FINITE)),
        first,
        None if first is None else float(when[first] * dt),
    )
    q = p = None
    if kernel.keep != "nothing":
        axis = 0 if kernel.keep == "final" else 1
        blocks = [r.kept for r in results if r.kept is not None]
        q, p = (
            np.concatenate(parts, axis=axis).take(range(paths), axis=axis)
            for parts in zip(*blocks, strict=True)
        )
    return Run(
        kernel.times(dt),
        moments,
        failures,
        int(sum(int(r.truncated) for r in results)),
        float(max(r.residual for r in results)),
        int(max(r.iterations for r in results)),
        q,
        p,
        provenance,
    )


def _report_failures(run: Run, on_failure: str) -> None:
    if not run.failed:
        return
    message = (
        f"{run.failed} of {run.provenance['paths']:,} paths failed: {run.failures}. "
        "They are left out of the statistics from then on. A smaller dt, an implicit method or "
        "truncated increments may help."
    )
    if on_failure == "raise":
        raise RuntimeError(message)
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def _check_schedule(dt: float, t_end: float, save_every: int) -> int:
    for name, value in (("dt", dt), ("t_end", t_end)):
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not np.isfinite(value) or value <= 0:
            raise ValueError(f"{name} must be a positive number, not {value!r}.")
    steps = round(t_end / dt)
    if steps < 1 or abs(steps * dt - t_end) > 1e-9 * t_end:
        raise ValueError(
            f"t_end = {t_end} is not a whole number of steps of dt = {dt}: "
            f"take t_end = {max(steps, 1) * dt:.12g}, or dt = {t_end / max(steps, 1):.12g}."
        )
    _whole("save_every", save_every, 1)
    return steps


def _whole(name: str, value: Any, least: int) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{name} must be a whole number ≥ {least}, not {value!r}.")
    return int(value)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")


def _check_observe(observe: Any) -> dict[str, Callable[..., Any]]:
    if not isinstance(observe, Mapping) or not observe:
        raise TypeError('observe must map names to functions, e.g. {"energy": H}.')
    return dict(observe)


def _check_noise(
    noise: Noise | None, system: System, method: Any, dt: float, steps: int, paths: int
) -> Noise:
    usual: Noise = ThreePoint() if method.convergence == "weak" else Gaussian()
    chosen = usual if noise is None else noise
    missing = method.needs(system.noises) - chosen.offers
    if missing:
        raise ValueError(
            f"{method.name} needs the increments {sorted(missing)}, which "
            f"{type(chosen).__name__} noise does not offer."
        )
    chosen.check(dt=dt, steps=steps, paths=paths, noises=system.noises)
    return chosen


def _check_memory(kernel: Kernel, paths: int, dim: int, dtype: np.dtype) -> None:
    saves = {"nothing": 0, "final": 1, "all": len(kernel.times(1.0))}[kernel.keep]
    wanted = 2 * saves * paths * dim * dtype.itemsize
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Blocks and their concatenation exist at the same time.
    if 2 * wanted > available:
        raise ValueError(
            f"keep={kernel.keep!r} would return {wanted:,} bytes, and this machine has "
            f"{available:,}: keep less, save less often or run fewer paths."
        )


def _block_size(paths: int) -> int:
    """The usual size, or for few paths the smallest power of two that holds them."""
    usual = BLOCK_PATHS.get(jax.default_backend(), DEFAULT_BLOCK_PATHS)
    return min(usual, 1 << (paths - 1).bit_length())


def _provenance(of: dict[str, Any], started: float) -> dict[str, Any]:
    """Everything needed to repeat the run, as plain data."""
    from dalembert import __version__

    seconds = time.perf_counter() - started
    system, device = of["system"], jax.devices()[0]
    return {
        "system": {
            "name": system.name,
            "dim": system.dim,
            "noises": system.noises,
            "params": jax.tree.map(lambda x: np.asarray(x).tolist(), system.params),
        },
        "method": of["method"].to_dict(),
        **{name: of[name] for name in ("dt", "t_end", "paths", "seed", "save_every", "keep")},
        "noise": of["noise"].describe(),
        "dtype": str(of["dtype"]),
        "device": f"{device.platform} ({device.device_kind})",
        "versions": {
            "dalembert": __version__,
            "jax": jax.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "platform": sys.platform,
        "seconds": seconds,
        "path_steps_per_second": of["paths"] * of["steps"] / seconds,
    }
