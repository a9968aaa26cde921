"""How the terms of a system depend on (q, p), and the matrices of linear systems.

With w = (1, q, p) the equations of a linear system are dw = A w dt + Σ_i B_i w ∘ dW_i with constant
matrices. The verdict comes from the traced functions, with the parameters at their values, and is
exact; what cannot be shown to be affine counts as nonlinear.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept_by
from dalembert.captured import captured
from dalembert.dependence import Degree, degrees
from dalembert.driven import Timed
from dalembert.methods.coefficients import Array
from dalembert.precision import cast
from dalembert.system import ALL, DRIFT_TERMS, NOISE_TERMS, System, Term
from dalembert.theory.manifold import refuse_constraints


class LinearFields(NamedTuple):
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


def term_degrees(system: System, *choices: tuple[int, ...]) -> dict[Term, Sequence[Degree]]:
    """The degree of every term in q (0), in p (1) or in both (0, 1), for each of the choices."""
    # Known parameters, because a factor that is zero removes a nonlinear term.
    params = cast(system.params, np.dtype(np.float64))
    z = jax.ShapeDtypeStruct((system.dim,), np.float64)
    t = jax.ShapeDtypeStruct((), np.float64)
    terms = [(kind, 0) for kind in DRIFT_TERMS]
    terms += [(kind, i) for i in system.noise_numbers for kind in NOISE_TERMS]
    found = {}
    with jax.enable_x64(True):
        for term in terms:
            fun = system.term(term)
            _, _, _, *w = system.term_like(term, z)
            if fun is None:
                found[term] = [Degree.ZERO] * len(choices)
                continue

            def at(q: Any, p: Any, t: Any, *w: Any, fun: Any = fun) -> Any:
                return fun(q, p, Timed(t, params) if system.time else params, *w)

            found[term] = degrees(at, (z, z, t, *w), *choices)
    return found


def nonlinear_terms(system: System) -> tuple[str, ...]:
    """The terms of the equations that are not affine in (q, p), by name."""
    found = term_degrees(system, (0, 1)).items()
    return tuple(term_name(term) for term, (joint,) in found if joint == Degree.NONLINEAR)


def term_name(term: Term) -> str:
    """A term as one would write it: ∂H/∂q, F, ∂h[0]/∂p, f[0], or ∂h/∂p of all noises."""
    kind, i, *_ = term
    function = kind[0] if kind[0] in "HF" or i == ALL else f"{kind[0]}[{i}]"
    return f"∂{function}/∂{kind[-1]}" if "_" in kind else function


def value_key(system: System) -> Hashable:
    """What a verdict on terms depends on: the functions, and parameters by their values."""
    return system.key, captured(system.params)


@kept_by(value_key)
def linear_fields(system: System) -> LinearFields:
    """The matrices of a linear system; a nonlinear one is refused with the terms to blame."""
    refuse_constraints(system, "the theory of linear systems")
    refuse_nonlinear(system)
    return _evaluated(system, system.params)[0]


def refuse_nonlinear(system: System) -> None:
    """Refuse a nonlinear system with the terms to blame."""
    nonlinear = nonlinear_terms(system)
    if nonlinear:
        raise ValueError(
            f"{system.name!r} does not have linear dynamics: {', '.join(nonlinear)} "
            f"{'is' if len(nonlinear) == 1 else 'are'} not affine in (q, p), as written. "
            "Moments without sampling need a linear system; use da.simulate for this one."
        )


def linear_fields_at(system: System, times: Array) -> list[LinearFields]:
    """The matrices of a linear system that is driven in time, at each of some times."""
    refuse_constraints(system, "the theory of linear systems")
    return _evaluated(system, Timed(times, system.params))


def _evaluated(system: System, told: Any) -> list[LinearFields]:
    """The fields, at every time that they are told."""
    size, n = 2 * system.dim, 2 * system.dim + 1
    with jax.enable_x64(True):
        told = cast(told, np.dtype(np.float64))
        constants, matrices = map(np.asarray, _affine(system)(np.zeros(size), told))
    found = np.zeros((len(constants), 1 + system.noises, n, n))
    found[..., 1:, 0], found[..., 1:, 1:] = constants, matrices
    return [LinearFields(one[0], one[1:]) for one in found]


@kept_by(value_key)
def _affine(system: System) -> Any:
    """Constants and matrices of the drift and the noises, first axis times, or one alone."""
    if system.time:
        refuse_nonlinear(system)

    def fields(z: Any, params: Any) -> Any:
        """The drift and the noises, one below the other."""
        q, p = z[: system.dim], z[system.dim :]
        drift = jnp.concatenate(system._drift(q, p, params))
        return jnp.vstack([drift[None], jnp.hstack(system._diffusion(q, p, params))])

    def both(z: Any, params: Any) -> Any:
        return fields(z, params), jax.jacfwd(fields)(z, params)

    if system.time:
        return jax.jit(jax.vmap(both, in_axes=(None, Timed(0, None))))
    return jax.jit(lambda *given: jax.tree.map(lambda x: x[None], both(*given)))
