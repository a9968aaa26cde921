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

from dalembert.kept_rules import with_kept_rules
from dalembert.noise import Group, Increments, Noise, pick
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.propagator import Propagator
from dalembert.stepping.residuals import tolerance, worse
from dalembert.stepping.stepper import Stepper

OPTIONAL = frozenset(Increments._fields) - {"dW", "truncated"}
"""Increments that only some methods use."""

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
    """Consecutive steps: how many, from which one on, and with which increments of the noise.

    Where their number is a Python integer the loop has this length, and reverse-mode derivatives.
    """

    first: Any
    count: Any
    needs: frozenset[str]


class Walk:
    """Steps of a stretch, group by group; `step(carry, increments, number)` is one of one path."""

    def __init__(
        self, block: Block, stretch: Stretch, stepper: Fast, step: Callable[..., Any]
    ) -> None:
        self.block, self.stretch, self.stepper = block, stretch, stepper
        # Arrays have their paths in front, scalars theirs at the end.
        self.axis = -1 if stepper.is_scalar else 0
        self.together = block.noise.together
        self.every_path = jax.vmap(step, in_axes=(0, self.axis, None))

    @property
    def end(self) -> Any:
        return self.stretch.first + self.stretch.count

    @property
    def groups(self) -> tuple[Any, Any]:
        """The first group of which there are steps, and the one after the last."""
        return self.stretch.first // self.together, -(-self.end // self.together)

    def drawn(self, number: Any) -> Group:
        """The increments of all paths in a group."""
        block, stepper = self.block, self.stepper

        def draw(path: Any) -> Group:
            size = stepper.system.noises, stepper.dtype
            group = block.noise.draw_together(block.seed, path, number, block.dt, *size)
            return needed(group, self.stretch.needs)

        return jax.vmap(draw, out_axes=self.axis)(block.path)

    def group(self, number: Any, carry: Any) -> Any:
        """The steps of a group that belong to the stretch."""
        before = self.together * number
        first, last = jnp.maximum(self.stretch.first - before, 0), self.end - before
        return self.steps(number, carry, first, jnp.minimum(last, self.together))

    def steps(self, number: Any, carry: Any, first: Any, last: Any) -> Any:
        """Some consecutive steps of a group."""
        increments = self.drawn(number)

        def one(place: Any, carry: Any) -> Any:
            # Not stacked: XLA would draw entry by entry in the loop that stacks them.
            number_of_step = self.together * number + place + 1
            return self.every_path(carry, pick(place, increments), number_of_step)

        return lax.fori_loop(first, last, one, carry)

    def take(self, carry: Any) -> Any:
        """All steps of the stretch."""
        if isinstance(self.stretch.count, int):
            return self.take_known(carry)
        return lax.fori_loop(*self.groups, self.group, carry)

    def take_known(self, carry: Any) -> Any:
        """The same, one by one: where groups begin and end is not known, the number of steps is."""
        # A compiler draws of a group that is not kept what one step needs.
        is_short = self.stretch.count < self.together

        def one(now: tuple[Any, Group], number: Any) -> tuple[tuple[Any, Group], None]:
            carry, drawn = now
            group, place = number // self.together, number % self.together
            is_new = is_short | (place == 0) | (number == self.stretch.first)
            drawn = lax.cond(is_new, self.drawn, lambda _: drawn, group)
            return (self.every_path(carry, pick(place, drawn), number + 1), drawn), None

        numbers = self.stretch.first + jnp.arange(self.stretch.count, dtype=jnp.int32)
        none = jax.tree.map(jnp.zeros_like, jax.eval_shape(self.drawn, numbers[0]))
        return lax.scan(with_kept_rules(one), (carry, none), numbers)[0][0]


def needed(group: Group, needs: frozenset[str]) -> Group:
    """Increments without those that a method does not use: a loop computes all that it is given."""
    unused = dict.fromkeys(OPTIONAL - needs)
    return tuple(one._replace(**unused) for one in group)


def march_fast(
    stepper: Fast,
    state: PathState,
    block: Block,
    stretch: Stretch,
    solver: Solver = Solver.FAST,
) -> Moving:
    """The steps of a stretch by the fast solver; states have been entered."""
    walk = Walk(block, stretch, stepper, step_of(stepper, block, solver))
    return walk.take(begun(stepper, state, block))[0]


def begun(stepper: Fast, state: PathState, block: Block) -> tuple[Moving, Any]:
    """Paths before a stretch, and terms that are known there."""

    def terms_at(q: Any, p: Any) -> Any:
        return stepper.terms_at(q, p, block.dt, block.params)

    start = moving(state)
    return start, jax.vmap(terms_at)(start.q, start.p)


def step_of(stepper: Fast, block: Block, solver: Solver) -> Callable[..., tuple[Moving, Any]]:
    """One step of one path."""

    def step(carry: tuple[Moving, Any], increments: Increments, number: Any) -> tuple[Moving, Any]:
        now, at_start = carry
        return advanced(stepper, block, now, increments, solver, at_start)

    return step


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


def march_safe(
    stepper: Stepper,
    state: PathState,
    block: Block,
    stretch: Stretch,
    solver: Solver = Solver.SAFE,
) -> PathState:
    """The steps of a stretch with the safeguarded solver and a record of what happens.

    A path that fails stays where it was before that step, with the report of the step.
    """

    def step(now: PathState, increments: Increments, number: Any) -> PathState:
        given = now.q, now.p, block.dt, increments, block.params, solver
        q, p, info = stepper.advance(*given)
        finite = stepper.is_finite(q, p)
        converged = jnp.where(info.converged, jnp.int32(Status.FINE), Status.UNCONVERGED)
        status = jnp.where(finite, converged, Status.NON_FINITE)
        is_done = status == Status.FINE
        truncated = 0 if increments.truncated is None else increments.truncated
        q, p = jax.tree.map(partial(jnp.where, is_done), (q, p), (now.q, now.p))
        after = PathState(
            q,
            p,
            status,
            jnp.where(is_done, now.failed_step, number),
            now.truncated + truncated,
            jnp.where(finite, jnp.maximum(now.residual, info.residual), now.residual),
            jnp.maximum(now.iterations, info.iterations),
        )
        return jax.tree.map(partial(jnp.where, now.status == Status.FINE), after, now)

    return Walk(block, stretch, stepper, step).take(state)


def lost(state: PathState, steps: Any) -> Any:
    """Whether paths had failed by some steps, shape (*steps.shape, paths): they are no results."""
    steps = steps[..., None]
    of_paths = (1,) * (steps.ndim - 1) + (-1,)
    status, failed_step = (x.reshape(of_paths) for x in (state.status, state.failed_step))
    return (status != Status.FINE) & (failed_step <= steps)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """Entries of `yes` where the condition holds; it has no more axes than they have."""
    yes, no = jnp.asarray(yes), jnp.asarray(no)
    shape = condition.shape + (1,) * (yes.ndim - condition.ndim)
    return jnp.where(condition.reshape(shape), yes, no)
