"""A run for the tests to interrupt: `python interrupted_run.py CHECKPOINT RESULT [option=value …]`.

Legs are short and checkpoints frequent, so that a moment is enough to make some progress. With
held=1 every leg waits until there is a file CHECKPOINT.go. large=1 is a lattice on arrays.
"""

import os
import signal
import sys
import time
from functools import partial

import jax
import numpy as np

import dalembert as da
from dalembert.ensemble import blocks
from dalembert.ensemble.progress import ProgressBar

SETTINGS = {"dt": 0.1, "t_end": 300.0, "paths": 5 * 2048 + 300, "save_every": 700, "seed": 5}


def sampler(key):
    q, p = jax.random.normal(key, (2, 1))
    return 2.0 + q, p


SYSTEM = da.systems.damped_kubo()
OBSERVE = {"energy": SYSTEM.H, "q": lambda q, p, params: q}
AXIS = da.Axis(lambda q, p, params: q[0], -3.0, 3.0, bins=12)


def simulate(checkpoint=None, plain=False, **options):
    """With everything that is saved, or, as `plain`, what compiles quickly."""
    if plain:
        options = {"dt": 0.1, "t_end": 100.0, "paths": 5 * 2048 + 300, "save_every": 300} | options
        return da.simulate(
            SYSTEM, da.heun(), ([2.0], [0.0]), keep="final", progress=False,
            checkpoint=checkpoint, **options,
        )  # fmt: skip
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


def simulate_large(checkpoint=None, **options):
    """A few paths of a lattice that is computed on arrays, sweep by sweep."""
    shape = options.pop("shape", (4, 6))
    lattice = da.systems.phi4(shape, gamma=0.5)
    settings = {"dt": 0.1, "t_end": 120.0, "paths": 37, "save_every": 40, "seed": 5}
    return da.simulate(
        lattice,
        da.midpoint(),
        (np.full(shape, 0.3), np.zeros(shape)),
        keep="all",
        progress=False,
        checkpoint=checkpoint,
        **(settings | options),
    )


def differences(a: da.Run, b: da.Run) -> list[str]:
    """What differs between two runs among all numbers that do not depend on the time of day."""

    def numbers(run: da.Run) -> dict[str, np.ndarray]:
        found = {f"{n} {f}": x for n, m in run.moments.items() for f, x in m._asdict().items()}
        found |= {f"histogram {name}": counts for name, counts in run.counts.items()}
        found |= {"t": run.t, "q": run.q, "p": run.p, "residual": np.asarray(run.residual)}
        found |= {"iterations": np.asarray(run.iterations), "truncated": np.asarray(run.truncated)}
        return found | {"failures": np.asarray(run.failures.total)}

    ours, theirs = numbers(a), numbers(b)
    assert ours.keys() == theirs.keys()
    return [
        f"{name} by {np.max(np.abs(ours[name] - theirs[name]))}"
        for name in ours
        if ours[name].tobytes() != theirs[name].tobytes()
    ]


def wait_for(path, seconds=600.0):
    """Wait for a file, however slow the machine is."""
    until = time.monotonic() + seconds
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.01)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    blocks.LEG_SECONDS = 0.05
    file, result, *given = sys.argv[1:]
    options = {name: float(value) for name, _, value in (text.partition("=") for text in given)}
    processes = {name: options.pop(name, None) for name in ("process", "processes", "port")}
    if processes["processes"]:
        address = f"localhost:{int(processes['port'])}"
        da.connect(address, int(processes["processes"]), int(processes["process"]))
    options |= {name: int(options[name]) for name in ("workers", "plain") if name in options}
    run = partial(simulate_large, shape=(32, 32)) if options.pop("large", 0) else simulate
    if options.pop("held", 0):
        add = ProgressBar.add
        ProgressBar.add = lambda bar, count: (add(bar, count), wait_for(f"{file}.go"))
    print("ready", flush=True)
    try:
        run(da.Checkpoint(file, seconds=0.05), **options).save(result)
    except da.Interrupted as stop:
        print(stop, flush=True)
        sys.exit(130)
