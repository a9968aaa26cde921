"""Which code takes the fast steps of a run, and why not a faster one.

An engine is an object with a name and one method:

    compile(steps) -> on_block
    on_block(block) -> march
    march(state, first, count) -> state, hard

`march` takes all paths of a block through `count` steps. Paths that have solved their equations and
are finite come back after these steps, with what they have to report; the others, and those that
had failed before, come back as they were, the former marked in `hard` (a boolean array, or None if
there are none, or a function that gives one of these when it is called, so that a device need not
stop after every stretch). An engine that cannot take some steps raises `RefusedError` with the
reason. One that can do more than march may have a method `means_at_end(kernel, steps)`: what takes
the means of runs that are looked at once, at their end (`native_means.py`), or None.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.ensemble.march import (
    Block,
    Fast,
    PathState,
    Stretch,
    accepted,
    choose,
    march_fast,
)
from dalembert.ensemble.places import to_host
from dalembert.ensemble.rounds import march_in_rounds
from dalembert.noise import Noise
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.propagator import Maps, Propagator
from dalembert.stepping.stepper import Stepper

March = Callable[[PathState, int, int], tuple[PathState, Any]]
OnBlock = Callable[[Block], March]


def known(hard: Any) -> np.ndarray | None:
    """Which paths have to take a stretch again, after waiting for it if need be."""
    found: Any = hard() if callable(hard) else hard
    return found


class RefusedError(Exception):
    """An engine cannot take some steps; the message is the reason."""


class OtherDeviceError(RefusedError):
    """An engine is not for the device of the run, whatever the steps."""


@dataclass(frozen=True)
class Steps:
    """The steps of a run, as an engine is asked to take them.

    Attributes:
        stepper: the method made for the system.
        noise: what the steps are driven by.
        params: parameters of the system.
        maps: matrices that the steps are, if they are that.
        needs: increments that the method reads.
        paths: paths of a block.
        backend: JAX's name of the kind of device.
        is_spread: whether a state lies on several devices.
    """

    stepper: Stepper
    noise: Noise
    params: Any
    maps: Maps | None
    needs: frozenset[str]
    paths: int
    backend: str
    is_spread: bool = False

    @property
    def fast(self) -> Fast:
        """What takes a fast step: the stepper, or its matrices."""
        return self.stepper if self.maps is None else Propagator(self.stepper)

    @property
    def fast_noise(self) -> Noise:
        """What fast steps are driven by."""
        return self.noise if self.maps is None else Propagator.noise

    def told(self, block: Block) -> Block:
        """What the paths of a block are told for fast steps."""
        if self.maps is None:
            return block
        return block._replace(params=block.maps, noise=self.fast_noise)


class Engine(Protocol):
    """Code that takes the fast steps of a block; see the top of this module."""

    name: str

    def compile(self, steps: Steps) -> OnBlock:
        """The steps, ready to be taken by any block; RefusedError if that cannot be."""
        ...


class Choice(NamedTuple):
    """The engine of a run, its compiled steps, and the faster ones of its device that refused."""

    engine: Engine
    on_block: OnBlock
    refused: dict[str, str]

    @property
    def name(self) -> str:
        return self.engine.name

    def means_at_end(self, kernel: Any, steps: Steps) -> Any:
        """What the engine has for means at the end of a run, if anything."""
        make = getattr(self.engine, "means_at_end", None)
        return None if make is None else make(kernel, steps)


def choose_engine(steps: Steps, engines: Sequence[Engine]) -> Choice:
    """The first engine that can take the steps, and why those before it cannot."""
    refused: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    for engine in engines:
        try:
            return Choice(engine, engine.compile(steps), refused)
        except OtherDeviceError as reason:
            elsewhere[engine.name] = str(reason)
        except RefusedError as reason:
            refused[engine.name] = str(reason)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in (refused | elsewhere).items())
    raise ValueError(f"no engine can take these steps. {reasons}.")


class VectorCode:
    """Vector instructions of this processor, made with LLVM: a block stays in its registers."""

    name = "vector code (LLVM)"

    def compile(self, steps: Steps) -> OnBlock:
        if steps.backend != "cpu":
            raise OtherDeviceError("for CPUs only")
        try:
            from dalembert.ensemble.native import vector_march
        except ImportError:
            raise RefusedError("llvmlite is missing (pip install llvmlite)") from None
        return vector_march(steps)

    def means_at_end(self, kernel: Any, steps: Steps) -> Any:
        from dalembert.ensemble.native_means import means_at_end

        return means_at_end(kernel, steps)


class KernelInRegisters:
    """One GPU kernel for a whole stretch of steps, with states and noise in registers."""

    name = "one GPU kernel (Pallas)"

    def compile(self, steps: Steps) -> OnBlock:
        if steps.backend not in ("cuda", "gpu"):
            raise OtherDeviceError("for NVIDIA GPUs only")
        return self.compile_anywhere(steps)

    def compile_anywhere(self, steps: Steps) -> OnBlock:
        """`compile` without looking at the device: tests interpret the kernel on a CPU."""
        from dalembert.ensemble.registers import march_in_registers, why_not_in_registers

        params = steps.stepper.system.params if steps.maps is None else steps.maps
        given = steps.fast, steps.fast_noise, steps.needs, params, steps.paths
        if reason := why_not_in_registers(*given):
            raise RefusedError(reason)
        return _by_xla(steps, march_in_registers)


class Xla:
    """A loop over steps, compiled by XLA; every step goes through memory."""

    name = "XLA"

    def compile(self, steps: Steps) -> OnBlock:
        if not steps.stepper.is_scalar:
            raise RefusedError(steps.stepper.notice)
        return _by_xla(steps, march_fast)


class Arrays:
    """Steps on whole arrays, for systems with too many degrees of freedom to be written out."""

    name = "arrays (XLA)"

    def compile(self, steps: Steps) -> OnBlock:
        return _by_xla(steps, march_fast if steps.backend == "cpu" else march_in_rounds)


def _by_xla(steps: Steps, march: Callable[..., Any]) -> OnBlock:
    stepper, by_maps = steps.stepper, steps.maps is not None
    # What follows where sweeps do not gain takes long to compile, and is seldom needed.
    is_split = type(stepper) is Stepper and stepper.is_swept and not by_maps
    solver = Solver.SWEPT if is_split else None
    compiled = _compiled(stepper, by_maps, steps.needs, march, solver)
    again = _Once(_compiled_again(stepper, steps.needs, march)) if is_split else None

    def on_block(block: Block) -> March:
        told = steps.told(block)

        def take(state: PathState, first: int, count: int) -> tuple[PathState, Any]:
            when = np.int32(first), np.int32(count)
            after, hard, any_hard = compiled(state, told, *when)
            if again is not None and any_hard:
                after, hard, any_hard = again(state, after, hard, told, *when)
            return after, lambda: to_host(hard) if any_hard else None

        return take

    return on_block


class _Once:
    """A function that is compiled by one of the threads that call it, while the others wait."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun, self.lock, self.is_compiled = fun, threading.Lock(), False

    def __call__(self, *given: Any) -> Any:
        if self.is_compiled:
            return self.fun(*given)
        with self.lock:
            found = self.fun(*given)
            self.is_compiled = True
        return found


