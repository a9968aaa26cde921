"""Expectations to a tolerance: coupled levels, what is refused, and what is said."""

import re
from dataclasses import replace
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.answers.drives import sees_drive
from dalembert.answers.sampling import _block_paths
from dalembert.ensemble.progress import ProgressBar
from dalembert.ensemble.settings import make_settings
from dalembert.ensemble.simulate import prepare
from dalembert.noise import Halves
from dalembert.stepping.pair import PairMethod, pair_of
from dalembert.systems.kubo_system import kubo_energy

START = ([1.0], [0.0])


def pendulum():
    return da.systems.langevin(potential, gamma=0.5, temperature=0.25)


def potential(q):
    return -jnp.cos(q[0])


def position(q, p, params):
    return q[0]


def energy(q, p, params):
    return p[0] ** 2 / 2 - jnp.cos(q[0])


def tangled(q, p, params):
    """No two paths that are not the same have anything in common here."""
    return jnp.sin(1e9 * q[0])


def ask(observable=energy, method=None, **options):
    given = {"t_end": 2.0, "tolerance": 0.02, "progress": False} | options
    return da.expect(pendulum(), method or da.midpoint(), START, observable, **given)


def pairs(method, **options):
    doubled = tuple(np.stack([x, x]) for x in START)
    given = {"dt": 0.25, "t_end": 2.0, "paths": 64, "progress": False, "keep": "final"} | options
    return da.simulate(pair_of(pendulum()), PairMethod(method), doubled, noise=Halves(), **given)


