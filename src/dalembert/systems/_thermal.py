"""Systems at one temperature: their thermostat, and integrals over their densities."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.precision import is_traced
from dalembert.system import System
from dalembert.systems._parameters import Params, Rule, Rules, minimum, parameters

__all__ = ["friction", "grid", "kicks", "stretches", "thermal", "told_by", "with_thermostat"]


def friction(q: Any, p: Any, params: Params) -> Any:
    """The force −γ p."""
    return -params["gamma"] * p


def kicks(q: Any, p: Any, w: Any, params: Params) -> Any:
    """The noise Hamiltonian −Σ √(2γmT) q_i w_i; the mass is 1 where the system has none."""
    strength = 2 * params["gamma"] * params.get("mass", 1.0) * params["temperature"]
    if jnp.ndim(strength):
        return -jnp.sum(jnp.sqrt(strength) * q * w)
    return -jnp.sqrt(strength) * jnp.sum(q * w)


def thermal(shape: tuple[int, ...]) -> dict[str, Rule]:
    """What γ and T must be where q has a shape: at least 0, and arrays like q if arrays."""
    return {
        "gamma": minimum("it is a friction rate", shape=shape),
        "temperature": minimum("the noise is √(2γmT)", shape=shape),
    }


def with_thermostat(
    H: Callable[..., Any],
    dim: Any,
    name: str,
    gamma: Any,
    temperature: Any,
    constraints: Callable[..., Any] | None = None,
    rules: Mapping[str, Rule] | None = None,
    together: Callable[[Params], None] | None = None,
    **values: Any,
) -> System:
    """A Langevin equation for H; for γ = 0 the Hamiltonian system alone, without γ and T.

    Args:
        H: the Hamiltonian.
        dim: degrees of freedom, or the shape of q.
        name: of the system.
        gamma: friction γ.
        temperature: T.
        constraints: as of a `System`.
        rules: what the other parameters must be.
        together: a further check of all parameters, as of `Rules`.
        values: the other parameters.
    """
    shape = tuple(dim) if isinstance(dim, list | tuple) else (dim,)
    check = Rules({**thermal(shape), **(rules or {})}, together)
    check({**values, "gamma": gamma, "temperature": temperature})
    if not is_traced(gamma) and np.all(np.asarray(gamma) == 0):
        params = parameters(**values)
        told = {"invariants": {"energy": H}, "constraints": constraints, "check": check}
        return System(H=H, dim=dim, params=params, name=name, **told)
    params = parameters(**values, gamma=gamma, temperature=temperature)
    forces = {"F": friction, "h": kicks, "noises": dim, "constraints": constraints}
    return System(H=H, dim=dim, params=params, name=name, check=check, **forces)


def told_by(
    system: Any, count: str, start: str, known: Mapping[str, Any], **given: Any
) -> tuple[int, list[Any]]:
    """How many there are, and the parameters that a start needs, from the system or from words.

    Args:
        system: the system itself, or the number of its particles.
        count: what is counted, such as "beads".
        start: the function that is called, with an example of its use.
        known: what parameters are if nobody says them.
        given: those that were said, None otherwise.
    """
    if not isinstance(system, System):
        if not isinstance(system, int | np.integer) or isinstance(system, bool):
            raise TypeError(
                f"{start}(…) takes the system itself, or the number of {count}, not {system!r}."
            )
        return int(system), [known[k] if v is None else v for k, v in given.items()]
    params: Any = system.params
    if not isinstance(params, Mapping) or any(k not in params for k in known if k not in BATH):
        raise TypeError(f"{start}(system) takes the ready-made system, not {system!r}.")
    for name, value in given.items():
        if value is not None and name not in BATH:
            raise ValueError(
                f"{name} is that of the system, {params[name]}: leave it out of {start}(system), "
                "or give the system another one by system.with_params."
            )
        if value is None and name not in params:
            raise TypeError(
                f"{system.name!r} without friction has no {name}: write {start}(system, {name}=…)."
            )
    values = [params[k] if v is None else v for k, v in given.items()]
    return system.shape[0], values


BATH = ("temperature",)
"""Parameters that a start may have for itself: the system begins hotter, or has none."""


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
