"""Stochastic forced Hamiltonian systems.

    dq = H_p dt + Σ h_i,p ∘ dW_i
    dp = (−H_q + F) dt + Σ (−h_i,q + f_i) ∘ dW_i

A `System` holds the functions and derives the rest by automatic differentiation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.precision import with_precision

__all__ = ["System", "Term"]

Term = tuple[str, int]
"""One term of the equations: a kind (H_p, H_q, F, h_p, h_q, f) and the noise it belongs to."""

DRIFT_TERMS = ("H_p", "H_q", "F")
NOISE_TERMS = ("h_p", "h_q", "f")


@dataclass(frozen=True, eq=False, repr=False)
class System:
    """A stochastic forced Hamiltonian system in `dim` degrees of freedom.

    Args:
        H: Hamiltonian, `H(q, p) -> scalar`.
        F: force, `F(q, p) -> (dim,)`; None means zero.
        h: noise Hamiltonians, one per Wiener process, each `(q, p) -> scalar` or None.
        f: noise forces, one per Wiener process, each `(q, p) -> (dim,)` or None.
        dim: number of degrees of freedom; `q` and `p` have shape `(dim,)`.
        params: numbers or arrays in any nesting. If given, every function takes
            `(q, p, params)`, and derivatives with respect to them can be taken.
        name: what the system is called in tables and files.
        invariants: functions that are constant along every path, by name.

    The functions are written with `jax.numpy`. Everything is checked on construction.
    """

    H: Callable[..., Any]
    F: Callable[..., Any] | None = None
    h: Sequence[Callable[..., Any] | None] | None = None
    f: Sequence[Callable[..., Any] | None] | None = None
    dim: int = 0
    params: Any = None
    name: str = "system"
    invariants: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.dim, bool) or not isinstance(self.dim, int | np.integer) or self.dim < 1:
            raise ValueError(
                f"dim must be a positive integer (degrees of freedom), not {self.dim!r}."
            )
        h, f = _noise_lists(self.h, self.f)
        object.__setattr__(self, "h", h)
        object.__setattr__(self, "f", f)
        object.__setattr__(self, "dim", int(self.dim))
        object.__setattr__(self, "invariants", dict(self.invariants or {}))
        _check_function(self, "H", self.H, ())
        _check_function(self, "F", self.F, (self.dim,))
        for i, (h_i, f_i) in enumerate(zip(h, f, strict=True)):
            _check_function(self, f"h[{i}]", h_i, ())
            _check_function(self, f"f[{i}]", f_i, (self.dim,))
        for name, invariant in self.invariants.items():
            _check_function(self, f"invariants[{name!r}]", invariant, ())

    @property
    def noises(self) -> int:
        """Number m of Wiener processes."""
        return len(self.h or ())

    @property
    def key(self) -> tuple[Any, ...]:
        """What a compiled step depends on: the functions, not the values of the parameters."""
        return (self.H, self.F, self.h, self.f, self.dim, self.params is not None)

    def __repr__(self) -> str:
        text = f"System {self.name!r}: dim={self.dim}, noises={self.noises}"
        return text if self.params is None else f"{text}, params={self.params}"

    def with_params(self, params: Any = None, **changes: Any) -> "System":
        """The same system with other parameters, e.g. `system.with_params(nu=0.1)`."""
        if params is not None:
            return replace(self, params=params)
        if not isinstance(self.params, Mapping):
            raise TypeError(
                f"{self.name!r} has no named parameters; pass the whole of `params` instead."
            )
        unknown = sorted(set(changes) - set(self.params))
        if unknown:
            raise ValueError(
                f"{self.name!r} has no parameter {unknown}; it has {sorted(self.params)}."
            )
        return replace(self, params={**self.params, **changes})

    def evaluate(self, fun: Callable[..., Any], q: Any, p: Any, params: Any) -> Any:
        """Call a user's function with the arguments that it expects."""
        return fun(q, p) if self.params is None else fun(q, p, params)

    def term(self, term: Term) -> Callable[[Any, Any, Any], Any] | None:
        """One term of the equations as a function of (q, p, params), or None if it is zero."""
        kind, i = term
        source = {
            "H_p": self.H,
            "H_q": self.H,
            "F": self.F,
            "h_p": self.h[i] if self.h else None,
            "h_q": self.h[i] if self.h else None,
            "f": self.f[i] if self.f else None,
        }[kind]
        if source is None:
            return None

        def call(q: Any, p: Any, params: Any) -> Any:
            return jnp.asarray(self.evaluate(source, q, p, params), q.dtype)

        if kind in ("F", "f"):
            return call
        if kind in ("H_p", "h_p"):
            return jax.grad(call, argnums=1)
        return lambda q, p, params: -jax.grad(call, argnums=0)(q, p, params)

    def drift(self, q: Any, p: Any) -> tuple[Any, Any]:
        """The Stratonovich drift (H_p, −H_q + F), each of shape (dim,)."""
        return with_precision(self._drift, q, p, self.params)

    def diffusion(self, q: Any, p: Any) -> tuple[Any, Any]:
        """The noise fields (h_i,p) and (−h_i,q + f_i), each of shape (noises, dim)."""
        return with_precision(self._diffusion, q, p, self.params)

    def ito(self, q: Any, p: Any) -> tuple[Any, Any]:
        """Itô drift A(z) of shape (2·dim,) and diffusion B(z) of shape (2·dim, noises).

        A = V₀ + ½ Σ DV_i·V_i with the Stratonovich fields V; written out, its momentum row is
        the paper's with (h_qp − f_p)(h_q − f) in place of the printed (h_qp − f_p)(h_p − f).
        """
        return with_precision(self._ito, q, p, self.params)

    def gamma(self, q: Any, p: Any) -> Any:
        """Γ_ij, the position part of DV_j·V_i, of shape (noises, noises, dim)."""
        return with_precision(lambda *z: self._second(*z)[0], q, p, self.params)

    def lam(self, q: Any, p: Any) -> Any:
        """Λ_ij, the momentum part of DV_j·V_i, of shape (noises, noises, dim)."""
        return with_precision(lambda *z: self._second(*z)[1], q, p, self.params)

    def _drift(self, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        return self._field(DRIFT_TERMS, 0, q, p, params)

    def _field(self, kinds: Sequence[str], i: int, q: Any, p: Any, params: Any) -> tuple[Any, Any]:
        q, p = jnp.asarray(q), jnp.asarray(p)
        velocity, *forces = (self.term((kind, i)) for kind in kinds)
        dq = jnp.zeros_like(q) if velocity is None else velocity(q, p, params)
        dp = sum((force(q, p, params) for force in forces if force), jnp.zeros_like(p))
        return dq, dp

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


def _noise_lists(h: Any, f: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """h and f as tuples of one length; a missing list means that all its entries are zero."""
    for name, given in (("h", h), ("f", f)):
        if callable(given):
            raise TypeError(
                f"{name} must be a list, one function per Wiener process: write {name}=[{name}]."
            )
    count = len(h if h is not None else f if f is not None else ())
    h = (None,) * count if h is None else tuple(h)
    f = (None,) * count if f is None else tuple(f)
    if len(h) != len(f):
        raise ValueError(
            f"h has {len(h)} entries and f has {len(f)}: both need one entry per Wiener process. "
            "Use None for a term that is zero, or leave the whole list out."
        )
    return h, f


def _check_function(system: System, name: str, fun: Any, shape: tuple[int, ...]) -> None:
    """Trace a user's function once and say in words what is wrong with it."""
    if fun is None and name != "H":
        return
    arguments = "(q, p)" if system.params is None else "(q, p, params)"
    if not callable(fun):
        raise TypeError(f"{name} must be a function of {arguments}, not {fun!r}.")
    with jax.enable_x64(True):
        z = jax.ShapeDtypeStruct((system.dim,), np.float64)
        try:
            call = partial(_evaluate, system, fun)
            out = jax.eval_shape(call, z, z, system.params)
            if shape == out.shape == () and jnp.issubdtype(out.dtype, np.floating):
                jax.eval_shape(jax.grad(call, argnums=(0, 1)), z, z, system.params)
        except (
            jax.errors.TracerArrayConversionError,
            jax.errors.ConcretizationTypeError,
            jax.errors.TracerIntegerConversionError,
        ) as error:
            raise TypeError(
                f"{name} cannot be traced by JAX. Write it with jax.numpy instead of numpy or "
                f"math, and jnp.where instead of `if` on values of q and p. ({_first_line(error)})"
            ) from error
        except Exception as error:
            raise TypeError(
                f"{name} failed when called as {name}{arguments} with q and p of shape "
                f"({system.dim},): {type(error).__name__}: {_first_line(error)}"
            ) from error
    if not jnp.issubdtype(out.dtype, np.floating):
        raise TypeError(
            f"{name} returns {out.dtype} values; real numbers are needed. "
            "Write constants as floats, e.g. 0.0 instead of 0."
        )
    if out.shape != shape:
        wanted = "a scalar, shape ()" if shape == () else f"shape {shape}"
        hint = (
            " Sum over the components or take one of them, e.g. p[0]**2 / 2." if not shape else ""
        )
        raise ValueError(f"{name} must return {wanted}, but it returns shape {out.shape}.{hint}")


def _evaluate(system: System, fun: Callable[..., Any], q: Any, p: Any, params: Any) -> Any:
    return jnp.asarray(system.evaluate(fun, q, p, params))


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
