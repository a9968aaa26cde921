"""Figures and films of the study of plasmas."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dalembert.ensemble.run import Run
from dalembert.plasma import linear
from dalembert.studies.figures import Figure, Film, Image, Line, Panel
from dalembert.studies.plasma_claims import (
    BEAM_SPEED,
    COLLIDING,
    FREE_ALPHA,
    INSTABILITIES,
    TEMPERATURES,
    WEIBEL,
    anisotropy_left,
    beam_slope,
    colliding_waves,
    runs_by_part,
    size_of_wave,
    wave_of,
)
from dalembert.studies.study import Result

OPERATORS = {
    "": "no collisions",
    "lenard_bernstein": "Lenard–Bernstein",
    "lenard_bernstein_momentum": "L.–B. with momentum",
    "dougherty": "Dougherty",
}
TIME = "ωₚt"
FRAMES = 2
"""Save times from one picture of a film to the next."""


def figures_of_plasma(result: Result) -> list[Figure]:
    """Waves, instabilities with pictures of phase space, relaxation, long runs."""
    runs, panels = runs_by_part(result), []
    for name, (operator, k, nu) in {"Landau": ("", 0.5, 0.0), **colliding_waves(runs)}.items():
        if name in runs:
            t, n = runs[name].t, wave_of(runs, name, *(() if nu else (FREE_ALPHA,)))
            theory = linear.response(k, t, nu, operator or None).real
            curve = Line("particles", t, n, None, "stormer_verlet")
            exact = Line("linear theory", t, theory, variant=1)
            title = f"{OPERATORS[operator]}: k = {k:g}" + (f", ν = {nu:g}" if nu else "")
            panels.append(Panel(TIME, "Eₖ(t)/Eₖ(0)", [curve, exact], title=title))
    figures = [
        Figure(
            "plasma_waves",
            "Plasma: waves that decay",
            "The field of a small density wave, without collisions and with three operators, and "
            "what linear theory says. With collisions it is half of the difference of two plasmas "
            "with opposite waves and the same noise.",
            panels,
            columns=2,
        )
    ]
    for name, known in INSTABILITIES.items():
        for ending in ("", COLLIDING):
            if run := runs.get(name + ending):
                figures.append(_instability(name + ending, run, *known))
    figures += [_relaxation(runs), _light_and_long(result, runs)]
    return [figure for figure in figures if figure.panels]


def _instability(
    name: str, run: Run, velocities: Any, k: float, speed: float, _modes: int
) -> Figure:
    """A wave that grows, and phase space where that stops and at the end."""
    n, early = size_of_wave(run), run.t[run.t <= 20]
    theory = np.abs(linear.response(k, early, velocities=velocities))
    f = run.moments["phase space"].mean
    edges = np.linspace(0, 2 * np.pi / k, 65), np.linspace(-speed, speed, 65)
    exact, more = "linear theory", ""
    if name.endswith(COLLIDING):
        exact += " without collisions"
        more = " The wave grows out of the noise of collisions as well."
    growth = Panel(
        TIME,
        "|Eₖ(t)|/|Eₖ(0)|",
        [
            Line("particles", run.t, n, None, "stormer_verlet"),
            Line(exact, early, theory, variant=1),
        ],
        yscale="log",
        title=name,
    )
    pictures = [
        Panel("x", "v", image=Image(*edges, f[i], "f"), title=f"t = {run.t[i]:g}")
        for i in (_saturation(n), len(run.t) - 1)
    ]
    return Figure(
        "plasma_" + name.replace(" ", "_"),
        f"Plasma: {name}",
        f"Growth of the first mode, and phase space where that first stops and at the end.{more}",
        (growth, *pictures),
        film=Film(run.t[::FRAMES], *edges, f[::FRAMES], ("x", "v")),
    )


def _saturation(size: np.ndarray) -> int:
    """The first time at which a wave that has grown becomes smaller."""
    is_large = size[:-1] >= np.max(size) / 2
    return int(np.argmax(np.append(is_large & (np.diff(size) < 0), True)))


def _relaxation(runs: Mapping[str, Run]) -> Figure:
    panels = []
    for kernel in ("maxwell", "coulomb"):
        if run := runs.get(f"anisotropy, {kernel}"):
            found = Line("particles", run.t, run.moments["difference"].mean, None, "stormer_verlet")
            start = TEMPERATURES[0] - TEMPERATURES[1]
            theory = Line("theory", run.t, start * anisotropy_left(kernel, run.t), variant=1)
            title = f"pairs, {kernel.capitalize()} kernel"
            panels.append(Panel(TIME, "T∥ − T⊥", [found, theory], title=title))
    if run := runs.get("beam"):
        found = Line("particles", run.t, run.moments["velocity"].mean, None, "stormer_verlet")
        line = BEAM_SPEED + beam_slope() * run.t
        slope = Line("Spitzer's rate at the start", run.t, line, variant=2)
        panels.append(Panel(TIME, "v of the beam", [found, slope], title="a beam slows down"))
    return Figure(
        "plasma_relaxation",
        "Plasma: relaxation by pairs",
        "Temperatures along and across come together, and a fast beam slows down.",
        panels,
    )


def _light_and_long(result: Result, runs: Mapping[str, Run]) -> Figure:
    panels = []
    if run := runs.get("Weibel"):
        energy = run.moments["light"].mean[:, 0, 0]
        root, label = linear.weibel_root(*WEIBEL).imag, f"midpoint, Δt = {run.provenance['dt']:g}"
        growth, late = np.exp(2 * root * run.t), run.t >= 40
        theory = growth * np.exp(np.mean(np.log(energy[late] / growth[late])))
        panels.append(
            Panel(
                TIME,
                "magnetic energy",
                [
                    Line(label, run.t, energy, None, "midpoint"),
                    Line("linear theory", run.t, theory, variant=1),
                ],
                yscale="log",
                title="Weibel's instability",
            )
        )
    lines = [
        Line(label, run.t, energy - energy[0], None, label.split(",")[0])
        for label, run in result.part("long runs").items()
        for energy in [run.moments["energy"].mean]
    ]
    if lines:
        panels.append(Panel(TIME, "change of H/N", lines, title="energy with collisions"))
    return Figure(
        "plasma_light_and_long",
        "Plasma: light, and long runs",
        "Growth of the magnetic field of an anisotropic plasma. Energy over a long run with "
        "Dougherty's collisions, which conserve it.",
        panels,
    )
