"""Implicit processes: priors over functions. One file each; add a name to `PROCESSES`."""

from dvip.processes.bnn import BayesianNeuralNetwork
from dvip.processes.features import mean_and_features
from dvip.processes.gp import GaussianProcess
from dvip.processes.neural_sampler import NeuralSampler
from dvip.processes.per_unit import PerUnit
from dvip.processes.process import ImplicitProcess
from dvip.processes.warped_gp import WarpedGaussianProcess

__all__ = [
    "PROCESSES",
    "BayesianNeuralNetwork",
    "GaussianProcess",
    "ImplicitProcess",
    "NeuralSampler",
    "PerUnit",
    "WarpedGaussianProcess",
    "mean_and_features",
]

# The names that `prior=` and the command line understand.
PROCESSES: dict[str, type[ImplicitProcess]] = {
    "bnn": BayesianNeuralNetwork,
    "gp": GaussianProcess,
    "neural-sampler": NeuralSampler,
    "warped-gp": WarpedGaussianProcess,
}
