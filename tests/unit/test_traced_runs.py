"""Inside jit and outside: the same steps, failures and statistics, and a text that says so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble.failures import Failures
from dalembert.ensemble.kernel import told_to_all
from dalembert.ensemble.march import PathState, Stretch, march_safe
from dalembert.ensemble.settings import make_settings
from dalembert.ensemble.traced import TracedRun
from dalembert.statistics import SampleMean
from dalembert.stepping.residuals import tolerance
from dalembert.stepping.stepper import make_stepper

PATHS = 24
FORCES = {
    # A force that grows with p³ drives explicit steps beyond all numbers.
    "heun": lambda q, p, c: c * p**3,
    # Of a force p² the equations for new momenta are quadratic: they may have no solution.
    "midpoint": lambda q, p, c: c * p**2,
}
METHODS = {"heun": da.heun, "midpoint": da.midpoint}
NOISES = {"truncated": da.Gaussian(truncation=1.0), "Gaussian": da.Gaussian()}


def system(name, c=1.0):
    return da.System(
        H=lambda q, p, c: p[0] ** 2 / 2, F=FORCES[name], h=[lambda q, p, c: q[0]], dim=1, params=c
    )


OBSERVE = {
    "bounded": lambda q, p, c: jnp.tanh(p),
    # Not a number for momenta that have gone far enough, long before they overflow.
    "root": lambda q, p, c: jnp.sqrt(9.0 - p[0]),
}


def asked(name, number):
    """A method's run with random steps, saves, and noise."""
    rng = np.random.default_rng(number)
    steps, seed = int(rng.integers(25, 45)), int(rng.integers(100))
    histogram = da.Histogram(da.Axis(OBSERVE["root"], 0.0, 5.0, 6))
    return {
        "method": METHODS[name](), "initial": ([0.0], [0.3]), "dt": 0.1, "t_end": 0.1 * steps,
        "paths": PATHS, "seed": seed, "save_every": int(rng.integers(1, 14)),
        "noise": NOISES["truncated" if number % 2 else "Gaussian"], "keep": "all",
        "observe": OBSERVE, "histograms": {"roots": histogram},
        "statistics": {"both": da.Covariance({"tanh": lambda q, p, c: jnp.tanh(p[0])})},
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*paths failed", "ignore:truncation=1")
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", METHODS)
def test_a_run_inside_jit_is_the_run_outside(name, number):
    options = asked(name, number)
    outside = da.simulate(system(name), **options, progress=False)
    with jax.enable_x64(True):
        inside = jax.jit(lambda c: da.simulate(system(name, c), **options))(1.0)
    assert outside.failed > 0, "nothing to be seen"
    assert {k: float(x) for k, x in vars(inside.failures).items()} == {
        k: pytest.approx(x, rel=1e-12) for k, x in vars(outside.failures).items()
    }
    assert int(inside.truncated) == outside.truncated
    assert (outside.truncated > 0) == (number % 2 == 1)
    solved = tolerance(np.float64)
    assert (inside.residual > solved) == (outside.residual > solved)
    assert (outside.residual > solved) == (outside.failures.unconverged > 0)
    for x, y in ((inside.q, outside.q), (inside.p, outside.p)):
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(inside.count, outside.count)
    counts = inside.histograms["roots"].counts, outside.histograms["roots"].counts
    np.testing.assert_array_equal(*counts)
    for x, y in zip(*(jax.tree.leaves((r.moments, r.statistics["both"].covariance))
                      for r in (inside, outside)), strict=True):  # fmt: skip
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:truncation=1")
@pytest.mark.parametrize("count", [1, 3, 9])
def test_steps_of_a_known_number_begin_anywhere_in_a_group(count):
    """By a scan as by a loop of a number that comes later: also those that fail, as often cut."""
    rng, name = np.random.default_rng(count), "heun"
    options = asked(name, 1) | {"only": None, "dtype": np.float64}
    settings = make_settings(system(name), **options)
    stepper = make_stepper(settings.system, settings.method, np.float64)
    words = np.arange(PATHS, dtype=np.uint32)
    with jax.enable_x64(True):
        block = told_to_all(settings)._replace(path=(words, 0 * words))
        none = jnp.zeros(PATHS, jnp.int32)
        state = PathState(
            (jnp.zeros(PATHS),), (jnp.asarray(10 ** rng.uniform(0, 60, PATHS)),), none,
            none - 1, none, jnp.zeros(PATHS), none,
        )  # fmt: skip

        def taken(first, count):
            stretch = Stretch(first, count, frozenset({"dW"}))
            return march_safe(stepper, state, block, stretch)

        by_scan, by_loop = jax.jit(lambda k: taken(k, count)), jax.jit(taken)
        failed = set()
        for first in range(settings.noise.together + 2):
            one, other = by_scan(np.int32(first)), by_loop(np.int32(first), np.int32(count))
            for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-13)
            steps = np.asarray(one.failed_step)
            failed |= set(steps[steps >= 0] - first)
            assert np.all(np.isfinite(one.p[0])), "a path that fails stays where it was"
            shifted = by_scan(np.int32(first + 1)).q[0]
            assert not np.array_equal(one.q[0], shifted), "the noise does not depend on the step"
    assert failed and failed <= set(range(1, count + 1))


def traced_run(failed=0, times=3, many=()):
    """What JAX may hand out, made by hand."""
    mean = SampleMean(*(np.full((*many, times), x) for x in (4.0, 1.5, 3.0, 1.0, 2.0)))
    failures = Failures(*(np.full(many, x) for x in (failed, 0, 2 if failed else -1, 0.2, 0)))
    numbers = (np.full(many, x) for x in (7, 1e-16, 3))
    t = np.broadcast_to(np.linspace(0.0, 1.0, times), (*many, times))
    return TracedRun(t, {"observe/energy": mean}, failures, *numbers, {})


def test_runs_of_jax_are_read_like_others():
    lines = repr(jax.tree.map(jnp.asarray, traced_run(failed=1))).splitlines()
    assert lines == [
        "Run inside JAX, seen at 3 times up to t = 1",
        "  failed paths: 1 (1 unconverged, 0 not finite), the first is path 2 at t = 0.2",
        "  stage equations: largest residual 1.0e-16, at most 3 iterations",
        "  truncated increments: 7",
        "  energy at the end: 1.5 ± 0.5",
    ]
    assert "failed paths: none" in repr(traced_run())
    assert "<td>1.5 ± 0.5</td>" in traced_run()._repr_html_()


def test_runs_of_which_no_numbers_are_known_show_shapes():
    texts = []
    run = traced_run()
    shapes = jax.eval_shape(lambda run: texts.append(repr(run)) or run, run)
    several = traced_run(many=(5,))
    shown = {"(3,)": (*texts, repr(shapes)), "(5, 3)": (repr(several),)}
    for shape, found in shown.items():
        for text in found:
            assert text.splitlines() == [
                "Runs inside JAX, of which here are shapes", f"  mean of energy: {shape}"
            ]  # fmt: skip
    assert repr(jax.tree.map(lambda x: None, run)).startswith("Runs inside JAX")
    assert "energy at the end: 1.5" in repr(jax.tree.map(lambda x: x[3], several))
