"""Pictures of arrays by matplotlib: curves with bands, densities, portraits, films.

Nothing here knows what the numbers are; whoever has them says what to write at the axes.
"""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

SIZE = (6.4, 4.0)
"""Inches of one picture: a column of a page."""

PANEL_HEIGHT = 2.2
"""Inches of one of several pictures above each other."""

OBLONG = 4
"""How much wider than high, or higher than wide, what is drawn with equal axes may be."""

MANY = 10
"""Curves beyond which a legend would hide the picture."""


def import_extra(module: str) -> ModuleType:
    """A module of a package that need not be there, or an error that says how to get it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"this needs {package}: install it with  pip install {package}"
        ) from error


def make_axes(ax: Any = None) -> Any:
    """The axes that were given, or new ones."""
    if ax is not None:
        _check_axes(ax)
        return ax
    return import_extra("matplotlib.pyplot").subplots(figsize=SIZE, layout="constrained")[1]


def _check_axes(ax: Any) -> None:
    """Refuse what nothing can be drawn into."""
    if not hasattr(ax, "plot") or not hasattr(ax, "figure"):
        hint = " Take its axes, such as figure.axes[0]." if hasattr(ax, "axes") else ""
        raise TypeError(
            f"ax must be axes of matplotlib, such as plt.subplots()[1], or several of them, not "
            f"{ax!r}.{hint}"
        )


def make_panels(number: int, ax: Any = None) -> list[Any]:
    """Axes for so many pictures: above each other with a common time, or those that were given."""
    if ax is not None:
        given = list(np.ravel(np.asarray(ax, object))) if np.ndim(ax) else [ax] * number
        for each in given:
            _check_axes(each)
        if len(given) != number:
            raise ValueError(f"{number} axes are needed, or one for all, not {len(given)}.")
        return given
    if number == 1:
        return [make_axes()]
    size = (SIZE[0], PANEL_HEIGHT * number)
    pyplot = import_extra("matplotlib.pyplot")
    return list(pyplot.subplots(number, figsize=size, sharex=True, layout="constrained")[1])


def draw_band(axes: Any, x: Any, y: Any, half: Any, label: str) -> None:
    """A curve and the band around it."""
    (line,) = axes.plot(x, y, label=label)
    axes.fill_between(x, y - half, y + half, color=line.get_color(), alpha=0.25, lw=0)


def tidy_log_axes(axes: Any) -> None:
    """Labels of logarithmic axes that do not collide: 1, 2, 5 on a short axis, powers on others."""
    ticker = import_extra("matplotlib.ticker")
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() != "log":
            continue
        low, high = axis.get_view_interval()
        is_short = low > 0 and high / low < 10**2.5
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0) if is_short else (1.0,)))
        if is_short:
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(ticker.NullFormatter())


def draw_density(
    axes: Any,
    edges: Sequence[np.ndarray],
    density: np.ndarray,
    half: Any,
    t: Any = None,
    labels: Sequence[str] = ("x", "y"),
) -> Any:
    """A density in one or two dimensions, or one in one dimension over time, into given axes.

    Args:
        axes: where to.
        edges: ends of the bins of each axis.
        density: shape (bins,), (bins_x, bins_y) or, with `t`, (times, bins).
        half: half the height of the band around a curve.
        t: times.
        labels: what the quantities are called.
    """
    if t is None and len(edges) == 1:
        axes.stairs(density, edges[0], lw=1.5)
        low, high = (np.append(x, x[-1]) for x in (density - half, density + half))
        axes.fill_between(edges[0], np.maximum(low, 0), high, step="post", alpha=0.25, lw=0)
        axes.set(xlabel=labels[0], ylabel="density", ylim=(0, None))
        return axes
    if t is not None:
        t = np.asarray(t, float)
        middles = (t[1:] + t[:-1]) / 2
        first, labels = np.concatenate([t[:1], middles, t[-1:]]), ("time", labels[0])
        mesh = axes.pcolormesh(first, edges[0], density.T, vmax=_top(density), rasterized=True)
    else:
        mesh = axes.pcolormesh(edges[0], edges[1], density.T, rasterized=True)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.figure.colorbar(mesh, ax=axes, label="density")
    return axes


def draw_portrait(
    axes: Any, q: np.ndarray, p: np.ndarray, labels: tuple[str, str] = ("q", "p")
) -> Any:
    """Momenta over positions: curves of shape (times, paths), or points of shape (paths,)."""
    if q.ndim == 1:
        axes.plot(q, p, ".", ms=max(1.0, 6.0 - np.log10(max(len(q), 1))), mew=0)
    else:
        axes.plot(q, p, lw=1.0)
        axes.set_prop_cycle(None)
        axes.plot(q[:1], p[:1], "o", ms=4)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    _square(axes)
    return axes


def _square(axes: Any, adjustable: str = "datalim") -> None:
    """One unit is as long on both axes, unless a picture would get too flat or too narrow."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    if 1 / OBLONG <= (right - left) / (high - low) <= OBLONG:
        axes.set_aspect("equal", adjustable=adjustable)


