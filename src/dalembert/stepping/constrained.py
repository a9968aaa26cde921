"""Steps of systems with constraints: ordinary steps between projections of momenta."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.dependence import Degree
from dalembert.methods import Method
from dalembert.noise import Increments
from dalembert.stepping import residuals
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.clocks import row_time
from dalembert.stepping.constraint_blocks import Blocks, find_blocks
from dalembert.stepping.equal_blocks import EqualBlocks, find_equal_blocks
from dalembert.stepping.manifold import Manifold, Slopes, is_straight, left
from dalembert.stepping.multipliers import Way
from dalembert.stepping.residuals import Report
from dalembert.stepping.stepper import StepInfo, Stepper, at_next, at_the_end, one_stepper
from dalembert.system import System, Term

__all__ = ["ConstrainedStepper", "constrained_stepper"]

SLOPES: Term = ("Dg", 0)
"""What `Manifold.slopes` is known by among the terms of a state."""

Moved: TypeAlias = Callable[..., tuple[Any, Any, Report, dict[Any, Any]]]
"""(p, solver) → a step from momenta p: new q and p, a report, terms by place."""

BLIND_STEPS = 2
"""Newton steps for positions before the one that is looked at first: fewer are seldom enough."""


class Substep(NamedTuple):
    """An ordinary step that is taken a number of times, each with projections.

    Attributes:
        begins: when the first of them begins, as a part of the whole step.
    """

    stepper: Stepper
    repeats: int
    begins: float
    is_straight: bool

    @property
    def moves(self) -> bool:
        """Whether it moves positions."""
        return self.stepper.plan.new_q.number > 0


@dataclass(frozen=True, eq=False)
class ConstrainedStepper(Stepper):
    """One step of a method for constraints; `plan` and `solvers` are those of the last part.

    Attributes:
        equal: the multipliers of fast steps, if they are those of many equal blocks.
    """

    manifold: Manifold
    parts: tuple[Substep, ...]
    equal: EqualBlocks | None

    @property
    def is_implicit(self) -> bool:
        """There always are multipliers to solve for."""
        return True

    @property
    def is_nonlinear(self) -> bool:
        """Those that keep positions on g = 0."""
        return True

    @property
    def is_direct(self) -> bool:
        """They are found by repetition."""
        return False

    @property
    def is_swept(self) -> bool:
        """That of another kind."""
        return False

    def advance(self, *given: Any, **named: Any) -> tuple[Any, Any, StepInfo]:
        """One step of one path: part after part, and the worst of what they report."""
        return self.advance_on(*given, **named)[:3]

    def advance_on(
        self,
        q: Any,
        p: Any,
        dt: Any,
        increments: Increments,
        params: Any,
        solver: Solver = Solver.BOTH,
        at_start: Mapping[Term, Any] | None = None,
    ) -> tuple[Any, Any, StepInfo, dict[Term, Any]]:
        """The same, and `terms_at` the new state: the slopes of constraints are among them."""
        terms = dict(at_start or self.terms_at(q, p, dt, params))
        reports: list[Report] = []
        (q, start), (p, steps) = self.split(q), self.split(p)
        equal = self.equal if solver in (Solver.FAST, Solver.BLIND) else None
        if self.equal and not equal:
            terms[SLOPES] = self.manifold.slopes(q, params)
        for part in self.parts:
            slopes = terms.pop(SLOPES)
            known = terms if part is self.parts[0] and part.repeats == 1 else {}
            clock = start, steps + part.begins if part.begins else steps
            step = partial(self._part, equal, part, clock, dt, increments, params, solver, known)
            if part.repeats == 1:
                q, p, slopes, report, found = step(q, p, slopes)
            else:
                q, p, slopes, report = _repeated(step, part.repeats, q, p, slopes)
                found = {}
            terms = at_the_end(found, part.stepper.plan, self.lasting) | {SLOPES: slopes}
            reports.append(report)
        residual = reduce(residuals.worse, (report.residual for report in reports))
        iterations = reduce(jnp.maximum, (report.iterations for report in reports))
        q, p = self.append(q, start), self.append(p, None if steps is None else steps + 1)
        solved = (residual <= residuals.tolerance(self.dtype)) & self.is_finite(q, p)
        if self.equal and not equal:
            terms.pop(SLOPES)
        terms = self.terms_at(q, p, dt, params, terms)
        return q, p, StepInfo(solved, iterations, residual), terms

    def terms_at(
        self, q: Any, p: Any, dt: Any, params: Any, known: Mapping[Term, Any] | None = None
    ) -> dict[Term, Any]:
        """Lasting terms and slopes at a state, of which some may be known.

        Those of equal blocks cost less than to be kept: where they are taken stands for them.
        """
        found = super().terms_at(q, p, dt, params, known)
        if SLOPES in found:
            return found
        q, _ = self.split(q)
        slopes = self.equal.rows(q) if self.equal else self.manifold.slopes(q, params)
        return found | {SLOPES: slopes}

    def _part(
        self,
        equal: EqualBlocks | None,
        part: Substep,
        clock: tuple[Any, Any],
        dt: Any,
        increments: Increments,
        params: Any,
        solver: Solver,
        at_start: dict[Term, Any],
        q: Any,
        p: Any,
        slopes: Any,
    ) -> tuple[Any, Any, Any, Report, dict[Any, Any]]:
        """A step whose momenta have been changed so that it ends on g = 0, and then once more."""

        def moved(p: Any, solver: Solver = solver) -> tuple[Any, Any, Report, dict[Any, Any]]:
            start = self.append(q, clock[0]), self.append(p, clock[1])
            given = *start, dt, increments, params, solver, at_start
            *end, info, terms = part.stepper._advance(*given)
            new_q, new_p = (self.split(x)[0] for x in end)
            return new_q, new_p, Report(info.iterations, info.residual), terms

        if equal:
            return self._by_equal_blocks(equal, part, moved, q, p, slopes, params)
        manifold = self.manifold
        if part.moves:
            change, floor, found = self._kick(part, moved, q, p, dt, slopes, params, solver)
            q, p, report, terms = moved(p + change)
            missed = left(self.system.constraint(q, params), floor)
            missed = jnp.where(found.residual < jnp.inf, missed, found.residual)
            found = Report(found.iterations, missed)
            report, slopes = _both(found, report), manifold.slopes(q, params)
        else:
            q, p, report, terms = moved(p)
        p, more = manifold.project_momentum(q, p, params, solver, slopes)
        return q, p, slopes, _both(report, more), terms

    def _kick(
        self,
        part: Substep,
        moved: Moved,
        q: Any,
        p: Any,
        dt: Any,
        slopes: Slopes,
        params: Any,
        solver: Solver,
    ) -> tuple[Any, Any, Report]:
        """The change of momenta, what rounding does to constraints, and a report."""
        manifold = self.manifold

        def end(solver: Solver, change: Any) -> Any:
            return moved(p + change, solver)[0]

        def miss(q: Any) -> Any:
            return self.system.constraint(q, params)

        distance = dt * jnp.max(jnp.abs(manifold.velocity(q, p, params)))
        floor = slopes.floor(jnp.max(jnp.abs(q)) + distance)
        # Stage equations are solved fast on the way, and as well as asked for at the end.
        fast = partial(end, Solver.FAST)
        way = Way(fast, slopes.rows, part.is_straight, q, manifold.is_quadratic)
        closely = partial(end, solver)
        u, report = manifold.solve(way, closely, miss, floor, solver, BLIND_STEPS)
        return -manifold.blocks.spread(slopes.rows, u), floor, report

    def _by_equal_blocks(
        self,
        equal: EqualBlocks,
        part: Substep,
        moved: Moved,
        q: Any,
        p: Any,
        rows: Any,
        params: Any,
    ) -> tuple[Any, Any, Any, Report, dict[Any, Any]]:
        """The same, where ends are linear in momenta, each entry in its own."""
        given = equal.cut.numbers(params)
        if part.moves:
            start, pace = jax.jvp(lambda p: moved(p)[0], (p,), (jnp.ones_like(p),))
            change, around, found = equal.positions(rows, start, pace, given)
            q, p, report, terms = moved(p + change)
            old, rows = rows, equal.rows(q)
            missed = equal.left(old, rows, pace, around, given)
            report = _both(Report(found.iterations, missed), report)
        else:
            q, p, report, terms = moved(p)
        velocity = partial(self.manifold.velocity, q, params=params)
        v, pace = jax.jvp(velocity, (p,), (jnp.ones_like(p),))
        change, more = equal.velocities(rows, v, pace, given)
        return q, p + change, rows, _both(report, more), terms

    @property
    def lasting(self) -> tuple[Term, ...]:
        """Terms of the new positions that the next step evaluates again, if nothing is done."""
        first, last = self.parts[0].stepper, self.parts[-1].stepper
        of_positions = {t for t, d in self.dependence.items() if d.on_p <= Degree.CONSTANT}
        ends = _places(first, 0) & set(map(at_next, _places(last, last.plan.new_q.number)))
        return tuple(sorted(ends & of_positions))


def _places(stepper: Stepper, q_row: int) -> set[Term]:
    """Terms that are evaluated at a row of positions and the old momenta."""
    entries = (e for row in stepper.plan.rows.values() for e in row if not e.increment.is_joint)
    return {e.term for e in entries if (e.q_row, e.p_row) == (q_row, 0)}


def _both(one: Report, other: Report) -> Report:
    residual = residuals.worse(one.residual, other.residual)
    return Report(jnp.maximum(one.iterations, other.iterations), residual)


def _repeated(step: Any, repeats: int, q: Any, p: Any, slopes: Any) -> tuple[Any, Any, Any, Report]:
    """The same step again and again."""

    def again(_: int, now: tuple[Any, ...]) -> tuple[Any, ...]:
        *state, before = now
        *state, report, _ = step(*state)
        return *state, _both(before, report)

    none = Report(jnp.int32(0), jnp.zeros((), q.dtype))
    return lax.fori_loop(0, repeats, again, (q, p, slopes, none))


def constrained_stepper(
    system: System, method: Method, dtype: np.dtype, shortcuts: bool
) -> ConstrainedStepper:
    """The step of a method for constraints; parts in which nothing moves are left out."""
    steppers, begins = [], 0.0
    for inner, repeats in method.parts:
        stepper = one_stepper(system, inner, dtype, shortcuts, 0)
        steppers.append((stepper, repeats, round(begins, 15)))
        if system.time:
            begins += repeats * row_time(inner, inner.rows_for(system).q_rows[-1])
    manifold = Manifold(system, find_blocks(system))
    parts = tuple(
        Substep(stepper, repeats, begins, _moves_straight(stepper, manifold.blocks))
        for stepper, repeats, begins in steppers
        if stepper.plan.blocks
    )
    last = parts[-1].stepper if parts else steppers[-1][0]
    solvers = tuple(solver for part in parts for solver in part.stepper.solvers)
    dependence = {t: d for stepper, *_ in steppers for t, d in stepper.dependence.items()}
    notice = "multipliers of constraints are solved for on arrays"
    rest = dependence, solvers, None, notice, dtype
    straight = manifold.is_straight and all(part.is_straight for part in parts if part.moves)
    equal = (
        find_equal_blocks(system, manifold.blocks, manifold.is_quadratic, dtype)
        if straight and shortcuts
        else None
    )
    return ConstrainedStepper(system, method, last.plan, *rest, manifold, parts, equal)


def _moves_straight(stepper: Stepper, blocks: Blocks) -> bool:
    """Whether new positions are linear in momenta, and no block is moved by momenta of others."""
    system = stepper.system
    if not stepper.method.needs_for(system) <= {"dW", "dZ"}:
        return False
    z, noise, number = (
        jax.ShapeDtypeStruct(shape, stepper.dtype)
        for shape in ((system.dim,), (system.noises,), ())
    )

    def end(p: Any, q: Any, clock: Any, dt: Any, dW: Any, params: Any) -> Any:
        start = stepper.append(q, clock), stepper.append(p, clock)
        increments = Increments(dW=dW, dZ=dW)
        return stepper.split(stepper.advance(*start, dt, increments, params, Solver.FAST)[0])[0]

    clock = number if system.time else None
    return is_straight(end, blocks, z, z, clock, number, noise, system.params)
