"""A function of equal blocks, cut out of the trace of that of all of them.

Where the constraints of a thousand molecules are those of one, a thousand times, it is enough to
write out one. The walk follows along which axis of an array blocks are numbered, and takes the part
of the first; numbers that differ from block to block are found to be arguments.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dalembert.dependence import has_rules
from dalembert.stepping.locality import FORMS
from dalembert.traces import apply_equation, called, compute, facts, name_of, walk

__all__ = ["Cut", "NotEqualError", "cut"]

MAX_NUMBERS = 256
"""Numbers beside x that a block may read."""


class NotEqualError(Exception):
    """What blocks compute is not the same function of each; the message says where."""


class _Whole(NamedTuple):
    """An array that does not depend on x, of all blocks; along some axes it does not change.

    Its numbers are known, traced, or None where only shapes are followed.
    """

    numbers: Any
    same_along: frozenset[int]


class _Part(NamedTuple):
    """What one block has of an array, and along which axis blocks are numbered in the whole."""

    x: Any
    axis: int


class _Use(NamedTuple):
    """Numbers that a block reads beside x: known ones, or those of a place among the arguments."""

    known: np.ndarray | None
    differs: bool


@dataclass(frozen=True, eq=False)
class Cut:
    """`fun(x, *others)` of `count` blocks, each with as many consecutive entries of x and results.

    Attributes:
        alone: a block's entries of x, and `numbers` of one block, to its results.
        numbers: others → numbers that blocks read beside x.
        differ: for each of these, whether its first axis is that of blocks, or they share it.
        like: types of the entries of x, and of `numbers`, of one block.
    """

    count: int
    alone: Callable[..., Any]
    numbers: Callable[..., list[Any]]
    differ: tuple[bool, ...]
    like: tuple[Any, ...]


def cut(fun: Callable[..., Any], count: int, x: Any, *others: Any) -> Cut:
    """The part of one block of `fun(x, *others)`, for arguments of these types.

    Raises:
        NotEqualError: if blocks are not found to be equal.
    """
    if has_rules(fun, x, *others):
        raise NotEqualError("it has derivatives of its own")
    trace = jax.make_jaxpr(fun)(x, *others)
    if any(isinstance(value, Tracer) for value in trace.consts):
        raise NotEqualError("it reads numbers of a trace around it")
    size, like = x.size // count, jax.ShapeDtypeStruct((x.size // count,), x.dtype)
    uses: list[_Use] = []

    def numbers(*others: Any) -> list[Any]:
        walker = _Walker(count, None)
        # As JAX's arrays they are not taken for known, whatever they are.
        walker.result(trace, jnp.zeros(size, x.dtype), map(jnp.asarray, jax.tree.leaves(others)))
        uses[:] = [use for use, _ in walker.found]
        return [value for use, value in walker.found if use.known is None]

    shapes = jax.eval_shape(numbers, *others)
    kept, none = tuple(uses), [None] * len(jax.tree.leaves(others))
    differ = tuple(use.differs for use in kept if use.known is None)
    types = [
        jax.ShapeDtypeStruct(s.shape[1:] if own else s.shape, s.dtype)
        for s, own in zip(shapes, differ, strict=True)
    ]
    if sum(prod(s.shape) for s in types) > MAX_NUMBERS:
        raise NotEqualError(f"a block reads more than {MAX_NUMBERS} numbers")

    def alone(x: Any, *given: Any) -> Any:
        rest = iter(given)
        values = (next(rest) if use.known is None else use.known for use in kept)
        return _Walker(count, values).result(trace, x, none)

    return Cut(count, alone, numbers, differ, (like, *types))


class _Walker:
    """A walk of a trace, with numbers that are given in the order of their use, or found."""

    def __init__(self, count: int, given: Iterator[Any] | None) -> None:
        self.count, self.given = count, given
        self.found: list[tuple[_Use, Any]] = []

    def result(self, trace: Any, x: Any, others: Any) -> Any:
        """The results of one block, shape (m,)."""
        given = [_Part(x, 0), *(_Whole(value, frozenset()) for value in others)]
        (end,) = self.follow(trace, given)
        if not isinstance(end, _Part) or end.axis != 0 or end.x.ndim != 1:
            raise NotEqualError("results are not one block after the other")
        return end.x

    def follow(self, trace: Any, args: list[Any]) -> list[Any]:
        constants = [_Whole(_known(value), frozenset()) for value in trace.consts]
        return walk(
            trace,
            [*constants, *args],
            self.equation,
            lambda v: _Whole(np.asarray(v.val, v.aval.dtype), frozenset()),
        )

    def equation(self, eqn: Any, args: list[Any]) -> list[Any]:
        if (inner := called(eqn)) is not None:
            return self.follow(inner, args)
        if not any(isinstance(arg, _Part) for arg in args):
            return self.whole(eqn, args)
        form = facts(eqn).scalar.split()[:1]
        if form in FORMS:
            return [self.entrywise(eqn, args)]
        if form == ["move"]:
            return self.moved(eqn, args)
        if form == ["reduce"]:
            return [self.reduced(eqn, args)]
        if form == ["dot"]:
            return [self.product(eqn, args)]
        raise NotEqualError(name_of(eqn))

    def whole(self, eqn: Any, args: list[Any]) -> list[Any]:
        """Results that do not depend on x."""
        same, numbers = _same_along(eqn, args), [arg.numbers for arg in args]
        if self.given is not None:
            results = [None] * len(eqn.outvars)
        elif all(isinstance(value, np.ndarray) for value in numbers):
            results = compute(eqn, numbers)
        else:
            results = apply_equation(eqn, numbers)
        return [_Whole(value, same) for value in results]

    def use(self, arg: _Whole, axis: int | None, length: int = 1) -> Any:
        """What a block has of an array, of so many entries along an axis; all of it without one."""
        if self.given is not None:
            return next(self.given)
        x, differs = arg.numbers, False
        if axis is not None and axis in arg.same_along:
            x = x[(slice(None),) * axis + (slice(length),)]
        elif axis is not None:
            shape = (*x.shape[:axis], self.count, length, *x.shape[axis + 1 :])
            xp = np if isinstance(x, np.ndarray) else jnp
            blocks = xp.moveaxis(x.reshape(shape), axis, 0)
            differs = xp is jnp or bool(np.any(blocks != blocks[:1]))
            x = blocks if differs else blocks[0]
        known = x if isinstance(x, np.ndarray) and not differs else None
        self.found.append((_Use(known, differs), x))
        return x[0] if differs else x

    def entrywise(self, eqn: Any, args: list[Any]) -> _Part:
        shape = eqn.outvars[0].aval.shape
        (axis,) = self.axes(eqn, args)
        length = shape[axis] // self.count
        values = []
        for var, arg in zip(eqn.invars, args, strict=True):
            if isinstance(arg, _Part):
                values.append(arg.x)
            else:
                has_blocks = var.aval.shape and var.aval.shape[axis] > 1
                values.append(self.use(arg, axis if has_blocks else None, length))
        return _Part(apply_equation(eqn, values)[0], axis)

    def reduced(self, eqn: Any, args: list[Any]) -> _Part:
        (axis,) = self.axes(eqn, args)
        gone = eqn.params["axes"]
        if axis in gone:
            raise NotEqualError(name_of(eqn))
        left = axis - sum(other < axis for other in gone)
        return _Part(apply_equation(eqn, [args[0].x])[0], left)

    def axes(self, eqn: Any, args: list[Any]) -> set[int]:
        """The axis along which blocks are numbered in all operands that depend on x."""
        found = {arg.axis for arg in args if isinstance(arg, _Part)}
        if len(found) > 1:
            raise NotEqualError(f"{name_of(eqn)} of blocks along two axes")
        return found

    def product(self, eqn: Any, args: list[Any]) -> _Part:
        """Sums of products: first come batches, then axes of the left, then of the right."""
        contracted, batches = eqn.params["dimension_numbers"]
        found, values = set(), [arg.x if isinstance(arg, _Part) else None for arg in args]
        for side, arg in enumerate(args):
            if not isinstance(arg, _Part):
                continue
            other, shape = args[1 - side], eqn.invars[side].aval.shape
            if arg.axis in contracted[side]:
                raise NotEqualError(name_of(eqn))
            if arg.axis in batches[side]:
                place = batches[side].index(arg.axis)
                if isinstance(other, _Whole):
                    along, length = batches[1 - side][place], shape[arg.axis] // self.count
                    values[1 - side] = self.use(other, along, length)
            elif isinstance(other, _Whole):
                gone = (*contracted[side], *batches[side])
                rest = [k for k in range(len(shape)) if k not in gone]
                left = eqn.invars[0].aval.ndim - len(contracted[0])
                place = (left if side else len(batches[0])) + rest.index(arg.axis)
                values[1 - side] = self.use(other, None)
            else:
                raise NotEqualError(name_of(eqn))
            found.add(place)
        if len(found) > 1:
            raise NotEqualError(f"{name_of(eqn)} of blocks along two axes")
        return _Part(apply_equation(eqn, values)[0], found.pop())

    def moved(self, eqn: Any, args: list[Any]) -> list[Any]:
        """An operation that only moves entries: it moves the numbers of blocks and of entries."""
        words = facts(eqn).scalar.split()
        taken = len(args) if words[1] == "all" else int(words[1])
        if any(isinstance(arg, _Part) for arg in args[taken:]):
            raise NotEqualError(f"{name_of(eqn)} at places that are computed")
        rest = [arg.numbers for arg in args[taken:]]
        axis, *more = self.axes(eqn, args[:taken])
        assert not more
        parts, owners, locals_, shapes, before = [], [], [], [], 0
        for var, arg in zip(eqn.invars, args[:taken], strict=False):
            shape = var.aval.shape
            along = (arg.axis if isinstance(arg, _Part) else axis) if shape else None
            if along is not None and shape[along] % self.count:
                raise NotEqualError(name_of(eqn))
            length = shape[along] // self.count if along is not None else 1
            part = arg.x if isinstance(arg, _Part) else self.use(arg, along, length)
            owner, local = _numbered(shape, along, self.count)
            parts.append(part.reshape(-1) if shape else part[None])
            owners.append(owner)
            locals_.append(local + before)
            shapes.append(shape)
            before += prod(part.shape)
        chosen = self.positions(eqn, shapes, rest)
        owners, locals_ = np.concatenate(owners), np.concatenate(locals_)
        pool = jnp.concatenate(parts)
        return [self.one_of(eqn, pool, owners, locals_, places) for places in chosen]

    def positions(self, eqn: Any, shapes: list[Any], rest: list[Any]) -> list[np.ndarray]:
        """Where the entries of the results come from, in a list of all entries of operands."""
        starts = np.cumsum([0, *map(prod, shapes)])
        numbers = [
            np.arange(start, start + prod(shape), dtype=np.int32).reshape(shape)
            for start, shape in zip(starts[:-1], shapes, strict=True)
        ]
        if self.given is not None:
            rest = [next(self.given) for _ in rest]
        elif not all(isinstance(value, np.ndarray) for value in rest):
            raise NotEqualError(f"{name_of(eqn)} at places that are not known")
        else:
            self.found += [(_Use(value, False), value) for value in rest]
        changes = {"fill_value": -1} if "fill_value" in eqn.params else {}
        chosen = compute(eqn, [*numbers, *rest], **changes)
        if any(np.any((c < 0) | (c >= starts[-1])) for c in chosen):
            raise NotEqualError(f"{name_of(eqn)} out of bounds")
        return chosen

    def one_of(self, eqn: Any, pool: Any, owners: Any, local: Any, places: np.ndarray) -> _Part:
        """A result, of which blocks must be numbered along one of the axes."""
        for axis, length in enumerate(places.shape):
            if length % self.count:
                continue
            apart = (*places.shape[:axis], self.count, -1, *places.shape[axis + 1 :])
            chosen = np.moveaxis(places.reshape(apart), axis, 0)
            owner, of_block = owners[chosen], local[chosen]
            numbers = np.arange(self.count).reshape(-1, *[1] * (chosen.ndim - 1))
            if np.all((owner == numbers) | (owner < 0)) and np.all(of_block == of_block[:1]):
                return _Part(pool.at[of_block[0]].get(mode="promise_in_bounds"), axis)
        raise NotEqualError(f"{name_of(eqn)} mixes blocks")


def _known(value: Any) -> Any:
    """A constant of a trace: numbers that are known, or traced ones."""
    return value if isinstance(value, Tracer) else np.asarray(value)


def _numbered(shape: Any, axis: int | None, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The block of every entry, −1 if all share it, and its place in that of one block."""
    if axis is None:
        return np.full(1, -1), np.zeros(1, int)
    apart = (prod(shape[:axis]), count, -1)
    size = prod(shape) // count
    owner = np.broadcast_to(np.arange(count)[:, None], (apart[0], count, size // apart[0]))
    inside = np.arange(size).reshape(apart[0], 1, -1)
    return owner.reshape(-1), np.broadcast_to(inside, owner.shape).reshape(-1)


def _same_along(eqn: Any, args: list[Any]) -> frozenset[int]:
    """Axes along which a result is known not to change."""
    form = facts(eqn).scalar.split()[:1]
    if name_of(eqn) == "broadcast_in_dim":
        places, shape = eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape
        new = set(range(len(eqn.params["shape"]))) - set(places)
        wide = {
            place
            for k, place in enumerate(places)
            if k in args[0].same_along or shape[k] < eqn.params["shape"][place]
        }
        return frozenset(new | wide)
    if form in FORMS:
        axes = [
            arg.same_along | {k for k, length in enumerate(var.aval.shape) if length == 1}
            for var, arg in zip(eqn.invars, args, strict=True)
            if var.aval.shape
        ]
        return frozenset.intersection(*axes) if axes else frozenset()
    return frozenset()
