"""Results on one page: a self-contained HTML file with claims, interactive figures and tables."""

import base64
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dalembert
from dalembert.ensemble import archive
from dalembert.studies.claims import Claim, read_claims
from dalembert.studies.draw import DASHES, drawn, film_file, styles_of
from dalembert.studies.figures import Figure, figures_from_json, figures_to_json
from dalembert.studies.study import KIND, Result, Study, load_result

SIGNS = {"both": "", "below": "≤ ", "above": "≥ "}
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Chapter:
    """What the page says about one study."""

    name: str
    title: str
    text: str
    notes: Sequence[str]
    figures: Sequence[Figure]
    result: Result
    films: Mapping[str, str] = field(default_factory=dict)
    """Addresses of films by the names of figures."""

    @property
    def path_steps(self) -> float:
        of = [run.provenance for run in self.result.runs.values()]
        return sum(x["paths"] * x["t_end"] / x["dt"] for x in of)

    @property
    def provenance(self) -> dict[str, str]:
        """What the runs have in common, or the different values that occur."""
        found: dict[str, dict[str, None]] = {}
        for of in (run.provenance for run in self.result.runs.values()):
            known = {
                "seed": of["seed"],
                "noise": of["noise"],
                "precision": of["dtype"],
                "device": f"{of['devices']} × {of['device']}",
                "processes": of["processes"],
                "versions": ", ".join(" ".join(item) for item in of["versions"].items()),
            }
            for name, value in known.items():
                found.setdefault(name, {})[str(value)] = None
        return {name: "; ".join(values) for name, values in found.items()}


def write_study(folder: Any, study: Study, figures: Iterable[Figure]) -> Path:
    """Write FOLDER/STUDY.json: the title, text, notes and figures of a study."""
    data = {"title": study.title, "text": study.text, "notes": list(study.notes)}
    path = Path(folder) / f"{study.name}.json"
    text = json.dumps(data | {"figures": figures_to_json(figures)}, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def write_report(folder: Any) -> Path:
    """Write FOLDER/report.html from `claims.json` and the `.json` and `.npz` of every study.

    Raises:
        FileNotFoundError: if one of the files is missing.
        ValueError: if one of them is damaged; the message names it.
    """
    folder = Path(folder)
    claims = _read(folder / "claims.json", read_claims)
    found = sorted(p.stem for p in folder.glob("*.npz") if archive.is_marked(p, KIND))
    names = dict.fromkeys([claim.experiment for claim in claims] + found)
    chapters = []
    for name in names:
        if name != "claims":
            about = _read(folder / f"{name}.json", _read_study)
            result = _read(folder / f"{name}.npz", load_result)
            films = {
                figure.name: f"data:image/gif;base64,{_base64(file.read_bytes())}"
                for figure in about["figures"]
                if (file := film_file(folder / "figures", figure)).is_file()
            }
            chapters.append(Chapter(name, **about, result=result, films=films))
    path = folder / "report.html"
    path.write_text(to_html(chapters, claims), encoding="utf-8")
    return path


def _read(path: Path, read: Callable[[Path], Any]) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: `dalembert reproduce` writes it.")
    try:
        return read(path)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read, it may be damaged: {error!r}") from error


def _read_study(path: Path) -> dict[str, Any]:
    data = json.loads(path.read_text(encoding="utf-8"))
    about = {name: data[name] for name in ("title", "text", "notes")}
    return about | {"figures": figures_from_json(data["figures"])}


def to_html(chapters: Sequence[Chapter], claims: Sequence[Claim]) -> str:
    """The page; all text is escaped, and no script runs but its own."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError("the report needs jinja2: install it with  pip install jinja2") from error
    own = files("dalembert.studies")
    page, css, js = ((own / f"report.{x}").read_text("utf-8") for x in ("html", "css", "js"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"number": _number, "measured": _measured, "state": _state}
    environment.filters["downloads"] = _downloads
    return environment.from_string(page).render(
        chapters=chapters,
        claims=claims,
        counts=Counter(map(_state, claims)),
        figures=[_styled(figure) for chapter in chapters for figure in chapter.figures],
        signs=SIGNS,
        version=dalembert.__version__,
        css=css,
        js=js,
        js_hash="sha256-" + _base64(hashlib.sha256(js.encode()).digest()),
    )


def _downloads(figure: Figure) -> list[tuple[str, str, str]]:
    """Pictures of a figure inside the page: format, file name and address of each.

    None without matplotlib, which draws them; the script of the page writes the numbers.
    """
    if not figure.panels or find_spec("matplotlib") is None:
        return []
    kinds = {"svg": "image/svg+xml", "pdf": "application/pdf"}
    return [
        (form.upper(), f"{figure.name}.{form}", f"data:{kinds[form]};base64,{_base64(data)}")
        for form, data in drawn(figure, kinds).items()
    ]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _styled(figure: Figure) -> dict[str, Any]:
    """A figure as data for the script, with the looks of its curves."""
    [data] = figures_to_json([figure])
    lines = [line for panel in data["panels"] for line in panel["lines"]]
    styles = styles_of(line["family"] for line in lines)
    for line in lines:
        dash = DASHES[line["variant"] % len(DASHES)]
        line |= asdict(styles[line["family"]]) | {"dash": dash}
    return data


def _state(claim: Claim) -> str:
    return "holds" if claim.holds else "explained" if claim.note else "fails"


def _number(value: float | None, digits: int = 5) -> str:
    if value is None or not math.isfinite(value):
        return "–" if value is None else "not finite"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f") if value >= 10_000 else str(value)
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    raised = f"·10{str(int(exponent)).translate(RAISED)}" if exponent else ""
    return mantissa.replace("-", "−") + raised


def _measured(claim: Claim) -> str:
    """With as many digits as the standard error, with two of its own, supports."""
    value, error = claim.measured, claim.stderr
    if not error or not value or not math.isfinite(value / error):
        return _number(value)
    digits = 2 + math.floor(math.log10(abs(value))) - math.floor(math.log10(error))
    return f"{_number(value, min(max(digits, 2), 9))} ± {_number(error, 2)}"
