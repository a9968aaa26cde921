"""Expressions: every rule keeps the value and saves operations, and equal ones are one object."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dalembert import elementary
from dalembert.stepping import arithmetic as ar
from dalembert.stepping.expressions import (
    Expression,
    Graph,
    Program,
    Shared,
    apply,
    is_known,
    vector,
)

A, B, C = 0.7310585786300049, -1.3862943611198906, 2.718281828459045
THIRD = np.float64(1 / 3)


def number(x, dtype=np.float64):
    return np.asarray(x, dtype)[()]


def plain(name, operation):
    """An operation without any rule."""
    return lambda *args: apply(name, operation, args, np.float64)


PLAIN = {
    "add": plain("plain add", lax.add),
    "sub": plain("plain sub", lax.sub),
    "mul": plain("plain mul", lax.mul),
    "div": plain("plain div", lax.div),
    "neg": plain("plain neg", lax.neg),
    "abs": plain("plain abs", lax.abs),
    "max": plain("plain max", lax.max),
}
RULES = {
    "add": ar.add,
    "sub": ar.sub,
    "mul": ar.mul,
    "div": ar.div,
    "neg": ar.neg,
    "abs": ar.magnitude,
    "max": ar.maximum,
}


def program(formula, operations):
    """A formula of three numbers, with operations by name, as a program."""
    return Program(lambda x: vector([formula(operations, *x)]), np.zeros(3))


def value(code, numbers=(A, B, C)):
    return float(code(jnp.asarray(numbers))[0])


# Formulas with the operations that they need, by the rules. The exact ones change no bit.
EXACT = {
    "add zero": (lambda o, x, y, z: o["add"](x, number(0)), 0),
    "zero add": (lambda o, x, y, z: o["add"](number(0), x), 0),
    "sub zero": (lambda o, x, y, z: o["sub"](x, number(0)), 0),
    "zero sub": (lambda o, x, y, z: o["sub"](number(0), x), 1),
    "add negative": (lambda o, x, y, z: o["add"](x, o["neg"](y)), 1),
    "negative add": (lambda o, x, y, z: o["add"](o["neg"](y), x), 1),
    "sub negative": (lambda o, x, y, z: o["sub"](x, o["neg"](y)), 1),
    "negative of a difference": (lambda o, x, y, z: o["neg"](o["sub"](x, y)), 1),
    "negative twice": (lambda o, x, y, z: o["neg"](o["neg"](x)), 0),
    "times one": (lambda o, x, y, z: o["mul"](x, number(1)), 0),
    "times minus one": (lambda o, x, y, z: o["mul"](number(-1), x), 1),
    "minus one twice": (lambda o, x, y, z: o["mul"](number(-1), o["mul"](x, number(-1))), 0),
    "negative of a multiple": (lambda o, x, y, z: o["neg"](o["mul"](THIRD, x)), 1),
    "half of a multiple": (lambda o, x, y, z: o["mul"](number(0.5), o["mul"](THIRD, x)), 1),
    "multiple of a half": (lambda o, x, y, z: o["mul"](THIRD, o["mul"](x, number(0.5))), 1),
    "half twice": (lambda o, x, y, z: o["mul"](o["mul"](x, number(0.5)), number(2)), 0),
    "halves of factors": (
        lambda o, x, y, z: o["mul"](o["mul"](number(0.5), x), o["mul"](y, number(0.25))),
        2,
    ),
    "signs of factors": (lambda o, x, y, z: o["mul"](o["neg"](x), o["neg"](y)), 1),
    "over one": (lambda o, x, y, z: o["div"](x, number(1)), 0),
    "over four": (lambda o, x, y, z: o["div"](o["mul"](x, number(4)), number(4)), 0),
    "sign of a dividend": (lambda o, x, y, z: o["neg"](o["div"](o["neg"](x), y)), 1),
    "half of a dividend": (
        lambda o, x, y, z: o["mul"](number(2), o["div"](o["mul"](number(0.5), x), y)),
        1,
    ),
    "same twice": (lambda o, x, y, z: o["add"](o["mul"](x, y), o["mul"](y, x)), 2),
    "same sum": (lambda o, x, y, z: o["mul"](o["add"](x, y), o["add"](y, x)), 2),
    "absolute of a negative": (lambda o, x, y, z: o["abs"](o["neg"](x)), 1),
    "absolute twice": (lambda o, x, y, z: o["abs"](o["abs"](x)), 1),
    "absolute of a square": (lambda o, x, y, z: o["abs"](o["mul"](x, x)), 1),
    "absolute of a multiple": (lambda o, x, y, z: o["abs"](o["mul"](number(-3), x)), 2),
    "largest of itself": (lambda o, x, y, z: o["max"](x, x), 0),
    "largest either way": (
        lambda o, x, y, z: o["sub"](o["max"](x, y), o["add"](o["max"](y, x), z)),
        3,
    ),
    "minus a number": (lambda o, x, y, z: o["sub"](x, THIRD), 1),
}
CHANCE = np.random.default_rng(0).normal(size=(200, 3)) * 10.0 ** np.arange(-1, 2)


@pytest.mark.parametrize("name", EXACT)
def test_rules_keep_every_bit_and_save_operations(name):
    formula, needed = EXACT[name]
    short, long = program(formula, RULES), program(formula, PLAIN)
    assert short.size == needed
    assert short.size <= long.size
    run = [jax.jit(jax.vmap(lambda x, code=code: code(x)[0])) for code in (short, long)]
    np.testing.assert_array_equal(run[0](CHANCE), run[1](CHANCE))


@pytest.mark.parametrize("divisor", [3.0, 0.1, -7.0])
def test_quotients_by_known_numbers_are_products_to_one_rounding(divisor):
    halved = program(lambda o, x, y, z: o["mul"](o["div"](x, number(divisor)), number(0.5)), RULES)
    assert halved.size == 1
    found = np.asarray(jax.vmap(lambda x: halved(x)[0])(CHANCE))
    expected = CHANCE[:, 0] / divisor / 2
    np.testing.assert_allclose(found, expected, rtol=2.3e-16)
    assert (found != expected).any(), "nothing was rounded otherwise"


def test_rules_save_something():
    """Without rules most of the formulas need more operations: the comparison above can fail."""
    longer = [program(f, PLAIN).size > needed for f, needed in EXACT.values()]
    assert sum(longer) > 0.8 * len(longer)


# --- numbers that all paths share ----------------------------------------------------------------


SHARED = {
    "two factors": (lambda o, a, b, x, y: o["mul"](a, o["mul"](b, x)), 1),
    "factors of a product": (
        lambda o, a, b, x, y: o["mul"](o["mul"](a, x), o["mul"](y, o["mul"](b, number(3)))),
        2,
    ),
    "sign": (lambda o, a, b, x, y: o["neg"](o["mul"](x, o["neg"](a))), 1),
    "divisor": (lambda o, a, b, x, y: o["div"](o["mul"](a, x), b), 1),
    "dividend": (lambda o, a, b, x, y: o["mul"](b, o["div"](o["mul"](a, x), y)), 2),
    "absolute": (lambda o, a, b, x, y: o["abs"](o["mul"](o["mul"](a, x), b)), 2),
    "a known one": (lambda o, a, b, x, y: o["mul"](number(0.1), o["mul"](THIRD, x)), 1),
    "nothing else": (lambda o, a, b, x, y: o["add"](o["mul"](a, b), x), 1),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_factors_come_together(name):
    """One product per path is left of all of them, and results change by roundings at most."""
    formula, per_path = SHARED[name]

    def code(operations, kind):
        def fun(shared, own):
            return vector([formula(operations, *shared, *own)])

        return Program(fun, kind((2,), np.float64), jax.ShapeDtypeStruct((2,), np.float64))

    short, long = code(RULES, Shared), code(PLAIN, jax.ShapeDtypeStruct)
    assert sum(not node.is_shared for node in short.order) == per_path
    assert short.operations == {node.name for node in short.order if not node.is_shared}
    shared = jnp.array([A, B])
    found, expected = (
        jax.vmap(lambda x, code=code: code(shared, x)[0])(CHANCE[:, :2]) for code in (short, long)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_what_depends_on_shared_numbers_alone_is_shared():
    graph = Graph()
    a, x = graph.input(Shared((), np.float64)), graph.input(np.zeros(()))
    assert a.is_shared and not x.is_shared
    assert ar.add(a, number(1)).is_shared and ar.div(number(1), a).is_shared
    assert not ar.add(a, x).is_shared
    assert ar.mul(x, a).args == (a, x), "the shared factor is the first"


# --- known numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "formula",
    [
        lambda x: ar.mul(number(0), x),
        lambda x: ar.mul(x, number(0)),
        lambda x: ar.div(number(0), x),
        lambda x: ar.mul(ar.sub(number(2), number(2)), ar.add(x, x)),
    ],
)
def test_products_with_zero_are_zero(formula):
    code = Program(lambda x: vector([formula(x[0])]), np.zeros(1))
    assert code.size == 0
    (found,) = code(jnp.array([np.nan]))
    assert is_known(found) and found == 0


@pytest.mark.parametrize(
    ("operation", "ordinary"),
    [
        (ar.add, np.add),
        (ar.sub, np.subtract),
        (ar.mul, np.multiply),
        (ar.div, np.divide),
        (ar.maximum, np.maximum),
    ],
)
def test_arithmetic_agrees_with_numpy_whatever_is_known(operation, ordinary):
    for x in (-1.0, 0.0, 1.0, 2.5, 0.5):
        for y in (-1.0, 1.0, 0.3, -4.0):
            u, v = number(x), number(y)
            assert operation(u, v) == ordinary(u, v) and is_known(operation(u, v))
            for known in ((True, False), (False, True), (False, False)):

                def one(args, known=known, u=u, v=v):
                    pair = [w if k else a for a, w, k in zip(args, (u, v), known, strict=True)]
                    return vector([operation(*pair)])

                (found,) = Program(one, np.zeros(2))(jnp.array([x, y]))
                np.testing.assert_allclose(float(found), ordinary(u, v), rtol=2.3e-16)


@pytest.mark.parametrize("exponent", [-3, -1, 0, 1, 2, 3, 4, 7, 10])
def test_integer_powers(exponent):
    code = Program(lambda x: vector([ar.power(x[0], exponent)]), np.zeros(1))
    np.testing.assert_allclose(float(code(jnp.array([A]))[0]), A**exponent, rtol=1e-15)
    products = {0: 0, 1: 0, 2: 1, 3: 2, 4: 2, 7: 4, 10: 4}
    assert code.size == products[abs(exponent)] + (exponent < 0)
    assert ar.power(number(3.0), exponent) == 3.0**exponent


def test_products_use_products_that_are_there():
    """x y, (x z) y and (z x) (z y) need three: x y, its product with z, and that with z again."""

    def products(x):
        a, b, c = x
        first = ar.mul(a, b)
        return vector([first, ar.mul(ar.mul(a, c), b), ar.mul(ar.mul(c, a), ar.mul(c, b))])

    code = Program(products, np.zeros(3))
    assert code.size == 3
    expected = [A * B, A * B * C, A * B * C * C]
    np.testing.assert_allclose(np.array(code(jnp.asarray([A, B, C])), float), expected, rtol=4e-16)


def test_whole_numbers_stay_whole():
    seven, two = number(-7, np.int32), number(2, np.int32)
    assert ar.div(seven, two) == lax.div(seven, two) == -3
    assert ar.div(seven, two).dtype == np.int32

    def rules(x):
        half = ar.div(x[0], two)
        less = ar.sub(x[0], number(3, np.int32))
        return vector([half, less, ar.neg(ar.mul(number(3, np.int32), x[0]))])

    found = Program(rules, np.zeros(1, np.int32))(jnp.array([-9], jnp.int32))
    assert [int(x) for x in found] == [-4, -12, 27]
    assert all(x.dtype == np.int32 for x in found)
    word = Program(lambda x: vector([ar.sub(x[0], np.uint32(5))]), np.zeros(1, np.uint32))
    assert int(word(jnp.array([3], jnp.uint32))[0]) == 2**32 - 2


# --- whole numbers go around where they end, and floats reach theirs -----------------------------

PAIRS = {
    "add": (ar.add, lax.add),
    "sub": (ar.sub, lax.sub),
    "mul": (ar.mul, lax.mul),
    "div": (ar.div, lax.div),
    "max": (ar.maximum, lax.max),
}
ENDS = [0, 1, 2, 3, 7, 100, -1, -2, -7]
HOSTILE = [np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, -3.0, 1e200, -1e200, 4e307, 1e-200, 3e-308]


def ends(kind):
    """Hostile numbers of a type; no float is zero, because 0 x is 0 by a rule."""
    if kind == "float64":
        return np.array(HOSTILE)
    limits = np.iinfo(kind)
    wholes = [*ENDS, limits.min, limits.min + 1, limits.max]
    return np.unique(np.array([n for n in wholes if limits.min <= n <= limits.max], kind))


@pytest.mark.parametrize("kind", ["int8", "int32", "uint8", "uint32", "float64"])
@pytest.mark.parametrize("name", PAIRS)
def test_every_rule_holds_for_hostile_numbers_whichever_are_known(kind, name):
    rule, ordinary = PAIRS[name]
    numbers = ends(kind)
    x, y = (z.ravel() for z in np.meshgrid(numbers, numbers))
    expected = np.asarray(ordinary(x, y)).reshape(2 * numbers.shape)
    both = np.array([[rule(a, b) for a in numbers] for b in numbers])

    def of_all(other):
        def fun(z):
            left = [rule(known, z[0]) for known in numbers]
            return vector([*left, *(rule(z[0], known) for known in numbers)])

        code = Program(fun, np.zeros(1, kind))
        return jnp.stack([jnp.asarray(v) for v in code(other[None])])

    found = np.asarray(jax.jit(jax.vmap(of_all))(numbers))
    assert both.dtype == found.dtype == expected.dtype
    left, right = np.split(found, 2, axis=1)
    for values in (both, left, right.T):
        # XLA itself takes numbers below the least normal one for zero.
        np.testing.assert_allclose(values, expected, rtol=4e-16, atol=1e-307)


WHOLE = {
    "absolute of a square": lambda o, x, y, z: o["abs"](o["mul"](x, x)),
    "absolute of a negative": lambda o, x, y, z: o["abs"](o["neg"](x)),
    "absolute of a multiple": lambda o, x, y, z: o["abs"](o["mul"](np.int8(-3), x)),
    "negative of a difference": lambda o, x, y, z: o["neg"](o["sub"](x, y)),
    "multiple of a multiple": lambda o, x, y, z: o["mul"](np.int8(77), o["mul"](np.int8(5), x)),
    "products": lambda o, x, y, z: o["mul"](o["mul"](x, y), o["mul"](z, x)),
    "multiple of a quotient": lambda o, x, y, z: o["mul"](o["div"](x, np.int8(3)), np.int8(3)),
    "quotient of multiples": lambda o, x, y, z: o["div"](o["mul"](np.int8(2), x), y),
    "zero over": lambda o, x, y, z: o["div"](np.int8(0), y),
    "over itself": lambda o, x, y, z: o["div"](x, x),
}


@pytest.mark.parametrize("name", WHOLE)
def test_rules_for_floats_are_not_used_for_whole_numbers(name):
    formula = WHOLE[name]
    ordinary = {key: getattr(lax, key) for key in ("abs", "add", "div", "mul", "neg", "sub")}
    values = np.random.default_rng(1).integers(-128, 128, (300, 3)).astype(np.int8)
    values[:9] = np.stack(np.meshgrid([0, -128, -1], [0, -128, -1]), -1).reshape(9, 2)[:, [0, 1, 0]]
    code = Program(lambda x: vector([formula(RULES, *x)]), np.zeros(3, np.int8))
    # Not compiled, because XLA takes whole squares for positive as well (jax 0.10.2).
    found = jax.vmap(lambda x: jnp.asarray(code(x)[0]))(values)
    expected = jax.vmap(lambda x: jnp.asarray(formula(ordinary, *x)))(values)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, expected)


TINY, HUGE = number(1e-200), number(1e200)


@pytest.mark.parametrize(
    ("formula", "x"),
    [
        (lambda o, x, y, z: o["mul"](TINY, o["mul"](TINY, x)), 1e300),
        (lambda o, x, y, z: o["mul"](HUGE, o["mul"](HUGE, x)), 1e-300),
        (lambda o, x, y, z: o["mul"](o["mul"](TINY, x), o["mul"](TINY, x)), 1e180),
        (lambda o, x, y, z: o["div"](x, number(1.7e308)), 1e308),
        (lambda o, x, y, z: o["div"](o["mul"](HUGE, x), number(1e-180)), 1e-300),
    ],
)
def test_known_factors_stay_apart_where_their_product_would_lose_digits(formula, x):
    found, expected = (value(program(formula, o), (x, 1.0, 1.0)) for o in (RULES, PLAIN))
    assert 0 < expected < np.inf
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_single_precision_stays_single():
    def formula(x):
        third = number(1 / 3, np.float32)
        return vector([ar.magnitude(ar.neg(ar.div(ar.mul(x[0], third), x[1]))), ar.power(x[0], -2)])

    found = Program(formula, np.zeros(2, np.float32))(jnp.array([A, B], jnp.float32))
    assert all(x.dtype == jnp.float32 for x in found)
    np.testing.assert_allclose([float(x) for x in found], [abs(A / 3 / B), A**-2], rtol=3e-7)


# --- equal expressions, dead code, order ----------------------------------------------------------


def test_equal_expressions_are_one_object():
    graph = Graph()
    x, y = graph.input(np.zeros(())), graph.input(np.zeros(()))
    assert ar.add(x, y) is ar.add(y, x) and ar.mul(x, y) is ar.mul(y, x)
    assert ar.mul(number(3), x) is ar.mul(x, number(3))
    assert ar.sub(x, y) is ar.sub(x, y)
    assert ar.magnitude(ar.neg(x)) is ar.magnitude(x)
    assert ar.neg(ar.sub(x, y)) is ar.sub(y, x)
    sine = [apply("sin", lax.sin, (x,), np.float64) for _ in range(2)]
    assert sine[0] is sine[1]


def test_different_expressions_are_different_objects():
    graph = Graph()
    x, y = graph.input(np.zeros(())), graph.input(np.zeros(()))
    assert x is not y
    assert ar.sub(x, y) is not ar.sub(y, x) and ar.div(x, y) is not ar.div(y, x)
    assert ar.mul(number(3), x) is not ar.mul(number(3 + 4e-16), x)
    assert ar.add(x, y) is not ar.mul(x, y)
    narrow = apply("to", lax.sin, (x,), np.float32)
    assert narrow is not apply("to", lax.sin, (x,), np.float64)
    other = Graph().input(np.zeros(()))
    assert ar.neg(other) is not ar.neg(x)


def test_what_no_result_needs_is_dropped():
    seen = []

    def noted(x):
        seen.append(1)
        return lax.exp(x)

    def formula(x):
        unused = apply("exp", noted, (x[0],), np.float64)
        ar.add(unused, x[1])
        ar.mul(number(0), unused)
        return vector([ar.add(x[0], ar.mul(unused, number(0)))])

    code = Program(formula, np.zeros(2))
    (found,) = code(jnp.array([A, B]))
    assert code.size == 0 and not seen and float(found) == A
    kept = Program(lambda x: vector([apply("exp", noted, (x[0],), np.float64)]), np.zeros(1))
    assert kept.size == 1
    kept(jnp.array([A]))
    assert seen == [1], "an operation that is needed is evaluated once"


def test_long_chains_need_no_recursion():
    def formula(x):
        total = x[0]
        for k in range(20_000):
            total = ar.add(total, x[k % 2])
        return vector([total])

    code = Program(formula, np.zeros(2))
    assert code.size == 20_000


# --- programs ------------------------------------------------------------------------------------


def test_programs_take_and_give_trees_of_arrays():
    def formula(state, params):
        product = vector(ar.mul(x, params["k"][()]) for x in state["q"].ravel())
        return {"q": product.reshape(state["q"].shape), "c": params["c"]}

    like = ({"q": np.zeros((2, 3))}, {"k": np.float64(0), "c": np.zeros(2)})
    code = Program(formula, *like)
    q, c = np.arange(6.0).reshape(2, 3), np.array([4.0, 5.0])
    found = code({"q": jnp.asarray(q)}, {"k": jnp.asarray(3.0), "c": c})
    assert found["q"].shape == (2, 3)
    np.testing.assert_array_equal(found["q"].astype(float), 3 * q)
    np.testing.assert_array_equal(found["c"].astype(float), c)
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is shorter"):
        code({"q": jnp.zeros(5)}, {"k": jnp.asarray(3.0), "c": c})


def test_known_numbers_given_to_a_program_stay_known():
    code = Program(lambda x: vector([ar.add(x[0], x[1]), x[1]]), np.zeros(2))
    total, second = code(vector([jnp.asarray(A), number(B)]))
    assert is_known(second) and float(total) == A + B


def test_absolute_values_have_signs_and_slopes():
    x = jnp.array([-2.5, -0.0, 0.0, 1.5, -np.inf, np.nan])
    for dtype in (np.float64, np.float32):
        found = np.asarray(elementary.absolute(x.astype(dtype)))
        assert found.dtype == dtype and not np.signbit(found[:-1]).any()
        np.testing.assert_array_equal(found, np.abs(np.asarray(x, dtype)))
        slopes = jax.vmap(jax.grad(elementary.absolute))(x[jnp.array([0, 3])].astype(dtype))
        np.testing.assert_array_equal(slopes, [-1, 1])


def test_expressions_number_themselves_in_the_order_of_evaluation():
    graph = Graph()
    x = graph.input(np.zeros(()))
    chain = [x]
    for _ in range(5):
        chain.append(ar.add(chain[-1], x))
    assert [node.number for node in chain] == sorted(node.number for node in chain)
    assert all(isinstance(node, Expression) and node.graph is graph for node in chain)
