"""Flows: a part of the motion as a map, composed with the steps of a method."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da

GAMMA = 0.7


def thermostat(q, p, w, h, params):
    """The Ornstein–Uhlenbeck process dp = −γ p dt + √(2γ) dW, exact in law."""
    gamma = params["gamma"]
    return q, jnp.exp(-gamma * h) * p + jnp.sqrt(-jnp.expm1(-2 * gamma * h) / h) * w


def pendulum(**more):
    options = dict(H=lambda q, p, params: jnp.sum(p**2 / 2 - jnp.cos(q)), dim=2)
    flow = da.Flow(thermostat, 2, "thermostat")
    return da.System(**{**options, "params": {"gamma": GAMMA}, "flow": flow, **more})


START = ([0.5, -0.2], [0.1, 0.3])


def test_a_step_is_half_of_the_flow_a_step_of_the_method_and_the_other_half():
    system, dt = pendulum(), 0.3
    increments = da.Increments(dW=np.array([0.4, -0.3]), dZ=np.array([0.05, 0.02]))
    q, p, info = da.step(system, da.midpoint(), *START, dt, increments)
    rest = np.sqrt(3) * (increments.dZ / dt - increments.dW / 2)
    first, second = increments.dW / 2 + rest, increments.dW / 2 - rest
    _, P = thermostat(None, np.array(START[1]), first, dt / 2, system.params)
    free = system.fields
    Q, P, _ = da.step(free, da.midpoint(), START[0], P, dt, [])
    _, P = thermostat(None, P, second, dt / 2, system.params)
    assert info.converged and free.noises == 0
    assert np.allclose(q, Q, rtol=0, atol=1e-15) and np.allclose(p, P, rtol=0, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stormer_verlet", "srkw1"])
def test_both_halves_of_the_noise_are_independent_normal_numbers_of_half_the_variance(name):
    """As the map gets them in a run, also with weak methods, whose usual noise has three values."""

    def shifted(q, p, w, h, params):
        # After both halves of a step: the first w in q, the second in p.
        return q.at[0].set(p[0]), p.at[0].set(w[0])

    # The second component is at rest, and nothing but the noise moves the first one.
    system = pendulum(
        H=lambda q, p, params: p[1] ** 2 / 2 - jnp.cos(q[1]), flow=da.Flow(shifted, 1)
    )
    dt, paths = 0.4, 20_000
    run = da.simulate(
        system, da.METHODS[name](), ([0.0, 0.0], [0.0, 0.0]), dt=dt, t_end=dt, paths=paths,
        keep="final", progress=False,
    )  # fmt: skip
    w = np.stack([run.q[:, 0], run.p[:, 0]]) / np.sqrt(dt / 2)
    error = 5 / np.sqrt(paths)
    assert np.all(np.abs(np.mean(w, axis=1)) < error)
    assert np.all(np.abs(np.cov(w) - np.eye(2)) < np.sqrt([[2, 1], [1, 2]]) * error)
    assert np.all(np.abs(np.mean(w**4, axis=1) - 3) < np.sqrt(96) * error)


@pytest.mark.parametrize("name", ["stormer_verlet", "srkw1", "heun", "baoab"])
def test_runs_of_any_method_have_the_law_of_the_composition(name):
    """Free particles with an exact thermostat have the law of its process at any step.

    The step is large: halves that were one noise twice would have 0.9 of the variance, and all of
    the flow on one side of a step would show in how p and q are correlated.
    """
    dt, start = 2.0, np.array([1.0, -2.0])
    observe = {
        "p": lambda q, p, params: p,
        "p²": lambda q, p, params: p**2,
        "qp": lambda q, p, params: q * p,
    }
    run = da.simulate(
        pendulum(H=lambda q, p, params: jnp.sum(p**2) / 2), da.METHODS[name](),
        (np.zeros(2), start), dt=dt, t_end=2 * dt, paths=20_000, save_every=2, observe=observe,
        progress=False,
    )  # fmt: skip
    assert "Gaussian" in run.provenance["noise"]

    def square(t):
        return 1 + (start**2 - 1) * np.exp(-2 * GAMMA * t)

    # q is Δt times the sum of the momenta in the middles of both steps.
    with_q = sum(dt * np.exp(-GAMMA * (2 * dt - t)) * square(t) for t in (dt / 2, 3 * dt / 2))
    expected = {"p": np.exp(-2 * GAMMA * dt) * start, "p²": square(2 * dt), "qp": with_q}
    for what, value in expected.items():
        gaps = np.abs(run.mean[what][-1] - value) / run.stderr[what][-1]
        assert np.all(gaps < 4.5), (what, gaps)


def shifted(q, p, w, h, params):
    return q, p + 0.1 * q**2 + w


def test_the_map_after_a_step_may_be_another_one(tmp_path):
    """Of a step, of what a system is known by, and of checkpoints."""
    flow = da.Flow(thermostat, 2, "both", after=shifted)
    system, dt = pendulum(flow=flow), 0.3
    increments = da.Increments(dW=np.array([0.4, -0.3]), dZ=np.array([0.05, 0.02]))
    q, p, _ = da.step(system, da.midpoint(), *START, dt, increments)
    rest = np.sqrt(3) * (increments.dZ / dt - increments.dW / 2)
    first, second = increments.dW / 2 + rest, increments.dW / 2 - rest
    _, P = thermostat(None, np.array(START[1]), first, dt / 2, system.params)
    Q, P, _ = da.step(system.fields, da.midpoint(), START[0], P, dt, [])
    _, P = shifted(Q, P, second, dt / 2, system.params)
    assert np.allclose(q, Q, rtol=0, atol=1e-15) and np.allclose(p, P, rtol=0, atol=1e-15)
    assert system.key != replace(system, flow=da.Flow(thermostat, 2, "both")).key
    assert system.key == replace(system, flow=replace(flow, keeps={})).key
    options = dict(dt=0.1, t_end=0.2, paths=2, checkpoint=tmp_path / "a.ckpt", progress=False)
    da.simulate(system, da.midpoint(), START, **options)
    with pytest.raises(ValueError, match="flow after"):
        other = pendulum(flow=da.Flow(thermostat, 2, "both", after=thermostat))
        da.simulate(other, da.midpoint(), START, **options)
    with pytest.raises(ValueError, match="must return"):
        pendulum(flow=da.Flow(thermostat, 2, "both", after=lambda q, p, w, h, params: (q, p[:1])))
    (tried,) = (
        x
        for x in da.diagnose(
            pendulum(flow=da.Flow(keeping, 2, "half", {"p": first_momentum}, after=shifted)),
            methods=[da.midpoint()],
        ).flow
        if x.name == "p"
    )
    assert not tried.holds


def keeping(q, p, w, h, params):
    return q, p


def first_momentum(q, p, params):
    return p[0]


def test_runs_are_the_same_bits_under_any_cut_and_after_a_stop(tmp_path):
    options = dict(dt=0.1, t_end=2.0, paths=40, keep="final", progress=False)
    whole = da.simulate(pendulum(), da.stormer_verlet(), START, **options)
    cut = da.simulate(pendulum(), da.stormer_verlet(), START, **options, only=[7, 8])
    assert np.array_equal(whole.p[7:9], cut.p)
    file = tmp_path / "flow.ckpt"
    saved = da.simulate(pendulum(), da.stormer_verlet(), START, **options, checkpoint=file)
    assert np.array_equal(saved.p, whole.p)

    def other(q, p, w, h, params):
        return thermostat(q, 1.0001 * p, w, h, params)

    changed = pendulum(flow=da.Flow(other, 2, "thermostat"))
    with pytest.raises(ValueError, match="flow"):
        da.simulate(changed, da.stormer_verlet(), START, **options, checkpoint=file)


@pytest.mark.slow
def test_a_run_can_be_differentiated_with_respect_to_parameters_of_the_flow():
    def energy(gamma):
        system = pendulum(params={"gamma": gamma})
        run = da.simulate(
            system, da.stormer_verlet(), START, dt=0.1, t_end=0.5, paths=4, seed=1,
            observe={"p": lambda q, p, params: jnp.sum(p**2)},
        )  # fmt: skip
        return run.mean["p"][-1]

    with jax.enable_x64(True):
        slope = float(jax.grad(energy)(GAMMA))
        change = float(energy(GAMMA + 1e-5) - energy(GAMMA - 1e-5)) / 2e-5
    assert slope == pytest.approx(change, rel=1e-6)


def test_another_flow_is_another_system():
    """What is compiled for one map does not serve another, nor another state of what it reads."""
    scale = {"by": 1.0}

    def grow(q, p, w, h, params):
        return q, scale["by"] * p

    system = pendulum(flow=da.Flow(grow, 1))
    zero = da.Increments(dW=[0.0], dZ=[0.0])
    first = da.step(system, da.stormer_verlet(), *START, 0.1, zero)[1]
    scale["by"] = 2.0
    second = da.step(system, da.stormer_verlet(), *START, 0.1, zero)[1]
    assert not np.allclose(first, second)


def test_what_needs_fields_is_refused():
    system = pendulum()
    with pytest.raises(ValueError, match=r"has a flow, 'thermostat', .* system\.fields"):
        system.drift(*START)
    with pytest.raises(ValueError, match="is a map and no field"):
        da.exact_moments(system, da.midpoint(), START, dt=0.1, steps=2)
    with pytest.raises(ValueError, match="is a map and no field"):
        da.discrete_hamiltonian(
            system, da.midpoint(), *START, 0.1, da.Increments(dW=[0.0, 0.0], dZ=[0.0, 0.0])
        )
    assert np.shape(system.fields.drift(*START)[1]) == (2,)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: pendulum(flow=thermostat), TypeError, "flow must be a da.Flow"),
        (lambda: pendulum(f=[None]), ValueError, "has no other noise"),
        (lambda: da.Flow(thermostat, 0), ValueError, "must be a positive integer"),
        (
            lambda: pendulum(flow=da.Flow(lambda q, p, w, h, params: (q, p[:1]), 2)),
            ValueError,
            r"must return \(q, p\), both real and of shape",
        ),
        (
            lambda: pendulum(flow=da.Flow(lambda q, p: (q, p), 2)),
            TypeError,
            r"must be a map \(q, p, w, h\)",
        ),
    ],
)
def test_flows_that_are_none_are_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_a_step_needs_the_increments_of_the_flow():
    with pytest.raises(ValueError, match="also needs the increments dZ"):
        da.step(pendulum(), da.stormer_verlet(), *START, 0.1, [0.1, 0.2])


def test_diagnosis_tries_what_a_flow_says_that_it_keeps():
    def speed(q, p, params):
        return jnp.sum(p**2)

    def turn(q, p, w, h, params):
        return q, jnp.stack(
            [
                jnp.cos(w[0]) * p[0] - jnp.sin(w[0]) * p[1],
                jnp.sin(w[0]) * p[0] + jnp.cos(w[0]) * p[1],
            ]
        )

    honest = pendulum(flow=da.Flow(turn, 1, "turn", {"speed": speed}))
    wrong = pendulum(flow=da.Flow(thermostat, 2, "thermostat", {"speed": speed}))
    methods = [da.midpoint()]
    kept, broken = (da.diagnose(system, methods=methods) for system in (honest, wrong))
    assert [tried.holds for tried in kept.flow] == [True, True]
    assert not broken.flow[0].holds and broken.flow[0].declared
    assert "FAILS" in str(broken) and "FAILS" not in str(kept)
    assert "besides turn" in str(kept)


def test_diagnosis_of_a_composition_is_not_that_of_its_fields():
    """No orders that only the fields have, and no invariant that the flow does not keep."""
    flow = da.Flow(thermostat, 2, "thermostat")
    methods = [da.midpoint(), da.stormer_verlet(), da.srkw1()]
    whole = da.diagnose(pendulum(flow=flow, invariants={"energy": pendulum().H}), methods=methods)
    alone = da.diagnose(pendulum(flow=flow).fields, methods=methods)
    assert all(v.strong is None and v.weak is None for v in whole.methods)
    assert all(v.weak == 2 for v in alone.methods)
    assert alone.invariants["H"].holds and not whole.invariants["energy"].holds
    assert whole.invariants["energy"].along == "the flow"
    assert whole.invariants["energy"].largest == max(x.change for x in whole.flow)
    text, apart = str(whole), str(alone)
    assert "unknown" in text and "order of the differential equation" not in text
    assert "orders are those of the composition" in text and "structured methods keep" not in text
    assert "unknown" not in apart and "order of the differential equation" in apart

    def stays(q, p, w, h, params):
        return q, p

    kept = da.diagnose(pendulum(flow=da.Flow(stays, 1, "nothing")), methods=methods)
    assert kept.invariants["H"].holds and "structured methods keep it nearly" in str(kept)

    def is_none(q, p, w, h, params):
        return q, p * jnp.nan

    lost = da.diagnose(pendulum(flow=da.Flow(is_none, 1)), methods=methods)
    assert not lost.invariants["H"].holds and not any(x.holds for x in lost.flow)


def test_certificates_of_a_composition_name_the_flow():
    system = pendulum(flow=da.Flow(thermostat, 2, "thermostat"))
    whole, alone = da.certify(da.midpoint(), system), da.certify(da.midpoint())
    assert whole.keeps_structure and not whole.lagrange_dalembert
    assert "of the Hamiltonian part" in whole.structure and "thermostat" in str(whole)
    assert da.certify(da.midpoint(), system.fields) == alone
    assert not da.certify(da.heun(), system).keeps_structure


def test_explain_names_the_flow():
    text = da.explain(pendulum(), da.stormer_verlet())
    assert "thermostat before and after" in text and "thermostat is a map of whole states" in text


@pytest.mark.slow
def test_paths_that_fail_in_the_first_step_are_counted():
    """A map that is not finite for large w; the fields themselves are finite everywhere."""

    def rare(q, p, w, h):
        return q, jnp.where(w > 1.5 * jnp.sqrt(h), jnp.nan, p)

    system = da.System(H=lambda q, p: (q @ q + p @ p) / 2, dim=1, flow=da.Flow(rare, 1, "rare"))
    start, given = ([1.0], [0.0]), {"dt": 0.1, "t_end": 0.2, "paths": 64, "progress": False}
    with pytest.warns(RuntimeWarning, match=r"of 64 paths failed .*the flow 'rare' is not finite"):
        run = da.simulate(system, da.stormer_verlet(), start, **given)
    assert run.failures.first_time == pytest.approx(0.1) and 0 < run.failed < 64
