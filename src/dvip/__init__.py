"""Deep Bayesian regression and classification in function space."""

import importlib
from typing import TYPE_CHECKING, Any

from dvip.registry import ESTIMATORS, LIKELIHOODS, PRIORS, PRIORS_OF_PARTS

# Imported when first asked for: `dvip --help` need not wait for JAX.
_HOMES = {
    **ESTIMATORS.classes,
    **PRIORS.classes,
    **PRIORS_OF_PARTS.classes,
    **LIKELIHOODS.classes,
    "ArraySource": "dvip.sources",
    "Block": "dvip.sources",
    "CheckpointError": "dvip.persistence",
    "CheckpointWarning": "dvip.training",
    "Classification": "dvip.likelihoods",
    "CountMixture": "dvip.distributions",
    "ExtrapolationWarning": "dvip.estimators.inputs",
    "GaussianMixture": "dvip.distributions",
    "ImplicitProcess": "dvip.processes",
    "Likelihood": "dvip.likelihoods",
    "LogNormalMixture": "dvip.distributions",
    "LostProcess": "dvip.training",
    "ModelFileError": "dvip.persistence",
    "PredictionSet": "dvip.estimators.predictions",
    "Predictive": "dvip.distributions",
    "Regression": "dvip.likelihoods",
    "Source": "dvip.sources",
    "TableEncoder": "dvip.tables",
    "TableError": "dvip.tables",
    "TableWarning": "dvip.tables",
    "TrainingDiverged": "dvip.training",
    "load": "dvip.estimators",
    "open_source": "dvip.sources",
}

if TYPE_CHECKING:
    __version__: str

    from dvip.distributions import CountMixture, GaussianMixture, LogNormalMixture, Predictive
    from dvip.estimators import load
    from dvip.estimators.deep_gp import DeepGPClassifier, DeepGPRegressor
    from dvip.estimators.implicit_processes import DVIPClassifier, DVIPRegressor
    from dvip.estimators.inputs import ExtrapolationWarning
    from dvip.estimators.predictions import PredictionSet
    from dvip.estimators.sparse_implicit import SIPRegressor
    from dvip.likelihoods import Classification, Likelihood, Regression
    from dvip.likelihoods.counts import NegativeBinomial, Poisson
    from dvip.likelihoods.gaussian import Gaussian, HeteroscedasticGaussian
    from dvip.likelihoods.log_normal import LogNormal
    from dvip.likelihoods.probit import Probit
    from dvip.likelihoods.robustmax import RobustMax
    from dvip.likelihoods.softmax import Softmax
    from dvip.likelihoods.student_t import HeteroscedasticStudentT, StudentT
    from dvip.persistence import CheckpointError, ModelFileError
    from dvip.processes import ImplicitProcess
    from dvip.processes.additive import Additive
    from dvip.processes.algebra import PriorProduct, PriorSum, PriorUnion
    from dvip.processes.bnn import BayesianNeuralNetwork
    from dvip.processes.constant import Constant
    from dvip.processes.convolutional import Convolutional
    from dvip.processes.curves import CurvePrior
    from dvip.processes.gp import GaussianProcess
    from dvip.processes.jax_simulator import JaxSimulatorPrior
    from dvip.processes.linear import Linear
    from dvip.processes.monotone import Monotone
    from dvip.processes.neural_sampler import NeuralSampler
    from dvip.processes.on_columns import OnColumns
    from dvip.processes.periodic import Periodic
    from dvip.processes.recurrent import Recurrent
    from dvip.processes.simulator import SimulatorPrior
    from dvip.processes.warped_gp import WarpedGaussianProcess
    from dvip.processes.warped_input import WarpedInput
    from dvip.sources import ArraySource, Block, Source, open_source
    from dvip.tables import TableEncoder, TableError, TableWarning
    from dvip.training import CheckpointWarning, LostProcess, TrainingDiverged

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # which takes as long as the rest of this module

        return version("dvip")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
