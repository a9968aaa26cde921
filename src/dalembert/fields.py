"""The fields of a system: terms of its equations, derived from its functions by JAX."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dalembert.driven import Timed
from dalembert.kept_rules import with_kept_rules
from dalembert.precision import with_precision

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


class Fields:
    """What follows from H, F, h and f of a `System`, which adds the functions themselves."""

    H: Any
    F: Any
    h: Any
    f: Any
    dim: Any
    noises: Any
    is_joint: Any
    name: Any
    params: Any
    time: Any
    flow: Any
    flat: Any
    shaped: Any
    told: Any
    evaluate: Any
    _backwards: Any
    _forgetful: Any

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
        if name in self._forgetful:
            call = with_kept_rules(call)
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
