"""Many degrees of freedom: shapes, noises given by one function, equations without a matrix."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import compiled
from dalembert.ensemble.rounds import march_in_rounds
from dalembert.noise import Increments
from dalembert.stepping import many
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.locality import is_entrywise, keeps_particles
from dalembert.stepping.stepper import make_stepper
from dalembert.stepping.sweeps import BLIND_PAIRS, swept
from dalembert.traces import equations, live, name_of
from tiers import tiered

Z = jax.ShapeDtypeStruct((12,), np.float64)
RATES = np.arange(1.0, 5.0)[:, None]

ENTRYWISE = {
    "linear": lambda x: -0.5 * x,
    "by particle": lambda x: (x.reshape(4, 3) * RATES).reshape(12),
    "nonlinear": lambda x: jnp.tanh(x) ** 3 + 2.0,
    "where": lambda x: jnp.where(x > 0.0, x, 2.0 * x),
    "jitted": jax.jit(lambda x: 3.0 * x),
    "constant": lambda x: jnp.ones(12),
    "the only row": lambda x: jax.lax.slice(x.reshape(1, 12), (0, 0), (1, 12)).reshape(12),
}
MIXED = {
    "reversed": lambda x: x[::-1],
    "rolled": lambda x: jnp.roll(x, 1),
    "transposed": lambda x: x.reshape(4, 3).T.reshape(12),
    "mean": lambda x: x - jnp.mean(x),
    "one for all": lambda x: x + x[0],
    "sorted": jnp.sort,
    "half of it, twice": lambda x: jnp.concatenate([x[:6], x[:6]]),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y * y[0], x),
}


@pytest.mark.parametrize("name", ENTRYWISE)
def test_functions_of_each_entry(name):
    assert is_entrywise(ENTRYWISE[name], Z)


@pytest.mark.parametrize("name", MIXED)
def test_functions_that_mix_entries(name):
    assert not is_entrywise(MIXED[name], Z)


FIELD = np.array([[1.0, 0.3, 0.0], [-0.3, 1.0, 0.2], [0.1, 0.0, 1.0]])
EACH = np.arange(36.0).reshape(4, 3, 3)
BY_PARTICLE = {
    "entries": lambda x: x**2,
    "one matrix": lambda x: (x.reshape(4, 3) @ FIELD).reshape(12),
    "one matrix, from the left": lambda x: (FIELD @ x.reshape(4, 3).T).T.reshape(12),
    "a matrix each": lambda x: jnp.einsum("nij,nj->ni", EACH, x.reshape(4, 3)).reshape(12),
    "a cross product": lambda x: jnp.cross(x.reshape(4, 3), FIELD[0]).reshape(12),
    "components": lambda x: (x.reshape(4, 3)[:, :1] * x.reshape(4, 3)).reshape(12),
    "size": lambda x: (x.reshape(4, 3) * jnp.sum(x.reshape(4, 3) ** 2, 1)[:, None]).reshape(12),
    "products with itself": lambda x: jnp.einsum(
        "ni,nj->ni", x.reshape(4, 3), x.reshape(4, 3)
    ).reshape(12),
    "stacked": lambda x: jnp.stack([-x.reshape(4, 3)[:, i] for i in (1, 0, 2)], 1).reshape(12),
    "stacked and turned": lambda x: jnp.stack([*x.reshape(4, 3).T]).T.reshape(12),
    "each mapped": lambda x: jax.vmap(lambda v: jnp.tanh(FIELD @ v))(x.reshape(4, 3)).reshape(12),
}
BETWEEN_PARTICLES = MIXED | {
    "distances": lambda x: (x.reshape(4, 3)[:, None] - x.reshape(4, 3)[None]).sum(0).reshape(12),
    "other particles": lambda x: (EACH[:, 0, :1].T @ x.reshape(4, 3) + x.reshape(4, 3)).reshape(12),
    "another order": lambda x: x.reshape(3, 4).T.reshape(12),
    "stacked": lambda x: jnp.stack([*x.reshape(4, 3).T]).reshape(12),
    "a sum": lambda x: (x.reshape(4, 3) + x.reshape(4, 3).sum(0)[None]).reshape(12),
    "neighbours": lambda x: jnp.roll(x, 3),
    "a part": lambda x: jnp.concatenate([x[3:6], x[:3], x[6:]]),
}


@pytest.mark.parametrize("name", BY_PARTICLE)
def test_functions_of_each_particle(name):
    assert keeps_particles(jax.make_jaxpr(BY_PARTICLE[name])(Z), 4)


@pytest.mark.parametrize("name", BETWEEN_PARTICLES)
def test_functions_that_mix_particles(name):
    assert not keeps_particles(jax.make_jaxpr(BETWEEN_PARTICLES[name])(Z), 4)


@pytest.mark.slow
def test_what_is_said_of_particles_is_true_of_their_jacobians():
    x = jnp.asarray(np.random.default_rng(1).standard_normal(12))
    outside = np.kron(np.eye(4), np.ones((3, 3))) == 0
    for fun in BY_PARTICLE.values():
        assert not np.any(jax.jacfwd(fun)(x)[outside])
    for name in set(BETWEEN_PARTICLES) - {"sorted"}:
        assert np.any(jax.jacfwd(BETWEEN_PARTICLES[name])(x)[outside]), name


def solve(residual, start, width=0, affine=False):
    def worst(x):
        return jnp.max(x)[None]

    def closely(r, u):
        return jnp.max(jnp.abs(r)) / jnp.max(jnp.abs(u) + jnp.abs(start))

    return many.solve(residual, worst, closely, start, start, width, affine)


START = jnp.linspace(0.5, 1.5, 40)
TURN = np.array([[1.0, 3.0], [-3.0, 1.0]])


@pytest.mark.parametrize(
    ("residual", "width", "affine", "most"),
    [
        (lambda u: 3.0 * u - START, 1, True, 1),
        (lambda u: u + 0.3 * u**3 - START, 1, False, 8),
        (lambda u: (u.reshape(-1, 2) @ TURN).reshape(-1) - START, 2, True, 1),
        (lambda u: (u.reshape(-1, 2) @ TURN).reshape(-1) + 0.1 * u**3 - START, 2, False, 8),
        (lambda u: u + 1e-3 * jnp.roll(u, 1) ** 3 - START, 0, False, 10),
        (lambda u: u + 4.0 * (2.0 * u - jnp.roll(u, 1) - jnp.roll(u, -1)) - START, 0, True, 72),
    ],
    ids=["a quotient", "entry by entry", "2 x 2", "pairs", "sweeps", "stiff"],
)
def test_equations_without_a_matrix(residual, width, affine, most):
    found, report = solve(residual, START, width, affine)
    assert np.max(np.abs(residual(found))) < 1e-13
    assert report.residual < 1e-14 and report.iterations <= most


@pytest.mark.parametrize(
    "method",
    [da.stormer_verlet(), pytest.param(da.midpoint(), marks=pytest.mark.slow)],
    ids=lambda m: m.name,
)
def test_particles_in_a_magnetic_field(method):
    """A force v × B mixes the components of a particle, and couples no particles."""
    turn = 2.0 * np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    system = da.System(
        H=lambda q, p: jnp.sum(p**2) / 2 + jnp.sum(q**4) / 4,
        F=lambda q, p: p @ turn - 0.1 * p,
        f=lambda q, p, w: 0.3 * w,
        dim=(5, 3),
        noises=(5, 3),
    )
    q, p = np.random.default_rng(2).standard_normal((2, 5, 3))
    dW = 0.3 * np.random.default_rng(3).standard_normal((5, 3))
    new_q, new_p, info = da.step(system, method, q, p, 0.1, dW)
    is_direct = method.name == "stormer_verlet"
    assert ("particle by particle" in str(da.explain(system, method))) == is_direct
    assert info.converged and (info.iterations == 1 or not is_direct)
    alone = da.System(
        H=lambda q, p: jnp.sum(p**2) / 2 + jnp.sum(q**4) / 4,
        F=lambda q, p: p @ turn - 0.1 * p,
        f=lambda q, p, w: 0.3 * w,
        dim=3,
        noises=3,
    )
    for k in range(5):
        one_q, one_p, _ = da.step(alone, method, q[k], p[k], 0.1, dW[k])
        np.testing.assert_allclose(new_q[k], one_q, rtol=1e-13)
        np.testing.assert_allclose(new_p[k], one_p, rtol=1e-13)


@pytest.mark.parametrize(
    ("dt", "most"),
    [(0.05, 12), pytest.param(0.3, None, marks=pytest.mark.slow)],
    ids=["usual", "stiffer"],
)
def test_forces_on_a_chain_are_evaluated_at_most_twelve_times(dt, most):
    """Midpoint on a chain of springs k = β = 1 with friction, at temperature one."""
    chain = da.systems.fput(100, 0.0, 1.0, gamma=1.0, temperature=1.0)
    q, p, xi = np.random.default_rng(4).standard_normal((3, 100))
    q, calls = 0.6 * q, []

    def residual(u):
        calls.append(u)
        slope = jax.grad(chain.H)(q + dt / 2 * u, u, chain.params)
        return u - (p - dt / 2 * (slope + u) + np.sqrt(dt / 2) * xi)

    with jax.disable_jit():
        found, report = solve(residual, jnp.asarray(p))
    count, eps = len(calls), np.finfo(float).eps
    assert np.max(np.abs(residual(found))) < 16 * eps * np.max(np.abs(found))
    assert report.residual < 16 * eps
    # The control: larger steps need more.
    assert count <= most if most else count > 12


def test_equations_without_a_solution_are_reported():
    found, report = solve(lambda u: u**2 + 1.0, START)
    assert report.residual > 0.1
    worst = np.max(np.abs(np.asarray(found) ** 2 + 1)) / np.max(np.abs(found) + START)
    assert report.residual == pytest.approx(worst)


@pytest.mark.slow
def test_sweeps_are_written_out_on_a_gpu_and_a_loop_on_a_cpu():
    def solve(guess):
        def residual(u):
            return u - guess - jnp.sin(u) / 100

        return swept(residual, lambda r, u: jnp.max(jnp.abs(r)), None, guess, True)

    def evaluations(platform):
        traced = jax.jit(jax.vmap(solve)).trace(np.ones((3, 4)))
        return traced.lower(lowering_platforms=(platform,)).as_text().count("stablehlo.sine")

    blind = 2 * BLIND_PAIRS[np.dtype(np.float64)]
    assert evaluations("cuda") - evaluations("cpu") == blind - 2


@pytest.mark.slow
def test_every_path_is_solved_alone():
    """The same sweeps alone as beside a path that takes many more."""

    def one(stiffness):
        return solve(lambda u: u + stiffness * jnp.roll(u, 1) - START, START)

    alone, report = jax.jit(one)(1e-3)
    both, reports = jax.jit(jax.vmap(one))(jnp.array([1e-3, 0.3]))
    np.testing.assert_allclose(both[0], alone, rtol=1e-15)
    assert reports.iterations[0] == report.iterations < reports.iterations[1]
    assert np.all(reports.residual < 1e-14)


# --- shapes --------------------------------------------------------------------------------------


def coupled(q):
    return jnp.sum(q**2) / 2 + jnp.sum(q[:, 0] * q[:, 1]) / 2


PARTICLES = da.System(
    H=lambda q, p: jnp.sum(p**2) / 2 + coupled(q),
    F=lambda q, p: -0.5 * p,
    h=[lambda q, p: -0.3 * jnp.sum(q)],
    dim=(4, 3),
    name="particles",
)
FLAT = da.System(
    H=lambda q, p: jnp.sum(p**2) / 2 + coupled(q.reshape(4, 3)),
    F=lambda q, p: -0.5 * p,
    h=[lambda q, p: -0.3 * jnp.sum(q)],
    dim=12,
    name="flat",
)
Q0 = np.linspace(-1, 1, 12).reshape(4, 3)


@pytest.mark.parametrize("name", tiered(["midpoint", "heun"], fast=["heun"]))
def test_states_have_the_shape_of_the_system(name):
    method = da.METHODS[name]()
    options = {"dt": 0.1, "t_end": 0.5, "paths": 3, "keep": "all", "progress": False}
    observe = {"first": lambda q, p: q[0]}
    run = da.simulate(PARTICLES, method, (Q0, 0 * Q0), observe=observe, **options)
    flat = da.simulate(FLAT, method, (Q0.ravel(), 0 * Q0.ravel()), **options)
    assert run.q.shape == (6, 3, 4, 3) and run.mean["first"].shape == (6, 3)
    np.testing.assert_array_equal(run.q.reshape(flat.q.shape), flat.q)
    assert run.to_xarray()["q"].dims == ("time", "path", "component_0", "component_1")
    q, p, info = da.step(PARTICLES, method, Q0, 0 * Q0, 0.1, [0.2])
    assert q.shape == p.shape == (4, 3) and info.converged
    assert PARTICLES.drift(Q0, 0 * Q0)[1].shape == (4, 3)
    assert (PARTICLES.dim, PARTICLES.shape, PARTICLES.noises) == (12, (4, 3), 1)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"q0 must have shape \(4, 3\)"):
        da.simulate(PARTICLES, da.midpoint(), (Q0.ravel(), Q0.ravel()), dt=0.1, t_end=1.0)
    with pytest.raises(ValueError, match=r"q must have shape \(4, 3\), not \(12,\)"):
        da.step(PARTICLES, da.midpoint(), Q0.ravel(), Q0.ravel(), 0.1, [0.2])
    for dim in ((4, 0), (), (4, 1.5), "4"):
        with pytest.raises(ValueError, match="dim must be a positive integer"):
            da.System(H=lambda q, p: jnp.sum(p**2), dim=dim)
    with pytest.raises(ValueError, match=r"F must return shape \(4, 3\)"):
        da.System(H=lambda q, p: jnp.sum(p**2), F=lambda q, p: p.ravel(), dim=(4, 3))


# --- noises given by one function ----------------------------------------------------------------


def test_functions_that_are_not_linear_in_w_are_refused():
    def system(h=None, f=None):
        return da.System(H=lambda q, p: jnp.sum(p**2), h=h, f=f, dim=3, noises=2)

    system(h=lambda q, p, w: jnp.sum(q[:2] * w), f=lambda q, p, w: p * w[0])
    for h in (lambda q, p, w: jnp.sum(w**2), lambda q, p, w: q[0] * w[0] + 1.0):
        with pytest.raises(ValueError, match="h must be linear in w"):
            system(h=h)
    for bent in (jnp.tanh, lambda x: jnp.round(x, 12), lambda x: jnp.clip(x, -1e4, 1e4)):
        with pytest.raises(ValueError, match="f must be linear in w"):
            system(f=lambda q, p, w, bent=bent: p * bent(w[0]))
    with pytest.raises(ValueError, match="that it is cannot be seen"):
        system(h=lambda q, p, w: jnp.sum(jnp.log(-(q[:2] ** 2)) * w**2))
    # In a branch that states near zero do not reach.
    with pytest.raises(ValueError, match="f must be linear in w"):
        system(f=lambda q, p, w: jnp.where(jnp.abs(q) > 500.0, w[0] ** 2, w[0]))
    # One entry among others that are larger by far.
    with pytest.raises(ValueError, match="f must be linear in w"):
        system(f=lambda q, p, w: jnp.stack([1e10 * w[0], jnp.abs(w[1]), w[1]]))
    system(h=lambda q, p, w: jnp.sum(jnp.log(-(q[:2] ** 2)) * w))
    with pytest.raises(TypeError, match="there is one function"):
        system(h=[lambda q, p: q[0]])
    with pytest.raises(ValueError, match="neither h"):
        system()
    with pytest.raises(ValueError, match="noises must be a positive integer"):
        da.System(H=lambda q, p: jnp.sum(p**2), h=lambda q, p, w: w[0], dim=3, noises=0)


def test_linearity_is_that_of_the_function_as_it_is_now():
    power = [1]

    def f(q, p, w):
        return w ** power[0]

    da.System(H=lambda q, p: jnp.sum(p**2), f=f, dim=2, noises=2)
    power[0] = 2
    with pytest.raises(ValueError, match="f must be linear in w"):
        da.System(H=lambda q, p: jnp.sum(p**2), f=f, dim=2, noises=2)


def test_entries_of_a_joint_function_are_the_single_ones():
    joint = da.System(
        H=lambda q, p: jnp.sum(p**2) / 2,
        h=lambda q, p, w: jnp.sum(q[:2] * w),
        f=lambda q, p, w: p * w[1],
        dim=3,
        noises=2,
    )
    q, p = np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0])
    dq, dp = joint.diffusion(q, p)
    np.testing.assert_allclose(dq, np.zeros((2, 3)))
    np.testing.assert_allclose(dp, [[-1.0, 0, 0], [1.0, 1.0, 3.0]])
    assert joint.is_joint and joint.noises == 2


def test_records_are_replaced_with_their_shapes():
    joint = da.System(
        H=lambda q, p: jnp.sum(p**2), h=lambda q, p, w: jnp.sum(q[0] * w), dim=(2, 3), noises=3
    )
    for system in (joint, PARTICLES, FLAT, da.System(H=lambda q, p: p @ p, dim=2)):
        again = dataclasses.replace(system, name="again")
        assert again.shape == system.shape and again.noise_shape == system.noise_shape
        assert (again.dim, again.noises, again.name) == (system.dim, system.noises, "again")


OSCILLATORS = da.System(
    H=lambda q, p: p @ p / 2 + jnp.sum(q**4) / 4,
    F=lambda q, p: -0.2 * p,
    h=lambda q, p, w: jnp.sum(q**2 * w) / 2,
    dim=12,
    noises=12,
    name="oscillators",
)
GRAIN = {"dt": 0.05, "t_end": 1.0, "seed": 3, "progress": False, "keep": "final"}


@pytest.mark.parametrize(
    "method",
    [da.stormer_verlet(), da.midpoint()],
    ids=lambda m: m.name,
)
@pytest.mark.slow
def test_noise_that_depends_on_positions(method):
    """Joint terms are not carried to the next step: their increments are others there."""
    start = np.linspace(-1, 1, 12), np.zeros(12)
    run = da.simulate(OSCILLATORS, method, start, paths=3, **GRAIN)
    listed = dataclasses.replace(
        OSCILLATORS, noises=None, f=None, h=[OSCILLATORS.h[i] for i in range(12)]
    )
    other = da.simulate(listed, method, start, paths=3, **GRAIN)
    np.testing.assert_allclose(run.q, other.q, rtol=1e-12)
    assert run.failed == 0 and run.residual < 1e-13


@pytest.mark.slow
def test_a_path_that_fails_leaves_the_others_alone():
    """One of them starts where the explicit method blows up."""
    q = np.tile(np.linspace(-1, 1, 12), (6, 1))
    fine = da.simulate(OSCILLATORS, da.heun(), (q, 0 * q), paths=6, **GRAIN)
    q[2] *= 1e6
    with pytest.warns(RuntimeWarning, match="1 of 6 paths failed"):
        run = da.simulate(OSCILLATORS, da.heun(), (q, 0 * q), paths=6, **GRAIN)
    others = [0, 1, 3, 4, 5]
    np.testing.assert_array_equal(run.q[others], fine.q[others])


@pytest.mark.slow
@pytest.mark.parametrize("method", [da.baoab(), da.midpoint()], ids=lambda m: m.name)
def test_saves_do_not_change_a_path(method):
    chain = da.systems.fput(20, gamma=1.0, temperature=0.5)
    start = np.linspace(0, 1, 20), np.zeros(20)
    ends = [
        da.simulate(chain, method, start, paths=5, save_every=every, **GRAIN).q for every in (1, 7)
    ]
    np.testing.assert_allclose(*ends, rtol=1e-13, atol=1e-14)


class Rounds:
    """What GPUs are given, on this device."""

    name = "rounds"

    def compile(self, steps):
        return compiled.by_xla(steps, march_in_rounds)


ROUNDS = {
    "direct": (da.baoab(), 2, 0.1),
    "swept": (da.midpoint(), 2, 0.1),
    "alone": (da.midpoint(), 1, 0.1),
    "alone, stiff": (da.midpoint(), 1, 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUNDS)
def test_rounds_of_a_known_number_of_steps_are_the_same_steps(name):
    """Rounds have 32 steps: 75 are two of them and a part of one."""
    method, paths, dt = ROUNDS[name]
    chain = da.systems.fput(10, gamma=1.0, temperature=0.5)
    start = np.linspace(-1, 1, 10), np.zeros(10)
    options = dict(dt=dt, t_end=75 * dt, save_every=75, paths=paths, keep="final", progress=False)
    usual, ours, other = (
        da.simulate(chain, method, start, engine=engine, seed=seed, **options)
        for engine, seed in (("arrays (XLA)", 0), (Rounds(), 0), (Rounds(), 1))
    )
    assert ours.provenance["code"] == "rounds" != usual.provenance["code"]
    np.testing.assert_allclose(ours.p, usual.p, rtol=1e-11, atol=1e-11)
    assert np.max(np.abs(other.p - usual.p)) > 0.1


@pytest.mark.slow
def test_what_sweeps_do_not_solve_is_compiled_when_it_is_needed(monkeypatch):
    """A path that needs Newton's method changes no bit of the others; without it, none is made."""
    made, make = [], compiled._compiled_again

    def noted(*given):
        fun = make(*given)
        return lambda *numbers: made.append(1) or fun(*numbers)

    monkeypatch.setattr(compiled, "_compiled_again", noted)
    chain = da.systems.fput(10, gamma=1.0, temperature=0.5)
    q = np.tile(np.linspace(-1, 1, 10), (3, 1))
    options = dict(dt=0.1, t_end=2.0, paths=3, save_every=20, keep="final", progress=False)
    options["engine"] = "arrays (XLA)"
    usual = da.simulate(chain, da.midpoint(), (q, 0 * q), **options)
    assert not made
    q[1] *= 40
    ours = da.simulate(chain, da.midpoint(), (q, 0 * q), **options)
    assert made and ours.failed == 0 and ours.iterations > usual.iterations
    np.testing.assert_array_equal(ours.q[[0, 2]], usual.q[[0, 2]])


