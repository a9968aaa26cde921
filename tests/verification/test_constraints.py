"""Systems with constraints: structure on the manifold, stationary laws, orders, long runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import dalembert as da
from dalembert.systems.brownian_sphere_system import mean_height
from dalembert.systems.double_pendulum_system import angle_density, double_pendulum_start
from dalembert.systems.jointed_chain_system import end_to_end_squared, jointed_chain_start
from dalembert.systems.ring_system import ring_start
from dalembert.systems.triangles_system import triangles_start

theory = da.theory
SPHERE = da.systems.brownian_sphere()
START = (np.array([0.6, 0.0, 0.8]), np.array([0.24, 0.4, -0.18]))
HEUN = da.ProjectedMethod(da.heun(), "projected heun")
SLOW = pytest.mark.slow


def quartic(F=None, h=()):
    """A point on a sphere in a field that is not linear, with a symmetry around the z axis."""

    def H(q, p):
        return p @ p / 2 + 2 * q[2] + q[2] ** 4

    def g(q):
        return jnp.stack([q @ q - 1])

    return da.System(H, F=F, h=list(h), dim=3, constraints=g)


# Structure


@pytest.mark.parametrize(
    "method",
    [
        da.rattle(),
        pytest.param(da.projected_midpoint(), marks=pytest.mark.slow),
        pytest.param(da.ProjectedMethod(da.dirk(0.3)), marks=pytest.mark.slow),
    ],
    ids=lambda m: m.name,
)
def test_steps_without_forces_are_symplectic_on_the_tangent_bundle(method):
    system = quartic(h=[lambda q, p: 0.4 * q[0] * q[2]])
    found = theory.tangent_pairs(system, method, *START, 0.2, [0.3])
    assert found.symplectic_defect < 1e-14
    control = theory.tangent_pairs(system, HEUN, *START, 0.2, [0.3])
    assert control.symplectic_defect > 1e-5


@pytest.mark.slow
def test_a_pendulum_of_two_rods_is_symplectic_and_g_baoab_without_friction():
    system = da.systems.double_pendulum()
    q, p = da.project(system, double_pendulum_start()[0], np.array([[0.3, 0.5], [-0.2, 0.9]]))
    assert theory.tangent_pairs(system, da.rattle(), q, p, 0.1, []).symplectic_defect < 1e-14
    frictionless = quartic(h=[lambda q, p: 0.4 * q[0]])
    found = theory.tangent_pairs(frictionless, da.g_baoab(), *START, 0.2, [0.3])
    assert found.symplectic_defect < 1e-14


@pytest.mark.slow
def test_steps_are_generated_by_a_discrete_hamiltonian():
    system = quartic(F=lambda q, p: -0.3 * p, h=[lambda q, p: 0.4 * q[0] * q[2]])
    dt, dW = 0.2, np.array([[0.3]])
    for method, is_kept in ((da.rattle(), True), (da.projected_midpoint(), True), (HEUN, False)):
        q, p, _ = da.step(system, method, *START, dt, dW[0])
        path = np.stack([START[0], q]), np.stack([START[1], p])
        miss = theory.generating_residual(system, method, *path, dt, dW).largest
        assert (miss < 1e-14) == is_kept, (method.name, miss)
        if is_kept:
            found = da.discrete_hamiltonian(system, method, START[0], p, dt, dW[0])
            assert np.all(np.isfinite(np.concatenate([found.F_minus, found.F_plus])))


@pytest.mark.slow
def test_momentum_maps_have_their_balance():
    def swirl(q, p):
        return -0.3 * p + 0.2 * jnp.stack([-p[1], p[0], 0 * p[2]])

    system = quartic(F=swirl, h=[lambda q, p: 0.4 * q[2]])
    rotation = theory.rotation(3)
    assert theory.check_symmetry(system, rotation).discrete
    balance = theory.balance_residual(system, da.rattle(), START, rotation, 0.1, 10)
    assert np.max(np.abs(balance.change)) > 1e-3
    assert balance.largest < 1e-14
    control = theory.balance_residual(system, HEUN, START, rotation, 0.1, 10)
    assert control.largest > 1e-9


def test_a_surface_without_the_symmetry_has_no_balance():
    def g(q):
        return jnp.stack([q[0] ** 2 + 2 * q[1] ** 2 + q[2] ** 2 - 1])

    egg = da.System(lambda q, p: p @ p / 2, dim=3, constraints=g)
    assert not theory.check_symmetry(egg, theory.rotation(3)).discrete


# Long runs


def along(system, method, start, dt, steps, every, observe):
    run = da.simulate(
        system, method, start, dt=dt, t_end=dt * steps, paths=1, seed=0,
        save_every=every, observe=observe, progress=False,
    )  # fmt: skip
    assert run.failed == 0
    return {name: run.maximum[name] for name in observe}


def misses(system):
    """The largest |g| and |Dg M⁻¹ p|."""

    def largest(q, p, params):
        def g(q):
            return system.constraints(q, params)

        v = jax.grad(system.H, 1)(q, p, params)
        return jnp.max(jnp.abs(jnp.stack(jax.jvp(g, (q,), (v,)))))

    return largest


CHAIN = da.systems.jointed_chain(4)
LONG = 1_000_000


@pytest.mark.parametrize(
    ("system", "method", "start", "steps"),
    [
        pytest.param(SPHERE, da.rattle(), START, 2000, id="sphere rattle"),
        pytest.param(SPHERE, da.rattle(), START, LONG, id="sphere rattle long", marks=SLOW),
        pytest.param(SPHERE, da.g_baoab(), START, LONG, id="sphere g_baoab long", marks=SLOW),
        pytest.param(
            CHAIN, da.rattle(), jointed_chain_start(4), LONG, id="chain rattle long", marks=SLOW
        ),
        pytest.param(
            CHAIN, da.g_baoab(), jointed_chain_start(4), LONG, id="chain g_baoab long", marks=SLOW
        ),
    ],
)
def test_constraints_are_kept(system, method, start, steps):
    """At every tenth step. The chain drifts away: at 160 lengths from 0 rounding is 3e−14."""
    found = along(system, method, start, 0.05, steps, 10, {"miss": misses(system)})["miss"]
    assert len(found) == steps // 10 + 1
    assert np.max(found) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rattle", "weak_rattle", "projected_midpoint", "g_baoab"])
@pytest.mark.parametrize(
    ("system", "start", "dt"),
    [
        pytest.param(SPHERE, START, 0.05, id="sphere"),
        pytest.param(
            da.systems.double_pendulum(gamma=1.0), double_pendulum_start(), 0.05, id="pendulum"
        ),
        pytest.param(da.systems.ring(6), ring_start(6), 0.02, id="ring"),
        pytest.param(
            da.systems.triangles(8, density=0.1), triangles_start(8, 0.1), 0.01, id="triangles"
        ),
    ],
)
def test_constraints_are_kept_at_every_step(system, start, dt, name):
    """10⁴ steps, because to look at each costs several times as much as the step."""
    method, steps = da.METHODS[name](), 10_000
    found = along(system, method, start, dt, steps, 1, {"miss": misses(system)})["miss"]
    assert len(found) == steps + 1
    assert np.max(found) < 1e-12


@pytest.mark.parametrize("steps", [4000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_energy_stays_bounded_without_noise(steps):
    system = quartic()

    def bound_and_drift(method, steps):
        found = along(system, method, START, 0.05, steps, 10, {"energy": system.H})["energy"]
        third = len(found) // 3
        drift = np.mean(found[-third:]) - np.mean(found[:third])
        return np.max(np.abs(found - found[0])), abs(drift)

    bound, drift = bound_and_drift(da.rattle(), steps)
    assert bound < 0.012
    assert drift < 1e-3
    # That of Heun's method with the same projections grows: a control.
    bound, drift = bound_and_drift(HEUN, 4000)
    assert bound > 0.1
    assert drift > 0.05


# Stationary laws


def height(q, p, params):
    return q[2]


def mean_of_heights(method, dt, paths, t_end=20.0):
    run = da.simulate(
        SPHERE, method, START, dt=dt, t_end=t_end, paths=paths, seed=1,
        observe={"z": height}, save_every=round(t_end / dt / 8), progress=False,
    )  # fmt: skip
    assert run.failed == 0
    return np.mean(run.mean["z"][4:]), np.mean(run.stderr["z"][4:])


@pytest.mark.slow
def test_the_mean_height_on_the_sphere():
    """FACTS: −0.5304 ± 6e−4 for g-BAOAB with two geodesic steps at h = 0.4."""
    assert mean_height() == pytest.approx(-0.5373147, abs=1e-7)
    mean, stderr = mean_of_heights(da.g_baoab(), 0.4, 4000)
    assert abs(mean + 0.5304) < 4 * (stderr + 6e-4)
    # With the field turned round it is not: a control.
    assert abs(mean - mean_height(-2.0)) > 100 * stderr


@pytest.mark.slow
@pytest.mark.parametrize("method", [da.weak_rattle(), da.rattle()], ids=lambda m: m.name)
def test_the_mean_height_by_rattle(method):
    mean, stderr = mean_of_heights(method, 0.05, 50_000)
    assert abs(mean - mean_height()) < 4 * stderr + 1e-3


@pytest.mark.slow
def test_the_bias_of_the_mean_height_is_of_second_order():
    dts = np.array([0.3, 0.4, 0.6])  # at 0.8 a thousandth of the paths has no multipliers
    found = [mean_of_heights(da.g_baoab(), dt, 400_000, t_end=24.0) for dt in dts]
    errors, stderrs = np.array([(mean - mean_height(), e) for mean, e in found]).T
    assert np.all(errors > 5 * stderrs)
    slope = np.polyfit(np.log(dts), np.log(errors), 1)[0]
    assert abs(slope - 2) < 0.35, slope


FALSE_ALARM = 1e-6
"""The probability that a density is found to be another, with new seeds."""


def share_of_bins(density, bins, fine=32):
    """The probability of each of bins × bins squares of both angles, from hanging down."""
    middles = -np.pi + 2 * np.pi * (np.arange(bins * fine) + 0.5) / (bins * fine)
    values = density(middles[:, None], middles[None]).reshape(bins, fine, bins, fine)
    return values.sum(axis=(1, 3)) / values.sum()


@pytest.mark.slow
def test_angles_of_the_double_pendulum_have_the_density_of_the_metric():
    """One state of each path, so that samples are independent: a chi-squared test of 63 degrees."""
    gravity, bins, paths = 0.5, 8, 100_000
    system = da.systems.double_pendulum(gravity=gravity, gamma=1.0, temperature=1.0)
    run = da.simulate(
        system, da.g_baoab(), double_pendulum_start(), dt=0.1, t_end=20.0, paths=paths, seed=2,
        save_every=200, keep="final", progress=False,
    )  # fmt: skip
    assert run.failed == 0
    first, second = run.q[:, 0], run.q[:, 1] - run.q[:, 0]
    angles = [np.arctan2(rod[:, 0], -rod[:, 1]) for rod in (first, second)]
    edges = np.linspace(-np.pi, np.pi, bins + 1)
    counts, *_ = np.histogram2d(*angles, bins=(edges, edges))

    def of_rods(first, second):
        return angle_density(first, second, gravity=gravity)

    def of_stiff_springs(first, second):
        return of_rods(first, second) / np.sqrt(2 - np.cos(first - second) ** 2)

    def p_value(density):
        expected = paths * share_of_bins(density, bins)
        assert expected.min() > 100
        return stats.chisquare(counts.ravel(), expected.ravel()).pvalue

    assert p_value(of_rods) > FALSE_ALARM
    # That of stiff springs has no factor of the metric: a control.
    assert p_value(of_stiff_springs) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("paths", [20_000])
def test_ends_of_a_jointed_chain_are_as_far_apart_as_those_of_a_random_walk(paths):
    N = 4
    run = da.simulate(
        da.systems.jointed_chain(N), da.g_baoab(), jointed_chain_start(N),
        dt=0.2, t_end=30.0, paths=paths, seed=3, save_every=15, progress=False,
        observe={"square": lambda q, p, params: end_to_end_squared(q)},
    )  # fmt: skip
    assert run.failed == 0
    mean, stderr = np.mean(run.mean["square"][6:]), run.stderr["square"][-1]
    assert abs(mean - (N - 1)) < 4 * stderr
    # At the start it is not: a control.
    assert abs(run.mean["square"][0] - (N - 1)) > 10 * stderr


def mean_of_three_beads():
    """⟨R⟩ = ⟨√(2 + 2c)⟩ for the density √(4 − c²) of the cosine c between two rods."""

    def integral(f):
        return integrate.quad(lambda c: f(c) * np.sqrt(4 - c**2), -1, 1)[0]

    return integral(lambda c: np.sqrt(2 + 2 * c)) / integral(lambda c: 1.0)


@pytest.mark.slow
def test_three_beads_are_as_far_apart_as_the_metric_says():
    """Saves half a unit of time apart; the bias in dt is −0.016 dt², a third of an error here."""
    run = da.simulate(
        da.systems.jointed_chain(3), da.g_baoab(), jointed_chain_start(3),
        dt=0.1, t_end=40.0, paths=30_000, seed=5, save_every=5, progress=False,
        statistics={"R": da.TimeAverage(
            lambda q, p, params: jnp.sqrt(end_to_end_squared(q)), burn_in=10.0
        )},
    )  # fmt: skip
    assert run.failed == 0
    found, exact = run.statistics["R"], mean_of_three_beads()
    assert exact == pytest.approx(1.336864, abs=1e-6)
    assert abs(found.mean - exact) < 4 * found.stderr
    # Rods that know nothing of each other, a free random walk, have 4/3: a control.
    assert abs(found.mean - 4 / 3) > 5 * found.stderr


RING = da.systems.ring(6, mass=2.0, temperature=1.5)
TRIANGLES = da.systems.triangles(8, density=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "method", "start", "dt", "exact"),
    [
        pytest.param(RING, da.rattle(), ring_start(6), 0.05, 6 * 1.5, id="ring rattle"),
        pytest.param(RING, da.g_baoab(), ring_start(6), 0.1, 6 * 1.5, id="ring g_baoab"),
        pytest.param(
            TRIANGLES, da.g_baoab(), triangles_start(8, 0.1), 0.02, 3 * 8, id="triangles g_baoab"
        ),
    ],
)
def test_kinetic_energies_count_the_degrees_of_freedom_that_are_left(
    system, method, start, dt, exact
):
    """T/2 for each: 2N for a ring of N beads, ⟨Σp²⟩ = 2N mT, and 6N for N triangles."""

    def kinetic(q, p, params):
        return jnp.sum(p**2 / (2 * params["mass"]))

    run = da.simulate(
        system, method, start, dt=dt, t_end=20.0, paths=400, seed=6, save_every=round(0.5 / dt),
        statistics={"K": da.TimeAverage(kinetic, burn_in=8.0)}, progress=False,
    )  # fmt: skip
    assert run.failed == 0
    found, temperature = run.statistics["K"], system.params["temperature"]
    assert abs(found.mean - exact) < 4 * found.stderr
    # With one degree more or less it is not: a control.
    assert min(abs(found.mean - exact - x * temperature / 2) for x in (1, -1)) > 4 * found.stderr


# Orders


@pytest.mark.slow
@pytest.mark.parametrize("method", [da.rattle(), da.g_baoab()], ids=lambda m: m.name)
def test_the_strong_order_on_the_sphere_is_one(method):
    found = da.strong_order(SPHERE, method, START, t_end=1.0, paths=500, steps=(16, 32, 64, 128))
    low, high = found.interval
    assert low - 0.1 < 1.0 < high + 0.1, str(found)


def coarse_error(method, steps, fine):
    """The root mean square distance of ends on coarsened paths from those of a fine run."""
    paths = 64
    path = da.brownian_path(0, 0, 1.0 / fine, paths * fine, 3)
    dW = np.asarray(path.dW).reshape(paths, fine, 3)

    def ends(n):
        coarse = dW.reshape(paths, n, fine // n, 3).sum(axis=2)

        def one(increments):
            def advance(state, dW):
                q, p, info = da.step(SPHERE, method, *state, 1.0 / n, dW)
                return (q, p), info.converged

            (q, p), ok = jax.lax.scan(advance, tuple(map(jnp.asarray, START)), increments)
            return jnp.concatenate([q, p]), jnp.all(ok)

        z, ok = jax.jit(jax.vmap(one))(coarse)
        assert bool(jnp.all(ok))
        return np.asarray(z)

    return np.sqrt(np.mean(np.sum((ends(steps) - ends(fine)) ** 2, axis=1)))


@pytest.mark.slow
def test_errors_on_coarsened_paths_halve_with_the_step():
    errors = [coarse_error(da.rattle(), n, 512) for n in (8, 16, 32)]
    slope = -np.polyfit(np.log([8, 16, 32]), np.log(errors), 1)[0]
    assert abs(slope - 1) < 0.2, (slope, errors)
