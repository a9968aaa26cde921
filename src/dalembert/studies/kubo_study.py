"""Damped Kubo oscillator: does a method follow the decay of E(H) over 800 periods?"""

from collections.abc import Mapping
from functools import cache, partial

import numpy as np

from dalembert.methods import srkw1
from dalembert.studies.claims import Claim, ClaimList
from dalembert.studies.curves import lines, value_at
from dalembert.studies.figures import Figure, Line, Panel
from dalembert.studies.numbers import Numbers
from dalembert.studies.statements import ERRORS, claim_sampling_error, claim_unbounded_increments
from dalembert.studies.study import Case, Part, Result, Study
from dalembert.systems.kubo_system import damped_kubo, kubo_energy, kubo_path

PATHS = {"quick": 256, "paper": 50_000}
SRKW1 = srkw1(0.0)
MEAN_SQUARE = (
    Case("midpoint", 0.1),
    Case("midpoint", 0.5),
    Case("stormer_verlet", 0.1),
    Case("dirk", 0.5),
    Case("heun", 0.02),
    Case("r2", 0.02),
    Case("e1", 0.02),
)
WEAK = (
    Case(SRKW1, 0.25, "srkw1"),
    Case(SRKW1, 0.5, "srkw1"),
    Case("srkw2", 0.5),
    Case("rs1", 0.02),
    Case("rs2", 0.02),
)
ACCURATE = {
    "dirk, Δt = 0.5": 0.05,
    "midpoint, Δt = 0.1": 0.05,
    "stormer_verlet, Δt = 0.1": 0.1,
    "srkw1, Δt = 0.25": 0.05,
    "srkw2, Δt = 0.5": 0.05,
}
"""What relative error of E(H) is called accurate."""

START = ([2.0], [0.0])
T_END, JUDGED_AT = 5000.0, 1000.0
TIMES = (250.0, 500.0, 750.0, JUDGED_AT, 1500.0, 2000.0, 3000.0, T_END)
Errors = Mapping[str, float]


def kubo(size: str = "quick", *, beta: float = 0.5, nu: float = 0.001) -> Study:
    """The study of section 4.1: β = 0.5, ν = 0.001, q₀ = 2, p₀ = 0, to T = 5000."""
    numbers = Numbers({"beta": beta, "nu": nu}, {"beta": 0.5, "nu": 0.001})
    # Refuses what has no exact solution before anything is run.
    kubo_energy(0.0, **numbers.given)
    common = {"initial": START, "t_end": T_END, "paths": PATHS[size], "save_times": 25.0}
    return Study(
        "kubo",
        "Damped Kubo oscillator: long-time energy",
        "An oscillator with a fluctuating frequency and weak damping, H = (p² + q²)/2, h = βH, "
        f"F = −νp, f = −βνp, with {numbers} and q₀ = 2, p₀ = 0. Its mean energy is known "
        "in closed form, and so is that of every scheme at every step size.",
        damped_kubo(**numbers.given),
        (Part("mean-square", MEAN_SQUARE, **common), Part("weak", WEAK, **common)),
        partial(_figures, numbers),
        partial(_claims, numbers),
        notes=numbers.notes(
            "Claims about accuracy and about which method is best are left out, because they hold "
            "for those alone; that sampled energies are those of the schemes is claimed where "
            "energies have no heavy tails, (νβ)² t ≤ 0.1 at t = 1000, and do not grow.",
            (
                "The paper does not print its step sizes except Δt = 0.5 for DIRK and SRKw2. "
                "Midpoint and Störmer–Verlet are shown at 0.1, where their curves lie close "
                "together as the paper says, and where the Monte Carlo error of Störmer–Verlet is "
                "the printed one: 2.89e-3 from the fourth moments of the scheme. From h = 0.2554 "
                "on it has no bounded second moment.",
                "SRKw1 is the one with λ = 0.",
            ),
        ),
    )


@cache
def scheme_energy(case: Case, t: float, beta: float = 0.5, nu: float = 0.001) -> float:
    """E(H) of a scheme at time t, without sampling."""
    from dalembert.theory import exact_moments

    steps = round(t / case.dt)
    moments = exact_moments(damped_kubo(beta, nu), case.tableau, START, dt=case.dt, steps=steps)
    return float(np.trace(moments.second)) / 2


