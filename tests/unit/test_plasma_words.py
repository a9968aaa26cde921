"""Plasmas: what is refused of what a newcomer writes, and what is said to be written instead."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.plasma import (
    CoulombPairs,
    Dougherty,
    LenardBernstein,
    Lorentz,
    Start,
    linear,
    placed,
    vlasov_poisson,
)
from tiers import tiered

OPERATORS = [LenardBernstein(), LenardBernstein(4), Dougherty(4), Lorentz(), CoulombPairs()]


def raises(make, kind, said):
    with pytest.raises(kind, match=said):
        make()


# What a plasma reads of its arguments


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_collisions_need_a_rate_and_may_have_none(operator):
    options = dict(velocities=2, collisions=operator)
    with pytest.raises(ValueError, match=r"act at the rate nu=: give one"):
        vlasov_poisson(16, **options)
    for nu in (0.0, 0.3):
        assert vlasov_poisson(16, nu=nu, **options).params["nu"] == nu


@pytest.mark.parametrize("operator", [None, *OPERATORS], ids=str)
def test_a_temperature_is_read_or_refused(operator):
    options = dict(velocities=2, collisions=operator, nu=0.3)
    if operator is None or isinstance(operator, LenardBernstein):
        assert vlasov_poisson(16, temperature=2.0, **options).params["temperature"] == 2.0
        assert vlasov_poisson(16, **options).params["temperature"] == 1.0
    else:
        with pytest.raises(ValueError, match=r"temperature is 2\.0, .* reads none: leave it out"):
            vlasov_poisson(16, temperature=2.0, **options)
        assert "temperature" not in vlasov_poisson(16, **options).params


def test_a_temperature_without_collisions_is_that_of_a_start():
    raises(lambda: vlasov_poisson(16, temperature=2.0), ValueError, r"without nu=.*da.plasma.Start")
    # A rate of 0 among others is one.
    assert "temperature" not in vlasov_poisson(16, nu=0.0, temperature=2.0).params


@pytest.mark.parametrize(
    ("rate", "kind", "said"),
    [
        (3.0, TypeError, r"rate is 3\.0, but must be a function .* nu= of the plasma"),
        (lambda v: np.ones(3), ValueError, r"a rate for each, not shape \(3,\)"),
        (lambda v: v[:, None], ValueError, r"speeds, shape \(16,\), .* not shape \(16, 1\)"),
        (lambda v, w: v, TypeError, "it failed, .* missing 1 required"),
    ],
)
def test_rates_of_lorentz_collisions_that_are_none_are_refused(rate, kind, said):
    raises(lambda: vlasov_poisson(16, nu=1.0, velocities=2, collisions=Lorentz(rate)), kind, said)


def test_one_rate_for_all_speeds_is_one_for_each():
    found = [
        da.plasma.Lorentz(rate).flow((4, 2), 1, {}) for rate in (lambda v: 2.0, lambda v: 2 + 0 * v)
    ]
    q, p, w = np.random.default_rng(0).normal(size=(3, 4, 2))
    params = dict(nu=0.1, mass=1.0, weight=1.0, charge=-1.0, length=(1.0,))
    one, other = (flow.map(q, p, w[:, :1], 0.1, params)[1] for flow in found)
    assert np.array_equal(one, other)


# Starts and the plasmas that they are made for

OTHERS = [
    (dict(length=10.0), {}, "made for length 12.56637, and 'vlasov_poisson' has length 10"),
    (dict(mass=4.0), {}, "made for mass 1, and 'vlasov_poisson' has mass 4"),
    ({}, dict(weight=0.5), "made for weight 0.5, and 'vlasov_poisson' has weight 1"),
    (dict(weight=np.arange(1.0, 17.0)), {}, "has weight from 1 to 16: give .* the same weight="),
    (
        dict(length=(3.0, 4.0), field=da.plasma.Fourier((1, 1))),
        dict(components=2),
        "has length 3, 4",
    ),
]


@pytest.mark.parametrize(
    ("kind", "plasma", "start", "said"),
    [("quiet", *other) for other in OTHERS]
    + [(kind, *OTHERS[0]) for kind in ("random", "together", "stop")],
)
def test_a_start_for_another_plasma_is_refused(kind, plasma, start, said):
    system, made = vlasov_poisson(16, **plasma), Start(16, **start)
    if kind == "together":
        made = Start.together(made, made)
    initial = made.quiet() if kind in ("quiet", "stop") else made.random
    stop = (lambda q, p, params: q[0, 0] if q.ndim == 2 else q[0]) if kind == "stop" else None
    with pytest.raises(ValueError, match=said):
        da.simulate(system, da.stormer_verlet(), initial, dt=0.1, t_end=0.1, stop=stop)


def test_positions_know_their_plasma_until_others_are_made_of_them():
    start = Start(16, 20.0)
    state, system = start.quiet(), vlasov_poisson(16)
    q, p = state
    options = dict(dt=0.1, t_end=0.1, progress=False)
    assert type(state) is tuple and q.begins_in == start.begins_in and type(p) is np.ndarray
    again = pickle.loads(pickle.dumps(state))
    np.testing.assert_array_equal(again[0], q)
    for other in (np.array(q), q + 0.0, q[:], q.astype(np.float32), q.copy(), again[0], abs(q)):
        assert getattr(other, "begins_in", None) is None
    # A run that goes on: particles have left the box.
    da.simulate(system, da.stormer_verlet(), (q + 70.0, p), **options)
    # Other systems have no box to be compared with.
    q.begins_in(da.System(H=lambda q, p: p @ p / 2, dim=16))
    placed.begins_in(system, (4 * np.pi * (1 + 1e-8),), {"mass": 1.0, "weight": np.ones(16)})


@pytest.mark.parametrize("together", [False, True])
def test_a_state_is_a_pair_for_jax(together):
    start = Start(16)
    state = (Start.together(start, start) if together else start).quiet()
    q, p = map(np.array, state)
    moved = jax.tree.map(lambda x, y: x + y, state, (q, p))
    np.testing.assert_array_equal(moved[0], 2 * q)
    np.testing.assert_array_equal(jax.jit(jnp.negative)(state[0]), jax.jit(jnp.negative)(q))


@pytest.mark.parametrize(
    ("system", "right"),
    [
        (vlasov_poisson(8), (12.0,)),
        (vlasov_poisson(8, (6.0, 6.0), da.plasma.Spline((8, 8))), (12.0, 5.0)),
        (da.plasma.vlasov_maxwell(8), (12.0,)),
    ],
    ids=["one", "two", "light"],
)
def test_a_length_that_is_no_tuple_is_refused_later_too(system, right):
    said = rf"must be a tuple of {len(right)} side\(s\) here, such as .*\(length=\(12\.0,"
    for copy in (system, pickle.loads(pickle.dumps(system.check))):
        change = getattr(copy, "with_params", None)
        for wrong in (12.0, (1.0, 2.0, 3.0)):
            with pytest.raises(ValueError, match=said):
                change(length=wrong) if change else copy({**system.params, "length": wrong})
    assert system.with_params(length=right).params["length"] == right


def test_a_start_for_another_plasma_with_light_is_refused():
    system = da.plasma.vlasov_maxwell(8, 5.0)
    with pytest.raises(ValueError, match=r"made for length 12\.56637, and 'vlasov_maxwell' has"):
        da.plasma.canonical_state(Start(8, components=2).quiet(), system)


@pytest.mark.parametrize("key", [None, 0, np.int64(3), "key"], ids=str)
def test_random_starts_need_a_key(key):
    start = Start(8)
    for one in (start, Start.together(start, start)):
        raises(lambda one=one: one.random(key), TypeError, r"start\.random\(jax\.random\.key\(0\)")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Start.together(), "together takes starts"),
        (lambda: Start.together(Start(8).quiet()), "together takes starts"),
        (lambda: Start.together(Start(8), Start(8, 20.0)), r"but length of them is"),
        (lambda: Start.together(Start(8), Start(8, components=2)), r"but components of them is"),
    ],
)
def test_species_that_cannot_be_together_are_refused(make, said):
    raises(make, (TypeError, ValueError), said)


@pytest.mark.parametrize("kind", tiered(["quiet", "random"], ["random"]))
def test_species_follow_one_another(kind):
    """Electrons with a wave and ions without: means of each, and densities by weights."""
    n = 2**12, 2**12
    weight, mass, charge = (np.repeat(pair, n) for pair in ((2.0, 2.0), (1.0, 4.0), (-1.0, 1.0)))
    starts = [
        Start(n[0], amplitude=0.3, weight=2.0),
        Start(n[1], velocities=da.plasma.Maxwellian(2.0, 0.25), mass=4.0, weight=2.0),
    ]
    start = Start.together(*starts)
    key = jax.random.key(2)
    q, p = map(np.asarray, start.quiet() if kind == "quiet" else start.random(key))
    assert sum(n) == start.N and q.shape == p.shape == (sum(n),)
    v, noise = p / (weight * mass), {"quiet": 2e-3, "random": 0.06}[kind]
    first, second = (slice(n[0]), slice(n[0], None))
    for part, u, T, alpha in ((first, 0.0, 1.0, 0.3), (second, 2.0, 0.25, 0.0)):
        assert np.mean(v[part]) == pytest.approx(u, abs=noise)
        assert np.var(v[part]) == pytest.approx(T, abs=noise)
        assert 2 * np.mean(np.cos(q[part] / 2)) == pytest.approx(alpha, abs=noise)
    # Each species has density 1, and the plasma is neutral.
    system = vlasov_poisson(sum(n), charge=charge, mass=mass, weight=weight)
    start.begins_in(system)
    wave = da.plasma.density_modes(1)(jnp.asarray(q), jnp.asarray(p), system.params)
    assert float(wave[0, 0]) == pytest.approx(-0.3, abs=2 * noise)
    assert np.sum(weight * charge) == 0
    # Each has numbers of its own: positions are spread evenly or at random, never alike.
    if kind == "random":
        assert abs(np.corrcoef(v[first], v[second])[0, 1]) < 0.1


# Words of others


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: da.plasma.Spline(dx=0.1), r"write cells=length/dx"),
        (lambda: da.plasma.Spline(8, order=1), r"write degree=, 1 for linear"),
        (lambda: da.plasma.Fourier(n=1), r"it takes modes"),
        (lambda: da.plasma.Maxwellian(vth=2.0), r"write temperature=vth\*\*2"),
        (lambda: da.plasma.Maxwellian(u=2.0), r"write drift="),
        (lambda: da.plasma.two_streams(3.0, vth=1.0), r"write temperature=vth\*\*2"),
        (lambda: da.plasma.two_streams(v0=3.0), r"write speed="),
        (lambda: da.plasma.bump_on_tail(3.0, density=0.1), r"write fraction="),
        (lambda: Start(8, alpha=0.1), r"write amplitude="),
        (lambda: Start(8, k=0.5), r"write mode=1 and length=2\*np\.pi/k"),
        (lambda: linear.root(0.5, vth=1.0), r"velocities=da\.plasma\.Maxwellian\(temperature=vth"),
        (lambda: linear.response(0.5, 1.0, vth=1.0), r"velocities=da\.plasma\.Maxwellian"),
        (lambda: linear.root([0.3, 0.5]), r"k is \[0\.3, 0\.5\], but must be one number"),
        (lambda: linear.root(0.5, True), "nu is True, but must be one number"),
        (lambda: linear.root(0.5, 0.1, Dougherty(32)), "write collisions='dougherty'"),
        (lambda: linear.root(0.5, 0.1, LenardBernstein()), "write collisions='lenard_bernstein'"),
        (lambda: linear.root(0.5, 0.1, LenardBernstein(8)), "collisions='lenard_bernstein_mom"),
        (lambda: linear.root(0.5, 0.1, CoulombPairs()), "there is none for CoulombPairs"),
    ],
)
def test_words_of_others(make, said):
    raises(make, TypeError, said)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (da.plasma.field_energies, r"write da\.plasma\.field_energies\(field\)\."),
        (da.plasma.density_modes, r"write da\.plasma\.density_modes\(1\)\."),
        (da.plasma.phase_space, r"write da\.plasma\.phase_space\(\)\."),
        (da.plasma.entropy, r"write da\.plasma\.entropy\(\)\."),
        (da.plasma.light_energies, r"write da\.plasma\.light_energies\(\)\."),
        (da.observables.kinetic, r"write da\.observables\.kinetic\(system\)\."),
        # What has been made is no maker.
        (da.plasma.density_modes((1, 1)), r"but the box has 1\.$"),
        (lambda q: q, r"Write `lambda q, p, params: …`\.$"),
    ],
)
def test_makers_of_observables_say_how_they_are_called(given, said):
    options = dict(dt=0.1, t_end=0.1, observe={"x": given})
    start, system = Start(8).quiet(), vlasov_poisson(8)
    raises(lambda: da.simulate(system, da.heun(), start, **options), TypeError, said)
