"""Parameters from observed paths: likelihoods of steps, matched moments, and what is refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import dalembert as da
from dalembert import fitting
from dalembert.fitting.paths import Transitions, _gaussian
from dalembert.stepping.stepper import make_stepper
from dalembert.systems.kubo_system import kubo_energy

EULER = da.ExplicitTableau(
    A=[[0]], alpha=[1], B1=[[0]], g1=[1], B2=[[0]], g2=[0], name="Euler and Maruyama"
)
TRUE = {"nu": 0.5, "sigma": 0.5}
GUESS = {"nu": 0.2, "sigma": 1.0}
MODEL = da.systems.van_der_pol(**GUESS)


@pytest.fixture(scope="module")
def data():
    """Van der Pol's oscillator seen at every half, simulated with shorter steps."""
    system, method = da.systems.van_der_pol(**TRUE), da.additive_midpoint()
    start = [1.0], [1.0]
    run = da.simulate(
        system, method, start, dt=0.025, t_end=200.0, paths=2, save_every=20, keep="all", seed=3
    )
    return run.t, np.asarray(run.q), np.asarray(run.p)


@pytest.fixture(scope="module")
def likelihood(data):
    return fitting.path_likelihood(MODEL, da.additive_midpoint(), *data, substeps=2)


@pytest.fixture(scope="module")
def found(likelihood):
    return fitting.fit(likelihood, GUESS, positive=["sigma"])


@pytest.mark.slow
def test_the_likelihood_of_a_linear_system_is_that_of_the_exact_moments_of_its_steps():
    system, method = da.systems.langevin(gamma=0.7, temperature=0.5), da.additive_midpoint()
    q, p = np.asarray([[1.0], [0.4], [0.3]]), np.asarray([[0.5], [-0.8], [0.1]])
    t = np.asarray([0.0, 0.6, 1.0])
    likelihood = fitting.path_likelihood(system, method, t, q, p, substeps=2)
    expected = 0.0
    for k in range(2):
        h = (t[k + 1] - t[k]) / 2
        m = da.exact_moments(system, method, (q[k], p[k]), dt=h, steps=2)
        law = multivariate_normal(m.mean, m.second - np.outer(m.mean, m.mean))
        expected += law.logpdf([q[k + 1, 0], p[k + 1, 0]])
    assert likelihood.components == (0, 1)
    assert np.isclose(likelihood({"gamma": 0.7}), expected, rtol=1e-10)


@pytest.mark.slow
def test_multiplicative_noise_has_its_correction():
    """Mean and covariance of a step of Kubo's oscillator, against exact moments of the step."""
    system, h, z = da.systems.damped_kubo(beta=0.5, nu=0.2), 0.1, jnp.asarray([2.0, 0.3])
    stepper = make_stepper(system, da.midpoint(), np.float64)

    @jax.jit
    def gaussian(dt):
        one = Transitions(jnp.zeros(()), dt, z[:1], z[1:], z)
        return _gaussian(stepper, 1, one, {"beta": 0.5, "nu": 0.2})

    mean, factor, _ = gaussian(jnp.asarray(h))
    exact = da.exact_moments(system, da.midpoint(), (z[:1], z[1:]), dt=h, steps=1)
    covariance = exact.second - np.outer(exact.mean, exact.mean)
    assert np.allclose(mean, exact.mean, rtol=0, atol=1e-5)
    assert np.allclose(factor @ factor.T, covariance, rtol=0, atol=1e-4)
    q, p, _ = da.step(system, da.midpoint(), z[:1], z[1:], h, 0.0)
    assert np.abs(np.concatenate([q, p]) - exact.mean).max() > 0.01, "the correction can be seen"


@pytest.mark.slow
def test_parameters_are_found_within_their_errors(found):
    for name, value in TRUE.items():
        assert abs(found.estimate[name] - value) < 3 * found.stderr[name]
        low, high = found.interval()[name]
        assert low < found.estimate[name] < high
    assert found.correlation.shape == (2, 2)
    assert "nu" in str(found) and "s.e." in str(found) and "800 transitions" in str(found)


