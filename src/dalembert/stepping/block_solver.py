"""The implicit and explicit rows of one block of a plan, and how they are solved.

In the scalar regime the equations of a block are programs on scalars, in the array regime functions
of arrays; what the fast ways leave unsolved goes to one damped Newton loop on arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.stepping import newton
from dalembert.stepping.dependence import Degree, degree
from dalembert.stepping.equations import OLD_P, OLD_Q, RowEquations, Surroundings
from dalembert.stepping.expressions import Program, absolute, components, vector
from dalembert.stepping.newton import Report
from dalembert.stepping.plan import Block, Node, Plan
from dalembert.stepping.scalarise import scalarise, stack, written_out
from dalembert.system import System

__all__ = ["BlockSolver", "Solver", "as_tuple", "block_solvers"]

MAX_DENSE_UNKNOWNS = 16
"""Beyond this the array regime forms no matrix."""


class Solver(Enum):
    """How the scalar regime solves implicit equations; the array regime always does so safely.

    FAST takes a fixed number of Newton steps and LOOP as many as are needed; both report. SAFE is
    the damped Newton loop, and BOTH is that loop for what LOOP has left unsolved.
    """

    FAST = "fast"
    LOOP = "loop"
    SAFE = "safe"
    BOTH = "both"


class Equations(NamedTuple):
    """The equations of one block as functions of (unknowns, surroundings)."""

    residual: Callable[..., Any]
    linearise: Callable[..., Any]
    floor: Callable[..., Any]
    check: Callable[..., Any]
    complete: Callable[..., Any]


class ScalarEquations(NamedTuple):
    """The equations of one block as programs on scalars.

    Attributes:
        complete: its explicit rows.
        residual: unknown rows minus what the equations say they are.
        fast: a fixed number of Newton steps, and the residual that they leave.
        one_pass: one Newton step.
        check: the residual that a solution leaves.
    """

    complete: Callable[..., Any]
    residual: Callable[..., Any] | None = None
    fast: Callable[..., Any] | None = None
    one_pass: Callable[..., Any] | None = None
    check: Callable[..., Any] | None = None


@dataclass(frozen=True)
class BlockSolver:
    """One block with its equations on arrays and, in the scalar regime, on scalars."""

    block: Block
    affine: bool
    arrays: Equations
    relative: Callable[[Any, Any], Any]
    scalars: ScalarEquations | None

    @property
    def fast_iterations(self) -> int:
        """Newton steps that the fast solver takes."""
        if not self.block.unknowns:
            return 0
        return 1 if self.affine else newton.FAST_STEPS

    def solve(
        self, guess: list[Any], around: Surroundings, solver: Solver
    ) -> tuple[list[Any], Report]:
        """Values of the unknown rows, and how well they satisfy the equations."""
        if not self.block.unknowns:
            return [], Report(0, 0.0)
        if self.scalars is None:
            u, report = self._solve_vector(jnp.concatenate(guess), around)
        elif solver is Solver.SAFE:
            start = stack(np.concatenate(guess))
            u, report = self._solve_vector(start, _as_arrays(around))
            u = components(u)
        else:
            u, report = self._solve_scalars(self.scalars, np.concatenate(guess), around, solver)
        return list(u.reshape(len(guess), -1)), report

    def _solve_vector(self, guess: jax.Array, around: Surroundings) -> tuple[jax.Array, Report]:
        def residual(u: jax.Array) -> jax.Array:
            return self.arrays.residual(u, around)

        def solve(_: Any, u: jax.Array) -> tuple[jax.Array, Report]:
            error = self.relative(residual(u), self.arrays.floor(u, around))
            return self._damped_newton(u, error, around)

        linear_solve = self._linear_solve(guess.size)
        u, report = lax.custom_root(residual, guess, solve, linear_solve, has_aux=True)
        return u, Report(*report)

    def _damped_newton(self, start: Any, error: Any, around: Surroundings) -> tuple[Any, Report]:
        size = sum(np.size(x) for x in start) if isinstance(start, tuple) else start.size
        return newton.damped_newton(
            lambda u: self.arrays.residual(u, around),
            lambda u: self.arrays.floor(u, around),
            self.relative,
            self._linear_solve(size),
            start,
            error,
        )

    def _linear_solve(self, size: int) -> Callable[..., Any]:
        return newton.dense_solve if size <= MAX_DENSE_UNKNOWNS else newton.krylov_solve

    def _solve_scalars(
        self, equations: ScalarEquations, guess: np.ndarray, around: Surroundings, solver: Solver
    ) -> tuple[np.ndarray, Report]:
        """Unknowns stay apart, so that nothing is stacked unless the damped loop is entered."""
        dtype = guess[0].dtype
        residual_of, fast, one_pass, check = equations[1:]
        assert residual_of and fast and one_pass and check, "there are unknowns"

        def residual(u: tuple[Any, ...]) -> tuple[Any, ...]:
            return as_tuple(residual_of(vector(u), around), dtype)

        def solve(_: Any, u: tuple[Any, ...]) -> tuple[tuple[Any, ...], Report]:
            if solver is Solver.FAST or self.affine:
                found, worst, scale = fast(vector(u), around)
                found, taken = as_tuple(found, dtype), jnp.asarray(self.fast_iterations, dtype)
            else:
                found, taken = newton.newton_loop(lambda u: one_pass(vector(u), around), u)
                worst, scale = check(vector(found), around)
            error = newton.relative(worst, scale)
            if solver is not Solver.BOTH:
                return found, Report(taken, error)
            is_finite = jnp.isfinite(reduce(jnp.add, map(absolute, found)) + error)
            start = tuple(lax.select(is_finite, *pair) for pair in zip(found, u, strict=True))
            error = jnp.where(is_finite, error, jnp.ones_like(error))
            found, report = self._damped_newton(start, error, _as_arrays(around))
            return found, report._replace(iterations=report.iterations + taken)

        def tangent_solve(product: Callable[..., Any], rhs: tuple[Any, ...]) -> tuple[Any, ...]:
            def product_of_vector(v: jax.Array) -> jax.Array:
                return jnp.stack(product(tuple(v)))

            return tuple(newton.dense_solve(product_of_vector, jnp.stack(rhs)))

        u, report = lax.custom_root(
            residual, as_tuple(guess, dtype), solve, tangent_solve, has_aux=True
        )
        return vector(u), Report(*report)


def as_tuple(u: np.ndarray, dtype: Any) -> tuple[Any, ...]:
    return tuple(jnp.asarray(x, dtype) for x in u)


def _as_arrays(around: Surroundings) -> Surroundings:
    return jax.tree.map(stack, around)


def block_solvers(
    system: System, plan: Plan, z: Any, shortcuts: bool, scalar: bool
) -> tuple[BlockSolver, ...]:
    functions = RowEquations(system, plan)
    number = jax.ShapeDtypeStruct((), z.dtype)
    increments = {e.increment: number for row in plan.rows.values() for e in row}
    rows: dict[Node, Any] = {OLD_Q: z, OLD_P: z}
    solvers = []
    for block in plan.blocks:
        around = Surroundings(dict(rows), increments, system.params)
        rows |= dict.fromkeys(block.unknowns, z)
        known = Surroundings(dict(rows), increments, system.params)
        rows |= dict.fromkeys(block.explicit, z)
        u = jax.ShapeDtypeStruct((len(block.unknowns) * system.dim,), z.dtype)
        arrays = Equations(
            *(partial(getattr(functions, name), block) for name in Equations._fields)
        )
        solved = bool(block.unknowns)
        affine = solved and degree(arrays.residual, (u, around), (0,)) <= Degree.AFFINE
        programs = _programs(arrays, u, around, known, affine and shortcuts) if scalar else None
        relative = partial(functions.relative, block)
        solvers.append(BlockSolver(block, affine and shortcuts, arrays, relative, programs))
    return tuple(solvers)


def _programs(
    arrays: Equations, u: Any, around: Surroundings, known: Surroundings, affine: bool
) -> ScalarEquations:
    """The programs of one block, given the types of its unknowns and of what surrounds it."""
    complete = scalarise(arrays.complete, known)
    if not u.size:
        return ScalarEquations(complete)
    residual = written_out(arrays.residual, u, around)
    linearise = written_out(arrays.linearise, u, around)
    check = written_out(arrays.check, u, u, around)

    def fast(guess: np.ndarray, around: Surroundings) -> tuple[np.ndarray, ...]:
        found, slack = newton.fixed_newton(
            lambda u: residual(u, around), lambda u: linearise(u, around), guess, affine
        )
        return found, *check(found, slack, around)

    def one_pass(u: np.ndarray, around: Surroundings) -> tuple[np.ndarray, ...]:
        return newton.newton_pass(lambda u: linearise(u, around), u)

    def full_check(u: np.ndarray, around: Surroundings) -> tuple[np.ndarray, np.ndarray]:
        _, matrix, shift = linearise(u, around)
        return check(u, newton.slack(u, matrix, shift), around)

    # What says whether there is a straight-line form is written out now, the rest when needed.
    return ScalarEquations(
        complete,
        Program(residual, u, around),
        _when_called(fast, u, around),
        _when_called(one_pass, u, around),
        Program(full_check, u, around),
    )


def _when_called(fun: Callable[..., Any], *like: Any) -> Callable[..., Any]:
    """A program that is written out when it is called for the first time."""

    @cache
    def program() -> Program:
        return Program(fun, *like)

    return lambda *args: program()(*args)
