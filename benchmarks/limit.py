"""How far is `da.simulate` from the limit of the machine: the same problems written by hand?

Five problems, float64, noise included, mean energies saved four times. The limit is `limit.c`,
compiled by gcc for this processor, or `limit.cu` on a GPU. Both contenders start from the same
states; compilation is timed apart; calls alternate. Prints path-steps per second and their ratio.
The mean energies at the end must agree within five standard errors.

    python benchmarks/limit.py [--device cpu|gpu] [--threads N] [--paths N] [--steps N]
                               [--only NAME] [--repeat 3] [--clock wall|cpu] [--out FILE.json]
                               [--check]

`--check` gives `da.simulate` the increments that the hand-written code draws, and compares states.
"""

import argparse
import ctypes
import importlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from measure import best_of_each, machine, print_table, seconds, write_json

import dalembert as da

HERE = Path(__file__).parent
FLAGS = (
    *("-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math"),
    *("-fopenmp", "-shared", "-fPIC"),
)
SAVES, SEED, STANDARD_ERRORS = 4, 1, 5.0
CHECK_PATHS, CHECK_STEPS = 128, 32
States = np.ndarray
"""Components × paths: q and p, or x, y, px and py."""


@dataclass(frozen=True)
class Problem:
    """One system, method, step size and start, and the hand-written kernel of that name.

    Attributes:
        start: initial states of so many paths.
        steps: by device, enough for `da.simulate` to run for about a second.
        newton: stage iterations of the hand-written kernel, in words.
        constants: what the kernel needs beside the step size.
    """

    name: str
    kernel: str
    system: da.System
    method: Any
    dt: float
    start: Callable[[int], States]
    steps: dict[str, int]
    newton: str
    constants: tuple[float, ...] = ()

    @property
    def three_point(self) -> bool:
        return self.method.convergence == "weak"

    @property
    def par(self) -> np.ndarray:
        return np.array([self.dt, *self.constants])


class Hand(Protocol):
    """The hand-written code on one kind of device."""

    def place(self, start: States) -> Any: ...

    def run(
        self, problem: Problem, placed: Any, steps: int, saves: int
    ) -> tuple[Any, np.ndarray]: ...

    def fetch(self, state: Any) -> States: ...

    def noise(self, problem: Problem, paths: int, steps: int) -> np.ndarray: ...


