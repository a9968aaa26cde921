"""Sums of observed numbers by vector code, in every lane, and the means that they make.

They are taken of deviations from the first path of a lane, which is as near to the mean as others
are: what rounding takes of their squares is as many of its units as there are paths at the most.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from dalembert.ensemble.lanes import Lanes, loop
from dalembert.ensemble.native_entry import LONG, WORD, element

SUMS = 5
"""What every lane has of each observed number: that of its first path, the sum of deviations from
it and of their squares, the least and the largest number."""


class Sums:
    """`SUMS` of some observed numbers, in memory, and what they come to."""

    def __init__(self, lanes: Lanes, pointer: Any, numbers: int) -> None:
        self._lanes, self._pointer, self._numbers = lanes, pointer, numbers
        self._type = lanes.type(np.float64)

    def _spots(self, number: Any) -> list[Any]:
        b, width = self._lanes.builder, self._lanes.width
        rows = (b.add(b.mul(number, LONG(SUMS)), LONG(row)) for row in range(SUMS))
        return [element(b, self._pointer, b.mul(row, LONG(width)), np.float64) for row in rows]

    def _now(self, number: Any) -> list[Any]:
        return [self._lanes.builder.load(x, typ=self._type, align=8) for x in self._spots(number)]

    def _store(self, number: Any, rows: Sequence[Any]) -> None:
        for x, spot in zip(rows, self._spots(number), strict=True):
            self._lanes.builder.store(x, spot, align=8)

    def begin(self) -> None:
        """Nothing has been added."""
        values = (0, 0, 0, np.inf, -np.inf)
        start = [self._lanes.constant(x, np.float64) for x in values]
        for number in range(self._numbers):
            self._store(LONG(number), start)

    def add(self, number: int, x: Any, is_first: Any, is_real: Any) -> None:
        """Add a number in every lane in which there is a path, perhaps as the first of them."""
        b, nothing = self._lanes.builder, self._lanes.constant(0, np.float64)
        x = x if x.type == self._type else b.fpext(x, self._type)
        first, total, squares, least, most = self._now(LONG(number))
        first = b.select(is_first, b.select(is_real, x, nothing), first)
        apart = b.select(is_real, b.fsub(x, first), nothing)
        is_less, is_more = b.fcmp_ordered("<", x, least), b.fcmp_ordered(">", x, most)
        new = (
            first,
            b.fadd(total, apart),
            b.fadd(squares, b.fmul(apart, apart)),
            b.select(b.and_(is_real, is_less), x, least),
            b.select(b.and_(is_real, is_more), x, most),
        )
        self._store(LONG(number), new)

    def finish(self, sample: Any, real: Any, index: Any) -> None:
        """Write mean, squared deviations, minimum and maximum of all lanes of so many paths.

        Args:
            sample: where to, shape (4, numbers).
            real: how many paths there are.
            index: numbers of the lanes.
        """
        lanes, b, width = self._lanes, self._lanes.builder, self._lanes.width
        nothing, infinity = (lanes.constant(x, np.float64) for x in (0, np.inf))
        rounded = b.sub(lanes.spread(b.add(real, LONG(width - 1))), index)
        counts = b.uitofp(b.udiv(rounded, lanes.constant(width, np.int64)), self._type)
        is_there, paths = b.fcmp_ordered(">", counts, nothing), b.uitofp(real, self._type.element)

        def together(x: Any, add: Callable[[Any, Any], Any] = b.fadd) -> Any:
            return reduce(add, [b.extract_element(x, WORD(i)) for i in range(width)])

        def extreme(sign: str) -> Callable[[Any, Any], Any]:
            return lambda x, y: b.select(b.fcmp_ordered(sign, x, y), x, y)

        def number(place: Any, _: list[Any]) -> list[Any]:
            first, total, squares, least, most = self._now(place)
            shift = b.select(is_there, b.fdiv(total, counts), nothing)
            means = b.fadd(first, shift)
            centre = b.extract_element(means, WORD(0))
            apart = b.fmul(counts, b.fsub(means, lanes.spread(centre)))
            mean = b.fadd(centre, b.fdiv(together(apart), paths))
            within = b.fsub(squares, b.fmul(total, shift))
            within = b.select(b.fcmp_ordered(">", within, nothing), within, nothing)
            # Squares may overflow where numbers do not: infinite is right then.
            within = b.select(b.fcmp_ordered("<", squares, infinity), within, squares)
            apart = b.fsub(means, lanes.spread(mean))
            between = b.select(is_there, b.fmul(counts, b.fmul(apart, apart)), nothing)
            found = mean, together(b.fadd(within, between)), together(least, extreme("<"))
            for row, x in enumerate((*found, together(most, extreme(">")))):
                spot = b.add(LONG(row * self._numbers), place)
                b.store(x, element(b, sample, spot, np.float64), align=8)
            return []

        loop(b, LONG(0), LONG(self._numbers), [], number)
