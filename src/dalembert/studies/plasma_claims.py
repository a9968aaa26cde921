"""Claims of the study of plasmas, and the theory that its runs are compared with."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from dalembert.ensemble.run import Run
from dalembert.plasma import bump_on_tail, fit_growth, fit_wave, linear, two_streams
from dalembert.studies.claims import Claim, ClaimList
from dalembert.studies.study import Result

ALPHA, FREE_ALPHA = 0.05, 0.02
"""Amplitudes with collisions and without: there, larger ones trap particles before they decay."""
LANDAU = {"quick": ((0.5, 0.5),), "paper": ((0.5, 0.1), (0.5, 0.5), (0.3, 0.1))}
SEED_ALPHA = 2e-3
"""Of instabilities."""
OPPOSITE = ", opposite"
"""Ending of the names of parts with the amplitude −α."""
INSTABILITIES = {
    "two streams": (two_streams(3.0), 0.2, 9.0, 4),
    "bump on tail": (bump_on_tail(4.5, fraction=0.1, temperature=0.25), 0.3, 7.0, 2),
}
"""Velocities, k, the largest speed that is looked at, and modes of the field."""
COLLIDING = " with collisions"
"""Ending of the names of instabilities with collisions."""
TEMPERATURES = (1.6, 0.7, 0.7)
PAIRS_NU = {"maxwell": 0.1, "coulomb": 1.0}
BEAM, BEAM_SPEED = 1 / 16, 5.0
WEIBEL = (1.25, 0.02 / np.sqrt(2), np.sqrt(12) * 0.02 / np.sqrt(2), 1.0)
"""k, u_x, u_y and c."""


def runs_by_part(result: Result) -> dict[str, Run]:
    """The runs by part, of parts that have one case."""
    return {part: run for (part, label), run in result.runs.items() if part != "long runs"}


def wave_of(runs: Mapping[str, Run], name: str, amplitude: float = ALPHA) -> np.ndarray:
    """n_k(t)/n_k(0), by half of the difference from the run with the opposite wave, if any.

    Both have the same noise, which cancels but for what is of the order of the wave.
    """
    found = [runs[x].mean["wave"][:, 0, 0] for x in (name, name + OPPOSITE) if x in runs]
    odd = found[0] if len(found) == 1 else (found[0] - found[1]) / 2
    return -odd / amplitude


def size_of_wave(run: Run) -> np.ndarray:
    """|n_k(t)/n_k(0)| of an instability: the wave of a bump runs."""
    return np.hypot(*np.moveaxis(run.mean["wave"][:, :, 0], -1, 0)) / SEED_ALPHA


def colliding_waves(runs: Mapping[str, Run]) -> dict[str, tuple[str, float, float]]:
    """Parts with collisions, by name: the operator, k and ν."""
    found = {}
    for name in runs:
        if name.endswith(OPPOSITE):
            continue
        operator, *numbers = name.split(", ")
        if operator in linear.COLLISIONS:
            found[name] = (operator, *(float(text.split(" = ")[1]) for text in numbers))
    return found


def anisotropy_left(kernel: str, t: np.ndarray) -> np.ndarray:
    """(T_x − T_y)(t) over that at 0: 6ν for Maxwell molecules, Trubnikov's equation for Coulomb."""
    nu = PAIRS_NU[kernel]
    if kernel == "maxwell":
        return np.exp(-6 * nu * t)
    along, across = TEMPERATURES[:2]
    start, fine, values = along - across, 200, [1.0]
    for before, after in pairwise(t):
        for _ in range(fine):
            x = np.sqrt(1 - across / along)
            bracket = (-3 + (3 - x**2) * np.arctanh(x) / x) / x**4
            rate = nu / (2 * np.sqrt(np.pi)) * bracket / along**1.5
            change = rate * (along - across) * (after - before) / fine
            along, across = along - 2 * change, across + change
        values.append((along - across) / start)
    return np.array(values)


def beam_slope() -> float:
    """dv/dt = −2 ψ ν n/v² of a beam among particles of its own mass, at the start."""
    x = np.linspace(0, BEAM_SPEED, 20_001)
    # ψ(v²/2) is the share of Maxwellian speeds below v, by Simpson's rule.
    f = np.sqrt(2 / np.pi) * x**2 * np.exp(-(x**2) / 2)
    psi = (x[1] - x[0]) / 3 * (f[0] + f[-1] + 4 * np.sum(f[1:-1:2]) + 2 * np.sum(f[2:-1:2]))
    return -2 * float(psi) * PAIRS_NU["coulomb"] / BEAM_SPEED**2 * (1 - BEAM)


