"""A study: methods at step sizes on one system, run as one and kept in one file."""

import hashlib
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dalembert.ensemble import archive
from dalembert.ensemble.checkpoint import remove_checkpoint
from dalembert.ensemble.job import Interrupted, Job
from dalembert.ensemble.pool import cores
from dalembert.ensemble.run import Run
from dalembert.ensemble.settings import make_settings
from dalembert.ensemble.sigterm import Terminated, ending_on_sigterm
from dalembert.ensemble.simulate import prepare
from dalembert.methods import Method, method_of
from dalembert.noise import Noise
from dalembert.precision import as_told_here
from dalembert.statistics import Histogram
from dalembert.studies.claims import Claim
from dalembert.studies.figures import Figure
from dalembert.system import System

KIND, SCHEMA = "dalembert study", 2
LARGE_STATE = 2**14
"""Numbers in the state of one path that are worth a GPU."""


@dataclass(frozen=True)
class Case:
    """One curve: a method at a step size.

    Attributes:
        method: a name in `da.METHODS`, or a method.
        dt: step size.
        name: what to call the method; by default its own name.
    """

    method: Method | str
    dt: float
    name: str = ""

    @property
    def tableau(self) -> Method:
        return method_of(self.method)

    @property
    def family(self) -> str:
        return self.name or (self.method if isinstance(self.method, str) else self.method.name)

    @property
    def label(self) -> str:
        return f"{self.family}, Δt = {self.dt:g}"


@dataclass(frozen=True)
class Part:
    """Cases that share everything but method and step size.

    Attributes:
        name: short name, unique in the study.
        cases: the curves.
        initial: initial states, as `da.simulate` takes them.
        t_end: final time.
        paths: number of paths.
        save_times: distance of the save times; every step size must divide it.
        observe: observables by name; by default the energy.
        histograms: histograms by name.
        keep: which states to keep, as `da.simulate` takes it.
        noise: the noise of a case, if it is not that of its method.
        system: what is simulated, if it is not the system of the study.
    """

    name: str
    cases: tuple[Case, ...]
    initial: Any
    t_end: float
    paths: int
    save_times: float
    observe: Mapping[str, Callable[..., Any]] | None = None
    histograms: Mapping[str, Histogram] | None = None
    keep: str = "nothing"
    noise: Callable[["Part", Case], Noise] | None = None
    system: System | None = None


@dataclass(frozen=True)
class Study:
    """What to run, what to draw, and what to claim.

    Attributes:
        name: short name, also of its files.
        title: one line.
        text: a paragraph on the problem and the parameters.
        system: what is simulated.
        parts: the cases.
        figures: from the result to its figures; by default all observables and histograms.
        claims: from the result to its claims.
        seed: of all runs.
        notes: errata and choices that affect the study.
    """

    name: str
    title: str
    text: str
    system: System
    parts: tuple[Part, ...]
    figures: Callable[["Result"], Sequence[Figure]] | None = None
    claims: Callable[["Result"], Sequence[Claim]] = lambda result: ()
    seed: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", self.name) or self.name == "claims":
            raise ValueError(
                f"a study needs a name of letters, digits, - and _ other than 'claims', "
                f"not {self.name!r}."
            )
        labels = [(part.name, case.label) for part in self.parts for case in part.cases]
        if len(set(labels)) < len(labels):
            raise ValueError(f"{self.name} has two cases with the same label: {labels}.")

    def run(
        self,
        folder: Any = None,
        on_done: Callable[[Part, Case, Run], None] | None = None,
        progress: bool = False,
    ) -> "Result":
        """Run all cases, one after another on all cores or devices.

        Single paths, which use one core each, run beside the others.

        Args:
            folder: where the runs keep their checkpoints, from which they go on.
            on_done: called with every case that is finished.
            progress: show the progress of single runs.
        """
        cases = [(part, case) for part in self.parts for case in part.cases]
        runs: dict[tuple[str, str], Run] = {}
        jobs: list[Job] = []
        is_over = threading.Event()

        def run(part: Part, case: Case, shown: bool) -> Run:
            job = self._prepare(part, case, folder, shown)
            jobs.append(job)
            if is_over.is_set():
                job.stop()
            return job.run()

        def note(part: Part, case: Case, run: Run) -> None:
            runs[part.name, case.label] = run
            if on_done is not None:
                on_done(part, case, run)

        # Several processes must take up their common work in the same order.
        is_alone = jax.process_count() == 1
        beside = [part.paths == 1 and is_alone for part, _ in cases]
        # Failed paths are part of what a study shows; its result keeps their number.
        # A signal that comes while only single paths run has to reach them too.
        with ending_on_sigterm(), warnings.catch_warnings(), ThreadPoolExecutor(cores()) as pool:
            warnings.filterwarnings("ignore", message=".* paths failed")
            single = [which for which, aside in zip(cases, beside, strict=True) if aside]
            # Threads do not inherit what this one was told, such as whose workers to use.
            told = as_told_here(run)
            running = {
                pool.submit(copy_context().run, told, *which, False): which for which in single
            }
            try:
                for which, aside in zip(cases, beside, strict=True):
                    if not aside:
                        note(*which, run(*which, progress))
                for future in as_completed(running):
                    note(*running[future], future.result())
            except Interrupted:
                raise
            except (KeyboardInterrupt, Terminated) as stop:
                ending = Terminated if isinstance(stop, Terminated) else Interrupted
                raise ending(_farewell(folder)) from None
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                is_over.set()
                for job in jobs:
                    job.stop()
        return Result(self.name, {(p.name, c.label): runs[p.name, c.label] for p, c in cases})

    def remove_checkpoints(self, folder: Any) -> None:
        """Delete the checkpoints of all cases, and the folder if nothing else is in it."""
        for part in self.parts:
            for case in part.cases:
                remove_checkpoint(Path(folder) / _file_name(part, case))
        if not any(Path(folder).iterdir()):
            Path(folder).rmdir()

    def _prepare(self, part: Part, case: Case, folder: Any, progress: bool) -> Job:
        every = round(part.save_times / case.dt)
        if every < 1 or abs(every * case.dt - part.save_times) > 1e-9 * part.save_times:
            raise ValueError(
                f"the step size {case.dt:g} of {case.family} does not divide the distance "
                f"{part.save_times:g} of the save times."
            )
        file = None if folder is None else Path(folder) / _file_name(part, case)
        system = part.system or self.system
        # One path is a loop of small operations, which a GPU takes longer to start than to do;
        # unless its states are large, as those of plasmas.
        is_small = part.paths == 1 and system.dim < LARGE_STATE
        cpu = jax.local_devices(backend="cpu")[0]
        with jax.default_device(cpu) if is_small else nullcontext():
            settings = make_settings(
                system,
                case.tableau,
                part.initial,
                dt=case.dt,
                t_end=part.t_end,
                paths=part.paths,
                only=None,
                seed=self.seed,
                observe=part.observe,
                histograms=part.histograms,
                save_every=every,
                noise=None if part.noise is None else part.noise(part, case),
                keep=part.keep,
                dtype=np.float64,
            )
            return prepare(settings, file, progress=progress)


