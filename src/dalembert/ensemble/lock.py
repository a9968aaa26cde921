"""One run at a time in one place: a lock that ends with the process, however it ends."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows: there the place is tried, but not locked.
    fcntl = None

MARK = b"dalembert"


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep other runs from using a file, and see that its folder can be written.

    The lock is on `.NAME.lock` beside the file, which is removed in the end. The operating system
    gives the lock back when the process dies; what is left of the file then is of no consequence.

    Raises:
        BlockingIOError: if another run uses the file.
        ValueError: if there is a file of another program in place of the lock.
        OSError: if the folder cannot be written.
    """
    lock = path.with_name(f".{path.name}.lock")
    stream = _open(lock, path)
    try:
        stream.seek(0)
        stream.truncate()
        stream.write(MARK + f" process {os.getpid()} on {socket.gethostname()}".encode())
        stream.flush()
        yield
    finally:
        # Before it is given back: whoever waits for it sees that it has gone.
        lock.unlink(missing_ok=True)
        stream.close()


def _open(lock: Path, path: Path) -> IO[bytes]:
    """The locked file."""
    while True:
        if lock.exists() and not lock.is_file():
            raise ValueError(f"{lock} is in the way of the checkpoint {path}: it is not a file.")
        try:
            stream = lock.open("a+b")
        except OSError as error:
            reason = error.strerror or error
            raise OSError(
                error.errno, f"nothing can be written beside the checkpoint {path}: {reason}"
            ) from error
        try:
            stream.seek(0)
            owner = stream.read(1000)
            if owner and not owner.startswith(MARK):
                raise ValueError(f"{lock} is in the way of the checkpoint {path}: it is not ours.")
            if not _take(stream):
                who = owner.decode(errors="replace").removeprefix(MARK.decode()).strip()
                raise BlockingIOError(
                    f"the checkpoint {path} is in use by another run ({who or 'just begun'}): wait "
                    "for its end, or give another file."
                )
            # The run before may have removed the file between its opening and its locking.
            if lock.exists() and os.path.samestat(os.fstat(stream.fileno()), lock.stat()):
                return stream
        except BaseException:
            stream.close()
            raise
        stream.close()


def _take(stream: IO[bytes]) -> bool:
    """Lock the file; True also where the file system knows no locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
    return True
