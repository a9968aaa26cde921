"""Methods of higher order or for some systems: structure, refusals, noise, and orders."""

from math import exp, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert import theory
from dalembert.methods.coefficients import gauss_coefficients
from dalembert.theory.elementary_weights import expand
from dalembert.theory.order_conditions import order_of_expansion
from tiers import tiered

HALVES = [0.5, 0.5]


def pendulum(noise="additive", friction=0.5):
    """A pendulum with a linear friction and one noise, or two that do not commute."""
    h = {
        "additive": [lambda q, p: -0.6 * q[0]],
        "one": [lambda q, p: 0.4 * jnp.sin(q[0]) + 0.15 * p[0] ** 2],
        "two": [lambda q, p: 0.5 * q[0], lambda q, p: 0.25 * p[0] ** 2 + 0.3 * p[0]],
    }[noise]
    return da.System(
        H=lambda q, p: p[0] ** 2 / 2 + (1 - jnp.cos(q[0])),
        F=(lambda q, p: -friction * p) if friction else None,
        h=h,
        dim=1,
        name=f"pendulum, {noise}",
    )


def increments(method, noises, seed=3, dt=0.1):
    rng = np.random.default_rng(seed)
    dW = sqrt(dt) * rng.standard_normal(noises)
    dZ = dt / 2 * (dW + sqrt(dt / 3) * rng.standard_normal(noises))
    area = dt * np.triu(rng.standard_normal((noises, noises)), 1)
    every = da.Increments(dW, dZ, area=area - area.T, coin=np.array(-1.0))
    wanted = method.needs(noises)
    return da.Increments(**{name: getattr(every, name) for name in wanted})


NOISE_OF = {
    "additive_midpoint": "additive",
    "additive_dirk": "additive",
    "additive_gauss": "additive",
    "bracket_gauss": "one",
    "bracket_midpoint": "two",
    "ninomiya_victoir": "two",
    "baoab": "additive",
    "aboba": "additive",
    "obabo": "additive",
    "quasi_symplectic": "additive",
}


EVERY = tiered(NOISE_OF, fast=["baoab"])


def system_for(name, friction=0.5):
    return pendulum(NOISE_OF[name], friction)


# Structure


def jacobian(system, method, dt=0.1):
    with jax.enable_x64(True):
        given = increments(method, system.noises, dt=dt)

        def image(z):
            q, p, _ = da.step(system, method, z[:1], z[1:], dt, given)
            return jnp.concatenate([q, p])

        return np.asarray(jax.jacfwd(image)(jnp.array([0.7, 0.3])))


@pytest.mark.parametrize("name", tiered(NOISE_OF, fast=["additive_midpoint", "baoab"]))
def test_steps_are_symplectic_without_forces(name):
    method = da.METHODS[name]()
    assert da.certify(method).keeps_structure
    assert abs(np.linalg.det(jacobian(system_for(name, friction=0), method)) - 1) < 1e-13
    assert abs(np.linalg.det(jacobian(system_for(name), method)) - 1) > 1e-3


