"""Estimates of plasmas: control variates, and fits of frequencies and rates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.plasma import DeltaF, Start, fit_growth, fit_wave, linear, vlasov_poisson

K, ALPHA = 0.5, 0.05
LENGTH = 2 * np.pi / K


@pytest.mark.slow
def test_estimates_by_what_differs_have_less_noise_and_the_same_mean():
    """Random starts: distances to linear theory, of raw means and of those with weights."""
    N = 2**11
    start = Start(N, LENGTH, amplitude=ALPHA)
    system, distances, gains = vlasov_poisson(N, LENGTH), [], []
    t = np.array([0.0, 0.4])
    expected = linear.response(K, t).real
    for seed in range(4):
        with jax.enable_x64(True):
            state = tuple(np.asarray(x) for x in start.random(jax.random.key(seed)))
        estimate = DeltaF(start, state)
        observe = {
            "raw": da.plasma.density_modes(1),
            "delta": estimate.density_modes(1),
            "gain": estimate.gain(1),
        }
        run = da.simulate(
            system, da.stormer_verlet(), state, dt=0.1, t_end=0.4, save_every=4, paths=1,
            observe=observe, progress=False,
        )  # fmt: skip
        found = [-run.mean[name][:, 0, 0] / ALPHA - expected for name in ("raw", "delta")]
        distances.append(found)
        gains.append(run.mean["gain"][0, 0, 0])
    raw, delta = np.sqrt(np.mean(np.square(distances), axis=0))
    # Later the noise of the field has moved the particles, which no estimate can undo.
    assert raw[0] > 8 * delta[0] and raw[1] > 3 * delta[1]
    # Var(cos kx) over Var(α cos² kx) at the start.
    assert np.mean(gains) == pytest.approx(4 / ALPHA**2, rel=0.1)
    # The control: in the mean there is nothing to gain.
    assert abs(np.mean(distances, axis=0)[1][0]) < 4 * delta[0] / np.sqrt(4)


def test_moments_by_what_differs_have_less_noise():
    """⟨v²⟩ and ⟨cos kx⟩ of random particles, without a step; the raw means are the control."""
    N, T, gaps = 2**10, 2.0, []
    start = Start(N, LENGTH, amplitude=ALPHA, velocities=da.plasma.Maxwellian(temperature=T))
    params = vlasov_poisson(N, LENGTH).params
    functions = (lambda x, v: v**2, T, T), (lambda x, v: jnp.cos(K * x), 0.0, ALPHA / 2)
    for seed in range(6):
        q, p = start.random(jax.random.key(seed))
        found = DeltaF(start, (q, p))
        for function, known, exact in functions:
            both = jnp.mean(function(q, p)), found.mean(function, known)(q, p, params)
            gaps.append([float(x) - exact for x in both])
    raw, delta = np.sqrt(np.mean(np.square(gaps).reshape(6, 2, 2), axis=0)).T
    assert np.all(delta < 0.15 * raw)
    with pytest.raises(ValueError, match=r"gives shape \(\), but must give one value for each"):
        found.mean(lambda x, v: jnp.sum(v), 0.0)(q, p, params)


def test_delta_f_of_another_state_than_that_of_the_run_is_refused_or_not_a_number():
    """Particles that are not those whose density is known: in a run, and by the mean weight."""
    N = 2**12
    start, system = Start(N, LENGTH, amplitude=ALPHA), vlasov_poisson(N, LENGTH)
    state, other = (
        tuple(np.asarray(x) for x in start.random(jax.random.key(seed))) for seed in (1, 2)
    )
    found = DeltaF(start, state)
    options = dict(dt=0.1, t_end=0.1, paths=1, progress=False)
    observables = {
        "wave": found.density_modes(1),
        "gain": found.gain(1),
        "heat": found.mean(lambda x, v: v**2, 1.0),
    }
    for name, observable in observables.items():
        for initial in (other, (state[0], other[1]), (other[0], state[1])):
            with pytest.raises(ValueError, match=r"another state than the state of DeltaF"):
                da.simulate(
                    system, da.stormer_verlet(), initial, observe={name: observable}, **options
                )
        with pytest.raises(ValueError, match=r"state = start\.random\(key\)"):
            da.simulate(
                system, da.stormer_verlet(), start.random, observe={name: observable}, **options
            )
    here, there = (tuple(map(jnp.asarray, z)) for z in (state, other))
    assert np.all(np.isfinite(found.weights(*here, system.params)))
    for pair in (there, (here[0], there[1]), (here[0], 1.3 * here[1]), (here[0], 0.8 * here[1])):
        assert np.all(np.isnan(found.weights(*pair, system.params)))
    # Particles that have moved since are still those.
    moved = tuple(np.asarray(x) for x in (state[0] + 0.3 * state[1], state[1]))
    found.begins((np.stack([state[0]] * 2), state[1]))
    with pytest.raises(ValueError, match="another state than the state of DeltaF"):
        found.begins(moved)
    DeltaF(start, state, moved).begins(moved)
    with pytest.raises(ValueError, match="than the moved state"):
        DeltaF(start, state, moved).begins(state)


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (dict(amplitude=0.3), "the wave of amplitude 0.3"),
        (dict(mode=2), "the wave of amplitude 0.05"),
        (dict(length=0.9 * LENGTH), "would be another one"),
        (dict(velocities=da.plasma.Maxwellian(temperature=1.5)), "the velocities would be"),
        (dict(velocities=da.plasma.Maxwellian(drift=0.4)), "the velocities would be"),
        (dict(velocities=da.plasma.two_streams(1.0)), "the velocities"),
        (dict(mass=2.0), "the velocities would be"),
    ],
)
def test_delta_f_of_a_state_that_is_not_of_its_start_is_refused(other, match):
    """Quiet and random states are those of their starts, and of no other."""
    N, streams = 2**16, da.plasma.two_streams(2.5, 0.5)
    for options in ({}, dict(velocities=streams), dict(weight=0.5, mass=3.0)):
        start = Start(N, LENGTH, amplitude=ALPHA, **options)
        for state in (start.quiet(), start.random(jax.random.key(0))):
            DeltaF(start, state)
    given = {"amplitude": ALPHA, "length": LENGTH}
    state = Start(N, **given).quiet()
    with pytest.raises(ValueError, match=match):
        DeltaF(Start(N, **{**given, **other}), state)


def test_delta_f_is_for_one_dimension():
    start = Start(8, LENGTH, components=2)
    with pytest.raises(ValueError, match="one dimension with one velocity"):
        DeltaF(start, start.quiet())


@pytest.mark.slow
@pytest.mark.parametrize(("omega", "gamma"), [(1.4, -0.15), (0.3, 0.02), (5.0, -0.5)])
def test_waves_are_fitted_with_the_right_error_bars(omega, gamma):
    """Many noisy copies of a wave: nine of ten fits are within 1.64 standard errors."""
    rng, t = np.random.default_rng(1), np.linspace(2.0, 12.0, 81)
    wave = 1.3 * np.exp(gamma * t) * np.cos(omega * t + 0.4)
    noise = 0.02 * np.max(np.abs(wave))
    scores = []
    for known in (None, noise):
        for _ in range(30):
            found = fit_wave(t, wave + noise * rng.normal(size=t.size), known)
            scores.append((found.omega - omega) / found.omega_error)
            scores.append((found.gamma - gamma) / found.gamma_error)
    share = np.mean(np.abs(scores) < 1.645)
    assert 0.8 < share < 0.98
    exact = fit_wave(t, wave)
    assert exact.omega == pytest.approx(omega, abs=1e-9)
    assert exact.gamma == pytest.approx(gamma, abs=1e-9)


def test_growth_is_fitted_with_the_right_error_bars():
    rng, t = np.random.default_rng(2), np.linspace(0.0, 5.0, 41)
    scores = []
    for _ in range(200):
        found = fit_growth(t, -0.1 * np.exp(0.3 * t) + 0.005 * rng.normal(size=t.size))
        scores.append((found.gamma - 0.3) / found.gamma_error)
    assert 0.84 < np.mean(np.abs(scores) < 1.645) < 0.96


def with_noise_of_a_wave(rng, t, paths, size):
    """A damped wave, and noise that oscillates as it does: one wave of random parts on each."""
    parts = size * rng.normal(size=(paths, 2, 1))
    noise = parts[:, 0] * np.cos(1.4 * t) + parts[:, 1] * np.sin(1.4 * t)
    white = 0.01 * rng.normal(size=(paths, t.size))
    return np.exp(-0.15 * t) * np.cos(1.4 * t) + noise + white


def test_error_bars_of_several_series_are_right_for_any_noise():
    """Fits of many means of sixteen series; the control are error bars of one series, the mean."""
    rng, t = np.random.default_rng(3), np.linspace(0.0, 8.0, 33)
    several, one = [], []
    for _ in range(20):
        y = with_noise_of_a_wave(rng, t, 16, 0.1)
        several.append(fit_wave(t, y))
        one.append(fit_wave(t, np.mean(y, axis=0)))
    assert one[0][:2] == several[0][:2]
    for value, error in ((0, 2), (1, 3), (4, 5)):
        spread = np.std([fit[value] for fit in several])
        jackknife, single = (
            np.sqrt(np.mean([fit[error] ** 2 for fit in fits])) for fits in (several, one)
        )
        assert 0.6 < spread / jackknife < 1.6
        assert single < 0.4 * spread


def test_error_bars_of_several_series_of_independent_noise_are_those_of_one():
    rng, t = np.random.default_rng(4), np.linspace(0.0, 5.0, 41)
    y = 0.1 * np.exp(0.3 * t) + 0.02 * rng.normal(size=(40, t.size))
    several, one = fit_growth(t, y), fit_growth(t, np.mean(y, axis=0))
    assert several.gamma == one.gamma and several.amplitude == pytest.approx(0.1, abs=0.01)
    assert several.gamma_error == pytest.approx(one.gamma_error, rel=0.5)
    assert several.amplitude_error == pytest.approx(one.amplitude_error, rel=0.5)
    assert fit_growth(t, y[:1]) == fit_growth(t, y[0])


@pytest.mark.parametrize("kind", ["one series", "known errors", "several series", "coherent"])
def test_a_fit_of_noise_alone_says_so(kind):
    rng, t = np.random.default_rng(5), np.linspace(0.0, 10.0, 41)
    known = 1.0 if kind == "known errors" else None
    wave = 10 * np.exp(-0.1 * t) * np.cos(2 * t)
    for _ in range(5):
        noise = rng.normal(size=(8, t.size))
        if kind == "coherent":
            noise = 3 * (with_noise_of_a_wave(rng, t, 8, 1.0) - np.exp(-0.15 * t) * np.cos(1.4 * t))
        elif kind != "several series":
            noise = noise[0]
        with pytest.warns(UserWarning, match="no wave is significant"):
            fit_wave(t, noise, known)
        # Any other warning is an error here.
        found = fit_wave(t, 3 * wave + noise, known)
        assert found.amplitude == pytest.approx(30, abs=8) and found.amplitude_error < 5


@pytest.mark.parametrize("kind", ["white", "slow", "several series"])
def test_a_fit_says_when_nothing_grows(kind):
    """Energies of noise, positive and without growth; what grows, or decays, is no warning."""
    rng, t = np.random.default_rng(11), np.linspace(0.0, 20.0, 81)
    for _ in range(10):
        shape = (8, t.size) if kind == "several series" else (t.size,)
        noise = rng.normal(size=(2, *shape))
        if kind == "slow":
            # Amplitudes that forget themselves in a twentieth of the time.
            kernel = np.exp(-np.arange(25) / 4)
            noise = np.stack([np.convolve(rng.normal(size=105), kernel, "valid") for _ in "ab"])
            noise /= np.std(noise)
        energy = np.sum(noise**2, axis=0)
        with pytest.warns(UserWarning, match="nothing grows clearly: gamma = "):
            found = fit_growth(t, energy)
        assert "values scatter by" in found.note
        # Any warning is an error here.
        for gamma in (0.4, -0.4):
            grown = 100 * np.exp(gamma * (t - (20 if gamma > 0 else 0)))
            found = fit_growth(t, grown + energy)
            assert found.note == "" and found.gamma == pytest.approx(gamma, abs=0.1)


def test_a_wave_that_grows_is_judged_where_it_is_large():
    rng, t = np.random.default_rng(6), np.linspace(0.0, 20.0, 101)
    noise = 0.4 * rng.normal(size=(16, t.size))
    # Any warning is an error here.
    found = fit_wave(t, np.exp(0.3 * (t - 20)) * np.cos(1.1 * t) + noise)
    assert found.amplitude < 5 * found.amplitude_error
    assert found.gamma == pytest.approx(0.3, abs=5 * found.gamma_error)
    assert found.omega == pytest.approx(1.1, abs=5 * found.omega_error)
    with pytest.warns(UserWarning, match="no wave is significant"):
        fit_wave(t, noise)


def test_errors_of_several_series_are_weights_alone():
    rng, t = np.random.default_rng(7), np.linspace(0.0, 20.0, 101)
    wave, noise = 1e-3 * np.cos(1.1 * t), 1e-4 * rng.normal(size=(16, t.size))
    ones = np.ones(t.size)
    # Any warning is an error here.
    assert fit_wave(t, wave + noise, ones)[:2] == fit_wave(t, wave + noise)[:2]
    with pytest.warns(UserWarning, match="no wave is significant"):
        fit_wave(t, wave + noise[0], ones)


@pytest.mark.parametrize("time", [1e-15, 1e12])
@pytest.mark.parametrize("size", [1e-250, 1e250])
def test_fits_are_the_same_in_all_units(time, size):
    rng, t = np.random.default_rng(8), np.linspace(1.0, 11.0, 21)
    shapes = {fit_growth: np.exp(0.3 * t), fit_wave: np.exp(0.1 * t) * np.cos(2.0 * t)}
    for fit, shape in shapes.items():
        y = shape + 0.05 * rng.normal(size=(4, t.size))
        for values, error in ((y, None), (y[0], None), (y[0], 0.05)):
            scaled = fit(t * time, values * size, None if error is None else error * size)
            expected = np.array(fit(t, values, error)[:6]) * ([1 / time] * 4 + [size] * 2)
            assert np.allclose(scaled[:6], expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("t", "y", "error"),
    [
        ([0, 1e5, 2e5], [1e-300, 1, 1], None),
        ([0, 1e5, 2e5], [1e-300, 1e-150, 1], [1e-301, 1e-151, 0.1]),
        ([0, 1, 2], [1e-40, 1e-20, 1], None),
        (np.arange(11), np.exp(-30.0 * np.arange(11)), None),
        ([0, 1, 2], [1, 1.1, 1.2], [1e-9, 1.0, 1.0]),
    ],
)
def test_growth_that_one_value_alone_would_tell_is_refused(t, y, error):
    with pytest.raises(ValueError, match="the others are nothing, and say nothing of a growth"):
        fit_growth(t, y, error)


def test_errors_of_steep_growth_are_those_of_two_values():
    """y = (A, A g, …): of alike errors σ the last two have the growth, of relative ones all."""
    t = np.arange(5.0)
    y = np.exp(10.0 * t)
    steep = fit_growth(t, y, 1e-3 * y)
    slope = np.sum((t - 2) ** 2)
    assert steep.gamma == pytest.approx(10.0)
    assert steep.gamma_error == pytest.approx(1e-3 / np.sqrt(slope))
    alike = fit_growth(t, y, 1.0)
    assert alike.gamma_error == pytest.approx(np.hypot(1 / y[-2], 1 / y[-1]), rel=1e-3)


def test_complex_series_are_refused():
    t = np.arange(9.0)
    for fit in (fit_wave, fit_growth):
        with pytest.raises(TypeError, match=r"y is complex, .* fit y\.real"):
            fit(t, np.exp(1j * t))


@pytest.mark.slow
def test_error_bars_of_several_plasmas_are_those_of_their_rates():
    """Landau damping of 320 random starts, fitted in groups of sixteen."""
    N, paths = 2**10, 320
    options = dict(dt=0.1, t_end=12.0, paths=paths, save_every=2, keep="all", progress=False)
    start = Start(N, LENGTH, amplitude=0.1)
    run = da.simulate(vlasov_poisson(N, LENGTH), da.stormer_verlet(), start.random, **options)
    waves = 2 * np.mean(np.cos(K * run.q), axis=-1).T
    groups = waves.reshape(-1, 16, run.t.size)
    several = [fit_wave(run.t, y) for y in groups]
    one = [fit_wave(run.t, np.mean(y, axis=0)) for y in groups]
    spread = np.std([fit.gamma for fit in several], ddof=1)
    jackknife, single = (
        np.sqrt(np.mean([fit.gamma_error**2 for fit in fits])) for fits in (several, one)
    )
    assert 0.6 < spread / jackknife < 1.6 and single < 0.5 * spread


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: fit_wave([0, 1, 2], [1, 2, 3]), "9 or more times"),
        (lambda: fit_wave(np.arange(9.0), np.ones((9, 4))), r"shapes \(9,\) and \(9, 4\)"),
        (lambda: fit_wave(np.arange(9.0), np.ones((0, 9))), r"several series .* \(paths, times\)"),
        (lambda: fit_wave(np.arange(10.0) ** 2, np.ones(10)), "equal distances"),
        (lambda: fit_wave(np.arange(9.0), np.zeros(9)), "y is 0 at all times"),
        (
            lambda: fit_growth([0, 1, 2], [1, -2, 3]),
            r"changes its sign, or is 0: .* t\[a:b\] and y\[a:b\]; waves are for fit_wave",
        ),
        (lambda: fit_growth([0, 1, 2], [1, 2, 3], 0.0), "positive standard errors"),
    ],
)
def test_what_cannot_be_fitted_is_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_weights_of_a_plasma_with_collisions_are_refused():
    start = da.plasma.Start(8)
    system = da.plasma.vlasov_poisson(8, nu=0.1)
    state = start.quiet()
    with pytest.raises(ValueError, match="this plasma has collisions"):
        da.plasma.DeltaF(start, state).weights(*state, system.params)


@pytest.mark.slow
def test_weights_of_another_plasma_are_refused_or_not_a_number():
    start, system = da.plasma.Start(8), da.plasma.vlasov_poisson(8)
    state = tuple(map(jnp.asarray, start.quiet()))
    with pytest.raises(ValueError, match=r"a state of shape \(6,\), and the plasma has \(8,\)"):
        DeltaF(Start(6), Start(6).quiet()).weights(*state, system.params)
    with pytest.raises(TypeError, match=r"start must be a da\.plasma\.Start"):
        DeltaF(None, state)
    assert np.all(np.isfinite(DeltaF(start, state).weights(*state, system.params)))
    longer = DeltaF(da.plasma.Start(8, 20.0), state)
    assert np.all(np.isnan(longer.weights(*state, system.params)))
