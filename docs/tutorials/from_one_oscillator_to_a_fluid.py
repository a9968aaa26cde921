# %% [markdown]
# # From one oscillator to a fluid
#
# You will learn that a system of hundreds of degrees of freedom is written and run like one of a
# single one: an oscillator, a chain that conducts heat, and a liquid of 256 atoms, each compared
# with what is known of it.
#
# ## One oscillator
#
# A particle in a harmonic well, with friction and noise of temperature $T = 1$, starts at rest. Its
# mean energy grows to $T$: half of it is kinetic, half potential.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dalembert as da

T, GAMMA = 1.0, 0.2
oscillator = da.systems.langevin(lambda q: q @ q / 2, gamma=GAMMA, temperature=T)
rest = ([0.0], [0.0])
warming = da.simulate(
    oscillator, da.midpoint(), rest, dt=0.1, t_end=30.0, paths=10_000, keep="all", progress=False
)
energy, error = warming.mean["energy"][-1], warming.stderr["energy"][-1]
print(f"mean energy at t = 30: {energy:.3f} ± {error:.3f}, and T is {T:g}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(warming.q[:, 0, 0], warming.p[:, 0, 0], linewidth=1)
left.plot(0, 0, "ko", ms=4)
left.set(xlabel="q", ylabel="p", title="one path, from rest", aspect="equal")
warming.plot("energy", right)
right.axhline(T, color="k", linestyle=":")
right.set(title="mean energy of 10,000 paths", ylabel="energy")
figure.savefig("one_oscillator.png")

# %% [markdown]
# The dotted line is the temperature. The band of two standard errors is what 10,000 paths can tell.
#
# ## A chain between two heat baths
#
# Now 16 particles in a row, tied to their neighbours by springs. The first one touches a bath of
# temperature 2, the last one a bath of temperature 1; those between feel no friction and no noise.
# Heat flows from left to right. `q` and `p` have 16 entries, and nothing else changes.
#
# The chain is linear, so its stationary state is known: `heat_chain_stationary` solves the Lyapunov
# equation for the temperature of every site and the flux. The midpoint method has exactly this
# stationary state at any step, here $\Delta t = 0.5$.

# %%
from dalembert.systems.heat_chain_system import heat_chain_stationary, heat_current

SITES, HOT, COLD = 16, 2.0, 1.0
chain = da.systems.heat_chain(SITES, HOT, COLD)
exact = heat_chain_stationary(SITES, HOT, COLD)
conducting = da.simulate(
    chain,
    da.midpoint(),
    (np.zeros(SITES), np.zeros(SITES)),
    dt=0.5,
    t_end=2000.0,
    paths=400,
    save_every=10,
    statistics={
        "temperature": da.TimeAverage(lambda q, p, c: p**2 / c["mass"], burn_in=1000.0),
        "flux": da.TimeAverage(heat_current, burn_in=1000.0),
    },
    progress=False,
)
profile, flux = conducting.statistics["temperature"], conducting.statistics["flux"]
middle = SITES // 2 - 1
for name, found, value in (
    ("flux through the middle", flux, exact.flux),
    ("temperature in the middle", profile, exact.temperatures[middle]),
):
    mean, error = found.mean[middle], found.stderr[middle]
    print(f"{name:25}: {mean:.4f} ± {error:.4f}, exactly {value:.4f}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
sites, springs = np.arange(1, SITES + 1), np.arange(1, SITES) + 0.5
left.plot(sites, exact.temperatures, "k-", label="exact")
left.errorbar(sites, profile.mean, 2 * profile.stderr, fmt="o", ms=4, capsize=3, label="sampled")
left.set(xlabel="site", ylabel="temperature", title="profile")
left.legend()
right.axhline(exact.flux, color="k", label="exact")
right.errorbar(springs, flux.mean, 2 * flux.stderr, fmt="o", ms=4, capsize=3, label="sampled")
right.set(xlabel="between sites", ylabel="energy per time", title="heat flux")
right.margins(y=0.25)
right.legend(loc="upper center", ncols=2)
figure.savefig("heat_chain.png")

# %% [markdown]
# The profile is flat inside, and the flux would not be smaller for a longer chain: waves in a
# harmonic chain carry heat without resistance, against Fourier's law.
#
# ## A liquid
#
# Last, 256 atoms in a periodic box which attract each other at a distance and repel each other when
# near, after Lennard and Jones. In units of their size, well depth and mass, the density is 0.776
# and the temperature 0.9: a liquid close to its vapour. States have shape (256, 3), and each of the
# 768 momenta has its own noise. BAOAB evaluates the forces once a step.
#
# We ask for time averages after the crystal, from which we start, has melted: potential energy, the
# temperature of the momenta, and the one that positions alone tell, which is a ratio of two
# averages. A histogram of an array counts all of its entries, here the distances of all pairs.

# %%
from dalembert.systems.lennard_jones_system import lennard_jones_energy, lennard_jones_sampler

ATOMS, DENSITY, WARMTH = 256, 0.776, 0.9
SIDE = (ATOMS / DENSITY) ** (1 / 3)
BURN_IN, T_END = 4.0, 12.0
fluid = da.systems.lennard_jones(ATOMS, DENSITY, WARMTH)
first, second = np.triu_indices(ATOMS, k=1)


def distances(q, p, params):
    """Distance of every pair, to the nearest image in the box."""
    apart = q[first] - q[second]
    apart = apart - SIDE * jnp.round(apart / SIDE)
    return jnp.sqrt(jnp.sum(apart**2, axis=-1))


measured = {
    "mean energy": lennard_jones_energy,
    "kinetic": da.observables.kinetic_temperature(fluid),
    "configurational": da.observables.configurational_temperature(fluid, directions=12),
}
liquid = da.simulate(
    fluid,
    da.baoab(),
    lennard_jones_sampler(ATOMS, DENSITY, WARMTH),
    dt=0.005,
    t_end=T_END,
    paths=6,
    save_every=40,
    observe={"energy": lennard_jones_energy},
    statistics={name: da.TimeAverage(f, burn_in=BURN_IN) for name, f in measured.items()},
    histograms={
        "distance": da.Histogram(da.Axis(distances, 0, SIDE / 2, bins=120), every_save=True)
    },
    keep="all",
    progress=False,
)

# %% [markdown]
# NIST's reference simulation of 500 such atoms found a potential energy of −5.4689 per atom, with
# an uncertainty of 0.0004.

# %%
NIST = -5.4689
found = liquid.statistics
forces, curvatures = found["configurational"].mean
# The forces vary much more from path to path than the curvatures, so the error is theirs.
spread = found["configurational"].stderr[0] / curvatures
results = {
    "potential energy": (found["mean energy"].mean, found["mean energy"].stderr, NIST),
    "kinetic temperature": (found["kinetic"].mean, found["kinetic"].stderr, WARMTH),
    "configurational temperature": (forces / curvatures, spread, WARMTH),
}
for name, (mean, error, value) in results.items():
    print(f"{name:27}: {mean:8.4f} ± {error:.4f}, to be compared with {value}")

# %% [markdown]
# The radial distribution function $g(r)$ is how many atoms are at a distance $r$ from another one,
# compared with how many there would be if they took no notice of each other.

# %%
distance = liquid.histograms["distance"]
(edges,) = distance.edges
shells = 4 / 3 * np.pi * np.diff(edges**3)
after = liquid.t >= BURN_IN
pairs = ATOMS * (ATOMS - 1) / 2 * shells / SIDE**3
g = distance.counts[after].sum(axis=0) / (after.sum() * liquid.count[-1] * pairs)
g_start = distance.counts[0] / (liquid.count[0] * pairs)
r = (edges[1:] + edges[:-1]) / 2

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
liquid.plot("energy", left)
left.axhline(NIST, color="k", linestyle=":")
left.axvspan(0, BURN_IN, color="0.92", zorder=0)
left.set(title="potential energy per atom", ylabel="energy")
right.stairs(g_start / 8, edges, color="0.75", fill=True, label="crystal, an eighth of it")
right.plot(r, g, label="liquid")
right.axhline(1, color="k", linestyle=":")
right.set(xlabel="distance", ylabel="g", title="radial distribution", xlim=(0, SIDE / 2))
right.legend()
figure.savefig("fluid.png")

# %% [markdown]
# Dotted: NIST's energy, and $g = 1$ of particles without interaction. Averages begin where the grey
# ends. The sharp distances of the crystal become the shells of a liquid: nearest neighbours just
# beyond the size of an atom, a second shell at about twice that, and less order the farther away.
#
# Positions are kept as they are, beyond the box too. Wrapped into it, a slice as thick as one atom:

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
for save, axes, title in zip((0, -1), panels, ("start", "end"), strict=True):
    x, y, z = np.mod(liquid.q[save, 0] + 0.25, SIDE).T
    inside = np.abs(z - SIDE / 2) < 0.5
    for centre in zip(x[inside], y[inside], strict=True):
        axes.add_patch(plt.Circle(centre, 0.5, alpha=0.6))
    axes.set(xlim=(0, SIDE), ylim=(0, SIDE), aspect="equal", xticks=[], yticks=[], title=title)
figure.savefig("fluid_slice.png")

# %% [markdown]
# To turn and play the fluid in VMD or OVITO, write what was kept:

# %%
liquid.to_trajectory("fluid.xyz", path=0, symbols="Ar", box=SIDE)

# %% [markdown]
# ## Check
#
# Every result lies within four standard errors of what is known: the energy of the oscillator, all
# temperatures and fluxes of the chain, energy and both temperatures of the liquid. Far away the
# atoms of the liquid are as many as its density says.

# %%
assert abs(warming.mean["energy"][-1] - T) < 4 * warming.stderr["energy"][-1]
assert np.all(np.abs(profile.mean - exact.temperatures) < 4 * profile.stderr)
assert np.all(np.abs(flux.mean - exact.flux) < 4 * flux.stderr)
assert all(abs(mean - value) < 4 * error for mean, error, value in results.values())
assert abs(np.mean(g[r > 2.5]) - 1) < 0.02 and 1.0 < r[np.argmax(g)] < 1.15
