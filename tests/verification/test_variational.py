"""The discrete variational structure: H_d⁺ and F_d^± generate the step, and obey a principle."""

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
import variational_cases as cases
from dalembert.theory.mixed import MixedStep, weights_of
from dalembert.theory.paths import walk_path
from dalembert.theory.principle import discrete_action, discrete_principle_residual
from dalembert.theory.variational import (
    discrete_hamiltonian,
    generated_step,
    generating_residual,
    mixed_step,
)
from tiers import tiered

DT = 0.1
ROUNDING = 1e-13
MISS = 1e-6

EVERY = product([1, 2, 3], [1, 2], [1, 2, 4])
SIZES = tiered([sizes for sizes in EVERY if sizes[1:] != (2, 4)], fast=["1-2-2"])
"""Dimensions, noises and stages; four stages are those of SRKw2, which takes one noise."""
CONDITIONS = tiered([(1, 2), (2, 2)], fast=["1-2"])


@lru_cache
def generate(dim: int, noises: int) -> Callable[..., Any]:
    """Everything about one step, compiled once for all tableaus of one shape."""
    system = cases.coupled(dim, noises)
    return jax.jit(
        lambda w, q, p, dW: MixedStep(system, None, DT, w, da.Increments(dW)).generate(q, p)
    )


def residual_by_stages(dim: int, noises: int, method: Any) -> float:
    """Miss of the generating equations at the step through a given (q_k, p_{k+1})."""
    weights = weights_of(cases.coupled(dim, noises), method)
    found = generate(dim, noises)(weights, *cases.state(dim), cases.INCREMENTS[:noises])
    assert bool(found.info.converged)
    position = found.q_next - found.D2 + found.F_plus
    momentum = found.p - found.D1 + found.F_minus
    return float(np.max(np.abs(np.concatenate([position, momentum]))))


class TestTheStepIsGenerated:
    """Theorems on both families: with the conditions, H_d⁺ and F_d^± generate the method."""

    @pytest.mark.parametrize(("dim", "noises", "stages"), SIZES)
    def test_every_structured_method(self, dim: int, noises: int, stages: int) -> None:
        every = cases.structured() + ([da.srkw2()] if noises == 1 else [])
        methods = [method for method in every if method.stages == stages]
        misses = {m.name: residual_by_stages(dim, noises, m) for m in methods}
        assert max(misses.values()) < ROUNDING, misses

    @pytest.mark.parametrize("condition", range(1, 9))
    @pytest.mark.parametrize(("dim", "noises"), CONDITIONS)
    def test_each_mean_square_condition_is_needed(
        self, dim: int, noises: int, condition: int
    ) -> None:
        assert residual_by_stages(dim, noises, cases.split()) < ROUNDING
        assert residual_by_stages(dim, noises, cases.spoiled(condition)) > MISS

    @pytest.mark.parametrize("condition", range(1, 5))
    @pytest.mark.parametrize(("dim", "noises"), CONDITIONS)
    def test_each_weak_condition_is_needed(self, dim: int, noises: int, condition: int) -> None:
        assert residual_by_stages(dim, noises, da.srkw1(0.3)) < ROUNDING
        assert residual_by_stages(dim, noises, cases.spoiled_weak(condition)) > MISS

    @pytest.mark.parametrize(("dim", "noises"), CONDITIONS)
    def test_heun_is_not_generated(self, dim: int, noises: int) -> None:
        assert residual_by_stages(dim, noises, da.heun()) > MISS

    def test_the_fourth_weak_condition_is_about_pairs_of_noises(self) -> None:
        method = cases.spoiled_weak(4)
        assert residual_by_stages(1, 1, method) < ROUNDING
        assert not da.certify(method).lagrange_dalembert


