"""Seconds before the first result: every case in a process of its own, after the imports.

    python benchmarks/first_seconds.py [--only TEXT] [--cache] [--out FILE]

With --cache every case runs in two processes that share a folder for compiled code, which is empty
for the first of them; the second finds there what XLA and LLVM have compiled for the first, and
traces and writes out again.
Python's own bytecode of the package is there before, as after an installation.
The clock of the processor counts all threads, and other users of the machine change it less.
"""

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from measure import machine, print_table, write_json

import dalembert as da

STEPPED = ("midpoint", "stormer_verlet", "dirk", "srkw1", "bracket_midpoint", "ninomiya_victoir",
           "heun", "r2", "e1", "rs1", "rs2")  # fmt: skip
DIAGNOSED = ("damped_kubo", "van_der_pol", "lorentz", "two_noise", "langevin", "planar")
ENGINES = ("XLA", "vector code (LLVM)")


def non_separable(dim: int, noises: int) -> da.System:
    """Kinetic energy with a mass that depends on the place, friction too, and noises that turn."""
    turns = [lambda q, p: 0.2 * jnp.sin(q[0]) * p[1], lambda q, p: 0.1 * q[1] * p[0]]
    return da.System(
        H=lambda q, p: (
            jnp.sum(p**2) / 2 * (1 + 0.1 * jnp.sin(q[0])) + jnp.sum(q**4) / 4 + 0.1 * q[0] * p[1]
        ),
        F=lambda q, p: -0.1 * p * (1 + q**2),
        h=turns[:noises],
        dim=dim,
    )


def step(name: str, dim: int, noises: int) -> None:
    method, system = da.METHODS[name](), non_separable(dim, noises)
    dW = np.array([0.05, -0.03])[:noises]
    area = np.array([[0, 1e-3], [-1e-3, 0]])[:noises, :noises]
    known = {
        "dW": dW, "dZ": dW / 20, "area": area, "mixed": np.outer(dW, dW) / 2 + area, "coin": 1.0
    }  # fmt: skip
    increments = da.Increments(**{key: known[key] for key in method.needs(noises)})
    q, p = np.linspace(0.3, 0.9, dim), np.linspace(-0.3, 0.5, dim)
    assert da.step(system, method, q, p, 0.1, increments)[2].converged


def run(engine: str) -> None:
    start = [0.3, 0.6, 0.9], [-0.3, 0.1, 0.5]
    found = da.simulate(
        non_separable(3, 2), da.midpoint(), start, dt=0.1, t_end=1.0, paths=1000, engine=engine,
        progress=False,
    )  # fmt: skip
    assert not found.failed


def cases() -> dict[str, Callable[[], object]]:
    """What is timed, by name; each is called once."""
    return {
        **{f"step, {name}, dim 3, 2 noises": lambda n=name: step(n, 3, 2) for name in STEPPED},
        "step, bracket_gauss, dim 4, 1 noise": lambda: step("bracket_gauss", 4, 1),
        **{f"run, midpoint, dim 3, {name}": lambda n=name: run(n) for name in ENGINES},
        **{f"diagnose, {n}": lambda n=n: str(da.diagnose(da.SYSTEMS[n]())) for n in DIAGNOSED},
    }


def time_one(name: str) -> None:
    """Print the seconds of one case, on the wall and of the processor."""
    fun = cases()[name]
    wall, cpu = time.perf_counter(), time.process_time()
    fun()
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))


def in_process(name: str, cache: str | None) -> list[float]:
    told = {"JAX_PLATFORMS": "cpu"}
    if cache:
        told |= {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    command = [sys.executable, __file__, "--case", name]
    done = subprocess.run(
        command, env=os.environ | told, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def measured(name: str, with_cache: bool) -> dict[str, Any]:
    if not with_cache:
        wall, cpu = in_process(name, None)
        return {"case": name, "wall, s": wall, "processor, s": cpu}
    with tempfile.TemporaryDirectory() as folder:
        (first, first_cpu), (second, second_cpu) = (in_process(name, folder) for _ in range(2))
    return {
        "case": name, "first, s": first, "second, s": second, "ratio": second / first,
        "first, processor, s": first_cpu, "second, processor, s": second_cpu,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="part of the name of a case")
    parser.add_argument("--cache", action="store_true", help="two processes that share a cache")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--case", choices=cases(), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        time_one(options.case)
        return
    compileall.compile_dir(Path(da.__file__).parent, quiet=1)
    rows = [measured(name, options.cache) for name in cases() if options.only in name]
    print({key: value for key, value in machine().items() if key != "versions"})
    print_table(rows)
    if options.out:
        write_json(options.out, rows, cache=options.cache)


if __name__ == "__main__":
    main()
