"""Ready-made systems, one file each; `SYSTEMS` maps their names to functions that build them.

Every function can be called without arguments; the defaults are the paper's where it has them.
Exact results stand beside the system they belong to:

    from dalembert.systems.kubo import kubo_energy, kubo_path
    from dalembert.systems.lenard_bernstein import bump_on_tail, ergodic_energy, gibbs_density
"""

from collections.abc import Callable

from dalembert.system import System
from dalembert.systems.kubo import damped_kubo
from dalembert.systems.langevin import langevin
from dalembert.systems.lenard_bernstein import lenard_bernstein
from dalembert.systems.lorentz import lorentz
from dalembert.systems.pendulum import pendulum
from dalembert.systems.planar import planar
from dalembert.systems.two_noise import two_noise
from dalembert.systems.van_der_pol import van_der_pol

__all__ = [
    "SYSTEMS",
    "damped_kubo",
    "langevin",
    "lenard_bernstein",
    "lorentz",
    "pendulum",
    "planar",
    "two_noise",
    "van_der_pol",
]

SYSTEMS: dict[str, Callable[..., System]] = {
    "damped_kubo": damped_kubo,
    "van_der_pol": van_der_pol,
    "lenard_bernstein": lenard_bernstein,
    "lorentz": lorentz,
    "langevin": langevin,
    "pendulum": pendulum,
    "two_noise": two_noise,
    "planar": planar,
}
"""All ready-made systems by name."""
