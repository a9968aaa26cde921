"""Increments of the noise as pure functions of (seed, path number, step number).

A step never draws random numbers: it is given `Increments`. What it is given is decided here, by
one frozen record per kind of noise (`Gaussian`, `ThreePoint`, `Zero`, `Recorded`), each with

    offers      the fields of `Increments` that a method may ask for
    draw(...)   the increments of one path and one step; safe under jit, vmap and scan
    together    how many consecutive steps share random words
    draw_together(...)  the increments of one path over the n-th group of so many steps
    check(...)  what can be wrong with a run, said before it is compiled
    describe()  one line of provenance

The bits come from `dalembert.noise.philox`, whose docstring gives the counter layout. The random
words are the same everywhere; the normal numbers agree to rounding between devices, and between
programs that a compiler has arranged differently.
"""

import warnings
from dataclasses import dataclass
from math import ceil, isfinite, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.noise.areas import MAX_AREA_TERMS, levy_areas, numbers_of_areas
from dalembert.noise.increments import Group, Increments, Noise, real_increments, usable
from dalembert.noise.philox import (
    Integer,
    Stream,
    normal_numbers,
    plain_integer,
    step_word,
    stream_words,
)
from dalembert.noise.truncation import (
    NOTICEABLE,
    harmless_truncation,
    truncated_share,
    truncated_variance,
)
from dalembert.precision import cast


def _bound(k: float, dt: Any, dtype: np.dtype) -> jax.Array:
    """A = √(2 k h |ln h|), the largest |ΔW| that truncation leaves."""
    # A known dt is not left to the compiler, whose folded logarithm may differ from its own.
    numpy = jnp if isinstance(dt, jax.Array) else np
    h = numpy.asarray(dt, dtype if numpy is jnp else np.float64)
    return jnp.asarray(numpy.sqrt(2 * k * h * numpy.abs(numpy.log(h))), dtype)


def mixed_increments(three: Any, two: Any, numpy: Any = jnp) -> Any:
    """I_kl = Î_k Ĩ_l for l < k, −Î_l Ĩ_k for l > k: a lower triangle minus its transpose."""
    lower = numpy.tril(three[..., :, None] * two[..., None, :], -1)
    return lower - numpy.swapaxes(lower, -1, -2)


@dataclass(frozen=True)
class Gaussian(Noise):
    """ΔW = √h χ and ΔZ = h^{3/2}/2 (χ + η/√3) with χ, η independent N(0, 1).

    truncation=k (k ≥ 1, off by default) replaces ΔW outside [−A, A] by ±A, A = √(2 k h |ln h|), for
    implicit methods whose equations need bounded increments (Milstein, Repin, Tretyakov 2002), and
    counts how often. It bounds ΔW alone: the ΔZ of the same path would no longer have the joint law
    that a method relies on, so truncated noise offers no ΔZ. At large steps
    it takes variance away, with k = 1 and h = 0.1 six per cent: k must be larger there. A run warns
    where more than one increment in a hundred is truncated.

    areas=K (off by default) adds Lévy areas of pairs of noises: K terms of Lévy's Fourier series,
    and for the rest of it normal numbers that have its covariance given ΔW, as Wiktorsson (2001)
    does. Given ΔW, the covariance is exact; what is wrong with the law of an area is of the size
    h/K. Mean-square order 1 needs K of about 1/√h, which is the default of a method that reads
    areas. They cost 2Km + m(m + 1)/2 normal numbers a step.
    """

    truncation: float | None = None
    areas: int = 0

    def __post_init__(self) -> None:
        k = self.truncation
        if k is not None and (isinstance(k, bool) or not (k >= 1 and isfinite(k))):
            raise ValueError(
                f"truncation={k}: the bound sqrt(2 k dt |ln dt|) needs k >= 1; "
                "write truncation=1 or more, or None for no truncation"
            )
        plain_integer(self.areas, "areas", MAX_AREA_TERMS + 1)
        if self.areas and k is not None:
            raise ValueError(
                "truncated increments have no areas: write Gaussian(areas=…) without truncation"
            )

    @property
    def offers(self) -> frozenset[str]:
        if self.truncation is not None:
            return frozenset({"dW"})
        return frozenset({"dW", "dZ", "coin"} | ({"area"} if self.areas else set()))

    def draw_together(
        self, seed: Integer, path: Integer, number: Integer, dt: Any, noises: int, dtype: Any
    ) -> Group:
        """The increments of one path over four consecutive steps."""
        dtype = usable(dtype)
        h = jnp.asarray(dt, dtype)

        def normal(stream: Stream, scale: Any) -> Any:
            words = stream_words(stream, seed, path, number, noises)
            return normal_numbers(words, dtype, scale)

        def truncated(dW: Any) -> Increments:
            outside = jnp.sum(jnp.abs(dW) > bound, axis=-1, dtype=jnp.int32)
            return Increments(jnp.clip(dW, -bound, bound), truncated=outside)

        def complete(dW: Any, rest: Any, word: Any, *of_area: Any) -> Increments:
            one = jnp.ones_like(h)
            coin = jnp.where(word[0] < np.uint32(2**31), one, -one)
            area = levy_areas(dW, h, self.areas, *of_area) if of_area else None
            return Increments(dW, h / 2 * (dW + rest), area=area, coin=coin)

        if self.truncation is not None:
            bound = _bound(self.truncation, dt, dtype)
            return tuple(map(truncated, normal(Stream.GAUSSIAN, jnp.sqrt(h))))
        rest = normal(Stream.GAUSSIAN_AREA, jnp.sqrt(h / 3))
        fields = [normal(Stream.GAUSSIAN, jnp.sqrt(h)), rest]
        fields.append(stream_words(Stream.COIN, seed, path, number, 1))
        if self.areas:
            count = numbers_of_areas(self.areas, noises)
            words = stream_words(Stream.LEVY_AREA, seed, path, number, count)
            fields.append(normal_numbers(words, dtype))
        return tuple(map(complete, *fields))

    def check(self, dt: float, steps: int = 1, paths: int = 1, noises: int = 1) -> None:
        """Refuse a step size or a size of run for which this noise is not defined."""
        super().check(dt, steps, paths, noises)
        if self.truncation is not None and dt >= 1:
            raise ValueError(
                f"dt={dt} with truncation={self.truncation}: the bound sqrt(2 k dt |ln dt|) needs "
                "dt < 1; take a smaller step, rescale time, or switch truncation off"
            )
        if self.truncation is not None and noises:
            self._warn_of_lost_variance(dt)

    def _warn_of_lost_variance(self, dt: float) -> None:
        k: Any = self.truncation
        share, lost = truncated_share(k, dt), 1 - truncated_variance(k, dt)
        if share > NOTICEABLE:
            warnings.warn(
                f"truncation={k:g} at dt={dt:g} cuts off {share:.1%} of the increments and takes "
                f"{lost:.1%} of the variance of the noise away. Take no truncation, a smaller dt, "
                f"or truncation={harmless_truncation(dt)}, which keeps the variance.",
                stacklevel=7,
            )

    def describe(self) -> str:
        tail = "" if self.truncation is None else f", truncated with k = {float(self.truncation)}"
        tail += f", areas from {self.areas} terms" if self.areas else ""
        return f"Gaussian increments, Philox 4x32-10 and Box-Muller to nine digits{tail}"


