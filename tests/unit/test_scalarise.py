"""Straight-line code on scalars: equal to the function, without needless operations, or refused."""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive

import dalembert as da
from dalembert.dependence import Degree, degree
from dalembert.operations import OPERATIONS
from dalembert.primitives import PRIMITIVES
from dalembert.stepping import newton
from dalembert.stepping.expressions import Program, vector
from dalembert.stepping.scalarise import MAX_SCALARS, NotScalarError, components, scalarise, stack
from tiers import tiered
from traced_functions import hidden_cosine
from vector_functions import DIFFERENTIABLE, FUNCTIONS, LOOPS, PICK, TABLE, X, Y


def evaluate(functions):
    """Values of every function, by name, all compiled together; a list of arrays each."""

    def run(x, y):
        return {n: [jnp.asarray(v) for v in jax.tree.leaves(f(x, y))] for n, f in functions.items()}

    return jax.jit(run)(jnp.asarray(X), jnp.asarray(Y))


def straighten(fun):
    """The straight-line code of a function of two vectors as an ordinary function."""
    code = scalarise(fun, X, Y)
    return lambda x, y: [stack(leaf) for leaf in jax.tree.leaves(code(x, y))]


def jacobian(fun):
    return jax.jacfwd(fun, argnums=(0, 1))


FAST_JACOBIANS = ("slices", "roll", "gather", "scatter-add", "einsum")
SLOW_JACOBIANS = tuple(name for name in DIFFERENTIABLE if name not in FAST_JACOBIANS)


@cache
def values(of_jacobians=()):
    """Values of all functions, or of some Jacobians: straight-line code and ordinary."""
    functions = {name: jacobian(FUNCTIONS[name]) for name in of_jacobians} or FUNCTIONS
    straight = {name: straighten(fun) for name, fun in functions.items()}
    return evaluate(straight), evaluate(functions)


def assert_same(straight, ordinary):
    assert [s.shape for s in straight] == [o.shape for o in ordinary]
    assert [s.dtype for s in straight] == [o.dtype for o in ordinary]
    for s, o in zip(straight, ordinary, strict=True):
        np.testing.assert_allclose(s, o, rtol=2e-15, atol=2e-15)


def operations(fun, *args):
    """The primitives that the straight-line code needs, given one traced value per component."""
    code = scalarise(fun, *args)
    sizes = [np.size(a) for a in args]
    starts = np.cumsum([0, *sizes])

    def on_scalars(*values):
        pieces = [vector(values[i : i + n]) for i, n in zip(starts[:-1], sizes, strict=True)]
        return [jnp.asarray(x) for leaf in jax.tree.leaves(code(*pieces)) for x in leaf.ravel()]

    jaxpr = jax.make_jaxpr(on_scalars)(*np.concatenate([np.ravel(a) for a in args])).jaxpr
    used, names = set(map(id, jaxpr.outvars)), []
    for eqn in reversed(jaxpr.eqns):
        if used & set(map(id, eqn.outvars)):
            used |= set(map(id, eqn.invars))
            names.append(eqn.primitive.name)
    return names


# --- equal to the function ---------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_straight_line_code_has_the_values_of_the_function(name):
    straight, ordinary = values()
    assert_same(straight[name], ordinary[name])


@pytest.mark.parametrize("name", tiered(DIFFERENTIABLE, fast=FAST_JACOBIANS))
def test_straight_line_code_has_the_values_of_the_jacobian(name):
    together = FAST_JACOBIANS if name in FAST_JACOBIANS else SLOW_JACOBIANS
    straight, ordinary = values(together)
    assert_same(straight[name], ordinary[name])


def test_derivatives_pass_through_straight_line_code():
    fun = FUNCTIONS["pairs"]
    code = scalarise(fun, X, Y)
    slope = jax.grad(lambda x: code(x, Y)[()])(jnp.asarray(X))
    np.testing.assert_allclose(slope, jax.grad(fun)(jnp.asarray(X), Y), rtol=1e-14)


