"""One step of any method on any system, with known increments, and a report on its solution."""

from dataclasses import is_dataclass
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.driven import check_digits, time_of
from dalembert.kept_rules import with_kept_rules
from dalembert.methods import METHODS, Method
from dalembert.methods.method import Convergence
from dalembert.noise import Increments
from dalembert.options import compiled_sooner
from dalembert.precision import as_dtype, cast, check_dt, is_traced, with_precision
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.project import check_start, only_on_constraints
from dalembert.stepping.requirements import (
    REQUIREMENTS,
    check_requirements,
    refuse_without_constraints,
)
from dalembert.stepping.stepper import StepInfo, Stepper, make_stepper
from dalembert.system import System

MAX_WRITTEN_OUT = 1000
"""Operations of stage equations and their matrices that are written out in scalars for one step:
beyond them it takes longer to compile than on arrays."""


def step(
    system: System,
    method: Method,
    q: Any,
    p: Any,
    dt: Any,
    dW: Any = (),
    *,
    t: Any = None,
    shortcuts: bool = True,
    dtype: Any = np.float64,
) -> tuple[Any, Any, StepInfo]:
    """Advance one path by one step with known increments.

    Args:
        system: what to simulate.
        method: e.g. `da.midpoint()`.
        q: positions, shape (dim,), or the shape that was given as `dim`.
        p: momenta, likewise.
        dt: step size, > 0. A step of −dt with −dW is one of dt with dW for the system of −H, −F,
            −h and −f.
        dW: Wiener increments, or three-point variables for weak methods, shape (noises,), nothing
            for a system without noise; an `Increments` record where the method needs more (ΔZ for
            E1, Î_kl for RS1 and RS2 with several noises).
        t: the time at the beginning of the step, for systems with `time=True`.
        shortcuts: False solves all stages at once without using any structure (for checking).
        dtype: type of the computation if the arguments are concrete; inside jit, vmap or grad the
            type of `q` counts.

    Returns:
        New q, new p, and a `StepInfo` (converged, iterations, residual). Works under `jax.jit`,
        `jax.vmap` and `jax.grad`, where a state that is not on the constraints of the system gives
        NaN and not an error. If JAX's float64 mode is off and the arguments are concrete,
        the results are NumPy arrays, because JAX would round float64 arrays in later operations.

    Of concrete arguments the first result comes as soon as it can: stage equations of more than
    `MAX_WRITTEN_OUT` operations are solved on arrays, and safely only where that fails.
    """
    check_method(system, method)
    increments = as_increments(system, method, dW)
    arguments = (system.flat("q", q), system.flat("p", p), increments, system.params)
    t = time_of(system, t)
    traced = is_traced(arguments, dt, t)
    if not traced:
        check_start(system, *(np.asarray(x)[None] for x in arguments[:2]))
    kind = np.dtype(jnp.asarray(arguments[0]).dtype) if traced else as_dtype(dtype)
    if not is_traced(dt):
        check_dt(dt, kind, "To go back, step forward the system with −H, −F, −h and −f.")
    if not is_traced(dt, t):
        check_digits(system, t, dt, kind)

    def run(q: Any, p: Any, increments: Increments, params: Any, dt: Any, t: Any) -> Any:
        q, p, increments, params, t = cast((q, p, increments, params, t), kind)
        if traced:
            on_it = only_on_constraints(system, q[None], p[None], params)
            q, p = (x[0] for x in on_it)
        given = (*system.begin(q, p, t), increments, params, jnp.asarray(dt, kind))
        found = None if traced else _tried(system, method, kind, shortcuts, given)
        if found is None:
            found = _compiled(make_stepper(system, method, kind, shortcuts), Solver.BOTH)(*given)
        q, p, info = found
        return system.shaped(q), system.shaped(p), info

    return with_precision(run, *arguments, dt, t, dtype=kind)


def _tried(
    system: System, method: Method, dtype: np.dtype, shortcuts: bool, given: tuple[Any, ...]
) -> tuple[Any, Any, StepInfo] | None:
    """The step in the way that is compiled soonest; None if that does not solve its equations."""
    stepper = make_stepper(system, method, dtype, shortcuts, most=MAX_WRITTEN_OUT)
    found = _compiled(stepper, Solver.TRY)(*given)
    return found if found[2].converged or not stepper.is_implicit else None


