"""Progress: one line in a terminal or a notebook; in a file, another line now and then."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dalembert.methods.coefficients import counted, text_width

DELAY = 1.0
"""Seconds before the line appears: short runs need none."""

INTERVAL = 0.2
"""Seconds from one line to the next."""

LOG_INTERVAL = 60.0
"""Seconds before the first line in a file or a pipe, and from one to the next."""

LOG_COLUMNS = 120
"""Letters of such a line, with the title, at most."""

TICK = 0.1
"""Seconds between two looks at whether the line is due, where nothing else looks."""

WIDTH = 24
LEAST_WIDTH = 6
"""Columns of the bar: where there is room, and below which it is left out."""


class ProgressBar:
    """How much is done, at what rate, how long it will take, and how many paths have failed."""

    def __init__(self, total: int, done: int, title: str, shown: bool) -> None:
        self._total, self._done, self._at_start, self._title = total, done, done, title
        self.is_watched = _is_watched()
        self.is_shown = shown and sys.stderr is not None
        self._started = self._stepping = time.monotonic()
        self._drawn, self._width = 0.0, 0
        self._lock = threading.Lock()
        self.failed = 0
        self.workers: int | None = None
        self.busy = ""
        """What is done before the first steps, and delays them."""

    @property
    def share(self) -> float:
        """The part of all path-steps that is done."""
        return self._done / self._total

    def add(self, path_steps: int) -> None:
        """Note that so many more path-steps are done."""
        with self._lock:
            self._done = min(self._done + path_steps, self._total)

    def reach(self, path_steps: int) -> None:
        """Note that at least so many path-steps are done, by this process and others."""
        with self._lock:
            self._done = max(self._done, path_steps)

    def draw(self) -> None:
        """Draw the line again, if it is watched and long enough ago."""
        now = time.monotonic()
        if self.busy:
            # Compiling says nothing about how long the steps will take.
            self._stepping, self._at_start = now, self._done
        first, next_ = (DELAY, INTERVAL) if self.is_watched else (LOG_INTERVAL, LOG_INTERVAL)
        if not self.is_shown or now - self._started < first or now - self._drawn < next_:
            return
        self._drawn = now
        if not self.is_watched:
            seconds = now - (self._started if self.busy else self._stepping)
            self._write(self._line(seconds, LOG_COLUMNS) + "\n")
            return
        # A line that wraps could not be drawn over; the last column stays free for the cursor.
        columns = _columns() - 1
        line = self._line(now - (self._started if self.busy else self._stepping), columns)
        width = text_width(line)
        # Ctrl-C can come before the line is written and after: what is to be wiped is known before.
        self._width = max(self._width, width)
        self._write("\r" + line + " " * (min(self._width, columns) - width))
        self._width = width

    def close(self) -> None:
        """Wipe the line."""
        if self._width:
            self._write("\r" + " " * min(self._width, _columns() - 1) + "\r")
            self._width = 0

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            # The terminal is gone; the run goes on.
            self.is_shown = False

    def _line(self, seconds: float, columns: int) -> str:
        if self.busy:
            text = f"{self._title}: {self.busy}, {seconds:.0f} s"
            lines = (_shown(text), self.busy, "")
            return next(line for line in lines if text_width(line) <= max(columns, 0))
        share = self.share
        rate = (self._done - self._at_start) / seconds
        left = _duration((self._total - self._done) / rate) if rate else "?"
        failed = f", {self.failed:,} failed" if self.failed else ""
        team = "" if self.workers is None else f", {counted(self.workers, 'worker')}"
        more = failed + team
        text = f"{share:4.0%} of {self._total:.3g} path-steps, {rate:.2e}/s, {left} left{more}"
        if not self.is_watched:
            whole = f"{_shown(self._title)}: {text.strip()}"
            return whole if text_width(whole) <= columns else text.strip()
        block = "█" if _shown("█") == "█" else "#"
        for title in (_shown(self._title + " "), ""):
            room = min(columns - text_width(title) - len(text) - 3, WIDTH)
            if room >= LEAST_WIDTH:
                return f"{title}|{block * int(share * room):<{room}}| {text}"
        short = f"{share:.0%}, {left} left"
        forms = (text.strip(), short + failed, short, f"{share:.0%}", "")
        return next(form for form in forms if len(form) <= max(columns, 0))


_line_now: ContextVar[ProgressBar | None] = ContextVar("_line_now", default=None)


@contextmanager
def telling(title: str, shown: bool, doing: str = "tracing its functions") -> Iterator[None]:
    """Say what is done, if that takes longer, in a line that goes in the end.

    `tell` changes what is said. Within another line there is no second one.
    """
    if _line_now.get() is not None:
        yield
        return
    bar, done = ProgressBar(1, 0, title, shown), threading.Event()
    bar.busy = doing

    def draw() -> None:
        while not done.wait(TICK):
            bar.draw()

    thread = threading.Thread(target=draw, name="dalembert line", daemon=True)
    if bar.is_shown:
        thread.start()
    before = _line_now.set(bar)
    try:
        yield
    finally:
        _line_now.reset(before)
        done.set()
        if thread.ident is not None:
            thread.join()
        bar.close()


def tell(doing: str) -> None:
    """Say in the line of `telling`, if there is one, what is done now."""
    if (line := _line_now.get()) is not None:
        line.busy = doing


def _shown(text: str) -> str:
    """A text in letters that the terminal knows and that leave the cursor in its line."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    known = text.encode(encoding, "replace").decode(encoding)
    return "".join(letter if letter.isprintable() else "?" for letter in known)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _columns() -> int:
    """The width of the terminal, or 80 where it has none."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _is_watched() -> bool:
    """True in a terminal and in a notebook."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return is_terminal or hasattr(shell, "kernel")
