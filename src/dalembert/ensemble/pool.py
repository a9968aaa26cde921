"""Blocks on all cores and devices, in threads if that pays; results come in order."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from itertools import islice

from dalembert.ensemble.blocks import BlockResult, Work, is_short, run_block
from dalembert.ensemble.places import Place
from dalembert.precision import as_told_here

LOCAL_PROCESSES = "DALEMBERT_LOCAL_PROCESSES"
"""Variable with the number of processes that share the cores of this machine."""

Begun = deque[tuple[int, Future[BlockResult | None]]]

IN_FLIGHT = 2
"""Blocks begun or finished out of turn, per worker."""


class BlocksStopped(Exception):
    """Blocks were stopped from outside."""


def worker_count(places: tuple[Place, ...], wanted: int | None) -> int:
    """How many blocks to run at a time: one per core of the process, or two per device.

    While one block of a device computes, the other comes and goes. Of blocks that take all devices
    there is one at a time: devices would wait for each other in different blocks for ever.
    """
    if places[0].is_spread:
        if wanted not in (None, 1):
            raise ValueError(f"workers={wanted}: with shard=True one block runs at a time.")
        return 1
    if places[0].devices[0].platform != "cpu":
        return wanted or 2 * len(places)
    return wanted or cores()


def cores() -> int:
    """Cores that this process may use, if it shares them fairly."""
    share = int(os.environ.get(LOCAL_PROCESSES, "1"))
    if hasattr(os, "sched_getaffinity"):
        return max(len(os.sched_getaffinity(0)) // share, 1)
    return max((os.cpu_count() or 1) // share, 1)


def begin_blocks(work: Work, numbers: Iterable[int], threads: ThreadPoolExecutor) -> Begun:
    """Let threads run blocks; their numbers and what will come of them."""
    run, places = as_told_here(run_block), work.places
    return deque((n, threads.submit(run, work, n, places[n % len(places)])) for n in numbers)


def run_blocks(
    work: Work,
    numbers: Iterable[int],
    workers: int,
    on_wait: Callable[[], None],
    begun: Begun | None = None,
) -> Iterator[tuple[int, BlockResult]]:
    """Results in the order of the numbers, from threads of their own or the caller's.

    Leaving the iteration early, also by an exception such as Ctrl-C, stops every block after its
    current leg and leaves `work.pending` complete; so does `work.stop`, with `BlocksStopped`. All
    of them may have been begun before.
    """
    remaining = iter(numbers)
    if begun is None and is_short(work, workers):  # a thread would take as long to start
        for number in remaining:
            result = run_block(work, number, work.places[0])
            if result is None:
                raise BlocksStopped
            yield number, result
        return
    running: Begun = deque() if begun is None else begun
    own = ThreadPoolExecutor(workers, "dalembert") if begun is None else None
    with nullcontext() if own is None else own:

        def submit(count: int) -> None:
            if own is not None:
                running.extend(begin_blocks(work, islice(remaining, count), own))

        try:
            # Of blocks that several processes compute together none is begun by some of them alone.
            submit(1 if work.places[0].is_shared else IN_FLIGHT * workers)
            while running:
                number, future = running[0]
                while not future.done() and not wait([future], timeout=0.1).done:
                    on_wait()
                result = future.result()
                if result is None:
                    raise BlocksStopped
                running.popleft()
                submit(1)
                yield number, result
        finally:
            for _, future in running:
                work.stop.set()
                future.cancel()
            wait([future for _, future in running])
