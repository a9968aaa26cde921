"""Constraints: what a system says of them, states and steps on them, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble.identity import describe_functions
from dalembert.noise import Increments
from dalembert.stepping import project
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.constraint_blocks import Blocks, find_blocks
from dalembert.stepping.multipliers import Way, solve_multipliers
from dalembert.stepping.residuals import tolerance
from dalembert.stepping.stepper import make_stepper
from dalembert.systems.double_pendulum_system import double_pendulum_start
from dalembert.systems.jointed_chain_system import jointed_chain_start
from dalembert.systems.ring_system import ring_start
from dalembert.systems.triangles_system import triangles_start

SPHERE = da.systems.brownian_sphere()
START = (np.array([0.6, 0.0, 0.8]), np.array([0.24, 0.4, -0.18]))
DW = np.array([0.1, 0.2, -0.3])
SLOW = pytest.mark.slow
METHODS = ("rattle", "weak_rattle", "projected_midpoint", "g_baoab")


def free(g, dim=3):
    return da.System(lambda q, p: jnp.sum(p**2) / 2, dim=dim, constraints=g)


def on_circle(q):
    return jnp.stack([q @ q - 1])


# What a system says


def test_a_system_counts_its_constraints():
    assert SPHERE.constraint_count == 1
    assert "constraints=1" in repr(SPHERE)
    assert da.systems.pendulum().constraint_count == 0
    assert da.systems.triangles(8, density=0.1).constraint_count == 24


def test_systems_with_the_same_functions_are_looked_at_by_the_same_code():
    one, other = (da.systems.triangles(8, density=0.1, gamma=x) for x in (1.0, 2.0))
    found = [project._compiled(x.shared, project._looked_at, find_blocks(x)) for x in (one, other)]
    assert find_blocks(one) is not find_blocks(other) and found[0] is found[1]
    assert find_blocks(one) != find_blocks(SPHERE)


@pytest.mark.parametrize(
    ("g", "error", "words"),
    [
        (lambda q: q @ q - 1, ValueError, r"must return shape \(c,\).*it returns shape \(\)"),
        (lambda q: q, ValueError, r"fewer than the 3 degrees of freedom"),
        (lambda q: q[:1] > 0, TypeError, "floating-point"),
        (lambda q: q[3:4], ValueError, "shape"),
        (lambda q, p: q[:1], TypeError, r"called as constraints\(q\)"),
        (1.0, TypeError, r"must be a function of \(q\)"),
    ],
    ids=["scalar", "all", "boolean", "empty", "of (q, p)", "number"],
)
def test_what_is_no_constraint_is_refused(g, error, words):
    with pytest.raises(error, match=words):
        free(g)


def test_constraints_are_part_of_what_a_system_is_known_by():
    one, other = free(on_circle), free(lambda q: jnp.stack([q @ q - 4]))
    assert one.key != other.key
    described = [describe_functions(s, np.dtype(float))[0]["constraints"] for s in (one, other)]
    assert described[0] != described[1]


# Ready-made ones


def test_distances_and_bodies():
    q = np.array([[0.0, 0, 0], [3, 4, 0], [0, 0, 2]])
    g = da.constraints.distances([(0, 1), (0, 2)], [5.0, 1.0])
    assert np.asarray(g(q)) == pytest.approx([0, 1.5])
    body = da.constraints.rigid({(0, 1): 5.0, (0, 2): 1.0})
    assert np.asarray(body(np.stack([q, q]))) == pytest.approx([0, 1.5, 0, 1.5])
    both = da.constraints.together(g, da.constraints.on_surface(lambda x: x[2]))
    assert np.asarray(both(q)) == pytest.approx([0, 1.5, 0, 0, 2])
    assert np.asarray(da.constraints.on_surface(lambda x: x @ x - 4)(q[2])) == pytest.approx([0])


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: da.constraints.distances([(0, 0)], 1.0), ValueError, "two points"),
        (lambda: da.constraints.distances([(0, 1), (1, 0)], 1.0), ValueError, "given twice"),
        (lambda: da.constraints.distances([0, 1], 1.0), ValueError, "pairs must be"),
        (lambda: da.constraints.distances([(0, 1)], -1.0), ValueError, "lengths must be"),
        (lambda: da.constraints.rigid({(0, 1): 0.0}), ValueError, "lengths must be"),
        (lambda: da.constraints.on_surface(1.0), TypeError, "phi must be"),
        (lambda: da.constraints.together(), TypeError, "together takes functions"),
    ],
)
def test_what_is_no_ready_made_constraint_is_refused(build, error, words):
    with pytest.raises(error, match=words):
        build()


@pytest.mark.parametrize(
    ("g", "shape", "words"),
    [
        (
            da.constraints.distances([(0, 1), (3, 2)], 1.0),
            (3, 2),
            r"distances has point 3, .* is 2",
        ),
        (
            da.constraints.rigid({(0, 3): 1.0}),
            (2, 3, 3),
            r"rigid has point 3, .* every body .* is 2",
        ),
    ],
)
def test_points_that_are_not_there_are_refused(g, shape, words):
    with pytest.raises(ValueError, match=words):
        g(np.ones(shape))
    with pytest.raises(TypeError, match=words):
        free(g, shape)


# States


@pytest.mark.slow
def test_projection():
    q, p = da.project(SPHERE, [0.5, 0.1, 0.9], [1.0, 2.0, 3.0])
    assert abs(q @ q - 1) < 1e-14
    assert abs(q @ p) < 1e-14
    assert np.cross(q, [0.5, 0.1, 0.9]) == pytest.approx(0, abs=1e-14)
    again = da.project(SPHERE, q, p)
    assert np.concatenate(again) == pytest.approx(np.concatenate([q, p]), abs=1e-14)
    many = da.project(SPHERE, np.stack([q, -q]), np.stack([p, p]))
    assert many[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("q", "p", "words"),
    [
        ([0.6, 0.0, 0.81], START[1], r"positions are not on the constraints.*da.project"),
        (START[0], [0.3, 0.4, 0.2], r"velocities are not tangent.*da.project"),
    ],
)
def test_an_inconsistent_start_is_refused(q, p, words):
    start = (np.asarray(q), np.asarray(p))
    with pytest.raises(ValueError, match=words):
        da.step(SPHERE, da.rattle(), *start, 0.1, DW)
    options = dict(dt=0.1, t_end=0.2, paths=2, progress=False)
    with pytest.raises(ValueError, match=words):
        da.simulate(SPHERE, da.rattle(), start, **options)
    shifts = jax.random.normal

    def sampler(key):
        return start[0] + 0 * shifts(key, (3,)), jnp.asarray(start[1])

    with pytest.raises(ValueError, match=words):
        da.simulate(SPHERE, da.rattle(), sampler, **options)


def test_redundant_constraints_are_refused():
    twice = free(lambda q: jnp.stack([q @ q - 1, 2 * (q @ q) - 2]))
    with pytest.raises(ValueError, match=r"redundant: Dg\(q\) has rank 1, and there are 2"):
        da.step(twice, da.rattle(), *START, 0.1, [])


@pytest.mark.slow
def test_projection_inside_of_transformations():
    """What is found there is what is found outside, and derivatives are those of the solution."""
    state = np.array([0.5, 0.1, 0.9]), np.array([1.0, 2.0, 3.0])
    with jax.enable_x64(True):
        q, p = jnp.asarray(state[0]), jnp.asarray(state[1])
        usual = da.project(SPHERE, *state)
        compiled = jax.jit(lambda q, p: da.project(SPHERE, q, p))
        np.testing.assert_allclose(compiled(q, p), usual, rtol=0, atol=1e-15)
        many = jax.jit(jax.vmap(lambda q, p: da.project(SPHERE, q, p)))
        np.testing.assert_allclose(
            many(jnp.stack([q, -q]), jnp.stack([p, p])),
            da.project(SPHERE, np.stack([q, -q]), np.stack([p, p])), rtol=0, atol=1e-15,
        )  # fmt: skip
        slopes = jax.jit(jax.jacrev(lambda q: jnp.concatenate(da.project(SPHERE, q, p))))(q)
        step = 1e-6
        for k, along in enumerate(step * np.eye(3)):
            ends = [np.concatenate(da.project(SPHERE, state[0] + x, p)) for x in (along, -along)]
            np.testing.assert_allclose(slopes[:, k], (ends[0] - ends[1]) / (2 * step), atol=1e-8)
        assert np.all(np.isnan(compiled(0 * q, p)))


@pytest.mark.slow
def test_samplers_may_project():
    def sampler(key):
        return da.project(SPHERE, jax.random.normal(key, (3,)), jnp.ones(3))

    run = da.simulate(
        SPHERE, da.rattle(), sampler, dt=0.1, t_end=0.1, paths=3, keep="final", progress=False
    )
    assert run.failed == 0
    assert np.linalg.norm(run.q, axis=1) == pytest.approx(np.ones(3), abs=1e-14)


@pytest.mark.slow
def test_traced_starts_off_the_constraints_give_nothing():
    off = START[0] + 1e-6

    def stepped(q):
        return da.step(SPHERE, da.rattle(), q, START[1], 0.1, DW)

    def failed(q):
        run = da.simulate(
            SPHERE, da.rattle(), (q, START[1]), dt=0.1, t_end=0.2, paths=2, progress=False
        )
        return run.failed

    with jax.enable_x64(True):
        found = jax.jit(jax.vmap(stepped))(jnp.stack([START[0], off]))
        np.testing.assert_array_equal(found[2].converged, [True, False])
        assert np.all(np.isnan(found[0][1])) and np.all(np.isnan(found[1][1]))
        usual = da.step(SPHERE, da.rattle(), *START, 0.1, DW)
        np.testing.assert_allclose(found[0][0], usual[0], rtol=0, atol=1e-15)
        assert [int(jax.jit(failed)(jnp.asarray(q))) for q in (START[0], off)] == [0, 2]


@pytest.mark.slow
def test_discrete_hamiltonians_are_of_positions_on_the_constraints():
    given = START[1], 0.1, DW

    def of(q):
        return da.discrete_hamiltonian(SPHERE, da.rattle(), q, *given).H_d

    with pytest.raises(ValueError, match=r"positions are not on the constraints.*da\.project"):
        of(START[0] + 1e-6)
    with jax.enable_x64(True):
        found = jax.jit(jax.vmap(of))(jnp.stack([START[0], START[0] + 1e-6]))
    assert float(found[0]) == pytest.approx(float(of(START[0])), abs=1e-14)
    assert np.isnan(found[1])


@pytest.mark.parametrize("q", [[0.0, 0.0, 0.0], [1e-200, 0.0, 0.0]])
def test_what_cannot_be_projected_is_refused(q):
    with pytest.raises(ValueError, match="could not be moved to the constraints"):
        da.project(SPHERE, q, [0.0, 0.0, 1.0])


def test_a_system_without_constraints_has_nothing_to_project_to():
    with pytest.raises(ValueError, match="has no constraints to project to"):
        da.project(da.systems.pendulum(), [0.0], [0.0])


STEEP = 1e8
"""What one of two constraints of `two_circles` is multiplied by."""


def two_circles():
    def g(q):
        return jnp.stack([q[:2] @ q[:2] - 1, STEEP * (q[2:] @ q[2:] - 1)])

    return free(g, 4)


@pytest.mark.parametrize("place", [0, 2])
def test_every_constraint_is_looked_at_on_its_own_scale(place):
    q, p = np.array([1.0, 0.0, 1.0, 0.0]), np.zeros(4)
    off = q.copy()
    off[place] += 1e-9
    with pytest.raises(ValueError, match=f"not on the constraints.* for constraint {place // 2}"):
        da.step(two_circles(), da.rattle(), off, p, 0.1, [])
    p[place] = 1e-9
    p[1] = p[3] = 1.0
    with pytest.raises(ValueError, match=f"not tangent.* for constraint {place // 2}"):
        da.step(two_circles(), da.rattle(), q, p, 0.1, [])


def test_constraints_of_different_scales_are_met_alike():
    q, p = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.7])
    q, p, info = da.step(two_circles(), da.rattle(), q, p, 0.1, [])
    q, p = np.asarray(q), np.asarray(p)
    assert info.converged
    radii = np.hypot(q[[0, 2]], q[[1, 3]])
    assert radii == pytest.approx(np.ones(2), abs=4e-15)
    assert q[:2] @ p[:2] == pytest.approx(0, abs=4e-15)
    assert q[2:] @ p[2:] == pytest.approx(0, abs=4e-15)


@pytest.mark.slow
def test_starts_are_looked_at_in_parts(monkeypatch):
    """However many there are, a few at a time; the last part has what is left."""
    monkeypatch.setattr(project, "MOST_NUMBERS", 9)  # three states on a sphere
    seen = []
    call = project._call

    def counted(kernel, system):
        def run(q, *rest):
            seen.append((kernel.__name__, len(q)))
            return call(kernel, system)(q, *rest)

        return run

    monkeypatch.setattr(project, "_call", counted)
    q, p = np.tile(START[0], (7, 1)), np.tile(START[1], (7, 1))
    project.check_start(SPHERE, q, p)
    assert seen == 3 * [("_looked_at", 3)] + 3 * [("_grams", 3)]
    q[5, 2] += 1e-3
    with pytest.raises(ValueError, match="for constraint 0 of path 5"):
        project.check_start(SPHERE, q, p)
    moved, _ = da.project(SPHERE, q, p)
    assert moved.shape == (7, 3)
    assert np.linalg.norm(moved, axis=1) == pytest.approx(1.0, abs=1e-14)


# Who takes what


@pytest.mark.parametrize("name", [name for name in da.METHODS if name not in METHODS])
def test_other_methods_are_refused_by_name(name):
    method = da.METHODS[name]()
    with pytest.raises(ValueError, match=f"{method.name.split('(')[0]}.* knows nothing of constr"):
        da.simulate(SPHERE, method, START, dt=0.1, t_end=0.1, paths=1, progress=False)
    with pytest.raises(ValueError, match="knows nothing of constraints"):
        make_stepper(SPHERE, method, np.float64)


@pytest.mark.parametrize("name", METHODS)
def test_methods_for_constraints_ask_for_them(name):
    with pytest.raises(ValueError, match=r"made for .* has no constraints|made for Langevin"):
        da.step(da.systems.pendulum(), da.METHODS[name](), [0.1], [0.2], 0.1, [0.1])


def test_noise_that_moves_positions_is_refused():
    turning = da.System(
        lambda q, p: p @ p / 2, h=[lambda q, p: q[0] * p[1]], dim=3, constraints=on_circle
    )
    with pytest.raises(ValueError, match="noise 1 moves positions off g"):
        da.step(turning, da.rattle(), *START, 0.1, [0.1])


def test_what_is_no_method_between_projections_is_refused():
    with pytest.raises(TypeError, match="a method without projections"):
        da.ProjectedMethod(da.rattle())
    with pytest.raises(ValueError, match="asks for more than constraints leave"):
        da.ProjectedMethod(da.baoab())
    with pytest.raises(ValueError, match="geodesic_steps must be a whole number"):
        da.g_baoab(0)
    with pytest.raises(ValueError, match="convergence must be one of"):
        da.ProjectedMethod(da.midpoint(), convergence="strong")


# Steps


def tangent(q, p):
    return p - q * (q @ p) / (q @ q)


def onto_sphere(q, move):
    """q + move − λ q with |q'| = 1, for the smaller |λ|."""
    target = q + move
    b, c = target @ q, target @ target - 1
    return target - (b - np.sqrt(b * b - c)) * q


