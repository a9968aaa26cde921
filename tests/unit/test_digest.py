"""Digests: what functions compute, the same in every process, and other for other numbers."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dalembert.digest import ORDERS, NotComparableError, digest
from traced_functions import by_jvp, by_vjp, jitted

Z = jax.ShapeDtypeStruct((2,), np.float64)


def of(fun, orders=ORDERS):
    with jax.enable_x64(True):
        return digest(fun, Z, Z, orders=orders)


def in_a_loop(a):
    return lambda q, p: jax.lax.fori_loop(0, 3, lambda i, x: x * np.array([1.0, a]), q)[0]


def in_a_branch(a):
    return lambda q, p: jax.lax.cond(q[0] > 0, lambda: q[0], lambda: jnp.sum(np.array([a, 1.0])))


def by_rule_of_the_rule(a):
    """Two functions with the same gradient whose second derivatives differ."""

    @jax.custom_jvp
    def double(x):
        return 2 * x

    @jax.custom_jvp
    def square(x):
        return x**2

    double.defjvp(lambda x, dx: (2 * x[0], a * dx[0]))
    square.defjvp(lambda x, dx: (x[0] ** 2, double(x[0]) * dx[0]))
    return lambda q, p: square(q[0]) + p[0]


def vector_by_jvp(a):
    return lambda q, p: by_jvp(a)(q, p) * q


ones = np.ones(2)
PAIRS = {
    "a literal": (lambda a: lambda q, p: a * q[0], 1.0, 1.0 + 2**-52),
    "the sign of zero": (lambda a: lambda q, p: q[0] / (a * p[0]), 0.0, -0.0),
    "an array": (lambda a: lambda q, p: np.array([1.0, a]) @ q, 2.0, np.nextafter(2.0, 3.0)),
    "its type": (lambda a: lambda q, p: q[0] + jnp.sum(a).astype(float), ones, ones.astype(int)),
    "inside jit": (jitted, 2.0, 3.0),
    "inside a loop": (in_a_loop, 2.0, 3.0),
    "inside a branch": (in_a_branch, 2.0, 3.0),
    "a rule forwards": (by_jvp, 2.0, 3.0),
    "a rule backwards": (by_vjp, 2.0, 3.0),
    "the rule of a rule": (by_rule_of_the_rule, 2.0, 3.0),
    "the rule of a force": (vector_by_jvp, 2.0, 3.0),
    "a random key": (
        lambda key: lambda q, p: q[0] * jax.random.normal(key),
        jax.random.key(0),
        jax.random.key(1),
    ),
    "an operation": (lambda op: lambda q, p: op(q[0]), jnp.sin, jnp.cos),
    "an index": (lambda i: lambda q, p: q[i], 0, 1),
    "a parameter of an operation": (lambda n: lambda q, p: q[0] ** n, 2, 3),
}  # fmt: skip


@pytest.mark.parametrize("case", PAIRS)
def test_other_numbers_have_another_digest(case):
    make, a, b = PAIRS[case]
    assert of(make(a)) == of(make(a)), "made anew"
    assert of(make(a)) != of(make(b))


def test_rules_are_not_in_the_trace_of_the_value():
    """The control: without derivatives there would be no difference."""
    for make in (by_jvp, by_vjp):
        assert of(make(2.0), orders=0) == of(make(3.0), orders=0)


def test_names_and_printing_do_not_count():
    def one(x):
        return x**2

    def two(y):
        return y**2

    def prints(q, p):
        jax.debug.print("{}", q)
        return q[0]

    def prints_more(q, p):
        jax.debug.print("q = {}", q)
        return q[0]

    assert of(lambda q, p: jax.jit(one)(q[0])) == of(lambda q, p: jax.jit(two)(q[0]))
    assert of(prints) == of(prints_more)


SCALAR = jax.ShapeDtypeStruct((), np.float64)


@pytest.mark.parametrize(
    "fun",
    [
        lambda q, p: jax.pure_callback(lambda x: x, SCALAR, q[0]),
        jax.jit(lambda q, p: jax.experimental.io_callback(lambda x: x, SCALAR, q[0])),
    ],
)
def test_callbacks_are_refused(fun):
    with pytest.raises(NotComparableError, match="calls Python back"):
        of(fun)


@pytest.mark.parametrize(
    "fun",
    [
        lambda q, p: jnp.linalg.solve(jnp.diag(q), p)[0],
        lambda q, p: jnp.linalg.eigh(jnp.outer(q, q))[0][0],
        lambda q, p: jax.nn.softplus(q[0]) + jax.nn.relu(p[0]),
        lambda q, p: jnp.abs(jnp.fft.fft(q))[0],
        lambda q, p: jax.lax.while_loop(lambda x: x < 3, lambda x: 2 * x, q[0]),
        lambda q, p: jax.checkpoint(jnp.sin)(q[0]),
        lambda q, p: jnp.zeros(3).at[1].add(q[0])[1] + jnp.sort(p)[0],
        lambda q, p: jax.scipy.sparse.linalg.cg(lambda x: 2 * x, q)[0][0],
        lambda q, p: jax.random.gamma(jax.random.key(1), q[0] ** 2),
    ],
)
def test_what_is_usual_is_comparable(fun):
    assert of(fun, orders=0) == of(fun, orders=0)


def all_digests():
    return {name: of(make(a)) for name, (make, a, _) in PAIRS.items()}


def test_another_process_finds_the_same():
    """Another seed of Python's hashes, another terminal, and x64 switched off."""
    here = os.environ | {"PYTHONHASHSEED": "7", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    here["PYTHONPATH"] = os.pathsep.join(sys.path)
    script = subprocess.run(
        [sys.executable, __file__], capture_output=True, check=True, text=True, env=here
    )
    assert json.loads(script.stdout) == all_digests()


if __name__ == "__main__":
    print(json.dumps(all_digests()))
