"""Roots of dispersion relations: of analytic functions, those with the largest imaginary part."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ACCURACY", "best_of", "least_damped", "newton"]

ComplexFunction = Callable[[Any], Any]
Complex = NDArray[np.complex128]

ACCURACY = 1e-11


def newton(function: ComplexFunction, starts: Complex) -> Complex:
    """Roots of an analytic function that Newton's method finds from the starts."""
    w = starts.astype(np.complex128)
    with np.errstate(all="ignore"):
        for _ in range(40):
            h = 1e-5 * (1 + np.abs(w))
            at = function(w)
            step = 2 * h * at / (function(w + h) - function(w - h))
            w = np.where(np.isfinite(step) & np.isfinite(w), w - step, np.nan)
            is_root = np.abs(step) <= ACCURACY * (1 + np.abs(w))
            if np.all(is_root | np.isnan(w)):
                break
    return w[is_root]


def best_of(roots: Complex, where: str) -> complex:
    """The root with the largest imaginary part, of two that are alike the one on the right."""
    if not roots.size:
        raise ValueError(
            f"no root of the dispersion relation was found at {where}: waves that are damped "
            "within a wave length are hard to find."
        )
    top = roots[roots.imag >= roots.imag.max() - 1e-9]
    return complex(top[np.argmax(top.real)])


def least_damped(
    function: ComplexFunction,
    starts: Complex,
    where: str,
    floor: float = -np.inf,
    finest: float = np.inf,
) -> complex:
    """The root with the largest imaginary part, of a function that is 1 at infinity.

    That there is none above it is shown by the turns of the function along a line just below.

    Args:
        function: the dispersion relation.
        starts: where Newton's method begins.
        where: the wave, in words for errors.
        floor: imaginary part below which roots are left out.
        finest: frequencies within which the function varies; the line is nearer than this.
    """
    found = newton(function, starts)
    best = best_of(found[found.imag > floor], where)
    margin = min(1e-4 * (1 + abs(best)), 0.05 * finest)
    above = found[found.imag > best.imag - margin]
    distinct = len(np.unique(np.round(above, 7)))
    if _zeros_above(function, best.imag - margin, np.max(np.abs(starts)), where) != distinct:
        raise ValueError(
            f"the root {best} was found at {where}, but it is not sure that it is the least damped."
        )
    return best


def _zeros_above(function: ComplexFunction, height: float, reach: float, where: str) -> int:
    """How many zeros an analytic function has above a line, by the argument principle."""
    for points in 4 ** np.arange(6, 11):
        # Ever wider apart towards both ends, where the function comes to rest.
        s = np.linspace(-1, 1, int(points))
        values = function(reach * (s + 1e3 * s**9) + 1j * height)
        turns = np.angle(values[1:] / values[:-1])
        if np.max(np.abs(turns)) < 1:
            return round(float(np.sum(turns)) / (2 * np.pi))
    raise ValueError(
        f"the dispersion relation at {where} varies too fast to count its roots: the wave is too "
        "long for that."
    )
