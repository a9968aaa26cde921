"""However the work is shared or cut, a run has the same bits; hard steps are redone for few."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import blocks, kernel, native, retake, settings
from dalembert.ensemble.march import Block, PathState, Stretch, march_safe
from dalembert.ensemble.schedule import SAVES_PER_LEG, Schedule
from dalembert.stepping import newton
from dalembert.stepping.stepper import make_stepper
from tiers import tiered

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


def simulate(system=QUARTIC, method=None, sampler=START, **options):
    given = {"keep": "final", "progress": False} | HARD | options
    return da.simulate(system, method or da.midpoint(), sampler, **given)


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


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 5])
def test_more_hard_paths_than_one_group(monkeypatch, size):
    """Groups of any size, among them a last one that is not full, give what all safely give."""
    monkeypatch.setattr(settings, "CPU_GRAIN", settings.CPU_GRAIN._replace(safe_paths=size))
    groups = []
    make = retake._groups

    def noted(hard, size):
        made, places = list(make(hard, size)), [] if hard is None else np.flatnonzero(hard)
        groups.append((len(places), len(made)))
        assert {len(group) for group in made} <= {size}
        assert sorted(set(np.concatenate([[], *made]))) == sorted(places)
        return iter(made)

    monkeypatch.setattr(retake, "_groups", noted)
    # A path may take more Newton steps in vector code.
    run = simulate(t_end=5.0, paths=64, engine="XLA")
    assert max(made for _, made in groups) > 1, "one group sufficed"
    if size > 1:
        assert any(hard % size for hard, _ in groups), "every group was full"
    q, p, status, iterations = all_safely(10, 64)
    assert run.failed == 0 and not status.any()
    assert iterations.max() == run.iterations > newton.FAST_STEPS
    np.testing.assert_allclose(run.q[:, 0], q, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(run.p[:, 0], p, rtol=1e-10, atol=1e-10)


def all_safely(steps, paths, system=QUARTIC):
    """Paths of a hard run with every step by the safeguarded solver."""
    stepper = make_stepper(system, da.midpoint(), np.float64)
    numbers = jnp.arange(paths, dtype=jnp.uint32)
    block = Block(
        (numbers, jnp.zeros_like(numbers)),
        None,
        da.noise.seed_words(HARD["seed"]),
        jnp.asarray(HARD["dt"]),
        system.params,
        da.Gaussian(),
    )
    zeros = jnp.zeros(paths, jnp.int32)
    q, p = ((jnp.full(paths, x[0]),) for x in START)
    state = PathState(q, p, zeros, zeros - 1, zeros, jnp.zeros(paths), zeros)
    stretch = Stretch(jnp.int32(0), jnp.int32(steps), frozenset({"dW"}))
    end = jax.jit(lambda state: march_safe(stepper, state, block, stretch))(state)
    return tuple(np.asarray(x) for x in (end.q[0], end.p[0], end.status, end.iterations))


@pytest.mark.parametrize("save_every", tiered([1, 7, 40], fast=["40"]))
def test_paths_of_explicit_methods_fail_at_the_step_at_which_they_do(save_every):
    """A force that grows with p³ drives some paths, not all, beyond all numbers within 40 steps."""
    system = da.System(
        H=lambda q, p: p[0] ** 2 / 2, F=lambda q, p: p**3, h=[lambda q, p: q[0]], dim=1
    )
    dt, steps, paths = 0.05, 40, 12
    options = {"dt": dt, "t_end": dt * steps, "save_every": save_every, "seed": 6}
    options |= {"paths": paths, "keep": "all", "progress": False}
    # The energy overflows before the state does.
    options["observe"] = {"p": lambda q, p: jnp.tanh(p[0])}
    start = ([0.0], [0.3])
    one = jax.jit(lambda q, p, dW: da.step(system, da.heun(), q, p, dt, dW)[:2])
    failed_step = {}
    for path in range(paths):
        q, p = np.zeros(1), np.full(1, 0.3)
        for step, dW in enumerate(da.brownian_path(6, path, dt, steps, 1).dW, start=1):
            q, p = one(q, p, dW)
            if not np.isfinite(q + p).all():
                failed_step[path] = step
                break
    assert 2 < len(failed_step) < paths and len(set(failed_step.values())) > 2
    with pytest.warns(RuntimeWarning, match="paths failed"):
        run = da.simulate(system, da.heun(), start, **options)
    assert_failed_at(failed_step, run, dt)
    assert run.failures.non_finite == run.failed


WHERE = {"vector code (LLVM)": (1, 0.5, 1.2), "XLA": (1, 0.5, 1.2), "arrays (XLA)": (20, -2.0, 0.6)}
"""Engines, degrees of freedom for which they take steps, first momenta, and sizes of the noise."""


@pytest.mark.parametrize(
    ("code", "save_every"),
    tiered(
        [(code, every) for code in WHERE for every in (1, 7, 40)],
        fast=["vector code (LLVM)-7"],
    ),
)
def test_paths_of_implicit_methods_fail_at_the_step_that_has_no_solution(code, save_every):
    """Midpoint with a force p² is a quadratic equation for every momentum: P = c + ½Δt P²."""
    (dim, first, size), dt, steps, paths = WHERE[code], 0.1, 40, 16
    system = da.System(
        H=lambda q, p: p @ p / 2, F=lambda q, p: p**2, h=lambda q, p, w: size * (q @ w), dim=dim,
        noises=dim,
    )  # fmt: skip
    failed_step = {}
    for path in range(paths):
        p = np.full(dim, first)
        for step, dW in enumerate(da.brownian_path(2, path, dt, steps, dim).dW, start=1):
            inside = 1 - 2 * dt * (p - size * np.asarray(dW) / 2)
            if np.min(inside) < 0:
                failed_step[path] = step
                break
            p = 2 * (1 - np.sqrt(inside)) / dt - p
    assert 2 < len(failed_step) < paths and len(set(failed_step.values())) > 2
    options = {"dt": dt, "t_end": dt * steps, "save_every": save_every, "seed": 2, "keep": "all"}
    options |= {"paths": paths, "observe": {"p": lambda q, p: p[0]}, "progress": False}
    start = np.zeros(dim), np.full(dim, first)
    with pytest.warns(RuntimeWarning, match="paths failed"):
        run = da.simulate(
            system, da.midpoint(), start, engine=code if dim == 1 else None, **options
        )
    assert run.provenance["code"] == code
    assert_failed_at(failed_step, run, dt)
    assert run.failures.unconverged == run.failed


def assert_failed_at(failed_step, run, dt):
    """Whether paths have failed at these steps and at no others, whichever are saved."""
    first = min(failed_step.values())
    assert run.failed == len(failed_step)
    assert run.failures.first_time == pytest.approx(first * dt)
    assert failed_step[run.failures.first_path] == first
    saved, paths = np.round(run.t / dt).astype(int), run.q.shape[1]
    for path in range(paths):
        is_lost = saved >= failed_step.get(path, saved[-1] + 1)
        np.testing.assert_array_equal(np.isnan(run.q[:, path, 0]), is_lost)
    expected = [paths - sum(step <= k for step in failed_step.values()) for k in saved]
    assert run.count.tolist() == expected


def test_every_schedule_saves_at_its_times_and_counts_its_units():
    for steps in (1, 2, 15, 16, 17, 100, 101):
        for every in (1, 2, 3, 16, 17, 40, 100):
            plan = Schedule(steps, min(every, steps), longest_stretch=16)
            assert plan.save_steps[0] == 0 and plan.save_steps[-1] == steps
            assert plan.per_stretch <= 16
            assert plan.per_stretch * plan.units_per_save >= plan.save_every
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


def test_a_schedule_may_save_at_its_end_alone():
    for steps in (1, 15, 16, 17, 101):
        plan = Schedule(steps, steps, longest_stretch=16, saves_per_leg=1, at_end=True)
        saving = [unit for unit in range(plan.units) if plan.is_save(unit)]
        assert plan.save_steps.tolist() == [steps] and saving == [plan.units - 1]
        assert plan.end_of_leg(0, 100) == plan.units and plan.steps_before(saving[0]) == steps
        assert (plan.saves_before(plan.units - 1), plan.saves_before(plan.units)) == (0, 1)


@pytest.mark.slow
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


def test_contexts_of_the_caller_reach_all_runs():
    """Runs of new code have threads of their own; those of code that is there have none."""
    system = da.systems.langevin()

    def final():
        def sampler(key):
            return jax.random.normal(key, (1,)), jnp.ones(1)

        return simulate(system, sampler=sampler, t_end=1.0, paths=4).q

    usual, other = final(), not jax.config.jax_threefry_partitionable
    with jax.threefry_partitionable(other):
        np.testing.assert_array_equal(final(), final())
        assert not np.array_equal(final(), usual)
    np.testing.assert_array_equal(final(), usual)


def test_saves_do_not_depend_on_how_often_they_are_made():
    often = simulate(KUBO, save_every=1, keep="all")
    for every in (3, 16, 17):
        seldom = simulate(KUBO, save_every=every, keep="all")
        steps = np.round(seldom.t / HARD["dt"]).astype(int)
        np.testing.assert_allclose(seldom.q, often.q[steps], rtol=1e-12, atol=1e-12)


def test_the_number_of_steps_compiles_nothing(monkeypatch):
    simulate(KUBO, save_every=16, t_end=8.0)
    monkeypatch.setattr(kernel.Kernel, "observe_rows", None)
    monkeypatch.setattr(native, "write_march", None)
    assert simulate(KUBO, save_every=16, t_end=16.0, paths=199, seed=9).count[-1] == 199


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_paths():
    """A number for each of 2·10⁷ paths would be 160 MB; in a process of its own."""
    import subprocess
    import sys

    code = (
        "import dalembert as da\n"
        "for paths in (10**6, 2 * 10**7):\n"
        "    run = da.simulate(da.systems.damped_kubo(), da.midpoint(), ([2.0], [0.0]), dt=0.1,"
        " t_end=0.2, paths=paths, save_every=2)\n"
        "    assert run.count[-1] == paths\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    print(next(1024 * int(x.split()[1]) for x in lines if x.startswith('VmHWM')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    few, many = map(int, out.stdout.split())
    assert many - few < 40e6 and many < 1.5 * 2**30