def test_halves_are_one_brownian_path():
    with jax.enable_x64(True):
        drawn = [Halves().draw(3, 5, step, 0.5, 2, np.float64) for step in range(3)]
    fine = da.brownian_path(3, 5, 0.25, 6, 2)
    whole = da.coarsen(fine, 0.25, 2)
    for name in ("dW", "dZ"):
        rows = np.stack([getattr(one, name) for one in drawn])
        np.testing.assert_allclose(rows[:, :2].reshape(6, 2), getattr(fine, name), rtol=1e-13)
        np.testing.assert_allclose(rows[:, 2], getattr(whole, name), rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("method", [da.additive_midpoint(), da.midpoint()], ids=lambda m: m.name)
def test_a_pair_is_a_path_and_the_same_with_larger_steps(method):
    found = pairs(method, seed=4)
    assert found.provenance["code"] == "vector code (LLVM)", "pairs run as fast as paths"
    options = {"t_end": 2.0, "paths": 64, "progress": False, "keep": "final", "seed": 4}
    fine = da.simulate(pendulum(), method, START, dt=0.125, **options)
    np.testing.assert_allclose(found.q[:, 0], fine.q, rtol=1e-12)
    paths = [da.coarsen(da.brownian_path(4, k, 0.125, 16, 1), 0.125, 2) for k in range(64)]
    rows = da.Recorded(da.Increments(*(np.stack([x[i] for x in paths]) for i in range(2))))
    coarse = da.simulate(pendulum(), method, START, dt=0.25, noise=rows, **options)
    np.testing.assert_allclose(found.p[:, 1], coarse.p, rtol=1e-12)
    assert np.abs(fine.p - coarse.p).max() > 1e-3


@pytest.mark.slow
def test_pairs_are_the_same_on_every_engine():
    fast, slow = (pairs(da.midpoint(), engine=engine) for engine in (None, "XLA"))
    np.testing.assert_allclose(fast.q, slow.q, rtol=1e-10)


@pytest.mark.slow
def test_pairs_of_large_systems_run_on_arrays():
    system = da.systems.fput()
    q = np.linspace(0.1, 0.2, system.dim).reshape(system.shape)
    method = da.midpoint()
    common = {"t_end": 1.0, "paths": 4, "progress": False, "keep": "final"}
    pair = (np.stack([q, q]), np.zeros((2, *system.shape)))
    found = da.simulate(pair_of(system), PairMethod(method), pair, dt=0.5, noise=Halves(), **common)
    fine = da.simulate(system, method, (q, 0 * q), dt=0.25, **common)
    np.testing.assert_allclose(found.q[:, 0], fine.q, rtol=1e-10)


def test_the_expectation_of_an_oscillator_is_met():
    system = da.systems.damped_kubo()
    found = da.expect(
        system, da.midpoint(), ([2.0], [0.0]), system.H, t_end=10.0, tolerance=1e-3, progress=False
    )
    exact = 1.98010871276
    assert found.is_met and abs(found.value - exact) <= found.error <= 1e-3
    assert found.interval[0] < exact < found.interval[1]
    assert (found.expected_alpha, found.expected_beta) == (1, 2)
    assert abs(found.alpha - 1) < 0.3 and abs(found.beta - 2) < 0.4
    text = str(found)
    for words in ("E[φ(10)] of damped_kubo with midpoint", "met", "φ(dt) − φ(2dt)", "expected"):
        assert words in text


@pytest.mark.slow
def test_several_observables_and_averages_along_paths():
    observables = {
        "q": position,
        "both": lambda q, p, params: jnp.stack([q[0] ** 2, p[0] ** 2]),
        "mean": da.TimeAverage(position),
    }
    found = ask(observables, every=0.5, tolerance=0.05)
    assert found.value["both"].shape == (2,) and isinstance(found.value["q"], float)
    assert set(found.labels) == {"q", "both[0]", "both[1]", "mean"}
    assert max(found.errors) <= 0.05
    # The average over 0, ½, …, 2 of a pendulum that starts at 1 and falls.
    saved = da.simulate(
        pendulum(), da.midpoint(), START, dt=0.05, t_end=2.0, save_every=10, paths=4000,
        observe={"q": position}, progress=False,
    )  # fmt: skip
    assert abs(found.value["mean"] - saved.mean["q"].mean()) < 0.05 + 4 * saved.stderr["q"].max()
    assert abs(found.value["q"] - saved.mean["q"][-1]) < 0.05 + 4 * saved.stderr["q"].max()


def test_the_same_bits_with_checkpoints_and_workers(tmp_path, monkeypatch):
    usual = ask()
    assert ask(workers=1).found.value == usual.found.value
    again = ask(checkpoint=tmp_path)
    assert again.value == usual.value and any(tmp_path.iterdir())
    monkeypatch.setattr("dalembert.ensemble.blocks.run_leg", None)  # nothing is run any more
    assert ask(checkpoint=tmp_path).value == usual.value
    assert ask(checkpoint=tmp_path).levels[-1].variance == usual.levels[-1].variance


def test_other_seeds_give_other_samples():
    assert ask(seed=1).value != ask().value


def test_relative_tolerances():
    found = ask(relative=True, tolerance=0.02)
    assert found.errors[0] <= 0.02 * abs(found.value)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "estimator"), [(da.midpoint(), "plain"), (da.srkw1(), None)])
def test_other_estimators_agree(method, estimator):
    reference, found = ask(tolerance=0.01), ask(method=method, estimator=estimator, tolerance=0.01)
    assert found.estimator == (estimator or "plain")
    assert abs(found.value - reference.value) <= found.error + reference.error
    assert found.is_met


@pytest.mark.slow
def test_variances_fall_with_twice_the_order():
    for method, order in ((da.midpoint(), 2), (da.additive_midpoint(), 4)):
        found = ask(method=method, halvings=5, t_end=4.0, dt=0.5, tolerance=0.1)
        assert found.expected_beta == order and abs(found.beta - order) < 0.25
        assert len(found.levels) == 6


@pytest.mark.slow
def test_variances_that_do_not_decay_are_said_to_be_such():
    with pytest.raises(da.ToleranceError, match=r"variance of differences .* does not decay"):
        ask(tangled)
    found = ask(tangled, dt=0.25, tolerance=0.2)
    assert any("do not decay" in note for note in found.notes)
    assert not ask(dt=0.25).notes


