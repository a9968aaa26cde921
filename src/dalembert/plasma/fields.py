"""Electrostatic fields of particles in a periodic box, by the energy that the particles share.

A field gives the energy per volume of charges at given positions, and the forces are the exact
gradient of it; so every field makes a Hamiltonian system. Positions are one array of shape (N,) per
axis of the box. The charge density is

    ρ(x) = (V/N) Σ_i Q_i δ(x − x_i),   ρ_k = (1/N) Σ_i Q_i e^{−ik·x_i}

of N particles in the volume V, and its energy per volume ½ Σ_{k≠0} |ρ_k|²/k². There is always a
neutralising background, which is what leaves k = 0 out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.elementary import cos_beside_sin, sin_beside_cos
from dalembert.spelling import says_its_words

__all__ = [
    "Field",
    "Fourier",
    "Spline",
    "as_tuple",
    "density_waves",
    "mode_numbers",
    "require_particles",
    "whole_numbers",
]

Columns = Sequence[Any]
"""One array of shape (N,), or one number, for every axis of the box."""


class Field(Protocol):
    """What a field must have to be that of a plasma."""

    @property
    def axes(self) -> int:
        """Dimensions of the box: 1 or 2."""
        ...

    def energies(self, x: Columns, charge: Any, sides: Columns) -> Any:
        """Energy per volume in each mode, in an array; their sum is the energy of the field.

        Args:
            x: positions, one array (N,) per axis.
            charge: of the particles, times their weights: shape (N,), or one number for all.
            sides: lengths of the box along the axes.
        """
        ...


@says_its_words
@dataclass(frozen=True)
class Fourier:
    """The field of a few Fourier modes, without a grid: exact sums over the particles.

    It is invariant under translations, so that the forces on all particles add up to zero: total
    momentum is conserved to rounding. The cost is two products of complex numbers per particle and
    mode, and a sine and a cosine for every eight of them.

    Args:
        modes: 1, …, modes along the box, k = 2πl/L; or a pair of such numbers for a box in two
            dimensions, where all combinations with |l_x| and |l_y| up to these take part.
    """

    modes: int | tuple[int, int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "modes", whole_numbers("modes", self.modes, 0))

    @property
    def axes(self) -> int:
        """Dimensions of the box."""
        return len(as_tuple(self.modes))

    def energies(self, x: Columns, charge: Any, sides: Columns) -> Any:
        """|ρ_k|²/k² of every mode in the order of `mode_numbers`; k and −k count as one."""
        dtype = x[0].dtype

        def energies(start: Any, width: int) -> Any:
            # Forces take the sums, but compute waves again: to keep those needs more slow memory.
            @partial(jax.checkpoint, policy=_is_sum)
            def of(x: Columns) -> Any:
                real, imaginary = _means(x, charge, sides, start, width)
                return (real**2 + imaginary**2) / sum(k_a**2 for k_a in k)

            *others, last = start
            numbers = *others, last + jnp.arange(width, dtype=dtype)
            k = [2 * np.pi * l / side for l, side in zip(numbers, sides, strict=True)]
            return of(tuple(x))

        return _over_runs(self.modes, dtype, energies)


def _is_sum(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name == "reduce_sum"


def mode_numbers(modes: int | tuple[int, int]) -> np.ndarray:
    """The numbers l of k = 2πl/L, one row per mode and one column per axis; −l is left out."""
    axes = [range(-count, count + 1) for count in as_tuple(modes)]
    zero = (0,) * len(axes)
    return np.array([numbers for numbers in product(*axes) if numbers > zero], np.float64)


def density_waves(
    x: Columns, charge: Any, sides: Columns, modes: int | tuple[int, int]
) -> tuple[Any, Any]:
    """⟨Q cos k·x⟩ and ⟨Q sin k·x⟩ over the particles, each an array over `mode_numbers`."""
    return _over_runs(modes, x[0].dtype, partial(_means, x, charge, sides))


def _over_runs(modes: int | tuple[int, int], dtype: Any, fun: Callable[..., Any]) -> Any:
    """What a function of the first mode and the width of a run gives, in order of all modes."""
    starts, width, places = _runs(modes)
    if len(starts) == 1:
        return fun(starts[0].tolist(), width)
    # A loop over runs: what is compiled does not grow with them, and no array has all modes.
    found = jax.lax.map(lambda start: fun(start, width), jnp.asarray(starts, dtype))
    return jax.tree.map(lambda values: values.reshape(-1)[places], found)


RUN = 8
"""Consecutive modes that are computed one from the other."""


def _runs(modes: int | tuple[int, int]) -> tuple[np.ndarray, int, np.ndarray]:
    """Modes in runs of one width whose numbers along the last axis are consecutive.

    Returns:
        The numbers of the first mode of every run, the width, and where each of `mode_numbers` is
        among the modes of all runs; there may be more of these at the end of a row.
    """
    numbers = mode_numbers(modes)
    is_first = np.append(True, np.any(np.diff(numbers, axis=0)[:, :-1] != 0, axis=1))
    row = np.cumsum(is_first) - 1
    column = np.arange(len(numbers)) - np.flatnonzero(is_first)[row]
    longest = int(np.max(column)) + 1
    width = -(-longest // -(-longest // RUN))
    begins = column % width == 0
    return numbers[begins], width, width * (np.cumsum(begins) - 1) + column % width


def _means(x: Columns, charge: Any, sides: Columns, start: Any, width: int) -> tuple[Any, Any]:
    """⟨Q cos k·x⟩ and ⟨Q sin k·x⟩ of consecutive modes, by e^{i(l+1)θ} = e^{ilθ} e^{iθ}."""
    k = [2 * np.pi / side for side in sides]
    phase = sum(l * k_a * x_a for l, k_a, x_a in zip(start, k, x, strict=True))
    c, s = cos_beside_sin(phase), sin_beside_cos(phase)
    c_1, s_1 = cos_beside_sin(k[-1] * x[-1]), sin_beside_cos(k[-1] * x[-1])
    real, imaginary = [_mean(charge, c)], [_mean(charge, s)]
    for _ in range(width - 1):
        c, s = c * c_1 - s * s_1, s * c_1 + c * s_1
        real.append(_mean(charge, c))
        imaginary.append(_mean(charge, s))
    return jnp.stack(real), jnp.stack(imaginary)


def _mean(charge: Any, wave: Any) -> Any:
    return jnp.mean(charge * wave) if jnp.ndim(charge) else charge * jnp.mean(wave)


@says_its_words
@dataclass(frozen=True)
class Spline:
    """The field on a grid, of particles that are B-splines as wide as a few of its cells.

    The charges of all particles are spread over the grid, Poisson's equation is solved by FFT, and
    the force is the exact gradient of the energy of the grid (not an interpolated field). Total
    momentum is conserved only as far as the grid is fine: the grid is not invariant under
    translations. The cost does not grow with the number of modes.

    Args:
        cells: of the grid, or a pair of such numbers for a box in two dimensions; 4 or more.
        degree: of the spline, 1 (linear) or 2 (quadratic, with forces that are continuous).
    """

    cells: int | tuple[int, int] = 64
    degree: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", whole_numbers("cells", self.cells, 4))
        if self.degree not in (1, 2):
            raise ValueError(f"degree is {self.degree!r}, but must be 1 (linear) or 2 (quadratic).")

    @property
    def axes(self) -> int:
        """Dimensions of the box."""
        return len(as_tuple(self.cells))

    def energies(self, x: Columns, charge: Any, sides: Columns) -> Any:
        """|ρ_k|²/k² of every mode of the grid, in the order of `jnp.fft.rfftn`; zero for k = 0.

        Modes that stand for k and −k have the energy of both.
        """
        cells = as_tuple(self.cells)
        waves = jnp.fft.rfftn(self._density(x, charge, sides) / float(np.prod(cells)))
        numbers = [np.fft.fftfreq(count, 1 / count) for count in cells]
        numbers[-1] = np.arange(cells[-1] // 2 + 1.0)
        # All but the first and, for an even number, the last column stand for two modes.
        copies = np.where((numbers[-1] == 0) | (2 * numbers[-1] == cells[-1]), 1.0, 2.0)
        grids = np.meshgrid(*numbers, indexing="ij")
        square = sum((2 * np.pi * n / side) ** 2 for n, side in zip(grids, sides, strict=True))
        power = waves.real**2 + waves.imag**2
        weight = np.broadcast_to(copies / 2, power.shape)
        is_uniform = np.sum(np.abs(grids), axis=0) == 0
        return jnp.where(is_uniform, 0.0, weight * power / jnp.where(is_uniform, 1.0, square))

    def _density(self, x: Columns, charge: Any, sides: Columns) -> Any:
        """Mean charge density in every cell of the grid."""
        cells, count = as_tuple(self.cells), x[0].shape[0]
        size = int(np.prod(cells))
        units = [x_a * (n / side) for x_a, n, side in zip(x, cells, sides, strict=True)]
        *across, along = (_shares(u, n, self.degree) for u, n in zip(units, cells, strict=True))
        # Several copies of the grid, added up in the end: fewer particles wait for the same cell,
        # and nothing depends on how fast a device adds to very small arrays.
        copies = max(1, min(COPIES, count // (4 * size)))
        cell = 0
        for (start, _), n in zip((*across, along), cells, strict=True):
            cell = cell * n + start
        cell += jnp.arange(count, dtype=jnp.int32) % copies * size
        one = charge if jnp.ndim(charge) else 1.0
        density = jnp.zeros(cells, x[0].dtype)
        # A grid for each of the points under a spline, added to at one place and then shifted, all
        # points along the last axis at a time.
        for row in product(*(shares.items() for _, shares in across)):
            share = prod((share for _, share in row), start=one)
            values = jnp.stack([share * other for other in along[1].values()], axis=1)
            grids = jnp.zeros((copies * size, len(along[1])), x[0].dtype)
            grids = grids.at[cell].add(values, mode="promise_in_bounds")
            grids = jnp.sum(grids.reshape(copies, *cells, -1), axis=0)
            for i, last in enumerate(along[1]):
                shifts = (*(shift for shift, _ in row), last)
                density += jnp.roll(grids[..., i], shifts, range(len(cells)))
        return density * (size / count * (1.0 if jnp.ndim(charge) else charge))


COPIES = 64


def _shares(u: Any, cells: int, degree: int) -> tuple[Any, dict[int, Any]]:
    """The grid point next to u, in cells, and what a spline there has on those around it."""
    nearest = jnp.floor(u) if degree == 1 else jnp.floor(u + 0.5)
    f = u - nearest
    values = (
        {0: 1 - f, 1: f}
        if degree == 1
        else {-1: (0.5 - f) ** 2 / 2, 0: 0.75 - f**2, 1: (0.5 + f) ** 2 / 2}
    )
    # The whole part is reduced before it becomes an integer: it may be larger than these are.
    start = (nearest - cells * jnp.floor(nearest / cells)).astype(jnp.int32)
    return start % cells, values


def as_tuple(counts: int | tuple[int, ...]) -> tuple[int, ...]:
    """One number for each dimension."""
    return counts if isinstance(counts, tuple) else (counts,)


def require_particles(N: Any) -> None:
    """Refuse a number of particles that is none."""
    if not isinstance(N, int | np.integer) or isinstance(N, bool) or N < 1:
        raise ValueError(f"N is {N!r}, but must be a whole number of particles, 1 or more.")


def whole_numbers(name: str, given: Any, least: int) -> int | tuple[int, ...]:
    """A whole number, or a pair of them."""
    counts = tuple(given) if isinstance(given, list | tuple) else (given,)
    is_fine = [isinstance(n, int | np.integer) and not isinstance(n, bool) for n in counts]
    if len(counts) not in (1, 2) or not all(is_fine) or min(counts) < least or max(counts) < 1:
        raise ValueError(
            f"{name} must be a whole number of {max(least, 1)} or more, or a pair of them for two "
            f"dimensions, not {given!r}."
        )
    numbers = tuple(map(int, counts))
    return numbers[0] if len(numbers) == 1 else numbers
