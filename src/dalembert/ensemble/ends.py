"""Means at the ends of several small runs at once, where nothing else is asked for.

A record, a line of progress and the like take as long as a short run. Here is only what its numbers
follow from; they are those of the run (`job.py`), which is there where a path needs more.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import chain
from typing import NamedTuple

import jax
import numpy as np

from dalembert.ensemble.blocks import ends_of_block, padded_numbers
from dalembert.ensemble.initial import InitialStates
from dalembert.ensemble.kernel import told_to_all
from dalembert.ensemble.march import Block
from dalembert.ensemble.ready import Ready, maps_of
from dalembert.ensemble.settings import Settings
from dalembert.ensemble.sigterm import ending_on_sigterm
from dalembert.precision import as_told_here
from dalembert.statistics.statistic import Data


class ShortRun(NamedTuple):
    """A run of which the means at the end are asked for.

    Attributes:
        settings: what it is.
        like: one that differs in numbers alone, made ready.
        starts: where its paths start.
    """

    settings: Settings
    like: Ready
    starts: InitialStates


def means_at_ends(runs: Iterable[ShortRun]) -> list[dict[str, Data] | None]:
    """What the statistics of each run have, by key; None where it has to be run as a whole.

    Its first blocks run while later ones are made.
    """
    runs, one, begun = iter(runs), as_told_here(_of_block), []
    first = next(runs, None)
    if first is None:
        return []
    with ending_on_sigterm(), ThreadPoolExecutor(first.like.workers, "dalembert") as cores:
        try:
            for run in chain([first], runs):
                shared, numbers = _shared(run), range(run.settings.blocks)
                blocks = [cores.submit(one, run, shared, i) for i in numbers] if shared else []
                begun.append((run, blocks))
            return [_merged(run.settings, [x.result() for x in blocks]) for run, blocks in begun]
        except BaseException:
            cores.shutdown(cancel_futures=True)
            raise


def _shared(run: ShortRun) -> Block | None:
    """What all paths are told; None if vector code does not take them to their ends at once."""
    settings, work = run.settings, run.like.work
    at_once = work.compiled.at_end is not None and settings.is_one_stretch
    if not at_once or settings.noise != work.settings.noise:
        return None
    with jax.enable_x64(settings.dtype == np.float64):
        maps, _ = maps_of(settings, work.kernel)
        is_same_form = jax.tree.structure(maps) == jax.tree.structure(work.maps)
        return told_to_all(settings, maps) if is_same_form else None


def _of_block(run: ShortRun, shared: Block, number: int) -> dict[str, Data] | None:
    with jax.enable_x64(run.settings.dtype == np.float64):
        at_end, settings = run.like.work.compiled.at_end, run.settings
        try:
            starts = run.starts.common or run.starts(padded_numbers(settings, number))
        except Exception:  # what a sampler raises a run of its own says of a path
            return None
        ends = ends_of_block(at_end, settings, starts, shared, number)
    return None if ends is None else ends.data


def _merged(settings: Settings, blocks: list[dict[str, Data] | None]) -> dict[str, Data] | None:
    known = [data for data in blocks if data is not None]
    if not known or len(known) < len(blocks):
        return None
    return {key: reduce(s.merge, (x[key] for x in known)) for key, s in settings.statistics}
