"""The stage equations of a plan as functions of arrays, for one path."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.dependence import Degree
from dalembert.driven import Timed
from dalembert.methods.stages import Entry, Increment, Row
from dalembert.noise import Increments
from dalembert.stepping.expressions import vector
from dalembert.stepping.plan import Dependence, EquationBlock, Node, Plan
from dalembert.stepping.requirements import TermsTracedOnce
from dalembert.stepping.residuals import worst_if_nan
from dalembert.system import Term

__all__ = [
    "OLD_P",
    "OLD_Q",
    "JointIncrement",
    "RowEquations",
    "Surroundings",
    "increment_names",
    "increment_values",
]

OLD_Q, OLD_P = Node("q", 0), Node("p", 0)


class Surroundings(NamedTuple):
    """What the equations of a block refer to, besides its unknowns.

    Attributes:
        at_start: terms at the old state that are known from the step before.
        times: when terms of a driven system are taken, by the part of the step.
    """

    rows: dict[Node, Any]
    increments: dict[Increment, Any]
    params: Any
    at_start: dict[Term, Any]
    times: dict[float, Any]


class JointIncrement(NamedTuple):
    """An increment of all noises: a number for each, and what their term is multiplied by."""

    w: Any
    factor: Any


class RowEquations:
    """The equations of a plan on arrays of shape (dim,), for one path."""

    def __init__(
        self, plan: Plan, dependence: Mapping[Term, Dependence], terms: TermsTracedOnce
    ) -> None:
        self.system, self.plan = terms.system, plan
        self.is_affine = {term: max(d) <= Degree.AFFINE for term, d in dependence.items()}
        entries = {entry.term for row in plan.rows.values() for entry in row}
        self.terms = {term: _given(terms[term]) for term in entries}

    def _rows(
        self, rows: Mapping[Node, Row], around: Surroundings
    ) -> tuple[dict[Node, Any], dict[Node, Any], dict[Any, Any]]:
        """Rows in the given order, start + Σ increment · (Σ weight · term), their sizes, and terms.

        The size of a row is the sum of the magnitudes of what is added up. Terms are those that
        have been evaluated, by (term, row of positions, row of momenta).
        """
        known = dict(around.rows)
        evaluated: dict[Any, Any] = {(term, 0, 0): value for term, value in around.at_start.items()}
        found, sizes = {}, {}

        def term(entry: Entry) -> Any:
            is_joint = entry.increment.is_joint
            place = entry[:4] if is_joint else entry[:3]
            if place not in evaluated:
                q, p = known[Node("q", entry.q_row)], known[Node("p", entry.p_row)]
                w = (around.increments[entry.increment].w,) if is_joint else ()
                told = around.params
                if len(entry.term) > 2:
                    told = Timed(around.times[entry.term[2]], told)
                evaluated[place] = self.terms[entry.term](q, p, told, *w)
            return times(entry.weight, evaluated[place])

        def times(weight: float, value: Any) -> Any:
            return value if weight == 1 else np.asarray(weight, value.dtype) * value

        for node, row in rows.items():
            parts = [times(weight, known[n]) for n, weight in self.plan.start(node).items()]
            total, size = sum(parts[1:], parts[0]), sum(map(jnp.abs, parts[1:]), jnp.abs(parts[0]))
            entries = sorted(row, key=lambda e: e.increment)
            for increment, group in groupby(entries, key=lambda e: e.increment):
                parts = [term(entry) for entry in group]
                value, part = around.increments[increment], sum(parts[1:], parts[0])
                factor = value.factor if increment.is_joint else value
                part = part if factor is None else factor * part
                total, size = total + part, size + jnp.abs(part)
            found[node], sizes[node] = total, size
            known.setdefault(node, total)
        return found, sizes, evaluated

    def complete(self, block: EquationBlock, around: Surroundings) -> dict[Node, Any]:
        """The explicit rows of a block, its unknowns being among the surroundings."""
        return self.complete_with_terms(block, around)[0]

    def complete_with_terms(
        self, block: EquationBlock, around: Surroundings
    ) -> tuple[dict[Node, Any], dict[Any, Any]]:
        """The explicit rows of a block, and the terms that were evaluated for them, by place."""
        found, _, evaluated = self._rows(self._rows_of(block.explicit), around)
        return found, evaluated

    def guess(self, block: EquationBlock, around: Surroundings) -> Any:
        """Unknown rows with the terms that cost nothing, the affine ones, at the old state."""
        at_old_state = {
            node: tuple(
                entry._replace(q_row=0, p_row=0)
                for entry in self.plan.rows[node]
                if self.is_affine[entry.term]
            )
            for node in block.unknowns
        }
        found, *_ = self._rows(at_old_state, around)
        return jnp.concatenate([found[node] for node in block.unknowns])

    def residual(self, block: EquationBlock, u: Any, around: Surroundings) -> Any:
        """Unknown rows minus what the equations say they are."""
        return self._residual_and_size(block, u, around)[0]

    def _residual_and_size(
        self, block: EquationBlock, u: Any, around: Surroundings
    ) -> tuple[Any, Any]:
        around = self._with_unknowns(block, u, around)
        rows = self._rows_of((*block.explicit, *block.unknowns))
        found, sizes, _ = self._rows(rows, around)
        unknowns = block.unknowns
        return (
            jnp.concatenate([around.rows[node] - found[node] for node in unknowns]),
            jnp.concatenate([jnp.abs(around.rows[node]) + sizes[node] for node in unknowns]),
        )

    def linearise(self, block: EquationBlock, u: Any, around: Surroundings) -> tuple[Any, Any, Any]:
        """The residual r(u), its Jacobian ∂r/∂u, and ∂r/∂q·q, by which rounding of q changes r."""
        start = around.rows[OLD_Q]
        residual, product = jax.linearize(partial(self._at, block, around), u, start)
        zero = np.zeros(start.shape, start.dtype)
        columns = [product(e, zero) for e in np.eye(u.size, dtype=u.dtype)]
        along_q = product(np.zeros(u.shape, u.dtype), start)
        return residual, jnp.stack(columns, axis=1), along_q

    def bend(self, block: EquationBlock, u: Any, d: Any, around: Surroundings) -> Any:
        """Half of the second derivative of the residual along d."""

        def along(t: Any) -> Any:
            return self.residual(block, u + t * d, around)

        zero, one = jnp.zeros((), u.dtype), jnp.ones((), u.dtype)
        _, second = jax.jvp(lambda t: jax.jvp(along, (t,), (one,))[1], (zero,), (one,))
        return second / 2

    def floor(self, block: EquationBlock, u: Any, around: Surroundings) -> Any:
        """What rounding can leave of every residual, in units of the relative rounding error.

        That is the magnitude of what is added up, and the effect of rounding the positions: those
        of a particle that has travelled far are known to fewer digits than the forces need.
        """
        start = around.rows[OLD_Q]
        is_q = [float(node.kind == "q") for node in block.unknowns]
        rows = u.reshape(len(is_q), -1) * jnp.asarray(is_q, u.dtype)[:, None]
        along = (rows.reshape(u.shape), start)
        _, shift = jax.jvp(partial(self._at, block, around), (u, start), along)
        return self._residual_and_size(block, u, around)[1] + jnp.abs(shift)

    def check(
        self, block: EquationBlock, u: Any, slack: Any, around: Surroundings
    ) -> tuple[Any, Any]:
        """Largest residuals and their floors, given the effect of rounding unknowns and positions.

        Both have one entry for the q rows and one for the p rows, as far as there are any.
        """
        residual, size = self._residual_and_size(block, u, around)
        return self._largest_of_kinds(block, residual, size + slack)

    def quick_check(self, block: EquationBlock, u: Any, shift: Any, around: Surroundings) -> Any:
        """Largest residuals, and numbers that are no larger than their floors but cost little.

        They are the sizes of the unknown rows, and the effect of rounding the positions.
        """
        size = jnp.abs(u) + jnp.abs(self._old(block, around)) + jnp.abs(shift)
        return self._largest_of_kinds(block, self.residual(block, u, around), size)

    def _old(self, block: EquationBlock, around: Surroundings) -> Any:
        """The old state, in the order of the unknown rows."""
        return jnp.concatenate([around.rows[Node(node.kind, 0)] for node in block.unknowns])

    def _kinds(self, block: EquationBlock) -> list[slice]:
        """Places of the q rows and of the p rows among the unknowns, as far as there are any.

        Unknowns are sorted, so that rows of one kind are neighbours.
        """
        kinds, dim = [node.kind for node in block.unknowns], self.system.dim
        firsts = {kind: kinds.index(kind) for kind in ("q", "p") if kind in kinds}
        return [slice(i * dim, (i + kinds.count(kind)) * dim) for kind, i in firsts.items()]

    def relative(self, block: EquationBlock, residual: Any, floor: Any) -> Any:
        """The largest residual of the q rows and of the p rows, relative to their floors."""
        worst, scale = self._largest_of_kinds(block, residual, floor)
        return worst_if_nan(jnp.max(worst / scale))

    def worst(self, block: EquationBlock, x: Any) -> Any:
        """The largest entry of the q rows and of the p rows, as far as there are any."""
        return jnp.stack([jnp.max(x[places]) for places in self._kinds(block)])

    def _largest_of_kinds(self, block: EquationBlock, residual: Any, floor: Any) -> tuple[Any, Any]:
        tiny = jnp.finfo(floor.dtype).tiny
        return self.worst(block, jnp.abs(residual)), self.worst(block, floor) + tiny

    def _rows_of(self, nodes: Iterable[Node]) -> dict[Node, Row]:
        return {node: self.plan.rows[node] for node in nodes}

    def _at(self, block: EquationBlock, around: Surroundings, u: Any, q: Any) -> Any:
        """The residual, with the old positions as an argument of their own."""
        return self.residual(block, u, around._replace(rows=around.rows | {OLD_Q: q}))

    def _with_unknowns(self, block: EquationBlock, u: Any, around: Surroundings) -> Surroundings:
        dim = self.system.dim
        unknowns = {n: u[i * dim : (i + 1) * dim] for i, n in enumerate(block.unknowns)}
        return around._replace(rows=around.rows | unknowns)


def _given(term: Callable[..., Any] | None) -> Callable[..., Any]:
    assert term is not None, "terms that are zero have been dropped from the plan"
    return term


def increment_names(plan: Plan) -> set[Increment]:
    """What the entries of a plan are multiplied by."""
    return {entry.increment for row in plan.rows.values() for entry in row}


def increment_values(
    names: set[Increment],
    dt: Any,
    noise: Increments,
    dtype: Any,
    factors: Mapping[Callable[..., Any], Any],
) -> dict[Increment, Any]:
    """What the entries of a step are multiplied by, given the factors that some of them have."""
    dt = jnp.asarray(dt, dtype)

    def number_of(increment: Increment) -> Any:
        # What it does not declare is out of its reach: one that reads noise differs between paths.
        fields = noise._asdict().items()
        given: Any = {name: x if name in increment.reads else None for name, x in fields}
        try:
            return _value(increment, dt, Increments(**given))
        except (TypeError, AssertionError) as error:
            raise TypeError(
                f"{increment!r} cannot be computed from dt and {sorted(increment.reads)}, which is "
                f"all that it reads ({error}): write what else it needs into its `reads`."
            ) from error

    def value(increment: Increment) -> Any:
        number = number_of(increment)
        factor = None if increment.factor is None else factors[increment.factor]
        if increment.is_joint:
            return JointIncrement(number, factor)
        if factor is None:
            return number
        return factor if number is None else _scaled(factor, number)

    return {increment: value(increment) for increment in sorted(names)}


def _value(increment: Increment, dt: Any, noise: Increments) -> Any:
    """The number of an increment, or those of all noises: one by one where they are scalars."""
    read = next((x for x in (noise.dW, noise.dZ) if x is not None), None)
    if not (increment.is_joint and isinstance(read, np.ndarray)):
        return increment.value(dt, noise)
    each = (replace(increment, noise=r) for r in range(len(read)))
    return vector(one.value(dt, noise) for one in each)


def _scaled(values: Any, factor: Any) -> Any:
    """Products, for an array or for a NumPy array of scalars."""
    is_scalars = isinstance(values, np.ndarray)
    return vector(value * factor for value in values) if is_scalars else values * factor
