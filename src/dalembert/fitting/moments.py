"""Moments of simulated paths matched to those of observed ones, with common random numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.ensemble.simulate import simulate
from dalembert.fitting.observed import Free, check_names, checked_times, observed_array, unravelled
from dalembert.fitting.paths import Scored
from dalembert.fitting.profile import Profile, profiled
from dalembert.methods import Method
from dalembert.precision import check_dt, with_precision
from dalembert.system import System

__all__ = ["MomentMatch", "lagged_moments", "match_moments"]

WIDTH = 0.25
"""Slopes are taken over this share of a parameter to both sides, of one where it is zero. Means
over paths are smooth functions of parameters, and rough: where a path just crosses a barrier, the
least change turns it, and slopes at a point tell of few such paths alone."""

FEW = 10
"""Simulated paths for each moment below which their covariance, and errors with it, is rough."""

MOST_NOISE = 0.75
"""Share of the information beyond which noise in slopes is not made up for."""


def lagged_moments(*lags: int) -> Callable[[Any], Any]:
    """A summary of a path y, shape (times, …): the means, and of products y_i(t) y_j(t + lag).

    Lags count observations, e.g. `lagged_moments(0, 1, 2, 4)`. Time averages, one number each.
    """
    if not lags or not all(isinstance(n, int | np.integer) and n >= 0 for n in lags):
        raise ValueError(f"lags must be numbers of observations, such as 0, 1, 2, not {lags!r}.")

    def summary(y: Any) -> Any:
        if max(lags) >= len(y):
            raise ValueError(f"a lag of {max(lags)} needs more than {len(y)} observations.")
        y = y.reshape(len(y), -1)
        found = [jnp.mean(y, 0)]
        for lag in lags:
            products = y[: len(y) - lag].T @ y[lag:] / (len(y) - lag)
            # Without a lag the products are symmetric, and each counts once.
            i, j = np.triu_indices(len(products)) if lag == 0 else np.indices(products.shape)
            found.append(products[i, j].ravel())
        return jnp.concatenate(found)

    return summary


@dataclass(frozen=True, eq=False, repr=False)
class MomentMatch:
    """How far moments of simulated paths are from those of observed ones.

    Call it with parameters by name to get −½ of the squared misfit, a smooth function that can be
    used inside `jax.jit` and `jax.grad`: the noise is the same for all parameters. Made by
    `match_moments`.

    Attributes:
        system: the model.
        target: means of the observed summaries over paths, shape (moments,).
        observed_paths: how many paths were observed.
        paths: how many are simulated.
        simulated: summaries of all simulated paths, a function of all parameters of the system.
        weights: inverse covariance of the difference of both means, from simulated paths with the
            parameters of the system; `at` gives those with others, and `fit` takes them.
    """

    system: System
    target: np.ndarray
    observed_paths: int
    paths: int
    simulated: Callable[[Any], Any]
    weights: np.ndarray

    # Slopes over a quarter of a parameter say nothing of one that is seven times as large.
    kind = "Moments matched with common random numbers"
    rounds = 2
    near = 0.05
    longest = 0.5
    count = None

    def __call__(self, params: Mapping[str, Any]) -> Any:
        check_names(self.system, params)

        def value(params: Any) -> Any:
            gap = self.target - jnp.mean(self.simulated({**self.system.params, **params}), 0)
            return -(gap @ self.weights @ gap) / 2

        return with_precision(value, dict(params))

    def scored(self, free: Free, flat: np.ndarray) -> Scored:
        """Value, score and Gauss and Newton's information at some parameters.

        Slopes are means over simulated paths, and what their noise adds to the information is taken
        off: else it would seem that the data tell more than they do.
        """

        def of_paths(flat: np.ndarray) -> np.ndarray:
            return np.asarray(self._summaries(unravelled(free, flat)))

        widths = WIDTH * np.where(flat == 0, 1.0, np.abs(flat))
        sides = [(of_paths(flat + e), of_paths(flat - e)) for e in np.diag(widths)]
        slopes = np.stack([up - down for up, down in sides], 2) / (2 * widths)
        slope, gap = slopes.mean(0), self.target - of_paths(flat).mean(0)
        spread = slope.T @ self.weights @ slope
        rest = slopes - slope
        noise = np.einsum("imp,mn,inq->pq", rest, self.weights, rest, optimize=True)
        information = _less(spread, noise / (self.paths * (self.paths - 1)))
        value = -(gap @ self.weights @ gap) / 2
        return Scored(value, slope.T @ self.weights @ gap, information, spread)

    def _summaries(self, params: Mapping[str, Any]) -> Any:
        return with_precision(self.simulated, {**self.system.params, **params})

    def at(self, params: Mapping[str, Any]) -> "MomentMatch":
        """The same with weights from paths with these parameters."""
        summaries = np.asarray(self._summaries(params))
        if not np.all(np.isfinite(summaries)):
            raise ValueError(
                f"of {self.paths} simulated paths {np.sum(~np.isfinite(summaries).all(1))} failed "
                f"with {dict(params)}: take a smaller dt, or begin elsewhere."
            )
        covariance = np.cov(summaries.T).reshape(2 * self.target.shape)
        scale = np.sqrt(np.diag(covariance))
        constant = scale <= 1e-12 * (1 + np.abs(summaries).max(0))
        if constant.any():
            raise ValueError(
                f"moments {np.flatnonzero(constant).tolist()} of the summary are the same on all "
                "paths: leave them out."
            )
        if np.linalg.eigvalsh(covariance / np.outer(scale, scale))[0] < 1e-10:
            raise ValueError(
                f"the {len(self.target)} moments of the summary depend on each other on "
                f"{self.paths} simulated paths: take fewer moments or more paths."
            )
        share = 1 / self.observed_paths + 1 / self.paths
        return replace(self, weights=np.linalg.inv(covariance * share))

    def profile(
        self, free: Free, flat: np.ndarray, covariance: np.ndarray, is_positive: np.ndarray
    ) -> Profile | None:
        """The misfit around an estimate."""

        def summaries(flat: np.ndarray) -> np.ndarray:
            return np.asarray(self._summaries(unravelled(free, flat)))

        share = 1 / self.observed_paths + 1 / self.paths
        return profiled(flat, covariance, is_positive, self.target, share, summaries)

    def check_enough(self, parameters: int) -> None:
        """Refuse more parameters than moments."""
        if len(self.target) < parameters:
            raise ValueError(
                f"{len(self.target)} moments do not determine {parameters} parameters: give a "
                "summary with more of them, or leave parameters out of the guess."
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of estimates has to know."""
        moments = len(self.target)
        if self.paths >= FEW * moments:
            return ()
        # The inverse of a covariance of few paths is too large on average, by Wishart's law.
        short = (max(self.paths - moments - 2, 0) / (self.paths - 1)) ** 0.5
        return (
            f"{self.paths} simulated paths are few for the covariance of {moments} moments: "
            f"standard errors are about {short:.2f} of what they should be. Simulate "
            f"{FEW * moments} paths or more",
        )

    def misfit(self, value: Any, parameters: int) -> tuple[float, int]:
        """The squared misfit, and its degrees of freedom."""
        return -2 * float(value), len(self.target) - parameters

    @property
    def observations(self) -> str:
        """How much was observed, in words."""
        return f"{len(self.target)} moments of {self.observed_paths} observed paths"

    def __repr__(self) -> str:
        return f"{self.kind}: {self.system.name!r}, {self.observations}, {self.paths} simulated"


