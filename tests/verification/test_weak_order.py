"""Weak orders: exact, by all outcomes of the three-point variables, and on common Brownian paths.

The enumerated errors contain no sampling. They are compared with the power series of the
expectation by the generator, which knows the system and no method.
"""

from itertools import product

import numpy as np
import pytest

import dalembert as da
from dalembert.systems.kubo_system import kubo_energy
from dalembert.theory.orders import weak_order
from dalembert.theory.slopes import WeakOrder
from tiers import tiered

START = (np.array([1.0]), np.array([0.8]))
PENDULUM = da.systems.pendulum(sigma=1.0, kappa=0.5)
TWO_NOISE = da.systems.two_noise(beta1=1.0, beta2=1.0)


def square(q, p, params):
    return p[0] ** 2


def mixed_product(q, p, params):
    return q[0] * p[0]


OBSERVE = {"p²": square, "qp": mixed_product}
WEAK_METHODS = {
    "srkw1(0)": (da.srkw1(0.0), 1.0),
    "srkw1(1/2)": (da.srkw1(0.5), 1.0),
    "srkw2": (da.srkw2(), 2.0),
    "rs1": (da.rs1(), 2.0),
    "rs2": (da.rs2(), 2.0),
}


def check(result: WeakOrder, order: float, half_width: float = 0.1) -> None:
    low, high = result.interval
    assert low <= order <= high, str(result)
    assert high - low <= 2 * half_width, str(result)


def other_signs(noises: int, dt: float):
    """All outcomes with I_kl = −I_k Ĩ_l for l > k, which is not antisymmetric."""
    table = np.array([*product(*[(1, 0, -1)] * noises, *[(1, -1)] * noises)], dtype=float)
    three, two = np.sqrt(3 * dt) * table[:, :noises], np.sqrt(dt) * table[:, noises:]
    weights = np.prod(np.where(table[:, :noises] == 0, 4, 1), axis=1) / (6**noises * 2**noises)
    products = three[:, :, None] * two[:, None, :]
    return da.Increments(three, mixed=np.tril(products, -1) - np.triu(products, 1)), weights


def gauss_hermite(noises: int, dt: float):
    """Five nodes instead of a Gaussian ΔW: exact moments up to the ninth."""
    assert noises == 1
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    return da.Increments(np.sqrt(dt) * nodes[:, None]), weights / np.sum(weights)


@pytest.mark.slow
@pytest.mark.parametrize("name", WEAK_METHODS)
def test_orders_by_enumeration_for_one_noise(name):
    method, order = WEAK_METHODS[name]
    results = weak_order(PENDULUM, method, START, t_end=0.1, steps=(1, 2, 3, 4, 6), observe=OBSERVE)
    for result in results.values():
        check(result, order)
        assert not result.stderrs.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WEAK_METHODS if name != "srkw2"])
def test_orders_by_enumeration_for_two_noises_that_do_not_commute(name):
    method, order = WEAK_METHODS[name]
    results = weak_order(TWO_NOISE, method, START, t_end=0.05, observe=OBSERVE)
    for result in results.values():
        check(result, order)


@pytest.mark.slow
@pytest.mark.parametrize("local", [False, True])
def test_rs2_with_the_other_signs_of_the_mixed_variables_is_of_order_one(local):
    options = {"t_end": 0.05, "observe": mixed_product, "local": local}
    right = weak_order(TWO_NOISE, da.rs2(), START, **options)
    wrong = weak_order(TWO_NOISE, da.rs2(), START, outcomes=other_signs, **options)
    check(right, 2.0)
    check(wrong, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["srkw1(1/2)", "rs2"])
def test_errors_of_single_steps_give_the_same_order(name):
    method, order = WEAK_METHODS[name]
    for result in weak_order(
        TWO_NOISE, method, START, t_end=0.05, observe=OBSERVE, local=True
    ).values():
        check(result, order)
        assert abs(result.slopes[-1] - (order + 1)) < 0.05


@pytest.mark.parametrize("name", tiered(["srkw1(0)", "rs1", "rs2", "heun"], fast=["rs2", "heun"]))
def test_orders_on_the_damped_kubo_oscillator_with_its_exact_mean_energy(name):
    method, order = WEAK_METHODS.get(name, (da.heun(), 1.0))
    q0, p0 = START
    exact = kubo_energy(0.1, q0[0], p0[0], beta=1.0, nu=1.0)
    kubo = da.systems.damped_kubo(beta=1.0, nu=1.0)
    options = {"outcomes": gauss_hermite} if name == "heun" else {}
    check(weak_order(kubo, method, START, t_end=0.1, exact=float(exact), **options), order)


@pytest.mark.slow
def test_srkw1_with_one_half_is_of_order_two_for_additive_noise():
    system = da.systems.van_der_pol(nu=1.0, sigma=0.5)
    half, zero = (weak_order(system, da.srkw1(lam), START, t_end=0.1) for lam in (0.5, 0.0))
    check(half, 2.0)
    check(zero, 1.0)


@pytest.mark.slow
def test_an_extrapolated_method_agrees_with_the_generator_series():
    options = {"t_end": 0.05, "observe": OBSERVE}
    series = weak_order(TWO_NOISE, da.rs2(), START, **options)["p²"]
    other = weak_order(TWO_NOISE, da.rs2(), START, reference=da.rs1(), **options)["p²"]
    np.testing.assert_allclose(series.errors, other.errors, rtol=0.02)
    assert "rs1" in other.reference and "generator" in series.reference
    check(other, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", [da.midpoint(), da.heun()], ids=lambda method: method.name)
def test_methods_driven_by_gaussian_increments_are_of_weak_order_one(method):
    options = {"t_end": 0.1, "steps": (1, 2, 3, 4, 6), "observe": mixed_product}
    check(weak_order(PENDULUM, method, START, outcomes=gauss_hermite, **options), 1.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no order")  # Errors are compared, not orders.
def test_common_paths_find_the_enumerated_errors():
    """Within 3.5 standard errors at three step sizes: a false alarm in fewer than 1 of 500."""
    options = {"t_end": 0.2, "steps": (2, 4, 8), "observe": mixed_product}
    enumerated, sampled, other = (
        weak_order(PENDULUM, method, START, **how, **options)
        for method, how in (
            (da.heun(), {"outcomes": gauss_hermite}),
            (da.heun(), {"paths": 40_000}),
            (da.midpoint(), {"outcomes": gauss_hermite}),
        )
    )
    distance = np.abs(sampled.errors - enumerated.errors) / sampled.stderrs
    assert np.all(distance < 3.5), (str(sampled), str(enumerated))
    assert np.all(sampled.stderrs < 0.1 * sampled.errors)
    assert np.all(np.abs(sampled.errors - other.errors) > 5 * sampled.stderrs)


@pytest.mark.slow
def test_an_error_that_cannot_be_told_from_zero_gives_no_order():
    with pytest.warns(UserWarning, match=r"no order: E\[H\] of heun .*paths=\d"):
        result = weak_order(PENDULUM, da.heun(), START, t_end=0.1, steps=(4, 8, 16), paths=10)
    assert np.isnan(result.order)
    assert "its standard error" in str(result)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heun", "midpoint", "stormer_verlet", "dirk", "r2"])
def test_order_one_on_common_paths(name):
    options = {"t_end": 0.5, "steps": (8, 16, 32, 64), "observe": mixed_product, "refine": 8}
    result = weak_order(PENDULUM, da.METHODS[name](), START, paths=50_000, **options)
    check(result, 1.0, half_width=0.3)