def _without_die(word: Any) -> Any:
    """What is left of a fraction of 2³² after a throw of a die with it, as such a fraction."""
    return word * np.uint32(6)


@dataclass(frozen=True)
class ThreePoint(Noise):
    """Î_k = ±√(3h) with probability 1/6 each, else 0; mixed I_kl from Ĩ_k = ±√h.

        I_kl = Î_k Ĩ_l for l < k,  −Î_l Ĩ_k for l > k,  0 for l = k

    so I_kl is antisymmetric. A random word is a fraction of 2³²: a die is thrown with it, what is
    left over is a coin, and what that leaves serves another step. Whatever came before, outcomes
    have their probabilities to within 2e−8.
    """

    together = 8

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"dW", "mixed", "coin"})

    def draw_together(
        self, seed: Integer, path: Integer, number: Integer, dt: Any, noises: int, dtype: Any
    ) -> Group:
        """The increments of one path over eight consecutive steps."""
        sixth = round(2**32 / 6)
        large, small = self._sizes(dt, usable(dtype))

        def one(die: Any) -> Increments:
            lower = jnp.where(die < np.uint32(2 * sixth), -large, jnp.zeros_like(large))
            three = jnp.where(die < np.uint32(sixth), large, lower)
            two = jnp.where(_without_die(die) < np.uint32(2**31), small, -small)
            # No mixed increment contains the last of the two-point variables.
            coin = jnp.sign(two[-1]) if noises else None
            return Increments(three, mixed=mixed_increments(three, two), coin=coin)

        words = stream_words(Stream.THREE_POINT, seed, path, number, noises)
        return tuple(
            one(die) for word in words for die in (word, _without_die(word) * np.uint32(2))
        )

    def _sizes(self, dt: Any, dtype: np.dtype) -> tuple[Any, Any]:
        """The sizes of Î_k and Ĩ_k."""
        h = jnp.asarray(dt, dtype)
        return jnp.sqrt(3 * h), jnp.sqrt(h)

    def describe(self) -> str:
        return "three-point increments, Philox 4x32-10, eight steps a block"


@dataclass(frozen=True)
class Signs(ThreePoint):
    """The signs of the variables of `ThreePoint`: 1, −1 and 0."""

    def _sizes(self, dt: Any, dtype: np.dtype) -> tuple[Any, Any]:
        one = np.ones((), dtype)
        return one, one


