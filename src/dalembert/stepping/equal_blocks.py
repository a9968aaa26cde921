"""Multipliers of many equal blocks, such as molecules: one block written out, all at once.

Every component of all blocks is an array of its own, so that nothing but products and sums of whole
arrays is left, and the constraints' zeros are not computed with. This is the fast way: what it does
not solve is for `multipliers.py`, whose steps are safeguarded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.stepping import newton
from dalembert.stepping.constraint_blocks import MAX_WRITTEN_OUT, Blocks, eliminated
from dalembert.stepping.cut import Cut, NotEqualError, cut
from dalembert.stepping.expressions import Program, Shared
from dalembert.stepping.multipliers import MAX_STEPS
from dalembert.stepping.residuals import Report, goal, worse, worst_if_nan
from dalembert.stepping.scalarise import NotScalarError, scalarise
from dalembert.stepping.sheets import Chord, has_left
from dalembert.stepping.stages import Stages
from dalembert.system import System

__all__ = ["EqualBlocks", "find_equal_blocks"]

FEWEST = 250
"""Blocks from which on arrays of their components are worth the seconds of compiling them."""

MAX_COMPONENTS = 64
"""Coordinates of a block that is written out."""

SURE_SLOPE = 0.6
"""How much of Dg W Dgᵀ has to be left for quadratic g where a step leads without multipliers: twice
what `has_left` asks for, because nothing but that is looked at, and pivots of Newton's method."""

MAX_OPERATIONS = 5000
"""Of a Newton step of a block that is written out."""


class _Now(NamedTuple):
    """Where Newton's method is: multipliers, the error there, steps made, more?"""

    u: tuple[Any, ...]
    error: Any
    steps: Any
    is_open: Any


@dataclass(frozen=True, eq=False)
class EqualBlocks:
    """Newton's method for blocks of which each has the same constraints.

    Attributes:
        cut: the constraints of one block.
        first, better: multipliers after two Newton steps, and after one more, with what they miss;
            infinite where its matrix is not positive.
        change: what multipliers change momenta by.
        missed: what constraints are missed by, in units of rounding; infinite where a step may
            have left its sheet on the way, by one look.
        closely: the same by `has_left`.
        tangent: what momenta are changed by for velocities along g = 0, and what is missed then.
    """

    cut: Cut
    first: Stages
    better: Stages
    change: Stages
    missed: Stages
    closely: Stages
    tangent: Stages

    def positions(
        self, rows: Any, start: Any, pace: Any, given: list[Any]
    ) -> tuple[Any, tuple[Any, Any], Report]:
        """The change of momenta that leads to g = 0, what `left` takes, and a report.

        Args:
            rows: `rows` of the old positions, where Dg is taken.
            start: where positions are without multipliers.
            pace: how far each coordinate goes per momentum.
            given: what `Cut.numbers` gives.
        """
        there, dtype = (self.rows(start), self._columns(pace)), start.dtype
        size = _size(rows) + _size(there[0] - rows)

        def again(now: _Now) -> _Now:
            arrays = jnp.stack(now.u), rows, *there
            *u, missed = self._of_all(self.better, given, *arrays, size=size)
            error, steps = _largest(missed), now.steps + 1
            goes_on = (error > goal(dtype)) & (error < now.error / 2) & (steps < MAX_STEPS)
            kept = tuple(jnp.where(error < now.error, x, y) for x, y in zip(u, now.u, strict=True))
            return _Now(kept, jnp.minimum(error, now.error), steps, goes_on)

        u = self._of_all(self.first, given, rows, *there)
        begin = _Now(tuple(u), jnp.asarray(jnp.inf, dtype), jnp.int32(2), True)
        end = lax.while_loop(lambda now: now.is_open, again, again(begin))
        change = self._of_all(self.change, given, jnp.stack(end.u), rows)
        return self._flat(change), (there[0], size), Report(end.steps, end.error)

    def left(self, rows: Any, new: Any, pace: Any, around: Any, given: list[Any]) -> Any:
        """The largest of what new positions miss, in units of rounding for Dg at old ones."""
        start, size = around
        there = rows, new, start, self._columns(pace)

        def look(program: Stages) -> Any:
            return _largest(*self._of_all(program, given, *there, size=size))

        def look_closely(state: tuple[Any, Any]) -> tuple[Any, Any]:
            missed, doubt = state
            return jnp.where(doubt, look(self.closely), missed), jnp.zeros_like(doubt)

        missed = look(self.missed)
        # Not `lax.cond`, which takes both ways for many paths.
        state = missed, ~(missed < jnp.inf)
        return lax.while_loop(lambda now: newton.any_path(now[1]), look_closely, state)[0]

    def velocities(self, rows: Any, v: Any, pace: Any, given: list[Any]) -> tuple[Any, Report]:
        """The change of momenta by which velocities v become tangent, and a report.

        `pace` is v per momentum.
        """
        there = self.rows(v), self._columns(pace)
        *change, missed = self._of_all(self.tangent, given, rows, *there, size=_size(there[0]))
        return self._flat(change), Report(jnp.int32(1), _largest(missed))

    def rows(self, x: Any) -> Any:
        """Components of all blocks, shape (components, blocks), put in this order once."""
        return lax.optimization_barrier(self._columns(x))

    def _columns(self, x: Any) -> Any:
        """The same, to be read from where they are: of numbers that seldom differ."""
        columns = x.reshape(self.cut.count, -1)
        return jnp.stack([columns[:, k] for k in range(columns.shape[1])])

    def _of_all(self, program: Stages, given: list[Any], *rows: Any, size: Any = None) -> list[Any]:
        """The results of a program for all blocks, an array (blocks,) each."""
        sizes = () if size is None else (size,)

        def one(*args: Any) -> tuple[Any, ...]:
            results = jax.tree.leaves(program(*args))
            return newton.as_scalars(np.concatenate(list(map(np.ravel, results))), rows[0].dtype)

        axes = *(-1 for _ in rows), *(None for _ in sizes)
        axes += tuple(0 if differs else None for differs in self.cut.differ)
        return list(jax.vmap(one, axes, axis_size=self.cut.count)(*rows, *sizes, *given))

    def _flat(self, rows: list[Any]) -> Any:
        return jnp.stack(rows).T.reshape(-1)


