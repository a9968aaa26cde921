"""How well constraints and energies are kept over a million steps, looked at after every step.

    python benchmarks/long_constraints.py [--only NAME] [--steps N] [--out FILE]

One path of every ready-made system with constraints by every method for constraints, in float64.
With friction and noise: the largest |g| and |Dg M⁻¹ p| in the first and in the last tenth of the
run, which a drift would make differ. Without them: the range of the energy in both tenths, relative
to the mean kinetic energy at the start, and by how much its mean moves from one to the other.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from measure import comparison_options, print_table, write_comparison

import dalembert as da
from dalembert.noise import usual_noise
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.stepper import make_stepper
from dalembert.systems.double_pendulum_system import double_pendulum_start
from dalembert.systems.jointed_chain_system import jointed_chain_start
from dalembert.systems.ring_system import ring_start
from dalembert.systems.triangles_system import triangles_start

STEPS, TENTHS = 1_000_000, 10
ON_SPHERE = np.array([0.6, 0.0, 0.8])

STARTS = {
    "spherical_pendulum": ({}, ON_SPHERE, 0.05),
    "brownian_sphere": ({}, ON_SPHERE, 0.05),
    "double_pendulum": ({}, double_pendulum_start()[0], 0.05),
    "ring": ({"N": 6}, ring_start(6)[0], 0.02),
    "jointed_chain": ({"N": 4}, jointed_chain_start(4)[0], 0.05),
    "triangles": ({"N": 4, "density": 0.05}, triangles_start(4, 0.05)[0], 0.01),
}
METHODS = {
    "rattle": da.rattle(),
    "weak_rattle": da.weak_rattle(),
    "g_baoab": da.g_baoab(),
    "projected_midpoint": da.projected_midpoint(),
}


def misses(system: da.System) -> Callable[..., Any]:
    """The largest |g| and |Dg M⁻¹ p| of a state."""

    def largest(q: Any, p: Any, params: Any) -> Any:
        def g(q: Any) -> Any:
            return system.constraints(q, params)

        v = jax.grad(system.H, 1)(q, p, params)
        return jnp.max(jnp.abs(jnp.stack(jax.jvp(g, (q,), (v,)))))

    return largest


def by_tenths(
    system: da.System, method: da.Method, start: Any, dt: float, steps: int, of: Any
) -> np.ndarray:
    """The least, largest and mean value of a function of the state in each tenth, (tenths, 3).

    One loop around the fast step of a run, and around its safe step where that is not solved.
    """
    stepper = make_stepper(system, method, np.float64)
    fast = Solver.LOOP if stepper.is_scalar else Solver.FAST
    noise = usual_noise(method.convergence, method.needs_for(system), dt)

    def step(number: Any, q: Any, p: Any) -> Any:
        driving = noise.draw(0, 0, number, dt, system.noises, np.float64)

        def taken(solver: Solver) -> Any:
            given = dt, driving, system.params, solver
            q1, p1, info = stepper.advance(stepper.enter(q), stepper.enter(p), *given)
            return stepper.leave(q1), stepper.leave(p1), info.converged

        found = taken(fast)
        return lax.cond(found[-1], lambda: found, lambda: taken(Solver.SAFE))

    @jax.jit
    def tenth(number: Any, q: Any, p: Any) -> Any:
        def one(k: Any, now: Any) -> Any:
            q, p, is_solved, (least, largest, total) = now
            q, p, found = step(number * (steps // TENTHS) + k, q, p)
            x = of(q.reshape(system.shape), p.reshape(system.shape), system.params)
            extremes = jnp.minimum(least, x), jnp.maximum(largest, x), total + x
            return q, p, is_solved & found, extremes

        none = jnp.inf, -jnp.inf, 0.0
        begin = q, p, jnp.array(True), tuple(map(jnp.float64, none))
        return lax.fori_loop(0, steps // TENTHS, one, begin)

    q, p = (np.ravel(x) for x in start)
    found = []
    for number in range(TENTHS):
        q, p, is_solved, (least, largest, total) = tenth(number, q, p)
        assert is_solved, "all steps are solved"
        found.append((least, largest, total / (steps // TENTHS)))
    return np.array(found, np.float64)


def kinetic(system: da.System, q: Any, p: Any) -> float:
    return float(system.H(q, p, system.params) - system.H(q, 0 * p, system.params))


def cases(only: str) -> Iterator[tuple[str, str, bool]]:
    """Names of systems and methods, and whether there are friction and noise."""
    for name in STARTS:
        for noisy in (True, False):
            # Without noise weak methods are the others, and Langevin splittings need a friction.
            methods = METHODS if noisy else ("rattle", "projected_midpoint")
            for label in methods:
                if only in f"{name} {label}" and (name, label) != ("spherical_pendulum", "g_baoab"):
                    yield name, label, noisy


def row_of(name: str, label: str, noisy: bool, steps: int) -> dict[str, Any]:
    options, q, dt = STARTS[name]
    system = da.SYSTEMS[name](**options, gamma=1.0 if noisy else 0.0)
    masses = np.broadcast_to(system.params["mass"], q.shape)
    p = np.sqrt(masses) * np.random.default_rng(0).standard_normal(q.shape)
    start = da.project(system, q, p)
    method = METHODS[label]
    row = {"system": name, "method": label, "dt": dt, "kept": "constraints" if noisy else "energy"}
    if noisy:
        found = by_tenths(system, method, start, dt, steps, misses(system))
        return row | {"first": found[0, 1], "last": found[-1, 1], "largest": np.max(found[:, 1])}
    found = by_tenths(system, method, start, dt, steps, system.H)
    scale = kinetic(system, *start)
    ranges, drift = (found[:, 1] - found[:, 0]) / scale, (found[-1, 2] - found[0, 2]) / scale
    kept = {"first": ranges[0], "last": ranges[-1], "largest": np.max(ranges), "drift": drift}
    return row | kept


def main() -> None:
    options = comparison_options(__doc__, "the name of a system and a method", steps="steps a run")
    rows = []
    for case in cases(options.only):
        rows.append(row_of(*case, options.steps or STEPS))
        print(rows[-1], flush=True)
        write_comparison(rows, options)
    print_table(rows)


if __name__ == "__main__":
    main()
