"""Paths that stop where a function of their state changes sign.

The state of such a path is that before its last step, that after it, the number of its steps,
negative once it has stopped, and the value of the function:

    q = (q before, q, ±steps),   p = (p before, p, value)

so that nothing but the sign is looked at in a step. Where between both states the sign changes is
found when the path is observed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from dalembert.caches import bounded, kept
from dalembert.captured import Keyed
from dalembert.driven import Timed
from dalembert.noise import Increments
from dalembert.stepping.derived import (
    DerivedMethod,
    DerivedStepper,
    DerivedSystem,
    Function,
    derived_system,
)
from dalembert.stepping.event import start_value, stops
from dalembert.stepping.expressions import components, vector
from dalembert.stepping.scalarise import NotScalarError, scalarise
from dalembert.stepping.stepper import StepInfo, Stepper, make_stepper
from dalembert.system import System

HALVINGS = 54
"""Of the step in which the sign changes: its length to rounding."""


@kept
def stopping_system(system: System) -> DerivedSystem:
    """The system whose states are those of paths that stop."""
    dim = int(system.dim)

    def now(x: Any) -> Any:
        return system.shaped(x[dim : 2 * dim])

    def scalar(fun: Function) -> Function:
        return lambda q, p, *rest: fun(now(q), now(p), *rest)

    def along(fun: Function) -> Function:
        def force(q: Any, p: Any, *rest: Any) -> Any:
            found = jnp.asarray(fun(now(q), now(p), *rest)).reshape(dim)
            return jnp.concatenate([jnp.zeros_like(found), found, jnp.zeros_like(found[:1])])

        return force

    return derived_system(system, 2 * dim + 1, scalar, along)


@dataclass(frozen=True)
class StoppingMethod(DerivedMethod):
    """Steps of a method until an event; `event` is a function of the state and its key."""

    event: Keyed
    direction: str = "both"

    family: ClassVar[str] = "paths that stop"

    def functions(self) -> dict[str, Function]:
        return {"stop": self.event.value}

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.direction == "both" else {"direction": self.direction}

    def stepper(self, one: Stepper, system: System) -> DerivedStepper:
        try:
            event = _event_on(one, self.event.value)
        except NotScalarError as error:
            arrays = make_stepper(one.system, self.of, one.dtype, most=0)
            one = replace(arrays, notice=f"no straight-line form for stop: {error}")
            event = _event_on(one, self.event.value)
        return StoppingStepper(one, system, self, event, self.direction)


def _event_on(one: Stepper, event: Function) -> Callable[..., Any]:
    """The event for states that have been entered."""

    def of_flat(q: Any, p: Any, told: Any) -> Any:
        return jnp.asarray(one.system.evaluate(event, q, p, told), q.dtype)

    if not one.is_scalar:
        return of_flat
    z = jax.ShapeDtypeStruct((one.system.dim,), one.dtype)
    program = scalarise(of_flat, *one.system.term_like(("H_p", 0), z))

    def of_scalars(q: Any, p: Any, told: Any) -> Any:
        return program(vector(q), vector(p), jax.tree.map(components, told))[()]

    return of_scalars


@dataclass(frozen=True, eq=False)
class StoppingStepper(DerivedStepper):
    """A stepper of paths that stop, made of the stepper of those that do not."""

    event: Callable[..., Any]
    direction: str

    sees_states: ClassVar[bool] = False

    def advance(
        self, q: Any, p: Any, dt: Any, increments: Increments, params: Any, *how: Any
    ) -> tuple[Any, Any, StepInfo]:
        """One step of one path, if it has not stopped, for states that have been entered."""
        dim = self.one.system.dim
        now, one = self._now(q, p), self.one
        steps, value = self.split(q)[0][2 * dim], self.split(p)[0][2 * dim]
        new_q, new_p, info = one.advance(*now, dt, increments, params, *how)
        t, place = one.now(new_q, new_p, dt), (one.split(new_q)[0], one.split(new_p)[0])
        new = self.event(*place, params if t is None else Timed(t, params))
        count = jnp.where(stops(self.direction, value, new), -(steps + 1), steps + 1)
        has_stopped = steps < 0
        after = self._joined(now[0], new_q, count), self._joined(now[1], new_p, new)
        q, p = jax.tree.map(partial(jnp.where, has_stopped), (q, p), after)
        counts = (
            jnp.where(has_stopped, jnp.zeros_like(x), x) for x in (info.iterations, info.residual)
        )
        return q, p, StepInfo(has_stopped | info.converged, *counts)

    def seen(self, q: Any, p: Any, dt: Any, params: Any) -> tuple[Any, Any]:
        """Paths at the places where they are or have stopped."""
        event = self.method.event.value  # pyright: ignore[reportAttributeAccessIssue]
        place = partial(located, self.one.system, event, dt)
        return jax.vmap(lambda q, p: place(q, p, params))(q, p)

    def terms_at(self, q: Any, p: Any, dt: Any, params: Any) -> Any:
        return self.one.terms_at(*self._now(q, p), dt, params)

    def _now(self, q: Any, p: Any) -> tuple[Any, Any]:
        """The path itself."""
        dim, (q, start), (p, steps) = self.one.system.dim, self.split(q), self.split(p)
        return self.one.append(q[dim:-1], start), self.one.append(p[dim:-1], steps)

    def _joined(self, before: Any, now: Any, last: Any) -> Any:
        (before, _), (now, clock) = map(self.one.split, (before, now))
        if self.is_scalar:
            return self.append((*before, *now, last), clock)
        return self.append(jnp.concatenate([before, now, last[None]]), clock)


def started(
    system: System, event: Function, direction: str, dt: float, eps: float, q: Any, p: Any
) -> tuple[Any, Any]:
    """The state of a path that begins, from states in the shape of the system."""
    q, p = (jnp.ravel(jnp.asarray(x)) for x in (q, p))
    last = start_value(system, event, direction, dt, eps, q, p).reshape(1)
    return jnp.concatenate([q, q, jnp.zeros_like(q[:1])]), jnp.concatenate([p, p, last])


def located(system: System, event: Function, dt: Any, q: Any, p: Any, params: Any) -> Any:
    """The state of a path that stops with its place in the place of the last state.

    That is where it is, or where the sign has changed, if it has; steps then have a fraction.
    Between the states before and after the last step z(θ) = z₀ + θΔ + θ(1 − θ)[(1 − θ)a − θb] with
    Δ = z₁ − z₀, a = h f(z₀) − Δ and b = h f(z₁) − Δ for the drift f: Hermite's cubic. Noise has no
    derivative: of what it adds to Δ nothing is known but its sum, which is taken to grow evenly, so
    that a and b become ±(a − b)/2.
    """
    dim = int(system.dim)
    before, now = (jnp.concatenate([q[i : i + dim], p[i : i + dim]]) for i in (0, dim))
    begin = (jnp.abs(q[-1]) - 1) * dt

    def told(share: Any) -> Any:
        return Timed(begin + share * dt, params) if system.time else params

    drifts = (
        jnp.concatenate(system._drift(z[:dim], z[dim:], told(share)))
        for share, z in enumerate((before, now))
    )
    change = now - before
    a, b = (dt * drift - change for drift in drifts)
    if system.noises:
        a, b = (a - b) / 2, (b - a) / 2

    def at(share: Any) -> Any:
        bent = (1 - share) * a - share * b
        return before + share * change + share * (1 - share) * bent

    def value(z: Any, share: Any) -> Any:
        return system.evaluate(event, z[:dim], z[dim:], told(share))

    begins = jnp.sign(value(before, 0))

    def halve(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = ends
        middle = (low + high) / 2
        is_before = jnp.sign(value(at(middle), middle)) == begins
        return jnp.where(is_before, middle, low), jnp.where(is_before, high, middle)

    _, share = lax.fori_loop(0, HALVINGS, halve, (jnp.zeros_like(q[0]), jnp.ones_like(q[0])))
    has_stopped = q[-1] < 0
    z = jnp.where(has_stopped, at(share), now)
    steps = jnp.where(has_stopped, q[-1] + 1 - share, q[-1])
    return (
        jnp.concatenate([q[:dim], z[:dim], steps[None]]),
        jnp.concatenate([p[:dim], z[dim:], p[-1:]]),
    )


# Compiled code is found again by the identity of functions: equal arguments give the same ones.
@bounded(256)
def at_place(system: System, fun: Function, dt: float | None = None) -> Function:
    """A function of the place of a path, as one of the state of a path that stops.

    With the step size of a driven system, whose paths have their time where they have stopped.
    """
    dim = int(system.dim)

    def of_state(q: Any, p: Any, *rest: Any) -> Any:
        place = (system.shaped(x[dim : 2 * dim]) for x in (q, p))
        if dt is not None:
            t = jnp.where(q[-1] < 0, -q[-1] * jnp.asarray(dt, q.dtype), rest[0])
            rest = (t, *rest[1:])
        return fun(*place, *rest)

    return of_state


def stopped_after(q: Any, p: Any, *params: Any) -> Any:
    """Steps after which a path has stopped, −1 if it has not."""
    return jnp.where(q[-1] < 0, -q[-1], -jnp.ones_like(q[-1]))


def side(q: Any, p: Any, *params: Any) -> Any:
    """The sign of the event: at the start of a path, the side from which it comes."""
    return jnp.sign(p[-1])
