"""What goes by a name: estimators, priors, likelihoods. A new one is its own file and a line here.

Classes are imported when they are asked for. This module imports nothing of `dvip`, so that help
texts and error messages can list what there is at no cost.
"""

import importlib
from collections.abc import Iterator, Mapping

__all__ = ["ESTIMATORS", "LIKELIHOODS", "MODELS", "PRIORS", "PRIORS_OF_PARTS", "Registry"]


class Registry(Mapping[str, type]):
    """Classes by name; each is given as "module:Class"."""

    def __init__(self, noun: str, homes: Mapping[str, str]):
        self.noun = noun
        self._homes = dict(homes)

    def __getitem__(self, name: str) -> type:
        module, _, cls = self._homes[name].partition(":")
        return getattr(importlib.import_module(module), cls)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    @property
    def classes(self) -> dict[str, str]:
        """The module of each class, by the name of the class; nothing is imported."""
        pairs = (home.split(":") for home in self._homes.values())
        return {cls: module for module, cls in pairs}

    def listed(self) -> str:
        """All names, for a text."""
        return ", ".join(self)

    def unknown(self, name: object) -> str:
        """What to tell somebody who asked for a name that is not there."""
        return f"{self.noun}={name!r} is not known: use one of {self.listed()}"


# What `prior=` and `--prior` understand.
PRIORS = Registry(
    "prior",
    {
        "additive": "dvip.processes.additive:Additive",
        "bnn": "dvip.processes.bnn:BayesianNeuralNetwork",
        "constant": "dvip.processes.constant:Constant",
        "conv": "dvip.processes.convolutional:Convolutional",
        "gp": "dvip.processes.gp:GaussianProcess",
        "linear": "dvip.processes.linear:Linear",
        "monotone": "dvip.processes.monotone:Monotone",
        "neural-sampler": "dvip.processes.neural_sampler:NeuralSampler",
        "periodic": "dvip.processes.periodic:Periodic",
        "recurrent": "dvip.processes.recurrent:Recurrent",
        "warped-gp": "dvip.processes.warped_gp:WarpedGaussianProcess",
    },
)

# Priors that are made of others, of data or of a function, and so have no defaults.
PRIORS_OF_PARTS = Registry(
    "prior",
    {
        "sum": "dvip.processes.algebra:PriorSum",
        "product": "dvip.processes.algebra:PriorProduct",
        "union": "dvip.processes.algebra:PriorUnion",
        "on": "dvip.processes.on_columns:OnColumns",
        "warped": "dvip.processes.warped_input:WarpedInput",
        "curves": "dvip.processes.curves:CurvePrior",
        "simulator": "dvip.processes.simulator:SimulatorPrior",
        "jax-simulator": "dvip.processes.jax_simulator:JaxSimulatorPrior",
    },
)

# What `likelihood=` and `--likelihood` understand, besides "auto".
LIKELIHOODS = Registry(
    "likelihood",
    {
        "gaussian": "dvip.likelihoods.gaussian:Gaussian",
        "heteroscedastic": "dvip.likelihoods.gaussian:HeteroscedasticGaussian",
        "student-t": "dvip.likelihoods.student_t:StudentT",
        "heteroscedastic-student-t": "dvip.likelihoods.student_t:HeteroscedasticStudentT",
        "log-normal": "dvip.likelihoods.log_normal:LogNormal",
        "poisson": "dvip.likelihoods.counts:Poisson",
        "negative-binomial": "dvip.likelihoods.counts:NegativeBinomial",
        "probit": "dvip.likelihoods.probit:Probit",
        "robustmax": "dvip.likelihoods.robustmax:RobustMax",
        "softmax": "dvip.likelihoods.softmax:Softmax",
    },
)

# The names of a saved model's class.
ESTIMATORS = Registry(
    "estimator",
    {
        "DVIPRegressor": "dvip.estimators.implicit_processes:DVIPRegressor",
        "DVIPClassifier": "dvip.estimators.implicit_processes:DVIPClassifier",
        "DeepGPRegressor": "dvip.estimators.deep_gp:DeepGPRegressor",
        "DeepGPClassifier": "dvip.estimators.deep_gp:DeepGPClassifier",
        "SIPRegressor": "dvip.estimators.sparse_implicit:SIPRegressor",
        "DeepKernelRegressor": "dvip.neighbours.deep_kernel:DeepKernelRegressor",
        "DeepKernelClassifier": "dvip.neighbours.deep_kernel:DeepKernelClassifier",
        "FBNNRegressor": "dvip.neighbours.fbnn:FBNNRegressor",
        "FBNNClassifier": "dvip.neighbours.fbnn:FBNNClassifier",
        "FVIRegressor": "dvip.neighbours.fvi:FVIRegressor",
        "MeanFieldRegressor": "dvip.neighbours.mean_field:MeanFieldRegressor",
        "MeanFieldClassifier": "dvip.neighbours.mean_field:MeanFieldClassifier",
        "DropoutRegressor": "dvip.neighbours.dropout:DropoutRegressor",
        "DropoutClassifier": "dvip.neighbours.dropout:DropoutClassifier",
        "DeepEnsembleRegressor": "dvip.neighbours.deep_ensembles:DeepEnsembleRegressor",
        "DeepEnsembleClassifier": "dvip.neighbours.deep_ensembles:DeepEnsembleClassifier",
        "RepulsiveEnsembleRegressor": "dvip.neighbours.repulsive:RepulsiveEnsembleRegressor",
        "RepulsiveEnsembleClassifier": "dvip.neighbours.repulsive:RepulsiveEnsembleClassifier",
        "LinearisedRegressor": "dvip.neighbours.linearised:LinearisedRegressor",
        "LinearisedClassifier": "dvip.neighbours.linearised:LinearisedClassifier",
    },
)

# What `--model` understands: the estimator of each task.
MODELS: dict[str, dict[str, str]] = {
    "dvip": {"regression": "DVIPRegressor", "classification": "DVIPClassifier"},
    "deep-gp": {"regression": "DeepGPRegressor", "classification": "DeepGPClassifier"},
    "sip": {"regression": "SIPRegressor"},
    "deep-kernel": {
        "regression": "DeepKernelRegressor",
        "classification": "DeepKernelClassifier",
    },
    "fbnn": {"regression": "FBNNRegressor", "classification": "FBNNClassifier"},
    "fvi": {"regression": "FVIRegressor"},
    "mean-field": {"regression": "MeanFieldRegressor", "classification": "MeanFieldClassifier"},
    "dropout": {"regression": "DropoutRegressor", "classification": "DropoutClassifier"},
    "deep-ensemble": {
        "regression": "DeepEnsembleRegressor",
        "classification": "DeepEnsembleClassifier",
    },
    "repulsive": {
        "regression": "RepulsiveEnsembleRegressor",
        "classification": "RepulsiveEnsembleClassifier",
    },
    "linearised": {"regression": "LinearisedRegressor", "classification": "LinearisedClassifier"},
}
