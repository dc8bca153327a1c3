"""Implicit processes: priors over functions. One file each; add a name to `PROCESSES`."""

from dvip.processes.bnn import BayesianNeuralNetwork
from dvip.processes.convolutional import Convolutional
from dvip.processes.gp import GaussianProcess
from dvip.processes.neural_sampler import NeuralSampler
from dvip.processes.process import ImplicitProcess, PerUnit, mean_and_features
from dvip.processes.recurrent import Recurrent
from dvip.processes.warped_gp import WarpedGaussianProcess

__all__ = [
    "PROCESSES",
    "BayesianNeuralNetwork",
    "Convolutional",
    "GaussianProcess",
    "ImplicitProcess",
    "NeuralSampler",
    "PerUnit",
    "Recurrent",
    "WarpedGaussianProcess",
    "mean_and_features",
]

# The names that `prior=` and the command line understand.
PROCESSES: dict[str, type[ImplicitProcess]] = {
    "bnn": BayesianNeuralNetwork,
    "conv": Convolutional,
    "gp": GaussianProcess,
    "neural-sampler": NeuralSampler,
    "recurrent": Recurrent,
    "warped-gp": WarpedGaussianProcess,
}