class TestTheGeneratedStepIsTheStep:
    """`generated_step` knows H_d⁺ and F_d^± alone, `da.step` knows the stages alone."""

    PENDULUM = da.System(
        H=lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0]),
        F=lambda q, p: -0.3 * p**3,
        h=[lambda q, p: 0.4 * jnp.sin(q[0])],
        dim=1,
    )

    def test_a_pendulum(self) -> None:
        self.compare(self.PENDULUM, da.midpoint())
        with pytest.raises(AssertionError):
            self.compare(self.PENDULUM, da.midpoint(), da.heun())

    @pytest.mark.slow
    @pytest.mark.parametrize("method", [da.midpoint(), da.srkw1(0.0)], ids=lambda m: m.name)
    def test_small(self, method: Any) -> None:
        self.generated(cases.coupled(1, 1), method)

    @pytest.mark.slow
    @pytest.mark.parametrize("dim", [1, 2])
    @pytest.mark.parametrize("method", [*cases.structured(), da.srkw2()], ids=lambda m: m.name)
    def test_large(self, method: Any, dim: int) -> None:
        self.generated(cases.coupled(dim, 1 if method.name == "srkw2" else 2), method)

    @pytest.mark.slow
    def test_not_for_heun(self) -> None:
        system, (q, p), dW = self.PENDULUM, cases.state(1), cases.INCREMENTS[:1]
        q_1, p_1, _ = da.step(system, da.heun(), q, p, 2 * DT, dW)
        q_2, p_2, info = generated_step(system, da.heun(), q, p, 2 * DT, dW)
        assert bool(info.converged)
        assert max(abs(q_1 - q_2).max(), abs(p_1 - p_2).max()) > MISS

    @staticmethod
    def compare(system: da.System, method: Any, taken: Any = None) -> tuple[Any, Any]:
        """The step of `method`, which is the generated one; that of another is not."""
        (q, p), dW = cases.state(system.dim), cases.INCREMENTS[: system.noises]
        q_1, p_1, _ = da.step(system, taken or method, q, p, DT, dW)
        q_2, p_2, info = generated_step(system, method, q, p, DT, dW)
        assert bool(info.converged)
        np.testing.assert_allclose(q_2, q_1, atol=ROUNDING)
        np.testing.assert_allclose(p_2, p_1, atol=ROUNDING)
        return np.stack([q, q_1]), np.stack([p, p_1])

    def generated(self, system: da.System, method: Any) -> None:
        path, dW = self.compare(system, method), cases.INCREMENTS[None, : system.noises]
        assert generating_residual(system, method, *path, DT, dW).largest < ROUNDING


