"""Is a step of a system that is driven in time as fast as one of the same system without time?

A double well with friction and noise under a force that is constant, grows slowly with time, or is
a cosine of it, by midpoint and by Störmer and Verlet; and a chain of oscillators under such a force
at one end, on arrays. The growing force has as many operations as the constant one but for a
product; the other has a cosine more. All are compiled before; calls alternate. Prints nanoseconds
per path-step and ratios.

    python benchmarks/driven.py [--only NAME] [--repeat 5] [--clock wall|cpu] [--out FILE.json]
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from measure import best_of_each, machine, print_table, write_json

import dalembert as da

DT, FORCE, RATE, FREQUENCY, GAMMA, SIGMA = 0.02, 0.3, 1e-3, 1.3, 0.2, 0.4

FORCES: dict[str, Callable[[Any], Any]] = {
    "constant": lambda t: FORCE,
    "growing": lambda t: RATE * t,
    "cosine": lambda t: FORCE * jnp.cos(FREQUENCY * t),
}


@dataclass(frozen=True)
class Case:
    """One system under all forces, with a method and an engine.

    Attributes:
        engine: the name of the code that takes the steps, None for the fastest.
        code: what that is called where it has taken them.
        paths, steps: enough for a run of about a second.
    """

    name: str
    dim: int
    potential: Callable[[Any], Any]
    method: Any
    engine: str | None
    code: str
    paths: int
    steps: int

    def system(self, force: str) -> da.System:
        """The system with a force on the first position."""
        is_driven = force != "constant"

        def H(q: Any, p: Any, t: Any) -> Any:
            return p @ p / 2 + self.potential(q) - FORCES[force](t) * q[0]

        def friction(q: Any, p: Any, t: Any) -> Any:
            return -GAMMA * p

        def noise(q: Any, p: Any, t: Any) -> Any:
            return -SIGMA * q[0]

        # Systems without time have functions of (q, p).
        energy, force_of, h = (fun if is_driven else _still(fun) for fun in (H, friction, noise))
        return da.System(H=energy, F=force_of, h=[h], dim=self.dim, time=is_driven, name=self.name)

    def run(self, system: da.System) -> da.Run:
        """A run of all steps, of which only the end is observed."""
        rest = np.zeros(self.dim)
        run = da.simulate(
            system, self.method, (rest, rest), dt=DT, t_end=DT * self.steps, paths=self.paths,
            save_every=self.steps, engine=self.engine, progress=False,
        )  # fmt: skip
        if self.code not in run.provenance["code"] or run.failed:
            raise SystemExit(f"{self.name} ran on {run.provenance['code']}, not {self.code}")
        return run


def _still(fun: Callable[..., Any]) -> Callable[..., Any]:
    return lambda q, p: fun(q, p, 0.0)


def well(q: Any) -> Any:
    return jnp.sum(q**4 / 4 - q**2 / 2)


def chain(q: Any) -> Any:
    return jnp.sum(q**2 / 2 + q**4 / 4) + jnp.sum(jnp.diff(q) ** 2) / 2


LLVM, XLA = "vector code (LLVM)", "XLA"
CASES = (
    Case("well, midpoint", 1, well, da.midpoint(), None, LLVM, 2**14, 1500),
    Case("well, Verlet", 1, well, da.stormer_verlet(), None, LLVM, 2**14, 4000),
    Case("well, midpoint, XLA", 1, well, da.midpoint(), "XLA", XLA, 2**13, 400),
    Case("chain of 32, midpoint", 32, chain, da.midpoint(), None, "arrays (XLA)", 2**9, 100),
    Case("chain of 32, Verlet", 32, chain, da.stormer_verlet(), None, "arrays (XLA)", 2**9, 400),
)


def compare(case: Case, repeat: int, clock: Callable[[], float]) -> dict[str, Any]:
    """A row: all systems by turns."""
    # Once: code is compiled again for functions that are made again.
    systems = [case.system(force) for force in FORCES]
    runs = [lambda system=system: case.run(system) for system in systems]
    code = [run().provenance["code"] for run in runs][1]
    best = best_of_each(runs, repeat, clock)
    ns = [1e9 * each / (case.paths * case.steps) for each in best]
    return {
        "case": case.name,
        "code": code,
        **{f"{force}, ns": each for force, each in zip(FORCES, ns, strict=True)},
        "growing/constant": ns[1] / ns[0],
        "cosine/constant": ns[2] / ns[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="part of the name of a case")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    print({key: value for key, value in machine().items() if key != "versions"})
    rows = []
    for case in CASES:
        if options.only in case.name:
            rows.append(compare(case, options.repeat, clock))
            print_table(rows[-1:])
    if options.out:
        write_json(options.out, rows, dtype="float64", clock=options.clock)


if __name__ == "__main__":
    main()
