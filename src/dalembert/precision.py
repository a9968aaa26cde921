"""float64 without a global switch.

A run or a step on concrete numbers is computed in float64 inside a context, whatever the
global setting of JAX is. With that setting off, a float64 `jax.Array` would silently become
float32 in the caller's next operation, so concrete results are then handed out as NumPy arrays.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from numbers import Real
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

CONTEXTS = (
    "default_matmul_precision",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "threefry_partitionable",
)
"""Contexts of JAX that numbers depend on, and that a thread has to be told of."""


def is_traced(*trees: Any) -> bool:
    """True if any leaf belongs to a surrounding jit, vmap or grad."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


def refuse_traced(what: str, **given: Any) -> None:
    """Refuse, by name, what belongs to a surrounding jit, vmap or grad, and is to be numbers."""
    traced = [name for name, tree in given.items() if is_traced(tree)]
    if traced:
        raise ValueError(
            f"{what} cannot be had inside jit, vmap or grad (traced here: {', '.join(traced)}): "
            "call it outside, with numbers. da.simulate and da.step take traced params and states."
        )


def traced_dtype(tree: Any, usual: Any) -> np.dtype:
    """The floating type of what is traced, or the usual one if only whole numbers are."""
    traced = [leaf.dtype for leaf in jax.tree.leaves(tree) if isinstance(leaf, Tracer)]
    kinds = [kind for kind in traced if jax.numpy.issubdtype(kind, np.floating)]
    return as_dtype(np.result_type(*kinds) if kinds else usual)


def as_dtype(dtype: Any) -> np.dtype:
    """The floating type of a run: float64 or float32, and a clear error for anything else."""
    try:
        chosen = np.dtype(dtype)
    except TypeError:
        chosen = np.dtype(object)
    if chosen not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise TypeError(f"dtype must be float64 or float32, not {dtype!r}.")
    return chosen


def check_dt(dt: Any, dtype: Any = np.float64, back: str = "") -> None:
    """Refuse what is not a step size: a positive number with all its digits in some type.

    Args:
        dt: what was given.
        dtype: the type.
        back: what to do instead of steps back.
    """
    number, tiny = np.asarray(dt), float(jax.numpy.finfo(dtype).tiny)
    if not (number.shape == () and number.dtype.kind in "fiu" and 0 < number < np.inf):
        is_back = back and number.shape == () and number.dtype.kind in "fiu" and number < 0
        raise ValueError(f"dt must be a positive number, not {dt!r}.{f' {back}' * bool(is_back)}")
    if number < tiny:
        raise ValueError(
            f"dt = {dt} counts as zero in {np.dtype(dtype)}, whose smallest number is {tiny:.1e}: "
            "measure time in smaller units."
        )


def is_number(x: Any) -> bool:
    """Whether something is one real number, also as an array without axes; no truth value is."""
    if isinstance(x, Real):
        return not isinstance(x, bool)
    return getattr(x, "shape", None) == () and getattr(x.dtype, "kind", "") in "iuf"


def check_confidence(confidence: Any) -> None:
    """Refuse what is no probability of an interval."""
    if not is_number(confidence) or not 0 < confidence < 1:
        share = confidence / 100 if is_number(confidence) and 1 < confidence < 100 else 0.95
        raise ValueError(
            f"confidence must lie between 0 and 1, such as {share:g}, not {confidence!r}."
        )


def check_real(name: str, array: Any) -> None:
    """Refuse whole and complex numbers, and what is no number, where a state is given."""
    if not jax.numpy.issubdtype(array.dtype, np.floating):
        kind = {"U": "text", "S": "text", "O": "object", "b": "boolean"}.get(array.dtype.kind)
        raise TypeError(
            f"{name} has {kind or array.dtype} entries; floating-point numbers are needed. "
            f"{float_hint(array.dtype)}"
        )


def warn_if_rounded(name: str, tree: Any) -> None:
    """Say that float32 numbers have lost digits, unless they are such as 0.5 or 2.0."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, Tracer) or getattr(leaf, "dtype", None) != np.float32:
            continue
        if any(float(str(x)) != float(x) for x in np.ravel(np.asarray(leaf))[:100]):
            warnings.warn(
                f"{name} has float32 numbers, which carry seven digits into a float64 run. JAX "
                "makes them unless jax_enable_x64 is on: use NumPy or Python numbers instead, or "
                "run with dtype=np.float32.",
                stacklevel=6,
            )
            return


def float_hint(dtype: Any) -> str:
    """What to write instead of numbers of another type."""
    if jax.numpy.issubdtype(dtype, np.integer):
        return "Write them as floats, e.g. 2.0 instead of 2."
    if jax.numpy.issubdtype(dtype, np.complexfloating):
        return "Take the real part, e.g. with jnp.real."
    if jax.numpy.issubdtype(dtype, np.bool_):
        return "Make 1 and 0 of true and false, with .astype(float) or jnp.where(…, 1.0, 0.0)."
    return "Give numbers such as 2.0."


def array_of_shape(name: str, value: Any, shape: tuple[int, ...]) -> Any:
    """A real array of some shape, or an error that says what to write instead."""
    try:
        array = jax.numpy.asarray(value) if is_traced(value) else np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of shape {shape}, not {value!r}.") from error
    check_real(name, array)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, not {array.shape}.")
    return array


def cast(tree: Any, dtype: np.dtype) -> Any:
    """Floating leaves in the given type; integers, booleans and keys as they are."""

    def leaf(x: Any) -> Any:
        if isinstance(x, float):
            return np.asarray(x, dtype)
        if hasattr(x, "dtype") and jax.numpy.issubdtype(x.dtype, np.floating):
            return x.astype(dtype)
        return x

    return jax.tree.map(leaf, tree)


def read_outside(what: Any) -> TypeError:
    """The error about a traced value that a function reads instead of being given it."""
    return TypeError(
        f"{what}, which a function reads from outside itself, belongs to a surrounding jit, vmap "
        "or grad. Hand it on in the parameters, which all functions of a system take as their last "
        "argument: da.System(H=lambda q, p, params: …, params=…)."
    )


def with_precision(fun: Callable[..., Any], *args: Any, dtype: Any = np.float64) -> Any:
    """Call `fun(*args)` in float64 (or float32) if the arguments are concrete.

    Traced arguments have types that the surrounding trace has fixed, so `fun` is called as it is.
    Concrete ones are computed at once, also inside a trace.
    """
    if is_traced(args):
        return fun(*args)
    dtype = as_dtype(dtype)
    globally_on = bool(jax.config.read("jax_enable_x64"))
    with jax.enable_x64(dtype == np.float64), jax.ensure_compile_time_eval():
        result = fun(*cast(args, dtype))
        return result if globally_on else jax.tree.map(_to_numpy, result)


def _to_numpy(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf


def told_here() -> dict[str, Any]:
    """The contexts of JAX that this thread is in, for other threads and machines."""
    return {name: getattr(jax.config, f"jax_{name}") for name in CONTEXTS}


@contextmanager
def as_told(told: Mapping[str, Any]) -> Iterator[None]:
    """Be in contexts of JAX of which another thread has told."""
    with ExitStack() as contexts:
        for name, value in told.items():
            # A context that changes nothing would yet compile all anew.
            if getattr(jax.config, f"jax_{name}") != value:
                contexts.enter_context(getattr(jax, name)(value))
        yield


def as_told_here(fun: Callable[..., Any]) -> Callable[..., Any]:
    """`fun` for other threads, with the contexts of JAX that this one is in."""
    told = told_here()

    def call(*args: Any) -> Any:
        with as_told(told):
            return fun(*args)

    return call