def steep(q):
    return jnp.sum(jnp.sinh(q))


def free(q, p):
    return jnp.sum(p**2) / 2 + steep(q)


SPHERE = da.constraints.on_surface(lambda x: x @ x - 1)
ONCE = {
    "free": (da.System(free, dim=(6, 3)), da.stormer_verlet()),
    "bound": (da.System(free, dim=(6, 3), constraints=SPHERE), da.rattle()),
    "with friction": (da.systems.langevin(steep, dim=(6, 3)), da.stormer_verlet()),
    "thermal": (da.systems.langevin(steep, dim=(6, 3)), da.baoab()),
}


@pytest.mark.parametrize("name", ONCE)
def test_forces_are_evaluated_once_a_step(name):
    """Those at the end of a step are handed on to the next one, in which none are left to do."""
    system, method = ONCE[name]
    stepper = make_stepper(system, method, np.float64)
    z, dW = jnp.ones(18), Increments(dW=jnp.full(system.noises, 0.1))

    def on(q, p, at_start):
        q, p, _, terms = stepper.advance_on(q, p, 0.1, dW, system.params, Solver.FAST, at_start)
        return q, p, terms

    known = stepper.terms_at(z, z, 0.1, system.params)
    assert ("H_q", 0) in known
    assert count_of("cosh", on, z, z, known) == 1
    # Without what is known there are two: a control.
    assert count_of("cosh", on, z, z, None) == 2
    q, p, terms = on(z / np.sqrt(3), 0 * z, None)
    again = stepper.terms_at(q, p, 0.1, system.params)
    np.testing.assert_array_equal(terms["H_q", 0], again["H_q", 0])


