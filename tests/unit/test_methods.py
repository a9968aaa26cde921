"""Tableaus: exact coefficients, every refusal, identity, printing; and the named methods."""

import dataclasses
import inspect
import json
from fractions import Fraction as Fr
from math import sqrt

import jax
import numpy as np
import pytest

from dalembert.methods import (
    METHODS,
    ExplicitTableau,
    ExplicitWeakTableau,
    MeanSquareTableau,
    Method,
    ProjectedMethod,
    WeakTableau,
    dirk,
    e1,
    heun,
    midpoint,
    r2,
    rs1,
    rs2,
    srkw1,
    srkw2,
    stormer_verlet,
)
from dalembert.methods.coefficients import SYMBOLS, Tableau, number_text
from dalembert.theory.elementary_weights import expand
from dalembert.theory.order_conditions import order_conditions

ALL = [make() for make in METHODS.values()]
by_name = pytest.mark.parametrize("method", ALL, ids=list(METHODS))
TABLEAUS = [method for method in ALL if isinstance(method, Tableau)]
by_name_of_tableau = pytest.mark.parametrize("method", TABLEAUS, ids=lambda method: method.name)
ROOT_3 = sqrt(3)


def same(array, rows):
    np.testing.assert_array_equal(array, np.array(rows, dtype=np.float64))


def close(array, rows):
    np.testing.assert_allclose(array, np.array(rows, dtype=np.float64), rtol=0, atol=1e-16)


# Names


def test_registry_has_the_methods_in_order():
    names = """
        midpoint stormer_verlet dirk srkw1 srkw2 heun r2 e1 rs1 rs2
        additive_midpoint additive_dirk additive_gauss bracket_gauss bracket_midpoint
        ninomiya_victoir baoab aboba obabo quasi_symplectic
        rattle weak_rattle projected_midpoint g_baoab
    """
    assert list(METHODS) == names.split()
    assert [make.__name__ for make in METHODS.values()] == names.split()


WEAK = ("srkw1", "srkw2", "rs1", "rs2", "ninomiya_victoir", "quasi_symplectic", "weak_rattle")


@by_name
def test_every_method_says_what_it_is(method):
    assert isinstance(method, Method)
    assert method.name.startswith(tuple(METHODS))
    assert method.convergence == ("weak" if method.name.startswith(WEAK) else "mean-square")


@by_name_of_tableau
def test_tableaus_have_a_weight_for_every_stage(method):
    assert method.stages == len(method.alpha)


@pytest.mark.parametrize("make", METHODS.values(), ids=list(METHODS))
def test_docstrings_follow_one_grammar(make):
    words = ["Equations", "Stages:", "Update:", "Keeps:", "Order:", "Cost:", "When to use:"]
    doc = inspect.getdoc(make) or ""
    places = [doc.index(f"\n{word}") for word in [*words, "Reference:"]]
    assert places == sorted(places)


def test_parameters_are_part_of_the_name():
    assert dirk(0.3).name == "dirk(0.3)"
    assert srkw1().name == "srkw1(0.5)"
    assert dirk(Fr(1, 4)) == dirk(0.25)


# Coefficients, typed in again from the paper and from the tables of comparison methods


def test_midpoint_coefficients():
    m = midpoint()
    for matrix in (m.a, m.a_bar, m.a_hat, m.b, m.b_bar, m.b_hat):
        same(matrix, [[0.5]])
    for weights in (m.alpha, m.alpha_hat, m.beta, m.beta_hat):
        same(weights, [1.0])


def test_stormer_verlet_coefficients():
    m = stormer_verlet()
    for matrix in (m.a, m.b):
        same(matrix, [[0, 0], [0.5, 0.5]])
    for matrix in (m.a_bar, m.a_hat, m.b_bar, m.b_hat):
        same(matrix, [[0.5, 0], [0.5, 0]])
    for weights in (m.alpha, m.alpha_hat, m.beta, m.beta_hat):
        same(weights, [0.5, 0.5])


