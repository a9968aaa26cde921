"""Solutions of equations as primitives: derivatives, mapping and transposition of their own."""

from functools import partial, reduce
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dalembert.stepping.rescue import dense_solve, krylov_solve
from dalembert.stepping.root import implicit_root

DIRECTIONS = {"f": jax.jacfwd, "r": jax.jacrev}


def residual(c, u):
    """Two equations that are not symmetric."""
    return jnp.stack([u[0] + c[0] * u[1] ** 3 - c[1], 2 * u[1] + jnp.sin(c[1]) * u[0] - c[0]])


def newton(c, u):
    """A loop with an end that is not known before, which reverse mode cannot follow."""

    def improve(state):
        u, k = state
        return u - jnp.linalg.solve(jax.jacfwd(partial(residual, c))(u), residual(c, u)), k + 1

    return lax.while_loop(lambda state: state[1] < 8, improve, (u, jnp.int32(0)))


def solution(c, linear_solve=dense_solve):
    u, count = implicit_root(partial(residual, c), jnp.zeros(2), partial(newton, c), linear_solve)
    return u, count


def unrolled(c):
    u = jnp.zeros(2)
    for _ in range(8):
        u = u - jnp.linalg.solve(jax.jacfwd(partial(residual, c))(u), residual(c, u))
    return u


POINT = np.array([0.4, 0.7])


@pytest.mark.parametrize(
    ("order", "solve"),
    [
        (1, dense_solve),
        pytest.param(2, dense_solve, marks=pytest.mark.slow),
        pytest.param(1, krylov_solve, marks=pytest.mark.slow),
        pytest.param(2, krylov_solve, marks=pytest.mark.slow),
        pytest.param(3, dense_solve, marks=pytest.mark.slow),
    ],
)
def test_derivatives_in_every_nesting(order, solve):
    def of_scan(c):
        """Linearised scans lose what is not a primitive."""

        def body(c, _):
            return solution(c, solve)[0] + 0.3 * c, None

        return lax.scan(body, c, None, length=2)[0]

    def plain(c):
        for _ in range(2):
            c = unrolled(c) + 0.3 * c
        return c

    def nestings(c):
        ways = list(product("fr", repeat=order))
        return [reduce(lambda f, way: DIRECTIONS[way](f), each, of_scan)(c) for each in ways]

    expected = reduce(lambda f, _: jax.jacfwd(f), range(order), plain)(jnp.asarray(POINT))
    for found in jax.jit(nestings)(jnp.asarray(POINT)):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)
    assert np.abs(expected).max() > 0.1


def test_what_else_a_solver_says_has_no_derivative():
    u, count = jax.jit(solution)(jnp.asarray(POINT))
    assert count == 8 and count.dtype == jnp.int32
    np.testing.assert_allclose(residual(POINT, u), 0, atol=1e-15)
    _, tangent = jax.jvp(solution, [jnp.asarray(POINT)], [jnp.ones(2)])
    assert tangent[1].dtype == jax.dtypes.float0
    assert np.abs(tangent[0]).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("axes", [(0, None), (None, 1), (0, 1)])
def test_mapping_over_some_of_what_a_solution_depends_on(axes):
    """Values and derivatives are those of a loop."""
    few, many = jnp.array([0.4, 0.7]), jnp.linspace(0.2, 0.8, 6).reshape(3, 2)
    first = many if axes[0] == 0 else few
    second = many.T / 2 if axes[1] == 1 else few / 2

    def fun(a, b):
        return solution(a + b)[0]

    for f in (jax.jacrev(fun), jax.jacfwd(jax.jacrev(fun), argnums=1)):
        found, alone = jax.jit(jax.vmap(f, axes))(first, second), jax.jit(f)
        for i in range(3):
            a = first[i] if axes[0] == 0 else first
            b = second[:, i] if axes[1] == 1 else second
            np.testing.assert_allclose(found[i], alone(a, b), rtol=1e-12, atol=1e-13)


def test_trees_and_values_that_are_traced_outside():
    """Unknowns as a tuple of scalars; the equations read a value of the function around."""

    def outer(c):
        def equations(u):
            return tuple(residual(c, jnp.stack(u)))

        def solve(u):
            found, count = newton(c, jnp.stack(u))
            return tuple(found), {"count": count}

        def linear_solve(product, b):
            return tuple(dense_solve(lambda v: jnp.stack(product(tuple(v))), jnp.stack(b)))

        u, also = implicit_root(equations, (jnp.zeros(()),) * 2, solve, linear_solve)
        assert set(also) == {"count"}
        return jnp.stack(u)

    with jax.checking_leaks():
        found = jax.jit(jax.jacrev(outer))(jnp.asarray(POINT))
    np.testing.assert_allclose(found, jax.jacfwd(unrolled)(jnp.asarray(POINT)), rtol=1e-12)


def test_equations_without_anything_to_differentiate():
    def fun(x):
        return x * solution(jnp.asarray(POINT))[0][0]

    np.testing.assert_allclose(jax.grad(fun)(2.0), unrolled(POINT)[0], rtol=1e-14)
