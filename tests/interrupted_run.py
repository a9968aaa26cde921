"""A run for the tests to interrupt: `python interrupted_run.py CHECKPOINT RESULT [option=value …]`.

Legs are short and checkpoints frequent, so that a moment is enough to make some progress.
"""

import sys

import jax
import numpy as np

import dalembert as da
from dalembert.ensemble import blocks

SETTINGS = {"dt": 0.1, "t_end": 300.0, "paths": 5 * 2048 + 300, "save_every": 700, "seed": 5}


def sampler(key):
    q, p = jax.random.normal(key, (2, 1))
    return 2.0 + q, p


SYSTEM = da.systems.damped_kubo()
OBSERVE = {"energy": SYSTEM.H, "q": lambda q, p, params: q}
AXIS = da.Axis(lambda q, p, params: q[0], -3.0, 3.0, bins=12)


def simulate(checkpoint=None, **options):
    return da.simulate(
        SYSTEM,
        da.midpoint(),
        sampler,
        observe=OBSERVE,
        histograms={"q": da.Histogram(AXIS, every_save=True), "last": da.Histogram(AXIS)},
        keep="final",
        progress=False,
        checkpoint=checkpoint,
        **(SETTINGS | options),
    )


def same_bits(a: da.Run, b: da.Run) -> bool:
    """Whether two runs agree in every number that is not a time of day."""

    def numbers(run: da.Run) -> list[np.ndarray]:
        moments = [x for m in run.moments.values() for x in m]
        return [run.t, *moments, *run.counts.values(), run.q, run.p]

    pairs = zip(numbers(a), numbers(b), strict=True)
    return all(x.tobytes() == y.tobytes() for x, y in pairs) and (
        a.failures,
        a.truncated,
        a.residual,
    ) == (b.failures, b.truncated, b.residual)


if __name__ == "__main__":
    blocks.LEG_SECONDS = 0.05
    file, result, *given = sys.argv[1:]
    options = {name: float(value) for name, _, value in (text.partition("=") for text in given)}
    processes = {name: options.pop(name, None) for name in ("process", "processes", "port")}
    if processes["processes"]:
        address = f"localhost:{int(processes['port'])}"
        da.connect(address, int(processes["processes"]), int(processes["process"]))
    if "workers" in options:
        options["workers"] = int(options["workers"])
    print("ready", flush=True)
    try:
        simulate(da.Checkpoint(file, seconds=0.05), **options).save(result)
    except da.Interrupted as stop:
        print(stop, flush=True)
        sys.exit(130)
