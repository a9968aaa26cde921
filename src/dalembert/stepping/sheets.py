"""Whether a step has stayed on its sheet of g = 0, and steps that follow it.

Where g = 0 comes back, as on the other side of a hole or on a circle around the first, or meets
itself, Newton's method may end elsewhere than a step that grows from nothing. Equations cannot tell
these ends apart: the way there can.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.dependence import Degree, degree
from dalembert.stepping import residuals
from dalembert.stepping.constraint_blocks import Blocks
from dalembert.stepping.residuals import goal, tolerance
from dalembert.system import System

__all__ = ["Chord", "Found", "follow", "has_left", "is_quadratic", "limit_of_starts"]

LEAST_SLOPE, MOST_OFF, MOST_SKEW = 0.3, 0.04, 0.1
"""How much of Dg(q) W Dg(q)ᵀ has to be left in Dg(x) W Dg(q)ᵀ along a step; how far g and Dg in
the middle may be from those of a cubic along it; and how far that may be from a parabola. The last
two are displacements relative to the step.

With a slope of 0.1 some steps pass that end elsewhere. At steps of 0.4 times the radius of a tube
one in 170 grows in shares for nothing."""

FIRST_SHARE, LEAST_SHARE, MAX_TRIES = 1 / 16, 2.0**-20, 200
"""The first and the largest share of a step that is added at a time, the least, and how often."""

MAX_PASSES = 8
"""Newton steps for a share: they begin near."""


class Chord(NamedTuple):
    """A step from one point of g = 0 to another.

    Attributes:
        origin: the old positions.
        free: where the step leads without multipliers.
        end: the new positions.
        along: how positions change with multipliers of each colour, m rows (dim,).
        miss: g, (count,).
    """

    origin: Any
    free: Any
    end: Any
    along: Any
    miss: Callable[[Any], Any]

    def slope(self, x: Any, v: Any) -> Any:
        """Dg(x) v, (count,)."""
        return jax.jvp(self.miss, (x,), (v,))[1]


class Found(NamedTuple):
    """Multipliers, split, and the relative error that they leave."""

    u: Any
    error: Any


def is_quadratic(system: System) -> bool:
    """Whether Dg is affine, as that of distances is: then ends of steps say what is between."""

    def along(q: Any, v: Any, params: Any) -> Any:
        return jax.jvp(lambda q: system.constraint(q, params), (q,), (v,))[1]

    z = jax.ShapeDtypeStruct((system.dim,), np.float64)
    return degree(along, (z, z, system.params), (0,)) <= Degree.AFFINE


def limit_of_starts(dtype: Any) -> float:
    """What a start may miss constraints by: where it is says what rounds, and not a step."""
    return max(float(np.finfo(dtype).eps) ** (2 / 3), 4 * residuals.tolerance(dtype))


def has_left(blocks: Blocks, is_quadratic: bool, chord: Chord) -> Any:
    """For every constraint, whether a step may have left its sheet on the way, (count,).

    Positions between the old and the new ones are on the same sheet if multipliers change g in the
    same direction everywhere in a region around them: if −Dg(x) W Dg(q)ᵀ, the derivative of g by
    multipliers, has a positive part in common with that at q. This is affine in x for quadratic g,
    so that the corners of a triangle are looked at: q, the tangent step from there, and the end.

    Else it must be nearly affine: the middle is looked at, too. Along the chord g vanishes at both
    ends, and with Dg there it says a cubic that g and Dg must be near to in the middle; and that
    must be near a parabola.
    """

    slope = chord.slope

    def matrix(x: Any) -> Any:
        return blocks.for_each(partial(slope, x), chord.along)

    begin, step = matrix(chord.origin), chord.end - chord.origin
    normal = blocks.split(slope(chord.origin, chord.free - chord.origin))
    tangent = chord.free - blocks.spread(chord.along, blocks.inverse(begin)(normal))
    middle = chord.origin + 0.5 * step

    def has_turned(x: Any) -> Any:
        rest = jax.tree.map(lambda now, then: LEAST_SLOPE * then - now, matrix(x), begin)
        return ~blocks.is_definite(rest)

    found = has_turned(tangent) | has_turned(chord.end)
    if is_quadratic:
        return found

    def size(row: Any) -> Any:
        return blocks.largest(jnp.broadcast_to(row, (blocks.size, *row.shape)))

    first, last = slope(chord.origin, step), slope(chord.end, step)
    bend, skew = (first - last) / 2, -(first + last) / 2
    columns = jnp.stack(begin) if isinstance(begin, tuple) else begin
    own = jnp.abs(jnp.sum(columns * blocks.colours(step.dtype), axis=0))
    moved = blocks.largest(chord.along) / own
    least, most = limit_of_starts(step.dtype) * size(chord.origin), size(step)
    misses = (
        (chord.miss(middle) - bend / 4, MOST_OFF),
        (slope(middle, step) - skew / 2, MOST_OFF),
        (skew, MOST_SKEW),
    )
    for miss, share in misses:
        found |= ~(moved * jnp.abs(miss) <= share * most + least)
    return found | has_turned(middle)


class _Now(NamedTuple):
    """Where a step that grows is: multipliers of a share of it, its next growth, and tries."""

    found: Found
    share: Any
    growth: Any
    tries: Any
    is_open: Any


class _Pass(NamedTuple):
    """Where Newton's method for a share is."""

    found: Found
    residual: Any
    x: Any
    count: Any
    is_open: Any


