"""Streaming statistics: what leaves a block, and how blocks are merged.

Means and sums of squared deviations are merged by the pairwise rule of Chan, Golub and LeVeque,
which loses no digits however many blocks there are.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

__all__ = ["Moments", "in_float64", "masked_moments", "merge"]


class Moments(NamedTuple):
    """Count, mean, sum of squared deviations, minimum and maximum of one observable."""

    count: Any
    mean: Any
    deviations: Any
    minimum: Any
    maximum: Any


def masked_moments(values: Any, mask: Any) -> Moments:
    """Moments over the first axis, of the entries where the mask is set."""
    mask = mask.reshape(mask.shape + (1,) * (values.ndim - 1))
    count = jnp.sum(mask).astype(values.dtype)
    kept = jnp.where(mask, values, jnp.zeros_like(values))
    mean = jnp.sum(kept, axis=0) / jnp.maximum(count, 1)
    centred = jnp.where(mask, values - mean[None], jnp.zeros_like(values))
    infinity = jnp.asarray(jnp.inf, values.dtype)
    return Moments(
        count,
        mean,
        jnp.sum(centred * centred, axis=0),
        jnp.min(jnp.where(mask, values, infinity), axis=0),
        jnp.max(jnp.where(mask, values, -infinity), axis=0),
    )


def in_float64(moments: Moments) -> Moments:
    """The same moments as NumPy float64 arrays, in which blocks are merged."""
    return Moments(*(np.asarray(x, np.float64) for x in moments))


def merge(a: Moments, b: Moments) -> Moments:
    """Moments of two samples taken together; counts have the shape of the times."""
    shape = a.count.shape + (1,) * (a.mean.ndim - a.count.ndim)
    n_a, n_b = a.count.reshape(shape), b.count.reshape(shape)
    share = n_b / np.maximum(n_a + n_b, 1)
    delta = b.mean - a.mean
    return Moments(
        a.count + b.count,
        a.mean + delta * share,
        a.deviations + b.deviations + delta * delta * n_a * share,
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
    )
