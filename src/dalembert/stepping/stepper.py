"""A method made for a system: the compiled form of one step.

The stage equations are planned once (`plan.py`). In the scalar regime every value is a NumPy array
of scalars and a step is straight-line code; in the array regime values are arrays of shape (dim,)
and implicit blocks are solved matrix-free.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.noise import Increments
from dalembert.stepping import newton
from dalembert.stepping.dependence import Degree, degree
from dalembert.stepping.equations import (
    OLD_P,
    OLD_Q,
    RowEquations,
    Surroundings,
    increment_values,
)
from dalembert.stepping.expressions import Program, absolute, components, vector
from dalembert.stepping.newton import Report
from dalembert.stepping.plan import Block, Dependence, Node, Plan, make_plan
from dalembert.stepping.scalarise import NotScalarError, scalarise, stack, written_out
from dalembert.stepping.stages import stage_system
from dalembert.system import DRIFT_TERMS, NOISE_TERMS, System, Term

__all__ = ["Solver", "StepInfo", "Stepper", "make_stepper"]

MAX_SCALAR_DIM = 8
MAX_SCALAR_UNKNOWNS = 12
"""Beyond these the code of a written-out elimination grows too long to compile quickly."""

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


class StepInfo(NamedTuple):
    """What a person needs to trust a step.

    Attributes:
        converged: whether every stage equation was solved to rounding and the result is finite.
        iterations: Newton iterations, the largest number over all blocks (0 if explicit).
        residual: largest residual of a stage equation relative to the size of the state.
    """

    converged: Any
    iterations: Any
    residual: Any


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
            return _as_tuple(residual_of(vector(u), around), dtype)

        def solve(_: Any, u: tuple[Any, ...]) -> tuple[tuple[Any, ...], Report]:
            if solver is Solver.FAST or self.affine:
                found, worst, scale = fast(vector(u), around)
                found, taken = _as_tuple(found, dtype), jnp.asarray(self.fast_iterations, dtype)
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
            residual, _as_tuple(guess, dtype), solve, tangent_solve, has_aux=True
        )
        return vector(u), Report(*report)


def _as_tuple(u: np.ndarray, dtype: Any) -> tuple[Any, ...]:
    return tuple(jnp.asarray(x, dtype) for x in u)


def _as_arrays(around: Surroundings) -> Surroundings:
    return jax.tree.map(stack, around)


@dataclass(frozen=True, eq=False)
class Stepper:
    """One step of a method on a system, for values in the representation of its regime."""

    system: System
    method: Any
    plan: Plan
    dependence: Mapping[Term, Dependence]
    solvers: tuple[BlockSolver, ...]
    notice: str
    dtype: np.dtype

    @property
    def is_scalar(self) -> bool:
        """True in the scalar regime."""
        return not self.notice

    @property
    def is_implicit(self) -> bool:
        """True if there are equations to solve."""
        return any(solver.block.unknowns for solver in self.solvers)

    @property
    def fast_iterations(self) -> int:
        """Newton steps that the fast solver takes, the largest number over all blocks."""
        return max(solver.fast_iterations for solver in self.solvers)

    def enter(self, x: Any) -> Any:
        """A state of shape (dim,) as the step wants it: a tuple of scalars, or as it is."""
        return tuple(x) if self.is_scalar else x

    def is_finite(self, q: Any, p: Any) -> Any:
        """Whether a state that has been entered is finite."""
        sizes = [absolute(x) for x in jax.tree.leaves((q, p))]
        return jnp.isfinite(reduce(jnp.add, sizes if self.is_scalar else map(jnp.sum, sizes)))

    def leave(self, x: Any) -> Any:
        """A state as an array of shape (dim,) again."""
        return jnp.stack(x) if self.is_scalar else x

    def advance(
        self,
        q: Any,
        p: Any,
        dt: Any,
        increments: Increments,
        params: Any,
        solver: Solver = Solver.BOTH,
    ) -> tuple[Any, Any, StepInfo]:
        """One step of one path, for states that have been entered."""
        names = {entry.increment for row in self.plan.rows.values() for entry in row}
        around = Surroundings(
            {OLD_Q: q, OLD_P: p}, increment_values(names, dt, increments, self.dtype), params
        )
        if self.is_scalar:
            rows = {OLD_Q: vector(q), OLD_P: vector(p)}
            around = jax.tree.map(components, around._replace(rows={}))._replace(rows=rows)
        reports = [Report(0, 0.0)]
        for block in self.solvers:
            unknowns = block.block.unknowns
            guess = [around.rows[Node(node.kind, 0)] for node in unknowns]
            found, report = block.solve(guess, around, solver)
            around = around._replace(rows=around.rows | dict(zip(unknowns, found, strict=True)))
            complete = (block.scalars or block.arrays).complete
            around = around._replace(rows=around.rows | complete(around))
            reports.append(report)
        residual = reduce(jnp.maximum, [jnp.asarray(r.residual, self.dtype) for r in reports])
        iterations = reduce(jnp.maximum, [jnp.asarray(r.iterations, jnp.int32) for r in reports])
        q, p = around.rows[self.plan.new_q], around.rows[self.plan.new_p]
        if self.is_scalar:
            q, p = _as_tuple(q, self.dtype), _as_tuple(p, self.dtype)
        is_finite = self.is_finite(q, p)
        solved = (residual <= newton.tolerance(self.dtype)) & is_finite
        return q, p, StepInfo(solved, iterations, residual)


def find_dependence(system: System, like: tuple[Any, Any, Any]) -> dict[Term, Dependence]:
    """How every term of the equations depends on q and p."""
    terms = [(kind, 0) for kind in DRIFT_TERMS]
    terms += [(kind, r) for r in range(system.noises) for kind in NOISE_TERMS]
    found = {}
    for term in terms:
        fun = system.term(term)
        found[term] = (
            Dependence(Degree.ZERO, Degree.ZERO)
            if fun is None
            else Dependence(degree(fun, like, (0,)), degree(fun, like, (1,)))
        )
    return found


@dataclass(frozen=True)
class _Key:
    """A system as a cache key: its functions and the types of its parameters."""

    system: System

    def _identity(self) -> tuple[Any, ...]:
        leaves, tree = jax.tree.flatten(self.system.params)
        types = tuple((np.shape(x), str(getattr(x, "dtype", type(x)))) for x in leaves)
        return (self.system.key, tree, types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


def make_stepper(system: System, method: Any, dtype: Any, shortcuts: bool = True) -> Stepper:
    """The step of a method on a system; made once for the same functions and types."""
    # Only the types of the parameters are kept: their values may belong to a trace that ends.
    params = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(np.shape(x), _param_dtype(x, np.dtype(dtype))), system.params
    )
    # Always in the same context: what a function is traced to depends on whether known numbers are
    # computed at once, and the last bits of all later steps with it.
    with jax.ensure_compile_time_eval():
        return _make_stepper(_Key(_with_types(system, params)), method, np.dtype(dtype), shortcuts)


@lru_cache(maxsize=256)
def _make_stepper(key: _Key, method: Any, dtype: np.dtype, shortcuts: bool) -> Stepper:
    system = key.system
    stages = stage_system(method, system.noises)
    method.check_noises(system.noises)
    z = jax.ShapeDtypeStruct((system.dim,), dtype)
    dependence = find_dependence(system, (z, z, system.params))
    plan = make_plan(stages, dependence, shortcuts)
    largest = system.dim * max(len(block.unknowns) for block in plan.blocks)
    notice = ""
    if system.dim > MAX_SCALAR_DIM or largest > MAX_SCALAR_UNKNOWNS:
        notice = f"{max(largest, system.dim)} components are too many to write out"
    solvers: tuple[BlockSolver, ...] = ()
    if not notice:
        try:
            solvers = _solvers(system, plan, z, shortcuts, scalar=True)
        except NotScalarError as error:
            notice = f"no straight-line form for: {error}"
    if notice:
        solvers = _solvers(system, plan, z, shortcuts, scalar=False)
    return Stepper(system, method, plan, dependence, solvers, notice, dtype)


def _with_types(system: System, params: Any) -> System:
    """The system with types in place of parameters; it has been checked, so not again."""
    typed = copy(system)
    object.__setattr__(typed, "params", params)
    return typed


def _param_dtype(x: Any, dtype: np.dtype) -> Any:
    kind = x.dtype if hasattr(x, "dtype") else jnp.result_type(x)
    return dtype if jnp.issubdtype(kind, np.floating) else kind


def _solvers(
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
