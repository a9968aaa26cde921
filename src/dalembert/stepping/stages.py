"""The stage equations of any method, in one form.

Every method of the library is a list of *rows*: positions Q_i and momenta P_i, each the old state
plus a weighted sum of terms of the equations, evaluated at a pair (Q_j, P_k) and multiplied by an
increment (dt, dW_r, …). The new state is the last row of each kind. Row 0 is the old state itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from dalembert.methods import (
    AdditiveTableau,
    BracketTableau,
    ExplicitTableau,
    ExplicitWeakTableau,
    LangevinSplitting,
    MeanSquareTableau,
    NinomiyaVictoirTableau,
    WeakTableau,
)
from dalembert.system import BRACKET_TERMS, DRIFT_TERMS, NOISE_TERMS, Bracket, Term

__all__ = ["Entry", "Increment", "Row", "StageSystem", "stage_system"]

Increment = tuple[str, *tuple[int, ...]]
"""What multiplies a term, a number unless it says otherwise:

    ("dt",), ("sqrt_dt",), ("dW", r), ("dZ/dt", r), ("mixed", k, l)
    ("drift bracket", r)    dt dW/2 − dZ
    ("double bracket",)     dt²/12
    ("area", i, j)          A_ij
    ("heads", r)            dW if the coin is 1, else 0; ("tails", r) the other way round
    ("friction", n)         what a friction makes of a force in the n-th part of a step, (dim,)
    ("thermostat", k, r)    noise r while there is friction, (dim,): in all of a step for k = 0, in
                            its first or second half for k = 1 and 2
