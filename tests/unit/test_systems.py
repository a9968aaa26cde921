"""The ready-made systems: their equations, invariants, exact results and error messages."""

import inspect
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, linalg, sparse, special

import dalembert as da
from dalembert.system import System
from dalembert.systems import (
    FEW,
    damped_kubo,
    langevin,
    lenard_bernstein,
    lorentz,
    pendulum,
    planar,
    two_noise,
    van_der_pol,
)
from dalembert.systems.kubo_system import kubo_energy, kubo_path
from dalembert.systems.langevin_system import gibbs_weight, harmonic
from dalembert.systems.lenard_bernstein_system import (
    bump_on_tail_density,
    bump_on_tail_v,
    bump_on_tail_x,
    ergodic_energy,
    gibbs_density,
    gibbs_density_v,
    gibbs_density_x,
    initial_energy,
)
from dalembert.systems.lorentz_system import INITIAL_ENERGY, initial_density
from dalembert.systems.van_der_pol_system import STATIONARY_ENERGY, averaged_energy
from tiers import tiered

pi = math.pi


def points(dim, count=5, seed=0):
    """Random points (q, p) of shape (dim,) each."""
    z = np.random.default_rng(seed).normal(size=(count, 2, dim))
    return [(q, p) for q, p in z]


def quartic(q):
    return jnp.sum(q**4) / 4 + q[0] * jnp.sum(jnp.sin(q))


# --------------------------------------------------------------------------------------------
# The equations, written out by hand: (dq, dp) of the drift, then (dq, dp) of every noise.


def kubo_sde(q, p, beta=0.7, nu=0.3):
    drift = (p, -q - nu * p)
    return drift, [(beta * p, -beta * q - beta * nu * p)]


def van_der_pol_sde(q, p, nu=0.3, sigma=0.4):
    return (p, -q + nu * (1 - q**2) * p), [(0 * q, sigma + 0 * q)]


def lenard_bernstein_sde(q, p, nu=0.2, mu=1.5, D=0.8, E0=2.0):
    field = E0 * np.cos(4 * pi * q)
    return (p, -field - nu * mu * p), [(0 * q, math.sqrt(nu) * D + 0 * q)]


def lorentz_sde(q, p, nu=0.2, E0=2.0):
    (x, y), (vx, vy) = q, p
    Ex = E0 * math.cos(4 * pi * x) * math.sin(4 * pi * y)
    Ey = E0 * math.sin(4 * pi * x) * math.cos(4 * pi * y)
    turn = math.sqrt(2 * nu) * np.array([vy, -vx])
    return (p, np.array([-Ex, -Ey])), [(0 * q, turn)]


def langevin_sde(q, p, gamma=0.7, temperature=0.4, mass=2.5):
    slope = q**3 + q[0] * np.cos(q)
    slope[0] += np.sum(np.sin(q))
    noise = math.sqrt(2 * gamma * mass * temperature) * np.eye(3)
    return (p / mass, -slope - gamma * p), [(0 * q, row) for row in noise]


def pendulum_sde(q, p, nu=0.3, sigma=0.6, kappa=0.4):
    return (p, -np.sin(q) - nu * p), [(0 * q, (sigma - kappa * p) * np.sin(q))]


def two_noise_sde(q, p, nu=0.3, beta1=0.6, beta2=0.4, kappa=0.2):
    drift = (p, -q - np.sin(q) - nu * p)
    second = beta2 * np.sin(q) - kappa * np.sin(p)
    return drift, [(beta1 * np.cos(p), 0 * q), (0 * q, second)]


def planar_sde(q, p, nu=0.3, delta=0.7, beta=0.6, kappa=0.4):
    s, r2 = q @ p, q @ q
    n = 1 + r2 + p @ p
    drift = (p, -(1 + delta * r2) * q - nu * s * q / (1 + r2))
    dq = beta * (q / n - 2 * s * p / n**2)
    dp = -beta * (p / n - 2 * s * q / n**2) - kappa * s * q / (1 + r2)
    return drift, [(dq, dp)]


CASES = {
    "damped_kubo": (damped_kubo(0.7, 0.3), kubo_sde),
    "van_der_pol": (van_der_pol(0.3, 0.4), van_der_pol_sde),
    "lenard_bernstein": (lenard_bernstein(0.2, 1.5, 0.8, 2.0), lenard_bernstein_sde),
    "lorentz": (lorentz(0.2, 2.0), lorentz_sde),
    "langevin": (langevin(quartic, 3, 0.7, 0.4, 2.5), langevin_sde),
    "pendulum": (pendulum(0.3, 0.6, 0.4), pendulum_sde),
    "two_noise": (two_noise(0.3, 0.6, 0.4, 0.2), two_noise_sde),
    "planar": (planar(0.3, 0.7, 0.6, 0.4), planar_sde),
}


@cache
def fields(name):
    """Drift and noise fields of a system, compiled: a function of (params, q, p), q of (n, dim)."""
    system, _ = CASES[name]

    def at(params, q, p):
        same = system.with_params(params)
        return (*same.drift(q, p), *same.diffusion(q, p))

    return jax.jit(jax.vmap(at, in_axes=(None, 0, 0)))


def field_error(name, params):
    """The largest difference between a system's fields and the hand-written right-hand side."""
    system, sde = CASES[name]
    at = points(system.dim)
    expected = []
    for q, p in at:
        drift, noises = sde(q, p)
        expected.append((*drift, *(np.stack(part) for part in zip(*noises, strict=True))))
    found = fields(name)(params, *(np.stack(z) for z in zip(*at, strict=True)))
    worst = 0.0
    for got, *want in zip(found, *expected, strict=True):
        assert got.shape == np.shape(want)
        worst = max(worst, float(np.max(np.abs(got - np.stack(want)))))
    return worst


def test_every_system_has_a_case():
    assert set(CASES) == set(FEW)


@pytest.mark.parametrize("name", FEW)
def test_fields_are_those_of_the_sde(name):
    assert field_error(name, CASES[name][0].params) < 2e-14