class TestAdditiveNoise:
    """Conditions 1 and 5 are enough whatever the noise in the stages."""

    STEPS = 6
    SYSTEM = da.System(
        H=lambda q, p: p[0] ** 2 / 2 + jnp.cos(q[0]) * (1 + 0.3 * p[0]),
        F=lambda q, p: -0.4 * p * (1 + q**2),
        h=[lambda q, p: 0.5 * q[0] - 0.2 * p[0], lambda q, p: 0.3 * p[0]],
        f=[lambda q, p: jnp.full_like(q, 0.7), None],
        dim=1,
        name="pushed from all sides",
    )
    HEUN = da.AdditiveTableau([[0, 0], [1, 0]], [0.5, 0.5], [-0.4, 0.4], [1, 1], name="Heun")
    RANDOM = da.AdditiveTableau(da.additive_gauss().a, [0.5, 0.5], [0.3, -0.9], [2, 0.7])
    METHODS = (da.additive_midpoint(), da.additive_dirk(), da.additive_gauss(), RANDOM)

    def path(self, method: Any) -> tuple[Any, Any, float, da.Increments]:
        increments = da.brownian_path(5, 0, DT, self.STEPS, 2)
        made = walk_path(self.SYSTEM, method, ([0.7], [0.3]), DT, increments)
        assert np.all(made.info.converged)
        return made.q, made.p, DT, increments

    @pytest.mark.slow
    @pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
    def test_steps_are_generated(self, method: Any) -> None:
        q, p, dt, increments = self.path(method)
        assert da.certify(method).lagrange_dalembert
        assert generating_residual(self.SYSTEM, method, q, p, dt, increments).largest < ROUNDING
        moved = q + 1e-4 * np.eye(self.STEPS + 1)[:, 3:4]
        assert generating_residual(self.SYSTEM, method, moved, p, dt, increments).largest > MISS

    @pytest.mark.slow
    @pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
    def test_steps_obey_the_discrete_principle(self, method: Any) -> None:
        q, p, dt, increments = self.path(method)
        found = discrete_principle_residual(self.SYSTEM, method, q, p, dt, increments)
        assert float(found.largest) < ROUNDING and np.all(np.abs(found.work) > 0)

    @pytest.mark.slow
    def test_no_other_steps_are(self) -> None:
        assert not da.certify(self.HEUN).lagrange_dalembert
        assert generating_residual(self.SYSTEM, self.HEUN, *self.path(self.HEUN)).largest > MISS

    @pytest.mark.slow
    def test_those_of_another_method_are_not(self) -> None:
        gauss = da.additive_gauss()
        assert generating_residual(self.SYSTEM, gauss, *self.path(self.RANDOM)).largest > MISS

    @pytest.mark.slow
    def test_the_generated_step_is_the_step(self) -> None:
        method = da.additive_dirk()
        q, p, dt, increments = self.path(method)
        given = jax.tree.map(lambda x: x[0], increments)
        found = generated_step(self.SYSTEM, method, q[0], p[0], dt, given)
        np.testing.assert_allclose(np.ravel(found[:2]), [q[1, 0], p[1, 0]], atol=ROUNDING)

    @pytest.mark.slow
    def test_in_the_paper_s_class_both_formulas_generate_one_step(self) -> None:
        """Midpoint is a tableau of both kinds: H_d⁺ differs by the work of the constant force."""
        twice = da.AdditiveTableau([[0.5]], [1], [0.5], [0], name="midpoint")
        q, p, dt, increments = self.path(da.midpoint())
        for method in (twice, da.midpoint()):
            assert generating_residual(self.SYSTEM, method, q, p, dt, increments).largest < ROUNDING

    def test_dZ_is_asked_for(self) -> None:
        with pytest.raises(ValueError, match="also needs the increments dZ"):
            generating_residual(
                self.SYSTEM, da.additive_dirk(), *np.zeros((2, 3, 1)), DT, np.zeros((2, 2))
            )


def damped_oscillator(nu: float = 0.3, beta: float = 0.5, kappa: float = 0.2) -> da.System:
    """H = (p² + q²)/2, h = βH, F = −νp, f = −κp: everything is linear."""

    def H(q: Any, p: Any, params: Any) -> Any:
        return (p @ p + q @ q) / 2

    return da.System(
        H=H,
        F=lambda q, p, params: -params["nu"] * p,
        h=[lambda q, p, params: params["beta"] * H(q, p, params)],
        f=[lambda q, p, params: -params["kappa"] * p],
        dim=1,
        params={"nu": nu, "beta": beta, "kappa": kappa},
    )