@kept
def _compiled(stepper: Stepper, solver: Solver) -> Any:
    # Whoever scans over steps, and differentiates that, is not to lose rules that JAX was told.
    @with_kept_rules
    def run(q: Any, p: Any, increments: Increments, params: Any, dt: Any) -> Any:
        state = stepper.enter(q), stepper.enter(p)
        q, p, info = stepper.advance(*state, dt, increments, params, solver)
        return stepper.leave(q), stepper.leave(p), info

    return jax.jit(run, compiler_options=compiled_sooner() if solver is Solver.TRY else None)


def check_method(system: System, method: Any) -> None:
    """Refuse, with the reason, a method that cannot take the system's noise."""
    if not isinstance(system, System):
        hint = " Call the function to get the system." if callable(system) else ""
        hint = " The system comes first, then the method." if isinstance(system, Method) else hint
        example = "such as da.systems.van_der_pol()"
        raise TypeError(f"system must be a da.System, {example}, not {system!r}.{hint}")
    check_family(method)
    refuse_without_constraints(system, method)
    method.check_noises(system.fields.noises)
    check_requirements(system, method)


def check_family(method: Any) -> None:
    """Refuse what is no method, or does not keep to the rules of one."""
    if not isinstance(method, Method):
        hint = " Call the function to get the method." if callable(method) else ""
        hint = f" {_by_name(method)}" if isinstance(method, str) else hint
        hint = " One at a time." if isinstance(method, list | tuple) else hint
        raise TypeError(f"method must be a da.Method such as da.midpoint(), not {method!r}.{hint}")
    if not is_dataclass(method) or type(method).__hash__ is None:
        raise TypeError(
            f"{type(method).__name__} must be a dataclass(frozen=True), as methods are."
        )
    said = ("convergence", {method.convergence}, get_args(Convergence))
    for name, given, known in (said, ("requires", method.requires, REQUIREMENTS)):
        if not set(given) <= set(known):
            raise ValueError(f"{name} of {method.name}: {sorted(given)}, not among {list(known)}.")


def _by_name(name: str) -> str:
    """What to write instead of the name of a method."""
    return f"Write da.METHODS[{name!r}]()." if name in METHODS else METHODS.instead_of(name)


def _array(value: Any) -> Any:
    return jnp.asarray(value) if is_traced(value) else np.asarray(value)


def as_increments(system: System, method: Method, dW: Any) -> Increments:
    """Increments as a record with everything that the method needs, checked."""
    record = dW if isinstance(dW, Increments) else Increments(dW=dW)
    noises = system.noises
    given = _real("dW", record.dW)
    if given.shape in ((), system.noise_shape) and given.size == noises:
        given = given.reshape(noises)
    if given.shape != (noises,) and not noises:
        raise ValueError(f"{system.name!r} has no noise, h and f are empty: leave dW out.")
    if given.shape != (noises,):
        raise ValueError(
            f"dW must have shape ({noises},), one increment per Wiener process of "
            f"{system.name!r}, not {given.shape}."
        )
    found = {"dW": given}
    shapes = {"dZ": (noises,), "mixed": (noises, noises), "area": (noises, noises), "coin": ()}
    for name, value in beside_dW(system, method, record).items():
        found[name] = _real(name, value)
        if found[name].shape != shapes[name]:
            raise ValueError(f"{name} must have shape {shapes[name]}, not {found[name].shape}.")
    return Increments(**found)


def beside_dW(system: System, method: Method, record: Increments) -> dict[str, Any]:
    """What a method reads of a record beside dW, or an error about what is not there."""
    found = {name: getattr(record, name) for name in sorted(method.needs_for(system) - {"dW"})}
    for name, value in found.items():
        if value is None:
            raise ValueError(
                f"{method.name} also needs the increments {name}: pass "
                f"da.Increments(dW=…, {name}=…) instead of dW alone."
            )
    return found


def _real(name: str, value: Any) -> Any:
    """Increments as real numbers; whole ones, such as zero, are welcome."""
    array = _array(value)
    if not jnp.issubdtype(array.dtype, np.floating) and not jnp.issubdtype(array.dtype, np.integer):
        raise TypeError(f"{name} must be real numbers, one per Wiener process, not {value!r}.")
    return array if jnp.issubdtype(array.dtype, np.floating) else array.astype(float)