def film_of_density(
    edges: Sequence[np.ndarray],
    density: np.ndarray,
    t: Any,
    file: Any = None,
    fps: float = 20,
    labels: Sequence[str] = ("x", "y"),
) -> Any:
    """A density, shape (times, bins) or (times, bins_x, bins_y), at one time after the other."""
    axes, top = make_axes(), _top(density)
    if len(edges) == 1:
        stairs = axes.stairs(density[0], edges[0], lw=1.5)
        axes.set(xlabel=labels[0], ylabel="density")
        axes.set(ylim=(0, 1.05 * top), xlim=edges[0][[0, -1]])

        def show(k: int) -> None:
            stairs.set_data(density[k])

    else:
        mesh = axes.pcolormesh(*edges, density[0].T, vmin=0, vmax=top)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        axes.figure.colorbar(mesh, ax=axes, label="density")

        def show(k: int) -> None:
            mesh.set_array(density[k].T)

    return _film(axes, show, t, file, fps)


def _top(density: np.ndarray) -> float:
    """The top of a scale for densities at all times, though all paths may start at one point."""
    tops = density.reshape(len(density), -1).max(axis=1)
    return min(float(tops.max()), 1.5 * float(np.median(tops))) or 1.0


def film_of_points(
    x: np.ndarray, y: np.ndarray, t: Any, labels: tuple[str, str], file: Any = None, fps: float = 20
) -> Any:
    """Points, shape (times, points), at one time after the other; the axes hold all of them."""
    axes = make_axes()
    (dots,) = axes.plot(x[0], y[0], ".", ms=max(2.0, 8.0 - np.log2(x.shape[1]) / 2), mew=0)
    limits = [_limits(values) for values in (x, y)]
    axes.set(xlabel=labels[0], ylabel=labels[1], xlim=limits[0], ylim=limits[1])
    _square(axes, "box")

    def show(k: int) -> None:
        dots.set_data(x[k], y[k])

    return _film(axes, show, t, file, fps)


def _limits(values: np.ndarray) -> tuple[float, float]:
    """Ends of an axis with some room; of what is finite."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = 0.05 * (high - low) or 0.5
    return low - room, high + room


def _film(axes: Any, show: Any, t: Any, file: Any, fps: float) -> Any:
    animation = import_extra("matplotlib.animation")
    title = axes.set_title(f"t = {t[0]:.3g}")

    def frame(k: int) -> tuple[Any, ...]:
        show(k)
        title.set_text(f"t = {t[k]:.3g}")
        return ()

    # The layout of the first picture serves all: to find it again takes most of the time.
    axes.figure.canvas.draw()
    axes.figure.set_layout_engine("none")
    film = animation.FuncAnimation(axes.figure, frame, frames=len(t), interval=1000 / fps)
    if file is not None:
        is_gif = Path(file).suffix == ".gif"
        film.save(file, writer=animation.PillowWriter(fps=round(fps)) if is_gif else None, dpi=100)
        import_extra("matplotlib.pyplot").close(axes.figure)
    return film
