# %% [markdown]
# # Stochastic resonance
#
# You will learn to drive a system in time, to measure how it follows, and to see noise help: a
# drive that is too weak to push a particle from one well to the other is followed best at a
# temperature that is neither low nor high.
#
# With `time=True` every function takes `(q, p, t)`, and the parameters after them.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dalembert as da

PERIOD, DRIVE, GAMMA = 120.0, 0.05, 1.0
OMEGA = 2 * np.pi / PERIOD


def H(q, p, t, c):
    return p[0] ** 2 / 2 + (q[0] ** 2 - 1) ** 2 / 4 - DRIVE * q[0] * jnp.cos(OMEGA * t)


def friction(q, p, t, c):
    return -GAMMA * p


def kick(q, p, t, c):
    return -jnp.sqrt(2 * GAMMA * c["T"]) * q[0]


well = da.System(
    H=H, F=friction, h=[kick], dim=1, params={"T": 0.1}, time=True, name="driven double well"
)

# %% [markdown]
# ## One temperature after another
#
# Half of the particles begin in each well. Temperatures are parameters, so there is one compilation
# for all of them. BAOAB takes potentials that depend on time; friction and noise must not.

# %%
PATHS = 2000
wells = np.where(np.arange(PATHS) % 2, 1.0, -1.0)[:, None]
temperatures = (0.04, 0.06, 0.08, 0.1, 0.13, 0.17, 0.25, 0.4, 0.6)
runs = {}
for T in temperatures:
    runs[T] = da.simulate(
        well.with_params(T=T),
        da.baoab(),
        (wells, np.zeros((PATHS, 1))),
        dt=0.1,
        t_end=5 * PERIOD,
        paths=PATHS,
        save_every=50,
        observe={"q": lambda q, p, t, c: q[0]},
    )

figure, axes = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
for T, colour in ((0.04, "C0"), (0.13, "C3"), (0.6, "C1")):
    axes.plot(runs[T].t, runs[T].mean["q"], color=colour, label=f"T = {T}")
t = runs[0.6].t
axes.plot(t, DRIVE * np.cos(OMEGA * t), "k--", lw=1, label="the drive itself")
axes.set(xlabel="time", ylabel="mean position", ylim=(-0.25, 0.42))
axes.legend(loc="upper center", ncols=2)
figure.savefig("driven.png")

# %% [markdown]
# ## The answer and Kramers' formula
#
# Particles that jump between two states at a rate $r$ follow a drive $A\cos\Omega t$ with the
# amplitude
#
# $$\frac{A}{T}\,\frac{2r}{\sqrt{4r^2 + \Omega^2}}, \qquad
# r = \Big(\sqrt{\gamma^2/4 + 1} - \gamma/2\Big)\frac{\sqrt2}{2\pi}\, e^{-1/4T}.$$
#
# In the cold they do not jump, and in the heat they jump without regard to the drive. The formula
# is for temperatures far below the barrier, $1/4$; it leaves out that a well itself is moved, which
# is all that happens in the cold.


# %%
def amplitude(run):
    late = run.t > 2 * PERIOD
    return 2 * abs(np.mean(run.mean["q"][late] * np.exp(-1j * OMEGA * run.t[late])))


def by_rates(T):
    rate = (np.sqrt(GAMMA**2 / 4 + 1) - GAMMA / 2) * np.sqrt(2) / (2 * np.pi) * np.exp(-1 / (4 * T))
    return DRIVE / T * 2 * rate / np.hypot(2 * rate, OMEGA)


measured = np.array([amplitude(runs[T]) for T in temperatures])
fine = np.geomspace(temperatures[0], temperatures[-1], 200)
figure, axes = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
axes.semilogx(fine, by_rates(fine), "k-", lw=1, label="two states, Kramers' rate")
axes.semilogx(temperatures, measured, "o", color="C3", label="simulated")
axes.set(xlabel="temperature", ylabel="amplitude of the mean position", ylim=(0, None))
axes.minorticks_off()
axes.set_xticks(ticks := (0.05, 0.1, 0.2, 0.5), labels=map(str, ticks))
axes.legend()
figure.savefig("resonance.png")

best = int(np.argmax(measured))
print(f"followed best at T = {temperatures[best]}, with the amplitude {measured[best]:.2f}")
assert 0 < best < len(temperatures) - 1, (
    "the best temperature is neither the lowest nor the highest"
)
assert measured[best] > 2 * max(measured[0], measured[-1])
