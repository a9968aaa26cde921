"""Structure-preserving simulation of noisy, damped mechanical systems.

import dalembert as da

run = da.simulate(da.systems.damped_kubo(), da.midpoint(), ([2.0], [0.0]),
                  dt=0.5, t_end=100.0, paths=1000)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dalembert import statistics, systems
from dalembert.caches import clear_caches
from dalembert.ensemble.checkpoint import Checkpoint
from dalembert.ensemble.explain import explain
from dalembert.ensemble.initial import inverse_cdf_sampler, rejection_sampler
from dalembert.ensemble.job import Interrupted
from dalembert.ensemble.processes import connect
from dalembert.ensemble.run import Run, load
from dalembert.ensemble.simulate import simulate
from dalembert.ensemble.traced import TracedRun
from dalembert.methods import (
    BEYOND,
    METHODS,
    AdditiveTableau,
    BracketTableau,
    ExplicitTableau,
    ExplicitWeakTableau,
    LangevinSplitting,
    MeanSquareTableau,
    NinomiyaVictoirTableau,
    WeakTableau,
    aboba,
    additive_dirk,
    additive_gauss,
    additive_midpoint,
    baoab,
    bracket_gauss,
    bracket_midpoint,
    dirk,
    e1,
    heun,
    midpoint,
    ninomiya_victoir,
    obabo,
    quasi_symplectic,
    r2,
    rs1,
    rs2,
    srkw1,
    srkw2,
    stormer_verlet,
)
from dalembert.noise import (
    Gaussian,
    Increments,
    Recorded,
    ThreePoint,
    Zero,
    brownian_path,
    coarsen,
    enumerate_three_point,
)
from dalembert.statistics import (
    Autocorrelation,
    Axis,
    Binned,
    Covariance,
    Histogram,
    Mean,
    SampleAutocorrelation,
    SampleCovariance,
    SampleMean,
    Statistic,
    TimeAverage,
)
from dalembert.stepping.step import StepInfo, step
from dalembert.system import System
from dalembert.systems import SYSTEMS

if TYPE_CHECKING:
    from dalembert import theory
    from dalembert.theory import (
        Certificate,
        Diagnosis,
        certify,
        diagnose,
        discrete_hamiltonian,
        exact_moments,
        strong_order,
        weak_order,
    )

__version__ = "0.1.0"

__all__ = [
    "BEYOND",
    "METHODS",
    "SYSTEMS",
    "AdditiveTableau",
    "Autocorrelation",
    "Axis",
    "Binned",
    "BracketTableau",
    "Certificate",
    "Checkpoint",
    "Covariance",
    "Diagnosis",
    "ExplicitTableau",
    "ExplicitWeakTableau",
    "Gaussian",
    "Histogram",
    "Increments",
    "Interrupted",
    "LangevinSplitting",
    "Mean",
    "MeanSquareTableau",
    "NinomiyaVictoirTableau",
    "Recorded",
    "Run",
    "SampleAutocorrelation",
    "SampleCovariance",
    "SampleMean",
    "Statistic",
    "StepInfo",
    "System",
    "ThreePoint",
    "TimeAverage",
    "TracedRun",
    "WeakTableau",
    "Zero",
    "__version__",
    "aboba",
    "additive_dirk",
    "additive_gauss",
    "additive_midpoint",
    "baoab",
    "bracket_gauss",
    "bracket_midpoint",
    "brownian_path",
    "certify",
    "clear_caches",
    "coarsen",
    "connect",
    "diagnose",
    "dirk",
    "discrete_hamiltonian",
    "e1",
    "enumerate_three_point",
    "exact_moments",
    "explain",
    "heun",
    "inverse_cdf_sampler",
    "load",
    "midpoint",
    "ninomiya_victoir",
    "obabo",
    "quasi_symplectic",
    "r2",
    "rejection_sampler",
    "rs1",
    "rs2",
    "simulate",
    "srkw1",
    "srkw2",
    "statistics",
    "step",
    "stormer_verlet",
    "strong_order",
    "systems",
    "theory",
    "weak_order",
]


def __getattr__(name: str) -> Any:
    """The theory is loaded when it is first used: a simulation does not need it."""
    if name not in __all__:
        raise AttributeError(f"module 'dalembert' has no attribute {name!r}")
    theory = import_module("dalembert.theory")
    return theory if name == "theory" else getattr(theory, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
