"""From stage equations to an order of work.

Given how the terms of a system depend on q and p, the rows of a method are simplified (terms that
vanish, rows that coincide, rows that nothing needs), then cut into blocks: rows that follow
explicitly from earlier ones, and groups of rows that must be solved together. Within a group only
as many rows as necessary are unknowns; the others follow from those. Everything that makes the
named methods cheap (explicit stages, a DIRK solved stage by stage, separable Hamiltonians, the
needless stages of SRKw2) comes out of these three rules, and from a fourth: a row that has been
solved for says what its terms add up to, so that later rows need not evaluate them again (after a
midpoint P, the new momentum is 2 P − p).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from dalembert.dependence import Degree
from dalembert.methods.stages import Entry, Row, StageSystem
from dalembert.system import Term


class Node(NamedTuple):
    """A row: its kind, "q" or "p", and its number."""

    kind: str
    number: int


class Dependence(NamedTuple):
    """How a term depends on q with p fixed, and on p with q fixed."""

    on_q: Degree
    on_p: Degree

    @property
    def vanishes(self) -> bool:
        return max(self) == Degree.ZERO


@dataclass(frozen=True)
class EquationBlock:
    """Rows computed together: `unknowns` are solved for, `explicit` follow from them in order."""

    unknowns: tuple[Node, ...]
    explicit: tuple[Node, ...]


@dataclass(frozen=True)
class Plan:
    """Simplified rows and the blocks that compute them; `new_q`, `new_p` are the new state.

    The entries of a row are added to the old state, or to what `starts` says: weighted rows.
    """

    rows: Mapping[Node, Row]
    blocks: tuple[EquationBlock, ...]
    new_q: Node
    new_p: Node
    starts: Mapping[Node, "StartWeights"] = field(default_factory=dict)

    def start(self, node: Node) -> "StartWeights":
        """The weighted rows to which the entries of a row are added."""
        return self.starts.get(node, {Node(node.kind, 0): 1.0})

    @property
    def times(self) -> tuple[float, ...]:
        """When terms of a driven system are taken, as parts of the step."""
        terms = {entry.term for row in self.rows.values() for entry in row}
        return tuple(sorted({term[2] for term in terms if len(term) > 2}))


StartWeights = Mapping[Node, float]


def make_plan(
    stages: StageSystem, dependence: Mapping[Term, Dependence], shortcuts: bool = True
) -> Plan:
    """The order of work; without shortcuts every stage row is an unknown of one large system."""
    rows = {Node("q", i): row for i, row in enumerate(stages.q_rows)}
    rows |= {Node("p", i): row for i, row in enumerate(stages.p_rows)}
    new_q, new_p = Node("q", len(stages.q_rows) - 1), Node("p", len(stages.p_rows) - 1)
    rows = {node: _drop_zeros(row, dependence) for node, row in rows.items()}
    if not shortcuts:
        used = {node for row in rows.values() for node in _references(row)}
        ends = tuple(node for node in (new_q, new_p) if node not in used)
        unknowns = tuple(node for node in rows if node.number and node not in ends)
        return Plan(rows, (EquationBlock(unknowns, ()), EquationBlock((), ends)), new_q, new_p)
    rows = {node: _at_old_state(row, dependence) for node, row in rows.items()}
    rows, renamed = _merge_equal(rows)
    new_q, new_p = renamed[new_q], renamed[new_p]
    graph = _reachable({n: _references(row) for n, row in rows.items()}, (new_q, new_p))
    blocks = _join_explicit(_block(group, graph) for group in _components(graph))
    costly = {term for term, d in dependence.items() if max(d) > Degree.AFFINE}
    rows, starts = _use_solved_rows(rows, blocks, costly)
    return Plan(rows, blocks, new_q, new_p, starts)


def _drop_zeros(row: Row, dependence: Mapping[Term, Dependence]) -> Row:
    return tuple(e for e in row if e.weight != 0 and not dependence[e.term].vanishes)


def _at_old_state(row: Row, dependence: Mapping[Term, Dependence]) -> Row:
    """A term that does not depend on q may as well be evaluated at the old q, likewise p."""

    def move(entry: Entry) -> Entry:
        on_q, on_p = dependence[entry.term]
        return entry._replace(
            q_row=entry.q_row if on_q > Degree.CONSTANT else 0,
            p_row=entry.p_row if on_p > Degree.CONSTANT else 0,
        )

    return _collect(move(entry) for entry in row)


def _collect(entries: Iterable[Entry]) -> Row:
    """Add the weights of equal terms, so that equal rows look equal."""
    weights: dict[Entry, float] = {}
    for entry in entries:
        place = entry._replace(weight=0.0)
        weights[place] = weights.get(place, 0.0) + entry.weight
    return tuple(place._replace(weight=w) for place, w in sorted(weights.items()) if w != 0)


def _merge_equal(rows: Mapping[Node, Row]) -> tuple[dict[Node, Row], dict[Node, Node]]:
    """Let rows with equal entries share one node, until nothing changes."""
    renamed = {node: node for node in rows}
    current = dict(rows)
    while True:
        first: dict[tuple[str, Row], Node] = {}
        step = {node: first.setdefault((node.kind, row), node) for node, row in current.items()}
        if all(node == target for node, target in step.items()):
            return current, renamed
        renamed = {node: step[target] for node, target in renamed.items()}
        current = {
            node: _collect(
                e._replace(
                    q_row=step[Node("q", e.q_row)].number, p_row=step[Node("p", e.p_row)].number
                )
                for e in row
            )
            for node, row in current.items()
            if step[node] == node
        }


def _references(row: Row) -> frozenset[Node]:
    """The rows, other than the old state, that a row is computed from."""
    nodes = [Node("q", e.q_row) for e in row] + [Node("p", e.p_row) for e in row]
    return frozenset(node for node in nodes if node.number)


Edges = dict[Node, frozenset[Node]]


def _reachable(graph: Edges, goals: Iterable[Node]) -> Edges:
    found: Edges = {}
    pending = [goal for goal in goals if goal.number]
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = graph[node]
            pending.extend(graph[node])
    return {node: found[node] for node in sorted(found)}


def _components(graph: Edges) -> list[tuple[Node, ...]]:
    """Strongly connected groups, each after the groups that it needs (Tarjan)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    groups: list[tuple[Node, ...]] = []

    def visit(node: Node) -> None:
        index[node] = low[node] = len(index)
        path.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
            if other in path:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            start = path.index(node)
            groups.append(tuple(sorted(path[start:])))
            del path[start:]

    for node in graph:
        if node not in index:
            visit(node)
    return groups


