"""Equations near u = g, solved by sweeps, without a matrix and without derivatives.

A stage matrix is a small step away from the identity, so that each sweep u ← u − w r(u) gains
digits, at the cost of one evaluation of the forces. Two sweeps show how much of r the first one has
taken off, and from that follows the relaxation w: friction and forces shift the eigenvalues of the
stage matrix upwards, and w brings their centre back to one, which doubles what a sweep gains. A
number of sweeps that the compiler knows comes first, and one look at the residual. What is not
solved then goes on: by more sweeps, and where they stop gaining by Newton's method with linear
solves by products with vectors (BiCGStab).
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.stepping.newton import LONG_STEPS
from dalembert.stepping.residuals import Report, goal, tolerance

LEAST_GAIN = 0.5
"""What a correction must make of the residual, at most, to be followed by another."""

BLIND_PAIRS = {np.dtype(np.float64): 3, np.dtype(np.float32): 1}
"""Pairs of sweeps between the first one and the first look at the residual: fewer are seldom
enough, and a look costs more. In pairs, because a loop that makes one sweep copies its result."""

LARGE = 2**18
"""Unknowns of which so many are there that one is out of the ordinary and wants one more sweep."""

MAX_PAIRS = 30
LEAST_GAIN_OF_SWEEP = 0.7
"""Of two of them that is the least gain again."""
ASTRAY = 1e-2
"""Relative residual above which sweeps have been for nothing."""

LEAST_RELAXATION, MOST_RELAXATION = 0.05, 2.0
"""Beyond these, what two sweeps show is not a stage matrix near the identity."""

RELAXATIONS = 64
"""Values of the relaxation between 0 and 1."""

MAX_PRODUCTS = 200

Residual = Callable[[Any], Any]
Measure = Callable[[Any, Any], Any]
"""(r, u) → the relative residual."""


class _Now(NamedTuple):
    """Where a path is: unknowns, relaxation, relative residual, sweeps or steps, more?"""

    u: Any
    relaxation: Any
    error: Any
    count: Any
    is_open: Any


def swept(
    residual: Residual,
    measure: Measure,
    closely: Measure | None,
    guess: Any,
    goes_on: bool,
) -> tuple[Any, Report]:
    """The solution of r(u) = 0, and its relative residual.

    Args:
        residual: the equations r, (n,) → (n,).
        measure: a bound of the relative residual.
        closely: the relative residual, for Newton's method; None: sweeps must do.
        guess: where to begin.
        goes_on: whether more is done if the first sweeps were not enough.
    """
    dtype = guess.dtype
    blind = BLIND_PAIRS[np.dtype(dtype)]

    def relaxed(w: Any, u: Any) -> Any:
        u = u - w * residual(u)
        return u - w * residual(u)

    def in_a_loop(w: Any, u: Any) -> Any:
        return lax.fori_loop(0, blind, lambda _, u: relaxed(w, u), u)

    def written_out(w: Any, u: Any) -> Any:
        # On a GPU numbers that sweeps share are computed anew in every round of a loop.
        return reduce(lambda u, _: relaxed(w, u), range(blind), u)

    def improve(now: _Now) -> _Now:
        r, count = residual(now.u), now.count + 1
        error = measure(r, now.u)
        gains = (error <= LEAST_GAIN_OF_SWEEP * now.error) & (count < 2 * MAX_PAIRS)
        is_open = (error > goal(dtype)) & gains
        # The residual is that of what is returned: no sweep comes after it.
        u = jnp.where(is_open, now.u - now.relaxation * r, now.u)
        return _Now(u, now.relaxation, error, count, is_open)

    def go_on(now: _Now) -> _Now:
        now = now._replace(error=jnp.full_like(now.error, jnp.inf))  # the first one has gained
        now = lax.while_loop(lambda now: now.is_open, improve, now)
        found = now if closely is None else _by_newton(residual, closely, guess, now)
        return found._replace(is_open=jnp.zeros_like(now.is_open))

    u, w = _pair(residual, guess, jnp.ones((), dtype))
    u = lax.platform_dependent(w, u, cpu=in_a_loop, default=written_out)
    if u.size >= LARGE:
        u = u - w * residual(u)
    error, count = measure(residual(u), u), jnp.int32(2 * blind + 2 + (u.size >= LARGE))
    now = _Now(u, w, error, count, ~(error <= goal(dtype)))
    if not goes_on:
        # What follows reads one entry for one, and can take the place of the state before; with
        # the residual, which reads neighbours, it could not.
        return lax.optimization_barrier(now.u), Report(now.count, now.error)
    # One question whether anything is left to do: a device that is asked has to stop.
    end = lax.while_loop(lambda now: now.is_open, go_on, now)
    return end.u, Report(end.count, end.error)


def _pair(residual: Residual, u: Any, w: Any) -> tuple[Any, Any]:
    """Two sweeps, and the relaxation that leaves least of the residual along the first.

    With J r ≈ (r(u) − r(u − w r(u)))/w that is ⟨r, J r⟩/⟨J r, J r⟩.
    """
    first = residual(u)
    u = u - w * first
    second = residual(u)
    along = (first - second) / w
    found = jnp.vdot(first, along) / jnp.vdot(along, along)
    # In which order sums are taken may depend on how many paths there are: not with few digits.
    found = jnp.round(RELAXATIONS * found) / RELAXATIONS
    is_usual = (found >= LEAST_RELAXATION) & (found <= MOST_RELAXATION)
    # No part of the solution: the derivative of a quotient of roundings says nothing.
    w = lax.stop_gradient(jnp.where(is_usual, found, jnp.ones_like(found)))
    return u - w * second, w


def _by_newton(residual: Residual, closely: Measure, guess: Any, found: _Now) -> _Now:
    """Newton's method for a path that sweeps have not brought to rest; else nothing.

    Where they have led astray it begins where they did.
    """
    error = found.error
    is_open, is_astray = ~(error <= tolerance(error.dtype)), ~(error <= ASTRAY)

    def improve(now: _Now) -> _Now:
        r = residual(now.u)
        error = closely(r, now.u)
        gains = (error <= LEAST_GAIN * now.error) & (now.count < 2 * MAX_PAIRS + LONG_STEPS)
        is_open = (error > goal(error.dtype)) & gains
        u = now.u - _by_products(residual, now.u, jnp.where(is_open, r, jnp.zeros_like(r)))
        count = now.count + is_open.astype(now.count.dtype)
        return now._replace(u=u, error=error, count=count, is_open=is_open)

    start = found._replace(
        u=jnp.where(is_astray, guess, found.u),
        error=jnp.where(is_open, jnp.full_like(error, jnp.inf), error),
        is_open=is_open,
    )
    return lax.while_loop(lambda now: now.is_open, improve, start)


def _by_products(residual: Residual, u: Any, r: Any) -> Any:
    """Newton's correction by products of the Jacobian with vectors; r = r(u), or nothing for 0."""

    def product(v: Any) -> Any:
        # Not linearised once for all: what that keeps is larger than the state.
        return jax.jvp(residual, (u,), (v,))[1]

    return _bicgstab(product, r)


