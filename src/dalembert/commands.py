"""Commands of the program `dalembert`."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich.console import Console
from rich.table import Table

import dalembert as da
from dalembert.arguments import execute, fail, method_named, name_in, numbers_of, system_of
from dalembert.ensemble.pool import cores
from dalembert.ensemble.processes import LostError
from dalembert.ensemble.sigterm import ending_on_sigterm
from dalembert.launch import join, launch
from dalembert.methods.coefficients import counted
from dalembert.scheduler import on_dask
from dalembert.spelling import ByName

app = typer.Typer(
    help="Structure-preserving simulation of noisy, damped mechanical systems.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
console = Console(highlight=False)

LEGEND = (
    "",
    "kind: mean-square methods follow single paths, weak ones expectations only",
    "stages: a + b are a for the drift and b for each noise",
    "structure: steps come from a discrete Lagrange–d'Alembert principle: they keep",
    "  momenta of symmetries and are symplectic when the forces vanish",
    "symplectic: only the latter; quasi-symplectic: but for the friction, which",
    "  contracts volumes at its exact rate; a dash: none of these",
    "one, additive, any: order of convergence, in the sense of `kind`, for one",
    "  noise, for constant ones, for all; a dash: it does not take them, or does not",
    "  converge with them. `dalembert certify METHOD` shows why",
)
"""What the columns of the table of methods say."""


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0].rstrip(".")


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"dalembert {da.__version__} (jax {jax.__version__})")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    """Structure-preserving simulation of noisy, damped mechanical systems."""


@app.command("list")
def list_everything() -> None:
    """Show the methods, systems and experiments."""
    orders = ("one", "additive", "any")
    methods = Table("method", "kind", "stages", "keeps", *orders, box=None)
    for name, make in da.METHODS.items():
        certificate = da.certify(make())
        methods.add_row(
            name,
            certificate.convergence,
            make().stages_in_words,
            certificate.keeps,
            *(_order(certificate.order[kind]) for kind in ("one", "additive", "general")),
        )
    console.print(methods)
    for line in LEGEND:
        console.print(f" {line}")
    systems = Table("system", "dim", "noises", "what it is", box=None)
    for name, make in da.SYSTEMS.items():
        system = make()
        systems.add_row(name, str(system.dim), str(system.noises), _first_line(make))
    console.print()
    console.print(systems)
    experiments = Table("experiment", "what it is", box=None)
    for name, make in studies().STUDIES.items():
        experiments.add_row(name, make().title.partition(":")[0])
    for name, make in studies().OTHER_STUDIES.items():
        experiments.add_row(name, _first_line(make))
    console.print()
    console.print(experiments)


def _order(order: float | None) -> str:
    return "-" if order is None else f"{order:g}"


@app.command()
def certify(
    method: Annotated[str | None, typer.Argument(help="A method's name; all if left out.")] = None,
) -> None:
    """Show which structure a method keeps. Every condition is listed with its residual."""
    for name in [method] if method else da.METHODS:
        console.print(str(da.certify(method_named(name))), markup=False, soft_wrap=True)
        console.print()


@app.command()
def explain(
    system: Annotated[str, typer.Argument(help="A ready-made system, or FILE.py.")],
    method: Annotated[str, typer.Argument(help="A method's name.")] = "midpoint",
) -> None:
    """Show how a step is computed, and what makes it cheap."""
    try:
        console.print(
            da.explain(system_of(system), method_named(method)), markup=False, soft_wrap=True
        )
    except ValueError as error:
        raise fail(str(error)) from error


@app.command()
def diagnose(
    system: Annotated[str, typer.Argument(help="FILE.py that defines `system`, or a name.")],
) -> None:
    """Show the structure of a system and recommend methods."""
    try:
        console.print(str(da.diagnose(system_of(system))), markup=False, soft_wrap=True)
    except ValueError as error:
        raise fail(f"{error} In Python: da.diagnose(system, points=(q, p)).") from error


Processes = Annotated[
    int | None, typer.Option(help="Processes on this machine; default: one.", min=1)
]
Dask = Annotated[
    str | None, typer.Option(help="Address of a scheduler of Dask, whose workers run the paths.")
]
Out = Annotated[Path, typer.Option(help="Folder for the results.")]


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="FILE.py with a `study`, or any script.")],
    out: Out = Path("results"),
    processes: Processes = None,
    dask: Dask = None,
) -> None:
    """Execute FILE.py, and run the `study` that it defines.

    The processes share all simulations. Under SLURM or MPI every task joins by itself. Only the
    first process prints.
    """
    if not file.is_file():
        hint = "; `explain` and `diagnose` take names of systems" if str(file) in da.SYSTEMS else ""
        raise fail(f"no such file: {file}{hint}")
    if _is_for_several(processes, dask):
        raise typer.Exit(launch(["run", str(file), "--out", str(out)], processes or 1))
    status = 0
    with _one_of_several(), on_dask(dask):
        study = execute(file, "__main__").get("study")
        if isinstance(study, studies().Study):
            status = _run_studies([study], out, checkpoints=True)
        else:
            console.print(f"{file} defines no `study`: it was run as a script.", markup=False)
    raise typer.Exit(status)


@app.command()
def reproduce(
    study: Annotated[
        str, typer.Argument(help="kubo, vanderpol, lenard-bernstein, lorentz, all of them; plasma.")
    ],
    size: Annotated[str, typer.Option(help="quick or paper.")] = "quick",
    out: Out = Path("results"),
    method: Annotated[list[str] | None, typer.Option(help="Only this method; repeatable.")] = None,
    paths: Annotated[int | None, typer.Option(help="Number of paths.", min=2)] = None,
    t_end: Annotated[float | None, typer.Option(help="Final time.", min=0.0)] = None,
    dt: Annotated[float | None, typer.Option(help="Step size of all methods.", min=0.0)] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="Another number, e.g. nu=0.05; repeatable.")
    ] = None,
    processes: Processes = None,
    dask: Dask = None,
) -> None:
    """Run studies, those of the paper and others.

    With other numbers (--param) curves, texts and claims follow them; claims that hold only for the
    paper's are left out.

    The exit status is 0 if every claim holds or fails for a reason that its note gives.
    """
    known = ByName("study", studies().STUDIES | studies().OTHER_STUDIES)
    study = name_in(known, study)
    if study != "all" and study not in known:
        raise fail(f"{known.instead_of(study)} `all` runs the four of the paper")
    if param and study == "all":
        raise fail("--param is for one study: every one has its own numbers")
    if size not in ("quick", "paper"):
        raise fail(f"no size {size!r}; there are quick and paper")
    if _is_for_several(processes, dask):
        options = {"--size": size, "--out": out, "--paths": paths, "--t-end": t_end, "--dt": dt}
        given = [str(x) for pair in options.items() if pair[1] is not None for x in pair]
        given += [x for name in method or () for x in ("--method", name)]
        given += [x for text in param or () for x in ("--param", text)]
        raise typer.Exit(launch(["reproduce", study, *given], processes or 1))
    names = list(studies().STUDIES) if study == "all" else [study]
    from dalembert.studies.reproduce import NOT_CHECKED, override

    with _one_of_several(), on_dask(dask):
        try:
            made = [known[name](size, **numbers_of(known[name], param or ())) for name in names]
            chosen = [override(study, method, paths, t_end, dt) for study in made]
        except ValueError as error:
            raise fail(str(error)) from error
        left_out = NOT_CHECKED if method or t_end is not None or dt is not None else ""
        chosen = [study for study in chosen if study.parts]
        status = _run_studies(chosen, out, checkpoints=size == "paper", left_out=left_out)
    raise typer.Exit(status)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder that `reproduce` or `run` wrote.")] = Path(
        "results"
    ),
) -> None:
    """Write report.html, one page about the studies in a folder."""
    from dalembert.studies.report import write_report

    try:
        console.print(f"wrote {write_report(folder)}", markup=False, soft_wrap=True)
    except (OSError, ValueError, ImportError, MemoryError) as error:
        raise fail(str(error)) from error


@app.command()
def bench(
    problem: Annotated[str | None, typer.Argument(help="One problem; all if left out.")] = None,
    seconds: Annotated[float, typer.Option(help="How long each is timed.", min=0.0)] = 1.0,
) -> None:
    """Time steps of some systems on this machine, one after another."""
    from dalembert.speeds import PROBLEMS, measure

    if problem is not None and name_in(PROBLEMS, problem) not in PROBLEMS:
        raise fail(PROBLEMS.instead_of(problem))
    names = PROBLEMS if problem is None else [name_in(PROBLEMS, problem)]
    place = counted(cores(), "core")
    console.print(
        f"dalembert {da.__version__}, jax {jax.__version__}, {place}; with noise, float64"
    )
    for speed in measure((PROBLEMS[name] for name in names), seconds):
        of = speed.problem
        failed = f", {speed.failed:,} paths failed" if speed.failed else ""
        console.print(
            f"  {of.name:16} {of.method.name:10} {speed.paths:7,} paths of dim "
            f"{speed.system.dim:<5,} {speed.rate:8.2e} path-steps/s, {speed.engine}, "
            f"compiled in {speed.compile_seconds:.1f} s{failed}",
            markup=False,
            soft_wrap=True,
        )


def studies() -> Any:
    """The studies, imported when they are needed."""
    from dalembert import studies

    return studies


def _run_studies(chosen: list[Any], out: Path, checkpoints: bool, left_out: str = "") -> int:
    """Run studies one after another and say what comes out; the exit status of the claims.

    Args:
        chosen, out, checkpoints: as in `reproduce`.
        left_out: which claims were not made, as a sentence.
    """
    from dalembert.studies.claims import unexplained
    from dalembert.studies.reproduce import reproduce

    claims = []
    try:
        for study in chosen:
            console.print(study.title, markup=False, style="bold", soft_wrap=True)
            times = dict.fromkeys(f"t = {part.t_end:g}" for part in study.parts)
            console.print(f"  to {', '.join(times)}", markup=False)
            claims += reproduce(study, out, _say, checkpoints, progress=True)
    except (OSError, ValueError, ImportError, MemoryError) as error:
        raise fail(str(error)) from error
    failed = [claim for claim in claims if not claim.holds]
    for claim in failed:
        console.print(f"does not hold: {claim.statement}", markup=False)
        console.print(
            f"  measured {claim.measured:g}, expected {claim.expected:g}. {claim.note}",
            markup=False,
        )
    if claims:
        console.print(f"{len(claims) - len(failed)} of {len(claims)} claims hold. {left_out}")
    else:
        console.print(left_out or "No claims were made.")
    page = f"Results: {out}. `dalembert report {out}` makes a page of them."
    console.print(page, markup=False, soft_wrap=True)
    return 1 if unexplained(claims) else 0


def _say(part: Any, case: Any, run: da.Run) -> None:
    of = run.provenance
    failed = f", {run.failed:,} paths failed" if run.failed else ""
    console.print(
        f"  {part.name:12} {case.label:28} {of['seconds']:7.1f} s "
        f"{of['path_steps_per_second']:9.2e} path-steps/s{failed}",
        markup=False,
    )


@contextmanager
def _one_of_several() -> Iterator[None]:
    """Join the other processes, if there are any; only the first one prints."""
    process = join()
    if process > 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    errors = Console(stderr=True, highlight=False)
    try:
        with ending_on_sigterm(is_quiet=process > 0):
            yield
    except da.Interrupted as stop:
        if process == 0:
            errors.print(str(stop), markup=False, soft_wrap=True)
        _leave(130)
    except LostError as error:
        errors.print(f"error: {error}", markup=False, soft_wrap=True)
        _leave(1)
    except (Exception, SystemExit) as error:
        if jax.distributed.is_initialized():
            _leave(_status_after(error))
        raise


def _is_for_several(processes: int | None, dask: str | None) -> bool:
    """Whether several processes are to be started here."""
    if processes is not None and dask is not None:
        raise fail("--processes are on this machine, and --dask has workers: give one of them")
    return processes is not None and processes > 1


def _status_after(error: BaseException) -> int:
    """The exit status after an error, once it is printed as Python would."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _leave(status: int) -> None:
    """End with this status. One of several that has failed does not wait for the others."""
    if jax.distributed.is_initialized() and status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    raise typer.Exit(status) from None
