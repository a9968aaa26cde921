"""Steps in registers: the kernel of a GPU, run by an interpreter, against the steps of a CPU."""

import contextlib
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

import dalembert as da
from dalembert import elementary
from dalembert.ensemble import engines, registers
from dalembert.ensemble.kernel_code import IN_TRITON, expanded
from dalembert.ensemble.march import Block, PathState, Status, Stretch, accepted, march_fast
from dalembert.ensemble.registers import march_in_registers, why_not_in_registers
from dalembert.noise import seed_words
from dalembert.operations import OPERATIONS
from dalembert.precision import cast
from dalembert.primitives import PRIMITIVES
from dalembert.stepping import newton, residuals
from dalembert.stepping.stepper import make_stepper
from tiers import tiered

QUARTIC = da.System(
    H=lambda q, p: p[0] ** 2 / 2 + q[0] ** 4, h=[lambda q, p: 0.5 * q[0]], dim=1, name="quartic"
)
BLOW_UP = da.System(
    H=lambda q, p: p[0] ** 2 / 2 - q[0] ** 4 / 4,
    F=lambda q, p: p**3,
    h=[lambda q, p: 0.1 * q[0]],
    dim=1,
    name="blow-up",
)
DRIVEN = da.System(
    H=lambda q, p, t: p[0] ** 2 / 2 + (1 + 0.5 * jnp.cos(3 * t)) * q[0] ** 4,
    h=[lambda q, p, t: 0.5 * q[0] * jnp.sin(t)],
    dim=1,
    time=True,
    name="driven",
)
SPHERE = da.systems.brownian_sphere(temperature=2.0)
PATHS = 8
ON_THE_SPHERE = (0.6, 0.0, 0.8), (0.24, 0.4, -0.18)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(registers, "INTERPRETED", True)


def prepare(system, method, dt, noise, q=1.5, p=0.3, dtype=np.float64, paths=PATHS):
    """A stepper with some paths at the states given, one number each or for all, and a block."""
    stepper = make_stepper(system, method, dtype)

    def entered(x):
        row = jnp.broadcast_to(jnp.asarray(x, dtype), (paths,))
        return tuple(row * (1 + 0.1 * k) for k in range(system.entries))

    def at_one_place(numbers):
        return tuple(jnp.full(paths, number, dtype) for number in numbers)

    start = map(at_one_place, ON_THE_SPHERE) if system.constraint_count else map(entered, (q, p))
    zeros = jnp.zeros(paths, jnp.int32)
    state = PathState(*start, zeros, zeros - 1, zeros, jnp.zeros(paths, dtype), zeros)
    # Path numbers of which some need both words.
    numbers = np.arange(paths, dtype=np.uint64) * np.uint64(2**31 + 11)
    path = tuple(jnp.asarray(numbers >> np.uint64(k), jnp.uint32) for k in (0, 32))
    real = jnp.ones(paths, bool)
    params = cast(system.params, np.dtype(dtype))
    return stepper, state, Block(path, real, seed_words(7), jnp.asarray(dt, dtype), params, noise)


def why_not(stepper, noise):
    needs = frozenset(stepper.method.needs(stepper.system.noises))
    return why_not_in_registers(stepper, noise, needs, stepper.system.params, PATHS)


def compiled(marching, stepper, block):
    """The steps as a function of (state, first step, number of steps, words of a seed)."""
    needs = frozenset(stepper.method.needs(stepper.system.noises))

    def steps(state, first, count, seed=block.seed):
        return marching(stepper, state, block._replace(seed=seed), Stretch(first, count, needs))

    return jax.jit(steps)


def run(marching, stepper, state, block, first=0, count=8):
    return compiled(marching, stepper, block)(state, jnp.int32(first), jnp.int32(count))


def assert_same_states(ours, fast, rtol=1e-12):
    for x, y in zip((*ours.q, *ours.p), (*fast.q, *fast.p), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol / 10)


