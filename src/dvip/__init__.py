"""Deep Bayesian regression and classification in function space."""

from importlib.metadata import version

__version__ = version("dvip")

from dvip.estimators import DVIPClassifier, DVIPRegressor, load
from dvip.likelihoods import Classification, Likelihood, Probit, RobustMax
from dvip.persistence import ModelFileError
from dvip.predictive import GaussianMixture
from dvip.processes import BayesianNeuralNetwork, ImplicitProcess
from dvip.training import TrainingDiverged

__all__ = [
    "BayesianNeuralNetwork",
    "Classification",
    "DVIPClassifier",
    "DVIPRegressor",
    "GaussianMixture",
    "ImplicitProcess",
    "Likelihood",
    "ModelFileError",
    "Probit",
    "RobustMax",
    "TrainingDiverged",
    "load",
]
