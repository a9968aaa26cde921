# %% [markdown]
# # A collisional plasma relaxes
#
# You will learn to draw initial states from a density, to collect a two-dimensional histogram
# while a run goes on, to make an animation of it, and to test the end against the Gibbs measure.
#
# A charged particle moves in a standing electric wave and collides with a background, which the
# Lenard–Bernstein operator describes by friction and diffusion of its velocity:
#
# $$
# \begin{aligned}
# dX &= V\,dt, \\
# dV &= (-E_0\cos 4\pi X - \nu\mu V)\,dt + \sqrt\nu\,D\,dW .
# \end{aligned}
# $$
#
# Whatever the initial density, collisions bring it to $\rho\propto e^{-H/\theta}$ with the
# temperature $\theta = D^2/2\mu$. The system is ready-made, with its exact results beside it.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter

import dalembert as da
from dalembert.systems.lenard_bernstein_system import (
    bump_on_tail_v,
    bump_on_tail_x,
    ergodic_energy,
    gibbs_density,
    gibbs_density_v,
    initial_energy,
)

system = da.systems.lenard_bernstein(nu=0.25)
print(system)

# %% [markdown]
# ## Initial states and a histogram
#
# Two thirds of the particles start in a Maxwellian at rest and one third in a fast beam, the *bump
# on the tail*. A sampler is a function of a `jax.random` key that returns one state. The position
# is not wrapped by the simulation, only by the histogram.

# %%
draw_x = da.inverse_cdf_sampler(bump_on_tail_x, 0.0, 1.0)
draw_v = da.inverse_cdf_sampler(bump_on_tail_v, -6.0, 8.0)


def sampler(key):
    first, second = jax.random.split(key)
    return draw_x(first)[None], draw_v(second)[None]


x = da.Axis(lambda q, p, params: q[0], 0.0, 1.0, bins=32, periodic=True)
v = da.Axis(lambda q, p, params: p[0], -4.0, 6.0, bins=32)
run = da.simulate(
    system,
    da.stormer_verlet(),
    sampler,
    dt=0.025,
    t_end=16.0,
    paths=64_000,
    save_every=16,
    observe={"energy": system.H, "V": lambda q, p, params: p[0]},
    histograms={"density": da.Histogram(x, v, every_save=True)},
)
print(run)

# %% [markdown]
# ## The density in motion
#
# `run.histograms["density"].density` has the shape (times, bins of x, bins of v). One picture per
# saved time makes the animation.

# %%
density = run.histograms["density"].density
figure, axes = plt.subplots(figsize=(4.8, 3.4), dpi=80)
image = axes.imshow(
    density[0].T,
    origin="lower",
    aspect="auto",
    extent=(0, 1, -4, 6),
    cmap=plt.get_cmap("magma", 16),  # few colours make a small file
    vmin=0,
    vmax=0.4,
)
axes.set(xlabel="position (mod 1)", ylabel="velocity")
title = axes.set_title("t = 0.0")
figure.colorbar(image, label="density")
figure.tight_layout()


def show(number):
    image.set_data(density[number].T)
    title.set_text(f"t = {run.t[number]:.1f}")


animation = FuncAnimation(figure, show, frames=len(run.t))
animation.save("collisional_plasma.gif", PillowWriter(fps=8))
plt.close(figure)

# %% [markdown]
# ![The density of the particles in position and velocity](collisional_plasma.gif)
#
# The wave first winds the beam up into filaments; collisions smooth them, slow the beam down and
# fill the two wells of the potential.
#
# ## Towards the Gibbs measure

# %%
edges_v = run.histograms["density"].edges[1]
middle_v = (edges_v[1:] + edges_v[:-1]) / 2
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
run.plot("energy", ax=left)
left.axhline(ergodic_energy(), color="k", linestyle=":", label="Gibbs measure")
left.set(title="")
left.legend()
for number in (0, 5, 40):
    label = f"t = {run.t[number]:.0f}"
    right.plot(middle_v, density[number].mean(axis=0), drawstyle="steps-mid", label=label)
right.plot(middle_v, gibbs_density_v(middle_v), "k:", label="Gibbs measure")
right.set(xlabel="velocity", ylabel="density", ylim=(0, 0.52))
right.legend(loc="upper center", ncols=2)
figure.savefig("collisional_plasma.png")

# %% [markdown]
# ## Check
#
# The last histogram is compared with the Gibbs density, bin by bin: if that is what was sampled,
# the sum of squared deviations over expected counts has a $\chi^2$ distribution, whose mean is the
# number of bins and whose variance is twice as large. Only bins in which at least ten particles
# are expected take part.

# %%
binned = run.histograms["density"]
# A count is compared with the density at 8 × 8 points of its bin, on average.
fine_x, fine_v = ((np.arange(32 * 8) + 0.5) / (32 * 8) * length for length in (1.0, 10.0))
gibbs = np.asarray(gibbs_density(fine_x[:, None], fine_v[None, :] - 4.0))
area = (1.0 / 32) * (10.0 / 32)
expected = 64_000 * area * gibbs.reshape(32, 8, 32, 8).mean(axis=(1, 3))
enough = expected >= 10


def sigmas(number):
    """How far χ² of one histogram is above its mean, in standard deviations."""
    deviations = (binned.counts[number] - expected)[enough] ** 2 / expected[enough]
    return (deviations.sum() - enough.sum()) / np.sqrt(2 * enough.sum())


for number, limit in ((0, initial_energy()), (-1, ergodic_energy())):
    mean, bar = run.mean["energy"][number], run.stderr["energy"][number]
    print(f"energy at t = {run.t[number]:4.1f}: {mean:.4f} ± {bar:.4f}, exactly {float(limit):.4f}")
for number in (0, 10, 20, 30, 40):
    print(f"χ² of {enough.sum()} bins at t = {run.t[number]:4.1f}: {sigmas(number):8.1f} σ")
assert abs(mean - ergodic_energy()) < 4 * bar
assert abs(sigmas(-1)) < 4 < sigmas(0)
