"""Systems that are driven in time."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.stepping import clocks


def non_separable() -> da.System:
    """Energy, friction and noise all depend on time, and H is not T(p) + U(q)."""

    def H(q, p, t):
        kinetic = (1 + 0.3 * jnp.sin(q[0]) ** 2) * p[0] ** 2 / 2
        return kinetic + (1 + 0.5 * jnp.cos(t)) * (1 - jnp.cos(q[0])) - 0.3 * q[0] * jnp.cos(2 * t)

    def F(q, p, t):
        return -0.2 * (1 + 0.1 * jnp.sin(t)) * p

    def h(q, p, t):
        return -0.4 * q[0] * (1 + 0.2 * jnp.cos(3 * t)) + 0.1 * p[0] * q[0] * jnp.sin(t)

    return da.System(H=H, F=F, h=[h], dim=1, time=True, name="driven")


OSCILLATOR = {"gamma": 0.4, "A": 0.7, "w": 1.7, "sigma": 0.3}


@cache
def oscillator() -> da.System:
    """A damped oscillator under a periodic force and additive noise, with parameters."""

    def H(q, p, t, c):
        return p[0] ** 2 / 2 + q[0] ** 2 / 2 - c["A"] * jnp.cos(c["w"] * t) * q[0]

    return da.System(
        H=H,
        F=lambda q, p, t, c: -c["gamma"] * p,
        h=[lambda q, p, t, c: -c["sigma"] * q[0]],
        dim=1,
        params=OSCILLATOR,
        time=True,
        name="driven oscillator",
    )


def exact_mean(t, q0, p0):
    """The mean of the damped oscillator: a solution in the drive's rhythm, and one that decays."""
    g, A, w = (OSCILLATOR[name] for name in ("gamma", "A", "w"))
    amplitude = A / (1 - w**2 + 1j * g * w)
    root = np.array([-g / 2 + 1j * np.sqrt(1 - g**2 / 4), -g / 2 - 1j * np.sqrt(1 - g**2 / 4)])
    rest = np.array([q0 - amplitude.real, p0 - (1j * w * amplitude).real])
    weights = np.linalg.solve(np.array([np.ones(2), root]), rest)
    q = (amplitude * np.exp(1j * w * t)).real + (weights @ np.exp(root * t)).real
    p = (1j * w * amplitude * np.exp(1j * w * t)).real + ((weights * root) @ np.exp(root * t)).real
    return np.array([q, p])


@pytest.mark.parametrize(
    "name",
    [
        "midpoint",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in da.METHODS
            if name != "midpoint" and not da.METHODS[name]().requires
        ),
    ],
)
def test_a_step_is_that_of_the_extended_system(name):
    """Time as one more position is another way to find the times of the stages."""
    system, method = non_separable(), da.METHODS[name]()
    more = {"dZ": [0.011], "area": [[0.0]], "mixed": [[0.02]], "coin": 1.0}
    needs = method.needs(1) - {"dW"}
    increments = da.Increments([0.21], **{key: np.array(more[key]) for key in needs})
    q, p, info = da.step(system, method, [0.7], [0.4], 0.1, increments, t=1.3)
    wanted = da.step(system.extended(), method, [0.7, 1.3], [0.4, 0.0], 0.1, increments)
    assert info.converged
    # Four stages with what their equations leave in both, beside rounding.
    atol = 1e-15 + 4 * float(info.residual + wanted[2].residual)
    np.testing.assert_allclose([q[0], p[0]], [wanted[0][0], wanted[1][0]], rtol=0, atol=atol)
    assert wanted[2].converged and atol < 1e-14
    without = da.step(system, method, [0.7], [0.4], 0.1, increments, t=0.0)
    assert abs(without[1] - p) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n in da.METHODS if da.METHODS[n]().requires - {"constraints"}]
)
def test_a_step_of_a_special_method_is_that_of_the_extended_system(name):
    """Methods for additive noise and Langevin equations."""
    system, method = oscillator(), da.METHODS[name]()
    if "constraints" in method.requires:
        pytest.skip("tested with constraints")
    more = {"dZ": np.array([0.011]), "coin": np.array(1.0)}
    increments = da.Increments(
        np.array([0.21]), **{key: more[key] for key in method.needs_for(system) - {"dW"}}
    )
    q, p, _ = da.step(system, method, [0.7], [0.4], 0.1, increments, t=1.3)
    same = da.step(system.extended(), method, [0.7, 1.3], [0.4, 0.0], 0.1, increments)
    np.testing.assert_allclose([q[0], p[0]], [same[0][0], same[1][0]], rtol=0, atol=1e-15)


