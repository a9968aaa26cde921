"""Random functions and systems: every engine has the values of plain `jax.numpy`, or refuses."""

import warnings
from functools import partial, reduce
from importlib.util import find_spec
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

import dalembert as da
from dalembert.ensemble import registers
from dalembert.ensemble.kernel_engine import KernelInRegisters
from dalembert.stepping import stepper as steppers
from dalembert.stepping.expressions import Shared, vector
from dalembert.stepping.scalarise import scalarise
from fuzz_systems import LENGTH, LOOPS, STRAIGHT, VECTORISED, formulas, names_in, value

RNG = np.random.default_rng(2)
PARAMS = {"a": np.float64(0.7312), "n": np.int32(5)}
Z = RNG.uniform(-1.7, 1.7, (12, LENGTH))

# Only what does not depend on the number of examples is checked of a test's health.
quick = settings(max_examples=3, suppress_health_check=list(HealthCheck))
thorough = settings(max_examples=150, suppress_health_check=list(HealthCheck))


def nearby(rng, *arrays):
    """The arrays and eight slight changes of them, by which rounding is measured; a new axis."""

    def of(x):
        noise = rng.uniform(-1, 1, (8, *x.shape)) * 4 * np.finfo(x.dtype).eps
        return np.concatenate([x[None], x * (1 + noise)])

    return [of(np.asarray(x)) for x in arrays]


def assert_equal_to_rounding(found, near, label, least=1e-13):
    """`near` holds what is expected and, along the first axis, the same after slight changes."""
    expected = np.asarray(near[0])
    spread = np.max(np.abs(near - expected), axis=0)
    bound = least * (1 + np.abs(expected)) + 64 * spread
    is_wrong = ~(np.abs(found - expected) <= bound) & np.isfinite(bound)
    assert not is_wrong.any(), (label, found[is_wrong], expected[is_wrong], bound[is_wrong])


# --- functions -----------------------------------------------------------------------------------


def with_slopes(formula):
    """A formula and its gradient, as a function of the vector and the parameters."""

    def fun(z, params):
        number, slopes = jax.value_and_grad(partial(value, formula))(z, params)
        return jnp.concatenate([number[None], slopes])

    return fun


def of_all(formulas):
    return lambda z, params: jnp.stack([with_slopes(formula)(z, params) for formula in formulas])


def straight_line(fun):
    params = {name: Shared((), x.dtype) for name, x in PARAMS.items()}
    return scalarise(fun, Z[0], params)


def expected_near(fun):
    (near,) = nearby(np.random.default_rng(0), Z)
    return np.asarray(jax.jit(jax.vmap(jax.vmap(lambda z: fun(z, PARAMS))))(near))


def check_straight_line(chosen):
    fun = of_all(chosen)
    code = straight_line(fun)

    def run(z):
        numbers = code(z, jax.tree.map(jnp.asarray, PARAMS))
        return jnp.stack([jnp.asarray(x) for x in numbers.ravel()]).reshape(numbers.shape)

    found = np.asarray(jax.jit(jax.vmap(run))(Z))
    assert_equal_to_rounding(found, expected_near(fun), "straight-line code")


def check_vector_code(chosen):
    from vector_code import on_lanes

    fun = of_all(chosen)
    code = straight_line(fun)

    def on_scalars(a, n, *z):
        numbers = code(vector(z), {"a": vector([a]).reshape(()), "n": vector([n]).reshape(())})
        return [jnp.asarray(x) for x in numbers.ravel()]

    columns = [np.full(len(Z), x) for x in PARAMS.values()] + list(np.ascontiguousarray(Z.T))
    found = np.stack(on_lanes(on_scalars, *columns), axis=1)
    near = expected_near(fun)
    assert_equal_to_rounding(found.reshape(near.shape[1:]), near, "vector code")


several = partial(st.lists, min_size=4, max_size=4)


@quick
@given(several(formulas()))
def test_straight_line_code(chosen):
    check_straight_line(chosen)


@pytest.mark.slow
@thorough
@given(several(formulas()))
def test_straight_line_code_of_many(chosen):
    check_straight_line(chosen)


@quick
@given(several(formulas(names=VECTORISED)))
def test_vector_code(chosen):
    pytest.importorskip("llvmlite")
    check_vector_code(chosen)


@pytest.mark.slow
@thorough
@given(several(formulas(names=VECTORISED)))
def test_vector_code_of_many(chosen):
    pytest.importorskip("llvmlite")
    check_vector_code(chosen)


# --- systems -------------------------------------------------------------------------------------

DT, STEPS, PATHS, SEED = 0.1, 3, 8, 11
VECTORS = {1: ([0, 1, 0], [1, 0, 1]), 2: ([0, 3, 1], [2, 0, 3])}
"""What formulas of energies and of forces read of (q, p), by degrees of freedom."""


