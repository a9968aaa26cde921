# %% [markdown]
# # Rods and rigid molecules
#
# You will learn to bind a system to constraints, to start on them, to choose between RATTLE and
# g-BAOAB, and what rods do to a density that stiff springs do not.
#
# A point on a sphere has two degrees of freedom, but angles are singular at the poles. Constraints
# keep Cartesian coordinates and add what binds them:
#
# $$
# \begin{aligned}
# dq &= H_p\,dt, \\
# dp &= (-H_q + F)\,dt + \sum_i (\dots)\circ dW_i - Dg(q)^T d\lambda, \\
# 0 &= g(q).
# \end{aligned}
# $$
#
# ## A pendulum on a sphere
#
# Its field is not uniform: in a uniform one Heun's method would do no worse than RATTLE.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dalembert as da

pendulum = da.System(
    lambda q, p: p @ p / 2 + 2 * q[2] + q[2] ** 4,
    dim=3,
    constraints=lambda q: jnp.stack([q @ q - 1]),
    name="pendulum",
)
facts = da.diagnose(pendulum, methods=[da.rattle()]).constraints
print(f"{facts.count} constraint leaves a surface of dimension {facts.dimension}")

# %% [markdown]
# A start has to meet $g(q) = 0$, and its velocity has to be tangent. One that does not is refused;
# `da.project` moves it there.

# %%
try:
    da.step(pendulum, da.rattle(), [0.9, 0.0, 0.1], [0.0, 0.5, 0.5], 0.1, [])
except ValueError as error:
    print(error)
start = da.project(pendulum, [0.9, 0.0, 0.1], [0.0, 0.5, 0.5])
print("moved to", *(np.round(x, 3) for x in start))

# %% [markdown]
# RATTLE is Störmer–Verlet between two projections of momenta. On the manifold it is symplectic, so
# that its energy stays where it is. The same projections around Heun's method keep the constraint
# as well, and let the energy grow.

# %%
methods = {"RATTLE": da.rattle(), "Heun, projected": da.ProjectedMethod(da.heun(), "heun")}
runs = {
    name: da.simulate(
        pendulum, method, start, dt=0.05, t_end=200.0, paths=1, save_every=10, keep="all",
        observe={"energy": pendulum.H, "off": lambda q, p: abs(q @ q - 1)}, progress=False,
    )
    for name, method in methods.items()
}  # fmt: skip

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
x, y, z = np.asarray(runs["RATTLE"].q).reshape(-1, 3).T
left.add_patch(plt.Circle((0, 0), 1.0, fill=False, color="0.7"))
drawn = left.scatter(x, y, c=z, s=6, cmap="viridis")
figure.colorbar(drawn, ax=left, label="height z", location="left")
left.set(aspect="equal", xlabel="x", ylabel="y", title="RATTLE, seen from above")
for name, run in runs.items():
    right.plot(run.t, run.mean["energy"], label=name)
right.set(xlabel="time", ylabel="energy", title="the constraint alone is not enough")
right.legend()
figure.savefig("pendulum_on_a_sphere.png", dpi=150)
plt.show()
for name, run in runs.items():
    print(f"{name:15} |g| ≤ {np.max(run.mean['off']):.0e}")

# %% [markdown]
# ## Two rods and a temperature
#
# With friction and noise a system samples a temperature. Kicks act on all momenta, and the
# projections take away what would tear at the rods. g-BAOAB is made for this: every flow of BAOAB
# is projected, and drifts follow geodesics.
#
# Two rods of equal length and masses have the angles $\theta_1, \theta_2$. Without gravity all of
# them have the same energy, but not the same density: it is that of the metric,
# $\sqrt{\det G} = \sqrt{2 - \cos^2(\theta_1-\theta_2)}$. Stiff springs in the place of rods would
# have no such factor, however stiff they are: their vibrations take up what the root would give.

# %%
from dalembert.systems.double_pendulum_system import angle_density, double_pendulum_start

rods = da.systems.double_pendulum(gravity=0.0, gamma=1.0, temperature=1.0)


def bend(q, p, params):
    """θ₂ − θ₁, the angle between the rods."""
    (x, y), (u, v) = q[0], q[1] - q[0]
    return jnp.arctan2(x * v - y * u, x * u + y * v)


axis = da.Axis(bend, -np.pi, np.pi, bins=36, periodic=True)
run = da.simulate(
    rods, da.g_baoab(), double_pendulum_start(), dt=0.2, t_end=12.0, paths=20_000, save_every=10,
    histograms={"bend": da.Histogram(axis, every_save=True)}, progress=False,
)  # fmt: skip
print(run)

