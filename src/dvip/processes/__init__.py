"""Implicit processes: priors over functions. One file each; add a name to `PROCESSES`."""

from dvip.processes.bnn import BayesianNeuralNetwork
from dvip.processes.features import mean_and_features
from dvip.processes.per_unit import PerUnit
from dvip.processes.process import ImplicitProcess

__all__ = ["PROCESSES", "BayesianNeuralNetwork", "ImplicitProcess", "PerUnit", "mean_and_features"]

# The names that `prior=` and the command line understand.
PROCESSES: dict[str, type[ImplicitProcess]] = {"bnn": BayesianNeuralNetwork}
