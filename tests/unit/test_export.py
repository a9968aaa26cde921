"""Runs for people and other libraries: xarray, NetCDF, plots, and how a run prints."""

import itertools
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray

import dalembert as da
from dalembert.ensemble import export
from dalembert.ensemble.failures import Failures
from dalembert.ensemble.identity import _in_runs
from dalembert.ensemble.observed import Observed

SYSTEM = da.systems.damped_kubo()
ENGINES = ["scipy", "h5netcdf"]


def position(q, p, params):
    return q[0]


def momentum(q, p, params):
    return p[0]


OBSERVE = {
    "energy": SYSTEM.H,
    "second moments": lambda q, p, params: jnp.stack([q[0] * q, q[0] * p]),
    "a": lambda q, p, params: jnp.concatenate([q, p]),
}
HISTOGRAMS = {
    "orbit": da.Histogram(
        da.Axis(position, -3, 3, bins=6), da.Axis(momentum, -2, 2, bins=4), every_save=True
    ),
    "q": da.Histogram(da.Axis(position, -1, 1, bins=5)),
}


def simulate(**options):
    settings = {"keep": "all", "noise": da.Gaussian(truncation=3)} | options
    return da.simulate(
        SYSTEM,
        da.midpoint(),
        ([2.0], [0.0]),
        dt=0.25,
        t_end=2.0,
        paths=300,
        save_every=3,
        observe=OBSERVE,
        histograms=HISTOGRAMS,
        **settings,
    )


@pytest.fixture(scope="module")
def run():
    return simulate()


@pytest.fixture(scope="module")
def one_path():
    return simulate(only=3)


@pytest.fixture(autouse=True)
def no_figures_are_left():
    yield
    plt.close("all")


def with_counts(run, count):
    """A run in whose statistics there are as many paths as given at each time."""
    count = np.asarray(count, np.float64)
    return with_data(run, lambda data: data | ({"count": count} if "count" in data else {}))


def with_data(run, change):
    """A run in which the data of every statistic are changed by a function."""
    observed = {key: o._replace(data=change(o.data)) for key, o in run.observed.items()}
    return replace(run, observed=observed)


def test_dimensions_and_values(run):
    data = run.to_xarray()
    assert dict(data.sizes) == {
        "time": 4,
        "second moments_component_0": 2,
        "second moments_component_1": 1,
        "a_component_0": 2,
        "orbit_x": 6,
        "orbit_y": 4,
        "q_x": 5,
        "path": 300,
        "component": 1,
    }
    np.testing.assert_array_equal(data.time, [0, 0.75, 1.5, 2.0])
    assert data["count"].dims == ("time",) and (data["count"] == 300).all()
    for name in OBSERVE:
        for statistic in ("mean", "stderr", "minimum", "maximum"):
            variable = data[f"{name}_{statistic}"]
            assert variable.dims[0] == "time" and variable.dtype == np.float64
            np.testing.assert_array_equal(variable, getattr(run, statistic)[name])
    component = ("second moments_component_0", "second moments_component_1")
    assert data["second moments_mean"].dims == ("time", *component)


def test_kept_states(run):
    data = run.to_xarray()
    assert data.q.dims == data.p.dims == ("time", "path", "component")
    np.testing.assert_array_equal(data.q, run.q)
    np.testing.assert_array_equal(data.p, run.p)
    final = replace(run, kept={"q": run.q[-1], "p": run.p[-1]}).to_xarray()
    assert final.q.dims == ("path", "component")
    np.testing.assert_array_equal(final.p, run.p[-1])
    nothing = replace(run, kept={}).to_xarray()
    assert "q" not in nothing and "p" not in nothing and "path" not in nothing.sizes


