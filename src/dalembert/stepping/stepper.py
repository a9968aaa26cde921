"""A method made for a system: the compiled form of one step.

The stage equations are planned once (`plan.py`). In the scalar regime every value is a NumPy array
of scalars and a step is straight-line code; in the array regime values are arrays of shape (dim,)
and implicit blocks are solved matrix-free.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import Kept, kept
from dalembert.dependence import Degree, has_rules
from dalembert.driven import Timed
from dalembert.methods import Method
from dalembert.noise import Increments
from dalembert.stepping import newton, residuals
from dalembert.stepping.block_solver import BlockSolver, Solver, block_solvers
from dalembert.stepping.clocks import Clocked, with_times
from dalembert.stepping.equations import (
    OLD_P,
    OLD_Q,
    Surroundings,
    increment_names,
    increment_values,
)
from dalembert.stepping.expressions import Shared, components, vector
from dalembert.stepping.plan import Dependence, Node, Plan, make_plan
from dalembert.stepping.requirements import (
    find_dependence,
    refuse_without_constraints,
    terms_of_steps,
)
from dalembert.stepping.scalarise import NotScalarError, scalarise
from dalembert.system import System, Term

MAX_SCALAR_DIM = 8
MAX_SCALAR_UNKNOWNS = 12
"""Beyond these the code of a written-out elimination grows too long for XLA to compile quickly.