def test_a_budget_that_is_too_small():
    with pytest.raises(da.ToleranceError, match="and the budget is 1e\\+05") as caught:
        ask(tolerance=1e-4, budget=1e5)
    assert not caught.value.result.is_met and "NOT met" in str(caught.value.result)
    with pytest.warns(RuntimeWarning, match="was not met"):
        found = ask(tolerance=1e-4, budget=1e5, on_failure="warn")
    assert found.steps <= 1e5
    with pytest.raises(da.ToleranceError, match="the budget is 1e\\+02"):
        ask(budget=100)
    # Known before the coarse levels are run, not when it comes to the fine ones.
    with pytest.raises(da.ToleranceError, match="the budget is 1e\\+06"):
        ask(budget=1e6, dt=0.25, halvings=18)


def test_what_cannot_be_asked():
    system = pendulum()
    for options, message in (
        ({"tolerance": -1.0}, "tolerance must be a positive number"),
        ({"t_end": 0.0}, "t_end must be a positive number"),
        ({"confidence": 1.0}, "confidence must lie between 0 and 1"),
        ({"estimator": "magic"}, "estimator must be one of"),
        ({"dt": 0.3}, "not a whole number of dt"),
        ({"every": 0.4, "dt": 0.5}, "not a whole number of steps"),
        ({"observable": {}}, "no observable"),
        ({"observable": lambda q, p, params: q[:0]}, "has no entries"),
        ({"tolerance": "1e-3"}, "tolerance must be a positive number"),
        ({"dt": 0}, "dt must be a positive number"),
        ({"observable": da.TimeAverage(energy)}, "needs every="),
        ({"on_failure": "ignore"}, "on_failure must be one of"),
        ({"budget": float("inf")}, "budget must be a positive number"),
        ({"halvings": 1}, "halvings must be a whole number ≥ 2"),
        ({"halvings": 40, "dt": 0.25}, "40 halvings of dt = 0.25 make more than 4,194,304 steps"),
        ({"confidence": "95 %"}, "confidence must lie between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            ask(**options)
    with pytest.raises(TypeError, match="relative must be True or False"):
        ask(relative="yes")
    with pytest.raises(TypeError, match="floating-point numbers are needed"):
        ask(lambda q, p, params: jnp.where(q[0] > 0, 1, 0))
    with pytest.raises(TypeError, match="must be a function of"):
        ask(da.Covariance({"q": position}))
    with pytest.raises(TypeError, match="initial must be"):
        da.expect(system, da.midpoint(), [1.0], energy, t_end=1.0, tolerance=1.0)
    with pytest.raises(ValueError, match="how many paths there will be is not known"):
        da.expect(system, da.midpoint(), (np.ones((9, 1)),) * 2, energy, t_end=1, tolerance=1)
    with pytest.raises(ValueError, match="of which those of two steps do not make those of one"):
        da.expect(
            da.systems.two_noise(), da.ninomiya_victoir(), START, energy,
            t_end=1.0, tolerance=1.0, estimator="multilevel",
        )  # fmt: skip


def test_a_picture():
    pytest.importorskip("matplotlib").use("agg")
    axes = ask().plot()
    assert "langevin" in axes.get_title() and axes.get_xscale() == "log"


def test_a_picture_joins_changes_and_not_values_with_them():
    pytest.importorskip("matplotlib").use("agg")
    found = ask(estimator="plain", dt=0.25)
    axes = found.plot()
    drawn = {line.get_label(): line for line in axes.get_lines()}
    pairs = [level.dt for level in found.levels if level.row.is_pair]
    changes = drawn["standard deviation of φ(dt) − φ(2dt)"]
    assert list(changes.get_xdata()) == pairs and changes.get_linestyle() == "-"
    values = drawn["standard deviation of φ(dt)"]
    assert list(values.get_xdata()) == [pairs[-1]] and values.get_linestyle() == "None"


def test_a_later_call_notices_what_functions_read():
    system, factor = pendulum(), [1.0]
    given = {"t_end": 1.0, "tolerance": 0.1, "dt": 0.25, "progress": False}

    def scaled(q, p, params):
        return factor[0] * q[0]

    found = [da.expect(system, da.midpoint(), START, scaled, **given) for _ in range(2)]
    assert found[0].value == found[1].value
    factor[0] = 2.0
    doubled = da.expect(system, da.midpoint(), START, scaled, **(given | {"tolerance": 0.2}))
    assert doubled.value == 2 * found[0].value


def test_observables_need_be_finite_at_the_end_alone():
    given = {"t_end": 1.0, "tolerance": 0.1, "dt": 0.25, "progress": False}
    found = da.expect(
        pendulum(), da.midpoint(), ([0.0], [1.0]), lambda q, p, params: jnp.log(q[0] ** 2), **given
    )
    assert found.is_met and np.isfinite(found.value)


def settings_of(steps, paths):
    """A run whose statistics are of the end alone."""
    found = make_settings(
        pendulum(), da.midpoint(), START, dt=0.25, t_end=0.25 * steps, paths=paths, seed=0,
        only=None, save_every=steps, noise=None, keep="nothing", dtype=np.float64,
        observe={"energy": energy}, histograms=None, statistics=None,
    )  # fmt: skip
    return replace(found, at_end=True)


def test_large_observables_are_observed_in_small_blocks():
    settings = settings_of(4, 10**6)
    sizes = [_block_paths(settings, 10**6, 4, numbers) for numbers in (1, 20_000, 10**9)]
    assert sizes == [262144, 512, 1]


def test_a_run_that_is_observed_at_its_end_goes_on_from_a_checkpoint(tmp_path, monkeypatch):
    settings = settings_of(3000, 8)
    whole = prepare(settings, progress=False).run()
    usual = da.simulate(
        pendulum(), da.midpoint(), START, dt=0.25, t_end=750.0, paths=8, save_every=3000,
        observe={"energy": energy}, progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(whole.mean["energy"], usual.mean["energy"][-1:], rtol=1e-14)
    with monkeypatch.context() as patched:  # stopped after its first leg, with nothing observed
        patched.setattr("dalembert.ensemble.blocks._wanted_units", lambda work: 1)
        job = prepare(settings, tmp_path / "run", progress=False)
        patched.setattr(ProgressBar, "add", lambda bar, steps: job.stop())
        with pytest.raises(KeyboardInterrupt):
            job.run()
    again = prepare(settings, tmp_path / "run", progress=False).run()
    assert again.mean["energy"] == whole.mean["energy"]


def test_diagnose_recommends_methods_whose_levels_are_cheap():
    advice = {x.purpose: x for x in da.diagnose(pendulum()).recommendation}
    assert advice["da.expect"].method == "additive_midpoint"
    assert "dt^4" in advice["da.expect"].reasons[0]


@pytest.mark.slow
def test_without_noise_only_the_bias_is_left():
    system = da.System(H=lambda q, p: (q @ q + p @ p) / 2, dim=1, name="oscillator")
    found = da.expect(
        system, da.midpoint(), ([1.0], [0.0]), lambda q, p: q[0],
        t_end=2.0, tolerance=1e-3, progress=False,
    )  # fmt: skip
    assert found.stderr == 0 and abs(found.value - np.cos(2.0)) <= found.error <= 1e-3
    assert abs(found.alpha - 2) < 0.2


def heavy(q, p, params):
    """Like Cauchy's law where the density of q is not zero at zero: there is no expectation."""
    return 1 / q[0]


def infinite(q, p, params):
    """E is finite and the variance is not: for a normal q, where 4 c var(q) > 1 > 2 c var(q)."""
    return jnp.exp(1.2 * q[0] ** 2)


def light(q, p, params):
    return jnp.exp(q[0])


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"estimator": "plain", "tolerance": 100.0, "dt": 0.25},
    ],
)
@pytest.mark.parametrize("observable", [heavy, infinite], ids=lambda f: f.__name__)
def test_variances_that_are_not_finite_are_refused(observable, options):
    system = da.systems.langevin(gamma=0.5, temperature=0.5)
    given = {"t_end": 2.0, "tolerance": 0.05, "progress": False} | options
    with pytest.raises(
        da.ToleranceError, match=r"which grows with their number.* unstable, give a smaller dt="
    ):
        da.expect(system, da.midpoint(), START, observable, **given)
    for usual in (position, light):
        found = da.expect(system, da.midpoint(), START, usual, **given)
        assert found.is_met and not found.notes, "a control"


