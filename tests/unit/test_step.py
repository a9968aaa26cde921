"""One step: honest reports, transformations, precision, large systems, and every refusal."""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.noise import Increments
from dalembert.stepping import newton, residuals
from dalembert.stepping import step as one_step
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.expressions import vector
from dalembert.stepping.stepper import make_stepper
from tiers import tiered

IMPLICIT = {
    "midpoint": da.midpoint(),
    "stormer_verlet": da.stormer_verlet(),
    "dirk": da.dirk(0.3),
    "srkw1": da.srkw1(0.25),
}
EVERY = {**IMPLICIT, "heun": da.heun()}
by_method = pytest.mark.parametrize("name", tiered(EVERY, fast=["midpoint", "heun"]))
by_kind = pytest.mark.parametrize(
    "name", tiered(["midpoint", "stormer_verlet", "heun"], fast=["midpoint", "heun"])
)

KUBO = da.systems.damped_kubo(beta=0.7, nu=0.2)
PENDULUM = da.systems.pendulum()
LORENTZ = da.systems.lorentz()
TWO_NOISE = da.systems.two_noise()

Q, P, DT, DW = np.array([1.2]), np.array([0.4]), 0.1, np.array([0.3])


def kinetic(q, p):
    return jnp.dot(p, p) / 2


# --- the report --------------------------------------------------------------------------------


@by_method
def test_report_of_a_step_that_is_solved(name):
    q, p, info = da.step(PENDULUM, EVERY[name], Q, P, DT, DW)
    assert q.shape == p.shape == (1,)
    assert info.converged
    assert 0 <= info.residual < 1e-14
    assert (info.iterations == 0) == (name == "heun")


@pytest.mark.parametrize(
    "method",
    tiered([*EVERY.values(), da.srkw2()], fast=["midpoint", "heun"], name=lambda m: m.name),
)
def test_linear_equations_take_exactly_one_newton_step(method):
    info = da.step(KUBO, method, Q, P, DT, DW)[2]
    assert info.iterations == (0 if method.name == "heun" else 1)
    assert info.converged


def test_nonlinear_equations_take_more_than_one_newton_step():
    assert da.step(PENDULUM, da.midpoint(), Q, P, DT, DW)[2].iterations > 1
    assert da.step(PENDULUM, da.stormer_verlet(), Q, P, DT, DW)[2].iterations == 1


def explosive(q, p):
    """With dt = 10 the equation P = p + 5 (P² + 1) has no real solution for p > −4.95."""
    return p**2 + 1


def growth(q, p):
    """With dt = 2 the matrix of the stage equation P = p + (dt/2) P vanishes."""
    return p


def squeeze(q, p):
    """With ΔW = 2 the matrix of Q = q + (ΔW/2) Q vanishes."""
    return q[0] * p[0]


@pytest.mark.parametrize("dim", [1, 20], ids=["scalars", "arrays"])
@pytest.mark.parametrize(
    "method",
    tiered([da.midpoint(), da.stormer_verlet()], fast=["midpoint"], name=lambda m: m.name),
)
def test_an_equation_without_a_solution_is_reported(method, dim):
    system = da.System(H=kinetic, F=explosive, dim=dim)
    for p in (0.0, 0.3, -4.0):
        info = da.step(system, method, np.zeros(dim), np.full(dim, p), 10.0, [])[2]
        assert not info.converged
        assert not info.residual < 1e-3
    assert da.step(system, method, np.zeros(dim), np.zeros(dim), 0.1, [])[2].converged


