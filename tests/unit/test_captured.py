"""Functions are known by what they read: what is compiled follows a change of it."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.captured import captured

STIFFNESS = 1.0
TABLE = np.array([1.0, 2.0])
SETTINGS = {"stiffness": 1.0}
MODEL = SimpleNamespace(stiffness=1.0)


def by_global(q, p):
    return p[0] ** 2 / 2 + STIFFNESS * q[0] ** 2 / 2


def by_function(q, p):
    return by_global(q, p)


class Well:
    def __init__(self, stiffness):
        self.stiffness = stiffness

    def energy(self, q, p):
        return p[0] ** 2 / 2 + self.stiffness * q[0] ** 2 / 2


CHANGES = {
    "a global": (by_global, lambda patch: patch.setattr(f"{__name__}.STIFFNESS", 4.0)),
    "through another": (by_function, lambda patch: patch.setattr(f"{__name__}.STIFFNESS", 4.0)),
    "an array": (
        lambda q, p: TABLE[0] * q[0],
        lambda patch: patch.setattr(f"{__name__}.TABLE", np.array([4.0, 2.0])),
    ),
    "a dict": (
        lambda q, p: SETTINGS["stiffness"] * q[0],
        lambda patch: patch.setitem(SETTINGS, "stiffness", 4.0),
    ),
    "an attribute": (
        lambda q, p: MODEL.stiffness * q[0],
        lambda patch: patch.setattr(MODEL, "stiffness", 4.0),
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_is_seen(case, monkeypatch):
    fun, change = CHANGES[case]
    before = captured(fun)
    assert before == captured(fun) and hash(before) == hash(captured(fun))
    change(monkeypatch)
    assert captured(fun) != before
    monkeypatch.undo()
    assert captured(fun) == before


def test_an_array_that_is_changed_in_place_is_seen():
    table = np.array([1.0, 2.0])

    def fun(q, p):
        return table[0] * q[0]

    before = captured(fun)
    table[0] = 4.0
    assert captured(fun) != before


def test_bound_methods_and_partials_are_made_anew_and_equal():
    well = Well(1.0)
    before = captured(well.energy)
    assert before == captured(well.energy)
    well.stiffness = 4.0
    assert captured(well.energy) != before
    assert captured(partial(by_global, p=1)) == captured(partial(by_global, p=1))
    assert captured(partial(by_global, p=1)) != captured(partial(by_global, p=2))


def test_different_functions_and_types_differ():
    assert captured(by_global) != captured(by_function)
    assert captured(lambda q, p: q) != captured(lambda q, p: q)
    assert captured(partial(by_global, p=1)) != captured(partial(by_global, p=1.0))


def test_what_calls_itself_has_an_end():
    def again(q, p):
        return again(q, p)

    assert captured(again) == captured(again)


def before_and_after(results, monkeypatch):
    """What comes out with a soft spring, with a stiff one, and with the stiff one written out."""
    system = da.System(H=by_global, h=[lambda q, p: -0.3 * q[0]], dim=1)
    soft = results(system)
    monkeypatch.setattr(f"{__name__}.STIFFNESS", 4.0)
    stiff = results(system)

    def written_out(q, p):
        return p[0] ** 2 / 2 + 4.0 * q[0] ** 2 / 2

    return soft, stiff, results(da.System(H=written_out, h=[lambda q, p: -0.3 * q[0]], dim=1))


def test_runs_and_steps_follow_a_global(monkeypatch):
    options = {"dt": 0.1, "t_end": 1.0, "paths": 8, "keep": "final", "save_every": 10}

    def results(system):
        run = da.simulate(
            system, da.midpoint(), ([2.0], [0.0]), observe={"H": by_global}, **options
        )
        step = da.step(system, da.midpoint(), [2.0], [0.0], 0.1, [0.1])
        return run.q[0, 0], run.mean["H"][-1], step[1][0]

    soft, stiff, expected = before_and_after(results, monkeypatch)
    np.testing.assert_allclose(stiff, expected, rtol=1e-12)
    assert np.all(np.abs(np.subtract(stiff, soft)) > 1e-3)


def test_theory_follows_a_global_too(monkeypatch):
    def results(system):
        moments = da.exact_moments(system, da.midpoint(), ([2.0], [0.0]), dt=0.1, steps=10)
        H_d = da.discrete_hamiltonian(system, da.midpoint(), [2.0], [0.0], 0.1, [0.1]).H_d
        return moments.energy, H_d

    soft, stiff, expected = before_and_after(results, monkeypatch)
    np.testing.assert_allclose(stiff, expected, rtol=1e-12)
    assert np.all(np.abs(np.subtract(stiff, soft)) > 1e-3)


def test_samplers_follow_too(monkeypatch):
    def start(key):
        return STIFFNESS * jax.random.normal(key, (1,)), jnp.zeros(1)

    def spread():
        run = da.simulate(
            da.systems.langevin(), da.baoab(), start, dt=0.1, t_end=0.1, paths=4,
            observe={"q": lambda q, p, c: q[0] ** 2},
        )  # fmt: skip
        return run.mean["q"][0]

    before = spread()
    monkeypatch.setattr(f"{__name__}.STIFFNESS", 3.0)
    np.testing.assert_allclose(spread(), 9 * before, rtol=1e-12)


def test_many_functions_that_call_each_other_are_looked_at_once():
    def make(others):
        def fun(q, p):
            return sum(other(q, p) for other in others)

        return fun

    functions: list = []
    for _ in range(60):
        functions.append(make(functions))
    assert len(captured(functions[0])) < 60 * 70
    assert captured(functions[0]) == captured(functions[0])