class TestValues:
    """H_d⁺ and F_d^± themselves, not only the step that they generate."""

    def test_midpoint_on_a_linear_system_by_hand(self) -> None:
        # With τ = Δt + βΔW and σ = νΔt + κΔW the midpoints solve
        # Q = q + τP/2, P = p' + τQ/2 + σP/2, and F_d⁻ = −σP ∂Q/∂q, F_d⁺ = −σP ∂Q/∂p'.
        q, p, dW = 0.7, -0.4, 0.25
        tau, sigma = DT + 0.5 * dW, 0.3 * DT + 0.2 * dW
        inverse = np.linalg.inv([[1.0, -tau / 2], [-tau / 2, 1 - sigma / 2]])
        Q, P = inverse @ [q, p]
        q_next = q + tau * P
        expected = (p * q_next - tau * (P**2 - (P**2 + Q**2) / 2), -sigma * P * inverse[0])
        system = damped_oscillator()
        found = discrete_hamiltonian(
            system, da.midpoint(), np.array([q]), np.array([p]), DT, np.array([dW])
        )
        np.testing.assert_allclose(found.H_d, expected[0], rtol=1e-14)
        np.testing.assert_allclose(
            np.concatenate([found.F_minus, found.F_plus]), expected[1], rtol=1e-14
        )

    def test_without_forces_there_are_no_discrete_forces(self) -> None:
        system = da.System(H=lambda q, p: (p @ p) / 2 - jnp.cos(q[0]), dim=1)
        found = discrete_hamiltonian(
            system, da.midpoint(), np.array([0.3]), np.array([0.2]), DT, np.zeros(0)
        )
        assert not np.any(found.F_minus) and not np.any(found.F_plus)

    @pytest.mark.slow
    def test_derivatives_are_those_of_the_function(self) -> None:
        # jax.grad of H_d⁺ goes through the implicit function theorem; differences do not.
        system, method, dW = cases.coupled(1, 1), da.dirk(0.3), cases.INCREMENTS[:1]
        q, p = cases.state(1)

        def H_d(q: Any, p: Any) -> Any:
            return discrete_hamiltonian(system, method, q, p, DT, dW).H_d

        D1, D2 = jax.jit(jax.grad(H_d, (0, 1)))(q, p)
        step = 1e-5
        np.testing.assert_allclose(
            D1[0], (H_d(q + step, p) - H_d(q - step, p)) / (2 * step), rtol=1e-8
        )
        np.testing.assert_allclose(
            D2[0], (H_d(q, p + step) - H_d(q, p - step)) / (2 * step), rtol=1e-8
        )
        q_next, p_old, _ = mixed_step(system, method, q, p, DT, dW)
        found = discrete_hamiltonian(system, method, q, p, DT, dW)
        np.testing.assert_allclose(D2 - found.F_plus, q_next, rtol=1e-14)
        np.testing.assert_allclose(D1 - found.F_minus, p_old, rtol=1e-14)

    @pytest.mark.slow
    def test_derivative_with_respect_to_parameters(self) -> None:
        system, q, dW = damped_oscillator(), np.array([0.7]), np.array([0.25])

        def force(nu: Any) -> Any:
            changed = system.with_params(nu=nu)
            return discrete_hamiltonian(changed, da.midpoint(), q, q, DT, dW).F_minus[0]

        slope = jax.grad(force)(0.3)
        difference = (force(0.3 + 1e-5) - force(0.3 - 1e-5)) / 2e-5
        np.testing.assert_allclose(slope, difference, rtol=1e-8)

    @pytest.mark.slow
    def test_vmap_is_a_loop(self) -> None:
        system, method = cases.coupled(1, 1), da.dirk(0.3)
        rng = np.random.default_rng(1)
        q, p, dW = (
            rng.standard_normal((5, 1)),
            rng.standard_normal((5, 1)),
            rng.normal(0, 0.2, (5, 1)),
        )
        together = jax.jit(
            jax.vmap(lambda q, p, dW: discrete_hamiltonian(system, method, q, p, DT, dW))
        )(q, p, dW)
        for i in range(5):
            alone = discrete_hamiltonian(system, method, q[i], p[i], DT, dW[i])
            for one, all_of_them in zip(alone, together, strict=True):
                np.testing.assert_allclose(one, all_of_them[i], rtol=1e-13, atol=1e-15)

    @pytest.mark.slow
    def test_float64_without_the_switch(self) -> None:
        system, (q, p), dW = cases.coupled(1, 1), cases.state(1), cases.INCREMENTS[:1]
        expected = discrete_hamiltonian(system, da.dirk(0.3), q, p, DT, dW)
        with jax.enable_x64(False):
            found = discrete_hamiltonian(system, da.dirk(0.3), q, p, DT, dW)
        assert all(isinstance(x, np.ndarray) and x.dtype == np.float64 for x in found)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_array_equal(x, y)