@pytest.mark.parametrize("name", ["abs", "log", "sin", "cos", "square of abs"])
def test_derivatives_pass_through_functions_of_our_own(name):
    """They may look at the bits of a number, which have no derivative."""
    fun = {
        "abs": jnp.abs,
        "log": jnp.log,
        "sin": jnp.sin,
        "cos": jnp.cos,
        "square of abs": lambda x: jnp.abs(x) * x,
    }[name]
    x = np.abs(X) if name == "log" else X
    code = scalarise(fun, X)
    slope = jax.jacrev(lambda x: stack(code(x)))(jnp.asarray(x))
    np.testing.assert_allclose(slope, jax.jacrev(fun)(jnp.asarray(x)), rtol=1e-14, atol=1e-15)
    second = jax.jacfwd(jax.jacrev(lambda x: stack(code(x))))(jnp.asarray(x))
    ordinary = jax.jacfwd(jax.jacrev(fun))(jnp.asarray(x))
    np.testing.assert_allclose(second, ordinary, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", tiered(["heun", "midpoint"], fast=["heun"]))
def test_steps_can_be_differentiated_through_functions_of_our_own(name):
    method = da.METHODS[name]()
    system = da.System(
        H=lambda q, p: p[0] ** 2 / 2 + jnp.cos(q[0]),
        F=lambda q, p: -jnp.abs(p) * p + jnp.log(q),
        dim=1,
        name="all functions",
    )

    def end(z):
        q, p, _ = da.step(system, method, z[:1], z[1:], 0.1, [])
        return jnp.concatenate([q, p])

    z, small = jnp.array([2.0, 0.7]), 1e-6
    slopes = [(end(z + d) - end(z - d)) / (2 * small) for d in small * np.eye(2)]
    np.testing.assert_allclose(jax.jacfwd(end)(z), np.stack(slopes, axis=1), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "method"),
    tiered(
        product(["hidden", "sinc"], ["midpoint", "heun"]),
        fast=["hidden-heun", "sinc-heun"],
    ),
)
def test_derivatives_that_jax_was_told_are_those_of_a_step(name, method):
    """sin πq/πq is such a function; at q = 0 there is no derivative in what it executes."""
    potential = {"hidden": hidden_cosine, "sinc": jnp.sinc}[name]
    method = da.METHODS[method]()
    system = da.System(
        H=lambda q, p, c: p[0] ** 2 / 2 - c * potential(q[0]), dim=1, params=jnp.asarray(0.8)
    )

    def end(z):
        q, p, _ = da.step(system.with_params(z[2]), method, z[:1], z[1:2], 0.1, [])
        return q[0] + 2 * p[0]

    z, small = jnp.array([0.0, 0.0, 0.8]), 1e-4
    slopes = [(end(z + d) - end(z - d)) / (2 * small) for d in small * np.eye(3)]
    for find in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(jax.jit(find(end))(z), np.stack(slopes), rtol=1e-6, atol=1e-8)
    assert abs(slopes[0] - 1) > 0.1, "the force has no slope"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["midpoint", "stormer_verlet"])
@pytest.mark.parametrize("name", ["lgamma", "igamma"])
def test_functions_whose_second_derivatives_have_no_straight_line_form(name, method):
    """Or that JAX does not know: Newton's method needs first ones."""
    force = {
        "lgamma": lambda q, p: -lax.lgamma(2 + q**2),
        "igamma": lambda q, p: -lax.igamma(1 + q**2, 2 + p**2),
    }[name]
    system = da.System(H=lambda q, p: p[0] ** 2 / 2, F=force, dim=1)
    q, p, info = da.step(system, da.METHODS[method](), [0.5], [0.1], 0.1, [])
    assert info.converged
    if method == "midpoint":
        Q, P = (q + 0.5) / 2, (p + 0.1) / 2
        np.testing.assert_allclose(p - 0.1, 0.1 * force(Q, P), rtol=1e-13)
        np.testing.assert_allclose(q - 0.5, 0.1 * P, rtol=1e-13)


