"""Steps of somewhat larger systems, written out for vector code alone.

LLVM compiles straight-line code in a time that grows with its length, and keeps in the nearest
cache what does not fit into registers. XLA takes longer, and writes every number to memory: all
that it does with these systems it does on arrays.
"""

from dataclasses import replace

import jax
import numpy as np

from dalembert.caches import kept
from dalembert.stepping.block_solver import block_solvers
from dalembert.stepping.requirements import terms_of_steps
from dalembert.stepping.scalarise import NotScalarError
from dalembert.stepping.stepper import MAX_SCALAR_DIM, Stepper, factors_of

MAX_DIM = 16
"""Degrees of freedom, noises, and unknowns of equations that are solved together."""

MAX_ENTRIES = 50_000
"""Operations of equations times their unknowns: what their matrices take before zeros are dropped.
"""

MAX_SIZE = 2000
"""Operations of a step without its solvers: of more the first call would take over three seconds.
"""


@kept
def wider(stepper: Stepper) -> Stepper:
    """The step of a stepper on arrays, on scalars; with a notice why not if it has no such form.

    A stepper that is on scalars, or of more than the plan of one method, is taken as it is.
    """
    if type(stepper) is not Stepper or stepper.system.dim <= MAX_SCALAR_DIM:
        return stepper
    system, plan, dtype = stepper.system, stepper.plan, stepper.dtype
    rows = max((1, *(len(block.unknowns) for block in plan.blocks)))
    if system.flow is not None or max(rows * system.dim, system.noises) > MAX_DIM:
        return stepper
    fields, z = system.fields, jax.ShapeDtypeStruct((system.dim,), dtype)
    x64 = dtype == np.float64 or bool(jax.config.read("jax_enable_x64"))
    try:
        with jax.enable_x64(x64), jax.ensure_compile_time_eval():
            known = terms_of_steps(system, z), plan, stepper.dependence, z
            solvers = block_solvers(*known, shortcuts=True, scalar=True, most=MAX_ENTRIES)
            factors = factors_of(fields, plan, z, scalar=True)
    except NotScalarError as error:
        return replace(stepper, notice=f"no straight-line form for: {error}")
    found = replace(stepper, solvers=solvers, factors=factors, notice="")
    if found.size > MAX_SIZE:
        return replace(stepper, notice=f"{found.size} operations take long to compile")
    return found
