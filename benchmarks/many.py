"""Many degrees of freedom: dalembert against hand-written JAX loops of the same methods.

    python benchmarks/many.py [--device cpu|gpu] [--only TEXT] [--repeat N] [--seconds N]
                              [--out FILE]

The system is a Fermi–Pasta–Ulam–Tsingou β chain (k = 1, β = 1, fixed ends) with friction γ = 1 and
temperature T = 1 at every site. The loops by hand are plain `jax.vmap` and `lax.fori_loop` with
`jax.random`, all paths at once: BAOAB, Störmer–Verlet with its friction solved for, and midpoint by
sweeps, as many as reach rounding. Rates are degrees of freedom times paths times steps a second;
both contenders start alike, and their mean energies must agree. The first call takes a few steps:
what it takes more than that is tracing and compiling. Core-seconds by seconds say how many cores a
run keeps busy. A case that fails is named and leaves the
others alone; on a GPU all together take two minutes, and those that `--seconds` leaves no time for
are not begun.
"""

import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from measure import best_of_each, comparison_options, report_comparison, seconds, write_json

import dalembert as da

SEED, DT, GAMMA, TEMPERATURE = 1, 0.05, 1.0, 1.0
SWEEPS = 11
"""By which midpoint reaches rounding at this step size on the worst of all paths."""
STANDARD_ERRORS = 5


class Size(NamedTuple):
    """Degrees of freedom, paths, and steps: fewer of methods that solve equations."""

    dim: int
    paths: int
    steps: int
    steps_with_sweeps: int


SIZES = {
    "cpu": (
        Size(8, 8192, 400, 400),
        Size(16, 4096, 400, 400),
        Size(32, 2048, 400, 400),
        Size(64, 1024, 400, 400),
        Size(1024, 64, 400, 400),
        Size(2**20, 1, 64, 64),
    ),
    "gpu": (
        Size(2**20, 1, 16_000, 8000),
        Size(64, 65_536, 6000, 3000),
        Size(1024, 4096, 6000, 3000),
        Size(64, 1024, 16_000, 8000),
    ),
}
FIRST_STEPS = 4
"""Of the first call."""


def potential(q: Any) -> Any:
    """Springs between neighbours, and to a wall at either end."""
    stretch = jnp.diff(q, prepend=0.0, append=0.0)
    return jnp.sum(stretch**2) / 2 + jnp.sum(stretch**4) / 4


def force(q: Any) -> Any:
    """Minus the gradient of the potential, as somebody would write it."""
    stretch = jnp.diff(q, prepend=0.0, append=0.0)
    pull = stretch + stretch**3
    return pull[1:] - pull[:-1]


def energy(q: Any, p: Any) -> Any:
    return jnp.sum(p**2) / 2 + potential(q)


def baoab(q: Any, p: Any, f: Any, xi: Any) -> tuple[Any, Any, Any]:
    decay = np.exp(-GAMMA * DT)
    p = p + DT / 2 * f
    q = q + DT / 2 * p
    p = decay * p + np.sqrt(TEMPERATURE * (1 - decay**2)) * xi
    q = q + DT / 2 * p
    f = force(q)
    return q, p + DT / 2 * f, f


def stormer_verlet(q: Any, p: Any, f: Any, xi: Any) -> tuple[Any, Any, Any]:
    kick = np.sqrt(2 * GAMMA * TEMPERATURE * DT) * xi / 2
    half = (p + DT / 2 * f + kick) / (1 + GAMMA * DT / 2)
    q = q + DT * half
    f = force(q)
    return q, half + DT / 2 * (f - GAMMA * half) + kick, f


def midpoint(q: Any, p: Any, f: Any, xi: Any) -> tuple[Any, Any, Any]:
    start = p + np.sqrt(2 * GAMMA * TEMPERATURE * DT) * xi / 2

    def sweep(_: Any, half: Any) -> Any:
        return start + DT / 2 * (force(q + DT / 2 * half) - GAMMA * half)

    half = lax.fori_loop(0, SWEEPS, sweep, start)
    return q + DT * half, 2 * half - p, f


class Problem(NamedTuple):
    name: str
    method: Any
    by_hand: Callable[..., tuple[Any, Any, Any]]


