"""A study of your own: jumps between the wells of a noisy double well, three methods at one step.

    dalembert run examples/study_double_well.py --out double_well
    dalembert report double_well

A study is a system, parts with cases (a method at a step size), and what to observe. Without
figures of its own it gets one of every observable and histogram.
"""

import dalembert as da
from dalembert.studies import Case, Part, Study


def H(q, p):
    """Kinetic energy and a double well with minima at ±1."""
    return p[0] ** 2 / 2 + (q[0] ** 2 - 1) ** 2 / 4


system = da.System(
    H=H,
    F=lambda q, p: -0.2 * p,  # friction
    h=[lambda q, p: -0.3 * q[0]],  # thermal noise: additive, temperature 0.3² / (2 · 0.2)
    dim=1,
    name="double well",
)

study = Study(
    name="double-well",
    title="Double well: from the left well to both",
    text="H = p²/2 + (q² − 1)²/4 with friction 0.2 and additive noise 0.3, started in the left "
    "well. The mean position tells how many paths have crossed.",
    system=system,
    parts=(
        Part(
            name="all",
            cases=(Case("midpoint", 0.25), Case("stormer_verlet", 0.25), Case("heun", 0.25)),
            initial=([-1.0], [0.0]),
            t_end=100.0,
            paths=4000,
            save_times=2.5,
            observe={"position": lambda q, p: q[0], "energy": H},
            histograms={"q": da.Histogram(da.Axis(lambda q, p: q[0], -2.5, 2.5, bins=40))},
        ),
    ),
)
