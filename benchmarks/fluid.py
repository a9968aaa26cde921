"""A Lennard-Jones fluid: dalembert against jax-md's Langevin and OpenMM's CPU platform.

    python benchmarks/fluid.py [--atoms N] [--rounds N] [--steps N] [--out FILE]

N atoms at density 0.776 and temperature 0.9, cut-off 3σ, friction 1, step 0.004, in units of σ, ε
and m; one path, all cores. Everybody evaluates the force once a step and splits the step as BAOAB
does (OpenMM: half a step later, "middle"), and reports the potential energy every 50 steps. They
take turns, each going on from where it was, after the crystal has melted and all is compiled. The
best round gives the rate; the mean over all rounds is the energy, which must agree.

dalembert looks at all pairs. jax-md does so too, and also with its neighbour list. OpenMM has a
neighbour list, and computes forces in float32; the others compute in float64. What is not
installed is left out: pip install jax-md openmm.
"""

import argparse
import importlib.util
import os
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from measure import machine, print_table, write_json

import dalembert as da
from dalembert.systems.lennard_jones_system import fcc_lattice, lennard_jones_energy

DENSITY, TEMPERATURE, CUTOFF, GAMMA, DT = 0.776, 0.9, 3.0, 1.0, 0.004
SAVE_EVERY, SEED, STANDARD_ERRORS = 50, 1, 4.5
TAIL = 8 * np.pi / 3 * DENSITY * (CUTOFF**-9 / 3 - CUTOFF**-3)
"""What a uniform density beyond the cut-off adds to the energy per atom."""
SKIN = 0.3
"""How far beyond the cut-off a list of neighbours reaches."""

Advance = Callable[[int], np.ndarray]
"""Takes so many steps from where it was; returns energies per atom, one every SAVE_EVERY steps."""


def dalembert(N: int) -> Advance:
    system = da.systems.lennard_jones(N, DENSITY, TEMPERATURE, GAMMA, cutoff=CUTOFF)
    state: dict[str, Any] = {"at": start(N), "seed": SEED}

    def advance(steps: int) -> np.ndarray:
        run = da.simulate(
            system, da.baoab(), state["at"], dt=DT, t_end=steps * DT, paths=1, seed=state["seed"],
            save_every=SAVE_EVERY, observe={"energy": lennard_jones_energy}, keep="final",
            progress=False,
        )  # fmt: skip
        state.update(at=(run.q[0], run.p[0]), seed=state["seed"] + 1)
        return run.mean["energy"][1:]

    return advance


def pair_energy(r: Any, **_: Any) -> Any:
    """As in every contender: cut off, not smoothed."""
    near = r < CUTOFF
    sixth = jnp.where(near, r, 1.0) ** -6.0
    return jnp.where(near, 4 * (sixth**2 - sixth), 0.0)


def jax_md(N: int) -> Advance:
    return _jax_md(N, has_list=False)


def jax_md_with_list(N: int) -> Advance:
    return _jax_md(N, has_list=True)


