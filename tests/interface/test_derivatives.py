"""Derivatives of steps, of scans over steps and of runs, against differences.

Every function has a degree of freedom of its own, so that one trace serves many of them. A trace is
computed operation by operation: compilers would take minutes for what is seen once.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import primitives

import dalembert as da
from dalembert.primitives import PRIMITIVES
from dalembert.traces import apply_equation, called, closed, equations, evaluate
from tiers import tiered
from traced_functions import hidden_cosine, hidden_sine

S = jax.scipy.special


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@jax.custom_jvp
def wrong_sine(x):
    return jnp.sin(x)


# Its first derivative is right, and the second is none.
wrong_sine.defjvps(lambda tangent, _, x: tangent * lax.stop_gradient(jnp.cos(x)))

FUNCTIONS = {
    "sin": (jnp.sin, 0.6), "cos": (jnp.cos, 0.6), "tan": (jnp.tan, 0.5),
    "both": (lambda x: jnp.sin(x) * jnp.cos(x), 0.5), "log": (jnp.log, 0.8),
    "asin": (jnp.arcsin, 0.4), "acos": (jnp.arccos, 0.4), "atan": (jnp.arctan, 0.6),
    "atan2": (lambda x: jnp.arctan2(x, 0.7 + x**2), 0.6), "own": (hidden_sine, 0.6),
    "sinh": (jnp.sinh, 0.6), "cosh": (jnp.cosh, 0.6), "tanh": (jnp.tanh, 0.4),
    "asinh": (jnp.arcsinh, 0.6), "acosh": (jnp.arccosh, 1.8), "atanh": (jnp.arctanh, 0.4),
    "exp": (jnp.exp, 0.5), "exp2": (jnp.exp2, 0.5), "expm1": (jnp.expm1, 0.5),
    "log1p": (jnp.log1p, 0.5), "log2": (jnp.log2, 0.9), "logistic": (jax.nn.sigmoid, 0.8),
    "sqrt": (jnp.sqrt, 0.9), "rsqrt": (lax.rsqrt, 0.9), "cbrt": (jnp.cbrt, 0.9),
    "square": (jnp.square, 0.5), "integer_pow": (lambda x: x**5 + x**-2, 0.9),
    "pow": (lambda x: x**1.7 + x**x + 1.3**x, 0.8), "div": (lambda x: (1 - x) / (2 + x**3), 0.7),
    "abs": (lambda x: jnp.abs(x) ** 3 * x, -0.7), "sign": (lambda x: jnp.sign(x) * x**4, -0.7),
    "max": (lambda x: jnp.maximum(x, 0.2) ** 4, 0.7), "min": (lambda x: lax.min(x, 2.0) ** 4, 0.7),
    "clamp": (lambda x: lax.clamp(-1.0, x, 1.0) ** 4, 0.7), "rem": (lambda x: (x % 0.4) ** 4, 0.6),
    "floor": (lambda x: jnp.floor(4 * x) * x**4, 0.7), "ceil": (lambda x: jnp.ceil(x) * x**4, 0.7),
    "round": (lambda x: jnp.round(x) * x**4, 0.7), "erf": (S.erf, 0.5), "erfc": (S.erfc, 0.5),
    "erf_inv": (S.erfinv, 0.3), "lgamma": (S.gammaln, 1.3), "digamma": (S.digamma, 1.3),
    "bessel_i0e": (S.i0e, 0.7), "bessel_i1e": (S.i1e, 0.7),
    "igamma": (lambda x: S.gammainc(1.5, x), 0.8),
    "igammac": (lambda x: S.gammaincc(1.5, x), 0.8),
    "select_n": (lambda x: jnp.where(x > 0, x**4, x), 0.7),
    "hypot": (lambda x: jnp.hypot(x, 0.7), 0.6), "sinc": (jnp.sinc, 0.3),
    "gelu": (jax.nn.gelu, 0.4),
    "softplus": (jax.nn.softplus, 0.4),
    "logsumexp": (lambda x: jax.nn.logsumexp(jnp.stack([x, x**2])), 0.6),
    "polynomial": (lambda x: jnp.polyval(jnp.array([0.5, -1.0, 0.3, 0.2, 1.0]), x), 0.6),
    "cumsum": (lambda x: jnp.sum(jnp.cumsum(jnp.stack([x, x**2, x**3])) ** 2), 0.6),
    "product": (lambda x: jnp.prod(jnp.stack([x, 1 + x, x**2])), 0.6),
    "dot": (lambda x: jnp.stack([x, x**3]) @ jnp.stack([jnp.sin(x), x]), 0.6),
}  # fmt: skip
"""Functions of a number, and where their derivatives are looked at."""

SIZE = 8
GROUPS = {
    "-".join(names): names
    for names in (tuple(FUNCTIONS)[i : i + SIZE] for i in range(0, len(FUNCTIONS), SIZE))
}
"""Of so many degrees of freedom steps are written out on scalars."""

STEPS, DT = 2, 0.2


def separable(functions):
    """One degree of freedom for each function, with a parameter in front of it."""
    return da.System(
        H=lambda q, p, c: jnp.sum(p**2) / 2 + sum(c[i] * g(q[i]) for i, g in enumerate(functions)),
        dim=len(functions),
        params=jnp.ones(len(functions)),
    )


def end(kind, system, method, s, q):
    """What is left at last of every degree of freedom; its start and its parameter are moved."""
    system, start = system.with_params(1 + 0.3 * s), (q + s, 0.05 + 0.0 * s)
    if kind == "run":
        run = da.simulate(
            system, method, start, dt=DT, t_end=DT * STEPS, save_every=STEPS, keep="final",
            observe={"q": lambda q, p, c: q[0]}, progress=False,
        )  # fmt: skip
        return run.q[0] + 2 * run.p[0]

    def step(z, _):
        return da.step(system, method, *z, DT, [])[:2], None

    q, p = step(start, None)[0] if kind == "step" else lax.scan(step, start, None, STEPS)[0]
    return q + 2 * p


def forward(fun):
    return lambda s: jax.jvp(fun, (s,), (jnp.ones_like(s),))[1]


def reverse(fun):
    def derivative(s):
        found, back = jax.vjp(fun, s)
        return back(jnp.ones_like(found))[0]

    return derivative


def nested(fun, ways):
    """Derivatives of derivatives, the first letter first; entries do not know of each other."""
    return functools.reduce(lambda f, way: {"f": forward, "r": reverse}[way](f), ways, fun)


def computed(trace, *args):
    """The results of a trace, as it is: every operation by itself, and every turn of a scan."""
    return evaluate(trace, args, _equation, lambda x, kind: jnp.asarray(x, kind.dtype))


def _equation(eqn, args):
    if eqn.primitive.name == "scan":
        return _scan(closed(eqn.params["jaxpr"]), eqn.params, args)
    inner = called(eqn)
    return apply_equation(eqn, args) if inner is None else computed(inner, *args)


def _scan(body, params, args):
    consts, carries = params["num_consts"], params["num_carry"]
    fixed, carry, xs = args[:consts], args[consts : consts + carries], args[consts + carries :]
    order = range(params["length"])[:: -1 if params["reverse"] else 1]
    rows = {}
    for i in order:
        out = computed(body, *fixed, *carry, *(x[i] for x in xs))
        carry, rows[i] = out[:carries], out[carries:]
    stacked = [jnp.stack(column) for column in zip(*(rows[i] for i in sorted(rows)), strict=True)]
    return [*carry, *stacked]


def at_places(fun, q, shifts=(0.0,)):
    """Derivatives of a traced function along all starts at once, at some shifts of them."""
    trace = jax.make_jaxpr(fun)(jnp.zeros(len(q)))
    return [np.asarray(computed(trace, jnp.full(len(q), shift))[0]) for shift in shifts]


SMALL = 1e-3


def difference(fun, q):
    """The slope of a function to fourth order."""
    low2, low, high, high2 = at_places(fun, q, (-2 * SMALL, -SMALL, SMALL, 2 * SMALL))
    return (8 * (high - low) - (high2 - low2)) / (12 * SMALL)


FIRST, SECOND = ["f", "r"], ["ff", "fr", "rf", "rr"]
THIRD = [way + ways for way in "fr" for ways in SECOND]


def check(fun, q, ways):
    """Derivatives against differences of those of one order less, which are such themselves."""
    for order in sorted({len(way) for way in ways}):
        slope = difference(nested(fun, "f" * (order - 1)), q)
        for way in (way for way in ways if len(way) == order):
            found = at_places(nested(fun, way), q)[0]
            np.testing.assert_allclose(found, slope, rtol=1e-7, atol=1e-8, err_msg=way)
        assert np.all(np.abs(slope) > 1e-4), "nothing to be seen"


def check_functions(kind, names, ways):
    functions, places = zip(*(FUNCTIONS[name] for name in names), strict=True)
    system, q = separable(functions), np.array(places)
    check(lambda s: end(kind, system, da.stormer_verlet(), s, q), q, ways)


@pytest.mark.parametrize("way", tiered(["rf", "rr", "rfr"], fast=["rf"]))
def test_a_scan_does_not_forget_derivatives_that_jax_was_told(way):
    """It does forget them in functions as they are (jax 0.10), so that these cases can fail."""
    check_functions("scan", ["own"], [way])

    def repeated(s):
        return lax.scan(lambda x, _: (hidden_sine(x), None), 0.6 + s, None, STEPS)[0]

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(repeated, np.zeros(1), [way])


@pytest.mark.slow
def test_a_run_does_not_forget_the_derivatives_of_its_observables():
    """Means of what is observed at saves, and of what is kept of paths."""

    def mean(s):
        run = da.simulate(
            separable([hidden_sine]).with_params(1 + 0.3 * s),
            da.stormer_verlet(), (0.6 + s, 0 * s),
            dt=DT, t_end=DT * STEPS, save_every=STEPS, progress=False,
            observe={"cosine": lambda q, p, c: hidden_cosine(q[0])},
        )  # fmt: skip
        return run.mean["cosine"][-1:]

    check(mean, np.zeros(1), ["rf"])


NOT_SMOOTH = {"is_finite", "nextafter", "reduce_precision", "stop_gradient", "copy", "copy_p"}


def test_every_function_that_has_a_form_on_scalars_is_among_these():
    """But for comparisons and bits, and what has no derivative."""
    named = {"fold", "each", "power", "polynomial", "choice", "cumsum", "dot"}
    wanted = {
        name
        for name, facts in PRIMITIVES.items()
        if facts.scalar.split(" ")[0] in named
        and not facts.vector.startswith(("comparison", "bits", "shift"))
        and hasattr(primitives, f"{name}_p")  # Others come with later versions of JAX.
    }
    traces = [jax.make_jaxpr(jax.grad(g))(at) for g, at in FUNCTIONS.values()]
    traces += [jax.make_jaxpr(g)(at) for g, at in FUNCTIONS.values()]
    found = {eqn.primitive.name for trace in traces for eqn in equations(trace)}
    assert wanted - found - NOT_SMOOTH == set()


def rotated(ways):
    """Every group of functions with one of the nestings, and every nesting with one of them."""
    cases = [(label, ways[i % len(ways)]) for i, label in enumerate(GROUPS)]
    assert len(cases) >= len(ways)
    return cases


@pytest.mark.slow
@pytest.mark.parametrize("label", GROUPS)
def test_every_function_in_every_nesting_through_a_scan(label):
    check_functions("scan", GROUPS[label], FIRST + SECOND + THIRD)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["step", "run"])
@pytest.mark.parametrize(("label", "way"), rotated(THIRD))
def test_every_function_through_a_step_and_a_run(kind, label, way):
    check_functions(kind, GROUPS[label], [way])


def test_a_derivative_of_each_order_in_one_step():
    check_functions("step", ["cos"], ["r", "fr", "rfr"])


@pytest.mark.parametrize("way", ["rf", "rr"])
def test_a_wrong_derivative_is_seen(way, monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "wrong", (wrong_sine, 0.6))
    check_functions("step", ["own"], [way])
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_functions("step", ["wrong"], [way])


ON_ARRAYS = ("sin", "cos", "both", "log", "abs", "pow", "erf", "lgamma", "own", "select_n", "tanh")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["frf", "rrr"])
def test_functions_on_arrays(way):
    """Of more degrees of freedom nothing is written out."""
    check_functions("scan", ON_ARRAYS, ["rf", way])


def tied(dim):
    """A system whose positions and momenta are in every equation together."""

    def H(q, p, c):
        kinetic = p**2 / 2 * (1 + 0.3 * jnp.sin(q)) + 0.1 * q * p**3
        return jnp.sum(kinetic + c * (jnp.cos(q) + jnp.log(2 + q) + jnp.tanh(q * p)))

    return da.System(H=H, dim=dim, params=jnp.ones(dim))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dim", "way"),
    [
        *(("scan", 1, way) for way in THIRD),
        *(("step", 1, way) for way in ("frf", "rrr")),
        ("run", 1, "frf"),
        ("scan", 10, "frf"),
    ],
)
def test_derivatives_through_equations_of_positions_and_momenta(kind, dim, way):
    """Stage equations are solved, and their solutions differentiated."""
    q = 0.4 + 0.3 * np.arange(dim) / dim
    fun = functools.partial(end, kind, tied(dim), da.midpoint())
    check(lambda s: fun(s, q), q, ["rf", way])
