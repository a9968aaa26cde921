"""Ready-made systems of many degrees of freedom: equations, exact results, invariants, errors."""

import inspect
import math
import re
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

import dalembert as da
from dalembert import observables
from dalembert.systems import (
    FEW,
    MANY,
    SYSTEMS,
    fput,
    heat_chain,
    langevin,
    lennard_jones,
    phi4,
    planar,
    polymer,
    stochastic_wave,
)
from dalembert.systems.fput_system import (
    fput_energy,
    fput_frequencies,
    fput_mode_energies,
    fput_modes,
)
from dalembert.systems.heat_chain_system import heat_chain_stationary, heat_current
from dalembert.systems.lennard_jones_system import (
    PAIRS_AT_A_TIME,
    _pair_energy,
    fcc_lattice,
    lennard_jones_energy,
    lennard_jones_potential,
    lennard_jones_pressure,
    lennard_jones_sampler,
)
from dalembert.systems.phi4_system import free_field_spectrum, phi4_ring_moments
from dalembert.systems.polymer_system import (
    end_to_end_squared,
    gyration_squared,
    polymer_sampler,
    rouse_modes,
    rouse_variances,
)
from dalembert.systems.stochastic_wave_system import mean_wave


def state(system, seed=0):
    """A random state; particles of a fluid are some way apart."""
    q, p = np.random.default_rng(seed).normal(size=(2, *system.shape))
    if "sigma" in system.params:
        q = 0.1 * q + np.outer(3 * np.arange(len(q)) % 5, [1.0, 0.3, 0.0])
    return q, p


# --------------------------------------------------------------------------------------------
# The equations, written out by hand: the force and the columns of the noise, (dq, dp) each.


def walls(q):
    return np.concatenate([[0.0], q, [0.0]])


def heat_chain_sde(q, p, T_left=1.7, T_right=0.4, gamma=0.6, k=1.3, mass=2.5):
    ends = np.eye(len(q))[[0, -1]]
    noise = np.sqrt(2 * gamma * mass * np.array([[T_left], [T_right]])) * ends
    return p / mass, k * np.diff(walls(q), 2) - gamma * ends.sum(0) * p, (0 * noise, noise)


def fput_sde(q, p, alpha=0.4, beta=0.7, gamma=0.6, temperature=1.2):
    r = np.diff(walls(q))
    return p, np.diff(r + alpha * r**2 + beta * r**3) - gamma * p, kicks(q, gamma * temperature)


def phi4_sde(q, p, mass_squared=0.8, coupling=0.7, gamma=0.6, temperature=1.2):
    force = -mass_squared * q - coupling * q**3 - gamma * p
    for axis in range(q.ndim):
        force += np.roll(q, 1, axis) + np.roll(q, -1, axis) - 2 * q
    return p, force, kicks(q, gamma * temperature)


def fluid_sde(
    q,
    p,
    density=0.02,
    epsilon=1.3,
    sigma=0.9,
    mass=2.5,
    cutoff=2.5,
    gamma=0.6,
    temperature=1.2,
):
    box, force = (len(q) / density) ** (1 / 3), -gamma * p
    for i in range(len(q)):
        for j in set(range(len(q))) - {i}:
            d = q[i] - q[j]
            d = d - box * np.round(d / box)
            r = np.linalg.norm(d)
            if r < cutoff * sigma:
                slope = -4 * epsilon * (12 * sigma**12 / r**13 - 6 * sigma**6 / r**7)
                force[i] -= slope * d / r
    return p / mass, force, kicks(q, gamma * mass * temperature)


def polymer_sde(q, p, k=1.3, mass=2.5, gamma=0.6, temperature=1.2):
    r = np.diff(q, axis=0)
    none = np.zeros((1, 3))
    force = k * np.diff(np.concatenate([none, r, none]), axis=0) - gamma * p
    return p / mass, force, kicks(q, gamma * mass * temperature)


def wave_sde(q, p, beta=0.3, dx=0.7, mass_squared=0.8, coupling=1.2):
    laplacian = (np.roll(q, 1, 0) + np.roll(q, -1, 0) - 2 * q) / dx**2
    square = np.sum(q**2, axis=1, keepdims=True)
    noise = np.zeros((2, len(q), len(q), 2))
    for i in range(len(q)):
        for x, turned in zip((q, p), noise, strict=True):
            turned[i, i] = beta * np.array([-x[i, 1], x[i, 0]])
    return p, laplacian - mass_squared * q - coupling * square * q, noise


def kicks(q, half):
    noise = math.sqrt(2 * half) * np.eye(q.size)
    return 0 * noise, noise


THERMOSTAT = dict(gamma=0.6, temperature=1.2)
CASES = {
    "heat_chain": (heat_chain(4, 1.7, 0.4, 0.6, 1.3, 2.5), heat_chain_sde),
    "fput": (fput(4, 0.4, 0.7, **THERMOSTAT), fput_sde),
    "phi4": (phi4((3, 4), 0.8, 0.7, **THERMOSTAT), phi4_sde),
    "lennard_jones": (
        lennard_jones(4, 0.02, 1.2, 0.6, epsilon=1.3, sigma=0.9, mass=2.5, cutoff=2.5),
        fluid_sde,
    ),
    "polymer": (polymer(4, 1.3, mass=2.5, **THERMOSTAT), polymer_sde),
    "stochastic_wave": (stochastic_wave(4, 0.3, 0.7, 0.8, 1.2), wave_sde),
}


@cache
def fields(name):
    system, _ = CASES[name]

    def at(params, q, p):
        same = system.with_params(params)
        return (*same.drift(q, p), *same.diffusion(q, p))

    return jax.jit(at)


def field_error(name, params):
    """The largest difference between a system's fields and the equations written by hand."""
    system, sde = CASES[name]
    q, p = state(system)
    velocity, force, noise = sde(q, p)
    expected = (velocity, force, *(np.reshape(x, (-1, system.dim)) for x in noise))
    found = fields(name)(params, q, p)
    assert [x.shape for x in found] == [x.shape for x in expected]
    size = max(np.max(np.abs(x)) for x in expected)
    return max(np.max(np.abs(a - b)) for a, b in zip(found, expected, strict=True)) / size


