"""Histograms: the counts of NumPy, wrapping, what is left out, densities, errors.

The density of a known distribution is compared with it in all bins at once, at a level at which a
correct histogram with a new seed would be refused in 1 of 10⁶ sessions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import dalembert as da
from dalembert.statistics import Binned
from dalembert.statistics.histogram import count_in_bins

FALSE_ALARM = 1e-6
PATHS = 3000
SYSTEM = da.systems.langevin(gamma=0.5)


def angle(q, p, params):
    return 3 * q[0] - 1


POSITION = da.Axis(lambda q, p, params: q[0], -1.5, 2, bins=14)
MOMENTUM = da.Axis(lambda q, p, params: p[0], -2.0, 2.0, bins=9)
ANGLE = da.Axis(angle, -np.pi, np.pi, bins=10, periodic=True)
HISTOGRAMS = {
    "q": da.Histogram(POSITION, every_save=True),
    "q at the end": da.Histogram(POSITION),
    "qp": da.Histogram(POSITION, MOMENTUM, every_save=True),
    "angle": da.Histogram(ANGLE, every_save=True),
    "angle and p at the end": da.Histogram(ANGLE, MOMENTUM),
}
START = np.random.default_rng(3).normal(size=(2, PATHS, 1))


def simulate(initial=tuple(START), keep="all", **options):
    settings = {"dt": 0.1, "t_end": 0.7, "save_every": 3, "seed": 1} | options
    return da.simulate(
        SYSTEM,
        da.midpoint(),
        initial,
        paths=PATHS,
        histograms=HISTOGRAMS,
        keep=keep,
        **settings,
    )


@pytest.fixture(scope="module")
def run():
    return simulate()


def wrapped(values):
    """The angles of some positions in [−π, π), by another formula than that of the package."""
    return np.mod(3 * values - 1 + np.pi, 2 * np.pi) - np.pi


def test_counts_are_those_of_numpy_at_every_save(run):
    histogram = run.histograms["q"]
    assert run.t.tolist() == pytest.approx([0, 0.3, 0.6, 0.7])
    assert histogram.counts.shape == (4, 14) and histogram.outside.shape == (4,)
    assert histogram.counts.dtype == np.int64
    np.testing.assert_array_equal(histogram.edges[0], np.linspace(-1.5, 2, 15))
    for k, q in enumerate(run.q):
        expected, _ = np.histogram(q, 14, (-1.5, 2))
        np.testing.assert_array_equal(histogram.counts[k], expected)
        assert histogram.outside[k] == PATHS - expected.sum() > 0
    assert np.any(histogram.counts[0] != histogram.counts[-1])


def test_counts_in_two_dimensions_are_those_of_numpy(run):
    histogram = run.histograms["qp"]
    assert histogram.counts.shape == (4, 14, 9)
    for k in range(4):
        q, p = run.q[k, :, 0], run.p[k, :, 0]
        expected, *edges = np.histogram2d(q, p, (14, 9), ((-1.5, 2), (-2, 2)))
        np.testing.assert_array_equal(histogram.counts[k], expected)
        assert histogram.outside[k] == PATHS - expected.sum() > 0
    for own, numpys in zip(histogram.edges, edges, strict=True):
        np.testing.assert_array_equal(own, numpys)


def test_periodic_axes_lose_nothing(run):
    histogram = run.histograms["angle"]
    assert np.abs(3 * run.q - 1).max() > 2 * np.pi, "some angles are wrapped more than once"
    for k, q in enumerate(run.q):
        expected, _ = np.histogram(wrapped(q), 10, (-np.pi, np.pi))
        np.testing.assert_array_equal(histogram.counts[k], expected)
    assert not histogram.outside.any() and (histogram.counts.sum(axis=1) == PATHS).all()


def test_histograms_at_the_end(run):
    q, p = run.q[-1, :, 0], run.p[-1, :, 0]
    last = run.histograms["q at the end"]
    np.testing.assert_array_equal(last.counts, run.histograms["q"].counts[-1])
    assert last.outside == run.histograms["q"].outside[-1] and last.outside.shape == ()
    both = run.histograms["angle and p at the end"]
    expected, *_ = np.histogram2d(wrapped(q), p, (10, 9), ((-np.pi, np.pi), (-2, 2)))
    np.testing.assert_array_equal(both.counts, expected)
    assert both.outside == np.sum(np.abs(p) > 2) > 0


def test_what_is_kept_and_how_it_is_shared_does_not_matter(run):
    final = simulate(keep="final", workers=1)
    np.testing.assert_array_equal(final.q, run.q[-1])
    for name, histogram in final.histograms.items():
        np.testing.assert_array_equal(histogram.counts, run.histograms[name].counts)
        np.testing.assert_array_equal(histogram.outside, run.histograms[name].outside)
    expected, _ = np.histogram(final.q, 14, (-1.5, 2))
    np.testing.assert_array_equal(final.histograms["q at the end"].counts, expected)


count = jax.jit(count_in_bins, static_argnums=0)


def counts(x, *axes, dtype=np.float64, mask=None):
    """Counts in the bins and outside, of values that are given directly."""
    values = [jnp.asarray(column, dtype) for column in np.atleast_2d(np.asarray(x, dtype))]
    mask = np.ones(len(values[0]), bool) if mask is None else mask
    return np.asarray(count(da.Histogram(*axes), values, jnp.asarray(mask)))


def axis(low, high, bins, periodic=False):
    return da.Axis(angle, low, high, bins, periodic)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("low", "high", "bins"), [(1, 2, 100), (-0.3, 0.7, 7), (-1e6, 3e6, 997)])
def test_values_on_edges_are_counted_as_numpy_does(low, high, bins, dtype):
    """Also where the edges are no floating-point numbers, and right beside them."""
    edges = np.linspace(low, high, bins + 1).astype(dtype)
    beside = [np.nextafter(edges, dtype(x), dtype=dtype) for x in (-np.inf, np.inf)]
    x = np.concatenate([edges, *beside])
    found = counts(x, axis(low, high, bins), dtype=dtype)
    expected, _ = np.histogram(x, edges)
    np.testing.assert_array_equal(found[:-1], expected)
    assert found[-1] == 2, "below the lowest and above the highest edge"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_float32_values_are_counted_as_numpy_does(dtype):
    x = np.random.default_rng(0).normal(size=100_000).astype(dtype)
    expected, _ = np.histogram(x, np.linspace(-2, 3, 334).astype(dtype))
    found = counts(x, axis(-2, 3, 333), dtype=dtype)
    np.testing.assert_array_equal(found[:-1], expected)
    assert found[-1] == np.sum((x < -2) | (x > 3))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (-2.0, 0),  # the lower end
        (2.0, 0),  # the upper end is the lower one
        (-6.0, 0),
        (400002.0, 0),
        (-1.0, 1),  # an edge inside
        (3.0, 1),
        (-5.0, 1),
        (-2.0 - 1e-15, 3),  # just below the lower end
        (2.0 - 1e-15, 3),
        (1.999, 3),
        (-2.001, 3),
        (-0.5, 1),
        (-4.5, 1),
        (-400000.5, 1),
        (1e18, 2),  # a whole number of periods away from 0
    ],
)
def test_wrapping(value, number):
    found = counts([value], axis(-2.0, 2.0, 4, periodic=True))
    assert np.flatnonzero(found).tolist() == [number]


def test_wrapping_just_below_zero():
    """The remainder of −1e-20 rounds to the period itself, which is its beginning."""
    assert counts([-1e-20], axis(0.0, 1.0, 4, periodic=True)).tolist() == [1, 0, 0, 0, 0]
    assert counts([-1e-20], axis(0.0, 1.0, 4)).tolist() == [0, 0, 0, 0, 1]


def test_paths_that_are_masked_are_not_counted():
    x = [0.1, 0.9, np.nan, 5.0, np.inf]
    mask = np.array([True, False, False, True, False])
    assert counts(x, axis(0, 1, 2), mask=mask).tolist() == [1, 0, 1]
    both = counts([x, x], axis(0, 1, 2), axis(0, 10, 2, periodic=True), mask=mask)
    assert both.tolist() == [1, 0, 0, 0, 1]


QUARTIC = da.System(
    H=lambda q, p: p[0] ** 2 / 2 + q[0] ** 4 / 4, h=[lambda q, p: 0.1 * q[0]], dim=1
)
STARTS = da.Histogram(da.Axis(lambda q, p: q[0], -100.0, 100.0, bins=4), every_save=True)


def explode(starts):
    q0 = np.asarray(starts)[:, None]
    with pytest.warns(RuntimeWarning, match="paths failed"):
        return da.simulate(
            QUARTIC,
            da.heun(),
            (q0, 0 * q0),
            dt=0.1,
            t_end=2.0,
            paths=len(q0),
            save_every=20,
            histograms={"q": STARTS},
        )


def test_failed_paths_are_not_counted():
    run = explode([0.1, 60.0, 70.0, -0.2, -0.3])
    histogram = run.histograms["q"]
    # The bins are (−100, −50, 0, 50, 100); small oscillations stay in the two in the middle.
    assert histogram.counts[0].tolist() == [0, 2, 1, 2]
    assert histogram.counts[1, 1:3].sum() == 3 and not histogram.counts[1, [0, 3]].any()
    assert histogram.outside.tolist() == [0, 0]
    assert histogram.total.ravel().tolist() == run.count.tolist() == [5, 3]


def test_the_density_of_nothing_is_refused():
    run = explode([60.0, 70.0, 80.0, 90.0, -60.0])
    assert run.histograms["q"].counts.tolist() == [[1, 0, 0, 4], [0, 0, 0, 0]]
    with pytest.raises(ValueError, match="needs at least one path, and at one time there is none"):
        _ = run.histograms["q"].density
    with pytest.raises(ValueError, match="needs at least one path"):
        _ = run.histograms["q"].stderr
    fine = Binned(np.zeros((2, 3)), np.array([4, 4]), (np.arange(4.0),))
    assert not fine.density.any(), "that all paths are outside is no reason"


def test_densities_integrate_to_the_share_inside(run):
    for name, histogram in run.histograms.items():
        areas = np.ones(())
        for edges in histogram.edges:
            areas = np.multiply.outer(areas, np.diff(edges))
        axes = tuple(range(-len(histogram.edges), 0))
        inside = (histogram.density * areas).sum(axis=axes)
        np.testing.assert_allclose(inside, 1 - histogram.outside / PATHS, rtol=1e-13, err_msg=name)
        share = histogram.counts / PATHS
        np.testing.assert_allclose(
            histogram.stderr, np.sqrt(share * (1 - share) / PATHS) / areas, rtol=1e-12
        )


def agrees(histogram, distribution):
    """Whether a density at the start has the mean of that of a distribution in every bin."""
    edges = histogram.edges[0]
    exact = np.diff(distribution.cdf(edges)) / np.diff(edges)
    limit = stats.norm.isf(FALSE_ALARM / 2 / len(exact))
    return bool(np.all(np.abs(histogram.density[0] - exact) < limit * histogram.stderr[0]))


def test_a_density_agrees_with_a_known_one_within_its_standard_errors(run):
    assert agrees(run.histograms["q"], stats.norm)
    assert not agrees(run.histograms["q"], stats.norm(scale=1.6))
    assert not agrees(run.histograms["q"], stats.norm(loc=0.3))


def test_saved_histograms_come_back(run, tmp_path):
    run.save(tmp_path / "run.npz")
    again = da.load(tmp_path / "run.npz").histograms
    assert list(again) == list(HISTOGRAMS)
    for name, histogram in run.histograms.items():
        np.testing.assert_array_equal(again[name].counts, histogram.counts)
        np.testing.assert_array_equal(again[name].outside, histogram.outside)
        np.testing.assert_array_equal(again[name].density, histogram.density)
        for a, b in zip(again[name].edges, histogram.edges, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 0.0, 1.0), r"an axis needs a function of \(q, p\), not 1.0"),
        ((angle, 1.0, 1.0), "an axis needs low < high, not 1.0 and 1.0"),
        ((angle, 1.0, 0.0), "an axis needs low < high"),
        ((angle, 0.0, np.inf), "an axis needs low < high, not 0.0 and inf"),
        ((angle, np.nan, 1.0), "an axis needs low < high"),
        ((angle, 0.0, 1.0, 0), "bins must be a whole number ≥ 1, not 0"),
        ((angle, 0.0, 1.0, 2.0), "bins must be a whole number ≥ 1, not 2.0"),
        ((angle, 0.0, 1.0, True), "bins must be a whole number ≥ 1, not True"),
    ],
)
def test_bad_axes_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        da.Axis(*arguments)


@pytest.mark.parametrize(
    ("histograms", "message"),
    [
        ([STARTS], "histograms must map names to da.Histogram"),
        ({"q": POSITION}, r"histograms\['q'\] must be a da.Histogram, not Axis"),
        ({"a/b": STARTS}, "a histogram needs a name without '/' and control characters, not 'a/b'"),
        (
            {"q": da.Histogram(da.Axis(lambda q, p: q, 0, 1), da.Axis(lambda q, p: p[0], 0, 1))},
            r"histograms\['q'\]: the axes of a histogram must return alike shapes, not \[\(1,\)",
        ),
        ({"q": da.Histogram(da.Axis(lambda q: q[0], 0, 1))}, r"\['q'\] failed when called as"),
    ],
)
def test_bad_histograms_are_refused(histograms, message):
    with pytest.raises((ValueError, TypeError), match=message):
        da.simulate(
            QUARTIC, da.midpoint(), ([1.0], [0.0]), dt=0.1, t_end=0.1, histograms=histograms
        )


def test_a_histogram_is_made_of_axes():
    with pytest.raises(TypeError, match=r"made of one or two da\.Axis, not 'q'"):
        da.Histogram(POSITION, "q")


def test_counts_in_float32_runs_need_no_global_switch():
    with jax.enable_x64(False):
        found = counts([0.25, 0.5, 1.0, 1.5], axis(0.0, 1.0, 2), dtype=np.float32)
    assert found.tolist() == [1, 2, 1]