@kept
def _compiled(
    stepper: Stepper,
    by_maps: bool,
    needs: frozenset[str],
    march: Callable[..., Any],
    solver: Solver | None,
) -> Callable[..., Any]:
    fast = Propagator(stepper) if by_maps else stepper
    way = () if solver is None else (solver,)

    def run(state: PathState, told: Block, first: Any, count: Any) -> tuple[PathState, Any, Any]:
        moved = march(fast, state, told, Stretch(first, count, needs), *way)
        after, hard = accepted(stepper, state, moved)
        return after, hard, jnp.any(hard)

    return jax.jit(run)


@kept
def _compiled_again(
    stepper: Stepper, needs: frozenset[str], march: Callable[..., Any]
) -> Callable[..., Any]:
    """The stretch once more, with all that the fast solver can do, for paths that were hard.

    The others stay as they are: what becomes of them does not depend on these.
    """

    def run(
        state: PathState, after: PathState, hard: Any, told: Block, first: Any, count: Any
    ) -> tuple[PathState, Any, Any]:
        moved = march(stepper, state, told, Stretch(first, count, needs), Solver.FAST)
        again, still = accepted(stepper, state, moved)
        after, still = jax.tree.map(partial(choose, hard), again, after), hard & still
        return after, still, jnp.any(still)

    return jax.jit(run)


ENGINES: tuple[Engine, ...] = (VectorCode(), KernelInRegisters(), Xla(), Arrays())
"""From the fastest on."""


def find_engines(given: Any) -> Sequence[Engine]:
    """What `engine=` means: None, an engine, the name of one, or several of these in order."""
    if given is None:
        return ENGINES
    if isinstance(given, list | tuple):
        return [engine for one in given for engine in find_engines(one)]
    if isinstance(given, str):
        found = [engine for engine in ENGINES if engine.name == given]
        if not found:
            names = ", ".join(repr(engine.name) for engine in ENGINES)
            raise ValueError(f"engine must be one of {names} or an object, not {given!r}.")
        return found
    if not (hasattr(given, "compile") and isinstance(getattr(given, "name", None), str)):
        raise TypeError(
            f"engine must have a name and a method compile(steps), which {given!r} has not."
        )
    return [given]