@pytest.mark.parametrize("method", [da.stormer_verlet(), da.heun()], ids=lambda m: m.name)
@pytest.mark.parametrize("estimator", ["plain", pytest.param(None, marks=pytest.mark.slow)])
def test_steps_that_are_too_long_for_a_method_are_halved(method, estimator):
    """At a quarter of the time steps are unstable, and values as wide as if without a variance."""
    kubo, given = da.systems.damped_kubo(), {"t_end": 10.0, "tolerance": 1e-2, "progress": False}
    found = da.expect(kubo, method, ([2.0], [0.0]), kubo.H, estimator=estimator, **given)
    assert found.is_met
    assert abs(found.value - 1.98010871276) < 1e-2


def test_one_path_that_makes_much_of_the_error_is_said_where_the_budget_ends():
    system = da.systems.langevin(gamma=0.5, temperature=0.5)
    given = {"t_end": 2.0, "tolerance": 0.5, "dt": 0.25, "estimator": "plain", "progress": False}
    found = da.expect(
        system, da.midpoint(), START, lambda q, p, c: jnp.exp(1.2 * q[0] ** 2), budget=5e5, **given
    )
    assert any("of the squared statistical error" in note for note in found.notes)
    assert found.steps <= 5e5


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["plain", None])
def test_a_rare_event_that_the_first_paths_miss_is_looked_for(estimator):
    """P = 1.45e-4, normal: 4096 paths of the first batch have none with probability ½."""
    system = da.systems.langevin(gamma=0.5, temperature=0.5)

    def beyond(q, p, params):
        return jnp.where(q[0] > 2.0, 1.0, 0.0)

    moments = da.exact_moments(system, da.additive_midpoint(), START, dt=0.005, steps=400)
    deviation = (moments.second[0, 0] - moments.mean[0] ** 2) ** 0.5
    exact = 1 - NormalDist(moments.mean[0], deviation).cdf(2.0)
    assert 1.4e-4 < exact < 1.5e-4
    for seed in range(3):
        found = da.expect(
            system, da.midpoint(), START, beyond, t_end=2.0, tolerance=1e-3, seed=seed,
            estimator=estimator, progress=False,
        )  # fmt: skip
        assert found.value > 0 and found.stderr > 0, "at least one path was there"
        assert abs(found.value - exact) <= found.error <= 1e-3