def _bias(case: Case) -> float:
    return scheme_energy(case, JUDGED_AT) - float(kubo_energy(JUDGED_AT))


def _figures(numbers: Numbers, result: Result) -> list[Figure]:
    def energy(t: np.ndarray) -> np.ndarray:
        return np.asarray(kubo_energy(t, **numbers.given))

    explicit = {"mean-square": ("heun", "r2"), "weak": ()}
    figures = []
    for part, number in (("mean-square", 1), ("weak", 2)):
        runs, shown = result.part(part), result.cases(part)
        if not shown:
            continue
        t = runs[shown[0].label].t
        exact = Line("exact", t, energy(t))
        near = [case for case in shown if case.family not in explicit[part]]
        figures.append(
            Figure(
                f"kubo_{part.replace('-', '_')}",
                f"Kubo oscillator, {part} methods",
                "Mean energy over time, with bands of two standard errors, and its difference from "
                "the exact mean energy"
                + (", without Heun and R2, which leave the scale." if explicit[part] else "."),
                (
                    Panel("t", "E(H)", [*lines(runs, shown), exact], ylim=(0.0, 3.0)),
                    Panel("t", "E(H) − exact", lines(runs, near, minus=energy), ylim=(-0.2, 0.2)),
                ),
                source=numbers.printed(f"figure {number}"),
            )
        )
    return figures


def _claims(numbers: Numbers, result: Result) -> list[Claim]:
    claims = ClaimList("kubo")
    runs = {label: run for (_, label), run in result.runs.items() if run.t[-1] >= JUDGED_AT}
    cases = {case.label: case for case in (*MEAN_SQUARE, *WEAK) if case.label in runs}
    for label, case in cases.items():
        own = scheme_energy(case, JUDGED_AT, **numbers.given)
        if not numbers.are_the_papers and not _can_be_sampled(own, **numbers.given):
            continue
        measured, error = value_at(runs[label], JUDGED_AT)
        claims.close(
            f"sampled {label}",
            f"The sampled E(H) of {label} at t = 1000 is the scheme's own expectation.",
            measured,
            own,
            ERRORS * error,
            f"{ERRORS} standard errors; the expectation is exact (da.exact_moments)",
            error,
        )
    _claims_about_the_solution(claims, numbers)
    claim_unbounded_increments(claims, runs)
    if not numbers.are_the_papers:
        return claims
    errors = {label: abs(_bias(case)) for label, case in cases.items()}
    _claims_about_structure(claims, errors)
    _claims_about_explicit(claims, cases, errors)
    for a, b in (("midpoint", "stormer_verlet"), ("heun", "r2")):
        _claim_overlap(claims, *(c for c in cases.values() if c.family in (a, b) and c.dt <= 0.1))
    for label in cases:
        is_reached = label.startswith("stormer_verlet")
        printed = 2.87e-3 if is_reached else 5.26e-4
        paper = PATHS["paper"]
        claim_sampling_error(claims, label, runs[label], printed, paper, is_reached=is_reached)
    return claims


def _can_be_sampled(energy: float, beta: float, nu: float) -> bool:
    """Whether a mean of some hundred energies tells their expectation."""
    return (nu * beta) ** 2 * JUDGED_AT <= 0.1 and energy <= 1.5 * float(kubo_energy(0.0))


def _claims_about_the_solution(claims: ClaimList, numbers: Numbers) -> None:
    """What the paper says about the process itself."""
    t, (W, weights) = 10.0, np.polynomial.hermite_e.hermegauss(80)
    q, p = (np.asarray(x) for x in kubo_path(t, np.sqrt(t) * W, **numbers.given))
    claims.close(
        "formula",
        "The printed E(H) is the mean energy of the printed solution, here at t = 10.",
        float(weights @ (q**2 + p**2) / 2 / weights.sum()),
        float(kubo_energy(t, **numbers.given)),
        1e-9,
        "Gauss–Hermite quadrature over W(t), 80 nodes",
    )
    if not numbers.are_the_papers:
        return
    claims.close(
        "periods",
        "T = 5000 is approximately 800 periods of the oscillator without noise.",
        T_END * np.sqrt(4 - 0.001**2) / (4 * np.pi),
        800.0,
        8.0,
        "one per cent: 'approximately'",
    )


