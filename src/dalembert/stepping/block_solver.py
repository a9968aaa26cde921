"""The implicit and explicit rows of one block of a plan, and how they are solved.

In the scalar regime the equations of a block are programs on scalars, in the array regime functions
of arrays; what the fast ways leave unsolved goes to one damped Newton loop on arrays.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.dependence import Degree, degree_of
from dalembert.elementary import absolute
from dalembert.methods.stages import Increment
from dalembert.primitives import RULES
from dalembert.stepping import many, newton, rescue, residuals
from dalembert.stepping.brief import brief_newton
from dalembert.stepping.equations import (
    OLD_P,
    OLD_Q,
    JointIncrement,
    RowEquations,
    Surroundings,
    increment_names,
)
from dalembert.stepping.expressions import Shared, components, vector
from dalembert.stepping.locality import keeps_entries, keeps_particles
from dalembert.stepping.plan import Dependence, EquationBlock, Node, Plan
from dalembert.stepping.programs import Equations, ScalarEquations, UnknownRows, scalar_equations
from dalembert.stepping.requirements import TermsTracedOnce
from dalembert.stepping.residuals import Report
from dalembert.stepping.root import implicit_root
from dalembert.stepping.scalarise import NotScalarError, stack
from dalembert.system import System, Term
from dalembert.traces import contains, scalars

MAX_DENSE_UNKNOWNS = 16
"""Beyond this the array regime forms no matrix."""

MAX_COMPONENTS = 8
"""Unknowns of a particle up to which its equations are solved with a small matrix."""


class Solver(Enum):
    """How implicit equations are solved; every way reports.

    FAST takes a fixed number of Newton steps, unless they are long, and on arrays what `many.py`
    says; SWEPT leaves out Newton's method there, and BLIND all that follows where the first sweeps
    were not enough. LOOP takes as many as are needed. SAFE is the damped Newton loop, and BOTH is
    that loop for what the faster ways have left unsolved. TRY is for a step that is taken alone:
    BOTH without the loop, or on arrays `brief.py`. Where it succeeds it agrees with BOTH to
    rounding.
    """

    FAST = "fast"
    SWEPT = "swept"
    BLIND = "blind"
    LOOP = "loop"
    SAFE = "safe"
    BOTH = "both"
    TRY = "try"


@dataclass(frozen=True)
class BlockSolver:
    """One block with its equations on arrays and, in the scalar regime, on scalars.

    Attributes:
        width: how many consecutive unknowns have equations of their own; 0 if only all have.
        has_rules: whether there is code on scalars that knows nothing of derivatives that JAX has
            been told.
    """

    block: EquationBlock
    affine: bool
    width: int
    arrays: Equations
    relative: Callable[[Any, Any], Any]
    worst: Callable[[Any], Any]
    scalars: ScalarEquations | None
    has_rules: bool

    @property
    def fast_iterations(self) -> int:
        """Newton steps that the fast solver takes."""
        if not self.block.unknowns:
            return 0
        return 1 if self.affine else newton.FAST_STEPS

    def complete(
        self, around: Surroundings, solver: Solver
    ) -> tuple[dict[Node, Any], dict[Any, Any]]:
        """Values of the explicit rows and, on arrays, the terms in them by place."""
        if self.scalars is None:
            return self.arrays.complete_with_terms(around)
        if solver in (Solver.BOTH, Solver.TRY) and self.has_rules:
            return jax.tree.map(components, self.arrays.complete(_as_arrays(around))), {}
        return self.scalars.complete(around), {}

    def solve(
        self, guess: list[Any], around: Surroundings, solver: Solver
    ) -> tuple[list[Any], Report]:
        """Values of the unknown rows, and how well they satisfy the equations."""
        if not self.block.unknowns:
            return [], Report(0, 0.0)
        if self.scalars is None:
            old = jnp.concatenate(guess)
            if solver is Solver.TRY and old.size <= MAX_DENSE_UNKNOWNS and not self.width:
                u, report = self._solve_briefly(old, around)
            elif solver in (Solver.FAST, Solver.SWEPT, Solver.BLIND, Solver.TRY):
                u, report = self._solve_many(old, around, solver)
            else:
                u, report = self._solve_vector(old, around)
        elif solver is Solver.SAFE:
            start = stack(np.concatenate(guess))
            u, report = self._solve_vector(start, _as_arrays(around))
            u = components(u)
        else:
            assert self.scalars.unknown, "there are unknowns"
            old = np.concatenate(guess)
            u, report = self._solve_scalars(self.scalars.unknown, old, around, solver)
        return list(u.reshape(len(guess), -1)), report

    def _solve_vector(self, guess: jax.Array, around: Surroundings) -> tuple[jax.Array, Report]:
        def residual(u: jax.Array) -> jax.Array:
            return self.arrays.residual(u, around)

        def solve(old: jax.Array) -> tuple[jax.Array, Report]:
            if self.scalars is not None:
                error = self.relative(residual(old), self.arrays.floor(old, around))
                return self._safe_newton(old, error, old, around)
            u, report = self._solve_many(old, around, Solver.TRY)
            is_fine = jnp.isfinite(report.residual)
            u, error = jnp.where(is_fine, u, old), jnp.where(is_fine, report.residual, jnp.inf)
            found, more = self._safe_newton(u, error, old, around)
            return found, more._replace(iterations=report.iterations + more.iterations)

        return implicit_root(residual, guess, solve, self._linear_solve(guess.size))

    def _solve_many(
        self, old: jax.Array, around: Surroundings, solver: Solver
    ) -> tuple[jax.Array, Report]:
        """Unknowns of any number without a matrix: entry by entry, by sweeps, or by products."""

        def residual(u: jax.Array) -> jax.Array:
            return self.arrays.residual(u, around)

        def closely(r: jax.Array, u: jax.Array) -> jax.Array:
            return self.relative(r, self.arrays.floor(u, around))

        guess, kind = self.arrays.guess(around), (self.width, self.affine)
        return many.solve(
            residual, self.worst, closely, guess, old, *kind,
            look=solver is Solver.TRY,
            products=solver is not Solver.SWEPT,
            goes_on=solver is not Solver.BLIND,
        )  # fmt: skip

    def _solve_briefly(self, old: jax.Array, around: Surroundings) -> tuple[jax.Array, Report]:
        """A few unknowns on arrays, in code that is soon compiled."""
        residual, guess = partial(self.arrays.residual, around=around), self.arrays.guess(around)
        return brief_newton(residual, self.worst, guess, old, self.affine)

    def _safe_newton(
        self, start: Any, error: Any, old: Any, around: Surroundings
    ) -> tuple[Any, Report]:
        size = sum(np.size(x) for x in start) if isinstance(start, tuple) else start.size
        return rescue.safe_newton(
            lambda u: self.arrays.residual(u, around),
            lambda u: self.arrays.floor(u, around),
            self.relative,
            self._linear_solve(size),
            start,
            error,
            old,
        )

    def _linear_solve(self, size: int) -> Callable[..., Any]:
        return rescue.dense_solve if size <= MAX_DENSE_UNKNOWNS else rescue.krylov_solve

    def _solve_scalars(
        self, equations: UnknownRows, old: np.ndarray, around: Surroundings, solver: Solver
    ) -> tuple[np.ndarray, Report]:
        """Unknowns stay apart, so that nothing is stacked unless the damped loop is entered."""
        dtype = old[0].dtype

        def residual(u: tuple[Any, ...]) -> tuple[Any, ...]:
            if self.has_rules:
                return tuple(self.arrays.residual(jnp.stack(u), _as_arrays(around)))
            return newton.as_scalars(equations.residual(vector(u), around), dtype)

        def with_error(found: np.ndarray, worst: np.ndarray, scale: np.ndarray) -> tuple[Any, Any]:
            return newton.as_scalars(found, dtype), residuals.rough_relative(worst, scale)

        def closely(u: tuple[Any, ...], bound: Any) -> Any:
            return newton.checked(bound, lambda: equations.check(vector(u), around))

        def solve(u: tuple[Any, ...]) -> tuple[tuple[Any, ...], Report]:
            if solver is Solver.FAST and equations.is_short:
                found, worst, scale = equations.fast(vector(u), around)
                report = Report(jnp.int32(self.fast_iterations), residuals.relative(worst, scale))
                return newton.as_scalars(found, dtype), report
            if self.affine:
                found, error = with_error(*equations.linear(vector(u), around))
                return found, Report(jnp.int32(1), closely(found, error))

            def next_pass(u: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
                return with_error(*equations.next_pass(vector(u), around))

            def last_pass(u: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
                found, _ = next_pass(u)
                return found, residuals.relative(*equations.check(vector(found), around))

            first = newton.as_scalars(equations.first_pass(vector(u), around), dtype)
            if equations.is_short and solver is Solver.LOOP:
                return newton.newton_loop(last_pass, first, second_pass=next_pass)
            most = newton.ENOUGH_ROUNDINGS if solver in (Solver.FAST, Solver.LOOP) else 0
            found, report = newton.newton_loop(next_pass, first, roundings=most)
            return found, report._replace(residual=closely(found, report.residual))

        def solve_and_check(u: tuple[Any, ...]) -> tuple[tuple[Any, ...], Report]:
            found, report = solve(u)
            error = residuals.relative(*equations.check(vector(found), around))
            return found, report._replace(residual=error)

        def solve_safely(u: tuple[Any, ...]) -> tuple[tuple[Any, ...], Report]:
            found, (steps, error) = solve_and_check(u)
            is_finite = jnp.isfinite(reduce(jnp.add, map(absolute, found)) + error)
            before = newton.as_scalars(old, dtype)
            pairs = zip(found, before, strict=True)
            start = tuple(lax.select(is_finite, *pair) for pair in pairs)
            error = jnp.where(is_finite, error, jnp.ones_like(error))
            found, report = self._safe_newton(start, error, before, _as_arrays(around))
            return found, report._replace(iterations=report.iterations + steps)

        def tangent_solve(product: Callable[..., Any], rhs: tuple[Any, ...]) -> tuple[Any, ...]:
            def product_of_vector(v: jax.Array) -> jax.Array:
                return jnp.stack(product(tuple(v)))

            return tuple(rescue.dense_solve(product_of_vector, jnp.stack(rhs)))

        start = newton.as_scalars(equations.guess(around), dtype)
        if solver is not Solver.BOTH:
            u, report = (solve_and_check if solver is Solver.TRY else solve)(start)
        else:
            u, report = implicit_root(residual, start, solve_safely, tangent_solve)
        return vector(u), report


def _as_arrays(around: Surroundings) -> Surroundings:
    return jax.tree.map(stack, around)


def block_solvers(
    terms: TermsTracedOnce,
    plan: Plan,
    dependence: Mapping[Term, Dependence],
    z: Any,
    shortcuts: bool,
    scalar: bool,
    most: float,
) -> tuple[BlockSolver, ...]:
    """How each block of a plan is solved.

    Raises:
        NotScalarError: if it cannot be written out in scalars, or has more operations than `most`.
    """
    system, functions = terms.system, RowEquations(plan, dependence, terms)
    increments = {name: _type_of(name, system, z) for name in increment_names(plan)}
    params = jax.tree.map(lambda x: Shared(x.shape, x.dtype), system.params)
    # Each path keeps its own time.
    times = dict.fromkeys(plan.times, jax.ShapeDtypeStruct((), z.dtype))
    rows: dict[Node, Any] = {OLD_Q: z, OLD_P: z}
    told = scalar and any(
        contains(jax.make_jaxpr(fun)(*terms.like(term)), RULES)
        for term, fun in functions.terms.items()
    )
    solvers, given = [], []
    for block in plan.blocks:
        around = Surroundings(dict(rows), increments, params, {}, times)
        rows |= dict.fromkeys(block.unknowns, z)
        known = Surroundings(dict(rows), increments, params, {}, times)
        rows |= dict.fromkeys(block.explicit, z)
        u = jax.ShapeDtypeStruct((len(block.unknowns) * system.dim,), z.dtype)
        arrays = Equations(
            *(partial(getattr(functions, name), block) for name in Equations._fields)
        )
        affine, width, trace = False, 0, None
        if block.unknowns:
            trace = jax.make_jaxpr(arrays.residual)(u, around)
            most -= (u.size + 1) * scalars(trace) if scalar and most < np.inf else 0
            if most < 0:
                raise NotScalarError("more operations than it is worth")
            affine = shortcuts and degree_of(trace, (u, around), (0,)) <= Degree.AFFINE
            width = _width(system, trace) if shortcuts and not scalar else 0
        measures = partial(functions.relative, block), partial(functions.worst, block)
        solvers.append(BlockSolver(block, affine, width, arrays, *measures, None, told))
        given.append((arrays, trace, u, around, known, affine))
    if not scalar:
        return tuple(solvers)
    # Nothing is written out before all blocks are found to be worth it.
    pairs = zip(solvers, given, strict=True)
    return tuple(replace(solver, scalars=scalar_equations(*one)) for solver, one in pairs)


def _width(system: System, residual: Any) -> int:
    """How many consecutive unknowns have equations of their own: one, those of a particle, or 0."""
    if keeps_entries(residual):
        return 1
    components = system.shape[-1]
    is_small = components <= MAX_COMPONENTS and residual.in_avals[0].size == system.dim
    if len(system.shape) == 1 or not is_small:
        return 0
    return components if keeps_particles(residual, system.dim // components) else 0


def _type_of(increment: Increment, system: System, z: Any) -> Any:
    if increment.is_joint:
        w = jax.ShapeDtypeStruct((system.noises,), z.dtype)
        return JointIncrement(w, Shared(z.shape, z.dtype) if increment.factor else None)
    kind = jax.ShapeDtypeStruct if increment.reads else Shared
    return kind(z.shape if increment.factor else (), z.dtype)