def test_an_event_that_never_comes_up_has_an_upper_bound():
    with pytest.raises(da.ToleranceError, match=r"probability below .* rule of three") as caught:
        ask(lambda q, p, params: jnp.where(q[0] > 50.0, 1.0, 0.0), budget=1e6)
    paths = int(re.search(r"all ([\d,]+) samples", str(caught.value))[1].replace(",", ""))
    assert f"below {3 / paths:.2g}" in str(caught.value)
    assert paths >= 2**15, "the budget was used, not the first batch alone"


def test_a_bias_that_is_too_large_at_the_least_step_is_said(monkeypatch):
    monkeypatch.setattr("dalembert.answers.search.MOST_STEPS", 32)
    system = da.System(H=lambda q, p: (q @ q + p @ p) / 2, dim=1, name="oscillator")
    with pytest.raises(
        da.ToleranceError, match=r"bias is still about .* of the tolerance"
    ) as caught:
        da.expect(
            system, da.midpoint(), ([1.0], [0.0]), lambda q, p: q[0],
            t_end=2.0, tolerance=1e-6, dt=0.5, progress=False,
        )  # fmt: skip
    found = caught.value.result
    assert not found.is_met and found.bias > 1e-6
    assert abs(found.value - np.cos(2.0)) <= found.error