@pytest.mark.parametrize("name", MANY)
def test_fields_are_those_of_the_sde(name):
    """And the control: the comparison notices when any one parameter is changed."""
    params = CASES[name][0].params
    assert field_error(name, params) < 1e-13
    for parameter, value in params.items():
        if (name, parameter) != ("lennard_jones", "cutoff"):
            assert field_error(name, {**params, parameter: 1.1 * value}) > 1e-6, parameter


def test_a_smaller_cutoff_changes_the_force():
    params = CASES["lennard_jones"][0].params
    assert field_error("lennard_jones", {**params, "cutoff": 1.5}) > 1e-6


@pytest.mark.parametrize("name", MANY)
def test_factories_need_no_arguments_and_say_what_they_make(name):
    system, doc = MANY[name](), inspect.getdoc(MANY[name]) or ""
    assert system.name == name and system.dim > 8 and name not in FEW and name in SYSTEMS
    assert all(type(value) is float for value in system.params.values())
    for part in ("dW", "H = ", "Args:", "Invariants:", "Exact results:", "Source: "):
        assert part in doc
    for parameter in system.params:
        assert f"\n    {parameter}: " in doc
    keys = re.findall(r"`(\w+\d{4}\w*)`", doc.split("Source: ")[1])
    bibliography = (Path(__file__).parents[2] / "docs" / "references.bib").read_text("utf-8")
    assert keys and all(f"{{{key}," in bibliography for key in keys)


# --------------------------------------------------------------------------------------------
# Invariants


def rate_of_change(system, function):
    """The largest derivative of a function along the drift and the noises at a random state."""

    @jax.jit
    def rates(q, p):
        gradient = jax.grad(function, argnums=(0, 1))(q, p, system.params)
        noises = zip(*system.diffusion(q, p), strict=True)
        along = [system.drift(q, p), *noises]
        return [sum(jnp.vdot(g, v) for g, v in zip(gradient, z, strict=True)) for z in along]

    return float(np.max(np.abs(rates(*state(system)))))


ISOLATED = {
    "fput": lambda gamma: fput(4, 0.4, gamma=gamma),
    "phi4": lambda gamma: phi4((3, 3), gamma=gamma),
    "polymer": lambda gamma: polymer(3, gamma=gamma),
    "lennard_jones": lambda gamma: lennard_jones(4, 0.01, gamma=gamma),
}


@pytest.mark.parametrize("name", ISOLATED)
def test_without_friction_there_is_no_noise_and_the_energy_is_kept(name):
    system = ISOLATED[name](0.0)
    assert system.noises == 0 and system.F is None and list(system.invariants) == ["energy"]
    assert rate_of_change(system, system.invariants["energy"]) < 1e-12
    with pytest.raises(ValueError, match=r"no parameter \['gamma'\]"):
        system.with_params(gamma=1.0)
    damped = ISOLATED[name](0.1)
    assert damped.invariants == {} and rate_of_change(damped, damped.H) > 0.1


def test_the_wave_keeps_its_charge_and_not_its_energy():
    system, _ = CASES["stochastic_wave"]
    assert rate_of_change(system, system.invariants["charge"]) < 1e-13
    assert rate_of_change(system, system.H) > 0.1


def test_noises_of_the_wave_commute_and_have_the_documented_ito_correction():
    system, _ = CASES["stochastic_wave"]
    q, p = state(system)
    *seconds, ito, drift = jax.jit(
        lambda q, p: (system.gamma(q, p), system.lam(q, p), system.ito(q, p)[0], system.drift(q, p))
    )(q, p)
    for second in seconds:
        assert np.allclose(second, np.swapaxes(second, 0, 1), atol=1e-15)
    correction = ito - np.concatenate([np.ravel(x) for x in drift])
    assert np.allclose(correction, -(0.3**2) / 2 * np.concatenate([q.ravel(), p.ravel()]))


# --------------------------------------------------------------------------------------------
# Harmonic chain between heat baths


def test_the_long_chain_has_the_known_flux_and_temperatures():
    found = heat_chain_stationary(64)
    T = found.temperatures
    assert found.flux == pytest.approx((3 - math.sqrt(5)) / 4, rel=1e-12)
    assert np.allclose(T[:3], [1.809017, 1.472136, 1.495935], rtol=0, atol=5e-7)
    assert np.allclose([T[32], T[-1]], [1.5, 1.190983], rtol=0, atol=5e-7)
    # A short chain conducts less: this is no formula that forgets N.
    assert heat_chain_stationary(2).flux == pytest.approx(1 / 6, rel=1e-13)


def test_the_covariance_solves_the_equation_of_the_system():
    given = dict(N=5, T_left=1.7, T_right=0.4, gamma=0.6, k=1.3, mass=2.5)
    system, found = heat_chain(**given), heat_chain_stationary(**given)
    drift = lambda z: jnp.concatenate(system.drift(z[:5], z[5:]))  # noqa: E731
    A = np.asarray(jax.jit(jax.jacobian(drift))(jnp.zeros(10)))
    B = np.concatenate([x.T for x in system.diffusion(np.zeros(5), np.zeros(5))])
    assert np.allclose(found.covariance, linalg.solve_continuous_lyapunov(A, -B @ B.T), atol=1e-12)
    # The mean of the current, a quadratic form, is its trace with the covariance.
    current = lambda z: heat_current(z[:5], z[5:], system.params)  # noqa: E731
    forms = np.asarray(jax.jit(jax.hessian(current))(jnp.zeros(10))) / 2
    assert np.allclose(np.einsum("ijk,jk->i", forms, found.covariance), found.flux, rtol=1e-12)


def test_the_chain_in_equilibrium_is_that_of_gibbs_also_where_modes_are_not_enough():
    """γ = 2ω is the aperiodic limit of the antisymmetric pair, with one eigenvector for two."""
    found = heat_chain_stationary(2, 1.5, 1.5, gamma=2 * math.sqrt(3.0))
    assert np.allclose(found.covariance[2:, 2:], 1.5 * np.eye(2), atol=1e-13)
    assert np.allclose(found.covariance[:2, :2], 1.5 * np.array([[2, 1], [1, 2]]) / 3, atol=1e-13)
    assert abs(found.flux) < 1e-13


