"""What does not fit in memory is refused before anything runs, with what needs how much."""

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import memory, spare

KUBO = da.systems.damped_kubo()
GIB = 2**30


def first(q, p, params):
    return q[0]


def bins(number, **options):
    return {"h": da.Histogram(da.Axis(first, 0.0, 1.0, bins=number), **options)}


def run(**options):
    settings = {"dt": 0.1, "t_end": 1.0, "paths": 3, "progress": False} | options
    return da.simulate(KUBO, da.midpoint(), ([2.0], [0.0]), **settings)


@pytest.fixture
def four_gib(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 4 * GIB)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"histograms": bins(10**9)}, r"need 2\d.\d GiB of memory \(histograms\['h'\]: 2"),
        ({"histograms": bins(10**8, every_save=True)}, r"memory \(histograms\['h'\]: "),
        (
            {"dt": 1e-7, "paths": 10**5, "workers": 16},
            r"\(observe\['energy'\]: .* GiB, 10,000,001 save times: 0",
        ),
        ({"dt": 1e-9}, r"1,000,000,001 save times: 14.9 GiB"),
        ({"observe": {"wide": lambda q, p, params: jnp.ones(10**8)}}, r"\(observe\['wide'\]: "),
        ({"keep": "all", "paths": 10**8}, r"\(keep='all': 1\d.\d GiB\)"),
    ],
    ids=["bins", "bins at every save", "saves", "many saves", "components", "states"],
)
def test_what_does_not_fit_is_refused(options, message, four_gib):
    with pytest.raises(ValueError, match=message) as refused:
        run(**options)
    assert "this machine has 4.0 GiB to spare: keep less, save less often" in str(refused.value)


def test_what_fits_is_run(four_gib):
    result = run(dt=1e-3, histograms=bins(10**5), keep="all")
    assert len(result.t) == 1001 and result.histograms["h"].counts.shape == (10**5,)


def test_bins_that_cannot_be_numbered_are_refused():
    axis = da.Axis(first, 0.0, 1.0, bins=50_000)
    with pytest.raises(ValueError, match="2,500,000,000 bins are too many: a histogram has at"):
        da.Histogram(axis, axis)


def test_the_estimate_follows_what_is_held_in_the_end():
    """The result alone is at most what was estimated, and not less than a tenth of it."""
    options = {"dt": 1e-3, "paths": 200, "histograms": bins(1000, every_save=True), "keep": "all"}
    estimates = []

    def note(settings, shapes, workers, ends=0):
        if shapes:
            needed = memory.needed_memory(settings, shapes, workers)
            estimates.append(sum(needed.values()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dalembert.ensemble.ready.check_memory", note)
        result = run(**options, workers=1)
    held = [result.t, result.q, result.p, *result.counts.values(), *result.moments["energy"]]
    size = sum(np.asarray(x).nbytes for x in held)
    assert size <= estimates[0] <= 10 * size


@pytest.mark.parametrize(
    ("member", "names", "inactive"),
    [
        ("0::/queue/job", ("max", "current"), "inactive_file 100"),
        (
            "4:cpu,memory:/queue/job",
            ("limit_in_bytes", "usage_in_bytes"),
            "total_inactive_file 100",
        ),
    ],
)
def test_a_job_has_the_memory_that_it_was_given(tmp_path, monkeypatch, member, names, inactive):
    """Both versions of control groups; the narrowest of nested ones counts."""
    top = tmp_path / "memory" if "memory" in member else tmp_path
    for folder, limit in (("queue", "9000"), ("queue/job", "5000")):
        (top / folder).mkdir(parents=True)
        for name, text in zip(
            (*names, "stat"), (limit, "1000", f"anon 3\n{inactive}"), strict=True
        ):
            (top / folder / f"memory.{name}").write_text(f"{text}\n")
    (tmp_path / "member").write_text(f"1:name=systemd:/\n{member}\n")
    monkeypatch.setattr(spare, "GROUPS", tmp_path)
    monkeypatch.setattr(spare, "MEMBERSHIP", tmp_path / "member")
    assert spare.available_memory() == 5000 - 1000 + 100
    (top / "queue/job" / f"memory.{names[0]}").write_text("max\n")
    assert spare.available_memory() == 9000 - 1000 + 100
    monkeypatch.setattr(spare, "MEMBERSHIP", tmp_path / "none")
    assert spare.available_memory() > 2**20