def _claims_about_structure(claims: ClaimList, errors: Errors) -> None:
    """Lagrange–d'Alembert methods; errors are those of E(H) at t = 1000."""
    exact = float(kubo_energy(JUDGED_AT))
    for label, bound in ACCURATE.items():
        if label in errors:
            claims.below(
                f"follows {label}",
                f"{label} follows the decay of E(H): relative error at t = 1000 at most {bound:g}.",
                errors[label] / exact,
                bound,
                "exact moments of the scheme; the bound says what 'accurately' means here",
            )
    dirk, midpoint = "dirk, Δt = 0.5", "midpoint, Δt = 0.5"
    if dirk in errors and midpoint in errors:
        claims.below(
            "DIRK best",
            "DIRK is the most accurate mean-square method at Δt = 0.5 (midpoint is the other one "
            "that is stable there).",
            errors[dirk],
            errors[midpoint],
            "exact moments of both schemes",
        )
    srkw1, srkw2 = "srkw1, Δt = 0.5", "srkw2, Δt = 0.5"
    if srkw1 in errors and srkw2 in errors:
        claims.below(
            "SRKw2 best",
            "SRKw2 is the most accurate weak method at Δt = 0.5.",
            errors[srkw2],
            errors[srkw1] / 2,
            "exact moments; 'significantly': at most half the error of SRKw1",
        )
    others = {c.label for c in WEAK} & set(errors) - {srkw2}
    if srkw2 in errors and others:
        claims.below(
            "SRKw2 beats smaller steps",
            "SRKw2 at Δt = 0.5 is more accurate than every other weak method at its step size.",
            errors[srkw2],
            min(errors[label] for label in others),
            f"exact moments; the best of {'; '.join(sorted(others))}",
        )


def _claims_about_explicit(claims: ClaimList, cases: dict[str, Case], errors: Errors) -> None:
    """Explicit methods at Δt = 0.02; errors are those of E(H) at t = 1000."""
    final = float(kubo_energy(T_END))
    own = {case.family: case for case in cases.values() if case.dt == 0.02}
    for name in ("heun", "r2"):
        if name in own:
            claims.above(
                f"{name} fails",
                f"{name} fails to reproduce the decay even at Δt = 0.02: E(H) at T = 5000 is more "
                "than ten times too large.",
                scheme_energy(own[name], T_END) / final,
                10.0,
                "exact moments of the scheme",
            )
    for name, kind in (("e1", MEAN_SQUARE), ("rs1", WEAK), ("rs2", WEAK)):
        if name not in own:
            continue
        claims.below(
            f"{name} decays",
            f"{name} at Δt = 0.02 captures the decay in quality: less than a tenth of the "
            "energy is left at T = 5000.",
            scheme_energy(own[name], T_END),
            0.2,
            "exact moments of the scheme",
        )
        rivals = [c.label for c in kind if c.label in errors and c.label in ACCURATE]
        if rivals:
            claims.above(
                f"{name} inaccurate",
                f"{name} at Δt = 0.02 has at least twice the error at t = 1000 of each of "
                f"{'; '.join(rivals)}.",
                errors[own[name].label],
                2 * max(errors[label] for label in rivals),
                "exact moments of all schemes; 'much more accurately': twice",
            )


def _claim_overlap(claims: ClaimList, *pair: Case) -> None:
    """Claim that the mean energies of two schemes lie on each other; nothing without both."""
    if len(pair) < 2:
        return
    a, b = pair
    claims.below(
        f"overlap {a.label} and {b.label}",
        f"The curves of {a.label} and {b.label} overlap very closely: their largest distance.",
        max(abs(scheme_energy(a, t) - scheme_energy(b, t)) for t in TIMES),
        0.02 * float(kubo_energy(0.0)),
        f"exact moments at t = {', '.join(f'{t:g}' for t in TIMES)}; two per cent of E(H) at the "
        "start, which is about the width of a line",
    )