def _block(group: tuple[Node, ...], graph: Edges) -> EquationBlock:
    """Choose unknowns so that the rest of the group follows from them without a cycle.

    A row that refers to itself must be an unknown. If a cycle remains, momenta are freed first:
    friction acts on them, so they are usually unknowns already.
    """
    inside = {node: graph[node] & set(group) for node in group}
    unknowns = [node for node in group if node in inside[node]]
    while (order := _explicit_order(inside, unknowns)) is None:
        rest = [node for node in group if node not in unknowns]
        unknowns.append(max(rest, key=lambda n: (n.kind == "p", len(inside[n]), -n.number)))
    return EquationBlock(tuple(sorted(unknowns)), tuple(order))


def _explicit_order(inside: Edges, unknowns: list[Node]) -> list[Node] | None:
    """The rows that are not unknowns in an order of computation, or None if there is none."""
    order: list[Node] = []
    rest = [node for node in inside if node not in unknowns]
    while rest:
        ready = [n for n in rest if all(o in unknowns or o in order for o in inside[n])]
        if not ready:
            return None
        order.append(ready[0])
        rest.remove(ready[0])
    return order


MAX_WEIGHT = 4.0
"""Of a solved row in another: beyond it the rounding error of the solution would count too much."""


def _use_solved_rows(
    rows: Mapping[Node, Row], blocks: Iterable[EquationBlock], costly: set[Term]
) -> tuple[dict[Node, Row], dict[Node, StartWeights]]:
    """Replace entries with costly terms by multiples of rows that have been solved for before."""
    entries = {node: {e._replace(weight=0.0): e.weight for e in row} for node, row in rows.items()}
    shorter, starts = dict(rows), {}
    solved: list[Node] = []
    for block in blocks:
        for node in (*block.unknowns, *block.explicit):
            others = [other for other in solved if other.kind == node.kind]
            weights = _weights(entries[node], [entries[other] for other in others], costly)
            rest = _minus(entries[node], weights, [entries[other] for other in others])
            fewer = _count(entries[node], costly) - _count(rest, costly)
            if fewer and fewer >= np.count_nonzero(weights):
                shorter[node] = tuple(e._replace(weight=w) for e, w in sorted(rest.items()))
                start = {
                    Node(node.kind, 0): 1 - sum(weights),
                    **dict(zip(others, weights, strict=True)),
                }
                starts[node] = {n: w for n, w in start.items() if w}
        solved += block.unknowns
    return shorter, starts


EntryWeights = Mapping[Entry, float]


def _weights(row: EntryWeights, others: list[EntryWeights], costly: set[Term]) -> list[float]:
    """How often other rows must be taken off to leave little of the costly terms of a row."""
    terms = sorted(e for e in {*row, *(e for other in others for e in other)} if e.term in costly)
    matrix = np.array([[other.get(e, 0.0) for other in others] for e in terms])
    if not matrix.size:
        return [0.0] * len(others)
    found = np.linalg.lstsq(matrix, np.array([row.get(e, 0.0) for e in terms]))[0]
    simple = np.round(64 * found) / 64
    found = np.where(np.abs(found - simple) < 1e-13, simple, found)
    return np.where(np.abs(found) <= MAX_WEIGHT, found, 0.0).tolist()


def _minus(
    row: EntryWeights, weights: list[float], others: list[EntryWeights]
) -> dict[Entry, float]:
    rest = dict(row)
    for weight, other in zip(weights, others, strict=True):
        for entry, w in other.items():
            rest[entry] = rest.get(entry, 0.0) - weight * w
    return {e: w for e, w in rest.items() if abs(w) > 1e-13}


def _count(row: EntryWeights, costly: set[Term]) -> int:
    return sum(entry.term in costly for entry in row)


def _join_explicit(blocks: Iterable[EquationBlock]) -> tuple[EquationBlock, ...]:
    """Let runs of explicit rows share one block."""
    joined: list[EquationBlock] = []
    for block in blocks:
        if joined and not block.unknowns and not joined[-1].unknowns:
            joined[-1] = replace(joined[-1], explicit=joined[-1].explicit + block.explicit)
        else:
            joined.append(block)
    return tuple(joined)