@pytest.mark.parametrize("shortcuts", [True, False])
def test_a_force_of_time_alone_is_taken_at_its_stage(shortcuts):
    """It depends on no position that could keep the stages apart."""
    system = da.System(H=lambda q, p, t: p[0] ** 2 / 2, F=lambda q, p, t: jnp.cos(t)[None],
                       dim=1, time=True)  # fmt: skip
    q, p, _ = da.step(system, da.midpoint(), [0.0], [0.0], 0.2, [], t=1.0, shortcuts=shortcuts)
    np.testing.assert_allclose([q[0], p[0]], [0.02 * np.cos(1.1), 0.2 * np.cos(1.1)], rtol=1e-14)


def errors_of_midpoint() -> np.ndarray:
    """Errors of paths without noise after halving the step twice."""

    def end(dt):
        options = dict(t_end=2.0, noise=da.Zero(), keep="final", save_every=10**6, progress=False)
        run = da.simulate(non_separable(), da.midpoint(), ([0.7], [0.4]), dt=dt, paths=1, **options)
        return np.append(run.q, run.p)

    exact = end(0.1 / 64)
    return np.array([np.abs(end(dt) - exact).max() for dt in (0.1, 0.05, 0.025)])


@pytest.mark.slow
def test_order_two_and_a_wrong_stage_time_as_control(monkeypatch):
    ratios = errors_of_midpoint()
    ratios = ratios[:-1] / ratios[1:]
    assert np.all((ratios > 3.8) & (ratios < 4.2)), ratios
    monkeypatch.setattr(clocks, "row_time", lambda method, row: 0.0)
    wrong = errors_of_midpoint()
    assert np.all(wrong[:-1] / wrong[1:] < 2.6), wrong


@pytest.mark.slow
@pytest.mark.parametrize("method, keeps", [(da.midpoint(), True), (da.heun(), False)])
def test_symplectic_at_every_time(method, keeps):
    system = non_separable()
    free = da.System(H=system.H, h=system.h, dim=1, time=True)
    M = da.theory.jacobian(free, method, [0.7], [0.4], 0.2, [0.3], t=0.9)
    # One degree of freedom: symplectic means that areas stay.
    defect = abs(np.linalg.det(M) - 1)
    assert defect < 1e-13 if keeps else defect > 1e-4
    if keeps:
        found = da.theory.tangent_pairs(free, method, [0.7], [0.4], 0.2, [0.3], t=0.9)
        assert np.max(found.symplectic_defect) < 1e-13


@pytest.mark.slow
def test_runs_know_the_time_and_do_not_show_it(tmp_path):
    system, method, start = oscillator(), da.midpoint(), ([1.0], [0.0])
    observe = {"t": lambda q, p, t, c: t, "energy": system.H}
    options = dict(dt=0.1, t_end=2.0, save_every=5, keep="all", observe=observe, progress=False)
    run = da.simulate(system, method, start, paths=5, **options)
    assert run.q.shape == run.p.shape == (5, 5, 1)
    np.testing.assert_array_equal(run.mean["t"], run.t)
    by_xla = da.simulate(system, method, start, paths=5, engine="XLA", **options)
    np.testing.assert_allclose(by_xla.q, run.q, rtol=0, atol=1e-12)
    saved = {"checkpoint": tmp_path / "driven.ckpt"}
    np.testing.assert_array_equal(
        da.simulate(system, method, start, paths=5, **options, **saved).q, run.q
    )
    other = da.System(H=lambda q, p, t, c: system.H(q, p, 2 * t, c), dim=1, h=system.h,
                      F=system.F, params=OSCILLATOR, time=True, name=system.name)  # fmt: skip
    with pytest.raises(ValueError, match=r"system\.functions\.H"):
        da.simulate(other, method, start, paths=5, **options, **saved)

    def traced(A):
        return da.simulate(system.with_params(A=A), method, start, paths=5, **options).q

    np.testing.assert_allclose(jax.jit(traced)(0.7), run.q, rtol=0, atol=1e-12)
    alone = da.simulate(system, method, start, paths=1, noise=da.Zero(), **options)
    q, p = start
    for k in range(20):
        q, p, _ = da.step(system, method, q, p, 0.1, [0.0], t=0.1 * k)
    np.testing.assert_allclose([q, p], [alone.q[-1, 0], alone.p[-1, 0]], rtol=0, atol=1e-14)


