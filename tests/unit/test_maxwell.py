"""The canonical Vlasov–Maxwell system: its equations, what is kept, and Weibel's instability."""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.plasma import (
    Fourier,
    Maxwellian,
    Start,
    canonical_state,
    canonical_view,
    light_energies,
    linear,
    vlasov_maxwell,
)
from dalembert.theory import jacobian, symplectic_defect

SPECIES = dict(
    charge=np.array([-1.0, 1.0] * 3), mass=np.array([1.0, 4.0] * 3), weight=np.linspace(0.5, 1.5, 6)
)


def plasma(**more):
    system = vlasov_maxwell(6, 5.0, modes=2, c=1.5, **{**SPECIES, **more})
    rng = np.random.default_rng(3)
    state = rng.normal(size=(2, 6, 2))
    waves, slopes = rng.normal(size=(2, 2, 2))
    return system, canonical_state((3 * state[0], state[1]), system, waves, slopes)


def test_the_equations_are_those_of_newton_lorentz_and_maxwell():
    """x'' = (q/m)(E_x + v_y B_z), v_y' = (q/m)(E_y − v_x B_z), A'' = c² A_xx + J, by hand."""
    system, (q, p) = plasma(field=None)
    N, L, c, Q = 6, 5.0, 1.5, SPECIES["weight"] * SPECIES["charge"]
    M = SPECIES["weight"] * SPECIES["mass"]
    view = canonical_view(jnp.asarray(q), jnp.asarray(p), system.params, N)
    x, v = np.asarray(view.x), np.asarray(view.v)
    k = 2 * np.pi / L * np.arange(1, 3)
    shapes = np.sqrt(2) * np.stack([np.cos(np.outer(k, x)), np.sin(np.outer(k, x))])
    slopes = np.sqrt(2) * np.stack([-np.sin(np.outer(k, x)), np.cos(np.outer(k, x))])
    B = np.einsum("sk,sk...->...", np.asarray(view.waves), k[:, None] * slopes)
    E_y = -np.einsum("sk,sk...->...", np.asarray(view.slopes), shapes)
    dq, dp = map(np.asarray, system.drift(q, p))
    assert np.allclose(dq[:N], v[:, 0]) and np.allclose(dq[N : 2 * N], v[:, 1])
    assert np.allclose(dp[:N], Q * v[:, 1] * B) and np.allclose(dp[N : 2 * N], 0)
    # M v_y = p_y − Q A along the path.
    force_y = -Q * (-E_y + v[:, 0] * B)
    dA = np.einsum("sk,sk...->...", dq[2 * N :].reshape(2, 2) / np.sqrt(N), shapes) + v[:, 0] * B
    assert np.allclose(dp[N : 2 * N] - Q * dA, force_y)
    current = np.mean(Q * v[:, 1] * shapes, axis=-1)
    expected = -((c * k) ** 2) * np.asarray(view.waves) + current
    assert np.allclose(dp[2 * N :].reshape(2, 2) / np.sqrt(N), expected)
    light = np.asarray(light_energies(N)(jnp.asarray(q), jnp.asarray(p), system.params))
    assert np.allclose(light[0], np.sum((c * k * np.asarray(view.waves)) ** 2, axis=0) / 2)
    kinetic = np.sum(M * np.sum(v**2, axis=1)) / 2
    total = kinetic + N * np.sum(light)
    assert system.H(jnp.asarray(q), jnp.asarray(p), system.params) == pytest.approx(total)
    assert M.shape == (N,)


def test_particles_come_back_as_they_were_given():
    system, (q, p) = plasma()
    rng = np.random.default_rng(3)
    given = rng.normal(size=(2, 6, 2))
    M = SPECIES["weight"] * SPECIES["mass"]
    view = canonical_view(jnp.asarray(q), jnp.asarray(p), system.params, 6)
    assert np.allclose(view.v * M[:, None], given[1]) and np.allclose(view.x, 3 * given[0][:, 0])


def test_observables_of_plasmas_see_the_particles_of_a_canonical_state():
    """All of them, against the same particles without light; the numbers in the vectors differ."""
    system, (q, p) = plasma()
    rng = np.random.default_rng(3)
    x, momenta = rng.normal(size=(2, 6, 2)) * [[[3.0]], [[1.0]]]
    plain = da.plasma.vlasov_poisson(6, 5.0, velocities=2, **SPECIES)
    observables = (
        da.plasma.momentum, da.plasma.kinetic_energy, da.plasma.thermal_energy,
        da.plasma.density_modes(2), da.plasma.phase_space(4, 4), da.plasma.entropy(4, 4),
        da.plasma.field_energies(Fourier(2)), da.plasma.field_energies(da.plasma.Spline(8)),
    )  # fmt: skip
    for observable in observables:
        seen = np.asarray(observable(jnp.asarray(q), jnp.asarray(p), system.params))
        expected = np.asarray(observable(jnp.asarray(x), jnp.asarray(momenta), plain.params))
        assert seen.shape == expected.shape
        assert np.allclose(seen, expected, rtol=1e-13, atol=1e-15)
    assert not np.allclose(np.mean(p), da.plasma.momentum(x, momenta, plain.params))


