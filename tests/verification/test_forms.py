"""The symplectic form and volumes under the flow and under methods, with controls that fail."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import dalembert as da
from dalembert.systems.kubo_system import kubo_path
from dalembert.theory.factors import factor_convergence, path_factors
from dalembert.theory.forms import (
    conformal_defect,
    conformal_factor,
    jacobian,
    linear_friction,
    own_conformal_factor,
    stormer_verlet_jacobian,
    symplectic_defect,
    symplectic_form,
    volume_factor,
)
from dalembert.theory.paths import draw_increments, sample_points
from dalembert.theory.quasi_symplectic_verdict import quasi_symplecticity, without_forces
from tiers import tiered

STRUCTURED = ("midpoint", "stormer_verlet", "dirk", "srkw1", "srkw2")
START = (np.array([0.7, -0.2]), np.array([0.3, 0.5]))
NU0, NU1 = 0.5, 0.4
GAMMA0 = np.array([[0.8, 0.3], [-0.2, 0.5]])
GAMMA1 = np.array([[0.1, -0.2], [0.3, 0.2]])


def H(q, p):
    """Separable and nonlinear in both."""
    kinetic = jnp.dot(p, p) / 2 + jnp.sum(p**4) / 12
    return kinetic + jnp.dot(q, q) / 2 + q[0] ** 2 * q[1] / 3 + jnp.sum(q**4) / 4


def h(q, p):
    return 0.3 * jnp.sin(q[0]) * q[1] + 0.2 * jnp.cos(p[1])


ADDITIVE = da.System(
    H=H, F=lambda q, p: -NU0 * p, h=[lambda q, p: 0.3 * q[0]], dim=2, name="additive"
)
SCALAR = da.System(
    H=H, F=lambda q, p: -NU0 * p, h=[h], f=[lambda q, p: -NU1 * p], dim=2, name="scalar"
)
MATRIX = replace(
    SCALAR,
    F=lambda q, p: -jnp.asarray(GAMMA0) @ p,
    f=[lambda q, p: -jnp.asarray(GAMMA1) @ p],
    name="matrix",
)
NON_SEPARABLE = da.System(
    H=lambda q, p: p[0] ** 2 / 2 + q[0] ** 4 / 4,
    F=lambda q, p: -NU0 * p,
    h=[lambda q, p: 0.3 * jnp.sin(q[0] * p[0])],
    f=[lambda q, p: -NU1 * p],
    dim=1,
    name="non-separable",
)


# The form and its defects


def test_the_symplectic_form():
    omega = symplectic_form(3)
    np.testing.assert_array_equal(omega.T, -omega)
    np.testing.assert_array_equal(omega @ omega, -np.eye(6))
    q, p = np.arange(3.0), np.arange(3.0, 6.0)
    tangents = np.concatenate([q, 0 * p]), np.concatenate([0 * q, p])
    assert tangents[0] @ omega @ tangents[1] == q @ p


def test_defects_of_known_matrices():
    rng = np.random.default_rng(1)
    S = rng.standard_normal((4, 4))
    symplectic = scipy.linalg.expm(symplectic_form(2) @ (S + S.T) / 4)
    assert symplectic_defect(symplectic) < 1e-13
    scaled = np.sqrt(0.3) * symplectic
    assert own_conformal_factor(scaled) == pytest.approx(0.3, rel=1e-13)
    assert conformal_defect(scaled) < 1e-13
    assert symplectic_defect(scaled) == pytest.approx(0.7)
    assert conformal_defect(S) > 0.1
    stack = np.stack([symplectic, scaled])
    np.testing.assert_allclose(symplectic_defect(stack), [0, 0.7], atol=1e-12)
    plane = rng.standard_normal((2, 2))
    assert own_conformal_factor(plane) == pytest.approx(np.linalg.det(plane), rel=1e-12)


# The derivative of a step


@pytest.mark.slow
def test_the_jacobian_of_midpoint_on_a_linear_system_is_a_cayley_transform():
    dt, dW, nu, beta = 0.3, 0.4, 0.2, 0.5
    system = da.systems.damped_kubo(beta=beta, nu=nu)
    A = (dt + beta * dW) * np.array([[0.0, 1.0], [-1.0, -nu]])
    exact = np.linalg.solve(np.eye(2) - A / 2, np.eye(2) + A / 2)
    found = jacobian(system, da.midpoint(), np.array([0.3]), np.array([1.1]), dt, np.array([dW]))
    np.testing.assert_allclose(found, exact, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", tiered(["midpoint", "heun"], fast=["heun"]))
def test_the_jacobian_agrees_with_differences(name):
    method, z, dW = da.METHODS[name](), np.array([0.7, 0.3]), np.array([0.2])
    M = jacobian(NON_SEPARABLE, method, z[:1], z[1:], 0.1, dW)

    def flow(z):
        q, p, _ = da.step(NON_SEPARABLE, method, z[:1], z[1:], 0.1, dW)
        return np.concatenate([q, p])

    e = 1e-5 * np.eye(2)
    differences = np.stack([(flow(z + d) - flow(z - d)) / 2e-5 for d in e], axis=1)
    np.testing.assert_allclose(M, differences, atol=1e-9)


def test_the_jacobian_under_vmap():
    q, p = sample_points(NON_SEPARABLE, 3)
    dW = np.array([0.2])

    def M(q, p):
        return jacobian(NON_SEPARABLE, da.heun(), q, p, 0.1, dW)

    found = jax.vmap(M)(q, p)
    np.testing.assert_allclose(found, [M(*z) for z in zip(q, p, strict=True)], rtol=1e-13)


# Quasi-symplecticity, QS1


def force_free_defect(system, method, dt=0.1):
    """The largest symplectic defect at a few points, without forces."""
    free = without_forces(system)
    increments = draw_increments(free, method, dt, 3, seed=3)
    q, p = sample_points(free, 3, seed=2)
    rows = [jax.tree.map(lambda x, k=k: x[k], increments) for k in range(3)]
    Ms = [jacobian(free, method, q[k], p[k], dt, rows[k]) for k in range(3)]
    return np.max(symplectic_defect(np.stack(Ms)))


EVERY_PAIR = sorted({(m, s) for m in STRUCTURED for s in da.systems.FEW} - {("srkw2", "two_noise")})


@pytest.mark.parametrize(
    ("method", "system"),
    tiered(EVERY_PAIR, fast=["stormer_verlet-two_noise"]),
)
def test_structured_methods_are_symplectic_without_forces(method, system):
    assert force_free_defect(da.SYSTEMS[system](), da.METHODS[method]()) < 1e-13


LATTICE = da.System(
    H=lambda q, p: p @ p / 2 + (q[0] * q[1]) ** 2 / 2 - jnp.cos(q[0] - q[1]),
    F=lambda q, p: -0.3 * p,
    h=[lambda q, p: 0.5 * q[0], lambda q, p: 0.3 * q[1]],
    dim=2,
    name="two rotors with additive noise",
)
SHAKEN = da.System(
    H=LATTICE.H,
    F=LATTICE.F,
    h=[lambda q, p: 0.4 * jnp.sin(q[0]) * q[1] + 0.1 * p @ p, lambda q, p: 0.2 * q[0] * p[1]],
    dim=2,
    name="two rotors, shaken",
)
ONCE_SHAKEN = da.System(H=LATTICE.H, F=LATTICE.F, h=(SHAKEN.h or ())[:1], dim=2, name="shaken once")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("additive_midpoint", LATTICE),
        ("additive_dirk", LATTICE),
        ("additive_gauss", LATTICE),
        ("baoab", LATTICE),
        ("aboba", LATTICE),
        ("obabo", LATTICE),
        ("quasi_symplectic", LATTICE),
        ("ninomiya_victoir", SHAKEN),
        ("bracket_midpoint", SHAKEN),
        ("bracket_gauss", ONCE_SHAKEN),
    ],
    ids=lambda case: case if isinstance(case, str) else case.name,
)
def test_methods_beyond_the_paper_are_symplectic_without_forces(name, system):
    assert force_free_defect(system, da.METHODS[name]()) < 1e-13


def test_a_tableau_for_additive_noise_that_is_not_symplectic():
    heun = da.AdditiveTableau([[0, 0], [1, 0]], [0.5, 0.5], [-0.4, 0.4], [1, 1], name="Heun")
    assert force_free_defect(LATTICE, heun) > 1e-5


@pytest.mark.parametrize("name", tiered(["heun", "r2", "e1", "rs1", "rs2"], fast=["heun", "r2"]))
def test_explicit_methods_are_not_symplectic(name):
    assert force_free_defect(da.systems.two_noise(), da.METHODS[name]()) > 1e-5


@pytest.fixture(scope="module")
def damped():
    """dt, ΔW and the Jacobian of a Störmer–Verlet step with matrices of friction."""
    dt, dW = 0.1, np.array([0.2])
    return dt, dW, jacobian(MATRIX, da.stormer_verlet(), *START, dt, dW)


def test_with_forces_structured_methods_are_not_symplectic(damped):
    """The control of QS1: with its forces the same system has no symplectic step."""
    assert symplectic_defect(damped[-1]) > 0.05


# QS2 and the Störmer–Verlet formula


@pytest.mark.slow
def test_stormer_verlet_is_quasi_symplectic_and_heun_is_not():
    """On one system: a pendulum with linear friction."""
    system = da.systems.lenard_bernstein()
    found = quasi_symplecticity(system, da.stormer_verlet())
    assert found and found.qs1 and found.qs2
    assert found.symplectic.size < 1e-13 and found.volume.size < 1e-13
    found = quasi_symplecticity(system, da.heun())
    assert not found.qs1 and not found.qs2
    assert "NOT quasi-symplectic" in str(found)


@pytest.mark.slow
def test_stormer_verlet_is_quasi_symplectic_for_linear_friction():
    found = quasi_symplecticity(MATRIX, da.stormer_verlet())
    assert found and found.qs1 and found.qs2
    assert found.symplectic.size < 1e-13 and found.volume.size < 1e-13
    assert found.volume.unconverged == 0
    assert "stormer_verlet on matrix with dt = 0.1: quasi-symplectic" in str(found)
    dW = np.asarray(draw_increments(MATRIX, da.stormer_verlet(), 0.1, 4, seed=0).dW)
    exact = [stormer_verlet_jacobian(GAMMA0, [GAMMA1], 0.1, w) for w in dW]
    np.testing.assert_allclose(found.determinants, np.tile(exact, (16, 1)).T, rtol=1e-13)


def test_the_printed_stormer_verlet_formula_is_wrong(damped):
    """det(I + γ(I − γ/2)⁻¹), as printed, grows where friction contracts."""
    dt, dW, M = damped
    gamma = dt * GAMMA0 + dW[0] * GAMMA1
    identity = np.eye(2)
    printed = np.linalg.det(identity + gamma @ np.linalg.inv(identity - gamma / 2))
    eta = identity + gamma / 2
    corrected = np.linalg.det(identity - gamma @ np.linalg.inv(eta))
    own = np.linalg.det(M)
    assert own == pytest.approx(corrected, rel=1e-14)
    assert stormer_verlet_jacobian(GAMMA0, [GAMMA1], dt, dW) == pytest.approx(own, rel=1e-14)
    assert own < 1 < printed and printed - own > 0.2


def test_stormer_verlet_jacobian_takes_numbers():
    expected = (1 - 0.05) / (1 + 0.05)
    assert stormer_verlet_jacobian(1.0, [], 0.1, []) == pytest.approx(expected, rel=1e-15)
    with pytest.raises(ValueError, match="1 matrices gammas and 2 values dW"):
        stormer_verlet_jacobian(1.0, [0.5], 0.1, [0.1, 0.2])


@pytest.mark.slow
def test_stormer_verlet_on_a_non_separable_system_fails_qs2_alone():
    found = quasi_symplecticity(NON_SEPARABLE, da.stormer_verlet())
    assert found.qs1 and not found.qs2 and not found
    assert found.volume.size > 1e-3
    assert "QS2  spread of det M by (q, p): FAILS" in str(found) and "at q = [" in str(found)


@pytest.mark.slow
def test_nonlinear_friction_fails_qs2():
    found = quasi_symplecticity(da.systems.van_der_pol(nu=0.1), da.stormer_verlet())
    assert found.qs1 and not found.qs2


@pytest.mark.slow
def test_midpoint_satisfies_qs2_for_linear_dynamics_only():
    q, p = sample_points(da.systems.langevin(), 2)
    Ms = [
        jacobian(da.systems.langevin(), da.midpoint(), *z, 0.1, [0.2])
        for z in zip(q, p, strict=True)
    ]
    assert np.ptp(np.linalg.det(Ms)) < 1e-14
    quartic = da.systems.langevin(lambda q: jnp.sum(q**4) / 4)
    found = quasi_symplecticity(quartic, da.midpoint())
    assert found.qs1 and not found.qs2
    assert 1e-5 < found.volume.size < 1e-1


@pytest.mark.slow
def test_steps_without_a_solution_do_not_count_and_are_told():
    system, method = da.systems.damped_kubo(), da.stormer_verlet()
    q, p = np.array([[0.1], [np.nan]]), np.array([[0.2], [0.3]])
    found = quasi_symplecticity(system, method, points=(q, p), increments=2)
    assert (found.volume.unconverged, found.volume.tried) == (2, 4)
    assert "2 of 4 steps were not solved" in str(found)
    assert np.isnan(found.determinants[:, 1]).all() and found.qs1
    with pytest.raises(ValueError, match="no solution of the stage equations was found"):
        quasi_symplecticity(system, method, points=(q[[1, 1]], p), increments=2)
    with pytest.raises(ValueError, match=r"both of shape \(count, 1\), not \(2,\) and \(2,\)"):
        quasi_symplecticity(system, method, points=(q[:, 0], p[:, 0]))
    with pytest.raises(ValueError, match=r"shape \(steps, 1\)"):
        quasi_symplecticity(system, method, increments=da.Increments(np.zeros(3)))


# The exact factors


def test_linear_friction_is_found():
    found = linear_friction(MATRIX)
    np.testing.assert_allclose(found.gammas, [GAMMA0, GAMMA1], rtol=1e-14)
    assert found.rates is None
    np.testing.assert_allclose(linear_friction(SCALAR).rates, [NU0, NU1], rtol=1e-14)
    np.testing.assert_allclose(linear_friction(ADDITIVE).rates, [NU0, 0.0], rtol=1e-14)
    np.testing.assert_array_equal(linear_friction(without_forces(SCALAR)).rates, [0.0, 0.0])


def test_other_forces_are_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"F of 'van_der_pol'.*∂F/∂q is not zero.*at q ="):
        volume_factor(da.systems.van_der_pol(), 1.0, [0.0])
    with pytest.raises(ValueError, match=r"f\[1\] of 'two_noise'.*∂f\[1\]/∂p is not constant"):
        volume_factor(da.systems.two_noise(), 1.0, [0.0, 0.0])
    pushed = replace(SCALAR, F=lambda q, p: 1.0 - NU0 * p)
    with pytest.raises(ValueError, match=r"F\(q, 0\) is not zero"):
        conformal_factor(pushed, 1.0, [0.0])
    with pytest.raises(ValueError, match="volume_factor applies to it"):
        conformal_factor(MATRIX, 1.0, [0.0])
    with pytest.raises(ValueError, match=r"W must have shape \(\.\.\., 1\)"):
        volume_factor(SCALAR, 1.0, 0.3)


def test_the_factors_of_the_formulas():
    t, W = 1.5, np.array([0.3])
    c = conformal_factor(SCALAR, t, W)
    assert c == pytest.approx(np.exp(-NU0 * t - NU1 * W[0]), rel=1e-14)
    assert volume_factor(SCALAR, t, W) == pytest.approx(c**2, rel=1e-14)
    traces = np.exp(-np.trace(GAMMA0) * t - np.trace(GAMMA1) * W[0])
    assert volume_factor(MATRIX, t, W) == pytest.approx(traces, rel=1e-14)
    assert volume_factor(da.systems.lorentz(), t, W) == pytest.approx(1.0, abs=1e-15)
    many = volume_factor(SCALAR, np.array([0.0, t]), np.stack([0 * W, W]))
    np.testing.assert_allclose(many, [1.0, c**2], rtol=1e-14)


def test_the_exact_flow_of_the_kubo_oscillator_has_these_factors():
    """The flow is known in closed form; the wrong sign of W does not fit it."""
    t, W, beta, nu = 2.0, 0.7, 0.5, 0.3
    system = da.systems.damped_kubo(beta=beta, nu=nu)

    def flow(z):
        return jnp.stack(kubo_path(t, W, z[0], z[1], beta, nu))

    M = jax.jacfwd(flow)(jnp.array([1.2, -0.4]))
    assert np.linalg.det(M) == pytest.approx(volume_factor(system, t, [W]), rel=1e-13)
    assert own_conformal_factor(M) == pytest.approx(conformal_factor(system, t, [W]), rel=1e-13)
    assert abs(np.linalg.det(M) - volume_factor(system, t, [-W])) > 0.05


# A method's own factors along a path


@pytest.mark.slow
def test_factors_along_a_path_are_those_of_the_product_of_its_steps():
    system, method, dt = SCALAR, da.heun(), 0.1
    found = path_factors(system, method, START, dt, steps=5, seed=4)
    dW = draw_increments(system, method, dt, 5, seed=4).dW
    (q, p), M = START, np.eye(4)
    for k in range(5):
        M = np.asarray(jacobian(system, method, q, p, dt, dW[k])) @ M
        q, p, _ = da.step(system, method, q, p, dt, dW[k])
    assert found.volume == pytest.approx(np.linalg.det(M), rel=1e-12)
    assert found.conformal == pytest.approx(own_conformal_factor(M), rel=1e-12)
    assert found.defect == pytest.approx(conformal_defect(M), rel=1e-9)
    W = np.sum(dW, axis=0)
    assert found.exact_volume == pytest.approx(volume_factor(system, 0.5, W), rel=1e-14)
    assert found.exact_conformal == pytest.approx(conformal_factor(system, 0.5, W), rel=1e-14)
    assert "volume det M" in str(found) and "conformal c" in str(found)
    again = path_factors(system, method, START, dt, increments=dW)
    assert again == found


@pytest.mark.slow
def test_a_matrix_friction_has_no_conformal_factor():
    found = path_factors(MATRIX, da.heun(), START, 0.1, steps=5)
    assert found.exact_conformal is None and found.defect > 1e-2
    assert "conformal c " not in str(found)


@pytest.mark.slow
def test_stormer_verlet_is_conformally_symplectic_for_scalar_friction():
    """More than the paper says: kicks, drift and two scalings of p, each conformal."""
    dt, steps = 0.1, 20
    found = path_factors(SCALAR, da.stormer_verlet(), START, dt, steps=steps, seed=2)
    assert found.converged and found.defect < 1e-13
    dW = draw_increments(SCALAR, da.stormer_verlet(), dt, steps, seed=2).dW
    gamma = dt * NU0 + NU1 * np.asarray(dW)[:, 0]
    own = np.prod((1 - gamma / 2) / (1 + gamma / 2))
    assert found.conformal == pytest.approx(own, rel=1e-12)
    assert found.volume == pytest.approx(own**2, rel=1e-12)
    assert abs(found.conformal / found.exact_conformal - 1) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["midpoint", "stormer_verlet"])
def test_factors_converge_with_order_two_for_additive_noise(name):
    found = factor_convergence(ADDITIVE, da.METHODS[name](), START, dt=1 / 128)
    assert found.volume_slope == pytest.approx(2, abs=0.1)
    assert found.conformal_slope == pytest.approx(2, abs=0.1)
    if name == "stormer_verlet":
        assert found.defect_slope is None and "rounding" in str(found)
    else:
        assert found.defect_slope == pytest.approx(2, abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["midpoint", "stormer_verlet"])
def test_factors_converge_with_order_one_for_noise_in_the_friction(name):
    """The error of a step is of the order of ΔW³, and these add up like a random walk.

    Midpoint is conformally symplectic only up to that error, Störmer–Verlet exactly.
    """
    found = factor_convergence(SCALAR, da.METHODS[name](), START, dt=1 / 1024, steps=512, paths=32)
    assert found.volume_slope == pytest.approx(1, abs=0.2)
    assert found.conformal_slope == pytest.approx(1, abs=0.2)
    assert found.volume_errors[0] < 1e-3
    if name == "stormer_verlet":
        assert np.max(found.defects) < 1e-13
    else:
        assert found.defect_slope == pytest.approx(1, abs=0.2)
        assert found.defects[0] > 1e-6


@pytest.mark.slow
def test_convergence_is_to_these_factors_and_to_no_others():
    """Against the factor of the opposite path the error does not fall: the test can fail."""
    errors = np.zeros((8, 2, 2))
    for number, of_path in enumerate(errors):
        path = da.brownian_path(1, number, 1 / 128, 128, 1)
        W = np.sum(path.dW, axis=0)
        right, wrong = volume_factor(SCALAR, 1.0, W), volume_factor(SCALAR, 1.0, -W)
        for i, factor in enumerate((1, 8)):
            dW = da.coarsen(path, 1 / 128, factor).dW
            own = path_factors(SCALAR, da.heun(), START, factor / 128, increments=dW).volume
            of_path[i] = abs(own / right - 1), abs(own / wrong - 1)
    fine, coarse = np.sqrt(np.mean(errors**2, axis=0))
    assert fine[0] < 0.3 * coarse[0]
    assert fine[1] > 0.1


@pytest.mark.slow
def test_float64_where_it_is_switched_off():
    q, p = START
    with jax.enable_x64(False):
        M = jacobian(SCALAR, da.heun(), q, p, 0.1, np.array([0.2]))
        found = path_factors(SCALAR, da.heun(), START, 0.1, steps=5)
        verdict = quasi_symplecticity(da.systems.damped_kubo(), da.stormer_verlet())
    assert isinstance(M, np.ndarray) and M.dtype == np.float64
    np.testing.assert_allclose(
        M, jacobian(SCALAR, da.heun(), q, p, 0.1, np.array([0.2])), rtol=1e-13
    )
    again = path_factors(SCALAR, da.heun(), START, 0.1, steps=5)
    assert found.volume == pytest.approx(again.volume, rel=1e-13)
    assert verdict and verdict.volume.size < 1e-13


def test_paths_that_cannot_be_taken_are_refused():
    with pytest.raises(ValueError, match="give steps"):
        path_factors(SCALAR, da.heun(), START, 0.1)
    with pytest.raises(ValueError, match=r"shape \(steps, 1\)"):
        path_factors(SCALAR, da.heun(), START, 0.1, increments=np.zeros(4))
    with pytest.raises(ValueError, match="does not divide"):
        factor_convergence(SCALAR, da.heun(), START, dt=0.1, steps=10, factors=(3, 1))
    with pytest.raises(ValueError, match=r"q0 must have shape \(2,\)"):
        path_factors(SCALAR, da.heun(), (np.zeros(3), np.zeros(2)), 0.1, increments=np.ones((2, 1)))
