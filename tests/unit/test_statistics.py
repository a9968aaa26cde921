"""Statistics: all of them by one protocol, in every way that a run can be cut, kept and shown.

Error bars are compared with the spread of many samples of a process whose statistics are known.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dalembert as da
import outside_statistic
from dalembert.ensemble import blocks, settings
from dalembert.statistics.histogram import Binned
from dalembert.statistics.observing import Observing, on_host
from dalembert.statistics.statistic import Recordable, Unknown
from dalembert.statistics.stop_times import StopTimes
from outside_statistic import SignChanges
from tiers import tiered

SYSTEM = da.systems.langevin(gamma=0.5)
PATHS = 150


def position(q, p, params):
    return q[0]


def momentum(q, p, params):
    return p[0]


def both(q, p, params):
    return jnp.concatenate([q, p])


STATISTICS = {
    "mean": da.Mean(both),
    "cov": da.Covariance({"q": position, "z": both}),
    "average": da.TimeAverage(both, burn_in=2.0),
    "rho": da.Autocorrelation(position, lags=5, burn_in=1.0),
    "rhos": da.Autocorrelation(both, lags=(1, 3)),
    "bins": da.Histogram(da.Axis(both, -2.0, 2.0, bins=5), every_save=True),
    "pairs": da.Histogram(da.Axis(both, -2, 2, bins=4), da.Axis(both, -1, 1, bins=3)),
    "changes": SignChanges(momentum),
}
START = np.random.default_rng(5).normal(size=(2, PATHS, 1))


def simulate(system=SYSTEM, **options):
    given = {"dt": 0.25, "t_end": 10.0, "paths": PATHS, "save_every": 2, "progress": False}
    given |= {"statistics": STATISTICS, "keep": "all"} | options
    return da.simulate(system, da.midpoint(), tuple(START), **given)


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "CPU_GRAIN", settings.CPU_GRAIN._replace(block_paths=64))
        yield


@pytest.fixture(scope="module")
def run():
    return simulate()


def bits(run):
    return {
        f"{key}/{name}": (x.dtype, x.tobytes())
        for key, (_, data) in run.observed.items()
        for name, x in data.items()
    }


def close(a, b, **tolerance):
    """Whether two trees of arrays agree, with NaN in the same places."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    options = {"rtol": 1e-9, "atol": 1e-11, "equal_nan": True} | tolerance
    return all(np.allclose(np.asarray(x), np.asarray(y), **options) for x, y in pairs)