def _less(whole: np.ndarray, part: np.ndarray) -> np.ndarray:
    """A matrix less another one, of which no more than `MOST_NOISE` of the first is taken."""
    if not np.all(np.isfinite(whole)) or np.linalg.eigvalsh(whole)[0] <= 0:
        return whole  # told apart later, with names
    root = np.linalg.cholesky(whole)
    shares, axes = np.linalg.eigh(np.linalg.solve(root, np.linalg.solve(root, part).T))
    scaled = root @ axes
    return whole - (scaled * np.minimum(shares, MOST_NOISE)) @ scaled.T


def match_moments(
    system: System,
    method: Method,
    t: Any,
    y: Any,
    *,
    observe: Callable[..., Any],
    initial: Any,
    dt: float,
    summary: Callable[[Any], Any] | None = None,
    measurement: float | str = 0.0,
    burn_in: float = 0.0,
    paths: int = 200,
    seed: int = 0,
) -> MomentMatch:
    """Match moments of simulated paths to those of paths that were observed in part or with errors.

    Every observed path becomes a few numbers, its summary; so does every simulated path. The means
    of both are compared, weighted by the covariance of a summary among simulated paths. Standard
    errors of the fit have the noise of both samples in them.

    Args:
        system: the model, with parameters by name.
        method: what simulates it, e.g. `da.midpoint()`.
        t: times of observation, shape (times,), evenly spaced.
        y: what was observed, shape (times, …) or (times, paths, …) with the shape of `observe`.
        observe: what is seen of a state, `(q, p, params) -> array`, e.g. the position alone; of a
            driven system `(q, p, t, params) -> array`.
        initial: states at the first observation, or `burn_in` before it: arrays or a sampler, as
            `da.simulate` takes them.
        dt: step of the simulation; the spacing of the observations is a multiple of it.
        summary: function of one path, shape (times, …), that gives an array (moments,), at least as
            many as there are parameters; `lagged_moments(0, 1, 2, 4)` if not given.
        measurement: standard deviation of normal errors in every number of `y`, or the name of the
            parameter of the system that is it.
        burn_in: time simulated before the first observation, a multiple of their spacing.
        paths: how many paths are simulated.
        seed: of their noise, which is the same for all parameters.
    """
    times = checked_times(t)
    spacing = (times[-1] - times[0]) / (len(times) - 1)
    uneven = np.abs(np.diff(times) - spacing) > 1e-6 * spacing
    if uneven.any():
        raise ValueError(
            f"t must be evenly spaced, but t[{np.argmax(uneven)}] and the next are "
            f"{np.diff(times)[np.argmax(uneven)]:.6g} apart, and all on average {spacing:.6g}: "
            "interpolate, or cut the data into pieces and take them as paths."
        )
    check_dt(dt)
    steps, before = round(spacing / dt), round(burn_in / spacing)
    if steps < 1 or abs(steps * dt - spacing) > 1e-6 * spacing:
        raise ValueError(
            f"dt = {dt} does not divide the spacing {spacing:.6g} of the observations: take "
            f"{spacing / max(steps, 1):.6g}."
        )
    if before < 0 or abs(before * spacing - burn_in) > 1e-6 * spacing:
        raise ValueError(f"burn_in = {burn_in} must be a multiple of the spacing {spacing:.6g}.")
    if isinstance(measurement, str) and measurement not in (system.params or ()):
        raise ValueError(f"{system.name!r} has no parameter {measurement!r} for the errors of y.")
    if system.time and abs(times[0] - burn_in) > 1e-6 * spacing:
        raise ValueError(
            f"{system.name!r} is driven in time, and simulated paths begin at t = 0: the first "
            f"observation, at t = {times[0]:g}, is to be burn_in = {burn_in:g} later. Give "
            "burn_in, or write the drive as a function of t - t0 or t + t0."
        )
    reduce = lagged_moments(0, 1, 2, 4) if summary is None else summary
    clock = np.arange(before, before + len(times)) * steps * dt if system.time else ()

    def simulated(params: Any) -> Any:
        run: Any = simulate(
            system.with_params(params),
            method,
            initial,
            dt=dt,
            t_end=(before + len(times) - 1) * steps * dt,
            paths=paths,
            seed=seed,
            save_every=steps,
            keep="all",
        )

        def see(q: Any, p: Any, *t: Any) -> Any:
            return jax.vmap(lambda q, p: jnp.asarray(observe(q, p, *t, params)))(q, p)

        t = (jnp.asarray(clock, run.q.dtype),) if system.time else ()
        seen = jax.vmap(see)(run.q[before:], run.p[before:], *t)
        error = params[measurement] if isinstance(measurement, str) else measurement
        noise = jax.random.normal(jax.random.key(seed), seen.shape, seen.dtype)
        return jax.vmap(reduce, 1)(seen + jnp.asarray(error, seen.dtype) * noise)

    like = jax.ShapeDtypeStruct(system.shape, np.float64)
    with jax.enable_x64(True):
        t = (jax.ShapeDtypeStruct((), np.float64),) if system.time else ()
        shape = jax.eval_shape(observe, like, like, *t, system.params).shape
    observed = observed_array("y", y, len(times), shape)
    target = np.asarray(with_precision(jax.vmap(reduce, 1), observed))
    if target.ndim != 2:
        raise ValueError(
            f"summary must give an array of shape (moments,), not {target.shape[1:]}, of a path."
        )
    if paths <= target.shape[1] + 1:
        raise ValueError(
            f"{target.shape[1]} moments need more than {target.shape[1] + 1} simulated paths, not "
            f"{paths}, for their covariance."
        )
    unweighted = np.eye(target.shape[1])
    compiled = jax.jit(simulated)
    match = MomentMatch(system, target.mean(0), observed.shape[1], paths, compiled, unweighted)
    return match.at(system.params)
