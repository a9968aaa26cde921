"""Moments of methods on linear systems without sampling: reference values, theorems, controls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, linalg

import dalembert as da
from dalembert.systems.kubo_system import kubo_energy
from dalembert.theory.diagnosis import diagnose, for_every_system
from dalembert.theory.moments import (
    exact_moments,
    exact_stationary_covariance,
    solution_moments,
    stability_limit,
    stationary_covariance,
)
from tiers import tiered

KUBO = da.systems.damped_kubo()
KUBO_START = ([2.0], [0.0])


def constant(matrix):
    return jnp.asarray(matrix)


def _mixed_H(q, p):
    return p[0] ** 2 / 2 + q[0] ** 2 + 0.3 * q[0] * p[0] - 0.2 * q[0]


MIXED = da.System(
    H=_mixed_H,
    F=lambda q, p: -0.4 * p + 0.1,
    h=[lambda q, p: 0.3 * p[0] ** 2 / 2 + 0.2 * q[0], lambda q, p: 0.25 * q[0] ** 2 / 2],
    f=[None, lambda q, p: -0.2 * p + 0.1 * q],
    dim=1,
    name="mixed",
)
"""Affine, with two noises that do not commute and are multiplicative and additive at once."""
MIXED_START = ([0.7], [-0.4])


def mixed_matrices():
    """The fields of MIXED on (1, q, p), by hand."""
    A = np.array([[0, 0, 0], [0, 0.3, 1], [0.3, -2, -0.7]])
    B1 = np.array([[0, 0, 0], [0, 0, 0.3], [-0.2, 0, 0]])
    B2 = np.array([[0, 0, 0], [0, 0, 0], [0, -0.15, -0.2]])
    return A, (B1, B2)


def coupled_langevin():
    """Two degrees of freedom: coupled springs and frictions, a magnetic force, mixed noises."""
    K = np.array([[2.0, 0.5], [0.5, 1.0]])
    G = np.array([[0.8, 0.2 + 0.6], [0.2 - 0.6, 0.5]])
    S = np.array([[0.7, 0.3], [-0.4, 1.1]])
    return da.System(
        H=lambda q, p: jnp.dot(p, p) / 2 + jnp.dot(q, constant(K) @ q) / 2 + 0.3 * q[1],
        F=lambda q, p: -constant(G) @ p,
        h=[lambda q, p, s=s: -jnp.dot(constant(s), q) for s in S],
        dim=2,
        name="coupled_langevin",
    )


def by_hand(step, system, start, dt, steps, nodes=64, variables=1):
    """Moments from matrices M(x) of standard normal x, by a fixed Gauss–Hermite rule."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[x] * variables, indexing="ij"), -1).reshape(-1, variables)
    weights = np.ones(1)
    for _ in range(variables):
        weights = np.outer(weights, w / w.sum()).ravel()
    state = np.concatenate([[1.0], *start])
    S = np.outer(state, state)
    matrices = np.stack([step(point) for point in grid])
    for _ in range(steps):
        S = np.einsum("k,kia,ab,kjb->ij", weights, matrices, S, matrices)
    return S[0, 1:], S[1:, 1:]