def follow(
    blocks: Blocks,
    is_quadratic: bool,
    chord: Chord,
    reach: Callable[[Any], Any],
    relative: Callable[[Any], Any],
    begin: Found,
    is_wanted: Any,
) -> Found:
    """Multipliers of a step that grows from nothing, if wanted and if there are any.

    Those of a share s lead from s times the free step to g = 0, each from the last. A step has
    none if it cannot grow on, because multipliers no longer change g there.

    Args:
        blocks: see `Blocks`.
        is_quadratic: whether g is.
        chord: the step; where it ends does not matter.
        reach: positions for multipliers, also where they are not linear.
        relative: the size of residuals.
        begin: what there is if nothing else is wanted, or found.
        is_wanted: whether it is.
    """
    dtype = begin.u.dtype

    def attempt(u: Any, share: Any) -> tuple[Found, Any]:
        shift = (share - 1) * (chord.free - chord.origin)

        def improve(now: _Pass) -> _Pass:
            columns = blocks.for_each(partial(chord.slope, now.x), chord.along)
            u = now.found.u - blocks.inverse(columns)(blocks.split(now.residual))
            x = reach(u) + shift
            residual = chord.miss(x)
            error = relative(residual)
            goes_on = (error > goal(dtype)) & (error < now.found.error / 2)
            best = error < now.found.error
            error, count = jnp.minimum(error, now.found.error), now.count + 1
            found = Found(jnp.where(best, u, now.found.u), error)
            return _Pass(found, residual, x, count, goes_on & (count < MAX_PASSES))

        x = reach(u) + shift
        residual = chord.miss(x)
        start = Found(u, relative(residual))
        first = improve(_Pass(start, residual, x, jnp.int32(0), True))
        found = lax.while_loop(lambda now: now.is_open, improve, first).found
        return found, reach(found.u) + shift

    def grow(now: _Now) -> _Now:
        share = jnp.minimum(now.share + now.growth, 1).astype(dtype)
        found, x = attempt(now.found.u, share)
        before = reach(now.found.u) + (now.share - 1) * (chord.free - chord.origin)
        free = before + (share - now.share) * (chord.free - chord.origin)
        left = has_left(blocks, is_quadratic, chord._replace(origin=before, free=free, end=x))
        fine = (found.error <= tolerance(dtype)) & ~jnp.any(left)
        kept = jax.tree.map(lambda new, old: jnp.where(fine, new, old), found, now.found)
        growth = jnp.where(fine, jnp.minimum(2 * now.growth, FIRST_SHARE), now.growth / 2)
        share, tries = jnp.where(fine, share, now.share), now.tries + 1
        goes_on = (share < 1) & (growth >= LEAST_SHARE) & (tries < MAX_TRIES)
        return _Now(kept, share, growth.astype(dtype), tries, goes_on)

    u = jnp.where(is_wanted, 0, begin.u).astype(dtype)
    share = jnp.where(is_wanted, 0.0, 1.0).astype(dtype)
    growth = jnp.asarray(FIRST_SHARE, dtype)
    first = _Now(begin._replace(u=u), share, growth, jnp.int32(0), is_wanted)
    end = lax.while_loop(lambda now: now.is_open, grow, first)
    return jax.tree.map(lambda new, old: jnp.where(end.share == 1, new, old), end.found, begin)
