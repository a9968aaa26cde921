"""Intervals from the misfit: normal where moments are linear, and right where they bend."""

import numpy as np
import pytest

from dalembert.fitting.profile import profiled

Z, SHARE, SPREAD = 1.959963984540054, 0.01, np.array([1.0, 2.0, 0.5])


def summaries_of(mean, spread):
    """Paths whose summaries have a mean and standard deviations, exactly."""

    def summaries(theta):
        wide, count = spread(theta), len(mean(theta))
        away = np.sqrt((2 * count - 1) / 2) * np.diag(wide)
        return mean(theta) + np.concatenate([away, -away])

    return summaries


def linear(theta):
    return np.array([theta[0] + theta[1], theta[0] - 2 * theta[1], theta[1]])


def constant(theta):
    return SPREAD


@pytest.mark.parametrize("seed", range(3))
def test_linear_moments_have_normal_intervals(seed):
    slopes = np.array([[1.0, 1.0], [1.0, -2.0], [0.0, 1.0]]) / (SPREAD * SHARE**0.5)[:, None]
    covariance = np.linalg.inv(slopes.T @ slopes)
    true = np.array([0.7, -0.3])
    noise = SHARE**0.5 * SPREAD * np.random.default_rng(seed).normal(size=3)
    target = linear(true) + noise
    best = true + covariance @ slopes.T @ (noise / (SPREAD * SHARE**0.5))
    made = profiled(
        best, covariance, np.zeros(2, bool), target, SHARE, summaries_of(linear, constant)
    )
    wide = Z * np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(made.interval(0.95), np.stack([best - wide, best + wide], 1), 1e-4)
    wide = 2.5758293 * np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(made.interval(0.99)[:, 0], best - wide, rtol=1e-4)


def test_moments_that_bend_and_spreads_that_change():
    """One positive parameter and one moment θ², of standard deviation 2 θ."""

    def mean(theta):
        return np.array([theta[0] ** 2])

    def spread(theta):
        return 2 * np.abs(theta)

    share, best = 0.04, 1.0  # a standard error of 0.2 by the slope at the estimate
    made = profiled(
        np.array([best]), np.array([[0.04]]), np.array([True]), np.array([best**2]), share,
        summaries_of(mean, spread),
    )  # fmt: skip
    # (1 − θ²)² = Z² 0.04 (2 θ)², of which the positive solutions are
    half = Z * 0.2
    wanted = np.sqrt(1 + half**2) + np.array([-half, half])
    # A twentieth of a standard error: what the search for the estimate ends within, too.
    np.testing.assert_allclose(made.interval(0.95)[0], wanted, rtol=0, atol=0.01)
    normal = best + np.array([-half, half])
    assert np.all(np.abs(made.interval(0.95)[0] - normal) > 0.05), "the control"


def test_a_parameter_that_nothing_bounds_above():
    def saturating(theta):
        return np.array([1 - np.exp(-theta[0])])

    target = np.array([0.95])
    made = profiled(
        np.array([3.0]), np.array([[1.0]]), np.array([True]), target, 0.01,
        summaries_of(saturating, lambda theta: np.ones(1)),
    )  # fmt: skip
    low, high = made.interval(0.95)[0]
    assert 0.9 < low < 1.6 and high == np.inf


def test_paths_that_fail_around_the_estimate_leave_normal_intervals():
    def broken(theta):
        return np.full((6, 1), np.nan if theta[0] > 1 else 1.0)

    given = np.array([1.0]), np.array([[0.01]]), np.array([True]), np.array([1.0]), 0.01
    assert profiled(*given, broken) is None
