"""How does dalembert compare with what people use: diffrax, torchsde and jitcsde?

Two questions about the paper's van der Pol and damped Kubo oscillators, both in float64, noise
included, with all cores or the GPU for everybody and compilation timed apart:

1. path-steps per second;
2. time to equal accuracy: how long it takes to know E(H) at the end of the paper's figures,
   T = 5000, to a given relative error, |bias| + 2 standard errors.

For the second, every contender gets the step size that is cheapest for it. The bias of a scheme is
computed, not sampled. On the Kubo oscillator a step is linear in the state, z' = M(ξ) z, so second
moments follow from E[M ⊗ M]. On van der Pol's oscillator ν and σ² are small, so the energy is a
slow Markov chain whose drift and variance per step follow by averaging over noise and phase. Then
as many paths are taken as the rest of the error budget needs. The configuration is run if that
takes less than --limit seconds; otherwise its time is extrapolated from a shorter run, and marked.

Core-seconds count the work of all threads; other programs on the machine change them less than
seconds on the clock. A contender that is not installed is left out. diffrax advises against methods
of high order for SDEs and warns about them, but they are its fastest here, so they take part.

    python benchmarks/others.py [--device cpu|gpu] [--only NAME ...] [--quick] [--out FILE.json]
"""

import argparse
import importlib.util
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from contenders import (
    LIBRARIES,
    PROBLEMS,
    T_END,
    VAN_DER_POL,
    Contender,
    Problem,
    Run,
)
from measure import print_table, write_json
from numpy.polynomial import Chebyshev
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss

from dalembert.systems.van_der_pol_system import STATIONARY_ENERGY

VECTOR = 2048
"""Fewer paths at a time are not cheaper, for anyone."""

STEP_SIZES = [x / 10**k for k in range(6) for x in (1, 0.8, 0.625, 0.5, 0.4, 0.25, 0.2, 0.125)]
"""Step sizes of which every horizon used here is a multiple."""

# The bias of a scheme


def _noise_nodes(weak: bool) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (x, y) and weights of an average over the increments of a step."""
    if weak:
        third = np.array([1 / 6, 2 / 3, 1 / 6])
        return np.stack([np.sqrt(3) * np.array([-1.0, 0.0, 1.0]), np.zeros(3)]), third
    x, w = hermegauss(24)
    y, v = hermegauss(4)
    nodes = np.stack([a.ravel() for a in np.meshgrid(x, y, indexing="ij")])
    weights = np.outer(w, v).ravel()
    return nodes, weights / weights.sum()


def make_bias(contender: Contender, problem: Problem) -> Callable[[float], float]:
    """dt -> relative error of the scheme's own E(H) at the end."""
    step = contender.step(problem)
    (x, y), weights = _noise_nodes(contender.weak)
    at_nodes = jax.jit(jax.vmap(jax.vmap(step, (0, 0, None, None, None)), (None, None, None, 0, 0)))

    def linear_maps(dt: float, scale: float, x: Any, y: Any) -> np.ndarray:
        """Images of the unit vectors, as columns, one matrix per node."""
        unit = scale * np.eye(2)
        return np.stack(at_nodes(unit[0], unit[1], dt, x, y), axis=1) / scale

    def kubo(dt: float) -> float:
        M = linear_maps(dt, 1.0, x, y)
        second = np.einsum("n,nij,nkl->ikjl", weights, M, M).reshape(4, 4)
        with np.errstate(all="ignore"):
            power = np.linalg.matrix_power(second, round(T_END / dt))
            z = np.asarray(problem.start)
            moments = power @ np.outer(z, z).ravel()
        return float((moments[0] + moments[3]) / 2 / problem.exact - 1)

    def van_der_pol(dt: float) -> float:
        # Without noise and friction a step turns states along ellipses zᵀGz = 2I.
        M = linear_maps(dt, 1e-4, np.zeros(1), np.zeros(1))[0]
        G = np.array([[M[1, 0], 0.0], [0.0, -M[0, 1]]])
        G[0, 1] = G[1, 0] = (M[1, 1] - M[0, 0]) / 2
        if not np.linalg.det(G) > 0:
            return math.inf
        G *= -1 / np.sqrt(np.linalg.det(G))
        L = np.linalg.cholesky(G)
        nodes, w = leggauss(64)
        highest = 14.0
        I, phase = highest * (nodes + 1) / 2, 2 * np.pi * (np.arange(32) + 0.5) / 32
        circle = np.stack([np.cos(phase), np.sin(phase)])
        z = np.linalg.solve(L.T, circle)[:, None, :] * np.sqrt(2 * I)[:, None]
        image = np.stack(at_nodes(z[0].ravel(), z[1].ravel(), dt, x, y))
        u = np.einsum("ji,jnk->ink", L, image)
        change = np.sum(u**2, axis=0).reshape(len(x), *z.shape[1:]) / 2 - I[:, None]
        mean = np.einsum("n,nij->ij", weights, change)
        drift = mean.mean(axis=1) / dt
        variance = np.einsum("n,nij->ij", weights, (change - mean) ** 2).mean(axis=1) / dt
        # The stationary density is exp(∫ 2 drift/variance)/variance; 1/I is integrated apart.
        regular = Chebyshev.fit(I, 2 * drift / variance - 1 / I, 24, domain=[0, highest])
        exponent = regular.integ()(I)
        density = w * np.exp(exponent - exponent.max()) * I / variance
        energy = np.trace(np.linalg.inv(G)) / 2 * np.sum(density * I) / np.sum(density)
        return float(energy / STATIONARY_ENERGY - 1)

    return van_der_pol if problem is VAN_DER_POL else kubo


