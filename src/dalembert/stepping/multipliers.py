"""Lagrange multipliers by Newton's method, with the sparsity of the constraints.

Constraints that share no coordinates, such as those of different molecules, have equations of their
own. All these blocks are solved at once: a matrix of m × m numbers for each costs m products.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.caches import kept
from dalembert.stepping.requirements import known_params
from dalembert.stepping.residuals import Report, goal, worst_if_nan
from dalembert.stepping.root import implicit_root
from dalembert.system import System

__all__ = ["Blocks", "find_blocks", "solve_multipliers"]

MAX_STEPS = 12
"""Newton steps without damping, at most: they converge quadratically, or hardly at all."""

SAFE_STEPS, FRACTIONS = 50, tuple(0.5**k for k in range(8))
"""Newton steps with damping, at most, and the fractions of each that are tried."""

MAX_WRITTEN_OUT = 8
"""Multipliers of a block up to which its elimination is written out."""

MAX_ENTRIES = 1 << 26
"""Of Dg as a matrix, from which blocks are found."""

MAX_IN_BLOCK = 512
"""Multipliers that are solved with one matrix."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Which constraints have multipliers that are solved together.

    Attributes:
        places: numbers of constraints, shape (m, blocks): the k-th of each block in row k; −1 where
            a block has fewer.
    """

    places: np.ndarray

    @property
    def size(self) -> int:
        """Constraints of the largest block."""
        return len(self.places)

    @property
    def is_regular(self) -> bool:
        """Whether blocks are consecutive constraints, as many in each."""
        return np.array_equal(self.places.T.ravel(), np.arange(self.places.size))

    def colours(self, count: int, dtype: Any) -> Any:
        """Vectors with ones at the k-th constraint of every block, shape (m, count)."""
        found = np.zeros((self.size, count), dtype)
        for row, places in zip(found, self.places, strict=True):
            row[places[places >= 0]] = 1
        return jnp.asarray(found)

    def split(self, x: Any) -> list[Any]:
        """The k-th entry of every block, shape (blocks,), for each k; zero where there is none."""
        if self.is_regular:
            return [x[k :: self.size] for k in range(self.size)]
        padded = jnp.concatenate([x, jnp.zeros(1, x.dtype)])
        return [padded[places] for places in self.places]

    def join(self, parts: list[Any], count: int) -> Any:
        """The inverse of `split`."""
        if self.is_regular:
            return jnp.stack(parts, axis=1).reshape(-1)
        flat = jnp.concatenate(parts)
        where = np.zeros(count, np.int32)
        places = self.places.ravel()
        where[places[places >= 0]] = np.flatnonzero(places >= 0)
        return flat[where]

    def solve(self, product: Callable[[Any], Any], b: Any) -> Any:
        """x with product(x) = b, where each block acts on its own numbers alone."""
        return self.solve_columns(jax.vmap(product)(self.colours(b.size, b.dtype)), b)

    def solve_columns(self, columns: Any, b: Any) -> Any:
        """The same, given the products with all `colours`."""
        if self.places.shape[1] == 1:
            order = self.places[:, 0]
            return _eliminated_in_a_loop(columns[:, order].T, b[order])[np.argsort(order)]
        entries = list(zip(*[self.split(column) for column in columns], strict=True))
        rhs = self.split(b)
        if self.size > MAX_WRITTEN_OUT:
            matrices = jnp.stack([jnp.stack(row) for row in entries])
            ones = jnp.asarray((self.places < 0)[:, None] * np.eye(self.size)[..., None], b.dtype)
            found = jax.vmap(_eliminated_in_a_loop, (2, 1), 1)(matrices + ones, jnp.stack(rhs))
            return self.join(list(found), b.size)
        for k, is_missing in enumerate(self.places < 0):
            row = list(entries[k])
            row[k] = jnp.where(is_missing, 1.0, row[k]) if is_missing.any() else row[k]
            entries[k] = tuple(row)
        return self.join(_eliminated(entries, rhs), b.size)


def _eliminated(matrix: list[tuple[Any, ...]], rhs: list[Any]) -> list[Any]:
    """Elimination in matrices whose entries are arrays, one number for each block; no pivots."""
    a, x, n = [list(row) for row in matrix], list(rhs), len(rhs)
    for k in range(n):
        inverse = 1 / a[k][k]
        for i in range(k + 1, n):
            factor = a[i][k] * inverse
            for j in range(k + 1, n):
                a[i][j] = a[i][j] - factor * a[k][j]
            x[i] = x[i] - factor * x[k]
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            x[i] = x[i] - a[i][j] * x[j]
        x[i] = x[i] / a[i][i]
    return x


def _eliminated_in_a_loop(matrix: Any, rhs: Any) -> Any:
    """Gauss–Jordan elimination without pivots: Dg W Dgᵀ is nearly positive definite.

    Not by LAPACK, whose batches in several threads at a time can wait for each other for ever.
    """
    n = rhs.size
    if n <= MAX_WRITTEN_OUT:
        rows = [tuple(matrix[i, j] for j in range(n)) for i in range(n)]
        return jnp.stack(_eliminated(rows, list(rhs)))

    def eliminate(k: Any, now: Any) -> Any:
        row = now[k] / now[k, k]
        factors = jnp.where(jnp.arange(n) == k, 0, now[:, k]).astype(now.dtype)
        return (now - factors[:, None] * row[None]).at[k].set(row)

    return lax.fori_loop(0, n, eliminate, jnp.concatenate([matrix, rhs[:, None]], axis=1))[:, -1]


class _Now(NamedTuple):
    """Where Newton's method is: multipliers, x and r there, the size of r, steps made, more?"""

    u: Any
    x: Any
    residual: Any
    error: Any
    steps: Any
    is_open: Any


