"""Noether's theorem with forcing, continuous and discrete, each with a control that fails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
import variational_cases as cases
from dalembert.theory.noether import (
    balance_residual,
    cotangent_lift,
    linear,
    momentum_along,
    momentum_map,
    rotation,
    translation,
)
from dalembert.theory.symmetry import check_symmetry

START = (np.array([1.0, 0.2]), np.array([-0.3, 0.8]))
"""J = 0.86, and |q|, |p| stay below 5."""
ROTATION = rotation(2)
OTHERS = ("midpoint", "dirk", "srkw1")


def rounding_bound(steps):
    """What rounding may do to a conserved J of size one.

    The measured law is a random walk, standard deviation 0.7e-16 √steps (2.5e-16 √steps where
    a few steps end at the tolerance of the solver), and a bias of up to 4e-18 a step. Allowed are
    four of these standard deviations and 2.5 times the bias.
    """
    return 1e-15 * np.sqrt(steps) + 1e-17 * steps


def swirling_friction():
    """Rotationally symmetric and non-separable, with equivariant forces that change J."""
    return da.System(
        H=lambda q, p: jnp.dot(p, p) / 2 + jnp.dot(q, q) ** 2 / 4,
        F=lambda q, p: -0.2 * p + 0.1 * jnp.stack([-q[1], q[0]]),
        h=[lambda q, p: 0.3 * jnp.dot(q, p)],
        f=[lambda q, p: -0.3 * jnp.dot(q, q) * p],
        dim=2,
        name="swirling friction",
    )


SWIRL = swirling_friction()
ORTHOGONAL = da.System(H=SWIRL.H, F=lambda q, p: -0.2 * q[0] * q, dim=2, name="orthogonal")
"""Its force is orthogonal to rotations but does not turn with them."""
BROKEN = da.System(
    H=lambda q, p: jnp.dot(p, p) / 2 + q[0] ** 2 + q[1] ** 2 / 2, F=SWIRL.F, dim=2, name="broken"
)
ROUND = da.System(
    H=lambda q, p: jnp.dot(p, p) / 2 + jnp.dot(q, q) ** 2 / 4,
    h=[lambda q, p: 0.3 * jnp.dot(q, q)],
    dim=2,
    name="round",
)
"""Rotationally symmetric, without forces, and explicit for Störmer–Verlet."""
SCALED = da.System(
    H=lambda q, p: (q[0] * p[0]) ** 2 / 2,
    F=lambda q, p: -0.2 * p,
    h=[lambda q, p: 0.3 * q[0] * p[0]],
    f=[lambda q, p: -0.3 * q * p**2],
    dim=1,
    name="scaled",
)
"""Invariant under (q, p) → (λq, p/λ), with forces that turn with it and change J = qp."""
SCALING = linear(np.eye(1))
CURVED = da.System(H=lambda q, p: (p[0] * q[0] ** 2) ** 2 / 2, dim=1, name="curved")
"""Invariant under ξ_Q = q², which is not affine."""


# Momentum maps


def test_momentum_maps_and_cotangent_lifts():
    q, p = np.array([1.0, 2.0, 3.0]), np.array([-0.5, 0.25, 2.0])
    assert momentum_map(translation([0.0, 2.0, 0.0]))(q, p) == 0.5
    assert momentum_map(rotation(3, 0, 2))(q, p) == q[0] * p[2] - q[2] * p[0]
    A = np.array([[0.0, -2.0, 1.0], [2.0, 0.0, 3.0], [-1.0, -3.0, 0.0]])
    xi_q, xi_p = cotangent_lift(linear(A))(q, p)
    np.testing.assert_allclose(xi_q, A @ q, rtol=1e-15)
    np.testing.assert_allclose(xi_p, -A.T @ p, rtol=1e-15)

    def bent(q):
        return jnp.stack([jnp.sin(q[1]), q[0] * q[2], q[2] ** 3])

    _, xi_p = cotangent_lift(bent)(q, p)
    slope = np.array([[0, np.cos(q[1]), 0], [q[2], 0, q[0]], [0, 0, 3 * q[2] ** 2]])
    np.testing.assert_allclose(xi_p, -slope.T @ p, rtol=1e-14)


def test_a_rotation_turns_from_the_first_axis_to_the_second():
    np.testing.assert_array_equal(rotation(2)(np.array([1.0, 0.0])), [0.0, 1.0])


def test_a_momentum_map_can_be_observed_under_jit_and_vmap():
    J = jax.jit(jax.vmap(momentum_map(ROTATION)))
    q, p = np.random.default_rng(0).standard_normal((2, 5, 2))
    np.testing.assert_allclose(J(q, p), q[:, 0] * p[:, 1] - q[:, 1] * p[:, 0], rtol=1e-14)


# The conditions of the theorem


def test_the_planar_system_is_symmetric_under_rotations():
    found = check_symmetry(da.systems.planar(), ROTATION)
    assert found.invariant and found.orthogonal and found.equivariant and found.affine
    assert found.conserved and found.discrete
    assert max(d.relative for d in found.defects) < 1e-14
    assert [d.formula for d in found.defects if d.condition == "invariant"] == ["dH·ξ", "dh[0]·ξ"]
    assert "J = p·ξ_Q(q) is conserved" in str(found)


def test_the_planar_system_is_not_symmetric_under_translations():
    found = check_symmetry(da.systems.planar(), translation([1.0, 0.0]))
    assert not found.invariant and not found.orthogonal and not found.conserved
    assert "NOT a symmetry" in str(found) and "FAILS at q = [" in str(found)


def test_the_place_of_the_largest_violation_is_told():
    q = np.array([[1.0, 0.0], [3.0, 4.0], [0.5, 0.5]])
    found = check_symmetry(SWIRL, ROTATION, points=(q, np.zeros_like(q)))
    orthogonal = next(d for d in found.defects if d.formula == "F·ξ_Q")
    np.testing.assert_array_equal(orthogonal.q, [3.0, 4.0])
    assert orthogonal.size == pytest.approx(0.1 * 25)


@pytest.mark.parametrize(
    ("system", "generator", "expected"),
    [
        (SWIRL, ROTATION, dict(invariant=True, orthogonal=False, equivariant=True, affine=True)),
        (
            ORTHOGONAL,
            ROTATION,
            dict(invariant=True, orthogonal=True, equivariant=False, affine=True),
        ),
        (BROKEN, ROTATION, dict(invariant=False, orthogonal=False, equivariant=True, affine=True)),
        (
            CURVED,
            lambda q: q**2,
            dict(invariant=True, orthogonal=True, equivariant=True, affine=False),
        ),
        (
            da.systems.langevin(lambda q: jnp.cos(q[0] - q[1]), dim=2),
            translation([1.0, 1.0]),
            dict(invariant=False, orthogonal=False, equivariant=True, affine=True),
        ),
    ],
    ids=["swirl", "orthogonal", "broken", "curved", "langevin"],
)
def test_each_condition_is_told_apart(system, generator, expected):
    found = check_symmetry(system, generator)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.conserved == (expected["invariant"] and expected["orthogonal"])


def test_scaling_is_a_symmetry_of_the_noise_of_a_system_of_ones_own():
    system = da.System(H=lambda q, p: jnp.dot(q, p), h=[lambda q, p: (q[0] * p[0]) ** 2], dim=2)
    found = check_symmetry(system, linear(np.eye(2)))
    assert found.conserved
    assert "not exact" not in str(found)


# J along a run


def test_angular_momentum_is_conserved_and_not_by_heun():
    options = {"dt": 0.1, "steps": 200}
    run = momentum_along(ROUND, da.stormer_verlet(), START, ROTATION, **options)
    assert run.converged and run.momentum[0] == pytest.approx(0.86)
    assert run.drift < rounding_bound(200)
    run = momentum_along(ROUND, da.heun(), START, ROTATION, **options)
    assert run.drift > 1e-3
    assert "largest change" in str(run)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stormer_verlet", *OTHERS])
def test_angular_momentum_is_conserved_in_the_plane(name):
    run = momentum_along(
        da.systems.planar(), da.METHODS[name](), START, ROTATION, dt=0.1, steps=10_000
    )
    assert run.converged and run.momentum[0] == pytest.approx(0.86)
    assert run.drift < rounding_bound(10_000)


@pytest.mark.slow
def test_heun_does_not_conserve_angular_momentum():
    run = momentum_along(da.systems.planar(), da.heun(), START, ROTATION, dt=0.1, steps=5000)
    assert run.drift > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["midpoint", "stormer_verlet", "dirk"])
def test_angular_momentum_is_conserved_over_a_million_steps(name):
    run = momentum_along(
        da.systems.planar(), da.METHODS[name](), START, ROTATION, dt=0.02, steps=1_000_000
    )
    assert run.converged
    assert run.drift < rounding_bound(1_000_000)


@pytest.mark.slow
def test_heun_drifts_over_a_million_steps():
    """About 1e-7 a step, against 4e-18 at most of the structured methods."""
    run = momentum_along(da.systems.planar(), da.heun(), START, ROTATION, dt=0.02, steps=1_000_000)
    assert run.drift > 0.05


@pytest.mark.slow
def test_known_increments_are_used_and_a_seed_draws_those_of_a_run():
    system, method, start = SCALED, da.heun(), ([1.0], [0.8])
    drawn = momentum_along(system, method, start, SCALING, dt=0.1, steps=20, seed=3)
    dW = da.brownian_path(3, 0, 0.1, 20, 1).dW
    given = momentum_along(system, method, start, SCALING, dt=0.1, increments=dW)
    other = momentum_along(system, method, start, SCALING, dt=0.1, increments=-dW)
    np.testing.assert_allclose(drawn.momentum, given.momentum, rtol=1e-14)
    assert np.max(np.abs(given.momentum - other.momentum)) > 1e-2
    q, p = start
    for k in range(20):
        q, p, _ = da.step(system, method, q, p, 0.1, dW[k])
    assert given.momentum[-1] == pytest.approx(float(q[0] * p[0]), rel=1e-14)


@pytest.mark.slow
def test_float64_where_it_is_switched_off():
    with jax.enable_x64(False):
        run = momentum_along(SWIRL, da.heun(), START, ROTATION, dt=0.1, steps=20, seed=3)
        assert check_symmetry(da.systems.planar(), ROTATION).conserved
    again = momentum_along(SWIRL, da.heun(), START, ROTATION, dt=0.1, steps=20, seed=3)
    assert run.momentum.dtype == np.float64
    np.testing.assert_allclose(run.momentum, again.momentum, rtol=1e-13)


# The discrete balance


OF_A_SCALING = {
    "midpoint": da.midpoint(),
    "stormer_verlet": da.stormer_verlet(),
    "heun": da.heun(),
    "spoiled": cases.spoiled(8),
}


@pytest.mark.parametrize("name", OF_A_SCALING)
@pytest.mark.slow
def test_the_discrete_balance_of_a_scaling(name):
    """Exact at every step, except without structure."""
    dW = np.random.default_rng(0).normal(0, 0.2, (50, 1))
    start, method = ([1.0], [0.8]), OF_A_SCALING[name]
    balance = balance_residual(SCALED, method, start, SCALING, dt=0.1, increments=dW)
    assert np.max(np.abs(balance.change)) > 0.01
    assert balance.residual.shape == (50,)
    if name in ("heun", "spoiled"):
        assert balance.largest > 1e-5
    else:
        assert balance.largest < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stormer_verlet", "srkw1", "midpoint", "dirk"])
def test_the_discrete_balance_is_exact_at_every_step(name):
    # Increments of its own: where noise is strong, other steps join the same q_k and p_{k+1}.
    dW = np.random.default_rng(0).normal(0, 0.2, (50, 1))
    balance = balance_residual(SWIRL, da.METHODS[name](), START, ROTATION, dt=0.1, increments=dW)
    assert np.max(np.abs(balance.change)) > 0.01
    assert balance.residual.shape == (50,)
    # The stage equations are solved to 256 roundings, 5.7e-14.
    assert balance.largest < 1e-13


@pytest.mark.slow
def test_the_discrete_balance_fails_without_structure():
    """Heun by the error of its step, a spoiled tableau by its defect: the test can fail."""
    for method in (da.heun(), cases.spoiled(8)):
        balance = balance_residual(SWIRL, method, START, ROTATION, dt=0.1, steps=50)
        assert balance.largest > 1e-5, method.name


@pytest.mark.slow
def test_the_discrete_balance_fails_without_the_symmetry():
    balance = balance_residual(BROKEN, da.midpoint(), START, ROTATION, dt=0.1, steps=50)
    assert balance.largest > 1e-2


@pytest.mark.slow
def test_an_orthogonal_force_that_does_not_turn_with_the_system():
    """J is conserved, as a quadratic invariant, but H_d⁺ is not invariant and the balance misses.

    Invariance of H and h_i and orthogonality of F and f_i do not give that of H_d⁺.
    """
    method = da.midpoint()
    run = momentum_along(ORTHOGONAL, method, START, ROTATION, dt=0.1, steps=50)
    balance = balance_residual(ORTHOGONAL, method, START, ROTATION, dt=0.1, steps=50)
    assert run.drift < 1e-13
    assert balance.largest > 1e-7


@pytest.mark.slow
def test_a_symmetry_that_is_not_affine_is_not_kept():
    start = (np.array([1.0]), np.array([0.5]))
    increments = np.zeros((10, 0))
    balance = balance_residual(
        CURVED, da.midpoint(), start, lambda q: q**2, dt=0.1, increments=increments
    )
    np.testing.assert_array_equal(balance.supplied, 0.0)
    assert balance.largest > 1e-5
    assert "10 steps: J changes by up to" in str(balance)


# What is refused


def test_generators_that_do_not_fit_are_refused():
    system = da.systems.planar()
    with pytest.raises(ValueError, match=r"shape \(2,\).*returns shape \(\)"):
        check_symmetry(system, lambda q: jnp.sum(q))
    with pytest.raises(TypeError, match=r"failed on positions of shape \(2,\)"):
        check_symmetry(system, rotation(3))
    with pytest.raises(TypeError, match="must be a function of q"):
        momentum_along(system, da.heun(), START, 3.0, dt=0.1, steps=1)
    with pytest.raises(ValueError, match="two of the axes 0, …, 1, not 1 and 1"):
        rotation(2, 1, 1)
    with pytest.raises(ValueError, match="non-zero vector"):
        translation([0.0, 0.0])
    with pytest.raises(ValueError, match=r"shape \(d, d\), .* not \(2, 3\)"):
        linear(np.zeros((2, 3)))


def bodies(shape, pull=0.0):
    """Bodies on springs between each other, with noisy strength, and a pull on the first of them.

    Flat ones are the same system, in positions of one axis.
    """

    def distances(q):
        q = q.reshape(shape)
        return jnp.sum((q[0] - q[1]) ** 2)

    return [
        da.System(
            H=lambda q, p: jnp.sum(p**2) / 2 + jnp.log1p(distances(q)) + pull * jnp.ravel(q)[0],
            h=[lambda q, p: 0.1 * distances(q)],
            dim=dim,
            name="bodies",
        )
        for dim in (shape, int(np.prod(shape)))
    ]


def test_generators_act_on_the_last_axis_of_positions():
    """Also where there are as many bodies as axes."""
    q = jnp.arange(1.0, 5.0).reshape(2, 2)
    p = jnp.ones((2, 2))
    np.testing.assert_array_equal(rotation(2)(q), [[-2.0, 1.0], [-4.0, 3.0]])
    np.testing.assert_array_equal(translation([0.0, 1.0])(q), [[0.0, 1.0], [0.0, 1.0]])
    np.testing.assert_array_equal(translation([[1.0, 0.0], [0.0, 2.0]])(q), [[1, 0], [0, 2]])
    assert momentum_map(rotation(2))(q, p) == -2.0
    assert momentum_map(translation([[1.0, 0.0], [0.0, 2.0]]))(q, p) == 3.0
    assert rotation(3)(jnp.ones((5, 4, 3))).shape == (5, 4, 3)


@pytest.mark.parametrize("shape", [(2, 2), pytest.param((2, 3), marks=pytest.mark.slow)])
def test_bodies_that_turn_together_are_a_symmetry(shape):
    assert check_symmetry(bodies(shape)[0], rotation(shape[1]), points=2).conserved


@pytest.mark.slow
def test_bodies_that_move_together_are_a_symmetry():
    shape = (3, 2)
    system = bodies(shape)[0]
    apart = np.zeros(shape)
    apart[0, 0] = 1.0
    assert check_symmetry(system, translation([1.0, 0.0])).conserved
    assert check_symmetry(system, translation(np.ones(shape))).conserved
    assert not check_symmetry(system, translation(apart)).invariant
    assert not check_symmetry(bodies(shape, pull=0.1)[0], translation([1.0, 0.0])).invariant


@pytest.mark.slow
def test_momenta_of_bodies_are_kept_and_are_those_of_flat_positions():
    shaped, flat = bodies((3, 2))
    q, p = np.random.default_rng(0).normal(size=(2, 3, 2))
    found = momentum_along(shaped, da.stormer_verlet(), (q, p), rotation(2), dt=0.1, steps=5)
    turned = np.sum(q[:, 0] * p[:, 1] - q[:, 1] * p[:, 0])
    np.testing.assert_allclose(found.momentum[0], turned, rtol=1e-14)
    assert found.drift < 1e-13
    turn = linear(np.kron(np.eye(3), rotation(2).matrix))
    states = q.ravel(), p.ravel()
    same = momentum_along(flat, da.stormer_verlet(), states, turn, dt=0.1, steps=5)
    np.testing.assert_allclose(found.momentum, same.momentum, rtol=1e-13)
    J = {"J": momentum_map(rotation(2))}
    run = da.simulate(
        shaped, da.stormer_verlet(), (q, p), dt=0.1, t_end=0.5, observe=J, progress=False
    )
    np.testing.assert_allclose(run.mean["J"], turned, rtol=1e-12)


def test_generators_of_other_shapes_are_refused():
    shaped, flat = bodies((2, 2))
    for system, generator in ((shaped, rotation(3)), (shaped, translation([1.0, 0.0, 0.0]))):
        with pytest.raises(TypeError, match=r"acts on positions of shape \(3,\), or \(N, 3\)"):
            check_symmetry(system, generator)
    with pytest.raises(TypeError, match=r"acts on positions of shape \(2, 2\), not \(4,\)"):
        check_symmetry(flat, translation([[1.0, 0.0], [1.0, 0.0]]))
    with pytest.raises(ValueError, match=r"non-zero vector of shape \(d,\), for each body, or"):
        translation(1.0)


def test_runs_that_cannot_be_made_are_refused():
    system = da.systems.planar()
    with pytest.raises(ValueError, match="give steps"):
        momentum_along(system, da.heun(), START, ROTATION, dt=0.1)
    with pytest.raises(ValueError, match=r"shape \(steps, 1\).*not \(5, 2\)"):
        momentum_along(system, da.heun(), START, ROTATION, dt=0.1, increments=np.zeros((5, 2)))
    with pytest.raises(ValueError, match="dt"):
        momentum_along(system, da.heun(), START, ROTATION, dt=-0.1, steps=5)
    with pytest.raises(ValueError, match="dt must be a positive number"):
        momentum_along(system, da.heun(), START, ROTATION, dt=0.0, increments=np.zeros((5, 1)))
    with pytest.raises(ValueError, match="no discrete Hamiltonian"):
        balance_residual(system, da.e1(), START, ROTATION, dt=0.1, steps=2)
