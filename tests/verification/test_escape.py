"""Mean times of escape from a well, against equations that are solved without sampling."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da

sparse = pytest.importorskip("scipy.sparse")
GAMMA = 1.0


def double_well(q):
    return q[0] ** 4 / 4 - q[0] ** 2 / 2


@cache
def kolmogorov(temperature, where, cells=240, velocities=161, low=-2.6):
    """Mean time to reach q = where from (−1, 0): L τ = −1 by finite differences.

    L = p ∂_q − (U'(q) + γ p) ∂_p + γ T ∂_p², τ = 0 at q = where for p > 0. Upwind differences of
    second order in q, central ones in p.
    """
    from scipy.interpolate import RegularGridInterpolator
    from scipy.sparse.linalg import spsolve

    high = 6 * temperature**0.5 + 1.2
    q = np.linspace(low, where, cells + 1)
    p = (2 * np.arange(velocities) + 1) / velocities * high - high
    dq, dp = q[1] - q[0], p[1] - p[0]
    place = np.arange(len(q) * len(p)).reshape(len(q), len(p))
    entries = []

    def add(rows, columns, values):
        entries.append((rows, columns, np.broadcast_to(values, rows.shape)))

    for i in range(cells + 1):
        for side in (1, -1):
            some = np.flatnonzero(side * p > 0)
            here, speed, wall = place[i, some], np.abs(p[some]) / dq, cells if side > 0 else 0
            if i == wall:
                continue
            weights = {0: -1.0, 1: 1.0} if i + side == wall else {0: -1.5, 1: 2.0, 2: -0.5}
            for ahead, weight in weights.items():
                add(here, place[i + ahead * side, some], weight * speed)
    force = -(q**3 - q)[:, None] - GAMMA * p
    spread = GAMMA * temperature / dp**2
    inner, outer = place[:, 1:-1], force[:, 1:-1] / (2 * dp)
    add(inner, place[:, 2:], outer + spread)
    add(inner, place[:, :-2], spread - outer)
    add(inner, inner, -2 * spread)
    for first, second, sign in ((0, 1, 1), (-1, -2, -1)):
        slope = sign * force[:, first] / dp
        add(place[:, first], place[:, second], slope)
        add(place[:, first], place[:, first], -slope)
    gone = place[cells, p > 0]
    rows, columns, values = (
        np.concatenate([np.ravel(entry[k]) for entry in entries]) for k in range(3)
    )
    values = np.where(np.isin(rows, gone), 0.0, values)
    size = place.size
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=(size, size))
    matrix += sparse.csc_matrix((np.ones(len(gone)), (gone, gone)), shape=(size, size))
    right = -np.ones(size)
    right[gone] = 0
    times = spsolve(matrix, right).reshape(len(q), len(p))
    return RegularGridInterpolator((q, p), times, method="cubic")([(-1.0, 0.0)]).item()


def escape(temperature, where, dt, t_end, paths, method=None):
    system = da.systems.langevin(double_well, gamma=GAMMA, temperature=temperature)
    run = da.simulate(
        system, method or da.additive_midpoint(), ([-1.0], [0.0]), dt=dt, t_end=t_end, paths=paths,
        stop=lambda q, p, params: q[0] - jnp.asarray(where, q.dtype), save_every=10**6,
        progress=False,
    )  # fmt: skip
    return run.stopped


@pytest.mark.slow
def test_mean_times_converge_to_those_of_kolmogorovs_equation():
    truth = kolmogorov(0.5, 0.0)
    assert abs(truth - kolmogorov(0.5, 0.0, 120, 121)) < 0.01, "the grid is fine enough"
    found = [escape(0.5, 0.0, dt, 80.0, 100_000) for dt in (0.8, 0.4, 0.1)]
    assert max(one.censored for one in found) < 10, "censored times would shorten the mean"
    errors = [one.restricted_mean - truth for one in found]
    order = np.log2(errors[0] / errors[1])
    assert 1.3 < order < 2.0, f"measured {order:.2f}: crossings within a step are missed"
    assert abs(errors[2]) < 3 * found[2].restricted_stderr + 0.05
    assert errors[0] > 10 * found[0].restricted_stderr, "large steps are found out"


@pytest.mark.slow
def test_kramers_formula_where_it_holds():
    """T = 0.07 is a quarter of the barrier; what is left of the formula's error is of order T."""
    temperature, where = 0.07, 0.8
    rate = (np.sqrt(GAMMA**2 / 4 + 1) - GAMMA / 2) * np.sqrt(2) / (2 * np.pi)
    kramers = np.exp(0.25 / temperature) / rate
    truth = kolmogorov(temperature, where, 200, 121, -2.0)
    assert abs(truth / kramers - 1) < 0.15
    found = escape(temperature, where, 0.2, 3000.0, 4000)
    assert abs(found.restricted_mean - truth) < 3 * found.restricted_stderr + 0.02 * truth
