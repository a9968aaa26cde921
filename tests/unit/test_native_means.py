"""Means at the end of a run by vector code are those of XLA; small runs beside each other."""

import threading
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.answers import sampling
from dalembert.ensemble import blocks, engines, pool
from dalembert.ensemble.ends import ShortRun, means_at_ends
from dalembert.ensemble.job import FailedPathsError, Interrupted
from dalembert.ensemble.march import Status
from dalembert.ensemble.native_means import MeansAtEnd
from dalembert.ensemble.ready import starts_of
from dalembert.ensemble.settings import make_settings
from dalembert.ensemble.simulate import prepare
from dalembert.ensemble.together import run_together
from dalembert.statistics import Mean
from dalembert.stepping.stepper import Stepper
from dalembert.stepping.stopping import StoppingStepper

PATHS, REAL = 256, 200


def energy(q, p, params):
    return p[0] ** 2 / 2 - jnp.cos(q[0])


def several(q, p, params):
    return jnp.stack([jnp.log(q[0]), params["gamma"] * p[0], jnp.exp(-(q[0] ** 2))])


def pendulum():
    return da.systems.langevin(lambda q: -jnp.cos(q[0]), gamma=0.5, temperature=0.25)


def settings_of(
    observables, system=None, paths=REAL, seed=0, method=None, initial=([1.0], [0.0]), **options
):
    given = {"dt": 0.5, "t_end": 2.0, "seed": seed, "only": None, "save_every": 4, "noise": None}
    given |= {"keep": "nothing", "dtype": np.float64, "observe": None, "histograms": None} | options
    made = make_settings(
        system or pendulum(), method or da.midpoint(), initial, paths=paths,
        statistics={name: Mean(fun) for name, fun in observables.items()}, **given,
    )  # fmt: skip
    return replace(made, statistics=made.statistics[1:], block_paths=PATHS, at_end=True)


def both(observables, change=lambda state: state):
    """What vector code and XLA make of the same paths."""
    settings = settings_of(observables)
    work = prepare(settings, progress=False).work
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        state = work.kernel.start(*rng.normal(size=(2, PATHS, 1)), work.report)
        rows = jax.tree.map(lambda x: np.asarray(x)[None], change(state))
        memory = work.kernel.remember(PATHS)
        from dalembert.ensemble.blocks import _block

        given = rows, memory, _block(work, 0), np.array([4], np.int32), np.int32(1)
        native = work.compiled.at_end
        by_xla = jax.jit(work.kernel.observe_rows)(*given)
        return None if native is None else native.observe(*given), by_xla


def sick(state):
    """A path has failed, and the positions of some have no logarithm."""
    status = np.array(state.status)
    status[3] = Status.NON_FINITE
    (q,) = state.q
    q = np.where(np.arange(PATHS) == 5, np.nan, np.abs(q))
    q[7] = -1.0
    return state._replace(q=(q,), status=status)


@pytest.mark.parametrize("change", [lambda state: state, sick], ids=["sound", "sick"])
def test_means_are_those_of_xla(change):
    native, by_xla = both({"height": energy, "several": several}, change)
    for name in ("status", "failed_step"):  # what is beyond the last path is no matter
        found, wanted = (getattr(state, name)[:REAL] for state in (native[0], by_xla[0]))
        np.testing.assert_array_equal(found, wanted)
    assert np.sum(native[0].status == Status.UNOBSERVABLE) > 0  # logarithms of what is negative
    for key, wanted in by_xla[2].rows.items():
        for name, x in wanted.items():
            assert native[2].rows[key][name].shape == x.shape
            np.testing.assert_allclose(native[2].rows[key][name], x, rtol=1e-12, atol=1e-14)
    count = native[2].rows["statistics/height"]["count"][0]
    assert 0 < count < REAL  # nor do places beyond the last path take part


