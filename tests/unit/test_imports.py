"""The order of imports: every room of the package uses those below it and none above."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import dalembert

ROOT = Path(dalembert.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"

FLOORS = (
    (
        "caches",
        "known",
        "operations",
        "options",
        "pictures",
        "precision",
        "primitives",
        "quantiles",
        "sizes",
        "spelling",
    ),
    (
        "traces",
        "dependence",
        "elementary",
        "digest",
        "from_outside",
        "captured",
        "kept_rules",
        "functions",
        "joint",
        "flow",
    ),
    ("driven", "fields", "system", "noise", "constraints"),
    ("systems", "methods"),
    ("statistics", "stepping", "observables", "plasma"),
    ("ensemble", "theory", "answers", "fitting"),
    ("__init__",),
    ("diffrax", "studies", "speeds", "launch", "coordinator", "terminal"),
    ("arguments", "scheduler", "commands", "cli", "__main__"),
)
"""From the ground up. Within a floor, rooms that use each other stand in this order."""

ORDER = {
    room: (floor, place) for floor, rooms in enumerate(FLOORS) for place, room in enumerate(rooms)
}
LATER = {("__init__", x) for x in ("theory", "answers", "fitting", "studies")}
LATER |= {("ensemble", "__init__"), ("ensemble", "theory")}
"""Imports inside functions that look up: names found when they are asked for, the version, and
whether a method has the right limit."""


def rooms_of(module: str) -> str:
    """The room that a dotted name within the package belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def imports():
    """(room, room that it imports, file) for every import of the package by itself."""
    for file in sorted(ROOT.rglob("*.py")):
        room = file.relative_to(ROOT).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dalembert"):
                assert node.level == 0, f"{file}: imports say the whole name"
                names = [f"{node.module}.{name.name}" for name in node.names]
                known = [n if node.module != "dalembert" else _module(n) for n in names]
                yield from ((room, rooms_of(n), file) for n in known)
            elif isinstance(node, ast.Import):
                names = [n.name for n in node.names if n.name.split(".")[0] == "dalembert"]
                yield from ((room, rooms_of(n), file) for n in names)


def _module(name: str) -> str:
    """`dalembert.x` if that is a module, else the package that defines x."""
    path = ROOT / name.partition(".")[2]
    return name if path.with_suffix(".py").exists() or path.is_dir() else "dalembert"


def test_every_room_has_its_floor():
    rooms = {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in ROOT.rglob("*.py")}
    assert rooms <= set(ORDER)


def test_imports_go_down():
    wrong = [
        f"{file.relative_to(ROOT)} imports {other}"
        for room, other, file in imports()
        if room != other and ORDER[other] >= ORDER[room] and (room, other) not in LATER
    ]
    assert not wrong, wrong


def test_the_check_can_fail():
    assert ORDER["ensemble"] > ORDER["methods"], "an import of the ensemble by a method is wrong"
    assert any(room == "ensemble" and other == "stepping" for room, other, _ in imports())


def test_import_loads_nothing_that_is_not_needed():
    unwanted = ["llvmlite", "jax.experimental.pallas", "matplotlib", "xarray"]
    code = f"import sys, dalembert; print([m for m in {unwanted} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_what_is_missing_is_named_as_pip_knows_it():
    """The package itself is installed from its source: by its name pip would not find it."""
    texts = {file: file.read_text("utf-8") for file in sorted(ROOT.rglob("*.py"))}
    assert not [file for file, text in texts.items() if "dalembert[" in text]
    assert any("pip install" in text for text in texts.values())


def test_no_two_classes_have_one_name():
    places: dict[str, list[str]] = {}
    for file, node in _top_level():
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert len(places) > 100
    assert not {name for name, where in places.items() if len(where) > 1}


def _public(tree):
    """The names in `__all__` of a module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and "__all__" in (
            getattr(t, "id", "") for t in node.targets
        ):
            return {c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant)}
    return set()


def test_no_two_public_functions_have_one_name():
    places: dict[str, list[str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in _public(tree):
                places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert len(places) > 150
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_no_module_is_hidden_by_a_function_of_its_name():
    rooms = [room for room in ROOT.iterdir() if (room / "__init__.py").exists()]
    assert not [name for room in rooms for name in _hidden(room, _names_in(room))]
    systems = ROOT / "systems"
    assert _hidden(systems, {"ring_system": len, "ring": len}) == ["systems.ring_system"]


def _names_in(room):
    return vars(importlib.import_module(f"dalembert.{room.name}"))


def _hidden(room, names):
    """Modules of a package in whose place the package has something else."""
    modules = (name for name in names if (room / f"{name}.py").exists())
    return [f"{room.name}.{name}" for name in modules if not isinstance(names[name], ModuleType)]


def _top_level():
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            yield file, node


def test_the_page_on_the_house_names_every_room_and_nothing_that_is_not_there():
    page = (DOCS / "architecture.md").read_text("utf-8")
    table = page.partition("## ")[0]
    assert set(re.findall(r"`([a-z_]+)/?`", table)) == set(ORDER) - {"__init__", "__main__"}
    files = re.findall(r"`([a-z_/]+\.py)`", page)
    assert len(files) > 8 and not [file for file in files if not (ROOT / file).exists()]


def test_the_picture_of_the_house_has_its_packages_on_their_floors():
    drawn = (DOCS / "images" / "house.svg").read_text("utf-8")
    found = {name: int(y) for y, name in re.findall(r'y="(\d+)" class="title">(\w+)<', drawn)}
    packages = {room.name for room in ROOT.iterdir() if (room / "__init__.py").exists()}
    assert packages <= set(found)
    for room, other, _ in imports():
        if room != other and {room, other} <= packages:
            assert found[room] <= found[other], f"{room} uses {other} and is drawn below it"
