"""Figures on paper: complete, the same every time, and readable by everybody."""

import itertools
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from dalembert.studies.draw import DASHES, STYLES, draw, save_figure, styles_of
from dalembert.studies.figures import Figure, Image, Line, Panel

T = np.linspace(0.0, 10.0, 50)
MEAN_SQUARE = ("midpoint", "stormer_verlet", "dirk", "heun", "r2", "e1")
WEAK = ("srkw1", "srkw2", "rs1", "rs2")


def a_line(family: str, variant: int = 0, shift: float = 0.0) -> Line:
    y = np.exp(-T / 5) + shift
    return Line(f"{family}, Δt = 0.{variant + 1}", T, y, 0.05 + 0 * T, family, variant)


def a_figure(*lines: Line, **options) -> Figure:
    panel = Panel("t", "E(H)", lines, title="Mean energy", **options)
    return Figure("energy", "Mean energy", "It decays.", (panel,))


def test_every_curve_is_drawn_with_its_band_and_named_once():
    lines = [a_line("midpoint"), a_line("midpoint", 1, 0.1), Line("exact", T, np.exp(-T / 5))]
    panels = (Panel("t", "E(H)", lines), Panel("t", "difference", lines[:2], ylim=(-1.0, 1.0)))
    canvas = draw(Figure("two", "Two panels", "", panels, columns=2))
    above, below = canvas.axes
    assert len(above.lines) == 3 and len(above.collections) == 2
    assert len(below.lines) == 2 and below.get_ylim() == (-1.0, 1.0)
    (legend,) = canvas.legends
    assert [text.get_text() for text in legend.get_texts()] == [line.label for line in lines]
    np.testing.assert_array_equal(above.lines[0].get_ydata(), lines[0].y)


def test_band_has_the_height_that_was_asked_for():
    canvas = draw(a_figure(a_line("dirk")))
    corners = canvas.axes[0].collections[0].get_paths()[0].vertices
    height = np.ptp(corners[np.isclose(corners[:, 0], T[7]), 1])
    assert height == pytest.approx(0.1)


def test_legend_is_outside_the_axes():
    canvas = draw(a_figure(*(a_line(family) for family in MEAN_SQUARE)))
    FigureCanvasAgg(canvas).draw()
    legend = canvas.legends[0].get_window_extent()
    assert legend.y1 <= canvas.axes[0].get_tightbbox().y0 + 1


def test_image_has_a_colour_bar():
    image = Image(np.linspace(0, 1, 4), np.linspace(-1, 1, 3), np.arange(6.0).reshape(3, 2), "ρ")
    canvas = draw(Figure("image", "", "", (Panel("x", "v", image=image),)))
    axes, bar = canvas.axes
    assert bar.get_ylabel() == "ρ" and not canvas.legends
    np.testing.assert_array_equal(axes.collections[0].get_array(), image.values.T)


def test_values_that_are_not_finite_leave_gaps():
    y = np.array([1.0, np.inf, np.nan, 4.0])
    canvas = draw(a_figure(Line("diverges", np.arange(4.0), y, family="heun")))
    drawn = canvas.axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(np.isnan(drawn), [False, True, True, False])


def test_labels_are_taken_literally():
    panel = Panel("$x", "y_{$", [Line("<b>$\\frac{1}$", T, T, family="$")], title="100 $")
    canvas = draw(Figure("odd", "", "", (panel,)))
    FigureCanvasAgg(canvas).draw()
    assert canvas.axes[0].get_xlabel() == "$x"


def test_a_figure_without_panels_is_refused():
    with pytest.raises(ValueError, match="'nothing' has no panels"):
        draw(Figure("nothing", "", ""))


# --- files -----------------------------------------------------------------------------------


def test_files_are_the_same_every_time_and_in_threads(tmp_path):
    figure = a_figure(a_line("midpoint"), a_line("heun"))
    folders = [tmp_path / str(i) for i in range(3)]
    once = save_figure(figure, folders[0])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda folder: save_figure(figure, folder), folders[1:]))
    assert [file.name for file in once] == ["energy.svg", "energy.pdf", "energy.png"]
    for file in once:
        for folder in folders[1:]:
            assert (folder / file.name).read_bytes() == file.read_bytes()


def test_files_have_vector_fonts_a_title_and_no_date(tmp_path):
    svg, pdf = save_figure(a_figure(a_line("midpoint")), tmp_path, ("svg", "pdf"))
    text = svg.read_text()
    assert "<dc:date>" not in text and "Mean energy" in text and "<image" not in text
    assert b"/FontType 3" not in pdf.read_bytes() and b"CreationDate" not in pdf.read_bytes()


def test_settings_of_the_user_are_left_alone(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    save_figure(a_figure(a_line("midpoint")), tmp_path, ("png",))
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in _modules_after("import dalembert.studies.draw")


def test_drawing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        draw(Figure("f", "", "", (Panel("x", "y"),)))


@pytest.mark.slow
def test_import_needs_no_matplotlib_and_drawing_says_what_to_install():
    assert "matplotlib" not in _modules_after("import dalembert.studies.draw")
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from dalembert.studies.draw import draw\n"
        "from dalembert.studies.figures import Figure, Panel\n"
        "draw(Figure('f', '', '', (Panel('x', 'y'),)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pip install matplotlib" in result.stderr


def _modules_after(statement: str) -> list[str]:
    script = f"{statement}; import sys; print(*sys.modules)"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()


# --- styles ----------------------------------------------------------------------------------


def test_every_family_has_its_style_and_strangers_get_free_ones():
    styles = styles_of(["reference", "mine", "dirk(0.5)", "yours", "dirk(0.25)", "midpoint"])
    assert styles["dirk(0.5)"] == STYLES["dirk"] and styles["midpoint"] == STYLES["midpoint"]
    assert len(set(styles.values())) == len(styles)
    assert styles["reference"].marker == "" and styles["reference"].light == "#000000"


def test_there_are_styles_for_any_number_of_families():
    styles = styles_of([f"method {i}" for i in range(30)])
    assert len(styles) == 31 and set(STYLES.values()) <= set(styles.values())


def _lightness(colour: str) -> float:
    """L* of a colour, from 0 (black) to 100 (white)."""
    srgb = np.array([int(part, 16) for part in re.findall("..", colour[1:])]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    return float(116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16)


@pytest.mark.parametrize("families", [MEAN_SQUARE, WEAK])
def test_methods_differ_in_grey_by_lightness_and_by_marker(families):
    for a, b in itertools.combinations((STYLES[name] for name in families), 2):
        assert a.marker != b.marker
        assert abs(_lightness(a.light) - _lightness(b.light)) > 3
    assert len(set(DASHES)) == len(DASHES)


def test_colours_stand_out_from_their_ground():
    for style in STYLES.values():
        # L* of 62 on white and of 54 on near-black give a contrast of 3.
        assert _lightness(style.light) < 62 and _lightness(style.dark) > 54
