"""A Lennard-Jones fluid in a periodic box, with a cut-off and the corrections for its tail."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from dalembert.precision import is_traced
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, one_mass, positive, require
from dalembert.systems._thermal import told_by, with_thermostat

__all__ = [
    "check_cutoff",
    "fcc_lattice",
    "lennard_jones",
    "lennard_jones_energy",
    "lennard_jones_potential",
    "lennard_jones_pressure",
    "lennard_jones_sampler",
]


PAIRS_AT_A_TIME = 2**13
"""Pairs that a CPU looks at together: what is computed of them stays in its cache."""


class _Seen(NamedTuple):
    """One particle and all: arrays of shape (N,), and their distance per axis."""

    separations: tuple[Any, Any, Any]
    square: Any
    sixth: Any
    near: Any

    def sum(self, values: Any) -> Any:
        """Of those near enough to act on the particle."""
        return jnp.sum(jnp.where(self.near, values, 0.0))


def _seen(x: Any, number: Any, q: Any, params: Params) -> _Seen:
    """Distances to the nearest images, and (σ/r)⁶, with r = 1 where there is no interaction."""
    box = _box(q, params)
    # One division for all pairs.
    boxes = 1 / box

    def along(axis: int) -> Any:
        apart = x[axis] - q[:, axis]
        return apart - box * jnp.round(apart * boxes)

    dx, dy, dz = map(along, range(3))
    square = dx**2 + dy**2 + dz**2
    reach = params["cutoff"] * params["sigma"]
    near = (square < reach**2) & (jnp.arange(len(q)) != number)
    # No particle sees itself: without the 1 the derivatives of what is not used were NaN.
    square = jnp.where(near, square, 1.0)
    return _Seen((dx, dy, dz), square, (params["sigma"] ** 2 / square) ** 3, near)


def _of_each(fun: Callable[[_Seen], Any], q: Any, params: Params) -> Any:
    """A function of what a particle sees, for all particles: on a CPU for a few at a time.

    So nothing of shape (N, N) is stored there. On a GPU a loop would take longer.
    """
    particles, few = (q, jnp.arange(len(q))), max(PAIRS_AT_A_TIME // len(q), 1)

    def one(particle: tuple[Any, Any]) -> Any:
        return fun(_seen(*particle, q, params))

    def by_few(particles: Any) -> Any:
        return lax.map(one, particles, batch_size=few)

    at_once = jax.vmap(one)
    if len(q) <= few:
        return at_once(particles)
    return lax.platform_dependent(particles, cpu=by_few, default=at_once)


def _box(q: Any, params: Params) -> Any:
    return jnp.cbrt(len(q) / params["density"])


def _depth(q: Any, params: Params) -> Any:
    """ε, or NaN where a particle would see two images of another one."""
    # The root is rounded, by each compiler in its way, and a box may be as large as it has to be.
    box = _box(q, params) * (1 + 8 * jnp.finfo(q.dtype).eps)
    fits = 2 * params["cutoff"] * params["sigma"] <= box
    return jnp.where(fits, params["epsilon"], jnp.nan)


@jax.jit
def _pair_energy(q: Any, params: Params, shift: Any) -> Any:
    depth = _depth(q, params)

    def energy(seen: _Seen) -> Any:
        return seen.sum(4 * depth * (seen.sixth**2 - seen.sixth) - shift)

    return jnp.sum(_of_each(energy, q, params)) / 2


def _over_r(seen: _Seen, depth: Any) -> Any:
    """u'(r)/r of every pair."""
    return -24 * depth * (2 * seen.sixth**2 - seen.sixth) / seen.square


@jax.jit
def _gradient(q: Any, params: Params) -> Any:
    depth = _depth(q, params)

    def slope(seen: _Seen) -> Any:
        over_r = _over_r(seen, depth)
        return jnp.stack([seen.sum(over_r * d) for d in seen.separations])

    return _of_each(slope, q, params)


def _shift(params: Params) -> Any:
    sixth = params["cutoff"] ** -6.0
    return 4 * params["epsilon"] * (sixth**2 - sixth)


def _shifted(q: Any, params: Params) -> Any:
    return _pair_energy(q, params, _shift(params))