@pytest.mark.parametrize("dim", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_singular_stage_matrix_is_reported(dim):
    system = da.System(H=kinetic, F=growth, dim=dim)
    assert "(linear" in da.explain(system, da.midpoint())
    zero, one = np.zeros(dim), np.ones(dim)
    info = da.step(system, da.midpoint(), zero, one, 2.0, [])[2]
    assert not info.converged
    _, p, info = da.step(system, da.midpoint(), zero, one, 1.0, [])
    assert info.converged
    np.testing.assert_allclose(p, 3.0)


def test_an_increment_that_makes_the_stage_matrix_singular_is_reported():
    system = da.System(H=kinetic, h=[squeeze], dim=1)
    assert da.step(system, da.midpoint(), Q, P, DT, [1.9])[2].converged
    for increment in (2.0, -2.0):
        assert not da.step(system, da.midpoint(), Q, P, DT, [increment])[2].converged


def test_one_path_without_a_solution_does_not_spoil_the_others():
    system = da.System(H=kinetic, F=explosive, dim=1)
    p = np.array([[-5.0], [0.0], [2.0]])
    dt = np.array([0.1, 10.0, 0.01])

    def one(p, dt):
        return da.step(system, da.midpoint(), jnp.zeros(1), p, dt, jnp.zeros(0))

    _, together, info = jax.jit(jax.vmap(one))(p, dt)
    np.testing.assert_array_equal(info.converged, [True, False, True])
    for k in (0, 2):
        alone = da.step(system, da.midpoint(), np.zeros(1), p[k], dt[k], [])
        np.testing.assert_allclose(together[k], alone[1], rtol=1e-15)


def test_hard_equations_are_solved_by_damping():
    """A step far beyond what accuracy allows still has a solution, which Newton alone may miss."""
    stiff = da.systems.van_der_pol(nu=1.0)
    q, p, info = da.step(stiff, da.midpoint(), np.array([3.0]), np.array([2.0]), 50.0, [1.0])
    assert info.converged and info.iterations > 3
    mean_q, mean_p = (3 + q) / 2, (2 + p) / 2
    np.testing.assert_allclose(q, 3 + 50 * mean_p, rtol=1e-13)
    force = 50 * (-mean_q + (1 - mean_q**2) * mean_p) + 0.05
    np.testing.assert_allclose(p, 2 + force, rtol=1e-11)


def test_residual_is_that_of_the_equations():
    """The residual is in units of the state: it does not change when all units do."""
    H = da.System(H=lambda q, p: jnp.dot(p, p) / 2 + jnp.sum(q**4) / 4, dim=1)
    small = da.step(H, da.midpoint(), 1e-3 * Q, 1e-6 * P, 1e2, [])[2]
    assert small.converged and small.residual < 1e-13


def plasma(q, p):
    """A particle in a periodic field; positions are not wrapped."""
    return jnp.dot(p, p) / 2 + 0.2 * jnp.sum(jnp.sin(4 * jnp.pi * q))


def lennard_jones(q, p):
    r2 = jnp.dot(q, q)
    return jnp.dot(p, p) / 2 + 400 * (r2**-6 - r2**-3)


def in_q(q, p):
    return 0.01 * jnp.sin(q[0])


def in_q_and_p(q, p):
    return 0.01 * jnp.sin(q[0]) * p[0]


NOISES = {"separable": in_q, "coupled": in_q_and_p}


@cache
def reports(H, noise, dt, dim):
    """Reports of one midpoint step of many paths, as a function of (q, p, dW)."""
    system = da.System(H=H, F=friction, h=[NOISES[noise]], dim=dim)

    def one(q, p, dW):
        return da.step(system, da.midpoint(), q, p, dt, dW)[2]

    return jax.jit(jax.vmap(one))


IN_THE_PLANE = tiered(product([1, 2], NOISES), fast=["1-separable"])


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "noise"), IN_THE_PLANE)
@pytest.mark.parametrize("distance", [1.0, 1e3, 1e6])
def test_particles_far_from_the_origin_are_no_failures(dim, noise, distance):
    """Positions that are not wrapped are rounded more coarsely than the momenta they change."""
    rng = np.random.default_rng(0)
    q, p = rng.normal(size=(2, 500, dim))
    info = reports(plasma, noise, 0.1, dim)(distance * q, p, 0.3 * rng.normal(size=(500, 1)))
    assert np.all(info.converged)


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "noise"), IN_THE_PLANE)
def test_rest_at_a_stiff_equilibrium_is_no_failure(dim, noise):
    """Large forces cancel there, and what is left of them is rounding."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(500, dim))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    q = 2 ** (1 / 6) * direction * (1 + 1e-15 * rng.integers(-5, 5, size=(500, 1)))
    report = reports(lennard_jones, noise, 0.005, dim)
    for scale in (0.0, 1e-8, 0.1):
        dW = scale * rng.normal(size=(500, 1))
        assert np.all(report(q, np.zeros((500, dim)), dW).converged)


NOT_FINITE = {
    "position": (np.array([np.nan]), P, DW),
    "momentum": (Q, np.array([np.inf]), DW),
    "increment": (Q, P, np.array([np.nan])),
}


@by_method
@pytest.mark.parametrize("what", NOT_FINITE)
def test_numbers_that_are_not_finite_are_refused_or_reported(name, what):
    q, p, dW = NOT_FINITE[what]
    try:
        info = da.step(PENDULUM, EVERY[name], q, p, DT, dW)[2]
    except ValueError:
        return
    assert not info.converged


@pytest.mark.parametrize("method", [da.heun(), da.stormer_verlet()], ids=lambda m: m.name)
def test_overflow_is_reported(method):
    """Forces that are infinite, in a step without any equation to solve."""
    system = da.System(H=lambda q, p: kinetic(q, p) + jnp.sum(jnp.exp(q)), dim=1)
    _, p, info = da.step(system, method, np.array([800.0]), P, DT, [])
    assert not np.isfinite(p).all()
    assert not info.converged


# --- a step that is taken alone ------------------------------------------------------------------


def coupled(dim):
    """Non-separable, with a sine in it, so that much would have to be written out."""
    return da.System(
        H=lambda q, p: jnp.sum(p**2) / 2 * (1 + 0.1 * jnp.sin(q[0])) + jnp.sum(q**4) / 4,
        h=[lambda q, p: 0.2 * jnp.sin(q[0]) * p[-1]],
        dim=dim,
    )


def is_written_out(system, method, most):
    return make_stepper(system, method, np.float64, most=most).is_scalar


def test_many_operations_are_not_written_out_for_one_step():
    """By their number alone: it grows with dimensions, stages and functions."""
    most = one_step.MAX_WRITTEN_OUT
    assert is_written_out(PENDULUM, da.midpoint(), most)
    assert is_written_out(PENDULUM, da.dirk(), most)
    assert not is_written_out(PENDULUM, da.srkw2(), most)
    assert is_written_out(coupled(1), da.midpoint(), most)
    assert not is_written_out(coupled(3), da.midpoint(), most)
    assert is_written_out(coupled(3), da.midpoint(), np.inf), "a run writes them out"
    assert is_written_out(coupled(3), da.heun(), most), "there is nothing to solve"


@pytest.mark.parametrize("name", ["midpoint", "dirk"])
def test_both_ways_of_a_step_agree(name, monkeypatch):
    found = []
    for most in (np.inf, 1):
        monkeypatch.setattr(one_step, "MAX_WRITTEN_OUT", most)
        q, p, info = da.step(coupled(1), EVERY[name], Q, P, DT, DW)
        assert info.converged and 1 < info.iterations <= 5
        found.append((q, p))
    np.testing.assert_allclose(found[0], found[1], rtol=2e-15, atol=2e-15)
    assert not np.array_equal(found[0][0], Q)


@pytest.mark.parametrize("most", [np.inf, 1])
def test_what_the_short_way_does_not_solve_is_solved_safely(most, monkeypatch):
    monkeypatch.setattr(one_step, "MAX_WRITTEN_OUT", most)
    solvers, make = [], one_step._compiled

    def noted(stepper, solver):
        solvers.append(solver)
        return make(stepper, solver)

    monkeypatch.setattr(one_step, "_compiled", noted)
    system = da.systems.van_der_pol(nu=1.0)
    assert da.step(system, da.midpoint(), [3.0], [2.0], 0.01, [0.1])[2].converged
    assert solvers == [Solver.TRY]
    _, _, info = da.step(system, da.midpoint(), [3.0], [2.0], 50.0, [1.0])
    assert solvers == [Solver.TRY, Solver.TRY, Solver.BOTH]
    assert info.converged


# --- transformations ---------------------------------------------------------------------------


def both(system, method, q, p, dt, dW):
    return jnp.concatenate(da.step(system, method, q, p, dt, dW)[:2])


@by_kind
def test_jit_gives_the_same_as_eager(name):
    method = EVERY[name]
    eager = da.step(PENDULUM, method, Q, P, DT, DW)
    jitted = jax.jit(lambda *z: da.step(PENDULUM, method, *z))(Q, P, DT, DW)
    for a, b in zip(jax.tree.leaves(eager), jax.tree.leaves(jitted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-15)
        assert a.dtype == b.dtype


@by_method
def test_vmap_gives_the_same_as_a_loop(name):
    method = EVERY[name]
    q, p, dW = np.random.default_rng(5).normal(size=(3, 6, 1))
    many = jax.jit(jax.vmap(lambda q, p, dW: da.step(PENDULUM, method, q, p, DT, dW)))
    q1, p1, info = many(q, p, dW)
    assert info.converged.shape == info.iterations.shape == info.residual.shape == (6,)
    for k in range(6):
        one = da.step(PENDULUM, method, q[k], p[k], DT, dW[k])
        np.testing.assert_allclose(q1[k], one[0], rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(p1[k], one[1], rtol=1e-14, atol=1e-15)
        assert info.converged[k] and one[2].converged


@cache
def objective(name):
    """A scalar function of everything that a step depends on, all in one vector."""
    method = EVERY[name]

    def value(x):
        system = PENDULUM.with_params(nu=x[4], sigma=x[5], kappa=x[6])
        z = both(system, method, x[0:1], x[1:2], x[2], x[3:4])
        return jnp.sin(z[0]) + z[1] ** 2

    return value


POINT = np.array([1.2, 0.4, 0.3, 0.25, 0.1, 0.3, 0.2])


@by_method
def test_gradient_agrees_with_finite_differences(name):
    """In q, p, dt, ΔW and every parameter; central differences of order four."""
    value = jax.jit(objective(name))
    gradient = jax.jit(jax.grad(objective(name)))(POINT)
    h = 2e-3
    for k, direction in enumerate(np.eye(7)):
        f = [value(POINT + s * h * direction) for s in (-2, -1, 1, 2)]
        difference = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)
        np.testing.assert_allclose(gradient[k], difference, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["midpoint", "stormer_verlet"])
@pytest.mark.slow
def test_second_derivatives_agree_with_differences_of_gradients(name):
    gradient = jax.jit(jax.grad(objective(name)))
    hessian = jax.jit(jax.hessian(objective(name)))(POINT)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-12, atol=1e-13)
    h = 2e-3
    for k, direction in enumerate(np.eye(7)):
        f = [gradient(POINT + s * h * direction) for s in (-2, -1, 1, 2)]
        difference = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)
        np.testing.assert_allclose(hessian[k], difference, rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_forward_and_reverse_derivatives_agree():
    forward = jax.jit(jax.jacfwd(objective("midpoint")))(POINT)
    reverse = jax.jit(jax.jacrev(objective("midpoint")))(POINT)
    np.testing.assert_allclose(forward, reverse, rtol=1e-13)


def test_lists_of_traced_numbers_are_vectors():
    found = jax.jit(lambda q, p, w: both(KUBO, da.midpoint(), [q], [p], DT, [w]))(1.2, 0.4, 0.3)
    np.testing.assert_allclose(found, both(KUBO, da.midpoint(), Q, P, DT, DW), rtol=1e-15)


@pytest.mark.slow
def test_nothing_traced_is_kept_after_a_step():
    """Steppers are cached by their functions; the parameters of the moment must not stay there."""

    def H(q, p, params):
        return kinetic(q, p) + params["k"] * jnp.sum(q**4)

    system = da.System(H=H, dim=1, params={"k": 1.0})

    def run(k, q, p):
        return both(system.with_params(k=k), da.midpoint(), q, p, DT, jnp.zeros(0))

    with jax.checking_leaks():
        jax.jit(run)(0.5, Q, P)


# --- no tracing twice --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", tiered([da.midpoint(), da.heun()], fast=["heun"], name=lambda m: m.name)
)
def test_other_numbers_do_not_trace_again(method, calls):
    def H(q, p, params):
        calls.add()
        return kinetic(q, p) + params["k"] * jnp.sum(jnp.cos(q)) + params["c"] @ q

    params = {"k": 1.0, "c": np.ones(2)}
    system = da.System(H=H, dim=2, params=params)
    q, p = np.array([0.1, 0.2]), np.array([0.3, 0.4])
    first = da.step(system, method, q, p, DT, [])
    traced = len(calls)
    assert traced > 0
    da.step(system, method, q + 1, p - 1, 0.2, [])
    da.step(system, method, list(q), jnp.asarray(p), 1, np.zeros(0))
    other = system.with_params(k=2.0)
    again = len(calls)  # a new system checks its functions once
    changed = da.step(other, method, q, p, DT, [])
    assert len(calls) == again
    assert again - traced <= 2  # the new system is checked: its value and its gradient
    assert not np.array_equal(changed[1], first[1])


def test_functions_made_anew_are_traced_anew():
    """The control: what is counted above does move when the function is another one."""
    calls = []

    def make():
        def H(q, p):
            calls.append(1)
            return kinetic(q, p)

        return da.System(H=H, dim=1)

    da.step(make(), da.heun(), Q, P, DT, [])
    before = len(calls)
    da.step(make(), da.heun(), Q, P, DT, [])
    assert len(calls) == 2 * before


# --- precision ---------------------------------------------------------------------------------


@pytest.fixture
def x64_off():
    jax.config.update("jax_enable_x64", False)


@by_kind
def test_without_the_global_switch_results_are_float64_numpy_arrays(name, x64_off):
    q, p, info = da.step(PENDULUM, EVERY[name], [1.2], [0.4], DT, [0.3])
    for x in (q, p, *info):
        assert isinstance(x, np.ndarray | np.generic)
    assert q.dtype == p.dtype == info.residual.dtype == np.float64
    assert info.converged
    with jax.enable_x64(True):
        expected = da.step(PENDULUM, EVERY[name], Q, P, DT, DW)
    np.testing.assert_array_equal(q, expected[0])
    np.testing.assert_array_equal(p, expected[1])


@by_kind
def test_float32_on_request(name):
    q, p, info = da.step(PENDULUM, EVERY[name], Q, P, DT, DW, dtype=np.float32)
    assert q.dtype == p.dtype == info.residual.dtype == np.float32
    assert info.converged
    expected = da.step(PENDULUM, EVERY[name], Q, P, DT, DW)
    np.testing.assert_allclose(q, expected[0], rtol=1e-6)
    np.testing.assert_allclose(p, expected[1], rtol=2e-6)
    assert not np.array_equal(q, expected[0])


def test_float32_on_request_without_the_global_switch(x64_off):
    q, _, info = da.step(PENDULUM, da.midpoint(), [1.2], [0.4], DT, [0.3], dtype="float32")
    assert isinstance(q, np.ndarray) and q.dtype == np.float32
    assert info.converged


def test_inside_a_transformation_the_type_of_q_counts(x64_off):
    found = jax.jit(lambda q: da.step(PENDULUM, da.midpoint(), q, P, DT, DW))(jnp.array([1.2]))
    assert found[0].dtype == jnp.float32
    assert found[2].converged
    with jax.enable_x64(True):
        found = jax.jit(lambda q: da.step(PENDULUM, da.midpoint(), q, P, DT, DW))(jnp.array([1.2]))
    assert found[0].dtype == np.float64


@pytest.mark.slow
@pytest.mark.parametrize("wrt", tiered(["params", "dt", "dW"], fast=["params"]))
def test_derivatives_without_the_global_switch(wrt, x64_off):
    """NumPy positions in float64, and only something else traced: what JAX has then is float32."""

    def value(x):
        system = KUBO.with_params(nu=x) if wrt == "params" else KUBO
        dW = x.reshape(1) if wrt == "dW" else DW
        return da.step(system, da.midpoint(), Q, P, x if wrt == "dt" else DT, dW)[0][0]

    slope = jax.grad(value)(0.2)
    with jax.enable_x64(True):
        expected = jax.grad(value)(0.2)
    assert slope.dtype == jnp.float32
    np.testing.assert_allclose(slope, expected, rtol=1e-5)


def test_known_numbers_inside_jit_without_the_global_switch(x64_off):
    found = jax.jit(lambda x: x + da.step(KUBO, da.midpoint(), Q, P, DT, DW)[0].astype("float32"))
    np.testing.assert_allclose(found(jnp.zeros(1)), da.step(KUBO, da.midpoint(), Q, P, DT, DW)[0])


# --- large systems -----------------------------------------------------------------------------


def springs(q, p):
    """Unit masses on a line, each held by a spring, nonlinear springs between neighbours."""
    stretch = jnp.diff(q)
    return (jnp.dot(p, p) + jnp.dot(q, q)) / 2 + jnp.sum(stretch**2 / 2 + stretch**4 / 4)


def friction(q, p):
    return -0.1 * p


def shaking(q, p):
    return 0.2 * jnp.sum(jnp.cos(q))


def shaken_friction(q, p):
    return -0.1 * jnp.sin(q) * p


CHAIN = da.System(H=springs, F=friction, h=[shaking], f=[shaken_friction], dim=500, name="chain")


@pytest.mark.parametrize("name", ["midpoint", "stormer_verlet"])
@pytest.mark.slow
def test_chain_of_500_oscillators(name):
    method = EVERY[name]
    assert "arrays, " in da.explain(CHAIN, method)
    q, p = np.random.default_rng(0).normal(size=(2, 500))
    found = da.step(CHAIN, method, q, p, 0.1, [0.3])
    general = da.step(CHAIN, method, q, p, 0.1, [0.3], shortcuts=False)
    assert found[2].converged and general[2].converged
    for a, b in zip(found[:2], general[:2], strict=True):
        assert np.max(np.abs(a - b)) <= 1e-13 * np.max(np.abs(b))


@pytest.mark.slow
def test_chain_of_500_oscillators_solves_the_midpoint_equations():
    q, p = np.random.default_rng(1).normal(size=(2, 500))
    dt, dW = 0.1, 0.3
    q1, p1 = (np.asarray(x) for x in da.step(CHAIN, da.midpoint(), q, p, dt, [dW])[:2])
    Q, P = (q + q1) / 2, (p + p1) / 2
    stretch = np.diff(Q)
    tension = np.concatenate([[0], stretch + stretch**3, [0]])
    force = -Q + np.diff(tension) - 0.1 * P
    noise = 0.2 * np.sin(Q) - 0.1 * np.sin(Q) * P
    np.testing.assert_allclose(q1, q + dt * P, rtol=0, atol=1e-14)
    np.testing.assert_allclose(p1, p + dt * force + dW * noise, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_chain_that_starts_at_rest(scale):
    q = scale * np.random.default_rng(2).normal(size=500)
    info = da.step(CHAIN, da.midpoint(), q, np.zeros(500), 0.1, [0.3])[2]
    assert info.converged and info.iterations > 1


def symplectic_defect(system, method, q, p, dt, dW):
    dim = system.dim
    one = jax.jit(jax.jacfwd(lambda z: both(system, method, z[:dim], z[dim:], dt, dW)))
    M, o, i = one(np.concatenate([q, p])), np.zeros((dim, dim)), np.eye(dim)
    omega = np.block([[o, i], [-i, o]])
    return np.max(np.abs(M.T @ omega @ M - omega))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["midpoint", "stormer_verlet", "heun"])
def test_chain_without_forces_moves_symplectically(name):
    free = da.System(H=springs, h=[shaking], dim=20, name="chain")
    q, p = np.random.default_rng(3).normal(size=(2, 20))
    assert "arrays, sweeps" in da.explain(free, da.midpoint())
    defect = symplectic_defect(free, EVERY[name], q, p, 0.1, np.array([0.3]))
    assert defect > 1e-4 if name == "heun" else defect < 1e-14


# --- refusals ----------------------------------------------------------------------------------

REFUSED = {
    "dt zero": (dict(dt=0.0), ValueError, "dt must be a positive number, not 0.0"),
    "dt negative": (dict(dt=-1), ValueError, "dt must be a positive number, not -1"),
    "dt nan": (dict(dt=np.nan), ValueError, "dt must be a positive number, not nan"),
    "dt infinite": (dict(dt=np.inf), ValueError, "dt must be a positive number, not inf"),
    "dt a vector": (dict(dt=[0.1]), ValueError, r"dt must be a positive number, not \[0.1\]"),
    "dt a word": (dict(dt="0.1"), (TypeError, ValueError), "dt must be a positive number"),
    "dt denormal": (dict(dt=1e-320), ValueError, "dt = 1e-320 counts as zero in float64"),
    "dt missing": (dict(dt=None), (TypeError, ValueError), "dt must be a positive number"),
    "q a number": (dict(q=1.0), ValueError, r"q must have shape \(1,\), not \(\)"),
    "q too long": (dict(q=[1.0, 2.0]), ValueError, r"q must have shape \(1,\), not \(2,\)"),
    "p a matrix": (dict(p=[[1.0]]), ValueError, r"p must have shape \(1,\), not \(1, 1\)"),
    "q integers": (dict(q=[1]), TypeError, "q has int64 entries; floating-point numbers are"),
    "p integers": (dict(p=np.array([1])), TypeError, "2.0 instead of 2"),
    "q complex": (dict(q=[1j]), TypeError, "q has complex128 entries.* Take the real part"),
    "q missing": (dict(q=None), TypeError, "q has object entries.* Give numbers such as 2.0"),
    "q text": (dict(q=["a"]), TypeError, "q has text entries; floating-point numbers are needed"),
    "q ragged": (dict(q=[[1.0], 2.0]), ValueError, r"q must be an array of shape \(1,\), not \[\["),
    "dW too long": (
        dict(dW=[0.1, 0.2]),
        ValueError,
        r"dW must have shape \(1,\), one increment per Wiener process of 'pendulum', not \(2,\)",
    ),
    "a step back": (dict(dt=-0.1), ValueError, "dt must be .*step forward the system with −H, −F"),
    "no step": (dict(dt=0.0), ValueError, r"dt must be a positive number, not 0.0.$"),
    "dW empty": (dict(dW=[]), ValueError, r"dW must have shape \(1,\)"),
    "dW missing": (dict(dW=None), (TypeError, ValueError), "dW"),
    "dW complex": (dict(dW=[1j]), TypeError, "dW"),
    "method a function": (
        dict(method=da.midpoint),
        TypeError,
        r"method must be a da.Method such as da.midpoint\(\).*Call the function to get the method",
    ),
    "method a word": (dict(method="midpoint"), TypeError, "must be a da.Method .*not 'midpoint'"),
    "system a function": (
        dict(system=da.systems.pendulum),
        TypeError,
        "system must be a da.System, such as .*, not <function",
    ),
    "dtype half": (dict(dtype=np.float16), TypeError, "dtype must be float64 or float32"),
    "dtype integer": (dict(dtype=int), TypeError, "dtype must be float64 or float32"),
    "dtype a word": (dict(dtype="double precision"), TypeError, "dtype must be float64 or float32"),
    "e1 without dZ": (
        dict(method=da.e1()),
        ValueError,
        r"e1 also needs the increments dZ: pass da.Increments\(dW=…, dZ=…\) instead of dW alone",
    ),
    "e1 with a long dZ": (
        dict(method=da.e1(), dW=da.Increments([0.1], dZ=[0.1, 0.2])),
        ValueError,
        r"dZ must have shape \(1,\), not \(2,\)",
    ),
    "rs2 without mixed": (
        dict(system=TWO_NOISE, method=da.rs2(), dW=[0.1, 0.2]),
        ValueError,
        "rs2 also needs the increments mixed",
    ),
    "rs1 with a vector of mixed": (
        dict(system=TWO_NOISE, method=da.rs1(), dW=da.Increments([0.1, 0.2], mixed=np.zeros(2))),
        ValueError,
        r"mixed must have shape \(2, 2\), not \(2,\)",
    ),
    "srkw2 with two noises": (
        dict(system=TWO_NOISE, method=da.srkw2(), dW=[0.1, 0.2]),
        ValueError,
        r"srkw2 takes at most 1 noise\(s\), the system has 2: its b3 = 0 violates condition 4",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_step_refuses(what):
    changes, error, message = REFUSED[what]
    good = dict(system=PENDULUM, method=da.heun(), q=Q, p=P, dt=DT, dW=DW, dtype=np.float64)
    args = good | changes
    with pytest.raises(error, match=message):
        da.step(*(args[k] for k in ("system", "method", "q", "p", "dt", "dW")), dtype=args["dtype"])


def test_what_a_step_accepts():
    """Numbers in the spellings that people write."""
    expected = da.step(PENDULUM, da.heun(), Q, P, DT, DW)
    for args in (
        ([1.2], [0.4], 0.1, [0.3]),
        ((1.2,), jnp.array([0.4]), np.float64(0.1), 0.3),
        (jnp.array([1.2]), np.array([0.4]), jnp.asarray(0.1), da.Increments([0.3])),
    ):
        found = da.step(PENDULUM, da.heun(), *args)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-15)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-15)
    assert da.step(PENDULUM, da.heun(), Q, P, 1, [0])[2].converged


def test_a_step_back_is_one_of_the_negative_system():
    """Of symmetric methods; a step of another one, and the same increment, lead elsewhere."""
    system = da.systems.planar()
    back = {k: [lambda *z, g=g: -g(*z) for g in getattr(system, k)] for k in "hf"}
    HF = (lambda *z, g=g: -g(*z) for g in (system.H, system.F))
    negative = da.System(*HF, **back, dim=2, params=system.params)
    q, p, dW = np.array([0.9, -0.2]), np.array([0.3, 0.8]), np.array([0.2])
    for method, returns in ((da.midpoint(), True), (da.heun(), False)):
        there = da.step(system, method, q, p, DT, dW)[:2]
        again = da.step(negative, method, *there, DT, dW)[:2]
        assert np.allclose(again, (q, p), rtol=0, atol=1e-13) == returns
        assert not np.allclose(da.step(negative, method, *there, DT, -dW)[:2], (q, p), atol=1e-3)


def test_increments_may_be_nested_lists():
    arrays = da.Increments(np.array([0.1, 0.2]), mixed=np.array([[0.0, 0.1], [-0.1, 0.0]]))
    lists = da.Increments([0.1, 0.2], mixed=[[0, 0.1], [-0.1, 0]])
    expected = da.step(TWO_NOISE, da.rs2(), Q, P, DT, arrays)
    found = da.step(TWO_NOISE, da.rs2(), Q, P, DT, lists)
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize(
    "name", tiered(["midpoint", "srkw1", "e1", "rs2"], fast=["midpoint", "e1", "rs2"])
)
def test_methods_take_a_system_without_noise(name):
    system = da.System(H=springs, dim=1)
    record = da.Increments(np.zeros(0), np.zeros(0), np.zeros((0, 0)))
    found = da.step(system, da.METHODS[name](), Q, P, DT, record)
    assert found[2].converged
    if name == "midpoint":
        assert da.step(system, da.METHODS[name](), Q, P, DT)[0] == found[0]  # dW left out


# --- what a system refuses ---------------------------------------------------------------------


def branches(q, p):
    return p[0] if q[0] > 0 else -p[0]


def rounds(q, p):
    return p[0] * float(q[0])


def looks_up(q, p):
    return [1.0, 2.0][q[0].astype(int)] * p[0]


TRACED = "H cannot be traced by JAX. Write it with jax.numpy instead of numpy or math"

NOT_A_SYSTEM = {
    "no dim": (dict(dim=0), ValueError, "dim must be a positive integer .*, not 0"),
    "dim a fraction": (dict(dim=1.5), ValueError, "dim must be a positive integer .*, not 1.5"),
    "dim a truth value": (
        dict(dim=True),
        ValueError,
        "dim must be a positive integer .*, not True",
    ),
    "no H": (dict(H=None), TypeError, r"H must be a function of \(q, p\), not None"),
    "H a number": (dict(H=1.0, params=2.0), TypeError, r"a function of \(q, p, params\), not 1.0"),
    "H a vector": (
        dict(H=lambda q, p: p**2 / 2),
        ValueError,
        r"H must return a scalar, shape \(\), but it returns shape \(2,\). Sum over the components",
    ),
    "H an integer": (dict(H=lambda q, p: 0), TypeError, "H returns int.* 2.0 instead of 2"),
    "H complex": (
        dict(H=lambda q, p: p[0].astype(complex)),
        TypeError,
        "H returns complex128 values; floating-point numbers are needed. Take the real part",
    ),
    "H by numpy": (dict(H=lambda q, p: np.sum(np.asarray(p))), TypeError, TRACED),
    "H with a branch": (dict(H=branches), TypeError, f"{TRACED}.*jnp.where instead of `if`"),
    "H with a float": (dict(H=rounds), TypeError, TRACED),
    "H with a lookup": (dict(H=looks_up), TypeError, TRACED),
    "H without params": (
        dict(params=1.0),
        TypeError,
        r"H failed when called as H\(q, p, params\) with q and p of shape \(2,\): TypeError",
    ),
    "H out of shape": (dict(H=lambda q, p: p @ jnp.ones(3)), TypeError, r"H failed when called"),
    "F a scalar": (
        dict(F=lambda q, p: p[0]),
        ValueError,
        r"F must return shape \(2,\), but it returns shape \(\)",
    ),
    "F integers": (dict(F=lambda q, p: jnp.zeros(2, int)), TypeError, "F returns int64 values"),
    "h not a list": (dict(h=kinetic), TypeError, r"h must be a list, .*: write h=\[h\]"),
    "f not a list": (dict(f=kinetic), TypeError, r"f must be a list, .*: write f=\[f\]"),
    "h and f of two lengths": (
        dict(h=[kinetic], f=[None, None]),
        ValueError,
        "h has 1 entries and f has 2: both need one entry per Wiener process. Use None for a term",
    ),
    "second h a vector": (
        dict(h=[kinetic, lambda q, p: q]),
        ValueError,
        r"h\[1\] must return a scalar",
    ),
    "first f a scalar": (dict(f=[kinetic]), ValueError, r"f\[0\] must return shape \(2,\)"),
    "invariant a vector": (
        dict(invariants={"momentum": lambda q, p: p}),
        ValueError,
        r"invariants\['momentum'\] must return a scalar",
    ),
}


@pytest.mark.parametrize("what", NOT_A_SYSTEM)
def test_what_a_system_refuses(what):
    changes, error, message = NOT_A_SYSTEM[what]
    with pytest.raises(error, match=message):
        da.System(**(dict(H=kinetic, dim=2) | changes))


def test_parameters_that_a_system_does_not_have_are_refused():
    with pytest.raises(ValueError, match=r"'pendulum' has no parameter \['mass'\]; it has \['kapp"):
        PENDULUM.with_params(mass=1.0)
    nameless = da.System(H=lambda q, p, k: k * kinetic(q, p), dim=1, params=2.0)
    with pytest.raises(TypeError, match="'system' has no named parameters; pass the whole of"):
        nameless.with_params(k=1.0)
    assert nameless.with_params(3.0).params == 3.0


@pytest.mark.parametrize("solver", tiered(Solver, fast=["BOTH"], name=lambda s: s.name))
def test_every_solver_solves_the_steps_of_particles_that_travelled_far(solver):
    """Positions of several hundred periods: rounding them changes the forces, not the verdict."""
    system = da.systems.lenard_bernstein()
    stepper = make_stepper(system, da.midpoint(), np.float64)
    rng = np.random.default_rng(0)
    q, p, dW = rng.uniform(-500, 500, 20_000), *rng.normal(size=(2, 20_000))

    def step(q, p, dW):
        increments = Increments(jnp.sqrt(0.15) * dW[None])
        return stepper.advance((q,), (p,), 0.15, increments, system.params, solver)[2]

    info = jax.jit(jax.vmap(step))(q, p, dW)
    assert np.all(info.converged) and np.max(info.residual) < 1e-14


# --- passes and what they report -----------------------------------------------------------------


def _passes(residual, slope, start):
    """Newton's passes on one equation: the solution, and the residual that is reported."""

    def next_pass(u):
        better = u[0] - residual(u[0]) / slope(u[0])
        return (better,), jnp.abs(residual(better)) / (jnp.abs(better) + 1.0)

    (root,), report = newton.newton_loop(next_pass, (jnp.asarray(start),), second_pass=next_pass)
    return float(root), float(report.residual)


