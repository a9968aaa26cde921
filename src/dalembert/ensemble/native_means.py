"""Means of what paths have become, on a CPU: observables and their sums by vector code.

Runs that are looked at once, at their end, are observed by it in place of `Kernel.observe_rows`:
XLA calls the C library for every sine, and sums one number after another. Where nothing is to be
kept on the way, the same code takes all steps first: a block that starts, walks and is observed in
registers writes nothing to memory but sums.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dalembert.caches import kept
from dalembert.ensemble.engine import Steps
from dalembert.ensemble.kernel import Kernel, Saves
from dalembert.ensemble.lanes import NoVectorFormError, loop
from dalembert.ensemble.march import Block, Fast, PathState, Status
from dalembert.ensemble.native import (
    WIDEST,
    PathCode,
    flat,
    is_fine,
    machine_code,
    number_types,
    path_code,
    types_told,
    vector_width,
    walk_of_lanes,
)
from dalembert.ensemble.native_entry import (
    LONG,
    WORD,
    MarchEntry,
    addresses,
    element,
    shared_numbers,
)
from dalembert.ensemble.native_sums import SUMS, Sums
from dalembert.noise import Noise
from dalembert.statistics import Mean
from dalembert.statistics.mean import SampleMean, mean_of
from dalembert.statistics.observing import Observing
from dalembert.statistics.statistic import Data
from dalembert.stepping.expressions import vector
from dalembert.stepping.scalarise import NotScalarError, scalarise

MOST_NUMBERS = 256
"""Observed numbers of a path beyond which vector code takes long to compile."""


class BlockEnds(NamedTuple):
    """What a block of paths has come to, all of which are fine: means, and what steps report."""

    data: dict[str, Data]
    truncated: int
    residual: float
    iterations: int


class MeansAtEnd:
    """Blocks that are observed at their end, and before that perhaps walked there."""

    def __init__(self, kernel: Kernel, steps: Steps) -> None:
        self._observing, self._steps, self._dtype = kernel.observing, steps, kernel.stepper.dtype
        self._width = vector_width(kernel.stepper.system.dim, min(steps.paths, WIDEST))
        leaves, tree = jax.tree.flatten(number_types(steps.params, kernel.stepper))
        driven_by = steps.needs, steps.fast_noise, types_told(steps)
        self._code = _compiled(kernel, steps.fast, *driven_by, (tuple(leaves), tree), self._width)

    def observe(
        self, rows: PathState, memory: Any, block: Block, steps: Any, count: Any
    ) -> tuple[PathState, Any, Saves]:
        """In place of `Kernel.observe_rows`."""
        state = jax.tree.map(lambda x: np.asarray(x)[0], rows)
        real = int(np.count_nonzero(block.is_real))
        starts = [np.ascontiguousarray(x, self._dtype) for x in (*state.q, *state.p)]
        found, sample, _ = self._take(block, starts, 1, 0, real, 0, keep=True)
        status = state.status[:real]
        solved = status == Status.FINE
        is_finite = np.isfinite(found).all(axis=0)
        if not is_finite.all():
            lost = np.zeros(len(state.status), bool)
            lost[:real] = solved & ~is_finite
            state = state._replace(
                status=np.where(lost, np.int32(Status.UNOBSERVABLE), state.status),
                failed_step=np.where(lost, np.int32(steps[0]), state.failed_step),
            )
        mask = solved & is_finite
        if not mask.all():
            sample = mean_of(np.compress(mask, found, axis=1))
        return state, memory, Saves(_means(self._observing, sample), None)

    def run(
        self, block: Block, q: np.ndarray, p: np.ndarray, first: int, real: int, steps: int
    ) -> BlockEnds | None:
        """Paths with consecutive numbers from their start to their end; None if one fails.

        Args:
            block: what they are told besides their numbers.
            q: where they start, shape (paths, dim), or (1, dim) if all start alike; p likewise.
            first: the number of the first.
            real: how many there are.
            steps: how many each takes.
        """
        columns = [_padded(x, self._width) for x in (*np.transpose(q), *np.transpose(p))]
        _, sample, report = self._take(block, columns, min(len(q) - 1, 1), first, real, steps)
        if report is None:
            return None
        if not np.isfinite(sample.mean).all():  # nor is what is observed of some path
            return None
        residual, truncated, iterations = report
        ends = int(np.sum(truncated)), float(np.max(residual)), int(np.max(iterations))
        return BlockEnds(_means(self._observing, sample), *ends)

    def _take(
        self,
        block: Block,
        starts: Sequence[np.ndarray],
        stride: int,
        first: int,
        real: int,
        steps: int,
        keep: bool = False,
    ) -> tuple[np.ndarray, SampleMean, list[np.ndarray] | None]:
        """What is observed of paths, shape (numbers, paths), if it is to be kept; the sample that
        it is; and the report of every lane, if all paths are fine."""
        (path, seen, call, _), width = self._code, self._width
        tiles = -(-real // width)
        found = np.empty((seen.count, tiles * width if keep else width), self._dtype)
        sums, sample = np.empty((seen.count, SUMS, width)), np.empty((4, seen.count))
        report = [np.zeros(width, dtype) for dtype in path.state[-3:]]
        told = self._steps.told(block)
        numbers = [*np.asarray(told.seed), *flat((told.dt, told.params)), *flat(block.params)]
        types = [np.dtype(np.uint32)] * 2 + path.shared + seen.shared
        words = shared_numbers(numbers, types)
        arrays = addresses([*starts, *found, sums, sample, *report])
        bad = call(arrays, addresses([words])[0], tiles, real, stride, int(keep), first, steps)
        with np.errstate(over="ignore"):  # float32 of sums of squares: infinite is right then
            columns = sample.astype(self._dtype, copy=False)
        known = SampleMean(np.asarray(float(real)), *columns)
        return found[:, :real], known, None if bad else report


def means_at_end(kernel: Kernel, steps: Steps) -> MeansAtEnd | None:
    """What observes paths at their end; None if XLA has to do it."""
    observing, stepper = kernel.observing, kernel.stepper
    plain = all(type(statistic) is Mean for _, statistic in observing.statistics)
    if not plain or stepper.system.time or kernel.keep_all or not stepper.is_scalar:
        return None
    if not stepper.sees_states:
        return None
    types = jax.tree.leaves(number_types(steps.params, stepper))
    if any(not isinstance(x.dtype, np.dtype) for x in types):
        return None
    try:
        return MeansAtEnd(kernel, steps)
    except (NotScalarError, NoVectorFormError):
        return None


def _means(observing: Observing, found: SampleMean) -> dict[str, Data]:
    """Means of observed numbers, those of all observables in one row, at one save."""
    data, first = {}, 0
    for (key, _), ((_, shape),) in zip(observing.statistics, observing.observed, strict=True):
        last = first + int(np.prod(shape))
        columns = (x[first:last].reshape(1, *shape) for x in found[1:])
        sample = SampleMean(found.count[None], *columns)
        data[key] = sample._asdict()
        first = last
    return data


def _padded(x: np.ndarray, width: int) -> np.ndarray:
    """So many numbers that vectors are full; those beyond the last repeat it."""
    missing = -len(x) % width
    return np.concatenate([x, np.repeat(x[-1:], missing)]) if missing else np.ascontiguousarray(x)


class Seen(NamedTuple):
    """What is observed of a path, as code of scalars.

    Attributes:
        code: (q, p, numbers of the parameters) → all observed numbers.
        shared: types of the numbers of the parameters.
    """

    code: Any
    shared: list[np.dtype]

    @property
    def count(self) -> int:
        """Observed numbers."""
        return len(self.code.jaxpr.outvars)


class EndsCode(NamedTuple):
    """The machine code of a run, what it was made of, and what keeps it in memory."""

    path: PathCode
    seen: Seen
    call: Callable[..., int]
    code: Any


@kept
def _compiled(
    kernel: Kernel,
    fast: Fast,
    needs: frozenset[str],
    noise: Noise,
    told: Any,
    params: Any,
    width: int,
) -> EndsCode:
    """For parameters of some types, as (leaves, structure): those of steps, and of observables."""
    path, seen = path_code(fast, needs, noise, told), _seen(kernel, *params)
    code, address = machine_code(_write(path, seen, width))
    pointer, long, word = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32
    call = ctypes.CFUNCTYPE(long, pointer, pointer, *[long] * 5, word)(address)
    return EndsCode(path, seen, call, code)


def _seen(kernel: Kernel, leaves: tuple[Any, ...], tree: Any) -> Seen:
    stepper, observing = kernel.stepper, kernel.observing
    system, dtype = stepper.system, stepper.dtype
    real = jax.ShapeDtypeStruct((), dtype)
    state = [jax.ShapeDtypeStruct((system.dim,), dtype)] * 2
    functions = [fun for _, s in observing.statistics for fun in s.functions().values()]

    def observed(q: Any, p: Any, *numbers: Any) -> list[Any]:
        params = jax.tree.unflatten(tree, numbers)
        return [
            jax.numpy.asarray(system.evaluate(fun, q, p, params)).astype(dtype) for fun in functions
        ]

    written = scalarise(observed, *state, *leaves)
    sizes = [int(np.prod(x.shape)) for x in leaves]

    def of_scalars(q: Any, p: Any, numbers: list[list[Any]]) -> list[Any]:
        arrays = [vector(row).reshape(x.shape) for row, x in zip(numbers, leaves, strict=True)]
        return [x for array in written(vector(q), vector(p), *arrays) for x in array.ravel()]

    scalars = [[jax.ShapeDtypeStruct((), x.dtype)] * n for x, n in zip(leaves, sizes, strict=True)]
    code = jax.make_jaxpr(of_scalars)([real] * system.dim, [real] * system.dim, scalars)
    if len(code.jaxpr.outvars) > MOST_NUMBERS:
        raise NoVectorFormError(f"{len(code.jaxpr.outvars)} numbers")
    return Seen(code, [np.dtype(x.dtype) for row in scalars for x in row])


def _write(code: PathCode, seen: Seen, width: int) -> str:
    """LLVM code of march(arrays, shared numbers, tiles, paths, stride, keep, first, steps).

    Arrays are starting states, room for what is observed, room for `SUMS` and for what they come
    to, and the report of each lane. With the stride 0 all lanes start alike. If `keep` is 0, what
    is observed of one tile has the place of that of the tile before. `first` is the number of the
    first path. It returns the number of tiles in which a path is not finite or has not solved its
    equations.
    """
    report, state = code.state[-3:], code.state[:-3]
    types = [np.dtype(np.uint32)] * 2 + code.shared
    arrays = len(state) + seen.count + 2 + len(report)
    entry = MarchEntry(width, arrays, types + seen.shared, [LONG] * 5 + [WORD])
    (tiles, real, stride, keep, first, steps), lanes = entry.rest, entry.lanes
    b, known = lanes.builder, entry.shared
    params = known[len(types) :]
    walk = walk_of_lanes(lanes, code, known[: len(types)], WORD(0), steps)
    given, observed = entry.arrays[: len(state)], entry.arrays[len(state) : -len(report)]
    *noted, pointer, sample = observed
    sums = Sums(lanes, pointer, seen.count)
    sums.begin()
    index = lanes.type(np.int64)(list(range(width)))
    word, dtype = lanes.type(np.uint32), state[0]

    def tile(number: Any, now: list[Any]) -> list[Any]:
        bad, worst, truncated, iterations = now
        place = b.mul(number, LONG(width))
        here = b.add(lanes.spread(place), index)
        is_real = b.icmp_signed("<", here, lanes.spread(real))
        path = b.add(here, lanes.spread(first))
        low, high = b.trunc(path, word), b.trunc(b.lshr(path, lanes.constant(32, np.int64)), word)
        spots = [element(b, pointer, b.mul(place, stride), dtype) for pointer in given]
        start = [b.load(spot, typ=lanes.type(dtype), align=dtype.itemsize) for spot in spots]
        done = walk(low, high, start + [lanes.constant(0, kind) for kind in report])
        is_first, row = b.icmp_signed("==", number, LONG(0)), b.mul(place, keep)
        for i, x in enumerate(lanes.run(seen.code, [*done[:-3], *params])):
            b.store(x, element(b, noted[i], row, dtype), align=dtype.itemsize)
            sums.add(i, x, is_first, is_real)
        is_bad = lanes.any(b.and_(is_real, b.not_(is_fine(lanes, done))))
        residual, cut, taken = done[-3:]
        is_worse = b.and_(is_real, b.fcmp_ordered(">", residual, worst))
        is_more = b.and_(is_real, b.icmp_signed(">", taken, iterations))
        return [
            b.add(bad, b.zext(is_bad, LONG)),
            b.select(is_worse, residual, worst),
            b.add(truncated, b.select(is_real, cut, lanes.constant(0, report[1]))),
            b.select(is_more, taken, iterations),
        ]

    nothing = [LONG(0), *(lanes.constant(0, kind) for kind in report)]
    bad, *reports = loop(b, LONG(0), tiles, nothing, tile)
    sums.finish(sample, real, index)
    for pointer, x, kind in zip(entry.arrays[-len(report) :], reports, report, strict=True):
        b.store(x, element(b, pointer, LONG(0), kind), align=kind.itemsize)
    b.ret(bad)
    return str(entry)