# --------------------------------------------------------------------------------------------
# Fermi–Pasta–Ulam–Tsingou


def test_modes_of_the_linear_chain():
    system, (q, p) = fput(7, beta=0.0), np.random.default_rng(1).normal(size=(2, 7))
    assert np.allclose(fput_modes(fput_modes(q)), q, atol=1e-15)
    acceleration = jax.jit(system.drift)(q, p)[1]
    assert np.allclose(fput_modes(acceleration), -(fput_frequencies(7) ** 2) * fput_modes(q))
    assert np.sum(fput_mode_energies(q, p)) == pytest.approx(system.H(q, p, system.params))


def test_mean_energy_of_the_chain_is_that_of_a_sum_over_all_states():
    T, alpha, beta = 0.8, 0.9, 0.6
    x = np.linspace(-8, 8, 801)
    q = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)
    r = np.diff(q, axis=-1, prepend=0.0, append=0.0)
    U = np.sum(r**2 / 2 + alpha * r**3 / 3 + beta * r**4 / 4, axis=-1)
    weight = np.exp(-U / T)
    expected = T + np.sum(U * weight) / np.sum(weight)
    assert fput_energy(2, T, alpha, beta) == pytest.approx(expected, rel=1e-11)
    assert fput_energy(50, T, 0.0, 0.0) == pytest.approx(50 * T, rel=1e-12)
    # A long chain has a constant energy per site.
    one, two, three = (fput_energy(n, T, alpha, beta) for n in (500, 1000, 1500))
    assert one + three - 2 * two == pytest.approx(0.0, abs=1e-4)
    with pytest.raises(ValueError, match="not bounded below"):
        fput_energy(4, T, 1.0, 0.0)


# --------------------------------------------------------------------------------------------
# φ⁴


@pytest.mark.slow
@pytest.mark.parametrize(("T", "m2", "coupling"), [(0.7, 0.5, 1.2), (0.05, -1.0, 1.0)])
def test_ring_moments_satisfy_the_virial_theorem_and_fit_a_sum_over_states(T, m2, coupling):
    for N in (3, 40):
        second, fourth, neighbours = phi4_ring_moments(N, T, m2, coupling)
        slope = m2 * second + coupling * fourth + 2 * second - 2 * neighbours
        assert slope == pytest.approx(T, rel=1e-9)  # ⟨q ∂U/∂q⟩
    x = np.linspace(-3.5, 3.5, 91)
    q = np.stack(np.meshgrid(x, x, x, indexing="ij"))
    U = np.sum((np.roll(q, -1, 0) - q) ** 2 / 2 + m2 * q**2 / 2 + coupling * q**4 / 4, axis=0)
    weight = np.exp(-(U - U.min()) / T)
    expected = [np.sum(f * weight) / np.sum(weight) for f in (q[0] ** 2, q[0] ** 4, q[0] * q[1])]
    assert np.allclose(phi4_ring_moments(3, T, m2, coupling), expected, rtol=1e-8)


def test_spectrum_of_the_free_field():
    ring = phi4_ring_moments(6, 1.3, 0.7, 0.0)
    assert np.mean(free_field_spectrum(6, 1.3, 0.7)) == pytest.approx(ring.second, rel=1e-10)
    system = phi4((3, 4), 0.7, 0.0, gamma=0.0)
    springs = jax.jit(jax.hessian(system.H))(*jnp.zeros((2, 3, 4)), system.params)
    exact = 1.3 * np.trace(np.linalg.inv(springs.reshape(12, 12)))
    assert np.sum(free_field_spectrum((3, 4), 1.3, 0.7)) == pytest.approx(exact, rel=1e-12)


# --------------------------------------------------------------------------------------------
# Lennard-Jones


def fluid(N=32, density=0.1, **options):
    system = lennard_jones(N, density, **{"cutoff": 2.5, **options})
    q, p = np.random.default_rng(3).normal(size=(2, N, 3))
    return system, jnp.asarray(fcc_lattice(N, density) + 0.3 * q), jnp.asarray(p)


@pytest.mark.slow
def test_derivatives_of_the_fluid_are_those_of_its_energy():
    system, q, p = fluid()
    params = {name: jnp.float64(x) for name, x in system.params.items()}

    def plain(q, params):
        sixth = params["cutoff"] ** -6.0
        shift = 4 * params["epsilon"] * (sixth**2 - sixth)
        kinetic = jnp.sum(p**2) / (2 * params["mass"])
        return _pair_energy(q, params, shift) + kinetic

    def given(q, params):
        return system.H(q, p, params)

    for argument in (0, 1):
        found, expected = (jax.jit(jax.grad(f, argument))(q, params) for f in (given, plain))
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert np.all(np.isfinite(a)) and np.allclose(a, b, rtol=1e-11, atol=1e-11)
    along = jnp.asarray(np.random.default_rng(4).normal(size=q.shape))
    curved = (
        jax.jit(lambda f=f: jax.jvp(lambda q: jax.grad(f)(q, params), (q,), (along,))[1])()
        for f in (given, plain)
    )
    assert np.allclose(*curved, rtol=1e-10, atol=1e-10)
    assert jax.vmap(given, (0, None))(jnp.stack([q, q]), params).shape == (2,)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_box_may_be_twice_the_cutoff(dtype):
    """Its side is a root that each compiler rounds in its own way; a smaller box gives NaN."""
    for N, density, cutoff in ((108, 0.5, 3.0), (27, 1.0, 1.5), (125, 1.0, 2.5), (4, 32.0, 0.25)):
        params = lennard_jones(N, density, cutoff=cutoff).params
        q = np.random.default_rng(0).normal(size=(N, 3)).astype(dtype)
        energy = jax.jit(lambda q, density, params=params: lennard_jones_potential(
            q, {**params, "density": density}
        ))  # fmt: skip
        assert np.isfinite(energy(q, dtype(density)))
        assert np.isnan(energy(q, dtype(density * 1.0001)))


