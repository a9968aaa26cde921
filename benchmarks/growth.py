"""How do time and memory grow with paths, steps, dim, noises, cores, processes and devices?

And how long is the way to the first result: import, cold start, compilation of each method? Every
point runs in a fresh process: "first" is its first, short run, with compilation, "seconds" the best
of the next, full ones, and memory is the peak resident set of the whole process, beside what it was
after the import. Core-seconds count the work of all threads; other programs on the machine change
them less than seconds. All in float64, noise included, energies saved ten times unless the sweep is
that of the saves.

    python benchmarks/growth.py [--only SWEEP ...] [--quick] [--plot FILE.png] [--out FILE.json]

    paths, steps, saves     damped Kubo oscillator, midpoint
    dim                     a ring of coupled oscillators with friction and one noise
    langevin                the same ring with one noise per oscillator
    noises                  one oscillator with many noises
    cores                   one process on one core and on all
    processes               processes of one core each that share a run
    devices                 one GPU and all
    start                   import and cold start
    methods                 compilation of each method
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

REPEAT = 3
LOOK = {
    "paths": ("paths", "seconds"),
    "steps": ("steps", "seconds"),
    "saves": ("saves", "seconds"),
    "dim": ("dim", "μs per path-step"),
    "langevin": ("dim", "μs per path-step"),
    "noises": ("noises", "μs per path-step"),
}

Point = dict[str, Any]


def points(sweep: str, quick: bool) -> Iterator[Point]:
    """The points of a sweep: what differs from a small run of the Kubo oscillator."""
    cores, gpus = len(os.sched_getaffinity(0)), _gpus()
    if sweep == "paths":
        for k in range(0, 15 if quick else 19, 4 if quick else 2):
            yield {"paths": 2**k, "steps": 1000}
    elif sweep == "steps":
        for k in range(1, 5 if quick else 7):
            yield {"paths": 1024, "steps": 10**k}
    elif sweep == "saves":
        for saves in (1, 100) if quick else (1, 10, 100, 1000, 10_000):
            yield {"paths": 1024, "steps": 10_000, "saves": saves}
    elif sweep in ("dim", "langevin"):
        for dim in (1, 8, 16) if quick else (1, 2, 4, 8, 9, 16, 32, 64, 128, 256, 512):
            noises = dim if sweep == "langevin" else 1
            if noises <= 128:
                work = {"paths": max(2**13 // dim, 64), "steps": 20}
                yield {"system": "ring", "dim": dim, "noises": noises, **work}
    elif sweep == "noises":
        for noises in (1, 8) if quick else (1, 2, 4, 8, 16, 32):
            yield {"system": "many noises", "noises": noises, "paths": 2**13, "steps": 100}
    elif sweep == "cores":
        for count in (1, cores):
            yield {"cores": count, "paths": 2**15, "steps": 2000 if quick else 40_000}
    elif sweep == "processes":
        for count in (1, cores):
            yield {"processes": count, "paths": 2**15, "steps": 2000 if quick else 40_000}
    elif sweep == "devices":
        for count in sorted({1, gpus}) if gpus > 1 else ():
            yield {"devices": count, "paths": 2**22, "steps": 1000}
    elif sweep == "start":
        yield {"start": True, "paths": 100, "steps": 100}
    elif sweep == "methods":
        from dalembert.theory.diagnosis import for_every_system

        for name in for_every_system():
            yield {"method": name, "paths": 2**13, "steps": 100}


SWEEPS = (
    "paths",
    "steps",
    "saves",
    "dim",
    "langevin",
    "noises",
    "cores",
    "processes",
    "devices",
    "start",
    "methods",
)


# In the fresh process


@cache
def _systems() -> dict[str, Callable[[Point], tuple[Any, Any]]]:
    import jax.numpy as jnp

    import dalembert as da

    def ring(point: Point) -> tuple[Any, Any]:
        """q̈_i = −U_i(q) − γ p_i + noise, U = Σ q_i²/2 + q_i⁴/4 + (q_i − q_{i−1})²/2."""
        dim = point["dim"]

        def H(q: Any, p: Any) -> Any:
            bonds = q - jnp.roll(q, 1)
            return jnp.sum(p**2 + q**2 + q**4 / 2 + bonds**2) / 2

        noises = [lambda q, p, i=i: -0.5 * q[i] for i in range(point["noises"])]
        system = da.System(H=H, F=lambda q, p: -0.1 * p, h=noises, dim=dim, name="ring")
        return system, ([1.0] * dim, [0.0] * dim)

    def many_noises(point: Point) -> tuple[Any, Any]:
        def H(q: Any, p: Any) -> Any:
            return (p[0] ** 2 + q[0] ** 2 + q[0] ** 4 / 2) / 2

        noises = [lambda q, p, i=i: -0.1 * jnp.sin(q[0] + i) for i in range(point["noises"])]
        return da.System(H=H, F=lambda q, p: -0.1 * p, h=noises, dim=1), ([1.0], [0.0])

    def kubo(point: Point) -> tuple[Any, Any]:
        return da.systems.damped_kubo(), ([2.0], [0.0])

    return {"ring": ring, "many noises": many_noises, "kubo": kubo}


def run_point(point: Point) -> Point:
    """All numbers about a point, measured in this process."""
    start = time.perf_counter()
    import jax

    jax_imported = time.perf_counter()
    import dalembert as da

    imported = time.perf_counter()
    if "process" in point:
        from dalembert.launch import join

        join()
    before = _memory()
    system, initial = _systems()[point.get("system", "kubo")](point)
    method = da.METHODS[point.get("method", "midpoint")]()
    dt, steps = 0.05, point["steps"]
    # The same for all runs: the compiled kernel depends on it.
    save_every = max(steps // point.get("saves", 10), 1)

    def run(steps: int) -> Any:
        return da.simulate(
            system,
            method,
            initial,
            dt=dt,
            t_end=dt * steps,
            paths=point["paths"],
            save_every=save_every,
            progress=False,
        )

    began = time.perf_counter()
    run(steps if "start" in point else min(steps, 20))
    first = time.perf_counter() - began
    times, core_times = [], []
    for _ in range(REPEAT):
        began, core_began = time.perf_counter(), time.process_time()
        result = run(steps)
        times.append(time.perf_counter() - began)
        core_times.append(time.process_time() - core_began)
        if sum(times) > 5:
            break
    row = {
        "first s": first,
        "seconds": min(times),
        "core-seconds": min(core_times),
        "path-steps/s": point["paths"] * steps / min(times),
        "μs per path-step": 1e6 * min(times) / (point["paths"] * steps),
        "peak MB": _memory(),
        "import MB": before,
        "failed": result.failed,
    }
    if "start" in point:
        row |= {
            "import jax s": jax_imported - start,
            "import dalembert s": imported - jax_imported,
            "import jax to first result s": time.perf_counter() - jax_imported - sum(times),
            "device": jax.devices()[0].platform,
        }
    return row


def _memory() -> float:
    """Peak resident set of this process, MB; Linux counts it in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# In the parent


