"""One step as a map: its limits, its symplecticity, its closed form, its volume, an exact path."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.systems.kubo_system import kubo_path
from tiers import tiered


def general_dirk():
    """A structured method whose weights for H, F, h and f differ."""

    def matrix(w):
        return [[w[0] / 2, 0], [w[0], w[1] / 2]]

    a, a_hat, b = (0.3, 0.7), (0.1, 0.9), (0.6, 0.4)
    return da.MeanSquareTableau(
        *(matrix(w) for w in (a, a, a_hat, b, b, b)), a, a_hat, b, b, name="general dirk"
    )


STRUCTURED = {
    "midpoint": da.midpoint(),
    "stormer_verlet": da.stormer_verlet(),
    "dirk": da.dirk(0.3),
    "general dirk": general_dirk(),
    "srkw1": da.srkw1(0.25),
    "srkw2": da.srkw2(),
}
EXPLICIT = {name: da.METHODS[name]() for name in ("heun", "r2", "e1", "rs1", "rs2")}


def increments(method, dW):
    """Wiener increments with whatever else a method reads."""
    m = len(dW)
    return da.Increments(jnp.asarray(dW), 0.1 * jnp.asarray(dW), jnp.zeros((m, m)))


def step(system, method, z, dt, dW):
    """One step as a map of z = (q, p), converged or a failure."""
    q, p, info = da.step(system, method, *np.split(z, 2), dt, increments(method, np.asarray(dW)))
    assert info.converged
    return np.concatenate([q, p])


@cache
def jacobian(system, method):
    """The derivative of the one-step map, with its value and its report, compiled once."""

    def one(z, dt, dW):
        q, p = z[: system.dim], z[system.dim :]
        q, p, info = da.step(system, method, q, p, dt, increments(method, dW))
        z = jnp.concatenate([q, p])
        return z, (z, info.converged)

    return jax.jit(jax.jacfwd(one, has_aux=True))


def point(dim, seed=0):
    return 0.8 * np.random.default_rng((dim, seed)).normal(size=2 * dim)


def wave(x):
    """Couples all components, at the price of one cosine: it is compiled often."""
    return jnp.cos(jnp.dot(x, np.arange(1.0, len(x) + 1)))


def coupled(q, p):
    """Nonlinear, and not a sum of functions of q and of p."""
    return jnp.dot(p, p) / 2 + jnp.dot(q, q) / 2 + wave(q) + 0.3 * jnp.sin(jnp.dot(q, p))


def force(q, p):
    return -0.2 * p - 0.1 * p**3 + 0.3 * wave(q) * jnp.roll(p, 1)


# --- zero noise: the deterministic method ------------------------------------------------------

BETA = 0.5

# A drift with one noise along it: what a step does to it is known for every ΔW, zero or not.
SHAKEN = da.System(
    H=coupled,
    F=force,
    h=[lambda q, p: BETA * coupled(q, p)],
    f=[lambda q, p: BETA * force(q, p)],
    dim=2,
    name="shaken clock",
)


@cache
def field():
    """dz/dt = J∇H + (0, F) and its Jacobian, written down once more and compiled."""

    def v(z):
        q, p = z[:2], z[2:]
        slope_q, slope_p = jax.grad(coupled, (0, 1))(q, p)
        return jnp.concatenate([slope_p, -slope_q + force(q, p)])

    return jax.jit(v), jax.jit(jax.jacfwd(v))


def midpoint_by_hand(z, dt):
    """z' = z + dt v((z + z')/2), by Newton's method."""
    v, dv = field()
    new = z
    for _ in range(12):
        middle = (z + new) / 2
        residual = new - z - dt * v(middle)
        new = new - np.linalg.solve(np.eye(4) - dt / 2 * dv(middle), residual)
    return new


