"""Several processes, on one machine or many, through `jax.distributed`."""

import io
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from zlib import crc32

import jax
import numpy as np

from dalembert.ensemble import archive
from dalembert.ensemble.blocks import BlockResult, Work, pending_from_record, pending_to_record
from dalembert.ensemble.tally import Tally

__all__ = [
    "LostError",
    "agreed",
    "are_alike",
    "connect",
    "exchange",
    "in_launcher",
    "largest_given",
    "leave_together",
]

KIND, SCHEMA = "dalembert blocks", 1
LAUNCHERS = {"SLURM_STEP_NUM_TASKS": "SLURM", "OMPI_COMM_WORLD_SIZE": "Open MPI"}
"""Variables with the number of processes; SLURM sets others in shells that run only once."""

BIND_ADDRESS = "JAX_COORDINATOR_BIND_ADDRESS"
"""Variable with the address at which the first process listens."""

LEAVE_SECONDS = 25.0
"""How long a process that was told to end waits for the others; queues give all of them 30."""


class LostError(RuntimeError):
    """A process of a run has ended or cannot be reached, and the others cannot go on."""


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
    # It would swallow SIGTERM, on which a run saves itself.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(coordinator, processes, process)


def leave_together() -> None:
    """Wait a moment for other processes that are ending too, so that they can save themselves.

    JAX ends every process at once when the first is gone, which keeps the others in touch.
    """
    from jax._src.distributed import global_state

    # With a value, somebody else keeps them in touch (`launch.py`).
    if global_state.client is None or os.environ.get(BIND_ADDRESS):
        return
    with suppress(Exception):
        global_state.client.wait_at_barrier("dalembert has saved", int(1000 * LEAVE_SECONDS))


def largest_given(number: int) -> int:
    """The largest of the numbers that the processes give."""
    return int(np.max(_gather(np.asarray([number], np.int32))))


def are_alike(what: object) -> bool:
    """Whether all processes give what prints alike."""
    found = _gather(np.asarray([crc32(repr(what).encode()) & 0x7FFFFFFF], np.int32))
    return bool(np.all(found == found[0]))


def agreed(units: int, stop: bool) -> tuple[int, bool]:
    """The least number of units that a process proposes, and whether one of them wants to stop."""
    wishes = _gather(np.asarray([min(units, 2**31 - 1), not stop], np.int32))
    least, all_go_on = wishes.min(axis=0)
    return int(least), not all_go_on


def exchange(
    work: Work, results: Mapping[int, BlockResult], seconds: float
) -> tuple[dict[int, BlockResult], float]:
    """The results of all processes by block, in the order of the processes, and the longest time.

    Args:
        work: the run.
        results: what this process has found, by the number of the block.
        seconds: how long it took.
    """
    mine = np.frombuffer(_to_bytes(results), np.uint8)
    if mine.size >= 2**31:
        raise ValueError(f"{mine.size:,} bytes of kept states are too many to exchange at once.")
    states = _gather(np.asarray([mine.size, min(1000 * seconds, 2**31 - 1)], np.int32))
    # A power of two: every other length would be compiled for.
    padded = np.zeros(1 << int(states[:, 0].max()).bit_length(), np.uint8)
    padded[: mine.size] = mine
    found: dict[int, BlockResult] = {}
    for row, size in zip(_gather(padded), states[:, 0], strict=True):
        found |= _from_bytes(work, row[:size].tobytes())
    return found, float(states[:, 1].max()) / 1000


def _gather(array: np.ndarray) -> np.ndarray:
    """The arrays of all processes, first axis: processes.

    The exchange waits in a thread of its own, so that this one sees Ctrl-C and SIGTERM although
    another process may never answer.
    """
    from jax.experimental.multihost_utils import process_allgather

    everyone: Future[np.ndarray] = Future()

    def gather() -> None:
        try:
            everyone.set_result(np.asarray(process_allgather(array)))
        except Exception as error:
            everyone.set_exception(error)

    threading.Thread(target=gather, name="dalembert exchange", daemon=True).start()
    while not wait([everyone], timeout=0.1).done:
        pass
    try:
        return everyone.result().reshape(-1, *array.shape)
    except Exception as error:
        raise LostError("another process of this run has ended or cannot be reached.") from error


def _to_bytes(results: Mapping[int, BlockResult]) -> bytes:
    records, arrays = [], {}
    for i, (number, (tally, kept, end)) in enumerate(results.items()):
        record, found = tally.to_record()
        records.append(record | {"block": number, "kept": kept is not None, "end": None})
        if end is not None:
            records[-1]["end"], of_end = pending_to_record(end)
            found |= {f"end/{name}": x for name, x in of_end.items()}
        arrays |= {f"{i}/{name}": x for name, x in found.items()}
        if kept is not None:
            arrays |= {f"{i}/q": kept[0], f"{i}/p": kept[1]}
    stream = io.BytesIO()
    archive.encode(stream, {"format": KIND, "schema": SCHEMA, "records": records}, arrays)
    return stream.getvalue()


def _from_bytes(work: Work, data: bytes) -> dict[int, BlockResult]:
    header, arrays = archive.decode(io.BytesIO(data), KIND, SCHEMA)
    results = {}
    for i, record in enumerate(header["records"]):
        own = archive.under(f"{i}/", arrays)
        kept = (own["q"], own["p"]) if record["kept"] else None
        end = record["end"]
        if end is not None:
            end = pending_from_record(work, end, archive.under("end/", own))
        results[record["block"]] = BlockResult(Tally.from_record(record, own), kept, end)
    return results
