"""Systems with constraints: their tangent bundle, discrete Hamiltonians there, and what is refused.

The manifold is C(q, p) = (g(q), Dg(q) H_p(q, p)) = 0.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.precision import with_precision
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.constraint_blocks import find_blocks
from dalembert.stepping.manifold import Manifold
from dalembert.stepping.project import nearest_ranks
from dalembert.stepping.stepper import StepInfo
from dalembert.system import System
from dalembert.theory.mixed import Generated, MixedStep
from dalembert.theory.solving import find_root, relative_size, trusted

MOST_DIM = 512
"""Degrees of freedom up to which tangent vectors are made tangent to constraints, by a matrix."""


def refuse_constraints(system: System, what: str) -> None:
    """Refuse what is not known for systems with constraints."""
    if system.constraint_count:
        raise ValueError(
            f"{what} takes no constraints, and {system.name!r} has {system.constraint_count}: "
            "nothing is known of it on a manifold. With constraints there are da.simulate, "
            "da.strong_order, da.theory.tangent_pairs, da.discrete_hamiltonian and "
            "da.theory.balance_residual."
        )


@dataclass(frozen=True)
class ConstraintFacts:
    """What was found out about the constraints of a system.

    Attributes:
        count: how many there are.
        rank: the smallest rank of Dg at the states that were tried, which are on g(q) = 0; if none
            could be moved there, the largest rank.
        dimension: of the manifold g(q) = 0, where the rank is that.
        is_met: whether states could be moved to g(q) = 0.
        least: the least eigenvalue of Dg H_pp Dgᵀ, with rows of length one: near zero constraints
            are nearly redundant, and steps must be small.
        blocks: how many groups of constraints share no coordinates.
        where: the positions where the rank is smallest, or the eigenvalue is.
    """

    count: int
    rank: int
    dimension: int
    is_met: bool
    least: float
    blocks: int
    where: tuple[float, ...]

    @property
    def is_singular(self) -> bool:
        """Whether constraints were seen to be redundant."""
        return self.rank < self.count


def constraint_facts(system: System, q: Any, p: Any) -> ConstraintFacts | None:
    """The constraints of a system at some states, (n, dim), that are first moved to them."""
    if not system.constraint_count:
        return None
    count, blocks = system.constraint_count, find_blocks(system).places.shape[1]
    found, is_met, ranks = nearest_ranks(system, q, p)
    place = (min if is_met else max)(range(len(ranks)), key=ranks.__getitem__)
    rank, least = ranks[place]
    where = tuple(found[place].tolist())
    return ConstraintFacts(count, rank, system.dim - rank, is_met, least, blocks, where)


def manifold_of(system: System) -> Manifold:
    """What constraints make of phase space."""
    return Manifold(system, find_blocks(system))


def made_tangent(system: System, q: Any, p: Any, tangents: np.ndarray) -> np.ndarray:
    """Vectors (..., 2·dim) without their parts that lead off the constraints."""
    if not system.constraint_count:
        return tangents
    if system.dim > MOST_DIM:
        raise ValueError(
            f"vectors tangent to constraints are made for up to {MOST_DIM} degrees of freedom, and "
            f"{system.name!r} has {system.dim}: take fewer bodies of the same kind."
        )
    manifold = manifold_of(system)

    def both(z: Any, params: Any) -> Any:
        q, p = jnp.split(z, 2)
        parts = system.constraint(q, params), manifold.normal_velocity(q, p, params)
        return jnp.concatenate(parts)

    z = np.concatenate([q, p])
    normals = np.asarray(with_precision(jax.jit(jax.jacrev(both)), z, system.params))
    basis = np.linalg.qr(normals.T)[0]
    return tangents - (tangents @ basis) @ basis.T


def generate_on_manifold(
    system: System, params: Any, step: MixedStep, q: Any, p_next: Any
) -> Generated:
    """What generates a projected step: the functions of the inner method at (q_k, p̌).

    p̌ = p_{k+1} + Dg(q_{k+1})ᵀμ is the momentum before the last projection, with μ such that
    g(q_{k+1}) = 0. D1 and the old momentum are those whose velocities are tangent: along the
    manifold no other part of them is seen.
    """
    manifold, count = manifold_of(system), system.constraint_count

    def generated(u: Any) -> Generated:
        return step.generate(q, u[:-count])

    def residual(u: Any) -> Any:
        q_next = generated(u).q_next
        slopes, blocks = manifold.slopes(q_next, params), manifold.blocks
        miss = u[:-count] - p_next - blocks.spread(slopes.rows, blocks.split(u[-count:]))
        return jnp.concatenate([miss, system.constraint(q_next, params)])

    def size(value: Any, change: Any) -> Any:
        return relative_size(value, p_next, q, change)

    guess = jnp.concatenate([p_next, jnp.zeros(count, p_next.dtype)])
    u, info = find_root(residual, size, guess)
    found = generated(u)
    slopes = manifold.slopes(q, params)
    p, report = manifold.project_momentum(q, found.p, params, Solver.BOTH, slopes)
    worst = jnp.maximum(info.residual, report.residual)
    is_met = manifold.is_met(q, params)
    found = found._replace(D1=found.D1 + p - found.p, p=p, p_next=u[:-count])
    solved = info.converged & found.info.converged & is_met
    info = StepInfo(solved, info.iterations, worst)
    values = found._replace(info=None, slope=None)
    return trusted(values, info)._replace(info=info)