def test_histograms(run):
    data = run.to_xarray()
    assert data.orbit_counts.dims == ("time", "orbit_x", "orbit_y")
    assert data.orbit_outside.dims == ("time",)
    assert data.q_counts.dims == ("q_x",) and data.q_outside.dims == ()
    for name, histogram in run.histograms.items():
        np.testing.assert_array_equal(data[f"{name}_counts"], histogram.counts)
        np.testing.assert_array_equal(data[f"{name}_outside"], histogram.outside)
    np.testing.assert_allclose(data.orbit_x, [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    np.testing.assert_allclose(data.orbit_y, [-1.5, -0.5, 0.5, 1.5])
    # By name, as one would use it: the marginal of the two is that of one, where it covers it.
    total = data.orbit_counts.sum(["orbit_x", "orbit_y"]) + data.orbit_outside
    assert (total == 300).all()


def test_attributes_and_provenance(run):
    attributes = run.to_xarray().attrs
    assert attributes["title"] == "damped_kubo with midpoint"
    assert attributes["failed"] == 0 and attributes["truncated"] == run.truncated > 0
    assert attributes["residual"] == run.residual
    provenance = json.loads(attributes["provenance"])
    assert provenance == run.provenance
    assert provenance["system"]["params"] == {"beta": 0.5, "nu": 0.001}
    assert provenance["method"]["name"] == "midpoint" and provenance["dt"] == 0.25
    assert provenance["seed"] == 0 and set(provenance["versions"]) >= {"dalembert", "jax", "numpy"}


def test_what_the_sample_does_not_support_is_not_exported(run, one_path):
    data = one_path.to_xarray()
    assert "energy_mean" in data and "energy_stderr" not in data
    assert dict(data.sizes)["path"] == 1
    with pytest.raises(ValueError, match="the mean of 'energy' needs at least 1"):
        with_counts(run, [300, 300, 300, 0]).to_xarray()


def round_trip(data, path, engine):
    pytest.importorskip(engine)
    data.to_netcdf(path, engine=engine)
    return xarray.load_dataset(path, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_netcdf_round_trip(run, tmp_path, engine):
    data = run.to_xarray()
    again = round_trip(data, tmp_path / "run.nc", engine)
    xarray.testing.assert_equal(again, data)
    assert again.attrs == data.attrs
    assert json.loads(again.attrs["provenance"]) == run.provenance
    assert all(again[name].dims == data[name].dims for name in data.variables)


@pytest.mark.parametrize("engine", ENGINES)
def test_numbers_beyond_32_bits_are_stored_exactly(run, tmp_path, engine):
    """NetCDF 3, which SciPy writes, has no larger integers; floats hold these without error."""
    big = 10**10 + 1
    large = with_data(
        with_counts(run, [big] * 4),
        lambda data: {k: x + big if x.dtype == np.int64 else x for k, x in data.items()},
    )
    large = replace(large, truncated=10**12 + 1)
    again = round_trip(large.to_xarray(), tmp_path / "run.nc", engine)
    assert (again["count"] == big).all() and again.attrs["truncated"] == 10**12 + 1
    np.testing.assert_array_equal(again.orbit_counts, run.histograms["orbit"].counts + big)
    assert again.q_outside == run.histograms["q"].outside + big


def test_float32_states_stay_float32(run, tmp_path):
    single = replace(run, kept={name: x.astype(np.float32) for name, x in run.kept.items()})
    again = round_trip(single.to_xarray(), tmp_path / "run.nc", "scipy")
    assert again.q.dtype.itemsize == 4 and again.energy_mean.dtype.itemsize == 8
    np.testing.assert_array_equal(again.q, single.q)


@pytest.mark.parametrize("engine", [None, *ENGINES])
def test_a_run_comes_back_from_xarray(run, tmp_path, engine):
    data = run.to_xarray()
    if engine:
        data = round_trip(data, tmp_path / "run.nc", engine)
    again = da.Run.from_xarray(data)
    assert repr(again) == repr(run)
    assert again.provenance == run.provenance and again.failures == run.failures
    np.testing.assert_array_equal(again.q, run.q)
    np.testing.assert_array_equal(again.p, run.p)
    for name in run.mean:
        np.testing.assert_array_equal(again.mean[name], run.mean[name])
        np.testing.assert_allclose(again.stderr[name], run.stderr[name], rtol=1e-12, atol=1e-18)
        np.testing.assert_array_equal(again.maximum[name], run.maximum[name])
    for name, histogram in run.histograms.items():
        np.testing.assert_array_equal(again.histograms[name].counts, histogram.counts)
        np.testing.assert_array_equal(again.histograms[name].outside, histogram.outside)


def test_other_datasets_are_no_runs(run):
    with pytest.raises(ValueError, match="no dataset of a run"):
        da.Run.from_xarray(xarray.Dataset({"q": ("x", [1.0])}))
    with pytest.raises(ValueError, match="no dataset of a run"):
        da.Run.from_xarray(run.to_xarray().drop_vars("energy_mean"))


def test_kept_states_are_chains_for_arviz(run):
    pytest.importorskip("arviz")
    samples = run.to_arviz().posterior
    assert samples.q.dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(samples.q, np.swapaxes(run.q, 0, 1))
    np.testing.assert_array_equal(samples.p, np.swapaxes(run.p, 0, 1))
    with pytest.raises(ValueError, match='keep="all"'):
        replace(run, kept={"q": run.q[-1], "p": run.p[-1]}).to_arviz()
    np.testing.assert_allclose(samples.energy.mean("chain"), run.mean["energy"], rtol=1e-12)
    assert samples.a.shape == (300, 4, 2)
    assert "energy" not in replace(run, system=None).to_arviz().posterior


@pytest.mark.parametrize("shape", [(1, 3), (5, 3)])
def test_what_arviz_gets_of_states_with_a_shape_is_what_was_observed(shape):
    pytest.importorskip("arviz")
    system = da.System(
        H=lambda q, p: jnp.sum(p**2 + q**2) / 2, f=lambda q, p, w: w, dim=shape, noises=shape
    )
    run = da.simulate(
        system, da.heun(), (np.arange(np.prod(shape), dtype=float).reshape(shape), np.ones(shape)),
        dt=0.1, t_end=0.2, paths=3, keep="all", observe={"first": lambda q, p: q[0, :2] + p[0, 2]},
    )  # fmt: skip
    observed = run.to_arviz().posterior["first"].values
    np.testing.assert_allclose(observed, np.moveaxis(run.q[:, :, 0, :2] + run.p[:, :, 0, 2:], 0, 1))
    np.testing.assert_allclose(observed.mean(0), run.mean["first"], rtol=1e-12)


def band(axes, k=0):
    """Lower and upper ends of a shaded band at each time."""
    points = axes.collections[k].get_paths()[0].vertices
    times = np.unique(points[:, 0])
    return np.array([[f(points[points[:, 0] == t, 1]) for t in times] for f in (np.min, np.max)])


def test_plot_of_a_scalar(run):
    axes = run.plot("energy")
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), run.t)
    np.testing.assert_array_equal(line.get_ydata(), run.mean["energy"])
    mean, error = run.mean["energy"], run.stderr["energy"]
    np.testing.assert_allclose(band(axes), [mean - 2 * error, mean + 2 * error], rtol=1e-14)
    assert axes.get_xlabel() == "time" and axes.get_ylabel() == "mean of energy"
    assert axes.get_title() == "damped_kubo" and line.get_label() == "midpoint"
    assert axes.get_legend() is None


def test_observables_are_in_the_order_in_which_they_were_asked_for(run):
    """It is not that of the alphabet."""
    assert list(run.moments) == list(OBSERVE) and list(run.mean) == list(OBSERVE)


@pytest.mark.parametrize(
    ("name", "labels"),
    [("a", ["a[0]", "a[1]"]), ("second moments", ["second moments[0, 0]", "second moments[1, 0]"])],
)
def test_plot_of_an_array(run, name, labels):
    axes = run.plot(name)
    assert [line.get_label() for line in axes.lines] == labels
    assert [text.get_text() for text in axes.get_legend().get_texts()] == labels
    mean = run.mean[name].reshape(4, 2)
    for k, line in enumerate(axes.lines):
        np.testing.assert_array_equal(line.get_ydata(), mean[:, k])
        error = run.stderr[name].reshape(4, 2)[:, k]
        np.testing.assert_allclose(band(axes, k)[1], mean[:, k] + 2 * error, atol=1e-14)


def test_plot_into_given_axes(run):
    _, axes = plt.subplots()
    assert run.plot("energy", axes) is axes and run.plot("energy", axes) is axes
    assert len(axes.lines) == 2 and len(plt.get_fignums()) == 1


def test_a_plot_of_one_path_has_no_band(one_path):
    axes = one_path.plot("energy")
    low, high = band(axes)
    np.testing.assert_array_equal(low, high)


def test_several_observables_stand_above_each_other_or_in_given_axes(run):
    panels = run.plot()
    assert [axes.get_ylabel() for axes in panels] == [f"mean of {name}" for name in OBSERVE]
    assert panels[-1].get_xlabel() == "time" and len(plt.get_fignums()) == 1
    _, axes = plt.subplots()
    assert run.plot(["energy", "a"], axes) is axes
    assert [line.get_label() for line in axes.lines] == ["energy", "a[0]", "a[1]"]
    _, two = plt.subplots(2)
    assert list(run.plot(["energy", "a"], two)) == list(two)
    with pytest.raises(ValueError, match="3 axes are needed, or one for all, not 2"):
        run.plot(ax=two)
    wide = run.plot("energy", errors=4.0)
    low, high = band(wide)
    np.testing.assert_allclose(high - low, 8 * run.stderr["energy"], atol=1e-14)


def test_pictures_of_histograms(run):
    """A curve at the end, an image of one quantity over time, one of two at one time."""
    last, orbit = run.histograms["q"], run.histograms["orbit"]
    (stairs,) = last.plot().patches
    assert last.plot().get_xlabel() == "x" and last.plot(labels=["q"]).get_xlabel() == "q"
    both = orbit.plot(labels=("q", "p"))
    assert (both.get_xlabel(), both.get_ylabel()) == ("q", "p")
    np.testing.assert_array_equal(stairs.get_data().values, last.density)
    np.testing.assert_array_equal(orbit.t, run.t)
    for at, number in ((None, -1), (1, 1)):
        mesh = orbit.plot(at=at).collections[0]
        np.testing.assert_array_equal(np.ravel(mesh.get_array()), orbit.density[number].T.ravel())
    with pytest.raises(ValueError, match="at must be the number of one of 4 saves, not 4"):
        orbit.plot(at=4)
    over_time = da.Binned(orbit.counts.sum(axis=2), orbit.outside, orbit.edges[:1], t=orbit.t)
    axes = over_time.plot()
    assert axes.get_xlabel() == "time" and axes.get_xlim() == (0.0, 2.0)
    np.testing.assert_array_equal(
        np.ravel(axes.collections[0].get_array()), over_time.density.T.ravel()
    )


def test_films(run, tmp_path):
    from PIL import Image

    films = {"orbit.gif": run.histograms["orbit"].animate, "paths.gif": run.animate}
    for name, film in films.items():
        film(file=tmp_path / name)
        with Image.open(tmp_path / name) as found:
            assert found.n_frames == len(run.t)
    assert plt.get_fignums() == []
    with pytest.raises(ValueError, match="every_save=True"):
        run.histograms["q"].animate()
    with pytest.raises(ValueError, match='keep="all"'):
        replace(run, kept={"q": run.q[-1], "p": run.p[-1]}).animate()
    with pytest.raises(ValueError, match="one of the 300 that were kept, not 300"):
        run.animate(path=300)
    with pytest.raises(TypeError, match=r"number of a path, not 'film.gif': write file='film.gif'"):
        run.animate("film.gif")


def test_portraits_say_which_entries_they_show():
    system = da.systems.langevin(dim=(2, 3))
    options = {"dt": 0.1, "t_end": 0.2, "paths": 2, "keep": "all", "progress": False}
    run = da.simulate(system, da.baoab(), (np.ones((2, 3)), np.zeros((2, 3))), **options)
    for component, name in ((None, "0, 0"), ((1, 2), "1, 2"), ((np.int64(1), -1), "1, 2")):
        axes = run.phase_portrait(component)
        assert (axes.get_xlabel(), axes.get_ylabel()) == (f"q[{name}]", f"p[{name}]")
        place = tuple(map(int, name.split(",")))
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), run.p[:, 0, *place])
    with pytest.raises(ValueError, match=r"component 1 is no entry .* write component=\(0, 0\)"):
        run.phase_portrait(1)
    plt.close("all")