@pytest.mark.parametrize("name", FEW)
def test_fields_with_other_parameters_differ(name):
    """The control: the comparison above notices when any one parameter is changed."""
    params = CASES[name][0].params
    for parameter, value in params.items():
        assert field_error(name, {**params, parameter: 1.1 * value}) > 1e-4, parameter


# --------------------------------------------------------------------------------------------
# The registry


@pytest.mark.parametrize("name", FEW)
def test_factories_need_no_arguments(name):
    system = FEW[name]()
    assert isinstance(system, System)
    assert system.name == name
    assert system.noises == len(system.diffusion(*points(system.dim)[0])[0])
    assert all(type(value) is float for value in system.params.values())


@pytest.mark.parametrize("name", FEW)
def test_docstrings_have_the_parts_of_the_grammar(name):
    doc = inspect.getdoc(FEW[name]) or ""
    for part in ("dW", "H = ", "Args:", "Invariants:", "Exact results:", "Source: "):
        assert part in doc
    for parameter in FEW[name]().params:
        assert f"\n    {parameter}: " in doc


@pytest.mark.parametrize("name", FEW)
def test_sources_are_in_the_bibliography(name):
    bibliography = (Path(__file__).parents[2] / "docs" / "references.bib").read_text("utf-8")
    source = (FEW[name].__doc__ or "").split("Source: ")[1]
    keys = re.findall(r"`(\w+\d{4}\w*)`", source)
    assert keys
    assert all(f"{{{key}," in bibliography for key in keys), keys


def test_the_paper_s_parameters_are_the_defaults():
    assert damped_kubo().params == {"beta": 0.5, "nu": 0.001}
    assert van_der_pol().params == {"nu": 0.001, "sigma": 0.05}
    assert lenard_bernstein().params == {"nu": 0.01, "mu": 1.0, "D": math.sqrt(2), "E0": 3.0}
    assert lorentz().params == {"nu": 0.005, "E0": 3.0}


@pytest.mark.parametrize("name", FEW)
def test_fields_have_derivatives_in_every_parameter(name):
    system, _ = CASES[name]
    q, p = (np.stack(z) for z in zip(*points(system.dim), strict=True))

    def at(params):
        return jnp.concatenate([x.ravel() for x in fields(name)(params, q, p)])

    slopes = jax.jit(jax.jacfwd(at))(system.params)
    for parameter, value in system.params.items():
        up, down = (at({**system.params, parameter: value + e}) for e in (1e-5, -1e-5))
        assert np.allclose(slopes[parameter], (up - down) / 2e-5, atol=1e-8)
        assert float(jnp.max(jnp.abs(slopes[parameter]))) > 1e-3


def test_factories_can_be_differentiated_through():
    q, p = jnp.ones(1), jnp.ones(1)
    slope = jax.grad(lambda nu: lenard_bernstein(nu=nu).diffusion(q, p)[1][0, 0])(0.04)
    assert np.isclose(slope, math.sqrt(2) / (2 * math.sqrt(0.04)), rtol=1e-14)


def test_integers_are_good_parameters():
    assert langevin(gamma=2, mass=np.float32(0.5)).params["gamma"] == 2.0
    assert type(langevin(gamma=2, mass=np.float32(0.5)).params["mass"]) is float


# --------------------------------------------------------------------------------------------
# Invariants


def rate_of_change(system, function):
    """The largest derivative of a function along the drift and along every noise field."""

    def rates(q, p):
        grad_q, grad_p = jax.grad(function, argnums=(0, 1))(q, p, system.params)
        fields = [system.drift(q, p), *zip(*system.diffusion(q, p), strict=True)]
        return jnp.stack([grad_q @ dq + grad_p @ dp for dq, dp in fields])

    q, p = (np.stack(z) for z in zip(*points(system.dim, count=8), strict=True))
    return float(jnp.max(jnp.abs(jax.jit(jax.vmap(rates))(q, p))))


def test_lorentz_and_planar_have_their_invariants():
    having = {name: list(make().invariants) for name, make in FEW.items()}
    assert {name: found for name, found in having.items() if found} == {
        "lorentz": ["energy"],
        "planar": ["angular_momentum"],
    }


@pytest.mark.parametrize("name", ["lorentz", "planar"])
def test_invariants_are_constant_along_every_field(name):
    system, _ = CASES[name]
    for invariant in system.invariants.values():
        assert rate_of_change(system, invariant) < 1e-14


def test_functions_that_are_not_invariant_change():
    def angular_momentum(q, p, params):
        return q[0] * p[1] - q[1] * p[0]

    assert rate_of_change(CASES["planar"][0], CASES["planar"][0].H) > 0.1
    assert rate_of_change(CASES["lorentz"][0], angular_momentum) > 0.1


def test_the_printed_lorentz_forcing_does_not_keep_the_energy():
    def printed(q, p, params):
        return jnp.sqrt(2 * params["nu"]) * jnp.stack([p[0], -p[1]])

    system = lorentz(0.2)
    wrong = System(H=system.H, f=[printed], dim=2, params=system.params)
    assert rate_of_change(wrong, system.H) > 0.1


def test_kubo_without_damping_keeps_the_energy():
    assert rate_of_change(damped_kubo(nu=0.0), damped_kubo().H) < 1e-14
    assert rate_of_change(damped_kubo(nu=0.1), damped_kubo().H) > 1e-2


def test_planar_forces_do_no_work_against_rotations():
    system, _ = CASES["planar"]
    for q, p in points(2):
        for force in (system.F, *system.f):
            F = force(jnp.asarray(q), jnp.asarray(p), system.params)
            assert abs(float(-q[1] * F[0] + q[0] * F[1])) < 1e-15
            assert float(jnp.max(jnp.abs(F))) > 1e-3


# --------------------------------------------------------------------------------------------
# Damped Kubo oscillator


@pytest.mark.parametrize(
    "t, expected",
    [
        (1, "1.99855296666"),
        (10, "1.98010871276"),
        (100, "1.80969790957"),
        (1000, "0.735851041914"),
        (5000, "0.0134843224356"),
    ],
)
def test_kubo_energy_has_the_reference_values(t, expected):
    assert f"{float(kubo_energy(t)):.12g}" == expected


