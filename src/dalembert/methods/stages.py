"""The stage equations of any method, in one form.

Every method of the library is a list of *rows*: positions Q_i and momenta P_i, each the old state
plus a weighted sum of terms of the equations, evaluated at a pair (Q_j, P_k) and multiplied by an
increment (dt, ΔW_r, …). The new state is the last row of each kind. Row 0 is the old state itself.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from dalembert.noise import Increments
from dalembert.system import ALL, BRACKET_TERMS, DRIFT_TERMS, NOISE_TERMS, Bracket, Term


def noise_numbers(noises: int) -> Iterable[int]:
    """The numbers of so many noises; ALL of them together have one."""
    return (ALL,) if noises == ALL else range(noises)


def of_noise(values: Any, number: int) -> Any:
    """What belongs to one noise, or to ALL of them."""
    return values if number == ALL else values[number]


@dataclass(frozen=True)
class Increment:
    """What multiplies a term: a number that a step computes from dt and its noise.

    A subclass is a frozen dataclass whose fields are numbers. Increments are sorted by name and
    fields, and what a row adds up is added in this order.

    Attributes:
        name: what it is called; no other kind of increment of a method has the same name.
        reads: the fields of `da.Increments` that it is made of. One that reads none is the same
            for all paths and steps.
    """

    name: ClassVar[str]
    reads: ClassVar[frozenset[str]] = frozenset()

    @property
    def is_joint(self) -> bool:
        """Whether it has one number for each noise, which the term of ALL noises is given."""
        return getattr(self, "noise", None) == ALL

    @property
    def factor(self) -> Callable[[Any, Any, Any], Any] | None:
        """What it is multiplied by for each momentum: (system, dt, params) -> (dim,), or None.

        A frozen, ordered record that can be called: equal ones are computed once.
        """
        return None

    def value(self, dt: Any, noise: Increments) -> Any:
        """The number; None if the factor is all."""
        raise NotImplementedError(f"{type(self).__name__} must say its value")

    def __lt__(self, other: "Increment") -> bool:
        return (self.name, *vars(self).values()) < (other.name, *vars(other).values())


@dataclass(frozen=True)
class TimeStep(Increment):
    """Δt."""

    name = "dt"

    def value(self, dt: Any, noise: Increments) -> Any:
        return dt


DT = TimeStep()


@dataclass(frozen=True)
class DW(Increment):
    """ΔW of one noise, or the three-point variable in its place."""

    noise: int
    name = "dW"
    reads = frozenset({"dW"})

    def value(self, dt: Any, noise: Increments) -> Any:
        return of_noise(noise.dW, self.noise)


@dataclass(frozen=True)
class DZ(DW):
    """ΔZ/Δt of one noise, the mean of its path over the step."""

    name = "dZ/dt"
    reads = frozenset({"dZ"})

    def value(self, dt: Any, noise: Increments) -> Any:
        assert noise.dZ is not None, "the method has asked for it"
        return of_noise(noise.dZ, self.noise) / dt


class Entry(NamedTuple):
    """weight × increment × term(Q_[q_row], P_[p_row])."""

    term: Term
    q_row: int
    p_row: int
    increment: Increment
    weight: float


Row = tuple[Entry, ...]
"""A stage value: the old state plus the sum of these entries."""


@dataclass(frozen=True)
class StageSystem:
    """All rows of a method; the last row of each kind is the new state."""

    q_rows: tuple[Row, ...]
    p_rows: tuple[Row, ...]

    @property
    def entries(self) -> list[Entry]:
        """What all rows add up, as far as it is not zero."""
        return [e for row in (*self.q_rows, *self.p_rows) for e in row if e.weight]


class FieldTerm(NamedTuple):
    """A field at a stage: the drift (None), a noise by its number, or a bracket of fields.

    `weight` is one number for all of the field, or three for its H_p, H_q and F parts.
    """

    which: int | Bracket | None
    stage: int
    increment: Increment
    weight: Any


def along(
    which: int | Bracket | None, increment: Increment, weights: Iterable[Any], first: int = 0
) -> list[FieldTerm]:
    """One field at consecutive stages."""
    return [FieldTerm(which, first + j, increment, weight) for j, weight in enumerate(weights)]


def along_noises(
    noises: int, kind: Callable[[int], Increment], weights: Sequence[Any], first: int = 0
) -> list[FieldTerm]:
    """The fields of all noises at stages that they share, each with an increment of its own."""
    return [field for r in noise_numbers(noises) for field in along(r, kind(r), weights, first)]


def _check_increment(increment: Any) -> None:
    """Refuse a kind of increment in the place of an increment."""
    if not isinstance(increment, Increment):
        name = increment.__name__ if isinstance(increment, type) else repr(increment)
        raise TypeError(
            "a field is multiplied by an increment, such as DT, which is one, or DW(r), that of "
            f"noise r; not by {name}."
        )


def assemble(stages: Sequence[Iterable[FieldTerm]]) -> StageSystem:
    """Rows from fields; stage i has rows number i + 1, the last one is the new state."""
    rows: tuple[list[Row], list[Row]] = ([()], [()])
    for fields in stages:
        q_row, p_row = [], []
        for which, stage, increment, weight in fields:
            _check_increment(increment)
            kinds = DRIFT_TERMS if which is None else NOISE_TERMS
            kinds = BRACKET_TERMS if isinstance(which, tuple) else kinds
            weights = weight if isinstance(weight, tuple) else (weight,) * len(kinds)
            velocity, *forces = (
                Entry((kind, which or 0), stage + 1, stage + 1, increment, float(w))
                for kind, w in zip(kinds, weights, strict=True)
            )
            q_row.append(velocity)
            p_row += forces
        rows[0].append(tuple(q_row))
        rows[1].append(tuple(p_row))
    return StageSystem(*map(tuple, rows))
