"""Parameters of the ready-made systems: numbers in, numbers checked, float64 out."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import jax
import numpy as np

from dalembert.precision import is_traced, with_precision

__all__ = ["Params", "above_zero", "at_least_zero", "exact", "parameters", "require"]

Params = Mapping[str, Any]
"""The parameters of a system by name, as its functions receive them."""


def parameters(**values: Any) -> dict[str, Any]:
    """The parameters of a system: numbers as floats, arrays and traced values as they are."""
    return {name: _number(name, value) for name, value in values.items()}


def _number(name: str, value: Any) -> Any:
    # A Python float has no fixed precision in JAX, so one system serves float32 and float64 runs.
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, jax.Array | np.ndarray):
        return value
    raise TypeError(f"{name} must be a real number or an array, not {value!r}.")


def require(name: str, value: Any, need: str, holds: Callable[[Any], Any], advice: str) -> None:
    """Refuse a parameter that is out of range; a traced one has no value yet and passes."""
    if not is_traced(value) and not np.all(holds(np.asarray(value, np.float64))):
        raise ValueError(f"{name} is {value}, but must be {need}: {advice}.")


def above_zero(advice: str, **values: Any) -> dict[str, Any]:
    """Refuse parameters that are not above 0; gives them back by name."""
    for name, value in values.items():
        require(name, value, "above 0", lambda v: v > 0, advice)
    return values


def at_least_zero(advice: str, **values: Any) -> None:
    """Refuse parameters below 0."""
    for name, value in values.items():
        require(name, value, "at least 0", lambda v: v >= 0, advice)


def exact(fun: Callable[..., Any], *args: Any) -> Any:
    """Evaluate a closed formula in float64, its arguments broadcast.

    If an argument is traced, it is evaluated in the types of that trace.
    """
    if is_traced(args):
        return fun(*args)
    # Known arguments inside someone's jit still give a known result.
    with jax.ensure_compile_time_eval(), jax.numpy_rank_promotion("allow"):
        return with_precision(fun, *(np.asarray(a, np.float64) for a in args))
