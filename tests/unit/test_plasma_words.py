"""Plasmas: what is refused of what a newcomer writes, and what is said to be written instead."""

import numpy as np
import pytest

import dalembert as da
from dalembert.plasma import (
    CoulombPairs,
    Dougherty,
    LenardBernstein,
    Lorentz,
    vlasov_poisson,
)

OPERATORS = [LenardBernstein(), LenardBernstein(4), Dougherty(4), Lorentz(), CoulombPairs()]


def raises(make, kind, said):
    with pytest.raises(kind, match=said):
        make()


# What a plasma reads of its arguments


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_collisions_need_a_rate_and_may_have_none(operator):
    options = dict(velocities=2, collisions=operator)
    with pytest.raises(ValueError, match=r"act at the rate nu=: give one"):
        vlasov_poisson(16, **options)
    for nu in (0.0, 0.3):
        assert vlasov_poisson(16, nu=nu, **options).params["nu"] == nu


@pytest.mark.parametrize("operator", [None, *OPERATORS], ids=str)
def test_a_temperature_is_read_or_refused(operator):
    options = dict(velocities=2, collisions=operator, nu=0.3)
    if operator is None or isinstance(operator, LenardBernstein):
        assert vlasov_poisson(16, temperature=2.0, **options).params["temperature"] == 2.0
        assert vlasov_poisson(16, **options).params["temperature"] == 1.0
    else:
        with pytest.raises(ValueError, match=r"temperature is 2\.0, .* reads none: leave it out"):
            vlasov_poisson(16, temperature=2.0, **options)
        assert "temperature" not in vlasov_poisson(16, **options).params


def test_a_temperature_without_collisions_is_that_of_a_start():
    raises(lambda: vlasov_poisson(16, temperature=2.0), ValueError, r"without nu=.*da.plasma.Start")
    # A rate of 0 among others is one.
    assert "temperature" not in vlasov_poisson(16, nu=0.0, temperature=2.0).params


@pytest.mark.parametrize(
    ("rate", "kind", "said"),
    [
        (3.0, TypeError, r"rate is 3\.0, but must be a function .* nu= of the plasma"),
        (lambda v: np.ones(3), ValueError, r"a rate for each, not shape \(3,\)"),
        (lambda v: v[:, None], ValueError, r"speeds, shape \(16,\), .* not shape \(16, 1\)"),
        (lambda v, w: v, TypeError, "it failed, .* missing 1 required"),
    ],
)
def test_rates_of_lorentz_collisions_that_are_none_are_refused(rate, kind, said):
    raises(
        lambda: vlasov_poisson(16, nu=1.0, velocities=2, collisions=Lorentz(rate)), kind, said
    )


def test_one_rate_for_all_speeds_is_one_for_each():
    found = [
        da.plasma.Lorentz(rate).flow((4, 2), 1, {}) for rate in (lambda v: 2.0, lambda v: 2 + 0 * v)
    ]
    q, p, w = np.random.default_rng(0).normal(size=(3, 4, 2))
    params = dict(nu=0.1, mass=1.0, weight=1.0, charge=-1.0, length=(1.0,))
    one, other = (flow.map(q, p, w[:, :1], 0.1, params)[1] for flow in found)
    assert np.array_equal(one, other)