def _farewell(folder: Any) -> str:
    if folder is None:
        return "the study was stopped; nothing was saved."
    return f"the study was stopped; saved in {folder}. The same call goes on from there."


def _file_name(part: Part, case: Case) -> str:
    """The checkpoint of a case: readable, and another one for every other case.

    The letters alone would not do: "a+" and "a-" lose theirs, some file systems take A for a, and
    names have a greatest length.
    """
    names = (part.name, case.label)
    readable = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", name) for name in names)[:80]
    return f"{readable}-{hashlib.sha256(repr(names).encode()).hexdigest()[:12]}.ckpt"


@dataclass(frozen=True)
class Result:
    """The runs of a study by (part, label).

    Attributes:
        study: name of the study.
        runs: the runs.
    """

    study: str
    runs: Mapping[tuple[str, str], Run]

    @property
    def seconds(self) -> float:
        """How long the runs took together, also those that were interrupted."""
        return sum(run.provenance["seconds"] for run in self.runs.values())

    def cases(self, *parts: str) -> list[Case]:
        """The cases of some parts, by default of all, as their labels name them."""
        labels = [label for part, label in self.runs if not parts or part in parts]
        split = [label.rsplit(", Δt = ", 1) for label in labels]
        return [Case(family, float(dt), family) for family, dt in split]

    def part(self, name: str) -> dict[str, Run]:
        """The runs of one part by label."""
        return {label: run for (part, label), run in self.runs.items() if part == name}

    def save(self, path: Any) -> None:
        """Write all curves to one `.npz` file."""
        records, arrays = [], {}
        for i, ((part, label), run) in enumerate(self.runs.items()):
            header, found = run.to_record()
            records.append({"part": part, "label": label, "run": header})
            arrays |= {f"{i}/{name}": x for name, x in found.items()}
        header = {"format": KIND, "schema": SCHEMA, "study": self.study}
        archive.write(path, header | {"runs": records}, arrays)


def load_result(path: Any) -> Result:
    """Read what `Result.save` wrote; ValueError if the file is damaged."""
    header, arrays = archive.read(path, KIND, SCHEMA)
    with archive.reading(path, KIND):
        runs = {}
        for i, record in enumerate(header["runs"]):
            own = archive.under(f"{i}/", arrays)
            runs[record["part"], record["label"]] = Run.from_record(record["run"], own)
        return Result(header["study"], runs)
