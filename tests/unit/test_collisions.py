"""Collisions of plasmas: what each operator conserves, its rates, runs against linear theory."""

import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import eval_legendre

import dalembert as da
from dalembert.plasma import (
    CoulombPairs,
    Dougherty,
    Fourier,
    LenardBernstein,
    Lorentz,
    Start,
    linear,
    vlasov_poisson,
)
from dalembert.plasma.cells import cell_numbers
from dalembert.plasma.turning import memory_after, turned
from dalembert.theory.flows import try_flow
from tiers import tiered

LENGTH = 4 * np.pi
SPECIES = dict(mass=np.array([1.0, 4.0] * 50), charge=np.array([-1.0, 1.0] * 50))
OPERATORS = {
    "lenard bernstein": (LenardBernstein(), 1, {}),
    "with momentum": (LenardBernstein(cells=4), 1, dict(weight=np.linspace(0.5, 1.5, 100))),
    "with momentum, 2d": (LenardBernstein(cells=(2, 3)), 2, {}),
    "dougherty": (Dougherty(cells=4), 1, {}),
    "dougherty, species": (
        Dougherty(cells=2),
        3,
        {**SPECIES, "weight": np.linspace(0.5, 1.5, 100)},
    ),
    "lorentz, 2 components": (Lorentz(), 2, {}),
    "lorentz, of speed": (Lorentz(lambda v: 1 / (1 + v**3)), 3, {}),
    "coulomb": (CoulombPairs(cells=4), 3, {}),
    "coulomb, species": (CoulombPairs(), 3, SPECIES),
    "maxwell, 2 components": (CoulombPairs("maxwell", cells=3), 2, {}),
    "dougherty and coulomb": ([Dougherty(cells=4), CoulombPairs(cells=3)], 3, {}),
}


def plasma(name, N=100, nu=0.5, **more):
    collisions, components, options = OPERATORS[name]
    is_2d = "2d" in name
    field, length = (Fourier((1, 1)), (3.0, 4.0)) if is_2d else (Fourier(1), LENGTH)
    options = dict(velocities=components, collisions=collisions, **options, **more)
    return vlasov_poisson(N, length, field, nu=nu, **options)


def state(system, seed=4):
    q, p = np.random.default_rng(seed).normal(size=(2, *system.shape))
    return 5 * q, 2 * p


def collide(system, q, p, h, times, seed=0):
    """The flow alone, many times, compiled."""

    def once(p, key):
        w = jnp.sqrt(h) * jax.random.normal(key, system.flow.noises)
        return system.flow.map(q, p, w, jnp.asarray(h), system.params)[1], None

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), times)
        return np.asarray(jax.jit(lambda p: jax.lax.scan(once, p, keys)[0])(jnp.asarray(p)))


def relative_change(fun, system, q, p, after):
    given = [np.asarray(fun(jnp.asarray(q), jnp.asarray(x), system.params)) for x in (p, after)]
    size = np.max(np.abs(fun(jnp.asarray(q), jnp.abs(jnp.asarray(p)), system.params)))
    return np.max(np.abs(given[1] - given[0])) / size


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_conserve_what_they_say_over_many_steps(name):
    system = plasma(name)
    q, p = state(system)
    after = collide(system, q, p, 0.1, 10_000)
    assert np.max(np.abs(after - p)) > 0.5
    functions = {"momentum": da.plasma.momentum, "kinetic energy": da.plasma.kinetic_energy}
    for what, fun in functions.items():
        change = relative_change(fun, system, q, p, after)
        # The control: what is not said to be conserved is not.
        assert change < 1e-12 if what in system.flow.keeps else change > 1e-3


@pytest.mark.parametrize("name", ["with momentum", "with momentum, 2d", "dougherty"])
def test_conservation_is_local(name):
    """In every cell; those of the whole box would not show it."""
    system = plasma(name)
    q, p = state(system)
    after = collide(system, q, p, 0.1, 100)
    cells = OPERATORS[name][0].cells
    cell = np.asarray(cell_numbers(jnp.asarray(q), np.atleast_1d(cells).tolist(), system.params))
    M = np.broadcast_to(system.params["weight"], 100)
    for number in range(np.max(cell) + 1):
        here = cell == number
        assert np.allclose(np.sum(p[here], axis=0), np.sum(after[here], axis=0), atol=1e-12)
        energies = [np.sum(x[here].T ** 2 / M[here]) for x in (p, after)]
        is_kept = energies[0] == pytest.approx(energies[1], rel=1e-12)
        assert is_kept == ("kinetic energy" in system.flow.keeps)


@pytest.mark.parametrize("name", ["lorentz, 2 components", "lorentz, of speed"])
def test_lorentz_keeps_the_speed_of_every_particle(name):
    system = plasma(name)
    q, p = state(system)
    after = collide(system, q, p, 0.1, 10_000)
    speeds = [np.linalg.norm(x, axis=1) for x in (p, after)]
    assert np.allclose(*speeds, rtol=1e-12)


def test_a_rate_below_zero_is_none():
    system = vlasov_poisson(8, nu=0.5, velocities=3, collisions=Lorentz(lambda v: 3 - v))
    q, p = map(jnp.asarray, state(system))
    w = jnp.asarray(np.random.default_rng(0).normal(size=system.flow.noises))
    after = np.asarray(system.flow.map(q, p, w, jnp.asarray(0.1), system.params)[1])
    is_fast = np.linalg.norm(p, axis=1) > 3
    assert 0 < np.sum(is_fast) < 8
    assert np.array_equal(np.isnan(after).any(axis=1), is_fast)


