"""Parameters that are changed later are checked as those of the first system are."""

import pickle
from dataclasses import replace

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.systems._parameters import Rule, Rules
from dalembert.systems.double_pendulum_system import double_pendulum_start
from dalembert.systems.jointed_chain_system import jointed_chain_start
from dalembert.systems.lennard_jones_system import lennard_jones_sampler
from dalembert.systems.polymer_system import polymer_sampler
from dalembert.systems.ring_system import ring_start
from dalembert.systems.triangles_system import triangles_start

PLASMA = da.plasma.vlasov_poisson(10, nu=0.1)
LIGHT = da.plasma.vlasov_maxwell(10, modes=2)
READY = {name: make() for name, make in da.SYSTEMS.items() if name != "lennard_jones"}
READY |= {"lennard_jones": da.systems.lennard_jones(32, density=0.1)}
READY |= {"vlasov_poisson": PLASMA, "vlasov_maxwell": LIGHT}
RANGES = [
    (name, each)
    for name, system in READY.items()
    for each in system.params
    if system.check.of.get(each, Rule()).need in ("above 0", "at least 0")
]
PARTICLES = da.systems.langevin(dim=(3, 3), mass=np.array([[1.0], [2.0], [3.0]]))


def test_every_ready_made_system_has_rules_for_its_parameters():
    assert all(isinstance(system.check, Rules) for system in READY.values())
    assert len(RANGES) > 40


@pytest.mark.parametrize(("name", "each"), RANGES)
def test_a_parameter_out_of_range_is_refused_later_too(name, each):
    system = READY[name]
    for bad in (-0.5, np.nan):
        value = (bad,) if isinstance(system.params[each], tuple) else bad
        with pytest.raises(ValueError, match=f"{each} is {bad}, but must be"):
            system.with_params(**{each: value})
        with pytest.raises(ValueError, match=f"{each} is {bad}, but must be"):
            system.with_params({**system.params, each: value})


@pytest.mark.parametrize("name", [name for name in READY if READY[name].params])
def test_no_parameter_takes_an_array_of_another_shape(name):
    system = READY[name]
    for each in system.params:
        with pytest.raises(ValueError, match=f"{each} (must be one number|has )"):
            system.with_params(**{each: np.ones((2, 1, 7, 1))})


@pytest.mark.parametrize("name", [name for name in READY if READY[name].params])
def test_no_parameter_takes_a_tuple_in_the_place_of_an_array(name):
    """But those that are one for each side of a box, or for each operator, and are counted."""
    system = READY[name]
    for each in set(system.params) - {"nu", "length"}:
        for pair in ((1.0, 2.0), [1.0, 2.0]):
            with pytest.raises(TypeError, match=rf"{each} must .* write {each}=np.array\(\[1.0, 2"):
                system.with_params(**{each: pair})


def test_the_box_is_looked_at_when_a_system_is_made():
    made = da.System(
        lambda q, p, params: jnp.sum(p**2 + q**2),
        dim=2, params={"side": 2.0}, periods=lambda params: params["side"] * np.ones(2),
    )  # fmt: skip
    assert np.array_equal(made.box(), [2.0, 2.0])
    with pytest.raises(ValueError, match="periods must be lengths, or 0"):
        made.with_params(side=-1.0)
    with pytest.raises(ValueError, match=r"periods has shape \(3,\)"):
        replace(made, periods=lambda params: np.ones(3))
    # Values that are not known yet are not looked at.
    jax.jit(lambda side: made.with_params(side=side).H(*np.ones((2, 2)), {"side": side}))(-1.0)


@pytest.mark.parametrize("each", ["mass", "gamma"])
def test_one_for_each_particle_is_not_one_for_each_axis(each):
    with pytest.raises(ValueError, match=rf"{each} has the shape \(3,\), .* such as {each}\[:, "):
        PARTICLES.with_params(**{each: np.array([1.0, 4.0, 9.0])})
    column = np.array([[1.0], [4.0], [9.0]])
    changed = PARTICLES.with_params(**{each: column})
    made = da.systems.langevin(dim=(3, 3), **{"mass": PARTICLES.params["mass"], each: column})
    z = np.arange(9.0).reshape(3, 3), np.ones((3, 3))
    for a, b in ((changed, made), (changed.with_params(temperature=2.0), made)):
        assert a.H(*z, a.params) == b.H(*z, b.params)
        np.testing.assert_array_equal(a.F(*z, a.params), b.F(*z, b.params))


def test_a_temperature_of_langevin_is_one_number():
    with pytest.raises(ValueError, match=r"temperature must be one number, .* several temperat"):
        PARTICLES.with_params(temperature=np.ones(3))


