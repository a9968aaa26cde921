"""The canonical Vlasov–Maxwell system: its equations, what is kept, and Weibel's instability."""

import re
from functools import partial
from pathlib import Path

import jax
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
from dalembert.plasma.canonical import particles_of
from dalembert.theory import jacobian, symplectic_defect
from dalembert.theory.flows import try_flow
from tiers import tiered

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


def bent(x):
    """A given vector potential with the period of the box, and a uniform field besides."""
    return 0.3 * jnp.sin(2 * np.pi * x / 5) + 0.7 * x


def test_given_fields_add_their_forces():
    """Q (v_y ∂A/∂x − ∂φ/∂x) along x, at the same positions and velocities; p_y stays."""
    phi = lambda x: jnp.cos(2 * np.pi * x / 5)  # noqa: E731
    forces = []
    for given in ({}, dict(potential=phi, vector_potential=bent)):
        system, (q, p) = plasma(**given)
        view = canonical_view(jnp.asarray(q), jnp.asarray(p), system.params)
        forces.append(np.asarray(system.drift(q, p)[1]))
    x, v = np.asarray(view.x), np.asarray(view.v)
    k, Q = 2 * np.pi / 5, SPECIES["weight"] * SPECIES["charge"]
    expected = Q * (v[:, 1] * (0.3 * k * np.cos(k * x) + 0.7) + k * np.sin(k * x))
    assert np.allclose((forces[1] - forces[0])[:6], expected)
    assert np.allclose((forces[1] - forces[0])[6:], 0)
    assert set(system.invariants) == {"energy"}


@pytest.mark.slow
def test_a_uniform_field_turns_velocities_at_the_gyrofrequency():
    """Light that is very fast is not excited."""
    system = vlasov_maxwell(
        1, 5.0, c=1e3, charge=2.0, mass=4.0, field=None, vector_potential=lambda x: 0.6 * x
    )
    state = canonical_state((np.array([[1.0, 0.0]]), np.array([[4.0, 0.0]])), system)
    options = dict(dt=0.02, t_end=5.0, paths=1, keep="final", progress=False)
    run = da.simulate(system, da.midpoint(), state, **options)
    v = canonical_view(jnp.asarray(run.q[0]), jnp.asarray(run.p[0]), system.params).v[0]
    angle = -2.0 * 0.6 / 4.0 * 5.0
    # M dv_x/dt = Q v_y B and M dv_y/dt = −Q v_x B.
    assert np.allclose(v, [np.cos(angle), np.sin(angle)], atol=1e-4)


COLLIDING = {
    "lenard bernstein": (da.plasma.LenardBernstein(cells=3), {}),
    "dougherty, species": (da.plasma.Dougherty(cells=2), {}),
    "lorentz": (da.plasma.Lorentz(lambda v: 1 / (1 + v)), {}),
    "coulomb, species": (da.plasma.CoulombPairs(), dict(weight=2.0)),
}


def colliding(name, **more):
    collisions, options = COLLIDING[name]
    given = {name: np.tile(x, 10) for name, x in SPECIES.items()} | options
    system = vlasov_maxwell(
        60, 5.0, modes=2, nu=0.5, collisions=collisions, vector_potential=bent, **given, **more
    )
    rng = np.random.default_rng(3)
    x, momenta = rng.normal(size=(2, 60, 2))
    return system, canonical_state((3 * x, momenta), system, rng.normal(size=(2, 2)))


@pytest.mark.parametrize("name", tiered(list(COLLIDING), ["dougherty, species"]))
def test_collisions_keep_what_they_say_of_velocities(name):
    """Over many collisions; the same flow on canonical momenta, as the control, does not."""
    system, (q, p) = colliding(name)
    plain = da.plasma.vlasov_poisson(
        60, 5.0, nu=0.5, velocities=2, collisions=COLLIDING[name][0],
        **{name: system.params[name] for name in SPECIES},
    )  # fmt: skip
    functions = {"momentum": da.plasma.momentum, "kinetic energy": da.plasma.kinetic_energy}

    def wrong(q, p, w, h, params):
        own = jnp.stack([q[:60], q[60:120]], 1), jnp.stack([p[:60], p[60:120]], 1)
        new = plain.flow.map(*own, w, h, params)[1]
        return q, jnp.concatenate([new[:, 0], new[:, 1], p[120:]])

    def changes(act, times=1000):
        def once(p, key):
            w = jnp.sqrt(0.1) * jax.random.normal(key, system.flow.noises)
            return act(jnp.asarray(q), p, w, jnp.asarray(0.1), system.params)[1], None

        keys = jax.random.split(jax.random.key(0), times)
        after = jax.jit(lambda p: jax.lax.scan(once, p, keys)[0])(jnp.asarray(p))
        assert np.max(np.abs(after - p)[:120]) > 0.5 and np.array_equal(after[120:], p[120:])
        found = {}
        for what, fun in functions.items():
            both = [
                np.asarray(fun(jnp.asarray(q), jnp.asarray(x), system.params)) for x in (p, after)
            ]
            found[what] = np.max(np.abs(both[1] - both[0]))
        return found

    kept = changes(system.flow.map)
    for what, change in kept.items():
        assert change < 1e-12 if what in system.flow.keeps else change > 1e-4
    if "kinetic energy" in system.flow.keeps:
        assert changes(wrong)["kinetic energy"] > 1e-3


