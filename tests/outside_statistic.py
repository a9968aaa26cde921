"""A statistic that is no part of the package: how often paths change a sign."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import dalembert as da


class Changes(NamedTuple):
    """Mean number of changes per path, and its standard error."""

    mean: Any
    stderr: Any


@dataclass(frozen=True)
class SignChanges(da.Statistic):
    """How often an observable changes its sign from save to save."""

    of: Callable[..., Any]

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        return {"of": self.of}

    def start(self, values: Mapping[str, Any]) -> Any:
        x = values["of"]
        return jnp.zeros(x.shape, x.dtype), jnp.zeros(x.shape, jnp.int32)

    def observe(self, memory: Any, values: Mapping[str, Any], mask: Any, t: Any) -> Any:
        last, changes = memory
        return (values["of"], changes + (values["of"] * last < 0).astype(jnp.int32)), {}

    def finish(self, memory: Any, mask: Any) -> da.statistics.Data:
        changes = jnp.where(mask, memory[1], 0)
        return {"paths": jnp.sum(mask), "sum": jnp.sum(changes), "squares": jnp.sum(changes**2)}

    def merge(self, a: da.statistics.Data, b: da.statistics.Data) -> da.statistics.Data:
        return {name: a[name] + b[name] for name in a}

    def result(self, data: da.statistics.Data, t: Any) -> Changes:
        n, total, squares = (data[x].astype(float) for x in ("paths", "sum", "squares"))
        mean = total / n
        return Changes(mean, ((squares / n - mean**2) / (n - 1)) ** 0.5)

    def summary(self, result: Changes) -> str:
        return f"{result.mean:.3g} ± {np.asarray(result.stderr):.1g} changes of sign"
