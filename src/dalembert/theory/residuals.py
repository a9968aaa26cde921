"""How far sums of coefficients are from what conditions ask, next to the size of what is added.

Products of coefficients of size 10 are of size 100 and more, and so is their rounding: a residual
is taken relative to the terms of its sum, from one to a million. Beyond that rounding may hide what
a condition is about, and counts as a fault.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dalembert.methods.coefficients import Array

Residuals = dict[str, float]

LARGEST_SIZE = 1e6


def residual(total: Callable[..., Any], target: float, *arrays: Array) -> float:
    """|total(arrays) − target|, relative to the same sum of absolute values.

    `total` must be made of sums and products alone: that of absolute values is then the size of
    what it adds up.
    """
    size = relevant_size(float(total(*map(np.abs, arrays))))
    return abs(float(total(*arrays)) - target) / size


def relevant_size(size: Any) -> Any:
    """What a difference is divided by, given the size of what is added up."""
    return np.clip(size, 1.0, LARGEST_SIZE)


def conjugacy_residual(w: Array, M: Array, v: Array, N: Array) -> float:
    """max |w_i M_ij + v_j N_ji − w_i v_j|, each relative to the largest of its terms."""
    terms = np.stack([w[:, None] * M, v[None, :] * N.T, -np.outer(w, v)])
    sizes = relevant_size(np.abs(terms).max(axis=0))
    return float((np.abs(terms.sum(axis=0)) / sizes).max())
