"""Writes the list of public names into api.md while the documentation is built.

Several functions have the name of the module that they stand in (`da.midpoint` is
`dalembert.methods.midpoint.midpoint`), and a reader of the source alone takes such a name for the
module. Importing the package says what it means.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import dalembert as da

MARK = "<!-- public names -->"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the mark in api.md by one entry for each public name."""
    return markdown.replace(MARK, _listing()) if page.file.src_uri == "api.md" else markdown


def _listing() -> str:
    public = {f"da.{name}": getattr(da, name) for name in da.__all__ if not name.startswith("_")}
    methods = _named(da.METHODS, "METHODS", public)
    systems = _named(da.SYSTEMS, "SYSTEMS", public)
    listed = {id(thing) for thing in (*methods.values(), *systems.values())}
    rest = {name: thing for name, thing in public.items() if id(thing) not in listed}
    sections = {
        "Classes": {name: thing for name, thing in rest.items() if inspect.isclass(thing)},
        "Functions": {name: thing for name, thing in rest.items() if inspect.isfunction(thing)},
        "Methods": methods,
        "Systems": systems,
    }
    return "\n\n".join(_section(title, entries) for title, entries in sections.items() if entries)


def _named(registry: Mapping[str, Any], name: str, public: Mapping[str, Any]) -> dict[str, Any]:
    """The things in a registry by what a user writes to get them."""
    return {
        f"da.{key}" if public.get(f"da.{key}") is thing else f'da.{name}["{key}"]': thing
        for key, thing in registry.items()
    }


def _section(title: str, entries: Mapping[str, Any]) -> str:
    return "\n\n".join([f"## {title}", *(_entry(*entry) for entry in entries.items())])


def _entry(name: str, thing: Any) -> str:
    return (
        f"::: {thing.__module__}.{thing.__qualname__}\n"
        f"    options:\n      heading: '{name}'\n      toc_label: '{name}'\n      heading_level: 3"
    )
