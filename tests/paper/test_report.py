"""The report: complete, self-contained, safe, and usable with mouse, keyboard, finger and eyes."""

import base64
import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jax
import numpy as np
import pytest

import chromium
import dalembert as da
from dalembert.studies import report
from dalembert.studies.claims import Claim, write_claims
from dalembert.studies.draw import save_figure
from dalembert.studies.figures import (
    Figure,
    Film,
    Image,
    Line,
    Panel,
    figures_from_json,
    figures_to_json,
)
from dalembert.studies.report import Chapter, to_html, write_report, write_study
from dalembert.studies.study import Case, Part, Result, Study

PAPER = Path(__file__).parents[2] / "results" / "h200"
EVIL = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>\"'&$"
T = np.linspace(0.0, 100.0, 60)


def the_figures() -> list[Figure]:
    curves = [
        Line("midpoint, Δt = 0.5", T, np.exp(-T / 50), 0.05 + 0 * T, "midpoint"),
        Line("midpoint, Δt = 0.25", T, np.exp(-T / 40), 0.02 + 0 * T, "midpoint", 1),
        Line("heun, Δt = 0.02", T, np.where(T < 60, 1 + T / 50, np.nan), None, "heun"),
        Line("exact", T, np.exp(-T / 45)),
    ]
    energy = Panel("t", "E(H)", curves, title="Mean energy", ylim=(0.0, 2.0))
    other = Panel("t", "E(H)", [replace(curves[2], family="rs1")], title="Weak", yscale="log")
    values = np.add.outer(np.arange(4.0), np.arange(3.0))
    image = Panel("x", "v", image=Image(np.linspace(0, 1, 5), np.linspace(-1, 1, 4), values, "ρ"))
    return [
        Figure("energy", "Mean energy over time", "It decays.", (energy,), source="figure 1"),
        Figure("pair", "A pair", "Left and right.", (replace(energy, title=""), other), columns=2),
        Figure("density", "Density", "Where the paths are.", (image,)),
    ]


THE_CLAIMS = [
    Claim("a", "kubo", "The energy is 0.5.", 0.5004, 0.5, 0.003, True, "3 standard errors", 0.001),
    Claim("b c", "kubo", "The drift is small.", 3.2e-5, 1e-4, None, True, "rounding", side="below"),
    Claim("d", "kubo", "The error is 0.1.", 0.2, 0.1, None, False, "print", None, "A misprint."),
    Claim(
        "e", "kubo", "Nothing fails.", float("nan"), 1.0, None, False, "the method", side="above"
    ),
]


@pytest.fixture(scope="module")
def study() -> Study:
    """The damped Kubo oscillator with two methods, for a moment."""
    cases = (Case("midpoint", 0.5), Case("heun", 0.5))
    part = Part("mean-square", cases, ([2.0], [0.0]), 5.0, 20, 1.0)
    return Study(
        "kubo",
        "Damped Kubo oscillator",
        "First paragraph.\n\nSecond paragraph.",
        da.systems.damped_kubo(),
        (part,),
        lambda result: the_figures(),
        notes=("Printed wrongly.",),
    )


@pytest.fixture(scope="module")
def result(study: Study) -> Result:
    return study.run()


@pytest.fixture
def folder(tmp_path: Path, study: Study, result: Result) -> Path:
    """What `dalembert reproduce` leaves behind."""
    write_claims(tmp_path / "claims.json", THE_CLAIMS)
    write_study(tmp_path, study, study.figures(result))
    result.save(tmp_path / "kubo.npz")
    return tmp_path