def test_sums_lose_no_digits():
    """Far from zero, equal, rare, with long tails, and so large that squares overflow."""
    native, by_xla = both({
        "far": lambda q, p, params: 1e8 + q[0],
        "equal": lambda q, p, params: 0.1 + 0 * q[0],
        "rare": lambda q, p, params: jnp.where(q[0] > 1.5, 1.0, 0.0),
        "long": lambda q, p, params: 1 / q[0] ** 3,
        "large": lambda q, p, params: 1e200 * q[0],
    })  # fmt: skip
    found = {key.removeprefix("statistics/"): x for key, x in native[2].rows.items()}
    for key, wanted in by_xla[2].rows.items():
        for name, x in wanted.items():
            mine = native[2].rows[key][name]
            np.testing.assert_allclose(mine, x, rtol=1e-9 if name == "deviations" else 1e-13)
    assert found["equal"]["deviations"] == 0 and found["equal"]["mean"] == 0.1
    assert np.isinf(found["large"]["deviations"]) and np.isfinite(found["large"]["mean"])
    x = 1e8 + np.random.default_rng(0).normal(size=(2, PATHS, 1))[0, :REAL, 0]
    naive = np.sum(x * x) - np.sum(x) ** 2 / REAL
    assert abs(naive / found["far"]["deviations"][0] - 1) > 1e-3


SLOW = pytest.mark.slow


@pytest.mark.parametrize("paths", [7, pytest.param(1, marks=SLOW), pytest.param(REAL, marks=SLOW)])
def test_means_of_few_paths_and_in_float32(paths):
    """Lanes in which there is no path take no part."""
    for dtype, rtol in ((np.float64, 1e-12), (np.float32, 2e-6)):
        settings = settings_of({"height": energy}, paths=paths, dtype=dtype)
        found = prepare(settings, None, "raise", False).run().statistics["height"]
        states = replace(settings, keep="final", at_end=False)
        run = prepare(states, None, "raise", False).run()
        q, p = (np.asarray(x, float).reshape(-1)[-paths:] for x in (run.q, run.p))
        height = p**2 / 2 - np.cos(q)
        squares = np.sum((height - height.mean()) ** 2)
        wanted = paths, height.mean(), squares, height.min(), height.max()
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.ravel(x)[-1], y, rtol=rtol, atol=rtol)
            assert np.asarray(x).dtype in (dtype, np.float64)


def test_what_has_no_vector_code_is_left_to_xla():
    def sorted_state(q, p, params):
        return jnp.sort(jnp.concatenate([q, p]))[0]

    assert both({"sorted": sorted_state})[0] is None
    many = both({"many": lambda q, p, params: q[0] * jnp.arange(1000.0)})
    assert many[0] is None


def jobs_of(*numbers, system=None):
    """Runs that are made ready; those after the first like it."""
    jobs = []
    for seed, paths in enumerate(numbers):
        settings = settings_of({"height": energy}, system, paths=paths, seed=seed)
        like = jobs[0].ready if jobs else None
        jobs.append(prepare(settings, None, "raise", False, like=like))
    return jobs


def at_once(jobs):
    return run_together([job.settings.run_paths for job in jobs], jobs.__getitem__)


def test_runs_at_once_have_the_bits_that_they_have_alone():
    numbers = (700, 200, 1000, 60)
    alone = [job.run() for job in jobs_of(*numbers)]
    for _ in range(3):
        together = at_once(jobs_of(*numbers))
        for one, other in zip(alone, together, strict=True):
            for x, y in zip(one.statistics["height"], other.statistics["height"], strict=True):
                np.testing.assert_array_equal(x, y)


def ends_of(jobs):
    made = [(job.settings, jobs[0].ready, starts_of(job.settings)) for job in jobs]
    return means_at_ends(ShortRun(*one) for one in made)


