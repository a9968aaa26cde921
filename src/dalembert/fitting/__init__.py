"""From observed paths to parameters with standard errors."""

from dalembert.fitting.best import Fit, fit
from dalembert.fitting.moments import MomentMatch, lagged_moments, match_moments
from dalembert.fitting.paths import PathLikelihood, path_likelihood

__all__ = [
    "Fit",
    "MomentMatch",
    "PathLikelihood",
    "fit",
    "lagged_moments",
    "match_moments",
    "path_likelihood",
]
