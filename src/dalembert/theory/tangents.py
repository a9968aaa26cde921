"""The symplectic form on pairs of tangent vectors: structure of a step without its matrix.

A step with derivative M is symplectic if ω(Mu, Mv) = ω(u, v) for all tangent vectors u and v, with
ω(u, v) = u_q·v_p − u_p·v_q. Random pairs decide: where MᵀΩM is not Ω, the two differ with
probability one. A pair costs two products with M, however many degrees of freedom there are.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.driven import time_of
from dalembert.methods import Method
from dalembert.precision import check_dt
from dalembert.stepping.step import as_increments, check_method
from dalembert.stepping.stepper import Stepper
from dalembert.system import System
from dalembert.theory.manifold import made_tangent
from dalembert.theory.paths import call, one_step, state

MOST_DIM = 128
"""Degrees of freedom up to which matrices of tangent vectors are made."""

ROUNDING = 1e-12
"""Differences of ω up to this, relative to the lengths of the vectors, are rounding."""


@dataclass(frozen=True, eq=False)
class TangentPairs:
    """What a map does to the symplectic form of random pairs of tangent vectors; `str()` says it.

    Attributes:
        before: ω(u, v), shape (pairs,) or with more axes in front.
        after: ω(Mu, Mv), likewise.
        sizes: the products of lengths that rounding is relative to, |u||v| or |Mu||Mv|.
    """

    before: np.ndarray
    after: np.ndarray
    sizes: np.ndarray

    @property
    def factor(self) -> Any:
        """The c for which c ω(u, v) is nearest to ω(Mu, Mv) (least squares)."""
        return np.sum(self.before * self.after, axis=-1) / np.sum(self.before**2, axis=-1)

    @property
    def symplectic_defect(self) -> Any:
        """max |ω(Mu, Mv) − ω(u, v)| relative to the vectors: rounding for a symplectic map."""
        return np.max(np.abs(self.after - self.before) / self.sizes, axis=-1)

    @property
    def conformal_defect(self) -> Any:
        """The same for ω(Mu, Mv) − c ω(u, v): rounding for a conformally symplectic map."""
        expected = np.asarray(self.factor)[..., None] * self.before
        return np.max(np.abs(self.after - expected) / self.sizes, axis=-1)

    def __str__(self) -> str:
        pairs = self.before.shape[-1]
        lines = [f"tested on {pairs} random pairs of tangent vectors"]
        for name, defect in (
            ("symplectic", self.symplectic_defect),
            (f"conformally symplectic, c = {self.factor:.12g}", self.conformal_defect),
        ):
            verdict = "" if defect <= ROUNDING else "NOT "
            lines.append(f"  {verdict}{name}: largest relative difference {defect:.1e}")
        return "\n".join(lines)


def tangent_pairs(
    system: System,
    method: Method,
    q: Any,
    p: Any,
    dt: float,
    dW: Any,
    pairs: int = 4,
    seed: int = 0,
    *,
    t: Any = None,
) -> TangentPairs:
    """ω of random pairs of tangent vectors before and after one step, without any matrix.

    With constraints the vectors are tangent to g(q) = 0, Dg(q) H_p(q, p) = 0, where alone a step is
    a map of anything.

    Args:
        system: of any size; `da.theory.without_forces(system)` is to be kept symplectic.
        method: e.g. `da.midpoint()`.
        q, p: the state, each of the shape of the system.
        dt: step size, > 0.
        dW: increments as in `da.step`.
        pairs: how many pairs, at least one; with one alone every map looks conformal.
        seed: of the tangent vectors.
        t: the time at the beginning of the step, for systems with `time=True`.

    Raises:
        ValueError: if the stage equations of the step were not solved.
    """
    check_method(system, method)
    check_dt(dt)
    if not isinstance(pairs, int) or pairs < 1:
        raise ValueError(f"pairs must be a positive integer, not {pairs!r}.")
    increments = as_increments(system, method, dW)
    q, p = state(system, (q, p))
    tangents = made_tangent(system, q, p, random_tangents(system, pairs, seed))
    at = q, p, float(dt), increments, tangents
    pushed, _, info = call(_compiled, system, method, *at, time_of(system, t))
    if not np.all(np.isfinite(pushed)) or not bool(info.converged):
        raise ValueError(
            f"the stage equations of {method.name} with dt={dt:g} were not solved: take a smaller "
            "dt, or a state nearer to rest."
        )
    return compared(at[-1], np.asarray(pushed))


def random_tangents(system: System, pairs: int, seed: int) -> np.ndarray:
    """Pairs of tangent vectors, shape (pairs, 2, 2·dim)."""
    return np.random.default_rng(seed).standard_normal((pairs, 2, 2 * system.dim))


def compared(tangents: np.ndarray, pushed: np.ndarray) -> TangentPairs:
    """ω of the pairs before, and after a map, of which there may be many in front."""
    lengths = [np.prod(np.linalg.norm(x, axis=-1), axis=-1) for x in (tangents, pushed)]
    before = np.broadcast_to(_omega(tangents), pushed.shape[:-2])
    return TangentPairs(before, _omega(pushed), np.maximum(*lengths))


def _omega(pairs: np.ndarray) -> np.ndarray:
    (u_q, u_p), (v_q, v_p) = (np.split(pairs[..., k, :], 2, axis=-1) for k in (0, 1))
    return np.sum(u_q * v_p - u_p * v_q, axis=-1)


def push_forward(stepper: Stepper) -> Any:
    """(q, p, dt, increments, tangents, params) → their images, new state z', StepInfo."""

    def run(
        q: Any, p: Any, dt: Any, increments: Any, tangents: Any, params: Any, t: Any = None
    ) -> Any:
        def advance(z: Any) -> Any:
            q, p, info = one_step(stepper)(*jnp.split(z, 2), dt, increments, params, t)
            z = jnp.concatenate([q, p])
            return z, (z, info)

        z, push, (_, info) = jax.linearize(advance, jnp.concatenate([q, p]), has_aux=True)
        pushed = jax.vmap(push)(tangents.reshape(-1, z.size))
        return pushed.reshape(tangents.shape), z, info

    return run


@kept
def _compiled(stepper: Stepper) -> Any:
    push = push_forward(stepper)
    return jax.jit(lambda *at: push(*at[:-2], at[-1], at[-2]))