# Measurements


@dataclass(frozen=True)
class Plan:
    """A configuration that reaches a tolerance."""

    dt: float
    bias: float
    paths: int

    @property
    def steps(self) -> int:
        return round(T_END / self.dt)


def cheapest(bias: Callable[[float], float], problem: Problem, tolerance: float) -> Plan | None:
    """The step size, and the number of paths, with the least work for a tolerance."""
    best, least, misses = None, math.inf, 0
    for dt in sorted(STEP_SIZES, reverse=True):
        error = abs(bias(dt))
        if not error < tolerance:
            continue
        paths = math.ceil((2 * problem.spread / (tolerance - error)) ** 2)
        work = max(paths, VECTOR) / dt
        if work < least:
            best, least, misses = Plan(dt, bias(dt), paths), work, 0
        else:
            misses += 1
        if misses == 4:
            break
    return best


class Timing(NamedTuple):
    """Seconds on the clock, seconds of work of all threads, and what came out."""

    seconds: float
    core_seconds: float
    energy: float


def timed(run: Run, dt: float, steps: int, paths: int) -> Timing:
    start, core_start = time.perf_counter(), time.process_time()
    energy = run(dt, steps, paths)
    return Timing(time.perf_counter() - start, time.process_time() - core_start, energy)


def calibrate(run: Run, dt: float, paths: int, seconds: float) -> tuple[int, float]:
    """Steps that take about so many seconds, and the time of the first, short run."""
    steps = 32
    first = timed(run, dt, steps, paths).seconds
    taken = timed(run, dt, steps, paths).seconds
    while taken < seconds / 8:
        steps *= 4
        taken = timed(run, dt, steps, paths).seconds
    return max(steps, int(steps * seconds / taken)), first


def measure_rates(contenders: list[Contender], options: Any) -> list[dict[str, Any]]:
    """Path-steps per second of all contenders, and ratios to dalembert's midpoint.

    They run in turn, several rounds, so that all meet the same changes of the machine's speed.
    """
    rows, dt = [], 0.05
    for problem in options.problems:
        own, runs = [], []
        for contender in contenders:
            if problem.name not in contender.problems:
                continue
            paths = _sample(contender, options.paths)
            runs.append(contender.prepare(problem))
            steps, first = calibrate(runs[-1], dt, paths, options.seconds)
            own.append({"problem": problem.name, "contender": contender.label, "paths": paths})
            own[-1] |= {"steps": steps, "first call s": first}
        for _ in range(options.repeat):
            for row, run in zip(own, runs, strict=True):
                new = timed(run, dt, row["steps"], row["paths"])
                work = row["paths"] * row["steps"]
                _keep_best(row, "path-steps/s", work / new.seconds)
                if row["contender"].startswith("jitcsde"):
                    continue
                _keep_best(row, "per core-second", work / new.core_seconds)
        for column in ("path-steps/s", "per core-second"):
            unit = [row[column] for row in own if row["contender"] == "dalembert midpoint"]
            for row in own if unit else ():
                row[f"{column}, of midpoint"] = row.get(column, math.nan) / unit[0]
        rows += own
    return rows


def _keep_best(row: dict[str, Any], column: str, value: float) -> None:
    row[column] = max(row.get(column, 0.0), value)


