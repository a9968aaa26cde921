"""Which numbers do the README and the pages show? Writes them where they belong.

python benchmarks/tables.py            # after a benchmark has written its JSON
python benchmarks/tables.py --check    # only says which pages are behind

A place is what stands between `<!-- measured: NAME -->` and `<!-- end -->`: a number in a sentence,
or paragraphs and tables of their own. All come from `benchmarks/results`, `docs/data`,
`results/h200` and the settings of the package, so that no page says another number than the next.
"""

import json
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from studied import (
    full_size_claims,
    full_size_steps,
    full_size_table,
    plasma_claims,
    plasma_waves,
)
from words import between, machine, short, table, with_error

from dalembert.ensemble.settings import CPU_GRAIN, DEVICE_GRAIN

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- measured: (?P<name>[\w-]+) -->).*?(<!-- end -->)", re.DOTALL)
EXPLICIT = ("heun", "r2", "e1", "rs1", "rs2")


def pages() -> list[Path]:
    """The files that may have places."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def filled(text: str) -> str:
    """The text of a page with the numbers of today in its places."""

    def fill(found: re.Match[str]) -> str:
        made = PLACES[found["name"]]()
        if "\n" in made:
            made = f"\n\n{made}\n\n"
        return f"{found[1]}{made}{found[3]}"

    return PLACE.sub(fill, text)


@cache
def read(name: str) -> dict[str, Any]:
    """A file of results."""
    folder = ROOT / ("docs/data" if name == "gpu" else "benchmarks/results")
    return json.loads((folder / f"{name}.json").read_text("utf-8"))


# --- speed ------------------------------------------------------------------------------------


def van_der_pol(name: str) -> str:
    data = read(name)
    where = data["machine"]
    (row,) = (row for row in data["rows"] if row["problem"] == "van der Pol midpoint")
    on = f"NVIDIA {where['gpu'].split()[-1]}" if where["gpu"] else f"core of an {where['cpu']}"
    return f"{short(row['dalembert, path-steps/s'])} on one {on}"


def of_limit(name: str) -> str:
    return between(row["ratio"] for row in read(name)["rows"])


def limit(name: str) -> str:
    data = read(name)
    rows = (
        [
            row["problem"].replace("Stoermer", "Störmer"),
            short(row["dalembert, path-steps/s"]),
            short(row["limit, path-steps/s"]),
            f"{row['ratio']:.2f}",
        ]
        for row in data["rows"]
    )
    head = ("path-steps per second", "dalembert", "by hand", "ratio")
    return f"{table(head, rows)}\n\n{machine(data)}."


def equal_accuracy(made_for_sdes: bool) -> str:
    data = read("others_cpu2")
    rows = []
    for row in data["rows"]:
        if ("not advised" in row["contender"]) == made_for_sdes:
            continue
        name = row["contender"].replace(" (not advised)", "")
        about = "≈ " if row["how"] == "extrapolated" else ""
        ratio = row["seconds, of dalembert's best"]
        time = f"{about}{short(row['seconds'])}"
        rows.append([row["problem"], name, f"{row['dt']:.3g}", time, short(ratio)])
    head = ("E(H), tolerance", "solver", "step", "seconds", "of ours")
    return f"{table(head, rows)}\n\n{machine(data)}."


def many() -> str:
    """Both devices, as far as they have been measured."""
    parts = []
    for name in ("many_gpu", "many_cpu2"):
        if not (ROOT / "benchmarks" / "results" / f"{name}.json").exists():
            continue
        data = read(name)
        rows = (
            [
                row["method"],
                f"{row['dim']:,}",
                f"{row['paths']:,}",
                short(row["dalembert, dof-steps/s"]),
                short(row["by hand, dof-steps/s"]),
                f"{row['ratio']:.2f}",
                f"{row['first call, s']:.1f}",
            ]
            for row in data["rows"]
        )
        head = (
            "method", "degrees of freedom", "paths", "dof-steps/s", "by hand", "ratio",
            "first call, s",
        )  # fmt: skip
        note = f"; {data['note']}" if "note" in data else ""
        parts.append(f"{table(head, rows)}\n\n{machine(data)}{note}.")
    return "\n\n".join(parts)


def nist() -> str:
    data = read("nist_gpu")
    rows = (
        [
            f"{row['T']:.2f}",
            f"{row['density']:g}",
            row["what"],
            with_error(row["mean"], row["standard error"]),
            with_error(row["NIST"], row["its uncertainty"]),
            f"{row['gap in standard errors']:.1f}".replace("-", "−"),
        ]
        for row in data["rows"]
    )
    head = ("T", "density", "what", "dalembert", "NIST", "gap in standard errors")
    return f"{table(head, rows)}\n\n{machine(data)}."


def plasma() -> str:
    """Both devices, as far as they have been measured."""
    parts = []
    for name in ("plasma_gpu", "plasma_gpu_large", "plasma_cpu2"):
        if not (ROOT / "benchmarks" / "results" / f"{name}.json").exists():
            continue
        data = read(name)
        rows = (
            [
                row["case"] + (f", ν = {row['nu']:g}" if row["nu"] else ""),
                f"{row['particles']:,}",
                short(row["dalembert, particle-steps/s"]),
                short(alone) if (alone := row["steps alone, particle-steps/s"]) else "–",
                short(row["by hand, particle-steps/s"]),
                f"{row['ratio']:.2f}",
                f"{row['first call, s']:.0f}",
            ]
            for row in data["rows"]
            if "error" not in row
        )
        head = (
            "case", "particles", "particle-steps/s", "steps alone", "by hand", "ratio",
            "first call, s",
        )  # fmt: skip
        parts.append(f"{table(head, rows)}\n\n{machine(data)}.")
    return "\n\n".join(parts)


def fluid() -> str:
    data = read("fluid_cpu2")
    rows = (
        [
            row["contender"],
            row["precision"],
            f"{row['steps/s']:.0f}",
            f"{row['steps per core-second']:.0f}",
            f"{row['steps per core-second, dalembert / this']:.2f}",
            f"{row['energy per atom']:.3f} ± {row['standard error']:.3f}",
        ]
        for row in data["rows"]
    )
    head = (
        f"{data['atoms']} atoms", "precision", "steps/s", "per core-second", "dalembert / this",
        "energy per atom",
    )  # fmt: skip
    return f"{table(head, rows)}\n\n{machine(data, 'jax-md', 'openmm')}."


def constraints() -> str:
    data = read("constraints_cpu2")
    rows = (
        [
            row["system"],
            short(row["dalembert, triangle-steps/s"]),
            short(row["by hand"]),
            f"{row['ratio']:.2f}",
        ]
        for row in data["rows"]
    )
    head = ("triangle-steps per second", "dalembert", "by hand", "ratio")
    return f"{table(head, rows)}\n\n{machine(data)}."


def long_constraints() -> str:
    data = read("long_constraints_cpu2")

    def worst(name: str, kept: str, key: str) -> float:
        found = (row for row in data["rows"] if (row["system"], row["kept"]) == (name, kept))
        return max(abs(row[key]) for row in found)

    rows = (
        [
            name,
            *(f"{worst(name, 'constraints', key):.1e}" for key in ("first", "last", "largest")),
            *(f"{worst(name, 'energy', key):.5f}" for key in ("first", "last")),
            f"{worst(name, 'energy', 'drift'):.0e}",
        ]
        for name in dict.fromkeys(row["system"] for row in data["rows"])
    )
    missed = (f"largest miss, {part}" for part in ("first tenth", "last tenth", "whole run"))
    ranges = (f"range of energies, {part} tenth" for part in ("first", "last"))
    return f"{table(('system', *missed, *ranges, 'drift of their mean'), rows)}\n\n{machine(data)}."


def first_seconds() -> str:
    data, rows = read("first_seconds_cpu2"), []
    for row in data["rows"]:
        first, second = row["first, processor, s"], row["second, processor, s"]
        rows.append([row["case"], f"{first:.1f}", f"{second:.1f}", f"{second / first:.2f}"])
    head = ("case, seconds of the processor", "first process", "second process", "ratio")
    return f"{table(head, rows)}\n\n{machine(data)}."


def second_process() -> str:
    """What kept code leaves of the time of implicit steps and of runs."""
    ratios = []
    for row in read("first_seconds_cpu2")["rows"]:
        kind, what, *_ = row["case"].split(", ")
        if kind == "run" or (kind == "step" and what not in EXPLICIT):
            ratios.append(row["second, processor, s"] / row["first, processor, s"])
    return between(ratios)


def longer_for_a_path(method: str) -> str:
    """How many times the core-seconds of additive_dirk a method takes to an error of 2·10⁻³."""

    def seconds(name: str) -> float:
        rows = [
            (row["error"], row["core-seconds for 1e6 paths"])
            for row in read("precision_cpu2")["rows"]
            if row["method"] == name and row["kind"] == "path"
        ]
        slope, offset = np.polyfit(*np.log(rows).T, 1)
        return np.exp(offset + slope * np.log(2e-3))

    return f"{seconds(method) / seconds('additive_dirk'):.0f}"


def executors() -> str:
    """What blocks cost on a worker of Dask, beside the same run without it."""
    data = read("executors_cpu2")
    rows = (
        [f"{row['blocks']:,}", short(row["ms a block"]), f"{row['core ratio']:.2f}"]
        for row in data["rows"]
        if "core ratio" in row
    )
    head = ("blocks", "milliseconds each", "core-seconds, of those without an executor")
    return f"{table(head, rows)}\n\n{machine(data, 'distributed')}."


def idle_dask() -> str:
    """What scheduler and worker take of a core without work."""
    shares = [row["idle, of a core"] for row in read("executors_cpu2")["rows"] if "ratio" in row]
    return f"{max(shares):.0%}".replace("%", " %")


# --- GPUs and blocks --------------------------------------------------------------------------


def gpu_paths() -> str:
    data = read("gpu")
    rows = (
        [f"{row['paths']:,}", f"{row['seconds']:.2f}", short(row["path-steps/s"])]
        for row in data["paths"]
    )
    head = (f"paths, {data['paths'][0]['steps']:,} steps", "seconds", "path-steps per second")
    return f"{table(head, rows)}\n\n{data['device']}, jax {data['jax']}, {data['date']}."


def gpu_saves() -> str:
    rows = read("gpu")["saves"]
    head = ("`save_every`", f"seconds, {rows[0]['paths']:,} paths, {rows[0]['steps']:,} steps")
    return table(head, ([str(row["save every"]), f"{row['seconds']:.2f}"] for row in rows))


def float32_of_float64() -> str:
    double, single = (row["path-steps/s"] for row in read("gpu")["dtype"])
    return f"{single / double:.1f}"


def gpu_peak() -> str:
    largest = read("gpu")["paths"][-1]
    return f"{largest['paths']:,} paths above took {largest['peak MiB so far']:.0f} MiB"


# --- answers ----------------------------------------------------------------------------------


def levels() -> str:
    """What levels save on a Langevin pendulum, for each tolerance."""
    rows = read("expect_cpu2")["rows"]

    def saved(key: str, tolerance: float) -> str:
        of = {row["method"]: row[key] for row in rows if row["tolerance"] == tolerance}
        return " and ".join(short(of[name]) for name in ("midpoint", "additive_midpoint"))

    def line(tolerance: float) -> list[str]:
        keys = ("fewer, finer", "fewer", "fewer at own dt", "less core-s", "at most")
        return [f"±{tolerance:g}", *(saved(key, tolerance) for key in keys)]

    tolerances = sorted({row["tolerance"] for row in rows}, reverse=True)
    head = ["for", "fewer steps, a pair by its fine path", "both paths counted"]
    head += ["than plain at its own dt", "less time of cores", "of steps alone"]
    return table(head, map(line, tolerances))


def levels_at_own_dt() -> str:
    """What is left of it where each estimator chooses its steps, for the larger tolerance."""
    rows = read("expect_cpu2")["rows"]
    coarse = max(row["tolerance"] for row in rows)
    of = {row["method"]: row for row in rows if row["tolerance"] == coarse}
    less = " and ".join(short(of[x]["fewer at own dt"]) for x in ("midpoint", "additive_midpoint"))
    return f"{less} times fewer steps for ±{coarse:g}, at dt = 1/{1 / of['midpoint']['own dt']:g}"


PLACES: dict[str, Callable[[], str]] = {
    "levels": levels,
    "levels-at-own-dt": levels_at_own_dt,
    "van-der-pol-cpu": partial(van_der_pol, "limit_cpu1"),
    "van-der-pol-gpu": partial(van_der_pol, "limit_gpu"),
    "of-c": partial(of_limit, "limit_cpu1"),
    "of-cuda": partial(of_limit, "limit_gpu"),
    "limit-cpu": partial(limit, "limit_cpu1"),
    "limit-gpu": partial(limit, "limit_gpu"),
    "equal-accuracy": partial(equal_accuracy, True),
    "equal-accuracy-of-ode-solvers": partial(equal_accuracy, False),
    "many": many,
    "nist": nist,
    "plasma": plasma,
    "fluid": fluid,
    "constraints": constraints,
    "long-constraints": long_constraints,
    "first-seconds": first_seconds,
    "second-process": second_process,
    "midpoint-for-a-path": partial(longer_for_a_path, "midpoint"),
    "shark-for-a-path": partial(longer_for_a_path, "diffrax ShARK"),
    "executors": executors,
    "idle-dask": idle_dask,
    "gpu-paths": gpu_paths,
    "gpu-saves": gpu_saves,
    "gpu-float32": float32_of_float64,
    "gpu-first": lambda: f"{read('gpu')['paths'][0]['first, s']:.0f}",
    "gpu-peak": gpu_peak,
    "gpu-reserved": lambda: f"{read('gpu')['memory taken at the start, GiB']:.0f} GiB",
    "block-cpu": lambda: f"{CPU_GRAIN.block_paths:,}",
    "block-gpu": lambda: f"{DEVICE_GRAIN.block_paths:,}",
    "full-size": full_size_table,
    "full-size-steps": full_size_steps,
    "full-size-claims": full_size_claims,
    "plasma-claims": plasma_claims,
    "plasma-waves": plasma_waves,
}


def main(only_check: bool) -> int:
    behind = 0
    for page in pages():
        old = page.read_text("utf-8")
        new = filled(old)
        if new != old:
            behind += 1
            print(page.relative_to(ROOT), "is behind" if only_check else "written")
            if not only_check:
                page.write_text(new, "utf-8")
    return behind if only_check else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