def measure(point: Point) -> Point:
    """A point, measured in fresh processes; those of the first process if they are several."""
    processes = point.get("processes", 1)
    available = sorted(os.sched_getaffinity(0))
    port = _free_port()
    children = []
    for number in range(processes):
        environment, told = dict(os.environ), dict(point)
        cores = available[: point.get("cores", len(available))]
        if "processes" in point:
            cores = [available[number % len(available)]]
        if processes > 1:
            environment |= _variables(port, processes, number)
            told["process"] = number
        if "devices" in point:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(point["devices"])))
        command = [sys.executable, __file__, "--point", json.dumps(told)]
        command = ["taskset", "--cpu-list", ",".join(map(str, cores)), *command]
        children.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
    outputs = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        return {"seconds": None, "failed": "the process ended with an error"}
    return json.loads(outputs[0].splitlines()[-1])


def _variables(port: int, processes: int, number: int) -> dict[str, str]:
    from dalembert.ensemble.pool import LOCAL_PROCESSES
    from dalembert.launch import COORDINATOR, PROCESS, PROCESSES

    # The processes do not share cores here, so each may use all that it is bound to.
    return {
        COORDINATOR: f"localhost:{port}",
        PROCESSES: str(processes),
        PROCESS: str(number),
        LOCAL_PROCESSES: "1",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def _gpus() -> int:
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return len(found.stdout.splitlines())


def plot(rows: list[Point], file: Path) -> None:
    """One picture with log-log panels: times, and memory where it was measured."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = [name for name in LOOK if any(row["sweep"] == name for row in rows)]
    figure, panels = plt.subplots(2, len(drawn), figsize=(3.2 * len(drawn), 5.6), squeeze=False)
    for name, (above, below) in zip(drawn, panels.T, strict=True):
        x, y = LOOK[name]
        own = [row for row in rows if row["sweep"] == name and row["seconds"]]
        at = [row[x] for row in own]
        above.loglog(at, [row[y] for row in own], "o-", label=y)
        above.loglog(at, [row["first s"] for row in own], "s:", label="first run, s")
        below.loglog(at, [row["peak MB"] for row in own], "o-", label="peak MB")
        below.loglog(at, [row["import MB"] for row in own], ":", label="MB after import")
        above.set_title(name)
        below.set_xlabel(x)
        for panel in (above, below):
            panel.grid(alpha=0.3)
            panel.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SWEEPS, default=SWEEPS)
    parser.add_argument("--quick", action="store_true", help="few points, short runs")
    parser.add_argument("--plot", type=Path, help="draw a picture into this file")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point is not None:
        print(json.dumps(run_point(options.point)))
        return
    from measure import print_table, write_json

    rows = []
    for sweep in options.only:
        own = []
        for point in points(sweep, options.quick):
            own.append({"sweep": sweep, **point, **measure(point)})
        if own:
            print_table(own)
            print(flush=True)
        rows += own
    if options.out:
        write_json(options.out, rows)
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
