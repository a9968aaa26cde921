"""Progress of a run: one line in a terminal or a notebook, silence anywhere else."""

import sys
import threading
import time

__all__ = ["ProgressBar"]

DELAY = 1.0
"""Seconds before the line appears: short runs need none."""

WIDTH = 24


class ProgressBar:
    """How much is done, at what rate, how long it will take, and how many paths have failed."""

    def __init__(self, total: int, done: int, title: str, shown: bool) -> None:
        self._total, self._done, self._at_start, self._title = total, done, done, title
        self._shown = shown and _is_watched()
        self._started, self._drawn, self._width = time.monotonic(), 0.0, 0
        self._lock = threading.Lock()
        self.failed = 0

    def add(self, path_steps: int) -> None:
        """Note that so many more path-steps are done."""
        with self._lock:
            self._done = min(self._done + path_steps, self._total)

    def draw(self) -> None:
        """Draw the line again, if it is watched and long enough ago."""
        now = time.monotonic()
        if not self._shown or now - self._started < DELAY or now - self._drawn < 0.2:
            return
        self._drawn = now
        line = self._line(now - self._started)
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def close(self) -> None:
        """Wipe the line."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0

    def _line(self, seconds: float) -> str:
        share = self._done / self._total
        rate = (self._done - self._at_start) / seconds
        left = _duration((self._total - self._done) / rate) if rate else "?"
        bar = "█" * int(share * WIDTH)
        failed = f", {self.failed:,} failed" if self.failed else ""
        return (
            f"{self._title} |{bar:<{WIDTH}}| {share:4.0%} of {self._total:.3g} path-steps, "
            f"{rate:.2e}/s, {left} left{failed}"
        )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _is_watched() -> bool:
    """True in a terminal and in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
