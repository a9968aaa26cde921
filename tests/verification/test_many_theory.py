"""Theory of systems with many degrees of freedom: random directions, sums of noises, tangents."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.stepping import many
from dalembert.systems import fput, heat_chain, langevin, polymer, stochastic_wave
from dalembert.theory.sampled import MOST_TERMS
from tiers import tiered

FEW, MANY = 6, MOST_TERMS + 6


def oscillators(N, **functions):
    """N oscillators with functions of one's own; as many noises where there are any."""
    noises = N if {"h", "f"} & set(functions) else None
    given = {"H": lambda q, p: p @ p / 2 + q @ q / 2} | functions
    return da.System(**given, dim=N, noises=noises, name="oscillators")


def turned(q, p, w):
    """Noise i acts on q_i, and a single one also on the momentum of its neighbour."""
    return jnp.sum(w * q**2) + 1e-3 * w[2] * q[2] * p[3]


CASES = {
    "fput": lambda N: fput(N, gamma=0.7),
    "heat chain": heat_chain,
    "wave": lambda N: stochastic_wave(N, 0.3),
    "listed noises": lambda N: da.System(
        H=lambda q, p: p @ p / 2 + q @ q / 2,
        h=[lambda q, p, i=i: q[i] ** 2 for i in range(N)],
        dim=N,
    ),
    "one pair does not commute": lambda N: oscillators(N, h=turned),
    "all pairs commute": lambda N: oscillators(N, h=lambda q, p, w: jnp.sum(w * q**2)),
    "one momentum in a product": lambda N: oscillators(
        N, H=lambda q, p: p @ p / 2 + q @ q / 2 + 1e-3 * q[4] * p[5]
    ),
    "a sum that hides": lambda N: oscillators(
        N, H=lambda q, p: p @ p / 2 + jnp.sum(jnp.log(jnp.exp(q + p)) - p)
    ),
    "one force is not linear": lambda N: oscillators(N, F=lambda q, p: -p - 1e-3 * p[3] * p[4] * p),
    "one friction varies": lambda N: oscillators(N, F=lambda q, p: -p - 1e-3 * jnp.sin(q[3]) * p),
    "friction mixes": lambda N: oscillators(N, F=lambda q, p: -0.5 * p - 0.1 * jnp.roll(p, 1)),
    "noise is friction": lambda N: oscillators(
        N, F=lambda q, p: -0.5 * p, f=lambda q, p, w: -p * jnp.sum(w * jnp.arange(1.0 * N))
    ),
    "additive, bent": lambda N: oscillators(
        N, H=lambda q, p: p @ p / 2 + jnp.sum(q**4) / 4, h=lambda q, p, w: jnp.sum(w * p)
    ),
    "an invariant of all but one": lambda N: da.System(
        H=lambda q, p: p @ p / 2, h=lambda q, p, w: w[3] * q[3], dim=N, noises=N,
        invariants={"momentum": lambda q, p: jnp.sum(p)},
    ),
}  # fmt: skip

FACTS = ("separable", "forcing_linear_in_p", "constant_friction", "damped", "conformal", "linear")
FACTS += ("additive", "commutative", "noise_kind", "straight_drift", "straight_together")


@cache
def of(name, N=MANY):
    return da.diagnose(CASES[name](N), methods=[])


SEEN = (
    "one pair does not commute",
    "all pairs commute",
    "one momentum in a product",
    "a sum that hides",
    "one force is not linear",
    "an invariant of all but one",
    "additive, bent",
)
"""Cases that the fast control looks at too."""


@pytest.mark.parametrize("name", tiered(CASES, fast=[*SEEN, "noise is friction"]))
def test_large_systems_are_what_small_ones_of_the_same_kind_are(name):
    """Which are looked at in every direction: those that fail in one place fail here too."""
    small, large = of(name, FEW), of(name)
    assert small.directions is None and large.directions == 3 and large.friction is None
    for fact in FACTS:
        assert getattr(small, fact) == getattr(large, fact), fact
    assert {k: x.holds for k, x in small.invariants.items()} == {
        k: x.holds for k, x in large.invariants.items()
    }
    if small.rates is not None:
        assert large.rates[: 1 + FEW] == pytest.approx(small.rates, abs=1e-12)
        assert len(large.rates) == 1 + large.system.noises


def test_control_cases_differ():
    """What the cases above are there for is seen."""
    assert of("one pair does not commute").noise_kind == "general"
    assert of("all pairs commute").noise_kind == "commuting"
    assert not of("one momentum in a product").separable and of("a sum that hides").separable
    assert of("a sum that hides").evidence["separable"] == "sampled"
    assert not of("one force is not linear").forcing_linear_in_p
    assert not of("an invariant of all but one").invariants["momentum"].holds
    bent = of("additive, bent")
    assert bent.additive and not bent.straight_drift
    assert bent.evidence["straight_drift"] == "undecided"


