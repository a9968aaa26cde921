"""NIST's Lennard-Jones fluid: do energies and pressures agree at its three state points?

    python benchmarks/nist.py [--device cpu|gpu] [--paths N] [--steps N] [--melting N] [--seconds N]
                              [--density X] [--out FILE]

500 atoms, cut-off 3σ with corrections for the tail, BAOAB, in units of σ, ε and m. NIST's Monte
Carlo has a potential that jumps to zero at the cut-off, by u(r_c) = −0.0055; forces know only the
one that was shifted to be continuous, under which there are 0.6 % fewer near pairs in a gas. So
states are weighted by the ratio of both probabilities. Every path gives one average along its way;
mean and standard error are over paths, and stand beside the numbers of NIST's Standard Reference
Simulation Website with their uncertainties. A liquid needs thousands of
steps to forget the crystal from which it starts, a gas tens of thousands. With `--seconds` the
number of steps is what fits into that time, shared evenly by the state points; a fifth of them are
left to forget the crystal. A state point that fails is named and leaves the others alone.
"""

import argparse
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from measure import machine, print_table, write_json

import dalembert as da
from dalembert.systems.lennard_jones_system import (
    lennard_jones_energy,
    lennard_jones_pressure,
    lennard_jones_sampler,
)

N, GAMMA, SEED, SAVE_EVERY, STANDARD_ERRORS = 500, 1.0, 1, 50, 4
TRIAL = 20 * SAVE_EVERY
"""Steps by which the speed is measured."""


class Point(NamedTuple):
    """A state point: NIST's mean and uncertainty of the energy per atom and of the pressure."""

    temperature: float
    density: float
    energy: tuple[float, float]
    pressure: tuple[float, float]
    dt: float


# Pressures of gases come without an uncertainty: half of their last digit stands for it.
POINTS = (
    Point(0.85, 0.005, (-0.05190, 8e-5), (4.1003e-3, 5e-8), 0.01),
    Point(0.85, 0.009, (-0.09397, 13e-5), (7.164e-3, 5e-7), 0.01),
    Point(0.90, 0.776, (-5.4689, 4e-4), (0.2406, 27e-4), 0.004),
)


OBSERVED = {"energy": lennard_jones_energy, "pressure": lennard_jones_pressure}


def weight(q: Any, p: Any, params: Any) -> Any:
    """How much more probable a state is with the jump: e^{−n u(r_c)/T} with n pairs inside.

    Relative to a state with as many pairs inside as independent atoms have.
    """
    reach, box = params["cutoff"] * params["sigma"], jnp.cbrt(len(q) / params["density"])
    jump = 4 * params["epsilon"] * (params["cutoff"] ** -12.0 - params["cutoff"] ** -6.0)
    apart = q[:, None] - q[None, :]
    apart = apart - box * jnp.round(apart / box)
    pairs = (jnp.sum(jnp.sum(apart**2, axis=-1) < reach**2) - len(q)) / 2
    usual = len(q) * params["density"] * 2 * jnp.pi / 3 * reach**3
    return jnp.exp(-(pairs - usual) * jump / params["temperature"])


def simulated(point: Point, paths: int, melting: int, steps: int) -> da.Run:
    """A run whose averages begin after some steps: of weights, and of weighted gaps from NIST."""
    system = da.systems.lennard_jones(N, point.density, point.temperature, GAMMA)

    def gap(name: str) -> Any:
        known, _ = getattr(point, name)
        return lambda *state: (OBSERVED[name](*state) - known) * weight(*state)

    observed = {"weight": weight, **{name: gap(name) for name in OBSERVED}}
    burn_in = melting * point.dt
    return da.simulate(
        system, da.baoab(), lennard_jones_sampler(system),
        dt=point.dt, t_end=(melting + steps) * point.dt, paths=paths, seed=SEED,
        save_every=SAVE_EVERY, on_failure="raise", progress=False,
        statistics={f"mean {x}": da.TimeAverage(f, burn_in=burn_in) for x, f in observed.items()},
    )  # fmt: skip


def what_fits(point: Point, paths: int, seconds: float) -> tuple[int, int]:
    """Steps before the averages, and of them, that take about so many seconds with all else."""
    began = time.perf_counter()
    simulated(point, paths, 0, TRIAL)
    compiled = time.perf_counter()
    simulated(point, paths, 0, TRIAL)
    now = time.perf_counter()
    # What is compiled for the averages of the run itself takes about as long again.
    left = seconds - 2 * (compiled - began) - (now - compiled)
    saves = int(max(left, 1) / (now - compiled) * TRIAL / SAVE_EVERY)
    melting = max(saves // 5, 1)
    return melting * SAVE_EVERY, max(saves - melting, 2) * SAVE_EVERY


def measure(point: Point, paths: int, melting: int, steps: int) -> list[dict[str, Any]]:
    """Energy and pressure at one state point."""
    run, rows = simulated(point, paths, melting, steps), []
    for name in OBSERVED:
        found, (value, uncertainty) = run.statistics[f"mean {name}"], getattr(point, name)
        weights = float(run.statistics["mean weight"].mean)
        mean, error = value + float(found.mean) / weights, float(found.stderr) / weights
        rows.append({
            "T": point.temperature, "density": point.density, "what": name,
            "mean": mean, "standard error": error, "NIST": value, "its uncertainty": uncertainty,
            "gap in standard errors": (mean - value) / float(np.hypot(error, uncertainty)),
            "melting": melting, "steps": steps,
            "path-steps/s": run.provenance["path_steps_per_second"],
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--paths", type=int, default=64)
    parser.add_argument("--melting", type=int, default=10_000, help="steps before the averages")
    parser.add_argument("--steps", type=int, default=50_000, help="of the averages")
    parser.add_argument("--seconds", type=float, help="for all, in place of numbers of steps")
    parser.add_argument("--density", type=float, help="of the one state point to take")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    if options.paths < 2:
        parser.error("an error needs two paths or more")
    jax.config.update("jax_platforms", "cpu" if options.device == "cpu" else "cuda,cpu")
    points = [p for p in POINTS if options.density in (None, p.density)]
    if not points:
        parser.error(f"--density is one of {[p.density for p in POINTS]}")
    rows, failed = [], []
    for point in points:
        try:
            numbers = options.melting, options.steps
            if options.seconds:
                numbers = what_fits(point, options.paths, options.seconds / len(points))
            rows += measure(point, options.paths, *numbers)
        except Exception:
            traceback.print_exc()
            failed.append(f"density {point.density}")
            continue
        print_table(rows[-2:])
        if options.out:
            setting = {"atoms": N, "paths": options.paths, "failed": failed}
            write_json(options.out, rows, device=options.device, dtype="float64", **setting)
    print({key: value for key, value in machine().items() if key != "versions"})
    wrong = [r for r in rows if abs(r["gap in standard errors"]) > STANDARD_ERRORS]
    if wrong or failed:
        names = [f"{r['what']} at density {r['density']}" for r in wrong]
        raise SystemExit(
            f"not within {STANDARD_ERRORS} standard errors of NIST: {', '.join(names) or 'none'}; "
            f"failed: {', '.join(failed) or 'none'}"
        )


if __name__ == "__main__":
    main()
