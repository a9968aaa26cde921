"""Samplers of initial states: their distributions, their keys, and what they refuse.

Distributions are compared by Kolmogorov–Smirnov tests at p = 1e-6 each, with fixed seeds: about
20 of them, so a correct sampler with new seeds would be refused in 1 of 50,000 sessions. Every
kind of sampler has a control, a distribution nearby, that the same test must refuse.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import dalembert as da
from dalembert import quantiles
from dalembert.ensemble.initial import _is_finite, initial_states
from tiers import tiered

FALSE_ALARM = 1e-6
PATHS = 20_000
ONE, TWO = da.systems.langevin(), da.systems.langevin(dim=2)
DTYPES = [np.dtype(np.float64), np.dtype(np.float32)]
by_dtype = pytest.mark.parametrize("dtype", tiered(DTYPES, fast=["float64"]))


def starts(sampler, system=ONE, numbers=None, seed=0, dtype=DTYPES[0]):
    """Initial states of the paths with these numbers, as a run draws them."""
    numbers = np.arange(PATHS) if numbers is None else np.asarray(numbers)
    with jax.enable_x64(dtype == np.float64):
        states = initial_states(system, sampler, 1, seed, dtype)
        return states(numbers.astype(np.uint64))


def follows(sample, cdf):
    return stats.kstest(np.asarray(sample, np.float64).ravel(), cdf).pvalue > FALSE_ALARM


def gaussian_density(q, p):
    return jnp.exp(-jnp.dot(q, q) / 2 - jnp.dot(p, p) / 8)


GAUSSIAN = da.rejection_sampler(gaussian_density, ([-3.0], [-4.0]), ([3.0], [6.0]), bound=1.0)


def simulated(initial=GAUSSIAN, **options):
    """The initial states that a run has kept."""
    settings = {"dt": 0.1, "t_end": 0.1, "paths": 3000, "keep": "all", "seed": 4} | options
    run = da.simulate(ONE, da.heun(), initial, **settings)
    return run.q[0], run.p[0]


@by_dtype
def test_rejection_sampling_from_a_truncated_gaussian(dtype):
    q, p = starts(GAUSSIAN, dtype=dtype)
    assert q.shape == p.shape == (PATHS, 1) and q.dtype == p.dtype == dtype
    assert follows(q, stats.truncnorm(-3, 3).cdf)
    assert follows(p, stats.truncnorm(-2, 3, scale=2).cdf)
    assert not follows(q, stats.truncnorm(-3, 3, scale=1.2).cdf)
    assert not follows(p, stats.truncnorm(-2, 3, scale=1.8).cdf)
    # Independent coordinates: 5 standard errors of a correlation.
    assert abs(np.corrcoef(q[:, 0], p[:, 0])[0, 1]) < 5 / np.sqrt(PATHS)


@pytest.mark.slow
def test_rejection_sampling_from_a_ball_in_four_dimensions():
    """The radius of a uniform point in a ball has the distribution function r⁴.

    The density meets its bound everywhere in the ball, which is allowed.
    """

    def ball(q, p):
        return jnp.where(jnp.dot(q, q) + jnp.dot(p, p) < 1, 2.0, 0.0)

    corner = ([1.0, 1.5], [1.0, 2.0])
    sampler = da.rejection_sampler(ball, tuple(-np.asarray(x) for x in corner), corner, bound=2.0)
    z = np.concatenate(starts(sampler, TWO), axis=1)
    radius = np.linalg.norm(z, axis=1)
    assert z.shape == (PATHS, 4) and radius.max() < 1
    assert follows(radius**4, stats.uniform.cdf)
    assert not follows(radius**3.8, stats.uniform.cdf)
    for angle in (np.arctan2(z[:, 0], z[:, 1]), np.arctan2(z[:, 2], z[:, 1])):
        assert follows(angle / (2 * np.pi) + 0.5, stats.uniform.cdf)


@pytest.mark.slow
def test_a_larger_bound_gives_the_same_distribution():
    loose = da.rejection_sampler(gaussian_density, ([-3.0], [-4.0]), ([3.0], [6.0]), bound=7.0)
    q, _ = starts(loose)
    assert follows(q, stats.truncnorm(-3, 3).cdf)
    assert np.abs(q - starts(GAUSSIAN)[0]).max() > 0.1


def pair(draw_q, draw_p):
    """A sampler of states whose q and p are drawn independently."""

    def sampler(key):
        q, p = jax.random.split(key)
        return draw_q(q)[None], draw_p(p)[None]

    return sampler


def wave(x):
    return 1 + 0.5 * jnp.cos(2 * x)


def wave_cdf(x, amplitude=0.5):
    return (x + amplitude * np.sin(2 * x) / 2) / np.pi


INVERSE = pair(*[da.inverse_cdf_sampler(wave, 0.0, np.pi)] * 2)


@by_dtype
def test_inverse_cdf_sampling_of_a_perturbed_uniform_density(dtype):
    q, p = starts(INVERSE, dtype=dtype)
    assert q.dtype == dtype and q.min() >= 0 and q.max() <= np.pi
    assert follows(q, wave_cdf) and follows(p, wave_cdf)
    assert not follows(q, lambda x: wave_cdf(x, 0.3))
    assert abs(np.corrcoef(q[:, 0], p[:, 0])[0, 1]) < 5 / np.sqrt(PATHS)


def test_inverse_cdf_sampling_does_not_depend_on_the_normalisation():
    """Wide intervals, in which the shape of the density matters, and squares beyond float32."""
    small, large = (
        da.inverse_cdf_sampler(lambda x, s=scale: s * x, 0.0, 1.0, points=2)
        for scale in (1e-30, 1e30)
    )
    for x in starts(pair(small, large), dtype=DTYPES[1]):
        assert follows(x**2, stats.uniform.cdf)
        assert not follows(x**1.8, stats.uniform.cdf)


def step(x):
    return jnp.where((x > 0.5) & (x < 0.75), 1.0, 0.0)


def peak(x):
    return jnp.exp(-((x - 0.1) ** 2) / 0.02)


PEAK_CDF = stats.truncnorm(-11, 9, loc=0.1, scale=0.1).cdf


def test_inverse_cdf_sampling_of_a_step_and_of_a_narrow_peak():
    q, p = starts(pair(*(da.inverse_cdf_sampler(f, -1.0, 1.0) for f in (step, peak))))
    # The ends of the step are in intervals of the table, which are 2/4096 wide.
    assert q.min() > 0.5 - 2 / 4096 and q.max() < 0.75 + 2 / 4096
    assert follows(np.clip((q - 0.5) / 0.25, 0, 1), stats.uniform.cdf)
    assert follows(p, PEAK_CDF)


@pytest.mark.slow
def test_tables_of_an_inverse_cdf_sampler_are_as_fine_as_the_density_needs(monkeypatch):
    """Four intervals do not resolve the peak, which the control without finer ones shows.

    The mass of an interval is right even so: of x³ on [0, 1], 1/16 lies below 1/2, while the
    trapezium rule would say 1/10. Five standard errors are a false alarm in 1 of 1.7 million.
    """
    fine = da.inverse_cdf_sampler(peak, -1.0, 1.0, points=4)
    monkeypatch.setattr(quantiles, "SETTLED", np.inf)
    monkeypatch.setattr(quantiles, "NARROW", np.inf)
    coarse = da.inverse_cdf_sampler(peak, -1.0, 1.0, points=4)
    cube = da.inverse_cdf_sampler(lambda x: x**3, 0.0, 1.0, points=2)
    q, p = starts(pair(coarse, cube))
    assert not follows(q, PEAK_CDF) and follows(starts(pair(fine, cube))[0], PEAK_CDF)
    share, stderr = np.mean(p < 0.5), np.sqrt(15 / 256 / PATHS)
    assert abs(share - 1 / 16) < 5 * stderr < abs(share - 1 / 10)


@pytest.mark.slow
def test_rejection_sampling_in_the_shape_of_a_system():
    low, high = np.full((2, 3), -1.0), np.full((2, 3), 2.0)

    def density(q, p):
        return jnp.where(jnp.all(q[1] > 0), 1.0, 0.0)

    sampler = da.rejection_sampler(density, (low, low), (high, high), bound=1.0)
    system = da.systems.langevin(dim=(2, 3))
    run = da.simulate(system, da.baoab(), sampler, dt=0.1, t_end=0.1, paths=200, keep="all")
    assert run.q.shape == (2, 200, 2, 3)
    assert run.q[0, :, 1].min() > 0 > run.q[0, :, 0].min() and run.q[0].max() < 2
    with pytest.raises(ValueError, match=r"each of shape \(6,\)"):
        da.simulate(da.systems.langevin(dim=6), da.baoab(), sampler, dt=0.1, t_end=0.1)


@pytest.mark.parametrize("sampler", [GAUSSIAN, INVERSE], ids=["rejection", "inverse CDF"])
@by_dtype
def test_a_state_depends_on_seed_and_path_number_alone(sampler, dtype):
    numbers = np.arange(PATHS)
    q, p = starts(sampler, numbers=numbers, dtype=dtype)
    some = np.array([3, 19_999, 17, 0])
    for chosen in [np.roll(numbers, 7)] + [some] * (dtype == np.float64):
        got = starts(sampler, numbers=chosen, dtype=dtype)
        np.testing.assert_array_equal(got[0], q[chosen])
        np.testing.assert_array_equal(got[1], p[chosen])
    # In float32 a few of so many numbers are equal by chance.
    assert len(np.unique(q)) > 0.99 * PATHS
    # Path numbers have 64 bits: those that agree in the lower 32 are different paths.
    far = starts(sampler, numbers=numbers + 2**32, dtype=dtype)[0]
    other = starts(sampler, numbers=numbers, seed=1, dtype=dtype)[0]
    for another in (far, other):
        assert np.mean(another == q) < 0.01


@pytest.mark.slow
def test_runs_of_any_size_and_number_of_workers_start_alike():
    q, p = simulated()
    for options in ({"workers": 1}, {"paths": 5000, "workers": 3}, {"paths": 2049}):
        others = simulated(**options)
        for whole, other in zip((q, p), others, strict=True):
            common = min(len(whole), len(other))
            np.testing.assert_array_equal(whole[:common], other[:common])
    chosen = [2900, 0, 77]
    for whole, other in zip((q, p), simulated(only=chosen), strict=True):
        np.testing.assert_array_equal(whole[chosen], other)
    assert not np.any(simulated(seed=5)[0] == q)


@pytest.mark.slow
def test_float32_runs_start_from_float32_states():
    q, p = simulated(dtype=np.float32)
    assert q.dtype == p.dtype == np.float32
    for kept, drawn in zip((q, p), starts(GAUSSIAN, seed=4, dtype=DTYPES[1]), strict=True):
        np.testing.assert_array_equal(kept, drawn[: len(kept)])


def box(density, bound=1.0, **options):
    return da.rejection_sampler(density, ([-1.0], [-1.0]), ([1.0], [1.0]), bound, **options)


def without_key(key):
    return jnp.zeros(1), jnp.ones(1)


def with_its_own_key(key):
    q, p = jax.random.normal(jax.random.key(0), (2, 1))
    return q, p


TOO_LARGE = box(lambda q, p: 1.5 + q[0], bound=2.0)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (TOO_LARGE, r"gave NaN or infinity for path \d+: .*density exceeds the bound"),
        (box(lambda q, p: 0 * q[0], tries=50), "path 0: .*no point was accepted in all its tries"),
        (box(lambda q, p: q[0] + 0.5, bound=2.0), "density .* is negative or NaN"),
        pytest.param(
            box(lambda q, p: jnp.log(q[0])),
            "density .* is negative or NaN",
            marks=pytest.mark.slow,
        ),
        (box(lambda q, p: jnp.exp(-(q**2))), r"density must be one number, not of shape \(1,\)"),
        (lambda key: (jax.random.normal(key, (1,)) / 0.0, jnp.zeros(1)), "gave NaN or infinity"),
        (without_key, "does not use its key, so that all paths would start alike"),
        (with_its_own_key, "does not use its key"),
        (da.inverse_cdf_sampler(wave, 0.0, 1.0), r"must return \(q, p\), each of shape \(1,\)"),
        (lambda key: (jax.random.normal(key, (2,)), jnp.zeros(1)), r"; q has shape \(2,\)"),
        (lambda key: (jax.random.normal(key, (1,)), "rest"), "; p is 'rest'"),
        (
            lambda key: (jax.random.randint(key, (1,), 0, 9), jnp.zeros(1)),
            "q of the sampler has int",
        ),
        (lambda key: (jax.random.normal(key, (1,)), [0]), "p of the sampler has int.*2.0 instead"),
    ],
)
def test_bad_samplers_are_refused_by_simulate(sampler, message):
    with pytest.raises((ValueError, TypeError), match=message):
        simulated(sampler)


def test_samplers_may_return_lists():
    expected = starts(lambda key: (jax.random.normal(key, (1,)), jnp.zeros(1)))
    for sampler in (
        lambda key: [jax.random.normal(key, (1,)), jnp.zeros(1)],
        lambda key: ([jax.random.normal(key, (1,))[0]], [0.0]),
    ):
        np.testing.assert_array_equal(starts(sampler), expected)


@pytest.mark.slow
def test_a_density_above_its_bound_is_refused_in_float32():
    with pytest.raises(ValueError, match="density exceeds the bound"):
        simulated(TOO_LARGE, dtype=np.float32)


def test_a_sampler_is_compiled_once(calls):
    """Another seed does not compile it again; what remains is the check of its result."""

    def sampler(key):
        calls.add()
        return jax.random.normal(key, (1,)), jnp.zeros(1)

    def count(fun, *arguments, **options):
        before = len(calls)
        fun(*arguments, **options)
        return len(calls) - before

    assert count(starts, sampler) >= 1
    check = count(jax.make_jaxpr(sampler), jax.random.key(0))
    assert count(starts, sampler, seed=1) == check
    assert count(starts, lambda key: sampler(key), seed=1) > check, "a control: a new function"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"density": 1.0}, r"density must be a function of \(q, p\), not 1.0"),
        ({"low": (0.0, 0.0)}, r"must be pairs \(q, p\) of arrays of shape \(dim,\)"),
        ({"low": ([0.0], [0.0, 0.0])}, r"must be pairs \(q, p\) of arrays of shape \(dim,\)"),
        ({"low": ([0.0],)}, r"must be pairs \(q, p\)"),
        ({"high": 1.0}, r"must be pairs \(q, p\)"),
        ({"high": ([1.0, 1.0], [1.0, 1.0])}, r"must be pairs \(q, p\)"),
        ({"high": ([1.0], [0.0])}, "every lower end of the box must be finite and below"),
        ({"low": ([0.0], [np.nan])}, "every lower end of the box must be finite and below"),
        ({"low": ([-np.inf], [0.0])}, "every lower end of the box must be finite and below"),
        ({"bound": 0.0}, "bound must be a positive number, not 0.0"),
        ({"bound": np.inf}, "bound must be a positive number, not inf"),
        ({"bound": np.nan}, "bound must be a positive number, not nan"),
        ({"tries": 0}, "tries must be a whole number from 1"),
        ({"tries": 10**10}, "tries must be a whole number from 1"),
    ],
)
def test_bad_boxes_are_refused(arguments, message):
    good = {
        "density": gaussian_density,
        "low": ([0.0], [0.0]),
        "high": ([1.0], [1.0]),
        "bound": 1.0,
    }
    with pytest.raises((ValueError, TypeError), match=message):
        da.rejection_sampler(**(good | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, 0.0, 1.0), "density must be a function of one number, not None"),
        ((wave, 1.0, 0.0), "interval needs low < high, not 1.0 and 0.0"),
        ((wave, 0.0, np.inf), "interval needs low < high"),
        ((wave, 0.0, 1.0, 1), "points must be a whole number ≥ 2, not 1"),
        ((wave, 0.0, 1.0, 10.0), "points must be a whole number ≥ 2, not 10.0"),
        ((jnp.sin, -1.0, 1.0), "density must be a finite scalar ≥ 0 everywhere"),
        ((lambda x: 1 / x, 0.0, 1.0), "density must be a finite scalar ≥ 0 everywhere"),
        ((lambda x: jnp.stack([x, x]), 0.0, 1.0), "density must be a finite scalar ≥ 0"),
        ((lambda x: 0 * x, 0.0, 1.0), "density is zero everywhere in the interval"),
        ((lambda x: jnp.exp(-(x**2) * 1e14), -1.0, 1.0), "density is too narrow for the interval"),
    ],
)
def test_bad_intervals_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        da.inverse_cdf_sampler(*arguments)


def test_states_whose_sum_is_too_large_are_finite():
    """And those with one entry that is none are not, wherever it is."""
    x = np.full(100, 1e308)
    assert _is_finite(x) and _is_finite(-x) and _is_finite(np.concatenate([x, -x]))
    for wrong in (np.nan, np.inf, -np.inf):
        for place in (0, 57, 99):
            one = x.copy()
            one[place] = wrong
            assert not _is_finite(one) and not _is_finite(one / 1e308)
    assert not _is_finite(np.array([np.inf, -np.inf]))