def test_kubo_path_is_the_matrix_exponential_at_the_shifted_time():
    beta, nu, z0 = 0.7, 0.9, np.array([1.3, -0.4])
    for t, W in ((0.0, 0.0), (0.5, -1.1), (3.0, 2.0), (20.0, -5.0)):
        exact = linalg.expm((t + beta * W) * np.array([[0, 1], [-1, -nu]])) @ z0
        assert np.allclose(kubo_path(t, W, *z0, beta, nu), exact, rtol=1e-13, atol=1e-13)


def kubo_path_defect(beta, beta_of_path):
    """How far ∂z/∂t and ∂z/∂W of the path are from the drift and the noise field."""
    system, nu = damped_kubo(beta, 0.9), 0.9

    def path(t, W):
        return jnp.stack(kubo_path(t, W, 1.3, -0.4, beta_of_path, nu))

    worst = 0.0
    for t, W in ((0.3, 0.2), (2.0, -1.0), (5.0, 1.5)):
        q, p = (z[None] for z in path(t, W))
        along_t, along_W = jax.jacobian(path, argnums=(0, 1))(t, W)
        drift = jnp.concatenate(system.drift(q, p))
        noise = jnp.concatenate([x[0] for x in system.diffusion(q, p)])
        worst = max(
            worst, *(float(jnp.max(jnp.abs(x))) for x in (along_t - drift, along_W - noise))
        )
    return worst


def test_kubo_path_solves_the_stratonovich_equation():
    """z(t, W) solves it if ∂z/∂t is the drift and ∂z/∂W the noise field."""
    assert kubo_path_defect(0.7, 0.7) < 1e-14
    assert kubo_path_defect(0.7, 0.6) > 1e-2


@pytest.mark.parametrize("q0, p0, beta, nu", [(2.0, 0.0, 0.5, 0.001), (1.3, -0.4, 0.7, 0.9)])
def test_kubo_energy_is_the_mean_over_the_paths(q0, p0, beta, nu):
    x, weights = np.polynomial.hermite_e.hermegauss(80)
    for t in (0.5, 2.0, 7.0):
        q, p = kubo_path(t, math.sqrt(t) * x, q0, p0, beta, nu)
        mean = weights @ ((q**2 + p**2) / 2) / math.sqrt(2 * pi)
        assert np.isclose(kubo_energy(t, q0, p0, beta, nu), mean, rtol=1e-12)


def test_kubo_results_broadcast_and_are_float64_with_the_switch_off():
    t, W = np.linspace(0.0, 3.0, 4), np.zeros((5, 4))
    with jax.enable_x64(False):
        q, p = kubo_path(t, W)
        energy = kubo_energy(t)
    assert q.shape == p.shape == (5, 4)
    assert q.dtype == energy.dtype == np.float64
    assert np.array_equal(energy, kubo_energy([0, 1, 2, 3]))


def test_kubo_energy_can_be_differentiated():
    slope = jax.grad(lambda nu: kubo_energy(10.0, nu=nu))(0.1)
    up, down = kubo_energy(10.0, nu=0.1 + 1e-6), kubo_energy(10.0, nu=0.1 - 1e-6)
    assert np.isclose(slope, (up - down) / 2e-6, rtol=1e-8)


@pytest.mark.parametrize("nu", [-0.1, 2.0, 3.0, math.nan, np.array([0.1, 2.5])])
def test_kubo_results_are_for_the_underdamped_oscillator(nu):
    with pytest.raises(ValueError, match=r"nu is .*must be in 0 <= nu < 2.*simulate damped_kubo"):
        kubo_energy(1.0, nu=nu)
    with pytest.raises(ValueError, match="underdamped"):
        kubo_path(1.0, 0.0, nu=nu)


# --------------------------------------------------------------------------------------------
# Van der Pol


def test_van_der_pol_stationary_energy_agrees_with_averaging():
    assert f"{averaged_energy():.6f}" == "2.315957"
    assert abs(STATIONARY_ENERGY - averaged_energy()) < 2e-6
    assert abs(2.3165 - averaged_energy()) > 5e-4


@pytest.mark.parametrize("nu, sigma", [(0.001, 0.05), (0.3, 0.2), (0.01, 0.5)])
def test_averaged_energy_is_the_mean_of_its_density(nu, sigma):
    def weight(E):
        return math.exp(-nu * (E - 2) ** 2 / (2 * sigma**2))

    reach = 2 + 40 * sigma / math.sqrt(nu)
    norm = integrate.quad(weight, 0, reach, epsabs=0, epsrel=1e-12, limit=200, points=[2])[0]
    first = integrate.quad(
        lambda E: E * weight(E), 0, reach, epsabs=0, epsrel=1e-12, limit=200, points=[2]
    )[0]
    assert np.isclose(averaged_energy(nu, sigma), first / norm, rtol=1e-11)


def test_averaged_energy_density_is_stationary_for_the_averaged_equation():
    """The averages over the phase of the energy's drift and diffusion, from the Itô equation."""
    nu, sigma = 0.3, 0.4
    ito = jax.jit(van_der_pol(nu, sigma).ito)
    theta = 2 * pi * np.arange(16) / 16
    for E in (0.5, 2.0, 3.5):
        drift, diffusion = 0.0, 0.0
        for angle in theta:
            q, p = math.sqrt(2 * E) * np.array([[math.cos(angle)], [math.sin(angle)]])
            A, B = map(np.asarray, ito(q, p))
            drift += float(q @ A[:1] + p @ A[1:] + np.sum(B**2) / 2) / 16
            diffusion += float(np.sum((q @ B[:1] + p @ B[1:]) ** 2)) / 16
        assert np.isclose(drift, nu * (E - E**2 / 2) + sigma**2 / 2, rtol=1e-13)
        assert np.isclose(diffusion, sigma**2 * E, rtol=1e-13)
        # Zero flux: drift ρ = (diffusion ρ)'/2 with ρ'/ρ = −ν(E − 2)/σ².
        flux = drift - (sigma**2 + diffusion * (-nu * (E - 2) / sigma**2)) / 2
        assert abs(flux) < 1e-13


