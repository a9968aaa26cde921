"""Vector code for the CPU: the same numbers as XLA, in every width, or a clear way back to it."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dalembert as da
from dalembert import elementary
from dalembert.stepping.stepper import make_stepper
from dalembert.stepping.wider import wider

pytest.importorskip("llvmlite")

from dalembert.ensemble.lanes import NoVectorFormError
from dalembert.ensemble.native import NativeMarch, PathCode, compile_march, machine_code, trace_path
from tiers import tiered
from vector_code import on_lanes

X = np.array([0.3, -0.7, 1.2, 0.0, -2.5, 7.25, 1e-3, 40.0])
POSITIVE = np.abs(X) + 0.1
WHOLE = np.array([0, 1, 2, 3, 77, 2**31, 2**32 - 1, 12345], np.uint32)


@jax.jit
def rough_inverse(x):
    """Somebody else's function under a name of ours."""
    return 3 * x + 1


FUNCTIONS = {
    "arithmetic": (lambda x: x * 3.0 - 1.0 / (x * x + 2.0) + (-x), X),
    "powers": (lambda x: x**3 + x**-2 + x**0 + lax.integer_pow(x, 5), POSITIVE),
    "roots": (lambda x: jnp.sqrt(x) + lax.rsqrt(x), POSITIVE),
    "square": (lambda x: jnp.square(x) + jnp.abs(x), X),
    "rounding": (lambda x: jnp.floor(x) + 10 * jnp.ceil(x), X),
    "signs": (lambda x: jnp.sign(x), X),
    "extremes": (lambda x: jnp.maximum(x, 0.5) - jnp.minimum(x, jnp.square(x)), X),
    "choice": (lambda x: jnp.where(x > 0, x, 2 * x) + jnp.where(x <= 0.3, 1.0, 0.0), X),
    "finite": (lambda x: jnp.where(jnp.isfinite(1 / x), x, -1.0), X),
    "not a number": (lambda x: jnp.maximum(x, jnp.sqrt(x)), X),
    "functions": (lambda x: jnp.exp(x) + jnp.tanh(x) + jnp.sin(x) + jnp.cos(x), X),
    "logarithms": (lambda x: jnp.log(x) + jnp.exp2(x / 50) + x**0.3, POSITIVE),
    "bits": (lambda n: ((n ^ np.uint32(5)) << np.uint32(3)) | (n >> np.uint32(7)) & ~n, WHOLE),
    "wide product": (
        lambda n: ((n.astype(jnp.uint64) * np.uint64(0xD2511F53)) >> np.uint64(32)).astype(
            jnp.uint32
        ),
        WHOLE,
    ),
    "integers to floats": (
        lambda n: n.astype(jnp.float64) + (n >> np.uint32(1)).astype(jnp.int32).astype(jnp.float64),
        WHOLE,
    ),
    "floats to integers": (lambda x: x.astype(jnp.int32).astype(jnp.float64), X),
    "bits of floats": (
        lambda x: lax.bitcast_convert_type(
            lax.shift_right_arithmetic(lax.bitcast_convert_type(x, jnp.int64), jnp.int64(3)),
            jnp.float64,
        ),
        POSITIVE,
    ),
    "single precision": (lambda x: (x.astype(jnp.float32) * 3).astype(jnp.float64), X),
    "jit inside": (lambda x: jax.jit(lambda y: y * y)(x) + 1, X),
    "a name of ours": (rough_inverse, X),
    "our sine and cosine": (lambda x: elementary.sin(x) + 2 * elementary.cos(x), X),
    "our logarithm": (lambda x: elementary.log(x) * elementary.absolute(-x), POSITIVE),
    "our inverse": (lambda x: elementary.rough_inverse(x).astype(jnp.float32), POSITIVE),
    "loop": (
        lambda x: lax.while_loop(
            lambda s: (s[0] > 1) & (s[1] < 50), lambda s: (s[0] / 2, s[1] + 1), (x, 0.0)
        )[1],
        X,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_operation_has_the_values_of_xla(name):
    fun, values = FUNCTIONS[name]
    expected = np.asarray(jax.jit(jax.vmap(fun))(values))
    (found,) = on_lanes(fun, values)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=4e-16, atol=4e-16)


def test_lanes_of_a_loop_stop_when_they_are_done():
    fun, values = FUNCTIONS["loop"]
    assert len(set(on_lanes(fun, values)[0])) > 2, "lanes take different numbers of passes"


# --- numbers at the ends of their types, and what LLVM leaves open -------------------------------

FLOATS = ["float64", "float32"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

LARGE = [127.9, 128.0, -128.9, -129.0, 255.9, 300.0, 2.0**31, -(2.0**31) - 1, 2.0**32, 9.3e18]
HOSTILE = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, 3.0, 70.0]
HOSTILE += [*LARGE, -9.3e18, 1.9e19, 1e30, -1e30, 3e38, 1e-37]
WHOLES = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, -1, -2, -3, -7]

