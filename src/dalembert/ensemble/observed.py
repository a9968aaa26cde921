"""What was asked for in a run and what was collected for it, also as files have it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dalembert.statistics import Axis, Histogram, Mean, SampleMean, Statistic
from dalembert.statistics.statistic import Data, not_saved, restored

AXIS_FIELDS = ("low", "high", "bins", "periodic")


class Observed(NamedTuple):
    """A statistic that was asked for, and what was collected for it."""

    statistic: Statistic
    data: Data


def observed_from(provenance: Mapping[str, Any], by_key: Mapping[str, Data]) -> dict[str, Observed]:
    """Data from a file, with the statistics that its provenance describes."""
    found = {}
    for key, data in by_key.items():
        door, _, name = key.partition("/")
        found[key] = Observed(restored(provenance[door][name]), data)
    return found


def observed_before(
    header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, Observed]:
    """What a record has that was written when means and histograms were all that there was."""
    found = {}
    for name in header["observables"]:
        data = {field: arrays[f"moments/{name}/{field}"] for field in SampleMean._fields}
        found[f"observe/{name}"] = Observed(Mean(not_saved), data)
    for name in header["histograms"]:
        of, flat = header["provenance"]["histograms"][name], arrays[f"counts/{name}"]
        axes = [Axis(not_saved, *(a[x] for x in AXIS_FIELDS)) for a in of["axes"]]
        statistic = Histogram(*axes, every_save=of["every_save"])
        inside = flat[..., :-1].reshape(*flat.shape[:-1], *statistic.bins)
        data = {"counts": inside, "outside": flat[..., -1]}
        found[f"histograms/{name}"] = Observed(statistic, data)
    return found
