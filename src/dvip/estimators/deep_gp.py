"""Deep Gaussian processes with inducing points as estimators; one layer is the sparse GP."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import PRNGKeyArray

from dvip.estimators.base import DeepEstimator
from dvip.estimators.classification import DeepClassifier
from dvip.estimators.documenting import documented
from dvip.estimators.regression import DeepRegressor
from dvip.kernels import RBF
from dvip.layers import SparseGPLayer
from dvip.likelihoods import Classification
from dvip.network import MakeLayer

__all__ = ["DeepGPClassifier", "DeepGPRegressor"]

INITIAL_VARIANCE = 1.0


class _DeepGP(DeepEstimator):
    """The parameters of deep GPs and their layers."""

    _counts: ClassVar[tuple[str, ...]] = (*DeepEstimator._counts, "n_inducing")
    _default_steps: ClassVar[tuple[int, int]] = (10_000, 50_000)

    def __init__(
        self,
        n_layers: int = 3,
        n_inducing: int = 100,
        alpha: float = 0.0,
        max_iter: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        n_predictive_samples: int = 100,
        n_training_samples: int | None = None,
        n_units: int | Sequence[int] | None = None,
        input_propagation: bool | Sequence[bool] = True,
        likelihood: str | Classification = "auto",
        precision: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ):
        self.n_layers = n_layers
        self.n_inducing = n_inducing
        self.alpha = alpha
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_predictive_samples = n_predictive_samples
        self.n_training_samples = n_training_samples
        self.n_units = n_units
        self.input_propagation = input_propagation
        self.likelihood = likelihood
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def _layer_maker(self) -> MakeLayer:
        def make_layer(
            index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
        ) -> SparseGPLayer:
            del key  # nothing is random at the start
            num_inputs = inputs.shape[1]
            # Scaled inputs are about √(2 inputs) apart.
            lengthscale = math.sqrt(num_inputs)
            return SparseGPLayer.create(
                RBF.create(num_inputs, INITIAL_VARIANCE, lengthscale),
                inputs,
                num_units,
                int(self.n_inducing),
                q_scale=self._q_scale(index),
            )

        return make_layer


_OWN_PARAMETERS = {
    "n_layers": (
        "int",
        "Layers. One is the sparse GP; more make the predictive distribution non-Gaussian.",
    ),
    "n_inducing": (
        "int",
        "Inducing points of a layer, shared by its units. More are more flexible; the cost of a "
        "step grows with the square, of a large number with the cube.",
    ),
    "max_iter": (
        "int",
        "Training steps. By default 10,000 for up to 2,000 rows, then as the square root of the "
        "number of rows, up to 50,000.",
    ),
}


@documented(_OWN_PARAMETERS)
class DeepGPRegressor(DeepRegressor, _DeepGP):
    """Regression with a deep Gaussian process, doubly stochastic, with inducing points.

    Every layer has an RBF kernel with a length-scale for each input, which its units share. Inputs
    and targets are scaled inside. Predictions are Gaussian mixtures.
    """


@documented(_OWN_PARAMETERS)
class DeepGPClassifier(DeepClassifier, _DeepGP):
    """Classification with a deep Gaussian process, with labels of any type."""
