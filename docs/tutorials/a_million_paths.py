# %% [markdown]
# # A million paths that cannot be lost
#
# You will learn to run a large ensemble that keeps only statistics and histograms, to have it save
# itself, and to go on after it was killed or stopped, with the same result to the last bit.
#
# Long runs are best started from a file, so that the same call can be made again. This one
# simulates a million paths of the Langevin equation in a harmonic well, from $q = 3$ to
# equilibrium at the temperature 1.

# %%
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import dalembert as da

program = Path("million.py")
program.write_text("""
import dalembert as da

position = da.Axis(lambda q, p, params: q[0], -5.0, 5.0, bins=100)


def simulate(**options):
    return da.simulate(
        da.systems.langevin(),
        da.midpoint(),
        ([3.0], [0.0]),
        dt=0.25,
        t_end=10.0,
        paths=1_000_000,
        seed=7,
        save_every=5,
        observe={"q2": lambda q, p, params: q[0] ** 2, "p2": lambda q, p, params: p[0] ** 2},
        histograms={"q": da.Histogram(position, every_save=True)},
        **options,
    )


if __name__ == "__main__":
    try:
        simulate(checkpoint=da.Checkpoint("million.ckpt", blocks=100)).save("million.npz")
    except da.Interrupted as stop:
        print(stop)
""")
file = Path("million.ckpt")

# %% [markdown]
# Paths run in blocks. To save after every 100 blocks is for this page, where everything takes
# seconds; `checkpoint="million.ckpt"` saves every 30 seconds.
#
# ## Killed
#
# We start the program, wait until it has saved itself, and kill it, as a power cut would.

# %%
for name in (file, "million.ckpt.previous", "million.npz"):
    Path(name).unlink(missing_ok=True)


def last_save():
    """When the checkpoint was written, in nanoseconds; 0 if there is none."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def run_until_saved():
    """Start the program and wait for a new checkpoint."""
    before = last_save()
    child = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True)
    while child.poll() is None and last_save() in (0, before):
        time.sleep(0.01)
    return child


child = run_until_saved()
child.kill()
print("said:", child.communicate()[0] or "nothing")
print("exit status:", child.returncode)
print(f"left behind: {file}, {file.stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# ## Stopped
#
# The same program goes on from there. This time it gets Ctrl-C when it has saved itself again, and
# has the time to say how far it came.

# %%
child = run_until_saved()
child.send_signal(signal.SIGINT)
print("said:", child.communicate()[0])

# %% [markdown]
# ## To the end
#
# The third start finishes the run and writes the result to a file.

# %%
subprocess.run([sys.executable, program], check=True, capture_output=True)
run = da.load("million.npz")
print(run)

# %% [markdown]
# ## The same bits
#
# For comparison the run is made once more, undisturbed, without a checkpoint and on one core.
# Noise is a pure function of the seed and of the numbers of path and step, and statistics are
# merged in one fixed order, so every bit agrees.

# %%
simulate = runpy.run_path(str(program))["simulate"]
undisturbed = simulate(workers=1)
same = {name: run.mean[name].tobytes() == undisturbed.mean[name].tobytes() for name in run.mean}
same |= {
    f"error of {name}": run.stderr[name].tobytes() == undisturbed.stderr[name].tobytes()
    for name in run.mean
}
same["histograms"] = np.array_equal(run.counts["q"], undisturbed.counts["q"])
print("same bits:", same)

# %% [markdown]
# ## What a million paths show
#
# Nothing but sums and counts was kept: the memory does not depend on the number of paths.

# %%
binned = run.histograms["q"]
middle = (binned.edges[0][1:] + binned.edges[0][:-1]) / 2
gauss = np.exp(-(middle**2) / 2) / np.sqrt(2 * np.pi)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for number, t in enumerate(run.t):
    if t in (0.0, 1.25, 2.5, 10.0):
        left.stairs(binned.density[number], binned.edges[0], label=f"t = {t:g}")
left.plot(middle, gauss, "k:", label="Gibbs measure")
left.set(xlabel="q", ylabel="density", ylim=(0, 0.8))
left.legend()
for name, colour in (("q2", "C0"), ("p2", "C1")):
    label = name.replace("2", "²")
    bars = 2 * run.stderr[name]
    right.errorbar(run.t, run.mean[name], bars, fmt="o-", ms=4, color=colour, label=label)
right.axhline(1, color="k", linestyle=":")
right.set(xlabel="time", ylabel="mean", ylim=(0, 9.5))
right.legend()
figure.savefig("a_million_paths.png")

# %% [markdown]
# ## Check
#
# All bits agree, and both mean squares equal the temperature to within four standard errors, as
# they must: the midpoint method keeps this measure exactly.

# %%
for name in ("q2", "p2"):
    print(f"{name} at the end {run.mean[name][-1]:.5f} ± {run.stderr[name][-1]:.5f}")
    assert abs(run.mean[name][-1] - 1) < 4 * run.stderr[name][-1]
assert all(same.values()) and run.failed == 0
assert binned.counts[-1].sum() + binned.outside[-1] == 1_000_000
