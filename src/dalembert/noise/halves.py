"""One Brownian path at two step sizes at once: what couples two levels of a multilevel method."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from dalembert.noise.increments import Group, Increments, Noise
from dalembert.noise.kinds import Gaussian
from dalembert.noise.philox import Integer


@dataclass(frozen=True)
class Halves(Noise):
    """The increments of both halves of a step, and those of the whole step from them.

    Every field of the increments has an axis of three in front: first half, second half, whole,

        ΔW = ΔW₁ + ΔW₂,   ΔZ = ΔZ₁ + ΔZ₂ + h/2 ΔW₁,

    for a step h. `coarsen` has the same sums for any number of steps.
    """

    of: Noise = field(default_factory=Gaussian)

    @property
    def together(self) -> int:
        return self.of.together // 2

    @property
    def offers(self) -> frozenset[str]:
        return self.of.offers & {"dW", "dZ"}

    def draw_together(
        self, seed: Integer, path: Integer, number: Integer, dt: Any, noises: int, dtype: Any
    ) -> Group:
        """The increments of one path over a group of steps."""
        half = jnp.asarray(dt, dtype) / 2
        fine = self.of.draw_together(seed, path, number, half, noises, dtype)

        def joined(first: Increments, second: Increments) -> Increments:
            first, second = (Increments(x.dW, x.dZ) for x in (first, second))
            whole = jax.tree.map(jnp.add, first, second)
            if whole.dZ is not None:
                whole = whole._replace(dZ=whole.dZ + half * first.dW)
            return jax.tree.map(lambda *rows: jnp.stack(rows), first, second, whole)

        return tuple(map(joined, fine[::2], fine[1::2]))

    def check(self, dt: float, steps: int = 1, paths: int = 1, noises: int = 1) -> None:
        """Refuse a step size or a size of run for which this noise is not defined."""
        self.of.check(dt=dt / 2, steps=2 * steps, paths=paths, noises=noises)

    def describe(self) -> str:
        return f"both halves of steps and their sums: {self.of.describe()}"


jax.tree_util.register_dataclass(Halves, data_fields=["of"], meta_fields=[])