def test_an_operator_that_does_not_conserve_energy_is_found_out():
    """The control of Dougherty's: without the last rescaling."""
    wrong = vlasov_poisson(20, LENGTH, nu=0.5, collisions=LenardBernstein(cells=4))
    q, p = state(wrong)
    after = collide(wrong, q, p, 0.1, 100)
    assert relative_change(da.plasma.kinetic_energy, wrong, q, p, after) > 1e-2
    flow = wrong.flow
    claimed = da.Flow(flow.map, flow.noises, "wrong", {"kinetic energy": da.plasma.kinetic_energy})
    system = da.System(H=wrong.H, dim=20, params=wrong.params, flow=claimed)
    methods = [da.stormer_verlet()]
    (tried,) = [x for x in da.diagnose(system, methods=methods).flow if "kinetic" in x.name]
    assert not tried.holds
    right = vlasov_poisson(20, LENGTH, nu=0.5, collisions=Dougherty(cells=4))
    assert all(x.holds for x in da.diagnose(right, methods=methods).flow)


HOSTILE = {
    "none": dict(nu=0.0),
    "very many": dict(nu=1e300),
    "a long time": dict(h=1e8),
    "at rest": dict(p=0.0),
    "one velocity": dict(p=1.0),
    "nearly one velocity": dict(p=1.0, spread=1e-12),
    "outside of the box": dict(q=1e9),
}


@pytest.mark.parametrize("given", HOSTILE)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_keep_what_they_say_at_the_limits(name, given):
    """Without collisions, with very many, and where relative velocities vanish."""
    options = {"nu": 0.5, "h": 0.1, "q": None, "p": None, "spread": 0.0, **HOSTILE[given]}
    system, h = plasma(name, nu=options["nu"]), options["h"]
    q, p = state(system)
    q = q if options["q"] is None else np.full_like(q, options["q"])
    p = p if options["p"] is None else options["p"] + options["spread"] * p
    w = np.sqrt(h) * np.random.default_rng(1).normal(size=system.flow.noises)
    arrays = (jnp.asarray(x) for x in (q, p, w, np.float64(h)))
    after = np.asarray(system.flow.map(*arrays, system.params)[1])
    assert np.all(np.isfinite(after))
    assert given != "none" or np.allclose(after, p, rtol=1e-13, atol=1e-13)
    for what, fun in system.flow.keeps.items():
        size = 1e-300 + np.max(np.abs(fun(jnp.asarray(q), jnp.abs(jnp.asarray(p)), system.params)))
        both = [np.asarray(fun(jnp.asarray(q), jnp.asarray(x), system.params)) for x in (p, after)]
        # Noise of Lenard and Bernstein's begins from nothing at rest.
        scale = max(size, 1.0) if what == "momentum" else size
        assert np.max(np.abs(both[1] - both[0])) <= 1e-13 * scale


def turned_angles(d, variance, count=200_000):
    """cos of the angle between vectors before and after one random rotation."""
    rng = np.random.default_rng(2)
    u = rng.normal(size=(count, d))
    normal = rng.normal(size=(count, 1 if d == 2 else 3))
    after = np.asarray(turned(jnp.asarray(u), jnp.full(count, variance), jnp.asarray(normal)))
    return np.sum(u * after, axis=1) / np.sum(u**2, axis=1)


@pytest.mark.parametrize("variance", [0.02, 0.5, 1.5])
def test_directions_decay_at_the_rates_of_brownian_motion(variance):
    """E[cos mθ] = e^{−m²s/2} on the circle, E[P_l] of the scheme on the sphere."""
    cosine = turned_angles(2, variance)
    for m in (1, 2):
        values = np.cos(m * np.arccos(np.clip(cosine, -1, 1)))
        error = np.std(values) / np.sqrt(values.size)
        assert abs(np.mean(values) - np.exp(-(m**2) * variance / 2)) < 3 * error
    cosine = turned_angles(3, variance)
    for l in (1, 2, 3):
        values = eval_legendre(l, cosine)
        error = np.std(values) / np.sqrt(values.size)
        assert abs(np.mean(values) - memory_after(l, variance)) < 3 * error
        # The control: the rate of another degree.
        assert l > 1 or abs(np.mean(values) - memory_after(2, variance)) > 10 * error


def test_the_law_of_angles_is_right_to_second_order():
    s = np.array([1e-3, 2e-3, 4e-3])
    assert np.allclose(memory_after(1, s), np.exp(-s), rtol=1e-12)
    for l in (2, 3, 4):
        gap = np.abs(memory_after(l, s) - np.exp(-l * (l + 1) / 2 * s))
        assert np.allclose(np.log2(gap[1:] / gap[:-1]), 3, atol=0.1)


@pytest.mark.parametrize("components", [2, 3])
@pytest.mark.slow
def test_lorentz_scattering_decays_at_its_rate_in_a_run(components):
    """Beams along x in many directions: mean velocity e^{−νt}."""
    N, nu = 4000, 0.4
    system = vlasov_poisson(N, LENGTH, nu=nu, velocities=components, collisions=Lorentz())
    p = np.zeros((N, components))
    p[:, 0] = 1.0
    q = np.random.default_rng(1).uniform(0, LENGTH, (N, components))
    observe = {
        "v": lambda q, p, params: jnp.mean(p[:, 0]),
        "e": lambda q, p, params: jnp.mean(p[:, 0] ** 2),
    }
    run = da.simulate(
        system, da.stormer_verlet(), (q, p), dt=0.2, t_end=2.0, paths=1, observe=observe,
        save_every=10, progress=False,
    )  # fmt: skip
    # One field step turns nothing: what it adds to v_x is of the size of the noise of the field.
    spread = np.sqrt((run.mean["e"][-1] - run.mean["v"][-1] ** 2) / N)
    assert abs(run.mean["v"][-1] - np.exp(-nu * 2.0)) < 3 * spread