@pytest.mark.parametrize(
    "method",
    [
        da.AdditiveTableau([[0.0]], [1], [0], [1], name="Euler"),
        da.BracketTableau([[0.0]], [1], "noise", name="Euler along brackets"),
        pytest.param(
            da.NinomiyaVictoirTableau([[0, 0], [1, 0]], HALVES, name="with Heun"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda method: method.name,
)
def test_a_tableau_that_breaks_the_condition_is_not_symplectic(method):
    noise = {da.AdditiveTableau: "additive", da.BracketTableau: "two"}.get(type(method), "one")
    system = pendulum(noise, friction=0)
    assert not da.certify(method).keeps_structure
    assert not da.certify(method).lagrange_dalembert
    assert abs(np.linalg.det(jacobian(system, method)) - 1) > 1e-5


@pytest.mark.parametrize(
    "name",
    tiered(["baoab", "aboba", "obabo", "quasi_symplectic"], fast=["baoab", "quasi_symplectic"]),
)
def test_splittings_contract_volumes_at_the_exact_rate(name):
    found = np.linalg.det(jacobian(system_for(name), da.METHODS[name]()))
    assert abs(found - exp(-0.5 * 0.1)) < 1e-14


@pytest.mark.slow
@pytest.mark.parametrize("name", NOISE_OF)
def test_shortcuts_change_nothing(name):
    system, method = system_for(name), da.METHODS[name]()
    given = increments(method, system.noises)
    fast = da.step(system, method, [0.7], [0.3], 0.1, given)
    slow = da.step(system, method, [0.7], [0.3], 0.1, given, shortcuts=False)
    np.testing.assert_allclose(np.ravel(fast[:2]), np.ravel(slow[:2]), atol=1e-14)
    assert fast[2].converged and slow[2].converged


# Certificates and refusals


def test_orders_in_certificates():
    orders = {name: da.certify(make()).order for name, make in da.METHODS.items()}
    assert orders["additive_midpoint"]["additive"] == 1
    assert orders["additive_dirk"]["additive"] == orders["additive_gauss"]["additive"] == 1.5
    assert orders["bracket_gauss"]["one"] == 1.5 and orders["bracket_gauss"]["general"] is None
    assert orders["bracket_midpoint"]["general"] == 1
    weak = {name: da.certify(make()).weak_order for name, make in da.METHODS.items()}
    assert weak["ninomiya_victoir"] == dict.fromkeys(("one", "additive", "commuting", "general"), 2)
    assert weak["additive_gauss"]["additive"] == 2 and weak["additive_midpoint"]["additive"] == 1
    assert weak["baoab"]["additive"] == weak["quasi_symplectic"]["additive"] == 2
    assert da.certify(da.LangevinSplitting("BAO")).weak_order["additive"] == 1


def test_a_coin_is_what_makes_the_weak_order_two():
    expansion = expand(da.ninomiya_victoir(), 2)
    assert order_of_expansion(expansion, "general").order == 2
    # The coin is the last variable, and changes fastest. With the coin always on one side, only
    # one order of the noises is left.
    is_heads = np.arange(len(expansion.probabilities)) % 2 == 1
    for side in (is_heads, ~is_heads):
        always = expansion.probabilities * 2 * side
        one_sided = type(expansion)(expansion.channels, always, expansion.odd_vanish)
        assert order_of_expansion(one_sided, "general").order < 2


def test_orders_of_bracket_tableaus():
    midpoint, euler = (
        da.BracketTableau([[0.5]], [1], "drift"),
        da.BracketTableau([[0]], [1], "drift"),
    )
    assert da.certify(midpoint).order == dict.fromkeys(da.certify(midpoint).order) | {"one": 1.0}
    assert da.certify(euler).order["one"] is None
    assert da.certify(midpoint).weak_order["one"] == 1
    assert da.certify(da.bracket_gauss()).weak_order["one"] == 2


def test_orders_without_noise():
    still = da.System(H=lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0]), dim=1)
    methods = (
        da.baoab(), da.LangevinSplitting("BAO"), da.bracket_gauss(), da.bracket_midpoint(),
        da.BracketTableau([[0.0]], [1], "noise"),
    )  # fmt: skip
    found = da.diagnose(still, methods=methods).methods
    assert [verdict.weak for verdict in found] == [2, 1, 4, 2, 1]


@pytest.mark.parametrize(
    ("method", "system", "message"),
    [
        (da.additive_dirk(), da.systems.damped_kubo(), "made for systems with additive noise"),
        (da.bracket_gauss(), da.systems.two_noise(), "takes one noise, the system has 2"),
        (da.baoab(), da.systems.damped_kubo(), "noise 1 moves positions"),
        (da.baoab(), da.systems.van_der_pol(), "not a linear friction"),
        (da.obabo(), da.systems.lorentz(), "obabo is made for Langevin equations"),
    ],
    ids=lambda case: getattr(case, "name", None),
)
def test_systems_that_a_method_cannot_take(method, system, message):
    q = np.ones(system.dim)
    with pytest.raises(ValueError, match=message):
        da.simulate(system, method, (q, q), dt=0.1, t_end=1.0, paths=2)


def two_particles(friction, noise):
    """Two free particles; noise[r] are the amplitudes of noise r."""
    return da.System(
        H=lambda q, p: p @ p / 2,
        F=lambda q, p: -jnp.asarray(friction, q.dtype) @ p,
        h=[lambda q, p, a=a: -jnp.asarray(a, q.dtype) @ q for a in noise],
        dim=2,
    )


@pytest.mark.parametrize(
    ("friction", "noise", "message"),
    [
        ([[1.0, 0.5], [0.0, 1.0]], [[1.0, 0.0]], "depends on another one"),
        ([[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0]], "noise in common, and different frictions"),
        ([[-1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]], "a friction is negative"),
    ],
)
def test_frictions_that_splittings_cannot_take(friction, noise, message):
    with pytest.raises(ValueError, match=message):
        da.step(two_particles(friction, noise), da.baoab(), [0.0, 0.0], [1.0, 1.0], 0.1, [0.1])


def test_traced_frictions_that_mix_momenta_are_refused_too():
    def system(friction):
        return da.System(
            H=lambda q, p, c: p @ p / 2,
            F=lambda q, p, c: -c["friction"] @ p,
            h=[lambda q, p, c: -q[0]],
            dim=2,
            params={"friction": friction},
        )

    def end(friction):
        return da.step(system(friction), da.baoab(), [0.0, 0.0], [1.0, 1.0], 0.1, [0.1])[1]

    with pytest.raises(ValueError, match="depends on another one"):
        jax.jit(end)(jnp.eye(2))


def test_a_traced_friction_is_the_same_friction():
    def end(friction):
        system = da.systems.langevin().with_params(gamma=friction)
        return da.step(system, da.baoab(), [0.5], [1.0], 0.1, [0.1])[1]

    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jit(end)(0.7), end(0.7), rtol=1e-14)