def solve_multipliers(
    point: Callable[[Any], Any],
    miss: Callable[[Any], Any],
    floor: Any,
    blocks: Blocks,
    like: Any,
    safely: bool = False,
    differentiable: Callable[[Any], Any] | None = None,
) -> tuple[Any, Report]:
    """Multipliers u with r(x(u)) = 0, from zero, and their relative residual.

    The derivative of x is taken once, at zero, that of r in every step: where x is linear in u, as
    positions are after a step of Störmer–Verlet, that is Newton's method, else it is nearly.

    Args:
        point: x, what multipliers lead to, such as positions.
        miss: r, what is to vanish there, (c,). The matrix of r(x(u)) has the blocks, and is nearly
            positive definite.
        floor: what the residual is relative to, a number.
        blocks: see `Blocks`.
        like: the type of u.
        safely: whether Newton steps are shortened where they do not gain.
        differentiable: r(x(u)) for derivatives by the implicit theorem, if they are wanted.
    """
    scale = floor + jnp.finfo(like.dtype).tiny
    most = SAFE_STEPS if safely else MAX_STEPS
    fractions = jnp.asarray(FRACTIONS if safely else FRACTIONS[:1], like.dtype)

    def relative(r: Any) -> Any:
        return worst_if_nan(jnp.max(jnp.abs(r)) / scale)

    start = jnp.zeros(like.shape, like.dtype)

    def improve(along: Any, now: _Now) -> _Now:
        columns = jax.vmap(lambda dx: jax.jvp(miss, (now.x,), (dx,))[1])(along)
        correction = blocks.solve_columns(columns, now.residual)
        trials = now.u[None] - fractions[:, None] * correction[None]
        points = jax.vmap(point)(trials)
        values = jax.vmap(miss)(points)
        errors = jax.vmap(relative)(values)
        best = jnp.argmin(errors)
        error, steps = errors[best], now.steps + 1
        # At the first step any error will do: that of the start is not worth its cost.
        is_better, gain = error < now.error, now.error * (0.99 if safely else 0.5)
        goes_on = (error > goal(error.dtype)) & (error < gain) & (steps < most)
        found = (trials[best], now.u), (points[best], now.x), (values[best], now.residual)
        u, x, r = (jnp.where(is_better, new, old) for new, old in found)
        return _Now(u, x, r, jnp.minimum(error, now.error), steps, goes_on)

    def newton(start: Any) -> tuple[Any, Report]:
        colours = blocks.colours(like.size, like.dtype)
        along = jax.vmap(lambda v: jax.jvp(point, (start,), (v,))[1])(colours)
        x, worst = point(start), jnp.asarray(jnp.inf, like.dtype)
        begin = _Now(start, x, miss(x), worst, jnp.int32(0), True)
        found = lax.while_loop(lambda now: now.is_open, partial(improve, along), begin)
        return found.u, Report(found.steps, found.error)

    if differentiable is None:
        return newton(start)
    return implicit_root(differentiable, start, newton, blocks.solve)


def find_blocks(system: System) -> Blocks:
    """The blocks of the constraints of a system, from where Dg has entries."""
    return _find_blocks(system, system.key)


@kept
def _find_blocks(system: System, key: Hashable) -> Blocks:
    count, dim = system.constraint_count, system.dim
    if count == 1:
        return Blocks(np.zeros((1, 1), int))
    groups = [list(range(count))]
    if count * dim <= MAX_ENTRIES:
        params, random = known_params(system.params), np.random.default_rng(0)
        points, vectors = random.uniform(0.5, 1.5, (2, 2, dim))
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            found = [_structure(system)(q, vectors, params) for q in points]
        touched = np.any([np.asarray(slopes) != 0 for slopes, _ in found], axis=0)
        diagonals = [np.asarray(products) / vectors for _, products in found]
        if all(np.allclose(one, other, rtol=1e-13, atol=0) for one, other in diagonals):
            groups = _connected(touched)
    largest = max(map(len, groups))
    if largest > MAX_IN_BLOCK:
        raise ValueError(
            f"{largest} constraints of {system.name!r} have to be solved together, more than "
            f"{MAX_IN_BLOCK}: they have coordinates in common, or H mixes momenta."
        )
    places = np.full((largest, len(groups)), -1)
    for column, group in enumerate(groups):
        places[: len(group), column] = group
    return Blocks(places)


def _structure(system: System) -> Callable[..., Any]:
    """Dg as a matrix, and products of H_pp with some vectors."""
    velocity = system.term(("H_p", 0))
    assert velocity is not None, "there is a Hamiltonian"

    def run(q: Any, vectors: Any, params: Any) -> Any:
        told = system.told(0.0 if system.time else None, params)

        def product(v: Any) -> Any:
            return jax.jvp(lambda p: velocity(q, p, told), (jnp.ones_like(q),), (v,))[1]

        return jax.jacrev(lambda q: system.constraint(q, params))(q), jax.vmap(product)(vectors)

    return jax.jit(run)


def _connected(touched: np.ndarray) -> list[list[int]]:
    """Rows of a matrix in groups that share no column."""
    parent = list(range(len(touched)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[int, int] = {}
    for i, j in np.argwhere(touched).tolist():
        parent[root(i)] = root(first.setdefault(j, i))
    groups: dict[int, list[int]] = {}
    for i in range(len(touched)):
        groups.setdefault(root(i), []).append(i)
    return list(groups.values())
