"""Driven systems where they meet events, pairs of paths, flows, constraints and data.

What is compared with is the same system without `time=True`, in which time is one more position.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.noise import Gaussian, Halves
from dalembert.stepping.pair import PairMethod, pair_of

PARAMS = {"A": 0.7, "gamma": 0.4, "sigma": 0.5}
START, EXTENDED = ([1.0], [0.0]), ([1.0, 0.0], [0.0, 0.0])


@cache
def oscillator() -> da.System:
    """Drive and noise both depend on time."""

    def H(q, p, t, c):
        return p[0] ** 2 / 2 + q[0] ** 2 / 2 - c["A"] * q[0] * jnp.cos(1.7 * t)

    def h(q, p, t, c):
        return -c["sigma"] * q[0] * (1 + 0.3 * jnp.sin(t))

    F = lambda q, p, t, c: -c["gamma"] * p  # noqa: E731
    return da.System(H=H, F=F, h=[h], dim=1, params=PARAMS, time=True, name="oscillator")


def crossing(q, p, t, c):
    """An event that itself moves."""
    return q[0] - 0.3 * jnp.cos(t) - 0.1


def by_extension(fun):
    """A function of (q, p, t, params) as one of states with time in them."""
    return lambda q, p, c: fun(q[:1], p[:1], q[1], c)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [None, "XLA"])
def test_events_have_their_time(engine):
    observe = {"qt": lambda q, p, t, c: q[0] * t, "t": lambda q, p, t, c: t}
    lifted = {name: by_extension(fun) for name, fun in observe.items()}
    options = dict(dt=0.1, t_end=4.0, paths=20, save_every=10, keep="final", engine=engine,
                   progress=False)  # fmt: skip
    run = da.simulate(oscillator(), da.midpoint(), START, stop=crossing, observe=observe, **options)
    same = da.simulate(oscillator().extended(), da.midpoint(), EXTENDED,
                       stop=by_extension(crossing), observe=lifted, **options)  # fmt: skip
    assert run.stopped.count > 10
    np.testing.assert_allclose(run.stopped.t, same.stopped.t, rtol=0, atol=1e-13)
    np.testing.assert_allclose(run.q[:, 0], same.q[:, 0], rtol=0, atol=1e-13)
    for name in observe:
        np.testing.assert_allclose(run.mean[name], same.mean[name], rtol=0, atol=1e-13)
        at, wanted = run.stopped.at_event[name], same.stopped.at_event[name]
        np.testing.assert_allclose(at.mean, wanted.mean, rtol=0, atol=1e-13)
    np.testing.assert_allclose(run.stopped.at_event["t"].mean, run.stopped.mean, rtol=1e-14)


@pytest.mark.slow
def test_an_event_of_time_alone_is_an_alarm_clock():
    ticks = {"stop": lambda q, p, t, c: t - 0.73, "dt": 0.1, "t_end": 1.0, "paths": 3}
    run = da.simulate(oscillator(), da.midpoint(), START, keep="final", progress=False, **ticks)
    np.testing.assert_allclose(run.stopped.t, 0.73, rtol=1e-12)


@pytest.mark.parametrize(
    "method",
    [da.midpoint(), pytest.param(da.stormer_verlet(), marks=pytest.mark.slow)],
    ids=lambda method: method.name,
)
def test_both_paths_of_a_pair_have_the_right_time(method):
    """One takes steps of Δt, the other of Δt/2, on one Brownian path."""
    options = dict(dt=0.1, t_end=1.0, paths=4, save_every=10, keep="final", progress=False,
                   noise=Halves(Gaussian()))  # fmt: skip
    start, extended = (tuple(np.stack([x, x]) for x in z) for z in (START, EXTENDED))
    pairs = da.simulate(pair_of(oscillator()), PairMethod(method), start,
                        observe={"t": lambda q, p, t, c: t}, **options)  # fmt: skip
    same = da.simulate(pair_of(oscillator().extended()), PairMethod(method), extended,
                       observe={"t": lambda q, p, c: q[:, 1]}, **options)  # fmt: skip
    np.testing.assert_allclose(pairs.q[..., 0], same.q[..., 0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(pairs.p[..., 0], same.p[..., 0], rtol=0, atol=1e-13)
    assert pairs.mean["t"][-1] == 1.0 and np.all(np.abs(same.mean["t"][-1] - 1) < 1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("method", [da.midpoint(), da.srkw2()], ids=lambda method: method.name)
def test_expectations_to_a_tolerance(method):
    """Against moments without sampling, extrapolated; srkw2 by Richardson's way."""
    values = [da.exact_moments(oscillator(), da.midpoint(), START, dt=4 / n, steps=n).second[0, 0]
              for n in (80, 160)]  # fmt: skip
    exact = (4 * values[1] - values[0]) / 3
    observe = {"qq": lambda q, p, t, c: q[0] ** 2, "t": lambda q, p, t, c: t}
    found = da.expect(oscillator(), method, START, observe, t_end=4.0, tolerance=0.02,
                      progress=False)  # fmt: skip
    assert abs(found.value["qq"] - exact) < 0.02
    assert found.value["t"] == 4.0
    with pytest.raises(TypeError, match=r"called as .*\(q, p, t, params\)"):
        da.expect(oscillator(), method, START, lambda q, p, c: q[0], t_end=4.0, tolerance=0.02)


