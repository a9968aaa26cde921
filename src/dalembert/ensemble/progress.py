"""Progress of long work: one line in a terminal, silence anywhere else."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["Progress"]


class Progress:
    """Iterate over results and say how far they are, at what rate, and how long it will take."""

    def __init__(
        self, items: Iterable[Any], total: int, work_per_item: int, title: str, shown: bool
    ) -> None:
        self._items, self._total, self._work = items, total, work_per_item
        self._title = title
        self._shown = shown and sys.stderr.isatty()

    def __iter__(self) -> Iterator[Any]:
        started = time.perf_counter()
        try:
            for done, item in enumerate(self._items, 1):
                yield item
                if self._shown:
                    self._write(done, time.perf_counter() - started)
        finally:
            if self._shown:
                sys.stderr.write("\r\x1b[K")

    def _write(self, done: int, seconds: float) -> None:
        rate = done * self._work / seconds
        left = seconds / done * (self._total - done)
        sys.stderr.write(
            f"\r\x1b[K{self._title}: {done}/{self._total} blocks, "
            f"{rate:.2g} path-steps/s, {left:.0f} s left"
        )
        sys.stderr.flush()
