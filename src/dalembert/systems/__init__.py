"""Ready-made systems, one file each; `SYSTEMS` maps their names to functions that build them.

Every function can be called without arguments; the defaults are the paper's where it has them.
Exact results stand beside the system they belong to:

    from dalembert.systems.kubo_system import kubo_energy, kubo_path
    from dalembert.systems.lenard_bernstein_system import ergodic_energy, gibbs_density
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dalembert.spelling import ByName, is_not_there
from dalembert.system import System
from dalembert.systems.brownian_sphere_system import brownian_sphere
from dalembert.systems.double_pendulum_system import double_pendulum
from dalembert.systems.fput_system import fput
from dalembert.systems.heat_chain_system import heat_chain
from dalembert.systems.jointed_chain_system import jointed_chain
from dalembert.systems.kubo_system import damped_kubo
from dalembert.systems.langevin_system import langevin
from dalembert.systems.lenard_bernstein_system import lenard_bernstein
from dalembert.systems.lennard_jones_system import lennard_jones
from dalembert.systems.lorentz_system import lorentz
from dalembert.systems.pendulum_system import pendulum
from dalembert.systems.phi4_system import phi4
from dalembert.systems.planar_system import planar
from dalembert.systems.polymer_system import polymer
from dalembert.systems.ring_system import ring
from dalembert.systems.spherical_pendulum_system import spherical_pendulum
from dalembert.systems.stochastic_wave_system import stochastic_wave
from dalembert.systems.triangles_system import triangles
from dalembert.systems.two_noise_system import two_noise
from dalembert.systems.van_der_pol_system import van_der_pol

__all__ = [
    "CONSTRAINED",
    "FEW",
    "MANY",
    "SYSTEMS",
    "brownian_sphere",
    "damped_kubo",
    "double_pendulum",
    "fput",
    "heat_chain",
    "jointed_chain",
    "langevin",
    "lenard_bernstein",
    "lennard_jones",
    "lorentz",
    "pendulum",
    "phi4",
    "planar",
    "polymer",
    "ring",
    "spherical_pendulum",
    "stochastic_wave",
    "triangles",
    "two_noise",
    "van_der_pol",
]


def _by_name(*systems: Callable[..., System]) -> dict[str, Callable[..., System]]:
    return {make.__name__: make for make in systems}


FEW = _by_name(
    *(damped_kubo, van_der_pol, lenard_bernstein, lorentz, langevin, pendulum, two_noise, planar)
)
"""Ready-made systems of few degrees of freedom by name."""

MANY = _by_name(heat_chain, fput, phi4, lennard_jones, polymer, stochastic_wave)
"""Ready-made systems of many degrees of freedom by name; each has one function for all noises."""

CONSTRAINED = _by_name(
    *(spherical_pendulum, brownian_sphere, double_pendulum, ring, jointed_chain, triangles)
)
"""Ready-made systems with constraints by name; only methods for constraints take them."""

SYSTEMS = ByName("system", FEW | MANY | CONSTRAINED)
"""All ready-made systems by name."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> None:
        raise is_not_there("systems", name, SYSTEMS)
