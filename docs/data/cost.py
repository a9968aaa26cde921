"""What does one step of each method cost?

python docs/data/cost.py docs/data/cost.json

Nanoseconds for one step of one path through `da.simulate` on one core, float64, noise and
statistics included, compilation not: the best of five runs, methods taking turns. The paper's
methods run on a nonlinear pendulum; those beyond it on a system that they are made for, with
midpoint beside them.
"""

import json
import platform
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import dalembert as da
from dalembert.theory.diagnosis import for_every_system

PATHS, STEPS, DT, REPEAT = 8192, 1000, 0.1, 5

HEAT_BATH = da.System(
    H=lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0]),
    F=lambda q, p: -0.5 * p,
    h=[lambda q, p: -q[0]],
    dim=1,
    name="pendulum in a heat bath",
)
OTHERS = {
    "bracket_gauss": da.systems.pendulum(),
    "bracket_midpoint": da.systems.two_noise(),
    "ninomiya_victoir": da.systems.two_noise(),
}

Case = tuple[str, da.System]


def seconds(case: Case) -> float:
    """The time of one run."""
    name, system = case
    method = da.METHODS[name]()
    start = [0.5] * system.dim, [0.2] * system.dim
    began = time.perf_counter()
    da.simulate(
        system, method, start, dt=DT, t_end=DT * STEPS, paths=PATHS, save_every=STEPS,
        workers=1, progress=False,
    )  # fmt: skip
    return time.perf_counter() - began


def measure(cases: list[Case]) -> list[float]:
    """Nanoseconds a step."""
    for case in cases:
        seconds(case)
    rounds = [[seconds(case) for case in cases] for _ in range(REPEAT)]
    return [1e9 * min(times) / (PATHS * STEPS) for times in zip(*rounds, strict=True)]


def main(target: Path) -> None:
    """Measure all methods and write one file."""
    paper = [(name, da.systems.pendulum()) for name in for_every_system()]
    beyond = [
        (name, OTHERS.get(name, HEAT_BATH))
        for name, make in da.METHODS.items()
        if name not in for_every_system() and "constraints" not in make().requires
    ]
    systems = {system.name: system for _, system in beyond}
    times = measure([*paper, *beyond, *(("midpoint", system) for system in systems.values())])
    midpoint = dict(zip(systems, times[len(paper) + len(beyond) :], strict=True))
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    data = {
        "cpu": (models or [platform.processor()])[0],
        "jax": jax.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "ns a step": {name: ns for (name, _), ns in zip(paper, times, strict=False)},
        "beyond": {
            name: {"system": system.name, "ns": ns, "of midpoint": ns / midpoint[system.name]}
            for (name, system), ns in zip(beyond, times[len(paper) :], strict=False)
        },
    }
    target.write_text(json.dumps(data, indent=1) + "\n")
    print(json.dumps(data, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