def anisotropy(kernel, temperatures, nu, h, times, N=20_000, seed=3):
    """What is left of T_x − T_y, and its standard error."""
    system = vlasov_poisson(N, LENGTH, nu=nu, velocities=3, collisions=CoulombPairs(kernel))
    p = np.random.default_rng(seed).normal(size=(N, 3))
    # Moments as they should be: less noise.
    p = (p - p.mean(0)) / p.std(0) * np.sqrt(temperatures)
    after = collide(system, np.zeros_like(p), p, h, times, seed)
    parts = after[:, 0] ** 2 - (after[:, 1] ** 2 + after[:, 2] ** 2) / 2
    before = temperatures[0] - temperatures[1]
    return np.mean(parts) / before, np.std(parts) / np.sqrt(N) / before


def landau_anisotropy(parallel, across, nu, t):
    """T_x − T_y of two Maxwellian widths after t, over that at 0: the NRL formulary's equation."""
    start = parallel - across
    for _ in range(1000):
        x = np.sqrt(1 - across / parallel)
        bracket = (-3 + (3 - x**2) * np.arctanh(x) / x) / x**4
        rate = nu / (2 * np.sqrt(np.pi)) * bracket / parallel**1.5
        change = rate * (parallel - across) * t / 1000
        parallel, across = parallel - 2 * change, across + change
    return (parallel - across) / start


def test_anisotropy_of_maxwell_molecules_decays_at_six_times_the_rate():
    nu, h, times = 0.2, 0.1, 8
    found, error = anisotropy("maxwell", (2.0, 0.5, 0.5), nu, h, times)
    own = ((1 + memory_after(2, 4 * nu * h)) / 2) ** times
    assert own == pytest.approx(np.exp(-6 * nu * h * times), rel=0.1)
    assert abs(found - own) < 3 * error
    assert abs(found - np.exp(-3 * nu * h * times)) > 5 * error


@pytest.mark.slow
def test_anisotropy_decays_at_the_rate_of_landaus_operator():
    """Small ones at 2ν/(5√π), and larger ones as long as both widths are Maxwellian."""
    small = 1 - landau_anisotropy(1.0002, 0.9999, 1.0, 1e-3)
    assert small == pytest.approx(2 / (5 * np.sqrt(np.pi)) * 1e-3, rel=1e-3)
    nu, h, times = 2.0, 0.05, 20
    found, error = anisotropy("coulomb", (1.6, 0.7, 0.7), nu, h, times, N=40_000)
    assert abs(found - landau_anisotropy(1.6, 0.7, nu, h * times)) < 3 * error + 0.01
    assert abs(found - landau_anisotropy(1.6, 0.7, 1.3 * nu, h * times)) > 3 * error


@pytest.mark.slow
def test_a_fast_beam_slows_down_at_spitzers_rate():
    """dv/dt = −2ψ(v²/2T) ν/v² among particles of the same mass."""
    from scipy.special import gammainc

    N, beam, speed, nu, h, times = 40_000, 2000, 5.0, 0.5, 0.02, 25
    system = vlasov_poisson(N, LENGTH, nu=nu, velocities=3, collisions=CoulombPairs())
    p = np.random.default_rng(8).normal(size=(N, 3))
    p[:beam] = [speed, 0, 0]
    after = collide(system, np.zeros_like(p), p, h, times)
    slope = (np.mean(after[:beam, 0]) - speed) / (h * times)
    psi = gammainc(1.5, speed**2 / 2)
    expected = -2 * psi * nu / speed**2 * (1 - beam / N)
    error = np.std(after[:beam, 0]) / np.sqrt(beam) / (h * times)
    assert abs(slope - expected) < 3 * error + 0.05 * abs(expected)


def test_species_come_to_one_temperature_by_pairs():
    N = 4000
    mass = np.where(np.arange(N) % 2, 4.0, 1.0)
    system = vlasov_poisson(
        N, LENGTH, nu=1.0, velocities=3, mass=mass, collisions=CoulombPairs("maxwell")
    )
    rng = np.random.default_rng(5)
    T = np.where(mass == 1, 2.0, 1.0)
    p = rng.normal(size=(N, 3)) * np.sqrt(T * mass)[:, None]
    after = collide(system, np.zeros_like(p), p, 0.1, 100)

    def temperatures(p):
        square = np.mean(p**2 / mass[:, None], axis=1)
        return np.array([np.mean(square[mass == m]) for m in (1.0, 4.0)])

    assert np.diff(temperatures(p))[0] < -0.9
    assert np.allclose(temperatures(after), np.mean(temperatures(p)), atol=0.1)


def test_species_drag_each_other_along_at_the_rate_of_their_reduced_mass():
    """Maxwell molecules: d(v_a − v_b)/dt = −ν (q_a q_b)²/μ (n_b/m_a + n_a/m_b) (v_a − v_b)."""
    N, nu, h, times = 20_000, 0.05, 0.05, 10
    is_a = np.arange(N) % 4 == 0
    mass, charge = np.where(is_a, 1.0, 3.0), np.where(is_a, -1.0, 2.0)
    system = vlasov_poisson(
        N, LENGTH, nu=nu, velocities=3, mass=mass, charge=charge, collisions=CoulombPairs("maxwell")
    )
    v = np.random.default_rng(6).normal(size=(N, 3))
    v[is_a], v[~is_a] = v[is_a] - v[is_a].mean(0), v[~is_a] - v[~is_a].mean(0)
    v[is_a, 0] += 2.0
    after = collide(system, np.zeros_like(v), v * mass[:, None], h, times)[:, 0] / mass
    left = (np.mean(after[is_a]) - np.mean(after[~is_a])) / 2.0
    error = np.std(after[is_a]) / np.sqrt(np.sum(is_a)) / 2.0
    reduced, share = 3 / 4, np.mean(is_a)

    def expected(square):
        """What the scheme leaves: one partner a step, turned by e^{−s} in the mean."""
        turned = -np.expm1(-nu * h * square / reduced**2)
        return (1 - turned * reduced * ((1 - share) / 1 + share / 3)) ** times

    assert expected(4.0) == pytest.approx(np.exp(-nu * h * times * 4 / reduced * 0.8333), rel=0.05)
    assert abs(left - expected(4.0)) < 3 * error
    # The control: charges that are not multiplied.
    assert abs(left - expected(1.0)) > 10 * error


