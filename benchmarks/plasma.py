"""A plasma in its own field: dalembert against hand-written JAX loops of the same scheme.

    python benchmarks/plasma.py [--device cpu|gpu] [--only TEXT] [--repeat N] [--out FILE]
                                [--particles N] [--steps N] [--seconds N]

One path of N particles, Störmer–Verlet with one evaluation of the field a step, in float64: without
collisions, with Lenard–Bernstein's inside the method, and with collisions as flows before and after
every step. On a GPU, unless others are asked for, those with Lenard–Bernstein's inside the method;
results go to `benchmarks/results/plasma_gpu.json` after every case, and no case begins later than
80 seconds after the first. Ten times as many particles, 10⁸ on a GPU, are those of

    python benchmarks/plasma.py --device gpu --only "ten times" --out FILE

The peak of memory is that of the device in all cases so far, but for loops by hand that follow; on
a CPU it is that of the process. The loops by hand are `lax.fori_loop` with `jax.random` and forces
written down: sums of `jnp.cos` and `jnp.sin` for Fourier modes; for the grid linear splines with
their slopes, added up by `.at[].add`; means over cells by `.at[].add`; pairs by a random
permutation. The angle by which a relative velocity turns is drawn by the same function. Rates are
particles times steps a second of the whole call; "steps alone" is without what is done once, such
as bringing the start to the device. Both contenders start alike, and their mean squares of v_x must
agree.
"""

import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from measure import best_of_each, comparison_options, report_comparison, seconds, write_comparison

import dalembert as da
from dalembert.plasma import (
    CoulombPairs,
    Dougherty,
    Field,
    Fourier,
    LenardBernstein,
    Lorentz,
    Spline,
    Start,
    vlasov_poisson,
)
from dalembert.plasma.turning import turned

SEED, DT, NU, LENGTH, CELLS = 1, 0.1, 0.1, 4 * np.pi, 32
SIZES = {"cpu": (2**16, 320), "gpu": (10**7, 4096)}
"""Particles and steps; on a GPU the cases below take another share of these steps."""
FEW = 32
"""Steps of the run that shows what is done once."""
RESULTS = Path(__file__).parent / "results" / "plasma_gpu.json"
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


def local_means(x: Any) -> Callable[[Any], Any]:
    """Means over the particles in the cell of each, for particles at x."""
    cell = jnp.floor(jnp.mod(x / LENGTH, 1.0) * CELLS).astype(jnp.int32)
    count = jnp.zeros(CELLS).at[cell].add(1.0)
    return lambda v: (jnp.zeros(CELLS).at[cell].add(v) / count)[cell]


def lenard_bernstein_by_hand(x: Any, v: Any, h: float, key: Any) -> Any:
    """About the local velocity, recentred."""
    mean = local_means(x)
    u = mean(v)
    noise = np.sqrt(-np.expm1(-2 * NU * h)) * jax.random.normal(key, v.shape, v.dtype)
    moved = np.exp(-NU * h) * (v - u) + noise
    return u + moved - mean(moved)


def dougherty_by_hand(x: Any, v: Any, h: float, key: Any) -> Any:
    """About the local velocity and temperature, recentred and rescaled."""
    mean = local_means(x)
    u = mean(v)
    own = v - u
    T = mean(own**2)
    noise = jnp.sqrt(-np.expm1(-2 * NU * h) * T) * jax.random.normal(key, v.shape, v.dtype)
    moved = np.exp(-NU * h) * own + noise
    moved -= mean(moved)
    return u + moved * jnp.sqrt(T / mean(moved**2))


def lorentz_by_hand(x: Any, v: Any, h: float, key: Any) -> Any:
    """A rotation of every velocity."""
    angle = np.sqrt(2 * NU * h) * jax.random.normal(key, x.shape, x.dtype)
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([c * v[:, 0] - s * v[:, 1], s * v[:, 0] + c * v[:, 1]], axis=1)


