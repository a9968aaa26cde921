"""How much accuracy does a second of computing buy: methods beyond the paper, and others'.

A pendulum in a heat bath, H = p²/2 + 1 − cos q, F = −p/2, dp = … + dW, in float64 with all cores.

1. Paths: root-mean-square error of (q, p) at T = 1 against a much finer solution on the same
   Brownian path, for methods driven by ΔW and ΔZ; diffrax's ShARK and QUICSORT on the paths of its
   VirtualBrownianTree, against their own finer solutions, and timed with UnsafeBrownianPath.
2. Expectations: error of E(H) at T = 1/2, all outcomes of the three-point variables enumerated.

Costs are core-seconds for a million paths to that time, from the rate of `da.simulate` with
statistics saved four times; of diffrax, from a jitted, vmapped `diffeqsolve`.

    python benchmarks/precision.py [--out FILE.json] [--figure FILE.png]
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measure import best_of, print_table, write_json

import dalembert as da

FRICTION = 0.5
START = ([1.0], [0.5])
PATHS_END, MEANS_END = 1.0, 0.5
PATHWISE_STEPS = (4, 8, 16, 32, 64, 128)
REFINE = 64
PATHS = 500
MANY_PATHS, MANY_STEPS = 2**14, 8192

PATHWISE = ("midpoint", "e1", "baoab", "additive_midpoint", "additive_dirk", "additive_gauss")
IN_THE_MEAN = ("srkw1", "srkw2", "rs2", "quasi_symplectic", "ninomiya_victoir")

Row = dict[str, Any]


def pendulum() -> da.System:
    return da.System(
        H=lambda q, p: p[0] ** 2 / 2 + (1 - jnp.cos(q[0])),
        F=lambda q, p: -FRICTION * p,
        h=[lambda q, p: -q[0]],
        dim=1,
        name="pendulum in a heat bath",
    )


def core_seconds_per_step(method: Any) -> float:
    """Core-seconds that one step of one path takes in a long run."""
    dt = PATHS_END / 64

    def run() -> None:
        da.simulate(
            pendulum(),
            method,
            START,
            dt=dt,
            t_end=MANY_STEPS * dt,
            paths=MANY_PATHS,
            save_every=MANY_STEPS // 4,
        )

    run()
    return best_of(run, 3, time.process_time) / (MANY_PATHS * MANY_STEPS)


def of_dalembert(name: str) -> list[Row]:
    method = da.METHODS[name]()
    cost = core_seconds_per_step(method)
    if name in IN_THE_MEAN:
        found = da.weak_order(pendulum(), method, START, t_end=MEANS_END)
        kind, end = "expectation", MEANS_END
    else:
        reference = da.additive_gauss() if name != "additive_gauss" else da.additive_dirk()
        found = da.strong_order(
            pendulum(),
            method,
            START,
            t_end=PATHS_END,
            steps=PATHWISE_STEPS,
            paths=PATHS,
            reference=reference,
            refine=REFINE,
        )
        kind, end = "path", PATHS_END
    return [
        _row(name, kind, float(dt), float(error), cost * end / float(dt))
        for dt, error in zip(found.dts, found.errors, strict=True)
    ]


def _row(method: str, kind: str, dt: float, error: float, cost: float) -> Row:
    return {
        "method": method,
        "kind": kind,
        "dt": dt,
        "error": error,
        "core-seconds for 1e6 paths": 1e6 * cost,
    }


def of_diffrax(name: str) -> list[Row]:
    import diffrax

    solver, area = {
        "ShARK": (diffrax.ShARK(), diffrax.SpaceTimeLevyArea),
        "QUICSORT": (diffrax.QUICSORT(taylor_threshold=0.1), diffrax.SpaceTimeTimeLevyArea),
    }[name]

    def solve(brownian: Any, dt: Any, t_end: float, max_steps: int) -> Any:
        if name == "QUICSORT":
            shape = jax.ShapeDtypeStruct((), jnp.float64)
            terms = diffrax.MultiTerm(
                diffrax.UnderdampedLangevinDriftTerm(FRICTION, 1.0, lambda x, args: jnp.sin(x)),
                diffrax.UnderdampedLangevinDiffusionTerm(FRICTION, 1.0, brownian(shape)),
            )
            start = (jnp.array(START[0][0]), jnp.array(START[1][0]))
        else:

            def drift(t: Any, y: Any, args: Any) -> Any:
                return jnp.array([y[1], -jnp.sin(y[0]) - FRICTION * y[1]])

            path = brownian(jax.ShapeDtypeStruct((1,), jnp.float64))
            terms = diffrax.MultiTerm(
                diffrax.ODETerm(drift),
                diffrax.ControlTerm(lambda t, y, args: jnp.array([[0.0], [1.0]]), path),
            )
            start = jnp.array([START[0][0], START[1][0]])
        found = diffrax.diffeqsolve(
            terms, solver, 0.0, t_end, dt, start, max_steps=max_steps, adjoint=diffrax.ForwardMode()
        )
        return jnp.stack([jnp.ravel(y[-1]) for y in jax.tree.leaves(found.ys)]).ravel()

    def ends(steps: int) -> np.ndarray:
        def one(key: Any) -> Any:
            def brownian(shape: Any) -> Any:
                return diffrax.VirtualBrownianTree(
                    0.0, PATHS_END, PATHS_END / 2**14, shape, key, levy_area=area
                )

            return solve(brownian, PATHS_END / steps, PATHS_END, steps + 1)

        keys = jax.random.split(jax.random.key(0), PATHS)
        return np.asarray(jax.jit(jax.vmap(one))(keys))

    cost = _diffrax_cost(solve, area)
    exact = ends(PATHWISE_STEPS[-1] * 8)
    rows = []
    for steps in PATHWISE_STEPS:
        error = float(np.sqrt(np.mean(np.sum((ends(steps) - exact) ** 2, axis=1))))
        rows.append(_row(f"diffrax {name}", "path", PATHS_END / steps, error, cost * steps))
    return rows


def _diffrax_cost(solve: Callable[..., Any], area: Any) -> float:
    import diffrax

    paths, steps = 4096, 256
    dt = PATHS_END / 64

    def one(key: Any) -> Any:
        def brownian(shape: Any) -> Any:
            return diffrax.UnsafeBrownianPath(shape, key, levy_area=area)

        return solve(brownian, dt, steps * dt, steps + 1)

    run = jax.jit(jax.vmap(one))
    keys = jax.random.split(jax.random.key(1), paths)
    run(keys).block_until_ready()
    return best_of(lambda: run(keys).block_until_ready(), 3, time.process_time) / (paths * steps)


def draw(rows: list[Row], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    titles = {"path": "(q, p) at T = 1, path by path", "expectation": "E(H) at T = 1/2"}
    for axes, (kind, title) in zip(panels, titles.items(), strict=True):
        names = list(dict.fromkeys(row["method"] for row in rows if row["kind"] == kind))
        for number, name in enumerate(names):
            mine = [row for row in rows if row["method"] == name]
            axes.loglog(
                [row["core-seconds for 1e6 paths"] for row in mine],
                [row["error"] for row in mine],
                marker="osD^vPX*"[number % 8],
                linestyle="--" if "diffrax" in name else "-",
                label=name,
            )
        axes.set(title=title, xlabel="core-seconds for a million paths", ylabel="error")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=140)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--figure", type=Path, default=None)
    parser.add_argument("--without-diffrax", action="store_true")
    options = parser.parse_args()
    rows: list[Row] = []
    for name in (*PATHWISE, *IN_THE_MEAN):
        rows += of_dalembert(name)
    if not options.without_diffrax:
        with jax.enable_x64(True):
            for name in ("ShARK", "QUICSORT"):
                rows += of_diffrax(name)
    print_table(rows)
    if options.out:
        write_json(options.out, rows, problem=pendulum().name)
    if options.figure:
        draw(rows, options.figure)


if __name__ == "__main__":
    main()