def test_the_rate_of_lorentz_collisions_is_that_of_each_speed():
    """E[P_1] and E[P_2] of slow and of fast particles, each with the rate of its speed."""
    N, nu, h, times = 20_000, 0.3, 0.1, 5
    rate = lambda v: 1 / v**3  # noqa: E731
    system = vlasov_poisson(N, LENGTH, nu=nu, velocities=3, collisions=Lorentz(rate))
    speed = np.where(np.arange(N) % 2, 1.0, 1.5)
    p = np.stack([speed, 0 * speed, 0 * speed], axis=1)
    cosine = collide(system, np.zeros_like(p), p, h, times)[:, 0] / speed
    for v in (1.0, 1.5):
        for l in (1, 2):
            values = eval_legendre(l, cosine[speed == v])
            error = np.std(values) / np.sqrt(values.size)
            own, other = (memory_after(l, nu * h * rate(u)) ** times for u in (v, 2.5 - v))
            assert own == pytest.approx(
                np.exp(-l * (l + 1) / 2 * nu * rate(v) * h * times), rel=0.01
            )
            assert abs(np.mean(values) - own) < 3 * error
            assert abs(np.mean(values) - other) > 10 * error


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_diagnosed_and_takes_arrays_of_numpy(name):
    system = plasma(name, N=100)
    q, p = state(system)
    w = np.random.default_rng(0).normal(size=system.flow.noises)
    moved = [
        system.flow.map(*(as_(x) for x in (q, p, w)), 0.1, system.params)
        for as_ in (np.array, jnp.array)
    ]
    assert np.array_equal(moved[0][1], moved[1][1])
    found = try_flow(system)
    assert all(x.holds == x.declared for x in found)
    lost = [x.name for x in found if not x.holds]
    assert lost == ([] if "energy" in system.invariants else ["H"])


def test_pairings_are_pure_functions_of_the_noise_and_differ_between_steps():
    system = plasma("coulomb", N=101)
    q, p = state(system)
    drawn = da.brownian_path(1, 0, 0.1, 2, system.noises)
    one, again, other = (
        np.asarray(
            da.step(
                system, da.stormer_verlet(), q, p, 0.1, da.Increments(drawn.dW[i], drawn.dZ[i])
            )[1]
        )
        for i in (0, 0, 1)
    )
    assert np.array_equal(one, again) and not np.allclose(one, other)


def test_an_odd_number_of_particles_collides_as_often():
    """Someone stays alone, and the others make up for it."""
    N, nu, h = 3, 0.3, 1e-2
    system = vlasov_poisson(N, LENGTH, nu=nu, velocities=3, collisions=CoulombPairs("maxwell"))
    p = np.eye(3)
    w = np.random.default_rng(0).normal(size=(60_000, *system.flow.noises)) * np.sqrt(h)

    def moved(w):
        given = jnp.zeros((N, 3)), jnp.asarray(p), w, jnp.asarray(h), system.params
        return system.flow.map(*given)[1]

    change = np.asarray(jax.jit(jax.vmap(moved))(jnp.asarray(w))) - p
    # E[Δv] = (e^{−s} − 1) u/2 of a pair, s = 4νh; the partner is any other, all equally often.
    u = p - (np.sum(p, axis=0) - p) / (N - 1)
    rate = 1.5 * 4 * nu
    expected = 2 / 3 * np.expm1(-rate * h) * u / 2
    error = np.std(change, axis=0) / np.sqrt(len(w))
    assert np.all(np.abs(np.mean(change, axis=0) - expected) < 4 * error)
    assert np.any(np.abs(np.mean(change, axis=0) - 2 / 3 * expected) > 6 * error)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (dict(collisions=Lorentz()), ValueError, "which have one component here"),
        (dict(collisions=CoulombPairs()), ValueError, "which have one component here"),
        (dict(collisions=Dougherty(cells=(2, 2))), ValueError, "give a number for each"),
        (dict(collisions="dougherty"), TypeError, "an operator such as"),
        (dict(collisions=Dougherty(), nu=np.full(10, 0.1)), ValueError, "nu must be one number"),
        (
            dict(collisions=CoulombPairs(), velocities=3, weight=np.linspace(1, 2, 10)),
            ValueError,
            "particles of one weight",
        ),
    ],
)
def test_collisions_that_do_not_fit_are_refused(arguments, error, match):
    with pytest.raises(error, match=match):
        vlasov_poisson(10, **{"nu": 0.1, **arguments})


def test_sources_are_in_the_bibliography():
    bibliography = (Path(__file__).parents[2] / "docs" / "references.bib").read_text("utf-8")
    for operator in (Dougherty, CoulombPairs):
        keys = re.findall(r"`(\w+\d{4})`", (operator.__doc__ or "").split("Source: ")[1])
        assert keys and all(f"{{{key}," in bibliography for key in keys)


