"""Lagrange multipliers by Newton's method, with the sparsity of the constraints."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.stepping.constraint_blocks import Blocks
from dalembert.stepping.residuals import Report, goal, tolerance, worst_if_nan
from dalembert.stepping.root import implicit_root
from dalembert.stepping.sheets import Chord, Found, follow, has_left

__all__ = ["Way", "solve_multipliers"]

MAX_STEPS = 12
"""Newton steps without damping, at most: they converge quadratically, or hardly at all."""

SAFE_STEPS, FRACTIONS = 50, tuple(0.5**k for k in range(8))
"""Newton steps with damping, at most, and the fractions of each that are tried."""


class Way(NamedTuple):
    """What multipliers u lead to by the change −Dgᵀu of momenta, such as positions after a step.

    Attributes:
        end: x as a function of the change of momenta.
        slopes: Dgᵀ of all colours, m rows (dim,).
        is_straight: whether x is linear, and what a block changes is in its own coordinates.
        origin: the old positions, if x are new ones that have to be on the same sheet of r = 0.
        is_quadratic: whether r is.
    """

    end: Callable[[Any], Any]
    slopes: Any
    is_straight: bool
    origin: Any = None
    is_quadratic: bool = True


class _Now(NamedTuple):
    """Where Newton's method is: multipliers, x and r there, the size of r, steps made, more?"""

    u: Any
    x: Any
    residual: Any
    error: Any
    steps: Any
    is_open: Any


def solve_multipliers(
    way: Way,
    miss: Callable[[Any], Any],
    scale: Any,
    blocks: Blocks,
    blind: int,
    safely: bool = False,
    differentiable: Callable[[Any], Any] | None = None,
) -> tuple[Any, Report]:
    """Multipliers u with r(x(u)) = 0, split, from zero, and their relative residual.

    The derivative of x is taken once, at zero, that of r in every step: where x is linear in u, as
    positions are after a step of Störmer–Verlet, that is Newton's method, else it is nearly.

    Args:
        way: x, what multipliers lead to.
        miss: r, what is to vanish there, (count,). The matrix of r(x(u)) has the blocks, and is
            nearly positive definite.
        scale: what r is relative to, (count,) or a number.
        blocks: see `Blocks`.
        blind: Newton steps before the one that is looked at first, if they are not made safely.
        safely: whether Newton steps are shortened where they do not gain.
        differentiable: r(x(u)) for derivatives by the implicit theorem, if they are wanted.
    """
    dtype = way.slopes[0].dtype
    most = SAFE_STEPS if safely else MAX_STEPS
    fractions = FRACTIONS if safely else FRACTIONS[:1]

    def relative(r: Any) -> Any:
        return worst_if_nan(jnp.max(jnp.abs(r) / scale))

    def newton(none: Any) -> tuple[Any, Report]:
        still = jnp.zeros_like(way.slopes[0])
        start = way.end(still)
        along = blocks.for_each(lambda s: jax.jvp(way.end, (still,), (-s,))[1], way.slopes)

        def reach(u: Any) -> Any:
            if way.is_straight:
                return start + blocks.spread(along, u)
            return way.end(-blocks.spread(way.slopes, u))

        def inverse(x: Any) -> Callable[[Any], Any]:
            return blocks.inverse(blocks.for_each(lambda v: jax.jvp(miss, (x,), (v,))[1], along))

        def improve(now: _Now, inverse_there: Any = None) -> _Now:
            change = (inverse_there or inverse(now.x))(blocks.split(now.residual))
            trials = [now.u - np.asarray(part, dtype) * change for part in fractions]
            points = list(map(reach, trials))
            values = list(map(miss, points))
            errors = list(map(relative, values))
            best, error = (trials[0], points[0], values[0]), errors[0]
            for other, *found in zip(errors[1:], trials[1:], points[1:], values[1:], strict=True):
                best = jax.tree.map(partial(jnp.where, other < error), tuple(found), best)
                error = jnp.minimum(other, error)
            steps, gain = now.steps + 1, now.error * (0.99 if safely else 0.5)
            goes_on = (error > goal(dtype)) & (error < gain) & (steps < most)
            # Where it does not go on nothing needs the better of x and r any more.
            u, x, r = best
            u = jnp.where(error < now.error, u, now.u)
            return _Now(u, x, r, jnp.minimum(error, now.error), steps, goes_on)

        u, x, steps, last = blocks.split(none), start, 0 if safely else blind, None
        for _ in range(steps):
            last = inverse(x)
            u -= last(blocks.split(miss(x)))
            x = reach(u)
        # At the first look any error will do: that of the start is not worth its cost. The matrix
        # of the step before is as good by then, and costs nothing.
        worst, steps = jnp.asarray(jnp.inf, dtype), jnp.int32(steps)
        first = _Now(u, x, miss(x), worst, steps, True)
        now = lax.while_loop(lambda now: now.is_open, improve, improve(first, last))
        found = Found(now.u, now.error)
        if way.origin is not None:
            chord = Chord(way.origin, start, reach(found.u), along, miss)
            found = on_sheet(chord, found, reach)
        return blocks.join(found.u), Report(now.steps, found.error)

    def on_sheet(chord: Chord, found: Found, reach: Callable[[Any], Any]) -> Found:
        """What has been found if it is on the sheet of the old positions, else by small steps."""
        has_jumped = jnp.any(has_left(blocks, way.is_quadratic, chord))
        told = found._replace(error=jnp.where(has_jumped, jnp.inf, found.error).astype(dtype))
        if not safely:
            return told
        is_wanted = ~(told.error <= tolerance(dtype))
        return follow(blocks, way.is_quadratic, chord, reach, relative, told, is_wanted)

    none = jnp.zeros(blocks.places.max() + 1, dtype)
    if differentiable is None:
        u, report = newton(none)
    else:
        u, report = implicit_root(differentiable, none, newton, blocks.solve)
    return blocks.split(u), report