class Page(HTMLParser):
    """Elements with their attributes, and the text without scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.scripts, self._inside = "", [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside != "style":
            self.text += data


# --- figures as JSON -------------------------------------------------------------------------


def test_figures_survive_json():
    again = figures_from_json(json.loads(json.dumps(figures_to_json(the_figures()))))
    for before, after in zip(the_figures(), again, strict=True):
        assert (before.name, before.title, before.caption) == (
            after.name,
            after.title,
            after.caption,
        )
        assert (before.columns, before.source) == (after.columns, after.source)
        for a, b in zip(before.panels, after.panels, strict=True):
            assert replace(a, lines=(), image=None) == replace(b, lines=(), image=None)
            for line, other in zip(a.lines, b.lines, strict=True):
                assert (line.label, line.family, line.variant) == (
                    other.label,
                    other.family,
                    other.variant,
                )
                for name in ("x", "y", "band"):
                    mine, its = getattr(line, name), getattr(other, name)
                    assert (mine is None) == (its is None)
                    if mine is not None:
                        np.testing.assert_allclose(its, mine, rtol=1e-8)
            if a.image is not None:
                assert b.image is not None and b.image.label == a.image.label
                np.testing.assert_allclose(b.image.values, a.image.values)
    assert figures_to_json(again) == figures_to_json(the_figures())


def test_json_has_null_for_what_is_not_finite():
    line = Line("diverges", np.arange(4.0), np.array([1.0, np.nan, np.inf, -np.inf]))
    [data] = figures_to_json([Figure("f", "", "", (Panel("x", "y", [line]),))])
    assert data["panels"][0]["lines"][0]["y"] == [1.0, None, None, None]
    json.dumps(data, allow_nan=False)


@pytest.mark.parametrize("length", [801, 5_000, 100_003])
def test_long_curves_are_thinned_and_keep_extremes_ends_and_gaps(length):
    random = np.random.default_rng(0)
    y = random.normal(size=length)
    y[length // 3], y[length // 2] = 50.0, -50.0
    y[-40:-20] = np.nan
    line = Line("long", np.arange(float(length)), y, np.abs(y), "heun", 2)
    [figure] = figures_from_json(figures_to_json([Figure("f", "", "", (Panel("x", "y", [line]),))]))
    thin = figure.panels[0].lines[0]
    assert len(thin.x) == len(thin.y) == len(thin.band) <= 800
    assert (np.nanmax(thin.y), np.nanmin(thin.y)) == (50.0, -50.0)
    assert (thin.x[0], thin.x[-1]) == (0.0, length - 1)
    assert np.all(np.diff(thin.x) > 0) and np.isnan(thin.y).any()
    np.testing.assert_allclose(thin.y, y[thin.x.astype(int)], rtol=1e-8)
    np.testing.assert_allclose(thin.band, np.abs(thin.y))


def test_short_curves_are_kept_as_they_are():
    line = Line("short", np.arange(800.0), np.arange(800.0) ** 2)
    [data] = figures_to_json([Figure("f", "", "", (Panel("x", "y", [line]),))])
    assert data["panels"][0]["lines"][0]["x"] == list(range(800))


# --- the file --------------------------------------------------------------------------------


def test_report_has_every_claim_figure_and_run(folder):
    path = write_report(folder)
    assert path == folder / "report.html"
    page = Page(path.read_text(encoding="utf-8"))
    for claim in THE_CLAIMS:
        for text in (claim.statement, claim.note, claim.origin, claim.id):
            assert text in page.text
    for expected in (
        "Damped Kubo oscillator", "First paragraph.", "Second paragraph.", "Printed wrongly.",
        "Figure 3. Density", "It decays.", "figure 1 of the paper",
        "midpoint", "heun", "mean-square", "path-steps/s", f"jax {jax.__version__}",
        "Philox", "float64", "cpu", "JavaScript is switched off",
    ):  # fmt: skip
        assert expected in page.text
    tags = [tag for tag, _ in page.elements]
    assert tags.count("figure") == tags.count("noscript") == 3


def test_report_shows_numbers_as_a_reader_writes_them(folder):
    text = re.sub(r"\s+", " ", Page(write_report(folder).read_text(encoding="utf-8")).text)
    for number in ("0.5004 ± 0.001", "± 0.003", "3.2·10⁻⁵", "≤ 0.0001", "not finite", "≥ 1 "):
        assert number in text


def test_summary_counts_the_three_kinds(folder):
    html = write_report(folder).read_text(encoding="utf-8")
    counts = re.findall(r'<b class="number">(\d+)</b>', html)
    assert counts == ["2", "1", "1"]
    assert re.findall(r'class="state (\w+)"', html).count("holds") == 2


def test_report_is_self_contained(folder):
    html = write_report(folder).read_text(encoding="utf-8")
    page = Page(html)
    for tag, attributes in page.elements:
        assert "src" not in attributes and "srcset" not in attributes
        assert tag not in ("iframe", "object", "embed", "base")
        address = attributes.get("href") or "#"
        is_file = tag == "a" and address.startswith("data:") and attributes.get("download")
        assert address.startswith("#") or (tag, address) == ("link", "data:,") or is_file
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(|sendBeacon", html)
    assert set(re.findall(r"https?://[^\s\"']+", html)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.slow
def test_same_folder_gives_same_page(folder):
    assert write_report(folder).read_bytes() == write_report(folder).read_bytes()


def test_everything_is_escaped(result):
    line = Line(EVIL, T, T, family=EVIL)
    panel = Panel(EVIL, EVIL, [line], Image(T, T, np.zeros((59, 59)), EVIL), title=EVIL)
    figure = Figure(EVIL, EVIL, EVIL, (panel,), source=EVIL)
    runs = {(EVIL, EVIL): next(iter(result.runs.values()))}
    chapter = Chapter(EVIL, EVIL, EVIL, (EVIL,), (figure,), Result(EVIL, runs))
    claim = Claim(EVIL, EVIL, EVIL, 1.0, 1.0, None, False, EVIL, None, EVIL)
    html = to_html([chapter], [claim])
    page = Page(html)
    assert [tag for tag, _ in page.elements if tag in ("img", "script")] == ["script"] * 2
    assert page.text.count(EVIL) > 10
    assert json.loads(page.scripts[0])[0]["panels"][0]["lines"][0]["label"] == EVIL
    assert "script-src 'sha256-" in html and "default-src 'none'" in html


def test_several_studies_come_in_the_order_of_their_claims(folder, study, result):
    for name in ("b-second", "a-third"):
        write_study(folder, replace(study, name=name, title=f"Study {name}"), [])
        replace(result, study=name).save(folder / f"{name}.npz")
    later = replace(THE_CLAIMS[0], experiment="b-second")
    write_claims(folder / "claims.json", [*THE_CLAIMS, later])
    html = write_report(folder).read_text(encoding="utf-8")
    found = re.findall(r'<section id="study-([\w-]+)"', html)
    assert found == ["kubo", "b-second", "a-third"]


def test_figures_come_first_and_claims_that_hold_are_folded(folder):
    html = write_report(folder).read_text(encoding="utf-8")
    chapter = html[html.index('<section id="study-kubo"') :]
    places = [
        chapter.index(text)
        for text in ('id="figure-energy"', 'id="claim-kubo-d"', '<details class="held">')
    ]
    assert places == sorted(places) and chapter.index('id="claim-kubo-e"') < places[2]
    folded = chapter[places[2] : chapter.index("</details>", places[2])]
    assert 'id="claim-kubo-a"' in folded and 'id="claim-kubo-b-c"' in folded
    assert chapter.index("Printed wrongly.") > places[2], "notes come after figures and claims"


@pytest.mark.slow
def test_films_are_files_beside_the_pictures_and_shown_on_the_page(folder):
    *_, figure = the_figures()
    image = figure.panels[0].image
    film = Film(T[:3], image.x, image.y, np.stack([image.values] * 3), ("x", "v"))
    figure = replace(figure, film=film)
    assert figures_to_json([figure]) == figures_to_json([replace(figure, film=None)])
    assert "data:image/gif" not in write_report(folder).read_text("utf-8")
    *_, file = save_figure(figure, folder / "figures", ["png"])
    assert file.name == "density.gif"
    address = base64.b64encode(file.read_bytes()).decode()
    page = write_report(folder).read_text("utf-8")
    assert page.count("data:image/gif") == 1 and f"data:image/gif;base64,{address}" in page


def test_every_figure_can_be_had_as_files(folder, monkeypatch):
    html = write_report(folder).read_text(encoding="utf-8")
    page = Page(html)
    files = {a["download"]: a["href"] for tag, a in page.elements if "download" in a}
    names = {"energy", "pair", "density"}
    assert set(files) == {f"{name}.{kind}" for name in names for kind in ("svg", "pdf")}
    starts = {"svg": b"<?xml", "pdf": b"%PDF"}
    for name, address in files.items():
        data = base64.b64decode(address.partition("base64,")[2])
        assert data.startswith(starts[name.partition(".")[2]])
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    assert "download=" not in write_report(folder).read_text(encoding="utf-8").split("<script")[0]


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["claims.json", "kubo.json", "kubo.npz"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(str(folder / name))):
        write_report(folder)
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("name", ["claims.json", "kubo.json", "kubo.npz"])
@pytest.mark.parametrize("damage", [b"", b"{", b'{"title": 1}', b"[1]", b"\xff\xfe\x00"])
def test_a_damaged_file_is_named(folder, name, damage):
    (folder / name).write_bytes(damage)
    with pytest.raises(ValueError, match=re.escape(str(folder / name))):
        write_report(folder)


def test_curves_with_coordinates_of_different_lengths_are_refused(folder):
    data = json.loads((folder / "kubo.json").read_text(encoding="utf-8"))
    data["figures"][0]["panels"][0]["lines"][1]["x"].pop()
    (folder / "kubo.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ValueError, match=r"kubo\.json .*Δt = 0\.25.* differ in length"):
        write_report(folder)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match="pip install jinja2"):
        to_html([], [])


# --- in a browser ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    if chromium.PROGRAM is None:
        pytest.skip("needs Chromium")
    with chromium.Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found
        assert found.errors == []


@pytest.fixture
def page(browser: chromium.Browser, folder: Path) -> chromium.Browser:
    browser.open(write_report(folder))
    return browser


def view(page: chromium.Browser, number: int = 0) -> list[float]:
    return json.loads(page.run(f"document.querySelectorAll('.panel')[{number}].dataset.view"))


def place(page: chromium.Browser, number: int = 0) -> tuple[float, float, float, float]:
    """Left, top, width and height of a plot that has been scrolled into view."""
    return page.run(
        f"(() => {{ const plot = document.querySelectorAll('.plot')[{number}];"
        "plot.scrollIntoView({block: 'center'});"
        "const box = plot.getBoundingClientRect();"
        "return [box.left, box.top, box.width, box.height]; })()"
    )


def curves(page: chromium.Browser, number: int = 0) -> int:
    found = f"document.querySelectorAll('.plot')[{number}].querySelectorAll('.curve .line')"
    return page.run(f"[...{found}].filter(line => line.getAttribute('d').length > 50).length")


def spoken(page: chromium.Browser) -> str:
    return page.run("document.querySelector('figure [aria-live]').textContent")


def test_the_numbers_of_a_figure_are_a_table(page):
    def table(number: int) -> list[list[str]]:
        text = page.run(
            "(async () => { let made; const keep = URL.createObjectURL;"
            "URL.createObjectURL = (blob) => { made = blob; return '#'; };"
            f"const link = document.querySelectorAll('figure .files a:last-child')[{number}];"
            "link.addEventListener('click', (event) => event.preventDefault(), { once: true });"
            "link.click(); URL.createObjectURL = keep; return await made.text(); })()"
        )
        return list(csv.reader(io.StringIO(text)))

    head, first, *rows = table(0)
    assert head == ["panel", "curve", "x", "y", "band or value"]
    assert first == ["Mean energy", "midpoint, Δt = 0.5", "0", "1", "0.05"]
    assert len(rows) + 1 == 4 * len(T)
    assert ["Mean energy", "heun, Δt = 0.02", "100", "", ""] in rows, (
        "nothing for what is not finite"
    )
    cells = table(2)[1:]
    assert len(cells) == 12 and cells[-1][1:3] == ["ρ", "0.875"] and cells[-1][4] == "5"
    assert float(cells[-1][3]) == pytest.approx(2 / 3)


def test_all_curves_are_drawn_without_errors(page):
    assert curves(page) == 4 and curves(page, 1) == 4 and curves(page, 2) == 1
    assert page.run("document.querySelectorAll('.plot')[3].querySelectorAll('image').length") == 1
    assert view(page) == [0, 100, 0, 2]
    assert page.errors == []


def test_labels_do_not_become_markup_in_the_browser(browser, folder, study, result):
    figure = replace(the_figures()[0], title=EVIL, caption=EVIL)
    panel = replace(figure.panels[0], title=EVIL, xlabel=EVIL)
    panel = replace(panel, lines=[replace(line, label=EVIL) for line in panel.lines])
    write_study(folder, study, [replace(figure, panels=(panel,))])
    browser.open(write_report(folder))
    assert browser.run("window.broken") is None
    assert browser.run("document.querySelector('.entry span').textContent") == EVIL


@pytest.mark.slow
def test_legend_switches_curves_on_and_off(page):
    page.run("document.querySelectorAll('.entry')[1].click()")
    assert curves(page) == 3
    assert (
        page.run("document.querySelectorAll('.entry')[1].getAttribute('aria-pressed')") == "false"
    )
    page.run("document.querySelectorAll('.entry')[1].click()")
    assert curves(page) == 4
    page.run("document.querySelector('.all').click()")
    assert curves(page) == 0
    page.run("document.querySelector('.all').click()")
    assert curves(page) == 4


@pytest.mark.slow
def test_dragging_zooms_and_double_click_shows_everything(page):
    x, y, width, height = place(page)
    texts = "[...document.querySelectorAll('.plot .axes text')].map(text => text.textContent)"
    before = page.run(texts)
    page.drag((x + 0.3 * width, y + 0.3 * height), (x + 0.6 * width, y + 0.7 * height))
    left, right, low, high = view(page)
    assert 20 < left < 35 and 50 < right < 70 and 0.3 < low < 0.7 and 1.2 < high < 1.7
    assert page.run(texts) != before
    for count in (1, 2):
        page.mouse("pressed", x + width / 2, y + height / 2, clickCount=count)
        page.mouse("released", x + width / 2, y + height / 2, clickCount=count)
    assert view(page) == [0, 100, 0, 2]


@pytest.mark.slow
def test_a_flat_box_zooms_one_axis(page):
    x, y, width, height = place(page)
    page.drag((x + 0.3 * width, y + 0.5 * height), (x + 0.6 * width, y + 0.5 * height + 3))
    left, right, low, high = view(page)
    assert 20 < left < right < 70 and (low, high) == pytest.approx((0, 2))


@pytest.mark.slow
def test_wheel_zooms_only_when_it_is_meant(page):
    x, y, width, height = place(page)
    at = (x + width / 2, y + height / 2)
    page.mouse("moved", *at)
    page.mouse("wheel", *at, deltaX=0, deltaY=-100)
    assert view(page) == [0, 100, 0, 2]
    x, y, width, height = place(page)
    page.mouse("wheel", *at, deltaX=0, deltaY=-100, modifiers=2)
    left, right, _, _ = view(page)
    assert right - left == pytest.approx(100 * np.exp(-0.4))


@pytest.mark.slow
def test_two_fingers_zoom(page):
    x, y, width, height = place(page)
    fingers = [{"x": x + share * width, "y": y + height / 2} for share in (0.4, 0.6)]
    wider = [{"x": x + share * width, "y": y + height / 2} for share in (0.3, 0.7)]
    page.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=fingers)
    page.send("Input.dispatchTouchEvent", type="touchMove", touchPoints=wider)
    page.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    left, right, low, high = view(page)
    assert right - left == pytest.approx(50, rel=0.02) and high - low == pytest.approx(1, rel=0.02)


def test_buttons_zoom(page):
    page.run("document.querySelectorAll('.buttons button')[0].click()")
    assert view(page) == [25, 75, 0.5, 1.5]
    assert page.run("document.querySelectorAll('.buttons button')[2].disabled") is False
    page.run("document.querySelectorAll('.buttons button')[2].click()")
    assert view(page) == [0, 100, 0, 2]


@pytest.mark.slow
def test_pointer_reads_values(page):
    x, y, width, height = place(page)
    page.mouse("moved", x + 0.5 * width, y + 0.95 * height)
    lines = page.run("document.querySelector('.tip').innerText").split("\n")
    label, value, time = lines
    at = float(time.removeprefix("t = "))
    curve = {line.label: line for line in the_figures()[0].panels[0].lines}[label]
    measured, band = value.removeprefix("E(H) = ").split(" ± ")
    assert float(measured) == pytest.approx(np.interp(at, T, curve.y), rel=1e-5)
    assert float(band) == curve.band[0]
    outputs = page.run(
        "[...document.querySelectorAll('.entry output')].slice(0, 4).map(o => +o.value)"
    )
    exact = [np.interp(at, T, line.y) for line in the_figures()[0].panels[0].lines]
    assert outputs == pytest.approx(exact, rel=1e-4)


@pytest.mark.slow
def test_keyboard_reads_and_zooms(page):
    page.run("document.querySelector('.plot').focus()")
    page.press("End")
    page.press("End")
    assert "t = " in spoken(page)
    for _ in range(4):
        page.press("ArrowDown")
    page.press("Home")
    assert "t = 0" in spoken(page)
    first = spoken(page)
    page.press("ArrowRight")
    assert spoken(page) != first and f"t = {T[1]:.5g}"[:8] in spoken(page)
    page.press("ArrowUp")
    label = spoken(page).split(", E(H)")[0]
    assert label != first.split(", E(H)")[0]
    page.press("+", "+")
    assert view(page)[1] - view(page)[0] == pytest.approx(50)
    page.press("End")
    assert view(page)[1] >= 59  # the window follows what is read
    page.press("0", "0")
    assert view(page) == [0, 100, 0, 2]
    page.press("Escape")
    assert page.run("document.querySelector('.tip').hidden")


def test_image_is_read_with_the_keyboard(page):
    page.run("document.querySelectorAll('.plot')[3].focus()")
    seen = []
    for key in ("ArrowUp", "ArrowRight", "ArrowUp"):
        page.press(key)
        text = page.run("document.querySelectorAll('.tip')[3].innerText")
        seen.append(int(text.removeprefix("ρ = ").split("\n")[0]))
    assert seen == [seen[0], seen[0] + 1, seen[0] + 2]


@pytest.mark.slow
def test_everything_can_be_reached_with_the_tabulator(page):
    kinds = "a[href], button, summary, .plot, main"
    assert page.run(f"[...document.querySelectorAll('{kinds}')].every(e => e.tabIndex >= -1)")
    assert page.run(
        "[...document.querySelectorAll('.plot')].every(e => e.getAttribute('aria-label'))"
    )
    assert page.run(
        "[...document.querySelectorAll('button')].every(e => e.innerText.trim() || e.ariaLabel)"
    )
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"


@pytest.mark.parametrize("width", [390, pytest.param(768, marks=pytest.mark.slow), 1280])
def test_page_fits_the_screen(browser, folder, width):
    browser.open(write_report(folder), width=width)
    browser.run("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert browser.run("document.documentElement.scrollWidth") <= width
    shown = "[...document.querySelectorAll('main :not(thead, thead *)')]"
    assert browser.run(f"Math.max(...{shown}.map(e => e.getBoundingClientRect().right))") <= width
    assert curves(browser) == 4


@pytest.mark.slow
@pytest.mark.skipif(not PAPER.is_dir(), reason="needs the results of the paper's size")
def test_the_report_of_the_paper_prints_in_ten_pages(browser, tmp_path):
    """All four studies, on the paper of two continents."""
    browser.open(write_report(shutil.copytree(PAPER, tmp_path / "paper")))
    for width, height in ((8.27, 11.69), (8.5, 11)):
        paper = {"paperWidth": width, "paperHeight": height}
        printed = base64.b64decode(browser.send("Page.printToPDF", **paper)["data"])
        assert 1 < len(re.findall(rb"/Type\s*/Page\b", printed)) <= 10


@pytest.mark.slow
def test_dark_mode_changes_ground_and_curves(browser, folder):
    seen = {}
    for scheme in ("light", "dark"):
        browser.open(write_report(folder), prefers_color_scheme=scheme)
        seen[scheme] = browser.run(
            "(() => { const look = (name) => getComputedStyle(document.querySelector(name));"
            "const body = look('body');"
            "return [body.backgroundColor, body.color, look('.plot .curve').stroke]; })()"
        )
    light, dark = ([sum(map(int, re.findall(r"\d+", c)[:3])) for c in seen[k]] for k in seen)
    assert light[0] > 700 and light[1] < 150 and dark[0] < 100 and dark[1] > 600
    assert seen["light"][2] == "rgb(21, 117, 176)" and seen["dark"][2] == "rgb(109, 180, 255)"
