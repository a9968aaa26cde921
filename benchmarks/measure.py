"""What every benchmark here needs: the machine in words, best-of timing, tables and JSON."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PACKAGES = (
    "dalembert",
    "jax",
    "jaxlib",
    "numpy",
    "cupy",
    "diffrax",
    "distributed",
    "torch",
    "torchsde",
    "jitcsde",
    "jax-md",
    "openmm",
)

Clock = Callable[[], float]


def machine() -> dict[str, Any]:
    """Return processor, cores this process may use, GPU (None without one), versions and date."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": _gpu_name(),
        "versions": _versions(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def best_of(fun: Callable[[], object], repeat: int, clock: Clock = time.perf_counter) -> float:
    """Return the least time in seconds of `repeat` calls of `fun`; warm up before."""
    return min(seconds(fun, clock) for _ in range(repeat))


def seconds(fun: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Return the time in seconds of one call of `fun`.

    The clock is the wall's; `time.process_time` counts the seconds of all threads on all cores,
    which others who use the machine change less.
    """
    start = clock()
    fun()
    return clock() - start


def best_of_each(
    funs: Sequence[Callable[[], object]], repeat: int, clock: Clock = time.perf_counter
) -> list[float]:
    """Return the least time of each function, calls alternating between the functions.

    Alternation exposes all contenders to the same drift of clock frequency and machine load.
    """
    rounds = [[seconds(fun, clock) for fun in funs] for _ in range(repeat)]
    return [min(times) for times in zip(*rounds, strict=True)]


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print records as aligned columns; the columns are the keys in order of appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns] + [[_cell(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        first = line[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        print("  ".join([first, *rest]), flush=True)


def write_json(path: str | Path, rows: Sequence[dict[str, Any]], **extra: Any) -> None:
    """Write `rows` with the machine and `extra` entries as one JSON object."""
    record = {"machine": machine(), **extra, "rows": list(rows)}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(record, indent=1, default=_plain) + "\n", encoding="utf-8")


def comparison_options(doc: str | None, only: str, **numbers: str) -> argparse.Namespace:
    """The arguments of a comparison in float64, with JAX set up for its device.

    Args:
        doc: the docstring of the program.
        only: what its option --only takes a part of.
        numbers: further options that take a whole number, None if not given, and what they are.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--only", default="", help=f"part of {only}")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    for name, what in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=None, help=what)
    options = parser.parse_args()
    # Not before: other programs here set up JAX by variables of the environment.
    import jax

    if options.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    return options


def report_comparison(
    rows: Sequence[dict[str, Any]], options: argparse.Namespace, compared: str, most: float
) -> None:
    """Print and write rates; an error if what was compared is too many standard errors apart.

    Rows of cases that failed have an "error" instead, which is one of the whole, too.
    """
    print({key: value for key, value in machine().items() if key != "versions"})
    print_table(rows)
    write_comparison(rows, options)
    if failed := [row for row in rows if "error" in row]:
        raise SystemExit(f"cases that failed: {failed}")
    wrong = [r for r in rows if not abs(r["gap in standard errors"]) <= most]
    if wrong:
        raise SystemExit(f"{compared} disagree, so the rates compare nothing: {wrong}")


def write_comparison(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Write rates, if there is a file to write to."""
    if options.out:
        write_json(options.out, rows, device=options.device, dtype="float64", cores=os.cpu_count())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _plain(value: Any) -> Any:
    """Turn NumPy and JAX scalars and arrays into what JSON knows."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found.group(1).strip() if found else platform.processor()


def _gpu_name() -> str | None:
    out = _first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return out or None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        found = _distribution_version(name)
        if found is not None:
            versions[name] = found
    gcc = _first_line("gcc", "--version")
    if gcc is not None:
        versions["gcc"] = gcc
    return versions


def _distribution_version(name: str) -> str | None:
    names = (name, "cupy-cuda12x", "cupy-cuda13x") if name == "cupy" else (name,)
    for candidate in names:
        try:
            return importlib.metadata.version(candidate)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _first_line(*command: str) -> str | None:
    """Return the first line a command prints, or None where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip() if done.stdout else None
