"""Work and precision: errors of several methods and the time that a path takes."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import dalembert as da
from dalembert.theory import work

KUBO = da.systems.damped_kubo()
START = ([2.0], [0.0])


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "TIMED", 2**14)
        return da.work_precision(
            KUBO, ["midpoint", da.heun()], START, t_end=2.0, steps=(2, 4, 8), exact=1.996
        )


@pytest.mark.slow
def test_every_method_and_step_size_has_an_error_and_a_time(found):
    assert [(p.method, p.dt) for p in found.points] == [
        (name, dt) for name in ("midpoint", "heun") for dt in (1.0, 0.5, 0.25)
    ]
    for p in found.points:
        order = found.orders[p.method]
        assert p.error == order.errors[list(order.dts).index(p.dt)] and p.seconds > 0
    assert str(found).startswith("Weak errors at the end") and "µs a path" in str(found)


@pytest.mark.slow
def test_time_is_that_of_all_steps(monkeypatch):
    monkeypatch.setattr(work, "_seconds_per_step", lambda *_: 3e-6)
    options = {"t_end": 2.0, "kind": "strong", "steps": (4, 8, 16), "paths": 20}
    found = da.work_precision(KUBO, [da.midpoint()], START, **options)
    assert [p.seconds for p in found.points] == pytest.approx([12e-6, 24e-6, 48e-6])
    assert found.kind == "strong" and all(p.stderr > 0 for p in found.points)


def test_one_method_is_compared_with_itself(monkeypatch):
    """And of some times the shortest counts, which nothing has disturbed."""
    times = iter([9e-6, *[5e-6, 3e-6, 7e-6] * 3] * 2)
    monkeypatch.setattr(work, "_seconds_per_step", lambda *_: next(times))
    options = {"t_end": 2.0, "steps": (2, 4, 8), "exact": 1.996, "progress": False}
    for method in ("heun", da.heun()):
        found = da.work_precision(KUBO, method, START, **options)
        assert list(found.orders) == ["heun"]
        assert [p.seconds for p in found.points] == pytest.approx([6e-6, 12e-6, 24e-6])


def test_a_picture(found):
    axes = found.plot()
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["midpoint", "heun"]
    plt.close(axes.figure)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "both"}, 'kind must be "weak" or "strong", not \'both\''),
        ({"methods": ["euler"]}, "no method 'euler': 'heun' comes nearest. There are midpoint,"),
        ({"methods": "euler"}, "there is no method 'euler'"),
        ({"methods": ["heun", "heun"]}, "some different methods, not"),
        ({"kind": "strong", "observe": KUBO.H}, "leave out observe"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, message):
    options = {"methods": ["heun"], "t_end": 1.0} | change
    with pytest.raises(ValueError, match=message):
        da.work_precision(KUBO, options.pop("methods"), START, **options)


@pytest.mark.slow
def test_orders_say_when_more_paths_are_missing():
    """Where noise hides the errors, whatever the reference; and where an interval is wide."""
    pendulum = da.systems.pendulum()
    with pytest.warns(UserWarning, match=r"no order.*take more paths, paths="):
        hidden = da.weak_order(pendulum, da.midpoint(), ([1.0], [0.5]), t_end=2.0, paths=50)
    assert np.isnan(hidden.order) and hidden.dropped == ("its standard error",)


def test_a_wide_interval_says_how_many_paths_make_it_narrow():
    from dalembert.theory.slopes import WIDE, Measured, StrongOrder, estimate

    dts = 1.0 / 2 ** np.arange(5)
    noise = np.random.default_rng(1).normal(size=(5, 100)) * 8
    notes = {}
    for scale in (1.0, 0.05):
        measured = Measured(dts, dts, scale * noise, {"rounding": 0 * dts}, [""] * 5, "nothing")
        found = estimate(StrongOrder, measured, "it", 0.95)
        notes[scale] = found.remedy
        assert (found.interval[1] - found.interval[0] > 2 * WIDE) == bool(found.remedy)
    assert notes[0.05] == "" and "take more paths, paths=" in notes[1.0]