def test_the_numbers_are_those_of_numpy(run):
    q, p, found = run.q[..., 0], run.p[..., 0], run.statistics
    z = np.stack([q, p], axis=-1)
    np.testing.assert_allclose(found["mean"].mean, z.mean(axis=1), atol=1e-14)
    for k in range(len(run.t)):
        columns = np.stack([q[k], q[k], p[k]])
        np.testing.assert_allclose(found["cov"].covariance[k], np.cov(columns), rtol=1e-12)
        np.testing.assert_allclose(found["cov"].correlation[k], np.corrcoef(columns), rtol=1e-12)
        expected, _ = np.histogram(z[k], 5, (-2, 2))
        np.testing.assert_array_equal(found["bins"].counts[k], expected)
        assert found["bins"].outside[k] == 2 * PATHS - expected.sum()
    pairs, *_ = np.histogram2d(*[z[-1].ravel()] * 2, (4, 3), ((-2, 2), (-1, 1)))
    np.testing.assert_array_equal(found["pairs"].counts, pairs)
    averages = z[run.t >= 2.0].mean(axis=0)
    np.testing.assert_allclose(found["average"].mean, averages.mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(
        found["average"].stderr, averages.std(axis=0, ddof=1) / np.sqrt(PATHS), rtol=1e-12
    )
    for name, x, lags in (("rho", q[run.t >= 1.0], range(6)), ("rhos", z, (1, 3))):
        variance = ((x - x.mean(axis=(0, 1))) ** 2).mean(axis=(0, 1))
        for k, lag in enumerate(lags):
            halves = ((x[lag:] - x[: len(x) - lag]) ** 2).mean(axis=(0, 1)) / 2
            expected = 1 - halves / variance
            np.testing.assert_allclose(found[name].correlation[k], expected, atol=1e-12)
    np.testing.assert_allclose(found["rhos"].lag, [0.5, 1.5])
    assert found["changes"].mean == np.mean(np.sum(p[1:] * p[:-1] < 0, axis=0))


@pytest.mark.parametrize(
    "cut",
    tiered(["one worker", "short legs", "a resumed checkpoint"], fast=["a resumed checkpoint"]),
)
def test_however_a_run_is_cut_it_has_the_same_bits(run, cut, monkeypatch, tmp_path):
    options = {"workers": 1}
    if cut != "one worker":
        monkeypatch.setattr(blocks, "LEG_SECONDS", 0.0)
        monkeypatch.setattr(blocks, "FIRST_LEG", 1)
    if cut == "a resumed checkpoint":
        options["checkpoint"] = da.Checkpoint(tmp_path / "run.ckpt", seconds=1e9)
        note, legs = blocks._note, []

        def stop_soon(work, *rest):
            note(work, *rest)
            legs.append(rest)
            if len(legs) == 30:
                work.stop.set()

        with monkeypatch.context() as patch, pytest.raises(da.Interrupted):
            patch.setattr(blocks, "_note", stop_soon)
            simulate(**options)
    assert bits(simulate(**options)) == bits(run)


def test_every_engine_and_every_merge_gives_the_same_to_rounding(run, monkeypatch):
    monkeypatch.setattr(settings, "LEAST_BLOCK_PATHS", 256)
    assert close(simulate(engine="XLA").statistics, run.statistics)


def traced(params, **options):
    """The run as a function of parameters, also outside of transformations."""
    return simulate(SYSTEM.with_params(**params), **options)


INSIDE = {"some": ["rho", "bins"], "all": list(STATISTICS)}


@pytest.mark.parametrize("which", tiered(INSIDE, fast=["some"]))
def test_inside_jit(run, which):
    given = {name: STATISTICS[name] for name in INSIDE[which]}
    inside = jax.jit(lambda params: traced(params, statistics=given))(SYSTEM.params)
    assert close(inside.statistics, {name: run.statistics[name] for name in given})
    assert close(inside.moments, run.moments)
    np.testing.assert_array_equal(inside.count, run.count)
    assert close(inside.statistics["bins"].density, run.statistics["bins"].density)


SHORT = {"t_end": 2.5, "statistics": {name: STATISTICS[name] for name in ("cov", "bins", "rhos")}}


@pytest.mark.slow
def test_inside_vmap_and_grad():
    some = jnp.asarray([0.5, 1.0])

    @jax.jit
    def run_at(temperature):
        return traced({"temperature": temperature}, **SHORT)

    both = jax.vmap(run_at)(some)
    for k in range(2):
        assert close(jax.tree.map(lambda x, k=k: x[k], both), run_at(some[k]))
    assert close(both.statistics["bins"].density[1], run_at(some[1]).statistics["bins"].density)

    def observed(temperature):
        found = run_at(temperature).statistics
        return found["cov"].covariance[-1, 0, 2] + found["rhos"].correlation[0, 0]

    slope = (observed(1.0 + 1e-5) - observed(1.0 - 1e-5)) / 2e-5
    assert float(jax.jit(jax.grad(observed))(1.0)) == pytest.approx(float(slope), rel=1e-6)


def test_files_and_datasets(run, tmp_path):
    run.save(tmp_path / "run.npz")
    data = run.to_xarray()
    for again in (da.load(tmp_path / "run.npz"), da.Run.from_xarray(data)):
        assert bits(again) == bits(run) and repr(again) == repr(run)
        assert close(again.statistics, run.statistics, rtol=0, atol=0)
    assert data.cov_stderr.dims == ("time", "cov_row", "cov_column")
    assert data.rhos_correlation.dims == ("rhos_lag", "rhos_component_0")
    assert data.average_mean.dims == ("average_component_0",)
    np.testing.assert_array_equal(data.bins_counts, run.statistics["bins"].counts)
    assert data.changes_mean == run.statistics["changes"].mean
    assert "changes of sign" in repr(run)


def test_a_statistic_of_ones_own_takes_at_most_sixty_lines():
    assert len(inspect.getsource(outside_statistic).splitlines()) <= 60


def test_a_statistic_whose_class_is_not_there_keeps_its_data(run, tmp_path, monkeypatch):
    run.save(tmp_path / "run.npz")
    with monkeypatch.context() as patch:
        patch.delitem(Recordable.known, "outside_statistic.SignChanges")
        blind = da.load(tmp_path / "run.npz")
        raw = blind.statistics["changes"]
        assert raw["sum"] == run.observed["statistics/changes"].data["sum"]
        with pytest.raises(AttributeError, match=r"no 'mean', but raw arrays paths, .*da\.load"):
            _ = raw.mean
        assert "outside_statistic.SignChanges is not known here" in repr(blind)
        blind.to_xarray()
        blind.save(tmp_path / "again.npz")
    again = da.load(tmp_path / "again.npz")
    assert again.statistics["changes"] == run.statistics["changes"]
    with pytest.raises(TypeError, match="functions are not saved with a run"):
        again.observed["statistics/changes"].statistic.of(1.0, 2.0)


def test_other_code_of_the_same_name_does_not_go_on_from_a_checkpoint(tmp_path, monkeypatch):
    options = {"statistics": {"changes": SignChanges(momentum)}, "t_end": 0.5, "keep": "nothing"}
    simulate(checkpoint=tmp_path / "run.ckpt", **options)

    def finish(self, memory, mask):
        changes = jnp.where(mask, memory[1] + 1, 0)
        return {"paths": jnp.sum(mask), "sum": jnp.sum(changes), "squares": jnp.sum(changes**2)}

    monkeypatch.setattr(SignChanges, "finish", finish)
    with pytest.raises(ValueError, match=r"another run.*statistics\.changes\.computes"):
        simulate(checkpoint=tmp_path / "run.ckpt", **options)


def test_failed_paths_do_not_count():
    system = da.System(
        H=lambda q, p: p[0] ** 2 / 2 + q[0] ** 4 / 4, h=[lambda q, p: 0.1 * q[0]], dim=1
    )
    q0 = np.array([0.1, 60.0, 70.0, -0.2, -0.3])[:, None]
    found = {
        "average": da.TimeAverage(lambda q, p: q[0]),
        "cov": da.Covariance({"q": lambda q, p: q[0]}),
    }
    with pytest.warns(RuntimeWarning, match="paths failed"):
        run = da.simulate(
            system, da.heun(), (q0, 0 * q0), dt=0.1, t_end=2.0, paths=5, keep="all",
            statistics=found, progress=False,
        )  # fmt: skip
    fine = run.q[:, [0, 3, 4], 0]
    average = run.statistics["average"]
    assert average.count == 3 and average.mean == pytest.approx(fine.mean())
    cov = run.statistics["cov"]
    assert cov.count.tolist() == run.count.tolist() and cov.count[-1] == 3
    assert cov.covariance[-1, 0, 0] == pytest.approx(np.var(fine[-1], ddof=1))


@jax.jit
def noise(key):
    """A stationary autoregression with correlation 0.8 from save to save, (saves, paths, 2)."""
    x = jax.random.normal(key, (60, 200, 2))

    def step(x, e):
        x = 0.8 * x + 0.6 * e
        return x, x

    return jnp.concatenate([x[:1], lax.scan(step, x[0], x[1:])[1]])


def collected(statistic, x, mask=None):
    """What a statistic has of a block of given values, first axis: saves."""
    times = jnp.arange(len(x), dtype=x.dtype)
    mask = jnp.ones(x.shape[1], bool) if mask is None else mask
    names = list(statistic.functions())

    def one(memory, now):
        values, t = now
        return statistic.observe(memory, dict.fromkeys(names, values), mask, t)

    memory, rows = lax.scan(one, statistic.start(dict.fromkeys(names, x[0])), (x, times))
    return {**rows, **statistic.finish(memory, mask)}


def estimates(statistic, shown, samples=48):
    """An estimate and its standard error, of many samples of the autoregression."""
    keys = jax.random.split(jax.random.key(1), samples)
    data = jax.jit(jax.vmap(lambda key: collected(statistic, noise(key))))(keys)
    each = (on_host(jax.tree.map(lambda x, i=i: x[i], data)) for i in range(samples))
    found = [shown(statistic.result(one, np.arange(60.0))) for one in each]
    return (np.asarray(x) for x in zip(*found, strict=True))


BINS = da.Histogram(da.Axis(both, -3.0, 3.0, bins=3), every_save=True)
KNOWN = {
    "covariance": (
        da.Covariance({"x": both}),
        lambda r: (r.covariance[-1].ravel()[[0, 1, 3]], r.stderr[-1].ravel()[[0, 1, 3]]),
        [1.0, 0.0, 1.0],
    ),
    "average": (da.TimeAverage(both, burn_in=10.0), lambda r: (r.mean, r.stderr), [0.0, 0.0]),
    "correlation": (
        da.Autocorrelation(both, lags=4),
        lambda r: (r.correlation[1:, 0], r.stderr[1:, 0]),
        [0.8, 0.64, 0.512, 0.4096],
    ),
    "integrated time": (
        da.Autocorrelation(both, lags=55),
        lambda r: (r.time, r.time_stderr),
        [9.0, 9.0],
    ),
    "entries in bins": (BINS, lambda r: (r.density[-1][1:2], r.stderr[-1][1:2]), [0.341344746]),
}


@pytest.mark.parametrize("case", tiered(KNOWN, fast=["covariance", "integrated time"]))
def test_error_bars_are_those_of_many_samples(case):
    """Deviations over error bars have the size 1 to a quarter; with half the bars they do not."""
    statistic, shown, exact = KNOWN[case]
    value, error = estimates(statistic, shown)
    sizes = np.sqrt(np.mean(((value - exact) / error) ** 2, axis=0))
    assert np.all((sizes > 0.7) & (sizes < 1.4)), sizes
    assert np.all(2 * sizes > 1.4), "error bars half as long would pass"


@pytest.mark.parametrize("name", tiered(STATISTICS, fast=["mean", "cov", "rho", "bins"]))
def test_merging_is_associative_and_is_that_of_one_block(name):
    statistic, x = STATISTICS[name], noise(jax.random.key(2))[:20]
    if name in ("rho", "changes"):
        x = x[..., 0]
    gather = jax.jit(lambda x: collected(statistic, x))
    a, b, c = (on_host(gather(x[:, part])) for part in (slice(64), slice(64, 128), slice(128, 200)))
    left = statistic.merge(statistic.merge(a, b), c)
    right = statistic.merge(a, statistic.merge(b, c))
    whole, t = on_host(gather(x)), np.arange(20.0)
    shown = [statistic.result(data, t) for data in (left, right, whole)]
    assert close(*shown[:2]) and close(shown[0], shown[2])
    assert all(x.dtype.kind == left[k].dtype.kind for k, x in whole.items())


def test_entries_that_say_the_same_are_not_taken_for_independent():
    x = noise(jax.random.key(3))[:1, :, :1]
    four = on_host(collected(BINS, jnp.repeat(x, 4, axis=2)))
    found = BINS.result(four, np.zeros(1))
    naive = da.Binned(found.counts, found.outside, found.edges)
    ratio = found.stderr[0, 1] / naive.stderr[0, 1]
    assert 1.4 < ratio < 2.6, "four copies make the naive error half of the right one"


def test_a_large_mean_takes_no_digits():
    x = noise(jax.random.key(4))
    for statistic in (da.Autocorrelation(both, lags=3), da.Covariance({"x": both})):
        near, far = (on_host(collected(statistic, x + shift)) for shift in (0.0, 2.0**20))
        near, far = (statistic.result(data, np.arange(60.0)) for data in (near, far))
        assert close(near.correlation, far.correlation, rtol=0, atol=1e-8)


def test_what_the_sample_does_not_support_is_nan():
    x = noise(jax.random.key(5))
    rho, cov = da.Autocorrelation(both, lags=3), da.Covariance({"x": both})
    one = jnp.arange(200) < 1
    assert np.isnan(cov.result(on_host(collected(cov, x, one)), np.arange(60.0)).covariance).all()
    alone = rho.result(on_host(collected(rho, x, one)), np.arange(60.0))
    assert np.isfinite(alone.correlation).all() and np.isnan(alone.stderr[1:]).all()
    everyone = rho.result(on_host(collected(rho, x)), np.arange(60.0))
    assert np.isnan(everyone.time).all() and np.isnan(everyone.effective).all()
    assert "so many that the correlation decays" in rho.summary(everyone)
    same = cov.result(on_host(collected(cov, jnp.full((3, 200, 1), 0.1))), np.arange(3.0))
    assert np.isnan(same.correlation).all() and np.allclose(same.covariance, 0, atol=1e-30)


COUNTS = {
    "count",
    "censored",
    "below",
    "above",
    "counts",
    "outside",
    "counts_of_groups",
    "outside_of_groups",
}
FOREKNOWN = {"lag", "t", "edges", "names"}


def of_nobody(result, name=""):
    """What a result claims of no path: counts that are not 0, other numbers that are not NaN."""
    if hasattr(result, "_asdict"):
        result = result._asdict()
    elif is_dataclass(result):
        result = {f.name: getattr(result, f.name) for f in fields(result)}
    if isinstance(result, Mapping):
        for key, value in result.items():
            if key not in FOREKNOWN and value is not None:
                yield from of_nobody(value, key)
    elif not np.all(np.asarray(result) == 0 if name in COUNTS else np.isnan(result)):
        yield name, result


def nowhere(q, p, params):
    return jnp.log(-1 - q[0] ** 2)


def where_every_path_fails(q, stop=None):
    inside = da.Axis(position, -2, 2, bins=4)
    statistics = {name: s for name, s in STATISTICS.items() if name != "changes"}
    statistics |= {"at the end": da.Histogram(inside), "always": da.Histogram(inside, None, True)}
    return da.simulate(
        SYSTEM, da.midpoint(), (q, START[1]), dt=0.25, t_end=10.0, paths=PATHS, save_every=2,
        observe={"x": nowhere}, statistics=statistics, stop=stop,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("stop", [None, lambda q, p, params: q[0] - 1])
def test_a_run_in_which_every_path_failed_knows_nothing(stop):
    with pytest.warns(RuntimeWarning, match="150 of 150 paths failed"):
        run = where_every_path_fails(START[0], stop)
    assert run.failed == PATHS and repr(run).count("no path left") == 6
    found = {"x": run.moments, **run.statistics}
    assert not [(name, *x) for name, result in found.items() for x in of_nobody(result)]
    with pytest.raises(ValueError, match="a density needs at least one path"):
        print(run.statistics["bins"].density)
    ours = {
        kind
        for name, kind in Recordable.known.items()
        if issubclass(kind, da.Statistic) and name.startswith("dalembert.")
    }
    tried = {type(statistic) for statistic, _ in run.observed.values()}
    assert tried | {da.Statistic, Unknown} == ours - (set() if stop else {StopTimes})


@pytest.mark.slow
def test_nor_does_one_inside_jit():
    @jax.jit
    def run(q):
        run = where_every_path_fails(q)
        bins = [x for x in run.statistics.values() if isinstance(x, Binned)]
        densities = [y for x in bins for y in (x.density, x.stderr)]
        means = dict(run.mean), dict(run.stderr)
        return run.failed, {"x": run.moments, **run.statistics}, (means, densities)

    failed, found, numbers = run(START[0])
    assert failed == PATHS
    assert not [(name, *x) for name, result in found.items() for x in of_nobody(result)]
    assert all(np.isnan(x).all() for x in jax.tree.leaves(numbers))


def test_shapes_are_foreseen():
    """That of histograms without a trace, for the estimate of the memory."""
    statistics = tuple((f"statistics/{name}", s) for name, s in STATISTICS.items())
    observing = Observing.checked(SYSTEM, np.dtype(np.float64), statistics)
    for key, (values, *found) in observing.shapes(70).items():
        statistic = dict(statistics)[key]
        derived = da.Statistic.shapes(statistic, values)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), found) == jax.tree.map(
            lambda x: (x.shape, x.dtype), list(derived)
        )