def _some_first(data, transitions):
    t, q, p = data
    part = slice(transitions + 1)
    return fitting.path_likelihood(MODEL, EULER, t[part], q[part, :1], p[part, :1])


def test_few_data_have_no_small_errors(data):
    """At the best parameters scores add up to zero: those of two transitions cancel each other."""
    with pytest.raises(ValueError, match="2 transitions do not tell 2 parameters"):
        fitting.fit(_some_first(data, 2), GUESS, positive=["sigma"])
    likelihood = _some_first(data, 4)
    few = fitting.fit(likelihood, GUESS, positive=["sigma"], max_iterations=1000)
    assert any("4 transitions are few for 2 parameters" in note for note in few.notes)
    at = np.asarray([few.estimate["nu"], few.estimate["sigma"]])
    scored = likelihood.scored((("nu", ()), ("sigma", ())), at)
    inverse = np.linalg.inv(scored.information)
    sandwich = inverse @ np.asarray(scored.spread) @ inverse
    assert np.all(np.diag(few.covariance) >= np.diag(inverse) * (1 - 1e-9))
    assert np.any(np.diag(sandwich) < 0.9 * np.diag(inverse)), "a control: they were too small"
    many = fitting.fit(_some_first(data, 200), GUESS, positive=["sigma"])
    assert not any("few" in note for note in many.notes)


def test_intervals_of_positive_parameters_have_no_negative_end(found):
    assert found.positive == ("sigma",)
    wide = replace(found, stderr={name: 2 * x for name, x in found.estimate.items()})
    low, high = wide.interval()["sigma"]
    assert low == 0.0 < high
    assert wide.interval()["nu"][0] < 0, "of nu nothing was said"
    low, high = found.interval()["sigma"]
    assert np.isclose(low + high, 2 * found.estimate["sigma"])


def test_the_likelihood_of_euler_is_biased_at_large_steps(data):
    biased = fitting.fit(fitting.path_likelihood(MODEL, EULER, *data), GUESS, positive=["sigma"])
    for name, value in TRUE.items():
        assert abs(biased.estimate[name] - value) > 4 * biased.stderr[name]


@pytest.mark.slow
def test_score_and_gradient_are_those_of_the_value(likelihood, found):
    free, at = (("nu", ()), ("sigma", ())), np.asarray([0.4, 0.6])
    scored = likelihood.scored(free, at)
    gradient = jax.jit(jax.grad(likelihood))({"nu": 0.4, "sigma": 0.6})
    assert np.allclose(scored.score, [gradient["nu"], gradient["sigma"]], rtol=1e-9)
    assert np.isclose(scored.value, likelihood({"nu": 0.4, "sigma": 0.6}))
    h = 1e-5
    for k, e in enumerate(np.eye(2)):
        up, down = (likelihood.scored(free, at + s * h * e).value for s in (1, -1))
        assert np.isclose(scored.score[k], (up - down) / (2 * h), rtol=1e-6)
    best = likelihood.scored(free, np.asarray([found.estimate["nu"], found.estimate["sigma"]]))
    assert np.all(np.abs(best.score) < 1e-2) and np.isclose(best.value, found.value)


def test_values_are_float64_without_a_global_switch(data):
    t, q, p = data
    values = []
    for switch in (False, True):
        jax.config.update("jax_enable_x64", switch)
        da.clear_caches()
        values.append(fitting.path_likelihood(MODEL, EULER, t, q, p)(TRUE))
    assert np.isclose(*values, rtol=1e-12)


def test_a_picture(found):
    from matplotlib import pyplot

    axes = found.plot()
    assert axes.shape == (2, 2) and len(axes[1, 0].lines) == 3
    pyplot.close("all")


def test_degenerate_noise_counts_where_it_is_regular(data, likelihood):
    assert likelihood.components == (0, 1) and not likelihood.notes
    one = fitting.path_likelihood(MODEL, EULER, *data)
    assert one.components == (1,)
    assert "p[0] given the state before" in repr(one)


