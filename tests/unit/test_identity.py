"""Descriptions of runs: everything that decides their numbers, exactly."""

import json
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import identity
from dalembert.ensemble.checkpoint import DifferentRunError
from dalembert.ensemble.identity import describe_settings
from dalembert.ensemble.settings import make_settings
from traced_functions import by_jvp, by_vjp, jitted

USUAL = {
    "dt": 0.25,
    "t_end": 1.0,
    "paths": 3,
    "only": None,
    "seed": 0,
    "observe": None,
    "histograms": None,
    "save_every": 1,
    "noise": None,
    "keep": "nothing",
    "dtype": np.float64,
}
PENDULUM = da.systems.pendulum()
START = ([2.0], [0.0])


def energy(q, p):
    return p[0] ** 2 / 2 + q[0] ** 2 / 2


def settings(system=PENDULUM, method=None, initial=START, **options):
    return make_settings(system, method or da.midpoint(), initial, **(USUAL | options))


def text(record):
    return json.dumps(record, sort_keys=True)


def system(**functions):
    return settings(da.System(**({"H": energy, "dim": 1} | functions)))


def with_params(params, H=lambda q, p, params: energy(q, p)):
    return settings(da.System(H=H, dim=1, params=params))


def two_dimensional(H):
    return settings(da.System(H=H, dim=2), initial=([1.0, 1.0], [0.0, 0.0]))


def drawn(a):
    return lambda key: (a * jax.random.normal(key, (1,)), jnp.zeros(1))


def counted(low, high=1.0, of=lambda q, p, params: q[0]):
    return settings(histograms={"q": da.Histogram(da.Axis(of, low, high))})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Spring:
    stiffness: float


class Pair(NamedTuple):
    a: float
    b: float


def recorded(**fields):
    steps = np.full((4, 1), 0.1)
    noise = da.Recorded(da.Increments(**({"dW": steps} | fields)))
    return settings(NOISY, noise=noise)


NOISY = da.System(H=energy, h=[lambda q, p: q[0]], dim=1)
SAME = {"h": lambda q, p: q[0], "f": lambda q, p: q}


def noisy(noise):
    return settings(NOISY, noise=noise)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Loud(da.Gaussian):
    """A kind of noise of one's own, whose fields do not say what it draws."""

    def draw_together(self, *args):
        louder = FACTORS_OF["dW"]
        return tuple(x._replace(dW=louder * x.dW) for x in super().draw_together(*args))


FACTORS_OF = {"dW": 1.0}
ABOVE = float(np.nextafter(2.0, 3.0))

