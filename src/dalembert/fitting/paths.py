"""The Gaussian likelihood of observed paths, from the mean and covariance of a method's step.

A step is a function of the state and of independent normal numbers ξ: one for each ΔW, and one
more where the method reads ΔZ. Each is moved alone to ±√3, the nodes of the three-point rule of
Gauss and Hermite; with first and second differences J_i and D_i of the new state,

    mean = Φ(0) + ½ Σ D_i,     covariance = Σ J_i J_iᵀ + ½ Σ D_i D_iᵀ.

That is exact for additive noise in linear systems, has Itô's correction for multiplicative noise,
and the covariance is never indefinite.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

from dalembert.caches import kept
from dalembert.driven import check_digits
from dalembert.fitting.observed import (
    Free,
    check_names,
    checked_times,
    observed_array,
    unravelled,
)
from dalembert.methods import Method
from dalembert.noise import Increments
from dalembert.options import compiled_sooner
from dalembert.precision import cast, traced_dtype, with_precision
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.step import check_method
from dalembert.stepping.stepper import Stepper, make_stepper
from dalembert.system import System

__all__ = ["PathLikelihood", "path_likelihood"]

REGULAR = 1e-6
"""Least share of the variance of a component that the others leave open."""

SEEN = 1e-10
"""Least standard deviation that counts as noise, relative to the size of a component."""

TOGETHER = 4096
"""Transitions that are worked on at a time: what is needed of them fits into the memory."""


class Transitions(NamedTuple):
    """From one observation to the next; first axis: all of them, of all paths."""

    t: Any
    dt: Any
    q: Any
    p: Any
    z: Any


class Scored(NamedTuple):
    """A value that is to be large, and what it says about parameters, flat.

    Attributes:
        value: the log-likelihood.
        score: its gradient.
        information: what its curvature is expected to be, with the other sign.
        spread: the covariance of the score, estimated.
    """

    value: Any
    score: Any
    information: Any
    spread: Any


@dataclass(frozen=True, eq=False, repr=False)
class PathLikelihood:
    """The log-likelihood of fully observed paths, a function of parameters by name.

    Call it with the parameters that are looked for, e.g. `likelihood({"nu": 0.1})`; the others are
    those of the system. It can be used inside `jax.jit`, `jax.vmap` and `jax.grad`, by any
    optimiser or sampler. Where a step cannot be solved it is NaN. Made by `path_likelihood`.

    Attributes:
        system: the model.
        method: whose step gives mean and covariance.
        transitions: what was observed, pair by pair.
        substeps: steps from one observation to the next.
        components: entries of (q, p) that count: those that the noise of a step reaches freely.
    """

    system: System
    method: Method
    transitions: Transitions
    substeps: int
    components: tuple[int, ...]

    kind = "Gaussian likelihood of observed paths"
    rounds = 1
    near = 1e-4
    longest = 2.0

    def __call__(self, params: Mapping[str, Any]) -> Any:
        check_names(self.system, params)
        kind = traced_dtype(params, np.float64)
        given, data = cast(({**self.system.params, **params}, self.transitions), kind)
        return self._computed(_total, given, data, dtype=kind)

    def scored(self, free: Free, flat: np.ndarray) -> Scored:
        """Value, score and Fisher's information at some parameters."""
        given = flat, self.system.params, self.transitions
        return self._computed(_scored, *given, options=(free,))

    def _computed(
        self, make: Any, *given: Any, options: tuple[Any, ...] = (), dtype: Any = np.float64
    ) -> Any:
        options = (self.substeps, self.components, *options)
        return _computed(self.system, self.method, make, options, given, dtype)

    def at(self, params: Mapping[str, Any]) -> "PathLikelihood":
        """Nothing has to be made ready for other parameters."""
        return self

    @property
    def count(self) -> int:
        """Transitions, whose scores tell how well parameters are known."""
        return len(self.transitions.dt)

    def check_enough(self, parameters: int) -> None:
        """Refuse more parameters than there are transitions to know the errors of."""
        if self.count <= parameters:
            raise ValueError(
                f"{self.count} transitions do not tell {parameters} parameters and their errors: "
                f"observe more than {parameters}, better {10 * parameters} or more, or leave "
                "parameters out of the guess."
            )

    @property
    def observations(self) -> str:
        """How much was observed, in words."""
        return f"{self.count} transitions"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of estimates has to know."""
        dim = self.system.dim
        if len(self.components) == 2 * dim:
            return ()
        names = [f"q[{c}]" if c < dim else f"p[{c - dim}]" for c in self.components]
        return (
            f"the noise of one step of {self.method.name} leaves the covariance of (q, p) singular:"
            f" what counts is {', '.join(names)} given the state before",
        )

    def __repr__(self) -> str:
        title = f"{self.kind}: {self.method.name} on {self.system.name!r}, {self.observations}"
        return "\n".join([title, *(f"- {note}" for note in self.notes)])


def path_likelihood(
    system: System, method: Method, t: Any, q: Any, p: Any, *, substeps: int = 1
) -> PathLikelihood:
    """The Gaussian likelihood of paths whose positions and momenta were observed without error.

    Between two observations stand `substeps` steps of the method, whose mean and covariance, given
    the first of them, are those of the likelihood.

    Args:
        system: the model. Its parameters are those that are not fitted, and near enough to tell
            which components the noise reaches.
        method: one that reads no more than ΔW and ΔZ, e.g. `da.midpoint()`. For additive noise in
            the momenta alone `da.additive_midpoint()` is best: it reads ΔZ, and so has the
            covariance of (q, p) right, which is singular in methods that read ΔW alone. Of those,
            only the components count that the noise of one step reaches, momenta first.
        t: times of observation, shape (times,); they need not be even. Those of a driven system
            are its time.
        q: positions, shape (times, *shape) or (times, paths, *shape), like `run.q` of
            `da.simulate(..., keep="all")`.
        p: momenta, likewise.
        substeps: more of them are more accurate where observations are far apart.

    Raises:
        ValueError: if data do not fit together, no component is reached by the noise, or the noise
            vanishes at some of the observations.
    """
    check_method(system, method)
    beyond = sorted(method.needs(system.noises) - {"dW", "dZ"})
    if beyond:
        raise ValueError(
            f"{method.name} reads the increments {beyond}, which are not normal: take a method "
            "that reads ΔW and ΔZ alone, such as da.midpoint()."
        )
    if isinstance(substeps, bool) or not isinstance(substeps, int) or substeps < 1:
        raise ValueError(f"substeps must be a positive integer, not {substeps!r}.")
    times = checked_times(t)
    q, p = (observed_array(n, x, len(times), system.shape) for n, x in (("q", q), ("p", p)))
    if q.shape != p.shape:
        raise ValueError(f"q and p must be of the same paths, not of shapes {q.shape}, {p.shape}.")
    q, p = (x.reshape(*x.shape[:2], system.dim) for x in (q, p))
    z = np.concatenate([q, p], axis=-1)
    dt = np.repeat(np.diff(times), q.shape[1])
    check_digits(system, times, dt / substeps, np.float64)
    states = (x.reshape(len(dt), -1) for x in (q[:-1], p[:-1], z[1:]))
    data = Transitions(np.repeat(times[:-1], q.shape[1]), dt, *states)
    one_step = data._replace(dt=dt / substeps)
    factor, solved = _computed(system, method, _factors, (), (system.params, one_step))
    if not np.all(solved):
        raise ValueError(
            f"{np.sum(~np.asarray(solved))} of {len(dt)} steps of {method.name} from one "
            f"observation to the next cannot be taken: with substeps={2 * substeps} they are "
            "shorter; or the system's parameters are far from those of the data."
        )
    covariance = np.einsum("nai,nbi->nab", factor, factor)
    return PathLikelihood(
        system, method, data, substeps, _reached(system, method, covariance, np.abs(z).max((0, 1)))
    )


def _reached(
    system: System, method: Method, covariance: np.ndarray, size: np.ndarray
) -> tuple[int, ...]:
    """The components that the noise reaches freely, momenta first; `covariance`: of every step."""
    dim, left, found = system.dim, covariance.copy(), []
    for c in (*range(dim, 2 * dim), *range(dim)):
        variance, pivot = covariance[:, c, c], left[:, c, c]
        seen = (variance > (SEEN * (1 + size[c])) ** 2) & (pivot > REGULAR * variance)
        if np.all(seen):
            found.append(c)
            left -= left[:, :, c, None] * left[:, None, c, :] / pivot[:, None, None]
        elif np.any(seen):
            name = f"q[{c}]" if c < dim else f"p[{c - dim}]"
            raise ValueError(
                f"the noise does not reach {name} in {np.sum(~seen)} of {len(seen)} transitions, "
                f"first in number {np.argmin(seen)}: leave those observations out, since nothing "
                "is random there."
            )
    if not found:
        raise ValueError(
            f"no noise of {system.name!r} reaches q or p in a step of {method.name}: without noise "
            "there is no likelihood. Look at h, f and their parameters."
        )
    return tuple(sorted(found))


def _gaussian(
    stepper: Stepper, substeps: int, one: Transitions, params: Any
) -> tuple[Any, Any, Any]:
    """Mean and factor of the covariance after some steps, and whether all could be taken."""
    system, noises, dt = stepper.system, stepper.system.noises, one.dt
    q, p = system.begin(one.q, one.p, one.t)
    kinds = 2 if "dZ" in stepper.method.needs(noises) else 1
    shape = (substeps, kinds, noises)
    h = dt / substeps

    def end(xi: Any) -> tuple[Any, Any]:
        def step(now: Any, xi: Any) -> tuple[Any, None]:
            q, p, fine = now
            dZ = None if kinds == 1 else h * jnp.sqrt(h) / 2 * (xi[0] + xi[1] / np.sqrt(3))
            increments = Increments(dW=jnp.sqrt(h) * xi[0], dZ=dZ)
            q, p, info = stepper.advance(q, p, h, increments, params, Solver.BOTH)
            return (q, p, fine & info.converged), None

        start = stepper.enter(q), stepper.enter(p), jnp.asarray(True)
        (q1, p1, fine), _ = lax.scan(step, start, xi)
        ends = (stepper.leave(x)[: system.dim] for x in (q1, p1))
        return jnp.concatenate([*ends]), fine

    node = np.asarray(np.sqrt(3), dt.dtype)
    nodes = node * jnp.eye(prod(shape), dtype=dt.dtype).reshape(-1, *shape)
    ends, fine = jax.vmap(end)(jnp.concatenate([jnp.zeros((1, *shape), dt.dtype), nodes, -nodes]))
    middle, (above, below) = ends[0], jnp.split(ends[1:], 2)
    first, second = (above - below) / (2 * node), (above + below - 2 * middle[None]) / node**2
    factor = jnp.concatenate([first, second / np.asarray(np.sqrt(2), dt.dtype)]).T
    return middle + jnp.sum(second, 0) / 2, factor, jnp.all(fine)


def _density(
    stepper: Stepper, substeps: int, components: tuple[int, ...], params: Any, one: Transitions
) -> tuple[Any, Any, Any]:
    """Residual and covariance of one transition in the components that count."""
    mean, factor, solved = _gaussian(stepper, substeps, one, params)
    at = np.asarray(components)
    covariance = factor[at] @ factor[at].T
    return (one.z - mean)[at], covariance, solved


def _log_normal(residual: Any, root: Any) -> Any:
    """The logarithm of a normal density; `root` is the Cholesky factor of its covariance."""
    u = solve_triangular(root, residual, lower=True)
    log = jnp.sum(jnp.log(jnp.diag(root)))
    return -(u @ u) / 2 - log - len(residual) * np.log(2 * np.pi) / 2


def _over_all(fun: Any, data: Transitions) -> Any:
    """A function of one transition, of all of them."""
    if len(data.dt) <= TOGETHER:
        return jax.vmap(fun)(data)
    return lax.map(fun, data, batch_size=TOGETHER)


def _computed(
    system: System,
    method: Method,
    make: Callable[..., Any],
    options: tuple[Any, ...],
    given: tuple[Any, ...],
    dtype: Any = np.float64,
) -> Any:
    """What a function gives that `make` has compiled for the stepper and some options."""

    def run(*given: Any) -> Any:
        return make(make_stepper(system, method, dtype), *options)(*given)

    return with_precision(run, *given, dtype=dtype)


@kept
def _factors(stepper: Stepper) -> Any:
    def run(params: Any, data: Transitions) -> tuple[Any, Any]:
        def one(one: Transitions) -> tuple[Any, Any]:
            return _gaussian(stepper, 1, one, params)[1:]

        return _over_all(one, data)

    return jax.jit(run, compiler_options=compiled_sooner())


@kept
def _total(stepper: Stepper, substeps: int, components: tuple[int, ...]) -> Any:
    def run(params: Any, data: Transitions) -> Any:
        def one(one: Transitions) -> Any:
            residual, covariance, solved = _density(stepper, substeps, components, params, one)
            value = _log_normal(residual, jnp.linalg.cholesky(covariance))
            return jnp.where(solved, value, jnp.nan)

        return jnp.sum(_over_all(one, data))

    return jax.jit(run)


@kept
def _scored(stepper: Stepper, substeps: int, components: tuple[int, ...], free: Free) -> Any:
    def run(flat: Any, params: Any, data: Transitions) -> Scored:
        def one(one: Transitions) -> tuple[Any, Any, Any]:
            def found(flat: Any) -> tuple[Any, Any]:
                given = {**params, **unravelled(free, flat)}
                residual, covariance, solved = _density(stepper, substeps, components, given, one)
                return (residual, covariance), (residual, covariance, solved)

            (slopes, bends), (residual, covariance, solved) = jax.jacfwd(found, has_aux=True)(flat)
            root = jnp.linalg.cholesky(covariance)
            whiten = partial(solve_triangular, root, lower=True)
            u, slopes = whiten(residual), whiten(slopes)
            half = jax.vmap(whiten, 2, 2)(bends)
            bends = jax.vmap(whiten, 2, 2)(jnp.swapaxes(half, 0, 1))
            score = -u @ slopes + jnp.einsum("a,abk,b->k", u, bends, u) / 2
            score -= jnp.einsum("aak->k", bends) / 2
            information = slopes.T @ slopes + jnp.einsum("abk,bal->kl", bends, bends) / 2
            value = jnp.where(solved, _log_normal(residual, root), jnp.nan)
            return value, score, information

        value, score, information = _over_all(one, data)
        return Scored(jnp.sum(value), jnp.sum(score, 0), jnp.sum(information, 0), score.T @ score)

    return jax.jit(run)
