"""Options of XLA that this version of it knows."""

from functools import cache
from typing import Any

import jax
import numpy as np

__all__ = ["compiled_sooner"]


@cache
def compiled_sooner() -> dict[str, Any] | None:
    """Options with which code on a CPU is compiled in half the time, and runs about as fast.

    None where XLA does not know them, such as that of jax 0.11.
    """
    options: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
    with jax.ensure_compile_time_eval():
        try:
            jax.jit(lambda x: x, compiler_options=options)(np.zeros(()))
        except jax.errors.JaxRuntimeError:
            return None
    return options
