"""The methods as solvers of diffrax, driven by its own machinery."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from tiers import tiered

diffrax = pytest.importorskip("diffrax")

from dalembert import diffrax as dd  # noqa: E402

KUBO, TWO_NOISE = da.systems.damped_kubo(), da.systems.two_noise()
SOLVERS = {
    "midpoint": dd.Midpoint,
    "stormer_verlet": dd.StormerVerlet,
    "dirk": dd.Dirk,
    "heun": dd.Heun,
    "r2": dd.R2,
    "e1": dd.E1,
}


@pytest.fixture(autouse=True)
def ordinary_promotion():
    """diffrax and equinox rely on what the other tests forbid."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    jax.config.update("jax_numpy_rank_promotion", "allow")


def tree(system, seed=0, t1=1.0, tol=2.0**-12):
    return diffrax.VirtualBrownianTree(
        0.0, t1, tol=tol, shape=(system.noises,), key=jax.random.key(seed),
        levy_area=diffrax.SpaceTimeLevyArea,
    )  # fmt: skip


def solve(system, solver, path, dt, t1=1.0, args=None, y0=None, **options):
    y0 = (jnp.full(system.dim, 0.8), jnp.full(system.dim, 0.3)) if y0 is None else y0
    return diffrax.diffeqsolve(
        dd.terms(system, path), solver, 0.0, t1, dt0=dt, y0=y0, args=args, **options
    )


@pytest.mark.parametrize("name", tiered(SOLVERS, fast=["heun"]))
def test_a_solution_is_made_of_our_steps(name):
    path, dt, steps = tree(KUBO), 1 / 4, 4
    found = solve(KUBO, SOLVERS[name](), path, dt, saveat=diffrax.SaveAt(steps=True))
    q, p = np.array([0.8]), np.array([0.3])
    between = jax.jit(lambda t0, t1: path.evaluate(t0, t1, use_levy=True))
    for k in range(steps):
        levy = between(k * dt, (k + 1) * dt)
        area = dt * (levy.H + levy.W / 2)
        q, p, _ = da.step(KUBO, da.METHODS[name](), q, p, dt, da.Increments(levy.W, area))
        np.testing.assert_allclose(found.ys[0][k], q, rtol=1e-13)
        np.testing.assert_allclose(found.ys[1][k], p, rtol=1e-13)


@pytest.mark.slow
def test_switching_one_line_leaves_the_solution_the_same():
    path = tree(TWO_NOISE)
    ours = solve(TWO_NOISE, dd.Midpoint(), path, 2.0**-10)
    theirs = solve(TWO_NOISE, diffrax.Heun(), path, 2.0**-10)
    far = solve(TWO_NOISE, diffrax.Heun(), tree(TWO_NOISE, seed=1), 2.0**-10)
    distance = max(float(jnp.abs(a - b).max()) for a, b in zip(ours.ys, theirs.ys, strict=True))
    assert distance < 0.02
    assert any(float(jnp.abs(a - b).max()) > 0.1 for a, b in zip(ours.ys, far.ys, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stormer_verlet", "midpoint"])
def test_strong_order_one_along_their_brownian_paths(name):
    def error(seed, dt):
        path = tree(KUBO, seed)
        q, p = solve(KUBO, SOLVERS[name](), path, dt).ys
        fine = solve(KUBO, diffrax.Heun(), path, 2.0**-11).ys
        return jnp.hypot(q - fine[0], p - fine[1])[0]

    steps = [2.0**-4, 2.0**-6]
    errors = [float(jnp.mean(jax.vmap(lambda s, h=h: error(s, h))(jnp.arange(50)))) for h in steps]
    assert 0.75 < np.log2(errors[0] / errors[1]) / 2 < 1.25, errors


PUSHED = da.System(H=lambda q, p: p @ p / 2, h=[lambda q, p: -0.7 * q[0]], dim=1)
"""dq = p dt, dp = 0.7 dW: of second order in dt with ∫W dt, which E1 reads, and symmetric."""


@pytest.mark.slow
@pytest.mark.parametrize("name", tiered(SOLVERS, fast=["midpoint"]))
def test_back_in_time_along_the_same_path(name):
    """There and back again; a step that goes forward in a solution that goes back does not."""
    path, y0 = tree(PUSHED), (np.array([0.8]), np.array([0.3]))
    there = solve(PUSHED, SOLVERS[name](), path, 1 / 8, y0=y0)
    y1 = tuple(y[-1] for y in there.ys)
    assert abs(y1[0] - y0[0]) > 0.1
    given = dd.terms(PUSHED, path), SOLVERS[name](), 1.0, 0.0
    back = diffrax.diffeqsolve(*given, dt0=-1 / 8, y0=y1)
    for found, wanted in zip(back.ys, y0, strict=True):
        np.testing.assert_allclose(found[-1], wanted, atol=1e-12)


@pytest.mark.slow
def test_saving_dense_output_and_progress_of_diffrax():
    path, times = tree(KUBO), jnp.linspace(0.0, 1.0, 5)
    save = diffrax.SaveAt(ts=times, dense=True)
    found = solve(KUBO, dd.Heun(), path, 1 / 16, saveat=save)
    assert found.ys[0].shape == (5, 1) and found.stats["num_steps"] == 16
    q, p = found.evaluate(0.5)
    np.testing.assert_allclose((q, p), (found.ys[0][2], found.ys[1][2]), rtol=1e-12)


@pytest.mark.slow
def test_parameters_as_arguments_and_derivatives_with_respect_to_them():
    def energy(nu):
        args = {**KUBO.params, "nu": nu}
        q, p = solve(KUBO, dd.Midpoint(), tree(KUBO), 1 / 16, args=args).ys
        return (q[-1, 0] ** 2 + p[-1, 0] ** 2) / 2

    slope = jax.grad(energy)(0.1)
    difference = (energy(0.1 + 1e-5) - energy(0.1 - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, difference, rtol=1e-6)
    assert slope < -0.05


@pytest.mark.slow
def test_a_stage_equation_without_a_solution_is_reported():
    blow_up = da.System(H=lambda q, p: p[0] ** 2 / 2 - q[0] ** 3, h=[lambda q, p: q[0]], dim=1)
    start = (jnp.array([4.0]), jnp.array([4.0]))
    found = solve(blow_up, dd.Midpoint(), tree(blow_up), 0.5, y0=start, throw=False)
    assert found.result == diffrax.RESULTS.nonlinear_divergence


def test_orders_for_one_and_for_several_noises():
    assert dd.Midpoint().strong_order(dd.terms(KUBO, tree(KUBO))) == 1
    assert dd.Midpoint().strong_order(dd.terms(TWO_NOISE, tree(TWO_NOISE))) == 0.5


def test_the_order_is_that_of_the_method_on_the_system():
    additive = da.systems.van_der_pol()
    terms = dd.terms(additive, tree(additive))
    accurate = dd.MethodSolver(da.additive_midpoint())
    assert accurate.strong_order(terms) == 2
    assert jax.jit(lambda x: x * accurate.strong_order(terms))(3.0) == 6
    assert dd.Midpoint().strong_order(terms) == 1
    with pytest.raises(ValueError, match="made for systems with additive noise"):
        accurate.strong_order(dd.terms(KUBO, tree(KUBO)))


def test_areas_that_diffrax_does_not_give_are_asked_for_in_words():
    solver = dd.MethodSolver(da.bracket_midpoint())
    with pytest.raises(ValueError, match="area"):
        solve(TWO_NOISE, solver, tree(TWO_NOISE), 0.5)


def test_what_cannot_work_says_why():
    with pytest.raises(TypeError, match="no mean-square method"):
        dd.MethodSolver(da.srkw2())
    with pytest.raises(ValueError, match=r"needs \(1,\)"):
        dd.terms(KUBO, tree(TWO_NOISE))
    with pytest.raises(TypeError, match=r"must be a da\.System"):
        dd.terms("kubo", tree(KUBO))
    plain = diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, args: y), diffrax.ControlTerm(lambda t, y, args: y, tree(KUBO))
    )
    with pytest.raises(TypeError, match="build the terms by"):
        diffrax.diffeqsolve(plain, dd.Midpoint(), 0.0, 1.0, 0.1, (jnp.ones(1), jnp.ones(1)))
    path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=0.01, shape=(1,), key=jax.random.key(0))
    with pytest.raises(ValueError, match="SpaceTimeLevyArea"):
        solve(KUBO, dd.E1(), path, 0.1)


