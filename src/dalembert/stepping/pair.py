"""Two paths of one system on one Brownian path: a fine one of half steps, a coarse one of steps.

The pair is a system of its own, with states of shape (2, …), fine first, so that everything that
runs and observes paths runs and observes pairs of them.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.captured import Keyed
from dalembert.methods import Method
from dalembert.methods.stages import StageSystem
from dalembert.noise import Increments
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.newton import worse
from dalembert.stepping.stepper import StepInfo, Stepper, make_stepper
from dalembert.system import System

__all__ = ["PairMethod", "PairStepper", "PairSystem", "make_pair_stepper", "pair_of"]


@dataclass(frozen=True, eq=False, repr=False)
class PairSystem(System):
    """Two copies of a system, driven by the same noises."""

    one: System | None = None


@kept
def pair_of(system: System) -> PairSystem:
    """The system whose states are a fine and a coarse one, shape (2, …)."""

    def added(fun: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return fun and (lambda q, p, *rest: fun(q[0], p[0], *rest) + fun(q[1], p[1], *rest))

    def stacked(fun: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return fun and (
            lambda q, p, *rest: jnp.stack([fun(q[i], p[i], *rest) for i in range(2)]).astype(
                q.dtype
            )
        )

    if system.is_joint:
        noise: dict[str, Any] = {
            "h": added(system.h.fun),
            "f": stacked(system.f.fun),
            "noises": system.noise_shape,
        }
    else:
        noise = {"h": list(map(added, system.h)), "f": list(map(stacked, system.f))}
    return PairSystem(
        H=added(system.H),  # pyright: ignore[reportArgumentType]
        F=stacked(system.F),
        dim=(2, *system.shape),
        params=system.params,
        name=system.name,
        one=system,
        **noise,
    )


@dataclass(frozen=True)
class PairMethod(Method):
    """Two half steps of a method with the fine path, and one step with the coarse path."""

    of: Method

    family: ClassVar[str] = "two half steps beside one step"
    convergence: ClassVar[Any] = "mean-square"

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.name

    @property
    def stages(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.stages

    def rows(self, noises: int) -> StageSystem:
        """A pair has no stage equations of its own, but those of its three steps."""
        raise TypeError(f"the pair of {self.name} has no rows: its steps are those of {self.name}.")

    def needs(self, noises: int = 1) -> frozenset[str]:
        return self.of.needs(noises)

    def check_noises(self, noises: int) -> None:
        self.of.check_noises(noises)

    def to_dict(self) -> dict[str, Any]:
        return {"family": self.family, "of": self.of.to_dict()}


@dataclass(frozen=True, eq=False)
class PairStepper:
    """A stepper of pairs, made of the stepper of one path; its noise is `Halves`."""

    one: Stepper
    system: System
    method: Method

    @property
    def dtype(self) -> np.dtype:
        return self.one.dtype

    @property
    def notice(self) -> str:
        return self.one.notice

    @property
    def is_scalar(self) -> bool:
        return self.one.is_scalar

    @property
    def is_implicit(self) -> bool:
        return self.one.is_implicit

    @property
    def is_nonlinear(self) -> bool:
        return self.one.is_nonlinear

    @property
    def size(self) -> int:
        """About how many operations on scalars there are in a step."""
        return 3 * self.one.size

    @property
    def _kept(self) -> Any:
        return self.one._kept

    def is_finite(self, q: Any, p: Any) -> Any:
        """Whether both states of a pair are finite."""
        return self.one.is_finite(q, p)

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
        fine, then = taken(fine, dt / 2, second, self.one.terms_at(*fine, params))
        coarse, beside = taken(coarse, dt, whole, at_coarse)
        reports = (report, then, beside)
        info = StepInfo(
            report.converged & then.converged & beside.converged,
            reduce(jnp.maximum, [one.iterations for one in reports]),
            reduce(worse, [one.residual for one in reports]),
        )
        q, p = map(self._joined, fine, coarse)
        return q, p, info

    def terms_at(self, q: Any, p: Any, params: Any) -> tuple[Any, ...]:
        """What the next steps of both paths need not evaluate again."""
        return tuple(self.one.terms_at(*state, params) for state in self._parts(q, p))

    def _parts(self, q: Any, p: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """The fine and the coarse state of a pair."""
        dim = self.one.system.dim
        return (q[:dim], p[:dim]), (q[dim:], p[dim:])

    def _joined(self, fine: Any, coarse: Any) -> Any:
        return (*fine, *coarse) if self.is_scalar else jnp.concatenate([fine, coarse])


def make_pair_stepper(
    system: PairSystem, method: PairMethod, dtype: Any, known_by: Hashable = None
) -> PairStepper:
    """The step of a method on pairs; made once for the same functions and types."""
    assert system.one is not None, "pairs are made by pair_of"
    one = make_stepper(system.one, method.of, dtype, known_by=known_by)
    # The stepper of one path already tells all functions apart: any pair of them will do.
    return _pair_stepper(one, method, Keyed(system.typed(one.system.params), ()))


@kept
def _pair_stepper(one: Stepper, method: PairMethod, system: Keyed) -> PairStepper:
    return PairStepper(one, system.value, method)