class OnCpu:
    """`limit.c`, compiled now for this processor."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.folder = tempfile.TemporaryDirectory(prefix="limit")
        library = Path(self.folder.name) / "limit.so"
        command = ["gcc", *FLAGS, str(HERE / "limit.c"), "-o", str(library), "-lm"]
        subprocess.run(command, check=True)
        self.library = ctypes.CDLL(str(library))

    def place(self, start: States) -> States:
        return start

    def fetch(self, state: States) -> States:
        return state

    def run(
        self, problem: Problem, placed: States, steps: int, saves: int
    ) -> tuple[States, np.ndarray]:
        """Final states, and sums of H and H² over the paths at every save."""
        state, sums = placed.copy(), np.zeros((saves, 2))
        paths = state.shape[1]
        if paths % self.library.block():
            raise ValueError(f"paths={paths} is no multiple of {self.library.block()}")
        getattr(self.library, f"run_{problem.kernel}")(
            *(ctypes.c_long(n) for n in (paths, steps, saves)),
            ctypes.c_uint64(SEED),
            *(_pointer(array) for array in (problem.par, state, sums)),
            ctypes.c_int(self.threads),
        )
        return state, sums

    def noise(self, problem: Problem, paths: int, steps: int) -> np.ndarray:
        """Normal numbers, or −1, 0, 1: paths × steps."""
        out = np.empty((paths, steps))
        self.library.noise(
            *(ctypes.c_long(n) for n in (paths, steps)),
            ctypes.c_uint64(SEED),
            ctypes.c_int(problem.three_point),
            _pointer(out),
        )
        return out


class OnGpu:
    """`limit.cu`, compiled now for this GPU; one thread per path."""

    def __init__(self, threads_per_block: int = 128) -> None:
        self.cupy, self.threads = importlib.import_module("cupy"), threads_per_block
        source = (HERE / "limit.cu").read_text(encoding="utf-8")
        self.module = self.cupy.RawModule(code=source, options=("--std=c++17",))

    def place(self, start: States) -> Any:
        return self.cupy.asarray(start)

    def fetch(self, state: Any) -> States:
        return self.cupy.asnumpy(state)

    def run(self, problem: Problem, placed: Any, steps: int, saves: int) -> tuple[Any, np.ndarray]:
        """Final states on the GPU, and sums of H and H² over the paths at every save."""
        cupy, paths = self.cupy, placed.shape[1]
        state, sums = placed.copy(), cupy.zeros((saves, 2))
        sizes = (np.int64(paths), np.int64(steps), np.int64(saves), np.uint64(SEED))
        self._launch(f"run_{problem.kernel}", paths, *sizes, cupy.asarray(problem.par), state, sums)
        return state, cupy.asnumpy(sums)

    def noise(self, problem: Problem, paths: int, steps: int) -> np.ndarray:
        """Normal numbers, or −1, 0, 1: paths × steps."""
        out = self.cupy.empty((paths, steps))
        sizes = (np.int64(paths), np.int64(steps), np.uint64(SEED), np.int32(problem.three_point))
        self._launch("noise", paths, *sizes, out)
        return self.cupy.asnumpy(out)

    def _launch(self, name: str, paths: int, *arguments: Any) -> None:
        blocks = -(-paths // self.threads)
        self.module.get_function(name)((blocks,), (self.threads,), arguments)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def problems() -> tuple[Problem, ...]:
    """The five problems at the step sizes of the studies."""
    lb = da.systems.lenard_bernstein()
    kubo = da.systems.damped_kubo()
    srkw2 = da.srkw2()
    return (
        Problem(
            "van der Pol midpoint", "vdp", da.systems.van_der_pol(), da.midpoint(), 0.2,
            _same([1.0, 1.0]), {"cpu": 32_768, "gpu": 327_680}, "2, scalar cubic",
        ),
        Problem(
            "Lenard-Bernstein Stoermer-Verlet", "verlet", lb, da.stormer_verlet(), 0.1,
            _bump_on_tail, {"cpu": 32_768, "gpu": 327_680}, "explicit",
        ),
        Problem(
            "Lenard-Bernstein DIRK", "dirk", lb, da.dirk(0.5), 0.15,
            _bump_on_tail, {"cpu": 16_384, "gpu": 327_680}, "2 per stage, scalar",
        ),
        Problem(
            "Kubo SRKw2", "kubo", kubo, srkw2, 0.5,
            _same([2.0, 0.0]), {"cpu": 262_144, "gpu": 327_680}, "none, three matrices",
            _kubo_maps(srkw2, 0.5, **{k: float(v) for k, v in kubo.params.items()}),
        ),
        Problem(
            "Lorentz midpoint", "lorentz", da.systems.lorentz(), da.midpoint(), 0.05,
            _perturbed_maxwellian, {"cpu": 16_384, "gpu": 327_680}, "3, two unknowns",
        ),
    )  # fmt: skip


def _kubo_maps(method: Any, dt: float, beta: float, nu: float) -> tuple[float, ...]:
    """α and β of y' = αy + βAy, A = [0 1; −1 −ν], for the three-point values +, −, 0.

    Polynomials in A are complex numbers x + yλ with its eigenvalue λ = −ν/2 + i√(1 − ν²/4), so the
    stage equations are a complex linear system.
    """
    omega = np.sqrt(1 - nu**2 / 4)
    eigenvalue = -nu / 2 + 1j * omega
    found = []
    for value in (np.sqrt(3 * dt), -np.sqrt(3 * dt), 0.0):
        drift, kick = dt * eigenvalue, value * beta * eigenvalue
        stages = np.block(
            [[drift * method.a0, kick * method.b0], [drift * method.a1, kick * method.b1]]
        )
        solution = np.linalg.solve(np.eye(len(stages)) - stages, np.ones(len(stages)))
        weights = np.concatenate([drift * method.alpha, kick * method.beta])
        growth = 1 + weights @ solution
        found += [growth.real + growth.imag / omega * nu / 2, growth.imag / omega]
    return tuple(found)


def _same(point: list[float]) -> Callable[[int], States]:
    return lambda paths: np.repeat(np.array(point)[:, None], paths, axis=1)


def _perturbed_uniform(rng: np.random.Generator, paths: int) -> np.ndarray:
    """Samples of 1 + cos(2πx)/4 on [0, 1], by its inverse distribution function."""
    grid = np.linspace(0, 1, 4097)
    return np.interp(rng.random(paths), grid + np.sin(2 * np.pi * grid) / (8 * np.pi), grid)


def _bump_on_tail(paths: int) -> States:
    rng = np.random.default_rng(SEED)
    bump = rng.random(paths) < 1 / 3
    v = rng.standard_normal(paths)
    return np.stack([_perturbed_uniform(rng, paths), np.where(bump, 4 + v / 2, v)])


def _perturbed_maxwellian(paths: int) -> States:
    rng = np.random.default_rng(SEED)
    position = [_perturbed_uniform(rng, paths) for _ in range(2)]
    return np.stack([*position, *rng.standard_normal((2, paths))])


def simulate(problem: Problem, start: States, steps: int, **options: Any) -> da.Run:
    """The contender, from the given states."""
    q, p = np.split(start.T, 2, axis=1)
    return da.simulate(
        problem.system, problem.method, (q, p), dt=problem.dt, t_end=steps * problem.dt,
        paths=len(q), seed=SEED, save_every=steps // SAVES, progress=False, **options,
    )  # fmt: skip


def compare(problem: Problem, hand: Hand, options: argparse.Namespace) -> dict[str, Any]:
    """Time both contenders on one problem and check that they computed the same."""
    paths = options.paths or {"cpu": 2**14, "gpu": 2**20}[options.device]
    steps = options.steps or problem.steps[options.device]
    steps -= steps % (8 * SAVES)
    start = problem.start(paths)
    workers = options.threads if options.device == "cpu" else None
    placed, results = hand.place(start), {}

    def limit() -> None:
        results["limit"] = hand.run(problem, placed, steps, SAVES)[1]

    def ours() -> None:
        results["dalembert"] = simulate(problem, start, steps, workers=workers)

    limit()
    first = seconds(ours)
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]
    fast, slow = best_of_each((limit, ours), options.repeat, clock)
    unit = "s" if options.clock == "wall" else "CPU-s"
    sums, run = results["limit"], results["dalembert"]
    mean = sums[-1, 0] / paths
    error = np.sqrt(max(sums[-1, 1] / paths - mean**2, 0.0) / paths)
    gap = float(run.mean["energy"][-1]) - mean
    combined = float(np.hypot(error, run.stderr["energy"][-1]))
    return {
        "problem": problem.name,
        "paths": paths,
        "steps": steps,
        "Newton steps by hand": problem.newton,
        f"limit, path-steps/{unit}": paths * steps / fast,
        f"dalembert, path-steps/{unit}": paths * steps / slow,
        "ratio": fast / slow,
        "first call, s": first,
        "E(H) limit": mean,
        "gap in standard errors": gap / combined if combined else 0.0,
    }


def check(problem: Problem, hand: Hand) -> dict[str, Any]:
    """Compare states after some steps on the same increments."""
    start = problem.start(CHECK_PATHS)
    xi = hand.noise(problem, CHECK_PATHS, CHECK_STEPS)
    dW = xi * np.sqrt(problem.dt * (3 if problem.three_point else 1))
    noise = da.Recorded(da.Increments(dW[:, :, None]))
    run = simulate(problem, start, CHECK_STEPS, noise=noise, keep="final")
    state, sums = hand.run(problem, hand.place(start), CHECK_STEPS, SAVES)
    gap = np.max(np.abs(np.concatenate([run.q, run.p], axis=1).T - hand.fetch(state)))
    energy = np.max(np.abs(sums[:, 0] / CHECK_PATHS - run.mean["energy"][1:]))
    row = {"problem": problem.name, "states differ by": float(gap), "E(H) by": float(energy)}
    if not max(gap, energy) < 1e-10:
        raise SystemExit(f"{problem.name}: the hand-written code computes something else: {row}")
    return row


def main() -> None:
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--paths", type=int, default=None)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--only", default="", help="part of the name of a problem")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall",
        help="cpu: rates per second of one core, for a CPU that others use at the same time",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--check", action="store_true", help="compare states instead of times")
    options = parser.parse_args()
    if options.device == "gpu" and options.clock == "cpu":
        parser.error("--clock cpu does not see what a GPU does: leave it out")
    chosen = [p for p in problems() if options.only.lower() in f"{p.name} {p.kernel}".lower()]
    if not chosen:
        parser.error(f"--only {options.only}: the problems are {[p.name for p in problems()]}")
    if options.device == "cpu":
        # XLA shares large operations among all cores it may use, whatever the number of workers.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
        jax.config.update("jax_platforms", "cpu")
    hand: Hand = OnCpu(options.threads) if options.device == "cpu" else OnGpu()
    if options.check:
        print_table([check(problem, hand) for problem in chosen])
        return
    rows = [compare(problem, hand, options) for problem in chosen]
    where = {key: value for key, value in machine().items() if key != "versions"}
    print({**where, "device": options.device, "threads": options.threads, "dtype": "float64"})
    print_table(rows)
    if options.out:
        settings = {"device": options.device, "threads": options.threads, "flags": FLAGS}
        write_json(options.out, rows, **settings, dtype="float64", clock=options.clock)
    wrong = [r["problem"] for r in rows if abs(r["gap in standard errors"]) > STANDARD_ERRORS]
    if wrong:
        raise SystemExit(f"mean energies disagree, so the rates compare nothing: {wrong}")


if __name__ == "__main__":
    main()
