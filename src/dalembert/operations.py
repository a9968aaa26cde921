"""Elementwise operations of our own, as primitives of JAX.

JAX finds no derivative in the bits of a number, and has to be told one. What `jax.custom_jvp` tells
it is forgotten when a scan is linearised (jax 0.10 and 0.11), so that derivatives of derivatives
come out as zeros. A primitive is taken apart by nothing: its derivative, itself made of primitives,
is there in every nesting of forward and reverse mode. Other code knows an operation by its
primitive, never by a name that somebody else could use.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

OPERATIONS: dict[Primitive, "Operation"] = {}
"""All operations, by their primitives."""


class Operation:
    """A function of one float64 number, elementwise; other types are left to JAX.

    Attributes:
        formula: what is computed for a float64 array, in operations of JAX.
        primitive: what stands for it until a compiler asks for the formula.
    """

    def __init__(self, formula: Callable[[Any], Any], otherwise: Callable[[Any], Any]) -> None:
        self.__name__, self.__doc__ = formula.__name__, formula.__doc__
        self.formula, self._otherwise = formula, otherwise
        self.primitive = Primitive(f"dalembert_{formula.__name__}")
        self.primitive.def_impl(jax.jit(formula))
        self.primitive.def_abstract_eval(lambda x: x.update(weak_type=False))
        batching.defvectorized(self.primitive)
        mlir.register_lowering(self.primitive, mlir.lower_fun(formula, multiple_results=False))
        OPERATIONS[self.primitive] = self

    def defjvp(self, derivative: Callable[[Any, Any], Any]) -> None:
        """Set the derivative: (tangent of x, x) → tangent of the result."""
        ad.defjvp(self.primitive, derivative)

    def __call__(self, x: Any) -> Any:
        return self.primitive.bind(x) if x.dtype == np.float64 else self._otherwise(x)

    @property
    def code(self) -> Any:
        """The formula for one number, as a closed jaxpr."""
        return jax.make_jaxpr(self.formula)(jax.ShapeDtypeStruct((), np.float64))

    def __repr__(self) -> str:
        return self.primitive.name


def operation(otherwise: Callable[[Any], Any]) -> Callable[[Callable[[Any], Any]], Operation]:
    """Make an operation of a formula, given the function of JAX for types other than float64."""
    return lambda formula: Operation(formula, otherwise)
