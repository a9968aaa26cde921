"""Systems that are driven in time: what their functions are told, and the same without time.

In the extended phase space time is one more position with dt/dt = 1, and its momentum, of which
nothing else depends, is minus the energy. The time of a stage is therefore what the row of its
positions says, and what a method keeps it keeps at every time. Steps use no more than that
(`stepping/clocks.py`); `extended` is the whole system, for theorems about systems without time.
"""

from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept_by
from dalembert.dependence import Degree, degree
from dalembert.joint import Joint
from dalembert.precision import is_traced


class Timed(NamedTuple):
    """What terms of a driven system are told in the place of parameters: the time, and these."""

    t: Any
    params: Any


def time_of(system: Any, t: Any) -> Any:
    """A time that somebody gave, as one real number; None for a system without time."""
    if not system.time:
        if t is not None:
            raise TypeError(
                f"{system.name!r} does not depend on time: leave t out, or make the system with "
                "time=True and functions of (q, p, t)."
            )
        return None
    if t is None:
        raise TypeError(f"{system.name!r} is driven in time (time=True): give the time, as t=0.0.")
    if is_traced(t):
        return jnp.asarray(t)
    number = np.asarray(t)
    if number.shape != () or number.dtype.kind not in "fiu" or not np.isfinite(number):
        raise ValueError(f"t must be one finite number, not {t!r}.")
    return number.astype(np.float64)


MAX_ROUNDING = 2.0**-7
"""Part of a step to which times must be known: 2^16 steps from t = 0 in float32."""


def check_digits(system: Any, t: Any, dt: Any, dtype: Any) -> None:
    """Refuse times of a driven system that a type does not tell apart from those of a step."""
    if system.time and np.max(np.abs(t)) * np.finfo(dtype).eps > MAX_ROUNDING * np.min(dt):
        raise ValueError(
            f"{np.dtype(dtype)} has too few digits for t = {np.max(np.abs(t)):g} in steps of "
            f"{np.min(dt):g}: {system.name!r} is driven in time, and its times would be off by a "
            "part of a step. Use float64, or write the drive as a function of t - t0."
        )


def refusal(system: Any) -> TypeError:
    """The error of functions that take systems without time only."""
    return TypeError(
        f"{system.name!r} is driven in time, and this takes systems without time: give it "
        "system.extended(), in which time is one more position: a path begins at np.append(q, t), "
        "np.append(p, 0.0), and its steps are those of that system; or give it system.at(t), the "
        "system as it is at one time."
    )


def degree_in_time(system: Any, term: Any, z: Any) -> Degree:
    """How a term of a driven system depends on time."""
    fun = system.term(term)
    if fun is None:
        return Degree.ZERO
    q, p, (t, params), *w = system.term_like(term, z)

    def at(t: Any, q: Any, p: Any, params: Any, *w: Any) -> Any:
        return fun(q, p, Timed(t, params), *w)

    return degree(at, (t, q, p, params, *w), (0,))


def is_driven(system: Any) -> bool:
    """Whether a velocity, a force or a noise of a system without a flow may depend on time."""
    terms = [(kind, 0) for kind in ("H_p", "H_q", "F")]
    terms += [(kind, i) for i in system.noise_numbers for kind in ("h_p", "h_q", "f")]
    with jax.enable_x64(True):
        z = jax.ShapeDtypeStruct((int(system.dim),), np.float64)
        return any(degree_in_time(system, term, z) > Degree.CONSTANT for term in terms)


def at_time(system: Any, t: Any) -> Any:
    """The system without time whose functions are those of a driven one at some time."""
    when = time_of(system, t)

    def frozen(fun: Any) -> Any:
        return lambda q, p, *rest: fun(q, p, jnp.asarray(when, q.dtype), *rest)

    rest = {"constraints": system.constraints, "flow": system.flow}
    name = f"{system.name} at t = {t}"
    return _made_of(system, frozen, frozen, dim=system.shape, name=name, **rest)


@kept_by(attrgetter("key"))  # made once, so that what is compiled for it serves again
def extended(system: Any) -> Any:
    """The system without time that has it as one more position, after the others.

    Its momentum p_t is the last one, and H + p_t the energy: dp_t = −∂H/∂t dt − Σ ∂h_i/∂t ∘ dW_i.
    Positions and momenta have shape (dim + 1,).
    """
    time_of(system, 0.0)
    dim, shape = int(system.dim), system.shape

    def scalar(fun: Any) -> Any:
        return of_extended(system, fun)

    def force(fun: Any) -> Any:
        inner = scalar(fun)
        return lambda q, p, *rest: jnp.pad(jnp.ravel(inner(q, p, *rest)), (0, 1))

    inner = scalar(system.H)

    def energy(q: Any, p: Any, *rest: Any) -> Any:
        return inner(q, p, *rest) + p[dim]

    def bound(q: Any, *params: Any) -> Any:
        return system.constraints(q[:dim].reshape(shape), *params)

    def still(fun: Any) -> Any:
        """A function that knows nothing of time."""
        return lambda q, p, *rest: fun(q[:dim].reshape(shape), p[:dim].reshape(shape), *rest)

    def moved(act: Any) -> Any:
        def on_extended(q: Any, p: Any, *rest: Any) -> Any:
            new = zip(still(act)(q, p, *rest), (q, p), strict=True)
            return tuple(jnp.append(x.ravel(), old[dim]) for x, old in new)

        return on_extended

    flow = system.flow and replace(
        system.flow,
        map=moved(system.flow.map),
        keeps={k: still(fun) for k, fun in system.flow.keeps.items()},
        after=system.flow.after and moved(system.flow.after),
    )
    return _made_of(
        system,
        scalar,
        force,
        H=energy,
        dim=(dim + 1,),
        name=f"{system.name}, extended by time",
        invariants={name: scalar(fun) for name, fun in system.invariants.items()},
        constraints=system.constraints and bound,
        flow=flow,
    )


def of_extended(system: Any, fun: Any) -> Any:
    """A function of (q, p, t) of a driven system as one of states of the extended system."""
    dim, shape = int(system.dim), system.shape
    return lambda q, p, *rest: fun(q[:dim].reshape(shape), p[:dim].reshape(shape), q[dim], *rest)


def _made_of(system: Any, scalar: Any, force: Any, **more: Any) -> Any:
    """The system without time of other functions, which are made from those of a driven one."""

    def all_of(make: Any, terms: Any) -> Any:
        if isinstance(terms, Joint):
            return terms.fun and make(terms.fun)
        return [fun and make(fun) for fun in terms]

    given = {
        "H": scalar(system.H),
        "F": system.F and force(system.F),
        "h": all_of(scalar, system.h),
        "f": all_of(force, system.f),
        "params": system.params,
        "noises": None if system.flow else system.noise_shape,
        "check": system.check,
    }
    return type(system)(**given | more)
