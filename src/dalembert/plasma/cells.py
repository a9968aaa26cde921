"""Cells of a box: which particle is in which, pairs in them, and means over them."""

from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from dalembert.plasma.fields import as_tuple
from dalembert.plasma.particles import columns
from dalembert.systems._parameters import Params

__all__ = ["Cells", "Means", "cell_numbers", "counts_per_axis", "random_pairs"]

Cells = int | tuple[int, int]


def cell_numbers(q: Any, cells: tuple[int, ...], params: Params) -> Any:
    """The number of the cell that each particle is in, shape (N,)."""
    cell = jnp.zeros(q.shape[:1], jnp.int32)
    for x, n, side in zip(columns(q, len(cells)), cells, params["length"], strict=True):
        share = x / side
        place = jnp.floor((share - jnp.floor(share)) * n).astype(jnp.int32)
        cell = cell * n + jnp.clip(place, 0, n - 1)
    return cell


def random_pairs(cell: Any, keys: Any, cells: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Random pairs of particles in the same cell.

    The order of independent continuous numbers is a random permutation: particles are sorted by
    cell and number, and in each cell the first meets the second, the third the fourth, and so on.

    Returns:
        The order, whether the particle at a place of it meets the next one, and by how much it
        meets others more often than in a plasma of density 1. In a cell with an odd number, one
        stays alone, and the others make up for it.
    """
    N = cell.shape[0]
    cell, _, order = jax.lax.sort((cell, keys, jnp.arange(N, dtype=jnp.int32)), num_keys=2)
    starts = jnp.searchsorted(cell, jnp.arange(cells + 1, dtype=jnp.int32)).astype(jnp.int32)
    rank = jnp.arange(N, dtype=jnp.int32) - starts[cell]
    size = (starts[1:] - starts[:-1])[cell]
    first = (rank % 2 == 0) & (rank + 1 < size)
    count = size.astype(dtype)
    odd = jnp.where((size % 2 == 1) & (size > 1), count / jnp.maximum(count - 1, 1.0), 1.0)
    return order, first, count * (cells / N) * odd


class Means:
    """Means over the particles in a cell, weighted by their masses, at every particle."""

    def __init__(self, q: Any, M: Any, cells: tuple[int, ...], params: Params) -> None:
        self.size = prod(cells)
        self.cell = cell_numbers(q, cells, params) if self.size > 1 else None
        self.M = M
        self.total = self._sums(M)

    def of(self, value: Any) -> Any:
        """The mean of an array (N,) or (N, d) at every particle."""
        sums = self._sums(self.M * value) / self.total
        return sums if self.cell is None else sums[self.cell]

    def _sums(self, value: Any) -> Any:
        if self.cell is None:
            return jnp.sum(value, axis=0, keepdims=True)
        # Several copies of the sums, each of fewer terms: less rounding, and less waiting.
        copies = max(1, min(64, len(value) // (4 * self.size)))
        index = self.cell + self.size * (jnp.arange(len(value), dtype=jnp.int32) % copies)
        sums = jnp.zeros((copies * self.size, *value.shape[1:]), value.dtype)
        sums = sums.at[index].add(value, mode="promise_in_bounds")
        return jnp.sum(sums.reshape(copies, self.size, *value.shape[1:]), axis=0)


def counts_per_axis(cells: Cells, axes: int, N: int) -> tuple[int, ...]:
    """One number of cells for each dimension of the box; 1 is all of it."""
    counts = (1,) * axes if cells == 1 else as_tuple(cells)
    if len(counts) != axes:
        raise ValueError(
            f"cells is {cells!r}, but the box has {axes} dimension(s): give a number for each."
        )
    if 2 * prod(counts) > N:
        raise ValueError(
            f"{prod(counts)} cells for {N} particles: who is alone in a cell collides with nobody. "
            f"Take at most {N // 2} cells, and better many fewer."
        )
    return counts
