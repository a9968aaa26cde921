# %% [markdown]
# # Inventing a tableau
#
# You will learn to write down a method of your own, to have it certified, to repair it with the
# help of the conditions that it fails, and to measure its order.
#
# ## A guess
#
# We would like a method that is very accurate when the noise is weak. Among the classical
# Runge–Kutta methods the three-stage Lobatto IIIA method has order four. A mean-square tableau has
# one matrix for each place where a term of the equations enters: $a$ and $b$ for $H_p$ and $h_p$
# in the positions; $\bar a$, $\hat a$, $\bar b$, $\hat b$ for $H_q$, $F$, $h_q$, $f$ in the
# momenta. The first guess takes the same matrix everywhere.

# %%
import matplotlib.pyplot as plt
import numpy as np

import dalembert as da

alpha = np.array([1 / 6, 2 / 3, 1 / 6])
a = np.array([[0, 0, 0], [5 / 24, 1 / 3, -1 / 24], [1 / 6, 2 / 3, 1 / 6]])


def tableau(a, a_bar, name):
    """One matrix for the positions and one for the momenta, and the same for drift and noise."""
    return da.MeanSquareTableau(
        a=a,
        b=a,
        a_bar=a_bar,
        a_hat=a_bar,
        b_bar=a_bar,
        b_hat=a_bar,
        alpha=alpha,
        alpha_hat=alpha,
        beta=alpha,
        beta_hat=alpha,
        name=name,
    )


guess = tableau(a, a, "guess")
print(da.certify(guess))

# %% [markdown]
# The certificate is computed from the coefficients alone. The guess converges, but none of the
# conditions for the Lagrange–d'Alembert structure holds: it would be one more general-purpose
# method.
#
# ## The repair
#
# All eight conditions read like the first one,
# $\alpha_i\bar a_{ij} + \alpha_j a_{ji} = \alpha_i\alpha_j$. With $a$ and the weights as they are,
# it can be solved for the other matrix:
#
# $$
# \bar a_{ij} = \alpha_j\,\Big(1 - \frac{a_{ji}}{\alpha_i}\Big).
# $$

# %%
a_bar = alpha[None, :] * (1 - a.T / alpha[:, None])
mine = tableau(a, a_bar, "my Lobatto pair")
print(mine, end="\n\n")
certificate = da.certify(mine)
print(certificate)

# %% [markdown]
# The structure is kept. What came out is known without noise as the Lobatto IIIA–IIIB pair, of
# which Störmer–Verlet is the two-stage member; with noise it is in no table of this library.
#
# ## Measured: weak noise
#
# Without noise the damped pendulum tells the deterministic order. The error is the difference from
# a run with a tiny step.

# %%
pendulum = da.systems.pendulum()
start = ([2.0], [0.0])
STEPS = (8, 16, 32, 64)


def end(method, steps):
    """The state at t = 4 after so many steps without noise."""
    run = da.simulate(
        pendulum, method, start, dt=4.0 / steps, t_end=4.0, noise=da.Zero(), keep="final"
    )
    return np.array([run.q[0, 0], run.p[0, 0]])


limit = end(mine, 1024)
quiet = {
    method: [np.linalg.norm(end(method, steps) - limit) for steps in STEPS]
    for method in (da.stormer_verlet(), mine)
}
orders = {m: -np.polyfit(np.log(STEPS), np.log(e), 1)[0] for m, e in quiet.items()}
for method, errors in quiet.items():
    listed = " ".join(f"{error:9.1e}" for error in errors)
    print(f"{method.name:16} {listed}   order {orders[method]:.2f}")

# %% [markdown]
# ## Measured: with noise
#
# The certificate promises strong order one for one noise, no more: the increment $\Delta W$ does
# not contain the information that a higher order would need. `da.strong_order` measures it along
# common Brownian paths against another method.

# %%
strong = da.strong_order(
    pendulum, mine, ([0.5], [0.2]), t_end=1.0, steps=(8, 16, 32, 64), paths=300, reference=da.heun()
)
print(strong)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
dts = 4.0 / np.array(STEPS)
for method, errors in quiet.items():
    left.loglog(dts, errors, "o-", ms=4, label=f"{method.name}: slope {orders[method]:.2f}")
left.set(xlabel="step", ylabel="error without noise")
left.minorticks_off()
left.set_xticks(dts, [f"{dt:g}" for dt in dts])
left.legend()
strong.plot(right)
right.set(xlabel="step", ylabel="strong error with noise", ylim=(None, 0.02))
figure.savefig("inventing_a_tableau.png")

# %% [markdown]
# So the invention pays where the noise is weak and the steps are large; where noise dominates, a
# cheaper method of the same order does as well. Its cost is three coupled equations a step instead
# of one:

# %%
print(da.explain(pendulum, mine))

# %% [markdown]
# ## Check
#
# The guess is refused, the repaired tableau is certified, and both orders are what was promised.

# %%
assert not da.certify(guess).lagrange_dalembert
assert certificate.lagrange_dalembert and certificate.order["one"] == 1
assert abs(orders[mine] - 4) < 0.1 and abs(orders[da.stormer_verlet()] - 2) < 0.1
assert strong.interval[0] < 1 < strong.interval[1]
