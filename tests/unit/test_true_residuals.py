"""Stage equations hold as well as is said, also where derivatives mislead Newton's method."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import engines, registers
from dalembert.stepping import residuals
from tiers import tiered


@jax.custom_jvp
def misleading(p):
    return jnp.sin(p)


misleading.defjvps(lambda tangent, _, p: -0.3 * tangent)


@jax.custom_jvp
def twice(p):
    return 2 * p


twice.defjvps(lambda tangent, _, p: -tangent)

FRICTIONS = {
    "stop_gradient": lambda p: 0.5 * jax.lax.stop_gradient(jnp.sin(p)),
    "stop_gradient of a line": lambda p: 0.5 * jax.lax.stop_gradient(p),
    "steep": lambda p: 0.5 * jnp.tanh(1000 * p),
    "a wrong rule": misleading,
    "a wrong rule for a line": twice,
    "a corner": lambda p: jnp.abs(p) * p + 0.3 * jnp.abs(p),
    "a jump nearby": lambda p: 0.4 * jnp.where(p > 0.71, jnp.sin(p), p),
    "smooth": lambda p: 0.5 * jnp.sin(p),
}
DT, STEPS = 0.05, 40


def system_with(friction):
    return da.System(
        H=lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0]), F=lambda q, p: -friction(p), dim=1
    )


def true_residuals(friction, q, p):
    """Of midpoint's equations between consecutive states, relative to what rounding can leave."""
    Q, P = (q[1:] + q[:-1]) / 2, (p[1:] + p[:-1]) / 2
    with jax.enable_x64(True):
        low, here, high = (
            np.asarray(friction(jnp.asarray(P * x))) for x in (1 - 1e-9, 1, 1 + 1e-9)
        )
    of_p = np.abs(p[1:] - p[:-1] + DT * (np.sin(Q) + here))
    of_q = np.abs(q[1:] - q[:-1] - DT * P)
    steep = DT * np.abs(high - low) / 2e-9
    return np.maximum(
        of_p / (1e-3 + np.abs(P) + np.abs(p[1:]) + steep), of_q / (1e-3 + np.abs(Q) + np.abs(q[1:]))
    )


def run_with(friction, **options):
    start = np.linspace(-2, 2, 64)[:, None], np.linspace(1.5, -1.0, 64)[:, None]
    settings = dict(dt=DT, t_end=DT * STEPS, paths=64, keep="all", progress=False) | options
    return da.simulate(system_with(friction), da.midpoint(), start, **settings)


VECTOR, XLA, KERNEL = "vector code (LLVM)", "XLA", "one GPU kernel (Pallas)"
CASES = [*product((VECTOR, XLA, KERNEL), FRICTIONS)]
FAST = [f"{VECTOR}-a wrong rule for a line"]


@pytest.mark.parametrize(("code", "name"), tiered(CASES, fast=FAST))
@pytest.mark.filterwarnings("ignore:.*paths failed")
def test_runs_report_what_is_true(code, name, monkeypatch):
    friction = FRICTIONS[name]
    if code == KERNEL:
        monkeypatch.setattr(registers, "INTERPRETED", True)
        kernel = engines.KernelInRegisters
        monkeypatch.setattr(kernel, "compile", kernel.compile_anywhere)
    run = run_with(friction, engine=code)
    assert run.provenance["code"] == code
    q, p = run.q[..., 0], run.p[..., 0]
    fine = np.isfinite(p[-1])
    assert run.residual <= residuals.tolerance(np.float64)
    assert true_residuals(friction, q[:, fine], p[:, fine]).max() < 8 * residuals.tolerance(
        np.float64
    )
    # An equation with a jump need not have a solution; all others do.
    assert fine.all() or name == "a jump nearby"
    # Control: of a friction that differs by 1e-8 the equations do not hold.
    other = true_residuals(lambda x: (1 + 1e-8) * friction(x), q[:, fine], p[:, fine])
    assert other.max() > 50 * residuals.tolerance(np.float64)


