"""Many equal blocks of constraints: one is cut out and written out, and steps stay the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.noise import Increments
from dalembert.stepping import equal_blocks, residuals
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.cut import NotEqualError, cut
from dalembert.stepping.stepper import make_stepper

N = 3


def of_type(*shape):
    return jax.ShapeDtypeStruct(shape, np.float64)


def of_all(one, x, *others):
    """Results of all blocks, each by its own function."""
    given = one.numbers(*others)
    axes = (0, *(0 if differs else None for differs in one.differ))
    return np.ravel(jax.vmap(one.alone, axes)(x.reshape(one.count, -1), *given))


def sides(q, lengths):
    r = q.reshape(N, 3, 2)
    ends = jnp.stack([r[:, 0] - r[:, 1], r[:, 2] - r[:, 1]], axis=1)
    return (jnp.sum(ends**2, axis=-1) - lengths**2).reshape(-1)


def by_pairs(q, lengths):
    r, pairs = q.reshape(3 * N, 2), np.arange(3 * N).reshape(N, 3)
    first, last = pairs[:, [0, 2]].ravel(), pairs[:, [1, 1]].ravel()
    return jnp.sum((r[first] - r[last]) ** 2, axis=1) - lengths.reshape(-1) ** 2


def turned(q, lengths):
    matrix = np.array([[1.0, 0.5], [0.0, 2.0]])
    r = jnp.where(q.reshape(N, 3, 2) > 0, 1.0, 2.0) * (q.reshape(N, 3, 2) @ matrix)
    return jnp.sin(r[..., 0] * np.arange(9.0).reshape(N, 3)).reshape(-1)


@pytest.mark.parametrize("fun", [sides, by_pairs, turned], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(N, 2), (1, 2), ()])
def test_one_block_computes_what_it_computes_among_all(fun, shape):
    if fun is by_pairs and shape != (N, 2):
        pytest.skip("it reads a length of each pair")
    rng = np.random.default_rng(0)
    q, lengths = rng.standard_normal(6 * N), 1 + rng.random(shape)
    one = cut(fun, N, of_type(6 * N), of_type(*shape))
    np.testing.assert_allclose(of_all(one, q, lengths), fun(q, lengths), rtol=1e-15)


def test_blocks_that_are_not_equal_are_refused():
    def neighbours(q):
        return q - jnp.roll(q, 1)

    def by_place(q):
        return q[np.array([1, 0, 2, 3, 4, 5])]

    def of_all_places(q):
        return q * jnp.sum(q)

    for fun in (neighbours, by_place, of_all_places):
        with pytest.raises(NotEqualError):
            cut(fun, N, of_type(2 * N))


def dumbbells(count, friction):
    """Those in a trap, each with its own masses and length."""
    rng = np.random.default_rng(1)
    masses, lengths = 1 + rng.random((count, 2, 1)), 1 + rng.random((count, 1))

    def H(q, p):
        return jnp.sum(p**2 / (2 * masses)) + jnp.sum(q**4) / 4

    def g(q):
        return (jnp.sum((q[:, 0] - q[:, 1]) ** 2, axis=-1, keepdims=True) - lengths**2).reshape(-1)

    system = da.System(
        H, (lambda q, p: -friction * p) if friction else None, lambda q, p, w: 0.2 * jnp.sum(q * w),
        dim=(count, 2, 3), noises=(count, 2, 3), constraints=g,
    )  # fmt: skip
    return system, rng.standard_normal((count, 2, 3)), rng.standard_normal((count, 2, 3))


def fast_step(system, method, q, p, dW, shortcuts=True):
    stepper = make_stepper(system, method, np.dtype(float), shortcuts)
    q, p, dt = jnp.ravel(q), jnp.ravel(p), jnp.asarray(0.05)
    increments = Increments(dW=jnp.ravel(dW))
    step = jax.jit(lambda *z: stepper.advance(*z, dt, increments, system.params, Solver.FAST))
    return stepper, *step(q, p)


@pytest.mark.parametrize(
    ("method", "friction"),
    [
        pytest.param(da.rattle(), 0.0, id="rattle", marks=pytest.mark.slow),
        pytest.param(da.rattle(), 0.3, id="rattle with friction", marks=pytest.mark.slow),
        pytest.param(da.g_baoab(), 0.3, id="g_baoab"),
    ],
)
def test_steps_are_those_of_arrays(method, friction, monkeypatch):
    monkeypatch.setattr(equal_blocks, "FEWEST", 2)
    system, q, p = dumbbells(4, friction)
    start = da.project(system, q, p)
    dW = 0.2 * np.random.default_rng(2).standard_normal(q.shape)
    found = []
    for shortcuts in (True, False):
        stepper, new_q, new_p, info = fast_step(system, method, *start, dW, shortcuts)
        assert (stepper.equal is not None) == shortcuts
        assert info.converged and info.residual <= residuals.tolerance(float)
        found.append(np.concatenate([new_q, new_p]))
    np.testing.assert_allclose(*found, rtol=0, atol=1e-13)
    assert np.max(np.abs(found[0] - np.concatenate([*map(np.ravel, start)]))) > 0.01


def test_a_step_that_is_too_large_is_reported(monkeypatch):
    monkeypatch.setattr(equal_blocks, "FEWEST", 2)
    system, q, p = dumbbells(4, 0.0)
    p[2] = [[200.0, 0, 0], [0, 200.0, 0]]
    stepper, *_, info = fast_step(system, da.rattle(), *da.project(system, q, p), 0 * q)
    assert stepper.equal is not None
    assert not info.converged


def test_a_block_that_goes_over_a_singular_point_is_reported(monkeypatch):
    """Points on cones, of which the last goes through the apex if it is fast enough."""
    monkeypatch.setattr(equal_blocks, "FEWEST", 2)

    def g(q):
        return q[:, 0] ** 2 + q[:, 1] ** 2 - q[:, 2] ** 2

    system = da.System(lambda q, p: jnp.sum(p**2) / 2, dim=(3, 3), constraints=g)
    q, ends = np.tile([0.6, 0.8, 1.0], (3, 1)), []
    for speed in (0.0, -13.0, -19.0, -21.0):
        start, none = (q, q * np.array([[1.0], [2.0], [speed]])), np.zeros(0)
        stepper, *_, fast = fast_step(system, da.rattle(), *start, none)
        assert stepper.equal is not None
        safe = da.step(system, da.rattle(), *start, 0.05, none)[2]
        ends.append((bool(fast.converged), bool(safe.converged)))
    # Near the apex the step is followed.
    assert ends == [(True, True), (True, True), (False, True), (False, False)]
