"""Figures as data: what to draw, for paper (matplotlib) and for the screen (the report) alike."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

MOST_POINTS = 800
"""Points per curve in JSON."""


@dataclass(frozen=True)
class Line:
    """One curve with an optional band of two standard errors.

    Attributes:
        label: name in the legend, e.g. "midpoint, Δt = 0.5".
        x: abscissae, shape (points,).
        y: ordinates.
        band: half the height of a band around the curve, or None.
        family: what decides its colour and dashes: a method's name, or "reference".
        variant: 0 for the first curve of a family in a panel, 1 for the second, … (its dashes).
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    band: np.ndarray | None = None
    family: str = "reference"
    variant: int = 0


@dataclass(frozen=True)
class Image:
    """Values on a grid, drawn in shades.

    Attributes:
        x: edges of the columns, shape (columns + 1,).
        y: edges of the rows, shape (rows + 1,).
        values: shape (columns, rows).
        label: what the shades mean.
    """

    x: np.ndarray
    y: np.ndarray
    values: np.ndarray
    label: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes: curves, or an image."""

    xlabel: str
    ylabel: str
    lines: Sequence[Line] = ()
    image: Image | None = None
    title: str = ""
    xlim: tuple[float, float] | None = None
    ylim: tuple[float, float] | None = None
    yscale: str = "linear"


@dataclass(frozen=True)
class Film:
    """Values on a grid at one time after the other.

    Attributes:
        t: times, shape (times,).
        x: edges of the columns, shape (columns + 1,).
        y: edges of the rows, shape (rows + 1,).
        values: shape (times, columns, rows).
        labels: of both axes.
    """

    t: np.ndarray
    x: np.ndarray
    y: np.ndarray
    values: np.ndarray
    labels: tuple[str, str]


@dataclass(frozen=True)
class Figure:
    """Panels one above the other, or in rows, with a caption.

    Attributes:
        name: file name without ending.
        title: short title.
        caption: what is to be seen, in full sentences.
        panels: the axes.
        columns: panels per row.
        source: the figure of the paper that it corresponds to, if any.
        film: what moves, if anything: a file beside the pictures, and no part of JSON.
    """

    name: str
    title: str
    caption: str
    panels: Sequence[Panel] = field(default_factory=tuple)
    columns: int = 1
    source: str = ""
    film: Film | None = None


def figures_to_json(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    """Figures as plain data; long curves are thinned, and what is not finite becomes None."""
    return [
        _plain(asdict(replace(figure, panels=[*map(_thin, figure.panels)], film=None)))
        for figure in figures
    ]


def _thin(panel: Panel) -> Panel:
    """At most `MOST_POINTS` per curve: of each stretch the lowest, the highest, the first gap."""
    lines = []
    for line in panel.lines:
        y, kept = np.asarray(line.y, float), np.arange(len(line.y))
        if len(y) > MOST_POINTS:
            is_gap, chosen = ~np.isfinite(y), [0, len(y) - 1]
            for part in np.array_split(kept, (MOST_POINTS - 2) // 3):
                low, high = np.where(is_gap[part], [[np.inf], [-np.inf]], y[part])
                chosen += [part[low.argmin()], part[high.argmax()], part[is_gap[part].argmax()]]
            kept = np.unique(chosen)
        band = None if line.band is None else np.asarray(line.band)[kept]
        lines.append(replace(line, x=np.asarray(line.x)[kept], y=y[kept], band=band))
    return replace(panel, lines=lines)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def figures_from_json(data: Iterable[dict[str, Any]]) -> list[Figure]:
    """The figures of `figures_to_json`; ValueError, KeyError or TypeError if they are damaged."""
    return [Figure(**dict(f, panels=[_panel(panel) for panel in f["panels"]])) for f in data]


def _panel(data: dict[str, Any]) -> Panel:
    def arrays(of: dict[str, Any], *names: str) -> dict[str, Any]:
        return of | {n: np.array(of[n], float) for n in names if of[n] is not None}

    image = data["image"] and Image(**arrays(data["image"], "x", "y", "values"))
    lines = [Line(**arrays(line, "x", "y", "band")) for line in data["lines"]]
    for line in lines:
        if len({np.shape(a) for a in (line.x, line.y, line.band) if a is not None}) > 1:
            raise ValueError(f"the coordinates of {line.label!r} differ in length")
    xlim, ylim = (limits and tuple(limits) for limits in (data["xlim"], data["ylim"]))
    return Panel(**dict(data, lines=lines, image=image, xlim=xlim, ylim=ylim))
