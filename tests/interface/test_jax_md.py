"""Potentials of jax-md serve as potentials of Langevin's equation."""

from contextlib import ExitStack

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da


def usual():
    """Promotion of types and shapes that code of others is written for."""
    stack = ExitStack()
    stack.enter_context(jax.numpy_rank_promotion("allow"))
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    return stack


with usual():
    jax_md = pytest.importorskip("jax_md")

N, BOX, SIGMA = 32, 6.0, 1.1


@pytest.fixture(autouse=True)
def usual_promotion():
    with usual():
        yield


def soft_spheres(q, sigma):
    """The same energy by hand."""
    apart = q[:, None] - q[None]
    r = np.linalg.norm(apart - BOX * np.round(apart / BOX), axis=-1)[np.triu_indices(N, 1)]
    return np.sum(np.where(r < sigma, (1 - r / sigma) ** 2 / 2, 0))


def check_run(potential, sigma):
    system = da.systems.langevin(potential, dim=(N, 3), gamma=1.0, temperature=0.1)
    q = np.random.default_rng(0).uniform(0, BOX, (N, 3))
    observe = {
        "T": da.observables.kinetic_temperature(system),
        "U": da.observables.potential(system),
    }
    options = {"dt": 0.05, "t_end": 10.0, "paths": 4, "save_every": 50, "keep": "all"}
    run = da.simulate(system, da.baoab(), (q, 0 * q), observe=observe, **options)
    assert run.failed == 0
    for number in (0, -1):
        energies = [soft_spheres(q, sigma) for q in run.q[number]]
        assert run.mean["U"][number] == pytest.approx(np.mean(energies), rel=1e-12)
    assert abs(run.mean["T"][-1] - 0.1) < 5 * run.stderr["T"][-1] < 0.05


def test_baoab_samples_soft_spheres():
    # A float would be cut to seven digits by jax-md; an array of JAX keeps its own.
    with jax.enable_x64(True):
        displacement = jax_md.space.periodic(BOX)[0]
        potential = jax_md.energy.soft_sphere_pair(displacement, sigma=jnp.float64(SIGMA))
    check_run(potential, SIGMA)


@pytest.mark.filterwarnings("ignore:.* has float32 numbers")
def test_numbers_that_jax_md_has_cut_are_warned_of():
    potential = jax_md.energy.soft_sphere_pair(jax_md.space.periodic(BOX)[0], sigma=SIGMA)
    with pytest.warns(UserWarning, match="H has float32 numbers, which carry seven digits"):
        check_run(potential, float(np.float32(SIGMA)))
