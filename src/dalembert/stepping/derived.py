"""Systems, methods and steppers made of others: pairs of paths, paths that stop.

A derived system has states of its own, of which those of the path, or paths, are parts; a derived
method moves them by the steps of another method. So everything that runs and observes paths runs
and observes these.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dalembert.caches import kept
from dalembert.captured import Keyed
from dalembert.methods import Method
from dalembert.methods.stages import StageSystem
from dalembert.stepping.clocks import Clocked
from dalembert.stepping.stepper import Stepper, make_stepper
from dalembert.system import System

Function = Callable[..., Any]


@dataclass(frozen=True, eq=False, repr=False)
class DerivedSystem(System):
    """A system whose states have those of another one as parts."""

    one: System | None = None


def derived_system(
    system: System,
    dim: Any,
    of_scalar: Callable[[Function], Function],
    of_vector: Callable[[Function], Function],
) -> DerivedSystem:
    """A system with the noises of another one, whose functions are made of its functions."""

    what = "constraints" if system.constraint_count else "a flow" if system.flow else ""
    if what:
        raise ValueError(
            f"{system.name!r} has {what}, and neither stop= nor pairs of paths are made for that: "
            'leave stop out, or take da.expect(..., estimator="plain").'
        )

    def scalar(fun: Function | None) -> Any:
        return None if fun is None else of_scalar(fun)

    def vector(fun: Function | None) -> Any:
        return None if fun is None else of_vector(fun)

    noise: dict[str, Any]
    if system.is_joint:
        noise = {"h": scalar(system.h.fun), "f": vector(system.f.fun), "noises": system.noise_shape}
    else:
        noise = {"h": list(map(scalar, system.h)), "f": list(map(vector, system.f))}
    parts = {"dim": dim, "params": system.params, "name": system.name, "one": system}
    parts |= {"time": system.time}
    return DerivedSystem(scalar(system.H), vector(system.F), **noise, **parts)


@dataclass(frozen=True)
class DerivedMethod(Method):
    """A method that takes steps of another one."""

    of: Method

    @property
    def convergence(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.convergence

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.name

    @property
    def stages(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.stages

    def rows(self, noises: int) -> StageSystem:
        """It has no stage equations but those of the other method."""
        raise TypeError(f"{self.family} of {self.name} have no rows but those of {self.name}.")

    def needs(self, noises: int = 1) -> frozenset[str]:
        return self.of.needs(noises)

    def check_noises(self, noises: int) -> None:
        self.of.check_noises(noises)

    def to_dict(self) -> dict[str, Any]:
        of = self.of.to_dict()
        return {"name": self.name, "family": self.family, "of": of} | self.options

    @property
    def options(self) -> dict[str, Any]:
        """What else tells runs with this method apart, besides its functions."""
        return {}

    @abstractmethod
    def stepper(self, one: Stepper, system: System) -> "DerivedStepper":
        """The stepper of a derived system, made of the stepper of one path."""


@dataclass(frozen=True, eq=False)
class DerivedStepper(Clocked):
    """A stepper made of another one, in the same regime; it adds `advance` and `terms_at`."""

    one: Stepper
    system: System
    method: Method

    advance: ClassVar[Callable[..., Any]]
    terms_at: ClassVar[Callable[..., Any]]

    steps: ClassVar[int] = 1
    """Steps of the other stepper in one of this."""

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
    def is_direct(self) -> bool:
        return self.one.is_direct

    @property
    def is_swept(self) -> bool:
        return self.one.is_swept

    @property
    def size(self) -> int:
        """About how many operations on scalars there are in a step."""
        return self.steps * self.one.size

    @property
    def _kept(self) -> Any:
        return self.one._kept

    def advance_on(
        self, q: Any, p: Any, dt: Any, increments: Any, params: Any, *more: Any
    ) -> tuple[Any, Any, Any, Any]:
        """A step that another one follows: `advance`, and `terms_at` the new state."""
        q, p, info = self.advance(q, p, dt, increments, params, *more)
        return q, p, info, self.terms_at(q, p, dt, params)


def make_any_stepper(
    system: System, method: Method, dtype: Any, known_by: Hashable = None
) -> Stepper | DerivedStepper:
    """The stepper of a method on a system, derived or not; made once for the same functions."""
    if not isinstance(method, DerivedMethod):
        return make_stepper(system, method, dtype, known_by=known_by)
    assert isinstance(system, DerivedSystem) and system.one is not None
    one = make_stepper(system.one, method.of, dtype, known_by=known_by)
    # The stepper of one path tells all functions apart: any system derived from it will do.
    return _derived_stepper(one, method, Keyed(system.typed(one.system.params), ()))


@kept
def _derived_stepper(one: Stepper, method: DerivedMethod, system: Keyed) -> DerivedStepper:
    return method.stepper(one, system.value)