def test_the_number_of_particles_is_that_of_the_state():
    system, (q, p) = plasma()
    q, p = jnp.asarray(q), jnp.asarray(p)
    assert np.array_equal(
        light_energies()(q, p, system.params), light_energies(6)(q, p, system.params)
    )
    for wrong in (
        lambda: light_energies(5)(q, p, system.params),
        lambda: canonical_view(q, p, system.params, 5),
    ):
        with pytest.raises(ValueError, match="16 numbers with 2 modes of light is that of 6"):
            wrong()
    plain = da.plasma.vlasov_poisson(16, 5.0)
    with pytest.raises(ValueError, match="the state has no light"):
        light_energies()(q, p, plain.params)
    with pytest.raises(ValueError, match=r"not a system of da\.plasma\.vlasov_maxwell"):
        canonical_state(Start(16, components=2).quiet(), plain)
    start = Start(16, 5.0)
    with pytest.raises(ValueError, match="particles of vlasov_maxwell have two"):
        da.plasma.DeltaF(start, start.quiet()).weights(q, p, system.params)


def small():
    system = vlasov_maxwell(2, 5.0)
    return system, np.random.default_rng(0).normal(size=(2, system.dim))


@pytest.mark.slow
def test_the_step_of_midpoint_is_symplectic_and_that_of_heun_is_not():
    system, (q, p) = small()
    defects = [
        symplectic_defect(jacobian(system, method, q, p, 0.1, np.zeros(0)))
        for method in (da.midpoint(), da.heun())
    ]
    assert defects[0] < 1e-13 and defects[1] > 1e-6


@pytest.mark.slow
def test_midpoint_keeps_the_momentum_of_particles_and_light_which_heun_does_not():
    """Of both together: that of particles alone is another one."""
    system, (q, p) = small()
    changes = {}
    for method in (da.midpoint(), da.heun()):
        run = da.simulate(
            system, method, (q, p), dt=0.05, t_end=5.0, paths=1, progress=False,
            observe={**system.invariants, "particles": lambda q, p, params: jnp.sum(p[:2])},
        )  # fmt: skip
        changes[method.name] = {name: np.ptp(x) for name, x in run.mean.items()}
    assert changes["midpoint"]["momentum_x"] < 1e-12 < 1e-6 < changes["heun"]["momentum_x"]
    assert changes["midpoint"]["particles"] > 1e-2
    assert changes["midpoint"]["energy"] < 0.05


def weibel(n, u_x, anisotropy, k, t_end):
    """A run from a small correlation of velocities across with positions, and its magnetic energy.

    Every particle has a twin with the opposite velocity across, so that there is no other current.
    """
    length, u_y = 2 * np.pi / k, np.sqrt(anisotropy) * u_x
    start = Start(
        n, length, components=2, velocities=Maxwellian(temperature=u_x**2), transverse=u_y**2
    )
    q, p = start.quiet()
    q, p = np.concatenate([q, q]), np.concatenate([p, p * [1, -1]])
    q[:, 0] -= 1e-3 * np.sin(k * q[:, 0]) * p[:, 1] / u_y
    system = vlasov_maxwell(2 * n, length, modes=1, c=1.0, field=None)
    # The wave that this current holds up: no light besides.
    current = -np.mean(p[:, 1] * np.sqrt(2) * np.cos(k * q[:, 0]))
    state = canonical_state((q, p), system, [[current / (1 + k**2)], [0.0]])
    observe = {"light": light_energies(2 * n)}
    run = da.simulate(
        system, da.midpoint(), state, dt=0.25, t_end=t_end, paths=1, save_every=2, observe=observe,
        progress=False,
    )  # fmt: skip
    return run.t, run.mean["light"][:, 0, 0]


@pytest.mark.slow
def test_weibels_instability_grows_at_the_rate_of_linear_theory():
    k, u_x = 1.25, 0.02 / np.sqrt(2)
    t, energy = weibel(2**12, u_x, 12.0, k, 100.0)
    late = t > 40
    growth = np.polyfit(t[late], np.log(energy[late]) / 2, 1)[0]
    expected = linear.weibel_root(k, u_x, np.sqrt(12) * u_x, 1.0).imag
    assert growth == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
def test_nothing_grows_without_anisotropy():
    """The control."""
    t, energy = weibel(2**8, 0.02 / np.sqrt(2), 1.0, 1.25, 50.0)
    assert np.max(energy[t > 25]) < 3 * np.max(energy[t < 25])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (dict(c=0.0), "c is 0.0, but must be above 0"),
        (dict(c=np.inf), "c is inf, but must be above 0"),
        (dict(charge=np.nan), "charge is nan, but must be finite"),
        (dict(modes=0), "modes must be a whole number of 1 or more"),
        (dict(modes=(1, 1)), "one dimension"),
        (dict(field=Fourier((1, 1))), "one dimension"),
        (dict(mass=np.ones(3)), r"mass has shape \(3,\)"),
    ],
)
def test_plasmas_that_are_none_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        vlasov_maxwell(10, **arguments)


def test_states_that_are_none_are_refused():
    system = vlasov_maxwell(8)
    with pytest.raises(ValueError, match="components=2"):
        canonical_state(Start(8).quiet(), system)
    with pytest.raises(ValueError, match=r"must have shape \(2, 1\)"):
        canonical_state(Start(8, components=2).quiet(), system, waves=[1.0])
    with pytest.raises(ValueError, match="6 particles and 1 waves of light make 14 numbers"):
        canonical_state(Start(6, components=2).quiet(), system)
    # One particle more and one wave less are as many numbers.
    with pytest.raises(ValueError, match=r"1 waves of light, but .* has 2: .* shape \(2, 2\)"):
        canonical_state(
            Start(9, components=2).quiet(), vlasov_maxwell(8, modes=2), waves=np.zeros((2, 1))
        )


def test_sources_are_in_the_bibliography():
    keys = re.findall(r"`(\w+\d{4})`", (vlasov_maxwell.__doc__ or "").split("Source: ")[1])
    bibliography = (Path(__file__).parents[2] / "docs" / "references.bib").read_text("utf-8")
    assert keys and all(f"{{{key}," in bibliography for key in keys)