@pytest.mark.parametrize("lam", [0.5, 0.3, -1.0, 2.5])
def test_dirk_coefficients(lam):
    m = dirk(lam)
    for matrix in (m.a, m.a_bar, m.a_hat, m.b, m.b_bar, m.b_hat):
        same(matrix, [[lam / 2, 0], [lam, (1 - lam) / 2]])
    for weights in (m.alpha, m.alpha_hat, m.beta, m.beta_hat):
        same(weights, [lam, 1 - lam])


def test_srkw1_coefficients():
    m = srkw1(0.2)
    same(m.a0, [[0.5]])
    same(m.b0, [[0.2]])
    same(m.a1, [[0.8]])
    same(m.b1, [[0.5]])
    same(m.b3, [[0.5]])
    same(m.alpha, [1.0])
    same(m.beta, [1.0])
    assert m.max_noises is None


def test_srkw2_coefficients():
    m = srkw2()
    same(
        m.a0,
        [[0.125, 0, 0, 0], [0.25, 0.125, 0, 0], [0.25, 0.25, 0.125, 0], [0.25, 0.25, 0.25, 0.125]],
    )
    close(
        m.b0,
        [
            [5 / 6 - ROOT_3 / 3, -0.5, 0, 0],
            [-1 / 6 + ROOT_3 / 3, 0.5, 0, 0],
            [0.5, 0.5, 0, 0],
            [-1 / 6, 0.5, 0, 0],
        ],
    )
    first = [-1 / 6 + ROOT_3 / 6, 1 / 3 - ROOT_3 / 6, 0, 1 / 3]
    close(m.a1, [first, [0.5, 0, 0, 0], [0] * 4, [0] * 4])
    close(
        m.b1,
        [
            [0.25, 0.25 - ROOT_3 / 6, 0, 0],
            [0.25 + ROOT_3 / 6, 0.25, 0, 0],
            [0] * 4,
            [0, -0.5, 0, 0],
        ],
    )
    same(m.b3, np.zeros((4, 4)))
    same(m.alpha, [0.25] * 4)
    same(m.beta, [0.5, 0.5, 0, 0])
    assert m.max_noises == 1


@pytest.mark.parametrize(
    ("method", "c", "weights"), [(heun(), 1, [0.5, 0.5]), (r2(), 2 / 3, [0.25, 0.75])]
)
def test_two_stage_explicit_coefficients(method, c, weights):
    for matrix in (method.A, method.B1):
        same(matrix, [[0, 0], [c, 0]])
    for vector in (method.alpha, method.g1):
        same(vector, weights)
    same(method.B2, np.zeros((2, 2)))
    same(method.g2, [0, 0])


def test_e1_coefficients():
    m = e1()
    same(m.A, [[0] * 4, [2 / 3, 0, 0, 0], [3 / 2, -1 / 3, 0, 0], [7 / 6, 0, 0, 0]])
    same(m.alpha, [1 / 4, 3 / 4, -3 / 4, 3 / 4])
    same(m.B1, [[0] * 4, [2 / 3, 0, 0, 0], [1 / 2, 1 / 6, 0, 0], [-1 / 2, 0, 1 / 2, 0]])
    same(m.g1, [-1 / 2, 3 / 2, -3 / 4, 3 / 4])
    same(m.B2, [[0] * 4, [0] * 4, [-2 / 3, 0, 0, 0], [1 / 6, 1 / 2, 0, 0]])
    same(m.g2, [3 / 2, -3 / 2, 0, 0])


