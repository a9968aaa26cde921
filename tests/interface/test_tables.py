"""README and pages show the numbers that were measured, and the same ones everywhere."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables():
    """benchmarks/tables.py, which writes them."""
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")  # as where it runs as a script
        spec.loader.exec_module(module)
    return module


def test_no_page_is_behind(tables):
    for page in tables.pages():
        text = page.read_text("utf-8")
        assert tables.filled(text) == text, f"{page.name}: run `python benchmarks/tables.py`"


def test_every_number_has_its_place_and_every_mark_its_end(tables):
    used = []
    for page in tables.pages():
        text = page.read_text("utf-8")
        found = list(tables.PLACE.finditer(text))
        assert text.count("<!-- measured:") == text.count("<!-- end -->") == len(found), page.name
        used += [place["name"] for place in found]
        # Markdown takes a comment at the start of a line for a block of its own.
        inline = [place for place in found if "\n" not in place[0]]
        assert not any(text[place.start() - 1] == "\n" for place in inline), page.name
    assert set(used) == set(tables.PLACES)


def test_another_number_is_noticed(tables):
    written = "<!-- measured: of-c -->0.99–1.01<!-- end -->"
    filled = tables.filled(f"ours has {written} of the speed")
    assert filled != f"ours has {written} of the speed"
    assert tables.of_limit("limit_cpu1") in filled


def test_a_place_that_nobody_knows_is_no_place(tables):
    with pytest.raises(KeyError, match="of-fortran"):
        tables.filled("<!-- measured: of-fortran -->1<!-- end -->")


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.637, "0.637"), (1527.3, "1,530"), (9.787e10, "9.8·10¹⁰"), (3.0e8, "3.0·10⁸"), (1, "1")],
)
def test_numbers_are_short(tables, number, text):
    assert tables.short(number) == text