def test_other_weights_are_refused_later_too():
    system = vlasov_poisson(10, nu=0.1, velocities=3, collisions=CoulombPairs())
    assert system.with_params(nu=0.2).flow is system.flow
    with pytest.raises(TypeError, match="particles of one weight"):
        system.with_params(weight=np.linspace(1, 2, 10))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_rate_below_zero_is_refused_later_too(name):
    """And not taken as none; where it has no value yet, what comes out is no number."""
    system = plasma(name)
    for make in (lambda: system.with_params(nu=-0.1), lambda: plasma(name, nu=-0.1)):
        with pytest.raises(ValueError, match=r"nu is -0\.1, but must be at least 0"):
            make()
    q, p = map(jnp.asarray, state(system))
    w = jnp.asarray(np.random.default_rng(0).normal(size=system.flow.noises))
    moved = jax.jit(
        lambda nu: system.flow.map(q, p, w, jnp.asarray(0.1), {**system.params, "nu": nu})[1]
    )
    assert np.all(np.isfinite(moved(0.1)))
    # In a cell with an odd number of particles one meets nobody.
    assert np.mean(np.isnan(moved(-0.1))) > 0.9


@pytest.mark.parametrize("shape", [(10,), (1,), (10, 1)])
@pytest.mark.parametrize("more", [{}, dict(collisions=Dougherty())])
def test_a_rate_is_one_number(shape, more):
    with pytest.raises(
        ValueError, match=f"nu must be one number, .* shape {re.escape(str(shape))}"
    ):
        vlasov_poisson(10, nu=np.full(shape, 0.1), **more)
    system = vlasov_poisson(10, nu=0.1, **more)
    with pytest.raises((TypeError, ValueError), match="nu must be one number"):
        other = system.with_params(nu=np.full(shape, 0.1))
        other.F(jnp.zeros(10), jnp.ones(10), other.params)


def test_operators_that_are_none_are_refused():
    with pytest.raises(ValueError, match="kernel is 'hard spheres'"):
        CoulombPairs("hard spheres")
    with pytest.raises(ValueError, match="cells must be a whole number of 1 or more"):
        Dougherty(cells=0)


# --------------------------------------------------------------------------------------------
# Several operators at once


def test_each_operator_has_its_own_rate():
    """With the rate of one at 0 it is the other alone, also later; with one rate all have it."""
    both = vlasov_poisson(
        20, nu=(0.5, 0.0), velocities=2, collisions=[LenardBernstein(), Lorentz()]
    )
    q, p = map(jnp.asarray, state(both))
    w = jnp.asarray(np.random.default_rng(0).normal(size=both.flow.noises))
    friction, turns = w[:40].reshape(20, 2), w[40:].reshape(20, 1)
    h = jnp.asarray(0.1)
    one, other = (
        vlasov_poisson(20, nu=0.5, velocities=2, collisions=x)
        for x in (LenardBernstein(), Lorentz())
    )
    alone = {
        (0.5, 0.0): one.flow.map(q, p, friction, h, one.params)[1],
        (0.0, 0.5): other.flow.map(q, p, turns, h, other.params)[1],
    }
    for rates, expected in alone.items():
        params = both.with_params(nu=rates).params
        for act in both.flow.maps:
            assert np.allclose(act(q, p, w, h, params)[1], expected, rtol=1e-14, atol=1e-14)
    # One after the other, and back in the opposite order.
    same, listed = (both.with_params(nu=nu).params for nu in (0.5, (0.5, 0.5)))
    orders = [act(q, p, w, h, same)[1] for act in both.flow.maps]
    middle = one.flow.map(q, p, friction, h, one.params)[1]
    assert np.array_equal(orders[0], other.flow.map(q, middle, turns, h, other.params)[1])
    assert np.array_equal(orders[1], both.flow.after(q, p, w, h, listed)[1])
    assert not np.allclose(*orders)


class Unequal:
    """An operator with another map after a step than before."""

    reads_temperature = False

    def flow(self, shape, axes, params):
        return da.Flow(
            lambda q, p, w, h, params: (q, p + 1), 1, after=lambda q, p, w, h, params: (q, 2 * p)
        )


@pytest.mark.parametrize("collisions", [Unequal(), [Unequal()], [Unequal(), Unequal()]])
def test_maps_after_a_step_are_those_of_each_of_several(collisions):
    flow = (system := vlasov_poisson(6, nu=0.1, collisions=collisions)).flow
    q, w, h = np.zeros(6), np.zeros(flow.noises), jnp.asarray(0.1)
    before, after = (act(q, np.ones(6), w, h, system.params)[1] for act in flow.maps)
    count = len(collisions) if isinstance(collisions, list) else 1
    assert np.all(before == 1 + count) and np.all(after == 2**count)


class Pushes(Unequal):
    """An operator with one noise for all, as a force and a flow."""

    def flow(self, shape, axes, params):
        return da.Flow(lambda q, p, w, h, params: (q, p + w[0]), 1)

    def forces(self, shape, axes, params):
        return da.plasma.Forces(None, lambda q, p, w, params: w[0] * jnp.ones_like(p), 1)


@pytest.mark.parametrize("make", [vlasov_poisson, da.plasma.vlasov_maxwell])
@pytest.mark.parametrize("inside", [False, True])
def test_a_number_of_noises_is_a_shape_in_a_list_too(make, inside):
    for collisions, shape in ((Pushes(), (1,)), ([Pushes(), Pushes()], (2,))):
        assert make(4, nu=0.1, collisions=collisions, inside=inside).noise_shape == shape


class Odd(Unequal):
    """An operator that returns something else."""

    flow = forces = lambda self, shape, axes, params: None


@pytest.mark.parametrize(("inside", "needed"), [(False, "a da.Flow"), (True, "da.plasma.Forces")])
def test_what_is_no_flow_and_no_forces_is_refused(inside, needed):
    with pytest.raises(TypeError, match=f"must return {needed}, not None"):
        vlasov_poisson(4, nu=0.1, collisions=Odd(), inside=inside)


@pytest.mark.parametrize("inside", [False, True])
def test_other_rates_and_temperatures_are_the_same_code(inside):
    options = dict(velocities=2, collisions=[LenardBernstein(), Lorentz()], inside=inside)
    first = vlasov_poisson(12, nu=0.1, **options)
    assert first.key == first.with_params(nu=(0.2, 0.3), temperature=np.full(12, 2.0)).key
    light = da.plasma.vlasov_maxwell(
        12, nu=0.1, collisions=[Lorentz()], inside=inside, vector_potential=jnp.sin
    )
    assert light.key == light.with_params(nu=0.2).key