def van_der_pol_energy(degree, nu=0.001, sigma=0.05, scale=0.85):
    """Stationary E(H) from the Fokker–Planck equation in Hermite functions up to a degree."""
    size = degree + 6
    down = sparse.diags_array(np.sqrt(np.arange(1.0, size)), offsets=1)
    x, d = scale * (down + down.T) / math.sqrt(2), (down - down.T) / (math.sqrt(2) * scale)
    identity = sparse.eye_array(size)
    q, dq = sparse.kron(x, identity).tocsr(), sparse.kron(d, identity).tocsr()
    p, dp = sparse.kron(identity, x).tocsr(), sparse.kron(identity, d).tocsr()
    operator = -p @ dq + q @ dp - nu * dp @ (p - q @ q @ p) + sigma**2 / 2 * dp @ dp
    i, j = np.divmod(np.arange(size**2), size)
    even = np.flatnonzero((i + j < degree) & ((i + j) % 2 == 0))
    whole = np.zeros(size)  # integrals of the Hermite functions
    whole[0] = math.sqrt(2 * scale) * pi**0.25
    for n in range(2, size, 2):
        whole[n] = math.sqrt((n - 1) / n) * whole[n - 2]
    second = x @ (x @ whole)
    # One equation is redundant, for the operator conserves mass: the norm takes its place.
    norm = sparse.csr_array(np.kron(whole, whole)[even][None, :])
    matrix = sparse.vstack([norm, operator.tocsr()[even][:, even][1:]]).tocsc()
    density = sparse.linalg.spsolve(matrix, np.eye(1, len(even))[0])
    energy = (np.kron(second, whole) + np.kron(whole, second))[even] / 2
    return float(energy @ density)


def test_van_der_pol_stationary_energy_solves_the_fokker_planck_equation():
    assert abs(van_der_pol_energy(110) - STATIONARY_ENERGY) < 5e-7
    assert abs(van_der_pol_energy(110, sigma=0.0505) - STATIONARY_ENERGY) > 1e-3


def test_averaged_energy_needs_damping_and_noise():
    with pytest.raises(ValueError, match=r"sigma is 0\.0, but must be above 0"):
        averaged_energy(0.1, 0.0)
    with pytest.raises(ValueError, match=r"nu is -1, but must be above 0"):
        averaged_energy(-1)


# --------------------------------------------------------------------------------------------
# Fokker–Planck


def fokker_planck_residual(system, density, q, p):
    """−div(V₀ρ) + ½ Σ div(V_i div(V_i ρ)) at one point, by automatic differentiation."""
    dim = system.dim

    def rho(z):
        return density(z[:dim], z[dim:])

    def divergence(field):
        return lambda z: jnp.trace(jax.jacobian(field)(z))

    def drift_flux(z):
        return rho(z) * jnp.concatenate(system.drift(z[:dim], z[dim:]))

    def noise_field(i):
        return lambda z: jnp.concatenate([x[i] for x in system.diffusion(z[:dim], z[dim:])])

    z = jnp.concatenate([jnp.asarray(q), jnp.asarray(p)])
    result = -divergence(drift_flux)(z)
    for i in range(system.noises):
        V = noise_field(i)
        inner = divergence(lambda z, V=V: rho(z) * V(z))
        result += divergence(lambda z, V=V, inner=inner: inner(z) * V(z))(z) / 2
    return result / rho(z)


def worst_residual(system, density):
    q, p = (0.7 * np.stack(z) for z in zip(*points(system.dim, count=4), strict=True))
    residual = jax.vmap(lambda q, p: fokker_planck_residual(system, density, q, p))
    return float(jnp.max(jnp.abs(jax.jit(residual)(q, p))))


@pytest.mark.parametrize("mu, D, E0", [(1.0, math.sqrt(2), 3.0), (1.5, 0.8, 2.0)])
def test_lenard_bernstein_gibbs_density_is_stationary(mu, D, E0):
    system = lenard_bernstein(0.2, mu, D, E0)

    def gibbs(mu):
        return lambda q, p: gibbs_density(q[0], p[0], mu, D, E0)

    assert worst_residual(system, gibbs(mu)) < 1e-12
    assert worst_residual(system, gibbs(1.1 * mu)) > 1e-2


@pytest.mark.slow
@dataclass(frozen=True)
class Spring:
    """A potential with an array, as modules of networks are: its hash is an error."""

    k: np.ndarray

    def __call__(self, q):
        return jnp.sum(self.k * q**2) / 2


def test_potentials_may_be_objects_with_arrays():
    for k in (1.0, 4.0):
        spring = Spring(np.array([k]))
        with pytest.raises(TypeError, match="unhashable"):
            hash(spring)
        np.testing.assert_allclose(langevin(spring).drift([2.0], [0.0])[1], [-2.0 * k])


def test_langevin_gibbs_weight_is_stationary():
    system = langevin(quartic, 2, gamma=0.7, temperature=0.4, mass=2.5)

    def gibbs(temperature, mass):
        return lambda q, p: gibbs_weight(q, p, quartic, temperature, mass)

    assert worst_residual(system, gibbs(0.4, 2.5)) < 1e-12
    assert worst_residual(system, gibbs(0.5, 2.5)) > 1e-2
    assert worst_residual(system, gibbs(0.4, 2.0)) > 1e-2


def test_lorentz_densities_of_the_energy_are_stationary():
    system = lorentz(0.2)

    def of_energy(q, p):
        return jnp.exp(-system.H(q, p, system.params))

    assert worst_residual(system, of_energy) < 1e-12
    assert worst_residual(system, lambda q, p: initial_density(*q, *p)) > 1e-2


# --------------------------------------------------------------------------------------------
# Lenard–Bernstein and Lorentz: densities and energies

grid = np.arange(64) / 64
"""The trapezoidal rule on a period, exact to rounding for these densities."""


def mean_over(density, function, reach=14.0):
    """∫ function·density over [0, 1] × ℝ."""
    v = np.linspace(-reach, reach, 2001)
    values = density(grid[:, None], v[None, :]) * function(grid[:, None], v[None, :])
    return float(np.sum(values) * (v[1] - v[0]) / 64)