@dataclass(frozen=True)
class Zero(Noise):
    """No noise: a method's step becomes its deterministic limit."""

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"dW", "dZ", "mixed", "area", "coin"})

    def draw_together(
        self, seed: Integer, path: Integer, number: Integer, dt: Any, noises: int, dtype: Any
    ) -> Group:
        """Zeros of the shapes of one path over a group of steps."""
        zeros = jnp.zeros(noises, usable(dtype))
        pairs = jnp.zeros((noises, noises), zeros.dtype)
        one = Increments(zeros, zeros, pairs, area=pairs, coin=jnp.ones((), zeros.dtype))
        return (one,) * self.together

    def describe(self) -> str:
        return "zero noise"


@dataclass(frozen=True, eq=False)
class Recorded(Noise):
    """Increments given as arrays: dW of shape (steps, m) for all paths, or (paths, steps, m).

    The other fields have the same leading axes. Inside a compiled run an index past the end cannot
    be reported, so call `check` before.
    """

    increments: Increments

    def __post_init__(self) -> None:
        if not isinstance(self.increments, Increments):
            raise TypeError(
                f"recorded noise was given a {type(self.increments).__name__}: "
                "write Recorded(Increments(dW)) with dW of shape (steps, m) or (paths, steps, m)"
            )
        object.__setattr__(self, "increments", real_increments(self.increments))

    @property
    def offers(self) -> frozenset[str]:
        given = {name for name, field in self.increments._asdict().items() if field is not None}
        return frozenset(given - {"truncated"})

    def draw_together(
        self, seed: Integer, path: Integer, number: Integer, dt: Any, noises: int, dtype: Any
    ) -> Group:
        """The recorded increments of one path; seed and dt are not used.

        Steps past the end repeat the last one.
        """
        self._check_shapes(noises)
        dtype = usable(dtype)
        # A traced path number may come as two words; no recording has more than 2³² paths.
        path = path[0] if isinstance(path, tuple) else path
        is_shared = np.ndim(self.increments.dW) == 2

        def one(step: Any) -> Increments:
            index = (step,) if is_shared else (path, step)
            found = jax.tree.map(lambda field: jnp.asarray(field)[index], self.increments)
            return cast(found._replace(truncated=None), dtype)._replace(truncated=found.truncated)

        first = np.uint32(self.together) * jnp.asarray(step_word(number), jnp.uint32)
        return tuple(one(first + np.uint32(k)) for k in range(self.together))

    def check(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, steps: int, paths: int, noises: int, dt: float | None = None
    ) -> None:
        """Refuse a run that asks for more than was recorded."""
        self._check_shapes(noises)
        shape = np.shape(self.increments.dW)
        if steps > shape[-2]:
            raise ValueError(
                f"the run takes {steps} steps and {shape[-2]} are recorded: "
                "shorten the run or record more steps"
            )
        if len(shape) == 3 and paths > shape[0]:
            raise ValueError(
                f"the run has {paths} paths and {shape[0]} are recorded: take fewer paths, record "
                "more, or give dW of shape (steps, m) to share one recording among all paths"
            )

    def describe(self) -> str:
        return f"recorded increments of shape {np.shape(self.increments.dW)}"

    def _check_shapes(self, noises: int) -> None:
        shape = np.shape(self.increments.dW)
        if len(shape) not in (2, 3):
            raise ValueError(f"recorded dW has shape {shape}: give (steps, m) or (paths, steps, m)")
        if shape[-1] != noises:
            raise ValueError(
                f"recorded dW has shape {shape}, so {shape[-1]} noises, and the system has {noises}"
            )
        wanted = {"dZ": shape, "mixed": (*shape, noises), "truncated": shape[:-1]}
        wanted |= {"area": (*shape, noises), "coin": shape[:-1]}
        for name, needed in wanted.items():
            field = getattr(self.increments, name)
            if field is not None and np.shape(field) != needed:
                raise ValueError(
                    f"recorded {name} has shape {np.shape(field)}: beside dW of shape {shape} it "
                    f"must have shape {needed}"
                )


def usual_noise(convergence: str, needs: frozenset[str], dt: float) -> Noise:
    """The noise of a method that converges in this sense, unless another one is asked for."""
    if convergence == "weak" and "dZ" not in needs:
        return ThreePoint()
    return Gaussian(areas=max(ceil(1 / sqrt(dt)), 4) if "area" in needs else 0)


def initial_key(seed: Integer, path: Integer) -> jax.Array:
    """A `jax.random` key for the initial state of a path, a pure function of (seed, path)."""
    first, second, _, _ = stream_words(Stream.INITIAL, seed, path, 0, 1)
    return jax.random.wrap_key_data(jnp.concatenate([first, second]), impl="threefry2x32")


# Kinds of noise travel into compiled functions as arguments: recorded arrays as data, the rest as
# part of the type.
jax.tree_util.register_dataclass(Gaussian, data_fields=[], meta_fields=["truncation", "areas"])
jax.tree_util.register_dataclass(ThreePoint, data_fields=[], meta_fields=[])
jax.tree_util.register_dataclass(Signs, data_fields=[], meta_fields=[])
jax.tree_util.register_dataclass(Zero, data_fields=[], meta_fields=[])
jax.tree_util.register_dataclass(Recorded, data_fields=["increments"], meta_fields=[])
