"""Plasmas: linear theory, fields and their structure, starts, and runs against linear theory."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import wofz

import dalembert as da
from dalembert.plasma import (
    Dougherty,
    Fourier,
    LenardBernstein,
    Maxwellian,
    Spline,
    Start,
    linear,
    vlasov_poisson,
)
from dalembert.plasma.fields import density_waves
from dalembert.plasma.roots import best_of
from dalembert.plasma.starts import even_points
from dalembert.theory import jacobian, symplectic_defect
from tiers import tiered

# --------------------------------------------------------------------------------------------
# Linear theory


def test_dispersion_function_is_that_of_faddeeva():
    x = np.linspace(-30, 30, 121)
    xi = x[:, None] + 1j * np.linspace(-3, 10, 53)
    expected = 1j * np.sqrt(np.pi) * wofz(xi)
    assert np.max(np.abs(linear.dispersion_function(xi) / expected - 1)) < 1e-12


@pytest.mark.parametrize(
    ("k", "velocities", "expected"),
    [
        (0.5, Maxwellian(), 1.4156619 - 0.1533595j),
        (0.3, Maxwellian(), 1.159846 - 0.0126204j),
        (0.2, da.plasma.two_streams(3.0), 0.28451j),
        (0.25, Maxwellian(temperature=4.0), 1.4156619 - 0.1533595j),
        (0.5, Maxwellian(drift=2.0), 2.4156619 - 0.1533595j),
    ],
)
def test_known_roots_without_collisions(k, velocities, expected):
    assert linear.root(k, velocities=velocities) == pytest.approx(expected, abs=1e-6)


def test_weibel_growth():
    u_x = 0.02 / np.sqrt(2)
    growth = linear.weibel_root(1.25, u_x, np.sqrt(12) * u_x, 1.0)
    assert growth.imag == pytest.approx(0.027837, abs=5e-7) and abs(growth.real) < 1e-9
    # Without anisotropy light passes.
    light = linear.weibel_root(1.25, u_x, u_x, 1.0)
    assert light.real > np.hypot(1.25, 1.0) and abs(light.imag) < 1e-9


def test_collisions_damp_the_less_the_more_they_conserve():
    damping = [-linear.root(0.5, 0.5, name).imag for name in linear.COLLISIONS]
    assert damping[0] / damping[1] == pytest.approx(3, rel=0.1)
    assert damping[0] / damping[2] == pytest.approx(8, rel=0.1)


def test_few_collisions_are_nearly_none():
    found, free = (linear.root(0.5, nu, "lenard_bernstein") for nu in (0.01, 0.0))
    assert abs(found - free) < 0.02 and found != free


@pytest.mark.parametrize("collisions", [None, *linear.COLLISIONS])
def test_the_response_ends_in_the_least_damped_wave(collisions):
    """n(t) of a standing wave obeys n(t + s) + |z|² n(t − s) = 2 Re z n(t), z = e^{−iωs}."""
    nu = 0.0 if collisions is None else 0.1
    t = np.array([24.0, 25.0, 26.0])
    n = linear.response(0.5, t, nu, collisions)
    assert np.max(np.abs(n.imag)) < 1e-12
    z = np.exp(-1j * linear.root(0.5, nu, collisions))
    rest = abs(n[2] + abs(z) ** 2 * n[0] - 2 * z.real * n[1])
    assert rest < 2e-3 * np.max(np.abs(n))


@pytest.mark.parametrize("collisions", tiered(linear.COLLISIONS, {"dougherty"}))
def test_very_few_collisions_change_roots_in_proportion(collisions):
    """Of the integral against the continued fraction, and where that one has no digits left."""
    free = linear.root(0.5)
    change = [(linear.root(0.5, nu, collisions) - free) / nu for nu in (1e-6, 1e-2)]
    assert change[0] == pytest.approx(change[1], rel=0.05) and abs(change[0]) > 0.1
    n, w = linear.COLLISIONS[collisions], np.array([1.4 - 0.15j, 0.3 + 0.1j])
    one, other = (fun(w, 0.5, 0.04, n) for fun in (linear._integrated, linear._continued))
    assert np.allclose(one, other, rtol=1e-10)


@pytest.mark.parametrize("k", [1e-3, 1e-2, 5e-2])
def test_long_waves_are_those_of_a_cold_plasma(k):
    found = linear.root(k)
    assert found.real == pytest.approx(1 + 1.5 * k**2 + 15 / 8 * k**4, abs=20 * k**6 + 1e-12)
    assert abs(found.imag) < 1e-50


def test_waves_that_are_not_found_are_named():
    with pytest.raises(ValueError, match=r"at k = 1e-05 .* the wave is too long"):
        linear.root(1e-5)
    with pytest.raises(ValueError, match=r"found at k = 60 and nu = 0\.01"):
        best_of(np.zeros(0, complex), "k = 60 and nu = 0.01")


def test_the_response_of_two_streams_grows_and_keeps_the_order_of_times():
    streams = da.plasma.two_streams(3.0)
    t = np.array([[45.0, 44.0], [0.0, 44.0]])
    n = linear.response(0.2, t, velocities=streams)
    growth = np.log(n[0, 0].real / n[0, 1].real)
    assert growth == pytest.approx(linear.root(0.2, velocities=streams).imag, rel=1e-4)
    assert n[1, 0] == 1 and n[1, 1] == n[0, 1]


def test_free_streaming_is_what_the_response_begins_with():
    """Hot particles hardly act on each other: n(t) = exp(−k²Tt²/2)."""
    t = np.linspace(0, 0.3, 7)
    n = linear.response(20.0, t)
    assert np.allclose(n, np.exp(-((20 * t) ** 2) / 2), atol=5e-3)
    assert not np.allclose(n, np.exp(-((20 * t) ** 2) / 2), atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (dict(k=0.0), "k is 0.0, but must be above 0"),
        (dict(k=0.5, nu=-1.0), "nu is -1.0, but must be at least 0"),
        (dict(k=0.5, nu=0.1), "say which collisions"),
        (dict(k=0.5, nu=0.1, collisions="coulomb"), "must be None or in"),
        (
            dict(k=0.5, nu=0.1, collisions="dougherty", velocities=da.plasma.two_streams(3.0)),
            "only a Maxwellian at rest",
        ),
        (dict(k=0.5, velocities=[Maxwellian(), Maxwellian()]), "add up to 2.0"),
    ],
)
def test_linear_theory_refuses(arguments, match):
    with pytest.raises(ValueError, match=match):
        linear.root(**arguments)
    with pytest.raises(ValueError, match=match):
        linear.response(t=1.0, **arguments)


def test_times_before_the_start_are_refused():
    with pytest.raises(ValueError, match="at least 0"):
        linear.response(0.5, [-1.0])


# --------------------------------------------------------------------------------------------
# Fields


SPECIES = dict(
    charge=np.array([-1.0, 1.0] * 5),
    mass=np.array([1.0, 4.0] * 5),
    weight=np.linspace(0.5, 1.5, 10),
)
CASES = {
    "fourier": dict(field=Fourier(3)),
    "fourier, species": dict(field=Fourier(2), **SPECIES),
    "fourier, 2d": dict(field=Fourier((2, 1)), length=(7.0, 9.0)),
    "spline": dict(field=Spline(8)),
    "spline, linear": dict(field=Spline(7, degree=1), **SPECIES),
    "spline, 2d3v": dict(field=Spline((6, 5)), length=(7.0, 9.0), velocities=3),
    "given field": dict(field=Fourier(1), potential=lambda x: 0.3 * jnp.cos(x)),
}


def plasma(name, N=10, **more):
    system = vlasov_poisson(N, **{**CASES[name], **more})
    q, p = np.random.default_rng(4).normal(size=(2, *system.shape))
    return system, 2 * q, p


def test_energy_of_fourier_modes_is_the_sum_over_pairs():
    """H of all pairs of charges, each with a wave of the field at the other, written by hand."""
    system, q, p = plasma("fourier, species")
    Q = SPECIES["weight"] * SPECIES["charge"]
    M = SPECIES["weight"] * SPECIES["mass"]
    k = np.arange(1, 3) / 2
    waves = np.cos(k[:, None, None] * (q[:, None] - q)) / k[:, None, None] ** 2
    expected = np.sum(p**2 / (2 * M)) + np.einsum("kij,i,j->", waves, Q, Q) / 10
    assert system.H(jnp.asarray(q), jnp.asarray(p), system.params) == pytest.approx(expected)
    force = np.einsum(
        "kij,i,j->i", np.sin(k[:, None, None] * (q[:, None] - q)) / k[:, None, None], Q, Q
    )
    assert np.allclose(system.drift(q, p)[1], 2 * force / 10, atol=1e-13)
    assert np.allclose(system.drift(q, p)[0], p / M)


def test_modes_in_two_dimensions_are_half_of_the_plane():
    numbers = da.plasma.mode_numbers((1, 1))
    assert sorted(map(tuple, numbers)) == [(0, 1), (1, -1), (1, 0), (1, 1)]
    system, q, p = plasma("fourier, 2d")
    k = 2 * np.pi * da.plasma.mode_numbers((2, 1)) / np.array([7.0, 9.0])
    rho = np.mean(-np.exp(-1j * q @ k.T), axis=0)
    expected = np.abs(rho) ** 2 / np.sum(k**2, axis=1)
    energies = da.plasma.field_energies(Fourier((2, 1)))(jnp.asarray(q), p, system.params)
    assert np.allclose(energies, expected, rtol=1e-12)


@pytest.mark.parametrize("modes", [1, 8, 19, (0, 3), (3, 0), (1, 5)])
def test_modes_that_are_computed_from_others_are_as_good_as_any(modes):
    """Runs of consecutive modes, one run or several, against cosines and sines of each alone."""
    numbers = da.plasma.mode_numbers(modes)
    sides, axes = (7.0, 9.0)[: numbers.shape[1]], numbers.shape[1]
    x = np.random.default_rng(2).uniform(-50, 50, (axes, 40))
    charge = np.random.default_rng(3).normal(size=40)
    waves = np.exp(2j * np.pi * (numbers / sides) @ x)
    for Q in (charge, -2.0):
        real, imaginary = density_waves(tuple(map(jnp.asarray, x)), jnp.asarray(Q), sides, modes)
        found = np.asarray(real) + 1j * np.asarray(imaginary)
        assert np.allclose(found, np.mean(Q * waves, axis=1), atol=2e-14)


@pytest.mark.parametrize("degree", [1, 2])
def test_a_fine_grid_has_the_field_of_fourier_modes(degree):
    system, q, p = plasma("fourier, species")
    q, params = jnp.asarray(q), system.params
    modes = da.plasma.field_energies(Fourier(3))(q, p, params)
    coarse, fine = (
        da.plasma.field_energies(Spline(n, degree))(q, p, params)[1:4] for n in (64, 256)
    )
    assert np.allclose(fine, modes, rtol=2e-3)
    assert np.max(np.abs(fine / modes - 1)) < 0.1 * np.max(np.abs(coarse / modes - 1))


def test_all_modes_of_a_grid_are_the_energy_of_its_density():
    """Parseval, with an even and an odd number of cells: −φ'' = ρ by a matrix of cosines."""
    for cells in (8, 9):
        field = Spline(cells)
        q = jnp.asarray(np.random.default_rng(1).uniform(0, 3.0, 50))
        rho = np.asarray(field._density((q,), jnp.ones(50), (3.0,)))
        assert np.mean(rho) == pytest.approx(1.0)
        l = np.fft.fftfreq(cells, 1 / cells)
        waves = np.exp(-2j * np.pi * np.outer(l, np.arange(cells)) / cells) @ rho / cells
        k = 2 * np.pi * l / 3.0
        expected = np.sum(np.abs(waves[1:]) ** 2 / k[1:] ** 2) / 2
        assert np.sum(field.energies((q,), jnp.ones(50), (3.0,))) == pytest.approx(expected)


@pytest.mark.parametrize("name", tiered(CASES, {"fourier, species", "spline"}))
def test_forces_are_the_gradient_and_the_step_is_symplectic(name):
    system, q, p = plasma(name)
    along = np.random.default_rng(5).normal(size=system.shape)
    H = jax.jit(lambda q: system.H(q, jnp.asarray(p), system.params))
    slope = (H(q + 1e-5 * along) - H(q - 1e-5 * along)) / 2e-5
    assert np.sum(-system.drift(q, p)[1] * along) == pytest.approx(float(slope), rel=1e-7)
    M = jacobian(system, da.stormer_verlet(), q, p, 0.2, np.zeros(0))
    assert symplectic_defect(M) < 1e-13
    assert set(system.invariants) >= {"energy"}


def test_a_force_that_is_interpolated_is_not_symplectic():
    """The control: the field on the grid, taken at the particles as their charges are spread."""
    field, system = Spline(8, 1), plasma("spline")[0]
    _, q, p = plasma("spline")

    def force(q, p, params):
        rho = field._density((q,), -jnp.ones(10), params["length"])
        waves = jnp.fft.rfft(rho) * np.append(0, -2j / np.arange(1, 5))
        E = jnp.fft.irfft(waves, 8)
        at = q * (8 / params["length"][0])
        left = jnp.floor(at)
        i, f = left.astype(jnp.int32), at - left
        return -(E[i % 8] * (1 - f) + E[(i + 1) % 8] * f)

    def H(q, p, params):
        return jnp.sum(p**2) / 2

    wrong = da.System(H=H, F=force, dim=10, params=system.params)
    M = jacobian(wrong, da.stormer_verlet(), q, p, 0.2, np.zeros(0))
    assert symplectic_defect(M) > 1e-3


def test_collisions_are_those_of_lenard_and_bernstein():
    """Velocities: −ν v dt + √(2νT/m) dW, whatever the weight."""
    T = np.linspace(1.0, 2.0, 10)
    system, q, p = plasma("fourier, species", nu=0.3, temperature=T)
    free, M = plasma("fourier, species")[0], SPECIES["weight"] * SPECIES["mass"]
    drift = system.drift(q, p)[1] - free.drift(q, p)[1]
    assert np.allclose(drift / M, -0.3 * p / M)
    noise = tuple(map(np.asarray, system.diffusion(q, p)))
    assert np.allclose(noise[0], 0)
    assert np.allclose(noise[1] / M, np.diag(np.sqrt(2 * 0.3 * T / SPECIES["mass"])))
    assert system.invariants == {} and free.noises == 0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (dict(length=(1.0, 2.0)), "as many lengths as it has axes"),
        (dict(velocities=4), "at most 3"),
        (dict(nu=-0.1), "nu is -0.1, but must be at least 0"),
        (dict(charge=np.ones(3)), r"charge has shape \(3,\)"),
        (dict(mass=0.0), "mass is 0.0, but must be above 0"),
        (dict(mass=np.inf), "mass is inf, but must be above 0"),
        (dict(length=np.inf), "length is .* but must be above 0"),
        (dict(nu=np.inf), "nu is inf, but must be at least 0"),
        (dict(charge=np.nan), "charge is nan, but must be finite"),
        (dict(charge=np.zeros(0)), r"charge has shape \(0,\)"),
        (dict(N=2.5), "N is 2.5, but must be a whole number of particles"),
        (dict(velocities=2.0), "velocities is 2.0, but must be at least"),
        (dict(field=None), "field must be one such as"),
        (dict(field=Fourier), "field must be one such as"),
        (dict(potential=3.0), "potential must be a function of positions"),
        (dict(potential=lambda x: 1.0), r"potential returns shape \(\), .* \(10,\)"),
        (dict(potential=lambda x: x[:, None]), r"potential returns shape \(10, 1\)"),
        (dict(collisions=Dougherty), "an operator such as"),
        (dict(nu=0.1, collisions=Dougherty(cells=6)), "6 cells for 10 particles"),
        (dict(nu=0.1, collisions=LenardBernstein(cells=6)), "Take at most 5 cells"),
    ],
)
def test_plasmas_that_are_none_are_refused(arguments, match):
    with pytest.raises((ValueError, TypeError), match=match):
        vlasov_poisson(**{"N": 10, **arguments})


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Fourier(0), "modes must be a whole number of 1 or more"),
        (lambda: Spline(2), "cells must be a whole number of 4 or more"),
        (lambda: Spline(8, 3), "degree is 3"),
        (lambda: Start(8, amplitude=1.5), "amplitude is 1.5, but must be between"),
        (lambda: Start(8, density=jnp.cos, amplitude=0.1), "give no amplitude or mode besides"),
        (lambda: Start(8, density=jnp.cos, mode=2), "give no amplitude or mode besides"),
        (lambda: Start(8, distribution=breathing, mode=2), "amplitude, mode nor velocities"),
        (lambda: Start(8, density=jnp.cos).quiet(), "must be a finite scalar ≥ 0 everywhere"),
        (lambda: Start(8, velocities=jnp.exp, reach=0.0), "reach is 0.0, but must be above 0"),
        (lambda: Start(8, velocities=lambda v: jnp.exp(-v * v / 90)).quiet(), "a larger reach"),
        (
            # Of the particles 0.03 % would be left out, but of their energy more than a tenth.
            lambda: Start(8, velocities=lambda v: (1 + v * v) ** -2.0, reach=11.0).quiet(),
            "nor does the energy of what is beyond",
        ),
        (lambda: Start(8, distribution=breathing, amplitude=0.1), "neither density, amplitude"),
        (lambda: Start(8, distribution=breathing, density=jnp.cos), "neither density, amplitude"),
        (
            lambda: Start(8, distribution=breathing, velocities=da.plasma.two_streams(3.0)),
            "neither density, amplitude",
        ),
        (lambda: Start(8, distribution=lambda x, v: x * v).quiet(), "a finite scalar ≥ 0"),
        (lambda: Start(8, distribution=lambda x, v: 0.0 * x * v).quiet(), "zero everywhere"),
        # Between the rows of the first table, and seen in its middles alone.
        (
            lambda: Start(8, distribution=lambda x, v: abs(v - 1 / 64) < 1e-4 + 0 * x).quiet(),
            "too narrow",
        ),
        (
            lambda: Start(8, distribution=lambda x, v: jnp.exp(-0.01 * v * v)).quiet(),
            "larger reach",
        ),
        (
            lambda: Start(
                8, distribution=lambda x, v: jnp.exp(-1e6 * (v - jnp.sin(x)) ** 2)
            ).quiet(),
            "too narrow for x from 0 to 12.56",
        ),
        (lambda: Start(8, mode=0), "1 or more along x"),
        (lambda: Start(8, mode=(1, 1)), "at most as many numbers"),
        (lambda: Start(8.0), "N is 8.0, but must be a whole number"),
        (lambda: Start(8, mode=True), "mode is True"),
        (lambda: Start(8, mode=()), "at most as many numbers"),
        (lambda: Start(8, components=True), "components is True"),
        (lambda: Start(8, mass=-1.0), "mass is -1.0, but must be above 0"),
        (lambda: Start(8, weight=np.ones(3)), r"weight must be a number or an array of shape"),
        (lambda: Start(8, velocities=None), "velocities must be a da.plasma.Maxwellian"),
        (lambda: da.plasma.density_modes(0), "modes must be a whole number of 1 or more"),
        (lambda: da.plasma.phase_space(0), "columns_x is 0"),
        (lambda: da.plasma.entropy(speed=-1.0), "speed is -1.0, but must be above 0"),
        (lambda: seen(da.plasma.density_modes((1, 1))), r"2 dimension\(s\), but the box has 1"),
        (lambda: seen(da.plasma.field_energies(Fourier((1, 1)))), "but the box has 1"),
        (lambda: Maxwellian(temperature=0.0), "temperature is 0.0"),
        (lambda: Maxwellian(fraction=1.5), "fraction is 1.5"),
    ],
)
def test_parts_that_are_none_are_refused(make, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make()


def seen(observable):
    """What an observable says of a small plasma in one dimension."""
    q, p = map(jnp.asarray, Start(8).quiet())
    return observable(q, p, vlasov_poisson(8).params)


def test_sources_are_in_the_bibliography():
    keys = re.findall(r"`(\w+\d{4}\w*)`", (vlasov_poisson.__doc__ or "").split("Source: ")[1])
    bibliography = (Path(__file__).parents[2] / "docs" / "references.bib").read_text("utf-8")
    assert keys and all(f"{{{key}," in bibliography for key in keys)


# --------------------------------------------------------------------------------------------
# Starts


def test_even_points_fill_the_cube():
    u = even_points(1000, 4)
    assert u.shape == (4, 1000) and np.all((u > 0) & (u < 1))
    corner = np.mean(np.all(u < 0.5, axis=0))
    assert corner == pytest.approx(1 / 16, abs=0.01)
    assert np.allclose(np.mean(u, axis=1), 0.5, atol=0.01)


def test_even_points_are_those_of_sobol_and_more_even_than_random_ones():
    from scipy.stats import qmc

    u = even_points(256, 5)
    expected = qmc.Sobol(4, scramble=False).random(256)
    # In Gray code there, in order here; each in the middle of its digit here.
    assert {*map(tuple, u[1:].T - 1 / 512)} == {*map(tuple, expected)}
    noise = qmc.discrepancy(np.random.default_rng(0).uniform(size=(256, 5)))
    assert qmc.discrepancy(u.T) < 0.1 * noise


@pytest.mark.parametrize("kind", ["quiet", "random"])
def test_starts_have_the_density_and_velocities_that_were_asked_for(kind):
    streams = da.plasma.bump_on_tail(4.0, 0.2, temperature=0.25)
    N, noise = 2**14, {"quiet": 2e-3, "random": 0.04}[kind]
    start = Start(N, 10.0, amplitude=0.3, mode=2, velocities=streams, mass=2.0, weight=1.5)
    q, p = start.quiet() if kind == "quiet" else start.random(jax.random.key(3))
    wave = np.exp(-2j * np.pi * np.arange(1, 4)[:, None] * np.asarray(q) / 10.0)
    assert np.allclose(2 * np.mean(wave, axis=1), [0, 0.3, 0], atol=noise)
    v = np.asarray(p) / 3.0
    assert np.mean(v) == pytest.approx(0.8, abs=noise)
    assert np.mean(v**2) == pytest.approx(0.8 + 0.2 * (16 + 0.25), abs=5 * noise)
    assert np.mean(v > 2.5) == pytest.approx(0.2 * 0.99865 + 0.8 * 0.00621, abs=noise)


@pytest.mark.parametrize("kind", ["quiet", "random"])
def test_starts_of_any_density(kind):
    """A saw-tooth in x and a flat top in v: means and squares as integrals have them."""
    N, L, noise = 2**14, 6.0, {"quiet": 1e-3, "random": 0.06}[kind]
    start = Start(
        N, L, density=lambda x: x, velocities=lambda v: jnp.where(jnp.abs(v) < 2, 1.0, 0.0), reach=3
    )
    q, p = start.quiet() if kind == "quiet" else map(np.asarray, start.random(jax.random.key(0)))
    assert np.all((q >= 0) & (q <= L)) and np.max(np.abs(p)) < 2.001
    assert np.mean(q) == pytest.approx(2 * L / 3, abs=noise)
    assert np.mean(q**2) == pytest.approx(L**2 / 2, abs=4 * noise)
    assert np.mean(p**2) == pytest.approx(4 / 3, abs=2 * noise)
    # The control: positions and velocities are independent, and not uniform in x.
    assert abs(np.corrcoef(q, p)[0, 1]) < 0.02 and abs(np.mean(q) - L / 2) > 0.5
    with pytest.raises(ValueError, match="knows Maxwellians with a wave"):
        da.plasma.DeltaF(start, (q, p))


def breathing(x, v):
    """A density with a wave, of Maxwellians of the temperature ¼ that move with 0.8 sin(πx/3)."""
    k = jnp.pi / 3
    return 7.0 * (1 + 0.5 * jnp.cos(k * x)) * jnp.exp(-2 * (v - 0.8 * jnp.sin(k * x)) ** 2)


@pytest.mark.parametrize("kind", ["quiet", "random"])
@pytest.mark.parametrize("components", [1, 3])
def test_starts_of_any_distribution_of_both(kind, components):
    """The mean velocity is that of each place, and about it is a Maxwellian."""
    N, L, noise = 2**14, 6.0, {"quiet": 2e-3, "random": 0.04}[kind]
    start = Start(
        N, L, distribution=breathing, components=components, transverse=4.0, mass=2.0, weight=1.5
    )
    q, p = start.quiet() if kind == "quiet" else map(np.asarray, start.random(jax.random.key(0)))
    x, v = (q, p / 3) if components == 1 else (q[:, 0], p[:, 0] / 3)
    s, c = (fun(np.pi / 3 * x) for fun in (np.sin, np.cos))
    assert np.all((x >= 0) & (x <= L))
    assert 2 * np.mean(c) == pytest.approx(0.5, abs=noise)
    own = v - 0.8 * s
    assert np.mean(own) == pytest.approx(0, abs=noise)
    assert np.mean(own**2) == pytest.approx(0.25, abs=noise)
    assert np.mean(own**4) == pytest.approx(3 / 16, abs=noise)
    assert np.allclose([np.mean(own * s), np.mean(own**2 * c)], [0, 0.25 * 0.25], atol=noise)
    # The control: velocities that do not know where they are.
    assert abs(np.mean(v * s)) > 0.2
    if components == 3:
        assert np.allclose(np.cov(p[:, 1:].T / 3), 4 * np.eye(2), atol=5 * noise)
    with pytest.raises(ValueError, match="knows Maxwellians with a wave"):
        da.plasma.DeltaF(start, (q, p))


def test_a_product_as_a_distribution_of_both_is_the_start_of_its_factors():
    factors = dict(density=lambda x: 1 + x * (6 - x), velocities=lambda v: jnp.exp(-v * v))
    apart = Start(2**12, 6.0, **factors).quiet()
    together = Start(
        2**12, 6.0, distribution=lambda x, v: factors["density"](x) * factors["velocities"](v)
    ).quiet()
    for one, other in zip(apart, together, strict=True):
        assert np.allclose(one, other, atol=1e-3)


def test_a_distribution_may_end_abruptly():
    """A water bag whose edges move: particles are inside, and evenly."""
    inside = lambda x, v: jnp.where(jnp.abs(v) < 1 + 0.3 * jnp.sin(jnp.pi / 3 * x), 1.0, 0.0)  # noqa: E731
    q, p = Start(2**14, 6.0, distribution=inside, reach=2.0).quiet()
    edge = 1 + 0.3 * np.sin(np.pi / 3 * q)
    assert np.mean(np.abs(p) > edge) < 0.01 and np.max(np.abs(p) - edge) < 0.02
    assert np.mean((p / edge) ** 2) == pytest.approx(1 / 3, abs=2e-3)
    assert 2 * np.mean(np.sin(np.pi / 3 * q)) == pytest.approx(0.3, abs=2e-3)


def test_starts_in_two_dimensions():
    start = Start(2**14, (5.0, 8.0), 0.3, mode=(1, -2), components=3, transverse=4.0)
    q, p = start.quiet()
    assert q.shape == p.shape == (2**14, 3) and np.all(q[:, 2] == 0)
    phase = 2 * np.pi * (q[:, 0] / 5.0 - 2 * q[:, 1] / 8.0)
    assert 2 * np.mean(np.exp(1j * phase)) == pytest.approx(0.3, abs=5e-3)
    assert np.allclose(np.cov(p.T), np.diag([1.0, 4.0, 4.0]), atol=0.02)


def test_thermal_energy_is_that_about_the_mean_velocity():
    system, q, p = plasma("spline, 2d3v")
    moved = p + np.array([1.0, -2.0, 3.0])
    energies = [
        [float(fun(jnp.asarray(q), jnp.asarray(x), system.params)) for x in (p, moved)]
        for fun in (da.plasma.thermal_energy, da.plasma.kinetic_energy)
    ]
    assert energies[0][0] == pytest.approx(np.sum(np.var(p, axis=0)) / 2)
    assert energies[0][1] == pytest.approx(energies[0][0]) and energies[1][1] > energies[1][0] + 1
    system, q, p = plasma("fourier, species")
    M = SPECIES["weight"] * SPECIES["mass"]
    u = np.sum(p) / np.sum(M)
    found = da.plasma.thermal_energy(jnp.asarray(q), jnp.asarray(p), system.params)
    assert found == pytest.approx(np.mean(M * (p / M - u) ** 2) / 2)


def test_phase_space_and_entropy_of_particles():
    """Counts of a histogram, whatever boxes particles have left; entropy of a Maxwellian."""
    system = vlasov_poisson(2**14, 10.0, weight=1.0, mass=2.0)
    q, p = Start(2**14, 10.0, amplitude=0.5, mass=2.0).quiet()
    f = np.asarray(
        da.plasma.phase_space(8, 10, 4.0)(jnp.asarray(q + 70), jnp.asarray(p), system.params)
    )
    expected = np.histogram2d(q, p / 2, bins=(8, 10), range=((0, 10), (-4, 4)))[0]
    assert np.allclose(f, expected / 2**14 / (10 / 8 * 0.8))
    q, p = Start(2**14, 10.0).quiet()
    plain = vlasov_poisson(2**14, 10.0)
    found = da.plasma.entropy(8, 40, 5.0)(jnp.asarray(q), jnp.asarray(p), plain.params)
    assert found == pytest.approx(np.log(10.0) + (1 + np.log(2 * np.pi)) / 2, abs=0.02)


# --------------------------------------------------------------------------------------------
# Runs


ONE_MODE = Fourier(1)


def curve(k, N, method=None, field=ONE_MODE, t_end=15.0, alpha=0.05, paths=1, random=False, **more):
    """A run from a perturbed Maxwellian, and n_k(t)/n_k(0) of it."""
    velocities = more.pop("velocities", Maxwellian())
    system = vlasov_poisson(N, 2 * np.pi / k, field, **more)
    start = Start(N, 2 * np.pi / k, amplitude=alpha, velocities=velocities)
    observe = {
        "n": da.plasma.density_modes(1),
        "momentum": da.plasma.momentum,
        "kinetic": da.plasma.kinetic_energy,
        "field": da.plasma.field_energies(field),
    }
    run = da.simulate(
        system, method or da.stormer_verlet(), start.random if random else start.quiet(),
        dt=0.1, t_end=t_end, paths=paths, observe=observe, progress=False,
    )  # fmt: skip
    return run, -run.mean["n"][:, 0, 0] / alpha


def distance(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("N", "field", "bound"),
    [
        (2**14, Fourier(1), 0.03),
        pytest.param(2**14, Spline(32), 0.04, marks=pytest.mark.slow),
        pytest.param(2**18, Fourier(1), 0.008, marks=pytest.mark.slow),
    ],
)
def test_landau_damping_is_that_of_linear_theory(N, field, bound):
    run, n = curve(0.5, N, field=field)
    expected = linear.response(0.5, run.t).real
    assert distance(n, expected) < bound
    # The control: neither a little another wave number, nor the field without particles' answer.
    assert distance(n, linear.response(0.55, run.t).real) > 5 * bound
    energy = run.mean["kinetic"] + np.sum(run.mean["field"], axis=-1)
    assert np.ptp(energy) < 1e-4 * energy[0]


@pytest.mark.slow
def test_total_momentum_is_kept_by_fourier_modes_and_not_quite_by_a_grid():
    drift = {}
    for field in (Fourier(2), Spline(8)):
        run, _ = curve(0.5, 512, field=field, alpha=0.5, random=True, t_end=40.0)
        drift[type(field)] = np.ptp(run.mean["momentum"])
    assert drift[Fourier] < 1e-14
    assert drift[Spline] > 1e-8


@pytest.mark.slow
def test_energy_drifts_with_heun_and_not_with_verlet():
    def trend(method):
        start = Start(256, amplitude=0.5).quiet()
        run = da.simulate(
            vlasov_poisson(256), method, start, dt=0.2, t_end=200.0, paths=1, progress=False
        )
        first, second = np.split(run.mean["energy"][1:] / 256, 2)
        return np.mean(second) - np.mean(first)

    assert abs(trend(da.stormer_verlet())) < 1e-4
    assert trend(da.heun()) > 1e-3


@pytest.mark.slow
def test_two_streams_grow_at_the_rate_of_linear_theory():
    streams = da.plasma.two_streams(3.0)
    run, n = curve(0.2, 2**16, alpha=2e-3, velocities=streams, t_end=18.0)
    late = run.t > 14
    theory = linear.response(0.2, run.t, velocities=streams).real
    found, expected = (da.plasma.fit_growth(run.t[late], x[late]).gamma for x in (n, theory))
    assert found == pytest.approx(expected, rel=0.02)
    assert distance(n, theory) < 0.02


@pytest.mark.slow
def test_landau_damping_has_the_rate_of_linear_theory():
    """The same fit of particles and of theory; that of another wave number is no such rate."""
    run, n = curve(0.5, 2**18, alpha=0.02, t_end=14.0)
    late = (run.t > 3.95) & (run.t < 14.05)
    curves = [linear.response(k, run.t).real for k in (0.5, 0.49)]
    found, expected, other = (da.plasma.fit_wave(run.t[late], x[late]) for x in (n, *curves))
    assert found.gamma == pytest.approx(expected.gamma, rel=0.01)
    assert found.omega == pytest.approx(expected.omega, rel=0.002)
    assert expected.gamma == pytest.approx(linear.root(0.5).imag, rel=0.01)
    assert abs(other.gamma / expected.gamma - 1) > 0.03


@pytest.mark.parametrize(("nu", "N", "alpha"), [(0.5, 2**12, 0.2), (0.1, 2**16, 0.1)])
@pytest.mark.slow
def test_lenard_bernstein_damping_is_that_of_linear_theory(nu, N, alpha):
    """Mean over paths of random starts, in units of its error; the other operators are refuted."""
    run, n = curve(0.5, N, alpha=alpha, nu=nu, paths=16, random=True, t_end=10.0)
    error = run.stderr["n"][:, 0, 0] / alpha

    def gap(collisions):
        expected = linear.response(0.5, run.t, nu, collisions).real
        return np.sqrt(np.mean(((n - expected) / error) ** 2))

    assert gap("lenard_bernstein") < 2
    assert gap("lenard_bernstein_momentum") > 4 and gap("dougherty") > 4
