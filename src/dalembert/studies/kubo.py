"""Damped Kubo oscillator: does a method follow the decay of E(H) over 800 periods?"""

from collections.abc import Callable
from functools import cache

import numpy as np

from dalembert.methods import METHODS, srkw1
from dalembert.studies.claims import Claim, ClaimList
from dalembert.studies.curves import at_time, claim_sampling_error, lines
from dalembert.studies.figures import Figure, Line, Panel
from dalembert.studies.study import Case, Part, Result, Study
from dalembert.systems.kubo import damped_kubo, kubo_energy

__all__ = ["kubo"]

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
START = ([2.0], [0.0])
Bias = Callable[[str], float]
Has = Callable[..., bool]
T_END, JUDGED_AT = 5000.0, 1000.0


def kubo(size: str = "quick") -> Study:
    """The study of section 4.1: β = 0.5, ν = 0.001, q₀ = 2, p₀ = 0, to T = 5000."""
    common = {"initial": START, "t_end": T_END, "paths": PATHS[size], "save_times": 25.0}
    return Study(
        "kubo",
        "Damped Kubo oscillator: long-time energy",
        "An oscillator with a fluctuating frequency and weak damping, H = (p² + q²)/2, h = βH, "
        "F = −νp, f = −βνp, with β = 0.5, ν = 0.001 and q₀ = 2, p₀ = 0. Its mean energy is known "
        "in closed form, and so is that of every scheme at every step size.",
        damped_kubo(),
        (Part("mean-square", MEAN_SQUARE, **common), Part("weak", WEAK, **common)),
        _figures,
        _claims,
        notes=(
            "The paper does not print its step sizes except Δt = 0.5 for DIRK and SRKw2. Midpoint "
            "and Störmer–Verlet are shown at 0.1, where their curves lie close together as the "
            "paper says; Störmer–Verlet has no second moment from h = 0.2554 on.",
            "SRKw1 is the one with λ = 0.",
        ),
    )


@cache
def scheme_energy(name: str, dt: float, t: float) -> float:
    """E(H) of a scheme at time t, without sampling."""
    from dalembert.theory import exact_moments

    method = SRKW1 if name == "srkw1" else METHODS[name]()
    moments = exact_moments(damped_kubo(), method, START, dt=dt, steps=round(t / dt))
    return float(np.trace(moments.second)) / 2


def _figures(result: Result) -> list[Figure]:
    explicit = {"mean-square": ("heun", "r2"), "weak": ()}
    figures = []
    for part, number in (("mean-square", 1), ("weak", 2)):
        runs, shown = result.part(part), result.cases(part)
        if not shown:
            continue
        t = runs[shown[0].label].t
        exact = Line("exact", t, np.asarray(kubo_energy(t)))
        near = [case for case in shown if case.family not in explicit[part]]
        figures.append(
            Figure(
                f"kubo_{part.replace('-', '_')}",
                f"Kubo oscillator, {part} methods",
                "Top: mean energy over time, with bands of two standard errors. Bottom: its "
                "difference from the exact mean energy"
                + (", without Heun and R2, which leave the scale." if explicit[part] else "."),
                (
                    Panel("t", "E(H)", [*lines(runs, shown), exact], ylim=(0.0, 3.0)),
                    Panel(
                        "t",
                        "E(H) − exact",
                        lines(runs, near, minus=lambda t: np.asarray(kubo_energy(t))),
                        ylim=(-0.2, 0.2),
                    ),
                ),
                source=f"figure {number}",
            )
        )
    return figures


