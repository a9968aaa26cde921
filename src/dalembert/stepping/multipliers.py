"""Lagrange multipliers by Newton's method, with the sparsity of the constraints.

Constraints that share no coordinates, such as those of different molecules, have equations of their
own. All these blocks are solved at once: a matrix of m × m numbers for each costs m products.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.caches import kept
from dalembert.driven import Timed
from dalembert.stepping.residuals import Report, goal, worst_if_nan
from dalembert.stepping.root import implicit_root
from dalembert.stepping.touched import Pairs, TooManyError, touched
from dalembert.system import System

__all__ = ["Blocks", "Multipliers", "find_blocks", "is_lost", "solve_multipliers"]

MAX_STEPS = 12
"""Newton steps without damping, at most: they converge quadratically, or hardly at all."""

SAFE_STEPS, FRACTIONS = 50, tuple(0.5**k for k in range(8))
"""Newton steps with damping, at most, and the fractions of each that are tried."""

MAX_WRITTEN_OUT = 8
"""Multipliers of a block up to which its rows and its elimination are written out."""

MAX_MIXED = 1 << 20
"""Entries of H_pp beside its diagonal from which on it mixes everything."""

MAX_IN_BLOCK = 512
"""Multipliers that are solved with one matrix."""

WEAK = 1e-2
"""The square of the part of a normal that does not follow from others, below which it is short."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Which constraints have multipliers that are solved together, and which coordinates they move.

    Multipliers and what is missed are split, shape (m, blocks): the k-th of each block in row k.

    Attributes:
        places: numbers of constraints, shape (m, blocks); −1 where a block has fewer.
        owners: the block of every coordinate, shape (dim,); −1 where no constraint reads it.
    """

    places: np.ndarray
    owners: np.ndarray

    # Compiled code is found again by equal blocks, also those of another system.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blocks) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return self.places.shape, self.places.tobytes(), self.owners.tobytes()

    @property
    def size(self) -> int:
        """Constraints of the largest block."""
        return len(self.places)

    @property
    def is_regular(self) -> bool:
        """Whether blocks are consecutive constraints, as many in each."""
        return np.array_equal(self.places.T.ravel(), np.arange(self.places.size))

    @cached_property
    def coordinates(self) -> np.ndarray:
        """Those of every block, (blocks, most); the number after the last where it has fewer."""
        order = np.argsort(self.owners, kind="stable")
        order = order[self.owners[order] >= 0]
        counts = np.bincount(self.owners[order], minlength=self.places.shape[1])
        found = np.full((len(counts), counts.max()), self.owners.size)
        found[np.arange(counts.max()) < counts[:, None]] = order
        return found

    @property
    def has_equal_coordinates(self) -> bool:
        """Whether all coordinates are those of blocks, consecutive, and as many in each."""
        return np.array_equal(self.coordinates.ravel(), np.arange(self.owners.size))

    def for_each(self, fun: Callable[[Any], Any], rows: Any) -> Any:
        """fun of every row: few are written out, which is faster, and a tuple; others stacked."""
        if self.size <= MAX_WRITTEN_OUT:
            return tuple(fun(row) for row in rows)
        return jax.vmap(fun)(rows)

    def colours(self, dtype: Any) -> Any:
        """Vectors with ones at the k-th constraint of every block, shape (m, count)."""
        found = np.zeros((self.size, self.places.max() + 1), dtype)
        for row, places in zip(found, self.places, strict=True):
            row[places[places >= 0]] = 1
        return jnp.asarray(found)

    def split(self, x: Any) -> Any:
        """Numbers of all constraints, shape (count,), by blocks; zero where there is none."""
        if self.is_regular:
            return x.reshape(-1, self.size).T
        return jnp.concatenate([x, jnp.zeros(1, x.dtype)])[self.places]

    def join(self, parts: Any) -> Any:
        """The inverse of `split`."""
        if self.is_regular:
            return parts.T.reshape(-1)
        places = self.places.ravel()
        return parts.reshape(-1)[np.flatnonzero(places >= 0)[np.argsort(places[places >= 0])]]

    def spread(self, along: Any, u: Any) -> Any:
        """Σ_k along_k u_k of the block of every coordinate, for m rows (dim,) and u (m, blocks).

        With Dgᵀ of all colours in the place of `along` that is Dgᵀu, because blocks share nothing.
        """
        if self.size > MAX_WRITTEN_OUT and u.shape[1] == 1:
            return jnp.sum(along * u, axis=0)
        return reduce(
            jnp.add, [row * self._owned(part) for row, part in zip(along, u, strict=True)]
        )

    def _owned(self, u: Any) -> Any:
        """The number of the block of every coordinate: (blocks,) to (dim,), or to (1,)."""
        if u.size == 1:
            return u
        if self.has_equal_coordinates:
            shape = self.coordinates.shape
            return jnp.broadcast_to(u[:, None], shape).reshape(-1)
        return u[np.maximum(self.owners, 0)]

    def largest(self, along: Any) -> Any:
        """The largest |along_k| of the coordinates of every block: m rows (dim,) to (count,)."""

        def of(row: Any) -> Any:
            if not self.has_equal_coordinates:
                row = jnp.pad(row, (0, 1))[self.coordinates]
            return jnp.max(jnp.abs(row.reshape(self.coordinates.shape)), axis=-1)

        found = self.for_each(of, along)
        return self.join(jnp.stack(found) if isinstance(found, tuple) else found)

    def solve(self, product: Callable[[Any], Any], b: Any) -> Any:
        """x with product(x) = b, where each block acts on its own numbers alone."""
        columns = self.for_each(product, self.colours(b.dtype))
        return self.join(self.inverse(columns)(self.split(b))[0])

    def inverse(self, columns: Any) -> Callable[[Any], tuple[Any, Any]]:
        """The same for split numbers, given the products with all `colours`, shape (m, count).

        With x come the pivots of the elimination relative to diagonal entries, split likewise.
        """
        parts = self.for_each(self.split, columns)
        ones = (self.places < 0)[:, None] * np.eye(self.size)[..., None]
        if self.size > MAX_WRITTEN_OUT:
            matrices = jnp.swapaxes(parts, 0, 1) + jnp.asarray(ones, parts.dtype)
            return lambda b: jax.vmap(_eliminated_in_a_loop, (2, 1), (1, 1))(matrices, b)
        rows = [[part[i] for part in parts] for i in range(self.size)]
        for k in np.flatnonzero((self.places < 0).any(axis=1)):
            rows[k][k] += jnp.asarray(ones[k, k], rows[k][k].dtype)
        solve, pivots = eliminated(rows)
        return lambda b: (solve(b), jnp.stack(pivots))


def eliminated(matrix: list[list[Any]]) -> tuple[Callable[[Any], Any], list[Any]]:
    """Elimination in matrices whose entries are arrays, one number for each block, and its pivots.

    Rows stay in their order, and pivots are relative to the sizes of diagonal entries.
    """
    a, n, pivots = matrix, len(matrix), []
    sizes = [jnp.abs(a[k][k]) for k in range(n)]
    for k in range(n):
        pivots.append(a[k][k] / sizes[k])
        a[k][k] = 1 / a[k][k]
        for i in range(k + 1, n):
            a[i][k] = a[i][k] * a[k][k]
            for j in range(k + 1, n):
                a[i][j] = a[i][j] - a[i][k] * a[k][j]

    def solve(b: Any) -> Any:
        x = list(b)
        for i in range(n):
            for k in range(i):
                x[i] = x[i] - a[i][k] * x[k]
        for i in reversed(range(n)):
            for j in range(i + 1, n):
                x[i] = x[i] - a[i][j] * x[j]
            x[i] = x[i] * a[i][i]
        return jnp.stack(x)

    return solve, pivots


def _eliminated_in_a_loop(matrix: Any, rhs: Any) -> tuple[Any, Any]:
    """Gauss–Jordan elimination in the order of rows: Dg W Dgᵀ is nearly positive definite.

    Not by LAPACK, whose batches in several threads at a time can wait for each other for ever.
    """
    n = rhs.size

    def eliminate(k: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        now, pivots = state
        row = now[k] / now[k, k]
        factors = jnp.where(jnp.arange(n) == k, 0, now[:, k]).astype(now.dtype)
        return (now - factors[:, None] * row[None]).at[k].set(row), pivots.at[k].set(now[k, k])

    begin = jnp.concatenate([matrix, rhs[:, None]], axis=1), jnp.zeros_like(rhs)
    end, pivots = lax.fori_loop(0, n, eliminate, begin)
    return end[:, -1], pivots / jnp.abs(jnp.diagonal(matrix))


class Way(NamedTuple):
    """What multipliers u lead to by the change −Dgᵀu of momenta, such as positions after a step.

    Attributes:
        end: x as a function of the change of momenta.
        slopes: Dgᵀ of all colours, m rows (dim,).
        is_straight: whether x is linear, and what a block changes is in its own coordinates.
    """

    end: Callable[[Any], Any]
    slopes: Any
    is_straight: bool


class _Now(NamedTuple):
    """Where Newton's method is: multipliers, x and r there, the size of r, steps made, more?

    Beside them the pivots of its last matrix.
    """

    u: Any
    x: Any
    residual: Any
    error: Any
    steps: Any
    is_open: Any
    pivots: Any


class Multipliers(NamedTuple):
    """Multipliers, split, how they were found, and the pivots of the last matrix, split too."""

    u: Any
    report: Report
    pivots: Any


def is_lost(start: Any, end: Any) -> Any:
    """Where a step may have gone over a point in which Dg loses rank, from pivots of two matrices.

    Pivots of Dg(q') W Dg(q)ᵀ, or of a matrix near it, and of Dg(q') W Dg(q')ᵀ, all relative to
    diagonals, are products of normals of g = 0 that are orthogonal to the normals before. Either
    signs differ, so that a normal has turned by more than a right angle; or a normal nearly follows
    from others at an end of the step, and its length has at least doubled or halved on the way.
    """
    ratio = start / end
    least = jnp.minimum(jnp.abs(end), jnp.abs(start * ratio))
    is_steady = (ratio > 0.5) & (ratio < 2)
    return ~((ratio > 0) & (is_steady | (least > WEAK)))


def solve_multipliers(
    way: Way,
    miss: Callable[[Any], Any],
    scale: Any,
    blocks: Blocks,
    blind: int,
    safely: bool = False,
    differentiable: Callable[[Any], Any] | None = None,
) -> Multipliers:
    """Multipliers u with r(x(u)) = 0, from zero, and their relative residual.

    The derivative of x is taken once, at zero, that of r in every step: where x is linear in u, as
    positions are after a step of Störmer–Verlet, that is Newton's method, else it is nearly.

    Args:
        way: x, what multipliers lead to.
        miss: r, what is to vanish there, (count,). The matrix of r(x(u)) has the blocks, and is
            nearly positive definite.
        scale: what r is relative to, (count,) or a number.
        blocks: see `Blocks`.
        blind: Newton steps before the one that is looked at first, if they are not made safely.
        safely: whether Newton steps are shortened where they do not gain.
        differentiable: r(x(u)) for derivatives by the implicit theorem, if they are wanted.
    """
    dtype = way.slopes[0].dtype
    most = SAFE_STEPS if safely else MAX_STEPS
    fractions = FRACTIONS if safely else FRACTIONS[:1]

    def relative(r: Any) -> Any:
        return worst_if_nan(jnp.max(jnp.abs(r) / scale))

    def newton(none: Any) -> tuple[Any, tuple[Report, Any]]:
        still = jnp.zeros_like(way.slopes[0])
        start = way.end(still)
        along = blocks.for_each(lambda s: jax.jvp(way.end, (still,), (-s,))[1], way.slopes)

        def reach(u: Any) -> Any:
            if way.is_straight:
                return start + blocks.spread(along, u)
            return way.end(-blocks.spread(way.slopes, u))

        def inverse(x: Any) -> Callable[[Any], tuple[Any, Any]]:
            return blocks.inverse(blocks.for_each(lambda v: jax.jvp(miss, (x,), (v,))[1], along))

        def improve(now: _Now, inverse_there: Any = None) -> _Now:
            change, pivots = (inverse_there or inverse(now.x))(blocks.split(now.residual))
            trials = [now.u - np.asarray(part, dtype) * change for part in fractions]
            points = list(map(reach, trials))
            values = list(map(miss, points))
            errors = list(map(relative, values))
            best, error = (trials[0], points[0], values[0]), errors[0]
            for other, *found in zip(errors[1:], trials[1:], points[1:], values[1:], strict=True):
                best = jax.tree.map(partial(jnp.where, other < error), tuple(found), best)
                error = jnp.minimum(other, error)
            steps, gain = now.steps + 1, now.error * (0.99 if safely else 0.5)
            goes_on = (error > goal(dtype)) & (error < gain) & (steps < most)
            # Where it does not go on nothing needs the better of x and r any more.
            u, x, r = best
            u = jnp.where(error < now.error, u, now.u)
            return _Now(u, x, r, jnp.minimum(error, now.error), steps, goes_on, pivots)

        u, x, steps, last = blocks.split(none), start, 0 if safely else blind, None
        for _ in range(steps):
            last = inverse(x)
            u -= last(blocks.split(miss(x)))[0]
            x = reach(u)
        # At the first look any error will do: that of the start is not worth its cost. The matrix
        # of the step before is as good by then, and costs nothing.
        worst, steps = jnp.asarray(jnp.inf, dtype), jnp.int32(steps)
        first = _Now(u, x, miss(x), worst, steps, True, jnp.zeros_like(u))
        found = lax.while_loop(lambda now: now.is_open, improve, improve(first, last))
        return blocks.join(found.u), (Report(found.steps, found.error), found.pivots)

    none = jnp.zeros(blocks.places.max() + 1, dtype)
    if differentiable is None:
        u, told = newton(none)
    else:
        u, told = implicit_root(differentiable, none, newton, blocks.solve)
    return Multipliers(blocks.split(u), *told)


def find_blocks(system: System) -> Blocks:
    """The blocks of the constraints of a system, from where Dg may have entries anywhere."""
    return _find_blocks(system, system.key)


@kept
def _find_blocks(system: System, key: Hashable) -> Blocks:
    count, dim = system.constraint_count, system.dim
    if count == 1:
        return Blocks(np.zeros((1, 1), int), np.zeros(dim, int))
    try:
        pairs = _structure(system)
    except TooManyError:
        groups, owners = [list(range(count))], np.zeros(dim, int)
    else:
        groups = _connected(count, pairs)
        block = np.empty(count, int)
        for number, group in enumerate(groups):
            block[group] = number
        owners = np.full(dim, -1)
        owners[pairs[1]] = block[pairs[0]]
    largest = max(map(len, groups))
    if largest > MAX_IN_BLOCK:
        raise ValueError(
            f"{largest} constraints of {system.name!r} have to be solved together, more than "
            f"{MAX_IN_BLOCK}: they have coordinates in common, or H mixes momenta."
        )
    places = np.full((largest, len(groups)), -1)
    for column, group in enumerate(groups):
        places[: len(group), column] = group
    return Blocks(places, owners)


def _structure(system: System) -> Pairs:
    """Pairs of constraints and coordinates that they read, or that H_pp Dgᵀ moves for them."""
    velocity = system.term(("H_p", 0))
    assert velocity is not None, "there is a Hamiltonian"
    z = jax.ShapeDtypeStruct((system.dim,), np.float64)
    params = jax.tree.map(_type, system.params)
    now = Timed(jax.ShapeDtypeStruct((), np.float64), params) if system.time else params
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        read = touched(system.constraint, z, params)
        follows = touched(lambda p, q, now: velocity(q, p, now), z, z, now)
    moves: dict[int, list[int]] = {}
    is_other = follows[0] != follows[1]
    if np.count_nonzero(is_other) > MAX_MIXED:
        raise TooManyError
    for position, momentum in zip(*(x[is_other].tolist() for x in follows), strict=True):
        moves.setdefault(momentum, []).append(position)
    reads = zip(*(x.tolist() for x in read), strict=True)
    more = [(i, k) for i, j in reads if j in moves for k in moves[j]]
    rows, columns = np.array(more, int).reshape(-1, 2).T
    return np.append(read[0], rows), np.append(read[1], columns)


def _type(x: Any) -> Any:
    kind = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
    return jax.ShapeDtypeStruct(np.shape(x), kind)


def _connected(count: int, pairs: Pairs) -> list[list[int]]:
    """Rows of pairs (row, column) in groups that share no column."""
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[int, int] = {}
    for i, j in zip(*(x.tolist() for x in pairs), strict=True):
        parent[root(i)] = root(first.setdefault(j, i))
    groups: dict[int, list[int]] = {}
    for i in range(count):
        groups.setdefault(root(i), []).append(i)
    return list(groups.values())