@pytest.mark.slow
def test_the_page_of_a_large_system_says_how_it_was_tested():
    text = str(da.diagnose(stochastic_wave(100)))
    assert "tested in 3 random directions and random sums of noises" in text
    assert "commuting noises         yes" in text and "largest |Γ_uv − Γ_vu|" in text
    assert "srkw2 takes at most 32 noises" in text and "srkw1(0.5) takes" in text
    assert "midpoint        1       1     kept       400 nonlinear" in text
    assert "random directions" not in str(da.diagnose(stochastic_wave(4), methods=[]))


def test_no_matrix_is_made_of_a_large_system():
    """A matrix of 20,000 degrees of freedom would have 3 GB."""
    found = da.diagnose(fput(20_000, gamma=1.0), methods=[])
    assert found.conformal and found.additive and found.separable
    assert found.rates[0] == pytest.approx(1.0) and not any(found.rates[1:])


# --- tangent vectors -------------------------------------------------------------------------


def state(system, seed=0):
    rng = np.random.default_rng(seed)
    q, p = 0.3 * rng.standard_normal((2, *system.shape))
    return q, p, 0.1, 0.3 * rng.standard_normal(system.noises)


@pytest.mark.parametrize(
    "system, method",
    [
        (fput(300), da.stormer_verlet()),
        pytest.param(fput(300), da.midpoint(), marks=pytest.mark.slow),
        pytest.param(stochastic_wave(150), da.midpoint(), marks=pytest.mark.slow),
        pytest.param(stochastic_wave(150), da.dirk(), marks=pytest.mark.slow),
    ],
    ids=lambda x: x.name,
)
def test_a_step_in_300_dimensions_is_symplectic(system, method):
    """ω(Mu, Mv) = ω(u, v) for random pairs; Heun's method is the control."""
    system = da.theory.without_forces(system)
    assert system.dim == 300
    found = da.theory.tangent_pairs(system, method, *state(system))
    assert found.symplectic_defect < 1e-15 and found.factor == pytest.approx(1, abs=1e-13)
    assert "NOT" not in str(found)
    control = da.theory.tangent_pairs(system, da.heun(), *state(system))
    assert control.symplectic_defect > 1e-6
    assert "NOT symplectic" in str(control)


@pytest.mark.slow
def test_pairs_say_what_matrices_say():
    system = fput(5, gamma=0.8)
    for method in (da.stormer_verlet(), da.heun()):
        at = (system, method, *state(system))
        M, found = da.theory.jacobian(*at), da.theory.tangent_pairs(*at, pairs=200)
        is_conformal = da.theory.conformal_defect(M) < 1e-13
        assert (found.conformal_defect < 1e-14) == is_conformal == (method.name != "heun")
        c = da.theory.own_conformal_factor(M)
        assert found.factor == pytest.approx(c, rel=1e-12 if is_conformal else 1e-2)
        assert found.symplectic_defect > 1e-3


def test_wrong_pairs_and_unsolved_steps_are_refused():
    system = fput(5, 1.0, 1.0)
    with pytest.raises(ValueError, match="pairs must be a positive integer, not 0"):
        da.theory.tangent_pairs(system, da.heun(), *state(system), pairs=0)
    q, p, _, dW = state(system)
    with pytest.raises(ValueError, match="were not solved"):
        da.theory.tangent_pairs(system, da.heun(), 1e200 * q, p, 0.1, dW)


@pytest.mark.slow
def test_large_systems_are_quasi_symplectic_by_pairs():
    """Conformal friction is decided; for other friction only what pairs can say is said."""
    options = {"points": 3, "increments": 2}
    found = da.theory.quasi_symplecticity(fput(150, gamma=0.5), da.stormer_verlet(), **options)
    assert found and found.qs1 and found.qs2 and found.determinants is None
    assert "tested on 4 random pairs of tangent vectors" in str(found)
    heun = da.theory.quasi_symplecticity(fput(150, gamma=0.5), da.heun(), **options)
    assert not heun.qs1 and not heun and heun.qs2 is None
    assert "NOT quasi-symplectic" in str(heun) and len(str(heun)) < 800
    ends = da.theory.quasi_symplecticity(heat_chain(150), da.stormer_verlet(), **options)
    assert ends.qs1 and ends.qs2 is None and not ends
    assert "quasi-symplectic is not decided" in str(ends)


