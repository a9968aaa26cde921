"""What is known of JAX's primitives: one table, in which a new one is one entry.

An entry says in which forms the parts of the package know a primitive; how a form is written is up
to them. A form may have words after it, such as LLVM's name of an instruction. What is not in the
table is not known, and what is to be done then is on the safe side: a nonlinear operation, no code
on scalars, no vector code, no kernel.
"""

from typing import Any, NamedTuple

import numpy as np


class Facts(NamedTuple):
    """What is known of a primitive; nothing where there is nothing.

    Attributes:
        degree: how a result depends on the operands (`dependence.py`).
        scalar: the form on single numbers (`stepping/scalarise.py`).
        vector: the form in vector code (`ensemble/lanes.py`).
        triton: whether Triton computes it to rounding on a GPU (jax 0.11.2).
        except_of: types of which Triton computes something else.
        index: whether whole numbers that it gives are computed to look at indices (`functions.py`).
    """

    degree: str = ""
    scalar: str = ""
    vector: str = ""
    triton: bool = False
    except_of: tuple[Any, ...] = ()
    index: bool = False


# Absolute values are taken in single precision, and rests of divisions by a rounded quotient.
_DOUBLE, _FLOATS = (np.float64,), (np.float32, np.float64)

_GROUPS: dict[str, Facts] = {
    # Arithmetic.
    "add": Facts("sum", "fold add", "arithmetic fadd add", triton=True, index=True),
    "add_any": Facts("sum", "fold add", "arithmetic fadd add", triton=True),
    "sub": Facts("sum", "fold sub", "arithmetic fsub sub", triton=True, index=True),
    "mul": Facts("product", "fold mul", "arithmetic fmul mul", triton=True, index=True),
    "div": Facts("quotient", "fold div", "quotient", triton=True),
    "neg": Facts("linear", "fold neg", "negative", triton=True, index=True),
    "abs": Facts("", "fold magnitude", "abs", triton=True, except_of=_DOUBLE),
    "max": Facts("", "fold maximum", "extreme >", triton=True),
    "min": Facts("", "each", "extreme <", triton=True),
    "rem": Facts("", "each", triton=True, except_of=_FLOATS),
    "integer_pow": Facts("power", "power", "power", triton=True),
    "polynomial": Facts("polynomial", "polynomial"),
    "square": Facts("", "each", "square", triton=True),
    "sign": Facts("", "each", "sign", triton=True),
    "is_finite": Facts("", "each", "is_finite", triton=True),
    # Functions.
    "sin": Facts("", "fold sin", "intrinsic", triton=True),
    "cos": Facts("", "fold cos", "intrinsic", triton=True),
    "log": Facts("", "fold log", "intrinsic", triton=True),
    "ceil exp exp2 floor sqrt tan tanh": Facts("", "each", "intrinsic", triton=True),
    "pow": Facts("", "each", "pow", triton=True),
    "rsqrt": Facts("", "each", "rsqrt", triton=True),
    "acos acosh asin asinh atan atan2 atanh cbrt clamp cosh expm1 log1p logistic sinh": Facts(
        "", "each", triton=True
    ),
    "bessel_i0e bessel_i1e digamma erf erf_inv erfc igamma igammac lgamma log2 nextafter "
    "reduce_precision round": Facts("", "each"),
    "one_minus_square": Facts("", "fold one_minus_square"),
    # Truth values, choices and bits.
    "eq": Facts("", "each", "comparison ==", triton=True, index=True),
    "ne": Facts("", "each", "comparison !=", triton=True, index=True),
    "ge": Facts("", "each", "comparison >=", triton=True, index=True),
    "gt": Facts("", "each", "comparison >", triton=True, index=True),
    "le": Facts("", "each", "comparison <=", triton=True, index=True),
    "lt": Facts("", "each", "comparison <", triton=True, index=True),
    "select_n": Facts("choice", "choice", "choice", triton=True, index=True),
    "and": Facts("", "each", "bits and_", triton=True),
    "or": Facts("", "each", "bits or_", triton=True),
    "xor": Facts("", "each", "bits xor", triton=True),
    "not": Facts("", "each", "bits not_", triton=True),
    "shift_left": Facts("", "each", "shift shl", triton=True),
    "shift_right_arithmetic": Facts("", "each", "shift ashr", triton=True),
    "shift_right_logical": Facts("", "each", "shift lshr", triton=True),
    "bitcast_convert_type": Facts("", "bitcast", "bitcast", triton=True),
    "convert_element_type": Facts(
        "conversion", "conversion", "conversion", triton=True, index=True
    ),
    "copy copy_p": Facts("linear", "fold same", "same"),
    "stop_gradient": Facts("", "each", "same", triton=True),
    "real imag": Facts("linear"),
    # Entries of arrays in other places; the number is that of operands that carry them.
    "broadcast_in_dim reshape squeeze": Facts("linear", "move 1", triton=True, index=True),
    "expand_dims rev slice transpose": Facts("linear", "move 1", index=True),
    "dynamic_slice gather split tile unstack": Facts("linear", "move 1"),
    "concatenate stack": Facts("sum", "move all", index=True),
    "pad": Facts("sum", "move all"),
    "dynamic_update_slice": Facts("", "move 2"),
    "iota": Facts(index=True),
    # Sums and the like over arrays.
    "reduce_sum": Facts("linear", "reduce add"),
    "reduce_prod": Facts("", "reduce mul"),
    "reduce_max": Facts("", "reduce maximum", triton=True),
    "reduce_min": Facts("", "reduce min"),
    "reduce_and": Facts("", "reduce and"),
    "reduce_or": Facts("", "reduce or"),
    "cumsum": Facts("linear", "cumsum"),
    "dot_general": Facts("product", "dot"),
    "scatter-add scatter_add": Facts("", "scatter_add"),
    # Code that is executed in one place or another, or again and again.
    "cond while": Facts(triton=True),
}

PRIMITIVES = {name: facts for names, facts in _GROUPS.items() for name in names.split()}
"""What is known of each primitive, by its name."""

LOOPS = frozenset(["scan", "while", "reduce", "reduce_window"])
"""Primitives that execute the code in them more than once."""

RULES = ("custom_jvp_call", "custom_vjp_call")
"""Functions of which JAX has been told derivatives."""

CALLBACKS = ("pure_callback", "io_callback")
"""Calls of Python, whose code has no trace."""

PRINTING = ("debug_callback", "debug_print")

# Rules are written out in traces of derivatives. Where `custom_lin` is left there, a derivative is
# not defined, and a run that takes it ends with an error.
LEFT_OUT = {
    "custom_jvp_call": {"jvp_jaxpr_fun"},
    "custom_vjp_call": {"fwd_jaxpr_thunk", "bwd", "out_trees"},
    "custom_lin": {"bwd"},
    "jit": {"name"},
    "remat2": {"policy"},
    "checkpoint": {"policy"},
}
"""Parameters of equations that say nothing, or nothing more, about the numbers."""
