"""Likelihoods p(y | f). One file each."""

from dvip.likelihoods.gaussian import Gaussian
from dvip.likelihoods.likelihood import (
    Classification,
    Likelihood,
    gaussian_expectation,
    log_gaussian_expectation,
)
from dvip.likelihoods.probit import Probit
from dvip.likelihoods.robustmax import RobustMax

__all__ = [
    "CLASSIFICATION_LIKELIHOODS",
    "Classification",
    "Gaussian",
    "Likelihood",
    "Probit",
    "RobustMax",
    "gaussian_expectation",
    "log_gaussian_expectation",
]

# The names that `likelihood=` of a classifier understands.
CLASSIFICATION_LIKELIHOODS: dict[str, type[Classification]] = {
    "probit": Probit,
    "robustmax": RobustMax,
}