def claims_of_plasma(is_large: bool, result: Result) -> list[Claim]:
    """Against linear theory, known rates, and what each composition promises.

    Args:
        is_large: whether the study has its full size, for which tolerances are tighter.
        result: its runs.
    """
    claims, runs = ClaimList("plasma"), runs_by_part(result)
    _claim_waves(claims, runs, is_large)
    _claim_growth(claims, runs, is_large)
    _claim_relaxation(claims, runs)
    _claim_long(claims, result.part("long runs"))
    return claims


def _distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _claim_waves(claims: ClaimList, runs: Mapping[str, Run], is_large: bool) -> None:
    if run := runs.get("Landau"):
        n = wave_of(runs, "Landau", FREE_ALPHA)
        claims.below(
            "Landau damping",
            "Without collisions the field is that of linear theory: distance in L².",
            _distance(n, linear.response(0.5, run.t).real),
            0.01,
            "noise of the quiet start, and the second order of the amplitude",
        )
        late = (run.t >= 6) & (run.t <= 16)
        found = fit_wave(run.t[late], n[late])
        claims.close(
            "Landau rate",
            "After the transient the wave decays at Landau's rate.",
            found.gamma,
            linear.root(0.5).imag,
            (0.01 if is_large else 0.02) * abs(linear.root(0.5).imag),
            "1 %, twice that for the small size",
            found.gamma_error,
        )
    for name, (operator, k, nu) in colliding_waves(runs).items():
        n, t = wave_of(runs, name), runs[name].t
        gaps = {x: _distance(n, linear.response(k, t, nu, x).real) for x in linear.COLLISIONS}
        claims.below(
            f"damping {name}",
            "The field is that of linear theory: distance in L².",
            gaps[operator],
            0.02 if is_large else 0.04,
            "2 %, for the noise of collisions and the amplitude; twice that for the small size",
        )
        claims.above(
            f"damping {name} and no other",
            "The field of no other operator is as near.",
            min(gap for x, gap in gaps.items() if x != operator) / gaps[operator],
            3.0,
            "what separates the operators, over the noise",
        )


def _claim_growth(claims: ClaimList, runs: Mapping[str, Run], is_large: bool) -> None:
    for name, (velocities, k, *_) in INSTABILITIES.items():
        free, colliding = runs.get(name), runs.get(name + COLLIDING)
        if free:
            wave = linear.response(k, free.t, velocities=velocities)
            _claim_instability(claims, name, free, wave, is_large)
        if colliding:
            _claim_collisions(claims, name + COLLIDING, colliding)
        if free and colliding:
            gained, mixed = (
                float(x[-1] - x[0]) for x in (r.mean["entropy"] for r in (colliding, free))
            )
            claims.above(
                f"entropy of {name}{COLLIDING}",
                "Collisions make more entropy than mixing alone: gain over gain.",
                gained / mixed if mixed > 0 else np.inf * gained,
                1.0,
                "Boltzmann",
            )
    if run := runs.get("Weibel"):
        energy = run.moments["light"].mean[:, 0, 0]
        late = run.t >= 40
        found = np.polyfit(run.t[late], np.log(energy[late]) / 2, 1)[0]
        expected = linear.weibel_root(*WEIBEL).imag
        claims.close(
            "growth of Weibel's instability",
            "The magnetic field grows at the rate of linear theory.",
            float(found),
            expected,
            0.02 * expected + (0.0 if is_large else 0.02 * expected),
            "2 %, twice that for the small size",
        )
        claims.below(
            "momentum of particles and light",
            "Midpoint keeps the momentum of particles and light to rounding.",
            float(np.ptp(run.moments["momentum_x"].mean)),
            1e-11,
            "rounding, and the tolerance of Newton's method",
        )


def _claim_instability(
    claims: ClaimList, name: str, run: Run, wave: np.ndarray, is_large: bool
) -> None:
    """Growth of a wave as in linear theory, and its end."""
    size, early = size_of_wave(run), (run.t >= 12) & (run.t <= 18)
    found, expected = (fit_growth(run.t[early], np.abs(x[early])) for x in (size, wave))
    claims.close(
        f"growth of {name}",
        "The first mode grows at the rate of linear theory, in the same window.",
        found.gamma,
        expected.gamma,
        0.02 * expected.gamma + (0.0 if is_large else 0.005),
        "2 %, and for the small size what its noise makes of it",
        found.gamma_error,
    )
    late = run.t >= 2 / 3 * run.t[-1]
    claims.below(
        f"saturation of {name}",
        "In the last third the wave grows no more: rate, of that of linear theory.",
        float(np.polyfit(run.t[late], np.log(size[late]), 1)[0]) / expected.gamma,
        0.1,
        "particles that are trapped go round in the wave",
    )