class _Search(NamedTuple):
    """Where BiCGStab is: approximation, residual, direction, ⟨first residual, residual⟩, steps."""

    x: Any
    r: Any
    p: Any
    rho: Any
    steps: Any


def _bicgstab(product: Callable[[Any], Any], b: Any) -> Any:
    """x with product(x) = b, nearly (van der Vorst 1992).

    JAX's own wants to transpose the product, which functions with loops do not allow.
    """
    target = jnp.vdot(b, b) * float(jnp.finfo(b.dtype).eps) ** 1.5

    def quotient(x: Any, y: Any) -> Any:
        return jnp.where(y == 0, jnp.zeros_like(x), x / jnp.where(y == 0, jnp.ones_like(y), y))

    def is_open(now: _Search) -> Any:
        size = jnp.vdot(now.r, now.r)
        return (size > target) & (now.rho != 0) & (now.steps < MAX_PRODUCTS)

    def improve(now: _Search) -> _Search:
        v = product(now.p)
        alpha = quotient(now.rho, jnp.vdot(b, v))
        s = now.r - alpha * v
        t = product(s)
        omega = quotient(jnp.vdot(t, s), jnp.vdot(t, t))
        r = s - omega * t
        rho = jnp.vdot(b, r)
        beta = quotient(rho, now.rho) * quotient(alpha, omega)
        p = r + beta * (now.p - omega * v)
        return _Search(now.x + alpha * now.p + omega * s, r, p, rho, now.steps + 2)

    start = _Search(jnp.zeros_like(b), b, b, jnp.vdot(b, b), jnp.int32(0))
    return lax.while_loop(is_open, improve, start).x
