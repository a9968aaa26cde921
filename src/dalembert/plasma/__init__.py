"""Plasmas: charged particles in their own field, collisions, and the linear theory of their waves.

Units are ω_p = λ_D = 1.
"""

from typing import TYPE_CHECKING

from dalembert.plasma import linear
from dalembert.plasma.canonical import (
    Canonical,
    canonical_state,
    canonical_view,
    light_energies,
)
from dalembert.plasma.colliding import Collisions
from dalembert.plasma.collisions import (
    CoulombPairs,
    Dougherty,
    Forces,
    LenardBernstein,
    Lorentz,
)
from dalembert.plasma.estimates import DeltaF
from dalembert.plasma.fields import Field, Fourier, Spline, mode_numbers
from dalembert.plasma.fits import WaveFit, fit_growth, fit_wave
from dalembert.plasma.maxwell import vlasov_maxwell
from dalembert.plasma.observables import (
    density_modes,
    entropy,
    field_energies,
    kinetic_energy,
    momentum,
    phase_space,
    thermal_energy,
)
from dalembert.plasma.poisson import vlasov_poisson
from dalembert.plasma.starts import Start
from dalembert.plasma.velocities import Maxwellian, bump_on_tail, two_streams
from dalembert.spelling import is_not_there

__all__ = [
    "Canonical",
    "Collisions",
    "CoulombPairs",
    "DeltaF",
    "Dougherty",
    "Field",
    "Forces",
    "Fourier",
    "LenardBernstein",
    "Lorentz",
    "Maxwellian",
    "Spline",
    "Start",
    "WaveFit",
    "bump_on_tail",
    "canonical_state",
    "canonical_view",
    "density_modes",
    "entropy",
    "field_energies",
    "fit_growth",
    "fit_wave",
    "kinetic_energy",
    "light_energies",
    "linear",
    "mode_numbers",
    "momentum",
    "phase_space",
    "thermal_energy",
    "two_streams",
    "vlasov_maxwell",
    "vlasov_poisson",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> None:
        raise is_not_there("plasma", name, __all__)
