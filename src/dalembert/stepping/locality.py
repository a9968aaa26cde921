"""Whether a function of an array works on each of its entries, or of its particles, alone.

The Jacobian of a function of single entries is diagonal, and one product with a vector of ones
gives all of it: friction that does not mix momenta makes stage equations of this kind, which need
no matrix and no iteration, however many there are. Where the d components of a particle are mixed,
as by a magnetic field, d products do. The analysis walks the trace once and is conservative.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import jax

from dalembert.traces import called, facts, name_of, walk

ENTRYWISE = ("fold", "each", "power", "choice", "conversion")
"""Forms of operations whose results have in every place what their operands have there."""

FORMS = [[form] for form in ENTRYWISE]

RESHAPING = ("reshape", "squeeze", "expand_dims")
"""Operations that keep the order of entries, and so what belongs together."""


class _MixedError(Exception):
    """A result depends on several entries."""


def is_entrywise(fun: Callable[..., Any], like: Any, *others: Any) -> bool:
    """Whether entry i of `fun(x, *others)`, as large as x, depends on entry i of x alone."""
    return keeps_entries(jax.make_jaxpr(fun)(like, *others))


def keeps_entries(trace: Any) -> bool:
    """The same of a trace, whose first argument is x."""
    x, *others = trace.in_avals
    try:
        _follow(trace, [True] + [False] * len(others))
    except _MixedError:
        return False
    return trace.out_avals[0].size == x.size


def _follow(trace: Any, args: list[bool]) -> list[bool]:
    """Which results of a trace depend on x, given which of its arguments do."""
    constants = [False] * len(trace.jaxpr.constvars)
    return walk(trace, [*constants, *args], _dependent, lambda literal: False)


def _dependent(eqn: Any, given: list[bool]) -> list[bool]:
    if not any(given):
        return [False] * len(eqn.outvars)
    if (inner := called(eqn)) is not None:
        return _follow(inner, given)
    if not _keeps_places(eqn, given):
        raise _MixedError(name_of(eqn))
    return [True] * len(eqn.outvars)


def _keeps_places(eqn: Any, given: list[bool]) -> bool:
    name, size = name_of(eqn), eqn.outvars[0].aval.size
    if name in RESHAPING:
        return eqn.params.get("dimensions") is None or name == "squeeze"
    if name in ("broadcast_in_dim", "slice"):
        return eqn.invars[0].aval.size == size
    # What depends on x has an entry for every result; other operands may be single numbers.
    form = facts(eqn).scalar.split()[:1]
    return form in FORMS and all(
        var.aval.size == size for var, counts in zip(eqn.invars, given, strict=True) if counts
    )


def keeps_particles(trace: Any, particles: int) -> bool:
    """Whether a trace has for every particle what depends on that particle alone.

    Both x, its first argument, and the result are flat arrays, one particle after the other.
    """
    x, *others = trace.in_avals
    walker = _Particles(particles)
    try:
        (place,) = walker.follow(trace, [0] + [None] * len(others))
    except _MixedError:
        return False
    return place is None or trace.out_avals[0].size == x.size


class _Particles:
    """A walk of a trace that knows along which axis particles are numbered.

    The place of an array is that axis, or None if the array does not depend on x. Along the axis
    there may be several entries for every particle, one particle after the other.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def follow(self, trace: Any, args: list[int | None]) -> list[int | None]:
        constants = [None] * len(trace.jaxpr.constvars)
        return walk(trace, [*constants, *args], self.places, lambda literal: None)

    def places(self, eqn: Any, given: list[int | None]) -> list[int | None]:
        if all(place is None for place in given):
            return [None] * len(eqn.outvars)
        if (inner := called(eqn)) is not None:
            return self.follow(inner, given)
        return [self.place(eqn, given)] * len(eqn.outvars)

    def place(self, eqn: Any, given: list[int | None]) -> int:
        """Where the particles of a result are; an error if they are mixed."""
        name, shape = name_of(eqn), eqn.outvars[0].aval.shape
        if name == "dot_general":
            return self.of_product(eqn, given)
        places = {place for place in given if place is not None}
        if len(places) > 1:
            raise _MixedError(name)
        axis = places.pop()
        if name == "stack":
            return axis + (eqn.params["axis"] <= axis)
        if name in RESHAPING:
            return self.reshaped(eqn.invars[0].aval.shape, axis, shape)
        if name == "broadcast_in_dim" and eqn.invars[0].aval.shape[axis] > 1:
            return eqn.params["broadcast_dimensions"][axis]
        if name == "transpose":
            return eqn.params["permutation"].index(axis)
        if name.startswith("reduce_") and "axes" in eqn.params and axis not in eqn.params["axes"]:
            return axis - sum(other < axis for other in eqn.params["axes"])
        along_others = name == "concatenate" and eqn.params["dimension"] != axis
        if name == "slice" or along_others or facts(eqn).scalar.split()[:1] in FORMS:
            sizes = {
                var.aval.shape[axis]
                for var, place in zip(eqn.invars, given, strict=True)
                if place is not None
            }
            if sizes == {shape[axis]}:
                return axis
        raise _MixedError(name)

    def reshaped(self, old: tuple[int, ...], axis: int, new: tuple[int, ...]) -> int:
        """The same place in another shape: as many entries before it, and whole particles in it."""
        for k, length in enumerate(new):
            if prod(new[:k]) == prod(old[:axis]) and length % self.count == 0:
                return k
        raise _MixedError("reshape")

    def of_product(self, eqn: Any, given: list[int | None]) -> int:
        """Of sums of products: first come batches, then axes of the left, then of the right."""
        contracted, batches = eqn.params["dimension_numbers"]
        ranks = [var.aval.ndim for var in eqn.invars]
        found = set()
        for side, place in enumerate(given):
            if place is None:
                continue
            if place in batches[side]:
                found.add(batches[side].index(place))
            elif given[1 - side] is None and place not in contracted[side]:
                gone = (*contracted[side], *batches[side])
                rest = [k for k in range(ranks[side]) if k not in gone]
                before = ranks[0] - len(contracted[0]) if side else len(batches[0])
                found.add(before + rest.index(place))
            else:
                raise _MixedError("dot_general")
        if len(found) > 1:
            raise _MixedError("dot_general")
        return found.pop()