def test_rattle_is_what_the_textbooks_say():
    (q, p), h, a = START, 0.1, np.array([0.0, 0.0, -2.0])
    kick = h / 2 * a + np.sqrt(2) * DW / 2
    P = (p + kick) / (1 + h / 2)
    q1 = onto_sphere(q, h * P)
    P = (q1 - q) / h
    p1 = tangent(q1, P + kick - h / 2 * P)
    found = da.step(SPHERE, da.rattle(), q, p, h, DW)
    assert found[0] == pytest.approx(q1, abs=1e-15)
    assert found[1] == pytest.approx(p1, abs=1e-14)
    assert found[2].converged


@pytest.mark.parametrize("K", [1, 3])
def test_g_baoab_is_what_its_authors_say(K):
    (q, p), h, a = START, 0.2, np.array([0.0, 0.0, -2.0])
    decay = np.exp(-h)

    def drift(q, p):
        for _ in range(K):
            q1 = onto_sphere(q, h / (2 * K) * p)
            q, p = q1, tangent(q1, (q1 - q) * 2 * K / h)
        return q, p

    p = tangent(q, p + h / 2 * a)
    q, p = drift(q, p)
    p = tangent(q, decay * p + np.sqrt(1 - decay**2) * DW / np.sqrt(h))
    q, p = drift(q, p)
    p = tangent(q, p + h / 2 * a)
    found = da.step(SPHERE, da.g_baoab(K), *START, h, DW)
    assert found[0] == pytest.approx(q, abs=1e-14)
    assert found[1] == pytest.approx(p, abs=1e-14)


