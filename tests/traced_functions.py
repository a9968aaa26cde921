"""Functions whose traces do not show all that they compute: a number, or a derivative."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@jax.custom_jvp
def hidden_sine(x):
    return lax.stop_gradient(jnp.sin(x))


@jax.custom_jvp
def hidden_cosine(x):
    return lax.stop_gradient(jnp.cos(x))


hidden_sine.defjvps(lambda tangent, _, x: tangent * hidden_cosine(x))
hidden_cosine.defjvps(lambda tangent, _, x: -tangent * hidden_sine(x))


def jitted(a):
    return jax.jit(lambda q, p: p[0] ** 2 / 2 + jnp.sum(np.array([1.0, a]) * q))


def by_jvp(a):
    @jax.custom_jvp
    def square(x):
        return x**2

    square.defjvp(lambda x, dx: (x[0] ** 2, a * x[0] * dx[0]))
    return lambda q, p: square(q[0]) + p[0]


def by_vjp(a):
    @jax.custom_vjp
    def square(x):
        return x**2

    square.defvjp(lambda x: (x**2, x), lambda x, g: (a * x * g,))
    return lambda q, p: square(q[0]) + p[0]