def test_what_several_operators_keep_is_what_each_of_them_keeps():
    both = plasma("dougherty and coulomb")
    assert (
        set(both.flow.keeps) == {"momentum", "kinetic energy"} == set(plasma("coulomb").flow.keeps)
    )
    assert both.flow.name == "Dougherty collisions and Coulomb pair collisions"
    mixed = vlasov_poisson(20, nu=0.5, velocities=3, collisions=[Dougherty(), Lorentz()])
    assert set(mixed.flow.keeps) == {"kinetic energy"} and set(mixed.invariants) == {"energy"}
    (note, *_) = da.certify(da.stormer_verlet(), mixed).notes
    assert note.endswith("keep to rounding: kinetic energy") and "Lorentz" in note
    assert "temperature" not in mixed.params


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (dict(collisions=[]), ValueError, "collisions is empty"),
        (dict(collisions=[Dougherty(), Dougherty], nu=0.1), TypeError, "or a list of such"),
        (
            dict(collisions=[Dougherty(), Lorentz()], nu=(0.1,)),
            ValueError,
            "must be one number, or 2, one for each operator",
        ),
        (dict(collisions=[Dougherty(), Lorentz()], nu=(0.1, -1.0)), ValueError, "nu is -1.0"),
        (dict(collisions=Dougherty(), nu=(0.1,)), ValueError, "must be one number"),
        (
            dict(collisions=[Dougherty(), Lorentz()], temperature=1.0),
            ValueError,
            "none of .* reads one",
        ),
    ],
)
def test_several_operators_that_do_not_fit_are_refused(arguments, error, match):
    with pytest.raises(error, match=match):
        vlasov_poisson(10, **{"nu": 0.1, "velocities": 2, **arguments})


def test_other_rates_than_operators_are_refused_later_too():
    system = vlasov_poisson(10, nu=0.1, velocities=2, collisions=[Dougherty(), Lorentz()])
    with pytest.raises(ValueError, match="or 2, one for each operator"):
        system.with_params(nu=(0.1, 0.2, 0.3))


# --------------------------------------------------------------------------------------------
# Forces inside of methods


TURNING = {
    "2 components": (Lorentz(), 2),
    "3 components": (Lorentz(), 3),
    "of speed": (Lorentz(lambda v: 1 / (1 + v**3)), 3),
}


def turning(name, N=40, **more):
    """No field: charges are 0."""
    collisions, components = TURNING[name]
    options = dict(velocities=components, charge=0.0, mass=np.linspace(1, 2, N), weight=0.5)
    return vlasov_poisson(N, nu=0.3, collisions=collisions, inside=True, **options, **more)


@pytest.mark.parametrize("name", tiered(list(TURNING), ["of speed"]))
def test_midpoint_keeps_speeds_that_forces_turn(name):
    """To rounding, that of each particle; Heun's method, as the control, does not."""
    system = turning(name)
    q, p = state(system)
    p[0] = 0
    speeds = [np.linalg.norm(p, axis=1)]
    for method in (da.midpoint(), da.heun()):
        options = dict(dt=0.05, t_end=5.0, paths=1, keep="final", progress=False)
        run = da.simulate(system, method, (q, p), **options)
        assert np.max(np.abs(run.p[0] - p)) > 1
        speeds.append(np.linalg.norm(run.p[0], axis=1))
    assert np.allclose(speeds[1], speeds[0], rtol=1e-13)
    assert not np.allclose(speeds[2], speeds[0], rtol=1e-6)
    assert set(system.invariants) == {"energy"}


@pytest.mark.parametrize("name", tiered(list(TURNING), ["2 components"]))
def test_forces_that_turn_are_solved_particle_by_particle(name):
    """Linear equations of each, for a rate that is the same at all speeds."""
    system = turning(name)
    text = str(da.explain(system, da.stormer_verlet()))
    assert "particle by particle" in text
    assert ("(linear, particle by particle)" in text) == (name != "of speed")


def test_forces_are_those_of_the_flow_in_a_short_time():
    """√(2ν) (v_y, −v_x) dW and √ν v × dW: the same rotation, up to its sense, to first order."""
    for components in (2, 3):
        options = dict(nu=0.4, velocities=components, collisions=Lorentz())
        inside, outside = (vlasov_poisson(30, inside=x, **options) for x in (True, False))
        q, p = map(jnp.asarray, state(inside))
        w = jnp.asarray(1e-5 * np.random.default_rng(0).normal(size=inside.noise_shape))
        force = inside.f.fun(q, p, w, inside.params)
        change = outside.flow.map(q, p, -w, jnp.asarray(1e-10), outside.params)[1] - p
        assert np.allclose(force, change, rtol=1e-3, atol=1e-9)
        assert np.max(np.abs(np.sum(np.asarray(force * p), axis=1))) < 1e-18