def stormer_verlet_by_hand(z, dt):
    """Half a kick with the new P, a drift with both ends, half a kick; F like H_q."""
    v, dv = field()
    q, p = z[:2], z[2:]
    P, Q = p, q
    for _ in range(12):
        at = np.concatenate([q, P])
        slope = np.eye(2) - dt / 2 * dv(at)[2:, 2:]
        P = P - np.linalg.solve(slope, P - p - dt / 2 * v(at)[2:])
    start = np.concatenate([q, P])
    for _ in range(12):
        at = np.concatenate([Q, P])
        slope = np.eye(2) - dt / 2 * dv(at)[:2, :2]
        Q = Q - np.linalg.solve(slope, Q - q - dt / 2 * (v(start)[:2] + v(at)[:2]))
    return np.concatenate([Q, P + dt / 2 * v(np.concatenate([Q, P]))[2:]])


def dirk_by_hand(z, dt):
    return midpoint_by_hand(midpoint_by_hand(z, 0.3 * dt), 0.7 * dt)


def srkw2_by_hand(z, dt):
    for _ in range(4):
        z = midpoint_by_hand(z, dt / 4)
    return z


def heun_by_hand(z, dt):
    v, _ = field()
    return z + dt / 2 * (v(z) + v(z + dt * v(z)))


def ralston_by_hand(z, dt):
    v, _ = field()
    return z + dt / 4 * (v(z) + 3 * v(z + 2 / 3 * dt * v(z)))


def e1_by_hand(z, dt):
    v, _ = field()
    k1 = v(z)
    k2 = v(z + 2 / 3 * dt * k1)
    k3 = v(z + dt * (3 / 2 * k1 - 1 / 3 * k2))
    k4 = v(z + 7 / 6 * dt * k1)
    return z + dt / 4 * (k1 + 3 * k2 - 3 * k3 + 3 * k4)


def rs2_by_hand(z, dt):
    v, _ = field()
    k1 = v(z)
    k2 = v(z + 2 / 3 * dt * k1)
    k3 = v(z + dt * (k1 / 6 + k2 / 2))
    return z + dt / 4 * (k1 + k2 + 2 * k3)


BY_HAND = {
    "midpoint": midpoint_by_hand,
    "stormer_verlet": stormer_verlet_by_hand,
    "dirk": dirk_by_hand,
    "srkw1": midpoint_by_hand,
    "srkw2": srkw2_by_hand,
    "heun": heun_by_hand,
    "r2": ralston_by_hand,
    "e1": e1_by_hand,
    "rs1": heun_by_hand,
    "rs2": rs2_by_hand,
}
FAST = ["heun", "r2", "e1"]


@pytest.mark.parametrize("name", tiered([n for n in BY_HAND if n != "srkw2"], fast=FAST))
def test_zero_noise_is_the_deterministic_method(name):
    method = {**STRUCTURED, **EXPLICIT}[name]
    for seed in range(3):
        z = point(2, seed)
        found = step(SHAKEN, method, z, 0.2, [0.0])
        np.testing.assert_allclose(found, BY_HAND[name](z, 0.2), rtol=1e-14, atol=1e-14)


@pytest.mark.slow
def test_zero_noise_is_four_midpoint_steps_of_srkw2():
    z = point(2)
    found = step(SHAKEN, da.srkw2(), z, 0.2, [0.0])
    np.testing.assert_allclose(found, srkw2_by_hand(z, 0.2), rtol=1e-14, atol=1e-14)


@pytest.mark.slow
def test_zero_noise_is_four_midpoint_steps_of_srkw2_in_one_dimension():
    system = da.systems.pendulum(nu=0.4)
    z = np.array([1.2, 0.4])
    four = z
    for _ in range(4):
        four = step(system, da.midpoint(), four, 0.05, [0.0])
    found = step(system, da.srkw2(), z, 0.2, [0.0])
    np.testing.assert_allclose(found, four, rtol=1e-14, atol=1e-15)