Vector code takes somewhat more (`wider.py`)."""


class StepInfo(NamedTuple):
    """What a person needs to trust a step.

    Attributes:
        converged: whether every stage equation was solved to rounding and the result is finite.
        iterations: Newton steps or sweeps, the largest number over all blocks (0 if explicit).
        residual: largest residual of a stage equation relative to the size of the state.
    """

    converged: Any
    iterations: Any
    residual: Any


@dataclass(frozen=True, eq=False)
class Stepper(Clocked):
    """One step of a method on a system, for values in the representation of its regime."""

    system: System
    method: Method
    plan: Plan
    dependence: Mapping[Term, Dependence]
    solvers: tuple[BlockSolver, ...]
    factors: Callable[[Any, Any], Any] | None
    notice: str
    dtype: np.dtype
    _kept: Any = field(init=False, repr=False, default_factory=Kept)

    @property
    def is_scalar(self) -> bool:
        """True in the scalar regime."""
        return not self.notice

    @property
    def is_implicit(self) -> bool:
        """True if there are equations to solve."""
        return any(solver.block.unknowns for solver in self.solvers)

    @property
    def is_nonlinear(self) -> bool:
        """True if there are nonlinear equations to solve."""
        return any(solver.block.unknowns and not solver.affine for solver in self.solvers)

    @property
    def is_direct(self) -> bool:
        """True if arrays are stepped without a loop: nothing is solved for by repetition."""
        solvers = [solver for solver in self.solvers if solver.block.unknowns]
        is_short = not self.is_scalar and self.system.flow is None
        return is_short and all(solver.affine and solver.width for solver in solvers)

    @property
    def is_swept(self) -> bool:
        """True if equations on arrays are solved by sweeps."""
        solvers = [solver for solver in self.solvers if solver.block.unknowns]
        return not self.is_scalar and not all(solver.width for solver in solvers)

    @property
    def size(self) -> int:
        """About how many operations on scalars there are in a step without a Newton loop."""
        return sum(solver.scalars.size for solver in self.solvers if solver.scalars)

    def enter(self, x: Any) -> Any:
        """A flat state as the step wants it: a tuple of scalars, or an array and its clock."""
        return tuple(x) if self.is_scalar else self.entered(x)

    def leave(self, x: Any) -> Any:
        """A state as a flat array again."""
        if self.is_scalar:
            return jnp.stack(x)
        return jnp.append(*x) if self.system.time else x

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
        """One step of one path, for states that have been entered.

        What `terms_at` gives for the state need not be evaluated again if it is given. A flow acts
        for half of the time before the step of the method, and for the other half after it.
        """
        if self.system.flow is None:
            return self._advance(q, p, dt, increments, params, solver, at_start)[:3]
        before, after = _halves(dt, increments)
        q, p = self._acted(q, p, before, dt / 2, params, after=False)
        none = increments._replace(dW=before[:0], dZ=before[:0])
        q, p, info, _ = self._advance(q, p, dt, none, params, solver, at_start)
        q, p = self._acted(q, p, after, dt / 2, params, after=True)
        return q, p, info._replace(converged=info.converged & self.is_finite(q, p))

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
        """A step that another one follows: `advance`, and `terms_at` the new state.

        Terms that the step has evaluated there are handed on: to find that they are the same is
        more than a compiler does where they are costly.
        """
        given = (q, p, dt, increments, params, solver, at_start)
        if not self.lasting:
            return *self.advance(*given), {}
        q, p, info, found = self._advance(*given)
        known = at_the_end(found, self.plan, self.lasting)
        return q, p, info, self.terms_at(q, p, dt, params, known)

    def _acted(self, q: Any, p: Any, w: Any, h: Any, params: Any, after: bool) -> tuple[Any, Any]:
        """States after the flow, which does not move the clock of a driven system."""
        system, flow = self.system, self.system.flow
        assert flow is not None, "asked only of systems that have one"
        given = (None if system.params is None else params), system.shape
        (q, start), (p, steps) = self.split(q), self.split(p)
        q, p = flow.act(q, p, w, h, *given, after)
        return self.append(q, start), self.append(p, steps)

    def _advance(
        self,
        q: Any,
        p: Any,
        dt: Any,
        increments: Increments,
        params: Any,
        solver: Solver,
        at_start: Mapping[Term, Any] | None,
    ) -> tuple[Any, Any, StepInfo, dict[Any, Any]]:
        """One step of the method, with the fields of the system, and terms in it by place."""
        times = {part: self.now(q, p, dt, part) for part in self.plan.times}
        (q, start), (p, steps) = self.split(q), self.split(p)
        names = increment_names(self.plan)
        factors = self.factors(dt, params) if self.factors else {}
        values = increment_values(names, dt, increments, self.dtype, factors)
        around = Surroundings({OLD_Q: q, OLD_P: p}, values, params, dict(at_start or {}), times)
        if self.is_scalar:
            rows = {OLD_Q: vector(q), OLD_P: vector(p)}
            around = jax.tree.map(components, around._replace(rows={}))._replace(rows=rows)
        reports, terms = [], {}
        for block in self.solvers:
            unknowns = block.block.unknowns
            guess = [around.rows[Node(node.kind, 0)] for node in unknowns]
            found, report = block.solve(guess, around, solver)
            around = around._replace(rows=around.rows | dict(zip(unknowns, found, strict=True)))
            rows, more = block.complete(around, solver)
            around, terms = around._replace(rows=around.rows | rows), terms | more
            if unknowns or not reports:
                reports.append(report)
        # What is known stays NumPy's: JAX would compile code for it.
        residual = reduce(residuals.worse, [_number(r.residual, self.dtype) for r in reports])
        iterations = reduce(jnp.maximum, [_number(r.iterations, np.int32) for r in reports])
        q, p = around.rows[self.plan.new_q], around.rows[self.plan.new_p]
        if self.is_scalar:
            q, p = newton.as_scalars(q, self.dtype), newton.as_scalars(p, self.dtype)
        q, p = self.append(q, start), self.append(p, None if steps is None else steps + 1)
        is_finite = self.is_finite(q, p)
        solved = (residual <= residuals.tolerance(self.dtype)) & is_finite
        return q, p, StepInfo(solved, iterations, residual), terms

    @property
    def lasting(self) -> tuple[Term, ...]:
        """Terms of new positions alone that the next step evaluates again, if nothing is done."""
        new = self.plan.new_q.number
        if self.is_scalar or self.system.flow is not None or new == 0:
            return ()
        entries = (entry for row in self.plan.rows.values() for entry in row)
        places = {entry[:3] for entry in entries if not entry.increment.is_joint}
        ends = {at_next(t) for t, q, p in places if (q, p) == (new, 0)}
        begins = {t for t, q, p in places if (q, p) == (0, 0)}
        return tuple(sorted(t for t in begins & ends if self.is_of_positions(t)))

    def is_of_positions(self, term: Term) -> bool:
        """Whether a term does not depend on momenta."""
        return self.dependence[term].on_p <= Degree.CONSTANT

    def terms_at(
        self, q: Any, p: Any, dt: Any, params: Any, known: Mapping[Term, Any] | None = None
    ) -> dict[Term, Any]:
        """The lasting terms at a state, of which some may be known."""
        found = dict(known or {})
        terms = {term: self.system.term(term) for term in self.lasting if term not in found}
        if not terms:
            return found
        now, (q, _), (p, _) = self.now(q, p, dt), self.split(q), self.split(p)
        told = params if now is None else Timed(now, params)
        return found | {term: fun(q, p, told) for term, fun in terms.items() if fun}


def _number(x: Any, dtype: Any) -> Any:
    return np.asarray(x, dtype) if isinstance(x, int | float) else jnp.asarray(x, dtype)


def at_next(term: Term) -> Term:
    """A term of a step as the next step knows it: what is at the end of one begins the other."""
    return (*term[:2], 0.0) if term[2:] == (1.0,) else term


def at_the_end(found: Mapping[Any, Any], plan: Plan, wanted: Iterable[Term]) -> dict[Term, Any]:
    """Of the terms that a step has found, by place, those that the next one wants to know."""
    end = [plan.new_q.number, 0]
    there = {at_next(term): x for (term, *place), x in found.items() if place == end}
    return {term: there[term] for term in wanted if term in there}


def _halves(dt: Any, noise: Increments) -> tuple[Any, Any]:
    """Independent increments over both halves of a step, as near to the path as ΔZ tells."""
    assert noise.dZ is not None, "a flow has asked for it"
    difference = sqrt(3) * (noise.dZ / dt - noise.dW / 2)
    return noise.dW / 2 + difference, noise.dW / 2 - difference


def make_stepper(
    system: System,
    method: Method,
    dtype: Any,
    shortcuts: bool = True,
    known_by: Hashable = None,
    most: float = np.inf,
) -> Stepper:
    """The step of a method on a system; made once for the same functions and types.

    What functions are known by besides what they read can be given, such as their traces, and how
    many operations of its equations and their matrices may be written out in scalars.
    """
    refuse_without_constraints(system, method)
    # Only the types of the parameters are kept: their values may belong to a trace that ends.
    leaves, tree = jax.tree.flatten(system.params)
    kind = np.dtype(dtype)
    types = tuple(jax.ShapeDtypeStruct(np.shape(x), _param_dtype(x, kind)) for x in leaves)
    # Always in the same context: what a function is traced to depends on whether known numbers are
    # computed at once, and the last bits of all later steps with it.
    # Without x64, half of what is float64 would be traced as float32, and kept as such.
    x64 = kind == np.float64 or bool(jax.config.read("jax_enable_x64"))
    with jax.enable_x64(x64), jax.ensure_compile_time_eval():
        stepper = _make_stepper(system.shared, types, tree, known_by, method, kind, shortcuts, most)
    if not stepper.plan.blocks:
        raise ValueError(
            f"nothing moves in {system.name!r}: H does not depend on (q, p), and there is neither "
            "force nor noise. Write H with q and p in it."
        )
    return stepper


@kept
def _make_stepper(
    system: System,
    types: tuple[Any, ...],
    tree: Any,
    known_by: Hashable,
    method: Method,
    dtype: np.dtype,
    shortcuts: bool,
    most: float,
) -> Stepper:
    system = _typed(system, types, tree, known_by)
    method.check_noises(system.fields.noises)
    if method.parts:
        from dalembert.stepping.constrained import constrained_stepper
        from dalembert.stepping.constrained_scalars import constrained_on_scalars

        arrays = constrained_stepper(system, method, dtype, shortcuts)
        is_written_out = shortcuts and most == np.inf and arrays.parts
        return constrained_on_scalars(arrays) if is_written_out else arrays
    return one_stepper(system, method, dtype, shortcuts, most)


@kept
def _typed(system: System, types: tuple[Any, ...], tree: Any, known_by: Hashable) -> System:
    """The system that all its steps have in common."""
    return system.typed(jax.tree.unflatten(tree, types))


def one_stepper(
    whole: System, method: Method, dtype: np.dtype, shortcuts: bool, most: float
) -> Stepper:
    """The step of a method as if there were no constraints."""
    system = whole.fields
    stages = method.rows_for(system)
    z = jax.ShapeDtypeStruct((system.dim,), dtype)
    if system.time:
        stages = with_times(system, method, stages, z)
    entries = {entry.term for row in (*stages.q_rows, *stages.p_rows) for entry in row}
    terms = terms_of_steps(whole, z)
    dependence = find_dependence(terms, entries)
    plan = make_plan(stages, dependence, shortcuts)
    largest = system.dim * max((len(block.unknowns) for block in plan.blocks), default=0)
    notice = ""
    if whole.flow is not None:
        notice = f"{whole.flow.name} is a map of whole states"
    elif not most:
        notice = "nothing is to be written out"
    elif system.dim > MAX_SCALAR_DIM or largest > MAX_SCALAR_UNKNOWNS:
        notice = f"{max(largest, system.dim)} components are too many to write out"

    def forms(scalar: bool) -> tuple[tuple[BlockSolver, ...], Any]:
        solvers = block_solvers(terms, plan, dependence, z, shortcuts, scalar, most)
        return solvers, factors_of(system, plan, z, scalar)

    solvers, factors = (), None
    if not notice:
        try:
            solvers, factors = forms(scalar=True)
        except NotScalarError as error:
            notice = f"no straight-line form for: {error}"
    if notice:
        solvers, factors = forms(scalar=False)
    return Stepper(whole, method, plan, dependence, solvers, factors, notice, dtype)


def factors_of(
    system: System, plan: Plan, z: Any, scalar: bool
) -> Callable[[Any, Any], Any] | None:
    """What the increments of a plan are multiplied by for each momentum, if any are."""
    found = dict.fromkeys(increment.factor for increment in sorted(increment_names(plan)))
    found.pop(None, None)
    if not found:
        return None

    def run(dt: Any, params: Any) -> Any:
        # Methods that have factors take systems whose friction is the same at all times.
        told = Timed(jnp.zeros_like(dt), params) if system.time else params
        return {factor: factor(system, dt, told) for factor in found if factor}

    params = jax.tree.map(lambda x: Shared(x.shape, x.dtype), system.params)
    types = Shared((), z.dtype), params
    return scalarise(run, *types) if scalar and not has_rules(run, *types) else run


def _param_dtype(x: Any, dtype: np.dtype) -> Any:
    kind = x.dtype if hasattr(x, "dtype") else jnp.result_type(x)
    return dtype if jnp.issubdtype(kind, np.floating) else kind