@pytest.mark.slow
def test_friction_of_large_systems_is_known_by_its_traces():
    small, large = (da.theory.linear_friction(fput(N, gamma=0.7)) for N in (5, 150))
    assert small.gammas.shape == (6, 5, 5) and large.gammas is None
    assert large.rates[0] == pytest.approx(0.7) and large.traces[0] == pytest.approx(150 * 0.7)
    assert not any(large.rates[1:])
    ends = da.theory.linear_friction(heat_chain(150, gamma=0.7))
    assert ends.rates is None and ends.traces == pytest.approx([1.4, 0.0, 0.0])
    mixing = oscillators(MANY, F=lambda q, p: -0.5 * p - 0.1 * jnp.cumsum(p))
    assert da.theory.linear_friction(mixing).traces == pytest.approx([0.6 * MANY])
    with pytest.raises(ValueError, match=r"F of 'oscillators'.*∂F/∂p is not constant"):
        da.theory.linear_friction(CASES["one force is not linear"](MANY))


@pytest.mark.slow
def test_the_conformal_factor_of_a_path_of_a_large_system():
    start = np.zeros(150), np.ones(150)
    options = {"dt": 0.1, "steps": 20}
    system = fput(150, gamma=0.5)
    verlet = da.theory.path_factors(system, da.stormer_verlet(), start, **options)
    assert verlet.converged and verlet.volume is None and verlet.defect < 1e-14
    assert verlet.conformal == pytest.approx((0.975 / 1.025) ** 20, rel=1e-12)
    assert verlet.exact_conformal == pytest.approx(np.exp(-1.0))
    assert da.theory.path_factors(system, da.heun(), start, **options).defect > 1e-6
    with pytest.raises(ValueError, match="linear but not -nu p"):
        da.theory.path_factors(heat_chain(150), da.stormer_verlet(), start, **options)
    with pytest.raises(ValueError, match="of 128 at most"):
        da.theory.factor_convergence(system, da.stormer_verlet(), start, dt=0.1)


# --- the discrete Hamiltonian ----------------------------------------------------------------


def one_step(system, method):
    q, p, dt, dW = state(system)
    given = da.Increments(dW, 0.4 * dt * dW if "dZ" in method.needs(system.noises) else None)
    q1, p1, info = da.step(system, method, q, p, dt, given)
    assert info.converged
    return np.stack([q, q1]), np.stack([p, p1]), dt, jax.tree.map(lambda x: x[None], given)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [da.stormer_verlet(), da.additive_midpoint()], ids=lambda method: method.name
)
def test_a_step_in_100_dimensions_is_generated(method):
    """q' = D₂H_d − F⁺ and p = D₁H_d − F⁻; Heun's method is the control."""
    system = fput(100, gamma=0.5)
    q, p, dt, dW = one_step(system, method)
    found = da.theory.generating_residual(system, method, q, p, dt, dW)
    assert found.position.shape == (1, 100) and found.largest < 1e-13
    control = da.theory.generating_residual(system, da.heun(), *one_step(system, da.heun()))
    assert control.largest > 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    "system", [fput(100, gamma=0.5), stochastic_wave(50)], ids=lambda s: s.name
)
def test_the_generated_step_in_100_dimensions_is_the_step(system):
    (q, q1), (p, p1), dt, given = one_step(system, da.midpoint())
    dW = given.dW[0]
    found_q, found_p, info = da.theory.generated_step(system, da.midpoint(), q, p, dt, dW)
    assert info.converged and found_q.shape == system.shape
    np.testing.assert_allclose(found_q, q1, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found_p, p1, rtol=0, atol=1e-13)
    forces = da.discrete_hamiltonian(system, da.midpoint(), q, p1, dt, dW)
    assert forces.F_minus.shape == forces.F_plus.shape == system.shape


# --- shapes ----------------------------------------------------------------------------------


def turn(q):
    return jnp.stack([-q[:, 1], q[:, 0]], axis=1)


PLANE = da.System(
    H=lambda q, p: jnp.sum(p**2) / 2 + jnp.sum(q**2) / 2,
    F=lambda q, p: -0.1 * p,
    h=lambda q, p, w: -jnp.sum(w * q),
    dim=(2, 2),
    noises=(2, 2),
    name="plane",
)


@pytest.mark.slow
def test_generating_functions_take_and_give_back_the_shape_of_a_system():
    method, system = da.stormer_verlet(), PLANE
    q, p, dt, given = one_step(system, method)
    residual = da.theory.generating_residual(system, method, q, p, dt, given)
    assert residual.position.shape == (1, 2, 2) and residual.largest < 1e-14
    new_q, old_p, _ = da.theory.mixed_step(system, method, q[0], p[1], dt, given.dW[0])
    np.testing.assert_allclose(new_q, q[1], atol=1e-14)
    np.testing.assert_allclose(old_p, p[0], atol=1e-14)
    assert np.ndim(da.theory.discrete_action(system, method, q, p, dt, given)) == 0


