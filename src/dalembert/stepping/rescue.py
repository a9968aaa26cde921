"""What fast Newton steps leave unconverged: damped steps, and continuation from the old state.

These cost more and are taken by the steps and paths that need them alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.sparse.linalg import gmres

from dalembert.stepping.residuals import Report, goal, tolerance

MAX_ITERATIONS = 50
DAMPING = tuple(0.5**k for k in range(8))
"""Fractions of the Newton step that the damped loop tries."""

LEAST_GROWTH, MAX_TRIES = 2.0**-20, 200
"""Where continuation gives up: near a step that grows no further without turning back."""


def safe_newton(
    residual: Callable[[jax.Array], jax.Array],
    floor: Callable[[jax.Array], jax.Array],
    relative: Callable[[jax.Array, jax.Array], jax.Array],
    solve: Callable[[Callable[..., Any], jax.Array], jax.Array],
    start: Any,
    error: Any,
    old: Any,
) -> tuple[Any, Report]:
    """Damped Newton steps from a guess and, if they end nowhere, continuation from the old state.

    Continuation solves (1 − s) (u − old) + s r(u) = 0 for growing s, each time from the last
    solution: that is the step with all its increments times s, which is the old state for s = 0.
    What both leave unsolved has no solution that a growing step leads to without turning back.

    Args:
        residual: the equations r, (n,) → (n,).
        floor: what rounding can leave of the residual at some u.
        relative: the size of a residual relative to such a floor.
        solve: solves a linear system given through its products.
        start: where to begin, an array (n,) or a tuple of n scalars, which are kept apart.
        error: the relative residual of the start, finite unless there is nothing to be done.
        old: the old state, in the form of the start.
    """
    is_tuple = isinstance(start, tuple)
    limit = tolerance(error.dtype)

    def attempt(u: Any, error: Any, share: Any) -> tuple[Any, Report]:
        def shared(u: jax.Array) -> jax.Array:
            origin = jnp.stack(old) if is_tuple else old
            # Where nothing is left of it, rounding must not be either.
            return jnp.where(
                share == 1, residual(u), (1 - share) * (u - origin) + share * residual(u)
            )

        def measured() -> Any:
            x = jnp.stack(u) if is_tuple else u
            return relative(shared(x), floor(x))

        error = jnp.where(error < jnp.inf, error, measured())
        return damped_newton(shared, floor, relative, solve, u, error)

    def unfinished(now: _Continuation) -> Any:
        return (now.share < 1) & (now.growth > LEAST_GROWTH) & (now.tries < MAX_TRIES)

    def grow(now: _Continuation) -> _Continuation:
        is_first = now.tries == 0
        share = jnp.minimum(now.share + now.growth, 1)
        u, report = attempt(now.u, jnp.where(is_first, error, jnp.inf), share)
        is_solved = report.residual <= limit
        whole = share == 1
        back = jax.tree.map(partial(jnp.where, is_first), old, now.u)
        return _Continuation(
            jax.tree.map(partial(jnp.where, is_solved), u, back),
            jax.tree.map(partial(jnp.where, is_first | (whole & is_solved)), u, now.best),
            jnp.where(is_first | (whole & is_solved), report.residual, now.error),
            jnp.where(is_solved, share, now.share),
            jnp.where(is_solved, 2 * now.growth, now.growth / 2),
            now.tries + 1,
            now.iterations + report.iterations,
        )

    zero, one = jnp.zeros_like(error), jnp.ones_like(error)
    none = jnp.int32(0)
    first = _Continuation(start, start, error, zero, one, none, none)
    done = lax.while_loop(unfinished, grow, first)
    return done.best, Report(done.iterations, done.error)


class _Continuation(NamedTuple):
    """Where a continuation is.

    Attributes:
        u: the solution for the share of the step that has been solved.
        best: the solution of the whole step, or what Newton's method has made of the guess.
        error: its relative residual.
        share: the share of the step that has been solved.
        growth: how much is added to it next.
        tries: how often that has been done.
        iterations: Newton steps so far.
    """

    u: Any
    best: Any
    error: Any
    share: Any
    growth: Any
    tries: Any
    iterations: Any


def damped_newton(
    residual: Callable[[jax.Array], jax.Array],
    floor: Callable[[jax.Array], jax.Array],
    relative: Callable[[jax.Array, jax.Array], jax.Array],
    solve: Callable[[Callable[..., Any], jax.Array], jax.Array],
    start: Any,
    error: Any,
) -> tuple[Any, Report]:
    """Newton steps, each the best of several lengths, until the residual stops falling.

    A start that has converged already is returned as it is, and so is one that is not finite:
    no Newton step can come from it. For the arguments see `safe_newton`.
    """
    is_tuple = isinstance(start, tuple)
    limit = tolerance(error.dtype)

    def unfinished(state: tuple[Any, ...]) -> jax.Array:
        _, best, k, falling = state
        wanted = jnp.where(k == 0, limit, goal(best.dtype)).astype(best.dtype)
        return falling & jnp.isfinite(best) & (best > wanted) & (k < MAX_ITERATIONS)

    def improve(state: tuple[Any, ...]) -> tuple[Any, ...]:
        u, best, k, _ = state
        u = jnp.stack(u) if is_tuple else u
        value, product = jax.linearize(residual, u)
        fractions = jnp.asarray(DAMPING, u.dtype)
        trials = u[None, :] + fractions[:, None] * solve(product, -value)[None, :]
        # The trials are compared on one scale: the floor changes with u, and can hide progress.
        scale = floor(u)
        errors = jax.vmap(lambda u: relative(residual(u), scale))(trials)
        errors = jnp.nan_to_num(errors, nan=jnp.inf, posinf=jnp.inf)
        choice = jnp.argmin(errors)
        falling = errors[choice] < relative(value, scale)
        u = jnp.where(falling, trials[choice], u)
        best = relative(residual(u), floor(u))
        return tuple(u) if is_tuple else u, best, k + falling.astype(k.dtype), falling

    first = (start, error, jnp.zeros((), jnp.int32), jnp.array(True))
    u, best, k, _ = lax.while_loop(unfinished, improve, first)
    return u, Report(k, best)


def krylov_solve(product: Callable[[jax.Array], jax.Array], rhs: jax.Array) -> jax.Array:
    """Solve a large linear system by GMRES, without forming its matrix."""
    target = float(jnp.finfo(rhs.dtype).eps) * 16
    return gmres(product, rhs, tol=target, atol=0.0, restart=min(rhs.size, 40), maxiter=10)[0]


def dense_solve(product: Callable[[jax.Array], jax.Array], rhs: jax.Array) -> jax.Array:
    """Solve a small linear system that is known through its products, with pivoting.

    Gauss–Jordan elimination in plain operations: batches of LAPACK calls in several threads at a
    time can wait for each other for ever in XLA's thread pool.
    """
    n = rhs.size
    rows = jnp.arange(n)
    matrix = jax.vmap(product, out_axes=1)(jnp.eye(n, dtype=rhs.dtype))
    for k in range(n):
        pivot = k + jnp.argmax(jnp.abs(matrix[k:, k]))
        swapped = rows.at[k].set(pivot).at[pivot].set(k)
        matrix, rhs = matrix[swapped], rhs[swapped]
        factors = jnp.where(rows == k, jnp.zeros_like(rhs), matrix[:, k] / matrix[k, k])
        matrix = matrix - factors[:, None] * matrix[k][None, :]
        rhs = rhs - factors * rhs[k]
    return rhs / jnp.diagonal(matrix)