def lenard_bernstein_energy(E0):
    return lambda x, v: v**2 / 2 + E0 / (4 * pi) * np.sin(4 * pi * x)


def one(x, v):
    return 1.0 + 0 * x * v


@pytest.mark.parametrize("mu, D, E0", [(1.0, math.sqrt(2), 3.0), (1.5, 0.8, 2.0), (0.5, 1.5, 9.0)])
def test_gibbs_density_by_quadrature(mu, D, E0):
    def density(x, v):
        return gibbs_density(x, v, mu, D, E0)

    assert np.isclose(mean_over(density, one), 1.0, rtol=1e-13)
    energy = mean_over(density, lenard_bernstein_energy(E0))
    assert np.isclose(ergodic_energy(mu, D, E0), energy, rtol=1e-12)
    assert np.isclose(np.mean(gibbs_density_x(grid, mu, D, E0)), 1.0, rtol=1e-14)
    assert np.isclose(mean_over(density, lambda x, v: v**2 + 0 * x), D**2 / (2 * mu), rtol=1e-12)
    x, v = np.array([0.1, 0.6]), np.array([-0.3, 1.0])
    product = gibbs_density_x(x, mu, D, E0) * gibbs_density_v(v, mu, D)
    assert np.allclose(density(x, v), product, rtol=1e-15)


def test_gibbs_density_has_the_bessel_normalisation():
    for mu, D, E0 in ((1.0, math.sqrt(2), 3.0), (1.5, 0.8, 2.0)):
        H = lenard_bernstein(0.1, mu, D, E0)
        Z = np.i0(2 * mu * E0 / (4 * pi * D**2)) * math.sqrt(pi * D**2 / mu)
        for x, v in points(1):
            weight = np.exp(-2 * mu / D**2 * H.H(x, v, H.params))
            assert np.isclose(gibbs_density(x[0], v[0], mu, D, E0), weight / Z, rtol=1e-13)


def test_ergodic_energy_has_the_reference_value():
    assert f"{float(ergodic_energy()):.10f}" == "0.4717045212"
    x = 3 / (4 * pi)
    assert np.isclose(ergodic_energy(), 0.5 - x * special.i1(x) / special.i0(x), rtol=1e-15)


@pytest.mark.parametrize("switch", [True, False])
def test_exact_results_are_known_inside_a_transformation(switch):
    """Known arguments give float64 numbers, traced ones the types of their trace."""
    seen = []

    def energy(x):
        seen.append(float(ergodic_energy()))
        return gibbs_density(x, 0.5) * bump_on_tail_density(x, 0.5)

    with jax.enable_x64(switch):
        value = jax.jit(energy)(jnp.float32(0.3))
    assert seen == [float(ergodic_energy())]
    assert value.dtype == np.float32
    assert np.isclose(value, gibbs_density(0.3, 0.5) * bump_on_tail_density(0.3, 0.5), rtol=1e-6)


def test_gibbs_density_survives_a_strong_field():
    assert np.isclose(np.mean(gibbs_density_x(np.arange(4096) / 4096, E0=5e4)), 1.0, rtol=1e-12)
    assert np.isclose(ergodic_energy(E0=5e4), 1.0 - 5e4 / (4 * pi), atol=1e-3)


def test_bump_on_tail_by_quadrature():
    assert np.isclose(mean_over(bump_on_tail_density, one), 1.0, rtol=1e-13)
    energy = mean_over(bump_on_tail_density, lenard_bernstein_energy(3.0))
    assert np.isclose(initial_energy(), energy, rtol=1e-12)
    assert f"{initial_energy():.7f}" == "3.0416667"
    other = {"a": 0.3, "v0": 2.0, "sigma": 0.7}

    def density(x, v):
        return bump_on_tail_density(x, v, 0.9, **other)

    assert np.isclose(mean_over(density, one), 1.0, rtol=1e-13)
    energy = mean_over(density, lenard_bernstein_energy(7.0))
    assert np.isclose(initial_energy(**other), energy, rtol=1e-12)
    assert abs(initial_energy() - energy) > 1.0


def test_bump_on_tail_is_the_product_of_its_marginals():
    x, v = np.linspace(0, 1, 7), np.linspace(-3, 6, 7)
    assert np.allclose(
        bump_on_tail_density(x, v), bump_on_tail_x(x) * bump_on_tail_v(v), rtol=1e-15
    )
    bulk, bump = np.exp(-(v**2) / 2), np.exp(-((v - 4) ** 2) / 0.5) / 0.5
    expected = (bulk / 1.5 + bump * 0.5 / 1.5) / math.sqrt(2 * pi)
    assert np.allclose(bump_on_tail_v(v), expected, rtol=1e-14)


