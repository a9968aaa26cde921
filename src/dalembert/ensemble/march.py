"""A few steps of many paths: fast with a check at the end, or safely with a record of every step.

The fast way solves stage equations by Newton steps without damping, and carries little besides the
state. A path whose result is not accepted stays where it was, and takes these steps again safely.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from dalembert.noise import Group, Increments, Noise, pick
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.propagator import Propagator
from dalembert.stepping.residuals import tolerance, worse
from dalembert.stepping.stepper import Stepper

__all__ = [
    "OPTIONAL",
    "Block",
    "Fast",
    "Moving",
    "PathState",
    "Status",
    "Stretch",
    "accepted",
    "advanced",
    "choose",
    "march_fast",
    "march_in_rounds",
    "march_safe",
    "moving",
    "needed",
]


OPTIONAL = frozenset(Increments._fields) - {"dW", "truncated"}
"""Increments that only some methods use."""

ROUND = 8
"""Groups of increments in a round of steps."""

Fast: TypeAlias = Stepper | Propagator
"""What can take fast steps."""


class Status(IntEnum):
    """What became of a path."""

    FINE = 0
    UNCONVERGED = 1
    NON_FINITE = 2
    UNOBSERVABLE = 3


class Block(NamedTuple):
    """What the paths of a block are told: shape (paths,) for numbers, and what they share.

    Attributes:
        maps: what a `Propagator` is told instead of the parameters, if there is one.
    """

    path: tuple[Any, Any]
    is_real: Any
    seed: Any
    dt: Any
    params: Any
    noise: Noise
    maps: Any = None


class PathState(NamedTuple):
    """Where the paths of a block are, and what has happened to them; first axis: paths."""

    q: Any
    p: Any
    status: Any
    failed_step: Any
    truncated: Any
    residual: Any
    iterations: Any


class Moving(NamedTuple):
    """What a fast step changes; first axis: paths."""

    q: Any
    p: Any
    residual: Any
    truncated: Any
    iterations: Any


class Stretch(NamedTuple):
    """Consecutive steps: how many, from which one on, and with which increments of the noise."""

    first: Any
    count: Any
    needs: frozenset[str]


def _march(
    carry: Any,
    block: Block,
    stretch: Stretch,
    stepper: Any,
    step: Callable[..., Any],
    by_rounds: bool = False,
) -> Any:
    """Take the steps of a stretch; `step(carry, increments, number)` is one step of one path.

    A round is a number of steps that is known to the compiler: no device waits for being told
    whether there is another one.
    """
    end, together = stretch.first + stretch.count, block.noise.together
    # Arrays have their paths in front, scalars theirs at the end.
    axis = -1 if stepper.is_scalar else 0
    every_path = jax.vmap(step, in_axes=(0, axis, None))

    def drawn(number: Any) -> Group:
        def draw(path: Any) -> Group:
            size = stepper.system.noises, stepper.dtype
            group = block.noise.draw_together(block.seed, path, number, block.dt, *size)
            return needed(group, stretch.needs)

        return jax.vmap(draw, out_axes=axis)(block.path)

    def group(number: Any, carry: Any) -> Any:
        increments = drawn(number)

        def one(place: Any, carry: Any) -> Any:
            # Not stacked: XLA would draw entry by entry in the loop that stacks them.
            return every_path(carry, pick(place, increments), together * number + place + 1)

        begin = jnp.maximum(stretch.first - together * number, 0)
        return lax.fori_loop(begin, jnp.minimum(end - together * number, together), one, carry)

    first, last = stretch.first // together, (end + together - 1) // together
    if not by_rounds:
        return lax.fori_loop(first, last, group, carry)

    def whole_group(number: Any, carry: Any) -> Any:
        increments, before = drawn(number), together * number + 1

        def one(place: Any, carry: Any) -> Any:
            return every_path(carry, pick(place, increments), before + place)

        if not stepper.is_direct:  # Long code is not repeated.
            return lax.fori_loop(0, together, one, carry)
        for place, known in enumerate(increments):
            carry = every_path(carry, known, before + place)
        return carry

    def one_round(number: Any, carry: Any) -> Any:
        def whole(carry: Any) -> Any:
            return lax.fori_loop(0, ROUND, lambda k, now: whole_group(begin + k, now), carry)

        def part(carry: Any) -> Any:
            bounds = jnp.maximum(begin, first), jnp.minimum(begin + ROUND, last)
            return lax.fori_loop(*bounds, group, carry)

        begin = ROUND * number
        is_whole = (together * begin >= stretch.first) & (together * (begin + ROUND) <= end)
        return lax.cond(is_whole, whole, part, carry)

    return lax.fori_loop(first // ROUND, (last + ROUND - 1) // ROUND, one_round, carry)


def needed(group: Group, needs: frozenset[str]) -> Group:
    """Increments without those that a method does not use: a loop computes all that it is given."""
    unused = dict.fromkeys(OPTIONAL - needs)
    return tuple(one._replace(**unused) for one in group)


def march_fast(
    stepper: Fast, state: PathState, block: Block, stretch: Stretch, by_rounds: bool = False
) -> Moving:
    """The steps of a stretch by the fast solver; states have been entered."""

    def step(carry: tuple[Moving, Any], increments: Increments, number: Any) -> tuple[Moving, Any]:
        now, at_start = carry
        return advanced(stepper, block, now, increments, Solver.FAST, at_start)

    def terms_at(q: Any, p: Any) -> Any:
        return stepper.terms_at(q, p, block.dt, block.params)

    start = moving(state)
    carry = start, jax.vmap(terms_at)(start.q, start.p)
    return _march(carry, block, stretch, stepper, step, by_rounds)[0]


def march_in_rounds(stepper: Stepper, state: PathState, block: Block, stretch: Stretch) -> Moving:
    """The same on arrays of a device that is far from who asks whether there is another step."""
    return march_fast(stepper, state, block, stretch, by_rounds=True)


def advanced(
    stepper: Fast,
    block: Block,
    now: Moving,
    increments: Increments,
    solver: Solver,
    at_start: Any = None,
) -> tuple[Moving, Any]:
    """Paths after a step, with the worst of what its equations had to report, and known terms."""
    given = (now.q, now.p, block.dt, increments, block.params, solver, at_start)
    q, p, info, terms = stepper.advance_on(*given)
    truncated = now.truncated
    if increments.truncated is not None:
        truncated += increments.truncated
    if info is None or not stepper.is_implicit:
        return now._replace(q=q, p=p, truncated=truncated), terms
    iterations = jnp.maximum(now.iterations, info.iterations)
    worst = worse(now.residual, info.residual)
    return Moving(q, p, worst, truncated, iterations), terms


def moving(state: PathState) -> Moving:
    """Paths at the start of a stretch."""
    zeros = jnp.zeros_like(state.residual)
    none = jnp.zeros_like(state.truncated)
    return Moving(state.q, state.p, zeros, none, none)


def accepted(stepper: Stepper, state: PathState, moved: Moving) -> tuple[PathState, Any]:
    """The paths after a fast stretch, and which of them have stayed and must take it safely."""
    fine = state.status == Status.FINE
    solved = (moved.residual <= tolerance(stepper.dtype)) & stepper.is_finite(moved.q, moved.p)
    done = fine & solved
    after = state._replace(
        q=moved.q,
        p=moved.p,
        truncated=state.truncated + moved.truncated,
        residual=jnp.maximum(state.residual, moved.residual),
        iterations=jnp.maximum(state.iterations, moved.iterations),
    )
    return jax.tree.map(partial(choose, done), after, state), fine & ~solved


def march_safe(stepper: Stepper, state: PathState, block: Block, stretch: Stretch) -> PathState:
    """The steps of a stretch with the safeguarded solver and a record of what happens."""

    def step(now: PathState, increments: Increments, number: Any) -> PathState:
        q, p, info = stepper.advance(now.q, now.p, block.dt, increments, block.params, Solver.SAFE)
        finite = stepper.is_finite(q, p)
        converged = jnp.where(info.converged, jnp.int32(Status.FINE), Status.UNCONVERGED)
        outcome = jnp.where(finite, converged, Status.NON_FINITE)
        fine = now.status == Status.FINE
        fails = fine & (outcome != Status.FINE)
        truncated = 0 if increments.truncated is None else increments.truncated
        return PathState(
            q,
            p,
            jnp.where(fine, outcome, now.status),
            jnp.where(fails, number, now.failed_step),
            now.truncated + truncated,
            jnp.where(fine & finite, jnp.maximum(now.residual, info.residual), now.residual),
            jnp.where(fine, jnp.maximum(now.iterations, info.iterations), now.iterations),
        )

    return _march(state, block, stretch, stepper, step)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """Entries of `yes` where the condition holds; it has no more axes than they have."""
    yes, no = jnp.asarray(yes), jnp.asarray(no)
    shape = condition.shape + (1,) * (yes.ndim - condition.ndim)
    return jnp.where(condition.reshape(shape), yes, no)
