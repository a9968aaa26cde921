"""Parameters of the ready-made systems: numbers in, numbers checked, float64 out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import jax
import numpy as np

from dalembert.precision import is_traced, with_precision

__all__ = [
    "Params",
    "Rule",
    "Rules",
    "above_zero",
    "at_least_zero",
    "exact",
    "minimum",
    "one_mass",
    "parameters",
    "positive",
    "require",
]

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
    _refuse_function(name, value)
    hint = f": write {name}=np.array({list(value)})" if isinstance(value, list | tuple) else ""
    raise TypeError(f"{name} must be a real number or an array, not {value!r}{hint}.")


def _refuse_function(name: str, value: Any) -> None:
    if callable(value):
        raise TypeError(
            f"{name} is a function, but must be a number: the parameters of a run are the same at "
            "all times. Write the system as da.System(…, time=True), with functions of (q, p, t), "
            "and simulate it with da.midpoint(); or change it in stages, run after run, by "
            f"da.simulate(system.with_params({name}=…), method, (run.q, run.p), …)."
        )


def require(name: str, value: Any, need: str, holds: Callable[[Any], Any], advice: str) -> None:
    """Refuse a parameter that is out of range; a traced one has no value yet and passes."""
    _refuse_function(name, value)
    if not is_traced(value) and not np.all(holds(np.asarray(value, np.float64))):
        raise ValueError(f"{name} is {value}, but must be {need}: {advice}.")


def _is_above_zero(value: Any) -> Any:
    return value > 0


def _is_at_least_zero(value: Any) -> Any:
    return value >= 0


@dataclass(frozen=True)
class Rule:
    """What one parameter must be; all of it can be pickled, as systems can.

    Attributes:
        need: its range in words, such as "above 0"; empty if it may be any number.
        advice: why.
        holds: whether numbers are in that range.
        shape: it may be an array that stretches to this shape; None for one number only.
        is_exact: whether arrays must have that very shape, one entry for each particle.
        instead: what is said to those who give an array where one number is needed.
        is_tuple: whether it may be a tuple of such numbers, whose length others check.
    """

    need: str = ""
    advice: str = ""
    holds: Callable[[Any], Any] | None = None
    shape: tuple[int, ...] | None = None
    is_exact: bool = False
    instead: str = ""
    is_tuple: bool = False

    def check(self, name: str, value: Any) -> None:
        """Refuse what is no number or array, out of range, or of another shape.

        Traced values have a shape alone.
        """
        if self.is_tuple and isinstance(value, list | tuple):
            for each in value:
                replace(self, is_tuple=False).check(name, each)
            return
        _number(name, value)
        if self.holds is not None:
            require(name, value, self.need, self.holds, self.advice)
        found = np.shape(value)
        if not self._is_fine(found):
            raise ValueError(self._refusal(name, found))

    def _is_fine(self, found: tuple[int, ...]) -> bool:
        if found == () or self.shape is None:
            return found == ()
        if self.is_exact:
            return found == self.shape
        # One for each of three particles must not become one for each of three axes.
        alike = len(found) == len(self.shape)
        return alike and all(n in (1, m) for n, m in zip(found, self.shape, strict=True))

    def _refusal(self, name: str, found: tuple[int, ...]) -> str:
        if self.shape is None:
            why = f": {self.instead}" if self.instead else ""
            return f"{name} must be one number, not an array of shape {found}{why}."
        if self.is_exact:
            return (
                f"{name} has shape {found}, but must be a number or an array of shape "
                f"{self.shape}, one for each particle."
            )
        of = "the shape of q" if self.shape[1:] else "one for each"
        return (
            f"{name} has the shape {found}, which does not stretch to {self.shape}, {of}: give a "
            f"number, or an array with {len(self.shape)} axes, such as {name}[:, None] of shape "
            "(N, 1) for particles of shape (N, 3)."
        )


@dataclass(frozen=True)
class Rules:
    """What the parameters of a system must be: `System.check` of the ready-made ones.

    A system runs it when it is made and when its parameters are changed. A copy of a ready-made
    system with parameters of your own is made with `check=None`, too:
    `replace(system, params={**system.params, "lengths": lengths}, constraints=g, check=None)`.

    Attributes:
        of: rules by name; a parameter that has none is any one number.
        together: a further check of all of them.
    """

    of: Mapping[str, Rule]
    together: Callable[[Params], None] | None = None

    def __call__(self, params: Params) -> None:
        if not isinstance(params, Mapping):
            names = ", ".join(self.of)
            raise TypeError(f"params must be a dictionary with {names}, not {params!r}.")
        for name, value in params.items():
            self.of.get(name, Rule()).check(name, value)
        if self.together is not None:
            self.together(params)


def positive(advice: str, **more: Any) -> Rule:
    """A parameter above 0."""
    return Rule("above 0", advice, _is_above_zero, **more)


def minimum(advice: str, **more: Any) -> Rule:
    """A parameter that is at least 0."""
    return Rule("at least 0", advice, _is_at_least_zero, **more)


def one_mass(advice: str = "the velocity is p/mass") -> Rule:
    """One mass for all."""
    return positive(advice, instead="da.systems.langevin(potential, …) takes arrays of masses")


def above_zero(advice: str, **values: Any) -> None:
    """Refuse numbers that are not above 0, as of a closed formula."""
    for name, value in values.items():
        require(name, value, "above 0", _is_above_zero, advice)


def at_least_zero(advice: str, **values: Any) -> None:
    """Refuse numbers below 0, as of a closed formula."""
    for name, value in values.items():
        require(name, value, "at least 0", _is_at_least_zero, advice)


def exact(fun: Callable[..., Any], *args: Any) -> Any:
    """Evaluate a closed formula in float64, its arguments broadcast.

    If an argument is traced, it is evaluated in the types of that trace.
    """
    if is_traced(args):
        return fun(*args)
    # Known arguments inside someone's jit still give a known result.
    with jax.ensure_compile_time_eval(), jax.numpy_rank_promotion("allow"):
        return with_precision(fun, *(np.asarray(a, np.float64) for a in args))
