"""Compiled code ends with what it belongs to, or when it is told to."""

import copy
import gc
import pickle
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.caches import EACH, RECENT, Kept, bounded, kept
from dalembert.captured import captured
from dalembert.ensemble import blocks
from dalembert.stepping.stepper import make_stepper
from tiers import tiered

START = ([1.0], [0.0])
OPTIONS = {"dt": 0.1, "t_end": 1.0, "paths": 8, "keep": "final"}


def pendulum():
    """A system of functions of its own."""
    H = lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0])  # noqa: E731
    return da.System(H=H, F=lambda q, p: -0.1 * p, h=[lambda q, p: 0.3 * q[0]], dim=1)


def run(system, **more):
    found = da.simulate(system, da.midpoint(), START, observe={"H": system.H}, **OPTIONS, **more)
    return np.concatenate([found.q.ravel(), found.mean["H"]])


def step(system):
    return np.concatenate(da.step(system, da.stormer_verlet(), *START, 0.1, [0.1])[:2])


USES = {
    "step": step,
    "run": run,
    "run by XLA": lambda system: run(system, engine="XLA"),
}


@pytest.mark.parametrize("use", tiered(USES, fast=["run"]))
def test_a_system_that_is_deleted_is_freed_with_its_code(use):
    system = pendulum()
    first = USES[use](system)
    da.clear_caches()
    assert np.array_equal(USES[use](system), first), "the same bits"
    seen = [weakref.ref(x) for x in (system, system.H, make_stepper(system, da.midpoint(), float))]
    del system
    gc.collect()
    assert [x() is None for x in seen] == [True, False, False], "code is remembered for a while"
    da.clear_caches()
    gc.collect()
    assert [x() is None for x in seen] == [True, True, True]


def others(count):
    """Systems with other functions that come and go."""
    for _ in range(count):
        assert da.System(H=lambda q, p: p[0] ** 2, dim=1).shared


def test_code_is_remembered_for_some_systems_and_not_for_all():
    system = pendulum()
    H, key = weakref.ref(system.H), system.key
    shared = weakref.ref(system.shared)
    del system, key
    others(RECENT - 1)
    gc.collect()
    assert H() is not None and shared() is not None
    others(1)
    gc.collect()
    assert H() is None and shared() is None


def test_a_system_that_lives_keeps_its_code_and_hands_it_on():
    system = da.System(H=lambda q, p, k: p[0] ** 2 + k * q[0] ** 2, dim=1, params=1.0)
    stepper = make_stepper(system, da.midpoint(), np.float64)
    others(RECENT + 1)
    assert make_stepper(system, da.midpoint(), np.float64) is stepper
    assert make_stepper(system.with_params(2.0), da.midpoint(), np.float64) is stepper
    assert stepper.system.params.shape == (), "types, not values that may belong to a trace"
    da.clear_caches()
    assert make_stepper(system, da.midpoint(), np.float64) is not stepper


@pytest.mark.parametrize("x64", [True, False])
def test_a_stepper_of_float64_is_one_wherever_it_is_made(x64):
    """Where JAX has no float64 it would be traced in parts as float32, and kept so."""
    system = da.System(H=lambda q, p: p @ p / 2 + jnp.cos(0.3 * q[0]), dim=1)
    with jax.enable_x64(x64):
        stepper = make_stepper(system, da.midpoint(), np.float64)
    z = stepper.enter(np.ones(1))
    q, _, _ = stepper.advance(z, z, np.float64(0.1), da.Increments(np.ones(0)), None)
    wanted, _, _ = da.step(system, da.midpoint(), np.ones(1), np.ones(1), 0.1, np.ones(0))
    assert q[0].dtype == np.float64 and abs(q[0] - wanted[0]) < 1e-15


def test_systems_with_the_same_functions_have_the_same_code():
    one, other = da.systems.damped_kubo(), da.systems.damped_kubo(nu=0.25)
    assert one is not other and one.shared is other.shared
    assert one.shared.params == () and pendulum().shared.params is None


def test_an_object_keeps_some_results_of_a_function_and_forgets_the_oldest():
    made = []

    class Owner:
        _kept = Kept()

    @kept
    def value(owner, number):
        made.append(number)
        return number

    owner = Owner()
    assert [value(owner, 0) for _ in range(3)] == [0] * 3 and made == [0]
    for number in range(EACH + 1):
        value(owner, number)
    assert value(owner, 0) == 0 and made.count(0) == 2 and made.count(EACH) == 1


def test_what_hangs_on_nothing_is_forgotten_as_well():
    made = []

    @bounded(4)
    def value(number):
        made.append(number)
        return number

    assert value(1) == value(1) and made == [1]
    da.clear_caches()
    assert value(1) == 1 and made == [1, 1]


def test_copies_begin_empty():
    system = da.systems.damped_kubo()
    da.step(system, da.midpoint(), *START, 0.1, [0.1])
    assert make_stepper(system, da.midpoint(), np.float64)
    for other in (copy.deepcopy(system), pickle.loads(pickle.dumps(system))):
        assert not other._kept.tables and other._kept.shared is None
        assert other.H is system.H


def test_what_is_kept_on_a_system_is_nothing_that_a_function_reads():
    """A function that reads a system is the same after a step of it."""
    system = pendulum()

    def energy(q, p):
        return 2 * system.H(q, p)

    before = captured(energy)
    step(system)
    assert system._kept.shared is not None and captured(energy) == before


def test_methods_share_what_is_traced_of_a_system(monkeypatch):
    evaluated, inner = [], da.System.evaluate

    def evaluate(self, fun, *args):
        evaluated.append(fun)
        return inner(self, fun, *args)

    monkeypatch.setattr(da.System, "evaluate", evaluate)
    stiffness = [1.0]
    system = da.System(
        lambda q, p: jnp.sum(p**2) / 2 + stiffness[0] * jnp.sum(q**2) / 2,
        dim=2,
        h=[lambda q, p: q[0]],
    )
    make_stepper(system, da.midpoint(), np.float64)
    before = len(evaluated)
    for method in (da.heun(), da.dirk(), da.srkw1()):
        make_stepper(system, method, np.float64)
    assert 0 < before == len(evaluated), "terms were traced for the first method"
    stiffness[0] = 0.0
    stepper = make_stepper(system, da.heun(), np.float64)
    assert len(evaluated) > before, "what a function reads has changed"
    assert stepper.dependence["H_q", 0].vanishes


def test_a_run_like_one_before_looks_at_nothing_in_advance(monkeypatch):
    """What is compiled is not called with large states to be compiled; other shapes are."""
    looks, observe = [], blocks.observe
    monkeypatch.setattr(blocks, "observe", lambda *given: looks.append(1) or observe(*given))
    system = da.System(H=lambda q, p: jnp.sum(p**2 + q**2) / 2, dim=40)
    options = dict(dt=0.1, t_end=0.3, progress=False, keep="final")
    runs = []
    for paths, expected in ((1, 1), (1, 0), (2, 1), (2, 0), (1, 0)):
        looks.clear()
        state = np.ones(40), np.zeros(40)
        runs.append(da.simulate(system, da.stormer_verlet(), state, paths=paths, **options))
        assert len(looks) == expected
    assert np.array_equal(runs[0].q, runs[1].q) and runs[0].q.flags.writeable
