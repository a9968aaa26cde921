"""Systems and methods on which the variational structure is tried out."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import dalembert as da


def _H(q: Any, p: Any) -> Any:
    return jnp.sum(p**2) / 2 + jnp.sum(jnp.cos(q)) + 0.3 * jnp.sin(q[0] * p[-1])


def _F(q: Any, p: Any) -> Any:
    return -0.3 * p - 0.2 * p**3 + 0.1 * jnp.sin(q * p[0])


def _h1(q: Any, p: Any) -> Any:
    return 0.4 * jnp.sin(q[0] + p[0]) + 0.2 * p[-1] * q[0]


def _h2(q: Any, p: Any) -> Any:
    return 0.3 * jnp.cos(p[-1]) * q[-1]


def _f1(q: Any, p: Any) -> Any:
    return 0.3 * jnp.cos(p) * q


def _f2(q: Any, p: Any) -> Any:
    return 0.2 * jnp.sin(p + q[0])


def coupled(dim: int, noises: int) -> da.System:
    """No term is separable, no force is linear, no two noises commute."""
    return da.System(H=_H, F=_F, h=[_h1, _h2][:noises], f=[_f1, _f2][:noises], dim=dim)


def state(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """A position and a momentum of no particular symmetry."""
    return np.array([0.3, -0.5, 0.8])[:dim], np.array([0.7, 0.2, -0.4])[:dim]


INCREMENTS = np.array([0.2, -0.15])


def _lower(w: list[float]) -> list[list[float]]:
    return [[w[0] / 2, 0.0], [w[0], w[1] / 2]]


def general_dirk() -> da.MeanSquareTableau:
    """A two-stage DIRK outside the family of `da.dirk`, with four different sets of weights."""
    alpha, alpha_hat, beta = [0.3, 0.7], [0.1, 0.9], [0.6, 0.4]
    return da.MeanSquareTableau(
        a=_lower(alpha),
        a_bar=_lower(alpha),
        a_hat=_lower(alpha_hat),
        b=_lower(beta),
        b_bar=_lower(beta),
        b_hat=_lower(beta),
        alpha=alpha,
        alpha_hat=alpha_hat,
        beta=beta,
        beta_hat=beta,
        name="general DIRK",
    )


def structured() -> list[Any]:
    """The Lagrange–d'Alembert methods that take any number of noises."""
    return [
        da.midpoint(),
        da.stormer_verlet(),
        da.dirk(0.5),
        da.dirk(0.3),
        general_dirk(),
        da.srkw1(0.0),
        da.srkw1(0.5),
    ]


def split() -> da.MeanSquareTableau:
    """A structured tableau in which every condition can be violated alone.

    The drift is evaluated at the first stage and the noise at the second, so that every entry of
    ā, b̄, â and b̂ stands in one condition only.
    """
    return da.MeanSquareTableau(
        a=[[0.4, 0.0], [0.3, 0.0]],
        a_bar=[[0.6, 0.0], [0.6, 0.0]],
        a_hat=[[0.6, 0.0], [0.6, 0.0]],
        b=[[0.0, 0.4], [0.0, 0.45]],
        b_bar=[[0.0, 0.7], [0.0, 0.55]],
        b_hat=[[0.0, 0.7], [0.0, 0.55]],
        alpha=[1.0, 0.0],
        alpha_hat=[1.0, 0.0],
        beta=[0.0, 1.0],
        beta_hat=[0.0, 1.0],
        name="split",
    )


_PLACES = {
    1: ("a_bar", 0, 0),
    2: ("b_bar", 1, 1),
    3: ("a_bar", 1, 0),
    4: ("b_bar", 0, 1),
    5: ("a_hat", 0, 0),
    6: ("b_hat", 0, 1),
    7: ("a_hat", 1, 0),
    8: ("b_hat", 1, 1),
}


def spoiled(condition: int, by: float = 0.05) -> da.MeanSquareTableau:
    """`split` with one of the eight mean-square conditions violated, the others kept."""
    name, i, j = _PLACES[condition]
    matrix = np.array(getattr(split(), name))
    matrix[i, j] += by
    return replace(split(), **{name: matrix}, name=f"condition {condition} violated")


def spoiled_weak(condition: int, by: float = 0.05) -> da.WeakTableau:
    """`da.srkw1` with one of the four weak conditions violated, the others kept."""
    name = {1: "a0", 2: "b0", 3: "b1", 4: "b3"}[condition]
    base = da.srkw1(0.3)
    matrix = np.array(getattr(base, name)) + by
    return replace(base, **{name: matrix}, name=f"weak condition {condition} violated")
