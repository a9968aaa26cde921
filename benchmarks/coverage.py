"""How often do stated intervals hold the truth? Expectations and fits, with seeds of their own.

Of expectations (`da.expect`, 95 %) the truth is Kubo's exact E(H), the exact moments of a linear
Langevin equation, and for van der Pol's oscillator a simulation in NumPy alone, by Heun's scheme at
two step sizes, extrapolated. Of fits (`fitting.match_moments`, 95 %) it is the parameters that the
data were simulated with: 16 paths (double well) or 64 (van der Pol), of which only the position is
seen, with errors of 0.1. Beside the intervals stand normal ones, estimate ± 1.96 standard errors,
with the slopes of the moments and their covariance as they are at the estimate: of van der Pol's
they hold the truth too seldom.

    python benchmarks/coverage.py [--only PART] [--seeds 100] [--sets 50] [--first N] [--out FILE]
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from measure import print_table, write_json

import dalembert as da
from dalembert import fitting
from dalembert.systems.kubo_system import kubo_energy
from dalembert.theory import solution_moments

NOISE, SIMULATIONS = 0.1, 5
"""Errors of observations, and different seeds of simulated paths."""

Case = tuple[da.System, Any, float, float, float, float]


def kubo() -> Case:
    """System, start, end, tolerance, truth, and its standard error."""
    return da.systems.damped_kubo(), ([2.0], [0.0]), 10.0, 2e-4, float(kubo_energy(10.0)), 0.0


def langevin() -> Case:
    system, start = da.systems.langevin(gamma=0.5, temperature=0.25), ([1.0], [0.0])
    truth = solution_moments(system, start, dt=4.0, steps=1).energy
    return system, start, 4.0, 5e-3, float(truth), 0.0


def van_der_pol() -> Case:
    system = da.systems.van_der_pol(nu=0.1, sigma=0.5)
    return system, ([1.0], [1.0]), 4.0, 2e-2, *_heun(0.1, 0.5, 4.0, 200, 200_000, 10)


def _heun(
    nu: float, sigma: float, t_end: float, steps: int, paths: int, batches: int
) -> tuple[float, float]:
    """E[H] of van der Pol's oscillator from q = p = 1 by NumPy, and its standard error."""
    rng, dt = np.random.default_rng(7), t_end / steps

    def drift(q: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return p, -q + nu * (1 - q * q) * p

    def step(q: np.ndarray, p: np.ndarray, h: float, dw: np.ndarray) -> tuple[Any, Any]:
        first = drift(q, p)
        then = drift(q + h * first[0], p + h * first[1] + sigma * dw)
        q = q + h * (first[0] + then[0]) / 2
        return q, p + h * (first[1] + then[1]) / 2 + sigma * dw

    values = []
    for _ in range(batches):
        fine = coarse = (np.ones(paths), np.ones(paths))
        for _ in range(steps // 2):
            one, two = np.sqrt(dt) * rng.normal(size=(2, paths))
            fine = step(*step(*fine, dt, one), dt, two)
            coarse = step(*coarse, 2 * dt, one + two)
        energies = [(q * q + p * p) / 2 for q, p in (fine, coarse)]
        values.append(np.mean((4 * energies[0] - energies[1]) / 3))
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(batches))


def expectations(case: Callable[[], Case], first: int, seeds: int) -> dict[str, Any]:
    """How many of the intervals of so many seeds hold the truth, and one that is wrong."""
    system, start, t_end, tolerance, truth, unsure = case()
    inside = away = 0
    errors, began = [], time.process_time()
    for seed in range(first, first + seeds):
        found = da.expect(
            system, da.midpoint(), start, system.H,
            t_end=t_end, tolerance=tolerance, seed=seed, progress=False,
        )  # fmt: skip
        errors.append(found.error)
        inside += abs(found.value - truth) <= found.error
        away += abs(found.value - truth - 3 * tolerance) <= found.error
    return {
        "case": f"expect {case.__name__}", "asked": seeds, "inside": inside, "wrong truth": away,
        "tolerance": tolerance, "largest error": max(errors), "s.e. of the truth": unsure,
        "core-s": time.process_time() - began,
    }  # fmt: skip


def double_well(q: Any) -> Any:
    return jnp.sum(q**4) / 4 - jnp.sum(q**2) / 2


def fits(
    name: str, system: da.System, start: Any, true: Any, guess: Any, first: int, sets: int,
    each: int, dt: float,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """How many intervals of parameters from partly observed, noisy paths hold the truth."""
    run = da.simulate(
        system, da.additive_midpoint(), start, dt=0.05, t_end=25.0, save_every=4, keep="all",
        paths=each * sets, seed=first, progress=False,
    )  # fmt: skip
    t, y = run.t[25:], np.asarray(run.q)[25:, :, 0]
    y = y + NOISE * np.random.default_rng(first).normal(size=y.shape)
    summary = fitting.lagged_moments(0, 1, 2, 4, 8)
    summaries = np.stack([summary(y[:, i]) for i in range(y.shape[1])])
    found, poor, began = [], 0, time.process_time()
    for k in range(SIMULATIONS):
        match = fitting.match_moments(
            system, da.additive_midpoint(), t, y[:, :each],
            observe=lambda q, p, params: q[0], initial=start, dt=dt, burn_in=5.0,
            measurement=NOISE, summary=summary, paths=600, seed=first + k,
        )  # fmt: skip
        for i in range(k, sets, SIMULATIONS):
            one = replace(match, target=summaries[each * i : each * (i + 1)].mean(0))
            try:
                found.append(fitting.fit(one, guess, positive=list(guess)))
            except RuntimeError as error:  # a search that says that it has found nothing
                print(f"set {i}: {error}", flush=True)
                continue
            poor += found[-1].chance < 0.05
    seconds = time.process_time() - began
    for parameter, value in true.items():
        intervals = [fit.interval()[parameter] for fit in found]
        estimates = np.array([fit.estimate[parameter] for fit in found])
        yield {
            "case": f"fit {name}: {parameter}", "asked": sets, "found": len(found),
            "observed paths": each,
            "inside": int(sum(low <= value <= high for low, high in intervals)),
            "inside normal ones": int(
                sum(abs(f.estimate[parameter] - value) <= 1.96 * f.stderr[parameter] for f in found)
            ),
            "wrong truth": int(sum(low <= 2 * value <= high for low, high in intervals)),
            "truth": value, "mean estimate": estimates.mean(), "spread": estimates.std(ddof=1),
            "mean s.e.": float(np.mean([fit.stderr[parameter] for fit in found])),
            "misfits below 5 %": poor, "core-s": seconds,
        }  # fmt: skip


def fitted(first: int, sets: int, only: str) -> Iterator[dict[str, Any]]:
    true, guess = {"nu": 0.5, "sigma": 0.5}, {"nu": 0.4, "sigma": 0.4}
    if only in "fit van_der_pol":
        system = da.systems.van_der_pol(**true)
        yield from fits("van_der_pol", system, ([1.0], [1.0]), true, guess, first, sets, 64, 0.05)
    true, guess = {"gamma": 0.5, "temperature": 0.4}, {"gamma": 1.0, "temperature": 0.7}
    if only in "fit double_well":
        system = da.systems.langevin(double_well, **true)
        yield from fits("double_well", system, ([1.0], [0.0]), true, guess, first, sets, 16, 0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="part of the name of a case")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--first", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for case in (kubo, langevin, van_der_pol):
        if options.only in f"expect {case.__name__}":
            rows.append(expectations(case, options.first, options.seeds))
            print(rows[-1], flush=True)
    for row in fitted(options.first, options.sets, options.only):
        rows.append(row)
        print(row, flush=True)
    print_table(rows)
    if options.out:
        write_json(options.out, rows, dtype="float64", confidence=0.95, first_seed=options.first)


if __name__ == "__main__":
    main()
