"""The equations of one block of a plan, as functions of arrays and as programs on scalars."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from dalembert.stepping import newton
from dalembert.stepping.equations import Surroundings
from dalembert.stepping.expressions import Program, vector
from dalembert.stepping.scalarise import (
    LEAF,
    NotScalarError,
    scalarise,
    trace_written_out,
    written_out,
)

MAX_SHORT_PASS = 400
"""Operations of a pass that may be written out more than once."""

PLAIN_OPERATIONS = frozenset({"add", "sub", "mul", "neg", "magnitude", "max"})
"""Operations that a processor takes in one or a few cycles: each counts as one."""


class Equations(NamedTuple):
    """The equations of one block as functions of (unknowns, surroundings)."""

    residual: Callable[..., Any]
    linearise: Callable[..., Any]
    floor: Callable[..., Any]
    check: Callable[..., Any]
    quick_check: Callable[..., Any]
    complete: Callable[..., Any]
    complete_with_terms: Callable[..., Any]
    guess: Callable[..., Any]
    bend: Callable[..., Any]


class ScalarEquations(NamedTuple):
    """The equations of one block as programs on scalars.

    Attributes:
        complete: its explicit rows.
        unknown: how to find the others, if there are any.
    """

    complete: Program
    unknown: "UnknownRows | None" = None

    @property
    def size(self) -> int:
        """Operations of the explicit rows and of a check of the others."""
        return self.complete.size + (self.unknown.check.size if self.unknown else 0)


class UnknownRows(NamedTuple):
    """What a solver needs, as programs on scalars.

    Attributes:
        residual: unknown rows minus what the equations say they are.
        guess: where to begin.
        fast: a fixed number of Newton steps, and the residual that they leave.
        linear: the solution of linear equations, and an upper bound of what it leaves.
        first_pass: roughly, a better approximation.
        next_pass: a better approximation, and an upper bound of the residual that it leaves.
        check: the residual that a solution leaves.
        is_short: whether a pass has so few operations that the second is written out.
    """

    residual: Callable[..., Any]
    guess: Callable[..., Any]
    fast: Callable[..., Any]
    linear: Callable[..., Any]
    first_pass: Callable[..., Any]
    next_pass: Callable[..., Any]
    check: Program
    is_short: bool


def scalar_equations(
    arrays: Equations, trace: Any, u: Any, around: Surroundings, known: Surroundings, affine: bool
) -> ScalarEquations:
    """The programs of one block, given the types of its unknowns and of what surrounds it.

    If there are unknowns, their residual has been traced.
    """
    complete = scalarise(arrays.complete, known)
    if not u.size:
        return ScalarEquations(complete)
    residual = trace_written_out(trace, LEAF)
    linearise = written_out(arrays.linearise, u, around)
    check = written_out(arrays.check, u, u, around)
    quick_check = written_out(arrays.quick_check, u, u, around)
    equations = Program(residual, u, around)
    # Order three pays where functions are costly; in the first pass if it costs nearly nothing.
    is_costly = not equations.operations <= PLAIN_OPERATIONS
    second = _bend(arrays, u, around) if is_costly and not affine else None
    orders = (3 if second and u.size == 1 else 2), (3 if second else 2)

    def fast(guess: np.ndarray, around: Surroundings) -> tuple[np.ndarray, ...]:
        found, slack = newton.fixed_newton(
            lambda u: residual(u, around), lambda u: linearise(u, around), guess, affine
        )
        return found, *check(found, slack, around)

    def linear(guess: np.ndarray, around: Surroundings) -> tuple[np.ndarray, ...]:
        # From zero the solution of one equation is a quotient, without a difference.
        zero = np.zeros((), guess[0].dtype)[()]
        start = guess if len(guess) > 1 else vector([zero])
        found, _ = newton.fixed_newton(
            lambda u: residual(u, around), lambda u: linearise(u, around), start, is_linear=True
        )
        # Old positions are what they are, rounded or not: nothing has to be allowed for them.
        return found, *quick_check(found, vector([zero] * len(found)), around)

    def one_pass(u: np.ndarray, around: Surroundings, order: int) -> tuple[np.ndarray, np.ndarray]:
        curved = second if order == 3 else None
        bend = (lambda u, d: curved(u, d, around)) if curved else None
        return newton.newton_pass(lambda u: linearise(u, around), bend, u)

    def first_pass(u: np.ndarray, around: Surroundings) -> np.ndarray:
        return one_pass(u, around, orders[0])[0]

    def next_pass(u: np.ndarray, around: Surroundings) -> tuple[np.ndarray, ...]:
        better, shift = one_pass(u, around, orders[1])
        return better, *quick_check(better, shift, around)

    def full_check(u: np.ndarray, around: Surroundings) -> tuple[np.ndarray, np.ndarray]:
        _, matrix, shift = linearise(u, around)
        return check(u, newton.slack(u, matrix, shift), around)

    # What says whether there is a straight-line form is written out now, the rest when needed.
    complete_check = Program(full_check, u, around)
    unknown = UnknownRows(
        equations,
        scalarise(arrays.guess, around),
        _when_called(fast, u, around),
        _when_called(linear, u, around),
        _when_called(first_pass, u, around, is_rough=True),
        _when_called(next_pass, u, around),
        complete_check,
        complete_check.size < MAX_SHORT_PASS,
    )
    return ScalarEquations(complete, unknown)


def _bend(arrays: Equations, u: Any, around: Surroundings) -> Callable[..., Any] | None:
    """What order three needs, on scalars; None where there is no straight-line form.

    A second derivative can be longer than all else, or one that JAX does not know.
    """
    try:
        second = written_out(arrays.bend, u, u, around)
        Program(second, u, u, around)
    except (NotScalarError, NotImplementedError):
        return None
    return second


def _when_called(fun: Callable[..., Any], *like: Any, is_rough: bool = False) -> Callable[..., Any]:
    """A program that is written out when it is called for the first time."""

    @cache
    def program() -> Program:
        return Program(fun, *like, is_rough=is_rough)

    return lambda *args: program()(*args)
