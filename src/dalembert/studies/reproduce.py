"""Running studies into a folder: one `.npz` and one `.json` per study, figures, `claims.json`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from dalembert.ensemble.run import Run
from dalembert.studies.claims import Claim, read_claims, write_claims
from dalembert.studies.curves import overview
from dalembert.studies.draw import save_figure
from dalembert.studies.figures import Figure
from dalembert.studies.report import write_study
from dalembert.studies.study import Case, Part, Study

NOT_CHECKED = "Claims about other methods, steps and times are not checked."


def override(
    study: Study,
    methods: Sequence[str] | None = None,
    paths: int | None = None,
    t_end: float | None = None,
    dt: float | None = None,
) -> Study:
    """The study with other methods, numbers of paths, times or step sizes.

    Claims whose cases are left out are not made; those that are made keep their tolerances, which
    follow from the number of paths. With other methods, times or step sizes figures are not called
    those of the paper, and a note says what differs.
    """
    known = {case.family for part in study.parts for case in part.cases}
    unknown = set(methods or ()) - known
    if unknown:
        raise ValueError(
            f"{study.name} has no method {', '.join(sorted(unknown))}; it has "
            f"{', '.join(sorted(known))}."
        )
    for name, value in (("dt", dt), ("t_end", t_end)):
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be a positive number, not {value!r}.")
    parts = []
    for part in study.parts:
        cases = [case for case in part.cases if methods is None or case.family in methods]
        if dt is not None:
            cases = list(
                {replace(case, dt=dt).label: replace(case, dt=dt) for case in cases}.values()
            )
        changed = replace(part, cases=tuple(cases))
        if paths is not None and part.paths > 1:
            changed = replace(changed, paths=paths)
        if t_end is not None:
            changed = _until(changed, t_end)
        if cases:
            parts.append(changed)
    changed = replace(study, parts=tuple(parts))
    differences = _differences(methods, t_end, dt, changed)
    if not differences:
        return changed
    note = f"Not as the study is by itself: {differences}. {NOT_CHECKED}"
    figures = study.figures
    if figures is not None:
        changed = replace(changed, figures=lambda result: _unnumbered(figures(result)))
    return replace(changed, notes=(note, *study.notes))


def _differences(
    methods: Sequence[str] | None, t_end: float | None, dt: float | None, study: Study
) -> str:
    """What of methods, times and step sizes was given, and what it has become."""
    times = dict.fromkeys(f"{part.t_end:g}" for part in study.parts)
    found = [f"{' and '.join(methods)} alone"] if methods else []
    found += [f"to t = {' and '.join(times)}"] if t_end is not None else []
    found += [f"in steps of {dt:g}"] if dt is not None else []
    return ", ".join(found)


def _unnumbered(figures: Sequence[Figure]) -> list[Figure]:
    """Figures that correspond to none of the paper."""
    return [replace(figure, source="") for figure in figures]


def _until(part: Part, t_end: float) -> Part:
    """The part to another final time, a whole number of its save times."""
    saves = max(round(t_end / part.save_times), 1)
    return replace(part, t_end=saves * part.save_times)


def reproduce(
    study: Study,
    folder: Any,
    on_done: Callable[[Part, Case, Run], None] | None = None,
    checkpoints: bool = True,
    progress: bool = False,
) -> list[Claim]:
    """Run a study, write everything that the report needs, and return its claims.

    An interrupted study goes on where it was when it is called again with the same settings.
    """
    out = Path(folder)
    unfinished = out / "unfinished" / study.name
    (unfinished if checkpoints else out).mkdir(parents=True, exist_ok=True)
    others = _other_claims(out / "claims.json", study.name)
    result = study.run(unfinished if checkpoints else None, on_done, progress)
    if jax.process_index() == 0:
        result.save(out / f"{study.name}.npz")
    # A study that was renamed makes its claims under its new name.
    claims = [replace(claim, experiment=study.name) for claim in study.claims(result)]
    figures = overview(study, result) if study.figures is None else list(study.figures(result))
    if jax.process_index() == 0:
        write_study(out, study, figures)
        write_claims(out / "claims.json", others + claims)
        for figure in figures:
            save_figure(figure, out / "figures")
        if checkpoints:
            study.remove_checkpoints(unfinished)
            if not any(unfinished.parent.iterdir()):
                unfinished.parent.rmdir()
    return claims


def _other_claims(path: Path, study: str) -> list[Claim]:
    """The claims of other studies in the same folder."""
    if not path.exists():
        return []
    try:
        return [claim for claim in read_claims(path) if claim.experiment != study]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error}. Delete it to go on.") from error