CASES = {
    "explicit": (da.systems.damped_kubo(), da.heun(), 0.1, da.Gaussian()),
    "linear": (da.systems.damped_kubo(), da.midpoint(), 0.1, da.Gaussian()),
    "nonlinear": (da.systems.van_der_pol(), da.midpoint(), 0.1, da.Gaussian()),
    "several blocks": (da.systems.lenard_bernstein(), da.dirk(), 0.15, da.Gaussian()),
    "in the plane": (da.systems.lorentz(), da.midpoint(), 0.05, da.Gaussian()),
    "with dZ": (da.systems.lorentz(), da.e1(), 0.05, da.Gaussian()),
    "two noises": (da.systems.two_noise(), da.rs2(), 0.05, da.ThreePoint()),
    "sine": (da.systems.pendulum(), da.stormer_verlet(), 0.1, da.Gaussian()),
    "truncated": (da.systems.van_der_pol(), da.midpoint(), 0.3, da.Gaussian(truncation=3.0)),
    "no noise": (da.systems.van_der_pol(), da.midpoint(), 0.1, da.Zero()),
    "driven": (DRIVEN, da.midpoint(), 0.1, da.Gaussian()),
    "on a sphere": (SPHERE, da.rattle(), 0.1, da.Gaussian()),
    "geodesic": (SPHERE, da.g_baoab(), 0.1, da.Gaussian()),
}


@pytest.mark.parametrize("name", tiered(CASES, fast=["nonlinear", "no noise"]))
def test_registers_take_the_steps_of_march_fast(name):
    system, method, dt, noise = CASES[name]
    stepper, state, block = prepare(system, method, dt, noise)
    assert why_not(stepper, noise) == ""
    fast = run(march_fast, stepper, state, block)
    steps, stretch = compiled(march_in_registers, stepper, block), (jnp.int32(0), jnp.int32(8))
    ours = steps(state, *stretch, seed_words(7))
    assert_same_states(ours, fast)
    np.testing.assert_array_equal(ours.truncated, fast.truncated)
    assert (np.asarray(ours.residual) <= residuals.tolerance(np.float64)).all()
    moved = np.abs(np.asarray(ours.q[0]) - np.asarray(state.q[0])).max()
    assert moved > 1e-3, "nothing has happened"
    elsewhere = steps(state, *stretch, seed_words(8))
    assert (name == "no noise") == np.array_equal(elsewhere.p[0], ours.p[0])
    if name == "truncated":
        assert np.asarray(ours.truncated).sum() > 0
    if name == "explicit":
        assert not np.asarray(ours.iterations).any()


@pytest.mark.parametrize("name", tiered(["explicit", "two noises", "with dZ"], fast=["explicit"]))
def test_stretches_may_begin_and_end_within_a_block_of_four(name):
    system, method, dt, noise = CASES[name]
    stepper, state, block = prepare(system, method, dt, noise)
    fast, ours = (compiled(m, stepper, block) for m in (march_fast, march_in_registers))
    for first, count in ((0, 1), (3, 1), (1, 2), (2, 5), (3, 9), (5, 3), (4, 0), (2**20 + 1, 6)):
        arguments = state, jnp.int32(first), jnp.int32(count)
        assert_same_states(ours(*arguments), fast(*arguments))
    shifted = ours(state, jnp.int32(1), jnp.int32(2))
    assert not np.allclose(ours(state, jnp.int32(2), jnp.int32(2)).q[0], shifted.q[0])
    assert ours._cache_size() == 1


