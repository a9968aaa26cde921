"""Newton's method for one block of stage equations, written out on scalars.

A small number of Newton steps serves nearly every path: a fixed number (`fixed_newton`) where XLA
takes the steps of an ensemble, as many as are needed (`newton_loop`) in kernels. What they leave
unconverged is for `rescue`. Derivatives of a solution come from the implicit function theorem, so
they cost one linear solve and do not depend on how the solution was found.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from dalembert.stepping import arithmetic as ar
from dalembert.stepping.expressions import vector
from dalembert.stepping.residuals import Report, relative, tolerance

FAST_STEPS = 4
"""Newton steps on the fast path for nonlinear equations; linear ones take one.

The last one uses the matrix of the one before, which is as good by then and costs nothing.
"""

LONG_STEPS = 12
"""Newton steps without damping, at most."""

ENOUGH_ROUNDINGS = 2
"""The residual at which a path of an ensemble stops, in units of rounding."""


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
    solve = _by_determinant(matrix) if len(u) == 2 else _eliminated(matrix, ar.rough_inverse)
    correction = solve(value)
    if bend:
        correction = vector(map(ar.add, correction, solve(bend(u, correction))))
    return vector(map(ar.sub, u, correction)), shift


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
    return vector(ar.add(x, ar.magnitude(y)) for x, y in pairs)


def _corrected(u: np.ndarray, matrix: np.ndarray, residual: np.ndarray) -> np.ndarray:
    correction = _eliminated(matrix)(residual)
    return vector(ar.sub(x, d) for x, d in zip(u, correction, strict=True))


def _inverse(x: Any) -> Any:
    return ar.div(np.ones((), x.dtype)[()], x)


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
            a[i, k] = ar.mul(a[i, k], a[k, k])
            for j in range(k + 1, n):
                a[i, j] = ar.sub(a[i, j], ar.mul(a[i, k], a[k, j]))

    def solve(rhs: np.ndarray) -> np.ndarray:
        x = rhs.copy()
        for i in range(n):
            for k in range(i):
                x[i] = ar.sub(x[i], ar.mul(a[i, k], x[k]))
        for i in reversed(range(n)):
            for j in range(i + 1, n):
                x[i] = ar.sub(x[i], ar.mul(a[i, j], x[j]))
            x[i] = ar.mul(x[i], a[i, i])
        return x

    return solve


def _by_determinant(matrix: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Solutions of equations in two unknowns by Cramer's rule: one rough inverse instead of two."""
    (a, b), (c, d) = matrix
    inverse = ar.rough_inverse(ar.sub(ar.mul(a, d), ar.mul(b, c)))

    def solve(rhs: np.ndarray) -> np.ndarray:
        x, y = rhs
        first, second = ar.sub(ar.mul(d, x), ar.mul(b, y)), ar.sub(ar.mul(a, y), ar.mul(c, x))
        return vector([ar.mul(first, inverse), ar.mul(second, inverse)])

    return solve


def _product_of_magnitudes(matrix: np.ndarray, u: np.ndarray) -> np.ndarray:
    """|A| · |u| of a matrix and a vector of scalars."""
    sums = []
    for row in matrix:
        parts = [ar.mul(ar.magnitude(a), ar.magnitude(x)) for a, x in zip(row, u, strict=True)]
        sums.append(reduce(ar.add, parts))
    return vector(sums)