class Odd(SignChanges):
    """A statistic that leaves what it should not."""

    def observe(self, memory, values, mask, t):
        return memory, jnp.sum(mask)


class Loose(SignChanges):
    __hash__ = None


@dataclass(frozen=True)
class Unmerged(da.Statistic):
    of: Any

    def functions(self):
        return {"of": self.of}


class Masked(SignChanges):
    def start(self, values, mask):
        return ()


class RowAlone(SignChanges):
    def observe(self, memory, values, mask, t):
        return {"paths": jnp.sum(mask)}


class MemoryAlone(SignChanges):
    def observe(self, memory, values, mask, t):
        return memory[0]


class Bare(SignChanges):
    def functions(self):
        return self.of


class Endless(SignChanges):
    def finish(self, mask):
        return {}


class Forgetful(SignChanges):
    def start(self, values):
        return jnp.zeros(3), jnp.zeros(3, jnp.int32)

    def observe(self, memory, values, mask, t):
        return memory, {}

    def finish(self, memory, mask):
        return {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1], r"statistics must map names to da\.Statistic"),
        ({"a": position}, r"statistics\['a'\] must be a da\.Statistic, not <function"),
        ({"a/b": da.Mean(position)}, "a statistic needs a name without '/'"),
        ({"energy": da.Mean(position)}, "a name that observe or histograms have too: 'energy'"),
        ({"a": da.Mean(1.0)}, r"statistics\['a'\] must be a function"),
        ({"a": da.TimeAverage(position, burn_in=99.0)}, r"\['a'\]: burn_in must be a time of the"),
        ({"a": da.Autocorrelation(position, lags=41)}, "a lag of 41 needs more than the 21 saves"),
        ({"a": Odd(position)}, r"statistics\['a'\]: observe must return \(memory, row\)"),
        ({"a": Masked(position)}, r"Masked\.start is called with 1 arg.*def start\(self, values\)"),
        ({"a": Endless(position)}, r"Endless\.finish .* def finish\(self, memory, mask\)"),
        (
            {"a": RowAlone(position)},
            r"RowAlone\.observe .*\(memory, row\).* the row alone, {'paths'",
        ),
        ({"a": MemoryAlone(position)}, r"MemoryAlone\.observe must return two things"),
        ({"a": Bare(position)}, r"Bare\.functions must return functions of \(q, p\) by name"),
        ({"a": Unmerged(position)}, r"Unmerged defines no merge: write def merge\(self, a, b\)"),
        ({"a": Forgetful(position)}, r"remembers an array of shape \(3,\)"),
        ({"a": Loose(position)}, "cannot be told from others .* make it a frozen dataclass"),
    ],
)
def test_what_is_none_is_refused(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        simulate(statistics=given)


def test_uneven_saves_have_no_lags():
    with pytest.raises(ValueError, match="the last save comes sooner than the others"):
        simulate(statistics={"a": da.Autocorrelation(position, lags=3)}, save_every=3)


@pytest.mark.parametrize("lags", [0, -1, (0,), (1.5, 2), (-1, 2)])
def test_bad_lags_are_refused(lags):
    with pytest.raises(ValueError, match="lags are whole numbers of saves"):
        da.Autocorrelation(position, lags=lags)


@pytest.mark.parametrize("of", [{}, {"q": 1.0}, position])
def test_bad_covariances_are_refused(of):
    with pytest.raises(TypeError, match="a covariance needs functions by name"):
        da.Covariance(of)
