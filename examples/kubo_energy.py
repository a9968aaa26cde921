"""Mean energy of the damped Kubo oscillator: structured methods and Heun against the exact curve.

python examples/kubo_energy.py --out demo [--paths 4000] [--t-end 1000]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import dalembert as da
from dalembert.systems.kubo_system import kubo_energy

Q0, P0, BETA, NU = 2.0, 0.0, 0.5, 0.001
METHODS = [
    (da.midpoint(), 0.25, "C0", "-"),
    (da.stormer_verlet(), 0.125, "C2", "--"),
    (da.heun(), 0.025, "C3", "-."),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--paths", type=int, default=4000)
    parser.add_argument("--t-end", type=float, default=1000.0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    figure, (above, below) = plt.subplots(
        2, 1, figsize=(5.4, 5.6), sharex=True, layout="constrained"
    )
    for method, dt, colour, style in METHODS:
        run = da.simulate(
            da.systems.damped_kubo(BETA, NU),
            method,
            (np.array([Q0]), np.array([P0])),
            dt=dt,
            t_end=options.t_end,
            paths=options.paths,
            save_every=round(options.t_end / dt / 50),
            progress=True,
        )
        print(run, end="\n\n")
        exact = kubo_energy(run.t, Q0, P0, BETA, NU)
        mean, band = run.mean["energy"], 2 * run.stderr["energy"]
        label = f"{method.name}, Δt = {dt:g}"
        above.plot(run.t, mean, style, color=colour, label=label)
        below.plot(run.t, mean - exact, style, color=colour, label=label)
        for axes, centre in ((above, mean), (below, mean - exact)):
            axes.fill_between(run.t, centre - band, centre + band, color=colour, alpha=0.2)

    t = np.linspace(0, options.t_end, 400)
    above.plot(t, kubo_energy(t, Q0, P0, BETA, NU), "k:", label="exact")
    below.axhline(0, color="k", linestyle=":")
    above.set(ylabel="E(H)", ylim=(0, 5), title="Damped Kubo oscillator, β = 0.5, ν = 0.001")
    below.set(xlabel="time", ylabel="E(H) − exact", ylim=(-0.3, 0.5))
    above.legend()
    target = options.out / "kubo_energy.png"
    figure.savefig(target, dpi=200)
    print(f"picture: {target}")


if __name__ == "__main__":
    main()
