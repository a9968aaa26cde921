"""Newton's method for one block of stage equations: fast first, then safe where needed.

A small number of Newton steps, written out on scalars, serves nearly every path: a fixed number
(`fixed_newton`) where XLA takes the steps of an ensemble, as many as are needed (`newton_loop`) in
kernels. What they leave unconverged goes on in a damped loop (`damped_newton`), which an ensemble
enters only for the steps and paths that need it. Derivatives of a solution come from the implicit
function theorem, so they cost one linear solve and do not depend on how the solution was found.
"""

from collections.abc import Callable
from functools import reduce
from math import ceil, log2
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
    "damped_newton",
    "dense_solve",
    "fixed_newton",
    "goal",
    "krylov_solve",
    "newton_loop",
    "newton_pass",
    "relative",
    "rough_relative",
    "slack",
    "tolerance",
    "worse",
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
    """A better approximation to u on scalars, and the correction; rough, because others follow.

    Newton's correction d, or with bend(u, d) = ½ r″[d, d] that of Chebyshev, which converges with
    order three. This pays where functions are costly: their derivatives share nearly everything.
    """
    value, matrix, _ = linearise(u)
    solve = _by_determinant(matrix) if len(u) == 2 else _eliminated(matrix, ex.rough_inverse)
    correction = solve(value)
    if bend:
        correction = ex.vector(map(ex.add, correction, solve(bend(u, correction))))
    return ex.vector(map(ex.sub, u, correction)), correction


def newton_loop(
    first_pass: Callable[[tuple[Any, ...]], tuple[np.ndarray, np.ndarray, np.ndarray]],
    next_pass: Callable[[tuple[Any, ...]], tuple[np.ndarray, np.ndarray]],
    check: Callable[[tuple[Any, ...]], tuple[Any, Any]],
    guess: tuple[Any, ...],
    orders: tuple[int, int],
    second_is_ahead: bool,
) -> tuple[tuple[Any, ...], Report]:
    """As many passes as a path of an ensemble needs: the solution, and a report.

    The order of convergence foretells from the last two corrections what the next one would be. A
    path stops when that would be lost in rounding, or when corrections do not shrink: so what it
    gets does not depend on the other paths. In the first case its residual is rounding, in the
    second it is computed. Every path needs a second pass, and few need more: written out before the
    loop, it leaves one look at all the paths.

    Corrections are sums of magnitudes, those of q rows and of p rows apart; the first pass tells
    the sizes of these rows, which are no larger than the floors of their residuals. Orders are
    those of the first pass and of the next ones. A correction d₂ after d₁ foretells
    d₃/d₂ = (d₂/d₁)ᵏ with the order k of both. A pass of order two tells the second derivative C, by
    2 d₂ = C d₁², and one of order three leaves C² d₂³/2 after it, which makes k = 4.
    """
    dtype = guess[0].dtype
    u, corrections, sizes = first_pass(guess)
    # q rows and p rows are made comparable by their sizes.
    size, weights = sizes[0] if len(sizes) == 1 else 1, [rougher_inverse(size) for size in sizes]

    def largest(corrections: np.ndarray) -> Any:
        if len(sizes) == 1:
            return corrections[0]
        return reduce(jnp.add, (d * w for d, w in zip(corrections, weights, strict=True)))

    def improve(passes: _Passes, order: int = orders[1]) -> _Passes:
        better, corrections = next_pass(passes.u)
        now = largest(corrections)
        # 2 (d₂/d₁)ᵏ d₂ is compared with roundings, with the kth root of their inverse in d₂/d₁.
        exponent = ceil(-log2(goal(dtype) / 4) / order)
        ratio = now * rougher_inverse(passes.correction, exponent)
        foretold = ratio ** (order - order // 2) * (ratio ** (order // 2) * now)
        is_open = passes.is_open
        u = tuple(jnp.where(is_open, y, x) for x, y in zip(passes.u, better, strict=True))
        is_solved = passes.is_solved | (is_open & (foretold <= size))
        is_open = is_open & ~is_solved & (ratio < 2.0 ** (exponent - 1))
        steps = passes.steps + passes.is_open.astype(jnp.int32)
        return _Passes(u, now, is_open, is_solved, steps, passes.count + 1)

    def unfinished(passes: _Passes) -> Any:
        return (passes.count < LONG_STEPS) & any_path(passes.is_open)

    def finish(state: tuple[_Passes, Any, Any]) -> tuple[_Passes, Any, Any]:
        passes, bound, doubt = state
        passes = lax.while_loop(unfinished, improve, passes)
        error = jnp.where(passes.is_solved, bound, relative(*check(passes.u)))
        return passes, error, jnp.zeros_like(doubt)

    yes, no, one = jnp.array(True), jnp.array(False), jnp.int32(1)
    passes = _Passes(as_scalars(u, dtype), largest(corrections), yes, no, one, one)
    bound = jnp.asarray(goal(dtype), dtype)
    if second_is_ahead:
        passes = improve(passes, 4 if orders == (2, 3) else orders[1])
        state = passes, bound, ~passes.is_solved
        passes, error, _ = lax.while_loop(lambda state: any_path(state[2]), finish, state)
    else:
        passes, error, _ = finish((passes, bound, yes))
    return passes.u, Report(passes.steps, error)


class _Passes(NamedTuple):
    """Where a path is: approximation, last correction, whether more are needed, or none, counts."""

    u: tuple[Any, ...]
    correction: Any
    is_open: Any
    is_solved: Any
    steps: Any
    count: Any


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
    return reduce(worse, [jnp.where(x == x, x, jnp.inf).astype(x.dtype) for x in ratios])


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
