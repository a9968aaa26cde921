"""States of systems with constraints: projected to them, or checked."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.options import compiled_sooner
from dalembert.precision import is_traced, with_precision
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.constraint_blocks import Blocks, find_blocks
from dalembert.stepping.manifold import Manifold
from dalembert.stepping.residuals import tolerance
from dalembert.stepping.sheets import limit_of_starts
from dalembert.system import System

SINGULAR = 1e-10
"""The least eigenvalue of Dg W Dgᵀ, rows of length one, below which constraints are redundant."""

MOST_RANKS = 64
"""Initial states of which the rank of Dg is looked at."""

MOST_NUMBERS = 1 << 22
"""Of Dg at as many states as are looked at together."""


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
            if it is too far from them. Inside jit, vmap and grad the result is NaN then.
    """
    if not system.constraint_count:
        raise ValueError(f"{system.name!r} has no constraints to project to.")
    states = [_states(system, name, x) for name, x in (("q", q), ("p", p))]
    shape = np.shape(q)
    if is_traced(states, system.params):
        call = _call(_projected_in_trace, system, in_trace=True)
        q1, p1, _ = with_precision(call, *states, system.params)
    else:
        parts = [found for _, found in _in_parts(system, _projected, *states)]
        q1, p1, residual = map(np.concatenate, zip(*parts, strict=True))
        far = ~(np.asarray(residual) <= tolerance(np.float64))
        if far.any():
            raise ValueError(
                f"state {int(np.argmax(far))} could not be moved to the constraints of "
                f"{system.name!r}: it is too far from them, or they are redundant there "
                f"(relative residual {np.max(residual):.1e}). Give positions nearer to g(q) = 0."
            )
        _check_ranks(system, q1)
    return q1.reshape(shape), p1.reshape(shape)


class BadStartError(ValueError):
    """Nothing can start at a state; the message says at which one."""


def check_start(system: System, q: Any, p: Any, numbers: Any = None) -> None:
    """Refuse initial states, shape (n, dim), that are not on the constraints, or where Dg fails.

    Those of traced numbers pass: they are for `only_on_constraints`. Numbers of paths are for the
    message.
    """
    if not system.constraint_count or is_traced(q, p, system.params):
        return
    states = np.float64(q), np.float64(p)
    _check_misses(system, _looked_at, states, limit_of_starts(np.result_type(q)), numbers)
    _check_ranks(system, states[0])


def check_positions(system: System, q: Any) -> None:
    """Refuse positions, shape (n, dim), that are not on the constraints; traced ones pass."""
    if system.constraint_count and not is_traced(q, system.params):
        states = (np.float64(q),)
        _check_misses(system, _positions_looked_at, states, limit_of_starts(np.result_type(q)))


def _check_misses(
    system: System, kernel: Any, states: Any, limit: float, numbers: Any = None
) -> None:
    words = (("g(q)", "positions are not on the constraints"),)
    words += (("Dg(q) H_p", "velocities are not tangent to the constraints"),)
    for first, found in _in_parts(system, kernel, *states):
        for (name, what), (miss, scale) in zip(words, found, strict=False):
            worst = np.nan_to_num(np.abs(miss) / scale, nan=np.inf)
            if not np.all(worst <= limit):
                path, number = np.unravel_index(np.argmax(worst), worst.shape)
                raise BadStartError(
                    f"{what} of {system.name!r}: {name} is {miss[path, number]:.3g} for constraint "
                    f"{number} of path {first + path if numbers is None else numbers[first + path]}"
                    ". Start from da.project(system, q, p)."
                )


