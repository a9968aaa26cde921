"""Steps on arrays in rounds of a number that the compiler knows, for devices far from the host.

Whether a loop goes on is asked on the host: a GPU that has computed the answer stands still until
it is told, as long as two sweeps over a million numbers take. A round of 32 steps has one question.
Stage equations that are swept ask another one in every step, whether they are solved. Of many paths
some compute while others ask; one alone takes whole rounds without asking, looks once at the worst
residual of all steps, and where that is not what a step would have left takes the round again;
after two such rounds in a row it asks in every step.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax

from dalembert.ensemble.march import Block, Moving, PathState, Stretch, Walk, begun, step_of
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.residuals import goal
from dalembert.stepping.stepper import Stepper

ROUND = 8
"""Groups of increments in a round of steps."""

MISSES = 2
"""Rounds in a row taken again after which no more are tried without asking."""


def march_in_rounds(
    stepper: Stepper,
    state: PathState,
    block: Block,
    stretch: Stretch,
    solver: Solver = Solver.FAST,
) -> Moving:
    """The steps of a stretch by the fast solver; states have been entered."""
    walk = Walk(block, stretch, stepper, step_of(stepper, block, solver))
    start = begun(stepper, state, block)
    # What becomes of a path may not depend on others, not even by the order of operations.
    is_alone = stepper.is_swept and len(state.status) == 1
    blind = Walk(block, stretch, stepper, step_of(stepper, block, Solver.BLIND))

    def one_round(number: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, misses = now
        begin, (first, last) = ROUND * number, walk.groups
        steps = walk.together * begin, walk.together * (begin + ROUND)
        is_whole = (steps[0] >= stretch.first) & (steps[1] <= walk.end)

        def whole(carry: Any) -> Any:
            way = blind if is_alone else walk
            take = _direct_group if stepper.is_direct else _whole_group
            return lax.fori_loop(0, ROUND, lambda k, now: take(way, begin + k, now), carry)

        def part(carry: Any) -> Any:
            bounds = jnp.maximum(begin, first), jnp.minimum(begin + ROUND, last)
            return lax.fori_loop(*bounds, walk.group, carry)

        if not is_alone:
            return lax.cond(is_whole, whole, part, carry), misses
        is_whole &= misses < MISSES
        after = lax.cond(is_whole, whole, lambda carry: carry, carry)
        is_solved = jnp.all(after[0].residual <= goal(stepper.dtype))
        after = lax.cond(is_whole & is_solved, lambda pair: pair[1], _first(part), (carry, after))
        return after, jnp.where(is_whole, jnp.where(is_solved, 0, misses + 1), misses)

    first, last = walk.groups
    rounds = first // ROUND, -(-last // ROUND)
    return lax.fori_loop(*rounds, one_round, (start, jnp.int32(0)))[0][0]


def _first(fun: Any) -> Any:
    return lambda pair: fun(pair[0])


def _whole_group(walk: Walk, number: Any, carry: Any) -> Any:
    return walk.steps(number, carry, 0, walk.together)


def _direct_group(walk: Walk, number: Any, carry: Any) -> Any:
    """The same, written out: short code may be repeated, and no increments are picked."""
    for place, increments in enumerate(walk.drawn(number)):
        carry = walk.every_path(carry, increments, walk.together * number + place + 1)
    return carry
