"""A hundred faults: after each of them the right numbers or a clear error, and nothing lost."""

from pathlib import Path

import pytest

import faults.disks
import faults.files
import faults.hostile
import faults.processes
import faults.runs
from dalembert.ensemble import archive, checkpoint
from faults.rule import KINDS, Ground, table
from tiers import tiered

CASES = {f"{k.title}: {way}": (k, way) for k in KINDS for way in k.ways}
FAST = {f"{k.title}: {way}" for k in KINDS for way in k.fast}


@pytest.mark.parametrize("name", tiered(CASES, FAST))
def test_right_or_said_and_nothing_lost(name, tmp_path, monkeypatch):
    kind, way = CASES[name]
    kind.inject(way, Ground(tmp_path, monkeypatch))


def test_the_rule_finds_what_is_lost_and_what_is_wrong(tmp_path, monkeypatch):
    """The controls: a library that forgets the newest file, and one that reads other numbers."""
    ground, lost, read = Ground(tmp_path, monkeypatch), tmp_path / "lost", archive.read
    lost.mkdir()
    monkeypatch.setattr(checkpoint.CheckpointFile, "_read_newest", lambda *_: checkpoint.Progress())
    with pytest.raises(AssertionError, match="0 blocks of 1 are left"):
        faults.disks.killed(f"{faults.disks.MOMENTS[2]}, write 2", Ground(lost, monkeypatch))
    monkeypatch.undo()
    ground.saved(3)

    def other(*args):
        header, arrays = read(*args)
        return header, arrays | {"kept/q": 1.5 * arrays["kept/q"]}

    monkeypatch.setattr(archive, "read", other)
    with pytest.raises(AssertionError, match="q by"):
        ground.goes_on(3)


def test_there_are_more_than_a_hundred():
    assert len(CASES) >= 100 and len({k.title for k in KINDS}) == len(KINDS)


def test_the_documentation_prints_the_table_of_these_faults():
    page = Path(__file__).parents[2] / "docs" / "faults.md"
    assert "from faults.rule import KINDS, table" in page.read_text()
    assert table().count("\n") == len(KINDS) + 1