OF_ONE = {
    "neg": lax.neg,
    "sign": lax.sign,
    "square": lax.square,
    "third power": lambda x: lax.integer_pow(x, 3),
    "power zero": lambda x: lax.integer_pow(x, 0),
}
OF_A_FLOAT = {
    "abs": lax.abs,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "sqrt": lax.sqrt,
    "rsqrt": lax.rsqrt,
    "one over a root": lambda x: lax.div(np.ones((), x.dtype)[()], lax.sqrt(x)),
    "inverse": lambda x: lax.div(np.ones((), x.dtype)[()], x),
    "exp": lax.exp,
    "log": lax.log,
    "sin": lax.sin,
    "cos": lax.cos,
    "tan": lax.tan,
    "tanh": lax.tanh,
    "negative power": lambda x: lax.integer_pow(x, -3),
    "is finite": lax.is_finite,
    "largest beside NaN": lambda x: lax.max(np.full((), np.nan, x.dtype)[()], x),
}
OF_TWO = {
    name: getattr(lax, name)
    for name in ["add", "sub", "mul", "div", "max", "min", "eq", "ne", "lt", "le", "gt", "ge"]
}
OF_TWO_INTEGERS = {
    name: getattr(lax, name) for name in ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left"]
} | {
    "shift_right_logical": lax.shift_right_logical,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
}
POWERS = {
    "pow": lax.pow,
    "pow of a whole number": lambda x, y: lax.pow(x, y.astype(np.int32)),
    "pow of a natural number": lambda x, y: lax.pow(x, y.astype(np.uint8)),
}


def numbers(kind):
    if kind in FLOATS:
        return np.array(HOSTILE, kind)
    ends = np.iinfo(kind)
    wholes = [*WHOLES, ends.max, ends.max - 1, ends.min, ends.min + 1]
    return np.unique(np.array([n for n in wholes if ends.min <= n <= ends.max], kind))


def operations_on(kind):
    """All operations on two numbers of a type, by name, with results that are not truth values."""
    is_float = kind in FLOATS
    conversions = {
        f"to {new}": lambda x, new=new: lax.convert_element_type(x, new)
        for new in (*FLOATS, *INTEGERS, "bool")
    }
    one = OF_ONE | conversions | (OF_A_FLOAT if is_float else {"not": lax.bitwise_not})
    if kind.startswith("int"):
        one["abs"] = lax.abs
    two = OF_TWO | (POWERS if is_float else OF_TWO_INTEGERS)
    all_of_them = {name: (lambda x, y, f=f: f(x)) for name, f in one.items()} | two

    def as_number(fun):
        def of_numbers(x, y):
            result = fun(x, y)
            return result.astype(np.int8) if result.dtype == bool else result

        return of_numbers

    return {name: as_number(fun) for name, fun in all_of_them.items()}


