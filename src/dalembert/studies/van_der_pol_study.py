"""Van der Pol's oscillator: does a method find the ergodic energy of a noisy limit cycle?"""

from functools import partial
from itertools import combinations

import numpy as np

from dalembert.ensemble.run import Run
from dalembert.methods import srkw1
from dalembert.studies.claims import Claim, ClaimList
from dalembert.studies.curves import lines, value_at
from dalembert.studies.figures import Figure, Line, Panel
from dalembert.studies.numbers import Numbers
from dalembert.studies.statements import (
    ERRORS,
    claim_overlap,
    claim_sampling_error,
    claim_stays_near,
    claim_unbounded_increments,
)
from dalembert.studies.study import Case, Part, Result, Study
from dalembert.systems.van_der_pol_system import STATIONARY_ENERGY, averaged_energy
from dalembert.systems.van_der_pol_system import van_der_pol as system

PATHS = {"quick": 256, "paper": 1_000_000}
STRUCTURED = {
    "mean-square": (Case("dirk", 0.2), Case("midpoint", 0.2), Case("stormer_verlet", 0.2)),
    "weak": (Case(srkw1(0.0), 0.2, "srkw1"), Case("srkw2", 0.2)),
}
EXPLICIT = {"mean-square": ("heun", "r2", "e1"), "weak": ("rs1", "rs2")}
T_END = 5000.0
ENERGY_AT = {1000.0: 1.99853, 2000.0: 2.23282, 4000.0: 2.30985, 5000.0: 2.31430}
"""E(H) of the process itself, from the two-dimensional Fokker–Planck equation."""

PRINTED_REFERENCE, REFERENCE_ERROR = 2.3165, 7e-4
"""The paper's ergodic energy, and its standard error: that of H over √(4·10⁶)."""

LARGE_STEP, SMALL_STEP = 0.02, 0.01
"""Share of the energy by which a method may miss it through its step size, 0.2 or 0.02."""


def _cases(part: str) -> tuple[Case, ...]:
    explicit = tuple(Case(name, dt) for name in EXPLICIT[part] for dt in (0.2, 0.02))
    return STRUCTURED[part] + explicit


def van_der_pol(size: str = "quick", *, nu: float = 0.001, sigma: float = 0.05) -> Study:
    """The study of section 4.2: ν = 0.001, σ = 0.05, q₀ = p₀ = 1, to T = 5000."""
    numbers = Numbers({"nu": nu, "sigma": sigma}, {"nu": 0.001, "sigma": 0.05})
    # Refuses what has no stationary law before anything is run.
    averaged_energy(nu, sigma)
    common = {"initial": ([1.0], [1.0]), "t_end": T_END, "paths": PATHS[size], "save_times": 25.0}
    return Study(
        "vanderpol",
        "Van der Pol's oscillator: ergodic limit",
        f"H = (p² + q²)/2, F = ν(1 − q²)p, h = −σq with {numbers} and q₀ = p₀ = 1. The "
        "mean energy tends to a stationary value that a small error of the scheme, repeated over "
        "thousands of periods, displaces.",
        system(**numbers.given),
        tuple(Part(name, _cases(name), **common) for name in STRUCTURED),
        partial(_figures, numbers),
        partial(_claims, numbers),
        notes=numbers.notes(
            "The stationary energy is that of averaging over the phase, good for small ν and σ² "
            "alone, so that claims about energies are left out.",
            (
                f"The paper's reference value {PRINTED_REFERENCE} is a Monte Carlo number; the "
                f"stationary value is {STATIONARY_ENERGY:.6f}. At T = 5000 the process is not "
                f"stationary yet: E(H) = {ENERGY_AT[T_END]}. Claims are judged against that.",
                "SRKw1 is the one with λ = 0.",
            ),
        ),
    )


def _stationary(numbers: Numbers) -> float:
    return STATIONARY_ENERGY if numbers.are_the_papers else averaged_energy(**numbers.given)


def _reference(numbers: Numbers, t: np.ndarray) -> list[Line]:
    stationary = Line("stationary", t[[0, -1]], np.full(2, _stationary(numbers)))
    if not numbers.are_the_papers:
        return [stationary]
    times = np.array(list(ENERGY_AT))
    shown = times[times >= t[0]]
    return [
        stationary,
        Line("Fokker–Planck", shown, np.array([ENERGY_AT[s] for s in shown]), variant=1),
    ]


