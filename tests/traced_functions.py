"""Functions whose traces do not show all that they compute, made for a number that is hidden."""

import jax
import jax.numpy as jnp
import numpy as np


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
