"""Weak order from trees: known expectations, every method, and an independent check on an SDE."""

import dataclasses
from itertools import product
from math import log2, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dalembert.methods import (
    METHODS,
    MeanSquareTableau,
    dirk,
    e1,
    heun,
    midpoint,
    rs1,
    rs2,
    srkw1,
    srkw2,
    stormer_verlet,
)
from dalembert.theory.elementary_weights import expand
from dalembert.theory.order_conditions import (
    Condition,
    algebraic_order,
    exact_expectation,
    order_conditions,
    order_of_expansion,
)


def leaf(colour):
    return (colour, ())


# The exact side


@pytest.mark.parametrize(
    ("forest", "value"),
    [
        ((), 1),
        ((leaf(0),), 1),
        ((leaf(1),), 0),
        ((leaf(1), leaf(1)), 1),
        ((leaf(1),) * 4, 3),
        ((leaf(1), leaf(1), leaf(2), leaf(2)), 1),
        (((1, (leaf(1),)),), 1 / 2),
        (((1, (leaf(2),)),), 0),
        (((1, (leaf(1),)),) * 2, 3 / 4),  # (½ W²)²
        (((1, (leaf(2),)),) * 2, 1 / 2),  # (∫ W₂ ∘ dW₁)²
        (((1, (leaf(2),)), (2, (leaf(1),))), 0),  # J₁₂ J₂₁
        (((0, (leaf(1), leaf(1))),), 1 / 2),  # ∫ W² dt
        (((0, (leaf(1),)), leaf(1)), 1 / 2),  # ∫ W dt · W
        (((0, (leaf(0),)),), 1 / 2),
        (((0, (leaf(0), leaf(0))),), 1 / 3),
        (((1, (leaf(1), leaf(1), leaf(1))),), 3 / 4),  # W⁴/4
        (((0, (leaf(1),)),) * 2, 1 / 3),  # (∫ W dt)²
    ],
)
def test_expectations_of_the_exact_solution(forest, value):
    assert exact_expectation(forest) == pytest.approx(value, abs=1e-15)


# The method side


def test_expectations_of_e1_are_those_of_gaussian_dW_and_dZ():
    only_dZ = dataclasses.replace(heun(), B2=[[0, 0], [1, 0]])
    expansion = expand(only_dZ, 1)
    # Y₂ − y = ΔW + ΔZ in the drift with weight ½: E[(ΔW + ΔZ)²] = 1 + 2·½ + ⅓ at h = 1.
    assert expansion.expectation(((0, (leaf(1), leaf(1))),)) == pytest.approx((1 + 1 + 1 / 3) / 2)


def test_kinds_with_equal_coefficients_are_merged():
    assert [c.label for c in expand(midpoint(), 2).channels] == ["0", "1", "2"]
    labels = [c.label for c in expand(stormer_verlet(), 1).channels]
    assert labels == ["0(H_p)", "0(H_q+F)", "1(h_p)", "1(h_q+f)"]


def test_three_kinds_stay_apart():
    weights = {"alpha_hat": [0.25, 0.75], "beta_hat": [0.25, 0.75]}
    labels = [c.label for c in expand(dataclasses.replace(stormer_verlet(), **weights), 1).channels]
    assert labels == ["0(H_p)", "0(H_q)", "0(F)", "1(h_p)", "1(h_q)", "1(f)"]


# Orders

ORDERS = {
    "midpoint": {"none": 2, "one": 1, "additive": 1, "general": 1},
    "stormer_verlet": {"none": 2, "one": 1, "additive": 1, "general": 1},
    "dirk": {"none": 2, "one": 1, "additive": 1, "general": 1},
    "srkw1": {"none": 2, "one": 1, "additive": 1, "general": 1},
    "srkw2": {"none": 2, "one": 2, "additive": 2},
    "heun": {"none": 2, "one": 1, "additive": 2, "general": 1},
    "r2": {"none": 2, "one": 1, "additive": 1, "general": 1},
    "e1": {"none": 2, "one": 1, "additive": 1, "general": 1},
    "rs1": {"none": 2, "one": 2, "additive": 2, "general": 2},
    "rs2": {"none": 2, "one": 2, "additive": 2, "general": 2},
}


@pytest.mark.parametrize("name", ORDERS)
def test_weak_order_of_every_method(name):
    method = METHODS[name]()
    assert {kind: algebraic_order(method, kind).order for kind in ORDERS[name]} == ORDERS[name]


@pytest.mark.parametrize("lam", [0.0, 0.25, 1.0])
def test_srkw1_has_weak_order_one_for_every_parameter(lam):
    assert algebraic_order(srkw1(lam), "general").order == 1


