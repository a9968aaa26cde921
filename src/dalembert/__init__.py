"""Structure-preserving simulation of noisy, damped mechanical systems.

import dalembert as da

run = da.simulate(da.systems.damped_kubo(), da.midpoint(), ([2.0], [0.0]),
                  dt=0.5, t_end=100.0, paths=1000)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dalembert import constraints, methods, observables, statistics, systems
from dalembert.caches import clear_caches
from dalembert.ensemble.checkpoint import Checkpoint
from dalembert.ensemble.explain import explain
from dalembert.ensemble.initial import inverse_cdf_sampler, rejection_sampler
from dalembert.ensemble.job import Interrupted
from dalembert.ensemble.processes import connect
from dalembert.ensemble.run import Run, load
from dalembert.ensemble.simulate import simulate
from dalembert.ensemble.traced import TracedRun
from dalembert.flow import Flow
from dalembert.methods import *  # noqa: F403
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
from dalembert.spelling import instead_of
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
from dalembert.stepping.event import Event
from dalembert.stepping.project import project
from dalembert.stepping.step import StepInfo, step
from dalembert.system import System
from dalembert.systems import SYSTEMS

if TYPE_CHECKING:
    from dalembert import answers, fitting, plasma, studies, theory
    from dalembert.answers import Expectation, ToleranceError, expect
    from dalembert.theory import (
        Certificate,
        Diagnosis,
        certify,
        diagnose,
        discrete_hamiltonian,
        exact_moments,
        strong_order,
        weak_order,
        work_precision,
    )

__version__ = "0.1.0"

__all__ = [
    "SYSTEMS",
    "Autocorrelation",
    "Axis",
    "Binned",
    "Certificate",
    "Checkpoint",
    "Covariance",
    "Diagnosis",
    "Event",
    "Expectation",
    "Flow",
    "Gaussian",
    "Histogram",
    "Increments",
    "Interrupted",
    "Mean",
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
    "ToleranceError",
    "TracedRun",
    "Zero",
    "__version__",
    "answers",
    "brownian_path",
    "certify",
    "clear_caches",
    "coarsen",
    "connect",
    "constraints",
    "diagnose",
    "discrete_hamiltonian",
    "enumerate_three_point",
    "exact_moments",
    "expect",
    "explain",
    "fitting",
    "inverse_cdf_sampler",
    "load",
    "methods",
    "observables",
    "plasma",
    "project",
    "rejection_sampler",
    "simulate",
    "statistics",
    "step",
    "strong_order",
    "studies",
    "systems",
    "theory",
    "weak_order",
    "work_precision",
]
__all__ += methods.__all__


def __getattr__(name: str) -> Any:
    """Rooms that a simulation does not need are loaded when they are first used."""
    if name not in __all__:
        raise AttributeError(f"dalembert has no {name!r}{_instead_of(name)}")
    if name in ("answers", "fitting", "plasma", "studies"):
        return import_module(f"dalembert.{name}")
    if name in ("Expectation", "ToleranceError", "expect"):
        return getattr(import_module("dalembert.answers"), name)
    theory = import_module("dalembert.theory")
    return theory if name == "theory" else getattr(theory, name)


def _instead_of(name: str) -> str:
    if name in SYSTEMS:
        return f": write da.systems.{name}()."
    return instead_of(name, __all__, "da.")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
