"""Steps stay on the sheet of g = 0 that a growing step leads to, or are reported."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.noise import Increments
from dalembert.stepping import equal_blocks
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.stepper import make_stepper


def torus(q):
    return (jnp.sqrt(q[0] ** 2 + q[1] ** 2) - 1) ** 2 + q[2] ** 2 - 0.16


def nested(q):
    """Spheres around each other."""
    return jnp.sin(3 * (q @ q - 1)) / 3


def schwarz(q):
    """Schwarz' minimal surface, nearly."""
    return jnp.sum(jnp.cos(q))


def on(phi, dim=3, **noise):
    def g(q):
        return jnp.stack([phi(q)])

    return da.System(lambda q, p: p @ p / 2, dim=dim, constraints=g, **noise)


def starts(phi, dim, count, far):
    """Positions on phi = 0 at most so far away, and tangent momenta."""
    rng = np.random.default_rng(0)
    q, p = rng.uniform(-far, far, (count, dim)), rng.standard_normal((count, dim))
    with jax.enable_x64(True):
        both = jax.jit(jax.vmap(jax.value_and_grad(phi)))
        for _ in range(60):
            value, slope = map(np.asarray, both(q))
            q = q - slope * (value / np.sum(slope**2, axis=1))[:, None]
        slope = np.asarray(both(q)[1])
    p = p - slope * (np.sum(slope * p, axis=1) / np.sum(slope**2, axis=1))[:, None]
    fine = np.max(np.abs(q), axis=1) < 2 * far
    return q[fine], p[fine]


def continued(phi, q, v, shares=1000):
    """Where steps by v that grow from nothing end, and whether they do: one Newton's method each.

    Beside it the end of Newton's method for the whole step, if normals at its ends agree.
    """

    def newton(u, n, x):
        for _ in range(6):
            value, slope = jax.value_and_grad(phi)(x - u * n)
            u = u + value / (slope @ n)
        return u, (jnp.abs(phi(x - u * n)) < 1e-12) & (jax.grad(phi)(x - u * n) @ n > 0)

    def one(q, v):
        n = jax.grad(phi)(q)

        def grow(now, share):
            u, fine = now
            new, found = newton(u, n, q + share * v)
            fine = fine & found & (jnp.abs(new - u) * jnp.linalg.norm(n) < 0.05)
            return (jnp.where(fine, new, u), fine), None

        growing = (jnp.zeros(()), jnp.array(True)), jnp.arange(1, shares + 1) / shares
        (u, fine), _ = jax.lax.scan(grow, *growing)
        at_once, is_solved = newton(newton(jnp.zeros(()), n, q + v)[0], n, q + v)
        return q + v - u * n, fine, q + v - at_once * n, is_solved

    with jax.enable_x64(True):
        return map(np.array, jax.jit(jax.vmap(one))(q, v))


