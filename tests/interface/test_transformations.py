"""`da.simulate` inside jit, vmap and grad."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.systems.kubo_system import kubo_energy
from tiers import tiered

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
    tiered([da.midpoint(), da.heun(), da.srkw1(), da.e1()], fast=["heun"], name=lambda m: m.name),
)
@pytest.mark.parametrize(
    "options",
    [{"keep": "all"}, pytest.param({"keep": "final", "only": [3, 17]}, marks=pytest.mark.slow)],
    ids=["all", "some"],
)
def test_a_compiled_run_is_the_same_run(method, options):
    """With a last save that is nearer than the others, and some of the paths alone."""
    params = {"beta": 0.5, "nu": 0.1}
    ours = jax.jit(lambda params: simulate(params, method, **options))(params)
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


@pytest.mark.slow
def test_many_parameters_at_once():
    betas = jnp.array([0.1, 0.5, 0.9])
    run = jax.jit(jax.vmap(lambda beta: simulate({"beta": beta}, da.heun())))(betas)
    assert run.mean["energy"].shape == (3, 6)
    for beta, mean in zip(betas, run.mean["energy"], strict=True):
        alone = simulate({"beta": float(beta)}, da.heun())
        np.testing.assert_allclose(mean, alone.mean["energy"], rtol=1e-10)


def final_energies(x):
    """Energies of all paths of the Kubo oscillator at the end, as a function of (β, ν)."""
    run = simulate(
        {"beta": x[0], "nu": x[1]}, dt=0.01, t_end=2.0, paths=4000, save_every=200, keep="final"
    )
    return (run.q[:, 0] ** 2 + run.p[:, 0] ** 2) / 2


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_gradients_with_respect_to_initial_states():
    def mean(q):
        run = da.simulate(KUBO, da.midpoint(), (q, q * 0), dt=0.1, t_end=1.0, paths=50)
        return run.mean["energy"][-1]

    # The energy is quadratic, so that the derivative at q is 2/q times the value.
    value, slope = jax.jit(jax.value_and_grad(mean))(jnp.array([2.0]))
    assert float(slope[0]) == pytest.approx(float(value), rel=1e-10)


def potential(x):
    """All kinds of functions: our own, those of JAX, powers, roots and absolute values."""
    waves = jnp.cos(x) + jnp.sin(2 * x) + jnp.tan(x / 3)
    growing = jnp.exp(x / 2) + jnp.cosh(x) + jnp.log(3 + x) * jnp.log1p(x**2) + jnp.expm1(x / 3)
    bounded = jnp.tanh(x) + jax.scipy.special.erf(x) + jnp.arctan(x) + 1 / (2 + x**4)
    return (waves + growing + bounded + jnp.sqrt(2 + x) + (2 + x) ** 1.7 + jnp.abs(x) ** 3) / 10


def anharmonic(potential):
    return da.System(
        H=lambda q, p, c: p[0] ** 2 / 2 + c * potential(q[0]), dim=1, params=jnp.asarray(1.0)
    )


POTENTIALS = {"all functions": potential, "cosine": jnp.cos}
SYSTEMS = {name: anharmonic(potential) for name, potential in POTENTIALS.items()}
STEPS = 3


def end_of_a_run(system, x):
    run = da.simulate(
        system.with_params(x[2]), da.midpoint(), (x[:1], x[1:2]), dt=0.2, t_end=0.2 * STEPS,
        paths=1, keep="final", progress=False,
    )  # fmt: skip
    return run.q[0, 0] + 2 * run.p[0, 0]


def end_of_a_scan(system, x):
    def body(z, _):
        return da.step(system.with_params(x[2]), da.midpoint(), *z, 0.2, [])[:2], None

    (q, p), _ = jax.lax.scan(body, (x[:1], x[1:2]), None, length=STEPS)
    return q[0] + 2 * p[0]


def end_of_one_step(system, x):
    q, p, _ = da.step(system.with_params(x[2]), da.midpoint(), x[:1], x[1:2], 0.2, [])
    return q[0] + 2 * p[0]


def midpoint_by_iteration(potential, steps):
    """The same numbers from plain operations of JAX."""

    def end(x):
        def step(z, _):
            def improve(new, _):
                q, p = (z[0] + new[0]) / 2, (z[1] + new[1]) / 2
                return (z[0] + 0.2 * p, z[1] - 0.2 * x[2] * jax.grad(potential)(q)), None

            return jax.lax.scan(improve, z, None, length=40)[0], None

        q, p = jax.lax.scan(step, (x[0], x[1]), None, length=steps)[0]
        return q + 2 * p

    return end


WAYS = {"one step": end_of_one_step, "a scan": end_of_a_scan, "a run": end_of_a_run}
DIRECTIONS = {"f": jax.jacfwd, "r": jax.jacrev}


def nested(fun, ways):
    """Derivatives of derivatives, forwards and backwards, the first letter first."""
    return functools.reduce(lambda f, way: DIRECTIONS[way](f), ways, fun)


@functools.cache
def expected_derivatives(forces, steps, order):
    end = midpoint_by_iteration(POTENTIALS[forces], steps)
    return np.asarray(jax.jit(nested(end, "f" * order))(POINT))


POINT = np.array([0.6, 0.4, 1.2])
SECOND = ["ff", "fr", "rf", "rr"]
THIRD = [way + ways for way in "fr" for ways in SECOND]


@pytest.mark.parametrize(
    ("forces", "kind", "ways"),
    tiered(
        [
            *(("cosine", kind, w) for kind in WAYS for w in THIRD),
            *(("cosine", "a run", w) for w in ["f", "r", *SECOND]),
            *(("all functions", kind, w) for kind in WAYS for w in ["fr", "rf"]),
            ("all functions", "one step", "fff"),
        ],
        fast=[],
    ),
)
def test_derivatives_of_every_order_in_every_nesting(forces, kind, ways):
    expected = expected_derivatives(forces, 1 if kind == "one step" else STEPS, len(ways))
    fun = functools.partial(WAYS[kind], SYSTEMS[forces])
    found = jax.jit(nested(fun, ways))(jnp.asarray(POINT))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    assert np.abs(expected).max() > 0.01, "nothing to be seen"


@pytest.mark.slow
@pytest.mark.parametrize("ways", SECOND)
def test_second_derivatives_of_many_degrees_of_freedom(ways):
    """Where linear equations are solved by iterations, which have no derivative of their own."""
    chain = da.System(
        H=lambda q, p, c: jnp.sum(p**2) / 2 - c * jnp.sum(jnp.cos(q - jnp.roll(q, 1))),
        dim=20,
        params=jnp.asarray(1.0),
    )
    shape = np.cos(np.arange(20.0))

    def end(x):
        def body(z, _):
            return da.step(chain.with_params(x[1]), da.midpoint(), *z, 0.1, [])[:2], None

        (q, p), _ = jax.lax.scan(body, (x[0] * shape, jnp.full(20, 0.3)), None, length=2)
        return q[0] + 2 * p[3]

    point, small = jnp.array([0.7, 1.1]), 1e-5
    slope = jax.jit(jax.jacfwd(end))
    differences = [(slope(point + d) - slope(point - d)) / (2 * small) for d in small * np.eye(2)]
    found = jax.jit(nested(end, ways))(point)
    np.testing.assert_allclose(found, np.stack(differences), rtol=1e-7, atol=1e-8)


@pytest.mark.slow
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
    ways = {
        "on_failure": "raise",
        "checkpoint": tmp_path / "run.ckpt",
        "workers": 2,
        "engine": "XLA",
    }
    for options in ({name: value} for name, value in ways.items()):
        with pytest.raises(ValueError, match="cannot be had inside jit"):
            jax.jit(lambda beta, o=options: simulate({"beta": beta}, **o))(0.5)
    with pytest.raises(TypeError, match="dt cannot be traced"):
        jax.jit(lambda dt: simulate({"beta": 0.5}, dt=dt))(0.1)