@pytest.mark.slow
def test_theory_takes_and_gives_back_the_shape_of_a_system():
    method, system = da.heun(), PLANE
    q, p, dt, given = one_step(system, method)
    symmetry = da.theory.check_symmetry(da.theory.without_forces(system), turn)
    assert symmetry.affine and not symmetry.invariant and symmetry.defects[1].q.shape == (2, 2)
    assert da.theory.momentum_along(system, method, (q[0], p[0]), turn, dt, steps=3).drift > 0
    points = da.diagnose(system, points=(q, p), methods=[])
    assert points.states == 2 and points.additive
    flat = q.reshape(2, 4), p.reshape(2, 4)
    with pytest.raises(ValueError, match=r"q must have shape \(2, 2, 2\), not \(2, 4\)"):
        da.theory.generating_residual(system, method, *flat, dt, given)
    with pytest.raises(ValueError, match=r"both of shape \(count, 2, 2\), not \(2, 4\)"):
        da.diagnose(system, points=flat)
    with pytest.raises(ValueError, match=r"must return a vector of shape \(2, 2\)"):
        da.theory.check_symmetry(system, lambda q: q.ravel())


@pytest.mark.slow
def test_symmetries_of_many_noises_are_tried_on_random_sums():
    system = stochastic_wave(80)
    assert da.theory.check_symmetry(system, turn).conserved

    def only_one(q):
        return turn(q).at[1:].set(0.0)

    found = da.theory.check_symmetry(system, only_one)
    assert not found.invariant and "dh·w1·ξ" in str(found)


@pytest.mark.slow
def test_exact_moments_of_a_shaped_system():
    shaped, flat = langevin(dim=(1, 2)), langevin(dim=2)
    start = np.arange(2.0)
    moments = [
        da.exact_moments(system, da.midpoint(), (q, 0 * q), dt=0.5, steps=3).second
        for system, q in ((shaped, start.reshape(1, 2)), (flat, start))
    ]
    np.testing.assert_array_equal(*moments)
    with pytest.raises(ValueError, match=r"q0 must be finite and have shape \(1, 2\)"):
        da.exact_moments(shaped, da.midpoint(), (start, start), dt=0.5, steps=3)


# --- gradients -------------------------------------------------------------------------------

GRADIENTS = {"chain": (fput(64, 0.4, 0.7, gamma=0.5), "beta"), "polymer": (polymer(10), "k")}


@pytest.mark.parametrize(
    "name, method",
    [
        ("polymer", da.midpoint()),
        ("chain", da.midpoint()),
        ("chain", da.baoab()),
    ],
    ids=lambda x: getattr(x, "name", x),
)
@pytest.mark.slow
def test_gradients_of_a_step(name, method):
    """By parameters and states; memory does not grow with the sweeps of the solution."""
    system, parameter = GRADIENTS[name]
    q, p, dt, dW = state(system)
    along = np.random.default_rng(1).standard_normal(system.shape)

    def after(x, s):
        found = da.step(system.with_params(**{parameter: x}), method, q + s * along, p, dt, dW)
        return jnp.sum(found[0] ** 3) + jnp.sum(found[1] ** 2)

    x, h = system.params[parameter], 1e-5
    gradient = jax.jit(jax.grad(after, (0, 1))).lower(x, 0.0).compile()
    centred = [(after(x + h, 0.0) - after(x - h, 0.0)), (after(x, h) - after(x, -h))]
    np.testing.assert_allclose(gradient(x, 0.0), np.divide(centred, 2 * h), rtol=1e-7)
    # The solver of the linear equations has forty vectors, twice as long as the state, and some.
    state_bytes = 2 * 8 * system.dim
    assert gradient.memory_analysis().temp_size_in_bytes < 200 * state_bytes


@pytest.mark.slow
def test_sweeps_themselves_cannot_be_differentiated_backwards():
    """The control: gradients that work do not go through the iterations."""
    start = jnp.linspace(0.5, 1.5, 40)

    def solved(x):
        def residual(u):
            return u + x * jnp.roll(u, 1) - start

        parts = lambda r: jnp.max(r)[None], lambda r, u: jnp.max(jnp.abs(r))
        return jnp.sum(many.solve(residual, *parts, start, start, 0, False)[0])

    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(solved)(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_a_run(name):
    system, parameter = GRADIENTS[name]
    q, p, *_ = state(system)
    observe = {"u": lambda q, p, c: jnp.sum(q**4)}
    options = dict(dt=0.1, t_end=1.0, paths=2, observe=observe, progress=False)

    def end(x):
        other = system.with_params(**{parameter: x})
        return da.simulate(other, da.midpoint(), (q, p), **options).mean["u"][-1]

    x, h = system.params[parameter], 1e-5
    assert jax.grad(end)(x) == pytest.approx((end(x + h) - end(x - h)) / (2 * h), rel=1e-7)