measured = run.histograms["bend"].density[3:].mean(axis=0)
edges = np.linspace(-np.pi, np.pi, 37)
middle = (edges[1:] + edges[:-1]) / 2
metric = angle_density(0.0, middle, gravity=0.0)
metric /= metric.mean() * 2 * np.pi
stiff = np.full(36, 1 / (2 * np.pi))

figure, axes = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
axes.stairs(measured, edges, fill=True, color="0.85", label="g-BAOAB, rods")
axes.plot(middle, metric, label="√det G, rods")
axes.plot(middle, stiff, "--", label="stiff springs")
axes.set(xlabel="angle between the rods", ylabel="density", ylim=(0, 0.22))
axes.legend(loc="lower center")
figure.savefig("metric_or_springs.png", dpi=150)
plt.show()

# %% [markdown]
# If your rods stand for stiff bonds, add $T\log\sqrt{\det(Dg\,M^{-1}Dg^T)}$ to the potential: that
# takes the factor away again.
#
# ## Rigid molecules
#
# Ready-made constraints fix distances (`da.constraints.distances`), bodies (`rigid`) and surfaces
# (`on_surface`). Three distances make a rigid triangle, like a molecule of water. The multipliers
# of different molecules have nothing to do with each other, and are solved in blocks: a thousand
# molecules cost a thousand times one.

# %%
from dalembert.systems.triangles_system import MASSES, triangles_start

N = 27
water = da.systems.triangles(N, density=0.2, temperature=1.0, gamma=1.0)
print(da.explain(water, da.g_baoab(geodesic_steps=1)))

q, _ = triangles_start(N, density=0.2)
# Every molecule moves as a whole, so that nothing tears at its sides; noise will turn it.
velocities = np.sqrt(2 / MASSES.sum()) * np.random.default_rng(0).standard_normal((N, 1, 3))
fluid = da.simulate(
    water, da.g_baoab(geodesic_steps=1), (q, MASSES * velocities), dt=0.01, t_end=4.0, paths=32,
    save_every=20, keep="final", progress=False,
    observe={"kinetic": lambda q, p, params: jnp.sum(p**2 / (2 * params["mass"]))},
)  # fmt: skip

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for body in np.asarray(fluid.q)[0]:
    left.fill(*body[:, :2].T, alpha=0.5, color="C0")
    left.plot(*body[0, :2], "o", color="C3", markersize=4)
left.set(aspect="equal", xlabel="x", ylabel="y", title="one path at the end, from above")
error = 2 * fluid.stderr["kinetic"]
right.errorbar(fluid.t, fluid.mean["kinetic"], error, fmt=".", label="mean, two standard errors")
right.axhline(3 * N, color="C1", label="3NT: six degrees of freedom each")
right.set(xlabel="time", ylabel="kinetic energy", ylim=(60, 100))
right.legend()
figure.savefig("rigid_molecules.png", dpi=150)
plt.show()

# %% [markdown]
# ## What was shown
#
# The energy of RATTLE is bounded and that of Heun's method is not, although both meet the
# constraint; the angle has the density of the metric and not that of springs; sides keep their
# lengths to rounding, and a rigid triangle has six degrees of freedom.

# %%
drift = {name: np.ptp(run.mean["energy"]) for name, run in runs.items()}
for name, size in drift.items():
    print(f"{name:15} energy varies by {size:.4f}")
assert 10 * drift["RATTLE"] < drift["Heun, projected"]

misses = [np.sqrt(np.mean((measured - exact) ** 2)) for exact in (metric, stiff)]
print("distance of the density from that of the metric: {:.4f}, of springs: {:.4f}".format(*misses))
assert misses[0] < 0.0075 < 0.015 < misses[1]

sides = np.linalg.norm(np.asarray(fluid.q)[:, :, 0] - np.asarray(fluid.q)[:, :, 1], axis=-1)
print(f"sides miss their length by up to {np.max(np.abs(sides - 0.3)):.0e}")
assert np.max(np.abs(sides - 0.3)) < 1e-12

late = fluid.mean["kinetic"][10:].mean(), fluid.stderr["kinetic"][10:].mean()
print(f"kinetic energy {late[0]:.1f} ± {late[1]:.1f}, and 3NT is {3 * N}")
assert abs(late[0] - 3 * N) < 4 * late[1]
