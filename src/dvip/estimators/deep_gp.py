"""Deep Gaussian processes with inducing points as estimators; one layer is the sparse GP."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import PRNGKeyArray

from dvip.estimators.base import DeepEstimator
from dvip.estimators.classification import DeepClassifier
from dvip.estimators.regression import DeepRegressor
from dvip.kernels import RBF
from dvip.layers import SparseGPLayer
from dvip.likelihoods import Likelihood

__all__ = ["DeepGPClassifier", "DeepGPRegressor"]

INITIAL_VARIANCE = 1.0


class _DeepGP(DeepEstimator):
    """The parameters of deep GPs and their layers."""

    n_inducing: int

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

    def _make_layer(
        self, index: int, inputs: np.ndarray, num_units: int, key: PRNGKeyArray
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


class DeepGPRegressor(DeepRegressor, _DeepGP):
    """Regression with a deep Gaussian process, doubly stochastic, with inducing points.

    Every layer has an RBF kernel with a length-scale for each input, which its units share. Inputs
    and targets are scaled inside. Predictions are mixtures.

    Parameters
    ----------
    n_layers : int, default 3
        Layers. One is the sparse GP; more make the predictive distribution non-Gaussian.
    n_inducing : int, default 100
        Inducing points of a layer, shared by its units. More are more flexible; the cost of a
        step grows with the square, of a large number with the cube.
    alpha : float from 0 to 1, default 0.0
        Of the α-energy; 0 is the ELBO. The paper's VIP has one layer and 0.5.
    max_iter : int, optional
        Training steps. By default 10,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 50,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.01
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        R, the samples propagated for a prediction: the components of the mixture.
    n_training_samples : int, optional
        Samples propagated in a training step. By default 1, and 10 where the α-energy of
        several layers needs them.
    n_units : int or sequence of int, optional
        Units of each inner layer. By default as many as inputs, 30 at most.
    input_propagation : bool or sequence of bool, default True
        Whether an inner layer adds its input to its output (its leading principal components,
        where the layer is narrower than its input); one for all inner layers, or one for each.
        Around a layer that reads images or sequences nothing is propagated.
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
        Whether to correct the width of the distributions, and their tails, by rows that were left
        out of the training: `validation_fraction` of them or, if it is not given, a tenth, or of
        an ensemble all rows, each by one member.
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
        The mean of the bound over successive stretches of the training.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done.
    input_shape_ : tuple of int
        The shape of one input, such as (28, 28) for images.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from dvip import DeepGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DeepGPRegressor(n_layers=1, max_iter=100).fit(X, y)
    >>> mean, std = model.predict(X[:5], return_std=True)
    >>> std.shape
    (5,)
    """


class DeepGPClassifier(DeepClassifier, _DeepGP):
    """Classification with a deep Gaussian process, with labels of any type.

    Inputs are scaled inside.

    Parameters
    ----------
    n_layers : int, default 3
        Layers. One is the sparse GP; more make the predictive distribution non-Gaussian.
    n_inducing : int, default 100
        Inducing points of a layer, shared by its units. More are more flexible; the cost of a
        step grows with the square, of a large number with the cube.
    alpha : float from 0 to 1, default 0.0
        Of the α-energy; 0 is the ELBO. The paper's VIP has one layer and 0.5.
    max_iter : int, optional
        Training steps. By default 10,000 for up to 2,000 rows, then as the square root of the
        number of rows, up to 50,000.
    batch_size : int, default 100
        Rows a step.
    learning_rate : float, default 0.01
        Of Adam at the first step; it falls to zero along a cosine.
    n_predictive_samples : int, default 100
        R, the samples propagated for a prediction: the components of the mixture.
    n_training_samples : int, optional
        Samples propagated in a training step. By default 1, and 10 where the α-energy of
        several layers needs them.
    n_units : int or sequence of int, optional
        Units of each inner layer. By default as many as inputs, 30 at most.
    input_propagation : bool or sequence of bool, default True
        Whether an inner layer adds its input to its output (its leading principal components,
        where the layer is narrower than its input); one for all inner layers, or one for each.
        Around a layer that reads images or sequences nothing is propagated.
    likelihood : {"auto", "probit", "robustmax", "softmax"} or Classification, default "auto"
        From units to classes: a name, an object such as `RobustMax(error=0.05)`, or one of a
        class of your own. "auto" is probit for two classes and robust-max for more.
    n_members : int, optional
        Train an ensemble of so many models, side by side; the prediction is the mean of their
        distributions. By default there is one model.
    validation_fraction : float, optional
        The share of the rows that is left out of the training to stop it when nothing improves
        any more and to keep the best. Each member of an ensemble leaves out another part.
    calibrate : bool, default False
        Whether to correct the probabilities by rows that were left out of the training:
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
        The mean of the bound over successive stretches of the training.
    calibration_ : Calibration
        How predictions are corrected, with `calibrate`.
    validation_scores_ : array of shape (scores, 3)
        Member, step and mean log-density of left-out rows, on the scale of the model.
    n_iter_ : int
        Training steps done.
    input_shape_ : tuple of int
        The shape of one input, such as (28, 28) for images.
    encoder_ : TableEncoder
        How a table became numbers; only where one was needed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dvip import DeepGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DeepGPClassifier(n_layers=1, max_iter=100).fit(X, y)
    >>> model.predict(X[:5]).shape
    (5,)
    """