def step_of(system, method):
    """The code of a step, before it is compiled."""
    stepper, z = make_stepper(system, method, np.float64), jnp.ones(system.dim)

    def on(q, p, dW):
        given = Increments(dW=dW)
        return stepper.advance_on(q, p, 0.1, given, system.params, Solver.FAST, None)[:3]

    return jax.jit(on).trace(z, z, jnp.ones(system.noises))


def chain(N):
    return da.systems.fput(N, gamma=1.0, temperature=1.0)


# With how many states may stand beside each other: the unknowns of the last are as many as a state
# has entries, and BiCGStab, behind the sweeps, keeps seven vectors.
LENGTHS = {
    "baoab": (da.baoab, chain, 10),
    "stormer_verlet": (da.stormer_verlet, chain, 10),
    "midpoint": (da.midpoint, chain, 10),
    "midpoint on a wave": (da.midpoint, da.systems.stochastic_wave, 20),
}


@pytest.mark.parametrize("name", tiered(LENGTHS, fast=["baoab", "stormer_verlet"]))
def test_the_code_of_a_step_has_one_length_and_takes_the_memory_of_few_states(name):
    (make, of, states), sizes = LENGTHS[name], (64, 4096)
    systems = [of(N) for N in sizes]
    steps = [step_of(system, make()) for system in systems]
    lengths = [len(list(equations(step.jaxpr))) for step in steps]
    assert lengths[0] == lengths[1]
    written = steps[1].lower()
    assert "lapack" not in written.as_text()
    memory = written.compile().memory_analysis()
    assert memory is not None and memory.temp_size_in_bytes < states * (2 * 8 * systems[1].dim)