CASES = [
    pytest.param(torus, 3, 0.4, 1.4, 20, id="torus"),
    pytest.param(nested, 2, 0.3, 1.4, 30, id="circles"),
    pytest.param(nested, 3, 0.3, 1.4, 100, id="spheres"),
    pytest.param(schwarz, 3, 1.0, np.pi, 100, id="schwarz"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("phi", "dim", "dt", "far", "many"), CASES)
def test_large_steps_end_where_growing_ones_do_or_are_reported(phi, dim, dt, far, many):
    """As in 1000 shares; many do not, if only ends are looked at."""
    q, p = starts(phi, dim, 4000, far)
    exact, exists, at_once, is_solved = continued(phi, q, dt * p)
    system = on(phi, dim)
    with jax.enable_x64(True):
        step = jax.vmap(lambda q, p: da.step(system, da.rattle(), q, p, dt, jnp.zeros(0)))
        found, _, info = map(np.asarray, jax.tree.leaves(jax.jit(step)(q, p))[:3])

    def is_right(x):
        return exists & (np.max(np.abs(x - exact), axis=1) < 1e-6)

    # Where multipliers nearly turn back, 1000 shares are too few.
    (doubtful,) = np.nonzero(info & ~is_right(found))
    assert len(doubtful) <= 4
    exact[doubtful], exists[doubtful], *_ = continued(phi, q[doubtful], dt * p[doubtful], 40_000)
    assert not np.any(info & ~is_right(found))
    assert np.count_nonzero(exists & ~info) <= 4
    # Newton's method for the whole step, with normals at its ends that agree: a control.
    assert np.count_nonzero(is_solved & ~is_right(at_once)) > many


def crossing(q):
    """Two lines that meet."""
    return (q[1] - 2 * q[0]) * (q[1] + 2 * q[0])


def lemniscate(q):
    return (q @ q) ** 2 - 2 * (q[0] ** 2 - q[1] ** 2)


def cusp(q):
    return q[1] ** 2 - q[0] ** 3


def hyperbola(q):
    return q[0] ** 2 - 4 * q[1] ** 2 - 1


def touching(q):
    """Two spheres with a point in common."""
    one, other = ((q[0] - x) ** 2 + q[1] ** 2 + q[2] ** 2 - 1 for x in (1, -1))
    return one * other


def near_singular(phi, dim, count):
    """Positions on phi = 0 near the origin, but not in it, and tangent momenta."""
    q, p = starts(phi, dim, 4 * count, 0.6)
    fine = (np.linalg.norm(q, axis=1) > 0.02) & np.isfinite(p).all(axis=1)
    return q[fine][:count], p[fine][:count]


SIDES = [
    pytest.param(crossing, 2, 0.3, [0, 1], 40, id="crossing"),
    pytest.param(lemniscate, 2, 0.2, [0, 1], 0, id="lemniscate"),
    pytest.param(cusp, 2, 0.2, [1], 0, id="cusp"),
    pytest.param(hyperbola, 2, 2.0, [0], 0, id="hyperbola"),
    pytest.param(touching, 3, 0.3, [0], 0, id="touching"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("phi", "dim", "dt", "kept", "many"), SIDES)
def test_no_step_with_kicks_goes_over_a_singular_point_or_a_gap(phi, dim, dt, kept, many):
    """It would change the sign of a coordinate, and never does in 2000 steps."""
    count = 2000
    if phi is hyperbola:
        y, speed = np.random.default_rng(1).standard_normal((2, count))
        q = np.stack([np.sqrt(1 + 4 * y**2) * (-1) ** np.arange(count), y], axis=1)
        p = speed[:, None] * q[:, ::-1] * np.array([4.0, 1.0])
    else:
        q, p = near_singular(phi, dim, count)
    kicks = np.sqrt(dt) * np.random.default_rng(2).standard_normal(q.shape)
    system = on(phi, dim, h=lambda q, p, w: -(q @ w), noises=dim)
    with jax.enable_x64(True):
        step = jax.vmap(lambda q, p, dW: da.step(system, da.rattle(), q, p, dt, dW))
        found, _, info = map(np.asarray, jax.tree.leaves(jax.jit(step)(q, p, kicks))[:3])
        *_, at_once, is_solved = continued(phi, q, dt * (p + kicks / 2), 1)

    def stays(x):
        return np.all(np.sign(x[:, kept]) == np.sign(q[:, kept]), axis=1)

    assert not np.any(info & ~stays(found))
    # Those that are refused are few where the step is small beside the way to the origin.
    is_small = np.linalg.norm(dt * (p + kicks / 2), axis=1) < 0.3 * np.linalg.norm(q, axis=1)
    assert np.mean(info[is_small]) > 0.95 and np.count_nonzero(is_small) > 30
    # Newton's method for the whole step, with normals at its ends that agree: a control.
    assert np.count_nonzero(is_solved & ~stays(at_once)) > many


HOLE = on(torus)
OVER_HOLE = (
    [-1.3183411177746136, -0.046063166239856276, 0.241134993330991],
    [1.225336534322109, -0.5284186282649709, 1.596340100188114],
)


def fast_steps(stepper, solver, q, p, dt):
    """Ends of fast steps, and whether they are accepted."""

    def step(q, p, dt):
        state = stepper.enter(q), stepper.enter(p)
        q, _, info = stepper.advance(*state, dt, Increments(dW=jnp.zeros(0)), None, solver)
        return stepper.leave(q), info.converged

    with jax.enable_x64(True):
        return map(np.asarray, jax.jit(jax.vmap(step))(*map(jnp.asarray, (q, p, dt))))


@pytest.mark.slow
def test_a_fast_step_over_a_hole_is_not_accepted():
    """To the other side of a torus; a quarter of it is."""
    q, p = da.project(HOLE, *OVER_HOLE)
    stepper, dts = make_stepper(HOLE, da.rattle(), np.float64), np.array([0.1, 0.4])
    _, is_fine = fast_steps(stepper, Solver.LOOP, np.tile(q, (2, 1)), np.tile(p, (2, 1)), dts)
    assert stepper.is_scalar and is_fine.tolist() == [True, False]


@pytest.mark.slow
def test_a_step_over_a_hole_is_reported():
    start = da.project(HOLE, *OVER_HOLE)
    for dt, is_fine in ((0.2, True), (0.35, False), (0.4, False)):
        *_, info = da.step(HOLE, da.rattle(), *start, dt, [])
        assert bool(info.converged) == is_fine


@pytest.mark.slow
@pytest.mark.parametrize("name", ["weak_rattle", "projected_midpoint", "g_baoab"])
def test_other_methods_report_it_as_well(name):
    system, method = HOLE, da.METHODS[name]()
    if name == "g_baoab":
        sphere, method = da.systems.brownian_sphere(field=0.0, gamma=1e-9), da.g_baoab(1)
        system = replace(sphere, constraints=lambda q, params: jnp.stack([torus(q)]))
    start = da.project(HOLE, *OVER_HOLE)
    drifts = 2 if name == "g_baoab" else 1
    for dt, is_fine in ((0.2, True), (0.4, False)):
        *_, info = da.step(system, method, *start, drifts * dt, np.zeros(system.noises))
        assert bool(info.converged) == is_fine


def test_where_steps_are_looked_at_in_the_middle():
    """Not where g is quadratic."""
    systems = da.systems.brownian_sphere(), da.systems.jointed_chain(3), on(schwarz)
    found = [make_stepper(s, da.rattle(), np.float64).manifold.is_quadratic for s in systems]
    assert found == [True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize(("phi", "dt"), [(torus, 0.4), (schwarz, 1.0)])
def test_no_fast_way_accepts_another_sheet(phi, dt, monkeypatch):
    """Scalars, arrays and equal blocks, of which the second stands still."""
    monkeypatch.setattr(equal_blocks, "FEWEST", 2)
    q, p = starts(phi, 3, 2000, 1.4)
    exact, exists, at_once, is_solved = continued(phi, q, dt * p)
    two = da.System(
        lambda q, p: jnp.sum(p**2) / 2, dim=(2, 3), constraints=lambda q: jax.vmap(phi)(q)
    )
    still = np.concatenate([q, np.tile(q[:1], (len(q), 1))], axis=1), np.pad(p, ((0, 0), (0, 3)))
    ways = (
        (make_stepper(on(phi), da.rattle(), np.float64), Solver.LOOP, q, p),
        (make_stepper(on(phi), da.rattle(), np.float64, most=0), Solver.FAST, q, p),
        (make_stepper(two, da.rattle(), np.float64, most=0), Solver.FAST, *still),
        (make_stepper(two, da.rattle(), np.float64, False, most=0), Solver.FAST, *still),
    )
    assert [stepper.is_scalar for stepper, *_ in ways] == [True, False, False, False]
    assert [stepper.equal is not None for stepper, *_ in ways] == [False, False, True, False]
    for way in ways:
        found, is_accepted = fast_steps(*way, np.full(len(q), dt))
        is_right = exists & (np.max(np.abs(found[:, :3] - exact), axis=1) < 1e-6)
        assert not np.any(is_accepted & ~is_right)
        # Few of those that exist have to grow in shares, at steps longer than the tube is wide.
        assert np.count_nonzero(exists & ~is_accepted) < 0.15 * np.count_nonzero(exists)
    is_right = exists & (np.max(np.abs(at_once - exact), axis=1) < 1e-6)
    assert np.count_nonzero(is_solved & ~is_right) > 10


@pytest.mark.slow
def test_steps_that_are_followed_have_derivatives():
    """One that Newton's method alone takes to another circle."""
    q, p = starts(nested, 2, 4000, 1.4)
    exact, exists, at_once, is_solved = continued(nested, q, 0.3 * p)
    apart = np.max(np.abs(at_once - exact), axis=1) > 1e-3
    chosen = int(np.flatnonzero(exists & is_solved & apart)[0])
    q, p, system = q[chosen], p[chosen], on(nested, 2)

    def end(scale):
        found, _, info = da.step(system, da.rattle(), q, scale * p, 0.3, jnp.zeros(0))
        return jnp.where(info.converged, found, jnp.nan)

    with jax.enable_x64(True):
        value, slope = jax.jvp(end, (1.0,), (1.0,))
        around = [end(1.0 + h) for h in (-1e-5, 1e-5)]
    np.testing.assert_allclose(value, exact[chosen], rtol=0, atol=1e-9)
    np.testing.assert_allclose(slope, (around[1] - around[0]) / 2e-5, rtol=1e-5)