@pytest.mark.slow
def test_a_flow_stands_still_in_time():
    """Steps between the halves of a flow that knows no time, as those of the extended system."""

    def damped(q, p, w, h, c):
        decay = jnp.exp(-c["gamma"] * h)
        return q, decay * p + jnp.sqrt((1 - decay**2) / h) * c["sigma"] * w

    flow = da.Flow(damped, 1, "friction", {"q": lambda q, p, c: q})
    system = da.System(H=oscillator().H, dim=1, flow=flow, params=PARAMS, time=True)
    increments = da.Increments(np.array([0.2]), np.array([0.01]))
    q, p, _ = da.step(system, da.midpoint(), *START, 0.1, increments, t=0.7)
    z = ([1.0, 0.7], [0.0, 0.0])
    same = da.step(system.extended(), da.midpoint(), *z, 0.1, increments)
    np.testing.assert_allclose([q[0], p[0]], [same[0][0], same[1][0]], rtol=0, atol=1e-15)
    run = da.simulate(system, da.midpoint(), START, dt=0.1, t_end=0.3, paths=1, progress=False,
                      observe={"t": lambda q, p, t, c: t})  # fmt: skip
    np.testing.assert_array_equal(run.mean["t"], run.t)
    found = {tried.name: tried.holds for tried in da.diagnose(system, methods=[]).flow}
    assert found == {"q": True, "H": False}


