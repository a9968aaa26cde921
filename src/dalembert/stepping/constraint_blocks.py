"""Which constraints are solved together: blocks, and elimination in the matrices of all at once.

Constraints that share no coordinates, such as those of different molecules, have equations of their
own. A matrix of m × m numbers for each block costs m products.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.caches import kept
from dalembert.driven import Timed
from dalembert.stepping.touched import Pairs, TooManyError, touched
from dalembert.system import System

__all__ = ["Blocks", "eliminated", "find_blocks"]

MAX_WRITTEN_OUT = 8
"""Multipliers of a block up to which its rows and its elimination are written out."""

MAX_MIXED = 1 << 20
"""Entries of H_pp beside its diagonal from which on it mixes everything."""

MAX_IN_BLOCK = 512
"""Multipliers that are solved with one matrix."""


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
        return self.join(self.inverse(columns)(self.split(b)))

    def inverse(self, columns: Any) -> Callable[[Any], Any]:
        """The same for split numbers, given the products with all `colours`, shape (m, count)."""
        matrix = self._matrix(columns)
        if isinstance(matrix, list):
            return eliminated(matrix)[0]
        return lambda b: jax.vmap(_eliminated_in_a_loop, (2, 1), (1, 1))(matrix, b)[0]

    def is_definite(self, columns: Any) -> Any:
        """For every constraint, whether its pivot is positive in matrices given as for `inverse`.

        Symmetric parts of these are positive definite if all of a block are.
        """
        matrix = self._matrix(columns)
        if isinstance(matrix, list):
            pivots = jnp.stack(_pivots(matrix))
        else:
            both = matrix + jnp.swapaxes(matrix, 0, 1)
            pivots = jax.vmap(_eliminated_in_a_loop, (2, 1), (1, 1))(both, both[0])[1]
        return self.join(pivots) > 0

    def _matrix(self, columns: Any) -> Any:
        """Entries (i, j) of all blocks: rows of arrays (blocks,) if they are few, else an array."""
        parts = self.for_each(self.split, columns)
        ones = (self.places < 0)[:, None] * np.eye(self.size)[..., None]
        if self.size > MAX_WRITTEN_OUT:
            return jnp.swapaxes(parts, 0, 1) + jnp.asarray(ones, parts.dtype)
        rows = [[part[i] for part in parts] for i in range(self.size)]
        for k in np.flatnonzero((self.places < 0).any(axis=1)):
            rows[k][k] += jnp.asarray(ones[k, k], rows[k][k].dtype)
        return rows


def eliminated(matrix: list[list[Any]]) -> tuple[Callable[[Any], Any], list[Any]]:
    """Elimination in matrices whose entries are arrays, one number for each block, and its pivots.

    Rows stay in their order.
    """
    a, n, pivots = matrix, len(matrix), []
    for k in range(n):
        pivots.append(a[k][k])
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


def _pivots(matrix: list[list[Any]]) -> list[Any]:
    """Those of symmetric parts, of which the upper triangles are enough."""
    n = len(matrix)
    a = [[matrix[i][j] + matrix[j][i] for j in range(n)] for i in range(n)]
    for k in range(n - 1):
        inverse = 1 / a[k][k]
        for i in range(k + 1, n):
            share = a[k][i] * inverse
            for j in range(i, n):
                a[i][j] = a[i][j] - share * a[k][j]
    return [a[k][k] for k in range(n)]


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
    return end[:, -1], pivots


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
