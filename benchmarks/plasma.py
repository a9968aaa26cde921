"""A plasma in its own field: dalembert against hand-written JAX loops of the same scheme.

    python benchmarks/plasma.py [--device cpu|gpu] [--only TEXT] [--repeat N] [--out FILE]

One path of N particles, Störmer–Verlet with one evaluation of the field a step, with and without
Lenard–Bernstein collisions, in float64. The loops by hand are `lax.fori_loop` with `jax.random` and
forces written down: sums of `jnp.cos` and `jnp.sin` for Fourier modes; for the grid linear splines
with their slopes, added up by `.at[].add`. Rates are particles times steps a second; both
contenders start alike, and their kinetic energies per particle must agree.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from measure import best_of_each, comparison_options, report_comparison, seconds

import dalembert as da
from dalembert.plasma import Field, Fourier, Spline, Start, kinetic_energy, vlasov_poisson

SEED, DT, NU, LENGTH = 1, 0.1, 0.1, 4 * np.pi
SIZES = {"cpu": (2**16, 300), "gpu": (10**7, 400)}
"""Particles and steps."""
STANDARD_ERRORS = 5


def fourier_force(modes: int, x: Any) -> Any:
    """Minus the gradient of the energy of Fourier modes."""
    force = jnp.zeros_like(x)
    for k in 2 * np.pi / LENGTH * np.arange(1.0, modes + 1):
        c, s = jnp.cos(k * x), jnp.sin(k * x)
        force += 2 / k * (jnp.mean(c) * s - jnp.mean(s) * c)
    return force


def grid_force(cells: int, x: Any) -> Any:
    """Minus the gradient of the energy of linear splines on a grid."""
    u = x * (cells / LENGTH)
    left = jnp.floor(u)
    share, i = u - left, jnp.mod(left, cells).astype(jnp.int32)
    right = (i + 1) % cells
    rho = jnp.zeros(cells).at[i].add(1 - share).at[right].add(share) * (cells / len(x))
    k = 2 * np.pi / LENGTH * np.arange(1.0, cells // 2 + 1)
    waves = jnp.fft.rfft(rho).at[0].set(0).at[1:].divide(k**2)
    potential = jnp.fft.irfft(waves, cells)
    return -(potential[right] - potential[i]) * (cells / LENGTH)


class Problem(NamedTuple):
    name: str
    field: Field
    force: Callable[[Any], Any]


PROBLEMS = (
    Problem("one mode", Fourier(1), partial(fourier_force, 1)),
    Problem("eight modes", Fourier(8), partial(fourier_force, 8)),
    Problem("grid of 256", Spline(256, degree=1), partial(grid_force, 256)),
)


@partial(jax.jit, static_argnums=(0, 1, 4))
def run_by_hand(force: Any, nu: float, x: Any, p: Any, steps: int, key: Any) -> Any:
    """Kinetic energy per particle at the end."""

    def one(i: Any, now: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        x, p, f = now
        kick = 0.0
        if nu:
            xi = jax.random.normal(jax.random.fold_in(key, i), x.shape, x.dtype)
            kick = np.sqrt(2 * nu * DT) * xi / 2
        half = (p + DT / 2 * f + kick) / (1 + nu * DT / 2)
        x = x + DT * half
        f = force(x)
        return x, half + DT / 2 * (f - nu * half) + kick, f

    x, p, _ = lax.fori_loop(0, steps, one, (x, p, force(x)))
    return jnp.mean(p**2) / 2


def compare(problem: Problem, nu: float, N: int, steps: int, repeat: int) -> dict[str, Any]:
    """Time both contenders."""
    system = vlasov_poisson(N, LENGTH, problem.field, nu=nu)
    q, p = Start(N, LENGTH, amplitude=0.05).quiet()
    placed, results = (jnp.asarray(q), jnp.asarray(p)), {}

    def by_hand() -> None:
        found = run_by_hand(problem.force, nu, *placed, steps, jax.random.key(SEED))
        results["hand"] = float(found)

    def ours() -> None:
        run = da.simulate(
            system, da.stormer_verlet(), (q, p), dt=DT, t_end=steps * DT, paths=1, seed=SEED,
            save_every=steps, observe={"kinetic": kinetic_energy}, progress=False,
        )  # fmt: skip
        results["ours"], results["engine"] = run.mean["kinetic"][-1], run.provenance["code"]

    hand_first, our_first = seconds(by_hand), seconds(ours)
    hand, our = best_of_each((by_hand, ours), repeat)
    # With collisions the noises differ: ⟨v²⟩/2 has the variance ½/N. Without, it is rounding.
    scale = np.sqrt(1 / N) if nu else 1e-10
    return {
        "field": problem.name,
        "nu": nu,
        "particles": N,
        "by hand, particle-steps/s": N * steps / hand,
        "dalembert, particle-steps/s": N * steps / our,
        "ratio": hand / our,
        "first call by hand, s": hand_first,
        "first call, s": our_first,
        "engine": results["engine"],
        "gap in standard errors": float(results["ours"] - results["hand"]) / scale,
    }


def main() -> None:
    options = comparison_options(__doc__, only="the name of a field")
    rows = [
        compare(problem, nu, *SIZES[options.device], options.repeat)
        for problem in PROBLEMS
        for nu in (0.0, NU)
        if options.only.lower() in problem.name
    ]
    report_comparison(rows, options, "kinetic energies", STANDARD_ERRORS)


if __name__ == "__main__":
    main()
