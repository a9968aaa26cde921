"""How fast is `da.simulate`, compared with the same scheme written by hand in NumPy?

The damped Kubo oscillator, float64, noise included, energies saved 10 times. The reference is the
midpoint method with its linear stage equation solved by hand, vectorised over paths. Compilation is
timed apart. Prints a table and writes JSON.

    python benchmarks/ensemble_rate.py [--paths 20000] [--steps 500] [--out FILE.json]
"""

import argparse
import json
import platform
import time
from pathlib import Path

import jax
import numpy as np

import dalembert as da

BETA, NU, DT = 0.5, 0.001, 0.1


def by_hand(paths: int, steps: int, seed: int) -> float:
    """Midpoint on the Kubo oscillator: with a = (h + βΔW)/2, P = (p − a q)/(1 + a² + νa)."""
    rng = np.random.default_rng(seed)
    q, p = np.full(paths, 2.0), np.zeros(paths)
    for _ in range(steps):
        a = (DT + BETA * np.sqrt(DT) * rng.standard_normal(paths)) / 2
        middle = (p - a * q) / (1 + a * a + NU * a)
        q, p = q + 2 * a * middle, 2 * middle - p
    return float(np.mean(q * q + p * p) / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    paths, steps = options.paths, options.steps

    start = time.perf_counter()
    by_hand(paths, steps, 0)
    reference = paths * steps / (time.perf_counter() - start)
    rows = [{"method": "midpoint by hand, NumPy", "rate": reference, "ratio": 1.0, "first": 0.0}]
    for name, make in da.METHODS.items():
        settings = {"dt": DT, "t_end": steps * DT, "paths": paths, "save_every": steps // 10}
        seconds = []
        for seed in (0, 1):
            start = time.perf_counter()
            da.simulate(
                da.systems.damped_kubo(BETA, NU), make(), ([2.0], [0.0]), seed=seed, **settings
            )
            seconds.append(time.perf_counter() - start)
        rate = paths * steps / seconds[1]
        first = seconds[0] - seconds[1]
        rows.append({"method": name, "rate": rate, "ratio": rate / reference, "first": first})

    machine = {
        "machine": platform.machine(),
        "device": str(jax.devices()[0].device_kind),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "dtype": "float64",
        "paths": paths,
        "steps": steps,
    }
    print(machine)
    print(f"{'method':26}{'path-steps/s':>14}{'ratio':>8}{'compile s':>11}")
    for row in rows:
        print(f"{row['method']:26}{row['rate']:14.3g}{row['ratio']:8.2f}{row['first']:11.2f}")
    if options.out:
        options.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
