# %% [markdown]
# # Answers, not samples
#
# Nobody wants a million paths: one wants an expectation to three digits, the time until something
# happens, a parameter with its error. You will learn to ask for these, and to read how far an
# answer can be trusted.
#
# A particle in a double well, with friction $\gamma$ at the temperature $T$:
#
# $$
# \begin{aligned}
# dq &= p\,dt, \\
# dp &= (q - q^3 - \gamma p)\,dt + \sqrt{2\gamma T}\,dW.
# \end{aligned}
# $$

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dalembert as da
from dalembert import fitting


def double_well(q):
    return jnp.sum(q**4) / 4 - jnp.sum(q**2) / 2


TRUE = {"gamma": 0.5, "temperature": 0.15}
system = da.systems.langevin(double_well, **TRUE)
METHOD, LEFT = da.additive_midpoint(), ([-1.0], [0.0])

# %% [markdown]
# ## An expectation to a tolerance
#
# How much energy has the particle after $t = 4$, to ±0.0005? Steps, paths and levels are found, not
# given.

# %%
found = da.expect(system, METHOD, LEFT, system.H, t_end=4.0, tolerance=5e-4, progress=False)
print(found)

# %% [markdown]
# Read it from above. The value has a half width of at most the tolerance, made of a statistical
# error and of what the step size may still have left (*bias*). Most paths are of the coarsest step,
# which is cheap. What it gets wrong is measured by pairs of paths on one Brownian path each, and as
# their differences vary little, few pairs do. The exponents say whether that went as it should:
# variances fall as $\mathrm{dt}^4$ with this method, whose mean-square order is two here.

# %%
figure, axes = plt.subplots(figsize=(5.4, 4), layout="constrained")
found.plot(axes)
axes.set_title("")
figure.savefig("levels.png")

# %% [markdown]
# The spread of differences falls with dt: that is why fine levels need so few samples. What they
# save is in the last line above, and grows with the number of levels. Is the value right? Plain
# Monte Carlo at one small step is another way to it, taken here with twice the error.

# %%
plain = da.expect(
    system, METHOD, LEFT, system.H, t_end=4.0, tolerance=1e-3, estimator="plain",
    progress=False,
)  # fmt: skip
print(f"levels {found.value:.4f} ± {found.error:.4f}: {found.steps:,} steps")
print(f"plain  {plain.value:.4f} ± {plain.error:.4f}: {plain.steps:,} steps")

# %% [markdown]
# What cannot be answered is refused, with the reason. Here an event that never came up:

# %%
try:
    da.expect(
        system, METHOD, LEFT, lambda q, p, params: jnp.where(q[0] > 3, 1.0, 0.0),
        t_end=1.0, tolerance=1e-3, progress=False,
    )  # fmt: skip
except da.ToleranceError as error:
    print(error)

# %% [markdown]
# ## The time until something happens
#
# With `stop=` a path ends where a function of $(q, p)$ changes its sign, here on the barrier. The
# end is found between two steps.

# %%
run = da.simulate(
    system, METHOD, LEFT, dt=0.1, t_end=150.0, paths=4000, save_every=15,
    stop=lambda q, p, params: q[0], progress=False,
)  # fmt: skip
escaped = run.stopped
print(f"{escaped.count} of 4000 have left, {escaped.censored} have not")
print(f"mean time, or the end if that is earlier: {escaped.restricted_mean:.2f} ± "
      f"{escaped.restricted_stderr:.2f}")  # fmt: skip

# %% [markdown]
# Those that have not left are *censored*: the mean time of the others is too short, and is not
# shown for that reason. What is known in full is the share of paths that are still inside. After a
# first while it falls by the same factor in equal times. The rate of that is the rate of escape,
# and its inverse the mean time from then on. Kramers' formula has it in the limit of $T$ far below
# the barrier of ¼, where friction is not small:
#
# $$ k = \frac{\sqrt{\gamma^2/4 + 1} - \gamma/2}{2\pi}\,\sqrt{2}\; e^{-1/(4T)}. $$

# %%
GAMMA, T = TRUE["gamma"], TRUE["temperature"]
kramers = (np.sqrt(GAMMA**2 / 4 + 1) - GAMMA / 2) / (2 * np.pi) * np.sqrt(2) * np.exp(-0.25 / T)
late = (run.t >= 15) & (escaped.survival > 0.02)
rate = -np.polyfit(run.t[late], np.log(escaped.survival[late]), 1)[0]
figure, axes = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
low, high = (escaped.survival + k * escaped.survival_stderr for k in (-2, 2))
axes.fill_between(run.t, np.maximum(low, 1e-3), high, alpha=0.3, label="± two standard errors")
axes.semilogy(run.t, escaped.survival, label="share inside")
line = run.t[run.t < 110]
axes.semilogy(line, np.exp(-kramers * line), "k:", label=f"Kramers, rate {kramers:.4f}")
axes.set(xlabel="t", ylabel="not yet escaped", ylim=(5e-3, 1.1))
axes.legend()
figure.savefig("survival.png")
print(f"rate {rate:.4f}; Kramers {kramers:.4f}")

# %% [markdown]
# They agree to some per cent, which is what one can ask of a limit at $T = 0.15$.
#
# ## A parameter with its error
#
# Somebody has seen 32 paths, the position alone, with errors of 0.1, and wants friction and
# temperature. A summary of each path, the mean and products at some lags, is compared with those of
# simulated ones.

# %%
GUESS = {"gamma": 1.0, "temperature": 0.3}
seen = da.simulate(
    system, METHOD, LEFT, dt=0.05, t_end=45.0, paths=32, save_every=4, keep="all", seed=3,
    progress=False,
)  # fmt: skip
t, y = seen.t[25:], seen.q[25:, :, 0]
y = y + 0.1 * np.random.default_rng(0).normal(size=y.shape)
match = fitting.match_moments(
    system.with_params(**GUESS), METHOD, t, y, observe=lambda q, p, params: q[0],
    measurement=0.1, initial=LEFT, burn_in=5.0, dt=0.2, paths=400,
    summary=fitting.lagged_moments(0, 2, 4, 8),
)  # fmt: skip
fit = fitting.fit(match, GUESS, positive=list(GUESS))
print(fit)

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
axes[0].plot(t, y[:, :2], lw=0.7)
axes[0].set(xlabel="t", ylabel="position, as seen")
for k, name in enumerate(GUESS):
    axes[1].errorbar(k, fit.estimate[name], 1.96 * fit.stderr[name], fmt="o", capsize=4, color="C0")
    axes[1].plot([k - 0.2, k + 0.2], [TRUE[name]] * 2, "k:", label="truth" if k == 0 else None)
axes[1].set(xticks=range(2), xticklabels=list(GUESS), xlim=(-0.5, 1.5), title="95 % interval")
axes[1].legend()
figure.savefig("fitted.png")

# %% [markdown]
# ## The check
#
# Both ways to the energy agree within their errors; the rate of escape is about Kramers'; and the
# fit is within three standard errors of the truth.

# %%
assert found.error <= 5e-4 and plain.error <= 1e-3
assert abs(found.value - plain.value) <= found.error + plain.error
assert found.gain > 2
assert 0.8 * kramers < rate < 1.3 * kramers
assert all(abs(fit.estimate[name] - TRUE[name]) < 3 * fit.stderr[name] for name in TRUE)