def _claim_collisions(claims: ClaimList, name: str, run: Run) -> None:
    """What collisions conserve while a wave grows, stops and goes, and that it goes."""
    energy, p, size = run.mean["energy"], run.mean["momentum"], size_of_wave(run)
    claims.below(
        f"energy of {name}",
        "Through growth, saturation and relaxation the energy is kept: largest change.",
        float(np.max(np.abs(energy / energy[0] - 1))),
        1e-4,
        "the oscillation of Störmer–Verlet's energy; collisions add rounding",
    )
    claims.below(
        f"momentum of {name}",
        "The momentum is kept to rounding: its largest change per particle.",
        float(np.max(np.abs(p - p[0]))),
        1e-12,
        "rounding",
    )
    late = run.t >= 0.9 * run.t[-1]
    claims.below(
        f"relaxation of {name}",
        "Collisions make an end of the wave: its mean size at the end over the largest.",
        float(np.mean(size[late]) / np.max(size)),
        0.5,
        "without collisions it stays",
    )


def _claim_relaxation(claims: ClaimList, runs: Mapping[str, Run]) -> None:
    for kernel in ("maxwell", "coulomb"):
        if run := runs.get(f"anisotropy, {kernel}"):
            left = run.moments["difference"].mean / (TEMPERATURES[0] - TEMPERATURES[1])
            N = int(run.provenance["system"]["dim"][0])
            error = float(np.sqrt(4.5 / N) / (TEMPERATURES[0] - TEMPERATURES[1]))
            claims.close(
                f"anisotropy, {kernel} kernel",
                "What is left of T_x − T_y at the end.",
                float(left[-1]),
                float(anisotropy_left(kernel, run.t)[-1]),
                4 * error + 0.01,
                "four standard errors, and 1 % for widths that are not Maxwellian",
                error,
            )
            kinetic, p = run.moments["kinetic"].mean, run.moments["momentum"].mean
            claims.below(
                f"momentum, {kernel} kernel",
                "Pairs keep the total momentum to rounding.",
                float(np.max(np.abs(p - p[0]))),
                1e-12,
                "rounding",
            )
            claims.below(
                f"energy, {kernel} kernel",
                "Pairs keep the kinetic energy, which the field hardly changes.",
                float(np.max(np.abs(kinetic / kinetic[0] - 1))),
                1e-2,
                "energy of the field",
            )
    if run := runs.get("beam"):
        v = run.moments["velocity"].mean
        early = run.t <= 0.5
        slope = float(np.polyfit(run.t[early], v[early], 1)[0])
        claims.close(
            "beam",
            "A fast beam slows down at Spitzer's rate.",
            slope,
            beam_slope(),
            0.1 * abs(beam_slope()),
            "noise, and the change of the rate while it slows down",
        )


def _claim_long(claims: ClaimList, runs: Mapping[str, Run]) -> None:
    trends = {}
    for label, run in runs.items():
        energy, p = run.moments["energy"].mean, run.moments["momentum"].mean
        first, second = np.array_split(energy[1:], 2)
        trends[label] = abs(float(np.mean(second) - np.mean(first)))
        if not label.startswith("heun"):
            claims.below(
                f"momentum of {label}",
                "Over a long run with collisions the momentum is kept to rounding.",
                float(np.max(np.abs(p - p[0]))),
                1e-11,
                "rounding, and the tolerance of Newton's method",
            )
            claims.below(
                f"energy of {label}",
                "Over a long run with collisions the energy has no drift: change between halves.",
                trends[label],
                2e-4,
                "less than a thousandth of H/N",
            )
    heun = {label: x for label, x in trends.items() if label.startswith("heun")}
    others = [x for label, x in trends.items() if label not in heun]
    for label, trend in heun.items():
        if others:
            claims.above(
                f"energy of {label}",
                "The energy of an explicit method without structure drifts, and more than others.",
                trend,
                3 * max(others),
                "three times the largest of structured methods",
            )
