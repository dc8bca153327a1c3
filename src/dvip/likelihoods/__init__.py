"""Likelihoods p(y | f). One file each; `registry.py` has their names."""

from dvip.likelihoods.likelihood import (
    Classification,
    Likelihood,
    Regression,
    gaussian_expectation,
    log_gaussian_expectation,
)

__all__ = [
    "Classification",
    "Likelihood",
    "Regression",
    "gaussian_expectation",
    "log_gaussian_expectation",
]
