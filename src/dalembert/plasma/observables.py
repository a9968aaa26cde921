"""What is seen of a plasma: functions of (q, p, params), for `observe=`.

All are per volume of the box, in units of ω_p = λ_D = 1: H is N times the sum of the energies. Of
states of `vlasov_maxwell` they see the particles, whose momenta are M v.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.plasma.canonical import particles_of
from dalembert.plasma.fields import Field, as_tuple, density_waves, whole_numbers
from dalembert.plasma.particles import columns, effective, is_count, product
from dalembert.spelling import written
from dalembert.systems._parameters import Params, require

__all__ = [
    "density_modes",
    "entropy",
    "field_energies",
    "kinetic_energy",
    "momentum",
    "phase_space",
    "thermal_energy",
]


def kinetic_energy(q: Any, p: Any, params: Params) -> Any:
    """Σ |p_i|²/(2M_i)/N, the kinetic energy of all components per volume."""
    q, p = particles_of(q, p, params)
    M = effective(q, params, "weight", "mass")
    return jnp.mean((p**2 if p.ndim == 1 else jnp.sum(p**2, axis=1)) / (2 * M))


def thermal_energy(q: Any, p: Any, params: Params) -> Any:
    """The kinetic energy without that of the mean velocity: (d/2) T per volume in equilibrium."""
    own, _ = particles_of(q, p, params)
    M = effective(own, params, "weight", "mass")
    mean = momentum(q, p, params)
    return kinetic_energy(q, p, params) - jnp.sum(mean**2) / (2 * jnp.mean(M))


def momentum(q: Any, p: Any, params: Params) -> Any:
    """Σ M_i v_i/N, the total momentum per volume: a number, or one for every component."""
    return jnp.mean(particles_of(q, p, params)[1], axis=0)


@written("da.plasma.field_energies(field)")
def field_energies(field: Field) -> Callable[..., Any]:
    """The energy per volume in every mode of a field; their sum is that of the field.

    The modes are in the order that the field has: 1, 2, … for `da.plasma.Fourier` in one
    dimension, 0, 1, 2, … for `da.plasma.Spline`.
    """
    if not hasattr(field, "axes"):
        raise TypeError(
            f"field_energies needs a field, such as da.plasma.Fourier(1), not {field!r}."
        )

    def energies(q: Any, p: Any, params: Params) -> Any:
        _check_axes(f"{field}", field.axes, params)
        q, _ = particles_of(q, p, params)
        x = columns(q, field.axes)
        return field.energies(x, product(q, params, "weight", "charge"), params["length"])

    return energies


@written("da.plasma.phase_space()")
def phase_space(columns_x: int = 64, columns_v: int = 64, speed: float = 5.0) -> Callable[..., Any]:
    """The density of particles over x and v_x, shape (columns_x, columns_v), with integral 1.

    x is taken into the box, and velocities beyond ±speed are left out.
    """
    for name, value in (("columns_x", columns_x), ("columns_v", columns_v)):
        if not is_count(value, 1, np.inf):
            raise ValueError(f"{name} is {value!r}, but must be a whole number of 1 or more.")
    require("speed", speed, "above 0", lambda v: (v > 0) & (v < np.inf), "it is a velocity")

    def density(q: Any, p: Any, params: Params) -> Any:
        q, p = particles_of(q, p, params)
        length = jnp.asarray(params["length"][0], q.dtype)
        x, v = columns(q, 1)[0] / length, columns(p, 1)[0] / effective(q, params, "weight", "mass")
        column = jnp.clip(jnp.floor((x - jnp.floor(x)) * columns_x), 0, columns_x - 1)
        row = jnp.floor((v + speed) * (columns_v / (2 * speed)))
        inside = (row >= 0) & (row < columns_v)
        place = (column * columns_v + jnp.where(inside, row, 0)).astype(jnp.int32)
        share = jnp.where(inside, effective(q, params, "weight"), 0.0)
        counts = jnp.zeros((columns_x * columns_v,), q.dtype).at[place].add(share)
        area = length * (2 * speed) / (columns_x * columns_v)
        total = jnp.sum(effective(q, params, "weight"))
        return counts.reshape(columns_x, columns_v) / (area * total)

    return density


@written("da.plasma.entropy()")
def entropy(columns_x: int = 16, columns_v: int = 32, speed: float = 5.0) -> Callable[..., Any]:
    """−∫ f ln f over x and v_x, of the density in cells: too small by cells per 2N."""
    density = phase_space(columns_x, columns_v, speed)

    def estimate(q: Any, p: Any, params: Params) -> Any:
        f = density(q, p, params)
        area = params["length"][0] * (2 * speed) / (columns_x * columns_v)
        return -jnp.sum(jnp.where(f > 0, f * jnp.log(jnp.where(f > 0, f, 1.0)), 0.0)) * area

    return estimate


@written("da.plasma.density_modes(1)")
def density_modes(modes: int | tuple[int, int] = 1) -> Callable[..., Any]:
    """Waves of the charge density, 2⟨Q cos k·x⟩ and 2⟨Q sin k·x⟩, shape (2, modes).

    A start with amplitude α has ∓α for electrons and ions in the first row of its mode, and the
    field of a mode is E = (a sin kx − b cos kx)/k for (a, b) of these.
    """
    axes = len(as_tuple(whole_numbers("modes", modes, 0)))

    def waves(q: Any, p: Any, params: Params) -> Any:
        sides = params["length"]
        _check_axes(f"modes {modes}", axes, params)
        q, _ = particles_of(q, p, params)
        charge = product(q, params, "weight", "charge")
        return 2 * jnp.stack(density_waves(columns(q, len(sides)), charge, sides, modes))

    return waves


def _check_axes(what: str, axes: int, params: Params) -> None:
    if axes != len(params["length"]):
        raise ValueError(
            f"{what} have {axes} dimension(s), but the box has {len(params['length'])}."
        )
