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
    for name, histogram in run.histograms.items():
        axes = [f"{name}_{letter}" for letter in "xy"[: len(histogram.edges)]]
        times = ("time",) if histogram.counts.ndim > len(axes) else ()
        variables |= {
            f"{name}_counts": ((*times, *axes), histogram.counts),
            f"{name}_outside": (times, histogram.outside),
        }
        middles = [(edges[1:] + edges[:-1]) / 2 for edges in histogram.edges]
        coordinates |= dict(zip(axes, middles, strict=True))
    if run.q is not None and run.p is not None:
        dims = ("path", "component") if run.q.ndim == 2 else ("time", "path", "component")
        variables |= {"q": (dims, run.q), "p": (dims, run.p)}
    attributes = {
        "title": f"{run.provenance['system']['name']} with {run.provenance['method']['name']}",
        "failed": run.failed,
        "truncated": run.truncated,
        "residual": run.residual,
        "provenance": json.dumps(dict(run.provenance)),
    }
    return xarray.Dataset(variables, coords=coordinates, attrs=attributes)


def plot(run: Run, observable: str | None, ax: Any) -> Any:
    """The mean of one observable with a band of two standard errors."""
    pyplot = _require("matplotlib.pyplot")
    name = next(iter(run.moments)) if observable is None else observable
    axes = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    mean = run.mean[name].reshape(len(run.t), -1)
    band = 2 * run.stderr[name].reshape(mean.shape) if run.count.min() > 1 else 0 * mean
    for k in range(mean.shape[1]):
        label = run.provenance["method"]["name"] if mean.shape[1] == 1 else f"{name}[{k}]"
        (line,) = axes.plot(run.t, mean[:, k], label=label)
        low, high = mean[:, k] - band[:, k], mean[:, k] + band[:, k]
        axes.fill_between(run.t, low, high, color=line.get_color(), alpha=0.25)
    if mean.shape[1] > 1:
        axes.legend()
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
            f"this needs {package}: install it with  pip install xarray matplotlib"
        ) from error