class Functions(NamedTuple):
    """H, F, h and f of a system, from formulas in plain `jax.numpy`."""

    dim: int
    energy: tuple
    force: tuple
    noise: tuple
    noise_force: tuple | None

    def _of(self, formula, place, q, p, params):
        z = jnp.concatenate([q, p])[np.array(VECTORS[self.dim][place])]
        return value(formula, z, params)

    def H(self, q, p, params):
        return p @ p / 2 + q @ q / 2 + 0.2 * self._of(self.energy, 0, q, p, params)

    def F(self, q, p, params):
        return -0.3 * p + 0.2 * self._of(self.force, 1, q, p, params)[: self.dim]

    def h(self, q, p, params):
        return 0.1 * q[0] + 0.2 * self._of(self.noise, 0, q, p, params)

    def f(self, q, p, params):
        if self.noise_force is None:
            return jnp.zeros_like(q)
        return 0.1 * self._of(self.noise_force, 1, q, p, params)[: self.dim]

    @property
    def names(self):
        """The operations of all formulas."""
        used = (self.energy, self.force, self.noise, self.noise_force)
        return set().union(*(names_in(formula) for formula in used if formula))

    @property
    def system(self):
        # Functions of their own, because a system is known by what its functions read.
        functions = dict(H=lambda *args: self.H(*args), F=lambda *args: self.F(*args))
        functions["h"] = [lambda *args: self.h(*args)]
        if self.noise_force is not None:
            functions["f"] = [lambda *args: self.f(*args)]
        return da.System(**functions, dim=self.dim, params=PARAMS)

    def change(self, q, p, dW):
        """h · drift + ΔW · noise at a state: the change of q, and that of p."""
        H_q, H_p = jax.grad(self.H, (0, 1))(q, p, PARAMS)
        h_q, h_p = jax.grad(self.h, (0, 1))(q, p, PARAMS)
        F, f = self.F(q, p, PARAMS), self.f(q, p, PARAMS)
        return DT * H_p + dW * h_p, DT * (F - H_q) + dW * (f - h_q)


def heun(functions, q, p, q1, p1, dW):
    """What is left of the equations of a step, the new state minus what they say it is."""
    dq, dp = functions.change(q, p, dW)
    eq, ep = functions.change(q + dq, p + dp, dW)
    return q1 - q - (dq + eq) / 2, p1 - p - (dp + ep) / 2


def midpoint(functions, q, p, q1, p1, dW):
    dq, dp = functions.change((q + q1) / 2, (p + p1) / 2, dW)
    return q1 - q - dq, p1 - p - dp


def stormer_verlet(functions, q, p, q1, p1, dW):
    """The momentum of the stages is found by iteration, which converges if the step is small."""
    P = lax.fori_loop(0, 60, lambda _, P: p + functions.change(q, P, dW)[1] / 2, p)
    left = p + functions.change(q, P, dW)[1] / 2 - P
    (dq, _), (eq, ep) = functions.change(q, P, dW), functions.change(q1, P, dW)
    is_found = jnp.max(jnp.abs(left)) < 1e-14
    return q1 - q - (dq + eq) / 2, jnp.where(is_found, p1 - P - ep / 2, jnp.nan)


def dirk(functions, q, p, q1, p1, dW):
    """Two midpoint steps of half the size; where the first ends is found by iteration."""

    def after(ends, _=None):
        dq, dp = functions.change((q + ends[0]) / 2, (p + ends[1]) / 2, dW)
        return q + dq / 2, p + dp / 2

    ends = lax.fori_loop(0, 60, lambda _, ends: after(ends), (q, p))
    left = [x - y for x, y in zip(after(ends), ends, strict=True)]
    is_found = jnp.max(jnp.abs(jnp.concatenate(left))) < 1e-14
    dq, dp = functions.change((ends[0] + q1) / 2, (ends[1] + p1) / 2, dW)
    return q1 - ends[0] - dq / 2, jnp.where(is_found, p1 - ends[1] - dp / 2, jnp.nan)


METHODS = {"heun": heun, "midpoint": midpoint, "stormer_verlet": stormer_verlet, "dirk": dirk}


def initial(dim):
    rng = np.random.default_rng(3)
    return rng.uniform(-1.5, 1.5, (PATHS, dim)), rng.uniform(-1.5, 1.5, (PATHS, dim))


def increments():
    """ΔW of all paths of a run, shape (paths, steps, 1)."""
    return np.stack([da.brownian_path(SEED, k, DT, STEPS, 1).dW for k in range(PATHS)])


def by_steps(functions, method, change=lambda step: step):
    """One step of every path, by `da.step`."""
    q, p = initial(functions.dim)
    system, dW = functions.system, increments()[:, 0]
    step = change(lambda q, p, dW: da.step(system, method, q, p, DT, dW))
    q1, p1, infos = zip(*(step(*args) for args in zip(q, p, dW, strict=True)), strict=True)
    is_fine = np.array([bool(info.converged) for info in infos])
    return (q, p, np.stack(q1), np.stack(p1), dW), is_fine