def test_whole_numbers_are_divided_and_subtracted_as_jax_does():
    def fun(x):
        whole = jnp.concatenate(
            [jnp.floor(10 * x).astype(jnp.int32), jnp.array([7, -7], jnp.int32)]
        )
        unsigned = jnp.floor(10 * jnp.abs(x)).astype(jnp.uint32)
        return lax.div(whole, jnp.full_like(whole, 2)), whole - 5, unsigned - np.uint32(1)

    found = jax.tree.map(stack, scalarise(fun, X)(jnp.asarray(X)))
    for a, b in zip(found, fun(jnp.asarray(X)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_straight_line_code_works_under_jit_and_vmap():
    fun = FUNCTIONS["circular"]
    code = scalarise(fun, X, Y)
    x, y = np.random.default_rng(1).normal(size=(2, 7, 3))
    many = jax.jit(jax.vmap(lambda x, y: stack(code(x, y))))(x, y)
    np.testing.assert_allclose(many, fun(x, y), rtol=1e-13)


def test_float32_stays_float32():
    def fun(x, y):
        return jnp.sin(x) * y / 3 + jnp.cumsum(x) - jnp.ones(3, x.dtype)

    x, y = jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32)
    found = stack(scalarise(fun, x, y)(x, y))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, fun(x, y), rtol=1e-6)


def test_arguments_may_be_trees():
    def fun(state, params):
        return params["k"] * state[0] + params["c"] * state[1]

    arguments = ((X, Y), {"k": X, "c": np.float64(2)})
    found = scalarise(fun, *arguments)(*arguments)
    np.testing.assert_allclose(found.astype(float), X * X + 2 * Y)


# --- known numbers among traced ones -------------------------------------------------------------

KNOWN = np.array([0.0, 1.0, -2.0, np.inf, np.nan])


def _among(x, known=KNOWN):
    """A vector in which the last entry is traced."""
    return jnp.concatenate([jnp.asarray(known, x.dtype), x[:1]])


def _wholes(x):
    return (4 * x).astype(jnp.int32)


def _with_wholes(x):
    return _among(_wholes(x), np.array([0, -1, -(2**31), 2**31 - 1, 33]))


