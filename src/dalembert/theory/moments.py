"""What a method should give on a linear system: its own moments, without sampling.

With w = (1, q, p), one step of a method on a system with linear dynamics is w' = M(ξ) w, where ξ
stands for the increments. They are independent from step to step, so the scheme's own expectations
obey

    E[w'] = E[M] E[w],     E[w' w'ᵀ] = E[M E[w wᵀ] Mᵀ],

two linear maps, whose powers give the moments after any number of steps. A Monte-Carlo result can
be compared with these numbers, apart from the bias of the method, and their spectral radius says
whether second moments stay bounded, which sampling can miss: rare paths carry an unstable moment.

For an implicit method M is rational in ξ, and a pole at a real increment would make Gaussian second
moments infinite. A pole within reach is refused; one that no simulation will ever meet is not
noticed, such as that of Störmer–Verlet on the Kubo oscillator, where 1 + ν(h + βΔW)/2 vanishes more
than 5,000 standard deviations out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.dependence import Degree, degree
from dalembert.methods import Method
from dalembert.methods.coefficients import Array
from dalembert.noise import Noise
from dalembert.precision import cast, check_real, refuse_traced
from dalembert.system import System
from dalembert.theory.moment_map import (
    MARGINAL,
    DrivenMap,
    MomentMap,
    generator,
    method_map,
    solution_map,
    step_map,
    symmetric,
)

EMPTY = np.zeros(0)


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """First and second moments of z = (q, p) after a number of steps; exact but for rounding.

    Attributes:
        system, method: what they belong to; the method is None for the solution itself.
        dt: step size.
        steps: number of steps, or an array of them; the moments then have the same leading axes.
        mean: E[z], of shape (2·dim,).
        second: E[z zᵀ], of shape (2·dim, 2·dim).
        map: how one step acts on them.
        start: the same moments of (1, z) at the beginning.
    """

    system: System
    method: Method | None
    dt: float
    steps: Any
    mean: Array
    second: Array
    map: MomentMap | DrivenMap
    start: Array

    @property
    def t(self) -> Any:
        """The time, or times, that the moments belong to."""
        return self.steps * self.dt

    @property
    def covariance(self) -> Array:
        """E[z zᵀ] − E[z] E[z]ᵀ."""
        return self.second - self.mean[..., :, None] * self.mean[..., None, :]

    @property
    def growth(self) -> float:
        """The factor by which one step multiplies second moments in the long run."""
        return self.map.growth

    @property
    def stable(self) -> bool:
        """Whether second moments stay bounded in the number of steps."""
        return self.map.stable

    @property
    def energy(self) -> Any:
        """E[H]."""
        return self.expect(self.system.H)

    def expect(self, observable: Callable[..., Any]) -> Any:
        """The expectation of a quadratic function of (q, p), or of (q, p, params)."""
        if self.system.time and np.ndim(self.steps):
            return np.array([self._after(i).expect(observable) for i in range(len(self.steps))])
        value, gradient, hessian = _quadratic(self.system, observable, self.t)
        with np.errstate(invalid="ignore"):
            # Where a coefficient is zero an infinite moment must not matter.
            products = np.where(hessian == 0, 0.0, hessian * self.second)
        total = value + self.mean @ gradient + products.sum(axis=(-2, -1)) / 2
        return total if np.ndim(total) else float(total)

    def _after(self, i: int) -> "Moments":
        return replace(self, steps=int(self.steps[i]), mean=self.mean[i], second=self.second[i])

    def at(self, steps: int | Sequence[int] | np.ndarray) -> "Moments":
        """The moments after another number of steps, or after each of several."""
        numbers = _whole_numbers(steps)
        mean, second = self.map.evolve(self.start, np.atleast_1d(numbers))
        if numbers.ndim == 0:
            return replace(self, steps=int(numbers), mean=mean[0], second=second[0])
        return replace(self, steps=numbers, mean=mean, second=second)

    def __repr__(self) -> str:
        name = "the solution" if self.method is None else self.method.name
        if self.system.time:
            return f"Moments of {name} on {self.system.name!r}: dt={self.dt:g}, steps={self.steps}"
        verdict = "bounded" if self.stable else "unbounded"
        return (
            f"Moments of {name} on {self.system.name!r}: dt={self.dt:g}, steps={self.steps}, "
            f"second moments {verdict}, times {self.growth:.9g} a step"
        )


def exact_moments(
    system: System,
    method: Method,
    initial: tuple[Any, Any],
    *,
    dt: float,
    steps: int | Sequence[int] | np.ndarray,
    noise: Noise | None = None,
) -> Moments:
    """The scheme's own mean and second moments after `steps` steps, with no sampling.

    Args:
        system: a system with linear dynamics (every term affine in q and p); others are refused.
        method: e.g. `da.midpoint()`.
        initial: `(q0, p0)`, each of shape (dim,), or (paths, dim) for equally likely states.
        dt: step size.
        steps: number of steps; an array gives the moments after each of its entries.
        noise: law of the increments; by default what the method wants, as in `da.simulate`.

    Returns:
        A `Moments` record: `.mean`, `.second`, `.covariance`, `.energy`, `.expect(quadratic)`,
        `.growth` and `.stable` (second moments), `.at(steps)`.
    """
    _refuse_traced("da.exact_moments", system, initial=initial, dt=dt)
    start, numbers = _initial(system, initial), _whole_numbers(steps)
    how = step_map(system, method, dt, noise)
    return Moments(system, method, float(dt), 0, EMPTY, EMPTY, how, start).at(numbers)


def solution_moments(
    system: System, initial: tuple[Any, Any], *, dt: float, steps: int | Sequence[int] | np.ndarray
) -> Moments:
    """The moments of a linear system's exact solution at the times `steps`·`dt`, to compare.

    Those of a driven system, from t = 0 on, are solved for to rounding. Its drive is looked at some
    fifty times a step: pulses shorter than dt/50 may fall between them, and need a smaller dt.
    """
    _refuse_traced("theory.solution_moments", system, initial=initial, dt=dt)
    start, numbers = _initial(system, initial), _whole_numbers(steps)
    how = solution_map(system, dt)
    return Moments(system, None, float(dt), 0, EMPTY, EMPTY, how, start).at(numbers)


def stationary_covariance(
    system: System, method: Method, dt: float, noise: Noise | None = None
) -> Array:
    """The covariance of (q, p) that a method settles into, from a discrete Lyapunov equation."""
    _refuse_traced("theory.stationary_covariance", system, dt=dt)
    step_map = method_map(system, method, dt, noise)
    if step_map.growth > 1 - MARGINAL:
        raise ValueError(
            f"{method.name} with dt={dt} has no stationary covariance on {system.name!r}: a step "
            f"multiplies second moments by {step_map.growth:.9g}, which must be below 1. Take a "
            "smaller dt, another method, or a system with friction."
        )
    return _stationary(MomentMap(step_map.second - np.eye(len(step_map.second))))


def exact_stationary_covariance(system: System) -> Array:
    """The covariance of a linear system's stationary law, from a Lyapunov equation.

    For additive noise, A P + P Aᵀ + Σ b_i b_iᵀ = 0; multiplicative noise adds its own terms.
    """
    _refuse_traced("theory.exact_stationary_covariance", system)
    change = MomentMap(generator(system))
    n = len(change.first)
    rate = float(np.linalg.eigvals(change.second[n:, n:]).real.max())
    if rate > -MARGINAL:
        raise ValueError(
            f"{system.name!r} has no stationary covariance: its second moments grow at the rate "
            f"{rate:.3g}, which must be negative. It needs friction in every direction."
        )
    return _stationary(change)


def stability_limit(
    system: System, method: Method, *, stable: float, unstable: float, noise: Noise | None = None
) -> float:
    """The step size between `stable` and `unstable` where second moments cease to be bounded.

    Found by bisection to a relative 1e−10; if there are several, one of them.
    """
    _refuse_traced("theory.stability_limit", system, stable=stable, unstable=unstable)
    for name, dt, wanted in (("stable", stable, True), ("unstable", unstable, False)):
        found = method_map(system, method, dt, noise)
        if found.stable != wanted:
            raise ValueError(
                f"{name}={dt}: a step of this size multiplies second moments of {method.name} on "
                f"{system.name!r} by {found.growth:.9g}, so it is not {name}. Give one step size "
                "on either side of the limit."
            )
    while abs(unstable - stable) > 1e-10 * abs(stable):
        middle = (stable + unstable) / 2
        if method_map(system, method, middle, noise).stable:
            stable = middle
        else:
            unstable = middle
    return stable


def _refuse_traced(what: str, system: Any, **given: Any) -> None:
    refuse_traced(what, params=getattr(system, "params", None), **given)


def _stationary(change: MomentMap) -> Array:
    """The covariance for which first and second moments have no change."""
    first, second, n = change.first, change.second, len(change.first)
    mean = np.linalg.solve(-first[1:, 1:], first[1:, 0])
    triangle = np.linalg.solve(-second[n:, n:], second[n:, :n] @ np.append(1.0, mean))
    return symmetric(triangle, n - 1) - np.outer(mean, mean)


def _initial(system: System, initial: Any) -> Array:
    """E[w wᵀ] of the initial states, as a triangle."""
    if not isinstance(system, System):
        raise TypeError(f"system must be a da.System, not {type(system).__name__}.")
    if not (isinstance(initial, tuple | list) and len(initial) == 2):
        raise TypeError("the initial state must be a pair (q0, p0) of arrays.")
    parts = []
    for name, value in zip(("q0", "p0"), initial, strict=True):
        x = np.asarray(value)
        check_real(name, x)
        if system.shape not in (x.shape, x.shape[1:]) or not np.all(np.isfinite(x)):
            many = ", ".join(map(str, ("paths", *system.shape)))
            raise ValueError(
                f"{name} must be finite and have shape {system.shape}, or ({many}) "
                f"for equally likely states; it has shape {x.shape}."
            )
        parts.append(x.astype(np.float64).reshape(-1, system.dim))
    q, p = parts
    paths = max(len(q), len(p))
    if min(len(q), len(p)) not in (1, paths):
        raise ValueError(f"q0 has {len(q)} states and p0 has {len(p)}: give as many of either.")
    w = np.concatenate([np.ones((paths, 1)), *(np.repeat(x, paths // len(x), 0) for x in parts)], 1)
    return (w.T @ w / paths)[np.triu_indices(w.shape[1])]


def _whole_numbers(steps: Any) -> np.ndarray:
    numbers = np.asarray(steps)
    if not np.issubdtype(numbers.dtype, np.integer) or numbers.ndim > 1 or np.any(numbers < 0):
        raise ValueError(f"steps must be a whole number ≥ 0, or a list of them, not {steps!r}.")
    return numbers


def _quadratic(
    system: System, observable: Callable[..., Any], t: Any
) -> tuple[float, Array, Array]:
    """Value, gradient and second derivative at the origin of a function that has no more."""
    with jax.enable_x64(True):
        params = cast(system.params, np.dtype(np.float64))
        told = system.told(t if system.time else None, params)

        def fun(z: Any) -> Any:
            q, p = z[: system.dim], z[system.dim :]
            return jnp.asarray(system.evaluate(observable, q, p, told), np.float64)

        z = jnp.zeros(2 * system.dim, np.float64)
        if jax.eval_shape(fun, z).shape != ():
            raise ValueError(f"the observable must be a scalar, not of shape {fun(z).shape}.")
        if degree(jax.grad(fun), (z,), (0,)) == Degree.NONLINEAR:
            raise ValueError(
                "the observable is not quadratic in (q, p), so first and second moments do not "
                "give its expectation; use da.simulate with observe={...}."
            )
        parts = fun(z), jax.grad(fun)(z), jax.hessian(fun)(z)
        value, gradient, hessian = map(np.asarray, parts)
    return float(value), gradient, hessian