def only_on_constraints(system: System, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
    """Traced states, (n, dim), that are NaN where `check_start` refuses them: nothing is raised.

    The rank of Dg is not looked at.
    """
    if not system.constraint_count:
        return q, p
    return _call(_trusted, system, in_trace=True)(q, p, params)


def _check_ranks(system: System, q: Any) -> None:
    for number, (rank, _) in enumerate(_ranks(system, q[:MOST_RANKS])):
        if rank < system.constraint_count:
            raise BadStartError(
                f"the constraints of {system.name!r} are redundant: Dg(q) has rank {rank}, and "
                f"there are {system.constraint_count}, at state {number}. Leave out those that "
                "follow from others."
            )


def nearest_ranks(system: System, q: Any, p: Any) -> tuple[Any, bool, list[tuple[int, float]]]:
    """Positions, (n, dim), moved to the constraints, whether that could be, and `_ranks` there."""
    moved = np.concatenate([found[0] for _, found in _in_parts(system, _projected, q, p)])
    fine = np.isfinite(moved).all(axis=1)
    if fine.any():
        return moved[fine], True, _ranks(system, moved[fine])
    return q, False, _ranks(system, q)


def _ranks(system: System, q: Any) -> list[tuple[int, float]]:
    """The rank of Dg at positions (n, dim), and the least eigenvalue of Dg W Dgᵀ.

    W is H_pp at rest, and the rows of Dg are scaled to length one.
    """
    found = []
    for blocks in (blocks for _, part in _in_parts(system, _grams, q) for blocks in part):
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


def _in_parts(system: System, kernel: Any, *states: Any) -> Iterator[tuple[int, Any]]:
    """The number of the first of a few states, and what a kernel says of them, until all are done.

    Memory is that of a few states, however many there are. All parts are as large, so that one is
    compiled: the last is filled up, and what is found of that is left out.
    """
    count, call = len(states[0]), _call(kernel, system)
    size = min(count, max(1, MOST_NUMBERS // (find_blocks(system).size * system.dim)))
    for first in range(0, count, size):
        places = np.minimum(np.arange(first, first + size), count - 1)
        found = with_precision(call, *(x[places] for x in states), system.params)
        left = slice(count - first)
        yield first, jax.tree.map(lambda x, left=left: np.asarray(x)[left], found)


def _call(kernel: Any, system: System, in_trace: bool = False) -> Any:
    """A kernel for the functions of a system, and all states."""
    blocks = find_blocks(system)
    return lambda *arguments: _compiled(system.shared, kernel, blocks, in_trace)(*arguments)


@kept
def _compiled(system: System, kernel: Any, blocks: Blocks, in_trace: bool = False) -> Any:
    def run(*arguments: Any) -> Any:
        *states, params = arguments
        manifold = Manifold(system.typed(params), blocks)
        return jax.vmap(lambda *state: kernel(manifold, params, *state))(*states)

    # What surrounds a nested jit says how it is compiled.
    return jax.jit(run) if in_trace else jax.jit(run, compiler_options=compiled_sooner())


def _projected_in_trace(manifold: Manifold, params: Any, q: Any, p: Any) -> tuple[Any, ...]:
    """The same with derivatives of the solution, in forward and reverse mode."""
    return _projected(manifold, params, q, p, Solver.BOTH)


def _projected(
    manifold: Manifold, params: Any, q: Any, p: Any, solver: Solver = Solver.SAFE
) -> tuple[Any, ...]:
    q, report = manifold.project_position(q, params, solver)
    slopes = manifold.slopes(q, params)
    p, more = manifold.project_momentum(q, p, params, solver, slopes)
    residual = jnp.maximum(report.residual, more.residual)
    trust = jnp.where(residual <= tolerance(q.dtype), 1.0, jnp.nan).astype(q.dtype)
    return trust * q, trust * p, residual


def _looked_at(manifold: Manifold, params: Any, q: Any, p: Any) -> tuple[Any, ...]:
    """g and Dg H_p, each with what rounding of positions and velocities may do to it."""
    slopes = manifold.slopes(q, params)
    pace = jnp.max(jnp.abs(manifold.velocity(q, p, params)))
    moved = manifold.normal_velocity(q, p, params)
    return *_positions_looked_at(manifold, params, q), (moved, slopes.floor(pace))


def _positions_looked_at(manifold: Manifold, params: Any, q: Any) -> tuple[Any, ...]:
    floor = manifold.slopes(q, params).floor(jnp.max(jnp.abs(q)))
    return ((manifold.system.constraint(q, params), floor),)


def _trusted(manifold: Manifold, params: Any, q: Any, p: Any) -> tuple[Any, Any]:
    found = [jnp.max(jnp.abs(miss) / scale) for miss, scale in _looked_at(manifold, params, q, p)]
    fine = jnp.maximum(*found) <= limit_of_starts(q.dtype)
    # A factor, not a choice: derivatives of what cannot be trusted are NaN as well.
    trust = jnp.where(fine, 1.0, jnp.nan).astype(q.dtype)
    return trust * q, trust * p


def _grams(manifold: Manifold, params: Any, q: Any) -> Any:
    """Dg W Dgᵀ of every block, shape (blocks, m, m), with ones for what a block has not."""
    blocks, rest = manifold.blocks, jnp.zeros_like(q)

    def column(slope: Any) -> Any:
        _, along = jax.jvp(lambda p: manifold.velocity(q, p, params), (rest,), (slope,))
        g = jax.jvp(lambda q: manifold.system.constraint(q, params), (q,), (along,))[1]
        return blocks.split(g)

    matrix = jnp.stack(list(blocks.for_each(column, manifold.slopes(q, params).rows)))
    ones = (blocks.places < 0)[:, None] * np.eye(blocks.size)[..., None]
    return jnp.moveaxis(matrix + ones, 2, 0)
