"""Several operators of collisions as one, and operators on the particles of a state with light."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.flow import Flow
from dalembert.plasma.canonical import particles_of, with_momenta, with_particles
from dalembert.plasma.collisions import Forces
from dalembert.systems._parameters import Params

__all__ = ["all_flows", "all_forces", "with_light", "with_own_rate"]


def _split(w: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """The increments of each of several, one after the other."""
    ends = np.cumsum([prod(shape) for shape in shapes])[:-1].tolist()
    return [x.reshape(shape) for x, shape in zip(jnp.split(w, ends), shapes, strict=True)]


def _names(parts: Sequence[Any]) -> str:
    return " and ".join(part.name for part in parts)


def _keeps(parts: Sequence[Any]) -> dict[str, Any]:
    first, *others = parts
    return {k: fun for k, fun in first.keeps.items() if all(k in one.keeps for one in others)}


def with_own_rate(params: Params, i: int | None) -> Params:
    """The parameters as operator i reads them, with its own rate; None: as they are."""
    nu = params["nu"]
    return {**params, "nu": nu[i]} if i is not None and isinstance(nu, tuple | list) else params


def all_flows(flows: Sequence[Flow]) -> Flow:
    """One flow after the other before a step, and in the opposite order after it."""
    # Maps, and not the records: compiled code is known by what functions read.
    before, after = tuple(flow.map for flow in flows), tuple(flow.maps[-1] for flow in flows)
    shapes = tuple(flow.noises for flow in flows)

    def in_order(maps: Sequence[Any], order: tuple[int, ...]) -> Callable[..., Any]:
        def act(q: Any, p: Any, w: Any, h: Any, params: Params) -> tuple[Any, Any]:
            of_each = _split(w, shapes)
            for i in order:
                q, p = maps[i](q, p, of_each[i], h, with_own_rate(params, i))
            return q, p

        return act

    order = tuple(range(len(flows)))
    is_same = len(flows) == 1 and flows[0].after is None
    maps = in_order(before, order), None if is_same else in_order(after, order[::-1])
    return Flow(maps[0], sum(map(prod, shapes)), _names(flows), _keeps(flows), maps[1])


def all_forces(forces: Sequence[Forces]) -> Forces:
    """The sum of forces, each with noises of its own."""
    Fs, fs = tuple(one.F for one in forces), tuple(one.f for one in forces)
    shapes = tuple(one.noises for one in forces)

    def F(q: Any, p: Any, params: Params) -> Any:
        given = [F(q, p, with_own_rate(params, i)) for i, F in enumerate(Fs) if F]
        return sum(given, start=jnp.zeros_like(p))

    def f(q: Any, p: Any, w: Any, params: Params) -> Any:
        of_each = enumerate(zip(fs, _split(w, shapes), strict=True))
        return sum(f(q, p, w, with_own_rate(params, i)) for i, (f, w) in of_each)

    size = sum(map(prod, shapes))
    return Forces(F if any(Fs) else None, f, (size,), _names(forces), _keeps(forces))


def with_light(part: Any) -> Any:
    """A flow, or forces, of particles as those of states of `vlasov_maxwell`.

    They see positions and M v. The field that particles are in stays as it is.
    """

    def seen(fun: Callable[..., Any]) -> Callable[..., Any]:
        return lambda q, p, params: fun(*particles_of(q, p, params), params)

    def moved(by: Callable[..., Any]) -> Callable[..., Any]:
        def act(q: Any, p: Any, w: Any, h: Any, params: Params) -> tuple[Any, Any]:
            before = particles_of(q, p, params)
            return with_particles(q, p, before, by(*before, w, h, params), params)

        return act

    def pushed(by: Callable[..., Any]) -> Callable[..., Any]:
        # Forces on velocities are those on canonical momenta.
        def force(q: Any, p: Any, *rest: Any) -> Any:
            return with_momenta(jnp.zeros_like(p), by(*particles_of(q, p, rest[-1]), *rest))

        return force

    keeps = {name: seen(fun) for name, fun in part.keeps.items()}
    if isinstance(part, Flow):
        return replace(
            part, map=moved(part.map), after=part.after and moved(part.after), keeps=keeps
        )
    return replace(part, F=part.F and pushed(part.F), f=pushed(part.f), keeps=keeps)