def test_means_at_ends_have_the_bits_of_runs():
    for system, start, method in (
        (pendulum(), ([1.0], [0.0]), None),
        (da.systems.van_der_pol(), gaussian, None),
        (da.systems.damped_kubo(), ([1.0], [0.0]), da.srkw1()),  # by matrices
    ):
        about = {"initial": start, "method": method}
        given = [
            settings_of({"height": energy}, system, paths=paths, seed=seed, **about)
            for seed, paths in enumerate((700, 200, 1000, 60))
        ]
        like = prepare(given[0], None, "raise", False).ready
        jobs = [prepare(one, None, "raise", False, like=like) for one in given]
        found = ends_of(jobs)
        for job, data in zip(jobs, found, strict=True):
            for name, x in job.run().observed["statistics/height"].data.items():
                np.testing.assert_array_equal(data["statistics/height"][name], x)
        assert len({float(data["statistics/height"]["mean"][0]) for data in found}) == 4


def test_means_of_no_runs_are_none():
    assert means_at_ends(iter(())) == []


@pytest.mark.slow
def test_small_rounds_of_expectations_are_means_at_ends(monkeypatch):
    """What falls back on runs is right, and only slower: it must not happen unseen."""
    alone, system = [], da.systems.damped_kubo()
    monkeypatch.setattr(
        sampling, "run_together", lambda steps, job: alone.extend(steps) or run_together(steps, job)
    )
    about = {"t_end": 1.0, "tolerance": 0.1, "dt": 0.25, "estimator": "plain", "progress": False}
    for start in (([1.0], [0.0]), gaussian):
        da.expect(system, da.midpoint(), start, system.H, **about)
    assert not alone
    # But of paths that have no start, which are named.
    with pytest.raises(ValueError, match="the sampler gave NaN or infinity for path"):
        da.expect(system, da.midpoint(), lambda key: (gaussian(key)[0] / 0,) * 2, system.H, **about)
    assert alone


def test_a_run_with_a_path_that_is_not_fine_is_left_to_be_run_as_a_whole(monkeypatch):
    jobs = jobs_of(700, 200, 1000)
    run = MeansAtEnd.run
    hard = jobs[1].settings.size(0)

    def found(self, block, q, p, first, real, steps):
        return None if real == hard else run(self, block, q, p, first, real, steps)

    monkeypatch.setattr(MeansAtEnd, "run", found)
    assert [x is None for x in ends_of(jobs)] == [False, True, False]


@pytest.mark.slow
def test_of_runs_at_once_the_first_that_fails_is_named():
    def cliff(q):
        return jnp.sqrt(q[0] - 0.5)

    system = da.systems.langevin(cliff, gamma=0.5, temperature=0.25)
    with pytest.raises(FailedPathsError, match="of 700 paths failed"):
        at_once(jobs_of(700, 200, 1000, system=system))


