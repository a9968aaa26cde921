"""The result of a simulation: statistics with standard errors, failures and provenance."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import jax
import numpy as np

from dalembert.ensemble import archive
from dalembert.ensemble.failures import Failures
from dalembert.ensemble.observed import Observed, RunStatistics, observed_before, observed_from
from dalembert.methods.coefficients import counted
from dalembert.spelling import instead_of
from dalembert.statistics import SampleMean
from dalembert.statistics.observing import at_door, data_from_record, data_to_record
from dalembert.statistics.stop_times import Stopped
from dalembert.system import System

KIND, SCHEMA = "dalembert run", 3


class _OfObservables(Mapping[str, np.ndarray]):
    """One statistic of every observable; refuses what the sample does not support."""

    def __init__(self, run: "Run", name: str, least: int, formula: Any) -> None:
        self._moments, self._name = run.moments, name
        self._least, self._formula = least, formula

    def __getitem__(self, observable: str) -> np.ndarray:
        if observable not in self._moments:
            raise KeyError(
                f"no observable {observable!r}; there are {sorted(self._moments)}, and others by "
                f"da.simulate(…, observe={{{observable!r}: a function}})"
            )
        moments = self._moments[observable]
        fewest = int(np.min(moments.count))
        if fewest < self._least:
            raise ValueError(
                f"{self._name} of {observable!r} needs at least {self._least} path(s) at every "
                f"time, and at one time there are {fewest}."
            )
        return self._formula(moments)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_moments", {}):
            raise AttributeError(f"{self._name} of {name!r} is written with brackets, [{name!r}].")
        raise AttributeError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._moments)

    def __len__(self) -> int:
        return len(self._moments)

    def __repr__(self) -> str:
        return f"<{self._name} of {', '.join(self._moments)}>"


@dataclass(frozen=True, eq=False, repr=False)
class Run(RunStatistics):
    """What came out of `simulate`.

    Attributes:
        t: save times, shape (times,).
        observed: all statistics and their data, by where they were asked for, as
            `observe/energy`; see `mean`, `histograms` and `statistics`.
        failures: paths that left the statistics.
        truncated: number of truncated increments.
        residual: the largest relative residual of a stage equation, measured in every step.
        iterations: the largest number of Newton steps or sweeps that was met.
        kept: states of paths, as `q` and `p`; empty without `keep=`. Of runs that stop at an event
            also the times of that, see `stopped`.
        provenance: everything needed to repeat the run.
        system: what was simulated; None if the run comes from a file or stops at events.

    Statistics are NumPy float64, kept states have the type of the run; time units are those of the
    system.
    """

    t: np.ndarray
    observed: Mapping[str, Observed]
    failures: Failures
    truncated: int
    residual: float
    iterations: int
    kept: Mapping[str, np.ndarray]
    provenance: Mapping[str, Any]
    system: System | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = [*dir(type(self)), *type(self).__annotations__]
        raise AttributeError(f"a run has no {name!r}{instead_of(name, known)}")

    def _results(self, door: str) -> dict[str, Any]:
        found = at_door(door, self.observed)
        return {name: s.result(data, self.t) for name, (s, data) in found.items()}

    def _of_observables(
        self, name: str, least: int, formula: Callable[[SampleMean], np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        return _OfObservables(self, name, least, formula)

    @property
    def stopped(self) -> Stopped:
        """When and where paths have stopped, for runs with `stop=`."""
        found = self.statistics.get("stopped")
        if not isinstance(found, Stopped):
            raise ValueError("no path of this run stops: give simulate(…, stop=event).")
        return found._replace(t=self.kept.get("stop_times"))

    @property
    def counts(self) -> dict[str, np.ndarray]:
        """Per histogram, bins in a row and after them what lies outside; see `histograms`."""
        return {
            name: np.concatenate(
                [h.counts.reshape(*h.outside.shape, -1), h.outside[..., None]], axis=-1
            )
            for name, h in self.histograms.items()
        }

    def save(self, path: Any) -> None:
        """Write the run to one `.npz` file, replacing an existing one when it is complete.

        In a run of several processes only the first one writes.
        """
        if jax.process_index() != 0:
            return
        header, arrays = self.to_record()
        archive.write(path, {"format": KIND, "schema": SCHEMA} | header, arrays)

    def to_record(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Plain data and arrays, from which `from_record` makes the run again."""
        names, arrays = data_to_record({key: data for key, (_, data) in self.observed.items()})
        header = {
            "statistics": names,
            "kept": list(self.kept),
            "failures": vars(self.failures),
            "truncated": self.truncated,
            "residual": self.residual,
            "iterations": self.iterations,
            "provenance": dict(self.provenance),
        }
        arrays |= {"t": self.t} | dict(self.kept)
        return header, arrays

    @classmethod
    def from_record(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Run":
        """The run of a record; KeyError or TypeError if it is not one."""
        kept = {name: arrays[name] for name in header["kept"]}
        if "statistics" in header:
            data = data_from_record(header["statistics"], arrays)
            observed = observed_from(header["provenance"], data)
        else:
            observed = observed_before(header, arrays)
        return cls(
            arrays["t"],
            observed,
            Failures(**header["failures"]),
            header["truncated"],
            header["residual"],
            header["iterations"],
            kept,
            header["provenance"],
        )

    def to_xarray(self) -> Any:
        """The run as an `xarray.Dataset` with named dimensions (needs the extra `plot`).

        Its `.to_netcdf(FILE)` writes NetCDF; `Run.from_xarray` makes a run of it again.
        """
        from dalembert.ensemble.export import to_xarray

        return to_xarray(self)

    @classmethod
    def from_xarray(cls, dataset: Any) -> "Run":
        """The run of a dataset that `to_xarray` made, also after it was a NetCDF file.

        Raises:
            ValueError: if the dataset does not come from a run.
        """
        from dalembert.ensemble.export import from_xarray

        return from_xarray(dataset)

    def to_arviz(self) -> Any:
        """Kept states and observables as samples for ArviZ: paths are chains, saves are draws.

        Needs keep="all" and the package `arviz`. A run from a file has no functions any more, and
        so no observables of single paths. For sampling from a stationary law, leave out the draws
        before it is reached, e.g. `.sel(draw=slice(100, None))`.
        """
        from dalembert.ensemble.export import to_arviz

        return to_arviz(self)

    def to_trajectory(
        self, file: Any, path: int = 0, *, symbols: str | Sequence[str] = "X", box: Any = None
    ) -> None:
        """Write one path of particles in space for viewers such as VMD, OVITO and ASE.

        Needs keep="all" and states of shape (N, 3), or (N, k, 3) for N molecules of k points, which
        are written one molecule after the other. There is a frame for every save, with all digits
        of positions and momenta, in the units of the system; an existing file is replaced when the
        new one is complete. Where a path has failed, its trajectory ends, with a warning.

        Args:
            file: its name ends in `.xyz` (extended XYZ, which needs no package) or `.traj` (ASE's
                own, extra `md`).
            path: number among the kept paths.
            symbols: of all particles or of each, as "Ar", or of the k points of every molecule, as
                ["O", "H", "H"]. ASE takes masses from them, and velocities from masses; "X" has
                mass 1.
            box: side of a periodic cube, three sides, or edges as rows. Positions are not wrapped.
        """
        from dalembert.ensemble.trajectory import to_trajectory

        to_trajectory(self, file, path, symbols, box)

    def plot(
        self, observables: str | Sequence[str] | None = None, ax: Any = None, errors: float = 2.0
    ) -> Any:
        """Draw means with bands of two standard errors; returns the axes (extra `plot`).

        Args:
            observables: a name or several; by default all, each in a picture of its own. Of an
                array the first 64 entries are drawn; "w[0, 3]" is one entry of w.
            ax: axes to draw into: one for all of them, or one for each.
            errors: half the width of a band, in standard errors.
        """
        from dalembert.ensemble.curves import plot

        return plot(self, observables, ax, errors)

    def phase_portrait(self, component: Any = None, paths: int = 10, ax: Any = None) -> Any:
        """Draw kept paths in the plane of a position and its momentum; returns the axes.

        With keep="all" the first so many paths as curves from a dot on, with keep="final" the ends
        of all paths as points. Positions in a periodic box are taken into it.

        Args:
            component: which entry of the states, by default the first; several numbers if they
                have several axes, such as (3, 0).
            paths: curves to draw.
            ax: axes to draw into.
        """
        from dalembert.ensemble.export import phase_portrait

        return phase_portrait(self, component, paths, ax)

    def animate(
        self, path: int | None = None, component: Any = None, file: Any = None, fps: float = 20
    ) -> Any:
        """A film of kept states (keep="all"), as a `matplotlib.animation.FuncAnimation`.

        Positions in a periodic box are taken into it; a plasma in one dimension is shown in
        phase space.

        Args:
            path: show the particles of this path, in the plane of their first two coordinates if
                they move in two or three, else by position and momentum; by default all paths.
            component: of all paths, which position and momentum, as in `phase_portrait`.
            file: write it there, as `.gif`, or as `.mp4` where ffmpeg is installed.
            fps: saves a second.
        """
        from dalembert.ensemble.export import animate

        if isinstance(path, str | PathLike):
            raise TypeError(
                f"path must be the number of a path, not {path!r}: write file={path!r}."
            )
        return animate(self, path, component, file, fps)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        of = self.provenance
        title = (
            f"Run of {of['system']['name']} with {of['method']['name']}: "
            f"{counted(of['paths'] if of['only'] is None else len(of['only']), 'path')} to "
            f"t = {of['t_end']:g} in steps of {of['dt']:g}, "
            f"{counted(of['system']['noises'], 'noise')}, seed {of['seed']}"
        )
        rows = self._rows()
        if of.get("alike"):
            same = "all are the same: no noise and one start, so that ± 0 is no error bar"
            rows.insert(1, ("paths", f"{same}; a sampler gives each a start of its own"))
        for name, (statistic, data) in at_door("statistics", self.observed).items():
            rows.append((name, statistic.summary(statistic.result(data, self.t))))
        rate = of["path_steps_per_second"]
        speed = f"{rate:.3g} path-steps/s on {of['device']}, {of['code']}"
        rows.append(("time", f"{_times(of)}, {speed}"))
        refused = of.get("refused_engines", {})
        rows += [("faster engine", f"not {name}: {why}") for name, why in refused.items()][:1]
        return title, rows


def _times(of: Mapping[str, Any]) -> str:
    """How long the last call took, how much of it to compile, and how long all calls took."""
    earlier, compiling = of.get("earlier_seconds", 0), of.get("compile_seconds", 0)
    # Files of older versions do not say in which call it was.
    compiling -= of.get("earlier_compile_seconds", compiling if earlier else 0)
    apart = f" ({compiling:.3g} s of it to compile)" if compiling > 0 else ""
    if not earlier:
        return f"{of['seconds']:.3g} s{apart}"
    return f"{of['seconds'] - earlier:.3g} s{apart}, {of['seconds']:.3g} s with earlier calls"


def load(path: Any) -> Run:
    """Read a run that `Run.save` wrote.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, or is not a run of this version of the format.
        MemoryError: if it does not fit into the memory.
    """
    header, arrays = archive.read(path, KIND, SCHEMA)
    with archive.reading(path, KIND):
        return Run.from_record(header, arrays)
