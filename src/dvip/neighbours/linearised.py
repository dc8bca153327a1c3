"""Linearised networks: two ways to make a Gaussian process of a network with Gaussian weights.

`laplace.py` trains a network and linearises it afterwards (Immer et al. 2021), `function_space.py`
compares linearised functions while it trains (Rudner et al. 2022). Their estimators are here.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import PRNGKeyArray

from dvip.batches import ArrayData, Batch
from dvip.estimators.classification import DeepClassifier
from dvip.estimators.regression import DeepRegressor
from dvip.layers import Layer
from dvip.likelihoods import Likelihood
from dvip.neighbours.frame import NetworkEstimator, check_among
from dvip.neighbours.function_space import NUM_SAMPLES, FunctionSpaceLayer, weight_of_context
from dvip.neighbours.laplace import LaplaceLayer, with_posterior
from dvip.objectives import DeepModel, Ensemble
from dvip.prediction import members_of
from dvip.runtime import derived_seed, precision
from dvip.training import CheckpointFolder, Data, TrainingResult, TrainingSettings

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

    def _settings(self, max_iter: int) -> TrainingSettings:
        settings = super()._settings(max_iter)
        if self.method == "laplace":  # nothing is random
            return settings
        return replace(settings, num_samples=NUM_SAMPLES)

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


class LinearisedRegressor(DeepRegressor, _Linearised):
    """Regression with a network that is linearised in its Gaussian weights.

    Inputs and targets are scaled inside. With "laplace", the function at a row is Gaussian; with
    "function-space", predictions are mixtures over samples of the weights.

    Parameters
    ----------
    hidden : sequence of int, default (30, 30)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "tanh"
        Between its layers.
    method : {"laplace", "function-space"}, default "laplace"
        Train a network, then take it as linear in its weights, with their posterior in closed form;
        or find independent Gaussian weights whose linearised functions stay near those of the
        prior, in half as many steps. "laplace" keeps a covariance of all weights: of networks with
        more than 3,000 it is that of the last layer alone.
    prior_scale : float, default 2.0
        Standard deviation of the weights a priori, of those of a sum of n terms over √n. "laplace"
        chooses it anew after the training, by the marginal likelihood.
    max_iter : int, optional
        Training steps. By default 10,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 50,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.005
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        The samples of a prediction: the components of the mixture.
    likelihood : str or Regression, default "auto"
        The noise of the data: a name, or an object of a class of your own. "auto" is Gaussian
        noise, "gaussian". "heteroscedastic" is Gaussian noise whose size depends on the inputs,
        "student-t" has heavy tails, "heteroscedastic-student-t" both; "log-normal" is for
        positive numbers, "poisson" and "negative-binomial" for counts.
    n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, default False
        Whether to correct predictions by rows that were left out of the training:
        `validation_fraction` of them or, if it is not given, a tenth, or of an ensemble all rows,
        each by one member.
    max_seconds : float, optional
        How long `fit` may take; the training is shortened to it.
    precision : {"float32", "float64"}, default "float32"
        Of all computations of the model.
    random_state : int, RandomState or None, default 0
        The same number gives the same model.
    verbose : bool, default False
        Whether to show a progress bar; where there is no terminal, a line a minute.

    Attributes
    ----------
    model_ : DeepModel or Ensemble
        The trained network and likelihood, or with `n_members` all of them.
    bound_history_ : array
        The mean of the objective over successive stretches of the training.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

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


class LinearisedClassifier(DeepClassifier, _Linearised):
    """Classification with a network that is linearised in its Gaussian weights.

    Inputs are scaled inside. Probabilities are means over the posterior.

    Parameters
    ----------
    hidden : sequence of int, default (30, 30)
        Widths of the network's hidden layers.
    activation : {"tanh", "relu", "silu", "sigmoid", "softplus", "cos"}, default "tanh"
        Between its layers.
    method : {"laplace", "function-space"}, default "laplace"
        Train a network, then take it as linear in its weights, with their posterior in closed form;
        or find independent Gaussian weights whose linearised functions stay near those of the
        prior, in half as many steps. "laplace" keeps a covariance of all weights: of networks with
        more than 3,000 it is that of the last layer alone.
    prior_scale : float, default 2.0
        Standard deviation of the weights a priori, of those of a sum of n terms over √n. "laplace"
        chooses it anew after the training, by the marginal likelihood.
    max_iter : int, optional
        Training steps. By default 10,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 50,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.005
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        The samples of a prediction: the components of the mixture.
    likelihood : {"auto", "probit", "robustmax", "softmax"} or Classification, default "auto"
        From units to classes: a name, an object such as `RobustMax(error=0.05)`, or one of a
        class of your own. "auto" is probit for two classes and softmax for more.
    n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, default False
        Whether to correct predictions by rows that were left out of the training:
        `validation_fraction` of them or, if it is not given, a tenth, or of an ensemble all rows,
        each by one member.
    max_seconds : float, optional
        How long `fit` may take; the training is shortened to it.
    precision : {"float32", "float64"}, default "float32"
        Of all computations of the model.
    random_state : int, RandomState or None, default 0
        The same number gives the same model.
    verbose : bool, default False
        Whether to show a progress bar; where there is no terminal, a line a minute.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
    model_ : DeepModel or Ensemble
        The trained network and likelihood, or with `n_members` all of them.
    bound_history_ : array
        The mean of the objective over successive stretches of the training.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

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
