"""How fast this machine takes steps: some problems, small and large, and what a step of each costs.

for speed in measure(PROBLEMS):
    print(speed.problem.name, speed.rate)
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

import dalembert as da
from dalembert.spelling import ByName

SECONDS = 1.0
"""How long the steps that are timed last, about."""

NUMBERS = 2**17
"""Degrees of freedom of all paths together: enough to keep every core busy."""

FIRST_STEPS = 64
"""Steps of the run that finds out how many are to be timed, and that compiles."""


class Problem(NamedTuple):
    """What is timed: so many paths of a method on a system, all from one state."""

    name: str
    system: Callable[[], da.System]
    method: da.Method
    dt: float
    initial: tuple[Any, Any]


class Speed(NamedTuple):
    """What was measured: `rate` is in path-steps per second, times of the steps alone.

    `compile_seconds` is what the first run took before its first step, `engine` what took the
    steps, and `failed` how many paths have left the run.
    """

    problem: Problem
    system: da.System
    paths: int
    rate: float
    compile_seconds: float
    engine: str
    failed: int


def _flat(number: float, dim: int) -> np.ndarray:
    return np.full(dim, number)


PROBLEMS = ByName(
    "problem",
    {
        problem.name: problem
        for problem in (
            Problem("damped_kubo", da.systems.damped_kubo, da.srkw2(), 0.5, ([2.0], [0.0])),
            Problem("van_der_pol", da.systems.van_der_pol, da.midpoint(), 0.2, ([1.0], [1.0])),
            Problem(
                "lenard_bernstein", da.systems.lenard_bernstein, da.dirk(), 0.15, ([0.5], [0.5])
            ),
            Problem("lorentz", da.systems.lorentz, da.midpoint(), 0.05, ([0.0, 0.0], [1.0, 1.0])),
            Problem("langevin", da.systems.langevin, da.baoab(), 0.1, ([0.0], [0.0])),
            Problem(
                "fput",
                lambda: da.systems.fput(N=1024, gamma=0.1),
                da.baoab(),
                0.05,
                (_flat(0.0, 1024), _flat(0.0, 1024)),
            ),
        )
    },
)
"""Ready-made systems with a step size and a start at which their paths do not fail."""


def measure(problems: Iterable[Problem], seconds: float = SECONDS) -> Iterator[Speed]:
    """Time each problem: once a few steps, which compiles, then as many as last some seconds."""
    for problem in problems:
        system = problem.system()
        paths = max(NUMBERS // system.dim, 1)
        first = _run(problem, system, paths, FIRST_STEPS)
        rate = first.provenance["path_steps_per_second"]
        steps = FIRST_STEPS * max(round(rate * seconds / paths / FIRST_STEPS), 1)
        run = _run(problem, system, paths, steps)
        of = run.provenance
        yield Speed(
            problem,
            system,
            paths,
            of["path_steps_per_second"],
            first.provenance["compile_seconds"],
            f"{of['device']}, {of['code']}",
            run.failed,
        )


def _run(problem: Problem, system: da.System, paths: int, steps: int) -> da.Run:
    """A run that looks at the energy at its end alone."""
    return da.simulate(
        system,
        problem.method,
        problem.initial,
        dt=problem.dt,
        t_end=steps * problem.dt,
        paths=paths,
        save_every=steps,
        progress=False,
    )
