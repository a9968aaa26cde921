"""Plasma with Lenard–Bernstein collisions: does a method relax to the Gibbs measure?"""

from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from dalembert.ensemble.initial import rejection_sampler
from dalembert.ensemble.run import Run
from dalembert.methods import srkw1
from dalembert.statistics import Axis, Histogram
from dalembert.studies.claims import Claim, ClaimList
from dalembert.studies.curves import (
    at_time,
    density_distance,
    density_lines,
    expected_distance,
    lines,
)
from dalembert.studies.figures import Figure, Image, Line, Panel
from dalembert.studies.numbers import ROOT_TWO, Numbers
from dalembert.studies.statements import (
    ERRORS,
    claim_density_overlap,
    claim_overlap,
    claim_sampling_error,
    claim_stays_near,
    claim_unbounded_increments,
)
from dalembert.studies.study import Case, Part, Result, Study
from dalembert.systems.lenard_bernstein import (
    bump_on_tail,
    bump_on_tail_v,
    bump_on_tail_x,
    ergodic_energy,
    gibbs_density_v,
    gibbs_density_x,
    initial_energy,
)
from dalembert.systems.lenard_bernstein import lenard_bernstein as system

__all__ = ["lenard_bernstein"]

PATHS = {"quick": 512, "paper": 10_000_000}
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
T_END, LOWEST, HIGHEST = 999.0, -6.0, 7.5
"""The end of the run, and velocities beyond which the initial density is below 1e−8."""

BINS = {"quick": (10, 25), "paper": (50, 100)}
"""Bins in position and velocity: what the number of paths can fill."""


def _axes(size: str, numbers: Numbers) -> tuple[Axis, Axis]:
    (in_x, in_v), fastest = BINS[size], 5.0 * max(_temperature(numbers), 1.0) ** 0.5
    return (
        Axis(lambda q, p, params: q[0], 0.0, 1.0, bins=in_x, periodic=True),
        Axis(lambda q, p, params: p[0], -fastest, fastest, bins=in_v),
    )


def _temperature(numbers: Numbers) -> float:
    return numbers["D"] ** 2 / (2 * numbers["mu"])


def _limit(numbers: Numbers) -> float:
    return float(ergodic_energy(**_gibbs_numbers(numbers)))


def _gibbs_numbers(numbers: Numbers) -> dict[str, float]:
    """What the Gibbs measure depends on."""
    return {name: numbers[name] for name in ("mu", "D", "E0")}


def _gibbs(numbers: Numbers) -> dict[str, Any]:
    """Densities of the Gibbs measure by axis."""
    of_v = {name: numbers[name] for name in ("mu", "D")}
    return {
        "x": partial(gibbs_density_x, **_gibbs_numbers(numbers)),
        "v": partial(gibbs_density_v, **of_v),
    }


def _is_as_easy(numbers: Numbers) -> bool:
    """Whether paths relax as far as with the paper's numbers and are resolved as well.

    A field at most as strong oscillates at most as fast; at a temperature of at least one the
    energy of the limit is at least the paper's, of which tolerances are shares; friction is slow
    compared with every step.
    """
    rate = numbers["nu"] * numbers["mu"]
    relaxes = 0.01 <= rate <= 0.1 and _temperature(numbers) >= 1.0 - 1e-12
    return relaxes and 0 <= numbers["E0"] <= 3.0


def _density(q: Any, p: Any) -> Any:
    return bump_on_tail(q[0], p[0])


