"""Particles in a box: what their parameters must be, and their numbers as what goes with states."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.systems._parameters import Params, Rule, require

__all__ = [
    "beside",
    "check_number",
    "check_potential",
    "check_sides",
    "columns",
    "effective",
    "is_count",
    "is_finite_or_zero",
    "particle_rules",
    "product",
    "require_physical",
    "scalar",
]

PHYSICAL = "it is a length, a speed, a mass or a number"


def is_finite_or_zero(value: Any) -> Any:
    """Whether numbers can be rates or temperatures."""
    return (value >= 0) & (value < np.inf)


def _is_physical(value: Any) -> Any:
    return (value > 0) & (value < np.inf)


def particle_rules(N: int) -> dict[str, Rule]:
    """What the parameters of N particles in a box must be: one number or one for each particle."""
    return {
        "length": Rule("above 0", PHYSICAL, _is_physical, is_tuple=True),
        "mass": Rule("above 0", PHYSICAL, _is_physical, (N,), True),
        "weight": Rule("above 0", PHYSICAL, _is_physical, (N,), True),
        "charge": Rule("finite", "it is a charge", np.isfinite, (N,), True),
    }


def check_sides(axes: int, params: Params) -> None:
    """Refuse a length of a box that is no tuple with as many sides as it has dimensions."""
    length = params["length"]
    if not isinstance(length, tuple | list) or len(length) != axes:
        sides = ", ".join(["12.0"] * axes) + "," * (axes == 1)
        raise ValueError(
            f"length is {length!r}, but must be a tuple of {axes} side(s) here, such as "
            f"system.with_params(length=({sides}))."
        )


def require_physical(**values: Any) -> None:
    """Refuse charges that are not finite, and all else that is not above 0 and finite."""
    for name, value in values.items():
        rule = particle_rules(1)[name]
        holds: Any = rule.holds
        require(name, value, rule.need, holds, rule.advice)


def is_count(value: Any, least: float, most: float) -> bool:
    """Whether something is a whole number between two others."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_whole and bool(least <= value <= most)


def check_potential(name: str, potential: Any, shape: tuple[int, ...]) -> None:
    """Refuse a given potential that has not one value per particle."""
    if not callable(potential):
        raise TypeError(f"{name} must be a function of positions, not {potential!r}.")
    with jax.enable_x64(True):
        found = jax.eval_shape(
            lambda x: jnp.asarray(potential(x)), jax.ShapeDtypeStruct(shape, np.float64)
        )
    if found.shape != shape[:1]:
        raise ValueError(
            f"{name} returns shape {found.shape}, but must have one value per particle: "
            f"{shape[:1]} for positions of shape {shape}."
        )


def columns(q: Any, axes: int) -> tuple[Any, ...]:
    """Positions, or momenta, along the first axes, shape (N,) each."""
    return (q,) if q.ndim == 1 else tuple(q[:, a] for a in range(axes))


def product(q: Any, params: Params, *names: str) -> Any:
    """The product of parameters that are numbers or arrays (N,): a number if all of them are."""
    value = jnp.ones((), q.dtype)
    for name in names:
        value = value * jnp.asarray(params[name], q.dtype)
    return value


def effective(q: Any, params: Params, *names: str) -> Any:
    """The product of parameters that are numbers or arrays (N,), shape (N,)."""
    return jnp.broadcast_to(product(q, params, *names), q.shape[:1])


def scalar(q: Any, params: Params, name: str) -> Any:
    """A parameter that is one number."""
    check_number(name, params[name])
    return jnp.asarray(params[name], q.dtype)


def check_number(name: str, value: Any) -> None:
    """Refuse an array where one number is needed."""
    if jnp.shape(value) != ():
        raise ValueError(f"{name} must be one number, not an array of shape {jnp.shape(value)}.")


def beside(value: Any, q: Any) -> Any:
    """One number, or one per particle, as what goes with all components of q."""
    return value if q.ndim == 1 or not value.ndim else value[:, None]
