"""Which collisions a plasma has: their rates, and whether they are flows or forces."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

from dalembert.flow import Flow
from dalembert.plasma.canonical import particles_of, with_momenta
from dalembert.plasma.collisions import Forces, LenardBernstein
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


class Collisions(Protocol):
    """What an operator must have to be that of a plasma.

    One with `reads_temperature = False` has no parameter `temperature`; one that can be a force
    inside a method has `forces` besides, with the same arguments.
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
        if self.temperature is not None and not (self.reads_temperature and self.nu is not None):
            raise ValueError(
                f"temperature is {self.temperature}, which collisions are to lead to, but "
                f"{'without nu= there are no collisions' if self.nu is None else self._readers()}: "
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

    def _readers(self) -> str:
        """Who does not read a temperature."""
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
            "nu": Rule("at least 0", "it is a collision rate", is_finite_or_zero),
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
        parts: list[Any] = [
            (_forces_of(one) if is_inside else one.flow)(
                particles, axes, _own(params, i if self.is_several else None)
            )
            for i, one in enumerate(operators)
        ]
        names = set.intersection(*(set(part.keeps) for part in parts))
        kept = {name.replace("kinetic ", "") for name in names}
        made = {**plasma, "params": params}
        made["invariants"] = {
            name: fun for name, fun in plasma["invariants"].items() if name.split("_")[0] in kept
        }
        together = _forces if is_inside else _flow
        part: Any = together(parts) if self.is_several else parts[0]
        if is_inside:
            forces: Forces = _forces_with_light(part) if light else part
            return System(**made, F=forces.F, f=forces.f, noises=forces.noises)
        return System(**made, flow=_flow_with_light(part) if light else part)


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


def _forces_of(one: Any) -> Callable[..., Forces]:
    """What makes forces of an operator, or an error."""
    if not hasattr(one, "forces"):
        why = getattr(one, "why_not_inside", "it has no forces")
        raise ValueError(
            f"inside=True, but {one!r} is no force: {why}. Leave inside out, for a flow."
        )
    return one.forces


def _split(w: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """The increments of each of several, one after the other."""
    ends = np.cumsum([prod(shape) for shape in shapes])[:-1].tolist()
    return [x.reshape(shape) for x, shape in zip(jnp.split(w, ends), shapes, strict=True)]


def _names(parts: Sequence[Any]) -> str:
    return " and ".join(part.name for part in parts)


def _keeps(parts: Sequence[Any]) -> dict[str, Any]:
    first, *others = parts
    return {k: fun for k, fun in first.keeps.items() if all(k in one.keeps for one in others)}


def _own(params: Params, i: int | None) -> Params:
    """The parameters as operator i reads them, with its own rate; None: as they are."""
    nu = params["nu"]
    return {**params, "nu": nu[i]} if i is not None and isinstance(nu, tuple | list) else params


def _flow(flows: Sequence[Flow]) -> Flow:
    """One flow after the other before a step, and in the opposite order after it."""
    # Maps, and not the records: compiled code is known by what functions read.
    before, after = tuple(flow.map for flow in flows), tuple(flow.maps[-1] for flow in flows)
    shapes = tuple(flow.noises for flow in flows)

    def in_order(maps: Sequence[Any], order: tuple[int, ...]) -> Callable[..., Any]:
        def act(q: Any, p: Any, w: Any, h: Any, params: Params) -> tuple[Any, Any]:
            of_each = _split(w, shapes)
            for i in order:
                q, p = maps[i](q, p, of_each[i], h, _own(params, i))
            return q, p

        return act

    order = tuple(range(len(flows)))
    is_same = len(flows) == 1 and flows[0].after is None
    maps = in_order(before, order), None if is_same else in_order(after, order[::-1])
    return Flow(maps[0], sum(map(prod, shapes)), _names(flows), _keeps(flows), maps[1])


def _forces(forces: Sequence[Forces]) -> Forces:
    """The sum of forces, each with noises of its own."""
    Fs, fs = tuple(one.F for one in forces), tuple(one.f for one in forces)
    shapes = tuple(one.noises for one in forces)

    def F(q: Any, p: Any, params: Params) -> Any:
        given = [F(q, p, _own(params, i)) for i, F in enumerate(Fs) if F]
        return sum(given, start=jnp.zeros_like(p))

    def f(q: Any, p: Any, w: Any, params: Params) -> Any:
        of_each = enumerate(zip(fs, _split(w, shapes), strict=True))
        return sum(f(q, p, w, _own(params, i)) for i, (f, w) in of_each)

    size = sum(map(prod, shapes))
    return Forces(F if any(Fs) else None, f, (size,), _names(forces), _keeps(forces))


def _flow_with_light(flow: Flow) -> Flow:
    """A flow of particles in the field that they are in, which stays as it is."""

    def moved(by: Callable[..., Any]) -> Callable[..., Any]:
        def act(q: Any, p: Any, w: Any, h: Any, params: Params) -> tuple[Any, Any]:
            x, before = particles_of(q, p, params)
            return q, with_momenta(p, by(x, before, w, h, params)[1] - before)

        return act

    return replace(flow, map=moved(flow.map), after=flow.after and moved(flow.after))


def _forces_with_light(forces: Forces) -> Forces:
    """Forces on the velocities of particles, which are those on canonical momenta."""
    own_F, own_f = forces.F, forces.f

    def F(q: Any, p: Any, params: Params) -> Any:
        assert own_F is not None, "asked for below"
        return with_momenta(jnp.zeros_like(p), own_F(*particles_of(q, p, params), params))

    def f(q: Any, p: Any, w: Any, params: Params) -> Any:
        return with_momenta(jnp.zeros_like(p), own_f(*particles_of(q, p, params), w, params))

    return forces._replace(F=own_F and F, f=f)