def lenard_bernstein(
    size: str = "quick",
    *,
    nu: float = 0.01,
    mu: float = 1.0,
    D: float = ROOT_TWO,
    E0: float = 3.0,
) -> Study:
    """The study of section 4.3: ν = 0.01, μ = 1, D = √2, E₀ = 3, bump-on-tail start."""
    paper = {"nu": 0.01, "mu": 1.0, "D": ROOT_TWO, "E0": 3.0}
    numbers = Numbers({"nu": nu, "mu": mu, "D": D, "E0": E0}, paper)
    # Refuses what has no temperature before anything is run.
    _limit(numbers)
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
        partial(_claims, numbers),
        notes=numbers.notes(
            "What the paper says of explicit methods and of its Monte Carlo errors holds for those "
            "alone and is left out"
            + (
                "."
                if _is_as_easy(numbers)
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
    density = np.asarray(bump_on_tail(middles[0][:, None], middles[1][None, :]))
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
    limit = _limit(numbers)
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
        source="figure 6",
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
            for axis, exact in _gibbs(numbers).items()
        )
        densities.append(
            Figure(
                f"lenard_bernstein_density_{part.replace('-', '_')}",
                f"Lenard–Bernstein: final densities, {part} methods",
                "Densities of position and velocity at the end, with bands of two standard "
                "errors, and those of the Gibbs measure; explicit methods at their small step.",
                (
                    Panel(
                        "x",
                        "density",
                        x_density,
                        ylim=scale(0.4, 1.8),
                    ),
                    Panel(
                        "v",
                        "density",
                        v_density,
                        ylim=scale(0.0, 0.6),
                    ),
                ),
                source=f"figure {8 + number}",
            )
        )
    near = Figure(
        "lenard_bernstein_close",
        "Lenard–Bernstein: close to the ergodic limit",
        "The second half of the time."
        + numbers.printed(" Explicit methods at Δt = 0.15 are off this scale."),
        close,
        columns=2,
        source="figure 7",
    )
    return [initial, whole, near, *densities]


BIAS = {
    "dirk, Δt = 0.15": 0.02,
    "midpoint, Δt = 0.1": 0.02,
    "stormer_verlet, Δt = 0.1": 0.04,
    "srkw1, Δt = 0.1": 0.04,
    "srkw2, Δt = 0.15": 0.02,
    "e1, Δt = 0.02": 0.08,
    "rs2, Δt = 0.02": 0.03,
}
"""By how much of the limit a method may miss it through its step size alone."""

STEP_DISTANCE = 0.02
"""Total variation distance that a step size may make."""

OVERLAP_GIBBS = {label: ("x", "v") for label in BIAS} | {"srkw2, Δt = 0.25": ("v",)}
"""Densities that lie on those of the Gibbs measure."""

OVERLAP_X = (
    ("dirk, Δt = 0.15", "midpoint, Δt = 0.1", "e1, Δt = 0.02"),
    ("stormer_verlet, Δt = 0.1", "heun, Δt = 0.02", "r2, Δt = 0.02"),
)
"""Mean-square methods whose densities in position lie on each other, according to the paper."""


def _claims(numbers: Numbers, result: Result) -> list[Claim]:
    claims = ClaimList("lenard-bernstein")
    runs = {label: run for (_, label), run in result.runs.items() if run.t[-1] >= T_END}
    if not runs:
        return claims
    _claims_about_the_process(claims, numbers, next(iter(runs.values())))
    claim_unbounded_increments(claims, runs)
    if not _is_as_easy(numbers):
        return claims
    for label, share in BIAS.items():
        if label in runs:
            _claims_about_the_limit(claims, _limit(numbers), label, runs[label], share)
    claim_overlap(claims, runs, "dirk, Δt = 0.15", "e1, Δt = 0.02", 0.03)
    for label, axes in OVERLAP_GIBBS.items():
        if label in runs:
            for axis in axes:
                _claim_gibbs(claims, _gibbs(numbers)[axis], axis, label, runs[label])
    for group in OVERLAP_X:
        for first, second in combinations(group, 2):
            claim_density_overlap(claims, runs, "x", first, second, STEP_DISTANCE)
    if not numbers.are_the_papers:
        return claims
    _claims_about_explicit(claims, runs)
    for label, run in runs.items():
        if label == "rs2, Δt = 0.15":
            continue  # Its mean energy passes through zero, where a relative error has no meaning.
        claim_sampling_error(claims, label, run, 8.24e-4, PATHS["paper"])
    return claims


def _claims_about_the_process(claims: ClaimList, numbers: Numbers, run: Run) -> None:
    """The ergodic energy, and the sampled start."""
    x = (np.arange(64) + 0.5) / 64
    v, weights = np.polynomial.hermite_e.hermegauss(8)
    depth, density = numbers["E0"] / (4 * np.pi), _gibbs(numbers)["x"](x)
    potential = float(np.mean(depth * np.sin(4 * np.pi * x) * density))
    printed = 0.471705 if numbers.are_the_papers else _limit(numbers)
    claims.close(
        "ergodic energy",
        f"The mean of H over the Gibbs measure is {printed:.6g}.",
        potential + _temperature(numbers) * float(weights @ v**2 / weights.sum()) / 2,
        printed,
        5e-7,
        "quadrature over the Gibbs measure; half a unit of the last printed digit",
    )
    start, error = at_time(run, 0.0)
    claims.close(
        "initial",
        "The sampled initial states have the energy of the bump-on-tail density.",
        start,
        float(initial_energy()),
        ERRORS * error,
        f"{ERRORS} standard errors",
        error,
    )


def _claims_about_the_limit(
    claims: ClaimList, limit: float, label: str, run: Run, share: float
) -> None:
    measured, error = at_time(run, T_END)
    claims.close(
        f"limit {label}",
        f"{label} reproduces the ergodic limit of the energy.",
        measured,
        limit,
        share * limit + ERRORS * error,
        f"{share:.0%} for the step size and {ERRORS} standard errors",
        error,
    )
    claim_stays_near(claims, label, run, limit, 500.0, share)


def _claim_gibbs(claims: ClaimList, exact: Any, axis: str, label: str, run: Run) -> None:
    binned = run.histograms[axis]
    claims.below(
        f"density {axis} {label}",
        f"The density of {axis} with {label} overlaps with that of the Gibbs measure.",
        density_distance(binned, exact),
        STEP_DISTANCE + 2 * expected_distance(binned),
        f"total variation distance: {STEP_DISTANCE} for the step size and twice what sampling "
        "alone shows",
    )


def _claims_about_explicit(claims: ClaimList, runs: Mapping[str, Run]) -> None:
    limit = float(ergodic_energy())
    for label in ("heun, Δt = 0.02", "r2, Δt = 0.02", "rs1, Δt = 0.02"):
        if label in runs:
            measured, error = at_time(runs[label], T_END)
            if error > 0.01 * limit:
                continue  # Too few paths to tell.
            claims.above(
                f"inaccurate {label}",
                f"{label} is less accurate: its energy is more than a twentieth above the limit.",
                measured,
                1.05 * limit + ERRORS * error,
                f"more than DIRK at Δt = 0.15 may be off, by a twentieth, and {ERRORS} standard "
                "errors; made where the standard error is below a hundredth of the limit",
                error,
            )
    for label in ("heun, Δt = 0.15", "e1, Δt = 0.15", "rs2, Δt = 0.15"):
        if label in runs:
            measured, error = at_time(runs[label], T_END)
            claims.above(
                f"fails {label}",
                f"{label} does not find the limit: it is off by more than half of it.",
                abs(measured - limit),
                0.5 * limit + ERRORS * error,
                f"half of the limit and {ERRORS} standard errors",
                error,
            )