@pytest.mark.parametrize(
    ("method", "is_symmetric"),
    [
        pytest.param(da.rattle(), True, id="rattle"),
        pytest.param(da.projected_midpoint(), True, id="projected_midpoint", marks=SLOW),
        pytest.param(da.ProjectedMethod(da.heun()), False, id="projected heun"),
    ],
)
def test_a_step_with_momenta_turned_round_leads_back_if_the_method_is_symmetric(
    method, is_symmetric
):
    """Noise Hamiltonians of positions alone do not change with p, so that dW keeps its sign."""

    def H(q, p):
        return p @ p / 2 + 2 * q[2] + q[2] ** 4

    system = da.System(H, h=[lambda q, p: 0.4 * q[0] * q[2]], dim=3, constraints=on_circle)
    q, p, _ = da.step(system, method, *START, 0.2, [0.3])
    q, p, _ = da.step(system, method, q, -p, 0.2, [0.3])
    miss = np.max(np.abs(np.concatenate([q - START[0], p + START[1]])))
    assert miss < 1e-15 if is_symmetric else miss > 1e-3


STARTS = {
    "spherical_pendulum": START,
    "brownian_sphere": START,
    "double_pendulum": double_pendulum_start(),
    "ring": ring_start(),
    "jointed_chain": jointed_chain_start(),
    "triangles": triangles_start(),
}


