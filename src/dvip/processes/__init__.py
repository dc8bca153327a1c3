"""Implicit processes: priors over functions. One file each; add a name to `PROCESSES`."""

from dvip.processes.bnn import BayesianNeuralNetwork
from dvip.processes.gp import GaussianProcess
from dvip.processes.per_unit import PerUnit
from dvip.processes.process import ImplicitProcess

__all__ = ["PROCESSES", "BayesianNeuralNetwork", "GaussianProcess", "ImplicitProcess", "PerUnit"]

# The names that `prior=` and the command line understand.
PROCESSES: dict[str, type[ImplicitProcess]] = {
    "bnn": BayesianNeuralNetwork,
    "gp": GaussianProcess,
}
