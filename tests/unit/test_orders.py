"""The parts of which measured orders are made: the fit, coupled paths, enumeration, the series."""

import ast
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.systems.kubo_system import kubo_energy, kubo_path
from dalembert.theory import enumeration, paths
from dalembert.theory.enumeration import enumerate_expectations, extrapolate, gaussian_nodes
from dalembert.theory.generator import Series, expectation_series
from dalembert.theory.orders import strong_order, weak_order
from dalembert.theory.paths import run_coupled
from dalembert.theory.slopes import Measured, StrongOrder, WeakOrder, estimate

KUBO = da.systems.damped_kubo()
PENDULUM = da.systems.pendulum()
START = (np.array([1.0]), np.array([0.5]))
DTS = 2.0 ** -np.arange(2, 8)


def momentum(q, p, params):
    return p[0]


def product_of_both(q, p, params):
    return q[0] * p[0]


# --- the fit ------------------------------------------------------------------------------------


def measured(errors, influence=None, floor=0.0, failed=None, dts=DTS):
    errors = np.asarray(errors, np.float64)
    if influence is None:
        influence = np.zeros((len(errors), 0))
    failed = [""] * len(errors) if failed is None else failed
    floors = {"the floor": np.broadcast_to(floor, errors.shape)}
    return Measured(dts, errors, influence, floors, failed, "the truth")


def fit(*args, confidence=0.95, lift=0, **options) -> StrongOrder:
    return estimate(StrongOrder, measured(*args, **options), "a method", confidence, lift)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("order", [0.5, 1.0, 2.0])
def test_a_power_has_its_exponent(order, sampled):
    influence = np.zeros((6, 10)) if sampled else None
    result = fit(3.0 * DTS**order, influence)
    assert result.order == pytest.approx(order, abs=1e-12)
    assert result.used.all() and not result.notes
    np.testing.assert_allclose(result.slopes, order)
    low, high = result.interval
    assert low < order < high < low + 0.1


def test_the_next_powers_are_fitted_where_nothing_was_sampled():
    errors = DTS**2 * (1 + 1.5 * DTS - DTS**2)
    assert fit(errors).order == pytest.approx(2.0, abs=0.01)
    straight = np.polyfit(np.log(DTS), np.log(errors), 1)[0]
    assert straight > 2.05


def test_coarse_points_that_bend_a_sampled_line_are_dropped():
    result = fit(DTS * (1 + 4 * DTS), np.zeros((6, 10)))
    assert list(result.used) == [False, False, False, True, True, True]
    assert result.interval[0] <= 1 <= result.interval[1]
    assert "dt = 0.25 dropped: not asymptotic" in result.notes[0]


def test_points_below_a_floor_or_with_failures_are_dropped():
    result = fit(DTS, floor=DTS[4], failed=["it fell", "", "", "", "", ""])
    assert list(result.used) == [False, True, True, True, False, False]
    assert result.notes[0] == "dt = 0.25 dropped: it fell"
    assert "not clearly above the floor" in result.notes[1]
    assert result.order == pytest.approx(1.0)


def test_errors_that_are_not_finite_are_dropped():
    result = fit([np.inf, np.nan, *DTS[2:]])
    assert list(result.used) == [False, False, True, True, True, True]
    assert "not finite" in result.notes[0]


def test_points_before_a_change_of_sign_are_dropped():
    result = fit([0.1, -0.01, *DTS[2:]])
    assert list(result.used) == [False, False, True, True, True, True]
    assert "changes its sign" in result.notes[0]


def test_fewer_than_three_points_give_no_order():
    result = fit(DTS, floor=DTS[2])
    assert np.isnan(result.order) and np.isnan(result.interval).all()
    assert "2 of at least 3 points" in result.notes[-1]
    assert str(result).startswith("Strong order not found: a method")


def test_errors_of_single_steps_are_lifted():
    result = fit(DTS**3, lift=1)
    assert result.order == pytest.approx(2.0)
    assert np.mean(result.interval) == pytest.approx(2.0)
    np.testing.assert_allclose(result.slopes, 3.0)
    assert "one more than the order" in result.notes[0]


