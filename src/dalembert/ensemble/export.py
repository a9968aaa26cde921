"""Runs for other libraries, and back: xarray, ArviZ and matplotlib."""

import json
from types import ModuleType
from typing import Any

import numpy as np

from dalembert.ensemble.run import Failures, Run, observed_from

__all__ = ["from_xarray", "plot", "to_arviz", "to_xarray"]


def to_xarray(run: Run) -> Any:
    """The results of all statistics, and what else they have collected, by name."""
    xarray = _require("xarray")
    variables: dict[str, Any] = {"count": ("time", _storable(run.count))}
    coordinates: dict[str, Any] = {"time": run.t}
    for key, (_, data) in run.observed.items():
        name, shown = key.partition("/")[2], _shown(run, key)
        for what, (dims, x) in shown.items():
            own = tuple(d if d == "time" else f"{name}_{d}" for d in dims)
            where = coordinates if dims == (what,) else variables
            where[f"{name}_{what}"] = (own, _storable(x))
        for field, x in data.items():
            if field not in shown or not np.array_equal(shown[field][1], x):
                whole = f"{name}_raw_{field}"
                dims = tuple(f"{whole}_{k}" for k in range(np.ndim(x)))
                variables[whole] = (dims, _storable(x))
    if run.q is not None and run.p is not None:
        axes = _axes(run)
        dims = (*("time", "path")[axes - run.q.ndim :], *_components(axes))
        variables |= {"q": (dims, run.q), "p": (dims, run.p)}
    attributes = {
        "title": f"{run.provenance['system']['name']} with {run.provenance['method']['name']}",
        "failed": _storable(run.failed),
        "truncated": _storable(run.truncated),
        "residual": run.residual,
        "iterations": run.iterations,
        "failures": json.dumps(vars(run.failures)),
        "statistics": json.dumps({key: list(data) for key, (_, data) in run.observed.items()}),
        "provenance": json.dumps(dict(run.provenance)),
    }
    return xarray.Dataset(variables, coords=coordinates, attrs=attributes)


def _axes(run: Run) -> int:
    """How many axes a state has."""
    dim = run.provenance["system"]["dim"]
    return len(dim) if isinstance(dim, list) else 1


def _components(axes: int) -> tuple[str, ...]:
    """Names of the axes of a state."""
    return ("component",) if axes == 1 else tuple(f"component_{k}" for k in range(axes))


def _shown(run: Run, key: str) -> dict[str, tuple[tuple[str, ...], Any]]:
    """The result of a statistic as named arrays; means of nobody are refused."""
    statistic, data = run.observed[key]
    door, _, name = key.partition("/")
    if door == "observe":
        _ = run.mean[name]
    return statistic.variables(statistic.result(data, run.t), run.t)


def from_xarray(dataset: Any) -> Run:
    """The run that `Run.to_xarray` has made a dataset of, also after it was a NetCDF file.

    Raises:
        ValueError: if the dataset does not come from a run.
    """
    try:
        of = {name: json.loads(dataset.attrs[name]) for name in ("failures", "provenance")}
        fields = json.loads(dataset.attrs["statistics"])
        data = {
            key: {field: _field(dataset, key.partition("/")[2], field) for field in names}
            for key, names in fields.items()
        }
        return Run(
            np.asarray(dataset["time"]),
            observed_from(of["provenance"], data),
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


def _field(dataset: Any, name: str, field: str) -> np.ndarray:
    raw = f"{name}_raw_{field}"
    return np.asarray(dataset[raw if raw in dataset else f"{name}_{field}"])


def to_arviz(run: Run) -> Any:
    """Kept states as samples: every path is a chain, every save a draw."""
    arviz, xarray = _require("arviz"), _require("xarray")
    if run.q is None or run.p is None or run.q.ndim - _axes(run) != 2:
        raise ValueError('ArviZ needs the states at all save times: simulate with keep="all".')
    dims = ("chain", "draw", *_components(run.q.ndim - 2))
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
    name = next(iter(run.moments)) if observable is None else observable
    mean = run.mean[name]
    band = 2 * run.stderr[name] if run.count.min() > 1 else 0 * mean
    axes = new_axes() if ax is None else ax
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


def new_axes() -> Any:
    """Axes of a new figure."""
    return _require("matplotlib.pyplot").subplots(layout="constrained")[1]


def _require(module: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"this needs {package}: install it with  pip install {package}"
        ) from error
