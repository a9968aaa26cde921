"""How functions depend on their arguments: exact where it helps, never less than the truth."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dalembert as da
from dalembert.dependence import Degree, degree, is_linear
from dalembert.stepping.plan import Dependence
from dalembert.stepping.requirements import TermsTracedOnce, find_dependence
from dalembert.system import ALL as TOGETHER
from dalembert.system import NOISE_TERMS
from vector_functions import FUNCTIONS, LOOPS, MATRIX, PICK, X, Y

ZERO, CONSTANT, AFFINE, NONLINEAR = Degree

ALL = FUNCTIONS | {name: fun for name, (fun, _) in LOOPS.items()}


def degrees(fun):
    """The degrees in x and in y of a function of two vectors."""
    return degree(fun, (X, Y), (0,)), degree(fun, (X, Y), (1,))


FOUND = {
    "identity": (AFFINE, CONSTANT),
    "slices": (AFFINE, AFFINE),
    "roll": (AFFINE, AFFINE),
    "stack": (AFFINE, AFFINE),
    "pad": (AFFINE, CONSTANT),
    "pad with a value": (AFFINE, AFFINE),
    "reshape and transpose": (AFFINE, AFFINE),
    "split": (AFFINE, AFFINE),
    "gather": (AFFINE, CONSTANT),
    "dynamic slice at a known place": (AFFINE, CONSTANT),
    "dot": (AFFINE, AFFINE),
    "matrix times vector": (AFFINE, CONSTANT),
    "outer": (AFFINE, NONLINEAR),
    "batched dot": (AFFINE, NONLINEAR),
    "cross product": (AFFINE, AFFINE),
    "inverse of a constant": (AFFINE, CONSTANT),
    "mean": (AFFINE, CONSTANT),
    "variance": (NONLINEAR, CONSTANT),
    "cumsum": (AFFINE, AFFINE),
    "difference": (NONLINEAR, CONSTANT),
    "norm": (NONLINEAR, NONLINEAR),
    "pairs": (NONLINEAR, CONSTANT),
    "integer powers": (NONLINEAR, NONLINEAR),
    "circular": (NONLINEAR, NONLINEAR),
    "softplus": (NONLINEAR, AFFINE),
    "softplus of constants": (AFFINE, CONSTANT),
    "where": (NONLINEAR, NONLINEAR),
    "where with known choices": (AFFINE, AFFINE),
    "integer and back": (NONLINEAR, AFFINE),
    "float32 and back": (NONLINEAR, CONSTANT),
    "boolean as a number": (NONLINEAR, AFFINE),
    "jit": (AFFINE, CONSTANT),
    "vmap": (AFFINE, NONLINEAR),
    "custom vjp": (NONLINEAR, AFFINE),
    "known loop": (AFFINE, CONSTANT),
    "constant": (CONSTANT, CONSTANT),
    "nothing": (ZERO, ZERO),
    "sum of nothings": (ZERO, ZERO),
    "table": (NONLINEAR, AFFINE),
    "while": (NONLINEAR, CONSTANT),
    "reduction by an own operation": (NONLINEAR, AFFINE),
    "reduction of windows": (NONLINEAR, AFFINE),
}


@pytest.mark.parametrize("name", FOUND)
def test_degree_of_a_function(name):
    assert degrees(ALL[name]) == FOUND[name]


MORE = {
    "divided by a constant": (lambda x, y: x / 3 - y / (1 + MATRIX[0]), (AFFINE, AFFINE)),
    "divided by x": (lambda x, y: y / x, (NONLINEAR, AFFINE)),
    "constant power one": (lambda x, y: x**1 + 2, (AFFINE, CONSTANT)),
    "zero times anything": (lambda x, y: jnp.zeros(3) * jnp.sin(x) + y, (CONSTANT, AFFINE)),
    "zero times x alone": (lambda x, y: 0.0 * jnp.exp(x), (ZERO, ZERO)),
    "cosine of zero": (lambda x, y: jnp.cos(jnp.zeros(3)), (CONSTANT, CONSTANT)),
    "gradient of a linear function": (
        jax.grad(lambda x, y: jnp.sum(x * y)),
        (CONSTANT, AFFINE),
    ),
    "gradient of a quadratic function": (
        jax.grad(lambda x, y: x @ MATRIX[:3] @ x + x[1] * y[2]),
        (AFFINE, AFFINE),
    ),
    "gradient of a quadratic in one entry": (jax.grad(lambda x, y: x[0] ** 2), (AFFINE, CONSTANT)),
    "zeros in float32": (
        lambda x, y: x * jnp.zeros(3).astype(jnp.float32).astype(jnp.float64),
        (ZERO, ZERO),
    ),
    "gradient of a cubic": (jax.grad(lambda x, y: jnp.sum(x**3)), (NONLINEAR, CONSTANT)),
}


@pytest.mark.parametrize("name", MORE)
def test_degree_of_products_quotients_and_gradients(name):
    fun, expected = MORE[name]
    assert degrees(fun) == expected


def polynomial(*coefficients):
    """Lowest power of x first; a function of (x, y) for every coefficient."""
    return lambda x, y: lax.polynomial(x, [a(x, y) for a in coefficients])


POLYNOMIALS = {
    "straight line": ((lambda x, y: 2.0, lambda x, y: 3.0), (AFFINE, CONSTANT)),
    "parabola": ((lambda x, y: 2.0, lambda x, y: 3.0, lambda x, y: 1.0), (NONLINEAR, CONSTANT)),
    "no second power": ((lambda x, y: 2.0, lambda x, y: y, lambda x, y: 0.0), (AFFINE, AFFINE)),
    "only zeros": ((lambda x, y: 0.0, lambda x, y: 0.0), (ZERO, ZERO)),
    "coefficients with x": ((lambda x, y: y, lambda x, y: x), (NONLINEAR, AFFINE)),
    "coefficients with y": ((lambda x, y: x, lambda x, y: jnp.sin(y)), (AFFINE, NONLINEAR)),
    "nonlinear first": ((lambda x, y: jnp.sin(x), lambda x, y: y), (NONLINEAR, AFFINE)),
}


@pytest.mark.skipif(not hasattr(lax, "polynomial"), reason="no such operation")
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_degree_of_polynomials(name):
    coefficients, expected = POLYNOMIALS[name]
    assert degrees(polynomial(*coefficients)) == expected


CONSERVATIVE = {
    "x times y over y": (lambda x, y: x * y / y, (AFFINE, NONLINEAR)),
    "difference of equals": (lambda x, y: jnp.sin(x) - jnp.sin(x), (NONLINEAR, CONSTANT)),
    "power zero": (lambda x, y: x**0, (NONLINEAR, CONSTANT)),
    "scatter": (lambda x, y: jnp.asarray(x).at[PICK].add(2.0), (NONLINEAR, CONSTANT)),
    "maximum of one": (lambda x, y: jnp.max(x[:1]), (NONLINEAR, CONSTANT)),
    "both branches equal": (
        lambda x, y: jax.lax.cond(y[0] > 0, lambda: 2 * x, lambda: x + x),
        (NONLINEAR, NONLINEAR),
    ),
}


@pytest.mark.parametrize("name", CONSERVATIVE)
def test_what_the_analysis_cannot_see_counts_as_more_than_it_is(name):
    fun, expected = CONSERVATIVE[name]
    assert degrees(fun) == expected


SEEN_LINEAR = {
    "a product": (lambda x, y: jnp.sin(y) * x, True),
    "a sum of products": (lambda x, y: y @ x + x[0], True),
    "a choice by others": (lambda x, y: jnp.where(y > 0, x, -x), True),
    "beside zeros": (lambda x, y: jnp.concatenate([x, 0 * y]), True),
    "one more": (lambda x, y: x + 1, False),
    "beside others": (lambda x, y: jnp.concatenate([x, y]), False),
    "a square": (lambda x, y: x * x, False),
    "rounded": (lambda x, y: jnp.round(x, 12), False),
    "fewer digits": (lambda x, y: x.astype(np.float32), False),
    "a choice by itself": (lambda x, y: jnp.where(x > 0, x, 2 * x), False),
}


@pytest.mark.parametrize("name", SEEN_LINEAR)
def test_linear_is_what_is_affine_and_zero_at_zero(name):
    fun, expected = SEEN_LINEAR[name]
    assert is_linear(fun, (X, Y), (0,)) is expected


# --- never less than the truth -----------------------------------------------------------------


@cache
def everything():
    """All functions, compiled together, at several points (x, y) of shape (n, 3)."""

    def flat(fun, x, y):
        leaves = [jnp.ravel(leaf).astype(jnp.float64) for leaf in jax.tree.leaves(fun(x, y))]
        return jnp.concatenate(leaves)

    return jax.jit(jax.vmap(lambda x, y: {name: flat(fun, x, y) for name, fun in ALL.items()}))


@cache
def differences(argument):
    """f(z), f(z+a) − f(z) and f(z+a+b) − f(z+a) − f(z+b) + f(z) of all functions, z = x or y."""
    x, y, a, b = 1.5 * np.random.default_rng(3).normal(size=(4, 3))
    moved = [s * a + t * b for s in (0, 1) for t in (0, 1)]
    x = np.stack([x + (move if argument == 0 else 0) for move in moved])
    y = np.stack([y + (move if argument == 1 else 0) for move in moved])

    f = {name: np.asarray(values) for name, values in everything()(x, y).items()}
    return {n: (v[0], v[2] - v[0], v[3] - v[2] - v[1] + v[0]) for n, v in f.items()}


@pytest.mark.parametrize("argument", [0, 1], ids=["x", "y"])
@pytest.mark.parametrize("name", ALL)
def test_no_function_depends_on_its_arguments_by_more_than_its_degree(name, argument):
    value, first, second = differences(argument)[name]
    assert np.isfinite(second).all()
    rounding = 1e-6 if "float32" in name else 1e-13
    tolerance = rounding * (1 + np.abs(value).max())
    if np.abs(value).max() > 0:
        truth = CONSTANT
        if np.abs(first).max() > tolerance:
            truth = AFFINE
        if np.abs(second).max() > tolerance:
            truth = NONLINEAR
    else:
        truth = ZERO if np.abs(first).max() == 0 else AFFINE
    assert degree(ALL[name], (X, Y), (argument,)) >= truth


def test_the_check_above_can_fail():
    """Functions that are truly nonlinear show second differences: a degree of AFFINE would fail."""
    for name in ("circular", "integer powers", "pairs", "integer and back", "where"):
        assert np.abs(differences(0)[name][2]).max() > 1e-3


# --- arguments that are trees, and systems -----------------------------------------------------


def test_arguments_may_be_trees():
    def fun(state, params):
        return params["k"] * state[0] + jnp.sin(params["c"]) * state[1]

    args = ((X, Y), {"k": X, "c": np.float64(1)})
    assert degree(fun, args, (0,)) == AFFINE
    assert degree(fun, args, (1,)) == NONLINEAR
    assert degree(fun, args, (0, 1)) == NONLINEAR
    assert degree(lambda state, params: params["k"] * 2, args, (0,)) == CONSTANT


def test_parameters_are_never_taken_for_zero():
    """A parameter that is zero today has another value tomorrow: its terms must stay."""
    system = da.systems.damped_kubo(beta=0.0, nu=0.0)
    z = jax.ShapeDtypeStruct((1,), np.float64)
    found = find_dependence(TermsTracedOnce(system, z))
    assert found["F", 0] == Dependence(CONSTANT, AFFINE)
    assert found["h_p", 0] == Dependence(CONSTANT, AFFINE)


SYSTEMS = {
    "damped_kubo": {"H_p": "cl", "H_q": "lc", "F": "cl", "h_p": "cl", "h_q": "lc", "f": "cl"},
    "van_der_pol": {"H_p": "cl", "H_q": "lc", "F": "nl", "h_p": "00", "h_q": "cc", "f": "00"},
    "lenard_bernstein": {"H_p": "cl", "H_q": "nc", "F": "cl", "h_p": "00", "h_q": "cc", "f": "00"},
    "lorentz": {"H_p": "cl", "H_q": "nc", "F": "00", "h_p": "00", "h_q": "00", "f": "cl"},
    "langevin": {"H_p": "cl", "H_q": "lc", "F": "cl", "h_p": "00", "h_q": "cc", "f": "00"},
    "pendulum": {"H_p": "cl", "H_q": "nc", "F": "cl", "h_p": "00", "h_q": "nc", "f": "nl"},
    "planar": {"H_p": "cl", "H_q": "nc", "F": "nl", "h_p": "nn", "h_q": "nn", "f": "nl"},
}
LETTERS = {"0": ZERO, "c": CONSTANT, "l": AFFINE, "n": NONLINEAR}


@pytest.mark.parametrize("name", SYSTEMS)
def test_terms_of_the_ready_made_systems(name):
    """Per term two letters, for q and p: 0 (vanishes), c(onstant), l(inear), n(onlinear)."""
    system = da.SYSTEMS[name]()
    z = jax.ShapeDtypeStruct((system.dim,), np.float64)
    found = find_dependence(TermsTracedOnce(system, z))
    for term, letters in SYSTEMS[name].items():
        number = TOGETHER if system.is_joint and term in NOISE_TERMS else 0
        assert found[term, number] == tuple(LETTERS[letter] for letter in letters), term