def pairs_by_hand(x: Any, v: Any, h: float, key: Any) -> Any:
    """A rotation of the relative velocities of random pairs."""
    keys, half = jax.random.split(key), len(x) // 2
    order = jax.random.permutation(keys[0], len(x))
    i, j = order[:half], order[half : 2 * half]
    u = v[i] - v[j]
    variance = 4 * NU * h / jnp.sum(u**2, axis=1) ** 1.5
    normal = jax.random.normal(keys[1], u.shape, u.dtype)
    kick = (turned(u, variance, normal) - u) / 2
    return v.at[i].add(kick).at[j].add(-kick)


class Problem(NamedTuple):
    """A field, and collisions: None for those inside the method, if their rate is above 0."""

    name: str
    field: Field
    force: Callable[[Any], Any]
    nu: float = NU
    collisions: Any = None
    by_hand: Callable[..., Any] | None = None
    components: int = 1
    times: int = 1
    """How many times as many particles."""
    share: float = 1.0
    """Of the steps, on a GPU: a run takes a second or two."""


ONE, HAND = Fourier(1), partial(fourier_force, 1)
FIELDS: tuple[tuple[str, Any, Any, float], ...] = (
    ("one mode", ONE, HAND, 1.0),
    ("eight modes", Fourier(8), partial(fourier_force, 8), 0.25),
    ("grid of 256", Spline(256, degree=1), partial(grid_force, 256), 0.0625),
)
PROBLEMS = (
    *(Problem(*field, nu=nu, share=share) for *field, share in FIELDS for nu in (0.0, NU)),
    Problem(
        "lenard-bernstein with momentum",
        ONE,
        HAND,
        collisions=LenardBernstein(cells=CELLS),
        by_hand=lenard_bernstein_by_hand,
    ),
    Problem("dougherty", ONE, HAND, collisions=Dougherty(cells=CELLS), by_hand=dougherty_by_hand),
    Problem("lorentz", ONE, HAND, collisions=Lorentz(), by_hand=lorentz_by_hand, components=2),
    Problem("pairs", ONE, HAND, collisions=CoulombPairs(), by_hand=pairs_by_hand, components=3),
)
LARGE = tuple(
    Problem(f"ten times: {name}", field, force, times=10, share=min(share / 8, 0.0625))
    for name, field, force, share in FIELDS
)
ON_GPU = tuple(problem for problem in PROBLEMS if problem.nu and not problem.by_hand)


