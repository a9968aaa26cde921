"""Statistics of ensembles against closed forms: the Langevin oscillator and the Kubo oscillator.

All comparisons of one check must hold within as many standard errors as a correct program would
exceed, with new seeds, in FALSE_ALARM = 1e-6 of all sessions (Bonferroni, normal distribution).
There are about 50 checks that must hold, so this file gives a false alarm in 1 of 20,000 sessions.
Each has controls, which must be refused by the same rule: another temperature, friction or noise,
or a shifted value.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, stats

import dalembert as da
from dalembert.systems.kubo_system import kubo_energy
from dalembert.theory.diagnosis import for_every_system

FALSE_ALARM = 1e-6
PATHS = 30_000


def agrees(measured, stderr, expected):
    """Whether all measured numbers are as near to what is expected as chance allows."""
    limit = stats.norm.isf(FALSE_ALARM / 2 / np.size(measured))
    return bool(np.all(np.abs(measured - expected) < limit * stderr))


GAMMA, TEMPERATURE, MASS = 0.4, 0.7, 1.5
OSCILLATOR = da.systems.langevin(gamma=GAMMA, temperature=TEMPERATURE, mass=MASS)
START = np.array([1.5, -1.0])


def state(q, p, params):
    return jnp.concatenate([q, p])


def products(q, p, params):
    return jnp.concatenate([q * q, q * p, p * p])


OBSERVE = {"state": state, "products": products}


def simulate(system=OSCILLATOR, method=None, dt=0.05, save_every=24, saves=5, **options):
    """The oscillator from START at several times; steps per save are a multiple of 12."""
    settings = {"paths": PATHS, "seed": 11} | options
    return da.simulate(
        system,
        method or da.midpoint(),
        (START[:1], START[1:]),
        dt=dt,
        t_end=dt * save_every * saves,
        save_every=save_every,
        observe=OBSERVE,
        **settings,
    )


def propagator(t, gamma=GAMMA, mass=MASS):
    """e^{At} of the drift A of z = (q, p), one matrix per time."""
    drift = np.array([[0.0, 1 / mass], [-1.0, -gamma]])
    return np.stack([linalg.expm(drift * s) for s in t])


def stationary(temperature=TEMPERATURE, mass=MASS):
    """Covariance of the density exp(−H/T)."""
    return np.diag([temperature, mass * temperature])


def solution(t, gamma=GAMMA, temperature=TEMPERATURE, start=START):
    """Mean and covariance of the exact solution: m = e^{At} z₀, S = S∞ − e^{At} S∞ e^{Aᵀt}."""
    flow, final = propagator(t, gamma), stationary(temperature)
    return flow @ start, final - flow @ final @ np.swapaxes(flow, 1, 2)


def scheme(run, method, system=OSCILLATOR):
    """Mean and covariance of the method itself at the times of a run."""
    dt = run.provenance["dt"]
    steps = np.rint(run.t[1:] / dt).astype(int)
    moments = da.exact_moments(system, method, (START[:1], START[1:]), dt=dt, steps=steps)
    return moments.mean, moments.covariance


def checks(run, mean, covariance):
    """Whether mean, second moments and variances of a run are the expected ones.

    The start is left out, where nothing varies. The variance of a Gaussian is known to a relative
    error of √(2/(n − 1)).
    """
    second = covariance + mean[:, :, None] * mean[:, None, :]
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    return {
        "mean": agrees(run.mean["state"][1:], run.stderr["state"][1:], mean),
        "second": agrees(
            run.mean["products"][1:],
            run.stderr["products"][1:],
            second[:, [0, 0, 1], [0, 1, 1]],
        ),
        "variance": agrees(
            run.variance["state"][1:], variance * np.sqrt(2 / (PATHS - 1)), variance
        ),
    }


ALL = {"mean": True, "second": True, "variance": True}


@pytest.fixture(scope="module")
def fine():
    """Steps so small that the solution and the method cannot be told apart."""
    return simulate()


@pytest.mark.slow
def test_mean_and_covariance_of_the_oscillator_against_the_solution(fine):
    t = fine.t[1:]
    assert fine.failed == 0 and len(t) == 5
    mean, covariance = solution(t)
    own_mean, own_covariance = scheme(fine, da.midpoint())
    assert np.all(np.abs(own_mean - mean) < 0.3 * fine.stderr["state"][1:])
    assert np.abs(own_covariance - covariance).max() < 0.3 * np.sqrt(2 / PATHS) * TEMPERATURE
    assert checks(fine, mean, covariance) == ALL
    assert checks(fine, own_mean, own_covariance) == ALL


@pytest.mark.parametrize(
    ("wrong", "refused"),
    [
        ({"temperature": 0.75}, {"second", "variance"}),
        ({"gamma": 0.5}, {"mean", "second", "variance"}),
        ({"start": START + 0.1}, {"mean", "second"}),
    ],
    ids=["temperature", "gamma", "start"],
)
def test_controls_of_mean_and_covariance(fine, wrong, refused):
    found = checks(fine, *solution(fine.t[1:], **wrong))
    assert {name for name, holds in found.items() if not holds} == refused


def test_a_run_at_another_temperature_is_refused(fine):
    hot = simulate(OSCILLATOR.with_params(temperature=0.75))
    assert checks(hot, *solution(hot.t[1:], temperature=0.75)) == ALL
    assert checks(hot, *solution(hot.t[1:]))["variance"] is False


@pytest.mark.slow
def test_large_steps_against_the_method_itself():
    """The bias of the method shows: its own moments agree and those of the solution do not."""
    run = simulate(dt=0.5, save_every=12)
    assert checks(run, *scheme(run, da.midpoint())) == ALL
    assert checks(run, *solution(run.t[1:]))["mean"] is False
    assert checks(run, *scheme(run, da.stormer_verlet()))["variance"] is False


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(for_every_system()))
def test_large_steps_against_every_method_itself(name):
    """The control is the noise: 10 % more of it."""
    method = da.METHODS[name]()
    run = simulate(method=method, dt=0.25, save_every=12)
    assert checks(run, *scheme(run, method)) == ALL
    louder = OSCILLATOR.with_params(temperature=1.21 * TEMPERATURE)
    assert checks(run, *scheme(run, method, louder))["variance"] is False


def gibbs(key):
    """A state from the stationary density."""
    q, p = jax.random.normal(key, (2, 1))
    return jnp.sqrt(TEMPERATURE) * q, jnp.sqrt(MASS * TEMPERATURE) * p


@pytest.fixture(scope="module")
def kept():
    """Paths from the stationary density, at six times."""
    return da.simulate(
        OSCILLATOR,
        da.midpoint(),
        gibbs,
        dt=0.05,
        t_end=6.0,
        save_every=24,
        paths=PATHS,
        seed=12,
        keep="all",
    )


def correlation(run):
    """Estimates of E[z(t) z(0)ᵀ], z = (q, p), and their standard errors."""
    z = np.concatenate([run.q, run.p], axis=2)
    pairs = z[:, :, :, None] * z[0, :, None, :]
    return pairs.mean(axis=1), pairs.std(axis=1, ddof=1) / np.sqrt(pairs.shape[1])


def test_autocorrelation_against_the_solution_and_the_method(kept):
    """E[z(t) z(0)ᵀ] = e^{At} S∞; for the method e^{A dt} is the matrix of one step."""
    measured, stderr = correlation(kept)
    exact = propagator(kept.t) @ stationary()
    assert agrees(measured, stderr, exact)
    steps = np.rint(kept.t / 0.05).astype(int)
    columns = [
        da.exact_moments(OSCILLATOR, da.midpoint(), (unit[:1], unit[1:]), dt=0.05, steps=steps).mean
        for unit in np.eye(2)
    ]
    own = np.stack(columns, axis=2) @ stationary()
    assert agrees(measured, stderr, own) and np.abs(own - exact).max() < 0.3 * stderr.max()


@pytest.mark.parametrize(
    "wrong",
    [
        {"gamma": 0.45},
        {"mass": 1.6},
        {"shift": 0.1},
        {"temperature": 0.75},
    ],
    ids=str,
)
def test_controls_of_the_autocorrelation(kept, wrong):
    t = kept.t + wrong.get("shift", 0.0)
    flow = {name: value for name, value in wrong.items() if name in ("gamma", "mass")}
    rest = {name: value for name, value in wrong.items() if name in ("mass", "temperature")}
    assert not agrees(*correlation(kept), propagator(t, **flow) @ stationary(**rest))


def test_the_stationary_density_stays(kept):
    """Variances at every time, and a control: those of another temperature."""
    for z, variance in ((kept.q, TEMPERATURE), (kept.p, MASS * TEMPERATURE)):
        found = z[..., 0].var(axis=1, ddof=1)
        assert agrees(found, variance * np.sqrt(2 / PATHS), variance)
        assert not agrees(found, variance * np.sqrt(2 / PATHS), 1.1 * variance)
    kinetic = stats.kstest(kept.p[-1, :, 0] ** 2 / (MASS * TEMPERATURE), stats.chi2(1).cdf)
    assert kinetic.pvalue > FALSE_ALARM
    shifted = stats.kstest(kept.p[-1, :, 0] ** 2 / (MASS * 0.8), stats.chi2(1).cdf)
    assert shifted.pvalue < FALSE_ALARM


@pytest.mark.slow
def test_standard_errors_are_neither_too_small_nor_too_large():
    """Runs with other seeds differ as their standard errors say, and are independent.

    The sum of the squares of n scores has the chi-squared distribution of n degrees of freedom.
    """
    seeds = 200
    runs = [
        simulate(dt=0.5, save_every=12, saves=1, paths=2048, seed=seed) for seed in range(seeds)
    ]
    expected = scheme(runs[0], da.midpoint())[0][-1, 0]
    scores = np.array(
        [(r.mean["state"][-1, 0] - expected) / r.stderr["state"][-1, 0] for r in runs]
    )

    def plausible(scores):
        low, high = stats.chi2(seeds).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
        return low < np.sum(scores**2) < high

    assert plausible(scores)
    assert stats.kstest(scores, stats.norm.cdf).pvalue > FALSE_ALARM
    assert not plausible(scores / 1.5) and not plausible(scores * 1.5)


BETA, NU, KUBO_DT = 0.6, 0.4, 0.03
KUBO = da.systems.damped_kubo(beta=BETA, nu=NU)


def simulate_kubo(method, paths=PATHS):
    return da.simulate(
        KUBO, method, ([2.0], [0.5]), dt=KUBO_DT, t_end=6.0, save_every=40, paths=paths, seed=13
    )


def kubo_of_the_method(method, t):
    steps = np.rint(t / KUBO_DT).astype(int)
    return da.exact_moments(KUBO, method, ([2.0], [0.5]), dt=KUBO_DT, steps=steps).energy


@pytest.fixture(scope="module", params=["rs2", "srkw2"])
def kubo(request):
    """With a method of weak order 2 and its three-point increments."""
    return simulate_kubo(da.METHODS[request.param]())


@pytest.mark.slow
def test_energy_of_the_kubo_oscillator(kubo):
    """Against the exact E(H) and the method's own, which differ by less than chance does."""
    mean, stderr, t = kubo.mean["energy"][1:], kubo.stderr["energy"][1:], kubo.t[1:]
    method = da.METHODS[kubo.provenance["method"]["name"]]()
    exact, own = kubo_energy(t, 2.0, 0.5, BETA, NU), kubo_of_the_method(method, t)
    assert np.all(np.abs(own - exact) < 0.3 * stderr)
    assert agrees(mean, stderr, own) and agrees(mean, stderr, exact)


@pytest.mark.slow
def test_energy_of_the_kubo_oscillator_where_the_bias_of_the_method_shows():
    """The midpoint method has weak order 1: its own energy agrees, that of others does not."""
    run = simulate_kubo(da.midpoint(), paths=8 * PATHS)
    mean, stderr, t = run.mean["energy"][1:], run.stderr["energy"][1:], run.t[1:]
    assert agrees(mean, stderr, kubo_of_the_method(da.midpoint(), t))
    assert not agrees(mean, stderr, kubo_of_the_method(da.stormer_verlet(), t))


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong", [{"beta": 0.7}, {"beta": 0.5}, {"nu": 0.42}, {"q0": 2.03}, {"shift": 0.05}], ids=str
)
def test_controls_of_the_energy_of_the_kubo_oscillator(kubo, wrong):
    """Wrong noise amplitudes, damping, initial states and times are refused."""
    told = {"q0": 2.0, "p0": 0.5, "beta": BETA, "nu": NU, "shift": 0.0} | wrong
    exact = kubo_energy(kubo.t[1:] + told.pop("shift"), **told)
    assert not agrees(kubo.mean["energy"][1:], kubo.stderr["energy"][1:], exact)
