"""Noise: increments as pure functions of (seed, path number, step number)."""

from dalembert.noise.kinds import (
    Gaussian,
    Increments,
    Noise,
    Recorded,
    Stretch,
    ThreePoint,
    Zero,
    initial_key,
)
from dalembert.noise.paths import brownian_path, coarsen, enumerate_three_point
from dalembert.noise.philox import seed_words

__all__ = [
    "Gaussian",
    "Increments",
    "Noise",
    "Recorded",
    "Stretch",
    "ThreePoint",
    "Zero",
    "brownian_path",
    "coarsen",
    "enumerate_three_point",
    "initial_key",
    "seed_words",
]