@jax.custom_jvp
def _U(q: Any, params: Params) -> Any:
    """Energy of all pairs, shifted to be zero at the cut-off. The rule is for speed alone: it takes
    the sum over pairs once, automatic differentiation several times."""
    return _shifted(q, params)


def _U_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (q, params), (along, changes) = primals, tangents
    slope = jnp.zeros((), q.dtype)
    if not isinstance(along, SymbolicZero):
        slope = jnp.sum(_gradient(q, params) * along)
    moving = {name: x for name, x in changes.items() if not isinstance(x, SymbolicZero)}
    if moving:
        of = {name: params[name] for name in moving}
        slope += jax.jvp(lambda some: _shifted(q, {**params, **some}), (of,), (moving,))[1]
    return _U(q, params), slope


_U.defjvp(_U_jvp, symbolic_zeros=True)

SHAPE = ("sigma", "epsilon", "density", "cutoff")


def _H(q: Any, p: Any, params: Params) -> Any:
    return jnp.sum(p**2) / (2 * params["mass"]) + lennard_jones_potential(q, params)


def lennard_jones_potential(q: Any, params: Params) -> Any:
    """Σ_{i<j} (u(r_ij) − u(r_c)) of points in a periodic cube."""
    return _U(q, {name: jnp.asarray(params[name], q.dtype) for name in SHAPE})


@says_its_words
def lennard_jones(
    N: int = 256,
    density: Any = 0.776,
    temperature: Any = 0.9,
    gamma: Any = 1.0,
    epsilon: Any = 1.0,
    sigma: Any = 1.0,
    mass: Any = 1.0,
    cutoff: Any = 3.0,
) -> System:
    """Lennard-Jones fluid: N particles in a periodic cube, with a thermostat on each of them.

        dq_i = (p_i/m) dt
        dp_i = (−Σ_j u'(r_ij) r̂_ij − γ p_i) dt + √(2γmT) dW_i

        H = Σ |p_i|²/(2m) + Σ_{i<j, r_ij < r_c} (u(r_ij) − u(r_c)),   u(r) = 4ε((σ/r)¹² − (σ/r)⁶)
        F = −γ p,   h(q, p, w) = −√(2γmT) Σ q_i·w_i

    r_ij is the distance to the nearest image in the box, of side (N/density)^⅓. q, p and w have
    shape (N, 3); positions are not wrapped, so that they show diffusion. All pairs are looked at,
    N² of them: that is for up to a few thousand particles.

    Args:
        N: number of particles, at least 2.
        density: particles per volume.
        temperature: T ≥ 0, an energy.
        gamma: friction γ ≥ 0, a rate; 0 leaves the Hamiltonian fluid without noise, and γ and T
            are none of its parameters.
        epsilon: depth ε of the potential, an energy.
        sigma: diameter σ, a length.
        mass: m > 0.
        cutoff: r_c in units of σ, at most half the side of the box. Traced parameters that do
            not keep to this make the energy NaN.

    Invariants: the energy H, for γ = 0.
    Exact results: ⟨p_i p_j⟩ = mT δ_ij. NIST's simulations of 500 particles with cut-off 3σ and
    corrections for the tail, with ε = σ = m = 1: at (T, density) = (0.85, 0.005), (0.85, 0.009)
    and (0.90, 0.776) the potential energies per particle are −0.05190(8), −0.09397(13) and
    −5.4689(4), the pressures 4.1003e−3, 7.164e−3 and 0.2406(27); see `lennard_jones_energy` and
    `lennard_jones_pressure`.
    Source: `NISTLennardJones2017`; `AllenTildesley2017`.
    """
    require("N", N, "2 or more", lambda v: v >= 2, "particles act on each other")
    numbers = {"density": density, "epsilon": epsilon, "sigma": sigma, "mass": mass}
    numbers |= {"cutoff": cutoff}
    rules = {name: positive("it is a length, an energy or a density") for name in SHAPE}
    rules["mass"] = one_mass()
    more = {"rules": rules, "together": partial(check_cutoff, N)}
    return with_thermostat(_H, (N, 3), "lennard_jones", gamma, temperature, **more, **numbers)