def measure_accuracy(contenders: list[Contender], options: Any) -> list[dict[str, Any]]:
    """Time to equal accuracy of all contenders, and its ratio to dalembert's best."""
    rows = []
    for problem in options.problems:
        for contender in contenders:
            if problem.name not in contender.problems:
                continue
            bias, run = cache(make_bias(contender, problem)), contender.prepare(problem)
            for tolerance in problem.tolerances[: 1 if options.quick else None]:
                row: dict[str, Any] = {"problem": f"{problem.name} {tolerance:.1%}"}
                row |= {"contender": contender.label} | _time_to(
                    run, cheapest(bias, problem, tolerance), problem, contender, options
                )
                print(f"  {row['problem']}, {contender.label}: {row['seconds']:.3g} s", flush=True)
                rows.append(row)
    for name in dict.fromkeys(row["problem"] for row in rows):
        same = [row for row in rows if row["problem"] == name]
        for column in ("seconds", "core-seconds"):
            own = [row[column] for row in same if row["contender"].startswith("dalembert")]
            for row in same if own else []:
                row[f"{column}, of dalembert's best"] = row.get(column, math.nan) / min(own)
    return rows


def _time_to(
    run: Run, plan: Plan | None, problem: Problem, contender: Contender, options: Any
) -> dict[str, Any]:
    """The time of a plan, from the whole run if that is short enough."""
    if plan is None:
        return {"seconds": math.inf, "core-seconds": math.inf, "how": "no step size"}
    paths = _sample(contender, min(plan.paths, options.paths))
    steps, _ = calibrate(run, plan.dt, paths, options.seconds)
    best = min(timed(run, plan.dt, steps, paths) for _ in range(2))
    share = paths * steps / (plan.paths * plan.steps)
    row = {
        "dt": plan.dt,
        "bias %": 100 * plan.bias,
        "paths": plan.paths,
        "seconds": best.seconds / share,
        "core-seconds": best.core_seconds / share,
        "how": "extrapolated",
    }
    if row["seconds"] < options.limit:
        whole = timed(run, plan.dt, plan.steps, plan.paths)
        error = 100 * (whole.energy / problem.exact - 1)
        row |= {"seconds": whole.seconds, "core-seconds": whole.core_seconds}
        row |= {"how": "measured", "error %": error}
    if contender.library == "jitcsde":
        del row["core-seconds"]
    row["path-steps/s"] = plan.paths * plan.steps / row["seconds"]
    return row


def _sample(contender: Contender, paths: int) -> int:
    """Paths of a shorter run: one at a time is how jitcsde works."""
    return min(paths, 64) if contender.library == "jitcsde" else paths


def _chosen(only: list[str] | None) -> list[Contender]:
    """All contenders of the libraries that are here; a line about each that is not."""
    chosen = []
    for library, contenders in LIBRARIES.items():
        if importlib.util.find_spec(library) is None:
            print(f"{library} is not installed and is left out: pip install {library}")
            continue
        chosen += [c for c in contenders() if not only or any(part in c.label for part in only)]
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--only", nargs="+", help="parts of the contenders' names")
    parser.add_argument("--problem", choices=[p.name for p in PROBLEMS])
    parser.add_argument("--skip", choices=("rates", "accuracy"))
    parser.add_argument("--quick", action="store_true", help="short runs, one tolerance each")
    parser.add_argument("--paths", type=int, help="paths of the rates")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of the longest run")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu" if options.device == "cpu" else "cuda,cpu")
    jax.config.update("jax_enable_x64", True)
    options.paths = options.paths or (2**14 if options.device == "cpu" else 2**18)
    options.seconds, options.repeat = (0.3, 2) if options.quick else (1.5, 3)
    options.limit = min(options.limit, 5.0) if options.quick else options.limit
    options.problems = [p for p in PROBLEMS if options.problem in (None, p.name)]
    warnings.filterwarnings("ignore", message=".*is not marked as converging.*")
    contenders = _chosen(options.only)
    rates = [] if options.skip == "rates" else measure_rates(contenders, options)
    accuracy = [] if options.skip == "accuracy" else measure_accuracy(contenders, options)
    for title, rows in (("Rates, float64", rates), (f"E(H) at T = {T_END:g}", accuracy)):
        if rows:
            print(f"\n{title}")
            print_table(rows)
    if options.out:
        write_json(options.out, rates + accuracy, device=options.device)


if __name__ == "__main__":
    main()