@pytest.mark.slow
def test_moments_of_a_driven_oscillator():
    """The means are those of a path without noise, and the spread does not see the drive."""
    system, start = oscillator(), ([1.0], [0.0])

    def moments(dt, steps):
        return da.exact_moments(system, da.midpoint(), start, dt=dt, steps=steps)

    coarse, fine = moments(0.1, [20, 40]), moments(0.05, [40, 80])
    exact = np.array([exact_mean(t, 1.0, 0.0) for t in (2.0, 4.0)])
    errors = [np.abs(m.mean - exact).max() for m in (coarse, fine)]
    assert errors[0] < 2e-3
    assert 3.8 < errors[0] / errors[1] < 4.2, errors
    still = da.exact_moments(
        system.with_params(A=0.0), da.midpoint(), start, dt=0.1, steps=[20, 40]
    )
    np.testing.assert_allclose(coarse.covariance, still.covariance, rtol=1e-13)
    q, p = start
    for k in range(40):
        q, p, _ = da.step(system, da.midpoint(), q, p, 0.1, [0.0], t=0.1 * k)
    np.testing.assert_allclose(coarse.mean[1], [q[0], p[0]], rtol=0, atol=1e-13)
    drive = OSCILLATOR["A"] * np.cos(OSCILLATOR["w"] * 4.0)
    energy = np.trace(coarse.second[1]) / 2 - drive * coarse.mean[1, 0]
    np.testing.assert_allclose(coarse.energy[1], energy, rtol=1e-14)
    with pytest.raises(ValueError, match="another factor at every step"):
        assert coarse.stable


def test_fields_at_a_time():
    system, at = oscillator(), ([1.0], [0.5])
    drive = OSCILLATOR["A"] * np.cos(OSCILLATOR["w"] * 2.0)
    np.testing.assert_allclose(system.drift(*at, 2.0)[1], [-1 - 0.4 * 0.5 + drive])
    np.testing.assert_allclose(system.at(2.0).drift(*at)[1], [-1 - 0.4 * 0.5 + drive])
    np.testing.assert_allclose(system.diffusion(*at, t=2)[1], [[0.3]])
    np.testing.assert_allclose(system.extended().drift([1.0, 2.0], [0.5, 0.0])[0], [0.5, 1.0])
    # [V0, V1] = −∂V1/∂t for a noise that depends on time alone.
    fading = da.System(H=lambda q, p, t: 0.0 * p[0] * t, h=[lambda q, p, t: -q[0] * jnp.exp(-t)],
                       dim=1, time=True)  # fmt: skip
    bracket = fading.term(("bracket_p", (0, 1)))
    found = bracket(jnp.ones(1), jnp.ones(1), fading.told(0.5, None))
    np.testing.assert_allclose(found, [-np.exp(-0.5)])


