"""SIGTERM stops a run as Ctrl-C does: it saves itself, says so, and then the program ends.

Clusters, shells and `dalembert run --processes` end programs with this signal.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dalembert.ensemble.processes import leave_together


class Terminated(SystemExit):
    """Raised where the signal arrives; its message says what was done and how to go on."""


class _Signal:
    """Whether the signal has come, and whether what is under way may be left for it."""

    has_come = False
    must_wait = False

    def arrive(self, number: int, frame: Any) -> None:
        is_first, self.has_come = not self.has_come, True
        if is_first and not self.must_wait:
            raise Terminated("ended by SIGTERM.")


_signal = _Signal()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let the signal wait until something is saved."""
    before, _signal.must_wait = _signal.must_wait, True
    try:
        yield
    finally:
        _signal.must_wait = before


@contextmanager
def ending_on_sigterm(is_quiet: bool = False) -> Iterator[None]:
    """Raise `Terminated` on SIGTERM, so that runs save themselves; at last the program ends by it.

    The outermost of several contexts counts. Nothing is changed where the program handles the
    signal itself, or in other threads than the first.

    Args:
        is_quiet: do not print the message.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    message = "ended by SIGTERM."
    _signal.has_come = False
    signal.signal(signal.SIGTERM, _signal.arrive)
    try:
        yield
    except (Terminated, KeyboardInterrupt) as stop:
        if not _signal.has_come:
            raise
        message = str(stop) or message
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if _signal.has_come:
            if not is_quiet and sys.stderr is not None:
                print(message, file=sys.stderr)
            _flush()
            leave_together()
            os.kill(os.getpid(), signal.SIGTERM)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