def _figures(numbers: Numbers, result: Result) -> list[Figure]:
    everything = {label: run for (_, label), run in result.runs.items()}
    cases = result.cases()
    first = [c for c in cases if c.family in ("dirk", "heun", "e1")] or cases
    t = next(iter(everything.values())).t
    late = t[t >= 0.8 * t[-1]]
    close = (0.9 * _stationary(numbers), 1.1 * _stationary(numbers))
    whole = Figure(
        "vanderpol_energy",
        "Van der Pol: mean energy with DIRK, Heun and E1",
        "Mean energy over time."
        + numbers.printed(
            " DIRK reaches the stationary value with Δt = 0.2; Heun and E1 need a step ten times "
            "smaller."
        ),
        (Panel("t", "E(H)", [*lines(everything, first), *_reference(numbers, t)]),),
        source=numbers.printed("figure 3"),
    )
    panels = []
    for part in STRUCTURED:
        runs, shown = result.part(part), result.cases(part)
        if not shown:
            continue
        panels.append(
            Panel(
                "t",
                "E(H)",
                [*lines(runs, shown), *_reference(numbers, late)],
                title=f"{part} methods",
                xlim=(float(late[0]), float(late[-1])),
                ylim=close,
            )
        )
    near = Figure(
        "vanderpol_close",
        "Van der Pol: close to the stationary value",
        "The last fifth of the time, within ten per cent of the stationary value."
        + numbers.printed(" Explicit methods at Δt = 0.2 are off this scale."),
        panels,
        columns=2,
        source=numbers.printed("figure 4"),
    )
    return [whole, near]


def _claims(numbers: Numbers, result: Result) -> list[Claim]:
    claims = ClaimList("vanderpol")
    runs = {label: run for (_, label), run in result.runs.items() if run.t[-1] >= T_END}
    claim_unbounded_increments(claims, runs)
    if not numbers.are_the_papers:
        return claims
    _claims_about_the_reference(claims)
    for part in STRUCTURED:
        for case in _cases(part):
            if case.label in runs:
                _claims_about_energy(claims, case, runs[case.label], case.family in EXPLICIT[part])
    accurate = ("dirk, Δt = 0.2", "heun, Δt = 0.02", "e1, Δt = 0.02")
    for first, second in combinations(accurate, 2):
        claim_overlap(claims, runs, first, second, LARGE_STEP)
    for label, run in runs.items():
        claim_sampling_error(claims, label, run, 7.17e-4, PATHS["paper"])
    return claims


def _claims_about_the_reference(claims: ClaimList) -> None:
    """The paper's reference and its time, judged by what is known without sampling."""
    claims.close(
        "reference",
        f"The ergodic energy is {PRINTED_REFERENCE}.",
        PRINTED_REFERENCE,
        STATIONARY_ENERGY,
        4 * REFERENCE_ERROR,
        "four standard errors of the printed value, a mean of 4·10⁶ paths",
        REFERENCE_ERROR,
        "The printed value is itself a Monte Carlo number; what is expected is the stationary "
        "value of the Fokker–Planck equation.",
    )
    paper = 7.17e-4 * ENERGY_AT[T_END]
    claims.close(
        "stationary",
        "At T = 5000 the mean energy is the ergodic one.",
        ENERGY_AT[T_END],
        STATIONARY_ENERGY,
        4 * paper,
        "four standard errors of the paper's means of 10⁶ paths; both values are of the "
        "Fokker–Planck equation",
        None,
        "The process is not quite stationary yet, by one standard error of the paper. Methods are "
        f"judged by the mean energy at this time, {ENERGY_AT[T_END]:.5f}.",
    )


def _claims_about_energy(claims: ClaimList, case: Case, run: Run, is_explicit: bool) -> None:
    expected = ENERGY_AT[T_END]
    measured, error = value_at(run, T_END)
    if is_explicit and case.dt > 0.1:
        claims.above(
            f"fails {case.label}",
            f"{case.label} misses the energy at T = 5000 by more than is granted to the "
            "Lagrange–d'Alembert methods at this step.",
            abs(measured - expected),
            LARGE_STEP * expected + ERRORS * error,
            f"{LARGE_STEP:.0%} and {ERRORS} standard errors",
            error,
        )
        return
    share = SMALL_STEP if is_explicit else LARGE_STEP
    claims.close(
        f"energy {case.label}",
        f"{case.label} reproduces the energy at T = 5000.",
        measured,
        expected,
        share * expected + ERRORS * error,
        f"{share:.0%} for the step size and {ERRORS} standard errors; the process itself is at "
        "2.3143 at this time, and not at the paper's stationary value 2.3165",
        error,
    )
    since = 4000.0
    transient = 1 - ENERGY_AT[since] / STATIONARY_ENERGY
    claim_stays_near(claims, case.label, run, STATIONARY_ENERGY, since, share + transient)
