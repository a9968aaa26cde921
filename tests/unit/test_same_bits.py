"""However the work is shared or cut, a run has the same bits; hard steps are redone for few."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import blocks, kernel, settings
from dalembert.ensemble.schedule import SAVES_PER_LEG, Schedule
from dalembert.stepping import newton

QUARTIC = da.System(
    H=lambda q, p: p[0] ** 2 / 2 + q[0] ** 4, h=[lambda q, p: 0.5 * q[0]], dim=1, name="quartic"
)
KUBO = da.systems.damped_kubo()
START = ([1.5], [0.5])
# At this step size a few per cent of the stage equations need more than the fast Newton steps.
HARD = {"dt": 0.5, "t_end": 20.0, "paths": 200, "save_every": 7, "seed": 3}


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(settings, "CPU_GRAIN", settings.CPU_GRAIN._replace(block_paths=64))


def simulate(system=QUARTIC, method=None, **options):
    given = {"keep": "final", "progress": False} | HARD | options
    return da.simulate(system, method or da.midpoint(), START, **given)


def bits(run):
    moments = [x for m in run.moments.values() for x in m]
    return [x.tobytes() for x in (run.t, run.q, run.p, *moments)], run.failures, run.residual


def test_any_number_of_workers(small_blocks):
    alone = simulate(workers=1)
    assert bits(alone) == bits(simulate(workers=2)) == bits(simulate(workers=3))
    assert alone.iterations > newton.FAST_STEPS, "the fast steps sufficed: nothing was redone"
    assert bits(alone) != bits(simulate(seed=4))


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_any_length_of_legs(small_blocks, monkeypatch, seconds):
    whole = simulate()
    monkeypatch.setattr(blocks, "LEG_SECONDS", seconds)
    monkeypatch.setattr(blocks, "FIRST_LEG", 1)
    assert bits(simulate()) == bits(whole)


def test_a_path_alone_has_the_bits_it_has_among_the_others(small_blocks):
    everyone = simulate(keep="all")
    for chosen in (0, 137, [5, 199, 64]):
        alone = simulate(keep="all", only=chosen)
        numbers = np.atleast_1d(chosen)
        np.testing.assert_array_equal(alone.q, everyone.q[:, numbers])
        np.testing.assert_array_equal(alone.p, everyone.p[:, numbers])
        assert alone.count[0] == len(numbers)


@pytest.mark.parametrize("only", [[], [200], [3, 3], -1, "first"])
def test_only_names_paths_of_the_run(only):
    with pytest.raises(ValueError, match=r"only"):
        simulate(only=only)


def test_redone_steps_are_those_of_the_safeguarded_solver():
    everyone = simulate(keep="all", save_every=1, t_end=5.0)
    iterations = 0
    for path in range(20):
        increments = da.brownian_path(HARD["seed"], path, HARD["dt"], 10, 1)
        for k, dW in enumerate(increments.dW):
            q, p = everyone.q[k, path], everyone.p[k, path]
            q, p, info = da.step(QUARTIC, da.midpoint(), q, p, HARD["dt"], dW)
            iterations = max(iterations, int(info.iterations))
            np.testing.assert_allclose(everyone.q[k + 1, path], q, rtol=1e-12, atol=1e-12)
    assert iterations > newton.FAST_STEPS


def test_every_schedule_saves_at_its_times_and_counts_its_units():
    for steps in (1, 2, 15, 16, 17, 100, 101):
        for every in (1, 2, 3, 16, 17, 40, 100):
            plan = Schedule(steps, min(every, steps), longest_chunk=16)
            assert plan.save_steps[0] == 0 and plan.save_steps[-1] == steps
            assert plan.chunk <= 16 and plan.chunk * plan.units_per_save >= plan.save_every
            assert plan.saves_before(0) == 0
            assert plan.saves_before(plan.units) == len(plan.save_steps)
            unit = 0
            while unit < plan.units:
                end = plan.end_of_leg(unit, 5)
                made = plan.saves_before(end) - plan.saves_before(unit)
                assert unit < end and made <= SAVES_PER_LEG
                unit = end
            taken = [plan.steps_before(unit) for unit in range(plan.units + 1)]
            assert (taken[0], taken[-1]) == (0, steps)
            assert set(np.diff(taken)) <= set(range(17)) and set(plan.save_steps) <= set(taken)


def test_what_was_done_before_changes_nothing():
    """Two systems alike, of which one has taken steps before, in a trace and outside of one."""

    def make():
        return da.System(
            H=lambda q, p: (p[0] ** 2 + q[0] ** 2) / 2,
            F=lambda q, p: -0.1 * p,
            h=[lambda q, p: 0.5 * (p[0] ** 2 + q[0] ** 2) / 2],
            dim=1,
        )

    untouched, stepped, traced = make(), make(), make()
    da.step(stepped, da.midpoint(), [1.0], [0.5], 0.1, [0.2])
    jax.jit(lambda q: da.step(traced, da.midpoint(), q, q, 0.1, jnp.array([0.2]))[0])(np.ones(1))
    first = bits(simulate(untouched, t_end=100.0))
    assert first == bits(simulate(stepped, t_end=100.0)) == bits(simulate(traced, t_end=100.0))


def test_saves_do_not_depend_on_how_often_they_are_made():
    often = simulate(KUBO, save_every=1, keep="all")
    for every in (3, 16, 17):
        seldom = simulate(KUBO, save_every=every, keep="all")
        steps = np.round(seldom.t / HARD["dt"]).astype(int)
        np.testing.assert_allclose(seldom.q, often.q[steps], rtol=1e-12, atol=1e-12)


def test_the_number_of_steps_compiles_nothing(monkeypatch):
    simulate(KUBO, save_every=16, t_end=8.0)
    monkeypatch.setattr(kernel.Kernel, "__call__", None)
    assert simulate(KUBO, save_every=16, t_end=16.0, paths=199, seed=9).count[-1] == 199


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_paths():
    """10⁸ paths in less than 1.5 GiB, in a process of its own."""
    import subprocess
    import sys

    code = (
        "import resource, dalembert as da\n"
        "run = da.simulate(da.systems.damped_kubo(), da.midpoint(), ([2.0], [0.0]), dt=0.1,"
        " t_end=0.2, paths=10**8, save_every=2)\n"
        "assert run.count[-1] == 10**8\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(out.stdout) < 1.5 * 2**30