@pytest.mark.slow
def test_large_fluids_are_looked_at_a_few_particles_at_a_time():
    N, density, cutoff = 150, 0.3, 2.0
    assert N > PAIRS_AT_A_TIME // N > N % (PAIRS_AT_A_TIME // N) > 0
    params = lennard_jones(N, density, cutoff=cutoff).params
    box, rng = np.cbrt(N / density), np.random.default_rng(5)
    cells = np.stack(np.meshgrid(*3 * [np.arange(6)], indexing="ij"), -1).reshape(-1, 3)[:N]
    q = jnp.asarray(cells * box / 6 + rng.normal(0, 0.05, (N, 3)))
    first, second = np.triu_indices(N, 1)

    def plain(q):
        apart = q[first] - q[second]
        square = jnp.sum((apart - box * jnp.round(apart / box)) ** 2, axis=1)
        sixth = square**-3
        energies = 4 * (sixth**2 - sixth) - 4 * (cutoff**-12.0 - cutoff**-6.0)
        return jnp.sum(jnp.where(square < cutoff**2, energies, 0.0))

    def given(q):
        return lennard_jones_potential(q, params)

    along = jnp.asarray(rng.normal(size=q.shape))

    def forwards(f, q):
        return jax.jvp(jax.grad(f), (q,), (along,))[1]

    def backwards(f, q):
        return jax.grad(lambda q: jnp.sum(jax.grad(f)(q) * along))(q)

    for derivative in (lambda f, q: f(q), lambda f, q: jax.grad(f)(q), forwards, backwards):
        found, expected = (jax.jit(partial(derivative, f))(q) for f in (given, plain))
        assert np.allclose(found, expected, rtol=1e-11, atol=1e-11 * np.max(np.abs(expected)))
    if jax.default_backend() == "cpu":
        z = jax.ShapeDtypeStruct((600, 3), np.float64)
        code = jax.jit(jax.grad(lambda q: lennard_jones_potential(q, params))).lower(z).compile()
        assert code.memory_analysis().temp_size_in_bytes < 8 * 600**2


def test_images_do_not_matter_and_energy_is_continuous_at_the_cutoff():
    system, q, p = fluid()
    box = np.cbrt(32 / 0.1)
    moved = q + box * np.random.default_rng(0).integers(-2, 3, q.shape)
    force = jax.jit(lambda q: system.drift(q, p)[1])
    assert np.allclose(force(moved), force(q), atol=1e-10)
    pair = lennard_jones(2, 0.001, cutoff=3.0)

    @jax.jit
    def at(r):
        return pair.H(jnp.zeros((2, 3)).at[1, 0].set(r), jnp.zeros((2, 3)), pair.params)

    assert float(at(3.0)) == 0.0 and abs(float(at(3.0 - 1e-9))) < 1e-10
    assert float(at(2 ** (1 / 6))) == pytest.approx(-1 + 4 * (3.0**-6 - 3.0**-12), rel=1e-14)


def test_pressure_is_minus_the_slope_of_the_energy_in_the_volume():
    system, q, _ = fluid(density=0.3, cutoff=2.2)
    params, volume = system.params, 32 / 0.3

    def energy(scale):  # box and distances grow; no pair crosses the cut-off, where it jumps
        larger = {**params, "density": 0.3 / scale**3, "cutoff": 2.2 * scale}
        return _pair_energy(scale * q, larger, 0.0)

    slope = jax.jit(jax.grad(energy))(1.0) / (3 * volume)
    r = beyond(2.2)
    tail = -2 * np.pi / 3 * 0.3**2 * np.trapezoid(-4 * (12 / r**10 - 6 / r**4), r)
    pressure = jax.jit(lambda p: lennard_jones_pressure(q, p, params))
    at_rest = float(pressure(jnp.zeros_like(q)))
    assert at_rest == pytest.approx(float(-slope) + tail, rel=1e-6)
    moving = float(pressure(jnp.ones_like(q)))
    assert moving - at_rest == pytest.approx(0.3, rel=1e-12)


def beyond(cutoff):
    """Distances from a cut-off to a thousand times as far."""
    return cutoff * np.geomspace(1, 1000, 40001)


def test_the_tail_of_the_energy_is_an_integral():
    system, q, p = fluid()
    r = beyond(2.5)
    integral = np.trapezoid(4 * (r**-10 - r**-4), r)
    within = _pair_energy(q, system.params, 0.0) / 32
    tail = float(lennard_jones_energy(q, p, system.params) - within)
    assert tail == pytest.approx(2 * np.pi * 0.1 * integral, rel=1e-5)


def test_starts_of_the_fluid():
    lattice = fcc_lattice(32, 0.5)
    distances = np.linalg.norm(lattice[1:] - lattice[0], axis=1)
    assert len(np.unique(lattice, axis=0)) == 32 and lattice.max() < np.cbrt(32 / 0.5)
    assert np.isclose(distances.min(), np.cbrt(4 / 0.5) / math.sqrt(2))
    q, p = jax.vmap(lennard_jones_sampler(32, 0.5, 0.9, 2.0))(
        jax.random.split(jax.random.key(1), 99)
    )
    assert q.shape == p.shape == (99, 32, 3) and np.array_equal(q[5], lattice)
    assert np.mean(p**2) == pytest.approx(1.8, abs=5 * 1.8 * math.sqrt(2 / p.size))
    with pytest.raises(ValueError, match=r"4 n³ particles: take one of \[108, 256, 500\]"):
        fcc_lattice(300, 0.5)


def test_a_box_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match=r"cut-off, 3, is more than half .* at least N=173"):
        lennard_jones(108, 0.8)
    system, q, p = fluid()
    squeezed = {**system.params, "density": 10.0}
    assert np.isnan(system.H(q, p, squeezed)) and not np.isnan(system.H(q, p, system.params))
    assert np.isnan(lennard_jones_pressure(q, p, squeezed))