def assert_close(moments, mean, second, tolerance=1e-12):
    np.testing.assert_allclose(moments.mean, mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(moments.second, second, rtol=0, atol=tolerance)


# The reference values


@pytest.mark.parametrize(
    ("method", "dt", "energy", "digits"),
    [
        pytest.param(da.midpoint(), 0.5, 0.835572, 6, marks=pytest.mark.slow),
        pytest.param(da.dirk(0.5), 0.5, 0.763468, 6, marks=pytest.mark.slow),
        pytest.param(da.srkw2(), 0.5, 0.729346, 6, marks=pytest.mark.slow),
        (da.heun(), 0.02, 2.17077, 6),
        pytest.param(da.stormer_verlet(), 0.5, 5884, 4, marks=pytest.mark.slow),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_kubo_energy_at_time_1000(method, dt, energy, digits):
    moments = exact_moments(KUBO, method, KUBO_START, dt=dt, steps=round(1000 / dt))
    assert moments.t == pytest.approx(1000)
    assert moments.energy == pytest.approx(energy, rel=0.6 * 10.0 ** (1 - digits))
    assert moments.energy != pytest.approx(float(kubo_energy(1000.0)), rel=5e-3)


def test_the_solution_has_the_exact_energy():
    moments = solution_moments(KUBO, KUBO_START, dt=0.5, steps=[2, 20, 200, 2000, 10000])
    np.testing.assert_allclose(moments.energy, kubo_energy(moments.t), rtol=1e-11)
    printed = [1.99855296666, 1.98010871276, 1.80969790957, 0.735851041914, 0.0134843224356]
    np.testing.assert_allclose(moments.energy, printed, rtol=1e-11)


@pytest.mark.parametrize("name", tiered(["rs2", "srkw2"], fast=["rs2"]))
def test_weak_order_two_shows_without_sampling(name):
    def error(dt):
        steps = round(2 / dt)
        found = exact_moments(KUBO, da.METHODS[name](), KUBO_START, dt=dt, steps=steps)
        exact = solution_moments(KUBO, KUBO_START, dt=dt, steps=steps)
        return found.second[0, 0] - exact.second[0, 0]

    errors = [error(dt) for dt in (0.1, 0.05, 0.025)]
    ratios = np.divide(errors[:-1], errors[1:])
    np.testing.assert_allclose(ratios, 4, atol=0.4)


def measured_weak_order(system, method, start):
    """The slope of the error of second moments at time 2 between two step sizes."""

    def error(steps):
        found = exact_moments(system, method, start, dt=2 / steps, steps=steps)
        exact = solution_moments(system, start, dt=2 / steps, steps=steps)
        return np.abs(found.second - exact.second).max()

    return np.log2(error(40) / error(80))


@pytest.mark.slow
def test_the_weak_orders_that_a_diagnosis_expects_are_attained():
    """For additive noise, where the diagnosis promises more than the certificate."""
    start = ([1.0], [0.5])
    diagnosis = diagnose(da.systems.langevin(gamma=0.5), methods=[*named(), da.srkw1(0.0)])
    orders = {
        v.name: measured_weak_order(diagnosis.system, v.method, start) for v in diagnosis.methods
    }
    for v in diagnosis.methods:
        assert orders[v.name] > v.weak - 0.1, orders
    assert {v.weak for v in diagnosis.methods[:-1]} == {2.0}
    assert diagnosis.methods[-1].weak == 1.0
    assert orders["srkw1(0.0)"] == pytest.approx(1, abs=0.1)


def named():
    return [da.METHODS[name]() for name in for_every_system()]


# Stability in second moment


def test_stormer_verlet_on_kubo_loses_second_moments_beyond_a_quarter():
    limit = stability_limit(KUBO, da.stormer_verlet(), stable=0.1, unstable=0.5)
    assert limit == pytest.approx(0.25536, abs=1e-5)
    for dt, stable in ((0.25, True), (0.26, False), (0.5, False)):
        moments = exact_moments(KUBO, da.stormer_verlet(), KUBO_START, dt=dt, steps=1)
        assert moments.stable is stable
        assert (moments.growth < 1) is stable
    assert moments.growth == pytest.approx(1.0040409, abs=1e-7)


def test_midpoint_on_kubo_is_stable_at_all_these_steps():
    for dt in (0.25, 0.5, 2.0):
        assert exact_moments(KUBO, da.midpoint(), KUBO_START, dt=dt, steps=1).stable


def test_the_limit_needs_a_bracket():
    with pytest.raises(ValueError, match=r"unstable=0\.2: .* so it is not unstable"):
        stability_limit(KUBO, da.stormer_verlet(), stable=0.1, unstable=0.2)


@pytest.mark.slow
def test_on_the_unit_circle_bounded_and_growing_moments_are_told_apart():
    start = ([1.0], [0.5])
    oscillator = da.System(H=lambda q, p: (p[0] ** 2 + q[0] ** 2) / 2, dim=1)
    free = da.System(H=lambda q, p: p[0] ** 2 / 2, dim=1)
    shaken = da.System(H=lambda q, p: (p[0] ** 2 + q[0] ** 2) / 2, h=[lambda q, p: -q[0]], dim=1)
    verdicts = {}
    for name, system in {"oscillator": oscillator, "free": free, "shaken": shaken}.items():
        moments = exact_moments(system, da.midpoint(), start, dt=0.5, steps=1)
        assert moments.growth == pytest.approx(1, abs=1e-4)
        verdicts[name] = moments.stable
    assert verdicts == {"oscillator": True, "free": False, "shaken": False}


def test_undamped_kubo_keeps_its_energy_for_a_million_steps():
    system = da.systems.damped_kubo(nu=0.0)
    moments = exact_moments(system, da.midpoint(), KUBO_START, dt=0.5, steps=10**6)
    assert moments.stable
    assert moments.energy == pytest.approx(2, rel=1e-9)


def test_moments_beyond_the_largest_number_are_infinite_and_the_mean_is_not():
    moments = exact_moments(KUBO, da.stormer_verlet(), KUBO_START, dt=0.5, steps=10**6)
    assert not moments.stable
    assert moments.energy == np.inf
    assert np.all(np.isfinite(moments.mean))


# Independent computations of the same moments


def test_midpoint_by_hand():
    dt, (A, (B,)) = 0.3, kubo_matrices()

    def step(x):
        X = dt * A + np.sqrt(dt) * x[0] * B
        one = np.eye(3)
        return np.linalg.solve(one - X / 2, one + X / 2)

    mean, second = by_hand(step, KUBO, KUBO_START, dt, 7, nodes=64)
    assert_close(exact_moments(KUBO, da.midpoint(), KUBO_START, dt=dt, steps=7), mean, second)


def kubo_matrices(beta=0.5, nu=0.001):
    A = np.array([[0, 0, 0], [0, 0, 1], [0, -1, -nu]])
    return A, (beta * A,)


def test_heun_with_two_noises_by_hand():
    dt, (A, Bs) = 0.2, mixed_matrices()

    def step(x):
        X = dt * A + np.sqrt(dt) * (x[0] * Bs[0] + x[1] * Bs[1])
        return np.eye(3) + X + X @ X / 2

    mean, second = by_hand(step, MIXED, MIXED_START, dt, 5, nodes=6, variables=2)
    assert_close(exact_moments(MIXED, da.heun(), MIXED_START, dt=dt, steps=5), mean, second)


def test_e1_with_its_second_variable_by_hand():
    dt, (A, (B,)) = 0.3, kubo_matrices(nu=0.2)
    system = da.systems.damped_kubo(nu=0.2)
    m = da.e1()

    def step(x):
        dW = np.sqrt(dt) * x[0]
        dZ_dt = np.sqrt(dt) / 2 * (x[0] + x[1] / np.sqrt(3))
        Y = []
        for i in range(5):
            drift, b1, b2 = (m.A[i], m.B1[i], m.B2[i]) if i < 4 else (m.alpha, m.g1, m.g2)
            fields = [dt * drift[j] * A + (b1[j] * dW + b2[j] * dZ_dt) * B for j in range(len(Y))]
            Y.append(np.eye(3) + sum((f @ y for f, y in zip(fields, Y, strict=True)), 0 * A))
        return Y[-1]

    mean, second = by_hand(step, system, KUBO_START, dt, 4, nodes=8, variables=2)
    assert_close(exact_moments(system, da.e1(), KUBO_START, dt=dt, steps=4), mean, second)


def test_rs1_with_two_noises_against_every_outcome():
    increments, weights = da.enumerate_three_point(2, 0.2)
    advance = jax.jit(
        jax.vmap(lambda inc: da.step(MIXED, da.rs1(), *map(jnp.asarray, MIXED_START), 0.2, inc)[:2])
    )
    z = np.concatenate(advance(increments), axis=1)
    moments = exact_moments(MIXED, da.rs1(), MIXED_START, dt=0.2, steps=1)
    assert_close(moments, weights @ z, np.einsum("k,ki,kj->ij", weights, z, z), 1e-14)


def test_the_solution_against_a_matrix_exponential():
    A, Bs = mixed_matrices()
    ito = A + sum(B @ B for B in Bs) / 2
    one = np.eye(3)
    generator = np.kron(ito, one) + np.kron(one, ito) + sum(np.kron(B, B) for B in Bs)
    w = np.concatenate([[1.0], *MIXED_START])
    S = (linalg.expm(1.5 * generator) @ np.kron(w, w)).reshape(3, 3)
    moments = solution_moments(MIXED, MIXED_START, dt=0.5, steps=3)
    assert_close(moments, S[0, 1:], S[1:, 1:])


@pytest.mark.slow
def test_methods_converge_to_the_solution_on_noises_that_do_not_commute():
    exact = solution_moments(MIXED, MIXED_START, dt=1.0, steps=1)
    for method, least in ((da.midpoint(), 1.6), (da.rs1(), 3.2)):
        errors = [
            np.abs(
                exact_moments(MIXED, method, MIXED_START, dt=1 / n, steps=n).second - exact.second
            )
            for n in (10, 20, 40)
        ]
        largest = [error.max() for error in errors]
        assert largest[0] > least * largest[1] > least**2 * largest[2]
        assert largest[2] < 3e-3


# Gaussian stationary laws


@pytest.mark.parametrize("dt", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize(
    "system",
    [
        da.systems.langevin(),
        pytest.param(da.systems.langevin(dim=2, mass=2.0), marks=pytest.mark.slow),
        pytest.param(coupled_langevin(), marks=pytest.mark.slow),
    ],
    ids=["langevin 1", "langevin 2", "coupled"],
)
def test_midpoint_keeps_gaussian_stationary_laws_for_every_step(system, dt):
    exact = exact_stationary_covariance(system)
    np.testing.assert_allclose(
        stationary_covariance(system, da.midpoint(), dt), exact, rtol=0, atol=1e-12
    )


def test_exact_stationary_covariance_is_gibbs():
    system = da.systems.langevin(dim=2, gamma=0.7, temperature=1.3, mass=2.0)
    gibbs = np.diag([1.3, 1.3, 2.6, 2.6])
    np.testing.assert_allclose(exact_stationary_covariance(system), gibbs, rtol=0, atol=1e-14)


def test_exact_stationary_covariance_solves_the_lyapunov_equation():
    system = coupled_langevin()
    A = np.block(
        [
            [np.zeros((2, 2)), np.eye(2)],
            [-np.array([[2.0, 0.5], [0.5, 1.0]]), -np.array([[0.8, 0.8], [-0.4, 0.5]])],
        ]
    )
    b = np.concatenate([np.zeros((2, 2)), np.array([[0.7, 0.3], [-0.4, 1.1]])], axis=1)
    expected = linalg.solve_continuous_lyapunov(A, -b.T @ b)
    np.testing.assert_allclose(exact_stationary_covariance(system), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "method",
    tiered([da.dirk(), da.heun(), da.srkw1(0.0)], fast=["heun"], name=lambda m: m.name),
)
def test_other_methods_do_not_keep_them(method):
    system = da.systems.langevin()
    bias = stationary_covariance(system, method, 0.5) - exact_stationary_covariance(system)
    assert np.abs(bias).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_srkw1_has_a_kinetic_bias_of_order_gamma_h_unless_lambda_is_a_half(gamma):
    T = 1.5
    system = da.systems.langevin(gamma=gamma, temperature=T)
    for dt in (0.1, 0.01):
        kinetic = stationary_covariance(system, da.srkw1(0.0), dt)[1, 1]
        assert (kinetic - T) / (gamma * dt * T) == pytest.approx(1, abs=0.7 * dt)
        kinetic = stationary_covariance(system, da.srkw1(0.5), dt)[1, 1]
        assert kinetic == pytest.approx(T, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("dt", [0.1, 1.0, 1.9, 2.6])
def test_stormer_verlet_with_linear_friction_is_the_gjf_thermostat(dt):
    mass, T = 2.0, 1.3
    system = da.systems.langevin(gamma=0.7, temperature=T, mass=mass)
    found = stationary_covariance(system, da.stormer_verlet(), dt)
    # Configurations exactly; the momenta of GJF are too cold by (Ωh)²/4, Ω² = 1/m.
    expected = np.diag([T, mass * T * (1 - dt**2 / (4 * mass))])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_three_point_and_gaussian_increments_give_the_same_stationary_law():
    system = da.systems.langevin()
    three = stationary_covariance(system, da.srkw1(), 0.3)
    normal = stationary_covariance(system, da.srkw1(), 0.3, noise=da.Gaussian())
    np.testing.assert_allclose(three, normal, rtol=0, atol=1e-15)


@pytest.mark.slow
def test_truncation_cools_additive_noise_by_its_lost_variance():
    system, dt = da.systems.langevin(), 0.2
    bound = np.sqrt(2 * abs(np.log(dt)))
    lost, _ = integrate.quad(
        lambda x: (x**2 - bound**2) * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), bound, np.inf
    )
    with pytest.warns(UserWarning, match="truncation=1 at dt=0.2 cuts off"):
        found = stationary_covariance(system, da.midpoint(), dt, noise=da.Gaussian(truncation=1))
    np.testing.assert_allclose(found, (1 - 2 * lost) * np.eye(2), rtol=0, atol=1e-10)


def test_stationary_covariance_needs_stability():
    with pytest.raises(ValueError, match=r"stormer_verlet with dt=2\.5 has no stationary cov"):
        stationary_covariance(da.systems.langevin(), da.stormer_verlet(), 2.5)
    frictionless = da.systems.langevin(gamma=0.0)
    with pytest.raises(ValueError, match=r"midpoint with dt=0\.5 has no stationary covariance"):
        stationary_covariance(frictionless, da.midpoint(), 0.5)
    with pytest.raises(ValueError, match="It needs friction in every direction"):
        exact_stationary_covariance(frictionless)
    with pytest.raises(TypeError, match=r"must be a da\.System, not list"):
        exact_stationary_covariance([])


# Monte Carlo


def sampled_energy(method, paths, steps, dt, seed):
    """Mean energy of simulated paths on Kubo and its standard error."""
    dW = np.sqrt(dt) * np.random.default_rng(seed).standard_normal((steps, paths, 1))
    z = np.tile([2.0, 0.0], (paths, 1))

    @jax.jit
    def run(z, dW):
        def one(z, dW):
            q, p, info = da.step(KUBO, method, z[:1], z[1:], dt, dW)
            return jnp.concatenate([q, p]), info.converged

        return jax.lax.scan(jax.vmap(one), z, dW)

    z, converged = run(z, dW)
    assert np.all(converged)
    H = np.sum(np.asarray(z) ** 2, axis=1) / 2
    return H.mean(), H.std(ddof=1) / np.sqrt(paths)


@pytest.mark.slow
def test_simulated_paths_agree_with_the_scheme_and_not_with_the_solution():
    dt, steps = 0.5, 60
    mean, error = sampled_energy(da.midpoint(), 20_000, steps, dt, seed=3)
    scheme = exact_moments(KUBO, da.midpoint(), KUBO_START, dt=dt, steps=steps).energy
    # Four standard errors: a false alarm for one seed in 16,000. The seed is fixed.
    assert abs(mean - scheme) < 4 * error
    assert abs(mean - float(kubo_energy(dt * steps))) > 20 * error


# Laws of the increments


def test_zero_noise_is_the_deterministic_map():
    moments = exact_moments(KUBO, da.midpoint(), KUBO_START, dt=0.5, steps=3, noise=da.Zero())
    z = np.array([2.0, 0.0])
    for _ in range(3):
        q, p, _ = da.step(KUBO, da.midpoint(), z[:1], z[1:], 0.5, [0.0])
        z = np.concatenate([q, p])
    assert_close(moments, z, np.outer(z, z), 1e-14)


def test_truncated_increments_by_numerical_integration():
    dt, (A, (B,)) = 0.3, kubo_matrices()
    bound = np.sqrt(2 * abs(np.log(dt)))
    one, start = np.eye(3), np.array([1.0, 2.0, 0.0])

    def energy(x):
        X = dt * A + np.sqrt(dt) * x * B
        w = np.linalg.solve(one - X / 2, (one + X / 2) @ start)
        return (w[1] ** 2 + 2 * w[2] ** 2) / 2

    def density(x):
        return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)

    inside, _ = integrate.quad(lambda x: energy(x) * density(x), -bound, bound, epsabs=1e-13)
    tail, _ = integrate.quad(density, bound, np.inf, epsabs=1e-15)
    expected = inside + tail * (energy(bound) + energy(-bound))
    with pytest.warns(UserWarning, match="truncation=1 at dt=0.3 cuts off"):
        moments = exact_moments(
            KUBO, da.midpoint(), KUBO_START, dt=dt, steps=1, noise=da.Gaussian(truncation=1)
        )
    observable = moments.expect(lambda q, p, params: q[0] ** 2 / 2 + p[0] ** 2)
    assert observable == pytest.approx(expected, rel=1e-12)
    assert observable != pytest.approx(moments.at(0).energy, rel=1e-3)


def strained(sigma):
    """dq = σ q ∘ dW, dp = −σ p ∘ dW: midpoint has a pole at ΔW = ±2/σ."""
    return da.System(
        H=lambda q, p, sigma: 0.0 * q[0],
        h=[lambda q, p, sigma: sigma * q[0] * p[0]],
        dim=1,
        params=sigma,
        name="strained",
    )


@pytest.mark.slow
def test_a_pole_within_reach_is_refused_and_one_out_of_reach_is_not():
    start = ([1.0], [1.0])
    # Poles at 4 standard deviations, beyond a bound that keeps the noise, and at 2, below it.
    with pytest.raises(ValueError, match=r"midpoint on 'strained' .*da.Gaussian\(truncation=5\)"):
        exact_moments(strained(1.0), da.midpoint(), start, dt=0.25, steps=1)
    truncated = da.Gaussian(truncation=5)
    found = exact_moments(strained(1.0), da.midpoint(), start, dt=0.25, steps=1, noise=truncated)
    assert np.all(np.isfinite(found.second))
    with pytest.raises(ValueError, match=r"midpoint on 'strained' .*\. Use a smaller dt, a weak"):
        exact_moments(strained(2.0), da.midpoint(), start, dt=0.25, steps=1)
    # Two poles at 40 standard deviations.
    found = exact_moments(strained(0.1), da.midpoint(), start, dt=0.25, steps=1)
    assert found.second[0, 0] == pytest.approx(np.exp(2 * 0.1**2 * 0.25), rel=1e-5)


def test_poles_close_to_the_real_axis_are_integrated():
    beta, nu, dt = 6.0, 0.1, 0.5
    A, (B,) = kubo_matrices(beta, nu)
    one, start = np.eye(3), np.array([1.0, 2.0, 0.0])

    def square(x):
        X = dt * A + np.sqrt(dt) * x * B
        w = np.linalg.solve(one - X / 2, (one + X / 2) @ start)
        return w[1] ** 2 * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)

    expected, _ = integrate.quad(square, -12, 12, epsabs=1e-13, epsrel=1e-13, limit=500)
    system = da.systems.damped_kubo(beta=beta, nu=nu)
    found = exact_moments(system, da.midpoint(), KUBO_START, dt=dt, steps=1)
    assert found.second[0, 0] == pytest.approx(expected, rel=1e-11)


def test_noise_that_a_method_cannot_use_is_refused():
    with pytest.raises(ValueError, match=r"rs1 needs the increments \['mixed'\], which Gaussian"):
        exact_moments(MIXED, da.rs1(), MIXED_START, dt=0.1, steps=1, noise=da.Gaussian())
    recorded = da.Recorded(da.Increments(np.zeros((5, 1))))
    with pytest.raises(ValueError, match="Recorded noise has no law"):
        exact_moments(KUBO, da.midpoint(), KUBO_START, dt=0.1, steps=1, noise=recorded)


# The record


def test_moments_at_other_times():
    moments = exact_moments(KUBO, da.midpoint(), KUBO_START, dt=0.5, steps=17)
    several = moments.at([40, 0, 17, 17])
    assert several.mean.shape == (4, 2)
    assert several.second.shape == (4, 2, 2)
    np.testing.assert_array_equal(several.t, [20.0, 0.0, 8.5, 8.5])
    np.testing.assert_allclose(several.second[2], moments.second, rtol=1e-13)
    np.testing.assert_allclose(several.energy[0], moments.at(40).energy, rtol=1e-13)
    np.testing.assert_array_equal(several.second[1], [[4.0, 0.0], [0.0, 0.0]])
    straight = exact_moments(KUBO, da.midpoint(), KUBO_START, dt=0.5, steps=[40, 0, 17, 17])
    np.testing.assert_array_equal(straight.second, several.second)


def test_covariance_and_expectations_of_quadratic_functions():
    moments = exact_moments(MIXED, da.heun(), MIXED_START, dt=0.2, steps=5)
    mean, second = moments.mean, moments.second
    np.testing.assert_allclose(moments.covariance, second - np.outer(mean, mean))
    assert np.linalg.eigvalsh(moments.covariance).min() > 0
    found = moments.expect(lambda q, p: 3.0 + q[0] - 2 * p[0] + q[0] * p[0] + p[0] ** 2)
    expected = 3 + mean[0] - 2 * mean[1] + second[0, 1] + second[1, 1]
    assert found == pytest.approx(expected, rel=1e-14)
    assert "Moments of heun on 'mixed': dt=0.2, steps=5, second moments" in repr(moments)


def test_equally_likely_initial_states():
    q0, p0 = np.array([[2.0], [-1.0]]), np.array([[0.5], [0.25]])
    both = exact_moments(KUBO, da.midpoint(), (q0, p0), dt=0.5, steps=9)
    each = [exact_moments(KUBO, da.midpoint(), (q0[i], p0[i]), dt=0.5, steps=9) for i in range(2)]
    assert_close(both, (each[0].mean + each[1].mean) / 2, (each[0].second + each[1].second) / 2)


def test_without_the_global_switch_the_numbers_are_the_same():
    expected = exact_moments(KUBO, da.midpoint(), KUBO_START, dt=0.5, steps=5)
    jax.config.update("jax_enable_x64", False)
    found = exact_moments(KUBO, da.midpoint(), KUBO_START, dt=0.5, steps=5)
    assert found.second.dtype == np.float64
    np.testing.assert_array_equal(found.second, expected.second)
    assert found.energy == expected.energy


# Refusals


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("pendulum", r"∂H/∂q, ∂h\[0\]/∂q, f\[0\] are"),
        ("van_der_pol", "F is"),
        ("lenard_bernstein", "∂H/∂q is"),
        ("two_noise", r"∂H/∂q, ∂h\[0\]/∂p"),
    ],
)
def test_nonlinear_systems_are_refused_with_the_terms_to_blame(name, terms):
    with pytest.raises(ValueError, match=rf"'{name}' does not have linear dynamics: {terms}"):
        exact_moments(da.SYSTEMS[name](), da.midpoint(), KUBO_START, dt=0.1, steps=1)


