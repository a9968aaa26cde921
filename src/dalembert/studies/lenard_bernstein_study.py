"""Plasma with Lenard–Bernstein collisions: does a method relax to the Gibbs measure?"""

from functools import partial
from typing import Any

import numpy as np

from dalembert.ensemble.initial import rejection_sampler
from dalembert.methods import srkw1
from dalembert.statistics import Axis, Histogram
from dalembert.studies.curves import density_lines, lines
from dalembert.studies.figures import Figure, Image, Line, Panel
from dalembert.studies.lenard_bernstein_claims import (
    PATHS,
    T_END,
    claims_of_lenard_bernstein,
    gibbs_densities,
    is_as_easy,
    limit_energy,
    temperature,
)
from dalembert.studies.numbers import ROOT_TWO, Numbers
from dalembert.studies.study import Case, Part, Result, Study
from dalembert.systems.lenard_bernstein_system import (
    bump_on_tail_density,
    bump_on_tail_v,
    bump_on_tail_x,
)
from dalembert.systems.lenard_bernstein_system import lenard_bernstein as system

CASES = {
    "mean-square": (
        Case("dirk", 0.15),
        Case("midpoint", 0.1),
        Case("stormer_verlet", 0.1),
        Case("heun", 0.15),
        Case("heun", 0.02),
        Case("r2", 0.02),
        Case("e1", 0.15),
        Case("e1", 0.02),
    ),
    "weak": (
        Case(srkw1(0.0), 0.1, "srkw1"),
        Case("srkw2", 0.15),
        Case("srkw2", 0.25),
        Case("rs1", 0.02),
        Case("rs2", 0.15),
        Case("rs2", 0.02),
    ),
}
LOWEST, HIGHEST = -6.0, 7.5
"""Velocities beyond which the initial density is below 1e−8."""

BINS = {"quick": (10, 25), "paper": (50, 100)}
"""Bins in position and velocity: what the number of paths can fill."""


def _axes(size: str, numbers: Numbers) -> tuple[Axis, Axis]:
    (in_x, in_v), fastest = BINS[size], 5.0 * max(temperature(numbers), 1.0) ** 0.5
    return (
        Axis(lambda q, p, params: q[0], 0.0, 1.0, bins=in_x, periodic=True),
        Axis(lambda q, p, params: p[0], -fastest, fastest, bins=in_v),
    )


def _density(q: Any, p: Any) -> Any:
    return bump_on_tail_density(q[0], p[0])


def lenard_bernstein(
    size: str = "quick", *, nu: float = 0.01, mu: float = 1.0, D: float = ROOT_TWO, E0: float = 3.0
) -> Study:
    """The study of section 4.3: ν = 0.01, μ = 1, D = √2, E₀ = 3, bump-on-tail start."""
    paper = {"nu": 0.01, "mu": 1.0, "D": ROOT_TWO, "E0": 3.0}
    numbers = Numbers({"nu": nu, "mu": mu, "D": D, "E0": E0}, paper)
    # Refuses what has no temperature before anything is run.
    limit_energy(numbers)
    bound = float(bump_on_tail_x(0.0)) * float(np.max(bump_on_tail_v(np.linspace(-6, 8, 1401))))
    sampler = rejection_sampler(
        _density, ([0.0], [LOWEST]), ([1.0], [HIGHEST]), bound=1.001 * bound
    )
    position, velocity = _axes(size, numbers)
    common = {
        "initial": sampler,
        "t_end": T_END,
        "paths": PATHS[size],
        "save_times": 3.0,
        "histograms": {"x": Histogram(position), "v": Histogram(velocity)},
    }
    return Study(
        "lenard-bernstein",
        "Vlasov equation with Lenard–Bernstein collisions: relaxation to the Gibbs measure",
        "A particle in a periodic electric field with friction and diffusion in velocity, "
        f"H = v²/2 + (E₀/4π) sin 4πx, F = −νμv, h = −√ν D x with {numbers}. "
        "Initial states are drawn by rejection from a bump-on-tail density.",
        system(**numbers.given),
        tuple(Part(name, cases, **common) for name, cases in CASES.items()),
        partial(_figures, numbers),
        partial(claims_of_lenard_bernstein, numbers),
        notes=numbers.notes(
            "What the paper says of explicit methods and of its Monte Carlo errors holds for those "
            "alone and is left out"
            + (
                "."
                if is_as_easy(numbers)
                else ", and so are the claims about the limit, which need 0.01 ≤ νμ ≤ 0.1, "
                "D² ≥ 2μ and 0 ≤ E₀ ≤ 3: paths that relax as far, and steps that resolve as well."
            ),
            (
                "The paper runs to T = 1000; we stop at 999, a whole number of steps for "
                "Δt = 0.15, 0.25, 0.1 and 0.02 alike.",
                "The paper prints Δt = 0.15, 0.25 and 0.02 for some methods only. Midpoint, "
                "Störmer–Verlet and SRKw1 (λ = 0) are shown at 0.1: at 0.15 particles that "
                "oscillate at the bottom of a well at ω = √(4πE₀) = 6.1 are resolved too coarsely "
                "by them, and E(H) at the end is 0.63, 0.77 and 0.65.",
                "That Heun, R2 and RS1 are less accurate at Δt = 0.02 is claimed only where there "
                "are enough paths to tell, so not at the quick size. The Monte Carlo error of RS2 "
                "at Δt = 0.15 is left out: its mean energy passes through zero.",
            ),
        ),
    )


