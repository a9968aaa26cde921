"""Several small runs at once: their blocks share the cores, so that none of them waits."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from dalembert.ensemble.job import Job
from dalembert.ensemble.run import Run
from dalembert.ensemble.settings import USUAL_DIM
from dalembert.ensemble.sigterm import ending_on_sigterm
from dalembert.system import System

FEW = 2**26
"""Path-steps of all runs up to which they are run at once; after them each is long enough alone."""


def run_together(sizes: Sequence[int], made: Callable[[int], Job]) -> list[Run]:
    """What comes of some runs, each of which has the numbers that it has alone.

    Args:
        sizes: path-steps of each.
        made: makes the run of a place ready. The largest is made first, and its blocks run while
            the others are made.
    """
    if not sizes:
        return []
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    first = made(order[0])
    is_alone = first.file is None and first.remote is None
    is_small = is_alone and are_small(first.settings.system, sum(sizes))
    if first.workers == 1 or len(sizes) == 1 or not is_small:
        return [(first if place == order[0] else made(place)).run() for place in range(len(sizes))]
    jobs: dict[int, Job] = {}
    with ending_on_sigterm(), ThreadPoolExecutor(first.workers, "dalembert") as cores:
        try:
            for place in order:
                jobs[place] = first if not jobs else made(place)
                jobs[place].shown &= jobs[place] is first  # there is one line
                jobs[place].begin(cores)
            return [jobs[place].run() for place in range(len(sizes))]
        except BaseException:
            for job in jobs.values():
                job.stop()
            cores.shutdown(cancel_futures=True)
            raise


def are_small(system: System, size: int) -> bool:
    """Whether so many path-steps are better taken at once, and by this process alone."""
    return jax.process_count() == 1 and size * max(system.dim, USUAL_DIM) / USUAL_DIM <= FEW