"""


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


def stage_system(method: Any, noises: int) -> StageSystem:
    """Write out the stage equations of a method for a number of noises."""
    match method:
        case MeanSquareTableau():
            return _mean_square(method, noises)
        case WeakTableau():
            return _weak(method, noises)
        case ExplicitTableau():
            return _explicit(method, noises)
        case ExplicitWeakTableau():
            return _explicit_weak(method, noises)
        case AdditiveTableau():
            return _additive(method, noises)
        case BracketTableau():
            return _bracket(method, noises)
        case NinomiyaVictoirTableau():
            return _ninomiya_victoir(method, noises)
        case LangevinSplitting():
            return _langevin(method, noises)
    raise TypeError(
        f"method must be a tableau such as da.midpoint(), not {method!r}."
        + (" Call the function to get its tableau." if callable(method) else "")
    )


class _Field(NamedTuple):
    """A field (drift if noise is None) at a stage, with weights for its H_p, H_q and F parts."""

    noise: int | Bracket | None
    stage: int
    increment: Increment
    weights: tuple[float, float, float]


def _assemble(stages: Sequence[Iterable[_Field]]) -> StageSystem:
    """Rows from fields; stage i has rows number i + 1, the last one is the new state."""
    q_rows: list[Row] = [()]
    p_rows: list[Row] = [()]
    for fields in stages:
        q_row, p_row = [], []
        for noise, stage, increment, (w_velocity, w_gradient, w_force) in fields:
            at = stage + 1
            if isinstance(noise, tuple):
                q_part, p_part = BRACKET_TERMS
                q_row.append(Entry((q_part, noise), at, at, increment, float(w_velocity)))
                p_row.append(Entry((p_part, noise), at, at, increment, float(w_gradient)))
                continue
            velocity, gradient, force = DRIFT_TERMS if noise is None else NOISE_TERMS
            r = noise or 0
            q_row.append(Entry((velocity, r), at, at, increment, float(w_velocity)))
            p_row.append(Entry((gradient, r), at, at, increment, float(w_gradient)))
            p_row.append(Entry((force, r), at, at, increment, float(w_force)))
        q_rows.append(tuple(q_row))
        p_rows.append(tuple(p_row))
    return StageSystem(tuple(q_rows), tuple(p_rows))


def _same(weight: float) -> tuple[float, float, float]:
    return (weight, weight, weight)


def _mean_square(t: MeanSquareTableau, noises: int) -> StageSystem:
    def fields(a: Any, a_bar: Any, a_hat: Any, b: Any, b_bar: Any, b_hat: Any) -> list[_Field]:
        drift = [_Field(None, j, ("dt",), (a[j], a_bar[j], a_hat[j])) for j in range(t.stages)]
        noise = [
            _Field(r, j, ("dW", r), (b[j], b_bar[j], b_hat[j]))
            for r in range(noises)
            for j in range(t.stages)
        ]
        return drift + noise

    stages = [
        fields(t.a[i], t.a_bar[i], t.a_hat[i], t.b[i], t.b_bar[i], t.b_hat[i])
        for i in range(t.stages)
    ]
    update = fields(t.alpha, t.alpha, t.alpha_hat, t.beta, t.beta, t.beta_hat)
    return _assemble([*stages, update])


def _weak(t: WeakTableau, noises: int) -> StageSystem:
    s = t.stages

    def fields(a: Any, own: int | None, b: Any, b_other: Any) -> list[_Field]:
        drift = [_Field(None, j, ("dt",), _same(a[j])) for j in range(s)]
        noise = [
            _Field(r, s * (1 + r) + j, ("dW", r), _same((b if r == own else b_other)[j]))
            for r in range(noises)
            for j in range(s)
        ]
        return drift + noise

    drift_stages = [fields(t.a0[i], None, t.b0[i], t.b0[i]) for i in range(s)]
    noise_stages = [fields(t.a1[i], r, t.b1[i], t.b3[i]) for r in range(noises) for i in range(s)]
    update = fields(t.alpha, None, t.beta, t.beta)
    return _assemble([*drift_stages, *noise_stages, update])


def _explicit(t: ExplicitTableau, noises: int) -> StageSystem:
    def fields(a: Any, b: Any, b_z: Any) -> list[_Field]:
        drift = [_Field(None, j, ("dt",), _same(a[j])) for j in range(t.stages)]
        noise = [
            _Field(r, j, (name, r), _same(weights[j]))
            for r in range(noises)
            for name, weights in (("dW", b), ("dZ/dt", b_z))
            for j in range(t.stages)
        ]
        return drift + noise

    stages = [fields(t.A[i], t.B1[i], t.B2[i]) for i in range(t.stages)]
    return _assemble([*stages, fields(t.alpha, t.g1, t.g2)])


def _explicit_weak(t: ExplicitWeakTableau, noises: int) -> StageSystem:
    s = t.stages

    def at(r: int, j: int) -> int:
        return s * (1 + r) + j

    def hat(r: int, j: int) -> int:
        return s * (1 + noises + r) + j

    def drift(a: Any) -> list[_Field]:
        return [_Field(None, j, ("dt",), _same(a[j])) for j in range(s)]

    def noise(weights_of: Any) -> list[_Field]:
        return [
            _Field(r, at(r, j), ("dW", r), _same(weights_of(r)[j]))
            for r in range(noises)
            for j in range(s)
        ]

    def mixed(k: int, b: Any) -> list[_Field]:
        others = [r for r in range(noises) if r != k]
        return [_Field(r, at(r, j), ("mixed", k, r), _same(b[j])) for r in others for j in range(s)]

    stages = [drift(t.A0[i]) + noise(lambda _, i=i: t.B0[i]) for i in range(s)]
    for k in range(noises):
        stages += [
            drift(t.A1[i]) + noise(lambda r, i=i, k=k: t.B1[i] if r == k else t.B3[i])
            for i in range(s)
        ]
    for k in range(noises):
        stages += [drift(t.A2[i]) + mixed(k, t.B2[i]) for i in range(s)]
    correction = [
        _Field(r, hat(r, j), ("sqrt_dt",), _same(t.beta2[j]))
        for r in range(noises)
        for j in range(s)
    ]
    return _assemble([*stages, drift(t.alpha) + noise(lambda _: t.beta1) + correction])


def _additive(t: AdditiveTableau, noises: int) -> StageSystem:
    def fields(a: Any, stage: int, *noise: tuple[str, float]) -> list[_Field]:
        drift = [_Field(None, j, ("dt",), _same(a[j])) for j in range(t.stages)]
        return drift + [
            _Field(r, stage, (name, r), _same(weight))
            for r in range(noises)
            for name, weight in noise
        ]

    stages = [fields(t.a[i], i, ("dW", t.omega[i]), ("dZ/dt", t.zeta[i])) for i in range(t.stages)]
    return _assemble([*stages, fields(t.alpha, 0, ("dW", 1.0))])


def _bracket(t: BracketTableau, noises: int) -> StageSystem:
    parts: list[tuple[int | Bracket | None, Increment]] = [(None, ("dt",))]
    parts += [(r, ("dW", r)) for r in range(noises)]
    if t.brackets == "drift" and noises:
        parts += [((0, 1), ("drift bracket", 0)), ((1, (1, 0)), ("double bracket",))]
    if t.brackets == "noise":
        pairs = combinations(range(noises), 2)
        parts += [((i + 1, j + 1), ("area", i, j)) for i, j in pairs]

    def fields(a: Any) -> list[_Field]:
        return [
            _Field(which, j, increment, _same(a[j]))
            for which, increment in parts
            for j in range(t.stages)
        ]

    return _assemble([*map(fields, t.a), fields(t.alpha)])


def _ninomiya_victoir(t: NinomiyaVictoirTableau, noises: int) -> StageSystem:
    half_step = (None, ("dt",), [[0.25]], [0.5])
    first = [(r, ("heads", r), t.a, t.alpha) for r in range(noises - 1)]
    last = [(r, ("tails", r), t.a, t.alpha) for r in reversed(range(noises - 1))]
    middle = [(r, ("dW", r), t.a, t.alpha) for r in range(noises)[-1:]]
    stages: list[list[_Field]] = []
    done: list[_Field] = []
    for which, increment, a, alpha in [half_step, *first, *middle, *last, half_step]:
        begin = len(stages)

        def flow(
            weights: Any, which: Any = which, increment: Any = increment, begin: int = begin
        ) -> list[_Field]:
            return [_Field(which, begin + j, increment, _same(w)) for j, w in enumerate(weights)]

        stages += [[*done, *flow(row)] for row in a]
        done += flow(alpha)
    return _assemble([*stages, done])


def _langevin(t: LangevinSplitting, noises: int) -> StageSystem:
    velocity, gradient, force = ((kind, 0) for kind in DRIFT_TERMS)
    q_rows: list[Row] = [()]
    p_rows: list[Row] = [()]

    def entry(term: Term, increment: Increment, weight: float = 1.0) -> Entry:
        return Entry(term, len(q_rows) - 1, len(p_rows) - 1, increment, weight)

    def noise(*increment: Any) -> Row:
        _, *kinds = NOISE_TERMS
        return tuple(entry((k, r), (*increment, r)) for k in kinds for r in range(noises))

    def of_letter(letter: str, number: int, count: int) -> Row:
        match letter:
            case "A":
                return (entry(velocity, ("dt",), 1 / count),)
            case "B":
                return (entry(gradient, ("dt",), 1 / count),)
            case "C":
                return (entry(gradient, ("dt",)), *noise("dW"))
            case "D":
                return (entry(force, ("friction", count)),)
        part = number if count > 1 else 0
        return (entry(force, ("friction", count)), *noise("thermostat", part))

    for place, letter in enumerate(t.word):
        rows = q_rows if letter == "A" else p_rows
        number = t.word[: place + 1].count(letter)
        rows.append((*rows[-1], *of_letter(letter, number, t.word.count(letter))))
    return StageSystem(tuple(q_rows), tuple(p_rows))