PROBLEMS = (
    Problem("BAOAB", da.baoab(), baoab),
    Problem("Störmer–Verlet", da.stormer_verlet(), stormer_verlet),
    Problem("midpoint", da.midpoint(), midpoint),
)


@partial(jax.jit, static_argnums=(0, 3))
def run_by_hand(step: Any, q: Any, p: Any, steps: int, key: Any) -> Any:
    """Mean energy at the end, and its standard error."""

    def path(q: Any, p: Any, key: Any) -> Any:
        def one(i: Any, now: Any) -> Any:
            xi = jax.random.normal(jax.random.fold_in(key, i), q.shape, q.dtype)
            return step(*now, xi)

        q, p, _ = lax.fori_loop(0, steps, one, (q, p, force(q)))
        return energy(q, p)

    values = jax.vmap(path)(q, p, jax.random.split(key, len(q)))
    return jnp.mean(values), jnp.std(values) / np.sqrt(len(q))


def compare(problem: Problem, size: Size, repeat: int) -> dict[str, Any]:
    """Time both contenders at one size."""
    dim, paths = size.dim, size.paths
    steps = size.steps_with_sweeps if problem.name == "midpoint" else size.steps
    rng = np.random.default_rng(SEED)
    q, p = 0.3 * rng.standard_normal((2, paths, dim))
    system = da.systems.langevin(potential, dim=dim, gamma=GAMMA, temperature=TEMPERATURE)
    placed, results = (jnp.asarray(q), jnp.asarray(p)), {}

    def by_hand() -> None:
        found = run_by_hand(problem.by_hand, *placed, steps, jax.random.key(SEED))
        results["hand"] = jax.block_until_ready(found)

    def ours(steps: int = steps) -> None:
        results["ours"] = da.simulate(
            system, problem.method, (q, p), dt=DT, t_end=steps * DT, paths=paths, seed=SEED,
            save_every=steps, progress=False,
        )  # fmt: skip

    hand_first, our_first = seconds(by_hand), seconds(partial(ours, FIRST_STEPS))
    hand, our = best_of_each((by_hand, ours), repeat)
    began, cores = time.perf_counter(), seconds(ours, time.process_time)
    busy = cores / (time.perf_counter() - began)
    mean, error = map(float, results["hand"])
    run = results["ours"]
    # One path has no error of its own: that of as many sites as it has is about right.
    scale = error if paths > 1 else mean / np.sqrt(dim)
    work = dim * paths * steps
    return {
        "method": problem.name,
        "dim": dim,
        "paths": paths,
        "steps": steps,
        "by hand, dof-steps/s": work / hand,
        "dalembert, dof-steps/s": work / our,
        "ratio": hand / our,
        # Its number of steps is compiled into it, so that its first call takes all of them.
        "first call by hand, s": hand_first - hand,
        "first call, s": our_first,
        "engine": run.provenance["code"],
        "cores kept busy": busy,
        "gap in standard errors": (float(run.mean["energy"][-1]) - mean) / (np.sqrt(2) * scale),
    }


def cases(options: Any) -> Iterator[tuple[Problem, Size]]:
    """What was asked for; the dearest method first, where time is short."""
    for problem in reversed(PROBLEMS):
        for size in SIZES[options.device]:
            if options.only.lower() in f"{problem.name} {size.dim}x{size.paths}".lower():
                yield problem, size


def main() -> None:
    more = {"seconds": "after which no case is begun"}
    options = comparison_options(__doc__, only="'METHOD DIMxPATHS'", **more)
    jax.block_until_ready(jnp.zeros(1))  # A device has been started before anything is timed.
    began, rows, left = time.perf_counter(), [], []
    for problem, size in cases(options):
        name = f"{problem.name} {size.dim}x{size.paths}"
        if options.seconds and time.perf_counter() - began > options.seconds:
            left.append(f"{name} (no time)")
            continue
        try:
            rows.append(compare(problem, size, options.repeat))
        except Exception:
            traceback.print_exc()
            left.append(f"{name} (failed)")
            continue
        if options.out:
            write_json(options.out, rows, device=options.device, dtype="float64", left=left)
    report_comparison(rows, options, "mean energies", STANDARD_ERRORS)
    if left:
        raise SystemExit(f"not measured: {', '.join(left)}")


if __name__ == "__main__":
    main()