PLASMAS = {
    "one component": (lambda: da.plasma.vlasov_poisson(6, 5.0), (6,), 1),
    "three components": (lambda: da.plasma.vlasov_poisson(6, 5.0, velocities=3), (6, 3), 1),
    "two dimensions": (
        lambda: da.plasma.vlasov_poisson(6, (5.0, 7.0), da.plasma.Fourier((1, 1))), (6, 2), 2,
    ),
    "light": (lambda: da.plasma.vlasov_maxwell(6, 5.0, modes=2), (16,), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", PLASMAS)
def test_pictures_of_plasmas_are_in_the_box(name):
    """Positions modulo its lengths; nothing else is touched, and curves do not cross the box."""
    make, shape, axes = PLASMAS[name]
    rng, system = np.random.default_rng(0), make()
    q, p = 30 * rng.normal(size=(2, 4, 2, *shape))
    box = json.loads(json.dumps(_in_runs(system.box())))
    made = SimpleNamespace(
        q=q, p=p, kept={"q": q}, t=np.arange(4.0), system=system, shape=shape,
        provenance={"system": {"dim": list(shape), "box": box}},
    )  # fmt: skip
    periods = export._periods(made)
    inside = export._wrapped(q, periods)
    is_x = periods > 0
    assert np.sum(is_x) == 6 * axes and np.all(is_x.reshape(shape[0], -1)[:6, :axes])
    assert np.array_equal(inside[..., ~is_x], q[..., ~is_x])
    assert np.all((inside >= 0) & (inside <= periods) | ~is_x)
    turns = ((q - inside) / np.where(is_x, periods, 1.0))[..., is_x]
    assert np.allclose(turns, np.round(turns)) and np.any(turns != 0)
    place = (0,) * len(shape)
    x, y = export._wrapped_curves(q[(..., *place)], p[(..., *place)], periods[place])
    gaps = np.isnan(x[1::2])
    assert np.array_equal(gaps, np.diff(np.floor(q[(..., *place)] / 5.0), axis=0) != 0)
    assert np.array_equal(x[::2], inside[(..., *place)]) and np.array_equal(
        y[::2], p[(..., *place)]
    )
    del made.provenance["system"]["box"]
    assert not np.any(export._periods(made)), "no box that a system has not declared"


@pytest.mark.parametrize("periods", [[1.0, 2.0], -1.0, np.inf])
def test_boxes_that_are_none_are_refused(periods):
    with pytest.raises(ValueError, match="periods"):
        da.System(lambda q, p: jnp.sum(p**2), dim=(4, 3), periods=lambda params: periods)


def test_a_box_must_be_a_function():
    with pytest.raises(TypeError, match="periods must be a function of params"):
        da.System(lambda q, p: jnp.sum(p**2), dim=2, periods=1.0)


def test_phase_portraits(run):
    axes = run.phase_portrait(paths=3)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("q", "p")
    assert len(axes.lines) == 6, "three curves, each with the dot that it starts from"
    np.testing.assert_array_equal(axes.lines[1].get_xdata(), run.q[:, 1, 0])
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), run.p[:, 1, 0])
    (points,) = replace(run, kept={"q": run.q[-1], "p": run.p[-1]}).phase_portrait().lines
    np.testing.assert_array_equal(points.get_xdata(), run.q[-1, :, 0])
    with pytest.raises(ValueError, match=r"component 1 is no entry of a state of shape \(1,\)"):
        run.phase_portrait(1)
    with pytest.raises(ValueError, match='keep="all" or keep="final"'):
        replace(run, kept={}).phase_portrait()


