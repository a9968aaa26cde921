"""What the studies took and claim at full size, for the pages."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from words import short, table

from dalembert.studies.study import load_result

ROOT = Path(__file__).parents[1]
STUDIES = ("kubo", "vanderpol", "lenard-bernstein", "lorentz")


@cache
def full_size() -> tuple[dict[str, Any], ...]:
    """What each study at full size took, and its claims."""
    folder = ROOT / "results" / "h200"
    claims = json.loads((folder / "claims.json").read_text("utf-8"))
    found = []
    for name in STUDIES:
        runs = [run.provenance for run in load_result(folder / f"{name}.npz").runs.values()]
        many = [run for run in runs if run["paths"] > 1]
        found.append(
            {
                "name": name,
                "ensembles": len(many),
                "steps": sum(run["path_steps_per_second"] * run["seconds"] for run in many),
                "seconds": sum(run["seconds"] for run in many),
                "holds": [claim["holds"] for claim in claims if claim["experiment"] == name],
                "on": many[-1],
            }
        )
    return tuple(found)


def full_size_table() -> str:
    rows = (
        [
            of["name"],
            str(of["ensembles"]),
            short(of["steps"]),
            f"{of['seconds']:.0f} s",
            short(of["steps"] / of["seconds"]),
            f"{sum(of['holds'])} of {len(of['holds'])}",
        ]
        for of in full_size()
    )
    head = (
        "study", "ensembles", "path-steps", "time", "path-steps per second", "claims that hold",
    )  # fmt: skip
    on = full_size()[-1]["on"]
    versions = f"jax {on['versions']['jax']}, Python {on['versions']['python']}"
    return f"{table(head, rows)}\n\n{on['device_kind']}, {versions}."


def full_size_steps() -> str:
    return short(sum(of["steps"] for of in full_size()))


def full_size_claims() -> str:
    holds = [held for of in full_size() for held in of["holds"]]
    return f"{sum(holds)} of {len(holds)}"


@cache
def plasma_claims_found() -> list[dict[str, Any]]:
    """The claims of the study of plasmas at full size."""
    return json.loads((ROOT / "results" / "cpu2" / "claims.json").read_text("utf-8"))


def plasma_claims() -> str:
    holds = [claim["holds"] for claim in plasma_claims_found()]
    return f"{sum(holds)} of {len(holds)}"


def plasma_waves() -> str:
    """How far waves that decay by collisions are from linear theory."""
    gaps = [
        claim["measured"]
        for claim in plasma_claims_found()
        if claim["id"].startswith("damping ") and not claim["id"].endswith("no other")
    ]
    return f"{100 * min(gaps):.1f}–{100 * max(gaps):.1f} %"
