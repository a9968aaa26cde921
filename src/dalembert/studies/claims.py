"""Claims: what is said, what was measured, what was expected, and whether it holds."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dalembert.ensemble import archive

FIELDS = ("id", "experiment", "statement", "measured", "expected", "tolerance", "holds", "note")


SIDES = ("both", "below", "above")


@dataclass(frozen=True)
class Claim:
    """One statement that a study puts to the test.

    Attributes:
        id: short name, unique in its experiment.
        experiment: name of the study.
        statement: what is said.
        measured: what was found.
        expected: what it is compared with.
        tolerance: by how much it may differ, or None where the comparison has one side.
        holds: whether the statement is true.
        origin: where the tolerance, or the bound, comes from.
        stderr: standard error of what was measured, or None if it has none.
        note: why the statement fails, if it does and the reason is known; or what else to know.
        side: "both" if what was measured must be close to what is expected, "below" if it must not
            exceed it, "above" if it must not fall short of it.
    """

    id: str
    experiment: str
    statement: str
    measured: float
    expected: float
    tolerance: float | None
    holds: bool
    origin: str
    stderr: float | None = None
    note: str = ""
    side: str = "both"

    def __post_init__(self) -> None:
        if self.side not in SIDES:
            raise ValueError(
                f"the side of a claim is one of {', '.join(SIDES)}, not {self.side!r}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of `claims.json` first."""
        data = asdict(self)
        return {name: data.pop(name) for name in FIELDS} | data


class ClaimList(list[Claim]):
    """Claims of one experiment, as they are made."""

    def __init__(self, experiment: str) -> None:
        super().__init__()
        self.experiment = experiment

    def close(
        self,
        id: str,
        statement: str,
        measured: float,
        expected: float,
        tolerance: float,
        *about: Any,
        **more: Any,
    ) -> None:
        """Claim that two numbers agree within a tolerance.

        What follows the numbers is, here and in `below` and `above`, by place or by name: origin,
        stderr (None) and note ("") of the `Claim`.
        """
        holds = abs(measured - expected) <= tolerance
        self._add("both", holds, tolerance, id, statement, measured, expected, *about, **more)

    def below(
        self, id: str, statement: str, measured: float, bound: float, *about: Any, **more: Any
    ) -> None:
        """Claim that a number does not exceed a bound."""
        self._add("below", measured <= bound, None, id, statement, measured, bound, *about, **more)

    def above(
        self, id: str, statement: str, measured: float, bound: float, *about: Any, **more: Any
    ) -> None:
        """Claim that a number does not fall short of a bound."""
        self._add("above", measured >= bound, None, id, statement, measured, bound, *about, **more)

    def _add(
        self,
        side: str,
        holds: Any,
        tolerance: float | None,
        id: str,
        statement: str,
        measured: float,
        expected: float,
        origin: str,
        stderr: float | None = None,
        note: str = "",
    ) -> None:
        self.append(
            Claim(
                id,
                self.experiment,
                statement,
                float(measured),
                float(expected),
                None if tolerance is None else float(tolerance),
                bool(holds),
                origin,
                None if stderr is None else float(stderr),
                note,
                side,
            )
        )


def unexplained(claims: Iterable[Claim]) -> list[Claim]:
    """Claims that do not hold and whose note gives no reason."""
    return [claim for claim in claims if not claim.holds and not claim.note]


def write_claims(path: Any, claims: Iterable[Claim]) -> None:
    """Write `claims.json`; numbers that are not finite become null."""
    rows = [claim.to_dict() for claim in claims]
    for row in rows:
        for name, value in row.items():
            if isinstance(value, float) and not abs(value) < float("inf"):
                row[name] = None
    text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    archive.replace(path, lambda stream: stream.write(text.encode()))


def read_claims(path: Any) -> list[Claim]:
    """Read what `write_claims` wrote."""
    rows = json.loads(Path(path).read_text("utf-8"))
    missing = float("nan")
    numbers = ("measured", "expected")
    return [
        Claim(**(row | {n: missing for n in numbers if row[n] is None}))  # type: ignore[arg-type]
        for row in rows
    ]
