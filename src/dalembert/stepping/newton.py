"""Newton's method for one block of stage equations: fast first, then safe where needed.

A small number of Newton steps, written out on scalars, serves nearly every path: a fixed number
(`fixed_newton`) where XLA takes the steps of an ensemble, as many as are needed (`newton_loop`) in
kernels. What they leave unconverged goes on in a damped loop, and from the old state by
continuation in the step (`safe_newton`), for the steps and paths that need it alone. Every solver
measures the residual of what it returns. Derivatives of a solution come from the implicit function
theorem, so they cost one linear solve and do not depend on how the solution was found.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.scipy.sparse.linalg import gmres

from dalembert.elementary import rougher_inverse
from dalembert.stepping import expressions as ex

__all__ = [
    "FAST_STEPS",
    "LONG_STEPS",
    "Report",
    "as_scalars",
    "checked",
    "dense_solve",
    "fixed_newton",
    "goal",
    "krylov_solve",
    "newton_loop",
    "newton_pass",
    "relative",
    "rough_relative",
    "safe_newton",
    "slack",
    "tolerance",
    "worse",
    "worst_if_nan",
]

FAST_STEPS = 4
"""Newton steps on the fast path for nonlinear equations; linear ones take one.

The last one uses the matrix of the one before, which is as good by then and costs nothing.
"""

LONG_STEPS = 12
"""Newton steps without damping, at most."""

ENOUGH_ROUNDINGS = 2
"""The residual at which a path of an ensemble stops, in units of rounding."""

MAX_ITERATIONS = 50
DAMPING = tuple(0.5**k for k in range(8))
"""Fractions of the Newton step that the damped loop tries."""

LEAST_GROWTH, MAX_TRIES = 2.0**-20, 200
"""Where continuation gives up: near a step that grows no further without turning back."""


class Report(NamedTuple):
    """What a solver has to say about its result."""

    iterations: Any
    residual: Any


def tolerance(dtype: Any) -> float:
    """The relative residual below which a stage solve counts as converged.

    Newton ends at a few roundings; 256 of them leave room for sums of a few dozen terms.
    """
    return 256 * float(np.finfo(dtype).eps)


def goal(dtype: Any) -> float:
    """The relative residual that solvers try to reach: a few roundings."""
    return tolerance(dtype) / 32


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
    return u, slack(u, matrix, shift)


def newton_pass(
    linearise: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]],
    bend: Callable[[np.ndarray, np.ndarray], np.ndarray] | None,
    u: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """A better approximation to u on scalars, and the effect of rounding positions on residuals.

    Newton's correction d, or with bend(u, d) = ½ r″[d, d] that of Chebyshev, which converges with
    order three. This pays where functions are costly: their derivatives share nearly everything.
    Divisions are rough, because the next pass or a measured residual corrects them.
    """
    value, matrix, shift = linearise(u)
    solve = _by_determinant(matrix) if len(u) == 2 else _eliminated(matrix, ex.rough_inverse)
    correction = solve(value)
    if bend:
        correction = ex.vector(map(ex.add, correction, solve(bend(u, correction))))
    return ex.vector(map(ex.sub, u, correction)), shift


def newton_loop(
    next_pass: Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], Any]],
    guess: tuple[Any, ...],
    second_pass: Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], Any]] | None = None,
    roundings: float = ENOUGH_ROUNDINGS,
) -> tuple[tuple[Any, ...], Report]:
    """As many passes as a path of an ensemble needs: the solution, and its measured residual.

    A path stops when its residual is a few roundings or has ceased to shrink, so what it gets does
    not depend on the other paths. What the last pass leaves is no random rounding: over many steps
    it adds up, and invariants drift by a tenth of it a step. Every path needs a second pass, and
    few need more: written out before the loop, it leaves one look at all the paths.

    Args:
        next_pass: a better approximation, and its residual.
        guess: where to begin: what a first pass has found.
        second_pass: the same, with an upper bound of the residual, written out before the loop.
        roundings: the residual that is small enough; 0 goes on until it shrinks no more.
    """
    dtype = guess[0].dtype
    enough = roundings * float(np.finfo(dtype).eps)

    def improve(pass_: Any, now: _Approximation) -> _Approximation:
        better, error = pass_(now.u)
        goes_on = (error > enough) & (error < now.error / 2) & (now.passes + 1 < LONG_STEPS)
        new = _Approximation(better, error, goes_on, now.passes + 1)
        return jax.tree.map(partial(jnp.where, now.is_open), new, now)

    start = _Approximation(guess, jnp.asarray(jnp.inf, dtype), jnp.array(True), jnp.int32(1))
    if second_pass:
        start = improve(second_pass, start)
        start = start._replace(is_open=~(start.error <= enough))
    end = lax.while_loop(lambda now: any_path(now.is_open), partial(improve, next_pass), start)
    return end.u, Report(end.passes, end.error)


class _Approximation(NamedTuple):
    """Where a path is: approximation, its residual, whether to go on, passes made."""

    u: tuple[Any, ...]
    error: Any
    is_open: Any
    passes: Any


def as_scalars(u: np.ndarray, dtype: Any) -> tuple[Any, ...]:
    return tuple(jnp.asarray(x, dtype) for x in u)


def checked(bound: Any, check: Callable[[], tuple[Any, Any]]) -> Any:
    """The relative residual: a bound that costs little, or what a check says where it is large."""

    def is_doubtful(state: tuple[Any, Any]) -> Any:
        return any_path(state[1])

    def look_closely(state: tuple[Any, Any]) -> tuple[Any, Any]:
        bound, doubt = state
        return jnp.where(doubt, relative(*check()), bound), jnp.zeros_like(doubt)

    doubt = ~(bound <= tolerance(bound.dtype))
    return lax.while_loop(is_doubtful, look_closely, (bound, doubt))[0]


def rough_relative(worst: Any, scale: Any) -> Any:
    """The same as `relative`, give or take 6 %."""
    return reduce(worse, (x * rougher_inverse(y) for x, y in zip(worst, scale, strict=True)))


def relative(worst: Any, scale: Any) -> Any:
    """The largest of some residuals relative to their floors; infinite if one is not a number."""
    ratios = [x / y for x, y in zip(worst, scale, strict=True)]
    return reduce(worse, map(worst_if_nan, ratios))


def worst_if_nan(residual: Any) -> Any:
    """A residual that is not a number is as bad as any."""
    return jnp.where(residual == residual, residual, jnp.inf).astype(residual.dtype)


def worse(residual: Any, other: Any) -> Any:
    """The larger residual; none of them is NaN, or else the second one is the worst."""
    return jnp.where(other <= residual, residual, other)


@custom_vmap
def any_path(condition: Any) -> Any:
    """Whether a condition holds for any path that a function is mapped over."""
    return condition


@any_path.def_vmap
def _any_of_many(size: int, is_mapped: Any, condition: Any) -> tuple[Any, bool]:
    # By a maximum of integers, because Triton has no reduction of truth values.
    return (jnp.max(condition.astype(jnp.int32)) > 0 if is_mapped[0] else condition), False


def slack(u: np.ndarray, matrix: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """By how much, in units of rounding, a residual is uncertain: unknowns are rounded, and q."""
    uncertain = _product_of_magnitudes(matrix, u)
    pairs = zip(uncertain, shift, strict=True)
    return ex.vector(ex.add(x, ex.magnitude(y)) for x, y in pairs)


def _corrected(u: np.ndarray, matrix: np.ndarray, residual: np.ndarray) -> np.ndarray:
    correction = _eliminated(matrix)(residual)
    return ex.vector(ex.sub(x, d) for x, d in zip(u, correction, strict=True))


def _inverse(x: Any) -> Any:
    return ex.div(np.ones((), x.dtype)[()], x)


def _eliminated(
    matrix: np.ndarray, inverse: Callable[[Any], Any] = _inverse
) -> Callable[[np.ndarray], np.ndarray]:
    """Elimination in a small matrix of scalars, written out: the solution for a right-hand side.

    Known zeros are skipped. There is no pivoting: stage matrices are a small step away from the
    identity, and the residual of the nonlinear equations is checked afterwards.
    """
    n = len(matrix)
    a = matrix.copy()
    for k in range(n):
        # One inverse per pivot: they are the slowest operations here.
        a[k, k] = inverse(a[k, k])
        for i in range(k + 1, n):
            a[i, k] = ex.mul(a[i, k], a[k, k])
            for j in range(k + 1, n):
                a[i, j] = ex.sub(a[i, j], ex.mul(a[i, k], a[k, j]))

    def solve(rhs: np.ndarray) -> np.ndarray:
        x = rhs.copy()
        for i in range(n):
            for k in range(i):
                x[i] = ex.sub(x[i], ex.mul(a[i, k], x[k]))
        for i in reversed(range(n)):
            for j in range(i + 1, n):
                x[i] = ex.sub(x[i], ex.mul(a[i, j], x[j]))
            x[i] = ex.mul(x[i], a[i, i])
        return x

    return solve


def _by_determinant(matrix: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The same for two unknowns, roughly, with one inverse instead of two."""
    (a, b), (c, d) = matrix
    inverse = ex.rough_inverse(ex.sub(ex.mul(a, d), ex.mul(b, c)))

    def solve(rhs: np.ndarray) -> np.ndarray:
        x, y = rhs
        first, second = ex.sub(ex.mul(d, x), ex.mul(b, y)), ex.sub(ex.mul(a, y), ex.mul(c, x))
        return ex.vector([ex.mul(first, inverse), ex.mul(second, inverse)])

    return solve


def _product_of_magnitudes(matrix: np.ndarray, u: np.ndarray) -> np.ndarray:
    """|A| · |u| of a matrix and a vector of scalars."""
    sums = []
    for row in matrix:
        parts = [ex.mul(ex.magnitude(a), ex.magnitude(x)) for a, x in zip(row, u, strict=True)]
        sums.append(reduce(ex.add, parts))
    return ex.vector(sums)


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