@pytest.mark.parametrize(
    "method",
    [da.baoab(), pytest.param(da.midpoint(), marks=pytest.mark.slow)],
    ids=lambda method: method.name,
)
def test_many_degrees_of_freedom(method):
    """On arrays, with a shape; what the end of a step has evaluated is not evaluated again."""

    def H(q, p, t):
        stretch = jnp.diff(q, axis=0)
        rest = jnp.sum(q**4) / 4 + jnp.sum(stretch**2) / 2 - jnp.sum(q) * jnp.cos(3 * t)
        return jnp.sum(p**2) / 2 + rest

    shape = (4, 3)
    system = da.System(H=H, F=lambda q, p, t: -0.3 * p, f=lambda q, p, t, w: 0.4 * w,
                       noises=shape, dim=shape, time=True)  # fmt: skip
    q, p = np.random.default_rng(0).standard_normal((2, *shape))
    run = da.simulate(system, method, (q, p), dt=0.1, t_end=0.5, paths=2, noise=da.Zero(),
                      keep="final", progress=False, observe={"t": lambda q, p, t: t})  # fmt: skip
    assert run.mean["t"][-1] == 0.5
    for k in range(5):
        q, p, _ = da.step(system, method, q, p, 0.1, np.zeros(shape), t=0.1 * k)
    np.testing.assert_allclose(run.q[1], q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(run.p[1], p, rtol=0, atol=1e-13)


def test_all_noises_in_one_function():
    def f(q, p, t, w):
        return w * jnp.cos(t)

    def H(q, p, t):
        return jnp.sum(p**2 + q**2) / 2

    system = da.System(H=H, f=f, dim=2, noises=2, time=True)
    listed = da.System(
        H=H,
        f=[lambda q, p, t: jnp.array([1.0, 0.0]) * jnp.cos(t),
           lambda q, p, t: jnp.array([0.0, 1.0]) * jnp.cos(t)],
        dim=2,
        time=True,
    )  # fmt: skip
    z = ([0.1, 0.2], [0.3, 0.4])
    np.testing.assert_allclose(system.diffusion(*z, 1.0)[1], np.cos(1.0) * np.eye(2))
    np.testing.assert_allclose(listed.diffusion(*z, 1.0)[1], np.cos(1.0) * np.eye(2))


def test_what_cannot_be_is_said():
    def H(q, p):
        return p[0] ** 2 / 2 + q[0] ** 2 / 2

    with pytest.raises(TypeError, match=r"H failed when called as H\(q, p, t\)"):
        da.System(H=H, dim=1, time=True)
    with pytest.raises(ValueError, match="none of the functions of 'still' depends on t"):
        da.System(H=lambda q, p, t: H(q, p), dim=1, time=True, name="still")
    apart = {"H": lambda q, p, t: H(q, p) + jnp.cos(t), "dim": 1, "time": True}
    joint = {"h": lambda q, p, t, w: (jnp.sin(t) - q[0]) * w[0], "noises": 1}
    flow = da.Flow(lambda q, p, w, h: (q, p + w), 1)
    for more in ({}, {"h": [lambda q, p, t: t - q[0]]}, joint, {"flow": flow}):
        with pytest.raises(ValueError, match=r"no velocity, force or noise of .* depends on t"):
            da.System(**apart, **more)
        driven = da.System(**{**apart, "H": lambda q, p, t: H(q, p) - q[0] * t}, **more)
        assert driven.time, "a control"
    with pytest.raises(TypeError, match="time must be True or False"):
        da.System(H=H, dim=1, time=2.0)
    still, driven, z = da.System(H=H, dim=1), oscillator(), ([1.0], [0.0])
    with pytest.raises(TypeError, match="does not depend on time: leave t out"):
        da.step(still, da.midpoint(), *z, 0.1, [], t=0.0)
    with pytest.raises(TypeError, match="does not depend on time"):
        still.extended()
    with pytest.raises(TypeError, match=r"give the time, as t=0\.0"):
        da.step(driven, da.midpoint(), *z, 0.1, [0.0])
    with pytest.raises(ValueError, match="t must be one finite number"):
        driven.drift(*z, [0.0])
    with pytest.raises(
        TypeError, match=r"observe\['q'\] failed when called as .*\(q, p, t, params"
    ):
        da.simulate(driven, da.midpoint(), z, dt=0.1, t_end=1.0, observe={"q": lambda q, p, c: q})
    with pytest.raises(ValueError, match=r"float32 has too few digits for t = 1e\+09"):
        da.step(driven, da.midpoint(), *z, 0.1, [0.0], t=1e9, dtype=np.float32)
    with pytest.raises(ValueError, match=r"float32 has too few digits .* driven in time"):
        da.simulate(driven, da.midpoint(), z, dt=0.1, t_end=1e5, dtype=np.float32)


def test_methods_for_additive_noise_and_langevin_equations():
    """Time is a position, for their requirements too: a potential may depend on it."""
    z, increments = ([1.0], [0.0]), da.Increments([0.1], [0.01])
    assert da.step(oscillator(), da.baoab(), *z, 0.1, increments, t=0.0)[2].converged
    growing = da.System(H=lambda q, p, t: p[0] ** 2 / 2, F=lambda q, p, t: -p,
                        h=[lambda q, p, t: -q[0] * t], dim=1, time=True)  # fmt: skip
    with pytest.raises(ValueError, match=r"h_q of noise 1 depends on .* time"):
        da.step(growing, da.additive_midpoint(), *z, 0.1, increments, t=0.0)
    braking = da.System(H=lambda q, p, t: p[0] ** 2 / 2, F=lambda q, p, t: -p * t, dim=1, time=True)
    with pytest.raises(ValueError, match="the force is not a linear friction"):
        da.step(braking, da.baoab(), *z, 0.1, da.Increments([]), t=0.0)


REFUSING = {
    "stationary_covariance": lambda s, m, z: da.theory.stationary_covariance(s, m, dt=0.1),
    "principle_residual": lambda s, m, z: da.theory.principle_residual(
        s, np.zeros((3, 1)), np.zeros((3, 1)), 0.1, np.zeros((2, 1))
    ),
    "discrete_action": lambda s, m, z: da.theory.discrete_action(
        s, m, np.zeros((3, 1)), np.zeros((3, 1)), 0.1, np.zeros((2, 1))
    ),
}


LONGER = {
    "quasi_symplecticity": lambda s, m, z: da.theory.quasi_symplecticity(s, m),
    "path_factors": lambda s, m, z: da.theory.path_factors(s, m, z, dt=0.1, steps=3),
}
REFUSING |= LONGER


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LONGER)) for name in REFUSING],
)
def test_theory_takes_systems_without_time(name):
    with pytest.raises(TypeError, match=r"driven in time.*system\.extended\(\)"):
        REFUSING[name](oscillator(), da.midpoint(), ([1.0], [0.0]))