def test_lorentz_initial_density_by_quadrature():
    system = lorentz()
    v, weights = np.polynomial.hermite_e.hermegauss(12)
    x = grid[::4]
    X, Y, Vx, Vy = np.meshgrid(x, x, v, v, indexing="ij", sparse=True)
    # The rule's weight e^{−v²/2} is part of the density, so it is divided out.
    density = initial_density(X, Y, Vx, Vy, 0.25, 0.6) * np.exp((Vx**2 + Vy**2) / 2)
    H = (Vx**2 + Vy**2) / 2 + 3 / (4 * pi) * np.sin(4 * pi * X) * np.sin(4 * pi * Y)
    assert np.isclose(H[1, 2, 3, 4], system.H(x[1:3], v[3:5], system.params), rtol=1e-14)
    total, energy = (
        np.einsum("xyvw,v,w->", np.asarray(y), weights, weights) / len(x) ** 2
        for y in (density, density * H)
    )
    assert np.isclose(total, 1.0, rtol=1e-13)
    assert np.isclose(energy, INITIAL_ENERGY, rtol=1e-13)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: lenard_bernstein(nu=-0.1), r"nu is -0\.1, but must be at least 0"),
        (lambda: lorentz(nu=-1), r"nu is -1\.0, but must be at least 0: it is a collision rate"),
        (
            lambda: gibbs_density(0.0, 0.0, mu=0.0),
            r"mu is 0\.0, but must be above 0: .*D²/\(2 mu\)",
        ),
        (lambda: gibbs_density_v(0.0, D=-1.0), r"D is -1\.0, but must be above 0"),
        (lambda: ergodic_energy(mu=-1.0), r"mu is -1\.0"),
        (
            lambda: bump_on_tail_density(0.0, 0.0, epsilon=1.5),
            r"epsilon is 1\.5, but must be in -1 <=",
        ),
        (lambda: bump_on_tail_density(0.0, 0.0, a=-0.5), r"a is -0\.5, but must be at least 0"),
        (lambda: bump_on_tail_density(0.0, 0.0, sigma=0.0), r"sigma is 0\.0, but must be above 0"),
        (lambda: initial_density(0, 0, 0, 0, epsilon2=-2), r"epsilon2 is -2, but must be in"),
        (lambda: langevin(gamma=-1.0), r"gamma is -1\.0, but must be at least 0"),
        (lambda: langevin(temperature=-0.1), r"temperature is -0\.1, but must be at least 0"),
        (lambda: langevin(mass=0.0), r"mass is 0\.0, but must be above 0: the velocity is p/mass"),
        (lambda: gibbs_weight(np.ones(1), np.ones(1), temperature=0.0), r"temperature is 0\.0"),
        (lambda: langevin(dim=0), r"dim must be a positive integer"),
        (lambda: langevin(dim=1.5), r"dim must be a positive integer"),  # pyright: ignore
        (lambda: langevin(lambda q: q, dim=2), r"H must return a scalar"),
    ],
)
def test_values_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: damped_kubo(nu="small"), r"nu must be a real number or an array, not 'small'"),
        (lambda: two_noise(kappa=True), r"kappa must be a real number or an array, not True"),
        (lambda: planar(beta=None), r"beta must be a real number or an array, not None"),
        (lambda: pendulum(sigma=1j), r"sigma must be a real number or an array"),
        (lambda: langevin(3.0), r"potential must be a function U\(q\) -> scalar, not 3\.0: write"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call()


# --------------------------------------------------------------------------------------------
# What a system refuses


def kinetic(q, p):
    return p @ p / 2


ENTRIES = np.array([0, 1, 2])


@jax.jit
def entry(x, i):
    return x[i]


# JAX takes the nearest entry for each of these, without a word.
OUT_OF_BOUNDS = {
    "a number": (lambda q, p: kinetic(q, p) + q[2], 2),
    "from the end": (lambda q, p: kinetic(q, p) + q[-3], -3),
    "an array": (lambda q, p: kinetic(q, p) + jnp.sum(q[ENTRIES]), 2),
    "an array of JAX": (lambda q, p: kinetic(q, p) + jnp.sum(q[jnp.arange(3)]), 2),
    "in a matrix": (lambda q, p: kinetic(q, p) + q.reshape(1, 2)[0, 4], 4),
    "under jit": (jax.jit(lambda q, p: kinetic(q, p) + p[2]), 2),
    "handed to jit": (lambda q, p: kinetic(q, p) + entry(q, 2), 2),
    "in a loop": (lambda q, p: jax.lax.fori_loop(0, 2, lambda i, s: s + p[i] * q[5], 0.0), 5),
    "in a branch": (lambda q, p: jax.lax.cond(q[0] > 0, lambda: p[2], lambda: p[0]), 2),
    "under grad": (lambda q, p: jax.grad(lambda x: x[2] ** 2)(q)[0] * p[0], 2),
}

IN_BOUNDS = {
    "numbers": lambda q, p: p[0] + p[1] + p[-1] + p[-2],
    "an array": lambda q, p: jnp.sum(q[np.array([0, 1, -1, -2])]),
    "a slice": lambda q, p: jnp.sum(q[:5]),
    "a mask": lambda q, p: jnp.sum(q[np.array([True, False])]),
    "clipped on purpose": lambda q, p: q.at[2].get(mode="clip"),
    "filled on purpose": lambda q, p: jnp.sum(q.at[ENTRIES].get(mode="fill", fill_value=0.0)),
    "by a traced number": lambda q, p: jnp.ones(3)[jnp.floor(q[0]).astype(int)] * p[0],
    "in a loop": lambda q, p: jax.lax.fori_loop(0, 2, lambda i, s: s + p[i] ** 2, 0.0),
    "interpolation": lambda q, p: jnp.interp(q[0], jnp.arange(5.0), jnp.ones(5)),
}


@pytest.mark.parametrize("what", OUT_OF_BOUNDS)
def test_indices_beyond_dim_are_refused(what):
    fun, index = OUT_OF_BOUNDS[what]
    message = rf"^H takes entry {index} of an axis of length .*: is dim=2 right\?"
    with pytest.raises(ValueError, match=message):
        System(H=fun, dim=2)


@pytest.mark.parametrize("what", IN_BOUNDS)
def test_other_indices_are_not(what):
    assert System(H=IN_BOUNDS[what], dim=2).dim == 2


def test_indices_are_checked_in_every_function():
    three = lambda q, p: q[2]  # noqa: E731
    with pytest.raises(ValueError, match=r"F takes entry 2 .*is dim=2 right"):
        System(H=kinetic, F=lambda q, p: jnp.stack([p[0], p[2]]), dim=2)
    with pytest.raises(ValueError, match=r"h\[0\] takes entry 2"):
        System(H=kinetic, h=[three], dim=2)
    with pytest.raises(ValueError, match=r"invariants\['third'\] takes entry 2"):
        System(H=kinetic, dim=2, invariants={"third": three})
    assert System(H=kinetic, h=[three], dim=3, invariants={"third": three}).noises == 1


def forgets_to_return(q, p):
    kinetic(q, p)


@pytest.mark.parametrize(
    "given, message",
    [
        (dict(H=forgets_to_return), r"H failed .* it returns None; is there a `return` missing\?"),
        (dict(h=0.5), r"h must be a list, one function per Wiener process: not 0\.5"),
        (dict(f="noise"), r"f must be a list, .*: not 'noise'"),
        (
            dict(invariants=[kinetic]),
            r"invariants must be a dictionary .*\{\"energy\": H\}, not list",
        ),
        (dict(F=lambda q, p: -p[0]), r"F must return shape \(2,\), .* one number per component"),
        (dict(F=lambda q, p: p > 0), r"F returns bool values; .* \.astype\(float\) or jnp\.where"),
    ],
)
def test_functions_of_the_wrong_kind_are_refused(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        System(**(dict(H=kinetic, dim=2) | given))


@jax.custom_vjp
def square(x):
    return x**2


square.defvjp(lambda x: (x**2, x), lambda x, g: (2 * x * g,))


@jax.custom_vjp
def square_by_squares(x):
    return x**2


square_by_squares.defvjp(lambda x: (x**2, x), lambda x, g: (square(x) / x * 2 * g,))


@pytest.mark.parametrize(
    "method",
    tiered([da.midpoint(), da.bracket_midpoint()], fast=["midpoint"], name=lambda m: m.name),
)
def test_a_rule_backwards_gives_the_derivatives_of_an_energy(method):
    def step(fun):
        system = System(H=lambda q, p: fun(p[0]) / 2 + fun(q[0]) ** 2, h=[lambda q, p: q[0]], dim=1)
        increments = da.Increments(np.array([0.1]), np.array([0.01]))
        return da.step(system, method, [1.0], [0.5], 0.1, increments)

    (q, p, info), (q_plain, p_plain, _) = step(square), step(lambda x: x**2)
    assert info.converged
    np.testing.assert_allclose([q, p], [q_plain, p_plain], rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("F", dict(F=lambda q, p: -square(p))),
        (r"f\[0\]", dict(f=[lambda q, p: jax.jit(square)(q)])),
        ("H", dict(H=lambda q, p: square_by_squares(q[0]))),
    ],
)
def test_rules_that_work_only_backwards_are_refused(name, given):
    with pytest.raises(TypeError, match=f"^{name} has a derivative rule.*with jax.custom_jvp"):
        System(**(dict(H=kinetic, dim=1) | given))


def test_dim_has_to_be_given():
    with pytest.raises(
        ValueError, match=r"dim must be .*, not 0\. It has to be given, e\.g\. dim=1"
    ):
        System(H=kinetic)


@pytest.mark.parametrize("field", ["drift", "diffusion", "ito", "gamma", "lam"])
@pytest.mark.parametrize(
    "q, message",
    [
        ([1], r"q has int64 entries; floating-point numbers are needed.*2\.0 instead of 2"),
        ([1j], r"q has complex128 entries; .*Take the real part"),
        ([True], r"q has boolean entries; .* \.astype\(float\)"),
        (["1"], r"q has text entries; .*Give numbers such as 2\.0"),
        (None, r"q has object entries; .*Give numbers such as 2\.0"),
        (1.0, r"q must have shape \(1,\), not \(\)"),
        ([1.0, 2.0], r"q must have shape \(1,\), not \(2,\)"),
        ([[1.0], 2.0], r"q must be an array of shape \(1,\), not \[\[1"),
    ],
)
def test_fields_refuse_states_of_another_kind(field, q, message):
    with pytest.raises((TypeError, ValueError), match=message):
        getattr(pendulum(), field)(q, [0.0])
    with pytest.raises((TypeError, ValueError), match=message.replace("q", "p", 1)):
        getattr(pendulum(), field)([0.0], q)


# --------------------------------------------------------------------------------------------
# Langevin


@pytest.mark.parametrize("potential", [harmonic, lambda q: jnp.sum(q**4) / 4])
def test_langevin_moments_are_those_of_the_gibbs_weight(potential):
    """⟨p²⟩ = m T in every potential and ⟨q²⟩ = T in the harmonic one, by quadrature."""
    T, m, x = 0.7, 2.5, np.linspace(-12, 12, 1201)

    def second_moment(weight):
        weights = np.asarray(jax.vmap(weight)(x[:, None]))
        return weights @ x**2 / weights.sum()

    held = np.array([0.3])
    by_p = second_moment(lambda p: gibbs_weight(held, p, potential, T, m))
    by_q = second_moment(lambda q: gibbs_weight(q, held, potential, T, m))
    assert np.isclose(by_p, m * T, rtol=1e-12)
    assert np.isclose(by_q, T, rtol=1e-12) == (potential is harmonic)


def test_gibbs_weight_is_float64_with_the_switch_off():
    with jax.enable_x64(False):
        weight = gibbs_weight([1, 2], [0.1, 0.0], temperature=2)
    assert weight.dtype == np.float64
    assert np.isclose(weight, math.exp(-(5 + 0.01) / 4), rtol=1e-15)


def test_langevin_shares_its_functions_between_equal_arguments():
    """Compiled steps are found by the identity of the functions."""
    assert langevin(quartic, 2, gamma=0.1).key == langevin(quartic, 2, gamma=0.9).key
    assert langevin(quartic, 2).key != langevin(dim=2).key


def test_langevin_of_many_particles_is_that_of_as_many_coordinates():
    flat, shaped = (
        langevin(quartic, 6, 0.7, 0.4),
        langevin(lambda q: quartic(q.ravel()), (2, 3), 0.7, 0.4),
    )
    q, p = points(6)[0]
    assert shaped.shape == shaped.noise_shape == (2, 3) and shaped.noises == 6
    for field in ("drift", "diffusion"):
        for a, b in zip(
            getattr(flat, field)(q, p),
            getattr(shaped, field)(q.reshape(2, 3), p.reshape(2, 3)),
            strict=True,
        ):
            assert np.array_equal(a, b.reshape(a.shape))
    assert harmonic(jnp.ones((2, 3))) == 3.0


def test_langevin_takes_callable_objects_that_cannot_be_hashed():
    class Spring:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, q):
            return 2.0 * jnp.sum(q**2)

    dp = jax.jit(langevin(Spring(), 2, gamma=0.0).drift)(np.ones(2), np.zeros(2))[1]
    assert np.allclose(dp, -4.0)