def misses(system, q, p):
    """The largest |g| and |Dg M⁻¹ p|."""

    def both(q, p):
        v = jax.grad(lambda p: system.H(q, p, system.params))(p)
        return jax.jvp(lambda q: system.constraints(q, system.params), (q,), (v,))

    return [float(jnp.max(jnp.abs(x))) for x in both(jnp.asarray(q), jnp.asarray(p))]


PAIRS = [
    pytest.param(s, m, marks=[] if (s, m) in {("brownian_sphere", "rattle")} else SLOW)
    for s in da.systems.CONSTRAINED
    for m in METHODS
    if (s, m) != ("spherical_pendulum", "g_baoab")
]


@pytest.mark.parametrize(("system", "method"), PAIRS)
def test_every_method_keeps_every_system_on_its_constraints(system, method):
    chosen = da.SYSTEMS[system](gamma=1.0)
    q, p = STARTS[system]
    p = 0.3 * np.random.default_rng(0).standard_normal(p.shape) * np.asarray(chosen.params["mass"])
    run = da.simulate(
        chosen, da.METHODS[method](), da.project(chosen, q, p),
        dt=0.02, t_end=0.6, paths=2, keep="final", progress=False,
    )  # fmt: skip
    assert run.failed == 0
    for q, p in zip(run.q, run.p, strict=True):
        assert max(misses(chosen, q, p)) < 1e-12


def test_registry():
    assert set(STARTS) == set(da.systems.CONSTRAINED)


@pytest.mark.slow
def test_a_step_too_large_is_reported():
    fast = (START[0], 50 * START[1])
    *_, info = da.step(SPHERE, da.rattle(), *fast, 1.0, DW)
    assert not info.converged
    with pytest.warns(RuntimeWarning, match="paths failed"):
        run = da.simulate(SPHERE, da.rattle(), fast, dt=1.0, t_end=2.0, paths=3, progress=False)
    assert run.failed == 3


@pytest.mark.slow
def test_a_path_that_runs_into_a_singular_point_is_reported():
    """Along a cone to its apex, where Dg vanishes, in eight steps."""
    cone = free(lambda q: jnp.stack([q[0] ** 2 + q[1] ** 2 - q[2] ** 2]))
    q = np.array([0.6, 0.8, 1.0])
    told = r"3 of 3 paths failed .*path 0 at t = 1\. .*A smaller dt may help\. Or .*the rank of Dg"
    with pytest.warns(RuntimeWarning, match=told):
        run = da.simulate(cone, da.rattle(), (q, -q), dt=0.125, t_end=2.0, paths=3, progress=False)
    assert run.failures.unconverged == 3 and run.failures.first_time == 1.0
    # Half as fast it has not come there at that time: a control.
    slow = da.simulate(cone, da.rattle(), (q, -q / 2), dt=0.125, t_end=1.5, paths=3, progress=False)
    assert slow.failed == 0