@pytest.mark.slow
def test_discrete_hamiltonians_have_their_time():
    system, method, z, t, dt = non_separable(), da.midpoint(), ([0.7], [0.4]), 0.9, 0.2
    dW = np.array([[0.3], [-0.1]])
    path = [z]
    for k, row in enumerate(dW):
        path.append(da.step(system, method, *path[-1], dt, row, t=t + k * dt)[:2])
    q, p = (np.array(x) for x in zip(*path, strict=True))
    found = da.theory.generating_residual(system, method, q, p, dt, dW, t=t)
    assert found.position.shape == (2, 1) and found.largest < 1e-14
    assert da.theory.generating_residual(system, method, q, p, dt, dW, t=t + 0.1).largest > 1e-3
    old = da.theory.mixed_step(system, method, q[0], p[1], dt, dW[0], t=t)
    np.testing.assert_allclose(np.concatenate(old[:2]), [*q[1], *p[0]], rtol=0, atol=1e-14)
    with pytest.raises(TypeError, match=r"give the time, as t=0\.0"):
        da.discrete_hamiltonian(system, method, *z, dt, dW[0])
    with pytest.raises(ValueError, match=r"q must have shape \(K \+ 1, 1\), not \(3,\)"):
        da.theory.generating_residual(system, method, q[:, 0], p, dt, dW, t=t)


@pytest.mark.slow
def test_the_flow_is_generated_from_its_time_on():
    system, z, dW = non_separable(), ([0.7], [0.4]), np.full((5, 1), 0.05)
    assert da.theory.flow_residual(system, *z, 0.02, dW, t=0.9).largest < 1e-14
    found = [da.theory.generating_function(system, *z, 0.02, dW, t=t) for t in (0.9, 1.0)]
    assert found[0].F_minus.shape == (1,) and abs(found[0].S - found[1].S) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("method, keeps", [(da.midpoint(), True), (da.heun(), False)])
def test_momenta_are_balanced_under_a_drive(method, keeps):
    """A spring that is turned up and down is as round at all times."""
    system = da.System(
        H=lambda q, p, t: p @ p / 2 + (1 + jnp.sin(t) / 2) * (q @ q) / 2,
        F=lambda q, p, t: -0.3 * p * (1 + t),
        h=[lambda q, p, t: 0.2 * (q @ q) * jnp.cos(t)],
        dim=2,
        time=True,
    )
    turn, start = da.theory.rotation(2), ([1.0, 0.2], [0.3, 0.5])
    found = da.theory.balance_residual(system, method, start, turn, 0.1, steps=20)
    assert found.largest < 1e-14 if keeps else found.largest > 1e-6
    walked = da.theory.momentum_along(system, method, start, turn, 0.1, steps=20)
    np.testing.assert_allclose(np.diff(walked.momentum), found.change, rtol=0, atol=1e-14)
    symmetry = da.theory.check_symmetry(system, turn)
    assert symmetry.discrete and not symmetry.conserved
    assert not da.theory.check_symmetry(system, da.theory.translation([1.0, 0.0])).invariant


