"""`da.simulate` inside jit, vmap and grad."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.systems.kubo import kubo_energy

KUBO = da.systems.damped_kubo()
START = ([2.0], [0.0])


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def simulate(params, method=None, system=KUBO, start=START, **options):
    defaults = dict(dt=0.1, t_end=2.3, paths=20, save_every=5, progress=False)
    method = method or da.midpoint()
    return da.simulate(system.with_params(**params), method, start, **defaults | options)


@pytest.mark.parametrize(
    "method",
    [
        da.midpoint(),
        da.heun(),
        pytest.param(da.srkw1(), marks=pytest.mark.slow),
        pytest.param(da.e1(), marks=pytest.mark.slow),
    ],
    ids=lambda m: m.name,
)
def test_a_compiled_run_is_the_same_run(method):
    """With a last save that is nearer than the others, and some of the paths alone."""
    params = {"beta": 0.5, "nu": 0.1}
    for options in ({"keep": "all"}, {"keep": "final", "only": [3, 17]}):
        ours = jax.jit(lambda params, o=options: simulate(params, method, **o))(params)
        theirs = simulate(params, method, **options)
        np.testing.assert_allclose(ours.t, theirs.t)
        for name in ("mean", "variance", "stderr"):
            x, y = getattr(ours, name)["energy"], getattr(theirs, name)["energy"]
            np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(ours.q, theirs.q, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(ours.p, theirs.p, rtol=1e-10, atol=1e-10)
        assert int(ours.failed) == theirs.failed == 0


@pytest.mark.slow
def test_a_sampler_and_an_array_of_states_can_be_used():
    params = {"beta": 0.5, "nu": 0.1}

    def sampler(key):
        return jax.random.normal(key, (1,)), jnp.zeros(1)

    states = np.linspace(0.5, 2.0, 20)[:, None], np.zeros((20, 1))
    for start in (sampler, states):
        ours = jax.jit(lambda params, s=start: simulate(params, start=s))(params)
        theirs = simulate(params, start=start)
        np.testing.assert_allclose(ours.mean["energy"], theirs.mean["energy"], rtol=1e-10)


def test_many_parameters_at_once():
    betas = jnp.array([0.1, 0.5, 0.9])
    run = jax.vmap(lambda beta: simulate({"beta": beta}))(betas)
    assert run.mean["energy"].shape == (3, 6)
    for beta, mean in zip(betas, run.mean["energy"], strict=True):
        alone = simulate({"beta": float(beta)})
        np.testing.assert_allclose(mean, alone.mean["energy"], rtol=1e-10)


def final_energies(x):
    """Energies of all paths of the Kubo oscillator at the end, as a function of (β, ν)."""
    run = simulate(
        {"beta": x[0], "nu": x[1]}, dt=0.01, t_end=2.0, paths=4000, save_every=200, keep="final"
    )
    return (run.q[:, 0] ** 2 + run.p[:, 0] ** 2) / 2


def test_derivatives_of_the_mean_energy_are_those_of_the_closed_formula():
    """With respect to β and ν, within four standard errors of the mean over paths."""
    point = jnp.array([0.5, 0.5])
    slopes = np.asarray(jax.jit(jax.jacfwd(final_energies))(point))
    mean, error = slopes.mean(axis=0), slopes.std(axis=0) / np.sqrt(len(slopes))
    h = 1e-5
    for k in range(2):
        low, high = (np.array(point) + s * h * np.eye(2)[k] for s in (-1, 1))
        exact = (kubo_energy(2.0, 2.0, 0.0, *high) - kubo_energy(2.0, 2.0, 0.0, *low)) / (2 * h)
        assert abs(mean[k] - exact) < 4 * error[k]
        assert abs(exact) > 10 * error[k], "anything would pass"


def test_gradients_backwards_and_forwards_agree():
    def mean(x):
        return simulate({"beta": x[0], "nu": x[1]}).mean["energy"][-1]

    point = jnp.array([0.4, 0.2])
    backwards = jax.jit(jax.grad(mean))(point)
    np.testing.assert_allclose(backwards, jax.jit(jax.jacfwd(mean))(point), rtol=1e-10)
    h = 1e-5
    for k, direction in enumerate(np.eye(2)):
        difference = (mean(point + h * direction) - mean(point - h * direction)) / (2 * h)
        assert float(backwards[k]) == pytest.approx(float(difference), rel=1e-6)


def test_gradients_with_respect_to_initial_states():
    def mean(q):
        run = da.simulate(KUBO, da.midpoint(), (q, q * 0), dt=0.1, t_end=1.0, paths=50)
        return run.mean["energy"][-1]

    # The energy is quadratic, so that the derivative at q is 2/q times the value.
    value, slope = jax.jit(jax.value_and_grad(mean))(jnp.array([2.0]))
    assert float(slope[0]) == pytest.approx(float(value), rel=1e-10)


def test_failed_paths_leave_the_statistics():
    system = da.System(
        H=lambda q, p, c: p[0] ** 2 / 2,
        F=lambda q, p, c: c["k"] * p**3,
        h=[lambda q, p, c: q[0]],
        dim=1,
        params={"k": 1.0},
    )
    options = dict(
        system=system, start=([0.0], [0.3]), dt=0.05, t_end=2.0, paths=50, save_every=10,
        observe={"p": lambda q, p, c: jnp.tanh(p[0])}, keep="all",
    )  # fmt: skip
    ours = jax.jit(lambda k: simulate({"k": k}, da.heun(), **options))(1.0)
    with pytest.warns(RuntimeWarning, match="paths failed"):
        theirs = simulate({"k": 1.0}, da.heun(), **options)
    assert int(ours.failed) == theirs.failed > 0
    np.testing.assert_array_equal(np.isnan(ours.q), np.isnan(theirs.q))
    np.testing.assert_array_equal(ours.moments["p"].count, theirs.moments["p"].count)
    np.testing.assert_allclose(ours.mean["p"], theirs.mean["p"], rtol=1e-8)


def test_what_cannot_be_had_inside_a_transformation_is_refused(tmp_path):
    histogram = da.Histogram(da.Axis(lambda q, p, c: q[0], -1.0, 1.0))
    for options in ({"histograms": {"q": histogram}}, {"checkpoint": tmp_path / "run.ckpt"}):
        with pytest.raises(ValueError, match="cannot be had inside jit"):
            jax.jit(lambda beta, o=options: simulate({"beta": beta}, **o))(0.5)
    with pytest.raises(TypeError, match="dt cannot be traced"):
        jax.jit(lambda dt: simulate({"beta": 0.5}, dt=dt))(0.1)
