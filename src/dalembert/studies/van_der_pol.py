"""Van der Pol's oscillator: does a method find the ergodic energy of a noisy limit cycle?"""

import numpy as np

from dalembert.methods import srkw1
from dalembert.studies.claims import Claim, ClaimList
from dalembert.studies.curves import at_time, claim_sampling_error, lines
from dalembert.studies.figures import Figure, Line, Panel
from dalembert.studies.study import Case, Part, Result, Study
from dalembert.systems.van_der_pol import STATIONARY_ENERGY
from dalembert.systems.van_der_pol import van_der_pol as system

__all__ = ["van_der_pol"]

PATHS = {"quick": 256, "paper": 1_000_000}
STRUCTURED = {
    "mean-square": (Case("dirk", 0.2), Case("midpoint", 0.2), Case("stormer_verlet", 0.2)),
    "weak": (Case(srkw1(0.0), 0.2, "srkw1"), Case("srkw2", 0.2)),
}
EXPLICIT = {"mean-square": ("heun", "r2", "e1"), "weak": ("rs1", "rs2")}
T_END = 5000.0
ENERGY_AT = {1000.0: 1.99853, 2000.0: 2.23282, 4000.0: 2.30985, 5000.0: 2.31430}
"""E(H) of the process itself, from the two-dimensional Fokker–Planck equation."""

PRINTED_REFERENCE = 2.3165


def _cases(part: str) -> tuple[Case, ...]:
    explicit = tuple(Case(name, dt) for name in EXPLICIT[part] for dt in (0.2, 0.02))
    return STRUCTURED[part] + explicit


def van_der_pol(size: str = "quick") -> Study:
    """The study of section 4.2: ν = 0.001, σ = 0.05, q₀ = p₀ = 1, to T = 5000."""
    common = {
        "initial": ([1.0], [1.0]),
        "t_end": T_END,
        "paths": PATHS[size],
        "save_times": 25.0,
    }
    return Study(
        "vanderpol",
        "Van der Pol's oscillator: ergodic limit",
        "H = (p² + q²)/2, F = ν(1 − q²)p, h = −σq with ν = 0.001, σ = 0.05 and q₀ = p₀ = 1. The "
        "mean energy tends to a stationary value that a small error of the scheme, repeated over "
        "thousands of periods, displaces.",
        system(),
        tuple(Part(name, _cases(name), **common) for name in STRUCTURED),
        _figures,
        _claims,
        notes=(
            f"The paper's reference value {PRINTED_REFERENCE} is a Monte Carlo number; the "
            f"stationary value is {STATIONARY_ENERGY:.6f}. At T = 5000 the process is not "
            f"stationary yet: E(H) = {ENERGY_AT[T_END]}. Claims are judged against that.",
            "SRKw1 is the one with λ = 0.",
        ),
    )


def _reference(t: np.ndarray) -> list[Line]:
    times = np.array(list(ENERGY_AT))
    shown = times[times >= t[0]]
    return [
        Line("stationary", t[[0, -1]], np.full(2, STATIONARY_ENERGY)),
        Line("Fokker–Planck", shown, np.array([ENERGY_AT[s] for s in shown]), variant=1),
    ]


def _figures(result: Result) -> list[Figure]:
    everything = {label: run for (_, label), run in result.runs.items()}
    cases = result.cases()
    first = [c for c in cases if c.family in ("dirk", "heun", "e1")] or cases
    t = next(iter(everything.values())).t
    late = t[t >= 0.8 * t[-1]]
    close = (0.9 * STATIONARY_ENERGY, 1.1 * STATIONARY_ENERGY)
    whole = Figure(
        "vanderpol_energy",
        "Van der Pol: mean energy with DIRK, Heun and E1",
        "Mean energy over time. DIRK reaches the stationary value with Δt = 0.2; Heun and E1 need "
        "a step ten times smaller.",
        (Panel("t", "E(H)", [*lines(everything, first), *_reference(t)]),),
        source="figure 3",
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
                [*lines(runs, shown), *_reference(late)],
                title=f"{part} methods",
                xlim=(float(late[0]), float(late[-1])),
                ylim=close,
            )
        )
    near = Figure(
        "vanderpol_close",
        "Van der Pol: close to the stationary value",
        "The last fifth of the time, within ten per cent of the stationary value. Explicit methods "
        "at Δt = 0.2 are off this scale.",
        panels,
        columns=2,
        source="figure 4",
    )
    return [whole, near]


def _claims(result: Result) -> list[Claim]:
    claims = ClaimList("vanderpol")
    runs = {label: run for (_, label), run in result.runs.items() if run.t[-1] >= T_END}
    expected = ENERGY_AT[T_END]
    for part in STRUCTURED:
        for case in _cases(part):
            if case.label not in runs:
                continue
            measured, error = at_time(runs[case.label], T_END)
            is_explicit = case.family in EXPLICIT[part]
            if is_explicit and case.dt > 0.1:
                claims.above(
                    f"fails {case.label}",
                    f"{case.label} misses the energy at T = 5000 by more than a fifth.",
                    abs(measured - expected),
                    expected / 5 + 4 * error,
                    "a fifth of the energy and four standard errors",
                    error,
                )
                continue
            share = 0.01 if is_explicit else 0.02
            claims.close(
                f"energy {case.label}",
                f"{case.label} reproduces the energy at T = 5000.",
                measured,
                expected,
                share * expected + 4 * error,
                f"{share:.0%} for the step size and four standard errors; the process itself is at "
                "2.3143 at this time, and not at the paper's stationary value 2.3165",
                error,
            )
            claim_sampling_error(claims, case.label, runs[case.label], 7.17e-4, PATHS["paper"])
    return claims
