"""Statistics: what a run collects of its paths. Each is one file; `statistic.py` is the door."""

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