class TestFailures:
    """What cannot be solved or is not defined says so."""

    # Q = 1 + P/2, P = 3Q²/2 has no real solution.
    STEEP = da.System(H=lambda q, p: (p @ p) / 2 + q[0] ** 3, dim=1)

    def test_no_solution_raises(self) -> None:
        with pytest.raises(ValueError, match=r"midpoint with dt=1 were not solved .* smaller dt"):
            discrete_hamiltonian(self.STEEP, da.midpoint(), np.ones(1), np.zeros(1), 1.0, [])

    def test_no_solution_is_nan_where_nothing_can_be_raised(self) -> None:
        def H_d(q: Any, dt: Any) -> Any:
            method, p, dW = da.midpoint(), jnp.zeros(1), jnp.zeros(0)
            return discrete_hamiltonian(self.STEEP, method, q, p, dt, dW).H_d

        values, slopes = jax.jit(jax.vmap(jax.value_and_grad(H_d)))(
            np.ones((2, 1)), np.array([0.1, 1.0])
        )
        assert np.isfinite(values[0]) and np.isfinite(slopes[0]).all()
        assert np.isnan(values[1]) and np.isnan(slopes[1]).all()

    @pytest.mark.parametrize("method", [da.e1(), da.rs1()], ids=lambda m: m.name)
    def test_methods_of_other_shapes_are_refused(self, method: Any) -> None:
        (q, p), increments = cases.state(1), da.Increments(np.zeros(1), dZ=np.zeros(1))
        with pytest.raises(ValueError, match=r"no discrete Hamiltonian.*da\.midpoint"):
            discrete_hamiltonian(cases.coupled(1, 1), method, q, p, DT, increments)

    def test_srkw2_is_refused_for_two_noises(self) -> None:
        with pytest.raises(ValueError, match="at most 1 noise"):
            discrete_hamiltonian(
                cases.coupled(1, 2), da.srkw2(), *cases.state(1), DT, cases.INCREMENTS
            )

    def test_shapes_and_types(self) -> None:
        system, method, q = cases.coupled(1, 2), da.midpoint(), np.zeros((3, 1))
        with pytest.raises(ValueError, match=r"p_next must have shape \(1,\)"):
            discrete_hamiltonian(system, method, q[0], np.zeros(2), DT, cases.INCREMENTS)
        with pytest.raises(ValueError, match=r"dW must have shape \(K, 2\), not \(2,\)"):
            discrete_action(system, method, q, q, DT, np.zeros(2))
        with pytest.raises(ValueError, match=r"q must have shape \(4, 1\), not \(3, 1\)"):
            discrete_action(system, method, q, q, DT, np.zeros((3, 2)))
        with pytest.raises(TypeError, match="floats"):
            discrete_action(system, method, q.astype(int), q, DT, np.zeros((2, 2)))
        with pytest.raises(ValueError, match="one step alone"):
            discrete_principle_residual(system, method, q[:2], q[:2], DT, np.zeros((1, 2)))
        with pytest.raises(ValueError, match="dt must be a positive number"):
            discrete_hamiltonian(system, method, q[0], q[0], -DT, cases.INCREMENTS)


