"""The study of plasmas: what it runs, and that its claims can fail."""

import numpy as np
import pytest

from dalembert.studies import OTHER_STUDIES, Result
from dalembert.studies.plasma_claims import anisotropy_left, beam_slope
from dalembert.studies.reproduce import override, reproduce

plasma = OTHER_STUDIES["plasma"]


def test_both_sizes_have_the_parts_that_theory_knows():
    quick, full = (plasma(size) for size in ("quick", "paper"))
    assert len(quick.parts) + 6 == len(full.parts)
    assert all(part.system is not None for part in full.parts)
    (long,) = [part for part in full.parts if part.name == "long runs"]
    assert long.t_end / long.cases[0].dt == pytest.approx(1e5)
    assert list(quick.claims(Result("plasma", {}))) == []


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
    assert len(claims) == 27
    assert [claim.id for claim in claims if not claim.holds] == []
