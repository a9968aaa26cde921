"""Stochastic forced Hamiltonian systems.

    dq = H_p dt + Σ h_i,p ∘ dW_i
    dp = (−H_q + F) dt + Σ (−h_i,q + f_i) ∘ dW_i

A `System` holds the functions and derives the rest by automatic differentiation.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import Kept, shared
from dalembert.captured import Keyed, captured
from dalembert.digest import ORDERS, traced_key
from dalembert.dependence import Degree
from dalembert.driven import Timed, at_time, degree_in_time, extended, refusal, time_of
from dalembert.flow import Flow
from dalembert.functions import check_function, check_linear
from dalembert.joint import Joint, joint_terms
from dalembert.precision import array_of_shape, is_traced, with_precision

__all__ = ["ALL", "System", "Term"]

ALL = -1
"""The number of all noises together, whose terms are functions of (q, p, params, w)."""

Bracket = tuple[Any, Any]
"""[A, B] = DB·A − DA·B of two fields: 0 is the drift, r noise number r, or brackets again."""

Term = tuple[str, int | Bracket] | tuple[str, int | Bracket, float]
"""One term of the equations: a kind (H_p, H_q, F, h_p, h_q, f) and the noise it belongs to, or the
position or momentum part (bracket_q, bracket_p) of a bracket of fields. In the rows of a driven
system also the time at which it is taken, as a part of the step."""

DRIFT_TERMS = ("H_p", "H_q", "F")
NOISE_TERMS = ("h_p", "h_q", "f")
BRACKET_TERMS = ("bracket_q", "bracket_p")


@dataclass(frozen=True, eq=False, repr=False)
class System:
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
    _backwards: frozenset[str] = field(init=False, default=frozenset())
    _kept: Any = field(init=False, default_factory=Kept)
    #: The number c of constraints, 0 if there are none.
    constraint_count: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        hint = " It has to be given, e.g. dim=1." if np.array_equal(self.dim, 0) else ""
        self._set("dim", _size("dim", "degrees of freedom", self.dim, hint))
        is_copy = isinstance(self.h, tuple) and self.noises == len(self.h)
        if self.flow is not None:
            size = self._size_of_flow()
            self._set("noises", size)
            h = f = Joint(None, size.shape)
        elif self.noises is None or is_copy:
            h, f = _noise_lists(self.h, self.f)
            self._set("noises", len(h))
        else:
            size = _size("noises", "Wiener processes", self.noises)
            self._set("noises", size)
            h, f = joint_terms(self.h, self.f, size.shape, self.time)
        self._set("h", h)
        self._set("f", f)
        self._set("invariants", _by_name(self.invariants))
        if not isinstance(self.time, bool):
            raise TypeError(f"time must be True or False, not {self.time!r}.")
        self._set("_backwards", frozenset(self._checked()))
        self._set("constraint_count", self._checked_constraints())

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

    def _checked(self) -> list[str]:
        """The names of functions with rules for reverse mode; anything wrong is an error."""
        scalars = {"H": self.H} | {f"invariants[{k!r}]": fun for k, fun in self.invariants.items()}
        vectors = {"F": self.F}
        if self.noise_shape is None:
            scalars |= {f"h[{i}]": h_i for i, h_i in enumerate(self.h)}
            vectors |= {f"f[{i}]": f_i for i, f_i in enumerate(self.f)}
        found = {
            name: check_function(name, fun, self.shape, self.params, shape, time=self.time)
            for shape, functions in (((), scalars), (self.shape, vectors))
            for name, fun in functions.items()
            if fun is not None or name == "H"
        }
        if self.noise_shape is not None:
            for name, terms, shape in (("h", self.h, ()), ("f", self.f, self.shape)):
                if terms.fun is not None:
                    like = self.shape, self.params, shape, self.noise_shape, self.time
                    found[name] = check_function(name, terms.fun, *like)
                    check_linear(name, terms.fun, *like[:2], *like[3:])
        reads = [c.reads_time for name, c in found.items() if not name.startswith("invariants")]
        if self.time and not any(reads):
            raise ValueError(
                f"time=True, but none of the functions of {self.name!r} depends on t: leave "
                "time=True and the argument t out, or use t."
            )
        return [name for name, checked in found.items() if checked.has_rules]

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
    def key(self) -> tuple[Any, ...]:
        """What a compiled step depends on: functions and what they read, not the parameters."""
        functions = (self.H, self.F, self.constraints)
        functions += (self.h.fun, self.f.fun) if self.is_joint else (*self.h, *self.f)
        functions += () if self.flow is None else (self.flow.map,)
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
        if self.flow is not None and fun is self.flow.map:
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

    def term(self, term: Term) -> Callable[..., Any] | None:
        """One term of the equations as a function of (q, p, params), or None if it is zero.

        States are flat here. The term of noise number ALL is a function of (q, p, params, w). A
        driven system's is told `Timed(t, params)` instead of params.
        """
        if self.flow is not None:
            raise ValueError(
                f"{self.name!r} has a flow, {self.flow.name!r}, which is a map and no field: what "
                "needs equations can be asked for system.fields, the system without it."
            )
        kind, i, *_ = term
        if kind in BRACKET_TERMS:
            part = BRACKET_TERMS.index(kind)
            return lambda q, p, params: self._bracket_or_field(i, q, p, params)[part]
        assert isinstance(i, int), "only brackets have more than one number"
        source = self._source(kind, i)
        if source is None:
            return None
        is_vector = kind in ("F", "f")

        def call(q: Any, p: Any, params: Any, *w: Any) -> Any:
            value = jnp.asarray(self.evaluate(source, q, p, params, *w), q.dtype)
            return value.reshape(q.shape) if is_vector else value

        if is_vector:
            return call
        name = "H" if kind in DRIFT_TERMS else "h" if self.is_joint else f"h[{i}]"
        gradient = _gradient_by_both if name in self._backwards else jax.grad
        if kind in ("H_p", "h_p"):
            return gradient(call, argnums=1)
        return lambda *args: -gradient(call, argnums=0)(*args)

    def term_like(self, term: Term, z: Any) -> tuple[Any, ...]:
        """The types of what a term is called with, for states of a type."""
        w = (jax.ShapeDtypeStruct((self.noises,), z.dtype),) if term[1] == ALL else ()
        t = jax.ShapeDtypeStruct((), z.dtype)
        return z, z, Timed(t, self.params) if self.time else self.params, *w

    @property
    def noise_numbers(self) -> Sequence[int]:
        """The numbers by which terms of the noises are known."""
        return (ALL,) if self.is_joint else range(self.noises)

    def _source(self, kind: str, i: int) -> Callable[..., Any] | None:
        """The function that a term is made of."""
        if kind in DRIFT_TERMS:
            return self.F if kind == "F" else self.H
        terms = self.f if kind == "f" else self.h
        if i == ALL:
            return terms.fun
        return terms[i] if len(terms) else None

    def drift(self, q: Any, p: Any, t: Any = None) -> tuple[Any, Any]:
        """The Stratonovich drift (H_p, −H_q + F), each of the shape of q."""
        dq, dp = self._at(self._drift, q, p, t)
        return self.shaped(dq), self.shaped(dp)

    def diffusion(self, q: Any, p: Any, t: Any = None) -> tuple[Any, Any]:
        """The noise fields (h_i,p) and (−h_i,q + f_i), each of shape (noises, dim)."""
        return self._at(self._diffusion, q, p, t)

    def ito(self, q: Any, p: Any, t: Any = None) -> tuple[Any, Any]:
        """Itô drift A(z) of shape (2·dim,) and diffusion B(z) of shape (2·dim, noises).

        A = V₀ + ½ Σ DV_i·V_i with the Stratonovich fields V; written out, its momentum row is
        the paper's with (h_qp − f_p)(h_q − f) in place of the printed (h_qp − f_p)(h_p − f).
        """
        return self._at(self._ito, q, p, t)

    def gamma(self, q: Any, p: Any, t: Any = None) -> Any:
        """Γ_ij, the position part of DV_j·V_i, of shape (noises, noises, dim)."""
        return self._at(self._second, q, p, t)[0]

    def lam(self, q: Any, p: Any, t: Any = None) -> Any:
        """Λ_ij, the momentum part of DV_j·V_i, of shape (noises, noises, dim)."""
        return self._at(self._second, q, p, t)[1]

    def _at(self, fun: Callable[..., Any], q: Any, p: Any, t: Any) -> Any:
        q, p = self.flat("q", q), self.flat("p", p)
        return with_precision(fun, q, p, self.told(t, self.params))

    def _drift(self, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        return self._field(DRIFT_TERMS, 0, q, p, params)

    def _field(self, kinds: Sequence[str], i: int, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        q, p = jnp.asarray(q), jnp.asarray(p)
        velocity, *forces = (self.term((kind, i)) for kind in kinds)
        dq = jnp.zeros_like(q) if velocity is None else velocity(q, p, params)
        dp = sum((force(q, p, params) for force in forces if force), jnp.zeros_like(p))
        return dq, dp

    def _bracket_or_field(self, which: Any, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        """The field of number `which`, drift first, or a bracket of two of them."""
        if isinstance(which, int):
            kinds, number = (NOISE_TERMS, which - 1) if which else (DRIFT_TERMS, 0)
            return self._field(kinds, number, q, p, params)

        def field(which: Any) -> Callable[..., tuple[Any, Any]]:
            return lambda q, p, *t: self._bracket_or_field(
                which, q, p, params._replace(t=t[0]) if t else params
            )

        def speed(which: Any) -> tuple[Any, ...]:
            return (jnp.asarray(float(which == 0), q.dtype),) if self.time else ()

        at = (q, p, jnp.asarray(params.t, q.dtype)) if self.time else (q, p)
        a, b = map(field, which)
        along_a = jax.jvp(b, at, (*a(*at), *speed(which[0])))[1]
        along_b = jax.jvp(a, at, (*b(*at), *speed(which[1])))[1]
        return along_a[0] - along_b[0], along_a[1] - along_b[1]

    def _diffusion(self, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        fields = [self._field(NOISE_TERMS, i, q, p, params) for i in range(self.noises)]
        empty = jnp.zeros((0, self.dim), jnp.asarray(q).dtype)
        return (
            jnp.stack([dq for dq, _ in fields]) if fields else empty,
            jnp.stack([dp for _, dp in fields]) if fields else empty,
        )

    def _second(self, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        q, p = jnp.asarray(q), jnp.asarray(p)
        dq, dp = self._diffusion(q, p, params)

        def along(v_q: Any, v_p: Any) -> Any:
            return jax.jvp(lambda q, p: self._diffusion(q, p, params), (q, p), (v_q, v_p))[1]

        if self.noises == 0:
            empty = jnp.zeros((0, 0, self.dim), q.dtype)
            return empty, empty
        return jax.vmap(along)(dq, dp)

    def _ito(self, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        dq, dp = self._drift(q, p, params)
        noise_q, noise_p = self._diffusion(q, p, params)
        gamma, lam = self._second(q, p, params)
        correction = jnp.concatenate([jnp.einsum("iik->k", gamma), jnp.einsum("iik->k", lam)])
        drift = jnp.concatenate([dq, dp]) + correction / 2
        return drift, jnp.concatenate([noise_q, noise_p], axis=1).T


def _gradient_by_both(fun: Callable[..., Any], argnums: int) -> Callable[..., Any]:
    """The gradient with respect to q (0) or p (1) as a part of that with respect to both.

    Where a rule by `jax.custom_vjp` is not used, for what is not differentiated, the function
    itself stays in the trace, and no derivative can be taken forwards.
    """
    return lambda *args: jax.grad(fun, argnums=(0, 1))(*args)[argnums]


def _noise_lists(h: Any, f: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """h and f as tuples of one length; a missing list means that all its entries are zero."""
    for name, given in (("h", h), ("f", f)):
        if given is not None and not isinstance(given, list | tuple):
            hint = f"write {name}=[{name}]" if callable(given) else f"not {given!r}"
            raise TypeError(f"{name} must be a list, one function per Wiener process: {hint}.")
    count = len(h if h is not None else f if f is not None else ())
    h = (None,) * count if h is None else tuple(h)
    f = (None,) * count if f is None else tuple(f)
    if len(h) != len(f):
        raise ValueError(
            f"h has {len(h)} entries and f has {len(f)}: both need one entry per Wiener process. "
            "Use None for a term that is zero, or leave the whole list out."
        )
    return h, f


class Size(int):
    """A number of entries that remembers the shape of the array that they form."""

    shape: tuple[int, ...]

    def __new__(cls, shape: tuple[int, ...]) -> "Size":
        size = super().__new__(cls, prod(shape))
        size.shape = shape
        return size

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.shape,)


def _size(name: str, what: str, given: Any, hint: str = "") -> Size:
    """A positive integer, or a shape of several."""
    if isinstance(given, Size):
        return given
    shape = tuple(given) if isinstance(given, list | tuple) else (given,)
    is_fine = [isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in shape]
    if not shape or not all(is_fine):
        raise ValueError(
            f"{name} must be a positive integer ({what}), or a shape of such, not {given!r}.{hint}"
        )
    return Size(tuple(map(int, shape)))


def _by_name(invariants: Any) -> dict[str, Any]:
    if not isinstance(invariants, Mapping | None):
        raise TypeError(
            'invariants must be a dictionary of functions, e.g. {"energy": H}, '
            f"not {type(invariants).__name__}."
        )
    return dict(invariants or {})