@partial(jax.jit, static_argnums=(0, 3))
def run_by_hand(problem: Problem, x: Any, p: Any, steps: int, key: Any) -> Any:
    """⟨v_x²⟩ at the end."""
    nu = 0.0 if problem.by_hand else problem.nu

    def first(z: Any) -> Any:
        return z if z.ndim == 1 else z[:, 0]

    def add(z: Any, value: Any) -> Any:
        return z + value if z.ndim == 1 else z.at[:, 0].add(value)

    def one(i: Any, now: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        x, p, f = now
        before, after = jax.random.split(jax.random.fold_in(key, i))
        if problem.by_hand:
            p = problem.by_hand(first(x), p, DT / 2, before)
            p = add(p, DT / 2 * f)
            x = x + DT * p
            f = problem.force(first(x))
            return x, problem.by_hand(first(x), add(p, DT / 2 * f), DT / 2, after), f
        kick = 0.0
        if nu:
            kick = np.sqrt(2 * nu * DT) / 2 * jax.random.normal(before, x.shape, x.dtype)
        half = (p + DT / 2 * f + kick) / (1 + nu * DT / 2)
        x = x + DT * half
        f = problem.force(x)
        return x, half + DT / 2 * (f - nu * half) + kick, f

    x, p, _ = lax.fori_loop(0, steps, one, (x, p, problem.force(first(x))))
    return jnp.mean(first(p) ** 2)


def mean_square(q: Any, p: Any, params: Any) -> Any:
    """⟨v_x²⟩ of a plasma of weights and masses 1."""
    return jnp.mean((p if p.ndim == 1 else p[:, 0]) ** 2)


def compare(
    problem: Problem, N: int, steps: int, repeat: int, device: str, clock: Any
) -> dict[str, Any]:
    """Time both contenders."""
    N = N * problem.times
    if device == "gpu":
        steps = max(FEW, int(steps * problem.share) // FEW * FEW)
        repeat = min(repeat, 1 if problem.times > 1 else 2)
    began = time.perf_counter()
    system = vlasov_poisson(
        N, LENGTH, problem.field, nu=problem.nu, collisions=problem.collisions,
        velocities=problem.components,
    )  # fmt: skip
    start = Start(N, LENGTH, amplitude=0.05, components=problem.components, transverse=0.25)
    # Where there are very many, numbers are drawn where they are needed.
    draw = jax.jit(start.random)
    q, p = draw(jax.random.key(SEED)) if device == "gpu" else start.quiet()
    placed, results = (jnp.asarray(q), jnp.asarray(p)), {}
    q, p = np.asarray(q), np.asarray(p)
    to_start = time.perf_counter() - began

    def by_hand() -> None:
        found = run_by_hand(problem, *placed, steps, jax.random.key(SEED))
        results["hand"] = float(found)

    def ours(steps: int = steps) -> None:
        run = da.simulate(
            system, da.stormer_verlet(), (q, p), dt=DT, t_end=steps * DT, paths=1, seed=SEED,
            save_every=steps, observe={"square": mean_square}, progress=False,
        )  # fmt: skip
        results["ours"], results["engine"] = run.mean["square"][-1], run.provenance["code"]

    our_first, most = seconds(ours), peak_memory(device)
    hand_first = seconds(by_hand)
    once, hand, our = best_of_each((partial(ours, FEW), by_hand, ours), repeat, clock)
    # With collisions the noises differ: ⟨v²⟩ has the variance 2/N each. Without, it is rounding.
    scale = np.sqrt(4 / N) if problem.nu else 1e-10
    return {
        "case": problem.name,
        "nu": problem.nu,
        "particles": N,
        "steps": steps,
        "by hand, particle-steps/s": N * steps / hand,
        "dalembert, particle-steps/s": N * steps / our,
        "ratio": hand / our,
        "steps alone, particle-steps/s": N * (steps - FEW) / (our - once) if our > once else None,
        "to draw the start, s": to_start,
        "once per call, s": once,
        "peak of memory, GiB": most,
        "first call by hand, s": hand_first,
        "first call, s": our_first,
        "engine": results["engine"],
        "gap in standard errors": float(results["ours"] - results["hand"]) / scale,
    }


def peak_memory(device: str) -> float | None:
    """GiB that the device has held at most, or on a CPU this process."""
    if device == "gpu":
        stats = jax.devices()[0].memory_stats() or {}
        return stats.get("peak_bytes_in_use", np.nan) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    options = comparison_options(
        __doc__,
        only="the name of a case",
        particles="in the plasma",
        steps="of each run",
        seconds="after which no case begins",
    )
    on_gpu = options.device == "gpu"
    particles, steps = SIZES[options.device]
    size = options.particles or particles, options.steps or steps
    # On a CPU seconds of all cores, which others who use the machine change less.
    clock = time.perf_counter if on_gpu else time.process_time
    last = time.perf_counter() + (options.seconds or (80 if on_gpu else np.inf))
    only, rows = options.only.lower(), []
    options.out = options.out or (RESULTS if on_gpu and not only else None)
    usual = ON_GPU if on_gpu and not only else PROBLEMS
    for problem in LARGE if only.startswith("ten") else usual:
        if only not in problem.name:
            continue
        try:
            if time.perf_counter() > last:
                raise TimeoutError("no time was left for this case")
            rows.append(compare(problem, *size, options.repeat, options.device, clock))
        except Exception as error:  # Other cases are measured all the same.
            message = f"{type(error).__name__}: {error}"[:2000]
            rows.append({"case": problem.name, "nu": problem.nu, "error": message})
        write_comparison(rows, options)
    report_comparison(rows, options, "mean squares of velocities", STANDARD_ERRORS)


if __name__ == "__main__":
    main()