def _spring(**params):
    """Noise in the first of two momenta."""
    return da.System(
        H=lambda q, p, c: p @ p / 2 + c["a"] * c["b"] * q @ q / 2,
        h=[lambda q, p, c: -c["sigma"] * q[0]],
        dim=2,
        params={"a": 1.0, "b": 1.0, "sigma": 1.0, "idle": 0.0, **params},
    )


def _some_path(dim, n=40):
    rng = np.random.default_rng(0)
    return np.arange(n) * 0.1, rng.normal(size=(n, dim)), rng.normal(size=(n, dim))


def test_components_that_no_noise_reaches_do_not_count():
    assert fitting.path_likelihood(_spring(), EULER, *_some_path(2)).components == (2,)


@pytest.mark.slow
def test_what_the_data_do_not_determine_is_said_by_name():
    likelihood = fitting.path_likelihood(_spring(), EULER, *_some_path(2))
    with pytest.raises(ValueError, match="say nothing about idle at"):
        fitting.fit(likelihood, {"sigma": 1.0, "idle": 0.0}, positive=["sigma"])
    with pytest.raises(ValueError, match="only a combination of a, b at a = 1"):
        fitting.fit(likelihood, {"a": 1.0, "b": 1.0, "sigma": 1.0}, positive=["sigma"])
    alone = fitting.fit(likelihood, {"a": 1.0, "sigma": 1.0}, positive=["sigma"])
    assert alone.stderr["a"] > 0


@pytest.mark.slow
def test_optax_finds_the_best_parameters():
    """The value is a function of parameters by name like any other loss."""
    optax = pytest.importorskip("optax")
    t, p = np.arange(40) * 0.5, np.random.default_rng(0).normal(size=(40, 1))
    seen = fitting.path_likelihood(damped(), EULER, t, 0 * p, p)
    best = fitting.fit(seen, {"gamma": 0.5, "sigma": 0.5}, positive=["sigma"])
    slope = jax.jit(jax.grad(lambda x: -seen(x) / seen.count))
    optimiser, x = optax.adam(0.1), {"gamma": jnp.asarray(0.5), "sigma": jnp.asarray(0.5)}
    state = optimiser.init(x)
    with jax.numpy_dtype_promotion("standard"):
        for _ in range(300):
            change, state = optimiser.update(slope(x), state)
            x = optax.apply_updates(x, change)
    for name, value in best.estimate.items():
        assert abs(x[name] - value) < 0.01 * best.stderr[name]


def damped():
    """Noise in the momenta, that nothing but friction holds back."""
    return da.System(
        H=lambda q, p, c: p @ p / 2,
        F=lambda q, p, c: -c["gamma"] * p,
        h=[lambda q, p, c: -c["sigma"] * q[0]],
        dim=1,
        params={"gamma": 0.5, "sigma": 0.5},
    )


@pytest.mark.parametrize("period", [1, 2])
def test_observations_that_are_repeated_are_refused(period):
    """Scores of equal transitions do not vary by chance; those of both of two add up to zero."""
    guess = {"sigma": 0.5} if period == 1 else {"gamma": 0.5, "sigma": 0.5}

    def fitted(p):
        seen = fitting.path_likelihood(damped(), EULER, np.arange(121) * 0.5, 0 * p, p)
        return fitting.fit(seen, guess, positive=["sigma"])

    with pytest.raises(ValueError, match=r"do not vary at .* constant or repeated"):
        fitted(np.resize([1.0, 2.0][:period], 121)[:, None])
    varied = fitted(np.random.default_rng(0).normal(size=(121, 1)))
    assert min(varied.stderr.values()) > 1e-3, "a control"


def test_without_noise_there_is_no_likelihood():
    with pytest.raises(ValueError, match="without noise there is no likelihood"):
        fitting.path_likelihood(_spring(sigma=0.0), EULER, *_some_path(2))