def linkage(copies=1):
    """Parallelograms of two cranks of length 1 and a rod of length 2; flat ones are singular."""

    def g(q):
        first, second = jnp.moveaxis(q.reshape(-1, 2, 2), 1, 0)
        lengths = first, second - np.array([[2.0, 0.0]]), second - first
        sizes = zip(lengths, (1.0, 1.0, 2.0), strict=True)
        return jnp.stack([da.constraints.missed_length(*x) for x in sizes], axis=1).reshape(-1)

    return da.System(lambda q, p: p @ p / 2, dim=4 * copies, constraints=g)


def turning(angle, speed):
    """A parallelogram at an angle: it is flat at 0 and π."""
    along = np.array([np.cos(angle), np.sin(angle)])
    across = speed * np.array([-along[1], along[0]])
    return np.concatenate([along, along + np.array([2.0, 0.0])]), np.tile(across, 2)


@pytest.mark.parametrize(
    "method", [da.rattle(), pytest.param(da.projected_midpoint(), marks=SLOW)], ids=lambda m: m.name
)
def test_steps_over_a_singular_point_are_reported(method):
    """From an angle of 0.95 to zero, where two kinds of motion meet, in ten steps."""
    (q, down), (_, up) = turning(0.95, -1.0), turning(0.95, 1.0)
    starts = np.stack([q, q]), np.stack([down, up])
    options = dict(dt=0.1, paths=2, keep="final", progress=False)
    with pytest.warns(RuntimeWarning, match="1 of 2 paths failed"):
        run = da.simulate(linkage(), method, starts, t_end=1.4, **options)
    assert run.failures.first_time in (pytest.approx(0.9), pytest.approx(1.0))
    # Nor has it come there before; the other turns away from there: controls.
    before = da.simulate(linkage(), method, starts, t_end=0.8, **options)
    assert before.failed == 0
    np.testing.assert_allclose(run.q[1], turning(0.95 + 1.4, 1.0)[0], atol=5e-3)


@pytest.mark.parametrize("copies", [pytest.param(n, marks=SLOW) for n in (1, 3)])
def test_one_block_that_goes_over_a_singular_point_is_enough(copies):
    """On scalars and on arrays."""
    states = [turning(1.0, 0.1 * (k % 5)) for k in range(copies - 1)]
    ends = []
    for angle in (0.3, 0.03):
        q, p = map(np.concatenate, zip(*states, turning(angle, -1.0), strict=True))
        *_, info = da.step(linkage(copies), da.rattle(), q, p, 0.1, [])
        ends.append(bool(info.converged))
    assert ends == [True, False]


def test_normals_may_turn_by_nearly_a_right_angle():
    """A step on the sphere is refused where it has no solution, and not before."""
    q, along = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])
    sphere = free(on_circle)
    for speed, is_fine in ((0.99, True), (1.01, False)):
        *_, info = da.step(sphere, da.rattle(), q, speed * along, 1.0, [])
        assert bool(info.converged) == is_fine


@pytest.mark.parametrize(
    "method", [da.rattle(), pytest.param(da.g_baoab(), marks=SLOW)], ids=lambda m: m.name
)
@pytest.mark.slow
def test_steps_have_derivatives(method):
    def height(scale):
        q, p, _ = da.step(SPHERE, method, START[0], scale * START[1], 0.1, DW)
        return q[2] + p[0]

    slope, step = float(jax.grad(height)(jnp.float64(1.0))), 1e-5
    ends = [float(height(jnp.float64(1.0 + s))) for s in (step, -step)]
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-7)


# Blocks of multipliers


def test_blocks_are_found():
    pairs = [(0, 1), (3, 4), (1, 2), (5, 6)]
    system = free(da.constraints.distances(pairs, 1.0), (8, 2))
    groups = {tuple(sorted(c[c >= 0])) for c in find_blocks(system).places.T}
    assert groups == {(0, 2), (1,), (3,)}
    assert find_blocks(da.systems.triangles(8, density=0.1)).is_regular
    assert find_blocks(da.systems.ring()).places.shape == (6, 1)


def test_masses_that_mix_momenta_leave_one_block():
    def H(q, p):
        return jnp.sum(p**2) / 2 + p[0, 0] * p[2, 0] / 2

    g = da.constraints.distances([(0, 1), (2, 3)], 1.0)
    assert find_blocks(da.System(H, dim=(4, 2), constraints=g)).places.shape == (2, 1)


@pytest.mark.parametrize("size", [2, 9])
def test_blocks_of_different_sizes_are_solved_like_one(size):
    """A block of `size` and one of 2, in a mixed order, against the whole matrix."""
    count = size + 2
    rng = np.random.default_rng(1)
    order = rng.permutation(count)
    places = np.full((size, 2), -1)
    places[:, 0], places[:2, 1] = order[:size], order[size:]
    A = np.zeros((count, count))
    for column in places.T:
        block = column[column >= 0]
        matrix = rng.standard_normal((len(block), len(block)))
        A[np.ix_(block, block)] = matrix @ matrix.T + np.eye(len(block))
    b = rng.standard_normal(count)
    none = np.zeros(0, int)
    found = Blocks(places, none).solve(lambda v: jnp.asarray(A) @ v, jnp.asarray(b))
    assert np.asarray(found) == pytest.approx(np.linalg.solve(A, b), abs=1e-11)
    whole = Blocks(order[:, None], none).solve(lambda v: jnp.asarray(A) @ v, jnp.asarray(b))
    assert np.asarray(whole) == pytest.approx(np.linalg.solve(A, b), abs=1e-11)


