"""What orders are measured against unless one says otherwise: methods of other families.

A method that is compared with one of its own family may share its faults. The reference must also
be more accurate than the method at its smallest step, or nothing is seen of the method's order.
"""

from typing import Any, NamedTuple

from dalembert.methods import (
    ExplicitTableau,
    MeanSquareTableau,
    additive_gauss,
    bracket_gauss,
    e1,
    heun,
    midpoint,
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

    reference: Any
    refine: int
    steps: tuple[int, ...]


def usual_comparison(system: System, method: Any) -> Comparison:
    """A method of another family that converges to the Stratonovich solution."""
    if method.needs(system.noises) == {"dW"}:
        reference = e1() if isinstance(method, MeanSquareTableau) else midpoint()
        return Comparison(reference, 16, (16, 32, 64, 128, 256, 512))
    has_brackets = system.dim <= MOST_DIM_OF_BRACKETS
    accurate = (bracket_gauss(), additive_gauss()) if has_brackets else (additive_gauss(),)
    others = [r for r in (*accurate, e1(), midpoint()) if not isinstance(r, type(method))]
    reference = next(r for r in others if _takes(system, r))
    return Comparison(reference, 16 if reference in accurate else 64, (8, 16, 32, 64, 128))


def extrapolated_reference(method: Any) -> Any:
    """A method of another family, driven by ΔW, whose expectations are extrapolated to dt = 0."""
    return midpoint() if isinstance(method, ExplicitTableau) else heun()


def _takes(system: System, method: Any) -> bool:
    try:
        check_method(system, method)
    except ValueError:
        return False
    return True
