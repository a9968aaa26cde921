"""Newton's method for one block of stage equations: fast first, then safe where needed.

A fixed small number of Newton steps, written out on scalars, serves nearly every path. What they
leave unconverged goes on in a damped Newton loop, which an ensemble enters only for the steps and
paths that need it. Derivatives of a solution come from the implicit
function theorem, so they cost one linear solve and do not depend on how the solution was found.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.scipy.sparse.linalg import gmres

from dalembert.stepping import scalars

__all__ = [
    "FAST_STEPS",
    "LONG_STEPS",
    "Report",
    "damped_newton",
    "dense_solve",
    "fixed_newton",
    "krylov_solve",
    "newton_until_solved",
    "relative",
    "tolerance",
]

FAST_STEPS = 4
"""Newton steps on the fast path for nonlinear equations; linear ones take one.

The last one uses the matrix of the one before, which is as good by then and costs nothing.
"""

LONG_STEPS = 12
"""Newton steps without damping, at most."""

MAX_ITERATIONS = 50
DAMPING = tuple(0.5**k for k in range(8))
"""Fractions of the Newton step that the damped loop tries."""


class Report(NamedTuple):
    """What a solver has to say about its result."""

    iterations: Any
    residual: Any


def tolerance(dtype: Any) -> float:
    """The relative residual below which a stage solve counts as converged.

    Newton ends at a few roundings; 256 of them leave room for sums of a few dozen terms.
    """
    return 256 * float(np.finfo(dtype).eps)


def fixed_newton(
    residual: Callable[[np.ndarray], np.ndarray],
    linearise: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]],
    guess: np.ndarray,
    is_linear: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """A fixed number of Newton steps on scalars, written out without a loop or a branch.

    Returns the solution u and by how much, in units of rounding, its residual is uncertain because
    u itself and the old positions are rounded.
    """
    u, matrix, shift = guess, np.empty((0, 0)), np.empty(0)
    for _ in range(1 if is_linear else FAST_STEPS - 1):
        value, matrix, shift = linearise(u)
        u = _corrected(u, matrix, value)
    if not is_linear:
        u = _corrected(u, matrix, residual(u))
    return u, _slack(u, matrix, shift)


def newton_until_solved(
    linearise: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]],
    check: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    guess: tuple[Any, ...],
) -> tuple[tuple[Any, ...], Report]:
    """Newton steps on scalars in a loop, as long as a path of an ensemble needs one.

    A path whose equations are solved takes no further steps, so what it gets does not depend on the
    others; nor does one whose residual is not a number.
    """
    dtype = guess[0].dtype
    goal = np.asarray(tolerance(dtype) / 64, dtype)[()]

    def unfinished(state: tuple[Any, ...]) -> Any:
        is_open, passes = state[1], state[-1]
        return (passes <= LONG_STEPS) & any_path(is_open)

    def improve(state: tuple[Any, ...]) -> tuple[Any, ...]:
        start, _, _, steps, passes = state
        u = scalars.vector(start)
        value, matrix, shift = linearise(u)
        worst, scale = check(u, _slack(u, matrix, shift))
        excess = [scalars.sub(r, scalars.mul(goal, s)) for r, s in zip(worst, scale, strict=True)]
        is_open = reduce(jnp.logical_or, [x > 0 for x in excess])
        better = _corrected(u, matrix, value)
        new = tuple(jnp.where(is_open, y, x) for x, y in zip(start, better, strict=True))
        steps = steps + jnp.where(is_open, 1, 0).astype(dtype)
        return new, is_open, (tuple(worst), tuple(scale)), steps, passes + 1

    zero = jnp.zeros((), dtype)
    kinds = len(
        jax.eval_shape(lambda u: tuple(check(scalars.vector(u), scalars.vector(u))[0]), guess)
    )
    unknown = ((zero + jnp.inf,) * kinds, (zero + 1,) * kinds)
    first = (guess, jnp.array(True), unknown, zero, jnp.zeros((), jnp.int32))
    u, _, (worst, scale), steps, _ = lax.while_loop(unfinished, improve, first)
    return u, Report(steps, relative(scalars.vector(worst), scalars.vector(scale)))


def relative(worst: np.ndarray, scale: np.ndarray) -> Any:
    """The largest of some residuals relative to their floors; all are scalars."""
    return reduce(lax.max, map(scalars.div, worst, scale))


@custom_vmap
def any_path(condition: Any) -> Any:
    """Whether a condition holds for any path that a function is mapped over."""
    return condition


@any_path.def_vmap
def _any_of_many(size: int, is_mapped: Any, condition: Any) -> tuple[Any, bool]:
    # By a maximum of integers, because Triton has no reduction of truth values.
    return (jnp.max(condition.astype(jnp.int32)) > 0 if is_mapped[0] else condition), False


def _slack(u: np.ndarray, matrix: np.ndarray, shift: np.ndarray) -> np.ndarray:
    uncertain = scalars.product_of_magnitudes(matrix, u)
    pairs = zip(uncertain, shift, strict=True)
    return scalars.vector(scalars.add(x, scalars.magnitude(y)) for x, y in pairs)


def _corrected(u: np.ndarray, matrix: np.ndarray, residual: np.ndarray) -> np.ndarray:
    correction = scalars.solve_linear(matrix, residual)
    return scalars.vector(scalars.sub(x, d) for x, d in zip(u, correction, strict=True))


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
    no Newton step can come from it.

    Args:
        residual: the equations, (n,) → (n,).
        floor: what rounding can leave of the residual at some u.
        relative: the size of a residual relative to such a floor.
        solve: solves a linear system given through its products.
        start: where to begin, an array (n,) or a tuple of n scalars, which are kept apart.
        error: the relative residual of the start, finite unless there is nothing to be done.
    """
    is_tuple = isinstance(start, tuple)
    limit = tolerance(error.dtype)
    goal = limit / 32

    def unfinished(state: tuple[Any, ...]) -> jax.Array:
        _, best, k, falling = state
        wanted = jnp.where(k == 0, limit, goal).astype(best.dtype)
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
    # The count is a float because `lax.custom_root` differentiates everything that it returns.
    return u, Report(k.astype(best.dtype), best)


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
