"""Langevin dynamics in any potential: friction and noise in balance at one temperature."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.caches import bounded
from dalembert.precision import is_traced
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import (
    Params,
    Rule,
    Rules,
    above_zero,
    exact,
    parameters,
    positive,
)
from dalembert.systems._thermal import friction, kicks, thermal

__all__ = ["gibbs_weight", "harmonic", "langevin"]

Potential = Callable[[Any], Any]


def harmonic(q: Any) -> Any:
    """The harmonic potential U(q) = |q|²/2."""
    return jnp.vdot(q, q) / 2


# Compiled steps are found again by the identity of a system's functions, so equal arguments
# must give the same functions.
def _hamiltonian(potential: Potential) -> Callable[..., Any]:
    try:
        hash(potential)
    except TypeError:  # modules of arrays, such as networks
        return _new_hamiltonian.__wrapped__(potential)
    return _new_hamiltonian(potential)


@bounded(64)
def _new_hamiltonian(potential: Potential) -> Callable[..., Any]:
    def H(q: Any, p: Any, params: Params) -> Any:
        mass = params["mass"]
        if jnp.ndim(mass):
            return jnp.sum(p * p / mass) / 2 + potential(q)
        return jnp.vdot(p, p) / (2 * mass) + potential(q)

    return H


@says_its_words
def langevin(
    potential: Potential = harmonic,
    dim: Any = 1,
    gamma: Any = 1.0,
    temperature: Any = 1.0,
    mass: Any = 1.0,
) -> System:
    """Langevin equation with one additive noise per degree of freedom.

        dq = (p/m) dt
        dp = (−∇U(q) − γ p) dt + √(2γmT) dW,     W of the shape of q

        H = |p|²/(2m) + U(q),   F = −γ p,   h(q, p, w) = −√(2γmT) Σ q_i w_i

    Args:
        potential: U(q) -> scalar, an energy, written with jax.numpy; harmonic by default.
        dim: number of degrees of freedom, or the shape of q and p, such as (N, 3).
        gamma: friction γ ≥ 0, a rate; a number, or an array with one for each degree of freedom.
        temperature: T ≥ 0, an energy (Boltzmann's constant is 1).
        mass: m > 0, a number, or an array with one for each degree of freedom. Arrays have the
            axes of q and are stretched to its shape, as masses (N, 1) of particles (N, 3).

    Invariants: none.
    Exact results: for γ, T > 0 the density exp(−H/T)/Z is stationary (`gibbs_weight`), so
    ⟨p_i²⟩ = m_i T and ⟨p_i p_j⟩ = ⟨p_i q_j⟩ = 0 in every potential, and ⟨q_i²⟩ = T in the
    harmonic one.
    Source: `MilsteinTretyakov2003`; with this friction it is conformally symplectic,
    `KrausTyranowski2021`, section 2.4.
    """
    if not callable(potential):
        raise TypeError(
            f"potential must be a function U(q) -> scalar, not {potential!r}: "
            "write for example lambda q: jnp.sum(q**4) / 4."
        )
    _check_arguments(potential)
    shape = tuple(dim) if isinstance(dim, list | tuple) else (dim,)
    # Lists are checked entry by entry, arrays by their shapes, too.
    gamma, mass = (
        np.asarray(x, np.float64) if isinstance(x, list | tuple) and not is_traced(x) else x
        for x in (gamma, mass)
    )
    check = Rules(_rules(shape))
    check({"gamma": gamma, "temperature": temperature, "mass": mass})
    gamma, mass = _stretched(gamma, shape), _stretched(mass, shape)
    params = parameters(gamma=gamma, temperature=temperature, mass=mass)
    return System(
        H=_hamiltonian(potential),
        F=friction,
        h=kicks,
        dim=dim,
        noises=dim,
        params=params,
        name="langevin",
        check=check,
    )


def _check_arguments(potential: Potential) -> None:
    """Refuse a function of more than the positions."""
    try:
        inspect.signature(potential).bind(None)
    except TypeError as error:
        raise TypeError(
            f"potential must be a function U(q) of positions alone ({error}): parameters of its "
            "own are constants in it, or, to vary them, those of a da.System(H=…, params=…)."
        ) from None
    except ValueError:  # nothing is known of its arguments
        pass


def _rules(shape: tuple[int, ...]) -> dict[str, Rule]:
    several = "baths of several temperatures have no law exp(-H/T); da.systems.heat_chain is one"
    heat = replace(thermal(shape)["temperature"], shape=None, instead=several)
    mass = positive("the velocity is p/mass", shape=shape)
    return {**thermal(shape), "temperature": heat, "mass": mass}


def _stretched(value: Any, shape: tuple[int, ...]) -> Any:
    """A number as it is, an array in the shape of q."""
    if not np.ndim(value):
        return value
    if is_traced(value):
        return jnp.broadcast_to(value, shape)
    return np.array(np.broadcast_to(value, shape), np.float64)


def gibbs_weight(
    q: Any, p: Any, potential: Potential = harmonic, temperature: Any = 1.0, mass: Any = 1.0
) -> Any:
    """The stationary density up to its normalisation, exp(−H(q, p)/T), at one point (q, p)."""
    above_zero("the weight is exp(-H/T)", temperature=temperature)
    above_zero("the velocity is p/mass", mass=mass)
    H = _hamiltonian(potential)
    return exact(lambda q, p, T, m: jnp.exp(-H(q, p, {"mass": m}) / T), q, p, temperature, mass)