@pytest.mark.parametrize("safely", [False, True])
def test_what_has_no_solution_is_reported(safely):
    blocks = Blocks(np.zeros((1, 1), int), np.zeros(1, int))
    way, rest = Way(lambda change: -change, (jnp.ones(1),), True), (1.0, blocks, 2, safely)
    _, report = solve_multipliers(way, lambda u: u * u + 1, *rest)
    assert not report.residual <= tolerance(np.float64)
    found, report = solve_multipliers(way, lambda u: u + u**3 - 30, *rest)
    assert float(found[0, 0]) == pytest.approx(3.0, abs=1e-12)
    assert report.residual <= tolerance(np.float64)


# Small systems on scalars


def driven():
    """A point on a circle that a field turns, with noise."""

    def H(q, p, t):
        return p @ p / 2 + q[0] * jnp.cos(3 * t)

    noise = [lambda q, p, t: 0.4 * q[1]]
    return da.System(H, h=noise, dim=2, constraints=on_circle, time=True)


@pytest.mark.parametrize(
    ("system", "method", "start"),
    [
        (SPHERE, da.rattle(), START),
        pytest.param(SPHERE, da.g_baoab(), START, marks=SLOW),
        pytest.param(SPHERE, da.projected_midpoint(), START, marks=SLOW),
        pytest.param(driven(), da.rattle(), ([1.0, 0.0], [0.0, 0.7]), marks=SLOW),
        pytest.param(
            da.systems.double_pendulum(gamma=1.0),
            da.rattle(),
            double_pendulum_start(),
            marks=SLOW,
        ),
    ],
    ids=["sphere", "g_baoab", "midpoint", "driven", "pendulum"],
)
def test_steps_on_scalars_are_those_on_arrays(system, method, start):
    rng, ends = np.random.default_rng(0), []
    q, p = (np.ravel(np.asarray(x, float)) for x in start)
    dW = 0.2 * rng.standard_normal((2, system.noises))
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.asarray, system.params)
        for stepper in (
            make_stepper(system, method, np.float64),
            make_stepper(system, method, np.float64, most=0),
        ):

            def path(q, p, dW, stepper=stepper, params=params):
                state, left = system.begin(q, p, 0.3), []
                state = tuple(map(stepper.enter, state))
                for row in dW:
                    given = 0.1, Increments(dW=row), params, Solver.LOOP
                    *state, info = stepper.advance(*state, *given)
                    left.append(info.residual)
                return *map(stepper.leave, state), jnp.stack(left)

            *state, left = jax.jit(path)(jnp.asarray(q), jnp.asarray(p), jnp.asarray(dW))
            assert np.max(left) < tolerance(np.float64)
            ends.append(np.concatenate(state))
            is_scalar = stepper.is_scalar
            assert is_scalar == (len(ends) == 1)
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=2e-14)


@pytest.mark.slow
def test_small_systems_take_the_same_steps_under_any_cut():
    """Also where a step is so large that some paths need the safeguarded solver."""

    def ends(paths, save_every, **more):
        return da.simulate(
            SPHERE, da.g_baoab(), START, dt=0.6, t_end=14.4, paths=paths, seed=4,
            save_every=save_every, keep="final", progress=False, **more,
        )  # fmt: skip

    whole = ends(300, 24)
    assert whole.provenance["code"] == "vector code (LLVM)"
    for paths, save_every in ((300, 5), (37, 1)):
        np.testing.assert_array_equal(ends(paths, save_every).q, whole.q[:paths])
    np.testing.assert_allclose(ends(300, 24, engine="XLA").q, whole.q, rtol=0, atol=1e-9)


def test_what_has_no_straight_line_form_stays_on_arrays():
    quartic = da.System(lambda q, p: jnp.sum(p**4) + p @ p, dim=3, constraints=on_circle)
    stepper = make_stepper(quartic, da.rattle(), np.float64)
    assert not stepper.is_scalar and "not linear in momenta" in stepper.notice
    assert not make_stepper(SPHERE, da.g_baoab(5), np.float64).is_scalar
    # Linear terms make no linear steps where there are constraints.
    one = da.System(lambda q, p: p @ p / 2, h=[lambda q, p: q[0]], dim=2, constraints=on_circle)
    start = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    run = da.simulate(
        one, da.weak_rattle(), start, dt=0.1, t_end=1.0, paths=8, keep="final", progress=False
    )
    assert np.linalg.norm(run.q, axis=1) == pytest.approx(1.0, abs=1e-14)


# What is said


@pytest.mark.slow
def test_explanations_name_constraints_and_engines():
    text = da.explain(SPHERE, da.g_baoab(3))
    assert "1 constraint, in 1 block of up to 1" in text
    assert "3 times explicit: q_new; positions are kept on g = 0, velocities tangent" in text
    assert "regime: scalars, written out" in text
    many = da.explain(da.systems.triangles(8, density=0.1), da.rattle())
    reason = "constraints are solved for on arrays: 72 components are too many to write"
    assert reason in " ".join(many.split())


@pytest.mark.slow
def test_explanations_say_what_is_solved_for():
    text = da.explain(SPHERE, da.rattle())
    assert "1 × 1 of positions (Newton), 1 × 1 of momenta (linear)" in text
    assert "none, explicit" not in text
    assert "stage equations in each Newton step" in da.explain(SPHERE, da.projected_midpoint())
    # A system without constraints has none to speak of: a control.
    plain = da.explain(da.System(lambda q, p: p @ p / 2, dim=3), da.stormer_verlet())
    assert "none, explicit" in plain and "multipliers" not in plain