@pytest.mark.parametrize("method", [rs1(), rs2()], ids=["rs1", "rs2"])
def test_shared_rossler_coefficients(method):
    m, zero, row = method, [0] * 4, [1 / 4, 3 / 4, 0, 0]
    same(m.A1, [zero, zero, [1, 0, 0, 0], [1, 0, 0, 0]])
    same(m.A2, np.zeros((4, 4)))
    same(m.B0, [zero, zero, row, zero])
    same(m.B1, [zero, [2 / 3, 0, 0, 0], [1 / 12, 1 / 4, 0, 0], [-5 / 4, 1 / 4, 2, 0]])
    same(m.B2, [zero, [1, 0, 0, 0], [-1, 0, 0, 0], zero])
    same(m.B3, [zero, zero, row, row])
    same(m.beta1, [1 / 8, 3 / 8, 3 / 8, 1 / 8])
    same(m.beta2, [0, -1 / 4, 1 / 4, 0])


def test_drift_coefficients_of_rs1_and_rs2():
    zero = [0] * 4
    same(rs1().A0, [zero, zero, [1, 0, 0, 0], zero])
    same(rs1().alpha, [0, 0, 1 / 2, 1 / 2])
    same(rs2().A0, [zero, [2 / 3, 0, 0, 0], [1 / 6, 1 / 2, 0, 0], zero])
    same(rs2().alpha, [1 / 4, 1 / 4, 1 / 2, 0])


def expectations(method):
    expansion = expand(method, 2)
    return [c.method for order in (1, 2) for c in order_conditions(expansion, "general", order)]


def test_dirk_reduces_to_midpoint_at_both_ends():
    expected = expectations(midpoint())
    for lam in (0, 1):
        np.testing.assert_allclose(expectations(dirk(lam)), expected, rtol=0, atol=1e-15)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(expectations(dirk(0.5)), expected, rtol=0, atol=1e-3)


# What a step needs


def test_needs():
    for method in (midpoint(), stormer_verlet(), dirk(), srkw1(), srkw2(), heun(), r2()):
        assert method.needs(1) == method.needs(3) == {"dW"}
    assert e1().needs(1) == e1().needs(2) == {"dW", "dZ"}
    assert rs1().needs(1) == {"dW"}
    assert rs1().needs(2) == rs2().needs(3) == {"dW", "mixed"}


def test_needs_dZ_if_any_coefficient_does():
    only_stages = dataclasses.replace(heun(), B2=[[0, 0], [0.1, 0]])
    only_update = dataclasses.replace(heun(), g2=[0.1, -0.1])
    assert only_stages.needs(1) == only_update.needs(1) == {"dW", "dZ"}


def test_srkw2_refuses_two_noises_and_says_why():
    srkw2().check_noises(0)
    srkw2().check_noises(1)
    with pytest.raises(
        ValueError, match=r"srkw2 takes at most 1 noise.*has 2.*b3 = 0.*condition 4"
    ):
        srkw2().check_noises(2)
    with pytest.raises(ValueError, match=r"Use srkw1\(\)"):
        srkw2().check_noises(5)


def test_declared_limit_without_zero_b3():
    limited = dataclasses.replace(srkw1(), max_noises=2)
    limited.check_noises(2)
    with pytest.raises(ValueError, match="declared with max_noises=2"):
        limited.check_noises(3)


@by_name
def test_negative_number_of_noises_is_refused(method):
    with pytest.raises(ValueError, match="cannot be negative, got -1"):
        method.check_noises(-1)


# Refusals


def ones(**changes):
    arrays = {key: [[0.5]] for key in ("a", "a_bar", "a_hat", "b", "b_bar", "b_hat")}
    arrays |= {key: [1.0] for key in ("alpha", "alpha_hat", "beta", "beta_hat")}
    return MeanSquareTableau(**(arrays | changes), name="mine")


def test_wrong_shapes_name_the_array_and_the_shape():
    with pytest.raises(
        ValueError, match=r"'mine'.*s = 1 stages; b_hat has shape \(1,\), needed \(1, 1\)"
    ):
        ones(b_hat=[0.5])
    with pytest.raises(ValueError, match=r"a has shape \(2, 2\), needed \(1, 1\)"):
        ones(a=[[0.5, 0], [0, 0.5]])
    with pytest.raises(
        ValueError, match=r"a_bar has shape.*; beta has shape \(2,\), needed \(1,\)"
    ):
        ones(beta=[0.5, 0.5], a_bar=0.5)


