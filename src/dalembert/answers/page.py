"""An expectation as a page to read, and as a picture."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

import numpy as np

from dalembert.answers.result import Expectation
from dalembert.pictures import make_axes
from dalembert.theory.text import table

__all__ = ["answer_page", "plot_answer"]

WIDTH = 100


def answer_page(e: Expectation) -> list[str]:
    """The lines of the page."""
    of_what = " of the value" if e.relative else ""
    verdict = "met" if e.is_met else "NOT met"
    lines = [e.title, *table(list(_values(e)))]
    lines.append(f"  tolerance {e.tolerance:g}{of_what} at {e.confidence:.0%}: {verdict}")
    lines += ["", f"Levels ({e.estimator})", *table(list(_levels(e)))]
    if len(e.exponents.beta):
        lines += ["", *table(list(_exponents(e)))]
    lines += [
        f"  {e.steps:.3g} path-steps in {e.seconds:.2g} s; plain Monte Carlo at the finest dt: "
        f"{e.plain_steps:.3g}, {e.gain:.2g} times as many"
    ]
    for note in e.notes:
        lines += wrap(note, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    return lines


def _values(e: Expectation) -> Iterator[tuple[str, ...]]:
    yield ("", "value", "± error", "statistical", "bias")
    statistical = e.quantile * e.found.stderr
    columns = (e.found.value, e.errors, statistical, e.found.bias)
    for name, value, *errors in zip(e.labels, *columns, strict=True):
        yield (name, f"{value:.8g}", *(f"{x:.2g}" for x in errors))


def _levels(e: Expectation) -> Iterator[tuple[str, ...]]:
    yield ("dt", "sampled", "paths", f"mean of {e.labels[0]}", "variance", "steps", "seconds")
    for x in e.levels:
        what = "φ(dt) − φ(2dt)" if x.row.is_pair else "φ(dt)"
        mean = f"{x.mean[0]:.4g} ± {x.stderr[0]:.1g}"
        rest = f"{x.variance[0]:.3g}", f"{x.steps:.3g}", f"{x.seconds:.2g}"
        yield (f"{x.dt:g}", what, f"{x.paths:,}", mean, *rest)


def _exponents(e: Expectation) -> Iterator[tuple[str, ...]]:
    yield ("", "means fall as dt^α, α", "variances as dt^β, β")
    alpha, alpha_stderr, beta, beta_stderr = e.exponents
    rows = zip(e.labels, alpha, alpha_stderr, beta, beta_stderr, strict=True)
    for name, *of_means, b, b_stderr in rows:
        yield (f"measured, {name}", _exponent(*of_means), _exponent(b, b_stderr))
    said = ("?" if x is None else f"{x:g}" for x in (e.expected_alpha, e.expected_beta))
    yield ("expected", *said)


def _exponent(value: float, stderr: float) -> str:
    return f"{value:.2f} ± {stderr:.2f}" if np.isfinite(value) else "too few clear levels"


def plot_answer(e: Expectation, ax: Any = None) -> Any:
    """Standard deviations and means of the first observable at each dt, and of its changes.

    Changes from 2dt to dt, which fall with dt, are joined; values of φ are marks of their own.
    """
    axes = make_axes(ax)
    axes.set(xscale="log", yscale="log")
    kinds = ((True, "φ(dt) − φ(2dt)", "full", "-", "--"), (False, "φ(dt)", "none", "", ""))
    for is_pair, name, fill, solid, dashed in kinds:
        levels = [x for x in e.levels if x.row.is_pair == is_pair]
        dts, deviations = [x.dt for x in levels], [x.variance[0] ** 0.5 for x in levels]
        means, errors = [abs(x.mean[0]) for x in levels], [2 * x.stderr[0] for x in levels]
        if levels:
            style = {"color": "C0", "fillstyle": fill}
            axes.plot(dts, deviations, f"o{solid}", label=f"standard deviation of {name}", **style)
            style["color"] = "C1"
            axes.errorbar(dts, means, errors, fmt=f"s{dashed}", label=f"mean of {name}", **style)
    dts = sorted({level.dt for level in e.levels})
    axes.set_xticks(dts, [f"{dt:g}" for dt in dts])
    axes.set_xticks([], minor=True)
    allowed = e.tolerance * (abs(e.found.value[0]) if e.relative else 1)
    axes.axhline(allowed, color="0.6", linestyle=":", label="tolerance")
    axes.set(xlabel="dt", ylabel=f"{e.labels[0]}, and its changes by halving", title=e.title)
    axes.legend(fontsize="small")
    return axes
