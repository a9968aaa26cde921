"""The paper's studies: every experiment in small, its files, its figures and its claims."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import dalembert as da
from dalembert.arguments import name_in
from dalembert.commands import app
from dalembert.ensemble.failures import Failures
from dalembert.ensemble.observed import Observed
from dalembert.ensemble.run import Run
from dalembert.statistics import Mean
from dalembert.statistics.statistic import not_saved
from dalembert.studies import (
    OTHER_STUDIES,
    STUDIES,
    Case,
    Claim,
    ClaimList,
    Part,
    Result,
    Study,
)
from dalembert.studies import lenard_bernstein_claims as lb_claims
from dalembert.studies import lenard_bernstein_study as lb
from dalembert.studies.claims import FIELDS, read_claims, unexplained, write_claims
from dalembert.studies.curves import density_distance, expected_distance
from dalembert.studies.lorentz_study import _change
from dalembert.studies.report import write_report
from dalembert.studies.reproduce import override, reproduce
from dalembert.studies.statements import (
    claim_overlap,
    claim_sampling_error,
    claim_stays_near,
    claim_unbounded_increments,
)
from dalembert.studies.study import _file_name, load_result
from tiers import tiered

EXAMPLES = Path(__file__).parents[2] / "examples"
FIGURES = {"kubo": 2, "vanderpol": 2, "lenard-bernstein": 5, "lorentz": 2}
METHODS = {
    "kubo": ["midpoint", "rs1"],
    "vanderpol": ["stormer_verlet", "rs2"],
    "lenard-bernstein": ["midpoint", "rs1"],
    "lorentz": ["heun", "rs2"],
}

NOTES = {"reference", "stationary"}
"""Claims that hold and have something else to say."""


def small(name):
    study = override(STUDIES[name]("quick"), METHODS[name], paths=64)
    times = {part.name: part.save_times for part in study.parts}
    return override(study, t_end=10 * max(times.values()))


@pytest.mark.parametrize("name", tiered(STUDIES, fast=["vanderpol"]))
def test_every_study_runs_and_leaves_its_files(name, tmp_path):
    study = small(name)
    claims = reproduce(study, tmp_path)
    assert len(list((tmp_path / "figures").glob("*.svg"))) == FIGURES[name]
    result = load_result(tmp_path / f"{name}.npz")
    assert {label for _, label in result.runs} == {c.label for p in study.parts for c in p.cases}
    run = next(iter(result.runs.values()))
    assert np.isfinite(run.mean["energy"]).all()
    rows = json.loads((tmp_path / "claims.json").read_text())
    assert [row["id"] for row in rows] == [claim.id for claim in claims]
    assert all(list(row)[: len(FIELDS)] == list(FIELDS) for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)
    assert not (tmp_path / "unfinished").exists()


@pytest.mark.parametrize("size", ["quick", "paper"])
def test_the_paper_has_eleven_figures_and_its_sample_sizes(size):
    assert sum(FIGURES.values()) == 11
    paths = [max(p.paths for p in make(size).parts) for make in STUDIES.values()]
    if size == "paper":
        assert paths == [50_000, 10**6, 10**7, 10**6]
        times = [tuple(p.t_end for p in make(size).parts) for make in STUDIES.values()]
        assert times == [(5000, 5000), (5000, 5000), (999, 999), (100_000, 10_000)]
        assert STUDIES["lorentz"](size).parts[0].paths == 1
    for make in STUDIES.values():
        study = make(size)
        for part in study.parts:
            for case in part.cases:
                ratio = part.save_times / case.dt
                assert abs(ratio - round(ratio)) < 1e-9, (study.name, case)
                assert abs(part.t_end / case.dt - round(part.t_end / case.dt)) < 1e-6


def test_one_path_is_the_same_for_all_methods_and_steps():
    part = STUDIES["lorentz"]("quick").parts[0]
    fine = part.noise(part, Case("heun", 0.005)).increments
    coarse = part.noise(part, Case("midpoint", 0.05)).increments
    np.testing.assert_allclose(coarse.dW, fine.dW.reshape(-1, 10, 1).sum(axis=1), atol=1e-12)


def tiny_study(claims):
    system = da.systems.damped_kubo()
    part = Part("all", (Case("heun", 0.1),), ([2.0], [0.0]), 1.0, 8, 0.5)
    return Study("tiny", "A tiny study", "Nothing to see.", system, (part,), claims=claims)


@pytest.mark.parametrize(
    ("measured", "note", "status"), [(1.0, "", 0), (3.0, "", 1), (3.0, "known to fail", 0)]
)
def test_the_exit_status_says_whether_the_claims_hold(tmp_path, measured, note, status):
    file = tmp_path / "study.py"
    file.write_text(
        "import dalembert as da\n"
        "from dalembert.studies import Case, ClaimList, Part, Study\n"
        "def claims(result):\n"
        "    found = ClaimList('tiny')\n"
        f"    found.below('bound', 'A number is small.', {measured}, 2.0, '…', note={note!r})\n"
        "    return found\n"
        "part = Part('all', (Case('heun', 0.1),), ([2.0], [0.0]), 1.0, 8, 0.5)\n"
        "study = Study('tiny', 'Tiny', 'Text.', da.systems.damped_kubo(), (part,), claims=claims)\n"
    )
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(out)])
    assert done.exit_code == status, done.output
    assert ("does not hold" in done.output) == (measured > 2)
    page = CliRunner().invoke(app, ["report", str(out)])
    assert page.exit_code == 0 and "A number is small." in (out / "report.html").read_text()


@pytest.mark.slow
def test_the_program_reproduces_a_study_with_other_numbers(tmp_path):
    numbers = ["--param", "nu=0.05", "--param", "E0=1"]
    given = ["lenard_bernstein", "--size", "quick", *numbers, "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["reproduce", *given])
    assert done.exit_code == 0, done.output
    claims = read_claims(tmp_path / "claims.json")
    assert len(claims) > 30 and f"{len(claims)} of {len(claims)} claims hold" in done.output
    told = json.loads((tmp_path / "lenard-bernstein.json").read_text(encoding="utf-8"))
    assert "ν = 0.05" in told["text"] and "E₀ = 1." in told["text"]
    assert "not the paper's numbers" in told["notes"][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["double_well", "thermostat"])
def test_examples_of_studies_do_what_they_say(name, tmp_path):
    out = tmp_path / name
    run = ["run", str(EXAMPLES / f"study_{name}.py"), "--out", str(out)]
    for arguments in (run, ["report", str(out)]):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
    claims = read_claims(out / "claims.json")
    assert len(claims) == (4 if name == "thermostat" else 0)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"study-{name.replace('_', '-')}" in page and page.count("<figure") >= 1


def study_of(names, paths=8, t_end=1.0):
    """Cases that differ in the names of their methods alone."""
    cases = tuple(Case("heun", 0.1, name) for name in names)
    part = Part("all", cases, ([2.0], [0.0]), t_end, paths, 0.5)
    return Study("tiny", "A tiny study", "Nothing to see.", da.systems.damped_kubo(), (part,))


def test_every_case_has_a_checkpoint_of_its_own(tmp_path):
    names = ["a+", "a-", "a−", "A+", "a_", "a", "a-b", "é", "e\u0301", "x" * 300, "x" * 301]
    [part] = study_of(names).parts
    other = replace(part, name="all-a")
    files = {_file_name(p, case).lower() for p in (part, other) for case in part.cases}
    assert len(files) == 2 * len(names)
    assert all(file.isascii() and "/" not in file and len(file) < 150 for file in files)
    assert _file_name(part, part.cases[0]).startswith("all-a_t_0.1-")
    study_of(["a+", "a-"]).run(tmp_path)
    assert sum(file.suffix == ".ckpt" for file in tmp_path.iterdir()) == 2


def test_all_runs_of_a_study_are_in_the_contexts_of_its_caller():
    """Single paths too, which run in threads of their own."""
    cases = (Case("heun", 0.1),)
    parts = tuple(Part(f"{n}", cases, ([2.0], [0.0]), 1.0, n, 1.0) for n in (1, 2))
    study = Study("own", "Own", "Text.", da.systems.damped_kubo(), parts)
    with jax.default_matmul_precision("highest"):
        runs = study.run().runs.values()
    told = [run.provenance["jax"]["jax_default_matmul_precision"] for run in runs]
    assert told == ["highest", "highest"]


def test_a_study_deletes_its_own_checkpoints_alone(tmp_path):
    unfinished = tmp_path / "unfinished" / "tiny"
    unfinished.mkdir(parents=True)
    study_of(["b"]).run(unfinished)
    [other] = unfinished.glob("*.ckpt")
    notes = unfinished / "notes.txt"
    notes.write_text("mine")
    reproduce(study_of(["a"]), tmp_path)
    assert sorted(unfinished.iterdir()) == sorted([notes, other])
    notes.unlink()
    reproduce(study_of(["a", "b"]), tmp_path)
    assert not (tmp_path / "unfinished").exists()


def test_claims_compare_as_they_say(tmp_path):
    claims = ClaimList("some")
    claims.close("near", "…", 1.0, 1.1, 0.2, "…", stderr=0.1)
    claims.close("far", "…", 1.0, 1.1, 0.05, "…")
    claims.below("under", "…", 1.0, 1.1, "…")
    claims.above("over", "…", 1.0, 1.1, "…", note="because")
    claims.close("lost", "…", float("nan"), 1.1, 9.9, "…")
    assert [c.holds for c in claims] == [True, False, True, False, False]
    assert [c.side for c in claims] == ["both", "both", "below", "above", "both"]
    assert [c.tolerance for c in claims] == [0.2, 0.05, None, None, 9.9]
    assert [c.id for c in unexplained(claims)] == ["far", "lost"]
    write_claims(tmp_path / "claims.json", claims)
    again = read_claims(tmp_path / "claims.json")
    assert again[:4] == list(claims)[:4] and np.isnan(again[4].measured)
    assert isinstance(again[0], Claim)


def test_a_side_that_is_none_is_refused():
    with pytest.raises(ValueError, match="one of both, below, above, not 'left'"):
        Claim("a", "some", "…", 1.0, 1.0, None, True, "…", side="left")


def a_run(mean, spread=1.0, paths=100, t=(0.0, 1.0, 2.0), **more):
    """A run with these mean energies, all of one spread."""
    mean, count = np.asarray(mean, float), np.full(len(t), float(paths))
    fields = ("count", "mean", "deviations", "minimum", "maximum")
    data = dict(zip(fields, (count, mean, spread**2 * (count - 1), mean, mean), strict=True))
    observed = {"observe/energy": Observed(Mean(not_saved), data)}
    about = {"paths": paths, "t_end": t[-1], "dt": 1.0}
    kept = {name: more[name] for name in "qp" if name in more}
    failures = Failures(unconverged=more.get("failed", 0))
    return Run(np.asarray(t), observed, failures, 0, 0.0, 0, kept, about)


def test_curves_that_differ_do_not_overlap():
    runs = {"a": a_run([1, 2, 3]), "b": a_run([1, 2, 3.5]), "c": a_run([1, 2, 4])}
    claims = ClaimList("some")
    for other in ("b", "c", "not there"):
        claim_overlap(claims, runs, "a", other, 0.01)
    assert [claim.holds for claim in claims] == [True, False]
    near, far = claims
    assert near.measured == 0.5 and far.measured == 1.0
    assert near.stderr == pytest.approx(np.sqrt(2) / 10)
    assert near.expected == pytest.approx(0.035 + 5 * near.stderr)


def test_a_curve_that_leaves_the_limit_is_not_near():
    claims = ClaimList("some")
    for last in (1.4, 1.6):
        claim_stays_near(claims, str(last), a_run([9.0, 1.0, last]), 1.0, 1.0, 0.05)
    assert [claim.holds for claim in claims] == [True, False]


def test_printed_errors_are_bounds_or_values():
    claims, run = ClaimList("some"), a_run([1.0, 1.0, 1.0], spread=0.5, paths=10_000)
    for printed in (0.02, 0.05, 0.1):
        claim_sampling_error(claims, f"{printed:g}", run, printed, 100)
        claim_sampling_error(claims, f"{printed:g}", run, printed, 100, is_reached=True)
    # The relative error is 0.005 at 10⁴ paths, so 0.05 at 100; that is known to 75 per cent.
    assert [claim.holds for claim in claims] == [False, False, True, True, True, True]
    claim_sampling_error(claims, "more", run, 0.5, 100, is_reached=True)
    assert not claims[-1].holds


def test_failed_paths_are_numerical_issues():
    for failed in (0, 1):
        claims = ClaimList("some")
        claim_unbounded_increments(claims, {"dirk, Δt = 1": a_run([1, 1, 1], failed=failed)})
        assert [claim.holds for claim in claims] == [not failed]
    claim_unbounded_increments(claims := ClaimList("some"), {"heun": a_run([1, 1, 1], failed=9)})
    assert not claims


def test_changes_of_energy_come_with_the_error_of_paired_paths():
    rng = np.random.default_rng(3)
    # From x = 0 the potential is zero, so that H = |v|²/2.
    q, p = np.zeros((2, 400, 2)), rng.normal(size=(2, 400, 2))
    p[1] = p[0] * np.sqrt(1 + 0.01 * rng.normal(size=(400, 1)))
    paired, alone = (
        _change(a_run([1.0, 1.1], paths=400, t=(0.0, 1.0), **kept))
        for kept in ({"q": q, "p": p}, {})
    )
    assert alone == (pytest.approx(0.1), pytest.approx(1 / 20))
    energy = (p**2).sum(axis=-1) / 2
    assert paired[0] == pytest.approx((energy[1] - energy[0]).mean())
    assert paired[1] == pytest.approx(np.std(energy[1] - energy[0], ddof=1) / 20)
    assert paired[1] < alone[1] / 20


def test_statements_about_the_processes_need_no_runs():
    claims = {claim.id: claim for claim in STUDIES["vanderpol"]("quick").claims(Result("none", {}))}
    assert claims["reference"].holds and claims["stationary"].holds
    assert claims["reference"].measured == 2.3165
    assert claims["reference"].expected == pytest.approx(2.315959, abs=1e-6)
    assert "Monte Carlo" in claims["reference"].note
    claims = {claim.id: claim for claim in STUDIES["lorentz"]("quick").claims(Result("none", {}))}
    assert claims["energy of the equations"].holds
    printed = claims["energy of the printed forces"]
    assert not printed.holds and "Erratum 3" in printed.note


OTHER = {
    "kubo": {"nu": 0.002},
    "vanderpol": {"sigma": 0.04},
    "lenard-bernstein": {"nu": 0.05, "E0": 1.0},
    "lorentz": {"E0": 1.0},
}


@pytest.mark.parametrize("name", STUDIES)
def test_texts_systems_and_notes_follow_other_numbers(name):
    paper, other = STUDIES[name](), STUDIES[name](**OTHER[name])
    assert other.system.params == paper.system.params | OTHER[name]
    assert other.text != paper.text and "not the paper's numbers" in other.notes[0]
    for key, value in OTHER[name].items():
        assert f" = {value:g} instead of" in other.notes[0], key
    assert not any("not the paper's numbers" in note for note in paper.notes)
    same = STUDIES[name](**{key: paper.system.params[key] for key in OTHER[name]})
    assert same.text == paper.text and same.notes == paper.notes


def test_figures_are_those_of_the_paper_with_its_numbers_alone():
    for name, sources in {"kubo": {"figure 1"}, "vanderpol": {"figure 3", "figure 4"}}.items():
        for numbers, expected in (({}, sources), (OTHER[name], {""})):
            study = STUDIES[name](**numbers)
            part = study.parts[0]
            runs = {(part.name, case.label): a_run([1.0, 1.0, 1.0]) for case in part.cases}
            assert {figure.source for figure in study.figures(Result("x", runs))} == expected


def test_the_papers_numbers_are_the_defaults_of_the_systems():
    systems = {"kubo": "damped_kubo", "vanderpol": "van_der_pol"}
    for name, make in STUDIES.items():
        own = da.SYSTEMS[systems.get(name, name.replace("-", "_"))]()
        assert make().system.params == own.params, name


def test_claims_follow_other_numbers_and_those_of_the_paper_alone_are_left_out():
    """Of a made run: its energy is at the limit of one set of numbers, or at that of the other."""
    own = {"nu": 0.05, "E0": 1.0}
    limits = {"paper": 0.4717045, "other": float(lb_claims.ergodic_energy(E0=1.0))}
    label = "midpoint, Δt = 0.1"
    for limit in limits:
        run = a_run([limits[limit]] * 3, t=(0.0, 500.0, 999.0), paths=10**8)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lb_claims, "OVERLAP_GIBBS", {})
            studies = {"paper": STUDIES["lenard-bernstein"](), "other": lb.lenard_bernstein(**own)}
            found = {
                key: {c.id: c for c in study.claims(Result("x", {("mean-square", label): run}))}
                for key, study in studies.items()
            }
        for key, claims in found.items():
            assert claims[f"limit {label}"].expected == pytest.approx(limits[key], abs=1e-6)
        assert f"Monte Carlo {label}" in found["paper"]
        assert f"Monte Carlo {label}" not in found["other"]
        assert found["other"]["ergodic energy"].holds
    hard = lb.lenard_bernstein(E0=30.0)
    assert "claims about the limit" in hard.notes[0]
    ids = {c.id for c in hard.claims(Result("x", {("mean-square", label): run}))}
    assert ids == {"ergodic energy", "initial", "unbounded increments"}


@pytest.mark.parametrize(
    ("name", "numbers", "message"),
    [
        ("kubo", {"nu": 2.5}, "nu is 2.5, but must be in 0 <= nu < 2"),
        ("vanderpol", {"sigma": 0.0}, "sigma is 0.0, but must be above 0"),
        ("lenard-bernstein", {"mu": 0.0}, "mu is 0.0, but must be above 0"),
        ("lorentz", {"nu": -1.0}, "nu is -1.0, but must be at least 0"),
    ],
)
def test_numbers_without_a_reference_are_refused_before_anything_is_run(name, numbers, message):
    with pytest.raises(ValueError, match=message):
        STUDIES[name](**numbers)


def test_names_are_known_with_hyphens_underscores_or_neither():
    names = {"lenard_bernstein": "lenard-bernstein", "van-der-pol": "vanderpol", "kubo": "kubo"}
    assert {name: name_in(STUDIES, name) for name in names} == names
    assert name_in(da.SYSTEMS, "Van-der-Pol") == "van_der_pol"
    assert name_in(da.METHODS, "stormer-verlet") == "stormer_verlet"
    assert name_in(STUDIES, "hooke") == "hooke"


def test_a_renamed_study_and_other_files_beside_it_make_a_report(tmp_path):
    claim = Claim("a", "tiny", "One is one.", 1.0, 1.0, 0.0, True, "arithmetic")
    renamed = replace(tiny_study(lambda result: [claim]), name="mine")
    claims = reproduce(renamed, tmp_path)
    assert {claim.experiment for claim in claims} == {"mine"}
    next(iter(renamed.run().runs.values())).save(tmp_path / "run.npz")
    assert 'id="study-mine"' in write_report(tmp_path).read_text(encoding="utf-8")


def test_overrides_are_checked():
    study = STUDIES["kubo"]("quick")
    with pytest.raises(ValueError, match=r"kubo has no method euler; it has dirk, e1"):
        override(study, ["euler"])
    changed = override(study, ["midpoint", "dirk"], paths=10, t_end=100.0, dt=0.25)
    (part,) = changed.parts
    assert [c.label for c in part.cases] == ["midpoint, Δt = 0.25", "dirk, Δt = 0.25"]
    assert part.paths == 10 and part.t_end == 100.0
    assert changed.notes[0].startswith(
        "Not as the study is by itself: midpoint and dirk alone, to t = 100, in steps of 0.25. "
    )
    assert override(study, paths=10).notes == study.notes


def test_figures_of_other_times_are_none_of_the_paper(tmp_path):
    options = ["--method", "midpoint", "--t-end", "58", "--paths", "8", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["reproduce", "kubo", *options])
    assert done.exit_code == 0 and "Claims about other methods" in done.output
    assert "\n  to t = 50\n" in done.output, "a whole number of saves"
    figures = json.loads((tmp_path / "kubo.json").read_text(encoding="utf-8"))["figures"]
    assert [figure["source"] for figure in figures] == [""]
    study = override(STUDIES["kubo"]("quick"), paths=8)
    (part, _) = study.parts
    part = replace(part, cases=part.cases[:1], t_end=50.0)
    study = replace(study, parts=(part,))
    assert [figure.source for figure in study.figures(study.run())] == ["figure 1"]


def test_names_and_labels_of_a_study_are_checked():
    study = tiny_study(lambda result: ())
    for name in ("claims", "a/b", ""):
        with pytest.raises(ValueError, match="a study needs a name"):
            replace(study, name=name)
    part = replace(study.parts[0], cases=(Case("heun", 0.1), Case("heun", 0.1)))
    with pytest.raises(ValueError, match="two cases with the same label"):
        replace(study, parts=(part,))
    for option in ({"dt": 0.0}, {"t_end": -1.0}):
        with pytest.raises(ValueError, match="must be a positive number"):
            override(study, **option)


def test_a_step_that_misses_the_save_times_is_refused():
    study = tiny_study(lambda result: ())
    part = replace(study.parts[0], cases=(Case("heun", 0.3),))
    with pytest.raises(ValueError, match=r"0.3 of heun does not divide the distance 0.5"):
        replace(study, parts=(part,)).run()


def test_cases_take_the_names_of_all_methods():
    assert Case("baoab", 0.1).tableau == da.baoab()
    with pytest.raises(ValueError, match=r"no method 'hoin': there are midpoint, .* baoab"):
        _ = Case("hoin", 0.1).tableau


def test_the_help_names_every_study():
    shown = CliRunner().invoke(app, ["reproduce", "--help"]).output
    assert not [name for name in (*STUDIES, *OTHER_STUDIES, "all") if name not in shown]


def test_bad_arguments_of_the_program():
    for arguments, message in (
        (["reproduce", "hooke"], "no study 'hooke'"),
        (["reproduce", "kubo", "--size", "huge"], "no size 'huge'"),
        (["reproduce", "kubo", "--method", "euler"], "kubo has no method euler"),
        (["reproduce", "kubo", "--param", "gamma=1"], "there is no parameter 'gamma'"),
        (["reproduce", "kubo", "--param", "nu"], "--param needs NAME=NUMBER"),
        (["reproduce", "all", "--param", "nu=1"], "--param is for one study"),
        (["report", "nowhere"], "claims.json"),
        (["run", "nowhere.py"], "no such file"),
    ):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2 and message in done.output, done.output


def test_distances_between_densities():
    rng = np.random.default_rng(1)
    counts, edges = np.histogram(rng.normal(size=100_000), bins=50, range=(-5, 5))
    binned = da.Binned(counts, np.asarray(0), (edges,))

    def normal(mean):
        return lambda x: np.exp(-((x - mean) ** 2) / 2) / np.sqrt(2 * np.pi)

    assert density_distance(binned, normal(0.0)) < 2 * expected_distance(binned)
    assert density_distance(binned, normal(0.1)) > 4 * expected_distance(binned)
    for mean, is_same in ((0.0, True), (0.1, False)):
        counts, _ = np.histogram(rng.normal(mean, size=100_000), edges)
        other = da.Binned(counts, np.asarray(0), (edges,))
        assert (density_distance(binned, other) < 2 * expected_distance(binned, other)) == is_same


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_every_method_can_be_run_alone_at_another_step_and_time(name, tmp_path):
    study = STUDIES[name]("quick")
    for method in sorted({case.family for part in study.parts for case in part.cases}):
        alone = override(study, [method], paths=8, dt=0.25 if name != "lorentz" else 0.05)
        alone = override(alone, t_end=10 * max(part.save_times for part in alone.parts))
        reproduce(alone, tmp_path / method)
        cases = load_result(tmp_path / method / f"{name}.npz").cases()
        assert {case.family for case in cases} == {method}
        assert any((tmp_path / method / "figures").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_all_claims_of_the_quick_size_hold(name, tmp_path):
    claims = reproduce(STUDIES[name]("quick"), tmp_path)
    assert claims and not unexplained(claims)
    # What has a note and holds must not be something that is excused.
    assert {claim.id for claim in claims if claim.holds and claim.note} <= NOTES