@pytest.mark.slow
def test_a_rare_event_that_has_not_come_up_is_no_answer():
    system = da.systems.langevin(dim=1)

    def far(q, p, c):
        return jnp.where(q[0] > 50.0, 1.0, 0.0)

    # Beside another observable, whose samples differ, it is no answer either.
    both = {"far": far, "q": lambda q, p, c: q[0]}
    with pytest.raises(da.ToleranceError, match=r"samples .* are equal"):
        da.expect(
            system, da.midpoint(), START_AT_REST, both,
            t_end=1.0, tolerance=0.1, budget=1e7, progress=False,
        )  # fmt: skip


@pytest.mark.slow
def test_a_rare_event_beside_what_is_conserved_is_no_answer():
    system = da.System(
        H=lambda q, p: p @ p / 2, f=[lambda q, p: jnp.array([1.0, 0.0], q.dtype)], dim=2
    )

    def rare(q, p):
        return p[1] + jnp.where(p[0] > 4.0, 1e4, 0.0)

    start = ([0.0, 0.0], [0.0, 0.5])
    given = {"t_end": 1.0, "tolerance": 0.5, "progress": False}
    with pytest.raises(da.ToleranceError, match=r"samples .* are equal"):
        da.expect(system, da.midpoint(), start, rare, budget=1e5, **given)
    # With more paths it comes up: W(1) > 4 has a probability of 3.2e-5.
    found = da.expect(system, da.midpoint(), start, rare, **given)
    exact = 0.5 + 1e4 * (1 - NormalDist().cdf(4.0))
    assert abs(found.value - exact) <= found.error <= 0.5
    assert found.stderr > 0.05


START_AT_REST = (np.zeros(1), np.zeros(1))


def test_what_is_conserved_is_an_answer():
    kubo = da.systems.damped_kubo(nu=0.0)
    common = {"t_end": 2.0, "tolerance": 1e-3, "progress": False}
    found = da.expect(kubo, da.midpoint(), ([2.0], [0.0]), kubo.H, **common)
    assert abs(found.value - 2) < 1e-12 and found.error < 1e-12 and not found.notes


@pytest.mark.slow
def test_what_no_noise_moves_is_an_answer():
    system = da.System(
        H=lambda q, p: (q @ q + p @ p) / 2, h=[lambda q, p: -0.3 * q[0]], dim=2, name="one of two"
    )
    found = da.expect(
        system, da.midpoint(), ([1.0, 1.0], [0.0, 0.0]), lambda q, p: q[1],
        t_end=2.0, tolerance=1e-3, progress=False,
    )  # fmt: skip
    assert found.stderr == 0 and abs(found.value - np.cos(2.0)) <= found.error <= 1e-3


@pytest.mark.slow
def test_values_that_have_no_error():
    with pytest.raises(da.ToleranceError, match=r"cannot be told from zero, .* no relative error"):
        da.expect(
            pendulum(), da.midpoint(), START_AT_REST, position,
            t_end=2.0, tolerance=0.05, relative=True, progress=False,
        )  # fmt: skip
    for size in (1e200, 1e-170):
        with pytest.raises(da.ToleranceError, match="is no number that float64 holds"):
            ask(lambda q, p, params, size=size: size * q[0], tolerance=size)
    with pytest.raises(RuntimeError, match="with an observable that is not finite"):
        ask(lambda q, p, params: jnp.sqrt(q[0] + 0.9))


@pytest.mark.slow
def test_no_finer_steps_for_want_of_paths():
    """Where the bias is small, paths are added: a finer step would begin anew."""
    for seed in (1, 6):
        found = ask(estimator="plain", dt=0.25, tolerance=0.01, seed=seed)
        assert found.levels[-1].dt == 0.0625 and found.error <= 0.01


