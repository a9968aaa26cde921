"""Where blocks are computed: each on one device, or each path spread over several.

Devices of other processes compute along, but only their own processes can read them: all of them
make the same calls in the same order, and what one of them is to read is sent to all first.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dalembert.system import System


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
    def is_shared(self) -> bool:
        """Whether some of the devices are those of other processes."""
        return any(device.process_index != jax.process_index() for device in self.devices)

    @property
    def first(self) -> Any:
        """The first device of this process."""
        return next(x for x in self.devices if x.process_index == jax.process_index())

    @property
    def nursery(self) -> Any:
        """The device on which initial states are made: no single one need have room for them."""
        return jax.local_devices(backend="cpu")[0] if self.is_spread else self.first

    def put(self, tree: Any) -> Any:
        """The same arrays on these devices.

        On one CPU compiled code takes those of NumPy as they are, and vector code no others.
        """
        if not self.is_spread and self.devices[0].platform == "cpu":
            return tree
        if not self.is_spread:
            return jax.device_put(tree, self.first)
        return jax.tree.map(self._cut, tree)

    def _cut(self, x: Any) -> jax.Array:
        shape = np.shape(x)
        is_state = len(shape) > 1 and shape[-1] == self.dim
        axes = [*[None] * (len(shape) - 1), "entries"] if is_state else []
        mesh = Mesh(np.array(self.devices), ("entries",))
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        if not self.is_shared:
            return jax.device_put(x, sharding)
        whole = np.asarray(x)
        return jax.make_array_from_callback(shape, sharding, whole.__getitem__)


def to_host(x: Any) -> np.ndarray:
    """An array as NumPy has it; if other processes have parts of it, all of them ask for it."""
    if isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated):
        everywhere = NamedSharding(x.sharding.mesh, PartitionSpec())  # pyright: ignore
        x = jax.jit(_as_it_is, out_shardings=everywhere)(x)
    return np.asarray(x)


def _as_it_is(x: Any) -> Any:
    # With a name of its own: JAX would compile for every lambda anew.
    return x


def find_places(system: System, backend: str, shard: bool) -> tuple[Place, ...]:
    """The places at which blocks of a run are computed, several at a time."""
    if not shard:
        return tuple(Place((x,), system.dim) for x in jax.local_devices(backend=backend))
    devices = tuple(jax.devices(backend))
    if system.dim % len(devices):
        raise ValueError(
            f"shard=True: {system.dim} degrees of freedom cannot be cut into {len(devices)} equal "
            "parts, one for each device. Show JAX fewer devices, or add particles."
        )
    return (Place(devices, system.dim),)
