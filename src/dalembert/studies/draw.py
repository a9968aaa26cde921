"""Figures on paper: matplotlib, one style per method, readable in greyscale.

Nothing of `pyplot` is used: figures can be drawn without a display and in several threads.
"""

import io
import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dalembert.pictures import film_of_density
from dalembert.studies.figures import Figure, Image, Panel


@dataclass(frozen=True)
class Style:
    """The colours of a family on a light and on a dark ground, and its marker (o s ^ v D X)."""

    light: str
    dark: str
    marker: str


# Methods that keep the structure are cold, explicit ones warm, which every eye tells apart. Among
# the mean-square methods, and among the weak ones, no two are of the same lightness.
STYLES = {
    "midpoint": Style("#1575b0", "#6db4ff", "o"),
    "stormer_verlet": Style("#00a3ad", "#7fe9ee", "s"),
    "dirk": Style("#2a2478", "#9a7bf0", "^"),
    "srkw1": Style("#6b6be0", "#b4bcff", "D"),
    "srkw2": Style("#09464c", "#1fa795", "o"),
    "heun": Style("#b97a00", "#f5c063", "v"),
    "r2": Style("#b3103a", "#ff7d9c", "D"),
    "e1": Style("#820a55", "#dd6bb5", "X"),
    "rs1": Style("#949566", "#dfe0a8", "^"),
    "rs2": Style("#a03000", "#f5804a", "v"),
}
REFERENCE = Style("#000000", "#ffffff", "")
DASHES = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2), (9, 3), (3, 1.5, 1, 1.5, 1, 1.5))
"""Dashes of the first, second, … curve of a family."""

WIDTH, PANEL_HEIGHT = 7.0, {1: 2.7, 2: 2.3}  # inches: a journal's text width; by columns
SMALL, LEGEND_LINE = 7.5, 0.16  # points; inches
LEGEND = {"loc": "outside lower center", "fontsize": SMALL, "frameon": False, "handlelength": 3.4}
FILES = {"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "dalembert"}
FPS = 12
"""Pictures of a film per second."""
NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}

# matplotlib reads the settings of files from a global when it writes one.
_settings = threading.Lock()


def styles_of(families: Iterable[str]) -> dict[str, Style]:
    """The style of each family; those without one of their own get the next free one."""
    found = {"reference": REFERENCE}
    others = []
    for family in dict.fromkeys(families):
        # "dirk(0.5)" looks like "dirk", and a second dirk like something else.
        style = STYLES.get(family.partition("(")[0])
        if style is not None and style not in found.values():
            found[family] = style
        elif family not in found:
            others.append(family)
    free = [style for style in STYLES.values() if style not in found.values()]
    ring = free or list(STYLES.values())
    return found | {family: ring[i % len(ring)] for i, family in enumerate(others)}


def draw(figure: Figure) -> Any:
    """The figure as a `matplotlib.figure.Figure`; its caption is not part of the picture."""
    if not figure.panels:
        raise ValueError(f"figure {figure.name!r} has no panels: there is nothing to draw.")
    lines = [line for panel in figure.panels for line in panel.lines]
    styles = styles_of(line.family for line in lines)
    longest = max((len(line.label) for line in lines), default=0)
    entries = len({(line.label, line.family, line.variant) for line in lines})
    legend_rows = math.ceil(entries / max(1, int(WIDTH / (0.55 + 0.056 * longest))))
    columns = max(1, min(figure.columns, len(figure.panels)))
    rows = math.ceil(len(figure.panels) / columns)
    height = rows * PANEL_HEIGHT.get(columns, 1.9) + legend_rows * LEGEND_LINE
    canvas = _matplotlib().figure.Figure((WIDTH, height), layout="constrained")
    grid = canvas.subplots(rows, columns, squeeze=False).flat
    handles = {}
    for panel, axes in zip(figure.panels, grid, strict=False):
        _prepare(axes, panel)
        if panel.image is not None:
            _draw_image(axes, panel.image)
        for i, line in enumerate(panel.lines):
            drawn = _draw_line(axes, panel, i, styles[line.family])
            handles[line.label, line.family, line.variant] = drawn
        axes.set(xlim=panel.xlim, ylim=panel.ylim)
    for axes in grid[len(figure.panels) :]:
        axes.remove()
    if entries:
        names, ncols = [label for label, _, _ in handles], math.ceil(entries / legend_rows)
        for text in canvas.legend(list(handles.values()), names, ncols=ncols, **LEGEND).get_texts():
            text.set_parse_math(False)
    return canvas


