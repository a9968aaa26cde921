"""Steps of systems with constraints: ordinary steps between projections of momenta."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.dependence import Degree
from dalembert.driven import Timed
from dalembert.methods import Method
from dalembert.noise import Increments
from dalembert.stepping import residuals
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.clocks import row_time
from dalembert.stepping.multipliers import Blocks, find_blocks, solve_multipliers
from dalembert.stepping.residuals import Report
from dalembert.stepping.stepper import StepInfo, Stepper, at_next, one_stepper
from dalembert.system import System, Term

__all__ = ["ConstrainedStepper", "Manifold", "constrained_stepper"]


@dataclass(frozen=True, eq=False)
class Manifold:
    """g(q) = 0 and Dg(q) H_p(q, p) = 0: what constraints make of phase space."""

    system: System
    blocks: Blocks

    def slopes(self, q: Any, params: Any) -> Any:
        """Dg(q)ᵀ as a function of multipliers."""
        _, pull = jax.vjp(lambda q: self.system.constraint(q, params), q)
        return lambda u: pull(u)[0]

    def velocity(self, q: Any, p: Any, params: Any) -> Any:
        """H_p, which is the same at all times."""
        fun = self.system.term(("H_p", 0))
        assert fun is not None, "there is a Hamiltonian"
        return fun(q, p, Timed(jnp.zeros((), q.dtype), params) if self.system.time else params)

    def normal_velocity(self, q: Any, p: Any, params: Any) -> Any:
        """Dg(q) H_p(q, p), shape (c,)."""
        along = self.velocity(q, p, params)
        return jax.jvp(lambda q: self.system.constraint(q, params), (q,), (along,))[1]

    def steepness(self, q: Any, params: Any) -> Any:
        """About the largest entry of Dg: what rounding of positions may do to g.

        It is that of a sum of all rows, with weights that let none of them cancel others for ever.
        """
        weights = 1 + np.cos(np.arange(self.system.constraint_count)) / 2
        return jnp.max(jnp.abs(self.slopes(q, params)(jnp.asarray(weights, q.dtype))))

    def project_momentum(self, q: Any, p: Any, params: Any, solver: Solver) -> tuple[Any, Report]:
        """p − Dg(q)ᵀμ with velocities that are tangent to g = 0."""
        slopes = self.slopes(q, params)

        def point(u: Any) -> Any:
            return self.velocity(q, p - slopes(u), params)

        def miss(v: Any) -> Any:
            return -jax.jvp(lambda q: self.system.constraint(q, params), (q,), (v,))[1]

        floor = self.steepness(q, params) * jnp.max(jnp.abs(self.velocity(q, p, params)))
        u, report = self.solve(point, point, miss, floor, q.dtype, solver)
        return p - slopes(u), report

    def project_position(self, q: Any, params: Any) -> tuple[Any, Report]:
        """The point q − W Dgᵀλ with g = 0, where W is H_pp: the nearest but for curvature."""
        slopes = self.slopes(q, params)

        def moved(u: Any) -> Any:
            rest = jnp.zeros_like(q)
            _, along = jax.jvp(lambda p: self.velocity(q, p, params), (rest,), (slopes(u),))
            return q - along

        def miss(q: Any) -> Any:
            return -self.system.constraint(q, params)

        far = jnp.max(jnp.abs(self.system.constraint(q, params))) + jnp.finfo(q.dtype).tiny
        floor = self.steepness(q, params) * jnp.max(jnp.abs(q)) + far
        u, report = self.solve(moved, moved, miss, floor, q.dtype, Solver.SAFE)
        return moved(u), report

    def solve(
        self, point: Any, closely: Any, miss: Any, floor: Any, dtype: Any, solver: Solver
    ) -> tuple[Any, Report]:
        """Multipliers that lead where nothing is missed; `closely` is `point` for derivatives."""
        like = jax.ShapeDtypeStruct((self.system.constraint_count,), dtype)
        safely = solver in (Solver.SAFE, Solver.BOTH)
        residual = (lambda u: miss(closely(u))) if solver is Solver.BOTH else None
        return solve_multipliers(point, miss, floor, self.blocks, like, safely, residual)


class Part(NamedTuple):
    """An ordinary step that is taken a number of times, each with projections.

    Attributes:
        begins: when the first of them begins, as a part of the whole step.
    """

    stepper: Stepper
    repeats: int
    begins: float

    @property
    def moves(self) -> bool:
        """Whether it moves positions."""
        return self.stepper.plan.new_q.number > 0


@dataclass(frozen=True, eq=False)
class ConstrainedStepper(Stepper):
    """One step of a method for constraints; `plan` and `solvers` are those of the last part."""

    manifold: Manifold
    parts: tuple[Part, ...]

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
        reports: list[Report] = []
        (q, start), (p, steps) = self.split(q), self.split(p)
        for part in self.parts:
            known = at_start if part is self.parts[0] and part.repeats == 1 else None
            clock = start, steps + part.begins if part.begins else steps
            step = partial(self._part, part, clock, dt, increments, params, solver, known)
            if part.repeats == 1:
                q, p, report = step(q, p)
            else:
                q, p, report = _repeated(step, part.repeats, q, p)
            reports.append(report)
        residual = reduce(residuals.worse, (report.residual for report in reports))
        iterations = reduce(jnp.maximum, (report.iterations for report in reports))
        q, p = self.append(q, start), self.append(p, None if steps is None else steps + 1)
        solved = (residual <= residuals.tolerance(self.dtype)) & self.is_finite(q, p)
        return q, p, StepInfo(solved, iterations, residual)

    def _part(
        self,
        part: Part,
        clock: tuple[Any, Any],
        dt: Any,
        increments: Increments,
        params: Any,
        solver: Solver,
        at_start: Any,
        q: Any,
        p: Any,
    ) -> tuple[Any, Any, Report]:
        q, p, report = self._moved(part, clock, dt, increments, params, solver, at_start, q, p)
        p, more = self.manifold.project_momentum(q, p, params, solver)
        return q, p, _both(report, more)

    def _moved(
        self,
        part: Part,
        clock: tuple[Any, Any],
        dt: Any,
        increments: Increments,
        params: Any,
        solver: Solver,
        at_start: Any,
        q: Any,
        p: Any,
    ) -> tuple[Any, Any, Report]:
        """A step from a state whose momenta have been changed so that it ends on g = 0."""
        manifold = self.manifold
        slopes = manifold.slopes(q, params)

        def moved(p: Any, solver: Solver) -> tuple[Any, Any, StepInfo]:
            start = self.append(q, clock[0]), self.append(p, clock[1])
            *end, info = part.stepper.advance(*start, dt, increments, params, solver, at_start)
            new_q, new_p = (self.split(x)[0] for x in end)
            return new_q, new_p, info

        if not part.moves:
            q, p, info = moved(p, solver)
            return q, p, Report(info.iterations, info.residual)

        def point(solver: Solver, u: Any) -> Any:
            return moved(p - slopes(u), solver)[0]

        def miss(q: Any) -> Any:
            return -self.system.constraint(q, params)

        way = dt * jnp.max(jnp.abs(manifold.velocity(q, p, params)))
        floor = manifold.steepness(q, params) * (jnp.max(jnp.abs(q)) + way)
        # Stage equations are solved fast on the way, and as well as asked for at the end.
        ways = partial(point, Solver.FAST), partial(point, solver)
        u, report = manifold.solve(*ways, miss, floor, q.dtype, solver)
        q, p, info = moved(p - slopes(u), solver)
        left = jnp.max(jnp.abs(miss(q))) / (floor + jnp.finfo(floor.dtype).tiny)
        missed = residuals.worst_if_nan(left)
        return (
            q,
            p,
            _both(Report(report.iterations, missed), Report(info.iterations, info.residual)),
        )

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


def _repeated(step: Any, repeats: int, q: Any, p: Any) -> tuple[Any, Any, Report]:
    """The same step again and again."""

    def again(_: int, now: tuple[Any, Any, Report]) -> tuple[Any, Any, Report]:
        q, p, before = now
        q, p, report = step(q, p)
        return q, p, _both(before, report)

    none = Report(jnp.int32(0), jnp.zeros((), q.dtype))
    return lax.fori_loop(0, repeats, again, (q, p, none))


def constrained_stepper(
    system: System, method: Method, dtype: np.dtype, shortcuts: bool
) -> ConstrainedStepper:
    """The step of a method for constraints; parts in which nothing moves are left out."""
    steppers, begins = [], 0.0
    for inner, repeats in method.parts:
        stepper = one_stepper(system, inner, dtype, shortcuts, 0)
        steppers.append(Part(stepper, repeats, round(begins, 15)))
        if system.time:
            begins += repeats * row_time(inner, inner.rows_for(system).q_rows[-1])
    parts = tuple(part for part in steppers if part.stepper.plan.blocks)
    last = (parts or steppers)[-1].stepper
    manifold = Manifold(system, find_blocks(system))
    solvers = tuple(solver for part in parts for solver in part.stepper.solvers)
    dependence = {t: d for part in steppers for t, d in part.stepper.dependence.items()}
    notice = "multipliers of constraints are solved for on arrays"
    rest = dependence, solvers, None, notice, dtype
    return ConstrainedStepper(system, method, last.plan, *rest, manifold, parts)
