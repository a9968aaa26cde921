"""Steps of small systems with constraints, written out on scalars for the fast engines.

Everything but the number of Newton steps is straight-line code: functions of arrays are traced and
written out (`scalarise.py`), and multipliers of positions are found by as many passes as a path
needs. What is not solved so goes to the arrays, whose solver is safeguarded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.noise import Increments
from dalembert.stepping import newton, residuals
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.constrained import ConstrainedStepper, Substep
from dalembert.stepping.expressions import Program, Shared, components, vector
from dalembert.stepping.manifold import Slopes
from dalembert.stepping.scalarise import NotScalarError, scalarise
from dalembert.stepping.sheets import Chord, has_left
from dalembert.stepping.stepper import MAX_SCALAR_DIM, StepInfo
from dalembert.system import Term

MAX_MOVES = 8
"""Moves of positions in a step, each with a Newton loop, that are written out."""


class PartPrograms(NamedTuple):
    """A part of a step as programs of (q, p, clock, dt, increments, params).

    Attributes:
        first: multipliers of positions after one Newton step; None if positions stand still.
        next_pass: better multipliers, and what they miss; they come before the other arguments.
        end: the new state, and what is missed there, given multipliers of positions.
    """

    first: Program | None
    next_pass: Program | None
    end: Program


@dataclass(frozen=True, eq=False)
class ScalarConstrainedStepper(ConstrainedStepper):
    """A step on scalars where it is to be fast, else that of `arrays`."""

    arrays: ConstrainedStepper
    programs: tuple[PartPrograms, ...]

    @property
    def size(self) -> int:
        """About how many operations on scalars there are in a step without its Newton loops."""
        return sum(program.size for part in self.programs for program in part if program)

    @property
    def lasting(self) -> tuple[Term, ...]:
        """Nothing is handed on: what is computed twice is found by the compiler."""
        return ()

    def terms_at(
        self, q: Any, p: Any, dt: Any, params: Any, known: Mapping[Term, Any] | None = None
    ) -> dict[Term, Any]:
        """Nothing, likewise."""
        return {}

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
        """One step of one path; multipliers that are not found fast are left to be reported."""
        if solver not in (Solver.FAST, Solver.LOOP):
            arrays = self.arrays
            begin_q, begin_p = (arrays.entered(jnp.stack(x)) for x in (q, p))
            *end, info = arrays.advance(begin_q, begin_p, dt, increments, params, solver)
            new_q, new_p = (tuple(arrays.leave(x)) for x in end)
            return new_q, new_p, info, {}
        (q, start), (p, steps) = self.split(q), self.split(p)
        q, p = vector(q), vector(p)
        told = dt, _driving(increments, self.arrays), params
        passes, left = jnp.int32(1), jnp.zeros((), self.dtype)
        for part, programs in zip(self.parts, self.programs, strict=True):
            clock = None if start is None else (start, steps + part.begins)
            for _ in range(part.repeats):
                q, p, count, missed = self._part(programs, q, p, clock, *told)
                passes, left = jnp.maximum(passes, count), residuals.worse(left, missed)
        q, p = newton.as_scalars(q, self.dtype), newton.as_scalars(p, self.dtype)
        q, p = self.append(q, start), self.append(p, None if steps is None else steps + 1)
        solved = (left <= residuals.tolerance(self.dtype)) & self.is_finite(q, p)
        return q, p, StepInfo(solved, passes, left), {}

    def _part(self, programs: PartPrograms, *given: Any) -> tuple[Any, Any, Any, Any]:
        """A part of a step: its state, Newton steps for positions, and what is missed."""
        known, u, count = jax.tree.map(components, given), vector([]), jnp.int32(1)
        if programs.first and programs.next_pass:
            better = programs.next_pass

            def next_pass(u: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
                found, missed = better(vector(u), *known)
                return newton.as_scalars(found, self.dtype), _worst(missed)

            guess = newton.as_scalars(programs.first(*known), self.dtype)
            found, report = newton.newton_loop(next_pass, guess)
            u, count = vector(found), report.iterations
        q, p, missed = programs.end(u, *known)
        return q, p, count, _worst(missed)


def _worst(missed: Any) -> Any:
    return reduce(residuals.worse, map(residuals.worst_if_nan, missed))


def constrained_on_scalars(arrays: ConstrainedStepper) -> ConstrainedStepper:
    """The same step on scalars if there is such a form; else its notice says why not."""
    try:
        programs = _all_programs(arrays)
    except NotScalarError as error:
        return replace(arrays, notice=f"{arrays.notice}: {error}")
    given: dict[str, Any] = {f.name: getattr(arrays, f.name) for f in fields(arrays) if f.init}
    given["notice"] = ""
    return ScalarConstrainedStepper(**given, arrays=arrays, programs=programs)


def _all_programs(stepper: ConstrainedStepper) -> tuple[PartPrograms, ...]:
    if stepper.system.dim > MAX_SCALAR_DIM:
        raise NotScalarError(f"{stepper.system.dim} components are too many to write out")
    if not stepper.manifold.is_straight:
        raise NotScalarError("velocities are not linear in momenta")
    if sum(part.repeats for part in stepper.parts if part.moves) > MAX_MOVES:
        raise NotScalarError(f"more than {MAX_MOVES} moves of positions in a step")
    if not stepper.method.needs_for(stepper.system) <= {"dW", "dZ"}:
        raise NotScalarError("it reads other increments than ΔW and ΔZ")
    found: dict[Any, PartPrograms] = {}
    return tuple(
        found.setdefault((part.stepper, part.is_straight), _programs(stepper, part))
        for part in stepper.parts
    )


def _driving(increments: Increments, stepper: ConstrainedStepper) -> tuple[Any, Any]:
    """ΔW, and ΔZ if it is read."""
    return increments.dW, increments.dZ if "dZ" in stepper.method.needs_for(
        stepper.system
    ) else None


def _programs(whole: ConstrainedStepper, part: Substep) -> PartPrograms:
    """The programs of a part; NotScalarError if something in it has no straight-line form."""
    system, manifold, blocks, dtype = (
        whole.system,
        whole.manifold,
        whole.manifold.blocks,
        whole.dtype,
    )

    def moved(
        q: Any, p: Any, clock: Any, dt: Any, driving: Any, params: Any
    ) -> tuple[Any, Any, Any]:
        """The new state, and the residual of stage equations."""
        start = (q, p) if clock is None else ((q, clock[0]), (p, clock[1]))
        increments = Increments(dW=driving[0], dZ=driving[1])
        *end, info, _ = part.stepper._advance(*start, dt, increments, params, Solver.FAST, None)
        q, p = (whole.split(x)[0] for x in end)
        return q, p, info.residual

    # Not their maximum: that of GPU kernels passes over what is not a number.
    def missed(q: Any, floor: Any, params: Any) -> Any:
        return jnp.abs(system.constraint(q, params)) / floor

    def floor_of(q: Any, p: Any, dt: Any, params: Any, slopes: Slopes) -> Any:
        pace = jnp.max(jnp.abs(manifold.velocity(q, p, params)))
        return slopes.floor(jnp.max(jnp.abs(q)) + dt * pace)

    def paces(end: Any, still: Any, slopes: Slopes) -> tuple[Any, ...]:
        """How positions change with each multiplier of a block."""
        return tuple(jax.jvp(end, (still,), (-row,))[1] for row in slopes.rows)

    def inverse_at(x: Any, along: tuple[Any, ...], params: Any) -> Any:
        return blocks.inverse([manifold.along(x, row, params) for row in along])

    def has_jumped(
        slopes: Slopes, new: Any, q: Any, p: Any, clock: Any, dt: Any, *told: Any
    ) -> Any:
        def end(change: Any) -> Any:
            return moved(q, p + change, clock, dt, *told)[0]

        def miss(x: Any) -> Any:
            return system.constraint(x, told[-1])

        still = jnp.zeros_like(p)
        chord = Chord(q, end(still), new, paces(end, still, slopes), miss)
        return has_left(blocks, manifold.is_quadratic, chord)

    def next_pass(u: Any, q: Any, p: Any, clock: Any, dt: Any, *told: Any) -> tuple[Any, Any]:
        params, slopes = told[-1], manifold.slopes(q, told[-1])

        def end(change: Any) -> Any:
            return moved(q, p + change, clock, dt, *told)[0]

        def reach(u: Any) -> Any:
            return end(-blocks.spread(slopes.rows, blocks.split(u)))

        x = reach(u)
        along = paces(end, jnp.zeros_like(p), slopes)
        change = inverse_at(x, along, params)(blocks.split(system.constraint(x, params)))
        better = u - blocks.join(change)
        return better, missed(reach(better), floor_of(q, p, dt, params, slopes), params)

    def first(*given: Any) -> Any:
        return next_pass(jnp.zeros(system.constraint_count, dtype), *given)[0]

    def end(u: Any, q: Any, p: Any, clock: Any, dt: Any, *told: Any) -> tuple[Any, Any, Any]:
        params, slopes, left = told[-1], manifold.slopes(q, told[-1]), []
        far, near = jnp.full((), jnp.inf, dtype), jnp.zeros((), dtype)
        begin = q, p, clock, dt, *told
        change = blocks.spread(slopes.rows, blocks.split(u)) if part.moves else jnp.zeros_like(p)
        floor = floor_of(q, p, dt, params, slopes)
        q, p, of_stages = moved(q, p - change, clock, dt, *told)
        if part.stepper.is_implicit:
            left.append(of_stages[None])
        if part.moves:
            left.append(missed(q, floor, params))
            left.append(jnp.where(has_jumped(slopes, q, *begin), far, near))
            slopes = manifold.slopes(q, params)
        floor = slopes.floor(jnp.max(jnp.abs(manifold.velocity(q, p, params))))
        columns = []
        for row in slopes.rows:
            along = jax.jvp(lambda p: manifold.velocity(q, p, params), (p,), (row,))[1]
            columns.append(manifold.along(q, along, params))
        inverse = blocks.inverse(columns)
        # Once more for what rounding has left.
        for _ in range(2):
            change = inverse(blocks.split(manifold.normal_velocity(q, p, params)))
            p = p - blocks.spread(slopes.rows, change)
        left.append(jnp.abs(manifold.normal_velocity(q, p, params)) / floor)
        return q, p, jnp.concatenate(left)

    like = _types(whole)
    u = jax.ShapeDtypeStruct((system.constraint_count if part.moves else 0,), dtype)
    if not part.moves:
        return PartPrograms(None, None, scalarise(end, u, *like))
    return PartPrograms(
        scalarise(first, *like), scalarise(next_pass, u, *like), scalarise(end, u, *like)
    )


def _types(stepper: ConstrainedStepper) -> tuple[Any, ...]:
    """Types of (q, p, clock, dt, ΔW and ΔZ, params)."""
    system, dtype = stepper.system, stepper.dtype
    z, number = jax.ShapeDtypeStruct((system.dim,), dtype), jax.ShapeDtypeStruct((), dtype)
    noise: Any = jax.ShapeDtypeStruct((system.noises,), dtype)
    params = jax.tree.map(lambda x: Shared(np.shape(x), x.dtype), system.params)
    clock = (number, number) if system.time else None
    driving = _driving(Increments(dW=noise, dZ=noise), stepper)
    return z, z, clock, Shared((), dtype), driving, params
