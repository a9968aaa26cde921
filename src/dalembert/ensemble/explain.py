"""What the library found out about a method on a system, and which engine takes its steps."""

from typing import Any

import jax
import numpy as np

from dalembert.ensemble.compiled import Xla
from dalembert.ensemble.engine import Steps
from dalembert.ensemble.engines import choose_engine, find_engines
from dalembert.ensemble.vector_code import VectorCode
from dalembert.methods import Method
from dalembert.noise import usual_noise
from dalembert.stepping.explain import describe, folded
from dalembert.stepping.propagator import make_maps
from dalembert.stepping.step import check_method
from dalembert.stepping.stepper import make_stepper
from dalembert.system import System

USUAL_DT, USUAL_PATHS = 0.1, 1024
"""Of the run for which an engine is chosen; the choice does not depend on them."""


def explain(system: System, method: Method, engine: Any = None) -> str:
    """What the library found out about the stage equations of a method on a system.

    Also which engine takes the steps of a run on this machine, and why not a faster one; `engine`
    is as in `simulate`.
    """
    check_method(system, method)
    backend = jax.default_backend()
    with jax.enable_x64(True):
        stepper = make_stepper(system, method, np.float64)
        noise = usual_noise(method.convergence, method.needs_for(system), USUAL_DT)
        found = make_maps(stepper, noise, USUAL_DT, system.params)
        maps = None if found is None else found[0]
        needs = frozenset(method.needs_for(system))
        choice = choose_engine(
            Steps(stepper, noise, system.params, maps, needs, USUAL_PATHS, backend),
            find_engines(engine),
        )
    by_maps = ", as three matrices" if maps is not None else ""
    is_wide = choice.name == VectorCode.name and not stepper.is_scalar
    lines = [f"  engine on this machine: {choice.name}{by_maps}", *_refusals(choice.refused)]
    return f"{describe(stepper, choice.name if is_wide else '')}\n{folded(lines)}"


def _refusals(refused: dict[str, str]) -> list[str]:
    """Why faster engines cannot serve; those with the same reason in one line."""
    names: dict[str, list[str]] = {}
    for name, reason in refused.items():
        # The engine of arrays is XLA's too.
        names.setdefault(reason, []).append("XLA on scalars" if name == Xla.name else name)
    return [f"    not {' nor '.join(alike)}: {reason}" for reason, alike in names.items()]
