"""Every substantive erratum of the paper: the corrected form holds, the printed one does not.

Those of the Störmer–Verlet Jacobian (2) and of ∂S/∂q_a (6) are in `test_forms.py` and
`test_action.py`.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
import variational_cases as cases
from dalembert.theory import jacobian, symplectic_defect, without_forces

RNG = np.random.default_rng(0)


def general_system(dim=2, noises=2):
    """Non-separable Hamiltonians and nonlinear forces."""

    def noise(i):
        return lambda q, p: 0.3 * jnp.sin(q[0] + (i + 1) * p[1]) * jnp.cos(p[0] - q[1])

    def force(i):
        return lambda q, p: 0.2 * jnp.sin(p * q[0] + i) + 0.1 * p[1] * q

    return da.System(
        H=lambda q, p: p @ p / 2 + jnp.cos(q[0]) * (1 + p[1] ** 2 / 10) + q @ q / 2,
        F=force(5),
        h=[noise(i) for i in range(noises)],
        f=[force(i) for i in range(noises)],
        dim=dim,
    )


def ito_momentum_drift(system, q, p, printed):
    """The momentum row of the Itô drift, with Hessians written out as in the paper."""
    total = system.drift(q, p)[1]
    for h, f in zip(system.h, system.f, strict=True):
        h_q, h_p = jax.grad(h, 0)(q, p), jax.grad(h, 1)(q, p)
        h_qq = jax.hessian(h, 0)(q, p)
        h_qp = jax.jacfwd(jax.grad(h, 0), 1)(q, p)
        f_q, f_p = jax.jacfwd(f, 0)(q, p), jax.jacfwd(f, 1)(q, p)
        factor = (h_p if printed else h_q) - f(q, p)
        total = total + ((h_qp - f_p) @ factor - (h_qq - f_q) @ h_p) / 2
    return total


def test_1_ito_drift():
    system = general_system()

    @jax.jit
    def drifts(q, p):
        forms = [ito_momentum_drift(system, q, p, printed) for printed in (False, True)]
        return system.ito(q, p)[0][2:], *forms

    for _ in range(5):
        drift, corrected, printed = drifts(*RNG.normal(size=(2, 2)))
        np.testing.assert_allclose(drift, corrected, rtol=1e-13, atol=1e-15)
        assert np.abs(drift - printed).max() > 1e-3


def test_3_lorentz_forcing_does_no_work():
    system = da.systems.lorentz()
    strength = np.sqrt(2 * system.params["nu"])
    q, p = RNG.normal(size=(2, 2))
    force = system.diffusion(q, p)[1][0]
    np.testing.assert_allclose(force, strength * np.array([p[1], -p[0]]), rtol=1e-14)
    assert abs(force @ p) < 1e-16
    printed = strength * np.array([p[0], -p[1]])
    assert abs(printed @ p) > 1e-3


@pytest.mark.slow
def test_4_discrete_noether_uses_the_derivative_in_the_momentum():
    """q_{k+1} − D₂H_d⁺ is −F_d⁺, which the proof needs; q_{k+1} − D₁H_d⁺ is not."""
    system = da.System(
        H=lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0]),
        F=lambda q, p: -0.3 * p**3,
        h=[lambda q, p: 0.4 * jnp.sin(q[0])],
        dim=1,
    )
    method = da.midpoint()
    (q, p), dt, dW = cases.state(1), 0.1, np.array([0.2])
    q_next, p_next, info = da.step(system, method, q, p, dt, dW)
    assert info.converged
    force = da.discrete_hamiltonian(system, method, q, p_next, dt, dW).F_plus

    def hamiltonian(q, p_next):
        return da.discrete_hamiltonian(system, method, q, p_next, dt, dW).H_d

    by_position, by_momentum = jax.jit(jax.grad(hamiltonian, (0, 1)))(q, p_next)
    np.testing.assert_allclose(q_next - by_momentum, -force, atol=1e-13)
    assert np.abs(q_next - by_position + force).max() > 1e-2


def test_8_the_printed_dirk_family_is_not_the_most_general():
    other = cases.general_dirk()
    certificate = da.certify(other)
    assert certificate.lagrange_dalembert
    assert max(certificate.residuals.values()) < 1e-15
    assert certificate.order["one"] == 1.0
    spoiled = replace(other, a=[[0.155, 0.0], [0.31, 0.345]])
    assert not da.certify(spoiled).lagrange_dalembert


@pytest.mark.slow
def test_9_srkw2_has_no_structure_with_two_noises():
    system = without_forces(da.systems.two_noise())
    q, p, dt, dW = np.array([0.7]), np.array([-0.4]), 0.1, np.array([0.3, -0.2])
    with pytest.raises(ValueError, match="srkw2 takes at most 1 noise"):
        da.step(system, da.srkw2(), q, p, dt, dW)
    forced = replace(da.srkw2(), max_noises=None)
    assert symplectic_defect(jacobian(system, forced, q, p, dt, dW)) > 1e-6
    assert symplectic_defect(jacobian(system, da.srkw1(0.0), q, p, dt, dW)) < 1e-14


def test_10_dirk_needs_truncation_too():
    """f = −κp: the first stage of DIRK(λ) reads (1 + λκΔW/2) P = …, singular at ΔW = −2/(λκ)."""
    kappa = 1.0
    system = da.System(H=lambda q, p: p[0] ** 2 / 2 + q[0], f=[lambda q, p: -kappa * p], dim=1)
    method, dt = da.dirk(0.5), 0.01
    bad, state = np.array([-4 / kappa]), (np.array([1.0]), np.array([1.0]))
    assert not da.step(system, method, *state, dt, bad)[2].converged
    bound = np.sqrt(2 * dt * abs(np.log(dt)))
    assert bound < 4
    assert da.step(system, method, *state, dt, np.clip(bad, -bound, bound))[2].converged