def test_the_exact_solution_of_a_driven_oscillator():
    """Against the closed formula; the spread is that of the oscillator without a drive."""
    system, start = oscillator(), ([1.0], [0.0])
    found = da.theory.solution_moments(system, start, dt=0.5, steps=[0, 4, 8])
    exact = np.array([exact_mean(t, 1.0, 0.0) for t in (0.0, 2.0, 4.0)])
    np.testing.assert_allclose(found.mean, exact, rtol=0, atol=1e-13)
    still = oscillator().with_params(A=0.0)
    still = da.theory.solution_moments(still, start, dt=0.5, steps=[0, 4, 8])
    np.testing.assert_allclose(found.covariance, still.covariance, rtol=0, atol=1e-13)
    jumping = da.System(
        H=lambda q, p, t: (q[0] ** 2 + p[0] ** 2) / 2 - q[0] * jnp.where(t > 0.37, 1.0, 0.0),
        dim=1, time=True,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"does not settle.*Is the drive smooth"):
        da.theory.solution_moments(jumping, start, dt=0.5, steps=1)


@pytest.mark.slow
def test_moments_of_a_method_approach_those_of_the_solution():
    """Noise that depends on the state and on time, at the weak order of the midpoint rule."""
    system = da.System(
        H=lambda q, p, t: (q[0] ** 2 + p[0] ** 2) / 2 * (1 + t),
        F=lambda q, p, t: -0.2 * p * jnp.cos(t),
        h=[lambda q, p, t: 0.5 * jnp.exp(-t) * (q[0] ** 2 + p[0] ** 2) / 2],
        dim=1,
        time=True,
    )
    start = ([1.0], [0.5])
    exact = da.theory.solution_moments(system, start, dt=0.25, steps=4).second
    errors = [
        np.abs(da.exact_moments(system, da.midpoint(), start, dt=1 / n, steps=n).second - exact)
        for n in (50, 100)
    ]
    assert 1.8 < errors[0].max() / errors[1].max() < 2.3


def test_a_diagnosis_holds_at_all_times():
    """That of the extended system, but for what is known of the momentum of time."""
    found = da.diagnose(oscillator(), methods=[da.midpoint()])
    assert found.linear and found.separable and found.conformal and found.noise_kind == "additive"
    np.testing.assert_allclose(found.rates, [OSCILLATOR["gamma"], 0.0])
    assert found.friction[0].shape == (1, 1)
    assert not found.invariants["H"].holds
    assert found.methods[0].equations == ((1, True),)
    assert "with time as the last position" in str(found)
    fading = da.System(H=lambda q, p, t: p[0] ** 2 / 2, F=lambda q, p, t: -p - jnp.sin(t)[None],
                       h=[lambda q, p, t: -q[0] * jnp.exp(-t)], dim=1, time=True)  # fmt: skip
    found = da.diagnose(fading, points=([[1.0], [2.0]], [[0.3], [0.1]]), methods=[])
    assert found.noise_kind == "one" and found.constant_friction and not found.conformal


@pytest.mark.slow
def test_strong_order_under_noise_that_depends_on_time():
    options = {"t_end": 1.0, "paths": 200, "steps": [8, 16, 32, 64]}
    order = da.strong_order(non_separable(), da.midpoint(), ([0.7], [0.4]), **options)
    assert 0.85 < order.order < 1.15


@pytest.mark.slow
def test_weak_order_of_a_driven_system():
    order = da.weak_order(oscillator(), da.srkw2(), ([1.0], [0.0]), t_end=0.5)
    assert 1.9 < order.order < 2.1


@pytest.mark.slow
def test_stochastic_resonance():
    """A weak slow drive of a double well is followed best at some temperature.

    Two states between which a particle jumps at Kramers' rate r follow the drive A cos Ωt with the
    amplitude A/T · 2r/√(4r² + Ω²), where r = 0.618 √2/(2π) exp(−1/4T) for this well.
    """
    period = 120.0
    omega = 2 * np.pi / period

    def H(q, p, t, c):
        return p[0] ** 2 / 2 + (q[0] ** 2 - 1) ** 2 / 4 - 0.05 * q[0] * jnp.cos(omega * t)

    def amplitude(temperature):
        system = da.System(
            H=H,
            F=lambda q, p, t, c: -p,
            h=[lambda q, p, t, c: -jnp.sqrt(2 * c["T"]) * q[0]],
            dim=1,
            params={"T": temperature},
            time=True,
        )
        wells = np.where(np.arange(2000) % 2, 1.0, -1.0)[:, None]
        run = da.simulate(system, da.baoab(), (wells, np.zeros((2000, 1))), dt=0.1,
                          t_end=5 * period, paths=2000, save_every=50, progress=False,
                          observe={"q": lambda q, p, t, c: q[0]})  # fmt: skip
        late = run.t > 2 * period
        return 2 * np.abs(np.mean(run.mean["q"][late] * np.exp(-1j * omega * run.t[late])))

    cold, resonant, hot = map(amplitude, (0.05, 0.12, 0.6))
    assert resonant > 2 * cold
    assert resonant > 2 * hot
    rate = 0.618 * np.sqrt(2) / (2 * np.pi) * np.exp(-1 / (4 * 0.12))
    expected = 0.05 / 0.12 * 2 * rate / np.hypot(2 * rate, omega)
    assert abs(resonant / expected - 1) < 0.25


