"""What studies draw and compare: statistics of runs as curves and numbers."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dalembert.ensemble.run import Run
from dalembert.statistics import Binned
from dalembert.studies.figures import Figure, Line, Panel
from dalembert.studies.study import Case, Result, Study


def mean_and_error(run: Run, observable: str = "energy") -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over time; NaN where too few paths are left."""
    m = run.moments[observable]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(m.count > 0, m.mean, np.nan)
        error = np.where(m.count > 1, m.stderr, np.nan)
    return mean, error


def value_at(run: Run, t: float, observable: str = "energy") -> tuple[float, float]:
    """Mean and standard error at a save time."""
    place = int(np.argmin(np.abs(run.t - t)))
    if abs(run.t[place] - t) > 1e-6 * max(t, 1.0):
        raise ValueError(f"the run has no save time {t:g}; its last one is {run.t[-1]:g}.")
    mean, error = mean_and_error(run, observable)
    return float(mean[place]), float(error[place])


def relative_error(run: Run, observable: str = "energy") -> float:
    """The largest ratio of standard error and mean at any time."""
    mean, error = mean_and_error(run, observable)
    return float(np.nanmax(error / np.abs(mean)))


def lines(
    runs: Mapping[str, Run],
    cases: Sequence[Case],
    minus: Callable[[np.ndarray], np.ndarray] | None = None,
    observable: str = "energy",
) -> list[Line]:
    """The curves of some cases with bands of two standard errors, or their differences."""
    seen: Counter[str] = Counter()
    found = []
    for case in cases:
        run = runs[case.label]
        mean, error = mean_and_error(run, observable)
        y = mean if minus is None else mean - minus(run.t)
        variant = seen[case.family]
        seen[case.family] += 1
        band = None if run.count[0] < 2 else 2 * error
        found.append(Line(case.label, run.t, y, band, case.family, variant))
    return found


def density_lines(
    histograms: Mapping[str, Binned],
    cases: Sequence[Case],
    exact: Callable[[Any], Any] | None = None,
) -> list[Line]:
    """Densities of some cases at the middles of their bins, and the exact one if it is known."""
    seen: Counter[str] = Counter()
    found = []
    edges = histograms[cases[0].label].edges[0]
    x = (edges[1:] + edges[:-1]) / 2
    for case in cases:
        binned = histograms[case.label]
        variant = seen[case.family]
        seen[case.family] += 1
        band = 2 * binned.stderr
        found.append(Line(case.label, x, binned.density, band, case.family, variant))
    if exact is None:
        return found
    fine = np.linspace(edges[0], edges[-1], 401)
    return [*found, Line("exact", fine, np.asarray(exact(fine)))]


def overview(study: Study, result: Result) -> list[Figure]:
    """Every observable over time and every histogram at the end, for a study without figures."""
    figures = []
    for part in study.parts:
        runs = result.part(part.name)
        first = runs[part.cases[0].label]
        panels = [
            Panel("t", f"mean of {name}", lines(runs, part.cases, observable=name))
            for name, moments in first.moments.items()
            if moments.mean.ndim == 1
        ]
        for name, binned in first.histograms.items():
            if binned.counts.ndim == len(binned.edges) == 1:
                counted = {label: run.histograms[name] for label, run in runs.items()}
                panels.append(Panel(name, "density", density_lines(counted, part.cases)))
        file = re.sub(r"[^A-Za-z0-9]+", "_", f"{study.name}_{part.name}")
        caption = "Means over time with bands of two standard errors, and densities at the end."
        figures.append(Figure(file, f"{study.title}: {part.name}", caption, panels))
    return figures


def density_distance(binned: Binned, other: Binned | Callable[[Any], Any]) -> float:
    """½ ∫ |ρ − ρ'|, the total variation distance, by the midpoint rule over the bins.

    The other density is that of a histogram with the same bins, or a function.
    """
    edges = binned.edges[0]
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    density = other.density if isinstance(other, Binned) else np.asarray(other(middles))
    return float(np.sum(np.abs(binned.density - density) * widths) / 2)


def expected_distance(*sampled: Binned) -> float:
    """The distance that sampling alone would show: ½ Σ √(2/π) · standard error of each bin."""
    widths = np.diff(sampled[0].edges[0])
    error = np.sqrt(sum(binned.stderr**2 for binned in sampled))
    return float(np.sum(error * widths) * np.sqrt(2 / np.pi) / 2)
