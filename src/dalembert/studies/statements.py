"""Statements that several studies of the paper make, as claims with their tolerances."""

from collections.abc import Mapping

import numpy as np

from dalembert.ensemble.run import Run
from dalembert.studies.claims import ClaimList
from dalembert.studies.curves import (
    density_distance,
    expected_distance,
    mean_and_error,
    relative_error,
)

ERRORS = 5
"""Standard errors that are granted: energies are skewed, and a sample that came out low also has
too small a standard error, so that four are left once in 3000 times at 256 paths."""

KURTOSIS = 15.0
"""That of v² for a normal v. No energy of the studies has a heavier tail."""

UNBOUNDED = ("midpoint", "stormer_verlet", "dirk")
"""Implicit methods with Gaussian increments, for which the paper speaks of truncation."""


def spread_error(*paths: int) -> float:
    """Relative standard error of a ratio of sampled standard deviations: Σ (κ − 1)/(4n), its root.

    Args:
        paths: size n of each sample.
    """
    return float(np.sqrt(sum((KURTOSIS - 1) / (4 * n) for n in paths)))


def claim_sampling_error(
    claims: ClaimList,
    label: str,
    run: Run,
    printed: float,
    paths: int,
    rounding: float = 1.0,
    is_reached: bool = False,
) -> None:
    """Claim that the relative Monte Carlo error is what the paper prints for so many paths.

    Args:
        claims: where to put it.
        label: the case.
        run: its run, of any number of paths.
        printed: the paper's figure.
        paths: the paper's number of paths.
        rounding: by how much the figure may have been rounded down.
        is_reached: whether the paper prints the error itself, not a bound of several.
    """
    own = run.provenance["paths"]
    scaled, slack = printed * np.sqrt(paths / own), 4 * spread_error(own, paths)
    measured = relative_error(run)
    id, origin = (
        f"Monte Carlo {label}",
        f"the paper's figure, scaled by √({paths:,}/{own:,}), with four standard errors of the "
        "error itself, in both samples (kurtosis at most 15)",
    )
    said = f"The largest relative Monte Carlo error of {label}"
    if is_reached:
        text = f"{said} is {printed:g} at {paths:,} paths."
        claims.close(id, text, measured, scaled, scaled * slack, origin)
    else:
        text = f"{said} does not exceed {printed:g} at {paths:,} paths."
        claims.below(id, text, measured, scaled * rounding * (1 + slack), origin)


def claim_overlap(
    claims: ClaimList, runs: Mapping[str, Run], first: str, second: str, share: float
) -> None:
    """Claim that two mean energies lie on each other at all times; nothing without both runs.

    Args:
        claims: where to put it.
        runs: runs by label.
        first, second: labels of two of them.
        share: what their step sizes may do, as a share of the largest mean energy.
    """
    if first not in runs or second not in runs:
        return
    (a, a_error), (b, b_error) = (mean_and_error(runs[label]) for label in (first, second))
    error = float(np.max(np.hypot(a_error, b_error)))
    claims.below(
        f"overlap {first} and {second}",
        f"The curves of {first} and {second} overlap very closely: their largest distance.",
        float(np.max(np.abs(a - b))),
        share * float(np.max(b)) + ERRORS * error,
        f"{share:.0%} of the largest mean energy for the step sizes, and {ERRORS} standard errors "
        "of the difference",
        error,
    )


def claim_density_overlap(
    claims: ClaimList, runs: Mapping[str, Run], axis: str, first: str, second: str, step: float
) -> None:
    """Claim that two densities at the end are the same; nothing without both runs.

    Args:
        claims: where to put it.
        runs: runs by label.
        axis: the histogram.
        first, second: labels of two of the runs.
        step: the distance that the step sizes may make.
    """
    if first not in runs or second not in runs:
        return
    a, b = (runs[label].histograms[axis] for label in (first, second))
    claims.below(
        f"overlap {axis} {first} and {second}",
        f"The densities of {axis} with {first} and {second} overlap very closely.",
        density_distance(a, b),
        step + 2 * expected_distance(a, b),
        f"total variation distance: {step:g} for the step sizes and twice what sampling alone "
        "shows",
    )


def claim_stays_near(
    claims: ClaimList, label: str, run: Run, limit: float, start: float, share: float
) -> None:
    """Claim that the mean energy is near a limit from some time on.

    Args:
        claims: where to put it.
        label: the case.
        run: its run.
        limit: the limit.
        start: since when.
        share: how far it may be, as a share of the limit.
    """
    late = run.t >= start
    mean, error = (x[late] for x in mean_and_error(run))
    largest = float(np.max(error))
    claims.below(
        f"close-up {label}",
        f"{label} stays near the limit {limit:.5g} from t = {start:g} to the end.",
        float(np.max(np.abs(mean - limit))),
        share * limit + ERRORS * largest,
        f"{share:.1%} of the limit, and {ERRORS} standard errors",
        largest,
    )


def claim_unbounded_increments(claims: ClaimList, runs: Mapping[str, Run]) -> None:
    """Claim that increments need no truncation: every stage equation had a solution."""
    own = [run for label, run in runs.items() if label.startswith(UNBOUNDED)]
    if own:
        steps = sum(x["paths"] * x["t_end"] / x["dt"] for x in (run.provenance for run in own))
        claims.below(
            "unbounded increments",
            "Midpoint, Störmer–Verlet and DIRK have no numerical issues with increments that are "
            "not truncated: the number of paths that failed.",
            sum(run.failed for run in own),
            0,
            f"a count, in {steps:.2g} path-steps",
        )
