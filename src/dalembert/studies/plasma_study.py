"""Plasmas in their own field, with collisions: are waves, rates and invariants those of theory?"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from dalembert.plasma import (
    CoulombPairs,
    Dougherty,
    Fourier,
    LenardBernstein,
    Maxwellian,
    Start,
    canonical_state,
    density_modes,
    entropy,
    kinetic_energy,
    light_energies,
    momentum,
    phase_space,
    vlasov_maxwell,
    vlasov_poisson,
)
from dalembert.studies.plasma_claims import (
    ALPHA,
    BEAM,
    BEAM_SPEED,
    COLLIDING,
    FREE_ALPHA,
    INSTABILITIES,
    LANDAU,
    OPPOSITE,
    PAIRS_NU,
    SEED_ALPHA,
    TEMPERATURES,
    WEIBEL,
    claims_of_plasma,
)
from dalembert.studies.plasma_figures import figures_of_plasma
from dalembert.studies.study import Case, Part, Study
from dalembert.system import System

SIZES = {
    "quick": dict(wave=2**17, noisy=2**16, streams=2**15, pairs=2**14, light=2**12),
    "paper": dict(wave=2**20, noisy=2**20, streams=2**18, pairs=2**18, light=2**14),
}
LONG = {"quick": 400.0, "paper": 10_000.0}
"""Of the runs that watch invariants: 4000 and 100,000 steps."""

OPERATORS = {
    "lenard_bernstein": LenardBernstein(),
    "lenard_bernstein_momentum": LenardBernstein(cells=32),
    "dougherty": Dougherty(cells=32),
}
VERLET = (Case("stormer_verlet", 0.1),)
SAVES = 0.2
WAVE = {"wave": density_modes(1)}


def plasma(size: str = "quick") -> Study:
    """Plasmas in their own field: waves, instabilities, collisions (not in the paper)."""
    N = SIZES[size]
    parts = [
        _free_wave(N["wave"], 0.5),
        *(
            part
            for k, nu in LANDAU[size]
            for name in OPERATORS
            for part in _opposite_waves(name, N["noisy"], k, nu)
        ),
        _instability("two streams", N["streams"]),
        # Few enough to let the wave grow and saturate, and often enough to make an end of it then.
        _instability("two streams", N["streams"], 0.002, 100.0),
        _instability("bump on tail", N["streams"]),
        _instability("bump on tail", N["streams"], 0.002, 100.0),
        _anisotropy("maxwell", N["pairs"]),
        _anisotropy("coulomb", N["pairs"]),
        _beam(2 * N["pairs"]),
        _weibel(N["light"]),
        _long(LONG[size]),
    ]
    return Study(
        "plasma",
        "Plasmas in their own field: waves, instabilities, collisions",
        "Electrons in a periodic box with their own electric field, and in one part with waves of "
        "light, in units of λ_D and 1/ω_p. Collisions are flows before and after every step of a "
        "method: Lenard and Bernstein's operator without and with momentum conserved, Dougherty's, "
        "and random pairs for Landau's. Everything is compared with linear theory, or with rates "
        "that are known.",
        vlasov_poisson(16),
        tuple(parts),
        figures_of_plasma,
        partial(claims_of_plasma, size == "paper"),
        notes=(
            "This study is not in the paper, which treats collisions in given fields.",
            "Where a wave decays with collisions, the field is half the difference of two plasmas "
            "with opposite waves and the same noise: that cancels but for what is of the order of "
            "the wave.",
            "Local means are taken in 32 cells of the box, which lowers those of a wave by "
            "(kΔx)²/12.",
        ),
    )


def _part(name: str, system: System, initial: Any, t_end: float, **more: Any) -> Part:
    options: dict[str, Any] = {"cases": VERLET, "paths": 1, "save_times": SAVES, **more}
    return Part(name, initial=initial, t_end=t_end, system=system, **options)


def _free_wave(N: int, k: float) -> Part:
    """A density wave that decays without collisions."""
    length = 2 * np.pi / k
    start = Start(N, length, amplitude=FREE_ALPHA).quiet()
    return _part("Landau", vlasov_poisson(N, length), start, 20.0, observe=WAVE)


def _opposite_waves(operator: str, N: int, k: float, nu: float) -> list[Part]:
    """A density wave that decays with collisions, and the opposite one with the same noise.

    The seed is one for all runs, so that also the random starts are those of the same numbers.
    """
    name, length = f"{operator}, k = {k:g}, ν = {nu:g}", 2 * np.pi / k
    system = vlasov_poisson(N, length, nu=nu, collisions=OPERATORS[operator])
    return [
        _part(part, system, Start(N, length, amplitude=alpha).random, 10.0, observe=WAVE)
        for part, alpha in ((name, ALPHA), (name + OPPOSITE, -ALPHA))
    ]


def _instability(name: str, N: int, nu: float = 0.0, t_end: float = 60.0) -> Part:
    velocities, k, reach, modes = INSTABILITIES[name]
    length, field = 2 * np.pi / k, Fourier(modes)
    options = {"nu": nu, "collisions": Dougherty(cells=16)} if nu else {}
    return _part(
        name + COLLIDING if nu else name,
        vlasov_poisson(N, length, field, **options),
        Start(N, length, amplitude=SEED_ALPHA, velocities=velocities).quiet(),
        t_end,
        save_times=0.5,
        observe={
            "wave": density_modes(1),
            "phase space": phase_space(64, 64, reach),
            "entropy": entropy(32, 64, reach),
            "momentum": momentum,
            "energy": _energy(N, length, field),
        },
    )


def _energy(N: int, length: float, field: Fourier) -> Any:
    """H per particle."""
    H = vlasov_poisson(N, length, field).H
    return lambda q, p, params: H(q, p, params) / N


def _even(N: int, temperatures: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Evenly spread particles at rest in the mean, with exactly these temperatures."""
    q, p = Start(N, 4 * np.pi, components=3).quiet()
    p = (p - p.mean(axis=0)) / p.std(axis=0)
    return q, p * np.sqrt(temperatures)


