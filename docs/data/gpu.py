"""How many paths fill a GPU, what saving costs there, and how much of its memory a run takes?

python docs/data/gpu.py docs/data/gpu.json

Van der Pol's oscillator with the midpoint method, float64 unless said, through `da.simulate`:
"first" is the first run with these settings, with compilation, "seconds" the best of three after.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax

import dalembert as da

STEPS = 20_000


def measure(paths: int, steps: int, save_every: int, dtype: str = "float64") -> dict[str, Any]:
    """Time one kind of run."""

    def run() -> Any:
        return da.simulate(
            da.systems.van_der_pol(),
            da.midpoint(),
            ([1.0], [1.0]),
            dt=0.05,
            t_end=0.05 * steps,
            paths=paths,
            save_every=save_every,
            dtype=dtype,
            progress=False,
        )

    times = []
    for _ in range(4):
        began = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - began)
    row = {
        "paths": paths,
        "steps": steps,
        "save every": save_every,
        "dtype": dtype,
        "code": result.provenance["code"],
        "first, s": times[0],
        "seconds": min(times[1:]),
        "path-steps/s": paths * steps / min(times[1:]),
        "peak MiB so far": jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 2**20,
        "failed": result.failed,
    }
    print(row, flush=True)
    return row


def main(target: Path) -> None:
    """Measure all and write one file."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        raise SystemExit("there is no GPU here")
    rows = [measure(2**k, STEPS, STEPS) for k in range(10, 23, 2)]
    saves = [measure(2**20, 2000, every) for every in (1, 10, 100, 1000)]
    single = [measure(2**20, STEPS, STEPS, dtype) for dtype in ("float64", "float32")]
    data = {
        "device": device.device_kind,
        "jax": jax.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "memory taken at the start, GiB": device.memory_stats()["bytes_limit"] / 2**30,
        "paths": rows,
        "saves": saves,
        "dtype": single,
    }
    target.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
