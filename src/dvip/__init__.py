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

    # (`as` says that a name is for others, to type checkers that are strict.)
    from dvip.distributions import CountMixture as CountMixture
    from dvip.distributions import GaussianMixture as GaussianMixture
    from dvip.distributions import LogNormalMixture as LogNormalMixture
    from dvip.distributions import Predictive as Predictive
    from dvip.estimators import load as load
    from dvip.estimators.deep_gp import DeepGPClassifier as DeepGPClassifier
    from dvip.estimators.deep_gp import DeepGPRegressor as DeepGPRegressor
    from dvip.estimators.implicit_processes import DVIPClassifier as DVIPClassifier
    from dvip.estimators.implicit_processes import DVIPRegressor as DVIPRegressor
    from dvip.estimators.inputs import ExtrapolationWarning as ExtrapolationWarning
    from dvip.estimators.predictions import PredictionSet as PredictionSet
    from dvip.estimators.sparse_implicit import SIPRegressor as SIPRegressor
    from dvip.likelihoods import Classification as Classification
    from dvip.likelihoods import Likelihood as Likelihood
    from dvip.likelihoods import Regression as Regression
    from dvip.likelihoods.counts import NegativeBinomial as NegativeBinomial
    from dvip.likelihoods.counts import Poisson as Poisson
    from dvip.likelihoods.gaussian import Gaussian as Gaussian
    from dvip.likelihoods.gaussian import HeteroscedasticGaussian as HeteroscedasticGaussian
    from dvip.likelihoods.log_normal import LogNormal as LogNormal
    from dvip.likelihoods.probit import Probit as Probit
    from dvip.likelihoods.robustmax import RobustMax as RobustMax
    from dvip.likelihoods.softmax import Softmax as Softmax
    from dvip.likelihoods.student_t import HeteroscedasticStudentT as HeteroscedasticStudentT
    from dvip.likelihoods.student_t import StudentT as StudentT
    from dvip.neighbours.deep_ensembles import DeepEnsembleClassifier as DeepEnsembleClassifier
    from dvip.neighbours.deep_ensembles import DeepEnsembleRegressor as DeepEnsembleRegressor
    from dvip.neighbours.deep_kernel import DeepKernelClassifier as DeepKernelClassifier
    from dvip.neighbours.deep_kernel import DeepKernelRegressor as DeepKernelRegressor
    from dvip.neighbours.dropout import DropoutClassifier as DropoutClassifier
    from dvip.neighbours.dropout import DropoutRegressor as DropoutRegressor
    from dvip.neighbours.fbnn import FBNNClassifier as FBNNClassifier
    from dvip.neighbours.fbnn import FBNNRegressor as FBNNRegressor
    from dvip.neighbours.fvi import FVIRegressor as FVIRegressor
    from dvip.neighbours.linearised import LinearisedClassifier as LinearisedClassifier
    from dvip.neighbours.linearised import LinearisedRegressor as LinearisedRegressor
    from dvip.neighbours.mean_field import MeanFieldClassifier as MeanFieldClassifier
    from dvip.neighbours.mean_field import MeanFieldRegressor as MeanFieldRegressor
    from dvip.neighbours.repulsive import RepulsiveEnsembleClassifier as RepulsiveEnsembleClassifier
    from dvip.neighbours.repulsive import RepulsiveEnsembleRegressor as RepulsiveEnsembleRegressor
    from dvip.persistence import CheckpointError as CheckpointError
    from dvip.persistence import ModelFileError as ModelFileError
    from dvip.processes import ImplicitProcess as ImplicitProcess
    from dvip.processes.additive import Additive as Additive
    from dvip.processes.algebra import PriorProduct as PriorProduct
    from dvip.processes.algebra import PriorSum as PriorSum
    from dvip.processes.algebra import PriorUnion as PriorUnion
    from dvip.processes.bnn import BayesianNeuralNetwork as BayesianNeuralNetwork
    from dvip.processes.constant import Constant as Constant
    from dvip.processes.convolutional import Convolutional as Convolutional
    from dvip.processes.curves import CurvePrior as CurvePrior
    from dvip.processes.gp import GaussianProcess as GaussianProcess
    from dvip.processes.jax_simulator import JaxSimulatorPrior as JaxSimulatorPrior
    from dvip.processes.linear import Linear as Linear
    from dvip.processes.monotone import Monotone as Monotone
    from dvip.processes.neural_sampler import NeuralSampler as NeuralSampler
    from dvip.processes.on_columns import OnColumns as OnColumns
    from dvip.processes.periodic import Periodic as Periodic
    from dvip.processes.recurrent import Recurrent as Recurrent
    from dvip.processes.simulator import SimulatorPrior as SimulatorPrior
    from dvip.processes.warped_gp import WarpedGaussianProcess as WarpedGaussianProcess
    from dvip.processes.warped_input import WarpedInput as WarpedInput
    from dvip.sources import ArraySource as ArraySource
    from dvip.sources import Block as Block
    from dvip.sources import Source as Source
    from dvip.sources import open_source as open_source
    from dvip.tables import TableEncoder as TableEncoder
    from dvip.tables import TableError as TableError
    from dvip.tables import TableWarning as TableWarning
    from dvip.training import CheckpointWarning as CheckpointWarning
    from dvip.training import LostProcess as LostProcess
    from dvip.training import TrainingDiverged as TrainingDiverged

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