@pytest.mark.slow
def test_what_was_made_ready_is_used_for_its_like_alone():
    """Numbers that are read from a long list, in all digits; parameters of another type."""
    many = [1.0] * 3000
    system = da.System(
        H=lambda q, p, params: (p @ p + q @ q) / 2,
        h=[lambda q, p, params: 0.3 * q[0]],
        dim=1,
        params={"k": np.ones(2)},
    )

    def expect(observable):
        options = dict(t_end=1.0, tolerance=0.05, seed=1, progress=False)
        return da.expect(system, da.midpoint(), ([1.0], [0.0]), observable, **options).value

    def hidden(q, p, params):
        return (q[0] * many[7] - q[0]) * 1e9 + q[0]

    before = expect(hidden)
    many[7] = 1 + 1e-9
    np.testing.assert_allclose(expect(hidden), 2 * before, rtol=1e-6)
    np.testing.assert_allclose(expect(lambda q, p, params: params["k"] * q[0]), [before] * 2)
    system.params["k"] = np.arange(1.0, 4.0)
    found = expect(lambda q, p, params: params["k"] * q[0])
    np.testing.assert_allclose(found, before * np.arange(1.0, 4.0))


@pytest.mark.slow
def test_numbers_are_computed_inside_a_jit_that_has_no_part_in_them():
    system = da.System(H=lambda q, p: (p @ p + q @ q) / 2, h=[lambda q, p: 0.3 * q[0]], dim=1)

    def value():
        options = dict(t_end=1.0, tolerance=0.05, seed=1, progress=False)
        return da.expect(
            system, da.midpoint(), ([1.0], [0.0]), lambda q, p: q[0], **options
        ).value  # fmt: skip

    outside = value()
    np.testing.assert_allclose(jax.jit(lambda x: x + float(value()))(1.0), 1 + outside)


@pytest.mark.slow
def test_maps_of_another_form_are_compiled_anew():
    """A shift that was zero is none."""
    system = da.System(
        H=lambda q, p, params: (p @ p + q @ q) / 2 + params["a"] * q[0],
        h=[lambda q, p, params: 0.15 * q[0] ** 2],
        dim=1,
        params={"a": np.array(0.0)},
    )

    def expect():
        options = dict(t_end=1.0, tolerance=0.05, seed=1, progress=False)
        return da.expect(
            system, da.srkw1(), ([1.0], [0.0]), lambda q, p, params: q[0], **options
        ).value  # fmt: skip

    before = expect()
    system.params["a"][...] = 1.0
    # The centre of the oscillation has moved by -1.
    np.testing.assert_allclose(expect(), before - (1 - np.cos(1.0)), atol=0.05)


def test_samplers_are_asked_in_the_type_of_the_run():
    seen = set()

    def start(key):
        q = jax.random.normal(key, (1,), float)
        seen.add(q.dtype)
        return q, jnp.zeros_like(q)

    still = da.System(H=lambda q, p: p[0] ** 2 / 2, f=(lambda q, p: jnp.ones(1),), dim=1)
    how = {"tolerance": 1.0, "dt": 0.5, "estimator": "plain"}
    with jax.enable_x64(False):
        da.expect(still, da.midpoint(), start, lambda q, p: q[0] ** 2, t_end=1.0, **how)
    assert seen == {np.dtype(np.float64)}


def driven_by(drive):
    return da.System(
        H=lambda q, p, t: (p[0] ** 2 + q[0] ** 2) / 2 - q[0] * drive(q, t),
        f=(lambda q, p, t: jnp.array([0.3]),), dim=1, time=True,
    )  # fmt: skip


FAST = 2 * jnp.pi * 16
DRIVES = {
    "whole periods": (lambda q, t: jnp.cos(FAST * t), 512),
    "between its zeros": (lambda q, t: jnp.sin(FAST * t), 512),
    "of what is at rest": (lambda q, t: q[0] * jnp.cos(FAST * t), 512),
    "a pulse": (lambda q, t: jnp.where((t > 1.3) & (t < 1.31), 200.0, 0.0), 4096),
    "slow": (lambda q, t: jnp.cos(t), 8),
    "a jump": (lambda q, t: jnp.where(t > 1.3, 2.0, 0.0), 16),
    "fast, and next to nothing": (lambda q, t: 1 + 1e-8 * jnp.cos(FAST * t), 1),
}