def test_convergence_of_a_splitting_is_one_of_two():
    with pytest.raises(ValueError, match="convergence must be one of"):
        da.LangevinSplitting("BAOAB", convergence="weka")


@pytest.mark.parametrize("word", ["", "AB", "BAOABX", "BAOAC", "OBOBAO", "DAD", "CACAD"])
def test_words_that_make_no_method(word):
    with pytest.raises(ValueError, match="must be made of A, B and"):
        da.LangevinSplitting(word)


def test_a_bracket_tableau_says_which_brackets_there_are():
    with pytest.raises(ValueError, match='"drift" or "noise"'):
        da.BracketTableau([[0.5]], [1], "both")


# Noise


def test_levy_areas_have_their_law():
    h, noises, count = 0.3, 3, 20_000
    with jax.enable_x64(True):
        noise = da.Gaussian(areas=3)
        draw = jax.jit(
            jax.vmap(lambda path: noise.draw_together(5, path, 0, h, noises, np.float64))
        )
        group = draw(jnp.arange(count // 4, dtype=jnp.uint32))
    dW, area = (np.concatenate([getattr(one, name) for one in group]) for name in ("dW", "area"))
    np.testing.assert_allclose(area, -area.swapaxes(1, 2), atol=1e-15)
    given = h**2 / 12 * (1 + (dW[:, 0] ** 2 + dW[:, 1] ** 2) / h)
    assert abs(np.mean(area[:, 0, 1] ** 2 - given)) < 4 * np.std(area[:, 0, 1] ** 2) / sqrt(count)
    assert abs(np.var(area[:, 0, 1]) / (h**2 / 4) - 1) < 0.05
    # E[A_01 A_02 | ΔW] = h/12 ΔW_1 ΔW_2.
    product = area[:, 0, 1] * area[:, 0, 2] - h / 12 * dW[:, 1] * dW[:, 2]
    assert abs(np.mean(product)) < 4 * np.std(product) / sqrt(count)
    # The fourth moment of an area is 5 h⁴/16; a normal law would have 3 h⁴/16.
    assert abs(np.mean(area[:, 0, 1] ** 4) / (5 * h**4 / 16) - 1) < 0.15


@pytest.mark.slow
def test_areas_of_a_fine_path():
    fine = da.brownian_path(1, 0, 1e-3, 64, 2)
    coarse = da.coarsen(fine, 1e-3, 32, areas=True)
    W = np.cumsum(fine.dW[:32], axis=0) - fine.dW[:32]
    area = np.sum(W[:, 0] * fine.dW[:32, 1] - W[:, 1] * fine.dW[:32, 0]) / 2
    np.testing.assert_allclose(coarse.area[0, 0, 1], area, rtol=1e-12)
    # Two halves make a whole: areas of the parts and the triangle between them.
    whole = da.coarsen(fine, 1e-3, 64, areas=True)
    again = da.coarsen(coarse, 32e-3, 2, areas=True)
    np.testing.assert_allclose(again.area, whole.area, rtol=1e-12)
    assert da.coarsen(fine, 1e-3, 32).area is None


def test_coins_are_fair_and_independent_of_the_increments():
    with jax.enable_x64(True):
        for noise in (da.Gaussian(), da.ThreePoint()):
            draw = jax.jit(
                jax.vmap(lambda path, n=noise: n.draw_together(2, path, 0, 0.1, 2, np.float64))
            )
            group = draw(jnp.arange(4000, dtype=jnp.uint32))
            coin = np.concatenate([one.coin for one in group])
            dW = np.concatenate([one.dW for one in group])
            assert set(np.unique(coin)) == {-1.0, 1.0}
            limit = 4 / sqrt(len(coin))
            assert abs(coin.mean()) < limit
            assert np.all(np.abs(np.mean(coin[:, None] * np.sign(dW), axis=0)) < limit)


def test_what_areas_cannot_be():
    with pytest.raises(ValueError, match="truncated increments have no areas"):
        da.Gaussian(truncation=1, areas=4)
    with pytest.raises(ValueError, match="areas=-1"):
        da.Gaussian(areas=-1)
    with pytest.raises(ValueError, match=r"needs the increments \['area'\]"):
        da.simulate(
            pendulum("two"), da.bracket_midpoint(), ([0.0], [1.0]),
            dt=0.1, t_end=1.0, paths=2, noise=da.Gaussian(),
        )  # fmt: skip


# Expectations and runs


def oscillator(friction, temperature=0.7):
    def noise(q, p, c):
        return -jnp.sqrt(2 * c["friction"] * c["temperature"]) * q[0]

    return da.System(
        H=lambda q, p, c: (p[0] ** 2 + q[0] ** 2) / 2,
        F=lambda q, p, c: -c["friction"] * p,
        h=[noise],
        dim=1,
        params={"friction": friction, "temperature": temperature},
    )


@pytest.mark.parametrize(
    ("name", "position", "momentum"),
    [
        ("baoab", lambda x: 1.0, lambda x: 1 - x),
        pytest.param("aboba", lambda x: 1.0, lambda x: 1 / (1 - x), marks=pytest.mark.slow),
        pytest.param("obabo", lambda x: 1 / (1 - x), lambda x: 1.0, marks=pytest.mark.slow),
    ],
)
def test_stationary_moments_of_splittings(name, position, momentum):
    for dt in (0.25, 0.5, 1.0):
        found = theory.stationary_covariance(oscillator(1.3), da.METHODS[name](), dt=dt)
        exact = 0.7 * np.diag([position(dt**2 / 4), momentum(dt**2 / 4)])
        np.testing.assert_allclose(found, exact, atol=1e-12)


def test_the_quasi_symplectic_method_is_of_second_order_in_its_stationary_law():
    errors = [
        np.abs(
            theory.stationary_covariance(oscillator(1.0), da.quasi_symplectic(), dt=dt)
            - 0.7 * np.eye(2)
        ).max()
        for dt in (0.2, 0.1)
    ]
    assert 3.8 < errors[0] / errors[1] < 4.2


def test_without_friction_a_splitting_is_verlet():
    system = oscillator(1.0).with_params(friction=0.0)
    given = da.Increments(np.zeros(1), np.zeros(1))
    q, p, half = 0.7, 0.3, 0.05
    kicked = p - half * q
    kick_first = q + 0.1 * kicked, kicked - half * (q + 0.1 * kicked)
    drifted = q + half * p
    drift_first = drifted + half * (p - 0.1 * drifted), p - 0.1 * drifted
    expected = {
        "baoab": kick_first,
        "obabo": kick_first,
        "aboba": drift_first,
        "quasi_symplectic": drift_first,
    }
    for name, end in expected.items():
        found = da.step(system, da.METHODS[name](), [q], [p], 0.1, given)[:2]
        np.testing.assert_allclose(np.ravel(found), end, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_runs_take_the_steps_of_da_step(name):
    """Fast code and single steps agree, whatever the noise."""
    system, method = system_for(name), da.METHODS[name]()
    dt, steps = 0.05, 11
    run = da.simulate(
        system, method, ([0.7], [0.3]), dt=dt, t_end=steps * dt, paths=5, seed=4, keep="final"
    )
    assert run.failed == 0
    drawn = theory.paths.draw_increments(system, method, dt, steps, seed=4, path=3)
    walk = theory.paths.walk_path(system, method, ([0.7], [0.3]), dt, drawn)
    np.testing.assert_allclose(run.q[3], walk.q[-1], atol=1e-12)
    np.testing.assert_allclose(run.p[3], walk.p[-1], atol=1e-12)


@pytest.mark.slow
def test_gaussian_noise_may_drive_ninomiya_and_victoir():
    system = pendulum("two")
    settings = {"dt": 0.1, "t_end": 1.0, "paths": 20_000, "observe": {"q": lambda q, p: q[0]}}
    start = ([0.7], [0.3])
    runs = [
        da.simulate(system, da.ninomiya_victoir(), start, seed=seed, noise=noise, **settings)
        for seed, noise in enumerate((da.Gaussian(), da.ThreePoint()))
    ]
    gap = runs[0].mean["q"][-1] - runs[1].mean["q"][-1]
    assert abs(gap) < 4 * np.hypot(*(run.stderr["q"][-1] for run in runs))


# Orders


def slope(system, method, reference, refine=16, steps=(8, 16, 32, 64), paths=400):
    return da.strong_order(
        system, method, ([1.0], [0.5]),
        t_end=1.0, paths=paths, steps=steps, reference=reference, refine=refine,
    )  # fmt: skip


def quartic():
    """A drift that is curved along its additive noise."""
    return da.System(
        H=lambda q, p: p[0] ** 2 / 2 + q[0] ** 4 / 4 + 0.3 * jnp.sin(2 * p[0]),
        F=lambda q, p: -0.3 * p**3,
        h=[lambda q, p: -0.9 * q[0]],
        dim=1,
        name="curved along the noise",
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["additive_midpoint", "additive_dirk", "additive_gauss"])
def test_order_two_where_the_drift_is_linear_along_the_noise(name):
    strong = da.systems.van_der_pol(nu=1.0, sigma=0.8)
    for system in (da.systems.van_der_pol(), strong, pendulum()):
        reference = da.additive_gauss() if name != "additive_gauss" else da.additive_dirk()
        found = slope(system, da.METHODS[name](), reference, refine=32)
        assert found.interval[0] > 1.8 and found.interval[1] < 2.2, found


@pytest.mark.slow
def test_orders_where_the_drift_is_curved_along_the_noise():
    system = quartic()
    found = slope(system, da.additive_dirk(), da.additive_gauss(), refine=64)
    assert found.interval[0] > 1.35 and found.interval[1] < 1.9, found
    found = slope(system, da.additive_gauss(), da.additive_dirk(), refine=64)
    assert found.interval[0] > 1.35 and found.interval[1] < 1.9, found
    # Its one stage cannot have the right mean square.
    found = slope(system, da.additive_midpoint(), da.additive_gauss(), refine=32)
    assert found.interval[1] < 1.4, found


@pytest.mark.slow
def test_a_hundred_times_the_accuracy_of_midpoint_on_van_der_pol():
    system, reference = da.systems.van_der_pol(), da.additive_dirk()
    errors = [
        slope(system, method, reference, refine=64, steps=(16, 32, 64)).errors[-1]
        for method in (da.midpoint(), da.additive_gauss())
    ]
    assert errors[0] > 100 * errors[1]


@pytest.mark.slow
def test_brackets_raise_mean_square_orders():
    found = slope(pendulum("one"), da.bracket_gauss(), da.bracket_gauss(), refine=64)
    assert found.interval[0] > 1.3 and found.interval[1] < 1.9, found
    two = pendulum("two")
    found = slope(two, da.bracket_midpoint(), da.bracket_midpoint(), refine=64)
    assert found.interval[0] > 0.75 and found.interval[1] < 1.25, found
    found = slope(two, da.midpoint(), da.bracket_midpoint(), refine=32)
    assert found.interval[1] < 0.8, found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no order")  # the reference, of order one, is too near for that
def test_bracket_gauss_converges_to_the_limit_of_midpoint():
    found = slope(
        da.systems.damped_kubo(), da.bracket_gauss(), da.midpoint(), refine=1024, steps=(4, 8, 16)
    )
    coarse, half, quarter = found.errors
    assert coarse < 1e-3 and half < coarse / 2**1.5 and quarter < half / 2**1.5, found


@pytest.mark.slow
def test_ninomiya_victoir_is_of_weak_order_two_where_others_are_not():
    system = pendulum("two")
    observe = {"energy": lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0])}
    found = {
        method.name: da.weak_order(
            system, method, ([1.0], [0.5]),
            t_end=0.2, steps=(1, 2, 3, 4), observe=observe,
        )["energy"]
        for method in (da.ninomiya_victoir(), da.srkw1())
    }  # fmt: skip
    assert 1.8 < found["ninomiya_victoir"].order < 2.2, found
    assert found["srkw1(0.5)"].order < 1.4, found


def nine_outcomes(noises, dt):
    """Three-point variables for ΔW, and of their own for what ΔZ has beside it."""
    one, probabilities = da.enumerate_three_point(1, 1.0)
    pairs = np.meshgrid(one.dW[:, 0], one.dW[:, 0], indexing="ij")
    chi, eta = (x.reshape(-1, 1) for x in pairs)
    dZ = dt**1.5 / 2 * (chi + eta / sqrt(3))
    return da.Increments(sqrt(dt) * chi, dZ), np.outer(probabilities, probabilities).ravel()


def weak_slope_on_a_damped_pendulum(method):
    """Of E[q²], without sampling."""
    return da.weak_order(
        pendulum(friction=0.8), method, ([0.9], [0.4]),
        t_end=0.4, steps=(1, 2, 3, 4, 5, 6), observe=lambda q, p: q[0] ** 2,
        outcomes=nine_outcomes if "dZ" in method.needs(1) else da.enumerate_three_point,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["baoab", "aboba", "obabo", "quasi_symplectic"])
def test_symmetric_splittings_are_of_weak_order_two(name):
    low, high = weak_slope_on_a_damped_pendulum(da.METHODS[name]()).interval
    assert 1.85 < low <= high < 2.15


@pytest.mark.slow
def test_a_splitting_that_is_not_symmetric_is_of_weak_order_one():
    low, high = weak_slope_on_a_damped_pendulum(da.LangevinSplitting("ABO")).interval
    assert 0.8 < low <= high < 1.2


def test_gauss_coefficients_are_those_of_order_four():
    a = np.array(gauss_coefficients(), float)
    c = a.sum(axis=1)
    np.testing.assert_allclose(HALVES @ c**3, 0.25, atol=1e-15)
    np.testing.assert_allclose(HALVES @ (a @ a @ c), 1 / 24, atol=1e-15)
