"""Commands of the program `dalembert`."""

import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import dalembert as da
from dalembert.launch import join, launch

__all__ = ["app"]

app = typer.Typer(
    help="Structure-preserving simulation of noisy, damped mechanical systems.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
console = Console(highlight=False)


def _fail(message: str) -> typer.Exit:
    Console(stderr=True, highlight=False).print(f"error: {message}", markup=False, soft_wrap=True)
    return typer.Exit(2)


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
    """Show the methods and the ready-made systems."""
    methods = Table("method", "kind", "stages", "keeps", "order: one noise", "any noise", box=None)
    for name, make in da.METHODS.items():
        certificate = da.certify(make())
        methods.add_row(
            name,
            certificate.convergence,
            _stages(make()),
            "structure" if certificate.lagrange_dalembert else "-",
            _order(certificate.order["one"]),
            _order(certificate.order["general"]),
        )
    console.print(methods)
    console.print("\n a + b stages: a for the drift and b for each noise")
    systems = Table("system", "dim", "noises", "what it is", box=None)
    for name, make in da.SYSTEMS.items():
        system = make()
        systems.add_row(name, str(system.dim), str(system.noises), _first_line(make))
    console.print()
    console.print(systems)


def _stages(method: Any) -> str:
    """The stages of a method; those of a weak one by what they are for, if they enter at all."""
    if not isinstance(method, da.WeakTableau):
        return str(method.stages)
    of_noise = np.any([method.beta, *method.b0, *method.b1, *method.b3], axis=0)
    return f"{method.stages} + {np.count_nonzero(of_noise)}"


def _order(order: float | None) -> str:
    return "-" if order is None else f"{order:g}"


@app.command()
def certify(
    method: Annotated[str | None, typer.Argument(help="A method's name; all if left out.")] = None,
) -> None:
    """Show which structure a method keeps. Every condition is listed with its residual."""
    for name in [method] if method else da.METHODS:
        console.print(str(da.certify(_method(name))), markup=False, soft_wrap=True)
        console.print()


@app.command()
def explain(
    system: Annotated[str, typer.Argument(help="A ready-made system, or FILE.py.")],
    method: Annotated[str, typer.Argument(help="A method's name.")] = "midpoint",
) -> None:
    """Show how a step is computed, and what makes it cheap."""
    try:
        console.print(da.explain(_system(system), _method(method)), markup=False, soft_wrap=True)
    except ValueError as error:
        raise _fail(str(error)) from error


@app.command()
def diagnose(
    system: Annotated[str, typer.Argument(help="FILE.py that defines `system`, or a name.")],
) -> None:
    """Show the structure of a system and recommend methods."""
    try:
        console.print(str(da.diagnose(_system(system))), markup=False, soft_wrap=True)
    except ValueError as error:
        raise _fail(f"{error} In Python: da.diagnose(system, points=(q, p)).") from error


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="FILE.py, which calls da.simulate.")],
    processes: Annotated[
        int | None, typer.Option(help="Processes on this machine; default: one.", min=1)
    ] = None,
) -> None:
    """Execute FILE.py in processes that share its simulations.

    Under SLURM or MPI every task joins by itself. Only the first process prints.
    """
    if not file.is_file():
        raise _fail(f"no such file: {file}")
    if processes is not None and processes > 1:
        raise typer.Exit(launch(["run", str(file)], processes))
    process = join()
    if process > 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    try:
        _execute(file, "__main__")
    except da.Interrupted as stop:
        if process == 0:
            Console(stderr=True, highlight=False).print(str(stop), markup=False, soft_wrap=True)
        raise typer.Exit(130) from None


def _method(name: str) -> Any:
    if name not in da.METHODS:
        raise _fail(f"no method {name!r}; there are {', '.join(da.METHODS)}")
    return da.METHODS[name]()


def _system(name: str) -> da.System:
    """A ready-made system by name, or the one that a Python file calls `system`."""
    if name in da.SYSTEMS:
        return da.SYSTEMS[name]()
    path = Path(name)
    if path.suffix != ".py":
        raise _fail(f"no system {name!r}; there are {', '.join(da.SYSTEMS)}, or give a .py file")
    if not path.is_file():
        raise _fail(f"no such file: {path}")
    system = _execute(path).get("system")
    if not isinstance(system, da.System):
        raise _fail(f"{path} must define `system`, a da.System")
    return system


def _execute(path: Path, run_name: str = "__dalembert__") -> dict[str, Any]:
    """The names that a Python file defines. As in `python FILE.py` it can import its neighbours."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=run_name)
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        place = f"{path}, line {lines[-1]}" if lines else str(path)
        raise _fail(f"{place}: {type(error).__name__}: {error}") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
