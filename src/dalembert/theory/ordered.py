"""Solutions of M' = G(t) M, M = 1 at the start: exponentials in the order of time.

By Magnus's series to sixth order at Gauss's three nodes in each of several pieces (Blanes, Casas
and Ros 2000), whose number is doubled until nothing changes any more but by rounding.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.methods.coefficients import Array

PIECES, HALVINGS = 8, 10
"""Pieces at first and at a time, and how often they are halved before it is given up."""

NODES = 0.5 + np.sqrt(15) / 10 * np.array([-1.0, 0.0, 1.0])
TOGETHER = PIECES * len(NODES)
"""Times at which G is asked for at once."""

SETTLED = 2.0**-44
"""Relative change that is put down to rounding."""


def ordered_exponential(rates: Callable[[np.ndarray], Array], t: float, dt: float) -> Array:
    """M(t + dt) from M(t) = 1.

    Args:
        rates: G at `TOGETHER` times, shape (TOGETHER, n, n).
        t: when to begin.
        dt: how long to go on.

    Raises:
        ValueError: if it does not settle, as where G jumps.
    """
    before = change = None
    for halvings in range(HALVINGS):
        number = PIECES * 2**halvings
        h, found = dt / number, None
        for first in range(0, number, PIECES):
            begins = t + h * (first + np.arange(PIECES))
            G = rates((begins + h * NODES[:, None]).ravel())
            for factor in _exponentials(_magnus(h, *G.reshape(3, PIECES, *G.shape[1:]))):
                found = factor if found is None else factor @ found
        assert found is not None
        if before is not None:
            change = float(np.abs(found - before).max() / np.abs(found).max())
            if change <= SETTLED:
                return found
        before = found
    raise ValueError(
        f"the exact solution from t = {t:g} to {t + dt:g} does not settle: it still changes by "
        f"{change:.1e} in {PIECES * 2**HALVINGS // 2:,} pieces. Is the drive smooth in time?"
    )


def _magnus(h: float, G1: Array, G2: Array, G3: Array) -> Array:
    """The exponents of pieces of length h, from G at the three nodes of each."""
    a1, a2, a3 = h * G2, h * np.sqrt(15) / 3 * (G3 - G1), h * 10 / 3 * (G3 - 2 * G2 + G1)
    c1 = _commutator(a1, a2)
    c2 = -_commutator(a1, 2 * a3 + c1) / 60
    return a1 + a3 / 12 + _commutator(-20 * a1 - a3 + c1, a2 + c2) / 240


def _commutator(a: Array, b: Array) -> Array:
    return a @ b - b @ a


def _exponentials(matrices: Array) -> Array:
    with jax.enable_x64(True):
        return np.asarray(_expm(jnp.asarray(matrices)))


_expm = jax.jit(jax.vmap(jax.scipy.linalg.expm))
