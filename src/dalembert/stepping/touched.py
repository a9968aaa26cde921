"""Which entries of its argument each entry of a derivative reads, from the trace of the function.

A trace says what is read anywhere, values at some points only what is read there. The analysis is
conservative: what it does not know reads everything. Every operation is a list of (target, source):
an entry of a result reads what entries of the operands read.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from dalembert.operations import OPERATIONS
from dalembert.precision import is_traced
from dalembert.primitives import LOOPS
from dalembert.traces import Trace, apply_equation, called, compute, evaluate, facts, name_of

MAX_PAIRS = 1 << 25
"""Of entries and what they read, that are listed."""

ENTRYWISE = ("fold", "each", "power", "choice", "conversion", "polynomial")


class TooManyError(Exception):
    """There are too many pairs to be listed."""


class _Fixed:
    """An array that reads nothing of the argument; its numbers where they are known."""

    def __init__(self, numbers: np.ndarray | None = None) -> None:
        self.numbers = numbers


Pairs = tuple[np.ndarray, np.ndarray]
"""Numbers of entries, in order, and of entries of the argument that each of them reads."""

Sources = Iterator[tuple[int, np.ndarray, np.ndarray]]
"""Numbers of operands, of entries of a result, and of entries of the operand that they read."""


def touched(fun: Callable[..., Any], x: Any, *others: Any) -> Pairs:
    """Where the derivative of `fun(x, *others)` in x may have entries: their rows and columns.

    Arguments are types. Raises `TooManyError` where nearly everything reads everything.
    """

    def slope(v: Any, x: Any, *others: Any) -> Any:
        return jax.jvp(lambda x: fun(x, *others), (x,), (v,))[1]

    trace = jax.make_jaxpr(slope)(x, x, *others)
    every = np.arange(x.size)
    (found,) = _results(trace, [(every, every), *[_Fixed()] * (len(trace.jaxpr.invars) - 1)])
    return (every[:0], every[:0]) if isinstance(found, _Fixed) else found


def _results(trace: Trace, args: Sequence[Any]) -> list[Any]:
    return evaluate(trace, args, _equation, _constant)


def _constant(value: Any, kind: Any) -> _Fixed:
    is_open = is_traced(value) or not isinstance(kind.dtype, np.dtype)
    return _Fixed() if is_open else _Fixed(np.asarray(value, kind.dtype))


def _equation(eqn: Any, values: list[Any]) -> list[Any]:
    if (inner := called(eqn)) is not None:
        return _results(inner, values)
    if all(isinstance(x, _Fixed) for x in values):
        return _fixed(eqn, values)
    form, *words = facts(eqn).scalar.split() or [""]
    if form in ENTRYWISE or eqn.primitive in OPERATIONS:
        form = "each"
    numbers = [x.numbers if isinstance(x, _Fixed) else None for x in values]
    found = _RULES[form](eqn, numbers, *words) if form in _RULES else None
    if found is None:
        return _everything(eqn, values)
    return [_united(sources, values) for sources in found]


def _fixed(eqn: Any, values: list[_Fixed]) -> list[_Fixed]:
    numbers = [x.numbers for x in values]
    if any(x is None for x in numbers) or name_of(eqn) in LOOPS or not any(facts(eqn)):
        return [_Fixed()] * len(eqn.outvars)
    return list(map(_Fixed, compute(eqn, numbers)))


def _united(sources: Sources, values: list[Any]) -> Pairs:
    """What entries of a result read, given which entries of operands each of them takes."""
    pairs, read = [], [x for x in values if not isinstance(x, _Fixed)]
    width = 1 + max((int(columns.max(initial=0)) for _, columns in read), default=0)
    for operand, target, source in sources:
        if isinstance(values[operand], _Fixed):
            continue
        rows, columns = values[operand]
        first, last = np.searchsorted(rows, source), np.searchsorted(rows, source, "right")
        counts = last - first
        if counts.sum() > MAX_PAIRS:
            raise TooManyError
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        pairs.append(np.repeat(target, counts) * width + columns[np.repeat(first, counts) + within])
    found = np.unique(np.concatenate(pairs)) if pairs else np.empty(0, int)
    return found // width, found % width


def _everything(eqn: Any, values: list[Any]) -> list[Pairs]:
    """Every entry of a result reads all that any operand reads."""
    total = np.unique(np.concatenate([x[1] for x in values if not isinstance(x, _Fixed)]))
    sizes = [prod(v.aval.shape) for v in eqn.outvars]
    if sum(sizes) * total.size > MAX_PAIRS:
        raise TooManyError
    return [(np.repeat(np.arange(n), total.size), np.tile(total, n)) for n in sizes]


def _places(var: Any) -> np.ndarray:
    """Numbers of the entries of an array, in its shape."""
    return np.arange(prod(var.aval.shape)).reshape(var.aval.shape)


def _each(eqn: Any, numbers: list[Any], *_: str) -> list[Sources] | None:
    out = _places(eqn.outvars[0])
    if any(v.aval.ndim not in (0, out.ndim) for v in eqn.invars):
        return None
    takes = np.ones(out.shape, bool)
    if name_of(eqn) == "mul":
        takes = np.all(
            [takes, *(np.broadcast_to(x != 0, out.shape) for x in numbers if x is not None)], axis=0
        )

    def sources() -> Sources:
        for k, var in enumerate(eqn.invars):
            used = takes
            if name_of(eqn) == "select_n" and k and numbers[0] is not None:
                used = np.broadcast_to(numbers[0].astype(int) == k - 1, out.shape)
            yield k, out[used], np.broadcast_to(_places(var), out.shape)[used]

    return [sources()]


def _move(eqn: Any, numbers: list[Any], operands: str) -> list[Sources] | None:
    """Numbers of entries go where the entries go; 0 stands for none of them."""
    count = len(numbers) if operands == "all" else int(operands)
    rest = numbers[count:]
    if any(x is None for x in rest):
        return None
    starts = np.cumsum([1, *(prod(v.aval.shape) for v in eqn.invars[:count])])
    places = [
        (start + _places(var)).astype(np.int32)
        for start, var in zip(starts, eqn.invars[:count], strict=False)
    ]
    changes = {"fill_value": 0} if "fill_value" in eqn.params else {}

    def sources(chosen: np.ndarray) -> Sources:
        for k, start in enumerate(starts[:-1]):
            is_here = (chosen >= start) & (chosen < starts[k + 1])
            yield k, np.flatnonzero(is_here), chosen[is_here] - start

    return [sources(np.ravel(x)) for x in compute(eqn, [*places, *rest], **changes)]


def _reduce(eqn: Any, numbers: list[Any], *_: str) -> list[Sources]:
    var, axes = eqn.invars[0], eqn.params["axes"]
    kept = np.expand_dims(_places(eqn.outvars[0]), sorted(axes))
    return [iter([(0, np.broadcast_to(kept, var.aval.shape).ravel(), _places(var).ravel())])]


def _dot(eqn: Any, numbers: list[Any], *_: str) -> list[Sources] | None:
    """Sums of products; where a factor is known to be zero nothing is read."""
    contracts, batches = eqn.params["dimension_numbers"]
    arranged = []
    for var, contract, batch in zip(eqn.invars, contracts, batches, strict=True):
        shape = var.aval.shape
        free = [k for k in range(len(shape)) if k not in (*contract, *batch)]
        sizes = [prod(shape[k] for k in axes) for axes in (batch, free, contract)]
        order = (*batch, *free, *contract)
        arranged.append(lambda x, order=order, sizes=sizes: np.transpose(x, order).reshape(sizes))
    x, y = (
        arrange(_places(v))[:, *at]
        for arrange, v, at in zip(
            arranged, eqn.invars, ((slice(None), None), (None, slice(None))), strict=True
        )
    )
    shape = np.broadcast_shapes(x.shape, y.shape)
    if prod(shape) > MAX_PAIRS:
        return None
    takes = np.ones(shape, bool)
    for known, arrange, axis in zip(numbers, arranged, (2, 1), strict=True):
        if known is not None:
            takes &= np.expand_dims(arrange(known) != 0, axis)
    out = np.broadcast_to(_places(eqn.outvars[0]).reshape(*shape[:3], 1), shape)[takes]
    return [iter((k, out, np.broadcast_to(part, shape)[takes]) for k, part in enumerate((x, y)))]


def _scatter_add(eqn: Any, numbers: list[Any], *_: str) -> list[Sources] | None:
    """Updates go to the places from which the transposed operation takes its numbers."""
    operand, _, updates = eqn.invars
    if numbers[1] is None:
        return None
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        like, none = jax.ShapeDtypeStruct(updates.aval.shape, np.float64), 0.0 * _places(operand)
        pull = jax.linear_transpose(lambda u: apply_equation(eqn, [none, numbers[1], u])[0], like)
        targets = np.asarray(pull(_places(operand) + 1.0)[0]).astype(int).ravel() - 1
    every, inside = _places(operand).ravel(), targets >= 0
    return [iter([(0, every, every), (2, targets[inside], np.flatnonzero(inside))])]


_RULES: dict[str, Callable[..., list[Sources] | None]] = {
    "each": _each,
    "move": _move,
    "reduce": _reduce,
    "dot": _dot,
    "scatter_add": _scatter_add,
}
"""Which entries results take, by the form of an operation (`primitives.py`)."""
