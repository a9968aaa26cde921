"""Two paths of one system on one Brownian path: a fine one of half steps, a coarse one of steps.

The pair is a system of its own, with states of shape (2, …), fine first, so that everything that
runs and observes paths runs and observes pairs of them.
"""

from dataclasses import dataclass
from functools import reduce
from operator import itemgetter
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from dalembert.caches import kept
from dalembert.noise import Increments
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.derived import (
    DerivedMethod,
    DerivedStepper,
    DerivedSystem,
    Function,
    derived_system,
)
from dalembert.stepping.residuals import worse
from dalembert.stepping.stepper import StepInfo, Stepper
from dalembert.system import System


@kept
def pair_of(system: System) -> DerivedSystem:
    """The system whose states are a fine and a coarse one, shape (2, …)."""

    def added(fun: Function) -> Function:
        return lambda q, p, *rest: fun(q[0], p[0], *rest) + fun(q[1], p[1], *rest)

    def stacked(fun: Function) -> Function:
        return lambda q, p, *rest: jnp.stack([fun(q[i], p[i], *rest) for i in range(2)])

    return derived_system(system, (2, *system.shape), added, stacked)


@dataclass(frozen=True)
class PairMethod(DerivedMethod):
    """Two half steps of a method with the fine path, and one step with the coarse path."""

    family: ClassVar[str] = "pairs of paths"

    def stepper(self, one: Stepper, system: System) -> DerivedStepper:
        return PairStepper(one, system, self)


@dataclass(frozen=True, eq=False)
class PairStepper(DerivedStepper):
    """A stepper of pairs, made of the stepper of one path; its noise is `Halves`."""

    steps = 3

    def advance(
        self,
        q: Any,
        p: Any,
        dt: Any,
        increments: Increments,
        params: Any,
        solver: Solver = Solver.BOTH,
        at_start: Any = None,
    ) -> tuple[Any, Any, StepInfo]:
        """One step of one pair, for states that have been entered."""
        first, second, whole = (jax.tree.map(itemgetter(i), increments) for i in range(3))
        fine, coarse = self._parts(q, p)
        at_fine, at_coarse = at_start or (None, None)

        def taken(state: Any, h: Any, noise: Increments, known: Any) -> tuple[Any, StepInfo]:
            q, p, info = self.one.advance(state[0], state[1], h, noise, params, solver, known)
            return (q, p), info

        fine, report = taken(fine, dt / 2, first, at_fine)
        fine, then = taken(fine, dt / 2, second, self.one.terms_at(*fine, dt / 2, params))
        coarse, beside = taken(coarse, dt, whole, at_coarse)
        reports = (report, then, beside)
        info = StepInfo(
            report.converged & then.converged & beside.converged,
            reduce(jnp.maximum, [one.iterations for one in reports]),
            reduce(worse, [one.residual for one in reports]),
        )
        q, p = map(self._joined, fine, coarse)
        return q, p, info

    def terms_at(self, q: Any, p: Any, dt: Any, params: Any) -> tuple[Any, ...]:
        """What the next steps of both paths need not evaluate again."""
        fine, coarse = self._parts(q, p)
        return self.one.terms_at(*fine, dt / 2, params), self.one.terms_at(*coarse, dt, params)

    def _parts(self, q: Any, p: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """The fine and the coarse state of a pair; the fine path has taken twice as many steps."""
        dim, one, ((q, start), (p, steps)) = self.one.system.dim, self.one, map(self.split, (q, p))
        twice = None if steps is None else 2 * steps
        fine = one.append(q[:dim], start), one.append(p[:dim], twice)
        return fine, (one.append(q[dim:], start), one.append(p[dim:], steps))

    def _joined(self, fine: Any, coarse: Any) -> Any:
        (fine, _), (coarse, clock) = map(self.one.split, (fine, coarse))
        both = (*fine, *coarse) if self.is_scalar else jnp.concatenate([fine, coarse])
        return self.append(both, clock)