@pytest.mark.parametrize("name", tiered(FRICTIONS, fast=["a wrong rule for a line"]))
def test_single_steps_report_what_is_true(name):
    friction = FRICTIONS[name]
    q, p, info = da.step(system_with(friction), da.midpoint(), [0.3], [0.9], DT, [])
    states = np.stack([[0.3], q]), np.stack([[0.9], p])
    assert info.converged
    assert true_residuals(friction, *states) < 8 * residuals.tolerance(np.float64)


@pytest.mark.slow
def test_a_residual_that_is_not_a_number_is_not_forgotten_by_the_steps_after_it():
    """Twelve degrees of freedom, on arrays: a force that is there beyond |q| = 0.1 only."""

    def H(q, p):
        springs = jnp.sum(0.05 * (q - jnp.roll(q, 1)) ** 2)
        return jnp.sum(p**2) / 2 + springs + jnp.sum(0.3 * jnp.sqrt(q**2 - 0.01))

    system = da.System(H=H, f=lambda q, p, w: 0.001 * w, dim=12, noises=12)
    for save_every in (1, 4):
        with pytest.warns(RuntimeWarning, match="1 of 1 paths failed"):
            run = da.simulate(
                system, da.midpoint(), (np.full(12, 0.62), np.full(12, -1.0)), dt=0.4, t_end=1.6,
                save_every=save_every, progress=False,
            )  # fmt: skip
        assert run.failed == 1 and run.residual == np.inf
    *_, info = da.step(system, da.dirk(), np.full(12, 0.05), np.full(12, -1.0), 0.4, np.zeros(12))
    assert not info.converged and info.residual == np.inf


# --- on arrays ---------------------------------------------------------------------------------

WIDE = 24
"""Degrees of freedom for which no step is written out."""


def values(fun, *xs):
    """A function of arrays in float64."""
    with jax.enable_x64(True):
        return [np.asarray(fun(jnp.asarray(x))) for x in xs]


def chain_energy(q, p):
    return p @ p / 2 + jnp.sum(1 - jnp.cos(q)) + 0.1 * jnp.sum((q - jnp.roll(q, 1)) ** 2)


def chain_slopes(Q):
    return np.sin(Q) + 0.2 * (2 * Q - np.roll(Q, 1, -1) - np.roll(Q, -1, -1))


def residuals_of_chain(friction, q, p):
    """Of the largest of midpoint's equations for q, and for p, on the largest of their scales.

    P is uncertain by the rounding of the momenta at the ends, which may cancel in it.
    """
    Q, P = (q[1:] + q[:-1]) / 2, (p[1:] + p[:-1]) / 2
    near = 1e-9 * (np.abs(P) + np.abs(p[1:]))
    low, here, high = values(friction, P - near, P, P + near)
    steep = DT * np.abs(high - low) / 2e-9
    equations = (
        (p[1:] - p[:-1] + DT * (chain_slopes(Q) + here), np.abs(P) + np.abs(p[1:]) + steep),
        (q[1:] - q[:-1] - DT * P, np.abs(Q) + np.abs(q[1:])),
    )
    return np.stack([np.abs(x).max(-1) / scale.max(-1) for x, scale in equations])


@pytest.mark.parametrize("name", tiered(FRICTIONS, fast=["a wrong rule"]))
@pytest.mark.filterwarnings("ignore:.*paths failed")
def test_runs_and_steps_on_arrays_report_what_is_true(name):
    friction, limit = FRICTIONS[name], residuals.tolerance(np.float64)
    system = da.System(H=chain_energy, F=lambda q, p: -friction(p), dim=WIDE)
    rng = np.random.default_rng(0)
    start = rng.uniform(-2, 2, (6, WIDE)), rng.uniform(-1.5, 1.5, (6, WIDE))
    run = da.simulate(
        system, da.midpoint(), start, dt=DT, t_end=20 * DT, paths=6, keep="all", progress=False
    )
    assert run.provenance["code"] == "arrays (XLA)"
    fine = np.isfinite(run.p[-1]).all(axis=-1)
    assert fine.all() or name == "a jump nearby"
    q, p = run.q[:, fine], run.p[:, fine]
    assert run.residual <= limit and residuals_of_chain(friction, q, p).max() < 8 * limit
    other = residuals_of_chain(lambda x: (1 + 1e-8) * friction(x), q, p)
    assert other.max() > 50 * limit, "control"
    end_q, end_p, info = da.step(system, da.midpoint(), start[0][0], start[1][0], DT, [])
    states = np.stack([start[0][0], end_q]), np.stack([start[1][0], end_p])
    assert info.converged and info.residual <= limit
    assert residuals_of_chain(friction, *states).max() < 8 * limit