def check_cutoff(N: int, params: Params) -> None:
    """Refuse a cut-off of more than half the side of the box; traced values pass."""
    cutoff, sigma, density = (params[name] for name in ("cutoff", "sigma", "density"))
    if is_traced(cutoff, sigma, density):
        return
    # As numbers first: inside someone's jit a product of known arrays of JAX is traced.
    cutoff, sigma, density = float(cutoff), float(sigma), float(density)
    reach, half = cutoff * sigma, float(np.cbrt(N / density) / 2)
    if reach > half * (1 + 1e-15):
        raise ValueError(
            f"the cut-off, {reach:g}, is more than half the side of the box, {half:g}: take at "
            f"least N={int(np.ceil(8 * reach**3 * density))} particles, a lower density or a "
            "smaller cutoff."
        )


def lennard_jones_energy(q: Any, p: Any, params: Params) -> Any:
    """Potential energy per particle with the correction for the tail: an observable.

    It is the sum of u(r) over pairs nearer than the cut-off, not shifted, and what a uniform
    density beyond adds, (8π/3) ρεσ³ [(σ/r_c)⁹/3 − (σ/r_c)³].
    """
    N, third = len(q), params["cutoff"] ** -3.0
    volume = 8 * jnp.pi / 3 * params["density"] * params["sigma"] ** 3
    tail = volume * params["epsilon"] * (third**3 / 3 - third)
    return _pair_energy(q, params, 0.0) / N + tail


def lennard_jones_pressure(q: Any, p: Any, params: Params) -> Any:
    """Pressure, (Σ |p|²/m − Σ_{i<j} r u'(r))/(3V) and the correction for the tail: an observable.

    The correction is (16π/3) ρ²εσ³ [(2/3)(σ/r_c)⁹ − (σ/r_c)³]. What a potential that jumps at the
    cut-off adds, (2π/3) ρ² r_c³ u(r_c) g(r_c), is not in it: ours does not jump. In NIST's liquid
    that would be −0.19 of 0.24, so that it is not in NIST's pressures either.
    """
    depth, third = _depth(q, params), params["cutoff"] ** -3.0

    def moment(seen: _Seen) -> Any:
        return seen.sum(_over_r(seen, depth) * seen.square)

    virial = -jnp.sum(_of_each(moment, q, params)) / 2
    kinetic = jnp.sum(p**2) / params["mass"]
    volume = 16 * jnp.pi / 3 * params["density"] ** 2 * params["sigma"] ** 3
    tail = volume * params["epsilon"] * (2 * third**3 / 3 - third)
    return (kinetic + virial) * params["density"] / (3 * len(q)) + tail


def fcc_lattice(N: int, density: float) -> np.ndarray:
    """Positions of N = 4n³ particles on a face-centred cubic lattice, shape (N, 3)."""
    n = round((N / 4) ** (1 / 3))
    if 4 * n**3 != N or n < 1:
        sizes = sorted({4 * max(n + more, 1) ** 3 for more in (-1, 0, 1)})
        raise ValueError(f"N is {N}, but a cubic lattice has 4 n³ particles: take one of {sizes}.")
    cells = np.stack(np.meshgrid(*3 * [np.arange(n)], indexing="ij"), axis=-1).reshape(-1, 1, 3)
    corners = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 2
    return (cells + corners).reshape(N, 3) * np.cbrt(4 / density)


def lennard_jones_sampler(
    N: int | System = 256, density: Any = None, temperature: Any = None, mass: Any = None
) -> Callable[[Any], tuple[Any, Any]]:
    """A sampler of initial states: a face-centred cubic lattice, momenta of the temperature.

    Args:
        N: the system, `lennard_jones_sampler(system)`, which then says all the rest; or the number
            of particles. A lattice of another density than that of the system has overlaps.
        density: 0.776 by default.
        temperature: T, 0.9 by default; of a system without friction it has to be given.
        mass: of a particle, 1 by default.
    """
    known = {"density": 0.776, "temperature": 0.9, "mass": 1.0}
    given = {"density": density, "temperature": temperature, "mass": mass}
    told = told_by(N, "particles", "lennard_jones_sampler", known, **given)
    N, (density, temperature, mass) = told
    lattice = fcc_lattice(N, density)

    def sample(key: Any) -> tuple[Any, Any]:
        p = jax.random.normal(key, (N, 3)) * jnp.sqrt(mass * temperature)
        return jnp.asarray(lattice, p.dtype), p

    return sample
