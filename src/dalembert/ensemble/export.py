"""Runs for other libraries, and back: xarray, ArviZ and matplotlib."""

import json
from types import ModuleType
from typing import Any

import numpy as np

from dalembert.ensemble.run import Failures, Run
from dalembert.ensemble.statistics import Moments

__all__ = ["from_xarray", "plot", "to_arviz", "to_xarray"]


def to_xarray(run: Run) -> Any:
    """Mean, standard error, minimum and maximum of every observable over time."""
    xarray = _require("xarray")
    variables: dict[str, Any] = {"count": ("time", _storable(run.count))}
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
            f"{name}_counts": ((*times, *axes), _storable(histogram.counts)),
            f"{name}_outside": (times, _storable(histogram.outside)),
        }
        middles = [(edges[1:] + edges[:-1]) / 2 for edges in histogram.edges]
        coordinates |= dict(zip(axes, middles, strict=True))
    if run.q is not None and run.p is not None:
        dims = ("path", "component") if run.q.ndim == 2 else ("time", "path", "component")
        variables |= {"q": (dims, run.q), "p": (dims, run.p)}
    attributes = {
        "title": f"{run.provenance['system']['name']} with {run.provenance['method']['name']}",
        "failed": _storable(run.failed),
        "truncated": _storable(run.truncated),
        "residual": run.residual,
        "iterations": run.iterations,
        "failures": json.dumps(vars(run.failures)),
        "observables": json.dumps(list(run.moments)),
        "provenance": json.dumps(dict(run.provenance)),
    }
    return xarray.Dataset(variables, coords=coordinates, attrs=attributes)


def from_xarray(dataset: Any) -> Run:
    """The run that `Run.to_xarray` has made a dataset of, also after it was a NetCDF file.

    Sums of squared deviations come back from standard errors, to rounding.

    Raises:
        ValueError: if the dataset does not come from a run.
    """
    try:
        of = {name: json.loads(dataset.attrs[name]) for name in ("failures", "provenance")}
        observables = json.loads(dataset.attrs["observables"])
        count = np.asarray(dataset["count"], np.float64)
        return Run(
            np.asarray(dataset["time"]),
            {name: _moments(dataset, name, count) for name in observables},
            {name: _flat_counts(dataset, name) for name in of["provenance"]["histograms"]},
            Failures(**of["failures"]),
            int(dataset.attrs["truncated"]),
            float(dataset.attrs["residual"]),
            int(dataset.attrs["iterations"]),
            np.asarray(dataset["q"]) if "q" in dataset else None,
            np.asarray(dataset["p"]) if "p" in dataset else None,
            of["provenance"],
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"this is no dataset of a run: {error!r}") from error


def _moments(dataset: Any, name: str, count: np.ndarray) -> Moments:
    mean, low, high = (np.asarray(dataset[f"{name}_{of}"]) for of in ("mean", "minimum", "maximum"))
    moments = Moments(count, mean, np.zeros_like(mean), low, high)
    if f"{name}_stderr" not in dataset:
        return moments
    variance = np.asarray(dataset[f"{name}_stderr"]) ** 2 * moments.column
    return moments._replace(deviations=variance * (moments.column - 1))


def _flat_counts(dataset: Any, name: str) -> np.ndarray:
    """Bins in a row, with what lies outside after them."""
    outside = np.asarray(dataset[f"{name}_outside"])
    counts = np.asarray(dataset[f"{name}_counts"]).reshape(*outside.shape, -1)
    return np.concatenate([counts, outside[..., None]], axis=-1).astype(np.int64)


def to_arviz(run: Run) -> Any:
    """Kept states as samples: every path is a chain, every save a draw."""
    arviz, xarray = _require("arviz"), _require("xarray")
    if run.q is None or run.p is None or run.q.ndim != 3:
        raise ValueError('ArviZ needs the states at all save times: simulate with keep="all".')
    dims = ("chain", "draw", "component")
    states = {name: (dims, np.swapaxes(x, 0, 1)) for name, x in (("q", run.q), ("p", run.p))}
    coordinates = {"chain": np.arange(run.q.shape[1]), "draw": np.arange(len(run.t))}
    samples = xarray.Dataset(states, coords=coordinates, attrs=to_xarray(run).attrs)
    convert = getattr(arviz, "convert_to_inference_data", None) or arviz.convert_to_datatree
    return convert(samples)


def _storable(numbers: Any) -> Any:
    """Whole numbers that NetCDF 3 can hold: as floats where 32 bits are too few for them."""
    return numbers if np.max(numbers, initial=0) < 2**31 else np.asarray(numbers, np.float64)[()]


def plot(run: Run, observable: str | None, ax: Any) -> Any:
    """The mean of one observable with a band of two standard errors."""
    pyplot = _require("matplotlib.pyplot")
    name = next(iter(run.moments)) if observable is None else observable
    mean = run.mean[name]
    band = 2 * run.stderr[name] if run.count.min() > 1 else 0 * mean
    axes = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    for place in np.ndindex(mean.shape[1:]):
        at = (slice(None), *place)
        label = f"{name}{list(place)}" if place else run.provenance["method"]["name"]
        (line,) = axes.plot(run.t, mean[at], label=label)
        low, high = mean[at] - band[at], mean[at] + band[at]
        axes.fill_between(run.t, low, high, color=line.get_color(), alpha=0.25)
    if mean.ndim > 1:
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
            f"this needs {package}: install it with  pip install {package}"
        ) from error