@pytest.mark.parametrize("alpha", [1.0, [[1.0]], []])
def test_alpha_sets_the_number_of_stages(alpha):
    with pytest.raises(ValueError, match=r"alpha must have shape \(s,\) with s >= 1 stages, got"):
        ones(alpha=alpha)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_entries_that_are_not_finite(bad):
    with pytest.raises(ValueError, match="entries that are not finite in a_hat, beta"):
        ones(a_hat=[[bad]], beta=[bad])
    with pytest.raises(ValueError, match="not finite"):
        dirk(bad)


@pytest.mark.parametrize("bad", [[[1j]], [["x"]], [[0.5], [0.5, 0.5]]])
def test_entries_that_are_not_real_numbers(bad):
    with pytest.raises(TypeError, match="a must be a rectangular array of real numbers"):
        ones(a=bad)


def test_traced_entries_are_refused():
    with pytest.raises(TypeError, match="known when the tableau is built"):
        jax.jit(lambda x: ones(a=x).a.sum())(np.array([[0.5]]))


@pytest.mark.parametrize("family", [dirk, srkw1])
@pytest.mark.parametrize("bad", ["x", "0.5", None, 1j])
def test_parameters_that_are_not_real_numbers(family, bad):
    with pytest.raises(TypeError, match=r"lam must be a real number .* such as 0\.5, not "):
        family(bad)