# --------------------------------------------------------------------------------------------
# Polymer


def test_modes_of_the_polymer():
    N, k, T = 6, 1.3, 0.8
    system, (q, p) = polymer(N, k, gamma=0.0), np.random.default_rng(1).normal(size=(2, 6, 3))
    modes = rouse_modes(q)
    stiffness = np.concatenate([[0.0], T / rouse_variances(N, k, T)])
    force = jax.jit(system.drift)(q, p)[1]
    assert np.allclose(rouse_modes(force), -stiffness[:, None] * modes, atol=1e-13)
    assert np.allclose(modes[0], math.sqrt(N) * q.mean(axis=0))
    # The distance of the ends as a sum over modes, with their variances.
    weights = rouse_modes(np.eye(N)[:, [0, -1, 0]])
    ends = 3 * np.sum((weights[1:, 0] - weights[1:, 1]) ** 2 * rouse_variances(N, k, T))
    assert ends == pytest.approx(3 * (N - 1) * T / k, rel=1e-12)
    assert 3 * np.sum(rouse_variances(N, k, T)) / N == pytest.approx((N**2 - 1) * T / (2 * N * k))
    assert end_to_end_squared(q) == pytest.approx(np.sum((q[-1] - q[0]) ** 2))
    assert gyration_squared(q) == pytest.approx(np.sum(modes[1:] ** 2) / N)


def test_the_sampler_of_the_polymer_draws_stationary_states():
    N, k, T, mass, count = 5, 1.3, 0.8, 2.0, 4000
    keys = jax.random.split(jax.random.key(0), count)
    q, p = jax.jit(jax.vmap(polymer_sampler(N, k, T, mass)))(keys)
    found = np.mean(np.asarray(jax.jit(jax.vmap(rouse_modes))(q)) ** 2, axis=(0, 2))
    error = 5 * math.sqrt(2 / (3 * count))
    assert np.allclose(found[1:] / rouse_variances(N, k, T), 1, rtol=0, atol=error)
    assert found[0] < 1e-25
    assert np.allclose(np.mean(p**2, axis=(0, 2)) / (mass * T), 1, rtol=0, atol=error)
    R = np.asarray(jax.vmap(end_to_end_squared)(q))
    assert abs(R.mean() - 3 * (N - 1) * T / k) < 5 * R.std() / math.sqrt(count)


# --------------------------------------------------------------------------------------------
# Waves


def test_the_mean_wave_solves_the_equation_of_the_mean():
    """d⟨z⟩/dt is the Itô drift of the linear system, at the mean."""
    system = stochastic_wave(5, 0.6, 0.7, 0.8, coupling=0.0)
    q, p = state(system)
    slope = jax.jit(jax.jacobian(lambda z: system.ito(*z.reshape(2, 5, 2))[0]))
    A = np.asarray(slope(jnp.zeros(20)))
    expected = (linalg.expm(1.3 * A) @ np.concatenate([q.ravel(), p.ravel()])).reshape(2, 5, 2)
    found = mean_wave(q, p, 1.3, 0.6, 0.7, 0.8)
    assert np.allclose(found, expected, atol=1e-13)


