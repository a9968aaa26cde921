"""The study of plasmas: what it runs, and that its claims can fail."""

from types import SimpleNamespace

import numpy as np
import pytest

from dalembert.plasma import linear
from dalembert.studies import OTHER_STUDIES, Result, plasma_study
from dalembert.studies.plasma_claims import OPPOSITE, anisotropy_left, beam_slope
from dalembert.studies.reproduce import override, reproduce

plasma = OTHER_STUDIES["plasma"]


@pytest.fixture(scope="module")
def studies():
    """Both sizes with few particles, for what does not depend on their number."""
    few = {size: dict.fromkeys(numbers, 2**10) for size, numbers in plasma_study.SIZES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plasma_study, "SIZES", few)
        return {size: plasma(size) for size in few}


@pytest.mark.slow
def test_both_sizes_have_the_parts_that_theory_knows(studies):
    quick, full = studies.values()
    assert len(quick.parts) + 12 == len(full.parts)
    assert all(part.system is not None for part in full.parts)
    (long,) = [part for part in full.parts if part.name == "long runs"]
    assert long.t_end / long.cases[0].dt == pytest.approx(1e5)
    assert list(quick.claims(Result("plasma", {}))) == []


@pytest.mark.slow
def test_claims_about_waves_have_the_tolerance_of_the_size_and_tell_operators_apart(studies):
    """Of made runs: noise that opposite waves share, and the curve of one operator or another."""
    t, name = np.linspace(0, 4, 9), "dougherty, k = 0.5, ν = 0.5"
    noise = 0.01 * np.sin(7 * t)
    for size, bound in (("quick", 0.04), ("paper", 0.02)):
        for operator in ("dougherty", "lenard_bernstein"):
            wave = -0.05 * linear.response(0.5, t, 0.5, operator).real
            runs = {
                (name + ending, "stormer_verlet"): SimpleNamespace(
                    t=t, mean={"wave": (noise + sign * wave)[:, None, None]}
                )
                for ending, sign in (("", 1), (OPPOSITE, -1))
            }
            claims = studies[size].claims(Result("plasma", runs))
            assert [claim.holds for claim in claims] == 2 * [operator == "dougherty"]
            assert claims[0].expected == bound


@pytest.mark.slow
def test_the_beam_meets_a_whole_maxwellian(studies):
    (part,) = [part for part in studies["quick"].parts if part.name == "beam"]
    q, p = part.initial
    others = np.arange(len(p)) % 16 != 0
    assert np.all(p[~others] == [5.0, 0.0, 0.0])
    assert np.allclose(np.mean(p[others], axis=0), 0, atol=1e-12)
    assert np.allclose(np.cov(p[others].T), np.eye(3), atol=0.01)
    assert abs(np.mean(np.exp(0.5j * q[~others, 0]))) < 1e-12


def test_known_rates():
    t = np.linspace(0, 0.01, 3)
    left = anisotropy_left("coulomb", t)
    assert -np.log(left[-1]) / t[-1] == pytest.approx(0.2, rel=0.3)
    assert anisotropy_left("maxwell", t)[-1] == pytest.approx(np.exp(-6 * 0.1 * 0.01))
    assert beam_slope() == pytest.approx(-2 / 25 * (15 / 16), rel=1e-4)


@pytest.mark.slow
def test_a_part_runs_and_its_claims_are_made(tmp_path):
    """Long runs alone, and not long enough for a claim about the drift of Heun's method."""
    study = plasma("quick")
    study = override(study, ["heun"], t_end=4.0)
    assert [part.name for part in study.parts] == ["long runs"]
    claims = reproduce(study, tmp_path, checkpoints=False)
    assert claims == [] and (tmp_path / "figures" / "plasma_light_and_long.png").exists()


@pytest.mark.slow
def test_the_quick_study_reproduces_what_theory_says(tmp_path):
    claims = reproduce(plasma("quick"), tmp_path, checkpoints=False)
    assert len(claims) == 34
    assert [claim.id for claim in claims if not claim.holds] == []
