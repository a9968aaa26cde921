"""The continuous side: the stochastic action, its principle, and the generating function."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad_vec
from scipy.linalg import expm

import dalembert as da
import variational_cases as cases
from dalembert.theory.generating import flow_residual, generating_function, generating_order
from dalembert.theory.paths import walk_path
from dalembert.theory.principle import action, principle_residual


def slope(dts: Any, errors: Any) -> float:
    """Least-squares slope of log error over log dt."""
    return float(np.polyfit(np.log(dts), np.log(errors), 1)[0])


class TestAction:
    """B of paths whose integrals are known."""

    SYSTEM = da.System(
        H=lambda q, p: q[0] * p[0], h=[lambda q, p: q[0] * p[0]], f=[lambda q, p: p], dim=1
    )

    def test_of_a_smooth_path(self) -> None:
        # q = sin t, p = cos t without noise: ∫p dq = ∫cos² and ∫H dt = sin²(T)/2.
        t = np.linspace(0.0, 2.0, 2001)[:, None]
        found = action(self.SYSTEM, np.sin(t), np.cos(t), 1e-3, np.zeros((2000, 1)))
        T = 2.0
        expected = np.sin(T) * np.cos(T) - (T / 2 + np.sin(2 * T) / 4) + np.sin(T) ** 2 / 2
        np.testing.assert_allclose(found, expected, rtol=1e-6)

    def test_of_the_wiener_process_itself_is_the_stratonovich_one(self) -> None:
        # q = p = W: ∫W∘dW = W²/2 and ∫W²∘dW = W³/3; with Itô's integrals T/2 and ∫W dt more.
        steps, dt = 2**14, 2.0**-14
        dW = np.asarray(da.brownian_path(5, 0, dt, steps, 1).dW)
        W = np.concatenate([np.zeros((1, 1)), np.cumsum(dW, axis=0)])
        end, middle = W[-1, 0], (W[1:] + W[:-1]) / 2
        expected = end**2 / 2 + dt * np.sum(middle**2) + end**3 / 3
        found = action(self.SYSTEM, W, W, dt, da.Increments(dW))
        np.testing.assert_allclose(found, expected, atol=1e-4)
        ito = end**2 - np.sum(W[:-1] * dW) + dt * np.sum(middle**2) + np.sum(W[:-1] ** 2 * dW)
        assert abs(ito - expected) > 0.1

    def test_shapes(self) -> None:
        with pytest.raises(ValueError, match=r"p must have shape \(3, 1\)"):
            action(self.SYSTEM, np.zeros((3, 1)), np.zeros((2, 1)), 0.1, np.zeros((2, 1)))


def test_erratum_in_the_derivative_of_the_generating_function() -> None:
    """∂B = p(t_a) ∂q(t_a) + ∫ ∂qᵀ[∘dp + H_q dt + h_q∘dW] − ∫ ∂pᵀ[∘dq − H_p dt − h_p∘dW].

    The paper prints + before the second integral, which vanishes along solutions. Along any other
    curve only the minus is right; both sides are midpoint sums, so that is seen to rounding.
    """
    system, rng = cases.coupled(2, 1), np.random.default_rng(3)
    steps, dt = 16, 0.05
    q, p, delta_q, delta_p = rng.standard_normal((4, steps + 1, 2))
    delta_p[-1] = 0.0
    dW = rng.normal(0.0, np.sqrt(dt), (steps, 1))

    def B(s: Any) -> Any:
        return action(system, q + s * delta_q, p + s * delta_p, dt, dW)

    left = jax.grad(B)(0.0) - p[0] @ delta_q[0]
    middle = [(x[1:] + x[:-1]) / 2 for x in (q, p, delta_q, delta_p)]
    free = replace(system, F=None, f=None)
    # Without forces the drift and the diffusion are (H_p, −H_q) and (h_p, −h_q).
    drift_q, drift_p = jax.vmap(free.drift)(*middle[:2])
    noise_q, noise_p = jax.vmap(free.diffusion)(*middle[:2])
    defect_p = np.diff(p, axis=0) - dt * drift_p - np.einsum("ki,kid->kd", dW, noise_p)
    defect_q = np.diff(q, axis=0) - dt * drift_q - np.einsum("ki,kid->kd", dW, noise_q)
    first, second = np.sum(middle[2] * defect_p), np.sum(middle[3] * defect_q)
    assert abs(left - (first - second)) < 1e-12
    assert abs(left - (first + second)) > 1e-1


class TestPrinciple:
    """δB = ∫F·δq dt + Σ∫f_i·δq∘dW_i along solutions, up to the resolution of the grid."""

    T, FINE, PATHS = 0.5, 2**13, 8
    FACTORS = (16, 32, 64, 128)

    def solution(self, system: da.System, noises: int, seed: int) -> tuple[Any, Any, Any]:
        """A path resolved far better than the grids on which the principle is tried."""
        dt = self.T / self.FINE
        increments = da.brownian_path(seed, 0, dt, self.FINE, noises)
        path = walk_path(system, da.midpoint(), cases.state(1), dt, increments.dW)
        assert np.all(path.info.converged)
        return np.asarray(path.q), np.asarray(path.p), increments

    def residuals(self, made_by: da.System, noises: int, rough: bool = False) -> np.ndarray:
        """Root mean square over a few Brownian paths, for each grid."""
        squares = []
        for seed in range(self.PATHS):
            q, p, fine = self.solution(made_by, noises, seed)
            for factor in self.FACTORS:
                dt = self.T / self.FINE
                dW = da.coarsen(fine, dt, factor).dW
                found = principle_residual(
                    cases.coupled(1, noises), q[::factor], p[::factor], factor * dt, dW, rough=rough
                )
                squares.append(np.mean(np.asarray(found.relative) ** 2))
        return np.sqrt(np.mean(np.reshape(squares, (self.PATHS, -1)), axis=0))

    @pytest.mark.slow
    @pytest.mark.parametrize("rough", [False, True], ids=["smooth", "rough"])
    def test_holds_with_one_noise(self, rough: bool) -> None:
        errors = self.residuals(cases.coupled(1, 1), 1, rough)
        order = slope(self.FACTORS, errors)
        assert 0.7 < order < 1.5, (order, errors)
        assert errors[0] < 1e-3

    @pytest.mark.slow
    def test_holds_with_noises_that_do_not_commute(self) -> None:
        errors = self.residuals(cases.coupled(1, 2), 2)
        order = slope(self.FACTORS, errors)
        assert 0.3 < order < 1.1, (order, errors)
        assert errors[0] < 3e-3

    @pytest.mark.slow
    def test_fails_where_the_forces_are_left_out(self) -> None:
        unforced = replace(cases.coupled(1, 1), F=None, f=None)
        errors = self.residuals(unforced, 1)
        assert errors.min() > 1e-2 and abs(slope(self.FACTORS, errors)) < 0.05, errors

    @pytest.mark.slow
    def test_is_exact_for_midpoint_on_its_own_grid(self) -> None:
        # The midpoint sums are the discrete action of the midpoint method.
        system = cases.coupled(1, 1)
        q, p, increments = self.solution(system, 1, 0)
        found = principle_residual(system, q, p, self.T / self.FINE, increments, rough=True)
        assert found.largest < 1e-13
        unforced = replace(system, F=None, f=None)
        found = principle_residual(unforced, q, p, self.T / self.FINE, increments, rough=True)
        assert found.largest > 1e-3, "nothing would be noticed"


def kubo(beta: float) -> da.System:
    """H = (p² + q²)/2, h = βH: a rotation by the angle t + βW(t)."""

    def H(q: Any, p: Any, params: Any) -> Any:
        return (p @ p + q @ q) / 2

    return da.System(
        H=H, h=[lambda q, p, params: params * H(q, p, params)], dim=1, params=np.asarray(beta)
    )


class TestGeneratingFunction:
    """S, F^± against closed forms, and the flow that they generate."""

    @pytest.mark.slow
    def test_of_the_kubo_oscillator(self) -> None:
        # The flow is a rotation by τ = T + βW(T), so S = q p/cos τ + tan τ (q² + p²)/2.
        q, p, beta, T, steps = 0.7, -0.4, 0.5, 0.8, 256
        dW = np.asarray(da.brownian_path(3, 0, T / steps, steps, 1).dW)
        assert abs(T + beta * dW.sum()) < 1.2, "too near to τ = π/2, where S has a pole"
        found = generating_function(kubo(beta), np.array([q]), np.array([p]), T / steps, dW)

        def S(tau: float) -> float:
            return q * p / np.cos(tau) + np.tan(tau) * (q**2 + p**2) / 2

        assert abs(found.S - S(T + beta * dW.sum())) < 1e-4
        assert abs(found.S - S(T)) > 1e-2
        assert not np.any(found.F_minus) and not np.any(found.F_plus)

    @pytest.mark.slow
    def test_forces_of_the_damped_oscillator(self) -> None:
        # q̄ is linear in (q_a, p_b), so F^± are integrals of matrix exponentials.
        nu, T, steps = 0.6, 0.8, 256
        q_a, p_b = 0.7, -0.4
        A = np.array([[0.0, 1.0], [-1.0, -nu]])
        M = expm(A * T)
        p_a = (p_b - M[1, 0] * q_a) / M[1, 1]
        by_q_a, by_p_b = np.array([1.0, -M[1, 0] / M[1, 1]]), np.array([0.0, 1 / M[1, 1]])

        def integrand(t: float) -> np.ndarray:
            E = expm(A * t)
            force = -nu * (E[1] @ [q_a, p_a])
            return force * np.array([E[0] @ by_q_a, E[0] @ by_p_b])

        expected = quad_vec(integrand, 0.0, T)[0]
        system = da.System(H=lambda q, p: (p @ p + q @ q) / 2, F=lambda q, p: -nu * p, dim=1)
        found = generating_function(
            system, np.array([q_a]), np.array([p_b]), T / steps, np.zeros((steps, 0))
        )
        np.testing.assert_allclose([found.F_minus[0], found.F_plus[0]], expected, rtol=1e-4)

    @pytest.mark.slow
    def test_generates_the_flow(self) -> None:
        system, (q, p), steps = cases.coupled(1, 1), cases.state(1), 16

        def residual(dt: float, method: Any) -> float:
            dW = da.brownian_path(5, 0, dt, steps, 1)
            return float(flow_residual(system, q, p, dt, dW, method).largest)

        # To rounding for the midpoint method, to which the midpoint sums belong.
        assert residual(0.025, None) < 1e-13
        large, small = residual(0.025, da.heun()), residual(0.025 / 16, da.heun())
        assert 1e-9 < small < large / 4 < 1e-2, (large, small)

    def test_methods_that_need_more_increments_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"e1 needs more than .* dW"):
            generating_function(
                cases.coupled(1, 1), *cases.state(1), 0.1, np.zeros((4, 1)), da.e1()
            )

    @pytest.mark.slow
    def test_gradient_and_failure_inside_jit(self) -> None:
        # With F = −p³, p(t) = p_a/√(1 + 2 p_a² t): no momentum above 1/√(2T) arrives.
        system = da.System(H=lambda q, p: (p @ p) / 2, F=lambda q, p: -(p**3), dim=1)
        steps, dW = 32, np.zeros((32, 0))

        def S(p_b: Any) -> Any:
            found = generating_function(system, jnp.zeros(1), p_b, 1 / steps, dW)
            return found.S, found.F_plus

        D2, F_plus = jax.jit(jax.vmap(jax.grad(S, has_aux=True)))(np.array([[0.3], [3.0]]))
        p_a = 0.3 / np.sqrt(1 - 2 * 0.3**2)
        q_b = (np.sqrt(1 + 2 * p_a**2) - 1) / p_a
        np.testing.assert_allclose((D2 - F_plus)[0, 0], q_b, rtol=1e-4)
        assert abs(F_plus[0, 0]) > 1e-2
        assert np.isnan(D2[1]).all() and np.isnan(F_plus[1]).all()
        with pytest.raises(ValueError, match=r"midpoint with dt=0\.03125 were not solved"):
            generating_function(system, np.zeros(1), np.array([3.0]), 1 / steps, dW)


class TestConvergence:
    """H_d⁺ and F_d^± of one step approach S and F^± of the same Brownian path."""

    DTS = (0.1, 0.05, 0.025, 0.0125)

    @pytest.mark.slow
    @pytest.mark.parametrize("method", [*cases.structured(), da.srkw2()], ids=lambda m: m.name)
    def test_one_noise(self, method: Any) -> None:
        # What is missing is ΔZ: of the size dt^{3/2}, for every method of strong order one.
        found = generating_order(cases.coupled(1, 1), method, *cases.state(1), self.DTS)
        assert all(1.3 < order < 2.3 for order in found.orders.values()), str(found)
        assert found.orders["H_d"] < 1.7, str(found)

    @pytest.mark.slow
    def test_noises_that_do_not_commute(self) -> None:
        # What is missing are Lévy areas: of the size dt.
        system, (q, p) = cases.coupled(1, 2), cases.state(1)
        for method in [da.midpoint(), da.stormer_verlet()]:
            found = generating_order(system, method, q, p, self.DTS)
            assert min(found.orders.values()) > 0.85, str(found)
            assert found.orders["H_d"] < 1.3, str(found)

    @pytest.mark.slow
    def test_not_for_a_method_that_does_not_converge(self) -> None:
        # βᵀb¹e = 0 instead of ½: ΔW² is wrong, which is of the size dt.
        method = replace(da.srkw1(0.5), b1=[[0.0]], name="wrong")
        found = generating_order(cases.coupled(1, 1), method, *cases.state(1), self.DTS)
        assert found.orders["H_d"] < 1.15, str(found)

    @pytest.mark.slow
    def test_prints_as_a_table(self) -> None:
        found = generating_order(cases.coupled(1, 1), da.midpoint(), *cases.state(1), self.DTS[:2])
        assert "midpoint" in str(found) and "order" in str(found).splitlines()[-1]

    def test_needs_two_step_sizes(self) -> None:
        with pytest.raises(ValueError, match="at least two step sizes"):
            generating_order(cases.coupled(1, 1), da.midpoint(), *cases.state(1), [0.1])
