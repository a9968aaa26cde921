"""Steps of linear systems by ready-made matrices."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import ready
from dalembert.noise import enumerate_three_point
from dalembert.stepping.propagator import Propagator, make_maps
from dalembert.stepping.stepper import make_stepper
from tiers import tiered

WEAK = {"srkw1": da.srkw1(), "srkw1(0)": da.srkw1(0.0), "srkw2": da.srkw2(), "rs2": da.rs2()}


def driven():
    """Two coupled oscillators, damped, with a constant force and noise that depends on q."""
    return da.System(
        H=lambda q, p: p @ p / 2 + q @ q + q[0] * q[1] - 0.3 * q[0],
        F=lambda q, p: -0.2 * p,
        h=[lambda q, p: 0.4 * (q @ q) / 2 + 0.1 * q[1]],
        f=[lambda q, p: -0.05 * p],
        dim=2,
    )


SYSTEMS = {"kubo": da.systems.damped_kubo(), "driven": driven()}


def maps_of(system, method, noise=None, dt=0.2):
    """The maps, or None, and the stepper."""
    stepper = make_stepper(system, method, np.float64)
    params = jax.tree.map(np.float64, system.params)
    return make_maps(stepper, noise or da.ThreePoint(), np.float64(dt), params), stepper


@pytest.mark.parametrize(
    ("system", "name"), tiered(product(SYSTEMS, WEAK), fast=["kubo-rs2", "driven-rs2"])
)
def test_maps_are_the_steps(system, name):
    """At states far from those from which the maps are made."""
    dt, system = 0.2, SYSTEMS[system]
    (maps, report), stepper = maps_of(system, WEAK[name], dt=dt)
    assert report.residual < 1e-14
    assert (maps.shift is None) == (system.dim == 1)
    outcomes, _ = enumerate_three_point(1, dt)
    rng = np.random.default_rng(0)
    for k, sign in enumerate((1.0, 0.0, -1.0)):
        q, p = rng.normal(size=(2, system.dim)) * 10
        expected = da.step(system, WEAK[name], q, p, dt, outcomes.dW[k])[:2]
        increments = da.Increments(jnp.array([sign]))
        found = Propagator(stepper).advance(tuple(q), tuple(p), dt, increments, maps, None)[:2]
        np.testing.assert_allclose(np.array(found), np.array(expected), rtol=1e-13, atol=1e-13)


def test_maps_are_made_only_where_they_say_everything():
    kubo, midpoint = SYSTEMS["kubo"], da.srkw1()
    assert maps_of(kubo, midpoint)[0] is not None
    assert maps_of(kubo, midpoint, da.Gaussian())[0] is None, "any value"
    assert maps_of(da.systems.van_der_pol(), midpoint)[0] is None, "not linear"
    product = da.System(H=lambda q, p: p[0] * q[0] + p[0] ** 2, h=[lambda q, p: q[0]], dim=1)
    assert maps_of(product, midpoint)[0] is not None
    # Affine in q and affine in p, but not in both together.
    bilinear = da.System(
        H=lambda q, p: p[0] ** 2 / 2, F=lambda q, p: -p * q, h=[lambda q, p: q[0]], dim=1
    )
    assert maps_of(bilinear, midpoint)[0] is None
    assert maps_of(da.systems.two_noise(), da.rs2())[0] is None, "two noises"


CODES = ["XLA", "vector code (LLVM)"]


@pytest.mark.parametrize(
    ("name", "code"),
    tiered(product(WEAK, CODES), fast=["srkw1-vector code (LLVM)"]),
)
def test_runs_with_and_without_maps_agree(name, code, monkeypatch):
    options = dict(dt=0.2, t_end=20.0, paths=64, save_every=25, keep="all", progress=False)
    options["engine"] = code
    start = ([0.5, 0.1], [0.2, -0.3])
    fast = da.simulate(SYSTEMS["driven"], WEAK[name], start, **options)
    monkeypatch.setattr(ready, "make_maps", lambda *args: None)
    plain = da.simulate(SYSTEMS["driven"], WEAK[name], start, **options)
    assert fast.provenance["code"] == plain.provenance["code"] == code
    assert fast.iterations == plain.iterations == (name != "rs2")
    assert fast.failed == 0 and fast.residual < 1e-14
    np.testing.assert_allclose(fast.q, plain.q, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(fast.p, plain.p, rtol=1e-11, atol=1e-11)


@pytest.mark.slow
def test_a_path_that_overflows_is_reported_with_its_step():
    """RS2 is unstable on this system at a large step: maps grow without bound."""
    options = dict(dt=20.0, t_end=20.0 * 4096, paths=32, save_every=4096, progress=False)
    # The energy overflows before the state does.
    options["observe"] = {"q": lambda q, p, _: jnp.tanh(q[0])}
    with pytest.warns(RuntimeWarning, match="32 of 32 paths failed"):
        run = da.simulate(SYSTEMS["kubo"], da.rs2(), ([2.0], [0.0]), **options)
    assert run.failures.non_finite == 32
    first = da.simulate(
        SYSTEMS["kubo"], da.rs2(), ([2.0], [0.0]), only=[run.failures.first_path],
        **options | {"t_end": run.failures.first_time - 20.0, "save_every": 1, "keep": "final"},
    )  # fmt: skip
    assert first.failed == 0 and np.abs(first.q).max() > 1e290