OF_ONE = {
    name: getattr(lax, name)
    for name in [
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "bessel_i0e",
        "bessel_i1e",
        "cbrt",
        "ceil",
        "cos",
        "cosh",
        "digamma",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "is_finite",
        "lgamma",
        "log",
        "log1p",
        "logistic",
        "neg",
        "round",
        "rsqrt",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "stop_gradient",
    ]
}
OF_TWO = {
    name: getattr(lax, name)
    for name in (
        [
            "add",
            "sub",
            "mul",
            "div",
            "max",
            "min",
            "rem",
            "pow",
            "atan2",
            "nextafter",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "igamma",
            "igammac",
        ]
    )
}
OF_TWO_WHOLES = {
    name: getattr(lax, name)
    for name in [
        "add",
        "sub",
        "mul",
        "div",
        "rem",
        "max",
        "min",
        "eq",
        "lt",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
    ]
}
REDUCED = {
    "sum": jnp.sum,
    "product": jnp.prod,
    "maximum": jnp.max,
    "minimum": jnp.min,
    "any": lambda x: jnp.any(x > 1),
    "all": lambda x: jnp.all(x > -3),
    "cumsum": jnp.cumsum,
    "norm": jnp.linalg.norm,
    "dot": lambda x: jnp.dot(x, x[::-1]),
}
MIXED = {
    **{n: lambda x, y, f=f: f(_among(x)) for n, f in OF_ONE.items()},
    **{f"{n} of two": lambda x, y, f=f: f(_among(x), _among(y)[::-1]) for n, f in OF_TWO.items()},
    **{
        f"{n} of wholes": lambda x, y, f=f: f(_with_wholes(x), _with_wholes(y)[::-1])
        for n, f in OF_TWO_WHOLES.items()
    },
    **{f"{n} of all": lambda x, y, f=f: f(_among(x, KNOWN[:3])) for n, f in REDUCED.items()},
    "signs of wholes": lambda x, y: lax.abs(_with_wholes(x)) + lax.sign(_with_wholes(y)),
    "not": lambda x, y: ~_with_wholes(x),
    "choices": lambda x, y: jnp.where(_among(x) > 0, _among(y), _among(x)[::-1]),
    "clip": lambda x, y: jnp.clip(_among(x), -1.0, _among(y)[::-1]),
    "powers": lambda x, y: _among(x) ** 3 + _among(y)[::-1] ** -2,
    "whole powers": lambda x, y: _with_wholes(x) ** 3,
    "conversions": lambda x, y: _among(x, KNOWN * 300).astype(jnp.int8).astype(jnp.float64),
    "truth": lambda x, y: _among(x).astype(bool) & (_among(y) != 0),
    "bits": lambda x, y: lax.bitcast_convert_type(_among(x), jnp.int64),
    "fewer digits": lambda x, y: lax.reduce_precision(_among(x), 8, 10),
    "narrow dot": lambda x, y: lax.dot(
        _with_wholes(x).astype(jnp.int8),
        _with_wholes(y).astype(jnp.int8),
        preferred_element_type=jnp.int32,
    ),
    "scatter-add": lambda x, y: _among(x).at[PICK].add(_among(y)[2:]),
    "fourier": lambda x, y: jnp.sin(np.arange(3.0) * x[0]) + jnp.cos(np.arange(3.0) * x[0]),
    "log of a constant": lambda x, y: jnp.log(_among(x, [1.0, 2.0]) ** 2),
}


LONG = tuple(
    name for name in MIXED if name.startswith(("igamma", "lgamma", "digamma", "bessel", "erf_inv"))
)
"""Functions of which each takes a second to compile."""


@cache
def values_among_known(names):
    """Straight-line code, written out and evaluated inside jit and vmap; and ordinary values."""
    rows = np.stack([X, Y, [0.9, 0.1, -0.4]]), np.stack([Y, X, [2.5, -0.3, 0.8]])

    def late(change):
        def run(x, y):
            return {name: change(MIXED[name])(x, y) for name in names}

        return jax.jit(jax.vmap(run))(*rows)

    def straight(fun):
        return lambda x, y: stack(scalarise(fun, X, Y)(x, y))

    return late(straight), late(lambda fun: fun)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in MIXED],
)
def test_known_numbers_among_traced_ones_in_every_operation(name):
    together = LONG if name in LONG else tuple(other for other in MIXED if other not in LONG)
    straight, ordinary = (np.asarray(found[name]) for found in values_among_known(together))
    assert straight.dtype == ordinary.dtype
    np.testing.assert_allclose(straight, ordinary, rtol=4e-15, atol=4e-15)


def test_every_elementwise_operation_is_among_them():
    """All that may be applied entry by entry, but for what has been left out for a reason."""
    used = {
        eqn.primitive.name
        for fun in (*MIXED.values(), *FUNCTIONS.values())
        for eqn in jax.make_jaxpr(fun)(X, Y).jaxpr.eqns
    }
    each = {name for name, known in PRIMITIVES.items() if known.scalar == "each"}
    missing = each - used - {"one_minus_square", "log2", "clamp"}
    assert not missing


def test_types_without_rules_are_refused():
    functions = {
        "complex128": lambda x: jnp.real(jnp.exp(1j * x.astype(complex))),
        "bfloat16": lambda x: x.astype(jnp.bfloat16).astype(x.dtype),
        "float16": lambda x: (x.astype(jnp.float16) * np.float16(0.1)).astype(x.dtype),
        "bool": lambda x: jnp.dot(x > 0, x < 1).astype(x.dtype),
    }
    for kind, fun in functions.items():
        with pytest.raises(NotScalarError, match=kind):
            scalarise(fun, X)
    key = jax.random.key(1)
    with pytest.raises(NotScalarError, match="constants of type key"):
        scalarise(lambda x: x * jax.random.normal(key), X)


