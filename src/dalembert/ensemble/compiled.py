"""The engine of loops that XLA compiles, and what compiles them for every engine of XLA's."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.ensemble.engine import March, OnBlock, RefusedError, Steps
from dalembert.ensemble.march import Block, PathState, Stretch, accepted, choose, march_fast
from dalembert.ensemble.places import to_host
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.propagator import Propagator
from dalembert.stepping.stepper import Stepper


class Xla:
    """A loop over steps, compiled by XLA; every step goes through memory."""

    name = "XLA"

    def compile(self, steps: Steps) -> OnBlock:
        if not steps.stepper.is_scalar:
            raise RefusedError(steps.stepper.notice)
        return by_xla(steps, march_fast)


def by_xla(steps: Steps, march: Callable[..., Any]) -> OnBlock:
    """Steps marched by a function of JAX, compiled by XLA when the first block comes."""
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
