"""What orders are measured against unless one says otherwise: methods of other families.

A method that is compared with one of its own family may share its faults. The reference must also
be more accurate than the method at its smallest step, or nothing is seen of the method's order.
"""

from typing import NamedTuple

from dalembert.methods import (
    Method,
    ProjectedMethod,
    additive_gauss,
    bracket_gauss,
    e1,
    heun,
    midpoint,
    projected_midpoint,
    rattle,
)
from dalembert.stepping.step import check_method
from dalembert.system import System

MOST_DIM_OF_BRACKETS = 3
"""Brackets have third derivatives of the Hamiltonians, which take long to compile for large dim."""


class Comparison(NamedTuple):
    """A reference on common paths, how many times finer it is, and the method's numbers of steps.

    Methods that read more than ΔW are accurate: they need few steps, and where no method of their
    own accuracy takes the system, a much finer reference.
    """

    reference: Method
    refine: int
    steps: tuple[int, ...]


def usual_comparison(system: System, method: Method) -> Comparison:
    """A method of another family that converges to the Stratonovich solution."""
    if method.parts:
        return Comparison(_with_constraints(method), 16, (16, 32, 64, 128, 256))
    if method.needs_for(system) == {"dW"}:
        (reference, *_) = _others(method, midpoint(), e1())
        return Comparison(reference, 16, (16, 32, 64, 128, 256, 512))
    has_brackets = system.dim <= MOST_DIM_OF_BRACKETS
    accurate = (bracket_gauss(), additive_gauss()) if has_brackets else (additive_gauss(),)
    others = _others(method, *accurate, e1(), midpoint())
    reference = next(r for r in others if _takes(system, r))
    return Comparison(reference, 16 if reference in accurate else 64, (8, 16, 32, 64, 128))


def extrapolated_reference(method: Method) -> Method:
    """A method of another family, driven by ΔW, whose expectations are extrapolated to dt = 0."""
    return _with_constraints(method) if method.parts else _others(method, heun(), midpoint())[0]


def _with_constraints(method: Method) -> Method:
    """Another method for constraints."""
    is_midpoint = isinstance(method, ProjectedMethod) and method.inner == midpoint()
    return rattle() if is_midpoint else projected_midpoint()


def _others(method: Method, *references: Method) -> list[Method]:
    """The references that are of another family than the method."""
    return [r for r in references if not isinstance(r, type(method))]


def _takes(system: System, method: Method) -> bool:
    try:
        check_method(system, method)
    except ValueError:
        return False
    return True