def test_components_and_stack_are_inverse():
    x = np.arange(6.0).reshape(2, 3)
    for values in (x, jnp.asarray(x)):
        parts = components(values)
        assert parts.dtype == object and parts.shape == (2, 3)
        np.testing.assert_array_equal(stack(parts), x)
        assert components(parts) is parts
    assert isinstance(components(x)[0, 1], np.float64)
    assert stack(components(np.zeros((0, 2))), np.float64).shape == (0, 2)


# --- known zeros and ones cost nothing ---------------------------------------------------------

BAND = np.array([[1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, -1.0]])

FOLDED = {
    "identity matrix": (lambda x: jnp.eye(3) @ x, []),
    "zero matrix": (lambda x: jnp.zeros((3, 3)) @ x, []),
    "band matrix": (lambda x: BAND @ x, ["mul", "add", "neg"]),
    "sum with zeros": (lambda x: jnp.sum(jnp.pad(x, 5)), ["add", "add"]),
    "dot": (lambda x: jnp.dot(x, x), ["mul"] * 3 + ["add"] * 2),
    "only moved": (lambda x: jnp.stack([x[::-1], jnp.roll(x, 1)]).T[:2].reshape(4), []),
    "zero minus": (lambda x: jnp.zeros(3) - x, ["neg"] * 3),
    "over one": (lambda x: (x - 0.0) / jnp.ones(3), []),
    "zero over": (lambda x: jnp.zeros(3) / x, []),
    "constants": (lambda x: x * jnp.sin(jnp.ones(3)) ** 0, []),
    "known choice": (lambda x: jnp.where(np.array([True, False, True]), x, 2 * x), ["mul"]),
    "gradient of a square": (jax.grad(lambda x: jnp.sum(x**2)), ["mul"] * 3),
    "hessian of a square": (jax.hessian(lambda x: jnp.sum(x**2)), []),
    "gradient of one entry": (jax.grad(lambda x: x[1]), []),
}


@pytest.mark.parametrize("name", FOLDED)
def test_known_zeros_and_ones_fold_away(name):
    fun, expected = FOLDED[name]
    assert sorted(operations(fun, X)) == sorted(expected)


def test_known_zeros_fold_away_as_if_numbers_were_finite():
    """As docs/system.md says: arrays keep what is infinite or no number."""
    for fun in (
        lambda x, _: 0 * jnp.log(-1 - x * x),
        lambda x, _: 0 * jnp.exp(1e4 + x * x),
        lambda x, _: 0 / (x - x),
    ):
        [folded] = straighten(fun)(X, Y)
        assert np.isnan(fun(jnp.asarray(X), Y)).all() and np.all(folded == 0)
    ends = {}
    for n in (1, 20):
        system = da.System(H=lambda q, p: p @ p / 2, F=lambda q, p: -q + 0 * jnp.log(-q), dim=n)
        ends[n] = da.step(system, da.heun(), np.ones(n), np.zeros(n), 0.1, [])[1]
    assert np.isfinite(ends[1]).all() and np.isnan(ends[20]).all()


@pytest.mark.skipif(not hasattr(lax, "polynomial"), reason="jnp.polyval is a loop")
def test_known_coefficients_of_a_polynomial_fold_away():
    def fun(x):
        return jnp.polyval(jnp.array([0.0, 1.0, 0.0, 3.0]), x)

    assert sorted(operations(fun, X)) == sorted(["mul", "add"] * 3)
    assert sorted(operations(jax.grad(lambda x: jnp.sum(fun(x))), X)) == ["mul"] * 3
    assert operations(jax.hessian(lambda x: jnp.sum(fun(x))), X) == []


