"""What does a worker of an executor cost? Time beside a run without one, and memory of the caller.

    python benchmarks/executors.py [--quick] [--repeat N] [--out FILE.json]

One worker process of Dask with one thread, over TCP, and the same runs in this process with
`workers=1`, in turn. Core-seconds are those of caller, scheduler and worker together, less what
scheduler and worker take while the caller computes alone, which is a column of its own: on a
machine with other work the same run lasts longer, and they idle longer. Ratios are medians over
the rounds. The caller's memory is its resident set when a run is over, beside what it was before.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from distributed import Client
from measure import machine, print_table, write_json

import dalembert as da

BLOCK, SMALL_BLOCK = 4096, 1024
"""Paths of a block of large and of small runs on a CPU."""
SAVES = 1


def simulate(paths: int, steps: int, executor: Any = None) -> da.Run:
    """Some blocks of the damped Kubo oscillator."""
    options = {"dt": 0.1, "t_end": 0.1 * steps, "save_every": -(-steps // SAVES), "workers": 1}
    start = ([2.0], [0.0])
    return da.simulate(
        da.systems.damped_kubo(), da.midpoint(), start, paths=paths, executor=executor,
        progress=False, **options,
    )  # fmt: skip


@contextmanager
def cluster() -> Iterator[tuple[Client, list[psutil.Process]]]:
    """A client, and the processes behind it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        command = [sys.executable, "-m", "dask"]
        common = ["--scheduler-file", str(file), "--no-dashboard"]
        kinds = (["scheduler", "--port", "0"], ["worker", "--no-nanny", "--nthreads", "1"])
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes = []
        try:
            for kind in kinds:
                processes.append(subprocess.Popen([*command, *kind, *common], **quiet))
                while not file.exists():
                    time.sleep(0.1)
            with Client(scheduler_file=str(file), timeout=60) as client:
                client.wait_for_workers(1)
                yield client, [psutil.Process(process.pid) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()


def measured(
    paths: int, steps: int, executor: Any, processes: list[psutil.Process]
) -> tuple[float, float, float]:
    """Seconds of a run, and core-seconds of the first process and of the others meanwhile."""

    def used() -> list[float]:
        return [sum(process.cpu_times()[:2]) for process in processes]

    began, before = time.perf_counter(), used()
    simulate(paths, steps, executor)
    seconds = time.perf_counter() - began
    here, *others = (after - x for after, x in zip(used(), before, strict=True))
    return seconds, here, sum(others)


def compared(
    name: str, paths: int, steps: int, repeat: int, client: Client, others: list[psutil.Process]
) -> dict[str, Any]:
    """A row: a run on the worker beside the same run here."""
    processes = [psutil.Process(), *others]
    simulate(paths, steps, client)
    blocks = -(-paths // simulate(paths, steps).provenance["block_paths"])
    rounds = np.array(
        [
            [measured(paths, steps, executor, processes) for executor in (None, client)]
            for _ in range(repeat)
        ]
    )
    alone, there = rounds[:, 0], rounds[:, 1]
    idle = float(np.sum(alone[:, 2]) / np.sum(alone[:, 0]))
    core_seconds = there[:, 1] + there[:, 2] - idle * there[:, 0]
    return {
        "run": name,
        "blocks": blocks,
        "rounds": repeat,
        "ms a block": 1000 * np.median(alone[:, 1]) / blocks,
        "alone, s": np.median(alone[:, 0]),
        "executor, s": np.median(there[:, 0]),
        "ratio": np.median(there[:, 0] / alone[:, 0]),
        "alone, core-s": np.median(alone[:, 1]),
        "executor, core-s": np.median(core_seconds),
        "core ratio": np.median(core_seconds / alone[:, 1]),
        "idle, of a core": idle,
    }


def steps_for(seconds: float) -> int:
    """Steps that a small block takes about so long for, what every run costs left out."""
    few, times = 16_000, []
    for steps in (few, few, 5 * few):
        began = time.process_time()
        simulate(SMALL_BLOCK, steps)
        times.append(time.process_time() - began)
    return max(SAVES, int(4 * few * seconds / (times[2] - times[1])))


def grown(blocks: int, client: Client) -> dict[str, Any]:
    """A row: how the caller's memory changes by a run of so many short blocks."""
    here = psutil.Process()
    before = here.memory_info().rss
    simulate(blocks * BLOCK, 12, client)
    return {
        "run": "memory",
        "blocks": blocks,
        "MiB more": (here.memory_info().rss - before) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="few blocks, to see that it works")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    print(json.dumps(machine() | {"load": psutil.getloadavg()}))
    many = 50 if options.quick else 1000
    runs = (
        ("a second", (2 if options.quick else 6) * SMALL_BLOCK, steps_for(1.0)),
        ("short", many * BLOCK, 12),
    )
    rows = []
    with cluster() as (client, others):
        for run in runs:
            rows.append(compared(*run, options.repeat, client, others))
            print_table(rows[-1:])
        # The first one makes what stays: code, buffers, connections.
        memory = [grown(blocks, client) for blocks in (many // 4, many // 4, many, 2 * many)]
    print_table(memory)
    if options.out:
        write_json(options.out, [*rows, *memory], dtype="float64", load=psutil.getloadavg())


if __name__ == "__main__":
    main()
