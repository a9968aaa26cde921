"""Pictures of two panels are cut between them, all others stay whole."""

import importlib.util
from io import BytesIO
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def hook():
    """docs/panels_hook.py, which cuts the pictures of the documentation."""
    pytest.importorskip("PIL")
    path = Path(__file__).parents[2] / "docs" / "panels_hook.py"
    spec = importlib.util.spec_from_file_location("panels_hook", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def picture(panels, title=None):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), dpi=144, layout="constrained")
    for axes in figure.subplots(1, panels, squeeze=False)[0]:
        axes.plot([1, 2], [3000, 4000])
        axes.set(xlabel="t", ylabel="energy")
    if title:
        figure.suptitle(title)
    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def test_two_panels_are_two_pictures(hook):
    left, right = hook.cut(picture(2))
    assert left[0] + right[0] == 1296
    # The labels of the right panel are on its own picture: the halves are nearly as wide.
    assert abs(left[0] - right[0]) < 50
    assert all(png.startswith(b"\x89PNG") for _, png in (left, right))


@pytest.mark.parametrize("made", [(1,), (3,), (2, "one title of both panels")])
def test_others_stay_whole(hook, made):
    assert hook.cut(picture(*made)) is None