@pytest.mark.slow
def test_advice_on_a_failed_path_of_a_system_with_a_shape():
    """Fields are tried where the path began, at its time, in the shape of the system."""

    def H(q, p, t):
        return jnp.sum(p**2) / 2 + jnp.linalg.norm(q) * t

    system = da.System(H=H, dim=(1, 2), time=True)
    rest = (np.zeros((1, 2)), np.zeros((1, 2)))
    with pytest.warns(RuntimeWarning, match="not finite at its initial state"):
        da.simulate(system, da.heun(), rest, dt=0.1, t_end=0.2, paths=1, progress=False)


@pytest.mark.slow
def test_an_energy_of_time_alone_is_no_excuse_for_a_residual():
    system = da.System(
        H=lambda q, p, t: p[0] ** 2 / 2 + q[0] ** 4 / 4 + 0.1 * t * q[0] + 1e10 * jnp.cos(t),
        h=[lambda q, p, t: 0.3 * q[0]],
        dim=1,
        time=True,
    )
    given = system, da.midpoint(), [0.5], [0.2], 0.3, [0.1]
    _, p, info = da.theory.generated_step(*given, t=0.4)
    assert info.converged
    np.testing.assert_allclose(p, da.step(*given, t=0.4)[1], rtol=1e-14)


def test_stationary_laws_of_driven_systems_are_refused():
    with pytest.raises(TypeError, match="is driven in time"):
        da.theory.exact_stationary_covariance(
            da.System(H=lambda q, p, t: p @ p / 2 + jnp.cos(t) * q[0], dim=1, time=True)
        )


@pytest.mark.slow
def test_theorems_about_paths_take_the_extended_system():
    """Of paths with steps of that system: the momentum of the time has a part in the action."""
    system = oscillator()
    larger, method, dt, theory = system.extended(), da.midpoint(), 0.1, da.theory
    dW = 0.3 * np.random.default_rng(0).normal(size=(4, 1))
    q, p = [np.append(0.7, 1.3)], [np.append(0.4, 0.0)]
    for increments in dW:
        after = da.step(larger, method, q[-1], p[-1], dt, increments)
        assert after[2].converged
        q.append(np.asarray(after[0]))
        p.append(np.asarray(after[1]))
    q, p = np.stack(q), np.stack(p)
    one = da.step(system, method, q[0, :1], p[0, :1], dt, dW[0], t=1.3)
    np.testing.assert_allclose(one[0], q[1, :1], rtol=1e-13)
    still = np.stack([p[:, 0], 0 * p[:, 0]], 1)

    def missed(p):
        return theory.discrete_principle_residual(larger, method, q, p, dt, dW).largest

    assert missed(p) < 1e-14 < 1e-4 < missed(still), "a control: without the energy of the drive"
    assert theory.principle_residual(larger, q, p, dt, dW).largest < 1e-14
    assert np.isfinite(theory.discrete_action(larger, method, q, p, dt, dW))
    factors = theory.path_factors(larger, method, (q[0], p[0]), dt, increments=dW)
    assert np.isfinite(factors.volume).all()
    assert theory.quasi_symplecticity(larger, da.stormer_verlet()).symplectic.holds
    path = q[:, :1], p[:, :1]
    for ask in (
        lambda: theory.discrete_action(system, method, *path, dt, dW),
        lambda: theory.principle_residual(system, *path, dt, dW),
        lambda: theory.path_factors(system, method, (path[0][0], path[1][0]), dt, increments=dW),
        lambda: theory.quasi_symplecticity(system, da.stormer_verlet()),
    ):
        with pytest.raises(TypeError, match=r"'driven oscillator' .* give it system.extended\(\)"):
            ask()
