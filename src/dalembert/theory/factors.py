"""The factors of volume and of the symplectic form along a Brownian path: a method's and the exact.

print(path_factors(system, da.midpoint(), (q0, p0), dt=0.1, steps=100, seed=0))
print(factor_convergence(system, da.midpoint(), (q0, p0), dt=0.01, steps=128))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.caches import kept
from dalembert.methods import Method
from dalembert.noise import Increments
from dalembert.stepping.residuals import tolerance
from dalembert.stepping.step import check_method
from dalembert.stepping.stepper import Stepper
from dalembert.system import System
from dalembert.theory.forms import (
    compiled_jacobian,
    conformal_defect,
    conformal_factor,
    linear_friction,
    own_conformal_factor,
    volume_factor,
)
from dalembert.theory.manifold import refuse_constraints
from dalembert.theory.paths import (
    brownian_paths,
    call,
    coarse_paths,
    over_time,
    path_increments,
    state,
)
from dalembert.theory.slopes import slope
from dalembert.theory.tangents import MOST_DIM, compared, push_forward, random_tangents
from dalembert.theory.text import convergence_table, table

FLOOR = 1e-11
"""Errors up to this, over a path of some hundred steps, are rounding."""

PAIRS = 4
"""Pairs of tangent vectors that are carried along a path of a large system."""


class _Flow(NamedTuple):
    """What a stretch of path does to tangent vectors and volumes."""

    z: Any
    M: Any
    sign: Any
    log_volume: Any
    residual: Any

    def factors(self) -> tuple[Any, Any, Any]:
        """det M, the c nearest to MᵀΩM, and how far MᵀΩM is from cΩ."""
        volume = np.asarray(self.sign) * np.exp(np.asarray(self.log_volume))
        return volume, own_conformal_factor(self.M), conformal_defect(self.M)


@kept
def _compiled_flow(stepper: Stepper) -> Any:
    step = compiled_jacobian(stepper)

    def run(q: Any, p: Any, dt: Any, increments: Increments, steps: Any, params: Any) -> _Flow:
        def advance(flow: _Flow, increments: Increments) -> _Flow:
            M, z, info = step(*jnp.split(flow.z, 2), dt, increments, params)
            # Determinants are added up step by step: that of a long product would lose digits.
            sign, log_volume = jnp.linalg.slogdet(M)
            residual = jnp.maximum(info.residual, flow.residual)
            return _Flow(z, M @ flow.M, sign * flow.sign, log_volume + flow.log_volume, residual)

        z = jnp.concatenate([q, p])
        one, zero = jnp.ones((), z.dtype), jnp.zeros((), z.dtype)
        first = _Flow(z, jnp.eye(z.size, dtype=z.dtype), one, zero, zero)
        return over_time(advance, first, increments, steps)

    return jax.jit(jax.vmap(run, in_axes=(None, None, None, 1, None, None)))


def _flow(
    system: System, method: Method, start: Any, dt: float, increments: Increments, steps: int
) -> _Flow:
    """What the first `steps` steps do on every path; time is the first axis, paths the second."""
    check_method(system, method)
    row = jax.tree.map(lambda x: x[:1, 0], increments)
    path_increments(system, method, dt, None, 0, row)
    q, p = state(system, start)
    return call(_compiled_flow, system, method, q, p, float(dt), increments, np.int32(steps))


def _exact(system: System, t: Any, W: Any) -> tuple[Any, Any]:
    """b_t and c_t; the latter is None if the friction is not a multiple of p."""
    has_rates = linear_friction(system).rates is not None
    return volume_factor(system, t, W), conformal_factor(system, t, W) if has_rates else None


class _Solved:
    """A record of paths whose steps had to be solved."""

    residual: float

    @property
    def converged(self) -> bool:
        """Whether every step was solved to rounding."""
        return self.residual <= tolerance(np.float64)

    def _warning(self) -> list[str]:
        text = f"NOT every step was solved: residual {self.residual:.1e}"
        return [] if self.converged else [text]


@dataclass(frozen=True)
class PathFactors(_Solved):
    """A method's own factors along one path, and the exact ones. `str()` is a table.

    Attributes:
        time: length of the path.
        volume: det M of the whole path; None for large systems, of which no matrix is made.
        exact_volume: b_t, or None likewise.
        conformal: the c nearest to MᵀΩM.
        exact_conformal: c_t, or None if the friction is not a multiple of p.
        defect: max |MᵀΩM − cΩ|/|c|; of large systems |ω(Mu, Mv) − c ω(u, v)| relative to the
            lengths of random tangent vectors, the largest of some pairs.
        residual: largest relative residual of a stage equation on the way.
    """

    time: float
    volume: float | None
    exact_volume: float | None
    conformal: float
    exact_conformal: float | None
    defect: float
    residual: float

    def __str__(self) -> str:
        pairs = []
        if self.volume is not None:
            pairs.append(("volume det M", self.volume, self.exact_volume))
        if self.exact_conformal is not None:
            pairs.append(("conformal c", self.conformal, self.exact_conformal))
        rows = [(n, f"{a:.12g}", f"{b:.12g}", f"{abs(a / b - 1):.1e}") for n, a, b in pairs]
        lines = table([("", "method", "exact", "relative difference"), *rows], indent="")
        what = "max |MᵀΩM − cΩ|/|c|" if self.volume is not None else "of random tangent vectors"
        lines.append(f"conformal defect {what}: {self.defect:.1e}")
        return "\n".join([f"Factors at t = {self.time:g}", *lines, *self._warning()])


def path_factors(
    system: System,
    method: Method,
    start: tuple[Any, Any],
    dt: float,
    steps: int | None = None,
    seed: int = 0,
    increments: Any = None,
) -> PathFactors:
    """A method's own volume and conformal factor along one path, beside the exact ones.

    Args:
        system: one with linear friction; others are refused with the reason. Of more than 128
            degrees of freedom the friction must be −νp, and the conformal factor is all.
        method: e.g. `da.midpoint()`.
        start: (q0, p0), each of shape (dim,).
        dt: step size, > 0.
        steps: number of steps, if the increments are to be drawn.
        seed: of the drawn increments.
        increments: known ones instead: dW of shape (steps, noises), or an `Increments` record.
    """
    refuse_constraints(system, "path_factors")
    record = path_increments(system, method, dt, steps, seed, increments)
    record = jax.tree.map(np.asarray, record)
    count = len(record.dW)
    if system.dim > MOST_DIM:
        return _factors_by_pairs(system, method, start, dt, record)
    one_path = jax.tree.map(lambda x: x[:, None], record)
    flow = _flow(system, method, start, dt, one_path, count)
    volume, conformal, defect = (float(x[0]) for x in flow.factors())
    exact_volume, exact_conformal = _exact(system, dt * count, np.sum(record.dW, axis=0))
    return PathFactors(
        time=dt * count,
        volume=volume,
        exact_volume=float(exact_volume),
        conformal=conformal,
        exact_conformal=None if exact_conformal is None else float(exact_conformal),
        defect=defect,
        residual=float(flow.residual[0]),
    )


def _factors_by_pairs(
    system: System, method: Method, start: Any, dt: float, record: Increments
) -> PathFactors:
    """Factors of a large system, by random pairs of tangent vectors that move along the path."""
    check_method(system, method)
    time, tangents = dt * len(record.dW), random_tangents(system, PAIRS, 0)
    exact = conformal_factor(system, time, np.sum(record.dW, axis=0))
    given = *state(system, start), float(dt), record, tangents
    pushed, residual = call(_compiled_pairs, system, method, *given)
    found = compared(tangents, np.asarray(pushed))
    defect, c = float(found.conformal_defect), float(found.factor)
    return PathFactors(time, None, None, c, float(exact), defect, float(residual))


@kept
def _compiled_pairs(stepper: Stepper) -> Any:
    push = push_forward(stepper)

    def run(q: Any, p: Any, dt: Any, increments: Any, tangents: Any, params: Any) -> Any:
        def advance(carry: Any, increments: Any) -> Any:
            z, tangents, residual = carry
            pushed, z, info = push(*jnp.split(z, 2), dt, increments, tangents, params)
            return (z, pushed, jnp.maximum(residual, info.residual)), None

        first = jnp.concatenate([q, p]), tangents, jnp.zeros((), q.dtype)
        _, pushed, residual = lax.scan(advance, first, increments)[0]
        return pushed, residual

    return jax.jit(run)


@dataclass(frozen=True, eq=False)
class FactorConvergence(_Solved):
    """Errors of a method's factors at several step sizes on the same paths. `str()` is a table.

    Errors are relative, in the mean square over the paths. A slope is that of a straight line
    through log error over log step size; None where every error is rounding.

    Attributes:
        system, method: their names.
        dts: step sizes.
        volume_errors: of det M against b_t.
        conformal_errors: of c against c_t; None if the friction is not a multiple of p.
        defects: conformal defects max |MᵀΩM − cΩ|/|c|.
        volume_slope, conformal_slope, defect_slope: orders of the three.
        residual: largest relative residual of a stage equation on the way.
    """

    system: str
    method: str
    dts: np.ndarray
    volume_errors: np.ndarray
    conformal_errors: np.ndarray | None
    defects: np.ndarray
    residual: float

    @property
    def volume_slope(self) -> float | None:
        return self._slope(self.volume_errors)

    @property
    def conformal_slope(self) -> float | None:
        return self._slope(self.conformal_errors)

    @property
    def defect_slope(self) -> float | None:
        return self._slope(self.defects)

    def _slope(self, errors: np.ndarray | None) -> float | None:
        return None if errors is None or np.max(errors) <= FLOOR else slope(self.dts, errors)

    def __str__(self) -> str:
        columns = {"volume": self.volume_errors, "defect": self.defects}
        if self.conformal_errors is not None:
            columns["conformal"] = self.conformal_errors
        slopes = [self._slope(column) for column in columns.values()]
        texts = ["rounding" if value is None else f"{value:.2f}" for value in slopes]
        title = f"Factors of {self.method} on {self.system}, errors at each step size"
        return "\n".join(
            [title, *convergence_table(self.dts, columns, "slope", texts), *self._warning()]
        )


def factor_convergence(
    system: System,
    method: Method,
    start: tuple[Any, Any],
    dt: float,
    steps: int = 128,
    factors: Sequence[int] = (1, 2, 4, 8),
    paths: int = 16,
    seed: int = 0,
) -> FactorConvergence:
    """How a method's factors approach the exact ones on the same Brownian paths.

    Args:
        system: one with linear friction; others are refused with the reason.
        method: a tableau driven by ΔW, e.g. `da.midpoint()`.
        start: (q0, p0), each of shape (dim,).
        dt: the smallest step size.
        steps: number of the smallest steps; divisible by every factor.
        factors: step sizes in units of dt.
        paths: number of Brownian paths.
        seed: of the paths.
    """
    refuse_constraints(system, "factor_convergence")
    if system.dim > MOST_DIM:
        raise ValueError(
            f"{system.name!r} has {system.dim:,} degrees of freedom, and volumes by determinants "
            f"of matrices are taken of {MOST_DIM} at most: da.theory.path_factors and "
            "da.theory.tangent_pairs take any number, by random pairs of tangent vectors."
        )
    fine = brownian_paths(seed, 0, paths, dt, steps, system.noises)
    exact_volume, exact_conformal = _exact(system, dt * steps, np.sum(np.asarray(fine.dW), axis=1))
    errors, residuals = [], []
    for factor in factors:
        coarse = coarse_paths(fine, dt, factor, steps)
        flow = _flow(system, method, start, factor * dt, coarse, steps // factor)
        volume, conformal, defect = flow.factors()
        relative = 0.0 if exact_conformal is None else conformal / exact_conformal - 1
        misses = (volume / exact_volume - 1, relative, defect)
        errors.append([np.sqrt(np.mean(np.square(miss))) for miss in misses])
        residuals.append(np.max(np.asarray(flow.residual)))
    volume_errors, conformal_errors, defects = np.array(errors).T
    return FactorConvergence(
        system=system.name,
        method=method.name,
        dts=dt * np.asarray(factors, np.float64),
        volume_errors=volume_errors,
        conformal_errors=None if exact_conformal is None else conformal_errors,
        defects=defects,
        residual=float(max(residuals)),
    )
