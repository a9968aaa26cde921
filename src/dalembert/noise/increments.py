"""What a step is given of the noise, and what every kind of noise has to know."""

from math import isfinite
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.noise.philox import (
    MAX_NOISES,
    MAX_PATHS,
    MAX_STEPS,
    Array,
    Integer,
    plain_integer,
    step_word,
    x64_is_on,
)
from dalembert.precision import as_dtype


class Increments(NamedTuple):
    """What one step takes: the noise over a time step h, for m noises.

    Attributes:
        dW: (…, m) Wiener increments ΔW, or the three-point variables Î.
        dZ: (…, m) ΔZ = ∫(W − W_k) dt over the step, or None.
        mixed: (…, m, m) the I_kl of Rößler's class, zero on the diagonal, or None.
        truncated: (…) how many components of dW were truncated, or None if none can be.
        area: (…, m, m) Lévy areas A_ij = ½ (∫∫ dW_i dW_j − ∫∫ dW_j dW_i), or None.
        coin: (…) 1 or −1 with equal probabilities, or None.
    """

    dW: Array
    dZ: Array | None = None
    mixed: Array | None = None
    truncated: Array | None = None
    area: Array | None = None
    coin: Array | None = None


Group: TypeAlias = tuple[Increments, ...]


def real_increments(given: Increments) -> Increments:
    """The same increments as arrays of real numbers; lists and whole numbers are welcome."""

    def real(name: str, value: Any) -> Any:
        if isinstance(value, list | tuple | np.ndarray | np.generic):
            try:
                value = np.asarray(value)
            except ValueError as error:
                raise ValueError(f"{name} must be an array, and its rows differ") from error
        elif not isinstance(value, jax.Array):
            return value  # None, or what JAX puts in the place of an array
        if name == "truncated" or jnp.issubdtype(value.dtype, np.floating):
            return value
        if not jnp.issubdtype(value.dtype, np.integer):
            raise TypeError(f"{name} has {value.dtype} entries: give real numbers, such as 0.1")
        return value.astype(jnp.result_type(float) if isinstance(value, jax.Array) else np.float64)

    return Increments(**{name: real(name, value) for name, value in given._asdict().items()})


class Noise:
    """A kind of noise: a frozen record that says what it offers, draws it, and describes itself.

    `check` takes the keywords dt, steps, paths and noises in every kind.

    Attributes:
        offers: the fields of `Increments` that a method may ask for.
        together: how many consecutive steps share random words.
    """

    offers: Any
    together: Any = 4

    def draw_together(
        self, seed: Integer, path: Integer, number: Integer, dt: Any, noises: int, dtype: Any
    ) -> Group:
        """The increments of one path over the n-th group of steps."""
        raise NotImplementedError

    def describe(self) -> str:
        """One line of provenance."""
        raise NotImplementedError

    def check(self, dt: float, steps: int = 1, paths: int = 1, noises: int = 1) -> None:
        """Refuse a step size or a size of run for which this noise is not defined."""
        check_run(dt, steps, paths, noises)

    def draw(
        self, seed: Integer, path: Integer, step: Integer, dt: Any, noises: int, dtype: Any
    ) -> Increments:
        """The increments of one path over one step."""
        word = jnp.asarray(step_word(step), jnp.uint32)
        number, place = jnp.divmod(word, np.uint32(self.together))
        return pick(place, self.draw_together(seed, path, number, dt, noises, dtype))


def pick(place: Any, group: Group) -> Increments:
    """The increments at a place of a group, by comparisons: an index would need an array."""
    if len(group) == 1:
        return group[0]
    half = len(group) // 2
    first, second = pick(place, group[:half]), pick(place - half, group[half:])
    return jax.tree.map(lambda a, b: jnp.where(place < half, a, b), first, second)


def check_run(dt: float, steps: int = 1, paths: int = 1, noises: int = 1) -> None:
    """Refuse a step size that is not positive and sizes that the counter cannot number."""
    if not (dt > 0 and isfinite(dt)):
        raise ValueError(f"dt={dt}: the step size must be positive and finite")
    plain_integer(steps, "steps", MAX_STEPS)
    plain_integer(paths, "paths", MAX_PATHS)
    plain_integer(noises, "noises", MAX_NOISES)


def usable(dtype: Any) -> np.dtype:
    """The dtype of a draw, refused where JAX would silently turn it into another."""
    chosen = as_dtype(dtype)
    if chosen == np.float64 and not x64_is_on():
        raise ValueError(
            "float64 increments were asked for while x64 is off: draw them inside "
            "`with jax.enable_x64(True):`, or ask for dtype=float32"
        )
    return chosen
