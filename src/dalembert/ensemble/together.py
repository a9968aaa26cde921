"""Several small runs at once: their blocks share the cores, so that none of them waits."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import jax

from dalembert.ensemble.job import Job
from dalembert.ensemble.run import Run
from dalembert.ensemble.settings import USUAL_DIM
from dalembert.ensemble.sigterm import ending_on_sigterm
from dalembert.precision import as_told_here

FEW = 2**26
"""Path-steps of all runs up to which they are run at once; after them each is long enough alone."""


def run_together(jobs: Sequence[Job]) -> list[Run]:
    """What comes of some runs, each of which has the numbers that it has alone."""
    workers = jobs[0].workers
    if workers == 1 or len(jobs) == 1 or not _are_small(jobs):
        return [job.run() for job in jobs]
    largest = max(jobs, key=_size)
    for job in jobs:
        job.shown &= job is largest  # there is one line
    with (
        ending_on_sigterm(),
        ThreadPoolExecutor(len(jobs), thread_name_prefix="dalembert run") as drivers,
        ThreadPoolExecutor(workers, thread_name_prefix="dalembert") as cores,
    ):
        futures: dict[int, Future[Run]] = {}
        for place in sorted(range(len(jobs)), key=lambda i: -_size(jobs[i])):
            job = jobs[place]
            job.threads = None if job.runs_here else cores
            futures[place] = (cores if job.runs_here else drivers).submit(as_told_here(job.run))
        try:
            return [futures[place].result() for place in range(len(jobs))]
        except BaseException:
            for job in jobs:
                job.stop()
            for future in futures.values():
                future.cancel()
            raise


def _size(job: Job) -> int:
    return job.settings.run_paths * job.settings.steps


def _are_small(jobs: Sequence[Job]) -> bool:
    """Whether it is worth while, and nothing but these cores takes part."""
    alone = all(job.file is None and job.remote is None for job in jobs)
    dim = max(jobs[0].settings.system.dim, USUAL_DIM) / USUAL_DIM
    return alone and jax.process_count() == 1 and sum(map(_size, jobs)) * dim <= FEW
