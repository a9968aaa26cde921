"""Where levels begin: the largest step from which on they pay."""

from collections.abc import Sequence

import numpy as np

from dalembert.answers.sampling import TableRow
from dalembert.answers.schemes import SCHEMES
from dalembert.answers.search import PILOT, PILOT_STEPS, Search
from dalembert.answers.tails import LONG, StoppedError, WideError
from dalembert.ensemble.job import FailedPathsError
from dalembert.ensemble.settings import USUAL_DIM

__all__ = ["coarsest"]

COARSEST, MOST_TRIED = 4, 2**14
"""Steps to the end of the coarsest level that is tried, and of the last one."""

LOST = 4 * LONG
"""Path-steps of pilots after which a variance that seems to be infinite is taken to be so."""

PAYS = 0.057
"""A coarser level pays if differences have less than this share of the variance: with costs 1 and 2
of paths and 3 of pairs, √(3 V_d) + √V < √(2 V) where V_d < (√2 − 1)² V / 3."""

FALLS = 0.5
"""Of a share of the variance, what is left after a halving of steps if it falls as dt or faster."""


def coarsest(search: Search, saves: int) -> int:
    """The fewest steps, 2^k times the number of saves, from which on levels pay.

    Of an observable that hardly varies, differences may vary more than itself for long, and yet
    fall: levels then begin where they are cheapest of all that were tried. Where paths cannot be
    coupled, the fewest steps at which none fails. Steps at which paths fail, or variances seem to
    be infinite, may be too long: shorter ones are tried, after the latter with many paths, among
    which an infinite variance would show again.
    """
    steps, seen, failed, factor = saves, dict[TableRow, float](), None, 1
    while steps < COARSEST:
        steps *= 2
    most = max(MOST_TRIED, 8 * steps)
    while steps <= most:
        try:
            row = TableRow(steps, search.coupled)
            search.sample({row: search.pilot(row)})
            search.vary([row])
            search.resolve(row, factor * search.pilot(row))
        except FailedPathsError as error:
            failed = error
        except WideError as error:
            failed, factor = error, LONG
            if search.steps * search.sampler.system.dim > LOST * PILOT_STEPS * USUAL_DIM:
                raise
        else:
            factor = 1
            seen[row] = search.share(search.levels[row])
            if seen[row] < PAYS or not search.coupled:
                return steps
        steps *= 2
    if not seen and failed is not None:
        raise failed
    shares = list(seen.values())
    if len(shares) > 1 and shares[-1] < FALLS * shares[-2]:
        return _cheapest(search, list(seen))
    other = "" if search.scheme is SCHEMES["plain"] else 'estimator="plain", or '
    raise StoppedError(
        f"the variance of differences between dt and dt/2 does not decay: it is {shares[-1]:.2g} "
        f"of that of the observable at dt = {2 * search.sampler.t_end / steps:.3g}, so that "
        f"levels do not help. Take {other}dt= for the first level"
    )


def _cheapest(search: Search, pairs: Sequence[TableRow]) -> int:
    """The steps to begin with, of those of some pairs, by what is then still to be sampled."""
    levels = [search.levels[row] for row in pairs]
    allowed = np.maximum(search.goal.allowed(levels[-1].itself.mean), 1e-100)
    scale = np.square(search.goal.quantile / allowed)
    costs = []
    for place, first in enumerate(levels):
        variances = [first.itself.variance, *(x.variance for x in levels[place:])]
        each = np.array([first.row.steps, *(row.cost for row in pairs[place:])])
        known = np.array([0, *(x.paths for x in levels[place:])])
        spreads = np.sqrt(np.stack(variances))
        total = scale * np.sum(spreads * np.sqrt(each)[:, None], axis=0)
        paths = np.maximum(np.max(total * spreads / np.sqrt(each)[:, None], axis=1), PILOT)
        costs.append(np.sum(each * np.maximum(paths - known, 0)))
    return pairs[int(np.argmin(costs))].steps
