"""Claims of the study of Lenard–Bernstein collisions, and the Gibbs measure they are about."""

from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from dalembert.ensemble.run import Run
from dalembert.studies.claims import Claim, ClaimList
from dalembert.studies.curves import density_distance, expected_distance, value_at
from dalembert.studies.numbers import Numbers
from dalembert.studies.statements import (
    ERRORS,
    claim_density_overlap,
    claim_overlap,
    claim_sampling_error,
    claim_stays_near,
    claim_unbounded_increments,
)
from dalembert.studies.study import Result
from dalembert.systems.lenard_bernstein_system import (
    ergodic_energy,
    gibbs_density_v,
    gibbs_density_x,
    initial_energy,
)

PATHS = {"quick": 512, "paper": 10_000_000}
T_END = 999.0


def temperature(numbers: Numbers) -> float:
    return numbers["D"] ** 2 / (2 * numbers["mu"])


def limit_energy(numbers: Numbers) -> float:
    return float(ergodic_energy(**_gibbs_numbers(numbers)))


def _gibbs_numbers(numbers: Numbers) -> dict[str, float]:
    """What the Gibbs measure depends on."""
    return {name: numbers[name] for name in ("mu", "D", "E0")}


def gibbs_densities(numbers: Numbers) -> dict[str, Any]:
    """Densities of the Gibbs measure by axis."""
    of_v = {name: numbers[name] for name in ("mu", "D")}
    return {
        "x": partial(gibbs_density_x, **_gibbs_numbers(numbers)),
        "v": partial(gibbs_density_v, **of_v),
    }


def is_as_easy(numbers: Numbers) -> bool:
    """Whether paths relax as far as with the paper's numbers and are resolved as well.

    A field at most as strong oscillates at most as fast; at a temperature of at least one the
    energy of the limit is at least the paper's, of which tolerances are shares; friction is slow
    compared with every step.
    """
    rate = numbers["nu"] * numbers["mu"]
    relaxes = 0.01 <= rate <= 0.1 and temperature(numbers) >= 1.0 - 1e-12
    return relaxes and 0 <= numbers["E0"] <= 3.0


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


def claims_of_lenard_bernstein(numbers: Numbers, result: Result) -> list[Claim]:
    claims = ClaimList("lenard-bernstein")
    runs = {label: run for (_, label), run in result.runs.items() if run.t[-1] >= T_END}
    if not runs:
        return claims
    _claims_about_the_process(claims, numbers, next(iter(runs.values())))
    claim_unbounded_increments(claims, runs)
    if not is_as_easy(numbers):
        return claims
    for label, share in BIAS.items():
        if label in runs:
            _claims_about_the_limit(claims, limit_energy(numbers), label, runs[label], share)
    claim_overlap(claims, runs, "dirk, Δt = 0.15", "e1, Δt = 0.02", 0.03)
    for label, axes in OVERLAP_GIBBS.items():
        if label in runs:
            for axis in axes:
                _claim_gibbs(claims, gibbs_densities(numbers)[axis], axis, label, runs[label])
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
    depth, density = numbers["E0"] / (4 * np.pi), gibbs_densities(numbers)["x"](x)
    potential = float(np.mean(depth * np.sin(4 * np.pi * x) * density))
    printed = 0.471705 if numbers.are_the_papers else limit_energy(numbers)
    claims.close(
        "ergodic energy",
        f"The mean of H over the Gibbs measure is {printed:.6g}.",
        potential + temperature(numbers) * float(weights @ v**2 / weights.sum()) / 2,
        printed,
        5e-7,
        "quadrature over the Gibbs measure; half a unit of the last printed digit",
    )
    start, error = value_at(run, 0.0)
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
    measured, error = value_at(run, T_END)
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
            measured, error = value_at(runs[label], T_END)
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
            measured, error = value_at(runs[label], T_END)
            claims.above(
                f"fails {label}",
                f"{label} does not find the limit: it is off by more than half of it.",
                abs(measured - limit),
                0.5 * limit + ERRORS * error,
                f"half of the limit and {ERRORS} standard errors",
                error,
            )
