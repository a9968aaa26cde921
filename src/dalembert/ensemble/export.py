"""Runs for other libraries: xarray and matplotlib."""

import json
from types import ModuleType
from typing import Any

from dalembert.ensemble.run import Run

__all__ = ["plot", "to_xarray"]


def to_xarray(run: Run) -> Any:
    """Mean, standard error, minimum and maximum of every observable over time."""
    xarray = _require("xarray")
    variables: dict[str, Any] = {"count": ("time", run.count)}
    for name, moments in run.moments.items():
        components = [f"{name}_component_{k}" for k in range(moments.mean.ndim - 1)]
        dims = ("time", *components)
        variables |= {
            f"{name}_mean": (dims, run.mean[name]),
            f"{name}_minimum": (dims, run.minimum[name]),
            f"{name}_maximum": (dims, run.maximum[name]),
        }
        if run.count.min() > 1:
            variables[f"{name}_stderr"] = (dims, run.stderr[name])
    coordinates: dict[str, Any] = {"time": run.t}
    if run.q is not None and run.p is not None:
        dims = ("path", "component") if run.q.ndim == 2 else ("time", "path", "component")
        variables |= {"q": (dims, run.q), "p": (dims, run.p)}
    attributes = {"failed": run.failed, "provenance": json.dumps(run.provenance)}
    return xarray.Dataset(variables, coords=coordinates, attrs=attributes)


def plot(run: Run, observable: str | None, ax: Any) -> Any:
    """The mean of one observable with a band of two standard errors."""
    pyplot = _require("matplotlib.pyplot")
    name = next(iter(run.moments)) if observable is None else observable
    axes = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    mean = run.mean[name]
    (line,) = axes.plot(run.t, mean, label=run.provenance["method"]["name"])
    if run.count.min() > 1:
        band = 2 * run.stderr[name]
        axes.fill_between(run.t, mean - band, mean + band, color=line.get_color(), alpha=0.25)
    axes.set_xlabel("time")
    axes.set_ylabel(f"mean of {name}")
    axes.set_title(run.provenance["system"]["name"])
    return axes


def _require(module: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"this needs {package}: install it with  pip install 'dalembert[plot]'"
        ) from error