def test_noise_that_vanishes_at_some_observations_is_refused():
    system = da.System(
        H=lambda q, p: p @ p / 2, f=[lambda q, p: p], dim=1, params=None, name="friction"
    )
    t, q, p = _some_path(1)
    p[7] = 0.0
    with pytest.raises(ValueError, match=r"does not reach p\[0\] in 1 of 39.*number 7"):
        fitting.path_likelihood(system, EULER, t, q, p)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": np.zeros((39, 1))}, r"q must have shape \(times, 1,\) or .* for the 40 times"),
        ({"q": np.zeros((40, 3, 1))}, "q and p must be of the same paths"),
        ({"t": np.zeros(40)}, "t must increase"),
        ({"t": [0.0]}, "t must be at least 2 times"),
        ({"p": np.full((40, 1), np.nan)}, r"p\[0, 0, 0\] is nan"),
        ({"substeps": 0}, "substeps must be a positive integer"),
    ],
)
def test_data_that_do_not_fit_are_refused(change, message):
    t, q, p = _some_path(1)
    given = {"method": EULER, "t": t, "q": q, "p": p, **change}
    with pytest.raises(ValueError, match=message):
        fitting.path_likelihood(MODEL, **given)


def test_methods_that_read_more_than_normal_numbers_are_refused():
    two = da.System(
        H=lambda q, p: (q @ q + p @ p) / 2,
        h=[lambda q, p: q[0], lambda q, p: q[0] * p[0]],
        dim=1,
    )
    for method in (da.rs1(), da.bracket_midpoint(), da.ninomiya_victoir()):
        with pytest.raises(ValueError, match=f"{method.name} reads .*which are not normal"):
            fitting.path_likelihood(two, method, *_some_path(1))


def test_guesses_that_are_none_are_refused(likelihood):
    for guess, kind, message in (
        ({"mu": 1.0}, ValueError, "no parameter .'mu'."),
        ({}, TypeError, "parameters by name"),
        ({"nu": [1.0, 2.0]}, ValueError, "nu must be finite, of shape"),
    ):
        with pytest.raises(kind, match=message):
            fitting.fit(likelihood, guess)
    with pytest.raises(ValueError, match="positive must name"):
        fitting.fit(likelihood, GUESS, positive=["mu"])
    with pytest.raises(ValueError, match="must be above 0"):
        fitting.fit(likelihood, {"sigma": -1.0}, positive=["sigma"])
    with pytest.raises(RuntimeError, match="did not end in 1 steps"):
        fitting.fit(likelihood, GUESS, positive=["sigma"], max_iterations=1)


def _energy(q, p, params):
    return (q[0] ** 2 + p[0] ** 2) / 2


@pytest.fixture(scope="module")
def kubo_match():
    """The mean energy of 400 paths of Kubo's oscillator, to be matched to the exact one."""
    system, t = da.systems.damped_kubo(beta=0.5, nu=0.5), np.arange(5) * 0.5
    exact = kubo_energy(t, 2.0, 0.0, 0.5, 0.4)
    return fitting.match_moments(
        system,
        da.midpoint(),
        t,
        np.asarray(exact),
        observe=_energy,
        initial=([2.0], [0.0]),
        dt=0.05,
        summary=lambda y: y[1:],
        paths=400,
    )


@pytest.mark.slow
def test_gradients_of_the_energy_of_kubo_are_those_of_the_closed_formula(kubo_match):
    def summaries(beta, nu):
        return kubo_match.simulated({"beta": beta, "nu": nu})

    slopes = jax.jit(jax.jacfwd(summaries, argnums=(0, 1)))(0.5, 0.5)
    exact = jax.jacfwd(lambda b, n: kubo_energy(2.0, 2.0, 0.0, b, n), argnums=(0, 1))(0.5, 0.5)
    for slope, value in zip(slopes, exact, strict=True):
        error = np.std(slope[:, -1]) / len(slope) ** 0.5
        assert abs(np.mean(slope[:, -1]) - value) < 4 * error + 2e-3
        assert abs(np.mean(slope[:, -1]) + value) > 4 * error, "its sign can be seen"


