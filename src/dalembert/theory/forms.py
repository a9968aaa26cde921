"""The symplectic form and the volume of phase space under the flow and under a method.

With z = (q, p) and M = ∂z(t)/∂z(0), the flow of a system with F = −Γ₀p, f_i = −Γ_i p obeys

    det M = b_t,        b_t = exp(−tr Γ₀ t − Σ tr Γ_i W_i(t))           (any such Γ)
    Mᵀ Ω M = c_t Ω,     c_t = exp(−ν₀ t − Σ ν_i W_i(t)),  b_t = c_tᴺ    (Γ_i = ν_i I)

`KrausTyranowski2021`, section 2.4. A method has factors of its own, from the derivative of its
step; they are found here by automatic differentiation and compared with these.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.driven import time_of
from dalembert.methods import Method
from dalembert.noise import Increments
from dalembert.precision import cast, is_traced, with_precision
from dalembert.stepping.step import as_increments, check_method
from dalembert.stepping.stepper import Stepper, make_stepper
from dalembert.system import System
from dalembert.theory.facts import Probe
from dalembert.theory.paths import one_step, sample_points
from dalembert.theory.sampled import MOST_TERMS


def symplectic_form(dim: int) -> np.ndarray:
    """The matrix Ω = [[0, I], [−I, 0]] of Σ dq_i ∧ dp_i, shape (2·dim, 2·dim)."""
    return np.kron(np.array([[0.0, 1.0], [-1.0, 0.0]]), np.eye(dim))


def symplectic_defect(M: Any) -> Any:
    """max |MᵀΩM − Ω|: zero for the derivative of a symplectic map. M may be a stack of matrices."""
    return _defect(M, 1.0)


def own_conformal_factor(M: Any) -> Any:
    """The c for which cΩ is nearest to MᵀΩM (least squares); for dim = 1 it is det M."""
    omega, pulled_back = _forms(M)
    return np.sum(omega * pulled_back, axis=(-2, -1)) / len(omega)


def conformal_defect(M: Any) -> Any:
    """max |MᵀΩM − cΩ|/|c| with the nearest c: zero for a conformally symplectic map."""
    c = own_conformal_factor(M)
    return _defect(M, c) / np.abs(c)


def _forms(M: Any) -> tuple[np.ndarray, np.ndarray]:
    """Ω and MᵀΩM."""
    M = np.asarray(M)
    omega = symplectic_form(M.shape[-1] // 2)
    return omega, np.swapaxes(M, -1, -2) @ omega @ M


def _defect(M: Any, c: Any) -> Any:
    omega, pulled_back = _forms(M)
    return np.max(np.abs(pulled_back - np.asarray(c)[..., None, None] * omega), axis=(-2, -1))


def jacobian(
    system: System, method: Method, q: Any, p: Any, dt: Any, dW: Any, *, t: Any = None
) -> Any:
    """The derivative of one step, M = ∂(q', p')/∂(q, p), shape (2·dim, 2·dim).

    Exact up to rounding: implicit stages are differentiated by the implicit function theorem.
    Arguments as in `da.step`; works under `jax.jit` and `jax.vmap`.
    """
    check_method(system, method)
    increments = as_increments(system, method, dW)
    z, t = (system.flat("q", q), system.flat("p", p)), time_of(system, t)
    kind = z[0].dtype if is_traced(z, increments, dt, t) else np.float64

    def run(q: Any, p: Any, increments: Increments, params: Any, dt: Any, t: Any) -> Any:
        compiled = compiled_jacobian(make_stepper(system, method, kind))
        q, p, increments, params, t = cast((q, p, increments, params, t), np.dtype(kind))
        return compiled(q, p, jnp.asarray(dt, kind), increments, params, t)[0]

    return with_precision(run, *z, increments, system.params, dt, t)


@kept
def compiled_jacobian(stepper: Stepper) -> Any:
    """(q, p, dt, increments, params) → derivative of the step, new state z', StepInfo."""

    def run(q: Any, p: Any, dt: Any, increments: Increments, params: Any, t: Any = None) -> Any:
        def advance(z: Any) -> Any:
            q, p, info = one_step(stepper)(*jnp.split(z, 2), dt, increments, params, t)
            z = jnp.concatenate([q, p])
            return z, (z, info)

        M, (z, info) = jax.jacfwd(advance, has_aux=True)(jnp.concatenate([q, p]))
        return M, z, info

    return jax.jit(run)


class LinearFriction(NamedTuple):
    """Friction F = −Γ₀p, f_i = −Γ_i p with constant matrices.

    Attributes:
        gammas: Γ₀, Γ₁, …, Γ_m, shape (noises + 1, dim, dim); None for large systems.
        traces: tr Γ₀, tr Γ₁, …, tr Γ_m.
        rates: ν₀, ν₁, …, ν_m if every Γ_i is ν_i I, else None.
    """

    gammas: np.ndarray | None
    traces: np.ndarray
    rates: np.ndarray | None


