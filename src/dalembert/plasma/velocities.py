"""Distributions of velocities: Maxwellians, and sums of them for streams and bumps."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from dalembert.spelling import says_its_words

__all__ = ["AT_REST", "Maxwellian", "bump_on_tail", "two_streams", "velocity_parts"]


@says_its_words
@dataclass(frozen=True)
class Maxwellian:
    """Velocities along x with density n exp(−(v − u)²/(2T))/√(2πT), or a part of all velocities.

    Args:
        drift: mean velocity u.
        temperature: T, the variance of the velocity (T/m if the mass is not 1).
        fraction: n, the share of the particles; all parts of a plasma add up to 1.
    """

    drift: float = 0.0
    temperature: float = 1.0
    fraction: float = 1.0

    def __post_init__(self) -> None:
        if not isfinite(self.drift):
            raise ValueError(f"drift is {self.drift}, but must be a finite velocity.")
        if not (isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"temperature is {self.temperature}, but must be above 0.")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction is {self.fraction}, but must be above 0 and at most 1.")


AT_REST = Maxwellian()


@says_its_words
def two_streams(speed: float, temperature: float = 1.0) -> tuple[Maxwellian, Maxwellian]:
    """Two halves of the particles that stream through each other with velocities ±speed."""
    return Maxwellian(-speed, temperature, 0.5), Maxwellian(speed, temperature, 0.5)


@says_its_words
def bump_on_tail(
    speed: float, fraction: float = 0.1, temperature: float = 1.0, bulk_temperature: float = 1.0
) -> tuple[Maxwellian, Maxwellian]:
    """A plasma at rest, and a fraction of its particles in a beam with a velocity."""
    return (
        Maxwellian(0.0, bulk_temperature, 1 - fraction),
        Maxwellian(speed, temperature, fraction),
    )


def velocity_parts(velocities: Maxwellian | Sequence[Maxwellian]) -> tuple[Maxwellian, ...]:
    """The parts of a distribution of velocities, or an error if they are not a whole."""
    given: Any = velocities
    parts = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not parts or not all(isinstance(part, Maxwellian) for part in parts):
        raise TypeError(
            f"velocities must be a da.plasma.Maxwellian or several of them, not {velocities!r}."
        )
    total = sum(part.fraction for part in parts)
    if abs(total - 1) > 1e-12:
        raise ValueError(f"the fractions of all velocities add up to {total}, but must to 1.")
    return parts