# --- with constraints --------------------------------------------------------------------------

SURFACES = {
    "sphere": lambda q: q @ q - 1,
    # Newton's method for the multiplier takes the slope of the sphere.
    "stop_gradient": lambda q: q @ q - 1 + 0.2 * jax.lax.stop_gradient(jnp.sin(3 * q[0])),
    "steep": lambda q: q @ q - 1 + 1e-3 * jnp.tanh(300 * q[0]),
}
ON_SURFACES = [
    *(("sphere", name) for name in ("stop_gradient", "a wrong rule", "a corner", "a jump nearby")),
    *product(("stop_gradient", "steep"), ("no friction", "stop_gradient")),
]


def residuals_of_rattle(friction, surface, q, p):
    """Of its kicks apart from the force of the constraint, of g(q) = 0 and of Dg(q) p = 0."""
    P = (q[1:] - q[:-1]) / DT
    rounded = np.abs(P) + np.abs(q[1:]) / DT
    low, here, high = values(friction, P - 1e-9 * rounded, P, P + 1e-9 * rounded)
    (normal,) = values(jax.vmap(jax.vmap(jax.grad(surface))), q)
    force = -np.array([0.0, 0.0, 1.0]) - here

    def tangent(change, normal):
        share = np.sum(change * normal, -1) / np.sum(normal**2, -1)
        return np.abs(change - share[..., None] * normal)

    kicks = np.maximum(
        tangent(P - p[:-1] - DT / 2 * force, normal[:-1]),
        tangent(p[1:] - P - DT / 2 * force, normal[1:]),
    )
    scale = 1e-3 + np.abs(p[1:]) + rounded + DT * np.abs(high - low) / 2e-9
    (missed,) = values(jax.vmap(jax.vmap(surface)), q[1:])
    slopes = np.sum(normal[1:] * p[1:], -1) / (1 + np.abs(p[1:]).max(-1))
    worst = kicks.max(-1) / scale.max(-1), np.abs(missed), np.abs(slopes)
    return [x.max() for x in worst]


@pytest.mark.parametrize(
    ("surface", "name"), tiered(ON_SURFACES, fast=["stop_gradient-no friction"])
)
def test_runs_with_constraints_report_what_is_true(surface, name):
    g, limit = SURFACES[surface], residuals.tolerance(np.float64)
    friction = FRICTIONS.get(name, lambda p: 0 * p)
    system = da.System(
        H=lambda q, p: p @ p / 2 + q[2],
        F=None if name == "no friction" else lambda q, p: -friction(p),
        constraints=lambda q: g(q)[None],
        dim=3,
    )
    rng = np.random.default_rng(0)
    there = [da.project(system, *rng.normal(size=(2, 3)))[:2] for _ in range(8)]
    run = da.simulate(
        system, da.rattle(), tuple(map(np.stack, zip(*there, strict=True))), dt=DT, t_end=20 * DT,
        paths=8, keep="all", progress=False,
    )  # fmt: skip
    code = VECTOR if name == "no friction" else "arrays (XLA)"
    assert run.provenance["code"] == code and run.failed == 0 and run.residual <= limit
    assert max(residuals_of_rattle(friction, g, run.q, run.p)) < 8 * limit
    # Controls: of another force, and on another surface, the equations do not hold.
    kicks, *_ = residuals_of_rattle(lambda p: friction(p) + 1e-8 * p, g, run.q, run.p)
    _, missed, _ = residuals_of_rattle(friction, lambda q: g(q) + 1e-8, run.q, run.p)
    assert min(kicks, missed) > 50 * limit
