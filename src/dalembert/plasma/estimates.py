"""Means over particles with less noise: control variates (δf)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.elementary import cos_beside_sin, sin_beside_cos
from dalembert.plasma.canonical import is_canonical
from dalembert.plasma.fields import whole_numbers
from dalembert.plasma.particles import columns, effective
from dalembert.plasma.starts import Start
from dalembert.plasma.velocities import Maxwellian, velocity_parts
from dalembert.precision import is_traced
from dalembert.systems._parameters import Params

__all__ = ["DeltaF"]

DOUBT = 6.0
"""Standard errors that chance exceeds once in 5·10⁸ times."""

OWN_FIELD, WIDE = 14.0, 0.25
"""So many standard errors more are allowed in the field of the particles, but at most WIDE."""

LARGE_RATIO = 8.0
"""Bound of f₀/f in the second look at its mean, which a few large ratios cannot hide."""


@dataclass(frozen=True, eq=False)
class DeltaF:
    """Means over particles by what differs from the unperturbed plasma: a control variate.

    Without collisions, f is constant along every particle: it is known from where the particle
    began. A mean of g over f is that over the unperturbed f₀, which is known, and the mean over
    particles of g (1 − f₀/f) at each: their noise is that of the perturbation alone. (The noise of
    the field that has moved the particles stays.) With collisions f changes along particles, and
    this must not be used.

        state = start.random(key)
        observe = {"wave": da.plasma.DeltaF(start, state).density_modes(1)}
        run = da.simulate(plasma, method, state, observe=observe, …)

    A state that is not of such a start is refused, and so is a run from another state. The mean of
    f₀/f over the particles is 1 in whatever field they move: where it is far from that for its
    sampling error, all that is estimated is NaN.

    Args:
        start: what the particles were drawn from, in one dimension with one velocity.
        state: where they began, (q, p).
        moved: where they are when the run begins, if they have moved since.
    """

    start: Start
    state: tuple[Any, Any]
    moved: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.start, Start):
            raise TypeError(f"start must be a da.plasma.Start, not {self.start!r}.")
        any_density = self.start.density, self.start.distribution
        if any_density != (None, None) or callable(self.start.velocities):
            raise ValueError("DeltaF knows Maxwellians with a wave, and no other densities.")
        if np.ndim(self.state[0]) != 1:
            raise ValueError("DeltaF is for one dimension with one velocity: q of shape (N,).")
        if not is_traced(self.state):
            self._check_state()

    def begins(self, initial: Any) -> None:
        """Refuse to observe a run from another state than that of the particles."""
        state = self.state if self.moved is None else self.moved
        is_pair = isinstance(initial, tuple | list) and len(initial) == 2
        if is_traced(initial, state) or not (callable(initial) or is_pair):
            return
        name = "state" if self.moved is None else "moved state"
        if callable(initial):
            raise ValueError(
                "DeltaF has one state, and a sampler draws others: draw one with "
                "state = start.random(key), and give it to DeltaF and to the run."
            )
        for mine, given in zip(state, initial, strict=True):
            given = np.asarray(given)
            # Another number of particles is refused where means are taken.
            is_as_many = given.shape[-1:] == np.shape(mine)
            if is_as_many and not np.all(given == np.asarray(mine)):
                raise ValueError(
                    f"the run begins from another state than the {name} of DeltaF: give it the "
                    "same one, and DeltaF(start, state, moved=…) if particles have moved since."
                )

    def _check_state(self) -> None:
        """Refuse a state that is not drawn from the start, by means of waves in x and v."""
        parts: Any = velocity_parts(self.start.velocities)  # pyright: ignore[reportArgumentType]
        x, p = (np.asarray(z, np.float64) for z in self.state)
        v = p / (np.asarray(self.start.mass) * np.asarray(self.start.weight))
        k = 2 * np.pi * np.atleast_1d(self.start.mode)[0] / np.atleast_1d(self.start.length)[0]
        s = 1 / np.sqrt(sum(part.fraction * (part.temperature + part.drift**2) for part in parts))

        def wave_of_velocities(s: float) -> complex:
            return sum(
                part.fraction * np.exp(1j * s * part.drift - s**2 * part.temperature / 2)
                for part in parts
            )

        waves = {
            f"the wave of amplitude {self.start.amplitude}": (k * x, self.start.amplitude / 2),
            "the length of the box": (2 * k * x, 0.0),
            "the velocities": (s * v, wave_of_velocities(s)),
            "the velocities in detail": (3 * s * v, wave_of_velocities(3 * s)),
        }
        for what, (phase, expected) in waves.items():
            for trig, known in ((np.cos, np.real(expected)), (np.sin, np.imag(expected))):
                values = trig(phase)
                gap = abs(np.mean(values) - known)
                if gap > DOUBT * np.std(values) / np.sqrt(x.size) + DOUBT / x.size:
                    raise ValueError(
                        f"the state is not drawn from this start: {what} would be another one. "
                        "Give the start whose quiet() or random(key) it is."
                    )

    def weights(self, q: Any, p: Any, params: Params) -> Any:
        """1 − f₀/f at every particle, shape (N,)."""
        if not isinstance(params, Mapping) or "length" not in params:
            raise ValueError("DeltaF is for systems of da.plasma.vlasov_poisson, and this is none.")
        if "nu" in params:
            raise ValueError(
                "DeltaF needs f to be constant along particles, and this plasma has collisions: "
                "use da.plasma.density_modes."
            )
        if is_canonical(params):
            raise ValueError(
                "DeltaF is for one dimension with one velocity, and particles of vlasov_maxwell "
                "have two: use da.plasma.density_modes."
            )
        if np.shape(self.state[0]) != q.shape:
            raise ValueError(
                f"DeltaF has a state of shape {np.shape(self.state[0])}, and the plasma has "
                f"{q.shape}: give the state that the run begins with."
            )
        x, before = (jnp.asarray(z, q.dtype) for z in self.state)
        M = effective(q, params, "weight", "mass")
        length = np.atleast_1d(self.start.length)[0]
        k = 2 * np.pi * np.atleast_1d(self.start.mode)[0] / length
        # In a box of another length the start is no start: nothing is known, not even at a trace.
        k = jnp.where(
            jnp.abs(params["length"][0] / length - 1) < 1e-6, jnp.asarray(k, q.dtype), jnp.nan
        )
        velocities: Any = self.start.velocities
        parts = velocity_parts(velocities)
        own = _density(before / M, parts) * (1 + self.start.amplitude * cos_beside_sin(k * x))
        ratio = _density(p / M, parts) / own
        return jnp.where(_is_one_in_the_mean(ratio), 1 - ratio, jnp.nan)

    def density_modes(self, modes: int = 1) -> Any:
        """Observable: waves of the charge density as `da.plasma.density_modes` has them."""

        def waves(q: Any, p: Any, params: Params) -> Any:
            return 2 * jnp.mean(self._waves(modes, q, p, params)[0], axis=-1)

        return self._from_its_start(waves)

    def mean(self, function: Callable[[Any, Any], Any], known: float) -> Any:
        """Observable: the mean of a function of positions and velocities over the particles.

        Args:
            function: (x, v), each of shape (N,), → (N,); such as v² of the temperature.
            known: its mean in the unperturbed plasma, where ⟨v²⟩ is the temperature.
        """

        def mean(q: Any, p: Any, params: Params) -> Any:
            values = function(q, p / effective(q, params, "weight", "mass"))
            if jnp.shape(values) != q.shape:
                raise ValueError(
                    f"the function gives shape {jnp.shape(values)}, but must give one value for "
                    f"each of {q.shape[0]} particles."
                )
            return known + jnp.mean(values * self.weights(q, p, params))

        return self._from_its_start(mean)

    def gain(self, modes: int = 1) -> Any:
        """Observable: the variance without this estimate over that with it, shape (2, modes)."""

        def gain(q: Any, p: Any, params: Params) -> Any:
            with_it, without = self._waves(modes, q, p, params)
            return jnp.var(without, axis=-1) / jnp.var(with_it, axis=-1)

        return self._from_its_start(gain)

    def _from_its_start(self, observable: Any) -> Any:
        """An observable of which `da.simulate` asks whether the run begins where it must."""
        observable.begins = self.begins
        return observable

    def _waves(self, modes: int, q: Any, p: Any, params: Params) -> tuple[Any, Any]:
        """Q cos kx and Q sin kx of all particles, (2, modes, N), with weights and without."""
        whole_numbers("modes", modes, 1)
        (x,) = columns(q, 1)
        k = 2 * np.pi * np.arange(1.0, modes + 1) / params["length"][0]
        phase = jnp.asarray(k, x.dtype)[:, None] * x[None, :]
        charge = effective(q, params, "weight", "charge")
        waves = jnp.stack([cos_beside_sin(phase), sin_beside_cos(phase)]) * charge[None, None, :]
        return waves * self.weights(q, p, params)[None, None, :], waves


def _is_one_in_the_mean(ratio: Any) -> Any:
    """Whether the mean of f₀/f is 1, as far as sampling can tell.

    Volumes in phase space stay what they are, so that the mean over f is 1 in any given field. In
    the field of the particles themselves it is off by more than sampling explains: up to eight
    standard errors were seen, with 64 modes. A few large ratios have large errors, which may hide
    a mean above 1: that of ratios up to a bound, which must not be above 1 either, shows it.
    """
    N = ratio.shape[0]

    def error(values: Any) -> Any:
        one = jnp.std(values) / np.sqrt(N)
        return DOUBT * one + jnp.minimum(OWN_FIELD * one, WIDE) + DOUBT / N

    bounded = jnp.minimum(ratio, LARGE_RATIO)
    is_low = jnp.mean(ratio) < 1 - error(ratio)
    return (jnp.mean(bounded) <= 1 + error(bounded)) & ~is_low


def _density(v: Any, parts: tuple[Maxwellian, ...]) -> Any:
    """Density of velocities along x."""
    return sum(
        part.fraction
        / np.sqrt(2 * np.pi * part.temperature)
        * jnp.exp(-((v - part.drift) ** 2) / (2 * part.temperature))
        for part in parts
    )