@pytest.mark.parametrize("name", DRIVES)
def test_steps_that_see_one_phase_of_a_drive_are_known(name):
    drive, least = DRIVES[name]
    system = driven_by(drive)
    steps = sorted({max(least // 16, 1), max(least // 2, 1), least, 2**14})
    seen = [sees_drive(system, ([0.0], [0.0]), 4.0, n) for n in steps]
    assert seen == [n >= least for n in steps]


def test_a_drive_is_looked_at_as_it_is_now():
    size = np.ones(1)
    system = driven_by(lambda q, t: size[0] * jnp.cos(FAST * t))
    start = [0.0], [0.0]
    assert not sees_drive(system, start, 4.0, 4)
    size[0] = 0.0
    assert sees_drive(system, start, 4.0, 4)


def test_a_drive_is_looked_at_inside_jit_too():
    system, found = driven_by(DRIVES["whole periods"][0]), []

    @jax.jit
    def inside(x):
        found.append(sees_drive(system, ([0.0], [0.0]), 4.0, 4))
        return x

    inside(1.0)
    assert found == [False]


def test_forces_that_are_infinite_are_no_drive_and_no_warning():
    infinite = driven_by(lambda q, t: jnp.cos(t) / jnp.zeros_like(t))
    assert sees_drive(infinite, ([0.0], [0.0]), 4.0, 4)


def test_a_force_that_is_no_number_at_one_time_hides_no_drive():
    drive = driven_by(lambda q, t: jnp.cos(FAST * t) + jnp.sin(t) / t)
    assert [sees_drive(drive, ([0.0], [0.0]), 4.0, n) for n in (4, 512)] == [False, True]


@pytest.mark.parametrize("is_joint", [False, True])
def test_opposite_noises_hide_no_drive(is_joint):
    """Both act along one momentum, and their sum is nothing."""

    def force(sign):
        return lambda q, p, t: sign * jnp.cos(FAST * t) * jnp.ones(1)

    each = {"f": (force(1), force(-1))}
    joint = {"f": lambda q, p, t, w: force(1)(q, p, t) * (w[0] - w[1]), "noises": 2}
    system = da.System(
        H=lambda q, p, t: (p[0] ** 2 + q[0] ** 2) / 2, dim=1, time=True,
        **(joint if is_joint else each),
    )  # fmt: skip
    assert [sees_drive(system, ([0.0], [0.0]), 4.0, n) for n in (4, 512)] == [False, True]


def test_of_a_driven_system_that_is_too_large_to_be_looked_at_nothing_is_said():
    dim = 2**21 + 1
    large = da.System(H=lambda q, p, t: jnp.sum(p**2) / 2 - q[0] * t, dim=dim, time=True)
    assert sees_drive(large, (np.zeros(dim), np.zeros(dim)), 1.0, 4)


def test_without_a_drive_all_steps_see_it():
    still = da.systems.van_der_pol()
    assert all(sees_drive(still, ([0.0], [0.0]), 4.0, n) for n in (1, 2**20))


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["multilevel", "plain"])
def test_drives_faster_than_the_largest_step_are_seen(estimator):
    """The truth is that of the equation without noise, which is linear."""
    w = float(FAST)
    truth = {
        "whole periods": np.cos(4.0) + (np.cos(4.0) - np.cos(4 * w)) / (w**2 - 1),
        "a pulse": np.cos(4.0) + 200 * (np.cos(2.69) - np.cos(2.7)),
    }
    for name, value in truth.items():
        found = da.expect(
            driven_by(DRIVES[name][0]), da.midpoint(), ([1.0], [0.0]), lambda q, p, t: q[0],
            t_end=4.0, tolerance=0.02, estimator=estimator, progress=False,
        )  # fmt: skip
        assert abs(found.value - value) < 1.5 * found.error < 0.03


@pytest.mark.slow
def test_levels_begin_somewhere_where_an_observable_hardly_varies():
    """Differences vary more than the energy itself, which they do less and less."""
    system = da.systems.damped_kubo()
    found = da.expect(
        system, da.stormer_verlet(), ([2.0], [0.0]), system.H, t_end=40.0, tolerance=1e-2,
        progress=False,
    )  # fmt: skip
    assert abs(found.value - kubo_energy(40.0)) < found.error < 0.01
    assert found.levels[0].dt < 0.25  # above, the method has no second moment