class TestDiscretePrinciple:
    """δB_d = Σ (F_d⁻·δq_k + F_d⁺·δp_{k+1}) on the paths of a structured method, and only there."""

    STEPS = 12
    METHOD = da.midpoint()
    dW = np.random.default_rng(7).normal(0, np.sqrt(DT), (STEPS, 1))

    def path(self, method: Any) -> tuple[np.ndarray, np.ndarray]:
        made = walk_path(cases.coupled(1, 1), method, cases.state(1), DT, self.dW)
        assert np.all(made.info.converged)
        return np.array(made.q), np.array(made.p)

    def residual(self, method: Any, q: Any, p: Any) -> float:
        found = discrete_principle_residual(cases.coupled(1, 1), method, q, p, DT, self.dW)
        assert np.all(np.abs(found.work) > 0)
        return float(found.largest)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "method",
        tiered(
            [METHOD, da.stormer_verlet(), da.srkw1(0.5)],
            fast=["midpoint"],
            name=lambda m: m.name,
        ),
    )
    def test_holds_on_the_methods_own_path(self, method: Any) -> None:
        assert self.residual(method, *self.path(method)) < 1e-14

    def test_fails_on_other_paths(self) -> None:
        q, p = self.path(self.METHOD)
        q[self.STEPS // 2] += 1e-4
        assert self.residual(self.METHOD, q, p) > 1e-6

    @pytest.mark.slow
    def test_fails_for_another_method(self) -> None:
        assert self.residual(da.dirk(0.5), *self.path(self.METHOD)) > 1e-5

    def test_says_nothing_about_the_last_position_and_the_first_momentum(self) -> None:
        q, p = self.path(self.METHOD)
        action = discrete_action(cases.coupled(1, 1), self.METHOD, q, p, DT, self.dW)
        q[-1] += 1.0
        p[0] += 1.0
        moved = discrete_action(cases.coupled(1, 1), self.METHOD, q, p, DT, self.dW)
        np.testing.assert_allclose(moved, action, rtol=1e-14)
        assert self.residual(self.METHOD, q, p) < 1e-14

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "method",
        [da.heun(), pytest.param(cases.spoiled(7), marks=pytest.mark.slow)],
        ids=lambda m: m.name,
    )
    def test_fails_on_the_path_of_a_method_without_structure(self, method: Any) -> None:
        assert self.residual(method, *self.path(method)) > 1e-6

    @pytest.mark.slow
    def test_action_is_the_sum_of_its_steps(self) -> None:
        system, (q, p) = cases.coupled(1, 1), self.path(self.METHOD)
        H_d = [
            discrete_hamiltonian(system, self.METHOD, q[k], p[k + 1], DT, self.dW[k]).H_d
            for k in range(self.STEPS)
        ]
        expected = p[-1] @ q[-1] - sum(p[k + 1] @ q[k + 1] - H_d[k] for k in range(self.STEPS))
        found = discrete_action(system, self.METHOD, q, p, DT, da.Increments(self.dW))
        np.testing.assert_allclose(found, expected, rtol=1e-13)

    def test_prints_as_a_table(self) -> None:
        q, p = self.path(self.METHOD)
        found = discrete_principle_residual(cases.coupled(1, 1), self.METHOD, q, p, DT, self.dW)
        text = str(found)
        assert "δB" in text and len(text.splitlines()) == 10 and "largest" in text


def rotor() -> da.System:
    """Invariant under rotations of the plane, with a force that turns with it."""

    def H(q: Any, p: Any) -> Any:
        return (p @ p) / 2 + (q @ q) / 2 + (q @ q) ** 2 / 8

    return da.System(
        H=H,
        F=lambda q, p: -0.3 * (1 + q @ q) * p,
        h=[lambda q, p: 0.4 * jnp.cos(p @ p) + 0.2 * (q @ p)],
        f=[lambda q, p: 0.2 * (q @ p) * q],
        dim=2,
    )


@pytest.mark.slow
def test_erratum_in_the_proof_of_the_discrete_noether_theorem() -> None:
    """dR_d·ξ = −D₁H_d·ξ_Q(q_k) + p_{k+1}·ξ_Q(q_{k+1}) + (q_{k+1} − D₂H_d)·ξ^p, with D₂ in the last.

    The paper prints D₁ there. R_d = p_{k+1}·q_{k+1} − H_d⁺ is invariant under rotations, so the sum
    must vanish for every q_k, q_{k+1}, p_{k+1}; only the corrected one does.
    """
    system, method, dW = rotor(), da.dirk(0.3), np.array([0.2])
    q, p_next = cases.state(2)
    q_next = np.array([0.9, -0.1])
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])

    def H_d(q: Any, p: Any) -> Any:
        return discrete_hamiltonian(system, method, q, p, DT, dW).H_d

    D1, D2 = jax.jit(jax.grad(H_d, (0, 1)))(q, p_next)
    common = -D1 @ (turn @ q) + p_next @ (turn @ q_next)
    corrected = common + (q_next - D2) @ (turn @ p_next)
    printed = common + (q_next - D1) @ (turn @ p_next)
    assert abs(corrected) < 1e-14
    assert abs(printed) > 1e-2