def test_folding_removes_what_a_compiler_has_to_keep():
    """As arrays the product with the identity is a product; a full matrix stays one written out."""
    assert "dot_general" in str(jax.make_jaxpr(lambda x: jnp.eye(3) @ x)(X))
    full = np.arange(2.0, 11.0).reshape(3, 3)
    assert sorted(operations(lambda x: full @ x, X)) == ["add"] * 6 + ["mul"] * 9


# --- elimination -------------------------------------------------------------------------------


def eliminate(matrix, rhs):
    """The solution by written-out elimination; entries that are zero are known to be."""
    kept = matrix != 0

    def solve(entries, rhs):
        full = components(np.zeros_like(matrix))
        full[kept] = entries
        return newton._eliminated(full)(rhs)

    program = Program(solve, matrix[kept], rhs)
    return stack(program(jnp.asarray(matrix[kept]), jnp.asarray(rhs))), program.size


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_elimination_solves_linear_systems(n):
    rng = np.random.default_rng(n)
    matrix, rhs = np.eye(n) + 0.2 * rng.normal(size=(n, n)), rng.normal(size=n)
    matrix[rng.random((n, n)) < 0.3] = 0.0
    np.fill_diagonal(matrix, 1.5)
    found, _ = eliminate(matrix, rhs)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, rhs), rtol=1e-12, atol=1e-13)
    known = newton._eliminated(components(matrix))(components(rhs)).astype(float)
    np.testing.assert_allclose(known, found, rtol=1e-12, atol=1e-14)


def test_elimination_skips_known_zeros():
    def count(pattern):
        return eliminate(pattern + 4 * np.eye(4), np.ones(4))[1]

    diagonal, lower, full = np.eye(4), np.tril(np.ones((4, 4))), np.ones((4, 4))
    assert count(diagonal) == 2 * 4  # a reciprocal and a product each
    assert count(lower) == 2 * 4 + 6 * 3  # and a factor, a product, a difference below
    assert count(full) > 2 * count(lower)


def test_elimination_of_a_singular_matrix_is_not_finite():
    found, _ = eliminate(np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([1.0, 1.0]))
    assert not np.isfinite(found).any()


# --- names ------------------------------------------------------------------------------------


def line(x):
    return 3 * x + 1


NAMES = [
    "sin",
    "mul",
    "max",
    "while",
    *(op.__name__ for op in OPERATIONS.values()),
    *map(str, OPERATIONS),
]


def named(name, wrap=jax.jit):
    """A straight line under a name that somebody else uses too."""

    def fun(x):
        return line(x)

    fun.__name__ = fun.__qualname__ = name
    return wrap(fun)


def with_rule(fun):
    wrapped = jax.custom_jvp(fun)
    wrapped.defjvps(lambda tangent, _, x: 3 * tangent)
    return wrapped


@pytest.mark.parametrize(
    "wrap",
    tiered([jax.jit, with_rule, jax.checkpoint], fast=["with_rule"], name=lambda f: f.__name__),
)
def test_a_function_is_known_by_what_it_does_and_not_by_its_name(wrap):
    for name in NAMES:
        fun = named(name, wrap)
        found = scalarise(fun, X)(jnp.asarray(X))
        np.testing.assert_allclose(stack(found), line(X), rtol=1e-15)
        # A rule may say anything, so that such a function counts as nonlinear.
        told = Degree.NONLINEAR if wrap is with_rule else Degree.AFFINE
        assert degree(fun, (X,), (0,)) == told
    system = da.System(
        H=lambda q, p: p[0] ** 2 / 2, F=lambda q, p: -named("rough_inverse", wrap)(q), dim=1
    )
    q, p, info = da.step(system, da.midpoint(), [1.0], [0.5], 0.1, [])
    assert info.converged
    np.testing.assert_allclose(p[0], 0.5 - 0.1 * (3 * (1.0 + q[0]) / 2 + 1), rtol=1e-14)


