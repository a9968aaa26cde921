"""Samples of which no error can be told: the variance is no number, or grows with the sample."""

import numpy as np

from dalembert.answers.sampling import largest, reach
from dalembert.statistics import SampleMean

HEAVY, LONG, GROWN = 0.1, 64, 2.0
"""Share of the squared error that one path may make. With finite variance it falls as paths are
added: it is refused if after so many times as many it has not, and the largest deviation has become
so much larger. Of a rare event the deviation stays what it is."""


class StoppedError(Exception):
    """The tolerance cannot be met; the message is the reason."""


class WideError(StoppedError):
    """A variance seems to be infinite at some step size, which may be unstable."""


def check_tails(
    dt: float, now: SampleMean, is_heavy: np.ndarray, paths: int, before: np.ndarray
) -> None:
    """Refuse a sample that is heavy with many more paths than before, by ever larger values."""
    if now.count >= LONG * paths and np.any(is_heavy & (reach(now) > GROWN * before)):
        raise WideError(
            f"one of {int(now.count):,} samples at dt = {dt:.3g} makes {np.max(largest(now)):.0%} "
            "of their variance, which grows with their number: it may be infinite, and no error "
            "can be told. Take a bounded function of what is observed, or a histogram of it; or, "
            "if steps are unstable, give a smaller dt="
        )


def check_range(sample: SampleMean) -> None:
    """Refuse variances that float64 does not hold."""
    variance = sample.variance
    is_small = (sample.minimum < sample.maximum) & (variance < np.finfo(float).tiny)
    if is_small.any() or not np.isfinite(variance).all():
        found = f"{sample.minimum} to {sample.maximum}"
        text = f"the variance of an observable with values from {found} is no number that float64"
        if np.any(is_small):
            raise StoppedError(f"{text} holds: take other units")
        raise WideError(f"{text} holds: take other units, or a smaller dt= if steps are unstable")
