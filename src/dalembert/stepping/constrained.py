"""Steps of systems with constraints: ordinary steps between projections of momenta."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.dependence import Degree, degree
from dalembert.driven import Timed
from dalembert.methods import Method
from dalembert.noise import Increments
from dalembert.stepping import residuals
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.clocks import row_time
from dalembert.stepping.locality import is_entrywise
from dalembert.stepping.multipliers import Blocks, Way, find_blocks, solve_multipliers
from dalembert.stepping.residuals import Report
from dalembert.stepping.stepper import StepInfo, Stepper, at_next, at_the_end, one_stepper
from dalembert.system import System, Term
from dalembert.traces import live

__all__ = ["ConstrainedStepper", "Manifold", "constrained_stepper"]

VELOCITY: Term = ("H_p", 0)
SLOPES: Term = ("Dg", 0)
"""What `Manifold.slopes` is known by among the terms of a state."""

BLIND_STEPS = 2
"""Newton steps for positions before the one that is looked at first: fewer are seldom enough."""


class Slopes(NamedTuple):
    """Dg at some positions.

    Attributes:
        rows: Dgᵀ of all colours, m of shape (dim,): all of Dg, because blocks share nothing.
        steepness: the largest entry of Dg for every constraint, (c,).
    """

    rows: Any
    steepness: Any

    def floor(self, size: Any) -> Any:
        """What rounding of positions or velocities of a size may do to each constraint, (c,)."""
        return self.steepness * size + jnp.finfo(self.steepness.dtype).tiny


@dataclass(frozen=True, eq=False)
class Manifold:
    """g(q) = 0 and Dg(q) H_p(q, p) = 0: what constraints make of phase space."""

    system: System
    blocks: Blocks

    @cached_property
    def is_straight(self) -> bool:
        """Whether velocities are linear in momenta, and none is moved by momenta of others."""
        z = jax.ShapeDtypeStruct((self.system.dim,), np.float64)
        return _is_straight(
            lambda p, q, params: self.velocity(q, p, params), self.blocks, z, z, self.system.params
        )

    def slopes(self, q: Any, params: Any) -> Slopes:
        """Dg(q), and how steep every constraint is."""
        _, pull = jax.vjp(lambda q: self.system.constraint(q, params), q)
        blocks = self.blocks
        slopes = blocks.for_each(lambda u: pull(u)[0], blocks.colours(q.dtype))
        return Slopes(slopes, blocks.largest(slopes))

    def velocity(self, q: Any, p: Any, params: Any) -> Any:
        """H_p, which is the same at all times."""
        fun = self.system.term(VELOCITY)
        assert fun is not None, "there is a Hamiltonian"
        return fun(q, p, Timed(jnp.zeros((), q.dtype), params) if self.system.time else params)

    def normal_velocity(self, q: Any, p: Any, params: Any) -> Any:
        """Dg(q) H_p(q, p), shape (c,)."""
        return self.along(q, self.velocity(q, p, params), params)

    def along(self, q: Any, v: Any, params: Any) -> Any:
        """Dg(q) v, shape (c,)."""
        return jax.jvp(lambda q: self.system.constraint(q, params), (q,), (v,))[1]

    def project_momentum(
        self, q: Any, p: Any, params: Any, solver: Solver, slopes: Slopes
    ) -> tuple[Any, Report]:
        """p − Dg(q)ᵀμ with velocities that are tangent to g = 0."""

        def end(change: Any) -> Any:
            return self.velocity(q, p + change, params)

        def miss(v: Any) -> Any:
            return self.along(q, v, params)

        floor = slopes.floor(jnp.max(jnp.abs(self.velocity(q, p, params))))
        way = Way(end, slopes.rows, self.is_straight)
        u, report = self.solve(way, end, miss, floor, solver, blind=0 if way.is_straight else 1)
        change = -self.blocks.spread(slopes.rows, u)
        # Where velocities are linear, they are what has been looked at.
        left = report.residual if way.is_straight else _left(miss(end(change)), floor)
        return p + change, Report(report.iterations, left)

    def project_position(self, q: Any, params: Any) -> tuple[Any, Report]:
        """The point q − W Dgᵀλ with g = 0, where W is H_pp: the nearest but for curvature.

        From far away to what rounding leaves there, and from that point to what it leaves here.
        """
        near, _ = self._project_position(q, params)
        return self._project_position(near, params)

    def _project_position(self, q: Any, params: Any) -> tuple[Any, Report]:

        def end(change: Any) -> Any:
            rest = jnp.zeros_like(q)
            return q + jax.jvp(lambda p: self.velocity(q, p, params), (rest,), (change,))[1]

        def miss(q: Any) -> Any:
            return self.system.constraint(q, params)

        slopes = self.slopes(q, params)
        floor = slopes.floor(jnp.max(jnp.abs(q)))
        way = Way(end, slopes.rows, self.is_straight)
        u, report = self.solve(way, end, miss, floor + jnp.abs(miss(q)), Solver.SAFE)
        point = end(-self.blocks.spread(slopes.rows, u))
        return point, Report(report.iterations, _left(miss(point), floor))

    def solve(
        self, way: Way, closely: Any, miss: Any, floor: Any, solver: Solver, blind: int = 0
    ) -> tuple[Any, Report]:
        """Multipliers that lead where nothing is missed; `closely` is `way.end` for derivatives."""
        blocks, safely = self.blocks, solver in (Solver.SAFE, Solver.BOTH)

        def residual(u: Any) -> Any:
            return miss(closely(-blocks.spread(way.slopes, blocks.split(u))))

        wanted = residual if solver is Solver.BOTH else None
        return solve_multipliers(way, miss, floor, blocks, blind, safely, wanted)


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
    """One step of a method for constraints; `plan` and `solvers` are those of the last part."""

    manifold: Manifold
    parts: tuple[Substep, ...]

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

    def advance(
        self,
        q: Any,
        p: Any,
        dt: Any,
        increments: Increments,
        params: Any,
        solver: Solver = Solver.BOTH,
        at_start: Mapping[Term, Any] | None = None,
    ) -> tuple[Any, Any, StepInfo]:
        """One step of one path: part after part, and the worst of what they report."""
        return self.advance_on(q, p, dt, increments, params, solver, at_start)[:3]

    def advance_on(
        self,
        q: Any,
        p: Any,
        dt: Any,
        increments: Increments,
        params: Any,
        solver: Solver,
        at_start: Mapping[Term, Any] | None,
    ) -> tuple[Any, Any, StepInfo, dict[Term, Any]]:
        """The same, and `terms_at` the new state: the slopes of constraints are among them."""
        terms = dict(at_start or self.terms_at(q, p, dt, params))
        reports: list[Report] = []
        (q, start), (p, steps) = self.split(q), self.split(p)
        for part in self.parts:
            slopes = terms.pop(SLOPES)
            known = terms if part is self.parts[0] and part.repeats == 1 else {}
            clock = start, steps + part.begins if part.begins else steps
            step = partial(self._part, part, clock, dt, increments, params, solver, known)
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
        terms = self.terms_at(q, p, dt, params, terms)
        return q, p, StepInfo(solved, iterations, residual), terms

    def terms_at(
        self, q: Any, p: Any, dt: Any, params: Any, known: Mapping[Term, Any] | None = None
    ) -> dict[Term, Any]:
        """Lasting terms and slopes at a state, of which some may be known."""
        found = super().terms_at(q, p, dt, params, known)
        if SLOPES in found:
            return found
        return found | {SLOPES: self.manifold.slopes(self.split(q)[0], params)}

    def _part(
        self,
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
        given = (part, clock, dt, increments, params, solver, at_start, q, p, slopes)
        q, p, report, terms = self._moved(*given)
        slopes = self.manifold.slopes(q, params) if part.moves else slopes
        p, more = self.manifold.project_momentum(q, p, params, solver, slopes)
        return q, p, slopes, _both(report, more), terms

    def _moved(
        self,
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
    ) -> tuple[Any, Any, Report, dict[Any, Any]]:
        """A step from a state whose momenta have been changed so that it ends on g = 0."""
        manifold = self.manifold

        def moved(p: Any, solver: Solver) -> tuple[Any, Any, StepInfo, dict[Any, Any]]:
            start = self.append(q, clock[0]), self.append(p, clock[1])
            given = *start, dt, increments, params, solver, at_start
            *end, info, terms = part.stepper._advance(*given)
            new_q, new_p = (self.split(x)[0] for x in end)
            return new_q, new_p, info, terms

        if not part.moves:
            q, p, info, terms = moved(p, solver)
            return q, p, Report(info.iterations, info.residual), terms

        def end(solver: Solver, change: Any) -> Any:
            return moved(p + change, solver)[0]

        def miss(q: Any) -> Any:
            return self.system.constraint(q, params)

        distance = dt * jnp.max(jnp.abs(manifold.velocity(q, p, params)))
        floor = slopes.floor(jnp.max(jnp.abs(q)) + distance)
        # Stage equations are solved fast on the way, and as well as asked for at the end.
        way, closely = (
            Way(partial(end, Solver.FAST), slopes.rows, part.is_straight),
            partial(end, solver),
        )
        u, report = manifold.solve(way, closely, miss, floor, solver, BLIND_STEPS)
        q, p, info, terms = moved(p - manifold.blocks.spread(slopes.rows, u), solver)
        solved = Report(info.iterations, info.residual)
        return q, p, _both(Report(report.iterations, _left(miss(q), floor)), solved), terms

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


def _left(miss: Any, floor: Any) -> Any:
    """The largest of what constraints are missed by, relative to what rounding may do to each."""
    return residuals.worst_if_nan(jnp.max(jnp.abs(miss) / floor))


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
    return ConstrainedStepper(system, method, last.plan, *rest, manifold, parts)


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
    return _is_straight(end, blocks, z, z, clock, number, noise, system.params)


def _is_straight(fun: Any, blocks: Blocks, *like: Any) -> bool:
    """Whether a function is linear in its first argument, entry by entry if there are blocks."""
    if degree(fun, like, (0,)) > Degree.AFFINE:
        return False
    return blocks.places.shape[1] == 1 or is_entrywise(live(fun, *like), *jax.tree.leaves(like))
