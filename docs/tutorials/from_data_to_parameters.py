# %% [markdown]
# # From data to parameters
#
# You will learn to find friction and noise from an observed path, how sure one can be of them, and
# to draw from their posterior with [blackjax](https://blackjax-devs.github.io/blackjax)
# (`pip install blackjax`).
#
# A particle in a double well,
#
# $$
# \begin{aligned}
# dq &= p\,dt, \\
# dp &= (q - q^3 - \gamma p)\,dt + \sqrt{2\gamma T}\,dW,
# \end{aligned}
# $$
#
# is seen at times that are 0.4 apart. Its friction $\gamma$ and its temperature $T$ are not known.
# The data are simulated with steps that are twenty times shorter.

# %%
import blackjax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dalembert as da
from dalembert import fitting

jax.config.update("jax_enable_x64", True)


def double_well(q):
    return jnp.sum(q**4) / 4 - jnp.sum(q**2) / 2


TRUE = {"gamma": 0.5, "temperature": 0.4}
METHOD = da.additive_midpoint()
system = da.systems.langevin(double_well, **TRUE)
run = da.simulate(
    system, METHOD, ([1.0], [0.0]), dt=0.02, t_end=120.0, paths=1, save_every=20, keep="all", seed=4
)
t, q, p = run.t, run.q[:, 0], run.p[:, 0]
figure, axes = plt.subplots(figsize=(5.4, 2.6), layout="constrained")
axes.plot(t, q[:, 0], ".-", ms=3, lw=0.5)
axes.set(xlabel="time", ylabel="q")
figure.savefig("observed.png")

# %% [markdown]
# ## The best parameters
#
# The likelihood of an observation, given the one before, is taken as normal, with the mean and the
# covariance of two steps of the method. Noise acts on the momentum alone; `da.additive_midpoint`
# reads $\Delta Z$ as well as $\Delta W$, so that the covariance of $(q, p)$ is regular.

# %%
GUESS = {"gamma": 1.0, "temperature": 1.0}
model = system.with_params(**GUESS)
likelihood = fitting.path_likelihood(model, METHOD, t, q, p, substeps=2)
fit = fitting.fit(likelihood, GUESS, positive=["gamma", "temperature"])
print(fit)

# %% [markdown]
# Only the product $\gamma T$ sets the noise, which 300 transitions determine well. What
# distinguishes the two is the friction, of which the data know less: the estimates are
# anticorrelated.

# %%
print("correlation:", fit.correlation[0, 1].round(2))
fit.plot()[0, 0].figure.savefig("estimates.png")

# %% [markdown]
# ## The posterior
#
# The likelihood is a function that JAX can differentiate, so a sampler needs no more than a prior.
# We sample logarithms of both parameters, with a wide normal prior. The fit has told the scales, so
# that NUTS needs no warm-up.


# %%
def log_density(x):
    prior = -jnp.sum(x**2) / 2 / 3.0**2
    return prior + likelihood({"gamma": jnp.exp(x[0]), "temperature": jnp.exp(x[1])})


names = list(TRUE)
best = np.asarray([fit.estimate[name] for name in names])
# The covariance of logarithms.
scales = fit.covariance / np.outer(best, best)
nuts = blackjax.nuts(log_density, step_size=0.7, inverse_mass_matrix=jnp.asarray(scales))


@jax.jit
def sample(key, start):
    def one(state, key):
        state, info = nuts.step(key, state)
        return state, (state.position, info.acceptance_rate)

    return jax.lax.scan(one, nuts.init(start), jax.random.split(key, 400))[1]


positions, acceptance = sample(jax.random.key(0), jnp.log(jnp.asarray(best)))
draws = np.exp(np.asarray(positions))[50:]
print(f"acceptance {np.mean(acceptance):.2f}")
for k, name in enumerate(names):
    low, middle, high = np.quantile(draws[:, k], [0.025, 0.5, 0.975])
    print(f"{name:12} {middle:.3f} [{low:.3f}, {high:.3f}], true {TRUE[name]}")

# %%
figure, panels = plt.subplots(2, 2, figsize=(6, 6), layout="constrained")
fit.plot(panels)
panels[1, 0].plot(*draws.T, "C1.", ms=3, zorder=0)
panels[1, 0].plot(*TRUE.values(), "kx")
for k in range(2):
    counts, edges = np.histogram(draws[:, k], bins=20)
    panels[k, k].stairs(counts / counts.max(), edges, color="C1")
figure.savefig("posterior.png")

# %% [markdown]
# Blue: the fit with its standard errors. Orange: draws from the posterior, which knows that both
# parameters are positive and is skewed. Cross: the truth.
#
# ## Check
#
# The truth lies within three standard errors of the fit and within the bulk of the posterior, and
# the posterior is as wide as the standard errors say.

# %%
for k, name in enumerate(names):
    assert abs(fit.estimate[name] - TRUE[name]) < 3 * fit.stderr[name]
    assert np.quantile(draws[:, k], 0.005) < TRUE[name] < np.quantile(draws[:, k], 0.995)
    assert 0.6 < np.std(np.log(draws[:, k])) / scales[k, k] ** 0.5 < 1.6
