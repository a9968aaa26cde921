"""What can be wrong with a function that a user writes, said in words before it is used.

The function is traced once on states of the right shape. JAX does not refuse an index that is out
of bounds but takes the nearest entry instead, so the indices are read off the trace.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.digest import derivative
from dalembert.precision import float_hint, is_traced, warn_if_rounded
from dalembert.traces import called, compute, contains, facts, inside, literal, numbers, walk

__all__ = ["Checked", "check_function"]


class Checked(NamedTuple):
    """A function that may be used: the shape of its result, and whether it has rules backwards."""

    shape: tuple[int, ...]
    has_rules: bool


def check_function(
    name: str, fun: Any, dim: int, params: Any, shape: tuple[int, ...] | None
) -> Checked:
    """Refuse anything but a function of (q, p), or (q, p, params), to a real array.

    Args:
        name: what the function is called in messages.
        fun: what the user has given.
        dim: degrees of freedom; `q` and `p` have shape `(dim,)`.
        params: the parameters of the system, or None if its functions take none.
        shape: the shape of the result; None means any.

    Returns:
        Whether it has derivative rules by `jax.custom_vjp`.
    """
    arguments = "(q, p)" if params is None else "(q, p, params)"
    if not callable(fun):
        raise TypeError(f"{name} must be a function of {arguments}, not {fun!r}.")

    def call(q: Any, p: Any, *rest: Any) -> Any:
        out = fun(q, p, *rest)
        if out is None:
            raise TypeError("it returns None; is there a `return` missing?")
        return jnp.asarray(out)

    with jax.enable_x64(True):
        z = jax.ShapeDtypeStruct((dim,), np.float64)
        given = (z, z) if params is None else (z, z, params)
        try:
            trace, out = jax.make_jaxpr(call, return_shape=True)(*given)
            if shape == out.shape == () and jnp.issubdtype(out.dtype, np.floating):
                jax.eval_shape(jax.grad(call, argnums=(0, 1)), *given)
        except (
            jax.errors.TracerArrayConversionError,
            jax.errors.ConcretizationTypeError,
            jax.errors.TracerIntegerConversionError,
        ) as error:
            raise TypeError(
                f"{name} cannot be traced by JAX. Write it with jax.numpy instead of numpy or "
                f"math, and jnp.where instead of `if` on values of q and p. ({_first_line(error)})"
            ) from error
        except Exception as error:
            raise TypeError(
                f"{name} failed when called as {name}{arguments} with q and p of shape "
                f"({dim},): {type(error).__name__}: {_first_line(error)}"
            ) from error
        for index, length in _indices_out_of_bounds(trace):
            raise ValueError(
                f"{name} takes entry {index} of an axis of length {length}, counted from 0. "
                f"q and p have shape ({dim},): is dim={dim} right?"
            )
    warn_if_rounded(name, list(numbers(trace)))
    if not jnp.issubdtype(out.dtype, np.floating):
        raise TypeError(
            f"{name} returns {out.dtype} values; floating-point numbers are needed. "
            f"{float_hint(out.dtype)}"
        )
    if shape is not None and out.shape != shape:
        wanted, hint = (
            (f"shape {shape}", "Give one number per component, e.g. -0.1 * p, not -0.1 * p[0].")
            if shape
            else ("a scalar, shape ()", "Sum over the components or take one, e.g. p[0]**2 / 2.")
        )
        raise ValueError(f"{name} must return {wanted}, but it returns shape {out.shape}. {hint}")
    has_rules = contains(trace, ("custom_vjp_call",))
    if shape is not None and has_rules:
        _check_rules(name, call, given, shape)
    return Checked(out.shape, has_rules)


def _check_rules(name: str, call: Any, given: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    """Refuse derivative rules that give no derivative along a direction of what is needed."""
    fun, like = derivative(call, given, is_number=True) if shape == () else (call, given)
    along, like = derivative(fun, like, is_number=False)
    with jax.enable_x64(True):
        slope = jax.make_jaxpr(along)(*like)
    if contains(slope, ("custom_lin",)):
        raise TypeError(
            f"{name} has a derivative rule by jax.custom_vjp that can only be used backwards, and "
            "derivatives along a direction are needed: write the rule with jax.custom_jvp."
        )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _indices_out_of_bounds(trace: Any) -> list[tuple[int, int]]:
    """Indices that a trace knows to be out of bounds, each with the length of its axis."""
    found: list[tuple[int, int]] = []

    def look(eqn: Any, values: list[Any]) -> Sequence[Any]:
        found.extend(_read_out_of_bounds(eqn, values))
        if (inner := called(eqn)) is not None:
            return look_at_all(inner, values)
        for inner in inside(eqn):  # a loop or a branch, whose operands it does not hand on
            look_at_all(inner, [None] * len(inner.jaxpr.invars))
        return _index_arithmetic(eqn, values)

    def look_at_all(trace: Any, args: list[Any]) -> list[Any]:
        return walk(trace, [*trace.consts, *args], look, literal)

    look_at_all(trace, [None] * len(trace.jaxpr.invars))
    return found


def _read_out_of_bounds(eqn: Any, values: list[Any]) -> Iterator[tuple[int, int]]:
    """The same for one equation. A mode such as "clip" or "fill" is the user's own choice."""
    if eqn.primitive.name == "dynamic_slice":
        starts = dict(enumerate(values[1:]))
    elif (
        eqn.primitive.name == "gather"
        and eqn.params["mode"] == lax.GatherScatterMode.PROMISE_IN_BOUNDS
        and _is_known(values[1])
    ):
        columns = np.moveaxis(np.asarray(values[1]), -1, 0)
        axes = eqn.params["dimension_numbers"].start_index_map
        starts = dict(zip(axes, columns, strict=True))
    else:
        return
    for axis, start in starts.items():
        length, size = eqn.invars[0].aval.shape[axis], eqn.params["slice_sizes"][axis]
        for first in np.ravel(start).tolist() if _is_known(start) else ():
            if first < 0:
                yield first - length, length  # what was written, before counting from the end
            elif first + size > length:
                yield first + size - 1, length


def _index_arithmetic(eqn: Any, values: list[Any]) -> Sequence[Any]:
    """The result of a simple operation on what is known, if it is whole; None for any other."""
    is_simple = facts(eqn).index and all(_is_known(v) for v in values)
    if not is_simple or not _is_whole(eqn.outvars[0].aval.dtype):
        return [None] * len(eqn.outvars)
    return compute(eqn, values)


def _is_whole(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, np.integer) or jnp.issubdtype(dtype, np.bool_)


def _is_known(value: Any) -> bool:
    return value is not None and not is_traced(value)
