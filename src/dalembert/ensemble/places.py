"""Where blocks are computed: each on one device, or each path spread over several."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dalembert.system import System

__all__ = ["Place", "find_places"]


@dataclass(frozen=True)
class Place:
    """Devices that compute a block together: arrays of the size of a state are cut among them.

    Attributes:
        devices: one or more of one kind.
        dim: degrees of freedom of a path, the length of the axis that is cut.
    """

    devices: tuple[Any, ...]
    dim: int

    @property
    def is_spread(self) -> bool:
        return len(self.devices) > 1

    @property
    def nursery(self) -> Any:
        """The device on which initial states are made: no single one need have room for them."""
        return jax.local_devices(backend="cpu")[0] if self.is_spread else self.devices[0]

    def put(self, tree: Any) -> Any:
        """The same arrays on these devices.

        On one CPU compiled code takes those of NumPy as they are, and vector code no others.
        """
        if not self.is_spread and self.devices[0].platform == "cpu":
            return tree
        if not self.is_spread:
            return jax.device_put(tree, self.devices[0])
        return jax.device_put(tree, jax.tree.map(self._sharding, tree))

    def _sharding(self, x: Any) -> NamedSharding:
        shape = np.shape(x)
        is_state = len(shape) > 1 and shape[-1] == self.dim
        axes = [*[None] * (len(shape) - 1), "entries"] if is_state else []
        return NamedSharding(Mesh(np.array(self.devices), ("entries",)), PartitionSpec(*axes))


def find_places(system: System, backend: str, shard: bool) -> tuple[Place, ...]:
    """The places at which blocks of a run are computed, several at a time."""
    devices = tuple(jax.local_devices(backend=backend))
    if not shard:
        return tuple(Place((device,), system.dim) for device in devices)
    if system.dim % len(devices):
        raise ValueError(
            f"shard=True: {system.dim} degrees of freedom cannot be cut into {len(devices)} equal "
            "parts, one for each device. Show JAX fewer devices, or add particles."
        )
    return (Place(devices, system.dim),)
