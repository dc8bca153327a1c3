"""What a regression user gets: the predictive distribution of y for each row, a mixture."""

from dvip.distributions.count_mixture import CountMixture
from dvip.distributions.gaussian_mixture import GaussianMixture
from dvip.distributions.log_normal_mixture import LogNormalMixture
from dvip.distributions.predictive import Predictive, VarianceParts

__all__ = [
    "CountMixture",
    "GaussianMixture",
    "LogNormalMixture",
    "Predictive",
    "VarianceParts",
]