def test_two_stretches_are_one():
    system, method, dt, noise = CASES["nonlinear"]
    stepper, state, block = prepare(system, method, dt, noise)
    steps = compiled(march_in_registers, stepper, block)
    half = steps(state, jnp.int32(1), jnp.int32(5))
    halfway, is_hard = accepted(stepper, state, half)
    assert not np.asarray(is_hard).any()
    both, whole = (
        steps(halfway, jnp.int32(6), jnp.int32(4)),
        steps(state, jnp.int32(1), jnp.int32(9)),
    )
    for x, y in zip((*both.q, *both.p), (*whole.q, *whole.p), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "name", tiered(["explicit", "nonlinear", "two noises", "truncated"], fast=["explicit"])
)
def test_single_precision(name):
    system, method, dt, noise = CASES[name]
    stepper, state, block = prepare(system, method, dt, noise, dtype=np.float32)
    fast, ours = (run(m, stepper, state, block) for m in (march_fast, march_in_registers))
    assert_same_states(ours, fast, rtol=2e-5)
    assert ours.q[0].dtype == np.float32 and ours.residual.dtype == np.float32
    np.testing.assert_array_equal(ours.truncated, fast.truncated)
    double = run(march_in_registers, *prepare(system, method, dt, noise))
    np.testing.assert_allclose(ours.q[0], double.q[0], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_several_tiles(monkeypatch):
    system, method, dt, noise = CASES["nonlinear"]
    prepared = prepare(system, method, dt, noise, q=np.linspace(0.5, 2.0, PATHS))
    whole = run(march_in_registers, *prepared)
    monkeypatch.setattr(registers, "TILE", PATHS // 4)
    for x, y in zip(run(march_in_registers, *prepared).q, whole.q, strict=True):
        np.testing.assert_array_equal(x, y)


@cache
def compiled_quartic():
    stepper, _, block = prepare(QUARTIC, da.midpoint(), 0.3, da.Gaussian())
    return compiled(march_in_registers, stepper, block)


def quartic(q):
    """Paths at rest in a potential q⁴, and their steps, which are compiled once."""
    return *prepare(QUARTIC, da.midpoint(), 0.3, da.Gaussian(), q=q, p=0.0), compiled_quartic()


@pytest.mark.slow
def test_a_path_takes_the_newton_steps_that_it_needs_whatever_the_others_do():
    far = np.full(PATHS, 0.5)
    far[3] = 5.0
    stepper, state, block, steps = quartic(far)
    fast = run(march_fast, stepper, state, block, count=1)
    ours = steps(state, jnp.int32(0), jnp.int32(1))
    iterations = np.asarray(ours.iterations)
    assert iterations[3] > np.delete(iterations, 3).max()
    assert iterations[3] > newton.FAST_STEPS
    good = residuals.tolerance(np.float64)
    assert np.asarray(fast.residual)[3] > good, "four Newton steps sufficed"
    assert (np.asarray(ours.residual) < good).all()
    _, is_hard = accepted(stepper, state, ours)
    assert not np.asarray(is_hard).any()
    increments = da.brownian_path(7, 3 * (2**31 + 11), 0.3, 1, 1)
    q, p, info = da.step(QUARTIC, da.midpoint(), [5.0], [0.0], 0.3, increments.dW[0])
    assert info.converged
    np.testing.assert_allclose([ours.q[0][3], ours.p[0][3]], [q[0], p[0]], rtol=1e-11)
    others = state._replace(q=(jnp.full(PATHS, 0.5),))
    alone = steps(others, jnp.int32(0), jnp.int32(1))
    kept = np.arange(PATHS) != 3
    np.testing.assert_array_equal(np.asarray(alone.q[0])[kept], np.asarray(ours.q[0])[kept])


def test_a_path_whose_newton_steps_do_not_shrink_is_left_for_the_safe_way():
    far = np.full(PATHS, 0.5)
    far[3] = 1e3
    stepper, state, _, steps = quartic(far)
    after, is_hard = accepted(stepper, state, steps(state, jnp.int32(0), jnp.int32(1)))
    assert np.flatnonzero(is_hard).tolist() == [3] and after.q[0][3] == 1e3
    increments = da.brownian_path(7, 3 * (2**31 + 11), 0.3, 1, 1)
    assert da.step(QUARTIC, da.midpoint(), [1e3], [0.0], 0.3, increments.dW[0])[2].converged


@pytest.mark.slow
def test_a_path_that_fails_is_left_for_the_safe_way():
    far = np.full(PATHS, 0.1)
    far[5] = 1e200
    for method in (da.midpoint(), da.heun()):
        prepared = prepare(BLOW_UP, method, 0.1, da.Gaussian(), q=far, p=far)
        stepper, state, _ = prepared
        moved = run(march_in_registers, *prepared)
        after, is_hard = accepted(stepper, state, moved)
        assert np.flatnonzero(is_hard).tolist() == [5]
        assert after.q[0][5] == 1e200 and after.status[5] == Status.FINE
        assert np.isfinite(after.q[0]).all() and (np.asarray(after.q[0]) != far).sum() == PATHS - 1
        failed = state._replace(status=state.status.at[0].set(Status.UNCONVERGED))
        after, is_hard = accepted(stepper, failed, moved)
        assert after.q[0][0] == state.q[0][0] and not is_hard[0]


# --- where the kernel can be used -----------------------------------------------------------------


def test_recorded_noise_and_the_array_regime_are_left_to_xla():
    system, method, _, noise = CASES["nonlinear"]
    stepper = make_stepper(system, method, np.float64)
    assert why_not(stepper, noise) == why_not(stepper, da.ThreePoint()) == ""
    recorded = da.Recorded(da.Increments(np.zeros((10, 4, 1))))
    assert "no straight-line form" in why_not(stepper, recorded)
    chain = da.System(H=lambda q, p: jnp.sum(p**2 + q**4) / 2, dim=20, name="chain")
    arrays = make_stepper(chain, da.midpoint(), np.float64)
    assert not arrays.is_scalar and "arrays" in why_not(arrays, da.Zero())


def with_force(force):
    system = da.System(H=lambda q, p: p[0] ** 2 / 2, F=lambda q, p: -force(q), dim=1)
    return make_stepper(system, da.midpoint(), np.float64)


def test_functions_that_triton_does_not_know_are_named():
    assert why_not(with_force(lambda q: jnp.tanh(q) + jnp.log1p(q**2)), da.Gaussian()) == ""
    for name in ("bessel_i0e", "erf", "lgamma", "round"):
        reason = why_not(with_force(getattr(lax, name)), da.Gaussian())
        assert reason.startswith("Triton has no") and name in reason
    assert "rem of float64" in why_not(with_force(lambda q: lax.rem(q, 0.3 + q**2)), da.Gaussian())


@pytest.mark.slow
def test_functions_that_triton_does_not_know_are_left_to_xla(monkeypatch):
    kernel, system = engines.KernelInRegisters, with_force(lax.bessel_i0e).system
    monkeypatch.setattr(kernel, "compile", kernel.compile_anywhere)
    run = da.simulate(
        system, da.midpoint(), ([1.5], [0.3]), dt=0.1, t_end=0.5, paths=4, progress=False,
        engine=[kernel.name, "XLA"], observe={"q": lambda q, p: q[0]},
    )  # fmt: skip
    assert run.provenance["code"] == "XLA"
    assert "bessel_i1e" in run.provenance["refused_engines"][kernel.name]


def lowered(fun, *types):
    """The code of a function for a GPU; there need not be one."""
    with contextlib.ExitStack() as stack:
        if jax.__version_info__ >= (0, 11):  # which wants to be told for which GPU
            gpu = jax.sharding.AbstractDevice("NVIDIA H200", num_cores=132, platform="gpu")
            mesh = jax.sharding.AbstractMesh((1,), ("x",), abstract_device=gpu)
            stack.enter_context(jax.sharding.use_abstract_mesh(mesh))
        return jax.jit(fun).trace(*types).lower(lowering_platforms=("cuda",)).as_text()


def in_a_kernel(fun, dtype):
    """A function of two numbers, elementwise, in a Triton kernel."""

    def kernel(x, y, out):
        out[...] = fun(x[...], y[...]).astype(dtype)

    shape = jax.ShapeDtypeStruct((32,), dtype)
    params = triton.CompilerParams(num_warps=1, num_stages=1)
    return pl.pallas_call(kernel, out_shape=shape, compiler_params=params)


# Functions of two numbers, one in (0.1, 0.9) and one in (1.1, 3), by the primitives that they are.
OF_TRITON = {
    "abs": lambda x, y: lax.abs(y - 3 * x),
    "acos": lambda x, y: lax.acos(x),
    "acosh": lambda x, y: lax.acosh(y),
    "add": lax.add,
    "and": lambda x, y: (x < 0.5) & (y < 2),
    "asin": lambda x, y: lax.asin(x),
    "asinh": lambda x, y: lax.asinh(y),
    "atan": lambda x, y: lax.atan(y),
    "atan2": lax.atan2,
    "atanh": lambda x, y: lax.atanh(x),
    "cbrt": lambda x, y: lax.cbrt(y),
    "ceil": lambda x, y: lax.ceil(y),
    "cos": lambda x, y: lax.cos(y),
    "cosh": lambda x, y: lax.cosh(y),
    "div": lax.div,
    "eq": lambda x, y: lax.floor(y) == 2,
    "exp": lambda x, y: lax.exp(y),
    "exp2": lambda x, y: lax.exp2(y),
    "expm1": lambda x, y: lax.expm1(x / 100),
    "floor": lambda x, y: lax.floor(y),
    "ge": lambda x, y: 4 * x >= y,
    "gt": lambda x, y: 4 * x > y,
    "integer_pow": lambda x, y: lax.integer_pow(y, 5),
    "is_finite": lambda x, y: lax.is_finite(1 / lax.floor(2 * x)),
    "le": lambda x, y: 4 * x <= y,
    "log": lambda x, y: lax.log(y),
    "log1p": lambda x, y: lax.log1p(x / 100),
    "logistic": lambda x, y: lax.logistic(y),
    "lt": lambda x, y: 4 * x < y,
    "max": lambda x, y: lax.max(4 * x, y),
    "min": lambda x, y: lax.min(4 * x, y),
    "mul": lax.mul,
    "ne": lambda x, y: lax.floor(y) != 2,
    "neg": lambda x, y: lax.neg(x),
    "not": lambda x, y: ~(x < 0.5),
    "or": lambda x, y: (x < 0.5) | (y < 2),
    "pow": lax.pow,
    "rem": lambda x, y: lax.rem(y, x),
    "rsqrt": lambda x, y: lax.rsqrt(y),
    "select_n": lambda x, y: lax.select_n(x < 0.5, x, y),
    "sign": lambda x, y: lax.sign(y - 2),
    "sin": lambda x, y: lax.sin(y),
    "sinh": lambda x, y: lax.sinh(y),
    "sqrt": lambda x, y: lax.sqrt(y),
    "square": lambda x, y: lax.square(y),
    "sub": lax.sub,
    "tan": lambda x, y: lax.tan(x),
    "tanh": lambda x, y: lax.tanh(y),
    "xor": lambda x, y: (x < 0.5) ^ (y < 2),
    **{str(op): lambda x, y, op=op: expanded(op)(y) for op in OPERATIONS.values()},
}
# fmt: off
STRUCTURE = {
    "add_any", "bitcast_convert_type", "broadcast_in_dim", "clamp", "cond", "convert_element_type",
    "reduce_max", "reshape", "shift_left", "shift_right_arithmetic", "shift_right_logical",
    "squeeze", "stop_gradient", "while",
}
# fmt: on


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_triton_knows_what_it_is_said_to_know(dtype):
    assert set(OF_TRITON) | STRUCTURE >= IN_TRITON
    types = [jax.ShapeDtypeStruct((32,), dtype)] * 2
    for name in IN_TRITON & set(OF_TRITON):
        lowered(in_a_kernel(OF_TRITON[name], dtype), *types)
    with pytest.raises(NotImplementedError, match="erf"):
        lowered(in_a_kernel(lambda x, y: lax.erf(x), dtype), *types)
    for op in (elementary.sin, elementary.rough_inverse) if dtype == np.float64 else ():
        lowered(in_a_kernel(OF_TRITON[str(op)], dtype), *types)
        with pytest.raises(NotImplementedError, match="dalembert"):
            lowered(in_a_kernel(lambda x, y, op=op: op(x), dtype), *types)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_triton_computes_to_rounding(dtype):
    x = np.linspace(0.1, 0.9, 32).astype(dtype)
    y = np.linspace(1.1, 3.0, 32)[::-1].astype(dtype)
    wrong = {}
    for name, fun in OF_TRITON.items():
        with jax.default_device(jax.devices("cpu")[0]):
            expected = np.asarray(fun(jnp.asarray(x), jnp.asarray(y))).astype(dtype)
        found = np.asarray(in_a_kernel(fun, dtype)(jnp.asarray(x), jnp.asarray(y)))
        error = np.max(np.abs(found - expected) / np.maximum(np.abs(expected), 1e-3))
        if not error < 16 * np.finfo(dtype).eps:
            wrong[name] = error
    assert set(wrong) <= {n for n, known in PRIMITIVES.items() if dtype in known.except_of}, wrong


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize(
    "name",
    tiered(
        ["sine", "truncated", "in the plane", "on a sphere", "geodesic"],
        fast=["sine", "truncated", "in the plane"],
    ),
)
def test_kernels_can_be_made_without_a_gpu(name, monkeypatch):
    """Triton is given no operation of ours."""
    monkeypatch.setattr(registers, "INTERPRETED", False)
    system, method, dt, noise = CASES[name]
    stepper, state, block = prepare(system, method, dt, noise)
    needs = frozenset(method.needs(system.noises))

    def march(state, first, count):
        return march_in_registers(stepper, state, block, Stretch(first, count, needs))

    assert "triton" in lowered(march, state, jnp.int32(0), jnp.int32(8))


@pytest.mark.parametrize("case", tiered(["truncated", "maps"], fast=["truncated"]))
def test_runs_through_registers_are_those_through_xla(case, monkeypatch):
    """All of `da.simulate` with the kernel in the place of the fast steps of the CPU."""
    by_maps = da.systems.damped_kubo(), da.srkw1(), 0.5, da.ThreePoint()
    system, method, dt, noise = by_maps if case == "maps" else CASES[case]
    options = {"dt": dt, "t_end": 30 * dt, "paths": 20, "save_every": 7, "keep": "final"}
    options |= {"noise": noise, "progress": False}
    ordinary = da.simulate(system, method, ([1.5], [0.3]), engine="XLA", **options)
    kernel = engines.KernelInRegisters
    monkeypatch.setattr(kernel, "compile", kernel.compile_anywhere)
    ours = da.simulate(system, method, ([1.5], [0.3]), engine=kernel.name, **options)
    assert ordinary.provenance["code"] == "XLA" and "Pallas" in ours.provenance["code"]
    assert ours.provenance["by_maps"] == (case == "maps")
    np.testing.assert_allclose(ours.q, ordinary.q, rtol=1e-10)
    np.testing.assert_allclose(ours.mean["energy"], ordinary.mean["energy"], rtol=1e-10)
    assert ours.truncated == ordinary.truncated and ours.failed == ordinary.failed == 0
    assert (ours.truncated > 0) == (case == "truncated")


ON_A_GPU = CASES | {
    "many unknowns": (da.systems.lorentz(), da.srkw2(), 0.05, da.ThreePoint()),
}


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_gpu_agrees_with_the_cpu(name, monkeypatch):
    monkeypatch.setattr(registers, "INTERPRETED", False)
    system, method, dt, noise = ON_A_GPU[name]
    start = np.full(system.dim, 1.5), np.full(system.dim, 0.3)
    if system.constraint_count:
        start = tuple(map(np.array, ON_THE_SPHERE))
    options = {"dt": dt, "t_end": 30 * dt, "paths": 1000, "save_every": 7, "keep": "final"}
    options |= {"noise": noise, "progress": False}
    with jax.default_device(jax.devices("cpu")[0]):
        on_cpu = da.simulate(system, method, start, **options)
    with jax.default_device(jax.devices("gpu")[0]):
        on_gpu = da.simulate(system, method, start, **options)
    assert "Pallas" in on_gpu.provenance["code"] and "Pallas" not in on_cpu.provenance["code"]
    np.testing.assert_allclose(on_gpu.q, on_cpu.q, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(on_gpu.p, on_cpu.p, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(on_gpu.mean["energy"], on_cpu.mean["energy"], rtol=1e-10)
    assert on_gpu.failed == on_cpu.failed == 0 and on_gpu.truncated == on_cpu.truncated
