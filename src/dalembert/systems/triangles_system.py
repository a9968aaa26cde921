"""Rigid triangles like water molecules, in a Lennard-Jones fluid of their heads."""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.constraints import between, missed_length
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, positive, require
from dalembert.systems._thermal import told_by, with_thermostat
from dalembert.systems.lennard_jones_system import check_cutoff, lennard_jones_potential

__all__ = ["triangles", "triangles_start"]

MASSES = np.array([16.0, 1.0, 1.0])[None, :, None] / 18
"""Of the points of a triangle, all together 1."""

SIDES = (0.3, 0.3, 0.48)
"""Distances of points 0 and 1, 0 and 2, 1 and 2, in units of σ: like those of water."""


def _sides(q: Any, params: Params) -> Any:
    """What all sides miss of their lengths, triangle after triangle."""
    lengths = jnp.asarray(SIDES, q.dtype)[None] * params["sigma"]
    return missed_length(between(q, ((0, 1), (0, 2), (1, 2))), lengths).reshape(-1)


def _H(q: Any, p: Any, params: Params) -> Any:
    return jnp.sum(p**2 / (2 * params["mass"])) + lennard_jones_potential(q[:, 0], params)


@says_its_words
def triangles(
    N: int = 27,
    density: Any = 0.3,
    temperature: Any = 1.0,
    gamma: Any = 1.0,
    epsilon: Any = 1.0,
    sigma: Any = 1.0,
    cutoff: Any = 2.0,
) -> System:
    """N rigid triangles in a periodic cube, with a thermostat; q has shape (N, 3, 3).

        dq_ia = (p_ia/m_a) dt
        dp_ia = (−∂U/∂q_ia − γ p_ia) dt + √(2γ m_a T) dW_ia − Σ_j ∂g_j/∂q_ia dλ_j

        H = Σ |p_ia|²/(2m_a) + Σ_{i<j} (u(r_ij) − u(r_c)),   u(r) = 4ε((σ/r)¹² − (σ/r)⁶)
        F = −γ p,   h(q, p, w) = −Σ √(2γ m_a T) q_ia·w_ia

    r_ij is the distance of the heads, points 0, to the nearest image in the box, of side
    (N/density)^⅓. The masses of the three points are 16, 1 and 1 eighteenths, the sides of a
    triangle 0.3, 0.3 and 0.48 σ. All pairs are looked at, N² of them.

    Args:
        N: number of triangles, at least 2.
        density: triangles per volume.
        temperature: T ≥ 0, an energy.
        gamma: friction γ ≥ 0, a rate; 0 leaves the Hamiltonian system without noise, and γ and T
            are none of its parameters.
        epsilon: depth ε of the potential, an energy.
        sigma: diameter σ, a length.
        cutoff: r_c in units of σ, at most half the side of the box.

    Invariants: the energy H, for γ = 0.
    Exact results: six degrees of freedom are left to a triangle, so that for γ, T > 0 the mean
    kinetic energy is 3NT.
    Source: `Andersen1983`; `AllenTildesley2017`.
    """
    require("N", N, "2 or more", lambda v: v >= 2, "triangles act on each other")
    numbers = {"density": density, "epsilon": epsilon, "sigma": sigma, "cutoff": cutoff}
    rules = {name: positive("it is a length, an energy or a density") for name in numbers}
    shape = (N, 3, 3)
    rules["mass"] = positive("the velocity is p/mass", shape=shape)
    more = {"constraints": _sides, "rules": rules, "together": partial(check_cutoff, N)}
    numbers["mass"] = MASSES
    return with_thermostat(_H, shape, "triangles", gamma, temperature, **more, **numbers)


def triangles_start(
    N: int | System = 27, density: Any = None, sigma: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Triangles at rest on a cubic lattice, all turned alike.

    Args:
        N: the system, `triangles_start(system)`, which says the rest; or the number of triangles.
        density: 0.3 by default.
        sigma: diameter σ, 1 by default.
    """
    known = {"density": 0.3, "sigma": 1.0}
    told = told_by(N, "triangles", "triangles_start", known, density=density, sigma=sigma)
    N, (density, sigma) = told
    n = int(np.ceil(np.cbrt(N) - 1e-9))
    cells = np.stack(np.meshgrid(*3 * [np.arange(n)], indexing="ij"), axis=-1).reshape(-1, 3)[:N]
    a, b, c = SIDES
    along = (a**2 + c**2 - b**2) / (2 * c)
    body = np.array([[0, 0, 0], [-along, np.sqrt(a**2 - along**2), 0], [c - along, 0, 0]])
    body[2, 1] = body[1, 1]
    q = (cells * np.cbrt(N / density) / n)[:, None] + sigma * body[None]
    return q, np.zeros_like(q)