@pytest.mark.parametrize("components", [2, 3])
@pytest.mark.slow
def test_directions_decay_as_the_midpoint_rule_turns_them(components):
    """E[cos mθ] and E[P_l] in a run: 2 arctan of half the angle a step, whose mean is known."""
    N, nu, h, times = 20_000, 0.4, 0.1, 10
    system = vlasov_poisson(
        N, nu=nu, velocities=components, charge=0.0, collisions=Lorentz(), inside=True
    )
    p = np.zeros((N, components))
    p[:, 0] = 1.0
    options = dict(dt=h, t_end=h * times, paths=1, keep="final", progress=False)
    run = da.simulate(system, da.midpoint(), (np.zeros_like(p), p), **options)
    cosine = run.p[0, :, 0]
    x, weights = np.polynomial.hermite_e.hermegauss(60)
    for m in (1, 2):
        if components == 2:
            values = np.cos(m * np.arccos(np.clip(cosine, -1, 1)))
            half = np.arctan(np.sqrt(2 * nu * h) * x / 2)
            own = (weights @ np.cos(2 * m * half) / np.sum(weights)) ** times
            exact = np.exp(-nu * m**2 * h * times)
        else:
            values = eval_legendre(m, cosine)
            # The angle about an axis of all directions: E[P_l] is its character.
            angle = 2 * np.arctan(np.sqrt(nu * h) * np.abs(x) / 2)
            character = (1 + 2 * sum(np.cos(j * angle) for j in range(1, m + 1))) / (2 * m + 1)
            own = (weights * x**2 @ character / (weights @ x**2)) ** times
            exact = np.exp(-nu * m * (m + 1) / 2 * h * times)
        error = np.std(values) / np.sqrt(N)
        assert own == pytest.approx(exact, rel=0.1)
        assert abs(np.mean(values) - own) < 3 * error
        assert abs(np.mean(values) - exact**2) > 10 * error


def test_lenard_and_bernsteins_forces_are_those_without_an_operator():
    """And about the mean velocity, with the momentum kept, where the box is one cell."""
    options = dict(nu=0.5, temperature=2.0, weight=np.linspace(0.5, 1.5, 30))
    plain = vlasov_poisson(30, **options)
    given = vlasov_poisson(30, collisions=LenardBernstein(), inside=True, **options)
    mean = vlasov_poisson(30, collisions=LenardBernstein(cells=1), inside=True, **options)
    q, p = map(jnp.asarray, state(plain))
    w = jnp.asarray(np.random.default_rng(0).normal(size=30))
    values = [(s.F(q, p, s.params), s.f.fun(q, p, w, s.params)) for s in (plain, given, mean)]
    for alone, same, about in zip(*values, strict=True):
        assert np.array_equal(alone, same)
        assert abs(np.sum(about)) < 1e-13 < 1e-2 < abs(np.sum(alone))
        assert np.ptp((about - alone) / options["weight"]) < 1e-13
    assert not plain.invariants and set(mean.invariants) == {"momentum_x"}


def test_several_forces_are_added_with_their_own_rates():
    both = vlasov_poisson(
        20, nu=(0.5, 0.1), velocities=2, collisions=[LenardBernstein(), Lorentz()], inside=True
    )
    q, p = map(jnp.asarray, state(both))
    w = jnp.asarray(np.random.default_rng(0).normal(size=both.noise_shape))
    one, other = (
        vlasov_poisson(20, nu=nu, velocities=2, collisions=x, inside=True)
        for nu, x in ((0.5, LenardBernstein()), (0.1, Lorentz()))
    )
    parts = [
        s.f.fun(q, p, x.reshape(s.noise_shape), s.params)
        for s, x in ((one, w[:40]), (other, w[40:]))
    ]
    assert np.allclose(both.f.fun(q, p, w, both.params), parts[0] + parts[1], rtol=1e-14)
    assert np.allclose(both.F(q, p, both.params), one.F(q, p, one.params), rtol=1e-14)


@pytest.mark.parametrize(
    ("collisions", "match"),
    [
        (Dougherty(), "is no force: it keeps energy by following a sphere"),
        (CoulombPairs(), "is no force: its pairs are new ones every half step"),
        (LenardBernstein(cells=4), "jump where a particle goes from one cell to another"),
        ([Lorentz(), Dougherty()], "is no force"),
    ],
)
def test_flows_that_are_no_forces_are_refused_inside(collisions, match):
    with pytest.raises(ValueError, match=match):
        vlasov_poisson(10, nu=0.1, velocities=2, collisions=collisions, inside=True)
    with pytest.raises(TypeError, match="inside must be True or False"):
        vlasov_poisson(10, nu=0.1, velocities=2, collisions=collisions, inside="yes")


# --------------------------------------------------------------------------------------------
# Compositions with methods


def smooth_path(noises, steps, t_end=1.0):
    """Increments of W_i(t) = sin(3t + i), a path that has derivatives, and ∫(W − W_k) dt."""
    h = t_end / steps
    t, i = h * np.arange(steps)[:, None], np.arange(noises)[None, :]
    dW = np.sin(3 * (t + h) + i) - np.sin(3 * t + i)
    dZ = (np.cos(3 * t + i) - np.cos(3 * (t + h) + i)) / 3 - h * np.sin(3 * t + i)
    return h, dW, dZ


IN_ORDER = {
    "lenard bernstein": (LenardBernstein(), 1, {}),
    "with momentum": (LenardBernstein(cells=1), 1, {}),
    "dougherty": (Dougherty(), 1, {}),
    "dougherty, species": (Dougherty(), 2, dict(mass=np.array([1.0, 4.0] * 6))),
    "lorentz, 2 components": (Lorentz(), 2, {}),
    "lorentz, of speed": (Lorentz(lambda v: 1 / (1 + v**3)), 3, {}),
}
"""Each with all particles in one cell: who crosses from one to another meets others at once."""


def composed(name):
    collisions, components, options = (IN_ORDER | SEVERAL)[name]
    return vlasov_poisson(
        12, LENGTH, Fourier(1), nu=0.5, velocities=components, collisions=collisions, **options
    )


SEVERAL = {"friction and pitch angles": ([LenardBernstein(), Lorentz()], 2, {})}


