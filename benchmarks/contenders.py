"""The problems and the methods of other libraries that `others.py` compares."""

import math
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dalembert as da
from dalembert.systems.kubo_system import kubo_energy

NU, SIGMA, BETA = 0.001, 0.05, 0.5
T_END = 5000.0
Pair = tuple[Any, Any]
Run = Callable[[float, int, int], float]
"""(dt, steps, paths) -> mean energy at the end."""

OneStep = Callable[[Any, Any, Any, Any, Any], Pair]
"""(q, p, dt, x, y) -> (q', p') with independent standard normal (or three-point) x and y."""


@dataclass(frozen=True)
class Problem:
    """dz = drift dt + noise ∘ dW with one Wiener process; H = (q² + p²)/2.

    Attributes:
        exact: E(H) at the end.
        spread: standard deviation of H at the end, relative to E(H).
        tolerances: relative errors to reach.
    """

    name: str
    system: da.System
    start: tuple[float, float]
    drift: Callable[[Any, Any], Pair]
    noise: Callable[[Any, Any], Pair]
    exact: float
    spread: float
    tolerances: tuple[float, ...]
    is_additive: bool


VAN_DER_POL = Problem(
    "van der Pol",
    da.systems.van_der_pol(NU, SIGMA),
    (1.0, 1.0),
    lambda q, p: (p, -q + NU * (1 - q * q) * p),
    lambda q, p: (0 * q, 0 * p + SIGMA),
    # The Fokker–Planck equation at T = 5000, and the paper's standard error, 7.17e−4 for 10⁶ paths.
    2.31430,
    0.717 / 2.31430,
    (0.01, 0.003),
    True,
)
KUBO = Problem(
    "Kubo",
    da.systems.damped_kubo(BETA, NU),
    (2.0, 0.0),
    lambda q, p: (p, -q - NU * p),
    lambda q, p: (BETA * p, BETA * (-q - NU * p)),
    float(kubo_energy(T_END, 2.0, 0.0, BETA, NU)),
    # H is nearly log-normal: log H = −ν(t + βW) + const.
    math.sqrt(math.expm1(NU**2 * BETA**2 * T_END)),
    (0.01, 0.001),
    False,
)
PROBLEMS = (VAN_DER_POL, KUBO)


@dataclass(frozen=True)
class Contender:
    """A method of a library.

    Attributes:
        library, name: what it is.
        prepare: problem -> run.
        step: problem -> one step of the scheme, for its bias.
        weak: whether its noise is three-point.
        problems: what it can solve.
    """

    library: str
    name: str
    prepare: Callable[[Problem], Run]
    step: Callable[[Problem], OneStep]
    weak: bool = False
    problems: tuple[str, ...] = ("van der Pol", "Kubo")

    @property
    def label(self) -> str:
        return f"{self.library} {self.name}"


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# dalembert