def test_the_interval_covers_the_order_of_correlated_samples():
    """300 sets of 100 paths whose errors share a factor; at least 95 % − 3.5 s.e. must cover.

    The interval without sampling, for the same errors, covers far fewer.
    """
    rng = np.random.default_rng(0)
    covered = without = 0
    for _ in range(300):
        shared = rng.standard_normal((1, 100))
        samples = (DTS[:, None] * (shared + rng.standard_normal((6, 100)))) ** 2
        mean = np.mean(samples, axis=1, keepdims=True)
        errors = np.sqrt(mean[:, 0])
        low, high = fit(errors, (samples / mean - 1) / 2).interval
        covered += low <= 1 <= high
        low, high = fit(errors, np.zeros((6, 100))).interval
        without += low <= 1 <= high
    assert covered / 300 > 0.95 - 3.5 * np.sqrt(0.05 * 0.95 / 300)
    assert without < covered


def test_extrapolation_is_exact_for_polynomials_and_doubts_the_rest():
    dts = [0.1, 0.4, 0.2, 0.3]
    limit, doubt = extrapolate(dts, [5 + h - 3 * h**2 + h**3 for h in dts])
    assert limit == pytest.approx(5)
    assert doubt > 1e-3
    limit, doubt = extrapolate(dts, [np.exp(h) for h in dts])
    assert abs(limit - 1) < doubt < 1e-2


# --- common paths -------------------------------------------------------------------------------


RUNS = [(da.e1(), 4), (da.e1(), 8), (da.heun(), 16)]


@pytest.fixture(scope="module")
def coupled():
    return run_coupled(PENDULUM, RUNS, START, 1.0, 16, paths=3, seed=5)


