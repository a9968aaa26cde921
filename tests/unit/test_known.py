"""What NumPy computes in place of JAX has the bits that JAX gives it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dalembert import options
from dalembert.known import ARITHMETIC, MOVES, by_numpy
from dalembert.traces import apply_equation, compute, equations, name_of

X = np.random.default_rng(0).normal(size=(2, 3, 4))
N = np.array([[-3, 2**31 - 1], [7, 0]], np.int32)
BITS = np.array([[True, False], [True, True]])
COMPARED = ("eq", "ne", "ge", "gt", "le", "lt")

CASES = {
    "broadcast_in_dim": [(lambda x: lax.broadcast_in_dim(x, (5, 2, 3, 4), (1, 2, 3)), X)],
    "concatenate": [(lambda x, y: lax.concatenate([x, y], 1), X, X + 1)],
    "convert_element_type": [
        (lambda x, t=t: lax.convert_element_type(x, t), given)
        for given, types in (
            (N, (np.int64, np.uint32, np.int8, np.float32, np.float64, np.bool_)),
            (BITS, (np.int32, np.float32)),
            (1e3 * X, (np.float32,)),
            (X.astype(np.float32), (np.float64,)),
        )
        for t in types
    ],
    "dynamic_slice": [
        (lambda x, i=i: lax.dynamic_slice(x, (i, i, i), (1, 2, 3)), X) for i in (-7, 1, 9)
    ],
    "iota": [
        (lambda t=t, a=a: lax.broadcasted_iota(t, (2, 3), a),)
        for t in (np.int32, np.uint64, np.float64)
        for a in (0, 1)
    ],
    "pad": [
        (lambda x: lax.pad(x, 2.0, ((1, 0, 2), (0, 3, 1), (0, 0, 0))), X),
        (lambda x: lax.pad(x, 2.0, ((-1, 0, 0), (0, -2, 1), (0, 0, 0))), X),
    ],
    "reduce_sum": [
        (lambda x: jnp.sum(x, 0, x.dtype), N),
        (lambda x: jnp.sum(x, dtype=x.dtype), N),
        (lambda x: jnp.sum(x, 0), np.rint(9 * X)),
        (lambda x: jnp.sum(x, 0), -0.0 * np.abs(X)),
        (lambda x: jnp.sum(x, 0), -0.0 * np.abs(X[:1])),
    ],
    "reshape": [
        (lambda x: lax.reshape(x, (4, 6)), X),
        (lambda x: lax.reshape(x, (4, 6), (2, 0, 1)), X),
    ],
    "slice": [(lambda x, s=s: lax.slice(x, (0, 1, 0), (2, 3, 4), s), X) for s in (None, (1, 1, 3))],
    "squeeze": [(lambda x: lax.squeeze(x, (0,)), X[:1])],
    "stack": [(lambda x, y: jnp.stack([x, y], 1), X, X + 1)],
    "transpose": [(lambda x: lax.transpose(x, (2, 0, 1)), X)],
    "neg": [(lax.neg, X), (lax.neg, N)],
    "add_any": [(lambda x: jax.grad(lambda x: jnp.vdot(x, x))(x), X)],
    **{
        name: [(getattr(lax, f"bitwise_{name}"), x, y) for x, y in ((N, N.T.copy()), (BITS, ~BITS))]
        for name in ("and", "or", "xor")
    },
    **{
        name: [(getattr(lax, name), X, X[::-1].copy()), (getattr(lax, name), N, N.T.copy())]
        for name in ("add", "sub", "mul", "div", *COMPARED)
    },
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_numpy_gives_the_bits_of_jax(name):
    found = 0
    for fun, *args in CASES[name]:
        for eqn in equations(jax.make_jaxpr(fun)(*args)):
            if name_of(eqn) != name:
                continue
            literals = [v.val for v in eqn.invars if hasattr(v, "val")]
            given = [*(2 * args)[: len(eqn.invars) - len(literals)], *literals]
            ours, theirs = compute(eqn, given), apply_equation(eqn, given)
            for a, b in zip(ours, theirs, strict=True):
                assert a.dtype == b.dtype and a.shape == b.shape
                assert a.tobytes() == np.asarray(b).tobytes()
            found += by_numpy(name, given, eqn.params) is not None
    assert found, "JAX computed all of it"


def test_every_operation_is_compared():
    assert set(CASES) == {*MOVES, *ARITHMETIC}


@pytest.mark.parametrize("x", [5e-324, 1e-310, np.inf, np.nan])
def test_numbers_that_xla_treats_in_its_own_way_are_left_to_it(x):
    assert by_numpy("mul", [np.float64(x), np.float64(1.0)], {}) is None
    assert by_numpy("mul", [np.float64(1e-200), np.float64(1e-110)], {}) is None
    assert by_numpy("mul", [np.float64(1e-200), np.float64(1e-10)], {}) == [1e-200 * 1e-10]


def test_what_is_not_listed_is_left_to_jax():
    assert by_numpy("sin", [np.float64(1.0)], {}) is None
    assert by_numpy("div", [np.int32(7), np.int32(-2)], {}) is None


def test_what_may_be_rounded_in_more_ways_than_one_is_left_to_jax():
    over_all = {"axes": (0, 1, 2)}
    assert by_numpy("reduce_sum", [X], over_all) is None
    assert by_numpy("reduce_sum", [np.rint(X) * 2.0**52], over_all) is None
    assert by_numpy("reduce_sum", [np.rint(X)], over_all) is not None
    to_whole, to_short = ({"new_dtype": np.dtype(t)} for t in (np.int32, np.float32))
    assert by_numpy("convert_element_type", [X], to_whole) is None
    assert by_numpy("convert_element_type", [1e-40 * np.ones(2)], to_short) is None
    assert by_numpy("convert_element_type", [1e40 * np.ones(2)], to_short) is None


def test_an_option_that_xla_does_not_know_is_not_used():
    assert not options.xla_knows("xla_of_no_such_name")
    assert options.xla_knows("xla_cpu_enable_fast_math"), "one that every version knows"