# --------------------------------------------------------------------------------------------
# Noises that commute and noises that do not


def bracket(system, q, p):
    gamma, lam = system.gamma(q, p), system.lam(q, p)
    return np.asarray(gamma[0, 1] - gamma[1, 0]), np.asarray(lam[0, 1] - lam[1, 0])


def test_two_noise_has_the_documented_bracket():
    system, _ = CASES["two_noise"]
    beta1, beta2, kappa = 0.6, 0.4, 0.2
    for q, p in points(1):
        gamma, lam = bracket(system, q, p)
        expected = beta1 * np.sin(p) * (beta2 * np.sin(q) - kappa * np.sin(p))
        assert np.allclose(gamma, expected, rtol=0, atol=1e-15)
        assert np.allclose(lam, beta1 * beta2 * np.cos(p) * np.cos(q), rtol=0, atol=1e-15)
        assert np.abs(gamma).max() > 1e-3 and np.abs(lam).max() > 1e-3
    gamma, lam = bracket(two_noise(), np.zeros(1), np.zeros(1))
    assert gamma == 0.0 and lam == 0.25


def test_two_noise_needs_both_noises_not_to_commute():
    for q, p in points(1):
        assert all(np.all(x == 0) for x in bracket(two_noise(beta1=0.0), q, p))


