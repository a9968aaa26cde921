"""Curves of means over time with bands of their errors, as pictures of a run."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from dalembert.ensemble.run import Run
from dalembert.pictures import MANY, draw_band, make_panels

MOST = 64
"""Curves of one observable that are drawn if nobody has asked for more: others hide them."""

Place = tuple[int, ...]


def plot(run: Run, observables: Any, ax: Any, errors: float) -> Any:
    """Means with bands of so many standard errors, every observable in a picture of its own."""
    names = list(run.moments) if observables is None else observables
    names = [names] if isinstance(names, str) else list(names)
    entries = {name: _entries(run.mean, name) for name in names}
    panels = make_panels(len(names), ax)
    for axes, (shown, (name, places, left_out)) in zip(panels, entries.items(), strict=True):
        mean = run.mean[name]
        half = errors * run.stderr[name] if run.count.min() > 1 else 0 * mean
        is_shared = len(names) > 1 and ax is not None and not np.ndim(ax)
        for place in places:
            at = (slice(None), *place)
            plain = name if is_shared else run.provenance["method"]["name"]
            draw_band(axes, run.t, mean[at], half[at], f"{name}{list(place)}" if place else plain)
        if (mean.ndim > 1 or is_shared) and len(axes.lines) <= MANY:
            axes.legend()
        text = "means" if is_shared else f"mean of {shown}"
        if left_out:
            text += f"\n(first {len(places)} of {len(places) + left_out})"
        axes.set_ylabel(text)
    if (title := run.provenance["system"]["name"]) != "system":  # the name of those without one
        panels[0].set_title(title)
    panels[-1].set_xlabel("time")
    return panels[0] if len(names) == 1 or (ax is not None and not np.ndim(ax)) else panels


def _entries(means: Mapping[str, np.ndarray], shown: str) -> tuple[str, Sequence[Place], int]:
    """The observable that is meant, places of the entries to draw, and how many are left out.

    Args:
        means: of all observables.
        shown: the name of one, or of one of its entries as legends write it, such as "w[0, 0]".
    """
    entry = None if shown in means else re.fullmatch(r"(.*)\[([\d, ]+)\]", shown)
    if entry is None:
        shape = means[shown].shape[1:]
        places = list(islice(np.ndindex(shape), MOST))
        return shown, places, int(np.prod(shape)) - len(places)
    name, numbers = entry[1], re.findall(r"\d+", entry[2])
    shape, place = means[name].shape[1:], tuple(map(int, numbers))
    if len(place) != len(shape) or not all(i < n for i, n in zip(place, shape, strict=True)):
        raise ValueError(
            f"{shown!r} is no entry of {name!r}, whose entries have the shape {shape}: write "
            f"{name + str([0] * len(shape)) if shape else name!r} for the first one."
        )
    return name, [place], 0