# --------------------------------------------------------------------------------------------
# Errors


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: heat_chain(1), r"N is 1, but must be 2 or more: each bath has an end site"),
        (lambda: heat_chain(T_left=-1.0), r"T_left is -1\.0, but must be at least 0"),
        (lambda: heat_chain_stationary(4, gamma=0.0), r"gamma is 0\.0, but must be above 0"),
        (lambda: fput(beta=-1.0), r"beta is -1\.0, but must be at least 0: the springs must hold"),
        (lambda: fput(0), r"dim must be a positive integer"),
        (lambda: phi4((4, 4, 4)), r"shape must be a number of sites or a pair of them, not \(4,"),
        (lambda: phi4(2), r"shape is \(2,\), but must be 3 or more"),
        (lambda: phi4(gamma=-0.1), r"gamma is -0\.1, but must be at least 0"),
        (lambda: free_field_spectrum(4, 1.0, 0.0), r"mass_squared is 0\.0, but must be above 0"),
        (lambda: polymer(k=0.0), r"k is 0\.0, but must be above 0"),
        (lambda: polymer_sampler(1), r"N is 1, but must be 2 or more"),
        (lambda: lennard_jones(density=0.0), r"density is 0\.0, but must be above 0"),
        (lambda: stochastic_wave(2), r"N is 2, but must be 3 or more"),
        (lambda: stochastic_wave(dx=0.0), r"dx is 0\.0, but must be above 0"),
        (
            lambda: observables.kinetic(relativistic()),
            r"kinetic needs .*: it is not quadratic",
        ),
        (lambda: observables.potential(coupled()), r"potential needs .*'system'.* depends on q"),
        (
            lambda: observables.configurational_temperature(phi4(4), directions=0),
            r"directions must be a positive integer, not 0",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_systems_are_made_inside_jit_of_known_and_of_traced_numbers():
    q, p = jnp.ones(4), jnp.zeros(4)

    @jax.jit
    def strengths(gamma):
        def h(q, p, w):
            return -gamma * jnp.sum(q * w)

        outside = da.System(H=lambda q, p: p @ p, h=h, dim=4, noises=4)
        systems = (phi4(4), phi4(4, gamma=gamma), outside)
        return [system.diffusion(q, p)[1][0, 0] for system in systems]

    assert np.allclose(strengths(0.5), [math.sqrt(2), 1.0, 0.5])
    with pytest.raises(ValueError, match="h must be linear in w"):
        jax.jit(lambda: da.System(H=lambda q, p: p @ p, h=lambda q, p, w: w @ w, dim=4, noises=4))()


# --------------------------------------------------------------------------------------------
# Observables


def relativistic():
    return da.System(H=lambda q, p: jnp.sum(jnp.sqrt(1 + p**2)) + q @ q, dim=2)


def coupled():
    return da.System(H=lambda q, p: p @ p * (1 + q @ q), dim=2)


@pytest.mark.parametrize("name", MANY)
def test_kinetic_and_potential_energy_make_up_the_hamiltonian(name):
    system, _ = CASES[name]
    q, p = map(jnp.asarray, state(system))
    parts = observables.kinetic(system), observables.potential(system)
    K, U = jax.jit(lambda q, p: [f(q, p, system.params) for f in parts])(q, p)
    mass = system.params.get("mass", 1.0)
    assert float(K) == pytest.approx(float(jnp.sum(p**2)) / (2 * mass), rel=1e-14)
    assert float(K + U) == pytest.approx(float(system.H(q, p, system.params)), rel=1e-13)
    T = observables.kinetic_temperature(system)(q, p, system.params)
    assert float(T) == pytest.approx(2 * float(K) / system.dim, rel=1e-14)


def test_kinetic_energy_from_momenta_that_are_not_zero_at_rest():
    system = da.System(H=lambda q, p: jnp.sum((p - 0.7) ** 2) / 2 + q @ q, dim=2)
    q, p = jnp.array([0.3, 1.0]), jnp.array([0.2, -0.5])
    K, U = (f(system)(q, p) for f in (observables.kinetic, observables.potential))
    assert float(K + U) == pytest.approx(float(system.H(q, p)), rel=1e-14)
    with pytest.raises(ValueError, match="is not quadratic"):
        observables.kinetic(relativistic())
    assert observables.kinetic_temperature(coupled())(q, p).shape == ()
    assert observables.kinetic_temperature(planar())(q, p, planar().params).shape == ()


@pytest.mark.slow
def test_temperatures_with_constraints_count_the_directions_that_are_left():
    """Of Gaussian momenta along three rigid points, nine coordinates of which six may move."""
    T, mass = 0.7, np.array([[[1.0], [2.0], [3.0]]])
    system = da.System(
        H=lambda q, p: jnp.sum(p**2 / (2 * mass)), dim=(1, 3, 3),
        constraints=da.constraints.rigid({(0, 1): 1.0, (1, 2): 1.0, (0, 2): 1.0}),
    )  # fmt: skip
    q = np.array([[[0.0, 0, 0], [1, 0, 0], [0.5, np.sqrt(0.75), 0]]])
    free = np.sqrt(T * mass) * np.random.default_rng(0).standard_normal((4000, 1, 3, 3))
    p = jax.jit(jax.vmap(lambda p: da.project(system, q, p)[1]))(free)
    values = np.asarray(jax.vmap(lambda p: observables.kinetic_temperature(system)(q, p))(p))
    error = values.std() / np.sqrt(len(values))
    assert abs(values.mean() - T) < 4 * error
    assert abs(values.mean() * 6 / 9 - T) > 20 * error, "a control: all nine are counted"
    with pytest.raises(ValueError, match=r"constraints of .* Take kinetic"):
        observables.configurational_temperature(system)


@pytest.mark.parametrize("directions", [1, 2, 24])
def test_configurational_temperature_by_quadrature(directions):
    T, x = 0.7, np.linspace(-5, 5, 161)
    system = langevin(lambda q: jnp.sum(q**4) / 4 + q[0] * q[1] + q[1] ** 2, 2)
    q = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    pair = observables.configurational_temperature(system, directions)
    values = jax.jit(jax.vmap(lambda q: pair(q, jnp.zeros(2), system.params)))(q)
    energy = jax.jit(jax.vmap(lambda q: system.H(q, jnp.zeros(2), system.params)))(q)
    mean = np.exp(-energy / T) @ values
    assert values.shape == (q.shape[0], 2)
    assert mean[0] / mean[1] == pytest.approx(T, rel=1e-12)
    at = jnp.array([0.3, -0.4])
    if directions > 1:  # then it is the whole gradient and Laplacian
        gradient = np.array([0.3**3 - 0.4, -(0.4**3) + 0.3 - 0.8])
        expected = [gradient @ gradient / 2, (3 * 0.3**2 + 3 * 0.4**2 + 2) / 2]
        assert np.allclose(pair(at, jnp.zeros(2), system.params), expected, rtol=1e-14)


# --------------------------------------------------------------------------------------------
# Samples


def within(found, stderr, exact, errors=4):
    """Whether all numbers are within some standard errors, a false alarm in 16,000 for each."""
    return np.all(np.abs(found - exact) < errors * stderr)


@pytest.mark.slow
def test_the_chain_between_heat_baths_keeps_its_flux_and_profile():
    """Midpoint keeps the Gaussian state of a linear system exactly, for every step."""
    system, exact = heat_chain(64), heat_chain_stationary(64)
    root = np.linalg.cholesky(exact.covariance)

    def stationary(key):
        z = root @ jax.random.normal(key, (128,))
        return z[:64], z[64:]

    observe = {"T": lambda q, p, c: p**2, "flux": lambda q, p, c: jnp.mean(heat_current(q, p, c))}
    options = dict(dt=0.25, t_end=20.0, save_every=80, paths=1500, observe=observe)
    run = da.simulate(system, da.midpoint(), stationary, **options)
    T, error = run.mean["T"][-1], run.stderr["T"][-1]
    assert run.failed == 0 and within(T, error, exact.temperatures)
    assert within(run.mean["flux"][-1], run.stderr["flux"][-1], exact.flux)
    assert not within(T, error, 1.5)
    # The control: with the baths exchanged the ends do not stay as they are.
    other = da.simulate(heat_chain(64, 1.0, 2.0), da.midpoint(), stationary, **options)
    assert not within(other.mean["T"][-1], other.stderr["T"][-1], exact.temperatures)


THERMAL = {
    "fput": (lambda: fput(16, 0.5, 1.0, gamma=1.0, temperature=0.8), fput_energy(16, 0.8, 0.5)),
    "ring": (lambda: phi4(16, -0.5, 1.0, temperature=0.8), phi4_ring_moments(16, 0.8, -0.5).second),
    "torus": (lambda: phi4((4, 4), 0.6, 0.0, temperature=0.8), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", THERMAL)
def test_lattices_have_the_gibbs_measure(name):
    """⟨q_i ∂U/∂q_j⟩ = ⟨p_i p_j⟩ = T δ_ij, both temperatures, and what is known of each lattice."""
    make, exact = THERMAL[name]
    system = make()
    K, U = observables.kinetic(system), observables.potential(system)
    if exact is None:
        exact = np.mean(free_field_spectrum((4, 4), 0.8, 0.6))

    def known(q, p, c):
        return K(q, p, c) + U(q, p, c) if name == "fput" else jnp.mean(q**2)

    def virial(q, p, c):
        slope = jax.grad(system.H)(q, p, c)
        return jnp.outer(q.ravel()[:4], slope.ravel()[:4])

    observe = {
        "known": known,
        "virial": virial,
        "kinetic": lambda q, p, c: jnp.outer(p.ravel()[:4], p.ravel()[:4]),
        "T": observables.kinetic_temperature(system),
        "pair": observables.configurational_temperature(system),
    }
    start = (np.zeros(system.shape), np.zeros(system.shape))
    options = dict(dt=0.1, t_end=20.0, save_every=200, paths=4000, observe=observe)
    run = da.simulate(system, da.baoab(), start, **options)
    mean = {key: x[-1] for key, x in run.mean.items()}
    error = {key: x[-1] for key, x in run.stderr.items()}
    assert run.failed == 0
    assert within(mean["T"], error["T"] + 5e-4, 0.8)
    assert within(mean["known"], error["known"], exact)
    for matrix in ("virial", "kinetic"):
        assert within(mean[matrix], error[matrix], 0.8 * np.eye(4)), matrix
        assert not within(mean[matrix], error[matrix], 1.1 * np.eye(4)), "a control"
    # The relative error of the ratio is at most the sum of those of both means.
    relative = np.sum(error["pair"] / mean["pair"])
    assert within(mean["pair"][0] / mean["pair"][1], 0.8 * relative, 0.8)


def chain_in_equilibrium(mass):
    root = np.linalg.cholesky(heat_chain_stationary(8, 0.8, 0.8, mass=mass).covariance)

    def stationary(key):
        z = root @ jax.random.normal(key, (16,))
        return z[:8], z[8:]

    return heat_chain(8, 0.8, 0.8, mass=mass), stationary


POTENTIALS = {
    "chain": partial(chain_in_equilibrium, 2.5),
    "field": lambda: (phi4((4, 4), 0.6, 1.0, temperature=0.8), None),
    "polymer": lambda: (
        polymer(6, 1.3, temperature=0.8, mass=2.0),
        polymer_sampler(6, 1.3, 0.8, mass=2.0),
    ),
    "fluid": lambda: (
        lennard_jones(32, 0.05, 0.8, cutoff=2.5, mass=1.5),
        lennard_jones_sampler(32, 0.05, 0.8, mass=1.5),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POTENTIALS)
def test_every_potential_has_the_gibbs_measure(name):
    """⟨p_i p_j⟩ = mT δ_ij, and ⟨q_i ∂_jU⟩ = T δ_ij.

    The polymer is free to move, so that its positions count from their mean, with T/N less. In a
    periodic box there is no q: ⟨∂_iU ∂_jU⟩ = T ⟨∂_i∂_jU⟩ instead. Another T is the control.
    """
    system, start = POTENTIALS[name]()
    start = start or (np.zeros(system.shape), np.zeros(system.shape))
    count = system.shape[0] if name == "polymer" else np.inf

    def some(x):
        """Four entries, of particles in space in the same direction."""
        return x.ravel()[:: 3 if x.shape[-1] == 3 else 1][:4]

    def slope(q, p, c):
        return some(jax.grad(system.H)(q, p, c))

    def virial(T, q, p, c):
        centre = jnp.mean(q, axis=0, keepdims=True) if name == "polymer" else 0.0
        return jnp.outer(some(q - centre), slope(q, p, c)) - T * EXPECTED

    def hypervirial(T, q, p, c):
        force, first = slope(q, p, c), jnp.eye(q.size)[::3][:4].reshape(4, *q.shape)
        bend = jax.vmap(lambda e: jax.jvp(lambda q: slope(q, p, c), (q,), (e,))[1])(first)
        return jnp.outer(force, force) - T * bend

    EXPECTED = np.eye(4) - 1 / count
    of_positions = hypervirial if name == "fluid" else virial
    observe = {
        "virial": partial(of_positions, 0.8),
        "hot": partial(of_positions, 1.6),
        "kinetic": lambda q, p, c: jnp.outer(some(p), some(p)),
    }
    dt, paths = (0.005, 1000) if name == "fluid" else (0.1, 4000)
    options = dict(dt=dt, t_end=3.0 if name == "fluid" else 10.0, paths=paths, observe=observe)
    method = da.midpoint() if name in ("chain", "polymer") else da.baoab()
    steps = round(options["t_end"] / dt)
    run = da.simulate(system, method, start, save_every=steps, **options)
    momenta = 0.8 * system.params.get("mass", 1.0) * np.eye(4)
    for key, exact in (("virial", 0.0), ("kinetic", momenta)):
        mean, error = run.mean[key][-1], run.stderr[key][-1]
        assert run.failed == 0 and within(mean, error, exact), key
    for key, wrong in (("hot", 0.0), ("kinetic", 1.4 * momenta)):
        assert not within(run.mean[key][-1], run.stderr[key][-1], wrong), key


@pytest.mark.slow
@pytest.mark.parametrize("method", [da.stormer_verlet(), da.baoab()], ids=lambda m: m.name)
def test_every_mode_of_the_harmonic_chain_has_the_bias_of_its_own_oscillator(method):
    """Variances of modes of 32 sites against what the method keeps of each mode, unsampled."""
    N, T, dt = 32, 0.8, 0.8
    system, frequencies = fput(N, 0.0, 0.0, gamma=1.0, temperature=T), fput_frequencies(N)
    mode = da.System(
        H=lambda q, p, c: p @ p / 2 + c["w"] ** 2 * (q @ q) / 2,
        F=lambda q, p, c: -p,
        h=[lambda q, p, c: -np.sqrt(2 * T) * q[0]],
        dim=1,
        params={"w": 1.0},
    )
    kept = [
        np.diag(da.theory.stationary_covariance(mode.with_params(w=float(w)), method, dt))
        for w in frequencies
    ]
    observe = {
        "q": lambda q, p, c: fput_modes(q) ** 2,
        "p": lambda q, p, c: fput_modes(p) ** 2,
    }
    options = dict(dt=dt, t_end=24.0, save_every=30, paths=8000, observe=observe)
    start = gibbs_modes(frequencies, T)
    run = da.simulate(system, method, start, **options)
    for name, exact in zip("qp", np.transpose(kept), strict=True):
        mean, error = run.mean[name][-1], run.stderr[name][-1]
        assert within(mean, error, exact, errors=4.5), name
    # The control: the fastest momenta are not those of the exact solution.
    assert np.max(np.abs(np.transpose(kept)[1] / T - 1)) > 0.05
    assert not within(run.mean["p"][-1], run.stderr["p"][-1], T, errors=4.5)


def gibbs_modes(frequencies, T):
    """A sampler of the harmonic chain at a temperature."""
    N = len(frequencies)
    shapes = np.asarray(jax.vmap(fput_modes)(np.eye(N)))

    def sampler(key):
        q, p = np.sqrt(T) * jax.random.normal(key, (2, N))
        return (q / frequencies) @ shapes.T, p @ shapes.T

    return sampler


@pytest.mark.slow
def test_strong_order_on_the_wave():
    """Midpoint has order one for noises that commute, not the ½ of others."""
    system = stochastic_wave(8, 1.0)
    q, p = state(system)
    options = dict(t_end=0.5, steps=(32, 64, 128, 256), paths=64)
    found = da.strong_order(system, da.midpoint(), (0.5 * q, 0.5 * p), **options)
    low, high = found.interval
    assert 0.8 < low <= found.order <= high < 1.25


@pytest.mark.slow
def test_strong_order_on_a_wave_whose_noises_do_not_commute():
    """The control of the test above: kicks along one axis do not commute with turns."""
    wave = stochastic_wave(8, 1.0)
    q, p = state(wave)

    def h(q, p, w, c):
        return wave.h.fun(q, p, w[0], c) + c["beta"] * jnp.sum(w[1] * q[:, 0] ** 2) / 2

    system = da.System(wave.H, h=h, dim=(8, 2), noises=(2, 8), params=wave.params)
    options = dict(t_end=0.5, steps=(32, 64, 128, 256), paths=64)
    found = da.strong_order(system, da.midpoint(), (0.5 * q, 0.5 * p), **options)
    assert 0.3 < found.interval[0] <= found.interval[1] < 0.8


@pytest.mark.slow
def test_the_polymer_keeps_its_size():
    N, k, T = 6, 1.3, 0.8
    observe = {"ends": end_to_end_squared, "size": gyration_squared,
               "modes": lambda q, p, c: jnp.mean(rouse_modes(q)[1:] ** 2, axis=1)}  # fmt: skip
    options = dict(dt=0.2, t_end=4.0, save_every=20, paths=3000, observe=observe)
    system = polymer(N, k, temperature=T)
    run = da.simulate(system, da.midpoint(), polymer_sampler(N, k, T), **options)
    exact = {"ends": 3 * (N - 1) * T / k, "size": (N**2 - 1) * T / (2 * N * k)}
    exact["modes"] = rouse_variances(N, k, T)
    for name, value in exact.items():
        assert within(run.mean[name][-1], run.stderr[name][-1], value), name


@pytest.mark.slow
def test_the_charge_of_the_wave_is_kept_on_every_path():
    """By midpoint, to rounding; Heun's method is the control."""
    system = stochastic_wave(12, 0.5)
    q, p = state(system)
    observe = {"charge": lambda q, p, c: system.invariants["charge"](q, p, c) - CHARGE}
    CHARGE = float(system.invariants["charge"](q, p, system.params))
    worst = {}
    for method in (da.midpoint(), da.heun()):
        run = da.simulate(system, method, (q, p), dt=0.05, t_end=2.0, paths=16, observe=observe)
        assert run.failed == 0
        worst[method.name] = max(abs(run.minimum["charge"][-1]), abs(run.maximum["charge"][-1]))
    assert worst["midpoint"] < 1e-12 < 1e-5 < worst["heun"]


@pytest.mark.slow
def test_the_mean_of_the_linear_wave():
    system = stochastic_wave(12, 0.5, coupling=0.0)
    q, p = state(system)
    observe = {"q": lambda q, p, c: q, "p": lambda q, p, c: p}
    options = dict(dt=0.02, t_end=2.0, save_every=100, paths=4000, observe=observe)
    run = da.simulate(system, da.midpoint(), (q, p), **options)
    exact = mean_wave(q, p, 2.0, 0.5)
    for name, value in zip("qp", exact, strict=True):
        error = run.stderr[name][-1] + 1e-3  # of the step
        assert within(run.mean[name][-1], error, value, errors=5)
        assert not within(run.mean[name][-1], error, value * np.exp(0.25), errors=5)


@pytest.mark.slow
def test_the_dilute_fluid_has_the_energy_and_pressure_of_nist():
    """108 particles at (T, density) = (0.85, 0.005); they have 107/108 of the pairs of many."""
    N, density, T = 108, 0.005, 0.85
    system = lennard_jones(N, density, T)
    observe = {"potential": lennard_jones_energy, "pressure": lennard_jones_pressure}
    average = {name: da.TimeAverage(fun, burn_in=10.0) for name, fun in observe.items()}
    start = lennard_jones_sampler(N, density, T)
    options = dict(dt=0.01, t_end=60.0, save_every=50, paths=16, statistics=average)
    run = da.simulate(system, da.baoab(), start, **options)
    energy, pressure = run.statistics["potential"], run.statistics["pressure"]
    assert within(energy.mean, energy.stderr, -0.05190 * 107 / 108)
    assert within(pressure.mean, pressure.stderr, 4.1003e-3)
    assert energy.stderr < 2e-3 and not within(energy.mean, energy.stderr, -0.07)
