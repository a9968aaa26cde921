"""What does one step of each method cost on a nonlinear pendulum?

python docs/data/cost.py docs/data/cost.json

Nanoseconds for one step of one path through `da.simulate` on one core, float64, noise and
statistics included, compilation not: the best of five runs, methods taking turns.
"""

import json
import platform
import sys
import time
from pathlib import Path

import jax

import dalembert as da

PATHS, STEPS, DT, REPEAT = 8192, 1000, 0.1, 5


def seconds(name: str) -> float:
    """The time of one run."""
    began = time.perf_counter()
    da.simulate(
        da.systems.pendulum(),
        da.METHODS[name](),
        ([0.5], [0.2]),
        dt=DT,
        t_end=DT * STEPS,
        paths=PATHS,
        save_every=STEPS,
        workers=1,
        progress=False,
    )
    return time.perf_counter() - began


def main(target: Path) -> None:
    """Measure all methods and write one file."""
    for name in da.METHODS:
        seconds(name)
    rounds = [{name: seconds(name) for name in da.METHODS} for _ in range(REPEAT)]
    cost = {name: 1e9 * min(r[name] for r in rounds) / (PATHS * STEPS) for name in da.METHODS}
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    data = {
        "cpu": (models or [platform.processor()])[0],
        "jax": jax.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "ns a step": cost,
    }
    target.write_text(json.dumps(data, indent=1) + "\n")
    print(json.dumps(data, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