def test_coupled_runs_are_steps_on_coarsened_paths(coupled):
    all_ends, W = coupled
    fine = [da.brownian_path(5, path, 1 / 16, 16, 1) for path in range(3)]
    np.testing.assert_allclose(W, [np.sum(path.dW, axis=0) for path in fine], atol=1e-14)
    for (method, steps), ends in zip(RUNS, all_ends, strict=True):
        assert ends.ok.all()
        for path in range(3):
            coarse = da.coarsen(fine[path], 1 / 16, 16 // steps)
            q, p = START
            for dW, dZ in zip(coarse.dW, coarse.dZ, strict=True):
                q, p, _ = da.step(PENDULUM, method, q, p, 1 / steps, da.Increments(dW, dZ))
            np.testing.assert_allclose(ends.z[path], np.concatenate([q, p]), rtol=1e-13)


@pytest.mark.slow
def test_blocks_of_paths_change_nothing(coupled, monkeypatch):
    monkeypatch.setattr(paths, "BLOCK", 32)
    ends, W = run_coupled(PENDULUM, RUNS, START, 1.0, 16, paths=3, seed=5)
    np.testing.assert_allclose(ends[1].z, coupled[0][1].z, rtol=1e-14)
    np.testing.assert_array_equal(W, coupled[1])


@pytest.mark.slow
def test_a_path_that_blows_up_is_reported():
    stiff = da.systems.van_der_pol(nu=200.0)
    with pytest.warns(UserWarning, match=r"no order: heun .*steps=\(128, 256, 512\)"):
        result = strong_order(stiff, da.heun(), START, t_end=1.0, steps=(32, 64, 128), paths=20)
    assert np.isnan(result.order)
    assert not result.used.any()
    assert re.search(r"dropped: it did not converge on \d+ of 20 paths", str(result))


# --- enumeration --------------------------------------------------------------------------------


def test_enumeration_is_the_weighted_sum_over_all_outcomes(monkeypatch):
    monkeypatch.setattr(enumeration, "CHUNK", 5)
    increments, weights = da.enumerate_three_point(1, 0.1)
    expected = 0.0
    for i in range(3):
        q, p, _ = da.step(PENDULUM, da.rs1(), *START, 0.1, increments.dW[i])
        for j in range(3):
            last = da.step(PENDULUM, da.rs1(), q, p, 0.1, increments.dW[j])
            expected += weights[i] * weights[j] * float(last[1][0])
    found, solved = enumerate_expectations(
        PENDULUM, da.rs1(), {"p": momentum}, START, 0.1, 2, da.enumerate_three_point
    )
    assert solved
    assert found["p"] == pytest.approx(expected, rel=1e-14)


# --- the generator series -----------------------------------------------------------------------


@pytest.mark.slow
def test_powers_of_the_generator_are_nested_derivatives():
    system = da.systems.two_noise()

    def field(i):
        def at(z):
            if i is None:
                return jnp.concatenate(system.drift(z[:1], z[1:]))
            noise_q, noise_p = system.diffusion(z[:1], z[1:])
            return jnp.concatenate([noise_q[i], noise_p[i]])

        return at

    def along(v, g):
        return lambda z: jax.jvp(g, (z,), (v(z),))[1]

    def generator(g):
        drift = along(field(None), g)
        noises = [along(field(i), along(field(i), g)) for i in range(2)]
        return lambda z: drift(z) + (noises[0](z) + noises[1](z)) / 2

    z = jnp.array([1.0, 0.5])
    series = expectation_series(system, {"H": system.H}, START, terms=3)["H"]

    def g(z):
        return system.H(z[:1], z[1:], system.params)

    for power in series.powers[:3]:
        assert power == pytest.approx(float(jax.jit(g)(z)), rel=1e-10)
        g = generator(g)


def test_the_series_is_the_exact_mean_energy_of_the_kubo_oscillator():
    system = da.systems.damped_kubo(nu=0.5)
    series = expectation_series(system, {"H": system.H}, START, terms=5)["H"]
    value, doubt = series.at(0.2)
    exact = float(kubo_energy(0.2, 1.0, 0.5, nu=0.5))
    assert abs(value - exact) < doubt < 1e-4
    assert series.at(0.0) == (pytest.approx(0.625), 0.0)
    assert Series(np.array([1.0, 1.0, 1.0, 1.0, 1.0])).at(100.0)[1] == np.inf


@pytest.mark.slow
def test_the_series_in_two_degrees_of_freedom_keeps_the_invariant():
    planar = da.systems.planar()
    start = (np.array([1.0, 0.5]), np.array([-0.3, 0.7]))
    J = planar.invariants["angular_momentum"]
    powers = expectation_series(planar, {"J": J}, start, terms=3)["J"].powers
    assert powers[0] == pytest.approx(0.85)
    np.testing.assert_allclose(powers[1:], 0, atol=1e-9)


def test_a_system_that_is_too_large_or_not_smooth_is_refused():
    with pytest.raises(ValueError, match=r"dim = 20, too many: give the exact value"):
        langevin = da.systems.langevin(dim=20)
        expectation_series(langevin, {"H": langevin.H}, (np.ones(20), np.ones(20)))
    rough = da.System(H=lambda q, p: p[0] ** 2 / 2 + jnp.sort(q)[0], h=[lambda q, p: q[0]], dim=1)
    with pytest.raises(NotImplementedError, match=r"reference method such as da.rs1\(\)"):
        expectation_series(rough, {"H": rough.H}, START)


# --- the public functions -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return strong_order(KUBO, da.heun(), START, t_end=1.0, exact=kubo_path, paths=20)


def test_a_strong_order_says_what_it_is(small):
    text = str(small)
    assert re.match(
        r"Strong order \d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\] \(95% confidence\): heun on", text
    )
    assert "against the exact solution" in text
    assert len(re.findall(r" (yes|no)$", text, re.MULTILINE)) == 6
    assert len(small.dts) == len(small.errors) == len(small.stderrs) == len(small.used) == 6
    assert np.all(small.stderrs > 0)


def test_step_sizes_may_be_given_as_such(small):
    options = {"t_end": 1.0, "exact": kubo_path, "paths": 20}
    by_size = strong_order(KUBO, da.heun(), START, dts=1 / np.array([32, 16, 64]), **options)
    np.testing.assert_allclose(by_size.dts, small.dts[:3])
    np.testing.assert_allclose(by_size.dts, [1 / 16, 1 / 32, 1 / 64])


def test_float64_without_the_global_switch(small):
    def numbers():
        strong = strong_order(KUBO, da.heun(), START, exact=kubo_path, t_end=1.0, paths=20)
        weak = weak_order(KUBO, da.rs1(), START, t_end=0.1, steps=(1, 2, 3), exact=0.6)
        series = expectation_series(KUBO, {"H": KUBO.H}, START, terms=3)["H"]
        return strong.errors, weak.errors, series.powers

    jax.config.update("jax_enable_x64", False)
    off = numbers()
    jax.config.update("jax_enable_x64", True)
    for a, b in zip(off, numbers(), strict=True):
        assert a.dtype == np.float64
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(off[0], small.errors, rtol=1e-9)


def test_several_observables_give_one_order_each():
    options = {"t_end": 0.1, "steps": (1, 2, 3, 4)}
    observe, exact = {"p": momentum, "H": PENDULUM.H}, {"H": -0.5, "p": 0.4}
    results = weak_order(PENDULUM, da.rs1(), START, observe=observe, exact=exact, **options)
    assert set(results) == {"p", "H"}
    assert all(isinstance(result, WeakOrder) for result in results.values())
    assert "E[H] of rs1 on pendulum, t = 0.1, all outcomes" in str(results["H"])
    assert "against the exact value -0.5" in str(results["H"])
    single = weak_order(PENDULUM, da.rs1(), START, exact=-0.5, **options)
    assert isinstance(single, WeakOrder)
    np.testing.assert_array_equal(single.errors, results["H"].errors)


def test_exact_values_on_common_paths_need_no_reference():
    exact = {"H": float(kubo_energy(0.5, 1.0, 0.5))}
    result = weak_order(
        KUBO, da.heun(), START, t_end=0.5, steps=(1, 2, 4), exact=exact, observe={"H": KUBO.H},
        paths=100,
    )["H"]  # fmt: skip
    assert "the exact value" in result.reference
    assert np.all(result.stderrs > 0)


def test_pictures(small):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    axes = small.plot()
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_legend_handles_labels()[1][0] == f"heun: strong order {small.order:.2f}"
    _, other = pyplot.subplots()
    assert fit(DTS, floor=DTS[2]).plot(other) is other
    assert fit(np.zeros(6), floor=0.1).plot().get_xlabel() == "dt"
    pyplot.close("all")


def test_a_picture_without_matplotlib_says_what_to_install(small, monkeypatch):
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(ImportError, match="this needs matplotlib: install it with"):
        small.plot()


SRKW2 = da.srkw2()
REFUSED_STRONG = [
    ({"t_end": -1.0}, ValueError, "t_end must be a positive number"),
    ({"confidence": 95}, ValueError, "confidence must lie between 0 and 1"),
    ({"paths": 1}, ValueError, "paths must be an integer of at least 2"),
    ({"refine": 3}, ValueError, "refine must be an even integer, not 3"),
    ({"steps": (8, 16)}, ValueError, "at least 3 step sizes, there are 2"),
    ({"steps": (8, 16, 32.0)}, ValueError, "positive integers, not 32.0"),
    ({"dts": (0.5, 0.3, 0.25)}, ValueError, r"dt = 0.3 does not divide t_end = 1.0"),
    ({"dts": (0.5, 0.25, 0.125), "steps": (1, 2, 4)}, ValueError, "either dts or steps"),
    ({"exact": kubo_path, "reference": da.e1()}, ValueError, "either exact or reference"),
    ({"method": SRKW2}, ValueError, "no strong order: use da.weak_order"),
    ({"reference": SRKW2}, ValueError, "it must be driven by dW"),
    ({"method": da.midpoint}, TypeError, "Call the function"),
    ({"initial": (START[0],)}, TypeError, r"a pair \(q0, p0\)"),
    ({"initial": (np.ones(2), np.ones(2))}, ValueError, r"q0 must have shape \(1,\)"),
    ({"exact": lambda t, W, q, p: (W, jnp.ones(2))}, ValueError, "exact gives 3 numbers"),
]


@pytest.mark.parametrize(("change", "error", "message"), REFUSED_STRONG)
def test_what_strong_order_refuses(change, error, message):
    options = {"method": da.heun(), "initial": START, "t_end": 1.0, "paths": 2} | change
    with pytest.raises(error, match=message):
        strong_order(KUBO, options.pop("method"), options.pop("initial"), **options)


def no_dZ(noises, dt):
    return da.Increments(np.zeros((1, noises))), np.ones(1)


REFUSED_WEAK = [
    ({"steps": (1, 2, 20)}, ValueError, "20 steps with 3 outcomes each have 3.5e"),
    ({"observe": lambda q, p, params: p}, ValueError, "must give one number"),
    ({"observe": {"p": momentum}, "exact": {"q": 1.0}}, ValueError, "one value for each of the"),
    ({"local": True, "reference": da.rs1()}, ValueError, "leave out exact and reference"),
    ({"method": da.heun(), "local": True, "paths": 10}, ValueError, "leave out paths"),
    ({"method": da.e1(), "outcomes": no_dZ}, ValueError, "e1 needs the increments dZ"),
]


@pytest.mark.parametrize(("change", "error", "message"), REFUSED_WEAK)
def test_what_weak_order_refuses(change, error, message):
    options = {"method": da.rs2(), "t_end": 1.0} | change
    with pytest.raises(error, match=message):
        weak_order(KUBO, options.pop("method"), START, **options)


LANGEVIN = da.systems.langevin()
USUAL = [
    (order, name)
    for name, make in da.METHODS.items()
    if "constraints" not in make().requires
    for order in ("strong", "weak")
    if order == "weak" or make().convergence == "mean-square"
]


def instruction(result):
    """What a result without an order says to change, as arguments of the next call."""
    shorter = re.search(r"take t_end=([\d.]+)( and local=True)?, where the order", result.remedy)
    more = re.search(r"(steps|paths|refine)=([\d_]+|\([^)]*\))", result.remedy)
    if shorter:
        return {"t_end": float(shorter[1])} | ({"local": True} if shorter[2] else {})
    if "another observable" in result.remedy:
        return {"t_end": 0.25, "observe": product_of_both}
    return {"t_end": 1.0, more[1]: ast.literal_eval(more[2])}


@pytest.mark.slow
@pytest.mark.parametrize(("order", "name"), USUAL)
def test_defaults_give_an_order_or_say_what_to_change(order, name):
    method = da.METHODS[name]()
    system = LANGEVIN if method.requires else PENDULUM
    measure = {"strong": strong_order, "weak": weak_order}[order]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = measure(system, method, START, t_end=1.0)
    if np.isfinite(result.order):
        assert not told
        return
    assert len(told) == 1 and told[0].filename == __file__
    assert str(told[0].message).startswith("no order: ") and result.remedy in str(result)
    again = measure(system, method, START, **instruction(result))
    assert np.isfinite(again.order), again


def test_gaussian_nodes_have_the_moments_of_increments():
    increments, weights = gaussian_nodes(2, 0.3, with_dZ=True)
    assert len(weights) == 64 and weights.sum() == pytest.approx(1)
    W, Z = increments.dW[:, 0], increments.dZ[:, 0]
    for power, moment in ((1, 0.0), (2, 0.3), (4, 3 * 0.3**2), (6, 15 * 0.3**3), (7, 0.0)):
        assert weights @ W**power == pytest.approx(moment, abs=1e-15)
    assert weights @ W**8 != pytest.approx(105 * 0.3**4, rel=0.01)
    assert weights @ (W * Z) == pytest.approx(0.3**2 / 2)
    assert weights @ Z**2 == pytest.approx(0.3**3 / 3)
    assert weights @ (W * increments.dW[:, 1]) == pytest.approx(0, abs=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bracket_gauss", "e1"])
def test_methods_that_read_dZ_are_measured_without_sampling(name):
    """Weak order two of brackets with one multiplicative noise; E1 has one."""
    method = da.METHODS[name]()
    noisy = da.systems.pendulum(sigma=1.0, kappa=0.5)
    found = weak_order(noisy, method, START, t_end=0.25, observe=product_of_both, local=True)
    low, high = found.interval
    claimed = da.certify(method).weak_order["one"]
    assert low <= claimed <= high and high - low < 0.2, found


@pytest.mark.slow
def test_too_few_paths_are_told_how_many_are_needed():
    with pytest.warns(UserWarning, match="more paths, paths=") as told:
        result = weak_order(PENDULUM, da.heun(), START, t_end=0.5, steps=(2, 4, 8), paths=50)
    assert np.isnan(result.order) and len(told) == 1
    assert instruction(result)["paths"] > 50


def test_many_noises_are_measured_by_single_steps_only():
    langevin = da.systems.langevin(dim=4)
    with pytest.raises(ValueError, match="use local=True"):
        weak_order(langevin, da.rs1(), (np.ones(4), np.ones(4)), t_end=0.1)
