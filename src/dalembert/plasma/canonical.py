"""States of particles and waves of light: made from particles, and taken apart."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.elementary import cos_beside_sin, sin_beside_cos
from dalembert.plasma.particles import effective, product, scalar
from dalembert.precision import with_precision
from dalembert.spelling import written
from dalembert.system import System
from dalembert.systems._parameters import Params

__all__ = [
    "Canonical",
    "canonical_state",
    "canonical_view",
    "is_canonical",
    "light_energies",
    "particles_of",
    "total_momentum",
    "wave_numbers",
    "wave_potential",
    "with_momenta",
    "with_particles",
]


class Canonical(NamedTuple):
    """Particles and waves of a state of `vlasov_maxwell`.

    Attributes:
        x: positions, shape (N,).
        y: positions across, which nothing depends on.
        v: velocities along x and y, shape (N, 2).
        waves: amplitudes of the vector potential A_y, shape (2, modes): √2 cos kx, √2 sin kx.
        slopes: their derivatives with respect to time, −E_y.
    """

    x: Any
    y: Any
    v: Any
    waves: Any
    slopes: Any


def canonical_state(
    state: tuple[Any, Any],
    system: System,
    waves: Any = None,
    slopes: Any = None,
    modes: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """A state of `vlasov_maxwell` from particles and light.

    Args:
        state: positions and momenta M v of particles, each of shape (N, 2), such as
            `da.plasma.Start(N, length, components=2).quiet()`.
        system: of `vlasov_maxwell`.
        waves, slopes: as in `Canonical`; zero if not given.
        modes: how many waves of light there are, to be checked; the system tells it.
    """
    q, p = (np.asarray(x, np.float64) for x in state)
    N = len(q)
    params: Any = system.params
    if not is_canonical(params):
        raise ValueError(f"{system.name!r} is not a system of da.plasma.vlasov_maxwell.")
    begins_in = getattr(state[0], "begins_in", None)
    if begins_in is not None and q.shape == (N, 2):
        begins_in(system)
    given = [np.shape(x)[-1] for x in (waves, slopes) if np.ndim(x) == 2]
    own = len(params["l"])
    count = given[0] if given else own if modes is None else modes
    if q.shape != (N, 2) or p.shape != (N, 2):
        raise ValueError(
            f"positions and momenta have shapes {q.shape} and {p.shape}, but {system.name!r} needs "
            "(N, 2) each: write Start(N, length, components=2)."
        )
    if count != own:
        raise ValueError(
            f"there are {count} waves of light, but {system.name!r} has {own}: give waves and "
            f"slopes of shape (2, {own})."
        )
    if system.dim != 2 * N + 2 * count:
        raise ValueError(
            f"{N} particles and {count} waves of light make {2 * N + 2 * count} numbers, but "
            f"{system.name!r} has {system.dim}: give as many particles as it was made for."
        )
    light = [np.zeros((2, count)) if x is None else np.asarray(x, float) for x in (waves, slopes)]
    if any(x.shape != (2, count) for x in light):
        raise ValueError(f"waves and slopes must have shape (2, {count}), those of A_y.")
    Q = np.asarray(params["weight"]) * np.asarray(params["charge"])
    A = np.asarray(with_precision(_potential, q[:, 0], light[0].ravel(), params))
    flat = [np.sqrt(N) * x.ravel() for x in light]
    canonical = p[:, 1] + Q * A
    return (
        np.concatenate([q[:, 0], q[:, 1], flat[0]]),
        np.concatenate([p[:, 0], canonical, flat[1]]),
    )


def is_canonical(params: Params) -> bool:
    """Whether states are those of `vlasov_maxwell`, by its parameters."""
    return isinstance(params, Mapping) and "l" in params and "c" in params


def canonical_view(q: Any, p: Any, params: Params, N: int | None = None) -> Canonical:
    """Particles and light of a state of `vlasov_maxwell`; also inside observables.

    Args:
        q, p, params: the state, and the parameters of its system.
        N: number of particles, to be checked; the parameters tell it.
    """
    N = _particle_count(q, params, N)
    x = q[:N]
    Q, M = (product(x, params, "weight", name) for name in ("charge", "mass"))
    waves, slopes = (z[2 * N :].reshape(2, -1) / np.sqrt(N) for z in (q, p))
    A = _potential(x, waves.ravel(), params)
    v = jnp.stack([p[:N] / M, (p[N : 2 * N] - Q * A) / M], axis=1)
    return Canonical(x, q[N : 2 * N], v, waves, slopes)


def particles_of(q: Any, p: Any, params: Params) -> tuple[Any, Any]:
    """Positions and momenta M v of particles: the state, or what `canonical_view` has of it."""
    if not is_canonical(params) or q.ndim == 2:  # particles that have been taken out of a state
        return q, p
    view = canonical_view(q, p, params)
    M = effective(view.x, params, "weight", "mass")
    return jnp.stack([view.x, view.y], axis=1), M[:, None] * view.v


def with_momenta(p: Any, change: Any) -> Any:
    """Canonical momenta after those of the particles have changed, by (N, 2), in the same field."""
    light = jnp.zeros((p.size - change.size,), p.dtype)
    return p + jnp.concatenate([change[:, 0], change[:, 1], light])


def with_particles(q: Any, p: Any, before: Any, after: Any, params: Params) -> tuple[Any, Any]:
    """The state after its particles, positions and M v of shape (N, 2), have become others."""
    (x, own), (to, new) = before, after
    change = new - own
    if to is not x:
        waves = q[2 * len(x) :] / np.sqrt(len(x))
        along, first = (_potential(z[:, 0], waves, params) for z in (to, x))
        Q = product(q, params, "weight", "charge")
        change = change.at[:, 1].add(Q * (along - first))
        q = jnp.concatenate([to[:, 0], to[:, 1], q[2 * len(x) :]])
    return q, with_momenta(p, change)


@written("da.plasma.light_energies()")
def light_energies(N: int | None = None) -> Callable[..., Any]:
    """Observable: the magnetic and the electric energy per volume of every mode, (2, modes).

    Args:
        N: number of particles, to be checked; the parameters tell it.
    """

    def energies(q: Any, p: Any, params: Params) -> Any:
        count = _particle_count(q, params, N)
        k = wave_numbers(q, params)
        parts = [(scalar(q, params, "c") * k * q[2 * count :]) ** 2, p[2 * count :] ** 2]
        sums = [jnp.sum(part.reshape(2, -1), axis=0) for part in parts]
        return jnp.stack(sums) / (2 * count)

    return energies


def _particle_count(q: Any, params: Params, given: int | None) -> int:
    """N of a state, which the number of modes tells."""
    if not is_canonical(params):
        raise ValueError(
            "these are no parameters of da.plasma.vlasov_maxwell, and the state has no light."
        )
    modes = jnp.shape(params["l"])[0]
    count = (q.shape[0] - 2 * modes) // 2
    if q.ndim != 1 or q.shape[0] != 2 * count + 2 * modes or count < 1:
        raise ValueError(
            f"a state of shape {q.shape} is none of vlasov_maxwell, whose q is (x, y, √N a, √N b) "
            f"with {modes} modes: make one with da.plasma.canonical_state."
        )
    if given not in (None, count):
        raise ValueError(
            f"N is {given!r}, but a state of {q.shape[0]} numbers with {modes} modes of light is "
            f"that of {count} particles: leave N out."
        )
    return count


def wave_numbers(q: Any, params: Params) -> Any:
    """k of all cosines, then of all sines."""
    l = jnp.asarray(params["l"], q.dtype)
    return 2 * np.pi * jnp.concatenate([l, l]) / jnp.asarray(params["length"][0], q.dtype)


def _potential(x: Any, waves: Any, params: Params) -> Any:
    """A_y at every particle: of waves of light, and what is given besides."""
    given, own = params.get("vector_potential"), wave_potential(x, waves, params)
    return own if given is None else own + given(x)


def wave_potential(x: Any, waves: Any, params: Params) -> Any:
    """A_y at every particle, of amplitudes of cosines and sines."""
    modes, k = waves.shape[0] // 2, wave_numbers(x, params)
    total = jnp.zeros_like(x)
    for l in range(modes):
        c, s = cos_beside_sin(k[l] * x), sin_beside_cos(k[l] * x)
        total = total + np.sqrt(2) * (waves[l] * c + waves[modes + l] * s)
    return total


def total_momentum(q: Any, p: Any, params: Params) -> Any:
    """Σ p_x and k (a ∂_t b − b ∂_t a) of all waves: what translations along x conserve."""
    N = _particle_count(q, params, None)
    (a, b), (a_t, b_t) = (z[2 * N :].reshape(2, -1) for z in (q, p))
    return jnp.sum(p[:N]) + jnp.sum(wave_numbers(q, params)[: len(a)] * (a * b_t - b * a_t))
