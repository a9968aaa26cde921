"""Actions of a path and the Lagrange–d'Alembert principle, discrete and continuous.

Discrete: the paths that H_d⁺ and F_d^± generate (`dalembert.theory.variational`) are those on which
the discrete action varies by the work of the discrete forces.

Continuous: on a path given on a fine grid, Stratonovich integrals are midpoint sums, for example

    ∫ p∘dq ≈ Σ_k p̄_k·(q_{k+1} − q_k),   ∫ h∘dW ≈ Σ_k h(z̄_k) ΔW_k,   z̄_k = ½(z_k + z_{k+1}),

so that the statement holds up to the resolution of the grid. The increments of the path are those
that it was computed with, e.g. from `da.brownian_path`; `da.coarsen` gives the same Brownian path
on a coarser grid.

Reference: KrausTyranowski2021, sections 2.1 and 3.1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.methods import Method
from dalembert.precision import is_traced
from dalembert.system import ALL, System
from dalembert.theory.manifold import refuse_constraints
from dalembert.theory.mixed import hamiltonian
from dalembert.theory.solving import run_kernel
from dalembert.theory.variational import generate_all, largest_component, path_arguments

MODES = 4
"""Trigonometric functions in a random variation: smooth, but not too smooth to see an error."""


class PrincipleResidual(NamedTuple):
    """Variations of an action beside the work of the forces along them.

    Attributes:
        variation: δB for every variation, shape (variations,).
        work: work of the forces along it, shape (variations,).
        scale: size ‖p‖‖δq‖ + ‖q‖‖δp‖ of what cancels in δB, shape (variations,).
    """

    variation: Any
    work: Any
    scale: Any

    @property
    def relative(self) -> Any:
        """(δB − work) / scale for every variation: zero if the principle holds."""
        return (self.variation - self.work) / self.scale

    @property
    def largest(self) -> Any:
        """The largest |δB − work| / scale."""
        return largest_component(self.relative)

    def __str__(self) -> str:
        if is_traced(self):
            return repr(self)
        lines = [f"{'δB':>13} {'work':>13} {'(δB − work)/scale':>19}"]
        rows = zip(*map(np.asarray, (self.variation, self.work, self.relative)), strict=True)
        lines += [f"{b:13.5e} {w:13.5e} {r:19.1e}" for b, w, r in rows]
        return "\n".join([*lines, f"largest: {float(self.largest):.1e}"])


def discrete_action(system: System, method: Method, q: Any, p: Any, dt: Any, dW: Any) -> Any:
    """The discrete action B_d = p_K·q_K − Σ_k (p_{k+1}·q_{k+1} − H_d⁺(q_k, p_{k+1})) of a path.

    It depends neither on q_K nor on p_0. Arguments as in `generating_residual`.
    """
    refuse_constraints(system, "discrete_action")
    q, p, _ = path_arguments(system, q, p, dW)
    (H_d,) = generate_all(system, method, q[:-1], p[1:], dt, dW, "H_d")
    return H_d.sum() - (p[1:-1] * q[1:-1]).sum()


def discrete_principle_residual(
    system: System,
    method: Method,
    q: Any,
    p: Any,
    dt: Any,
    dW: Any,
    *,
    variations: int = 8,
    seed: int = 0,
) -> PrincipleResidual:
    """The discrete Lagrange–d'Alembert principle along a path, under random variations.

        δB_d − Σ_k (F_d⁻(q_k, p_{k+1})·δq_k + F_d⁺(q_k, p_{k+1})·δp_{k+1}) = 0

    for all δq, δp with δq_0 = 0 and δp_K = 0. It holds exactly for the paths that H_d⁺ and F_d^±
    generate, so `.largest` is rounding on a path that a Lagrange–d'Alembert method has made.

    Args:
        system, method, q, p, dt, dW: as in `generating_residual`; K ≥ 2.
        variations: how many; each is a sequence of independent normal numbers.
        seed: of the variations.
    """
    refuse_constraints(system, "discrete_principle_residual")
    q, p, _ = path_arguments(system, q, p, dW)
    if len(q) < 3:
        raise ValueError("the principle says nothing about one step alone: give a path of K ≥ 2.")
    rng = np.random.default_rng(seed)
    delta_q, delta_p = rng.standard_normal((2, variations, *q.shape)).astype(q.dtype)
    delta_q[:, 0], delta_p[:, -1] = 0.0, 0.0
    fields = ("D1", "D2", "F_minus", "F_plus")
    D1, D2, F_minus, F_plus = generate_all(system, method, q[:-1], p[1:], dt, dW, *fields)
    # What B_d = Σ H_d⁺ − Σ p_k·q_k (over inner points) changes by, and beside it the forces.
    generated, work = (
        _pair(left, delta_q[:, :-1]) + _pair(right, delta_p[:, 1:])
        for left, right in ((D1, D2), (F_minus, F_plus))
    )
    products = _pair(p[1:-1], delta_q[:, 1:-1]) + _pair(q[1:-1], delta_p[:, 1:-1])
    return PrincipleResidual(generated - products, work, _scale(q, p, delta_q, delta_p))


def action(system: System, q: Any, p: Any, dt: Any, dW: Any) -> Any:
    """The stochastic action B[q, p] = p(t_b)·q(t_b) − ∫ (p∘dq − H dt − Σ h_i∘dW_i) of a path.

    Args:
        system: what is simulated.
        q: positions, shape (K + 1, dim).
        p: momenta, shape (K + 1, dim).
        dt: step of the grid, > 0.
        dW: increments over the K steps, shape (K, noises), or an `Increments` record of them.

    Returns:
        B, shape ().
    """
    refuse_constraints(system, "action")
    return run_kernel(_action, system, None, path_arguments(system, q, p, dW), dt)


def principle_residual(
    system: System,
    q: Any,
    p: Any,
    dt: Any,
    dW: Any,
    *,
    variations: int = 8,
    seed: int = 0,
    rough: bool = False,
) -> PrincipleResidual:
    """The stochastic Lagrange–d'Alembert principle along a path, under random variations.

        δB − ∫ F·δq dt − Σ_i ∫ f_i·δq∘dW_i = 0

    for all δq, δp with δq(t_a) = 0 and δp(t_b) = 0, if the path solves the equations. On a grid it
    holds up to the resolution: `.largest` vanishes with dt, like dt for one noise.

    Args:
        system, q, p, dt, dW: as in `action`.
        variations: how many; each is a sum of a few trigonometric functions of time with normal
            coefficients, the same functions on every grid.
        seed: of the variations.
        rough: add the Wiener processes to the variations, which then are semimartingales like the
            path itself.
    """
    refuse_constraints(system, "principle_residual")
    rng = np.random.default_rng(seed)
    smooth = rng.standard_normal((2, variations, MODES, system.dim)) / MODES
    wiener = rng.standard_normal((2, variations, system.noises, system.dim)) * float(rough)
    arguments = (*path_arguments(system, q, p, dW), smooth, wiener)
    return run_kernel(_principle, system, None, arguments, dt)


def midpoints(x: Any) -> Any:
    """Means of neighbours, shape (K, dim)."""
    return (x[1:] + x[:-1]) / 2


def sum_action(system: System, params: Any, dt: Any, q: Any, p: Any, dW: Any) -> Any:
    """B as midpoint sums."""

    def integrand(q: Any, p: Any, dW: Any) -> Any:
        value = dt * hamiltonian(system, None)(q, p, params)
        if system.is_joint:
            return value + hamiltonian(system, ALL)(q, p, params, dW)
        for i in range(system.noises):
            value = value + dW[i] * hamiltonian(system, i)(q, p, params)
        return value

    q_bar, p_bar = midpoints(q), midpoints(p)
    hamiltonians = jax.vmap(integrand)(q_bar, p_bar, dW)
    return p[-1] @ q[-1] - jnp.sum(p_bar * (q[1:] - q[:-1])) + jnp.sum(hamiltonians)


def impulses_at_midpoints(system: System, params: Any, dt: Any, q: Any, p: Any, dW: Any) -> Any:
    """F dt + Σ f_i ΔW_i at the midpoints, shape (K, dim)."""

    def impulse(q: Any, p: Any, dW: Any) -> Any:
        increments: list[Any] = [(system.term(("F", 0)), dt, ())]
        if system.is_joint:
            increments.append((system.term(("f", ALL)), 1.0, (dW,)))
        else:
            increments += [(system.term(("f", i)), dW[i], ()) for i in range(system.noises)]
        forces = (step * force(q, p, params, *w) for force, step, w in increments if force)
        return sum(forces, jnp.zeros_like(q))

    return jax.vmap(impulse)(midpoints(q), midpoints(p), dW)


def _action(*arguments: Any) -> tuple[Any, None]:
    return sum_action(*arguments), None


def _principle(
    system: System, params: Any, dt: Any, q: Any, p: Any, dW: Any, smooth: Any, wiener: Any
) -> tuple[PrincipleResidual, None]:
    B_q, B_p = jax.grad(sum_action, (3, 4))(system, params, dt, q, p, dW)
    delta_q, delta_p = _variations(dW, smooth, wiener)
    impulses = impulses_at_midpoints(system, params, dt, q, p, dW)
    work = _pair(impulses, jax.vmap(midpoints)(delta_q))
    scale = _scale(q, p, delta_q, delta_p) / len(q)
    return PrincipleResidual(_pair(B_q, delta_q) + _pair(B_p, delta_p), work, scale), None


def _variations(dW: Any, smooth: Any, wiener: Any) -> Any:
    """δq with δq(t_a) = 0 and δp with δp(t_b) = 0, each of shape (variations, K + 1, dim)."""
    s = np.linspace(0.0, 1.0, dW.shape[0] + 1)[:, None]
    # sin((j − ½)πs) vanishes at s = 0 and is free at s = 1; the cosines the other way round.
    phase = np.pi * (np.arange(MODES) + 0.5)[None, :] * s
    waves = np.stack([np.sin(phase), np.cos(phase)])
    waves[1, -1] = 0.0
    W = jnp.concatenate([jnp.zeros_like(dW[:1]), jnp.cumsum(dW, axis=0)])
    rough = jnp.asarray(np.stack([s, 1 - s]), dW.dtype) * W[None]
    found = jnp.einsum("xkj,xvjd->xvkd", jnp.asarray(waves, dW.dtype), smooth)
    return found + jnp.einsum("xki,xvid->xvkd", rough, wiener)


def _pair(covectors: Any, variations: Any) -> Any:
    """Σ_k covector_k · variation_k for every variation."""
    return (covectors[None] * variations).sum(axis=(-2, -1))


def _scale(q: Any, p: Any, delta_q: Any, delta_p: Any) -> Any:
    """‖p‖‖δq‖ + ‖q‖‖δp‖ with Euclidean norms over steps and components."""

    def norm(x: Any) -> Any:
        return (x**2).sum(axis=(-2, -1)) ** 0.5

    return norm(p) * norm(delta_q) + norm(q) * norm(delta_p)