def shaken() -> da.System:
    """A spherical pendulum whose weight depends on time."""

    def H(q, p, t):
        return jnp.sum(p**2) / 2 + (1 + 0.5 * jnp.cos(3 * t)) * q[2]

    return da.System(H=H, F=lambda q, p, t: -0.1 * p, f=lambda q, p, t, w: 0.2 * w, noises=3, dim=3,
                     constraints=lambda q: jnp.stack([jnp.sum(q**2) - 1]), time=True)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [da.rattle(), da.g_baoab(), da.projected_midpoint(), da.weak_rattle()],
    ids=lambda method: method.name,
)
def test_constraints(method):
    system = shaken()
    q, p = da.project(system, [0.6, 0.0, -0.8], [0.1, 0.3, 0.0])
    dW = np.array([0.1, -0.2, 0.05])
    found = da.step(system, method, q, p, 0.1, dW, t=0.7)
    same = da.step(system.extended(), method, [*q, 0.7], [*p, 0.0], 0.1, dW)
    np.testing.assert_allclose(found[0], same[0][:3], rtol=0, atol=1e-14)
    np.testing.assert_allclose(found[1], same[1][:3], rtol=0, atol=1e-14)
    assert np.max(np.abs(da.step(system, method, q, p, 0.1, dW, t=0.0)[1] - found[1])) > 1e-3
    run = da.simulate(system, method, (q, p), dt=0.1, t_end=0.3, paths=1, noise=da.Zero(),
                      keep="final", progress=False)  # fmt: skip
    for k in range(3):
        q, p, _ = da.step(system, method, q, p, 0.1, np.zeros(3), t=0.1 * k)
    np.testing.assert_allclose(run.q[0], q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(run.p[0], p, rtol=0, atol=1e-13)


def test_constraints_need_velocities_that_do_not_depend_on_time():
    with pytest.raises(ValueError, match=r"∂H/∂p of 'system' depends on t, .* constraints"):
        da.System(H=lambda q, p, t: jnp.sum(p**2) * (2 + jnp.cos(t)), dim=2, time=True,
                  constraints=lambda q: jnp.stack([jnp.sum(q**2) - 1]))  # fmt: skip


@pytest.mark.slow
def test_the_likelihood_of_a_path_is_at_its_times():
    """Against the normal law of exact moments of a step that begins at each time."""
    system, method, dt = oscillator(), da.midpoint(), 0.2
    system = da.System(H=system.H, F=system.F, f=[None, lambda q, p, t, c: 0 * p], dim=1,
                       h=[lambda q, p, t, c: -c["sigma"] * q[0] * (1 + 0.3 * jnp.sin(t)),
                          lambda q, p, t, c: 0.2 * p[0]], params=PARAMS, time=True)  # fmt: skip
    times = 0.5 + dt * np.arange(3)
    q, p = np.random.default_rng(0).standard_normal((2, 3, 1))
    total = 0.0
    for k in range(2):
        later = da.System(
            **{name: _moved(getattr(system, name), times[k]) for name in ("H", "F", "h", "f")},
            dim=1, params=PARAMS, time=True)  # fmt: skip
        m = da.exact_moments(later, method, (q[k], p[k]), dt=dt, steps=1)
        gap = np.append(q[k + 1], p[k + 1]) - m.mean
        total -= gap @ np.linalg.solve(m.covariance, gap) / 2
        total -= np.log(np.linalg.det(2 * np.pi * m.covariance)) / 2
    likelihood = da.fitting.path_likelihood(system, method, times, q, p)
    np.testing.assert_allclose(likelihood({"A": PARAMS["A"]}), total, rtol=1e-10)
    early = da.fitting.path_likelihood(system, method, times - 0.5, q, p)
    assert abs(early({"A": PARAMS["A"]}) - total) > 0.1


def _moved(fun, by):
    if isinstance(fun, tuple):
        return [_moved(one, by) for one in fun]
    return fun and (lambda q, p, t, c: fun(q, p, t + by, c))


@pytest.mark.slow
def test_moments_are_matched_at_their_times():
    system, t = oscillator(), 1.0 + 0.2 * np.arange(20)
    run = da.simulate(system, da.midpoint(), START, dt=0.1, t_end=4.8, paths=50, seed=3,
                      save_every=2, keep="all", progress=False)  # fmt: skip
    options = dict(observe=lambda q, p, t, c: q[0] + 0 * t, initial=START, dt=0.1, paths=100)
    y = run.q[5:, :, 0]
    match = da.fitting.match_moments(system, da.midpoint(), t, y, burn_in=1.0, **options)
    assert match({"A": 0.7}) > -15 > match({"A": -0.7})
    with pytest.raises(ValueError, match="driven in time, and simulated paths begin at t = 0"):
        da.fitting.match_moments(system, da.midpoint(), t, y, **options)


def test_a_longer_run_goes_on_at_its_time(tmp_path):
    observe = {"qt": lambda q, p, t, c: q[0] * t}
    options = dict(dt=0.1, paths=3, save_every=5, observe=observe, progress=False)
    file = {"checkpoint": tmp_path / "driven.ckpt"}
    da.simulate(oscillator(), da.midpoint(), START, t_end=1.0, **options, **file)
    longer = da.simulate(oscillator(), da.midpoint(), START, t_end=2.0, **options, **file)
    whole = da.simulate(oscillator(), da.midpoint(), START, t_end=2.0, **options)
    np.testing.assert_array_equal(longer.mean["qt"], whole.mean["qt"])
