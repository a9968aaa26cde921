"""How means and variances of level differences fall with the step size: α and β."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dalembert.answers.sampling import Level
from dalembert.caches import kept
from dalembert.methods import Method
from dalembert.system import System

__all__ = ["Exponents", "doubts_about_limit", "expected_exponents", "measured_exponents"]

CLEAR = 3.0
"""Standard errors by which a mean must differ from zero to count for its exponent."""

BENT = 0.05
"""Relative error of every size because powers of dt beyond the first bend the line."""


class Exponents(NamedTuple):
    """Measured exponents, a number for each that is observed; NaN where too few levels count."""

    alpha: np.ndarray
    alpha_stderr: np.ndarray
    beta: np.ndarray
    beta_stderr: np.ndarray


def measured_exponents(levels: Iterable[Level]) -> Exponents:
    """α in E[φ(dt) − φ(2 dt)] ~ dt^α, and β in the variance of these differences.

    Means count where they are clear of their errors. The errors of variances are taken for those of
    normal variables.
    """
    pairs = [level for level in levels if level.row.is_pair]
    entries = range(len(pairs[0].mean)) if pairs else ()

    def of_mean(entry: int) -> tuple[float, float]:
        sizes = ((x.dt, abs(x.mean[entry]), x.stderr[entry]) for x in pairs)
        return _slope([(dt, m, s / m) for dt, m, s in sizes if m > CLEAR * s])

    def of_variance(entry: int) -> tuple[float, float]:
        sizes = ((x.dt, x.variance[entry], (2 / (x.paths - 1)) ** 0.5) for x in pairs)
        return _slope([one for one in sizes if one[1] > 0])

    columns = [(*of_mean(entry), *of_variance(entry)) for entry in entries]
    return Exponents(*np.array(columns).reshape(-1, 4).T)


def _slope(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The slope of log(size) against log(dt), and its standard error, from relative errors."""
    if len(points) < 2:
        return np.nan, np.nan
    dts, sizes, errors = np.array(points).T
    # Coarse levels bend the line: none is trusted to better than a few per cent.
    weights = 1 / (errors**2 + BENT**2)
    x, y = np.log(dts), np.log(sizes)
    centred = x - weights @ x / weights.sum()
    spread = weights @ centred**2
    return float((weights * centred) @ y / spread), float(spread**-0.5)


@kept
def expected_exponents(system: System, method: Method) -> tuple[float | None, float | None]:
    """α and β to expect of smooth observables: the weak order, and twice the mean-square one."""
    from dalembert.theory import diagnose

    (verdict,) = diagnose(system, methods=[method]).methods
    return verdict.weak, None if verdict.strong is None else 2 * verdict.strong


def doubts_about_limit(system: System, method: Method) -> tuple[str, ...]:
    """A note where nothing says that a method has the right limit; a wrong one is refused."""
    from dalembert.theory.limits import WRONG, limit, why_wrong

    if any(expected_exponents(system, method)):
        return ()
    found = limit(system, method)
    if found == "wrong":
        raise ValueError(
            f"{method.name} {WRONG} of {system.name!r} ({why_wrong(system, method)}), so that its "
            "levels would agree on something else. Take another method, such as da.midpoint(): "
            "da.diagnose(system) recommends one, and da.certify(method) says more."
        )
    if found == "right":
        return ()
    return (
        f"no order of {method.name} is known on {system.name!r}, so that its limit is not known "
        "to be the right one: compare with another method",
    )
