"""The stochastic action of a path and its Lagrange–d'Alembert principle.

On a path given on a fine grid, Stratonovich integrals are midpoint sums, for example

    ∫ p∘dq ≈ Σ_k p̄_k·(q_{k+1} − q_k),   ∫ h∘dW ≈ Σ_k h(z̄_k) ΔW_k,   z̄_k = ½(z_k + z_{k+1}),

so that everything here is the continuous statement up to the resolution of the grid. The increments
of the path are those that it was computed with, e.g. from `da.brownian_path`; `da.coarsen` gives
the same Brownian path on a coarser grid.

Reference: KrausTyranowski2021, section 2.1.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.stepping.stepper import StepInfo
from dalembert.system import System
from dalembert.theory.discrete_principle import PrincipleResidual, pair, size
from dalembert.theory.mixed import hamiltonian
from dalembert.theory.solving import evaluate
from dalembert.theory.variational import path_arguments

__all__ = ["action", "impulses_at_midpoints", "midpoints", "principle_residual", "sum_action"]

MODES = 4
"""Trigonometric functions in a random variation: smooth, but not too smooth to see an error."""

SOLVED = StepInfo(np.array(True), np.array(0), np.array(0.0))
"""The report where nothing has to be solved."""


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
    return evaluate(_action, system, None, path_arguments(system, q, p, dW), dt)


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
    rng = np.random.default_rng(seed)
    smooth = rng.standard_normal((2, variations, MODES, system.dim)) / MODES
    wiener = rng.standard_normal((2, variations, system.noises, system.dim)) * float(rough)
    arguments = (*path_arguments(system, q, p, dW), smooth, wiener)
    return evaluate(_principle, system, None, arguments, dt)


def midpoints(x: Any) -> Any:
    """Means of neighbours, shape (K, dim)."""
    return (x[1:] + x[:-1]) / 2


def sum_action(system: System, params: Any, dt: Any, q: Any, p: Any, dW: Any) -> Any:
    """B as midpoint sums."""

    def integrand(q: Any, p: Any, dW: Any) -> Any:
        value = dt * hamiltonian(system, None)(q, p, params)
        for i in range(system.noises):
            value = value + dW[i] * hamiltonian(system, i)(q, p, params)
        return value

    q_bar, p_bar = midpoints(q), midpoints(p)
    hamiltonians = jax.vmap(integrand)(q_bar, p_bar, dW)
    return p[-1] @ q[-1] - jnp.sum(p_bar * (q[1:] - q[:-1])) + jnp.sum(hamiltonians)


def impulses_at_midpoints(system: System, params: Any, dt: Any, q: Any, p: Any, dW: Any) -> Any:
    """F dt + Σ f_i ΔW_i at the midpoints, shape (K, dim)."""

    def impulse(q: Any, p: Any, dW: Any) -> Any:
        increments = [(system.term(("F", 0)), dt)]
        increments += [(system.term(("f", i)), dW[i]) for i in range(system.noises)]
        forces = (step * force(q, p, params) for force, step in increments if force is not None)
        return sum(forces, jnp.zeros_like(q))

    return jax.vmap(impulse)(midpoints(q), midpoints(p), dW)


def _action(system: System, params: Any, dt: Any, q: Any, p: Any, dW: Any) -> Any:
    return sum_action(system, params, dt, q, p, dW), SOLVED


def _principle(
    system: System, params: Any, dt: Any, q: Any, p: Any, dW: Any, smooth: Any, wiener: Any
) -> Any:
    B_q, B_p = jax.grad(sum_action, (3, 4))(system, params, dt, q, p, dW)
    delta_q, delta_p = _variations(dW, smooth, wiener)
    work = pair(impulses_at_midpoints(system, params, dt, q, p, dW), jax.vmap(midpoints)(delta_q))
    scale = (size(p) * size(delta_q) + size(q) * size(delta_p)) / len(q)
    return PrincipleResidual(pair(B_q, delta_q) + pair(B_p, delta_p), work, scale), SOLVED


def _variations(dW: Any, smooth: Any, wiener: Any) -> tuple[Any, Any]:
    """δq with δq(t_a) = 0 and δp with δp(t_b) = 0, each of shape (variations, K + 1, dim)."""
    steps = dW.shape[0]
    s = np.linspace(0.0, 1.0, steps + 1)[:, None]
    # sin((j − ½)πs) vanishes at s = 0 and is free at s = 1; the cosines the other way round.
    phase = np.pi * (np.arange(MODES) + 0.5)[None, :] * s
    waves = np.stack([np.sin(phase), np.cos(phase)])
    waves[1, -1] = 0.0
    W = jnp.concatenate([jnp.zeros_like(dW[:1]), jnp.cumsum(dW, axis=0)])
    envelopes = jnp.asarray(np.stack([s, 1 - s]), dW.dtype)
    rough = envelopes * W[None]
    found = jnp.einsum("xkj,xvjd->xvkd", jnp.asarray(waves, dW.dtype), smooth)
    found = found + jnp.einsum("xki,xvid->xvkd", rough, wiener)
    return found[0], found[1]