def linear_friction(system: System, seed: int = 0, samples: int = 32) -> LinearFriction:
    """The matrices of a linear friction, by derivatives at sample points.

    Those of large systems are known by what they do to random directions, and by their traces.

    Raises:
        ValueError: if a force is not −Γp with a constant matrix, with the point where it shows.
    """
    return _linear_friction(system, system.key, seed, samples)


@kept
def _linear_friction(system: System, key: Hashable, seed: int, samples: int) -> LinearFriction:
    is_large = max(system.dim, system.noises) > MOST_TERMS
    probe = Probe(system, sample_points(system, 2 if is_large else samples, seed), seed)
    frictions = [_friction(probe, kind) for kind in ("F", "f")]
    is_conformal = all(map(probe.conformal, ("F", "f"), frictions))
    rates = np.asarray(probe.rates(*frictions)) if is_conformal else None
    if is_large:
        return LinearFriction(None, system.dim * rates if is_conformal else probe.traces(), rates)
    gammas = np.swapaxes(np.concatenate(frictions), 1, 2)[:, : system.dim, : system.dim]
    return LinearFriction(gammas, np.trace(gammas, axis1=1, axis2=2), rates)


def _friction(probe: Probe, kind: str) -> np.ndarray:
    """Γ of forces that are −Γp, as the probe gives it; others are refused."""
    friction, is_constant = probe.friction(kind)
    along_q = probe.slopes(kind, 0)
    (at_rest,) = probe.at_all(lambda q, p: (probe.term(kind)(q, jnp.zeros_like(p)),))
    size = np.broadcast_to(friction, along_q.shape)
    for what, value, fact in (
        ("∂{}/∂q is not zero", along_q, probe.vanishes(along_q, size)),
        ("∂{}/∂p is not constant", None, is_constant),
        ("{}(q, 0) is not zero", at_rest, probe.vanishes(at_rest, size)),
    ):
        if not fact:
            name = probe.name(kind, fact.row)
            found = "" if value is None else f"{np.nanmax(np.abs(value)):.1e} "
            raise ValueError(
                f"{name} of {probe.system.name!r} is not -Gamma p with a constant matrix: "
                f"{what.format(name)} ({found}at {fact.where}). The exact factors are known "
                "for such forces alone; quasi_symplecticity or jacobian show what a method does."
            )
    return friction


def volume_factor(system: System, t: Any, W: Any) -> np.ndarray:
    """b_t = exp(−tr Γ₀ t − Σ tr Γ_i W_i(t)), by which the flow changes volumes, det M.

    Args:
        system: one with F = −Γ₀p and f_i = −Γ_i p; others are refused with the reason.
        t: time since the start, shape (…).
        W: the Wiener processes at that time, shape (…, noises).
    """
    return _exponential(linear_friction(system).traces, system, t, W)


def conformal_factor(system: System, t: Any, W: Any) -> np.ndarray:
    """c_t = exp(−ν₀ t − Σ ν_i W_i(t)), by which the flow multiplies the symplectic form.

    Args:
        system: one with F = −ν₀p and f_i = −ν_i p; others are refused with the reason.
        t: time since the start, shape (…).
        W: the Wiener processes at that time, shape (…, noises).
    """
    friction = linear_friction(system)
    if friction.rates is None:
        raise ValueError(
            f"the friction of {system.name!r} is linear but not -nu p with a number nu, so its "
            "flow need not be conformally symplectic; volume_factor applies to it."
        )
    return _exponential(friction.rates, system, t, W)


def _exponential(rates: np.ndarray, system: System, t: Any, W: Any) -> np.ndarray:
    W = np.asarray(W, np.float64)
    if W.ndim == 0 or W.shape[-1] != system.noises:
        raise ValueError(
            f"W must have shape (..., {system.noises}), one value per Wiener process of "
            f"{system.name!r}, not {W.shape}."
        )
    return np.exp(-rates[0] * np.asarray(t, np.float64) - W @ rates[1:])


def stormer_verlet_jacobian(gamma0: Any, gammas: Sequence[Any], dt: float, dW: Any) -> float:
    """det M of one Störmer–Verlet step for separable H, h_i and F = −Γ₀p, f_i = −Γ_i p.

        J = det((I − γ/2)(I + γ/2)⁻¹),   γ = Δt Γ₀ + Σ ΔW_i Γ_i

    The paper prints det(I + γ(I − γ/2)⁻¹), which has the wrong sign of γ.

    Args:
        gamma0: Γ₀, shape (dim, dim); a number stands for a 1 × 1 matrix.
        gammas: Γ_1, …, Γ_m in the same form.
        dt: step size.
        dW: Wiener increments, shape (m,).
    """
    matrices = [np.atleast_2d(np.asarray(g, np.float64)) for g in (gamma0, *gammas)]
    weights = np.array([dt, *np.atleast_1d(np.asarray(dW, np.float64))])
    if len(weights) != len(matrices):
        raise ValueError(f"{len(matrices) - 1} matrices gammas and {len(weights) - 1} values dW.")
    half = np.einsum("k,kij->ij", weights, np.stack(matrices)) / 2
    identity = np.eye(len(half))
    return float(np.linalg.det(identity - half) / np.linalg.det(identity + half))
