"""Derivatives that JAX has been told: functions with kept rules have those of the functions."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import dalembert as da
from dalembert.kept_rules import with_kept_rules


@jax.custom_vjp
def scaled(x):
    """A rule for reverse mode, which is not the derivative of the code, around one of JAX."""
    return jnp.sum(jax.nn.relu(x) ** 2)


scaled.defvjp(lambda x: (scaled(x), x), lambda x, slope: (100 * slope * x,))


@jax.custom_jvp
def twice(x):
    return 2 * x


twice.defjvp(lambda x, slopes: (twice(*x), twice(*slopes)))


@jax.custom_jvp
def own_sine(x):
    return jnp.sin(x)


own_sine.defjvp(lambda x, slopes: (own_sine(*x), twice(slopes[0] * jnp.cos(x[0])) / 2))


@jax.custom_jvp
def with_unused(x):
    return jnp.sin(x), jnp.cos(x)


with_unused.defjvp(lambda x, s: (with_unused(*x), (s[0] * 3.0, -s[0])))


@pytest.mark.parametrize(
    "fun",
    [
        scaled,
        jax.jit(scaled),
        lambda x: jnp.sum(twice(x) * x),
        lambda x: jnp.sum(own_sine(x)),
        lambda x: jnp.sum(with_unused(x)[0]),
        lambda x: jnp.sum(jax.nn.relu(x.astype(jnp.bfloat16)).astype(x.dtype) * x),
    ],
)
def test_derivatives_are_those_of_the_function(fun):
    kept, many = with_kept_rules(fun), jnp.array([[0.3, 1.7], [-0.4, 2.1]])
    found = jax.vmap(jax.value_and_grad(kept))(many)
    for a, b in zip(found, jax.vmap(jax.value_and_grad(fun))(many), strict=True):
        assert jnp.allclose(a, b, rtol=1e-6)


@jax.custom_jvp
def told(x):
    return lax.stop_gradient(x**2)


@jax.custom_jvp
def told_slope(x):
    return lax.stop_gradient(2 * x)


told.defjvps(lambda slope, _, x: slope * told_slope(x))
told_slope.defjvps(lambda slope, _, x: 2 * slope)


def repeated(fun):
    return lambda x: lax.scan(lambda x, _: (fun(x), None), x, None, length=1)[0]


FORMS = [
    told,
    repeated(told),
    lambda x: lax.cond(x > 0, told, jnp.sin, x),
    lambda x: lax.switch(0, [told, jnp.sin], x),
    lambda x: lax.map(told, x[None])[0],
    jax.checkpoint(told),
]


@pytest.mark.parametrize("fun", FORMS)
def test_second_derivatives_of_a_scan_are_as_told(fun):
    assert jax.grad(jax.grad(repeated(with_kept_rules(fun))))(0.7) == 2


@pytest.mark.parametrize("fun", FORMS)
def test_derivatives_of_forces_are_as_told(fun):
    """Those of H are gradients, which JAX takes apart before others are asked for."""
    system = da.System(H=lambda q, p: p[0] ** 2 / 2 + fun(q[0]), dim=1)
    force, q = system.term(("H_q", 0)), jnp.array([0.7])
    assert jnp.allclose(force(q, q, None), -1.4)
    for slope in (jax.jacfwd(force), jax.jacrev(force)):
        assert jnp.allclose(slope(q, q, None), -2)
