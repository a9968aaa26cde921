"""The Vlasov–Poisson system as N particles in their own field: a Hamiltonian system."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.plasma.colliding import Colliding, Collisions
from dalembert.plasma.fields import Field, Fourier, require_particles
from dalembert.plasma.particles import (
    beside,
    check_potential,
    columns,
    is_count,
    particle_rules,
    product,
)
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rules, parameters

__all__ = ["vlasov_poisson"]

ONE_MODE = Fourier(1)


@says_its_words
def vlasov_poisson(
    N: int = 2**14,
    length: Any = 4 * np.pi,
    field: Field = ONE_MODE,
    nu: Any = None,
    temperature: Any = None,
    charge: Any = -1.0,
    mass: Any = 1.0,
    weight: Any = 1.0,
    velocities: int | None = None,
    potential: Callable[[Any], Any] | None = None,
    collisions: Collisions | Sequence[Collisions] | None = None,
    inside: bool = False,
) -> System:
    """Plasma of N charged particles in a periodic box, in their own electrostatic field.

        dx_i = v_i dt
        dv_i = ((q_i/m_i) E(x_i) − ν v_i) dt + √(2νT/m_i) dW_i

        H = Σ_i |p_i|²/(2M_i) + N [½ Σ_{k≠0} |ρ_k|²/k²] + Σ_i Q_i φ(x_i)
        F = −ν p,   f_i = w_i √(2νm_iT) dW_i,   p_i = M_i v_i,   M_i = w_i m_i,   Q_i = w_i q_i

    E is the field of the charge density ρ = (V/N) Σ_i Q_i δ(x − x_i), its energy per volume in the
    brackets as the field says, φ a given potential. Units are ω_p = λ_D = 1, those of electrons
    with density, mass and temperature 1: time in 1/ω_p, x in λ_D, velocities in the thermal one.
    H is N times the energy per volume; p is the velocity where mass and weight are 1.

    With ν > 0 every particle has friction and a noise for each component: the operator of Lenard
    and Bernstein, ∂f/∂t = ν ∂_v·(v f + (T/m) ∂_v f). It conserves particles; momentum and energy
    relax to those of a Maxwellian at rest with temperature T. Other `collisions` are flows, which
    act on velocities before and after every step of a method, and keep what they say; or, with
    `inside=True`, forces like those, where they are forced Hamiltonian terms.

    q and p have shape (N,), or (N, d) for more than one component; positions are not wrapped.
    Several species are arrays of shape (N,) for charge, mass, weight and temperature.

    Args:
        N: number of particles.
        length: of the box in λ_D, L or a pair (L_x, L_y): as many as the field has axes.
        field: `da.plasma.Fourier(modes)` or `da.plasma.Spline(cells)`.
        nu: collision rate ν ≥ 0 in ω_p, of several operators one for each, or one for all. None,
            or 0 without `collisions`, leaves the Hamiltonian system, without noise; with
            `collisions` it must be given.
        temperature: T ≥ 0, that Lenard and Bernstein's collisions lead to, 1 if not given. Without
            them it is none of the parameters, and is refused: particles have the temperature that
            they begin with.
        charge: of a particle; electrons have −1.
        mass: of a particle; electrons have 1.
        weight: how many particles of density 1 each stands for, relative to N: all weights of a
            species add up to N times its density.
        velocities: components of the velocity, at least as many as the box has dimensions, which is
            the default. Beyond those, positions are there but nothing depends on them.
        potential: φ of positions, one value per particle: a function q → (N,) of the whole array,
            with the period of the box: positions are not wrapped, and whether it has is not looked
            at.
        collisions: what ν is the rate of: None for Lenard and Bernstein's inside the method, or an
            operator, `da.plasma.LenardBernstein`, `Dougherty`, `Lorentz` or `CoulombPairs`; or a
            list of several, which act one after the other before a step, and in the opposite order
            after it.
        inside: whether operators are forces inside the method in place of flows: those of
            `LenardBernstein` without cells, or with one, and of `Lorentz`.

    Invariants: the energy H for ν = 0, and the total momentum with a `Fourier` field and no
    potential; with collisions, what they conserve of it.
    Exact results: waves of small amplitude, `da.plasma.linear`.
    Source: `BirdsallLangdon1991`; `LenardBernstein1958`.
    """
    if isinstance(field, type) or not isinstance(getattr(field, "axes", None), int):
        raise TypeError(
            "field must be one such as da.plasma.Fourier(1) for one mode, or da.plasma.Spline(32) "
            f"for a grid of 32 cells, not {field!r}."
        )
    sides = tuple(length) if isinstance(length, list | tuple) else (length,)
    if len(sides) != field.axes:
        raise ValueError(
            f"length is {length!r}, but {field} is a field in {field.axes} dimension(s): give as "
            "many lengths as it has axes."
        )
    components = field.axes if velocities is None else velocities
    if not is_count(components, field.axes, 3):
        raise ValueError(
            f"velocities is {velocities!r}, but must be at least the {field.axes} of the box and "
            "at most 3."
        )
    require_particles(N)
    colliding = Colliding(nu, temperature, collisions, inside)
    values = {"charge": charge, "mass": mass, "weight": weight}
    check = Rules({**particle_rules(N), **colliding.rules(N)}, partial(colliding.check, field.axes))
    check({"length": sides, **values, **colliding.values})
    shape = (N,) if components == 1 else (N, components)
    length = tuple(parameters(length=side)["length"] for side in sides)
    if potential is not None:
        check_potential("potential", potential, shape)
    H = _hamiltonian(field, potential)
    invariants = {"energy": H}
    if isinstance(field, Fourier) and potential is None:
        invariants |= {f"momentum_{a}": _momentum(i) for i, a in enumerate("xyz"[:components])}
    params = {"length": length, **parameters(**values)}
    plasma = {"H": H, "dim": shape, "name": "vlasov_poisson", "check": check, "params": params}
    plasma["periods"] = partial(_periods, components)
    return colliding.added({**plasma, "invariants": invariants}, shape, field.axes)


def _periods(components: int, params: Params) -> list[Any]:
    """Sides of the box, and none for positions beyond its dimensions."""
    return [*params["length"], *[0.0] * (components - len(params["length"]))]


def _hamiltonian(field: Field, potential: Callable[[Any], Any] | None) -> Callable[..., Any]:
    def H(q: Any, p: Any, params: Params) -> Any:
        N, Q = q.shape[0], product(q, params, "weight", "charge")
        M = product(q, params, "weight", "mass")
        x, sides = columns(q, field.axes), params["length"]
        value = jnp.sum(p**2 / (2 * beside(M, q))) + N * jnp.sum(field.energies(x, Q, sides))
        return value if potential is None else value + jnp.sum(Q * potential(q))

    return H


def _momentum(axis: int) -> Callable[..., Any]:
    return lambda q, p, params: jnp.sum(p if p.ndim == 1 else p[:, axis])