LONG = ("int16", "int64", "uint16", "uint64")
"""Types of which others show the same."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow) if kind in LONG else kind
        for kind in (*FLOATS, *INTEGERS)
    ],
)
def test_operations_on_hostile_numbers_have_the_values_of_xla(kind):
    operations = operations_on(kind)
    x, y = (z.ravel() for z in np.meshgrid(numbers(kind), numbers(kind)))

    def fun(x, y):
        return [operation(x, y) for operation in operations.values()]

    expected = jax.jit(fun)(x, y)
    for name, a, b in zip(operations, on_lanes(fun, x, y), map(np.asarray, expected), strict=True):
        assert a.dtype == b.dtype, name
        limits = np.finfo(a.dtype) if a.dtype.kind == "f" else None
        rtol, atol = (8 * limits.eps, 4 * limits.tiny) if limits else (0, 0)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


def test_numbers_without_a_vector_form_are_refused():
    for kind in (jnp.float16, jnp.bfloat16):
        with pytest.raises(NoVectorFormError, match=f"numbers of type {jnp.dtype(kind)}"):
            on_lanes(lambda x, kind=kind: x.astype(kind).astype(jnp.float64), X)


def test_code_that_llvm_refuses_has_no_vector_form():
    with pytest.raises(NoVectorFormError, match="code that LLVM refuses"):
        machine_code('define double @"march"(i32 %x) { ret i32 %x }')


@pytest.mark.parametrize("constants", [1, 30, 59, 60, 61, 62, 120, 500])
def test_any_number_of_constants_fits_into_memory(constants):
    """Once room for them was counted too small, and the process ended."""

    def fun(x):
        for k in range(constants):
            x = x * ((k + 1 / 3) / constants) + 1 / (k + 7)
        return x

    np.testing.assert_allclose(on_lanes(fun, X)[0], fun(X), rtol=1e-12)


def test_what_has_no_vector_form_is_named():
    with pytest.raises(NoVectorFormError, match="erf"):
        on_lanes(lambda x: lax.erf(x), X)
    with pytest.raises(NoVectorFormError, match="of arrays"):
        on_lanes(lambda x: jnp.sum(jnp.stack([x, x])), X)


CASES = {
    "midpoint": (da.systems.van_der_pol(), da.midpoint(), 0.2, None),
    "dirk": (da.systems.lenard_bernstein(), da.dirk(), 0.15, None),
    "srkw2": (da.systems.damped_kubo(), da.srkw2(), 0.1, None),
    "e1": (da.systems.lorentz(), da.e1(), 0.02, None),
    "two noises": (da.systems.two_noise(), da.rs2(), 0.05, None),
    "truncated": (da.systems.van_der_pol(), da.midpoint(), 0.3, da.Gaussian(truncation=3.0)),
    "no noise": (da.systems.pendulum(), da.midpoint(), 0.1, da.Zero()),
}
OPTIONS = dict(t_end=None, paths=300, keep="final", save_every=37, progress=False)


def simulate(case, **options):
    system, method, dt, noise = CASES[case]
    settings = OPTIONS | {"dt": dt, "t_end": 50 * dt, "noise": noise} | options
    start = np.full(system.dim, 1.5), np.full(system.dim, 0.3)
    return da.simulate(system, method, start, **settings)


@pytest.mark.parametrize("case", tiered(CASES, fast=["midpoint"]))
def test_runs_agree_with_xla_to_rounding(case):
    vector = simulate(case)
    xla = simulate(case, engine="XLA")
    assert vector.provenance["code"] == "vector code (LLVM)"
    assert xla.provenance["code"] == "XLA"
    np.testing.assert_allclose(vector.q, xla.q, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(vector.p, xla.p, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(vector.mean["energy"], xla.mean["energy"], rtol=1e-10)
    assert vector.truncated == xla.truncated
    assert (vector.truncated > 0) == (case == "truncated")
    assert vector.residual < 1e-14


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_a_path_has_the_same_bits_in_every_width(dtype):
    system, method = da.systems.lorentz(), da.midpoint()
    with jax.enable_x64(dtype == np.float64):
        stepper = make_stepper(system, method, dtype)
        params = jax.tree.map(dtype, system.params)
        code = trace_path(stepper, frozenset(), da.Gaussian(), params)
        results = [march_some(NativeMarch(code, width), dtype) for width in (1, 4, 8, 32)]
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def march_some(march, dtype, first=3, counts=(5, 1, 18)):
    """Three stretches of 32 paths, none of which begins where a block of random words does."""
    paths = 32
    state = [np.full(paths, x, dtype) for x in (0.1, 0.2, 0.5, 0.3, 0.0)]
    state += [np.zeros(paths, np.int32), np.zeros(paths, np.int32)]
    words = np.arange(paths, dtype=np.uint32), np.zeros(paths, np.uint32)
    system = da.systems.lorentz()
    shared = [0.05, *(float(x) for x in jax.tree.leaves(system.params))]
    steps = march.on(words, (7, 0), shared, len(words[0]))
    for count in counts:
        assert steps(state, first, count), "a path is not fine"
        first += count
    return state


def test_stretches_can_be_cut_anywhere():
    system, method = da.systems.lorentz(), da.midpoint()
    stepper = make_stepper(system, method, np.float64)
    leaves, tree = jax.tree.flatten(jax.tree.map(jnp.asarray, system.params))
    types = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves), tree
    march = compile_march(stepper, frozenset(), da.Gaussian(), types, 32)
    whole = march_some(march, np.float64, counts=(24,))
    cut = march_some(march, np.float64, counts=(5, 1, 18))
    assert all(np.array_equal(a, b) for a, b in zip(whole, cut, strict=True))
    shifted = march_some(march, np.float64, first=4, counts=(24,))
    assert not np.array_equal(whole[0], shifted[0]), "other steps have other noise"


@pytest.mark.slow
def test_a_path_that_fails_is_reported_with_its_step():
    system = da.System(
        H=lambda q, p: p[0] ** 2 / 2 - q[0] ** 4, h=[lambda q, p: -0.1 * q[0]], dim=1
    )
    with pytest.warns(RuntimeWarning, match="paths failed"):
        options = dict(dt=0.1, t_end=20.0, paths=100, save_every=50, progress=False)
        vector = da.simulate(system, da.heun(), ([0.5], [0.0]), **options)
        xla = da.simulate(system, da.heun(), ([0.5], [0.0]), engine="XLA", **options)
    assert vector.failures == xla.failures
    assert vector.failed > 0


def test_without_llvmlite_or_a_vector_form_xla_takes_the_steps(monkeypatch):
    system = da.System(
        H=lambda q, p: p[0] ** 2 / 2 + jnp.cosh(q[0]), h=[lambda q, p: -0.1 * q[0]], dim=1
    )
    run = da.simulate(
        system, da.midpoint(), ([0.5], [0.0]), dt=0.1, t_end=1.0, paths=64, progress=False
    )
    assert run.provenance["code"] == "XLA"
    reasons = run.provenance["refused_engines"]
    assert reasons == {"vector code (LLVM)": "no vector form for sinh"}
    assert "faster engine: not vector code (LLVM): no vector form for sinh" in repr(run)
    monkeypatch.setitem(sys.modules, "dalembert.ensemble.native", None)
    run = simulate("midpoint")
    assert run.provenance["code"] == "XLA"
    assert "llvmlite" in run.provenance["refused_engines"]["vector code (LLVM)"]


# --- somewhat larger systems, whose steps are on arrays for all other engines --------------------


def chain(dim, **more):
    return da.systems.fput(dim, gamma=1.0, temperature=0.5, **more)


def shaken(q, p, t):
    return p @ p / 2 + jnp.sum(q**4) / 4 - jnp.sum(q) * jnp.cos(t)


WIDE = {
    "midpoint": (chain(16), da.midpoint()),
    "baoab": (chain(16), da.baoab()),
    "stormer_verlet": (chain(9), da.stormer_verlet()),
    "particles": (
        da.System(
            H=lambda q, p: jnp.sum(p**2) / 2 + jnp.sum(q[1:] * q[:-1]) / 4 + jnp.sum(q**4) / 4,
            f=lambda q, p, w: 0.3 * w * q,
            dim=(5, 3),
            noises=(5, 3),
        ),
        da.midpoint(),
    ),
    "driven": (da.System(shaken, F=lambda q, p, t: -p, dim=10, time=True), da.midpoint()),
}


def wide_run(name, **more):
    system, method = WIDE[name]
    start = np.reshape(np.linspace(-1, 1, system.dim), system.shape)
    options = dict(dt=0.05, t_end=1.0, paths=37, save_every=20, keep="final", progress=False)
    return da.simulate(system, method, (start, 0 * start), **options | more)


@pytest.mark.parametrize("name", tiered(WIDE, fast=["driven"]))
def test_systems_of_up_to_sixteen_degrees_of_freedom_are_written_out_for_vector_code(name):
    ours, cut, arrays = (
        wide_run(name, **more) for more in ({}, {"save_every": 3}, {"engine": "arrays (XLA)"})
    )
    assert ours.provenance["code"] == "vector code (LLVM)"
    np.testing.assert_allclose(ours.q, arrays.q, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(ours.p, arrays.p, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(ours.mean["energy"], arrays.mean["energy"], rtol=1e-11)
    assert ours.residual < 1e-14 and (ours.residual > 0) == (arrays.residual > 0)
    assert np.array_equal(ours.q, cut.q) and np.array_equal(ours.p, cut.p)


@pytest.mark.slow
def test_a_path_that_is_hard_for_vector_code_is_taken_again_on_arrays():
    system = chain(10)
    q = np.tile(np.linspace(-1, 1, 10), (5, 1))
    options = dict(dt=0.1, t_end=2.0, paths=5, save_every=20, keep="final", progress=False)
    fine = da.simulate(system, da.midpoint(), (q, 0 * q), **options)
    q[1] *= 300
    ours = da.simulate(system, da.midpoint(), (q, 0 * q), **options)
    assert ours.provenance["code"] == "vector code (LLVM)"
    assert ours.failed == 0 and ours.iterations > fine.iterations and ours.residual < 1e-13
    np.testing.assert_array_equal(ours.q[[0, 2, 3, 4]], fine.q[[0, 2, 3, 4]])


def crowd(q):
    """Everybody repels everybody else."""
    return jnp.sum(q**2) / 2 + jnp.sum(jnp.exp(-((q[:, None] - q[None]) ** 2))) / 4


TOO_LARGE = {
    "17 components are too many": chain(17),
    "more operations than it is worth": da.systems.langevin(crowd, dim=16),
}


@pytest.mark.parametrize("reason", TOO_LARGE)
def test_larger_systems_stay_on_arrays(reason):
    with jax.enable_x64(True):
        stepper = make_stepper(TOO_LARGE[reason], da.midpoint(), np.float64)
    found = wider(stepper)
    assert not found.is_scalar and reason in found.notice
    assert wider(stepper) is found


@pytest.mark.slow
def test_explain_says_what_is_written_out_for_vector_code_alone():
    text = da.explain(chain(9), da.baoab())
    assert text.endswith("\n  engine on this machine: vector code (LLVM)")
    arrays = "for other engines arrays, explicit (9 components are too many to write out)"
    said = f"regime: scalars, written out for vector code (LLVM); {arrays}"
    assert said in " ".join(text.split())
    assert "regime: scalars, written out\n" in da.explain(chain(3), da.baoab())


def test_recorded_noise_is_taken_by_xla():
    recorded = da.Recorded(da.brownian_path(0, 0, 0.2, 50, 1))
    assert simulate("midpoint", noise=recorded).provenance["code"] == "XLA"


def test_code_of_a_path_has_scalars_only():
    system = da.systems.two_noise()
    stepper = make_stepper(system, da.rs2(), np.float64)
    code = trace_path(stepper, frozenset({"mixed"}), da.ThreePoint(), system.params)
    assert isinstance(code, PathCode)
    for closed in (code.draw, code.step):
        assert all(v.aval.shape == () for eqn in closed.jaxpr.eqns for v in eqn.outvars)


WITH_FRICTION = da.System(
    H=lambda q, p, friction: p[0] ** 2 / 2 + jnp.cos(q[0]),
    F=lambda q, p, friction: -friction * p,
    h=[lambda q, p, friction: q[0]],
    dim=1,
    params=1.0,
)


@pytest.mark.parametrize("friction", [1e-3, 1e3, 1e6])
@pytest.mark.slow
def test_linear_equations_of_stiff_friction_are_solved(friction):
    """One unknown momentum, far from where it was: the fast steps against those of XLA."""
    system = WITH_FRICTION.with_params(friction)
    options = dict(dt=1.0, t_end=4.0, paths=16, save_every=4, keep="final", progress=False)
    vector, xla = (
        da.simulate(system, da.stormer_verlet(), ([0.3], [1.0]), engine=engine, **options)
        for engine in ("vector code (LLVM)", "XLA")
    )
    np.testing.assert_allclose(vector.p, xla.p, rtol=1e-12)
    np.testing.assert_allclose(vector.q, xla.q, rtol=1e-12)