@pytest.mark.parametrize("shape", [(2, 2), (40, 2)], ids=str)
@pytest.mark.slow
def test_states_and_noises_have_the_shapes_of_the_system(shape):
    """Of few noises there is a matrix, of many a function; both are what our own solver takes."""
    system = da.systems.langevin(dim=shape)
    path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=shape, key=jax.random.key(0))
    y0 = (jnp.full(shape, 0.8), jnp.full(shape, 0.3))
    ours, theirs = (
        solve(system, solver, path, 0.01, y0=y0).ys[0][-1] for solver in (dd.Heun(), diffrax.Heun())
    )
    assert ours.shape == shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    with pytest.raises(ValueError, match=r"needs \(\d+, 2\), one component per Wiener process"):
        dd.terms(system, diffrax.VirtualBrownianTree(0.0, 1.0, 1e-3, (3,), jax.random.key(0)))


@pytest.mark.slow
def test_a_driven_system_knows_the_time():
    """The same numbers as steps by hand, and nearly those of a solver of diffrax."""

    def H(q, p, t):
        return p[0] ** 2 / 2 + q[0] ** 2 / 2 - q[0] * jnp.cos(6 * t)

    system = da.System(H=H, h=[lambda q, p, t: -0.3 * q[0]], dim=1, time=True)
    path, dt = tree(system), 1 / 16
    assert dd.Midpoint().strong_order(dd.terms(system, path)) == 1
    ours = solve(system, dd.Midpoint(), path, dt).ys
    q, p = np.array([0.8]), np.array([0.3])
    between = jax.jit(lambda t0, t1: path.evaluate(t0, t1))
    for k in range(16):
        dW = between(k * dt, (k + 1) * dt)
        q, p, _ = da.step(system, da.midpoint(), q, p, dt, dW, t=k * dt)
    np.testing.assert_allclose([ours[0][-1], ours[1][-1]], [q, p], rtol=0, atol=1e-12)
    ours, theirs = (solve(system, s, path, 2.0**-10).ys for s in (dd.Midpoint(), diffrax.Heun()))
    np.testing.assert_allclose([x[-1] for x in ours], [x[-1] for x in theirs], rtol=0, atol=1e-3)
    # And back again, where diffrax counts time the other way.
    given = dd.terms(system, path), dd.Midpoint(), 1.0, 0.0
    back = diffrax.diffeqsolve(*given, dt0=-dt, y0=(jnp.asarray(q), jnp.asarray(p))).ys
    np.testing.assert_allclose([x[-1] for x in back], [[0.8], [0.3]], rtol=0, atol=1e-12)
