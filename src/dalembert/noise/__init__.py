"""Noise: increments as pure functions of (seed, path number, step number)."""

from dalembert.noise.halves import Halves
from dalembert.noise.increments import Group, Increments, Noise, pick, real_increments
from dalembert.noise.kinds import (
    Gaussian,
    Recorded,
    Signs,
    ThreePoint,
    Zero,
    initial_key,
    usual_noise,
)
from dalembert.noise.paths import brownian_path, coarsen, enumerate_three_point
from dalembert.noise.philox import seed_words
from dalembert.noise.truncation import harmless_truncation

__all__ = [
    "Gaussian",
    "Group",
    "Halves",
    "Increments",
    "Noise",
    "Recorded",
    "Signs",
    "ThreePoint",
    "Zero",
    "brownian_path",
    "coarsen",
    "enumerate_three_point",
    "harmless_truncation",
    "initial_key",
    "pick",
    "real_increments",
    "seed_words",
    "usual_noise",
]