def _jax_md(N: int, has_list: bool) -> Advance:
    from jax_md import partition, simulate, smap, space

    side, (q, p) = box(N), start(N)
    displacement, shift = space.periodic(side)
    metric = space.canonicalize_displacement_or_metric(displacement)
    if has_list:
        lists = partition.neighbor_list(displacement, side, CUTOFF, SKIN, disable_cell_list=True)
        neighbours = lists.allocate(jnp.asarray(q), extra_capacity=20)
        of_list = smap.pair_neighbor_list(pair_energy, metric)
        energy = lambda R, neighbor=None, **_: of_list(R, neighbor)  # noqa: E731
    else:
        neighbours = None
        of_all = smap.pair(pair_energy, metric)
        energy = lambda R, **_: of_all(R)  # noqa: E731
    init, apply = simulate.nvt_langevin(energy, shift, DT, TEMPERATURE, GAMMA)
    begun = init(jax.random.key(SEED), jnp.asarray(q), mass=1.0, momenta=jnp.asarray(p),
                 neighbor=neighbours)  # fmt: skip

    def step(_: Any, now: Any) -> Any:
        state, neighbours = now
        if has_list:
            neighbours = neighbours.update(state.position)
        return apply(state, neighbor=neighbours), neighbours

    def save(now: Any, _: Any) -> Any:
        state, neighbours = lax.fori_loop(0, SAVE_EVERY, step, now)
        if has_list:
            neighbours = neighbours.update(state.position)
        return (state, neighbours), energy(state.position, neighbor=neighbours)

    take = jax.jit(lambda now, saves: lax.scan(save, now, length=saves), static_argnums=1)
    memory = {"now": (begun, neighbours)}

    def advance(steps: int) -> np.ndarray:
        memory["now"], energies = take(memory["now"], steps // SAVE_EVERY)
        if has_list and memory["now"][1].did_buffer_overflow:
            raise RuntimeError("the list of neighbours is too short: the energies are wrong.")
        return np.asarray(energies) / N + TAIL

    return advance


def openmm(N: int) -> Advance:
    """In nm, amu and ps, in which the unit of energy is kJ/mol."""
    import openmm as mm
    from openmm import unit

    per_mole = unit.kilojoule_per_mole
    kelvin = TEMPERATURE * per_mole / unit.MOLAR_GAS_CONSTANT_R
    system, force = mm.System(), mm.NonbondedForce()
    system.setDefaultPeriodicBoxVectors(*(box(N) * np.eye(3)))
    force.setNonbondedMethod(mm.NonbondedForce.CutoffPeriodic)
    force.setCutoffDistance(CUTOFF)
    force.setUseDispersionCorrection(False)
    for _ in range(N):
        system.addParticle(1.0)
        force.addParticle(0.0, 1.0, 1.0)
    system.addForce(force)
    integrator = mm.LangevinMiddleIntegrator(kelvin, GAMMA / unit.picosecond, DT * unit.picosecond)
    integrator.setRandomNumberSeed(SEED)
    threads = {"Threads": str(machine()["cores"])}
    context = mm.Context(system, integrator, mm.Platform.getPlatformByName("CPU"), threads)
    q, p = start(N)
    context.setPositions(q)
    context.setVelocities(p)

    def advance(steps: int) -> np.ndarray:
        energies = []
        for _ in range(steps // SAVE_EVERY):
            integrator.step(SAVE_EVERY)
            found = context.getState(getEnergy=True).getPotentialEnergy()
            energies.append(found.value_in_unit(per_mole) / N + TAIL)
        return np.array(energies)

    return advance


CONTENDERS = {
    "dalembert, all pairs": ("dalembert", "float64", dalembert),
    "jax-md, all pairs": ("jax_md", "float64", jax_md),
    "jax-md, neighbour list": ("jax_md", "float64", jax_md_with_list),
    "OpenMM (CPU), neighbour list": ("openmm", "float32 forces", openmm),
}


def box(N: int) -> float:
    return float(np.cbrt(N / DENSITY))


def start(N: int) -> tuple[np.ndarray, np.ndarray]:
    """A crystal with momenta of the temperature."""
    p = np.random.default_rng(SEED).normal(0, np.sqrt(TEMPERATURE), (N, 3))
    return fcc_lattice(N, DENSITY), p


def compare(N: int, melting: int, rounds: int, steps: int) -> list[dict[str, Any]]:
    """Everybody's rate and mean energy; the rounds alternate between them."""
    rows, advances = [], []
    for name, (package, dtype, make) in CONTENDERS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{name} is left out: {package} is not installed")
            continue
        advances.append(make(N))
        advances[-1](melting)
        advances[-1](steps)  # compiles for this many
        rows.append({"contender": name, "precision": dtype, "means": [], "wall": [], "cores": []})
        print(f"{name} is ready", flush=True)
    for _ in range(rounds):
        for row, advance in zip(rows, advances, strict=True):
            wall, cores = time.perf_counter(), time.process_time()
            row["means"].append(float(np.mean(advance(steps))))
            row["wall"].append(time.perf_counter() - wall)
            row["cores"].append(time.process_time() - cores)
    for row in rows:
        means, wall, cores = (np.array(row.pop(key)) for key in ("means", "wall", "cores"))
        row["steps/s"] = steps / wall.min()
        row["steps per core-second"] = steps / cores.min()
        row["energy per atom"] = means.mean()
        row["standard error"] = means.std(ddof=1) / np.sqrt(rounds)
    for row in rows:
        for column in ("steps/s", "steps per core-second"):
            row[f"{column}, dalembert / this"] = rows[0][column] / row[column]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--atoms", type=int, default=500, help="4 n³ with n ≥ 4")
    parser.add_argument("--melting", type=int, default=2000, help="steps before the first round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=500, help="of a round")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    if options.rounds < 2 or options.steps % SAVE_EVERY or options.melting % SAVE_EVERY:
        parser.error(f"take 2 rounds or more, and multiples of {SAVE_EVERY} steps")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    rows = compare(options.atoms, options.melting, options.rounds, options.steps)
    print({key: value for key, value in machine().items() if key != "versions"})
    print_table(rows)
    if options.out:
        setting = {key: getattr(options, key) for key in ("atoms", "melting", "rounds", "steps")}
        write_json(options.out, rows, device="cpu", cores=os.cpu_count(), **setting)
    for one, other in combinations(rows, 2):
        gap = one["energy per atom"] - other["energy per atom"]
        error = np.hypot(one["standard error"], other["standard error"])
        if abs(gap) > STANDARD_ERRORS * error:
            raise SystemExit(
                f"mean energies disagree, so the rates compare nothing: {one['contender']} and "
                f"{other['contender']} differ by {gap:.4f} ± {error:.4f}"
            )


if __name__ == "__main__":
    main()
