"""The factors of volume and of the symplectic form along a Brownian path: a method's and the exact.

print(path_factors(system, da.midpoint(), (q0, p0), dt=0.1, steps=100, seed=0))
print(factor_convergence(system, da.midpoint(), (q0, p0), dt=0.01, steps=128))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.noise import Increments, brownian_path, coarsen
from dalembert.precision import with_precision
from dalembert.stepping.newton import tolerance
from dalembert.stepping.step import check_method, vector
from dalembert.stepping.stepper import Stepper, make_stepper
from dalembert.system import System
from dalembert.theory.forms import (
    compiled_jacobian,
    conformal_defect,
    linear_friction,
    own_conformal_factor,
)
from dalembert.theory.probe import draw_increments, path_increments

__all__ = ["FactorConvergence", "PathFactors", "factor_convergence", "path_factors"]

FLOOR = 1e-11
"""Errors up to this, over a path of some hundred steps, are rounding."""


class Flow(NamedTuple):
    """What a stretch of path does to tangent vectors and volumes."""

    z: Any
    M: Any
    sign: Any
    log_volume: Any
    residual: Any


@lru_cache(maxsize=64)
def _compiled_flow(stepper: Stepper) -> Any:
    """A path of at most as many steps as there are increments, of which `steps` are taken.

    The number of steps is an argument, so that one compilation serves all step sizes.
    """
    step = compiled_jacobian(stepper)
    dim = stepper.system.dim

    def run(q: Any, p: Any, dt: Any, increments: Increments, steps: Any, params: Any) -> Flow:
        def advance(k: Any, flow: Flow) -> Flow:
            here = jax.tree.map(lambda x: x[k], increments)
            M, z, info = step(flow.z[:dim], flow.z[dim:], dt, here, params)
            # Determinants are added up step by step: that of a long product would lose digits.
            sign, log_volume = jnp.linalg.slogdet(M)
            return Flow(
                z,
                M @ flow.M,
                sign * flow.sign,
                log_volume + flow.log_volume,
                jnp.maximum(info.residual, flow.residual),
            )

        z = jnp.concatenate([q, p])
        one, zero = jnp.ones((), z.dtype), jnp.zeros((), z.dtype)
        return lax.fori_loop(
            0, steps, advance, Flow(z, jnp.eye(2 * dim, dtype=z.dtype), one, zero, zero)
        )

    return jax.jit(jax.vmap(run, in_axes=(None, None, None, 0, None, None)))


@dataclass(frozen=True)
class PathFactors:
    """A method's own factors along one path, and the exact ones. `str()` is a table.

    Attributes:
        time: length of the path.
        volume: det M of the whole path.
        exact_volume: b_t.
        conformal: the c nearest to MᵀΩM.
        exact_conformal: c_t, or None if the friction is not a multiple of p.
        defect: max |MᵀΩM − cΩ|/|c|.
        residual: largest relative residual of a stage equation on the way.
    """

    time: float
    volume: float
    exact_volume: float
    conformal: float
    exact_conformal: float | None
    defect: float
    residual: float

    @property
    def converged(self) -> bool:
        """Whether every step was solved to rounding."""
        return self.residual <= tolerance(np.float64)

    def __str__(self) -> str:
        rows = [("", "method", "exact", "relative difference")]
        pairs = [("volume det M", self.volume, self.exact_volume)]
        if self.exact_conformal is not None:
            pairs.append(("conformal c", self.conformal, self.exact_conformal))
        rows += [(n, f"{a:.12g}", f"{b:.12g}", f"{abs(a / b - 1):.1e}") for n, a, b in pairs]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
        lines.append(f"conformal defect max |MᵀΩM − cΩ|/|c|: {self.defect:.1e}")
        if not self.converged:
            lines.append(f"NOT every step was solved: residual {self.residual:.1e}")
        return "\n".join([f"Factors at t = {self.time:g}", *(line.rstrip() for line in lines)])


def path_factors(
    system: System,
    method: Any,
    start: tuple[Any, Any],
    dt: float,
    steps: int | None = None,
    seed: int = 0,
    increments: Any = None,
) -> PathFactors:
    """A method's own volume and conformal factor along one path, beside the exact ones.

    Args:
        system: one with linear friction; others are refused with the reason.
        method: a tableau, e.g. `da.midpoint()`.
        start: (q0, p0), each of shape (dim,).
        dt: step size, > 0.
        steps: number of steps, if the increments are to be drawn.
        seed: of the drawn increments.
        increments: known ones instead: dW of shape (steps, noises), or an `Increments` record.
    """
    if increments is None:
        if steps is None:
            raise ValueError("give steps, the number of steps to draw, or the increments.")
        increments = draw_increments(system, method, dt, steps, seed)
    record = path_increments(system, method, increments)
    batch = jax.tree.map(lambda x: np.asarray(x)[None], record)
    count = np.shape(record.dW)[0]
    flow = _flow(system, method, start, dt, batch, count)
    volume, conformal, defect = (float(x[0]) for x in _own(flow))
    time, W = dt * count, np.sum(np.asarray(record.dW), axis=0)
    exact_volume, exact_conformal = _exact(system, time, W)
    return PathFactors(
        time=time,
        volume=volume,
        exact_volume=float(exact_volume),
        conformal=conformal,
        exact_conformal=None if exact_conformal is None else float(exact_conformal),
        defect=defect,
        residual=float(flow.residual[0]),
    )


def _flow(
    system: System, method: Any, start: Any, dt: float, increments: Increments, steps: int
) -> Flow:
    check_method(system, method)
    q, p = (vector(name, x, system.dim) for name, x in zip(("q0", "p0"), start, strict=True))

    def run(q: Any, p: Any, dt: Any, increments: Increments, params: Any) -> Flow:
        stepper = make_stepper(system, method, np.float64)
        return _compiled_flow(stepper)(q, p, dt, increments, jnp.asarray(steps, jnp.int32), params)

    return with_precision(run, q, p, np.asarray(dt, np.float64), increments, system.params)


def _own(flow: Flow) -> tuple[Any, Any, Any]:
    volume = np.asarray(flow.sign) * np.exp(np.asarray(flow.log_volume))
    return volume, own_conformal_factor(flow.M), conformal_defect(flow.M)


def _exact(system: System, t: Any, W: Any) -> tuple[Any, Any]:
    friction = linear_friction(system)
    traces, rates = friction.traces, friction.rates
    volume = np.exp(-traces[0] * t - W @ traces[1:])
    return volume, None if rates is None else np.exp(-rates[0] * t - W @ rates[1:])


@dataclass(frozen=True, eq=False)
class FactorConvergence:
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
    def converged(self) -> bool:
        """Whether every step was solved to rounding."""
        return self.residual <= tolerance(np.float64)

    @property
    def volume_slope(self) -> float | None:
        return _slope(self.dts, self.volume_errors)

    @property
    def conformal_slope(self) -> float | None:
        return None if self.conformal_errors is None else _slope(self.dts, self.conformal_errors)

    @property
    def defect_slope(self) -> float | None:
        return _slope(self.dts, self.defects)

    def __str__(self) -> str:
        columns = {"volume": self.volume_errors, "defect": self.defects}
        slopes = {"volume": self.volume_slope, "defect": self.defect_slope}
        if self.conformal_errors is not None:
            columns["conformal"] = self.conformal_errors
            slopes["conformal"] = self.conformal_slope
        lines = [f"Factors of {self.method} on {self.system}, errors at each step size"]
        lines.append("       dt  " + "  ".join(f"{name:>9}" for name in columns))
        for i, dt in enumerate(self.dts):
            values = "  ".join(f"{column[i]:9.1e}" for column in columns.values())
            lines.append(f"{dt:9.3g}  {values}")
        texts = ("rounding" if slopes[n] is None else f"{slopes[n]:.2f}" for n in columns)
        lines.append("    slope  " + "  ".join(f"{text:>9}" for text in texts))
        if not self.converged:
            lines.append(f"NOT every step was solved: residual {self.residual:.1e}")
        return "\n".join(lines)


def factor_convergence(
    system: System,
    method: Any,
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
    drawn = [brownian_path(seed, k, dt, steps, system.noises) for k in range(paths)]
    fine = jax.tree.map(lambda *x: np.stack([np.asarray(a) for a in x]), *drawn)
    W, t = np.sum(fine.dW, axis=1), dt * steps
    exact_volume, exact_conformal = _exact(system, t, W)
    volume_errors, conformal_errors, defects, residuals = [], [], [], []
    for factor in factors:
        coarse = jax.tree.map(np.asarray, coarsen(fine, dt, factor))
        count = coarse.dW.shape[1]
        unused = ((0, 0), (0, steps - count), (0, 0))
        padded = jax.tree.map(lambda x, unused=unused: np.pad(x, unused), coarse)
        path_increments(system, method, jax.tree.map(lambda x: x[0], coarse))
        flow = _flow(system, method, start, factor * dt, padded, count)
        volume, conformal, defect = _own(flow)
        volume_errors.append(_rms(volume / exact_volume - 1))
        conformal_errors.append(
            0.0 if exact_conformal is None else _rms(conformal / exact_conformal - 1)
        )
        defects.append(_rms(defect))
        residuals.append(np.max(np.asarray(flow.residual)))
    return FactorConvergence(
        system=system.name,
        method=method.name,
        dts=dt * np.asarray(factors, np.float64),
        volume_errors=np.array(volume_errors),
        conformal_errors=None if exact_conformal is None else np.array(conformal_errors),
        defects=np.array(defects),
        residual=float(max(residuals)),
    )


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _slope(dts: np.ndarray, errors: np.ndarray) -> float | None:
    if np.max(errors) <= FLOOR:
        return None
    return float(np.polyfit(np.log(dts), np.log(errors), 1)[0])
