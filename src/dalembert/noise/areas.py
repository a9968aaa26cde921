"""Lévy areas of pairs of Wiener processes over one step."""

from itertools import combinations
from math import sqrt
from typing import Any

import jax.numpy as jnp
import numpy as np

MAX_AREA_TERMS = 2**16
"""More is taken for a mistake: the error of the law, h/K, is far below that of any method."""


def numbers_of_areas(terms: int, noises: int) -> int:
    """How many normal numbers `levy_areas` takes."""
    return 2 * terms * noises + noises * (noises + 1) // 2


def levy_areas(dW: Any, h: Any, terms: int, normal: Any) -> Any:
    """Lévy areas of shape (m, m) from independent standard normal numbers.

        A_ij = h/2π Σ_k 1/k [X_jk (Y_ik + √(2/h) ΔW_i) − X_ik (Y_jk + √(2/h) ΔW_j)]

    The terms beyond the last one have, given ΔW, the covariance of one more with Y replaced by
    independent numbers for every pair, times Σ 1/k² of what is left out.
    """
    m = len(dW)
    x, y = normal[: 2 * terms * m].reshape(2, terms, m)
    of_tail, of_pairs = normal[2 * terms * m :][:m], normal[2 * terms * m + m :]
    weights = 1 / np.arange(1, terms + 1)
    left = np.pi**2 / 6 - np.sum(weights**2)
    along = jnp.sqrt(2 / h) * dW
    upper = (jnp.asarray(weights, x.dtype)[:, None] * (y + along[None, :])).T @ x
    places = list(combinations(range(m), 2))
    zero = jnp.zeros_like(h)
    rows = [
        [sqrt(2) * of_pairs[places.index((i, j))] if i < j else zero for j in range(m)]
        for i in range(m)
    ]
    pairs = jnp.stack([jnp.stack(row) for row in rows])
    upper = upper + sqrt(left) * (of_tail[None, :] * along[:, None] + pairs)
    return h / (2 * np.pi) * (upper - upper.T)
