"""Options of XLA, as far as the version that is there knows them."""

from functools import cache
from typing import Any

import jax
import numpy as np


def compiled_sooner() -> dict[str, Any] | None:
    """Options with which code for a CPU is compiled in less time: a half to five sixths."""
    name = "xla_cpu_use_fusion_emitters"
    return {name: False} if xla_knows(name) else None


@cache
def xla_knows(name: str) -> bool:
    """Whether XLA knows an option that can be switched off; that of jax 0.11 knows fewer."""
    with jax.ensure_compile_time_eval():
        try:
            jax.jit(lambda x: x, compiler_options={name: False})(np.float32(0))
        except jax.errors.JaxRuntimeError:
            return False
    return True
