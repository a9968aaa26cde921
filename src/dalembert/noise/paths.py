"""One Brownian path at several step sizes, and all outcomes of the three-point variables."""

from functools import partial
from itertools import product
from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.noise.increments import Increments, check_run, real_increments
from dalembert.noise.kinds import Gaussian, mixed_increments
from dalembert.noise.philox import MAX_STEPS, Integer, path_words, plain_integer, seed_words
from dalembert.precision import as_dtype, with_precision

MAX_ENUMERATED_NOISES = 8
"""3⁸·2⁷ = 839,808 outcomes; one noise more and the array of mixed increments takes gigabytes."""


def brownian_path(
    seed: Integer, path: Integer, dt: float, steps: int, noises: int, dtype: Any = np.float64
) -> Increments:
    """ΔW and ΔZ of one path over `steps` steps, shape (steps, noises): those that a run draws.

    The fine path for `coarsen` and `Recorded`. NumPy arrays unless x64 is switched on globally.
    """
    Gaussian().check(dt, steps=steps, noises=noises)

    def draw(seed: Integer, path: Integer) -> Increments:
        words = seed_words(seed), path_words(path)
        return _gaussian_path(*words, dt, steps=steps, noises=noises, dtype=as_dtype(dtype))

    return with_precision(draw, seed, path, dtype=dtype)


@partial(jax.jit, static_argnames=("steps", "noises", "dtype"))
def _gaussian_path(
    seed: Any, path: Any, dt: Any, *, steps: int, noises: int, dtype: np.dtype
) -> Increments:
    noise = Gaussian()
    numbers = jnp.arange(-(-steps // noise.together), dtype=jnp.uint32)
    groups = jax.vmap(lambda n: noise.draw_together(seed, path, n, dt, noises, dtype))(numbers)

    def in_order(*rows: Any) -> Any:
        all_rows = jnp.stack(rows, axis=1)
        return all_rows.reshape(len(rows) * len(numbers), *all_rows.shape[2:])[:steps]

    return jax.tree.map(in_order, *groups)._replace(coin=None)


def coarsen(increments: Increments, dt: float, factor: int, areas: bool = False) -> Increments:
    """The same Brownian path at the step size factor·dt; time is axis −2 of dW and dZ.

    With h = dt and the fine steps i = 0, …, factor − 1 of one coarse step,

        ΔW = Σ_i ΔW_i,   ΔZ = Σ_i [ΔZ_i + (factor − 1 − i) h ΔW_i],

    both exact. Counts of truncations add up. `mixed` and `coin` are dropped: there is no sum of
    them that is one. With areas=True the Lévy areas of pairs of noises are added: those of the
    polygon through the points of the fine path, and those of the fine steps if they are given.

    NumPy arrays unless x64 is switched on globally.
    """
    check_run(dt)
    increments = real_increments(increments)
    plain_integer(factor, "factor", MAX_STEPS)
    if np.ndim(increments.dW) < 2:
        raise ValueError(
            f"dW has shape {np.shape(increments.dW)}: give dW of shape (..., steps, m)"
        )
    steps = np.shape(increments.dW)[-2]
    if factor == 0 or steps % factor:
        raise ValueError(f"factor={factor} does not divide the {steps} steps of the increments")
    later = np.arange(factor - 1, -1, -1)[:, None] * dt

    def grouped(field: Any, axis: int) -> jax.Array:
        field = jnp.asarray(field)
        axis %= field.ndim
        shape = (*field.shape[:axis], steps // factor, factor, *field.shape[axis + 1 :])
        return field.reshape(shape)

    def area(dW: Any, of_steps: Any) -> Any:
        if not areas:
            return None
        before = jnp.cumsum(dW, axis=-2) - dW
        products = jnp.einsum("...ki,...kj->...ij", before, dW) / 2
        total = products - jnp.swapaxes(products, -1, -2)
        return total if of_steps is None else total + jnp.sum(grouped(of_steps, -3), axis=-3)

    def coarse(fine: Increments) -> Increments:
        dW, dZ, truncated = grouped(fine.dW, -2), fine.dZ, fine.truncated
        if dZ is not None:
            shift = jnp.broadcast_to(jnp.asarray(later, dW.dtype), dW.shape) * dW
            dZ = jnp.sum(grouped(dZ, -2) + shift, axis=-2)
        if truncated is not None:
            truncated = jnp.sum(grouped(truncated, -1), axis=-1, dtype=jnp.int32)
        return Increments(jnp.sum(dW, axis=-2), dZ, None, truncated, area(dW, fine.area))

    return with_precision(coarse, increments, dtype=increments.dW.dtype)


def enumerate_three_point(
    noises: int, dt: float, coin: bool = False
) -> tuple[Increments, np.ndarray]:
    """Every outcome of `ThreePoint` over one step and its probability, as NumPy arrays.

    There are 3^m 2^{m−1} outcomes (leading axis): all values of Î, and the signs of Ĩ_1, …,
    Ĩ_{m−1}, because I_kl never contains Ĩ_m. A weighted sum over them is an exact expectation.
    With coin=True there is a coin instead of the mixed I_kl, and there are 3^m 2 outcomes.
    """
    check_run(dt, noises=noises)
    if noises > MAX_ENUMERATED_NOISES:
        raise ValueError(
            f"noises={noises} has 3**{noises} * 2**{noises - 1} outcomes: enumerate at most "
            f"{MAX_ENUMERATED_NOISES} noises, or sample with ThreePoint"
        )
    signs = 1 if coin else max(noises - 1, 0)
    outcomes = list(product(*[(1, 0, -1)] * noises, *[(1, -1)] * signs))
    table = np.array(outcomes, dtype=np.float64).reshape(len(outcomes), noises + signs)
    three = sqrt(3 * dt) * table[:, :noises]
    weights = np.prod(np.where(table[:, :noises] == 0, 4, 1), axis=1) / (6**noises * 2**signs)
    if coin:
        return Increments(three, coin=table[:, noises]), weights
    # Ĩ_m is multiplied by nothing; a zero fills its place.
    two = sqrt(dt) * np.pad(table[:, noises:], ((0, 0), (0, noises - signs)))
    return Increments(three, mixed=mixed_increments(three, two, np)), weights
