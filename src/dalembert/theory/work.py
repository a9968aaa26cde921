"""Work and precision: how large the errors of some methods are for the time that they take."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dalembert.ensemble.progress import tell, telling
from dalembert.ensemble.simulate import simulate
from dalembert.methods import Method, method_of
from dalembert.pictures import make_axes, tidy_log_axes
from dalembert.precision import refuse_traced
from dalembert.spelling import says_its_words
from dalembert.stepping.step import check_method
from dalembert.system import System
from dalembert.theory.orders import strong_order, weak_order
from dalembert.theory.slopes import OrderEstimate
from dalembert.theory.text import table

TIMED = 2**22
"""Degrees of freedom times path-steps of a run that is timed: a fraction of a second."""

TIMED_PATHS = 4096

REPEATS = 3
"""Runs of which the fastest counts: what else the machine does only takes time."""


class Point(NamedTuple):
    """One method at one step size.

    Attributes:
        method: its name.
        dt: step size.
        error: the error at `t_end`.
        stderr: its standard error; zero where nothing was sampled.
        seconds: wall time of one path to `t_end` among thousands, all cores working.
        is_seen: whether the error is clearly above what it can be told from.
    """

    method: str
    dt: float
    error: float
    stderr: float
    seconds: float
    is_seen: bool


@dataclass(frozen=True, eq=False)
class WorkPrecision:
    """Errors and times of several methods; `str()` is a table, `plot()` a picture.

    Attributes:
        points: one for each method and step size.
        orders: what the errors come from, by the name of the method.
        kind: "weak" or "strong".
    """

    points: tuple[Point, ...]
    orders: dict[str, OrderEstimate]
    kind: str

    def __str__(self) -> str:
        rows = [("method", "dt", "error", "± s.e.", "µs a path", "seen")]
        for p in self.points:
            seen = "yes" if p.is_seen else "no"
            stderr = f"{p.stderr:.1e}" if p.stderr else "-"
            cells = (f"{p.dt:.5g}", f"{p.error:.3g}", stderr, f"{1e6 * p.seconds:.3g}")
            rows.append((p.method, *cells, seen))
        unseen = {p.method for p in self.points if not p.is_seen}
        known = {name: self.orders[name].remedy for name in self.orders if name in unseen}
        notes = [f"- {name}: {remedy}" for name, remedy in known.items() if remedy]
        title = f"{self.kind.capitalize()} errors at the end, and the time of one path"
        if not all(p.stderr for p in self.points):
            notes.append("- a dash: all outcomes of the noise were added up, nothing was sampled")
        if unseen:
            notes.append("- seen: clearly above sampling errors and those of the reference")
        return "\n".join([title, "", *table(rows, right=True), "", *notes]).rstrip()

    def plot(self, ax: Any = None) -> Any:
        """Draw errors over time, both logarithmic; hollow where an error is not clearly seen.

        Returns the axes; needs matplotlib.
        """
        axes = make_axes(ax)
        for name in self.orders:
            own = [p for p in self.points if p.method == name and p.error > 0]
            seen = [p for p in own if p.is_seen]
            (line,) = axes.loglog([p.seconds for p in own], [p.error for p in own], "o:", mfc="w")
            at = [p.seconds for p in seen], [p.error for p in seen]
            axes.loglog(*at, "o-", color=line.get_color(), label=name)
        if not all(p.is_seen for p in self.points):
            axes.loglog([], [], "o:", color="grey", mfc="w", label="not clearly seen")
        axes.set(xlabel="seconds a path", ylabel=f"{self.kind} error")
        axes.legend()
        tidy_log_axes(axes)
        return axes


@says_its_words
def work_precision(
    system: System,
    methods: Sequence[Method | str] | Method | str,
    initial: tuple[Any, Any],
    *,
    t_end: float,
    kind: str = "weak",
    observe: Callable[..., Any] | None = None,
    dts: Sequence[float] | None = None,
    steps: Sequence[int] | None = None,
    paths: int | None = None,
    seed: int = 0,
    exact: Any = None,
    reference: Method | None = None,
    progress: bool = True,
) -> WorkPrecision:
    """Compare methods by their errors at `t_end` and the time that a path takes on this machine.

    Errors are those of `da.weak_order` or `da.strong_order`; every step size is then timed by a run
    of thousands of paths, the fastest of three, without compilation. Other programs on the machine
    disturb these times.

    Args:
        system, initial, t_end, dts, steps, seed, exact, reference, progress: as in
            `da.weak_order`.
        methods: methods, or their names in `da.METHODS`; or one of them.
        kind: "weak": of the expectation of `observe`; "strong": of single paths.
        observe: φ(q, p) or φ(q, p, params) -> scalar, by default the energy; of weak errors only.
        paths: as in `da.weak_order` and `da.strong_order`.

    Returns:
        A `WorkPrecision`.
    """
    if kind not in ("weak", "strong"):
        raise ValueError(f'kind must be "weak" or "strong", not {kind!r}.')
    if kind == "strong" and observe is not None:
        raise ValueError('strong errors are those of (q, p): leave out observe, or kind="strong".')
    chosen = _chosen(system, methods)
    refuse_traced("da.work_precision", params=system.params, initial=initial, t_end=t_end)
    options: dict[str, Any] = {"dts": dts, "steps": steps, "seed": seed, "exact": exact}
    options |= {"reference": reference} | ({} if paths is None else {"paths": paths})
    if kind == "weak":
        options["observe"] = observe
    measure = weak_order if kind == "weak" else strong_order
    with telling("work and precision", progress, "beginning"), warnings.catch_warnings():
        # Errors count here, and need not be a power of dt; the table repeats the remedies.
        warnings.filterwarnings("ignore", message="no order")
        orders: dict[str, OrderEstimate] = {
            method.name: measure(system, method, initial, t_end=t_end, progress=progress, **options)
            for method in chosen
        }
        points = [
            point
            for method in chosen
            for point in _points(system, method, initial, t_end, orders[method.name])
        ]
    return WorkPrecision(tuple(points), orders, kind)


def _chosen(system: System, methods: Any) -> list[Method]:
    """Different methods, of methods and names, or of one."""
    is_one = isinstance(methods, str) or not isinstance(methods, Iterable)
    given: list[Any] = [methods] if is_one else list(methods)
    chosen = [method_of(method) for method in given]
    for method in chosen:
        check_method(system, method)
    names = [method.name for method in chosen]
    if not chosen or len(set(names)) < len(names):
        raise ValueError(f"methods must be some different methods, not {names}: give each once.")
    return chosen


def _points(
    system: System, method: Method, initial: tuple[Any, Any], t_end: float, found: OrderEstimate
) -> Iterator[Point]:
    """Errors and times of a method at all its step sizes."""
    columns = (found.dts, found.errors, found.stderrs, found.floor)
    tell(f"compiling {method.name} to time it")
    _seconds_per_step(system, method, initial, float(found.dts[-1]))
    for dt, error, stderr, floor in zip(*columns, strict=True):
        tell(f"timing {method.name} at dt = {dt:.3g}")
        each = min(_seconds_per_step(system, method, initial, float(dt)) for _ in range(REPEATS))
        seen = bool(np.isfinite(error) and error > floor)
        numbers = (float(dt), float(error), float(stderr), each * round(t_end / dt))
        yield Point(method.name, *numbers, seen)


def _seconds_per_step(system: System, method: Method, initial: tuple[Any, Any], dt: float) -> float:
    """Wall time of one step of one path, in a run that keeps all cores busy."""
    paths = max(min(TIMED_PATHS, TIMED // (16 * system.dim)), 1)
    steps = max(TIMED // (paths * system.dim), 16)
    options = {"dt": dt, "t_end": dt * steps, "save_every": steps, "paths": paths}
    with warnings.catch_warnings():
        # A step that is too large for a long run is still timed.
        warnings.simplefilter("ignore", RuntimeWarning)
        run = simulate(system, method, initial, progress=False, **options)
    return 1 / run.provenance["path_steps_per_second"]
