"""What do levels save against plain Monte Carlo, in steps and in time?

E[H(4)] of a Langevin pendulum to a tolerance, by `da.expect` with levels from the coarsest step
that pays down to dt = 1/64, and by plain Monte Carlo at that step: the same engine, tolerance, seed
and confidence. Both have been called before, so that their code is compiled; what that takes is in
the first call, which is given beside. Calls alternate, and the least of the times counts.
Core-seconds are those of all threads, which others on the machine change less than seconds.

Steps are counted in two ways: all of them, of both paths of a pair, as `.steps` does ("steps",
"fewer"), and as the literature on multilevel Monte Carlo counts them, a pair by its finer path
alone ("finer", "fewer, finer").

The last columns say what the steps alone take: their number times what one more takes in a long run
at the same dt. Their ratio is what levels can save at most. The
very last ones are without a finest step that is given: both estimators halve as often as they must.

    python benchmarks/expect.py [--tolerances 1e-3 3e-4] [--repeat 3] [--out FILE.json]
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from measure import machine, print_table, write_json

import dalembert as da

T_END, FINEST, START = 4.0, 2.0**-6, ([1.0], [0.0])
METHODS = ((da.midpoint(), 0.5, 5), (da.additive_midpoint(), 1.0, 6))
"""Methods, the coarsest step that pays, and halvings from there to the finest."""


def pendulum() -> da.System:
    return da.systems.langevin(lambda q: -jnp.cos(q[0]), gamma=0.5, temperature=0.25)


def energy(q: Any, p: Any, params: Any) -> Any:
    return p[0] ** 2 / 2 - jnp.cos(q[0])


def timed(fun: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, core-seconds and the result."""
    cores, wall = time.process_time(), time.perf_counter()
    found = fun()
    return time.perf_counter() - wall, time.process_time() - cores, found


def finer_steps(answer: da.Expectation) -> float:
    """Steps without those of the coarser path of a pair."""
    return sum(level.paths * T_END / level.dt for level in answer.levels)


def core_ns_per_step(system: da.System, method: da.Method, dt: float, steps: int) -> float:
    """What a step takes: what a run of six times as many takes more, each as a least of three."""

    def run(steps: int) -> None:
        da.simulate(
            system, method, START, dt=dt, t_end=dt * steps, paths=2**14, save_every=steps,
            observe={"energy": energy}, progress=False,
        )  # fmt: skip

    run(1)
    short, long = (min(timed(lambda n=n: run(n))[1] for _ in range(3)) for n in (steps, 6 * steps))
    return (long - short) / (5 * steps) / 2**14 * 1e9


def compare(
    method: da.Method, coarsest: float, halvings: int, tolerance: float, repeat: int
) -> dict[str, Any]:
    system = pendulum()

    def ask(estimator: str, seed: int, halvings: int = halvings) -> Any:
        return da.expect(
            system, method, START, energy, t_end=T_END, tolerance=tolerance, dt=coarsest,
            halvings=halvings, estimator=estimator, seed=seed, progress=False,
        )  # fmt: skip

    kinds = ("multilevel", "plain")
    first = {kind: timed(lambda kind=kind: ask(kind, 0))[0] for kind in kinds}
    times: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for seed in range(1, repeat + 1):
        for kind in kinds:
            times[kind].append(timed(lambda kind=kind, seed=seed: ask(kind, seed)))
    answers = {kind: [x[2] for x in found] for kind, found in times.items()}
    for levels, plain in zip(*answers.values(), strict=True):
        gap = abs(levels.value - plain.value)
        if levels.levels[-1].dt != FINEST or gap > levels.error + plain.error:
            raise SystemExit(f"not the same question or not the same answer: {levels}\n{plain}")
    wall, cores = ({k: min(x[i] for x in found) for k, found in times.items()} for i in (0, 1))
    steps = {k: min(x.steps for x in found) for k, found in answers.items()}
    finer = {k: min(map(finer_steps, found)) for k, found in answers.items()}
    own = {kind: ask(kind, 1, halvings=2) for kind in kinds}
    one = [core_ns_per_step(system, method, dt, 400) for dt in (coarsest, FINEST)]
    alone = steps["multilevel"] * one[0] * 1e-9, steps["plain"] * one[1] * 1e-9
    return {
        "method": method.name, "tolerance": tolerance,
        "steps": steps["multilevel"], "plain": steps["plain"],
        "fewer": steps["plain"] / steps["multilevel"],
        "finer": finer["multilevel"], "plain finer": finer["plain"],
        "fewer, finer": finer["plain"] / finer["multilevel"],
        "s": wall["multilevel"], "plain s": wall["plain"],
        "less": wall["plain"] / wall["multilevel"],
        "core-s": cores["multilevel"], "plain core-s": cores["plain"],
        "less core-s": cores["plain"] / cores["multilevel"],
        "first call s": first["multilevel"], "plain first call s": first["plain"],
        "steps alone core-s": alone[0], "plain steps alone": alone[1],
        "at most": alone[1] / alone[0],
        "own dt": own["plain"].levels[-1].dt,
        "fewer at own dt": own["plain"].steps / own["multilevel"].steps,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tolerances", type=float, nargs="+", default=[1e-3, 3e-4])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    print({key: value for key, value in machine().items() if key != "versions"})
    rows = []
    for method, coarsest, halvings in METHODS:
        for tolerance in options.tolerances:
            rows.append(compare(method, coarsest, halvings, tolerance, options.repeat))
            print(rows[-1], flush=True)
    print_table(rows)
    if options.out:
        write_json(options.out, rows, dtype="float64", finest_dt=FINEST, t_end=T_END)


if __name__ == "__main__":
    main()