def _prepare(axes: Any, panel: Panel) -> None:
    for name, text in (("xlabel", panel.xlabel), ("ylabel", panel.ylabel), ("title", panel.title)):
        getattr(axes, f"set_{name}")(text, fontsize=SMALL + 1, parse_math=False)
    axes.tick_params(labelsize=SMALL, width=0.6, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_linewidth(0.6)
    if panel.image is None:
        axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_yscale(panel.yscale)
    axes.margins(x=0)


def _draw_line(axes: Any, panel: Panel, i: int, style: Style) -> Any:
    line = panel.lines[i]
    x, y = np.asarray(line.x), np.where(np.isfinite(line.y), line.y, np.nan)
    if line.band is not None:
        bands = sum(other.band is not None for other in panel.lines)
        look = {"color": style.light, "alpha": max(0.07, 0.22 / math.sqrt(bands)), "linewidth": 0}
        axes.fill_between(x, y - line.band, y + line.band, **look)
    dashes = DASHES[line.variant % len(DASHES)]
    look = {"color": style.light, "linestyle": (0, dashes) if dashes else "-"}
    if not style.marker:
        return axes.plot(x, y, linewidth=0.8, zorder=4, **look)[0]
    left, right = panel.xlim or (x.min(), x.max())
    # Five markers, beside those of the other curves.
    places = left + (right - left) * (np.arange(5) + (i % 7 + 0.5) / 7) / 5
    # Filled ones have a white rim, hollow ones a coloured one.
    face, edge, size = ("white", style.light, 4.2) if line.variant else (style.light, "white", 5.5)
    look |= {"marker": style.marker, "markerfacecolor": face, "markeredgecolor": edge}
    look["markevery"] = sorted({int(np.abs(x - place).argmin()) for place in places})
    return axes.plot(x, y, linewidth=1.2, markersize=size, markeredgewidth=0.8, zorder=3, **look)[0]


def _draw_image(axes: Any, image: Image) -> None:
    values = np.transpose(image.values)
    shades = axes.pcolormesh(image.x, image.y, values, cmap="cividis", rasterized=True)
    bar = axes.figure.colorbar(shades, ax=axes, pad=0.02)
    bar.set_label(image.label, fontsize=SMALL + 1, parse_math=False)
    bar.ax.tick_params(labelsize=SMALL, width=0.6, length=3)


def save_figure(
    figure: Figure, folder: Any, formats: Iterable[str] = ("svg", "pdf", "png")
) -> list[Path]:
    """Write FOLDER/NAME.FORMAT for every format, and the film if there is one, NAME.gif.

    The same figure gives the same files.
    """
    pictures = drawn(figure, formats)
    files = {form: Path(folder) / f"{figure.name}.{form}" for form in pictures}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for form, file in files.items():
        file.write_bytes(pictures[form])
    if film := figure.film:
        files["gif"] = film_file(folder, figure)
        edges = film.x, film.y
        film_of_density(edges, film.values, film.t, files["gif"], FPS, film.labels)
    return list(files.values())


def film_file(folder: Any, figure: Figure) -> Path:
    """Where the film of a figure is, if it has one."""
    return Path(folder) / f"{figure.name}.gif"


def drawn(figure: Figure, formats: Iterable[str]) -> dict[str, bytes]:
    """The contents of a file of every format."""
    canvas, found = draw(figure), {}
    for form in formats:
        about = NO_DATE[form] | {"Title": figure.title} if form in NO_DATE else None
        with _settings, _matplotlib().rc_context(FILES), io.BytesIO() as stream:
            canvas.savefig(stream, format=form, dpi=300, metadata=about)
            found[form] = stream.getvalue()
    return found


def _matplotlib() -> Any:
    try:
        import matplotlib.figure
    except ImportError as error:
        raise ImportError(
            "this needs matplotlib: install it with  pip install matplotlib"
        ) from error
    return matplotlib
