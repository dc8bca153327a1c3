"""Deep Bayesian regression and classification in function space."""

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dvip.registry import PRIORS

__version__ = version("dvip")

# Imported when first asked for: `dvip --help` need not wait for JAX.
_HOMES = {
    **PRIORS.classes,
    "ArraySource": "dvip.sources",
    "Block": "dvip.sources",
    "CheckpointError": "dvip.persistence",
    "CheckpointWarning": "dvip.training",
    "Classification": "dvip.likelihoods",
    "DVIPClassifier": "dvip.estimators",
    "DVIPRegressor": "dvip.estimators",
    "DeepGPClassifier": "dvip.estimators",
    "DeepGPRegressor": "dvip.estimators",
    "GaussianMixture": "dvip.distributions",
    "ImplicitProcess": "dvip.processes",
    "Likelihood": "dvip.likelihoods",
    "LostProcess": "dvip.training",
    "ModelFileError": "dvip.persistence",
    "Probit": "dvip.likelihoods",
    "RobustMax": "dvip.likelihoods",
    "SIPRegressor": "dvip.estimators",
    "Source": "dvip.sources",
    "TrainingDiverged": "dvip.training",
    "load": "dvip.estimators",
    "open_source": "dvip.sources",
}

if TYPE_CHECKING:
    from dvip.distributions import GaussianMixture
    from dvip.estimators import (
        DeepGPClassifier,
        DeepGPRegressor,
        DVIPClassifier,
        DVIPRegressor,
        SIPRegressor,
        load,
    )
    from dvip.likelihoods import Classification, Likelihood, Probit, RobustMax
    from dvip.persistence import CheckpointError, ModelFileError
    from dvip.processes import ImplicitProcess
    from dvip.processes.bnn import BayesianNeuralNetwork
    from dvip.processes.convolutional import Convolutional
    from dvip.processes.gp import GaussianProcess
    from dvip.processes.neural_sampler import NeuralSampler
    from dvip.processes.recurrent import Recurrent
    from dvip.processes.warped_gp import WarpedGaussianProcess
    from dvip.sources import ArraySource, Block, Source, open_source
    from dvip.training import CheckpointWarning, LostProcess, TrainingDiverged

__all__ = [
    "ArraySource",
    "BayesianNeuralNetwork",
    "Block",
    "CheckpointError",
    "CheckpointWarning",
    "Classification",
    "Convolutional",
    "DVIPClassifier",
    "DVIPRegressor",
    "DeepGPClassifier",
    "DeepGPRegressor",
    "GaussianMixture",
    "GaussianProcess",
    "ImplicitProcess",
    "Likelihood",
    "LostProcess",
    "ModelFileError",
    "NeuralSampler",
    "Probit",
    "Recurrent",
    "RobustMax",
    "SIPRegressor",
    "Source",
    "TrainingDiverged",
    "WarpedGaussianProcess",
    "load",
    "open_source",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
