"""A study with claims: which methods keep the temperature of a Langevin oscillator?

    dalembert run examples/study_thermostat.py --out thermostat
    dalembert report thermostat

The exact stationary variances are known, so that every curve can be judged. The exit status is 1
if a claim fails without a reason in its note.
"""

import numpy as np

import dalembert as da
from dalembert.studies import Case, ClaimList, Figure, Line, Panel, Part, Study
from dalembert.studies.curves import lines, value_at

GAMMA, TEMPERATURE, DT = 0.5, 1.0, 1.0
NOISE = np.sqrt(2 * GAMMA * TEMPERATURE)

system = da.System(
    H=lambda q, p: (p[0] ** 2 + q[0] ** 2) / 2,
    F=lambda q, p: -GAMMA * p,
    h=[lambda q, p: -NOISE * q[0]],
    dim=1,
    name="Langevin oscillator",
)
CASES = (Case("midpoint", DT), Case("stormer_verlet", DT), Case("srkw1", DT), Case("heun", DT))
# Twice the potential and twice the kinetic energy: both should tend to the temperature.
OBSERVE = {"configurational": lambda q, p: q[0] ** 2, "kinetic": lambda q, p: p[0] ** 2}


def figures(result):
    """Both temperatures over time, with the exact one."""
    runs = result.part("all")
    t = next(iter(runs.values())).t
    exact = Line("exact", t[[0, -1]], np.full(2, TEMPERATURE))
    panels = [
        Panel("t", f"{name} temperature", [*lines(runs, CASES, observable=name), exact])
        for name in OBSERVE
    ]
    caption = "Temperatures with bands of two standard errors."
    return [Figure("thermostat", "Langevin oscillator", caption, panels)]


def claims(result):
    """Midpoint has both temperatures right at any step size, Heun neither."""
    found = ClaimList("thermostat")
    runs = result.part("all")
    for name in OBSERVE:
        measured, error = value_at(runs[CASES[0].label], 50.0, name)
        found.close(
            f"midpoint {name}",
            f"Midpoint has the right {name} temperature.",
            measured,
            TEMPERATURE,
            5 * error,
            "five standard errors; its invariant measure is the exact one",
            error,
        )
        measured, error = value_at(runs[CASES[3].label], 50.0, name)
        found.above(
            f"heun {name}",
            f"Heun misses the {name} temperature at this step by more than a quarter.",
            abs(measured - TEMPERATURE),
            0.25 * TEMPERATURE,
            "the exact moments of the scheme miss it by a third",
            error,
        )
    return found


study = Study(
    name="thermostat",
    title="Langevin oscillator: temperatures at a large step",
    text=f"H = (p² + q²)/2, friction {GAMMA}, temperature {TEMPERATURE}, Δt = {DT}.",
    system=system,
    parts=(
        Part(
            "all", CASES, ([0.0], [0.0]), t_end=50.0, paths=20_000, save_times=1.0, observe=OBSERVE
        ),
    ),
    figures=figures,
    claims=claims,
)
