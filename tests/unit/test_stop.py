"""Paths that stop at an event: where and when, what is observed, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import blocks, settings
from dalembert.ensemble.until import Until

START = ([-1.0], [0.0])


def double_well(q):
    return q[0] ** 4 / 4 - q[0] ** 2 / 2


def top(q, p, params):
    return q[0]


def higher(q, p, params):
    return q[0] - 0.5


def well():
    return da.systems.langevin(double_well, gamma=1.0, temperature=0.5)


def escape(stop=top, **options):
    given = {"dt": 0.1, "t_end": 10.0, "paths": 300, "save_every": 20, "progress": False} | options
    return da.simulate(well(), da.midpoint(), START, stop=stop, **given)


def escape_from(x):
    return da.simulate(well(), da.midpoint(), (x, x), dt=0.1, t_end=1.0, stop=top)


def swing(method, dt, stop=lambda q, p: p[0]):
    pendulum = da.System(H=lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0]), dim=1, name="free")
    return da.simulate(
        pendulum, method, ([1.0], [0.0]), dt=dt, t_end=4.0, stop=stop, keep="final",
        save_every=10**6, progress=False,
    )  # fmt: skip


def period():
    """4 K(sin²½) by the arithmetic-geometric mean."""
    a, b = 1.0, np.cos(0.5)
    for _ in range(8):
        a, b = (a + b) / 2, np.sqrt(a * b)
    return 2 * np.pi / a


@pytest.mark.slow
def test_the_period_of_a_pendulum():
    half = period() / 2
    errors = [abs(swing(da.midpoint(), dt).stopped.t[0] - half) for dt in (0.04, 0.02)]
    assert 3.9 < errors[0] / errors[1] < 4.1, "the order of midpoint"
    found = swing(da.additive_gauss(), 0.00125)
    assert abs(found.stopped.t[0] - half) < 2e-13
    assert abs(found.p[0, 0]) < 1e-15 and abs(found.q[0, 0] + 1) < 1e-13
    assert found.stopped.count == 1 and found.stopped.censored == 0


def test_times_states_and_survival_agree_with_the_kept_paths():
    axis = da.Axis(lambda q, p, params: p[0], 0.0, 1.5, bins=6)
    run = escape(keep="final", histograms={"p": da.Histogram(axis, every_save=True)})
    found, t = run.stopped, run.stopped.t
    has_stopped = ~np.isnan(t)
    assert 0 < found.count == has_stopped.sum() < 300
    assert found.censored == 300 - found.count
    np.testing.assert_allclose(found.mean, t[has_stopped].mean())
    np.testing.assert_allclose(
        found.stderr, t[has_stopped].std(ddof=1) / np.sqrt(has_stopped.sum())
    )
    np.testing.assert_allclose(found.restricted_mean, np.nan_to_num(t, nan=10.0).mean())
    alive = [(~(t <= when)).mean() for when in run.t]
    np.testing.assert_allclose(found.survival, alive)
    assert np.abs(run.q[has_stopped]).max() < 1e-12, "at the event"
    assert np.all(run.q[~has_stopped] < 0)
    energy = run.p[has_stopped, 0] ** 2 / 2
    np.testing.assert_allclose(found.at_event["energy"].mean, energy.mean())
    assert f"{found.count} stopped, {found.censored} did not" in repr(run)
    counts, edges = np.histogram(t[has_stopped], run.t)
    np.testing.assert_array_equal(found.times.counts, counts)
    assert found.times.outside == found.censored
    np.testing.assert_array_equal(found.times.edges[0], run.t)
    assert np.sum(found.times.density * np.diff(edges)) == pytest.approx(found.count / 300)
    momenta, _ = np.histogram(run.p[has_stopped], axis.edges)
    there = found.histograms["p"]
    np.testing.assert_array_equal(there.counts, momenta)
    assert momenta.min() > 0 and there.outside == found.count - momenta.sum() > 0
    assert run.histograms["p"].counts[-1].sum() > momenta.sum(), "a control: all paths"


@pytest.mark.slow
def test_the_printed_time_of_paths_that_have_not_all_stopped_is_the_restricted_mean():
    """At a rate of one, with the end at 2: the mean of those that stop is 0.69, the truth is 1."""
    system = da.System(
        H=lambda q, p: p @ p / 2, dim=1, name="free"
    )  # starts at -p with p = 1/τ, so that q is 0 at τ, exactly
    tau = np.random.default_rng(0).exponential(size=2000)
    start = (-np.ones((2000, 1)), 1 / tau[:, None])
    given = {"dt": 0.5, "paths": 2000, "save_every": 4, "progress": False}
    run = da.simulate(system, da.midpoint(), start, t_end=2.0, stop=lambda q, p: q[0], **given)
    found = run.stopped
    assert found.censored == np.sum(tau > 2) > 0
    np.testing.assert_allclose(found.restricted_mean, np.minimum(tau, 2).mean(), rtol=1e-9)
    assert found.mean < 0.8 < found.restricted_mean, "a control: they differ much"
    text = repr(run)
    assert f"E[min(τ, 2)] = {found.restricted_mean:.6g}" in text
    assert f"{found.survival[-1]:.3g} on their way at 2" in text
    assert f"{found.mean:.6g}" not in text
    assert f"stopped: {found}" in text and "array" not in str(found)
    whole = da.simulate(system, da.midpoint(), start, t_end=12.0, stop=lambda q, p: q[0], **given)
    assert whole.stopped.censored == 0 and f"mean time {tau.mean():.6g}" in repr(whole)


@pytest.mark.slow
def test_paths_before_their_event_are_those_that_do_not_stop():
    stopped, free = escape(keep="all"), escape(None, keep="all")
    until = stopped.stopped.t
    for k in range(len(until)):
        before = ~(stopped.t >= until[k])
        np.testing.assert_allclose(stopped.q[before, k], free.q[before, k], rtol=1e-9)
        after = stopped.q[~before, k]
        assert np.all(after == after[:1]), "they stay"
    with pytest.raises(ValueError, match="no path of this run stops"):
        _ = free.stopped


@pytest.mark.slow
def test_every_statistic_sees_where_paths_have_stopped(tmp_path):
    run = escape(
        observe={"q": lambda q, p, params: q[0]},
        histograms={"q": da.Histogram(da.Axis(lambda q, p, params: q[0], -2.5, 0.01, bins=5))},
        statistics={"cov": da.Covariance({"q": lambda q, p, params: q[0]})},
    )
    assert run.histograms["q"].outside == 0
    assert run.maximum["q"][-1] < 1e-12
    np.testing.assert_allclose(run.statistics["cov"].mean[-1, 0], run.mean["q"][-1])
    run.save(tmp_path / "run.npz")
    again = da.load(tmp_path / "run.npz").stopped
    assert again.mean == run.stopped.mean and again.count == run.stopped.count
    assert np.array_equal(again.histograms["q"].counts, run.stopped.histograms["q"].counts)
    assert np.array_equal(again.times.counts, run.stopped.times.counts)


def test_the_same_bits_and_another_event_is_another_run(tmp_path):
    usual = escape()
    kept = escape(checkpoint=tmp_path / "run", workers=1)
    assert kept.stopped.mean == usual.stopped.mean
    assert escape(checkpoint=tmp_path / "run").stopped.mean == usual.stopped.mean
    with pytest.raises(ValueError, match="stop"):
        escape(higher, checkpoint=tmp_path / "run")


@pytest.mark.parametrize("save_every", [20, pytest.param(10**6, marks=pytest.mark.slow)])
def test_a_run_goes_on_to_a_later_end(tmp_path, monkeypatch, save_every):
    """Those that have stopped stay; also where only the first states and the last are saved."""
    monkeypatch.setattr(settings, "CPU_GRAIN", settings.CPU_GRAIN._replace(stretch=20))
    whole = escape(save_every=save_every).stopped
    early = escape(save_every=save_every, checkpoint=tmp_path / "run", t_end=5.0).stopped
    taken = []
    monkeypatch.setattr(blocks, "_note", lambda *note: taken.append(note[2:4]))
    later = escape(save_every=save_every, checkpoint=tmp_path / "run").stopped
    assert 0 < early.count < later.count == whole.count
    assert later.mean == whole.mean and later.restricted_mean == whole.restricted_mean
    assert np.array_equal(later.survival, whole.survival)
    assert early.restricted_mean < 5.0 < early.restricted_mean + later.restricted_mean
    assert min(first for first, _ in taken) > 0, "the first steps are not taken again"


@pytest.mark.slow
def test_a_path_may_start_on_the_section_that_it_returns_to():
    found = swing(da.additive_gauss(), 0.02, stop=lambda q, p: (q[0] - 1) * 1.0)
    assert found.stopped.count == 0, "it comes back after a whole period only"
    found = swing(da.additive_gauss(), 0.02, stop=lambda q, p: p[0])
    assert found.stopped.count == 1


@pytest.mark.slow
def test_engines_agree():
    fast, slow = (escape(engine=engine, keep="final") for engine in (None, "XLA"))
    assert fast.provenance["code"] == "vector code (LLVM)"
    np.testing.assert_allclose(fast.stopped.t, slow.stopped.t, rtol=1e-9)


@pytest.mark.slow
def test_events_that_cannot_be_written_out_take_a_slower_engine():
    def rounds(q, p, params):
        return jax.lax.while_loop(lambda x: jnp.abs(x) > 10, lambda x: x / 2, q[0])

    found = escape(rounds, keep="final")
    assert found.provenance["code"] == "arrays (XLA)"
    reason = found.provenance["refused_engines"]["vector code (LLVM)"]
    assert "no straight-line form for stop" in reason
    np.testing.assert_allclose(found.stopped.t, escape(keep="final").stopped.t, rtol=1e-9)


@pytest.mark.slow
def test_weak_methods_and_large_systems_stop_too():
    weak = da.simulate(
        well(), da.srkw1(), START, dt=0.1, t_end=10.0, paths=300, stop=top, progress=False
    )
    assert weak.stopped.count > 0
    chain = da.systems.fput()
    q = np.linspace(0.1, 0.2, chain.dim).reshape(chain.shape)
    start = (q, 0 * q)
    run = da.simulate(
        chain, da.midpoint(), start, dt=0.1, t_end=3.0, paths=2, keep="final", progress=False,
        stop=lambda q, p, *params: jnp.ravel(q)[0] - 0.09,
    )  # fmt: skip
    has_stopped = ~np.isnan(run.stopped.t)
    assert has_stopped.any()
    np.testing.assert_allclose(run.q.reshape(2, -1)[has_stopped, 0], 0.09, rtol=1e-12)


@pytest.mark.slow
def test_events_that_are_not_finite_are_named():
    with pytest.raises(ValueError, match="stop gives nan at the start of path 0: the event must"):
        escape(lambda q, p, params: jnp.sqrt(q[0]))
    starts = (np.array([[1.0], [-1.0]]), np.zeros((2, 1)))
    with pytest.raises(ValueError, match="stop gives nan at the start of path 1"):
        da.simulate(
            well(), da.midpoint(), starts, dt=0.1, t_end=1.0, paths=2, progress=False,
            stop=lambda q, p, params: jnp.sqrt(q[0]),
        )  # fmt: skip
    with pytest.warns(RuntimeWarning, match="or the event is not: stop must be a finite number"):
        escape(lambda q, p, params: jnp.sqrt(q[0] + 1.1) - 5)
    with pytest.warns(RuntimeWarning, match="paths failed") as usual:
        da.simulate(
            da.System(H=lambda q, p: p @ p / 2 - jnp.sum(q**4), dim=1), da.heun(), START,
            dt=0.5, t_end=50.0, progress=False,
        )  # fmt: skip
    assert "event" not in str(usual[0].message), "a control: without stop"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_path_that_starts_at_its_event_or_beyond_stops_when_it_comes_back(sign):
    """A free oscillator: from q = 0 it is there again after π, from q = 1 and p = 0 after π/2."""
    system = da.System(H=lambda q, p: (q @ q + p @ p) / 2, dim=1, name="oscillator")
    starts = (np.array([[0.0], [sign], [-sign]]), np.array([[sign], [0.0], [0.0]]) * 1.0)
    run = da.simulate(
        system, da.midpoint(), starts, dt=0.01, t_end=4.0, paths=3, save_every=400,
        stop=lambda q, p: q[0], keep="final", progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(run.stopped.t, np.pi * np.array([1, 0.5, 0.5]), rtol=1e-4)


def escape_from_both(stop, **options):
    """Half of the paths start below the top, half above."""

    def sampler(key):
        q = jnp.where(jax.random.bernoulli(key, shape=(1,)), 1.0, -1.0)
        return q, 0 * q

    given = {"dt": 0.1, "t_end": 1.0, "paths": 100, "progress": False} | options
    return da.simulate(well(), da.midpoint(), sampler, stop=stop, **given)


@pytest.mark.parametrize(
    "stop",
    [
        lambda q, p, params: jnp.where(q[0] > 0, 1.0, 0.0),
        lambda q, p, params: jnp.maximum(q[0], 0.0),
        lambda q, p, params: jnp.maximum(q[0] + 1, 0.0),
        lambda q, p, params: jnp.floor(q[0] + 1.5),
        lambda q, p, params: 0 * q[0],
    ],
    ids=["indicator", "one side", "at the edge", "steps", "zero"],
)
def test_events_that_are_zero_on_a_region_are_refused(stop):
    with pytest.raises(ValueError, match="stop is 0 on a whole region, where path 0 starts"):
        escape(stop)
    with pytest.raises(ValueError, match="stop is 0 on a whole region"):
        escape_from_both(lambda q, p, params: jnp.where(q[0] < 0, stop(q, p, params), 1.0))


def starts(stop, q, p=0.0, *, system=None, direction="both", dtype=np.float64):
    """The value of an event that a path begins with."""
    event = da.Event(stop, direction)
    until = Until.checked(system or FREE, da.midpoint(), None, event, 0.1, 1.0, dtype)
    return until._initial(([q], [p]))[1][-1]


FREE = da.System(H=lambda q, p: p @ p / 2, dim=1, name="free")


def test_events_that_are_zero_at_a_start_alone_are_no_region():
    for section in (
        lambda q, p: q[0] - 0.3,
        lambda q, p: (q[0] - 0.3) ** 3 + p[0],
        lambda q, p: (q[0] - 0.3) * (q[0] - 5),
        lambda q, p: jnp.where(q[0] > 0.3, 1.0, -1.0) * jnp.abs(q[0] - 0.3),
        lambda q, p: 1 - jnp.cos(p[0]),
    ):
        assert starts(section, 0.3) == 0
    driven = da.System(H=lambda q, p, t: p @ p / 2 - q[0] * t, dim=1, time=True)
    assert starts(lambda q, p, t: jnp.sin(t), 0.3, system=driven) == 0


def test_starts_at_an_event_but_for_rounding_are_at_it():
    for stop, q, p in (
        (lambda q, p: q[0] - 0.1 - 0.2, 0.3, 0.0),
        (lambda q, p: 10 * (q[0] - 0.1 - 0.2), 0.3, 0.0),
        (lambda q, p: q[0] ** 2 + p[0] ** 2 - 1, np.sin(0.7), np.cos(0.7)),
        (lambda q, p: q[0] - 1e9 - 0.1, 1e9 + 0.1, 0.0),
        (lambda q, p: q[0] / 3e-9 - 0.1, 3e-10, 0.0),
    ):
        assert starts(stop, q, p) == 0
        assert starts(stop, q * (1 + 1e-12), p * (1 + 1e-12)) > 0, "a control"
        assert starts(stop, q * (1 - 1e-12), p * (1 - 1e-12)) < 0, "a control"
    nearly = 0.3 * (1 + 1e-8)
    assert starts(lambda q, p: q[0] - 0.3, nearly, dtype=np.float32) == 0
    assert starts(lambda q, p: q[0] - 0.3, nearly) > 0
    # With the zero of rounding it would stop at once.
    start = ([0.3], [-1.0])
    run = da.simulate(
        FREE, da.midpoint(), start, dt=0.1, t_end=1.0, stop=lambda q, p: q[0] - 0.1 - 0.2,
        progress=False,
    )  # fmt: skip
    assert run.stopped.count == 0


@pytest.mark.parametrize(
    ("far", "near", "dtype"), [(0.0, 1e-3, np.float32), (1e3, 1e-3, np.float32), (1e9, 1e-6, float)]
)
def test_a_small_coordinate_beside_a_large_one_is_not_rounding(far, near, dtype):
    run = da.simulate(
        da.System(H=lambda q, p: p @ p / 2, dim=2), da.midpoint(), ([far, near], [0.0, -1.0]),
        dt=0.1, t_end=1.0, stop=lambda q, p: q[1], progress=False, dtype=dtype,
    )  # fmt: skip
    assert run.stopped.count == 1 and run.stopped.above == 1


def test_positions_that_are_no_numbers_are_not_blamed_on_the_event():
    def sampler(key):
        return jnp.full(1, jnp.nan), jax.random.normal(key, (1,))

    for start in (sampler, ([np.nan], [1.0])):
        with pytest.raises(ValueError, match=r"NaN|finite") as error:
            da.simulate(
                FREE, da.midpoint(), start, dt=0.1, t_end=1.0, stop=lambda q, p: q[0] - 1,
                paths=2, progress=False,
            )  # fmt: skip
        assert "the event must be" not in str(error.value)


def test_one_direction_alone_ends_a_path():
    """A free oscillator from q = 0 with p = 1: down through zero at π, up at 2π."""
    system = da.System(H=lambda q, p: (q @ q + p @ p) / 2, dim=1, name="oscillator")
    for direction, time in (("both", np.pi), ("down", np.pi), ("up", 2 * np.pi)):
        for p, t in ((1.0, time), (-1.0, 3 * np.pi - time if direction != "both" else np.pi)):
            run = da.simulate(
                system, da.midpoint(), ([0.0], [p]), dt=0.01, t_end=7.0, save_every=700,
                stop=da.Event(lambda q, p: q[0], direction), progress=False,
            )  # fmt: skip
            np.testing.assert_allclose(run.stopped.mean, t, rtol=1e-4)


def test_a_direction_is_part_of_what_a_run_is(tmp_path):
    given = {"paths": 4, "t_end": 0.2, "checkpoint": tmp_path / "run"}
    assert escape(da.Event(top, "up"), **given).provenance["method"]["direction"] == "up"
    with pytest.raises(ValueError, match=r"What differs: method\.direction"):
        escape(top, **given)


def test_events_that_are_true_at_the_start_are_refused_where_that_is_known():
    for stop, direction, side in ((top, "down", "<"), (lambda *z: -top(*z), "up", ">")):
        with pytest.raises(ValueError, match=f"true at the start of path 0: stop {side} 0 there"):
            escape(da.Event(stop, direction))
        with pytest.raises(ValueError, match=f"true at the start of path .: stop {side} 0 there"):
            escape_from_both(da.Event(stop, direction))
    with pytest.raises(ValueError, match="stop gives nan at the start of path"):
        escape_from_both(lambda q, p, params: jnp.sqrt(q[0]))


@pytest.mark.slow
def test_a_run_says_from_which_side_paths_came():
    run = escape_from_both(top, keep="final")
    found = run.stopped
    assert 30 < found.below < 70 and found.below + found.above == 100
    text = f"{found.below} began where stop < 0, {found.above} where stop > 0, on both sides"
    assert text in repr(run)
    far = escape(lambda q, p, params: q[0] + 2, t_end=1.0, save_every=1000).stopped
    assert (far.below, far.above) == (0, 300)
    section = escape(lambda q, p, params: p[0], t_end=0.5)
    assert (section.stopped.below, section.stopped.above) == (0, 0)
    assert "began where stop = 0" in repr(section) and "both sides" not in repr(section)


def test_what_is_no_event():
    with pytest.raises(TypeError, match="an event must be a function"):
        da.Event(0.5)
    with pytest.raises(ValueError, match='is "up", "down" or "both", not \'left\''):
        da.Event(top, "left")
    with pytest.raises(TypeError, match="It must change its sign at the event"):
        escape(lambda q, p, params: q[0] > 0)
    with pytest.raises(ValueError, match="float32 does not tell the times"):
        escape(dtype=np.float32, t_end=1e5)
    with pytest.raises(TypeError, match="observe must map names to functions"):
        escape(observe=top)
    with pytest.raises(TypeError, match="stop must be a function"):
        escape(0.5)
    with pytest.raises(ValueError, match="stop must give one number"):
        escape(lambda q, p, params: q)
    with pytest.raises(TypeError, match="stop cannot be traced by JAX"):
        escape(lambda q, p, params: float(q[0]))
    with pytest.raises(ValueError, match="the name 'stopped' is taken"):
        escape(statistics={"stopped": da.Mean(top)})
    with pytest.raises(ValueError, match="stop cannot be had inside jit"):
        jax.jit(lambda x: escape_from(x).mean["energy"])(jnp.ones(1))
