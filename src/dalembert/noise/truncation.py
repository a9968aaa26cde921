"""What truncation does to Gaussian increments: how many it cuts off, and what variance is left.

ΔW = √h χ outside [−A, A], A = √(2 k h |ln h|), becomes ±A. In units of √h the bound is
a = √(2 k |ln h|), which is large only where h is small: at h = 0.9 and k = 1 two thirds of all
increments lie outside, and most of the noise is gone.
"""

from math import ceil, erfc, exp, log, pi, sqrt

NOTICEABLE = 0.01
"""Share of truncated increments above which a run warns: 1.8 % of the variance is lost there."""
HARMLESS_BOUND = 3.5
"""Standard deviations at which truncation is recommended: 0.09 % of the variance is lost there."""


def bound(k: float, dt: float) -> float:
    """a = A/√h = √(2 k |ln h|), the largest |ΔW| that is left, in standard deviations."""
    return sqrt(2 * k * abs(log(dt)))


def truncated_share(k: float, dt: float) -> float:
    """The probability that an increment is truncated, P(|χ| > a)."""
    return erfc(bound(k, dt) / sqrt(2))


def truncated_variance(k: float, dt: float) -> float:
    """The variance of a truncated ΔW in units of h, E min(χ², a²)."""
    a = bound(k, dt)
    return 1 - 2 * a * exp(-(a**2) / 2) / sqrt(2 * pi) - (1 - a**2) * truncated_share(k, dt)


def harmless_truncation(dt: float) -> int | None:
    """The smallest whole k that costs less than a thousandth of the variance; None for dt ≥ 1."""
    return max(1, ceil(HARMLESS_BOUND**2 / (2 * abs(log(dt))))) if 0 < dt < 1 else None
