"""Writes the public names into api.md while the documentation is built, and links to them.

Users write `da.systems.ring` for `dalembert.systems.ring_system.ring`: importing the package says
where a name leads.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, get_args, get_type_hints

import dalembert as da

MARK = "<!-- public names -->"

# Title, the parts of the package that belong there, and what a reader should see first.
SECTIONS = (
    (
        "Simulating",
        ("system", "fields", "flow", "ensemble", "stepping", "caches"),
        (
            "System",
            "Fields",
            "simulate",
            "Event",
            "Run",
            "RunStatistics",
            "TracedRun",
            "Failures",
            "load",
            "step",
            "StepInfo",
            "explain",
        ),
    ),
    (
        "Statistics",
        ("statistics", "observables"),
        ("Statistic", "Mean", "SampleMean", "Histogram", "Axis", "Binned"),
    ),
    ("Answers", ("answers",), ("expect", "Expectation", "ToleranceError")),
    ("Fitting", ("fitting",), ("path_likelihood", "match_moments", "fit", "Fit")),
    ("Methods", ("methods",), tuple(da.METHODS)),
    ("Noise", ("noise",), ()),
    ("Systems and their exact results", ("systems",), ()),
    ("Plasmas", ("plasma",), ("vlasov_poisson", "Fourier", "Spline", "Start")),
    ("Theory", ("theory",), ("certify", "Certificate", "diagnose", "Diagnosis")),
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """List the public names in api.md; elsewhere, link `da.name` and `theory.name` to them."""
    return markdown.replace(MARK, _listing()) if page.file.src_uri == "api.md" else linked(markdown)


def linked(markdown: str) -> str:
    """A page with links to the names in it."""
    names = {name.removeprefix("da."): _identifier(thing) for name, thing in _public().items()}

    def link(found: re.Match[str]) -> str:
        identifier = names.get(found["name"])
        return f"[{found[0]}][{identifier}]" if identifier else found[0]

    return re.sub(r"(?<!\[)`(da\.)?(?P<name>[\w.]+)`(?!\])", link, markdown)


def _public() -> dict[str, Any]:
    """Functions and classes by what a user writes to get them, the shortest way first."""
    found: dict[str, Any] = {}
    for room in (
        "",
        "systems.",
        "observables.",
        "plasma.",
        "plasma.linear.",
        "theory.",
        "fitting.",
    ):
        module = attrgetter(room[:-1])(da) if room else da
        for name in module.__all__:
            thing = getattr(module, name)
            if _is_entry(thing) and thing not in found.values():
                found[f"da.{room}{name}"] = thing
    return found


def _is_entry(thing: Any) -> bool:
    return inspect.isfunction(thing) or inspect.isclass(thing)


def _listing() -> str:
    public = {thing: name for name, thing in _public().items()}
    entries: dict[Any, str] = {}
    for thing, name in public.items():
        entries[thing] = name
        for other in (*_neighbours(thing), *_bases(thing), *_results(thing)):
            if other not in public:
                entries.setdefault(other, _plain_name(other))
    return "\n\n".join(_section(*section, entries) for section in SECTIONS)


def _neighbours(thing: Any) -> Iterator[Any]:
    """The exact results that stand beside a system."""
    module = sys.modules[thing.__module__]
    if module.__name__.startswith("dalembert.systems."):
        yield from filter(_is_entry, (getattr(module, name) for name in module.__all__))


def _results(thing: Any) -> Iterator[Any]:
    """The records that a function or the properties of a class give."""
    hints = get_type_hints(thing)
    if inspect.isclass(thing):
        parts = inspect.getmembers(thing, lambda member: isinstance(member, property))
        given = [*hints.values(), *(get_type_hints(p.fget).get("return") for _, p in parts)]
    else:
        given = [hints.get("return")]
    for hint in given:
        for kind in (hint, *get_args(hint)):
            if inspect.isclass(kind):
                yield from _bases(kind)


def _bases(thing: Any) -> Iterator[Any]:
    """A class of this package and those that it inherits from; nothing for a function."""
    for kind in inspect.getmro(thing) if inspect.isclass(thing) else ():
        if kind.__module__.startswith("dalembert.") and not kind.__name__.startswith("_"):
            yield kind


def _plain_name(thing: Any) -> str:
    return thing.__qualname__ if inspect.isclass(thing) else _identifier(thing)


def _identifier(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _section(
    title: str, parts: tuple[str, ...], first: tuple[str, ...], entries: dict[Any, str]
) -> str:
    def place(thing: Any) -> int:
        return first.index(thing.__name__) if thing.__name__ in first else len(first)

    here = [thing for thing in entries if thing.__module__.split(".")[1] in parts]
    ordered = sorted(here, key=place)
    return "\n\n".join([f"## {title}", *(_entry(entries[thing], thing) for thing in ordered)])


def _entry(name: str, thing: Any) -> str:
    return (
        f"::: {_identifier(thing)}\n"
        f"    options:\n      heading: '{name}'\n      toc_label: '{name}'\n      heading_level: 3"
    )
