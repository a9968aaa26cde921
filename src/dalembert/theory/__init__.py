"""The theorems about systems and methods, as functions that one can run."""

from typing import TYPE_CHECKING

from dalembert.spelling import is_not_there
from dalembert.theory.certificate import Certificate, certify
from dalembert.theory.diagnosis import Diagnosis, diagnose
from dalembert.theory.factors import factor_convergence, path_factors
from dalembert.theory.forms import (
    conformal_defect,
    conformal_factor,
    jacobian,
    linear_friction,
    own_conformal_factor,
    stormer_verlet_jacobian,
    symplectic_defect,
    symplectic_form,
    volume_factor,
)
from dalembert.theory.generating import flow_residual, generating_function, generating_order
from dalembert.theory.moments import (
    exact_moments,
    exact_stationary_covariance,
    solution_moments,
    stability_limit,
    stationary_covariance,
)
from dalembert.theory.noether import (
    balance_residual,
    linear,
    momentum_along,
    momentum_map,
    rotation,
    translation,
)
from dalembert.theory.orders import strong_order, weak_order
from dalembert.theory.principle import (
    action,
    discrete_action,
    discrete_principle_residual,
    principle_residual,
)
from dalembert.theory.quasi_symplectic_verdict import quasi_symplecticity, without_forces
from dalembert.theory.symmetry import check_symmetry
from dalembert.theory.tangents import TangentPairs, tangent_pairs
from dalembert.theory.variational import (
    discrete_hamiltonian,
    generated_step,
    generating_residual,
    mixed_step,
)
from dalembert.theory.work import WorkPrecision, work_precision

__all__ = [
    "Certificate",
    "Diagnosis",
    "TangentPairs",
    "WorkPrecision",
    "action",
    "balance_residual",
    "certify",
    "check_symmetry",
    "conformal_defect",
    "conformal_factor",
    "diagnose",
    "discrete_action",
    "discrete_hamiltonian",
    "discrete_principle_residual",
    "exact_moments",
    "exact_stationary_covariance",
    "factor_convergence",
    "flow_residual",
    "generated_step",
    "generating_function",
    "generating_order",
    "generating_residual",
    "jacobian",
    "linear",
    "linear_friction",
    "mixed_step",
    "momentum_along",
    "momentum_map",
    "own_conformal_factor",
    "path_factors",
    "principle_residual",
    "quasi_symplecticity",
    "rotation",
    "solution_moments",
    "stability_limit",
    "stationary_covariance",
    "stormer_verlet_jacobian",
    "strong_order",
    "symplectic_defect",
    "symplectic_form",
    "tangent_pairs",
    "translation",
    "volume_factor",
    "weak_order",
    "without_forces",
    "work_precision",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> None:
        raise is_not_there("theory", name, __all__)
