"""Quasi-symplecticity of any method on any system, as a verdict with evidence.

    QS1  without its forces the system is integrated by a symplectic map
    QS2  the determinant of the step does not depend on (q, p), as the exact one does not
         for linear friction

`KrausTyranowski2021`, section 3.5, after `MilsteinTretyakov2003`. Both are tried at random points
with random increments: a violation is a proof, a pass is evidence. Of large systems no matrix is
made: QS1 is tried on random pairs of tangent vectors, and QS2 holds where these show that the step
multiplies the symplectic form by a number that does not depend on (q, p); else it stays open.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax import lax

from dalembert.caches import kept
from dalembert.driven import refusal
from dalembert.methods import Method
from dalembert.noise import Increments
from dalembert.stepping.stepper import Stepper
from dalembert.system import System
from dalembert.theory.forms import compiled_jacobian, symplectic_defect
from dalembert.theory.manifold import refuse_constraints
from dalembert.theory.paths import call, path_increments, sample_points
from dalembert.theory.tangents import (
    MOST_DIM,
    TangentPairs,
    compared,
    push_forward,
    random_tangents,
)

TOLERANCE = 1e-11
"""Defects up to this, relative to the entries of the matrices that they come from, are rounding."""

PAIRS = 4
"""Pairs of tangent vectors that are tried at every point of a large system."""


@dataclass(frozen=True, eq=False)
class Violation:
    """The largest violation that was found of one condition, and where.

    Attributes:
        size: how large it is.
        holds: whether it is rounding.
        q, p, dW: the point and the increments at which it was found.
        unconverged: steps that had to be left out because their stages were not solved.
        tried: steps that were tried.
    """

    size: float
    holds: bool
    q: np.ndarray
    p: np.ndarray
    dW: np.ndarray
    unconverged: int
    tried: int

    def __str__(self) -> str:
        text = f"{'holds' if self.holds else 'FAILS'}, largest {self.size:.1e}"
        if not self.holds:
            q, p, dW = (
                np.array2string(x, precision=3, threshold=16) for x in (self.q, self.p, self.dW)
            )
            text += f" at q = {q}, p = {p}, dW = {dW}"
        if self.unconverged:
            text += f" ({self.unconverged} of {self.tried} steps were not solved and do not count)"
        return text


@dataclass(frozen=True, eq=False)
class QuasiSymplectic:
    """Whether a method is quasi-symplectic on a system; `str()` is readable.

    Attributes:
        system, method: their names.
        dt: the step size that was tried.
        symplectic: QS1, with the largest max |MᵀΩM − Ω| of the system without forces.
        volume: QS2, with the largest distance of det M from its median over the points at the
            same increments, relative to the largest determinant; None where it stays open.
        determinants: det M by increments and points, shape (increments, points), nan where a step
            was left out; None for large systems.
        pairs: how many random pairs of tangent vectors were tried in place of matrices, for systems
            of more than 128 degrees of freedom; else None. Then `symplectic` has the largest
            difference of ω relative to the vectors, and `volume` that of the factors of ω.
    """

    system: str
    method: str
    dt: float
    symplectic: Violation
    volume: Violation | None
    determinants: np.ndarray | None
    pairs: int | None = None

    @property
    def qs1(self) -> bool:
        return self.symplectic.holds

    @property
    def qs2(self) -> bool | None:
        return None if self.volume is None else self.volume.holds

    def __bool__(self) -> bool:
        return bool(self.qs1 and self.qs2)

    def __str__(self) -> str:
        verdict = "quasi-symplectic" if self else "NOT quasi-symplectic"
        if self.qs1 and self.qs2 is None:
            verdict = "symplectic without forces; quasi-symplectic is not decided"
        forms, volumes = "|MᵀΩM − Ω|", "spread of det M by (q, p)"
        if self.pairs:
            forms, volumes = "|ω(Mu, Mv) − ω(u, v)|", "spread of ω(Mu, Mv)/ω(u, v)"
        rows = [
            f"{self.method} on {self.system} with dt = {self.dt:g}: {verdict}",
            f"  QS1  {forms} without forces: {self.symplectic}",
            f"  QS2  {volumes}: {self.volume or 'open: determinants need matrices'}",
        ]
        tested = f"  tested on {self.pairs} random pairs of tangent vectors at every point"
        return "\n".join([*rows, tested] if self.pairs else rows)


def without_forces(system: System) -> System:
    """The same Hamiltonians and noises with F = 0 and f_i = 0."""
    return replace(system, F=None, f=None, name=f"{system.name} without forces", invariants={})


def quasi_symplecticity(
    system: System,
    method: Method,
    dt: float = 0.1,
    seed: int = 0,
    points: int | tuple[Any, Any] = 16,
    increments: int | Increments = 4,
) -> QuasiSymplectic:
    """Try QS1 and QS2 at random points with random increments.

    Args:
        system: any system; QS2 is to be expected for linear friction only.
        method: any.
        dt: step size.
        seed: of the points and the increments.
        points: how many standard normal points, or (q, p) of shape (points, dim) each.
        increments: how many draws, or an `Increments` record with a leading axis.
    """
    refuse_constraints(system, "quasi_symplecticity")
    if system.time:
        raise refusal(system)
    q, p = sample_points(system, points, seed)
    count, known = (increments, None) if isinstance(increments, int) else (None, increments)
    record = path_increments(system, method, dt, count, seed, known)

    def violation(size: np.ndarray, relative: np.ndarray, solved: np.ndarray) -> Violation:
        if not np.any(solved):
            raise ValueError(
                "no solution of the stage equations was found at any of the points; take a smaller "
                "dt or points nearer to the origin."
            )
        relative = np.where(solved, relative, -1.0)
        k, i = np.unravel_index(int(np.argmax(relative)), relative.shape)
        return Violation(
            size=float(size[k, i]),
            holds=bool(relative[k, i] <= TOLERANCE),
            q=system.shaped(q[i]),
            p=system.shaped(p[i]),
            dW=np.asarray(record.dW)[k],
            unconverged=int(np.sum(~solved)),
            tried=solved.size,
        )

    said = {"system": system.name, "method": method.name, "dt": float(dt)}
    given = method, q, p, dt, record
    if system.dim > MOST_DIM:
        found, solved = _pairs(without_forces(system), *given, seed)
        symplectic = violation(found.symplectic_defect, found.symplectic_defect, solved)
        found, solved = _pairs(system, *given, seed)
        size = np.maximum(found.conformal_defect, _spread(found.factor, solved))
        volume = violation(size, size, solved)
        return QuasiSymplectic(
            **said,
            symplectic=symplectic,
            volume=volume if volume.holds else None,
            determinants=None,
            pairs=PAIRS,
        )
    M, solved = _jacobians(without_forces(system), *given)
    defect = symplectic_defect(M)
    scale = np.maximum(np.max(np.abs(M), axis=(-2, -1)) ** 2, 1)
    symplectic = violation(defect, defect / scale, solved)
    M, solved = _jacobians(system, *given)
    determinants = np.linalg.det(M)
    distance = _spread(determinants, solved)
    return QuasiSymplectic(
        **said,
        symplectic=symplectic,
        volume=violation(distance, distance, solved),
        determinants=np.where(solved, determinants, np.nan),
    )


def _spread(values: np.ndarray, solved: np.ndarray) -> np.ndarray:
    """Distances from the median over the points, relative to the largest value."""
    # The unsolved ones aside; where all are, it does not matter.
    usable = np.where(solved | ~np.any(solved, axis=1, keepdims=True), values, np.nan)
    distance = np.abs(values - np.nanmedian(usable, axis=1, keepdims=True))
    return distance / np.max(np.abs(values[solved]), initial=np.finfo(np.float64).tiny)


def _pairs(
    system: System, method: Method, q: Any, p: Any, dt: float, increments: Increments, seed: int
) -> tuple[TangentPairs, np.ndarray]:
    """Pairs of tangent vectors under the step for all increments and points, and what is solved."""
    tangents = random_tangents(system, PAIRS, seed)
    pushed, info = call(_pushed_grid, system, method, q, p, float(dt), increments, tangents)
    pushed = np.asarray(pushed)
    solved = np.asarray(info.converged) & np.all(np.isfinite(pushed), axis=(-3, -2, -1))
    return compared(tangents, np.where(solved[..., None, None, None], pushed, tangents)), solved


@kept
def _pushed_grid(stepper: Stepper) -> Any:
    push = push_forward(stepper)

    def run(q: Any, p: Any, dt: Any, increments: Any, tangents: Any, params: Any) -> Any:
        def at_points(increments: Any) -> Any:
            def at(z: Any) -> Any:
                pushed, _, info = push(*z, dt, increments, tangents, params)
                return pushed, info

            return lax.map(at, (q, p))

        # One after the other: each has as many vectors as there are pairs.
        return lax.map(at_points, increments)

    return jax.jit(run)


def _jacobians(
    system: System, method: Method, q: Any, p: Any, dt: float, increments: Increments
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of the step for all increments and points, and whether each was solved.

    What was not solved is replaced by the identity, so that no numbers are made from nan.
    """
    M, _, info = call(_compiled_grid, system, method, q, p, float(dt), increments)
    M = np.asarray(M)
    # An explicit step has nothing to solve and reports no failure when it overflows.
    solved = np.asarray(info.converged) & np.all(np.isfinite(M), axis=(-2, -1))
    return np.where(solved[..., None, None], M, np.eye(2 * system.dim)), solved


@kept
def _compiled_grid(stepper: Stepper) -> Any:
    over_points = jax.vmap(compiled_jacobian(stepper), in_axes=(0, 0, None, None, None))
    return jax.jit(jax.vmap(over_points, in_axes=(None, None, None, 0, None)))