def test_runs_at_once_are_stopped_by_ctrl_c(monkeypatch):
    jobs = jobs_of(700, 200, 1000)

    def interrupted():
        raise Interrupted("stopped")

    monkeypatch.setattr(jobs[0], "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        at_once(jobs)
    assert all(job.work.stop.is_set() for job in jobs)


def gaussian(key):
    return tuple(jax.random.normal(one, (1,)) for one in jax.random.split(key))


SPREAD = np.linspace(-2.0, 2.0, REAL)[:, None]
STARTS = {"one": ([1.0], [0.0]), "each its own": (SPREAD, -SPREAD), "drawn": gaussian}


def results(settings):
    run = prepare(settings, None, "raise", False).run()
    sample = run.statistics["height"]
    return [*sample, run.residual, run.iterations, run.truncated]


@pytest.mark.parametrize(
    ("method", "system"),
    [
        (da.midpoint(), pendulum()),
        (da.additive_midpoint(), pendulum()),
        (da.stormer_verlet(), da.systems.pendulum()),
        (da.heun(), da.systems.van_der_pol()),
        (da.srkw1(), da.systems.two_noise()),
        (da.srkw2(), da.systems.damped_kubo()),
        (da.midpoint(), da.systems.damped_kubo()),
        (da.srkw1(), da.systems.damped_kubo()),
    ],
    ids=lambda x: x.name,
)
def test_blocks_run_at_once_have_the_bits_of_those_run_step_by_step(method, system, monkeypatch):
    def height(q, p, params):
        return q[0] * p[0] + jnp.cos(q[0] + 0.3 * p[0])

    given = []
    for start in STARTS.values():
        settings = settings_of({"height": height}, system, paths=REAL, method=method, initial=start)
        given.append(replace(settings, block_paths=128))  # the second block is not full
    at_once = [results(settings) for settings in given]
    monkeypatch.setattr(blocks, "_at_once", lambda work, number: None)
    for found, settings in zip(at_once, given, strict=True):
        for x, y in zip(found, results(settings), strict=True):
            np.testing.assert_array_equal(x, y)
    assert len({float(found[1][-1]) for found in at_once}) == 3


MATRICES = da.systems.damped_kubo()


def first(q, p, params):
    return q[0]


def test_what_cannot_be_run_at_once_is_run_step_by_step(monkeypatch):
    taken = []

    def spy(work, number):
        result = at_once(work, number)
        taken.append(result is not None)
        return result

    at_once = blocks._at_once
    monkeypatch.setattr(blocks, "_at_once", spy)
    usual = settings_of({"height": energy})
    for settings, expected in {
        "usual": (usual, True),
        "as matrices": (settings_of({"x": first}, MATRICES, method=da.srkw1()), True),
        "some": (replace(usual, only=tuple(range(3, 103))), False),
        "long": (replace(usual, steps=5000, save_every=5000), False),
    }.values():
        taken.clear()
        prepare(settings, None, "raise", False).run()
        assert taken and set(taken) == {expected}


def test_short_runs_start_no_thread(monkeypatch):
    """Alone they run in the caller's thread, together in those that all of them share."""
    threads = []
    run_block = pool.run_block

    def noted(*given):
        threads.append(threading.current_thread().name)
        return run_block(*given)

    monkeypatch.setattr(pool, "run_block", noted)
    prepare(settings_of({"height": energy}), None, "raise", False).run()
    assert threads == [threading.main_thread().name]
    threads.clear()
    jobs = jobs_of(200, 100, 60)
    for job in jobs:
        job.workers = 2
    at_once(jobs)
    assert len(threads) == 3 and all(name.startswith("dalembert_") for name in threads)
    # The control: a run of several blocks.
    threads.clear()
    (job,) = jobs_of(700)
    job.workers = 2
    job.run()
    assert threads and threading.main_thread().name not in threads


class Wrapped:
    """An engine from outside by the name of ours."""

    name = "vector code (LLVM)"

    def __init__(self):
        self.stretches = []

    def compile(self, steps):
        ours = engines.VectorCode().compile(steps)

        def on_block(block):
            march = ours(block)
            return lambda *given: self.stretches.append(given[1:]) or march(*given)

        return on_block


def test_an_engine_is_never_passed_by():
    engine = Wrapped()
    run = prepare(settings_of({"height": energy}), None, "raise", False, engine=engine).run()
    usual = prepare(settings_of({"height": energy}), None, "raise", False).run()
    assert engine.stretches[-1] == (0, 4)
    np.testing.assert_allclose(
        run.statistics["height"].mean, usual.statistics["height"].mean, rtol=1e-14
    )


def test_states_that_statistics_see_as_others_are_not_observed_by_vector_code(monkeypatch):
    """Where paths have stopped, say, they are at places between two states."""
    settings = settings_of({"height": energy})
    assert prepare(settings, None, "raise", False).work.compiled.at_end is not None
    assert not StoppingStepper.sees_states
    monkeypatch.setattr(Stepper, "sees_states", False)
    assert prepare(settings, None, "raise", False).work.compiled.at_end is None