def test_every_failing_sum_is_listed_with_its_value():
    with pytest.raises(ValueError) as caught:
        ones(alpha_hat=[0.75], beta=[2.0])
    text = str(caught.value)
    assert "MeanSquareTableau 'mine' is not consistent" in text
    assert "sum of alpha_hat = 0.75, needed 1; sum of beta = 2, needed 1" in text
    assert "alpha =" not in text


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        (srkw1(), {"alpha": [0.5], "beta": [0.25]}, "alpha = 0.5, needed 1; sum of beta = 0.25"),
        (heun(), {"g1": [0.5, 0.25]}, "sum of g1 = 0.75, needed 1"),
        (heun(), {"g2": [0.5, 0.25]}, "sum of g2 = 0.75, needed 0"),
        (rs1(), {"beta1": [0.25, 0, 0, 0]}, "sum of beta1 = 0.25, needed 1"),
        (rs1(), {"beta2": [0.25, 0, 0, 0]}, "sum of beta2 = 0.25, needed 0"),
        (rs2(), {"alpha": [0.5, 0, 0, 0]}, "sum of alpha = 0.5, needed 1"),
    ],
)
def test_sums_of_the_other_families(method, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(method, **changes)


def test_half_sums_are_not_refused():
    assert ones(b=[[0.9]]).b[0, 0] == 0.9


@pytest.mark.parametrize("key", ["A", "B1", "B2"])
def test_explicit_means_strictly_lower_triangular(key):
    with pytest.raises(ValueError, match=f"strictly lower triangular; .* in {key}. Implicit"):
        dataclasses.replace(heun(), **{key: [[0, 0], [0, 0.1]]})


@pytest.mark.parametrize("key", ["A0", "A1", "A2", "B0", "B1", "B2", "B3"])
def test_rossler_means_strictly_lower_triangular(key):
    with pytest.raises(ValueError, match=f"diagonal in {key}"):
        dataclasses.replace(rs1(), **{key: np.eye(4)})


@pytest.mark.parametrize("limit", [0, -1, 1.5, "one"])
def test_max_noises_must_be_a_positive_int(limit):
    with pytest.raises(ValueError, match="max_noises must be None or a positive int, got"):
        dataclasses.replace(srkw1(), max_noises=limit)


# Identity


@by_name
def test_equal_methods_are_equal_and_hash_alike(method):
    twin = dataclasses.replace(method)
    assert twin is not method
    assert twin == method
    assert hash(twin) == hash(method)
    assert {method: "found"}[twin] == "found"
    assert method != dataclasses.replace(method, name="another")


def test_all_methods_differ():
    assert len({*ALL}) == len(ALL)
    assert dirk(0.5) != dirk(0.25)
    assert midpoint() != "midpoint"


def test_any_coefficient_counts():
    other = dataclasses.replace(midpoint(), b_hat=[[np.nextafter(0.5, 1)]])
    assert other != midpoint()
    assert dataclasses.replace(srkw2(), max_noises=None) != srkw2()


def test_the_sign_of_zero_does_not_count():
    negative = dataclasses.replace(heun(), A=[[-0.0, 0], [1, -0.0]])
    assert negative == heun()
    assert hash(negative) == hash(heun())


@by_name_of_tableau
def test_coefficients_are_immutable_float64(method):
    for key, array in method.coefficients.items():
        assert array.dtype == np.float64
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(method, key, array)


def test_the_users_array_stays_writable_and_apart():
    mine = np.array([[0.5]])
    method = ones(a=mine)
    mine[0, 0] = 7.0
    assert method.a[0, 0] == 0.5


def test_a_method_can_be_a_static_argument():
    traces = []

    def double(method, x):
        traces.append(method.name)
        return x * 2

    compiled = jax.jit(double, static_argnums=0)
    for make in (midpoint, midpoint, heun):
        compiled(make(), 1.0)
    assert traces == ["midpoint", "heun"]


# Words


@by_name
def test_to_dict_survives_json(method):
    written = json.loads(json.dumps(method.to_dict()))
    assert written["name"] == method.name
    assert written["family"] == method.family
    assert written["convergence"] == method.convergence
    known = {field.name for field in dataclasses.fields(method)}
    fields = {key: value for key, value in written.items() if key in known}
    if isinstance(method, ProjectedMethod):
        assert fields.pop("inner") == json.loads(json.dumps(method.inner.to_dict()))
        fields["inner"] = method.inner
    assert type(method)(**fields, **written.get("coefficients", {})) == method


@by_name_of_tableau
def test_str_shows_every_array(method):
    text = str(method)
    stages = "1 stage" if method.stages == 1 else f"{method.stages} stages"
    assert text.splitlines()[0] == f"{method.name}: {method.family}, {stages}"
    for key, array in method.coefficients.items():
        assert SYMBOLS.get(key, key) in text
        for x in array.flat:
            assert number_text(float(x)) in text


def test_str_of_stormer_verlet():
    assert str(stormer_verlet()).splitlines()[2:7] == [
        "  a over α | ā over α | â over α̂",
        "    0   0  | 1/2   0  | 1/2   0",
        "  1/2 1/2  | 1/2   0  | 1/2   0",
        "  -------- | -------- | --------",
        "  1/2 1/2  | 1/2 1/2  | 1/2 1/2",
    ]


def test_str_of_srkw2_has_roots_as_decimals_and_the_limit():
    assert "0.255983" in str(srkw2())
    assert "noises: at most 1" in str(srkw2())
    assert "noises" not in str(srkw1())


def test_repr_is_short():
    assert repr(dirk()) == "MeanSquareTableau(name='dirk(0.5)', stages=2)"


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.0, "0"), (1 / 12, "1/12"), (-5 / 4, "-5/4"), (1 - 0.7, "3/10"), (0.123456789, "0.123457")],
)
def test_numbers_are_fractions_where_recognisable(x, text):
    assert number_text(x) == text


def test_own_tableaus_of_every_family():
    zero = [[0.0]]
    mine = ones()
    assert (mine.stages, mine.name) == (1, "mine")
    assert WeakTableau([[0.5]], [[0.5]], [[0.5]], [[0.5]], [[0.5]], [1], [1]).name
    assert ExplicitTableau(zero, [1], zero, [1], zero, [0]).needs(1) == {"dW"}
    euler = ExplicitWeakTableau(*[zero] * 7, [1], [1], [0])
    assert euler.needs(2) == {"dW"}