def test_methods_by_hand_differ_from_each_other():
    """The control: the comparison above tells the methods apart."""
    z = point(2)
    results = [np.asarray(by_hand(z, 0.2)) for by_hand in BY_HAND.values()]
    for i, a in enumerate(results):
        for j, b in enumerate(results[:i]):
            same = {list(BY_HAND)[i], list(BY_HAND)[j]} in ({"midpoint", "srkw1"}, {"heun", "rs1"})
            assert (np.max(np.abs(a - b)) < 1e-12) == same


# --- noise in the place of time ----------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    tiered(["midpoint", "stormer_verlet", "dirk", "heun", "r2"], fast=["heun", "r2"]),
)
def test_noise_along_the_drift_only_changes_the_clock(name):
    """With h = βH and f = βF a step is the deterministic one of length dt + β ΔW."""
    method = {**STRUCTURED, **EXPLICIT}[name]
    z = point(2, 4)
    for dW in (0.3, -0.9):
        found = step(SHAKEN, method, z, 0.2, [dW])
        by_hand = BY_HAND[name](z, 0.2 + BETA * dW)
        np.testing.assert_allclose(found, by_hand, rtol=1e-14, atol=1e-14)


# --- zero force: symplectic --------------------------------------------------------------------


def first_noise(q, p):
    return 0.4 * wave(q - p) + 0.1 * jnp.dot(p, p)


def second_noise(q, p):
    return 0.3 * q[0] * p[-1] + 0.1 * q[0] ** 3


@cache
def hamiltonian(dim, noises):
    return da.System(H=coupled, h=[first_noise, second_noise][:noises], dim=dim, name="coupled")


@cache
def separable(dim, additive):
    """SRKw2 has six stages of each kind; separability and additive noise make them cheaper."""
    return da.System(
        H=lambda q, p: jnp.dot(p, p) / 2 + wave(q),
        h=[lambda q, p: -0.4 * q[0] if additive else 0.4 * wave(2 * q)],
        dim=dim,
        name="separable",
    )


def symplectic_defect(system, method, z, dt, dW):
    """max |MᵀΩM − Ω| for the Jacobian M of the one-step map, relative to what is added up."""
    M, (_, converged) = jacobian(system, method)(z, dt, np.asarray(dW))
    assert converged
    o, i = np.zeros((system.dim, system.dim)), np.eye(system.dim)
    omega = np.block([[o, i], [-i, o]])
    size = np.max(np.abs(M.T) @ np.abs(omega) @ np.abs(M))
    return np.max(np.abs(M.T @ omega @ M - omega)) / size


CASES = [("midpoint", 1, 1), ("midpoint", 1, 2), ("midpoint", 3, 1), ("stormer_verlet", 2, 2)]
CASES += [("dirk", 1, 2), ("srkw1", 1, 2), ("general dirk", 1, 2)]
CASES += [("midpoint", 3, 2), ("stormer_verlet", 3, 2), ("dirk", 3, 2), ("srkw1", 3, 2)]
CASES += [("midpoint", 2, 2), ("stormer_verlet", 1, 2), ("stormer_verlet", 3, 1)]
CASES += [("dirk", 2, 1), ("srkw1", 2, 1)]
CASES += [("general dirk", 3, 2), ("srkw2", 1, 1), ("srkw2", 2, 1), ("srkw2", 3, 1)]


def assert_symplectic(system, method):
    for seed in range(3):
        dW = 0.5 * np.random.default_rng(seed).normal(size=system.noises)
        assert symplectic_defect(system, method, point(system.dim, seed), 0.3, dW) < 5e-15


@pytest.mark.parametrize(("name", "dim", "noises"), tiered(CASES, fast=["midpoint-1-1"]))
def test_zero_force_is_symplectic_to_rounding(name, dim, noises):
    assert_symplectic(hamiltonian(dim, noises), STRUCTURED[name])


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "additive"), [(1, False), (3, True), (3, False)])
def test_zero_force_is_symplectic_for_srkw2_with_separable_hamiltonians(dim, additive):
    assert_symplectic(separable(dim, additive), da.srkw2())


