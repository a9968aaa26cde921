"""Every method for every system takes steps on the ready-made ones, with and without shortcuts.

Those that ask more of a system are in `unit/test_beyond.py`.
"""

from functools import cache

import numpy as np
import pytest

import dalembert as da
from dalembert.theory.diagnosis import for_every_system
from tiers import tiered

DT = 0.05

REFUSED = {("srkw2", "two_noise")}
PAIRS = [(m, s) for m in for_every_system() for s in da.systems.FEW if (m, s) not in REFUSED]

# Every method and every system once, in pairs that compile quickly.
FAST = [
    "midpoint-damped_kubo",
    "stormer_verlet-van_der_pol",
    "dirk-damped_kubo",
    "srkw1-langevin",
    "srkw2-langevin",
    "heun-planar",
    "r2-lorentz",
    "e1-lenard_bernstein",
    "rs1-pendulum",
    "rs2-two_noise",
]


@cache
def made(name):
    return da.METHODS[name]() if name in da.METHODS else da.SYSTEMS[name]()


def start(system):
    rng = np.random.default_rng(system.dim)
    return 0.7 + 0.2 * rng.normal(size=system.dim), 0.5 * rng.normal(size=system.dim)


def increments(system, method, number):
    """What the method needs, drawn by the noise it is made for."""
    weak = method.convergence == "weak"
    noise = da.ThreePoint() if weak else da.Gaussian()
    record = noise.draw(7, 0, number, DT, system.noises, np.float64)
    # A three-point variable is often zero, and a step without noise would show nothing.
    dW = np.where(np.asarray(record.dW) == 0, np.sqrt(3 * DT), record.dW)
    return record._replace(dW=dW)


@cache
def two_steps(method, system, shortcuts=True):
    method, system = made(method), made(system)
    q, p = start(system)
    reports = []
    for number in range(2):
        record = increments(system, method, number)
        q, p, info = da.step(system, method, q, p, DT, record, shortcuts=shortcuts)
        reports.append(info)
    return np.asarray(q), np.asarray(p), reports


@pytest.mark.parametrize(("method", "system"), tiered(PAIRS, fast=FAST))
def test_two_steps(method, system):
    q, p, reports = two_steps(method, system)
    q0, p0 = start(made(system))
    assert q.shape == p.shape == (made(system).dim,)
    assert q.dtype == p.dtype == np.float64
    assert np.isfinite(q).all() and np.isfinite(p).all()
    assert not np.array_equal(q, q0) and not np.array_equal(p, p0)
    assert np.max(np.abs(q - q0)) < 2 and np.max(np.abs(p - p0)) < 2
    explicit = method in ("heun", "r2", "e1", "rs1", "rs2")
    for info in reports:
        assert info.converged
        assert info.residual < 1e-13
        assert (info.iterations == 0) == explicit


@pytest.mark.parametrize(
    ("method", "system"),
    tiered(PAIRS, fast=["stormer_verlet-van_der_pol"]),
)
def test_shortcuts_change_nothing(method, system):
    quick, general = two_steps(method, system), two_steps(method, system, shortcuts=False)
    size = max(np.max(np.abs(x)) for x in general[:2])
    for a, b in zip(quick[:2], general[:2], strict=True):
        assert np.max(np.abs(a - b)) <= 1e-13 * size
    assert all(info.converged for info in (*quick[2], *general[2]))


@pytest.mark.parametrize(("method", "system"), sorted(REFUSED))
def test_refused_pairs_say_why(method, system):
    with pytest.raises(ValueError, match=r"takes at most 1 noise\(s\), the system has 2"):
        two_steps(method, system)


def test_every_method_and_every_system_has_a_quick_case():
    methods, systems = zip(*(pair.split("-") for pair in FAST), strict=True)
    assert set(methods) == set(for_every_system()) and set(systems) == set(da.systems.FEW)
