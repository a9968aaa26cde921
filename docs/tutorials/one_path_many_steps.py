# %% [markdown]
# # One Brownian path at many step sizes
#
# You will learn to record a Brownian path, to run methods along it with coarser and coarser steps,
# and to measure a strong order: how fast single paths converge.
#
# A run draws its own noise. To compare step sizes along the *same* path, draw the increments once
# at the finest step, add them up to larger ones with `da.coarsen`, and hand them over as
# `da.Recorded`.

# %%
import matplotlib.pyplot as plt
import numpy as np

import dalembert as da
from dalembert.systems.kubo_system import kubo_path

system = da.systems.damped_kubo(beta=0.5, nu=0.1)
T, FINEST, PATHS = 4.0, 512, 400
FACTORS = (1, 2, 4, 8)

paths = [da.brownian_path(0, number, T / FINEST, FINEST, system.noises) for number in range(PATHS)]
fine = da.Increments(dW=np.stack([path.dW for path in paths]))
print("dW has the shape (paths, steps, noises):", fine.dW.shape)


def along(method, factor, **options):
    """All paths with steps that are `factor` times the finest one."""
    dW = da.coarsen(fine, T / FINEST, factor).dW
    # Zeros that are never read make all step sizes share one shape, and so one compilation.
    dW = np.pad(dW, ((0, 0), (0, FINEST - FINEST // factor), (0, 0)))
    return da.simulate(
        system,
        method,
        ([2.0], [0.0]),
        dt=T / FINEST * factor,
        t_end=T,
        paths=PATHS,
        noise=da.Recorded(da.Increments(dW)),
        **options,
    )


# %% [markdown]
# ## One path, to look at
#
# The Kubo oscillator is solved exactly by `kubo_path`, given the value of the Brownian motion.

# %%
figure, axes = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
W = np.concatenate([[0.0], np.cumsum(fine.dW[0, :, 0])])
t = np.linspace(0, T, FINEST + 1)
axes.plot(t, kubo_path(t, W, 2.0, 0.0, 0.5, 0.1)[0], "k-", lw=1, label="exact")
for factor, colour in ((128, "C3"), (64, "C1"), (16, "C0")):
    run = along(da.midpoint(), factor, keep="all")
    label = f"midpoint, step {T / FINEST * factor:g}"
    axes.plot(run.t, run.q[:, 0, 0], "o--", ms=3, color=colour, label=label)
axes.set(xlabel="time", ylabel="q of path 0")
axes.legend()
figure.savefig("one_path.png")

# %% [markdown]
# Every run follows the same path, and the finer the step the closer.
#
# ## The strong error
#
# The error of a path is its distance in phase space from the exact solution at the end; the strong
# error is the root of the mean of its square over all paths. Its slope in a doubly logarithmic
# picture is the strong order.

# %%
exact = np.stack(kubo_path(T, fine.dW.sum(axis=1)[:, 0], 2.0, 0.0, 0.5, 0.1), axis=1)
dts = np.array([T / FINEST * factor for factor in FACTORS])
errors = {}
for method in (da.midpoint(), da.stormer_verlet(), da.heun()):
    for factor in FACTORS:
        run = along(method, factor, keep="final", save_every=FINEST // factor)
        square = np.sum((np.concatenate([run.q, run.p], axis=1) - exact) ** 2, axis=1)
        # The root of a mean of squares, and its standard error.
        error = np.sqrt(square.mean())
        stderr = square.std(ddof=1) / np.sqrt(PATHS) / (2 * error)
        errors.setdefault(method.name, []).append((error, stderr))
slopes = {
    name: np.polyfit(np.log(dts), np.log([error for error, _ in pairs]), 1)[0]
    for name, pairs in errors.items()
}
print("step           " + "".join(f"{dt:^20g}" for dt in dts) + "slope")
for name, pairs in errors.items():
    print(f"{name:15}" + "".join(f" {e:.5f} ± {s:.5f} " for e, s in pairs), f"{slopes[name]:.2f}")

# %%
figure, axes = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
for name, pairs in errors.items():
    values, bars = np.transpose(pairs)
    label = f"{name}: slope {slopes[name]:.2f}"
    axes.errorbar(dts, values, 2 * bars, fmt="o-", ms=4, capsize=3, label=label)
axes.plot(dts, errors["midpoint"][0][0] * dts / dts[0] / 2, "k:", label="slope 1")
axes.set(xscale="log", yscale="log", xlabel="step", ylabel="strong error")
axes.minorticks_off()
axes.set_xticks(dts, [f"1/{1 / dt:g}" for dt in dts])
axes.set_yticks([0.002, 0.005, 0.01, 0.02, 0.05], ["0.002", "0.005", "0.01", "0.02", "0.05"])
axes.legend()
figure.savefig("strong_error.png")

# %% [markdown]
# With one noise all three converge with strong order one; they differ in the constant, and in what
# they keep.
#
# ## In one line
#
# `da.strong_order` does all this, drops step sizes that are not yet asymptotic, and gives a
# confidence interval. Without an exact solution it compares with another method at a much smaller
# step, along the same paths. The next system has two noises that do not commute; then the
# increments $\Delta W$ alone do not contain what a higher order than ½ would need.

# %%
measured = da.strong_order(
    da.systems.two_noise(),
    da.heun(),
    ([0.5], [0.2]),
    t_end=1.0,
    steps=(64, 128, 256, 512),
    paths=500,
    reference=da.stormer_verlet(),
)
print(measured)

# %% [markdown]
# ## Check
#
# The slopes on the system with one noise are one to within a tenth, and the interval for two
# noises contains one half but not one.

# %%
assert all(abs(slope - 1) < 0.1 for slope in slopes.values())
low, high = measured.interval
assert low < 0.5 < high < 1
