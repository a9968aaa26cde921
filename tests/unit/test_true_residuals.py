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
CASES = [*product((VECTOR, XLA), FRICTIONS), (KERNEL, "steep")]
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
