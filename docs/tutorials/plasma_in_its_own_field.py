# %% [markdown]
# # A plasma in its own field
#
# You will learn to set up a plasma in your own words ($\lambda_D$, $\omega_p$, $\nu_{ee}$), to add
# collisions that conserve what they should, to see what a run keeps, and to compare it with linear
# theory. It ends with a picture of two streams that trap each other.
#
# ## From your numbers to ours
#
# Everything is in units of the electrons: lengths in Debye lengths, times in $1/\omega_p$,
# velocities in $v_{th} = \lambda_D\omega_p$. A laboratory plasma gives three numbers:

# %%
import matplotlib.pyplot as plt
import numpy as np

import dalembert as da

density, temperature = 1e18, 10.0  # electrons per m³, eV
charge, mass, vacuum = 1.602e-19, 9.109e-31, 8.854e-12
omega_p = np.sqrt(density * charge**2 / (vacuum * mass))
debye = np.sqrt(vacuum * temperature * charge / (density * charge**2))
coulomb_logarithm = np.log(4 * np.pi * density * debye**3)
# ν of da.plasma.CoulombPairs: n e⁴ ln Λ / (4π ε₀² m² v_th³), in units of ω_p.
nu_ee = coulomb_logarithm / (4 * np.pi * density * debye**3)
print(f"ω_p = {omega_p:.2e}/s, λ_D = {debye:.2e} m, ln Λ = {coulomb_logarithm:.1f}")
print(f"ν_ee/ω_p = {nu_ee:.1e}")

# %% [markdown]
# So weak are collisions in most plasmas. Here they are made much stronger, so that a short run
# shows what they do.
#
# ## Landau damping, and what collisions change
#
# A box of one wave length with $k\lambda_D = 0.5$ has the length $2\pi/0.5$. The density begins as
# $1 + \alpha\cos kx$. `collisions=` says which operator acts at the rate $\nu$: here Dougherty's,
# which conserves density, momentum and energy in each of 32 cells.

# %%
k, nu, alpha, N = 0.5, 0.5, 0.1, 2**13
length = 2 * np.pi / k
start = da.plasma.Start(N, length, amplitude=alpha)
operators = {
    "lenard_bernstein": da.plasma.LenardBernstein(),
    "dougherty": da.plasma.Dougherty(cells=32),
}
plasmas = {
    name: da.plasma.vlasov_poisson(N, length, da.plasma.Fourier(1), nu=nu, collisions=operator)
    for name, operator in operators.items()
}

# %% [markdown]
# The operator is a *flow*: it acts for half a step, then the method takes a step in the field, then
# it acts for the other half. The certificate says what this composition keeps:

# %%
print(da.certify(da.stormer_verlet(), plasmas["dougherty"]))

# %%
observe = {"wave": da.plasma.density_modes(1), "momentum": da.plasma.momentum}
options = dict(dt=0.1, t_end=10.0, paths=8, save_every=2, progress=False)
figure, axes = plt.subplots(figsize=(5.4, 3), layout="constrained")
gaps, momenta = {}, {}
for name, plasma in plasmas.items():
    run = da.simulate(plasma, da.stormer_verlet(), start.random, observe=observe, **options)
    n, error = -run.mean["wave"][:, 0, 0] / alpha, run.stderr["wave"][:, 0, 0] / alpha
    theory = da.plasma.linear.response(k, run.t, nu, name).real
    gaps[name] = np.sqrt(np.mean(((n - theory) / error)[1:] ** 2))
    momenta[name] = np.ptp(run.mean["momentum"])
    axes.fill_between(run.t, n - 2 * error, n + 2 * error, alpha=0.4, label=name.replace("_", " "))
    axes.plot(run.t, theory, "k--", lw=1)
axes.set(xlabel=r"$\omega_p t$", ylabel=r"$E_k(t)/E_k(0)$")
axes.legend(frameon=False)
figure.savefig("damping.png", dpi=150)
print("                  distance to linear theory   change of the momentum")
for name in plasmas:
    print(f"{name:17} {gaps[name]:9.2f} standard errors {momenta[name]:20.0e}")

# %% [markdown]
# The dashed lines are linear theory, computed without particles. Friction against a background at
# rest damps a wave that collisions among the electrons alone hardly touch.
#
# ## Coulomb collisions
#
# Random pairs that scatter each other are Landau's operator. They need two or three components of
# the velocity. A plasma that is hotter along $x$ comes to one temperature:

# %%
N = 2**13
pairs = da.plasma.vlasov_poisson(N, velocities=3, nu=1.0, collisions=da.plasma.CoulombPairs())
q, p = da.plasma.Start(N, components=3, transverse=0.7).quiet()
p[:, 0] *= np.sqrt(1.6)


def temperatures(q, p, params):
    return (p**2).mean(axis=0)


observe = {"T": temperatures, "kinetic": da.plasma.kinetic_energy}
run = da.simulate(
    pairs, da.stormer_verlet(), (q, p), dt=0.1, t_end=4.0, observe=observe, progress=False
)
T = run.mean["T"]
print("T_x, T_y, T_z at the start and the end:", T[0].round(2), T[-1].round(2))
print(f"kinetic energy changed by {np.ptp(run.mean['kinetic']) / run.mean['kinetic'][0]:.0e}")

# %% [markdown]
# ## Two streams
#
# Streams at $\pm 3 v_{th}$ make waves that grow, and trap each other in a vortex of phase space.
# `phase_space` is an observable like all others.

# %%
N, length = 2**16, 2 * np.pi / 0.2
streams = da.plasma.two_streams(3.0)
beams = da.plasma.vlasov_poisson(N, length, da.plasma.Fourier(4))
state = da.plasma.Start(N, length, amplitude=2e-3, velocities=streams).quiet()
observe = {
    "wave": da.plasma.density_modes(1),
    "f": da.plasma.phase_space(96, 96, speed=8.0),
}
run = da.simulate(
    beams, da.stormer_verlet(), state, dt=0.1, t_end=32.0, observe=observe, save_every=5,
    progress=False,
)  # fmt: skip
late = (run.t >= 12) & (run.t <= 18)
found = da.plasma.fit_growth(run.t[late], -run.mean["wave"][late, 0, 0])
expected = da.plasma.linear.response(0.2, run.t[late], velocities=streams).real
rate = da.plasma.fit_growth(run.t[late], expected).gamma
print(f"growth rate {found.gamma:.4f} ± {found.gamma_error:.4f}, linear theory {rate:.4f}")

figure, axes = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
edges = np.linspace(0, length, 97), np.linspace(-8, 8, 97)
axes.pcolormesh(*edges, run.mean["f"][-1].T, cmap="magma", rasterized=True)
axes.set(xlabel=r"$x/\lambda_D$", ylabel=r"$v/v_{th}$", title=rf"$\omega_p t = {run.t[-1]:g}$")
figure.savefig("two_streams.png", dpi=150)

# %%
assert gaps["dougherty"] < 2.5 and gaps["lenard_bernstein"] < 2.5
assert momenta["dougherty"] < 1e-13 < momenta["lenard_bernstein"]
assert np.ptp(T[-1]) < 0.7 * np.ptp(T[0]) and abs(found.gamma - rate) < 0.05 * rate
