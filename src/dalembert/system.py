"""Stochastic forced Hamiltonian systems.

    dq = H_p dt + Σ h_i,p ∘ dW_i
    dp = (−H_q + F) dt + Σ (−h_i,q + f_i) ∘ dW_i

A `System` holds the functions and derives the rest by automatic differentiation.
"""

from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import Kept, shared
from dalembert.captured import Keyed, captured
from dalembert.dependence import Degree
from dalembert.digest import ORDERS, traced_key
from dalembert.driven import Timed, at_time, degree_in_time, extended, is_driven, refusal, time_of
from dalembert.fields import ALL, BRACKET_TERMS, DRIFT_TERMS, NOISE_TERMS, Bracket, Fields, Term
from dalembert.flow import Flow
from dalembert.functions import Checked, check_function, check_linear
from dalembert.joint import Joint, joint_terms
from dalembert.precision import array_of_shape, is_traced
from dalembert.sizes import Size, functions_by_name, noise_lists, size_of
from dalembert.spelling import says_its_words

__all__ = ["ALL", "BRACKET_TERMS", "DRIFT_TERMS", "NOISE_TERMS", "Bracket", "System", "Term"]


@says_its_words
@dataclass(frozen=True, eq=False, repr=False)
class System(Fields):
    """A stochastic forced Hamiltonian system in `dim` degrees of freedom.

    Args:
        H: Hamiltonian, `H(q, p) -> scalar`.
        F: force, `F(q, p) -> like q`; None means zero.
        h: noise Hamiltonians, one per Wiener process, each `(q, p) -> scalar` or None; with
            `noises` one function `h(q, p, w) -> scalar` for all of them, Σ h_i(q, p) w_i.
        f: noise forces, one per Wiener process, each `(q, p) -> like q` or None; with `noises` one
            function `f(q, p, w) -> like q`, Σ f_i(q, p) w_i.
        dim: number of degrees of freedom, or the shape of `q` and `p`, such as (N, 3) for N
            particles; it has to be given. Afterwards the number, and `shape` the shape.
        params: numbers or arrays in any nesting. If given, every function takes them as its last
            argument, `(q, p, params)`, and derivatives with respect to them can be taken.
        name: what the system is called in tables and files.
        invariants: functions that are constant along every path, by name.
        noises: number of Wiener processes, or the shape of w, if `h` and `f` are single functions,
            linear in w. Afterwards the number, and `noise_shape` the shape.
        constraints: `g(q) -> (c,)` if positions are bound to g(q) = 0, and velocities to be
            tangent to that; `da.constraints` has ready-made ones. Only methods that are made for
            constraints take such a system.
        flow: a part of the motion that is given as a map, a `da.Flow` such as collisions; all
            noises are its own then.
        time: if True, the system is driven in time: every function takes the time after q and p,
            `(q, p, t)`, then w and params as far as there are any. One of them must read it.
        check: a function of params that raises an error where they are out of range. It is called
            when the system is made, and by `with_params`; values may be traced by JAX.
        periods: a function of params that gives the lengths of a periodic box, an array that goes
            with q, 0 where positions do not repeat. Pictures take positions into the box.

    The functions are written with `jax.numpy`. Everything is checked on construction.
    """

    H: Callable[..., Any]
    F: Callable[..., Any] | None = None
    h: Any = None
    f: Any = None
    dim: Any = 0
    params: Any = None
    name: str = "system"
    invariants: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    noises: Any = None
    constraints: Callable[..., Any] | None = None
    flow: Flow | None = None
    time: bool = False
    check: Callable[[Any], None] | None = None
    periods: Callable[[Any], Any] | None = None
    _backwards: frozenset[str] = field(init=False, default=frozenset())
    _forgetful: frozenset[str] = field(init=False, default=frozenset())
    _kept: Any = field(init=False, default_factory=Kept)
    #: The number c of constraints, 0 if there are none.
    constraint_count: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        hint = " It has to be given, e.g. dim=1." if np.array_equal(self.dim, 0) else ""
        self._set("dim", size_of("dim", "degrees of freedom", self.dim, hint))
        self._check_params()
        is_copy = isinstance(self.h, tuple) and self.noises == len(self.h)
        if self.flow is not None:
            size = self._size_of_flow()
            self._set("noises", size)
            h = f = Joint(None, size.shape)
        elif self.noises is None or is_copy:
            h, f = noise_lists(self.h, self.f)
            self._set("noises", len(h))
        else:
            size = size_of("noises", "Wiener processes", self.noises)
            self._set("noises", size)
            h, f = joint_terms(self.h, self.f, size.shape, self.time)
        self._set("h", h)
        self._set("f", f)
        self._set("invariants", functions_by_name(self.invariants))
        if not isinstance(self.time, bool):
            raise TypeError(f"time must be True or False, not {self.time!r}.")
        checked = self._checked()
        self._set("_backwards", frozenset(k for k, found in checked.items() if found.has_rules))
        self._set("_forgetful", frozenset(k for k, found in checked.items() if found.forgets))
        self._set("constraint_count", self._checked_constraints())
        if self.time and not is_driven(self.fields):
            raise ValueError(
                f"time=True, but no velocity, force or noise of {self.name!r} depends on t: what H "
                "and h have of t stands apart from q and p, and moves nothing. Leave time=True and "
                "t out, or multiply what depends on t by a function of q or p."
            )

    def _check_params(self) -> None:
        if self.periods is not None and not callable(self.periods):
            raise TypeError(f"periods must be a function of params, not {self.periods!r}.")
        if self.check is not None:
            if not callable(self.check):
                raise TypeError(f"check must be a function of params, not {self.check!r}.")
            self.check(self.params)
        if not is_traced(self.params):
            self.box()

    def box(self) -> np.ndarray | None:
        """The periods of positions, which go with q by broadcasting; None if there are none."""
        if self.periods is None:
            return None
        lengths = np.asarray(self.periods(self.params), np.float64)
        try:
            np.broadcast_to(lengths, self.shape)
        except ValueError:
            raise ValueError(
                f"periods has shape {lengths.shape}, which does not go with q of shape "
                f"{self.shape}."
            ) from None
        if not np.all(np.isfinite(lengths) & (lengths >= 0)):
            raise ValueError("periods must be lengths, or 0 where positions do not repeat.")
        return lengths

    def _size_of_flow(self) -> "Size":
        """The noises of the flow, which must be the only ones."""
        if not isinstance(self.flow, Flow):
            raise TypeError(f"flow must be a da.Flow, not {self.flow!r}.")
        if self.constraints is not None:
            raise ValueError(
                f"the flow {self.flow.name!r} would leave the manifold of the constraints: a "
                "system has a flow or constraints."
            )
        is_copy = isinstance(self.h, Joint) and self.h == self.f == Joint(None, self.flow.noises)
        if not is_copy and not (self.h is None and self.f is None and self.noises is None):
            raise ValueError(
                f"a system with a flow, here {self.flow.name!r}, has no other noise: leave h, f "
                "and noises out."
            )
        self.flow.check(self.shape, self.params)
        return Size(self.flow.noises)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _checked(self) -> dict[str, Checked]:
        """What is found of all functions, by name; anything wrong is an error."""
        invariants = {f"invariants[{k!r}]": fun for k, fun in self.invariants.items()}
        found = {}
        for name, fun in {"H": self.H, **invariants, **self.functions}.items():
            if fun is None and name != "H":
                continue
            shape = self.shape if name[0] in "Ff" else ()
            noises = self.noise_shape if name in ("h", "f") else None
            like = self.shape, self.params
            found[name] = check_function(name, fun, *like, shape, noises, self.time)
            if noises:
                check_linear(name, fun, *like, noises, self.time)
        reads = [c.reads_time for name, c in found.items() if name not in invariants]
        if self.time and not any(reads):
            raise ValueError(
                f"time=True, but none of the functions of {self.name!r} depends on t: leave "
                "time=True and the argument t out, or use t."
            )
        return found

    def _checked_constraints(self) -> int:
        if self.constraints is None:
            return 0
        like = self.shape, self.params, None
        found = check_function("constraints", self.constraints, *like, states_read=("q",)).shape
        if len(found) != 1 or not 0 < found[0] < self.dim:
            raise ValueError(
                f"constraints must return shape (c,), one number each, fewer than the {self.dim} "
                f"degrees of freedom; it returns shape {found}. Of one constraint write "
                "jnp.stack([...])."
            )
        with jax.enable_x64(True):
            z = jax.ShapeDtypeStruct((self.dim,), np.float64)
            if self.time and degree_in_time(self, ("H_p", 0), z) > Degree.CONSTANT:
                raise ValueError(
                    f"∂H/∂p of {self.name!r} depends on t, and with it which momenta are tangent "
                    "to the constraints: those need a kinetic energy that is the same at all times."
                )
        return found[0]

    def constraint(self, q: Any, params: Any) -> Any:
        """g, shape (c,), at flat positions."""
        assert self.constraints is not None, "asked only of systems that have them"
        given = (self.shaped(q),) if self.params is None else (self.shaped(q), params)
        return jnp.asarray(self.constraints(*given), q.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of q and p, as users see them."""
        return self.dim.shape

    @property
    def noise_shape(self) -> tuple[int, ...] | None:
        """The shape of w if all noises are given by one function, else None."""
        return self.noises.shape if isinstance(self.noises, Size) else None

    @property
    def is_joint(self) -> bool:
        """Whether all noises are given by one function."""
        return self.noise_shape is not None

    @property
    def functions(self) -> dict[str, Any]:
        """H, F, h and f by name, None where they are zero: of every noise, or of all together."""
        named = {"H": self.H, "F": self.F}
        if self.is_joint:
            return named | {"h": self.h.fun, "f": self.f.fun}
        noises = (("h", self.h), ("f", self.f))
        return named | {f"{x}[{i}]": fun for x, all_ in noises for i, fun in enumerate(all_)}

    @property
    def key(self) -> tuple[Any, ...]:
        """What a compiled step depends on: functions and what they read, not the parameters."""
        functions = (*self.functions.values(), self.constraints)
        functions += () if self.flow is None else self.flow.maps
        keys = (self.known(fun).key for fun in functions)
        return (*keys, self.shape, self.noise_shape, self.params is not None, self.time)

    def known(self, fun: Any) -> Keyed:
        """A function of (q, p), or (q, p, params), and what it is known by."""
        return Keyed(fun, captured(fun, partial(self.retraced, fun)))

    @property
    def shared(self) -> "System":
        """The system, without parameters, that stands for all with these functions as they are now.

        On it hangs what serves them all, such as compiled steps.
        """
        return shared(self, self.key, lambda: self.typed(None if self.params is None else ()))

    def typed(self, params: Any) -> "System":
        """The system with types in place of parameters; it has been checked, so not again."""
        typed = copy(self)
        object.__setattr__(typed, "params", params)
        object.__setattr__(typed, "check", None)
        object.__setattr__(typed, "_kept", Kept())
        return typed

    @property
    def fields(self) -> "System":
        """The system without its flow: what is given by fields; itself if it has none."""
        if self.flow is None:
            return self
        alone = self.typed(self.params)
        for name, value in (("flow", None), ("h", ()), ("f", ()), ("noises", 0)):
            alone._set(name, value)
        return alone

    def retraced(self, fun: Any) -> Hashable:
        """What a function of (q, p), or (q, p, params), is known by if what it reads is hidden."""
        z = jax.ShapeDtypeStruct(self.shape, np.float64)
        time = [jax.ShapeDtypeStruct((), np.float64)] if self.time else []
        like = [z] if fun is self.constraints else [z, z, *time]
        if self.is_joint and fun in (self.h.fun, self.f.fun):
            like.append(jax.ShapeDtypeStruct(self.noise_shape, np.float64))
        if self.params is not None:
            like.append(self.params)
        if self.flow is not None and fun in self.flow.maps:
            like = list(self.flow.arguments(z, self.params))
        with jax.enable_x64(True):
            return traced_key(fun, *like, orders=ORDERS)

    def __repr__(self) -> str:
        dim = self.dim if len(self.shape) == 1 else self.shape
        text = f"System {self.name!r}: dim={dim}, noises={self.noises}"
        text += f", constraints={self.constraint_count}" if self.constraint_count else ""
        text += ", driven in time" if self.time else ""
        return text if self.params is None else f"{text}, params={self.params}"

    def with_params(self, params: Any = None, **changes: Any) -> "System":
        """The same system with other parameters, e.g. `system.with_params(nu=0.1)`."""
        if params is None:
            params = self._changed(changes)
        are_named = isinstance(self.params, Mapping) and isinstance(params, Mapping)
        if are_named and (missing := sorted(set(self.params) - set(params))):
            raise ValueError(
                f"params must be all of {sorted(self.params)}, and {missing} are missing: to "
                f"change some write system.with_params({next(iter(params), missing[0])}=…)."
            )
        other = replace(self, params=params)
        other._kept.shared = self._kept.shared
        return other

    def _changed(self, changes: Mapping[str, Any]) -> Any:
        if not isinstance(self.params, Mapping):
            raise TypeError(
                f"{self.name!r} has no named parameters; pass the whole of `params` instead."
            )
        unknown = sorted(set(changes) - set(self.params))
        if unknown:
            raise ValueError(
                f"{self.name!r} has no parameter {unknown}; it has {sorted(self.params)}."
            )
        return {**self.params, **changes}

    def evaluate(self, fun: Callable[..., Any], q: Any, p: Any, params: Any, *w: Any) -> Any:
        """Call a user's function, of flat states, with arguments in the shapes that it expects."""
        given = [self.shaped(q), self.shaped(p)]
        if self.time:
            if not isinstance(params, Timed):
                raise refusal(self)
            t, params = params
            given.append(jnp.asarray(t, q.dtype))
        given += [x.reshape(self.noise_shape) for x in w]
        return fun(*given) if self.params is None else fun(*given, params)

    def told(self, t: Any, params: Any) -> Any:
        """What terms are told besides q and p: the parameters, and the time if there is one."""
        t = time_of(self, t)
        return Timed(t, params) if self.time else params

    def begin(self, q: Any, p: Any, t: Any = 0.0) -> tuple[Any, Any]:
        """Flat states as steps take them.

        Those of a driven system have one more entry: that of q is the time when the path began,
        that of p the number of its steps. So the time of a step has no rounding of many sums.
        """
        if not self.time:
            return q, p
        # Known numbers stay NumPy's: outside of a run JAX would round them.
        known = isinstance(q, np.ndarray) and isinstance(p, np.ndarray) and not is_traced(t)
        on = np if known else jnp
        ends = (on.full((*x.shape[:-1], 1), last, x.dtype) for x, last in ((q, t), (p, 0)))
        q, p = (on.concatenate([x, end], axis=-1) for x, end in zip((q, p), ends, strict=True))
        return q, p

    @property
    def entries(self) -> int:
        """How many numbers there are in q, and in p, as steps take them."""
        return int(self.dim) + self.time

    def at(self, t: Any) -> "System":
        """A driven system as it is at one time: a system without time."""
        return at_time(self, t)

    def extended(self) -> "System":
        """A driven system as one without time, in which time is the last position.

        Its momentum is minus the energy that the drive has put in. `da.diagnose` and all functions
        of `da.theory` take it, with states of shape (dim + 1,).
        """
        return extended(self)

    def flat(self, name: str, x: Any) -> Any:
        """A state in the shape that users see as a flat one, (dim,), or an error."""
        return array_of_shape(name, x, self.shape).reshape(self.dim)

    def shaped(self, x: Any) -> Any:
        """Flat states, shape (..., dim), in the shape that users see."""
        if x.shape[-1] > self.dim:
            x = x[..., : self.dim]
        return x if len(self.shape) == 1 else x.reshape(*x.shape[:-1], *self.shape)
