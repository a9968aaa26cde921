"""States of systems with constraints: projected to them, or checked."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.options import compiled_sooner
from dalembert.precision import is_traced, with_precision
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.constrained import Manifold
from dalembert.stepping.multipliers import Blocks, find_blocks
from dalembert.stepping.residuals import tolerance
from dalembert.system import System

__all__ = ["check_start", "nearest_ranks", "project"]

SINGULAR = 1e-10
"""The least eigenvalue of Dg W Dgᵀ, rows of length one, below which constraints are redundant."""

MOST_RANKS = 64
"""Initial states of which the rank of Dg is looked at."""


def project(system: System, q: Any, p: Any) -> tuple[Any, Any]:
    """The state (q, p) moved to the constraints: g(q) = 0 and Dg(q) H_p(q, p) = 0.

    Positions are moved along H_pp Dgᵀ, which for H = ½pᵀM⁻¹p + U is towards the nearest point in
    the metric M, and momenta along Dgᵀ of the new positions.

    Args:
        system: a system with constraints.
        q: positions, of the shape of the system, or (paths, *shape).
        p: momenta, likewise.

    Raises:
        ValueError: if the system has no constraints, if they are redundant where the state is, or
            if it is too far from them. In a jit the result is NaN then.
    """
    if not system.constraint_count:
        raise ValueError(f"{system.name!r} has no constraints to project to.")
    states = [_states(system, name, x) for name, x in (("q", q), ("p", p))]
    shape = np.shape(q)
    found = with_precision(_call(_projected, system), *states, system.params)
    q1, p1, residual, grams = found
    if not is_traced(found):
        far = ~(np.asarray(residual) <= tolerance(np.float64))
        if far.any():
            raise ValueError(
                f"state {int(np.argmax(far))} could not be moved to the constraints of "
                f"{system.name!r}: it is too far from them, or they are redundant there "
                f"(relative residual {np.max(residual):.1e}). Give positions nearer to g(q) = 0."
            )
        _check_ranks(system, grams)
    return q1.reshape(shape), p1.reshape(shape)


class BadStartError(ValueError):
    """Nothing can start at a state; the message says at which one."""


def check_start(system: System, q: Any, p: Any, numbers: Any = None) -> None:
    """Refuse initial states, shape (n, dim), that are not on the constraints, or where Dg fails.

    Those of traced numbers pass: there is nothing to look at. Numbers of paths are for the message.
    """
    if not system.constraint_count or is_traced(q, p, system.params):
        return
    limit = float(np.finfo(np.result_type(q)).eps) ** (2 / 3)
    given = np.float64(q), np.float64(p), system.params
    found = jax.tree.map(np.asarray, with_precision(_call(_looked_at, system), *given))
    misses, scales, grams = found
    words = (("g(q)", "positions are not on the constraints"),)
    words += (("Dg(q) H_p", "velocities are not tangent to the constraints"),)
    for (name, what), miss, scale in zip(words, misses, scales, strict=True):
        worst = np.max(np.abs(miss), axis=1) / scale
        if not np.all(worst <= limit):
            path = int(np.argmax(~(worst <= limit)))
            number = int(np.argmax(np.nan_to_num(np.abs(miss[path]), nan=np.inf)))
            raise BadStartError(
                f"{what} of {system.name!r}: {name} is {miss[path][number]:.3g} for constraint "
                f"{number} of path {path if numbers is None else numbers[path]}. Start from "
                "da.project(system, q, p)."
            )
    _check_ranks(system, grams)


def _check_ranks(system: System, grams: Any) -> None:
    for number, (rank, _) in enumerate(_ranks(system, grams[:MOST_RANKS])):
        if rank < system.constraint_count:
            raise BadStartError(
                f"the constraints of {system.name!r} are redundant: Dg(q) has rank {rank}, and "
                f"there are {system.constraint_count}, at state {number}. Leave out those that "
                "follow from others."
            )


def nearest_ranks(system: System, q: Any, p: Any) -> tuple[Any, bool, list[tuple[int, float]]]:
    """Positions, (n, dim), moved to the constraints, whether that could be, and `_ranks` there."""
    found = with_precision(_call(_projected, system), q, p, system.params)
    moved, grams = np.asarray(found[0]), np.asarray(found[-1])
    fine = np.isfinite(moved).all(axis=1)
    if fine.any():
        return moved[fine], True, _ranks(system, grams[fine])
    *_, grams = with_precision(_call(_looked_at, system), q, p, system.params)
    return q, False, _ranks(system, grams)


def _ranks(system: System, grams: Any) -> list[tuple[int, float]]:
    """The rank of Dg at every state and the least eigenvalue of Dg W Dgᵀ, with rows of length one.

    Args:
        system: a system with constraints.
        grams: Dg W Dgᵀ of every state and block, shape (n, blocks, m, m), where W is H_pp at rest.
    """
    found = []
    for blocks in np.asarray(grams):
        sizes = np.sqrt(np.maximum(np.einsum("bii->bi", blocks), np.finfo(float).tiny))
        values = np.linalg.eigvalsh(blocks / (sizes[:, :, None] * sizes[:, None, :]))
        missing = int(np.count_nonzero(~(values > SINGULAR)))
        found.append((system.constraint_count - missing, float(values.min())))
    return found


def _states(system: System, name: str, x: Any) -> Any:
    shape = np.shape(x)
    if shape == system.shape or shape[1:] == system.shape:
        return jnp.reshape(x, (-1, system.dim)) if is_traced(x) else _real(x, system)
    raise ValueError(f"{name} must have shape {system.shape} or (n, *{system.shape}), not {shape}.")


def _real(x: Any, system: System) -> np.ndarray:
    return np.asarray(x, np.float64).reshape(-1, system.dim)


def _call(kernel: Any, system: System) -> Any:
    """A kernel for the functions of a system, and all states."""
    return lambda *arguments: _compiled(system.shared, kernel, find_blocks(system))(*arguments)


@kept
def _compiled(system: System, kernel: Any, blocks: Blocks) -> Any:
    def run(*arguments: Any) -> Any:
        *states, params = arguments
        manifold = Manifold(system.typed(params), blocks)
        return jax.vmap(lambda *state: kernel(manifold, params, *state))(*states)

    return jax.jit(run, compiler_options=compiled_sooner())


def _projected(manifold: Manifold, params: Any, q: Any, p: Any) -> tuple[Any, ...]:
    q, report = manifold.project_position(q, params)
    p, more = manifold.project_momentum(q, p, params, Solver.SAFE)
    residual = jnp.maximum(report.residual, more.residual)
    trust = jnp.where(residual <= tolerance(q.dtype), 1.0, jnp.nan).astype(q.dtype)
    return trust * q, trust * p, residual, _grams(manifold, params, q)


def _looked_at(manifold: Manifold, params: Any, q: Any, p: Any) -> tuple[Any, ...]:
    """g and Dg H_p, what rounding of positions and velocities is relative to, and grams."""
    steep, tiny = manifold.steepness(q, params), jnp.finfo(q.dtype).tiny
    place = steep * jnp.max(jnp.abs(q)) + tiny
    pace = steep * jnp.max(jnp.abs(manifold.velocity(q, p, params))) + tiny
    g = manifold.system.constraint(q, params)
    moved = manifold.normal_velocity(q, p, params)
    return (g, moved), (place, pace), _grams(manifold, params, q)


def _grams(manifold: Manifold, params: Any, q: Any) -> Any:
    """Dg W Dgᵀ of every block, shape (blocks, m, m), with ones for what a block has not."""
    slopes, blocks = manifold.slopes(q, params), manifold.blocks
    rest = jnp.zeros_like(q)

    def column(colour: Any) -> Any:
        _, along = jax.jvp(lambda p: manifold.velocity(q, p, params), (rest,), (slopes(colour),))
        g = jax.jvp(lambda q: manifold.system.constraint(q, params), (q,), (along,))[1]
        return jnp.stack(blocks.split(g))

    count = manifold.system.constraint_count
    matrix = jax.vmap(column)(blocks.colours(count, q.dtype))
    ones = (blocks.places < 0)[:, None] * np.eye(blocks.size)[..., None]
    return jnp.moveaxis(matrix + ones, 2, 0)
