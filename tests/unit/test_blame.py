"""Which path has raised an exception."""

import logging
import threading

from dalembert.ensemble import blame


def test_two_searches_at_a_time_leave_the_log_of_jax_as_it_was():
    """The first ends while the second is under way, if the second does not wait for it."""
    logger, second = logging.getLogger("jax._src.callback"), threading.Event()
    first_is_over, stop = threading.Event(), threading.Event()

    def search():
        with blame._searching(stop):
            second.set()
            first_is_over.wait(60)

    thread = threading.Thread(target=search)
    with blame._searching(stop):
        assert logger.disabled
        thread.start()
        second.wait(0.3)
    first_is_over.set()
    thread.join()
    assert second.is_set() and not logger.disabled
