# %% [markdown]
# # Your own system
#
# You will learn to bring an equation into the form that the library wants, to have it diagnosed
# before anything is run, to change its parameters, and to check a result that no formula gives.
#
# ## From the equation to the functions
#
# A pendulum hangs from a pivot that is shaken up and down at random, with friction in the bearing:
#
# $$
# \begin{aligned}
# dq &= p\,dt, \\
# dp &= (-\sin q - \gamma p)\,dt - \sigma \sin q\circ dW .
# \end{aligned}
# $$
#
# Compare it with $dq = H_p\,dt + h_p\circ dW$ and $dp = (-H_q + F)\,dt + (-h_q + f)\circ dW$:
#
# - $H_p = p$ and $H_q = \sin q$, so $H = p^2/2 - \cos q$
# - what is left of the drift is the force, $F = -\gamma p$
# - $h_q = \sigma\sin q$ and $h_p = 0$, so $h = -\sigma\cos q$, and nothing is left for $f$.
#
# Functions are written with `jax.numpy`; `q` and `p` have the shape `(dim,)`. With `params`, every
# function takes them as its third argument.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt

import dalembert as da


def H(q, p, params):
    return p[0] ** 2 / 2 - jnp.cos(q[0])


def F(q, p, params):
    return -params["gamma"] * p


def h(q, p, params):
    return -params["sigma"] * jnp.cos(q[0])


system = da.System(
    H=H, F=F, h=[h], dim=1, params={"gamma": 0.2, "sigma": 0.3}, name="shaken pendulum"
)

# %% [markdown]
# Everything is checked when the system is made. A force must have one number per degree of
# freedom:

# %%
try:
    da.System(H=lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0]), F=lambda q, p: -0.2 * p[0], dim=1)
except ValueError as error:
    print(error)

# %% [markdown]
# ## What kind of system is it?
#
# `da.diagnose` finds the structure from the functions themselves, says what each method would have
# to solve, and recommends.

# %%
diagnosis = da.diagnose(system)
print(diagnosis)

# %% [markdown]
# Read it against the equation: the Hamiltonians are separable, the friction is $-\gamma p$, and
# the noise is not additive, because $\sin q$ multiplies it. We follow the first recommendation.
#
# ## Two runs
#
# How does the energy $1 + H$ above the state of rest develop? For small swings $\sin q\approx q$,
# and Itô's formula gives a closed system for the second moments $x = E[q^2]$, $y = E[qp]$,
# $z = E[p^2]$:
#
# $$
# \begin{aligned}
# \dot x &= 2y, \\
# \dot y &= z - x - \gamma y, \\
# \dot z &= -2y - 2\gamma z + \sigma^2 x .
# \end{aligned}
# $$
#
# At the threshold between decay and growth they are constant: $y = 0$, $z = x$ and therefore
# $\sigma^2 = 2\gamma$. The first run lies below the threshold, the second above it. We also
# observe two powers, whose meaning is explained below.


# %%
def energy(q, p, params):
    return 1 + H(q, p, params)


def gain(q, p, params):
    return params["sigma"] ** 2 / 2 * jnp.sin(q[0]) ** 2


def loss(q, p, params):
    return params["gamma"] * p[0] ** 2


def balance(q, p, params):
    return gain(q, p, params) - loss(q, p, params)


options = dict(
    dt=0.05,
    t_end=60.0,
    paths=20_000,
    save_every=20,
    observe={"energy": energy, "gain": gain, "loss": loss, "balance": balance},
)
runs = {
    sigma: da.simulate(
        system.with_params(sigma=sigma), da.stormer_verlet(), ([0.3], [0.0]), **options
    )
    for sigma in (0.3, 1.5)
}
for sigma, run in runs.items():
    print(f"σ² / 2γ = {sigma**2 / (2 * system.params['gamma']):.2f}")
    print(run, end="\n\n")

# %% [markdown]
# ## A check without an exact solution
#
# By Itô's formula, now without $\sin q\approx q$, the mean energy changes by what the shaking
# gives and what the friction takes:
#
# $$
# \begin{aligned}
# \frac{d}{dt} E[H] &= \tfrac12\sigma^2 E[\sin^2 q] - \gamma E[p^2] \\
# &= E[\text{gain}] - E[\text{loss}].
# \end{aligned}
# $$
#
# When the energy no longer changes, both must be equal.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")


def draw(axes, run, name, colour, label):
    """A mean with a band of two standard errors."""
    mean, error = run.mean[name], 2 * run.stderr[name]
    axes.plot(run.t, mean, color=colour, label=label)
    axes.fill_between(run.t, mean - error, mean + error, color=colour, alpha=0.3)


draw(left, runs[0.3], "energy", "C0", "σ = 0.3")
draw(left, runs[1.5], "energy", "C3", "σ = 1.5")
left.set(xlabel="time", ylabel="mean energy above rest", yscale="log")
draw(right, runs[1.5], "gain", "C2", "gain from shaking")
draw(right, runs[1.5], "loss", "C1", "loss by friction")
right.set(xlabel="time", ylabel="mean power, σ = 1.5", ylim=(0, None))
for axes in (left, right):
    axes.legend()
figure.savefig("your_own_system.png")

# %% [markdown]
# Weak shaking lets the pendulum come to rest; strong shaking keeps it moving, and gain and loss
# meet.
#
# ## Check
#
# `balance` is observed path by path, so that its standard error takes into account that gain and
# loss go together.

# %%
last = runs[1.5]
for name in ("gain", "loss", "balance"):
    print(f"{name:8} at the end {last.mean[name][-1]:7.4f} ± {last.stderr[name][-1]:.4f}")
assert diagnosis.separable and diagnosis.conformal and not diagnosis.additive
assert abs(last.mean["balance"][-1]) < 4 * last.stderr["balance"][-1]
assert runs[0.3].mean["energy"][-1] < 1e-3 * runs[0.3].mean["energy"][0]
