"""Linearised networks: two ways to make a Gaussian process of a network with Gaussian weights.

`laplace.py` trains a network and linearises it afterwards (Immer et al. 2021), `function_space.py`
compares linearised functions while it trains (Rudner et al. 2022). Their estimators are here.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import PRNGKeyArray

from dvip.batches import ArrayData, Batch
from dvip.estimators.classification import DeepClassifier
from dvip.estimators.regression import DeepRegressor
from dvip.layers import Layer
from dvip.likelihoods import Likelihood
from dvip.neighbours.frame import NetworkEstimator, check_among, with_shared_parameters
from dvip.neighbours.function_space import FunctionSpaceLayer, weight_of_context
from dvip.neighbours.laplace import LaplaceLayer, with_posterior
from dvip.objectives import DeepModel, Ensemble
from dvip.prediction import members_of
from dvip.runtime import derived_seed, precision
from dvip.training import CheckpointFolder, Data, TrainingResult

__all__ = ["LinearisedClassifier", "LinearisedRegressor"]

METHODS = ("laplace", "function-space")


class _Linearised(NetworkEstimator):
    """The parameters of linearised networks, their layers, and what follows the training."""

    method: str
    prior_scale: float

    _positive: ClassVar[tuple[str, ...]] = ("prior_scale",)
    # Of "function-space": the KL's weight, until the model has it, and the variance of the noise by
    # which it is weighed: little, of targets whose variance is 1.
    _kl_weight: float = 1.0
    _noise_variance: ClassVar[float] = 0.01

    def __init__(
        self,
        hidden: Sequence[int] = (30, 30),
        activation: str = "tanh",
        method: str = "laplace",
        prior_scale: float = 2.0,
        max_iter: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.005,
        n_predictive_samples: int = 100,
        likelihood: str | Likelihood = "auto",
        n_members: int | None = None,
        validation_fraction: float | None = None,
        calibrate: bool = False,
        max_seconds: float | None = None,
        precision: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ):
        self._store(locals())

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        super().check_parameters()
        check_among("method", self.method, METHODS)

    def _steps_by_default(self) -> tuple[int, int]:
        fewest, most = self._default_steps  # a step in function space takes far longer
        return (fewest, most) if self.method == "laplace" else (fewest // 2, most // 2)

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
    ) -> Layer:
        del index
        widths, scale = self._widths(inputs.shape[1], num_units), float(self.prior_scale)
        if self.method == "laplace":
            return LaplaceLayer.create(widths, self.activation, scale, key)
        return FunctionSpaceLayer.create(
            inputs, widths, self.activation, scale, self._kl_weight, key
        )

    def _weigh_kl(self, inputs: np.ndarray, num_rows: int) -> None:
        if self.method == "function-space":
            hidden, scale = tuple(map(int, self.hidden)), float(self.prior_scale)
            with precision(self.precision):
                self._kl_weight = weight_of_context(
                    inputs, hidden, self.activation, scale, self._noise_variance, num_rows
                )

    def _train_on(
        self, data: Data, inputs: np.ndarray, checkpoints: CheckpointFolder | None = None
    ) -> None:
        self._weigh_kl(inputs, data.num_rows)
        super()._train_on(data, inputs, checkpoints)

    def _train_members(
        self,
        data: Data,
        inputs: np.ndarray,
        checkpoints: CheckpointFolder | None,
        max_iter: int,
        report: Callable[[int, float], Any],
    ) -> list[TrainingResult]:
        results = super()._train_members(data, inputs, checkpoints, max_iter, report)
        if self.method == "laplace":
            self._linearise([self._divided(data, index)[0] for index in range(len(results))])
        return results

    def _train_once(self, rows: Batch) -> None:
        laplace = self.method == "laplace"
        if not hasattr(self, "model_"):
            self._weigh_kl(np.asarray(rows.inputs), len(rows.inputs))
        if laplace and hasattr(self, "model_"):
            self._replace_models([_without_posterior(model) for model in self._models()])
        super()._train_once(rows)
        if laplace:
            inputs, targets, weights = map(np.asarray, rows)
            data = ArrayData(inputs, targets, weights)
            self._linearise([data] * self._num_members, self.n_samples_seen_)

    def _linearise(self, data: Sequence[Data], num_data: int | None = None) -> None:
        """Adds the posterior of the weights, by the rows of each member, to what was trained."""
        with precision(self.precision):
            models = [
                with_posterior(
                    model, rows, derived_seed(self.seed_, index), num_data or rows.num_rows
                )
                for index, (model, rows) in enumerate(zip(self._models(), data, strict=True))
            ]
        self._replace_models(models)

    def _models(self) -> Sequence[DeepModel]:
        models: Any = members_of(self.model_)  # none is sampled
        return models

    def _replace_models(self, models: Sequence[DeepModel]) -> None:
        self.model_ = models[0] if self.n_members is None else Ensemble(tuple(models))


def _without_posterior(model: DeepModel) -> DeepModel:
    layer: Any = model.network.stages[0].layer
    return eqx.tree_at(lambda model: model.network.stages[0].layer, model, layer.without_factor())


@with_shared_parameters
class LinearisedRegressor(DeepRegressor, _Linearised):
    """Regression with a network that is linearised in its Gaussian weights.

    Inputs and targets are scaled inside. With "laplace", the function at a row is Gaussian; with
    "function-space", predictions are mixtures over samples of the weights.

    Parameters
    ----------
    {network}
    method : {"laplace", "function-space"}, default "laplace"
        Train a network, then take it as linear in its weights, with their posterior in closed form;
        or find independent Gaussian weights whose linearised functions stay near those of the
        prior, in half as many steps. "laplace" keeps a covariance of all weights: of networks with
        more than 3,000 it is that of the last layer alone.
    prior_scale : float, default 2.0
        Standard deviation of the weights a priori, of those of a sum of n terms over √n. "laplace"
        chooses it anew after the training, by the marginal likelihood.
    {training}
    {likelihood}
    {others}

    Attributes
    ----------
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from dvip import LinearisedRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LinearisedRegressor(hidden=(10,), max_iter=100).fit(X, y)
    >>> mean, std = model.predict(X[:5], return_std=True)
    >>> std.shape
    (5,)
    """


@with_shared_parameters
class LinearisedClassifier(DeepClassifier, _Linearised):
    """Classification with a network that is linearised in its Gaussian weights.

    Inputs are scaled inside. Probabilities are means over the posterior.

    Parameters
    ----------
    {network}
    method : {"laplace", "function-space"}, default "laplace"
        Train a network, then take it as linear in its weights, with their posterior in closed form;
        or find independent Gaussian weights whose linearised functions stay near those of the
        prior, in half as many steps. "laplace" keeps a covariance of all weights: of networks with
        more than 3,000 it is that of the last layer alone.
    prior_scale : float, default 2.0
        Standard deviation of the weights a priori, of those of a sum of n terms over √n. "laplace"
        chooses it anew after the training, by the marginal likelihood.
    {training}
    {likelihood}
    {others}

    Attributes
    ----------
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dvip import LinearisedClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearisedClassifier(hidden=(10,), max_iter=100).fit(X, y)
    >>> model.predict(X[:5]).shape
    (5,)
    """

    _noise_variance: ClassVar[float] = 1.0  # a label tells little of a unit
