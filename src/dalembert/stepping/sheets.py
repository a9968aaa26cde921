"""Whether a step has stayed on its sheet of g = 0, and steps that follow it.

Where g = 0 comes back, as on the other side of a hole or on a circle around the first, Newton's
method may end on another sheet than the one that a growing step leads to. The equations cannot tell
them apart, so that steps are looked at on the way, at the cost of a Newton step for each look.
"""

from collections.abc import Callable
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

__all__ = ["Chord", "Found", "follow", "has_left", "is_off", "limit_of_starts", "looks_of"]

MOST_OFF = 0.05
"""How far positions on the way may be from where others say, relative to the whole step.

At steps about as large as the radius of a tube, one in 100 that end elsewhere passes, and one in 40
that do not is solved again; with twice as much it is one in 10, and one in 2000."""

FIRST_SHARE, LEAST_SHARE, MAX_TRIES = 1 / 16, 2.0**-20, 200
"""The first and the largest share of a step that is added at a time, the least, and how often."""

MAX_PASSES = 8
"""Newton steps for a share: they begin near."""


class Chord(NamedTuple):
    """A step from one point of g = 0 to another.

    Attributes:
        origin: the old positions.
        end: the new ones.
        along: how positions change with multipliers of each colour, m rows (dim,).
        miss: g, (count,).
        inverse: x → Newton's corrections for split residuals at x, and their pivots.
    """

    origin: Any
    end: Any
    along: Any
    miss: Callable[[Any], Any]
    inverse: Callable[[Any], Callable[[Any], tuple[Any, Any]]]


class Found(NamedTuple):
    """Multipliers, split, the relative error that they leave, and pivots of the last matrix."""

    u: Any
    error: Any
    pivots: Any


def looks_of(system: System, blocks: Blocks) -> int:
    """At how many points of a step it is looked at, beside its ends.

    Where g is quadratic, Dg(x) W Dg(q)ᵀ is linear along the step. One number that is positive at
    both ends is positive between them, and of matrices the one in the middle is looked at.
    """

    def along(q: Any, v: Any, params: Any) -> Any:
        return jax.jvp(lambda q: system.constraint(q, params), (q,), (v,))[1]

    z = jax.ShapeDtypeStruct((system.dim,), np.float64)
    if degree(along, (z, z, system.params), (0,)) > Degree.AFFINE:
        return 3
    return 0 if blocks.size == 1 else 1


def limit_of_starts(dtype: Any) -> float:
    """What a start may miss constraints by: where it is says what rounds, and not a step."""
    return max(float(np.finfo(dtype).eps) ** (2 / 3), 4 * residuals.tolerance(dtype))


def is_off(blocks: Blocks, pivots: Any) -> Any:
    """For every constraint, whether its normal has turned by more than a right angle, (count,).

    Pivots are those of Dg(x) times the changes of positions by multipliers: −Dg(x) W Dg(q)ᵀ.
    """
    return ~(blocks.join(pivots) < 0)


def has_left(blocks: Blocks, looks: int, chord: Chord) -> Any:
    """For every constraint, whether a step may have left its sheet on the way, (count,).

    Half-way along the chord normals must not have turned by more than a right angle. With three
    looks, one Newton step from there says how far g = 0 is. After one and three quarters of the
    step it must be nearly where the parabola through these three points is, and normals likewise.
    """
    if not looks:
        return jnp.zeros(blocks.places.max() + 1, bool)
    step = chord.end - chord.origin

    def look(x: Any) -> tuple[Any, Any]:
        change, pivots = chord.inverse(x)(blocks.split(chord.miss(x)))
        return -blocks.spread(chord.along, change), is_off(blocks, pivots)

    def size(row: Any) -> Any:
        return blocks.largest(jnp.broadcast_to(row, (blocks.size, *row.shape)))

    sag, found = look(chord.origin + 0.5 * step)
    if looks == 1:
        return found
    most = MOST_OFF * size(step) + limit_of_starts(step.dtype) * size(chord.origin)
    for share in (0.25, 0.75):
        off, turned = look(chord.origin + share * step + 0.75 * sag)
        found = found | turned | ~(size(off) <= most)
    return found


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
    chord: Chord,
    free: Any,
    reach: Callable[[Any], Any],
    relative: Callable[[Any], Any],
    begin: Found,
    is_wanted: Any,
) -> Found:
    """Multipliers of a step that grows from nothing, if wanted and if there are any.

    Those of a share s lead from s times the free step to g = 0, each from the last. A step that
    cannot grow without a normal that turns by more than a right angle has none.

    Args:
        blocks: see `Blocks`.
        chord: the step; where it ends does not matter.
        free: where it would end without multipliers.
        reach: positions for multipliers, also where they are not linear.
        relative: the size of residuals.
        begin: what there is if nothing else is wanted, or found.
        is_wanted: whether it is.
    """
    dtype = begin.u.dtype

    def attempt(u: Any, share: Any) -> tuple[Found, Any]:
        shift = (share - 1) * (free - chord.origin)

        def improve(now: _Pass) -> _Pass:
            change, pivots = chord.inverse(now.x)(blocks.split(now.residual))
            u = now.found.u - change
            x = reach(u) + shift
            residual = chord.miss(x)
            error = relative(residual)
            goes_on = (error > goal(dtype)) & (error < now.found.error / 2)
            best = error < now.found.error
            error, count = jnp.minimum(error, now.found.error), now.count + 1
            found = Found(jnp.where(best, u, now.found.u), error, pivots)
            return _Pass(found, residual, x, count, goes_on & (count < MAX_PASSES))

        x = reach(u) + shift
        residual = chord.miss(x)
        start = Found(u, relative(residual), jnp.zeros_like(u))
        first = improve(_Pass(start, residual, x, jnp.int32(0), True))
        found = lax.while_loop(lambda now: now.is_open, improve, first).found
        return found, reach(found.u) + shift

    def grow(now: _Now) -> _Now:
        share = jnp.minimum(now.share + now.growth, 1).astype(dtype)
        found, x = attempt(now.found.u, share)
        before = reach(now.found.u) + (now.share - 1) * (free - chord.origin)
        middle = 0.5 * (before + x)
        _, between = chord.inverse(middle)(blocks.split(chord.miss(middle)))
        turned = is_off(blocks, found.pivots) | is_off(blocks, between)
        fine = (found.error <= tolerance(dtype)) & ~jnp.any(turned)
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
