"""Energies and temperatures of a system, as functions to observe.

    observe = {"kinetic": da.observables.kinetic(system), "U": da.observables.potential(system)}
    run = da.simulate(system, …, observe=observe)

Each is made from a system, and is a function of (q, p), or (q, p, params) if the system has params,
like H itself. Energies have the unit of H, and so have temperatures: Boltzmann's constant is 1.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.dependence import Degree, degree
from dalembert.spelling import is_not_there, written
from dalembert.system import System

__all__ = ["configurational_temperature", "kinetic", "kinetic_temperature", "potential"]

Observable = Callable[..., Any]


@written("da.observables.kinetic(system)")
def kinetic(system: System) -> Observable:
    """Kinetic energy, a scalar: T(p) of H = T(p) + U(q), T quadratic, so that T(0) = 0."""
    _require_separable(system, "kinetic")
    velocity = jax.grad(system.H, argnums=1)

    def kinetic(q: Any, p: Any, *params: Any) -> Any:
        # The second term is for momenta that are counted from elsewhere than rest.
        twice = velocity(q, p, *params) + velocity(q, jnp.zeros_like(p), *params)
        return jnp.sum(p * twice) / 2

    return kinetic


@written("da.observables.potential(system)")
def potential(system: System) -> Observable:
    """Potential energy, a scalar: U(q) = H(q, 0) of H = T(p) + U(q)."""
    _require_separable(system, "potential")
    H = system.H
    return lambda q, p, *params: H(q, jnp.zeros_like(p), *params)


@written("da.observables.kinetic_temperature(system)")
def kinetic_temperature(system: System) -> Observable:
    """Temperature of the momenta, a scalar: Σ p_i ∂H/∂p_i / dim, which is Σ p_i²/(m dim).

    Its mean over exp(−H/T) is T, whatever H is. With c independent constraints momenta have c
    directions fewer: the sum is divided by dim − c, and its mean is T if H is quadratic in p.
    """
    H, free = system.H, system.dim - system.constraint_count
    return lambda q, p, *params: jnp.sum(p * jax.grad(H, argnums=1)(q, p, *params)) / free


@written("da.observables.configurational_temperature(system)")
def configurational_temperature(system: System, directions: int = 24) -> Observable:
    """Two numbers, shape (2,), whose means over exp(−H/T) have the ratio T, made of q alone.

        T = mean[0] / mean[1],   mean[0] = ⟨Σ (v·∇U)²⟩/dim,   mean[1] = ⟨Σ v·∇²U v⟩/dim

    for H = T(p) + U(q). The sums are over directions v, each of which has entries ±1 in its share
    of the coordinates; with as many of them as degrees of freedom it is |∇U|² and ∇²U. The ratio
    is T for any number of them; the more there are, the smaller is the error, and the longer it
    takes: as long as so many forces. Momenta need not be in equilibrium with the positions, and
    positions may be unbounded, as in a periodic box. The mean of the ratio is not T.

    Args:
        system: with H = T(p) + U(q).
        directions: how many of them, at most the number of degrees of freedom.
    """
    _require_separable(system, "configurational_temperature")
    if system.constraint_count:
        raise ValueError(
            "observables.configurational_temperature goes along all coordinates, which the "
            f"constraints of {system.name!r} do not let move. Take kinetic_temperature."
        )
    if not isinstance(directions, int) or isinstance(directions, bool) or directions < 1:
        raise ValueError(f"directions must be a positive integer, not {directions!r}.")
    H, dim, count = system.H, system.dim, min(directions, system.dim)

    def temperature(q: Any, p: Any, *params: Any) -> Any:
        def force(q: Any) -> Any:
            return jax.grad(H, argnums=0)(q, jnp.zeros_like(p), *params)

        now = force(q)

        def along(share: Any) -> Any:
            i = jnp.arange(dim)
            sign = jnp.where((i // count) % 2 == 0, 1.0, -1.0)
            v = jnp.where(i % count == share, sign, 0.0).astype(q.dtype).reshape(q.shape)
            curvature = jax.grad(lambda q: jnp.sum(force(q) * v))(q)
            return jnp.stack([jnp.sum(now * v) ** 2, jnp.sum(curvature * v)])

        return jnp.sum(jax.lax.map(along, jnp.arange(count)), axis=0) / dim

    return temperature


def _require_separable(system: System, name: str) -> None:
    """Refuse a system whose H, as it is written, is not T(p) + U(q) with a quadratic T."""
    velocity = system.fields.term(("H_p", 0))
    assert velocity is not None, "there is always an H"
    with jax.enable_x64(True):
        like = system.term_like(("H_p", 0), jax.ShapeDtypeStruct((system.dim,), np.float64))
        if degree(velocity, like, (0,)) > Degree.CONSTANT:
            what = "∂H/∂p depends on q"
        elif degree(velocity, like, (1,)) > Degree.AFFINE:
            what = "it is not quadratic in p"
        else:
            return
    raise ValueError(
        f"observables.{name} needs H = T(p) + U(q) with a quadratic T, and the H of "
        f"{system.name!r} is of another form: {what}. Write a function of (q, p) instead."
    )


if not TYPE_CHECKING:

    def __getattr__(name: str) -> None:
        raise is_not_there("observables", name, __all__)
