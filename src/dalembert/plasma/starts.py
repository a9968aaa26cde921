"""Where the particles of a plasma begin: evenly spread, for a quiet start, or at random."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from dalembert.elementary import sin
from dalembert.plasma.fields import require_particles
from dalembert.plasma.particles import is_count, require_physical
from dalembert.plasma.placed import begins_in, check_key, placed
from dalembert.plasma.velocities import AT_REST, Maxwellian, velocity_parts
from dalembert.precision import is_traced, with_precision
from dalembert.quantiles import joint_quantiles, quantile_function
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import require

__all__ = ["Start", "Together", "even_points"]

SOBOL = ((0, (1,)), (1, (1, 3)), (1, (1, 3, 1)))
"""Sobol's second to fourth coordinate by Joe and Kuo: the bits between the first and the last one
of a primitive polynomial, and direction numbers to begin with."""
NEGLIGIBLE = 1e-3
"""Of the energy of all velocities, beyond an interval that is to be all of them."""
HALVINGS = 54
"""Of an interval no longer than 4, after which it is below rounding."""


@says_its_words
@dataclass(frozen=True, eq=False)
class Start:
    """Initial states of N particles with density f₀(v) (1 + α cos k·x), or any, in a periodic box.

        start = da.plasma.Start(N, length, amplitude=0.05)
        run = da.simulate(plasma, method, start.quiet(), …)    # or start.random

    A plasma of several species has the starts of each, one after the other: `Start.together`. In a
    run, a start that is made for another box, mass or weight than those of the plasma is refused.

    Args:
        N: number of particles.
        length: of the box, L or (L_x, L_y), as for `vlasov_poisson`.
        amplitude: α of the perturbation, between −1 and 1.
        mode: number l of k = 2πl/L along x, 1 or more; or a pair for both axes.
        velocities: distribution along x, a `da.plasma.Maxwellian` or several that add up to 1; or
            any density, a function of one velocity that vanishes beyond ±reach.
        components: of the velocity; as many as the box has dimensions if not given.
        transverse: temperature of the components other than x.
        mass, weight: of the particles, numbers or arrays (N,), as for `vlasov_poisson`: momenta are
            mass times weight times velocity.
        density: along x in place of 1 + α cos k·x, any function of one position; its integral does
            not matter.
        reach: of velocities that have any density.
        distribution: of x and v_x together, any function f(x, v) ≥ 0 of two numbers on the box and
            |v| < reach, in place of density, amplitude and velocities; its integral does not
            matter.
    """

    N: int
    length: Any = 4 * np.pi
    amplitude: float = 0.0
    mode: int | tuple[int, int] = 1
    velocities: Maxwellian | Sequence[Maxwellian] | Callable[[Any], Any] = AT_REST
    components: int | None = None
    transverse: float = 1.0
    mass: Any = 1.0
    weight: Any = 1.0
    density: Callable[[Any], Any] | None = None
    reach: float = 8.0
    distribution: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        sides, numbers = self._sides, self._mode_numbers
        require_particles(self.N)
        require_physical(length=sides, mass=self.mass, weight=self.weight)
        for name, value, need, holds in (
            ("amplitude", self.amplitude, "between -1 and 1", lambda v: abs(v) < 1),
            ("transverse", self.transverse, "at least 0", lambda v: (v >= 0) & (v < np.inf)),
        ):
            require(name, value, need, holds, "no density or temperature is negative")
        if len(sides) not in (1, 2) or not 0 < len(numbers) <= len(sides):
            raise ValueError(
                f"length is {self.length!r} and mode {self.mode!r}, but a box has one or two "
                "dimensions, and a mode at most as many numbers."
            )
        if not all(is_count(n, -np.inf, np.inf) for n in numbers) or numbers[0] < 1:
            raise ValueError(f"mode is {self.mode!r}, but must be whole, and 1 or more along x.")
        if not is_count(self._components, len(sides), 3):
            raise ValueError(
                f"components is {self.components!r}, but must be at least the {len(sides)} of the "
                "box and at most 3."
            )
        require("reach", self.reach, "above 0", lambda v: (v > 0) & (v < np.inf), "a velocity")
        of_velocity: Any = self.velocities
        if not callable(of_velocity):
            velocity_parts(of_velocity)
        has_wave = self.amplitude != 0 or numbers != (1,)
        if self.density is not None and has_wave:
            raise ValueError("a density has its waves in it: give no amplitude or mode besides.")
        if self.distribution is not None and (
            self.density is not None or has_wave or of_velocity is not AT_REST
        ):
            raise ValueError(
                "a distribution is that of positions and velocities: give neither density, "
                "amplitude, mode nor velocities besides."
            )
        for name in ("mass", "weight"):
            if np.shape(getattr(self, name)) not in ((), (self.N,)):
                raise ValueError(f"{name} must be a number or an array of shape ({self.N},).")

    @property
    def _sides(self) -> tuple[float, ...]:
        return tuple(self.length) if isinstance(self.length, list | tuple) else (self.length,)

    @property
    def _mode_numbers(self) -> tuple[int, ...]:
        return tuple(self.mode) if isinstance(self.mode, list | tuple) else (self.mode,)

    @property
    def _components(self) -> int:
        return len(self._sides) if self.components is None else self.components

    @staticmethod
    def together(*starts: "Start") -> "Together":
        """The starts of several species in one box, whose particles follow one another.

        start = da.plasma.Start.together(electrons, ions)
        run = da.simulate(plasma, method, start.quiet(), …)    # or start.random
        """
        return Together(starts)

    def quiet(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions and momenta of particles that fill phase space evenly: fields without noise."""
        q, p = with_precision(
            self._placed, even_points(self.N, len(self._sides) + self._components)
        )
        return placed(q, p, self.begins_in)

    def random(self, key: Any = None) -> tuple[Any, Any]:
        """Positions and momenta of independent particles: a sampler for `da.simulate`."""
        check_key(key)
        u = jax.random.uniform(key, (len(self._sides) + self._components, self.N))
        # Never 0 nor 1, where normal variables are infinite.
        return self._placed(jnp.clip(u, jnp.finfo(u.dtype).tiny, 1 - jnp.finfo(u.dtype).epsneg))

    def begins_in(self, system: System) -> None:
        """Refuse a plasma with another box, or particles of other masses or weights."""
        begins_in(system, self._sides, {"mass": self.mass, "weight": self.weight})

    def _placed(self, u: Any) -> tuple[Any, Any]:
        """Points of the unit cube, shape (coordinates, N), to positions and momenta.

        The coordinates are x, v_x, y, v_y, v_z, as far as there are these.
        """
        u, sides = jnp.asarray(u), self._sides
        two = len(sides) == 2
        across = [sides[1] * u[2]] if two else []
        of_velocity: Any = self.velocities
        others = [
            jnp.sqrt(jnp.asarray(self.transverse, u.dtype)) * ndtri(row) for row in u[2 + two :]
        ]
        if self.distribution is not None:
            first, along = self._both(u[0], u[1])
        elif callable(of_velocity):
            along = _any_velocity(u[1], of_velocity, self.reach)
        else:
            along = _velocity(u[1], velocity_parts(of_velocity))
        if self.distribution is None:
            first = self._along(u[0], across)
        x, v = [first, *across], [along, *others]
        # Positions beyond those of the box are ignored by all that happens.
        x += [jnp.zeros_like(u[0])] * (len(v) - len(x))
        scale = jnp.asarray(self.mass, u.dtype) * jnp.asarray(self.weight, u.dtype)
        p = [jnp.broadcast_to(scale, row.shape) * row for row in v]
        return (x[0], p[0]) if len(v) == 1 else (jnp.stack(x, 1), jnp.stack(p, 1))

    def _both(self, u: Any, w: Any) -> tuple[Any, Any]:
        """x of which a share u is to the left, and v_x of which a share w is slower there."""
        density: Any = self.distribution
        low, high = (0.0, -self.reach), (self._sides[0], self.reach)
        quantiles, v, f = joint_quantiles(density, low, high)
        _check_reach(v, f)
        return quantiles(u, w)

    def _along(self, u: Any, across: list[Any]) -> Any:
        """x of which a share u is to the left: s + α (sin(s + θ) − sin θ) = 2πl u for s = kx."""
        if self.density is not None:
            return quantile_function(self.density, 0.0, self._sides[0])(u)
        numbers = self._mode_numbers
        phase = jnp.zeros_like(u)
        if len(numbers) == 2:
            phase += 2 * np.pi * numbers[1] / self._sides[1] * across[0]
        target, reach = 2 * np.pi * numbers[0] * u, 2 * abs(self.amplitude)

        def halve(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
            low, high = ends
            s = (low + high) / 2
            is_left = s + self.amplitude * (sin(s + phase) - sin(phase)) < target
            return jnp.where(is_left, s, low), jnp.where(is_left, high, s)

        low, high = jax.lax.fori_loop(0, HALVINGS, halve, (target - reach, target + reach))
        return (low + high) / 2 * (self._sides[0] / (2 * np.pi * numbers[0]))


@dataclass(frozen=True, eq=False)
class Together:
    """The starts of several species, quiet or random: made by `Start.together`.

    Args:
        starts: of each species, in the order of the particles of the plasma.
    """

    starts: tuple[Start, ...]

    def __post_init__(self) -> None:
        if not self.starts or not all(isinstance(one, Start) for one in self.starts):
            raise TypeError(
                f"together takes starts such as da.plasma.Start(N, length), not {self.starts!r}."
            )
        for name, values in (
            ("length", [one._sides for one in self.starts]),
            ("components", [one._components for one in self.starts]),
        ):
            if len(set(values)) > 1:
                raise ValueError(f"species are in one box, but {name} of them is {values}.")

    @property
    def N(self) -> int:
        """How many particles all species have."""
        return sum(one.N for one in self.starts)

    def quiet(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions and momenta of particles of which each species fills phase space evenly."""
        q, p = (np.concatenate(z) for z in zip(*(one.quiet() for one in self.starts), strict=True))
        return placed(q, p, self.begins_in)

    def random(self, key: Any = None) -> tuple[Any, Any]:
        """Positions and momenta of independent particles: a sampler for `da.simulate`."""
        check_key(key)
        keys = jax.random.split(key, len(self.starts))
        drawn = [one.random(key) for one, key in zip(self.starts, keys, strict=True)]
        q, p = (jnp.concatenate(z) for z in zip(*drawn, strict=True))
        return q, p

    def begins_in(self, system: System) -> None:
        """Refuse a plasma with another box, or particles of other masses or weights."""
        of: dict[str, Any] = {
            name: [getattr(one, name) for one in self.starts] for name in ("mass", "weight")
        }
        if not is_traced(of):
            counts = [one.N for one in self.starts]
            for name, values in of.items():
                parts = [np.broadcast_to(x, n) for x, n in zip(values, counts, strict=True)]
                of[name] = np.concatenate(parts)
            begins_in(system, self.starts[0]._sides, of)


def _any_velocity(u: Any, density: Callable[[Any], Any], reach: float) -> Any:
    """Velocities of which a share u of any density is slower."""
    quantile = quantile_function(density, -reach, reach)
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        v = np.linspace(-reach, reach, 1025)
        _check_reach(v, np.asarray(jax.vmap(density)(jnp.asarray(v))))
    return quantile(u)


def _check_reach(v: np.ndarray, f: np.ndarray) -> None:
    """Refuse a density of velocities that goes on beyond the interval."""
    reach, energies = v[-1], v * v * f
    # Of what lies beyond ±reach there would be energy of about the height at the ends times reach.
    if reach * max(energies[0], energies[-1]) > NEGLIGIBLE * np.trapezoid(energies, v):
        raise ValueError(
            f"the density of velocities does not vanish at ±{reach:g}, nor does the energy of what "
            "is beyond: give a larger reach, or make it zero there yourself."
        )


def _velocity(u: Any, parts: Sequence[Maxwellian]) -> Any:
    """Velocities along x from shares u: one part after the other, each by its inverse."""
    v, before = jnp.zeros_like(u), 0.0
    for part in parts:
        share = jnp.clip((u - before) / part.fraction, jnp.finfo(u.dtype).tiny, None)
        share = jnp.minimum(share, 1 - jnp.finfo(u.dtype).epsneg)
        v = jnp.where(u >= before, part.drift + np.sqrt(part.temperature) * ndtri(share), v)
        before += part.fraction
    return v


def even_points(N: int, coordinates: int) -> np.ndarray:
    """N points that fill the open unit cube evenly, shape (coordinates, N): Sobol's sequence.

    The first coordinate is (i + ½)/N, which makes a set of the sequence (Hammersley's way), and the
    others are Sobol's, each in the middle of the last digit. Source: `JoeKuo2008`.
    """
    i, bits = np.arange(N), max(int(N - 1).bit_length(), 1)
    points = [(i + 0.5) / N]
    for directions in _directions(bits)[: coordinates - 1]:
        digits = np.zeros(N, np.int64)
        for place, direction in enumerate(directions):
            digits ^= (i >> place & 1) * (direction << bits - 1 - place)
        points.append((digits + 0.5) / 2**bits)
    return np.stack(points)


def _directions(bits: int) -> list[list[int]]:
    """Direction numbers of Sobol's coordinates, one for each binary digit of i."""
    found = [[1] * bits]
    for polynomial, first in SOBOL:
        m, s = list(first), len(first)
        while len(m) < bits:
            new = m[-s] ^ m[-s] << s
            for j in range(1, s):
                new ^= (polynomial >> s - 1 - j & 1) * m[-j] << j
            m.append(new)
        found.append(m[:bits])
    return found