def _dalembert_run(problem: Problem, method: str) -> Run:
    initial = ([problem.start[0]], [problem.start[1]])

    def run(dt: float, steps: int, paths: int) -> float:
        result = da.simulate(
            problem.system,
            da.METHODS[method](),
            initial,
            dt=dt,
            t_end=dt * steps,
            paths=paths,
            # A multiple of the steps whose noise is drawn at once, so that one kernel serves all.
            save_every=max(steps // 10 // 16, 1) * 16,
            progress=False,
        )
        return float(result.mean["energy"][-1])

    return run


def _dalembert_step(problem: Problem, method: str) -> OneStep:
    def step(q: Any, p: Any, dt: Any, x: Any, y: Any) -> Pair:
        dW = (jnp.sqrt(dt) * x)[None]
        q, p, _ = da.step(problem.system, da.METHODS[method](), q[None], p[None], dt, dW)
        return q[0], p[0]

    return step


def dalembert_contenders() -> Iterator[Contender]:
    for name in ("midpoint", "stormer_verlet", "dirk", "srkw2", "heun"):
        yield Contender(
            "dalembert",
            name,
            partial(_dalembert_run, method=name),
            partial(_dalembert_step, method=name),
            weak=name == "srkw2",
        )


# diffrax


def _diffrax_terms(problem: Problem, path: Any) -> Any:
    import diffrax as dfx

    def drift(t: Any, y: Any, args: Any) -> Any:
        return jnp.stack(problem.drift(y[0], y[1]))

    def noise(t: Any, y: Any, args: Any) -> Any:
        if problem.is_additive:
            # Solvers for additive noise insist that it does not look at y.
            y = jnp.zeros(2)
        return jnp.stack(problem.noise(y[0], y[1]))

    return dfx.MultiTerm(dfx.ODETerm(drift), dfx.ControlTerm(noise, path))


def _levy_area(solver: Any) -> Any:
    import diffrax as dfx

    needs_area = hasattr(solver, "minimal_levy_area")
    return dfx.SpaceTimeLevyArea if needs_area else dfx.BrownianIncrement


def _diffrax_run(problem: Problem, solver: Any, tree: bool, threads: int) -> Run:
    import diffrax as dfx

    def one(key: Any, t_end: Any, dt: Any) -> Any:
        if tree:
            path = dfx.VirtualBrownianTree(
                0.0, t_end, tol=dt / 2, shape=(), key=key, levy_area=_levy_area(solver)
            )
        else:
            path = dfx.UnsafeBrownianPath((), key, levy_area=_levy_area(solver))
        solution = dfx.diffeqsolve(
            _diffrax_terms(problem, path),
            solver,
            0.0,
            t_end,
            dt,
            jnp.asarray(problem.start),
            saveat=dfx.SaveAt(t1=True),
            stepsize_controller=dfx.ConstantStepSize(),
            adjoint=dfx.ForwardMode(),
            max_steps=None,
            throw=False,
        )
        return jnp.sum(solution.ys[0] ** 2) / 2

    batch = jax.jit(jax.vmap(one, (0, None, None)))

    def run(dt: float, steps: int, paths: int) -> float:
        keys = jax.random.split(jax.random.key(0), -(-paths // threads) * threads)
        parts = keys.reshape(threads, -1)
        with ThreadPoolExecutor(threads) as pool:
            energies = list(pool.map(lambda k: np.asarray(batch(k, dt * steps, dt)), parts))
        return float(np.mean(energies))

    return run


def _diffrax_step(problem: Problem, solver: Any) -> OneStep:
    """One step with known increments: the Brownian path is replaced by numbers."""
    import diffrax as dfx

    class Given(dfx.AbstractPath):
        W: Any
        H: Any

        @property
        def t0(self) -> Any:
            return 0.0

        @property
        def t1(self) -> Any:
            return jnp.inf

        def evaluate(self, t0: Any, t1: Any = None, left: bool = True, use_levy: bool = False):
            if not use_levy:
                return self.W
            if _levy_area(solver) is dfx.BrownianIncrement:
                return dfx.BrownianIncrement(dt=t1 - t0, W=self.W)
            return dfx.SpaceTimeLevyArea(dt=t1 - t0, W=self.W, H=self.H)

    def step(q: Any, p: Any, dt: Any, x: Any, y: Any) -> Pair:
        # H, the space-time Lévy area, has the variance dt/12 and is independent of W.
        terms = _diffrax_terms(problem, Given(jnp.sqrt(dt) * x, jnp.sqrt(dt / 12) * y))
        z = jnp.stack([q, p])
        state = solver.init(terms, 0.0, dt, z, None)
        z = solver.step(terms, 0.0, dt, z, None, state, made_jump=False)[0]
        return z[0], z[1]

    return step


def diffrax_contenders() -> Iterator[Contender]:
    import diffrax as dfx

    both, additive, multiplicative = ("van der Pol", "Kubo"), ("van der Pol",), ("Kubo",)
    # One call that is left to XLA uses little more than one core.
    threads = cores() if jax.default_backend() == "cpu" else 1
    for name, solver, tree, problems in (
        ("Heun", dfx.Heun(), False, both),
        ("Heun, in one call", dfx.Heun(), False, both),
        ("Heun, VirtualBrownianTree", dfx.Heun(), True, both),
        ("ShARK", dfx.ShARK(), False, additive),
        ("SRA1", dfx.SRA1(), False, additive),
        ("SlowRK", dfx.SlowRK(), False, multiplicative),
        ("Bosh3 (not advised)", dfx.Bosh3(), False, both),
        ("Tsit5 (not advised)", dfx.Tsit5(), False, both),
        ("Dopri8 (not advised)", dfx.Dopri8(), False, both),
    ):
        yield Contender(
            "diffrax",
            name,
            partial(
                _diffrax_run,
                solver=solver,
                tree=tree,
                threads=1 if "one call" in name else threads,
            ),
            partial(_diffrax_step, solver=solver),
            problems=problems,
        )


# torchsde


def _torchsde_run(problem: Problem, method: str) -> Run:
    import torch
    import torchsde

    device = "cuda" if jax.default_backend() == "gpu" else "cpu"

    class Equation(torch.nn.Module):
        sde_type = "stratonovich"
        noise_type = "additive" if problem.is_additive else "scalar"

        def f(self, t: Any, y: Any) -> Any:
            return torch.stack(problem.drift(y[:, 0], y[:, 1]), dim=1)

        def g(self, t: Any, y: Any) -> Any:
            return torch.stack(problem.noise(y[:, 0], y[:, 1]), dim=1)[:, :, None]

    def run(dt: float, steps: int, paths: int) -> float:
        kinds = {"dtype": torch.float64, "device": device}
        y0 = torch.tensor(problem.start, **kinds).repeat(paths, 1)
        path = torchsde.BrownianInterval(
            0.0, dt * steps, size=(paths, 1), dt=dt, cache_size=2, **kinds
        )
        times = torch.tensor([0.0, dt * steps], **kinds)
        with torch.no_grad():
            y = torchsde.sdeint(Equation(), y0, times, bm=path, method=method, dt=dt)[-1]
        return float((y**2).sum(dim=1).mean() / 2)

    return run


def torchsde_contenders() -> Iterator[Contender]:
    heun = partial(_dalembert_step, method="heun")
    yield Contender("torchsde", "heun", partial(_torchsde_run, method="heun"), heun)


# jitcsde


@cache
def _jitcsde_equation() -> Any:
    from jitcsde import jitcsde, y

    q, p = y(0), y(1)
    noise = [0, SIGMA]
    equation = jitcsde(VAN_DER_POL.drift(q, p), noise, verbose=False)
    equation.compile_C()
    return equation


def _jitcsde_paths(dt: float, steps: int, paths: int, seed: int) -> list[float]:
    warnings.simplefilter("ignore")
    equation = _jitcsde_equation()
    energies = []
    for path in range(paths):
        equation.set_seed(seed + path)
        equation.set_initial_value(np.asarray(VAN_DER_POL.start), 0.0)
        equation.set_integration_parameters(
            atol=1e9, rtol=0.0, first_step=dt, max_step=dt, min_step=dt / 2
        )
        z = equation.integrate(dt * steps)
        energies.append(float(z @ z) / 2)
    return energies


def _jitcsde_run(problem: Problem) -> Run:
    pool = ProcessPoolExecutor(cores(), mp_context=multiprocessing.get_context("spawn"))

    def run(dt: float, steps: int, paths: int) -> float:
        share = -(-paths // cores())
        parts = [pool.submit(_jitcsde_paths, dt, steps, share, i * share) for i in range(cores())]
        return float(np.mean([part.result() for part in parts]))

    return run


def jitcsde_contenders() -> Iterator[Contender]:
    # Its noises belong to one component each, so the Kubo oscillator is beyond it. Its scheme for
    # additive noise is Rößler's SRA1, with the steps that the mean energy needs, not adapted ones.
    yield Contender("jitcsde", "SRA1", _jitcsde_run, _sra1_step, problems=("van der Pol",))


def _sra1_step(problem: Problem) -> OneStep:
    def step(q: Any, p: Any, dt: Any, x: Any, y: Any) -> Pair:
        dW = jnp.sqrt(dt) * x
        area = dW / 2 + jnp.sqrt(dt / 12) * y
        z, g = jnp.stack([q, p]), jnp.stack(problem.noise(q, p))
        f1 = jnp.stack(problem.drift(q, p))
        inner = z + 0.75 * dt * f1 + 1.5 * g * area
        z = z + dt * (f1 + 2 * jnp.stack(problem.drift(inner[0], inner[1]))) / 3 + g * dW
        return z[0], z[1]

    return step


LIBRARIES = {
    "dalembert": dalembert_contenders,
    "diffrax": diffrax_contenders,
    "torchsde": torchsde_contenders,
    "jitcsde": jitcsde_contenders,
}