@pytest.mark.parametrize("name", ["sin", "mul", "neg", "broadcast_in_dim", "while", "cond"])
def test_primitives_of_others_are_not_taken_for_those_of_jax(name):
    other = Primitive(name)
    other.def_impl(np.sqrt)
    other.def_abstract_eval(lambda x: x)
    with pytest.raises(NotScalarError, match=f"{name} of somebody else"):
        scalarise(other.bind, X)
    assert degree(other.bind, (X,), (0,)) == Degree.NONLINEAR


# --- what has no straight-line form ------------------------------------------------------------


@pytest.mark.parametrize("name", LOOPS)
def test_what_has_no_straight_line_form_is_refused_by_name(name):
    fun, reason = LOOPS[name]
    fun(jnp.asarray(X), jnp.asarray(Y))
    with pytest.raises(NotScalarError, match=f"^{reason}"):
        scalarise(fun, X, Y)


@pytest.mark.parametrize("fill", [None, 0.0, 2.0])
def test_places_out_of_bounds_are_refused(fill):
    def fun(x):
        return jnp.asarray(x).at[np.array([1, 7])].get(mode="fill", fill_value=fill)

    with pytest.raises(NotScalarError, match="gather out of bounds"):
        scalarise(fun, X)


def test_known_branches_are_taken():
    def fun(x, y):
        return lax.cond(True, lambda: 2 * x, lambda: y) + lax.switch(1, [lambda: x, lambda: y])

    found = stack(scalarise(fun, X, Y)(jnp.asarray(X), jnp.asarray(Y)))
    np.testing.assert_allclose(found, 2 * X + Y, rtol=1e-15)


def test_functions_of_too_many_scalars_are_refused():
    with pytest.raises(NotScalarError, match=f"more than {MAX_SCALARS} scalar operations"):
        scalarise(lambda x: jnp.sum(jnp.outer(x, x)), np.ones(200))


# --- the step falls back to arrays, and says so ------------------------------------------------


def quartic(q, p):
    return p[0] ** 2 / 2 + q[0] ** 2 / 2 + q[0] ** 4 / 4


def quartic_by_horner(q, p):
    value, _ = lax.scan(lambda c, a: (c * q[0] + a, None), jnp.zeros(()), jnp.array([0.25, 0, 0.5]))
    return p[0] ** 2 / 2 + value * q[0] ** 2


def cubic_drag(q, p):
    return -0.1 * p**3


def cubic_drag_in_a_loop(q, p):
    """−0.1 p³ by repeated products."""
    start = (jnp.zeros((), jnp.int32), -0.1 * jnp.ones_like(p))
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * p), start)[1]


def noise(q, p):
    return 0.3 * jnp.sin(q[0])


PLAIN = da.System(H=quartic, F=cubic_drag, h=[noise], dim=1, name="plain")
UNWRITABLE = {
    "scan": da.System(H=quartic_by_horner, F=cubic_drag, h=[noise], dim=1, name="horner"),
    "while": da.System(H=quartic, F=cubic_drag_in_a_loop, h=[noise], dim=1, name="loop"),
}


@pytest.mark.parametrize(
    ("name", "method"),
    tiered(
        product(UNWRITABLE, ["midpoint", "heun"]),
        fast=["scan-heun", "while-heun"],
    ),
)
def test_step_falls_back_to_arrays_with_equal_results(name, method):
    method = da.METHODS[method]()
    q, p, dW = np.array([0.8]), np.array([-0.4]), np.array([0.3])
    expected = da.step(PLAIN, method, q, p, 0.1, dW)
    found = da.step(UNWRITABLE[name], method, q, p, 0.1, dW)
    assert found[2].converged
    for a, b in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)
    text = da.explain(UNWRITABLE[name], method)
    assert "regime: arrays" in text and f"(no straight-line form for: {name})" in text
    assert "regime: scalars, written out" in da.explain(PLAIN, method)


