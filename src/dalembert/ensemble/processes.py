"""Several processes, on one machine or many, through `jax.distributed`."""

import io
import os
from typing import Any

import jax
import numpy as np

from dalembert.ensemble import archive
from dalembert.ensemble.blocks import BlockResult
from dalembert.ensemble.tally import Tally

__all__ = ["connect", "exchange", "in_launcher"]

KIND, SCHEMA = "dalembert blocks", 1
LAUNCHERS = {"SLURM_NTASKS": "SLURM", "OMPI_COMM_WORLD_SIZE": "MPI", "PMI_SIZE": "MPI"}


def in_launcher() -> str | None:
    """The name of the launcher that started several processes like this one, if there is one."""
    for variable, name in LAUNCHERS.items():
        if int(os.environ.get(variable, "1") or 1) > 1:
            return name
    return None


def connect(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    """Join the processes of one run; call it before anything else uses JAX.

    Without arguments the launcher is detected (SLURM, Open MPI and others that `jax.distributed`
    knows). Afterwards every `da.simulate` shares its paths among all processes, and every process
    gets the whole result.

    Args:
        coordinator: "host:port" of the first process.
        processes: how many there are.
        process: the number of this one, from 0.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, processes, process)


def exchange(
    results: list[BlockResult], seconds: float, blocks: int
) -> tuple[list[BlockResult], float]:
    """The results of all processes, in the order of the processes, and the longest time.

    Args:
        results: what this process has found.
        seconds: how long it took.
        blocks: how many blocks were merged before; all processes must agree.
    """
    from jax.experimental.multihost_utils import process_allgather

    states = np.asarray(process_allgather(np.asarray([blocks, 1000 * seconds], np.float32)))
    if len(set(states[:, 0])) > 1:
        raise RuntimeError(
            f"the processes have merged different numbers of blocks, {states[:, 0]}: all of them "
            "must see the same checkpoint file."
        )
    mine = np.frombuffer(_to_bytes(results), np.uint8)
    sizes = np.asarray(process_allgather(np.asarray([mine.size], np.int32))).ravel()
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: mine.size] = mine
    everyone = np.asarray(process_allgather(padded)).reshape(len(sizes), -1)
    found = [
        result
        for row, size in zip(everyone, sizes, strict=True)
        for result in _from_bytes(row[:size].tobytes())
    ]
    return found, float(states[:, 1].max()) / 1000


def _to_bytes(results: list[BlockResult]) -> bytes:
    records, arrays = [], {}
    for i, (tally, kept) in enumerate(results):
        record, found = tally.to_record()
        records.append(record | {"kept": kept is not None})
        arrays |= {f"{i}/{name}": x for name, x in found.items()}
        if kept is not None:
            arrays |= {f"{i}/q": kept[0], f"{i}/p": kept[1]}
    stream = io.BytesIO()
    archive.encode(stream, {"format": KIND, "schema": SCHEMA, "records": records}, arrays)
    return stream.getvalue()


def _from_bytes(data: bytes) -> list[BlockResult]:
    header, arrays = archive.decode(io.BytesIO(data), KIND, SCHEMA)
    results = []
    for i, record in enumerate(header["records"]):
        prefix = f"{i}/"
        own: dict[str, Any] = {
            n[len(prefix) :]: x for n, x in arrays.items() if n.startswith(prefix)
        }
        kept = (own["q"], own["p"]) if record["kept"] else None
        results.append(BlockResult(Tally.from_record(record, own), kept))
    return results
