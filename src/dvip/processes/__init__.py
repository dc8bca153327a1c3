"""Implicit processes: priors over functions. One file each; add a name to `PROCESSES`."""

from dvip.processes.bnn import BayesianNeuralNetwork
from dvip.processes.convolutional import Convolutional
from dvip.processes.per_unit import PerUnit
from dvip.processes.process import ImplicitProcess
from dvip.processes.recurrent import Recurrent

__all__ = [
    "PROCESSES",
    "BayesianNeuralNetwork",
    "Convolutional",
    "ImplicitProcess",
    "PerUnit",
    "Recurrent",
]

# The names that `prior=` and the command line understand.
PROCESSES: dict[str, type[ImplicitProcess]] = {
    "bnn": BayesianNeuralNetwork,
    "conv": Convolutional,
    "recurrent": Recurrent,
}
