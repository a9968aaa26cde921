"""Figures as data: what to draw, for paper (matplotlib) and for the screen (the report) alike."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Figure", "Image", "Line", "Panel"]


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
class Figure:
    """Panels one above the other, or in rows, with a caption.

    Attributes:
        name: file name without ending.
        title: short title.
        caption: what is to be seen, in full sentences.
        panels: the axes.
        columns: panels per row.
        source: the figure of the paper that it corresponds to, if any.
    """

    name: str
    title: str
    caption: str
    panels: Sequence[Panel] = field(default_factory=tuple)
    columns: int = 1
    source: str = ""