def test_traced_parameters_pass_and_their_shapes_are_checked():
    system = da.systems.langevin()

    def energy(mass):
        return system.with_params(mass=mass).H(jnp.ones(1), jnp.ones(1), {"mass": mass})

    found = jax.jit(energy)(-1.0), jax.grad(energy)(2.0), jax.vmap(energy)(jnp.ones(2))
    np.testing.assert_allclose(np.hstack(found), [0.0, -0.125, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"mass has the shape \(5,\)"):
        jax.jit(energy)(jnp.ones(5))


@pytest.mark.parametrize("load", [pickle, cloudpickle])
def test_copies_check_too(load):
    system = READY["heat_chain"]
    for copy in (
        load.loads(load.dumps(system)),
        replace(system, name="other"),
        system.with_params(gamma=2.0),
        system.with_params(gamma=2.0).with_params(mass=2.0),
        system.fields,
    ):
        with pytest.raises(ValueError, match="gamma is -1"):
            copy.with_params(gamma=-1.0)


def test_a_check_of_ones_own_goes_with_driven_systems():
    def check(params):
        if np.any(np.asarray(params["A"]) > 2):
            raise ValueError("A is too large")

    def H(q, p, t, params):
        return p[0] ** 2 / 2 + params["A"] * jnp.cos(t) * q[0]

    driven = da.System(H=H, dim=1, params={"A": 1.0}, time=True, check=check)
    for system in (driven, driven.at(0.5), driven.extended()):
        assert system.with_params(A=2.0).params == {"A": 2.0}
        with pytest.raises(ValueError, match="A is too large"):
            system.with_params(A=3.0)
    with pytest.raises(ValueError, match="A is too large"):
        da.System(H=H, dim=1, params={"A": 3.0}, time=True, check=check)
    with pytest.raises(TypeError, match="check must be a function of params, not 3"):
        da.System(H=H, dim=1, params={"A": 1.0}, time=True, check=3)


def test_a_check_changes_nothing_of_what_a_run_is_known_by():
    system = READY["damped_kubo"]
    bare = replace(system, check=None)
    assert bare.key == system.key and bare.shared is system.shared


def test_a_fluid_is_not_made_too_dense_for_its_cutoff():
    for name in ("lennard_jones", "triangles"):
        with pytest.raises(ValueError, match=r"the cut-off, .* is more than half the side"):
            READY[name].with_params(density=5.0)


@pytest.mark.parametrize("name", ["langevin", "polymer", "heat_chain", "damped_kubo"])
def test_a_parameter_that_depends_on_time_is_told_how_to_do_that(name):
    make = da.SYSTEMS[name]
    each = {"heat_chain": "T_left", "damped_kubo": "nu"}.get(name, "temperature")
    with pytest.raises(TypeError, match=r"function, .* time=True.*da\.midpoint.*with_params"):
        make(**{each: lambda t: 1 + t})
    with pytest.raises(TypeError, match=r"is a function, but must be a number"):
        READY[name].with_params(**{each: lambda t: 1 + t})


@pytest.mark.parametrize("name", ["polymer", "lennard_jones", "jointed_chain", "heat_chain"])
def test_masses_of_particles_are_those_of_langevin(name):
    with pytest.raises(ValueError, match=r"mass must be one number.*langevin.* takes arrays"):
        da.SYSTEMS[name](mass=np.ones((16, 1)))


def test_params_of_a_ready_made_system_are_a_dictionary():
    with pytest.raises(TypeError, match=r"params must be a dictionary with gamma, .*, not \[1\]"):
        PARTICLES.with_params([1])


SAMPLERS = {
    "polymer": (polymer_sampler, dict(k=2.0, temperature=0.5, mass=3.0), 5),
    "lennard_jones": (lennard_jones_sampler, dict(density=0.1, temperature=0.5, mass=3.0), 32),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_takes_its_numbers_from_the_system(name):
    sampler, numbers, N = SAMPLERS[name]
    system = da.SYSTEMS[name](N, **numbers)
    key = jax.random.key(3)
    for told, said in zip(sampler(system)(key), sampler(N, **numbers)(key), strict=True):
        np.testing.assert_array_equal(told, said)
    hot, cold = sampler(system, temperature=2.0)(key), sampler(system)(key)
    np.testing.assert_allclose(hot[1], 2 * cold[1], rtol=1e-6)
    still = da.SYSTEMS[name](N, gamma=0.0, **numbers)
    with pytest.raises(TypeError, match=r"no temperature: write .*_sampler\(system, temperature="):
        sampler(still)
    np.testing.assert_array_equal(sampler(still, temperature=0.5)(key)[1], cold[1])
    with pytest.raises(ValueError, match=r"mass is that of the system, 3\.0: leave it out"):
        sampler(system, mass=1.0)
    with pytest.raises(TypeError, match=r"_sampler\(system\) takes the ready-made system"):
        sampler(READY["damped_kubo"])
    with pytest.raises(TypeError, match=r"takes the system itself, or the number of .*, not 2\.5"):
        sampler(2.5)


def test_starts_take_the_system():
    for start, system, said in (
        (triangles_start, da.systems.triangles(30, density=0.1, sigma=0.9), (30, 0.1, 0.9)),
        (ring_start, da.systems.ring(7, length=2.0), (7, 2.0)),
        (jointed_chain_start, da.systems.jointed_chain(5, length=2.0), (5, 2.0)),
    ):
        for a, b in zip(start(system), start(*said), strict=True):
            np.testing.assert_array_equal(a, b)


def test_constraints_are_added_to_a_ready_made_system():
    free = da.systems.langevin(lambda q: q[2], dim=3, gamma=0.5)
    options = dict(params=free.params, dim=3, noises=3)
    bound = replace(free, constraints=on_sphere)
    assert bound.constraint_count == 1 and bound.functions == free.functions
    by_hand = da.System(H=free.H, F=free.F, h=free.h, constraints=on_sphere, **options)
    assert by_hand.key == bound.key
    with pytest.raises(ValueError, match="gamma is -1"):
        bound.with_params(gamma=-1.0)


def on_sphere(q, params):
    return jnp.stack([q @ q - 1])


def test_a_cutoff_of_known_arrays_is_checked_inside_jit():
    fluid = da.systems.lennard_jones(108, density=0.2, sigma=jnp.asarray(1.0))
    hot = jax.jit(lambda T: fluid.with_params(temperature=T).params["temperature"])
    assert float(hot(0.5)) == 0.5


def test_starts_of_rods_of_several_lengths_meet_the_constraints():
    four, two = np.array([1.0, 2.0, 0.5, 1.5]), np.array([1.0, 0.3])
    for system, (q, p) in (
        (da.systems.jointed_chain(5, length=four), jointed_chain_start(5, four)),
        (da.systems.ring(4, length=np.full(4, 2.0)), ring_start(4, np.full(4, 2.0))),
        (da.systems.double_pendulum(length=two), double_pendulum_start(length=two)),
    ):
        assert q.shape == p.shape == system.shape
        missed = system.constraints(jnp.asarray(q), system.params)
        np.testing.assert_allclose(missed, 0.0, atol=1e-6)
    told = jointed_chain_start(da.systems.jointed_chain(5, length=four))[0]
    np.testing.assert_array_equal(told, jointed_chain_start(5, four)[0])
    with pytest.raises(ValueError, match=r"rods of one length: da\.project\(system, q, p\)"):
        ring_start(da.systems.ring(4, length=four))


def test_lists_of_langevin_have_their_shapes_checked():
    for name in ("gamma", "mass"):
        with pytest.raises(ValueError, match=rf"{name} has the shape \(3,\), .* stretch to \(2,\)"):
            da.systems.langevin(dim=2, **{name: [1.0, 2.0, 3.0]})
        system = da.systems.langevin(dim=2, **{name: [1.0, 2.0]})
        np.testing.assert_array_equal(system.params[name], [1.0, 2.0])


def test_parameters_as_a_whole_are_complete():
    system = da.systems.pendulum()
    with pytest.raises(ValueError, match=r"\['kappa', 'sigma'\] are missing: .*with_params\(nu=…"):
        system.with_params({"nu": 1.0})
    assert system.with_params({**system.params, "nu": 1.0}).params["nu"] == 1.0


@pytest.mark.parametrize("number", [2, True])
def test_whole_numbers_and_truth_values_may_be_parameters(number):
    def H(q, p, params):
        return p[0] ** 2 / 2 + q[0] ** 2 * jnp.sum(jnp.asarray(params["n"], q.dtype)) / 2

    def energy(n):
        system = da.System(H=H, f=(lambda q, p, n: jnp.ones(1),), dim=1, params={"n": n})
        run = da.simulate(system, da.midpoint(), ([1.0], [0.0]), dt=0.1, t_end=0.5, paths=4)
        return run.mean["energy"]

    np.testing.assert_allclose(energy(number), energy(float(np.sum(number))), rtol=1e-13)
