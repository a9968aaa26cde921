"""A family of methods that is no part of the package: Platen's schemes, for one noise."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

import dalembert as da
from dalembert.methods.stages import DT, DW, Increment, StageSystem, along, assemble


@dataclass(frozen=True)
class Root(Increment):
    """√Δt."""

    name = "root of dt"

    def value(self, dt: Any, noise: da.Increments) -> Any:
        return jnp.sqrt(dt)


@dataclass(frozen=True)
class Square(Increment):
    """ΔW²/√Δt of one noise."""

    noise: int
    name = "square of dW"
    reads = frozenset({"dW"})

    def value(self, dt: Any, noise: da.Increments) -> Any:
        return noise.dW[self.noise] ** 2 / jnp.sqrt(dt)


@dataclass(frozen=True)
class Platen(da.Method):
    """y' = y + h v(y) + ΔW b(y) + ΔW²/(4c√h) [b(Y₊) − b(Y₋)],  Y± = y ± c√h b(y)."""

    c: float = 1.0
    name: str = "platen"
    family = "Platen's explicit schemes"
    convergence = "mean-square"
    stages = 3

    def rows(self, noises: int) -> StageSystem:
        above, below, new = [], [], along(None, DT, [1])
        for r in range(noises):
            above += along(r, Root(), [self.c])
            below += along(r, Root(), [-self.c])
            new += along(r, DW(r), [1]) + along(r, Square(r), [0, 0.25 / self.c, -0.25 / self.c])
        return assemble([[], above, below, new])

    def check_noises(self, noises: int) -> None:
        if noises > 1:
            raise ValueError(f"{self.name} takes one noise, the system has {noises}: use da.heun()")

    def promises(self) -> da.Promises:
        return da.Promises(order={"one": 1.0}, notes=("explicit: it keeps no structure",))