def _claims(result: Result) -> list[Claim]:
    claims = ClaimList("kubo")
    exact = float(kubo_energy(JUDGED_AT))
    runs = {label: run for (_, label), run in result.runs.items() if run.t[-1] >= JUDGED_AT}
    cases = [case for case in (*MEAN_SQUARE, *WEAK) if case.label in runs]
    for case in cases:
        measured, error = at_time(runs[case.label], JUDGED_AT)
        own = scheme_energy(case.family, case.dt, JUDGED_AT)
        claims.close(
            f"sampled {case.label}",
            f"The sampled E(H) of {case.label} at t = 1000 is the scheme's own expectation.",
            measured,
            own,
            5 * error,
            "five standard errors; the expectation is exact (da.exact_moments)",
            error,
        )
    by_label = {case.label: case for case in cases}

    def bias(label: str) -> float:
        case = by_label[label]
        return scheme_energy(case.family, case.dt, JUDGED_AT) - exact

    def has(*labels: str) -> bool:
        return all(label in by_label for label in labels)

    _claims_about_structure(claims, bias, has, exact)
    _claims_about_explicit(claims, bias, has)
    for case in cases:
        printed = 2.87e-3 if case.family == "stormer_verlet" else 5.26e-4
        claim_sampling_error(claims, case.label, runs[case.label], printed, PATHS["paper"])
    return claims


def _claims_about_structure(claims: ClaimList, bias: Bias, has: Has, exact: float) -> None:
    for label, bound in (
        ("dirk, Δt = 0.5", 0.05),
        ("midpoint, Δt = 0.1", 0.05),
        ("stormer_verlet, Δt = 0.1", 0.1),
        ("srkw1, Δt = 0.25", 0.05),
        ("srkw2, Δt = 0.5", 0.05),
    ):
        if has(label):
            claims.below(
                f"follows {label}",
                f"{label} follows the decay of E(H): relative error at t = 1000 at most {bound:g}.",
                abs(bias(label)) / exact,
                bound,
                "exact moments of the scheme; the bound says what 'accurately' means here",
            )
    if has("dirk, Δt = 0.5", "midpoint, Δt = 0.5"):
        claims.below(
            "DIRK best",
            "DIRK is the most accurate mean-square method at Δt = 0.5 (midpoint is the other one "
            "that is stable there).",
            abs(bias("dirk, Δt = 0.5")),
            abs(bias("midpoint, Δt = 0.5")),
            "exact moments of both schemes",
        )
    if has("srkw1, Δt = 0.5", "srkw2, Δt = 0.5"):
        claims.below(
            "SRKw2 best",
            "SRKw2 is the most accurate weak method at Δt = 0.5.",
            abs(bias("srkw2, Δt = 0.5")),
            abs(bias("srkw1, Δt = 0.5")) / 2,
            "exact moments; 'significantly': at most half the error of SRKw1",
        )


def _claims_about_explicit(claims: ClaimList, bias: Bias, has: Has) -> None:
    final = float(kubo_energy(T_END))
    for name in ("heun", "r2"):
        if has(f"{name}, Δt = 0.02"):
            claims.above(
                f"{name} fails",
                f"{name} fails to reproduce the decay even at Δt = 0.02: E(H) at T = 5000 is more "
                "than ten times too large.",
                scheme_energy(name, 0.02, T_END) / final,
                10.0,
                "exact moments of the scheme",
            )
    if has("heun, Δt = 0.02", "r2, Δt = 0.02"):
        claims.close(
            "Heun and R2 overlap",
            "The curves of Heun and R2 overlap: their expectations at T = 5000 agree.",
            scheme_energy("heun", 0.02, T_END),
            scheme_energy("r2", 0.02, T_END),
            1e-6,
            "exact moments; both have the same stability polynomial",
        )
    for name, rival in (("e1", "dirk"), ("rs1", "srkw2"), ("rs2", "srkw2")):
        if has(f"{name}, Δt = 0.02", f"{rival}, Δt = 0.5"):
            claims.above(
                f"{name} inaccurate",
                f"{name} at Δt = 0.02 decays, but with a larger error at t = 1000 than {rival} at "
                "Δt = 0.5.",
                abs(bias(f"{name}, Δt = 0.02")),
                abs(bias(f"{rival}, Δt = 0.5")),
                "exact moments of both schemes",
            )
            claims.below(
                f"{name} decays",
                f"{name} at Δt = 0.02 captures the decay in quality: less than a tenth of the "
                "energy is left at T = 5000.",
                scheme_energy(name, 0.02, T_END),
                0.2,
                "exact moments of the scheme",
            )