def test_step_with_a_tabulated_potential_solves_the_midpoint_equations():
    """A potential that is linear between tabulated values has a lookup at a traced place."""

    def potential(q):
        cell = jnp.clip(jnp.floor(q).astype(jnp.int32), 0, 1)
        table, slope = jnp.asarray(TABLE), jnp.asarray(np.diff(TABLE))
        return table[cell] + slope[cell] * (q - cell.astype(q.dtype))

    system = da.System(H=lambda q, p: p[0] ** 2 / 2 + potential(q[0]), dim=1, name="table")
    text = " ".join(da.explain(system, da.midpoint()).split())
    assert "no straight-line form for: dynamic_slice at traced positions" in text
    q, p, dt = np.array([0.6]), np.array([0.5]), 0.25
    q1, p1, info = da.step(system, da.midpoint(), q, p, dt, [])
    assert info.converged
    force = -np.diff(TABLE)[int(np.floor((q[0] + q1[0]) / 2))]
    np.testing.assert_allclose(p1, p + dt * force, rtol=1e-15)
    np.testing.assert_allclose(q1, q + dt * (p + p1) / 2, rtol=1e-15)


# --- what is written out late -----------------------------------------------------------------


@jax.custom_jvp
def sine(x):
    """A sine whose second derivative, which fast steps of order three need, is a loop."""
    return jnp.sin(x)


@jax.custom_jvp
def slope(x):
    return jnp.cos(x)


def bend(x):
    return lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, -jnp.sin(x)), (0, x))[1]


sine.defjvps(lambda tangent, _, x: tangent * slope(x))
slope.defjvps(lambda tangent, _, x: tangent * bend(x))


def pendulum(q, p):
    return p[0] ** 2 / 2 - jnp.cos(q[0])


def systems_without_and_with_second_derivatives():
    drags = [lambda q, p, f=f: -0.1 * f(p) for f in (sine, jnp.sin)]
    return [da.System(H=pendulum, F=drag, h=[noise], dim=1) for drag in drags]


@pytest.mark.slow
def test_without_second_derivatives_newtons_method_takes_the_steps():
    own, plain = systems_without_and_with_second_derivatives()
    start, method = (np.array([0.3]), np.array([0.2])), da.midpoint()
    q, p, info = da.step(own, method, *start, 0.1, [0.1])
    assert info.converged and 0 < info.iterations < 10
    expected = da.step(plain, method, *start, 0.1, [0.1])
    np.testing.assert_allclose([q, p], expected[:2], rtol=1e-14)
    assert "scalars, written out" in da.explain(own, method)


@pytest.mark.slow
def test_without_second_derivatives_inside_jit_and_in_runs():
    own, plain = systems_without_and_with_second_derivatives()
    start, method = (np.array([0.3]), np.array([0.2])), da.midpoint()
    expected = da.step(plain, method, *start, 0.1, [0.1])
    inside = jax.jit(lambda q, p: da.step(own, method, q, p, 0.1, [0.1]))(*start)
    np.testing.assert_allclose(inside[:2], expected[:2], rtol=1e-14)
    options = dict(dt=0.1, t_end=0.3, paths=3, keep="final", progress=False)
    runs = [da.simulate(system, method, start, **options) for system in (own, plain)]
    np.testing.assert_allclose(runs[0].q, runs[1].q, rtol=1e-14)


@pytest.mark.slow
def test_brackets_of_fields_whose_second_derivatives_are_too_long():
    system = da.System(
        H=pendulum,
        F=lambda q, p: -0.3 * p * (1 + q**2),
        h=[lambda q, p: 0.3 * q[0] * p[0] + 0.2 * q[0] ** 3],
        f=[lambda q, p: -0.2 * p],
        dim=1,
    )
    method, start = da.METHODS["bracket_gauss"](), ([0.3], [0.2])
    _, _, info = da.step(system, method, *start, 0.1, da.Increments(dW=[0.1], dZ=[0.01]))
    assert info.converged
    run = da.simulate(system, method, start, dt=0.1, t_end=0.3, paths=3, progress=False)
    assert run.failed == 0 and run.residual < 1e-14
