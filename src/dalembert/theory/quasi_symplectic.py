"""Quasi-symplecticity of any method on any system, as a verdict with evidence.

    QS1  without its forces the system is integrated by a symplectic map
    QS2  the determinant of the step does not depend on (q, p), as the exact one does not
         for linear friction

`KrausTyranowski2021`, section 3.5, after `MilsteinTretyakov2003`. Both are tried at random points
with random increments: a violation is a proof, a pass is evidence.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from dalembert.noise import Increments
from dalembert.precision import with_precision
from dalembert.stepping.stepper import Stepper, make_stepper
from dalembert.system import System
from dalembert.theory.forms import compiled_jacobian, symplectic_defect
from dalembert.theory.probe import draw_increments, path_increments, sample_points

__all__ = ["QuasiSymplectic", "Violation", "quasi_symplectic", "without_forces"]

TOLERANCE = 1e-11
"""Defects up to this, relative to the entries of the matrices that they come from, are rounding."""


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
            q, p, dW = (np.array2string(x, precision=3) for x in (self.q, self.p, self.dW))
            text += f" at q = {q}, p = {p}, dW = {dW}"
        if self.unconverged:
            text += f" ({self.unconverged} of {self.tried} steps had no solution and do not count)"
        return text


@dataclass(frozen=True, eq=False)
class QuasiSymplectic:
    """Whether a method is quasi-symplectic on a system; `str()` is readable.

    Attributes:
        system, method: their names.
        dt: the step size that was tried.
        symplectic: QS1, with the largest max |MᵀΩM − Ω| of the system without forces.
        volume: QS2, with the largest distance of det M from its median over the points at the
            same increments, relative to the largest determinant.
        determinants: det M by increments and points, shape (increments, points), nan where a step
            was left out.
    """

    system: str
    method: str
    dt: float
    symplectic: Violation
    volume: Violation
    determinants: np.ndarray

    @property
    def qs1(self) -> bool:
        return self.symplectic.holds

    @property
    def qs2(self) -> bool:
        return self.volume.holds

    def __bool__(self) -> bool:
        return self.qs1 and self.qs2

    def __str__(self) -> str:
        verdict = "quasi-symplectic" if self else "NOT quasi-symplectic"
        return "\n".join(
            [
                f"{self.method} on {self.system} with dt = {self.dt:g}: {verdict}",
                f"  QS1  |MᵀΩM − Ω| without forces: {self.symplectic}",
                f"  QS2  spread of det M by (q, p): {self.volume}",
            ]
        )


def without_forces(system: System) -> System:
    """The same Hamiltonians and noises with F = 0 and f_i = 0."""
    return replace(system, F=None, f=None, name=f"{system.name} without forces", invariants={})


def quasi_symplectic(
    system: System,
    method: Any,
    dt: float = 0.1,
    seed: int = 0,
    points: int | tuple[Any, Any] = 16,
    increments: int | Increments = 4,
) -> QuasiSymplectic:
    """Try QS1 and QS2 at random points with random increments.

    Args:
        system: any system; QS2 is to be expected for linear friction only.
        method: any tableau.
        dt: step size.
        seed: of the points and the increments.
        points: how many standard normal points, or (q, p) of shape (points, dim) each.
        increments: how many draws, or an `Increments` record with a leading axis.
    """
    q, p = sample_points(system, points, seed)
    if isinstance(increments, int):
        increments = draw_increments(system, method, dt, increments, seed)
    increments = path_increments(system, method, increments)
    M, converged = _jacobians(without_forces(system), method, q, p, dt, increments)
    scale = np.maximum(np.max(np.abs(M), axis=(-2, -1)) ** 2, 1)
    defect = symplectic_defect(M)
    symplectic = _violation(defect, defect / scale, converged, q, p, increments)
    M, converged = _jacobians(system, method, q, p, dt, increments)
    determinants = np.where(converged, np.linalg.det(M), np.nan)
    return QuasiSymplectic(
        system=system.name,
        method=method.name,
        dt=float(dt),
        symplectic=symplectic,
        volume=_spread(determinants, converged, q, p, increments),
        determinants=determinants,
    )


def _spread(
    determinants: np.ndarray,
    converged: np.ndarray,
    q: np.ndarray,
    p: np.ndarray,
    increments: Increments,
) -> Violation:
    """Distance of each determinant from the median over the points at its increments."""
    usable = np.any(converged, axis=1)
    middle = np.zeros(len(determinants))
    middle[usable] = np.nanmedian(determinants[usable], axis=1)
    size = np.nanmax(np.abs(determinants)) if np.any(usable) else 1.0
    distance = np.abs(determinants - middle[:, None]) / size
    return _violation(distance, distance, converged, q, p, increments)


def _violation(
    size: np.ndarray,
    relative: np.ndarray,
    converged: np.ndarray,
    q: np.ndarray,
    p: np.ndarray,
    increments: Increments,
) -> Violation:
    if not np.any(converged):
        raise ValueError(
            "the stage equations had no solution at any of the points; take a smaller dt or "
            "points nearer to the origin."
        )
    relative = np.where(converged, relative, -1.0)
    k, i = np.unravel_index(int(np.argmax(relative)), relative.shape)
    return Violation(
        size=float(size[k, i]),
        holds=bool(relative[k, i] <= TOLERANCE),
        q=q[i],
        p=p[i],
        dW=np.asarray(increments.dW)[k],
        unconverged=int(np.sum(~converged)),
        tried=converged.size,
    )


def _jacobians(
    system: System, method: Any, q: Any, p: Any, dt: float, increments: Increments
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of the step for all increments and points, and whether each was solved.

    What was not solved is replaced by the identity, so that no numbers are made from nan.
    """

    def run(q: Any, p: Any, dt: Any, increments: Increments, params: Any) -> Any:
        stepper = make_stepper(system, method, np.float64)
        M, _, info = _compiled_grid(stepper)(q, p, dt, increments, params)
        return M, info.converged

    arguments = (q, p, np.asarray(dt, np.float64), increments, system.params)
    M, converged = with_precision(run, *arguments)
    M = np.asarray(M)
    # An explicit step has nothing to solve and reports no failure when it overflows.
    converged = np.asarray(converged) & np.all(np.isfinite(M), axis=(-2, -1))
    return np.where(converged[..., None, None], M, np.eye(2 * system.dim)), converged


@lru_cache(maxsize=64)
def _compiled_grid(stepper: Stepper) -> Any:
    over_points = jax.vmap(compiled_jacobian(stepper), in_axes=(0, 0, None, None, None))
    return jax.jit(jax.vmap(over_points, in_axes=(None, None, None, 0, None)))
