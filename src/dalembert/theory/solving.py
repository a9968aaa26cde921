"""Equations solved inside a compiled function, and what happens when they are not.

Concrete arguments that lead to equations for which no solution is found raise an error; inside
jit, vmap or grad, where nothing can be raised, the results are NaN. Nothing unsolved is ever handed
on.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.caches import kept
from dalembert.methods import Method
from dalembert.precision import cast, check_dt, is_traced, traced_dtype, with_precision
from dalembert.stepping import many, rescue, residuals
from dalembert.stepping.root import implicit_root
from dalembert.stepping.stepper import StepInfo
from dalembert.system import System

MOST_DENSE = 64
"""Unknowns up to which a matrix of derivatives is made."""

SHORTEST = 2.0**-8
"""The smallest fraction of a Newton step that is tried."""


def find_root(
    residual: Callable[[Any], Any],
    size: Callable[[Any, Any], Any],
    guess: Any,
    linearise: Callable[[Any], tuple[Any, Any]] | None = None,
    parts: int = 1,
) -> tuple[Any, StepInfo]:
    """Solve equations by Newton's method with halved steps; derivatives by the implicit theorem.

    More than `MOST_DENSE` of them are solved without a matrix, as those of a step are: they must be
    near to the identity then.

    Args:
        residual: the equations, (n,) → (n,).
        size: `(residual, change) -> error`, where the change is what unknowns that all are wrong
            by as much as they are large may do to the residual: rounding is a part of that.
        guess: where to begin, shape (n,).
        linearise: the residual and its matrix of derivatives or an approximation of it.
        parts: how many kinds of unknowns there are, as many of each (positions, momenta).
    """
    limit = residuals.tolerance(guess.dtype)

    def with_jacobian(u: Any) -> tuple[Any, Any]:
        matrix, value = jax.jacfwd(lambda u: (residual(u),) * 2, has_aux=True)(u)
        return value, matrix

    def unfinished(state: tuple[Any, ...]) -> Any:
        _, _, fraction, error, k = state
        return (error > limit / 32) & (fraction >= SHORTEST) & (k < rescue.MAX_ITERATIONS)

    def improve(state: tuple[Any, ...]) -> tuple[Any, ...]:
        # One linearisation serves to judge a step and to find the next: it is compiled once.
        best, correction, fraction, error, k = state
        trial = best + fraction * correction
        value, matrix = (linearise or with_jacobian)(trial)
        found = size(value, jnp.abs(matrix) @ jnp.abs(trial))
        better = (trial, -jnp.linalg.solve(matrix, value), jnp.ones_like(fraction), found)
        worse = (best, correction, fraction / 2, error)
        chosen = (jnp.where(found < error, x, y) for x, y in zip(better, worse, strict=True))
        return *chosen, k + 1

    def root(u: Any) -> tuple[Any, residuals.Report]:
        one, worst = jnp.ones((), u.dtype), jnp.full((), jnp.inf, u.dtype)
        first = (u, jnp.zeros_like(u), one, worst, jnp.zeros((), jnp.int32))
        u, *_, error, k = lax.while_loop(unfinished, improve, first)
        return u, residuals.Report(k - 1, error)

    def without_matrix(u: Any) -> tuple[Any, residuals.Report]:
        def worst(x: Any) -> Any:
            return jnp.max(x.reshape(parts, -1), axis=1)

        def closely(value: Any, u: Any) -> Any:
            return size(value, jnp.abs(u))

        # What comes with its matrix has derivatives of its own inside: they are not taken again.
        products = linearise is None
        return many.solve(residual, worst, closely, u, u, 0, affine=False, products=products)

    ways = (root, rescue.dense_solve)
    if guess.size > MOST_DENSE:
        ways = (without_matrix, rescue.krylov_solve)
    u, (iterations, error) = implicit_root(residual, guess, *ways)
    return u, StepInfo(error <= limit, iterations, error)


def relative_size(residual: Any, *values: Any) -> Any:
    """The largest residual relative to the largest of the values."""
    size = jnp.max(jnp.stack([jnp.max(jnp.abs(x)) for x in values]))
    return jnp.max(jnp.abs(residual)) / jnp.maximum(size, jnp.finfo(residual.dtype).tiny)


def trusted(found: Any, info: StepInfo) -> Any:
    """The same values if the equations behind them were solved, else NaN.

    A factor, not a choice: derivatives of what cannot be trusted are NaN as well.
    """
    factor = jnp.where(jnp.all(info.converged), 1.0, jnp.nan)
    return jax.tree.map(lambda x: factor.astype(x.dtype) * x, found)


@kept
def _compiled(system: System, kernel: Callable[..., Any], static: tuple[Any, ...]) -> Any:
    def run(params: Any, dt: Any, *arguments: Any) -> Any:
        return kernel(system.typed(params), *static, params, dt, *arguments)

    return jax.jit(run)


def run_kernel(
    kernel: Callable[..., Any],
    system: System,
    method: Method | None,
    arguments: tuple[Any, ...],
    dt: Any,
    *static: Any,
    refuse: bool = True,
) -> Any:
    """Compile a kernel once and call it; concrete results that did not converge are refused.

    Args:
        kernel: `(system, *static, params, dt, *arguments) -> (result, StepInfo or None)`.
        system: its functions are compiled in, its parameters passed.
        method: whose equations are solved; None where there are none.
        arguments: arrays in any nesting.
        dt: step size, > 0.
        static: hashable things that are compiled in.
        refuse: False hands them on, as NaN.
    """
    if not is_traced(dt):
        check_dt(dt)
    kind = traced_dtype((arguments, dt, system.params), np.float64)

    def run(params: Any, dt: Any, *arguments: Any) -> Any:
        compiled = _compiled(system.shared, kernel, static)
        return compiled(cast(params, kind), jnp.asarray(dt, kind), *cast(arguments, kind))

    result, info = with_precision(run, system.params, dt, *arguments, dtype=kind)
    if not refuse or info is None or is_traced(info) or np.all(info.converged):
        return result
    raise ValueError(
        f"the equations of {method and method.name} with dt={float(dt):g} were not solved "
        f"(relative residual {float(np.max(info.residual)):.1e}): no path of this method joins "
        "what was given, or Newton's method did not find it. Use a smaller dt or a shorter path."
    )
