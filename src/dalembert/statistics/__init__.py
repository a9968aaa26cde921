"""Statistics: what a run collects of its paths. Each is one file; `statistic.py` is the door."""

from typing import TYPE_CHECKING

from dalembert.spelling import is_not_there
from dalembert.statistics.autocorrelation import Autocorrelation, SampleAutocorrelation
from dalembert.statistics.covariance import Covariance, SampleCovariance
from dalembert.statistics.histogram import Axis, Binned, Histogram
from dalembert.statistics.mean import Mean, SampleMean
from dalembert.statistics.statistic import Data, Statistic
from dalembert.statistics.time_average import TimeAverage

__all__ = [
    "Autocorrelation",
    "Axis",
    "Binned",
    "Covariance",
    "Data",
    "Histogram",
    "Mean",
    "SampleAutocorrelation",
    "SampleCovariance",
    "SampleMean",
    "Statistic",
    "TimeAverage",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> None:
        raise is_not_there("statistics", name, __all__)
