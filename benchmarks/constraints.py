"""Rigid triangles: dalembert's RATTLE against one that is written by hand in JAX.

    python benchmarks/constraints.py [--only NAME] [--repeat N] [--out FILE]

1000 triangles without noise, one path, all cores, float64: in a harmonic trap, where the
multipliers are nearly all of the work, and in a Lennard-Jones fluid, all pairs. The loop by hand
knows the sides of a triangle: its Newton steps write the 3 × 3 matrices out, and solve them by
Cramer's rule. Both go on until the constraints are met to rounding, from the same start over the
same steps, and must end at the same positions: the gap is in units of 1e−7. Runs take some
tenths of a second, so that steps are compared more than what a call takes besides them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from measure import best_of_each, comparison_options, report_comparison

N, DT = 1000, 0.002
STEPS = {"trap": 1000, "fluid": 200}
TOLERANCE, ROUNDING = 1e-14, 1e-7


def systems() -> dict[str, Any]:
    from dataclasses import replace

    import jax.numpy as jnp

    import dalembert as da

    fluid = da.systems.triangles(N, gamma=0.0)

    def H(q: Any, p: Any, params: Any) -> Any:
        return jnp.sum(p**2 / (2 * params["mass"])) + jnp.sum(q[:, 0] ** 2) / 2

    return {"trap": replace(fluid, H=H, invariants={}, name="trap"), "fluid": fluid}


def by_hand(system: Any, steps: int) -> Callable[[Any, Any], Any]:
    """RATTLE as one would write it for these triangles."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    from dalembert.systems.triangles_system import MASSES, SIDES

    inverse, lengths = jnp.asarray(1 / MASSES), jnp.asarray(SIDES)
    force = jax.grad(lambda q: -system.H(q, jnp.zeros_like(q), system.params))

    def sides(q: Any) -> Any:
        return jnp.stack([q[:, 0] - q[:, 1], q[:, 0] - q[:, 2], q[:, 1] - q[:, 2]], axis=1)

    def spread(r: Any, u: Any) -> Any:
        """Dgᵀu of all triangles, for the sides r."""
        a, b, c = (r * (u / lengths)[..., None]).swapaxes(0, 1)
        return jnp.stack([a + b, c - a, -b - c], axis=1)

    def matrix(r: Any, s: Any) -> list[list[Any]]:
        """Dg(r) M⁻¹ Dg(s)ᵀ, its entries for all triangles."""
        w = [inverse[0, i, 0] for i in range(3)]
        ends = [{0: 1.0, 1: -1.0}, {0: 1.0, 2: -1.0}, {1: 1.0, 2: -1.0}]
        scaled = [[x[:, k] / lengths[k] for k in range(3)] for x in (r, s)]

        def entry(k: int, j: int) -> Any:
            common = sum(sign * ends[j][i] * w[i] for i, sign in ends[k].items() if i in ends[j])
            return common * jnp.sum(scaled[0][k] * scaled[1][j], axis=1)

        return [[entry(k, j) for j in range(3)] for k in range(3)]

    def solve(m: list[list[Any]], b: Any) -> Any:
        (a, d, g), (e, f, h), (i, j, k) = m
        x, y, z = b.T
        det = a * (f * k - h * j) - d * (e * k - h * i) + g * (e * j - f * i)
        one = x * (f * k - h * j) - d * (y * k - h * z) + g * (y * j - f * z)
        two = a * (y * k - h * z) - x * (e * k - h * i) + g * (e * z - y * i)
        three = a * (f * z - y * j) - d * (e * z - y * i) + x * (e * j - f * i)
        return jnp.stack([one / det, two / det, three / det], axis=1)

    def miss(r: Any) -> Any:
        return (jnp.sum(r * r, axis=2) - lengths**2) / (2 * lengths)

    def step(_: int, state: Any) -> Any:
        q, p, f = state
        p, old = p + DT / 2 * f, sides(q)

        def wrong(now: Any) -> Any:
            return (jnp.max(jnp.abs(miss(sides(now[0])))) > TOLERANCE) & (now[2] < 12)

        def improve(now: Any) -> Any:
            q, p, count = now
            r = sides(q)
            change = spread(old, solve(matrix(r, old), miss(r)) / DT)
            return q - DT * inverse * change, p - change, count + 1

        q, p, _ = lax.while_loop(wrong, improve, (q + DT * inverse * p, p, 0))
        f = force(q)
        p, r = p + DT / 2 * f, sides(q)
        u = jnp.sum(r * sides(inverse * p), axis=2) / lengths
        return q, p - spread(r, solve(matrix(r, r), u)), f

    @jax.jit
    def run(q: Any, p: Any) -> Any:
        return lax.fori_loop(0, steps, step, (q, p, force(q)))[0]

    return run


def by_dalembert(system: Any, steps: int) -> Callable[[Any, Any], Any]:
    import dalembert as da

    def run(q: Any, p: Any) -> Any:
        options = dict(dt=DT, t_end=steps * DT, paths=1, save_every=steps, progress=False)
        return da.simulate(system, da.rattle(), (q, p), keep="final", **options).q[0]

    return run


def main() -> None:
    options = comparison_options(__doc__, "the name of a system")
    import jax
    import numpy as np

    import dalembert as da
    from dalembert.systems.triangles_system import MASSES, triangles_start

    rows = []
    for name, system in systems().items():
        if options.only not in name:
            continue
        q, p = triangles_start(N)
        p = np.sqrt(MASSES) * np.random.default_rng(0).standard_normal(p.shape)
        start = da.project(system, q, p)
        runs = [build(system, STEPS[name]) for build in (by_dalembert, by_hand)]
        ends = [np.asarray(run(*start)) for run in runs]
        finished = [
            partial(lambda run, at: jax.block_until_ready(run(*at)), run, start) for run in runs
        ]
        times = best_of_each(finished, options.repeat)
        rate = STEPS[name] * N
        rows.append(
            {
                "system": name,
                "dalembert, triangle-steps/s": rate / times[0],
                "by hand": rate / times[1],
                "ratio": times[1] / times[0],
                "gap in standard errors": np.max(np.abs(ends[0] - ends[1])) / ROUNDING,
            }
        )
    report_comparison(rows, options, "ends of paths", 1.0)


if __name__ == "__main__":
    main()
