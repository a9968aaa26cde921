# %% [markdown]
# # The first ten lines
#
# You will learn to write a system down, to run an ensemble of paths, to read what is printed, and
# to draw a mean with its error bars.
#
# The system is the damped Kubo oscillator: a spring whose stiffness and inertia flicker together,
# with a little friction,
#
# $$
# \begin{aligned}
# dq &= p\,dt + \beta p\circ dW, \\
# dp &= (-q - \nu p)\,dt + \beta(-q - \nu p)\circ dW .
# \end{aligned}
# $$
#
# The library wants the four functions of a stochastic forced Hamiltonian system: the energy $H$,
# the force $F$, and for every Wiener process a noise Hamiltonian $h$ and a noise force $f$. Here
# they are $H = (p^2 + q^2)/2$, $F = -\nu p$, $h = \beta H$ and $f = \beta F$ with $\beta = 0.5$
# and $\nu = 0.001$.

# %%
import dalembert as da


def H(q, p):
    return (p[0] ** 2 + q[0] ** 2) / 2


system = da.System(
    H=H,
    F=lambda q, p: -0.001 * p,
    h=[lambda q, p: 0.5 * H(q, p)],
    f=[lambda q, p: -0.0005 * p],
    dim=1,
    name="damped Kubo oscillator",
)
run = da.simulate(
    system, da.midpoint(), ([2.0], [0.0]), dt=0.25, t_end=1000.0, paths=2000, save_every=200
)
print(run)

# %% [markdown]
# Line by line: what was run; that no path failed; how well the implicit equations of the method
# were solved; the mean of the energy over all paths at the last time, with its standard error; and
# the speed on this machine.
#
# ## A mean with error bars
#
# Statistics are kept every `save_every` steps: `run.t` are the times, `run.mean["energy"]` and
# `run.stderr["energy"]` the mean and its standard error at each of them. For this system both the
# exact mean energy and the mean that the method itself gives at this step size, free of sampling,
# are known.

# %%
import matplotlib.pyplot as plt
import numpy as np

from dalembert.systems.kubo_system import kubo_energy

exact = kubo_energy(run.t, 2.0, 0.0, 0.5, 0.001)
moments = da.exact_moments(
    system, da.midpoint(), ([2.0], [0.0]), dt=0.25, steps=np.arange(0, 4001, 200)
)
scheme = moments.energy

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(run.t, exact, "k:", label="exact")
left.plot(run.t, run.mean["energy"], "o", ms=4, label="2,000 paths")
left.set(xlabel="time", ylabel="mean energy")
right.plot(run.t, scheme - exact, "C1-", label="the method, without sampling")
right.errorbar(
    run.t,
    run.mean["energy"] - exact,
    2 * run.stderr["energy"],
    fmt="o",
    ms=4,
    capsize=3,
    label="2,000 paths, ± 2 standard errors",
)
right.axhline(0, color="k", linestyle=":")
right.set(xlabel="time", ylabel="mean energy − exact")
for axes in (left, right):
    axes.legend()
figure.savefig("first_ten_lines.png")

# %% [markdown]
# Two errors are to be seen in the second picture. The bars are the *sampling* error: they shrink
# with the number of paths. The distance of the line from zero is the error of the *step size*: it
# shrinks with `dt`. The first is what `run.stderr` tells; the second it cannot know.
# `da.exact_moments` gives it here because the system is linear.

# %%
print("    t     sampled               method     exact")
for i in range(0, len(run.t), 5):
    mean, error = run.mean["energy"][i], run.stderr["energy"][i]
    print(f"{run.t[i]:5.0f}  {mean:8.5f} ± {error:.5f}  {scheme[i]:9.5f} {exact[i]:9.5f}")

# %% [markdown]
# ## Check
#
# The sample agrees with the expectation of the method to within four standard errors at every
# time. (At $t = 0$ all paths are the same and the error is zero.)

# %%
deviation = np.abs(run.mean["energy"] - scheme)[1:] / run.stderr["energy"][1:]
print(f"largest deviation: {deviation.max():.1f} standard errors")
assert run.failed == 0
assert deviation.max() < 4