def test_langevin_noises_commute():
    system = langevin(quartic, 2)
    assert system.noises == 2
    for q, p in points(2):
        assert all(np.all(x == 0) for x in bracket(system, q, p))


@pytest.mark.parametrize(
    "name",
    tiered(
        ["pendulum", "planar", "two_noise", "damped_kubo", "lorentz"],
        fast=["pendulum", "damped_kubo"],
    ),
)
def test_multiplicative_noise_has_an_ito_correction(name):
    """A control for the additive systems, whose Itô and Stratonovich drifts are the same."""
    system, _ = CASES[name]
    q, p = points(system.dim)[0]
    assert np.max(np.abs(system.ito(q, p)[0] - np.concatenate(system.drift(q, p)))) > 1e-3


@pytest.mark.parametrize(
    "name",
    tiered(
        ["van_der_pol", "lenard_bernstein", "langevin"], fast=["van_der_pol", "lenard_bernstein"]
    ),
)
def test_additive_noise_has_no_ito_correction(name):
    system, _ = CASES[name]
    for q, p in points(system.dim):
        assert np.array_equal(system.ito(q, p)[0], np.concatenate(system.drift(q, p)))


def test_pendulum_ito_correction_is_the_documented_one():
    sigma, kappa = 0.6, 0.4
    system, _ = CASES["pendulum"]
    for q, p in points(1):
        correction = system.ito(q, p)[0] - np.concatenate(system.drift(q, p))
        expected = -kappa / 2 * (sigma - kappa * p) * np.sin(q) ** 2
        assert np.allclose(correction, [0.0, expected[0]], rtol=0, atol=1e-15)


# --------------------------------------------------------------------------------------------
# Long paths


@pytest.mark.parametrize("name", tiered(["pendulum", "two_noise", "planar"], fast=["pendulum"]))
def test_solutions_stay_moderate(name):
    """Heun's method (Stratonovich) on 64 paths up to t = 20: nothing runs away."""
    system, dt, steps = FEW[name](), 0.02, 1000

    def increment(z, dW):
        dq, dp = system.drift(*z)
        noise_q, noise_p = system.diffusion(*z)
        return jnp.stack([dq * dt + dW @ noise_q, dp * dt + dW @ noise_p])

    def step(z, dW):
        first = increment(z, dW)
        z = z + (first + increment(z + first, dW)) / 2
        return z, system.H(*z, system.params)

    key = jax.random.key(7)
    noise = math.sqrt(dt) * jax.random.normal(key, (64, steps, system.noises))
    start = jnp.ones((2, system.dim))
    end, energy = jax.jit(jax.vmap(lambda dW: jax.lax.scan(step, start, dW)))(noise)
    assert float(jnp.max(energy)) < 20.0
    assert float(jnp.std(end)) > 0.05
    for invariant in system.invariants.values():
        values = [float(invariant(*z, system.params)) for z in (start, *end)]
        assert np.allclose(values, values[0], atol=2e-3)


@pytest.mark.slow
def test_langevin_with_a_mass_and_a_friction_for_each_degree_of_freedom():
    """Every momentum has its own variance, m_i T, known without sampling."""
    mass, gamma = np.array([1.0, 4.0]), np.array([0.5, 2.0])
    system = da.systems.langevin(dim=2, gamma=gamma, mass=mass, temperature=1.5)
    found = np.diag(da.theory.stationary_covariance(system, da.midpoint(), 0.2))
    np.testing.assert_allclose(found, [1.5, 1.5, 1.5, 6.0], rtol=1e-10)
    positions = np.diag(da.theory.stationary_covariance(system, da.baoab(), 0.2))[:2]
    np.testing.assert_allclose(positions, [1.5, 1.5], rtol=1e-10)
    particles = da.systems.langevin(dim=(3, 2), mass=np.array([[1.0], [2.0], [3.0]]))
    assert particles.params["mass"].shape == (3, 2)
    q, p = np.zeros((3, 2)), np.ones((3, 2))
    assert particles.H(q, p, particles.params) == pytest.approx(1 + 1 / 2 + 1 / 3)
    with pytest.raises(ValueError, match=r"mass has the shape \(4,\), which does not stretch to"):
        da.systems.langevin(dim=2, mass=np.ones(4))
    with pytest.raises(ValueError, match=r"mass has the shape \(3,\), .* such as mass\[:, None\]"):
        da.systems.langevin(dim=(3, 3), mass=np.ones(3))  # three atoms, not three axes
    with pytest.raises(ValueError, match=r"gamma is .* must be at least 0"):
        da.systems.langevin(dim=2, gamma=np.array([1.0, -1.0]))


def test_langevin_equations_have_one_temperature():
    with pytest.raises(ValueError, match="temperature must be one number"):
        da.systems.langevin(dim=2, temperature=np.array([1.0, 2.0]))