@pytest.mark.parametrize("name", ["heun", "r2"])
@pytest.mark.parametrize(("dim", "noises"), [(1, 1), (2, 2)])
def test_explicit_methods_are_not_symplectic(name, dim, noises):
    system = hamiltonian(dim, noises)
    assert symplectic_defect(system, EXPLICIT[name], point(dim), 0.3, [0.5, -0.4][:noises]) > 1e-3


@pytest.mark.parametrize("name", tiered(["midpoint", "stormer_verlet"], fast=["midpoint"]))
def test_friction_is_not_symplectic(name):
    """The control for the methods: the defect is seen where the map really has one."""
    system = da.System(H=coupled, F=lambda q, p: -0.1 * p, h=[first_noise], dim=1)
    assert symplectic_defect(system, STRUCTURED[name], point(1), 0.3, [0.5]) > 1e-3


# --- linear systems: closed form ---------------------------------------------------------------

STIFFNESS = np.array([[2.0, 0.5], [0.5, 1.0]])
MASS = np.array([[1.0, 0.2], [0.2, 0.8]])  # the inverse of the mass matrix
COUPLING = np.array([[0.3, -0.4], [0.1, 0.2]])
GAMMA = np.array([[0.4, 0.1], [-0.2, 0.3]])
NOISE_STIFFNESS = np.array([[0.7, -0.2], [-0.2, 0.4]])
NOISE_MASS = np.array([[0.3, 0.1], [0.1, 0.5]])
NOISE_GAMMA = np.array([[0.2, -0.3], [0.1, 0.1]])

LINEAR = da.System(
    H=lambda q, p: p @ MASS @ p / 2 + q @ STIFFNESS @ q / 2 + q @ COUPLING @ p,
    F=lambda q, p: -GAMMA @ p,
    h=[lambda q, p: p @ NOISE_MASS @ p / 2 + q @ NOISE_STIFFNESS @ q / 2],
    f=[lambda q, p: -NOISE_GAMMA @ p],
    dim=2,
    name="linear",
)
DRIFT = np.block([[COUPLING.T, MASS], [-STIFFNESS, -COUPLING - GAMMA]])
NOISE = np.block([[np.zeros((2, 2)), NOISE_MASS], [-NOISE_STIFFNESS, -NOISE_GAMMA]])


def cayley(A):
    """The midpoint step of dz = A z: (I − A/2)⁻¹ (I + A/2)."""
    one = np.eye(len(A))
    return np.linalg.solve(one - A / 2, one + A / 2)


def weak_map(method, drift, noise, dt, dW):
    """All stages of a weak method at once, from its coefficients, for one noise."""
    s, n = method.stages, len(drift)
    one = np.kron(np.ones((s, 1)), np.eye(n))
    a0, a1 = (np.kron(a, dt * drift) for a in (method.a0, method.a1))
    b0, b1 = (np.kron(b, dW * noise) for b in (method.b0, method.b1))
    stages = np.linalg.solve(
        np.eye(2 * s * n) - np.block([[a0, b0], [a1, b1]]), np.vstack([one] * 2)
    )
    weights = np.hstack([np.kron(method.alpha, dt * drift), np.kron(method.beta, dW * noise)])
    return np.eye(n) + weights @ stages


def stormer_verlet_map(dt, dW):
    """Störmer–Verlet for dq = (Cᵀ q + M p), dp = (−K q − (C + Γ) p), noise added to each block."""
    A = dt * DRIFT + dW * NOISE
    qq, qp, pq, pp = A[:2, :2], A[:2, 2:], A[2:, :2], A[2:, 2:]
    one, zero = np.eye(2), np.zeros((2, 2))
    inverse = np.linalg.inv(one - pp / 2)
    P = np.hstack([inverse @ pq / 2, inverse])
    q = np.hstack([one, zero])
    Q = np.linalg.solve(one - qq / 2, q + qq / 2 @ q + qp @ P)
    return np.vstack([Q, P + pq / 2 @ Q + pp / 2 @ P])


