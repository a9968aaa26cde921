"""Systems with linear dynamics: how to tell, and the matrices of their fields.

With w = (1, q, p) the equations of such a system are dw = A w dt + Σ_i B_i w ∘ dW_i with constant
matrices. The verdict comes from the traced functions, with the parameters at their values, and is
exact; what cannot be shown to be affine counts as nonlinear.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.methods.coefficients import Array
from dalembert.precision import cast
from dalembert.stepping.dependence import Degree, degree
from dalembert.stepping.plan import Dependence
from dalembert.system import DRIFT_TERMS, NOISE_TERMS, System, Term

__all__ = [
    "LinearFields",
    "is_linear",
    "joint_degrees",
    "linear_fields",
    "nonlinear_terms",
    "separate_degrees",
    "term_name",
]


@dataclass(frozen=True, eq=False)
class LinearFields:
    """The Stratonovich fields on w = (1, q, p); the first row of every matrix is zero.

    Attributes:
        drift: A, of shape (2·dim + 1, 2·dim + 1).
        noises: the B_i, of shape (noises, 2·dim + 1, 2·dim + 1).
    """

    drift: Array
    noises: Array

    @property
    def ito_drift(self) -> Array:
        """A + ½ Σ B_i², the drift of the same equations in the sense of Itô."""
        return self.drift + (self.noises @ self.noises).sum(axis=0) / 2


def joint_degrees(system: System) -> dict[Term, Degree]:
    """The degree of every term of the equations in q and p together."""
    return {term: max(_degrees(system, term, [(0, 1)])) for term in _terms(system)}


def separate_degrees(system: System) -> dict[Term, Dependence]:
    """How every term depends on q with p fixed, and on p with q fixed."""
    return {term: Dependence(*_degrees(system, term, [(0,), (1,)])) for term in _terms(system)}


def nonlinear_terms(system: System) -> tuple[str, ...]:
    """The terms of the equations that are not affine in (q, p), by name."""
    found = joint_degrees(system).items()
    return tuple(term_name(term) for term, degree in found if degree == Degree.NONLINEAR)


def is_linear(system: System) -> bool:
    """True if every term of the equations is affine in (q, p)."""
    return not nonlinear_terms(system)


def term_name(term: Term) -> str:
    """A term as one would write it: ∂H/∂q, F, ∂h[0]/∂p, f[0]."""
    kind, i = term
    function = kind[0] if kind[0] in "HF" else f"{kind[0]}[{i}]"
    return f"∂{function}/∂{kind[-1]}" if "_" in kind else function


def linear_fields(system: System) -> LinearFields:
    """The matrices of a linear system; a nonlinear one is refused with the terms to blame."""
    if not isinstance(system, System):
        raise TypeError(f"system must be a da.System, not {type(system).__name__}.")
    nonlinear = nonlinear_terms(system)
    if nonlinear:
        raise ValueError(
            f"{system.name!r} does not have linear dynamics: {', '.join(nonlinear)} "
            f"{'is' if len(nonlinear) == 1 else 'are'} not affine in (q, p), as written. "
            "Moments without sampling need a linear system; use da.simulate for this one."
        )
    return _matrices(system)


@lru_cache(maxsize=32)
def _matrices(system: System) -> LinearFields:
    size = 2 * system.dim

    def fields(z: Any, params: Any) -> tuple[Any, Any]:
        q, p = z[: system.dim], z[system.dim :]
        noise = jnp.concatenate(system._diffusion(q, p, params), axis=1)
        return jnp.concatenate(system._drift(q, p, params)), noise

    with jax.enable_x64(True):
        at_origin = np.zeros(size), cast(system.params, np.dtype(np.float64))
        both = jax.jit(lambda z, params: (fields(z, params), jax.jacfwd(fields)(z, params)))
        constants, matrices = jax.tree.map(np.asarray, both(*at_origin))
    drift, noises = (
        np.concatenate([c[..., None], m], axis=-1) for c, m in zip(constants, matrices, strict=True)
    )
    no_change = np.zeros((1, size + 1))
    return LinearFields(
        np.concatenate([no_change, drift]),
        np.concatenate([np.zeros((system.noises, 1, size + 1)), noises], axis=1),
    )


def _terms(system: System) -> list[Term]:
    noise = [(kind, i) for i in range(system.noises) for kind in NOISE_TERMS]
    return [*((kind, 0) for kind in DRIFT_TERMS), *noise]


def _degrees(system: System, term: Term, choices: list[tuple[int, ...]]) -> list[Degree]:
    fun = system.term(term)
    if fun is None:
        return [Degree.ZERO for _ in choices]
    # Known parameters, because a factor that is zero removes a nonlinear term.
    params = cast(system.params, np.dtype(np.float64))

    def known(q: Any, p: Any) -> Any:
        return fun(q, p, params)

    with jax.enable_x64(True):
        z = jax.ShapeDtypeStruct((system.dim,), np.float64)
        return [degree(known, (z, z), wrt) for wrt in choices]