@pytest.mark.slow
def test_moments_find_what_made_them(kubo_match):
    """The target is the exact energy of ν = 0.4, so that only the simulated sample errs."""
    found = fitting.fit(kubo_match, {"nu": 0.5})
    assert abs(found.estimate["nu"] - 0.4) < 3 * found.stderr["nu"]
    assert found.misfit is not None and found.misfit[1] == 3 and "misfit" in str(found)
    value, slope = jax.value_and_grad(lambda nu: kubo_match({"nu": nu}))(0.5)
    scored = kubo_match.scored((("nu", ()),), np.asarray([0.5]))
    # Slopes are secants over a quarter of a parameter.
    assert np.isclose(value, scored.value) and np.isclose(slope, scored.score[0], rtol=0.05)


@pytest.mark.slow
def test_noise_of_slopes_is_no_information(kubo_match):
    """Of made-up paths, whose slope is one and noisy: on average they tell of one and no more."""
    rng, paths, found = np.random.default_rng(0), 50, []
    for _ in range(400):
        slopes = 1 + 2 * rng.normal(size=(paths, 4))
        made = replace(
            kubo_match,
            paths=paths,
            simulated=lambda params, slopes=slopes: slopes * params["nu"],
            weights=np.eye(4),
        )
        scored = made.scored((("nu", ()),), np.asarray([0.5]))
        found.append((scored.information[0, 0], scored.spread[0, 0]))
    mean, error = np.mean(found, 0), np.std(found, 0) / 20
    assert abs(mean[0] - 4) < 4 * error[0], "four moments of slope one"
    assert mean[1] - 4 > 4 * error[1], "with the noise there seems to be more"


def test_too_few_simulated_paths_are_said(kubo_match):
    assert kubo_match.notes == ()
    few = replace(kubo_match, paths=2 * len(kubo_match.target))
    assert "simulated paths are few for the covariance" in few.notes[0]
    with pytest.raises(ValueError, match="moments do not determine 5 parameters"):
        kubo_match.check_enough(5)


def test_lagged_moments():
    y = np.random.default_rng(1).normal(size=(30, 2))
    found = fitting.lagged_moments(0, 3)(jnp.asarray(y))
    lagged = y[:-3].T @ y[3:] / 27
    square = y.T @ y / 30
    expected = [*y.mean(0), square[0, 0], square[0, 1], square[1, 1], *lagged.ravel()]
    assert np.allclose(found, expected)
    with pytest.raises(ValueError, match="lags must be"):
        fitting.lagged_moments(-1)
    with pytest.raises(ValueError, match="needs more than 30"):
        fitting.lagged_moments(30)(jnp.asarray(y))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t": [0.0, 0.1, 0.3]}, r"evenly spaced, but t\[0\]"),
        ({"dt": 0.3}, "does not divide the spacing 0.5"),
        ({"burn_in": 0.7}, "burn_in = 0.7 must be a multiple"),
        ({"measurement": "tau"}, "no parameter 'tau'"),
        ({"y": np.zeros((3, 2, 2))}, "y must have shape"),
        ({"summary": lambda y: y[0]}, "summary must give an array"),
        ({"paths": 3}, "need more than"),
        ({"summary": lambda y: y[:2]}, r"moments \[0\] of the summary are the same"),
        ({"summary": lambda y: jnp.stack([y[1], y[1]])}, "depend on each other"),
    ],
)
def test_what_cannot_be_matched_is_refused(change, message):
    given = {
        "t": [0.0, 0.5, 1.0],
        "y": np.ones((3, 2)),
        "observe": _energy,
        "initial": ([2.0], [0.0]),
        "dt": 0.5,
        "summary": lambda y: y[1:],
        "paths": 20,
        **change,
    }
    with pytest.raises(ValueError, match=message):
        fitting.match_moments(da.systems.damped_kubo(), da.heun(), **given)