def _size(rows: Any) -> Any:
    """The largest of all numbers, which loops over blocks find fast."""
    return jnp.max(jnp.max(jnp.abs(rows), axis=0))


def _largest(missed: Any) -> Any:
    return jnp.max(worst_if_nan(missed))


def find_equal_blocks(
    system: System, blocks: Blocks, is_quadratic: bool, dtype: Any
) -> EqualBlocks | None:
    """The constraints of a system, if those of many blocks are equal, and can be written out."""
    count = blocks.places.shape[1]
    if count < FEWEST or blocks.size > MAX_WRITTEN_OUT or system.dim > count * MAX_COMPONENTS:
        return None
    if not (blocks.is_regular and blocks.has_equal_coordinates):
        return None
    like = jax.ShapeDtypeStruct((system.dim,), dtype)
    try:
        one = cut(system.constraint, count, like, system.params)
        programs = _programs(one, blocks.size, is_quadratic)
    except (NotEqualError, NotScalarError):
        return None
    if max(program.size for program in programs) > MAX_OPERATIONS:
        return None
    return EqualBlocks(one, *map(Stages, programs))


def _programs(one: Cut, count: int, is_quadratic: bool) -> tuple[Program, ...]:
    z, *rest = one.like
    u, size = jax.ShapeDtypeStruct((count,), z.dtype), jax.ShapeDtypeStruct((), z.dtype)
    given = tuple(
        like if differs else Shared(like.shape, like.dtype)
        for like, differs in zip(rest, one.differ, strict=True)
    )
    tiny = np.finfo(z.dtype).tiny

    def slopes(x: Any, *given: Any) -> Any:
        return jax.jacfwd(one.alone)(x, *given)

    def solved(left: Any, pace: Any, right: Any) -> tuple[Callable[[Any], Any], list[Any]]:
        """By left diag(pace) rightᵀ, and the pivots of that."""
        matrix = (left * pace[None]) @ right.T
        return eliminated([list(row) for row in matrix])

    def relative(miss: Any, size: Any, slopes: Any) -> Any:
        floor = jnp.max(jnp.abs(slopes), axis=1) * size + tiny
        return reduce(worse, map(worst_if_nan, jnp.abs(miss) / floor))

    def worst_where(left: Any, found: Any) -> Any:
        return reduce(worse, jnp.where(left, jnp.full((), jnp.inf, z.dtype), found))

    def newton_step(u: Any, along: Any, start: Any, pace: Any, *given: Any) -> Any:
        x = start - pace * (u @ along)
        inverse, pivots = solved(slopes(x, *given), pace, along)
        return u + inverse(one.alone(x, *given)), jnp.stack(pivots)

    def first(q: Any, start: Any, pace: Any, *given: Any) -> Any:
        along, u = slopes(q, *given), jnp.zeros(count, z.dtype)
        for _ in range(2):
            u, _ = newton_step(u, along, start, pace, *given)
        return u

    def better(u: Any, q: Any, start: Any, pace: Any, size: Any, *given: Any) -> Any:
        along = slopes(q, *given)
        u, pivots = newton_step(u, along, start, pace, *given)
        x = start - pace * (u @ along)
        return u, worst_where(~(pivots > 0), relative(one.alone(x, *given), size, along))

    def change(u: Any, q: Any, *given: Any) -> Any:
        return -(u @ slopes(q, *given))

    block = Blocks(np.arange(count)[:, None], np.zeros(z.shape[0], int))

    def closely(q: Any, new: Any, start: Any, pace: Any, size: Any, *given: Any) -> Any:
        along = slopes(q, *given)
        found = relative(one.alone(new, *given), size, along)
        ways = tuple(-pace * row for row in along)
        chord = Chord(q, start, new, ways, lambda x: one.alone(x, *given))
        return worst_where(has_left(block, is_quadratic, chord), found)

    def missed(q: Any, new: Any, start: Any, pace: Any, size: Any, *given: Any) -> Any:
        if not is_quadratic:
            return closely(q, new, start, pace, size, *given)
        along = slopes(q, *given)
        found = relative(one.alone(new, *given), size, along)
        rest = ((slopes(start, *given) - SURE_SLOPE * along) * pace[None]) @ along.T
        return worst_where(~block.is_definite(list(rest.T)), found)

    def tangent(q: Any, v: Any, pace: Any, size: Any, *given: Any) -> Any:
        along = slopes(q, *given)
        (inverse, _), u = solved(along, pace, along), jnp.zeros(count, z.dtype)
        # The second time for what rounding has left.
        for _ in range(2):
            u = u + inverse(along @ (v - pace * (u @ along)))
        change = -(u @ along)
        missed = relative(along @ (v + pace * change), size, along)
        return change, missed

    return (
        scalarise(first, z, z, z, *given),
        scalarise(better, u, z, z, z, size, *given),
        scalarise(change, u, z, *given),
        scalarise(missed, z, z, z, z, size, *given),
        scalarise(closely, z, z, z, z, size, *given),
        scalarise(tangent, z, z, z, size, *given),
    )
