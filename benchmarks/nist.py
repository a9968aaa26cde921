"""NIST's Lennard-Jones fluid: do energies and pressures agree at its three state points?

    python benchmarks/nist.py [--device cpu|gpu] [--paths N] [--steps N] [--melting N] [--out FILE]

500 atoms, cut-off 3σ with corrections for the tail, BAOAB, in units of σ, ε and m. Every path gives
one average along its way; mean and standard error are over paths, and stand beside the numbers of
NIST's Standard Reference Simulation Website with their uncertainties. A liquid needs thousands of
steps to forget the crystal from which it starts, a gas tens of thousands.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from measure import machine, print_table, write_json

import dalembert as da
from dalembert.systems.lennard_jones import (
    lennard_jones_energy,
    lennard_jones_pressure,
    lennard_jones_sampler,
)

N, GAMMA, SEED, SAVE_EVERY, STANDARD_ERRORS = 500, 1.0, 1, 50, 4


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


def measure(point: Point, paths: int, melting: int, steps: int) -> list[dict[str, Any]]:
    """Energy and pressure at one state point."""
    system = da.systems.lennard_jones(N, point.density, point.temperature, GAMMA)
    observe = {"energy": lennard_jones_energy, "pressure": lennard_jones_pressure}
    burn_in = melting * point.dt
    run = da.simulate(
        system, da.baoab(), lennard_jones_sampler(N, point.density, point.temperature),
        dt=point.dt, t_end=(melting + steps) * point.dt, paths=paths, seed=SEED,
        save_every=SAVE_EVERY, on_failure="raise",
        statistics={f"mean {x}": da.TimeAverage(f, burn_in=burn_in) for x, f in observe.items()},
    )  # fmt: skip
    rows = []
    for name in observe:
        found, (value, uncertainty) = run.statistics[f"mean {name}"], getattr(point, name)
        mean, error = float(found.mean), float(found.stderr)
        rows.append({
            "T": point.temperature, "density": point.density, "what": name,
            "mean": mean, "standard error": error, "NIST": value, "its uncertainty": uncertainty,
            "gap in standard errors": (mean - value) / float(np.hypot(error, uncertainty)),
            "path-steps/s": run.provenance["path_steps_per_second"],
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--paths", type=int, default=64)
    parser.add_argument("--melting", type=int, default=10_000, help="steps before the averages")
    parser.add_argument("--steps", type=int, default=50_000, help="of the averages")
    parser.add_argument("--density", type=float, help="of the one state point to take")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    if options.paths < 2:
        parser.error("an error needs two paths or more")
    jax.config.update("jax_platforms", "cpu" if options.device == "cpu" else "cuda,cpu")
    points = [p for p in POINTS if options.density in (None, p.density)]
    if not points:
        parser.error(f"--density is one of {[p.density for p in POINTS]}")
    rows = []
    for point in points:
        rows += measure(point, options.paths, options.melting, options.steps)
        print_table(rows[-2:])
    print({key: value for key, value in machine().items() if key != "versions"})
    if options.out:
        setting = {key: getattr(options, key) for key in ("paths", "melting", "steps")}
        write_json(options.out, rows, device=options.device, dtype="float64", atoms=N, **setting)
    wrong = [r for r in rows if abs(r["gap in standard errors"]) > STANDARD_ERRORS]
    if wrong:
        names = ", ".join(f"{r['what']} at density {r['density']}" for r in wrong)
        raise SystemExit(f"not within {STANDARD_ERRORS} standard errors of NIST: {names}")


if __name__ == "__main__":
    main()