def test_passes_go_on_until_the_residual_is_rounding():
    root, residual = _passes(lambda u: u**2 - 2.0, lambda u: 2.0 * u, 1.5)
    assert abs(root - np.sqrt(2.0)) < 1e-15
    assert residual <= residuals.goal(np.float64)


@pytest.mark.parametrize("slope", [3.0, -3.0], ids=["too steep", "wrong sign"])
def test_a_derivative_that_is_wrong_is_not_believed(slope):
    """Corrections shrink, or grow, at a constant rate: what is reported is what was measured."""
    root, residual = _passes(lambda u: u**2 - 2.0, lambda u: slope, 1.5)
    assert residual == pytest.approx(abs(root**2 - 2.0) / (abs(root) + 1.0), abs=1e-15)


@pytest.mark.parametrize("start", [0.3, 1.0])
def test_passes_that_do_not_converge_report_it(start):
    """At a cube root Newton's corrections grow, at |u|^½ they go to and fro."""
    power = 1 / 3 if start == 0.3 else 1 / 2

    def residual(u):
        return jnp.sign(u) * jnp.abs(u) ** power

    _, left = _passes(residual, lambda u: power * jnp.abs(u) ** (power - 1), start)
    assert not left < 1e6 * residuals.tolerance(np.float64)


def test_a_residual_that_is_not_a_number_is_infinite():
    one, nan = jnp.asarray(1.0), jnp.asarray(jnp.nan)
    for worst in ((nan, one), (one, nan), (nan, nan)):
        assert float(residuals.relative(vector(worst), vector((one, one)))) == np.inf
    assert float(residuals.relative(vector((one, 2 * one)), vector((one, one)))) == 2.0