PAIRS = {
    "H inside jit": (two_dimensional, jitted(2.0), jitted(3.0)),
    "a rule of H": (two_dimensional, by_jvp(2.0), by_jvp(3.0)),
    "a rule of H backwards": (two_dimensional, by_vjp(2.0), by_vjp(3.0)),
    "F": (lambda a: system(F=lambda q, p: -a * p), 2.0, ABOVE),
    "a rule of F": (lambda a: system(F=lambda q, p: by_jvp(a)(p, q) * p), 2.0, 3.0),
    "h": (lambda a: system(h=[lambda q, p: a * q[0]]), 2.0, ABOVE),
    "f": (lambda a: system(f=[lambda q, p: a * q]), 2.0, ABOVE),
    "h, not f": (lambda kind: system(**{kind: [SAME[kind]]}), "h", "f"),
    "params": (lambda a: with_params({"k": a}), 2.0, ABOVE),
    "the sign of zero": (with_params, 0.0, -0.0),
    "a whole number": (with_params, 2, 2.0),
    "a complex number": (with_params, 1.0 + 2.0j, 1.0 + 3.0j),
    "a tree of one's own": (with_params, Spring(2.0), Spring(ABOVE)),
    "a named tuple": (with_params, Pair(1.0, 2.0), Pair(1.0, ABOVE)),
    "dt": (lambda dt: settings(dt=dt, t_end=4 * dt), 2.0, ABOVE),
    "initial": (lambda a: settings(initial=([a], [0.0])), 2.0, ABOVE),
    "the sampler": (lambda a: settings(initial=drawn(a)), 2.0, ABOVE),
    "the sampler inside jit": (
        lambda a: settings(initial=jax.jit(drawn(np.array([a])))), 2.0, ABOVE,
    ),
    "observe": (lambda a: settings(observe={"q": lambda q, p, c: a * q[0]}), 2.0, ABOVE),
    "observe inside jit": (
        lambda a: settings(observe={"q": jax.jit(lambda q, p, c: np.array([a]) * q)}), 2.0, ABOVE,
    ),
    "an axis": (counted, 0.0, 2**-1000),
    "what it counts": (lambda a: counted(0.0, of=lambda q, p, c: a * q[0]), 2.0, ABOVE),
    "truncation": (lambda k: noisy(da.Gaussian(truncation=k)), 2.0, ABOVE),
    "areas": (lambda k: noisy(da.Gaussian(areas=k)), 4, 5),
    "recorded": (lambda a: recorded(dW=np.full((4, 1), a)), 2.0, ABOVE),
    "what is recorded": (lambda name: recorded(**{name: np.ones(4)}), "truncated", "coin"),
    "the method": (lambda a: settings(method=da.dirk(a)), 0.5, float(np.nextafter(0.5, 1))),
    "only": (lambda only: settings(only=only), [0], [1]),
    "seed": (lambda seed: settings(seed=seed), 2**63, 2**63 + 1),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:truncation")
@pytest.mark.parametrize("case", PAIRS)
def test_other_runs_have_another_description(case):
    make, a, b = PAIRS[case]
    first, again, other = (text(describe_settings(make(x), exactly=True).record) for x in (a, a, b))
    assert first == again
    assert first != other


def test_noise_of_ones_own_is_known_by_what_it_draws(monkeypatch):
    before = describe_settings(noisy(Loud()), exactly=True).record
    assert text(describe_settings(noisy(Loud()), exactly=True).record) == text(before)
    monkeypatch.setitem(FACTORS_OF, "dW", 2.0)
    assert text(describe_settings(noisy(Loud()), exactly=True).record) != text(before)


def test_options_of_jax_that_change_numbers():
    before = describe_settings(settings(), exactly=True).record
    with jax.default_matmul_precision("highest"):
        assert text(describe_settings(settings(), exactly=True).record) != text(before)


def test_a_checkpoint_of_another_function_inside_jit_is_refused(tmp_path):
    """Also where both functions have the same name and the same text."""
    options = {"dt": 0.1, "t_end": 0.2, "checkpoint": tmp_path / "run.ckpt"}
    start = ([1.0, 1.0], [0.0, 0.0])
    for a, expected in ((2.0, None), (2.0, None), (3.0, r"system.functions.H")):
        system = da.System(H=jitted(a), dim=2)
        if expected is None:
            da.simulate(system, da.midpoint(), start, **options)
            continue
        with pytest.raises(DifferentRunError, match=expected):
            da.simulate(system, da.midpoint(), start, **options)


def test_a_checkpoint_needs_functions_that_can_be_compared(tmp_path):
    def called_back(q, p):
        value = jax.pure_callback(
            lambda x: x, jax.ShapeDtypeStruct((), q.dtype), q[0], vmap_method="sequential"
        )
        return jnp.asarray(value)

    options = {"dt": 0.1, "t_end": 0.2, "observe": {"q": called_back}}
    system = da.System(H=energy, dim=1)
    with pytest.raises(ValueError, match=r"checkpoint= needs .* observe\['q'\] cannot: it calls"):
        da.simulate(system, da.midpoint(), START, checkpoint=tmp_path / "run.ckpt", **options)
    run = da.simulate(system, da.midpoint(), START, **options)
    assert run.provenance["observe"]["q"]["functions"] == {"of": "unknown"}
    assert not list(tmp_path.iterdir())


def test_descriptions_are_plain_data():
    for params in (Spring(1.0), Pair(1.0, 2.0), {1: [1j, np.ones(2)]}, jax.random.key(0)):
        record = describe_settings(with_params(params), exactly=False).record
        assert json.loads(json.dumps(record))["system"]["params"] is not None


@pytest.mark.parametrize("size", [3, 64, 65, 200])
def test_large_states_are_known_by_all_of_their_bytes(size, monkeypatch):
    """In pieces, on all cores; small ones are known as they always were."""
    x = np.random.default_rng(0).normal(size=size)
    whole = identity._arrays([x])
    monkeypatch.setattr(identity, "PIECE", 512)
    assert (identity._arrays([x]) == whole) == (size <= 64)
    assert identity._arrays([x.copy()]) == identity._arrays([x])
    for place in (0, size // 2, size - 1):
        other = x.copy()
        other[place] = np.nextafter(other[place], 9)
        assert identity._arrays([other]) != identity._arrays([x])
    assert identity._arrays([x[::-1]]) != identity._arrays([x])
