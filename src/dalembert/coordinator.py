"""A process of its own that only keeps the others of a run in touch: `coordinator.py PORT N PIPE`.

JAX ends every process at once when the one that coordinates them dies. Usually that is the first
process, which computes as well; if it is this one instead, the others outlive each other for long
enough to save themselves. It ends some seconds after the process that holds the other end of the
pipe, which is the last to need it. Nothing of the package is imported, so that it starts quickly.
"""

import os
import signal
import sys
import time

SECONDS_AFTER_ALL = 8.5
"""Later than all others, which JAX would end as soon as nobody keeps them in touch."""


def main(port: str, processes: str, pipe: str) -> None:
    """Coordinate until the pipe is closed."""
    from jaxlib import _jax  # type: ignore[attr-defined]

    # Whoever stops all processes at a time means those that compute.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    service = _jax.get_distributed_runtime_service(f"localhost:{port}", int(processes))
    print("ready", flush=True)
    os.read(int(pipe), 1)
    time.sleep(SECONDS_AFTER_ALL)
    del service
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