def test_certificates_of_systems_with_constraints():
    found = da.certify(da.rattle(), SPHERE)
    assert "brownian_sphere has 1 constraints: all of this is on a manifold of dim" in str(found)
    assert found.order == da.certify(da.rattle()).order
    with pytest.raises(ValueError, match="midpoint knows nothing of constraints"):
        da.certify(da.midpoint(), SPHERE)
    with pytest.raises(ValueError, match=r"rattle is made for .* has no constraints"):
        da.certify(da.rattle(), da.systems.pendulum())


def test_certificates():
    assert da.certify(da.rattle()).lagrange_dalembert
    assert da.certify(da.projected_midpoint()).lagrange_dalembert
    assert not da.certify(da.ProjectedMethod(da.heun())).lagrange_dalembert
    assert da.certify(da.rattle()).weak_order["additive"] == 1.0
    assert da.certify(da.g_baoab()).weak_order["additive"] == 2.0
    assert da.certify(da.weak_rattle()).takes == "systems with constraints"


REFUSING = {
    "moments": lambda: da.exact_moments(SPHERE, da.rattle(), START, dt=0.1, steps=2),
    "action": lambda: da.theory.action(SPHERE, np.ones((2, 3)), np.ones((2, 3)), 0.1, DW[None]),
    "flow": lambda: da.theory.generating_function(SPHERE, *START, 0.1, DW[None], da.rattle()),
    "factors": lambda: da.theory.path_factors(SPHERE, da.rattle(), START, 0.1, 2),
    "volumes": lambda: da.theory.quasi_symplecticity(SPHERE, da.rattle()),
    "generated": lambda: da.theory.generated_step(SPHERE, da.rattle(), *START, 0.1, DW),
}


@pytest.mark.parametrize("name", REFUSING)
def test_theory_without_constraints_refuses_them(name):
    with pytest.raises(ValueError, match="takes no constraints, and 'brownian_sphere' has 1"):
        REFUSING[name]()


def test_diagnoses_say_rank_and_dimension():
    found = da.diagnose(SPHERE, methods=[da.rattle(), da.midpoint()])
    assert (found.constraints.rank, found.constraints.dimension) == (1, 2)
    assert not found.linear
    assert "in 1 block; rank of Dg 1, on a manifold of dimension 2" in str(found)
    assert [v.refused is None for v in found.methods] == [True, False]
    assert found.recommendation[0].method == "rattle"


@pytest.mark.slow
def test_diagnoses_say_where_constraints_are_redundant():
    twice = free(lambda q: jnp.stack([q @ q - 1, 2 * (q @ q) - 2]))
    found = da.diagnose(twice, methods=[])
    assert found.constraints.is_singular
    assert not found.constraints.is_met
    assert "rank of Dg 1, on a manifold of dimension 2; REDUNDANT" in str(found)


@pytest.mark.parametrize(
    ("dim", "g", "match"),
    [
        (6, da.constraints.distances([(0, 1)], 1.0), "distances is for q of shape"),
        ((3, 3), da.constraints.rigid({(0, 1): 1.0, (1, 2): 1.0}), "rigid is for q of shape"),
        ((2, 2, 3), da.constraints.on_surface(lambda x: jnp.sum(x**2) - 1), "on_surface is for q"),
    ],
)
def test_ready_made_constraints_are_for_points(dim, g, match):
    with pytest.raises(TypeError, match=match):
        da.System(H=lambda q, p: jnp.sum(p**2) / 2, dim=dim, constraints=g)


def test_events_and_pairs_of_paths_are_refused():
    system = da.systems.brownian_sphere()
    start = (np.array([0.0, 0.0, 1.0]), np.zeros(3))
    with pytest.raises(ValueError, match="has constraints, and neither stop="):
        da.simulate(system, da.rattle(), start, dt=0.1, t_end=1.0, stop=lambda q, p, c: q[2])


def test_a_projection_promises_no_more_than_its_ends_keep():
    certificate = da.certify(da.ProjectedMethod(da.bracket_gauss()))
    assert max(x for x in certificate.order.values() if x) == 1.0
    assert da.ProjectedMethod(da.srkw1()).convergence == "weak"


@pytest.mark.slow
def test_starts_are_looked_at_in_any_unit_of_length():
    """A bond of 1e-10 that is wrong by a third is no bond."""
    bond = da.constraints.distances([(0, 1)], 1e-10)
    system = da.System(H=lambda q, p: jnp.sum(p**2) / 2, dim=(2, 3), constraints=bond)
    q = np.array([[0.0, 0.0, 0.0], [1.3e-10, 0.0, 0.0]])
    with pytest.raises(ValueError, match="positions are not on the constraints"):
        da.step(system, da.rattle(), q, 0 * q, 0.1, [])
    moved, _ = da.project(system, q, 0 * q)
    assert np.linalg.norm(moved[1] - moved[0]) == pytest.approx(1e-10, rel=1e-12)


