"""The scikit-learn face of the models."""

from dvip.estimators.deep_gp import DeepGPClassifier, DeepGPRegressor
from dvip.estimators.implicit_processes import DVIPClassifier, DVIPRegressor, SIPRegressor
from dvip.estimators.serialisation import load

__all__ = [
    "DVIPClassifier",
    "DVIPRegressor",
    "DeepGPClassifier",
    "DeepGPRegressor",
    "SIPRegressor",
    "load",
]
