"""Large steps: the safe solver finds what continuation in the step finds, whatever the cut."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.stepping.residuals import tolerance

EXAMPLE = [-1.972478546332561], [-0.6062874245678347], 2.0, [-2.016745058021307]


def midpoint_residual(Q, P, q, p, dt, dW):
    """Of `da.systems.pendulum`, whose equations are written out by its fields."""
    system = da.systems.pendulum()
    drift, noise = system.drift(Q, P), system.diffusion(Q, P)
    new_q = q + (dt * drift[0] + dW * noise[0][0]) / 2
    new_p = p + (dt * drift[1] + dW * noise[1][0]) / 2
    return np.concatenate([Q - new_q, P - new_p])


def test_an_equation_that_damped_newton_steps_leave_unsolved():
    q, p, info = da.step(da.systems.pendulum(), da.midpoint(), *EXAMPLE)
    assert info.converged and info.residual < 1e-14
    Q, P = (q + np.array(EXAMPLE[0])) / 2, (p + np.array(EXAMPLE[1])) / 2
    np.testing.assert_allclose([Q[0], P[0]], [-1.4448847060540784, 0.5275938402784826], rtol=1e-12)
    assert np.abs(midpoint_residual(Q, P, *map(np.array, EXAMPLE))).max() < 1e-14


def _by_continuation(q, p, dt, dW, shares=2000):
    """The stage momentum of the pendulum's midpoint step, as the step grows, by plain Newton."""
    system = da.systems.pendulum()
    with jax.enable_x64(True):

        def residual(P, s):
            Q = q + s * dt * P / 2
            drift, noise = system.drift(Q[None], P[None]), system.diffusion(Q[None], P[None])
            return P - p - s * (dt * drift[1][0] + dW * noise[1][0][0]) / 2

        def grow(P, s):
            for _ in range(4):
                P = P - residual(P, s) / jax.grad(residual)(P, s)
            return P, None

        P, _ = jax.lax.scan(grow, jnp.asarray(p), jnp.arange(1, shares + 1) / shares)
        return float(P), float(residual(P, 1.0))


@pytest.mark.slow
def test_what_continuation_finds_is_found():
    """Random states and large steps; among them there are some that damped steps do not solve."""
    rng = np.random.default_rng(5)
    pendulum, found = da.systems.pendulum(), 0
    for q, p, dW in rng.normal(size=(300, 3)) * [2.0, 1.0, 2.0]:
        stage, left = _by_continuation(q, p, 2.0, dW)
        if abs(left) < 1e-10 and abs(stage) < 1e3:
            found += 1
            assert da.step(pendulum, da.midpoint(), [q], [p], 2.0, [dW])[2].converged
    assert found > 250


def test_an_equation_without_a_solution_is_said_to_be_unsolved():
    """P = p + h (P² + 1)/2 has none for large h: what was reached is reported."""
    system = da.System(H=lambda q, p: p[0] ** 2 / 2, F=lambda q, p: p**2 + 1, dim=1)
    for dt, has_solution in ((0.5, True), (5.0, False)):
        _, _, info = da.step(system, da.midpoint(), [0.0], [0.0], dt, [])
        assert bool(info.converged) is has_solution
        assert (info.residual < 1e-14) == has_solution


# --- failures -------------------------------------------------------------------------------------

UNSTABLE = da.System(
    H=lambda q, p: p[0] ** 2 / 2 + q[0] ** 4 / 4, h=[lambda q, p: 0.8 * q[0]], dim=1
)
"""Heun's method overflows on it, path by path, and chaos tells any rounding apart."""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vector code (LLVM)", "XLA"])
def test_failures_do_not_depend_on_how_often_paths_are_saved(engine):
    options = dict(dt=0.25, t_end=30.0, paths=128, keep="final", progress=False)
    options["engine"] = engine
    options["observe"] = {"q": lambda q, p: jnp.tanh(q[0])}  # finite whenever the state is
    runs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for every in (1, 7, 60, 120):
            runs.append(
                da.simulate(UNSTABLE, da.heun(), ([0.5], [0.0]), save_every=every, **options)
            )
    first = runs[0]
    assert 5 < first.failed < 128
    for run in runs[1:]:
        assert run.failures == first.failures
        np.testing.assert_array_equal(run.q, first.q)


def test_a_run_inside_jit_whose_paths_have_all_failed_has_no_mean():
    system = da.System(
        H=lambda q, p, a: p[0] ** 2 / 2 - a * q[0] ** 4, h=[lambda q, p, a: q[0]], dim=1, params=0.0
    )

    @jax.jit
    def run(a):
        system_a = system.with_params(a)
        return da.simulate(
            system_a, da.heun(), ([3.0], [1.0]), dt=0.5, t_end=10.0, paths=4,
            observe={"q": lambda q, p, a: q[0]}, progress=False,
        )  # fmt: skip

    with jax.enable_x64(True):
        lost, fine = run(1.0), run(0.0)
    assert lost.failed == 4 and fine.failed == 0
    assert np.isfinite(lost.mean["q"][0]) and np.isnan(lost.mean["q"][-1])
    assert np.isnan(lost.variance["q"][-1]) and np.isnan(lost.stderr["q"][-1])
    assert np.isfinite(fine.mean["q"]).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:truncation=1", "ignore:20 of 20 paths failed")
def test_a_run_inside_jit_reports_what_one_outside_does():
    """Truncated increments, and the residual of the step at which a path fails."""

    def run(a):
        system = da.System(
            H=lambda q, p, a: p[0] ** 2 / 2 - a * jnp.cos(q[0]),
            F=lambda q, p, a: -0.3 * jnp.sqrt(p - a) * p,
            h=[lambda q, p, a: 0.05 * q[0]], dim=1, params=a,
        )  # fmt: skip
        return da.simulate(
            system, da.midpoint(), ([1.0], [1.2]), dt=0.5, t_end=2.0, paths=20, save_every=2,
            noise=da.Gaussian(truncation=1.0), progress=False,
        )  # fmt: skip

    with jax.enable_x64(True):
        inside = jax.jit(run)(1.0)
    outside = run(1.0)
    assert int(inside.failed) == outside.failed == 20
    assert inside.residual > 1e-3 < outside.residual
    with jax.enable_x64(True):
        inside = jax.jit(run)(-1.5)
    outside = run(-1.5)
    assert int(inside.failed) == outside.failed == 0
    assert int(inside.truncated) == outside.truncated > 0
    assert inside.residual <= tolerance(np.float64)
