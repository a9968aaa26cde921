"""Runs for other libraries, and back: xarray, ArviZ and matplotlib."""

import json
from typing import Any

import jax
import numpy as np

from dalembert.ensemble.failures import Failures
from dalembert.ensemble.observed import observed_from
from dalembert.ensemble.run import Run
from dalembert.pictures import (
    draw_portrait,
    film_of_points,
    import_extra,
    make_axes,
)
from dalembert.statistics.observing import at_door


def to_xarray(run: Run) -> Any:
    """The results of all statistics, and what else they have collected, by name."""
    xarray = import_extra("xarray")
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
    if run.kept:
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
            {name: np.asarray(dataset[name]) for name in "qp" if name in dataset},
            of["provenance"],
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"this is no dataset of a run: {error!r}") from error


def _field(dataset: Any, name: str, field: str) -> np.ndarray:
    raw = f"{name}_raw_{field}"
    return np.asarray(dataset[raw if raw in dataset else f"{name}_{field}"])


def to_arviz(run: Run) -> Any:
    """Kept states and observables as samples: every path is a chain, every save a draw."""
    arviz, xarray = import_extra("arviz"), import_extra("xarray")
    if not run.kept or run.q.ndim - _axes(run) != 2:
        raise ValueError('ArviZ needs the states at all save times: simulate with keep="all".')
    dims = ("chain", "draw", *_components(run.q.ndim - 2))
    states = {name: (dims, np.swapaxes(x, 0, 1)) for name, x in (("q", run.q), ("p", run.p))}
    for name, x in _observables(run).items():
        own = tuple(f"{name}_{k}" for k in range(x.ndim - 2))
        free = name if name not in states else f"observed_{name}"
        states[free] = (("chain", "draw", *own), np.swapaxes(x, 0, 1))
    coordinates = {"chain": np.arange(run.q.shape[1]), "draw": np.arange(len(run.t))}
    samples = xarray.Dataset(states, coords=coordinates, attrs=to_xarray(run).attrs)
    convert = getattr(arviz, "convert_to_inference_data", None) or arviz.convert_to_datatree
    return convert(samples)


def _observables(run: Run) -> dict[str, np.ndarray]:
    """What was observed, of all kept states, (times, paths, …); nothing of a run from a file."""
    system = run.system
    if system is None or not run.kept:
        return {}
    found, flat = {}, (*run.q.shape[:2], system.dim)
    states = run.q.reshape(flat), run.p.reshape(flat)
    with jax.enable_x64(run.q.dtype == np.float64):
        for name, (statistic, _) in at_door("observe", run.observed).items():
            fun = statistic.functions()["of"]

            def at(q: Any, p: Any, t: Any, fun: Any = fun) -> Any:
                told = system.told(t if system.time else None, system.params)
                return jax.vmap(lambda q, p: system.evaluate(fun, q, p, told))(q, p)

            found[name] = np.asarray(jax.jit(jax.vmap(at))(*states, run.t.astype(run.q.dtype)))
    return found


def _storable(numbers: Any) -> Any:
    """Whole numbers that NetCDF 3 can hold: as floats where 32 bits are too few for them."""
    return numbers if np.max(numbers, initial=0) < 2**31 else np.asarray(numbers, np.float64)[()]


def phase_portrait(run: Run, component: Any, paths: int, ax: Any) -> Any:
    """Kept paths in the plane of one position and its momentum."""
    states = _states(run)
    place, labels = _entry(run, component)
    q, p = (x[(..., *place)] for x in states)
    if q.ndim == 2:
        q, p = q[:, :paths], p[:, :paths]
    q, p = _wrapped_curves(q, p, _periods(run)[place])
    axes = draw_portrait(make_axes(ax), q, p, labels)
    axes.set_title(run.provenance["system"]["name"])
    return axes


def animate(run: Run, path: int | None, component: Any, file: Any, fps: float) -> Any:
    """Kept states as a film: all paths in a phase plane, or the particles of one path."""
    q, p = _states(run, all_times=True)
    periods = _periods(run)
    q = _wrapped(q, periods)
    if path is None:
        place, labels = _entry(run, component)
        x, y = q[(..., *place)], p[(..., *place)]
    else:
        if not 0 <= path < q.shape[1]:
            raise ValueError(f"path must be one of the {q.shape[1]} that were kept, not {path!r}.")
        q, p = q[:, path], p[:, path]
        is_there = periods > 0
        # Particles in a box of one dimension, whatever else there is, are shown in phase space.
        if np.any(is_there) and (is_there.ndim == 1 or np.sum(is_there[0]) == 1):
            q, p = q[:, is_there], p[:, is_there]
        in_space = q.ndim == 3 and q.shape[-1] in (2, 3)
        x, y = (q[..., 0], q[..., 1]) if in_space else (q, p)
        x, y = (a.reshape(len(a), -1) for a in (x, y))
        labels = ("x", "y") if in_space else ("q", "p")
    return film_of_points(x, y, run.t, labels, file, fps)


def _periods(run: Run) -> np.ndarray:
    """Lengths of the box of a system, in the form of q, 0 where positions do not repeat."""
    shape = run.q.shape[run.q.ndim - _axes(run) :]
    box = run.provenance["system"].get("box")
    if box is None:
        return np.zeros(shape)
    return np.broadcast_to(np.repeat(box["values"], box["counts"]).reshape(box["shape"]), shape)


def _wrapped(q: np.ndarray, periods: Any) -> np.ndarray:
    """Positions in the box."""
    lengths = np.where(periods > 0, periods, 1.0)
    return np.where(periods > 0, q - lengths * np.floor(q / lengths), q)


def _wrapped_curves(q: np.ndarray, p: np.ndarray, period: Any) -> tuple[np.ndarray, np.ndarray]:
    """Points, or curves (times, paths) that are interrupted where they leave the box."""
    inside = _wrapped(q, period)
    if q.ndim == 1 or not period:
        return inside, p
    leaves = np.diff(np.floor(q / period), axis=0) != 0
    longer = (np.repeat(x, 2, axis=0)[:-1] for x in (inside, p))
    x, y = (np.array(values, np.float64) for values in longer)
    x[1::2][leaves] = np.nan
    return x, y


def _states(run: Run, all_times: bool = False) -> tuple[np.ndarray, np.ndarray]:
    if not run.kept or (all_times and run.q.ndim - _axes(run) != 2):
        what = '"all"' if all_times else '"all" or keep="final"'
        raise ValueError(f"this picture needs the states of the paths: simulate with keep={what}.")
    return run.q, run.p


def _entry(run: Run, component: Any) -> tuple[tuple[int, ...], tuple[str, str]]:
    """The place of one entry of the states, by default the first, and what to call it."""
    shape = run.q.shape[run.q.ndim - _axes(run) :]
    given = (0,) * len(shape) if component is None else component
    place = tuple(given) if isinstance(given, tuple | list) else (given,)
    is_one = len(place) == len(shape) and all(
        isinstance(k, int | np.integer) and -n <= k < n for k, n in zip(place, shape, strict=True)
    )
    if not is_one:
        example = "component=0" if len(shape) == 1 else f"component={(0,) * len(shape)}"
        raise ValueError(
            f"component {component!r} is no entry of a state of shape {shape}: write {example}."
        )
    places = tuple(int(k) % n for k, n in zip(place, shape, strict=True))
    which = f"[{', '.join(map(str, places))}]" if np.prod(shape) > 1 else ""
    return places, (f"q{which}", f"p{which}")
