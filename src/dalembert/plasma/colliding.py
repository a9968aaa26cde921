"""Which collisions a plasma has: their rates, and whether they are flows or forces."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dalembert.flow import Flow
from dalembert.plasma.collisions import Forces, LenardBernstein
from dalembert.plasma.combined import all_flows, all_forces, with_light, with_own_rate
from dalembert.plasma.particles import check_sides, is_finite_or_zero
from dalembert.precision import is_traced
from dalembert.system import System
from dalembert.systems._parameters import Params, Rule, parameters

__all__ = ["Colliding", "Collisions"]

OPERATORS = {
    "lenard": "LenardBernstein()",
    "bernstein": "LenardBernstein()",
    "lorentz": "Lorentz()",
    "coulomb": "CoulombPairs(cells=32)",
    "landau": "CoulombPairs(cells=32)",
}
"""What is written for the name of an operator."""

NEEDS = {"energy": "kinetic energy"} | {f"momentum_{axis}": "momentum" for axis in "xyz"}
"""What collisions must keep, by its name in `keeps`, for an invariant of a plasma to be left."""


class Collisions(Protocol):
    """What an operator must have to be that of a plasma.

    One with `reads_temperature = False` has no parameter `temperature`; one that can be a force
    inside a method has `forces` besides, with the same arguments, which returns
    `da.plasma.Forces`.

    All functions see the particles: positions, and momenta M v, of that shape, also in
    `vlasov_maxwell`. Of the invariants of a plasma those are left whose part is among `keeps`:
    "momentum", and "kinetic energy" of what leaves positions where they are.
    """

    def flow(self, shape: tuple[int, ...], axes: int, params: Params) -> Flow:
        """The flow for velocities of a shape, in a box of so many dimensions, or an error."""
        ...


@dataclass(frozen=True)
class Colliding:
    """What is said of the collisions of a plasma; the arguments are those of `vlasov_poisson`.

    Attributes:
        nu, temperature, collisions, inside: as given.
    """

    nu: Any
    temperature: Any
    collisions: Any
    inside: bool

    def __post_init__(self) -> None:
        if not isinstance(self.inside, bool):
            raise TypeError(f"inside must be True or False, not {self.inside!r}.")
        if self.is_several and not self.collisions:
            raise ValueError("collisions is empty: leave it out where there are none.")
        for one in self.given:
            _check_operator(one)
        if self.nu is None and (self.given or self.inside):
            what = f"collisions={self.collisions!r}" if self.given else "collisions inside=True"
            raise ValueError(f"{what} act at the rate nu=: give one, such as nu=0.1.")
        self.check_rates({"nu": self.nu})
        if self.temperature is not None and (why := self._why_no_temperature()):
            raise ValueError(
                f"temperature is {self.temperature}, which collisions are to lead to, but {why}: "
                "leave it out. The temperature that particles begin with is that of their start, "
                "da.plasma.Start(N, length, velocities=da.plasma.Maxwellian(temperature=T))."
            )

    @property
    def is_several(self) -> bool:
        """Whether operators are given as a list, with a rate for each."""
        return isinstance(self.collisions, list | tuple)

    @cached_property
    def given(self) -> tuple[Any, ...]:
        """The operators that are given."""
        if self.is_several:
            return tuple(self.collisions)
        return () if self.collisions is None else (self.collisions,)

    @property
    def reads_temperature(self) -> bool:
        """Whether collisions lead to a temperature that is given; others say that they do not."""
        return not self.given or any(getattr(x, "reads_temperature", True) for x in self.given)

    def _why_no_temperature(self) -> str:
        """Why nothing reads a temperature; empty if something does."""
        if self.nu is None:
            return "without nu= there are no collisions"
        if self.reads_temperature:
            return ""
        one = f"{self.given[0]!r} reads none"
        return one if len(self.given) == 1 else f"none of {list(self.given)} reads one"

    @property
    def values(self) -> dict[str, Any]:
        """The parameters of collisions, as far as something reads them."""
        nu = 0.0 if self.nu is None else self.nu
        values = {"nu": tuple(nu) if isinstance(nu, list | tuple) else nu}
        T = 1.0 if self.temperature is None else self.temperature
        return values | ({"temperature": T} if self.reads_temperature else {})

    def rules(self, N: int) -> dict[str, Rule]:
        """What these parameters must be."""
        return {
            "nu": Rule("at least 0", "it is a collision rate", is_finite_or_zero, is_tuple=True),
            "temperature": Rule(
                "at least 0", "the noise is √(2νTm)", is_finite_or_zero, (N,), True
            ),
        }

    def check(self, axes: int, params: Params) -> None:
        """Refuse sides of a box, or rates, that are too many or too few."""
        check_sides(axes, params)
        self.check_rates(params)

    def check_rates(self, params: Params) -> None:
        """Refuse several rates that are not as many as there are operators."""
        nu = params.get("nu")
        if isinstance(nu, list | tuple) and not (self.is_several and len(nu) == len(self.given)):
            raise ValueError(
                f"nu is {nu!r}, but must be one number"
                + (f", or {len(self.given)}, one for each operator." if self.is_several else ".")
            )

    def added(
        self, plasma: Mapping[str, Any], particles: tuple[int, ...], axes: int, light: bool = False
    ) -> System:
        """The plasma with its collisions; of its invariants those are left that both keep.

        Args:
            plasma: what a system is made of, without them.
            particles: the shape of positions and momenta of particles.
            axes: dimensions of the box.
            light: whether states are those of `vlasov_maxwell`, whose particles collide.
        """
        is_none = self.nu is None or (not is_traced(self.nu) and np.all(np.asarray(self.nu) == 0))
        if not self.given and is_none:
            return System(**plasma)
        values = {
            name: tuple(parameters(nu=x)["nu"] for x in value)
            if isinstance(value, tuple)
            else parameters(**{name: value})[name]
            for name, value in self.values.items()
        }
        params = {**plasma["params"], **values}
        operators = self.given or (LenardBernstein(),)
        is_inside = self.inside or not self.given
        make = _forces_of if is_inside else _flow_of
        parts = [
            make(one, particles, axes, with_own_rate(params, i if self.is_several else None))
            for i, one in enumerate(operators)
        ]
        names = set.intersection(*(set(part.keeps) for part in parts))
        made = {**plasma, "params": params}
        made["invariants"] = {
            k: fun for k, fun in plasma["invariants"].items() if NEEDS[k] in names
        }
        together: Any = all_forces if is_inside else all_flows
        part: Any = together(parts) if self.is_several else parts[0]
        if light:
            part = with_light(part)
        if is_inside:
            return System(**made, F=part.F, f=part.f, noises=part.noises)
        return System(**made, flow=part)


def _check_operator(one: Any) -> None:
    if isinstance(one, type) or not callable(getattr(one, "flow", None)):
        example = "Dougherty(cells=32)"
        if isinstance(one, str):
            word = one.lower().replace("_", "").replace("-", "").replace(" ", "")
            example = next((write for name, write in OPERATORS.items() if name in word), example)
        raise TypeError(
            f"collisions must be None or an operator such as da.plasma.{example}, or a list of "
            f"such, not {one!r}."
        )


def _flow_of(one: Any, shape: tuple[int, ...], axes: int, params: Params) -> Flow:
    """The flow of an operator, or an error."""
    flow = one.flow(shape, axes, params)
    if not isinstance(flow, Flow):
        raise TypeError(f"flow of {one!r} must return a da.Flow, not {flow!r}.")
    flow.check(shape, params)
    return flow


def _forces_of(one: Any, shape: tuple[int, ...], axes: int, params: Params) -> Forces:
    """The forces of an operator, or an error."""
    if not hasattr(one, "forces"):
        why = getattr(one, "why_not_inside", "it has no forces")
        raise ValueError(
            f"inside=True, but {one!r} is no force: {why}. Leave inside out, for a flow."
        )
    forces = one.forces(shape, axes, params)
    if not isinstance(forces, Forces):
        raise TypeError(f"forces of {one!r} must return da.plasma.Forces, not {forces!r}.")
    return forces
