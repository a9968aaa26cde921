"""Collisions of a plasma as flows: what they do to velocities in a time, exact in what they keep.

Each operator is a record that makes a `da.Flow` for a plasma, and `Forces` where it is a forced
Hamiltonian term. Its rate is the parameter `nu` of the system, ν. Velocities are v = p/M, and cells
of the box are where local means are taken.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.flow import Flow
from dalembert.plasma.cells import Cells, Means, cell_numbers, counts_per_axis, random_pairs
from dalembert.plasma.fields import whole_numbers
from dalembert.plasma.observables import kinetic_energy, momentum
from dalembert.plasma.particles import beside, effective, product, scalar
from dalembert.plasma.turning import turned
from dalembert.precision import is_traced
from dalembert.sizes import size_of
from dalembert.systems._parameters import Params, require

__all__ = ["CoulombPairs", "Dougherty", "Forces", "LenardBernstein", "Lorentz"]


@dataclass(frozen=True)
class Forces:
    """Collisions as forces of particles inside a method.

    Args:
        F: the force, `(q, p, params)`, or None.
        f: the noise force, `(q, p, w, params)`, linear in w.
        noises: the number of Wiener processes, or the shape of w.
        name: what they are called.
        keeps: what they keep along every path, as `da.Flow` has it.
    """

    F: Callable[..., Any] | None
    f: Callable[..., Any]
    noises: Any
    name: str = "forces"
    keeps: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = f"noises of the forces {self.name!r}"
        object.__setattr__(self, "noises", size_of(name, "Wiener processes", self.noises).shape)


@dataclass(frozen=True)
class LenardBernstein:
    """Friction and noise that lead to a given temperature: Lenard and Bernstein's operator.

        ∂f/∂t = ν ∂_v·((v − u) f + (T/m) ∂_v f),   u = 0

    The Ornstein–Uhlenbeck process of every particle, exact in law. It conserves particles. With
    cells, u is the local mean velocity, and momentum is conserved in every cell to rounding.

    Args:
        cells: of the box, or a pair of such numbers in two dimensions, in which momentum is
            conserved; None: nowhere.
    """

    cells: Cells | None = None
    name: ClassVar[str] = "Lenard-Bernstein collisions"

    def __post_init__(self) -> None:
        if self.cells is not None:
            object.__setattr__(self, "cells", whole_numbers("cells", self.cells, 1))

    def flow(self, shape: tuple[int, ...], axes: int, params: Params) -> Flow:
        """Exact, with the local mean of what noise has added taken away."""
        cells = None if self.cells is None else counts_per_axis(self.cells, axes, shape[0])

        def act(q: Any, p: Any, w: Any, h: Any, params: Params) -> tuple[Any, Any]:
            M = beside(effective(q, params, "weight", "mass"), q)
            heat = effective(q, params, "temperature") / effective(q, params, "mass")
            v, kick = p / M, _kick(q, w, h, beside(heat, q), params)
            decay = jnp.exp(-_rate(q, params) * h)
            if cells is None:
                return q, M * (decay * v + kick)
            means = Means(q, M, cells, params)
            u = means.of(v)
            moved = decay * (v - u) + kick
            return q, M * (u + moved - means.of(moved))

        keeps = {} if cells is None else {"momentum": momentum}
        return Flow(act, shape, self.name, keeps)

    def forces(self, shape: tuple[int, ...], axes: int, params: Params) -> Forces:
        """Friction and a noise for each component; about the mean velocity if the box is a cell."""
        if self.cells is None:
            return Forces(_friction, _kicks, shape, self.name, {})
        if prod(counts_per_axis(self.cells, axes, shape[0])) > 1:
            raise ValueError(
                f"inside=True, but local means of {self} jump where a particle goes from one cell "
                "to another, and forces inside a method must not: leave inside out, for a flow, or "
                "take cells=1."
            )

        def without_mean(forces: Any, q: Any, params: Params) -> Any:
            M = beside(effective(q, params, "weight", "mass"), q)
            return forces - M * (jnp.sum(forces, axis=0, keepdims=True) / jnp.sum(M))

        return Forces(
            lambda q, p, params: without_mean(_friction(q, p, params), q, params),
            lambda q, p, w, params: without_mean(_kicks(q, p, w, params), q, params),
            shape,
            self.name,
            {"momentum": momentum},
        )


@dataclass(frozen=True)
class Dougherty:
    """Friction and noise about the local velocity and temperature: Dougherty's operator.

        ∂f/∂t = ν ∂_v·((v − u) f + (T/m) ∂_v f),   u(x), T(x) of f itself

    It conserves particles, momentum and energy in every cell, to rounding: all velocities of a cell
    move on the sphere of one momentum and energy. The noise w of a cell, without its mean, is
    followed along that sphere, so far that velocities lose what the exact process about u and T
    would take from them: in a cell of n particles, with an error of 1/n. The opposite noise leads
    back. Species relax to one velocity and temperature.

    Source: `Dougherty1964`.

    Args:
        cells: of the box, or a pair of such numbers in two dimensions.
    """

    cells: Cells = 1
    name: ClassVar[str] = "Dougherty collisions"
    reads_temperature: ClassVar[bool] = False
    why_not_inside: ClassVar[str] = "it keeps energy by following a sphere, cell by cell"

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", whole_numbers("cells", self.cells, 1))

    def flow(self, shape: tuple[int, ...], axes: int, params: Params) -> Flow:
        """Along the sphere of one momentum and energy, towards the noise."""
        cells = counts_per_axis(self.cells, axes, shape[0])

        def act(q: Any, p: Any, w: Any, h: Any, params: Params) -> tuple[Any, Any]:
            M = beside(effective(q, params, "weight", "mass"), q)
            means = Means(q, M, cells, params)
            mass = beside(effective(q, params, "mass"), q)
            v = p / M
            u = means.of(v)
            own = v - u
            energy = means.of(_square(own))
            # T per mass of all that is in a cell, over m of each particle.
            heat = energy / (means.of(1 / mass) * _components(q)) / mass
            kick = jnp.sqrt(heat) * (w / jnp.sqrt(h))
            kick -= means.of(kick)
            moved = _towards(own, kick, _rate(q, params) * h, means.of)
            moved -= means.of(moved)
            new = means.of(_square(moved))
            return q, M * (u + moved * jnp.sqrt(energy / jnp.where(new > 0, new, 1.0)))

        return Flow(act, shape, self.name, {"momentum": momentum, "kinetic energy": kinetic_energy})


@dataclass(frozen=True)
class Lorentz:
    """Scattering of the direction of velocities by heavy particles: Lorentz' operator.

        ∂f/∂t = ν r(|v|) ∂²f/∂θ²   for two components,   (ν r(|v|)/2) Δ_sphere f   for three

    It conserves particles and the speed of each, to rounding. Means of cos mθ decay as e^{−νrm²t},
    those of Legendre's P_l as e^{−νr l(l+1)t/2}, see `dalembert.plasma.turning`.

    Args:
        rate: r ≥ 0, a function of an array of speeds that gives one rate for each; None: one.
    """

    rate: Callable[[Any], Any] | None = None
    name: ClassVar[str] = "Lorentz collisions"
    reads_temperature: ClassVar[bool] = False

    def __post_init__(self) -> None:
        given: Any = self.rate
        if given is not None and not callable(given):
            raise TypeError(
                f"rate is {given!r}, but must be a function of an array of speeds, such as "
                "lambda v: 1 / (1 + v**3): a rate that is the same for all speeds is nu= of the "
                "plasma."
            )

    def flow(self, shape: tuple[int, ...], axes: int, params: Params) -> Flow:
        """A random rotation of every velocity."""
        _check_components(self.name, shape)
        N, components = shape
        if self.rate is not None:
            _check_rate(self.rate, N)

        def act(q: Any, p: Any, w: Any, h: Any, params: Params) -> tuple[Any, Any]:
            variance = self._at_speeds(q, p, params) * h * (2 if components == 2 else 1)
            return q, turned(p, variance, w / jnp.sqrt(h))

        return Flow(act, (N, _turns(components)), self.name, {"kinetic energy": kinetic_energy})

    def forces(self, shape: tuple[int, ...], axes: int, params: Params) -> Forces:
        """√(2νr) (p_y, −p_x) dW for two components, √(νr) p × dW for three: across the velocity."""
        _check_components(self.name, shape)
        if self.rate is not None:
            _check_rate(self.rate, shape[0])

        def turn(q: Any, p: Any, w: Any, params: Params) -> Any:
            size = jnp.sqrt(self._at_speeds(q, p, params))[:, None]
            if p.shape[1] == 2:
                return np.sqrt(2) * size * w * jnp.stack([p[:, 1], -p[:, 0]], axis=1)
            return size * jnp.cross(p, w)

        noises = shape[0], _turns(shape[1])
        return Forces(None, turn, noises, self.name, {"kinetic energy": kinetic_energy})

    def _at_speeds(self, q: Any, p: Any, params: Params) -> Any:
        """ν r(|v|) at every particle, shape (N,)."""
        rate = jnp.broadcast_to(_rate(q, params), q.shape[:1])
        if self.rate is None:
            return rate
        square = jnp.sum(p**2, axis=1)
        # At rest the root has no derivative, which stage equations ask for.
        root = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
        given = jnp.asarray(self.rate(root / effective(q, params, "weight", "mass")), q.dtype)
        # A rate below zero is none: its path fails, and is not left as it is.
        return rate * jnp.where(given >= 0, given, jnp.nan)


@dataclass(frozen=True)
class CoulombPairs:
    """Collisions of random pairs, within and between species: Landau's operator in Kac's form.

        ∂f_a/∂t = Σ_b (ν/2) (q_a²q_b²/m_a) ∂_v·∫ g(|u|) (|u|²I − uuᵀ) (f_b ∂_v f_a/m_a
                  − f_a ∂_v' f_b/m_b) dv',   u = v − v',   g = |u|⁻³ (Coulomb) or 1 (Maxwell)

    for densities relative to 1: ν = n e⁴ ln Λ/(4π ε₀² m² v_th³) of electrons with the Coulomb
    kernel. All particles of a cell form random pairs, new ones every half step, and the relative
    velocity of each pair turns by a random angle of variance ν h (q_a q_b/μ)² g(|u|) times the
    local density, μ the reduced mass. It conserves particles, momentum and energy, pair by pair to
    rounding. Anisotropy of Maxwell molecules decays at the rate 6ν.

    All particles must have the same weight.

    Source: `TakizukaAbe1977`; `Nanbu1997`.

    Args:
        kernel: "coulomb" or "maxwell".
        cells: of the box in which pairs are formed, or a pair of such numbers in two dimensions.
    """

    kernel: Literal["coulomb", "maxwell"] = "coulomb"
    cells: Cells = 1
    reads_temperature: ClassVar[bool] = False
    why_not_inside: ClassVar[str] = "its pairs are new ones every half step"

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", whole_numbers("cells", self.cells, 1))
        if self.kernel not in ("coulomb", "maxwell"):
            raise ValueError(f"kernel is {self.kernel!r}, but must be 'coulomb' or 'maxwell'.")

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.kernel.capitalize()} pair collisions"

    def flow(self, shape: tuple[int, ...], axes: int, params: Params) -> Flow:
        """One random pairing, and a rotation of every relative velocity."""
        _check_components(self.name, shape)
        cells = counts_per_axis(self.cells, axes, shape[0])
        _check_weights(self.name, params)
        N, components = shape
        turns, slots = _turns(components), (N + 1) // 2

        def act(q: Any, p: Any, w: Any, h: Any, params: Params) -> tuple[Any, Any]:
            _check_weights(self.name, params)
            cell = cell_numbers(q, cells, params)
            order, first, crowd = random_pairs(cell, w[:N], prod(cells), q.dtype)
            mass, charge = (effective(q, params, name)[order] for name in ("mass", "charge"))
            weight = effective(q, params, "weight")[order]
            ahead = jnp.roll(jnp.arange(N), -1)
            v = p[order] / (weight * mass)[:, None]
            u = v - v[ahead]
            total = mass + mass[ahead]
            reduced = mass * mass[ahead] / total
            square = jnp.sum(u**2, axis=1)
            density = crowd * weight
            variance = h * _rate(q, params) * density
            variance = variance * (charge * charge[ahead] / reduced) ** 2
            if self.kernel == "coulomb":
                variance = variance / jnp.where(square > 0, square, 1.0) ** 1.5
            # No two pairs that begin at positions i < j, j ≥ i + 2, have i // 2 = j // 2.
            normal = (w[N:] / jnp.sqrt(h)).reshape(slots, turns)[jnp.arange(N) // 2]
            kick = jnp.where(first[:, None], turned(u, variance, normal) - u, 0.0)
            kick = (weight * reduced)[:, None] * kick
            change = kick - jnp.roll(kick, 1, axis=0)
            return q, jnp.asarray(p).at[order].add(change, unique_indices=True)

        keeps = {"momentum": momentum, "kinetic energy": kinetic_energy}
        return Flow(act, N + turns * slots, self.name, keeps)


def _friction(q: Any, p: Any, params: Params) -> Any:
    return -scalar(q, params, "nu") * p


def _kicks(q: Any, p: Any, w: Any, params: Params) -> Any:
    variance = 2 * scalar(q, params, "nu") * product(q, params, "mass", "temperature")
    return beside(product(q, params, "weight") * jnp.sqrt(variance), q) * w


def _rate(q: Any, params: Params) -> Any:
    """ν: one below zero is refused, and if its value is not known yet, all that follows is NaN."""
    nu = params["nu"]
    require("nu", nu, "at least 0", lambda v: (v >= 0) & (v < np.inf), "it is a collision rate")
    nu = scalar(q, params, "nu")
    return jnp.where(nu >= 0, nu, jnp.nan)


def _kick(q: Any, w: Any, h: Any, heat: Any, params: Params) -> Any:
    """What noise adds to velocities in a time h: variance (T/m) (1 − e^{−2νh})."""
    spread = -jnp.expm1(-2 * _rate(q, params) * h) / h
    return jnp.sqrt(heat * spread) * w


def _towards(own: Any, kick: Any, time: Any, mean: Callable[[Any], Any]) -> Any:
    """Velocities on a sphere after what leads from them towards a kick, up to a common factor.

    With unit vectors v and a it is (v + a ((v·a)(cosh f − 1) + sinh f))/(cosh f + (v·a) sinh f),
    the solution of v' = a − (v·a)v at f; −a leads back. cosh f = e^{s²/2} with s² = 2νh |a|²/E|a|²:
    in a cell of many particles s² = 2νh, and v loses e^{−νh}; on a path with derivatives f is s up
    to third order.
    """
    size, reach = mean(_square(own)), mean(_square(kick))
    moves = (size > 0) & (reach > 0)
    size, reach = jnp.where(moves, size, 1.0), jnp.where(moves, reach, 1.0)
    s2 = 2 * time * reach / size
    left, gained = jnp.exp(-s2 / 2), jnp.sqrt(-jnp.expm1(-s2))
    cosine = jnp.clip(mean(_inner(own, kick)) / jnp.sqrt(size * reach), -1.0, 1.0)
    moved = left * own + (cosine * (1 - left) + gained) * jnp.sqrt(size / reach) * kick
    # Who is opposite to the kick, as one of two particles may be, stays there.
    return jnp.where(moves & ~(1 + cosine * gained <= 1e-6), moved, own)


def _inner(v: Any, w: Any) -> Any:
    return v * w if v.ndim == 1 else jnp.sum(v * w, axis=1, keepdims=True)


def _square(v: Any) -> Any:
    return v**2 if v.ndim == 1 else jnp.sum(v**2, axis=1, keepdims=True)


def _components(q: Any) -> int:
    return 1 if q.ndim == 1 else q.shape[1]


def _turns(components: int) -> int:
    """Normal numbers that a random rotation takes."""
    return 1 if components == 2 else 3


def _check_weights(name: str, params: Params) -> None:
    weight = params["weight"]
    if not is_traced(weight) and np.ptp(np.asarray(weight)) > 0:
        raise ValueError(
            f"{name} need particles of one weight, not of weights from {np.min(weight)} to "
            f"{np.max(weight)}: a pair of others cannot keep momentum and energy."
        )


def _check_rate(rate: Callable[[Any], Any], N: int) -> None:
    """Refuse a rate that does not give one number for every speed, or one for all."""
    need = f"rate must be a function of speeds, shape ({N},), that gives a rate for each"
    with jax.enable_x64(True):
        try:
            found = jax.eval_shape(
                lambda v: jnp.asarray(rate(v)), jax.ShapeDtypeStruct((N,), np.float64)
            )
        except Exception as error:
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise TypeError(f"{need}: it failed, {text}") from error
    if found.shape not in ((), (N,)):
        raise ValueError(f"{need}, not shape {found.shape}.")


def _check_components(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) < 2:
        raise ValueError(
            f"{name} turn velocities, which have one component here: write velocities=2 or 3."
        )