def test_two_noises_are_enough_where_three_are_not_needed():
    for method in (midpoint(), e1()):
        assert order_of_expansion(expand(method, 3), "general").order == 1


def wrong_mixed(I, I_tilde):
    """I_kl = −I_k Ĩ_l for l > k, which is not antisymmetric."""
    products = I[:, :, None] * I_tilde[:, None, :]
    return np.tril(products, -1) - np.triu(products, 1)


def test_the_other_sign_convention_of_the_mixed_variables_loses_an_order():
    found = order_of_expansion(expand(rs2(), 2, wrong_mixed), "general")
    assert found.order == 1
    assert [str(c) for c in found.violations] == ["E[1[2] · 2[1]] = 1/4, exact 0"]


def test_srkw2_is_refused_for_general_noise():
    with pytest.raises(ValueError, match="takes at most 1 noise"):
        algebraic_order(srkw2(), "general")


def test_unknown_kind_of_noise():
    with pytest.raises(ValueError, match="one of none, one, additive, general; got 'white'"):
        algebraic_order(midpoint(), "white")  # pyright: ignore[reportArgumentType]


def test_violations_name_the_tree_and_both_values():
    found = algebraic_order(midpoint(), "additive")
    assert found.violations[0] == Condition("0[1 1]", 2.0, pytest.approx(0.25), 0.5)
    assert found.violations[0].residual == pytest.approx(0.25)
    assert "weak order 1, noise: additive" in str(found)
    assert "order 2 is stopped by\n  E[0[1 1]] = 1/4, exact 1/2" in str(found)
    assert algebraic_order(heun(), "additive").violations == ()


def test_order_zero_without_the_stratonovich_correction():
    explicit_euler = dataclasses.replace(heun(), alpha=[1, 0], g1=[1, 0])
    found = algebraic_order(explicit_euler, "one")
    assert (found.order, found.violations[0].forest) == (0, "1[1]")
    assert algebraic_order(explicit_euler, "none").order == 1
    assert algebraic_order(explicit_euler, "additive").order == 1


def test_an_odd_expectation_of_rossler_stages_is_seen():
    # β2ᵀ(B2 e)² must vanish: weight 3/2, one node of noise 1 and two of noise 2.
    spoiled = dataclasses.replace(rs1(), B2=[[0] * 4, [1, 0, 0, 0], [-0.5, 0, 0, 0], [0] * 4])
    found = algebraic_order(spoiled, "general")
    assert found.order == 0
    assert "1[2 2]" in [c.forest for c in found.violations]


def test_implicit_trapezoidal_rule_has_weak_order_two_for_additive_noise():
    rule, weights = [[0, 0], [0.5, 0.5]], [0.5, 0.5]
    method = MeanSquareTableau(*[rule] * 6, *[weights] * 4)
    assert algebraic_order(method, "additive").order == 2
    assert algebraic_order(method, "one").order == 1


# An independent check: one step on an SDE in the plane against exp(hL)φ, without trees


def drift(y):
    return [y[1] + 0.3 * y[0] * y[1], -y[0] - 0.5 * y[0] * y[0] + 0.2 * y[1]]


def noise_1(y):
    return [0.4 + 0.3 * y[1] - 0.2 * y[0] * y[0], 0.5 * y[0]]


def noise_2(y):
    return [-0.3 * y[0] * y[1], 0.6 + 0.4 * y[0]]


def constant_1(y):
    return [0.4 + 0.0 * y[0], -0.7 + 0.0 * y[0]]


def constant_2(y):
    return [0.2 + 0.0 * y[0], 0.6 + 0.0 * y[0]]


def phi(y):
    return y[0] ** 3 - 2.0 * y[0] * y[1] ** 2 + y[1] + y[0] * y[0]


START = np.array([0.7, -0.4])


def taylor(noises, h):
    """φ + h Lφ + ½h² L²φ with L = v·∇ + ½ Σ_r (b_r·∇)²."""

    def along(field, function):
        return lambda y: jax.jvp(function, (y,), (jnp.stack(field(y)),))[1]

    def generator(function):
        def apply(y):
            second = sum(along(b, along(b, function))(y) for b in noises)
            return along(drift, function)(y) + 0.5 * second

        return apply

    y = jnp.asarray(START)
    once = generator(phi)
    return float(phi(y) + h * once(y) + h**2 / 2 * generator(once)(y))


def at(field, stages):
    return np.stack([np.stack(field(Y)) for Y in stages])


def three_points(m, h):
    points = [(-sqrt(3 * h), 1 / 6), (0.0, 2 / 3), (sqrt(3 * h), 1 / 6)]
    for outcome in product(points, repeat=m):
        yield np.array([x for x, _ in outcome]), np.prod([p for _, p in outcome])


