"""The scikit-learn face of the models."""

from dvip.estimators.deep_gp import DeepGPClassifier, DeepGPRegressor
from dvip.estimators.dvip import DVIPClassifier, DVIPRegressor
from dvip.estimators.loading import load
from dvip.estimators.sip import SIPRegressor

__all__ = [
    "DVIPClassifier",
    "DVIPRegressor",
    "DeepGPClassifier",
    "DeepGPRegressor",
    "SIPRegressor",
    "load",
]