def test_a_parameter_that_removes_the_nonlinear_term_makes_a_system_linear():
    system = da.systems.van_der_pol(nu=0.0, sigma=0.3)
    moments = exact_moments(system, da.midpoint(), ([1.0], [1.0]), dt=0.1, steps=100)
    solution = solution_moments(system, ([1.0], [1.0]), dt=0.1, steps=100)
    assert moments.energy == pytest.approx(solution.energy, rel=1e-3)
    assert solution.energy == pytest.approx(1 + 0.3**2 / 2 * 10, rel=1e-12)


def test_observables_that_are_not_quadratic_are_refused():
    moments = exact_moments(KUBO, da.midpoint(), KUBO_START, dt=0.5, steps=1)
    with pytest.raises(ValueError, match="not quadratic"):
        moments.expect(lambda q, p, params: q[0] ** 4)
    with pytest.raises(ValueError, match="must be a scalar"):
        moments.expect(lambda q, p, params: q)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dt": 0.0}, ValueError, "dt must be a positive number"),
        ({"dt": True}, ValueError, "dt must be a positive number"),
        ({"steps": -1}, ValueError, "steps must be a whole number"),
        ({"steps": 2.5}, ValueError, "steps must be a whole number"),
        ({"initial": ([2], [0.0])}, TypeError, "q0 has int64 entries"),
        ({"initial": ([2.0], [0.0, 1.0])}, ValueError, r"p0 must be finite and have shape \(1,\)"),
        ({"initial": ([np.nan], [0.0])}, ValueError, "q0 must be finite"),
        ({"initial": [2.0]}, TypeError, r"must be a pair \(q0, p0\)"),
        (
            {"initial": (np.zeros((2, 1)), np.zeros((3, 1)))},
            ValueError,
            "q0 has 2 states and p0 has 3",
        ),
        ({"method": da.midpoint}, TypeError, "method must be a da.Method"),
        ({"system": "kubo"}, TypeError, "system must be a da.System"),
        (
            {
                "system": da.systems.langevin(dim=30),
                "initial": (np.zeros(30), np.zeros(30)),
            },
            ValueError,
            "dim=30: second moments without sampling",
        ),
    ],
)
def test_wrong_arguments(change, error, message):
    arguments = {
        "system": KUBO,
        "method": da.midpoint(),
        "initial": KUBO_START,
        "dt": 0.5,
        "steps": 1,
        **change,
    }
    with pytest.raises(error, match=message):
        exact_moments(**arguments)


def test_parameters_that_were_changed_in_place_count():
    system = da.System(
        H=lambda q, p, params: p @ p / 2 + params["k"] * q @ q / 2,
        F=lambda q, p, params: -p,
        h=[lambda q, p, params: 0.3 * q[0]],
        dim=1,
        params={"k": np.array(1.0)},
    )
    np.testing.assert_allclose(exact_stationary_covariance(system)[0, 0], 0.045)
    system.params["k"][...] = 4.0
    np.testing.assert_allclose(exact_stationary_covariance(system)[0, 0], 0.045 / 4)
