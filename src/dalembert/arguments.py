"""What the words after a command stand for: methods, systems, files and numbers."""

import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

import dalembert as da
from dalembert.ensemble.processes import LostError


def fail(message: str) -> typer.Exit:
    Console(stderr=True, highlight=False).print(f"error: {message}", markup=False, soft_wrap=True)
    return typer.Exit(2)


def name_in(known: Iterable[str], name: str) -> str:
    """The known name that this one is, whether it has -, _ or neither; else the name itself."""
    plain = {each.replace("_", "").replace("-", ""): each for each in known}
    return plain.get(name.lower().replace("_", "").replace("-", ""), name)


def numbers_of(make: Callable[..., Any], given: Sequence[str]) -> dict[str, float]:
    """Parameters of a study from texts such as nu=0.05."""
    known = [name for name in inspect.signature(make).parameters if name != "size"]
    found = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            found[name] = float(value)
        except ValueError as error:
            raise ValueError(f"--param needs NAME=NUMBER, e.g. nu=0.05, not {text!r}.") from error
        if name not in known:
            raise ValueError(f"there is no parameter {name!r}; there are {', '.join(known)}.")
    return found


def method_named(name: str) -> da.Method:
    name = name_in(da.METHODS, name)
    if name not in da.METHODS:
        system = name_in(da.SYSTEMS, name)
        if system in da.SYSTEMS or Path(name).suffix == ".py":
            raise fail(
                f"{name} is a system, and a method is needed; `dalembert diagnose {name}` is about "
                f"systems, and `dalembert explain {name} METHOD` about both"
            )
        raise fail(_without_dot(da.METHODS.instead_of(name)))
    return da.METHODS[name]()


def system_of(name: str) -> da.System:
    """A ready-made system by name, or the one that a Python file calls `system`."""
    path, name = Path(name), name_in(da.SYSTEMS, name)
    if name in da.SYSTEMS:
        return da.SYSTEMS[name]()
    if path.suffix != ".py":
        if name_in(da.METHODS, name) in da.METHODS:
            raise fail(
                f"{name} is a method, and a system is needed: the system stands first, as in "
                f"`dalembert explain van_der_pol {name_in(da.METHODS, name)}`; "
                f"`dalembert certify {name_in(da.METHODS, name)}` is about methods"
            )
        raise fail(f"{_without_dot(da.SYSTEMS.instead_of(name))}, or give a .py file")
    if not path.is_file():
        raise fail(f"no such file: {path}")
    system = execute(path).get("system")
    if not isinstance(system, da.System):
        raise fail(f"{path} must define `system`, a da.System")
    return system


def _without_dot(sentence: str) -> str:
    return sentence.removesuffix(".")


def execute(path: Path, run_name: str = "__dalembert__") -> dict[str, Any]:
    """The names that a Python file defines. As in `python FILE.py` it can import its neighbours.

    That others of its run are lost is no fault of the file.
    """
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=run_name)
    except LostError:
        raise
    except (Exception, SystemExit) as error:
        if run_name == "__main__" and isinstance(error, SystemExit):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        place = f"{path}, line {lines[-1]}" if lines else str(path)
        raise fail(f"{place}: {type(error).__name__}: {error}") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