@pytest.mark.parametrize("name", tiered([*IN_ORDER, *SEVERAL], ["dougherty", *SEVERAL]))
def test_the_composition_has_order_two_on_a_fixed_path(name):
    """A path that has derivatives; flows that one noise and the opposite one lead back."""
    system = composed(name)
    start = state(system)

    @jax.jit
    def symmetric(z, given):
        h, dW, dZ = given
        q, p, _ = da.step(system, da.stormer_verlet(), *z, h, da.Increments(dW, dZ))
        return (q, p), None

    @jax.jit
    def one_sided(z, given):
        h, dW, _ = given
        q, p, _ = da.step(system.fields, da.stormer_verlet(), *z, h, jnp.zeros(0))
        return system.flow.map(q, p, dW.reshape(system.flow.noises), h, system.params), None

    def end(step, steps):
        h, dW, dZ = smooth_path(system.noises, steps)
        with jax.enable_x64(True):
            z = tuple(jnp.asarray(x) for x in start)
            path = np.full(steps, h), jnp.asarray(dW), jnp.asarray(dZ)
            return np.concatenate([np.ravel(x) for x in jax.lax.scan(step, z, path)[0]])

    orders = {}
    for step in (symmetric, one_sided):
        ends = [end(step, steps) for steps in (16, 32, 64, 1024)]
        errors = [np.linalg.norm(x - ends[-1]) for x in ends[:-1]]
        orders[step] = np.log2(np.divide(errors[:-1], errors[1:]))
    assert np.allclose(orders[symmetric], 2, atol=0.3)
    assert np.all(orders[one_sided] < 1.5)


@pytest.mark.parametrize(
    ("name", "order"),
    tiered(
        [*zip(IN_ORDER, (1, 1, 0.5, 0.5, 1, 0.5), strict=True)],
        ["lenard bernstein-1"],
    ),
)
def test_paths_of_one_wiener_process_come_together_at_their_order(name, order):
    """½ where noises do not commute, whose areas no step reads; else 1, and not 2."""
    system = composed(name)
    start, paths, steps = state(system), 24, [8, 32, 128, 1024]

    def end(dW, dZ, h):
        def step(z, given):
            q, p, _ = da.step(system, da.stormer_verlet(), *z, h, da.Increments(*given))
            return (q, p), None

        z = tuple(jnp.asarray(x) for x in start)
        return jnp.concatenate([jnp.ravel(x) for x in jax.lax.scan(step, z, (dW, dZ))[0]])

    rng, ends, h = np.random.default_rng(0), {}, 1 / steps[-1]
    normal = rng.normal(size=(2, paths, steps[-1], system.noises))
    dW, dZ = np.sqrt(h) * normal[0], h**1.5 / 2 * (normal[0] + normal[1] / np.sqrt(3))
    while dW.shape[1] >= steps[0]:
        if dW.shape[1] in steps:
            with jax.enable_x64(True):
                ends[dW.shape[1]] = np.asarray(jax.jit(jax.vmap(partial(end, h=h)))(dW, dZ))
        dZ = dZ[:, ::2] + dZ[:, 1::2] + h * dW[:, ::2]
        dW, h = dW[:, ::2] + dW[:, 1::2], 2 * h
    errors = [np.sqrt(np.mean((ends[n] - ends[steps[-1]]) ** 2)) for n in steps[:-1]]
    found = np.log(errors[0] / errors[-1]) / np.log(steps[-2] / steps[0])
    assert order - 0.1 < found < order + 0.2


@pytest.mark.parametrize("name", ["dougherty", "lorentz, of speed", "lorentz, 2 components"])
def test_the_opposite_noise_leads_back(name):
    system = composed(name)
    q, p = map(jnp.asarray, state(system))
    h, rng = jnp.asarray(0.01), np.random.default_rng(5)
    w = jnp.asarray(0.1 * rng.normal(size=system.flow.noises))
    there = system.flow.map(q, p, w, h, system.params)[1]
    back, further = (system.flow.map(q, there, x, h, system.params)[1] for x in (-w, w))
    assert np.allclose(back, p, rtol=0, atol=1e-12) and not np.allclose(further, p, atol=0.1)


CURVES = {
    "lenard_bernstein": LenardBernstein(),
    "lenard_bernstein_momentum": LenardBernstein(cells=32),
    "dougherty": Dougherty(cells=32),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.slow
def test_damping_is_that_of_linear_theory_with_each_operator(name):
    """Mean over paths of random starts, in units of its error; the other operators are refuted."""
    k, nu, N, alpha = 0.5, 0.5, 2**12, 0.1
    system = vlasov_poisson(N, 2 * np.pi / k, Fourier(1), nu=nu, collisions=CURVES[name])
    start = Start(N, 2 * np.pi / k, amplitude=alpha)
    run = da.simulate(
        system, da.stormer_verlet(), start.random, dt=0.1, t_end=10.0, paths=16, save_every=5,
        observe={"n": da.plasma.density_modes(1)}, progress=False,
    )  # fmt: skip
    n, error = (x["n"][:, 0, 0] / alpha for x in (run.mean, run.stderr))

    def gap(collisions):
        expected = linear.response(k, run.t, nu, collisions).real
        return np.sqrt(np.mean(((-n - expected) / error) ** 2))

    gaps = {other: gap(other) for other in CURVES}
    assert gaps[name] < 2
    assert all(gap > 3 for other, gap in gaps.items() if other != name)


@pytest.mark.slow
def test_pairs_of_twice_the_weight_collide_twice_as_often():
    """A species of density two: the same velocities as with twice the rate."""
    dense, light = plasma("coulomb", nu=0.1, weight=2.0), plasma("coulomb", nu=0.2)
    q, p = map(jnp.asarray, state(light))
    w = jnp.asarray(np.random.default_rng(0).normal(size=light.flow.noises))
    pushed = [s.flow.map(q, x, w, 0.1, s.params)[1] for s, x in ((dense, 2 * p), (light, p))]
    assert np.allclose(pushed[0], 2 * pushed[1], rtol=1e-12)
    assert not np.allclose(pushed[1], p)