def _figures(numbers: Numbers, result: Result) -> list[Figure]:
    def scale(low: float, high: float) -> tuple[float, float] | None:
        return (low, high) if numbers.are_the_papers else None

    everything = {label: run for (_, label), run in result.runs.items()}
    x, v = np.linspace(0, 1, 81), np.linspace(-4, 6, 101)
    middles = [(e[1:] + e[:-1]) / 2 for e in (x, v)]
    density = np.asarray(bump_on_tail_density(middles[0][:, None], middles[1][None, :]))
    initial = Figure(
        "lenard_bernstein_initial",
        "Lenard–Bernstein: initial density",
        "The density from which initial states are drawn, and its marginal densities.",
        (
            Panel("x", "v", image=Image(x, v, density, "ρ(x, v, 0)")),
            Panel("x", "density", [Line("initial density", x, np.asarray(bump_on_tail_x(x)))]),
            Panel("v", "density", [Line("initial density", v, np.asarray(bump_on_tail_v(v)))]),
        ),
        columns=3,
        source="figure 5",
    )
    cases = result.cases()
    shown = [c for c in cases if c.family in ("dirk", "heun", "e1")] or cases
    limit = limit_energy(numbers)
    t = next(iter(everything.values())).t
    whole = Figure(
        "lenard_bernstein_energy",
        "Lenard–Bernstein: mean energy with DIRK, Heun and E1",
        "Mean energy over time and its exact ergodic limit.",
        (
            Panel(
                "t",
                "E(H)",
                [*lines(everything, shown), Line("exact limit", t[[0, -1]], np.full(2, limit))],
                ylim=scale(0.0, 5.5),
            ),
        ),
        source=numbers.printed("figure 6"),
    )
    late = t[t >= t[-1] / 2]
    close, densities = [], []
    for number, part in enumerate(CASES):
        runs, shown = result.part(part), result.cases(part)
        if not shown:
            continue
        accurate = [c for c in shown if c.dt <= 0.1 or c.family in ("dirk", "srkw2")] or shown
        reference = Line("exact limit", late[[0, -1]], np.full(2, limit))
        close.append(
            Panel(
                "t",
                "E(H)",
                [*lines(runs, shown), reference],
                title=f"{part} methods",
                xlim=(float(late[0]), float(late[-1])),
                ylim=scale(0.35, 0.65),
            )
        )
        x_density, v_density = (
            density_lines({k: r.histograms[axis] for k, r in runs.items()}, accurate, exact)
            for axis, exact in gibbs_densities(numbers).items()
        )
        densities.append(
            Figure(
                f"lenard_bernstein_density_{part.replace('-', '_')}",
                f"Lenard–Bernstein: final densities, {part} methods",
                "Densities of position and velocity at the end, with bands of two standard "
                "errors, and those of the Gibbs measure; explicit methods at their small step.",
                (
                    Panel("x", "density", x_density, ylim=scale(0.4, 1.8)),
                    Panel("v", "density", v_density, ylim=scale(0.0, 0.6)),
                ),
                source=numbers.printed(f"figure {8 + number}"),
            )
        )
    near = Figure(
        "lenard_bernstein_close",
        "Lenard–Bernstein: close to the ergodic limit",
        "The second half of the time."
        + numbers.printed(" Explicit methods at Δt = 0.15 are off this scale."),
        close,
        columns=2,
        source=numbers.printed("figure 7"),
    )
    return [initial, whole, near, *densities]
