"""Ensembles in memory: contract, statistics, failures, reproducibility, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import settings as engine
from dalembert.statistics.mean import SampleMean, merged_means
from dalembert.systems.kubo_system import kubo_energy

KUBO = da.systems.damped_kubo()
START = (np.array([2.0]), np.array([0.0]))


def run(method=None, initial=START, system=KUBO, **options):
    settings = {"dt": 0.25, "t_end": 5.0, "paths": 300, "save_every": 5} | options
    return da.simulate(system, method or da.midpoint(), initial, **settings)


def test_contract():
    result = run(seed=3)
    assert result.t.tolist() == [0, 1.25, 2.5, 3.75, 5.0]
    assert result.mean["energy"].shape == result.stderr["energy"].shape == (5,)
    assert result.mean["energy"].dtype == np.float64
    assert result.mean["energy"][0] == 2.0
    assert result.stderr["energy"][0] == 0.0
    assert result.failed == 0 and result.residual < 1e-13
    with pytest.raises(ValueError, match=r'no p: give .*keep="final".*keep="all"'):
        _ = result.p
    assert (result.count == 300).all()
    assert result.provenance["method"]["name"] == "midpoint"
    assert result.provenance["system"]["params"] == {"beta": 0.5, "nu": 0.001}
    assert "failed paths: none" in repr(result)


def test_saves_include_the_end_when_it_is_no_multiple():
    result = run(t_end=1.75, save_every=3)
    assert result.t.tolist() == [0, 0.75, 1.5, 1.75]
    full = run(t_end=1.75, save_every=1)
    assert result.mean["energy"][-1] == full.mean["energy"][-1]


def test_mean_energy_against_the_exact_curve_and_a_control():
    """5 standard errors: a false alarm in 1 of 1.7 million runs; Heun is 30 of them away."""
    options = {"dt": 0.05, "t_end": 20.0, "paths": 4000, "save_every": 400}
    good, bad = run(**options), run(da.heun(), **options)
    exact = kubo_energy(20.0, 2.0, 0.0, 0.5, 0.001)
    bias = 1e-3  # of the midpoint method itself at this step, from `exact_moments`
    assert abs(good.mean["energy"][-1] - exact) < 5 * good.stderr["energy"][-1] + bias
    assert abs(bad.mean["energy"][-1] - exact) > 30 * bad.stderr["energy"][-1] + bias


def test_statistics_are_those_of_the_kept_paths():
    result = run(keep="all", paths=257)
    energy = (result.q[..., 0] ** 2 + result.p[..., 0] ** 2) / 2
    assert result.q.shape == (5, 257, 1)
    np.testing.assert_allclose(result.mean["energy"], energy.mean(axis=1), rtol=1e-14)
    np.testing.assert_allclose(result.variance["energy"], energy.var(axis=1, ddof=1), atol=1e-14)
    np.testing.assert_allclose(
        result.stderr["energy"], energy.std(axis=1, ddof=1) / np.sqrt(257), atol=1e-14
    )
    np.testing.assert_allclose(result.minimum["energy"], energy.min(axis=1), rtol=1e-15)
    np.testing.assert_allclose(result.maximum["energy"], energy.max(axis=1), rtol=1e-15)
    final = run(keep="final", paths=257)
    np.testing.assert_array_equal(final.q, result.q[-1])
    np.testing.assert_array_equal(final.p, result.p[-1])


def test_a_path_is_the_same_in_every_block(monkeypatch):
    whole = run(keep="final", paths=200)
    monkeypatch.setattr(engine, "CPU_GRAIN", engine.CPU_GRAIN._replace(block_paths=64))
    cut = run(keep="final", paths=200)
    np.testing.assert_array_equal(whole.q, cut.q)
    np.testing.assert_allclose(whole.mean["energy"], cut.mean["energy"], rtol=1e-14)


def test_simulate_takes_the_steps_of_step():
    result = run(keep="all", paths=2, save_every=1, t_end=1.0, seed=7)
    path = da.brownian_path(7, 1, 0.25, 4, 1)
    q, p = START
    for k in range(4):
        q, p, _ = da.step(KUBO, da.midpoint(), q, p, 0.25, path.dW[k])
        np.testing.assert_allclose(result.q[k + 1, 1], q, rtol=1e-13)
        np.testing.assert_allclose(result.p[k + 1, 1], p, rtol=1e-13)


def test_seeds_differ_and_repeat():
    a, b, c = (run(seed=s, keep="final") for s in (1, 1, 2))
    np.testing.assert_array_equal(a.q, b.q)
    assert np.abs(a.q - c.q).max() > 1e-3


def test_initial_states_per_path_and_by_sampler():
    q0 = np.linspace(-1, 1, 300)[:, None]
    given = run(initial=(q0, 0 * q0), keep="all")
    np.testing.assert_array_equal(given.q[0], q0)

    def sampler(key):
        q, p = jax.random.normal(key, (2, 1))
        return q, p

    drawn = run(initial=sampler, keep="all", paths=3000)
    assert abs(drawn.q[0].mean()) < 5 / np.sqrt(3000)
    assert abs(drawn.q[0].std() - 1) < 5 / np.sqrt(6000)
    assert len(np.unique(drawn.q[0])) == 3000
    again = run(initial=sampler, keep="all", paths=10)
    np.testing.assert_array_equal(again.q[0], drawn.q[0, :10])


@pytest.mark.slow
def test_recorded_noise_and_observables_with_several_components():
    path = da.brownian_path(5, 0, 0.25, 20, 1)
    noise = da.Recorded(da.Increments(dW=path.dW))
    result = run(noise=noise, paths=3, observe={"z": lambda q, p, params: jnp.stack([q[0], p[0]])})
    assert result.mean["z"].shape == (5, 2)
    np.testing.assert_allclose(result.stderr["z"], 0, atol=1e-15)
    direct = run(seed=5, paths=1, observe={"z": lambda q, p, params: jnp.stack([q[0], p[0]])})
    np.testing.assert_allclose(result.mean["z"], direct.mean["z"], rtol=1e-12)


def test_recorded_lists_and_whole_numbers_are_taken_as_they_are_meant():
    observe = {"q": lambda q, p, params: q[0]}
    expected = run(noise=da.Recorded(da.Increments(np.ones((20, 1)))), paths=2, observe=observe)
    for given in ([[1]] * 20, np.ones((20, 1), int), [[1.0]] * 20, jnp.ones((20, 1), int)):
        result = run(noise=da.Recorded(da.Increments(given)), paths=2, observe=observe)
        np.testing.assert_array_equal(result.mean["q"], expected.mean["q"])


def test_truncations_are_counted():
    with pytest.warns(UserWarning, match="cuts off 9.6% of the incr.* 16.2% of the var") as told:
        result = run(noise=da.Gaussian(truncation=1), dt=0.25, paths=500)
    assert len(told) == 1 and told[0].filename == __file__
    # |ΔW| > √(2·h·|ln h|) means |χ| > √(2 ln 4) = 1.665, probability 0.0959, over 20 steps.
    expected = 500 * 20 * 0.0959
    assert abs(result.truncated - expected) < 5 * np.sqrt(expected)
    assert "truncated" in repr(result)
    assert run(paths=500).truncated == 0


def quartic(strength):
    return da.System(
        H=lambda q, p: p[0] ** 2 / 2 + strength * q[0] ** 4 / 4,
        h=[lambda q, p: 0.1 * q[0]],
        dim=1,
        name="quartic",
    )


def test_failed_paths_are_excluded_counted_and_warned_about():
    q0 = np.array([[0.1], [50.0], [0.2]])
    with pytest.warns(RuntimeWarning, match=r"1 of 3 paths failed.*path 1 at t = "):
        result = da.simulate(
            quartic(1.0), da.heun(), (q0, 0 * q0), dt=0.1, t_end=2.0, paths=3, save_every=20
        )
    assert result.failed == 1
    assert result.failures.non_finite == 1 and result.failures.first_path == 1
    assert result.count.tolist() == [3, 2]
    assert np.isfinite(result.mean["energy"]).all()
    with pytest.raises(RuntimeError, match="1 of 3 paths failed"):
        da.simulate(
            quartic(1.0),
            da.heun(),
            (q0, 0 * q0),
            dt=0.1,
            t_end=2.0,
            paths=3,
            on_failure="raise",
        )


def test_unconverged_stage_equations_reach_the_user():
    """The stage equation P = p + dt·(P² + 1) has no solution once p > 0."""
    runaway = da.System(
        H=lambda q, p: p[0] ** 2 / 2, F=lambda q, p: 10 * (1 + p**2), h=[None], f=[None], dim=1
    )
    with pytest.warns(RuntimeWarning, match="unconverged"):
        result = da.simulate(
            runaway, da.midpoint(), ([0.0], [1.0]), dt=0.5, t_end=1.0, paths=2, keep="all"
        )
    assert result.failures.unconverged == 2
    assert np.isfinite(result.q[0]).all() and np.isnan(result.q[1:]).all(), "kept after its failure"
    with pytest.raises(ValueError, match="the mean of 'energy' needs at least 1"):
        result.mean["energy"]


def test_statistics_that_the_sample_does_not_support_are_refused():
    single = run(paths=1)
    assert single.mean["energy"].shape == (5,)
    with pytest.raises(ValueError, match="the standard error of 'energy' needs at least 2"):
        single.stderr["energy"]
    with pytest.raises(KeyError, match="no observable 'entropy'"):
        single.mean["entropy"]


def test_float64_without_the_global_switch_and_float32_on_request():
    with jax.enable_x64(False):
        double = run(keep="final")
        assert double.q.dtype == np.float64
        single = run(keep="final", dtype=np.float32)
        assert single.q.dtype == np.float32
    np.testing.assert_array_equal(double.q, run(keep="final").q)
    np.testing.assert_allclose(
        single.mean["energy"][-1], double.mean["energy"][-1], atol=10 * double.stderr["energy"][-1]
    )


def test_no_second_compilation_for_other_numbers(calls):
    def H(q, p, params):
        calls.add()
        return p[0] ** 2 / 2 + params["k"] * q[0] ** 2 / 2

    system = da.System(H=H, h=[lambda q, p, params: 0.1 * q[0]], dim=1, params={"k": 1.0})
    options = {"dt": 0.1, "t_end": 1.0, "paths": 4}
    da.simulate(system, da.midpoint(), START, **options)
    count = len(calls)
    da.simulate(system, da.midpoint(), START, seed=1, **options)
    # A kernel traces H many times; describing the run traces it twice and checking it once.
    assert len(calls) <= count + 3
    other = system.with_params(k=2.0)
    count = len(calls)
    da.simulate(other, da.midpoint(), START, **options)
    assert len(calls) <= count + 4


def test_save_and_load(tmp_path):
    result = run(keep="final")
    result.save(tmp_path / "kubo.npz")
    again = da.load(tmp_path / "kubo.npz")
    np.testing.assert_array_equal(again.mean["energy"], result.mean["energy"])
    np.testing.assert_array_equal(again.stderr["energy"], result.stderr["energy"])
    np.testing.assert_array_equal(again.q, result.q)
    assert again.provenance == result.provenance and again.failures == result.failures
    assert [p.name for p in tmp_path.iterdir()] == ["kubo.npz"]


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "kubo.npz"
    run().save(path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not a file", whole[:200] + b"x" + whole[201:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"kubo.npz is not a readable dalembert run file"):
            da.load(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        da.load(tmp_path / "missing.npz")
    np.savez(path, header=np.frombuffer(b"{}", np.uint8))
    with pytest.raises(ValueError, match="not a readable dalembert run"):
        da.load(path)


def test_xarray_and_plot():
    result = run(keep="all")
    data = result.to_xarray()
    assert data.energy_mean.dims == ("time",) and data.q.dims == ("time", "path", "component")
    np.testing.assert_array_equal(data.energy_mean, result.mean["energy"])
    axes = result.plot()
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), result.mean["energy"])
    import matplotlib.pyplot as plt

    plt.close(axes.figure)


def test_merge_is_exact_for_split_samples():
    x = np.random.default_rng(0).normal(1e6, 1.0, 1000)

    def moments(x):
        deviations = ((x - x.mean()) ** 2).sum()
        return SampleMean(*map(np.asarray, (float(len(x)), x.mean(), deviations, x.min(), x.max())))

    merged = merged_means(moments(x[:123]), moments(x[123:]))
    for got, expected in zip(merged, moments(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)
    naive = (x**2).sum() - len(x) * x.mean() ** 2
    assert abs(naive / merged.deviations - 1) > 1e-7, "the naive rule would do as well"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dt": 0.0}, "dt must be a positive number, not 0.0"),
        ({"dt": float("nan")}, "dt must be a positive number"),
        ({"dt": "0.1"}, "dt must be a positive number, not '0.1'"),
        ({"dt": 1e-320, "t_end": 1e-319}, "dt = 1e-320 counts as zero in float64.* smaller units"),
        (
            {"dt": 1e-40, "t_end": 1e-40, "dtype": np.float32},
            "dt = 1e-40 counts as zero in float32",
        ),
        ({"only": 1.5}, "a path number in only must be a whole number ≥ 0, not 1.5"),
        ({"only": [0, 1.5]}, "a path number in only must be a whole number ≥ 0, not 1.5"),
        ({"t_end": -1.0}, "t_end must be a positive number"),
        ({"dt": 0.3}, "not a whole number of steps of dt = 0.3: take t_end = 5.1"),
        ({"paths": 0}, "paths must be a whole number ≥ 1, not 0"),
        ({"paths": 2.5}, "paths must be a whole number ≥ 1, not 2.5"),
        ({"seed": -1}, "seed must be a whole number ≥ 0"),
        ({"save_every": 0}, "save_every must be a whole number ≥ 1"),
        ({"keep": "some"}, "keep must be one of 'nothing', 'final', 'all', not 'some'"),
        ({"on_failure": "ignore"}, "on_failure must be one of"),
        ({"initial": ([2], [0])}, "q0 has int64 entries.*2.0 instead of 2"),
        ({"initial": ([[2.0], [0.0]], [[0.0]] * 2)}, "for 2 paths write paths=2"),
        ({"initial": ([2.0, 0.0], [0.0])}, r"q0 must have shape \(1,\).*or \(300, 1\), not \(2,\)"),
        ({"initial": ([float("nan")], [0.0])}, "q0 contains NaN or infinity"),
        ({"initial": [1.0]}, "initial state must be a pair"),
        ({"initial": lambda key: jnp.zeros(2)}, r"sampler must return \(q, p\)"),
        ({"observe": {}}, "observe must map names to functions"),
        ({"observe": {"e": 1.0}}, r"observe\['e'\] must be a function"),
        ({"observe": {"e": lambda q: q}}, r"observe\['e'\] failed when called as"),
        ({"dtype": int}, "dtype must be float64 or float32"),
        ({"method": da.midpoint}, "Call the function to get the method"),
        ({"method": da.e1(), "noise": da.ThreePoint()}, r"e1 needs the increments \['dZ'\]"),
        ({"system": "kubo"}, "system must be a da.System"),
        (
            {"system": da.System(H=lambda q, p: 3.0, dim=1), "observe": None},
            "nothing moves in 'system': H does not depend on",
        ),
        ({"noise": da.Recorded(da.Increments([[0.1]] * 3))}, "takes 20 steps and 3 are recorded"),
        (
            {"paths": 10**10, "keep": "final"},
            r"keep='final': 149.0 GiB.*, and this machine has .* to spare",
        ),
    ],
)
def test_bad_input_is_refused_with_a_clear_message(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run(**options)


def test_a_method_that_cannot_take_the_noise_is_refused():
    with pytest.raises(ValueError, match="srkw2 takes at most 1 noise"):
        run(da.srkw2(), system=da.systems.two_noise())


# --- numbers of other types -----------------------------------------------------------------------


def test_numbers_are_taken_as_they_are_written():
    system, start = da.systems.damped_kubo(), ([2.0], [0.0])
    plain = da.simulate(system, da.midpoint(), start, dt=0.1, t_end=1.0, paths=20, progress=False)
    for dt in (np.float32(0.1), np.array(0.1), jnp.asarray(0.1)):
        run = da.simulate(system, da.midpoint(), start, dt=dt, t_end=1, paths=2e1, progress=False)
        assert run.t[-1] == 1.0 and run.provenance["dt"] == 0.1
        np.testing.assert_array_equal(run.mean["energy"], plain.mean["energy"])


LOST, EXACT = np.array([0.1], np.float32), np.array([0.5], np.float32)


@jax.numpy_dtype_promotion("standard")
def test_float32_numbers_that_have_lost_digits_are_pointed_out():
    """And no others: a warning would be an error here."""
    system, options = da.systems.damped_kubo(), dict(dt=0.5, t_end=1.0, progress=False)
    with pytest.warns(UserWarning, match="the initial state has float32 numbers"):
        da.simulate(system, da.heun(), (LOST, EXACT), **options)
    da.simulate(system, da.heun(), (EXACT, EXACT), **options)
    with pytest.warns(UserWarning, match="F has float32 numbers"):
        da.System(H=lambda q, p: p[0] ** 2, F=lambda q, p: -LOST * p, dim=1)


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")
def test_float32_parameters_that_have_lost_digits_are_pointed_out():
    """And not the numbers of a run in single precision."""
    options = dict(dt=0.5, t_end=1.0, progress=False)
    stiff = da.System(H=lambda q, p, k: p[0] ** 2 + k[0] * q[0] ** 2, dim=1, params=LOST)
    with pytest.warns(UserWarning, match="params has float32 numbers"):
        da.simulate(stiff, da.heun(), ([2.0], [0.0]), **options)
    kubo = da.systems.damped_kubo()
    da.simulate(kubo, da.heun(), (LOST, EXACT), dtype=np.float32, **options)


# What a warning about failed paths says

OSCILLATOR = da.System(
    H=lambda q, p: (p[0] ** 2 + q[0] ** 2) / 2, h=[lambda q, p: 0.3 * q[0]], dim=1
)
SHORT = {"dt": 0.1, "t_end": 1.0, "paths": 4}


def test_an_observable_that_is_not_finite_is_named_as_the_reason():
    observe = {"x": lambda q, p: jnp.sqrt(p[0]), "H": OSCILLATOR.H}
    with pytest.warns(RuntimeWarning, match="4 with an observable that is not finite"):
        result = da.simulate(OSCILLATOR, da.midpoint(), ([1.0], [0.0]), observe=observe, **SHORT)
    assert result.failures.unobservable == result.failed == 4
    assert result.failures.non_finite == result.failures.unconverged == 0


@pytest.mark.parametrize(
    "start", [([0.0], [0.0]), lambda key: (jax.random.normal(key, (1,)), jnp.zeros(1))]
)
def test_a_derivative_that_is_not_finite_is_named_as_the_reason(start):
    system = da.System(H=lambda q, p: jnp.linalg.norm(p) ** 2 / 2 + q[0] ** 2 / 2, dim=1)
    with pytest.warns(RuntimeWarning, match="not finite at its initial state: .* jnp.linalg.norm"):
        da.simulate(system, da.heun(), start, **SHORT)


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        pytest.param(
            da.midpoint(),
            r"A smaller dt, or noise=da.Gaussian\(truncation=3\), may help",
            marks=pytest.mark.slow,
        ),
        pytest.param(da.srkw1(), "A smaller dt may help", marks=pytest.mark.slow),
        (da.heun(), "A smaller dt or an implicit method may help"),
    ],
    ids=lambda case: getattr(case, "name", ""),
)
def test_advice_can_be_followed(method, advice):
    system = da.System(H=lambda q, p: p[0] ** 2 / 2 - q[0] ** 6, h=[lambda q, p: 0.1 * q[0]], dim=1)
    with pytest.warns(RuntimeWarning, match=advice):
        da.simulate(system, method, ([3.0], [3.0]), **SHORT)


def test_a_checkpoint_is_a_file():
    with pytest.raises(TypeError, match="checkpoint must be the name of a file"):
        da.simulate(OSCILLATOR, da.midpoint(), ([1.0], [0.0]), checkpoint=True, **SHORT)