def test_collisions_decide_which_invariants_are_left():
    names = {name: set(colliding(name)[0].invariants) for name in COLLIDING}
    assert names["dougherty, species"] == {"energy"} and not names["lenard bernstein"]
    free = vlasov_maxwell(6, 5.0, nu=0.5, collisions=da.plasma.Dougherty())
    assert set(free.invariants) == {"energy", "momentum_x"}
    assert all(x.holds for x in try_flow(free) if x.declared)
    friction = vlasov_maxwell(6, 5.0, nu=0.5)
    assert not friction.invariants and friction.noise_shape == (6, 2)


class Carried:
    """An operator of a user that moves positions, and keeps what it says of particles."""

    reads_temperature = False

    def __init__(self, wrong=0.0):
        self.wrong = wrong

    def flow(self, shape, axes, params):
        def act(q, p, w, h, params):
            return q + h * p, p + h * (jnp.mean(p, axis=0, keepdims=True) - p) + self.wrong

        def shown(q, p, params):
            assert q.shape == p.shape == shape
            return jnp.sum(p[:, 0])

        return da.Flow(act, 1, "carrying", {"momentum": da.plasma.momentum, "along x": shown})


def test_operators_of_users_see_particles_and_may_move_them():
    """With A that bends, positions that are not moved along would change M v_y = p_y − Q A."""
    make = partial(plasma, nu=0.5, vector_potential=bent)
    system, (q, p) = make(collisions=Carried())
    with jax.enable_x64(True):
        q, p, w, h = jnp.asarray(q), jnp.asarray(p), jnp.zeros(1), jnp.asarray(0.3)
        old = particles_of(q, p, system.params)
        after = system.flow.map(q, p, w, h, system.params)
        own = Carried().flow((6, 2), 1, {}).map(*old, w, h, system.params)
        for found, expected in zip(particles_of(*after, system.params), own, strict=True):
            assert np.allclose(found, expected, rtol=1e-13, atol=1e-13)
        for new, z in zip(after, (q, p), strict=True):  # light stays
            assert np.array_equal(new[12:], z[12:])
    kept = {x.name: x.holds for x in try_flow(system) if x.declared}
    assert kept == {"momentum": True, "along x": True}
    wrong, _ = make(collisions=Carried(wrong=0.1))
    assert not any(x.holds for x in try_flow(wrong))


def test_flows_of_other_shapes_than_particles_are_refused():
    with pytest.raises(ValueError, match=r"must return \(q, p\), both real and of shape \(6, 2\)"):
        plasma(nu=0.5, collisions=Narrow())


class Narrow(Carried):
    def flow(self, shape, axes, params):
        return da.Flow(lambda q, p, w, h, params: (q, p[:, :1]), 1)


def test_friction_inside_is_that_of_velocities():
    """M dv/dt = −ν M v + w √(2νmT) dW besides the fields, in canonical momenta."""
    system, (q, p) = plasma(nu=0.5, temperature=2.0, vector_potential=bent)
    view = canonical_view(jnp.asarray(q), jnp.asarray(p), system.params)
    M = (SPECIES["weight"] * SPECIES["mass"])[:, None]
    own = {"F": -0.5 * M * view.v}
    w = np.random.default_rng(0).normal(size=(6, 2))
    size = SPECIES["weight"] * np.sqrt(2 * 0.5 * 2.0 * SPECIES["mass"])
    own["f"] = size[:, None] * w
    found = {
        "F": system.F(jnp.asarray(q), jnp.asarray(p), system.params),
        "f": system.f.fun(jnp.asarray(q), jnp.asarray(p), jnp.asarray(w), system.params),
    }
    for name, expected in own.items():
        assert np.allclose(found[name][:12], np.ravel(expected.T)), name
        assert np.all(found[name][12:] == 0)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (dict(potential=3.0), TypeError, "potential must be a function of positions"),
        (dict(vector_potential=jnp.sum), ValueError, "vector_potential returns shape"),
        (dict(collisions=da.plasma.Dougherty()), ValueError, "act at the rate nu="),
        (dict(nu=-1.0), ValueError, "nu is -1.0, but must be at least 0"),
        (dict(temperature=1.0), ValueError, "without nu= there are no collisions"),
    ],
)
def test_given_fields_and_collisions_that_are_none_are_refused(arguments, error, match):
    with pytest.raises(error, match=match):
        vlasov_maxwell(10, **arguments)


def test_another_given_field_is_another_plasma():
    system, _ = plasma(vector_potential=bent)
    assert system.with_params(c=2.0).params["c"] == 2.0
    with pytest.raises(ValueError, match="vector_potential is part of H: make another plasma"):
        system.with_params(vector_potential=jnp.sin)


def test_a_given_field_may_be_a_function_with_some_arguments_bound():
    """And is what the same field is as a function of its own."""
    systems = [
        plasma(vector_potential=field)[0]
        for field in (partial(lambda B, x: B * jnp.sin(x), 0.4), lambda x: 0.4 * jnp.sin(x))
    ]
    state = np.random.default_rng(0).normal(size=(2, 6, 2))
    begun = [canonical_state(tuple(state), system)[1] for system in systems]
    assert np.array_equal(*begun) and not np.array_equal(begun[0][6:12], state[1][:, 1])
    (x, y) = (system.with_params(c=2.0) for system in systems)
    assert x.H(*2 * [begun[0]], x.params) == y.H(*2 * [begun[0]], y.params)


def test_light_needs_a_plasma_that_has_it():
    for other in (
        da.plasma.vlasov_poisson(6, velocities=2),
        da.System(lambda q, p: jnp.sum(p**2), dim=16),
    ):
        with pytest.raises(ValueError, match="is not a system of"):
            canonical_state((np.zeros((6, 2)), np.zeros((6, 2))), other)


def test_particles_come_back_as_they_were_given():
    system, (q, p) = plasma(vector_potential=bent)
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
