"""Engines: one interface, a choice that says why, and one of one's own."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble.engine import RefusedError
from dalembert.ensemble.engines import ENGINES
from dalembert.ensemble.march import Status

SYSTEM = da.System(H=lambda q, p: (p @ p + q @ q) / 2, h=[lambda q, p: 0.1 * q[0]], dim=1)
OPTIONS = dict(dt=0.1, t_end=2.0, paths=70, save_every=5, keep="all", progress=False)
START = ([1.0], [0.0])


class Verlet:
    """An engine from outside: the leapfrog of an oscillator with a kick, in NumPy."""

    name = "NumPy leapfrog"

    def compile(self, steps):
        if steps.stepper.method != da.stormer_verlet() or steps.stepper.system.dim != 1:
            raise RefusedError("it takes one oscillator by Störmer–Verlet only")

        def on_block(block):
            @jax.jit
            def draw(path, number):
                one = steps.noise.draw
                return jax.vmap(lambda w: one(block.seed, w, number, block.dt, 1, np.float64))(path)

            def noise(number):
                path = tuple(map(jnp.asarray, block.path))
                return np.asarray(draw(path, np.uint32(number)).dW)[:, 0]

            def march(state, first, count):
                (q,), (p,), dt = map(np.asarray, state.q), map(np.asarray, state.p), block.dt
                before, is_going = (q, p), np.asarray(state.status) == Status.FINE
                for number in range(first, first + count):
                    kick = 0.1 * noise(number)
                    p = p - dt / 2 * q - kick / 2
                    q = q + dt * p
                    p = p - dt / 2 * q - kick / 2
                is_fine = is_going & np.isfinite(q + p)
                q, p = (np.where(is_fine, *x) for x in zip((q, p), before, strict=True))
                hard = is_going & ~is_fine
                return state._replace(q=(q,), p=(p,)), hard if hard.any() else None

            return march

        return on_block


def run(**options):
    return da.simulate(SYSTEM, da.stormer_verlet(), START, **OPTIONS | options)


def test_an_engine_from_outside_takes_the_steps():
    ours, usual = run(engine=Verlet()), run()
    assert ours.provenance["code"] == "NumPy leapfrog"
    np.testing.assert_allclose(ours.q, usual.q, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.mean["energy"], usual.mean["energy"], rtol=1e-9)


def test_runs_by_an_engine_from_outside_are_saved_and_go_on(tmp_path):
    assert len(inspect.getsource(Verlet).splitlines()) <= 60
    file, whole = tmp_path / "run.ckpt", run(engine=Verlet())
    run(engine=Verlet(), checkpoint=file, t_end=1.0)
    later = run(engine=Verlet(), checkpoint=file)
    later.save(tmp_path / "run.npz")
    for found in (later, da.load(tmp_path / "run.npz")):
        np.testing.assert_array_equal(found.q, whole.q)
        assert found.provenance["code"] == "NumPy leapfrog"
    with pytest.raises(ValueError, match="belongs to another run"):
        run(checkpoint=file)


def test_an_engine_that_cannot_says_why_and_the_next_one_can():
    found = da.simulate(SYSTEM, da.midpoint(), START, engine=[Verlet(), "XLA"], **OPTIONS)
    assert found.provenance["code"] == "XLA"
    assert "Störmer–Verlet only" in found.provenance["refused_engines"]["NumPy leapfrog"]
    with pytest.raises(ValueError, match=r"no engine can take these .* NumPy leapfrog: it takes"):
        da.simulate(SYSTEM, da.midpoint(), START, engine=Verlet(), **OPTIONS)


def test_an_engine_from_outside_is_explained():
    text = da.explain(SYSTEM, da.stormer_verlet(), engine=Verlet())
    assert "engine on this machine: NumPy leapfrog" in text
    text = da.explain(SYSTEM, da.midpoint(), engine=[Verlet(), "XLA"])
    assert "not NumPy leapfrog: it takes one oscillator" in text


def test_every_engine_has_a_name_of_its_own():
    assert len({engine.name for engine in ENGINES}) == len(ENGINES)


@pytest.mark.parametrize(
    ("engine", "error", "match"),
    [
        ("LLVM", ValueError, "engine must be one of 'vector code"),
        (3, TypeError, "must have a name and a method compile"),
    ],
)
def test_what_is_no_engine_is_refused(engine, error, match):
    with pytest.raises(error, match=match):
        run(engine=engine)


def test_explain_says_which_engine_and_why_not_a_faster_one():
    chain = da.System(H=lambda q, p: (p @ p) / 2 + jnp.sum(jnp.cosh(q)), dim=1)
    text = da.explain(chain, da.midpoint())
    assert "engine on this machine: XLA" in text and "no vector form for sinh" in text