@pytest.mark.parametrize("span", [3.0, 30.0, 1e4, 1e9])
@pytest.mark.parametrize("low", [1e-8, 0.002, 1.0])
def test_labels_of_logarithmic_axes_do_not_collide(low, span):
    from dalembert.pictures import make_axes, tidy_log_axes

    axes = make_axes()
    axes.loglog([low, low * span], [low, low * span])
    tidy_log_axes(axes)
    axes.figure.canvas.draw()
    for axis in (axes.xaxis, axes.yaxis):
        ends = axis.get_view_interval()
        ticks = [t for t in axis.get_majorticklabels() if ends[0] <= _value(axis, t) <= ends[1]]
        boxes = [t.get_window_extent() for t in ticks if t.get_text()]
        assert len(boxes) >= 2
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
        assert not any(t.get_text() for t in axis.get_minorticklabels())


def _value(axis, label):
    return label.get_position()[0 if axis.axis_name == "x" else 1]


def test_an_unknown_observable_is_refused_and_leaves_no_figure(run):
    with pytest.raises(KeyError, match=r"no observable 'entropy'; there are \['a', 'energy'"):
        run.plot("entropy")
    assert plt.get_fignums() == []


@pytest.mark.parametrize(("package", "use"), [("xarray", "to_xarray"), ("matplotlib", "plot")])
def test_a_missing_package_is_named(run, monkeypatch, package, use):
    for name in (package, f"{package}.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=f"this needs {package}: install it with"):
        getattr(run, use)()


def test_an_explicit_method_has_no_line_about_stage_equations():
    system = da.systems.damped_kubo()
    options = {"dt": 0.25, "t_end": 1.0, "paths": 3}
    start = ([2.0], [0.0])
    told = {m: repr(da.simulate(system, m(), start, **options)) for m in (da.heun, da.e1)}
    assert not any("stage equations" in text for text in told.values())


def test_a_run_prints_as_a_short_summary(run):
    lines = repr(run).splitlines()
    assert lines[0] == (
        "Run of damped_kubo with midpoint: 300 paths to t = 2 in steps of 0.25, 1 noise, seed 0"
    )
    assert lines[1] == "  failed paths: none"
    assert lines[2].startswith("  stage equations: largest residual ")
    assert lines[3] == f"  truncated increments: {run.truncated}"
    mean, error = run.mean["energy"][-1], run.stderr["energy"][-1]
    assert lines[4] == f"  energy at the end: {mean:.6g} ± {error:.2g}"
    assert lines[5].startswith("  second moments at the end: [[") and lines[5].endswith("]]")
    assert lines[6].startswith("  a at the end: [")
    assert lines[7].startswith("  time: ") and "path-steps/s on " in lines[7]
    assert len(lines) == 8 and max(map(len, lines)) < 100


def test_a_notebook_shows_the_summary_as_a_table(run):
    page = run._repr_html_()
    title, *rows = repr(run).splitlines()
    assert page.startswith(f"<b>{title}</b><table>")
    assert page.count("<tr>") == len(rows) and page.count("<td>") == 2 * len(rows)
    assert "<td>failed paths</td><td>none</td>" in page


def test_the_summary_of_one_path_and_of_none(run, one_path):
    assert "midpoint: 1 path to" in repr(one_path)
    energy = one_path.mean["energy"][-1]
    assert f"energy at the end: {energy:.6g} (one path)\n" in repr(one_path)
    assert repr(one_path).count("(one path)") == 3
    failures = Failures(1, 299, 17, 0.5)
    none = replace(with_counts(run, [300, 300, 1, 0]), failures=failures, truncated=0)
    assert (
        "failed paths: 300 (1 unconverged, 299 not finite), the first is path 17 at t = 0.5"
        in repr(none)
    )
    assert repr(none).count("no path left") == 3 and "truncated" not in repr(none)


def test_long_observables_are_summarised(run):
    statistic, data = run.observed["observe/a"]
    wide = dict.fromkeys(("deviations", "minimum", "maximum"), np.ones((4, 1000)))
    wide |= {"count": data["count"], "mean": np.arange(4000.0).reshape(4, 1000)}
    text = repr(replace(run, observed={"observe/wide": Observed(statistic, wide)}))
    assert "wide at the end: [3000. 3001. 3002. ... 3997. 3998. 3999.]" in text


@pytest.mark.parametrize(
    ("gamma", "starts", "paths", "noise", "said"),
    [
        (0.0, 1, 8, None, True),
        (0.0, 8, 8, None, False),
        (0.0, 1, 1, None, False),
        (1.0, 1, 8, None, False),
        (1.0, 1, 8, da.Zero(), True),
    ],
)
def test_paths_that_are_all_the_same_are_called_so(gamma, starts, paths, noise, said):
    """Eight paths without noise from one state have an error of zero that says nothing."""
    chain = da.systems.fput(2, gamma=gamma)
    q = np.ones(2) if starts == 1 else np.random.default_rng(0).normal(size=(starts, 2))
    options = dict(dt=0.1, t_end=0.2, paths=paths, noise=noise, progress=False)
    run = da.simulate(chain, da.stormer_verlet(), (q, 0 * q), **options)
    assert ("paths: all are the same: no noise and one start" in str(run)) == said


def test_pictures_of_many_entries_show_the_first_and_say_so():
    pytest.importorskip("matplotlib").use("Agg")
    still, q = da.systems.fput(4), np.ones(4)
    observe = {
        "w": lambda q, p, params: jnp.outer(jnp.tile(q, 8), jnp.tile(q, 8)),
        "a[1]": lambda q, p, params: q[0],
    }
    options = dict(dt=0.1, t_end=0.2, paths=2, observe=observe, progress=False)
    run = da.simulate(still, da.stormer_verlet(), (q, 0 * q), **options)
    axes = run.plot("w")
    assert len(axes.lines) == 64 and "(first 64 of 1024)" in axes.get_ylabel()
    for name in ("w[3, 2]", "w[3,2]"):
        axes = run.plot(name)
        assert len(axes.lines) == 1 and axes.lines[0].get_label() == "w[3, 2]"
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), run.mean["w"][:, 3, 2])
    assert len(run.plot("a[1]").lines) == 1
    for name in ("w[3]", "w[32, 0]", "a[1][0]"):
        with pytest.raises(ValueError, match="is no entry of"):
            run.plot(name)
    with pytest.raises(KeyError, match="no observable 'z'"):
        run.plot("z[0]")


def test_what_is_not_axes_is_refused():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    still, q = da.systems.fput(4), np.ones(4)
    options = dict(dt=0.1, t_end=0.1, keep="final", progress=False)
    run = da.simulate(still, da.stormer_verlet(), (q, 0 * q), **options)
    figure = pyplot.figure()
    for ax in (3, "left", [3], figure):
        with pytest.raises(TypeError, match="ax must be axes of matplotlib"):
            run.plot(ax=ax)
    with pytest.raises(TypeError, match="ax must be axes of matplotlib"):
        run.phase_portrait(ax=figure)
    pyplot.close("all")