def test_coordinates_that_constraints_read_only_in_some_places_are_theirs_everywhere():
    """Two points on tracks that bend at 2 and, beyond it, lean on each other."""

    def track(q):
        bend = jnp.where(q[:, 0] > 2, (q[:, 0] - 2) ** 2, 0.0)
        return q[:, 1] - bend - 0.3 * jnp.where(q[1, 0] > 2, q[::-1, 0] - q[:, 0], 0.0)

    def H(q, p):
        return jnp.sum(p**2) / 2 + jnp.sum(q[:, 1])

    alone = da.System(H, dim=(2, 2), constraints=lambda q: q[:, 1] - jax.nn.relu(q[:, 0] - 2) ** 2)
    together = da.System(H, dim=(2, 2), constraints=track)
    assert find_blocks(alone).places.shape == (1, 2)
    assert find_blocks(together).places.shape == (2, 1)
    start = np.array([[0.0, 0.0], [1.99, 0.0]]), np.array([[0.1, 0.0], [2.0, 0.0]])
    run = da.simulate(alone, da.rattle(), start, dt=0.02, t_end=0.2, keep="final", progress=False)
    assert run.failed == 0 and run.q[0, 1, 0] > 2.1
    assert np.max(np.abs(alone.constraints(jnp.asarray(run.q[0])))) < 1e-14


@pytest.mark.parametrize(
    ("g", "groups"),
    [
        (lambda q: jnp.diff(q[::2]), {(0, 1, 2)}),
        (lambda q: q[::2] * q[1::2], {(0,), (1,), (2,), (3,)}),
        (lambda q: np.kron(np.eye(2), [[1.0, 2, 0, 1], [0, 1, 3, 0]]) @ q, {(0, 1), (2, 3)}),
        (lambda q: q[:3].at[np.array([0, 1, 0])].add(q[np.array([4, 5, 1])]), {(0, 1), (2,)}),
        (lambda q: jnp.sort(q)[:2], {(0, 1)}),
        (lambda q: jax.lax.map(jnp.sin, q)[:2], {(0, 1)}),
        (lambda q: jnp.where(np.arange(4) < 2, q[:4], q[4:]), {(0,), (1,), (2,), (3,)}),
        (lambda q: jnp.stack([q[0] + 0 * q[7], q[7]]), {(0,), (1,)}),
        (lambda q: jax.lax.dynamic_slice(q, (jnp.int32(q[0]),), (2,)), {(0, 1)}),
        (lambda q: jnp.cumsum(q[:2]), {(0, 1)}),
        (lambda q: jnp.stack([jnp.prod(q[:3]), jnp.max(q[3:5])]), {(0,), (1,)}),
    ],
)  # fmt: skip
def test_blocks_are_found_from_traces(g, groups):
    found = find_blocks(free(g, 8)).places
    assert {tuple(sorted(c[c >= 0])) for c in found.T} == groups


@pytest.mark.slow
def test_velocities_that_momenta_of_other_blocks_move_are_tangent():
    def H(q, p):
        return jnp.sum(p**2) / 2 + 0.3 * jnp.maximum(q[0, 0] - 2, 0) * (p[0] @ p[1])

    system = da.System(H, dim=(2, 2), constraints=lambda q: (jnp.sum(q**2, axis=1) - 9) / 6)
    q, p = da.project(system, np.array([[3.0, 0.0], [0.0, 3.0]]), np.array([[0.0, 1.0], [0.7, 0]]))
    q, p, info = da.step(system, da.rattle(), q, p, 0.01, da.Increments(np.zeros(0)))
    v = jax.grad(H, 1)(jnp.asarray(q), jnp.asarray(p))
    assert info.converged and np.max(np.abs(np.sum(q * v, axis=1))) < 1e-14


@pytest.mark.slow
def test_blocks_that_move_other_coordinates_are_others():
    def g(q, A):
        return (A @ q**2 - 1) / 2

    pairs = np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    system = da.System(lambda q, p, A: p @ p / 2, dim=4, params=pairs, constraints=g)
    state = np.array([0.9, 0.8, 0.3, 0.6]), np.array([0.1, 0.2, 0.3, 0.4])
    da.project(system, *state)
    other = system.with_params(pairs[:, [0, 2, 1, 3]])
    found = da.project(other, *state)
    da.clear_caches()
    np.testing.assert_array_equal(found, da.project(other, *state))


@pytest.mark.slow
def test_projections_from_far_away_end_on_the_constraints():
    circle = da.System(
        lambda q, p: p @ p / 2, dim=2, constraints=lambda q: jnp.stack([(q @ q - 1) / 2])
    )
    q, _ = da.project(circle, np.array([1e7, 3e6]), np.zeros(2))
    assert abs(q @ q - 1) < 1e-14


def test_stage_equations_of_steps_on_scalars_are_measured():
    """Friction of 1000 a step leaves a residual in float32; of 0.1, none."""
    ends = []
    for gamma in (1.0, 1e4):
        system = da.System(
            lambda q, p: jnp.sum(p**2) / 2,
            F=lambda q, p, gamma=gamma: -gamma * p,
            dim=3,
            constraints=on_circle,
        )
        stepper = make_stepper(system, da.rattle(), np.float32)
        assert stepper.is_scalar
        q, p = (tuple(map(np.float32, x)) for x in ([0.6, 0.0, 0.8], [0.24, 0.4, -0.18]))
        given = np.float32(0.1), Increments(dW=np.zeros(0, np.float32)), None, Solver.LOOP
        with jax.enable_x64(False):
            ends.append(stepper.advance(q, p, *given)[2])
    usual, stiff = ends
    assert usual.converged and not stiff.converged
    assert stiff.residual > 100 * tolerance(np.float32)