def heun_map(A):
    return np.eye(len(A)) + A + A @ A / 2


CLOSED = {
    "midpoint": lambda dt, dW: cayley(dt * DRIFT + dW * NOISE),
    "stormer_verlet": stormer_verlet_map,
    "dirk": lambda dt, dW: (
        cayley(0.7 * (dt * DRIFT + dW * NOISE)) @ cayley(0.3 * (dt * DRIFT + dW * NOISE))
    ),
    "srkw1": lambda dt, dW: weak_map(da.srkw1(0.25), DRIFT, NOISE, dt, dW),
    "heun": lambda dt, dW: heun_map(dt * DRIFT + dW * NOISE),
    "r2": lambda dt, dW: heun_map(dt * DRIFT + dW * NOISE),
}


@pytest.mark.parametrize("name", tiered(CLOSED, fast=["heun", "r2"]))
def test_linear_system_has_its_closed_form(name):
    method = {**STRUCTURED, **EXPLICIT}[name]
    for seed, dW in enumerate((0.0, 0.6, -1.1)):
        z = point(2, seed)
        expected = CLOSED[name](0.3, dW)
        M, (found, converged) = jacobian(LINEAR, method)(z, 0.3, np.array([dW]))
        assert converged
        np.testing.assert_allclose(found, expected @ z, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(M, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", tiered(["midpoint", "dirk", "srkw2"], fast=["midpoint"]))
def test_damped_kubo_has_its_closed_form(name):
    beta, nu = 0.7, 0.2
    A = np.array([[0.0, 1.0], [-1.0, -nu]])
    system, z = da.systems.damped_kubo(beta, nu), np.array([2.0, -0.3])
    for dt, dW in ((0.5, 0.9), (0.1, -0.4)):
        tau = dt + beta * dW
        expected = {
            "midpoint": cayley(tau * A),
            "dirk": cayley(0.7 * tau * A) @ cayley(0.3 * tau * A),
            "srkw2": weak_map(da.srkw2(), A, beta * A, dt, dW),
        }[name]
        found = step(system, STRUCTURED[name], z, dt, [dW])
        np.testing.assert_allclose(found, expected @ z, rtol=1e-14, atol=1e-14)


def test_closed_forms_differ_from_each_other():
    maps = [closed(0.3, 0.6) for name, closed in CLOSED.items() if name != "r2"]
    for i, a in enumerate(maps):
        assert all(np.max(np.abs(a - b)) > 1e-3 for b in maps[:i])


# --- Störmer–Verlet with linear friction: volume -----------------------------------------------


def frictions(dim):
    """Γ₀ and Γ₁ in one or two degrees of freedom."""
    return GAMMA[:dim, :dim], NOISE_GAMMA[:dim, :dim]


def separable_hamiltonian(q, p):
    mass = MASS[: len(p), : len(p)]
    return p @ mass @ p / 2 + wave(2 * q) + jnp.sum(q**4) / 4


@cache
def with_friction(H, dim):
    """Quasi-symplectic for Störmer–Verlet if H is separable."""
    gamma, noise_gamma = frictions(dim)
    return da.System(
        H=H,
        F=lambda q, p: -gamma @ p,
        h=[lambda q, p: 0.4 * wave(q)],
        f=[lambda q, p: -noise_gamma @ p],
        dim=dim,
        name="with linear friction",
    )


def volumes(H, dim, dt, dW):
    """det of the Jacobian of a Störmer–Verlet step at several points."""
    one = jacobian(with_friction(H, dim), da.stormer_verlet())
    return [np.linalg.det(one(point(dim, seed), dt, np.array([dW]))[0]) for seed in range(6)]


by_dim = pytest.mark.parametrize("dim", tiered([1, 2], fast=["1"]))


@by_dim
@pytest.mark.parametrize(("dt", "dW"), [(0.3, 0.0), (0.3, 0.8), (0.05, -0.5)])
def test_stormer_verlet_shrinks_volume_by_the_corrected_formula(dim, dt, dW):
    """det((I − γ/2)(I + γ/2)⁻¹) with γ = Γ₀ dt + Γ₁ ΔW, at every (q, p)."""
    drift, noise = frictions(dim)
    gamma, one = dt * drift + dW * noise, np.eye(dim)
    corrected = np.linalg.det((one - gamma / 2) @ np.linalg.inv(one + gamma / 2))
    printed = np.linalg.det(one + gamma @ np.linalg.inv(one - gamma / 2))
    found = volumes(separable_hamiltonian, dim, dt, dW)
    np.testing.assert_allclose(found, corrected, rtol=1e-13)
    assert abs(printed - corrected) > 1e-2


@by_dim
def test_volume_depends_on_the_state_without_separability(dim):
    assert np.ptp(volumes(separable_hamiltonian, dim, 0.3, 0.8)) < 1e-13
    assert np.ptp(volumes(coupled, dim, 0.3, 0.8)) > 1e-3


# --- damped Kubo: the exact path ---------------------------------------------------------------

NU, T = 0.1, 2.0
FINEST, LEVELS, PATHS = 2**9, 5, 48


@cache
def brownian():
    """ΔW of many paths on [0, T] in the finest steps, shape (paths, steps, 1)."""
    draw = jax.jit(jax.vmap(lambda k: da.brownian_path(3, k, T / FINEST, FINEST, 1).dW))
    return np.asarray(draw(jnp.arange(PATHS)))


@cache
def end_points(name):
    """A function (dW padded to the finest length, number of steps) → (q, p) at T of all paths."""
    system, method = da.systems.damped_kubo(BETA, NU), {**STRUCTURED, **EXPLICIT}[name]

    def run(dW, steps, dt):
        def advance(k, z):
            q, p, info = da.step(system, method, z[0], z[1], dt, dW[k])
            return q, p, z[2] & info.converged

        start = (jnp.array([2.0]), jnp.array([0.0]), jnp.array(True))
        return jax.lax.fori_loop(0, steps, advance, start)

    return jax.jit(jax.vmap(run, in_axes=(0, None, None)))


def errors(name, level):
    """Root mean square over the paths of the distance to the exact (q, p) at T."""
    steps = FINEST >> level
    coarse = da.coarsen(da.Increments(brownian()), T / FINEST, 2**level).dW
    padded = np.zeros_like(brownian())
    padded[:, :steps] = coarse
    q, p, converged = end_points(name)(padded, steps, T / steps)
    assert np.all(converged)
    exact_q, exact_p = kubo_path(T, brownian().sum(axis=(1, 2)), beta=BETA, nu=NU)
    return np.sqrt(np.mean((q[:, 0] - exact_q) ** 2 + (p[:, 0] - exact_p) ** 2))


# At dt = T/512, twice what is measured. The order is 1: halving dt halves the error.
LARGEST_ERROR = {"midpoint": 2e-3, "dirk": 7e-4, "stormer_verlet": 1.6e-3, "heun": 4e-3}


@pytest.mark.parametrize("name", tiered(LARGEST_ERROR, fast=["heun"]))
def test_damped_kubo_follows_its_exact_path(name):
    found = [errors(name, level) for level in range(LEVELS)]
    assert found[0] < LARGEST_ERROR[name]
    slope = np.polyfit(np.arange(LEVELS), np.log2(found), 1)[0]
    assert 0.9 < slope < 1.15, (slope, found)


def test_another_brownian_path_is_far_from_the_exact_one():
    """The control: with the increments of other paths nothing converges."""
    q, _, _ = end_points("heun")(brownian()[::-1], FINEST, T / FINEST)
    exact_q, _ = kubo_path(T, brownian().sum(axis=(1, 2)), beta=BETA, nu=NU)
    assert np.sqrt(np.mean((q[:, 0] - exact_q) ** 2)) > 0.3
