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

from dalembert.dependence import Degree, degree, is_linear
from dalembert.digest import derivative
from dalembert.kept_rules import forgets_rules
from dalembert.precision import float_hint, is_traced, warn_if_rounded
from dalembert.traces import (
    called,
    compute,
    contains,
    facts,
    inside,
    literal,
    numbers,
    traced,
    walk,
)


class Checked(NamedTuple):
    """A function that may be used.

    Attributes:
        shape: of its result.
        has_rules: whether it has derivative rules by `jax.custom_vjp`.
        reads_time: whether it depends on the time that it is told.
        forgets: whether derivatives of its gradient would forget rules by `jax.custom_jvp`.
    """

    shape: tuple[int, ...]
    has_rules: bool
    reads_time: bool
    forgets: bool


def check_function(
    name: str,
    fun: Any,
    states: tuple[int, ...],
    params: Any,
    shape: tuple[int, ...] | None,
    noises: tuple[int, ...] | None = None,
    time: bool = False,
    states_read: tuple[str, ...] = ("q", "p"),
) -> Checked:
    """Refuse anything but a function of (q, p), or (q, p, params), to a real array.

    Args:
        name: what the function is called in messages.
        fun: what the user has given.
        states: the shape of `q` and `p`.
        params: the parameters of the system, or None if its functions take none.
        shape: the shape of the result; None means any.
        noises: the shape of `w`, for functions of (q, p, w) or (q, p, w, params).
        time: whether the function takes the time, after q and p.
        states_read: ("q",) for functions of positions alone.

    Returns:
        What is found of it.
    """
    names = [*states_read, *(["t"] if time else []), *(["w"] if noises else [])]
    names += [] if params is None else ["params"]
    arguments = f"({', '.join(names)})"
    if not callable(fun):
        raise TypeError(f"{name} must be a function of {arguments}, not {fun!r}.")

    def call(*given: Any) -> Any:
        out = fun(*given)
        if out is None:
            raise TypeError("it returns None; is there a `return` missing?")
        return jnp.asarray(out)

    with jax.enable_x64(True):
        given = arguments_like(states, params, noises, time)[2 - len(states_read) :]
        try:
            trace, out = jax.make_jaxpr(call, return_shape=True)(*given)
            if shape == out.shape == () and jnp.issubdtype(out.dtype, np.floating):
                jax.eval_shape(jax.grad(traced(trace), argnums=(0, 1)), *given)
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
            hint, said = _hint(fun, error, arguments), _first_line(error)
            raise TypeError(
                f"{name} failed when called as {name}{arguments} with q and p of shape "
                f"{states}: {type(error).__name__}: {said.rstrip('.') if hint else said}{hint}"
            ) from error
        for index, length in _indices_out_of_bounds(trace):
            raise ValueError(
                f"{name} takes entry {index} of an axis of length {length}, counted from 0. "
                f"q and p have shape {states}: is dim={_as_given(states)} right?"
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
    with jax.enable_x64(True):
        reads_time = time and degree(call, given, (2,)) > Degree.CONSTANT
    return Checked(out.shape, has_rules, reads_time, forgets_rules(trace))


def arguments_like(
    states: tuple[int, ...],
    params: Any,
    noises: tuple[int, ...] | None = None,
    time: bool = False,
    dtype: Any = np.float64,
) -> tuple[Any, ...]:
    """The types of what a user's function is called with."""
    z = jax.ShapeDtypeStruct(states, dtype)
    t = (jax.ShapeDtypeStruct((), dtype),) if time else ()
    w = () if noises is None else (jax.ShapeDtypeStruct(noises, dtype),)
    return z, z, *t, *w, *(() if params is None else (params,))


def _hint(fun: Any, error: Exception, arguments: str) -> str:
    """What to write where a function takes another number of arguments."""
    if written := getattr(fun, "written", ""):
        return f". It makes such a function: write {written}."
    return f". Write `lambda {arguments[1:-1]}: …`." if "positional arg" in str(error) else ""


def _as_given(shape: tuple[int, ...]) -> Any:
    return shape[0] if len(shape) == 1 else shape


def check_linear(
    name: str,
    fun: Any,
    states: tuple[int, ...],
    params: Any,
    noises: tuple[int, ...],
    time: bool = False,
) -> None:
    """Refuse a function of (q, p, w) that is not linear in w.

    The way it is written shows that it is. Where that cannot be seen, random numbers show what is
    not; where it is not finite there or reads traced numbers, it must be seen to be affine.
    """
    like = arguments_like(states, params, noises, time)
    with jax.enable_x64(True):
        # Of many noises numbers would take longer than a run.
        if is_linear(lambda *given: fun(*given), like, (2 + time,)):
            return
    rest = () if params is None else (params,)
    normal = np.random.default_rng(0).standard_normal

    # Compiled as a whole: of its operations one by one each would be.
    # A function of its own: JAX would find the code of what `fun` read when it was last compiled.
    call = jax.jit(lambda *given: fun(*given))

    def evaluate(q: Any, p: Any, w: Any) -> Any:
        return call(jnp.asarray(q), jnp.asarray(p), *t, jnp.asarray(w), *rest)

    # Inside someone's jit, what is known stays known.
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        tried = False
        for sizes in SIZES_TRIED:
            t = (jnp.asarray(sizes[1]),) if time else ()
            q, p, v, w = (normal(shape) for shape in (states, states, noises, noises))
            q, p, v, w = sizes[2] * q, sizes[2] * p, sizes[0] * v, sizes[1] * w
            values = [evaluate(q, p, x) for x in (v, w, v - 1.7 * w)]
            if is_traced(values):
                break
            parts = [np.asarray(x) for x in values]
            size = np.abs(parts[0]) + 1.7 * np.abs(parts[1])
            if not np.all(np.isfinite(size)):
                continue
            tried = True
            gaps = np.abs(parts[2] - (parts[0] - 1.7 * parts[1]))
            # Entries may be sums in which larger numbers cancel.
            if not np.all(gaps <= LINEAR_TO * size + ROUNDING * np.max(size)):
                raise ValueError(
                    f"{name} must be linear in w, the increments of all noises: "
                    f"{name}(q, p, v - 1.7 w) differs from {name}(q, p, v) - 1.7 {name}(q, p, w) "
                    f"by {np.max(gaps):.1e}. Write the sum of {name}_i(q, p) * w[i]."
                )
        if not tried and degree(fun, like, (2 + time,)) > Degree.AFFINE:
            raise ValueError(
                f"{name} must be linear in w, and that it is cannot be seen: it is not finite at "
                "random states. Write it as a sum of products with w[i], without branches on w."
            )


SIZES_TRIED = (
    *((1.0, 1.0, 1.0), (1.0, 1e-3, 1.0), (1.0, 1e-8, 1.0), (1.0, 1e8, 1.0), (1e-8, 1e-8, 1.0)),
    *((1.0, 1.0, 30.0), (1.0, 1.0, 1e3), (1.0, 1.0, 1e6), (1.0, 1.0, 1e-3)),
)
"""Of v, w and the state. Of v and w far apart, so that both sides of a threshold are seen, and both
small, where rounding to some decimals shows; of states large and small, where branches change."""

LINEAR_TO, ROUNDING = 1e-9, 1e-14
"""Rounding that sums of many terms may have, relative to an entry and to the largest of all."""


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
    """Reads out of bounds by one equation; a mode such as "clip" is the user's own choice."""
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
