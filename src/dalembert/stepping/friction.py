"""What a linear friction does in a part of a step of a Langevin equation."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from dalembert.system import System

__all__ = ["Damping", "damping"]


class Damping(NamedTuple):
    """What friction γ does in a time τ, shape (dim,) each.

    Attributes:
        time: for how long forces act, (1 − e^{−γτ})/γ.
        noise: what noise of variance τ is multiplied by; its variance becomes (1 − e^{−2γτ})/2γ.
    """

    time: Any
    noise: Any


def damping(system: System, dt: Any, params: Any, parts: tuple[int, ...]) -> dict[int, Damping]:
    """What friction does in an n-th of a step, for every n."""
    force = system.term(("F", 0))
    zero = jnp.zeros(system.dim, jnp.result_type(dt))
    friction = zero
    if force is not None:
        friction = force(zero, zero, params) - force(zero, jnp.ones_like(zero), params)

    def mean_decay(x: Any) -> Any:
        """(1 − e^{−x})/x, which is 1 at x = 0; by a hyperbolic tangent, without cancellation."""
        divisor = jnp.where(x == 0, jnp.ones_like(x), x)
        tangent = jnp.tanh(x / 2)
        return jnp.where(x == 0, jnp.ones_like(x), 2 * tangent / ((1 + tangent) * divisor))

    found = {}
    for n in parts:
        x = friction * (dt / n)
        found[n] = Damping(dt / n * mean_decay(x), jnp.sqrt(mean_decay(2 * x)))
    return found
