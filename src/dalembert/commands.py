"""Commands of the program `dalembert`."""

import importlib.util
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich.console import Console
from rich.table import Table

import dalembert as da

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
            str(make().stages),
            "variational structure" if certificate.lagrange_dalembert else "-",
            _order(certificate.order["one"]),
            _order(certificate.order["general"]),
        )
    console.print(methods)
    systems = Table("system", "dim", "noises", "what it is", box=None)
    for name, make in da.SYSTEMS.items():
        system = make()
        systems.add_row(name, str(system.dim), str(system.noises), _first_line(make))
    console.print()
    console.print(systems)


def _order(order: float | None) -> str:
    return "-" if order is None else f"{order:g}"


@app.command()
def certify(
    method: Annotated[str | None, typer.Argument(help="A method's name; all if left out.")] = None,
) -> None:
    """Show which structure a method provably keeps, condition by condition."""
    for name in [method] if method else da.METHODS:
        console.print(str(da.certify(_method(name))), markup=False, soft_wrap=True)
        console.print()


@app.command()
def explain(
    system: Annotated[str, typer.Argument(help="A ready-made system, or FILE.py.")],
    method: Annotated[str, typer.Argument(help="A method's name.")] = "midpoint",
) -> None:
    """Show how a step of a method on a system is computed, and what makes it cheap."""
    try:
        console.print(da.explain(_system(system), _method(method)), markup=False, soft_wrap=True)
    except ValueError as error:
        raise _fail(str(error)) from error


@app.command()
def diagnose(
    system: Annotated[str, typer.Argument(help="FILE.py that defines `system`, or a name.")],
) -> None:
    """Show the structure of a system, the orders to expect on it, and a recommendation."""
    console.print(str(da.diagnose(_system(system))), markup=False, soft_wrap=True)


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
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise _fail(f"{path} cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _fail(f"{path} failed: {type(error).__name__}: {error}") from error
    system = getattr(module, "system", None)
    if not isinstance(system, da.System):
        raise _fail(f"{path} must define `system`, a da.System")
    return system
