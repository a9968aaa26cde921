"""Runs of the program on the workers of a scheduler of Dask, which may be something else or die."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Any

from dalembert.arguments import fail
from dalembert.ensemble.executors import on_executor

CONNECT_SECONDS = 15
"""How long a scheduler may take to answer."""

LOGGERS = ("distributed.client", "distributed.core", "distributed.protocol.core")
"""What says at length what our own messages say."""


@contextmanager
def on_dask(address: str | None) -> Iterator[None]:
    """Let the workers of a scheduler run the paths of all simulations, if there is an address."""
    if address is None:
        yield
        return
    with _silent():
        client = _client_of(address)
        try:
            with on_executor(client):
                yield
        finally:
            # There may be nobody any more to say goodbye to.
            with suppress(Exception):
                client.close()


def _client_of(address: str) -> Any:
    """A client of the scheduler at an address, which may belong to anything."""
    try:
        from distributed import Client
    except ImportError as error:
        raise fail("--dask needs the extra `cluster`: pip install '.[cluster]'") from error
    found: Future[Any] = Future()

    def connect() -> None:
        try:
            found.set_result(Client(address, name="dalembert", timeout=CONNECT_SECONDS))
        except Exception as error:
            found.set_exception(error)

    # Dask waits without end for the first word of somebody who has none to say.
    threading.Thread(target=connect, name="dalembert connects", daemon=True).start()
    if not wait([found], 2 * CONNECT_SECONDS).done:
        raise fail(f"no scheduler of Dask at {address}: something listens there, and says nothing.")
    error = found.exception()
    if isinstance(error, OSError | ValueError):
        raise fail(f"no scheduler of Dask at {address}: {error}") from error
    if error is not None:
        raise fail(
            f"no scheduler of Dask answers at {address}; does another program listen there? "
            f"({type(error).__name__}: {error})"
        ) from error
    return found.result()


@contextmanager
def _silent() -> Iterator[None]:
    before = {logger: logger.disabled for logger in map(logging.getLogger, LOGGERS)}
    try:
        for logger in before:
            logger.disabled = True
        yield
    finally:
        for logger, was in before.items():
            logger.disabled = was