def _anisotropy(kernel: Any, N: int) -> Part:
    def difference(q: Any, p: Any, params: Any) -> Any:
        return jnp.mean(p[:, 0] ** 2 - (p[:, 1] ** 2 + p[:, 2] ** 2) / 2)

    return _part(
        f"anisotropy, {kernel}",
        vlasov_poisson(
            N, 4 * np.pi, nu=PAIRS_NU[kernel], velocities=3, collisions=CoulombPairs(kernel)
        ),
        _even(N, TEMPERATURES),
        2.0,
        save_times=0.1,
        observe={"difference": difference, "momentum": momentum, "kinetic": kinetic_energy},
    )


def _beam(N: int) -> Part:
    """Every so many particles are of the beam; the others are a whole Maxwellian by themselves."""
    of_beam = np.arange(N) % round(1 / BEAM) == 0
    q, p = np.zeros((N, 3)), np.zeros((N, 3))
    q[~of_beam], p[~of_beam] = _even(N - np.sum(of_beam), (1.0, 1.0, 1.0))
    q[of_beam, 0] = np.linspace(0, 4 * np.pi, np.sum(of_beam), endpoint=False)
    p[of_beam, 0] = BEAM_SPEED

    def velocity(q: Any, p: Any, params: Any) -> Any:
        return jnp.mean(p.reshape(-1, round(1 / BEAM), 3)[:, 0, 0])

    return _part(
        "beam",
        vlasov_poisson(
            N, 4 * np.pi, nu=PAIRS_NU["coulomb"], velocities=3, collisions=CoulombPairs()
        ),
        (q, p),
        2.0,
        save_times=0.1,
        observe={"velocity": velocity},
    )


def _weibel(N: int) -> Part:
    """A small correlation of velocities across with positions, and the wave that it holds up."""
    k, u_x, u_y, c = WEIBEL
    length = 2 * np.pi / k
    start = Start(
        N // 2, length, components=2, velocities=Maxwellian(temperature=u_x**2), transverse=u_y**2
    )
    q, p = start.quiet()
    # Every particle has a twin with the opposite velocity across: no current besides.
    q, p = np.concatenate([q, q]), np.concatenate([p, p * [1, -1]])
    q[:, 0] -= 1e-3 * np.sin(k * q[:, 0]) * p[:, 1] / u_y
    system = vlasov_maxwell(N, length, modes=1, c=c, field=None)
    current = -np.mean(p[:, 1] * np.sqrt(2) * np.cos(k * q[:, 0]))
    state = canonical_state((q, p), system, [[current / (1 + (k * c) ** 2)], [0.0]])
    return _part(
        "Weibel",
        system,
        state,
        100.0,
        cases=(Case("midpoint", 0.25),),
        save_times=0.5,
        observe={"light": light_energies(N), **system.invariants},
    )


def _long(t_end: float) -> Part:
    """Few particles for long, with collisions that conserve momentum and energy."""
    N, length = 256, 4 * np.pi
    system = vlasov_poisson(N, length, Fourier(1), nu=0.1, collisions=Dougherty(cells=4))
    cases = tuple(Case(method, 0.1) for method in ("stormer_verlet", "midpoint", "heun"))
    return _part(
        "long runs",
        system,
        Start(N, length, amplitude=0.5).quiet(),
        t_end,
        cases=cases,
        save_times=t_end / 200,
        observe={"energy": _energy(N, length, Fourier(1)), "momentum": momentum},
    )
