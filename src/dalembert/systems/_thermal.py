"""Systems at one temperature: their thermostat, and integrals over their densities."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.precision import is_traced
from dalembert.system import System
from dalembert.systems._parameters import Params, at_least_zero, parameters

__all__ = ["friction", "grid", "kicks", "stretches", "with_thermostat"]


def friction(q: Any, p: Any, params: Params) -> Any:
    """The force −γ p."""
    return -params["gamma"] * p


def kicks(q: Any, p: Any, w: Any, params: Params) -> Any:
    """The noise Hamiltonian −Σ √(2γmT) q_i w_i; the mass is 1 where the system has none."""
    strength = 2 * params["gamma"] * params.get("mass", 1.0) * params["temperature"]
    if jnp.ndim(strength):
        return -jnp.sum(jnp.sqrt(strength) * q * w)
    return -jnp.sqrt(strength) * jnp.sum(q * w)


def with_thermostat(
    H: Callable[..., Any],
    dim: Any,
    name: str,
    gamma: Any,
    temperature: Any,
    constraints: Callable[..., Any] | None = None,
    **values: Any,
) -> System:
    """A Langevin equation for H; for γ = 0 the Hamiltonian system alone, without γ and T."""
    at_least_zero("it is a friction rate", gamma=gamma)
    at_least_zero("the noise is √(2γmT)", temperature=temperature)
    if not is_traced(gamma) and np.all(np.asarray(gamma) == 0):
        params = parameters(**values)
        told = {"invariants": {"energy": H}, "constraints": constraints}
        return System(H=H, dim=dim, params=params, name=name, **told)
    params = parameters(**values, gamma=gamma, temperature=temperature)
    forces = {"F": friction, "h": kicks, "noises": dim, "constraints": constraints}
    return System(H=H, dim=dim, params=params, name=name, **forces)


def stretches(q: Any) -> Any:
    """What N + 1 springs between N sites and two walls are longer than at rest.

    Zeros are padded: spread over several devices, a `concatenate` would gather all of q on each.
    """
    walled = lax.pad(jnp.asarray(q), jnp.zeros((), jnp.result_type(q)), [(1, 1, 0)])
    return walled[1:] - walled[:-1]


def grid(V: Callable[[Any], Any], temperature: float) -> np.ndarray:
    """Points around 0, equally spaced, on which sums stand for integrals of exp(−V/T) and the like.

    They reach as far as V < min V + 45 T, where the density has fallen below rounding. The sums
    of smooth functions that vanish at both ends converge faster than any power of the spacing,
    which is a fortieth of the width of a Gaussian.
    """

    def is_enough(reach: float) -> bool:
        return min(V(reach), V(-reach)) >= _least(V, reach) + 45 * temperature

    reach, most = 10 * np.sqrt(temperature), 1e6 * np.sqrt(temperature)
    while not is_enough(reach):
        reach *= 1.25
        if reach > most:
            raise ValueError("exp(-V/T) cannot be normalised: the potential is not bounded below.")
    while is_enough(reach / 1.25):
        reach /= 1.25
    return reach / 400 * np.arange(-400, 401)


def _least(V: Callable[[Any], Any], reach: float) -> float:
    return float(np.min(V(np.linspace(-reach, reach, 1001))))