def test_control_other_code_grows_and_calls_lapack():
    def listed(N):
        forces = [lambda q, p, i=i: p.at[i].set(0.0) for i in range(N)]
        return da.System(H=lambda q, p: jnp.sum(p**2) / 2, f=forces, dim=N)

    few, more = (len(list(equations(step_of(listed(N), da.heun()).jaxpr))) for N in (3, 6))
    assert few < more
    A = jnp.eye(40)
    assert "lapack" in jax.jit(jnp.linalg.solve).lower(A, A[0]).as_text()


def test_methods_with_stages_of_each_noise_name_those_that_take_many():
    chain, z = da.systems.fput(40, gamma=1.0), np.ones(40)
    for method in (da.srkw1(), da.srkw2()):
        with pytest.raises(ValueError, match=r"at most 32 noises.* midpoint, .* or baoab"):
            da.step(chain, method, z, z, 0.1, z)


def count_of(name, fun, *args):
    """How often an operation is executed by what the results of a function need."""
    leaves, tree = jax.tree.flatten(args)
    needed = live(lambda *x: fun(*jax.tree.unflatten(tree, x)), *leaves)
    return sum(name_of(eqn) == name for eqn in equations(jax.make_jaxpr(needed)(*leaves)))


@pytest.mark.parametrize(
    ("system", "method"),
    [
        (da.System(lambda q, p: jnp.sum(q**2) / 2, F=lambda q, p: -p, dim=10), da.heun()),
        (da.System(lambda q, p, t: -jnp.sum(q) * jnp.cos(t), dim=10, time=True), da.midpoint()),
    ],
    ids=["of momenta", "of time"],
)
def test_terms_of_momenta_or_time_are_not_handed_on_where_positions_stand_still(system, method):
    z, none = np.ones(10), da.Increments(np.zeros(0))
    run = da.simulate(system, method, (z, z), dt=0.1, t_end=0.5, keep="final", progress=False)
    q, p = z, z
    for k in range(5):
        q, p, _ = da.step(system, method, q, p, 0.1, none, t=0.1 * k if system.time else None)
    np.testing.assert_allclose(run.p[0], p, rtol=1e-13)
