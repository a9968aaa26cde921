"""The Vlasov–Maxwell system in one dimension with two velocities: particles and waves of light."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from dalembert.plasma.canonical import total_momentum, wave_numbers, wave_potential
from dalembert.plasma.colliding import Colliding, Collisions
from dalembert.plasma.fields import Field, Fourier, require_particles, whole_numbers
from dalembert.plasma.particles import (
    check_potential,
    particle_rules,
    product,
    scalar,
)
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rule, Rules, parameters

__all__ = ["vlasov_maxwell"]

ONE_MODE = Fourier(1)


@says_its_words
def vlasov_maxwell(
    N: int = 2**12,
    length: float = 4 * np.pi,
    modes: int = 1,
    c: Any = 1.0,
    charge: Any = -1.0,
    mass: Any = 1.0,
    weight: Any = 1.0,
    field: Field | None = ONE_MODE,
    nu: Any = None,
    temperature: Any = None,
    potential: Callable[[Any], Any] | None = None,
    vector_potential: Callable[[Any], Any] | None = None,
    collisions: Collisions | Sequence[Collisions] | None = None,
    inside: bool = False,
) -> System:
    """Plasma of N charged particles along x, in their own electric field and waves of light.

        A(x) = Σ_k (a_k √2 cos kx + b_k √2 sin kx) + A_given(x),   k = 2πl/L,   l = 1, …, modes

        H = Σ_i [p_x²/(2M_i) + (p_y − Q_i A(x_i))²/(2M_i)] + N Σ_k ½ (ȧ² + ḃ² + c²k² (a² + b²))
            + N [½ Σ_{k≠0} |ρ_k|²/k²] + Σ_i Q_i φ(x_i)

    A is the vector potential along y, E_y = −∂A/∂t, B_z = ∂A/∂x, and p_y = M v_y + Q A canonical:
    a true Hamiltonian system, ∂²A/∂t² = c² ∂²A/∂x² + J_y. It is not separable: midpoint is
    implicit, and keeps the total momentum, which is quadratic, to rounding. The energy is N times
    that per volume, and units are those of `vlasov_poisson`: velocities, and c, in the unit
    that temperatures have been given in.

    q = (x, y, √N a, √N b) and p = (p_x, p_y, √N ȧ, √N ḃ) are vectors of 2N + 2 modes numbers:
    `da.plasma.canonical_state` makes them from particles, `canonical_view` takes them apart, and
    observables of plasmas, such as `da.plasma.momentum`, are those of the particles' M v. The
    parameter `l` has the numbers of the modes.

    Collisions are those of `vlasov_poisson`, with the same arguments: they act on velocities,
    (p_x, p_y − Q A)/M, in the field as it is at the moment.

    Args:
        N: number of particles.
        length: L of the periodic box.
        modes: of the vector potential. The uniform part is left out.
        c: speed of light.
        charge, mass, weight: of the particles, numbers or arrays (N,), as for `vlasov_poisson`.
        field: electrostatic field along x, or None for none.
        nu, temperature, collisions, inside: of collisions, as for `vlasov_poisson`.
        potential: a given φ of positions x, (N,) → (N,), with the period of the box.
        vector_potential: a given A_y of positions x, (N,) → (N,): a magnetic field B_z = ∂A/∂x that
            stays. Positions are not wrapped, so that `lambda x: B * x` is a uniform one; of others,
            that they have the period of the box is not looked at.

    Invariants: the energy H, without given fields the momentum along x of particles and light, and
    p_y of every particle; with collisions, what they conserve of it.
    Exact results: Weibel's instability, `da.plasma.linear.weibel_root`.
    Source: `Weibel1959`; `BirdsallLangdon1991`.
    """
    if not isinstance(whole_numbers("modes", modes, 1), int) or (
        field is not None and field.axes != 1
    ):
        raise ValueError("vlasov_maxwell has one dimension: give one number of modes, and a field.")
    require_particles(N)
    for name, given in (("potential", potential), ("vector_potential", vector_potential)):
        if given is not None:
            check_potential(name, given, (N,))
    # No numbers, but observables, which are told parameters, need it for velocities.
    given_A = {} if vector_potential is None else {"vector_potential": Partial(vector_potential)}
    colliding = Colliding(nu, temperature, collisions, inside)
    of = {**particle_rules(N), **colliding.rules(N)}
    of |= {"c": replace(of["length"], is_tuple=False), "l": Rule(shape=(modes,), is_exact=True)}
    of |= {name: _ReadByH(fun=given.func) for name, given in given_A.items()}
    check = Rules(of, partial(colliding.check, 1))
    values = {"c": c, "charge": charge, "mass": mass, "weight": weight}
    check({"length": (length,), **values, **colliding.values})
    numbers = np.arange(1.0, modes + 1)
    length, values = parameters(length=length)["length"], parameters(**values)
    params = {"length": (length,), **values, "l": numbers, **given_A}

    def H(q: Any, p: Any, params: Params) -> Any:
        x, p_x, p_y = q[:N], p[:N], p[N : 2 * N]
        Q, M = (product(x, params, "weight", name) for name in ("charge", "mass"))
        k = wave_numbers(q, params)
        A = wave_potential(x, q[2 * N :] / np.sqrt(N), params)
        A = A if vector_potential is None else A + vector_potential(x)
        light = jnp.sum(p[2 * N :] ** 2 + (scalar(q, params, "c") * k * q[2 * N :]) ** 2) / 2
        value = jnp.sum((p_x**2 + (p_y - Q * A) ** 2) / (2 * M)) + light
        if field is not None:
            value += N * jnp.sum(field.energies((x,), Q, params["length"]))
        return value if potential is None else value + jnp.sum(Q * potential(x))

    invariants: dict[str, Callable[..., Any]] = {"energy": H}
    if (field is None or isinstance(field, Fourier)) and not (potential or vector_potential):
        invariants["momentum_x"] = total_momentum
    plasma = {"H": H, "dim": 2 * N + 2 * modes, "name": "vlasov_maxwell", "check": check}
    plasma |= {"params": params, "invariants": invariants}
    lengths = np.repeat([1.0, 0.0], [N, N + 2 * modes])  # only x is a place in the box
    plasma["periods"] = lambda params: lengths * np.asarray(params["length"][0])
    return colliding.added(plasma, (N, 2), 1, light=True)


@dataclass(frozen=True)
class _ReadByH(Rule):
    """A parameter that is a function, which H has read: no other can take its place."""

    fun: Any = None

    def check(self, name: str, value: Any) -> None:
        """Refuse another one."""
        if getattr(value, "func", None) is not self.fun:
            raise ValueError(f"{name} is part of H: make another plasma, with {name}=.")
