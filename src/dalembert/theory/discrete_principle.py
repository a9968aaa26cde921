"""The discrete action of a path and the discrete Lagrange–d'Alembert principle.

The paths that H_d⁺ and F_d^± generate (`dalembert.theory.variational`) are those on which the
discrete action varies by the work of the discrete forces.

Reference: KrausTyranowski2021, section 3.1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.precision import is_traced
from dalembert.system import System
from dalembert.theory.mixed import Generated
from dalembert.theory.solving import evaluate
from dalembert.theory.variational import along, largest, method_path_arguments

__all__ = ["PrincipleResidual", "discrete_action", "discrete_principle_residual", "pair", "size"]


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
        return largest(self.relative)

    def __str__(self) -> str:
        if is_traced(self):
            return repr(self)
        lines = [f"{'δB':>13} {'work':>13} {'(δB − work)/scale':>19}"]
        rows = zip(*map(np.asarray, (self.variation, self.work, self.relative)), strict=True)
        lines += [f"{b:13.5e} {w:13.5e} {r:19.1e}" for b, w, r in rows]
        return "\n".join([*lines, f"largest: {float(self.largest):.1e}"])


def discrete_action(system: System, method: Any, q: Any, p: Any, dt: Any, dW: Any) -> Any:
    """The discrete action B_d = p_K·q_K − Σ_k (p_{k+1}·q_{k+1} − H_d⁺(q_k, p_{k+1})) of a path.

    It depends neither on q_K nor on p_0. Arguments as in `generating_residual`.
    """
    arguments = method_path_arguments(system, method, q, p, dW)
    return evaluate(_discrete_action, system, method, arguments, dt)


def discrete_principle_residual(
    system: System,
    method: Any,
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
    arguments = method_path_arguments(system, method, q, p, dW)
    steps = arguments[-1].shape[0]
    if steps < 2:
        raise ValueError("the principle says nothing about one step alone: give a path of K ≥ 2.")
    rng = np.random.default_rng(seed)
    delta_q, delta_p = rng.standard_normal((2, variations, steps + 1, system.dim))
    delta_q[:, 0], delta_p[:, -1] = 0.0, 0.0
    return evaluate(_principle, system, method, (*arguments, delta_q, delta_p), dt)


def _action(q: Any, p: Any, found: Generated) -> Any:
    return p[-1] @ q[-1] - jnp.sum(jnp.sum(p[1:] * q[1:], axis=1) - found.H_d)


def _discrete_action(
    system: System, params: Any, dt: Any, weights: Any, q: Any, p: Any, dW: Any
) -> Any:
    found = along(system, params, dt, weights, q, p, dW)
    return _action(q, p, found), found.info


def _principle(
    system: System,
    params: Any,
    dt: Any,
    weights: Any,
    q: Any,
    p: Any,
    dW: Any,
    delta_q: Any,
    delta_p: Any,
) -> Any:
    def action(q: Any, p: Any) -> tuple[Any, Generated]:
        found = along(system, params, dt, weights, q, p, dW)
        return _action(q, p, found), found

    (B_q, B_p), found = jax.grad(action, (0, 1), has_aux=True)(q, p)
    variation = pair(B_q, delta_q) + pair(B_p, delta_p)
    work = pair(found.F_minus, delta_q[:, :-1]) + pair(found.F_plus, delta_p[:, 1:])
    scale = size(p) * size(delta_q) + size(q) * size(delta_p)
    return PrincipleResidual(variation, work, scale), found.info


def pair(covectors: Any, variations: Any) -> Any:
    """Σ_k covector_k · variation_k for every variation."""
    return jnp.einsum("kd,vkd->v", covectors, variations)


def size(x: Any) -> Any:
    """Euclidean norm over steps and components, the last two axes."""
    return jnp.sqrt(jnp.sum(x**2, axis=(-2, -1)))