def shared_stages_step(A, alpha, B, g, noises, h, I):
    """Stages shared by drift and noises; enough iterations for implicit ones to converge."""
    Y = np.tile(START, (len(alpha), 1))
    for _ in range(20):
        Y = (
            START
            + h * A @ at(drift, Y)
            + sum(i * B @ at(b, Y) for i, b in zip(I, noises, strict=True))
        )
    return (
        START
        + h * alpha @ at(drift, Y)
        + sum(i * g @ at(b, Y) for i, b in zip(I, noises, strict=True))
    )


def expected_shared(A, alpha, B, g):
    def expectation(noises, h):
        outcomes = three_points(len(noises), h)
        return sum(p * phi(shared_stages_step(A, alpha, B, g, noises, h, I)) for I, p in outcomes)

    return expectation


def expected_srkw2(noises, h):
    (b,), t = noises, srkw2()
    total = 0.0
    for (I,), p in three_points(1, h):
        Y0 = Y1 = np.tile(START, (4, 1))
        for _ in range(20):
            v, n = at(drift, Y0), at(b, Y1)
            Y0, Y1 = START + h * t.a0 @ v + I * t.b0 @ n, START + h * t.a1 @ v + I * t.b1 @ n
        total += p * phi(START + h * t.alpha @ at(drift, Y0) + I * t.beta @ at(b, Y1))
    return total


def rossler_step(t, noises, h, I, mixed):
    """Stage by stage from the definition, with I_kl given as a table."""
    m = len(noises)
    H0, Hk, V, B = [], [[] for _ in noises], [], [[] for _ in noises]
    for i in range(4):
        H0.append(
            START
            + h * sum(t.A0[i, j] * V[j] for j in range(i))
            + sum(I[l] * t.B0[i, j] * B[l][j] for l in range(m) for j in range(i))
        )
        for k in range(m):
            value = START + h * sum(t.A1[i, j] * V[j] for j in range(i))
            for l in range(m):
                matrix = t.B1 if l == k else t.B3
                value = value + I[l] * sum(matrix[i, j] * B[l][j] for j in range(i))
            Hk[k].append(value)
        V.append(np.stack(drift(H0[i])))
        for k in range(m):
            B[k].append(np.stack(noises[k](Hk[k][i])))
    new = START + h * sum(t.alpha[i] * V[i] for i in range(4))
    for k in range(m):
        for i in range(4):
            hat = START + sum(
                t.B2[i, j] * B[l][j] * mixed[k][l] / sqrt(h)
                for l in range(m)
                if l != k
                for j in range(i)
            )
            new = new + I[k] * t.beta1[i] * B[k][i]
            new = new + sqrt(h) * t.beta2[i] * np.stack(noises[k](hat))
    return new


def expected_rossler(tableau, right=True):
    def expectation(noises, h):
        total = 0.0
        for I, p in three_points(2, h):
            for coins in product([-sqrt(h), sqrt(h)], repeat=2):
                upper = -I[1] * coins[0] if right else -I[0] * coins[1]
                mixed = [[0.0, upper], [I[1] * coins[0], 0.0]]
                total += p / 4 * phi(rossler_step(tableau, noises, h, I, mixed))
        return total

    return expectation


_T = heun()
_D = dirk()
CASES = {
    "heun": (expected_shared(_T.A, _T.alpha, _T.B1, _T.g1), (noise_1, noise_2), 1),
    "heun additive": (expected_shared(_T.A, _T.alpha, _T.B1, _T.g1), (constant_1, constant_2), 2),
    "dirk": (expected_shared(_D.a, _D.alpha, _D.b, _D.beta), (noise_1, noise_2), 1),
    "dirk additive": (expected_shared(_D.a, _D.alpha, _D.b, _D.beta), (constant_1, constant_2), 1),
    "srkw2": (expected_srkw2, (noise_1,), 2),
    "rs1": (expected_rossler(rs1()), (noise_1, noise_2), 2),
    "rs2": (expected_rossler(rs2()), (noise_1, noise_2), 2),
    "rs2, other sign": (expected_rossler(rs2(), right=False), (noise_1, noise_2), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_local_error_on_a_plane_sde_has_the_order_that_the_trees_say(case):
    expectation, noises, order = CASES[case]
    errors = [abs(expectation(noises, h) - taylor(noises, h)) for h in (2**-13, 2**-14)]
    assert log2(errors[0] / errors[1]) == pytest.approx(order + 1, abs=0.1)


def test_conditions_of_order_two_for_one_noise_are_twenty():
    # 9 forests of four noise nodes, 9 of one drift and two noise nodes, 2 of two drift nodes.
    assert len(list(order_conditions(expand(midpoint(), 1), "one", 2))) == 20