def by_arrays(functions, method):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steppers, "MAX_SCALAR_DIM", 0)
        da.clear_caches()
        assert not steppers.make_stepper(functions.system, method, np.float64).is_scalar
        try:
            return by_steps(functions, method)
        finally:
            da.clear_caches()


VECTOR, KERNEL, SLOWER = "vector code (LLVM)", "one GPU kernel (Pallas)", ("XLA", "arrays (XLA)")


def by_run(functions, method, *engines):
    """All steps of a run; paths that have failed are not fine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        run = simulate(functions.system, method, initial(functions.dim), (*engines, *SLOWER))
    if engines and functions.names <= VECTORISED and find_spec("llvmlite"):
        assert run.provenance["code"] in engines
    return of_run(run.q, run.p)


def by_kernel(functions, method):
    """A run with the kernel of a GPU, interpreted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registers, "INTERPRETED", True)
        patch.setattr(KernelInRegisters, "compile", KernelInRegisters.compile_anywhere)
        return by_run(functions, method, KERNEL)


def simulate(system, method, start, engine=None):
    options = dict(dt=DT, t_end=STEPS * DT, paths=PATHS, seed=SEED, keep="all", progress=False)
    return da.simulate(system, method, start, engine=engine, **options)


def of_run(q, p):
    q, p = np.asarray(q), np.asarray(p)
    dW = np.swapaxes(increments(), 0, 1)
    rows = [x.reshape(STEPS * PATHS, -1) for x in (q[:-1], p[:-1], q[1:], p[1:], dW)]
    return rows, np.isfinite(rows[2] + rows[3]).all(axis=1)


def by_traced_run(functions, method):
    run = jax.jit(lambda q, p: simulate(functions.system, method, (q, p)))(*initial(functions.dim))
    return of_run(run.q, run.p)


ENGINES = {
    "step": by_steps,
    "step inside jit": partial(by_steps, change=jax.jit),
    "arrays": by_arrays,
    "run": by_run,
    "run of vector code": lambda functions, method: by_run(functions, method, VECTOR),
    "run of a kernel": by_kernel,
    "run inside jit": by_traced_run,
}


def check_system(functions, method, name):
    """The equations of every step, in plain `jax.numpy`, hold to rounding for what it gave."""
    steps, is_fine = ENGINES[name](functions, da.METHODS[method]())
    near = nearby(np.random.default_rng(0), *steps)
    residual = jax.jit(jax.vmap(jax.vmap(partial(METHODS[method], functions))))
    left = np.concatenate(residual(*near), axis=-1)
    if method == "heun":
        assert is_fine[np.isfinite(left[0]).all(axis=1)].all(), "an explicit step cannot fail"
    # Stage equations count as solved with a residual of 256 roundings of what is added up.
    zeros = left - left[0]
    assert_equal_to_rounding(left[0][is_fine], zeros[:, is_fine], (method, name), least=1e-12)


def systems(names):
    vectors = formulas("V", 2, names)
    return st.builds(
        Functions,
        st.sampled_from([1, 2]),
        formulas("F", 2, names),
        vectors,
        formulas("F", 2, names),
        st.none() | vectors,
    )


engines, methods = st.sampled_from(list(ENGINES)), st.sampled_from(list(METHODS))


@settings(quick, max_examples=1)
@given(systems(VECTORISED))
def test_engines(functions):
    check_system(functions, "heun", "run of vector code")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ENGINES)
@settings(thorough, max_examples=10)
@given(systems(frozenset(STRAIGHT)))
def test_engines_on_many_systems(method, name, functions):
    check_system(functions, method, name)


@pytest.mark.slow
@settings(thorough, max_examples=30)
@given(systems(frozenset(STRAIGHT) | frozenset(LOOPS)), methods, engines)
def test_engines_on_systems_with_loops(functions, method, name):
    check_system(functions, method, name)


def on_momenta(*names):
    """A system with a force of some operations on the momentum, which methods have to solve for."""
    number = reduce(lambda inner, name: (name, inner), names[::-1], ("z", 0))
    return Functions(1, ("sin", ("z", 0)), ("filled", number), ("cos", ("z", 0)), None)


@pytest.mark.parametrize(
    "names",
    [
        ("square", "stopped"),
        pytest.param(("single",), marks=pytest.mark.slow),
        pytest.param(("floor",), marks=pytest.mark.slow),
        pytest.param(("low_bits", "to_byte"), marks=pytest.mark.slow),
        pytest.param(("own_sine", "stopped", "cube"), marks=pytest.mark.slow),
    ],
    ids=" of ".join,
)
@pytest.mark.parametrize(
    "name",
    [
        "run of vector code",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ENGINES if n != "run of vector code"),
    ],
)
def test_residuals_are_true_where_derivatives_are_not(names, name):
    check_system(on_momenta(*names), "midpoint", name)


def test_a_step_of_another_method_is_found_out(monkeypatch):
    """What all of these tests rely on."""
    monkeypatch.setitem(METHODS, "heun", midpoint)
    with pytest.raises(AssertionError, match="step"):
        check_system(on_momenta("sin"), "heun", "step")
